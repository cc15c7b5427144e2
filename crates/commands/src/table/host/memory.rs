//! The memory of the process: MEMORY STATS, DOCTOR and MALLOC-STATS.

/// The memory of the process.
pub trait Memory {
    fn memory(&self) -> MemoryFacts;

    /// The figures that the allocator gives for people to read.
    fn allocator_report(&self) -> String;
}

/// The facts behind the fields of MEMORY STATS. Bytes, but for the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryFacts {
    /// The most that was ever allocated, to the second.
    pub peak: u64,
    /// Bytes that were allocated when the store was loaded.
    pub startup: u64,
    /// Bytes that the allocator has given out.
    pub allocated: u64,
    /// Bytes of the pages in which something given out lies.
    pub active: u64,
    /// Bytes that are in memory on the allocator's behalf.
    pub resident: u64,
    /// Bytes that are in memory on the process's behalf.
    pub process: u64,
    /// Bytes of sessions.
    pub clients: u64,
    /// Bytes of records that are not synced yet.
    pub log: u64,
    /// Each database, its keys, and those of them with a deadline.
    pub databases: Vec<(u32, u64, u64)>,
}
