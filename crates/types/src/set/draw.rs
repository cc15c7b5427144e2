//! Random members: drawn without reading the set, each equally likely. `walk` draws a single one; where a large part of
//! a set is asked for, the set is walked instead, and each member decided on.

use crate::element::{self, ROWS_INLINE_MAX, Rows};
use crate::key::{self, damaged};
use crate::packed::{self, Packed};
use crate::set::encoding::Limits;
use crate::set::merge::{Means, Members, Merge, Operation, merge};
use crate::set::store::Making;
use crate::set::{self, Set};
use crate::walk::{self, Choice, Dice};
use crate::{Error, Result};
use haypile_store::row::RowKey;
use haypile_store::{Key, Txn, Value};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Draws that are made on an event loop.
const DRAWS_AT_ONCE: u64 = 32;

/// Draws for each member that is wanted, of which one in eight at most has been drawn before.
const DRAWS_PER_MEMBER: u64 = 64;

/// Members that are drawn one by one and held in memory.
const DRAWS_MAX: u64 = 100_000;

/// A sample of this part of the set is taken by a walk: one more row costs far less than one more draw.
const WALK_FROM: u64 = 8;

/// Redis makes a new set of the remaining members if so many times as many were taken out.
const REMAKE_FROM: u64 = 5;

/// Bytes of a bulk string besides its own, about.
const BULK_BYTES: usize = 8;

/// Draws a member of a set in rows; also returns whether the set is better copied without its dead rows.
fn draw_from(txn: &mut Txn<'_>, rows: Rows, count: u64, dice: &mut Dice) -> Result<(Value, bool)> {
    let mut drawn = None;
    let is_sparse = walk::draw(txn, rows, count, dice, |member, _| drawn = Some(Value::from(member)))?;
    drawn.map(|member| (member, is_sparse)).ok_or_else(|| damaged("a set without members", &count.to_be_bytes()))
}

fn row_of(txn: &Txn<'_>, rows: &Rows, member: &[u8]) -> RowKey {
    rows.element(element::hash(txn, member), member)
}

/// Returns where member `nth` begins and ends among the entries, with and without its length.
fn nth_of(packed: &Packed<'_>, nth: u64) -> Result<(usize, usize, usize)> {
    let mut reader = packed.reader();
    for _ in 0..nth {
        reader.string()?;
    }
    let start = reader.position();
    let bytes = reader.string()?.len();
    Ok((start, reader.position() - bytes, reader.position()))
}

/// Draws one member.
pub fn draw(txn: &mut Txn<'_>, set: Set) -> Result<Value> {
    let mut dice = Dice::new(txn);
    if let Some(rows) = set.rows() {
        return Ok(draw_from(txn, rows, set.count(), &mut dice)?.0);
    }
    let (_, start, end) = nth_of(&set.packed()?, dice.below(set.count().max(1)))?;
    Ok(set.into_payload().slice(packed::HEAD_BYTES + start..packed::HEAD_BYTES + end))
}

/// Takes out one member; also returns how many are left.
pub fn pop(txn: &mut Txn<'_>, key: &Key<'_>, set: Set) -> Result<(Value, u64)> {
    let (mut dice, left) = (Dice::new(txn), set.count().saturating_sub(1));
    if let Some(rows) = set.rows() {
        let (member, is_sparse) = draw_from(txn, rows, set.count(), &mut dice)?;
        if is_sparse && left > 0 {
            copy_without(txn, key, &set, &member)?;
            return Ok((member, left));
        }
        txn.delete_row(&row_of(txn, &rows, &member))?;
        set::write_or_remove(txn, key, &set, left, &[])?;
        return Ok((member, left));
    }
    let packed = set.packed()?;
    let (entry, start, end) = nth_of(&packed, dice.below(set.count().max(1)))?;
    let header = set.header();
    if left == 0 {
        key::remove(txn, key, header)?;
    } else {
        let head = Packed { encoding: set.encoding, count: left as u16, entries: &[] }.head();
        key::write(txn, key, Some(header), header, &[&head, &packed.entries[..entry], &packed.entries[end..]])?;
    }
    Ok((set.into_payload().slice(packed::HEAD_BYTES + start..packed::HEAD_BYTES + end), left))
}

/// Copies a set without one of its members, and without the dead rows among which the others lie: draws and walks pass
/// those each time.
fn copy_without(txn: &mut Txn<'_>, key: &Key<'_>, set: &Set, gone: &[u8]) -> Result<()> {
    // The walk passes the dead rows, too.
    txn.long()?;
    // Collected first, since a walk looks through all that its transaction has written. They are few: a sparse set's
    // rows all lie in memory, and most of them are dead.
    let (mut members, mut walk) = (Vec::new(), walk(txn, key, set)?);
    while walk.advance(txn)? {
        let (hash, member) = walk.member();
        if member != gone {
            members.push((hash, Box::<[u8]>::from(member)));
        }
    }
    if members.len() as u64 + 1 != set.count() {
        return Err(damaged("the count of a set", &set.count().to_be_bytes()));
    }
    let mut making = Making::new();
    for (hash, member) in &members {
        making.add(txn, key, *hash, member)?;
    }
    let header = set.header();
    making.finish(txn, key, Some(header), header.deadline_ms, set.encoding)
}

/// The members of a walk that a selection takes, one by one. The walk may be read later and elsewhere.
pub struct Selected {
    members: Members,
    choice: Choice,
    dice: Dice,
}

impl Selected {
    /// Goes to the next member and says whether there is one.
    ///
    /// # Errors
    /// The disk cannot be read, for the reason given.
    pub fn advance(&mut self) -> std::result::Result<bool, String> {
        while self.members.advance()? {
            if self.choice.takes_next(&mut self.dice) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub fn member(&self) -> &[u8] {
        self.members.member()
    }
}

/// Draws `count` distinct members, fewer than there are. They go to `take`, or, if they are very many, are returned to
/// be read later.
pub fn sample(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    set: &Set,
    count: u64,
    mut take: impl FnMut(&[u8]),
) -> Result<Option<Selected>> {
    let (mut dice, mut choice) = (Dice::new(txn), Choice { total: set.count(), count });
    if set.count() <= ROWS_INLINE_MAX as u64 {
        set.visit(txn, |member| {
            if choice.takes_next(&mut dice) {
                take(member);
            }
            ControlFlow::Continue(())
        })?;
        return Ok(None);
    }
    if let Some(rows) = set.rows().filter(|_| is_few(set, count)) {
        draw_distinct(txn, rows, set.count(), count, &mut dice)?.iter().for_each(|member| take(member));
        return Ok(None);
    }
    let members = walk(txn, key, set)?.into_members();
    Ok(Some(Selected { members, choice, dice }))
}

/// Tells whether so many members are drawn one by one.
fn is_few(set: &Set, count: u64) -> bool {
    count <= DRAWS_MAX && count < set.count() / WALK_FROM
}

/// Returns a walk over all members in order.
fn walk(txn: &mut Txn<'_>, key: &Key<'_>, set: &Set) -> Result<Merge> {
    merge(txn, &[*key], &[Some(set.clone())], Operation::Union, Means::Walks)
}

/// Draws members until `wanted` different ones have come, which are a small part of the set.
fn draw_distinct(
    txn: &mut Txn<'_>,
    rows: Rows,
    count: u64,
    wanted: u64,
    dice: &mut Dice,
) -> Result<HashSet<Box<[u8]>>> {
    if wanted > DRAWS_AT_ONCE {
        txn.long()?;
    }
    let mut drawn = HashSet::with_capacity(wanted as usize);
    let mut draws = 0;
    while (drawn.len() as u64) < wanted {
        draws += 1;
        if draws > DRAWS_PER_MEMBER * (wanted + 1) {
            // A dry run, whose rows may be of two moments, or a damaged set.
            return Err(damaged("the count of a set", &count.to_be_bytes()));
        }
        walk::draw(txn, rows, count, dice, |member, _| {
            drawn.insert(member.into());
        })?;
    }
    Ok(drawn)
}

/// Members drawn one after the other from a set that is small enough to be held, without end.
pub struct Repeated {
    members: Vec<Vec<u8>>,
    dice: Dice,
}

impl Repeated {
    pub fn draw(&mut self) -> &[u8] {
        let at = self.dice.below(self.members.len() as u64);
        &self.members[at as usize]
    }
}

/// Draws `count` members, each from all of them. Those of a large set go to `take`, with an error if a reply of them
/// would be longer than `bytes_max`; a small set is returned to be drawn from.
pub fn sample_repeated(
    txn: &mut Txn<'_>,
    set: &Set,
    count: u64,
    bytes_max: usize,
    mut take: impl FnMut(&[u8]),
) -> Result<Option<Repeated>> {
    let mut dice = Dice::new(txn);
    let Some(rows) = set.rows().filter(|_| set.count() > ROWS_INLINE_MAX as u64) else {
        let mut members = Vec::with_capacity(set.count() as usize);
        set.visit(txn, |member| {
            members.push(member.to_vec());
            ControlFlow::Continue(())
        })?;
        return Ok(Some(Repeated { members, dice }));
    };
    if count > DRAWS_AT_ONCE {
        txn.long()?;
    }
    let mut bytes = 0;
    for _ in 0..count {
        walk::draw(txn, rows, set.count(), &mut dice, |member, _| {
            bytes += member.len() + BULK_BYTES;
            take(member);
        })?;
        if bytes > bytes_max {
            return Err(Error::TooMany);
        }
    }
    Ok(None)
}

/// Takes out `count` random members, fewer than there are. They go to `take`, or, if they are very many, are returned
/// as a view of the time before, to be read later.
pub fn pop_sample(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    set: &Set,
    count: u64,
    mut take: impl FnMut(&[u8]),
) -> Result<Option<Selected>> {
    let left = set.count() - count;
    let remake = left.saturating_mul(REMAKE_FROM) <= count;
    let (mut dice, mut choice) = (Dice::new(txn), Choice { total: set.count(), count });
    if let Some(rows) = set.rows().filter(|_| !remake && count <= DRAWS_MAX) {
        if set.count() > ROWS_INLINE_MAX as u64 && is_few(set, count) {
            for member in draw_distinct(txn, rows, set.count(), count, &mut dice)? {
                take(&member);
                txn.delete_row(&row_of(txn, &rows, &member))?;
            }
        } else {
            let mut walk = walk(txn, key, set)?;
            while walk.advance(txn)? {
                let (hash, member) = walk.member();
                if choice.takes_next(&mut dice) {
                    take(member);
                    txn.delete_row(&rows.element(hash, member))?;
                }
            }
        }
        set::write_or_remove(txn, key, set, left, &[])?;
        return Ok(None);
    }
    // The remaining members become a new set, which may have any number of rows.
    let popped = match count > DRAWS_MAX {
        true => {
            Some(Selected { members: walk(txn, key, set)?.into_members(), choice: choice.clone(), dice: dice.clone() })
        }
        false => None,
    };
    let (mut walk, mut making) = (walk(txn, key, set)?, Making::new());
    while walk.advance(txn)? {
        let (hash, member) = walk.member();
        match choice.takes_next(&mut dice) {
            true if popped.is_some() => {}
            true => take(member),
            false => making.add(txn, key, hash, member)?,
        }
    }
    if making.tally.count != left {
        return Err(damaged("the count of a set", &set.count().to_be_bytes()));
    }
    let encoding = if remake { Limits::of(txn).left(set.encoding, making.tally) } else { set.encoding };
    let header = set.header();
    making.finish(txn, key, Some(header), header.deadline_ms, encoding)?;
    Ok(popped)
}
