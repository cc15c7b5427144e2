//! Loading into an empty store: all rows at once, or none.

mod machine;

use haypile_store::base::BaseError;
use haypile_store::{Counter, Direction, DiskFree, Load, LoadError, ObjectId, Space, Stop, Txn, row};
use machine::{Machine, usual};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A bound so small that a few dozen rows go to the file.
const SMALL: usize = 4 << 10;
const LARGE: usize = 1 << 20;

fn begin(machine: &Machine, bytes_max: usize) -> Load<'_> {
    let load = machine.store.load(&std::env::temp_dir(), bytes_max).expect("the base reads");
    load.expect("the store is empty")
}

fn put(txn: &mut Txn<'_>, name: &[u8], value: &[u8]) {
    let key = txn.key(name);
    txn.put_meta(&key, &[value]).expect("small");
    txn.count(key.space, Counter::Keys, 1);
}

fn load(machine: &Machine, load: &mut Load<'_>, name: &str, value: &[u8]) {
    let mut txn = machine.begin();
    put(&mut txn, name.as_bytes(), value);
    assert!(load.take(&mut txn).expect("there is room"));
}

/// Writes a key with an object of so many elements.
fn object(txn: &mut Txn<'_>, name: &[u8], elements: u16) -> ObjectId {
    let id = txn.new_object().expect("room");
    let key = txn.key(name);
    (0..elements).for_each(|n| {
        txn.put_row(&row::data_row(key.space, key.slot, id, &n.to_be_bytes()), &[b"element"]).expect("small");
    });
    txn.put_row(&row::owner_row(key.space, key.slot, id), &[name]).expect("small");
    put(txn, name, &id.0.to_be_bytes());
    id
}

fn keys(machine: &Machine) -> i64 {
    machine.begin().counter(Space(0), Counter::Keys)
}

fn value_of(n: usize) -> Vec<u8> {
    format!("{n} ").repeat(n % 50).into_bytes()
}

#[test]
fn what_is_loaded_is_there_when_all_is_and_stays() {
    const KEYS: usize = 1000;
    for bytes_max in [SMALL, LARGE] {
        let machine = Machine::new(usual);
        let mut loading = begin(&machine, bytes_max);
        for n in 0..KEYS {
            load(&machine, &mut loading, &format!("key:{n}"), &value_of(n));
        }
        let mut txn = machine.begin();
        let id = object(&mut txn, b"object", 100);
        assert!(loading.take(&mut txn).expect("there is room"));
        drop(txn);
        machine.put("committed", b"before").expect("room");
        assert_eq!((keys(&machine), machine.get("key:1"), machine.get("object")), (1, None, None));

        let mut told = Vec::new();
        loading.finish(|done, rows| told.push((done, rows))).expect("nothing is broken");
        assert!(told.is_empty(), "that few rows are not worth it: {told:?}");
        let all_there = |machine: &Machine| {
            assert_eq!(keys(machine), KEYS as i64 + 2);
            (0..KEYS).for_each(|n| assert_eq!(machine.get(&format!("key:{n}")), Some(value_of(n)), "{n}"));
            assert_eq!(machine.get("committed").as_deref(), Some(&b"before"[..]));
            let mut txn = machine.begin();
            let slot = txn.key(b"object").slot;
            let (from, until) = row::object_range(row::Family::Data, Space(0), slot, id);
            let mut view = txn.view(&from, &until, Direction::Forward).expect("reads");
            let elements = std::iter::from_fn(|| view.next_row().expect("reads")).count();
            assert_eq!(elements, 100);
        };
        all_there(&machine);
        let machine = machine.kill();
        all_there(&machine);
        // Later records go on from there.
        machine.put("later", b"x").expect("room");
        machine.put("key:1", b"new").expect("room");
        machine.store.flush_now().expect("nothing is broken");
        let machine = machine.kill();
        assert_eq!(keys(&machine), KEYS as i64 + 4, "a key that is written again is counted by who writes it");
        assert_eq!(machine.get("key:1").as_deref(), Some(&b"new"[..]));
        let mut txn = machine.begin();
        assert!(txn.new_object().expect("room") > id, "ids are not issued again");
    }
}

#[test]
fn only_the_last_write_of_a_row_counts() {
    let machine = Machine::new(usual);
    let mut loading = begin(&machine, LARGE);
    // The second count is more than are searched one by one.
    for count in [1, 40] {
        let mut txn = machine.begin();
        for n in 0..count {
            put(&mut txn, format!("{count}:{n}").as_bytes(), b"long, and not the last");
        }
        for n in 0..count {
            let key = format!("{count}:{n}").into_bytes();
            txn.put_meta(&txn.key(&key), &[b"0123456789"]).expect("small");
            txn.patch_row(&row::meta_row(&txn.key(&key)), 3, b"x", 10).expect("small");
        }
        put(&mut txn, b"gone", b"x");
        txn.delete_meta(&txn.key(b"gone")).expect("small");
        txn.count(Space(0), Counter::Keys, -1);
        assert!(loading.take(&mut txn).expect("there is room"));
    }
    loading.finish(|_, _| ()).expect("nothing is broken");
    assert_eq!(keys(&machine), 41);
    assert_eq!(machine.get("gone"), None);
    for name in ["1:0", "40:0", "40:39"] {
        assert_eq!(machine.get(name).as_deref(), Some(&b"012x456789"[..]), "{name}");
    }
}

#[test]
fn a_key_that_comes_twice_ends_it_without_effect() {
    for (bytes_max, committed) in [(LARGE, false), (SMALL, false), (LARGE, true), (SMALL, true)] {
        let machine = Machine::new(usual);
        let mut loading = begin(&machine, bytes_max);
        if committed {
            machine.put("twice", b"a").expect("room");
            machine.put("else", b"a").expect("room");
        } else {
            load(&machine, &mut loading, "twice", b"a");
        }
        (0..200).for_each(|n| load(&machine, &mut loading, &format!("key:{n}"), b"value"));
        load(&machine, &mut loading, "twice", b"b");
        let twice = LoadError::Twice { database: Some(0), name: b"twice".to_vec() };
        assert_eq!(loading.finish(|_, _| ()), Err(twice));
        let there = if committed { (2, Some(b"a".to_vec()), None) } else { (0, None, None) };
        assert_eq!((keys(&machine), machine.get("twice"), machine.get("key:1")), there);
        let machine = machine.kill();
        assert_eq!((keys(&machine), machine.get("twice"), machine.get("key:1")), there);
    }
}

#[test]
fn a_full_disk_ends_it_without_effect() {
    let machine = Machine::new(usual);
    let mut loading = begin(&machine, LARGE);
    load(&machine, &mut loading, "key", b"value");
    machine.store.flush_now().expect("nothing is broken yet");
    machine.base.set_fault(Some(BaseError::Full("no room".into())));
    let failed = LoadError::Failed("the disk is full: no room".into());
    assert_eq!(loading.finish(|_, _| ()), Err(failed));
    machine.base.set_fault(None);
    assert_eq!((keys(&machine), machine.get("key")), (0, None));
    // A load can be begun again.
    let mut loading = begin(&machine, LARGE);
    load(&machine, &mut loading, "key", b"value");
    loading.finish(|_, _| ()).expect("the disk works again");
    assert_eq!((keys(&machine), machine.get("key").as_deref()), (1, Some(&b"value"[..])));
}

#[test]
fn a_load_that_cannot_read_the_base_leaves_no_history_behind() {
    let machine = Machine::new(usual);
    let mut loading = begin(&machine, LARGE);
    load(&machine, &mut loading, "key", b"value");
    machine.base.set_scan_fault(Some(BaseError::Failed("injected".into())));
    let failed = loading.finish(|_, _| ());
    assert!(matches!(&failed, Err(LoadError::Failed(why)) if why.contains("injected")), "{failed:?}");
    machine.base.set_scan_fault(None);
    machine.put("later", b"x").expect("room");
    machine.store.log().write();
    let machine = machine.kill();
    assert_eq!((machine.get("key"), machine.get("later").as_deref()), (None, Some(&b"x"[..])));
}

#[test]
fn objects_are_found_whichever_ids_other_transactions_hold() {
    let machine = Machine::new(usual);
    let mut other = machine.begin();
    other.new_object().expect("room");
    let mut loading = begin(&machine, LARGE);
    let mut txn = machine.begin();
    let id = object(&mut txn, b"object", 10);
    assert!(loading.take(&mut txn).expect("there is room"));
    drop(txn);
    loading.finish(|_, _| ()).expect("nothing is broken");
    let mut txn = machine.begin();
    let key = txn.key(b"object");
    let row = row::data_row(key.space, key.slot, id, &7u16.to_be_bytes());
    let (from, until) = row::object_range(row::Family::Data, key.space, key.slot, id);
    assert!(txn.row(&row).expect("reads").is_some());
    let mut rows = 0;
    let count = |_: &[u8], _: &[u8]| {
        rows += 1;
        ControlFlow::Continue(())
    };
    txn.visit(&from, &until, Direction::Forward, 100, count).expect("reads");
    assert_eq!(rows, 10);
    drop(other);
}

#[test]
fn room_is_left_on_the_disk() {
    static FREE: AtomicU64 = AtomicU64::new(0);
    let machine = Machine::new(|options| {
        options.disk_free_min_bytes = 10_000;
        options.disk_free = DiskFree(Arc::new(|| Some(FREE.load(Ordering::Relaxed))));
    });
    FREE.store(10_000 + 2 * SMALL as u64, Ordering::Relaxed);
    let mut loading = begin(&machine, SMALL);
    (0..100).for_each(|n| load(&machine, &mut loading, &format!("key:{n}"), b"value"));
    FREE.store(10_000 + SMALL as u64 / 2, Ordering::Relaxed);
    let mut failed = None;
    for n in 100..200 {
        let mut txn = machine.begin();
        put(&mut txn, format!("key:{n}").as_bytes(), b"value");
        failed = failed.or(loading.take(&mut txn).err());
    }
    let Some(Stop::Failed(why)) = failed else { panic!("{failed:?}") };
    assert!(why.starts_with("the disk is full: it has 12048 bytes left, too few for "), "{why}");
    FREE.store(u64::MAX, Ordering::Relaxed);
    assert!(loading.finish(|_, _| ()).is_err(), "a part of it is missing");
    // The disk also comes to its end while the load goes into the base.
    let mut loading = begin(&machine, LARGE);
    (0..10_000).for_each(|n| load(&machine, &mut loading, &format!("key:{n}"), b"value"));
    let failed = loading.finish(|done, rows| {
        assert_eq!((done, rows), (4096, 10_000));
        FREE.store(9_999, Ordering::Relaxed);
    });
    assert!(matches!(&failed, Err(LoadError::Failed(why)) if why.contains("it has 9999 bytes left")), "{failed:?}");
    FREE.store(u64::MAX, Ordering::Relaxed);
    assert_eq!((keys(&machine), machine.get("key:1")), (0, None));
}

#[test]
fn a_file_that_cannot_be_made_is_an_error() {
    let machine = Machine::new(usual);
    let mut loading = machine.store.load("/nowhere/at/all".as_ref(), 1).expect("the base reads").expect("it is empty");
    let mut txn = machine.begin();
    put(&mut txn, b"key", b"value");
    let why = format!("{:?}", loading.take(&mut txn));
    assert!(why.contains("making a file for sorting"), "{why}");
    drop(txn);
    assert!(matches!(loading.finish(|_, _| ()), Err(LoadError::Failed(_))), "half of it may be missing");
}

#[test]
fn only_an_empty_store_is_loaded() {
    let machine = Machine::new(usual);
    machine.put("key", b"value").expect("room");
    assert!(machine.store.load(&std::env::temp_dir(), LARGE).expect("the base reads").is_none());
}

#[test]
fn what_was_written_ahead_is_committed() {
    let machine = Machine::new(usual);
    let mut loading = begin(&machine, LARGE);
    let mut txn = machine.begin();
    let id = txn.new_object().expect("room");
    let key = txn.key(b"long");
    for n in 0..400u16 {
        txn.put_row(&row::data_row(key.space, key.slot, id, &n.to_be_bytes()), &[&[0; 8000]]).expect("it goes ahead");
    }
    txn.put_row(&row::owner_row(key.space, key.slot, id), &[b"long"]).expect("small");
    put(&mut txn, b"long", b"x");
    assert!(!loading.take(&mut txn).expect("nothing is written"));
    txn.commit().expect("room");
    drop(txn);
    load(&machine, &mut loading, "key", b"value");
    loading.finish(|_, _| ()).expect("nothing is broken");
    let machine = machine.kill();
    assert_eq!((keys(&machine), machine.get("long").is_some(), machine.get("key").is_some()), (2, true, true));
}
