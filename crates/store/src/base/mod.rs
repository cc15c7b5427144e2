//! The base: everything up to the applied index, below the memtable. This file is its contract; `memory_base` is the
//! base of `engine memory` and of tests, the crate store-rocks has the one on disk.

pub(crate) mod memory;

use crate::row::{ObjectId, Space};
use crate::value::Value;
use std::path::Path;
use std::time::Duration;

/// How far a read may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The read goes to memory (memory, block cache), never to the disk. For event loops.
    Memory,
    /// The read goes to the disk, too. For the I/O pool.
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

/// The result of a point read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    Row(Value),
    Absent,
    /// The answer needs the disk, and the tier was `Memory`.
    WouldBlock,
}

/// The result of one step of an ordered read.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    Row {
        key: &'a [u8],
        value: &'a [u8],
    },
    End,
    /// The step needs the disk, and the tier was `Memory`.
    WouldBlock,
}

/// The reason why the base failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseError {
    /// The disk is full; the operation had no effect and may be tried again.
    Full(String),
    /// Stored bytes are damaged: where and how, as far as known.
    Corrupt(String),
    /// The base failed in any other way.
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
    /// Returns the next row; after `End` always `End`. After `WouldBlock` the cursor is of no more use.
    fn step(&mut self) -> Result<Step<'_>, BaseError>;
}

/// Rows on their way down: ascending keys, each once; `None` deletes.
pub trait Rows {
    /// Returns the next row. An error ends the ingestion, which then has no effect.
    fn next_row(&mut self) -> Result<Option<(&[u8], Option<&[u8]>)>, BaseError>;
}

/// The rows that compaction may drop. Compaction keeps every row that it is not sure of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reclaim {
    /// Invariant: objects below this id are wholly in the base: without an owner row there, their rows are dead.
    pub objects_below: u64,
    /// Spaces that are no database any more, and that the base knows to be dead.
    pub dead_spaces: Vec<Space>,
}

impl Reclaim {
    pub fn covers(&self, id: ObjectId) -> bool {
        id.0 < self.objects_below
    }
}

/// How far compaction is behind. The flush waits by these figures, because the base itself does not slow ingestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    pub level0_files: u64,
    pub pending_compaction_bytes: u64,
    pub running_compactions: u64,
    /// An estimate of the time until the files at level 0 are fewer, if a compaction runs.
    pub level0_left: Duration,
}

/// An ordered map of rows on disk (or in memory) that changes only by whole flushes.
pub trait Base: Send + Sync + 'static {
    /// Reads one row at latest.
    fn get(&self, key: &[u8], tier: Tier) -> Result<Lookup, BaseError>;

    /// Reads the rows with `from <= key < until`, from the end at which the direction begins.
    fn scan(
        &self,
        from: &[u8],
        until: &[u8],
        direction: Direction,
        tier: Tier,
    ) -> Result<Box<dyn Cursor + '_>, BaseError>;

    /// Reads the rows with `from <= key < until` as a long read does: the cursor is owned, so that it outlives the call
    /// and may move to another thread. Reads the disk, does not fill the block cache, and keeps the files of its moment
    /// until it is dropped. Opening may wait: for the I/O pool.
    fn view(&self, from: &[u8], until: &[u8], direction: Direction) -> Result<Box<dyn Cursor + Send>, BaseError>;

    /// Returns whether nothing can be ingested. A store over such a base never flushes: the records that its log holds
    /// above the base stay in memory.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Takes all rows in, or none: one atomic step. Returns only when they are on disk and visible.
    fn ingest(&self, rows: &mut dyn Rows) -> Result<(), BaseError>;

    /// Sets whether flushes follow each other: the base may then put off the work that makes reads faster.
    fn set_busy(&self, busy: bool);

    /// Removes files that are not needed any more, at a pace that leaves the disk to others; at once while the disk is
    /// `short_of_space`. Called several times a second.
    fn pace_removals(&self, short_of_space: bool);

    /// Sets what compaction may drop.
    fn set_reclaim(&self, reclaim: Reclaim);

    /// Gives back the room of the rows in `from <= key < until` that `Reclaim` names as dead: whole files first, then
    /// by compaction. Blocks; for background threads.
    fn reclaim_range(&self, from: &[u8], until: &[u8]) -> Result<(), BaseError>;

    /// Has calls of `reclaim_range` return early from now on: the base is about to be closed.
    fn end_reclaims(&self) {}

    /// Returns about how many bytes on disk the rows in `from <= key < until` take.
    fn bytes_in(&self, from: &[u8], until: &[u8]) -> u64;

    fn pressure(&self) -> Pressure;

    /// Writes a complete copy of the base to `directory`, which does not exist yet; files are linked where possible.
    fn checkpoint(&self, directory: &Path) -> Result<(), BaseError>;

    /// Returns the error that stopped the base's background work, if there is one; `resume` tries to go on.
    fn background_error(&self) -> Option<BaseError>;
    fn resume(&self) -> Result<(), BaseError>;

    /// Looks whether the base's files are still there; an error names a missing one. Called about once a second, and
    /// reads the disk.
    fn look(&self) -> Result<(), BaseError> {
        Ok(())
    }

    /// Returns the base's bytes on disk.
    fn disk_bytes(&self) -> u64;

    /// Changes the bytes that the base's caches may take.
    fn set_cache_bytes(&self, bytes: u64);

    /// Returns figures for INFO: name and value, in the order in which they are shown.
    fn figures(&self) -> Vec<(&'static str, u64)>;

    /// Ends background work and closes files. No call may follow.
    fn close(&self);
}
