//! The store as the configuration asks for it: the split of the memory budget, the base, and the directives that CONFIG
//! SET changes in them while the server runs.

use crate::datadir;
use crate::raft::Identity;
use crate::replication::to_redis::file::kept_after;
use haypile_config::{ChangeStream, Compression, Config, Durability, Engine as EngineKind, Size};
use haypile_engine::Engine;
use haypile_log::Index;
use haypile_store::base::Base;
use haypile_store::{DiskFree, MemoryBase, Progress, Reserve, Store, StoreOptions};
use haypile_store_rocks::{Options as RocksOptions, Rocks};
use haypile_types::EncodingLimit;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;

/// Bytes of the log that a member of a Raft group keeps beyond what its own recovery needs, where nothing else is
/// configured: any member may have to bring another one up to date that was away.
const GROUP_LOG_BYTES: u64 = 1 << 30;

/// The memory budget and its shares, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub total: u64,
    /// One generation: two exist at a time, one that fills and one that is flushed.
    pub memtable: u64,
    pub row_cache: u64,
    pub block_cache: u64,
    /// Records of the log that are not synced yet.
    pub unsynced: u64,
    pub presence: u64,
}

impl Budget {
    /// Returns the bytes of all generations of the memtable that exist at a time: without a base there is one.
    pub fn memtables(&self) -> u64 {
        if self.block_cache == 0 { self.memtable } else { 2 * self.memtable }
    }

    /// Splits the budget: the shares are parts of 64, where the configuration does not give sizes. The rest, an eighth
    /// and more, is for connections, for the flush's and compactions' buffers, and for memory that the allocator cannot
    /// hand out.
    pub fn split(config: &Config, available: &haypile_config::memory::Available) -> Budget {
        let total = config.memory_budget(available);
        let share = |parts: u64| total / 64 * parts;
        // RocksDB ends the process if it cannot have its block cache.
        let size = |size: Size, parts: u64| size.or(share(parts)).min(available.bound());
        if config.engine == EngineKind::Memory {
            return Budget {
                total,
                memtable: share(52),
                row_cache: 0,
                block_cache: 0,
                unsynced: share(2).max(8 * MIB),
                presence: 0,
            };
        }
        Budget {
            total,
            memtable: size(config.memtable_size, 13),
            row_cache: size(config.row_cache_size, 5),
            // Room for filters and indexes: where they do not fit, each SET of a new key reads the disk, and each GET
            // reads it twice.
            block_cache: size(config.block_cache_size, 13),
            unsynced: share(4).clamp(8 * MIB, 128 * MIB),
            // Eight bytes for each key that was flushed lately; half full the set forgets next to nothing.
            presence: share(4),
        }
    }

    /// Logs where the machine has less than the configuration asks for.
    pub fn warn(&self, config: &Config) {
        let asked = [
            ("maxmemory", config.maxmemory, self.total),
            ("memtable-size", config.memtable_size.or(0), self.memtable),
            ("row-cache-size", config.row_cache_size.or(0), self.row_cache),
            ("block-cache-size", config.block_cache_size.or(0), self.block_cache),
        ];
        for (name, asked, taken) in asked.into_iter().filter(|(_, asked, taken)| asked > taken) {
            let (asked, taken) = (asked / MIB, taken / MIB);
            tracing::warn!("'{name}' asks for {asked} MB, more than there is: it counts as {taken} MB");
        }
    }
}

/// Opens the base and the store of `config.dir`, to lead or to follow a master; replays the log.
///
/// # Errors
/// A text for people.
pub fn open(
    config: &Config,
    budget: &Budget,
    follows: bool,
    progress: impl FnMut(Progress),
) -> Result<Arc<Store>, String> {
    open_through(config, budget, follows, None, progress)
}

/// Opens the base and the store of `config.dir`, to lead or to follow a master; replays the log, without its records
/// behind `keep`, if that is given.
///
/// # Errors
/// A text for people.
pub fn open_through(
    config: &Config,
    budget: &Budget,
    follows: bool,
    keep: Option<Index>,
    progress: impl FnMut(Progress),
) -> Result<Arc<Store>, String> {
    let mut options = store_options(config, budget);
    options.log.follows = follows;
    options.log.keep_through = keep;
    // All of the log stays until the archiver holds what it needs: how far the archive has these data is not known yet.
    let archived = (!config.archive.to.is_empty()).then_some(Index(0));
    options.log.kept_after = kept_after(&config.dir).into_iter().chain(archived).min();
    if let Some(identity) = Identity::of(config)? {
        (options.in_group, options.log.follows, options.log.kept_after) = (true, true, archived);
        if identity.begins_empty() {
            options.log.founding = Some(identity.group);
            // Records name rows by the hashes of their keys, so that all members have one seed.
            options.hash_seed = identity.founding.hash_seed();
        }
        // A member acknowledges what is on its disk, and nothing else.
        options.log.durability = haypile_log::Durability::Fsync;
        if config.log_retention.bytes == 0 {
            options.log.retention.bytes = GROUP_LOG_BYTES;
        }
    }
    if let (Some(reserve), Some(free)) = (&options.reserve, (options.disk_free.0)()) {
        // On a full disk the base cannot even be opened while the reserve holds its room.
        reserve.settle(free, config.disk_free_bytes_min, false);
    }
    let base: Arc<dyn Base> = match config.engine {
        EngineKind::Memory => Arc::new(MemoryBase::default()),
        EngineKind::RocksDb => {
            let base = Rocks::open(&datadir::base_dir(&config.dir), rocks_options(config, budget));
            Arc::new(base.map_err(|error| format!("The data in {} cannot be opened: {error}", config.dir.display()))?)
        }
    };
    if config.engine == EngineKind::RocksDb {
        datadir::tell(&mut options.log, &config.dir, true)?;
    }
    let store = Store::open(options, base, progress)
        .map_err(|error| format!("The data in {} cannot be opened: {error}", config.dir.display()))?;
    if config.engine == EngineKind::RocksDb
        && let Err(why) = datadir::expect_end(&config.dir)
    {
        // The next start tries again.
        tracing::warn!("{why}");
    }
    end_membership(&store, config)?;
    apply_encoding_limits(&store, config);
    Ok(store)
}

/// Begins a history where the directory was a member's until its file `raft.member` was removed: members that were left
/// behind may have had other records after the ones that it has.
fn end_membership(store: &Store, config: &Config) -> Result<(), String> {
    let ballot = datadir::ballot_file(&config.dir);
    if Identity::of(config)?.is_some() || !ballot.exists() {
        return Ok(());
    }
    let start = store.log().begin_history().map_err(|error| error.to_string())?;
    tracing::info!("the data in {} are no member's any more: history {}", config.dir.display(), start.history);
    let removed = std::fs::remove_file(&ballot).and_then(|()| datadir::sync_dir(&config.dir));
    removed.map_err(|error| format!("Can't remove {}: {error}", ballot.display()))
}

fn store_options(config: &Config, budget: &Budget) -> StoreOptions {
    let mut log = haypile_log::Options::new(datadir::log_dir(&config.dir));
    log.segment_bytes = config.log_segment_bytes;
    log.durability = log_durability(config.durability);
    log.unsynced_bytes_max = budget.unsynced;
    log.retention.bytes = config.log_retention.bytes;
    log.retention.age_ms = if config.log_retention.age_s == 0 { u64::MAX } else { config.log_retention.age_s * 1000 };
    let reserve = Reserve::at(log.files.clone(), datadir::reserve_file(&config.dir));
    StoreOptions {
        log,
        databases: config.databases,
        memtable_bytes: budget.memtable,
        flush_log_bytes: config.flush_log_bytes,
        row_cache_bytes: budget.row_cache,
        lends: lends(config),
        presence_bytes: budget.presence,
        txn_bytes_max: config.txn_bytes_max,
        blind_set: config.blind_set,
        memory_only: config.engine == EngineKind::Memory,
        in_group: false,
        disk_free_min_bytes: config.disk_free_bytes_min,
        disk_free: disk_free(&config.dir),
        reserve: Some(Arc::new(reserve)),
        plain: haypile_types::key::PLAIN,
        hash_seed: RandomState::new().build_hasher().finish(),
    }
}

/// Whether the row cache has what the memtable does not use: who gives one of their sizes means it.
fn lends(config: &Config) -> bool {
    config.memtable_size == Size::Auto && config.row_cache_size == Size::Auto
}

fn rocks_options(config: &Config, budget: &Budget) -> RocksOptions {
    let compression = match config.compression {
        Compression::Lz4 => haypile_store_rocks::Compression::Lz4,
        Compression::Zstd => haypile_store_rocks::Compression::Zstd,
        Compression::None => haypile_store_rocks::Compression::None,
    };
    RocksOptions {
        cache_bytes: budget.block_cache,
        compression,
        bottommost_compression: compression,
        direct_reads: config.direct_reads,
        compaction_bytes_per_s: config.compactions.bytes_per_s,
        ..RocksOptions::default()
    }
}

fn log_durability(durability: Durability) -> haypile_log::Durability {
    match durability {
        Durability::Os => haypile_log::Durability::Os,
        Durability::Fsync => haypile_log::Durability::Fsync,
    }
}

fn disk_free(dir: &Path) -> DiskFree {
    let dir = dir.to_owned();
    DiskFree(Arc::new(move || {
        let disk = rustix::fs::statvfs(&dir).ok()?;
        Some(disk.f_bavail * disk.f_frsize)
    }))
}

fn counts_frequency(policy: &str) -> bool {
    policy.ends_with("-lfu")
}

/// Directives that a running store follows.
const FOLLOWED: &[&str] = &[
    "durability",
    "appendfsync",
    "replicas-to-ack",
    "replicas-to-ack-timeout",
    "replicas-to-ack-on-timeout",
    "blind-set",
    "flush-log-bytes",
    "disk-free-min",
    "txn-bytes-max",
    "proto-max-bulk-len",
    "maxmemory-policy",
    "lfu-log-factor",
    "lfu-decay-time",
    "maxmemory",
    "memtable-size",
    "row-cache-size",
    "block-cache-size",
    "change-stream",
];

/// The directives among these that change the budget.
const MEMORY: &[&str] = &["maxmemory", "memtable-size", "row-cache-size", "block-cache-size"];

/// Lets CONFIG SET reach the running store.
pub fn follow(engine: &Arc<Engine>) {
    // The settings belong to the engine, so the listener holds it weakly.
    let follower = Arc::downgrade(engine);
    engine.settings.listen(move |changed, _, after| {
        if let Some(engine) = follower.upgrade() {
            let is_followed = |name| FOLLOWED.contains(name) || EncodingLimit::of_directive(name).is_some();
            let followed = changed.iter().filter(|change| is_followed(&change.name));
            let store = engine.store_arc();
            followed.for_each(|change| {
                if let Some(store) = &store {
                    apply(&engine, store, change.name, after);
                }
                if MEMORY.contains(&change.name) {
                    Budget::split(after, &haypile_config::memory::detect()).warn(after);
                }
            });
        }
        Ok(())
    });
}

/// Tells a store all directives that CONFIG SET may have changed since its configuration was read.
pub fn apply_all(engine: &Engine, store: &Store) {
    let config = engine.settings.config();
    FOLLOWED.iter().for_each(|name| apply(engine, store, name, &config));
    apply_encoding_limits(store, &config);
}

fn apply_encoding_limits(store: &Store, config: &Config) {
    for (directive, value) in &config.encoding_limits {
        let limit = EncodingLimit::of_directive(directive).expect("each directive of an encoding has its limit");
        limit.set(store, *value);
    }
}

fn apply(engine: &Engine, store: &Store, name: &str, config: &Config) {
    match name {
        name if EncodingLimit::of_directive(name).is_some() => apply_encoding_limits(store, config),
        "durability" | "appendfsync" if !engine.group.is_member() => {
            store.log().set_durability(log_durability(config.durability));
        }
        "replicas-to-ack" | "replicas-to-ack-timeout" | "replicas-to-ack-on-timeout" => {
            engine.look_at_confirmations_by(config)
        }
        "blind-set" => store.set_blind_set(config.blind_set),
        "flush-log-bytes" | "disk-free-min" => {
            store.set_flush_bounds(config.flush_log_bytes, config.disk_free_bytes_min);
        }
        "txn-bytes-max" => store.set_txn_bytes_max(config.txn_bytes_max),
        "proto-max-bulk-len" => store.set_value_bytes_max(config.proto_bulk_bytes_max),
        "maxmemory-policy" => store.access_policy.set_counts(counts_frequency(&config.maxmemory_policy)),
        "lfu-log-factor" => store.access_policy.set_log_factor(config.lfu_log_factor),
        "lfu-decay-time" => store.access_policy.set_decay_minutes(config.lfu_decay_minutes),
        "maxmemory" | "memtable-size" | "row-cache-size" | "block-cache-size" => {
            let budget = Budget::split(config, &haypile_config::memory::detect());
            store.set_memory(budget.memtable, budget.row_cache, budget.block_cache);
            store.set_lends(lends(config));
            engine.process.memory_budget.store(budget.total, Ordering::Relaxed);
        }
        "change-stream" => {
            store.note_before(config.replication.change_stream == ChangeStream::Before);
            store.state_for_readers(config.replication.change_stream != ChangeStream::No);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_config::memory::{Available, Source};
    use haypile_types::limits::LIMITS;

    #[test]
    fn each_directive_of_an_encoding_has_its_limit_and_its_default() {
        let mut directives = Config::defaults(Path::new("/data")).encoding_limits;
        let mut limits = LIMITS.map(|(_, directive, default)| (directive, default));
        directives.sort_unstable();
        limits.sort_unstable();
        assert_eq!(directives, limits);
    }

    #[test]
    fn the_shares_fit_the_budget() {
        let available = Available { bytes: 8 << 30, source: Source::Machine };
        let mut config = Config::defaults(Path::new("/data"));
        for maxmemory in [0, 64 * MIB, 256 * MIB, 64 << 30] {
            config.maxmemory = maxmemory;
            let budget = Budget::split(&config, &available);
            // The generation that fills may be a quarter above its size before writers have to wait.
            let used =
                budget.memtable * 9 / 4 + budget.row_cache + budget.block_cache + budget.unsynced + budget.presence;
            assert!(used <= budget.total * 15 / 16, "{budget:?}");
        }
    }

    #[test]
    fn a_size_that_is_given_is_taken() {
        let available = Available { bytes: 8 << 30, source: Source::Machine };
        let mut config = Config::defaults(Path::new("/data"));
        config.row_cache_size = haypile_config::Size::Bytes(0);
        assert_eq!(Budget::split(&config, &available).row_cache, 0);
        config.engine = EngineKind::Memory;
        assert_eq!(Budget::split(&config, &available).block_cache, 0);
    }

    #[test]
    fn nothing_is_larger_than_the_machine() {
        let available = Available { bytes: 8 << 30, source: Source::Cgroup };
        let mut config = Config::defaults(Path::new("/data"));
        config.maxmemory = u64::MAX;
        assert_eq!(Budget::split(&config, &available).total, 8 << 30);
        config.maxmemory = 1 << 30;
        config.block_cache_size = Size::Bytes(u64::MAX);
        assert_eq!(Budget::split(&config, &available).block_cache, 8 << 30);
        let unknown = Available { bytes: 1 << 30, source: Source::Unknown };
        config.maxmemory = 4 << 30;
        assert_eq!(Budget::split(&config, &unknown).total, 4 << 30, "a guess bounds nothing");
    }
}
