//! The types of directives with few values: what each word of a choice means, and sizes that may be shares.

/// A size in bytes, or the share of the budget that the store gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Auto,
    Bytes(u64),
}

/// The clients that may use dangerous commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protected {
    No,
    Yes,
    /// Clients on the same host.
    Local,
}

/// The server's answer to replicas that have not acknowledged in time what replies wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLateReplicas {
    /// Writes are refused, and clients that wait are disconnected.
    Refuse,
    /// Replies wait for no replicas until these have caught up.
    GoOn,
}

/// The meaning of an acknowledged write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    Os,
    Fsync,
}

impl Durability {
    /// Returns the name as the directive spells it.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Os => "os",
            Durability::Fsync => "fsync",
        }
    }
}

/// Bytes, or so many percent of the memory budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    Bytes(u64),
    Percent(u32),
}

/// The base below the memtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    RocksDb,
    Memory,
}

/// The words that records have of what they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeStream {
    No,
    Yes,
    /// Records have words of what they do, and of what there was before.
    Before,
}

/// Compression of the base's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    Lz4,
    Zstd,
    None,
}

/// Least important kind of messages that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Debug,
    Verbose,
    Notice,
    Warning,
    Nothing,
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Human,
    Json,
}

/// The supervisor that is told that the server is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supervised {
    No,
    Upstart,
    Systemd,
    /// The supervisor that the environment names (`UPSTART_JOB`, `NOTIFY_SOCKET`).
    Auto,
}

impl Size {
    /// Returns the bytes, where `auto` means `share`.
    pub fn or(self, share: u64) -> u64 {
        match self {
            Size::Auto => share,
            Size::Bytes(bytes) => bytes,
        }
    }
}

pub(super) const SUPERVISED: &[(&str, Supervised)] = &[
    ("upstart", Supervised::Upstart),
    ("systemd", Supervised::Systemd),
    ("auto", Supervised::Auto),
    ("no", Supervised::No),
];
pub(super) const PROTECTED: &[(&str, Protected)] =
    &[("no", Protected::No), ("yes", Protected::Yes), ("local", Protected::Local)];
pub(super) const PUBSUB_DEFAULTS: &[(&str, bool)] = &[("allchannels", true), ("resetchannels", false)];
pub(super) const LIMIT_POLICIES: &[(&str, bool)] = &[("delay", false), ("refuse", true)];
pub(super) const LOG_LEVELS: &[(&str, LogLevel)] = &[
    ("debug", LogLevel::Debug),
    ("verbose", LogLevel::Verbose),
    ("notice", LogLevel::Notice),
    ("warning", LogLevel::Warning),
    ("nothing", LogLevel::Nothing),
];
pub(super) const LOG_FORMATS: &[(&str, LogFormat)] = &[("human", LogFormat::Human), ("json", LogFormat::Json)];
pub(super) const ENGINES: &[(&str, Engine)] = &[("rocksdb", Engine::RocksDb), ("memory", Engine::Memory)];
/// The words for how a leader proves that a read misses nothing, and whether that is by a lease.
pub(super) const RAFT_READS: &[(&str, bool)] = &[("index", false), ("lease", true)];
/// The words for the owner of a member's users, and whether it is the group.
pub(super) const RAFT_USERS: &[(&str, bool)] = &[("own", false), ("group", true)];

pub(super) const FOLLOWER_READS: &[(&str, bool)] = &[("stale", false), ("linearizable", true)];
pub(super) const ON_LATE_REPLICAS: &[(&str, OnLateReplicas)] =
    &[("refuse", OnLateReplicas::Refuse), ("go-on", OnLateReplicas::GoOn)];
/// The words for a master's commands that are refused, and whether these are left out.
pub(super) const REFUSED_COMMANDS: &[(&str, bool)] = &[("stop", false), ("skip", true)];
pub(super) const DURABILITIES: &[(&str, Durability)] = &[("os", Durability::Os), ("fsync", Durability::Fsync)];
pub(super) const CHANGE_STREAMS: &[(&str, ChangeStream)] =
    &[("no", ChangeStream::No), ("yes", ChangeStream::Yes), ("before", ChangeStream::Before)];
pub(super) const COMPRESSIONS: &[(&str, Compression)] =
    &[("lz4", Compression::Lz4), ("zstd", Compression::Zstd), ("none", Compression::None)];
