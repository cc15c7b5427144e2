//! OBJECT and MEMORY on a whole server: with its clock, its settings and its allocator.

mod process;

use process::{Server, TempDir, wait_until};

#[test]
fn a_key_is_idle_since_it_was_last_used() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    assert_eq!(client.ask("OBJECT IDLETIME k"), ":0\r\n");
    let wait = |client: &mut process::Client<std::net::TcpStream>| {
        wait_until("a second has passed", || client.ask("OBJECT IDLETIME k") != ":0\r\n");
    };
    wait(&mut client);
    assert_eq!(client.ask("SET other v"), "+OK\r\n");
    assert_ne!(client.ask("OBJECT IDLETIME k"), ":0\r\n", "other keys do not count");
    assert_eq!(client.ask("GET k"), "$1\r\nv\r\n");
    assert_eq!(client.ask("OBJECT IDLETIME k"), ":0\r\n");
    wait(&mut client);
    // TOUCH counts all the same, as the documentation of CLIENT NO-TOUCH of 7.2 says.
    assert_eq!(client.ask("CLIENT NO-TOUCH on"), "+OK\r\n");
    assert_eq!(client.ask("GET k"), "$1\r\nv\r\n");
    assert_eq!(client.ask("APPEND k w"), ":2\r\n");
    assert_ne!(client.ask("OBJECT IDLETIME k"), ":0\r\n");
    assert_eq!(client.ask("TOUCH k"), ":1\r\n");
    assert_eq!(client.ask("OBJECT IDLETIME k"), ":0\r\n");
    wait(&mut client);
    // Inside a block it holds from where it stands.
    for command in ["MULTI", "GET k", "CLIENT NO-TOUCH off", "OBJECT IDLETIME k", "GET k", "OBJECT IDLETIME k"] {
        client.ask(command);
    }
    let replies = client.ask("EXEC");
    assert!(replies.starts_with("*5\r\n$2\r\nvw\r\n+OK\r\n:") && !replies.contains("+OK\r\n:0\r\n"), "{replies:?}");
    assert!(replies.ends_with("$2\r\nvw\r\n:0\r\n"), "{replies:?}");
    server.stop();
}

#[test]
fn the_policy_chooses_what_is_noted() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--maxmemory-policy", "volatile-lfu", "--lfu-log-factor", "0"]);
    let mut client = server.client();
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    assert_eq!(client.ask("OBJECT FREQ k"), ":5\r\n");
    assert_eq!(client.ask("CONFIG SET lfu-decay-time 0"), "+OK\r\n");
    assert_eq!(client.ask("GET k"), "$1\r\nv\r\n");
    assert_eq!(client.ask("OBJECT FREQ k"), ":6\r\n");
    assert!(client.ask("OBJECT IDLETIME k").starts_with("-ERR An LFU maxmemory policy is selected"));
    assert_eq!(client.ask("CONFIG SET maxmemory-policy allkeys-lru"), "+OK\r\n");
    assert!(client.ask("OBJECT FREQ k").starts_with("-ERR An LFU maxmemory policy is not selected"));
    assert_eq!(client.ask("GET k"), "$1\r\nv\r\n");
    assert_eq!(client.ask("OBJECT IDLETIME k"), ":0\r\n");
    server.stop();
}

#[test]
fn the_allocator_is_asked_and_tidied_up() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    assert!(client.ask("MEMORY MALLOC-STATS").contains("jemalloc"));
    let value = vec![b'x'; 100_000];
    for number in 0..200 {
        let key = format!("k{number}");
        assert_eq!(client.ask_words(&[b"SET", key.as_bytes(), &value]), "+OK\r\n");
    }
    let stats = client.ask("MEMORY STATS");
    let figure = |name: &str| -> u64 {
        let (_, rest) = stats.split_once(&format!("{name}\r\n:")).unwrap_or_else(|| panic!("{name} in {stats:?}"));
        rest.split('\r').next().and_then(|digits| digits.parse().ok()).expect("a number")
    };
    assert_eq!(figure("keys.count"), 200);
    assert!(figure("dataset.bytes") > 20_000_000, "{stats:?}");
    assert!(figure("peak.allocated") >= figure("total.allocated"));
    assert!(figure("allocator.resident") >= figure("allocator.active"));
    assert_eq!(client.ask("MEMORY PURGE"), "+OK\r\n");
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    assert_eq!(client.ask("MEMORY PURGE"), "+QUEUED\r\n");
    assert_eq!(client.ask("EXEC"), "*1\r\n+OK\r\n");
    assert!(client.ask("MEMORY DOCTOR").starts_with('$'));
    server.stop();
}

/// In Redis both keys would be `raw`, and larger than after a SET.
#[test]
fn a_value_is_told_as_if_it_were_set_as_a_whole() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.ask("APPEND k 5"), ":1\r\n");
    assert_eq!(client.ask("APPEND k 1"), ":2\r\n");
    assert_eq!(client.ask("SETRANGE e 2 x"), ":3\r\n");
    assert_eq!(client.ask("OBJECT ENCODING k"), "$3\r\nint\r\n");
    assert_eq!(client.ask("OBJECT ENCODING e"), "$6\r\nembstr\r\n");
    assert_eq!(client.ask("OBJECT REFCOUNT k"), ":2147483647\r\n");
    assert_eq!(client.ask("MEMORY USAGE k"), ":48\r\n");
    server.stop();
}
