//! Read rounds: the proof that a leader was one after it had read.
//!
//! Who has read takes the number of the open round; the reply leaves when that round is confirmed. A round is closed by
//! what proves it, and begun after that: a commit of an entry that was proposed then, or a quorum's answers to
//! heartbeats that were sent then.
//!
//! A lease saves most rounds. Members that have heard of their leader vote for nobody else for an election timeout, so
//! that for a part of that time, from the moment on when a confirmed round was closed, there is no other leader.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A clock that goes on while the machine sleeps: microseconds since some moment.
pub type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

/// A round that is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    pub number: u64,
    closed_us: u64,
}

struct Lease {
    clock: Clock,
    length_us: u64,
    /// The end of the lease, by the clock.
    until_us: AtomicU64,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a lease through {:?} us", self.until_us)
    }
}

/// The rounds of one member, shared by those who read and the one that has them confirmed.
#[derive(Debug)]
pub struct Rounds {
    open: AtomicU64,
    confirmed: AtomicU64,
    wanted: AtomicBool,
    lease: Option<Lease>,
}

impl Default for Rounds {
    fn default() -> Rounds {
        Rounds { open: AtomicU64::new(1), confirmed: AtomicU64::new(0), wanted: AtomicBool::new(false), lease: None }
    }
}

impl Rounds {
    /// Returns rounds of which each that is confirmed begins a lease of this length, from when it was closed.
    ///
    /// Invariant: it is shorter than the election timeout of any member by more than clocks differ in that time.
    pub fn with_lease(length: Duration, clock: Clock) -> Rounds {
        let lease = Lease { clock, length_us: length.as_micros() as u64, until_us: AtomicU64::new(0) };
        Rounds { lease: Some(lease), ..Rounds::default() }
    }

    /// Returns the round of a read that has just been made: under a lease one that is confirmed. Returns also whether
    /// the member has to be told that there is one: it has not been since the last round was closed.
    pub fn join(&self) -> (u64, bool) {
        if self.is_leased() {
            return (self.confirmed(), false);
        }
        // Read first: a round that is closed in between only proves more than is needed.
        let round = self.open.load(Ordering::SeqCst);
        (round, !self.wanted.swap(true, Ordering::SeqCst))
    }

    /// Whether no other member leads now.
    fn is_leased(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| (lease.clock)() < lease.until_us.load(Ordering::SeqCst))
    }

    /// Returns whether members of this group rely on leases.
    pub(crate) fn has_lease(&self) -> bool {
        self.lease.is_some()
    }

    /// Ends the lease, if there is one: another member may lead from now on.
    pub(crate) fn end_lease(&self) {
        if let Some(lease) = &self.lease {
            lease.until_us.store(0, Ordering::SeqCst);
        }
    }

    /// Returns the last round of which all reads may be replied to.
    pub fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::Acquire)
    }

    /// Closes the open round, and returns it.
    pub(crate) fn close(&self) -> Round {
        self.wanted.store(false, Ordering::SeqCst);
        // Messages that are sent later are heard later: the lease begins before.
        let closed_us = self.lease.as_ref().map_or(0, |lease| (lease.clock)());
        Round { number: self.open.fetch_add(1, Ordering::SeqCst), closed_us }
    }

    /// Returns whether there are reads in the open round.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }

    /// Notes that the member led when this round was closed, or later; whether that begins a lease is the caller's to
    /// say.
    pub(crate) fn confirm(&self, round: Round, leases: bool) {
        debug_assert!(round.number < self.open.load(Ordering::SeqCst), "a round is closed before it is confirmed");
        self.confirmed.fetch_max(round.number, Ordering::AcqRel);
        if let Some(lease) = self.lease.as_ref().filter(|_| leases) {
            lease.until_us.fetch_max(round.closed_us + lease.length_us, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_read_waits_for_a_proof_that_began_behind_it() {
        let rounds = Rounds::default();
        assert_eq!(rounds.join(), (1, true));
        assert_eq!(rounds.join(), (1, false), "one call is enough");
        assert!(rounds.is_wanted() && rounds.confirmed() < 1);
        let closed = rounds.close();
        assert_eq!(rounds.join(), (2, true), "a read behind the proof's beginning needs another one");
        rounds.confirm(closed, true);
        assert_eq!(rounds.confirmed(), 1);
        assert_eq!(rounds.join(), (2, false), "without a lease nothing is proved for later");
    }

    #[test]
    fn a_lease_lasts_from_the_end_of_its_round_and_no_longer() {
        let now = Arc::new(AtomicU64::new(1000));
        let clock = now.clone();
        let rounds = Rounds::with_lease(Duration::from_micros(100), Box::new(move || clock.load(Ordering::SeqCst)));
        assert_eq!(rounds.join(), (1, true));
        let (first, at) = (rounds.close(), |us| now.store(us, Ordering::SeqCst));
        at(1050);
        rounds.confirm(first, true);
        assert_eq!(rounds.join(), (1, false), "under the lease a read waits for nothing");
        at(1100);
        assert_eq!(rounds.join(), (2, true), "it began when the round was closed");
        let second = rounds.close();
        rounds.confirm(second, false);
        assert_eq!(rounds.join().0, 3, "this one has begun none");
        let third = rounds.close();
        rounds.confirm(third, true);
        assert_eq!(rounds.join(), (3, false));
        rounds.end_lease();
        assert_eq!(rounds.join().0, 4);
    }
}
