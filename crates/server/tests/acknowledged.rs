//! `replicas-to-ack`: replies that wait for replicas, and what becomes of them when these are late.

mod process;

use process::following::{DEBUG, field, is_equal, replica_of, wait_for_link};
use process::{Client, Server, TempDir, wait_until};
use std::net::TcpStream;

const REFUSED: &str = "-NOREPLICAS Not enough good replicas to write.\r\n";

/// The last line that a client reads whose reply is given up.
const GIVEN_UP: &str = "-NOREPLICAS Replicas have not acknowledged this in time. It may have taken effect, and may be \
                        lost in a failover.\r\n";

/// Long enough that no test sees it pass.
const PATIENT: [&str; 4] = ["--replicas-to-ack", "1", "--replicas-to-ack-timeout", "0"];

/// Short enough that a test may wait for it.
const SHORT: [&str; 4] = ["--replicas-to-ack", "1", "--replicas-to-ack-timeout", "200"];

fn with(more: &[&'static str]) -> Vec<&'static str> {
    [&DEBUG[..], more].concat()
}

/// Waits until a server that waits for replicas has a record that they have not acknowledged.
fn wait_for_unacknowledged(master: &Server) {
    let mut client = master.client();
    let (confirmed, last) = ("replicas_to_ack_index", "master_repl_offset");
    wait_until("something waits", || field(&mut client, confirmed) != field(&mut client, last));
}

/// A reply is not there yet. What it depends on has been written by now, and so it would be.
fn is_held_back(master: &Server, client: &Client<TcpStream>) {
    // Each of these answers ends a round of some event loop, behind which the reply would have left.
    (0..20).for_each(|_| assert_eq!(master.client().ask("PING"), "+PONG\r\n"));
    assert!(!client.has_reply());
}

#[test]
fn a_reply_leaves_when_a_replica_has_what_it_depends_on() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &with(&PATIENT));
    let (mut writer, mut reader, mut third) = (master.client(), master.client(), master.client());
    writer.send(b"SET k v\r\n");
    wait_for_unacknowledged(&master);
    // A reply to a read is held back, too, and all behind it; but no reply that depends on nothing.
    reader.send(b"GET k\r\nPING\r\n");
    third.send(b"DBSIZE\r\n");
    assert!(master.client().ask("INFO").contains("replicas_to_ack_state:in-time"));
    assert_eq!(master.client().ask("EXISTS another"), ":0\r\n");
    is_held_back(&master, &writer);
    is_held_back(&master, &reader);
    is_held_back(&master, &third);
    let replica = replica_of(&master, &other, &DEBUG);
    assert_eq!(writer.reply(), "+OK\r\n");
    assert_eq!((reader.reply(), reader.reply()), ("$1\r\nv\r\n".into(), "+PONG\r\n".into()));
    assert_eq!(third.reply(), ":1\r\n");
    for number in 0..50 {
        assert_eq!(writer.ask(&format!("SET k {number}")), "+OK\r\n");
        let text = number.to_string();
        assert_eq!(replica.client().ask("GET k"), format!("${}\r\n{text}\r\n", text.len()), "it was acknowledged");
    }
    assert_eq!(field(&mut writer, "replicas_to_ack_index"), field(&mut writer, "master_repl_offset"));
    // Another number of replicas may be asked for at any time.
    assert_eq!(master.client().ask("CONFIG SET replicas-to-ack 2"), "+OK\r\n");
    writer.send(b"SET k two\r\n");
    wait_until("it is there", || replica.client().ask("GET k") == "$3\r\ntwo\r\n");
    is_held_back(&master, &writer);
    assert_eq!(master.client().ask("CONFIG SET replicas-to-ack 1"), "+OK\r\n");
    assert_eq!(writer.reply(), "+OK\r\n");
    [replica, master].into_iter().for_each(Server::stop);
}

#[test]
fn what_a_flush_has_taken_from_memory_waits_as_well() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &with(&PATIENT));
    let (mut writer, mut reader) = (master.client(), master.client());
    writer.send(b"SET k v\r\n");
    writer.send(b"SET gone v\r\nDEL gone\r\n");
    wait_for_unacknowledged(&master);
    assert_eq!(reader.ask("CONFIG SET replicas-to-ack 0"), "+OK\r\n");
    assert_eq!(reader.ask("DEBUG RELOAD"), "+OK\r\n");
    assert_eq!(reader.ask("CONFIG SET replicas-to-ack 1"), "+OK\r\n");
    // The rows are in the base, and nobody else has them.
    reader.send(b"GET k\r\n");
    let mut other_reader = master.client();
    other_reader.send(b"GET gone\r\n");
    is_held_back(&master, &reader);
    is_held_back(&master, &other_reader);
    let replica = replica_of(&master, &other, &DEBUG);
    assert_eq!(reader.reply(), "$1\r\nv\r\n");
    assert_eq!(other_reader.reply(), "$-1\r\n");
    [replica, master].into_iter().for_each(Server::stop);
}

#[test]
fn where_replicas_are_late_writes_are_refused_and_clients_that_wait_are_disconnected() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &with(&PATIENT));
    let replica = replica_of(&master, &other, &DEBUG);
    let (mut writer, mut reader) = (master.client(), master.client());
    assert_eq!(writer.ask("SET old value"), "+OK\r\n");
    replica.halt();
    assert_eq!(writer.ask("CONFIG SET replicas-to-ack-timeout 200"), "+OK\r\n");
    writer.send(b"SET k v\r\nSET second v\r\n");
    assert_eq!(writer.rest(), GIVEN_UP);
    assert_eq!(master.client().ask("SET k w"), REFUSED);
    // Values that replicas have are there to be read.
    assert_eq!(reader.ask("GET old"), "$5\r\nvalue\r\n");
    reader.send(b"GET k\r\n");
    assert_eq!(reader.rest(), GIVEN_UP);
    let mut client = master.client();
    assert_eq!(field(&mut client, "replicas_to_ack_state"), "refuse");
    assert_eq!(field(&mut client, "replicas_to_ack_timeouts"), "1");
    replica.signal("CONT");
    // An acknowledgement that comes late once more ends the connection of the client that waits for it.
    let is_taken = || master.client().try_ask("SET third v").is_some_and(|reply| reply == "+OK\r\n");
    wait_until("writes are taken", is_taken);
    assert_eq!(field(&mut client, "replicas_to_ack_state"), "in-time");
    assert_eq!(client.ask("GET k"), "$1\r\nv\r\n", "it had taken effect");
    is_equal(&master, &replica);
    [replica, master].into_iter().for_each(Server::stop);
}

#[test]
fn where_replicas_are_late_replies_go_on_if_that_is_asked_for() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &with(&[&SHORT[..], &["--replicas-to-ack-on-timeout", "go-on"]].concat()));
    let mut client = master.client();
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    assert_eq!(field(&mut client, "replicas_to_ack_state"), "go-on");
    assert_eq!(client.ask("SET k w"), "+OK\r\n");
    assert_eq!(client.ask("GET k"), "$1\r\nw\r\n");
    let replica = replica_of(&master, &other, &DEBUG);
    wait_until("replies wait again", || field(&mut client, "replicas_to_ack_state") == "in-time");
    client.ask("CONFIG SET replicas-to-ack-timeout 0");
    replica.halt();
    client.send(b"SET k x\r\n");
    wait_for_unacknowledged(&master);
    is_held_back(&master, &client);
    replica.signal("CONT");
    assert_eq!(client.reply(), "+OK\r\n");
    [replica, master].into_iter().for_each(Server::stop);
}

#[test]
fn a_reply_that_waits_when_the_server_begins_to_follow_never_leaves() {
    let dirs = [TempDir::new(), TempDir::new()];
    let next = Server::start(dirs[0].path(), &with(&[]));
    let master = Server::start(dirs[1].path(), &with(&PATIENT));
    let (mut writer, mut idle, mut blocked) = (master.client(), master.client(), master.client());
    assert_eq!(idle.ask("PING"), "+PONG\r\n");
    blocked.send(b"BLPOP list 0\r\n");
    wait_until("it waits", || master.client().info("blocked_clients") == "1");
    writer.send(b"SET k v\r\n");
    wait_for_unacknowledged(&master);
    let set = field(&mut master.client(), "master_repl_offset");
    let mut pusher = master.client();
    pusher.send(b"RPUSH list a\r\n");
    wait_until("the element is pushed", || field(&mut master.client(), "master_repl_offset") != set);
    assert_eq!(idle.ask(&format!("REPLICAOF 127.0.0.1 {}", next.port)), "+OK\r\n");
    wait_for_link(&master);
    for client in [&mut writer, &mut pusher, &mut blocked] {
        let last = client.rest();
        assert!(last == GIVEN_UP || last.is_empty(), "{last}");
    }
    assert_eq!(idle.ask("GET k"), "$-1\r\n", "the data are the new master's");
    [master, next].into_iter().for_each(Server::stop);
}

#[test]
fn a_replica_that_leads_knows_what_was_acknowledged() {
    let dirs = [TempDir::new(), TempDir::new(), TempDir::new()];
    let master = Server::start(dirs[0].path(), &with(&PATIENT));
    let replica = replica_of(&master, &dirs[1], &with(&PATIENT));
    let mut writer = master.client();
    assert_eq!(writer.ask("SET old value"), "+OK\r\n");
    let mut client = replica.client();
    // A heartbeat says so, once a second at least.
    let last = field(&mut writer, "master_repl_offset");
    wait_until("it is told", || {
        writer.ask("PING");
        field(&mut client, "slave_repl_offset") == last && is_confirmed(&replica, &last)
    });
    assert_eq!(client.ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_until("it leads", || field(&mut client, "role") == "master" && !client.ask("INFO").is_empty());
    assert_eq!(client.ask("GET old"), "$5\r\nvalue\r\n", "its master had said that replicas have it");
    client.send(b"SET k v\r\n");
    wait_for_unacknowledged(&replica);
    is_held_back(&replica, &client);
    let second = replica_of(&replica, &dirs[2], &DEBUG);
    assert_eq!(client.reply(), "+OK\r\n");
    [second, replica, master].into_iter().for_each(Server::stop);
}

/// Whether a replica knows that replicas have all through a record.
fn is_confirmed(replica: &Server, index: &str) -> bool {
    field(&mut replica.client(), "replicas_to_ack_index") == index
}
