//! A transaction's own writes: the body of its log record as it grows, and an index into it, so that it reads what it
//! wrote and nothing is encoded twice.
//!
//! Two bodies: `main`, and `ahead` for rows of objects that the transaction itself made, which may go to the log before the
//! rest because nothing names them yet. All writes of one row go into the same body, so that they stay in order.

use crate::memtable::Patch;
use crate::row::Key;
use crate::value::Value;
use haypile_log::{Body, Placed};
use std::collections::HashMap;

/// What was done to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Put,
    Delete,
    Patch { offset: u32, len_after: u32 },
}

/// One write.
pub struct Own {
    print: u64,
    placed: Placed,
    ahead: bool,
    pub op: Op,
    /// The transaction's previous write of a row with the same print.
    previous: Option<u32>,
    /// For a patch: the row below, where the transaction had not written it before.
    pub before: Option<Value>,
}

/// The writes in their order.
#[derive(Default)]
pub struct Overlay {
    main: Body,
    ahead: Body,
    own: Vec<Own>,
    /// The last write of each print, once there are too many to look at each.
    last: HashMap<u64, u32>,
    /// How often `ahead` was written out.
    spills: u32,
}

/// Where an overlay stood.
#[derive(Clone, Debug)]
pub struct OverlayMark {
    main: usize,
    ahead: usize,
    spills: u32,
}

/// Up to so many writes are searched one by one.
const LINEAR: usize = 16;

/// A hash of a key's meta row.
#[inline]
pub fn print_of_key(key: &Key<'_>) -> u64 {
    (u64::from(key.hash) << 32) | (u64::from(key.space.0) << 16) ^ u64::from(key.slot.0)
}

/// A hash of any other row.
pub fn print_of_row(row: &[u8]) -> u64 {
    match crate::row::parse_meta_row(row) {
        Some(key) => print_of_key(&key),
        None => xxhash_rust::xxh3::xxh3_64(row),
    }
}

impl Overlay {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    pub fn main_bytes(&self) -> usize {
        self.main.len()
    }

    pub fn ahead_bytes(&self) -> usize {
        self.ahead.len()
    }

    #[inline]
    pub fn put(&mut self, print: u64, key: &[&[u8]], value: &[&[u8]], ahead: bool) {
        let body = if ahead { &mut self.ahead } else { &mut self.main };
        let placed = body.put(key, value);
        self.push(print, placed, ahead, Op::Put, None);
    }

    pub fn delete(&mut self, print: u64, key: &[&[u8]], ahead: bool) {
        let body = if ahead { &mut self.ahead } else { &mut self.main };
        let placed = body.delete(key);
        self.push(print, placed, ahead, Op::Delete, None);
    }

    pub fn patch(&mut self, print: u64, key: &[u8], patch: Patch<'_>, before: Option<Value>, ahead: bool) {
        let body = if ahead { &mut self.ahead } else { &mut self.main };
        let placed = body.patch(&[key], patch.offset, patch.bytes, patch.len_after);
        self.push(print, placed, ahead, Op::Patch { offset: patch.offset, len_after: patch.len_after }, before);
    }

    #[inline]
    fn push(&mut self, print: u64, placed: Placed, ahead: bool, op: Op, before: Option<Value>) {
        let at = self.own.len();
        let previous = if at < LINEAR { None } else { self.index_up_to(at).insert(print, at as u32) };
        self.own.push(Own { print, placed, ahead, op, previous, before });
    }

    /// The index, holding the first `count` writes.
    fn index_up_to(&mut self, count: usize) -> &mut HashMap<u64, u32> {
        if count == LINEAR {
            self.last.clear();
            for at in 0..count {
                self.own[at].previous = self.last.insert(self.own[at].print, at as u32);
            }
        }
        &mut self.last
    }

    fn body_of(&self, own: &Own) -> &[u8] {
        if own.ahead { self.ahead.bytes() } else { self.main.bytes() }
    }

    fn key_of(&self, own: &Own) -> &[u8] {
        &self.body_of(own)[own.placed.key.start as usize..own.placed.key.end as usize]
    }

    fn value_of(&self, own: &Own) -> &[u8] {
        &self.body_of(own)[own.placed.value.start as usize..own.placed.value.end as usize]
    }

    /// The last write of a key's meta row.
    #[inline]
    pub fn find_key(&self, key: &Key<'_>) -> Option<usize> {
        let prefix = crate::row::meta_prefix(key);
        self.find(print_of_key(key), |row| row.len() == prefix.len() + key.name.len() && row.starts_with(&prefix) && row.ends_with(key.name))
    }

    /// The last write of any row.
    pub fn find_row(&self, row: &[u8]) -> Option<usize> {
        if self.own.is_empty() {
            return None;
        }
        self.find(print_of_row(row), |other| other == row)
    }

    fn find(&self, print: u64, same: impl Fn(&[u8]) -> bool) -> Option<usize> {
        if self.own.len() <= LINEAR {
            return self.own.iter().rposition(|own| own.print == print && same(self.key_of(own)));
        }
        let mut at = self.last.get(&print).copied();
        while let Some(candidate) = at {
            let own = &self.own[candidate as usize];
            if same(self.key_of(own)) {
                return Some(candidate as usize);
            }
            at = own.previous;
        }
        None
    }

    /// The row after the write at `at`.
    pub fn read(&self, at: usize) -> Option<Value> {
        let own = &self.own[at];
        match own.op {
            Op::Put => Some(Value::from(self.value_of(own))),
            Op::Delete => None,
            Op::Patch { offset, len_after } => {
                let before = self.before(at);
                let patch = Patch { offset, bytes: self.value_of(own), len_after };
                Some(Value::from(patch.apply(before.as_deref().unwrap_or_default())))
            }
        }
    }

    /// The row before the patch at `at`.
    fn before(&self, at: usize) -> Option<Value> {
        let row = self.key_of(&self.own[at]);
        match self.own[..at].iter().rposition(|own| own.print == self.own[at].print && self.key_of(own) == row) {
            Some(earlier) => self.read(earlier),
            None => self.own[at].before.clone(),
        }
    }

    /// Keys of all writes.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.own.iter().map(|own| self.key_of(own))
    }

    /// The last state of every row in `from <= key < until` that was written.
    pub fn range(&self, from: &[u8], until: &[u8]) -> std::collections::BTreeMap<Vec<u8>, Option<Value>> {
        let mut last = std::collections::BTreeMap::new();
        for (at, own) in self.own.iter().enumerate() {
            let row = self.key_of(own);
            if from <= row && row < until {
                last.insert(row.to_vec(), at);
            }
        }
        last.into_iter().map(|(row, at)| (row, self.read(at))).collect()
    }

    pub fn mark(&self) -> OverlayMark {
        OverlayMark { main: self.main.len(), ahead: self.ahead.len(), spills: self.spills }
    }

    pub fn rollback(&mut self, to: OverlayMark) {
        // What was written ahead since is garbage without an owner; what is left of it here goes too.
        let ahead_len = if to.spills == self.spills { to.ahead } else { 0 };
        self.main.truncate(to.main);
        self.ahead.truncate(ahead_len);
        let writes = self.own.len();
        self.own.retain(|own| (own.placed.key.start as usize) < if own.ahead { ahead_len } else { to.main });
        if self.own.len() < writes {
            self.reindex();
        }
    }

    /// Moves what is ahead behind the rest: it all goes into one record.
    pub fn join(&mut self) {
        if self.ahead.is_empty() {
            return;
        }
        let shift = self.main.len() as u32;
        self.main.append(&self.ahead);
        for own in self.own.iter_mut().filter(|own| own.ahead) {
            for range in [&mut own.placed.key, &mut own.placed.value] {
                *range = range.start + shift..range.end + shift;
            }
            own.ahead = false;
        }
        self.ahead.clear();
    }

    /// The record's body, joined.
    pub fn body(&mut self) -> &mut Body {
        &mut self.main
    }

    pub fn body_bytes(&self) -> &[u8] {
        self.main.bytes()
    }

    pub fn ahead_body(&self) -> &[u8] {
        self.ahead.bytes()
    }

    /// What was ahead is in the log and the memtable: forget it here.
    pub fn on_written_ahead(&mut self) {
        self.own.retain(|own| !own.ahead);
        self.ahead.clear();
        self.spills += 1;
        self.reindex();
    }

    fn reindex(&mut self) {
        self.last.clear();
        for at in 0..self.own.len() {
            let print = self.own[at].print;
            self.own[at].previous =
                if self.own.len() > LINEAR { self.last.insert(print, at as u32) } else { None };
        }
    }

    /// Writes of the joined body, in order: row, operation, value (a patch's bytes), the row below a patch.
    pub fn writes(&self) -> impl Iterator<Item = (&[u8], Op, &[u8], Option<&Value>)> {
        self.own.iter().map(|own| (self.key_of(own), own.op, self.value_of(own), own.before.as_ref()))
    }

    pub fn clear(&mut self) {
        self.main.clear();
        self.ahead.clear();
        self.own.clear();
        if !self.last.is_empty() {
            self.last.clear();
        }
        self.spills = 0;
    }
}
