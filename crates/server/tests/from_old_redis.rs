//! REPLICAOF a Redis of an older version or another make: one that writes little and says much, one whose scripts come
//! by their names, and a KeyDB.

mod process;

use haypile_rdb::{File, Key, Kind, VERSION, Writer};
use process::following::{DEBUG, field, wait_for_link};
use process::redis::{Master, Replica, STREAM, file_of, redis};
use process::{Client, Server, TempDir, request, wait_until};
use std::net::TcpStream;
use std::process::Command;

/// The smallest backlog that a Redis can have.
const BACKLOG_BYTES: u64 = 16 << 10;

/// A script, and its name.
const SCRIPT: &str = "return redis.call('INCRBY',KEYS[1],ARGV[1])";
const NAME: &str = "fb8144401c089a1dbddf5fc7eb24a42b93c7cb92";

fn follow(replica: &Server, port: u16) {
    assert_eq!(replica.client().ask(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK\r\n");
}

/// Starts a replica again that was stopped or killed.
fn again(dir: &TempDir, port: u16, master: u16) -> Server {
    let master = master.to_string();
    Server::start_at(dir.path(), port, &[&["--replicaof", "127.0.0.1", &master][..], &DEBUG].concat())
}

/// Returns a file of strings, and behind them these scripts.
fn file_with(strings: &[(&str, &str)], scripts: &[&str]) -> Vec<u8> {
    let mut file = Writer::file(Vec::new(), VERSION).expect("memory takes it");
    file.database(0).expect("memory takes it");
    for (name, value) in strings {
        key(&mut file, Kind::String, name);
        file.string(value.as_bytes()).expect("memory takes it");
    }
    for script in scripts {
        file.aux(b"lua", script.as_bytes()).expect("memory takes it");
    }
    file.end().expect("memory takes it")
}

fn key(file: &mut Writer<File<Vec<u8>>>, kind: Kind, name: &str) {
    let name = name.as_bytes();
    let key = Key { name, kind, deadline_ms: None, idle_s: None, frequency: None, position: 0 };
    file.key(&key).expect("memory takes it");
}

/// Sends messages, which change no data; returns their bytes.
fn send_messages(link: &mut Replica, count: usize) -> u64 {
    let message = format!("PUBLISH news {}", "x".repeat(100));
    (0..count).map(|_| link.send(&[&message])).sum()
}

#[test]
fn a_master_that_only_talks_is_gone_on_with_after_a_kill_and_a_stop() {
    let other = TempDir::new();
    let master = Master::new();
    let mut replica = Server::start(other.path(), &DEBUG);
    let port = replica.port;
    follow(&replica, master.port);
    let mut link = master.load(&file_of(&[("a", "1")]), 100);
    wait_for_link(&replica);
    let mut offset = 100 + link.send(&["SELECT 3", "INCR a"]);
    offset += send_messages(&mut link, 1000);
    link.wait_for(offset);
    replica.kill_now();
    let replica = again(&other, port, master.port);
    let mut link = master.accept();
    let asked = link.asked.1 as u64 - 1;
    assert!(asked <= offset && asked + BACKLOG_BYTES / 2 > offset, "{asked} of {offset}");
    link.say(b"+CONTINUE\r\n");
    offset = asked + link.send(&["INCR a"]);
    link.wait_for(offset);
    let mut client = replica.client();
    client.ask("SELECT 3");
    assert_eq!(client.ask("GET a"), "$1\r\n2\r\n", "it goes on in its database");
    // A few bytes without an effect make no record; a stop notes them.
    let before = client.info("repl_backlog_histlen");
    offset += link.send(&["PING"]);
    link.wait_for(offset);
    offset += link.send(&["PING"]);
    link.wait_for(offset);
    assert_eq!(client.info("repl_backlog_histlen"), before);
    drop(client);
    replica.stop();
    drop(link);
    let replica = again(&other, port, master.port);
    // All that has come is there.
    let mut link = master.go_on(offset);
    offset += link.send(&["PING"]);
    link.wait_for(offset);
    replica.stop();
}

#[test]
fn a_redis_with_a_small_backlog_that_only_talks_sends_all_data_once() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = redis(&dir, &["--repl-diskless-sync-delay", "0", "--repl-backlog-size", "16kb"]);
    let mut of_master = master.client();
    let mut replica = Server::start(other.path(), &DEBUG);
    let port = replica.port;
    follow(&replica, master.port);
    wait_for_link(&replica);
    assert_eq!(of_master.ask("SET a 1"), "+OK\r\n");
    let talk = |of_master: &mut Client<TcpStream>, replica: &Server| {
        for _ in 0..2000 {
            of_master.ask_words(&[b"PUBLISH", b"news", &[b'x'; 100]]);
        }
        let mut client = replica.client();
        wait_until("the replica has heard all", || {
            field(&mut client, "slave_repl_offset") == field(of_master, "master_repl_offset")
        });
    };
    talk(&mut of_master, &replica);
    replica.kill_now();
    let replica = again(&other, port, master.port);
    wait_for_link(&replica);
    assert_eq!([of_master.info("sync_full"), of_master.info("sync_partial_ok")], ["1", "1"]);
    talk(&mut of_master, &replica);
    replica.stop();
    let replica = again(&other, port, master.port);
    wait_for_link(&replica);
    assert_eq!([of_master.info("sync_full"), of_master.info("sync_partial_ok")], ["1", "2"]);
    assert_eq!(replica.client().ask("GET a"), "$1\r\n1\r\n");
    replica.stop();
    master.kill();
}

#[test]
fn scripts_that_come_by_name_are_had_from_the_masters_data() {
    let other = TempDir::new();
    let master = Master::new();
    let mut replica = Server::start(other.path(), &DEBUG);
    let (port, run) = (replica.port, format!("EVALSHA {NAME} 1 a 2"));
    follow(&replica, master.port);
    let mut link = master.load(&file_with(&[("a", "1")], &[SCRIPT, "return (", "#!x"]), 0);
    let mut offset = link.send(&[&run]);
    link.wait_for(offset);
    assert_eq!(replica.client().ask("GET a"), "$1\r\n3\r\n");
    assert_eq!(replica.client().info("number_of_cached_scripts"), "1", "those that cannot be compiled are not there");
    // The cache goes with the process. Then all data come again, with the scripts.
    replica.kill_now();
    let replica = again(&other, port, master.port);
    let mut link = master.go_on(offset);
    link.send(&["MULTI", "INCR a", &run, "EXEC", "SET behind 1"]);
    let mut client = replica.client();
    wait_until("it is told", || field(&mut client, "master_link_error").contains("all of its data are loaded anew"));
    assert_eq!(client.ask("GET a"), "$1\r\n3\r\n");
    let mut link = master.load(&file_with(&[("a", "10")], &[SCRIPT]), 5000);
    offset = 5000 + link.send(&["MULTI", "INCR a", &run, "EXEC"]);
    link.wait_for(offset);
    assert_eq!((&*client.ask("GET a"), &*client.ask("EXISTS behind")), ("$2\r\n13\r\n", ":0\r\n"));
    drop(client);
    replica.stop();
}

#[test]
fn a_script_that_no_load_brings_stops_the_stream() {
    let other = TempDir::new();
    let master = Master::new();
    let replica = Server::start(other.path(), &DEBUG);
    let run = format!("EVALSHA {NAME} 1 a 2");
    follow(&replica, master.port);
    let mut link = master.load(&file_of(&[("a", "1")]), 0);
    link.send(&[&run]);
    let mut link = master.load(&file_of(&[("a", "2")]), 1000);
    let mut offset = 1000 + link.send(&["INCR a"]);
    link.wait_for(offset);
    let mut client = replica.client();
    for _ in 0..2 {
        link.send(&[&run, "INCR a"]);
        wait_until("it stops", || field(&mut client, "master_link_error").contains("NOSCRIPT"));
        assert_eq!(client.ask("GET a"), "$1\r\n3\r\n");
        // No other load: the stream is asked for again.
        link = master.go_on(offset);
    }
    // The stream goes on for whoever loads the script here.
    assert!(client.ask_words(&[b"SCRIPT", b"LOAD", SCRIPT.as_bytes()]).contains(NAME));
    offset += link.send(&[&run]);
    link.wait_for(offset);
    assert_eq!(client.ask("GET a"), "$1\r\n5\r\n");
    drop(client);
    replica.stop();
}

#[test]
fn scripts_that_a_master_has_sent_stay_behind_many_others() {
    let other = TempDir::new();
    let master = Master::new();
    let replica = Server::start(other.path(), &DEBUG);
    follow(&replica, master.port);
    let mut link = master.load(&file_of(&[("a", "1")]), 0);
    let text = request(&[b"EVAL", SCRIPT.as_bytes(), b"1", b"a", b"2"]);
    link.say(&text);
    let mut offset = text.len() as u64;
    offset += (0..600).map(|number| link.send(&[&format!("EVAL return({number}) 0")])).sum::<u64>();
    link.wait_for(offset);
    let mut client = replica.client();
    for number in 0..600 {
        assert_eq!(client.ask(&format!("EVAL return({}) 0", 1000 + number)), format!(":{}\r\n", 1000 + number));
    }
    offset += link.send(&[&format!("EVALSHA {NAME} 1 a 2")]);
    link.wait_for(offset);
    assert_eq!(client.ask("GET a"), "$1\r\n5\r\n");
    drop(client);
    replica.stop();
}

#[test]
fn a_script_that_came_for_keys_that_are_not_taken_is_there_for_those_that_are() {
    let other = TempDir::new();
    let master = Master::new();
    // Slot 15495 is that of `a`.
    let replica = Server::start(other.path(), &[&DEBUG[..], &["--replicaof-slots", "15495"]].concat());
    follow(&replica, master.port);
    let mut link = master.load(&file_of(&[("a", "1"), ("b", "1")]), 0);
    let text = request(&[b"EVAL", SCRIPT.as_bytes(), b"1", b"b", b"2"]);
    link.say(&text);
    let offset = text.len() as u64 + link.send(&[&format!("EVALSHA {NAME} 1 a 2")]);
    link.wait_for(offset);
    let mut client = replica.client();
    assert_eq!((client.ask("GET a"), client.ask("DBSIZE")), ("$1\r\n3\r\n".into(), ":1\r\n".into()));
    drop(client);
    replica.stop();
}

/// Returns the call of the script by its name.
fn run_by_name() -> String {
    format!("EVALSHA {NAME} 1 a 2")
}

/// Starts a server that follows a Redis whose stream names a script that is not there, behind an offset which it has
/// reached: it is about to ask for all data.
fn asks_for_a_script(other: &TempDir) -> (Master, Server, u64) {
    let master = Master::new();
    let replica = Server::start(other.path(), &DEBUG);
    follow(&replica, master.port);
    let mut link = master.load(&file_of(&[("a", "1")]), 0);
    let offset = link.send(&["INCR a"]);
    link.wait_for(offset);
    link.send(&[&run_by_name()]);
    (master, replica, offset)
}

#[test]
fn the_stream_goes_on_where_the_load_for_a_script_cannot_be_held() {
    let other = TempDir::new();
    let (master, replica, mut offset) = asks_for_a_script(&other);
    let (run, mut client) = (run_by_name(), replica.client());
    let _refused = master.load(&file_of_keydb(), 1000);
    wait_until("it is told", || field(&mut client, "master_link_error").contains("cannot be held here"));
    assert!(client.ask_words(&[b"SCRIPT", b"LOAD", SCRIPT.as_bytes()]).contains(NAME));
    // No other load: the stream goes on where the data are.
    let mut link = master.go_on(offset);
    offset += link.send(&[&run]);
    link.wait_for(offset);
    assert_eq!(client.ask("GET a"), "$1\r\n4\r\n");
    drop(client);
    replica.stop();
}

#[test]
fn a_load_for_a_script_that_the_disk_had_no_room_for_is_asked_for_again() {
    let other = TempDir::new();
    let (master, replica, mut offset) = asks_for_a_script(&other);
    let (run, mut client) = (run_by_name(), replica.client());
    let mut too_much = master.accept();
    too_much.say(format!("+FULLRESYNC {STREAM} 1000\r\n\n${}\r\n", 1u64 << 60).as_bytes());
    wait_until("it is told", || field(&mut client, "master_link_error").contains("the disk has no room"));
    // Behind a pause the stream goes on, to the same script.
    let mut link = master.go_on(offset);
    link.send(&[&run]);
    let mut link = master.load(&file_with(&[("a", "10")], &[SCRIPT]), 5000);
    assert_eq!(link.asked.0, "?", "all data are asked for");
    offset = 5000 + link.send(&[&run]);
    link.wait_for(offset);
    assert_eq!(client.ask("GET a"), "$2\r\n12\r\n");
    drop(client);
    replica.stop();
}

/// Returns a file with deadlines of members of a set, which cannot be held here.
fn file_of_keydb() -> Vec<u8> {
    let mut file = Writer::file(Vec::new(), VERSION).expect("memory takes it");
    file.database(0).expect("memory takes it");
    for name in ["lasting", "fading"] {
        file.aux(b"mvcc-tstamp", b"1").expect("memory takes it");
        key(&mut file, Kind::Set, name);
        file.length(2).expect("memory takes it");
        file.string(b"one").and_then(|()| file.string(b"two")).expect("memory takes it");
    }
    file.aux(b"keydb-subexpire-key", b"one").expect("memory takes it");
    file.aux(b"keydb-subexpire-when", b"4102444800000").expect("memory takes it");
    file.end().expect("memory takes it")
}

#[test]
fn deadlines_of_members_in_a_file_of_keydb_are_not_dropped_without_a_word() {
    let (other, file) = (TempDir::new(), file_of_keydb());
    let master = Master::new();
    let replica = Server::start(other.path(), &DEBUG);
    let mut client = replica.client();
    assert_eq!(client.ask("SET own 1"), "+OK\r\n");
    follow(&replica, master.port);
    let _link = master.load(&file, 0);
    let why = "its data cannot be held here: 1 deadlines of members, as KeyDB has them, of the keys (fading)";
    wait_until("it is told", || field(&mut client, "master_link_error").contains(why));
    assert_eq!(client.ask("GET own"), "$1\r\n1\r\n");
    // An import says so, into either kind of target.
    assert_eq!(client.ask("REPLICAOF NO ONE"), "+OK\r\n");
    let (dir, made) = (TempDir::new(), TempDir::new());
    let path = dir.path().join("keydb.rdb");
    std::fs::write(&path, &file).expect("the directory takes it");
    let (made, port) = (made.path().to_string_lossy().into_owned(), replica.port.to_string());
    for into in [vec!["--dir", &made, "--maxmemory", "128mb"], vec!["--host", "127.0.0.1", "--port", &port]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haypile"));
        let output = command.arg("import").arg(&path).args(&into).output().expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let line = "NOT IMPORTED, these members do not expire: 1 deadlines of members (KeyDB), of the keys: fading\n";
        assert!(said.contains(line) && said.contains("2 keys imported"), "{said}");
    }
    assert_eq!(client.ask("SMEMBERS fading").lines().count(), 5);
    drop(client);
    replica.stop();
}
