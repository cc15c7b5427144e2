//! Masters that a replica does not follow, and settings that it refuses.

use crate::process::following::{DEBUG, READONLY, field, fill, is_equal, replica_of, wait_for_link};
use crate::process::{self, Client, Server, TempDir, free_port, wait_until};
use std::net::TcpStream;

#[test]
fn a_replica_does_not_go_back_to_where_its_new_master_is() {
    let dirs = [TempDir::new(), TempDir::new(), TempDir::new()];
    let master = Server::start(dirs[0].path(), &DEBUG);
    let ahead = replica_of(&master, &dirs[1], &DEBUG);
    let behind = replica_of(&master, &dirs[2], &DEBUG);
    is_equal(&master, &behind);
    let disk_free_min = |value: &str| {
        assert_eq!(behind.client().ask(&format!("CONFIG SET disk-free-min {value}")), "+OK\r\n");
    };
    disk_free_min("1000000gb");
    let (mut writer, mut stuck) = (master.client(), behind.client());
    wait_until("it takes no more", || {
        writer.ask("INCR n");
        !field(&mut stuck, "master_link_error").is_empty()
    });
    fill(&mut writer, 0, 50);
    is_equal(&master, &ahead);
    let mut client = ahead.client();
    let last = field(&mut client, "slave_repl_offset");
    assert_ne!(field(&mut behind.client(), "slave_repl_offset"), last);
    client.ask(&format!("REPLICAOF 127.0.0.1 {}", behind.port));
    wait_until("it is refused", || field(&mut client, "master_link_error").contains("ahead of it"));
    assert_eq!((client.ask("GET key:7"), field(&mut client, "slave_repl_offset")), ("$7\r\nvalue:7\r\n".into(), last));
    disk_free_min("0");
    wait_for_link(&ahead);
    is_equal(&master, &ahead);
    let copies = std::fs::read_dir(dirs[2].path().join("copies")).map_or(0, Iterator::count);
    assert_eq!(copies, 0, "records were enough");
    [ahead, behind, master].into_iter().for_each(Server::stop);
}

#[test]
fn a_replica_that_takes_writes_is_refused() {
    let dir = TempDir::new();
    let said = process::fails(dir.path(), free_port(), &["--replica-read-only", "no"]);
    assert!(said.contains("replica-read-only") && said.contains("yes"), "{said}");
    let server = Server::start(dir.path(), &["--slave-read-only", "yes"]);
    let refused = server.client().ask("CONFIG SET replica-read-only no");
    assert!(
        refused.starts_with("-ERR CONFIG SET failed (possibly related to argument 'replica-read-only')"),
        "{refused}"
    );
    server.stop();
}

#[test]
fn a_directory_of_several_places_takes_no_copy() {
    let (dir, other, elsewhere) = (TempDir::new(), TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    master.client().ask("SET k of-master");
    let replica = Server::start(other.path(), &DEBUG);
    assert_eq!(replica.client().ask("SET k own"), "+OK\r\n");
    replica.stop();
    std::fs::rename(other.path().join("base"), elsewhere.path().join("base")).expect("both are in one file system");
    std::os::unix::fs::symlink(elsewhere.path().join("base"), other.path().join("base")).expect("it is ours");
    let replica = Server::start(other.path(), &DEBUG);
    let mut client = replica.client();
    client.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    wait_until("it is refused", || field(&mut client, "master_link_error").contains("cannot take its place"));
    assert_eq!(client.ask("GET k"), "$3\r\nown\r\n");
    assert!(!other.path().join("incoming").exists(), "nothing was fetched");
    replica.stop();
    master.stop();
}

#[test]
fn others_are_no_masters() {
    let dir = TempDir::new();
    let replica = Server::start(dir.path(), &DEBUG);
    let mut client = replica.client();
    client.ask("SET kept 1");
    let fails = |client: &mut Client<TcpStream>, port: u16, why: &str| {
        assert_eq!(client.ask(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK\r\n");
        wait_until(why, || field(client, "master_link_error").contains(why));
        assert_eq!(field(client, "master_link_status"), "down");
        assert_eq!(client.ask("GET kept"), "$1\r\n1\r\n");
    };
    fails(&mut client, free_port(), "refused");
    for (answer, why) in [
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "reply"),
        ("", "closed"),
        ("-ERR Unrecognized REPLCONF option: haypile-hello\r\n", "closed"),
        ("-NOAUTH Authentication required.\r\n", "NOAUTH"),
        ("+OK\r\n", "no server that can be followed"),
        ("*4\r\n$7\r\nhaypile\r\n$1\r\n9\r\n$1\r\n2\r\n$2\r\n16\r\n", "version 9"),
        ("*4\r\n$7\r\nhaypile\r\n$1\r\n2\r\n$1\r\n2\r\n$2\r\n16\r\nthis is no frame at all", "checksum"),
    ] {
        let port = liar(answer);
        fails(&mut client, port, why);
    }
    assert_eq!(client.ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_until("it leads", || client.ask("SET kept 2") == "+OK\r\n");
    replica.stop();
}

#[test]
fn nobody_waits_for_a_master_that_does_not_answer() {
    let dir = TempDir::new();
    // Connections that come here once the queue is full get no answer at all.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("there are sockets");
    full.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("the loopback has a free port");
    full.listen(0).expect("it is bound");
    let address = full.local_addr().expect("it is bound").as_socket().expect("it is an address");
    let short = std::time::Duration::from_millis(200);
    let queued: Vec<_> = (0..8).map_while(|_| TcpStream::connect_timeout(&address, short).ok()).collect();
    assert!(queued.len() < 8, "the queue is full");
    let replica = Server::start(dir.path(), &DEBUG);
    let mut client = replica.client();
    let since = std::time::Instant::now();
    for round in 0..3 {
        assert_eq!(client.ask(&format!("REPLICAOF 127.0.0.1 {}", address.port())), "+OK\r\n");
        wait_until("it follows", || client.ask("SET k v") == READONLY);
        wait_until("it is told", || client.ask("REPLICAOF NO ONE") == "+OK\r\n");
        wait_until("it leads", || client.ask(&format!("SET k {round}")) == "+OK\r\n");
    }
    client.ask(&format!("REPLICAOF 127.0.0.1 {}", address.port()));
    replica.stop();
    assert!(since.elapsed() < std::time::Duration::from_secs(8), "an attempt to connect takes ten seconds");
}

/// Starts a server that gives each client this answer to whatever it says, and closes the connection.
fn liar(answer: &'static str) -> u16 {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    // The thread ends with the process.
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { return };
            let _ = client.read(&mut [0; 1024]);
            let _ = client.write_all(answer.as_bytes());
        }
    });
    port
}
