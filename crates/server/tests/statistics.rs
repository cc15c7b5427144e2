//! What is counted of commands, seen over sockets.

mod process;

use process::{Server, TempDir};

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
