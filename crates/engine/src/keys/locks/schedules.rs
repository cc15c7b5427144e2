//! The locks under many schedules of the threads that want them.

use super::*;
use shuttle::sync::{Arc, Condvar};
use shuttle::thread;

/// Takes the claims as an event loop does, with a condition variable in the place of its queue of events.
fn with_locks(locks: &Locks, claims: &Claims, held_for: HeldFor, run: impl FnOnce()) {
    let called = Arc::new((Mutex::new(0), Condvar::new()));
    let mut turn = Turn::Newcomer;
    let mut parks = 0;
    while let Err(refused) = locks.try_lock(claims, turn, held_for) {
        let call = called.clone();
        let waiter = Box::new(move || {
            *lock(&call.0) += 1;
            call.1.notify_one();
        });
        // One that is told to try again at once counts as called.
        let before = std::mem::replace(&mut turn, Turn::Called(refused));
        if matches!(locks.park(refused, before, waiter), Parked::Queued) {
            parks += 1;
            let mut calls = lock(&called.0);
            while *calls < parks {
                calls = called.1.wait(calls).expect("no waiter panics");
            }
        }
    }
    run();
    locks.unlock(claims, held_for);
}

fn assert_all_is_given_back(locks: &Locks) {
    assert_eq!(locks.parked(), 0);
    assert!((0..3).all(|stripe| locks.words[stripe].load(Ordering::SeqCst) == 0));
    assert!(locks.by_key.is_empty());
}

const KEYS: usize = 4;

/// The keys: two are of one stripe.
const HASHES: [u32; KEYS] = [0, 1, 2, 1 + STRIPES as u32];

/// Threads that want overlapping sets of keys all get them, exclusively where they asked for that, however they are
/// scheduled: a lost wake-up is a deadlock, which shuttle reports.
fn no_wake_up_is_lost(sets: [(HeldFor, &'static [(usize, Hold)]); 4]) {
    let scenario = move || {
        let locks = Arc::new(Locks::default());
        let holders = Arc::new(Mutex::new([0i32; KEYS]));
        let threads = sets.map(|(held_for, keys)| {
            let (locks, holders) = (locks.clone(), holders.clone());
            thread::spawn(move || {
                let mut claims = Claims::default();
                keys.iter().for_each(|&(key, hold)| claims.add(HASHES[key], hold));
                claims.arrange();
                for _ in 0..2 {
                    with_locks(&locks, &claims, held_for, || {
                        for &(key, hold) in keys {
                            let mut holders = lock(&holders);
                            let now = &mut holders[key];
                            assert!(*now == 0 || (*now > 0 && hold == Hold::Shared), "a writer excludes all others");
                            *now += if hold == Hold::Shared { 1 } else { -1 };
                        }
                        thread::yield_now();
                        for &(key, hold) in keys {
                            lock(&holders)[key] -= if hold == Hold::Shared { 1 } else { -1 };
                        }
                    });
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().expect("no assertion failed"));
        assert_all_is_given_back(&locks);
    };
    shuttle::check_random(scenario, 3000);
    shuttle::check_pct(scenario, 3000, 3);
}

#[test]
fn no_wake_up_of_a_stripe_is_lost() {
    no_wake_up_is_lost([
        (HeldFor::Moment, &[(0, Hold::Exclusive), (1, Hold::Shared)]),
        (HeldFor::Moment, &[(1, Hold::Exclusive)]),
        (HeldFor::Moment, &[(0, Hold::Shared), (2, Hold::Exclusive)]),
        (HeldFor::Moment, &[(0, Hold::Shared), (1, Hold::Exclusive), (2, Hold::Shared)]),
    ]);
}

#[test]
fn no_wake_up_of_a_key_is_lost() {
    no_wake_up_is_lost([
        (HeldFor::Long, &[(0, Hold::Exclusive), (1, Hold::Exclusive)]),
        (HeldFor::Long, &[(0, Hold::Shared), (3, Hold::Exclusive)]),
        (HeldFor::Moment, &[(1, Hold::Shared), (3, Hold::Exclusive)]),
        (HeldFor::Long, &[(1, Hold::Shared), (2, Hold::Shared), (3, Hold::Shared)]),
    ]);
}

#[test]
fn no_wake_up_of_a_writer_behind_readers_of_its_key_is_lost() {
    no_wake_up_is_lost([
        (HeldFor::Long, &[(0, Hold::Shared)]),
        (HeldFor::Long, &[(0, Hold::Shared), (3, Hold::Shared)]),
        (HeldFor::Moment, &[(0, Hold::Exclusive)]),
        (HeldFor::Moment, &[(0, Hold::Exclusive)]),
    ]);
}

#[test]
fn no_wake_up_of_a_key_beside_stripes_is_lost() {
    no_wake_up_is_lost([
        (HeldFor::Long, &[(0, Hold::Shared), (1, Hold::Exclusive)]),
        (HeldFor::Moment, &[(3, Hold::Exclusive)]),
        (HeldFor::Moment, &[(1, Hold::Exclusive)]),
        (HeldFor::Moment, &[(0, Hold::Exclusive), (3, Hold::Shared)]),
    ]);
}

/// Threads that take keys on their way, one of which they read before they write it, beside others that wait for these:
/// a writer is alone, and nobody waits for ever.
#[test]
fn no_wake_up_of_a_key_that_was_taken_on_the_way_is_lost() {
    let scenario = || {
        let locks = Arc::new(Locks::default());
        let holders = Arc::new(Mutex::new([0i32; KEYS]));
        let run = |way: usize, locks: &Locks, holders: &Mutex<[i32; KEYS]>| {
            let enter = |key: usize, hold| {
                let now = &mut lock(holders)[key];
                assert!(*now == 0 || (*now > 0 && hold == Hold::Shared), "a writer excludes all others");
                *now += if hold == Hold::Shared { 1 } else { -1 };
            };
            let leave = |key: usize, hold| lock(holders)[key] -= if hold == Hold::Shared { 1 } else { -1 };
            if way > 1 {
                let (held_for, claims) = (LATER[way - 2], Claims::exclusive([HASHES[0], HASHES[1]]));
                with_locks(locks, &claims, held_for, || {
                    [0, 1].into_iter().for_each(|key| enter(key, Hold::Exclusive));
                    thread::yield_now();
                    [0, 1].into_iter().for_each(|key| leave(key, Hold::Exclusive));
                });
                return;
            }
            let mut claims = Claims::default();
            for (key, hold) in [(0, Hold::Shared), (3, Hold::Exclusive), (0, Hold::Exclusive)] {
                let claim = Claim::new(HASHES[key], hold);
                let was_read = claims.has(claim.hash(), Hold::Shared);
                if locks.try_add(&claims, claim) {
                    claims.insert(claim);
                    if was_read {
                        leave(key, Hold::Shared);
                    }
                    enter(key, hold);
                }
                thread::yield_now();
            }
            for (key, hash) in HASHES.into_iter().enumerate() {
                let held = [Hold::Exclusive, Hold::Shared].into_iter().find(|&hold| claims.has(hash, hold));
                held.into_iter().for_each(|hold| leave(key, hold));
            }
            locks.unlock(&claims, HeldFor::Moment);
        };
        let threads: Vec<_> = (0..4)
            .map(|way| {
                let (locks, holders) = (locks.clone(), holders.clone());
                thread::spawn(move || run(way, &locks, &holders))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no assertion failed"));
        assert_all_is_given_back(&locks);
    };
    shuttle::check_random(scenario, 3000);
    shuttle::check_pct(scenario, 3000, 3);
}

/// How long those hold their keys that wait for them.
const LATER: [HeldFor; 2] = [HeldFor::Moment, HeldFor::Long];
