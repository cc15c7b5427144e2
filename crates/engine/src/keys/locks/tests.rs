//! The locks as one thread sees them.

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
fn readers_share_and_a_writer_excludes_all() {
    let locks = Locks::default();
    let (read, write) = (claims(&[(1, Hold::Shared)]), claims(&[(1, Hold::Exclusive)]));
    locks.try_lock(&read, Turn::Newcomer, HeldFor::Moment).expect("free");
    locks.try_lock(&read, Turn::Newcomer, HeldFor::Moment).expect("readers share");
    refused(&locks, &write);
    locks.unlock(&read, HeldFor::Moment);
    refused(&locks, &write);
    locks.unlock(&read, HeldFor::Moment);
    locks.try_lock(&write, Turn::Newcomer, HeldFor::Moment).expect("free");
    refused(&locks, &read);
    locks.unlock(&write, HeldFor::Moment);
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
    locks.unlock(&others, HeldFor::Moment);
    locks.unlock(&held, HeldFor::Long);
    assert!(locks.words.iter().all(|word| word.load(Ordering::SeqCst) == 0));
}

#[test]
fn the_parked_are_called_in_order_and_no_reader_joins_others_before_them() {
    let locks = Locks::default();
    let (read, write) = (claims(&[(1, Hold::Shared)]), claims(&[(1, Hold::Exclusive)]));
    let (writer, readers) = (Arc::default(), Arc::default());
    locks.try_lock(&read, Turn::Newcomer, HeldFor::Moment).expect("free");
    let at = refused(&locks, &write);
    assert!(matches!(locks.park(at, Turn::Newcomer, counting(&writer)), Parked::Queued));
    // A reader could share with the holder, but the writer came first.
    let reader_at = refused(&locks, &read);
    assert!(matches!(locks.park(reader_at, Turn::Newcomer, counting(&readers)), Parked::Queued));
    assert!(matches!(locks.park(reader_at, Turn::Newcomer, counting(&readers)), Parked::Queued));
    locks.unlock(&read, HeldFor::Moment);
    assert_eq!((writer.load(Ordering::SeqCst), readers.load(Ordering::SeqCst)), (1, 0));
    locks.try_lock(&write, Turn::Called(at), HeldFor::Moment).expect("its turn");
    locks.unlock(&write, HeldFor::Moment);
    assert_eq!(readers.load(Ordering::SeqCst), 2, "both readers are called together");
    assert_eq!(locks.parked(), 0);
}

#[test]
fn a_free_stripe_is_taken_by_whoever_comes_unless_one_was_called_in_vain() {
    let locks = Locks::default();
    let write = claims(&[(1, Hold::Exclusive)]);
    let take = |turn| locks.try_lock(&write, turn, HeldFor::Moment);
    let (waiting, behind) = (Arc::default(), Arc::default());
    take(Turn::Newcomer).expect("free");
    let at = refused(&locks, &write);
    assert!(matches!(locks.park(at, Turn::Newcomer, counting(&waiting)), Parked::Queued));
    assert!(matches!(locks.park(at, Turn::Newcomer, counting(&behind)), Parked::Queued));
    locks.unlock(&write, HeldFor::Moment);
    take(Turn::Newcomer).expect("the one that was called has not come");
    let again = take(Turn::Called(at)).expect_err("somebody has passed it");
    assert!(matches!(locks.park(again, Turn::Called(at), counting(&waiting)), Parked::Queued));
    locks.unlock(&write, HeldFor::Moment);
    assert_eq!((waiting.load(Ordering::SeqCst), behind.load(Ordering::SeqCst)), (2, 0), "it is the first again");
    refused(&locks, &write);
    take(Turn::Called(again)).expect("nobody passes it now");
    locks.unlock(&write, HeldFor::Moment);
    assert_eq!(behind.load(Ordering::SeqCst), 1);
    take(Turn::Newcomer).expect("the one behind was called for the first time");
    locks.unlock(&write, HeldFor::Moment);
    take(Turn::Called(at)).expect("its turn");
    locks.unlock(&write, HeldFor::Moment);
    assert!(locks.words.iter().all(|word| word.load(Ordering::SeqCst) == 0));
}

#[test]
fn those_that_were_called_in_vain_keep_their_order() {
    let locks = Locks::default();
    let write = claims(&[(1, Hold::Exclusive)]);
    let take = |turn| locks.try_lock(&write, turn, HeldFor::Moment);
    let called: [Arc<AtomicUsize>; 3] = Default::default();
    let times = || called.each_ref().map(|count| count.load(Ordering::SeqCst));
    take(Turn::Newcomer).expect("free");
    let at = refused(&locks, &write);
    for count in &called {
        assert!(matches!(locks.park(at, Turn::Newcomer, counting(count)), Parked::Queued));
    }
    // Each of the first two is called, and passed.
    for _ in 0..2 {
        locks.unlock(&write, HeldFor::Moment);
        take(Turn::Newcomer).expect("the one that was called has not come");
    }
    assert_eq!(times(), [1, 1, 0]);
    for count in &called[..2] {
        let again = take(Turn::Called(at)).expect_err("somebody has passed it");
        assert!(matches!(locks.park(again, Turn::Called(at), counting(count)), Parked::Queued));
    }
    for expected in [[2, 1, 0], [2, 2, 0], [2, 2, 1]] {
        locks.unlock(&write, HeldFor::Moment);
        assert_eq!(times(), expected);
        take(Turn::Called(at)).expect("its turn");
    }
    locks.unlock(&write, HeldFor::Moment);
    assert!(locks.words.iter().all(|word| word.load(Ordering::SeqCst) == 0));
}

#[test]
fn readers_of_a_key_one_by_one_are_not_joined_while_a_writer_waits() {
    let locks = Locks::default();
    let (read, write) = (claims(&[(key(1, 0), Hold::Shared)]), claims(&[(key(1, 0), Hold::Exclusive)]));
    let called = Arc::default();
    locks.try_lock(&read, Turn::Newcomer, HeldFor::Long).expect("free");
    locks.try_lock(&read, Turn::Newcomer, HeldFor::Long).expect("readers share");
    let at = refused(&locks, &write);
    assert!(matches!(locks.park(at, Turn::Newcomer, counting(&called)), Parked::Queued));
    for held_for in [HeldFor::Moment, HeldFor::Long] {
        locks.try_lock(&read, Turn::Newcomer, held_for).expect_err("a writer waits");
    }
    let other = claims(&[(key(1, 1), Hold::Exclusive)]);
    locks.try_lock(&other, Turn::Newcomer, HeldFor::Moment).expect("the writer of another key does not hinder it");
    locks.unlock(&other, HeldFor::Moment);
    (0..2).for_each(|_| locks.unlock(&read, HeldFor::Long));
    assert_eq!(called.load(Ordering::SeqCst), 1);
    locks.try_lock(&write, Turn::Called(at), HeldFor::Moment).expect("its turn");
}

#[test]
fn one_that_was_called_in_vain_and_goes_elsewhere_holds_nobody_up() {
    let locks = Locks::default();
    let write = claims(&[(1, Hold::Exclusive)]);
    let waiting = Arc::default();
    locks.try_lock(&write, Turn::Newcomer, HeldFor::Moment).expect("free");
    let at = refused(&locks, &write);
    assert!(matches!(locks.park(at, Turn::Newcomer, counting(&waiting)), Parked::Queued));
    locks.unlock(&write, HeldFor::Moment);
    locks.try_lock(&write, Turn::Newcomer, HeldFor::Moment).expect("free");
    let again = locks.try_lock(&write, Turn::Called(at), HeldFor::Moment).expect_err("somebody has passed it");
    assert!(matches!(locks.park(again, Turn::Called(at), counting(&waiting)), Parked::Queued));
    locks.unlock(&write, HeldFor::Moment);
    locks.pass_on(again);
    locks.try_lock(&write, Turn::Newcomer, HeldFor::Moment).expect("its turn is given up");
    locks.unlock(&write, HeldFor::Moment);
    assert!(locks.words.iter().all(|word| word.load(Ordering::SeqCst) == 0));
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
    locks.unlock(&first, HeldFor::Moment);
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
    locks.unlock(&write, HeldFor::Moment);
    assert!(matches!(locks.park(at, Turn::Newcomer, Box::new(|| ())), Parked::Retry(_)));
    locks.try_lock(&write, Turn::Newcomer, HeldFor::Moment).expect("free, and without a mark of waiters");
}

/// The hash of a key of a stripe.
fn key(stripe: u32, number: u32) -> u32 {
    stripe + number * STRIPES as u32
}

#[test]
fn keys_held_one_by_one_refuse_their_own_claimants_alone() {
    let locks = Locks::default();
    let held = claims(&[(key(1, 0), Hold::Exclusive), (key(1, 1), Hold::Shared), (key(2, 0), Hold::Shared)]);
    locks.try_lock(&held, Turn::Newcomer, HeldFor::Long).expect("free");
    let free = claims(&[(key(1, 2), Hold::Exclusive), (key(2, 1), Hold::Exclusive)]);
    for held_for in [HeldFor::Moment, HeldFor::Long] {
        locks.try_lock(&free, Turn::Newcomer, held_for).expect("nobody has these keys");
        locks.unlock(&free, held_for);
        for (hash, hold) in [(key(1, 0), Hold::Shared), (key(1, 1), Hold::Exclusive), (key(2, 0), Hold::Exclusive)] {
            let wanted = claims(&[(key(1, 2), Hold::Exclusive), (hash, hold)]);
            let refused = locks.try_lock(&wanted, Turn::Newcomer, held_for).expect_err("somebody has it");
            assert_eq!(refused.claim, Claim::new(hash, hold));
        }
        let read = claims(&[(key(1, 1), Hold::Shared), (key(2, 0), Hold::Shared)]);
        locks.try_lock(&read, Turn::Newcomer, held_for).expect("readers share");
        locks.unlock(&read, held_for);
    }
    assert!(locks.try_share(key(1, 1)) && !locks.try_share(key(1, 0)));
    locks.end_share(key(1, 1));
    locks.unlock(&held, HeldFor::Long);
    assert!(locks.words.iter().all(|word| word.load(Ordering::SeqCst) == 0) && locks.by_key.is_empty());
}

#[test]
fn a_stripe_held_as_a_whole_refuses_keys_one_by_one() {
    let locks = Locks::default();
    let (stripe, keys) = (claims(&[(key(1, 0), Hold::Shared)]), |hold| claims(&[(key(1, 1), hold), (key(2, 0), hold)]));
    locks.try_lock(&stripe, Turn::Newcomer, HeldFor::Moment).expect("free");
    locks.try_lock(&keys(Hold::Exclusive), Turn::Newcomer, HeldFor::Long).expect_err("the key may be its holder's");
    locks.try_lock(&keys(Hold::Shared), Turn::Newcomer, HeldFor::Long).expect("readers share");
    locks.unlock(&stripe, HeldFor::Moment);
    locks.unlock(&keys(Hold::Shared), HeldFor::Long);
    assert!(locks.words.iter().all(|word| word.load(Ordering::SeqCst) == 0));
}

#[test]
fn a_stripe_covers_its_keys_but_those_held_before_it() {
    let locks = Locks::default();
    let before = claims(&[(key(1, 0), Hold::Shared), (key(2, 0), Hold::Exclusive)]);
    locks.try_lock(&before, Turn::Newcomer, HeldFor::Long).expect("free");
    let own = claims(&[(key(1, 1), Hold::Exclusive), (key(2, 1), Hold::Shared)]);
    locks.try_lock(&own, Turn::Newcomer, HeldFor::Moment).expect("nobody has these keys");
    let covers = |hash, hold| locks.cover(&own, HeldFor::Moment, hash, hold);
    assert!(
        covers(key(1, 1), Hold::Exclusive) && covers(key(1, 5), Hold::Exclusive) && covers(key(2, 5), Hold::Shared)
    );
    assert!(!covers(key(2, 5), Hold::Exclusive) && !covers(key(3, 0), Hold::Shared));
    assert!(covers(key(1, 0), Hold::Shared) && !covers(key(1, 0), Hold::Exclusive) && !covers(key(2, 0), Hold::Shared));
    locks.unlock(&before, HeldFor::Long);
    assert!(covers(key(1, 0), Hold::Exclusive) && covers(key(2, 0), Hold::Shared));
    locks.unlock(&own, HeldFor::Moment);
    let covers = |hash| locks.cover(&before, HeldFor::Long, hash, Hold::Shared);
    assert!(covers(key(1, 0)) && !covers(key(1, 1)), "a key held by itself covers no other");
}

#[test]
fn one_that_was_called_and_holds_keys_lets_those_behind_it_have_others() {
    let locks = Locks::default();
    let one = |number| claims(&[(key(1, number), Hold::Exclusive)]);
    let called: [Arc<AtomicUsize>; 2] = Default::default();
    (0..2).for_each(|key| locks.try_lock(&one(key), Turn::Newcomer, HeldFor::Long).expect("free"));
    let at = locks.try_lock(&one(0), Turn::Newcomer, HeldFor::Long).expect_err("somebody has it");
    assert!(matches!(locks.park(at, Turn::Newcomer, counting(&called[0])), Parked::Queued));
    let behind = refused(&locks, &one(1));
    assert!(matches!(locks.park(behind, Turn::Newcomer, counting(&called[1])), Parked::Queued));
    locks.unlock(&one(1), HeldFor::Long);
    locks.unlock(&one(0), HeldFor::Long);
    assert_eq!(called.each_ref().map(|count| count.load(Ordering::SeqCst)), [1, 0]);
    locks.try_lock(&one(0), Turn::Called(at), HeldFor::Long).expect("its turn");
    assert_eq!(called[1].load(Ordering::SeqCst), 1, "nobody has its key");
    locks.try_lock(&one(1), Turn::Called(behind), HeldFor::Moment).expect("its turn");
}

#[test]
fn one_parked_for_a_key_is_called_when_that_key_is_given_back() {
    let locks = Locks::default();
    let keys = |number| claims(&[(key(1, number), Hold::Exclusive), (key(2, number), Hold::Exclusive)]);
    let (first, second) = (keys(0), keys(1));
    locks.try_lock(&first, Turn::Newcomer, HeldFor::Long).expect("free");
    locks.try_lock(&second, Turn::Newcomer, HeldFor::Long).expect("free");
    let wanted = claims(&[(key(2, 1), Hold::Shared)]);
    let called = Arc::default();
    let at = refused(&locks, &wanted);
    assert!(matches!(locks.park(at, Turn::Newcomer, counting(&called)), Parked::Queued));
    locks.unlock(&first, HeldFor::Long);
    assert_eq!(called.load(Ordering::SeqCst), 0);
    locks.unlock(&second, HeldFor::Long);
    assert_eq!(called.load(Ordering::SeqCst), 1);
    locks.try_lock(&wanted, Turn::Called(at), HeldFor::Moment).expect("its turn");
    locks.unlock(&wanted, HeldFor::Moment);
    assert_eq!(locks.parked(), 0);
    assert!(locks.words.iter().all(|word| word.load(Ordering::SeqCst) == 0) && locks.by_key.is_empty());
}

/// Takes one key more, as one that holds `claims` does on its way.
fn add(locks: &Locks, claims: &mut Claims, hash: u32, hold: Hold) -> bool {
    let is_taken = locks.try_add(claims, Claim::new(hash, hold));
    if is_taken {
        claims.insert(Claim::new(hash, hold));
    }
    is_taken
}

#[test]
fn a_run_takes_keys_on_its_way_and_gives_all_back() {
    let (locks, moment) = (Locks::default(), HeldFor::Moment);
    let (mut mine, mut others) = (Claims::default(), Claims::default());
    assert!(add(&locks, &mut mine, key(1, 0), Hold::Exclusive));
    assert!(add(&locks, &mut mine, key(2, 0), Hold::Shared));
    assert!(!add(&locks, &mut others, key(1, 0), Hold::Shared), "a writer excludes all others");
    assert!(add(&locks, &mut others, key(2, 0), Hold::Shared), "readers share");
    assert!(!add(&locks, &mut mine, key(2, 0), Hold::Exclusive), "another reads it");
    let at = refused(&locks, &claims(&[(key(1, 0), Hold::Exclusive)]));
    let called = Arc::default();
    assert!(matches!(locks.park(at, Turn::Newcomer, counting(&called)), Parked::Queued));
    locks.unlock(&others, moment);
    locks.unlock(&mine, moment);
    assert_eq!(called.load(Ordering::SeqCst), 1, "who waits for such a key is called");
    assert!(locks.words.iter().all(|word| word.load(Ordering::SeqCst) == 0));
}

#[test]
fn the_only_reader_of_a_stripe_becomes_its_writer() {
    let locks = Locks::default();
    let (mut mine, mut others) = (Claims::default(), Claims::default());
    let moment = HeldFor::Moment;
    assert!(add(&locks, &mut mine, key(1, 0), Hold::Shared));
    assert!(add(&locks, &mut mine, key(1, 0), Hold::Exclusive), "nobody else reads it");
    assert!(locks.cover(&mine, moment, key(1, 0), Hold::Exclusive));
    assert!(locks.cover(&mine, moment, key(1, 1), Hold::Exclusive), "the stripe is its own");
    assert!(!add(&locks, &mut others, key(1, 1), Hold::Shared));
    locks.unlock(&mine, moment);
    assert!(locks.words.iter().all(|word| word.load(Ordering::SeqCst) == 0));
    // Nor does it where another reads the key by itself.
    let mut mine = Claims::default();
    let others = claims(&[(key(1, 0), Hold::Shared)]);
    locks.try_lock(&others, Turn::Newcomer, HeldFor::Long).expect("free");
    assert!(add(&locks, &mut mine, key(1, 1), Hold::Shared));
    assert!(!add(&locks, &mut mine, key(1, 0), Hold::Exclusive));
    assert!(add(&locks, &mut mine, key(1, 1), Hold::Exclusive), "the other key of the stripe is free");
    assert!(!locks.cover(&mine, moment, key(1, 0), Hold::Exclusive));
    locks.unlock(&mine, moment);
    locks.unlock(&others, HeldFor::Long);
    assert!(locks.words.iter().all(|word| word.load(Ordering::SeqCst) == 0) && locks.by_key.is_empty());
}
