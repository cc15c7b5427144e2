//! Room is given back, and dead rows are not forgotten before it is.

mod machine;

use haypile_store::base::Base;
use haypile_store::{Key, ObjectId, Slot, Space, row};
use machine::{Machine, usual};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_space_is_remembered_as_dead_until_its_rows_are_gone() {
    let machine = Machine::new(usual);
    let figure = |name| machine.store.figures().into_iter().find(|(_, other, _)| *other == name).expect("a figure").2;
    machine.put("k", b"v").expect("room");
    machine.store.flush_now().expect("flushes");
    // The compaction fails without saying so.
    machine.base.reclaim_nothing(true);
    let mut txn = machine.begin();
    txn.flush_database(0).expect("small");
    txn.commit().expect("room");
    drop(txn);
    machine.store.flush_now().expect("flushes");
    wait_until("the job was tried", || figure("reclaim_jobs") == 1);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!((figure("dead_spaces"), figure("reclaimed_spaces")), (1, 0));
    machine.base.reclaim_nothing(false);
    wait_until("it was tried again", || figure("dead_spaces") == 0 && figure("reclaimed_spaces") == 1);
}

/// Writes six objects of a MiB each far apart from each other, deletes them, and has the base learn both. Returns the
/// first one.
fn write_and_delete(machine: &Machine, first_slot: u16) -> (Slot, ObjectId) {
    let slots: Vec<Slot> = (0..6).map(|n| Slot(first_slot + n * 500)).collect();
    let ids: Vec<ObjectId> = slots
        .iter()
        .map(|slot| {
            let key = Key { space: Space(0), slot: *slot, hash: 1, name: b"k" };
            let mut txn = machine.begin();
            let id = txn.new_object().expect("room");
            txn.put_row(&row::owner_row(key.space, key.slot, id), &[key.name]).expect("small");
            for element in 0..64_u8 {
                let row = row::data_row(key.space, key.slot, id, &[element]);
                txn.put_row(&row, &[&[0; 16 << 10]]).expect("small");
            }
            txn.commit().expect("room");
            id
        })
        .collect();
    machine.store.flush_now().expect("flushes");
    for (slot, id) in slots.iter().zip(&ids) {
        let mut txn = machine.begin();
        txn.delete_row(&row::owner_row(Space(0), *slot, *id)).expect("small");
        txn.commit().expect("room");
    }
    machine.store.flush_now().expect("flushes");
    (slots[0], ids[0])
}

#[test]
fn dead_objects_that_other_compactions_have_dropped_are_not_compacted_for() {
    let machine = Machine::new(|options| options.memtable_bytes = 64 << 20);
    let figure = |name| machine.store.figures().into_iter().find(|(_, other, _)| *other == name).expect("a figure").2;
    let has_rows = |(slot, id): (Slot, ObjectId)| {
        let (from, until) = row::object_range(row::Family::Data, Space(0), slot, id);
        machine.rows.bytes_in(&from, &until) > 0
    };
    let first = write_and_delete(&machine, 0);
    machine.rows.reclaim_range(b"", b"\xff").expect("a compaction");
    assert!(!has_rows(first));
    let second = write_and_delete(&machine, 4_000);
    wait_until("the sample was looked at", || figure("dead_object_bytes") < 7 * MIB);
    assert!(figure("dead_object_bytes") > 5 * MIB, "what is still there counts");
    assert_eq!(figure("reclaimed_ranges"), 0);
    assert!(has_rows(second), "6 MiB are not worth a compaction");
    let third = write_and_delete(&machine, 8_000);
    wait_until("12 MiB are", || figure("reclaimed_ranges") == 2);
    assert!(!has_rows(second) && !has_rows(third));
    wait_until("nothing is left", || figure("dead_object_bytes") == 0 && figure("reclaim_jobs") == 0);
}
