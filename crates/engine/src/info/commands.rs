//! `# Commandstats`, `# Errorstats`, `# Latencystats` and `# Slowlog`, and the distribution of a command's times.

use crate::clients::statistics::counters::{Count, Distribution};
use crate::clients::statistics::{OfCommand, Wait};
use crate::run::engine::Engine;
use haypile_commands::host::CommandTimes;
use haypile_commands::{CommandId, Entry};
use std::fmt::Write;

/// Entries of the slow log whose times INFO tells.
const SLOWLOG_ENTRIES: usize = 128;

/// The numbers of one command, all event loops together.
pub(crate) struct Totals {
    pub calls: u64,
    pub ns: u64,
    pub rejected: u64,
    pub failed: u64,
}

pub(crate) fn totals(engine: &Engine, id: CommandId) -> Totals {
    let sum = |count: fn(&OfCommand) -> &Count| {
        engine.all_counters().iter().map(|loop_| count(loop_.commands_by_id.of(id)).get()).sum()
    };
    Totals {
        calls: sum(|of| &of.calls),
        ns: sum(|of| &of.ns),
        rejected: sum(|of| &of.rejected),
        failed: sum(|of| &of.failed),
    }
}

/// Microseconds that commands took of event loops: without those in which they waited, or ran on the I/O pool.
pub(super) fn us_in_commands(engine: &Engine) -> u64 {
    let all: u64 = entries(engine).map(|entry| totals(engine, entry.id).ns).sum();
    // The log is not waited for in a command's own time.
    let waited = Wait::ALL.into_iter().filter(|wait| *wait != Wait::Gate);
    let waited: u64 = waited.map(|wait| super::together(engine, |loop_| &loop_.waits_ns[wait as usize]).sum()).sum();
    all.saturating_sub(waited) / 1000
}

/// A command's times in nanoseconds; None if there are none.
pub(crate) fn distribution(engine: &Engine, id: CommandId) -> Option<Distribution> {
    let mut all = Distribution::default();
    engine.all_counters().iter().filter_map(|loop_| loop_.commands_by_id.of(id).times()).for_each(|of| all.add(of));
    (all.total() > 0).then_some(all)
}

/// The commands that a client can call and their subcommands, in the order of the table.
pub(crate) fn entries(engine: &Engine) -> impl Iterator<Item = &Entry> {
    let table = &engine.table;
    (0..table.ids()).map(|id| table.entry(CommandId(id as u16)))
}

/// Powers of two up to Redis's bound of a second, and on.
const POWERS: std::ops::Range<u32> = 10..40;

/// Returns a command's times as LATENCY HISTOGRAM shows them. Redis's bounds are powers of two of nanoseconds and the
/// rest of the bucket, of 128 to a power, that begins there, which is shown in whole microseconds.
pub(crate) fn times(engine: &Engine, id: CommandId) -> Option<CommandTimes> {
    let all = distribution(engine, id)?;
    let (mut until_us, mut before) = (Vec::new(), 0);
    for power in POWERS {
        let bound_ns = 1u64 << power;
        let calls = if power + 1 == POWERS.end { all.total() } else { all.below(bound_ns) };
        if calls > before {
            until_us.push(((bound_ns + (bound_ns >> 7) - 1) / 1000, calls));
            before = calls;
        }
    }
    Some(CommandTimes { calls: all.total(), until_us })
}

pub(crate) fn commandstats(engine: &Engine, out: &mut String) {
    for entry in entries(engine) {
        let Totals { calls, ns, rejected, failed } = totals(engine, entry.id);
        if calls + rejected + failed == 0 {
            continue;
        }
        let us = ns / 1000;
        let per_call = if calls == 0 { 0.0 } else { ns as f64 / 1000.0 / calls as f64 };
        let value = format!(
            "calls={calls},usec={us},usec_per_call={per_call:.2},rejected_calls={rejected},failed_calls={failed}"
        );
        super::field(out, &format!("cmdstat_{}", entry.full_name), &value);
    }
}

pub(crate) fn errorstats(engine: &Engine, out: &mut String) {
    for (kind, count) in engine.statistics.errors.counts() {
        // A name ends at a colon.
        let kind: String = kind.chars().map(|c| if c == ':' || c.is_control() { '_' } else { c }).collect();
        super::field(out, &format!("errorstat_{kind}"), &format!("count={count}"));
    }
}

pub(crate) fn latencystats(engine: &Engine, out: &mut String) {
    let percentiles = engine.settings.config().latency_percentiles.clone();
    for entry in entries(engine) {
        let Some(all) = distribution(engine, entry.id) else { continue };
        let shown: Vec<String> = percentiles
            .iter()
            .map(|percent| format!("p{percent}={:.3}", all.percentile(*percent) as f64 / 1000.0))
            .collect();
        super::field(out, &format!("latency_percentiles_usec_{}", entry.full_name), &shown.join(","));
    }
}

/// Writes for each entry of the slow log, by id, what it took and what of that it waited for, in microseconds.
pub(crate) fn slowlog(engine: &Engine, out: &mut String) {
    for (id, us, spent) in engine.statistics.slowlog.waits(SLOWLOG_ENTRIES) {
        let mut value = format!("usec={us}");
        for wait in Wait::ALL {
            write!(value, ",{}={}", wait.name(), spent.ns(wait) / 1000)
                .expect("a string takes all that is written to it");
        }
        super::field(out, &format!("slowlog_{id}"), &value);
    }
}

/// Fields whose names depend on what happens: the section, the form, what it tells.
pub(crate) const PATTERNS: &[(&str, &str, &str)] = &[
    (
        "Commandstats",
        "cmdstat_<command>",
        "Calls that ran, their microseconds until the reply was made (with all waits but that for the log), calls that were \
         refused, and calls that failed.",
    ),
    ("Errorstats", "errorstat_<word>", "Error replies by their first word: the server's own, and 128 words at most."),
    (
        "Latencystats",
        "latency_percentiles_usec_<command>",
        "Percentiles of the times until replies could leave; at most an eighth too high.",
    ),
    ("Slowlog", "slowlog_<id>", "What an entry of the slow log took, and what of that it waited for, in microseconds."),
    (
        "Waits",
        "wait_usec_<what>",
        "How often and how long commands waited for what: queue, disk, lock, stall, pool, gate.",
    ),
    (
        "Keyspace",
        "db<n>",
        "Keys, keys with a deadline, and hashes that have fields with one (`subexpiry`); `avg_ttl` is always 0.",
    ),
    ("Types", "types_db<n>", "Keys by type."),
    (
        "Sizes",
        "sizes_db<n>",
        "About how many bytes of the base a database takes, and of these: keys with strings and small collections, elements of large ones and of long strings, scores of sorted sets, the keys that large values belong to, deadlines. What is in memory only is not counted.",
    ),
];
