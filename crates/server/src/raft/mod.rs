//! A member of a Raft group: the thread that is the member, and its connections with the others.
//!
//! What is agreed on and when is decided in `haypile_raft`; here are its clock, its network and its data. Each member
//! connects to each other one, by the ordinary port and as any client does, and sends its messages there; what it is
//! told comes by the connections of the others. Records are read from the log by the threads that send them, so that
//! the member's own thread neither copies nor waits.

mod inbox;
mod machine;
mod peers;
mod receive;
mod thread;

use crate::mailbox::Mailbox;
use crate::raft::inbox::Inbox;
pub use crate::raft::peers::MEMBER;
use crate::raft::peers::Peer;
use crate::socket::Socket;
use crate::tls::Tls;
use haypile_config::Config;
use haypile_engine::Engine;
use haypile_raft::{Members, Options, Rounds};
use haypile_store::Store;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Ticks between two heartbeats of a leader: elections are drawn in ticks.
const HEARTBEAT_TICKS: u64 = 2;

/// The server's part in a Raft group, if it is in one.
pub struct Raft {
    engine: Arc<Engine>,
    tls: Arc<Tls>,
    member: Option<Options>,
    tick: Duration,
    rounds: Arc<Rounds>,
    /// Whether clients are served: reads need a round.
    serves: AtomicBool,
    inbox: Inbox,
    peers: OnceLock<Vec<Arc<Peer>>>,
    running: Mutex<Running>,
    mailboxes: Arc<Vec<Arc<Mailbox>>>,
}

/// The threads and connections of a member.
#[derive(Default)]
struct Running {
    member: Option<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
    sockets: BTreeMap<u64, Socket>,
    /// The numbers of the connections of other members.
    from: BTreeMap<u64, u64>,
    /// The number of the last connection.
    last: u64,
}

/// A connection that ends when this is dropped: whoever is at its other end sees that, and connects again.
struct Kept<'a>(&'a Raft, u64);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let Some(socket) = self.0.running().sockets.remove(&self.1) {
            socket.shutdown();
        }
    }
}

/// Returns the members with which the configured group begins; None of a server that is in no group.
///
/// # Errors
/// A text for people: they are not what they have to be.
pub fn members(config: &Config) -> Result<Option<Members>, String> {
    if !config.raft.is_member() {
        return match config.raft.peers.is_empty() {
            true => Ok(None),
            false => Err("'raft-peers' names members, and 'raft-node-id' does not say which one this server is".into()),
        };
    }
    let members = Members::parse(&config.raft.peers).map_err(|error| format!("'raft-peers': {error}"))?;
    if members.get(config.raft.node_id).is_none() {
        return Err(format!("'raft-peers' names no member {}, as 'raft-node-id' says", config.raft.node_id));
    }
    if config.replication.replicaof.is_some() {
        return Err(
            "a member of a Raft group cannot be a replica: 'raft-node-id' and 'replicaof' exclude each other".into()
        );
    }
    if config.engine == haypile_config::Engine::Memory {
        return Err(
            "a member of a Raft group keeps its data: 'raft-node-id' and 'engine memory' exclude each other".into()
        );
    }
    if 2 * config.raft.heartbeat_ms > config.raft.election_ms {
        return Err("'raft-heartbeat-interval' is more than half of 'raft-election-timeout'".into());
    }
    Ok(Some(members))
}

impl Raft {
    /// Reads what the configuration says of a group.
    ///
    /// # Errors
    /// A text for people.
    pub fn new(
        engine: &Arc<Engine>,
        mailboxes: &Arc<Vec<Arc<Mailbox>>>,
        tls: &Arc<Tls>,
        config: &Config,
    ) -> Result<Arc<Raft>, String> {
        let tick_ms = (config.raft.heartbeat_ms / HEARTBEAT_TICKS).max(1);
        let member = members(config)?.map(|members| Options {
            id: config.raft.node_id,
            members,
            election_ticks: config.raft.election_ms.div_ceil(tick_ms) as usize,
            heartbeat_ticks: (config.raft.heartbeat_ms / tick_ms) as usize,
        });
        if member.is_some() {
            engine.set_leader(haypile_engine::Leader::Unknown);
        }
        Ok(Arc::new(Raft {
            engine: engine.clone(),
            tls: tls.clone(),
            member,
            tick: Duration::from_millis(tick_ms),
            rounds: Arc::default(),
            serves: AtomicBool::new(false),
            inbox: Inbox::default(),
            peers: OnceLock::new(),
            running: Mutex::default(),
            mailboxes: mailboxes.clone(),
        }))
    }

    /// Notes the progress of a store's log for the member.
    pub fn watch(self: &Arc<Self>, store: &Store) {
        if self.member.is_some() {
            let raft = Arc::downgrade(self);
            store.log().on_advance(Arc::new(move || _ = raft.upgrade().map(|raft| raft.inbox.on_progress())));
        }
    }

    /// Whether the server is in a group.
    #[inline]
    pub fn is_member(&self) -> bool {
        self.member.is_some()
    }

    /// Returns the round that proves what has been read by now; None where nothing can prove it.
    #[inline]
    pub fn join_round(&self) -> Option<u64> {
        if !self.serves.load(Ordering::Acquire) {
            return None;
        }
        let (round, is_news) = self.rounds.join();
        if is_news {
            self.inbox.on_progress();
        }
        Some(round)
    }

    /// Returns the last round that is proved.
    #[inline]
    pub fn confirmed(&self) -> u64 {
        self.rounds.confirmed()
    }

    /// Begins to take part. The data are open.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(self: &Arc<Self>) -> io::Result<()> {
        let Some(options) = &self.member else { return Ok(()) };
        let others = options.members.iter().filter(|(id, _)| *id != options.id);
        let peers: Vec<_> = others.map(|(id, peer)| Arc::new(Peer::new(id, &peer.address))).collect();
        let mut running = self.running();
        for peer in &peers {
            let (raft, peer) = (self.clone(), peer.clone());
            let name = format!("raft-to-{}", peer.id);
            running.others.push(std::thread::Builder::new().name(name).spawn(move || peers::run(&raft, &peer))?);
        }
        assert!(self.peers.set(peers).is_ok(), "a member begins once");
        let raft = self.clone();
        running.member = Some(std::thread::Builder::new().name("raft".into()).spawn(move || thread::run(&raft))?);
        Ok(())
    }

    /// Ends all threads. The event loops have ended.
    pub fn close(&self) {
        self.inbox.close();
        let member = self.running().member.take();
        // A thread that panicked has said so already.
        member.into_iter().for_each(|thread| _ = thread.join());
        self.peers.get().into_iter().flatten().for_each(|peer| peer.close());
        let (threads, sockets) = {
            let mut running = self.running();
            (std::mem::take(&mut running.others), std::mem::take(&mut running.sockets))
        };
        sockets.values().for_each(Socket::shutdown);
        threads.into_iter().for_each(|thread| _ = thread.join());
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a connection's handle, so that the connection ends with the server; and with what is returned.
    fn keep(&self, socket: &Socket) -> Kept<'_> {
        let mut running = self.running();
        running.last += 1;
        let number = running.last;
        running.sockets.insert(number, socket.clone());
        Kept(self, number)
    }
}
