//! The tail of a log that its node gives up: records that its new master does not have, because that one went on
//! without them. They are kept beside the data, as a log that `haypile log` prints, for people to look at.

use crate::datadir::{self, sync_dir};
use haypile_log::{Index, Next, effects};
use haypile_replication::common_through;
use haypile_store::Store;
use haypile_store::check::Looked;
use haypile_store::row::parse_meta_row;
use std::collections::BTreeSet;
use std::path::Path;

/// Keys that the server's log names.
const NAMED_MAX: usize = 20;

/// Keeps the records of a store that gives way to a copy which does not have them. `said` is the last record that the
/// copy's master says to share, 0 where it knows of none: a master does not know the history that a server began when
/// it was started after a crash, so that the histories of both are compared here.
///
/// Where the two have no history in common, the whole log is kept: rather than the data of a server that was told to
/// follow another one by mistake, or whose master has lost its own, these are at least their newest part.
///
/// # Errors
/// A text for people. Nothing is left then.
pub fn keep(store: &Store, copy: &Looked, said: Index, dir: &Path, goes_on: &dyn Fn() -> bool) -> Result<(), String> {
    let log = store.log();
    let last = log.last();
    let common = common_through((&log.histories(), last), (&copy.histories, copy.end.last));
    let shared = match common {
        Some(common) if said > Index(0) => Some(common.min(said)),
        Some(common) => Some(common),
        None => Some(said).filter(|said| *said > Index(0)),
    };
    let behind = shared.unwrap_or(Index(0));
    if behind >= last {
        return Ok(());
    }
    log.sync_through(last).map_err(|error| error.to_string())?;
    // Records that were purged since are in the base only.
    let after = behind.max(Index(log.stats().first.0.saturating_sub(1)));
    let names = names(store, after, last);
    if shared.is_none() {
        if names.is_empty() {
            tracing::info!(
                "the log names no key and has no history in common with the master's: nothing of it is kept"
            );
            return Ok(());
        }
        tracing::warn!("the data have no history in common with the master's, and are given up as a whole");
        let (free, keep_free) = store.disk_room();
        let bytes = log.bytes_after(after);
        if free.is_some_and(|free| free < keep_free.saturating_add(bytes)) {
            tracing::warn!("their log is given up, too: the disk has no room for its {bytes} bytes");
            return Ok(());
        }
    }
    if after > behind {
        tracing::warn!("of the records that the master does not have, the log has those from {} on", after.next());
    }
    save(store, after, &names, dir, goes_on)
}

/// Saves the records behind `after`, all of them synced, to a directory below `dir`, and says which keys they are
/// about. The directory is on the disk when this returns.
fn save(
    store: &Store,
    after: Index,
    names: &BTreeSet<Vec<u8>>,
    dir: &Path,
    goes_on: &dyn Fn() -> bool,
) -> Result<(), String> {
    let log = store.log();
    let last = log.last();
    let hold = log.hold_after(after).ok_or("the log's records go away")?;
    let tail = datadir::tails_dir(dir).join(format!("{}-{}", store.history(), after.next()));
    let to = datadir::log_dir(&tail);
    let failed = |error: std::io::Error| format!("{}: {error}", tail.display());
    // A tail of this name is what an earlier attempt has left.
    match std::fs::remove_dir_all(&tail) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    std::fs::create_dir_all(&to).map_err(failed)?;
    let saved = log.export(&hold, last, &to, goes_on).map_err(|error| {
        // A directory that cannot be removed now goes with the next attempt.
        let _ = std::fs::remove_dir_all(&tail);
        error.to_string()
    })?;
    let tails = datadir::tails_dir(dir);
    [&*tail, &*tails, dir].into_iter().try_for_each(sync_dir).map_err(failed)?;
    let more = if names.len() > NAMED_MAX { ", and others" } else { "" };
    let names: Vec<String> = names.iter().take(NAMED_MAX).map(|name| name.escape_ascii().to_string()).collect();
    tracing::warn!(
        "{} records that the master does not have are given up, from {} to {last}; they are saved in {} and printed by \
         'haypile log'. Keys: {}{more}",
        saved.records,
        after.next(),
        tail.display(),
        names.join(" ")
    );
    Ok(())
}

/// Returns the names of some keys that records are about: one more than are named, if there are so many.
fn names(store: &Store, after: Index, last: Index) -> BTreeSet<Vec<u8>> {
    let mut names = BTreeSet::new();
    let mut reader = store.log().reader(after);
    while let Ok(Next::Record(record)) = reader.next() {
        if record.index > last || names.len() > NAMED_MAX {
            break;
        }
        let of_effects = effects(record.body).filter(|_| record.kind.has_effects()).filter_map(Result::ok);
        let rows = of_effects.filter_map(|effect| effect.key());
        names.extend(rows.filter_map(parse_meta_row).map(|key| key.name.to_vec()));
    }
    names
}
