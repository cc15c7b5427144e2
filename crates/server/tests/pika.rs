//! Pika's words and hours are understood, and a Pika is exported.

mod process;

use process::following::{DEBUG, field, fill, is_equal, replica_of, wait_for_link};
use process::redis::redis;
use process::{Server, TempDir, wait_until};
use std::os::unix::fs::MetadataExt;

#[test]
fn client_kill_all_closes_everybody_but_replicas() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    let replica = replica_of(&master, &other, &DEBUG);
    let (mut subscriber, mut monitor, mut client) = (master.client(), master.client(), master.client());
    assert!(subscriber.ask("SUBSCRIBE news").contains("subscribe"));
    assert_eq!(monitor.ask("MONITOR"), "+OK\r\n");
    assert_eq!(client.ask("client kill all"), "+OK\r\n");
    for mut closed in [subscriber, monitor, client] {
        let rest = closed.rest();
        assert!(!rest.contains("PONG"), "{rest}");
    }
    let mut client = master.client();
    assert_eq!(client.ask("CLIENT LIST TYPE replica").matches("id=").count(), 1);
    fill(&mut client, 0, 10);
    is_equal(&master, &replica);
}

#[test]
fn slaveof_with_force_fetches_a_copy() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    let mut of_master = master.client();
    fill(&mut of_master, 0, 100);
    let replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    let mut of_replica = replica.client();
    // A copy is a directory of its own, which takes the place of the one before.
    let base = || std::fs::metadata(other.path().join("base")).expect("the base is there").ino();
    let before = base();
    let again = format!("SLAVEOF 127.0.0.1 {}", master.port);
    assert_eq!(of_replica.ask(&again), "+OK Already connected to specified master\r\n");
    assert_eq!(of_replica.ask(&format!("{again} force")), "+OK\r\n");
    wait_until("the copy is in place", || base() != before);
    wait_for_link(&replica);
    fill(&mut of_master, 100, 200);
    is_equal(&master, &replica);
    // Once is enough: the next connection goes on from where it was.
    let copied = base();
    assert_eq!(of_replica.ask("CLIENT KILL TYPE master"), ":1\r\n");
    fill(&mut of_master, 200, 210);
    wait_for_link(&replica);
    is_equal(&master, &replica);
    assert_eq!(base(), copied);
    // What the replica had is given up, whoever it follows.
    let place = TempDir::new();
    let redis = redis(&place, &["--repl-diskless-sync-delay", "0"]);
    let mut of_redis = redis.client();
    assert_eq!(of_redis.ask("SET k v"), "+OK\r\n");
    for count in ["1", "2"] {
        assert_eq!(of_replica.ask(&format!("SLAVEOF 127.0.0.1 {} FORCE", redis.port)), "+OK\r\n");
        wait_until("all of it was sent", || of_redis.info("sync_full") == count);
        wait_for_link(&replica);
        assert_eq!(of_replica.ask("GET k"), "$1\r\nv\r\n");
        assert_eq!(of_replica.ask("DBSIZE"), ":1\r\n");
    }
    assert_eq!(of_redis.ask("CLIENT KILL TYPE replica"), ":1\r\n");
    wait_until("it goes on", || of_redis.info("sync_partial_ok") == "1");
    assert_eq!(field(&mut of_replica, "role"), "slave");
}
