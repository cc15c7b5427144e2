//! A walk: keys that are looked up in the order of their rows come from one ordered read of the base.

mod machine;

use haypile_store::{Mode, TxnBuffers, row};
use machine::{Machine, call};

const KEYS: usize = 6000;

/// Makes keys that only the base has, and returns the names in the order of their rows.
fn filled() -> (Machine, Vec<String>) {
    let machine = Machine::new(|options| {
        // Without it the presence set would know most keys without the base.
        options.presence_bytes = 0;
        options.memtable_bytes = 4 << 20;
    });
    let mut names: Vec<String> = (0..KEYS).map(|number| format!("key:{number}")).collect();
    for names in names.chunks(1000) {
        let mut txn = machine.begin();
        for name in names {
            let key = txn.key(name.as_bytes());
            txn.put_meta(&key, &[name.as_bytes()]).expect("small");
        }
        txn.commit().expect("room");
    }
    flush(&machine);
    names.sort_by_key(|name| row::meta_row(&machine.store.key(0, name.as_bytes())));
    (machine, names)
}

/// Flushes until no generation has the rows that were written before.
fn flush(machine: &Machine) {
    for number in 0..2 {
        machine.store.flush_now().expect("flushes");
        machine.put(&format!("another {number}"), b"v").expect("room");
    }
    machine.store.flush_now().expect("flushes");
}

/// Looks keys up in a walk, and one that is missing behind each, and returns the lookups and the views that it took.
fn walk(machine: &Machine, names: &[&String], mut before: impl FnMut(usize)) -> (u64, u64) {
    let (gets, views) = machine.base.reads();
    let mut txn = machine.begin();
    let last = names.last().expect("there are some");
    txn.begin_walk(&txn.key(last.as_bytes()));
    for (at, name) in names.iter().enumerate() {
        before(at);
        let key = txn.key(name.as_bytes());
        let found = txn.meta(&key).expect("reads go on");
        let expected = if name.starts_with("none") { None } else { Some(name.as_bytes()) };
        assert_eq!(found.as_deref(), expected, "{name}");
    }
    txn.end_walk();
    let after = machine.base.reads();
    (after.0 - gets, after.1 - views)
}

#[test]
fn rows_that_lie_close_together_come_from_one_read_and_others_are_looked_up() {
    let (machine, names) = filled();
    let mut all = names.clone();
    all.extend((0..KEYS).map(|number| format!("none:{number}")));
    all.sort_by_key(|name| row::meta_row(&machine.store.key(0, name.as_bytes())));
    // Between two that exist lies one that does not, or several.
    assert_eq!(walk(&machine, &all.iter().collect::<Vec<_>>(), |_| ()), (0, 1));
    let some: Vec<&String> = names.iter().step_by(5).collect();
    assert_eq!(walk(&machine, &some, |_| ()), (0, 1));
    let few: Vec<&String> = names.iter().step_by(40).collect();
    let (gets, views) = walk(&machine, &few, |_| ());
    assert!(gets > few.len() as u64 / 2 && views <= 4, "{gets} lookups and {views} reads of {} rows", few.len());
    // Neighbours may come in the wrong order, as where the order is made of a part of their hashes.
    let mut turned: Vec<&String> = names.iter().collect();
    turned[10..].chunks_mut(100).for_each(|two| two[..2].reverse());
    assert_eq!(walk(&machine, &turned, |_| ()), (KEYS as u64 / 100, 1));
}

#[test]
fn a_walk_reads_anew_when_a_generation_has_left_the_memtable() {
    let (machine, names) = filled();
    let (changed, at) = (names[5000].clone(), 4000);
    machine.put(&changed, b"older").expect("room");
    flush(&machine);
    let all: Vec<&String> = names.iter().collect();
    let reads = walk(&machine, &all, |now| {
        if now == at {
            // The row that the walk has in sight is not the last one any more.
            machine.put(&changed, changed.as_bytes()).expect("room");
            flush(&machine);
        }
    });
    assert_eq!(reads, (0, 2));
}

#[test]
fn a_walk_leaves_no_rows_in_the_row_cache_and_takes_those_that_are_there() {
    let (machine, names) = filled();
    let figure = |name| machine.store.figures().into_iter().find(|(_, other, _)| *other == name).expect("a figure").2;
    let all: Vec<&String> = names.iter().collect();
    assert_eq!(machine.get(&names[77]).as_deref(), Some(names[77].as_bytes()));
    let entries = figure("row_cache_entries");
    assert_eq!(walk(&machine, &all, |_| ()), (0, 1));
    assert_eq!(figure("row_cache_entries"), entries);
    let before = machine.base.reads();
    machine.get(&names[77]);
    assert_eq!(machine.base.reads(), before, "it is still cached");
}

#[test]
fn a_run_without_its_locks_does_not_walk() {
    let (machine, names) = filled();
    let before = machine.base.reads();
    let mut txn = machine.store.begin(TxnBuffers::default(), call(Mode::Load));
    txn.begin_walk(&txn.key(names[KEYS - 1].as_bytes()));
    for name in &names[..100] {
        let key = txn.key(name.as_bytes());
        assert_eq!(txn.meta(&key).expect("reads go on").as_deref(), Some(name.as_bytes()));
    }
    assert_eq!(machine.base.reads(), (before.0 + 100, before.1));
}
