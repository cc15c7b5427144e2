//! Room is given back, and dead rows are not forgotten before it is.

mod machine;

use machine::{Machine, usual};
use std::time::{Duration, Instant};

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
