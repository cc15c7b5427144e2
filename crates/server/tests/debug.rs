//! DEBUG on a whole server.

mod process;

use process::{Server, TempDir, request, wait_until};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const ALLOWED: &[&str] = &["--enable-debug-command", "yes"];

#[test]
fn who_may_is_a_matter_of_the_configuration() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let refused = "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a \
                   local connection, otherwise you need to set this option in the configuration file, and then restart the \
                   server.\r\n";
    assert_eq!(server.client().ask("DEBUG DIGEST"), refused);
    let text = server.client().ask("CONFIG SET enable-debug-command yes");
    assert!(text.contains("can't set immutable config"), "{text}");
    server.stop();

    let dir = TempDir::new();
    let socket = dir.path().join("socket");
    let path = socket.to_str().expect("a path of ours");
    let server = Server::start(dir.path(), &["--enable-debug-command", "local", "--unixsocket", path]);
    assert_eq!(server.client().ask("DEBUG CHANGE-REPL-ID"), "+OK\r\n");
    let mut local = process::Client { socket: UnixStream::connect(&socket).expect("it listens") };
    assert_eq!(local.ask("DEBUG CHANGE-REPL-ID"), "+OK\r\n");
    server.stop();
}

#[test]
fn sleep_delays_nobody_else() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[ALLOWED, &["--workers", "1"]].concat());
    let (mut sleeps, mut other) = (server.client(), server.client());
    let begun = Instant::now();
    sleeps.send(&[request(&[b"DEBUG", b"SLEEP", b"0.3"]), request(&[b"PING"])].concat());
    while begun.elapsed() < Duration::from_millis(200) {
        assert_eq!(other.ask("PING"), "+PONG\r\n");
    }
    assert_eq!(sleeps.reply(), "+OK\r\n");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert_eq!(sleeps.reply(), "+PONG\r\n");
    server.stop();
}

#[test]
fn expired_keys_stay_while_active_expiry_is_off() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), ALLOWED);
    let mut client = server.client();
    assert_eq!(client.ask("DEBUG SET-ACTIVE-EXPIRE 0"), "+OK\r\n");
    assert_eq!(client.ask("SET k v PX 1"), "+OK\r\n");
    // The sleep is longer than the rounds of the expiry are apart, as another key shows.
    wait_until("it has expired", || client.ask("EXISTS k") == ":0\r\n");
    assert_eq!(client.ask("DEBUG SLEEP 0.5"), "+OK\r\n");
    assert_eq!(client.ask("DBSIZE"), ":1\r\n");
    assert_eq!(client.ask("DEBUG SET-ACTIVE-EXPIRE 1"), "+OK\r\n");
    wait_until("it goes by itself", || client.ask("DBSIZE") == ":0\r\n");
    server.stop();
}

#[test]
fn values_are_described() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), ALLOWED);
    let mut client = server.client();
    for (value, described) in [
        ("5", "refcount:2147483647 encoding:int serializedlength:2 "),
        ("70000", "refcount:1 encoding:int serializedlength:5 "),
        ("9223372036854775807", "refcount:1 encoding:int serializedlength:20 "),
        ("abc", "refcount:1 encoding:embstr serializedlength:4 "),
    ] {
        assert_eq!(client.ask(&format!("SET k {value}")), "+OK\r\n");
        let line = client.ask("DEBUG OBJECT k");
        assert!(line.starts_with("+Value at:0x") && line.contains(described), "{line}");
        assert!(line.ends_with(" lru_seconds_idle:0\r\n"), "{line}");
    }
    let lengths = "+key_sds_len:1, key_sds_avail:0, key_zmalloc: 8, val_sds_len:3, val_sds_avail:0, val_zmalloc: 8\r\n";
    assert_eq!(client.ask("DEBUG SDSLEN k"), lengths);
    assert_eq!(client.ask("SET k 5"), "+OK\r\n");
    assert_eq!(client.ask("DEBUG SDSLEN k"), "-ERR Not an sds encoded string.\r\n");
    for subcommand in ["OBJECT", "SDSLEN", "LISTPACK", "QUICKLIST", "HTSTATS-KEY"] {
        assert_eq!(client.ask(&format!("DEBUG {subcommand} none")), "-ERR no such key\r\n");
    }
    assert_eq!(client.ask("DEBUG LISTPACK k"), "-ERR Not a listpack encoded object.\r\n");
    assert_eq!(client.ask("DEBUG QUICKLIST k 1"), "-ERR Not a quicklist encoded object.\r\n");
    let text = "-ERR The value stored at the specified key is not represented using an hash table\r\n";
    assert_eq!(client.ask("DEBUG HTSTATS-KEY k"), text);
    assert!(client.ask("DEBUG HTSTATS 0").contains("1 keys"));
    let long = "x".repeat(100);
    assert_eq!(client.ask(&format!("ZADD z 1 {long}")), ":1\r\n");
    assert!(client.ask("DEBUG HTSTATS-KEY z").contains("No table"), "a skiplist has one beside it");
    assert_eq!(client.ask("DEBUG HTSTATS 16"), "-ERR Out of range database\r\n");
    assert_eq!(client.ask("DEBUG HTSTATS x"), "-ERR value is not an integer or out of range\r\n");
    server.stop();
}

/// Expiry and several databases are compared with redis-server in the harness's tests.
#[test]
fn a_digest_over_many_keys_delays_nobody() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[ALLOWED, &["--workers", "1"]].concat());
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(client.ask("DEBUG DIGEST"), format!("+{}\r\n", "0".repeat(40)));
    let sets: Vec<u8> = (0..50_000).flat_map(|n| request(&[b"SET", format!("key:{n}").as_bytes(), b"value"])).collect();
    for part in sets.chunks(1 << 20) {
        client.send(part);
    }
    (0..50_000).for_each(|_| assert_eq!(client.reply(), "+OK\r\n"));
    client.send(&request(&[b"DEBUG", b"DIGEST"]));
    assert_eq!(other.ask("GET key:7"), "$5\r\nvalue\r\n");
    let digest = client.reply();
    assert_eq!(digest.len(), 43, "{digest}");
    // In a transaction it is of what the transaction sees.
    for (command, expected) in [("MULTI", "+OK\r\n"), ("FLUSHALL", "+QUEUED\r\n"), ("DEBUG DIGEST", "+QUEUED\r\n")] {
        assert_eq!(client.ask(command), expected);
    }
    assert_eq!(client.ask("EXEC"), format!("*2\r\n+OK\r\n+{}\r\n", "0".repeat(40)));
    server.stop();
}

#[test]
fn panic_ends_the_process_as_a_kill_does() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), ALLOWED);
    let mut client = server.client();
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    client.send(&request(&[b"DEBUG", b"PANIC"]));
    assert!(!server.ended().success());
    let server = Server::start(dir.path(), &[]);
    assert_eq!(server.client().ask("GET k"), "$1\r\nv\r\n");
    server.stop();
}
