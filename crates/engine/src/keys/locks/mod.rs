//! The logical key locks: who may run on which keys. They are held from before a command's first read until after its
//! commit, and are not the memtable's latches.
//!
//! A key belongs to one of `STRIPES` words by its name's hash alone: databases share stripes, so that SWAPDB and SELECT
//! inside MULTI need no care here. A command takes the stripes of all its arguments or none. Where that fails it
//! *parks*: its waiter queues at the stripe that refused, holds nothing meanwhile, and is called when that stripe is
//! free, in order of arrival; it then tries again. One that comes to a further key takes it if it is free (`try_add`).
//! No thread waits for a key, and nothing here knows what a waiter does.
//!
//! A call takes several times as long as a command. So a stripe that is free does not wait for the one that was called:
//! newcomers pass it, or all commands on a key that several event loops want would be called one by one. One that comes
//! in vain goes to the front, and newcomers line up behind it. That is a bound on what usually happens, not a proof: it
//! can still be passed by one that was called as well, or comes when the queue has just become empty.
//!
//! A run that holds its keys across disk reads, of which it may have thousands, would keep a good part of all stripes
//! from others. It holds each key by itself (`by_key`) and marks the stripes, so that other commands look there for
//! their own keys before they take such a stripe. A stripe that is held as a whole refuses whoever wants a key of it.
//! The lock over all keys at once is `exclusion`.

use crate::keys::by_key::ByKey;
use crate::keys::claims::{Claim, Claims, Hold, STRIPES, Stripe, strongest};
use crate::sync::{AtomicU32, Mutex, Ordering, lock, spin};
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};

/// The stripe is held exclusively.
const EXCLUSIVE: u32 = 1 << 31;
/// Someone is parked at the stripe: newcomers do not join those who hold it, and whoever unlocks wakes.
const WAITERS: u32 = 1 << 30;
/// Some keys of the stripe are held one by one. Set and cleared while `ByKey` stands still for the stripe.
const BY_KEY: u32 = 1 << 29;
/// One that was called in vain is parked again, or on its way after its second call: newcomers line up behind it.
const PASSED: u32 = 1 << 28;
/// The bits that count the shared holds of a stripe.
const SHARED: u32 = PASSED - 1;

/// The number of further looks at a refused stripe before the command parks: about as long as another event loop's
/// command takes, and less than a wake-up costs.
const SPINS: u32 = 100;

/// A function that is called when a stripe is free again.
pub type Waiter = Box<dyn FnOnce() + Send>;

/// The stripe that refused, for what key and how that was asked for: where to park.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    stripe: Stripe,
    /// The key whose holder refused; where the stripe's did, or somebody waits there, any of the keys.
    claim: Claim,
    /// The hold on the stripe.
    hold: Hold,
}

/// The turn of the command that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The run asks for the first time. A newcomer passes those who are parked where the stripe is free, unless one of
    /// them was called in vain.
    Newcomer,
    /// The run was called from its place in the queue of this stripe, and may pass those who are still in it.
    Called(Refused),
}

/// How long the keys will be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldFor {
    /// An event loop holds the keys for about a microsecond, by their stripes.
    Moment,
    /// The I/O pool holds the keys across disk reads, each by itself.
    Long,
}

/// Whether `park` took the waiter.
pub enum Parked {
    Queued,
    /// The stripe became free meanwhile: try again.
    Retry(Waiter),
}

/// All lock words and those who wait for one.
pub struct Locks {
    words: Box<[AtomicU32]>,
    by_key: ByKey,
    parked: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    /// The entries of stripes with someone parked, and of no others; exactly then the word carries `WAITERS`.
    by_stripe: HashMap<Stripe, VecDeque<Parking>>,
}

/// One that is parked.
struct Parking {
    refused: Refused,
    waiter: Waiter,
    /// Whether the waiter was called and came in vain.
    was_called: bool,
}

impl Default for Locks {
    fn default() -> Self {
        let words = (0..STRIPES).map(|_| AtomicU32::new(0)).collect();
        Locks { words, by_key: ByKey::default(), parked: Mutex::new(Queues::default()) }
    }
}

impl Locks {
    /// Takes all of `claims` (arranged), or none. A command that was called from a queue and is refused again must park
    /// again or call `pass_on`, so that those behind it are called in its place.
    #[inline]
    pub fn try_lock(&self, claims: &Claims, turn: Turn, held_for: HeldFor) -> Result<(), Refused> {
        debug_assert!(claims.are_arranged(), "keys are taken in ascending order, each once");
        let by_key = held_for == HeldFor::Long;
        if let Some(claim) = claims.only()
            && !by_key
            && self.take_free(claim)
        {
            return Ok(());
        }
        for (taken, of_stripe) in claims.by_stripe().enumerate() {
            if let [claim] = *of_stripe
                && !by_key
                && self.take_free(claim)
            {
                continue;
            }
            let stripe = of_stripe[0].stripe();
            let called = matches!(turn, Turn::Called(at) if at.stripe == stripe);
            let outcome = if by_key { self.take_keys(of_stripe, called) } else { self.take_stripe(of_stripe, called) };
            if let Err(refused) = outcome {
                for of_stripe in claims.by_stripe().take(taken) {
                    self.release(of_stripe, by_key);
                }
                if let Turn::Called(at) = turn
                    && at.stripe != stripe
                {
                    self.pass_on(at);
                }
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Gives all of `claims` back, which were taken for so long, and calls whoever is parked at them.
    #[inline]
    pub fn unlock(&self, claims: &Claims, held_for: HeldFor) {
        let by_key = held_for == HeldFor::Long;
        if let Some(claim) = claims.only()
            && !by_key
        {
            return self.release_stripe(claim.stripe(), claim.hold());
        }
        for of_stripe in claims.by_stripe() {
            self.release(of_stripe, by_key);
        }
    }

    /// Returns whether one that holds `claims` holds this key at least so.
    pub fn cover(&self, claims: &Claims, held_for: HeldFor, hash: u32, hold: Hold) -> bool {
        if claims.has(hash, hold) {
            return true;
        }
        let of_stripe = claims.of_stripe(Stripe::of(hash));
        if held_for == HeldFor::Long || of_stripe.is_empty() {
            return false;
        }
        // A stripe held as a whole lets nobody in, but a key of it may have been held before. What such a holder gives
        // back does not come again meanwhile.
        (hold == Hold::Shared || strongest(of_stripe) == Hold::Exclusive)
            && self.refused_key(Claim::new(hash, hold)).is_none()
    }

    /// Takes a key that `claims` do not cover for one that holds these for a moment, or makes its hold of their stripe
    /// the stronger one; whether it has the key then, to be added to `claims`. It does not park where it is refused: it
    /// holds others meanwhile.
    pub fn try_add(&self, claims: &Claims, claim: Claim) -> bool {
        let of_stripe = claims.of_stripe(claim.stripe());
        if of_stripe.is_empty() {
            return self.take_free(claim) || self.take_stripe(&[claim], false).is_ok();
        }
        claim.hold() == Hold::Exclusive && strongest(of_stripe) == Hold::Shared && self.strengthen(claim)
    }

    /// Takes a key for a moment, with other readers.
    pub fn try_share(&self, hash: u32) -> bool {
        self.take_stripe(&[Claim::new(hash, Hold::Shared)], false).is_ok()
    }

    /// Gives back what `try_share` took.
    pub fn end_share(&self, hash: u32) {
        self.release_stripe(Stripe::of(hash), Hold::Shared);
    }

    /// Queues at the stripe that refused; `waiter` is called once, when it may try again. One that was called from
    /// there goes to the front, behind others that were, and from then on newcomers do not pass it.
    pub fn park(&self, refused: Refused, turn: Turn, waiter: Waiter) -> Parked {
        let word = self.word(refused.stripe);
        let called = matches!(turn, Turn::Called(at) if at.stripe == refused.stripe);
        let mut parked = lock(&self.parked);
        // From here on whoever unlocks comes to the mutex and finds the waiter.
        let before = word.fetch_or(if called { WAITERS | PASSED } else { WAITERS }, Ordering::AcqRel);
        let empty = !parked.by_stripe.contains_key(&refused.stripe);
        if (empty || called) && self.is_free(before, &refused) {
            if empty {
                word.fetch_and(!(WAITERS | PASSED), Ordering::Release);
            }
            return Parked::Retry(waiter);
        }
        let queue = parked.by_stripe.entry(refused.stripe).or_default();
        let at = if called { queue.iter().take_while(|other| other.was_called).count() } else { queue.len() };
        queue.insert(at, Parking { refused, waiter, was_called: called });
        Parked::Queued
    }

    /// Gives up the turn of one that was called at this stripe: newcomers no longer wait for it, and those behind it
    /// are called, if the stripe is free.
    pub fn pass_on(&self, at: Refused) {
        self.word(at.stripe).fetch_and(!PASSED, Ordering::Release);
        self.call_next(at.stripe);
    }

    /// Returns the number of parked commands.
    pub fn parked(&self) -> usize {
        lock(&self.parked).by_stripe.values().map(VecDeque::len).sum()
    }

    #[inline]
    fn word(&self, stripe: Stripe) -> &AtomicU32 {
        &self.words[stripe.number()]
    }

    /// Takes the stripe of a key, if nobody has to do with it.
    #[inline]
    fn take_free(&self, claim: Claim) -> bool {
        let taken = taken(0, claim.hold());
        self.word(claim.stripe()).compare_exchange(0, taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the stripe of some keys as a whole.
    fn take_stripe(&self, claims: &[Claim], called: bool) -> Result<(), Refused> {
        let (stripe, hold) = (claims[0].stripe(), strongest(claims));
        let word = self.word(stripe);
        let mut spins = 0;
        let mut now = word.load(Ordering::Relaxed);
        loop {
            if !lets_in(now, hold, called) {
                if is_hopeless(now, called) || spins == SPINS {
                    return Err(Refused { stripe, claim: claims[0], hold });
                }
                spins += 1;
                spin();
                now = word.load(Ordering::Relaxed);
                continue;
            }
            // Invariant: none of the keys of one that holds a stripe as a whole is held by itself in a way that does
            // not go with it, and none comes to be.
            let held = (now & BY_KEY != 0).then(|| self.by_key.of(stripe));
            if let Some(claim) = held.as_ref().and_then(|held| held.refused(claims)) {
                return Err(Refused { stripe, claim, hold });
            }
            let after = taken(if called { now & !PASSED } else { now }, hold);
            match word.compare_exchange_weak(now, after, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(changed) => now = changed,
            }
        }
    }

    /// Makes the hold of a stripe an exclusive one, to write a key of it, if its holder is the only one.
    fn strengthen(&self, claim: Claim) -> bool {
        let stripe = claim.stripe();
        let word = self.word(stripe);
        let mut now = word.load(Ordering::Relaxed);
        while now & SHARED == 1 {
            debug_assert!(now & EXCLUSIVE == 0, "Invariant: a writer excludes all others");
            let held = (now & BY_KEY != 0).then(|| self.by_key.of(stripe));
            if held.as_ref().is_some_and(|held| held.refused(&[claim]).is_some()) {
                return false;
            }
            match word.compare_exchange_weak(now, taken(now - 1, Hold::Exclusive), Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(changed) => now = changed,
            }
        }
        false
    }

    /// Takes keys of a stripe one by one, all or none of them.
    fn take_keys(&self, claims: &[Claim], called: bool) -> Result<(), Refused> {
        let (stripe, hold) = (claims[0].stripe(), strongest(claims));
        let word = self.word(stripe);
        let mut spins = 0;
        loop {
            let mut now = word.load(Ordering::Relaxed);
            if !lets_in(now, hold, called) {
                if is_hopeless(now, called) || spins == SPINS {
                    return Err(Refused { stripe, claim: claims[0], hold });
                }
                spins += 1;
                spin();
                continue;
            }
            let mut held = self.by_key.of(stripe);
            if let Some(claim) = held.refused(claims) {
                return Err(Refused { stripe, claim, hold });
            }
            while lets_in(now, hold, called) {
                let after = if called { now & !PASSED } else { now } | BY_KEY;
                match word.compare_exchange_weak(now, after, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => {
                        held.add(claims);
                        drop(held);
                        if called {
                            // The next in the queue may want another key of the stripe.
                            self.call_next(stripe);
                        }
                        return Ok(());
                    }
                    Err(changed) => now = changed,
                }
            }
        }
    }

    #[inline]
    fn release(&self, claims: &[Claim], by_key: bool) {
        match claims {
            _ if by_key => self.release_keys(claims),
            [claim] => self.release_stripe(claim.stripe(), claim.hold()),
            _ => self.release_stripe(claims[0].stripe(), strongest(claims)),
        }
    }

    fn release_keys(&self, claims: &[Claim]) {
        let stripe = claims[0].stripe();
        let mut held = self.by_key.of(stripe);
        let is_last = held.remove(claims);
        let word = self.word(stripe);
        let now = if is_last { word.fetch_and(!BY_KEY, Ordering::Release) } else { word.load(Ordering::Relaxed) };
        drop(held);
        // One that parked before the keys were removed is seen here; one that parks later finds them removed.
        if now & WAITERS != 0 {
            self.call_next(stripe);
        }
    }

    /// Returns the claim, if a holder of the key by itself does not let it in.
    fn refused_key(&self, claim: Claim) -> Option<Claim> {
        let stripe = claim.stripe();
        // A key that was taken before the caller's stripe, or whose end the caller was called for, is seen.
        let is_marked = self.word(stripe).load(Ordering::Acquire) & BY_KEY != 0;
        if is_marked { self.by_key.of(stripe).refused(&[claim]) } else { None }
    }

    /// Returns whether nobody refuses any more, by a stripe's word of a moment ago.
    fn is_free(&self, word: u32, refused: &Refused) -> bool {
        !conflicts(word, refused.hold) && self.refused_key(refused.claim).is_none()
    }

    #[inline]
    fn release_stripe(&self, stripe: Stripe, hold: Hold) {
        let word = self.word(stripe);
        let mut now = word.load(Ordering::Relaxed);
        loop {
            let left = match hold {
                Hold::Shared => {
                    debug_assert!(now & SHARED > 0, "a shared hold is given back once");
                    now - 1
                }
                Hold::Exclusive => {
                    debug_assert!(now & EXCLUSIVE != 0, "an exclusive hold is given back once");
                    now & !EXCLUSIVE
                }
            };
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
            while let Some(first) = queue.front() {
                let hold = first.refused.hold;
                let is_free = self.is_free(word.load(Ordering::Acquire), &first.refused);
                if !is_free || (hold == Hold::Exclusive && !called.is_empty()) {
                    break;
                }
                called.extend(queue.pop_front().map(|first| first.waiter));
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

/// Returns the word of a stripe when one more holds it.
#[inline]
fn taken(word: u32, hold: Hold) -> u32 {
    match hold {
        Hold::Shared => word + 1,
        Hold::Exclusive => word | EXCLUSIVE,
    }
}

/// Returns whether the holders of a stripe, and those who wait for it, let one in. A reader does not join other
/// readers, of the stripe or of keys of it, while someone is parked: else it might never become free for a writer.
#[inline]
fn lets_in(word: u32, hold: Hold, called: bool) -> bool {
    let joins = hold == Hold::Shared && word & (SHARED | BY_KEY) != 0;
    !conflicts(word, hold) && (called || word & WAITERS == 0 || !joins) && !is_hopeless(word, called)
}

/// Returns whether one is not let in however long it looks, because others are before it.
#[inline]
fn is_hopeless(word: u32, called: bool) -> bool {
    !called && word & PASSED != 0
}

#[inline]
fn conflicts(word: u32, hold: Hold) -> bool {
    match hold {
        Hold::Shared => word & EXCLUSIVE != 0,
        Hold::Exclusive => word & (EXCLUSIVE | SHARED) != 0,
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

#[cfg(all(test, feature = "shuttle"))]
mod schedules;
