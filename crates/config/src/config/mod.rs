//! The configuration as the rest of the server sees it: a field with a type for each directive that is used.
//!
//! Built from `Values` at the start and anew after each CONFIG SET; a `Config` never changes. The meaning of a field
//! stands in the table, in the row of the same name. The directives of following, of groups and of the log and
//! compactions have parts of their own here; `fields` reads a value by its name.

mod choices;
mod fields;
mod lines;
mod raft;
mod replication;
mod storage;
mod tls;

pub use choices::{
    ChangeStream, Compression, Durability, Engine, LogFormat, LogLevel, OnLateReplicas, Protected, Share, Size,
    Supervised,
};
pub(crate) use lines::Statements;
pub use lines::{Rename, UserLine};
pub use raft::Raft;
pub use replication::Replication;
pub use storage::{Compactions, Retention};

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use self::choices::{
    COMPRESSIONS, DURABILITIES, ENGINES, LIMIT_POLICIES, LOG_FORMATS, LOG_LEVELS, PROTECTED, PUBSUB_DEFAULTS,
    SUPERVISED,
};
use self::fields::Fields;
use self::tls::read_tls;
use crate::archive::Archive;
use crate::special::{Bind, Limit, addresses_of, limits_of};
use crate::tls::Tls;
use crate::value::Value;
use crate::values::Values;

/// All directives that are used.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    // Network.
    /// The port of TCP; 0 for none.
    pub port: u16,
    pub bind: Vec<Bind>,
    pub unixsocket: Option<PathBuf>,
    /// The mode of the socket's file; 0 for what `data_file_mode` gives.
    pub unixsocketperm: u32,
    /// The mode of files that are created.
    pub data_file_mode: u32,
    pub tcp_backlog: u32,
    /// Seconds between probes of an idle connection; 0 for no probes.
    pub tcp_keepalive_s: u32,
    /// Seconds after which an idle client is closed; 0 for never.
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
    /// The file of the log; None for standard output.
    pub logfile: Option<PathBuf>,
    pub log_format: LogFormat,
    /// The renames of `rename-command`, in the order of the lines.
    pub renames: Vec<Rename>,

    // Storage engine.
    /// The number of workers; 0 for one for each core.
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
    /// The number of backups that are kept; 0 for all.
    pub backups_keep: u32,
    pub archive: Archive,
    pub disk_free_bytes_min: u64,
    pub compactions: Compactions,

    // Memory.
    /// The memory budget in bytes; 0 for a share of the memory there is: see `Config::memory_budget`.
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
    /// The port of /metrics; 0 for none.
    pub metrics_port: u16,
    /// Whether /metrics is served over TLS.
    pub metrics_tls: bool,
    /// The logs of calls that stand out: microseconds from which one is slow, bytes from which its request, or its
    /// reply, is large (None = never), each with how many are kept.
    pub slow_calls: (Option<u64>, u64),
    pub large_requests: (Option<u64>, u64),
    pub large_replies: (Option<u64>, u64),
    /// Milliseconds from which on an event is kept for LATENCY; None if no events are kept.
    pub latency_threshold_ms: Option<u64>,
    pub latency_tracking: bool,
    /// The percentiles, each from 0 to 100.
    pub latency_percentiles: Vec<f64>,
}

/// The file into which a daemon without `pidfile` writes its process id.
const PIDFILE_OF_DAEMON: &str = "/var/run/haypile.pid";

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

/// Returns a path's bytes, as they are on disk.
pub(crate) fn path_bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().to_os_string().into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;
    use crate::table::{self, Class};
    use std::collections::BTreeSet;

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
