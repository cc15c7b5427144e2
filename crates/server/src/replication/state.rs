//! The state that the threads of replication share: which master is wanted, the connections, the copies.
//!
//! Two numbers say what a thread's work is for: `State::version` rises with each change of the master, and the engine's
//! with each change of the store. A thread ends when its number is another one.

use crate::datadir;
use crate::replication::copies::Copies;
use crate::replication::progress::Progress;
use crate::replication::to_redis::backlog::Backlog;
use crate::socket::Socket;
use crate::tls::Tls;
use haypile_engine::{Engine, Link, Master};
use haypile_log::{DirectoryId, Hold, Index};
use haypile_replication::Token;
use haypile_store::Store;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time between two looks for what is of no use any more.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// The state: see the file's head.
pub struct Replication {
    pub engine: Arc<Engine>,
    /// The keys of connections to masters and of clients.
    pub tls: Arc<Tls>,
    /// The name of this process among those that follow each other.
    pub(super) node: Token,
    pub progress: Arc<Progress>,
    pub(super) copies: Copies,
    state: Mutex<State>,
    pub(super) changed: Condvar,
    pub(super) closing: AtomicBool,
    pub(super) last_number: AtomicU64,
    /// The connection of the replica that is to lead although it has not all; 0 for none.
    pub(super) forced: AtomicU64,
    /// The stream of commands for those who follow and are no Haypile, if there is one.
    backlog: Mutex<Option<Backlog>>,
    /// The lock of the beginning of a stream.
    pub(super) beginning: Mutex<()>,
    /// The time of the last `tidy_when_due`.
    tidied: Mutex<Instant>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) master: Option<Master>,
    /// Rises with each change of the master.
    pub(super) version: u64,
    /// Connections to the master, each by its number.
    streams: BTreeMap<u64, Socket>,
    /// The nodes that the master's records come from.
    pub(super) upstream_nodes: Vec<Token>,
    /// Connections of replicas, each with its thread.
    pub(super) feeds: Vec<(Socket, JoinHandle<()>)>,
    pub(super) link: Option<JoinHandle<()>>,
    /// The thread of a failover.
    pub(super) failover: Option<JoinHandle<()>>,
    /// The replica that this failover tells to lead.
    pub(super) hand_over: Option<HandOver>,
}

/// A replica that is being told to lead.
pub struct HandOver {
    /// The number of its connection.
    pub number: u64,
    /// The last record, if the replica is to have it first.
    pub through: Option<Index>,
    /// Whether the replica was told.
    pub is_told: bool,
    pub answer: Option<Answer>,
}

/// The answer of a replica that was told to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The replica leads, or is about to.
    Promoted,
    Refused(String),
    /// The connection has ended: the replica may have been told.
    Gone,
}

impl Replication {
    /// Makes the state for an engine that does not serve yet.
    pub fn new(engine: &Arc<Engine>, tls: &Arc<Tls>) -> Arc<Replication> {
        Arc::new(Replication {
            engine: engine.clone(),
            tls: tls.clone(),
            node: Token(DirectoryId::random().0),
            progress: Arc::default(),
            copies: Copies::new(engine.settings.clone()),
            state: Mutex::default(),
            changed: Condvar::new(),
            closing: AtomicBool::new(false),
            last_number: AtomicU64::new(0),
            forced: AtomicU64::new(0),
            backlog: Mutex::default(),
            beginning: Mutex::default(),
            tidied: Mutex::new(Instant::now()),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn backlog(&self) -> MutexGuard<'_, Option<Backlog>> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn engine_is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Returns a number that changes with the store.
    pub fn version(&self) -> u64 {
        self.engine.store_version()
    }

    /// Whether the store is still the one of this version.
    pub fn goes_on(&self, version: u64) -> bool {
        !self.engine_is_closing() && self.version() == version
    }

    /// Removes copies that are of no use any more: to be called about once a second.
    pub fn tidy(&self) {
        if let Some(store) = self.engine.store() {
            self.copies.tidy(|hold| self.keeps_too_much(&store, hold).is_some());
            self.tidy_backlog(&store);
        }
    }

    /// Tidies if the last time is a second ago: a link to a master may stay for weeks.
    pub fn tidy_when_due(&self) {
        let mut tidied = self.tidied.lock().unwrap_or_else(PoisonError::into_inner);
        if tidied.elapsed() >= TIDY_EVERY {
            *tidied = Instant::now();
            drop(tidied);
            self.tidy();
        }
    }

    /// Says how far a replica is behind, where more of the log is kept for it than may be.
    pub(super) fn keeps_too_much(&self, store: &Store, hold: &Mutex<Hold>) -> Option<String> {
        let kept = hold.lock().unwrap_or_else(PoisonError::into_inner).kept_bytes();
        self.is_too_much(store, kept)
    }

    /// Says what so many kept bytes of the log are, where they are more than may be.
    pub fn is_too_much(&self, store: &Store, kept: u64) -> Option<String> {
        if kept == 0 {
            return None;
        }
        let config = self.engine.settings.config();
        let (free, keep_free) = store.disk_room();
        let share = config.replication.log_disk_share;
        let disk = if share > 0 { disk_bytes(&datadir::log_dir(&config.dir)) } else { None };
        Bounds { bytes: config.replication.log_bytes, share, disk, free, keep_free }.excess(kept)
    }

    /// Notes the log's end of now, from which the lag of a replica is told.
    pub(super) fn mark(&self, number: u64) {
        let Some(last) = self.engine.store().map(|store| store.log().last()) else { return };
        self.engine.replication.note_downstream(number, |replica| replica.marks.note(last, Instant::now()));
    }

    /// The silence after which a connection is given up.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(u64::from(self.engine.settings.config().replication.timeout_s))
    }

    /// Returns the master to follow, and a number that rises when it changes.
    pub fn wanted(&self) -> (Option<Master>, u64) {
        let state = self.state();
        (state.master.clone(), state.version)
    }

    /// Returns whether this server has no master, or what the master has: not while the link to it is down.
    pub(super) fn has_link(&self) -> bool {
        self.engine.replication.upstream().is_none_or(|upstream| upstream.link == Link::Connected)
    }

    pub fn is_wanted(&self, version: u64) -> bool {
        !self.engine_is_closing() && self.state().version == version
    }

    /// Whether the replica with this connection, which was sent the records through `sent`, is to be told now that it
    /// shall lead. It is told once.
    pub(super) fn tells(&self, number: u64, sent: Index) -> bool {
        let mut state = self.state();
        let is_now = |hand_over: &&mut HandOver| {
            hand_over.number == number && !hand_over.is_told && hand_over.through.is_none_or(|through| through == sent)
        };
        state.hand_over.as_mut().filter(is_now).map(|hand_over| hand_over.is_told = true).is_some()
    }

    /// Notes the answer of a replica that was told to lead, or that its connection has ended.
    pub(super) fn note_answer(&self, number: u64, answer: Answer) {
        let mut state = self.state();
        let hand_over = state.hand_over.as_mut().filter(|hand_over| hand_over.number == number);
        // The first answer counts, and none of a replica that was not asked.
        let counts =
            |hand_over: &&mut HandOver| hand_over.answer.is_none() && (hand_over.is_told || answer == Answer::Gone);
        if let Some(hand_over) = hand_over.filter(counts) {
            hand_over.answer = Some(answer);
            self.changed.notify_all();
        }
    }

    /// Waits for a change of the state, for so long at most.
    pub(super) fn wait_on<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits for another master, or for the end.
    pub(super) fn wait_for_change(&self, version: u64, time: Duration) {
        let same = |state: &mut State| state.version == version && !self.engine_is_closing();
        let state = self.state();
        drop(self.changed.wait_timeout_while(state, time, same).unwrap_or_else(PoisonError::into_inner));
    }

    /// Has a connection end when the master is another one.
    ///
    /// # Errors
    /// The master is another one already.
    pub(super) fn register(&self, version: u64, stream: Socket) -> io::Result<Registered<'_>> {
        let mut state = self.state();
        if state.version != version || self.engine_is_closing() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the master is another one by now"));
        }
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        state.streams.insert(number, stream);
        Ok(Registered(self, number))
    }

    /// Notes the nodes that the master's records come from. If these are others than before, the replicas are to ask
    /// again whether they can follow this node: it may follow one of them by now.
    pub(super) fn set_upstream_nodes(&self, nodes: Vec<Token>) {
        let mut state = self.state();
        if state.upstream_nodes != nodes {
            state.upstream_nodes = nodes;
            state.end_feeds();
        }
    }
}

/// The bounds of what is kept of the log for one replica.
struct Bounds {
    /// `replica-log-size`; 0 is none.
    bytes: u64,
    /// `replica-log-disk-share`, in per cent; 0 is none.
    share: u32,
    /// Bytes of the disk, if they can be told.
    disk: Option<u64>,
    /// Bytes of it that are free, if they can be told.
    free: Option<u64>,
    /// `disk-free-min`.
    keep_free: u64,
}

impl Bounds {
    /// Says what so many kept bytes are, where they are more than may be.
    fn excess(&self, kept: u64) -> Option<String> {
        let Bounds { bytes, share, disk, free, keep_free } = *self;
        if bytes > 0 && kept > bytes {
            return Some(format!("{kept} bytes of the log behind, more than replica-log-size"));
        }
        if share > 0 && disk.is_some_and(|disk| kept > disk / 100 * u64::from(share)) {
            return Some(format!(
                "{kept} bytes of the log behind, more than {share} per cent of the disk (replica-log-disk-share)"
            ));
        }
        let is_short = free.is_some_and(|free| free < 2 * keep_free);
        is_short.then(|| format!("{kept} bytes of the log behind, and the disk is nearly full"))
    }
}

/// Returns the size of the disk that a directory is on.
fn disk_bytes(dir: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(dir).ok()?;
    Some(disk.f_blocks * disk.f_frsize)
}

impl State {
    /// Has threads go on that wait for the master.
    pub(super) fn end_streams(&self) {
        self.streams.values().for_each(Socket::shutdown);
    }

    /// Ends the connections of replicas.
    pub(super) fn end_feeds(&self) {
        self.feeds.iter().for_each(|(socket, _)| socket.shutdown());
    }
}

/// The registration of a connection to the master, as long as this lives.
pub struct Registered<'a>(&'a Replication, u64);

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.0.state().streams.remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_of_what_is_kept_for_a_replica_holds_by_itself() {
        const GIB: u64 = 1 << 30;
        let none = || Bounds { bytes: 0, share: 0, disk: Some(100 * GIB), free: Some(GIB), keep_free: 0 };
        let exceeds = |bounds: Bounds, kept: u64| bounds.excess(kept).unwrap_or_default();
        assert_eq!(exceeds(none(), 99 * GIB), "", "there is no bound");
        let by_bytes = || Bounds { bytes: 4 * GIB, ..none() };
        assert_eq!(exceeds(by_bytes(), 4 * GIB), "");
        assert!(exceeds(by_bytes(), 4 * GIB + 1).contains("replica-log-size"));
        let by_share = || Bounds { share: 25, ..none() };
        assert_eq!(exceeds(by_share(), 24 * GIB), "");
        assert!(exceeds(by_share(), 26 * GIB).contains("more than 25 per cent of the disk"));
        assert_eq!(exceeds(Bounds { disk: None, ..by_share() }, 99 * GIB), "", "nobody knows the disk's size");
        assert_eq!(exceeds(Bounds { share: 100, disk: Some(u64::MAX), ..none() }, 99 * GIB), "");
        let both = Bounds { bytes: 4 * GIB, ..by_share() };
        assert!(exceeds(both, 26 * GIB).contains("replica-log-size"), "the smaller one is told");
        let by_room = |free| Bounds { free: Some(free), keep_free: GIB, ..none() };
        assert_eq!(exceeds(by_room(2 * GIB), GIB), "");
        assert!(exceeds(by_room(2 * GIB - 1), 1).contains("nearly full"));
    }
}
