//! Streams: a header in the meta row, and rows of an object for everything else. Owns the header, and how a stream is
//! created, looked up and written; entries are in `entries`, the removal of the oldest of them in `trim`. Format:
//! docs/format/stream.md.
//!
//! An empty stream stays: only DEL and its like remove it. Every change of the stream overwrites the header in place,
//! so that adding an entry writes two rows, whatever the length.

use crate::Result;
use crate::element::{ROW_PREFIX_BYTES, Rows};
use crate::key::{self, Entry, Header, Object, Tag, damaged};
use haypile_store::row::{self, Family, RowKey};
use haypile_store::{Direction, Key, Txn};
use std::ops::ControlFlow;

mod id;

mod entries;

mod trim;

mod make;

mod group;

mod consumer;

mod pending;

mod zone;

mod claiming;

mod reading;

mod references;

mod idempotency;

mod trim_by;

mod outgoing;

pub use claiming::Claimable;
pub use consumer::{Consumer, ConsumerName, ConsumerState};
pub use entries::{ELEMENT_BYTES, ENTRY_BYTES_MAX, Fields, element_of, id_of};
pub use group::{Census, Group, GroupState};
pub use id::StreamId;
pub use idempotency::{DURATION_S_MAX, IDS_MAX, ProducerState, Producers, ProducersState, idempotent_in_row};
pub use make::{Maker, Past};
pub use outgoing::{GroupViews, consumer_in_row, nacked_in_row, owned_in_row, pending_in_row};
pub use pending::{Edit, Held, Holder, Pending, Place};
pub use reading::Delivery;
pub use references::{GroupList, Outcome, Policy};
pub use trim::{Bound, Nodes, Trim};

/// The kinds of rows of a stream's object, by the first byte of the element. DO NOT CHANGE THESE NUMBERS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    Entry = 0,
    Group = 1,
    Consumer = 2,
    Pending = 3,
    ByConsumer = 4,
    Census = 5,
    Nacked = 6,
    Producers = 7,
    Producer = 8,
    Idempotent = 9,
    OfProducer = 10,
    ByAge = 11,
    /// The end of the kinds: no row is of this one, nor of one behind.
    End = 12,
}

/// The payload of a stream's meta row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub object: Object,
    /// Entries.
    pub count: u64,
    /// The highest id that was ever given out, or the one that XSETID has set. No entry is above.
    pub last: StreamId,
    /// The id of the first entry; 0-0 while there is none.
    pub first: StreamId,
    /// The highest id of an entry that XDEL removed.
    pub max_deleted: StreamId,
    /// Entries that were ever added, or the number that XSETID has set.
    pub entries_added: u64,
}

impl Head {
    /// Bytes of `id: u64 | slot: u16 | count: u64 | last: u64, u64 | first: u64, u64 | max_deleted: u64, u64 |
    /// entries_added: u64`.
    pub const BYTES: usize = Object::BYTES + 8 + 3 * StreamId::BYTES + 8;

    /// Returns the head of a stream that has nothing yet.
    pub fn empty(object: Object) -> Head {
        let none = StreamId::MIN;
        let [count, entries_added] = [0; 2];
        Head { object, count, last: none, first: none, max_deleted: none, entries_added }
    }

    #[inline]
    pub fn encode(&self) -> [u8; Head::BYTES] {
        let mut bytes = [0; Head::BYTES];
        bytes[..10].copy_from_slice(&self.object.encode());
        bytes[10..18].copy_from_slice(&self.count.to_be_bytes());
        bytes[18..34].copy_from_slice(&self.last.to_bytes());
        bytes[34..50].copy_from_slice(&self.first.to_bytes());
        bytes[50..66].copy_from_slice(&self.max_deleted.to_bytes());
        bytes[66..].copy_from_slice(&self.entries_added.to_be_bytes());
        bytes
    }

    /// Panics unless the head is that of a stream, with entries or without.
    fn assert_sound(&self) {
        let Head { count, first, last, .. } = *self;
        assert_eq!(first == StreamId::MIN, count == 0, "Invariant: the first id is 0-0 if there is no entry: {count}");
        assert!(first <= last, "Invariant: no entry is above the last id: {first:?}, {last:?}");
    }

    /// Parses the payload; `None` if these bytes are none.
    #[inline]
    pub fn parse(payload: &[u8]) -> Option<Head> {
        let payload: &[u8; Head::BYTES] = payload.try_into().ok()?;
        let long = |at: usize| u64::from_be_bytes(payload[at..at + 8].try_into().expect("eight bytes"));
        let id = |at: usize| StreamId { ms: long(at), seq: long(at + 8) };
        Some(Head {
            object: Object::parse(payload)?,
            count: long(10),
            last: id(18),
            first: id(34),
            max_deleted: id(50),
            entries_added: long(66),
        })
    }
}

/// A stream that was looked up, or that is about to be created. Changes of its head are written by `save`.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The key as it is written; `None`: not yet.
    before: Option<Header>,
    pub head: Head,
    rows: Rows,
}

impl Stream {
    /// Returns the stream that an entry holds; an error if it holds something else.
    #[inline]
    pub fn of(key: &Key<'_>, entry: &Entry) -> Result<Stream> {
        if entry.header.tag != Tag::Stream {
            return Err(crate::Error::WrongType);
        }
        match Head::parse(entry.payload()) {
            Some(head) => {
                let rows = Rows { space: key.space, object: head.object };
                Ok(Stream { before: Some(entry.header), head, rows })
            }
            None => Err(damaged("the header of a stream", entry.payload())),
        }
    }

    /// Returns the stream for a reader, and counts one; `None` if the key is absent.
    #[inline]
    pub fn lookup(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Stream>> {
        key::lookup(txn, key)?.map(|entry| Stream::of(key, &entry)).transpose()
    }

    /// Returns the stream for a writer; `None` if the key is absent.
    #[inline]
    pub fn edit(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Stream>> {
        key::lookup_write(txn, key)?.map(|entry| Stream::of(key, &entry)).transpose()
    }

    /// Returns an empty stream for a key that is absent. It exists once it is saved.
    pub fn create(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Stream> {
        Stream::replace(txn, key, None)
    }

    /// Returns an empty stream that replaces the key's value. It exists once it is saved, without deadline.
    pub fn replace(txn: &mut Txn<'_>, key: &Key<'_>, before: Option<Header>) -> Result<Stream> {
        let object = Object::new(txn, key)?;
        let before = before.map(|before| Header { deadline_ms: None, ..before });
        Ok(Stream { before, head: Head::empty(object), rows: Rows { space: key.space, object } })
    }

    /// Writes the meta row, last of all: from then on it names the object's rows. A stream that was changed is saved
    /// even if its head stays the same.
    #[inline]
    pub fn save(&mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        // In a dry run the rows may be of two moments.
        if cfg!(debug_assertions) && !txn.is_dry_run() {
            self.head.assert_sound();
        }
        let deadline_ms = self.before.and_then(|before| before.deadline_ms);
        let after = Header { tag: Tag::Stream, deadline_ms, fields: None, object: Some(self.head.object) };
        key::write(txn, key, self.before.as_ref(), &after, &[&self.head.encode()])?;
        self.before = Some(after);
        Ok(())
    }

    /// Tells whether the key exists already.
    pub fn is_saved(&self) -> bool {
        self.before.is_some()
    }

    /// Returns where the stream's rows lie.
    #[inline]
    pub fn rows(&self) -> Rows {
        self.rows
    }

    /// Returns the number of entries.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // An empty stream is one like any other.
    pub fn len(&self) -> u64 {
        self.head.count
    }

    /// Moves everything but the entries to a fresh object, which takes the place of this one.
    fn move_without_entries(&mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Rows> {
        let old = self.rows;
        let object = Object::new(txn, key)?;
        let new = Rows { space: key.space, object };
        let mut at = old.data(&[Kind::Group as u8]);
        let until = row::object_range(Family::Data, old.space, old.object.slot, old.object.id).1;
        copy_rows(txn, &mut at, &until, &new)?;
        self.head.object = object;
        self.rows = new;
        Ok(old)
    }
}

/// Rows and bytes that are copied in one step.
const STEP_ROWS: usize = 1024;
const STEP_BYTES: usize = 1 << 20;

/// Copies the rows in a range to another object.
fn copy_rows(txn: &mut Txn<'_>, at: &mut RowKey, until: &[u8], to: &Rows) -> Result<()> {
    loop {
        let mut step = Vec::new();
        let mut bytes = 0;
        txn.visit(at, until, Direction::Forward, STEP_ROWS, |row, value| {
            bytes += row.len() + value.len();
            step.push((row.to_vec(), value.to_vec()));
            if step.len() < STEP_ROWS && bytes < STEP_BYTES {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        let Some((last, _)) = step.last() else { return Ok(()) };
        *at = RowKey::from_slice(last);
        at.push(0);
        for (row, value) in &step {
            txn.put_row(&to.data(&row[ROW_PREFIX_BYTES..]), &[value])?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_store::{ObjectId, Slot};

    #[test]
    #[should_panic(expected = "the first id is 0-0 if there is no entry")]
    fn a_first_entry_of_an_empty_stream_is_noticed() {
        let empty = Head::empty(Object { id: ObjectId(1), slot: Slot(0) });
        empty.assert_sound();
        let (first, last) = (StreamId::new(1, 0), StreamId::new(2, 0));
        Head { count: 1, first, last, ..empty }.assert_sound();
        Head { count: 0, first, last, ..empty }.assert_sound();
    }
}
