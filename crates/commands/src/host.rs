//! What a session command may do: ask and change its connection and the server.
//!
//! Owns the interface only. The engine implements it for a session, and decides when the changes take effect (in MULTI,
//! with the other effects of the block). Every method is cheap and never blocks.

use crate::error::Result;
use crate::lookup::{CommandId, Table};
use haypile_resp::{Protocol, Reply};
use haypile_store::Txn;
use std::sync::Arc;

/// The connection that a command came by, and the server behind it.
pub trait Host {
    /// The commands that this server has, by the names that it gave them.
    fn table(&self) -> &Table;

    /// Unique among all connections since the server started, rising.
    fn client_id(&self) -> u64;
    /// Empty if the client has not named itself.
    fn client_name(&self) -> &[u8];
    fn set_client_name(&mut self, name: &[u8]);
    fn set_library(&mut self, part: Library, value: &[u8]);
    fn protocol(&self) -> Protocol;
    /// From the reply of the running command on.
    fn set_protocol(&mut self, protocol: Protocol);

    /// Whether the default user has a password.
    fn has_password(&self) -> bool;
    fn has_user(&self, name: &[u8]) -> bool;
    /// Whether the client may run commands: no password was needed when it came, or it gave one.
    fn authenticated(&self) -> bool;
    /// Logs the client in, or says why not (`WRONGPASS ...`).
    fn authenticate(&mut self, user: &[u8], password: &[u8]) -> Result<()>;

    /// The wall clock, in microseconds since 1970.
    fn now_us(&self) -> u64;

    /// Holds the reply of the running command back, which is then made by [`Wait::reply`]; what this returns is the
    /// running command's answer. In a transaction nothing is held back.
    fn wait(&mut self, wait: Wait) -> Reply;

    /// Whether what is written is going to be on a disk.
    fn has_disk(&self) -> bool;

    /// Random bytes that nobody can guess.
    fn fill_secret(&self, bytes: &mut [u8]);

    /// Who may call DEBUG, and whether this client is on the same host.
    fn debug_access(&self) -> DebugAccess;
    fn is_local(&self) -> bool;
    /// Runs something that looks at data, in the transaction that the command is part of.
    ///
    /// # Errors
    /// Those of `run`, and [`Stop::Long`](haypile_store::Stop::Long) where there is no transaction yet: the engine begins
    /// one on the I/O pool, without key locks, and runs the command again there.
    fn in_transaction(&mut self, run: &mut dyn FnMut(&mut Txn) -> Result<Reply>) -> Result<Reply>;
    /// Whether expired keys are removed although nobody asks for them.
    fn set_active_expire(&mut self, is_on: bool);
    /// Writes a line to the server's log.
    fn log_line(&mut self, text: &[u8]);
    /// Ends the process as a bug would.
    fn crash(&mut self, why: &str);

    /// The number of databases; valid indexes are below it.
    fn databases(&self) -> u32;
    /// `index` is below [`Host::databases`].
    fn select(&mut self, index: u32);

    /// Sends the reply of the running command and closes the connection.
    fn close_after_reply(&mut self);
    /// From the running command on; ON only lets later replies through.
    fn set_replies(&mut self, replies: Replies);
    fn set_no_evict(&mut self, on: bool);
    fn set_no_touch(&mut self, on: bool);
    /// From now on the client is shown every command that the server runs; whether it was not before.
    ///
    /// # Errors
    /// Between MULTI and EXEC.
    fn monitor(&mut self) -> Result<bool>;

    /// The clients that the filter lets through, in the order of their ids, as lines of CLIENT LIST.
    /// Where there are many clients, on the I/O pool only, as [`Host::config_rewrite`].
    fn clients(&mut self, filter: &ClientFilter) -> Result<String>;
    /// Closes those clients and says how many they are. The running one is closed after its reply.
    fn kill_clients(&mut self, filter: &ClientFilter) -> usize;
    /// Holds commands until a Unix time in milliseconds. An earlier pause that lasts longer or holds more stands.
    fn pause(&mut self, until_ms: u64, what: Paused);
    fn unpause(&mut self);
    /// Ends the wait of a client's blocking command, as if its time were over or by an error; whether it waited.
    fn unblock(&mut self, client: u64, with_error: bool) -> bool;

    /// Whether the client may do little else than change its subscriptions: it has some, and speaks RESP2.
    fn is_bound_to_channels(&self) -> bool;
    /// The channels of the client: names of channels or patterns, in order.
    /// Whether the command is one of a MULTI block.
    fn is_in_block(&self) -> bool;
    fn subscriptions(&self, kind: Channels) -> Vec<Arc<[u8]>>;
    /// How many subscriptions the client has: shard channels are counted by themselves, the others together.
    fn subscription_count(&self, kind: Channels) -> usize;
    /// The same, with one more.
    fn subscribe(&mut self, kind: Channels, name: &[u8]) -> usize;
    /// The same, without that one, if there was such a subscription.
    fn unsubscribe(&mut self, kind: Channels, name: &[u8]) -> usize;
    /// Sends a message to all who are subscribed to its channel, when the command has taken effect; how many get it.
    /// Where many patterns take long to match, on the I/O pool only, as [`Host::config_rewrite`].
    fn publish(&mut self, kind: Channels, channel: &[u8], message: &[u8]) -> Result<usize>;
    /// The channels that somebody is subscribed to. Where there are many, on the I/O pool only, as
    /// [`Host::config_rewrite`].
    fn channels(&self, kind: Channels) -> Result<Vec<Arc<[u8]>>>;
    /// How many clients are subscribed to a channel.
    fn subscribers(&self, kind: Channels, name: &[u8]) -> usize;
    /// How many patterns there are that somebody is subscribed to.
    fn patterns(&self) -> usize;

    /// Name and value of each directive whose name matches one of the patterns, in the order of the configuration.
    fn config_get(&self, patterns: &[&[u8]]) -> Vec<(String, String)>;
    /// Sets all of the directives, or none of them.
    fn config_set(&mut self, pairs: &[(&[u8], &[u8])]) -> std::result::Result<(), ConfigError>;

    /// Writes the directives into the configuration file. Where the thread must not wait for the disk it answers
    /// [`Stop::Long`](haypile_store::Stop::Long), and the engine runs the command elsewhere.
    fn config_rewrite(&mut self) -> Result<()>;

    fn memory(&self) -> MemoryFacts;
    /// What the allocator says of itself, for people.
    fn allocator_report(&self) -> String;
    /// Has the allocator give back what is not in use; on the I/O pool, where it may wait.
    fn purge_memory(&mut self) -> Result<()>;

    /// Sets what INFO counts back to zero.
    fn reset_statistics(&mut self);

    /// Closes and opens the data again; the reply of the running command is held back until then. Fails in a
    /// transaction.
    fn reload(&mut self, how: Reload) -> Result<()>;

    /// Has a backup made: at once, or in a transaction when that has ended.
    fn begin_backup(&mut self) -> Result<BackupBegun>;
    /// Unix time in seconds: when the last backup was complete, or when the server started.
    fn last_backup_s(&self) -> u64;

    /// The newest `count` commands of the slow log, the newest first.
    fn slowlog(&self, count: usize) -> Vec<SlowCall>;
    fn slowlog_len(&self) -> usize;
    fn reset_slowlog(&mut self);
    /// The events that took long, by name.
    fn latency_events(&self) -> Vec<LatencyEvent>;
    /// Forgets the events of these names, or all if none is named; how many there were.
    fn reset_latency(&mut self, names: &[&[u8]]) -> usize;
    /// How long a command's calls took, if they were measured.
    fn command_times(&self, id: CommandId) -> Option<CommandTimes>;

    /// The sections of INFO, in the order in which they are shown.
    fn info_sections(&self) -> &'static [InfoSection];
    /// Appends the fields of one of those sections, `name:value\r\n` each.
    fn info(&self, section: &str, out: &mut String);

    /// Begins to shut the server down; the connection gets no reply if that works.
    fn shutdown(&mut self, how: Shutdown) -> Result<()>;
    /// Takes a shutdown that is under way back.
    fn abort_shutdown(&mut self) -> Result<()>;
}

/// How long a reply is held back, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub kind: WaitKind,
    /// From now on; nothing for one that waits for ever.
    pub timeout_ms: Option<u64>,
}

/// The commands whose replies are held back. CLIENT UNBLOCK ends all waits but that of `Sleep`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// DEBUG SLEEP.
    Sleep,
    /// WAIT for replicas, which there are none of.
    Wait,
    /// WAITAOF until all that the client has seen is on the disk; or for replicas as well, which there are none of.
    WaitAof { replicas: bool },
}

impl Wait {
    /// The reply at the end of the wait, whatever ended it. `synced` says whether all that the client has seen is on
    /// the disk.
    pub fn reply(self, synced: bool) -> Reply {
        match self.kind {
            WaitKind::Sleep => Reply::ok(),
            WaitKind::Wait => Reply::Integer(0),
            WaitKind::WaitAof { .. } => Reply::array([i64::from(synced), 0].map(Reply::Integer)),
        }
    }
}

/// Who may call DEBUG: `enable-debug-command`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DebugAccess {
    #[default]
    No,
    Yes,
    /// Clients on the same host.
    Local,
}

/// What a subscription names. Messages to shard channels reach nobody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channels {
    Plain,
    /// All channels that match.
    Pattern,
    Shard,
}

/// Which commands a pause holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paused {
    /// Those that change data or send messages.
    Writes,
    All,
}

/// Which replies a client gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replies {
    #[default]
    On,
    Off,
    /// None to the running command and the one behind it.
    SkipNext,
    /// None to the running command.
    Skip,
}

/// The kinds of clients that CLIENT LIST and CLIENT KILL tell apart, and that have output limits of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientType {
    Normal,
    Replica,
    PubSub,
    Master,
}

impl ClientType {
    /// By name, in any case.
    pub fn named(name: &[u8]) -> Option<Self> {
        let names = [
            ("normal", Self::Normal),
            ("slave", Self::Replica),
            ("replica", Self::Replica),
            ("pubsub", Self::PubSub),
            ("master", Self::Master),
        ];
        names.iter().find(|(word, _)| word.as_bytes().eq_ignore_ascii_case(name)).map(|(_, kind)| *kind)
    }
}

/// Some of the clients: those that fit everything that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFilter {
    pub ids: Option<Vec<u64>>,
    pub kind: Option<ClientType>,
    /// As CLIENT LIST prints it: `127.0.0.1:6379`, `[::1]:6379`, the path of a unix socket with `:0`.
    pub address: Option<Vec<u8>>,
    pub local_address: Option<Vec<u8>>,
    pub user: Option<Vec<u8>>,
    /// Not the one that asks.
    pub skip_me: bool,
}

/// What a client library tells about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    Name,
    Version,
}

/// Where data come from that are opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// All from the base: DEBUG RELOAD.
    Base,
    /// What is newer than the base from the log: DEBUG LOADAOF.
    Log,
}

/// When a backup begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupBegun {
    Now,
    Later,
}

/// An entry of the slow log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowCall {
    /// Rising.
    pub id: u64,
    /// When it ended, in seconds since 1970.
    pub time_s: u64,
    /// What it took, in microseconds.
    pub us: u64,
    /// Cut to a bounded size, and without secrets.
    pub args: Vec<Vec<u8>>,
    /// Of the client, with its port.
    pub address: String,
    /// The client's; empty if it has none.
    pub name: Vec<u8>,
}

/// A kind of event that took long, and how long lately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyEvent {
    pub name: &'static str,
    /// Of all that happened since the last reset.
    pub max_ms: u64,
    /// The oldest first, one a second at most; there is one.
    pub samples: Vec<LatencySample>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencySample {
    /// Seconds since 1970.
    pub time_s: u64,
    pub ms: u64,
}

/// How long the calls of a command took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTimes {
    pub calls: u64,
    /// A time in microseconds, and how many calls took no longer: both rise.
    pub until_us: Vec<(u64, u64)>,
}

/// A section of INFO.
#[derive(Clone, Copy, Debug)]
pub struct InfoSection {
    /// In lower case, as clients ask for it.
    pub name: &'static str,
    /// Its heading: `Server` of `# Server`.
    pub title: &'static str,
    pub shown: Shown,
}

/// When INFO shows a section that is not named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Always,
    /// When all are asked for.
    WithAll,
    Never,
}

/// What SHUTDOWN's options ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// SAVE or NOSAVE; nothing if neither was given. What was acknowledged is kept either way.
    pub save: Option<bool>,
    /// Without waiting for replicas that lag behind.
    pub now: bool,
    /// Even if something fails on the way.
    pub force: bool,
}

/// Why CONFIG SET changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// No directive has this name.
    Unknown(String),
    /// The value does not fit, the directive was given twice or cannot be set while the server runs.
    Refused { name: String, reason: String },
}

/// What MEMORY STATS makes its fields of. Bytes, but for the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryFacts {
    /// The most that was ever allocated, to the second.
    pub peak: u64,
    /// Allocated when the store was loaded.
    pub startup: u64,
    /// Given out by the allocator.
    pub allocated: u64,
    /// In pages that something given out lies in.
    pub active: u64,
    /// In memory on the allocator's behalf.
    pub resident: u64,
    /// In memory on the process's behalf.
    pub process: u64,
    /// Of sessions.
    pub clients: u64,
    /// Records that are not synced yet.
    pub log: u64,
    /// Each database, its keys, and those of them with a deadline.
    pub databases: Vec<(u32, u64, u64)>,
}
