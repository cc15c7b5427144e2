//! The origin of data that repeat the commands of another server: which stream of commands, and how far they have come.
//!
//! The row of the origin changes in the transaction of each command. So the data and the position are of one moment,
//! after any crash: no command takes effect twice, and none is left out. Commands that change nothing make no record,
//! and so write no row: where many of them come, the row is written alone now and then, behind all that have ended.

use crate::row::{RowKey, SystemScope, system_row};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the name of a stream.
pub const STREAM_BYTES: usize = 40;

/// Bytes of the origin's row.
pub(crate) const ORIGIN_BYTES: usize = STREAM_BYTES + 8 + 4;

/// The last part of the name of the origin's row.
pub(crate) const ORIGIN: &[u8] = b"origin";

/// Returns the row of the origin; the value is the stream's name, the offset as u64 BE and the database as u32 BE.
pub(crate) fn origin_row() -> RowKey {
    system_row(SystemScope::Replicated, ORIGIN)
}

/// The position in the stream of another server's commands that data have come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The stream's name.
    pub stream: [u8; STREAM_BYTES],
    /// Bytes of the stream that have taken effect.
    pub offset: u64,
    /// The database that the next command is for.
    pub database: u32,
}

impl Origin {
    /// Returns the value of the origin's row.
    pub(crate) fn encode(&self) -> [u8; ORIGIN_BYTES] {
        let mut value = [0; ORIGIN_BYTES];
        let (stream, rest) = value.split_at_mut(STREAM_BYTES);
        stream.copy_from_slice(&self.stream);
        rest[..8].copy_from_slice(&self.offset.to_be_bytes());
        rest[8..].copy_from_slice(&self.database.to_be_bytes());
        value
    }

    /// Reads the value of the origin's row; None if it is none.
    pub(crate) fn decode(value: &[u8]) -> Option<Origin> {
        let (stream, rest) = value.split_at_checked(STREAM_BYTES)?;
        let (offset, database) = rest.split_at_checked(8)?;
        Some(Origin {
            stream: stream.try_into().ok()?,
            offset: u64::from_be_bytes(offset.try_into().ok()?),
            database: u32::from_be_bytes(database.try_into().ok()?),
        })
    }
}

/// The command of another server's stream that is being repeated.
#[derive(Debug)]
pub struct Repeated {
    stream: [u8; STREAM_BYTES],
    through: AtomicU64,
}

impl Repeated {
    /// Begins to repeat the commands of a stream behind `offset` of its bytes.
    pub fn new(stream: [u8; STREAM_BYTES], offset: u64) -> Repeated {
        Repeated { stream, through: AtomicU64::new(offset) }
    }

    /// Notes that what is repeated next ends at this offset.
    pub fn begin(&self, through: u64) {
        self.through.store(through, Ordering::Release);
    }

    /// Returns the name of the stream.
    pub fn stream(&self) -> [u8; STREAM_BYTES] {
        self.stream
    }

    /// Returns the offset at which the command ends that runs, or has run last.
    pub fn through(&self) -> u64 {
        self.through.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_as_it_was_written_and_no_other() {
        let origin = Origin { stream: [b'f'; STREAM_BYTES], offset: u64::MAX - 7, database: 15 };
        let value = origin.encode();
        assert_eq!(Origin::decode(&value), Some(origin));
        for bytes in 0..value.len() {
            assert_eq!(Origin::decode(&value[..bytes]), None);
        }
        assert_eq!(Origin::decode(&[&value[..], b"x"].concat()), None);
    }
}
