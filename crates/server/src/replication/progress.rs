//! The log's progress, for threads that wait for it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Counts the times that a log has got further. To count costs one load while nobody follows, and two further atomic
/// operations while nobody waits.
#[derive(Default)]
pub struct Progress {
    followers: AtomicUsize,
    count: AtomicU64,
    waiting: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Progress {
    /// Returns the count, to be read before one looks what there is.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Begins to count for somebody who then reads the log, until what is returned is dropped.
    pub fn follow(&self) -> Following<'_> {
        self.followers.fetch_add(1, Ordering::SeqCst);
        Following(self)
    }

    /// Notes that the log has got further, if anybody follows.
    ///
    /// Invariant: who advances the log leaves its lock before this, and who follows takes it after `follow`. So either
    /// the follower finds the records, or this finds the follower.
    pub fn note_advance(&self) {
        if self.followers.load(Ordering::SeqCst) > 0 {
            self.note();
        }
    }

    /// Notes something else that waiting threads look at.
    pub fn note(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        // Either this sees the one who waits, or that one sees the count.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.changed.notify_all();
        }
    }

    /// Waits until the count is another one than `seen`, or the time is over.
    pub fn wait(&self, seen: u64, time: Duration) {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let same = |_: &mut ()| self.count() == seen;
        drop(self.changed.wait_timeout_while(lock, time, same).unwrap_or_else(PoisonError::into_inner));
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Somebody who follows the log.
pub struct Following<'p>(&'p Progress);

impl Drop for Following<'_> {
    fn drop(&mut self) {
        self.0.followers.fetch_sub(1, Ordering::SeqCst);
    }
}
