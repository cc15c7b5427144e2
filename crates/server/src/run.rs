//! The life of a server: from its command line to its exit.
//!
//! The order matters. Steps that can fail because of the configuration come before anything is touched; the ports, the
//! data directory's lock, the unix socket and the directory are taken in this order, and before threads start; clients
//! are answered LOADING while the log is replayed. At the stop the event loops end first, then the I/O pool, then the
//! store is closed, which marks the log as clean.

use crate::archive::{self, Archiver, ToArchive};
use crate::backups::Backups;
use crate::datadir::DataDir;
use crate::listen::Listeners;
use crate::listening;
use crate::logging::{self, Logging};
use crate::mailbox::Mailbox;
use crate::metrics;
use crate::process::{self, PidFile};
use crate::raft::{Identity, Raft};
use crate::remote::Remotes;
use crate::replication::{Replication, ToMasters};
use crate::storage::{self, Budget};
use crate::tls::Tls;
use crate::{allocator, banner, event_loop, open_files};
use haypile_commands::Table;
use haypile_config::read::CommandLine;
use haypile_config::{Config, Loaded, Note, Settings};
use haypile_engine::{Engine, Master, Opener, Process};
use haypile_log::Index;
use haypile_store::{Progress, Store};
use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// The time between two log lines about the progress of the start.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a server until it is told to stop. `arguments` are those of the process, for the one that goes on in the
/// background.
///
/// # Errors
/// A text for people: why the server cannot start, or what went wrong at the stop.
pub fn server(line: &CommandLine, arguments: &[OsString]) -> Result<(), String> {
    let Loaded { settings, notes, file } =
        haypile_config::load(line, &mut std::io::stdin()).map_err(|error| error.to_string())?;
    let config = settings.config();
    let table = table(&config)?;
    if config.daemonize {
        // Nobody hears the process in the background until it has its log.
        logging::check(&config)?;
        if process::daemonize(arguments)? {
            return Ok(());
        }
    }
    allocator::keep_little()?;
    let logging = logging::start(&config)?;
    let started = start(settings, table, file, logging, &notes);
    if let Err(why) = &started
        && config.logfile.is_some()
    {
        // Standard error may not be seen.
        tracing::error!("{why}");
    }
    started
}

/// Returns the commands under the names that `rename-command` gives them.
fn table(config: &Config) -> Result<Table, String> {
    let mut table = Table::new();
    for rename in &config.renames {
        table.rename(&rename.command, &rename.to).map_err(|why| {
            haypile_config::ConfigError::at(&rename.origin, format!("rename-command: {why}")).to_string()
        })?;
    }
    Ok(table)
}

fn start(
    settings: Settings,
    table: Table,
    file: Option<std::path::PathBuf>,
    logging: Logging,
    notes: &[Note],
) -> Result<(), String> {
    process::abort_on_panic();
    open_files::make_room(&settings)?;
    let settings = Arc::new(settings);
    let config = settings.config();
    // The mode is set after the log file was made, which others may read as far as the umask of the server's caller
    // allows.
    process::set_file_mode(config.data_file_mode);
    let workers = match config.workers {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        workers => workers,
    };
    let budget = Budget::split(&config, &haypile_config::memory::detect());
    banner::starting(&config, workers, &budget);
    budget.warn(&config);
    for note in notes.iter().filter(|note| note.changed) {
        tracing::warn!("'{}' has no effect here: {} ({})", note.name, note.doc, note.origin);
    }

    let tls = Tls::start(&settings)?;
    let users = haypile_engine::users_of(&config, table.catalog())?;
    Identity::of(&config)?;
    archive::check_wanted(&config)?;
    let (listeners, data_dir) = take_places(&config)?;
    let _pid_file = PidFile::write(&config);
    let level = logging.clone();
    settings.listen(move |_, _, after| {
        level.set_level(after.loglevel);
        Ok(())
    });

    let (stop, stopped) = mpsc::unbounded_channel();
    let about = Process {
        executable: std::env::current_exe().unwrap_or_default(),
        config_file: file,
        memory_budget: Arc::new(AtomicU64::new(budget.total)),
        version: env!("CARGO_PKG_VERSION"),
        allocator: allocator::JEMALLOC,
    };
    let engine = Engine::new(settings, table, workers, about, move |how| {
        // The receiver is gone once the server stops.
        let _ = stop.send(how);
    });
    engine.set_users(users);
    metrics::start(&config, &engine, &tls)?;
    let parts = Parts::new(&engine, &tls, &config, workers)?;
    let loops = start_loops(&parts)?;

    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(|error| format!("The runtime of the accepting thread cannot start: {error}"))?;
    let ended = runtime.block_on(attend(&parts, listeners, &config, &budget, logging, stopped));
    process::tell_stopping(&config);

    for (mailbox, event_loop) in parts.mailboxes.iter().zip(loops) {
        mailbox.stop();
        // A thread that panicked has ended the process already.
        let _ = event_loop.join();
    }
    parts.close();
    let closed = match (ended?, engine.store_arc()) {
        (true, Some(store)) => store
            .close()
            .map_err(|why| format!("The data is safe as of its last sync, but the stop was not clean: {why}")),
        (true, None) => Err("The data could not be opened again.".into()),
        (false, _) => Ok(()),
    };
    drop(data_dir);
    if closed.is_ok() {
        tracing::info!("stopped cleanly");
    }
    closed
}

/// Takes the places that belong to one server alone: its sockets and its data directory.
fn take_places(config: &Config) -> Result<(Listeners, DataDir), String> {
    let mut listeners = Listeners::bind_ports(config)?;
    let lock = DataDir::lock(config)?;
    // Behind the lock: a server that has these data has its socket there. Nothing is written yet where that fails.
    listeners.bind_unix(config)?;
    Ok((listeners, DataDir::take_locked(config, lock)?))
}

/// The parts of a server that its threads share.
struct Parts {
    engine: Arc<Engine>,
    mailboxes: Arc<Vec<Arc<Mailbox>>>,
    replication: Arc<Replication>,
    raft: Arc<Raft>,
    archiver: Arc<Archiver>,
}

impl Parts {
    fn new(engine: &Arc<Engine>, tls: &Arc<Tls>, config: &Config, workers: usize) -> Result<Parts, String> {
        let mailboxes: Arc<Vec<Arc<Mailbox>>> = Arc::new((0..workers).map(|_| Arc::default()).collect());
        let replication = Replication::new(engine, tls);
        let raft = Raft::new(engine, &mailboxes, &replication, config)?;
        let archiver = Archiver::new(engine);
        Ok(Parts { engine: engine.clone(), mailboxes, replication, raft, archiver })
    }
}

impl Parts {
    /// Ends what goes on beside the event loops, which have ended.
    fn close(&self) {
        self.archiver.close();
        self.replication.close();
        self.raft.close();
        self.engine.close();
    }
}

fn start_loops(parts: &Parts) -> Result<Vec<JoinHandle<()>>, String> {
    let mut loops = Vec::new();
    for (index, mailbox) in parts.mailboxes.iter().enumerate() {
        let (engine, mailbox) = (parts.engine.clone(), mailbox.clone());
        let (replication, raft) = (parts.replication.clone(), parts.raft.clone());
        let thread = std::thread::Builder::new().name(format!("loop-{index}")).spawn(move || {
            if let Err(error) = event_loop::run(engine, index, mailbox, replication, raft) {
                tracing::error!("event loop {index} cannot start: {error}");
                std::process::exit(1);
            }
        });
        loops.push(thread.map_err(|error| format!("A thread cannot start: {error}"))?);
    }
    Ok(loops)
}

/// The main thread's part while the server runs: accepts clients, loads the store, and waits for the order to stop.
/// Returns whether the data were loaded by then.
async fn attend(
    parts: &Parts,
    mut listeners: Listeners,
    config: &Arc<Config>,
    budget: &Budget,
    logging: Logging,
    mut shutdown: mpsc::UnboundedReceiver<haypile_commands::host::Shutdown>,
) -> Result<bool, String> {
    let Parts { engine, mailboxes, replication, .. } = parts;
    let signals = |kind| signal(kind).map_err(|error| format!("Signals cannot be received: {error}"));
    let (mut terminate, mut interrupt) = (signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
    // SIGHUP ends no server, as in Redis; a rotation that sends it has its new file at once.
    let mut hangup = signals(SignalKind::hangup())?;
    tokio::task::spawn_local(async move {
        while hangup.recv().await.is_some() {
            logging.look_at_file();
        }
    });
    let names = listeners.names();
    let orders = listening::start(&mut listeners, &engine.settings)?;
    tokio::task::spawn_local(orders.carry_out(engine.clone(), mailboxes.clone(), replication.tls.clone()));
    let mut stop = async || {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
            _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
            Some(_) = shutdown.recv() => tracing::info!("SHUTDOWN: stopping"),
        }
    };
    let loaded = tokio::select! {
        loaded = load(engine, config, budget)? => loaded.unwrap_or_else(|_| Err("The thread that loads the data has ended.".into()))?,
        // The records that are being replayed are in the log: the next start begins again.
        () = stop() => return Ok(false),
    };
    serve(parts, loaded)?;
    process::tell_ready(config);
    tracing::info!("ready to accept connections on {}", names.join(", "));
    stop().await;
    Ok(true)
}

/// Opens the store on a thread of its own.
fn load(
    engine: &Arc<Engine>,
    config: &Arc<Config>,
    budget: &Budget,
) -> Result<oneshot::Receiver<Result<Arc<Store>, String>>, String> {
    let (done, loading) = oneshot::channel();
    let (engine, config, budget) = (engine.clone(), config.clone(), *budget);
    let load = move || {
        let started = Instant::now();
        let mut last = started;
        let follows = config.replication.replicaof.is_some();
        let opened = storage::open(&config, &budget, follows, |progress| {
            note(&engine, progress);
            let Progress { done_bytes, total_bytes } = progress;
            if last.elapsed() >= PROGRESS_INTERVAL {
                last = Instant::now();
                tracing::info!("loading: {} of {} MB of the log replayed", done_bytes >> 20, total_bytes >> 20);
            }
        });
        if let Ok(store) = &opened {
            let (seconds, replayed) =
                (started.elapsed().as_secs_f64(), engine.loading.bytes_done.load(Ordering::Relaxed));
            tracing::info!("data loaded in {seconds:.3} seconds, {:.1} MB of the log replayed", replayed as f64 / 1e6);
            archive::clock::compare(store.log());
        }
        // The main thread has gone if the server was told to stop meanwhile.
        let _ = done.send(opened);
    };
    std::thread::Builder::new()
        .name("load".into())
        .spawn(load)
        .map_err(|error| format!("A thread cannot start: {error}"))?;
    Ok(loading)
}

/// Begins to serve the loaded data.
fn serve(parts: &Parts, store: Arc<Store>) -> Result<(), String> {
    let Parts { engine, mailboxes, replication, raft, archiver } = parts;
    storage::follow(engine);
    storage::apply_all(engine, &store);
    wake_by(&store, mailboxes);
    archiver.attach(&store);
    replication.restore_backlog(&store);
    watch(&store, replication, raft);
    engine.keep_backups(Box::new(Backups::new(engine.settings.clone())));
    let (mailboxes, of_replication) = (mailboxes.clone(), Arc::downgrade(replication));
    let reopen = Reopen {
        engine: Arc::downgrade(engine),
        mailboxes,
        replication: of_replication.clone(),
        raft: Arc::downgrade(raft),
        archiver: Arc::downgrade(archiver),
    };
    engine.reopen_with(Box::new(reopen));
    engine.reach_targets(Box::new(Remotes { tls: replication.tls.clone(), settings: engine.settings.clone() }));
    engine.archiving.set(Box::new(ToArchive(Arc::downgrade(archiver))));
    engine.replicate_by(Box::new(ToMasters(of_replication)));
    // Before clients are served: no moment is a master's.
    if let Some((host, port)) = engine.settings.config().replication.replicaof.clone() {
        engine.set_master(Some(Master { host, port }));
    }
    engine.serve(store).map_err(|error| format!("The I/O pool cannot start: {error}"))?;
    replication.keep_backlog();
    archiver.start().map_err(|error| format!("The threads of the archive cannot start: {error}"))?;
    if raft.is_member() {
        return raft.start().map_err(|error| format!("The threads of the Raft group cannot start: {error}"));
    }
    replication.start().map_err(|error| format!("The thread of replication cannot start: {error}"))
}

/// Has those who send a log's records told of its progress.
fn watch(store: &Store, replication: &Arc<Replication>, raft: &Arc<Raft>) {
    if raft.is_member() {
        raft.watch(store);
    } else {
        replication.watch(store);
    }
}

/// Makes the store's log wake the event loops.
fn wake_by(store: &Store, mailboxes: &Arc<Vec<Arc<Mailbox>>>) {
    let mailboxes = mailboxes.clone();
    store.log().on_durable(Arc::new(move || mailboxes.iter().for_each(|mailbox| mailbox.on_durable())));
}

/// Opens the data again, for DEBUG RELOAD.
struct Reopen {
    engine: Weak<Engine>,
    mailboxes: Arc<Vec<Arc<Mailbox>>>,
    replication: Weak<Replication>,
    raft: Weak<Raft>,
    archiver: Weak<Archiver>,
}

impl Opener for Reopen {
    fn open(&self, follows: bool) -> Result<Arc<Store>, String> {
        self.open_through(follows, None)
    }

    fn open_group(&self, keep: Index) -> Result<Arc<Store>, String> {
        self.open_through(true, Some(keep))
    }

    fn opened(&self, store: &Store) {
        if let Some(engine) = self.engine.upgrade() {
            storage::apply_all(&engine, store);
        }
        // Replies may have waited for the log while there was none.
        self.mailboxes.iter().for_each(|mailbox| mailbox.on_durable());
    }
}

impl Reopen {
    fn open_through(&self, follows: bool, keep: Option<Index>) -> Result<Arc<Store>, String> {
        let engine = self.engine.upgrade().ok_or("the server has ended")?;
        let config = engine.settings.config();
        let budget = Budget::split(&config, &haypile_config::memory::detect());
        let store = storage::open_through(&config, &budget, follows, keep, |progress| note(&engine, progress))?;
        wake_by(&store, &self.mailboxes);
        if let Some(archiver) = self.archiver.upgrade() {
            archiver.attach(&store);
            // The archiver holds what it needs, and nobody else has asked for more.
            drop(store.log().take_kept());
        }
        if let (Some(replication), Some(raft)) = (self.replication.upgrade(), self.raft.upgrade()) {
            watch(&store, &replication, &raft);
        }
        Ok(store)
    }
}

/// Notes how far the data are loaded.
fn note(engine: &Engine, Progress { done_bytes, total_bytes }: Progress) {
    engine.loading.bytes_done.store(done_bytes, Ordering::Relaxed);
    engine.loading.bytes_total.store(total_bytes, Ordering::Relaxed);
}
