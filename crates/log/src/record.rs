//! A record as a reader of the log sees it: the replay, a live reader, a copy of the log.

use crate::format::{History, Index, Kind};

/// One record, borrowed from the buffer it was read into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub index: Index,
    pub history: History,
    /// The term of the entry that the record belongs to, and in `entry` that entry's index; both are 0 outside of a
    /// consensus group.
    pub term: u64,
    pub entry: u64,
    pub kind: Kind,
    /// Wall clock in milliseconds.
    pub time_ms: u64,
    pub body: &'a [u8],
    /// The checksum of the body, as [`body_crc`](crate::body_crc) computes it.
    pub body_crc: u32,
    /// Number of the segment.
    pub segment: u64,
    /// Offset in the segment's file.
    pub offset: u64,
}
