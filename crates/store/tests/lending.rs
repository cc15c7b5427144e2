//! The row cache has what the memtable does not use, gives it back, and takes over what is still read.

mod machine;

use haypile_store::{Call, Mode, Stop, StoreOptions, TxnBuffers};
use machine::{Machine, call};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

fn lends(options: &mut StoreOptions) {
    (options.memtable_bytes, options.row_cache_bytes, options.lends) = (MIB, MIB, true);
}

fn figure(machine: &Machine, name: &str) -> u64 {
    machine.store.figures().into_iter().find(|(_, other, _)| *other == name).expect("a figure").2
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A call of now: stamps are compared with the clock.
fn call_now(mode: Mode) -> Call<'static> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is later than 1970");
    Call { now_ms: now.as_millis() as u64, ..call(mode) }
}

fn put(machine: &Machine, name: &str, value: &[u8]) {
    let mut txn = machine.store.begin(TxnBuffers::default(), call_now(Mode::Disk));
    let key = txn.key(name.as_bytes());
    txn.put_meta(&key, &[value]).expect("room");
    txn.commit().expect("room");
}

/// Returns a value that an event loop finds, which must not wait for the base.
fn in_memory(machine: &Machine, name: &str) -> Result<Option<Vec<u8>>, Stop> {
    let mut txn = machine.store.begin(TxnBuffers::default(), call_now(Mode::Memory));
    let key = txn.key(name.as_bytes());
    Ok(txn.use_meta(&key)?.map(|value| value.to_vec()))
}

/// Fills generations until so many more were flushed.
fn flush(machine: &Machine, times: u64) {
    let until = figure(machine, "flushes_completed") + times;
    let mut number = 0;
    wait_until("full generations are flushed", || {
        if figure(machine, "memtable_frozen_bytes") == 0 && figure(machine, "memtable_active_bytes") <= MIB {
            number += 1;
            put(machine, &format!("fill:{}", number % 50), &[number as u8; 20_000]);
        }
        figure(machine, "flushes_completed") >= until
    });
}

#[test]
fn what_the_memtable_does_not_use_is_lent_until_it_does() {
    let machine = Machine::new(lends);
    let bound = |machine: &Machine| figure(machine, "row_cache_bytes_max");
    wait_until("the share is lent", || bound(&machine) > 2 * MIB + MIB / 2);
    let stretches = figure(&machine, "base_stretches_bytes_max");
    assert!(stretches <= MIB / 2, "little of it, as long as nothing is kept: {stretches}");
    assert_eq!(bound(&machine) + stretches, MIB + figure(&machine, "row_cache_lent_bytes"));
    // Lent room comes back before it is too late: a look is due by half of the room that is left.
    let mut most = 0;
    for number in 0..4000 {
        put(&machine, &format!("key:{number}"), &[7; 1000]);
        let used = ["memtable_active_bytes", "memtable_frozen_bytes", "memtable_flushed_bytes", "row_cache_bytes"];
        most = most.max(used.iter().map(|name| figure(&machine, name)).sum::<u64>());
    }
    wait_until("it was given back", || bound(&machine) < 2 * MIB);
    assert!(most < 4 * MIB, "{most} bytes of 3 MiB");
    // Nobody lends where a share is given.
    machine.store.set_lends(false);
    let stretches = || figure(&machine, "base_stretches_bytes_max");
    wait_until("it is all given back", || bound(&machine) + stretches() == MIB);
}

#[test]
fn rows_that_are_read_stay_in_memory_when_their_generation_leaves() {
    let machine = Machine::new(lends);
    for name in ["read", "idle", "changed", "gone"] {
        put(&machine, name, b"first");
    }
    flush(&machine, 1);
    // Stamps are as coarse as a second.
    let since = Instant::now();
    wait_until("they were read for a while", || {
        ["read", "changed", "gone"].iter().for_each(|name| _ = in_memory(&machine, name));
        since.elapsed() > Duration::from_millis(2500)
    });
    put(&machine, "changed", b"second");
    let mut txn = machine.begin();
    let key = txn.key(b"gone");
    txn.delete_meta(&key).expect("it is there");
    txn.commit().expect("room");
    flush(&machine, 1);
    assert_eq!(figure(&machine, "row_cache_kept_rows"), 1, "the memtable has the others newer");
    let look = |name: &str| in_memory(&machine, name);
    let is_right = || {
        assert_eq!(look("read").expect("in memory").as_deref(), Some(&b"first"[..]));
        assert_eq!(look("changed").expect("in memory").as_deref(), Some(&b"second"[..]));
        assert_eq!(look("gone").expect("in memory"), None);
    };
    machine.base.set_cold(true);
    is_right();
    assert!(matches!(look("idle"), Err(Stop::WouldBlock)), "nobody has read it");
    // Nor does the cache have what is older than the base, once the memtable has let go of it.
    flush(&machine, 2);
    assert_eq!(machine.get("changed").as_deref(), Some(&b"second"[..]));
    assert_eq!(machine.get("gone"), None);
    assert_eq!(look("read").expect("in memory").as_deref(), Some(&b"first"[..]));
}
