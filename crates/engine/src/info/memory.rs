//! The section `memory`. What the memory is for in detail stands in `store`, `cache` and `rocksdb`.

use super::field::{Field, constant, gauge, real, text};
use crate::run::engine::Engine;
use crate::run::memory::{resident_bytes, swapped_bytes};
use crate::run::scripts::local;
use std::sync::atomic::Ordering::Relaxed;

const NO_REPLICAS: &str = "Replicas are sent the log itself, which is on the disk.";
const NO_DEFRAG: &str = "The allocator needs no help.";

pub(super) const FIELDS: &[Field] = &[
    gauge("used_memory", used, "Bytes that the allocator has given out."),
    text("used_memory_human", |engine| human(used(engine)), "The same for people."),
    gauge("used_memory_rss", |_| resident_bytes(), "Bytes that the process has from the operating system."),
    text("used_memory_rss_human", |_| human(resident_bytes()), "The same for people."),
    gauge("used_memory_peak", Engine::memory_peak, "The largest `used_memory` that was seen, once a second."),
    text("used_memory_peak_human", |engine| human(engine.memory_peak()), "The same for people."),
    text("used_memory_peak_perc", |engine| percent(used(engine), engine.memory_peak()), "`used_memory` of the peak."),
    gauge("used_memory_overhead", |engine| used(engine).saturating_sub(dataset(engine)), "What is no data."),
    gauge("used_memory_startup", Engine::memory_at_start, "When the data was loaded."),
    gauge("used_memory_dataset", dataset, "Data in memory: memtables, the row cache and the block cache."),
    text("used_memory_dataset_perc", |engine| percent(dataset(engine), used(engine)), "Of `used_memory`."),
    gauge("allocator_allocated", |engine| memory(engine).allocated, "Bytes that the allocator has given out."),
    gauge("allocator_active", |engine| memory(engine).active, "Bytes of the pages that these lie in."),
    gauge("allocator_resident", |engine| memory(engine).resident, "Bytes that the allocator has from the system."),
    gauge("total_system_memory", |_| system(), "Bytes of memory that the machine has."),
    text("total_system_memory_human", |_| human(system()), "The same for people."),
    gauge("used_memory_lua", interpreters, "Bytes that the interpreters of all threads take."),
    gauge("used_memory_vm_eval", interpreters, "The same."),
    text("used_memory_lua_human", |engine| human(interpreters(engine)), "The same for people."),
    gauge("used_memory_scripts_eval", texts, "Bytes of the texts in the cache of scripts."),
    gauge("number_of_cached_scripts", |engine| engine.scripts.size().0 as u64, "Scripts in the cache."),
    gauge("number_of_functions", |engine| functions(engine).len() as u64, "Functions of all libraries."),
    gauge("number_of_libraries", |engine| functions(engine).libraries().len() as u64, "Libraries of functions."),
    constant("used_memory_vm_functions", "0", "Functions run on the interpreters of scripts."),
    gauge("used_memory_vm_total", interpreters, "Bytes that the interpreters of all threads take."),
    text("used_memory_vm_total_human", |engine| human(interpreters(engine)), "The same for people."),
    gauge("used_memory_functions", |engine| functions(engine).bytes() as u64, "Bytes of all libraries."),
    gauge("used_memory_scripts", texts, "Bytes of the texts in the cache of scripts."),
    text("used_memory_scripts_human", |engine| human(texts(engine)), "The same for people."),
    gauge(
        "maxmemory",
        |engine| engine.settings.config().maxmemory,
        "The directive; 0 stands for a share of the machine.",
    ),
    text("maxmemory_human", |engine| human(engine.settings.config().maxmemory), "The same for people."),
    text(
        "maxmemory_policy",
        |engine| engine.settings.config().maxmemory_policy.clone(),
        "The directive; nothing is evicted.",
    ),
    gauge("memory_budget", |engine| engine.process.memory_budget.load(Relaxed), "The budget that is shared out."),
    real(
        "allocator_frag_ratio",
        |engine| ratio(memory(engine).active, memory(engine).allocated),
        2,
        "`allocator_active` to `allocator_allocated`.",
    ),
    text(
        "allocator_frag_bytes",
        |engine| difference(memory(engine).active, memory(engine).allocated),
        "`allocator_active` less `allocator_allocated`.",
    ),
    real(
        "allocator_rss_ratio",
        |engine| ratio(memory(engine).resident, memory(engine).active),
        2,
        "`allocator_resident` to `allocator_active`.",
    ),
    text(
        "allocator_rss_bytes",
        |engine| difference(memory(engine).resident, memory(engine).active),
        "`allocator_resident` less `allocator_active`.",
    ),
    real(
        "rss_overhead_ratio",
        |engine| ratio(resident_bytes(), memory(engine).resident),
        2,
        "`used_memory_rss` to `allocator_resident`.",
    ),
    text(
        "rss_overhead_bytes",
        |engine| difference(resident_bytes(), memory(engine).resident),
        "`used_memory_rss` less `allocator_resident`.",
    ),
    real(
        "mem_fragmentation_ratio",
        |engine| ratio(resident_bytes(), touched(engine)),
        2,
        "`used_memory_rss` to `used_memory`, without what was allocated and never touched: below 1 only where memory is swapped out.",
    ),
    text(
        "mem_fragmentation_bytes",
        |engine| difference(resident_bytes(), touched(engine)),
        "`used_memory_rss` less `used_memory`, without what was allocated and never touched.",
    ),
    constant("mem_not_counted_for_evict", "0", "Nothing is evicted."),
    constant("mem_replication_backlog", "0", NO_REPLICAS),
    constant("mem_total_replication_buffers", "0", NO_REPLICAS),
    constant("mem_clients_slaves", "0", NO_REPLICAS),
    gauge(
        "mem_clients_normal",
        Engine::client_bytes,
        "Bytes that clients take: requests, replies, messages, queued commands, watched keys and subscriptions.",
    ),
    gauge(
        "maxmemory_clients",
        |engine| engine.client_memory.bound().unwrap_or(0),
        "`maxmemory-clients` in bytes; 0 is no bound.",
    ),
    constant("mem_cluster_links", "0", "There is no bus of a cluster."),
    gauge(
        "mem_aof_buffer",
        |engine| engine.store().map_or(0, |store| store.log().stats().unsynced_bytes),
        "Bytes of the log that are kept until they are synced.",
    ),
    constant("mem_allocator", "jemalloc", "The allocator of the whole process."),
    constant("active_defrag_running", "0", NO_DEFRAG),
    constant("lazyfree_pending_objects", "0", "What is deleted is not freed piece by piece: see `reclaim_jobs`."),
    constant("lazyfreed_objects", "0", "What is deleted is not freed piece by piece: see `reclaimed_ranges`."),
];

/// Bytes of the allocator.
struct Memory {
    allocated: u64,
    /// Bytes of the pages that the allocated bytes lie in.
    active: u64,
    /// Bytes of all pages that the allocator holds.
    resident: u64,
}

fn memory(engine: &Engine) -> Memory {
    let [allocated, active, resident] = (engine.process.allocator.figures)();
    Memory { allocated, active, resident }
}

fn used(engine: &Engine) -> u64 {
    memory(engine).allocated
}

/// Returns the allocated bytes that were touched: those of tables and caches that have not filled yet are not.
fn touched(engine: &Engine) -> u64 {
    used(engine).min(resident_bytes() + swapped_bytes())
}

fn functions(engine: &Engine) -> std::rc::Rc<haypile_commands::function::Functions> {
    local::functions(&engine.store().map_or_else(Default::default, |store| store.facts()))
}

fn interpreters(engine: &Engine) -> u64 {
    engine.scripts.interpreter_bytes.load(Relaxed) as u64
}

fn texts(engine: &Engine) -> u64 {
    engine.scripts.size().1 as u64
}

fn dataset(engine: &Engine) -> u64 {
    const DATA: &[&str] = &[
        "memtable_active_bytes",
        "memtable_frozen_bytes",
        "memtable_flushed_bytes",
        "row_cache_bytes",
        "block_cache_bytes",
    ];
    engine.figures().iter().filter(|(_, name, _)| DATA.contains(name)).map(|(_, _, bytes)| bytes).sum()
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", ratio(part, whole) * 100.0)
}

fn difference(more: u64, less: u64) -> String {
    (more as i64 - less as i64).to_string()
}

/// Formats a size as Redis prints it: `1.50M`.
fn human(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    match UNITS.iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => format!("{:.2}{unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes}B"),
    }
}

fn system() -> u64 {
    let facts = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib =
        facts.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_printed_as_redis_does() {
        assert_eq!([human(0), human(1023), human(1536), human(3 << 30)], ["0B", "1023B", "1.50K", "3.00G"]);
    }

    #[test]
    fn the_process_and_the_machine_have_memory() {
        assert!(resident_bytes() > 1 << 20 && system() > resident_bytes());
    }
}
