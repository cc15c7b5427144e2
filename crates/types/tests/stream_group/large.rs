//! The demands of large groups: as much is done at once as can be noted.

use super::model::{GROUPS, KEY, Model, add, create, destroy, edit, new_stream, save, stream};
use crate::common::Db;
use haypile_store::{Call, Mode, Stop, TxnBuffers};
use haypile_types::Error;
use haypile_types::stream::{Bound, Claimable, Delivery, Policy, StreamId, Trim};

/// In a store that takes a megabyte at once, no more is delivered than it takes.
#[test]
fn as_much_is_delivered_as_can_be_noted_at_once() {
    let (mut db, mut model) = (Db::new(), Model::default());
    new_stream(&mut db);
    db.run(|txn| {
        let stream = stream(txn);
        create(txn, &stream, b"g", StreamId::MIN, None).expect("writes")
    });
    (0..20).for_each(|_| add(&mut db, &mut model, 1000));
    db.store.set_txn_bytes_max(1 << 20);
    let mut seen = 0;
    let mut rounds = 0;
    loop {
        let count = db.run(|txn| {
            let (stream, mut edit) = edit(txn, b"g").expect("is there");
            let (place, _) = edit.see(txn, b"alice").expect("reads");
            let how = Delivery { limit: u64::MAX, acknowledged: false };
            let count = edit.deliver(txn, &stream, place, how, |_, _| Some(0)).expect("it fits");
            save(txn, edit).expect("it fits");
            count
        });
        if count == 0 {
            break;
        }
        (seen, rounds) = (seen + count, rounds + 1);
    }
    assert_eq!(seen, 20_000);
    assert!(rounds > 1, "a megabyte does not take all of them");
    // The removal of all of them would be more than that.
    let mut removed = Ok(());
    db.run(|txn| {
        let savepoint = txn.savepoint();
        let (_, edit) = edit(txn, b"g").expect("is there");
        removed = destroy(txn, edit.group);
        txn.rollback(savepoint);
    });
    assert_eq!(removed, Err(Error::Stop(Stop::TooLarge)));
}

/// Redis 8.2: what a trim with DELREF takes from groups is bounded, too.
#[test]
fn a_trim_by_references_removes_what_can_be_noted_at_once() {
    let (mut db, mut model) = (Db::new(), Model::default());
    new_stream(&mut db);
    db.run(|txn| {
        let stream = stream(txn);
        create(txn, &stream, b"g", StreamId::MIN, None).expect("writes")
    });
    add(&mut db, &mut model, 20_000);
    db.run(|txn| {
        let (stream, mut edit) = edit(txn, b"g").expect("is there");
        let (place, _) = edit.see(txn, b"alice").expect("reads");
        let how = Delivery { limit: u64::MAX, acknowledged: false };
        assert_eq!(edit.deliver(txn, &stream, place, how, |_, _| Some(0)).expect("it fits"), 20_000);
        save(txn, edit).expect("it fits");
    });
    db.store.set_txn_bytes_max(1 << 20);
    let trim = Trim { bound: Bound::Length(0), nodes: None, policy: Policy::DelRef };
    let (mut left, mut rounds) = (20_000, 0);
    while left > 0 {
        let removed = db.run(|txn| {
            let (key, mut stream) = (txn.key(KEY), stream(txn));
            let removed = stream.trim(txn, &key, trim).expect("it fits");
            stream.save(txn, &key).expect("it fits");
            removed
        });
        assert!(removed > 0, "{left} are left");
        (left, rounds) = (left - removed, rounds + 1);
        assert_eq!(db.run(|txn| edit(txn, b"g").expect("is there").1.group.state.pending), left);
    }
    assert!(rounds > 1, "a megabyte does not take all of them");
    db.check();
}

/// A trim that looks up many references is not for an event loop, few as its entries may be.
#[test]
fn a_trim_that_minds_references_asks_before_it_takes_long() {
    for (trimmed, is_long) in [(200, false), (500, true)] {
        let (mut db, mut model) = (Db::new(), Model::default());
        new_stream(&mut db);
        add(&mut db, &mut model, 600);
        db.run(|txn| {
            let stream = stream(txn);
            for group in GROUPS {
                create(txn, &stream, group, StreamId::MIN, None).expect("writes");
                let (_, mut edit) = edit(txn, group).expect("is there");
                let (place, _) = edit.see(txn, b"alice").expect("writes");
                let how = Delivery { limit: u64::MAX, acknowledged: false };
                edit.deliver(txn, &stream, place, how, |_, _| Some(0)).expect("delivers");
                save(txn, edit).expect("writes");
            }
        });
        let call = Call { now_ms: db.now_ms, seed: 7, database: 0, mode: Mode::Memory, pins: None };
        for policy in [Policy::DelRef, Policy::Acked] {
            let mut txn = db.store.begin(TxnBuffers::default(), call);
            let (key, mut stream) = (txn.key(KEY), stream(&mut txn));
            let trim = Trim { bound: Bound::Id(StreamId::new(0, trimmed + 1)), nodes: None, policy };
            let outcome = stream.trim(&mut txn, &key, trim);
            let asks = matches!(outcome, Err(Error::Stop(Stop::Long)));
            assert_eq!(asks, is_long, "{trimmed} entries, {policy:?}: {outcome:?}");
        }
    }
}

/// More entries than one walk finds are claimed in order, those that are gone left out.
#[test]
fn a_long_claim_goes_on_behind_what_one_walk_finds() {
    let (mut db, mut model) = (Db::new(), Model::default());
    new_stream(&mut db);
    db.run(|txn| {
        let stream = stream(txn);
        create(txn, &stream, b"g", StreamId::MIN, None).expect("writes")
    });
    add(&mut db, &mut model, 2000);
    for _ in 0..4 {
        db.now_ms += 10;
        db.run(|txn| {
            let (stream, mut edit) = edit(txn, b"g").expect("is there");
            let (place, _) = edit.see(txn, b"alice").expect("reads");
            let how = Delivery { limit: 500, acknowledged: false };
            assert_eq!(edit.deliver(txn, &stream, place, how, |_, _| Some(0)).expect("delivers"), 500);
            save(txn, edit).expect("writes");
        });
    }
    // The first thousand is gone from the stream, and the last two hundred were delivered first.
    db.run(|txn| {
        let (key, mut stream) = (txn.key(KEY), stream(txn));
        stream.remove(txn, (1..=1000).map(|seq| StreamId::new(0, seq))).expect("removes");
        stream.save(txn, &key).expect("writes");
        let (_, mut edit) = edit(txn, b"g").expect("is there");
        let (place, _) = edit.see(txn, b"alice").expect("reads");
        for seq in 1801..=2000 {
            let id = StreamId::new(0, seq);
            let held = edit.pending(txn, id).expect("reads");
            edit.give(txn, id, held.as_ref(), place, 1, 1).expect("writes");
        }
        save(txn, edit).expect("writes");
    });
    db.now_ms += 10;
    let mut claim = |idle_min_ms, limit| {
        db.run(|txn| {
            let (stream, mut edit) = edit(txn, b"g").expect("is there");
            let (place, _) = edit.see(txn, b"bob").expect("reads");
            let (what, mut seen) = (Claimable { idle_min_ms, limit }, Vec::new());
            let each = |id: StreamId, _: haypile_types::stream::Fields<'_>, _: &haypile_types::stream::Held| {
                seen.push(id.seq);
                Some(0)
            };
            edit.claim(txn, &stream, place, what, each).expect("claims");
            save(txn, edit).expect("writes");
            seen
        })
    };
    assert_eq!(claim(10, 300), (1801..=2000).chain(1001..=1100).collect::<Vec<u64>>());
    assert_eq!(claim(20, 300), (1101..=1400).collect::<Vec<u64>>());
    assert_eq!(claim(20, u64::MAX), (1401..=1500).collect::<Vec<u64>>());
    assert_eq!(claim(0, u64::MAX).len(), 1000, "all that are there, each once");
    assert_eq!(claim(1, u64::MAX), [], "nothing is old enough");
    db.check();
}
