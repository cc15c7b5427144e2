//! Facts about one node make no record: opens, clean stops, the hash seed, and that nothing is left of a dead space.

mod machine;

use haypile_log::Index;
use haypile_store::base::{Base, BaseError, Direction, Lookup, Step, Tier};
use haypile_store::testing::wait_for_reclaims;
use haypile_store::{Space, row};
use machine::{Machine, usual};

fn figure(machine: &Machine, name: &str) -> u64 {
    machine.store.figures().into_iter().find(|(_, other, _)| *other == name).expect("a figure").2
}

fn last(machine: &Machine) -> Index {
    machine.store.log().last()
}

/// Returns whether the base remembers space 0 as dead.
fn is_remembered(machine: &Machine) -> bool {
    let row = row::system_row(row::SystemScope::Local, &[&b"dead/"[..], &[0; 4]].concat());
    matches!(machine.rows.get(&row, Tier::Disk), Ok(Lookup::Row(_)))
}

fn has_keys(machine: &Machine, space: Space) -> bool {
    let (from, until) = row::family_range(row::Family::Meta, space);
    let mut cursor = machine.rows.scan(&from, &until, Direction::Forward, Tier::Disk).expect("a memory base reads");
    matches!(cursor.step(), Ok(Step::Row { .. }))
}

/// Returns a machine whose base has keys of space 0, which has just died and is reclaimed, and the last record.
fn with_reclaimed_space() -> (Machine, Index) {
    let machine = Machine::new(usual);
    machine.put("k", b"v").expect("room");
    machine.store.flush_now().expect("nothing is broken");
    let mut txn = machine.begin();
    txn.flush_database(0).expect("small");
    txn.commit().expect("room");
    drop(txn);
    let index = last(&machine);
    machine.store.flush_now().expect("nothing is broken");
    wait_for_reclaims(&machine.store);
    (machine, index)
}

#[test]
fn opens_and_stops_of_any_kind_make_no_record() {
    let machine = Machine::new(usual);
    assert_eq!(last(&machine), Index(0), "a new store");
    let seed = machine.store.hash_seed();
    let mut machine = machine.kill();
    assert_eq!((last(&machine), machine.store.hash_seed()), (Index(0), seed));
    for n in 1..4 {
        machine.put("k", b"v").expect("room");
        assert_eq!(last(&machine), Index(n), "writes alone take indexes");
        match n {
            1 => machine.store.close().expect("nothing is broken"),
            2 => machine.store.log().sync_through(Index(n)).expect("nothing is broken"),
            _ => machine.store.close_without_flush().expect("nothing is broken"),
        }
        machine = machine.kill();
        assert_eq!((last(&machine), machine.store.hash_seed()), (Index(n), seed));
    }
}

#[test]
fn the_seed_is_in_the_base_before_the_first_record() {
    let machine = Machine::new(|options| options.hash_seed = 1);
    machine.put("k", b"v").expect("room");
    machine.store.log().sync_through(Index(1)).expect("nothing is broken");
    machine.die();
    let change = |options: &mut haypile_store::StoreOptions| options.hash_seed = 2;
    let machine = Machine::start(machine.disk.clone(), machine.rows.clone(), change);
    assert_eq!(machine.get("k").as_deref(), Some(&b"v"[..]), "its place is that of the first seed");
}

#[test]
fn a_space_that_is_reclaimed_is_forgotten_without_a_record() {
    let (machine, index) = with_reclaimed_space();
    assert_eq!((last(&machine), figure(&machine, "dead_spaces")), (index, 0));
    assert!(!has_keys(&machine, Space(0)) && is_remembered(&machine), "until the next flush");
    machine.put("other", b"v").expect("room");
    machine.base.fail_next_ingest(BaseError::Failed("once".into()));
    machine.store.flush_now().expect_err("it fails once");
    assert!(is_remembered(&machine));
    machine.store.flush_now().expect("nothing is broken");
    assert!(!is_remembered(&machine));
    let machine = machine.kill();
    assert_eq!((last(&machine), figure(&machine, "dead_spaces")), (index.next(), 0));
    assert_eq!(machine.get("other").as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_crash_before_the_base_forgets_a_space_has_it_reclaimed_again() {
    let (machine, _) = with_reclaimed_space();
    let machine = machine.kill();
    assert_eq!(figure(&machine, "dead_spaces"), 1, "the base remembers it yet");
    for flush in 0..2 {
        machine.put(&format!("k{flush}"), b"v").expect("room");
        machine.store.flush_now().expect("nothing is broken");
        wait_for_reclaims(&machine.store);
    }
    assert!(!is_remembered(&machine));
    assert_eq!(figure(&machine, "dead_spaces"), 0);
}
