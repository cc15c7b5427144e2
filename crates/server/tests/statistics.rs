//! The statistics of commands, seen over sockets.

mod process;

use process::{Client, Server, TempDir, wait_until};
use std::net::TcpStream;

/// A number of a field of INFO whose value is `name=number` parts.
fn part(info: &str, field: &str, name: &str) -> u64 {
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let value = value.unwrap_or_else(|| panic!("there is a field {field} in {info}"));
    let number = value.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    number.unwrap_or_else(|| panic!("{name} in {value}")).trim().parse().expect("a number")
}

#[test]
fn a_reply_that_waits_for_the_log_counts_with_its_wait() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--durability", "fsync", "--slowlog-log-slower-than", "0"]);
    let mut client = server.client();
    for n in 0..20 {
        assert_eq!(client.ask(&format!("SET k{n} v")), "+OK\r\n");
    }
    let waits = client.ask("INFO waits");
    assert_eq!(part(&waits, "wait_usec_gate", "count"), 20);
    let gate_us = part(&waits, "wait_usec_gate", "p50");
    assert!(gate_us > 0, "a sync takes some time: {waits}");
    let slow = client.ask("INFO slowlog");
    // The newest entry is INFO's, the ones before it are those of SET.
    assert_eq!(part(&slow, "slowlog_1", "gate") + part(&slow, "slowlog_1", "disk"), part(&slow, "slowlog_1", "gate"));
    let (all_us, entry_gate_us) = (part(&slow, "slowlog_1", "usec"), part(&slow, "slowlog_1", "gate"));
    assert!(entry_gate_us > 0 && all_us >= entry_gate_us, "{slow}");
    let entries = client.ask("SLOWLOG GET 30");
    assert!(entries.contains("*3\r\n$3\r\nSET\r\n$2\r\nk7\r\n$1\r\nv\r\n"), "{entries}");
    let times = client.ask("LATENCY HISTOGRAM set");
    assert!(times.contains("$5\r\ncalls\r\n:20\r\n"), "{times}");
    server.stop();
}

/// A number of INFO.
fn number(client: &mut Client<TcpStream>, field: &str) -> u64 {
    let [number] = numbers(client, [field]);
    number
}

/// Numbers of INFO, all of one moment.
fn numbers<const N: usize>(client: &mut Client<TcpStream>, fields: [&str; N]) -> [u64; N] {
    let info = client.ask("INFO everything debug");
    fields.map(|field| {
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{field} is a number of {info}"))
    })
}

#[test]
fn rounds_of_event_loops_are_counted_with_their_time() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--workers", "1"]);
    let mut client = server.client();
    client.send(&b"PING\r\n".repeat(200));
    (0..200).for_each(|_| assert_eq!(client.reply(), "+PONG\r\n"));
    // One round may be split by how the bytes arrive, but hardly into ten.
    assert!(number(&mut client, "eventloop_cmd_per_cycle_max") >= 20);
    let cycles = number(&mut client, "eventloop_cycles");
    for _ in 0..100 {
        client.ask("PING");
    }
    let more = number(&mut client, "eventloop_cycles") - cycles;
    // Each PING is a round, and there are some without a command; none counts twice.
    assert!((100..190).contains(&more), "{more} rounds for 100 commands");
    let fields = ["eventloop_duration_sum", "eventloop_duration_cmd_sum", "eventloop_duration_max"];
    // An INFO that comes so fast that it is part of the round of the one before finds that one's time with the
    // commands, and not yet with the rounds.
    wait_until("the time of commands is part of that of rounds", || {
        let [all_us, commands_us, longest_us] = numbers(&mut client, fields);
        assert!(longest_us <= all_us, "{longest_us} of {all_us}");
        0 < commands_us && commands_us <= all_us
    });
    wait_until("there are samples", || number(&mut client, "instantaneous_eventloop_duration_usec") > 0);
    assert!(number(&mut client, "instantaneous_eventloop_cycles_per_sec") > 0);
    // Sleep is no part of a round; the time in which other processes run meanwhile is.
    let mut naps_us = (0..5).map(|_| {
        let before_us = number(&mut client, "eventloop_duration_sum");
        std::thread::sleep(std::time::Duration::from_millis(500));
        number(&mut client, "eventloop_duration_sum") - before_us
    });
    assert!(naps_us.any(|nap_us| nap_us < 250_000), "naps are counted");
    assert_eq!(client.ask("CONFIG RESETSTAT"), "+OK\r\n");
    assert!(number(&mut client, "eventloop_cycles") < cycles);
    server.stop();
}

#[test]
fn the_size_of_a_reply_in_pieces_is_that_of_all_of_them() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.ask("SETRANGE long 2999999 x"), ":3000000\r\n");
    assert_eq!(client.ask("GET long").len(), 3_000_012);
    let shown = client.ask("COMMANDLOG GET 1 large-reply");
    assert!(shown.contains(":3000012\r\n*2\r\n$3\r\nGET\r\n$4\r\nlong\r\n"), "{shown}");
    assert_eq!(client.ask("COMMANDLOG LEN large-request"), ":0\r\n");
    server.stop();
}
