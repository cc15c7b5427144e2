//! A transaction's use of the stamps of `access`: its lookups of keys stamp them, its writes set or keep stamps, and a
//! key that gets another name takes its own along.
//!
//! Where times are noted, every key that a transaction writes was used now, and nothing is to be kept. Only under a
//! policy that counts, and for a client that asked to leave no traces, does a write look for the access that was noted
//! before.

use crate::access::{Access, Touch};
use crate::apply::{Latching, Written, access_of};
use crate::random::next_random;
use crate::row::{self, Key, RowKey};
use crate::txn::Txn;
use std::collections::HashMap;

/// The accesses of keys that the transaction writes, where it knows them better than the store.
#[derive(Default)]
pub(crate) struct OwnAccesses {
    noted: HashMap<RowKey, Access>,
    /// The access that each note replaced, to go back to a savepoint.
    before: Vec<(RowKey, Option<Access>)>,
}

impl OwnAccesses {
    fn set(&mut self, row: RowKey, access: Access) {
        let replaced = self.noted.insert(row.clone(), access);
        self.before.push((row, replaced));
    }

    fn rollback(&mut self, mark: usize) {
        for (row, access) in self.before.drain(mark..).rev() {
            match access {
                Some(access) => self.noted.insert(row, access),
                None => self.noted.remove(&row),
            };
        }
    }
}

impl<'s> Txn<'s> {
    /// Sets whether lookups count as uses of a key; returns whether they did before.
    pub fn set_touching(&mut self, on: bool) -> bool {
        let was = !matches!(self.touch, Touch::Nothing);
        if was != on {
            self.touch = self.first_touch(on);
        }
        was
    }

    /// Returns the trace that the transaction's lookups leave from here on.
    fn first_touch(&mut self, on: bool) -> Touch<'s> {
        if !on || self.is_dry_run() {
            return Touch::Nothing;
        }
        let seed = next_random(&mut self.call.seed);
        self.store.access_policy.touch(self.call.now_ms, seed)
    }

    /// Returns the seconds since an existing key was used; of one that had to be loaded, since it was loaded.
    pub fn idle_s(&self, key: &Key<'_>) -> u64 {
        self.access(key).idle_s(self.now_ms())
    }

    /// Returns how often an existing key is used, from 0 to 255 on a scale of logarithms.
    pub fn frequency(&self, key: &Key<'_>) -> u8 {
        self.store.access_policy.frequency(self.access(key), self.now_ms())
    }

    /// Returns the access of an existing key.
    pub fn access(&self, key: &Key<'_>) -> Access {
        let row = row::meta_row(key);
        if let Some(access) = self.accesses.as_ref().filter(|_| !self.committed).and_then(|own| own.noted.get(&row)) {
            return *access;
        }
        if !self.keeps_accesses() && self.own_key(key).is_some() {
            return self.fresh_access();
        }
        let held = access_of(&self.store.memtable.latch_of(key), &row, key, &self.store.cache);
        held.unwrap_or_else(|| self.fresh_access())
    }

    /// Returns the access of a key that is new, or has just been loaded.
    #[inline]
    pub(crate) fn fresh_access(&self) -> Access {
        match self.touch {
            Touch::Time(now) => now,
            _ => self.store.access_policy.fresh(self.call.now_ms),
        }
    }

    /// Sets the access that the transaction's write leaves on a key: for a key that comes from elsewhere with its past.
    pub fn set_access(&mut self, key: &Key<'_>, access: Access) {
        self.accesses.get_or_insert_default().set(row::meta_row(key), access);
    }

    /// Takes the access of a key along to its new name.
    pub fn move_access(&mut self, from: &Key<'_>, to: &Key<'_>) {
        if self.keeps_accesses() {
            let access = self.access(from);
            self.set_access(to, access);
        }
    }

    /// Makes the transaction's write of a key that of a new one, whatever had this name.
    pub fn forget_access(&mut self, key: &Key<'_>) {
        if self.keeps_accesses() {
            self.set_access(key, self.fresh_access());
        }
    }

    /// Whether the transaction has noted an access of a key.
    #[inline]
    pub(crate) fn has_noted_access(&self, key: &Key<'_>) -> bool {
        self.accesses.as_ref().is_some_and(|own| own.noted.contains_key(&row::meta_row(key)))
    }

    #[inline]
    pub(crate) fn keeps_accesses(&self) -> bool {
        !matches!(self.touch, Touch::Time(_)) && !self.is_dry_run()
    }

    /// Whether a use of a key that the transaction has written is to be noted: where uses are counted, and where a key
    /// has come with its past, which the use ends.
    #[inline]
    pub(crate) fn notes_own_uses(&self) -> bool {
        match self.touch {
            Touch::Nothing => false,
            Touch::Time(_) => self.accesses.is_some(),
            Touch::Count(_) => true,
        }
    }

    /// Notes a lookup of a key that the transaction has written itself.
    #[cold]
    pub(crate) fn touch_own(&mut self, key: &Key<'_>) {
        let before = self.access(key);
        let after = self.touch.on(before);
        if after != before {
            self.set_access(key, after);
        }
    }

    pub(crate) fn mark_accesses(&self) -> usize {
        self.accesses.as_ref().map_or(0, |own| own.before.len())
    }

    pub(crate) fn rollback_accesses(&mut self, mark: usize) {
        if let Some(own) = &mut self.accesses {
            own.rollback(mark);
        }
    }

    /// Returns the access for the keys that the transaction commits.
    #[inline]
    pub(crate) fn written(&self) -> Written {
        match self.touch {
            Touch::Time(now) => Written::At(now),
            _ => Written::Kept(self.fresh_access()),
        }
    }

    /// Stamps the keys that the transaction has written with the accesses that it knows better. The caller holds their
    /// latches, or one after the other.
    #[cold]
    pub(crate) fn stamp_written_keys<'l>(&self, own: &OwnAccesses, latches: &mut impl Latching<'l>) {
        for (row, access) in &own.noted {
            if let Some(key) = row::parse_meta_row(row)
                && let Some((_, latch)) = latches.latch_of(row)
                && let Some(entry) = latch.active.find(&key)
            {
                entry.stamp().set(*access);
            }
        }
    }
}
