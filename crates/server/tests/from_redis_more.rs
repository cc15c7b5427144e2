//! A real redis-server as the master: what a stream has beside keys, writes through kills exactly once, the progress of
//! a load, and masters whose stream becomes another one. `from_redis` begins with the rest.

mod process;

use haypile_harness::client::{Client as Caller, Reply};
use haypile_harness::repl::network::{Flow, Relay};
use process::following::{DEBUG, field, is_equal, replica_of, wait_for_link};
use process::redis::redis;
use process::{Client, Ends, PATIENCE, Server, TempDir, wait_until};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Directives of a Redis that tells its replicas at once, and whose backlog reaches further than any break here.
const AT_ONCE: [&str; 6] =
    ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--repl-backlog-size", "64mb"];

/// Returns how often a master has sent all of its data, and how often it went on.
fn syncs(master: &Server) -> [String; 2] {
    let mut client = master.client();
    ["sync_full", "sync_partial_ok"].map(|field| client.info(field))
}

fn follow(replica: &Server, port: u16) {
    assert_eq!(replica.client().ask(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK\r\n");
}

/// Sends commands that succeed.
fn run(client: &mut Client<TcpStream>, commands: &[&str]) {
    for command in commands {
        let reply = client.ask(command);
        assert!(!reply.starts_with('-'), "{command} is answered by {reply}");
    }
}

/// Returns a library with one function, which writes `answer`.
fn library(name: &str, answer: &str) -> String {
    format!(
        "#!lua name={name}\nredis.register_function('{name}_put', function(keys) \
         return redis.call('SET', keys[1], '{answer}') end)"
    )
}

const LIBRARIES: [&str; 3] = ["one", "two", "three"];

/// Returns the libraries that a server has, with their code. A list of all has no order.
fn libraries(server: &Server) -> Vec<String> {
    let mut client = server.client();
    LIBRARIES.iter().map(|name| client.ask(&format!("FUNCTION LIST LIBRARYNAME {name} WITHCODE"))).collect()
}

#[test]
fn what_a_redis_does_to_its_libraries_and_to_all_data_comes_with_its_commands() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = redis(&dir, &AT_ONCE);
    let replica = replica_of(&master, &other, &DEBUG);
    let mut caller = Caller::connect(master.port, PATIENCE).expect("the master listens");
    let mut call = |words: &[&[u8]]| -> Reply {
        let reply = caller.call(words).expect("the master answers");
        assert_eq!(reply.error(), None);
        reply
    };
    let there = |wanted: [bool; 3]| {
        is_equal(&master, &replica);
        let has = libraries(&replica);
        assert_eq!(has, libraries(&master));
        assert_eq!(has.iter().map(|list| list != "*0\r\n").collect::<Vec<_>>(), wanted);
    };
    there([false; 3]);
    for name in LIBRARIES {
        call(&[b"FUNCTION", b"LOAD", library(name, "first").as_bytes()]);
    }
    there([true; 3]);
    let all = call(&[b"FUNCTION", b"DUMP"]);
    let all = all.bytes().expect("a payload").to_vec();
    call(&[b"FUNCTION", b"LOAD", b"REPLACE", library("two", "second").as_bytes()]);
    call(&[b"FCALL", b"two_put", b"1", b"by-two"]);
    call(&[b"FUNCTION", b"DELETE", b"one"]);
    there([false, true, true]);
    assert_eq!(replica.client().ask("GET by-two"), "$6\r\nsecond\r\n");
    call(&[b"FUNCTION", b"RESTORE", &all, b"REPLACE"]);
    there([true; 3]);
    assert!(libraries(&replica)[1].contains("first"), "the library that was replaced is back");
    call(&[b"FUNCTION", b"FLUSH"]);
    there([false; 3]);
    call(&[b"FUNCTION", b"RESTORE", &all]);
    call(&[b"FUNCTION", b"DELETE", b"three"]);
    there([true, true, false]);
    call(&[b"FUNCTION", b"RESTORE", &all, b"FLUSH"]);
    there([true; 3]);
    call(&[b"FUNCTION", b"FLUSH", b"ASYNC"]);
    call(&[b"FUNCTION", b"LOAD", library("three", "last").as_bytes()]);
    there([false, false, true]);

    // FLUSHALL, of all databases, and the database that is selected stays; libraries do, too.
    let (mut of_master, mut of_replica) = (master.client(), replica.client());
    for flush in [&["FLUSHALL"][..], &["FLUSHALL ASYNC"], &["MULTI", "SET k 1", "FLUSHALL", "SET behind 1", "EXEC"]] {
        run(&mut of_master, &["SELECT 0", "MSET a 1 b 2", "SELECT 3", "RPUSH list 1 2 3"]);
        is_equal(&master, &replica);
        assert_ne!(of_replica.ask("DBSIZE"), ":0\r\n");
        run(&mut of_master, flush);
        is_equal(&master, &replica);
        assert_eq!(of_replica.ask("EXISTS a b k"), ":0\r\n", "{flush:?}");
        run(&mut of_master, &["SET there 1"]);
        is_equal(&master, &replica);
        of_replica.ask("SELECT 3");
        assert_eq!(of_replica.ask("MGET there list"), "*2\r\n$1\r\n1\r\n$-1\r\n", "{flush:?}");
        of_replica.ask("SELECT 0");
    }
    there([false, false, true]);
    let script = "redis.call('SET', 'k', 1) redis.call('FLUSHALL') return redis.call('SET', 'behind', 2)";
    assert_eq!(of_master.ask_words(&[b"EVAL", script.as_bytes(), b"0"]), "+OK\r\n");
    is_equal(&master, &replica);
    assert_eq!(syncs(&master), ["1", "0"]);
    // All of that is on the disk, and a load brings libraries again.
    let port = master.port.to_string();
    drop(of_replica);
    replica.kill();
    let replica = Server::start(other.path(), &[&DEBUG[..], &["--replicaof", "127.0.0.1", &port]].concat());
    wait_for_link(&replica);
    is_equal(&master, &replica);
    assert_eq!(libraries(&replica), libraries(&master));
    assert_eq!(syncs(&master), ["1", "1"]);
    run(&mut replica.client(), &["REPLICAOF NO ONE"]);
    wait_until("it leads", || replica.client().ask("FUNCTION FLUSH") == "+OK\r\n");
    follow(&replica, master.port);
    wait_for_link(&replica);
    is_equal(&master, &replica);
    assert_eq!(libraries(&replica), libraries(&master));
}

/// Counts and lists on a master until the end; `written` says how often.
fn write(port: u16, written: &AtomicU64, ends: &AtomicBool) {
    let mut client = Client::at(port);
    while !ends.load(Ordering::Relaxed) {
        let count = written.load(Ordering::Relaxed) + 1;
        for command in ["INCR counter", "LPUSH list x", "INCRBYFLOAT sum 0.5", "APPEND text x"] {
            let reply = client.ask(command);
            assert!(command.starts_with("INCRBYFLOAT") || reply == format!(":{count}\r\n"), "{command}: {reply}");
        }
        written.store(count, Ordering::Relaxed);
    }
}

#[test]
fn what_is_written_while_the_replica_is_killed_and_its_link_broken_comes_once() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = redis(&dir, &AT_ONCE);
    let relay = Relay::start().expect("a port is free");
    relay.lead_to(master.port);
    let port = relay.port().to_string();
    let more = [&DEBUG[..], &["--replicaof", "127.0.0.1", &port]].concat();
    let mut replica = Server::start(other.path(), &more);
    wait_for_link(&replica);
    // A load that is too slow begins anew.
    let [loads, _] = syncs(&master);
    let (written, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let goes_on = |what: &str| {
        let before = written.load(Ordering::Relaxed);
        wait_until(what, || written.load(Ordering::Relaxed) > before + 100);
    };
    std::thread::scope(|threads| {
        let until = Ends(&ends);
        let writer = threads.spawn(|| write(master.port, &written, &ends));
        for round in 0..9 {
            goes_on("the replica follows what is written");
            // The kill comes first, the break comes first, or the link is silent while the replica is killed.
            match round % 3 {
                0 => replica.kill_now(),
                1 => relay.set(Flow::Cut),
                _ => relay.set(Flow::Stalled),
            }
            goes_on("it is written meanwhile");
            replica.kill_now();
            relay.set(Flow::Cut);
            goes_on("it is written while there is no replica");
            replica = Server::start_at(other.path(), replica.port, &more);
            goes_on("it is written while the link is broken");
            relay.set(Flow::Open);
            wait_for_link(&replica);
        }
        drop(until);
        writer.join().expect("the writer does not panic");
    });
    is_equal(&master, &replica);
    let count = written.into_inner();
    assert!(count > 9 * 400);
    let (mut of_master, mut of_replica) = (master.client(), replica.client());
    for client in [&mut of_master, &mut of_replica] {
        let digits = count.to_string();
        assert_eq!(client.ask("GET counter"), format!("${}\r\n{digits}\r\n", digits.len()));
        assert_eq!(
            (client.ask("LLEN list"), client.ask("STRLEN text")),
            (format!(":{count}\r\n"), format!(":{count}\r\n"))
        );
    }
    assert_eq!(of_replica.ask("GET sum"), of_master.ask("GET sum"));
    let [full, partial] = syncs(&master);
    assert_eq!(full, loads, "not all data again");
    assert!(partial.parse::<u32>().is_ok_and(|partial| partial >= 9), "{partial}");
}

/// Returns the fields `master_sync_*` of one INFO: in progress, the total, read and left bytes, percent, and seconds.
fn progress(client: &mut Client<TcpStream>) -> [f64; 6] {
    let info = client.ask("INFO replication");
    let names = ["in_progress", "total_bytes", "read_bytes", "left_bytes", "perc", "last_io_seconds_ago"];
    names.map(|name| {
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("master_sync_{name}:")));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {info}"))
    })
}

#[test]
fn the_progress_of_a_load_is_told_as_far_as_it_is_known() {
    const KEYS: usize = 1000;
    const BYTES: f64 = 2000.0 * KEYS as f64;
    for is_diskless in [false, true] {
        let (dir, other) = (TempDir::new(), TempDir::new());
        let diskless = if is_diskless { "yes" } else { "no" };
        let more = ["--repl-diskless-sync", diskless, "--rdbcompression", "no"];
        let master = redis(&dir, &[&AT_ONCE[..], &more].concat());
        let mut of_master = master.client();
        let value = "x".repeat(2000);
        for number in 0..KEYS {
            assert_eq!(of_master.ask(&format!("SET key:{number} {value}")), "+OK\r\n");
        }
        let relay = Relay::start().expect("a port is free");
        relay.lead_to(master.port);
        let replica = Server::start(other.path(), &DEBUG);
        let mut client = replica.client();
        assert_eq!(client.ask("SET own 1"), "+OK\r\n");
        // A second until the file of a disk is written, or in which it comes without one.
        assert_eq!(of_master.ask("CONFIG SET rdb-key-save-delay 1000"), "+OK\r\n");
        relay.slow_down(Duration::from_millis(40));
        follow(&replica, relay.port());
        wait_until("a load begins", || progress(&mut client)[0] == 1.0);
        if !is_diskless {
            let [_, total, read, left, percent, _] = progress(&mut client);
            assert_eq!([total, read, left, percent], [0.0; 4], "the master is still writing its file");
        }
        let mut looks = Vec::new();
        wait_until("the load ends", || {
            let look = progress(&mut client);
            if look[0] == 1.0 {
                looks.push(look);
            }
            if look[0] == 1.0 && look[2] < BYTES / 2.0 {
                assert_eq!(client.ask("GET own"), "$1\r\n1\r\n", "while the data come it serves what it had");
            }
            look[0] == 0.0 && field(&mut client, "master_link_status") == "up"
        });
        assert_eq!(progress(&mut client), [0.0, 0.0, 0.0, 0.0, 0.0, -1.0]);
        is_equal(&master, &replica);
        assert!(looks.windows(2).all(|two| two[0][2] <= two[1][2]), "what is read grows: {looks:?}");
        // Fields of one INFO may be of two moments, and fewer than two such looks would be chance.
        looks.retain(|look| look[2] > 0.0);
        looks.dedup();
        let mut reads: Vec<f64> = looks.iter().map(|look| look[2]).collect();
        reads.dedup();
        assert!(reads.len() > 3 && reads[0] < BYTES / 2.0, "it is seen on its way: {reads:?}");
        // A load goes on behind the last byte, for as long as it takes.
        let is_recent = |look: &[f64; 6]| look[2] > BYTES / 2.0 || (0.0..5.0).contains(&look[5]);
        assert!(looks.iter().all(is_recent), "something has come just now: {looks:?}");
        match is_diskless {
            true => assert!(looks.iter().all(|look| look[1] == 0.0 && look[3..5] == [0.0, 0.0]), "{looks:?}"),
            false => {
                let total = looks[0][1];
                assert!((BYTES..BYTES * 1.1).contains(&total), "{total}");
                assert!(looks.iter().all(|look| look[1] == total && look[2] <= total), "{looks:?}");
                let is_whole = |look: &&[f64; 6]| look[2] + look[3] == total;
                let whole: Vec<_> = looks.iter().filter(is_whole).collect();
                assert!(whole.len() > 1, "{looks:?}");
                assert!(looks.iter().all(|look| (0.0..=100.0).contains(&look[4])), "{looks:?}");
                assert!(whole.iter().any(|look| look[4] > 0.0 && look[4] < 100.0), "{looks:?}");
            }
        }
    }
}

#[test]
fn a_master_that_begins_another_stream_is_loaded_anew() {
    let dirs = [TempDir::new(), TempDir::new(), TempDir::new()];
    let relay = Relay::start().expect("a port is free");
    let master = redis(&dirs[0], &AT_ONCE);
    relay.lead_to(master.port);
    let mut of_master = master.client();
    run(&mut of_master, &["MSET a 1 b 2", "SELECT 3", "SET c 3", "SELECT 0"]);
    let port = relay.port().to_string();
    let more = [&DEBUG[..], &["--replicaof", "127.0.0.1", &port]].concat();
    let replica = Server::start(dirs[2].path(), &more);
    wait_for_link(&replica);
    run(&mut of_master, &["INCR a"]);
    is_equal(&master, &replica);
    let mut client = replica.client();
    let first = field(&mut client, "master_stream_id");
    // Another name for the same data.
    run(&mut of_master, &["DEBUG CHANGE-REPL-ID", "CLIENT KILL TYPE replica", "INCR a"]);
    wait_until("the other stream is followed", || field(&mut client, "master_stream_id") != first);
    wait_for_link(&replica);
    run(&mut of_master, &["INCR a"]);
    is_equal(&master, &replica);
    assert_eq!(syncs(&master), ["2", "0"]);
    let second = field(&mut client, "master_stream_id");
    assert_eq!(second, field(&mut of_master, "master_replid"));
    assert_eq!(client.ask("GET a"), "$1\r\n4\r\n");

    // A master that has lost its data begins with none, and its replica with what comes then.
    drop(of_master);
    master.kill();
    wait_until("it is missed", || field(&mut client, "master_link_status") == "down");
    assert_eq!(client.ask("GET a"), "$1\r\n4\r\n", "a master that is gone takes nothing with it");
    let master = redis(&dirs[1], &AT_ONCE);
    relay.lead_to(master.port);
    let mut of_master = master.client();
    wait_until("the new stream is followed", || field(&mut client, "master_stream_id") != second);
    wait_for_link(&replica);
    run(&mut of_master, &["SET own-of-new 1", "SELECT 3", "SET c 4"]);
    is_equal(&master, &replica);
    assert_eq!(syncs(&master), ["1", "0"]);
    assert_eq!((&*client.ask("EXISTS a b"), &*client.ask("DBSIZE")), (":0\r\n", ":1\r\n"));
    // A kill behind that goes on in the new stream.
    let at = replica.port;
    drop(client);
    replica.kill();
    run(&mut of_master, &["INCR c"]);
    let replica = Server::start_at(dirs[2].path(), at, &more);
    wait_for_link(&replica);
    is_equal(&master, &replica);
    assert_eq!(syncs(&master), ["1", "1"]);
}

/// Waits until a server has all of a master's stream.
fn wait_for_all(master: &Server, replica: &Server) {
    let (mut of_master, mut of_replica) = (master.client(), replica.client());
    wait_until("it has all", || {
        field(&mut of_replica, "slave_repl_offset") == field(&mut of_master, "master_repl_offset")
    });
}

#[test]
fn a_failover_between_two_redis_servers_is_gone_along_with() {
    let dirs = [TempDir::new(), TempDir::new(), TempDir::new()];
    let relay = Relay::start().expect("a port is free");
    // Nothing comes but what clients write: a PING that the replica has and the second one has not would be too much.
    let quiet = [&AT_ONCE[..], &["--repl-ping-replica-period", "3600"]].concat();
    let first = redis(&dirs[0], &quiet);
    relay.lead_to(first.port);
    let between = relay.port().to_string();
    let second = redis(&dirs[1], &[&quiet[..], &["--replicaof", "127.0.0.1", &between]].concat());
    wait_for_link(&second);
    let (mut of_first, mut of_second) = (first.client(), second.client());
    run(&mut of_first, &["MSET a 1 b 2", "SELECT 3", "SET c 3"]);
    let replica = replica_of(&first, &dirs[2], &DEBUG);
    let mut client = replica.client();
    run(&mut of_first, &["INCR c"]);
    wait_for_all(&first, &second);
    is_equal(&first, &replica);
    let loads = syncs(&first);

    // Both know the history of the first one: nothing is loaded. The commands go on in the database that was selected.
    run(&mut of_second, &["REPLICAOF NO ONE"]);
    follow(&replica, second.port);
    run(&mut of_second, &["SELECT 3", "INCR c", "SELECT 0", "INCR a"]);
    wait_until("the second one is followed", || field(&mut of_second, "connected_slaves") == "1");
    wait_for_link(&replica);
    is_equal(&second, &replica);
    assert_eq!(syncs(&second), ["0", "1"]);
    assert_eq!(field(&mut client, "master_stream_id"), field(&mut of_second, "master_replid"));
    // The first one follows the second, and leads again. It has no data of its own.
    run(&mut of_first, &[&format!("REPLICAOF 127.0.0.1 {}", second.port)]);
    wait_for_link(&first);
    run(&mut of_second, &["INCR a"]);
    wait_for_all(&second, &first);
    wait_for_all(&second, &replica);
    run(&mut of_first, &["REPLICAOF NO ONE"]);
    follow(&replica, first.port);
    run(&mut of_first, &["SELECT 0", "INCR a"]);
    wait_until("the first one is followed", || field(&mut of_first, "connected_slaves") == "1");
    wait_for_link(&replica);
    is_equal(&first, &replica);
    let [full, _] = syncs(&first);
    assert_eq!((&full, &*client.ask("GET a")), (&loads[0], "$1\r\n4\r\n"), "nor is anything loaded on the way back");

    // A second one that has fewer commands than the replica leads: what it has not counts no more.
    run(&mut of_second, &[&format!("REPLICAOF 127.0.0.1 {between}")]);
    wait_for_link(&second);
    wait_for_all(&first, &second);
    let [full_before, _] = syncs(&second);
    relay.set(Flow::Stalled);
    run(&mut of_first, &["SET lost 1", "INCR a"]);
    is_equal(&first, &replica);
    drop(of_first);
    first.kill();
    run(&mut of_second, &["REPLICAOF NO ONE"]);
    follow(&replica, second.port);
    wait_until("all is loaded", || syncs(&second)[0] != full_before);
    wait_for_link(&replica);
    run(&mut of_second, &["SET kept 1"]);
    is_equal(&second, &replica);
    assert_eq!((&*client.ask("EXISTS lost kept"), &*client.ask("GET a")), (":1\r\n", "$1\r\n4\r\n"));
}
