//! Replication's threads and sockets: one thread that follows a master, and some for each replica.
//!
//! A replica connects as any client does and asks with REPLCONF; from there on its connection belongs to threads here,
//! which may wait, and speaks frames (`haypile_replication::frame`). What either side decides is in that crate; what a
//! record does is the store's.

mod attempt;
pub mod connect;
mod copies;
mod failover;
pub mod feed;
pub mod fetch;
mod link;
mod progress;
mod psync;
pub mod send;
pub mod state;
mod tail;
pub mod to_redis;
pub mod wire;

use crate::changes::{self, ChangesFeed};
use crate::replication::feed::Feed;
pub use crate::replication::state::Replication;
use crate::replication::to_redis::feed::RedisFeed;
use crate::socket::Socket;
use haypile_commands::host::Failover;
use haypile_engine::{Master, Names, Replicator};
use haypile_log::FORMAT_VERSION;
use haypile_replication::asked::Asked;
use haypile_replication::{Hello, PROTOCOL_VERSION};
use haypile_store::Store;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The most connections of replicas: one for the log and up to three for a copy's files each. They do not count as
/// clients, and each has a thread or two.
const FEEDS_MAX: usize = 256;

/// The number of these connections with which nobody more may follow the changes.
const READERS_MAX: usize = 128;

impl Replication {
    /// Begins to follow the configured master, if there is one.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(self: &Arc<Self>) -> io::Result<()> {
        if self.state().link.is_some() {
            return Ok(());
        }
        let replication = self.clone();
        let thread = std::thread::Builder::new().name("replica".into()).spawn(move || link::run(&replication))?;
        self.state().link = Some(thread);
        Ok(())
    }

    /// Notes the progress of a store's log for those who send it.
    pub fn watch(self: &Arc<Self>, store: &Store) {
        let progress = self.progress.clone();
        store.log().on_advance(Arc::new(move || progress.note_advance()));
        drop(store.log().take_kept());
        self.expect_stated(store);
    }

    /// Serves a replica's connection, whose request has these words; `read` has come behind them, and it is logged in
    /// by these names.
    pub fn serve(self: &Arc<Self>, socket: Socket, words: Vec<Vec<u8>>, read: Vec<u8>, names: Arc<Names>) {
        let serve = || -> io::Result<()> {
            socket.tcp().set_nonblocking(false)?;
            let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
            let host = socket.tcp().peer_addr()?.ip().to_canonical().to_string();
            let kept = socket.clone();
            let mut state = self.state();
            state.feeds.retain(|(_, thread)| !thread.is_finished());
            let asked = changes::Asked::parse(&words);
            if asked.is_some() && state.feeds.len() >= READERS_MAX {
                // Replicas come first. The reader may take nothing, and others wait for the state.
                drop(state);
                socket.tcp().set_nonblocking(true)?;
                let _ = socket.write_all(b"-ERR max number of readers reached\r\n");
                socket.shutdown();
                return Ok(());
            }
            if state.feeds.len() >= FEEDS_MAX {
                return Err(io::Error::other(format!("there are {FEEDS_MAX} connections of replicas already")));
            }
            let feed = Feed { replication: self.clone(), number, socket, read, host, names };
            let name = format!("feed-{number}");
            let run = move || match (Asked::parse(&words), asked) {
                (Some(asked), _) => RedisFeed { feed, asked }.run(),
                (None, Some(asked)) => ChangesFeed { feed, asked }.run(),
                (None, None) => feed.run(&words),
            };
            let thread = std::thread::Builder::new().name(name).spawn(run)?;
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
        let (threads, feeds) = {
            let mut state = self.state();
            self.changed.notify_all();
            state.end_streams();
            state.end_feeds();
            (state.link.take().into_iter().chain(state.failover.take()), std::mem::take(&mut state.feeds))
        };
        self.progress.note();
        // A thread that panicked has said so already.
        feeds.into_iter().map(|(_, thread)| thread).chain(threads).for_each(|thread| _ = thread.join());
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

    fn on_failover(&self, wanted: Failover) -> io::Result<()> {
        let Some(replication) = self.0.upgrade() else { return Err(io::Error::other("the server stops")) };
        let thread = {
            let replication = replication.clone();
            let run = move || failover::run(&replication, &wanted);
            std::thread::Builder::new().name("failover".into()).spawn(run)?
        };
        // The thread of the last failover has ended.
        replication.state().failover = Some(thread);
        Ok(())
    }

    fn hello(&self) -> Vec<String> {
        let Some(replication) = self.0.upgrade() else { return Vec::new() };
        let databases = replication.engine.settings.config().databases;
        let upstream = replication.state().upstream_nodes.clone();
        let nodes = std::iter::once(replication.node).chain(upstream).collect();
        Hello { protocol: PROTOCOL_VERSION, log_format: FORMAT_VERSION, databases, nodes }.words()
    }
}
