//! Commands that come to keys which are not among their arguments: SORT by patterns, and who waits for it meanwhile.
#![cfg(not(feature = "shuttle"))]

mod server;

use server::{Server, check, check_on};
use std::sync::mpsc::channel;

/// More elements than are sorted under the locks of all keys.
const MANY: usize = 1100;

/// Makes a list of 0 to `MANY - 1`.
fn push_list(server: &mut Server, name: &str) {
    for first in (0..MANY).step_by(100) {
        let elements: String = (first..first + 100).map(|number| format!(" {number}")).collect();
        server.ask(0, &format!("RPUSH {name}{elements}"));
    }
}

fn set_weights(server: &mut Server, prefix: &str) {
    for first in (0..MANY).step_by(100) {
        let pairs: String = (first..first + 100).map(|number| format!(" {prefix}_{number} {number}")).collect();
        server.ask(0, &format!("MSET{pairs}"));
    }
}

#[test]
fn patterns_name_keys_that_are_locked_together() {
    let lines = "0: RPUSH l 1 2 3 => :3
         0: MSET w_1 30 w_2 20 w_3 10 => +OK
         0: HSET h_1 f one => :1
         0: SORT l BY w_* => *3 $1 3 $1 2 $1 1
         0: SORT l BY w_* GET w_* GET h_*->f GET # => *9 $2 10 $-1 $1 3 $2 20 $-1 $1 2 $2 30 $3 one $1 1
         0: SORT_RO l BY w_* LIMIT 0 1 => *1 $1 3
         0: SORT l BY nosort GET w_* => *3 $2 30 $2 20 $2 10
         0: SORT l BY w_* STORE w_2 => :3
         0: SORT w_2 BY nosort GET w_* => *3 $2 10 $-1 $2 30
         0: MULTI => +OK
         0: SET w_1 5 => +QUEUED
         0: SORT l BY w_* STORE l => +QUEUED
         0: EXEC => *2 +OK :3
         0: LRANGE l 0 -1 => *3 $1 2 $1 1 $1 3";
    check("in memory", lines);
    let mut server = Server::new();
    check_on(&mut server, "cold", &lines.replace("w_2 20 w_3 10 => +OK", "w_2 20 w_3 10 => +OK\nfreeze"));
    check(
        "the last destination counts, whichever the locks know of",
        "0: GEOADD g 1 1 a => :1
         0: GEORADIUS g 1 1 10 km STORE x STORE y => :1
         0: ZCARD y => :1
         0: EXISTS x => :0",
    );
}

#[test]
fn a_long_sort_reads_each_key_at_a_moment_of_its_own() {
    let mut server = Server::new();
    set_weights(&mut server, "w");
    server.ask(0, "SET hot 1");
    server.freeze();
    push_list(&mut server, "l");
    server.ask(1, "SET w_1050 -1");
    server.store.faults.hold_gets(true);
    server.send(0, "SORT l BY w_* GET w_* LIMIT 0 2");
    server.store.faults.wait_for_held_gets(1);
    // SORT looks at its first key. Nobody else waits, not even for keys that it is going to look at.
    assert_eq!(server.ask(1, "SET w_1050 -7"), "+OK");
    assert_eq!(server.ask(1, "GET w_1050"), "$2 -7");
    assert_eq!(server.ask(1, "LLEN l"), ":1100");
    assert!(server.waits(0));
    server.store.faults.hold_gets(false);
    assert_eq!(server.reply(0), "*2 $2 -7 $1 0");
}

#[test]
fn a_key_that_somebody_keeps_is_waited_for() {
    let mut server = Server::new();
    set_weights(&mut server, "cold");
    server.freeze();
    set_weights(&mut server, "w");
    push_list(&mut server, "other");
    push_list(&mut server, "l");
    server.store.faults.hold_gets(true);
    // The first SORT keeps its destination while it looks at its first cold key.
    server.send(1, "SORT other BY cold_* DESC STORE w_5");
    server.store.faults.wait_for_held_gets(1);
    server.send(0, "SORT l BY w_* GET w_* LIMIT 4 3");
    // The second SORT gives up what it has found so far, and waits without a thread.
    let begun = std::time::Instant::now();
    while server.info(2, "commands_waiting_for_locks") != "1" {
        assert!(begun.elapsed() < server::PATIENCE, "it waits for the key");
    }
    assert_eq!(server.ask(2, "SET w_6 60"), "+OK", "others are not kept");
    server.store.faults.hold_gets(false);
    assert_eq!(server.reply(1), ":1100");
    // The key is a list now: it weighs nothing, as number 0 does.
    assert_eq!(server.reply(0), "*3 $1 3 $1 4 $1 7");
    assert_eq!(server.ask(0, "LINDEX w_5 0"), "$4 1099");
}

#[test]
fn a_cold_key_is_read_while_somebody_keeps_its_lock() {
    let mut server = Server::new();
    push_list(&mut server, "other");
    server.ask(0, "SET k 1");
    server.freeze();
    let (begin, begun) = channel();
    let (go, gone) = channel();
    server.store.faults.after_view(move || {
        begin.send(()).expect("the test waits for it");
        gone.recv_timeout(server::PATIENCE).expect("the test lets it go");
    });
    for command in ["MULTI", "SORT other ALPHA STORE d", "SET k 2"] {
        server.ask(1, command);
    }
    server.send(1, "EXEC");
    // The block is found to be long, then it runs on the pool, and keeps its keys.
    server.reply_so_far(1);
    begun.recv_timeout(server::PATIENCE).expect("it reads the list");
    assert_eq!(server.ask(2, "GET k"), "$1 1");
    assert_eq!(server.ask(2, "STRLEN k"), ":1");
    server.send(3, "APPEND k x");
    assert!(server.waits(3), "who writes the key waits");
    go.send(()).expect("it waits");
    assert_eq!(server.reply(1), "*2 :1100 +OK");
    assert_eq!(server.reply(3), ":2");
    assert_eq!(server.ask(2, "GET k"), "$2 2x");
}
