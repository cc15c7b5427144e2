//! Limits of users over sockets: calls that wait, whom they do not hold up, and clients that are closed.

mod process;

use process::{Server, TempDir, request, wait_until};
use std::time::{Duration, Instant};

/// A field of a user's line in INFO.
fn figure(server: &Server, name: &str) -> u64 {
    let line = server.client().info("limits0");
    let value = line.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("{name} is in {line:?}")).parse().expect("a number")
}

#[test]
fn calls_beyond_the_rate_wait_and_hold_up_nobody_else() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut admin = server.client();
    assert_eq!(admin.ask("ACL SETUSER bob on nopass ~* +@all rate=1000"), "+OK\r\n");
    let mut clients = [server.client(), server.client()];
    let begin = Instant::now();
    for client in &mut clients {
        assert_eq!(client.ask("AUTH bob x"), "+OK\r\n");
        client.send(&request(&[b"INCR", b"n"]).repeat(1000));
    }
    // Who is somebody else, or looks at it, does not wait.
    let mut asked = 0;
    while admin.ask("GET n") != "$4\r\n2000\r\n" {
        asked += 1;
        assert!(begin.elapsed() < process::PATIENCE, "{asked}");
    }
    assert!(begin.elapsed() > Duration::from_millis(900), "two thousand calls need a second beside the first thousand");
    assert!(asked > 100, "{asked}");
    for client in &mut clients {
        let replies: Vec<String> = (0..1000).map(|_| client.reply()).collect();
        assert!(replies.iter().all(|reply| reply.starts_with(':')), "all of them ran");
    }
    assert!(figure(&server, "delayed") > 0 && figure(&server, "delayed_usec") > 0);
    assert_eq!((figure(&server, "calls"), figure(&server, "refused")), (2000, 0));
    server.stop();
}

#[test]
fn a_call_that_waits_is_let_go_with_its_limit_or_its_client() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut admin = server.client();
    assert_eq!(admin.ask_words(&[b"SET", b"large", &vec![b'x'; 1 << 20]]), "+OK\r\n");
    // An hour of its bandwidth.
    assert_eq!(admin.ask("ACL SETUSER bob on nopass ~* +@all bandwidth=300"), "+OK\r\n");
    let mut bob = server.client();
    assert_eq!(bob.ask("AUTH bob x"), "+OK\r\n");
    assert_eq!(bob.ask("GET large").len(), (1 << 20) + 12);
    bob.send(&request(&[b"PING"]));
    let mut other = server.client();
    assert_eq!(other.ask("AUTH bob x"), "+OK\r\n");
    other.send(&request(&[b"PING"]));
    wait_until("both wait", || figure(&server, "delayed") >= 2);
    assert_eq!(figure(&server, "used_connections"), 2);
    drop(other);
    wait_until("the one that has gone is not waited for", || figure(&server, "used_connections") == 1);
    assert!(!bob.has_reply());
    assert_eq!(admin.ask("ACL SETUSER bob bandwidth=0"), "+OK\r\n");
    assert_eq!(bob.reply(), "+PONG\r\n");
    server.stop();
}

#[test]
fn connections_that_take_too_much_memory_are_closed() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut admin = server.client();
    assert_eq!(admin.ask("ACL SETUSER bob on nopass ~* +@all memory=2mb"), "+OK\r\n");
    let mut kept = server.client();
    assert_eq!(kept.ask("AUTH bob x"), "+OK\r\n");
    // Requests that never end, of others as well.
    let begun = |user: &str| {
        let mut client = server.client();
        assert_eq!(client.ask(&format!("AUTH {user} x")), "+OK\r\n");
        client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n");
        client.send(&vec![b'x'; 700_000]);
        client
    };
    let others: Vec<_> = (0..5).map(|_| begun("default")).collect();
    let large: Vec<_> = (0..10).map(|_| begun("bob")).collect();
    wait_until("some are closed", || figure(&server, "closed") >= 8 && figure(&server, "used_memory") <= 2 << 20);
    wait_until("those have gone", || figure(&server, "used_connections") == 11 - figure(&server, "closed"));
    // Of buffers that hold a megabyte, one or two have room.
    let closed = figure(&server, "closed");
    assert!((8..=9).contains(&closed), "as many as have to: {closed}");
    assert_eq!(kept.ask("PING"), "+PONG\r\n", "small ones stay");
    let mut others: Vec<_> = others;
    for other in &mut others {
        other.send(&vec![b'x'; 300_000]);
        other.send(b"\r\n");
        assert_eq!(other.reply(), "+OK\r\n", "and those of other users");
    }
    drop(large);
    server.stop();
}
