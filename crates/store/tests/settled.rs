//! The records that say which objects are decided: the bound below which any node's compaction drops objects without an
//! owner.

mod machine;

use haypile_store::base::{Base, Lookup, Tier};
use haypile_store::{Counter, Key, ObjectId, Slot, Space, Txn, row};
use machine::{Machine, usual};

/// Returns the number that a system row of the base begins with; 0 where there is none.
fn number(machine: &Machine, scope: row::SystemScope, name: &[u8]) -> u64 {
    match machine.rows.get(&row::system_row(scope, name), Tier::Disk).expect("a memory base reads") {
        Lookup::Row(value) => u64::from_be_bytes(value[..8].try_into().expect("it begins with a number")),
        Lookup::Absent | Lookup::WouldBlock => 0,
    }
}

fn settled(machine: &Machine) -> u64 {
    number(machine, row::SystemScope::Replicated, b"objects-settled")
}

/// Writes an object of `rows` rows.
fn write_object(txn: &mut Txn<'_>, key: &Key<'_>, rows: u32) -> ObjectId {
    let id = txn.new_object().expect("ids can be leased");
    for n in 0..rows {
        let row = row::data_row(key.space, key.slot, id, &n.to_be_bytes());
        txn.put_row(&row, &[&[n as u8; 64 << 10]]).expect("room");
    }
    txn.put_row(&row::owner_row(key.space, key.slot, id), &[key.name]).expect("small");
    txn.put_meta(key, &[b"object"]).expect("small");
    txn.count(key.space, Counter::Keys, 1);
    id
}

fn key(name: &[u8]) -> Key<'_> {
    Key { space: Space(0), slot: Slot(1), hash: 7, name }
}

#[test]
fn the_bound_stays_below_what_runs_and_rises_when_it_has_ended() {
    let machine = Machine::new(usual);
    let mut running = machine.begin();
    let first = write_object(&mut running, &key(b"running"), 60);
    let mut txn = machine.begin();
    let second = write_object(&mut txn, &key(b"done"), 1);
    txn.commit().expect("room");
    drop(txn);
    machine.store.flush_now().expect("nothing is broken");
    assert!(settled(&machine) <= first.0, "the first transaction still runs: {}", settled(&machine));
    running.commit().expect("room");
    machine.put("between", b"its commit is no end yet").expect("room");
    machine.store.flush_now().expect("nothing is broken");
    assert!(settled(&machine) <= first.0, "nor is it over");
    drop(running);
    machine.put("after", b"something to flush").expect("room");
    machine.store.flush_now().expect("nothing is broken");
    assert_eq!(settled(&machine), second.0 + 1);
    // A start leases anew: all ids of the old lease are decided.
    let machine = machine.kill();
    machine.put("again", b"something to flush").expect("room");
    machine.store.flush_now().expect("nothing is broken");
    assert_eq!(settled(&machine), number(&machine, row::SystemScope::Replicated, b"next-object"));
}

#[test]
fn a_flush_without_new_objects_and_a_clean_stop_make_no_record() {
    let machine = Machine::new(usual);
    machine.put("k", b"v").expect("room");
    let last = machine.store.log().last();
    machine.store.flush_now().expect("nothing is broken");
    assert_eq!(machine.store.log().last(), last, "there is no object to say anything of");
    let mut txn = machine.begin();
    write_object(&mut txn, &key(b"object"), 1);
    txn.commit().expect("room");
    drop(txn);
    let last = machine.store.log().last();
    machine.store.close().expect("nothing is wrong");
    assert_eq!(number(&machine, row::SystemScope::Local, b"applied"), last.0, "the last flush ends at the last write");
}
