//! The memory of all clients beside the data, counted together: `maxmemory-clients`.
//!
//! Each event loop counts the bytes of its own clients in a word that nobody else writes, when a client's figure has
//! changed: requests that have not run, queued commands, watched keys, subscriptions, replies and messages that have
//! not left, and what long replies hold. The sum is compared with the bound wherever it has grown. Before it is
//! reached, clients with large requests under way are read from slowly, and the replies that wait for each client
//! shrink (`output_bytes_max`). Above it the clients with most bytes are closed, as in Redis 7, but for those that read
//! their replies; those who publish wait meanwhile.
//!
//! Invariant: each client that may be closed is in exactly one of the buckets, by the power of two of its bytes.

use crate::clients::client::Client;
use crate::clients::statistics::counters::Count;
use crate::sync::{Mutex, Padded, lock, lower_bytes};
use haypile_config::{Config, Share};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// The least bound that counts: with less, nobody could talk to the server any more. Redis has the same.
pub(crate) const BOUND_BYTES_MIN: u64 = 128 << 10;

/// The least bound that a share of the budget stands for: a small budget is one for the data, and clients with requests
/// and replies of a usual size shall not be closed for it.
const SHARE_BYTES_MIN: u64 = 32 << 20;

/// Bytes of one client's replies at which its next commands wait, by how much room there is: as long as there is
/// enough, when clients take three quarters of the bound, and when they take all of it.
const OUTPUT_BYTES_MAX: [usize; 3] = [1 << 20, 256 << 10, 16 << 10];

/// A client reads if its socket has taken some of its replies within this time, or if they have waited for no longer.
const READS_WITHIN_MS: u64 = 2000;

/// The time before the next look for clients to close, where the last look took none because all of them read.
pub(crate) const LOOK_AGAIN_MS: u64 = 10;

/// Clients with less than this are in the first bucket; each following one goes to the double.
const SMALL_BYTES: usize = 16 << 10;

const BUCKETS: usize = 28;

/// The bucket of a client that is in none: it is not to be closed, or not there yet.
const NO_BUCKET: u8 = u8::MAX;

/// The bucket of one that was told to go. From here it only comes to `GONE`.
const LEAVING: u8 = u8::MAX - 1;

/// The bucket of one that has gone. What its connection still does counts for nobody.
const GONE: u8 = u8::MAX - 2;

/// The most bytes on their way to one event loop, however large the bound.
pub(crate) const CONGESTED_BYTES_MAX: usize = 32 << 20;

/// The least bytes that are asked for beforehand: fewer are counted when the turn ends.
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
    /// Bytes that commands have collected for replies, until their event loops have these.
    pub(crate) collected: AtomicU64,
    /// Bytes of clients that were told to go and are still there.
    pub(crate) leaving: AtomicU64,
    buckets: Mutex<[BTreeMap<u64, Arc<Client>>; BUCKETS]>,
    /// An element of `OUTPUT_BYTES_MAX`. Read for each command, hence apart from what changes often.
    pub(crate) output_bytes_max: Padded<AtomicUsize>,
    /// The time of the last look that found all clients with too much to read.
    pub(crate) spared_ms: AtomicU64,
    pub closed: Count,
}

/// Marks a setting in percent.
const PERCENT: u64 = 1 << 63;

/// The memory of one client.
#[derive(Debug)]
pub(crate) struct Footprint {
    /// Bytes of its own, and of messages that it shares with others. Written by its event loop.
    pub(crate) own: AtomicUsize,
    pub(crate) shared: AtomicUsize,
    /// The part of `own` in replies on their way to the client; 0 if it is sent more than it asks for. Written by its
    /// event loop.
    pub(crate) replies: AtomicUsize,
    /// The part of `replies` in rows that long replies hold, which others may hold as well.
    pub(crate) rows: AtomicUsize,
    /// The time when the client read replies last, or when the oldest of them began to wait, in milliseconds since
    /// 1970.
    read_ms: AtomicU64,
    /// The client's bucket; changes under the lock of the buckets.
    bucket: AtomicU8,
    /// Bytes that a client that was told to go has still to give back; changes under the lock of the buckets.
    pub(crate) leaving: AtomicU64,
}

impl Default for Footprint {
    fn default() -> Self {
        Footprint {
            own: AtomicUsize::new(0),
            shared: AtomicUsize::new(0),
            replies: AtomicUsize::new(0),
            rows: AtomicUsize::new(0),
            read_ms: AtomicU64::new(0),
            bucket: AtomicU8::new(NO_BUCKET),
            leaving: AtomicU64::new(0),
        }
    }
}

impl Footprint {
    /// Returns whether the client was told to go, for want of room.
    #[inline]
    pub fn is_leaving(&self) -> bool {
        self.bucket.load(Ordering::Relaxed) == LEAVING
    }

    /// Returns whether the client may be closed for want of room: it is there, and CLIENT NO-EVICT was not called.
    pub fn may_be_closed(&self) -> bool {
        (self.bucket.load(Ordering::Relaxed) as usize) < BUCKETS
    }

    pub fn bytes(&self) -> u64 {
        (self.own.load(Ordering::Relaxed) + self.shared.load(Ordering::Relaxed)) as u64
    }

    /// Notes that the client reads, or that something begins to wait for it.
    pub fn note_read(&self, now_ms: u64) {
        self.read_ms.store(now_ms, Ordering::Relaxed);
    }
}

/// Whether replies are most of what a client takes, and it reads them: it needs no more than time.
fn reads(client: &Client, now_ms: u64) -> bool {
    let Footprint { own, replies, read_ms, .. } = &client.footprint;
    let is_recent = || now_ms.saturating_sub(read_ms.load(Ordering::Relaxed)) < READS_WITHIN_MS;
    replies.load(Ordering::Relaxed) > own.load(Ordering::Relaxed) / 2
        && (client.output_bytes.load(Ordering::Relaxed) == 0 || is_recent())
}

/// The bytes that one client takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Bytes of its own, and of messages that it shares with others.
    pub own: usize,
    pub shared: usize,
    /// The part of `own` in replies that the client has asked for, and the part of `replies` in rows that long ones
    /// hold.
    pub replies: usize,
    pub rows: usize,
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
            output_bytes_max: Padded(AtomicUsize::new(OUTPUT_BYTES_MAX[0])),
            spared_ms: AtomicU64::new(0),
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
                // Tests have no budget, and nothing has no share.
                0 => return None,
                budget => (budget / 100 * (share & !PERCENT)).max(SHARE_BYTES_MIN),
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
        lower_bytes(&self.shared, bytes as u64);
    }

    /// Whether clients that were told to go are still there.
    pub fn is_closing(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) > 0
    }

    /// Sets a client's figures; called by its event loop only. How they have changed.
    #[inline]
    pub fn set(&self, client: &Arc<Client>, figures: Figures, may_be_closed: bool) -> std::cmp::Ordering {
        let (footprint, Figures { own, shared, .. }) = (&client.footprint, figures);
        let before = (footprint.own.load(Ordering::Relaxed), footprint.shared.load(Ordering::Relaxed));
        let bucket = if may_be_closed { bucket_of(own + shared) } else { NO_BUCKET };
        footprint.replies.store(figures.replies, Ordering::Relaxed);
        footprint.rows.store(figures.rows, Ordering::Relaxed);
        if before == (own, shared) && bucket == footprint.bucket.load(Ordering::Relaxed) {
            return std::cmp::Ordering::Equal;
        }
        if footprint.bucket.load(Ordering::Relaxed) == GONE {
            return std::cmp::Ordering::Equal;
        }
        footprint.own.store(own, Ordering::Relaxed);
        footprint.shared.store(shared, Ordering::Relaxed);
        let change = (own + shared).cmp(&(before.0 + before.1));
        let add = || self.held[client.worker].0.add((own as u64).wrapping_sub(before.0 as u64));
        // Whoever sees that all together take too much sees who takes it.
        if change.is_le() {
            add();
        }
        if bucket != footprint.bucket.load(Ordering::Relaxed) {
            self.move_to(client, bucket);
        }
        if change.is_gt() {
            add();
        }
        change
    }

    /// Sets how many bytes of replies may wait for a client, now that all of them take `bytes`.
    pub(crate) fn adapt(&self, bytes: u64) {
        let level = match self.bound() {
            Some(bound) if bytes > bound => 2,
            Some(bound) if bytes > bound / 4 * 3 => 1,
            _ => 0,
        };
        if self.output_bytes_max.0.load(Ordering::Relaxed) != OUTPUT_BYTES_MAX[level] {
            self.output_bytes_max.0.store(OUTPUT_BYTES_MAX[level], Ordering::Relaxed);
        }
    }

    /// Whether replies wait in fewer bytes than usual.
    #[inline]
    pub(crate) fn is_adapted(&self) -> bool {
        self.output_bytes_max.0.load(Ordering::Relaxed) != OUTPUT_BYTES_MAX[0]
    }

    #[cold]
    fn move_to(&self, client: &Arc<Client>, bucket: u8) {
        let mut buckets = lock(&self.buckets);
        let footprint = &client.footprint;
        if footprint.is_leaving() {
            // Bytes that the client is sent until it hears of its end go with it.
            let (before, now) = (footprint.leaving.load(Ordering::Relaxed), footprint.bytes());
            footprint.leaving.store(now, Ordering::Relaxed);
            self.leaving.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
            return;
        }
        let before = footprint.bucket.swap(bucket, Ordering::Relaxed);
        if let Some(of_size) = buckets.get_mut(before as usize) {
            let was_there = of_size.remove(&client.id);
            assert!(was_there.is_some(), "a client is in the bucket that it says");
        }
        if let Some(of_size) = buckets.get_mut(bucket as usize) {
            let other = of_size.insert(client.id, client.clone());
            assert!(other.is_none(), "a client is in one bucket");
        }
    }

    /// Stops counting a client that has gone, even if its connection still has something to send. Called by its event
    /// loop.
    pub fn forget(&self, client: &Arc<Client>) {
        self.set(client, Figures::default(), false);
        // The client may have been told to go since it was looked at.
        self.move_to(client, NO_BUCKET);
        client.footprint.bucket.store(GONE, Ordering::Relaxed);
    }

    /// Takes the clients with most bytes until the others, of whom all together have `all()`, are within `bound`: they
    /// are to be closed. Those with much less than `bytes_min` are left alone. So are small ones, unless it is they who
    /// have too much.
    ///
    /// Clients that read are spared: their replies wait in few bytes by now. But they may not read so slowly, all
    /// together, that a quarter more than the bound is taken: then those go that have not read for longest. Rows of
    /// long replies, which many may hold, do not count for that.
    pub(crate) fn take_worst(
        &self,
        bound: u64,
        bytes_min: usize,
        now_ms: u64,
        all: impl FnOnce() -> u64,
    ) -> Vec<Arc<Client>> {
        let mut buckets = lock(&self.buckets);
        let leaving = self.leaving.load(Ordering::Relaxed);
        let mut excess = all().saturating_sub(leaving).saturating_sub(bound);
        let small_bytes = || self.own_bytes().saturating_sub(self.leaving.load(Ordering::Relaxed));
        let first = bucket_of(bytes_min) as usize;
        let mut taken = Vec::new();
        let mut take = |of_size: &mut BTreeMap<u64, Arc<Client>>, id: u64, excess: &mut u64| {
            let Some(client) = of_size.remove(&id) else { return };
            let bytes = client.footprint.bytes();
            let before = client.footprint.bucket.swap(LEAVING, Ordering::Relaxed);
            assert!((before as usize) < BUCKETS, "a client is told to go once");
            client.footprint.leaving.store(bytes, Ordering::Relaxed);
            self.leaving.fetch_add(bytes, Ordering::Relaxed);
            *excess = excess.saturating_sub(bytes);
            taken.push(client);
        };
        let (mut spared, mut spared_bytes, mut spared_rows) = (Vec::new(), 0, 0);
        let mut left = CLOSED_AT_ONCE;
        for (bucket, of_size) in buckets.iter_mut().enumerate().skip(first).rev() {
            if bucket == 0 && small_bytes().saturating_sub(spared_bytes) <= bound {
                break;
            }
            let (reading, deaf): (Vec<&Arc<Client>>, Vec<_>) =
                of_size.values().partition(|client| reads(client, now_ms));
            for Client { id, footprint, .. } in reading.into_iter().map(|client| &**client) {
                spared.push((footprint.read_ms.load(Ordering::Relaxed), bucket, *id));
                spared_bytes += footprint.bytes();
                spared_rows += footprint.rows.load(Ordering::Relaxed) as u64;
            }
            let deaf: Vec<u64> = deaf.into_iter().map(|client| client.id).collect();
            for id in deaf {
                if excess == 0 || left == 0 {
                    break;
                }
                take(of_size, id, &mut excess);
                left -= 1;
            }
        }
        excess = excess.saturating_sub(bound / 4).saturating_sub(spared_rows);
        if excess > 0 {
            spared.sort_unstable();
            for (_, bucket, id) in spared {
                if excess == 0 || left == 0 {
                    break;
                }
                take(&mut buckets[bucket], id, &mut excess);
                left -= 1;
            }
        }
        if taken.is_empty() {
            self.spared_ms.store(now_ms, Ordering::Relaxed);
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
        lower_bytes(&self.memory.collected, self.bytes as u64);
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

    fn own(own: usize, shared: usize) -> Figures {
        Figures { own, shared, ..Figures::default() }
    }

    #[test]
    fn the_sum_follows_the_figures_of_all_loops() {
        use std::cmp::Ordering::{Equal, Greater, Less};
        let memory = memory(0);
        let (a, b) = (client(1), client(2));
        assert_eq!(memory.set(&a, own(1000, 0), true), Greater);
        assert_eq!(memory.set(&b, own(500, 70_000), true), Greater);
        assert_eq!(memory.bytes(), 1500, "what is shared is counted where it is");
        assert_eq!(memory.set(&b, own(400, 70_000), true), Less);
        assert_eq!(memory.set(&b, own(400, 70_000), true), Equal);
        memory.add_shared(70_000);
        assert_eq!(memory.bytes(), 71_400);
        memory.forget(&a);
        memory.forget(&b);
        memory.subtract_shared(70_000);
        assert_eq!(memory.bytes(), 0);
    }

    /// A connection may have something to send yet when its client has gone, whether it was told to go or not.
    #[test]
    fn clients_that_have_gone_count_no_more() {
        let memory = memory(1 << 20);
        for (id, is_told) in [(1, false), (2, true)] {
            let client = client(id);
            memory.set(&client, own(3 << 20, 0), true);
            if is_told {
                assert_eq!(memory.take_worst(1 << 20, 0, 0, || memory.bytes()).len(), 1);
            }
            memory.forget(&client);
            memory.set(&client, own(2 << 20, 0), true);
            assert_eq!((memory.bytes(), memory.is_closing()), (0, false));
            assert!(memory.take_worst(0, 0, 0, || 1 << 20).is_empty());
        }
    }

    #[test]
    fn those_with_most_are_closed_first_and_no_more_than_needed() {
        let memory = memory(1 << 20);
        let clients: Vec<_> = (1..=6).map(client).collect();
        for (client, bytes) in clients.iter().zip([100 << 10, 3 << 20, 800, 2 << 20, 400 << 10, 9 << 20]) {
            // The last one wants to be kept.
            memory.set(client, own(bytes, 0), client.id != 6);
        }
        let ids = |taken: Vec<Arc<Client>>| taken.iter().map(|client| client.id).collect::<Vec<_>>();
        let others = (5 << 20) + (500 << 10) + 800;
        assert_eq!(ids(memory.take_worst(1 << 20, 4 << 20, 0, || others)), [0_u64; 0], "none has so much");
        assert_eq!(ids(memory.take_worst(1 << 20, 0, 0, || others)), [2, 4]);
        assert!(memory.is_closing());
        assert_eq!(ids(memory.take_worst(1 << 20, 0, 0, || others)), [0_u64; 0], "they are on their way");
        // Figures of one that is on its way out do not bring it back.
        memory.set(&clients[1], own(40 << 20, 0), true);
        memory.set(&clients[3], own(1 << 20, 0), true);
        assert_eq!(memory.leaving.load(Ordering::Relaxed), 41 << 20, "one has given half of it back, one has got more");
        memory.forget(&clients[1]);
        memory.forget(&clients[3]);
        assert!(!memory.is_closing());
        assert_eq!(ids(memory.take_worst(10 << 20, 0, 0, || 99 << 20)), [5, 1], "small ones cannot help it");
        assert_eq!(ids(memory.take_worst(0, 0, 0, || 9 << 20)), [3], "the smallest, but not the one that is kept");
    }

    /// `kind` and megabytes: those that read are spared, up to a quarter above the bound.
    #[test]
    fn clients_that_read_are_closed_last() {
        const NOW_MS: u64 = 1_000_000;
        const READS: (usize, u64) = (1, NOW_MS - 10);
        const IS_DEAF: (usize, u64) = (1, NOW_MS - READS_WITHIN_MS);
        const HAS_READ_ALL: (usize, u64) = (0, 0);
        let check = |clients: &[((usize, u64), usize, usize)], all: u64, closed: &[u64]| {
            let memory = memory(0);
            let clients: Vec<_> = clients.iter().zip(1..).map(|(of, id)| (of, client(id))).collect();
            for (((unread, read_ms), megabytes, rows), client) in &clients {
                client.output_bytes.store(*unread, Ordering::Relaxed);
                client.footprint.note_read(*read_ms);
                let own = megabytes << 20;
                let figures = Figures { own, shared: 0, replies: own, rows: rows << 20 };
                memory.set(client, figures, true);
            }
            let taken = memory.take_worst(16 << 20, 0, NOW_MS, || all << 20);
            assert_eq!(taken.iter().map(|client| client.id).collect::<Vec<_>>(), closed, "of {all} MB");
        };
        check(&[(READS, 8, 0), (IS_DEAF, 1, 0), (HAS_READ_ALL, 8, 0)], 17, &[2]);
        check(&[(READS, 9, 0), (HAS_READ_ALL, 9, 0)], 18, &[]);
        const SELDOM: (usize, u64) = (1, NOW_MS - READS_WITHIN_MS / 2);
        check(&[(READS, 12, 0), (SELDOM, 10, 0), (IS_DEAF, 1, 0)], 23, &[3, 2]);
        // Small ones cannot help what large ones take.
        check(&[(READS, 18, 0), (IS_DEAF, 0, 0)], 18, &[]);
        check(&[(READS, 12, 11), (READS, 12, 11)], 24, &[]);
        // Requests are not waited for: who has sent them may never send the rest.
        let memory = memory(0);
        let queues = client(1);
        memory.set(&queues, Figures { own: 9 << 20, replies: 4 << 20, ..Figures::default() }, true);
        assert_eq!(memory.take_worst(1 << 20, 0, NOW_MS, || 9 << 20).len(), 1);
    }

    #[test]
    fn replies_wait_in_fewer_bytes_where_room_is_short() {
        let memory = memory(16 << 20);
        for (megabytes, bytes_max) in [(11, 1 << 20), (13, 256 << 10), (17, 16 << 10), (2, 1 << 20)] {
            memory.adapt(megabytes << 20);
            assert_eq!(memory.output_bytes_max.0.load(Ordering::Relaxed), bytes_max, "{megabytes} MB");
            assert_eq!(memory.is_adapted(), bytes_max < 1 << 20);
        }
    }

    #[test]
    fn a_share_is_of_the_budget_and_a_bound_is_not_too_small() {
        let config = |share| Config { maxmemory_clients: share, ..Config::defaults(Path::new("/")) };
        let budget = Arc::new(AtomicU64::new(1 << 30));
        let memory = ClientMemory::new(1, &Config::defaults(Path::new("/")), budget.clone());
        assert_eq!(memory.bound(), Some((1 << 30) / 100 * 50), "the default");
        budget.store(4 << 30, Ordering::Relaxed);
        assert_eq!(memory.bound(), Some((4 << 30) / 100 * 50));
        budget.store(40 << 20, Ordering::Relaxed);
        assert_eq!(memory.bound(), Some(SHARE_BYTES_MIN));
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
