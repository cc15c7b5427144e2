//! Object ids: leased in blocks through the log before their first use, never issued twice. Knows which ones belong to
//! transactions that are still writing, so that nothing of theirs is taken for garbage.

use crate::row::{ObjectId, RowKey, SystemScope, system_row};
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// Ids leased at once: one small record for so many large values.
const LEASE: u64 = 65_536;

/// The first id that was never leased, as u64 BE.
pub fn lease_row() -> RowKey {
    system_row(SystemScope::Replicated, b"next-object")
}

#[derive(Default)]
pub struct Objects(Mutex<Ids>);

#[derive(Default)]
struct Ids {
    next: u64,
    leased: u64,
    /// Issued to transactions that have not ended.
    in_flight: BTreeSet<u64>,
}

impl Objects {
    /// Every id below is taken: what the log or the base says at open.
    pub fn on_lease(&self, leased: u64) {
        let mut ids = self.0.lock();
        ids.next = ids.next.max(leased);
        ids.leased = ids.leased.max(leased);
    }

    /// A fresh id. `lease` writes the row that reserves all ids below its argument, when the last lease is used up.
    pub fn issue<E>(&self, lease: impl FnOnce(u64) -> Result<(), E>) -> Result<ObjectId, E> {
        let mut ids = self.0.lock();
        if ids.next >= ids.leased {
            // Id 0 is never issued.
            let from = ids.next.max(1);
            lease(from + LEASE)?;
            (ids.next, ids.leased) = (from, from + LEASE);
        }
        let id = ids.next;
        ids.next += 1;
        ids.in_flight.insert(id);
        Ok(ObjectId(id))
    }

    /// The transaction that got these ids has ended: committed, or dropped without effect.
    pub fn settle(&self, issued: &[ObjectId]) {
        let mut ids = self.0.lock();
        for id in issued {
            ids.in_flight.remove(&id.0);
        }
    }

    /// Everything below this id belongs to transactions that have ended: for a freeze, under all latches.
    pub fn settled_below(&self) -> u64 {
        let ids = self.0.lock();
        ids.in_flight.first().copied().unwrap_or(ids.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn ids_are_leased_before_they_are_issued_and_never_twice() {
        let objects = Objects::default();
        objects.on_lease(100);
        let mut leases = Vec::new();
        let first = objects
            .issue::<Infallible>(|until| {
                leases.push(until);
                Ok(())
            })
            .expect("cannot fail");
        let second = objects.issue::<Infallible>(|_| panic!("the lease is not used up")).expect("cannot fail");
        assert_eq!((first, second, &leases[..]), (ObjectId(100), ObjectId(101), &[100 + LEASE][..]));
    }

    #[test]
    fn an_unfinished_transaction_holds_the_bound() {
        let objects = Objects::default();
        let issue = || objects.issue::<Infallible>(|_| Ok(())).expect("cannot fail");
        let (first, second) = (issue(), issue());
        objects.settle(&[second]);
        assert_eq!(objects.settled_below(), first.0);
        objects.settle(&[first]);
        assert_eq!(objects.settled_below(), second.0 + 1);
    }
}
