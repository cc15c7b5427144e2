//! What clients need beside the data, counted together: `maxmemory-clients`.
//!
//! Each event loop counts the bytes of its own clients in a word that nobody else writes, when a client's figure has changed:
//! requests that have not run, queued commands, watched keys, subscriptions, replies and messages that have not left, and what
//! long replies hold. The sum is compared with the bound wherever it has grown. Above the bound the clients with most bytes are
//! closed, as in Redis 7; just below it, clients with large requests under way are read from slowly (`is_tight`), and those who
//! publish wait while others are being closed.
//!
//! Invariant: each client that may be closed is in exactly one of the buckets, by the power of two of its bytes.

use crate::clients::client::Client;
use crate::clients::statistics::counters::Count;
use crate::sync::{Mutex, Padded, lock};
use haypile_config::{Config, Share};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// The least bound that counts: with less, nobody could talk to the server any more. Redis has the same.
const BOUND_BYTES_MIN: u64 = 128 << 10;

/// Clients with less than this are in the first bucket; each following one goes to the double.
const SMALL_BYTES: usize = 16 << 10;

const BUCKETS: usize = 28;

/// The bucket of a client that is in none: it is not to be closed, or not there yet.
const NO_BUCKET: u8 = u8::MAX;

/// The bucket of one that was told to go, which it never leaves.
const LEAVING: u8 = u8::MAX - 1;

/// What is on its way to one event loop, however large the bound.
pub(crate) const CONGESTED_BYTES_MAX: usize = 32 << 20;

/// Less than this is not asked for beforehand: it is counted when the turn ends.
pub(crate) const RESERVED_BYTES_MIN: usize = 64 << 10;

/// Clients that are closed in one go: those beyond are closed when the event loops have taken these.
const CLOSED_AT_ONCE: usize = 1024;

/// All clients' memory.
pub(crate) struct ClientMemory {
    /// `maxmemory-clients`: bytes, or percent of the memory budget above `PERCENT`.
    setting: AtomicU64,
    budget: Arc<AtomicU64>,
    /// Bytes of each event loop's clients.
    held: Box<[Padded<Count>]>,
    /// Messages that several clients share, each counted once.
    pub(crate) shared: AtomicU64,
    /// What commands have collected for replies, until their event loops have these.
    pub(crate) collected: AtomicU64,
    /// Bytes of clients that were told to go and are still there.
    pub(crate) leaving: AtomicU64,
    buckets: Mutex<[BTreeMap<u64, Arc<Client>>; BUCKETS]>,
    pub closed: Count,
}

/// Marks a setting in percent.
const PERCENT: u64 = 1 << 63;

/// One client's part.
#[derive(Debug)]
pub(crate) struct Footprint {
    /// Bytes of its own, and of messages that it shares with others. Written by its event loop.
    pub(crate) own: AtomicUsize,
    pub(crate) shared: AtomicUsize,
    /// Where it is among the buckets; changes under their lock.
    bucket: AtomicU8,
    /// What it has still to give back since it was told to go; changes under the lock of the buckets.
    pub(crate) leaving: AtomicU64,
}

impl Default for Footprint {
    fn default() -> Self {
        Footprint {
            own: AtomicUsize::new(0),
            shared: AtomicUsize::new(0),
            bucket: AtomicU8::new(NO_BUCKET),
            leaving: AtomicU64::new(0),
        }
    }
}

impl Footprint {
    /// Whether it was told to go, for want of room.
    #[inline]
    pub fn is_leaving(&self) -> bool {
        self.bucket.load(Ordering::Relaxed) == LEAVING
    }

    pub fn bytes(&self) -> u64 {
        (self.own.load(Ordering::Relaxed) + self.shared.load(Ordering::Relaxed)) as u64
    }
}

fn bucket_of(bytes: usize) -> u8 {
    (bytes / SMALL_BYTES).checked_ilog2().map_or(0, |power| (power as usize + 1).min(BUCKETS - 1) as u8)
}

fn setting_of(config: &Config) -> u64 {
    match config.maxmemory_clients {
        Share::Bytes(bytes) => bytes.min(PERCENT - 1),
        Share::Percent(percent) => PERCENT | u64::from(percent),
    }
}

impl ClientMemory {
    pub fn new(loops: usize, config: &Config, budget: Arc<AtomicU64>) -> Self {
        ClientMemory {
            setting: AtomicU64::new(setting_of(config)),
            budget,
            held: (0..loops).map(|_| Padded::default()).collect(),
            shared: AtomicU64::new(0),
            collected: AtomicU64::new(0),
            leaving: AtomicU64::new(0),
            buckets: Mutex::new(std::array::from_fn(|_| BTreeMap::new())),
            closed: Count::default(),
        }
    }

    pub fn configure(&self, config: &Config) {
        self.setting.store(setting_of(config), Ordering::Relaxed);
    }

    /// The bound, if there is one.
    pub fn bound(&self) -> Option<u64> {
        let bytes = match self.setting.load(Ordering::Relaxed) {
            0 | PERCENT => return None,
            share if share & PERCENT != 0 => match self.budget.load(Ordering::Relaxed) {
                // Of nothing there is no share: tests have no budget.
                0 => return None,
                budget => budget / 100 * (share & !PERCENT),
            },
            bytes => bytes,
        };
        Some(bytes.max(BOUND_BYTES_MIN))
    }

    /// Bytes of all clients, without what is on its way to event loops.
    pub fn bytes(&self) -> u64 {
        let others = self.shared.load(Ordering::Relaxed) + self.collected.load(Ordering::Relaxed);
        self.own_bytes().wrapping_add(others)
    }

    /// Bytes that each client has for itself.
    fn own_bytes(&self) -> u64 {
        self.held.iter().fold(0, |sum, held| sum.wrapping_add(held.0.get()))
    }

    /// Counts a message that several clients are going to share.
    pub fn add_shared(&self, bytes: usize) {
        self.shared.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn subtract_shared(&self, bytes: usize) {
        self.shared.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Whether clients that were told to go are still there.
    pub fn is_closing(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) > 0
    }

    /// Sets a client's figures; called by its event loop only. Whether they have grown.
    #[inline]
    pub fn set(&self, client: &Arc<Client>, own: usize, shared: usize, may_be_closed: bool) -> bool {
        let footprint = &client.footprint;
        let before = (footprint.own.load(Ordering::Relaxed), footprint.shared.load(Ordering::Relaxed));
        let bucket = if may_be_closed { bucket_of(own + shared) } else { NO_BUCKET };
        if before == (own, shared) && bucket == footprint.bucket.load(Ordering::Relaxed) {
            return false;
        }
        footprint.own.store(own, Ordering::Relaxed);
        footprint.shared.store(shared, Ordering::Relaxed);
        self.held[client.worker].0.add((own as u64).wrapping_sub(before.0 as u64));
        if bucket != footprint.bucket.load(Ordering::Relaxed) {
            self.move_to(client, bucket);
        }
        own + shared > before.0 + before.1
    }

    #[cold]
    fn move_to(&self, client: &Arc<Client>, bucket: u8) {
        let mut buckets = lock(&self.buckets);
        let footprint = &client.footprint;
        if footprint.is_leaving() {
            // What it is sent until it hears of it goes with it.
            let (before, now) = (footprint.leaving.load(Ordering::Relaxed), footprint.bytes());
            footprint.leaving.store(now, Ordering::Relaxed);
            self.leaving.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
            return;
        }
        let before = footprint.bucket.swap(bucket, Ordering::Relaxed);
        if let Some(of_size) = buckets.get_mut(before as usize) {
            of_size.remove(&client.id);
        }
        if let Some(of_size) = buckets.get_mut(bucket as usize) {
            of_size.insert(client.id, client.clone());
        }
    }

    /// A client has gone.
    pub fn forget(&self, client: &Arc<Client>) {
        self.set(client, 0, 0, false);
        // It may have been told to go since it was looked at.
        self.move_to(client, NO_BUCKET);
    }

    /// Takes the clients with most bytes until the others, of whom all together have `all()`, are within `bound`: they are to be
    /// closed. Those with much less than `bytes_min` are left alone. So are small ones, unless it is they who have too much.
    pub(crate) fn take_worst(&self, bound: u64, bytes_min: usize, all: impl FnOnce() -> u64) -> Vec<Arc<Client>> {
        let mut buckets = lock(&self.buckets);
        let leaving = self.leaving.load(Ordering::Relaxed);
        let mut excess = all().saturating_sub(leaving).saturating_sub(bound);
        let are_many = self.own_bytes().saturating_sub(leaving) > bound;
        let first = bucket_of(bytes_min).max(u8::from(!are_many));
        let mut taken = Vec::new();
        while excess > 0 && taken.len() < CLOSED_AT_ONCE {
            let worst = buckets[first as usize..].iter_mut().rev().find_map(BTreeMap::pop_first);
            let Some((_, client)) = worst else { break };
            let bytes = client.footprint.bytes();
            client.footprint.bucket.store(LEAVING, Ordering::Relaxed);
            client.footprint.leaving.store(bytes, Ordering::Relaxed);
            self.leaving.fetch_add(bytes, Ordering::Relaxed);
            excess = excess.saturating_sub(bytes);
            taken.push(client);
        }
        taken
    }
}

/// Bytes that are counted among the clients' while this lives.
pub(crate) struct Counted {
    memory: Arc<ClientMemory>,
    bytes: usize,
}

impl Counted {
    pub fn new(memory: &Arc<ClientMemory>, bytes: usize) -> Counted {
        memory.collected.fetch_add(bytes as u64, Ordering::Relaxed);
        Counted { memory: memory.clone(), bytes }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.memory.collected.fetch_sub(self.bytes as u64, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::clients::client::Peer;
    use std::path::Path;

    fn memory(bound: u64) -> ClientMemory {
        let config = Config { maxmemory_clients: Share::Bytes(bound), ..Config::defaults(Path::new("/")) };
        ClientMemory::new(2, &config, Arc::default())
    }

    fn client(id: u64) -> Arc<Client> {
        Arc::new(Client::new(id, (id % 2) as usize, Peer::default(), 0))
    }

    #[test]
    fn the_sum_follows_the_figures_of_all_loops() {
        let memory = memory(0);
        let (a, b) = (client(1), client(2));
        assert!(memory.set(&a, 1000, 0, true));
        assert!(memory.set(&b, 500, 70_000, true));
        assert_eq!(memory.bytes(), 1500, "what is shared is counted where it is");
        assert!(!memory.set(&b, 400, 70_000, true) && !memory.set(&b, 400, 70_000, true));
        memory.add_shared(70_000);
        assert_eq!(memory.bytes(), 71_400);
        memory.forget(&a);
        memory.forget(&b);
        memory.subtract_shared(70_000);
        assert_eq!(memory.bytes(), 0);
    }

    #[test]
    fn those_with_most_are_closed_first_and_no_more_than_needed() {
        let memory = memory(1 << 20);
        let clients: Vec<_> = (1..=6).map(client).collect();
        for (client, bytes) in clients.iter().zip([100 << 10, 3 << 20, 800, 2 << 20, 400 << 10, 9 << 20]) {
            // The last one wants to be kept.
            memory.set(client, bytes, 0, client.id != 6);
        }
        let ids = |taken: Vec<Arc<Client>>| taken.iter().map(|client| client.id).collect::<Vec<_>>();
        let others = (5 << 20) + (500 << 10) + 800;
        assert_eq!(ids(memory.take_worst(1 << 20, 4 << 20, || others)), [0_u64; 0], "none has so much");
        assert_eq!(ids(memory.take_worst(1 << 20, 0, || others)), [2, 4]);
        assert!(memory.is_closing());
        assert_eq!(ids(memory.take_worst(1 << 20, 0, || others)), [0_u64; 0], "they are on their way");
        // Figures of one that is on its way out do not bring it back.
        memory.set(&clients[1], 40 << 20, 0, true);
        memory.set(&clients[3], 1 << 20, 0, true);
        assert_eq!(memory.leaving.load(Ordering::Relaxed), 41 << 20, "one has given half of it back, one has got more");
        memory.forget(&clients[1]);
        memory.forget(&clients[3]);
        assert!(!memory.is_closing());
        assert_eq!(ids(memory.take_worst(10 << 20, 0, || 99 << 20)), [5, 1], "small ones cannot help it");
        assert_eq!(ids(memory.take_worst(0, 0, || 9 << 20)), [3], "the smallest, but not the one that is kept");
    }

    #[test]
    fn a_share_is_of_the_budget_and_a_bound_is_not_too_small() {
        let config = |share| Config { maxmemory_clients: share, ..Config::defaults(Path::new("/")) };
        let budget = Arc::new(AtomicU64::new(1 << 30));
        let memory = ClientMemory::new(1, &config(Share::Percent(50)), budget.clone());
        assert_eq!(memory.bound(), Some((1 << 30) / 100 * 50));
        budget.store(4 << 30, Ordering::Relaxed);
        assert_eq!(memory.bound(), Some((4 << 30) / 100 * 50));
        for (share, bound) in [
            (Share::Bytes(0), None),
            (Share::Percent(0), None),
            (Share::Bytes(1), Some(BOUND_BYTES_MIN)),
            (Share::Bytes(5 << 20), Some(5 << 20)),
        ] {
            memory.configure(&config(share));
            assert_eq!(memory.bound(), bound, "{share:?}");
        }
    }

    #[test]
    fn buckets_are_powers_of_two() {
        assert_eq!(
            [0, SMALL_BYTES - 1, SMALL_BYTES, 2 * SMALL_BYTES - 1, 2 * SMALL_BYTES].map(bucket_of),
            [0, 0, 1, 1, 2]
        );
        assert_eq!(bucket_of(usize::MAX / 2) as usize, BUCKETS - 1);
    }
}
