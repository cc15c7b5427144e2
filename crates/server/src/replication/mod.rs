//! Replication's threads and sockets: one thread that follows a master, and some for each replica.
//!
//! A replica connects as any client does and asks with REPLCONF; from there on its connection belongs to threads here,
//! which may wait, and speaks frames (`haypile_replication::frame`). What either side decides is in that crate; what a
//! record does is the store's.

mod copies;
mod feed;
mod fetch;
mod link;
mod progress;
mod tail;
mod wire;

use crate::replication::copies::Copies;
use crate::replication::feed::Feed;
use crate::replication::progress::Progress;
use haypile_engine::{Engine, Master, Replicator};
use haypile_log::{DirectoryId, FORMAT_VERSION, Hold};
use haypile_replication::{Hello, PROTOCOL_VERSION, Token};
use haypile_store::Store;
use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// See the file's head.
pub struct Replication {
    engine: Arc<Engine>,
    /// The name of this process among those that follow each other.
    node: Token,
    progress: Progress,
    copies: Copies,
    state: Mutex<State>,
    changed: Condvar,
    closing: AtomicBool,
    last_number: AtomicU64,
}

#[derive(Default)]
struct State {
    master: Option<Master>,
    /// Rises with each change of the master.
    version: u64,
    /// Connections to the master, each by its number.
    streams: BTreeMap<u64, TcpStream>,
    /// The nodes that the master's records come from.
    upstream_nodes: Vec<Token>,
    /// Connections of replicas, each with its thread.
    feeds: Vec<(TcpStream, JoinHandle<()>)>,
    link: Option<JoinHandle<()>>,
}

impl Replication {
    /// Makes it for an engine that does not serve yet.
    pub fn new(engine: &Arc<Engine>) -> Arc<Replication> {
        Arc::new(Replication {
            engine: engine.clone(),
            node: Token(DirectoryId::random().0),
            progress: Progress::default(),
            copies: Copies::new(engine.settings.clone()),
            state: Mutex::default(),
            changed: Condvar::new(),
            closing: AtomicBool::new(false),
            last_number: AtomicU64::new(0),
        })
    }

    /// Begins to follow the configured master, if there is one.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(self: &Arc<Self>) -> io::Result<()> {
        let replication = self.clone();
        let thread = std::thread::Builder::new().name("replica".into()).spawn(move || link::run(&replication))?;
        self.state().link = Some(thread);
        Ok(())
    }

    /// Notes the progress of a store's log for those who send it.
    pub fn watch(self: &Arc<Self>, store: &Store) {
        let replication = Arc::downgrade(self);
        store.log().on_durable(Arc::new(move || {
            if let Some(replication) = replication.upgrade() {
                replication.progress.note();
            }
        }));
    }

    /// Serves a replica's connection, whose request has these words; `read` has come behind them.
    pub fn serve(self: &Arc<Self>, stream: TcpStream, words: Vec<Vec<u8>>, read: Vec<u8>) {
        let serve = || -> io::Result<()> {
            stream.set_nonblocking(false)?;
            let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
            let host = stream.peer_addr()?.ip().to_canonical().to_string();
            let kept = stream.try_clone()?;
            let feed = Feed { replication: self.clone(), number, stream, read, host };
            let name = format!("feed-{number}");
            let thread = std::thread::Builder::new().name(name).spawn(move || feed.run(&words))?;
            let mut state = self.state();
            state.feeds.retain(|(_, thread)| !thread.is_finished());
            state.feeds.push((kept, thread));
            Ok(())
        };
        if let Err(error) = serve() {
            tracing::warn!("a replica cannot be served: {error}");
        }
    }

    /// Ends all connections and threads. The event loops have ended.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        let (link, feeds) = {
            let mut state = self.state();
            self.changed.notify_all();
            state.end_streams();
            (state.link.take(), std::mem::take(&mut state.feeds))
        };
        self.progress.note();
        for (stream, _) in &feeds {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // A thread that panicked has said so already.
        feeds.into_iter().map(|(_, thread)| thread).chain(link).for_each(|thread| _ = thread.join());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn engine_is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Returns a number that changes with the store.
    fn version(&self) -> u64 {
        self.engine.store_version()
    }

    /// Whether the store is still the one of this version.
    fn goes_on(&self, version: u64) -> bool {
        !self.engine_is_closing() && self.version() == version
    }

    /// Removes copies that are of no use any more: to be called about once a second.
    fn tidy(&self) {
        if let Some(store) = self.engine.store() {
            self.copies.tidy(|hold| self.keeps_too_much(&store, hold).is_some());
        }
    }

    /// Says how far a replica is behind, where more of the log is kept for it than may be.
    fn keeps_too_much(&self, store: &Store, hold: &Mutex<Hold>) -> Option<String> {
        let kept = hold.lock().unwrap_or_else(PoisonError::into_inner).kept_bytes();
        if kept == 0 {
            return None;
        }
        let most = self.engine.settings.config().replication.log_bytes;
        if most > 0 && kept > most {
            return Some(format!("{kept} bytes of the log behind, more than replica-log-size"));
        }
        let (free, keep_free) = store.disk_room();
        let is_short = free.is_some_and(|free| free < 2 * keep_free);
        is_short.then(|| format!("{kept} bytes of the log behind, and the disk is nearly full"))
    }

    /// The silence after which a connection is given up.
    fn timeout(&self) -> Duration {
        Duration::from_secs(u64::from(self.engine.settings.config().replication.timeout_s))
    }

    /// Returns the master to follow, and a number that rises when it changes.
    fn wanted(&self) -> (Option<Master>, u64) {
        let state = self.state();
        (state.master.clone(), state.version)
    }

    fn is_wanted(&self, version: u64) -> bool {
        !self.engine_is_closing() && self.state().version == version
    }

    /// Waits for another master, or for the end.
    fn wait_for_change(&self, version: u64, time: Duration) {
        let same = |state: &mut State| state.version == version && !self.engine_is_closing();
        let state = self.state();
        drop(self.changed.wait_timeout_while(state, time, same).unwrap_or_else(PoisonError::into_inner));
    }

    /// Has a connection end when the master is another one.
    ///
    /// # Errors
    /// It is another one already.
    fn register(&self, version: u64, stream: TcpStream) -> io::Result<Registered<'_>> {
        let mut state = self.state();
        if state.version != version || self.engine_is_closing() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the master is another one by now"));
        }
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        state.streams.insert(number, stream);
        Ok(Registered(self, number))
    }

    fn set_upstream_nodes(&self, nodes: Vec<Token>) {
        self.state().upstream_nodes = nodes;
    }
}

impl State {
    /// Has threads go on that wait for the master.
    fn end_streams(&self) {
        for stream in self.streams.values() {
            // It may have ended already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// The registration of a connection to the master, as long as this lives.
struct Registered<'a>(&'a Replication, u64);

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.0.state().streams.remove(&self.1);
    }
}

/// The engine's way to replication, which holds the engine.
pub struct ToMasters(pub Weak<Replication>);

impl Replicator for ToMasters {
    fn on_master(&self, master: Option<Master>) {
        let Some(replication) = self.0.upgrade() else { return };
        let mut state = replication.state();
        match &master {
            Some(Master { host, port }) => tracing::info!("the master is {host}:{port}"),
            None => tracing::info!("there is no master any more"),
        }
        state.master = master;
        state.version += 1;
        state.upstream_nodes.clear();
        state.end_streams();
        replication.changed.notify_all();
    }

    fn hello(&self) -> Vec<String> {
        let Some(replication) = self.0.upgrade() else { return Vec::new() };
        let databases = replication.engine.settings.config().databases;
        let upstream = replication.state().upstream_nodes.clone();
        let nodes = std::iter::once(replication.node).chain(upstream).collect();
        Hello { protocol: PROTOCOL_VERSION, log_format: FORMAT_VERSION, databases, nodes }.words()
    }
}
