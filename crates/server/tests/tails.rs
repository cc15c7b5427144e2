//! Records that a master gives up when another one has gone on without it: they are kept in a file.

mod process;

use process::following::{DEBUG, fill, is_equal, print_tail, replica_of, wait_for_link};
use process::{Server, TempDir, wait_until};

#[test]
fn a_master_that_comes_back_keeps_the_records_that_it_gives_up() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    let mut client = master.client();
    fill(&mut client, 0, 50);
    let replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    // The master writes on alone, while the replica becomes a master.
    let mut own = replica.client();
    assert_eq!(own.ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_until("it leads", || own.ask("SET k of-replica") == "+OK\r\n");
    assert_eq!(client.ask("SET lost of-master"), "+OK\r\n");
    assert_eq!(client.ask("RPUSH list:lost a b c"), ":3\r\n");
    assert_eq!(client.ask(&format!("REPLICAOF 127.0.0.1 {}", replica.port)), "+OK\r\n");
    wait_for_link(&master);
    is_equal(&replica, &master);
    assert_eq!(client.ask("GET lost"), "$-1\r\n");
    let printed = print_tail(dir.path());
    let records = printed.lines().filter(|line| line.contains("lost\" (")).count();
    assert!(records == 2 && printed.contains("list:lost"), "{printed}");
    replica.stop();
    master.stop();
}

#[test]
fn a_master_that_was_killed_keeps_the_records_that_it_gives_up() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    // Without replicas a start lets go of what the base has.
    let options = [&DEBUG[..], &["--log-segment-size", "1mb", "--log-retention-size", "64mb"]].concat();
    let mut master = Server::start(dir.path(), &options);
    let port = master.port;
    fill(&mut master.client(), 0, 50);
    let replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    let mut own = replica.client();
    assert_eq!(own.ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_until("it leads", || own.ask("SET k of-replica") == "+OK\r\n");
    // The histories that the master begins after each of its ends are known to nobody else.
    for round in 0..3 {
        assert_eq!(master.client().ask(&format!("SET lost:{round} of-master")), "+OK\r\n");
        master.kill();
        master = Server::start_at(dir.path(), port, &options);
    }
    let mut client = master.client();
    assert_eq!(client.ask("SET lost:3 of-master"), "+OK\r\n");
    assert_eq!(client.ask(&format!("REPLICAOF 127.0.0.1 {}", replica.port)), "+OK\r\n");
    wait_for_link(&master);
    is_equal(&replica, &master);
    assert_eq!(client.ask("EXISTS lost:0 lost:1 lost:2 lost:3"), ":0\r\n");
    let printed = print_tail(dir.path());
    let given_up = (0..4).filter(|round| printed.contains(&format!("lost:{round}\" ("))).count();
    assert!(given_up == 4 && !printed.contains("key:"), "{printed}");
    replica.stop();
    master.stop();
}

#[test]
fn a_master_that_was_killed_with_nothing_more_than_its_replica_needs_no_copy() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let mut master = Server::start(dir.path(), &DEBUG);
    let port = master.port;
    fill(&mut master.client(), 0, 50);
    let replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    // Each start after a crash begins a history, of which there is no record.
    for _ in 0..2 {
        master.kill();
        master = Server::start_at(dir.path(), port, &DEBUG);
    }
    let mut own = replica.client();
    assert_eq!(own.ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_until("it leads", || own.ask("SET k of-replica") == "+OK\r\n");
    let mut client = master.client();
    assert_eq!(client.ask(&format!("REPLICAOF 127.0.0.1 {}", replica.port)), "+OK\r\n");
    wait_for_link(&master);
    is_equal(&replica, &master);
    assert_eq!((own.info("sync_full"), own.info("sync_partial_ok")), ("0".into(), "1".into()));
    // The histories that were left are no obstacle to a start, nor to a replica of this one.
    let port = master.port;
    master.kill();
    let master = Server::start_at(dir.path(), port, &["--replicaof", &format!("127.0.0.1 {}", replica.port)]);
    assert_eq!(own.ask("SET k again"), "+OK\r\n");
    wait_until("it follows on", || master.client().ask("GET k") == "$5\r\nagain\r\n");
    assert_eq!(own.info("sync_full"), "0");
    replica.stop();
    master.stop();
}

#[test]
fn a_replica_that_was_a_master_for_a_while_without_a_write_gets_a_copy_if_its_master_has_gone_on() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    fill(&mut master.client(), 0, 50);
    let replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    let mut own = replica.client();
    assert_eq!(own.ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_until("it leads", || own.info("role") == "master" && own.info("connected_slaves") == "0");
    assert_eq!(master.client().ask("SET k of-master"), "+OK\r\n");
    assert_eq!(own.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port)), "+OK\r\n");
    wait_for_link(&replica);
    is_equal(&master, &replica);
    assert_eq!(own.ask("GET k"), "$9\r\nof-master\r\n");
    replica.stop();
    master.stop();
}

#[test]
fn histories_without_a_record_are_named_again_and_again_and_kept_once() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let mut master = Server::start(dir.path(), &DEBUG);
    let port = master.port;
    fill(&mut master.client(), 0, 50);
    // Two histories that both servers know, and that have no record.
    for _ in 0..2 {
        master.kill();
        master = Server::start_at(dir.path(), port, &DEBUG);
    }
    let mut replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    let follows = format!("127.0.0.1 {port}");
    let port_of_replica = replica.port;
    let segments = |dir: &TempDir| std::fs::read_dir(dir.path().join("log")).expect("it has a log").count();
    let before = segments(&other);
    for round in 0..4 {
        // The replica is killed, or is a master in between, and writes nothing.
        let mut own = replica.client();
        if round % 2 == 1 {
            assert_eq!(own.ask("REPLICAOF NO ONE"), "+OK\r\n");
            wait_until("it leads", || own.info("role") == "master");
            assert_eq!(own.ask(&format!("REPLICAOF {follows}")), "+OK\r\n");
        } else {
            replica.kill();
            replica =
                Server::start_at(other.path(), port_of_replica, &[&DEBUG[..], &["--replicaof", &follows]].concat());
        }
        wait_for_link(&replica);
        is_equal(&master, &replica);
    }
    assert!(segments(&other) <= before + 6, "{} files of the log, {before} before", segments(&other));
    // The master goes on: what the replica stands in now it has left for good.
    assert_eq!(master.client().ask("SET k of-master"), "+OK\r\n");
    wait_until("it has the record", || replica.client().ask("GET k") == "$9\r\nof-master\r\n");
    is_equal(&master, &replica);
    replica.kill();
    replica = Server::start_at(other.path(), port_of_replica, &[&DEBUG[..], &["--replicaof", &follows]].concat());
    wait_for_link(&replica);
    is_equal(&master, &replica);
    replica.stop();
    master.stop();
}
