//! The options with which a store is opened.

use crate::reserve::Reserve;
use std::sync::Arc;

/// A function that asks the disk for its free bytes.
#[derive(Clone)]
pub struct DiskFree(pub Arc<dyn Fn() -> Option<u64> + Send + Sync>);

impl std::fmt::Debug for DiskFree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DiskFree({:?})", (self.0)())
    }
}

/// The options of a store. Sizes in bytes.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// How the log is kept; its `dir` is the log's own directory.
    pub log: haypile_log::Options,
    pub databases: u32,
    /// A generation of the memtable is frozen at this size.
    pub memtable_bytes: u64,
    /// Bytes of the log that would have to be replayed at which a generation is frozen before it is full.
    pub flush_log_bytes: u64,
    /// The row cache's bound; 0 switches the row cache off.
    pub row_cache_bytes: u64,
    /// Whether the row cache has what the memtable's generations do not use of their sizes.
    pub lends: bool,
    pub presence_bytes: u64,
    /// The bound of one transaction's record.
    pub txn_bytes_max: u64,
    /// Whether a plain SET of a cold key does without reading whether the key exists; DBSIZE is an estimate then.
    pub blind_set: bool,
    /// Whether there is no base: nothing is ever flushed, `memtable_bytes` is the bound of the data, nothing survives a
    /// stop.
    pub memory_only: bool,
    /// Whether the store is a member's of a consensus group: its log has records that the group has not agreed on. An
    /// open applies none of them, and the base takes nothing but what `Log::confirm` has named.
    pub in_group: bool,
    /// The free bytes of the disk below which writes stop, beside the room that rows in memory still need. 0: they
    /// never stop.
    pub disk_free_min_bytes: u64,
    /// Free bytes of the disk, if they can be told.
    pub disk_free: DiskFree,
    /// The reserve, which holds a part of `disk_free_min_bytes`.
    pub reserve: Option<Arc<Reserve>>,
    /// The first bytes of plain meta rows: such a row is all that its key has, so whoever overwrites the key need not
    /// read it.
    pub plain: [u8; 2],
    /// The secret of a new store's key hashes. An existing store keeps its own.
    pub hash_seed: u64,
}
