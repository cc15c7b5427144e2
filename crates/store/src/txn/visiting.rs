//! Keys that are not among a command's arguments: those that SORT's patterns name, and a few that only the command
//! finds.
//!
//! A run holds the locks of its arguments' keys. For any other key the run either makes sure that it holds that one,
//! too, before it goes on (`claim`), so that everything is from one moment; a key that is free it takes. Or it looks at
//! the key under its lock and gives the lock back at once (`visit_key`), so that each key is whole and no other run
//! waits for all of them.

use super::Txn;
use crate::row::Key;
use crate::stop::Stop;

/// The locks of keys, as the caller that runs the transaction keeps them. Keys are named by their hash.
pub trait KeyLocks {
    /// Returns whether the run holds the key until its end; with no other reader, if `exclusive`.
    fn holds(&self, hash: u32, exclusive: bool) -> bool;
    /// Takes a key that the run does not hold until its end, if it is free; returns false where another run holds it,
    /// or where this one has taken many.
    fn try_hold(&self, hash: u32, exclusive: bool) -> bool;
    /// Returns whether clients wait for any key. Nobody begins to wait for one that the run has had since it began; for
    /// one that it has come to, somebody may wait since then.
    fn is_waited_for(&self) -> bool;
    /// Takes a key's lock for a moment, shared with other readers; returns false where another run holds it
    /// exclusively.
    fn try_share(&self, hash: u32) -> bool;
    /// Gives back what `try_share` took.
    fn give_back(&self, hash: u32);
    /// Returns whether the run may be repeated to have more keys from its beginning.
    fn takes_more(&self) -> bool;
}

/// A key whose lock a run lacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking {
    pub hash: u32,
    pub exclusive: bool,
}

impl<'s> Txn<'s> {
    /// Sets the locks of which the transaction asks for other keys. Without them, a run that comes to such a key ends
    /// with `Stop::NeedsLocks`.
    pub fn set_locks(&mut self, locks: &'s dyn KeyLocks) {
        self.locks = Some(locks);
    }

    /// Makes sure that keys are locked which are not among the command's arguments; if they are to be written, the
    /// locks are to be `exclusive`.
    ///
    /// # Errors
    /// `Stop::NeedsLocks`: they are to be locked before the command runs again (`take_lacking`).
    pub fn claim(&mut self, keys: impl Iterator<Item = u32>, exclusive: bool) -> Result<(), Stop> {
        if self.needs_no_lock() {
            return Ok(());
        }
        let has = |locks: &dyn KeyLocks, hash| locks.holds(hash, exclusive) || locks.try_hold(hash, exclusive);
        for hash in keys {
            if !self.locks.is_some_and(|locks| has(locks, hash)) {
                self.lacking.push(Lacking { hash, exclusive });
            }
        }
        if self.locks.is_some_and(|locks| locks.is_waited_for()) {
            self.note_ready();
        }
        if self.lacking.is_empty() { Ok(()) } else { Err(Stop::NeedsLocks) }
    }

    /// Makes sure that keys are locked which are only read, as far as the run can still have more of them from its
    /// beginning. Keys that it does not get are visited one by one.
    ///
    /// # Errors
    /// `Stop::NeedsLocks`, as of `claim`.
    pub fn claim_if_possible(&mut self, keys: impl Iterator<Item = u32>) -> Result<(), Stop> {
        if self.locks.is_some_and(|locks| !locks.takes_more()) {
            return Ok(());
        }
        self.claim(keys, false)
    }

    /// Looks at a key under its lock, which is given back at once unless the run holds it anyway.
    ///
    /// # Errors
    /// Those of `look`; `Stop::NeedsLocks` where another run holds the key: it is to be locked before the command runs
    /// again.
    pub fn visit_key<R, E: From<Stop>>(
        &mut self,
        key: &Key<'_>,
        look: impl FnOnce(&mut Txn<'s>) -> Result<R, E>,
    ) -> Result<R, E> {
        if self.needs_no_lock() {
            return look(self);
        }
        match self.locks {
            Some(locks) if locks.holds(key.hash, false) => look(self),
            Some(locks) if locks.try_share(key.hash) => {
                let found = look(self);
                locks.give_back(key.hash);
                found
            }
            _ => {
                self.lacking.push(Lacking { hash: key.hash, exclusive: false });
                Err(Stop::NeedsLocks.into())
            }
        }
    }

    /// Returns the keys that are to be locked before the command runs again.
    pub fn take_lacking(&mut self) -> Vec<Lacking> {
        std::mem::take(&mut self.lacking)
    }

    fn needs_no_lock(&self) -> bool {
        self.is_exclusive || self.is_dry_run()
    }
}
