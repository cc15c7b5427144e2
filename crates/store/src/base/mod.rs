//! The base: everything up to the applied index, below the memtable. This file is its contract; `memory_base` is the
//! one of `engine memory` and of tests, the crate store-rocks has the one on disk.

pub(crate) mod memory;

use crate::row::{ObjectId, Space};
use crate::value::Value;
use std::path::Path;

/// How far a read may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// What is in memory (memory, block cache); never the disk. For event loops.
    Memory,
    /// The disk too. For the I/O pool.
    Disk,
}

/// The order in which an ordered read goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// What a point read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    Row(Value),
    Absent,
    /// Only the disk knows, and the tier was `Memory`.
    WouldBlock,
}

/// What an ordered read found next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    Row {
        key: &'a [u8],
        value: &'a [u8],
    },
    End,
    /// Only the disk knows, and the tier was `Memory`.
    WouldBlock,
}

/// Why the base failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseError {
    /// The disk is full; what was begun has no effect and may be tried again.
    Full(String),
    /// Stored bytes are damaged: where and how, as far as known.
    Corrupt(String),
    /// Anything else.
    Failed(String),
}

impl std::fmt::Display for BaseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BaseError::Full(why) => write!(f, "the disk is full: {why}"),
            BaseError::Corrupt(why) => write!(f, "damaged data: {why}"),
            BaseError::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for BaseError {}

/// Rows in the order of their keys, up or down, from one moment: the files it reads stay until it is dropped.
pub trait Cursor {
    /// The next row; after `End` always `End`, after `WouldBlock` the cursor is of no more use.
    fn step(&mut self) -> Result<Step<'_>, BaseError>;
}

/// Rows on their way down: ascending keys, each once; `None` deletes.
pub trait Rows {
    /// An error ends the ingestion, which then has no effect.
    fn next_row(&mut self) -> Result<Option<(&[u8], Option<&[u8]>)>, BaseError>;
}

/// What the compaction may take away. It keeps whatever it is not sure of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reclaim {
    /// Objects below this id are wholly in the base: without an owner row there, their rows are dead.
    pub objects_below: u64,
    /// Spaces that are no database any more, and that the base knows to be dead.
    pub dead_spaces: Vec<Space>,
}

impl Reclaim {
    pub fn covers(&self, id: ObjectId) -> bool {
        id.0 < self.objects_below
    }
}

/// How far compaction is behind; the flush waits by it, because ingestion is not slowed by the base itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    pub level0_files: u64,
    pub pending_compaction_bytes: u64,
    pub running_compactions: u64,
}

/// An ordered map of rows on disk (or in memory) that changes only by whole flushes.
pub trait Base: Send + Sync + 'static {
    /// Reads one row at latest.
    fn get(&self, key: &[u8], tier: Tier) -> Result<Lookup, BaseError>;

    /// Rows with `from <= key < until`, from the end at which the direction begins.
    fn scan(
        &self,
        from: &[u8],
        until: &[u8],
        direction: Direction,
        tier: Tier,
    ) -> Result<Box<dyn Cursor + '_>, BaseError>;

    /// The same for a long read: owned, so that it outlives the call and may move to another thread. Reads the disk,
    /// does not fill the block cache, and keeps the files of its moment until it is dropped. Opening it may wait: for
    /// the I/O pool.
    fn view(&self, from: &[u8], until: &[u8], direction: Direction) -> Result<Box<dyn Cursor + Send>, BaseError>;

    /// Whether nothing can be taken in. A store over it never flushes: what its log holds above the base stays in
    /// memory.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Takes all rows in, or none: one atomic step. Returns only when they are on disk and visible.
    fn ingest(&self, rows: &mut dyn Rows) -> Result<(), BaseError>;

    /// Whether flushes follow each other: the base may then put off what makes reads faster.
    fn set_busy(&self, busy: bool);

    /// Called several times a second. Files that are not needed any more go at a pace that leaves the disk to others;
    /// at once while the disk is `short_of_space`.
    fn pace_removals(&self, short_of_space: bool);

    /// What compaction may take from now on.
    fn set_reclaim(&self, reclaim: Reclaim);

    /// Gives back the room of the rows in `from <= key < until` that `Reclaim` names as dead: whole files first, then
    /// by compaction. Blocks; for background threads.
    fn reclaim_range(&self, from: &[u8], until: &[u8]) -> Result<(), BaseError>;

    /// About how many bytes on disk the rows in `from <= key < until` take.
    fn bytes_in(&self, from: &[u8], until: &[u8]) -> u64;

    fn pressure(&self) -> Pressure;

    /// A complete copy of the base in `directory`, which does not exist yet; files are linked where possible.
    fn checkpoint(&self, directory: &Path) -> Result<(), BaseError>;

    /// An error that stopped the base's background work, if any; `resume` tries to go on.
    fn background_error(&self) -> Option<BaseError>;
    fn resume(&self) -> Result<(), BaseError>;

    /// Looks whether its files are still there; an error names what is missing. Called about once a second, and reads
    /// the disk.
    fn look(&self) -> Result<(), BaseError> {
        Ok(())
    }

    /// Bytes on disk.
    fn disk_bytes(&self) -> u64;

    /// Changes the bytes its caches may take.
    fn set_cache_bytes(&self, bytes: u64);

    /// Figures for INFO: name and value, in the order in which they are shown.
    fn figures(&self) -> Vec<(&'static str, u64)>;

    /// Ends background work and closes files. No call may follow.
    fn close(&self);
}
