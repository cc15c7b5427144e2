//! The directives of the log's length, of compactions and of the archive.

use super::fields::Fields;
use crate::archive::{Archive, options_of};
use crate::compaction::{CompactInterval, CompactWindow};

/// The directives about compactions.
#[derive(Clone, Debug, PartialEq)]
pub struct Compactions {
    /// Bytes that compactions write in a second; 0 = tuned by itself.
    pub bytes_per_s: u64,
    /// The hours in which full ones begin by themselves.
    pub window: Option<CompactWindow>,
    /// The time between full ones that begin by themselves.
    pub interval: Option<CompactInterval>,
}

/// How long the log is kept beyond what recovery needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub bytes: u64,
    /// The age in seconds up to which segments are kept; 0 for any age.
    pub age_s: u64,
}

impl Compactions {
    pub(super) fn read(fields: &mut Fields) -> Compactions {
        Compactions {
            bytes_per_s: fields.bytes("background-io-rate"),
            window: CompactWindow::parse(&fields.printed("compact-cron")),
            interval: CompactInterval::parse(&fields.printed("compact-interval")),
        }
    }
}

impl Fields<'_> {
    pub fn retention(&mut self) -> Retention {
        Retention { bytes: self.bytes("log-retention-size"), age_s: self.int("log-retention-age") }
    }

    pub fn archive(&mut self) -> Archive {
        Archive {
            to: self.string("archive-to"),
            options: options_of(&self.string("archive-options")),
            key_file: self.path("archive-key-file"),
            interval_s: self.int("archive-interval"),
            backup_interval_s: self.int("archive-backup-interval"),
            backups_keep: self.int("archive-backups-keep"),
            log_bytes: self.bytes("archive-log-size"),
        }
    }
}
