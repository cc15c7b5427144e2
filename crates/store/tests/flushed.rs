//! Rows that a flush has brought to the base are read from the memtable as long as that has them too: the base is not
//! asked. And records are in the log before a flush brings their rows to the base.

mod machine;

use haypile_log::Durability;
use haypile_store::base::Direction;
use haypile_store::{Mode, ObjectId, Slot, Space, Stop, TxnBuffers, row};
use machine::{Machine, call};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

const ROWS: u32 = 300;
const MEMTABLE_BYTES: u64 = 256 << 10;

fn object_with_rows(machine: &Machine) -> ObjectId {
    let mut txn = machine.begin();
    let id = txn.new_object().expect("room");
    for element in 0..ROWS {
        txn.put_row(&row::data_row(Space(0), Slot(1), id, &element.to_be_bytes()), &[b"v"]).expect("small");
    }
    txn.commit().expect("room");
    id
}

/// Returns how many rows an event loop finds, which must not wait for the base.
fn rows_in_memory(machine: &Machine, id: ObjectId) -> Result<u32, Stop> {
    let (from, until) = row::object_range(row::Family::Data, Space(0), Slot(1), id);
    let mut txn = machine.store.begin(TxnBuffers::default(), call(Mode::Memory));
    let mut rows = 0;
    txn.visit(&from, &until, Direction::Forward, usize::MAX, |_, _| {
        rows += 1;
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

/// Fills a generation until it is frozen, and waits for its flush.
fn fill_and_flush(machine: &Machine) {
    let figure = |name| machine.store.figures().into_iter().find(|(_, other, _)| *other == name).expect("a figure").2;
    let (before, started) = (figure("flushes_completed"), Instant::now());
    // The loop stops as soon as the generation is full: one that is far larger than its size is not kept.
    let mut is_full = false;
    while figure("flushes_completed") == before {
        is_full |= figure("memtable_active_bytes") > MEMTABLE_BYTES || figure("memtable_frozen_bytes") > 0;
        if !is_full {
            machine.put(&format!("fill:{:?}", started.elapsed()), &[0; 4000]).expect("room");
        }
        assert!(started.elapsed() < Duration::from_secs(30), "a full generation is flushed");
    }
}

#[test]
fn an_object_of_the_generation_that_was_flushed_last_needs_no_base() {
    let machine = Machine::new(|options| options.memtable_bytes = MEMTABLE_BYTES);
    let first = object_with_rows(&machine);
    fill_and_flush(&machine);
    machine.base.set_cold(true);
    assert_eq!(rows_in_memory(&machine, first).expect("in memory"), ROWS);
    // A deletion hides what the base and the generation have.
    let mut txn = machine.begin();
    txn.delete_row(&row::data_row(Space(0), Slot(1), first, &7u32.to_be_bytes())).expect("small");
    txn.commit().expect("room");
    drop(txn);
    assert_eq!(rows_in_memory(&machine, first).expect("in memory"), ROWS - 1);
    let second = object_with_rows(&machine);
    fill_and_flush(&machine);
    assert_eq!(rows_in_memory(&machine, second).expect("in memory"), ROWS);
    assert!(matches!(rows_in_memory(&machine, first), Err(Stop::WouldBlock)), "most of it is only in the base");
    machine.base.set_cold(false);
    assert_eq!(rows_in_memory(&machine, first).expect("the base answers"), ROWS - 1);
}

/// Checks that the base never holds records that the log may lose: after a power loss it would be ahead of the log.
#[test]
fn the_log_is_on_the_disk_before_the_base_takes_what_it_says() {
    for durability in [Durability::Os, Durability::Fsync] {
        let mut machine = Machine::new(|options| {
            // Nothing else syncs.
            options.log.sync_interval_ms = 3_600_000;
        });
        machine.store.log().set_durability(durability);
        for round in 0..3 {
            let written = machine.put(&format!("k{round}"), b"v").expect("room").index.expect("a record");
            machine.base.hold_ingests(true);
            std::thread::scope(|scope| {
                let flush = scope.spawn(|| machine.store.flush_now());
                machine.base.wait_for_held_ingest();
                let synced = machine.store.log().synced();
                machine.base.hold_ingests(false);
                flush.join().expect("no panic").expect("nothing is broken");
                assert!(synced >= written, "{durability:?}: synced through {synced}, of {written}");
            });
        }
        machine = machine.kill();
        assert!(machine.get("k2").is_some());
    }
}
