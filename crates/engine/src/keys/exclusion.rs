//! The lock over all keys at once: held shared by whatever runs on keys, and exclusively by FLUSHDB, FLUSHALL and
//! SWAPDB.
//!
//! To hold it shared costs no shared cache line: an event loop marks a word of its own for as long as it runs one
//! connection's commands, and looks at one flag that hardly ever changes. Jobs of the I/O pool, which take long anyway,
//! are counted behind the mutex. An exclusive run first waits until the pool's jobs have left, while event loops
//! go on; only then are these kept out, for the microseconds that each needs to leave. Nothing here blocks a thread:
//! who cannot go on leaves a waiter, which is called when it may try again. The locks of single keys are `locks`.

use crate::keys::locks::Waiter;
use crate::sync::{AtomicBool, AtomicU32, Mutex, MutexGuard, Ordering, Padded, fence, lock, spin};
use std::collections::VecDeque;

/// How often the event loops' words are looked at before the one who waits for them leaves: a short pipeline's time.
const SPINS: u32 = 400;

/// The lock over all keys.
pub struct Exclusion {
    /// Event loops stay out. Read at each turn of a connection, written by exclusive holders only.
    closed: Padded<AtomicBool>,
    /// A word per event loop: 1 while it is inside.
    inside: Box<[Padded<AtomicU32>]>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// Jobs of the I/O pool that are inside.
    pool_inside: usize,
    /// The one who drains, until it holds the lock.
    draining: Option<Waiter>,
    /// Waiters of others that want to run exclusively, in order of arrival.
    queue: VecDeque<Waiter>,
    /// Waiters of event loops and of the pool that want in.
    outside: Vec<Waiter>,
    /// The number of exclusive runs that have ended.
    exclusive_runs: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// No new job of the pool comes in; event loops do.
    DrainingPool,
    /// Neither jobs of the pool nor event loops come in.
    DrainingLoops,
    /// An exclusive run is under way.
    Held,
}

/// The answer to a request to run exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusive {
    Granted,
    /// The waiter is called when the lock is held on its behalf.
    WillBeGranted,
    /// The waiter is called when it may ask again.
    AskAgain,
}

impl Exclusion {
    /// Makes an exclusion for the event loops `0..loops`.
    pub fn new(loops: usize) -> Self {
        Exclusion {
            closed: Padded::default(),
            inside: (0..loops).map(|_| Padded::default()).collect(),
            state: Mutex::new(State::default()),
        }
    }

    /// Lets event loop `index` in, unless it has to stay out: then `wait_outside`. Not to be nested.
    #[inline]
    pub fn enter(&self, index: usize) -> bool {
        let word = &self.inside[index].0;
        debug_assert_eq!(word.load(Ordering::Relaxed), 0, "an event loop enters once");
        word.store(1, Ordering::Relaxed);
        // Either this sees the flag, or who sets the flag sees the word.
        fence(Ordering::SeqCst);
        if self.closed.0.load(Ordering::Relaxed) {
            self.leave(index);
            return false;
        }
        // The changes of the last exclusive run are seen from here on.
        fence(Ordering::Acquire);
        true
    }

    /// Event loop `index` leaves.
    #[inline]
    pub fn leave(&self, index: usize) {
        debug_assert_eq!(self.inside[index].0.load(Ordering::Relaxed), 1, "an event loop leaves once");
        self.inside[index].0.store(0, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.closed.0.load(Ordering::Relaxed) {
            self.grant_if_drained(lock(&self.state));
        }
    }

    /// Leaves a waiter of an event loop that was not let in. Gives it back if the way is free by now.
    pub fn wait_outside(&self, waiter: Waiter) -> Option<Waiter> {
        let mut state = lock(&self.state);
        if matches!(state.phase, Phase::DrainingLoops | Phase::Held) {
            state.outside.push(waiter);
            return None;
        }
        Some(waiter)
    }

    /// Lets a job of the I/O pool in, or takes its waiter.
    pub fn enter_pool(&self, waiter: impl FnOnce() -> Waiter) -> bool {
        let mut state = lock(&self.state);
        if state.phase == Phase::Open {
            state.pool_inside += 1;
            return true;
        }
        let waiter = waiter();
        state.outside.push(waiter);
        false
    }

    /// A job of the I/O pool leaves.
    pub fn leave_pool(&self) {
        let mut state = lock(&self.state);
        assert!(state.pool_inside > 0, "a job leaves once");
        state.pool_inside -= 1;
        if state.phase == Phase::DrainingPool && state.pool_inside == 0 {
            self.close(&mut state);
            self.grant_if_drained(state);
        }
    }

    /// Returns the number of exclusive runs that have ended. It stands still for whoever is inside.
    pub fn exclusive_runs(&self) -> u64 {
        lock(&self.state).exclusive_runs
    }

    /// Asks to run exclusively. The caller is not inside. What was granted, now or through the waiter, ends with
    /// `open`. `waiter` makes the waiter for the answer that it will bring; it is not called where the answer is
    /// `Granted`.
    pub fn ask_exclusive(&self, waiter: impl FnOnce(Exclusive) -> Waiter) -> Exclusive {
        let mut state = lock(&self.state);
        if state.phase != Phase::Open {
            state.queue.push_back(waiter(Exclusive::AskAgain));
            return Exclusive::AskAgain;
        }
        if state.pool_inside > 0 {
            state.phase = Phase::DrainingPool;
            state.draining = Some(waiter(Exclusive::WillBeGranted));
            return Exclusive::WillBeGranted;
        }
        self.close(&mut state);
        for _ in 0..SPINS {
            if self.loops_are_out() {
                self.hold(&mut state);
                return Exclusive::Granted;
            }
            spin();
        }
        state.draining = Some(waiter(Exclusive::WillBeGranted));
        // The last one may have left before the waiter was there.
        self.grant_if_drained(state);
        Exclusive::WillBeGranted
    }

    /// An exclusive run has ended: the others are let in again.
    pub fn open(&self) {
        let (outside, queue) = {
            let mut state = lock(&self.state);
            assert!(state.phase == Phase::Held, "only an exclusive run opens");
            state.phase = Phase::Open;
            state.exclusive_runs += 1;
            self.closed.0.store(false, Ordering::SeqCst);
            (std::mem::take(&mut state.outside), std::mem::take(&mut state.queue))
        };
        // All who want it exclusively, too: whoever is too early queues again, and nobody relies on another one to ask.
        for waiter in outside.into_iter().chain(queue) {
            waiter();
        }
    }

    /// Whether one run holds it while nothing else runs.
    pub fn is_held(&self) -> bool {
        lock(&self.state).phase == Phase::Held
    }

    /// Keeps event loops out from now on.
    fn close(&self, state: &mut State) {
        assert!(
            state.phase != Phase::Held && state.pool_inside == 0,
            "event loops are kept out when the pool has left"
        );
        state.phase = Phase::DrainingLoops;
        self.closed.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Invariant: the exclusion is held while no event loop and no thread of the pool is inside.
    fn hold(&self, state: &mut State) {
        assert!(
            state.phase == Phase::DrainingLoops && state.pool_inside == 0,
            "one run is granted it, while nothing else runs"
        );
        state.phase = Phase::Held;
    }

    fn loops_are_out(&self) -> bool {
        self.inside.iter().all(|word| word.0.load(Ordering::Acquire) == 0)
    }

    #[cold]
    fn grant_if_drained(&self, mut state: MutexGuard<'_, State>) {
        if state.phase == Phase::DrainingLoops && state.draining.is_some() && self.loops_are_out() {
            self.hold(&mut state);
            let waiter = state.draining.take();
            drop(state);
            if let Some(waiter) = waiter {
                waiter();
            }
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    fn counting(count: &Arc<AtomicUsize>) -> Waiter {
        let count = count.clone();
        Box::new(move || _ = count.fetch_add(1, Ordering::SeqCst))
    }

    #[test]
    fn an_event_loop_in_the_middle_of_a_turn_is_waited_for() {
        let exclusion = Exclusion::new(2);
        let (granted, let_in) = (Arc::default(), Arc::default());
        assert!(exclusion.enter(0));
        assert_eq!(exclusion.ask_exclusive(|_| counting(&granted)), Exclusive::WillBeGranted);
        assert!(!exclusion.enter(1));
        assert!(exclusion.wait_outside(counting(&let_in)).is_none());
        assert_eq!(granted.load(Ordering::SeqCst), 0);
        exclusion.leave(0);
        assert_eq!(granted.load(Ordering::SeqCst), 1);
        assert!(!exclusion.enter(1) && let_in.load(Ordering::SeqCst) == 0);
        exclusion.open();
        assert_eq!(let_in.load(Ordering::SeqCst), 1);
        assert!(exclusion.enter(1));
    }

    #[test]
    fn event_loops_go_on_while_the_pool_drains() {
        let exclusion = Exclusion::new(1);
        let (granted, job) = (Arc::default(), Arc::default());
        assert!(exclusion.enter_pool(|| unreachable!("the way is free")));
        assert_eq!(exclusion.ask_exclusive(|_| counting(&granted)), Exclusive::WillBeGranted);
        assert!(exclusion.enter(0));
        exclusion.leave(0);
        assert!(!exclusion.enter_pool(|| counting(&job)));
        exclusion.leave_pool();
        assert_eq!(granted.load(Ordering::SeqCst), 1);
        assert!(!exclusion.enter(0));
        exclusion.open();
        assert_eq!(job.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn the_next_is_told_to_ask_again() {
        let exclusion = Exclusion::new(1);
        let next = Arc::default();
        assert_eq!(exclusion.ask_exclusive(|_| Box::new(|| ())), Exclusive::Granted);
        assert_eq!(exclusion.ask_exclusive(|_| counting(&next)), Exclusive::AskAgain);
        exclusion.open();
        assert_eq!(next.load(Ordering::SeqCst), 1);
        assert_eq!(exclusion.ask_exclusive(|_| Box::new(|| ())), Exclusive::Granted);
    }

    #[test]
    fn one_that_does_not_ask_again_keeps_nobody_waiting() {
        let exclusion = Exclusion::new(1);
        let (gone, behind) = (Arc::default(), Arc::default());
        assert_eq!(exclusion.ask_exclusive(|_| Box::new(|| ())), Exclusive::Granted);
        for waiter in [&gone, &behind] {
            assert_eq!(exclusion.ask_exclusive(|_| counting(waiter)), Exclusive::AskAgain);
        }
        exclusion.open();
        assert_eq!([&gone, &behind].map(|waiter| waiter.load(Ordering::SeqCst)), [1, 1]);
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod schedules {
    use super::*;
    use shuttle::sync::{Arc, Condvar};
    use shuttle::thread;

    /// A count of calls that can be waited for.
    #[derive(Default)]
    struct Calls {
        count: Mutex<usize>,
        changed: Condvar,
    }

    impl Calls {
        fn waiter(self: &Arc<Self>) -> Waiter {
            let calls = self.clone();
            Box::new(move || {
                *lock(&calls.count) += 1;
                calls.changed.notify_one();
            })
        }

        fn wait(&self) {
            let mut count = lock(&self.count);
            while *count == 0 {
                count = self.changed.wait(count).expect("no waiter panics");
            }
            *count -= 1;
        }
    }

    #[test]
    fn an_exclusive_run_is_the_only_one_and_all_get_their_turn() {
        let scenario = || {
            let exclusion = Arc::new(Exclusion::new(2));
            let inside = Arc::new(Mutex::new(0i32));
            let mut threads = Vec::new();
            for index in 0..2 {
                let (exclusion, inside) = (exclusion.clone(), inside.clone());
                threads.push(thread::spawn(move || {
                    let calls = Arc::new(Calls::default());
                    for _ in 0..2 {
                        while !exclusion.enter(index) {
                            if exclusion.wait_outside(calls.waiter()).is_none() {
                                calls.wait();
                            }
                        }
                        *lock(&inside) += 1;
                        thread::yield_now();
                        *lock(&inside) -= 1;
                        exclusion.leave(index);
                    }
                }));
            }
            let (pool, pool_inside) = (exclusion.clone(), inside.clone());
            threads.push(thread::spawn(move || {
                let calls = Arc::new(Calls::default());
                for _ in 0..2 {
                    while !pool.enter_pool(|| calls.waiter()) {
                        calls.wait();
                    }
                    *lock(&pool_inside) += 1;
                    thread::yield_now();
                    *lock(&pool_inside) -= 1;
                    pool.leave_pool();
                }
            }));
            for _ in 0..2 {
                let (exclusion, inside) = (exclusion.clone(), inside.clone());
                threads.push(thread::spawn(move || {
                    let calls = Arc::new(Calls::default());
                    loop {
                        match exclusion.ask_exclusive(|_| calls.waiter()) {
                            Exclusive::Granted => break,
                            Exclusive::WillBeGranted => {
                                calls.wait();
                                break;
                            }
                            Exclusive::AskAgain => calls.wait(),
                        }
                    }
                    assert_eq!(*lock(&inside), 0, "nobody else is inside");
                    thread::yield_now();
                    assert_eq!(*lock(&inside), 0, "nobody came in");
                    exclusion.open();
                }));
            }
            threads.into_iter().for_each(|thread| thread.join().expect("no assertion failed"));
        };
        shuttle::check_random(scenario, 2000);
        shuttle::check_pct(scenario, 2000, 3);
    }
}
