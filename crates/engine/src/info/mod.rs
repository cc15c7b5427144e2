//! INFO: facts about the server, from one table of sections and fields.
//!
//! Names are Redis's where Redis has the same fact; a fact that this server does not have is not made up. Nothing here is
//! kept: every field is read when it is asked for.

pub(crate) mod commands;

use crate::backups;
use crate::counters::{Counters, Distribution, Histogram};
use crate::engine::Engine;
use crate::statistics::Wait;
use haypile_commands::REDIS_VERSION;
use haypile_commands::host::InfoSection;
use haypile_store::{Counter, Txn};
use std::fmt::Write;
use std::sync::atomic::Ordering;

const fn section(name: &'static str, title: &'static str) -> InfoSection {
    InfoSection { name, title, usual: true }
}

/// One that INFO shows only where it is asked for, or all are.
const fn unusual(name: &'static str, title: &'static str) -> InfoSection {
    InfoSection { name, title, usual: false }
}

/// The sections in the order in which they are shown.
pub(crate) const SECTIONS: &[InfoSection] = &[
    section("server", "Server"),
    section("clients", "Clients"),
    section("memory", "Memory"),
    section("persistence", "Persistence"),
    section("stats", "Stats"),
    section("replication", "Replication"),
    section("cpu", "CPU"),
    section("modules", "Modules"),
    unusual("commandstats", "Commandstats"),
    section("errorstats", "Errorstats"),
    unusual("latencystats", "Latencystats"),
    unusual("slowlog", "Slowlog"),
    unusual("waits", "Waits"),
    section("store", "Store"),
    section("log", "Log"),
    section("cache", "Cache"),
    section("rocksdb", "RocksDB"),
    section("cluster", "Cluster"),
    section("keyspace", "Keyspace"),
];

/// A field: its section, its name and where its value comes from.
type Field = (&'static str, &'static str, fn(&Engine) -> String);

const FIELDS: &[Field] = &[
    ("server", "redis_version", |_| REDIS_VERSION.into()),
    ("server", "redis_mode", |_| "standalone".into()),
    ("server", "haypile_version", |engine| engine.process.version.into()),
    ("server", "os", |_| os()),
    ("server", "arch_bits", |_| usize::BITS.to_string()),
    ("server", "multiplexing_api", |_| "epoll".into()),
    ("server", "process_id", |_| std::process::id().to_string()),
    ("server", "run_id", |engine| engine.run_id.clone()),
    ("server", "tcp_port", |engine| engine.settings.config().port.to_string()),
    ("server", "server_time_usec", |engine| (engine.now_ms() * 1000).to_string()),
    ("server", "uptime_in_seconds", |engine| engine.started.elapsed().as_secs().to_string()),
    ("server", "uptime_in_days", |engine| (engine.started.elapsed().as_secs() / 86_400).to_string()),
    ("server", "executable", |engine| engine.process.executable.display().to_string()),
    ("server", "config_file", |engine| {
        engine.process.config_file.as_ref().map_or(String::new(), |path| path.display().to_string())
    }),
    ("server", "workers", |engine| engine.workers().to_string()),
    ("server", "io_pool_threads", |engine| engine.pool.threads().to_string()),
    ("clients", "connected_clients", |engine| engine.connected().to_string()),
    ("clients", "maxclients", |engine| engine.settings.config().maxclients.to_string()),
    ("clients", "total_watched_keys", |engine| engine.watches.count().to_string()),
    ("clients", "commands_waiting_for_locks", |engine| engine.locks.parked().to_string()),
    ("clients", "io_pool_queued", |engine| engine.pool.queued().to_string()),
    ("memory", "used_memory", |engine| engine.process.allocated_bytes().to_string()),
    ("memory", "used_memory_human", |engine| human(engine.process.allocated_bytes())),
    ("memory", "used_memory_rss", |_| resident_bytes().to_string()),
    ("memory", "used_memory_rss_human", |_| human(resident_bytes())),
    ("memory", "maxmemory", |engine| engine.settings.config().maxmemory.to_string()),
    ("memory", "maxmemory_human", |engine| human(engine.settings.config().maxmemory)),
    ("memory", "maxmemory_policy", |engine| engine.settings.config().maxmemory_policy.clone()),
    ("memory", "memory_budget", |engine| engine.process.memory_budget.load(Ordering::Relaxed).to_string()),
    ("memory", "mem_allocator", |_| "jemalloc".into()),
    ("persistence", "loading", |engine| u8::from(engine.store().is_none()).to_string()),
    ("persistence", "async_loading", |_| "0".into()),
    ("persistence", "durability", |engine| format!("{:?}", engine.settings.config().durability).to_lowercase()),
    ("stats", "total_connections_received", |engine| sum(engine, |loop_| loop_.connections.get())),
    ("stats", "total_commands_processed", |engine| engine.commands_processed().to_string()),
    ("stats", "instantaneous_ops_per_sec", |engine| engine.commands_per_second().to_string()),
    ("stats", "total_net_input_bytes", |engine| sum(engine, |loop_| loop_.input_bytes.get())),
    ("stats", "total_net_output_bytes", |engine| sum(engine, |loop_| loop_.output_bytes.get())),
    ("stats", "rejected_connections", |engine| sum(engine, |loop_| loop_.rejected_connections.get())),
    ("stats", "expired_keys", |engine| engine.expired_keys.get().to_string()),
    ("stats", "evicted_keys", |_| "0".into()),
    ("stats", "keyspace_hits", |engine| {
        let of_loops: u64 = engine.all_counters().iter().map(|loop_| loop_.keyspace_hits.get()).sum();
        (of_loops + engine.keyspace_hits.get()).to_string()
    }),
    ("stats", "keyspace_misses", |engine| {
        let of_loops: u64 = engine.all_counters().iter().map(|loop_| loop_.keyspace_misses.get()).sum();
        (of_loops + engine.keyspace_misses.get()).to_string()
    }),
    ("stats", "total_error_replies", |engine| sum(engine, |loop_| loop_.error_replies.get())),
    ("stats", "event_loop_ticks", |engine| sum(engine, |loop_| loop_.ticks.get())),
    ("stats", "commands_that_loaded_rows", |engine| sum(engine, |loop_| loop_.loads.get())),
    ("stats", "commands_on_io_pool", |engine| sum(engine, |loop_| loop_.offloaded.get())),
    ("stats", "lock_waits", |engine| sum(engine, |loop_| loop_.lock_waits.get())),
    ("stats", "slowed_writes", |engine| sum(engine, |loop_| loop_.slowed.get())),
    ("stats", "replies_waited_for_log", |engine| sum(engine, |loop_| loop_.gate_waits.get())),
    ("replication", "role", |_| "master".into()),
    ("replication", "connected_slaves", |_| "0".into()),
    ("cpu", "used_cpu_sys", |_| format!("{:.6}", cpu_seconds(CpuTime::System))),
    ("cpu", "used_cpu_user", |_| format!("{:.6}", cpu_seconds(CpuTime::User))),
    ("cluster", "cluster_enabled", |_| "0".into()),
    ("waits", "reply_usec_inline", |engine| percentiles(engine, |loop_| &loop_.inline_us, 1)),
    ("waits", "reply_usec_waited", |engine| percentiles(engine, |loop_| &loop_.waited_us, 1)),
];

/// Appends the fields of a section.
pub(crate) fn write(engine: &Engine, txn: Option<&Txn<'_>>, section: &str, out: &mut String) {
    for (_, name, value) in FIELDS.iter().filter(|(of, _, _)| *of == section) {
        field(out, name, &value(engine));
    }
    if section == "persistence" {
        backups::FIELDS.iter().for_each(|(name, value)| field(out, name, &value(engine)));
    }
    match section {
        "persistence" if engine.store().is_none() => {
            backups::loading_fields(engine).iter().for_each(|(name, value)| field(out, name, &value.to_string()));
        }
        "replication" => {
            if let Some(store) = engine.store() {
                field(out, "master_replid", &store.history().to_string());
                field(out, "master_repl_offset", &store.log().last().0.to_string());
            }
        }
        "commandstats" => commands::commandstats(engine, out),
        "errorstats" => commands::errorstats(engine, out),
        "latencystats" => commands::latencystats(engine, out),
        "slowlog" => commands::slowlog(engine, out),
        "waits" => {
            for wait in Wait::ALL {
                let value = percentiles(engine, |loop_| &loop_.waits_ns[wait as usize], 1000);
                field(out, &format!("wait_usec_{}", wait.name()), &value);
            }
        }
        "keyspace" => keyspace(engine, txn, out),
        _ => {
            for (of, name, value) in engine.store().map(|store| store.figures()).unwrap_or_default() {
                if of == section {
                    field(out, name, &value.to_string());
                }
            }
        }
    }
}

fn field(out: &mut String, name: &str, value: &str) {
    write!(out, "{name}:{value}\r\n").expect("a string takes all that is written to it");
}

/// The databases that hold keys; within a transaction as it sees them.
fn keyspace(engine: &Engine, txn: Option<&Txn<'_>>, out: &mut String) {
    let Some(store) = engine.store() else { return };
    for database in 0..engine.databases {
        let count = |counter| match txn {
            Some(txn) => txn.peek_counter(txn.space(database), counter),
            None => store.counter(database, counter),
        };
        let keys = count(Counter::Keys);
        if keys > 0 {
            let expires = count(Counter::Deadlines);
            field(out, &format!("db{database}"), &format!("keys={keys},expires={expires},avg_ttl=0"));
        }
    }
}

fn sum(engine: &Engine, count: impl Fn(&Counters) -> u64) -> String {
    engine.all_counters().iter().map(count).sum::<u64>().to_string()
}

/// In units of `unit`.
fn percentiles(engine: &Engine, of: impl Fn(&Counters) -> &Histogram, unit: u64) -> String {
    let mut all = Distribution::default();
    engine.all_counters().iter().for_each(|loop_| all.add(of(loop_)));
    let at = |percent| all.percentile(percent) / unit;
    format!("count={},p50={},p99={},p99.9={},max={}", all.total(), at(50.0), at(99.0), at(99.9), at(100.0))
}

/// As Redis prints sizes: `1.50M`.
fn human(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    match UNITS.iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => format!("{:.2}{unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes}B"),
    }
}

fn os() -> String {
    let fact = |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {} {}", fact("ostype").trim(), fact("osrelease").trim(), std::env::consts::ARCH)
}

/// Bytes of memory that the process has from the operating system.
pub(crate) fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.and_then(|text| text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()));
    // The page size of all platforms that this runs on.
    resident.unwrap_or(0) * 4096
}

#[derive(Clone, Copy)]
enum CpuTime {
    /// The position of the field behind the process's name in /proc/self/stat.
    User = 11,
    System = 12,
}

/// Processor time of all threads. The kernel counts in hundredths of a second here, on every Linux.
fn cpu_seconds(which: CpuTime) -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks =
        stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(which as usize)?.parse::<u64>().ok());
    ticks.unwrap_or(0) as f64 / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_belongs_to_a_section_and_is_there_once() {
        for (at, (of, name, _)) in FIELDS.iter().enumerate() {
            assert!(SECTIONS.iter().any(|section| section.name == *of), "{of}");
            assert!(!FIELDS[..at].iter().any(|(_, earlier, _)| earlier == name), "{name}");
        }
    }

    #[test]
    fn sizes_are_printed_as_redis_does() {
        assert_eq!([human(0), human(1023), human(1536), human(3 << 30)], ["0B", "1023B", "1.50K", "3.00G"]);
    }

    #[test]
    fn the_process_uses_memory_and_time() {
        assert!(resident_bytes() > 1 << 20);
        let mut sum = 0u64;
        while cpu_seconds(CpuTime::User) + cpu_seconds(CpuTime::System) < 0.01 {
            (0..1_000_000u64).for_each(|n| sum = std::hint::black_box(sum ^ n));
        }
    }
}
