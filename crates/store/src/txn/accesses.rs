//! What a transaction does with the stamps of `access`: its lookups of keys leave them, its writes set or keep them,
//! and a key that gets another name takes its own along.
//!
//! Where times are noted, whatever a transaction writes was used now, and nothing is to be kept. Only under a policy
//! that counts, and for a client that asked to leave no traces, does a write look for what was noted before.

use crate::access::{Access, Touch};
use crate::apply::{Latching, Written, access_of};
use crate::random::next_random;
use crate::row::{self, Key, RowKey};
use crate::txn::Txn;
use std::collections::HashMap;

/// How often or when its own keys were used, where a transaction knows it better than the store.
#[derive(Default)]
pub(crate) struct OwnAccesses {
    noted: HashMap<RowKey, Access>,
    /// What each note replaced, to go back to a savepoint.
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
    /// Whether lookups count as uses of a key from now on; returns whether they did.
    pub fn set_touching(&mut self, on: bool) -> bool {
        let was = !matches!(self.touch, Touch::Nothing);
        if was != on {
            self.touch = self.first_touch(on);
        }
        was
    }

    /// What its lookups leave from here on.
    fn first_touch(&mut self, on: bool) -> Touch<'s> {
        if !on || self.is_rehearsal() {
            return Touch::Nothing;
        }
        let seed = next_random(&mut self.call.seed);
        self.store.access_policy.touch(self.call.now_ms, seed)
    }

    /// Seconds since a key that is there was used; of one that had to be loaded, since it was loaded.
    pub fn idle_s(&self, key: &Key<'_>) -> u64 {
        self.access(key).idle_s(self.now_ms())
    }

    /// How often a key that is there is used, from 0 to 255 on a scale of logarithms.
    pub fn frequency(&self, key: &Key<'_>) -> u8 {
        self.store.access_policy.frequency(self.access(key), self.now_ms())
    }

    /// Returns what is noted of a key that is there.
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

    /// Of a key that is new, or has just been loaded.
    #[inline]
    pub(crate) fn fresh_access(&self) -> Access {
        match self.touch {
            Touch::Time(now) => now,
            _ => self.store.access_policy.fresh(self.call.now_ms),
        }
    }

    /// The key that it writes was used when, or as often as, this says: of what comes from elsewhere with its past.
    pub fn set_access(&mut self, key: &Key<'_>, access: Access) {
        self.accesses.get_or_insert_default().set(row::meta_row(key), access);
    }

    /// A key has got another name.
    pub fn move_access(&mut self, from: &Key<'_>, to: &Key<'_>) {
        if self.keeps_accesses() {
            let access = self.access(from);
            self.set_access(to, access);
        }
    }

    /// What it writes is a new key, whatever had this name.
    pub fn forget_access(&mut self, key: &Key<'_>) {
        if self.keeps_accesses() {
            self.set_access(key, self.fresh_access());
        }
    }

    #[inline]
    pub(crate) fn keeps_accesses(&self) -> bool {
        !matches!(self.touch, Touch::Time(_)) && !self.is_rehearsal()
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

    /// For the rows that it commits.
    #[inline]
    pub(crate) fn written(&self) -> Written {
        match self.touch {
            Touch::Time(now) => Written::At(now),
            _ => Written::Kept(self.fresh_access()),
        }
    }

    /// Leaves on the keys that it has written what it knows of them. The caller holds their latches, or one after the
    /// other.
    #[cold]
    pub(crate) fn settle_accesses<'l>(&self, own: &OwnAccesses, latches: &mut impl Latching<'l>) {
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
