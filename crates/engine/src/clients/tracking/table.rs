//! The table of keys that clients which track have read, with its bounds: beyond them keys leave it, and whoever has
//! read these is told.

use super::keys::{Known, Reader, Shard};
use super::trackers::Trackers;
use super::{Progress, Stale, Tracker};
use crate::clients::client::Client;
use crate::clients::client_memory::ClientMemory;
use crate::sync::{Mutex, MutexGuard, lock};
use foldhash::fast::RandomState;
use haypile_commands::host::TrackingOptions;
use haypile_config::Config;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Parts of the table of keys, each with its own mutex.
const SHARDS: usize = 64;

/// Bytes that a key and a client that has read it take in the table, beside the name.
const KEY_BYTES: usize = 100;
const ITEM_BYTES: usize = size_of::<Reader>();

/// The readers of a key from which on those who have gone are looked for.
const CROWD: usize = 16;

/// Keys that a read looks at while the table has more than it may, as many as in Redis: they are taken out.
const READ_SHRINKS: usize = 100;

/// The share of `maxmemory` that the table of keys takes at most, however many keys these are.
const MEMORY_SHARE: u64 = 8;

/// All clients that track, and the keys that they have read.
pub(crate) struct Tracking {
    /// Clients that track.
    count: AtomicUsize,
    trackers: RwLock<Trackers>,
    /// The number of the last read of all who have ended tracking; who begins counts from here on.
    last_read: AtomicU64,
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    keys: AtomicUsize,
    items: AtomicUsize,
    /// Bytes of keys and items.
    bytes: AtomicUsize,
    memory: Arc<ClientMemory>,
    /// `tracking-table-max-keys`; 0 is no bound.
    keys_max: AtomicUsize,
    bytes_max: AtomicUsize,
    /// The part that gives up keys next, while there are too many.
    next_to_shrink: AtomicUsize,
}

impl Tracking {
    /// Makes the table before anybody tracks; `memory` counts what the table takes.
    pub fn new(memory: Arc<ClientMemory>, config: &Config) -> Tracking {
        let tracking = Tracking {
            count: AtomicUsize::new(0),
            trackers: RwLock::default(),
            last_read: AtomicU64::new(0),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            memory,
            keys_max: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(0),
            next_to_shrink: AtomicUsize::new(0),
        };
        tracking.configure(config);
        tracking
    }

    /// Takes over the bounds of a configuration.
    pub fn configure(&self, config: &Config) {
        let share = usize::try_from(config.maxmemory / MEMORY_SHARE).unwrap_or(usize::MAX);
        self.keys_max.store(config.tracking_keys_max, Ordering::Relaxed);
        self.bytes_max.store(if share == 0 { usize::MAX } else { share }, Ordering::Relaxed);
    }

    /// Whether anybody tracks. One load.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Returns the number of clients that track.
    pub fn clients(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the number of keys in the table.
    pub fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns the number of clients of all keys together.
    pub fn items(&self) -> usize {
        self.items.load(Ordering::Relaxed)
    }

    /// Returns the number of prefixes that somebody listens to.
    pub fn prefixes(&self) -> usize {
        self.read().by_prefix.len()
    }

    /// Whether the table has as much as it may, or, for one more key, as many keys.
    fn is_full(&self, is_new_key: bool) -> bool {
        let keys_max = self.keys_max.load(Ordering::Relaxed);
        let has_all_keys = is_new_key && keys_max > 0 && self.keys.load(Ordering::Relaxed) >= keys_max;
        has_all_keys || self.bytes.load(Ordering::Relaxed) > self.bytes_max.load(Ordering::Relaxed)
    }

    /// Returns whether the table has more than it may.
    pub fn has_too_much(&self) -> bool {
        let keys_max = self.keys_max.load(Ordering::Relaxed);
        let has_too_many_keys = keys_max > 0 && self.keys.load(Ordering::Relaxed) > keys_max;
        has_too_many_keys || self.bytes.load(Ordering::Relaxed) > self.bytes_max.load(Ordering::Relaxed)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Trackers> {
        self.trackers.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the part that a key belongs to, locked, and the key's hash.
    fn shard(&self, name: &[u8]) -> (MutexGuard<'_, Shard>, u64) {
        let hash = self.hasher.hash_one(name);
        // The table of a part looks at the other bits.
        (lock(&self.shards[(hash >> 32) as usize % SHARDS]), hash)
    }

    /// Makes the tracker of a client that begins to track, or that goes on with other options behind `before`.
    pub fn tracker(
        &self,
        client: &Client,
        options: TrackingOptions,
        is_block: bool,
        before: Option<&Tracker>,
    ) -> Tracker {
        let begin = || {
            let last = self.last_read.load(Ordering::Relaxed);
            Arc::new(Progress { asked: AtomicU64::new(last), answered: AtomicU64::new(last) })
        };
        let progress = before.map_or_else(begin, |before| before.progress.clone());
        Tracker::new(client, options, is_block, progress)
    }

    /// Notes that a client has ended tracking, so that its reads get higher numbers when it begins again.
    pub fn on_ended(&self, tracker: &Tracker) {
        self.last_read.fetch_max(tracker.progress.asked.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Puts a client's tracker in the place of the one that it had; with None it does not track any more.
    pub fn set(&self, session: u64, tracker: Option<Arc<Tracker>>) {
        let mut trackers = self.trackers.write().unwrap_or_else(PoisonError::into_inner);
        trackers.remove(session).into_iter().for_each(|before| self.on_ended(&before));
        tracker.into_iter().for_each(|tracker| trackers.add(tracker));
        self.count.store(trackers.by_session.len(), Ordering::Relaxed);
    }

    /// Notes that a client is about to read keys. Returns those that have to leave the table for it: whoever has them
    /// is to be told.
    pub fn note_read<'n>(&self, tracker: &Tracker, names: impl Iterator<Item = &'n [u8]>) -> Vec<Stale> {
        let read = tracker.progress.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let (mut displaced, mut crowded) = (Vec::new(), Vec::new());
        for name in names {
            let (mut shard, hash) = self.shard(name);
            let mut place = shard.find(hash, name);
            let known = place
                .and_then(|at| shard.known[at].readers.iter_mut().find(|reader| reader.session == tracker.session));
            if let Some(reader) = known {
                reader.read = read;
                continue;
            }
            while self.is_full(place.is_none())
                && let Some(other) = shard.other_than(place, hash)
            {
                let Known { name: other, readers, .. } = shard.remove(other);
                self.uncount(Some(&other), readers.len());
                displaced.push((other, readers));
                place = shard.find(hash, name);
            }
            let at = place.unwrap_or_else(|| {
                self.count_key(name);
                shard.add(hash, name)
            });
            let readers = &mut shard.known[at].readers;
            if readers.len() >= CROWD && readers.len() == readers.capacity() {
                crowded.push(name);
            }
            readers.push(Reader { session: tracker.session, read });
            self.count_item();
        }
        crowded.into_iter().for_each(|name| self.drop_gone(name));
        let mut stale = if displaced.is_empty() { Vec::new() } else { self.read().stale(displaced) };
        // The part of a key may have had none to give for it.
        if self.has_too_much() {
            stale.extend(self.shrink(READ_SHRINKS));
        }
        stale
    }

    /// Takes keys out of the table while it has more than it may, but looks at `keys_max` at most. Returns those who
    /// are to be told. A key stays while it is read: a message that is redirected could come before the value.
    pub fn shrink(&self, keys_max: usize) -> Vec<Stale> {
        let trackers = self.read();
        let (mut left, mut taken) = (keys_max, Vec::new());
        for _ in 0..SHARDS {
            let next = self.next_to_shrink.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let mut shard = lock(&self.shards[next]);
            for at in (0..shard.known.len()).rev().take(left) {
                if !self.has_too_much() {
                    return trackers.stale(taken);
                }
                left -= 1;
                if !shard.known[at].readers.iter().any(|reader| trackers.is_under_way(reader)) {
                    let Known { name, readers, .. } = shard.remove(at);
                    self.uncount(Some(&name), readers.len());
                    taken.push((name, readers));
                }
            }
            if shard.known.is_empty() {
                *shard = Shard::default();
            }
            if left == 0 {
                break;
            }
        }
        trackers.stale(taken)
    }

    /// Forgets the readers of a key that track no more. Called each time that a key's readers fill their memory,
    /// which doubles then: so most of it is of those who are there.
    #[cold]
    fn drop_gone(&self, name: &[u8]) {
        let trackers = self.read();
        let (mut shard, hash) = self.shard(name);
        let Some(at) = shard.find(hash, name) else { return };
        let readers = &mut shard.known[at].readers;
        let before = readers.len();
        readers.retain(|reader| trackers.by_session.contains_key(&reader.session));
        if readers.len() <= readers.capacity() / 4 {
            readers.shrink_to_fit();
        }
        let gone = before - readers.len();
        self.uncount(None, gone);
    }

    fn count_key(&self, name: &[u8]) {
        self.keys.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(KEY_BYTES + name.len(), Ordering::Relaxed);
        self.memory.add_shared(KEY_BYTES + name.len());
    }

    fn count_item(&self) {
        self.items.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(ITEM_BYTES, Ordering::Relaxed);
        self.memory.add_shared(ITEM_BYTES);
    }

    /// Items have left the table, and their key if it is given.
    fn uncount(&self, key: Option<&[u8]>, items: usize) {
        let bytes = items * ITEM_BYTES + key.map_or(0, |name| KEY_BYTES + name.len());
        self.keys.fetch_sub(usize::from(key.is_some()), Ordering::Relaxed);
        self.items.fetch_sub(items, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.memory.subtract_shared(bytes);
    }

    /// Takes who is to hear that keys have changed by session `by`. The caller holds their locks, and the change is
    /// visible.
    pub fn take_stale<'n>(&self, names: impl Iterator<Item = &'n [u8]>, by: u64) -> Vec<Stale> {
        let trackers = self.read();
        let hears = |tracker: &Tracker| !(tracker.options.noloop && tracker.session == by);
        let mut stale: Vec<Stale> = Vec::new();
        // Of those who listen to prefixes, each gets one message for the whole change.
        let mut of_prefixes: HashMap<u64, usize> = HashMap::new();
        for name in names {
            for tracker in trackers.listeners(name).filter(|tracker| hears(tracker)) {
                let at = *of_prefixes.entry(tracker.session).or_insert_with(|| {
                    stale.push(Stale { tracker: tracker.clone(), keys: Vec::new() });
                    stale.len() - 1
                });
                // The empty prefix goes with others.
                if stale[at].keys.last().is_none_or(|last| **last != *name) {
                    stale[at].keys.push(name.into());
                }
            }
            self.take_readers(name, &trackers, by, |tracker| {
                if hears(tracker) {
                    stale.push(Stale { tracker: tracker.clone(), keys: vec![name.into()] });
                }
            });
        }
        stale
    }

    /// Calls `tell` for each client that has read a key, and forgets those whose reply is made, or comes before the
    /// message because they have changed the key themselves.
    fn take_readers(&self, name: &[u8], trackers: &Trackers, by: u64, mut tell: impl FnMut(&Arc<Tracker>)) {
        let (mut shard, hash) = self.shard(name);
        let Some(at) = shard.find(hash, name) else { return };
        let readers = &mut shard.known[at].readers;
        let before = readers.len();
        readers.retain(|reader| {
            let Some(tracker) = trackers.by_session.get(&reader.session).filter(|tracker| tracker.notes_reads()) else {
                return false;
            };
            tell(tracker);
            reader.session != by && reader.read > tracker.progress.answered.load(Ordering::Acquire)
        });
        let is_empty = readers.is_empty();
        let gone = before - readers.len();
        if is_empty {
            shard.remove(at);
        }
        self.uncount(is_empty.then_some(name), gone);
    }

    /// Takes all who track: databases were emptied or exchanged, and nothing that was kept counts any more. Reads under
    /// way stay noted.
    pub fn take_all(&self) -> Vec<Arc<Tracker>> {
        let trackers = self.read();
        for shard in &self.shards {
            let mut shard = lock(shard);
            for at in (0..shard.known.len()).rev() {
                let Known { name, readers, .. } = &mut shard.known[at];
                let before = readers.len();
                readers.retain(|reader| trackers.is_under_way(reader));
                let is_empty = readers.is_empty();
                self.uncount(is_empty.then_some(&**name), before - readers.len());
                if is_empty {
                    shard.remove(at);
                }
            }
            if shard.known.is_empty() {
                *shard = Shard::default();
            }
        }
        trackers.by_session.values().cloned().collect()
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::clients::client::Peer;
    use haypile_commands::host::TrackingMode;

    fn tracking() -> Tracking {
        let config = Config::defaults(std::path::Path::new("/"));
        Tracking::new(Arc::new(ClientMemory::new(1, &config, Arc::default())), &config)
    }

    fn tracker(session: u64, mode: TrackingMode, prefixes: &[&str], noloop: bool) -> Arc<Tracker> {
        let prefixes = prefixes.iter().map(|prefix| prefix.as_bytes().to_vec()).collect();
        let options = TrackingOptions { redirect: 0, mode, prefixes, noloop };
        let client = Client::new(session, 0, Peer::default(), 0);
        Arc::new(Tracker::new(&client, options, false, Arc::default()))
    }

    fn told(tracking: &Tracking, name: &str, by: u64) -> Vec<u64> {
        let mut told: Vec<u64> =
            tracking.take_stale([name.as_bytes()].into_iter(), by).iter().map(|stale| stale.tracker.session).collect();
        told.sort_unstable();
        told
    }

    fn read(tracking: &Tracking, tracker: &Tracker, name: &str) {
        assert_eq!(tracking.note_read(tracker, [name.as_bytes()].into_iter()).len(), 0);
    }

    #[test]
    fn who_has_read_a_key_is_told_once() {
        let tracking = tracking();
        let clients = [1, 2].map(|session| tracker(session, TrackingMode::Default, &[], false));
        clients.iter().for_each(|client| tracking.set(client.session, Some(client.clone())));
        clients.iter().for_each(|client| read(&tracking, client, "a"));
        clients.iter().for_each(|client| client.on_answered());
        assert_eq!(told(&tracking, "b", 0), [0u64; 0]);
        assert_eq!(told(&tracking, "a", 0), [1, 2]);
        assert_eq!(told(&tracking, "a", 0), [0u64; 0], "until it is read again");
        assert_eq!((tracking.keys(), tracking.items()), (0, 0));
        read(&tracking, &clients[0], "a");
        tracking.set(1, None);
        assert_eq!(told(&tracking, "a", 0), [0u64; 0], "who tracks no more is not told");
    }

    #[test]
    fn a_change_while_the_read_is_under_way_is_not_the_last_that_is_told() {
        let tracking = tracking();
        let client = tracker(1, TrackingMode::Default, &[], false);
        tracking.set(1, Some(client.clone()));
        read(&tracking, &client, "a");
        assert_eq!(told(&tracking, "a", 0), [1]);
        assert_eq!(told(&tracking, "a", 0), [1], "its reply may hold either value");
        client.on_answered();
        assert_eq!(told(&tracking, "a", 0), [1]);
        assert_eq!(told(&tracking, "a", 0), [0u64; 0]);
        read(&tracking, &client, "a");
        assert_eq!(tracking.take_all().len(), 1);
        assert_eq!(tracking.keys(), 1, "the same where everything has changed");
        client.on_answered();
        tracking.take_all();
        assert_eq!((tracking.keys(), tracking.items()), (0, 0));
    }

    #[test]
    fn reads_of_before_tracking_was_ended_are_told_once() {
        let tracking = tracking();
        let peer = || Client::new(1, 0, Peer::default(), 0);
        let begin = || {
            let options = TrackingOptions { redirect: 0, mode: TrackingMode::Default, prefixes: vec![], noloop: false };
            let tracker = Arc::new(tracking.tracker(&peer(), options, false, None));
            tracking.set(1, Some(tracker.clone()));
            tracker
        };
        let before = begin();
        for number in 0..1000 {
            read(&tracking, &before, &format!("other:{number}"));
            before.on_answered();
        }
        read(&tracking, &before, "a");
        before.on_answered();
        tracking.set(1, None);
        let client = begin();
        assert_eq!(told(&tracking, "a", 0), [1], "as in Redis, which forgets no read of who ends tracking");
        assert_eq!(told(&tracking, "a", 0), [0u64; 0]);
        read(&tracking, &client, "a");
        assert_eq!(told(&tracking, "a", 0), [1]);
        assert_eq!(told(&tracking, "a", 0), [1], "a read under way still counts as one");
        client.on_answered();
        assert_eq!(told(&tracking, "a", 0), [1]);
        assert_eq!(told(&tracking, "a", 0), [0u64; 0]);
    }

    #[test]
    fn prefixes_hear_of_every_key_and_noloop_of_no_change_of_ones_own() {
        let tracking = tracking();
        let clients = [(1, &["a", "b"][..], false), (2, &["ab"], true), (3, &[""], false)];
        for (session, prefixes, noloop) in clients {
            tracking.set(session, Some(tracker(session, TrackingMode::Broadcast, prefixes, noloop)));
        }
        assert_eq!(told(&tracking, "abc", 0), [1, 2, 3]);
        assert_eq!(told(&tracking, "abc", 2), [1, 3]);
        assert_eq!(told(&tracking, "abc", 3), [1, 2, 3]);
        assert_eq!(told(&tracking, "c", 0), [3]);
        let names = ["a1", "b1", "x"].map(str::as_bytes);
        let stale = tracking.take_stale(names.into_iter(), 0);
        let keys =
            |session| stale.iter().filter(|one| one.tracker.session == session).map(|one| one.keys.len()).collect();
        let (first, third): (Vec<usize>, Vec<usize>) = (keys(1), keys(3));
        assert_eq!((first, third), (vec![2], vec![3]), "one message for a change of many keys");
        assert_eq!(tracking.prefixes(), 4);
        [1, 2, 3].into_iter().for_each(|session| tracking.set(session, None));
        assert_eq!((tracking.prefixes(), tracking.any()), (0, false));
    }

    #[test]
    fn a_full_table_tells_of_the_key_that_leaves() {
        let tracking = tracking();
        tracking.keys_max.store(100, Ordering::Relaxed);
        let client = tracker(1, TrackingMode::Default, &[], false);
        tracking.set(1, Some(client.clone()));
        let mut displaced = 0;
        for number in 0..10_000 {
            displaced += tracking.note_read(&client, [format!("key:{number}").as_bytes()].into_iter()).len();
        }
        assert_eq!(tracking.keys() + displaced, 10_000);
        // A part that has no key yet takes one more.
        assert!(tracking.keys() < 100 + SHARDS, "{}", tracking.keys());
        tracking.take_all();
        client.on_answered();
        tracking.take_all();
        assert_eq!((tracking.keys(), tracking.bytes.load(Ordering::Relaxed), tracking.memory.bytes()), (0, 0, 0));
    }

    #[test]
    fn readers_who_have_gone_do_not_fill_the_table() {
        let tracking = tracking();
        let stays = tracker(1, TrackingMode::Default, &[], false);
        tracking.set(1, Some(stays.clone()));
        read(&tracking, &stays, "a");
        for session in 2..10_000 {
            let client = tracker(session, TrackingMode::Default, &[], false);
            tracking.set(session, Some(client.clone()));
            read(&tracking, &client, "a");
            tracking.set(session, None);
            assert!(tracking.items() <= 2 * CROWD, "{} after {session}", tracking.items());
        }
        stays.on_answered();
        assert_eq!(told(&tracking, "a", 0), [1]);
        assert_eq!((tracking.keys(), tracking.items(), tracking.memory.bytes()), (0, 0, 0));
    }

    #[test]
    fn readers_of_few_keys_fill_the_table_as_well() {
        let tracking = tracking();
        tracking.bytes_max.store(64 << 10, Ordering::Relaxed);
        let clients: Vec<_> = (1..=200).map(|session| tracker(session, TrackingMode::Default, &[], false)).collect();
        let mut displaced = 0;
        for client in &clients {
            tracking.set(client.session, Some(client.clone()));
            for number in 0..2 * SHARDS {
                let name = format!("key:{number}");
                displaced += tracking.note_read(client, [name.as_bytes()].into_iter()).len();
            }
        }
        assert!(displaced > 0);
        // One key of each part stays, however many read it.
        let most = (64 << 10) + SHARDS * (KEY_BYTES + 16 + clients.len() * ITEM_BYTES);
        assert!(tracking.bytes.load(Ordering::Relaxed) <= most, "{}", tracking.bytes.load(Ordering::Relaxed));
        assert_eq!(tracking.items() + displaced, clients.len() * 2 * SHARDS, "who leaves the table is told");
    }

    #[test]
    fn long_names_fill_the_table_as_well() {
        let tracking = tracking();
        tracking.bytes_max.store(1 << 20, Ordering::Relaxed);
        let client = tracker(1, TrackingMode::Default, &[], false);
        tracking.set(1, Some(client.clone()));
        let mut displaced = 0;
        for number in 0..1000 {
            let name = format!("{number}{}", "x".repeat(10_000));
            displaced += tracking.note_read(&client, [name.as_bytes()].into_iter()).len();
        }
        assert_eq!(tracking.keys() + displaced, 1000);
        assert!(tracking.bytes.load(Ordering::Relaxed) < (1 << 20) + SHARDS * 11_000, "{displaced}");
    }
}
