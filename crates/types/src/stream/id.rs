//! The id of an entry: a time and a number, which order the entries.

use std::fmt;

/// The id `ms-seq`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    pub ms: u64,
    pub seq: u64,
}

impl StreamId {
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    pub const BYTES: usize = 16;

    pub const fn new(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    /// Returns the id behind this one, unless it is the highest.
    #[inline]
    pub fn next(self) -> Option<StreamId> {
        match (self.seq.checked_add(1), self.ms.checked_add(1)) {
            (Some(seq), _) => Some(StreamId { seq, ..self }),
            (None, Some(ms)) => Some(StreamId { ms, seq: 0 }),
            (None, None) => None,
        }
    }

    /// Returns the id before this one, unless it is the lowest.
    pub fn previous(self) -> Option<StreamId> {
        match (self.seq.checked_sub(1), self.ms.checked_sub(1)) {
            (Some(seq), _) => Some(StreamId { seq, ..self }),
            (None, Some(ms)) => Some(StreamId { ms, seq: u64::MAX }),
            (None, None) => None,
        }
    }

    /// Returns `ms: u64 BE | seq: u64 BE`, which sort as the ids do.
    #[inline]
    pub fn to_bytes(self) -> [u8; StreamId::BYTES] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    #[inline]
    pub fn from_bytes(bytes: [u8; StreamId::BYTES]) -> StreamId {
        let both = u128::from_be_bytes(bytes);
        StreamId { ms: (both >> 64) as u64, seq: both as u64 }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_cross_milliseconds() {
        assert_eq!(StreamId::new(1, 2).next(), Some(StreamId::new(1, 3)));
        assert_eq!(StreamId::new(1, u64::MAX).next(), Some(StreamId::new(2, 0)));
        assert_eq!(StreamId::MAX.next(), None);
        assert_eq!(StreamId::new(2, 0).previous(), Some(StreamId::new(1, u64::MAX)));
        assert_eq!(StreamId::MIN.previous(), None);
    }

    #[test]
    fn bytes_sort_as_ids_do() {
        let ids =
            [StreamId::MIN, StreamId::new(0, u64::MAX), StreamId::new(1, 0), StreamId::new(256, 1), StreamId::MAX];
        assert!(ids.is_sorted() && ids.map(StreamId::to_bytes).is_sorted());
        assert_eq!(ids.map(|id| StreamId::from_bytes(id.to_bytes())), ids);
    }
}
