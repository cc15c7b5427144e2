//! The section `stats`: what was counted since the start, or since CONFIG RESETSTAT.

use super::commands;
use super::field::{Field, constant, counter, gauge, real, real_counter};
use crate::clients::statistics::counters::Counters;
use crate::run::engine::{Engine, Rate};
use haypile_acl::Reason;
use haypile_commands::host::Channels;

const NOT_COUNTED: &str =
    "What replicas are sent is not counted: `slave_lag_bytes` and `master_sync_*` say how far they are.";
const NO_SLAVES_KEYS: &str = "A replica takes no writes of its own.";
const NO_EVICTION: &str = "Nothing is evicted.";
const NO_FORK: &str = "Nothing is forked.";
const NO_DEFRAG: &str = "The allocator needs no help.";
const NO_SAMPLING: &str = "Expired keys are found by their deadlines, not by sampling.";
const NO_IO_THREADS: &str = "Event loops read and write themselves.";

pub(super) const FIELDS: &[Field] = &[
    counter(
        "total_connections_received",
        |engine| sum(engine, |loop_| loop_.connections.get()),
        "Clients that were let in.",
    ),
    counter(
        "total_commands_processed",
        Engine::commands_processed,
        "Commands that began, those that MULTI queued included.",
    ),
    gauge(
        "instantaneous_ops_per_sec",
        |engine| engine.per_second(Rate::Commands),
        "Commands a second, over the last ones.",
    ),
    counter("total_net_input_bytes", |engine| sum(engine, |loop_| loop_.input_bytes.get()), "Bytes of requests."),
    counter("total_net_output_bytes", |engine| sum(engine, |loop_| loop_.output_bytes.get()), "Bytes of replies."),
    constant("total_net_repl_input_bytes", "0", NOT_COUNTED),
    constant("total_net_repl_output_bytes", "0", NOT_COUNTED),
    real(
        "instantaneous_input_kbps",
        |engine| engine.per_second(Rate::Input) as f64 / 1024.0,
        2,
        "KiB of requests a second.",
    ),
    real(
        "instantaneous_output_kbps",
        |engine| engine.per_second(Rate::Output) as f64 / 1024.0,
        2,
        "KiB of replies a second.",
    ),
    constant("instantaneous_input_repl_kbps", "0.00", NOT_COUNTED),
    constant("instantaneous_output_repl_kbps", "0.00", NOT_COUNTED),
    counter(
        "rejected_connections",
        |engine| sum(engine, |loop_| loop_.rejected_connections.get()),
        "Clients that were not let in.",
    ),
    counter("sync_full", |engine| engine.replication.resyncs.full.get(), "Replicas that all data were sent to."),
    counter(
        "sync_partial_ok",
        |engine| engine.replication.resyncs.partial.get(),
        "Replicas that went on from where they were, those behind their copies included.",
    ),
    counter(
        "sync_partial_err",
        |engine| engine.replication.resyncs.refused.get(),
        "Replicas that wanted to go on from where they were, and could not.",
    ),
    counter(
        "expired_subkeys",
        |engine| engine.expired_fields.get(),
        "Fields of hashes that were removed after their own deadlines; none of a key that has passed its own.",
    ),
    counter("expired_keys", |engine| engine.expired_keys.get(), "Keys that were removed after their deadlines."),
    constant("expired_stale_perc", "0.00", NO_SAMPLING),
    constant("expired_time_cap_reached_count", "0", NO_SAMPLING),
    counter(
        "expire_cycle_cpu_milliseconds",
        |engine| engine.expire_ns.get() / 1_000_000,
        "Time that removing expired keys took.",
    ),
    constant("evicted_keys", "0", NO_EVICTION),
    counter(
        "evicted_clients",
        |engine| engine.client_memory.closed.get(),
        "Clients that were closed because all of them took more than `maxmemory-clients`.",
    ),
    counter(
        "evicted_scripts",
        |engine| engine.scripts.evicted.get(),
        "Scripts that have left the cache because EVAL has put newer ones there.",
    ),
    constant("total_eviction_exceeded_time", "0", NO_EVICTION),
    constant("current_eviction_exceeded_time", "0", NO_EVICTION),
    counter(
        "keyspace_hits",
        |engine| {
            let of_loops: u64 = engine.all_counters().iter().map(|loop_| loop_.keyspace_hits.get()).sum();
            of_loops + engine.keyspace_hits.get()
        },
        "Lookups to read that found a key.",
    ),
    counter(
        "keyspace_misses",
        |engine| {
            let of_loops: u64 = engine.all_counters().iter().map(|loop_| loop_.keyspace_misses.get()).sum();
            of_loops + engine.keyspace_misses.get()
        },
        "Lookups to read that found none.",
    ),
    gauge("pubsub_channels", |engine| engine.pubsub.count(Channels::Plain) as u64, "Channels with a subscriber."),
    gauge("pubsub_patterns", |engine| engine.pubsub.count(Channels::Pattern) as u64, "Patterns with a subscriber."),
    gauge(
        "pubsubshard_channels",
        |engine| engine.pubsub.count(Channels::Shard) as u64,
        "Shard channels with a subscriber.",
    ),
    constant("latest_fork_usec", "0", NO_FORK),
    constant("total_forks", "0", NO_FORK),
    constant("migrate_cached_sockets", "0", "MIGRATE connects anew each time."),
    constant("slave_expires_tracked_keys", "0", NO_SLAVES_KEYS),
    constant("active_defrag_hits", "0", NO_DEFRAG),
    constant("active_defrag_misses", "0", NO_DEFRAG),
    constant("active_defrag_key_hits", "0", NO_DEFRAG),
    constant("active_defrag_key_misses", "0", NO_DEFRAG),
    constant("total_active_defrag_time", "0", NO_DEFRAG),
    constant("current_active_defrag_time", "0", NO_DEFRAG),
    gauge(
        "tracking_total_keys",
        |engine| engine.tracking.keys() as u64,
        "Keys of which some client is told when they change, because it has read them.",
    ),
    gauge("tracking_total_items", |engine| engine.tracking.items() as u64, "The clients of all these keys together."),
    gauge("tracking_total_prefixes", |engine| engine.tracking.prefixes() as u64, "Prefixes that clients listen to."),
    constant("unexpected_error_replies", "0", "There are no replicas that could send errors."),
    counter(
        "total_error_replies",
        |engine| sum(engine, |loop_| loop_.error_replies.get()),
        "Replies that were errors.",
    ),
    constant("dump_payload_sanitizations", "0", "RESTORE checks every payload as it reads it."),
    counter("total_reads_processed", |engine| sum(engine, |loop_| loop_.reads.get()), "Reads of sockets."),
    counter("total_writes_processed", |engine| sum(engine, |loop_| loop_.writes.get()), "Writes of sockets."),
    constant("io_threaded_reads_processed", "0", NO_IO_THREADS),
    constant("io_threaded_writes_processed", "0", NO_IO_THREADS),
    counter(
        "client_query_buffer_limit_disconnections",
        |engine| sum(engine, |loop_| loop_.closed_at_input_limit.get()),
        "Clients that were closed because a request, or a MULTI block, would not fit `client-query-buffer-limit`.",
    ),
    counter(
        "client_output_buffer_limit_disconnections",
        |engine| sum(engine, |loop_| loop_.closed_at_output_limit.get()),
        "Clients that were closed because they left more unread than `client-output-buffer-limit` allows.",
    ),
    constant("reply_buffer_shrinks", "0", "A client has a buffer only while it has replies."),
    constant("reply_buffer_expands", "0", "A client has a buffer only while it has replies."),
    counter(
        "eventloop_cycles",
        |engine| sum(engine, |loop_| loop_.rounds.count.get()),
        "Rounds of event loops: from waking up, or the end of the round before, until the replies have left or there is \
         nothing to do.",
    ),
    counter(
        "eventloop_duration_sum",
        |engine| sum(engine, |loop_| loop_.rounds.ns.get()) / 1000,
        "Microseconds that the rounds of all event loops took: reading, commands, the log, writing, but no sleep.",
    ),
    counter(
        "eventloop_duration_cmd_sum",
        commands::us_in_commands,
        "Microseconds that commands took, without those in which they waited or ran on the I/O pool.",
    ),
    gauge(
        "instantaneous_eventloop_cycles_per_sec",
        |engine| engine.per_second(Rate::Rounds),
        "Rounds of event loops a second, over the last ones.",
    ),
    gauge(
        "instantaneous_eventloop_duration_usec",
        |engine| engine.round_ns() / 1000,
        "Microseconds that a round took on average, over the last ones.",
    ),
    counter(
        "acl_access_denied_auth",
        |engine| engine.accounts.denied(Reason::Auth),
        "Logins with a wrong name or password, or of a user that is off.",
    ),
    counter(
        "acl_access_denied_cmd",
        |engine| engine.accounts.denied(Reason::Command),
        "Calls of commands that their users may not run.",
    ),
    counter(
        "acl_access_denied_key",
        |engine| engine.accounts.denied(Reason::Key),
        "Calls with keys that their users may not use so.",
    ),
    counter(
        "acl_access_denied_channel",
        |engine| engine.accounts.denied(Reason::Channel),
        "Calls with channels that their users may not use.",
    ),
    counter(
        "acl_access_denied_db",
        |engine| engine.accounts.denied(Reason::Database),
        "Calls in databases that their users may not use.",
    ),
    counter(
        "tls_handshakes_failed",
        |engine| sum(engine, |loop_| loop_.tls_handshakes_failed.get()),
        "Clients whose handshakes over TLS failed: they went, took too long, spoke no TLS or were not trusted.",
    ),
    counter(
        "event_loop_ticks",
        |engine| sum(engine, |loop_| loop_.ticks.get()),
        "Rounds of event loops in which replies left.",
    ),
    counter(
        "commands_that_loaded_rows",
        |engine| sum(engine, |loop_| loop_.loads.get()),
        "Commands that waited for rows from the disk.",
    ),
    counter(
        "commands_on_io_pool",
        |engine| sum(engine, |loop_| loop_.offloaded.get()),
        "Commands that ran on the I/O pool.",
    ),
    counter(
        "scripts_on_io_pool_at_once",
        |engine| engine.scripts.slow.passed.get(),
        "Scripts that went to the I/O pool at once, because they had lately taken too long for an event loop.",
    ),
    counter(
        "exclusive_runs",
        |engine| engine.exclusion.exclusive_runs(),
        "Times that all others stood still for one: FLUSHALL, SWAPDB, a script of which nobody can tell the keys.",
    ),
    counter(
        "lock_waits",
        |engine| sum(engine, |loop_| loop_.lock_waits.get()),
        "Commands that waited for a key's lock.",
    ),
    counter(
        "slowed_writes",
        |engine| sum(engine, |loop_| loop_.slowed.get()),
        "Writes that waited because the flush was behind.",
    ),
    counter(
        "replies_waited_for_log",
        |engine| sum(engine, |loop_| loop_.gate_waits.get()),
        "Times that replies waited for the log after a round.",
    ),
];

/// The section `debug`: what Redis has for those who look into the server itself.
pub(super) const DEBUG: &[Field] = &[
    gauge(
        "eventloop_duration_max",
        |engine| engine.all_counters().iter().map(|loop_| loop_.rounds.longest_ns.get()).max().unwrap_or(0) / 1000,
        "Microseconds of the longest round of an event loop.",
    ),
    gauge(
        "eventloop_cmd_per_cycle_max",
        |engine| engine.all_counters().iter().map(|loop_| loop_.rounds.commands_max.get()).max().unwrap_or(0),
        "The most commands that began in one round of an event loop.",
    ),
];

/// The section `cpu`.
pub(super) const CPU: &[Field] = &[
    real_counter("used_cpu_sys", |_| cpu_seconds("self", CpuTime::System), 6, "Seconds in the kernel."),
    real_counter("used_cpu_user", |_| cpu_seconds("self", CpuTime::User), 6, "Seconds outside of the kernel."),
    real_counter(
        "used_cpu_sys_children",
        |_| cpu_seconds("self", CpuTime::ChildrenSystem),
        6,
        "Of processes that it started.",
    ),
    real_counter(
        "used_cpu_user_children",
        |_| cpu_seconds("self", CpuTime::ChildrenUser),
        6,
        "Of processes that it started.",
    ),
    real_counter(
        "used_cpu_sys_main_thread",
        |_| main_thread(CpuTime::System),
        6,
        "Of the thread that accepts clients.",
    ),
    real_counter("used_cpu_user_main_thread", |_| main_thread(CpuTime::User), 6, "Of the thread that accepts clients."),
];

pub(super) fn sum(engine: &Engine, count: impl Fn(&Counters) -> u64) -> u64 {
    engine.all_counters().iter().map(count).sum()
}

/// The position of the field behind the process's name in /proc/self/stat.
#[derive(Clone, Copy)]
enum CpuTime {
    User = 11,
    System = 12,
    ChildrenUser = 13,
    ChildrenSystem = 14,
}

fn main_thread(which: CpuTime) -> f64 {
    cpu_seconds(&format!("self/task/{}", std::process::id()), which)
}

/// The kernel counts in hundredths of a second here, on every Linux.
fn cpu_seconds(whose: &str, which: CpuTime) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{whose}/stat")).unwrap_or_default();
    let ticks =
        stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(which as usize)?.parse::<u64>().ok());
    ticks.unwrap_or(0) as f64 / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_uses_time() {
        let mut sum = 0u64;
        while cpu_seconds("self", CpuTime::User) + cpu_seconds("self", CpuTime::System) < 0.01 {
            (0..1_000_000u64).for_each(|n| sum = std::hint::black_box(sum ^ n));
        }
    }
}
