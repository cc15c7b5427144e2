//! The change stream: what is done to the data is told in order, from any place on, across kills and breaks, and by
//! replicas and members as by their masters.

mod process;

use process::calls::CALLS;
use process::changes::{Follower, Printer, message, text, words_of};
use process::following::{DEBUG, replica_of, wait_for_link};
use process::redis::redis;
use process::{Server, TempDir, free_port, request, wait_until};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const YES: [&str; 2] = ["--change-stream", "yes"];
const BEFORE: [&str; 2] = ["--change-stream", "before"];

#[test]
fn each_command_that_writes_is_told() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &BEFORE);
    let mut client = server.client();
    let (mut follower, mut noted) = (Follower::at(&server, "- BEFORE"), 0);
    let lines = CALLS.split('\n').flat_map(|line| line.trim().split('|')).filter(|line| !line.is_empty());
    for (number, command) in lines.flat_map(|line| line.split(';')).enumerate() {
        client.ask(command);
        client.ask(&format!("SET fence {number}"));
        let changes = follower.through(&["set", "fence", &number.to_string()]);
        for change in &changes {
            let op = text(&change["op"]);
            let is_whole = ["flushall", "flushdb", "swapdb", "function"].contains(&&*op);
            assert!(change["db"].is_u64(), "{command}: {change}");
            let keys = change["keys"].as_array().expect("it is an array");
            assert_eq!(keys.is_empty(), is_whole, "{command}: {change}");
            let is_noted = change["before"].is_array();
            noted += u32::from(is_noted);
        }
    }
    assert!(noted > 300, "{noted}");
    // Words for a Redis that follows are for that alone.
    client.ask("PUBLISH news x");
    client.ask("SET fence last");
    assert_eq!(follower.through(&["set", "fence", "last"]).len(), 1);
}

#[test]
fn a_change_comes_with_what_there_was_before() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &BEFORE);
    let mut client = server.client();
    let mut follower = Follower::at(&server, "$ BEFORE");
    let mut before = |command: &str, last: &[&str]| {
        client.ask(command);
        let change = follower.through(last).pop().expect("there is one");
        change["before"].to_string()
    };
    assert_eq!(before("SET s one", &["set", "s", "one"]), r#"[{"key":"s","type":"none"}]"#);
    assert_eq!(
        before("APPEND s two", &["append", "s", "two"]),
        r#"[{"key":"s","length":3,"type":"string","value":"one"}]"#
    );
    before("HSET h f v g w", &["hset", "h", "f", "v", "g", "w"]);
    assert_eq!(
        before("HDEL h f", &["hdel", "h", "f"]),
        r#"[{"fields":[["f","v"],["g","w"]],"key":"h","length":2,"type":"hash"}]"#
    );
    before("ZADD z 1.5 a", &["zadd", "z", "1.5", "a"]);
    assert_eq!(
        before("ZINCRBY z 2 a", &["zincrby", "z", "2", "a"]),
        r#"[{"key":"z","length":1,"scores":[["a","1.5"]],"type":"zset"}]"#
    );
    before("RPUSH l a b", &["rpush", "l", "a", "b"]);
    let list = r#"[{"elements":["a","b"],"key":"l","length":2,"type":"list"}]"#;
    assert_eq!(before("LSET l 0 x", &["lset", "l", "0", "x"]), list);
    assert_eq!(before("BLPOP l 1", &["lpop", "l"]), list.replace("\"a\"", "\"x\""));
    // Of a long value, what the command names; and of a key that the command removes, its length.
    let fields: Vec<String> = (0..200).flat_map(|at| [format!("f{at}"), format!("v{at}")]).collect();
    let words: Vec<&str> = ["hset", "long"].into_iter().chain(fields.iter().map(String::as_str)).collect();
    before(&words.join(" "), &words);
    let some = r#"[{"fields":[["f7","v7"]],"key":"long","length":200,"part":true,"type":"hash"}]"#;
    assert_eq!(before("HSET long f7 x none 1", &["hset", "long", "f7", "x", "none", "1"]), some);
    assert_eq!(before("DEL long", &["del", "long"]), r#"[{"key":"long","length":201,"type":"hash"}]"#);
    // Of a key that another takes the place of; what is in the other database is not noted.
    before("SET from 1", &["set", "from", "1"]);
    assert_eq!(before("COPY from to", &["copy", "from", "to"]), r#"[{"key":"to","type":"none"}]"#);
    let moved = r#"[{"key":"from","length":1,"type":"string","value":"1"}]"#;
    assert_eq!(before("MOVE from 3", &["move", "from", "3"]), moved);
    // Each command of a block sees what the one before it has left, and a script is one record.
    client.send(b"MULTI\r\nSET m 1\r\nINCR m\r\nEXEC\r\n");
    (0..4).for_each(|_| _ = client.reply());
    let changes = follower.through(&["incr", "m"]);
    assert_eq!(changes[1]["before"].to_string(), r#"[{"key":"m","length":1,"type":"string","value":"1"}]"#);
}

#[test]
fn values_on_disk_are_read_for_it() {
    let dir = TempDir::new();
    let start = || Server::start_at(dir.path(), free_port(), &[&BEFORE[..], &DEBUG[..]].concat());
    let server = start();
    let mut client = server.client();
    (0..500).for_each(|at| assert_eq!(client.ask(&format!("SET key:{at} {at}")), "+OK\r\n"));
    server.stop();
    let server = start();
    let mut client = server.client();
    let mut follower = Follower::at(&server, "$ BEFORE");
    for at in 0..500 {
        client.ask(&format!("SET key:{at} x"));
        let changes = follower.through(&["set", &format!("key:{at}"), "x"]);
        assert_eq!(changes[0]["before"][0]["value"], at.to_string(), "{changes:?}");
    }
}

#[test]
fn what_is_wanted_is_told_and_nothing_else() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &YES);
    let mut client = server.client();
    let mut some = Follower::at(&server, "- MATCH user:* MATCH ?x DB 3");
    for command in ["SET user:1 a", "SELECT 3", "SET user:2 b", "SET other c", "MSET ax 1 y 2", "DEL user:2", "FLUSHDB"]
    {
        client.ask(command);
    }
    let told = some.through(&["flushdb"]);
    let told: Vec<String> = told.iter().map(|change| words_of(change).join(" ")).collect();
    assert_eq!(told, ["set user:2 b", "mset ax 1 y 2", "del user:2", "flushdb"]);
    // Changes that come from another database, and a subcommand's key.
    let calls = ["SELECT 0", "MOVE user:1 3", "SET user:1 c", "COPY user:1 user:3 DB 3", "SELECT 3"];
    calls.into_iter().for_each(|call| _ = client.ask(call));
    client.ask("XGROUP CREATE other g $ MKSTREAM");
    client.ask("XGROUP CREATE user:x g $ MKSTREAM");
    let told = some.through(&["xgroup", "create", "user:x", "g", "$", "MKSTREAM"]);
    let told: Vec<String> = told.iter().map(|change| words_of(change).join(" ")).collect();
    assert_eq!(told, ["move user:1 3", "copy user:1 user:3 DB 3", "xgroup create user:x g $ MKSTREAM"]);
    // A consumer that finds nothing was seen, of which nothing is told but that it has come to be.
    let polls = [
        "XREADGROUP GROUP g {} STREAMS user:x >",
        "XREADGROUP GROUP g {} NOACK STREAMS user:x >",
        "XREADGROUP GROUP g {} BLOCK 1 STREAMS user:x >",
        "XREADGROUP GROUP g {} CLAIM 1 STREAMS user:x >",
        "XREADGROUP GROUP g {} STREAMS user:x 0",
        "XCLAIM user:x g {} 0 1-1 JUSTID",
        "XAUTOCLAIM user:x g {} 0 0",
    ];
    for (number, poll) in polls.into_iter().enumerate() {
        let poll = poll.replace("{}", &format!("c{number}"));
        for is_new in [true, false, false] {
            client.ask(&poll);
            assert_eq!(client.ask("SET user:x1 v"), "+OK\r\n");
            let told = some.through(&["set", "user:x1", "v"]);
            let told: Vec<String> = told.iter().map(|change| words_of(change).join(" ")).collect();
            let came = is_new.then(|| format!("xgroup CREATECONSUMER user:x g c{number}"));
            let expected: Vec<String> = came.into_iter().chain(["set user:x1 v".to_owned()]).collect();
            assert_eq!(told, expected, "{poll}");
        }
    }
    // A reader that wants nothing of a long log hears that there is something all the same.
    let mut client = server.client();
    (0..5000).for_each(|at| client.send(format!("SET noise {at}\r\n").as_bytes()));
    (0..5000).for_each(|_| assert_eq!(client.reply(), "+OK\r\n"));
    let mut none = Follower::at(&server, "- MATCH none");
    let from = none.index;
    wait_until("it has passed all", || {
        let (kind, message) = message(&mut none.client);
        // FLUSHDB is about no keys.
        assert!(kind == "heartbeat" || message["changes"][0]["op"] == "flushdb", "{message}");
        kind == "heartbeat" && message["index"].as_u64().expect("it is a number") >= from + 5000
    });
    // Values that are no text come in base64, and RESP3 has messages of its own.
    let mut client = server.client();
    client.ask_words(&[b"SET", b"bin", b"\xff\x00"]);
    let mut pushed = server.client();
    pushed.ask("HELLO 3");
    pushed.send(b"CHANGES.FOLLOW -\r\n");
    let reply = pushed.reply();
    assert!(reply.starts_with(">2\r\n"), "{reply}");
    let reply = (0..20_000).map(|_| pushed.reply()).find(|reply| reply.contains("bin")).expect("it comes");
    assert!(reply.contains(r#"["bin",{"base64":"/wA="}]"#), "{reply}");
}

#[test]
fn what_cannot_be_told_is_refused_or_named() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.ask("SET before 1"), "+OK\r\n");
    let off = "-ERR records do not say what they do: set change-stream to yes or before\r\n";
    assert_eq!(client.ask("CHANGES.FOLLOW $"), off);
    assert_eq!(client.ask("CONFIG SET change-stream yes"), "+OK\r\n");
    let no = "-ERR records do not say what there was before: set change-stream to before\r\n";
    assert_eq!(client.ask("CHANGES.FOLLOW $ BEFORE"), no);
    for wrong in ["x", "-1", "$ DB 99", "$ HISTORY abc", "$ MATCH", "$ WHAT ever", "99999999999999999999"] {
        let reply = client.ask(&format!("CHANGES.FOLLOW {wrong}"));
        assert!(reply.starts_with("-ERR "), "{wrong}: {reply}");
        assert_eq!(client.ask("PING"), "+PONG\r\n");
    }
    let refused = |words: &str| server.client().ask(&format!("CHANGES.FOLLOW {words}"));
    assert!(refused("1000").starts_with("-NOTYET the log has come to record"));
    assert!(refused(&format!("0 HISTORY {}", "0".repeat(40))).starts_with("-GONE the log never was in history"));
    let mut in_block = server.client();
    assert_eq!(in_block.ask("MULTI"), "+OK\r\n");
    assert!(in_block.ask("CHANGES.FOLLOW $").contains("not allowed"));
    // Changes that were made while nothing was said are told as such, before and behind those that are said.
    assert_eq!(client.ask("SET said 1"), "+OK\r\n");
    assert_eq!(client.ask("CONFIG SET change-stream no"), "+OK\r\n");
    assert_eq!(client.ask("SADD after x"), ":1\r\n");
    assert_eq!(client.ask("CONFIG SET change-stream yes"), "+OK\r\n");
    assert_eq!(client.ask("INCR end"), ":1\r\n");
    let mut follower = Follower::at(&server, "-");
    assert_eq!(follower.record()["unsaid"], true);
    assert_eq!(words_of(&follower.record()["changes"][0]), ["set", "said", "1"]);
    assert_eq!(follower.record()["unsaid"], true);
    assert_eq!(words_of(&follower.record()["changes"][0]), ["incr", "end"]);
    // A follower is shown among the clients, and can be closed.
    assert!(client.ask("CLIENT LIST").contains("cmd=changes.follow"));
    assert_eq!(client.ask("ACL SETUSER app on nopass +@all -@admin ~*"), "+OK\r\n");
    let mut app = server.client();
    assert_eq!(app.ask("AUTH app x"), "+OK\r\n");
    assert!(app.ask("CHANGES.FOLLOW $").starts_with("-NOPERM"));
}

#[test]
fn each_record_is_told_across_kills_of_either_side() {
    let dir = TempDir::new();
    let port = free_port();
    let mut server = Server::start_at(dir.path(), port, &YES);
    let mut printer = Printer::start(port, &["--from", "-"]);
    let (mut seen, mut last) = (BTreeSet::new(), 0);
    let (mut place, mut before, mut count) = (None, 0, 0);
    for round in 0..6 {
        let mut client = server.client();
        for _ in 0..200 {
            count += 1;
            assert_eq!(client.ask("INCR n"), format!(":{count}\r\n"));
        }
        let until = if round % 2 == 0 { count - 50 } else { count };
        while last < until {
            let line = printer.line().expect("it goes on");
            let index = line["index"].as_u64().expect("each line has one");
            if let Some(history) = line["history"].as_str() {
                // A connection begins, or a history within one.
                place = Some((history.to_owned(), 0));
                before = index;
                continue;
            }
            assert!(index > before, "{line} behind {before}");
            before = index;
            assert_eq!(words_of(&line["changes"][0]), ["incr", "n"]);
            // Invariant: a record that comes again is the same one, and none is left out.
            last += u64::from(seen.insert(index));
            place = place.map(|(history, _)| (history, index));
        }
        match round % 3 {
            0 => {
                server.kill_now();
                server = Server::start_at(dir.path(), port, &YES);
            }
            1 => {
                let (history, index) = place.clone().expect("it has begun");
                drop(printer);
                printer = Printer::start(port, &["--from", &index.to_string(), "--history", &history]);
            }
            _ => {
                server.stop();
                server = Server::start_at(dir.path(), port, &YES);
            }
        }
    }
    assert_eq!(server.client().ask("GET n"), format!("${}\r\n{count}\r\n", count.to_string().len()));
}

#[test]
fn a_log_that_does_not_go_back_says_so() {
    let dir = TempDir::new();
    let more = ["--change-stream", "yes", "--memtable-size", "1mb", "--flush-log-bytes", "1mb"];
    let server = Server::start(dir.path(), &[&more[..], &["--log-segment-size", "1mb"], &DEBUG[..]].concat());
    let mut client = server.client();
    let value = "x".repeat(10_000);
    for at in 0..800 {
        assert_eq!(client.ask(&format!("SET key:{} {value}", at % 10)), "+OK\r\n");
    }
    wait_until("the log has been purged", || {
        client.ask(&format!("SET key:0 {value}"));
        server.client().ask("CHANGES.FOLLOW 1").contains("does not go back to record 1")
    });
    let mut follower = Follower::at(&server, "-");
    let first = follower.index;
    assert!(first > 1);
    assert_eq!(follower.record()["index"], first + 1);
}

#[test]
fn replicas_tell_the_same_and_so_does_one_that_is_promoted() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let more = [&YES[..], &DEBUG[..]].concat();
    let master = Server::start(dir.path(), &more);
    let replica = replica_of(&master, &other, &more);
    let (mut of_master, mut of_replica) = (Follower::at(&master, "$"), Follower::at(&replica, "$"));
    assert_eq!(of_master.history, of_replica.history);
    let mut client = master.client();
    for at in 0..50 {
        client.ask(&format!("SET k {at}"));
        client.ask(&format!("SADD s {at}"));
    }
    let all = of_master.through(&["sadd", "s", "49"]);
    assert_eq!(of_replica.through(&["sadd", "s", "49"]), all);
    assert_eq!(of_replica.index, of_master.index);
    // The replica leads from here on: whoever has followed the old master goes on there.
    let place = format!("{} HISTORY {}", of_master.index, of_master.history);
    drop((of_replica, client));
    master.stop();
    let mut client = replica.client();
    assert_eq!(client.ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_until("it leads", || client.ask("SET k promoted") == "+OK\r\n");
    let mut follower = Follower::at(&replica, &place);
    assert_eq!(words_of(&follower.record()["changes"][0]), ["set", "k", "promoted"]);
    assert_ne!(follower.history, of_master.history);
    // The old master goes on by itself: what it then has is not on the way of the one that was promoted.
    let old = Server::start(dir.path(), &more);
    let mut client = old.client();
    assert_eq!(client.ask("SET k alone"), "+OK\r\n");
    assert_eq!(client.ask("SET k alone"), "+OK\r\n");
    let mut of_old = Follower::at(&old, "-");
    of_old.through(&["set", "k", "alone"]);
    of_old.record();
    let elsewhere = format!("CHANGES.FOLLOW {} HISTORY {}", of_old.index, of_old.history);
    let reply = replica.client().ask(&elsewhere);
    assert!(reply.contains("gone on elsewhere") || reply.contains("not to") || reply.contains("never was"), "{reply}");
}

#[test]
fn who_is_behind_a_new_history_or_in_it_goes_on() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let more = [&YES[..], &DEBUG[..]].concat();
    let server = Server::start(dir.path(), &more);
    let mut client = server.client();
    (0..20).for_each(|at| assert_eq!(client.ask(&format!("SET k {at}")), "+OK\r\n"));
    server.kill();
    let server = Server::start(dir.path(), &more);
    let mut client = server.client();
    assert_eq!(client.ask("SET k last"), "+OK\r\n");
    // The newest history is named, and the reader is before it.
    let follower = Follower::at(&server, "-");
    let history = follower.history;
    let mut follower = Follower::at(&server, &format!("{} HISTORY {history}", follower.index + 5));
    follower.through(&["set", "k", "last"]);
    // A replica that is promoted under a reader: the reader hears of the new history.
    let replica = replica_of(&server, &other, &more);
    let mut reader = Follower::at(&replica, "$");
    assert_eq!(client.ask("SET k replicated"), "+OK\r\n");
    reader.through(&["set", "k", "replicated"]);
    let mut of_replica = replica.client();
    assert_eq!(of_replica.ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_until("it leads", || of_replica.ask("SET k promoted") == "+OK\r\n");
    let place = match reader.try_through(&["set", "k", "promoted"]) {
        true => reader,
        // The data were opened anew, which ends the connection.
        false => Follower::at(&replica, &format!("{} HISTORY {}", reader.index, reader.history)),
    };
    let mut again = Follower::at(&replica, &format!("{} HISTORY {}", place.index, place.history));
    assert_eq!(of_replica.ask("SET k again"), "+OK\r\n");
    again.through(&["set", "k", "again"]);
}

#[test]
fn a_replica_that_lags_says_not_yet_of_a_history_that_it_does_not_know() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let more = [&YES[..], &DEBUG[..]].concat();
    let master = Server::start(dir.path(), &more);
    let replica = replica_of(&master, &other, &more);
    let mut reader = Follower::at(&replica, "$");
    assert_eq!(master.client().ask("SET k 1"), "+OK\r\n");
    reader.through(&["set", "k", "1"]);
    // A new history, on a port that the replica does not know.
    master.kill();
    let master = Server::start(dir.path(), &more);
    let mut client = master.client();
    (0..20).for_each(|at| assert_eq!(client.ask(&format!("SET k {at}")), "+OK\r\n"));
    let mut of_master = Follower::at(&master, "-");
    of_master.through(&["set", "k", "19"]);
    let history = Follower::at(&master, "$").history;
    assert_ne!(history, reader.history);
    let place = format!("{} HISTORY {history}", of_master.index);
    let reply = replica.client().ask(&format!("CHANGES.FOLLOW {place}"));
    assert!(reply.starts_with("-NOTYET the log has come to record"), "{reply}");
    // The master knows all histories that there are.
    let reply = client.ask(&format!("CHANGES.FOLLOW 1000000 HISTORY {}", "0".repeat(40)));
    assert!(reply.starts_with("-GONE the log never was in history"), "{reply}");
    assert_eq!(replica.client().ask(&format!("REPLICAOF 127.0.0.1 {}", master.port)), "+OK\r\n");
    wait_for_link(&replica);
    let follow = format!("CHANGES.FOLLOW {place}");
    wait_until("the replica has come so far", || {
        replica.client().try_ask(&follow).is_some_and(|reply| !reply.starts_with('-'))
    });
}

/// A redis-server that follows.
fn redis_behind(master: &Server, dir: &TempDir) -> Server {
    let replica = redis(dir, &["--repl-diskless-sync-delay", "0"]);
    assert_eq!(replica.client().ask(&format!("REPLICAOF 127.0.0.1 {}", master.port)), "+OK\r\n");
    wait_for_link(&replica);
    replica
}

#[test]
fn notes_are_bounded_and_crowd_nothing_out() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &[&BEFORE[..], &DEBUG[..]].concat());
    let replica = redis_behind(&master, &other);
    let mut client = master.client();
    let connection = || {
        let listed = master.client().ask("CLIENT LIST TYPE replica");
        listed.lines().find_map(|line| Some(line.split_once(" addr=")?.0.to_owned()))
    };
    let listed = connection().expect("the Redis is listed");
    let value = vec![b'x'; 60_000];
    for at in 0..500 {
        assert_eq!(client.ask_words(&[b"SET", format!("key:{at}").as_bytes(), &value]), "+OK\r\n");
    }
    let mut follower = Follower::at(&master, "$ BEFORE");
    let keys: Vec<String> = (0..500).map(|at| format!("key:{at}")).collect();
    let words: Vec<&str> = std::iter::once("del").chain(keys.iter().map(String::as_str)).collect();
    assert_eq!(client.ask(&words.join(" ")), ":500\r\n");
    let change = follower.through(&words).pop().expect("it is told");
    let before = change["before"].as_array().expect("some of it is noted");
    assert!(before.iter().all(|note| note["length"] == 60_000), "{}", before.len());
    let whole = before.iter().filter(|note| note["value"].is_string()).count();
    assert!((10..20).contains(&whole), "{whole}");
    // A script that does as much, again and again, is told whole, and the Redis stays.
    assert_eq!(client.ask_words(&[b"SET", b"big", &value]), "+OK\r\n");
    let script = "for i=1,200 do redis.call('setrange','big',0,'y') end return 1";
    assert_eq!(client.ask_words(&[b"EVAL", script.as_bytes(), b"1", b"big"]), ":1\r\n");
    let told = follower.through(&["setrange", "big", "0", "y"]);
    assert_eq!(told.len(), 201, "the SET, and the script's as one record");
    client.ask("SET fence 1");
    let mut of_replica = replica.client();
    wait_until("all of it has arrived", || of_replica.ask("GET fence") == "$1\r\n1\r\n");
    assert!(of_replica.ask("GETRANGE big 0 1").contains("yx"));
    assert_eq!(connection(), Some(listed));
}

#[test]
fn a_redis_that_follows_is_sent_no_notes() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &[&BEFORE[..], &DEBUG[..]].concat());
    let replica = redis_behind(&master, &other);
    let mut client = master.client();
    let mut follower = Follower::at(&master, "$ BEFORE");
    for at in 0..100 {
        client.ask(&format!("HSET h f{at} {at}"));
        client.ask(&format!("HEXPIRE h 1000 FIELDS 1 f{at}"));
    }
    client.ask("SET fence 1");
    let mut of_replica = replica.client();
    wait_until("all of it has arrived", || of_replica.ask("GET fence") == "$1\r\n1\r\n");
    assert_eq!(of_replica.ask("HLEN h"), ":100\r\n");
    assert_eq!(follower.through(&["set", "fence", "1"]).len(), 101);
    // The Redis goes, and records say what they do all the same.
    assert_eq!(of_replica.ask("REPLICAOF NO ONE"), "+OK\r\n");
    assert_eq!(client.ask("CONFIG SET repl-backlog-ttl 1"), "+OK\r\n");
    let log = dir.path().join("haypile.stream");
    wait_until("the stream of the Redis has ended", || !log.exists());
    client.ask("SET fence 2");
    assert_eq!(follower.through(&["set", "fence", "2"]).len(), 1);
}

#[test]
fn one_who_does_not_read_is_let_go_and_holds_nobody_up() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[&YES[..], &DEBUG[..], &["--repl-timeout", "12"]].concat());
    let mut client = server.client();
    let mut deaf = server.deaf_client();
    deaf.send(b"CHANGES.FOLLOW $\r\n");
    wait_until("it follows", || client.ask("CLIENT LIST").contains("cmd=changes.follow"));
    let before = server.resident_bytes();
    let (value, since) = ("x".repeat(100_000), Instant::now());
    let mut slowest = Duration::ZERO;
    while client.ask("CLIENT LIST").contains("cmd=changes.follow") {
        // The kernel may find some more room for a reader who takes nothing: each time the timeout begins anew.
        assert!(since.elapsed() < 2 * process::PATIENCE, "it is let go");
        let asked = Instant::now();
        client.send(&request(&[b"SET", b"k", value.as_bytes()]));
        assert_eq!(client.reply(), "+OK\r\n");
        slowest = slowest.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(30));
    }
    // Were writes to wait for the reader, one of them would until the reader is let go.
    assert!(slowest < Duration::from_secs(10), "{slowest:?}");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 150 << 20, "{grown} bytes");
}

#[test]
fn members_of_a_group_tell_what_the_group_has_agreed_on() {
    let mut group = process::group::Group::start(&["--change-stream", "yes"]);
    group.settle();
    let leader = group.leader();
    let mut client = group.client(leader);
    (0..50).for_each(|at| assert_eq!(client.ask(&format!("SET k {at}")), "+OK\r\n"));
    let mut told = Vec::new();
    for at in 0..3 {
        let mut client = group.client(at);
        client.send(b"CHANGES.FOLLOW -\r\n");
        let (_, begun) = message(&mut client);
        let history = text(&begun["history"]);
        let mut follower = Follower { client, history, index: begun["index"].as_u64().expect("it is a number") };
        told.push((follower.through(&["set", "k", "49"]), follower.index, follower.history.clone()));
    }
    assert!(told.iter().all(|one| *one == told[0]));
    // Another one leads: whoever follows goes on at any member.
    group.kill(leader);
    group.settle();
    let next = group.leader();
    assert_eq!(group.client(next).ask("SET k next"), "+OK\r\n");
    for at in group.up().collect::<Vec<_>>() {
        let mut client = group.client(at);
        client.send(format!("CHANGES.FOLLOW {} HISTORY {}\r\n", told[0].1, told[0].2).as_bytes());
        let (_, begun) = message(&mut client);
        let index = begun["index"].as_u64().expect("it is a number");
        let mut follower = Follower { client, history: String::new(), index };
        assert_eq!(words_of(&follower.record()["changes"][0]), ["set", "k", "next"]);
    }
}

/// The example of docs/changes.md.
fn example(arguments: &[&str]) -> Command {
    let script = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"))
        .join("../../examples/search_index.py");
    let mut command = Command::new("/usr/bin/python3");
    command.arg(script).args(arguments).stderr(Stdio::null());
    command
}

#[test]
fn a_search_index_is_kept_up_to_date() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    let (port, file) = (free_port(), place.path().join("index.db"));
    let (named, file) = (port.to_string(), file.to_str().expect("a path"));
    let start = || Server::start_at(dir.path(), port, &[&YES[..], &DEBUG[..]].concat());
    let follow = || Printer::of(example(&["follow", "127.0.0.1", &named, file]));
    let found = |words: &str| {
        let out = example(&["search", file, words]).output().expect("it runs");
        let found = String::from_utf8(out.stdout).expect("it is text");
        found.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut server = start();
    let mut client = server.client();
    client.ask("HSET doc:0 title winter body haystacks");
    let mut follower = follow();
    wait_until("what was there is found", || found("haystacks") == ["doc:0"]);
    for at in 1..100 {
        client.ask(&format!("HSET doc:{at} title summer body meadow{at}"));
        match at {
            30 => {
                server.kill_now();
                server = start();
                client = server.client();
            }
            60 => follower = follow(),
            _ => {}
        }
    }
    client.ask("DEL doc:5");
    client.ask("HSET doc:6 body changed");
    client.ask("RENAME doc:7 other:7");
    client.ask("RENAME doc:8 doc:108");
    client.ask("SET doc:9 text");
    client.ask("HSET doc:last title end");
    wait_until("the last one is found", || found("end") == ["doc:last"]);
    assert_eq!(found("summer").len(), 96);
    assert_eq!(found("meadow8"), ["doc:108"]);
    assert_eq!(found("changed"), ["doc:6"]);
    assert!(["meadow5", "meadow6", "meadow7", "meadow9"].iter().all(|gone| found(gone).is_empty()));
    client.ask("FLUSHALL");
    client.ask("HSET doc:1 title anew");
    wait_until("it was made anew", || found("anew") == ["doc:1"] && found("summer").is_empty());
    drop(follower);
}
