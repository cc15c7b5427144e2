//! The store's rules, one by one, each with the test that fails without it: durability's gate, reads and views, stops,
//! counters, the hash seed. Back-pressure's are in `pressure.rs`, the replay's in `replay.rs`.

mod machine;

use haypile_log::testing::{FaultFiles, ForgetfulFiles};
use haypile_log::{Durability, Index};
use haypile_store::base::BaseError;
use haypile_store::testing::{PLAIN, options};
use haypile_store::{
    Counter, Direction, MemoryBase, Mode, ObjectId, Presence, Refusal, ScanPosition, Space, Stop, Store, Txn,
    TxnBuffers, row,
};
use machine::{Machine, call, usual};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_reply_depends_on_the_newest_record_that_it_read_from_wherever() {
    let machine = Machine::new(usual);
    let written = machine.put("k", b"v").expect("room").index.expect("a record");
    type Read = fn(&mut Txn<'_>);
    let reads: [(&str, Read); 5] = [
        ("a row", |txn| drop(txn.meta(&txn.key(b"k")))),
        ("whether it is there", |txn| drop(txn.presence(&txn.key(b"k")))),
        ("a scan of keys", |txn| drop(txn.scan_keys(Space(0), ScanPosition::START, 10))),
        ("a counter", |txn| assert_eq!(txn.counter(Space(0), Counter::Keys), 1)),
        ("all rows", |txn| drop(txn.view(&row::meta_row(&txn.key(b"")), &[9], Direction::Forward))),
    ];
    for (what, read) in &reads[..4] {
        let mut txn = machine.begin();
        read(&mut txn);
        assert_eq!(txn.gate(), written, "{what}");
    }
    // A deletion that was read is an effect, too.
    let mut txn = machine.begin();
    txn.delete_meta(&txn.key(b"k")).expect("small");
    let deleted = txn.commit().expect("room").index.expect("a record");
    drop(txn);
    for (what, read) in &reads[..3] {
        let mut txn = machine.begin();
        read(&mut txn);
        assert_eq!(txn.gate(), deleted, "{what}, deleted");
    }
}

#[test]
fn scans_of_rows_and_views_depend_on_what_they_read() {
    let machine = Machine::new(usual);
    let row_of = |n: u8| row::data_row(Space(0), row::Slot(1), row::ObjectId(1), &[n]);
    let mut txn = machine.begin();
    txn.put_row(&row_of(1), &[b"v"]).expect("small");
    let written = txn.commit().expect("room").index.expect("a record");
    drop(txn);
    let mut txn = machine.begin();
    assert_eq!(txn.scan(&row_of(0), &row_of(9), 10).expect("reads").len(), 1);
    assert_eq!(txn.gate(), written);
    drop(txn);
    let mut txn = machine.begin();
    drop(txn.view(&row_of(0), &row_of(9), Direction::Forward).expect("reads"));
    assert_eq!(txn.gate(), written);
}

#[test]
fn a_view_misses_nothing_when_a_flush_ends_while_it_is_opened() {
    let machine = Machine::new(usual);
    let write = |id: Option<ObjectId>, element: u32| {
        let mut txn = machine.begin();
        let id = id.map_or_else(|| txn.new_object(), Ok).expect("room");
        txn.put_row(&row::data_row(Space(0), row::Slot(1), id, &element.to_be_bytes()), &[b"v"]).expect("small");
        txn.commit().expect("room");
        id
    };
    let id = write(None, 0);
    machine.store.flush_now().expect("nothing is broken");
    (1..1000).for_each(|element| {
        write(Some(id), element);
    });
    let (from, until) = row::object_range(row::Family::Data, Space(0), row::Slot(1), id);
    for direction in [Direction::Forward, Direction::Backward] {
        // Where the base was asked before the rows came there, they have to be looked for again.
        let store = machine.store.clone();
        machine.base.after_view(move || store.flush_now().expect("nothing is broken"));
        let mut txn = machine.begin();
        let mut view = txn.view(&from, &until, direction).expect("reads");
        let mut count = 0;
        while view.next_row().expect("reads").is_some() {
            count += 1;
        }
        assert_eq!(count, 1000, "{direction:?}");
        drop(txn);
        write(Some(id), 5);
    }
}

#[test]
fn a_view_ends_when_it_is_too_old() {
    let machine = Machine::new(usual);
    let view_of = |machine: &Machine| {
        let mut txn = machine.begin();
        let (from, until) = row::object_range(row::Family::Data, Space(0), row::Slot(1), ObjectId(1));
        txn.view(&from, &until, Direction::Forward).expect("reads")
    };
    assert_eq!(view_of(&machine).next_row(), Ok(None));
    assert_eq!(machine.store.view_age_max(), Duration::from_secs(600));
    machine.store.set_view_age_max(Duration::ZERO);
    let mut view = view_of(&machine);
    std::thread::sleep(Duration::from_millis(1));
    assert_eq!(view.next_row(), Err("the reply was read too slowly".into()));
}

#[test]
fn an_absent_key_of_a_database_that_was_just_flushed_depends_on_that() {
    let machine = Machine::new(usual);
    machine.put("k", b"v").expect("room");
    let mut txn = machine.begin();
    txn.flush_database(0).expect("small");
    let flushed = txn.commit().expect("room").index.expect("a record");
    drop(txn);
    let mut txn = machine.begin();
    assert_eq!(txn.meta(&txn.key(b"k")), Ok(None));
    assert_eq!(txn.gate(), flushed, "the reply must not be seen before it is sure");
}

#[test]
fn a_stop_ends_commands_that_may_read_the_disk_and_no_others() {
    let machine = Machine::new(usual);
    let (space, slot, id) = (machine.begin().space(0), haypile_store::Slot(1), ObjectId(7));
    let element = |number: u8| row::data_row(space, slot, id, &[number]);
    let mut txn = machine.begin();
    for number in 0..3 {
        txn.put_row(&element(number), &[b"value"]).expect("small");
    }
    txn.commit().expect("room");
    drop(txn);
    machine.store.flush_now().expect("the base takes it");

    let begin = |mode: Mode| machine.store.begin(TxnBuffers::default(), call(mode));
    let go_on = |_: &[u8], _: &[u8]| std::ops::ControlFlow::Continue(());
    let (from, until) = (element(0), element(9));
    let visit = |txn: &mut Txn<'_>| txn.visit(&from, &until, Direction::Forward, 9, go_on);
    let mut view = begin(Mode::Disk).view(&from, &until, Direction::Forward).expect("readable");
    assert!(view.next_row().expect("readable").is_some());

    let mut half_done = begin(Mode::Disk);
    half_done.put_row(&element(5), &[b"value"]).expect("small");

    machine.store.stop_commands();
    let stopped = Stop::Refused(Refusal::Stopping);
    assert_eq!(half_done.commit().map(|_| ()), Err(stopped.clone()), "what else it would have done was ended");
    assert_eq!(visit(&mut begin(Mode::Disk)), Err(stopped.clone()));
    assert_eq!(begin(Mode::Disk).row(&element(1)), Err(stopped), "a row of the base");
    assert_eq!(visit(&mut begin(Mode::Memory)), Ok(()), "it does not take long");
    assert_eq!(view.next_row(), Err("the server is stopping".into()));
}

/// Checks that the base never has records that are not synced: a power loss takes these out of the log, and the store
/// would go back in parts.
#[test]
fn the_log_is_synced_before_the_base_takes_what_it_says() {
    let machine = Machine::new(|options| options.log.sync_interval_ms = 3_600_000);
    let (store, base) = (&machine.store, &machine.base);
    let log = store.log();
    let flush = || {
        base.hold_ingests(true);
        base.set_fault(None);
        let store = store.clone();
        let flush = std::thread::spawn(move || store.flush_now());
        base.wait_for_held_ingest();
        assert_eq!(log.synced(), log.last());
        flush
    };
    machine.put("k", b"v").expect("room");
    log.write();
    assert!(log.synced() < log.last(), "nobody has synced it");
    let first = flush();
    // Rows that have died since the generation was frozen are left out when its flush comes late.
    let mut txn = machine.begin();
    txn.flush_database(0).expect("small");
    txn.commit().expect("room");
    drop(txn);
    log.write();
    assert!(log.synced() < log.last(), "nobody has synced it");
    base.set_fault(Some(BaseError::Full("injected".into())));
    base.hold_ingests(false);
    first.join().expect("no panics").expect_err("the base is full");
    let second = flush();
    base.hold_ingests(false);
    second.join().expect("no panics").expect("the base has room");
}

#[test]
fn who_looks_without_locks_teaches_nobody() {
    let machine = Machine::new(|_| ());
    machine.put("k", &[PLAIN[0], PLAIN[1], b'v']).expect("room");
    machine.store.flush_now().expect("flushes");
    // A new process knows nothing of the key until a command under its lock has looked.
    let machine = machine.kill();
    let looks = |mode: Mode| {
        let mut txn = machine.store.begin(TxnBuffers::default(), call(mode));
        txn.presence(&txn.key(b"k"))
    };
    machine.base.set_cold(true);
    assert_eq!(looks(Mode::Memory), Err(Stop::WouldBlock));
    assert_eq!(looks(Mode::Load), Ok(Presence::Plain));
    assert_eq!(looks(Mode::Look), Ok(Presence::Plain), "the base has the row in memory now");
    machine.base.set_cold(true);
    assert_eq!(looks(Mode::Memory), Err(Stop::WouldBlock), "nobody has learned from that");
    assert_eq!(looks(Mode::Disk), Ok(Presence::Plain));
    machine.base.set_cold(true);
    assert_eq!(looks(Mode::Memory), Ok(Presence::Plain), "who holds the lock has told everybody");
}

#[test]
fn a_command_that_fails_takes_back_what_it_did_to_an_object_of_an_earlier_one() {
    let machine = Machine::new(usual);
    let mut txn = machine.begin();
    let id = txn.new_object().expect("leased");
    let row_of = |n: u32| row::data_row(Space(0), row::Slot(1), id, &n.to_be_bytes());
    txn.put_row(&row_of(0), &[b"first"]).expect("small");
    let savepoint = txn.savepoint();
    let filler = txn.new_object().expect("leased");
    txn.put_row(&row_of(0), &[b"second"]).expect("small");
    for n in 0..40u32 {
        let row = row::data_row(Space(0), row::Slot(1), filler, &n.to_be_bytes());
        txn.put_row(&row, &[&[0; 64 << 10]]).expect("written ahead");
    }
    txn.rollback(savepoint);
    assert_eq!(txn.row(&row_of(0)).expect("reads").as_deref(), Some(&b"first"[..]));
    txn.commit().expect("room");
    drop(txn);
    let mut txn = machine.begin();
    assert_eq!(txn.row(&row_of(0)).expect("reads").as_deref(), Some(&b"first"[..]));
}

#[test]
fn many_small_changes_of_one_row_are_read_at_once_and_undone_in_the_middle() {
    let machine = Machine::new(usual);
    let row = row::data_row(Space(0), row::Slot(1), row::ObjectId(1), b"bits");
    let mut txn = machine.begin();
    let mut savepoint = None;
    for n in 0..100_000u32 {
        if n == 50_000 {
            savepoint = Some(txn.savepoint());
        }
        txn.patch_row(&row, n % 4096, &[n as u8], 4096).expect("small");
        if n % 100 == 0 {
            assert_eq!(txn.row(&row).expect("reads").expect("there")[n as usize % 4096], n as u8);
        }
    }
    txn.rollback(savepoint.expect("in the middle"));
    let found = txn.row(&row).expect("reads").expect("there");
    assert!((0..4096).all(|at| found[at] == (50_000 - 1 - (50_000 - 1 - at) % 4096) as u8));
    txn.commit().expect("room");
}

#[test]
fn the_secret_of_the_key_hashes_is_kept_also_if_the_first_start_dies_at_once() {
    for bytes in (0..12_000).step_by(97) {
        let disk = ForgetfulFiles::new();
        let faults = Arc::new(FaultFiles::new(Arc::new(disk.clone())));
        faults.crash_after(bytes);
        let mut first = options(Path::new("/"));
        first.log.files = faults;
        first.hash_seed = 1;
        let rows = Arc::new(MemoryBase::default());
        if let Ok(store) = Store::open(first, rows.clone(), |_| {}) {
            drop(store.close());
        }
        disk.kill();
        let start = |seed: u64| {
            let mut next = options(Path::new("/"));
            next.log.files = Arc::new(disk.clone());
            next.hash_seed = seed;
            Store::open(next, rows.clone(), |_| {}).expect("opens")
        };
        let second = start(2);
        let seed = second.hash_seed();
        second.close().expect("nothing is wrong");
        let third = start(3);
        assert_eq!(third.hash_seed(), seed, "a crash after {bytes} bytes");
        third.close().expect("nothing is wrong");
    }
}

#[test]
fn counters_of_a_database_that_is_not_configured_for_a_while_are_kept() {
    let disk = ForgetfulFiles::new();
    let rows = Arc::new(MemoryBase::default());
    let start = |databases: u32| {
        let mut options = options(Path::new("/"));
        options.log.files = Arc::new(disk.clone());
        options.databases = databases;
        Store::open(options, rows.clone(), |_| {}).expect("opens")
    };
    let store = start(16);
    let mut txn = store.begin(TxnBuffers::default(), call(Mode::Disk));
    let key = txn.key_in(9, b"k");
    txn.put_meta(&key, &[b"v"]).expect("small");
    txn.count(key.space, Counter::Keys, 1);
    txn.commit().expect("room");
    drop(txn);
    store.log().sync_through(store.log().last()).expect("synced");
    disk.kill();
    drop(store.close());
    for databases in [8, 8, 16] {
        let store = start(databases);
        if databases > 9 {
            assert_eq!(store.counter(9, Counter::Keys), 1);
        }
        store.close().expect("nothing is wrong");
    }
}

#[test]
fn a_flushed_space_leaves_nothing_behind() {
    let machine = Machine::new(usual);
    for round in 0..20 {
        machine.put("k", b"v").expect("room");
        machine.store.flush_now().expect("flushes");
        let mut txn = machine.begin();
        txn.flush_database(0).expect("small");
        txn.commit().expect("room");
        drop(txn);
        machine.store.flush_now().expect("flushes");
        let figure =
            |name| machine.store.figures().into_iter().find(|(_, other, _)| *other == name).expect("a figure").2;
        while figure("reclaimed_spaces") <= round || figure("dead_spaces") > 0 {
            std::thread::yield_now();
        }
    }
    machine.put("last", b"v").expect("room");
    machine.store.flush_now().expect("flushes");
    assert_eq!(machine.store.counter(0, Counter::Keys), 1);
    // The one row, and the store's own: 16 databases' counters among them, but none of the 20 dead spaces.
    assert!(machine.rows.len() <= 1 + 16 + 10, "{} rows", machine.rows.len());
}

#[test]
fn due_deadlines_are_told_until_they_are_deleted() {
    let machine = Machine::new(usual);
    let set = |name: &str, deadline_ms: u64, on: bool| {
        let mut txn = machine.begin();
        let row = row::expire_row(&txn.key(name.as_bytes()), deadline_ms);
        if on { txn.put_row(&row, &[]) } else { txn.delete_row(&row) }.expect("small");
        txn.commit().expect("room");
    };
    (0..20).for_each(|n| set(&format!("key:{n}"), 100 + n, true));
    for _ in 0..3 {
        assert_eq!(machine.store.due_deadlines(109, 1000).len(), 10, "who could not remove them asks again");
    }
    assert_eq!(machine.store.due_deadlines(109, 3).len(), 3);
    (0..10).for_each(|n| set(&format!("key:{n}"), 100 + n, false));
    assert!(machine.store.due_deadlines(109, 1000).is_empty());
    assert_eq!(machine.store.due_deadlines(200, 1000).len(), 10);
    let mut txn = machine.begin();
    txn.flush_database(0).expect("small");
    txn.commit().expect("room");
    drop(txn);
    assert!(machine.store.due_deadlines(200, 1000).is_empty(), "a dead space has none");
}

#[test]
fn nothing_that_was_acknowledged_is_lost_whatever_byte_of_the_log_is_the_last() {
    for bytes in (0..40_000).step_by(211) {
        let machine = Machine::new(|options| options.log.durability = Durability::Fsync);
        machine.faults.crash_after(bytes);
        // In this order: the log may note its end at any moment.
        let before = machine.faults.bytes();
        let mut committed: Vec<Index> = Vec::new();
        for n in 0..60u32 {
            match machine.put(&format!("key:{n}"), &[n as u8; 600]) {
                Ok(done) => committed.extend(done.index),
                Err(_) => break,
            }
            machine.store.log().write();
            if n % 7 == 0 {
                drop(machine.store.log().sync_through(machine.store.log().last()));
            }
        }
        let durable = machine.store.log().durable();
        assert!(machine.faults.bytes() - before <= bytes);
        machine.base.kill();
        machine.process.kill();
        machine.disk.crash(bytes);
        let machine = {
            drop(machine.store.close());
            Machine::start(machine.disk.clone(), machine.rows.clone(), machine.change)
        };
        let found = (0..60).take_while(|n| machine.get(&format!("key:{n}")).is_some()).count();
        let promised = committed.iter().filter(|index| **index <= durable).count();
        assert!(found >= promised, "after {bytes} bytes: {found} of {promised}");
        assert_eq!(machine.store.counter(0, Counter::Keys), found as i64, "after {bytes} bytes");
        assert!((found..60).all(|n| machine.get(&format!("key:{n}")).is_none()), "what survives is a prefix");
    }
}

#[test]
fn an_overwrite_of_a_key_without_reading_it_needs_no_disk_where_that_is_allowed() {
    let machine = Machine::new(|options| options.blind_set = true);
    machine.put("cold", &PLAIN).expect("room");
    machine.store.flush_now().expect("flushes");
    let machine = machine.kill();
    machine.base.set_cold(true);
    let mut txn = machine.store.begin(TxnBuffers::default(), call(Mode::Memory));
    assert_eq!(txn.presence(&txn.key(b"cold")), Ok(Presence::Absent), "an estimate");
    machine.store.set_blind_set(false);
    assert_eq!(txn.presence(&txn.key(b"cold")), Err(Stop::WouldBlock));
}
