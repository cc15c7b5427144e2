//! The access that the write of a row leaves on its key: when, or how often, the key was used.

use crate::access::Access;
use crate::cache::RowCache;
use crate::memtable::{RowEntry, Shard};
use crate::row::{Key, parse_meta_row};

/// The access that a write leaves on the rows of keys.
#[derive(Clone, Copy)]
pub(crate) enum Written {
    At(Access),
    /// The key's own access, or this one if the key is new.
    Kept(Access),
}

impl Written {
    /// Returns the access that the write of a row leaves on it.
    #[inline]
    pub fn on(self, shard: &Shard, row: &[u8], cache: &RowCache) -> Access {
        match self {
            Written::At(access) => access,
            Written::Kept(fresh) => kept_access(shard, row, cache).unwrap_or(fresh),
        }
    }
}

#[cold]
fn kept_access(shard: &Shard, row: &[u8], cache: &RowCache) -> Option<Access> {
    access_of(shard, row, &parse_meta_row(row)?, cache)
}

/// Returns the access that memory has of an existing key.
pub(crate) fn access_of(shard: &Shard, row: &[u8], key: &Key<'_>, cache: &RowCache) -> Option<Access> {
    match shard.find(key) {
        Some(entry) => Some(entry).filter(|entry| entry.is_live()).map(|entry: &RowEntry| entry.stamp().get()),
        None => cache.access(row),
    }
}
