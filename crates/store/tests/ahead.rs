//! Rows that a transaction has written ahead are garbage unless it commits, and are taken out of the base then, however
//! the transaction ended.

mod machine;

use haypile_store::base::{Base, Direction, Step, Tier};
use haypile_store::{Counter, Key, MemoryBase, ObjectId, Refusal, Slot, Space, Stop, Txn, row};
use machine::{Machine, usual};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Rows whose room is worth a compaction when they are garbage.
const ROWS: u32 = 160;

fn element(space: Space, slot: Slot, id: ObjectId, n: u32) -> row::RowKey {
    row::data_row(space, slot, id, &n.to_be_bytes())
}

/// Writes an object of several megabytes, most of it ahead.
fn write_object(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<ObjectId, Stop> {
    let id = txn.new_object()?;
    for n in 0..ROWS {
        txn.put_row(&element(key.space, key.slot, id, n), &[&[n as u8; 64 << 10]])?;
    }
    Ok(id)
}

fn own(txn: &mut Txn<'_>, key: &Key<'_>, id: ObjectId) {
    txn.put_row(&row::owner_row(key.space, key.slot, id), &[key.name]).expect("small");
    txn.put_meta(key, &[b"object"]).expect("small");
    txn.count(key.space, Counter::Keys, 1);
}

fn rows(base: &MemoryBase, from: &[u8], until: &[u8]) -> usize {
    let mut cursor = base.scan(from, until, Direction::Forward, Tier::Disk).expect("reads");
    let mut count = 0;
    while let Step::Row { .. } = cursor.step().expect("reads") {
        count += 1;
    }
    count
}

/// Returns how many rows of objects, and how many intents, the base has.
fn in_base(machine: &Machine) -> (usize, usize) {
    let (from, until) = row::family_range(row::Family::Data, Space(0));
    let intents = row::system_row(row::SystemScope::Replicated, b"ahead/");
    let end = row::system_row(row::SystemScope::Replicated, b"ahead0");
    (rows(&machine.rows, &from, &until), rows(&machine.rows, &intents, &end))
}

/// Waits until the base has so many rows of objects, and no intents.
#[track_caller]
fn wait_for(machine: &Machine, expected: usize) {
    let begun = Instant::now();
    loop {
        machine.store.flush_now().expect("nothing is broken");
        if in_base(machine) == (expected, 0) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}, not {expected}", in_base(machine));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_commit_keeps_what_was_written_ahead_and_any_other_end_does_not() {
    let machine = Machine::new(usual);
    for commits in [true, false] {
        let mut txn = machine.begin();
        let key = txn.key(b"k");
        let id = write_object(&mut txn, &key).expect("room");
        machine.store.flush_now().expect("nothing is broken");
        let (data, intents) = in_base(&machine);
        assert!(data > ROWS as usize / 2 && intents == 1, "{data} {intents}");
        own(&mut txn, &key, id);
        if commits {
            txn.commit().expect("room");
        }
        drop(txn);
        wait_for(&machine, ROWS as usize);
    }
}

#[test]
fn what_a_command_that_was_undone_has_written_ahead_goes_when_its_block_has_ended() {
    let machine = Machine::new(usual);
    let mut txn = machine.begin();
    let (kept, undone) = (txn.key(b"kept"), txn.key(b"undone"));
    let id = write_object(&mut txn, &kept).expect("room");
    own(&mut txn, &kept, id);
    let savepoint = txn.savepoint();
    let id = write_object(&mut txn, &undone).expect("room");
    own(&mut txn, &undone, id);
    txn.rollback(savepoint);
    machine.store.flush_now().expect("nothing is broken");
    assert!(in_base(&machine).0 > ROWS as usize);
    txn.commit().expect("room");
    drop(txn);
    wait_for(&machine, ROWS as usize);
    assert_eq!((machine.get("kept").as_deref(), machine.get("undone")), (Some(&b"object"[..]), None));
}

#[test]
fn a_write_ahead_that_is_refused_leaves_nothing() {
    static FREE: AtomicU64 = AtomicU64::new(u64::MAX);
    let machine = Machine::new(|options| {
        options.disk_free_min_bytes = 1 << 20;
        options.disk_free = haypile_store::DiskFree(std::sync::Arc::new(|| Some(FREE.load(Ordering::Relaxed))));
    });
    let mut txn = machine.begin();
    let key = txn.key(b"k");
    let id = txn.new_object().expect("room");
    let mut n = 0;
    let refused = loop {
        if n == ROWS {
            FREE.store(0, Ordering::Relaxed);
        }
        match txn.put_row(&element(key.space, key.slot, id, n), &[&[1; 64 << 10]]) {
            Ok(()) => n += 1,
            Err(stop) => break stop,
        }
        assert!(n < 100_000, "the disk is full");
    };
    assert!(matches!(&refused, Stop::Refused(Refusal::DiskShort { .. })), "{refused:?}");
    drop(txn);
    FREE.store(u64::MAX, Ordering::Relaxed);
    wait_for(&machine, 0);
}

#[test]
fn what_was_written_ahead_before_a_crash_is_found_whether_or_not_it_is_in_the_base() {
    for flushed in [false, true] {
        let machine = Machine::new(usual);
        let mut txn = machine.begin();
        let (kept, lost) = (txn.key(b"kept"), txn.key(b"lost"));
        let id = write_object(&mut txn, &kept).expect("room");
        own(&mut txn, &kept, id);
        txn.commit().expect("room");
        drop(txn);
        let mut txn = machine.begin();
        write_object(&mut txn, &lost).expect("room");
        if flushed {
            machine.store.flush_now().expect("nothing is broken");
            assert!(in_base(&machine).0 > ROWS as usize);
        }
        machine.store.log().sync_through(machine.store.log().last()).expect("room");
        machine.die();
        drop(txn);
        let machine = machine.kill();
        wait_for(&machine, ROWS as usize);
        assert_eq!(machine.get("kept").as_deref(), Some(&b"object"[..]));
    }
}
