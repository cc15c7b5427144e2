//! The index of the writes: the last write of a row is found by a hash of the row's key, its *print*. A few writes are
//! searched one by one.

use super::{Kind, NONE, Overlay, Own};
use crate::row::Key;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// The most writes that are searched one by one.
const LINEAR: usize = 16;

/// Returns a hash of a key's meta row.
#[inline]
pub fn print_of_key(key: &Key<'_>) -> u64 {
    (u64::from(key.hash) << 32) | (u64::from(key.space.0) << 16) ^ u64::from(key.slot.0)
}

/// Returns a hash of any other row.
pub fn print_of_row(row: &[u8]) -> u64 {
    match crate::row::parse_meta_row(row) {
        Some(key) => print_of_key(&key),
        None => xxhash_rust::xxh3::xxh3_64(row),
    }
}

/// Returns the hash of a print, which is a hash already, but not in all of its bits.
#[inline]
fn spread(print: u64) -> u64 {
    let mixed = print.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

/// Notes the write at `at` as the last one of its print, and the one before as its previous one.
#[inline]
fn note_last(last: &mut HashTable<u32>, own: &mut [Own], at: usize) {
    let print = own[at].print;
    let is_same = |other: &u32| own[*other as usize].print == print;
    let previous = match last.entry(spread(print), is_same, |other| spread(own[*other as usize].print)) {
        Entry::Occupied(mut entry) => std::mem::replace(entry.get_mut(), at as u32),
        Entry::Vacant(entry) => {
            entry.insert(at as u32);
            NONE
        }
    };
    own[at].previous = previous;
}

impl Overlay {
    /// Returns the last write of a key's meta row.
    #[inline]
    pub fn find_key(&self, key: &Key<'_>) -> Option<usize> {
        let prefix = crate::row::meta_prefix(key);
        self.find(print_of_key(key), |row| {
            row.len() == prefix.len() + key.name.len() && row.starts_with(&prefix) && row.ends_with(key.name)
        })
    }

    /// Returns the last write of any row.
    pub fn find_row(&self, row: &[u8]) -> Option<usize> {
        if self.own.is_empty() {
            return None;
        }
        self.find(print_of_row(row), |other| other == row)
    }

    pub(super) fn find(&self, print: u64, same: impl Fn(&[u8]) -> bool) -> Option<usize> {
        if self.own.len() <= LINEAR {
            return self.own.iter().rposition(|own| own.print == print && same(self.key_of(own)));
        }
        let last = self.last.find(spread(print), |at| self.own[*at as usize].print == print);
        self.find_from(last.copied().unwrap_or(NONE), same)
    }

    /// Returns the row's write before the one at `at`.
    pub(super) fn earlier(&self, at: usize) -> Option<usize> {
        let row = self.key_of(&self.own[at]);
        if self.own.len() <= LINEAR {
            return self.own[..at].iter().rposition(|own| own.print == self.own[at].print && self.key_of(own) == row);
        }
        self.find_from(self.own[at].previous, |other| other == row)
    }

    /// Returns the last write of a row among the one at `at` and those before it of the same print.
    fn find_from(&self, mut at: u32, same: impl Fn(&[u8]) -> bool) -> Option<usize> {
        while at != NONE {
            let own = &self.own[at as usize];
            if same(self.key_of(own)) {
                return Some(at as usize);
            }
            at = own.previous;
        }
        None
    }

    #[inline]
    pub(super) fn push(&mut self, own: Own) {
        debug_assert!(
            !own.ahead || self.find(own.print, |row| row == self.key_of(&own)).is_none_or(|at| self.own[at].ahead),
            "a row's writes go ahead first, and none behind one that does not"
        );
        let at = self.own.len();
        self.own.push(own);
        if at >= LINEAR {
            self.index(at);
        }
    }

    /// Adds the newest write, at `at`, to the index, which is begun with the first ones.
    fn index(&mut self, at: usize) {
        let from = if at == LINEAR { 0 } else { at };
        if from == 0 {
            self.last.clear();
        }
        (from..=at).for_each(|at| note_last(&mut self.last, &mut self.own, at));
    }

    /// Makes the index anew, and forgets the changes of writes that are gone.
    pub(super) fn reindex(&mut self) {
        self.last.clear();
        let is_indexed = self.own.len() > LINEAR;
        let mut changes = 0;
        for at in 0..self.own.len() {
            self.own[at].previous = NONE;
            if is_indexed {
                note_last(&mut self.last, &mut self.own, at);
            }
            if self.own[at].kind == Kind::Change {
                self.changes.swap(changes, self.own[at].change as usize);
                self.own[at].change = changes as u32;
                changes += 1;
            }
        }
        self.changes.truncate(changes);
    }
}
