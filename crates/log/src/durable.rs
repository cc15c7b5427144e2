//! The one place that decides what durable means: which records count as durable under a setting, and which of the
//! log's steps makes them so.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

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

    /// Whether a write makes records durable: threads that wait for the records are woken after it.
    pub(crate) fn comes_with_write(self) -> bool {
        match self {
            Durability::Os => true,
            Durability::Fsync => false,
        }
    }

    /// Whether a sync makes records durable: written records are synced at once, and threads that wait for them are
    /// woken after it.
    pub(crate) fn comes_with_sync(self) -> bool {
        match self {
            Durability::Os => false,
            Durability::Fsync => true,
        }
    }
}

/// How far the log has got in each respect, and the durability that is asked for. Read without a lock.
///
/// Invariant: `synced <= written <= last`, and none of them ever goes back.
#[derive(Debug)]
pub(crate) struct Reached {
    last: AtomicU64,
    written: AtomicU64,
    synced: AtomicU64,
    /// A `Durability` as a number.
    asked: AtomicU8,
    /// The last record that others have confirmed to have, with all before it. Never goes back.
    confirmed_by_others: AtomicU64,
    /// Whether records are confirmed only if others have them, too.
    asks_others: AtomicBool,
}

impl Reached {
    /// All records through `last` are on the disk.
    pub(crate) fn new(last: Index, asked: Durability) -> Reached {
        let at = || AtomicU64::new(last.0);
        Reached {
            last: at(),
            written: at(),
            synced: at(),
            asked: AtomicU8::new(asked as u8),
            confirmed_by_others: AtomicU64::new(0),
            asks_others: AtomicBool::new(false),
        }
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

    /// Returns the index through which all records are durable, and others have them where that is asked for.
    #[inline]
    pub(crate) fn confirmed(&self) -> Index {
        let durable = self.durable();
        if self.asks_others() { durable.min(self.confirmed_by_others()) } else { durable }
    }

    /// Returns the last record that others have confirmed to have.
    pub(crate) fn confirmed_by_others(&self) -> Index {
        Index(self.confirmed_by_others.load(Ordering::Acquire))
    }

    /// Notes that others have all records through this one. Returns whether these are more than before.
    pub(crate) fn confirm(&self, through: Index) -> bool {
        let through = through.min(self.last());
        self.confirmed_by_others.fetch_max(through.0, Ordering::AcqRel) < through.0
    }

    #[inline]
    pub(crate) fn asks_others(&self) -> bool {
        self.asks_others.load(Ordering::Relaxed)
    }

    /// Sets whether others are asked. Returns whether that is a change.
    pub(crate) fn ask_others(&self, asks: bool) -> bool {
        self.asks_others.swap(asks, Ordering::SeqCst) != asks
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
        debug_assert_eq!(last, self.last().next(), "indexes are given out without gaps");
        self.last.store(last.0, Ordering::Release);
    }

    /// Called with the state locked, as is `set_synced`.
    pub(crate) fn set_written(&self, written: Index) {
        assert!(
            self.written() <= written && written <= self.last(),
            "what is written never goes back, and an index was given out for it: {written}, {self:?}"
        );
        self.written.store(written.0, Ordering::Release);
    }

    pub(crate) fn set_synced(&self, synced: Index) {
        assert!(
            self.synced() <= synced && synced <= self.written(),
            "what is synced never goes back, and is written: {synced}, {self:?}"
        );
        self.synced.store(synced.0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Record 5 is synced, 7 written, 8 the last one.
    fn reached() -> Reached {
        let reached = Reached::new(Index(5), Durability::Os);
        (6..=8).for_each(|index| reached.set_last(Index(index)));
        reached.set_written(Index(7));
        reached
    }

    #[test]
    fn the_setting_decides_what_is_durable() {
        let reached = reached();
        assert_eq!(reached.durable(), Index(7));
        reached.ask(Durability::Fsync);
        assert_eq!(reached.durable(), Index(5));
        reached.set_synced(Index(6));
        assert_eq!(reached.durable(), Index(6));
        reached.ask(Durability::Os);
        assert_eq!(reached.durable(), Index(7));
    }

    #[test]
    fn where_others_are_asked_a_record_is_confirmed_when_they_have_it_too() {
        let reached = reached();
        assert_eq!(reached.confirmed(), Index(7), "nobody is asked");
        assert!(reached.ask_others(true) && !reached.ask_others(true));
        assert_eq!(reached.confirmed(), Index(0), "nobody has said anything");
        assert!(reached.confirm(Index(6)) && !reached.confirm(Index(6)) && !reached.confirm(Index(4)));
        assert_eq!(reached.confirmed(), Index(6));
        assert!(reached.confirm(Index(8)));
        assert_eq!(reached.confirmed(), Index(7), "this log has no more as durable as asked");
        reached.ask(Durability::Fsync);
        assert_eq!(reached.confirmed(), Index(5));
        assert!(!reached.confirm(Index(100)), "nobody has what there is not");
        assert_eq!(reached.confirmed_by_others(), Index(8));
    }

    #[test]
    #[should_panic(expected = "what is written never goes back")]
    fn what_is_written_never_goes_back() {
        reached().set_written(Index(6));
    }

    #[test]
    #[should_panic(expected = "an index was given out for it")]
    fn what_has_no_index_is_not_written() {
        reached().set_written(Index(9));
    }

    #[test]
    #[should_panic(expected = "what is synced never goes back")]
    fn what_is_synced_never_goes_back() {
        reached().set_synced(Index(4));
    }

    #[test]
    #[should_panic(expected = "and is written")]
    fn what_is_not_written_is_not_synced() {
        reached().set_synced(Index(8));
    }
}
