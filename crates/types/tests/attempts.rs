//! Runs that are not the last one of a command. A run on an event loop leaves what takes long to the I/O pool. A dry
//! run holds no key locks, so that the rows it reads may be of two moments: it comes to its end all the same.

mod common;

use common::Db;
use haypile_store::{Call, Direction, Key, Mode, Stop, Txn, TxnBuffers};
use haypile_types::bitmap::Bitmap;
use haypile_types::bitmap::combine::{self, Operation};
use haypile_types::chunks::CHUNK_BYTES;
use haypile_types::hash::Condition;
use haypile_types::set::{self, Set, draw};
use haypile_types::zset::{Adding, Edit, Range, Stretch, Zset};
use haypile_types::{Error, Result, hash, key, string, value};
use std::ops::ControlFlow;
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long a test waits for a run that comes to its end at once, or never.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs one operation in a transaction of this mode, which is dropped.
fn attempt<R>(db: &Db, mode: Mode, operation: impl FnOnce(&mut Txn<'_>) -> R) -> R {
    let call = Call { now_ms: db.now_ms, seed: 7, database: 0, mode, pins: None };
    operation(&mut db.store.begin(TxnBuffers::default(), call))
}

/// Makes a dry run that looks something up, and uses it when others have written meanwhile.
fn dry_run<T, R>(
    db: &mut Db,
    look: impl FnOnce(&mut Txn<'_>) -> T,
    meanwhile: impl FnOnce(&mut Db),
    use_it: impl FnOnce(&mut Txn<'_>, T) -> R,
) -> R {
    let store = db.store.clone();
    let call = Call { now_ms: db.now_ms, seed: 7, database: 0, mode: Mode::Load, pins: None };
    let mut txn = store.begin(TxnBuffers::default(), call);
    let found = look(&mut txn);
    meanwhile(db);
    use_it(&mut txn, found)
}

fn named(range: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    range.map(|number| format!("element:{number}").into_bytes()).collect()
}

fn slices(names: &[Vec<u8>]) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
    names.iter().map(Vec::as_slice)
}

#[test]
fn strings_that_grow_while_their_bits_are_combined_count_as_far_as_they_were_looked_up() {
    use Operation::{And, AndOr, Diff, Diff1, One, Or, Xor};
    const LENGTH: usize = CHUNK_BYTES + 10;
    for operation in [And, Or, Xor, Diff, Diff1, AndOr, One] {
        let mut db = Db::new();
        let append = |db: &mut Db, bytes: &[u8]| {
            for name in [b"a", b"b"] {
                db.run(|txn| string::append(txn, &txn.key(name), bytes, u64::MAX)).expect("writes");
            }
        };
        append(&mut db, &[0xff; LENGTH]);
        let look = |txn: &mut Txn<'_>| [b"a", b"b"].map(|name| Bitmap::lookup(txn, &txn.key(name)).expect("reads"));
        let length = dry_run(
            &mut db,
            look,
            |db| append(db, &[0xff; 1000]),
            |txn, operands| combine::store(txn, operation, &txn.key(b"to"), operands.into()),
        );
        assert_eq!(length, Ok(LENGTH as u64), "{operation:?}");
    }
}

fn add(db: &mut Db, members: &[Vec<u8>]) {
    db.run(|txn| {
        let key = txn.key(b"s");
        let entry = key::lookup_write(txn, &key).expect("reads");
        set::add(txn, &key, entry, slices(members)).expect("adds");
    });
}

fn look_at_set(txn: &mut Txn<'_>) -> Set {
    Set::lookup(txn, &txn.key(b"s")).expect("reads").expect("is there")
}

fn remove(txn: &mut Txn<'_>, set: &Set, members: &[Vec<u8>]) -> Result<(u64, u64)> {
    set::remove(txn, &txn.key(b"s"), set, slices(members))
}

#[test]
fn more_members_go_than_the_set_had_when_it_was_looked_up() {
    let mut db = Db::new();
    let (first, later) = (named(0..300), named(300..600));
    add(&mut db, &first);
    let all = [first, later.clone()].concat();
    let removed = dry_run(&mut db, look_at_set, |db| add(db, &later), |txn, set| remove(txn, &set, &all));
    assert_eq!(removed.map(|(_, left)| left), Ok(0));
}

#[test]
fn more_fields_go_and_with_more_deadlines_than_the_hash_had_when_it_was_looked_up() {
    // Fields at the look and when it is used, and how many of each have deadlines: the last ones.
    for ([first, timed], [later, timed_later]) in [([300, 10], [300, 30]), ([300, 10], [600, 10])] {
        let mut db = Db::new();
        let set = |db: &mut Db, fields: u32, timed: u32| {
            let (all, last) = (named(0..fields), named(fields - timed..fields));
            db.run(|txn| {
                let key = txn.key(b"h");
                hash::set(txn, &key, slices(&all).map(|field| (field, &b"v"[..]))).expect("writes");
                let entry = hash::lookup(txn, &key).expect("reads").expect("is there");
                let deadline_ms = txn.now_ms() + 1000;
                hash::set_deadlines(txn, &key, &entry, deadline_ms, Condition::Always, slices(&last)).expect("writes");
            });
        };
        set(&mut db, first, timed);
        let gone = if later > first { named(0..later) } else { named(first - timed_later..first) };
        let deleted = dry_run(
            &mut db,
            |txn| hash::lookup(txn, &txn.key(b"h")).expect("reads").expect("is there"),
            |db| set(db, later, timed_later),
            |txn, entry| hash::delete_in(txn, &txn.key(b"h"), &entry, slices(&gone)),
        );
        assert_eq!(deleted.map(|deleted| deleted.fields), Ok(gone.len() as u64), "{first} fields, then {later}");
    }
}

#[test]
fn the_last_elements_are_looked_for_when_there_are_not_as_many_any_more() {
    let mut db = Db::new();
    let edit = |db: &mut Db, change: &dyn Fn(&mut Txn<'_>, &Key<'_>, &mut Edit)| {
        db.run(|txn| {
            let key = txn.key(b"z");
            let mut edit = Edit::of(Zset::write(txn, &key).expect("reads")).expect("parses");
            change(txn, &key, &mut edit);
            edit.finish(txn, &key).expect("writes");
        });
    };
    let all = named(0..3000);
    edit(&mut db, &|txn, key, edit| {
        for (score, member) in all.iter().enumerate() {
            edit.add(txn, key, Adding::default(), score as f64, member).expect("adds");
        }
    });
    let stretch =
        Stretch { range: Range::Index { from: 0, until: 3000 }, direction: Direction::Backward, skip: 10, take: 5 };
    let mut seen = 0;
    let visited = dry_run(
        &mut db,
        |txn| Zset::read(txn, &txn.key(b"z")).expect("reads").expect("is there"),
        |db| {
            edit(db, &|txn, _, edit| {
                all[100..].iter().for_each(|member| assert!(edit.remove(txn, member).expect("removes")));
            });
        },
        |txn, zset| {
            zset.visit(txn, stretch, |_, _| {
                seen += 1;
                ControlFlow::Continue(())
            })
        },
    );
    assert_eq!(visited, Ok(()));
    assert!(seen <= 5, "{seen} elements");
}

/// Members that are not there cannot be drawn, however often one tries.
#[test]
fn a_set_that_counts_more_members_than_it_has_is_not_drawn_from_for_ever() {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut db = Db::new();
        let all = named(0..2000);
        add(&mut db, &all);
        let set = db.run(look_at_set);
        assert_eq!(db.run(|txn| remove(txn, &set, &all[99..])), Ok((1901, 99)));
        let drawn = db.run(|txn| draw::sample(txn, &txn.key(b"s"), &set, 100, |_| ()).map(|_| ()));
        tell.send(drawn).expect("the test waits");
    });
    let drawn = told.recv_timeout(PATIENCE).expect("the draws come to an end");
    assert!(matches!(drawn, Err(Error::Stop(Stop::Failed(_)))), "{drawn:?}");
}

#[test]
fn a_copy_of_few_but_long_fields_is_made_on_the_io_pool() {
    const FIELD_BYTES: usize = 10_000;
    // Less than one step, more than that, and more than a transaction may change: the copy is written ahead.
    for (fields, mode_fits) in [(70, true), (300, false), (1000, false)] {
        let mut db = Db::new();
        for field in named(0..fields) {
            let value = [&field[..], &[b'v'; FIELD_BYTES]].concat();
            db.run(|txn| hash::set(txn, &txn.key(b"from"), [(&field[..], &value[..])].into_iter())).expect("writes");
        }
        let copy = |txn: &mut Txn<'_>| {
            let (from, to) = (txn.key(b"from"), txn.key(b"to"));
            let entry = key::lookup_write(txn, &from)?.expect("is there");
            assert!(entry.header.object.is_some(), "it lies in rows");
            value::copy(txn, &from, &entry, &to, None)
        };
        let expected = if mode_fits { Ok(()) } else { Err(Error::Stop(Stop::Long)) };
        assert_eq!(attempt(&db, Mode::Memory, copy), expected, "{fields} fields on an event loop");
        assert_eq!(db.run(copy), Ok(()), "{fields} fields on the pool");
        for field in named(0..fields) {
            let found = db.run(|txn| {
                let key = txn.key(b"to");
                let entry = hash::lookup(txn, &key)?.expect("is there");
                hash::get(txn, &key, entry, &field)
            });
            let found = found.expect("reads").expect("is there");
            assert!(found.strip_prefix(&field[..]).is_some_and(|rest| rest == [b'v'; FIELD_BYTES]));
        }
        db.check();
    }
}
