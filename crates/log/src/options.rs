//! The options that a log is opened with, and the defaults with their reasons.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::durable::Durability;
use crate::end::EndFile;
use crate::files::{DiskFiles, Files};
use crate::format::{History, Index};

/// How long segments stay that the base no longer needs. A segment goes when either bound is passed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Bytes of all segments together.
    pub bytes: u64,
    /// Age of the newest record of a segment in milliseconds.
    pub age_ms: u64,
}

#[derive(Clone)]
pub struct Options {
    /// The directory, of which all files belong to the log.
    pub dir: PathBuf,
    /// Bytes of a segment, preallocated. A record that is larger gets a segment of its own; where the disk is short,
    /// segments are shorter.
    pub segment_bytes: u64,
    /// Bytes that the disk has to spare, if that can be told: a segment takes no more, unless it is one of the
    /// shortest.
    pub room: Arc<dyn Fn() -> Option<u64> + Send + Sync>,
    pub durability: Durability,
    /// In `Durability::Os`: the longest time in milliseconds for which written records stay unsynced.
    pub sync_interval_ms: u64,
    /// Bound of what is kept in memory because it is not synced yet, in bytes: a sync starts early at half of it,
    /// `reserve` answers `Busy` above it.
    pub unsynced_bytes_max: u64,
    pub retention: Retention,
    /// The last record that the log is known to hold from elsewhere: one up to here that is missing is damage. 0 for
    /// none.
    pub complete_through: Index,
    /// The log is a copy of another one, whose histories it goes through: an open begins none of its own.
    pub follows: bool,
    /// The name of the first history of a log that has none: that of a consensus group, which all its members' logs
    /// are in. None for a random one.
    pub founding: Option<History>,
    /// The last record that stays: those behind it go, as what a consensus group did not agree on. None for all.
    pub keep_through: Option<Index>,
    /// All records above this are kept from the open on, until `Log::take_kept` hands the hold on them over.
    pub kept_after: Option<Index>,
    /// The file that notes how far the log reaches, so that a lost segment or directory is noticed; None for no such
    /// file.
    pub end: Option<EndFile>,
    pub files: Arc<dyn Files>,
    /// Wall clock in milliseconds since 1970: for segment headers, the marks that the log writes itself, and retention.
    pub now_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Random numbers for the names of histories and for salts.
    pub random: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Options {
    pub fn new(dir: impl Into<PathBuf>) -> Options {
        Options {
            dir: dir.into(),
            // A rotation waits for a sync: it should be rare. A replay after a kill reads a few of them.
            segment_bytes: 64 << 20,
            room: Arc::new(|| None),
            durability: Durability::Os,
            sync_interval_ms: 1000,
            unsynced_bytes_max: 32 << 20,
            retention: Retention { bytes: 256 << 20, age_ms: u64::MAX },
            complete_through: Index(0),
            follows: false,
            founding: None,
            keep_through: None,
            kept_after: None,
            end: None,
            files: Arc::new(DiskFiles),
            now_ms: Arc::new(|| {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                since.map_or(0, |since| since.as_millis() as u64)
            }),
            random: Arc::new(|| {
                let mut bytes = [0; 8];
                rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
                    .expect("the kernel's random source always gives 8 bytes");
                u64::from_ne_bytes(bytes)
            }),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("dir", &self.dir)
            .field("segment_bytes", &self.segment_bytes)
            .field("durability", &self.durability)
            .field("sync_interval_ms", &self.sync_interval_ms)
            .field("unsynced_bytes_max", &self.unsynced_bytes_max)
            .field("retention", &self.retention)
            .field("complete_through", &self.complete_through)
            .field("follows", &self.follows)
            .field("founding", &self.founding)
            .field("keep_through", &self.keep_through)
            .field("kept_after", &self.kept_after)
            .field("end", &self.end)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

/// Makes the name of a history.
pub(crate) fn random_history(options: &Options) -> History {
    let mut name = [0; 20];
    for piece in name.chunks_mut(8) {
        piece.copy_from_slice(&(options.random)().to_le_bytes()[..piece.len()]);
    }
    // All zeros stand for "no history" in the format.
    name[0] = name[0].max(1);
    History(name)
}
