//! REPLICAOF a Redis of whose keys only some are taken: of some databases, or of some slots.

mod process;

use process::following::{DEBUG, field, wait_for_link};
use process::redis::redis;
use process::{Client, Server, TempDir, wait_until};
use std::net::TcpStream;

/// The slot of the key `a`.
const SLOT_OF_A: u32 = 15_495;

fn follow(replica: &Server, port: u16) {
    assert_eq!(replica.client().ask(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK\r\n");
    wait_for_link(replica);
}

fn ask_all(client: &mut Client<TcpStream>, commands: &[&str]) {
    for command in commands {
        let reply = client.ask(command);
        assert!(!reply.starts_with('-'), "{command} is answered by {reply}");
    }
}

/// Waits until the replica has come to the end of what the master has sent.
fn wait_for_all(master: &mut Client<TcpStream>, replica: &Server) {
    let mut client = replica.client();
    wait_until("it has come to the end", || {
        let sent: u64 = field(master, "master_repl_offset").parse().expect("an offset");
        let taken: u64 = field(&mut client, "slave_repl_offset").parse().expect("an offset");
        let is_alone = field(&mut client, "master_link_status") != "up";
        !is_alone && taken >= sent
    });
}

/// Returns the keys of a database, in order.
fn keys(client: &mut Client<TcpStream>, database: u32) -> Vec<String> {
    assert_eq!(client.ask(&format!("SELECT {database}")), "+OK\r\n");
    let reply = client.ask("KEYS *");
    let mut keys: Vec<_> = reply.lines().filter(|line| !line.starts_with(['*', '$'])).map(str::to_owned).collect();
    keys.sort_unstable();
    keys
}

fn syncs(master: &mut Client<TcpStream>) -> [String; 2] {
    ["sync_full", "sync_partial_ok"].map(|field| master.info(field))
}

#[test]
fn some_databases_of_a_redis_are_taken_and_nothing_of_the_others() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = redis(&dir, &["--repl-diskless-sync-delay", "0", "--databases", "20"]);
    let mut of_master = master.client();
    ask_all(
        &mut of_master,
        &["SET zero 0", "SELECT 3", "MSET three 3 long x", "SELECT 19", "SET beyond 1", "SELECT 4"],
    );
    ask_all(&mut of_master, &["RPUSH four 1 2", "SELECT 0"]);
    let port = master.port.to_string();
    let more = ["--databases", "20", "--replicaof-databases", "3,4", "--replicaof", "127.0.0.1", &port];
    let start = || Server::start(other.path(), &[&DEBUG[..], &more].concat());
    let mut replica = start();
    wait_for_link(&replica);
    let mut client = replica.client();
    assert_eq!((keys(&mut client, 0), keys(&mut client, 19)), (vec![], vec![]));
    assert_eq!(keys(&mut client, 3), ["long", "three"]);
    assert_eq!(keys(&mut client, 4), ["four"]);
    let change = [
        "SET zero 1",
        "SELECT 3",
        "INCR three",
        "EXPIRE long 1000",
        "MULTI",
        "INCR three",
        "SELECT 0",
        "INCR hidden",
        "SELECT 4",
        "RPUSH four 3",
        "EXEC",
        "INCR in-four",
        "MOVE in-four 3",
        "SELECT 0",
        "FUNCTION FLUSH",
        "PUBLISH channel text",
        "COPY zero also-zero DB 5",
        "SELECT 5",
        "FLUSHDB",
        "SELECT 0",
    ];
    ask_all(&mut of_master, &change);
    wait_for_all(&mut of_master, &replica);
    assert_eq!((keys(&mut client, 0), keys(&mut client, 5)), (vec![], vec![]));
    assert_eq!(keys(&mut client, 3), ["in-four", "long", "three"]);
    assert_eq!(client.ask("GET three"), "$1\r\n5\r\n");
    assert_eq!(keys(&mut client, 4), ["four"]);
    assert_eq!(client.ask("LLEN four"), ":3\r\n");
    // Behind a kill it goes on, in the database that was selected.
    assert_eq!(syncs(&mut of_master), ["1", "0"]);
    drop(client);
    replica.kill();
    ask_all(&mut of_master, &["INCR zero", "SELECT 4", "RPUSH four 4", "SELECT 0"]);
    replica = start();
    wait_for_link(&replica);
    wait_for_all(&mut of_master, &replica);
    assert_eq!(syncs(&mut of_master), ["1", "1"]);
    let mut client = replica.client();
    assert_eq!((keys(&mut client, 0), keys(&mut client, 4)), (vec![], vec!["four".into()]));
    assert_eq!(client.ask("LLEN four"), ":4\r\n");
    // With another selection all comes anew.
    assert_eq!(client.ask("CONFIG SET replicaof-databases 0"), "+OK\r\n");
    assert_eq!(client.ask("REPLICAOF NO ONE"), "+OK\r\n");
    follow(&replica, master.port);
    wait_for_all(&mut of_master, &replica);
    assert_eq!(syncs(&mut of_master)[0], "2");
    let mut client = replica.client();
    assert_eq!(keys(&mut client, 0), ["hidden", "zero"]);
    assert_eq!(keys(&mut client, 4), Vec::<String>::new());
}

#[test]
fn what_brings_together_databases_that_are_taken_and_others_stops_the_stream() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = redis(&dir, &["--repl-diskless-sync-delay", "0"]);
    let replica = Server::start(other.path(), &[&DEBUG[..], &["--replicaof-databases", "0"]].concat());
    follow(&replica, master.port);
    let (mut of_master, mut client) = (master.client(), replica.client());
    ask_all(&mut of_master, &["SET a 1", "SWAPDB 1 2"]);
    wait_for_all(&mut of_master, &replica);
    ask_all(&mut of_master, &["SWAPDB 0 1", "SET b 2"]);
    let why = "swapdb is about databases 0 and 1, of which `replicaof-databases` takes only one";
    wait_until("it stops", || field(&mut client, "master_link_error").contains(why));
    assert_eq!(client.ask("GET a"), "$1\r\n1\r\n");
    // With an ordinary directive it is left out.
    assert_eq!(client.ask("CONFIG SET replica-refused-commands skip"), "+OK\r\n");
    wait_until("it goes on", || client.ask("GET b") == "$1\r\n2\r\n");
}

#[test]
fn some_slots_of_a_redis_are_taken_and_nothing_of_the_others() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = redis(&dir, &["--repl-diskless-sync-delay", "0"]);
    let mut of_master = master.client();
    ask_all(&mut of_master, &["SET a 1", "SET b 1", "SADD {a}set 1 2", "SADD {b}set 1 2"]);
    let slots = format!("{SLOT_OF_A},0-10");
    let replica = Server::start(other.path(), &[&DEBUG[..], &["--replicaof-slots", &slots]].concat());
    follow(&replica, master.port);
    let mut client = replica.client();
    assert_eq!(keys(&mut client, 0), ["a", "{a}set"]);
    ask_all(&mut of_master, &["INCR a", "INCR b", "SUNIONSTORE {a}to {a}set {a}none", "SMOVE {b}set {b}other 1"]);
    ask_all(&mut of_master, &["MULTI", "INCR b", "INCR a", "EXEC", "MSET {a}1 x {a}2 y", "DEL {b}set"]);
    wait_for_all(&mut of_master, &replica);
    assert_eq!(keys(&mut client, 0), ["a", "{a}1", "{a}2", "{a}set", "{a}to"]);
    assert_eq!(client.ask("GET a"), "$1\r\n3\r\n");
    ask_all(&mut of_master, &["SET b 1", "DEL {a}1 b", "MSET a 1 b 1"]);
    let why = "mset has keys of slots that `replicaof-slots` takes, and of others";
    wait_until("it stops", || field(&mut client, "master_link_error").contains(why));
    assert_eq!(keys(&mut client, 0), ["a", "{a}2", "{a}set", "{a}to"]);
    // A Haypile is followed as a whole.
    let (third, dir) = (TempDir::new(), TempDir::new());
    let master = Server::start(third.path(), &DEBUG);
    let more = ["--replicaof-slots", "1", "--logfile", "server.log"];
    let replica = Server::start(dir.path(), &[&DEBUG[..], &more].concat());
    assert_eq!(replica.client().ask(&format!("REPLICAOF 127.0.0.1 {}", master.port)), "+OK\r\n");
    let mut client = replica.client();
    wait_for_link(&replica);
    assert_eq!(master.client().ask("SET b 1"), "+OK\r\n");
    wait_until("it has the key", || client.ask("GET b") == "$1\r\n1\r\n");
    assert_eq!(client.ask("CONFIG SET replicaof-slots 16384").split(' ').next(), Some("-ERR"));
    for number in 2..4 {
        assert_ne!(master.client().ask("CLIENT KILL TYPE replica"), ":0\r\n");
        assert_eq!(master.client().ask(&format!("SET b {number}")), "+OK\r\n");
        wait_until("it follows again", || client.ask("GET b") == format!("$1\r\n{number}\r\n"));
        wait_for_link(&replica);
    }
    drop(client);
    replica.stop();
    let told = std::fs::read_to_string(dir.path().join("server.log")).expect("it is written");
    assert_eq!(told.matches("which is followed as a whole").count(), 1, "{told}");
}
