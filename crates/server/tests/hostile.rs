//! Clients that mean harm, or are broken: requests cut off, malformed, enormous, drop by drop; connections half closed,
//! reset, opened by the thousand. Other clients are served meanwhile, nothing half done is seen, and memory and files
//! are given back.

mod process;

use process::{Client, Server, TempDir, request, wait_until};
use socket2::SockRef;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

impl Server {
    fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it runs").count()
    }

    /// Waits until only `client` is connected, and as many files are open as at `before`.
    #[track_caller]
    fn is_alone_again(&self, client: &mut Client<TcpStream>, files: usize) {
        wait_until("all others are gone", || client.info("connected_clients") == "1");
        // Flushes and compactions open files of their own.
        wait_until("their files are closed", || self.open_files() <= files + 20);
        assert_eq!(client.ask("PING"), "+PONG\r\n");
    }
}

/// Closes by a reset, as a process that is killed with unread data does.
fn reset(client: Client<TcpStream>) {
    SockRef::from(&client.socket).set_linger(Some(Duration::ZERO)).expect("it can be set");
}

/// Sends bytes that may not be taken to their end: the server closes when it has seen enough.
fn push(client: &mut Client<TcpStream>, bytes: &[u8]) {
    let _ = client.socket.write_all(bytes);
}

#[test]
fn a_request_that_is_cut_off_has_no_effect_wherever_it_ends() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut other = server.client();
    let files = server.open_files();
    let whole = [request(&[b"SET", b"cut", b"a value of some length"]), b"SET cut inline\r\n".to_vec()];
    let block =
        [b"MULTI\r\nSET cut 1\r\n".to_vec(), request(&[b"APPEND", b"cut", b"2"]), b"EXEC\r\n".to_vec()].concat();
    for bytes in whole.iter().chain([&block]) {
        for length in 0..bytes.len() - 1 {
            let mut client = server.client();
            client.send(&bytes[..length]);
            match length % 3 {
                0 => drop(client),
                1 => reset(client),
                _ => client.socket.shutdown(Shutdown::Both).expect("it is connected"),
            }
        }
    }
    server.is_alone_again(&mut other, files);
    assert_eq!(other.ask("EXISTS cut"), ":0\r\n");
    server.stop();
}

#[test]
fn what_is_no_request_is_refused_and_its_client_closed() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut other = server.client();
    let long = |begin: &str, length: usize| [begin.as_bytes(), &vec![b'1'; length]].concat();
    let cases: [(&str, Vec<u8>, &str); 12] = [
        ("no length of an array", b"*x\r\n".into(), "invalid multibulk length"),
        ("too many arguments", b"*2147483648\r\n".into(), "invalid multibulk length"),
        ("an endless count of arguments", long("*", 70_000), "too big mbulk count string"),
        ("no bulk string", b"*1\r\n:1\r\n".into(), "expected '$', got ':'"),
        ("no length of a string", b"*1\r\n$x\r\n".into(), "invalid bulk length"),
        ("a negative length", b"*1\r\n$-1\r\n".into(), "invalid bulk length"),
        ("a longer string than may be", b"*1\r\n$536870913\r\n".into(), "invalid bulk length"),
        ("a length beyond numbers", b"*1\r\n$99999999999999999999\r\n".into(), "invalid bulk length"),
        ("an endless length", long("*1\r\n$", 70_000), "too big bulk count string"),
        ("an endless line", vec![b'x'; 70_000], "too big inline request"),
        ("quotes that do not end", b"SET \"a b\r\n".into(), "unbalanced quotes in request"),
        ("text behind a quote", b"SET \"a\"b\r\n".into(), "unbalanced quotes in request"),
    ];
    for (rule, bytes, why) in cases {
        let mut client = server.client();
        client.send(b"SET before 1\r\n");
        assert_eq!(client.reply(), "+OK\r\n", "{rule}");
        push(&mut client, &bytes);
        push(&mut client, b"\r\nSET behind 1\r\n");
        assert_eq!(client.rest(), format!("-ERR Protocol error: {why}\r\n"), "{rule}");
    }
    assert_eq!(other.ask("EXISTS before behind"), ":1\r\n");
    server.stop();
}

/// A page in a browser can post anything to a port of its own host: headers come first, and the body may be commands.
#[test]
fn commands_inside_a_request_of_http_do_not_run() {
    let dir = TempDir::new();
    let log = dir.path().join("server.log");
    let server = Server::start(dir.path(), &["--logfile", log.to_str().expect("a plain path")]);
    let mut other = server.client();
    let post = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18\r\n\r\nSET behind 1\r\n";
    let cases: [(&str, Vec<u8>); 11] = [
        ("a whole request", post.into()),
        ("in lower case", b"post /\r\nSET behind 1\r\n".into()),
        ("quoted", b"\"POST\" /\r\nSET behind 1\r\n".into()),
        ("as an array", [request(&[b"pOsT"]), request(&[b"SET", b"behind", b"1"])].concat()),
        ("a header alone", b"Host: localhost\r\nSET behind 1\r\n".into()),
        ("a header as an array", [request(&[b"hOST:", b"x"]), request(&[b"SET", b"behind", b"1"])].concat()),
        ("another method, by its header", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nSET behind 1\r\n".into()),
        ("replies before it do not leave", b"SET before 1\r\nPING\r\nPOST /\r\nSET behind 1\r\n".into()),
        ("in a transaction", b"MULTI\r\nSET behind 1\r\nPOST /\r\nEXEC\r\nSET behind 1\r\n".into()),
        ("bound to a channel", b"SUBSCRIBE c\r\nPOST /\r\nSET behind 1\r\n".into()),
        ("far behind", [b"PING\r\n".repeat(40), post.to_vec()].concat()),
    ];
    for (rule, bytes) in &cases {
        let mut client = server.client();
        push(&mut client, bytes);
        assert_eq!(client.rest(), "", "{rule}");
    }
    assert_eq!(other.ask("EXISTS before behind"), ":1\r\n");
    assert_eq!(other.ask("HOST x"), "-ERR unknown command 'HOST', with args beginning with: 'x' \r\n");

    // No password is needed to be turned away, no pause delays it, and a reply that has left has left.
    other.ask("CONFIG SET requirepass s3cret");
    let mut stranger = server.client();
    push(&mut stranger, b"POST /\r\n");
    assert_eq!(stranger.rest(), "");
    let mut known = server.client();
    assert_eq!(known.ask("AUTH s3cret"), "+OK\r\n");
    assert_eq!(other.ask("CLIENT PAUSE 600000 ALL"), "+OK\r\n");
    push(&mut known, b"POST /\r\n");
    assert_eq!(known.rest(), "");

    let logged = std::fs::read_to_string(&log).expect("there is a log");
    let warnings: Vec<&str> = logged.lines().filter(|line| line.contains("SECURITY ATTACK")).collect();
    assert_eq!(warnings.len(), 1, "not one for each: {warnings:?}");
    assert!(warnings[0].contains(" WARN ") && warnings[0].contains("Connection from 127.0.0.1:"), "{warnings:?}");
    drop(server);
}

#[test]
fn any_bytes_leave_the_server_as_it_was() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut other = server.client();
    let files = server.open_files();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound as u64) as usize
    };
    let parts: [&[u8]; 16] = [
        b"*",
        b"$",
        b"\r\n",
        b"3",
        b"-1",
        b"0",
        b"\0",
        b"\xff\xfe",
        b" ",
        b"\"",
        b"GET",
        b"PING",
        b"k",
        b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        b"MULTI\r\n",
        b"16777217",
    ];
    for _ in 0..500 {
        let bytes: Vec<u8> = (0..random(60)).flat_map(|_| parts[random(parts.len())]).copied().collect();
        let mut client = server.client();
        push(&mut client, &bytes);
        if random(2) == 0 {
            // Any reply is right, but the connection ends.
            client.socket.shutdown(Shutdown::Write).expect("it is connected");
            client.rest();
        }
    }
    server.is_alone_again(&mut other, files);
    server.stop();
}

#[test]
fn promises_of_huge_requests_take_no_memory() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut other = server.client();
    let before = server.resident_bytes();
    let promises: [&[u8]; 4] = [
        b"*2\r\n$3\r\nGET\r\n$536870912\r\n",
        b"*1048576\r\n$4\r\nMGET\r\n",
        b"*2147483647\r\n",
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$400000000\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    ];
    let mut clients: Vec<_> = (0..400).map(|_| server.client()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        client.send(promises[at % promises.len()]);
    }
    // All of it has been read once this one, which came last to each event loop, has its answers.
    for _ in 0..10 {
        assert_eq!(server.client().ask("PING"), "+PONG\r\n");
        assert_eq!(other.ask("SET k v"), "+OK\r\n");
    }
    let more = server.resident_bytes().saturating_sub(before);
    assert!(more < 64 << 20, "400 promises of up to 512 MB took {} MB", more >> 20);
    drop(clients);
    wait_until("they are gone", || other.info("connected_clients") == "1");
    server.stop();
}

#[test]
fn more_than_may_be_sent_ahead_closes_the_client() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--client-query-buffer-limit", "1mb"]);
    let mut other = server.client();
    // A request, a transaction, and a request of many arguments that never ends.
    let mut large = server.client();
    push(&mut large, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3000000\r\n");
    push(&mut large, &vec![b'x'; 3_000_000]);
    assert_eq!(large.rest(), "-ERR Protocol error: too big request\r\n");
    let mut block = server.client();
    assert_eq!(block.ask("MULTI"), "+OK\r\n");
    for _ in 0..30 {
        push(&mut block, &request(&[b"SET", b"k", &[b'x'; 100_000]]));
    }
    assert!(!block.rest().contains("EXEC"), "it is closed");
    let mut many = server.client();
    push(&mut many, b"*1000000\r\n$3\r\nDEL\r\n");
    let part = b"$1\r\nk\r\n".repeat(1000);
    wait_until("it is closed", || many.socket.write_all(&part).is_err());
    assert_eq!(other.ask("EXISTS k"), ":0\r\n");
    let mut wrong = server.client();
    push(&mut wrong, b"*x\r\n");
    assert_eq!(wrong.rest(), "-ERR Protocol error: invalid multibulk length\r\n");
    assert_eq!(other.info("client_query_buffer_limit_disconnections"), "3");
    assert_eq!(other.ask("CONFIG RESETSTAT"), "+OK\r\n");
    assert_eq!(other.info("client_query_buffer_limit_disconnections"), "0");
    server.stop();
}

#[test]
fn clients_that_send_drop_by_drop_delay_nobody() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--workers", "1"]);
    let mut other = server.client();
    let bytes = request(&[b"APPEND", b"slow", b"0123456789"]);
    let mut slow: Vec<_> = (0..300).map(|_| server.client()).collect();
    for byte in &bytes {
        for client in &mut slow {
            client.send(std::slice::from_ref(byte));
        }
        assert_eq!(other.ask("PING"), "+PONG\r\n");
    }
    for client in &mut slow {
        assert!(client.reply().starts_with(':'));
    }
    assert_eq!(other.ask("STRLEN slow"), ":3000\r\n");
    server.stop();
}

#[test]
fn a_client_that_has_said_all_still_hears_all() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let value = vec![b'v'; 100_000];
    assert_eq!(server.client().ask_words(&[b"SET", b"k", &value]), "+OK\r\n");
    for (rule, count) in [("one", 1), ("as many as a turn has", 1500), ("more than sockets hold", 300)] {
        let mut client = server.client();
        let get: &[u8] = if count == 300 { b"GET k\r\n" } else { b"INCR n\r\n" };
        let pipeline = get.repeat(count);
        client.send(&pipeline);
        client.socket.shutdown(Shutdown::Write).expect("it is connected");
        let rest = client.rest();
        let replies = rest.matches(if count == 300 { "$100000\r\n" } else { ":" }).count();
        assert_eq!(replies, count, "{rule}");
    }
    // Nothing behind QUIT is run, and half a request behind the last one is nothing.
    let mut client = server.client();
    client.send(b"PING\r\nQUIT\r\nSET quit 1\r\n");
    assert_eq!(client.rest(), "+PONG\r\n+OK\r\n");
    let mut client = server.client();
    client.send(b"PING\r\nSET quit");
    client.socket.shutdown(Shutdown::Write).expect("it is connected");
    assert_eq!(client.rest(), "+PONG\r\n");
    assert_eq!(server.client().ask("EXISTS quit"), ":0\r\n");
    server.stop();
}

#[test]
fn clients_that_vanish_in_the_middle_of_a_reply_leave_nothing() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut other = server.client();
    assert_eq!(other.ask_words(&[b"SET", b"k", &vec![b'v'; 3_000_000]]), "+OK\r\n");
    let files = server.open_files();
    for round in 0..200 {
        let mut client = server.client();
        client.send(&b"GET k\r\n".repeat(5));
        if round % 2 == 0 {
            let mut some = [0; 1000];
            client.socket.read_exact(&mut some).expect("the reply begins");
        }
        if round % 3 == 0 { reset(client) } else { drop(client) }
    }
    server.is_alone_again(&mut other, files);
    server.stop();
}

/// Thousands of connections, some with a name, a transaction, watched keys and half a request, are opened and dropped.
#[test]
fn memory_and_files_come_back_after_thousands_of_connections() {
    const BATCH: usize = 400;
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut other = server.client();
    let files = server.open_files();
    let round = || {
        let mut clients: Vec<_> = (0..BATCH).map(|_| server.client()).collect();
        for (at, client) in clients.iter_mut().enumerate() {
            let said: &[u8] = match at % 5 {
                0 => b"PING\r\n",
                1 => b"WATCH a b c\r\nMULTI\r\nSET a 1\r\n",
                2 => b"HELLO 3\r\nCLIENT SETNAME somebody\r\nGET a\r\n",
                3 => b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\nxxxxxxxxxxxxxx",
                _ => b"",
            };
            client.send(said);
        }
        for (at, client) in clients.iter_mut().enumerate() {
            if at % 5 < 3 {
                client.reply();
            }
        }
        for (at, client) in clients.into_iter().enumerate() {
            if at % 2 == 0 { reset(client) } else { drop(client) }
        }
    };
    // Memory that allocators and tables keep for the next time is there after the first rounds.
    (0..4).for_each(|_| round());
    server.is_alone_again(&mut other, files);
    let before = server.resident_bytes();
    (0..12).for_each(|_| round());
    server.is_alone_again(&mut other, files);
    let after = server.resident_bytes();
    assert!(after <= before + (8 << 20), "from {} to {} MB over 4800 connections", before >> 20, after >> 20);
    assert_eq!(other.ask("EXISTS a k"), ":0\r\n");
    server.stop();
}

#[test]
fn a_flood_beyond_maxclients_is_told_and_closed() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--maxclients", "20"]);
    let mut inside = server.client();
    wait_until("who asked whether it is up has gone", || inside.info("connected_clients") == "1");
    let mut kept: Vec<_> = (0..19).map(|_| server.client()).collect();
    assert!(kept.iter_mut().all(|client| client.ask("PING") == "+PONG\r\n"));
    let files = server.open_files();
    for _ in 0..500 {
        assert_eq!(server.client().rest(), "-ERR max number of clients reached\r\n");
    }
    assert_eq!(inside.ask("SET k v"), "+OK\r\n");
    assert!(server.open_files() <= files + 20);
    drop(kept);
    wait_until("there is room again", || server.client().ask("PING") == "+PONG\r\n");
    server.stop();
}
