//! Sets that are made as a whole, of members that come in the order of rows, for SUNIONSTORE and its relatives. The
//! rows of a large one belong to a new object, so that they are written ahead and nothing has to hold them.

use crate::element::{self, Rows};
use crate::key::{self, Header, Object};
use crate::packed;
use crate::set::encoding::{Limits, Tally};
use crate::set::merge::{Merge, Operation};
use crate::set::{self, Set};
use crate::value::encoding::SET_INTSET;
use crate::{Result, integer};
use haypile_store::{Key, RowPresence, Txn};

/// A set in the making.
pub struct Making {
    entries: Vec<u8>,
    rows: Option<Rows>,
    pub(crate) tally: Tally,
}

impl Making {
    pub(crate) fn new() -> Making {
        Making { entries: Vec::new(), rows: None, tally: Tally::EMPTY }
    }

    /// Tells whether a member is there.
    pub(crate) fn contains(&self, txn: &mut Txn<'_>, hash: u32, member: &[u8]) -> Result<bool> {
        if let Some(rows) = &self.rows {
            return Ok(txn.row_presence(&rows.element(hash, member))? != RowPresence::Absent);
        }
        let mut reader = packed::Packed { encoding: 0, count: 0, entries: &self.entries }.reader();
        while !reader.is_at_end() {
            if reader.string()? == member {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds a member that is not there yet.
    pub(crate) fn add(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, hash: u32, member: &[u8]) -> Result<()> {
        self.tally.add(member);
        if let Some(rows) = self.rows {
            return Ok(txn.put_row(&rows.element(hash, member), &[])?);
        }
        if packed::fits(self.entries.len() + packed::string_bytes(member), self.tally.count as usize) {
            packed::put_string(&mut self.entries, member);
            return Ok(());
        }
        let rows = Rows { space: key.space, object: Object::new(txn, key)? };
        let entries = std::mem::take(&mut self.entries);
        let mut reader = packed::Packed { encoding: 0, count: 0, entries: &entries }.reader();
        while !reader.is_at_end() {
            let packed = reader.string()?;
            txn.put_row(&rows.element(element::hash(txn, packed), packed), &[])?;
        }
        self.rows = Some(rows);
        Ok(txn.put_row(&rows.element(hash, member), &[])?)
    }

    /// Gives the set to the key, which was `before`, with a deadline if it shall have one. There is a member.
    pub(crate) fn finish(
        mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        before: Option<&Header>,
        deadline_ms: Option<u64>,
        encoding: u8,
    ) -> Result<()> {
        if encoding == SET_INTSET && self.rows.is_none() {
            self.entries = ascending(&self.entries)?;
        }
        let Making { entries, rows, tally } = self;
        set::write(txn, key, before, deadline_ms, encoding, tally.count, &entries, rows)
    }
}

/// Returns integers in ascending order.
fn ascending(entries: &[u8]) -> Result<Vec<u8>> {
    let mut members = Vec::new();
    let mut reader = packed::Packed { encoding: 0, count: 0, entries }.reader();
    while !reader.is_at_end() {
        members.push(reader.string()?);
    }
    members.sort_unstable_by_key(|member| integer::parse(member));
    let mut sorted = Vec::with_capacity(entries.len());
    members.iter().for_each(|member| packed::put_string(&mut sorted, member));
    Ok(sorted)
}

/// Stores the result of an operation over `sets` under a key, in place of any value there, and returns how many members
/// it has; an empty result leaves the key as it is.
pub fn store(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    mut merge: Merge,
    operation: Operation,
    sets: &[Option<Set>],
) -> Result<u64> {
    let limits = Limits::of(txn);
    let mut making = Making::new();
    while merge.advance(txn)? {
        let (hash, member) = merge.member();
        making.add(txn, key, hash, member)?;
    }
    let tally = making.tally;
    if tally.count == 0 {
        return Ok(0);
    }
    // Redis removes the others from a copy of the first set where that is less work, and the encoding is the copy's.
    let from_a_copy = operation == Operation::Difference && {
        let counts = || sets.iter().flatten().map(Set::count);
        let (first, sets) = (counts().next().unwrap_or(0), counts().count() as u64);
        first.saturating_mul(sets) / 2 > counts().sum()
    };
    let encoding = limits.whole(if from_a_copy { merge.led() } else { tally });
    let before = key::lookup_overwrite(txn, key)?;
    making.finish(txn, key, before.as_ref(), None, encoding)?;
    Ok(tally.count)
}
