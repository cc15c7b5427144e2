//! Where a command runs, and why it cannot go on there.

use crate::base::BaseError;

/// Why a transaction cannot go on. It is dropped; nothing has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Only the disk can answer: load the rows, then run again.
    WouldBlock,
    /// This is going to take long: run it on the I/O pool under its locks.
    Long,
    /// It needs key locks that are not held: run it under those of its keys and under `Txn::take_lacking`.
    NeedsLocks,
    /// It changes more than `txn-bytes-max` at once.
    TooLarge,
    /// The store takes no writes now; the text of the error reply.
    Refused(String),
    /// The disk failed or holds damaged bytes; the text of the error reply.
    Failed(String),
}

/// Where a command runs, and so what its reads may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On an event loop, under its key locks: never the disk.
    Memory,
    /// On an event loop without key locks, only to see whether the disk is needed: what it writes is dropped.
    Look,
    /// On the I/O pool without key locks, only to load rows: what it reads is pinned, what it writes is dropped.
    Load,
    /// On the I/O pool under its key locks.
    Disk,
}

/// The stop for an error of the base.
pub(crate) fn failed(error: &BaseError) -> Stop {
    Stop::Failed(format!("ERR storage error: {error}"))
}
