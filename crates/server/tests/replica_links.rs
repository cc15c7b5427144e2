//! Links between a master and its replica that fall silent, cannot be had, or end: what either side makes of it.

mod process;

use haypile_harness::repl::network::{Flow, Relay};
use process::following::{DEBUG, READONLY, field, is_equal, replica_of, wait_for_link};
use process::redis::redis;
use process::{Server, TempDir, closed_port, wait_until};

#[test]
fn a_link_that_falls_silent_is_given_up_and_comes_back() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    let relay = Relay::start().expect("a port is free");
    relay.lead_to(master.port);
    let more = ["--repl-timeout", "2", "--replicaof", "127.0.0.1", &relay.port().to_string()].map(str::to_owned);
    let more: Vec<&str> = DEBUG.into_iter().chain(more.iter().map(String::as_str)).collect();
    let replica = Server::start(other.path(), &more);
    wait_for_link(&replica);
    let (mut client, mut of_replica) = (master.client(), replica.client());
    assert_eq!(client.ask("SET before x"), "+OK\r\n");
    is_equal(&master, &replica);
    relay.set(Flow::Stalled);
    assert_eq!(client.ask("SET meanwhile x"), "+OK\r\n");
    wait_until("the link is down", || field(&mut of_replica, "master_link_status") == "down");
    wait_until("why is told", || !field(&mut of_replica, "master_link_error").is_empty());
    assert_ne!(field(&mut of_replica, "master_link_down_since_seconds"), "-1");
    assert_eq!(of_replica.ask("EXISTS before meanwhile"), ":1\r\n");
    relay.set(Flow::Open);
    wait_for_link(&replica);
    is_equal(&master, &replica);
    replica.stop();
    master.stop();
}

#[test]
fn a_replica_that_acknowledges_nothing_is_no_good_one() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let needs = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "8"];
    let master = Server::start(dir.path(), &[&DEBUG[..], &needs].concat());
    let replica = replica_of(&master, &other, &DEBUG);
    let mut client = master.client();
    wait_until("it is taken", || client.ask("SET k before") == "+OK\r\n");
    is_equal(&master, &replica);
    replica.halt();
    // The connection is there, and the replica counts until it has been silent for too long.
    let refused = "-NOREPLICAS Not enough good replicas to write.\r\n";
    wait_until("writes are refused", || client.ask("SET k meanwhile") == refused);
    assert_eq!(field(&mut client, "connected_slaves"), "1");
    assert_eq!(field(&mut client, "min_slaves_good_slaves"), "0");
    assert_eq!(client.ask("GET k"), "$9\r\nmeanwhile\r\n", "those before that were taken");
    // The replica lacks the records that were taken meanwhile.
    let lag_ms = |line: &str| line.split("lag_ms=").nth(1).and_then(|ms| ms.parse::<u64>().ok()).expect("a number");
    let late = lag_ms(&field(&mut client, "slave0"));
    wait_until("it gets later", || lag_ms(&field(&mut client, "slave0")) > late);
    replica.signal("CONT");
    wait_until("writes are taken", || client.ask("SET k after") == "+OK\r\n");
    is_equal(&master, &replica);
    wait_until("it has all", || lag_ms(&field(&mut client, "slave0")) == 0);
    replica.stop();
    master.stop();
}

#[test]
fn a_server_takes_writes_when_replicaof_no_one_is_answered() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let (mut client, mut other) = (server.client(), server.client());
    let (_socket, port) = closed_port();
    for number in 0..20 {
        assert_eq!(client.ask(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK\r\n");
        assert_eq!(other.ask("SET a b"), READONLY);
        assert_eq!(client.ask("REPLICAOF NO ONE"), "+OK\r\n");
        assert_eq!(other.ask(&format!("SET a {number}")), "+OK\r\n");
        assert_eq!(client.ask("GET a"), format!("${}\r\n{number}\r\n", number.to_string().len()));
    }
    // In a block, as Sentinel asks for it.
    client.ask(&format!("REPLICAOF 127.0.0.1 {port}"));
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    client.ask("REPLICAOF NO ONE");
    client.ask("CLIENT SETNAME promoter");
    assert_eq!(client.ask("EXEC"), "*2\r\n+OK\r\n+OK\r\n");
    assert_eq!(other.ask("SET a b"), "+OK\r\n");
    server.stop();
}

#[test]
fn who_promotes_a_server_that_has_followed_is_answered_when_it_takes_writes() {
    let dirs = [TempDir::new(), TempDir::new()];
    let master = Server::start(dirs[0].path(), &[]);
    let replica = replica_of(&master, &dirs[1], &[]);
    let clients = || (replica.client(), replica.client());
    let ((mut first, mut second), (mut writer, _)) = (clients(), clients());
    for number in 0..10 {
        let least = number % 2;
        assert_eq!(writer.ask(&format!("CONFIG SET min-replicas-to-write {least}")), "+OK\r\n");
        // The second finds nothing to change, and the server on its way.
        first.send(b"REPLICAOF NO ONE\r\n");
        second.send(b"REPLICAOF NO ONE\r\n");
        assert_eq!(second.reply(), "+OK\r\n");
        let written = writer.ask(&format!("SET own:{number} x"));
        assert_eq!(written.starts_with("-NOREPLICAS"), least == 1, "{written}");
        assert_eq!(written == "+OK\r\n", least == 0, "{written}");
        assert_eq!(first.reply(), "+OK\r\n");
        assert_eq!(first.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port)), "+OK\r\n");
        assert_eq!(writer.ask("SET a b"), READONLY);
        wait_for_link(&replica);
    }
    replica.stop();
    master.stop();
}

#[test]
fn a_promotion_comes_to_its_end_whatever_comes_in_between() {
    let dirs = [TempDir::new(), TempDir::new()];
    let master = Server::start(dirs[0].path(), &[]);
    let replica = replica_of(&master, &dirs[1], &["--workers", "2"]);
    let (mut client, mut writer) = (replica.client(), replica.client());
    let follow = format!("REPLICAOF 127.0.0.1 {}", master.port);
    // In a block that takes so long that it runs on the I/O pool.
    let long = "local sum = 0 for i = 1, 1000000 do sum = sum + i end return 7";
    client.ask("MULTI");
    client.ask_words(&[b"EVAL_RO", long.as_bytes(), b"0"]);
    client.ask("REPLICAOF NO ONE");
    assert_eq!(client.ask("EXEC"), "*2\r\n:7\r\n+OK\r\n");
    assert_eq!(client.info("commands_on_io_pool"), "1");
    assert_eq!(writer.ask("SET a b"), "+OK\r\n");
    for _ in 0..5 {
        // The one that asks goes at once.
        assert_eq!(client.ask(&follow), "+OK\r\n");
        wait_for_link(&replica);
        replica.client().send(b"REPLICAOF NO ONE\r\n");
        wait_until("it leads", || writer.ask("SET a b") == "+OK\r\n");
        // Another one has it follow meanwhile: the promotion is over, and is answered.
        assert_eq!(client.ask(&follow), "+OK\r\n");
        wait_for_link(&replica);
        client.send(b"REPLICAOF NO ONE\r\n");
        wait_until("it is under way", || writer.ask(&follow) == "+OK\r\n");
        assert_eq!(client.reply(), "+OK\r\n");
        assert_eq!(writer.ask("SET a b"), READONLY);
        wait_for_link(&replica);
        client.ask("REPLICAOF NO ONE");
    }
    assert_eq!(client.info("blocked_clients"), "0");
    replica.stop();
    master.stop();
}

#[test]
fn directives_about_a_lost_master_and_missing_replicas_hold_at_once() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.ask("CONFIG SET min-replicas-to-write 2"), "+OK\r\n");
    assert!(client.ask("SET a b").starts_with("-NOREPLICAS"));
    assert_eq!(client.ask("CONFIG SET min-replicas-to-write 0"), "+OK\r\n");
    assert_eq!(client.ask("SET a b"), "+OK\r\n");
    let (_socket, port) = closed_port();
    assert_eq!(client.ask(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK\r\n");
    for _ in 0..3 {
        assert_eq!(client.ask("CONFIG SET replica-serve-stale-data no"), "+OK\r\n");
        assert!(client.ask("GET a").starts_with("-MASTERDOWN"));
        assert_eq!(client.ask("CONFIG SET replica-serve-stale-data yes"), "+OK\r\n");
        assert_eq!(client.ask("GET a"), "$1\r\nb\r\n");
    }
    server.stop();
}

#[test]
fn masters_are_followed_from_the_address_that_the_directive_names() {
    let dirs = [TempDir::new(), TempDir::new(), TempDir::new()];
    let master = Server::start(dirs[0].path(), &[]);
    let replica = replica_of(&master, &dirs[1], &["--bind-source-addr", "127.0.0.2", "--logfile", "server.log"]);
    let line = field(&mut master.client(), "slave0");
    assert!(line.starts_with("ip=127.0.0.2,"), "{line}");
    let more = ["--repl-diskless-sync-delay", "0", "--protected-mode", "no"];
    let of_redis = redis(&dirs[2], &more);
    let mut client = replica.client();
    assert_eq!(client.ask("CONFIG SET bind-source-addr 203.0.113.1"), "+OK\r\n");
    assert_eq!(client.ask(&format!("REPLICAOF 127.0.0.1 {}", of_redis.port)), "+OK\r\n");
    let log = dirs[1].path().join("server.log");
    wait_until("the log tells of the address", || {
        let log = std::fs::read_to_string(&log).expect("it is text");
        log.contains("203.0.113.1 cannot be connected from, any address is: ")
    });
    wait_for_link(&replica);
    let mut of_redis_master = of_redis.client();
    let mut comes_from = |address: &str| of_redis_master.ask("INFO replication").contains(&format!(":ip={address},"));
    wait_until("it comes from any", || comes_from("127.0.0.1"));
    assert_eq!(client.ask("CONFIG SET bind-source-addr 127.0.0.3"), "+OK\r\n");
    assert_eq!(of_redis.client().ask("CLIENT KILL TYPE replica"), ":1\r\n");
    wait_until("it comes from there", || comes_from("127.0.0.3"));
    [replica, master, of_redis].into_iter().for_each(Server::stop);
}
