//! `Txn::is_dense` tells of objects in each generation whether ordered reads pass over tombstones.

mod machine;

use haypile_store::{ObjectId, Slot, Space, row};
use machine::Machine;

fn row_of(id: ObjectId, element: u16) -> row::RowKey {
    row::data_row(Space(0), Slot(1), id, &element.to_be_bytes())
}

/// Makes an object of ten rows.
fn object(machine: &Machine) -> ObjectId {
    let id = machine.begin().new_object().expect("room");
    let mut txn = machine.begin();
    (0..10).for_each(|element| txn.put_row(&row_of(id, element), &[b"v"]).expect("small"));
    txn.commit().expect("room");
    id
}

fn is_dense(machine: &Machine, id: ObjectId) -> bool {
    machine.begin().is_dense(&row_of(id, 0))
}

#[test]
fn an_object_is_dense_while_one_generation_has_all_of_its_rows() {
    let machine = Machine::new(|options| options.memtable_bytes = 1 << 20);
    let old = object(&machine);
    assert!(is_dense(&machine, old));
    let mut txn = machine.begin();
    assert!(txn.is_dense(&row_of(old, 0)));
    txn.delete_row(&row_of(old, 0)).expect("small");
    assert!(!txn.is_dense(&row_of(old, 0)), "the transaction's own delete is passed over");
    txn.commit().expect("room");
    assert!(is_dense(&machine, old), "nothing is left of the row");

    machine.store.flush_now().expect("flushes");
    assert!(!is_dense(&machine, old), "a row of the flushed generation is hidden by a tombstone");
    let new = object(&machine);
    assert!(is_dense(&machine, new), "the flushed generation, still in sight, has none of its rows");
    // The flushed generation leaves the memtable with the next freeze.
    machine.store.flush_now().expect("flushes");
    assert!(
        !is_dense(&machine, old) && !is_dense(&machine, new),
        "the base has rows of the one, a generation of the other"
    );
}
