//! Pika's words and hours are understood, and a Pika is exported.

mod process;

use process::following::{DEBUG, field, fill, is_equal, replica_of, wait_for_link};
use process::redis::redis;
use process::{Client, Server, TempDir, wait_until};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// Directives with which a few megabytes fill a base.
const SMALL: [&str; 4] = ["--memtable-size", "1mb", "--row-cache-size", "1mb"];

fn value_of(client: &mut Client<TcpStream>, name: &str) -> u64 {
    client.info(name).parse().expect("it is a number")
}

#[test]
fn compact_takes_out_of_the_base_what_is_dead() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &SMALL);
    let mut client = server.client();
    let value = "x".repeat(200);
    for database in ["0", "1"] {
        assert_eq!(client.ask(&format!("SELECT {database}")), "+OK\r\n");
        for number in 0..20_000 {
            client.send(format!("SET key:{number} {number}{value}\r\n").as_bytes());
        }
        (0..20_000).for_each(|_| assert_eq!(client.reply(), "+OK\r\n"));
        assert_eq!(client.ask("HSET kept f v"), ":1\r\n");
    }
    for database in ["0", "1"] {
        assert_eq!(client.ask(&format!("SELECT {database}")), "+OK\r\n");
        (0..20_000).for_each(|number| client.send(format!("DEL key:{number}\r\n").as_bytes()));
        (0..20_000).for_each(|_| assert_eq!(client.reply(), ":1\r\n"));
    }
    // One database, then all of them, while the first one may go on still.
    assert_eq!(client.ask("COMPACT db1 hash"), "+OK\r\n");
    assert_eq!(client.ask("COMPACT"), "+OK\r\n");
    wait_until("both have ended", || client.info("full_compaction_running") == "0");
    // The second one is a part of the first if that had not begun.
    assert!((1..=2).contains(&value_of(&mut client, "full_compactions_done")));
    assert_eq!(client.info("full_compactions_failed"), "0");
    wait_until("the figures are those of now", || value_of(&mut client, "live_sst_bytes") < 200_000);
    for database in ["0", "1"] {
        assert_eq!(client.ask(&format!("SELECT {database}")), "+OK\r\n");
        assert_eq!(client.ask("DBSIZE"), ":1\r\n");
        assert_eq!(client.ask("HGET kept f"), "$1\r\nv\r\n");
    }
    server.stop();
}

#[test]
fn a_full_compaction_begins_by_itself_in_its_hours() {
    let dir = TempDir::new();
    let port = process::free_port();
    let mut start = process::command(dir.path(), port, &SMALL);
    let server = Server::start_by(start.env("TZ", "UTC"), port);
    let mut client = server.client();
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    assert_eq!(client.ask("CONFIG SET compact-cron 0-23/101").chars().next(), Some('-'));
    // Hours of which this one is none, and then hours of which it is one; the test may run at their bounds.
    let hour = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_secs() / 3600 % 24;
    let window = |from: u64, hours: u64| format!("CONFIG SET compact-cron {}-{}/0", from % 24, (from + hours) % 24);
    assert_eq!(client.ask(&window(hour + 8, 2)), "+OK\r\n");
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(client.info("full_compactions_done"), "0");
    assert_eq!(client.ask(&window(hour + 23, 4)), "+OK\r\n");
    wait_until("one has begun by itself", || client.info("full_compactions_done") == "1");
    assert_eq!(client.ask("SET k w"), "+OK\r\n");
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(client.info("full_compactions_done"), "1", "once in these hours");
    assert_eq!(client.ask("COMPACT"), "+OK\r\n");
    wait_until("by hand at any time", || client.info("full_compactions_done") == "2");
    server.stop();
}

#[test]
fn info_keyspace_1_shows_counts_by_type_and_sizes() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &SMALL);
    let mut client = server.client();
    assert_eq!(client.ask("SELECT 3"), "+OK\r\n");
    assert_eq!(client.ask("SET string 1 EX 1000"), "+OK\r\n");
    for number in 0..20_000 {
        client.send(format!("HSET hash field:{number} {number}\r\nZADD zset {number} member:{number}\r\n").as_bytes());
    }
    (0..40_000).for_each(|_| assert_eq!(client.reply(), ":1\r\n"));
    assert_eq!(client.ask("COMPACT"), "+OK\r\n");
    wait_until("all is in the base", || value_of(&mut client, "full_compactions_done") == 1);
    let info = client.ask("INFO keyspace 1");
    assert!(info.contains("\r\n# Keyspace\r\ndb3:keys=3,expires=1,avg_ttl=0\r\n"), "{info}");
    assert!(
        info.contains("\r\n# Types\r\ntypes_db3:strings=1,lists=0,sets=0,sorted_sets=1,hashes=1,streams=0\r\n"),
        "{info}"
    );
    let sizes = info.lines().find_map(|line| line.strip_prefix("sizes_db3:")).expect("the database has a size");
    let size = |name: &str| -> u64 {
        let part = sizes.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        part.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{name} of {sizes}"))
    };
    assert!(size("elements") > 100_000 && size("scores") > 100_000, "{sizes}");
    assert!(size("bytes") >= size("elements") + size("scores") + size("keys"), "{sizes}");
    assert!(!info.contains("sizes_db0"), "{info}");
    assert!(!client.ask("INFO everything").contains("sizes_db3"));
    assert!(client.ask("INFO sizes").contains("sizes_db3"));
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    assert_eq!(client.ask("INFO keyspace 1"), "+QUEUED\r\n");
    assert!(client.ask("EXEC").contains("sizes_db3"), "in a block as well");
    server.stop();
}
