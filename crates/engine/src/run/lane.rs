//! A queue of jobs and the threads that work on it: whom to wake for a job, and when to sleep.

use crate::sync::{Condvar, Mutex, lock};
use std::collections::VecDeque;
use std::sync::PoisonError;

/// A queue and who works on it. It is bounded by the number of sessions: a session waits for its one job, or for what
/// its requests lack together, which is bounded (`together`), and its connection is not read meanwhile. Memory that is
/// left to the pool to be freed waits for nobody, and counts among that of clients until then.
pub(crate) struct Lane<J> {
    queue: Mutex<Queue<J>>,
    changed: Condvar,
}

struct Queue<J> {
    jobs: VecDeque<J>,
    idle: usize,
    /// An idle thread was woken and has not come yet. One at a time: each that comes wakes the next, if there is more
    /// to do than it takes, so that an event loop wakes no more than one.
    called: bool,
    closed: bool,
}

impl<J> Default for Lane<J> {
    fn default() -> Self {
        let queue = Queue { jobs: VecDeque::new(), idle: 0, called: false, closed: false };
        Lane { queue: Mutex::new(queue), changed: Condvar::new() }
    }
}

impl<J> Lane<J> {
    /// Adds jobs, and wakes a thread for them.
    pub fn extend(&self, jobs: impl Iterator<Item = J>) {
        let mut jobs = jobs.peekable();
        if jobs.peek().is_none() {
            return;
        }
        let call = {
            let mut queue = lock(&self.queue);
            if queue.closed {
                // Jobs are dropped without the lock: they may hold what takes it.
                drop(queue);
                return drop(jobs);
            }
            queue.jobs.extend(jobs);
            queue.call()
        };
        if call {
            self.changed.notify_one();
        }
    }

    /// Waits for a job; none comes any more when the lane is closed.
    pub fn next(&self) -> Option<J> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.closed {
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                let call = queue.call();
                drop(queue);
                if call {
                    self.changed.notify_one();
                }
                return Some(job);
            }
            queue.idle += 1;
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
            queue.called = false;
        }
    }

    /// Returns the number of jobs that no thread has begun.
    pub fn queued(&self) -> usize {
        lock(&self.queue).jobs.len()
    }

    /// Hands out no job any more, and drops those that are there or come.
    pub fn close(&self) {
        let dropped = {
            let mut queue = lock(&self.queue);
            queue.closed = true;
            std::mem::take(&mut queue.jobs)
        };
        self.changed.notify_all();
        drop(dropped);
    }
}

impl<J> Queue<J> {
    /// Whether an idle thread is to be woken now.
    fn call(&mut self) -> bool {
        let call = !self.jobs.is_empty() && self.idle > 0 && !self.called;
        self.called |= call;
        call
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_lane_that_is_closed_drops_jobs_that_nobody_has_begun() {
        let held = Arc::new(());
        let jobs = |count| (0..count).map(|number| (number, held.clone()));
        let lane = Lane::default();
        lane.extend(jobs(3));
        let begun = lane.next().expect("there are three");
        assert_eq!((begun.0, Arc::strong_count(&held)), (0, 4));
        lane.close();
        assert!(lane.next().is_none());
        lane.extend(jobs(2));
        assert!(lane.next().is_none());
        assert_eq!(Arc::strong_count(&held), 2, "only the begun job is left");
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod schedules {
    use super::*;
    use shuttle::sync::Arc;
    use shuttle::thread;

    const THREADS: usize = 3;

    /// Two event loops hand over a job for each thread, some together: each job ends only when all have begun. If a
    /// thread slept while a job waits, nobody could go on, which shuttle reports as a deadlock.
    #[test]
    fn no_thread_sleeps_while_there_is_a_job() {
        let scenario = || {
            let lane = Arc::new(Lane::default());
            let begun = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    let (lane, begun) = (lane.clone(), begun.clone());
                    thread::spawn(move || {
                        while let Some(job) = lane.next() {
                            let mut jobs = lock(&begun.0);
                            jobs.push(job);
                            begun.1.notify_all();
                            let all = jobs.len().next_multiple_of(THREADS);
                            while jobs.len() < all {
                                jobs = begun.1.wait(jobs).expect("nobody panics");
                            }
                        }
                    })
                })
                .collect();
            for round in 0..2 {
                let first = 3 * round;
                let other = lane.clone();
                let event_loop = thread::spawn(move || other.extend([first, first + 1].into_iter()));
                lane.extend(std::iter::once(first + 2));
                event_loop.join().expect("it hands over its jobs");
                let mut jobs = lock(&begun.0);
                while jobs.len() < THREADS * (round as usize + 1) {
                    jobs = begun.1.wait(jobs).expect("nobody panics");
                }
            }
            lane.close();
            threads.into_iter().for_each(|thread| thread.join().expect("no assertion failed"));
            let mut jobs = std::mem::take(&mut *lock(&begun.0));
            jobs.sort_unstable();
            assert_eq!(jobs, [0, 1, 2, 3, 4, 5], "each job is taken once");
        };
        shuttle::check_random(scenario, 3000);
        shuttle::check_pct(scenario, 3000, 3);
    }
}
