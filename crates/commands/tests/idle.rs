//! OBJECT IDLETIME and OBJECT FREQ, on a clock that the tests turn: what counts as a use, and what of it is still known
//! once a key has been in the memtable, the row cache and the base.

mod runner;

use haypile_store::testing::{TestStore, memory_store};
use runner::{Client, Shown};

const CACHE_BYTES: u64 = 1 << 20;

fn client(store: &TestStore) -> Client<'_> {
    Client::new(store)
}

fn words(command: &str) -> Vec<Vec<u8>> {
    command.split(' ').map(|word| word.into()).collect()
}

fn run(client: &mut Client<'_>, command: &str) -> Shown {
    client.call(&words(command))
}

fn number(client: &mut Client<'_>, command: &str) -> u64 {
    match run(client, command) {
        Shown::Word(word) => word.parse().unwrap_or_else(|_| panic!("{command}: {word}")),
        other => panic!("{command}: {other:?}"),
    }
}

fn idle(client: &mut Client<'_>) -> u64 {
    number(client, "OBJECT IDLETIME k")
}

/// Flushes all rows, so that the next read goes to the base.
fn to_base(store: &TestStore) {
    store.flush_now().expect("flushes to memory");
}

fn empty_row_cache(store: &TestStore) {
    store.set_memory(64 << 20, 0, 0);
    store.set_memory(64 << 20, CACHE_BYTES, 0);
}

#[test]
fn what_uses_a_value_ends_its_idle_time_and_what_asks_about_the_key_does_not() {
    let uses = [
        "GET k",
        "STRLEN k",
        "TOUCH k",
        "SET k v",
        "APPEND k v",
        "EXPIRE k 1000",
        "PERSIST k",
        "GETEX k",
        "MGET none k",
        "COPY k other",
        "SETRANGE k 1 x",
    ];
    let questions = [
        "TYPE k",
        "TTL k",
        "PTTL k",
        "EXPIRETIME k",
        "EXISTS k",
        "OBJECT ENCODING k",
        "OBJECT REFCOUNT k",
        "OBJECT IDLETIME k",
        "MEMORY USAGE k",
        "KEYS k",
        "SCAN 0",
        "RANDOMKEY",
        "GET other",
        "SET other v",
    ];
    let store = memory_store();
    let mut client = client(&store);
    run(&mut client, "SET k v");
    for question in questions {
        client.now_ms += 5000;
        let before = idle(&mut client);
        assert!(before >= 5);
        run(&mut client, question);
        assert_eq!(idle(&mut client), before, "{question}");
    }
    for used in uses {
        client.now_ms += 5000;
        assert!(idle(&mut client) >= 5, "{used}");
        run(&mut client, used);
        assert_eq!(idle(&mut client), 0, "{used}");
        client.now_ms += 999;
        assert!(idle(&mut client) <= 1, "{used}");
    }
}

#[test]
fn a_name_that_a_key_gets_has_been_used_by_that() {
    let store = memory_store();
    let mut client = client(&store);
    run(&mut client, "SET old v");
    client.now_ms += 9000;
    run(&mut client, "RENAME old k");
    client.now_ms += 2000;
    assert_eq!(idle(&mut client), 2);
}

#[test]
fn what_was_in_no_cache_counts_from_when_it_is_loaded() {
    let store = memory_store();
    let mut client = client(&store);
    run(&mut client, "SET k v");
    client.now_ms += 7000;
    assert_eq!(idle(&mut client), 7);
    to_base(&store);
    assert_eq!(idle(&mut client), 0, "it had to be loaded");
}

#[test]
fn the_row_cache_knows_it_and_what_was_loaded_again_counts_from_then() {
    let store = memory_store();
    store.set_memory(64 << 20, CACHE_BYTES, 0);
    let mut client = client(&store);
    run(&mut client, "SET k v");
    to_base(&store);
    client.now_ms += 10_000;
    run(&mut client, "GET k");
    client.now_ms += 3000;
    assert_eq!(idle(&mut client), 3, "since it was loaded");
    run(&mut client, "GET k");
    client.now_ms += 4000;
    assert_eq!(idle(&mut client), 4, "since it was read in the row cache");
    empty_row_cache(&store);
    assert_eq!(idle(&mut client), 0, "evicted, and loaded by the question");
    client.now_ms += 2000;
    assert_eq!(idle(&mut client), 2, "since that load");
}

#[test]
fn a_stamp_moves_from_the_memtable_to_the_row_cache() {
    let store = memory_store();
    store.set_memory(64 << 20, CACHE_BYTES, 0);
    let mut client = client(&store);
    run(&mut client, "SET k v");
    to_base(&store);
    run(&mut client, "GET k");
    // Now the row cache has it, and a write is on top.
    client.now_ms += 10_000;
    run(&mut client, "SET k w");
    client.now_ms += 5000;
    run(&mut client, "GET k");
    client.now_ms += 1000;
    to_base(&store);
    assert_eq!(idle(&mut client), 1, "as the memtable knew it");
}

/// A policy whose counters rise with each use.
fn counting(store: &TestStore) {
    store.access_policy.set_counts(true);
    store.access_policy.set_log_factor(0);
}

#[test]
fn with_an_lfu_policy_uses_are_counted_and_fall_by_the_minute() {
    let store = memory_store();
    store.set_memory(64 << 20, CACHE_BYTES, 0);
    counting(&store);
    let mut client = client(&store);
    run(&mut client, "SET k v");
    let freq = |client: &mut Client<'_>| number(client, "OBJECT FREQ k");
    assert_eq!(freq(&mut client), 5, "a key that is new");
    (0..10).for_each(|_| drop(run(&mut client, "GET k")));
    run(&mut client, "SET k w");
    assert_eq!(freq(&mut client), 16, "a write keeps what was counted");
    client.now_ms += 3 * 60_000;
    assert_eq!(freq(&mut client), 13);
    store.access_policy.set_decay_minutes(0);
    assert_eq!(freq(&mut client), 16, "0 is never");
    store.access_policy.set_decay_minutes(1);
    run(&mut client, "RENAME k other");
    run(&mut client, "RENAME other k");
    assert_eq!(freq(&mut client), 15, "a new name keeps it, too, and each was a use");
    run(&mut client, "DEL k");
    run(&mut client, "SET k v");
    assert_eq!(freq(&mut client), 5, "another key of the same name");
    run(&mut client, "GET k");
    to_base(&store);
    assert_eq!(freq(&mut client), 5, "loaded: it counts from there");
    run(&mut client, "GET k");
    run(&mut client, "SET k w");
    assert_eq!(freq(&mut client), 7, "a write takes over what the row cache has");
    assert!(format!("{:?}", run(&mut client, "OBJECT IDLETIME k")).contains("An LFU maxmemory policy is selected"));
    store.access_policy.set_counts(false);
    assert!(format!("{:?}", run(&mut client, "OBJECT FREQ k")).contains("An LFU maxmemory policy is not selected"));
    client.now_ms += 61_000;
    assert_eq!(idle(&mut client), 60, "of what was counted, the minute is known");
}
