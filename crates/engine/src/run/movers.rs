//! The threads of MIGRATE, which wait for other servers: more of them the more are waited for, up to a bound.
//!
//! The timekeeper is a thread that runs no exchange. It starts the others, and answers those calls whose own time is
//! over before one of the others was free: so a call is never answered long after its timeout, however many targets
//! hang.

use crate::run::engine::Engine;
use crate::run::pool::Job;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Exchanges under way at the same time. A target that hangs takes one thread for its caller's timeout.
const EXCHANGES_MAX: usize = 32;

/// The queue of exchanges, and the threads that carry them out. The queue is bounded by the number of sessions.
#[derive(Default)]
pub(crate) struct Movers {
    state: Mutex<State>,
    /// The signal that an exchange is to be begun, or that none will come any more.
    begun: Condvar,
    /// The signal that the timekeeper has something to look at.
    due: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Threads that have nothing to do, or have just been started.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    timekeeper: Option<JoinHandle<()>>,
    closed: bool,
}

struct Waiting {
    job: Job,
    /// The moment when the caller's time is over; far away if that cannot be said.
    until: Option<Instant>,
}

impl State {
    /// Takes the jobs whose time is over.
    fn overdue(&mut self) -> Vec<Job> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let now = Instant::now();
        let is_over = |waiting: &Waiting| waiting.until.is_some_and(|until| until <= now);
        let (over, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(is_over);
        self.waiting = waiting;
        let over: VecDeque<Waiting> = over;
        over.into_iter().map(|waiting| waiting.job).collect()
    }
}

impl Movers {
    /// Starts the timekeeper.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(engine: &Arc<Engine>) -> std::io::Result<()> {
        let engine_of_thread = engine.clone();
        let thread = std::thread::Builder::new().name("migrate".into()).spawn(move || {
            let engine = engine_of_thread;
            engine.pool.movers.keep_time(&engine);
        })?;
        engine.pool.movers.lock().timekeeper = Some(thread);
        Ok(())
    }

    /// Leaves exchanges for a thread. Whoever waits for one longer than until its moment is answered that its time is
    /// over.
    pub fn extend(&self, jobs: impl Iterator<Item = Job>) {
        let mut jobs = jobs.peekable();
        if jobs.peek().is_none() {
            return;
        }
        {
            let mut state = self.lock();
            if state.closed {
                // Jobs are dropped without the lock: they may hold what takes it.
                drop(state);
                return drop(jobs);
            }
            state.waiting.extend(jobs.map(|job| Waiting { until: job.task.until(), job }));
        }
        self.begun.notify_all();
        self.due.notify_one();
    }

    /// Exchanges that no thread has begun.
    pub fn queued(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Ends the threads, each after its exchange, and waits for them. Exchanges that no thread has begun are dropped.
    pub fn close(&self) {
        let dropped = {
            let mut state = self.lock();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        drop(dropped);
        self.begun.notify_all();
        self.due.notify_all();
        let timekeeper = self.lock().timekeeper.take();
        // The timekeeper starts the others: these are all when it has ended. One that panicked has said so already.
        _ = timekeeper.map(JoinHandle::join);
        let threads = std::mem::take(&mut self.lock().threads);
        for thread in threads {
            _ = thread.join();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_time(&self, engine: &Arc<Engine>) {
        let mut state = self.lock();
        loop {
            let overdue = state.overdue();
            if !overdue.is_empty() {
                drop(state);
                overdue.into_iter().for_each(|job| job.give_up(engine));
                state = self.lock();
                continue;
            }
            if state.closed {
                return;
            }
            if state.waiting.len() > state.idle && state.threads.len() < EXCHANGES_MAX {
                match self.start_one(engine, state.threads.len()) {
                    Ok(thread) => {
                        state.threads.push(thread);
                        state.idle += 1;
                        continue;
                    }
                    Err(why) => tracing::warn!("no thread for MIGRATE can be started: {why}"),
                }
            }
            let next = state.waiting.iter().filter_map(|waiting| waiting.until).min();
            state = match next.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(time) => self.due.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0,
                None => self.due.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn start_one(&self, engine: &Arc<Engine>, number: usize) -> std::io::Result<JoinHandle<()>> {
        let engine = engine.clone();
        std::thread::Builder::new().name(format!("migrate-{number}")).spawn(move || {
            while let Some(job) = engine.pool.movers.next() {
                job.run(&engine);
                engine.pool.movers.on_idle();
            }
        })
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(Waiting { job, .. }) = state.waiting.pop_front() {
                state.idle -= 1;
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.begun.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A thread has ended its exchange.
    fn on_idle(&self) {
        self.lock().idle += 1;
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::clients::inbox::Inbox;
    use crate::run::pool::Task;

    #[test]
    fn exchanges_that_nobody_has_begun_are_dropped_at_the_close() {
        let inbox = Arc::new(Inbox::new(Box::new(|| ())));
        let jobs = |count| (0..count).map(|session| Job { session, inbox: inbox.clone(), task: Task::Expire });
        let movers = Movers::default();
        movers.extend(jobs(3));
        assert_eq!((movers.queued(), Arc::strong_count(&inbox)), (3, 4));
        movers.close();
        movers.extend(jobs(2));
        assert!(movers.next().is_none());
        assert_eq!((movers.queued(), Arc::strong_count(&inbox)), (0, 1));
    }
}
