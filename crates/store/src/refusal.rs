//! Why the store refuses something, as causes: how a client reads of them is the business of the crates above.

use std::fmt;

/// Why the store takes no writes, or why a command may not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The disk has `free` bytes, less than `least`, or less than `least` and what the flush of `unflushed` bytes
    /// takes. Deletions go on.
    DiskShort { free: u64, least: u64, unflushed: u64 },
    /// The flush, or the base below it, is too far behind.
    FlushBehind,
    /// The last flush has failed, and the memtable is full.
    FlushFailed { why: String, deletions_go_on: bool },
    /// The log takes no record.
    LogFailed(String),
    /// Files of the store are missing.
    FilesMissing(String),
    /// Without a base, the memory for all data is used up.
    OutOfMemory,
    /// The memory for all commands has no room for what the command collects.
    NoRoom,
    /// The disk has no room for what the command sorts or collects in a file.
    SpoolFull(String),
    /// The store is being stopped.
    Stopping,
    /// The store follows another one, or is about to: only that one's records change it.
    Follows,
    /// Too few replicas have lately acknowledged something.
    NoReplicas,
}

/// Invariant: a refusal is so small that every result of a command has room for it.
const _: () = assert!(size_of::<Refusal>() <= 32);

impl Refusal {
    /// Whether what only makes room goes on.
    pub fn deletions_go_on(&self) -> bool {
        match self {
            Refusal::DiskShort { .. } => true,
            Refusal::FlushFailed { deletions_go_on, .. } => *deletions_go_on,
            _ => false,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::DiskShort { free, least, .. } if free < least => {
                write!(f, "the disk has {free} bytes left, less than disk-free-min")
            }
            Refusal::DiskShort { free, least, unflushed } => {
                write!(
                    f,
                    "the disk has {free} bytes left, {unflushed} of which are for a flush, disk-free-min is {least}"
                )
            }
            Refusal::FlushBehind => f.write_str("the disk is too far behind"),
            Refusal::FlushFailed { why, .. }
            | Refusal::LogFailed(why)
            | Refusal::FilesMissing(why)
            | Refusal::SpoolFull(why) => f.write_str(why),
            Refusal::OutOfMemory => f.write_str("the memory for the data is used up"),
            Refusal::NoRoom => f.write_str("there is no memory for what the command collects"),
            Refusal::Stopping => f.write_str("the store is being stopped"),
            Refusal::Follows => f.write_str("the store follows another one"),
            Refusal::NoReplicas => f.write_str("there are too few replicas"),
        }
    }
}
