//! The counts of commands: those that wait included, with what they waited for.
#![cfg(not(feature = "shuttle"))]

mod server;

use server::{Server, check_on};
use std::time::{Duration, Instant};

/// A wait that nobody overlooks.
const WAIT: Duration = Duration::from_millis(20);

/// Lets a client wait for a row from the disk for `WAIT`, with this command.
fn wait_for_disk(server: &mut Server, command: &str) -> String {
    server.freeze();
    server.store.faults.hold_gets(true);
    server.send(0, command);
    server.store.faults.wait_for_held_gets(1);
    let since = Instant::now();
    while since.elapsed() < WAIT {
        std::thread::yield_now();
    }
    server.store.faults.hold_gets(false);
    server.reply(0)
}

/// A number of a field whose value is `name=number` parts.
fn part(value: &str, name: &str) -> u64 {
    let number = value.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    number.unwrap_or_else(|| panic!("{name} in {value}")).parse().expect("a number")
}

#[test]
fn the_slow_log_tells_what_was_waited_for() {
    let mut server = Server::new();
    server.ask(0, "SET cold 1");
    assert_eq!(wait_for_disk(&mut server, "GET cold"), "$1 1");
    let wait_us = WAIT.as_micros() as u64;
    let entry = server.info(0, "slowlog_0");
    assert!(part(&entry, "disk") >= wait_us, "{entry}");
    let all: u64 = ["queue", "disk", "lock", "stall", "pool", "gate"].iter().map(|wait| part(&entry, wait)).sum();
    assert!(part(&entry, "usec") >= all && part(&entry, "lock") == 0 && part(&entry, "gate") == 0, "{entry}");
    let shown = server.ask(0, "SLOWLOG GET");
    assert!(shown.starts_with("*1 *6 :0 :"), "{shown}");
    assert!(shown.contains(" *2 $3 GET $4 cold "), "{shown}");
    let get = server.info(0, "cmdstat_get");
    assert!(part(&get, "calls") == 1 && part(&get, "usec") >= wait_us, "{get}");
    assert_eq!(part(&server.info(0, "wait_usec_disk"), "count"), 1);
}

#[test]
fn exec_is_in_the_slow_log_for_what_its_block_waited_for() {
    let mut server = Server::new();
    server.ask(0, "SET cold 1");
    server.ask(0, "MULTI");
    server.ask(0, "INCR cold");
    assert_eq!(wait_for_disk(&mut server, "EXEC"), "*1 :2");
    let shown = server.ask(0, "SLOWLOG GET");
    assert!(shown.starts_with("*1 ") && shown.contains("*1 $4 EXEC"), "{shown}");
    assert_eq!(part(&server.info(0, "cmdstat_incr"), "calls"), 1, "what ran in memory is not counted twice");
    assert_eq!(part(&server.info(0, "cmdstat_exec"), "calls"), 1);
}

#[test]
fn what_was_waited_for_is_an_event() {
    let mut server = Server::new();
    server.ask(0, "SET cold 1");
    assert_eq!(wait_for_disk(&mut server, "GET cold"), "$1 1");
    assert_eq!(server.ask(0, "LATENCY LATEST"), "*0", "nothing is watched");
    server.ask(0, "CONFIG SET latency-monitor-threshold 10");
    assert_eq!(wait_for_disk(&mut server, "GET cold"), "$1 1");
    let latest = server.ask(0, "LATENCY LATEST");
    assert!(latest.starts_with("*2 *4 $9 disk-read :") && latest.contains("$12 fast-command :"), "{latest}");
    assert!(server.ask(0, "LATENCY HISTORY disk-read").starts_with("*1 *2 :"));
    assert_eq!(server.ask(0, "LATENCY RESET disk-read"), ":1");
    assert_eq!(server.ask(0, "LATENCY RESET"), ":1");
}

#[test]
fn the_slow_log_follows_its_directives() {
    let mut server = Server::new();
    check_on(
        &mut server,
        "thresholds and length",
        "0: CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 2 => +OK
         0: SLOWLOG RESET => +OK
         0: SET a 1 => +OK
         0: SET b 1 => +OK
         0: SLOWLOG LEN => :2
         0: CONFIG SET slowlog-log-slower-than -1 => +OK
         0: SET c 1 => +OK
         0: SLOWLOG LEN => :2
         0: SLOWLOG RESET => +OK
         0: CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 0 => +OK
         0: SET d 1 => +OK
         0: SLOWLOG LEN => :0",
    );
}

#[test]
fn what_is_not_tracked_has_no_times() {
    let mut server = Server::new();
    server.ask(0, "CONFIG SET latency-tracking no");
    server.ask(0, "SET a 1");
    assert_eq!(server.ask(0, "LATENCY HISTOGRAM set"), "*0");
    assert_eq!(part(&server.info(0, "cmdstat_set"), "calls"), 1);
    server.ask(0, "CONFIG SET latency-tracking yes");
    server.ask(0, "SET a 1");
    assert!(server.ask(0, "LATENCY HISTOGRAM set").starts_with("*2 $3 set *4 $5 calls :1 $14 histogram_usec *2 "));
    assert!(server.info(0, "latency_percentiles_usec_set").starts_with("p50="));
    server.ask(0, "CONFIG RESETSTAT");
    assert_eq!(server.ask(0, "LATENCY HISTOGRAM set"), "*0");
}

/// Rules of COMMANDLOG are those of valkey.io/commands/commandlog-get.
#[test]
fn large_requests_and_replies_are_kept() {
    let mut server = Server::new();
    check_on(
        &mut server,
        "what is asked for wrongly",
        "0: COMMANDLOG GET x slow => -ERR count should be greater than or equal to -1
         0: COMMANDLOG GET -2 none => -ERR count should be greater than or equal to -1
         0: COMMANDLOG GET 1 none => -ERR type should be one of the following: slow, large-request, large-reply
         0: COMMANDLOG LEN none => -ERR type should be one of the following: slow, large-request, large-reply
         0: COMMANDLOG GET 1 => -ERR wrong number of arguments for 'commandlog|get' command
         0: COMMANDLOG GET 0 LARGE-reply => *0
         0: COMMANDLOG LEN large-request => :0
         0: CONFIG SET commandlog-request-larger-than 1000 commandlog-reply-larger-than 1000 => +OK
         0: CONFIG GET commandlog-execution-slower-than => *2 $32 commandlog-execution-slower-than $5 10000",
    );
    let value = "x".repeat(2048);
    // The bytes of the request as they were sent, and those of the reply with its frame.
    assert_eq!(server.ask(0, &format!("SET k {value}")), "+OK");
    assert_eq!(server.ask(0, "GET k").len(), 2048 + 6);
    let shown = server.ask(0, "COMMANDLOG GET -1 large-request");
    assert!(shown.contains("*6 :0 :") && shown.contains(" :2077 *3 $3 SET $1 k $149 xxx"), "{shown}");
    let shown = server.ask(0, "COMMANDLOG GET -1 large-reply");
    assert!(shown.contains(" :2057 *2 $3 GET $1 k "), "{shown}");
    // From the disk, in a block and in a script.
    server.freeze();
    assert_eq!(server.ask(0, "GET k").len(), 2048 + 6);
    assert_eq!(server.ask(0, "COMMANDLOG LEN large-reply"), ":2");
    for command in ["MULTI", "GET k", &format!("SET l {value}"), "EXEC"] {
        server.ask(0, command);
    }
    let shown = server.ask(0, "COMMANDLOG GET 1 large-reply");
    assert!(shown.contains(" *2 $3 GET $1 k "), "{shown}");
    assert_eq!(server.ask(0, "COMMANDLOG LEN large-reply"), ":3", "EXEC is not shown");
    assert_eq!(server.ask(0, "COMMANDLOG LEN large-request"), ":2");
    server.ask(0, "EVAL redis.call('GET','k')␣return␣1 0");
    let shown = server.ask(0, "COMMANDLOG GET 1 large-reply");
    assert!(shown.contains(" *2 $3 GET $1 k "), "{shown}");
    check_on(
        &mut server,
        "each log for itself",
        "0: COMMANDLOG RESET large-request => +OK
         0: COMMANDLOG LEN large-request => :0
         0: COMMANDLOG LEN large-reply => :4
         0: MULTI => +OK
         0: COMMANDLOG RESET large-reply => +QUEUED
         0: COMMANDLOG LEN large-reply => +QUEUED
         0: COMMANDLOG GET -1 large-reply => +QUEUED
         0: EXEC => *3 +OK :0 *0
         0: CONFIG SET commandlog-large-reply-max-len 0 => +OK",
    );
    server.ask(0, "GET k");
    assert_eq!(server.ask(0, "COMMANDLOG LEN large-reply"), ":0");
}
