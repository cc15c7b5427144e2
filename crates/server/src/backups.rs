//! The directory of backups: how a backup is made, whole or not at all, and how old ones are removed.
//!
//! A backup is a data directory of its own, `backups/<time>-<index>`. It is made under a name that begins with a dot,
//! synced with all that is in it, and renamed. A backup to be removed gets such a name first; every directory with one,
//! also one that a crash has left, is removed file by file, at a pace that leaves the disk to others. A backup that a
//! server was started on holds that server's data, and is neither counted nor removed.

use crate::datadir::{self, sync_dir};
use haypile_archive::backup_time;
use haypile_config::{Config, Settings};
use haypile_engine::{Archive, Made};
use haypile_store::{BackedUp, Store};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Beginnings of hidden names: of a backup being made, and of one being removed.
const MAKING: &str = ".new-";
const GONE: &str = ".gone-";

/// The least rate of removal, as in the base.
const REMOVAL_BYTES_PER_S: u64 = 256 << 20;

/// Bytes by which a file is made shorter at a time before it is removed.
const PIECE_BYTES: u64 = 64 << 20;

/// Room beside the log's part of a backup, for files that the base copies instead of linking them.
const SPARE_BYTES: u64 = 16 << 20;

pub struct Backups {
    settings: Arc<Settings>,
}

/// A backup's name, in the order of time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    /// `20261122T084500Z`.
    time: String,
    index: u64,
}

impl Name {
    fn new(unix_s: u64, index: u64) -> Name {
        Name { time: backup_time(unix_s * 1000), index }
    }

    fn parse(name: &str) -> Option<Name> {
        let (time, index) = name.split_once('-')?;
        let pattern = b"00000000T000000Z";
        let fits = |(byte, sign): (u8, &u8)| if *sign == b'0' { byte.is_ascii_digit() } else { byte == *sign };
        let is_time = time.len() == pattern.len() && time.bytes().zip(pattern).all(fits);
        let parsed = Name { time: time.to_owned(), index: index.parse().ok()? };
        // An index may be written in other ways, which no backup has.
        (is_time && parsed.text() == name).then_some(parsed)
    }

    fn text(&self) -> String {
        format!("{}-{}", self.time, self.index)
    }
}

impl Backups {
    pub fn new(settings: Arc<Settings>) -> Backups {
        Backups { settings }
    }

    /// Fills `path` with a backup that is on the disk when this returns; returns its extent and its bytes.
    pub fn fill(
        path: &Path,
        config: &Config,
        store: &Store,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(BackedUp, u64), String> {
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let log = datadir::log_dir(path);
        fs::create_dir_all(&log).map_err(failed)?;
        let made = store.back_up(&datadir::base_dir(path), &log, goes_on)?;
        datadir::mark_backup(path, config.engine, made.index.0).map_err(failed)?;
        let bytes = sync_tree(path).map_err(failed)?;
        Ok((made, bytes))
    }

    /// Hides the oldest backups when there are more than wanted; `tidy` removes them.
    fn retire(dir: &Path, keep: usize) -> io::Result<()> {
        let mut kept: Vec<Name> = names(dir)?.iter().filter_map(|name| Name::parse(name)).collect();
        kept.retain(|name| !datadir::was_started(&dir.join(name.text())));
        kept.sort();
        let surplus = if keep == 0 { 0 } else { kept.len().saturating_sub(keep) };
        for name in &kept[..surplus] {
            let name = name.text();
            fs::rename(dir.join(&name), dir.join(format!("{GONE}{name}")))?;
            tracing::info!("backup {name} is removed: there are newer ones");
        }
        if surplus > 0 { sync_dir(dir) } else { Ok(()) }
    }
}

impl Archive for Backups {
    fn back_up(&self, store: &Store, goes_on: &dyn Fn() -> bool) -> Result<Made, String> {
        let config = self.settings.config();
        let dir = datadir::backups_dir(&config.dir);
        let failed = |error: io::Error| format!("{}: {error}", dir.display());
        check_room(store)?;
        if !dir.is_dir() {
            fs::create_dir(&dir).and_then(|()| sync_dir(&config.dir)).map_err(failed)?;
        }
        let begun_s = now_s();
        let aside = dir.join(format!("{MAKING}{}-{begun_s}", std::process::id()));
        let filled = Backups::fill(&aside, &config, store, goes_on);
        let named = filled.and_then(|(BackedUp { index, .. }, bytes)| {
            // Two backups of one second may have the same index.
            let name = (begun_s..).map(|s| Name::new(s, index.0).text()).find(|name| !dir.join(name).exists());
            let name = name.unwrap_or_default();
            fs::rename(&aside, dir.join(&name)).and_then(|()| sync_dir(&dir)).map_err(failed)?;
            Ok(Made { name, index, bytes })
        });
        match named {
            Ok(made) => {
                if let Err(error) = Backups::retire(&dir, config.backups_keep as usize) {
                    tracing::warn!("old backups cannot be removed: {}: {error}", dir.display());
                }
                Ok(made)
            }
            Err(why) => {
                // A directory that cannot be removed now is removed later: its name says that it is no backup.
                let _ = fs::remove_dir_all(&aside);
                Err(why)
            }
        }
    }

    fn tidy(&self) -> Option<Duration> {
        let config = self.settings.config();
        let dir = datadir::backups_dir(&config.dir);
        let rubbish = names(&dir).ok()?.into_iter().filter(|name| name.starts_with(MAKING) || name.starts_with(GONE));
        let mut failed = Vec::new();
        for path in rubbish.map(|name| dir.join(name)) {
            match remove_piece(&path) {
                Ok(bytes) => return Some(Duration::from_secs(1).mul_f64(bytes as f64 / REMOVAL_BYTES_PER_S as f64)),
                Err(error) => failed.push((path, error)),
            }
        }
        // Once all others are gone.
        for (path, error) in failed {
            tracing::warn!("what is left of a backup cannot be removed: {}: {error}", path.display());
        }
        None
    }
}

/// Checks that a backup does not fill the disk: writes would stop.
pub fn check_room(store: &Store) -> Result<(), String> {
    let (free, keep_free) = store.disk_room();
    let needed = store.backup_log_bytes() + SPARE_BYTES;
    match free {
        Some(free) if free < keep_free + needed => Err(format!(
            "the disk is full: it has {free} bytes left; a backup takes {needed}, and disk-free-min wants {keep_free}"
        )),
        _ => Ok(()),
    }
}

/// Makes all files below `path` durable, but for links to files that are, and returns how many bytes there are.
fn sync_tree(path: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let (entry, about) = entry.and_then(|entry| entry.metadata().map(|about| (entry.path(), about)))?;
        if about.is_dir() {
            bytes += sync_tree(&entry)?;
            continue;
        }
        bytes += about.len();
        if about.nlink() == 1 {
            File::open(&entry)?.sync_all()?;
        }
    }
    sync_dir(path)?;
    Ok(bytes)
}

/// Returns the names in a directory; none where there is no directory.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Removes one file below `path`, or a piece of it, or the directory when it is empty; returns how many bytes the disk
/// got back.
fn remove_piece(path: &Path) -> io::Result<u64> {
    let mut dir: PathBuf = path.to_owned();
    loop {
        let Some(entry) = fs::read_dir(&dir)?.next().transpose()? else {
            return fs::remove_dir(&dir).map(|()| 0);
        };
        let about = entry.metadata()?;
        if about.is_dir() {
            dir = entry.path();
            continue;
        }
        if about.nlink() > 1 {
            return fs::remove_file(entry.path()).map(|()| 0);
        }
        if about.len() > PIECE_BYTES {
            // The file has no other link, and a file under such a name gets none.
            File::options().write(true).open(entry.path())?.set_len(about.len() - PIECE_BYTES)?;
            return Ok(PIECE_BYTES);
        }
        return fs::remove_file(entry.path()).map(|()| about.len());
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_time_and_read_back() {
        for (unix_s, expected) in [
            (0, "19700101T000000Z-7"),
            (951_827_696, "20000229T123456Z-7"),
            (1_795_337_100, "20261122T084500Z-7"),
            (4_107_542_399, "21000228T235959Z-7"),
            (4_107_542_400, "21000301T000000Z-7"),
        ] {
            let name = Name::new(unix_s, 7);
            assert_eq!(name.text(), expected, "{unix_s}");
            assert_eq!(Name::parse(expected), Some(name));
        }
        assert!(Name::new(10, 10) > Name::new(10, 9) && Name::new(11, 1) > Name::new(10, 9));
        for other in ["lost+found", "20261122T084500Z", "20261122T084500Z-", "20261122 084500Z-7", ".new-1-2", "a-1"] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
        for index in ["+7", "007", "-7", " 7", "18446744073709551616"] {
            assert_eq!(Name::parse(&format!("20261122T084500Z-{index}")), None, "{index}");
        }
    }

    #[test]
    fn what_is_left_goes_piece_by_piece() {
        let dir = std::env::temp_dir().join(format!("haypile-pieces-{}", std::process::id()));
        let deep = dir.join("base");
        fs::create_dir_all(&deep).expect("a temporary directory can be made");
        let long = File::create(deep.join("long")).expect("it is writable");
        long.set_len(2 * PIECE_BYTES + 5).expect("it takes no room");
        let mut freed = Vec::new();
        while dir.exists() {
            freed.push(remove_piece(&dir).expect("it is ours"));
        }
        assert_eq!(freed, [PIECE_BYTES, PIECE_BYTES, 5, 0, 0]);
    }
}
