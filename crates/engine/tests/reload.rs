//! The data are closed and opened again while clients are connected.

mod server;

use haypile_store::base::{Base, Lookup, Tier};
use server::{PATIENCE, Server};
use std::time::Instant;

const LOADING: &str = "-LOADING Redis is loading the dataset in memory";

#[test]
fn what_is_served_afterwards_is_what_is_on_disk() {
    let (mut server, _) = Server::reopening(false);
    assert_eq!(server.ask(0, "SET k v"), "+OK");
    assert_eq!(server.ask(0, "SETEX later 1000 x"), "+OK");
    assert_eq!(server.ask(0, "CLIENT SETNAME me"), "+OK");
    assert_eq!(server.ask(0, "SELECT 3"), "+OK");
    assert_eq!(server.ask(0, "SET other 3"), "+OK");
    assert_eq!(server.ask(1, "WATCH k"), "+OK");
    assert_eq!(server.ask(2, "MULTI"), "+OK");
    assert_eq!(server.ask(2, "INCR n"), "+QUEUED");
    let history = server.info(0, "master_replid");
    assert_eq!(server.store.base.len(), 1, "nothing was flushed: there is only the hash seed");
    assert_eq!(server.ask(0, "DEBUG LOADAOF"), "+OK");
    assert_eq!(server.store.base.len(), 1, "it came from the log");
    let check = |server: &mut Server| {
        assert_eq!(server.ask(0, "GET other"), "$1 3", "the session is the same");
        assert_eq!(server.ask(0, "CLIENT GETNAME"), "$2 me");
        assert_eq!(server.ask(3, "MGET k absent"), "*2 $1 v $-1");
        assert_eq!(server.ask(3, "TTL later"), ":1000");
        assert_eq!(server.ask(3, "DBSIZE"), ":2");
        assert_eq!(server.info(0, "master_replid"), history, "a clean stop and a start");
        assert_eq!(server.info(0, "loading"), "0");
    };
    check(&mut server);
    assert_eq!(server.ask(0, "DEBUG RELOAD"), "+OK");
    assert!(server.store.base.len() > 1);
    assert_eq!(server.info(0, "memtable_active_bytes"), "0", "it came from the base");
    check(&mut server);
    assert_eq!(server.ask(0, "DEBUG RELOAD NOSAVE NOFLUSH MERGE"), "+OK");
    check(&mut server);
    let text = "-ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.";
    assert_eq!(server.ask(0, "DEBUG RELOAD NOW"), text);
    assert_eq!(server.ask(2, "EXEC"), "*1 :1");
    for (command, reply) in [("MULTI", "+OK"), ("GET k", "+QUEUED"), ("EXEC", "*1 $1 v")] {
        assert_eq!(server.ask(1, command), reply, "a watched key that nobody has changed");
    }
    for (command, reply) in [("WATCH k", "+OK"), ("MULTI", "+OK"), ("GET k", "+QUEUED")] {
        assert_eq!(server.ask(1, command), reply);
    }
    assert_eq!(server.ask(3, "SET k w"), "+OK");
    assert_eq!(server.ask(3, "DEBUG RELOAD"), "+OK");
    assert_eq!(server.ask(1, "EXEC"), "*-1", "and one that was changed before");
}

#[test]
fn who_watches_keys_is_told_that_the_data_are_others() {
    let (mut server, _) = Server::reopening(false);
    assert_eq!(server.ask(0, "SET k v"), "+OK");
    for (command, reply) in [("WATCH k", "+OK"), ("MULTI", "+OK"), ("GET k", "+QUEUED")] {
        assert_eq!(server.ask(1, command), reply);
    }
    server.engine.put_copy(&mut || Ok(())).expect("it opens again");
    assert_eq!(server.ask(1, "EXEC"), "*-1");
}

#[test]
fn meanwhile_commands_on_data_are_answered_loading_and_others_run() {
    let (mut server, open) = Server::reopening(true);
    assert_eq!(server.ask(0, "SET k v"), "+OK");
    server.send_together(0, &["DEBUG RELOAD", "GET k"]);
    let since = Instant::now();
    while server.info(1, "loading") != "1" {
        assert!(since.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert!(server.waits(0));
    assert_eq!(server.ask(1, "GET k"), LOADING);
    assert_eq!(server.ask(1, "ECHO hi"), "$2 hi");
    assert_eq!(server.ask(1, "CONFIG GET timeout"), "*2 $7 timeout $1 0");
    // Both wait for their turn.
    server.send(2, "DEBUG LOADAOF");
    open.send(false).expect("it waits");
    open.send(false).expect("it waits");
    assert_eq!(server.reply(0), "+OK $1 v");
    assert_eq!(server.reply(2), "+OK");
    assert_eq!(server.ask(1, "GET k"), "$1 v");
}

#[test]
fn what_is_flushed_before_holds_nobody_up() {
    let (mut server, _) = Server::reopening(false);
    assert_eq!(server.ask(0, "SET k v"), "+OK");
    server.store.faults.hold_ingests(true);
    server.send(0, "DEBUG RELOAD");
    server.store.faults.wait_for_held_ingest();
    assert_eq!(server.ask(1, "SET k w"), "+OK");
    assert_eq!(server.ask(1, "GET k"), "$1 w");
    server.store.faults.hold_ingests(false);
    assert_eq!(server.reply(0), "+OK");
    assert_eq!(server.ask(1, "GET k"), "$1 w");
}

#[test]
fn a_row_that_was_read_from_the_old_store_is_not_taken_for_one_of_the_new() {
    let (mut server, _) = Server::reopening(false);
    assert_eq!(server.ask(0, "SET k old"), "+OK");
    server.freeze();
    server.store.faults.set_cold(true);
    server.store.faults.hold_gets(true);
    server.send(1, "GET k");
    server.store.faults.wait_for_held_gets(1);
    // The client's read does not end: the reload does not wait for ever.
    assert!(server.waits(1));
    server.send(0, "DEBUG LOADAOF");
    let since = Instant::now();
    while server.info(2, "loading") != "1" {
        assert!(since.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    server.store.faults.hold_gets(false);
    assert_eq!(server.reply(0), "+OK");
    assert_eq!(server.ask(2, "SET k new"), "+OK");
    assert_eq!(server.reply(1), "$3 old", "it was asked for before");
    assert_eq!(server.ask(1, "GET k"), "$3 new");
}

#[test]
fn a_long_reply_under_way_comes_from_one_store() {
    let (mut server, _) = Server::reopening(false);
    let long: String = "0123456789".repeat(300_000);
    server.send_words(0, &[b"SET", b"long", long.as_bytes()]);
    assert_eq!(server.reply(0), "+OK");
    server.freeze();
    server.send(0, "GET long");
    let mut all = server.reply_so_far(0);
    server.send(1, "DEBUG RELOAD");
    while server.waits(0) {
        all.push_str(&server.reply_so_far(0));
    }
    all.push_str(&server.reply(0));
    assert!(all.trim_end() == format!("$3000000\r\n{long}"), "{} bytes", all.len());
    assert_eq!(server.reply(1), "+OK");
    assert_eq!(server.ask(1, "STRLEN long"), ":3000000");
}

#[test]
fn in_a_transaction_or_without_a_way_to_open_it_is_an_error() {
    let (mut server, _) = Server::reopening(false);
    for (command, reply) in [("MULTI", "+OK"), ("DEBUG RELOAD", "+QUEUED"), ("SET k v", "+QUEUED")] {
        assert_eq!(server.ask(0, command), reply);
    }
    assert_eq!(server.ask(0, "EXEC"), "*2 -ERR data cannot be opened again inside a transaction +OK");
    let mut server = Server::new();
    assert_eq!(
        server.ask(0, "DEBUG RELOAD"),
        "-ERR the data are not opened again: this server cannot open its data again"
    );
    assert_eq!(server.ask(0, "SET k v"), "+OK");
}

#[test]
fn data_that_do_not_open_stop_the_server() {
    let (mut server, open) = Server::reopening(true);
    assert_eq!(server.ask(0, "SET k v"), "+OK");
    open.send(true).expect("it waits");
    assert_eq!(server.ask(0, "DEBUG RELOAD"), "-ERR the data are not opened again: injected");
    assert_eq!(server.ask(1, "GET k"), LOADING);
    assert_eq!(server.ask(0, "DEBUG RELOAD"), "-ERR the data are not opened again: the data are not loaded");
    let base = &server.store.base;
    let found =
        base.get(&haypile_store::row::system_row(haypile_store::row::SystemScope::Local, b"applied"), Tier::Disk);
    assert!(matches!(found, Ok(Lookup::Row(_))), "everything was flushed before");
}
