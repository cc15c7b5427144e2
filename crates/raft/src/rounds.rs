//! Read rounds: the proof that a leader was one after it had read.
//!
//! Who has read takes the number of the open round; the reply leaves when that round is confirmed. A round is closed by
//! what proves it, and begun after that: a commit of an entry that was proposed then, or a quorum's answers to
//! heartbeats that were sent then.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The rounds of one member, shared by those who read and the one that has them confirmed.
#[derive(Debug)]
pub struct Rounds {
    open: AtomicU64,
    confirmed: AtomicU64,
    wanted: AtomicBool,
}

impl Default for Rounds {
    fn default() -> Rounds {
        Rounds { open: AtomicU64::new(1), confirmed: AtomicU64::new(0), wanted: AtomicBool::new(false) }
    }
}

impl Rounds {
    /// Returns the round of a read that has just been made. Returns also whether the member has to be told that there
    /// is one: it has not been since the last round was closed.
    pub fn join(&self) -> (u64, bool) {
        // Read first: a round that is closed in between only proves more than is needed.
        let round = self.open.load(Ordering::SeqCst);
        (round, !self.wanted.swap(true, Ordering::SeqCst))
    }

    /// Returns the last round of which all reads may be replied to.
    pub fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::Acquire)
    }

    /// Closes the open round, and returns its number.
    pub(crate) fn close(&self) -> u64 {
        self.wanted.store(false, Ordering::SeqCst);
        self.open.fetch_add(1, Ordering::SeqCst)
    }

    /// Returns whether there are reads in the open round.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }

    /// Notes that the member led when this round was closed, or later. Returns whether that is news.
    pub(crate) fn confirm(&self, round: u64) -> bool {
        debug_assert!(round < self.open.load(Ordering::SeqCst), "a round is closed before it is confirmed");
        self.confirmed.fetch_max(round, Ordering::AcqRel) < round
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_waits_for_a_proof_that_began_behind_it() {
        let rounds = Rounds::default();
        assert_eq!(rounds.join(), (1, true));
        assert_eq!(rounds.join(), (1, false), "one call is enough");
        assert!(rounds.is_wanted() && rounds.confirmed() < 1);
        let closed = rounds.close();
        assert_eq!(rounds.join(), (2, true), "a read behind the proof's beginning needs another one");
        assert!(rounds.confirm(closed) && !rounds.confirm(closed));
        assert_eq!(rounds.confirmed(), 1);
    }
}
