//! Consumer groups: how far each has read a stream, and its state of its consumers and of the entries that they have
//! not acknowledged. Owns a group's row, and how many groups a stream has; consumers are in `consumer`, pending entries
//! in `pending`, and the meaning of an entry for a group that reads it in `reading`. Format: docs/format/stream.md.
//!
//! A change of a group leaves the stream's meta row as it is: as in Redis, WATCH of the key does not notice it.

use super::{Kind, Stream, StreamId};
use crate::element::{ROW_PREFIX_BYTES, Rows, lowered};
use crate::key::damaged;
use crate::{Error, Result};
use haypile_store::row::RowKey;
use haypile_store::{Direction, Key, Txn};
use smallvec::SmallVec;
use std::ops::ControlFlow;

/// The number of groups, and the number that the next one gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    pub groups: u32,
    pub next: u32,
}

impl Census {
    pub const BYTES: usize = 8;

    /// Returns `groups: u32 | next: u32`.
    pub fn encode(self) -> [u8; Census::BYTES] {
        (u64::from(self.groups) << 32 | u64::from(self.next)).to_be_bytes()
    }

    pub fn parse(value: &[u8]) -> Option<Census> {
        let both = u64::from_be_bytes(value.try_into().ok()?);
        Some(Census { groups: (both >> 32) as u32, next: both as u32 })
    }

    /// Reads the row, which exists from the first group on.
    fn read(txn: &mut Txn<'_>, rows: &Rows) -> Result<Census> {
        match txn.row(&rows.data(&[Kind::Census as u8]))? {
            None => Ok(Census::default()),
            Some(value) => Census::parse(&value).ok_or_else(|| damaged("the number of a stream's groups", &value)),
        }
    }

    fn write(self, txn: &mut Txn<'_>, rows: &Rows) -> Result<()> {
        Ok(txn.put_row(&rows.data(&[Kind::Census as u8]), &[&self.encode()])?)
    }
}

/// The row of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupState {
    /// The number by which its consumers and pending entries are found.
    pub number: u32,
    /// The last entry that was delivered: new ones are those behind it.
    pub last: StreamId,
    /// How many of the entries ever added stand up to `last`, as far as that is known.
    pub entries_read: Option<u64>,
    /// Entries that were delivered and not acknowledged.
    pub pending: u64,
    pub consumers: u32,
    /// The number that the next consumer gets.
    pub next_consumer: u32,
    /// Pending entries without consumer.
    pub nacked: u64,
    /// The order of the next entry that is handed back. Invariant: 0 if `nacked` is.
    pub next_nack: u64,
    /// A time before which no pending entry with a consumer was delivered last; `None` in a group that was never read
    /// with CLAIM.
    pub oldest_ms: Option<u64>,
}

/// The bytes of a group's row.
pub(super) type GroupRow = SmallVec<[u8; GroupState::BYTES_MAX]>;

impl GroupState {
    pub const BYTES: usize = 4 + StreamId::BYTES + 8 + 8 + 4 + 4;
    pub const BYTES_MAX: usize = GroupState::BYTES + 3 * 8;

    /// Returns the state of a group that has delivered nothing.
    pub fn new(number: u32, last: StreamId, entries_read: Option<u64>) -> GroupState {
        let [pending, nacked, next_nack] = [0; 3];
        let (consumers, next_consumer, oldest_ms) = (0, 0, None);
        GroupState { number, last, entries_read, pending, consumers, next_consumer, nacked, next_nack, oldest_ms }
    }

    /// Notes that a consumer has got an entry then.
    #[inline]
    pub(super) fn note_delivery(&mut self, delivered_ms: u64) {
        self.oldest_ms = self.oldest_ms.map(|oldest| oldest.min(delivered_ms));
    }

    /// Panics unless the numbers agree with one another.
    fn assert_sound(&self) {
        let GroupState { pending, nacked, next_nack, consumers, next_consumer, .. } = *self;
        assert!(nacked <= pending, "Invariant: entries without consumer are pending: {nacked} of {pending}");
        assert!(nacked <= next_nack, "Invariant: orders differ, and are below the next: {nacked}, {next_nack}");
        assert!(nacked > 0 || next_nack == 0, "Invariant: the next order is 0 if every entry has a consumer");
        assert!(consumers <= next_consumer, "Invariant: the numbers of consumers differ, and are below the next");
    }

    /// Returns the row: `number: u32 | last: u64, u64 | entries_read: i64, -1 if it is not known | pending: u64 |
    /// consumers: u32 | next_consumer: u32`, and unless the rest says nothing `nacked: u64 | next_nack: u64 |
    /// oldest_ms: i64, -1 if it is not known`.
    #[inline]
    pub fn encode(&self) -> GroupRow {
        let mut row = GroupRow::new();
        row.extend(self.encode_first());
        if self.nacked > 0 || self.oldest_ms.is_some() {
            let oldest = self.oldest_ms.unwrap_or(u64::MAX);
            [self.nacked, self.next_nack, oldest].iter().for_each(|number| row.extend(number.to_be_bytes()));
        }
        row
    }

    fn encode_first(&self) -> [u8; GroupState::BYTES] {
        let mut bytes = [0; GroupState::BYTES];
        bytes[..4].copy_from_slice(&self.number.to_be_bytes());
        bytes[4..20].copy_from_slice(&self.last.to_bytes());
        bytes[20..28].copy_from_slice(&self.entries_read.map_or(-1, |read| read as i64).to_be_bytes());
        bytes[28..36].copy_from_slice(&self.pending.to_be_bytes());
        bytes[36..40].copy_from_slice(&self.consumers.to_be_bytes());
        bytes[40..].copy_from_slice(&self.next_consumer.to_be_bytes());
        bytes
    }

    /// Parses the row; `None` if these bytes are none.
    #[inline]
    pub fn parse(value: &[u8]) -> Option<GroupState> {
        if value.len() != GroupState::BYTES && value.len() != GroupState::BYTES_MAX {
            return None;
        }
        let short = |at: usize| u32::from_be_bytes(value[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_be_bytes(value[at..at + 8].try_into().expect("eight bytes"));
        let entries_read = match long(20) as i64 {
            -1 => None,
            // Redis counts with a sign: behind the highest number, which ENTRIESREAD can set, comes the lowest.
            read => Some(read as u64),
        };
        Some(GroupState {
            number: short(0),
            last: StreamId { ms: long(4), seq: long(12) },
            entries_read,
            pending: long(28),
            consumers: short(36),
            next_consumer: short(40),
            nacked: if value.len() > GroupState::BYTES { long(44) } else { 0 },
            next_nack: if value.len() > GroupState::BYTES { long(52) } else { 0 },
            oldest_ms: if value.len() > GroupState::BYTES { Some(long(60)).filter(|ms| *ms != u64::MAX) } else { None },
        })
    }
}

/// A group that was looked up.
#[derive(Clone, Debug)]
pub struct Group<'n> {
    pub(super) rows: Rows,
    pub name: &'n [u8],
    pub state: GroupState,
    /// The row as it is written.
    saved: GroupState,
}

/// Returns the key of the row of a group: `1 | name`.
#[inline]
fn row_of(rows: &Rows, name: &[u8]) -> RowKey {
    let mut row = rows.data(&[Kind::Group as u8]);
    row.extend_from_slice(name);
    row
}

impl<'n> Group<'n> {
    #[inline]
    pub fn find(txn: &mut Txn<'_>, stream: &Stream, name: &'n [u8]) -> Result<Option<Group<'n>>> {
        let rows = stream.rows();
        let Some(value) = txn.row(&row_of(&rows, name))? else {
            // A row that is gone leaves no trace of the record that took it, on which the caller's reply depends. The
            // record that destroys a group writes this one as well.
            Census::read(txn, &rows)?;
            return Ok(None);
        };
        match GroupState::parse(&value) {
            Some(state) => Ok(Some(Group { rows, name, state, saved: state })),
            None => Err(damaged("a consumer group", &value)),
        }
    }

    /// Makes a group of a stream whose key exists; `false` if the stream has one of this name.
    pub fn create(
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        stream: &Stream,
        name: &[u8],
        last: StreamId,
        entries_read: Option<u64>,
    ) -> Result<bool> {
        let rows = stream.rows();
        if Group::find(txn, stream, name)?.is_some() {
            return Ok(false);
        }
        let census = Census::read(txn, &rows)?;
        debug_assert!(census.groups <= census.next, "Invariant: the numbers of groups differ, and are below the next");
        let next = census.next.checked_add(1).ok_or(Error::Overflow)?;
        let number = census.next;
        let state = GroupState::new(number, last, entries_read);
        txn.put_row(&row_of(&rows, name), &[&state.encode()])?;
        Census { groups: census.groups + 1, next }.write(txn, &rows)?;
        txn.touch_key(key);
        Ok(true)
    }

    /// Writes the group's row if it has changed. The record names the stream's key, whatever else of the group changes.
    #[inline]
    pub fn save(&mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        txn.touch_key(key);
        if self.state != self.saved {
            // In a dry run the rows may be of two moments.
            if cfg!(debug_assertions) && !txn.is_dry_run() {
                self.state.assert_sound();
            }
            txn.put_row(&row_of(&self.rows, self.name), &[&self.state.encode()])?;
            self.saved = self.state;
        }
        Ok(())
    }

    /// Removes the group with all rows that belong to it.
    pub fn destroy(self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        txn.touch_key(key);
        self.long_if(txn, self.state.pending.saturating_add(u64::from(self.state.consumers)))?;
        let GroupState { pending, nacked, consumers, .. } = self.state;
        let rows = [
            (Kind::Consumer, u64::from(consumers)),
            (Kind::Pending, pending),
            (Kind::ByConsumer, pending.saturating_sub(nacked)),
            (Kind::Nacked, nacked),
        ];
        for (kind, stated) in rows {
            let (from, until) = self.range_of(kind);
            let removed = remove_rows(txn, from, &until)?;
            debug_assert!(
                txn.is_dry_run() || removed == stated,
                "Invariant: a group states how many rows it has: {stated} of {kind:?}, not {removed}"
            );
        }
        txn.delete_row(&row_of(&self.rows, self.name))?;
        let census = Census::read(txn, &self.rows)?;
        let groups = lowered(txn, u64::from(census.groups), 1) as u32;
        Census { groups, ..census }.write(txn, &self.rows)
    }

    /// Asks for the I/O pool where so many rows are to be read or written.
    pub(super) fn long_if(&self, txn: &Txn<'_>, rows: u64) -> Result<()> {
        if rows > crate::element::ROWS_INLINE_MAX as u64 {
            txn.long()?;
        }
        Ok(())
    }

    /// Returns the key of a row of the group: `kind: u8 | number: u32 | rest`.
    #[inline]
    pub(super) fn row(&self, kind: Kind, rest: &[&[u8]]) -> RowKey {
        let mut row = self.rows.data(&[kind as u8]);
        row.extend_from_slice(&self.state.number.to_be_bytes());
        rest.iter().for_each(|part| row.extend_from_slice(part));
        row
    }

    /// Returns the bounds of all rows of a kind that the group has.
    pub(super) fn range_of(&self, kind: Kind) -> (RowKey, RowKey) {
        let until = match self.state.number.checked_add(1) {
            Some(next) => {
                let mut until = self.rows.data(&[kind as u8]);
                until.extend_from_slice(&next.to_be_bytes());
                until
            }
            None => self.rows.data(&[kind as u8 + 1]),
        };
        (self.row(kind, &[]), until)
    }
}

/// Bytes of a row's key before its name within the group: the object, the kind, the group's number.
pub(super) const GROUP_PREFIX_BYTES: usize = ROW_PREFIX_BYTES + 1 + 4;

/// Rows removed in one step.
const STEP_ROWS: usize = 1024;

/// Removes all rows in a range, and returns how many there were.
pub(super) fn remove_rows(txn: &mut Txn<'_>, mut from: RowKey, until: &[u8]) -> Result<u64> {
    let mut removed = 0;
    loop {
        let mut step: Vec<RowKey> = Vec::new();
        txn.visit(&from, until, Direction::Forward, STEP_ROWS, |row, _| {
            step.push(RowKey::from_slice(row));
            if step.len() < STEP_ROWS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        for row in &step {
            txn.delete_row(row)?;
        }
        removed += step.len() as u64;
        match step.pop() {
            Some(last) if step.len() + 1 == STEP_ROWS => {
                from = last;
                from.push(0);
            }
            _ => return Ok(removed),
        }
    }
}

impl Stream {
    /// Returns how many groups the stream has.
    pub fn groups(&self, txn: &mut Txn<'_>) -> Result<u32> {
        Ok(Census::read(txn, &self.rows())?.groups)
    }

    /// Shows all groups, in the order of their names' bytes.
    pub fn visit_groups(&self, txn: &mut Txn<'_>, mut visit: impl FnMut(&[u8], GroupState)) -> Result<()> {
        let rows = self.rows();
        // The reply depends on the groups that are gone, as in `Group::find`.
        Census::read(txn, &rows)?;
        let (from, until) = (rows.data(&[Kind::Group as u8]), rows.data(&[Kind::Consumer as u8]));
        let mut ended = Ok(());
        txn.visit(&from, &until, Direction::Forward, STEP_ROWS, |row, value| match GroupState::parse(value) {
            Some(state) => {
                visit(&row[ROW_PREFIX_BYTES + 1..], state);
                ControlFlow::Continue(())
            }
            None => {
                ended = Err(damaged("a consumer group", value));
                ControlFlow::Break(())
            }
        })?;
        ended
    }

    /// Returns the group that `visit_groups` has shown.
    pub fn group<'n>(&self, name: &'n [u8], state: GroupState) -> Group<'n> {
        Group { rows: self.rows(), name, state, saved: state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "entries without consumer are pending")]
    fn an_entry_without_consumer_that_is_not_pending_is_noticed() {
        let none = GroupState::new(7, StreamId::MIN, None);
        none.assert_sound();
        GroupState { pending: 2, nacked: 1, next_nack: 3, consumers: 1, next_consumer: 1, ..none }.assert_sound();
        GroupState { pending: 0, nacked: 1, next_nack: 3, ..none }.assert_sound();
    }

    #[test]
    #[should_panic(expected = "the numbers of consumers differ")]
    fn a_number_that_two_consumers_would_have_is_noticed() {
        GroupState { consumers: 2, next_consumer: 1, ..GroupState::new(7, StreamId::MIN, None) }.assert_sound();
    }

    #[test]
    fn a_group_comes_apart_as_it_was_put_together() {
        let known = GroupState {
            number: 7,
            last: StreamId::new(1, 2),
            entries_read: Some(3),
            pending: 4,
            consumers: 5,
            next_consumer: 6,
            ..GroupState::new(7, StreamId::MIN, None)
        };
        let wrapped = GroupState { entries_read: Some(1 << 63), ..known };
        for state in [known, GroupState { entries_read: None, ..known }, wrapped] {
            assert_eq!(GroupState::parse(&state.encode()), Some(state));
            assert_eq!(state.encode().len(), GroupState::BYTES);
        }
        let nacked = GroupState { nacked: 2, next_nack: 9, ..known };
        for state in [nacked, GroupState { oldest_ms: Some(0), ..known }, GroupState { oldest_ms: Some(8), ..nacked }] {
            assert_eq!(GroupState::parse(&state.encode()), Some(state));
            assert_eq!(state.encode().len(), GroupState::BYTES_MAX);
        }
        assert_eq!(GroupState::parse(&known.encode()[1..]), None, "cut off");
        let census = Census { groups: 1, next: u32::MAX };
        assert_eq!(Census::parse(&census.encode()), Some(census));
    }
}
