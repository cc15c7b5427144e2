//! WATCH: sessions that want to know that a key changed before EXEC.
//!
//! Sessions register names, without key locks; a commit marks the sessions that watch what it touched, afterwards and
//! still under its key locks; EXEC looks at its mark under the locks of its watched keys. So EXEC sees every change
//! since WATCH: a commit that does not see the registration came before it, and the session reads what that commit
//! wrote. While nobody watches anything, a commit pays for one relaxed load. What counts as a change is decided by
//! `execute`; nothing here reads a row.

use crate::sync::{Mutex, lock, lower};
use foldhash::fast::RandomState;
use haypile_store::{Space, Txn};
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Parts of the map, each with its own mutex: enough that event loops seldom meet.
const SHARDS: usize = 64;

/// Whether anything that a session watches has changed. A session takes a fresh one with its first WATCH after each
/// EXEC.
#[derive(Debug, Default)]
pub struct Mark(AtomicBool);

impl Mark {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The name of a watched key. Its bytes are shared by all who watch it.
type Name = Arc<[u8]>;

/// Everything that one session watches until its next EXEC, DISCARD or UNWATCH. Dropping it ends the watching.
pub(crate) struct Watching {
    watches: Arc<Watches>,
    mark: Arc<Mark>,
    /// The moment since which each key is watched, by database and name. A deadline that had passed by then changes
    /// nothing for the session.
    keys: BTreeMap<u32, HashMap<Name, u64, RandomState>>,
    count: usize,
    /// Bytes of all names.
    name_bytes: usize,
}

/// Bytes that a watched key takes beside its name, in the session's map and in that of all sessions.
pub(crate) const WATCH_BYTES: usize = 200;

impl Watching {
    pub fn new(watches: &Arc<Watches>) -> Self {
        let (watches, mark, keys) = (watches.clone(), Arc::default(), BTreeMap::new());
        Watching { watches, mark, keys, count: 0, name_bytes: 0 }
    }

    /// Watches a key from now on; one that is watched already is left as it is. No lock is needed.
    pub fn add(&mut self, database: u32, name: &[u8], now_ms: u64) {
        let keys = self.keys.entry(database).or_default();
        if keys.contains_key(name) {
            return;
        }
        let name = self.watches.watch(database, name, now_ms, &self.mark);
        self.count += 1;
        self.name_bytes += name.len();
        keys.insert(name, now_ms);
    }

    /// Returns the mark that is set when any of the keys changes.
    pub fn mark(&self) -> &Arc<Mark> {
        &self.mark
    }

    /// Whether any of the keys has changed.
    pub fn is_outdated(&self) -> bool {
        self.mark.is_set()
    }

    /// Bytes that all of them take, about.
    pub fn bytes(&self) -> usize {
        self.count * WATCH_BYTES + self.name_bytes
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The database and the name of each key, and when it was watched.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u8], u64)> {
        self.keys
            .iter()
            .flat_map(|(database, keys)| keys.iter().map(move |(name, since_ms)| (*database, &**name, *since_ms)))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        for (database, keys) in &self.keys {
            keys.keys().for_each(|name| self.watches.unwatch(*database, name, &self.mark));
        }
    }
}

struct Watcher {
    database: u32,
    since_ms: u64,
    mark: Arc<Mark>,
}

impl Watcher {
    /// Tells the sessions and databases of one name apart.
    fn id(mark: &Arc<Mark>, database: u32) -> (usize, u32) {
        (Arc::as_ptr(mark) as usize, database)
    }
}

/// Watchers of one name that are searched one by one.
const FEW: usize = 16;

/// The watchers of one name. Mostly they are few, but thousands of clients may watch one key.
#[derive(Default)]
struct Watchers {
    few: SmallVec<[Watcher; 1]>,
    others: HashMap<(usize, u32), Watcher, RandomState>,
    /// The databases in which they watch, and how many of them do in each.
    databases: SmallVec<[(u32, u32); 1]>,
}

impl Watchers {
    /// Adds a watcher; returns whether it is the first one in its database.
    fn add(&mut self, watcher: Watcher) -> bool {
        let database = watcher.database;
        if self.few.len() < FEW {
            self.few.push(watcher);
        } else {
            self.others.insert(Watcher::id(&watcher.mark, watcher.database), watcher);
        }
        match self.databases.iter_mut().find(|(of, _)| *of == database) {
            Some((_, count)) => {
                *count += 1;
                false
            }
            None => {
                self.databases.push((database, 1));
                true
            }
        }
    }

    /// Removes a watcher; returns whether it was the last one in its database.
    fn remove(&mut self, mark: &Arc<Mark>, database: u32) -> bool {
        let is_it = |watcher: &Watcher| Arc::ptr_eq(&watcher.mark, mark) && watcher.database == database;
        let was_there = match self.few.iter().position(is_it) {
            Some(at) => {
                self.few.swap_remove(at);
                true
            }
            None => self.others.remove(&Watcher::id(mark, database)).is_some(),
        };
        assert!(was_there, "a watched key is taken out once");
        let place = self.databases.iter().position(|(of, _)| *of == database);
        let place = place.expect("its database was counted when it came");
        self.databases[place].1 -= 1;
        let is_last = self.databases[place].1 == 0;
        if is_last {
            self.databases.swap_remove(place);
        }
        is_last
    }

    fn is_empty(&self) -> bool {
        self.few.is_empty() && self.others.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = &Watcher> {
        self.few.iter().chain(self.others.values())
    }
}

/// A part of all watched keys.
#[derive(Default)]
struct Shard {
    by_name: HashMap<Name, Watchers, RandomState>,
    /// Names with the databases in which they are watched, each once.
    keys: usize,
}

/// All watched keys of all sessions.
pub struct Watches {
    /// Watchers of all keys together. Invariant: raised before the session reads a watched key, and loaded by a commit
    /// after its rows are in the memtable. A read takes the latch that the commit held, so one of the two sees the
    /// other without an ordering of this counter's own.
    count: AtomicUsize,
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
}

impl Default for Watches {
    fn default() -> Self {
        Watches {
            count: AtomicUsize::new(0),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
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

    /// Returns the number of keys that sessions watch, one that several watch once.
    pub fn keys(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).keys).sum()
    }

    /// Registers a watched key, for which no lock is needed; the name as all who watch it share it.
    fn watch(&self, database: u32, name: &[u8], since_ms: u64, mark: &Arc<Mark>) -> Name {
        let watcher = Watcher { database, since_ms, mark: mark.clone() };
        let mut shard = lock(self.shard(name));
        let shared = match shard.by_name.get_key_value(name) {
            Some((shared, _)) => shared.clone(),
            None => Name::from(name),
        };
        let is_first = shard.by_name.entry(shared.clone()).or_default().add(watcher);
        shard.keys += usize::from(is_first);
        drop(shard);
        self.count.fetch_add(1, Ordering::Relaxed);
        shared
    }

    /// Takes a session's watched key out again.
    fn unwatch(&self, database: u32, name: &[u8], mark: &Arc<Mark>) {
        let mut shard = lock(self.shard(name));
        let Some(watchers) = shard.by_name.get_mut(name) else {
            unreachable!("a watched key is registered until it is taken out")
        };
        let is_last = watchers.remove(mark, database);
        lower(&self.count, 1);
        if watchers.is_empty() {
            shard.by_name.remove(name);
        }
        shard.keys -= usize::from(is_last);
    }

    /// Marks everybody who watches a key whose meta row this transaction wrote. The caller still holds its locks. A key
    /// that only gave way to its deadline changes nothing for who watched it after that, as in Redis.
    #[cold]
    pub fn on_commit(&self, txn: &Txn<'_>) {
        debug_assert!(txn.has_committed() || txn.touched().next().is_none(), "watchers are marked after the commit");
        for key in txn.touched() {
            match txn.lapsed(&key) {
                Some(deadline_ms) => self.on_expired(key.space, key.name, deadline_ms, |database| txn.space(database)),
                None => self.mark(key.name, |watcher| txn.space(watcher.database) == key.space),
            }
        }
    }

    /// Marks those who watched a key of `space` before its deadline passed: it is gone now. `space_of` tells a
    /// database's.
    #[cold]
    pub fn on_expired(&self, space: Space, name: &[u8], deadline_ms: u64, space_of: impl Fn(u32) -> Space) {
        self.mark(name, |watcher| space_of(watcher.database) == space && watcher.since_ms <= deadline_ms);
    }

    /// Marks everybody who watches a key that a record of a master has changed; `is_in` tells whether a database has
    /// it.
    #[cold]
    pub fn on_record(&self, name: &[u8], is_in: impl Fn(u32) -> bool) {
        self.mark(name, |watcher| is_in(watcher.database));
    }

    /// Everything that is watched in these databases.
    pub fn in_databases(&self, databases: &[u32]) -> Vec<(u32, Name)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            for (name, watchers) in lock(shard).by_name.iter() {
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

    /// Marks everybody who watches anything: the data are replaced by others.
    pub fn on_replaced(&self) {
        for shard in &self.shards {
            lock(shard).by_name.values().flat_map(|watchers| watchers.iter()).for_each(|watcher| watcher.mark.set());
        }
    }

    fn mark(&self, name: &[u8], concerns: impl Fn(&Watcher) -> bool) {
        if let Some(watchers) = lock(self.shard(name)).by_name.get(name) {
            watchers.iter().filter(|watcher| concerns(watcher)).for_each(|watcher| watcher.mark.set());
        }
    }

    fn shard(&self, name: &[u8]) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(name) as usize % SHARDS]
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn watching(watches: &Arc<Watches>, database: u32) -> Watching {
        let mut watching = Watching::new(watches);
        watching.add(database, b"k", 100);
        watching
    }

    #[test]
    fn a_mark_is_set_by_its_own_keys_only() {
        let watches = Arc::default();
        let (mine, other) = (watching(&watches, 0), watching(&watches, 1));
        watches.on_exchange(0, b"j", u64::MAX);
        assert!(!mine.is_outdated());
        watches.on_exchange(0, b"k", 100);
        assert!(!mine.is_outdated(), "it was gone when it was watched");
        watches.on_exchange(0, b"k", 101);
        assert!(mine.is_outdated() && !other.is_outdated());
        assert_eq!(watches.keys(), 2);
        drop(mine);
        drop(other);
        assert!(!watches.any());
        assert!(watches.shards.iter().all(|shard| lock(shard).by_name.is_empty()), "nothing is left behind");
    }

    #[test]
    fn a_deadline_that_had_passed_at_watch_is_no_change() {
        let watches = Arc::default();
        let watching = watching(&watches, 0);
        watches.on_expired(Space(0), b"k", 99, |_| Space(0));
        assert!(!watching.is_outdated());
        watches.on_expired(Space(0), b"k", 100, |_| Space(0));
        assert!(watching.is_outdated());
    }

    #[test]
    fn a_key_is_watched_once_in_each_database_and_since_the_first_time() {
        let watches = Arc::default();
        let mut all = watching(&watches, 0);
        let other = watching(&watches, 0);
        all.add(0, b"k", 200);
        all.add(3, b"k", 300);
        all.add(0, b"j", 400);
        let mut keys: Vec<_> = all.iter().collect();
        keys.sort_unstable();
        assert_eq!(keys, [(0, &b"j"[..], 400), (0, b"k", 100), (3, b"k", 300)]);
        assert_eq!((all.len(), watches.keys()), (3, 3), "one that two sessions watch counts once");
        drop(all);
        assert_eq!(watches.keys(), 1, "the other session's stays");
        watches.on_exchange(0, b"k", u64::MAX);
        assert!(other.is_outdated());
    }

    #[test]
    fn many_may_watch_one_key() {
        let watches = Arc::default();
        let mut all: Vec<Watching> = (0..100).map(|number| watching(&watches, number % 2)).collect();
        // Some go, of the first and of the last, before anything changes.
        all.remove(90);
        all.remove(3);
        assert_eq!(watches.keys(), 2, "one name in two databases");
        watches.on_exchange(0, b"k", u64::MAX);
        assert_eq!(all.iter().filter(|watching| watching.is_outdated()).count(), 49);
        assert!(
            all.iter().all(|watching| watching.is_outdated() == watching.iter().all(|(database, ..)| database == 0))
        );
        all.clear();
        assert_eq!(watches.keys(), 0);
        assert!(watches.shards.iter().all(|shard| lock(shard).by_name.is_empty()), "nothing is left behind");
    }
}
