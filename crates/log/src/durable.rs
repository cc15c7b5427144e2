//! The one place that decides what durable means: which records count as durable under a setting, and which of the
//! log's steps makes them so.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::format::Index;

/// The point from which on a record counts as durable.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A record that was handed to the operating system counts; it is synced in the background. Such a record survives
    /// the death of the process.
    Os,
    /// A record that is on the disk counts.
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

/// The word by which a record is confirmed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Asked {
    /// The word of this log alone.
    This = 0,
    /// The word of this log, and that of others.
    Others = 1,
    /// The word of a consensus group alone: a quorum may have a record before this log does.
    Group = 2,
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
    /// An [`Asked`] as a number.
    asks: AtomicU8,
}

impl Reached {
    /// Makes the state of a log whose records through `last` are on the disk.
    pub(crate) fn new(last: Index, asked: Durability) -> Reached {
        let at = || AtomicU64::new(last.0);
        Reached {
            last: at(),
            written: at(),
            synced: at(),
            asked: AtomicU8::new(asked as u8),
            confirmed_by_others: AtomicU64::new(0),
            asks: AtomicU8::new(Asked::This as u8),
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
        match self.asks() {
            Asked::This => self.durable(),
            Asked::Others => self.durable().min(self.confirmed_by_others()),
            Asked::Group => self.confirmed_by_others(),
        }
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
    fn asks(&self) -> Asked {
        match self.asks.load(Ordering::Relaxed) {
            0 => Asked::This,
            1 => Asked::Others,
            _ => Asked::Group,
        }
    }

    #[inline]
    pub(crate) fn asks_others(&self) -> bool {
        self.asks() != Asked::This
    }

    /// Asks nobody else any more.
    pub(crate) fn leave_group(&self) {
        self.asks.store(Asked::This as u8, Ordering::SeqCst);
    }

    /// Sets who is asked. Returns whether that is a change. A log of a group stays that.
    pub(crate) fn set_asked(&self, asked: Asked) -> bool {
        let change = |was: u8| (was != Asked::Group as u8 && was != asked as u8).then_some(asked as u8);
        self.asks.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).is_ok()
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

    /// Notes the last index given out. The caller has the queue locked.
    #[inline]
    pub(crate) fn set_last(&self, last: Index) {
        debug_assert_eq!(last, self.last().next(), "indexes are given out without gaps");
        self.last.store(last.0, Ordering::Release);
    }

    /// Notes that the records through `written` were written. The caller has the state locked, as for `set_synced`.
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
        assert!(reached.set_asked(Asked::Others) && !reached.set_asked(Asked::Others));
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
    fn in_a_group_a_record_is_confirmed_when_the_group_says_so() {
        let reached = reached();
        reached.ask(Durability::Fsync);
        assert!(reached.set_asked(Asked::Group));
        assert_eq!(reached.confirmed(), Index(0));
        assert!(reached.confirm(Index(8)));
        assert_eq!(reached.confirmed(), Index(8), "whatever this log has on its disk");
        assert!(!reached.set_asked(Asked::This) && reached.asks_others(), "that is for good");
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
