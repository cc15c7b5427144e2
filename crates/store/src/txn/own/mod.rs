//! A transaction's own writes: the body of its log record as it grows, and an index into it, so that the transaction
//! reads its writes and nothing is encoded twice.
//!
//! Two bodies: `main`, and `ahead` for rows of objects that the transaction itself made, which may go to the log before
//! the rest because no key names them yet. Invariant: a row's writes go ahead first and never again once one of them is
//! in `main`, so that they stay in order.
//!
//! This file adds writes, and `index` finds them; `read` gives the rows that they make; `mark` goes back; `record` has
//! the way into the log.

mod index;
mod mark;
mod read;
mod record;

pub use index::{print_of_key, print_of_row};
pub use mark::OverlayMark;

use crate::memtable::{Change, Patch, Splice};
use crate::value::Value;
use hashbrown::HashTable;
use haypile_log::{Body, Placed};

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Put,
    Delete,
    Patch { offset: u32, len_after: u32 },
    Splice { offset: u32, removed: u32, len_after: u32 },
}

impl Op {
    /// Returns the change with these bytes; `None` if the row was written as a whole.
    #[inline]
    pub fn change(self, bytes: &[u8]) -> Option<Change<'_>> {
        match self {
            Op::Put | Op::Delete => None,
            Op::Patch { offset, len_after } => Some(Change::Patch(Patch { offset, bytes, len_after })),
            Op::Splice { offset, removed, len_after } => {
                Some(Change::Splice(Splice { offset, removed, bytes, len_after }))
            }
        }
    }

    pub fn is_change(self) -> bool {
        matches!(self, Op::Patch { .. } | Op::Splice { .. })
    }
}

/// One write. A block or a command may have a million, so that each byte counts.
struct Own {
    print: u64,
    /// Where the row's key begins in its body, where the value follows on it, and where that ends.
    key: u32,
    value: u32,
    end: u32,
    /// The transaction's previous write of a row with the same print, or `NONE`.
    previous: u32,
    /// The place in `Overlay::changes`, of a change.
    change: u32,
    kind: Kind,
    ahead: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Put,
    Delete,
    Change,
}

/// The rest of a write that changes a part of its row.
struct Changed {
    op: Op,
    /// The row below the change, where the transaction had not written it before.
    before: Option<Value>,
    /// The row after the change, where it is known already. Only the newest change of a row keeps it.
    after: Option<Value>,
}

/// The place of no write.
const NONE: u32 = u32::MAX;

impl Own {
    fn new(print: u64, placed: &Placed, kind: Kind, ahead: bool) -> Own {
        debug_assert_eq!(placed.key.end, placed.value.start, "a value follows on its key");
        let (key, value, end) = (placed.key.start, placed.value.start, placed.value.end);
        Own { print, key, value, end, previous: NONE, change: NONE, kind, ahead }
    }

    fn key(&self) -> std::ops::Range<usize> {
        self.key as usize..self.value as usize
    }

    fn value(&self) -> std::ops::Range<usize> {
        self.value as usize..self.end as usize
    }
}

/// The writes in their order.
#[derive(Default)]
pub struct Overlay {
    main: Body,
    ahead: Body,
    /// The words of the record beside its writes.
    statements: Body,
    own: Vec<Own>,
    /// Writes in their order.
    changes: Vec<Changed>,
    /// The last write of each print, once there are too many writes to look at each.
    last: HashTable<u32>,
    /// The number of times that `ahead` was written out.
    spills: u32,
    /// The writes are known by `main` alone: `own` and `last` are given back.
    is_sealed: bool,
}

/// The memory of an unusually large transaction that the next one keeps.
const KEPT_BYTES_MAX: usize = 256 << 10;

impl Overlay {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && !self.is_sealed
    }

    /// Returns how many writes there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.own.len()
    }

    pub fn main_bytes(&self) -> usize {
        self.main.len()
    }

    pub fn ahead_bytes(&self) -> usize {
        self.ahead.len()
    }

    /// Makes room for the first writes, so many of rows that have so many bytes together: a list of a million does not
    /// grow to twice its size.
    pub fn reserve_first(&mut self, writes: usize, bytes: usize) {
        if self.own.is_empty() {
            self.own.reserve_exact(writes);
            self.last.clear();
            self.last.reserve(writes, |_| unreachable!("there is none"));
            self.main.reserve_exact(bytes);
        }
    }

    #[inline]
    pub fn put(&mut self, print: u64, key: &[&[u8]], value: &[&[u8]], ahead: bool) {
        let body = if ahead { &mut self.ahead } else { &mut self.main };
        let placed = body.put(key, value);
        self.push(Own::new(print, &placed, Kind::Put, ahead));
    }

    pub fn delete(&mut self, print: u64, key: &[&[u8]], ahead: bool) {
        let body = if ahead { &mut self.ahead } else { &mut self.main };
        let placed = body.delete(key);
        self.push(Own::new(print, &placed, Kind::Delete, ahead));
    }

    /// Adds a change of a row. `before` is the row below, for the first write of it; `earlier` the last write of the
    /// row, if any.
    pub fn change(
        &mut self,
        print: u64,
        key: &[u8],
        change: Change<'_>,
        before: Option<Value>,
        earlier: Option<usize>,
        ahead: bool,
    ) {
        // Where small changes follow one another, the row after the last one is kept: reading the row costs nothing
        // then.
        let after = earlier.filter(|at| self.own[*at].kind == Kind::Change).and_then(|at| {
            let row = self.changes[self.own[at].change as usize].after.take().or_else(|| self.read(at));
            row.map(|row| row.changed(change))
        });
        let body = if ahead { &mut self.ahead } else { &mut self.main };
        let (placed, op) = match change {
            Change::Patch(Patch { offset, bytes, len_after }) => {
                (body.patch(&[key], offset, bytes, len_after), Op::Patch { offset, len_after })
            }
            Change::Splice(Splice { offset, removed, bytes, len_after }) => {
                (body.splice(&[key], offset, removed, bytes, len_after), Op::Splice { offset, removed, len_after })
            }
        };
        let number = self.changes.len() as u32;
        self.changes.push(Changed { op, before, after });
        self.push(Own { change: number, ..Own::new(print, &placed, Kind::Change, ahead) });
    }

    fn body_of(&self, own: &Own) -> &[u8] {
        if own.ahead { self.ahead.bytes() } else { self.main.bytes() }
    }

    fn key_of(&self, own: &Own) -> &[u8] {
        &self.body_of(own)[own.key()]
    }

    fn value_of(&self, own: &Own) -> &[u8] {
        &self.body_of(own)[own.value()]
    }

    /// Returns the rest of a write that is a change.
    fn changed(&self, own: &Own) -> Option<&Changed> {
        (own.kind == Kind::Change).then(|| &self.changes[own.change as usize])
    }

    pub fn clear(&mut self) {
        self.is_sealed = false;
        self.main.clear();
        self.statements.clear();
        self.statements.shrink_to(KEPT_BYTES_MAX);
        self.own.clear();
        self.changes.clear();
        self.spills = 0;
        if !self.ahead.is_empty()
            || !self.last.is_empty()
            || self.main.capacity().max(self.ahead.capacity()) > KEPT_BYTES_MAX
        {
            self.ahead.clear();
            self.last.clear();
            self.main.shrink_to(KEPT_BYTES_MAX);
            self.ahead.shrink_to(KEPT_BYTES_MAX);
            self.own.shrink_to(KEPT_BYTES_MAX / size_of::<Own>());
            self.changes.shrink_to(KEPT_BYTES_MAX / size_of::<Changed>());
            self.last.shrink_to(KEPT_BYTES_MAX / size_of::<u32>(), |_| unreachable!("there is none"));
        }
    }
}
