//! The newest backup in an archive from which a server's records lead on.

use haypile_archive::{Archive, Chain, Error};
use haypile_log::Index;

/// A backup, as far as it matters for when the next one is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latest {
    pub name: String,
    pub made_ms: u64,
    /// The furthest record of all backups that lead on: that of another one, where a clock was wrong.
    pub furthest: Index,
}

/// Returns the newest backup that leads to where a chain ends.
///
/// # Errors
/// The place refuses.
pub fn latest(archive: &Archive, chain: &Chain) -> Result<Option<Latest>, Error> {
    let mut backups = archive.backups()?;
    backups.retain(|backup| chain.leads_from(backup.history(), backup.through));
    let furthest = backups.iter().map(|backup| backup.through).max().unwrap_or_default();
    let newest = backups.iter().max_by_key(|backup| backup.made_ms);
    Ok(newest.map(|backup| Latest { name: backup.name(), made_ms: backup.made_ms, furthest }))
}

/// The wall clock in milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
