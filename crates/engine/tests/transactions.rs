//! MULTI, EXEC, DISCARD, WATCH: replies, atomicity, and what counts as a change of a watched key.
#![cfg(not(feature = "shuttle"))]

mod server;

use haypile_log::testing::FaultFiles;
use haypile_store::DiskFree;
use haypile_store::base::BaseError;
use server::{Data, PATIENCE, Server, check};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

#[test]
fn a_block_is_queued_and_runs_as_a_whole() {
    check(
        "replies come in one array",
        "0: MULTI => +OK
         0: SET k 1 => +QUEUED
         0: INCR k => +QUEUED
         1: GET k => $-1
         0: EXEC => *2 +OK :2
         1: GET k => $1 2",
    );
    check(
        "a command that fails leaves nothing of its own, the others stand",
        "0: MULTI => +OK
         0: SET s text => +QUEUED
         0: INCR s => +QUEUED
         0: SET t 1 => +QUEUED
         0: EXEC => *3 +OK -ERR value is not an integer or out of range +OK
         0: MGET s t => *2 $4 text $1 1",
    );
    check("an empty block", "0: MULTI => +OK\n0: EXEC => *0");
    check(
        "DISCARD drops it",
        "0: MULTI => +OK
         0: SET k 1 => +QUEUED
         0: DISCARD => +OK
         0: GET k => $-1
         0: EXEC => -ERR EXEC without MULTI
         0: DISCARD => -ERR DISCARD without MULTI",
    );
    check(
        "a command that is refused when it comes refuses the block",
        "0: MULTI => +OK
         0: SET k 1 => +QUEUED
         0: NOSUCH a => -ERR unknown command 'NOSUCH', with args beginning with: 'a'
         0: EXEC => -EXECABORT Transaction discarded because of previous errors.
         0: MULTI => +OK
         0: GET => -ERR wrong number of arguments for 'get' command
         0: EXEC => -EXECABORT Transaction discarded because of previous errors.
         0: MULTI => +OK
         0: SHUTDOWN => -ERR Command not allowed inside a transaction
         0: EXEC => -EXECABORT Transaction discarded because of previous errors.
         0: GET k => $-1",
    );
    check(
        "MULTI in MULTI is an error of its own",
        "0: MULTI => +OK
         0: MULTI => -ERR MULTI calls can not be nested
         0: WATCH k => -ERR WATCH inside MULTI is not allowed
         0: UNWATCH => +QUEUED
         0: EXEC => *1 +OK",
    );
}

#[test]
fn session_changes_belong_to_the_block() {
    check(
        "SELECT holds for the commands behind it, and afterwards",
        "0: SET k zero => +OK
         0: MULTI => +OK
         0: SELECT 1 => +QUEUED
         0: SET k one => +QUEUED
         0: EXEC => *2 +OK +OK
         0: GET k => $3 one
         0: SELECT 0 => +OK
         0: GET k => $4 zero",
    );
    check(
        "earlier replies keep their protocol",
        "0: MULTI => +OK
         0: GET none => +QUEUED
         0: HELLO 9 => +QUEUED
         0: CLIENT SETNAME me => +QUEUED
         0: CLIENT GETNAME => +QUEUED
         0: EXEC => *4 $-1 -NOPROTO unsupported protocol version +OK $2 me",
    );
}

#[test]
fn a_watched_key_that_changed_fails_the_block() {
    check(
        "by another client",
        "0: WATCH k => +OK
         1: SET k 1 => +OK
         0: MULTI => +OK
         0: SET k 2 => +QUEUED
         0: EXEC => *-1
         0: MULTI => +OK
         0: SET k 2 => +QUEUED
         0: EXEC => *1 +OK",
    );
    check(
        "by the client itself, before MULTI",
        "0: WATCH k => +OK
         0: SET k 1 => +OK
         0: MULTI => +OK
         0: EXEC => *-1",
    );
    check(
        "not by a command that changes nothing, nor in another database",
        "0: WATCH k => +OK
         1: DEL k => :0
         1: SETNX k2 1 => :1
         1: GET k => $-1
         1: SELECT 3 => +OK
         1: SET k 1 => +OK
         0: MULTI => +OK
         0: EXEC => *0",
    );
    check(
        "UNWATCH and DISCARD forget",
        "0: WATCH k j => +OK
         1: SET k 1 => +OK
         0: UNWATCH => +OK
         0: MULTI => +OK
         0: EXEC => *0
         0: WATCH k => +OK
         1: SET k 2 => +OK
         0: MULTI => +OK
         0: DISCARD => +OK
         0: MULTI => +OK
         0: EXEC => *0",
    );
    check(
        "by a block of another client, and by RENAME from and to",
        "0: SET a 1 => +OK
         0: WATCH b => +OK
         1: MULTI => +OK
         1: RENAME a b => +QUEUED
         1: EXEC => *1 +OK
         0: MULTI => +OK
         0: EXEC => *-1
         0: WATCH b => +OK
         1: RENAME b c => +OK
         0: MULTI => +OK
         0: EXEC => *-1",
    );
    check(
        "watched twice is watched once",
        "0: WATCH k => +OK
         0: WATCH k k => +OK
         1: SET k 1 => +OK
         0: MULTI => +OK
         0: EXEC => *-1
         0: MULTI => +OK
         0: EXEC => *0",
    );
}

#[test]
fn emptying_a_database_changes_the_keys_that_were_in_it() {
    check(
        "FLUSHDB of an existing key",
        "0: SET k 1 => +OK
         0: WATCH k => +OK
         1: FLUSHDB => +OK
         0: MULTI => +OK
         0: EXEC => *-1",
    );
    check(
        "but not of one that was not there, nor of another database",
        "0: SET other 1 => +OK
         0: WATCH k => +OK
         1: FLUSHALL => +OK
         1: SELECT 1 => +OK
         1: FLUSHDB => +OK
         0: MULTI => +OK
         0: EXEC => *0",
    );
    check(
        "SWAPDB changes keys that are in either",
        "0: WATCH k => +OK
         1: SELECT 1 => +OK
         1: SET k 1 => +OK
         1: SWAPDB 0 1 => +OK
         0: MULTI => +OK
         0: GET k => +QUEUED
         0: EXEC => *-1
         0: GET k => $1 1
         0: WATCH absent => +OK
         1: SWAPDB 0 1 => +OK
         0: MULTI => +OK
         0: EXEC => *0",
    );
    check(
        "FLUSHALL within a block, seen by the block and by those who watch",
        "0: SET k 1 => +OK
         0: WATCH k => +OK
         1: MULTI => +OK
         1: SET j 1 => +QUEUED
         1: FLUSHALL => +QUEUED
         1: GET j => +QUEUED
         1: SET n 1 => +QUEUED
         1: DBSIZE => +QUEUED
         1: EXEC => *5 +OK +OK $-1 +OK :1
         0: MULTI => +OK
         0: EXEC => *-1
         0: DBSIZE => :1",
    );
}

#[test]
fn a_deadline_that_passes_is_a_change() {
    check(
        "after WATCH",
        "0: SET k 1 PX 100 => +OK
         0: WATCH k => +OK
         time +200
         0: MULTI => +OK
         0: EXEC => *-1",
    );
    check(
        "but not before it",
        "0: SET k 1 PX 100 => +OK
         time +200
         0: WATCH k => +OK
         0: MULTI => +OK
         0: EXEC => *0",
    );
    for (waited, expected) in [(0, "*-1"), (200, "*0")] {
        let mut server = Server::new();
        server.ask(0, "SET k 1 PX 100");
        server.now_ms += waited;
        server.ask(0, "WATCH k");
        server.now_ms += 200;
        server.worker.expire(server.now_ms);
        assert_eq!(server.info(1, "expired_keys"), "1");
        server.ask(0, "MULTI");
        assert_eq!(server.ask(0, "EXEC"), expected, "removed {waited} ms before the deadline was watched");
    }
}

#[test]
fn a_key_that_gives_way_to_its_deadline_is_a_change_only_to_who_saw_it() {
    for (what, waited, command, expected) in [
        ("removed by a write, watched when it was gone", 200, "DEL k", "*0"),
        ("removed by a write, watched while it was there", 0, "DEL k", "*-1"),
        ("written again", 200, "SET k 2", "*-1"),
        ("written again in place of what was there", 200, "APPEND k 2", "*-1"),
    ] {
        let mut server = Server::new();
        server.ask(0, "SET k 1 PX 100");
        server.now_ms += waited;
        server.ask(0, "WATCH k");
        server.now_ms += 200;
        server.ask(1, command);
        server.ask(0, "MULTI");
        assert_eq!(server.ask(0, "EXEC"), expected, "{what}");
    }
    check(
        "written and removed within a block",
        "0: SET k 1 PX 100 => +OK
         time +200
         0: WATCH k => +OK
         1: MULTI => +OK
         1: GETDEL k => +QUEUED
         1: SET k 2 => +QUEUED
         1: DEL k => +QUEUED
         1: EXEC => *3 $-1 +OK :1
         0: MULTI => +OK
         0: EXEC => *-1",
    );
}

#[test]
fn exec_while_the_data_are_loaded_is_refused_at_once() {
    let mut server = Server::loading();
    for command in ["MULTI", "PUBLISH a b"] {
        server.ask(0, command);
    }
    let refused = "-EXECABORT Transaction discarded because of: LOADING Redis is loading the dataset in memory";
    assert_eq!(server.ask(0, "EXEC"), refused);
    assert_eq!(server.ask(0, "EXEC"), "-ERR EXEC without MULTI");
}

#[test]
fn a_reply_that_is_held_for_a_promotion_counts_for_its_client() {
    let mut server = Server::new();
    let id = server.ask(0, "CLIENT ID")[1..].to_owned();
    server.send_words(0, &[b"SET", b"k", &[b'x'; 8000]]);
    server.reply(0);
    // Nobody has the data follow, or lead again: the reply waits.
    server.ask(0, "REPLICAOF 127.0.0.1 1");
    let bytes = |server: &mut Server| {
        server.count(0);
        let line = server.ask(1, &format!("CLIENT LIST ID {id}"));
        let value = line.split(' ').find_map(|field| field.strip_prefix("tot-mem=")).expect("it is listed");
        value.parse::<u64>().expect("a number")
    };
    let before = bytes(&mut server);
    server.ask(0, "MULTI");
    (0..10).for_each(|_| _ = server.ask(0, "GET k"));
    server.ask(0, "REPLICAOF NO ONE");
    server.send(0, "EXEC");
    assert!(server.is_blocked(0) && server.info(1, "blocked_clients") == "1");
    let held = bytes(&mut server);
    assert!((before + 80_000..before + 100_000).contains(&held), "{before}, then {held}");
    server.ask(1, "REPLICAOF 127.0.0.1 2");
    assert!(server.reply(0).starts_with("*11 $8000 xxx"));
    assert_eq!(bytes(&mut server), before);
}

#[test]
fn a_client_is_listed_with_how_many_keys_it_watches() {
    let mut server = Server::new();
    let id = server.ask(0, "CLIENT ID")[1..].to_owned();
    let watched = |server: &mut Server, expected: [&str; 3]| {
        let line = server.ask(1, &format!("CLIENT LIST ID {id}"));
        assert!(line.contains(&format!(" watch={} qbuf=", expected[0])), "{expected:?}: {line}");
        assert_eq!(server.info(1, "watching_clients"), expected[1]);
        assert_eq!(server.info(1, "total_watched_keys"), expected[2]);
    };
    watched(&mut server, ["0", "0", "0"]);
    server.ask(0, "WATCH a b a");
    server.ask(0, "SELECT 1");
    server.ask(0, "WATCH a");
    assert!(server.ask(0, "CLIENT INFO").contains(" multi=-1 watch=3 qbuf="));
    server.ask(2, "WATCH a c");
    watched(&mut server, ["3", "2", "4"]);
    server.ask(0, "UNWATCH");
    watched(&mut server, ["0", "1", "2"]);
    server.ask(0, "WATCH a");
    server.ask(0, "MULTI");
    server.ask(0, "CLIENT INFO");
    watched(&mut server, ["1", "2", "3"]);
    let infos = server.ask(0, "EXEC");
    assert!(infos.contains(" multi=1 watch=0 qbuf="), "EXEC ends it before it runs the commands: {infos}");
    watched(&mut server, ["0", "1", "2"]);
    server.ask(0, "SELECT 0");
    for (end, changes) in [("EXEC", true), ("DISCARD", false), ("RESET", false)] {
        server.ask(0, "WATCH x");
        if changes {
            server.ask(1, "SET x 1");
        }
        server.ask(0, "MULTI");
        server.ask(0, end);
        watched(&mut server, ["0", "1", "2"]);
    }
    server.leave(2);
    watched(&mut server, ["0", "0", "0"]);
}

/// `count` words after the first one, each different.
fn many(command: &str, first: usize, count: usize) -> String {
    (first..first + count).fold(command.to_string(), |line, number| format!("{line} k{number}"))
}

#[test]
fn many_watched_keys_are_left_to_the_pool() {
    let mut server = Server::new();
    server.send(0, &many("WATCH", 0, 5000));
    assert!(server.waits(0), "an event loop does not do so many at once");
    assert_eq!(server.reply(0), "+OK");
    assert_eq!(server.info(1, "total_watched_keys"), "5000");
    server.send(0, "UNWATCH");
    assert!(server.waits(0));
    assert_eq!(server.reply(0), "+OK");
    assert_eq!(server.info(1, "total_watched_keys"), "0");
    // Keys that are watched in one call or in many count alike, and a few keys take no other thread.
    for first in 0..20 {
        server.send(0, &many("WATCH", first * 400, 400));
        assert!(!server.waits(0));
    }
    server.reply(0);
    server.ask(0, "MULTI");
    server.ask(0, "GET k");
    server.send(0, "EXEC");
    assert!(server.waits(0), "a block with many watched keys is for the pool");
    assert_eq!(server.reply(0), "*1 $-1");
    assert_eq!(server.info(1, "total_watched_keys"), "0");
    // One of the many is enough.
    assert_eq!(server.ask(0, &many("WATCH", 0, 5000)), "+OK");
    server.ask(1, "SET k4999 1");
    server.ask(0, "MULTI");
    assert_eq!(server.ask(0, "EXEC"), "*-1");
    server.ask(0, &many("WATCH", 0, 5000));
    server.ask(0, "MULTI");
    server.ask(0, "SET x 1");
    assert_eq!(server.ask(0, "DISCARD"), "+OK");
    assert_eq!(server.info(1, "total_watched_keys"), "0");
    // A client that goes leaves nothing behind.
    server.ask(1, "PING");
    server.ask(0, &many("WATCH", 0, 5000));
    server.leave(0);
    let begun = std::time::Instant::now();
    while server.info(0, "total_watched_keys") != "0" {
        assert!(begun.elapsed() < server::PATIENCE, "what was watched is forgotten");
    }
}

#[test]
fn a_block_of_many_commands_is_left_to_the_pool() {
    let mut server = Server::new();
    server.ask(0, "MULTI");
    for _ in 0..3000 {
        server.ask(0, "INCR n");
    }
    server.send(0, "EXEC");
    assert!(server.waits(0));
    assert!(server.reply(0).ends_with(":3000"));
}

/// A server whose log admits 64 KiB that are not synced, and what holds its syncs.
fn with_little_unsynced() -> (Server, Arc<FaultFiles>) {
    let mut files = None;
    let data = Data::with(|options| {
        let faults = Arc::new(FaultFiles::new(options.log.files.clone()));
        options.log.files = faults.clone();
        options.log.unsynced_bytes_max = 64 << 10;
        files = Some(faults);
    });
    (Server::over(data), files.expect("the options were changed"))
}

/// Reads its key behind WATCH, without a lock, while a commit to that key waits for room in the log: it reads the value
/// before, so the commit has to mark it although nobody watched when the commit began.
#[test]
fn a_key_that_is_watched_while_a_commit_to_it_waits_has_changed() {
    let (mut server, files) = with_little_unsynced();
    let filler = "x".repeat(40 << 10);
    server.ask(0, "SET k 1");
    files.hold_syncs(true);
    server.ask(0, &format!("SET filler {filler}"));
    for command in ["MULTI", "INCR k", &format!("SET another {filler}")] {
        server.ask(0, command);
    }
    let log = server.store.store.clone();
    let unsynced = || log.log().stats().unsynced_bytes;
    let before = unsynced();
    server.send(0, "EXEC");
    let started = Instant::now();
    while unsynced() == before {
        assert!(started.elapsed() < PATIENCE, "what EXEC writes finds no room, and is counted while it waits");
        std::thread::yield_now();
    }
    assert_eq!(server.ask(1, "WATCH k"), "+OK");
    assert_eq!(server.ask(1, "GET k"), "$1 1", "nothing is committed yet");
    files.hold_syncs(false);
    assert_eq!(server.reply(0), "*2 :2 +OK");
    for command in ["MULTI", "SET k 2"] {
        server.ask(1, command);
    }
    assert_eq!(server.ask(1, "EXEC"), "*-1", "the increment would be lost");
    assert_eq!(server.ask(1, "GET k"), "$1 2");
}

#[test]
fn client_list_knows_what_others_did_to_an_idle_session() {
    let mut server = Server::new();
    let flags = |server: &mut Server, of: usize| {
        let id = server.ask(of, "CLIENT ID").replace(':', "");
        move |server: &mut Server| server.ask(3, &format!("CLIENT LIST ID {id}"))
    };
    let watching = flags(&mut server, 0);
    server.ask(0, "WATCH k");
    assert!(watching(&mut server).contains(" flags=N "));
    server.ask(1, "SET k 1");
    assert!(watching(&mut server).contains(" flags=d "));
    server.ask(0, "UNWATCH");
    assert!(watching(&mut server).contains(" flags=N "));
    server.ask(0, "WATCH k");
    assert!(watching(&mut server).contains(" flags=N "), "a watch of its own");
}

/// Runs a block of SELECT, a write, `stopped` and a write; the reply to EXEC. Nothing of it may be seen by others.
fn discarded(server: &mut Server, stopped: &str) -> String {
    server.ask(1, "SUBSCRIBE channel");
    for command in ["MULTI", "SELECT 3", "SET x 1", "PUBLISH channel message", stopped, "SET y 2"] {
        server.ask(0, command);
    }
    let reply = server.ask(0, "EXEC");
    assert_eq!(server.reply_of_what_ran(1), "", "a message of the block is not sent");
    assert!(server.ask(0, "CLIENT LIST ID 1").contains(" db=0 "), "the session is as it was before");
    server.ask(0, "SELECT 3");
    reply
}

#[test]
fn a_block_of_which_a_command_changes_too_much_has_no_effect() {
    let mut server = Server::over(Data::with(|options| options.txn_bytes_max = 64 << 10));
    let values: String = (0..10).map(|n| format!(" key:{n} {}", "x".repeat(10_000))).collect();
    let reply = discarded(&mut server, &format!("MSET{values}"));
    let why = "the command changes more than txn-bytes-max allows";
    assert_eq!(reply, format!("-EXECABORT Transaction discarded because of: {why}"));
    assert_eq!(server.ask(0, "DBSIZE"), ":0");
    assert_eq!(server.ask(0, "SET x 1"), "+OK", "the session goes on");
    assert_eq!(server.ask(0, &format!("MSET{values}")), format!("-ERR {why}"), "alone it is refused by itself");
}

#[test]
fn a_block_of_which_a_read_fails_has_no_effect() {
    let mut server = Server::new();
    server.ask(0, "SELECT 3");
    server.ask(0, "SET stored 1");
    server.freeze();
    server.ask(0, "SELECT 0");
    server.store.faults.set_get_fault(Some(BaseError::Corrupt("injected".into())));
    let reply = discarded(&mut server, "APPEND stored 2");
    assert!(reply.starts_with("-EXECABORT Transaction discarded because of: "), "{reply}");
    server.store.faults.set_get_fault(None);
    assert_eq!(server.ask(0, "MGET x y stored"), "*3 $-1 $-1 $1 1");
}

/// The rows that COPY writes ahead are refused because the disk turns short meanwhile: DEL must not stand alone.
#[test]
fn a_block_whose_copy_finds_no_room_keeps_what_it_was_to_replace() {
    let free = Arc::new(AtomicU64::new(1 << 30));
    let disk = free.clone();
    let mut server = Server::over(Data::with(|options| {
        options.disk_free = DiskFree(Arc::new(move || Some(disk.load(Ordering::Relaxed))));
        options.disk_free_min_bytes = 1 << 20;
    }));
    let value = "v".repeat(3 << 20);
    server.ask(0, &format!("SET big {value}"));
    // In the base, but warm: the block goes to the I/O pool at once, and what it reads there is held.
    server.store.store.flush_now().expect("a memory base takes everything");
    for command in ["MULTI", "COPY big copy", "DEL big"] {
        server.ask(0, command);
    }
    server.store.faults.hold_gets(true);
    server.send(0, "EXEC");
    server.store.faults.wait_for_held_gets(1);
    let store = server.store.store.clone();
    let turns = |bytes: u64, is_short: bool| {
        free.store(bytes, Ordering::Relaxed);
        let started = Instant::now();
        while store.refuses_writes() != is_short {
            assert!(started.elapsed() < PATIENCE, "the store looks at its disk");
            std::thread::yield_now();
        }
    };
    turns(1 << 19, true);
    server.store.faults.hold_gets(false);
    let reply = server.reply(0);
    assert!(reply.starts_with("-EXECABORT Transaction discarded because of: MISCONF"), "{reply}");
    turns(1 << 30, false);
    assert_eq!(server.ask(0, "STRLEN big"), format!(":{}", value.len()));
    assert_eq!(server.ask(0, "EXISTS copy"), ":0");
}

/// A long queue that does not run is freed on the I/O pool; without data there is none yet, and nothing waits for it.
#[test]
fn a_long_queue_that_does_not_run_waits_for_no_pool() {
    for serves in [false, true] {
        let mut server = if serves { Server::new() } else { Server::loading() };
        for end in ["DISCARD", "RESET", "EXEC", "leaves"] {
            server.ask(1, "MULTI");
            server.send_together(1, &["ECHO x"; 2000]);
            server.reply(1);
            match end {
                "leaves" => server.leave(1),
                end => _ = server.ask(1, end),
            }
            let begun = Instant::now();
            while server.info(0, "io_pool_queued") != "0" {
                assert!(serves && begun.elapsed() < PATIENCE, "{end}");
            }
        }
    }
}
