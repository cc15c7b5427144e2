//! Replies that are held back: the clients that they delay, and the ends of a wait.

mod process;

use process::{Server, TempDir, request, wait_until};
use std::net::Shutdown;
use std::time::{Duration, Instant};

#[test]
fn wait_delays_its_own_connection_and_nobody_else() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--workers", "1"]);
    let (mut waits, mut other) = (server.client(), server.client());
    let begun = Instant::now();
    waits.send(&[request(&[b"WAIT", b"1", b"1000"]), request(&[b"PING"])].concat());
    let mut asked = 0;
    while !waits.has_reply() {
        assert_eq!(other.ask("PING"), "+PONG\r\n");
        asked += 1;
    }
    // One or two might be answered together with the call that waits.
    assert!(asked > 3, "others are answered meanwhile");
    assert_eq!(waits.reply(), ":0\r\n");
    assert!(begun.elapsed() >= Duration::from_millis(1000), "it waits for replicas that could come");
    assert_eq!(waits.reply(), "+PONG\r\n", "what came behind it runs afterwards");
    assert_eq!(waits.ask("WAIT 0 0"), ":0\r\n");

    // In a transaction nothing waits.
    assert_eq!(waits.ask("MULTI"), "+OK\r\n");
    assert_eq!(waits.ask("WAIT 1 0"), "+QUEUED\r\n");
    assert_eq!(waits.ask("WAITAOF 0 1 0"), "+QUEUED\r\n");
    let replies = waits.ask("EXEC");
    assert!(replies.starts_with("*2\r\n:0\r\n*2\r\n"), "{replies:?}");
    server.stop();
}

#[test]
fn waitaof_answers_when_the_log_is_on_the_disk() {
    for durability in ["os", "fsync"] {
        let dir = TempDir::new();
        let server = Server::start(dir.path(), &["--durability", durability]);
        let mut client = server.client();
        // Nothing was written yet.
        assert_eq!(client.ask("WAITAOF 1 0 0"), "*2\r\n:1\r\n:0\r\n");
        for number in 0..20 {
            let number = number.to_string();
            let set = request(&[b"SET", b"k", number.as_bytes()]);
            client.send(&[set, request(&[b"WAITAOF", b"1", b"0", b"0"])].concat());
            assert_eq!(client.reply(), "+OK\r\n");
            assert_eq!(client.reply(), "*2\r\n:1\r\n:0\r\n");
            assert_eq!(client.info("log_unsynced_bytes"), "0", "{durability}");
        }
        // Replicas do not come, but what is on the disk is told.
        assert_eq!(client.ask("WAITAOF 1 1 50"), "*2\r\n:1\r\n:0\r\n");
        server.stop();
    }
}

#[test]
fn waitaof_needs_a_disk() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--engine", "memory"]);
    let text = "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.\r\n";
    assert_eq!(server.client().ask("WAITAOF 1 0 0"), text);
    server.stop();
}

#[test]
fn nothing_is_left_of_a_client_that_goes_while_it_waits() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut other = server.client();
    for _ in 0..20 {
        let mut waits = server.client();
        waits.send(&[request(&[b"WAIT", b"1", b"0"]), request(&[b"SET", b"k", b"v"])].concat());
    }
    wait_until("they are gone", || other.info("connected_clients") == "1");
    assert_eq!(other.ask("GET k"), "$-1\r\n", "what they sent behind it did not run");

    // A client that only ends its own direction gets its reply if one is to come.
    let mut half = server.client();
    half.send(&request(&[b"WAIT", b"1", b"50"]));
    half.socket.shutdown(Shutdown::Write).expect("it is connected");
    assert_eq!(half.rest(), ":0\r\n");
    server.stop();
}
