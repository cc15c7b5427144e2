//! The one place that decides what durable means: which records count as durable under a setting, and which of the log's
//! steps makes them so.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::format::Index;

/// When a record counts as durable.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Handed to the operating system; synced in the background. Survives the death of the process.
    Os,
    /// On the disk.
    Fsync,
}

impl Durability {
    /// Returns the index through which all records are durable.
    #[inline]
    fn through(self, reached: &Reached) -> Index {
        match self {
            Durability::Os => reached.written(),
            Durability::Fsync => reached.synced(),
        }
    }

    /// Whether a write makes records durable: whoever waits for them is woken after it.
    pub(crate) fn comes_with_write(self) -> bool {
        match self {
            Durability::Os => true,
            Durability::Fsync => false,
        }
    }

    /// Whether a sync makes records durable: written records are synced at once, and whoever waits for them is woken after it.
    pub(crate) fn comes_with_sync(self) -> bool {
        match self {
            Durability::Os => false,
            Durability::Fsync => true,
        }
    }
}

/// How far the log has got in each respect, and the durability that is asked for. Read without a lock.
#[derive(Debug)]
pub(crate) struct Reached {
    last: AtomicU64,
    written: AtomicU64,
    synced: AtomicU64,
    /// A `Durability` as a number.
    asked: AtomicU8,
}

impl Reached {
    /// All records through `last` are on the disk.
    pub(crate) fn new(last: Index, asked: Durability) -> Reached {
        let at = || AtomicU64::new(last.0);
        Reached { last: at(), written: at(), synced: at(), asked: AtomicU8::new(asked as u8) }
    }

    /// Returns the last index given out.
    #[inline]
    pub(crate) fn last(&self) -> Index {
        Index(self.last.load(Ordering::Acquire))
    }

    /// Returns the index through which all records were handed to the operating system.
    #[inline]
    pub(crate) fn written(&self) -> Index {
        Index(self.written.load(Ordering::Acquire))
    }

    /// Returns the index through which all records are on the disk.
    #[inline]
    pub(crate) fn synced(&self) -> Index {
        Index(self.synced.load(Ordering::Acquire))
    }

    /// Returns the index through which all records are as durable as asked.
    #[inline]
    pub(crate) fn durable(&self) -> Index {
        self.asked().through(self)
    }

    /// Returns the durability that is asked for.
    #[inline]
    pub(crate) fn asked(&self) -> Durability {
        let is_fsync = self.asked.load(Ordering::Relaxed) == Durability::Fsync as u8;
        if is_fsync { Durability::Fsync } else { Durability::Os }
    }

    pub(crate) fn ask(&self, durability: Durability) {
        self.asked.store(durability as u8, Ordering::SeqCst);
    }

    /// Called with the queue locked.
    #[inline]
    pub(crate) fn set_last(&self, last: Index) {
        self.last.store(last.0, Ordering::Release);
    }

    /// Called with the state locked, as is `set_synced`.
    pub(crate) fn set_written(&self, written: Index) {
        self.written.store(written.0, Ordering::Release);
    }

    pub(crate) fn set_synced(&self, synced: Index) {
        self.synced.store(synced.0, Ordering::Release);
    }
}
