//! Readers of the change stream whose server is another one, is not so far, refuses them, or has too many.

mod process;

use process::changes::{Follower, Printer, text, words_of};
use process::following::{DEBUG, field, replica_of};
use process::{Client, Server, TempDir, free_port, wait_until};
use std::collections::BTreeSet;
use std::net::TcpStream;

const YES: [&str; 2] = ["--change-stream", "yes"];

/// The number of connections with which nobody more may follow the changes.
const READERS_MAX: usize = 128;

#[test]
fn a_program_goes_on_at_the_replica_that_takes_its_masters_place() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let (more, port) = ([&YES[..], &DEBUG[..]].concat(), free_port());
    let mut master = Server::start_at(dir.path(), port, &more);
    let replica = replica_of(&master, &other, &more);
    let mut printer = Printer::start(port, &["--from", "-"]);
    let (mut seen, mut histories) = (BTreeSet::new(), Vec::new());
    let mut print_through = |count: usize, seen: &mut BTreeSet<u64>, histories: &mut Vec<String>| {
        while seen.len() < count {
            let line = printer.line().expect("it goes on");
            match line["history"].as_str() {
                Some(history) => histories.push(history.to_owned()),
                None => {
                    assert_eq!(words_of(&line["changes"][0]), ["incr", "n"], "{line}");
                    seen.insert(line["index"].as_u64().expect("a record has one"));
                }
            }
        }
    };
    let mut client = master.client();
    (1..=100).for_each(|at| assert_eq!(client.ask("INCR n"), format!(":{at}\r\n")));
    print_through(100, &mut seen, &mut histories);
    let mut client = replica.client();
    wait_until("the replica has all", || client.ask("GET n") == "$3\r\n100\r\n");
    master.kill_now();
    assert_eq!(client.ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_until("it leads", || client.ask("INCR n") == ":101\r\n");
    replica.stop();
    // The address is the master's from here on.
    let promoted = Server::start_at(other.path(), port, &more);
    let mut client = promoted.client();
    (102..=200).for_each(|at| assert_eq!(client.ask("INCR n"), format!(":{at}\r\n")));
    print_through(200, &mut seen, &mut histories);
    histories.dedup();
    assert_eq!(histories.len(), 2, "a history begins with the promotion");
    assert_eq!(seen.last().expect("there are some") - seen.first().expect("there are some"), 199);
}

#[test]
fn whoever_is_further_than_a_replica_waits_for_it() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let more = [&YES[..], &DEBUG[..]].concat();
    let master = Server::start(dir.path(), &more);
    let replica = replica_of(&master, &other, &more);
    let mut client = master.client();
    assert_eq!(client.ask("SET k 0"), "+OK\r\n");
    let mut follower = Follower::at(&replica, "-");
    follower.through(&["set", "k", "0"]);
    let further = follower.index + 3;
    let asked = format!("CHANGES.FOLLOW {further} HISTORY {}", follower.history);
    let refused = replica.client().ask(&asked);
    assert_eq!(refused, format!("-NOTYET the log has come to record {}, not to {further}\r\n", follower.index));
    // A program asks again until the records are there, and is told no record twice.
    let asked =
        |client: &mut Client<TcpStream>| client.ask("INFO commandstats").contains("cmdstat_changes.follow:calls=3");
    let mut printer = Printer::start(replica.port, &["--from", &further.to_string(), "--history", &follower.history]);
    let mut of_replica = replica.client();
    wait_until("the program has asked", || asked(&mut of_replica));
    (1..=5).for_each(|at| assert_eq!(client.ask(&format!("SET k {at}")), "+OK\r\n"));
    let begun = printer.line().expect("it begins");
    assert_eq!((text(&begun["history"]), begun["index"].as_u64()), (follower.history.clone(), Some(further)));
    let record = printer.line().expect("it goes on");
    assert_eq!(
        (record["index"].as_u64(), words_of(&record["changes"][0])),
        (Some(further + 1), vec!["set".into(), "k".into(), "4".into()])
    );
}

#[test]
fn a_program_that_is_refused_ends() {
    let dir = TempDir::new();
    let port = free_port();
    let server = Server::start_at(dir.path(), port, &YES);
    let mut client = server.client();
    assert_eq!(client.ask("CONFIG SET requirepass secret"), "+OK\r\n");
    assert_eq!(client.ask("SET k 1"), "+OK\r\n");
    for wrong in
        [&["--from", "-"][..], &["--from", "-", "--password", "wrong"], &["--from", "x", "--password", "secret"]]
    {
        let mut printer = Printer::start(port, wrong);
        assert!(!printer.succeeds(), "{wrong:?}");
        assert_eq!(printer.line(), None, "{wrong:?}");
    }
    let mut printer = Printer::start(port, &["--from", "-", "--password", "secret"]);
    assert!(printer.line().expect("it begins")["version"].is_u64());
    assert_eq!(words_of(&printer.line().expect("it goes on")["changes"][0]), ["set", "k", "1"]);
}

#[test]
fn readers_leave_room_for_replicas() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let more = [&YES[..], &DEBUG[..]].concat();
    let server = Server::start(dir.path(), &more);
    assert_eq!(server.client().ask("SET k 1"), "+OK\r\n");
    let mut followers: Vec<Follower> = (0..READERS_MAX).map(|_| Follower::at(&server, "-")).collect();
    let refused = |server: &Server| server.client().ask("CHANGES.FOLLOW -");
    assert_eq!(refused(&server), "-ERR max number of readers reached\r\n");
    let replica = replica_of(&server, &other, &more);
    assert_eq!(field(&mut replica.client(), "master_link_status"), "up");
    assert_eq!(refused(&server), "-ERR max number of readers reached\r\n");
    // The place of the replica is one of theirs, too.
    followers.truncate(READERS_MAX - 8);
    wait_until("there is a place again", || !refused(&server).starts_with('-'));
    for follower in &mut followers {
        assert_eq!(words_of(&follower.record()["changes"][0]), ["set", "k", "1"]);
    }
}
