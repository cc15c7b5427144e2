//! Object ids: leased in blocks through the log before their first use, never issued twice. Knows which ids belong to
//! transactions in flight, so that none of their rows is taken for garbage.

use crate::row::{ObjectId, RowKey, SystemScope, system_row};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ids leased at once: one small record for so many large values.
const LEASE: u64 = 65_536;

/// Returns the row of the first id that was never leased; the value is u64 BE.
pub fn lease_row() -> RowKey {
    system_row(SystemScope::Replicated, b"next-object")
}

/// Returns the row of the id below which every object is decided: wholly in the base or in records before the one that
/// writes this row, or without an owner for ever. The value is u64 BE.
pub fn settled_row() -> RowKey {
    system_row(SystemScope::Replicated, b"objects-settled")
}

/// The number of ids left at which more are leased: event loops go on with these while another thread waits for the
/// log.
const LEASE_AHEAD: u64 = LEASE / 2;

/// The number of ids after which the next attempt to lease ahead comes, where the log takes no record now.
const ATTEMPT_EVERY: u64 = 1024;

#[derive(Default)]
pub struct Objects {
    ids: Mutex<Ids>,
    /// The lock of a lease: a thread holds it that asks the log for more ids, which may take long; only threads that
    /// may wait ever wait for it.
    leasing: Mutex<()>,
    /// The id that the newest applied record has for `settled_row`. Invariant: it never goes back.
    settled: AtomicU64,
}

/// Ids to issue, and issued ones. Invariant: never locked while anything waits.
#[derive(Default)]
struct Ids {
    next: u64,
    leased: u64,
    /// Ids issued to transactions that have not ended.
    in_flight: BTreeSet<u64>,
}

impl Objects {
    /// Notes that every id below `leased` is taken: by the base or the log at open, or by a leader's record.
    pub fn on_lease(&self, leased: u64) {
        let mut ids = self.ids.lock();
        ids.next = ids.next.max(leased);
        ids.leased = ids.leased.max(leased);
    }

    /// Returns a fresh id; `None` if there is none and the caller may not wait (`waits`) for the thread that gets more.
    /// `lease` writes the row that reserves all ids below its argument, and waits for room in the log only where its
    /// second argument says so.
    pub fn issue<E>(&self, waits: bool, lease: impl Fn(u64, bool) -> Result<(), E>) -> Result<Option<ObjectId>, E> {
        loop {
            let (id, leased, left) = {
                let mut ids = self.ids.lock();
                (ids.take(), ids.leased, ids.leased.saturating_sub(ids.next))
            };
            if let Some(id) = id {
                assert!(id.0 >= self.settled_below(), "an object that is made is not settled: {id:?}");
                if left <= LEASE_AHEAD
                    && left.is_multiple_of(ATTEMPT_EVERY)
                    && let Some(_leasing) = self.leasing.try_lock()
                {
                    // A failure is ignored, because there are still some ids left.
                    drop(self.extend(leased, |until| lease(until, false)));
                }
                return Ok(Some(id));
            }
            let leasing = if waits { Some(self.leasing.lock()) } else { self.leasing.try_lock() };
            if leasing.is_none() {
                return Ok(None);
            }
            self.extend(leased, |until| lease(until, waits))?;
        }
    }

    /// Leases more ids, unless another thread has since the lease ended with `leased`. The caller holds `leasing`.
    fn extend<E>(&self, leased: u64, lease: impl FnOnce(u64) -> Result<(), E>) -> Result<(), E> {
        if self.ids.lock().leased != leased {
            return Ok(());
        }
        // Id 0 is never issued.
        let until = leased.max(1) + LEASE;
        lease(until)?;
        let mut ids = self.ids.lock();
        assert_eq!(ids.leased, leased, "one thread at a time leases ids");
        ids.next = ids.next.max(1);
        ids.leased = until;
        Ok(())
    }

    /// Notes that the transaction with these ids has ended: committed, or dropped without effect.
    pub fn settle(&self, issued: &[ObjectId]) {
        let mut ids = self.ids.lock();
        for id in issued {
            let was_there = ids.in_flight.remove(&id.0);
            assert!(was_there, "a transaction ends once: {id:?}");
        }
    }

    /// Returns the id below which every id is given out, also to transactions that have not ended.
    pub fn issued_below(&self) -> u64 {
        self.ids.lock().next
    }

    /// Returns the id below which every object belongs to transactions that have ended, on whichever node issues ids.
    pub fn ended_below(&self) -> u64 {
        let ids = self.ids.lock();
        ids.in_flight.first().copied().unwrap_or(ids.next)
    }
}

impl Objects {
    /// Notes that a record, or the base, says that every object below this id is decided.
    pub fn on_settled(&self, below: u64) {
        let before = self.settled.fetch_max(below, Ordering::AcqRel);
        debug_assert!(before <= below, "the settled bound never goes back: {before}, {below}");
    }

    /// Returns the id below which every object is decided, as the records so far have it: equal on all nodes.
    pub fn settled_below(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }
}

impl Ids {
    fn take(&mut self) -> Option<ObjectId> {
        (self.next < self.leased).then(|| {
            let id = self.next;
            self.next += 1;
            let is_new = self.in_flight.insert(id);
            assert!(is_new, "an id is given out once: {id}");
            ObjectId(id)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::convert::Infallible;

    fn issue(objects: &Objects) -> ObjectId {
        objects.issue::<Infallible>(true, |_, _| Ok(())).expect("cannot fail").expect("it waits")
    }

    #[test]
    fn ids_are_leased_before_they_are_issued_and_never_twice() {
        let objects = Objects::default();
        objects.on_lease(100);
        let leases = RefCell::new(Vec::new());
        let issue = || {
            let lease = |until, waits| {
                leases.borrow_mut().push((until, waits));
                Ok(())
            };
            objects.issue::<Infallible>(true, lease).expect("cannot fail")
        };
        assert_eq!((issue(), issue()), (Some(ObjectId(100)), Some(ObjectId(101))));
        assert_eq!(*leases.borrow(), [(100 + LEASE, true)]);
        let issued: Vec<u64> = (0..LEASE).map(|_| issue().expect("it waits").0).collect();
        assert_eq!(issued, (102..102 + LEASE).collect::<Vec<_>>());
        assert_eq!(*leases.borrow(), [(100 + LEASE, true), (100 + 2 * LEASE, false)], "ahead, and without waiting");
    }

    #[test]
    fn who_may_not_wait_never_waits_for_who_leases() {
        let objects = Objects::default();
        let leasing = objects.leasing.lock();
        assert_eq!(objects.issue::<Infallible>(false, |_, _| panic!("another thread is at it")), Ok(None));
        drop(leasing);
        assert_eq!(objects.issue(false, |_, waits| Err(waits)), Err(false));
        // While one thread waits for the log, the other threads take the ids that are left.
        objects.issue::<Infallible>(true, |_, _| Ok(())).expect("cannot fail");
        let _leasing = objects.leasing.lock();
        for _ in 1..LEASE {
            assert!(objects.issue::<Infallible>(false, |_, _| panic!("not twice")).expect("cannot fail").is_some());
        }
        assert_eq!(objects.issue::<Infallible>(false, |_, _| panic!("not twice")), Ok(None));
    }

    /// Checks that threads that take an id, settle some or ask for the bound go on while the log is asked for more,
    /// ahead or not.
    #[test]
    fn ids_are_free_while_the_log_is_asked_for_more() {
        let objects = Objects::default();
        let asked = RefCell::new(0);
        for _ in 0..LEASE {
            let lease = |_, _| {
                *asked.borrow_mut() += 1;
                objects.ids.try_lock().map(drop).ok_or("the ids are held")
            };
            // A lease ahead hides its error, so the ids are looked at here.
            objects.issue(true, lease).expect("nobody holds the ids").expect("it waits");
        }
        assert_eq!(*asked.borrow(), 2, "one lease, and one ahead: a refused one is tried again");
    }

    #[test]
    fn a_log_that_takes_nothing_is_not_asked_for_each_id() {
        let objects = Objects::default();
        issue(&objects);
        let attempts = RefCell::new(0);
        for _ in 1..LEASE {
            let lease = |_, _| {
                *attempts.borrow_mut() += 1;
                Err(())
            };
            assert!(objects.issue(true, lease).expect("there are some left").is_some());
        }
        assert_eq!(*attempts.borrow(), LEASE_AHEAD / ATTEMPT_EVERY + 1);
        assert_eq!(objects.issue(true, |_, _| Err(())), Err(()), "the lease is used up");
    }

    #[test]
    fn an_unfinished_transaction_holds_the_bound() {
        let objects = Objects::default();
        let (first, second) = (issue(&objects), issue(&objects));
        objects.settle(&[second]);
        assert_eq!((objects.ended_below(), objects.issued_below()), (first.0, second.0 + 1));
        objects.settle(&[first]);
        assert_eq!((objects.ended_below(), objects.issued_below()), (second.0 + 1, second.0 + 1));
    }

    #[test]
    #[should_panic(expected = "a transaction ends once")]
    fn a_transaction_that_ends_twice_is_noticed() {
        let objects = Objects::default();
        let first = issue(&objects);
        objects.settle(&[first]);
        objects.settle(&[first]);
    }

    #[test]
    #[should_panic(expected = "an object that is made is not settled")]
    fn an_id_below_the_settled_bound_is_not_given_out() {
        let objects = Objects::default();
        let first = issue(&objects);
        objects.on_settled(first.0 + 2);
        issue(&objects);
    }

    #[test]
    #[should_panic(expected = "one thread at a time leases ids")]
    fn ids_that_somebody_else_leases_meanwhile_are_noticed() {
        let objects = Objects::default();
        let lease = |until: u64, _| {
            objects.on_lease(until);
            Ok::<(), Infallible>(())
        };
        _ = objects.issue(true, lease);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "the settled bound never goes back")]
    fn a_settled_bound_that_goes_back_is_noticed() {
        let objects = Objects::default();
        objects.on_settled(2);
        objects.on_settled(1);
    }
}
