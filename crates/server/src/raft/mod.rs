//! A member of a Raft group: the thread that is the member, and its connections with the others.
//!
//! What is agreed on and when is decided in `haypile_raft`; here are its clock, its network and its data. Each member
//! connects to each other one, by the ordinary port and as any client does, and sends its messages there; what it is
//! told comes by the connections of the others. Records are read from the log by the threads that send them, so that
//! the member's own thread neither copies nor waits.

mod change;
mod copy;
mod hand_over;
mod identity;
mod inbox;
mod machine;
mod orders;
mod peers;
mod posts;
mod receive;
mod removal;
mod restored;
mod thread;

use crate::mailbox::Mailbox;
pub use crate::raft::identity::Identity;
use crate::raft::identity::reads_word;
use crate::raft::inbox::Inbox;
pub use crate::raft::peers::MEMBER;
use crate::raft::peers::Peer;
use crate::replication::Replication;
use crate::socket::Socket;
use crate::tls::Tls;
use haypile_config::Config;
use haypile_engine::{Engine, Leader};
use haypile_log::{History, Index};
use haypile_raft::{Configuration, Options, Reads, Rounds};
use haypile_store::Store;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// The time between looks for copies that nobody fetches any more.
const TIDY: Duration = Duration::from_secs(1);

/// The pause behind a fetch that failed.
const FETCH_PAUSE: Duration = Duration::from_secs(1);

/// The most members that are heard of.
const MEMBERS_MAX: usize = 64;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ticks between two heartbeats of a leader: elections are drawn in ticks.
const HEARTBEAT_TICKS: u64 = 2;

/// The server's part in a Raft group, if it is in one.
pub struct Raft {
    engine: Arc<Engine>,
    tls: Arc<Tls>,
    /// Of a server that is in a group.
    member: Mutex<Option<Arc<Place>>>,
    is_member: AtomicBool,
    /// Whether copies that nobody fetches any more are looked for.
    tidies: AtomicBool,
    tick: Duration,
    reads: Arc<Reads>,
    /// Whether clients are served: reads need a round.
    serves: AtomicBool,
    inbox: Inbox,
    /// The other members, by their numbers, each with a thread that sends.
    peers: Mutex<BTreeMap<u64, Arc<Peer>>>,
    /// The addresses that members have named which this one may not know.
    heard_of: Mutex<BTreeMap<u64, String>>,
    /// How often that has changed.
    heard: AtomicU64,
    own_address: Mutex<String>,
    is_fetching: AtomicBool,
    /// The lock of the server's becoming a member: orders come from several clients.
    entering: Mutex<()>,
    /// Whether the server is about to be in no group any more: its members stay as they are.
    is_leaving: AtomicBool,
    /// A text for people, of a member that the group has removed and that knows no leader.
    removed: Mutex<Option<String>>,
    replication: Arc<Replication>,
    running: Mutex<Running>,
    mailboxes: Arc<Vec<Arc<Mailbox>>>,
    /// A channel that tells when another member leads, or this one.
    leaders: watch::Sender<()>,
}

/// The place of a member in its group.
pub struct Place {
    options: Options,
    group: History,
    /// The members' word about reads, which is the same on all.
    reads: String,
}

/// The threads and connections of a member.
#[derive(Default)]
struct Running {
    member: Option<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
    /// The threads that take the messages of other members.
    receivers: Vec<JoinHandle<()>>,
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

/// The member, for the engine of the same server.
struct Here(Weak<Raft>);

impl haypile_engine::Member for Here {
    fn on_orders(&self) {
        if let Some(raft) = self.0.upgrade() {
            raft.on_orders();
        }
    }

    fn join_beside(&self) -> u64 {
        let Some(raft) = self.0.upgrade() else { return u64::MAX };
        let (round, is_news) = raft.reads.beside.join();
        if is_news {
            raft.inbox.on_progress();
        }
        round
    }

    fn reached_beside(&self) -> u64 {
        self.0.upgrade().map_or(0, |raft| raft.reads.beside.confirmed())
    }
}

/// Returns the rounds of reads. A lease ends before the earliest tick at which a member that has heard of the leader
/// when it began may vote for another one, and leaves an eighth for clocks that do not go alike.
fn reads(config: &haypile_config::config::Raft, tick_ms: u64) -> Reads {
    let mut reads = Reads::default();
    if config.leases {
        let ticks = config.election_ms.div_ceil(tick_ms);
        let length = Duration::from_millis((ticks - 1) * tick_ms).mul_f64(7.0 / 8.0);
        let clock = || crate::process::time_since_boot().as_micros() as u64;
        reads.led = Rounds::with_lease(length, Box::new(clock));
    }
    reads
}

impl Raft {
    /// Reads what the configuration says of a group.
    ///
    /// # Errors
    /// A text for people.
    pub fn new(
        engine: &Arc<Engine>,
        mailboxes: &Arc<Vec<Arc<Mailbox>>>,
        replication: &Arc<Replication>,
        config: &Config,
    ) -> Result<Arc<Raft>, String> {
        let tick_ms = (config.raft.heartbeat_ms / HEARTBEAT_TICKS).max(1);
        let raft = Arc::new(Raft {
            engine: engine.clone(),
            tls: replication.tls.clone(),
            member: Mutex::default(),
            is_member: AtomicBool::new(false),
            tidies: AtomicBool::new(false),
            tick: Duration::from_millis(tick_ms),
            reads: Arc::new(reads(&config.raft, tick_ms)),
            serves: AtomicBool::new(false),
            inbox: Inbox::default(),
            peers: Mutex::default(),
            heard_of: Mutex::default(),
            heard: AtomicU64::new(0),
            own_address: Mutex::default(),
            is_fetching: AtomicBool::new(false),
            entering: Mutex::default(),
            is_leaving: AtomicBool::new(false),
            removed: Mutex::default(),
            replication: replication.clone(),
            running: Mutex::default(),
            mailboxes: mailboxes.clone(),
            leaders: watch::Sender::new(()),
        });
        if let Some(identity) = Identity::of(config)? {
            // Restored data become a member's when the group has said that they are of its past.
            if !crate::datadir::is_restored(&config.dir) {
                identity.keep(&config.dir).map_err(|error| {
                    format!("Can't write {}: {error}", crate::datadir::member_file(&config.dir).display())
                })?;
            }
            raft.become_member(&identity);
            engine.set_leader(haypile_engine::Leader::Unknown);
        }
        // The engine is the server's, which has this.
        let to_raft = Arc::downgrade(&raft);
        engine.group.set_member(Box::new(Here(to_raft)));
        Ok(raft)
    }

    /// Has the server be a member from now on, which it is not.
    fn become_member(&self, identity: &Identity) {
        let raft = &self.engine.settings.config().raft;
        let tick_ms = self.tick.as_millis() as u64;
        let options = Options {
            id: identity.id,
            members: identity.founding.clone(),
            election_ticks: raft.election_ms.div_ceil(tick_ms) as usize,
            heartbeat_ticks: (raft.heartbeat_ms / tick_ms) as usize,
            tick: self.tick,
        };
        let place = Arc::new(Place { options, group: identity.group, reads: reads_word(raft) });
        let before = lock(&self.member).replace(place.clone());
        assert!(before.is_none(), "a server is in one group");
        self.is_member.store(true, Ordering::Release);
        self.engine.begin_group_users();
        self.engine.group.set_facts(thread::known(&place));
    }

    /// Has the server be in no group any more. Its thread has ended.
    fn be_alone(&self) {
        self.is_member.store(false, Ordering::Release);
        *lock(&self.member) = None;
    }

    /// Returns the member that this server is.
    fn place(&self) -> Arc<Place> {
        lock(&self.member).clone().expect("the server is a member")
    }

    /// Has orders carried out: by the member, or by a thread of their own if the server is in no group.
    fn on_orders(self: &Arc<Self>) {
        if self.is_member() {
            return self.inbox.on_progress();
        }
        let raft = self.clone();
        let carries_out = move || change::carry_out(&raft);
        match std::thread::Builder::new().name("raft-order".into()).spawn(carries_out) {
            Ok(thread) => self.running().others.push(thread),
            // The orders are answered when they are dropped.
            Err(error) => tracing::error!("an order cannot be carried out: {error}"),
        }
    }

    /// Notes the progress of a store's log for the member.
    pub fn watch(self: &Arc<Self>, store: &Store) {
        if self.is_member() {
            let raft = Arc::downgrade(self);
            store.log().on_advance(Arc::new(move || _ = raft.upgrade().map(|raft| raft.inbox.on_progress())));
        }
    }

    /// Whether the server is in a group.
    #[inline]
    pub fn is_member(&self) -> bool {
        self.is_member.load(Ordering::Acquire)
    }

    /// Returns who leads, as far as this server knows.
    pub fn leader(&self) -> Leader {
        self.engine.group.leader_now()
    }

    /// Returns what is told when that changes.
    pub fn leader_changes(&self) -> watch::Receiver<()> {
        self.leaders.subscribe()
    }

    /// Returns the round that proves what has been read by now; None where nothing can prove it.
    #[inline]
    pub fn join_round(&self) -> Option<u64> {
        if !self.serves.load(Ordering::Acquire) {
            return None;
        }
        let (round, is_news) = self.reads.led.join();
        if is_news {
            self.inbox.on_progress();
        }
        Some(round)
    }

    /// Returns the last round that is proved.
    #[inline]
    pub fn confirmed(&self) -> u64 {
        self.reads.led.confirmed()
    }

    /// Begins to take part. The data are open.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(self: &Arc<Self>) -> io::Result<()> {
        let Some(place) = lock(&self.member).clone() else { return Ok(()) };
        // All that data have which do not lead is agreed on.
        self.engine.look_at_group_users(Index(u64::MAX));
        let options = &place.options;
        if options.members.get(options.id).is_none() && self.engine.settings.config().raft.is_member() {
            tracing::info!("'raft-peers' names no member {}: it waits for RAFT.NODE ADD", options.id);
        }
        let (raft, tidies, asks) = (self.clone(), self.clone(), self.clone());
        let mut running = self.running();
        running.member = Some(std::thread::Builder::new().name("raft".into()).spawn(move || thread::run(&raft))?);
        if self.tidies.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let tidy = move || {
            while !tidies.inbox.wait_for_close(TIDY) {
                tidies.replication.tidy();
            }
        };
        running.others.push(std::thread::Builder::new().name("raft-copies".into()).spawn(tidy)?);
        let asks = move || removal::look_again_and_again(&asks);
        running.others.push(std::thread::Builder::new().name("raft-asks".into()).spawn(asks)?);
        Ok(())
    }

    /// Sends to the members of a configuration, and to those that have named themselves and are in none that is known
    /// here; to nobody else any more.
    fn set_peers(self: &Arc<Self>, configuration: &Configuration) {
        let own = self.place().options.id;
        if let Some((peer, _)) = configuration.get(own) {
            peer.address.clone_into(&mut lock(&self.own_address));
        }
        let mut wanted = lock(&self.heard_of).clone();
        wanted.extend(configuration.iter().map(|(id, peer, _)| (id, peer.address.clone())));
        wanted.retain(|id, address| *id != own && !address.is_empty());
        let mut peers = lock(&self.peers);
        peers.retain(|id, peer| {
            let stays = wanted.get(id) == Some(&peer.address);
            if !stays {
                peer.close();
            }
            stays
        });
        for (id, address) in wanted {
            if let std::collections::btree_map::Entry::Vacant(place) = peers.entry(id) {
                let peer = place.insert(Arc::new(Peer::new(id, &address))).clone();
                let raft = self.clone();
                let sends = move || peers::run(&raft, &peer);
                match std::thread::Builder::new().name(format!("raft-to-{id}")).spawn(sends) {
                    Ok(thread) => self.running().others.push(thread),
                    Err(error) => tracing::error!("nothing is sent to member {id}: {error}"),
                }
            }
        }
        peers.iter().for_each(|(id, peer)| peer.set_member(configuration.get(*id).is_some()));
    }

    /// Returns the address by which the others know this member; empty while there is none.
    fn own_address(&self) -> String {
        lock(&self.own_address).clone()
    }

    /// Notes the address that a member has named. A member that came while this one was away can be answered so.
    fn hear_of(&self, id: u64, address: &str) {
        let mut heard_of = lock(&self.heard_of);
        if address.is_empty()
            || heard_of.get(&id).is_some_and(|known| known == address)
            || heard_of.len() >= MEMBERS_MAX
        {
            return;
        }
        heard_of.insert(id, address.to_owned());
        self.heard.fetch_add(1, Ordering::Relaxed);
        self.inbox.on_progress();
    }

    /// Forgets the address of a member whose connection has ended.
    fn forget(&self, id: u64) {
        if lock(&self.heard_of).remove(&id).is_some() {
            self.heard.fetch_add(1, Ordering::Relaxed);
            self.inbox.on_progress();
        }
    }

    /// The member has looked at what was fetched: it may fetch again.
    fn on_fetch_ended(&self) {
        self.is_fetching.store(false, Ordering::Release);
    }

    /// Fetches a copy of a member's data, unless one is being fetched.
    fn fetch(self: &Arc<Self>, address: String) {
        if self.is_fetching.swap(true, Ordering::AcqRel) {
            return;
        }
        let raft = self.clone();
        let fetches = move || {
            let copy = copy::fetch(&raft, &address);
            if let Err(error) = &copy {
                tracing::warn!("the copy of the data of {address}: {error}");
                raft.inbox.wait_for_close(FETCH_PAUSE);
            }
            // The next fetch may not begin before the member has looked at this copy.
            raft.inbox.on_fetched(copy.ok());
        };
        match std::thread::Builder::new().name("raft-fetch".into()).spawn(fetches) {
            Ok(thread) => self.running().others.push(thread),
            Err(error) => {
                tracing::error!("no copy can be fetched: {error}");
                self.is_fetching.store(false, Ordering::Release);
            }
        }
    }

    /// Ends the member and its connections, whatever becomes of the server.
    fn end_member(&self) {
        self.inbox.end_member();
        let member = self.running().member.take();
        // A thread that panicked has said so already.
        member.into_iter().for_each(|thread| _ = thread.join());
        self.end_connections();
    }

    /// Ends the connections with other members, and forgets what they have said.
    fn end_connections(&self) {
        std::mem::take(&mut *lock(&self.peers)).values().for_each(|peer| peer.close());
        self.running().sockets.values().for_each(Socket::shutdown);
        lock(&self.heard_of).clear();
        self.inbox.begin_member();
    }

    /// Ends all threads. The event loops have ended.
    pub fn close(&self) {
        self.inbox.close();
        let member = self.running().member.take();
        // A thread that panicked has said so already.
        member.into_iter().for_each(|thread| _ = thread.join());
        lock(&self.peers).values().for_each(|peer| peer.close());
        let (threads, sockets) = {
            let mut running = self.running();
            let threads = std::mem::take(&mut running.others).into_iter().chain(std::mem::take(&mut running.receivers));
            (threads, std::mem::take(&mut running.sockets))
        };
        sockets.values().for_each(Socket::shutdown);
        threads.for_each(|thread| _ = thread.join());
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        lock(&self.running)
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
