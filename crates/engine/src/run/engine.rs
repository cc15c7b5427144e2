//! `Engine`: what all event loops and the I/O pool share. It is put together above this floor. Owns the store from the
//! moment it is loaded, the locks, the command table, the settings and the numbers; runs no command itself (`execute`,
//! `work`, `pool` do).

use crate::clients::accounts::Accounts;
use crate::clients::blocked::Blocked;
use crate::clients::checks::Checks;
use crate::clients::client::Client;
use crate::clients::client::Clients;
use crate::clients::client_memory::{ClientMemory, RESERVED_BYTES_MIN};
use crate::clients::inbox::{Inbox, Notice, Order};
use crate::clients::pubsub::PubSub;
use crate::clients::session::State;
use crate::clients::statistics::counters::{Count, Counters};
use crate::clients::statistics::{Moment, Statistics};
use crate::clients::tracking::table::Tracking;
use crate::keys::exclusion::Exclusion;
use crate::keys::gate::StoreGate;
use crate::keys::locks::Locks;
use crate::keys::waiters::End;
use crate::keys::waiters::Waiters;
use crate::keys::watch::Watches;
use crate::run::archive::Archiving;
use crate::run::backups::Backups;
use crate::run::compactions::Compactions;
use crate::run::figures::Figures;
use crate::run::group::Group;
use crate::run::http;
use crate::run::memory::{Allocator, MemoryMarks};
use crate::run::migrate::Targets;
use crate::run::pool::Pool;
use crate::run::reload::Opener;
use crate::run::replication::facts::Replication;
use crate::run::room::ReplyRoom;
use crate::run::scripts::cache::Scripts;
use arc_swap::{ArcSwapOption, Guard};
use haypile_commands::host::{CommandTimes, InfoSection, Shutdown};
use haypile_commands::{CommandId, Error, Table};
use haypile_config::{Changed, Settings};
use haypile_resp::{Limits, Reply};
use haypile_store::{Lookups, Store, Txn};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The facts about the process that the engine is part of. For INFO only.
#[derive(Clone, Debug)]
pub struct Process {
    pub executable: PathBuf,
    pub config_file: Option<PathBuf>,
    /// The budget in bytes that the store has its shares of; CONFIG SET may change it.
    pub memory_budget: Arc<AtomicU64>,
    pub version: &'static str,
    pub allocator: Allocator,
}

/// The figures that are measured over the last samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rate {
    Commands = 0,
    Input = 1,
    Output = 2,
    Rounds = 3,
    RoundNs = 4,
}

/// The number of rates.
const RATES: usize = 5;

/// The latest samples of what the rates are made from, each with its time: `instantaneous_ops_per_sec`.
#[derive(Default)]
pub(crate) struct Samples {
    taken: [Option<(Instant, [u64; RATES])>; SAMPLES],
    next: usize,
}

/// Samples in the average, as in Redis.
const SAMPLES: usize = 16;

/// How far the store has been loaded.
#[derive(Default)]
pub struct Loading {
    pub bytes_done: AtomicU64,
    pub bytes_total: AtomicU64,
}

/// The error reply for commands on keys while no store is open.
pub(crate) const LOADING: &str = "LOADING Redis is loading the dataset in memory";

/// The store, as long as this lives: for a turn or a command, not for longer.
pub struct StoreRef(Guard<Option<Arc<Store>>>);

impl Deref for StoreRef {
    type Target = Store;

    #[inline]
    fn deref(&self) -> &Store {
        self.0.as_deref().expect("it was looked at when this was made")
    }
}

/// The pages of INFO as functions, because `info` lies above this floor.
pub(crate) struct Pages {
    pub sections: &'static [InfoSection],
    pub write: fn(&Engine, Option<&Txn<'_>>, &str, &mut String),
    pub command_times: fn(&Engine, CommandId) -> Option<CommandTimes>,
}

/// The part of a server that all its threads share.
pub struct Engine {
    /// The pages of INFO.
    pub(crate) pages: Pages,
    pub settings: Arc<Settings>,
    pub process: Process,
    pub loading: Loading,
    pub(crate) table: Table,
    pub(crate) databases: u32,
    pub(crate) locks: Locks,
    pub(crate) exclusion: Exclusion,
    pub(crate) watches: Arc<Watches>,
    pub(crate) tracking: Arc<Tracking>,
    pub(crate) waiters: Waiters,
    pub(crate) clients: Clients,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) client_memory: Arc<ClientMemory>,
    pub(crate) pubsub: PubSub,
    pub(crate) checks: Checks,
    pub(crate) http_warned: http::Warned,
    pub(crate) pool: Pool,
    pub(crate) blocked: Arc<Blocked>,
    pub(crate) backups: Backups,
    pub archiving: Archiving,
    pub(crate) compactions: Compactions,
    pub(crate) scripts: Scripts,
    pub replication: Replication,
    pub group: Group,
    pub(crate) statistics: Arc<Statistics>,
    /// Whether expired keys are removed although nobody asks for them: DEBUG SET-ACTIVE-EXPIRE.
    pub(crate) active_expire: AtomicBool,
    pub(crate) memory_marks: MemoryMarks,
    pub(crate) started: Instant,
    /// Names this run of the process: 40 hex digits.
    pub(crate) run_id: String,
    /// Sessions that are connected now.
    pub(crate) sessions: Count,
    pub(crate) expired_keys: Count,
    /// Fields of hashes that were removed after their deadlines.
    pub(crate) expired_fields: Count,
    /// The time that removing expired keys took.
    pub(crate) expire_ns: Count,
    pub(crate) figures: Figures,
    /// Lookups of what took the long way, by any thread.
    pub(crate) keyspace_hits: Count,
    pub(crate) keyspace_misses: Count,
    pub(crate) samples: Mutex<Samples>,
    /// A job that looks for expired keys in the base is queued or runs.
    pub(crate) expiring_in_base: AtomicBool,
    pub(crate) store: ArcSwapOption<Store>,
    /// Rises whenever the store is taken away or exchanged.
    pub(crate) store_version: AtomicU64,
    /// The room that commands ask for before they collect long replies.
    pub(crate) room: OnceLock<Arc<ReplyRoom>>,
    pub(crate) opener: OnceLock<Box<dyn Opener>>,
    pub(crate) targets: OnceLock<Box<dyn Targets>>,
    pub(crate) counters: Box<[Counters]>,
    /// The inbox of each event loop, which is there from the moment when the event loop is made.
    pub(crate) inboxes: Box<[OnceLock<Arc<Inbox>>]>,
    /// Clients in MONITOR, by event loop.
    pub(crate) monitors: Box<[Count]>,
    /// The classes of `notify-keyspace-events`.
    pub(crate) events: Arc<AtomicU32>,
    pub(crate) last_session: AtomicU64,
    pub(crate) stop: Box<dyn Fn(Shutdown) + Send + Sync>,
}

impl Engine {
    /// The name of this run of the process: 40 hex digits.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The sessions whose replies are held back.
    pub fn blocked(&self) -> &Blocked {
        &self.blocked
    }

    /// The store, once it is loaded and unless it is being opened again.
    #[inline]
    pub fn store(&self) -> Option<StoreRef> {
        let guard = self.store.load();
        guard.is_some().then_some(StoreRef(guard))
    }

    /// Returns the store for a caller that keeps it.
    pub fn store_arc(&self) -> Option<Arc<Store>> {
        self.store.load_full()
    }

    /// Changes with the store. Who runs on keys looks at it when it is inside the exclusion, which keeps it from
    /// changing.
    #[inline]
    pub fn store_version(&self) -> u64 {
        self.store_version.load(Ordering::Acquire)
    }

    /// Puts a store in place.
    pub(crate) fn attach(&self, store: Arc<Store>) {
        let blocked = self.blocked.clone();
        store.log().on_durable(Arc::new(move || blocked.on_sync()));
        if let Some(room) = self.room.get() {
            store.set_room(room.clone());
        }
        self.ask_replicas(&store, &self.settings.config());
        store.set_lacks_replicas(self.lacks_replicas());
        store.set_hands_over(self.replication.state().failover.stops_writes);
        self.settle_origin(&store);
        self.store.store(Some(store));
        self.store_version.fetch_add(1, Ordering::AcqRel);
        self.refuse_writes_of_replica();
        // The master may have been another one, or none, when that was looked at before.
        self.look_at_replicas();
        // The store may have other data than the one before.
        self.invalidate_all(StoreGate::default());
        // Sessions whose replies are held back may have looked while there was no store.
        self.blocked.look_again();
    }

    /// Takes the store away.
    pub(crate) fn detach(&self) {
        if let Some(store) = self.store() {
            self.note_unconfirmed(&store);
        }
        self.store.store(None);
        self.store_version.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of event loops. The place behind the last of them is that of the thread which repeats a
    /// master's commands.
    pub fn workers(&self) -> usize {
        self.counters.len() - 1
    }

    /// The numbers of event loop `index`.
    #[inline]
    pub fn counters(&self, index: usize) -> &Counters {
        &self.counters[index]
    }

    /// The inbox of an event loop, once that has begun.
    pub(crate) fn inbox(&self, worker: usize) -> Option<&Arc<Inbox>> {
        self.inboxes[worker].get()
    }

    pub(crate) fn add_inbox(&self, index: usize, inbox: Arc<Inbox>) {
        let is_first = self.inboxes[index].set(inbox).is_ok();
        assert!(is_first, "an event loop is made once");
    }

    /// Has an event loop carry out an order for a client of its own.
    pub(crate) fn order(&self, worker: usize, order: Order) {
        if let Some(inbox) = self.inboxes[worker].get() {
            inbox.order(order);
        }
    }

    /// Tells an event loop something.
    pub(crate) fn notify(&self, worker: usize, notice: Notice) {
        if let Some(inbox) = self.inboxes[worker].get()
            && inbox.notify(notice) > self.congested_bytes()
        {
            self.checks.set_congested(true);
        }
    }

    /// Whether some event loop has more to take than it should, or clients are to make room for so many bytes first.
    /// Only who is told so by the bit asks, because it may be set too late: after the inbox was left, and emptied.
    pub(crate) fn is_congested(&self, bytes: usize) -> bool {
        let bytes_max = self.congested_bytes();
        let are_full = self.inboxes.iter().filter_map(OnceLock::get).any(|inbox| inbox.weight() > bytes_max);
        let lack_room = self.waits_for_room();
        if !are_full && !lack_room {
            self.checks.set_congested(false);
        }
        are_full || lack_room && bytes >= RESERVED_BYTES_MIN
    }

    /// Bytes that are on their way to event loops, but for messages that clients share.
    pub(crate) fn inbox_bytes(&self) -> u64 {
        self.inboxes.iter().filter_map(OnceLock::get).map(|inbox| inbox.bytes()).sum()
    }

    /// Clients of an event loop that are shown all commands.
    pub(crate) fn monitors_of(&self, worker: usize) -> u64 {
        self.monitors[worker].get()
    }

    pub(crate) fn set_monitor(&self, worker: usize, on: bool) {
        match on {
            true => {
                self.monitors[worker].add_shared(1);
                self.checks.add_monitor();
            }
            false => {
                self.monitors[worker].subtract_shared(1);
                self.checks.remove_monitor();
            }
        }
    }

    /// The classes of events that `notify-keyspace-events` asks for.
    #[inline]
    pub(crate) fn own_events(&self) -> u32 {
        self.events.load(Ordering::Relaxed)
    }

    /// The classes of events that somebody is told of: clients, or replicas.
    #[inline]
    pub(crate) fn events(&self) -> u32 {
        self.own_events() | self.replication.listeners.classes()
    }

    pub(crate) fn all_counters(&self) -> &[Counters] {
        &self.counters
    }

    /// Sets back what CONFIG RESETSTAT resets. A number that an event loop is changing at this moment may keep its
    /// value.
    pub(crate) fn reset_statistics(&self) {
        self.counters.iter().for_each(Counters::reset);
        self.statistics.errors.reset();
        self.accounts.reset_counts();
        [&self.expired_keys, &self.expired_fields, &self.expire_ns, &self.keyspace_hits, &self.keyspace_misses]
            .into_iter()
            .for_each(Count::reset);
        self.scripts.evicted.reset();
        let resyncs = &self.replication.resyncs;
        [&resyncs.full, &resyncs.partial, &resyncs.refused].into_iter().for_each(Count::reset);
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.taken.fill(None);
    }

    pub(crate) fn add_lookups(&self, lookups: Lookups) {
        self.keyspace_hits.add_shared(lookups.hits);
        self.keyspace_misses.add_shared(lookups.misses);
    }

    /// Sessions that are connected now.
    pub fn connected(&self) -> u64 {
        self.sessions.get()
    }

    /// Takes a place among `maxclients`, if there is one; it is given back when the session is disconnected.
    pub fn admit(&self) -> bool {
        self.sessions.add_shared(1);
        if self.sessions.get() > u64::from(self.settings.config().maxclients) {
            self.sessions.subtract_shared(1);
            return false;
        }
        true
    }

    /// Gives the place back: the client has gone.
    pub fn on_disconnect(&self) {
        self.sessions.subtract_shared(1);
    }

    /// The state of a client that has just come.
    pub(crate) fn fresh_state(&self) -> State {
        let user = self.accounts.default_user();
        let authenticated = user.is_open();
        let seat = authenticated.then(|| self.accounts.seat(&user, None)).flatten();
        State { authenticated, user, seat, ..State::default() }
    }

    /// Closes a client of any event loop, soon. Nobody finds it any more from now on, whatever it waits for still.
    pub(crate) fn close_client(&self, client: &Client) {
        self.clients.remove(client.id);
        match &client.peer_server {
            Some(server) => (server.end)(),
            None => {
                self.end_wait(client.id, End::Gone);
                self.order(client.worker, Order::Close(client.id));
            }
        }
    }

    pub(crate) fn next_session(&self) -> u64 {
        self.last_session.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn commands_processed(&self) -> u64 {
        self.counters.iter().map(|counters| counters.commands.get()).sum()
    }

    /// Notes how many commands have run: to be called about ten times a second.
    pub fn sample(&self) {
        let now = (Instant::now(), self.samples_now());
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let next = samples.next;
        samples.taken[next] = Some(now);
        samples.next = (next + 1) % SAMPLES;
    }

    /// Returns what is sampled now for each `Rate`.
    fn samples_now(&self) -> [u64; RATES] {
        let sum = |count: fn(&Counters) -> &Count| self.counters.iter().map(|loop_| count(loop_).get()).sum();
        [
            sum(|loop_| &loop_.commands),
            sum(|loop_| &loop_.input_bytes),
            sum(|loop_| &loop_.output_bytes),
            sum(|loop_| &loop_.rounds.count),
            sum(|loop_| &loop_.rounds.ns),
        ]
    }

    /// The store's figures: section, name, value. Those of the base are as of the last look.
    pub(crate) fn figures(&self) -> Vec<(&'static str, &'static str, u64)> {
        let Some(store) = self.store() else { return Vec::new() };
        let mut figures = store.own_figures();
        figures.extend(self.figures.of_base().into_iter().map(|(name, value)| ("rocksdb", name, value)));
        figures
    }

    /// Bytes of the base on disk, as of the last look.
    pub(crate) fn base_disk_bytes(&self) -> u64 {
        self.figures.disk_bytes()
    }

    /// Returns a rate over the last samples.
    pub(crate) fn per_second(&self, rate: Rate) -> u64 {
        let Some((since, grown)) = self.grown() else { return 0 };
        let grown = u128::from(grown[rate as usize]);
        grown.saturating_mul(1000).checked_div(since.as_millis()).map_or(0, |rate| rate as u64)
    }

    /// Nanoseconds that a round of an event loop takes on average, over the last samples.
    pub(crate) fn round_ns(&self) -> u64 {
        let grown = self.grown().map_or([0; RATES], |(_, grown)| grown);
        grown[Rate::RoundNs as usize].checked_div(grown[Rate::Rounds as usize]).unwrap_or(0)
    }

    /// Returns the age of the oldest sample, and what has been counted since, by `Rate`.
    fn grown(&self) -> Option<(Duration, [u64; RATES])> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, before) = (0..SAMPLES).find_map(|back| samples.taken[(samples.next + back) % SAMPLES])?;
        let now = self.samples_now();
        Some((since.elapsed(), std::array::from_fn(|rate| now[rate].saturating_sub(before[rate]))))
    }

    /// Event loop `index` has woken up.
    pub fn begin_round(&self, index: usize) {
        self.counters[index].rounds.begin(&self.statistics.clock);
    }

    /// Event loop `index` goes to sleep.
    pub fn rest(&self, index: usize) {
        self.counters[index].rounds.rest(&self.statistics.clock);
    }

    /// A round of event loop `index` has ended: its replies have left.
    pub fn end_round(&self, index: usize) {
        let counters = &self.counters[index];
        counters.rounds.end(&self.statistics.clock, counters.commands.get());
    }

    /// A moment, for `note_event`.
    #[inline]
    pub fn moment(&self) -> Moment {
        self.statistics.clock.now()
    }

    /// Keeps an event that began at `since` and has ended for LATENCY, if it took long.
    #[inline]
    pub fn note_event(&self, name: &'static str, since: Moment) {
        let clock = &self.statistics.clock;
        self.statistics.event(name, clock.ns(since, clock.now()));
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }

    pub(crate) fn random_seed(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }

    /// Returns the version of the settings and the bounds of a request that they set.
    pub(crate) fn limits(&self) -> (u64, Limits) {
        // In this order: settings that change in between are seen by the next look at the version.
        let version = self.settings.version();
        let config = self.settings.config();
        let limits = Limits {
            bulk_bytes_max: config.proto_bulk_bytes_max,
            request_bytes_max: u32::try_from(config.client_query_buffer_bytes_max).unwrap_or(u32::MAX),
            ..Limits::default()
        };
        (version, limits)
    }

    pub(crate) fn loading_error(&self) -> Reply {
        Reply::error(LOADING)
    }

    pub(crate) fn request_shutdown(&self, how: Shutdown) -> Result<(), Error> {
        (self.stop)(how);
        Ok(())
    }

    /// Tells the log what CONFIG SET has changed.
    pub(crate) fn log_changes(&self, changed: &[Changed]) {
        for change in changed {
            let value = if change.sensitive { "(hidden)".into() } else { String::from_utf8_lossy(&change.value) };
            tracing::info!("CONFIG SET {} {value}", change.name);
        }
    }
}
