//! The place where a command runs, and the reason why it cannot go on there.

use crate::base::BaseError;
use crate::refusal::Refusal;

/// The reason why a transaction cannot go on. The transaction is dropped; nothing has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The command needs rows that only the disk has: load them, then run it again.
    WouldBlock,
    /// The command is going to take long: run it on the I/O pool under its locks.
    Long,
    /// The command needs key locks that are not held: run it under those of its keys and under `Txn::take_lacking`.
    NeedsLocks,
    /// The command changes more than `txn-bytes-max` at once.
    TooLarge,
    /// The store takes no writes now, or the command may not go on.
    Refused(Refusal),
    /// The disk failed or holds damaged bytes; says which.
    Failed(String),
}

/// The place where a command runs, which decides what its reads may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The command runs on an event loop, under its key locks: never the disk.
    Memory,
    /// A dry run on an event loop without key locks, which only tells whether the disk is needed; its writes are
    /// dropped.
    Look,
    /// A dry run on the I/O pool without key locks, which prefetches rows; the rows that it reads are pinned, its
    /// writes are dropped.
    Load,
    /// The command runs on the I/O pool under its key locks.
    Disk,
}

/// Returns the stop for an error of the base.
pub(crate) fn failed(error: &BaseError) -> Stop {
    Stop::Failed(format!("storage error: {error}"))
}
