//! The section `persistence`, under Redis's names and in its order: `rdb_` tells of backups, `aof_` of the log, which
//! is always there and never rewritten.

use super::field::{Field, constant, counter, gauge, real, text};
use crate::run::backups::Made;
use crate::run::engine::Engine;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) const FIELDS: &[Field] = &[
    gauge("loading", |engine| u64::from(engine.store().is_none()), "Whether the log is being replayed."),
    constant("async_loading", "0", "A copy of a master's data is put in place at once."),
    text("durability", |engine| engine.settings.config().durability.name().into(), "When a write is acknowledged."),
    constant("current_cow_peak", "0", "There are no child processes, so nothing is copied on write."),
    constant("current_cow_size", "0", "There are no child processes, so nothing is copied on write."),
    constant("current_cow_size_age", "0", "There are no child processes, so nothing is copied on write."),
    constant("current_fork_perc", "0.00", "There are no child processes."),
    constant("current_save_keys_processed", "0", "A backup takes files, not keys."),
    constant("current_save_keys_total", "0", "A backup takes files, not keys."),
    gauge(
        "rdb_changes_since_last_save",
        |engine| engine.store().map_or(0, |store| store.log().last().0.saturating_sub(engine.backups.facts().index.0)),
        "Records since the last backup, or since the start.",
    ),
    gauge(
        "rdb_bgsave_in_progress",
        |engine| u64::from(engine.backups.facts().since.is_some()),
        "Whether a backup is being made.",
    ),
    gauge(
        "rdb_last_save_time",
        |engine| engine.backups.last_s(),
        "When the last backup was complete, or the start, in seconds since 1970.",
    ),
    text(
        "rdb_last_bgsave_status",
        |engine| if engine.backups.facts().failure.is_none() { "ok".into() } else { "err".into() },
        "Whether the last backup succeeded.",
    ),
    real(
        "rdb_last_bgsave_time_sec",
        |engine| seconds(engine.backups.facts().last_seconds),
        0,
        "Seconds that the last backup took; -1 before the first.",
    ),
    real(
        "rdb_current_bgsave_time_sec",
        |engine| seconds(engine.backups.facts().since.map(|since| since.elapsed().as_secs())),
        0,
        "Seconds since the backup that is being made was asked for; -1 if there is none.",
    ),
    counter("rdb_saves", |engine| engine.backups.facts().begun, "Backups that were begun since the start."),
    constant("rdb_last_cow_size", "0", "There are no child processes, so nothing is copied on write."),
    constant("rdb_last_load_keys_expired", "0", "A start loads no RDB file."),
    constant("rdb_last_load_keys_loaded", "0", "A start loads no RDB file."),
    constant("aof_enabled", "1", "There is always a log."),
    constant("aof_rewrite_in_progress", "0", "The log is never rewritten."),
    constant("aof_rewrite_scheduled", "0", "The log is never rewritten."),
    constant("aof_last_rewrite_time_sec", "-1", "The log is never rewritten."),
    constant("aof_current_rewrite_time_sec", "-1", "The log is never rewritten."),
    constant("aof_last_bgrewrite_status", "ok", "The log is never rewritten."),
    constant("aof_rewrites", "0", "The log is never rewritten."),
    constant("aof_rewrites_consecutive_failures", "0", "The log is never rewritten."),
    text(
        "aof_last_write_status",
        |engine| if engine.store().is_some_and(|store| store.refuses_writes()) { "err".into() } else { "ok".into() },
        "Whether writes are taken.",
    ),
    constant("aof_last_cow_size", "0", "There are no child processes, so nothing is copied on write."),
    constant("module_fork_in_progress", "0", "There are no modules."),
    constant("module_fork_last_cow_size", "0", "There are no modules."),
    gauge("aof_current_size", |engine| of_log(engine, |log| log.bytes), "Bytes of the log's files."),
    gauge("aof_base_size", |engine| engine.base_disk_bytes(), "Bytes of the base's files."),
    constant("aof_pending_rewrite", "0", "The log is never rewritten."),
    gauge(
        "aof_buffer_length",
        |engine| of_log(engine, |log| log.unsynced_bytes),
        "Bytes of records that are not synced.",
    ),
    gauge(
        "aof_pending_bio_fsync",
        |engine| of_log(engine, |log| u64::from(log.unsynced_bytes > 0)),
        "Whether records wait for a sync.",
    ),
    counter(
        "aof_delayed_fsync",
        |engine| of_log(engine, |log| log.deferred_writes),
        "Writes of the log that were left to its thread, because the disk was slow.",
    ),
    text("backup_last_name", |engine| of_last(engine, |made| made.name.clone()), "The directory of the last backup."),
    text(
        "backup_last_index",
        |engine| of_last(engine, |made| made.index.0.to_string()),
        "The last record in the last backup.",
    ),
    text("backup_last_bytes", |engine| of_last(engine, |made| made.bytes.to_string()), "Bytes of the last backup."),
    text(
        "backup_last_error",
        |engine| engine.backups.facts().failure.unwrap_or_default(),
        "Why the last backup failed, if it did.",
    ),
];

/// The fields that INFO has only while the log is replayed.
pub(super) const LOADING: &[Field] = &[
    gauge("loading_start_time", loading_since_s, "When the replay began, in seconds since 1970."),
    gauge("loading_total_bytes", |engine| loading_bytes(engine).1, "Bytes of the log that are to be read."),
    constant("loading_rdb_used_mem", "0", "A start loads no RDB file."),
    gauge("loading_loaded_bytes", |engine| loading_bytes(engine).0, "Bytes of the log that were read."),
    real("loading_loaded_perc", |engine| loading_part(engine) * 100.0, 2, "The same in percent of the whole."),
    real(
        "loading_eta_seconds",
        loading_left_s,
        0,
        "Seconds until the end, if it goes on so; -1 before the first byte.",
    ),
];

fn loading_since_s(engine: &Engine) -> u64 {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    now_s.saturating_sub(engine.started.elapsed().as_secs())
}

/// Returns the bytes of the log that were read, and those that are to be.
fn loading_bytes(engine: &Engine) -> (u64, u64) {
    let loading = &engine.loading;
    (loading.bytes_done.load(Ordering::Relaxed), loading.bytes_total.load(Ordering::Relaxed))
}

fn loading_part(engine: &Engine) -> f64 {
    let (done, total) = loading_bytes(engine);
    done as f64 / total.max(1) as f64
}

fn loading_left_s(engine: &Engine) -> f64 {
    let (done, total) = loading_bytes(engine);
    if done == 0 {
        return -1.0;
    }
    (engine.started.elapsed().as_secs_f64() * total.saturating_sub(done) as f64 / done as f64).floor()
}

fn of_last(engine: &Engine, show: fn(&Made) -> String) -> String {
    engine.backups.facts().last.as_ref().map(show).unwrap_or_default()
}

fn of_log(engine: &Engine, show: fn(&haypile_log::Stats) -> u64) -> u64 {
    engine.store().map_or(0, |store| show(&store.log().stats()))
}

/// Returns seconds as INFO has them: -1 for none, as in Redis.
fn seconds(seconds: Option<u64>) -> f64 {
    seconds.map_or(-1.0, |seconds| seconds as f64)
}
