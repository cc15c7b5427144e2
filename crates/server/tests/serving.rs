//! The service that clients see over sockets: order, bounds, protocols, many of them at once.

mod process;

use process::{Client, PATIENCE, Server, TempDir, request, wait_until};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

/// Messages to many clients leave some at a time; none of these is answered before it has all that came earlier.
#[test]
fn who_listens_has_all_messages_before_its_next_reply() {
    const LISTENERS: usize = 60;
    const MESSAGES: usize = 100;
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--workers", "1"]);
    let mut publisher = server.client();
    let mut listeners: Vec<Client<_>> = (0..LISTENERS).map(|_| server.client()).collect();
    listeners.iter_mut().for_each(|listener| _ = listener.ask("SUBSCRIBE news"));
    for round in 0..20 {
        let publish: String = (0..MESSAGES).map(|number| format!("PUBLISH news {round}:{number}\r\n")).collect();
        publisher.send(publish.as_bytes());
        (0..MESSAGES).for_each(|_| assert_eq!(publisher.reply(), format!(":{LISTENERS}\r\n")));
        listeners.iter_mut().for_each(|listener| listener.send(b"PING\r\n"));
        for listener in &mut listeners {
            for number in 0..MESSAGES {
                let text = format!("{round}:{number}");
                let message = format!("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n${}\r\n{text}\r\n", text.len());
                assert_eq!(listener.reply(), message);
            }
            assert_eq!(listener.reply(), "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
        }
    }
    server.stop();
}

#[test]
fn commands_are_answered_in_order_however_they_arrive() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    assert_eq!(client.ask("GET k"), "$1\r\nv\r\n");
    assert_eq!(client.ask("NOSUCH a b"), "-ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' \r\n");
    assert_eq!(client.ask("GET"), "-ERR wrong number of arguments for 'get' command\r\n");

    // A pipeline, in one piece.
    let mut pipeline = Vec::new();
    (0..5000).for_each(|_| pipeline.extend_from_slice(&request(&[b"INCR", b"n"])));
    let mut replies = String::new();
    (1..=5000).for_each(|n| replies.push_str(&format!(":{n}\r\n")));
    let mut sender = client.socket.try_clone().expect("sockets can be shared");
    let writer = std::thread::spawn(move || sender.write_all(&pipeline).expect("the server reads"));
    let mut got = vec![0; replies.len()];
    client.socket.read_exact(&mut got).expect("the server answers");
    assert_eq!(String::from_utf8_lossy(&got), replies);
    writer.join().expect("it was sent");

    // A request, byte by byte.
    for byte in request(&[b"APPEND", b"k", b"\r\n\0!"]) {
        client.send(&[byte]);
        client.socket.flush().expect("it leaves");
    }
    assert_eq!(client.reply(), ":5\r\n");
    server.stop();
}

#[test]
fn a_connection_speaks_the_protocol_it_asked_for() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    let hello = client.ask("HELLO 3 SETNAME me");
    assert!(hello.starts_with("%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n"), "{hello:?}");
    assert_eq!(client.ask("GET none"), "_\r\n");
    assert_eq!(client.ask("CLIENT GETNAME"), "$2\r\nme\r\n");
    assert!(client.ask("HELLO 2").starts_with("*14\r\n"));
    assert_eq!(client.ask("GET none"), "$-1\r\n");
    assert_eq!(client.ask("QUIT"), "+OK\r\n");
    assert_eq!(client.rest(), "");

    let mut broken = server.client();
    broken.send(b"*1\r\n$4\r\nPING\r\n*1\r\n!4\r\nPING\r\n");
    assert_eq!(broken.rest(), "+PONG\r\n-ERR Protocol error: expected '$', got '!'\r\n");
    server.stop();
}

#[test]
fn large_values_go_in_and_come_out() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    for bytes in [10_000, 70_000, 5_000_000] {
        let value: Vec<u8> = (0..bytes).map(|at: usize| b'a' + (at % 23) as u8).collect();
        assert_eq!(client.ask_words(&[b"SET", b"large", &value]), "+OK\r\n");
        let expected = format!("${bytes}\r\n{}\r\n", String::from_utf8_lossy(&value));
        assert!(client.ask("GET large") == expected, "{bytes} bytes come back as they went");
        assert_eq!(client.ask("GETRANGE large 22 23"), "$2\r\nwa\r\n");
    }
    server.stop();
}

#[test]
fn a_client_that_does_not_read_delays_nobody_and_gets_everything() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--workers", "1"]);
    let (mut lazy, mut other) = (server.client(), server.client());
    let value = vec![b'x'; 10_000];
    assert_eq!(lazy.ask_words(&[b"SET", b"k", &value]), "+OK\r\n");
    // Far more than sockets and the bound of the output hold together.
    const COUNT: usize = 3000;
    let pipeline = request(&[b"GET", b"k"]).repeat(COUNT);
    let mut sender = lazy.socket.try_clone().expect("sockets can be shared");
    let writer = std::thread::spawn(move || sender.write_all(&pipeline).expect("the server reads"));
    for _ in 0..100 {
        assert_eq!(other.ask("PING"), "+PONG\r\n");
    }
    let mut replies = vec![0; COUNT * (value.len() + "$10000\r\n\r\n".len())];
    lazy.socket.read_exact(&mut replies).expect("all of it comes");
    assert_eq!(lazy.ask("PING"), "+PONG\r\n");
    writer.join().expect("it was sent");
    server.stop();
}

#[test]
fn many_clients_are_served_at_once() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut clients: Vec<_> = (0..200).map(|_| server.client()).collect();
    for _ in 0..5 {
        clients.iter_mut().for_each(|client| client.send(&request(&[b"INCR", b"n"]).repeat(10)));
        for client in &mut clients {
            (0..10).for_each(|_| assert!(client.reply().starts_with(':')));
        }
    }
    assert_eq!(clients[0].ask("GET n"), "$5\r\n10000\r\n");
    assert_eq!(clients[0].info("connected_clients"), "200");
    drop(clients);
    let mut client = server.client();
    process::wait_until("the others are gone", || client.info("connected_clients") == "1");
    server.stop();
}

#[test]
fn replies_wait_for_the_disk_if_they_are_to() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--durability", "fsync"]);
    let mut clients: Vec<_> = (0..20).map(|_| server.client()).collect();
    for round in 0..20 {
        for (at, client) in clients.iter_mut().enumerate() {
            client.send(format!("SET k{at} {round}\r\nGET k{at}\r\nPING\r\n").as_bytes());
        }
        for client in &mut clients {
            assert_eq!(client.reply(), "+OK\r\n");
            assert!(client.reply().ends_with(&format!("{round}\r\n")));
            assert_eq!(client.reply(), "+PONG\r\n");
        }
    }
    assert_ne!(clients[0].info("replies_waited_for_log"), "0");
    assert_eq!(clients[0].ask("CONFIG SET durability os"), "+OK\r\n");
    assert_eq!(clients[0].ask("SET k 1"), "+OK\r\n");
    server.stop();
}

/// While a session waits for the disk, replies leave before the tick, if they need not wait for the log.
#[test]
fn replies_beside_cold_reads_keep_their_order() {
    const KEYS: usize = 20_000;
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    let value = |key: usize| format!("{key:0500}");
    for keys in (0..KEYS).collect::<Vec<_>>().chunks(1000) {
        let requests = keys.iter().flat_map(|key| format!("SET cold{key} {}\r\n", value(*key)).into_bytes());
        client.send(&requests.collect::<Vec<u8>>());
        keys.iter().for_each(|_| assert_eq!(client.reply(), "+OK\r\n"));
    }
    server.stop();
    let server = Server::start(dir.path(), &["--durability", "fsync", "--row-cache-size", "0"]);
    let mut clients: Vec<_> = (0..8).map(|_| server.client()).collect();
    for round in 0..40 {
        let key = |client: usize| (round * 8 + client) * 53;
        for (at, client) in clients.iter_mut().enumerate() {
            let commands = format!("GET cold{}\r\nSET k{at} {round}\r\nGET k{at}\r\nPING\r\n", key(at));
            client.send(commands.as_bytes());
        }
        for (at, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.reply(), format!("$500\r\n{}\r\n", value(key(at))));
            assert_eq!(client.reply(), "+OK\r\n");
            assert!(client.reply().ends_with(&format!("{round}\r\n")));
            assert_eq!(client.reply(), "+PONG\r\n");
        }
    }
    assert_ne!(clients[0].info("commands_that_loaded_rows"), "0");
    assert_ne!(clients[0].info("replies_waited_for_log"), "0");
    server.stop();
}

#[test]
fn a_unix_socket_is_served_and_removed() {
    let dir = TempDir::new();
    let path = dir.path().join("haypile.sock");
    let arguments = ["--unixsocket", path.to_str().expect("the path is text"), "--unixsocketperm", "700"];
    let server = Server::start(dir.path(), &arguments);
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let socket = UnixStream::connect(&path).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let mut client = Client { socket };
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    assert_eq!(server.client().ask("GET k"), "$1\r\nv\r\n");
    server.stop();
    assert!(!path.exists());
}

#[test]
fn directives_about_clients_hold() {
    let dir = TempDir::new();
    let server = Server::start(
        dir.path(),
        &["--maxclients", "2", "--timeout", "1", "--rename-command", "GET", "FETCH", "--rename-command", "SET", ""],
    );
    let mut busy = server.client();
    process::wait_until("who asked whether it is up has gone", || busy.info("connected_clients") == "1");
    let mut idle = server.client();
    assert_eq!(idle.ask("PING"), "+PONG\r\n");
    assert_eq!(busy.ask("FETCH k"), "$-1\r\n");
    assert!(busy.ask("GET k").starts_with("-ERR unknown command 'GET'"));
    assert!(busy.ask("SET k v").starts_with("-ERR unknown command 'SET'"));
    assert_eq!(server.client().rest(), "-ERR max number of clients reached\r\n");
    process::wait_until("the idle one is closed", || busy.info("connected_clients") == "1");
    assert_eq!(idle.rest(), "");
    server.stop();
}

#[test]
fn settings_reach_the_running_server() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    let before = client.info("memtable_bytes_max");
    assert_eq!(client.info("memory_budget"), (128 << 20).to_string());
    assert_eq!(client.ask("CONFIG SET maxmemory 64mb"), "+OK\r\n");
    assert_eq!(client.info("memory_budget"), (64 << 20).to_string());
    assert_ne!(client.info("memtable_bytes_max"), before);
    let refused = client.ask("CONFIG SET maxclients 5 background-io-rate 2mb");
    assert!(refused.contains("can't set immutable config"), "{refused}");
    assert_eq!(client.ask("CONFIG GET maxclients"), "*2\r\n$10\r\nmaxclients\r\n$5\r\n10000\r\n");

    let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n";
    assert_eq!(client.ask("SETRANGE long 2000000 x"), ":2000001\r\n");
    assert_eq!(client.ask("CONFIG SET proto-max-bulk-len 1mb"), "+OK\r\n");
    assert_eq!(client.ask("SETRANGE other 2000000 x"), too_long);
    assert_eq!(client.ask("APPEND long x"), too_long);
    assert_eq!(client.ask("STRLEN long"), ":2000001\r\n");

    // A client that leaves too much unread is closed.
    assert_eq!(client.ask("CONFIG SET client-output-buffer-limit \"normal 300kb 0 0\""), "+OK\r\n");
    let mut lazy = server.client();
    assert_eq!(lazy.ask_words(&[b"SET", b"k", &[b'x'; 10_000]]), "+OK\r\n");
    process::wait_until("it is closed", || {
        let more = lazy.socket.write(&request(&[b"GET", b"k"]).repeat(100));
        more.is_err()
    });
    server.stop();
}

#[test]
fn nothing_is_evicted() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"]);
    let mut client = server.client();
    let value = |number: usize| format!("{number:04}").repeat(64 << 10).into_bytes();
    for number in 0..600 {
        let name = format!("k{number}").into_bytes();
        assert_eq!(client.ask_words(&[b"SET", &name, &value(number)]), "+OK\r\n", "{number}");
    }
    assert_eq!(client.ask("DBSIZE"), ":600\r\n");
    for number in [0, 1, 299, 599] {
        let name = format!("k{number}").into_bytes();
        let reply = client.ask_words(&[b"GET", &name]);
        assert!(reply.as_bytes().windows(4).any(|part| part == format!("{number:04}").as_bytes()), "{number}");
        assert_eq!(client.ask(&format!("STRLEN k{number}")), format!(":{}\r\n", 256 << 10));
    }
    server.stop();
}

#[test]
fn without_a_disk_a_full_budget_is_an_error_until_there_is_room() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--engine", "memory", "--maxmemory", "64mb"]);
    let mut client = server.client();
    let value = vec![b'x'; 1 << 20];
    let mut count = 0;
    let refusal = loop {
        let reply = client.ask_words(&[b"SET", format!("k{count}").as_bytes(), &value]);
        if reply != "+OK\r\n" {
            break reply;
        }
        count += 1;
        assert!(count < 64, "the budget is a bound");
    };
    assert_eq!(refusal, "-OOM command not allowed when used memory > 'maxmemory'.\r\n");
    assert!(count > 10, "and of use: {count} MB");
    assert_eq!(client.ask("STRLEN k0"), ":1048576\r\n", "reads go on");
    for number in 0..count {
        assert_eq!(client.ask(&format!("DEL k{number}")), ":1\r\n", "what makes room goes on");
    }
    wait_until("there is room again", || client.ask("SET k 1") == "+OK\r\n");
    server.stop();
}
