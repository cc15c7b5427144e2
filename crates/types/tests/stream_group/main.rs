//! Consumer groups against a model of maps, with flushes and reopens in between; and what is left of a group that has
//! gone. Next: `model`, `large` (the demands of large groups), `producers` (idempotent IDs).

#[path = "../common/mod.rs"]
mod common;
mod large;
mod model;
mod producers;

use common::{Db, Random, on_each_base};
use haypile_log::{Effect, Index, Next};
use haypile_store::{Txn, row};
use haypile_types::stream::{Delivery, Stream, StreamId};
use model::{KEY, Model, add, compare, create, destroy, edit, new_stream, save, step, stream};

#[test]
fn groups_are_those_of_the_model() {
    for (seed, mut db) in on_each_base(1..=8) {
        let (mut model, mut random) = (Model::default(), Random(seed));
        new_stream(&mut db);
        for round in 0..400 {
            db.now_ms += random.below(3);
            step(&mut db, &mut model, &mut random);
            if round % 5 == 0 {
                compare(&mut db, &model);
            }
            if random.below(30) == 0 {
                db.store.flush_now().expect("flushes to memory");
            }
            if random.below(60) == 0 {
                db.reopen();
            }
        }
        compare(&mut db, &model);
        db.check();
    }
}

#[test]
fn nothing_is_left_of_a_group_that_is_destroyed() {
    let (mut db, mut model) = (Db::new(), Model::default());
    new_stream(&mut db);
    add(&mut db, &mut model, 3000);
    let before = db.rows();
    db.run(|txn| {
        let stream = stream(txn);
        create(txn, &stream, b"g", StreamId::MIN, None).expect("writes");
        create(txn, &stream, b"other", StreamId::MIN, None).expect("writes");
    });
    for name in [&b"g"[..], b"other"] {
        db.run(|txn| {
            let (stream, mut edit) = edit(txn, name).expect("is there");
            let (place, _) = edit.see(txn, b"alice").expect("reads");
            let how = Delivery { limit: u64::MAX, acknowledged: false };
            assert_eq!(edit.deliver(txn, &stream, place, how, |_, _| Some(0)).expect("delivers"), 3000);
            save(txn, edit).expect("writes");
        });
    }
    for name in [&b"g"[..], b"other"] {
        db.run(|txn| {
            let (_, edit) = edit(txn, name).expect("is there");
            destroy(txn, edit.group).expect("removes");
        });
    }
    let census_is_empty =
        |(row, value): &(&Vec<u8>, &Vec<u8>)| row.last() == Some(&5) && value[..] == [0, 0, 0, 0, 0, 0, 0, 2];
    let after = db.rows();
    let left: Vec<_> = after.iter().filter(|(row, _)| !before.contains_key(*row)).collect();
    assert!(matches!(&left[..], [row] if census_is_empty(row)), "{left:?}");
}

/// A reply that says that a group is gone waits for the record that took it.
#[test]
fn that_a_group_is_gone_depends_on_the_record_that_took_it() {
    for (base, mut db) in on_each_base([false, true]) {
        db.run(|txn| {
            let key = txn.key(KEY);
            Stream::create(txn, &key).and_then(|mut stream| stream.save(txn, &key)).expect("writes");
            let stream = stream(txn);
            create(txn, &stream, b"g", StreamId::MIN, None).expect("writes");
        });
        if base {
            db.store.flush_now().expect("nothing is broken");
        }
        db.run(|txn| {
            let (_, edit) = edit(txn, b"g").expect("is there");
            destroy(txn, edit.group).expect("removes");
        });
        let destroyed = db.store.log().last();
        db.run(|txn| {
            assert!(edit(txn, b"g").is_none());
            assert_eq!(txn.gate(), destroyed);
        });
        db.run(|txn| {
            let stream = stream(txn);
            stream.visit_groups(txn, |_, _| panic!("there is none")).expect("reads");
            assert_eq!(txn.gate(), destroyed);
        });
    }
}

#[test]
fn each_change_of_a_group_names_the_key() {
    let mut db = Db::new();
    let names_key = |db: &Db, before: Index| {
        let log = db.store.log();
        log.sync_through(log.last()).expect("a file takes it");
        let key = row::meta_row(&db.store.key(0, KEY));
        let mut reader = log.reader(before);
        while let Next::Record(record) = reader.next().expect("the log is whole") {
            let mut effects = haypile_log::effects(record.body).map(|effect| effect.expect("the store wrote it"));
            assert!(effects.any(|effect| effect == Effect::Touch { key: &key }), "record {}", record.index);
        }
        assert!(log.last() > before, "it wrote something");
    };
    db.run(|txn| {
        let key = txn.key(KEY);
        let mut stream = Stream::create(txn, &key).expect("writes");
        stream.append(txn, &key, StreamId::new(1, 1), [&b"f"[..], b"v"].into_iter()).expect("writes");
        stream.save(txn, &key).expect("writes");
    });
    type Change = fn(&mut Txn<'_>);
    let changes: [Change; 4] = [
        |txn| {
            let stream = stream(txn);
            create(txn, &stream, b"g", StreamId::MIN, None).expect("writes");
        },
        |txn| {
            let (stream, mut edit) = edit(txn, b"g").expect("is there");
            let (place, _) = edit.see(txn, b"alice").expect("reads");
            let all = Delivery { limit: u64::MAX, acknowledged: false };
            edit.deliver(txn, &stream, place, all, |_, _| Some(0)).expect("writes");
            save(txn, edit).expect("writes");
        },
        |txn| {
            let (_, mut edit) = edit(txn, b"g").expect("is there");
            let held = edit.pending(txn, StreamId::new(1, 1)).expect("reads").expect("is pending");
            edit.release(txn, StreamId::new(1, 1), &held).expect("writes");
            save(txn, edit).expect("writes");
        },
        |txn| {
            let (_, edit) = edit(txn, b"g").expect("is there");
            destroy(txn, edit.group).expect("removes");
        },
    ];
    for change in changes {
        let before = db.store.log().last();
        db.run(change);
        names_key(&db, before);
    }
    let before = db.store.log().last();
    db.run(|txn| {
        let key = txn.key(KEY);
        txn.touch_key(&key);
    });
    assert_eq!(db.store.log().last(), before, "what changes nothing makes no record");
}
