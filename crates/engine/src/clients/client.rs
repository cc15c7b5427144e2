//! The clients that are connected: what others may know of them (CLIENT LIST), and how others reach them (CLIENT KILL).
//!
//! Each session has one shared record. Its event loop alone writes it, with plain stores at the end of a turn; nobody
//! else ever waits for a session or looks into it. The registry is locked where clients come, go or are listed, never
//! by a command on data.

use crate::clients::accounts::shown_name;
use crate::clients::client_memory::Footprint;
use crate::clients::session::Session;
use crate::clients::tracking::Tracker;
use crate::keys::watch::Mark;
use crate::sync::lock;
use haypile_acl::user::DEFAULT;
use haypile_commands::host::{ClientFilter, ClientType};
use haypile_commands::{CommandId, Table};
use haypile_resp::Protocol;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The addresses that a client is connected from and to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// `127.0.0.1:50000`, `[::1]:50000`; of a unix socket its path and `:0`.
    pub address: String,
    pub local_address: String,
    /// The number of the file descriptor.
    pub descriptor: i32,
    /// The client is on this host.
    pub is_local: bool,
    pub is_unix: bool,
}

/// The names of a client and of its library, and the user that it is logged in as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub name: Vec<u8>,
    pub library_name: Vec<u8>,
    pub library_version: Vec<u8>,
    /// The name of the user; None for the default user.
    pub user: Option<Arc<[u8]>>,
}

/// The number that stands for no command, until the client has sent one.
const NO_COMMAND: u16 = u16::MAX;

/// The facts about one client beyond its session. The file's head says which thread writes them.
#[derive(Debug)]
pub struct Client {
    pub id: u64,
    pub peer: Peer,
    /// The event loop that serves it.
    pub(crate) worker: usize,
    since_ms: u64,
    names: Mutex<Arc<Names>>,
    last_ms: AtomicU64,
    command: AtomicU16,
    database: AtomicU32,
    protocol: AtomicU32,
    flags: AtomicU32,
    /// The client that is sent this one's messages about keys; 0 is itself, -1 none.
    redirect: AtomicI64,
    /// Parts of its session that others write. Kept up to date while the flags say that the session has any.
    told: crate::sync::Mutex<Told>,
    subscriptions: [AtomicU32; 3],
    /// Queued commands of a transaction, -1 outside of one.
    queued: AtomicI64,
    /// Bytes of these, and of the names of watched keys.
    queued_bytes: AtomicUsize,
    /// Bytes of the arguments of a command that waits.
    argument_bytes: AtomicUsize,
    /// Bytes of requests that are not run yet, and of the buffer that they lie in.
    pub input_bytes: AtomicUsize,
    pub input_capacity: AtomicUsize,
    /// Bytes of replies that have not left, and of the buffer that they lie in.
    pub output_bytes: AtomicUsize,
    pub output_capacity: AtomicUsize,
    /// Messages that have not left and that it shares with other clients, and bytes of these and of what long replies
    /// hold.
    pub messages: AtomicUsize,
    pub message_bytes: AtomicUsize,
    /// The memory that the client takes in all.
    pub(crate) footprint: Footprint,
    /// The connection goes on to the leader of a group.
    is_handed_on: AtomicBool,
    /// The client was sent messages about keys that another one tracks.
    pub(crate) hears_for_others: AtomicBool,
    /// The facts of a connection of replication; None for a client.
    pub(crate) peer_server: Option<PeerServer>,
}

/// The parts of a session that others write, at any moment, and what few sessions have.
#[derive(Debug, Default)]
struct Told {
    /// The mark of the watched keys, which says whether one of them has changed.
    mark: Option<Arc<Mark>>,
    /// The number of keys that the session watches.
    watched: usize,
    /// The session's tracking, which knows whether the client that messages are redirected to is gone.
    tracker: Option<Arc<Tracker>>,
}

/// A connection of replication, which no event loop serves.
pub(crate) struct PeerServer {
    pub kind: ClientType,
    /// Ends the connection, soon.
    pub end: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for PeerServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.kind)
    }
}

/// Bytes of a client's session and connection while nothing is under way.
pub(crate) const IDLE_BYTES: usize = size_of::<Session>() + size_of::<Client>() + CONNECTION_BYTES;

/// A connection and its tasks, about.
const CONNECTION_BYTES: usize = 1792;

/// The bits of `Client::flags`, with the letters that CLIENT LIST prints, in its order.
#[derive(Clone, Copy)]
enum Fact {
    Replica,
    Master,
    Monitor,
    PubSub,
    Multi,
    Blocked,
    Tracks,
    /// The client that messages are redirected to is gone: looked up in `told`, where the session tracks.
    RedirectBroken,
    Broadcast,
    /// A watched key has changed: looked up in `told`, where the session watches.
    Dirty,
    Closing,
    Unix,
    ReadsHere,
    NoEvict,
    NoTouch,
}

const FACTS: [(Fact, char); 15] = [
    (Fact::Replica, 'S'),
    (Fact::Master, 'M'),
    (Fact::Monitor, 'O'),
    (Fact::PubSub, 'P'),
    (Fact::Multi, 'x'),
    (Fact::Blocked, 'b'),
    (Fact::Tracks, 't'),
    (Fact::RedirectBroken, 'R'),
    (Fact::Broadcast, 'B'),
    (Fact::Dirty, 'd'),
    (Fact::Closing, 'c'),
    (Fact::Unix, 'U'),
    (Fact::ReadsHere, 'r'),
    (Fact::NoEvict, 'e'),
    (Fact::NoTouch, 'T'),
];

impl Client {
    pub(crate) fn new(id: u64, worker: usize, peer: Peer, now_ms: u64) -> Self {
        Client {
            id,
            peer,
            worker,
            since_ms: now_ms,
            names: Mutex::default(),
            last_ms: AtomicU64::new(now_ms),
            command: AtomicU16::new(NO_COMMAND),
            database: AtomicU32::new(0),
            protocol: AtomicU32::new(2),
            flags: AtomicU32::new(0),
            redirect: AtomicI64::new(-1),
            told: crate::sync::Mutex::default(),
            subscriptions: Default::default(),
            queued: AtomicI64::new(-1),
            queued_bytes: AtomicUsize::new(0),
            argument_bytes: AtomicUsize::new(0),
            input_bytes: AtomicUsize::new(0),
            input_capacity: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            output_capacity: AtomicUsize::new(0),
            messages: AtomicUsize::new(0),
            message_bytes: AtomicUsize::new(0),
            footprint: Footprint::default(),
            is_handed_on: AtomicBool::new(false),
            hears_for_others: AtomicBool::new(false),
            peer_server: None,
        }
    }

    /// Makes the record of a connection of replication. A replica's last command was `command`.
    pub(crate) fn of_server(
        id: u64,
        worker: usize,
        peer: Peer,
        now_ms: u64,
        server: PeerServer,
        command: Option<CommandId>,
    ) -> Client {
        let CommandId(command) = command.unwrap_or(CommandId(NO_COMMAND));
        let command = AtomicU16::new(command);
        Client { peer_server: Some(server), command, ..Client::new(id, worker, peer, now_ms) }
    }

    /// Shows what has changed in the session since the last time.
    #[inline]
    pub(crate) fn show(&self, session: &Session, now_ms: u64, command: Option<CommandId>) {
        self.last_ms.store(now_ms, Ordering::Relaxed);
        if let Some(CommandId(id)) = command {
            self.command.store(id, Ordering::Relaxed);
        }
        let state = &session.state;
        self.database.store(state.database, Ordering::Relaxed);
        self.protocol.store(if state.protocol == Protocol::Resp3 { 3 } else { 2 }, Ordering::Relaxed);
        let queued = session.multi.as_ref().map_or(-1, |multi| multi.commands.len() as i64);
        self.queued.store(queued, Ordering::Relaxed);
        self.queued_bytes.store(session.queued_bytes(), Ordering::Relaxed);
        self.argument_bytes.store(session.argument_bytes(), Ordering::Relaxed);
        let tracker = state.tracker.as_deref();
        self.redirect.store(tracker.map_or(-1, |tracker| tracker.options.redirect as i64), Ordering::Relaxed);
        let is_told = session.watching.is_some() || tracker.is_some();
        if is_told || self.has_bit(Fact::Dirty) || self.has_bit(Fact::RedirectBroken) {
            let mark = session.watching.as_ref().map(|watching| watching.mark().clone());
            let watched = session.watching.as_ref().map_or(0, |watching| watching.len());
            *lock(&self.told) = Told { mark, watched, tracker: state.tracker.clone() };
        }
        let facts = [
            (Fact::Monitor, state.monitors),
            (Fact::PubSub, !state.subscriptions.is_empty()),
            (Fact::Multi, queued >= 0),
            (Fact::Blocked, session.is_waiting()),
            (Fact::Tracks, tracker.is_some()),
            (Fact::RedirectBroken, tracker.is_some()),
            (Fact::Broadcast, tracker.is_some_and(|tracker| !tracker.notes_reads())),
            (Fact::Dirty, session.watching.is_some()),
            (Fact::Closing, state.closing),
            (Fact::ReadsHere, state.reads_here),
            (Fact::NoEvict, state.no_evict),
            (Fact::NoTouch, state.no_touch),
        ];
        let bits = facts.iter().filter(|(_, is)| *is).fold(0, |bits, (fact, _)| bits | 1 << *fact as u32);
        self.flags.store(bits, Ordering::Relaxed);
    }

    /// Shows what changes seldom.
    pub(crate) fn show_names(&self, names: &Arc<Names>) {
        *lock_names(&self.names) = names.clone();
    }

    pub(crate) fn show_subscriptions(&self, counts: [usize; 3]) {
        self.subscriptions.iter().zip(counts).for_each(|(shown, count)| shown.store(count as u32, Ordering::Relaxed));
    }

    /// Bytes that it takes, as they were counted last.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.footprint.bytes()
    }

    /// Notes that its socket has taken some of its replies, but not all.
    #[inline]
    pub fn note_read(&self, now_ms: u64) {
        self.footprint.note_read(now_ms);
    }

    /// Notes that the client's connection goes on to the leader of a group: it is sent nothing from here any more.
    pub(crate) fn hand_on(&self) {
        self.is_handed_on.store(true, Ordering::Relaxed);
    }

    /// Whether the client's connection goes on to the leader of a group.
    #[inline]
    pub fn is_handed_on(&self) -> bool {
        self.is_handed_on.load(Ordering::Relaxed)
    }

    /// Returns whether the client is being closed because clients take too much together: nothing is sent to it any
    /// more.
    #[inline]
    pub fn is_evicted(&self) -> bool {
        self.footprint.is_leaving()
    }

    pub(crate) fn names(&self) -> Arc<Names> {
        lock_names(&self.names).clone()
    }

    pub(crate) fn kind(&self) -> ClientType {
        match &self.peer_server {
            Some(server) => server.kind,
            None if self.has(Fact::PubSub) => ClientType::PubSub,
            None => ClientType::Normal,
        }
    }

    fn has(&self, fact: Fact) -> bool {
        match fact {
            Fact::Unix => self.peer.is_unix,
            Fact::Replica => self.peer_server.is_some() && self.kind() == ClientType::Replica,
            Fact::Master => self.peer_server.is_some() && self.kind() == ClientType::Master,
            Fact::Dirty => self.has_bit(fact) && lock(&self.told).mark.as_ref().is_some_and(|mark| mark.is_set()),
            Fact::RedirectBroken => {
                let is_broken = |tracker: &Arc<Tracker>| tracker.is_broken.load(Ordering::Relaxed);
                self.has_bit(fact) && lock(&self.told).tracker.as_ref().is_some_and(is_broken)
            }
            fact => self.has_bit(fact),
        }
    }

    /// Returns whether the client watches keys.
    pub(crate) fn watches(&self) -> bool {
        self.has_bit(Fact::Dirty)
    }

    /// Returns the number of keys that it watches.
    fn watched(&self) -> usize {
        if self.watches() { lock(&self.told).watched } else { 0 }
    }

    fn has_bit(&self, fact: Fact) -> bool {
        self.flags.load(Ordering::Relaxed) & 1 << fact as u32 != 0
    }

    fn fits(&self, filter: &ClientFilter, asker: u64, now_ms: u64) -> bool {
        let is =
            |wanted: &Option<Vec<u8>>, value: &str| wanted.as_ref().is_none_or(|wanted| wanted == value.as_bytes());
        filter.ids.as_ref().is_none_or(|ids| ids.contains(&self.id))
            && filter.kind.is_none_or(|kind| kind == self.kind())
            && is(&filter.address, &self.peer.address)
            && is(&filter.local_address, &self.peer.local_address)
            && filter.user.as_ref().is_none_or(|user| *user == *self.names().user.as_deref().unwrap_or(DEFAULT))
            && filter.age_min_s.is_none_or(|age| now_ms.saturating_sub(self.since_ms) / 1000 >= age)
            && !(filter.skip_me && self.id == asker)
    }

    /// The client as a line of CLIENT LIST, without the line's end. Times are whole seconds, sizes are bytes. Arguments
    /// are copied only where a command waits.
    pub(crate) fn line(&self, out: &mut String, names: &Names, table: &Table, now_ms: u64) {
        let number = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let since = |ms: u64| now_ms.saturating_sub(ms) / 1000;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut flags: String = FACTS.iter().filter(|(fact, _)| self.has(*fact)).map(|(_, letter)| *letter).collect();
        if flags.is_empty() {
            flags.push('N');
        }
        let command = match self.command.load(Ordering::Relaxed) {
            NO_COMMAND => "NULL",
            id => &table.entry(CommandId(id)).full_name,
        };
        let (input, input_capacity) = (number(&self.input_bytes), number(&self.input_capacity));
        let (output, output_capacity) = (number(&self.output_bytes), number(&self.output_capacity));
        let queued_bytes = number(&self.queued_bytes);
        let fields: [(&str, &dyn std::fmt::Display); 29] = [
            ("id", &self.id),
            ("addr", &self.peer.address),
            ("laddr", &self.peer.local_address),
            ("fd", &self.peer.descriptor),
            ("name", &text(&names.name)),
            ("age", &since(self.since_ms)),
            ("idle", &since(self.last_ms.load(Ordering::Relaxed))),
            ("flags", &flags),
            ("db", &self.database.load(Ordering::Relaxed)),
            ("sub", &self.subscriptions[0].load(Ordering::Relaxed)),
            ("psub", &self.subscriptions[1].load(Ordering::Relaxed)),
            ("ssub", &self.subscriptions[2].load(Ordering::Relaxed)),
            ("multi", &self.queued.load(Ordering::Relaxed)),
            ("watch", &self.watched()),
            ("qbuf", &input),
            ("qbuf-free", &input_capacity.saturating_sub(input)),
            ("argv-mem", &number(&self.argument_bytes)),
            ("multi-mem", &queued_bytes),
            ("rbs", &output_capacity),
            ("rbp", &output),
            ("obl", &output),
            ("oll", &number(&self.messages)),
            ("omem", &number(&self.message_bytes)),
            ("tot-mem", &self.footprint.bytes()),
            ("events", &if output > 0 { "rw" } else { "r" }),
            ("cmd", &command),
            ("user", &shown_name(names.user.as_ref())),
            ("redir", &self.redirect.load(Ordering::Relaxed)),
            ("resp", &self.protocol.load(Ordering::Relaxed)),
        ];
        for (name, value) in fields {
            write!(out, "{name}={value} ").expect("a string takes all that is written to it");
        }
        write!(out, "lib-name={} lib-ver={}", text(&names.library_name), text(&names.library_version))
            .expect("a string takes all that is written to it");
    }
}

fn lock_names(names: &Mutex<Arc<Names>>) -> std::sync::MutexGuard<'_, Arc<Names>> {
    names.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// All clients, by id.
#[derive(Default)]
pub(crate) struct Clients {
    by_id: crate::sync::Mutex<BTreeMap<u64, Arc<Client>>>,
}

impl Clients {
    pub fn add(&self, client: Arc<Client>) {
        lock(&self.by_id).insert(client.id, client);
    }

    pub fn remove(&self, id: u64) {
        lock(&self.by_id).remove(&id);
    }

    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        lock(&self.by_id).get(&id).cloned()
    }

    /// Returns the clients that the filter lets through when `asker` asks at this time.
    pub fn find(&self, filter: &ClientFilter, asker: u64, now_ms: u64) -> Vec<Arc<Client>> {
        let by_id = lock(&self.by_id);
        let fits = |client: &&Arc<Client>| client.fits(filter, asker, now_ms);
        match &filter.ids {
            Some(ids) => ids.iter().filter_map(|id| by_id.get(id)).filter(fits).cloned().collect(),
            None => by_id.values().filter(fits).cloned().collect(),
        }
    }

    /// The lines of CLIENT LIST, the asker's own with the names that it has by now.
    pub fn list(&self, filter: &ClientFilter, asker: Asker<'_>, table: &Table, now_ms: u64) -> String {
        let mut lines = String::new();
        for client in self.find(filter, asker.id, now_ms) {
            let names = if client.id == asker.id { asker.names.clone() } else { client.names() };
            client.line(&mut lines, &names, table, now_ms);
            lines.push('\n');
        }
        lines
    }
}

/// The client that asks for CLIENT LIST.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    pub id: u64,
    /// The asker's names within the block under way, which others do not see yet.
    pub names: &'a Arc<Names>,
}

/// Facts for INFO. They cost a walk over all clients.
impl Clients {
    /// Returns the number of clients for which `is` is true.
    pub fn count(&self, is: impl Fn(&Client) -> bool) -> u64 {
        lock(&self.by_id).values().filter(|client| is(client)).count() as u64
    }

    /// The largest of the clients' numbers.
    pub fn largest(&self, number: impl Fn(&Client) -> &AtomicUsize) -> u64 {
        lock(&self.by_id).values().map(|client| number(client).load(Ordering::Relaxed)).max().unwrap_or(0) as u64
    }
}
