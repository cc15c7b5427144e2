//! A server between two Redises: it follows one and is followed by the other. After its restart, the second one goes on
//! from where it was, if the server itself does. Beside real redis-servers 7.0.

mod process;

use haypile_harness::repl::network::{Flow, Relay};
use process::following::{DEBUG, field, fill, replica_of, wait_for_link};
use process::redis::redis;
use process::{Client, Ends, Server, TempDir, request, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Directives of a Redis that tells its replicas at once, and whose backlog reaches further than any break here.
const AT_ONCE: [&str; 6] =
    ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--repl-backlog-size", "64mb"];

/// The answer of a server that does not know yet what its data are going to be.
const NO_LINK: &str = "-NOMASTERLINK Can't SYNC while not connected with my master\r\n";

/// A Redis, a relay on the way to it, a server that follows by way of it, and a Redis that follows that.
struct Chain {
    dirs: [TempDir; 3],
    first: Server,
    relay: Relay,
    between: Server,
    last: Server,
}

impl Chain {
    fn start() -> Chain {
        let dirs = [TempDir::new(), TempDir::new(), TempDir::new()];
        let first = redis(&dirs[0], &AT_ONCE);
        let relay = Relay::start().expect("a port is free");
        relay.lead_to(first.port);
        fill(&mut first.client(), 0, 50);
        let between = Server::start(dirs[1].path(), &of(relay.port()));
        wait_for_link(&between);
        let last = redis(&dirs[2], &of(between.port)[..3]);
        wait_for_link(&last);
        Chain { dirs, first, relay, between, last }
    }

    /// Ends the server in the middle, by a kill or in order.
    fn end(&mut self, is_killed: bool) {
        if !is_killed {
            self.between.signal("TERM");
            let (child, mut status) = (&mut self.between.child, None);
            wait_until("it ends", || {
                status = child.try_wait().expect("it is our child");
                status.is_some()
            });
            assert_eq!(status.and_then(|status| status.code()), Some(0));
        }
        self.between.kill_now();
    }

    fn start_again(&mut self) {
        self.between = Server::start_at(self.dirs[1].path(), self.between.port, &of(self.relay.port()));
    }

    /// Waits until the last one has come back to the server in the middle; returns as `resyncs` does.
    fn resyncs(&self) -> [u64; 2] {
        let counts = resyncs(&self.between);
        wait_for_link(&self.last);
        counts
    }

    fn is_equal(&self, first: &Server) {
        is_equal(&[first, &self.between, &self.last]);
    }

    fn stream_file(&self) -> bool {
        self.dirs[1].path().join("haypile.stream").exists()
    }
}

/// Returns the directives of a server that follows the one at this port.
fn of(port: u16) -> [&'static str; 5] {
    ["--replicaof", "127.0.0.1", port.to_string().leak(), DEBUG[0], DEBUG[1]]
}

/// Waits until a Redis has come back to a server that began without a count; returns how often that has sent all data,
/// and how often it went on.
fn resyncs(master: &Server) -> [u64; 2] {
    let mut client = master.client();
    let mut counts = [0; 2];
    wait_until("it is followed", || {
        counts = ["sync_full", "sync_partial_ok"].map(|name| client.info(name).parse().expect("a number"));
        counts != [0; 2] && client.ask("INFO replication").contains("state=online")
    });
    counts
}

/// Waits until the last one of these servers has all that the first one has, and compares their data.
fn is_equal(servers: &[&Server]) {
    let mut clients: Vec<_> = servers.iter().map(|server| server.client()).collect();
    assert!(clients[0].ask("INCR fence").starts_with(':'));
    let fence = clients[0].ask("GET fence");
    let looks: Vec<_> = clients
        .iter_mut()
        .map(|client| {
            wait_until("the last write has arrived", || client.ask("GET fence") == fence);
            (client.ask("DEBUG DIGEST"), client.ask("DBSIZE"))
        })
        .collect();
    assert!(looks.iter().all(|look| *look == looks[0]), "{looks:?}");
}

/// Returns the first bytes of the answer to these words.
fn answer(port: u16, words: &[&[u8]]) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    socket.write_all(&request(words)).expect("it is taken");
    let mut answer = vec![0; NO_LINK.len()];
    let read = socket.read(&mut answer).expect("it is answered");
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

/// Counts and lists until the end; `written` says how often.
fn write(port: u16, written: &AtomicU64, ends: &AtomicBool) {
    let mut client = Client::at(port);
    while !ends.load(Ordering::Relaxed) {
        let count = written.load(Ordering::Relaxed) + 1;
        for command in ["INCR counter", "LPUSH list x", "APPEND text x"] {
            assert_eq!(client.ask(command), format!(":{count}\r\n"), "{command}");
        }
        // A block, and commands without an effect, between the records.
        for command in ["PUBLISH news x", "DEL none", "MULTI", "INCR blocks", "LPUSH pairs x", "EXEC"] {
            client.ask(command);
        }
        written.store(count, Ordering::Relaxed);
    }
}

#[test]
fn after_stops_and_kills_of_the_server_between_each_write_comes_once_and_nothing_is_loaded() {
    let mut chain = Chain::start();
    let (written, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let goes_on = |what: &str| {
        let before = written.load(Ordering::Relaxed);
        wait_until(what, || written.load(Ordering::Relaxed) > before + 100);
    };
    let port = chain.first.port;
    std::thread::scope(|threads| {
        let until = Ends(&ends);
        let writer = threads.spawn(|| write(port, &written, &ends));
        for round in 0..7 {
            goes_on("it follows what is written");
            chain.end(round % 3 != 0);
            goes_on("it is written meanwhile");
            if round % 3 == 2 {
                // A Redis that asks too early is to ask again.
                chain.relay.set(Flow::Cut);
                chain.start_again();
                for words in [&[&b"SYNC"[..]][..], &[b"PSYNC", b"?", b"-1"]] {
                    assert_eq!(answer(chain.between.port, words), NO_LINK);
                }
                goes_on("it is written before there is a link");
                chain.relay.set(Flow::Open);
            } else {
                chain.start_again();
            }
            assert_eq!(chain.resyncs(), [0, 1], "round {round}");
        }
        drop(until);
        writer.join().expect("the writer does not panic");
    });
    chain.is_equal(&chain.first);
    let count = written.into_inner();
    let mut client = chain.last.client();
    for list in ["LLEN list", "STRLEN text", "LLEN pairs"] {
        assert_eq!(client.ask(list), format!(":{count}\r\n"));
    }
    for counter in ["counter", "blocks"] {
        assert_eq!(
            client.ask(&format!("INCR {counter}")).trim(),
            "-READONLY You can't write against a read only replica."
        );
        assert!(client.ask(&format!("GET {counter}")).ends_with(&format!("\r\n{count}\r\n")));
    }
    assert_eq!(chain.first.client().info("sync_full"), "1");
    // A server that leads after a restart, before it has met its master, goes on with the same stream.
    chain.end(true);
    chain.relay.set(Flow::Cut);
    chain.start_again();
    assert_eq!(chain.between.client().ask("REPLICAOF NO ONE"), "+OK\r\n");
    assert_eq!(chain.resyncs(), [0, 1]);
    is_equal(&[&chain.between, &chain.last]);
}

#[test]
fn a_redis_goes_on_behind_more_kills_than_the_log_names_histories() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let mut master = Server::start(dir.path(), &DEBUG);
    assert_eq!(master.client().ask("SET a 1"), "+OK\r\n");
    let relay = Relay::start().expect("a port is free");
    relay.lead_to(master.port);
    let replica = redis(&other, &of(relay.port())[..3]);
    wait_for_link(&replica);
    for _ in 0..2 {
        relay.set(Flow::Cut);
        // A segment's header has room for 71 histories before its own.
        for _ in 0..40 {
            master.kill_now();
            master = Server::start_at(dir.path(), master.port, &DEBUG);
        }
        // Data of the base are not replayed, and no segment before them is asked for histories.
        assert!(master.client().ask("INCR a").starts_with(':'));
        let port = master.port;
        master.stop();
        master = Server::start_at(dir.path(), port, &DEBUG);
        relay.set(Flow::Open);
        assert_eq!(resyncs(&master), [0, 1]);
    }
    is_equal(&[&master, &replica]);
}

#[test]
fn where_the_master_has_become_another_one_all_data_come() {
    let mut chain = Chain::start();
    chain.is_equal(&chain.first);
    // A Redis that comes while the link is down is to wait; the one that is there stays.
    chain.relay.set(Flow::Cut);
    let mut of_between = chain.between.client();
    wait_until("it is missed", || field(&mut of_between, "master_link_status") == "down");
    assert_eq!(answer(chain.between.port, &[b"PSYNC", b"?", b"-1"]), NO_LINK);
    assert_eq!(field(&mut chain.last.client(), "master_link_status"), "up");
    drop(of_between);
    // Another Redis, with data that are none of the first one's.
    let other = TempDir::new();
    let second = redis(&other, &AT_ONCE);
    assert_eq!(second.client().ask("MSET second 1 key:0 other"), "+OK\r\n");
    chain.end(false);
    chain.relay.lead_to(second.port);
    chain.relay.set(Flow::Open);
    chain.start_again();
    assert_eq!(chain.resyncs(), [1, 0]);
    chain.is_equal(&second);
    assert_eq!(chain.last.client().ask("EXISTS key:1 second"), ":1\r\n");
    // The replica of that master leads meanwhile: a Haypile, which goes on behind its last record. The stream of that
    // one is handed on.
    assert!(chain.stream_file());
    let third = TempDir::new();
    let third = replica_of(&chain.between, &third, &DEBUG);
    chain.end(true);
    let mut of_third = third.client();
    assert_eq!(of_third.ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_until("it leads", || of_third.ask("MSET third 1 key:0 another") == "+OK\r\n");
    chain.relay.lead_to(third.port);
    chain.start_again();
    wait_until("all data have come", || chain.last.client().ask("EXISTS third") == ":1\r\n");
    chain.is_equal(&third);
    assert!(!chain.stream_file(), "the stream of the data that were a Redis's has ended");
    assert_eq!(["sync_full", "sync_partial_ok"].map(|name| of_third.info(name)), ["1", "1"], "one by way of the other");
    // And a Redis again.
    chain.end(true);
    chain.relay.lead_to(second.port);
    chain.start_again();
    wait_until("all data have come", || chain.last.client().ask("EXISTS second") == ":1\r\n");
    assert_eq!(chain.resyncs(), [1, 0]);
    chain.is_equal(&second);
}

#[test]
fn two_that_follow_each_other_load_no_more_than_once() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let first = redis(&dir, &AT_ONCE);
    let second = Server::start(other.path(), &of(first.port));
    wait_for_link(&second);
    let (mut of_first, mut of_second) = (first.client(), second.client());
    let follow = |client: &mut Client<TcpStream>, port: u16| {
        assert_eq!(client.ask(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK\r\n");
    };
    let is_told = |of_second: &mut Client<TcpStream>| {
        wait_until("the circle is told", || field(of_second, "master_link_error").contains("a circle"));
        wait_for_link(&first);
    };
    // The Redis gets the data that it has given, and what it has then is no news.
    of_first.ask("SET a 1");
    follow(&mut of_first, second.port);
    is_told(&mut of_second);
    let loads = of_second.info("sync_full");
    // The circle ends where one of the two leads.
    assert_eq!(of_second.ask("REPLICAOF NO ONE"), "+OK\r\n");
    assert_eq!(of_second.ask("INCR a"), ":2\r\n");
    wait_until("the write has arrived", || of_first.ask("GET a") == "$1\r\n2\r\n");
    follow(&mut of_second, first.port);
    is_told(&mut of_second);
    assert_eq!(of_second.info("sync_full"), loads, "nothing is loaded any more");
    drop(of_second);
    let port = second.port;
    second.stop();
    // After a restart both wait for each other, as two Redises do.
    let second = Server::start_at(other.path(), port, &of(first.port));
    let mut of_second = second.client();
    wait_until("both wait", || {
        let is_down = field(&mut of_first, "master_link_status") == "down";
        is_down && field(&mut of_second, "master_link_error").contains("NOMASTERLINK")
    });
    assert_eq!(of_first.ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_for_link(&second);
    assert_eq!(of_first.ask("INCR a"), ":3\r\n");
    wait_until("the write has arrived", || of_second.ask("GET a") == "$1\r\n3\r\n");
    assert_eq!(["sync_full", "sync_partial_ok"].map(|name| of_second.info(name)), ["0", "0"]);
}
