//! Client-side caching: who is to hear that a key has changed, because it may have kept the value.
//!
//! In the default mode the table of keys knows which clients have read each of them; a change tells these, and forgets
//! them. Clients that listen to prefixes (BCAST) are told of every key with one of theirs. A commit looks here after
//! its rows are visible and under its key locks, as it does for watchers; while nobody tracks, that is one load.
//!
//! *Invariant:* a client hears of every change after the value that it was sent last. A read is noted before it runs,
//! so a commit that does not find the note came before, and the read sees it. A commit that comes while the read is
//! under way finds the note and leaves it: which of the two was first cannot be known, so the next change is told as
//! well. What is told while a reply is under way waits for it (`Session::push`).
//!
//! Next: `table` (who has read which keys), `trackers` (the clients that track, and who listens to which prefixes),
//! `keys` (a part of the table).

mod keys;
pub(crate) mod table;
mod trackers;

use crate::clients::client::Client;
use haypile_commands::host::{TrackingMode, TrackingOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes that a prefix takes, beside its text, in the tables and with its client.
const PREFIX_BYTES: usize = 200;

/// A client that tracks.
#[derive(Debug)]
pub(crate) struct Tracker {
    pub session: u64,
    /// The client's event loop.
    pub worker: usize,
    pub options: TrackingOptions,
    /// Whether the client that messages are redirected to has gone.
    pub is_broken: AtomicBool,
    /// Whether a block began the tracking, which may have read keys before anybody could tell of them.
    pub began_in_block: bool,
    progress: Arc<Progress>,
}

/// The reads of a client, by number. Invariant: the numbers of a session only grow, also where it has ended tracking
/// and begins it again: the table still has its reads of before, and none of them is under way.
#[derive(Debug, Default)]
struct Progress {
    /// Reads that have been noted.
    asked: AtomicU64,
    /// Reads up to this one have been answered.
    answered: AtomicU64,
}

impl Tracker {
    fn new(client: &Client, options: TrackingOptions, is_block: bool, progress: Arc<Progress>) -> Tracker {
        let is_broken = AtomicBool::new(false);
        Tracker { session: client.id, worker: client.worker, options, is_broken, began_in_block: is_block, progress }
    }

    /// Bytes that its prefixes take.
    pub fn bytes(&self) -> usize {
        self.options.prefixes.iter().map(|prefix| PREFIX_BYTES + prefix.len()).sum()
    }

    /// Returns whether reads are to be noted for the client.
    pub fn notes_reads(&self) -> bool {
        self.options.mode != TrackingMode::Broadcast
    }

    /// Notes that all its replies so far have been made.
    #[inline]
    pub fn on_answered(&self) {
        self.progress.answered.store(self.progress.asked.load(Ordering::Relaxed), Ordering::Release);
    }
}

/// Keys that a client is to be told of.
pub(crate) struct Stale {
    pub tracker: Arc<Tracker>,
    pub keys: Vec<Box<[u8]>>,
}

/// The phase of CLIENT CACHING.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Caching {
    #[default]
    No,
    /// The call is about the next command.
    Next,
    /// The call is about the command under way.
    Now,
}
