//! Two stores from one checkpoint, one fed with the records of the other's log: whatever is written, frozen, flushed,
//! dropped by compactions, stopped and killed on either side, the follower holds what its leader held at the same
//! index.

use haypile_log::{History, HistoryStart, Next, Origin, Record, Through};
use haypile_store::FollowError;
use haypile_store::testing::node::{MemoryBases, NoReaders};
use haypile_store::testing::pair::{Pair, holds, run};
use haypile_store::testing::unowned;

/// How many sequences a test runs.
fn cases(usual: u64) -> u64 {
    std::env::var("HAYPILE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

#[test]
fn a_follower_holds_what_its_leader_held_at_the_same_index() {
    (0..cases(40)).for_each(|seed| drop(run(&MemoryBases, seed)));
}

#[test]
fn a_compaction_of_a_follower_drops_nothing_that_its_leader_has() {
    let mut seen = unowned::Seen::default();
    for seed in 0..cases(24) {
        let of_seed = unowned::run(&MemoryBases, seed);
        seen.ahead += of_seed.ahead;
        seen.dropped += of_seed.dropped;
    }
    assert!(seen.ahead > 100 && seen.dropped > 100, "it has not come to it: {seen:?}");
}

#[test]
fn what_does_not_come_next_is_refused_and_changes_nothing() {
    let mut pair = Pair::new(&MemoryBases, 1);
    (0..8).for_each(|seed| pair.write(seed));
    let (leader, follower) = (&pair.leader.store, &pair.follower.store);
    pair.leader.sync();
    let (history, last) = (follower.log().history(), follower.log().last());
    assert!(leader.log().last() > last.next(), "there is a record to leave out");
    let is_refused = |taken: Result<(), FollowError>| {
        assert!(matches!(taken, Err(FollowError::Damaged(_))), "{taken:?}");
        assert_eq!((follower.log().history(), follower.log().last()), (history, last));
    };
    let mut reader = leader.log().reader(last).through(Through::Synced);
    let Ok(Next::Record(next)) = reader.next() else { panic!("the next record is there") };
    is_refused(follower.follow(&Record { history: History([7; 20]), ..next }, &NoReaders));
    is_refused(follower.follow(&Record { index: next.index.next(), ..next }, &NoReaders));
    is_refused(follower.follow(&Record { index: last, ..next }, &NoReaders));
    for origin in [Origin::Nothing, Origin::Fork(History([8; 20]), last), Origin::Fork(history, last.next())] {
        is_refused(follower.adopt_history(HistoryStart { history: History([7; 20]), origin }));
    }
    pair.feed();
    holds(&pair.follower, &pair.model, 1);
    pair.compare(1);
}

#[test]
fn a_term_that_goes_back_is_refused_and_changes_nothing() {
    let mut pair = Pair::new(&MemoryBases, 1);
    (0..8).for_each(|seed| pair.write(seed));
    pair.leader.sync();
    let follower = &pair.follower.store;
    let last = follower.log().last();
    let mut reader = pair.leader.store.log().reader(last).through(Through::Synced);
    let mut follow = |term, entry| {
        let Ok(Next::Record(next)) = reader.next() else { panic!("the next record is there") };
        let at = |term, entry| follower.follow(&Record { term, entry, ..next }, &NoReaders);
        let before = follower.log().last();
        // The first one may be of any term.
        for (older_term, older_entry) in [(term, entry - 1), (term - 1, entry + 1)] {
            let taken = (before > last).then(|| at(older_term, older_entry));
            assert!(matches!(taken, None | Some(Err(FollowError::Damaged(_)))), "{taken:?}");
            assert_eq!(follower.log().last(), before);
        }
        at(term, entry).unwrap();
        assert_eq!(follower.log().last(), next.index);
    };
    follow(3, 5);
    follow(3, 5);
}
