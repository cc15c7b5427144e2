//! The engine, put together from its floors: keys, clients, what runs, and INFO, which looks at all of them.

use crate::clients::accounts::Accounts;
use crate::clients::checks::Checks;
use crate::clients::client::Clients;
use crate::clients::client_memory::ClientMemory;
use crate::clients::pubsub::PubSub;
use crate::clients::statistics::Statistics;
use crate::clients::statistics::counters::{Count, Counters};
use crate::clients::tracking::table::Tracking;
use crate::keys::exclusion::Exclusion;
use crate::keys::locks::Locks;
use crate::keys::waiters::Waiters;
use crate::run::backups::Backups;
use crate::run::compactions::Compactions;
use crate::run::figures::Figures;
use crate::run::group::Group;
use crate::run::http;
use crate::run::memory::MemoryMarks;
use crate::run::pool::Pool;
use crate::run::replication::facts::Replication;
use crate::run::room::ReplyRoom;
use crate::run::scripts::cache::Scripts;
use arc_swap::ArcSwapOption;
use haypile_commands::Table;
use haypile_commands::host::Shutdown;
use haypile_config::{Config, Settings};
use haypile_store::Store;
use haypile_types::event;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use crate::info;
use crate::run::engine::{Engine, Loading, Pages, Process};

const PAGES: Pages = Pages { sections: info::SECTIONS, write: info::write, command_times: info::commands::times };

impl Engine {
    /// An engine for `workers` event loops, without a store yet: commands on data are answered with LOADING. `stop` is
    /// called by SHUTDOWN, from an event loop, and returns at once.
    pub fn new(
        settings: Arc<Settings>,
        table: Table,
        workers: usize,
        process: Process,
        stop: impl Fn(Shutdown) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let databases = settings.config().databases;
        let statistics = Statistics::new(&settings);
        let accounts = Accounts::new(table.catalog().clone(), &settings);
        // One more than there are event loops, for the thread that repeats a master's commands.
        let places = workers + 1;
        let counters = (0..places).map(|_| Counters::new(table.ids())).collect();
        let events = Arc::new(AtomicU32::new(event::classes(&settings.config().keyspace_events)));
        let events_of_settings = events.clone();
        follow(&settings, move |config| {
            events_of_settings.store(event::classes(&config.keyspace_events), Ordering::Relaxed);
        });
        let client_memory = ClientMemory::new(places, &settings.config(), process.memory_budget.clone());
        let client_memory = Arc::new(client_memory);
        let memory_of_settings = client_memory.clone();
        follow(&settings, move |config| memory_of_settings.configure(config));
        let tracking = Arc::new(Tracking::new(client_memory.clone(), &settings.config()));
        let tracking_of_settings = tracking.clone();
        follow(&settings, move |config| tracking_of_settings.configure(config));
        let seeds = RandomState::new();
        let run_id = (0..5u64).map(|part| format!("{:08x}", seeds.hash_one(part) as u32)).collect();
        Arc::new(Engine {
            pages: PAGES,
            settings,
            process,
            loading: Loading::default(),
            table,
            databases,
            locks: Locks::default(),
            exclusion: Exclusion::new(places),
            watches: Arc::default(),
            tracking,
            waiters: Waiters::default(),
            clients: Clients::default(),
            accounts,
            client_memory,
            pubsub: PubSub::default(),
            checks: Checks::default(),
            http_warned: http::Warned::default(),
            pool: Pool::default(),
            blocked: Arc::default(),
            backups: Backups::new(),
            archiving: crate::run::archive::Archiving::default(),
            compactions: Compactions::default(),
            scripts: Scripts::default(),
            replication: Replication::default(),
            group: Group::default(),
            statistics,
            active_expire: AtomicBool::new(true),
            memory_marks: MemoryMarks::default(),
            started: Instant::now(),
            run_id,
            sessions: Count::default(),
            expired_keys: Count::default(),
            expired_fields: Count::default(),
            expire_ns: Count::default(),
            figures: Figures::default(),
            keyspace_hits: Count::default(),
            keyspace_misses: Count::default(),
            samples: Mutex::default(),
            expiring_in_base: AtomicBool::new(false),
            store: ArcSwapOption::empty(),
            store_version: AtomicU64::new(0),
            room: OnceLock::new(),
            opener: OnceLock::new(),
            targets: OnceLock::new(),
            counters,
            inboxes: (0..places).map(|_| OnceLock::new()).collect(),
            monitors: (0..places).map(|_| Count::default()).collect(),
            events,
            last_session: AtomicU64::new(0),
            stop: Box::new(stop),
        })
    }

    /// Begins to serve data: hands over the loaded store, and starts the I/O pool.
    ///
    /// # Errors
    /// A thread of the pool cannot be started.
    pub fn serve(self: &Arc<Self>, store: Arc<Store>) -> std::io::Result<()> {
        Pool::start(self, self.settings.config().io_pool)?;
        self.note_memory();
        self.room.get_or_init(|| Arc::new(ReplyRoom::new(self)));
        self.attach(store);
        self.figures.start(self)?;
        self.start_backups()
    }

    /// Ends the I/O pool's threads, commands that run there without effect, and a backup that is being made; event
    /// loops have ended before. The store is still open afterwards.
    pub fn close(&self) {
        self.figures.close();
        self.backups.close();
        // Keys that were sent to another server are waited for, so that they are not in two places.
        self.pool.close_movers();
        if let Some(store) = self.store() {
            store.stop_commands();
        }
        self.pool.close();
    }

    /// /metrics: everything that is counted, as Prometheus reads it.
    pub fn metrics(&self) -> String {
        crate::info::metrics::page(self)
    }
}

/// Has a part of the engine take over each configuration to come.
fn follow(settings: &Settings, configure: impl Fn(&Config) + Send + Sync + 'static) {
    settings.listen(move |_, _, next| {
        configure(next);
        Ok(())
    });
}
