//! Commits of very many rows, which are applied in steps, so that no latch is held for longer than a moment.
//!
//! Their key locks are held meanwhile. A reader without key locks could see one row as it is after such a commit and
//! another one as it was before: so the keys of a commit in flight are known here, and are read under their locks. A
//! freeze waits for the commit's end: a generation has all of a record or nothing.

use crate::row::Key;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::sync::atomic::{AtomicBool, Ordering};

/// Commits of more rows are applied in steps: those of fewer hold their latches for about a tenth of a millisecond.
pub(crate) const ROWS_AT_ONCE: usize = 512;

/// Returns a key's print, made of its slot and its hash. Two keys with one print are so rare that one may wait for the
/// other.
#[inline]
fn print_of(key: &Key<'_>) -> u64 {
    u64::from(key.slot.0) << 32 | u64::from(key.hash)
}

/// Returns the prints of some keys, ascending.
fn prints_of<'k>(keys: impl Iterator<Item = Key<'k>>) -> Vec<u64> {
    let mut prints: Vec<u64> = keys.map(|key| print_of(&key)).collect();
    prints.sort_unstable();
    prints
}

/// The commit that is being applied in steps, if there is one.
#[derive(Default)]
pub(crate) struct Staged {
    /// Invariant: set before the first row is applied, and cleared after the last one. A reader that has seen a row of
    /// the commit has taken a latch after the committer did, and so sees the flag set.
    any: AtomicBool,
    /// The prints of its keys, ascending.
    keys: RwLock<Vec<u64>>,
    /// The lock of the commit in flight, and of a freeze.
    turn: Mutex<()>,
}

/// The turn of one commit; its end is the commit's.
pub(crate) struct Turn<'s> {
    staged: &'s Staged,
    _turn: MutexGuard<'s, ()>,
}

impl Staged {
    /// Begins a commit that touches these keys. Waits for the commit before.
    pub fn begin<'k>(&self, keys: impl Iterator<Item = Key<'k>>) -> Turn<'_> {
        // Sorted before the turn begins, which keeps others out.
        let prints = prints_of(keys);
        self.enter(self.turn.lock(), prints)
    }

    /// Begins a commit that touches these keys, unless another one, or a freeze, would have to be waited for.
    pub fn try_begin<'k>(&self, keys: impl Iterator<Item = Key<'k>>) -> Option<Turn<'_>> {
        let turn = self.turn.try_lock()?;
        Some(self.enter(turn, prints_of(keys)))
    }

    fn enter<'s>(&'s self, turn: MutexGuard<'s, ()>, prints: Vec<u64>) -> Turn<'s> {
        *self.keys.write() = prints;
        self.any.store(true, Ordering::Release);
        Turn { staged: self, _turn: turn }
    }

    /// Waits until no commit is half applied, and keeps others from beginning while the guard lives.
    pub fn keep_out(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Returns whether a commit in flight may touch a key.
    #[inline]
    pub fn holds(&self, key: &Key<'_>) -> bool {
        self.any.load(Ordering::Relaxed) && self.look(key)
    }

    #[cold]
    fn look(&self, key: &Key<'_>) -> bool {
        self.keys.read().binary_search(&print_of(key)).is_ok()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.staged.any.store(false, Ordering::Release);
        // A million prints are freed when nobody waits for the lock any more.
        let prints = std::mem::take(&mut *self.staged.keys.write());
        drop(prints);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Slot, Space, hash_of, slot_of};

    #[test]
    fn keys_are_known_while_their_commit_is_under_way() {
        let names: Vec<String> = (0..5000).map(|number| format!("key:{number}")).collect();
        let key =
            |name: &'_ str| -> (Space, Slot, u32) { (Space(0), slot_of(name.as_bytes()), hash_of(name.as_bytes(), 7)) };
        let holds = |staged: &Staged, name: &str| {
            let (space, slot, hash) = key(name);
            staged.holds(&Key { space, slot, hash, name: name.as_bytes() })
        };
        let staged = Staged::default();
        assert!(!names.iter().any(|name| holds(&staged, name)));
        let turn = staged.begin(names.iter().map(|name| {
            let (space, slot, hash) = key(name);
            Key { space, slot, hash, name: name.as_bytes() }
        }));
        assert!(names.iter().all(|name| holds(&staged, name)));
        assert!(!(0..5000).any(|number| holds(&staged, &format!("other:{number}"))), "nobody else waits");
        drop(turn);
        assert!(!names.iter().any(|name| holds(&staged, name)));
    }
}
