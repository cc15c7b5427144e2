//! Copies of all data that are cut off, are not wanted any more, or become necessary.

use crate::process::following::{DEBUG, field, is_equal, replica_of, wait_for_link};
use crate::process::{Client, Server, TempDir, free_port, wait_until};
use std::net::TcpStream;

/// Fills a server with tables of the base that together have some megabytes.
fn fill_tables(client: &mut Client<TcpStream>, count: usize) {
    let value = "v".repeat(10_000);
    for number in 0..count {
        // Values that do not compress to nothing.
        assert_eq!(client.ask(&format!("SET big:{number} {number}{value}{}", number * 7919)), "+OK\r\n");
    }
}

#[test]
fn a_copy_that_is_cut_off_goes_on_without_the_tables_that_are_there() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let small = ["--memtable-size", "1mb", "--compression", "none"];
    let mut master = Server::start(dir.path(), &[&DEBUG[..], &small].concat());
    let mut client = master.client();
    fill_tables(&mut client, 2000);
    for round in 0..6 {
        // Whatever has come by then: the replica is killed, or the master.
        let of = ["--replicaof", "127.0.0.1", &master.port.to_string()].map(str::to_owned);
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        let replica = Server::spawn(other.path(), free_port(), &of);
        std::thread::sleep(std::time::Duration::from_millis(40 * round));
        if round % 2 == 1 {
            let port = master.port;
            master.kill();
            master = Server::start_at(dir.path(), port, &[&DEBUG[..], &small].concat());
            client = master.client();
        }
        replica.kill();
        client.ask(&format!("SET round {round}"));
    }
    let replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    for left in ["incoming", "replaced"] {
        assert!(!other.path().join(left).exists(), "{left}");
    }
    replica.stop();
    master.stop();
}

#[test]
fn a_copy_that_is_not_wanted_any_more_changes_nothing() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let small = ["--memtable-size", "1mb", "--compression", "none"];
    let master = Server::start(dir.path(), &[&DEBUG[..], &small].concat());
    let mut client = master.client();
    fill_tables(&mut client, 1000);
    let replica = Server::start(other.path(), &DEBUG);
    let mut own = replica.client();
    let mut copies = 0;
    for round in 0..30 {
        assert_eq!(own.ask(&format!("SET round {round}")), "+OK\r\n");
        own.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port));
        // At any moment of the copy.
        std::thread::sleep(std::time::Duration::from_millis(2 * round));
        // As in Redis, LOADING while the copy is put in place.
        wait_until("it is told", || own.ask("REPLICAOF NO ONE") == "+OK\r\n");
        wait_until("it leads", || own.ask("SET led x") == "+OK\r\n");
        // The data are its own or the copy's, and not a mixture of both.
        let (of_master, of_own) = (own.ask("EXISTS big:1 big:999"), own.ask("GET round"));
        match &*of_master {
            ":0\r\n" => assert_eq!(of_own, format!("${}\r\n{round}\r\n", round.to_string().len())),
            ":2\r\n" => {
                copies += 1;
                assert_eq!(of_own, "$-1\r\n");
                own.ask("FLUSHALL");
            }
            other => panic!("a mixture: {other}"),
        }
    }
    own.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    wait_for_link(&replica);
    is_equal(&master, &replica);
    println!("{copies} of 30 copies came into place");
    replica.stop();
    master.stop();
}

#[test]
fn a_replica_that_is_stopped_for_long_is_let_go_and_gets_a_copy() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let small = ["--memtable-size", "1mb", "--log-segment-size", "1mb", "--replica-log-size", "4mb"];
    let master = Server::start(dir.path(), &[&DEBUG[..], &small].concat());
    let mut client = master.client();
    client.ask("SET a b");
    let replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    replica.halt();
    let log = dir.path().join("log");
    let log_bytes = || -> u64 {
        let files = std::fs::read_dir(&log).expect("readable").filter_map(Result::ok);
        files.filter_map(|file| file.metadata().ok()).map(|about| about.len()).sum()
    };
    fill_tables(&mut client, 3000);
    wait_until("it is let go", || field(&mut client, "connected_slaves") == "0");
    fill_tables(&mut client, 500);
    wait_until("the log goes", || log_bytes() < 20 << 20);
    replica.signal("CONT");
    wait_until("it has all", || {
        let mut reader = replica.client();
        reader.ask("GET big:2999") != "$-1\r\n" && field(&mut reader, "master_link_status") == "up"
    });
    is_equal(&master, &replica);
    replica.stop();
    master.stop();
}
