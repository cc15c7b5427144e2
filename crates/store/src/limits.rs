//! The bounds up to which Redis would hold a value compactly: OBJECT ENCODING reports collections by them, and they say
//! whether a HyperLogLog is sparse. Never says how anything is stored.

use std::sync::atomic::{AtomicI64, Ordering};

/// One of the bounds; the directive has nearly its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EncodingLimit {
    HashEntries,
    HashValue,
    /// Positive: elements of a part of a list; -1 to -5: 4 to 64 KB.
    ListSize,
    SetIntsetEntries,
    SetEntries,
    SetValue,
    ZsetEntries,
    ZsetValue,
    /// Entries of a node of a stream, which an approximate trim removes as a whole; 0: there is one node.
    StreamNodeEntries,
    /// The most bytes of a sparse HyperLogLog.
    HllSparseBytes,
}

/// The bounds as the configuration has them.
pub struct EncodingLimits([AtomicI64; 10]);

impl Default for EncodingLimits {
    fn default() -> Self {
        // Redis's defaults, in the order of the enumeration.
        EncodingLimits([512, 64, -2, 512, 128, 64, 128, 64, 100, 3000].map(AtomicI64::new))
    }
}

impl EncodingLimits {
    #[inline]
    pub fn get(&self, limit: EncodingLimit) -> i64 {
        self.0[limit as usize].load(Ordering::Relaxed)
    }

    pub fn set(&self, limit: EncodingLimit, value: i64) {
        self.0[limit as usize].store(value, Ordering::Relaxed);
    }
}
