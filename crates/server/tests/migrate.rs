//! MIGRATE to and from a real redis-server, to another server of ours, and to targets that misbehave.

mod process;

use haypile_harness::small_disk::SmallDisk;
use process::redis::redis;
use process::{Client, PATIENCE, Server, TempDir, free_port, request, wait_until};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

/// A timeout in milliseconds that suffices for every target that answers.
const LONG: &str = "60000";

const HUNG: &str = "-IOERR error or timeout reading to target instance\r\n";

fn ours(dir: &TempDir, more: &[&str]) -> Server {
    Server::start(dir.path(), &[&["--enable-debug-command", "yes"], more].concat())
}

type Caller = Client<TcpStream>;

/// MIGRATE of the words behind the target's port.
fn migrate(client: &mut Caller, target: u16, rest: &[&str]) -> String {
    client.ask_words(&migrate_words(&target.to_string(), rest))
}

fn migrate_words<'a>(port: &'a str, rest: &[&'a str]) -> Vec<&'a [u8]> {
    ["MIGRATE", "127.0.0.1", port].iter().chain(rest).map(|word| word.as_bytes()).collect()
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// Keys of all types and of several sizes, some with deadlines.
fn fill(client: &mut Caller) -> Vec<&'static str> {
    for command in [
        "SET plain text",
        "SET number 12345",
        "SETRANGE long 300000 end",
        "SETRANGE longer 3000000 end",
        "RPUSH list a b c",
        "SADD numbers 1 2 3",
        "SADD set a b 3",
        "ZADD zset 1 a 2.5 b -inf c",
        "HSET hash a 1 b 2",
        "XADD stream 1-1 a 1",
        "XADD stream 2-1 b 2",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group consumer COUNT 1 STREAMS stream >",
        "PEXPIRE plain 100000000",
        "PEXPIRE hash 100000000",
        "PEXPIRE stream 100000000",
    ] {
        let reply = client.ask(command);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
    }
    for element in 0..3000 {
        for command in ["RPUSH biglist", "SADD bigset", "ZADD bigzset 7", "HSET bighash f"] {
            let sep = if command.ends_with('f') { "" } else { " " };
            let value = if command.starts_with("HSET") { " v" } else { "" };
            client.send(format!("{command}{sep}element-{element}{value}\r\n").as_bytes());
        }
    }
    for _ in 0..12_000 {
        assert!(client.reply().starts_with(':'));
    }
    // Longer than what is held of a payload.
    let bulk =
        |n: usize| (0..400).map(|at| (b'a' + (n * 31 + at * at * 7 % (n + 3)) as u8 % 26) as char).collect::<String>();
    for n in 0..4000 {
        let (id, bulk) = (format!("{}-1", n + 1), bulk(n));
        client.send(format!("HSET bulkhash f{n} {bulk}\r\nXADD bulkstream {id} f {bulk}\r\n").as_bytes());
    }
    for _ in 0..8000 {
        assert!(!client.reply().starts_with('-'));
    }
    for command in [
        "XGROUP CREATE bulkstream z 0",
        "XGROUP CREATE bulkstream a 0",
        "XREADGROUP GROUP z two COUNT 1000 STREAMS bulkstream >",
        "XREADGROUP GROUP z one COUNT 1000 STREAMS bulkstream >",
        "XREADGROUP GROUP a one COUNT 1000 STREAMS bulkstream >",
    ] {
        assert!(!client.ask(command).starts_with('-'), "{command}");
    }
    vec![
        "longer",
        "bulkhash",
        "bulkstream",
        "plain",
        "number",
        "long",
        "list",
        "numbers",
        "set",
        "zset",
        "hash",
        "stream",
        "biglist",
        "bigset",
        "bigzset",
        "bighash",
    ]
}

fn digests(client: &mut Caller, keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| client.ask(&format!("DEBUG DIGEST-VALUE {key}"))).collect()
}

/// Checks that all keys go from one server to the other, with their values and deadlines.
fn check_move(from: &Server, to: &Server) {
    let (mut from_client, mut to_client) = (from.client(), to.client());
    let keys = fill(&mut from_client);
    let before = digests(&mut from_client, &keys);
    let rest = [&["", "3", LONG, "KEYS"], &keys[..], &["missing"]].concat();
    assert_eq!(migrate(&mut from_client, to.port, &rest), "+OK\r\n");
    assert_eq!(from_client.ask("DBSIZE"), ":0\r\n");
    assert_eq!(to_client.ask("DBSIZE"), ":0\r\n");
    assert_eq!(to_client.ask("SELECT 3"), "+OK\r\n");
    assert_eq!(to_client.ask("DBSIZE"), format!(":{}\r\n", keys.len()));
    assert_eq!(digests(&mut to_client, &keys), before);
    for key in keys {
        let left: i64 = to_client.ask(&format!("PTTL {key}"))[1..].trim_end().parse().expect("a number");
        match key {
            "plain" | "hash" | "stream" => assert!((99_000_000..=100_000_000).contains(&left), "{key}: {left}"),
            _ => assert_eq!(left, -1, "{key}"),
        }
    }
    assert_eq!(to_client.ask("FLUSHALL"), "+OK\r\n");
}

#[test]
fn keys_of_all_types_move_between_ours_and_redis() {
    let [a, b, c] = [TempDir::new(), TempDir::new(), TempDir::new()];
    let (one, other, redis) = (ours(&a, &[]), ours(&b, &["--durability", "fsync"]), redis(&c, &[]));
    check_move(&one, &redis);
    check_move(&redis, &one);
    check_move(&one, &other);
    check_move(&other, &one);
}

#[test]
fn what_the_target_has_taken_goes_and_the_rest_stays() {
    let [a, b] = [TempDir::new(), TempDir::new()];
    let (server, target) = (ours(&a, &["--notify-keyspace-events", "KEA"]), redis(&b, &[]));
    let (mut client, mut there) = (server.client(), target.client());
    let mut listener = server.client();
    assert!(listener.ask("SUBSCRIBE __keyevent@0__:del").starts_with("*3"));
    client.ask("MSET a 1 b 2 c 3");
    there.ask("SET b theirs");
    let busy = "-ERR Target instance replied with error: BUSYKEY Target key name already exists.\r\n";
    assert_eq!(migrate(&mut client, target.port, &["", "0", LONG, "KEYS", "a", "b", "none", "c"]), busy);
    assert_eq!(client.ask("KEYS *"), "*1\r\n$1\r\nb\r\n");
    for key in ["a", "c"] {
        assert!(listener.reply().ends_with(&bulk(key)), "del is told of {key}");
    }
    assert_eq!(there.ask("MGET a b c"), "*3\r\n$1\r\n1\r\n$6\r\ntheirs\r\n$1\r\n3\r\n");
    assert_eq!(migrate(&mut client, target.port, &["b", "0", LONG]), busy);
    assert_eq!(migrate(&mut client, target.port, &["b", "0", LONG, "COPY", "REPLACE"]), "+OK\r\n");
    assert_eq!(client.ask("GET b"), bulk("2"));
    assert_eq!(there.ask("GET b"), bulk("2"));
    assert_eq!(migrate(&mut client, target.port, &["b", "0", LONG, "replace"]), "+OK\r\n");
    assert_eq!(client.ask("GET b"), "$-1\r\n");
    // Keys that a call has moved stay moved, whatever happens.
    server.kill();
    let server = ours(&a, &[]);
    assert_eq!(server.client().ask("DBSIZE"), ":0\r\n");
}

#[test]
fn there_is_nothing_to_move() {
    let dir = TempDir::new();
    let server = ours(&dir, &[]);
    let mut client = server.client();
    client.ask("DEBUG SET-ACTIVE-EXPIRE 0");
    client.ask("SET gone 1 PX 1");
    wait_until("it has expired", || client.ask("EXISTS gone") == ":0\r\n");
    // No server listens there, and none is asked.
    let port = free_port();
    assert_eq!(migrate(&mut client, port, &["gone", "0", LONG]), "+NOKEY\r\n");
    assert_eq!(migrate(&mut client, port, &["", "0", LONG, "KEYS", "none", "gone"]), "+NOKEY\r\n");
    assert_eq!(migrate(&mut client, port, &["", "0", LONG, "KEYS"]), "+NOKEY\r\n");
    client.ask("SET k 1");
    assert_eq!(migrate(&mut client, port, &["k", "0", LONG]), "-IOERR error or timeout writing to target instance\r\n");
    let nowhere = client.ask(&format!("MIGRATE no.such.host.invalid {port} k 0 {LONG}"));
    assert_eq!(nowhere, "-IOERR error or timeout connecting to the client\r\n");
    assert_eq!(client.ask("GET k"), bulk("1"));
}

#[test]
fn the_target_may_want_a_login() {
    let [a, b, c] = [TempDir::new(), TempDir::new(), TempDir::new()];
    let server = ours(&a, &[]);
    for target in [redis(&b, &["--requirepass", "secret"]), Server::start_at(c.path(), free_port(), &[])] {
        let mut there = target.client();
        there.ask("CONFIG SET requirepass secret");
        let mut client = server.client();
        client.ask("MSET a 1 b 2");
        let refused = "-ERR Target instance replied with error: ";
        for login in [&[][..], &["AUTH", "wrong"], &["AUTH2", "nobody", "secret"], &["AUTH2", "default", "wrong"]] {
            let rest = [&["", "0", LONG], login, &["KEYS", "a", "b"]].concat();
            let reply = migrate(&mut client, target.port, &rest);
            let code = if login.is_empty() { "NOAUTH " } else { "WRONGPASS " };
            assert!(reply.starts_with(&format!("{refused}{code}")), "{login:?}: {reply}");
            assert_eq!(client.ask("DBSIZE"), ":2\r\n");
        }
        assert_eq!(migrate(&mut client, target.port, &["a", "0", LONG, "AUTH", "secret"]), "+OK\r\n");
        assert_eq!(migrate(&mut client, target.port, &["b", "0", LONG, "AUTH2", "default", "secret"]), "+OK\r\n");
        assert_eq!(client.ask("DBSIZE"), ":0\r\n");
        there.ask("AUTH secret");
        assert_eq!(there.ask("MGET a b"), "*2\r\n$1\r\n1\r\n$1\r\n2\r\n");
    }
}

/// A target that takes one connection, gives these bytes, and then closes it, or keeps it until its other end is
/// closed.
fn false_target(gives: &'static [u8], closes: bool) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let serves = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("somebody comes");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let mut buffer = vec![0; 1 << 16];
        // A request comes before there is a reply.
        assert!(socket.read(&mut buffer).expect("something is sent") > 0);
        socket.write_all(gives).expect("it is taken");
        if closes {
            let _ = socket.shutdown(std::net::Shutdown::Write);
        }
        while socket.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    });
    (port, serves)
}

/// A target that takes one connection, reads a little, and goes.
fn false_target_that_goes() -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let serves = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("somebody comes");
        socket.read_exact(&mut [0; 100_000]).expect("a value is sent");
    });
    (port, serves)
}

#[test]
fn keys_stay_where_the_target_does_not_answer() {
    let dir = TempDir::new();
    let server = ours(&dir, &[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.ask("MSET a 1 b 2 c 3");
    // The target has taken one of three, and goes.
    let (port, target) = false_target(b"+OK\r\n+OK\r\n", true);
    assert_eq!(migrate(&mut client, port, &["", "0", LONG, "KEYS", "a", "b", "c"]), HUNG);
    assert_eq!(client.ask("MGET a b c"), "*3\r\n$-1\r\n$1\r\n2\r\n$1\r\n3\r\n");
    target.join().expect("it ends with the connection");
    // The target goes in the middle of a value.
    assert_eq!(client.ask("SETRANGE huge 60000000 x"), ":60000001\r\n");
    let (port, target) = false_target_that_goes();
    let writing = "-IOERR error or timeout writing to target instance\r\n";
    assert_eq!(migrate(&mut client, port, &["huge", "0", LONG]), writing);
    assert_eq!(client.ask("STRLEN huge"), ":60000001\r\n");
    target.join().expect("it has gone");
    // Bytes that are no reply end the call as well.
    let (port, target) = false_target(b"HTTP/1.1 400 Bad Request\r\n", false);
    assert_eq!(migrate(&mut client, port, &["b", "0", LONG]), HUNG);
    target.join().expect("it ends with the connection");
    // The target says nothing at all, until its time is over.
    let (port, target) = false_target(b"", false);
    let port_text = port.to_string();
    client.send(&request(&migrate_words(&port_text, &["b", "0", "700"])));
    assert_eq!(other.ask("SET d 4"), "+OK\r\n");
    assert_eq!(other.ask("GET c"), bulk("3"));
    assert_eq!(client.reply(), HUNG);
    assert_eq!(other.ask("GET b"), bulk("2"));
    target.join().expect("it ends with the connection");
}

/// A target that answers to the exchange of so many keys when it is told to.
fn slow_target(keys: usize) -> (u16, std::sync::mpsc::Receiver<()>, std::sync::mpsc::Sender<()>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let ((came, has_come), (go, goes)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let serves = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("somebody comes");
        let mut buffer = vec![0; 1 << 16];
        assert!(socket.read(&mut buffer).expect("something is sent") > 0);
        came.send(()).expect("the test waits");
        let mut answers = socket.try_clone().expect("it is a socket");
        let answering = std::thread::spawn(move || {
            goes.recv().expect("the test says when");
            // SELECT has one, too.
            answers.write_all(&b"+OK\r\n".repeat(keys + 1)).expect("it is taken");
        });
        while socket.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
        answering.join().expect("it was told to");
    });
    (port, has_come, go, serves)
}

#[test]
fn whoever_wants_a_key_under_way_waits_for_it_and_nobody_else() {
    let dir = TempDir::new();
    let server = ours(&dir, &[]);
    let (mut client, mut writer, mut other) = (server.client(), server.client(), server.client());
    client.ask("SET k 1");
    let (port, has_come, go, target) = slow_target(1);
    client.send(&request(&migrate_words(&port.to_string(), &["k", "0", LONG])));
    has_come.recv().expect("it is connected");
    let waits = other.info("lock_waits");
    writer.send(b"APPEND k more\r\n");
    wait_until("it waits for the key", || other.info("lock_waits") != waits);
    assert_eq!(other.ask("SET l 1"), "+OK\r\n");
    go.send(()).expect("the target waits");
    assert_eq!(client.reply(), "+OK\r\n");
    // The key was gone when its turn came.
    assert_eq!(writer.reply(), ":4\r\n");
    target.join().expect("it ends with the connection");
}

#[test]
fn an_exclusive_command_does_not_wait_for_a_target() {
    let dir = TempDir::new();
    let server = ours(&dir, &[]);
    let (mut client, mut other) = (server.client(), server.client());
    let changed =
        "-ERR a command on all keys has changed some of these meanwhile: they are on the target, and here\r\n";
    for (meanwhile, reply, left) in [
        // The value is the one that was sent, though in another life of the data.
        (&["SWAPDB 4 5"][..], "+OK\r\n", "$-1\r\n"),
        (&["DEBUG RELOAD"], "+OK\r\n", "$-1\r\n"),
        (&["FLUSHALL"], "+OK\r\n", "$-1\r\n"),
        (&["MULTI", "FLUSHALL", "SET k 2", "EXEC"], changed, "$1\r\n2\r\n"),
        (&["MULTI", "SWAPDB 4 5", "PEXPIRE k 1000000", "EXEC"], changed, "$1\r\n1\r\n"),
        (&["MULTI", "FLUSHALL", "SET k 1", "EXEC"], "+OK\r\n", "$-1\r\n"),
    ] {
        client.ask("SET k 1");
        let (port, has_come, go, target) = slow_target(1);
        client.send(&request(&migrate_words(&port.to_string(), &["k", "0", LONG])));
        has_come.recv().expect("it is connected");
        for command in meanwhile {
            let reply = other.ask(command);
            assert!(!reply.starts_with('-'), "{command}: {reply}");
        }
        go.send(()).expect("the target waits");
        assert_eq!(client.reply(), reply, "{meanwhile:?}");
        assert_eq!(client.ask("GET k"), left, "{meanwhile:?}");
        target.join().expect("it ends with the connection");
    }
}

/// The keys are on the target then, and here: in both places, never in none.
#[test]
fn keys_stay_where_the_disk_has_no_room_for_their_removal() {
    // The names of so many keys do not fit one segment of the log.
    const KEYS: usize = 12_000;
    let dir = TempDir::new();
    let Some(disk) = SmallDisk::mount(dir.path(), "size=128m") else { return };
    let small = ["--disk-free-min", "20mb", "--log-segment-size", "1mb", "--memtable-size", "4mb"];
    let server = Server::start(&disk.0, &small);
    let (mut client, mut other) = (server.client(), server.client());
    let names: Vec<String> = (0..KEYS).map(|n| format!("{n:0150}")).collect();
    for names in names.chunks(1000) {
        let pairs = names.iter().flat_map(|name| [name.as_bytes(), b"v"]);
        let words: Vec<&[u8]> = std::iter::once(&b"MSET"[..]).chain(pairs).collect();
        assert_eq!(client.ask_words(&words), "+OK\r\n");
    }
    let (port, has_come, go, target) = slow_target(KEYS);
    let (port, mut rest) = (port.to_string(), vec!["", "0", LONG, "KEYS"]);
    rest.extend(names.iter().map(String::as_str));
    client.send(&request(&migrate_words(&port, &rest)));
    has_come.recv().expect("it is connected");
    disk.leave(0).expect("the disk can be filled");
    wait_until("what was held for deletions is let go", || other.info("disk_reserve_bytes") == "0");
    disk.leave(0).expect("the disk can be filled");
    wait_until("nothing is written", || other.info("writes_refused") == "1");
    go.send(()).expect("the target waits");
    let reply = client.reply();
    assert!(reply.starts_with("-MISCONF Haypile cannot write: "), "{reply}");
    assert_eq!(other.ask("DBSIZE"), format!(":{KEYS}\r\n"));
    target.join().expect("it ends with the connection");
    disk.clear();
    wait_until("writes go on", || other.ask("DEL none") == ":0\r\n");
    assert_eq!(other.ask(&format!("GET {}", names[KEYS - 1])), bulk("v"));
    server.kill();
    let server = Server::start(&disk.0, &small);
    assert_eq!(server.client().ask("DBSIZE"), format!(":{KEYS}\r\n"));
    server.stop();
}

#[test]
fn targets_that_hang_take_no_thread_from_long_commands() {
    let dir = TempDir::new();
    let server = ours(&dir, &[]);
    let mut other = server.client();
    let hung: Vec<_> = (0..8)
        .map(|number| {
            let mut client = server.client();
            client.ask(&format!("SET k{number} v"));
            // The kernel accepts the connection; the target never does.
            let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
            let port = listener.local_addr().expect("it is bound").port().to_string();
            client.send(&request(&migrate_words(&port, &[&format!("k{number}"), "0", "1000"])));
            (client, listener)
        })
        .collect();
    other.ask("SETRANGE long 1000000 x");
    assert!(other.ask("DUMP long").starts_with('$'));
    // Each for its second.
    for (mut client, _listener) in hung {
        assert_eq!(client.reply(), HUNG);
    }
    assert_eq!(other.ask("DBSIZE"), ":9\r\n");
}

#[test]
fn a_call_is_answered_in_its_time_however_many_targets_hang() {
    let dir = TempDir::new();
    let server = ours(&dir, &[]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port().to_string();
    let (mut number, mut parked) = (0, Vec::new());
    // Makes a key. One may share its lock, of 16384, with one of those that hang, and is left to wait then.
    let mut with_key = || loop {
        let (mut client, key) = (server.client(), format!("k{number}"));
        number += 1;
        client.socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout can be set");
        let is_made = client.try_ask(&format!("SET {key} v")).is_some();
        client.socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        match is_made {
            true => return (client, key),
            false => parked.push(client),
        }
    };
    let mut call = |timeout: &str| {
        let (mut client, key) = with_key();
        client.send(&request(&migrate_words(&port, &[&key, "0", timeout])));
        client
    };
    // 32 calls may wait at the same time. Each of these is connected.
    let mut hung: Vec<_> = (0..32).map(|_| call(LONG)).collect();
    let connected: Vec<_> = hung.iter().map(|_| listener.accept().expect("each has a thread")).collect();
    let waiting: Vec<_> = (0..8).map(|_| call("1000")).collect();
    let (mut one, key) = with_key();
    let (_closed, port) = process::closed_port();
    let begun = std::time::Instant::now();
    // The clock answers calls that have no thread.
    let by_the_clock = "-IOERR error or timeout connecting to the client\r\n";
    assert_eq!(migrate(&mut one, port, &[&key, "0", "300"]), by_the_clock);
    let took = begun.elapsed();
    assert!((Duration::from_millis(300)..Duration::from_secs(5)).contains(&took), "{took:?} of 300 ms");
    assert_eq!(one.ask(&format!("GET {key}")), bulk("v"), "it can be asked for again");
    for mut client in waiting {
        assert_eq!(client.reply(), by_the_clock);
    }
    // The others are where they were, until their target goes.
    drop((listener, connected));
    for client in &mut hung {
        assert_eq!(client.reply(), HUNG);
    }
    parked.iter_mut().for_each(|client| assert_eq!(client.reply(), "+OK\r\n"));
    assert_eq!(one.ask("DBSIZE"), format!(":{number}\r\n"));
}

#[test]
fn a_stop_waits_for_an_answer_that_comes() {
    let dir = TempDir::new();
    let server = ours(&dir, &[]);
    let mut client = server.client();
    client.ask("MSET k 1 stays 2");
    let (port, has_come, go, target) = slow_target(1);
    client.send(&request(&migrate_words(&port.to_string(), &["k", "0", LONG])));
    has_come.recv().expect("it is connected");
    server.signal("TERM");
    // The event loops have ended.
    assert_eq!(client.rest(), "");
    go.send(()).expect("the target waits");
    assert_eq!(server.ended().code(), Some(0));
    target.join().expect("it ends with the connection");
    let server = ours(&dir, &[]);
    assert_eq!(server.client().ask("MGET k stays"), "*2\r\n$-1\r\n$1\r\n2\r\n");
}

#[test]
fn a_stop_does_not_wait_for_a_target_that_hangs() {
    let dir = TempDir::new();
    let server = ours(&dir, &[]);
    let mut client = server.client();
    client.ask("SET k 1");
    let (port, has_come, _go, target) = slow_target(1);
    client.send(&request(&migrate_words(&port.to_string(), &["k", "0", "500"])));
    has_come.recv().expect("it is connected");
    // The call ends, long before a test gives up.
    server.stop();
    drop(_go);
    assert!(target.join().is_err(), "it was never told to answer");
    let server = ours(&dir, &[]);
    assert_eq!(server.client().ask("GET k"), bulk("1"));
}

#[test]
fn a_transaction_cannot_migrate() {
    let dir = TempDir::new();
    let server = ours(&dir, &[]);
    let mut client = server.client();
    client.ask("SET k 1");
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    assert_eq!(migrate(&mut client, 1, &["k", "0", LONG]), "-ERR Command not allowed inside a transaction\r\n");
    assert!(client.ask("EXEC").starts_with("-EXECABORT"));
    // A client that watches a key learns that it has gone.
    let (port, _has_come, go, target) = slow_target(1);
    go.send(()).expect("the target is there");
    let mut watcher = server.client();
    watcher.ask("WATCH k");
    assert_eq!(migrate(&mut client, port, &["k", "0", LONG]), "+OK\r\n");
    watcher.ask("MULTI");
    watcher.ask("PING");
    assert_eq!(watcher.ask("EXEC"), "*-1\r\n");
    target.join().expect("it ends with the connection");
}

#[test]
fn the_keys_of_a_call_are_found() {
    let [a, b] = [TempDir::new(), TempDir::new()];
    let (server, redis) = (ours(&a, &[]), redis(&b, &[]));
    let (mut client, mut theirs) = (server.client(), redis.client());
    for call in [
        "h 1 k 0 1",
        "h 1 \"\" 0 1",
        "h 1 k 0 1 COPY AUTH x",
        "h 1 \"\" 0 1 KEYS a KEYS b",
        "h 1 \"\" 0 1 COPY REPLACE keys a",
        "h 1 \"\" 0 1 AUTH KEYS KEYS b",
        "h 1 \"\" 0 1 AUTH2 KEYS KEYS KEYS b c",
        "h 1 k 0 1 KEYS a",
        "h 1 \"\" 0 1 KEYS",
        "h 1 k 0 1 KEYS",
    ] {
        let call = format!("COMMAND GETKEYS MIGRATE {call}");
        assert_eq!(client.ask(&call), theirs.ask(&call), "{call}");
    }
}

#[test]
fn what_is_several_times_the_window_goes_whole() {
    let [a, b] = [TempDir::new(), TempDir::new()];
    let (server, target) = (ours(&a, &[]), ours(&b, &[]));
    let (mut client, mut there) = (server.client(), target.client());
    // Several times what may be under way, in keys that are long and in such that are short.
    let keys: Vec<String> = (0..2000).map(|number| format!("key:{number}")).collect();
    for (number, key) in keys.iter().enumerate() {
        let length = if number % 50 == 0 { 1_000_000 } else { 10 };
        client.send(format!("SETRANGE {key} {length} {number}\r\n").as_bytes());
    }
    for _ in &keys {
        assert!(client.reply().starts_with(':'));
    }
    let digest = client.ask("DEBUG DIGEST");
    let rest: Vec<&str> = ["", "0", LONG, "KEYS"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    assert_eq!(migrate(&mut client, target.port, &rest), "+OK\r\n");
    assert_eq!(client.ask("DBSIZE"), ":0\r\n");
    assert_eq!(there.ask("DEBUG DIGEST"), digest);
}
