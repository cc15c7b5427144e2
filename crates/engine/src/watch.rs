//! WATCH: who wants to know that a key changed before EXEC.
//!
//! Sessions register names; a commit marks the sessions that watch what it touched, still under its key locks, and EXEC
//! looks at its mark under the locks of its watched keys: so it sees every change that came before it. While nobody
//! watches anything, a commit pays for one relaxed load. What counts as a change is decided by `execute`; nothing here
//! reads a row.

use crate::sync::{Mutex, lock};
use foldhash::fast::RandomState;
use haypile_store::{Space, Txn};
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Parts of the map, each with its own mutex: enough that event loops seldom meet.
const SHARDS: usize = 64;

/// Whether anything that a session watches has changed. A session takes a fresh one with its first WATCH after each EXEC.
#[derive(Default)]
pub struct Mark(AtomicBool);

impl Mark {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A key that a session watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    pub database: u32,
    pub name: Box<[u8]>,
    /// When it was watched: a deadline that had passed by then changes nothing for the session.
    pub since_ms: u64,
}

struct Watcher {
    database: u32,
    since_ms: u64,
    mark: Arc<Mark>,
}

/// Who watches, by name.
type Shard = Mutex<HashMap<Box<[u8]>, Vec<Watcher>, RandomState>>;

/// All watched keys of all sessions.
pub struct Watches {
    /// Watchers of all keys together. Raised under the key's lock, so that whoever commits to the key later sees it.
    count: AtomicUsize,
    by_name: Box<[Shard]>,
    hasher: RandomState,
}

impl Default for Watches {
    fn default() -> Self {
        Watches {
            count: AtomicUsize::new(0),
            by_name: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
        }
    }
}

impl Watches {
    /// Whether anybody watches anything.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// How many watched keys sessions have.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Registers a watched key; the caller holds the key's lock.
    pub fn watch(&self, key: &Watched, mark: &Arc<Mark>) {
        let watcher = Watcher { database: key.database, since_ms: key.since_ms, mark: mark.clone() };
        lock(self.shard(&key.name)).entry(key.name.clone()).or_default().push(watcher);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a session's watched keys out again.
    pub fn unwatch(&self, keys: &[Watched], mark: &Arc<Mark>) {
        for key in keys {
            let mut shard = lock(self.shard(&key.name));
            let Some(watchers) = shard.get_mut(&key.name) else { continue };
            let before = watchers.len();
            watchers.retain(|watcher| !(Arc::ptr_eq(&watcher.mark, mark) && watcher.database == key.database));
            self.count.fetch_sub(before - watchers.len(), Ordering::Relaxed);
            if watchers.is_empty() {
                shard.remove(&key.name);
            }
        }
    }

    /// Marks everybody who watches a key whose meta row this transaction wrote. The caller still holds its locks. A key that
    /// only gave way to its deadline changes nothing for who watched it after that, as in Redis.
    #[cold]
    pub fn on_commit(&self, txn: &Txn<'_>) {
        for key in txn.touched() {
            match txn.lapsed(&key) {
                Some(deadline_ms) => self.on_expired(key.space, key.name, deadline_ms, |database| txn.space(database)),
                None => self.mark(key.name, |watcher| txn.space(watcher.database) == key.space),
            }
        }
    }

    /// Marks those who watched a key of `space` before its deadline passed: it is gone now. `space_of` tells a database's.
    #[cold]
    pub fn on_expired(&self, space: Space, name: &[u8], deadline_ms: u64, space_of: impl Fn(u32) -> Space) {
        self.mark(name, |watcher| space_of(watcher.database) == space && watcher.since_ms <= deadline_ms);
    }

    /// Everything that is watched in these databases.
    pub fn in_databases(&self, databases: &[u32]) -> Vec<(u32, Box<[u8]>)> {
        let mut found = Vec::new();
        for shard in &self.by_name {
            for (name, watchers) in lock(shard).iter() {
                for &database in databases {
                    if watchers.iter().any(|watcher| watcher.database == database) {
                        found.push((database, name.clone()));
                    }
                }
            }
        }
        found
    }

    /// Marks those who have watched this key since before `until_ms`: to others it was not there.
    pub fn on_exchange(&self, database: u32, name: &[u8], until_ms: u64) {
        self.mark(name, |watcher| watcher.database == database && watcher.since_ms < until_ms);
    }

    fn mark(&self, name: &[u8], concerns: impl Fn(&Watcher) -> bool) {
        if let Some(watchers) = lock(self.shard(name)).get(name) {
            watchers.iter().filter(|watcher| concerns(watcher)).for_each(|watcher| watcher.mark.set());
        }
    }

    fn shard(&self, name: &[u8]) -> &Shard {
        &self.by_name[self.hasher.hash_one(name) as usize % SHARDS]
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn watched(database: u32, name: &str) -> Watched {
        Watched { database, name: name.as_bytes().into(), since_ms: 100 }
    }

    #[test]
    fn a_mark_is_set_by_its_own_keys_only() {
        let watches = Watches::default();
        let (mine, other) = (Arc::new(Mark::default()), Arc::new(Mark::default()));
        watches.watch(&watched(0, "k"), &mine);
        watches.watch(&watched(1, "k"), &other);
        watches.on_exchange(0, b"j", u64::MAX);
        assert!(!mine.is_set());
        watches.on_exchange(0, b"k", 100);
        assert!(!mine.is_set(), "it was gone when it was watched");
        watches.on_exchange(0, b"k", 101);
        assert!(mine.is_set() && !other.is_set());
        assert_eq!(watches.count(), 2);
        watches.unwatch(&[watched(0, "k")], &mine);
        watches.unwatch(&[watched(1, "k")], &other);
        assert!(!watches.any());
    }

    #[test]
    fn a_deadline_that_had_passed_at_watch_is_no_change() {
        let watches = Watches::default();
        let mark = Arc::new(Mark::default());
        watches.watch(&watched(0, "k"), &mark);
        watches.on_expired(Space(0), b"k", 99, |_| Space(0));
        assert!(!mark.is_set());
        watches.on_expired(Space(0), b"k", 100, |_| Space(0));
        assert!(mark.is_set());
    }
}
