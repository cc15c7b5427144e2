//! The logical key locks: who may run on which keys. They are held from before a command's first read until after its
//! commit, and are not the memtable's latches.
//!
//! A key belongs to one of `STRIPES` words by its name's hash alone: databases share stripes, so that SWAPDB and SELECT
//! inside MULTI need no care here. A command takes all its stripes or none. Where that fails it *parks*: its waiter
//! queues at the stripe that refused, holds nothing meanwhile, and is called when that stripe is free, in order of
//! arrival; it then tries again. Nothing here blocks a thread, and nothing here knows what a waiter does.
//! The lock over all keys at once is `exclusion`.

use crate::sync::{AtomicU32, Mutex, Ordering, lock, pause, spin};
use haypile_store::KeyLocks;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// The number of lock words. 64 KiB of them stay in a core's second-level cache, and with a hundred keys held for long
/// by the I/O pool fewer than one in a hundred other commands meets a foreign one.
pub const STRIPES: usize = 16384;

/// The stripe is held exclusively.
const EXCLUSIVE: u32 = 1 << 31;
/// Someone is parked at the stripe: newcomers line up behind, and whoever unlocks wakes.
const WAITERS: u32 = 1 << 30;
/// Someone holds the stripe across disk reads: waiting for a moment is of no use.
const LONG: u32 = 1 << 29;
/// The bits that count the shared holds of a stripe.
const SHARED: u32 = LONG - 1;

/// The number of further looks at a refused stripe before the command parks: about as long as another event loop's
/// command takes, and less than a wake-up costs.
const SPINS: u32 = 100;

/// A function that is called when a stripe is free again.
pub type Waiter = Box<dyn FnOnce() + Send>;

/// The number of a lock word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stripe(u16);

impl Stripe {
    /// The stripe of a key, by the hash of its name.
    #[inline]
    pub fn of(hash: u32) -> Stripe {
        Stripe((hash as usize % STRIPES) as u16)
    }
}

/// How a command holds its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// With other readers.
    Shared,
    /// By one run only.
    Exclusive,
}

/// The stripes of one command, to be taken together. Reused from command to command.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    /// `stripe << 1 | exclusive`: ascending and each stripe once after `arrange`.
    /// Invariant: locks are taken in this order, so that no two commands refuse each other in a circle.
    claims: SmallVec<[u32; 12]>,
}

impl Claims {
    pub fn clear(&mut self) {
        self.claims.clear();
    }

    /// Adds a key by the hash of its name.
    #[inline]
    pub fn add(&mut self, hash: u32, hold: Hold) {
        let stripe = Stripe::of(hash);
        self.claims.push(u32::from(stripe.0) << 1 | u32::from(hold == Hold::Exclusive));
    }

    /// Sorts the stripes and keeps the stronger hold of each; to be called after the last `add`.
    #[inline]
    pub fn arrange(&mut self) {
        if self.claims.len() < 2 {
            return;
        }
        self.claims.sort_unstable();
        // The exclusive one of a stripe's two claims is the larger, so it comes last; it replaces the one before it.
        let mut kept = 0;
        for i in 1..self.claims.len() {
            if self.claims[i] >> 1 != self.claims[kept] >> 1 {
                kept += 1;
            }
            self.claims[kept] = self.claims[i];
        }
        self.claims.truncate(kept + 1);
    }

    /// Whether they are in the order in which locks are taken.
    fn are_arranged(&self) -> bool {
        self.claims.is_sorted_by(|one, next| one >> 1 < next >> 1)
    }

    /// The stripes of these keys, each exclusively.
    pub fn exclusive(hashes: impl IntoIterator<Item = u32>) -> Claims {
        let mut claims = Claims::default();
        hashes.into_iter().for_each(|hash| claims.add(hash, Hold::Exclusive));
        claims.arrange();
        claims
    }

    /// Whether the stripe of a key is among them, to be held exclusively if asked; they are arranged.
    pub fn covers(&self, hash: u32, exclusive: bool) -> bool {
        let stripe = u32::from(Stripe::of(hash).0) << 1;
        self.claims.binary_search(&(stripe | 1)).is_ok() || !exclusive && self.claims.binary_search(&stripe).is_ok()
    }

    /// Returns the number of stripes.
    pub fn len(&self) -> usize {
        self.claims.len()
    }

    #[inline]
    fn iter(&self) -> impl ExactSizeIterator<Item = (Stripe, Hold)> + '_ {
        self.claims.iter().map(|&claim| {
            let hold = if claim & 1 == 1 { Hold::Exclusive } else { Hold::Shared };
            (Stripe((claim >> 1) as u16), hold)
        })
    }
}

/// The stripe that refused, and how it was asked for: where to park.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    stripe: Stripe,
    hold: Hold,
}

/// The turn of the command that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// For the first time: lines up behind those who are parked.
    Newcomer,
    /// Called from its place in the queue of this stripe: may pass those who are still in it.
    Called(Refused),
}

/// How long the stripes will be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldFor {
    /// For about a microsecond: an event loop.
    Moment,
    /// Across disk reads: the I/O pool.
    Long,
}

/// Whether `park` took the waiter.
pub enum Parked {
    Queued,
    /// The stripe became free meanwhile: try again.
    Retry(Waiter),
}

/// Stripes with which a run asks for no more, so that it comes to an end however its keys change meanwhile.
pub const CLAIMS_MAX: usize = STRIPES / 4;

/// How often, and after what time each, a run on the I/O pool tries to have a key for a moment before it asks to have
/// it from its beginning. Invariant: the wait has an end, because its thread holds other keys meanwhile.
const TRIES_MAX: u32 = 100;
const TRY_EVERY: Duration = Duration::from_micros(100);

/// The locks of a run, and those that it takes for a moment besides.
pub struct Visits<'a> {
    locks: &'a Locks,
    claims: &'a Claims,
    held_for: HeldFor,
}

impl<'a> Visits<'a> {
    pub fn new(locks: &'a Locks, claims: &'a Claims, held_for: HeldFor) -> Self {
        Visits { locks, claims, held_for }
    }
}

impl KeyLocks for Visits<'_> {
    fn holds(&self, hash: u32, exclusive: bool) -> bool {
        self.claims.covers(hash, exclusive)
    }

    fn try_share(&self, hash: u32) -> bool {
        let stripe = Stripe::of(hash);
        let tries = if self.held_for == HeldFor::Long { TRIES_MAX } else { 1 };
        for number in 0..tries {
            if number > 0 {
                pause(TRY_EVERY);
            }
            if self.locks.take(stripe, Hold::Shared, false, HeldFor::Moment) {
                return true;
            }
        }
        false
    }

    fn give_back(&self, hash: u32) {
        self.locks.release(Stripe::of(hash), Hold::Shared);
    }

    fn takes_more(&self) -> bool {
        self.claims.len() < CLAIMS_MAX
    }
}

/// All lock words and those who wait for one.
pub struct Locks {
    words: Box<[AtomicU32]>,
    parked: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    /// Only stripes with someone parked have an entry; then and only then the word carries `WAITERS`.
    by_stripe: HashMap<Stripe, VecDeque<(Hold, Waiter)>>,
}

impl Default for Locks {
    fn default() -> Self {
        Locks { words: (0..STRIPES).map(|_| AtomicU32::new(0)).collect(), parked: Mutex::new(Queues::default()) }
    }
}

impl Locks {
    /// Takes all of `claims` (arranged), or none. A command that was called from a queue and is refused again must park
    /// again or call `pass_on`, so that those behind it are called in its place.
    #[inline]
    pub fn try_lock(&self, claims: &Claims, turn: Turn, held_for: HeldFor) -> Result<(), Refused> {
        debug_assert!(claims.are_arranged(), "stripes are taken in ascending order, each once");
        for (taken, (stripe, hold)) in claims.iter().enumerate() {
            let called = matches!(turn, Turn::Called(at) if at.stripe == stripe);
            if !self.take(stripe, hold, called, held_for) {
                for (stripe, hold) in claims.iter().take(taken) {
                    self.release(stripe, hold);
                }
                if let Turn::Called(at) = turn
                    && at.stripe != stripe
                {
                    self.pass_on(at);
                }
                return Err(Refused { stripe, hold });
            }
        }
        Ok(())
    }

    /// Gives all of `claims` back, and calls whoever is parked at them.
    #[inline]
    pub fn unlock(&self, claims: &Claims) {
        for (stripe, hold) in claims.iter() {
            self.release(stripe, hold);
        }
    }

    /// Queues at the stripe that refused; `waiter` is called once, when it may try again. One that was called before
    /// keeps its place at the front.
    pub fn park(&self, refused: Refused, turn: Turn, waiter: Waiter) -> Parked {
        let word = self.word(refused.stripe);
        let mut parked = lock(&self.parked);
        // From here on whoever unlocks comes to the mutex and finds the waiter.
        let before = word.fetch_or(WAITERS, Ordering::AcqRel);
        let called = matches!(turn, Turn::Called(at) if at.stripe == refused.stripe);
        let empty = !parked.by_stripe.contains_key(&refused.stripe);
        if !conflicts(before, refused.hold) && (empty || called) {
            if empty {
                word.fetch_and(!WAITERS, Ordering::Release);
            }
            return Parked::Retry(waiter);
        }
        let queue = parked.by_stripe.entry(refused.stripe).or_default();
        if called {
            queue.push_front((refused.hold, waiter));
        } else {
            queue.push_back((refused.hold, waiter));
        }
        Parked::Queued
    }

    /// Gives up the turn of one that was called at this stripe: calls those behind it, if the stripe is free.
    pub fn pass_on(&self, at: Refused) {
        self.call_next(at.stripe);
    }

    /// Returns the number of parked commands.
    pub fn parked(&self) -> usize {
        lock(&self.parked).by_stripe.values().map(VecDeque::len).sum()
    }

    #[inline]
    fn word(&self, stripe: Stripe) -> &AtomicU32 {
        &self.words[usize::from(stripe.0) % STRIPES]
    }

    #[inline]
    fn take(&self, stripe: Stripe, hold: Hold, called: bool, held_for: HeldFor) -> bool {
        let word = self.word(stripe);
        let long = if held_for == HeldFor::Long { LONG } else { 0 };
        let mut spins = 0;
        let mut now = word.load(Ordering::Relaxed);
        loop {
            if conflicts(now, hold) || (now & WAITERS != 0 && !called) {
                // In a line, or behind a disk read, waiting a moment is of no use.
                if now & (WAITERS | LONG) != 0 || spins == SPINS {
                    return false;
                }
                spins += 1;
                spin();
                now = word.load(Ordering::Relaxed);
                continue;
            }
            let taken = match hold {
                Hold::Shared => (now + 1) | long,
                Hold::Exclusive => now | EXCLUSIVE | long,
            };
            match word.compare_exchange_weak(now, taken, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(changed) => now = changed,
            }
        }
    }

    #[inline]
    fn release(&self, stripe: Stripe, hold: Hold) {
        let word = self.word(stripe);
        let mut now = word.load(Ordering::Relaxed);
        loop {
            let mut left = match hold {
                Hold::Shared => {
                    debug_assert!(now & SHARED > 0, "a shared hold is given back once");
                    now - 1
                }
                Hold::Exclusive => {
                    debug_assert!(now & EXCLUSIVE != 0, "an exclusive hold is given back once");
                    now & !EXCLUSIVE
                }
            };
            if left & (SHARED | EXCLUSIVE) == 0 {
                left &= !LONG;
            }
            match word.compare_exchange_weak(now, left, Ordering::Release, Ordering::Relaxed) {
                Ok(_) if left & WAITERS != 0 => return self.call_next(stripe),
                Ok(_) => return,
                Err(changed) => now = changed,
            }
        }
    }

    /// Calls the first in the queue, and all readers right behind a reader, if the stripe's holders let them in.
    #[cold]
    fn call_next(&self, stripe: Stripe) {
        let word = self.word(stripe);
        let mut called: SmallVec<[Waiter; 4]> = SmallVec::new();
        {
            let mut parked = lock(&self.parked);
            let Some(queue) = parked.by_stripe.get_mut(&stripe) else { return };
            debug_assert!(word.load(Ordering::Relaxed) & WAITERS != 0, "the word of a stripe with a queue says so");
            while let Some((hold, _)) = queue.front() {
                let hold = *hold;
                if conflicts(word.load(Ordering::Acquire), hold) || (hold == Hold::Exclusive && !called.is_empty()) {
                    break;
                }
                called.extend(queue.pop_front().map(|(_, waiter)| waiter));
                if hold == Hold::Exclusive {
                    break;
                }
            }
            if queue.is_empty() {
                parked.by_stripe.remove(&stripe);
                word.fetch_and(!WAITERS, Ordering::Release);
            }
        }
        for waiter in called {
            waiter();
        }
    }
}

#[inline]
fn conflicts(word: u32, hold: Hold) -> bool {
    match hold {
        Hold::Shared => word & EXCLUSIVE != 0,
        Hold::Exclusive => word & (EXCLUSIVE | SHARED) != 0,
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    fn claims(keys: &[(u32, Hold)]) -> Claims {
        let mut claims = Claims::default();
        keys.iter().for_each(|&(hash, hold)| claims.add(hash, hold));
        claims.arrange();
        claims
    }

    fn refused(locks: &Locks, claims: &Claims) -> Refused {
        locks.try_lock(claims, Turn::Newcomer, HeldFor::Moment).expect_err("somebody holds it")
    }

    fn counting(count: &Arc<AtomicUsize>) -> Waiter {
        let count = count.clone();
        Box::new(move || _ = count.fetch_add(1, Ordering::SeqCst))
    }

    #[test]
    fn a_stripe_is_claimed_once_and_by_its_stronger_hold() {
        let all = claims(&[
            (7, Hold::Shared),
            (3, Hold::Exclusive),
            (7, Hold::Exclusive),
            (3, Hold::Shared),
            (9, Hold::Shared),
        ]);
        let expected = [(Stripe(3), Hold::Exclusive), (Stripe(7), Hold::Exclusive), (Stripe(9), Hold::Shared)];
        assert_eq!(all.iter().collect::<Vec<_>>(), expected);
        assert_eq!(Stripe::of(STRIPES as u32 + 3), Stripe(3));
    }

    #[test]
    fn readers_share_and_a_writer_excludes_all() {
        let locks = Locks::default();
        let (read, write) = (claims(&[(1, Hold::Shared)]), claims(&[(1, Hold::Exclusive)]));
        locks.try_lock(&read, Turn::Newcomer, HeldFor::Moment).expect("free");
        locks.try_lock(&read, Turn::Newcomer, HeldFor::Moment).expect("readers share");
        refused(&locks, &write);
        locks.unlock(&read);
        refused(&locks, &write);
        locks.unlock(&read);
        locks.try_lock(&write, Turn::Newcomer, HeldFor::Moment).expect("free");
        refused(&locks, &read);
        locks.unlock(&write);
        assert!(locks.words.iter().all(|word| word.load(Ordering::SeqCst) == 0));
    }

    #[test]
    fn a_refused_set_holds_nothing() {
        let locks = Locks::default();
        let held = claims(&[(5, Hold::Exclusive)]);
        locks.try_lock(&held, Turn::Newcomer, HeldFor::Long).expect("free");
        refused(&locks, &claims(&[(1, Hold::Exclusive), (2, Hold::Shared), (5, Hold::Shared)]));
        let others = claims(&[(1, Hold::Exclusive), (2, Hold::Exclusive)]);
        locks.try_lock(&others, Turn::Newcomer, HeldFor::Moment).expect("nothing was kept");
        locks.unlock(&others);
        locks.unlock(&held);
        assert!(locks.words.iter().all(|word| word.load(Ordering::SeqCst) == 0));
    }

    #[test]
    fn the_parked_are_called_in_order_and_nobody_passes_them() {
        let locks = Locks::default();
        let (read, write) = (claims(&[(1, Hold::Shared)]), claims(&[(1, Hold::Exclusive)]));
        let (writer, readers) = (Arc::default(), Arc::default());
        locks.try_lock(&read, Turn::Newcomer, HeldFor::Long).expect("free");
        let at = refused(&locks, &write);
        assert!(matches!(locks.park(at, Turn::Newcomer, counting(&writer)), Parked::Queued));
        // A reader could share with the holder, but the writer came first.
        let reader_at = refused(&locks, &read);
        assert!(matches!(locks.park(reader_at, Turn::Newcomer, counting(&readers)), Parked::Queued));
        assert!(matches!(locks.park(reader_at, Turn::Newcomer, counting(&readers)), Parked::Queued));
        locks.unlock(&read);
        assert_eq!((writer.load(Ordering::SeqCst), readers.load(Ordering::SeqCst)), (1, 0));
        locks.try_lock(&write, Turn::Called(at), HeldFor::Moment).expect("its turn");
        locks.unlock(&write);
        assert_eq!(readers.load(Ordering::SeqCst), 2, "both readers are called together");
        assert_eq!(locks.parked(), 0);
    }

    #[test]
    fn one_that_is_refused_elsewhere_lets_the_next_have_its_turn() {
        let locks = Locks::default();
        let (first, both) = (claims(&[(9, Hold::Exclusive)]), claims(&[(2, Hold::Exclusive), (9, Hold::Exclusive)]));
        let (waiting, behind) = (Arc::default(), Arc::default());
        locks.try_lock(&first, Turn::Newcomer, HeldFor::Moment).expect("free");
        let at = refused(&locks, &both);
        assert!(matches!(locks.park(at, Turn::Newcomer, counting(&waiting)), Parked::Queued));
        assert!(matches!(locks.park(refused(&locks, &first), Turn::Newcomer, counting(&behind)), Parked::Queued));
        let other = claims(&[(2, Hold::Exclusive)]);
        locks.try_lock(&other, Turn::Newcomer, HeldFor::Moment).expect("free");
        locks.unlock(&first);
        assert_eq!((waiting.load(Ordering::SeqCst), behind.load(Ordering::SeqCst)), (1, 0));
        locks.try_lock(&both, Turn::Called(at), HeldFor::Moment).expect_err("the other stripe is held");
        assert_eq!(behind.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_stripe_freed_before_parking_is_tried_again() {
        let locks = Locks::default();
        let write = claims(&[(1, Hold::Exclusive)]);
        locks.try_lock(&write, Turn::Newcomer, HeldFor::Moment).expect("free");
        let at = refused(&locks, &write);
        locks.unlock(&write);
        assert!(matches!(locks.park(at, Turn::Newcomer, Box::new(|| ())), Parked::Retry(_)));
        locks.try_lock(&write, Turn::Newcomer, HeldFor::Moment).expect("free, and without a mark of waiters");
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod schedules {
    use super::*;
    use shuttle::sync::{Arc, Condvar};
    use shuttle::thread;

    /// Takes the claims as an event loop does, with a condition variable in the place of its queue of events.
    fn with_locks(locks: &Locks, claims: &Claims, run: impl FnOnce()) {
        let called = Arc::new((Mutex::new(0), Condvar::new()));
        let mut turn = Turn::Newcomer;
        let mut parks = 0;
        while let Err(refused) = locks.try_lock(claims, turn, HeldFor::Moment) {
            let call = called.clone();
            let waiter = Box::new(move || {
                *lock(&call.0) += 1;
                call.1.notify_one();
            });
            match locks.park(refused, turn, waiter) {
                Parked::Retry(_) => {}
                Parked::Queued => {
                    parks += 1;
                    let mut calls = lock(&called.0);
                    while *calls < parks {
                        calls = called.1.wait(calls).expect("no waiter panics");
                    }
                    turn = Turn::Called(refused);
                }
            }
        }
        run();
        locks.unlock(claims);
    }

    /// Threads that want overlapping sets of stripes all get them, exclusively where they asked for that, however they
    /// are scheduled: a lost wake-up is a deadlock, which shuttle reports.
    #[test]
    fn no_wake_up_is_lost() {
        let scenario = || {
            let locks = Arc::new(Locks::default());
            let holders = Arc::new(Mutex::new([0i32; 3]));
            let sets: [&[(u32, Hold)]; 4] = [
                &[(0, Hold::Exclusive), (1, Hold::Shared)],
                &[(1, Hold::Exclusive)],
                &[(0, Hold::Shared), (2, Hold::Exclusive)],
                &[(0, Hold::Shared), (1, Hold::Exclusive), (2, Hold::Shared)],
            ];
            let threads = sets.map(|keys| {
                let (locks, holders) = (locks.clone(), holders.clone());
                thread::spawn(move || {
                    let mut claims = Claims::default();
                    keys.iter().for_each(|&(hash, hold)| claims.add(hash, hold));
                    claims.arrange();
                    for _ in 0..2 {
                        with_locks(&locks, &claims, || {
                            for &(key, hold) in keys {
                                let mut holders = lock(&holders);
                                let now = &mut holders[key as usize];
                                assert!(
                                    *now == 0 || (*now > 0 && hold == Hold::Shared),
                                    "a writer excludes all others"
                                );
                                *now += if hold == Hold::Shared { 1 } else { -1 };
                            }
                            thread::yield_now();
                            for &(key, hold) in keys {
                                lock(&holders)[key as usize] -= if hold == Hold::Shared { 1 } else { -1 };
                            }
                        });
                    }
                })
            });
            threads.into_iter().for_each(|thread| thread.join().expect("no assertion failed"));
            assert_eq!(locks.parked(), 0);
            assert!((0..3).all(|stripe| locks.words[stripe].load(Ordering::SeqCst) == 0));
        };
        shuttle::check_random(scenario, 3000);
        shuttle::check_pct(scenario, 3000, 3);
    }
}
