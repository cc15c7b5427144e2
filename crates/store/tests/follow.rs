//! Two stores from one checkpoint, one fed with the records of the other's log: whatever is written, frozen, flushed,
//! dropped by compactions, stopped and killed on either side, the follower holds what its leader held at the same
//! index.

use haypile_log::{History, HistoryStart, Index, Next, Origin, Record, Through};
use haypile_store::testing::model::{DATABASES, Model};
use haypile_store::testing::node::{Bases, MemoryBases, NoReaders, Node, feed};
use haypile_store::testing::pair::{Pair, follows, holds, leads, replicated, run, write};
use haypile_store::testing::unowned;
use haypile_store::{Call, FollowError, Mode, Store, StoreOptions, TxnBuffers};

/// Returns how many sequences a test runs.
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
    for seed in 0..cases(16) {
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
        is_refused(follower.follow_history(HistoryStart { history: History([7; 20]), origin }));
    }
    pair.feed();
    holds(&pair.follower, &pair.model, 1);
    pair.compare(1);
}

#[test]
fn a_follower_says_what_it_does_from_where_it_leads() {
    let mut pair = Pair::new(&MemoryBases, 1);
    (0..8).for_each(|seed| pair.write(seed));
    pair.feed();
    let follower = &pair.follower.store;
    follower.begin_to_state();
    assert!(follower.is_to_be_told() && !follower.is_told(), "its leader's records say what they say");
    follower.end_to_state();
    assert!(!follower.is_to_be_told());
    follower.begin_to_state();
    follower.lead().expect("there is room");
    assert!(follower.is_told() && follower.states());
    follower.end_to_state();
    assert!(!follower.is_to_be_told() && !follower.is_told());
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

/// Returns where a node's log ends, and in which history.
fn end(node: &Node) -> (History, Index) {
    (node.store.log().history(), node.store.log().last())
}

#[test]
fn clean_stops_and_opens_of_either_make_no_record() {
    for seed in 0..8 {
        let mut pair = Pair::new(&MemoryBases, seed);
        (0..12).for_each(|number| pair.write(seed << 20 | number));
        // Transactions that ended without a commit are a reason for a record, but none of stops and opens.
        pair.leader.store.flush_now().expect("nothing is broken");
        pair.write(seed);
        pair.leader.sync();
        pair.feed();
        let before = end(&pair.leader);
        for turn in 0..4 {
            for node in [&pair.leader, &pair.follower] {
                if turn == 2 {
                    node.store.close_without_flush().expect("nothing is broken");
                }
            }
            (pair.leader, pair.follower) = (pair.leader.stop(), pair.follower.stop());
            if turn == 3 {
                for node in [&pair.leader, &pair.follower] {
                    node.store.flush_now().expect("nothing is broken");
                }
            }
            assert_eq!([end(&pair.leader), end(&pair.follower)], [before; 2], "seed {seed}, turn {turn}");
            [&pair.leader, &pair.follower].iter().for_each(|node| holds(node, &pair.model, seed));
        }
        let mut txn = pair.leader.begin();
        let key = txn.key(b"the next one");
        txn.put_meta(&key, &[b"value"]).expect("small");
        assert_eq!(txn.commit().expect("room").index, Some(before.1.next()), "seed {seed}");
    }
}

#[test]
fn a_base_and_a_log_on_two_sides_of_a_fork_do_not_open_together() {
    let mut pair = Pair::new(&MemoryBases, 3);
    (0..20).for_each(|seed| pair.write(seed));
    pair.leader.store.flush_now().expect("nothing is broken");
    pair.leader.sync();
    pair.feed();
    let (before_fork, shared) = (MemoryBases.copy_of(&*pair.leader.base)(), end(&pair.leader));
    pair.follower.store.lead().expect("nothing is broken");
    let (leader, follower) = (&pair.leader, &pair.follower);
    for (node, count) in [(leader, 60), (follower, 20)] {
        let mut model = pair.model.clone();
        (0..count).for_each(|seed| _ = write(&node.store, &mut model, seed << 8));
        node.store.flush_now().expect("nothing is broken");
        node.sync();
        assert!(node.applied() > shared.1);
        assert_eq!(node.open_over(&*before_fork, &MemoryBases), Ok(end(node).1), "up to there they are one");
        assert_eq!(node.open_over(&*node.base, &MemoryBases), Ok(end(node).1));
    }
    assert_ne!(leader.store.history(), follower.store.history());
    let of_follower = follower.store.log().histories();
    assert_eq!(of_follower.shared_through(shared.0, leader.store.log().last()), Some(shared.1));
    let refused = |log: &Node, base: &Node| log.open_over(&*base.base, &MemoryBases).expect_err("another way").0;
    let error = refused(leader, follower);
    assert!(error.contains("do not belong together"), "{error}");
    // The log is shorter here, too.
    let error = refused(follower, leader);
    assert!(error.contains("the base holds all through record"), "{error}");
}

fn leads_and_purges(options: &mut StoreOptions) {
    leads(options);
    options.log.retention.bytes = 0;
}

fn follows_and_purges(options: &mut StoreOptions) {
    follows(options);
    options.log.retention.bytes = 0;
}

#[test]
fn the_chain_of_histories_is_whole_after_segments_were_purged() {
    const DEATHS: usize = 6;
    let mut leader = Node::new(&MemoryBases, leads_and_purges);
    let mut follower = leader.checkpoint(&MemoryBases, follows_and_purges);
    let mut starts = leader.store.log().histories().starts().to_vec();
    for seed in 0..DEATHS as u64 {
        let mut model = Model::default();
        // The model, which begins anew, gets a space of its own.
        let mut txn = leader.begin();
        (0..DATABASES).for_each(|database| txn.flush_database(database).expect("small"));
        txn.commit().expect("room");
        drop(txn);
        let hold = leader.store.log().hold_after(follower.store.log().last()).expect("all of it is there");
        // The writes fill some segments.
        (0..150).for_each(|number| _ = write(&leader.store, &mut model, seed << 32 | number));
        leader.sync();
        feed(&leader.store, &follower.store, &NoReaders);
        drop(hold);
        write(&leader.store, &mut model, 1);
        leader.sync();
        feed(&leader.store, &follower.store, &NoReaders);
        let last = leader.store.log().last();
        for node in [&leader, &follower] {
            node.store.flush_now().expect("nothing is broken");
            assert!(node.store.log().stats().first > starts.last().expect("one").after().next(), "segments went");
        }
        (leader, follower) = (leader.kill(), follower.kill());
        starts.push(leader.store.log().histories().newest().expect("it begins with one"));
        assert!(starts.last().expect("one").after() >= last);
        feed(&leader.store, &follower.store, &NoReaders);
        for node in [&leader, &follower] {
            assert_eq!(node.store.log().histories().starts(), starts, "all histories are known");
            holds(node, &model, seed);
        }
    }
    follower = follower.kill();
    assert_eq!(follower.store.log().histories().starts(), starts, "a start of a follower begins none");
    assert_eq!(starts.len(), DEATHS + 1);
}

#[test]
fn a_reply_of_a_follower_depends_on_the_record_that_it_read() {
    let pair = Pair::new(&MemoryBases, 5);
    let put = |name: &[u8]| {
        let mut txn = pair.leader.begin();
        let key = txn.key_in(DATABASES, name);
        txn.put_meta(&key, &[b"value"]).expect("small");
        txn.commit().expect("room").index.expect("it wrote")
    };
    let indexes = [&b"one"[..], b"two", b"three"].map(|name| (name, put(name)));
    pair.leader.sync();
    pair.feed();
    for (name, index) in indexes {
        let mut txn = pair.follower.begin();
        let key = txn.key_in(DATABASES, name);
        assert_eq!(txn.meta(&key).expect("reads go on").as_deref(), Some(&b"value"[..]));
        assert_eq!(txn.commit().expect("it wrote nothing").gate, index);
    }
}

/// The names and values of all facts.
fn facts(store: &Store) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    store.facts().iter().map(|(name, value)| (text(name), text(value))).collect()
}

#[test]
fn facts_are_those_of_one_moment_on_every_node_and_after_every_death() {
    let mut pair = Pair::new(&MemoryBases, 7);
    let change = |store: &Store, changes: &[(&str, Option<&str>)]| {
        let call = Call { now_ms: 1_000, seed: 1, database: 0, mode: Mode::Disk, pins: None };
        let mut txn = store.begin(TxnBuffers::default(), call);
        txn.set_exclusive();
        for (name, value) in changes {
            txn.put_fact(name.as_bytes(), value.map(str::as_bytes)).expect("small");
        }
        // A transaction's own changes are seen by it alone, as far as they are not taken back.
        let here = txn.savepoint();
        txn.put_fact(b"undone", Some(b"x")).expect("small");
        assert!(txn.facts().get(b"undone").is_some());
        txn.rollback(here);
        let own = txn.facts();
        assert!(
            changes
                .iter()
                .all(|(name, value)| own.get(name.as_bytes()).map(|value| &**value) == value.map(str::as_bytes))
        );
        assert!(store.facts().iter().ne(own.iter()), "nothing is committed yet");
        let index = txn.commit().expect("room").index.expect("it wrote");
        drop(txn);
        let mut reader = store.begin(TxnBuffers::default(), call);
        assert_eq!(reader.facts().iter().count(), own.iter().count());
        assert_eq!(reader.commit().expect("it wrote nothing").gate, index, "a reply waits for what it has seen");
    };
    let expect = |pair: &Pair, expected: &[(&str, &str)]| {
        let expected: Vec<_> = expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        pair.leader.sync();
        pair.feed();
        assert_eq!(facts(&pair.leader.store), expected);
        assert_eq!(facts(&pair.follower.store), expected);
    };
    change(&pair.leader.store, &[("a", Some("1")), ("b", Some("2"))]);
    expect(&pair, &[("a", "1"), ("b", "2")]);
    pair.leader = pair.leader.kill();
    expect(&pair, &[("a", "1"), ("b", "2")]);
    change(&pair.leader.store, &[("a", None), ("b", Some("3")), ("c/d", Some(""))]);
    pair.leader.store.flush_now().expect("nothing is broken");
    change(&pair.leader.store, &[("e", Some("5"))]);
    expect(&pair, &[("b", "3"), ("c/d", ""), ("e", "5")]);
    (pair.leader, pair.follower) = (pair.leader.stop(), pair.follower.kill());
    expect(&pair, &[("b", "3"), ("c/d", ""), ("e", "5")]);
    assert_eq!(replicated(&pair.leader), replicated(&pair.follower));
}
