//! Admission: what a run holds from before its first read until after its commit, as guards that give it back when they
//! are dropped. Nothing else in this crate gives back key locks or leaves the exclusion, but the turn of an event loop,
//! which enters and leaves the exclusion as a whole (`run::worker`).
//!
//! Order: a run enters the exclusion before it takes key locks, and gives them back in the opposite order. MIGRATE
//! alone enters while it holds its keys; that cannot be waited for in a circle, because whoever is inside never waits
//! for a key.

use crate::keys::claims::{Claim, Claims, Hold};
use crate::keys::exclusion::{Exclusion, Exclusive};
use crate::keys::locks::{HeldFor, Locks, Refused, Turn, Waiter};
use order::Held;

/// The guards of the running thread, in the order in which it took them; kept where assertions are compiled in.
mod order {
    /// The kind of a guard.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Held {
        Keys,
        /// A way into the exclusion.
        Inside,
    }

    #[cfg(debug_assertions)]
    std::thread_local! {
        static HELD: std::cell::RefCell<Vec<Held>> = const { std::cell::RefCell::new(Vec::new()) };
    }

    /// Notes that the thread holds something more.
    #[inline]
    pub fn take(_held: Held) {
        #[cfg(debug_assertions)]
        HELD.with_borrow_mut(|all| all.push(_held));
    }

    /// Notes that the thread gives something back.
    ///
    /// Invariant: what was taken last is given back first, by the thread that took it. So a run that entered the
    /// exclusion before it took its keys leaves it without them.
    #[inline]
    pub fn give_back(_held: Held) {
        #[cfg(debug_assertions)]
        HELD.with_borrow_mut(|all| assert_eq!(all.pop(), Some(_held), "what was taken last is given back first"));
    }

    /// Invariant: a thread that asks to run exclusively holds nothing, because all others are waited for then.
    pub fn assert_nothing_is_held() {
        #[cfg(debug_assertions)]
        HELD.with_borrow(|all| assert_eq!(all[..], [], "who asks to run exclusively holds nothing"));
    }
}

/// Key locks that are held.
#[must_use]
pub(crate) struct KeysHeld<'a> {
    locks: &'a Locks,
    claims: &'a Claims,
    held_for: HeldFor,
}

impl<'a> KeysHeld<'a> {
    /// Takes all of `claims`, or none.
    ///
    /// # Errors
    /// The stripe that refused. One that was called has to park again or to pass its turn on, as `Locks::try_lock`
    /// says.
    #[inline]
    pub fn try_take(locks: &'a Locks, claims: &'a Claims, turn: Turn, held_for: HeldFor) -> Result<Self, Refused> {
        locks.try_lock(claims, turn, held_for)?;
        order::take(Held::Keys);
        Ok(KeysHeld { locks, claims, held_for })
    }
}

impl Drop for KeysHeld<'_> {
    #[inline]
    fn drop(&mut self) {
        self.locks.unlock(self.claims, self.held_for);
        order::give_back(Held::Keys);
    }
}

/// Key locks that a run has taken while it holds others, with the list of them.
#[must_use]
pub(crate) struct MoreKeysHeld<'a> {
    locks: &'a Locks,
    claims: Claims,
    held_for: HeldFor,
}

impl<'a> MoreKeysHeld<'a> {
    /// No keys yet, to which some can be added.
    pub fn none(locks: &'a Locks) -> Self {
        order::take(Held::Keys);
        MoreKeysHeld { locks, claims: Claims::default(), held_for: HeldFor::Moment }
    }

    /// Takes all of `claims`, or none; it does not wait, because its caller holds other keys.
    pub fn try_take(locks: &'a Locks, claims: Claims, held_for: HeldFor) -> Option<Self> {
        locks.try_lock(&claims, Turn::Newcomer, held_for).ok()?;
        order::take(Held::Keys);
        Some(MoreKeysHeld { locks, claims, held_for })
    }

    /// Takes one key more that these do not cover, as `Locks::try_add` does; whether it is held then.
    pub fn try_add(&mut self, hash: u32, hold: Hold) -> bool {
        debug_assert_eq!(self.held_for, HeldFor::Moment, "other runs ask for what they lack, and begin again");
        let claim = Claim::new(hash, hold);
        let is_taken = self.locks.try_add(&self.claims, claim);
        if is_taken {
            self.claims.insert(claim);
        }
        is_taken
    }

    pub fn covers(&self, hash: u32, hold: Hold) -> bool {
        self.locks.cover(&self.claims, self.held_for, hash, hold)
    }

    pub fn claims(&self) -> &Claims {
        &self.claims
    }
}

impl Drop for MoreKeysHeld<'_> {
    fn drop(&mut self) {
        self.locks.unlock(&self.claims, self.held_for);
        order::give_back(Held::Keys);
    }
}

/// An event loop's way into the exclusion for something beside its turns.
#[must_use]
pub(crate) struct LoopInside<'a> {
    exclusion: &'a Exclusion,
    index: usize,
}

impl<'a> LoopInside<'a> {
    /// Lets event loop `index` in, unless it has to stay out.
    pub fn try_enter(exclusion: &'a Exclusion, index: usize) -> Option<Self> {
        exclusion.enter(index).then(|| {
            order::take(Held::Inside);
            LoopInside { exclusion, index }
        })
    }
}

impl Drop for LoopInside<'_> {
    fn drop(&mut self) {
        self.exclusion.leave(self.index);
        order::give_back(Held::Inside);
    }
}

/// A thread's way into the exclusion that is no event loop.
#[must_use]
pub(crate) struct PoolInside<'a>(&'a Exclusion);

impl<'a> PoolInside<'a> {
    /// Lets the thread in, or takes its waiter.
    pub fn try_enter(exclusion: &'a Exclusion, waiter: impl FnOnce() -> Waiter) -> Option<Self> {
        exclusion.enter_pool(waiter).then(|| {
            order::take(Held::Inside);
            PoolInside(exclusion)
        })
    }

    /// The number of exclusive runs that have ended.
    pub fn exclusive_runs(&self) -> u64 {
        self.0.exclusive_runs()
    }
}

impl Drop for PoolInside<'_> {
    fn drop(&mut self) {
        self.0.leave_pool();
        order::give_back(Held::Inside);
    }
}

/// The exclusion, held by one run while nothing else runs.
#[must_use]
pub(crate) struct ExclusionHeld<'a>(&'a Exclusion);

impl<'a> ExclusionHeld<'a> {
    /// Asks for it. Without an answer at once, `waiter` has made the waiter for the one that comes: where that is
    /// `WillBeGranted`, its call means that the exclusion is held, and `granted` makes the guard.
    pub fn try_hold(exclusion: &'a Exclusion, waiter: impl FnOnce(Exclusive) -> Waiter) -> Option<Self> {
        order::assert_nothing_is_held();
        (exclusion.ask_exclusive(waiter) == Exclusive::Granted).then(|| ExclusionHeld(exclusion))
    }

    /// The guard of one whose waiter was called.
    pub fn granted(exclusion: &'a Exclusion) -> Self {
        debug_assert!(exclusion.is_held(), "a waiter is called when the exclusion is held");
        ExclusionHeld(exclusion)
    }

    /// Leaves the exclusion held: the data could not be opened again, and the server stops.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for ExclusionHeld<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// The guards of a run. Invariant: the keys are given back before the thread leaves the exclusion.
#[must_use]
pub(crate) enum Admitted<'a> {
    /// An event loop's: it is inside for its turn.
    OnLoop {
        _keys: KeysHeld<'a>,
    },
    OnPool {
        _keys: KeysHeld<'a>,
        _inside: PoolInside<'a>,
    },
    /// An exclusive run claims no keys.
    Exclusive {
        _held: ExclusionHeld<'a>,
    },
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::keys::claims::Hold;

    #[test]
    fn what_is_held_is_given_back_by_a_drop() {
        let (locks, exclusion) = (Locks::default(), Exclusion::new(1));
        let claims = Claims::exclusive([1, 2]);
        let take = || KeysHeld::try_take(&locks, &claims, Turn::Newcomer, HeldFor::Moment);
        let inside = PoolInside::try_enter(&exclusion, || unreachable!("the way is free")).expect("the way is free");
        let admitted = Admitted::OnPool { _keys: take().expect("they are free"), _inside: inside };
        assert!(take().is_err());
        drop(admitted);
        drop(take().expect("they were given back"));
        let held = ExclusionHeld::try_hold(&exclusion, |_| Box::new(|| ())).expect("nobody is inside");
        assert!(LoopInside::try_enter(&exclusion, 0).is_none());
        drop(held);
        drop(LoopInside::try_enter(&exclusion, 0).expect("the way is free"));
        drop(LoopInside::try_enter(&exclusion, 0).expect("it has left"));
        let more = MoreKeysHeld::try_take(&locks, Claims::exclusive([2]), HeldFor::Moment).expect("it is free");
        assert!(more.covers(2, Hold::Exclusive) && !more.covers(1, Hold::Shared) && take().is_err());
        drop(more);
        let mut shared = Claims::default();
        shared.add(1, Hold::Shared);
        shared.arrange();
        drop(KeysHeld::try_take(&locks, &shared, Turn::Newcomer, HeldFor::Moment).expect("it is free"));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "what was taken last is given back first")]
    fn keys_are_given_back_before_the_thread_leaves_the_exclusion() {
        let (locks, exclusion) = (Locks::default(), Exclusion::new(1));
        let claims = Claims::exclusive([1]);
        let inside = PoolInside::try_enter(&exclusion, || unreachable!("the way is free")).expect("the way is free");
        let keys = KeysHeld::try_take(&locks, &claims, Turn::Newcomer, HeldFor::Moment).expect("they are free");
        // The guard's own end would be a second panic.
        std::mem::forget(keys);
        drop(inside);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "who asks to run exclusively holds nothing")]
    fn who_holds_keys_may_not_ask_to_run_exclusively() {
        let (locks, exclusion) = (Locks::default(), Exclusion::new(1));
        let claims = Claims::exclusive([1]);
        let _held = KeysHeld::try_take(&locks, &claims, Turn::Newcomer, HeldFor::Moment).expect("they are free");
        _ = ExclusionHeld::try_hold(&exclusion, |_| Box::new(|| ()));
    }

    #[test]
    fn who_asked_while_others_were_inside_is_granted_it_when_they_leave() {
        let exclusion = Exclusion::new(1);
        let inside = PoolInside::try_enter(&exclusion, || unreachable!("the way is free")).expect("the way is free");
        std::thread::scope(|threads| {
            let asks = || ExclusionHeld::try_hold(&exclusion, |_| Box::new(|| ())).is_none();
            assert!(threads.spawn(asks).join().expect("it does not panic"), "somebody is inside");
        });
        drop(inside);
        drop(ExclusionHeld::granted(&exclusion));
        drop(LoopInside::try_enter(&exclusion, 0).expect("the way is free"));
    }
}
