//! Rows that are drawn out of what the memtable and the base have of an object: each as likely as the others, as it is
//! now, and none that is gone.

mod machine;

use haypile_store::{Drawn, ObjectId, Slot, Space, row};
use machine::Machine;
use std::collections::BTreeMap;

const DRAWS: u64 = 30_000;

fn row_of(id: ObjectId, element: u16) -> row::RowKey {
    row::data_row(Space(0), Slot(1), id, &element.to_be_bytes())
}

fn put(machine: &Machine, id: ObjectId, elements: std::ops::Range<u16>, value: &[u8]) {
    let mut txn = machine.begin();
    elements.for_each(|element| txn.put_row(&row_of(id, element), &[value]).expect("small"));
    txn.commit().expect("room");
}

/// Draws a row, and returns its element and value.
fn draw(machine: &Machine, id: ObjectId, count: u64, random: &mut u64) -> (Drawn, Option<(u16, Vec<u8>)>) {
    let (from, until) = row::object_range(row::Family::Data, Space(0), Slot(1), id);
    let mut found = None;
    let next = || {
        *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*random ^ (*random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) ^ mixed
    };
    let mut txn = machine.begin();
    let drawn = txn
        .draw(&from, &until, count, next, |row, value| {
            let element = row.last_chunk().expect("an element");
            found = Some((u16::from_be_bytes(*element), value.to_vec()));
        })
        .expect("in memory");
    (drawn, found)
}

#[test]
fn each_row_is_as_likely_as_the_others_wherever_it_lies() {
    let machine = Machine::new(|options| (options.memtable_bytes, options.row_cache_bytes) = (1 << 20, 8 << 20));
    let id = machine.begin().new_object().expect("room");
    put(&machine, id, 0..300, b"old");
    machine.store.flush_now().expect("flushes");
    // The generation leaves the memtable with the next freeze.
    machine.put("other", b"v").expect("room");
    machine.store.flush_now().expect("flushes");
    let mut txn = machine.begin();
    (0..50).for_each(|element| txn.delete_row(&row_of(id, element)).expect("small"));
    txn.commit().expect("room");
    put(&machine, id, 50..100, b"new");
    put(&machine, id, 300..350, b"new");

    let (from, until) = row::object_range(row::Family::Data, Space(0), Slot(1), id);
    assert_eq!(machine.begin().scan(&from, &until, 1000).expect("the base is read").len(), 300);
    let (mut random, mut loads) = (7, 0);
    while draw(&machine, id, 300, &mut random).0 == Drawn::No {
        loads += 1;
        assert!(loads < 10, "each draw keeps some more rows of the base");
    }
    assert!(loads > 1);
    let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
    for _ in 0..DRAWS {
        let (drawn, found) = draw(&machine, id, 300, &mut random);
        let (element, value) = found.expect("most places have a row");
        assert_eq!(drawn, Drawn::Row, "most rows live");
        let is_new = !(100..300).contains(&element);
        assert_eq!(value, if is_new { b"new" } else { b"old" }, "{element}");
        *counts.entry(element).or_default() += 1;
    }
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), (50..350).collect::<Vec<_>>());
    // 100 each; six standard deviations are 60.
    assert!(counts.values().all(|count| (40..160).contains(count)), "{counts:?}");
    let parts = [50..100, 100..300, 300..350].map(|part| part.map(|element| counts[&element]).sum::<u64>());
    assert!((4_500..5_500).contains(&parts[0]) && (4_500..5_500).contains(&parts[2]), "{parts:?}");

    let mut txn = machine.begin();
    (70..350).for_each(|element| txn.delete_row(&row_of(id, element)).expect("small"));
    txn.commit().expect("room");
    let ends: Vec<(Drawn, bool)> = (0..200)
        .map(|_| draw(&machine, id, 20, &mut random))
        .map(|(drawn, found)| (drawn, found.is_none_or(|(element, _)| (50..70).contains(&element))))
        .collect();
    assert!(ends.iter().all(|(_, is_live)| *is_live), "{ends:?}");
}
