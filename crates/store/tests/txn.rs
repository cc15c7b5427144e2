//! Transactions over a memory base: a command's guarantees, with freezes and flushes in between.

use haypile_store::row;
use haypile_store::testing::{TestStore, memory_store};
use haypile_store::{
    Access, Call, Counter, Direction, Mode, NextRows, Pins, Presence, ScanPosition, Stop, Txn, TxnBuffers,
};
use std::collections::HashSet;

fn call(mode: Mode) -> Call<'static> {
    Call { now_ms: 1_000, seed: 1, database: 0, mode, pins: None }
}

fn begin(store: &TestStore) -> Txn<'_> {
    store.begin(TxnBuffers::default(), call(Mode::Disk))
}

fn put(store: &TestStore, name: &[u8], value: &[u8]) {
    let mut txn = begin(store);
    let key = txn.key(name);
    txn.put_meta(&key, &[value]).expect("small");
    txn.count(key.space, Counter::Keys, 1);
    txn.commit().expect("the store takes writes");
}

fn get(store: &TestStore, name: &[u8]) -> Option<Vec<u8>> {
    let mut txn = begin(store);
    let key = txn.key(name);
    txn.meta(&key).expect("readable").map(|value| value.to_vec())
}

#[test]
fn a_dropped_transaction_leaves_nothing() {
    let store = memory_store();
    let mut txn = begin(&store);
    let key = txn.key(b"k");
    txn.put_meta(&key, &[b"v"]).expect("small");
    txn.count(key.space, Counter::Keys, 1);
    assert_eq!(txn.meta(&key).expect("own").as_deref(), Some(&b"v"[..]));
    drop(txn);
    assert_eq!(get(&store, b"k"), None);
    assert_eq!(store.counter(0, Counter::Keys), 0);
}

#[test]
fn a_savepoint_takes_back_what_came_after_it_and_nothing_else() {
    let store = memory_store();
    let mut txn = begin(&store);
    let (a, b) = (txn.key(b"a"), txn.key(b"b"));
    txn.put_meta(&a, &[b"1"]).expect("small");
    let here = txn.savepoint();
    txn.put_meta(&a, &[b"2"]).expect("small");
    txn.put_meta(&b, &[b"2"]).expect("small");
    txn.count(a.space, Counter::Keys, 5);
    txn.rollback(here);
    assert_eq!(txn.meta(&a).expect("own").as_deref(), Some(&b"1"[..]));
    assert_eq!(txn.meta(&b).expect("own"), None);
    txn.commit().expect("commits");
    drop(txn);
    assert_eq!((get(&store, b"a"), get(&store, b"b")), (Some(b"1".to_vec()), None));
    assert_eq!(store.counter(0, Counter::Keys), 0);
}

#[test]
fn rows_are_the_same_before_and_after_the_flush() {
    let store = memory_store();
    for i in 0..500 {
        put(&store, format!("key:{i}").as_bytes(), &[b'v'; 10]);
    }
    store.flush_now().expect("flushes");
    assert!(store.base.len() >= 500);
    for i in 0..500 {
        assert_eq!(get(&store, format!("key:{i}").as_bytes()), Some(vec![b'v'; 10]));
    }
    assert_eq!(store.counter(0, Counter::Keys), 500);
    assert_eq!(get(&store, b"key:500"), None);
}

#[test]
fn what_only_the_disk_knows_would_block_an_event_loop_until_it_is_pinned() {
    let store = memory_store();
    put(&store, b"cold", b"v");
    store.flush_now().expect("flushes");
    store.base.set_cold(true);
    let mut txn = store.begin(TxnBuffers::default(), call(Mode::Memory));
    let key = txn.key(b"cold");
    assert_eq!(txn.meta(&key), Err(Stop::WouldBlock));
    drop(txn);
    let mut load = store.begin(TxnBuffers::default(), call(Mode::Load));
    assert!(load.meta(&load.key(b"cold")).expect("reads the disk").is_some());
    let pins = load.take_pins();
    drop(load);
    let mut again = store.begin(TxnBuffers::default(), Call { pins: Some(&pins), ..call(Mode::Memory) });
    assert!(again.meta(&again.key(b"cold")).expect("pinned").is_some());
}

#[test]
fn pins_of_before_a_flush_are_not_believed() {
    let store = memory_store();
    put(&store, b"k", b"old");
    store.flush_now().expect("flushes");
    let mut load = store.begin(TxnBuffers::default(), call(Mode::Load));
    load.meta(&load.key(b"k")).expect("reads");
    let pins = load.take_pins();
    drop(load);
    put(&store, b"k", b"new");
    store.flush_now().expect("flushes");
    let mut txn = store.begin(TxnBuffers::default(), Call { pins: Some(&pins), ..call(Mode::Disk) });
    assert_eq!(txn.meta(&txn.key(b"k")).expect("reads").as_deref(), Some(&b"new"[..]));
}

#[test]
fn pins_that_were_loaded_at_the_same_time_are_good_together_unless_a_flush_came_between() {
    let store = memory_store();
    // No row cache: pins are all that is known.
    store.set_memory(1 << 20, 0, 0);
    put(&store, b"a", b"1");
    put(&store, b"b", b"2");
    store.flush_now().expect("flushes");
    store.base.set_cold(true);
    let load = |name: &[u8]| {
        let mut txn = store.begin(TxnBuffers::default(), call(Mode::Load));
        txn.meta(&txn.key(name)).expect("reads the disk");
        txn.take_pins()
    };
    let read = |pins: &Pins, name: &[u8]| {
        let mut txn = store.begin(TxnBuffers::default(), Call { pins: Some(pins), ..call(Mode::Memory) });
        txn.meta(&txn.key(name)).map(|row| row.map(|value| value.to_vec()))
    };
    let mut pins = load(b"a");
    pins.add(load(b"b"));
    assert_eq!(read(&pins, b"a"), Ok(Some(b"1".to_vec())));
    assert_eq!(read(&pins, b"b"), Ok(Some(b"2".to_vec())));
    put(&store, b"a", b"3");
    store.flush_now().expect("flushes");
    store.base.set_cold(true);
    let mut newer = load(b"b");
    newer.add(pins);
    assert_eq!(read(&newer, b"a"), Err(Stop::WouldBlock), "of before the flush");
    assert_eq!(read(&newer, b"b"), Ok(Some(b"2".to_vec())));
}

#[test]
fn who_looks_up_many_rows_in_the_base_has_them_loaded_even_if_no_disk_is_read() {
    const ROWS: usize = 200;
    let store = memory_store();
    // No row cache: each row is looked up.
    store.set_memory(1 << 20, 0, 0);
    (0..ROWS).for_each(|i| put(&store, format!("key:{i}").as_bytes(), b"v"));
    store.flush_now().expect("flushes");
    let read = |mode: Mode, pins: Option<&Pins>| {
        let mut txn = store.begin(TxnBuffers::default(), Call { pins, ..call(mode) });
        let is_there = |i: usize| txn.meta(&txn.key(format!("key:{i}").as_bytes())).map(|row| row.is_some());
        let found: Result<Vec<bool>, Stop> = (0..ROWS).map(is_there).collect();
        (found.map(|found| found.iter().all(|is_there| *is_there)), txn.take_pins())
    };
    assert_eq!(read(Mode::Memory, None).0, Err(Stop::WouldBlock));
    assert_eq!(read(Mode::Look, None).0, Err(Stop::WouldBlock));
    assert_eq!(read(Mode::Disk, None).0, Ok(true));
    let (loaded, pins) = read(Mode::Load, None);
    assert_eq!((loaded, read(Mode::Memory, Some(&pins)).0), (Ok(true), Ok(true)));
}

#[test]
fn a_plain_string_in_the_base_is_known_to_be_there_without_a_read() {
    let store = memory_store();
    put(&store, b"plain", &[1, 0, b'v']);
    put(&store, b"other", &[9, 9, b'v']);
    store.flush_now().expect("flushes");
    store.base.set_cold(true);
    let mut txn = store.begin(TxnBuffers::default(), call(Mode::Memory));
    assert_eq!(txn.presence(&txn.key(b"plain")), Ok(Presence::Plain));
    // No read brought the other row into the row cache, so only the disk knows it.
    assert_eq!(txn.presence(&txn.key(b"other")), Err(Stop::WouldBlock));
}

#[test]
fn scans_merge_own_writes_memtable_and_base() {
    let store = memory_store();
    let row = |n: u8| row::data_row(haypile_store::Space(0), haypile_store::Slot(5), haypile_store::ObjectId(7), &[n]);
    let write = |n: u8, value: Option<&[u8]>| {
        let mut txn = begin(&store);
        match value {
            Some(value) => txn.put_row(&row(n), &[value]).expect("small"),
            None => txn.delete_row(&row(n)).expect("small"),
        }
        txn.commit().expect("commits");
    };
    (0..10).for_each(|n| write(n, Some(b"base")));
    store.flush_now().expect("flushes");
    write(3, None);
    write(4, Some(b"memory"));
    let mut txn = begin(&store);
    txn.put_row(&row(5), &[b"own"]).expect("small");
    txn.delete_row(&row(6)).expect("small");
    txn.put_row(&row(20), &[b"own"]).expect("small");
    let found = txn.scan(&row(2), &row(30), 100).expect("reads");
    let found: Vec<(u8, &[u8])> = found.iter().map(|(row, value)| (row[15], &value[..])).collect();
    let base = &b"base"[..];
    assert_eq!(found, [(2, base), (4, b"memory"), (5, b"own"), (7, base), (8, base), (9, base), (20, b"own")]);
    assert_eq!(txn.scan(&row(0), &row(30), 2).expect("reads").len(), 2);
}

#[test]
fn a_scan_of_keys_finds_every_key_once_wherever_it_lies() {
    let store = memory_store();
    for i in 0..1000 {
        put(&store, format!("key:{i}").as_bytes(), b"v");
        if i == 600 {
            store.flush_now().expect("flushes");
        }
    }
    let mut txn = begin(&store);
    for max in [1, 7, 100, 5000] {
        let mut names = Vec::new();
        let mut at = Some(ScanPosition::START);
        while let Some(from) = at {
            let (found, next) = txn.scan_keys(haypile_store::Space(0), from, max).expect("reads");
            names.extend(found.into_iter().map(|(name, _)| name));
            at = next;
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 1000, "with {max} at a time");
    }
}

#[test]
fn a_patch_changes_its_bytes_wherever_the_row_lies() {
    let store = memory_store();
    put(&store, b"k", b"hello world");
    for flushed in [false, true] {
        let mut txn = begin(&store);
        let key = txn.key(b"k");
        txn.patch_meta(&key, 6, b"WORLD!", 12).expect("small");
        assert_eq!(txn.meta(&key).expect("own").as_deref(), Some(&b"hello WORLD!"[..]));
        txn.patch_meta(&key, 0, b"J", 5).expect("small");
        txn.commit().expect("commits");
        drop(txn);
        assert_eq!(get(&store, b"k"), Some(b"Jello".to_vec()), "flushed: {flushed}");
        put(&store, b"k", b"hello world");
        store.flush_now().expect("flushes");
    }
}

#[test]
fn a_splice_moves_what_is_behind_it_wherever_the_row_lies() {
    let store = memory_store();
    put(&store, b"k", b"hello world");
    for flushed in [false, true] {
        let mut txn = begin(&store);
        let key = txn.key(b"k");
        let row = row::meta_row(&key);
        txn.splice_row(&row, 5, 1, b", wide ").expect("small");
        assert_eq!(txn.meta(&key).expect("own").as_deref(), Some(&b"hello, wide world"[..]));
        txn.splice_row(&row, 0, 5, b"").expect("small");
        txn.patch_meta(&key, 0, b"J", 12).expect("small");
        txn.splice_row(&row, 12, 0, b"!").expect("small");
        assert_eq!(txn.meta(&key).expect("own").as_deref(), Some(&b"J wide world!"[..]));
        txn.commit().expect("commits");
        drop(txn);
        assert_eq!(get(&store, b"k"), Some(b"J wide world!".to_vec()), "flushed: {flushed}");
        put(&store, b"k", b"hello world");
        store.flush_now().expect("flushes");
    }
    let mut txn = begin(&store);
    let missing = row::meta_row(&txn.key(b"missing"));
    txn.splice_row(&missing, 0, 0, b"as if it were empty").expect("small");
    txn.commit().expect("commits");
    drop(txn);
    assert_eq!(get(&store, b"missing"), Some(b"as if it were empty".to_vec()));
}

#[test]
#[should_panic(expected = "a splice lies inside the row it finds")]
fn a_splice_beyond_its_row_is_a_defect_of_who_makes_it() {
    let store = memory_store();
    put(&store, b"k", b"hello");
    let mut txn = begin(&store);
    let row = row::meta_row(&txn.key(b"k"));
    drop(txn.splice_row(&row, 4, 2, b"X"));
}

#[test]
fn a_flushed_database_is_empty_at_once_and_its_rows_never_reach_the_base() {
    let store = memory_store();
    put(&store, b"k", b"v");
    let mut txn = begin(&store);
    txn.flush_database(0).expect("fits");
    let key = txn.key(b"k");
    assert_eq!(txn.meta(&key).expect("reads"), None);
    txn.put_meta(&key, &[b"after"]).expect("small");
    txn.commit().expect("commits");
    drop(txn);
    assert_eq!(get(&store, b"k"), Some(b"after".to_vec()));
    assert_eq!(store.counter(0, Counter::Keys), 0);
}

#[test]
fn a_large_new_object_is_written_ahead_and_anything_else_too_large_is_refused() {
    let store = memory_store();
    let mut txn = begin(&store);
    let id = txn.new_object().expect("leased");
    let chunk = vec![b'x'; 64 << 10];
    for n in 0..1000u32 {
        let row = row::data_row(haypile_store::Space(0), haypile_store::Slot(1), id, &n.to_be_bytes());
        txn.put_row(&row, &[&chunk]).expect("written ahead");
    }
    txn.put_row(&row::owner_row(haypile_store::Space(0), haypile_store::Slot(1), id), &[b"k"]).expect("small");
    txn.commit().expect("commits");
    let last = row::data_row(haypile_store::Space(0), haypile_store::Slot(1), id, &999u32.to_be_bytes());
    assert_eq!(txn.row(&last).expect("reads").map(|value| value.len()), Some(64 << 10));
    drop(txn);
    let mut txn = begin(&store);
    let key = txn.key(b"big");
    assert_eq!(txn.put_meta(&key, &[&vec![0; 9 << 20]]), Err(Stop::TooLarge));
}

#[test]
fn a_transaction_of_very_many_writes_tells_afterwards_what_it_has_written() {
    // So many that their index is given back before they take effect.
    const KEYS: usize = 20_000;
    let store = memory_store();
    let name = |number: usize| format!("key:{number}").into_bytes();
    let mut txn = begin(&store);
    for number in 0..KEYS {
        let name = name(number);
        let key = txn.key(&name);
        txn.put_meta(&key, &[&name]).expect("room");
        if number % 3 == 0 {
            txn.delete_meta(&key).expect("room");
        } else {
            txn.count(key.space, Counter::Keys, 1);
        }
    }
    let index = txn.commit().expect("room").index;
    assert!(index.is_some() && !txn.is_read_only());
    let touched: HashSet<Vec<u8>> = txn.touched().map(|key| key.name.to_vec()).collect();
    assert_eq!(touched, (0..KEYS).map(name).collect());
    // The next one, in the same memory, has nothing of it.
    let next = store.begin(txn.finish(), call(Mode::Disk));
    assert!(next.is_read_only() && next.touched().next().is_none());
    drop(next);
    for freezes in [false, true] {
        if freezes {
            store.flush_now().expect("flushes");
        }
        for number in 0..KEYS {
            let expected = (number % 3 != 0).then(|| name(number));
            assert_eq!(get(&store, &name(number)), expected, "key {number}");
        }
    }
}

#[test]
fn without_key_locks_one_row_can_be_read() {
    let store = memory_store();
    put(&store, b"k", b"v");
    let without = || {
        let mut txn = begin(&store);
        txn.read_one_row();
        txn
    };
    let mut txn = without();
    let key = txn.key(b"k");
    assert_eq!(txn.meta(&key).expect("one row").as_deref(), Some(&b"v"[..]));
    assert_eq!(txn.meta(&key), Err(Stop::NeedsLocks), "it may have changed meanwhile");
    let row = row::owner_row(key.space, key.slot, haypile_store::ObjectId(1));
    assert_eq!(txn.row(&row), Err(Stop::NeedsLocks));
    assert_eq!(without().scan(b"", b"z", 1).err(), Some(Stop::NeedsLocks));
    assert_eq!(without().scan_keys(key.space, ScanPosition::START, 1).err(), Some(Stop::NeedsLocks));
    assert_eq!(without().view(b"", b"z", Direction::Forward).err(), Some(Stop::NeedsLocks));
}

#[test]
fn rows_that_are_taken_in_order_are_read_ahead() {
    const ROWS: u8 = 200;
    for direction in [Direction::Forward, Direction::Backward] {
        let store = memory_store();
        let space = begin(&store).space(0);
        let element = |number: u8| row::data_row(space, haypile_store::Slot(3), haypile_store::ObjectId(7), &[number]);
        let write = |number: u8, value: &[u8]| {
            let mut txn = begin(&store);
            txn.put_row(&element(number), &[value]).expect("small");
            txn.commit().expect("commits");
        };
        // A row is missing, and the outermost are not among those that will be asked for.
        let missing = 5;
        (0..ROWS).filter(|number| *number != missing).for_each(|number| write(number, &[number; 4]));
        store.flush_now().expect("flushes to memory");
        store.base.set_cold(true);
        let (wanted, beyond): (Vec<u8>, u8) = match direction {
            Direction::Forward => ((0..ROWS - 1).collect(), ROWS - 1),
            Direction::Backward => ((1..ROWS).rev().collect(), 0),
        };
        let end = *wanted.last().expect("there are some");
        let take = |number: u8, mode: Mode| {
            let mut txn = store.begin(TxnBuffers::default(), call(mode));
            let next = |count: usize| match direction {
                Direction::Forward => NextRows { end: element(end), is_counted: false },
                Direction::Backward => {
                    let last = (usize::from(number) + 1).saturating_sub(count) as u8;
                    NextRows { end: element(last.max(end)), is_counted: true }
                }
            };
            txn.row_and_next(&element(number), direction, next)
        };
        let mut reads = 0;
        for &number in &wanted {
            let found = take(number, Mode::Memory).or_else(|stop| {
                // A command that may not wait for the disk reads nothing ahead.
                assert_eq!(stop, Stop::WouldBlock);
                reads += 1;
                take(number, Mode::Disk)
            });
            let expected = (number != missing).then_some([number; 4]);
            assert_eq!(found.expect("readable").as_deref(), expected.as_ref().map(|value| &value[..]), "{number}");
        }
        assert_eq!(reads, 4, "16 rows, 16, 128, and the rest");
        assert_eq!(take(beyond, Mode::Memory), Err(Stop::WouldBlock));
        // A newer version wins, in the memtable and in the base.
        write(end, b"new");
        assert_eq!(take(end, Mode::Disk).expect("readable").as_deref(), Some(&b"new"[..]));
        store.flush_now().expect("flushes to memory");
        assert_eq!(take(end, Mode::Disk).expect("readable").as_deref(), Some(&b"new"[..]));
    }
}

#[test]
fn long_rows_before_short_ones_are_read_from_the_end_that_is_asked_for() {
    const ROWS: u8 = 200;
    const LONG: u8 = 120;
    let store = memory_store();
    let space = begin(&store).space(0);
    let element = |number: u8| row::data_row(space, haypile_store::Slot(3), haypile_store::ObjectId(7), &[number]);
    let value = |number: u8| vec![number; if number < LONG { 1_000 } else { 4 }];
    for number in 0..ROWS {
        let mut txn = begin(&store);
        txn.put_row(&element(number), &[&value(number)]).expect("small");
        txn.commit().expect("commits");
    }
    store.flush_now().expect("flushes to memory");
    store.base.set_cold(true);
    let mut reads = 0;
    for number in (0..ROWS).rev() {
        let last = |count: usize| (usize::from(number) + 1).saturating_sub(count) as u8;
        let take = |mode: Mode| {
            let next = |count: usize| NextRows { end: element(last(count)), is_counted: true };
            store.begin(TxnBuffers::default(), call(mode)).row_and_next(&element(number), Direction::Backward, next)
        };
        let found = take(Mode::Memory).or_else(|_| {
            reads += 1;
            take(Mode::Disk)
        });
        assert_eq!(found.expect("readable").as_deref(), Some(&value(number)[..]));
    }
    assert!(reads < 40, "{reads} reads of {ROWS} rows, of which {LONG} are long");
}

#[test]
fn a_key_that_comes_with_a_past_is_as_idle_as_that_says() {
    let store = memory_store();
    let now_ms = 1_800_000_000_000;
    let begin = |later_s: u64| {
        let call = Call { now_ms: now_ms + later_s * 1000, ..call(Mode::Disk) };
        store.begin(TxnBuffers::default(), call)
    };
    let mut txn = begin(0);
    let key = txn.key(b"k");
    txn.put_meta(&key, &[b"v"]).expect("small");
    txn.set_access(&key, Access::at(now_ms - 60_000));
    assert_eq!(txn.idle_s(&key), 60, "its own");
    let here = txn.savepoint();
    txn.set_access(&key, Access::at(now_ms - 70_000));
    txn.rollback(here);
    txn.commit().expect("commits");
    drop(txn);
    assert_eq!(begin(1).idle_s(&key), 61);
    // A look does not count, a use does, but not for a client that leaves no traces.
    let mut txn = begin(2);
    txn.meta(&key).expect("in memory");
    assert!(txn.set_touching(false));
    txn.use_meta(&key).expect("in memory");
    assert_eq!(txn.idle_s(&key), 62);
    assert!(!txn.set_touching(true));
    txn.use_meta(&key).expect("in memory");
    drop(txn);
    assert_eq!(begin(5).idle_s(&key), 3);
}

#[test]
fn in_the_transaction_with_which_it_comes_a_past_ends_with_the_next_use_and_with_the_key() {
    let store = memory_store();
    let now_ms = 1_800_000_000_000;
    for counts in [false, true] {
        store.access_policy.set_counts(counts);
        store.access_policy.set_log_factor(1_000_000);
        let past = if counts { Access::counted(now_ms, 200) } else { Access::at(now_ms - 60_000) };
        let mut txn = store.begin(TxnBuffers::default(), Call { now_ms, ..call(Mode::Disk) });
        let key = txn.key(b"k");
        let shown = |txn: &Txn<'_>| if counts { u64::from(txn.frequency(&key)) } else { txn.idle_s(&key) };
        let (kept, used, new) = if counts { (200, 200, 5) } else { (60, 0, 0) };
        let comes = |txn: &mut Txn<'_>| {
            txn.put_meta(&key, &[b"v"]).expect("small");
            txn.set_access(&key, past);
            assert_eq!(shown(txn), kept);
        };
        comes(&mut txn);
        txn.meta(&key).expect("its own");
        assert_eq!(shown(&txn), kept, "a look is no use");
        txn.use_meta(&key).expect("its own");
        assert_eq!(shown(&txn), used, "a use");
        comes(&mut txn);
        txn.presence(&key).expect("its own");
        txn.put_meta(&key, &[b"w"]).expect("small");
        assert_eq!(shown(&txn), used, "another value");
        comes(&mut txn);
        txn.use_meta(&key).expect("its own");
        txn.delete_meta(&key).expect("small");
        txn.presence(&key).expect("its own");
        txn.use_meta(&key).expect("its own");
        txn.put_meta(&key, &[b"w"]).expect("small");
        assert_eq!(shown(&txn), new, "another key of its name");
        txn.commit().expect("commits");
        drop(txn);
        let txn = store.begin(TxnBuffers::default(), Call { now_ms, ..call(Mode::Disk) });
        assert_eq!(shown(&txn), new, "for others, too");
    }
}

#[test]
fn who_leaves_no_traces_writes_without_a_use() {
    let store = memory_store();
    let now_ms = 1_800_000_000_000;
    let put = |later_s: u64, touches: bool, freezes: bool| {
        let call = Call { now_ms: now_ms + later_s * 1000, ..call(Mode::Disk) };
        let mut txn = store.begin(TxnBuffers::default(), call);
        txn.set_touching(touches);
        let key = txn.key(b"k");
        txn.presence(&key).expect("readable");
        txn.put_meta(&key, &[b"v"]).expect("small");
        txn.commit().expect("commits");
        drop(txn);
        if freezes {
            store.flush_now().expect("flushes");
        }
    };
    let idle_s = |later_s: u64| {
        let call = Call { now_ms: now_ms + later_s * 1000, ..call(Mode::Disk) };
        let txn = store.begin(TxnBuffers::default(), call);
        let key = txn.key(b"k");
        txn.idle_s(&key)
    };
    put(0, true, false);
    put(5, false, false);
    assert_eq!(idle_s(6), 6, "since the first write");
    put(7, true, false);
    assert_eq!(idle_s(9), 2);
    // A key that is new to memory has no other past than this write.
    put(10, false, true);
    put(20, false, false);
    assert_eq!(idle_s(21), 1);
}
