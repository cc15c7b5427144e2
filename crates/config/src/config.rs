//! The configuration as the rest of the server sees it: a field with a type for each directive that is used.
//!
//! Built from `Values` at the start and anew after each CONFIG SET; a `Config` never changes. The meaning of a field
//! stands in the table, in the row of the same name.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::archive::{Archive, options_of};
use crate::compaction::{CompactInterval, CompactWindow};
use crate::error::Origin;
use crate::selection::Selection;
use crate::special::{Bind, Limit, addresses_of, limits_of, master_of};
use crate::tls::{AuthClients, KeyFiles, SessionCache, Tls};
use crate::value::Value;
use crate::values::Values;

/// The directives of a server that follows another one, or is followed.
#[derive(Clone, Debug, PartialEq)]
pub struct Replication {
    /// The server to follow: host and port.
    pub replicaof: Option<(String, u16)>,
    /// The address that connections to masters and members come from; empty = any.
    pub source_address: String,
    /// Empty = none is given.
    pub masterauth: Vec<u8>,
    /// Empty = the default user.
    pub masteruser: Vec<u8>,
    pub timeout_s: u32,
    /// A replica serves what it has while its master is not there.
    pub serves_stale_data: bool,
    /// Good replicas without which writes are refused; 0 = none is needed.
    pub min_replicas: u32,
    /// The time since a good replica acknowledged something, at most; 0 = no replica is needed.
    pub max_lag_s: u32,
    /// Replicas that have what a reply depends on before it leaves; 0 = none is waited for.
    pub replicas_to_ack: u32,
    /// 0 = as long as it takes.
    pub ack_timeout_ms: u64,
    pub on_late_replicas: OnLateReplicas,
    /// Bytes of the log for a replica that is behind; 0 = as far as the disk allows.
    pub log_bytes: u64,
    /// The share of the disk that the log for such a replica takes, in per cent; 0 = no bound.
    pub log_disk_share: u32,
    /// The time between pings to a Redis that follows.
    pub ping_s: u32,
    /// How long the log is kept for a Redis that has followed; 0 = for ever.
    pub backlog_ttl_s: u64,
    /// Commands of a Redis that are refused are left out.
    pub skips_refused: bool,
    /// The keys of a Redis that are taken.
    pub selection: Selection,
    /// The words that records have for programs that follow the changes.
    pub change_stream: ChangeStream,
    /// For Sentinel.
    pub priority: u32,
    pub announced: bool,
    /// Empty = the address that the master sees.
    pub announce_ip: String,
    /// 0 = `port`.
    pub announce_port: u16,
}

impl Replication {
    fn read(fields: &mut Fields) -> Replication {
        Replication {
            replicaof: master_of(fields.value("replicaof")),
            source_address: fields.string("bind-source-addr"),
            masterauth: fields.text("masterauth"),
            masteruser: fields.text("masteruser"),
            min_replicas: fields.int("min-replicas-to-write"),
            max_lag_s: fields.int("min-replicas-max-lag"),
            replicas_to_ack: fields.int("replicas-to-ack"),
            ack_timeout_ms: fields.int("replicas-to-ack-timeout"),
            on_late_replicas: fields.choice("replicas-to-ack-on-timeout", ON_LATE_REPLICAS),
            log_bytes: fields.bytes("replica-log-size"),
            log_disk_share: fields.int("replica-log-disk-share"),
            ping_s: fields.int("repl-ping-replica-period"),
            backlog_ttl_s: fields.int("repl-backlog-ttl"),
            change_stream: fields.choice("change-stream", CHANGE_STREAMS),
            skips_refused: fields.choice("replica-refused-commands", REFUSED_COMMANDS),
            selection: Selection::read(&fields.printed("replicaof-databases"), &fields.printed("replicaof-slots")),
            priority: fields.int("replica-priority"),
            announced: fields.bool("replica-announced"),
            serves_stale_data: fields.bool("replica-serve-stale-data"),
            timeout_s: fields.int("repl-timeout"),
            announce_ip: fields.printed("replica-announce-ip"),
            announce_port: fields.int("replica-announce-port"),
        }
    }
}

/// The directives about compactions.
#[derive(Clone, Debug, PartialEq)]
pub struct Compactions {
    /// Bytes that compactions write in a second; 0 = tuned by itself.
    pub bytes_per_s: u64,
    /// The hours in which full ones begin by themselves.
    pub window: Option<CompactWindow>,
    /// The time between full ones that begin by themselves.
    pub interval: Option<CompactInterval>,
}

/// How long the log is kept beyond what recovery needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub bytes: u64,
    /// 0 = any age.
    pub age_s: u64,
}

impl Compactions {
    fn read(fields: &mut Fields) -> Compactions {
        Compactions {
            bytes_per_s: fields.bytes("background-io-rate"),
            window: CompactWindow::parse(&fields.printed("compact-cron")),
            interval: CompactInterval::parse(&fields.printed("compact-interval")),
        }
    }
}

/// The directives of a member of a Raft group.
#[derive(Clone, Debug, PartialEq)]
pub struct Raft {
    /// 0 = the server is in no group.
    pub node_id: u64,
    /// The members with which the group begins, as they were written.
    pub peers: String,
    pub election_ms: u64,
    pub heartbeat_ms: u64,
    /// Whether a leader relies on a lease for reads.
    pub leases: bool,
    /// Whether users are the group's, and not each member's own.
    pub has_users: bool,
    /// Whether a member that does not lead hands clients on to the leader.
    pub proxies: bool,
    /// Whether a read on a member that does not lead waits until it misses nothing.
    pub reads_beside_miss_nothing: bool,
    reads_when_down: bool,
}

impl Raft {
    fn read(fields: &mut Fields) -> Raft {
        Raft {
            node_id: fields.int("raft-node-id"),
            peers: fields.printed("raft-peers"),
            election_ms: fields.int("raft-election-timeout"),
            heartbeat_ms: fields.int("raft-heartbeat-interval"),
            leases: fields.choice("raft-read", RAFT_READS),
            has_users: fields.choice("raft-users", RAFT_USERS),
            proxies: fields.bool("raft-follower-proxy"),
            reads_beside_miss_nothing: fields.choice("raft-follower-reads", FOLLOWER_READS),
            reads_when_down: fields.bool("cluster-allow-reads-when-down"),
        }
    }

    /// Returns whether a member that knows no leader serves clients that have said READONLY: nobody can tell it what it
    /// misses then.
    pub fn reads_when_down(&self) -> bool {
        self.reads_when_down && !self.reads_beside_miss_nothing
    }

    /// Returns whether the server is a member of a group.
    pub fn is_member(&self) -> bool {
        self.node_id > 0
    }
}

/// All directives that are used.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    // Network.
    /// 0 = no TCP.
    pub port: u16,
    pub bind: Vec<Bind>,
    pub unixsocket: Option<PathBuf>,
    /// 0 = what `data_file_mode` gives.
    pub unixsocketperm: u32,
    /// The mode of files that are created.
    pub data_file_mode: u32,
    pub tcp_backlog: u32,
    /// 0 = no probes.
    pub tcp_keepalive_s: u32,
    /// 0 = never.
    pub timeout_s: u32,
    pub maxclients: u32,
    pub protected_mode: bool,
    pub client_query_buffer_bytes_max: u64,
    pub proto_bulk_bytes_max: u64,
    pub normal_output_limit: Limit,
    pub replica_output_limit: Limit,
    pub pubsub_output_limit: Limit,
    /// The letters of `notify-keyspace-events`.
    pub keyspace_events: Vec<u8>,
    /// The bounds up to which Redis holds collections compactly, each with its directive.
    pub encoding_limits: Vec<(&'static str, i64)>,
    /// The password of the default user; empty = none.
    pub requirepass: Vec<u8>,
    /// The file of users.
    pub aclfile: Option<PathBuf>,
    /// Users that are made have all channels.
    pub acl_all_channels: bool,
    pub acl_log_entries_max: usize,
    /// Calls beyond the limits of a user are refused; they wait otherwise.
    pub refuses_beyond_limits: bool,
    /// Keys that client-side caching keeps track of; 0 = no bound.
    pub tracking_keys_max: usize,
    /// The lines `user`, in order.
    pub users: Vec<UserLine>,

    pub replication: Replication,
    pub raft: Raft,
    pub tls: Tls,

    // Process.
    /// Absolute; the paths of other directives are relative to it, and already joined with it here.
    pub dir: PathBuf,
    pub databases: u32,
    pub daemonize: bool,
    pub supervised: Supervised,
    /// The clients that may call DEBUG.
    pub debug_command: Protected,
    pub pidfile: Option<PathBuf>,
    pub loglevel: LogLevel,
    /// None = standard output.
    pub logfile: Option<PathBuf>,
    pub log_format: LogFormat,
    /// The renames of `rename-command`, in the order of the lines.
    pub renames: Vec<Rename>,

    // Storage engine.
    /// 0 = one for each core.
    pub workers: usize,
    pub io_pool: usize,
    pub engine: Engine,
    pub durability: Durability,
    pub log_segment_bytes: u64,
    pub log_retention: Retention,
    pub flush_log_bytes: u64,
    pub memtable_size: Size,
    pub row_cache_size: Size,
    pub block_cache_size: Size,
    pub txn_bytes_max: u64,
    pub compression: Compression,
    pub direct_reads: bool,
    pub blind_set: bool,
    /// 0 = all.
    pub backups_keep: u32,
    pub archive: Archive,
    pub disk_free_bytes_min: u64,
    pub compactions: Compactions,

    // Memory.
    /// 0 = a share of the memory there is: see `Config::memory_budget`.
    pub maxmemory: u64,
    /// The memory that all clients may take together; 0 = any.
    pub maxmemory_clients: Share,
    /// The policy as Redis names it; nothing is evicted.
    pub maxmemory_policy: String,
    /// The factor that slows the growth of use counts.
    pub lfu_log_factor: u32,
    /// The minutes without a use after which a count falls by one; 0 = never.
    pub lfu_decay_minutes: u32,

    // Monitoring.
    /// 0 = none.
    pub metrics_port: u16,
    /// /metrics over TLS.
    pub metrics_tls: bool,
    /// The logs of calls that stand out: microseconds from which one is slow, bytes from which its request, or its
    /// reply, is large (None = never), each with how many are kept.
    pub slow_calls: (Option<u64>, u64),
    pub large_requests: (Option<u64>, u64),
    pub large_replies: (Option<u64>, u64),
    /// None = no events are kept.
    pub latency_threshold_ms: Option<u64>,
    pub latency_tracking: bool,
    /// The percentiles, each from 0 to 100.
    pub latency_percentiles: Vec<f64>,
}

/// The file into which a daemon without `pidfile` writes its process id.
const PIDFILE_OF_DAEMON: &str = "/var/run/haypile.pid";

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

/// The lines that are no directives and that the server is told of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statements {
    pub renames: Vec<Rename>,
    pub users: Vec<UserLine>,
}

/// A line `user`. Whether its rules make sense is for the crate `acl` to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLine {
    /// The name and the rules.
    pub words: Vec<Vec<u8>>,
    /// The line, for the error if a rule is wrong, without its words: they may be passwords.
    pub origin: Origin,
}

/// A `rename-command` line. The command table knows whether the command exists, and whether the new name is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    pub command: Vec<u8>,
    /// Empty = the command is removed.
    pub to: Vec<u8>,
    /// The line, for the error if the command cannot be renamed: `ConfigError::at(&rename.origin, "No such command in
    /// rename-command")`.
    pub origin: Origin,
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

impl Config {
    /// Returns the configuration of a server that is started without any, in `dir`.
    pub fn defaults(dir: &Path) -> Config {
        let mut values = Values::defaults();
        values.put(crate::table::find(b"dir").expect("dir is in the table"), Value::Text(path_bytes(dir)));
        Config::from_values(&values, &Statements::default())
    }

    pub(crate) fn from_values(values: &Values, lines: &Statements) -> Config {
        Config::read(&mut Fields::of(values), lines)
    }

    fn read(fields: &mut Fields, lines: &Statements) -> Config {
        let dir = fields.path("dir").expect("dir is never empty");
        let below_dir = |path: Option<PathBuf>| path.map(|path| dir.join(path));
        let limits = limits_of(fields.value("client-output-buffer-limit"));
        let daemonize = fields.bool("daemonize");
        let limits_of_encodings = crate::table::rows().filter(|row| row.limits_encoding).map(|row| row.name);
        // CONFIG SET reads the first of these by itself, and `durability` follows the second.
        fields.printed("enable-protected-configs");
        fields.printed("appendfsync");
        Config {
            port: fields.int("port"),
            bind: addresses_of(fields.value("bind")),
            unixsocket: below_dir(fields.path("unixsocket")),
            unixsocketperm: fields.octal("unixsocketperm"),
            data_file_mode: fields.octal("data-file-mode"),
            tcp_backlog: fields.int("tcp-backlog"),
            tcp_keepalive_s: fields.int("tcp-keepalive"),
            timeout_s: fields.int("timeout"),
            maxclients: fields.int("maxclients"),
            protected_mode: fields.bool("protected-mode"),
            client_query_buffer_bytes_max: fields.bytes("client-query-buffer-limit"),
            proto_bulk_bytes_max: fields.bytes("proto-max-bulk-len"),
            normal_output_limit: limits[0],
            replica_output_limit: limits[1],
            pubsub_output_limit: limits[2],
            keyspace_events: fields.text("notify-keyspace-events"),
            encoding_limits: limits_of_encodings.map(|name| (name, fields.count(name))).collect(),
            requirepass: fields.text("requirepass"),
            aclfile: below_dir(fields.path("aclfile")),
            acl_all_channels: fields.choice("acl-pubsub-default", PUBSUB_DEFAULTS),
            tracking_keys_max: usize::try_from(fields.int::<i64>("tracking-table-max-keys")).unwrap_or(0),
            acl_log_entries_max: usize::try_from(fields.int::<i64>("acllog-max-len")).unwrap_or(0),
            refuses_beyond_limits: fields.choice("user-limit-policy", LIMIT_POLICIES),
            users: lines.users.clone(),
            replication: Replication::read(fields),
            raft: Raft::read(fields),
            tls: read_tls(fields, &below_dir),
            databases: fields.int("databases"),
            daemonize,
            supervised: fields.choice("supervised", SUPERVISED),
            debug_command: fields.choice("enable-debug-command", PROTECTED),
            pidfile: below_dir(fields.path("pidfile")).or_else(|| daemonize.then(|| PIDFILE_OF_DAEMON.into())),
            loglevel: fields.choice("loglevel", LOG_LEVELS),
            logfile: below_dir(fields.path("logfile")),
            log_format: fields.choice("log-format", LOG_FORMATS),
            renames: lines.renames.clone(),
            workers: fields.int("workers"),
            io_pool: fields.int("io-pool"),
            engine: fields.choice("engine", ENGINES),
            durability: fields.choice("durability", DURABILITIES),
            log_segment_bytes: fields.bytes("log-segment-size"),
            log_retention: fields.retention(),
            flush_log_bytes: fields.bytes("flush-log-bytes"),
            memtable_size: fields.size("memtable-size"),
            row_cache_size: fields.size("row-cache-size"),
            block_cache_size: fields.size("block-cache-size"),
            txn_bytes_max: fields.bytes("txn-bytes-max"),
            compression: fields.choice("compression", COMPRESSIONS),
            direct_reads: fields.bool("direct-reads"),
            blind_set: fields.bool("blind-set"),
            backups_keep: fields.int("backups-keep"),
            archive: fields.archive(),
            disk_free_bytes_min: fields.bytes("disk-free-min"),
            compactions: Compactions::read(fields),
            maxmemory: fields.bytes("maxmemory"),
            maxmemory_clients: fields.share("maxmemory-clients"),
            maxmemory_policy: fields.printed("maxmemory-policy"),
            lfu_log_factor: fields.int("lfu-log-factor"),
            lfu_decay_minutes: fields.int("lfu-decay-time"),
            metrics_port: fields.int("metrics-port"),
            metrics_tls: fields.bool("metrics-tls"),
            slow_calls: fields.logged("slowlog-log-slower-than", "slowlog-max-len"),
            large_requests: fields.logged("commandlog-request-larger-than", "commandlog-large-request-max-len"),
            large_replies: fields.logged("commandlog-reply-larger-than", "commandlog-large-reply-max-len"),
            latency_threshold_ms: Some(fields.int("latency-monitor-threshold")).filter(|ms| *ms > 0),
            latency_tracking: fields.bool("latency-tracking"),
            latency_percentiles: fields.percentiles("latency-tracking-info-percentiles"),
            dir,
        }
    }

    /// Returns the memory budget in bytes: `maxmemory` as far as the machine or its cgroup has so much, or the default
    /// share of that.
    pub fn memory_budget(&self, available: &crate::memory::Available) -> u64 {
        if self.maxmemory == 0 { available.default_budget() } else { self.maxmemory.min(available.bound()) }
    }
}

fn read_tls(fields: &mut Fields, below_dir: &impl Fn(Option<PathBuf>) -> Option<PathBuf>) -> Tls {
    let caches = fields.bool("tls-session-caching");
    let cache = SessionCache {
        sessions: fields.int("tls-session-cache-size"),
        timeout_s: fields.int("tls-session-cache-timeout"),
    };
    Tls {
        port: fields.int("tls-port"),
        server: KeyFiles {
            cert: below_dir(fields.path("tls-cert-file")),
            key: below_dir(fields.path("tls-key-file")),
            key_pass: fields.text("tls-key-file-pass"),
        },
        client: KeyFiles {
            cert: below_dir(fields.path("tls-client-cert-file")),
            key: below_dir(fields.path("tls-client-key-file")),
            key_pass: fields.text("tls-client-key-file-pass"),
        },
        ca_cert_file: below_dir(fields.path("tls-ca-cert-file")),
        ca_cert_dir: below_dir(fields.path("tls-ca-cert-dir")),
        auth_clients: fields.choice("tls-auth-clients", AUTH_CLIENTS),
        user_of_common_name: fields.choice("tls-auth-clients-user", USERS_OF_CERTIFICATES),
        protocols: fields.printed("tls-protocols"),
        ciphers: fields.printed("tls-ciphers"),
        ciphersuites: fields.printed("tls-ciphersuites"),
        prefers_server_ciphers: fields.bool("tls-prefer-server-ciphers"),
        session_cache: caches.then_some(cache),
        replication: fields.bool("tls-replication"),
        cluster: fields.bool("tls-cluster"),
    }
}

const AUTH_CLIENTS: &[(&str, AuthClients)] =
    &[("no", AuthClients::No), ("yes", AuthClients::Yes), ("optional", AuthClients::Optional)];
const USERS_OF_CERTIFICATES: &[(&str, bool)] = &[("off", false), ("CN", true)];
const SUPERVISED: &[(&str, Supervised)] = &[
    ("upstart", Supervised::Upstart),
    ("systemd", Supervised::Systemd),
    ("auto", Supervised::Auto),
    ("no", Supervised::No),
];
const PROTECTED: &[(&str, Protected)] = &[("no", Protected::No), ("yes", Protected::Yes), ("local", Protected::Local)];
const PUBSUB_DEFAULTS: &[(&str, bool)] = &[("allchannels", true), ("resetchannels", false)];
const LIMIT_POLICIES: &[(&str, bool)] = &[("delay", false), ("refuse", true)];
const LOG_LEVELS: &[(&str, LogLevel)] = &[
    ("debug", LogLevel::Debug),
    ("verbose", LogLevel::Verbose),
    ("notice", LogLevel::Notice),
    ("warning", LogLevel::Warning),
    ("nothing", LogLevel::Nothing),
];
const LOG_FORMATS: &[(&str, LogFormat)] = &[("human", LogFormat::Human), ("json", LogFormat::Json)];
const ENGINES: &[(&str, Engine)] = &[("rocksdb", Engine::RocksDb), ("memory", Engine::Memory)];
/// Whether it is by a lease.
const RAFT_READS: &[(&str, bool)] = &[("index", false), ("lease", true)];
/// Whether they miss nothing.
const RAFT_USERS: &[(&str, bool)] = &[("own", false), ("group", true)];

const FOLLOWER_READS: &[(&str, bool)] = &[("stale", false), ("linearizable", true)];
const ON_LATE_REPLICAS: &[(&str, OnLateReplicas)] =
    &[("refuse", OnLateReplicas::Refuse), ("go-on", OnLateReplicas::GoOn)];
/// Whether they are left out.
const REFUSED_COMMANDS: &[(&str, bool)] = &[("stop", false), ("skip", true)];
const DURABILITIES: &[(&str, Durability)] = &[("os", Durability::Os), ("fsync", Durability::Fsync)];
const CHANGE_STREAMS: &[(&str, ChangeStream)] =
    &[("no", ChangeStream::No), ("yes", ChangeStream::Yes), ("before", ChangeStream::Before)];
const COMPRESSIONS: &[(&str, Compression)] =
    &[("lz4", Compression::Lz4), ("zstd", Compression::Zstd), ("none", Compression::None)];

/// Reads values by name and type. A wrong type is a mistake in this file; the test below reads them all.
struct Fields<'a> {
    values: &'a Values,
    /// The names that were read.
    seen: BTreeSet<&'static str>,
}

impl<'a> Fields<'a> {
    fn of(values: &'a Values) -> Fields<'a> {
        Fields { values, seen: BTreeSet::new() }
    }

    fn value(&mut self, name: &'static str) -> &'a Value {
        self.seen.insert(name);
        self.values.get(name)
    }

    fn bool(&mut self, name: &'static str) -> bool {
        match self.value(name) {
            Value::Bool(yes) => *yes,
            other => unreachable!("{name} is yes or no, not {other:?}"),
        }
    }

    fn int<T: TryFrom<i64>>(&mut self, name: &'static str) -> T {
        match self.value(name) {
            Value::Int(number) => T::try_from(*number).ok().expect("the bounds of the row fit the type of the field"),
            other => unreachable!("{name} is an integer, not {other:?}"),
        }
    }

    /// Returns a number, which may be one of bytes.
    fn count(&mut self, name: &'static str) -> i64 {
        match self.value(name) {
            Value::Int(number) => *number,
            Value::Bytes(bytes) => i64::try_from(*bytes).unwrap_or(i64::MAX),
            other => unreachable!("{name} is a number, not {other:?}"),
        }
    }

    fn bytes(&mut self, name: &'static str) -> u64 {
        match self.value(name) {
            Value::Bytes(bytes) => *bytes,
            other => unreachable!("{name} is a number of bytes, not {other:?}"),
        }
    }

    fn size(&mut self, name: &'static str) -> Size {
        match self.value(name) {
            Value::Auto => Size::Auto,
            Value::Bytes(bytes) => Size::Bytes(*bytes),
            other => unreachable!("{name} is a size, not {other:?}"),
        }
    }

    fn share(&mut self, name: &'static str) -> Share {
        match self.value(name) {
            Value::Bytes(bytes) => Share::Bytes(*bytes),
            Value::Percent(percent) => Share::Percent(*percent),
            other => unreachable!("{name} is bytes or a share, not {other:?}"),
        }
    }

    fn octal(&mut self, name: &'static str) -> u32 {
        match self.value(name) {
            Value::Octal(mode) => *mode,
            other => unreachable!("{name} is a file mode, not {other:?}"),
        }
    }

    /// Returns what the word of a choice stands for.
    fn choice<T: Copy>(&mut self, name: &'static str, meanings: &[(&str, T)]) -> T {
        let word = self.printed(name);
        let meaning = meanings.iter().find(|(of, _)| *of == word);
        meaning.unwrap_or_else(|| unreachable!("each word of {name} has a meaning, {word} too")).1
    }

    fn percentiles(&mut self, name: &'static str) -> Vec<f64> {
        match self.value(name) {
            Value::Percentiles(numbers) => numbers.clone(),
            other => unreachable!("{name} is percentiles, not {other:?}"),
        }
    }

    fn path(&mut self, name: &'static str) -> Option<PathBuf> {
        match self.value(name) {
            Value::Text(text) if text.is_empty() => None,
            Value::Text(text) => Some(PathBuf::from(OsString::from_vec(text.clone()))),
            other => unreachable!("{name} is a path, not {other:?}"),
        }
    }

    /// The value from which a call is in a log, negative for none, and the entries that the log keeps.
    fn logged(&mut self, from: &'static str, entries_max: &'static str) -> (Option<u64>, u64) {
        (u64::try_from(self.int::<i64>(from)).ok(), self.int(entries_max))
    }

    fn text(&mut self, name: &'static str) -> Vec<u8> {
        match self.value(name) {
            Value::Text(text) => text.clone(),
            other => unreachable!("{name} is a text, not {other:?}"),
        }
    }

    fn retention(&mut self) -> Retention {
        Retention { bytes: self.bytes("log-retention-size"), age_s: self.int("log-retention-age") }
    }

    fn archive(&mut self) -> Archive {
        Archive {
            to: self.string("archive-to"),
            options: options_of(&self.string("archive-options")),
            key_file: self.path("archive-key-file"),
            interval_s: self.int("archive-interval"),
            backup_interval_s: self.int("archive-backup-interval"),
            backups_keep: self.int("archive-backups-keep"),
            log_bytes: self.bytes("archive-log-size"),
        }
    }

    fn string(&mut self, name: &'static str) -> String {
        String::from_utf8_lossy(&self.text(name)).into_owned()
    }

    fn printed(&mut self, name: &'static str) -> String {
        self.seen.insert(name);
        String::from_utf8_lossy(&self.values.print(name)).into_owned()
    }
}

/// Returns a path's bytes, as they are on disk.
pub(crate) fn path_bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().to_os_string().into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;
    use crate::table::{self, Class};

    #[test]
    fn each_used_directive_is_a_field_and_no_other() {
        let values = Values::defaults();
        let mut fields = Fields::of(&values);
        Config::read(&mut fields, &Statements::default());
        let used: BTreeSet<&str> = table::rows().filter(|row| row.class == Class::Used).map(|row| row.name).collect();
        assert_eq!(fields.seen, used);
    }

    #[test]
    fn each_word_of_a_choice_has_a_meaning_of_its_own() {
        for row in table::rows().filter(|row| row.class == Class::Used) {
            let Kind::Choice(words) = row.kind else { continue };
            let configs = words.iter().map(|(_, number)| {
                let mut values = Values::defaults();
                values.put(table::find(row.name.as_bytes()).unwrap(), Value::Choice(*number));
                Config::from_values(&values, &Statements::default())
            });
            let configs: Vec<Config> = configs.collect();
            // Both directives are read by name where they are used, or by another one.
            if ["enable-protected-configs", "appendfsync"].contains(&row.name) {
                continue;
            }
            for (at, config) in configs.iter().enumerate() {
                assert!(!configs[..at].contains(config), "{}: {:?}", row.name, words[at]);
            }
        }
    }

    #[test]
    fn paths_are_below_dir() {
        let mut values = Values::defaults();
        values.put(table::find(b"dir").unwrap(), Value::Text(b"/data".to_vec()));
        values.put(table::find(b"logfile").unwrap(), Value::Text(b"a.log".to_vec()));
        values.put(table::find(b"pidfile").unwrap(), Value::Text(b"/run/a.pid".to_vec()));
        let config = Config::from_values(&values, &Statements::default());
        assert_eq!(config.logfile, Some("/data/a.log".into()));
        assert_eq!(config.pidfile, Some("/run/a.pid".into()));
        assert_eq!(config.unixsocket, None);
    }
}
