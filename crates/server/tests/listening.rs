//! CONFIG SET of `port` and `bind` while the server runs: where it listens from then on, and that nothing changes where
//! that fails; the options of the sockets. `tls.rs` has `tls-port`.

mod process;

use process::{Client, Server, TempDir, free_port, wait_until};
use rustix::process::{Pid, Resource, getrlimit, prlimit};
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const NO_PORT: &str = "-ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port. Check \
    server logs.\r\n";
const NO_ADDRESS: &str =
    "-ERR CONFIG SET failed (possibly related to argument 'bind') - Failed to bind to specified addresses.\r\n";

fn listens(address: &str, port: u16) -> bool {
    TcpStream::connect((address, port)).is_ok()
}

#[test]
fn the_port_changes_while_clients_stay() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let (before, mut client) = (server.port, server.client());
    for _ in 0..20 {
        let port = free_port();
        assert_eq!(client.ask(&format!("CONFIG SET port {port}")), "+OK\r\n");
        assert!(listens("127.0.0.1", port), "it listens when it has answered");
        assert!(!listens("127.0.0.1", before), "and no more where it did");
        assert_eq!(Client::at(port).ask("PING"), "+PONG\r\n");
        assert_eq!(client.info("tcp_port"), port.to_string());
        assert_eq!(client.ask(&format!("CONFIG SET port {port}")), "+OK\r\n", "it is there already");
        assert_eq!(client.ask(&format!("CONFIG SET port {before}")), "+OK\r\n");
        assert!(listens("127.0.0.1", before) && !listens("127.0.0.1", port));
    }
    assert_eq!(client.ask("CONFIG SET port 0"), "+OK\r\n");
    assert!(!listens("127.0.0.1", before));
    assert_eq!(client.ask(&format!("CONFIG SET port {before}")), "+OK\r\n", "who is there stays");
    server.stop();
}

#[test]
fn what_cannot_be_had_leaves_all_as_it_was() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    let other = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    let taken = other.local_addr().expect("it is bound").port();
    let still = |client: &mut Client<TcpStream>| {
        assert_eq!(client.ask("CONFIG GET timeout"), "*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n");
        assert_eq!(client.info("tcp_port"), server.port.to_string());
        assert_eq!(server.client().ask("PING"), "+PONG\r\n");
    };
    assert_eq!(client.ask(&format!("CONFIG SET timeout 9 port {taken}")), NO_PORT);
    still(&mut client);
    assert_eq!(client.ask("CONFIG SET timeout 9 bind 203.0.113.1"), NO_ADDRESS);
    still(&mut client);
    assert_eq!(client.ask("CONFIG SET bind no.such.host.invalid"), NO_ADDRESS);
    still(&mut client);
    assert_eq!(client.ask("CONFIG SET bind -203.0.113.1"), NO_ADDRESS, "none of them is there");
    still(&mut client);
    assert!(client.ask("CONFIG SET port 65536").contains("argument must be between 0 and 65535 inclusive"));
    // As soon as it can be had.
    drop(other);
    assert_eq!(client.ask(&format!("CONFIG SET port {taken}")), "+OK\r\n");
    assert!(listens("127.0.0.1", taken) && !listens("127.0.0.1", server.port));
    server.stop();
}

#[test]
fn no_client_is_refused_while_a_port_cannot_be_had() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--logfile", "server.log"]);
    let mut client = server.client();
    let other = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    let set = format!("CONFIG SET port {}", other.local_addr().expect("it is bound").port());
    let is_over = AtomicBool::new(false);
    let replies: Vec<String> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert!(listens("127.0.0.1", server.port));
            }
        });
        let asked: Result<Vec<String>, _> =
            catch_unwind(AssertUnwindSafe(|| (0..100).map(|_| client.ask(&set)).collect()));
        is_over.store(true, Ordering::Relaxed);
        asked.expect("CONFIG SET is answered")
    });
    assert!(replies.iter().all(|reply| reply == NO_PORT), "{replies:?}");
    // All addresses of a port and one of them exclude each other: here the old socket ends before.
    assert_eq!(client.ask("CONFIG SET bind *"), "+OK\r\n");
    assert_eq!(server.client().ask("PING"), "+PONG\r\n");
    let log = std::fs::read_to_string(dir.path().join("server.log")).expect("it is text");
    assert!(log.contains("the server listens where it did") && !log.contains("cannot be accepted"), "{log}");
    server.stop();
}

#[test]
fn a_server_stops_while_its_port_changes() {
    for _ in 0..5 {
        let dir = TempDir::new();
        let server = Server::start(dir.path(), &[]);
        let ports = [server.port, free_port()];
        let mut clients: Vec<_> = (0..6).map(|_| server.client()).collect();
        // A connection that is not accepted yet goes with the port that it came to, as in Redis.
        clients.iter_mut().for_each(|client| assert_eq!(client.ask("PING"), "+PONG\r\n"));
        let changes: Vec<_> = clients.iter().map(|_| Arc::new(AtomicUsize::new(0))).collect();
        let changing: Vec<_> = clients
            .into_iter()
            .zip(changes.clone())
            .map(|(mut client, changes)| {
                std::thread::spawn(move || {
                    let set = |port| format!("CONFIG SET port {port}");
                    let changed = (0..).take_while(|n| client.try_ask(&set(ports[n % 2])).is_some());
                    changed.inspect(|_| _ = changes.fetch_add(1, Ordering::Relaxed)).count()
                })
            })
            .collect();
        wait_until("all change the port", || changes.iter().all(|of| of.load(Ordering::Relaxed) > 5));
        // Stopping waits until the server has ended.
        server.stop();
        for thread in changing {
            assert!(thread.join().expect("a client ends with the server") > 0);
        }
    }
}

#[test]
fn addresses_that_are_the_same_are_one() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    for addresses in ["127.0.0.1 127.0.0.1", "127.0.0.1 127.0.0.2 127.0.0.1", "127.0.0.1"] {
        assert_eq!(client.ask(&format!("CONFIG SET bind \"{addresses}\"")), "+OK\r\n", "{addresses}");
        assert_eq!(server.client().ask("PING"), "+PONG\r\n");
    }
    server.stop();
    let server = Server::start(dir.path(), &["--bind", "127.0.0.1", "127.0.0.1"]);
    assert_eq!(server.client().ask("PING"), "+PONG\r\n");
    server.stop();
}

#[test]
fn addresses_change_although_they_overlap() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let (port, mut client) = (server.port, server.client());
    assert_eq!(client.ask("CONFIG GET bind"), "*2\r\n$4\r\nbind\r\n$9\r\n127.0.0.1\r\n");
    for (addresses, first, second) in
        [("*", true, true), ("127.0.0.2", false, true), ("127.0.0.2 -203.0.113.1", false, true), ("*", true, true)]
    {
        assert_eq!(client.ask(&format!("CONFIG SET bind \"{addresses}\"")), "+OK\r\n", "{addresses}");
        assert_eq!([listens("127.0.0.1", port), listens("127.0.0.2", port)], [first, second], "{addresses}");
    }
    assert_eq!(client.ask("CONFIG SET bind \"\""), "+OK\r\n");
    assert!(!listens("127.0.0.1", port));
    assert_eq!(client.ask("CONFIG SET bind 127.0.0.1"), "+OK\r\n");
    assert_eq!(server.client().ask("PING"), "+PONG\r\n");
    server.stop();
}

/// Lets a server open so many more files; `None`: as many as this process may.
fn leave_files(server: &Server, room: Option<usize>) {
    let mut limit = getrlimit(Resource::Nofile);
    if let Some(room) = room {
        let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs").flatten();
        let open: Vec<u64> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        // A new file gets the lowest number that is free.
        limit.current = (0..).filter(|number| !open.contains(number)).nth(room);
    }
    let pid = Pid::from_raw(server.pid().cast_signed());
    prlimit(pid, Resource::Nofile, limit).expect("it is our child");
}

#[test]
fn a_server_that_is_out_of_files_listens_where_it_says() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let (mut before, mut client) = (server.port, server.client());
    let mut failures = 0;
    for room in 0..8 {
        wait_until("all others have gone", || client.info("connected_clients") == "1");
        let port = free_port();
        leave_files(&server, Some(room));
        let reply = client.ask(&format!("CONFIG SET port {port}"));
        leave_files(&server, None);
        let (there, gone) = if reply == "+OK\r\n" { (port, before) } else { (before, port) };
        assert!(there == port || reply == NO_PORT, "{reply}");
        assert_eq!(client.info("tcp_port"), there.to_string(), "room for {room}");
        assert!(listens("127.0.0.1", there) && !listens("127.0.0.1", gone), "room for {room}: {reply}");
        assert_eq!(Client::at(there).ask("PING"), "+PONG\r\n");
        failures += u32::from(there != port);
        before = there;
    }
    assert!((1..8).contains(&failures), "{failures}");
    server.stop();
}

#[test]
fn clients_are_served_however_long_the_keepalive_is() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    for seconds in [0, 1, 32_767, 32_768, 98_305, i32::MAX] {
        assert_eq!(client.ask(&format!("CONFIG SET tcp-keepalive {seconds}")), "+OK\r\n");
        assert_eq!(server.client().ask("PING"), "+PONG\r\n", "{seconds}");
    }
    server.stop();
}
