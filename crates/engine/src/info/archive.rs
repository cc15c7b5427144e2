//! The section `archive`: how far the log is in the archive, and the backups there.

use super::field::{Field, counter, gauge, text};
use crate::run::engine::Engine;

pub(super) const FIELDS: &[Field] = &[
    text("archive_to", |engine| engine.archiving.facts().place, "Where the archive is; empty if there is none."),
    text(
        "archive_state",
        |engine| {
            let state = engine.archiving.facts().state;
            if state.is_empty() { "off".into() } else { state.into() }
        },
        "`off`, `opening`, `writing`, `watching` (another server writes: this one is a replica, or does not lead), or \
         `failing`: it is tried again.",
    ),
    gauge(
        "archive_last_record",
        |engine| engine.archiving.facts().through.0,
        "The last record that is in the archive, as far as this server knows.",
    ),
    gauge("archive_lag_records", lag_records, "Records that are not in the archive yet."),
    gauge("archive_lag_bytes", lag_bytes, "Bytes of the log that hold these, about."),
    gauge(
        "archive_lag_ms",
        |engine| engine.archiving.facts().waiting.map_or(0, |since| since.elapsed().as_millis() as u64),
        "Milliseconds for which the oldest of these has waited.",
    ),
    counter(
        "archive_chunks",
        |engine| engine.archiving.facts().chunks,
        "Pieces of the log that were written to the archive.",
    ),
    counter("archive_bytes", |engine| engine.archiving.facts().bytes, "Bytes of these."),
    counter("archive_failures", |engine| engine.archiving.facts().failures, "How often the archive refused or failed."),
    text(
        "archive_last_failure",
        |engine| engine.archiving.facts().failure,
        "Why it did the last time; empty if it works.",
    ),
    text(
        "archive_missing_records",
        |engine| engine.archiving.facts().hole.map_or(String::new(), |(first, last)| format!("{first}-{last}")),
        "Records that went before they were archived: beyond `archive-log-size`, or from a time without an archive.",
    ),
    gauge(
        "archive_backup_in_progress",
        |engine| u64::from(engine.archiving.facts().backup.is_running),
        "Whether a backup is on its way to the archive.",
    ),
    gauge("archive_backup_bytes", |engine| engine.archiving.facts().backup.bytes, "Bytes of its files."),
    gauge(
        "archive_backup_bytes_done",
        |engine| engine.archiving.facts().backup.bytes_done,
        "Bytes of its files that are in the archive.",
    ),
    gauge(
        "archive_backup_bytes_sent",
        |engine| engine.archiving.facts().backup.bytes_sent,
        "Bytes of its files that were not there yet and were sent.",
    ),
    counter(
        "archive_backups",
        |engine| engine.archiving.facts().backup.made,
        "Backups that were archived since the start.",
    ),
    text("archive_last_backup", |engine| engine.archiving.facts().backup.last, "The name of the last backup there."),
    gauge(
        "archive_last_backup_time",
        |engine| engine.archiving.facts().backup.last_s,
        "When it was made, in seconds since 1970.",
    ),
    text(
        "archive_last_backup_failure",
        |engine| engine.archiving.facts().backup.failure,
        "Why the last backup did not get there; empty if it did.",
    ),
];

fn lag_records(engine: &Engine) -> u64 {
    let facts = engine.archiving.facts();
    let last = engine.store().map_or(0, |store| store.log().last().0);
    if facts.place.is_empty() { 0 } else { last.saturating_sub(facts.through.0) }
}

fn lag_bytes(engine: &Engine) -> u64 {
    let facts = engine.archiving.facts();
    let bytes = engine.store().map_or(0, |store| store.log().bytes_after(facts.through));
    if facts.place.is_empty() { 0 } else { bytes }
}
