//! Commands that wait for keys, over sockets and across event loops: the order in which they are served, and the ends
//! of a wait. Readers of streams are in `streams`.

#[path = "../process/mod.rs"]
mod process;
mod streams;

use process::{Client, Ends, Server, TempDir, request, wait_until};
use std::collections::HashMap;
use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

type Socket = Client<TcpStream>;

fn start(more: &[&str]) -> (TempDir, Server) {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), more);
    (dir, server)
}

/// Sends a command and waits until so many clients are blocked.
fn block(client: &mut Socket, command: &str, other: &mut Socket, count: usize) {
    client.send(format!("{command}\r\n").as_bytes());
    blocked(other, count);
}

fn blocked(other: &mut Socket, count: usize) {
    wait_until("they are blocked", || other.info("blocked_clients") == count.to_string());
}

/// A reply to BLPOP.
fn popped(key: &str, element: &str) -> String {
    format!("*2\r\n${}\r\n{key}\r\n${}\r\n{element}\r\n", key.len(), element.len())
}

#[test]
fn they_are_served_in_order_of_arrival_across_event_loops() {
    let (_dir, server) = start(&["--workers", "3"]);
    let mut pusher = server.client();
    let mut waiters: Vec<Socket> = (0..9).map(|_| server.client()).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        block(waiter, if number % 2 == 0 { "BLPOP none k 0" } else { "BRPOP k 0" }, &mut pusher, number + 1);
    }
    assert_eq!(pusher.info("total_blocking_keys"), "2");
    assert_eq!(pusher.ask("CLIENT LIST").matches("flags=b").count(), 9);
    assert_eq!(pusher.ask("RPUSH k 0 1 2 3"), ":4\r\n", "the length before anybody was served");
    // The elements come from both ends, as each client has asked.
    for (waiter, element) in waiters.iter_mut().zip(["0", "3", "1", "2"]) {
        assert_eq!(waiter.reply(), popped("k", element));
    }
    assert_eq!(pusher.info("blocked_clients"), "5");
    for (number, waiter) in waiters.iter_mut().enumerate().skip(4) {
        assert_eq!(pusher.ask(&format!("LPUSH k {number}")), ":1\r\n");
        assert_eq!(waiter.reply(), popped("k", &number.to_string()));
    }
    assert_eq!(pusher.ask("EXISTS k"), ":0\r\n");
    assert_eq!((pusher.info("blocked_clients"), pusher.info("total_blocking_keys")), ("0".into(), "0".into()));
    server.stop();
}

#[test]
fn who_comes_behind_the_push_finds_what_is_left() {
    let (_dir, server) = start(&[]);
    let (mut pusher, mut waiter) = (server.client(), server.client());
    for round in 0..200 {
        block(&mut waiter, "BLPOP k 0", &mut pusher, 1);
        let push = request(&[b"LPUSH", b"k", round.to_string().as_bytes()]);
        pusher.send(&[push, request(&[b"LPOP", b"k"])].concat());
        assert_eq!((pusher.reply().as_str(), pusher.reply().as_str()), (":1\r\n", "$-1\r\n"), "round {round}");
        assert_eq!(waiter.reply(), popped("k", &round.to_string()));
    }
    server.stop();
}

#[test]
fn a_block_is_served_at_its_end_and_waits_for_nothing() {
    let (_dir, server) = start(&[]);
    let (mut pusher, mut waiter) = (server.client(), server.client());
    block(&mut waiter, "BLPOP k 0", &mut pusher, 1);
    pusher.send(b"MULTI\r\nRPUSH k a b\r\nLPOP k\r\nLLEN k\r\nEXEC\r\n");
    (0..4).for_each(|_| assert!(pusher.reply().starts_with('+')));
    assert_eq!(pusher.reply(), "*3\r\n:2\r\n$1\r\na\r\n:1\r\n", "nobody takes anything in between");
    assert_eq!(waiter.reply(), popped("k", "b"));

    // A key that is gone at the end was never there.
    block(&mut waiter, "BLPOP k 0", &mut pusher, 1);
    pusher.send(b"MULTI\r\nRPUSH k a\r\nDEL k\r\nBLPOP k 0\r\nBLMOVE k l LEFT LEFT 0\r\nBLMPOP 0 1 k LEFT\r\nEXEC\r\n");
    (0..6).for_each(|_| assert!(pusher.reply().starts_with('+')));
    assert_eq!(pusher.reply(), "*5\r\n:1\r\n:1\r\n*-1\r\n$-1\r\n*-1\r\n");
    assert_eq!(pusher.info("blocked_clients"), "1");
    // A key of a command that is taken back was never there either.
    pusher.send(b"MULTI\r\nSET s x\r\nLMOVE s k LEFT LEFT\r\nEXEC\r\n");
    (0..3).for_each(|_| assert!(pusher.reply().starts_with('+')));
    assert!(pusher.reply().contains("-WRONGTYPE"));
    assert_eq!(pusher.ask("RPUSH k z"), ":1\r\n");
    assert_eq!(waiter.reply(), popped("k", "z"));
    server.stop();
}

#[test]
fn time_and_others_end_a_wait() {
    let (_dir, server) = start(&[]);
    let (mut other, mut waiter) = (server.client(), server.client());
    let begun = Instant::now();
    assert_eq!(waiter.ask("BLPOP k l 0.2"), "*-1\r\n");
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!(waiter.ask("BLMOVE k l LEFT RIGHT 0.01"), "*-1\r\n");
    assert_eq!(waiter.ask("BLMPOP 0.01 1 k LEFT"), "*-1\r\n");

    let id = waiter.ask("CLIENT ID").trim_end().trim_start_matches(':').to_owned();
    assert_eq!(other.ask(&format!("CLIENT UNBLOCK {id}")), ":0\r\n");
    for (how, reply) in
        [("", "*-1\r\n"), ("TIMEOUT", "*-1\r\n"), ("ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n")]
    {
        block(&mut waiter, "BLPOP k 0", &mut other, 1);
        assert_eq!(other.ask(&format!("CLIENT UNBLOCK {id} {how}")), ":1\r\n");
        assert_eq!(other.ask(&format!("CLIENT UNBLOCK {id} {how}")), ":0\r\n", "it is not blocked any more");
        assert_eq!(other.ask("RPUSH k x"), ":1\r\n");
        assert_eq!(waiter.reply(), reply);
        assert_eq!(other.ask("LPOP k"), "$1\r\nx\r\n", "nothing was taken for it");
    }
    // Inside a transaction the command takes effect at its end.
    block(&mut waiter, "BLPOP k 0", &mut other, 1);
    other.send(format!("MULTI\r\nCLIENT UNBLOCK {id}\r\nEXEC\r\n").as_bytes());
    assert_eq!((other.reply().as_str(), other.reply().as_str()), ("+OK\r\n", "+QUEUED\r\n"));
    assert_eq!((other.reply().as_str(), waiter.reply().as_str()), ("*1\r\n:1\r\n", "*-1\r\n"));

    for (timeout, why) in [
        ("x", "timeout is not a float or out of range"),
        ("nan", "timeout is not a float or out of range"),
        ("-1", "timeout is negative"),
        ("-inf", "timeout is negative"),
        ("inf", "timeout is out of range"),
        ("1e30", "timeout is out of range"),
        ("9223372036854775", "timeout is out of range"),
    ] {
        for command in [format!("BLPOP k {timeout}"), format!("BLMPOP {timeout} 1 k LEFT")] {
            assert_eq!(waiter.ask(&command), format!("-ERR {why}\r\n"), "{command}");
        }
    }
    server.stop();
}

#[test]
fn nothing_is_taken_for_a_client_that_has_gone() {
    let (_dir, server) = start(&[]);
    let mut other = server.client();
    for round in 0..100 {
        let mut waiter = server.client();
        let id = waiter.ask("CLIENT ID").trim_end().trim_start_matches(':').to_owned();
        block(&mut waiter, if round % 2 == 0 { "BLPOP k 0" } else { "BLPOP k 100" }, &mut other, 1);
        match round % 4 {
            // The end of the socket need not have come through: the answer is enough.
            0 | 1 => assert_eq!(other.ask(&format!("CLIENT KILL ID {id}")), ":1\r\n"),
            2 => {
                drop(waiter);
                blocked(&mut other, 0);
            }
            _ => {
                waiter.socket.shutdown(Shutdown::Write).expect("it is connected");
                blocked(&mut other, 0);
            }
        }
        assert_eq!(other.ask("RPUSH k x"), ":1\r\n");
        assert_eq!(other.ask("LPOP k"), "$1\r\nx\r\n", "round {round}");
    }
    server.stop();
}

#[test]
fn what_is_moved_is_handed_on() {
    let (_dir, server) = start(&[]);
    let mut pusher = server.client();
    let (mut first, mut second, mut third) = (server.client(), server.client(), server.client());
    block(&mut first, "BLMOVE a b LEFT RIGHT 0", &mut pusher, 1);
    block(&mut second, "BRPOPLPUSH b c 0", &mut pusher, 2);
    block(&mut third, "BLPOP none c 0", &mut pusher, 3);
    assert_eq!(pusher.ask("RPUSH a x y"), ":2\r\n");
    assert_eq!(first.reply(), "$1\r\nx\r\n");
    assert_eq!(second.reply(), "$1\r\nx\r\n");
    assert_eq!(third.reply(), popped("c", "x"));
    assert_eq!(pusher.ask("LRANGE a 0 -1"), "*1\r\n$1\r\ny\r\n");
    assert_eq!(pusher.ask("EXISTS b c"), ":0\r\n");

    // A wrong destination is told to the client that waits, and the next one is served.
    pusher.ask("DEL a");
    pusher.ask("SET b text");
    block(&mut first, "BLMOVE a b LEFT LEFT 0", &mut pusher, 1);
    block(&mut second, "BLPOP a 0", &mut pusher, 2);
    assert_eq!(pusher.ask("RPUSH a z"), ":1\r\n");
    assert!(first.reply().starts_with("-WRONGTYPE"));
    assert_eq!(second.reply(), popped("a", "z"));

    // A list that turns around, and one that the same client waits for and fills.
    block(&mut first, "BLMOVE d d LEFT RIGHT 0", &mut pusher, 1);
    assert_eq!(pusher.ask("RPUSH d 1 2"), ":2\r\n");
    assert_eq!(first.reply(), "$1\r\n1\r\n");
    assert_eq!(pusher.ask("LRANGE d 0 -1"), "*2\r\n$1\r\n2\r\n$1\r\n1\r\n");
    server.stop();
}

#[test]
fn a_key_of_another_type_leaves_them_waiting() {
    let (_dir, server) = start(&[]);
    let (mut other, mut waiter) = (server.client(), server.client());
    block(&mut waiter, "BLPOP k 0", &mut other, 1);
    for command in ["SET k text", "DEL k", "HSET k f v", "DEL k", "SADD k m", "DEL k"] {
        assert!(!other.ask(command).starts_with('-'), "{command}");
        assert_eq!(other.info("blocked_clients"), "1", "{command}");
    }
    // A list comes to be in many ways.
    for (make, element) in [
        (&["RPUSH l 1", "RENAME l k"][..], "1"),
        (&["RPUSH l 2", "COPY l k", "DEL l"], "2"),
        (&["SET k text", "RPUSH l 3", "RENAME l k"], "3"),
        (&["RPUSH l 4", "LMOVE l k LEFT LEFT"], "4"),
        (&["SELECT 1", "RPUSH k 5", "MOVE k 0", "SELECT 0"], "5"),
        (&["SELECT 1", "RPUSH k 6", "SELECT 0", "SWAPDB 0 1", "SWAPDB 1 0"], "6"),
    ] {
        for command in make {
            assert!(!other.ask(command).starts_with('-'), "{command}");
        }
        assert_eq!(waiter.reply(), popped("k", element));
        assert_eq!(other.ask("EXISTS k"), ":0\r\n", "{make:?}");
        block(&mut waiter, "BLPOP k 0", &mut other, 1);
    }
    for command in ["RPUSH l x", "FLUSHDB", "FLUSHALL"] {
        other.ask(command);
    }
    assert_eq!(other.info("blocked_clients"), "1");
    // In 7.2 the command runs once more and looks at its keys in its own order: one that has become something else is
    // an error, and of two that came together it takes its first.
    other.send(b"MULTI\r\nRPUSH k b\r\nRPUSH j a\r\nEXEC\r\n");
    (0..4).for_each(|_| _ = other.reply());
    assert_eq!(waiter.reply(), popped("k", "b"));
    other.ask("DEL j");
    block(&mut waiter, "BLPOP j k 0", &mut other, 1);
    other.send(b"MULTI\r\nRPUSH k b\r\nRPUSH j a\r\nEXEC\r\n");
    (0..4).for_each(|_| _ = other.reply());
    assert_eq!(waiter.reply(), popped("j", "a"));
    other.ask("DEL k");
    block(&mut waiter, "BLPOP j k 0", &mut other, 1);
    other.ask("SET j text");
    assert_eq!(other.ask("RPUSH k c"), ":1\r\n");
    assert!(waiter.reply().starts_with("-WRONGTYPE"));
    assert_eq!(other.ask("LPOP k"), "$1\r\nc\r\n");
    server.stop();
}

#[test]
fn what_a_command_stores_over_another_value_serves_nobody_and_a_new_name_does() {
    let (_dir, server) = start(&[]);
    let (mut other, mut waiter) = (server.client(), server.client());
    other.send(b"ZADD z 1 m\r\nRPUSH l 1\r\nGEOADD g 1 1 m\r\n");
    (0..3).for_each(|_| _ = other.reply());
    for (wait, stores) in [
        (
            "BZPOPMIN k 0",
            &["ZUNIONSTORE k 1 z", "ZRANGESTORE k z 0 -1", "GEOSEARCHSTORE k g FROMMEMBER m BYRADIUS 1 km"][..],
        ),
        ("BLPOP k 0", &["SORT l STORE k"]),
    ] {
        block(&mut waiter, wait, &mut other, 1);
        for store in stores {
            assert_eq!(other.ask("SET k text"), "+OK\r\n");
            assert_eq!(other.ask(store), ":1\r\n");
            assert_eq!(other.info("blocked_clients"), "1", "{store}");
            assert_eq!(other.ask("EXISTS k"), ":1\r\n", "nothing was taken");
        }
        assert_eq!(other.ask("DEL k"), ":1\r\n", "nothing was taken");
        let made = if wait.starts_with("BZ") { "ZADD k 1 new" } else { "RPUSH k new" };
        assert_eq!(other.ask(made), ":1\r\n");
        assert!(waiter.reply().contains("$3\r\nnew\r\n"), "{wait}");
    }
    other.send(b"DUMP l\r\n");
    let mut dump = vec![0; other.line()[1..].trim_end().parse::<usize>().expect("a length") + 2];
    other.socket.read_exact(&mut dump).expect("the server answers");
    dump.truncate(dump.len() - 2);
    for arrives in [&[&b"COPY"[..], b"l", b"k", b"REPLACE"][..], &[b"RESTORE", b"k", b"0", &dump, b"REPLACE"]] {
        block(&mut waiter, "BLPOP k 0", &mut other, 1);
        assert_eq!(other.ask("SET k text"), "+OK\r\n");
        other.send(&request(arrives));
        assert!(!other.reply().starts_with('-'));
        assert_eq!(waiter.reply(), popped("k", "1"));
    }
    server.stop();
}

#[test]
fn sorted_sets_are_waited_for_too() {
    let (_dir, server) = start(&[]);
    let mut other = server.client();
    let (mut low, mut high, mut many, mut list) = (server.client(), server.client(), server.client(), server.client());
    block(&mut list, "BLPOP z 0", &mut other, 1);
    block(&mut low, "BZPOPMIN none z 0", &mut other, 2);
    high.ask("HELLO 3");
    block(&mut high, "BZPOPMAX z 0", &mut other, 3);
    block(&mut many, "BZMPOP 0 1 z MIN COUNT 2", &mut other, 4);
    assert_eq!(other.ask("ZADD z 1 a 2.5 b 3 c 4 d 5 e"), ":5\r\n");
    assert_eq!(low.reply(), "*3\r\n$1\r\nz\r\n$1\r\na\r\n$1\r\n1\r\n");
    assert_eq!(high.reply(), "*3\r\n$1\r\nz\r\n$1\r\ne\r\n,5\r\n");
    let two = "*2\r\n$1\r\nz\r\n*2\r\n*2\r\n$1\r\nb\r\n$3\r\n2.5\r\n*2\r\n$1\r\nc\r\n$1\r\n3\r\n";
    assert_eq!(many.reply(), two);
    assert_eq!(other.ask("ZRANGE z 0 -1"), "*1\r\n$1\r\nd\r\n");
    // The client that waits for a list does not see them, and is there when one comes.
    assert_eq!(other.info("blocked_clients"), "1");
    block(&mut low, "BZPOPMIN y 0", &mut other, 2);
    assert_eq!(other.ask("ZUNIONSTORE y 1 z"), ":1\r\n");
    assert_eq!(low.reply(), "*3\r\n$1\r\ny\r\n$1\r\nd\r\n$1\r\n4\r\n");
    assert_eq!(other.ask("ZPOPMAX z"), "*2\r\n$1\r\nd\r\n$1\r\n4\r\n");
    assert_eq!(other.ask("RPUSH z x"), ":1\r\n");
    assert_eq!(list.reply(), popped("z", "x"));
    other.send(b"MULTI\r\nBZPOPMIN z 0\r\nBZMPOP 0 1 z MIN\r\nEXEC\r\n");
    (0..3).for_each(|_| _ = other.reply());
    assert_eq!(other.reply(), "*2\r\n*-1\r\n*-1\r\n");
    assert_eq!(low.ask("BZPOPMAX z 0.01"), "*-1\r\n");
    server.stop();
}

#[test]
fn a_pause_holds_those_who_push() {
    let (_dir, server) = start(&[]);
    let (mut other, mut waiter, mut pusher) = (server.client(), server.client(), server.client());
    block(&mut waiter, "BLPOP k 0", &mut other, 1);
    assert_eq!(other.ask("CLIENT PAUSE 100000 WRITE"), "+OK\r\n");
    pusher.send(b"RPUSH k x\r\n");
    // Time goes on meanwhile, and a wait cannot begin.
    let mut late = server.client();
    late.send(b"BLPOP l 0.001\r\n");
    wait_until("both are held", || other.ask("CLIENT LIST").matches("flags=b").count() == 3);
    assert_eq!((other.info("blocked_clients"), other.info("total_blocking_keys")), ("3".into(), "1".into()));
    assert_eq!(other.ask("CLIENT UNPAUSE"), "+OK\r\n");
    assert_eq!(pusher.reply(), ":1\r\n");
    assert_eq!(waiter.reply(), popped("k", "x"));
    assert_eq!(late.reply(), "*-1\r\n");
    server.stop();
}

#[test]
fn others_are_told_of_what_was_served() {
    let (_dir, server) = start(&["--notify-keyspace-events", "Elg"]);
    let (mut other, mut waiter, mut listener, mut monitor) =
        (server.client(), server.client(), server.client(), server.client());
    listener.ask("PSUBSCRIBE *");
    assert_eq!(monitor.ask("MONITOR"), "+OK\r\n");
    waiter.send(b"BLPOP k 0\r\n");
    assert!(monitor.reply().ends_with("\"BLPOP\" \"k\" \"0\"\r\n"));
    wait_until("it is blocked", || {
        let is = other.info("blocked_clients") == "1";
        assert!(monitor.reply().ends_with("\"INFO\" \"everything\"\r\n"));
        is
    });
    assert_eq!(other.ask("RPUSH k a"), ":1\r\n");
    assert!(monitor.reply().ends_with("\"RPUSH\" \"k\" \"a\"\r\n"));
    assert_eq!(waiter.reply(), popped("k", "a"));
    for event in ["rpush", "lpop", "del"] {
        let message = listener.reply();
        assert!(message.contains(&format!("__keyevent@0__:{event}\r\n")), "{event}: {message:?}");
    }
    assert_eq!(other.ask("PING"), "+PONG\r\n");
    assert!(monitor.reply().ends_with("\"PING\"\r\n"), "who was served is not shown again");
    // The time of the wait is not the server's.
    assert_eq!(other.ask("CONFIG SET slowlog-log-slower-than 500000"), "+OK\r\n");
    assert_eq!(waiter.ask("BLPOP k 1"), "*-1\r\n");
    assert_eq!(other.ask("SLOWLOG LEN"), ":0\r\n");
    let statistics = other.ask("INFO commandstats");
    assert!(statistics.contains("cmdstat_blpop:calls=2,"), "{statistics}");
    server.stop();
}

#[test]
fn a_thousand_wait_for_one_key() {
    const COUNT: usize = 1000;
    let (_dir, server) = start(&["--workers", "3"]);
    let mut pusher = server.client();
    let mut waiters: Vec<Socket> = (0..COUNT).map(|_| server.client()).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        block(waiter, "BLPOP k 0", &mut pusher, number + 1);
    }
    // More at once than an event loop serves by itself.
    let elements: Vec<String> = (0..COUNT).map(|number| number.to_string()).collect();
    let mut words: Vec<&[u8]> = vec![b"RPUSH", b"k"];
    words.extend(elements[..COUNT - 1].iter().map(|element| element.as_bytes()));
    assert_eq!(pusher.ask_words(&words), format!(":{}\r\n", COUNT - 1));
    for (waiter, element) in waiters.iter_mut().zip(&elements).take(COUNT - 1) {
        assert_eq!(waiter.reply(), popped("k", element));
    }
    assert_eq!(pusher.info("blocked_clients"), "1");
    pusher.ask("RPUSH k last");
    assert_eq!(waiters[COUNT - 1].reply(), popped("k", "last"));
    server.stop();
}

#[test]
fn a_wait_for_very_many_keys() {
    let (_dir, server) = start(&[]);
    let (mut pusher, mut waiter) = (server.client(), server.client());
    let keys: Vec<String> = (0..5000).map(|number| format!("key:{number}")).collect();
    let mut words: Vec<&[u8]> = vec![b"BLPOP"];
    words.extend(keys.iter().map(|key| key.as_bytes()));
    words.push(b"0");
    for key in ["key:4999", "key:0", "key:2500"] {
        waiter.send(&request(&words));
        wait_until("it waits for all keys", || pusher.info("total_blocking_keys") == "5000");
        assert_eq!(pusher.ask(&format!("RPUSH {key} x")), ":1\r\n");
        assert_eq!(waiter.reply(), popped(key, "x"));
        wait_until("nobody waits any more", || pusher.info("total_blocking_keys") == "0");
    }
    server.stop();
}

/// Producers push numbers, consumers take them with BLPOP or move them to a list of their own, some are killed or go.
/// Every number that a client was told it has was told once; every number is somewhere, but for those that were popped
/// for clients that were killed before they read.
#[test]
fn every_element_is_taken_once() {
    const PRODUCERS: usize = 3;
    const CONSUMERS: usize = 6;
    const EACH: usize = 3000;
    let (_dir, server) = start(&["--workers", "3"]);
    let done = AtomicBool::new(false);
    let lost = AtomicUsize::new(0);
    let taken: Vec<String> = std::thread::scope(|scope| {
        let (server, done, lost) = (&server, &done, &lost);
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                scope.spawn(move || {
                    let mut client = server.client();
                    for number in 0..EACH {
                        let queue = if number % 3 == 0 { "moved" } else { "popped" };
                        let element = format!("{producer}:{number}");
                        let push = match number % 5 {
                            0 => format!("MULTI\r\nRPUSH {queue} {element}\r\nEXEC\r\n"),
                            _ => format!("LPUSH {queue} {element}\r\n"),
                        };
                        client.send(push.as_bytes());
                        (0..push.matches("\r\n").count()).for_each(|_| assert!(!client.reply().starts_with('-')));
                    }
                })
            })
            .collect();
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|consumer| {
                scope.spawn(move || {
                    let moves = consumer % 2 == 0;
                    let mut taken = Vec::new();
                    let mut client = server.client();
                    let mut turn = 0usize;
                    while !done.load(Ordering::Relaxed) {
                        turn += 1;
                        let command = match moves {
                            true => format!("BLMOVE moved backup:{consumer} RIGHT LEFT 0.05"),
                            false => "BRPOP none popped 0.05".to_owned(),
                        };
                        if turn.is_multiple_of(50) {
                            // The client goes in the middle of its wait. An element that it takes then is lost with it,
                            // unless it was moved.
                            client.send(format!("{command}\r\n").as_bytes());
                            client = server.client();
                            lost.fetch_add(usize::from(!moves), Ordering::Relaxed);
                            continue;
                        }
                        let reply = client.ask(&command);
                        if !reply.starts_with("*-1") && !moves {
                            taken.push(reply.lines().last().expect("an element").to_owned());
                        }
                    }
                    taken
                })
            })
            .collect();
        let ends = Ends(done);
        producers.into_iter().for_each(|producer| producer.join().expect("no assertion failed"));
        let mut client = server.client();
        wait_until("all is taken", || client.ask("EXISTS moved popped") == ":0\r\n");
        drop(ends);
        consumers.into_iter().flat_map(|consumer| consumer.join().expect("no assertion failed")).collect()
    });
    let missing = PRODUCERS * EACH - count_once(&server, taken, CONSUMERS, PRODUCERS * EACH.div_ceil(3));
    assert!(missing <= lost.load(Ordering::Relaxed), "{missing} are missing");
    server.stop();
}

/// Checks that nothing was taken twice, by clients or into the consumers' own lists, and that all that was pushed to be
/// moved is in those; returns how many elements are somewhere.
fn count_once(server: &Server, taken: Vec<String>, consumers: usize, pushed_to_move: usize) -> usize {
    let mut client = server.client();
    let mut times: HashMap<String, usize> = HashMap::new();
    for element in taken {
        *times.entry(element).or_default() += 1;
    }
    let mut moved = 0;
    for consumer in 0..consumers {
        let reply = client.ask(&format!("LRANGE backup:{consumer} 0 -1"));
        for element in reply.lines().filter(|line| line.contains(':')) {
            *times.entry(element.to_owned()).or_default() += 1;
            moved += 1;
        }
    }
    assert!(times.values().all(|times| *times == 1), "nothing is taken twice");
    assert_eq!(moved, pushed_to_move, "what is moved cannot be lost");
    times.len()
}
