//! A member of a consensus group opens on its base alone: the records behind it come when the group has agreed on them.

mod machine;

use haypile_log::Index;
use haypile_store::base::BaseError;
use haypile_store::testing::node::{NoReaders, rows_of};
use haypile_store::testing::wait_for_reclaims;
use haypile_store::{Space, row};
use machine::Machine;
use std::time::Duration;

fn figure(machine: &Machine, name: &str) -> u64 {
    machine.store.figures().into_iter().find(|(_, other, _)| *other == name).expect("a figure").2
}

/// Has the group agree on all records so far.
fn agree(machine: &Machine) {
    let log = machine.store.log();
    log.write();
    log.confirm(log.last());
}

/// A member whose base has, but for the rows of a database that was emptied since, all through a record before that;
/// and the index of a record between the two. It was killed then.
fn member_with_a_late_flush() -> (Machine, Index) {
    let machine = Machine::new(|options| (options.in_group, options.log.follows) = (true, true));
    machine.store.lead_group(1, 1);
    machine.put("k", b"abc").expect("room");
    agree(&machine);
    machine.base.set_fault(Some(BaseError::Full("injected".into())));
    machine.store.flush_now().expect_err("the base is full");
    let mut txn = machine.begin();
    let meta = row::meta_row(&txn.key(b"k"));
    txn.splice_row(&meta, 1, 1, b"xyz").expect("small");
    let spliced = txn.commit().expect("room").index.expect("a record");
    drop(txn);
    let mut txn = machine.begin();
    txn.flush_database(0).expect("small");
    txn.commit().expect("room");
    drop(txn);
    agree(&machine);
    machine.base.set_fault(None);
    while figure(&machine, "memtable_frozen_bytes") > 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let machine = machine.kill();
    machine.store.log().confirm(machine.store.log().last());
    assert!(machine.store.applied_through() < spliced && spliced < machine.store.log().last());
    (machine, spliced)
}

#[test]
fn records_on_a_space_that_the_base_knows_as_dead_are_passed_over() {
    let (machine, _) = member_with_a_late_flush();
    let last = machine.store.log().last();
    let applied = machine.store.apply_through(&mut None, last, &NoReaders);
    assert_eq!(applied, Ok(true), "the splice is of a row that the base need not have had");
    assert_eq!(machine.get("k"), None);
    assert_ne!(machine.store.key(0, b"k").space, Space(0), "the database has another space now");
}

#[test]
fn a_space_is_not_forgotten_before_the_record_that_ends_its_database() {
    let (machine, spliced) = member_with_a_late_flush();
    assert_eq!(machine.store.apply_through(&mut None, spliced, &NoReaders), Ok(true));
    machine.store.flush_now().expect("there is room now");
    wait_for_reclaims(&machine.store);
    let last = machine.store.log().last();
    assert_eq!(machine.store.apply_through(&mut None, last, &NoReaders), Ok(true));
    machine.store.flush_now().expect("there is room");
    wait_for_reclaims(&machine.store);
    assert_eq!(machine.get("k"), None);
    let row = row::meta_row(&haypile_store::Key { space: Space(0), ..machine.store.key(0, b"k") });
    assert!(rows_of(&*machine.rows).iter().all(|(key, _)| key[..] != row[..]), "the space was emptied");
}
