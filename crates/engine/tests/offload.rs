//! Commands whose rows are on disk, that take long, or that wait for one another: they are answered, in order, and
//! nobody else waits for them.
#![cfg(not(feature = "shuttle"))]

mod server;

use haypile_engine::{Next, Worker};
use server::{Data, PATIENCE, Server, check, check_on, engine};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

#[test]
fn cold_keys_are_loaded_and_the_command_runs_again() {
    check(
        "reads, writes, several keys, and what is not there",
        "0: MSET a 1 b 2 c 3 => +OK
         freeze
         0: GET a => $1 1
         0: INCR b => :3
         0: MGET a b c d => *4 $1 1 $1 3 $1 3 $-1
         freeze
         0: EXISTS a b none => :2
         freeze
         0: DEL a none => :1
         0: DBSIZE => :2
         freeze
         0: APPEND c 45 => :3
         0: GET c => $3 345",
    );
}

#[test]
fn a_block_on_cold_keys_runs_once() {
    check(
        "whole, with its session changes",
        "0: SET a 1 => +OK
         0: SET w 1 => +OK
         freeze
         0: WATCH w => +OK
         0: MULTI => +OK
         0: INCR a => +QUEUED
         0: SELECT 2 => +QUEUED
         0: SET k v => +QUEUED
         0: EXEC => *3 :2 +OK +OK
         0: GET k => $1 v
         0: SELECT 0 => +OK
         0: GET a => $1 2",
    );
    check(
        "a watched key on disk that expires",
        "0: SET w 1 PX 50 => +OK
         0: WATCH w => +OK
         freeze
         time +100
         0: MULTI => +OK
         0: EXEC => *-1",
    );
    check(
        "FLUSHDB looks on the disk for the keys that are watched",
        "0: SET w 1 => +OK
         0: WATCH w => +OK
         freeze
         1: FLUSHDB => +OK
         0: MULTI => +OK
         0: EXEC => *-1",
    );
}

#[test]
fn a_command_of_very_many_keys_runs_on_the_pool() {
    let mut server = Server::new();
    for (command, keys) in [("DEL", 5000), ("EXISTS", 5000), ("MGET", 5000), ("DEL", 100)] {
        let before: u64 = server.info(0, "commands_on_io_pool").parse().expect("a number");
        let names: String = (0..keys).map(|n| format!(" k{n}")).collect();
        server.ask(0, &format!("{command}{names}"));
        let after: u64 = server.info(0, "commands_on_io_pool").parse().expect("a number");
        assert_eq!(after - before, u64::from(keys > 4096), "{command} of {keys}");
    }
}

#[test]
fn what_loading_does_not_help_runs_on_the_pool() {
    let mut server = Server::new();
    check_on(
        &mut server,
        "ordered reads of a cold base",
        "0: MSET a 1 b 2 => +OK
         freeze
         0: KEYS a* => *1 $1 a
         0: GET a => $1 1",
    );
    assert_eq!(server.info(0, "commands_on_io_pool"), "1");
}

#[test]
fn nobody_waits_for_another_ones_disk_and_everyone_gets_his_replies_in_order() {
    let mut server = Server::new();
    server.ask(0, "SET cold 1");
    server.freeze();
    server.ask(1, "SET hot 2");
    server.send(0, "GET cold");
    assert!(server.waits(0));
    server.send(0, "GET hot");
    assert_eq!(server.ask(1, "GET hot"), "$1 2", "the other client is served at once");
    assert_eq!(server.reply(0), "$1 1 $1 2", "the later command did not overtake the earlier one");
    assert_eq!(server.info(0, "commands_that_loaded_rows"), "1", "SET of a new key did not have to look for it");
    assert_eq!(server.ask(0, "CONFIG RESETSTAT"), "+OK");
    assert_eq!(server.info(0, "commands_that_loaded_rows"), "0");
}

#[test]
fn long_commands_hold_up_no_loads_however_many_there_are() {
    let mut server = Server::new();
    for first in (0..6000).step_by(500) {
        let pairs: String = (first..first + 500).map(|n| format!(" k{n} x")).collect();
        assert_eq!(server.ask(0, &format!("MSET{pairs}")), "+OK");
    }
    server.freeze();
    // More than there are of either kind. They are known to be long when their first thousand keys are read, in four
    // steps.
    let threads = server.info(0, "io_pool_threads").parse().expect("a number");
    for client in 1..=threads {
        server.send(client, "KEYS k123*");
        assert!(server.waits(client));
    }
    server.store.faults.wait_for_scans(4 * threads as u64);
    server.store.faults.hold_scans(true);
    assert_eq!(server.ask(0, "GET k1"), "$1 x");
    assert_eq!(server.ask(0, "MGET k2 k3"), "*2 $1 x $1 x");
    assert!((1..=threads).all(|client| server.waits(client)));
    server.store.faults.hold_scans(false);
    for client in 1..=threads {
        assert!(server.reply(client).starts_with("*11 "));
    }
    assert_eq!(server.info(0, "commands_on_io_pool"), threads.to_string());
}

#[test]
fn cold_keys_of_a_pipeline_are_loaded_together() {
    let cases: &[(&str, &[&str], &str)] = &[
        ("reads", &["GET a", "GET b", "GET c"], "$1 1 $1 2 $1 3"),
        ("writes, one of a key that is not there", &["SET a 7", "INCR b", "APPEND none x"], "+OK :3 :1"),
        ("several keys of one command", &["MGET a b c none"], "*4 $1 1 $1 2 $1 3 $-1"),
        ("one key twice, changed in between", &["GET a", "INCR a", "GET a", "DEL a b"], "$1 1 :2 $1 2 :2"),
        (
            "what is wrong does not matter",
            &["GET a", "GET", "NONE", "GET b"],
            "$1 1 -ERR wrong number of arguments for 'get' command -ERR unknown command 'NONE', with args beginning with:  $1 2",
        ),
        ("a block", &["GET a", "MULTI", "GET b", "EXEC"], "$1 1 +OK +QUEUED *1 $1 2"),
        ("another database in between", &["GET a", "SELECT 1", "GET a", "GET b"], "$1 1 +OK $-1 $1 5"),
    ];
    for (name, commands, expected) in cases {
        let mut server = Server::new();
        for command in ["MSET a 1 b 2 c 3", "SELECT 1", "SET b 5", "SELECT 0"] {
            server.ask(0, command);
        }
        server.freeze();
        server.send_together(0, commands);
        assert_eq!(server.reply(0), *expected, "{name}");
    }
    // Each of many keys is a job of its own, for all threads; too many to be looked at one by one are a job for one.
    for (count, held, queued) in [(200, 16, "184"), (1001, 1, "0")] {
        let mut server = Server::new();
        let all: Vec<String> = (0..count).map(|n| format!(" k{n}")).collect();
        all.iter().for_each(|key| assert_eq!(server.ask(0, &format!("SET{key} x")), "+OK"));
        server.freeze();
        server.store.faults.hold_gets(true);
        server.send(0, &format!("MGET{}", all.concat()));
        server.store.faults.wait_for_held_gets(held);
        assert_eq!(server.info(1, "io_pool_queued"), queued, "{count} keys");
        server.store.faults.hold_gets(false);
        assert_eq!(server.reply(0), format!("*{count}{}", " $1 x".repeat(count)));
    }
    // Of these the presence set knows that they are plain strings, which is not enough for what is added to.
    let mut server = Server::new();
    server.ask(0, "MSET a 1 b 2 c 3");
    server.freeze();
    server.send_together(0, &["INCR a", "APPEND b 2", "GETSET c 4", "GETDEL c"]);
    assert_eq!(server.reply_so_far(0), ":2\r\n:2\r\n$1\r\n3\r\n$1\r\n4\r\n", "after one wait");
    let mut server = Server::new();
    server.ask(0, "MSET a 1 b 2 c 3 d 4");
    server.freeze();
    server.send_together(0, &["GET a", "SET b 5", "MGET c d"]);
    assert!(server.waits(0));
    assert_eq!(server.reply_so_far(0), "$1\r\n1\r\n+OK\r\n*2\r\n$1\r\n3\r\n$1\r\n4\r\n", "after one wait");
    assert_eq!(server.info(0, "commands_that_loaded_rows"), "1");
}

#[test]
fn a_long_value_comes_in_pieces_and_in_its_place() {
    let mut server = Server::new();
    let long: String = "0123456789".repeat(300_000);
    server.send_words(0, &[b"SET", b"long", long.as_bytes()]);
    assert_eq!(server.reply(0), "+OK");
    server.freeze();
    server.send(0, "GET long");
    server.send(0, "STRLEN long");
    let mut all = String::new();
    // The client reads: the output is emptied while the reply is made.
    while server.waits(0) || all.len() < long.len() {
        all.push_str(&server.reply_so_far(0));
    }
    all.push_str(&server.reply(0));
    assert_eq!(all, format!("$3000000\r\n{long}\r\n:3000000\r\n"));
    server.ask(0, "MULTI");
    server.ask(0, "GETRANGE long 5 9");
    server.ask(0, "PING");
    assert_eq!(server.ask(0, "EXEC"), "*2 $5 56789 +PONG");
}

#[test]
fn a_client_that_does_not_read_is_not_served_beyond_a_bound() {
    let mut server = Server::new();
    let value = "x".repeat(100_000);
    server.send_words(0, &[b"SET", b"k", value.as_bytes()]);
    for _ in 0..100 {
        server.send(0, "GET k");
    }
    assert_eq!(server.clients[0].next, Next::Drain);
    assert!(server.unread(0) < 2 << 20, "{} bytes", server.unread(0));
    let mut replies = 0;
    while replies < 100 {
        replies += server.reply_so_far(0).matches("$100000").count();
    }
    assert_eq!(server.reply(0), "");
}

#[test]
fn a_server_that_is_to_follow_says_so_while_it_loads() {
    let mut server = Server::loading();
    assert_eq!(server.info(0, "role"), "master");
    server.engine.settings.set_replicaof(Some(("127.0.0.1", 7)));
    assert_eq!(server.ask(0, "ROLE"), "*5 $5 slave $9 127.0.0.1 :7 $7 connect :0");
    let fields = ["role", "master_host", "master_port", "master_link_status"];
    assert_eq!(fields.map(|field| server.info(0, field)), ["slave", "127.0.0.1", "7", "down"]);
}

#[test]
fn commands_on_data_are_refused_while_it_is_loaded() {
    let mut server = Server::loading();
    let loading = "-LOADING Redis is loading the dataset in memory";
    assert_eq!(server.ask(0, "GET k"), loading);
    assert_eq!(server.ask(0, "PING"), loading);
    assert_eq!(server.ask(0, "ECHO hi"), "$2 hi");
    assert_eq!(server.ask(0, "SELECT 3"), "+OK");
    assert_eq!(server.info(0, "loading"), "1");
    assert_eq!(server.ask(0, "MULTI"), "+OK");
    assert_eq!(server.ask(0, "SET k 1"), loading);
    assert_eq!(server.ask(0, "EXEC"), "-EXECABORT Transaction discarded because of previous errors.");
    server.engine.serve(server.store.store.clone()).expect("threads can start");
    assert_eq!(server.ask(0, "SET k 1"), "+OK");
}

/// Event loops on threads of their own, on the same few keys: no increment is lost, whoever has to wait for whom.
#[test]
fn event_loops_share_keys() {
    const LOOPS: usize = 4;
    const ROUNDS: usize = 300;
    // One more looks at the end.
    let engine = engine(LOOPS + 1);
    let store = Data::new();
    engine.serve(store.store.clone()).expect("threads can start");
    let threads: Vec<_> = (0..LOOPS)
        .map(|index| {
            let engine = engine.clone();
            std::thread::spawn(move || {
                let (wake, wakes) = channel();
                let wake = std::sync::Mutex::new(wake);
                let worker = Worker::new(
                    engine.clone(),
                    index,
                    Box::new(move || _ = wake.lock().expect("senders do not panic").send(())),
                );
                drive(worker, wakes, index)
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("the loop ends well"));
    let mut check = Worker::new(engine.clone(), LOOPS, Box::new(|| ()));
    let mut session = check.connect(haypile_engine::Peer::default());
    let mut out = Vec::new();
    check.turn(&mut session, b"MGET a b\r\nDBSIZE\r\n", &mut out, engine.now_ms());
    let sum = LOOPS * ROUNDS;
    let expected = format!("*2\r\n${0}\r\n{1}\r\n${0}\r\n{1}\r\n:2\r\n", sum.to_string().len(), sum);
    assert_eq!(String::from_utf8_lossy(&out), expected);
    engine.close();

    fn drive(mut worker: Worker, wakes: std::sync::mpsc::Receiver<()>, index: usize) {
        let engine = Arc::clone(worker.engine());
        assert!(worker.engine().admit());
        let mut session = worker.connect(haypile_engine::Peer::default());
        let (mut out, mut events) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let mut input: &[u8] = match (index, round % 10) {
                // Exchanging two other databases keeps everybody out for a moment.
                (0, 0) => b"INCR a\r\nSWAPDB 3 4\r\nINCR b\r\n",
                (_, 1..5) => b"MULTI\r\nINCR a\r\nINCR b\r\nEXEC\r\n",
                _ => b"INCR b\r\nINCR a\r\n",
            };
            loop {
                let turn = worker.turn(&mut session, input, &mut out, engine.now_ms());
                worker.start_jobs();
                input = &input[turn.consumed..];
                match turn.next {
                    Next::Read => break,
                    Next::Wait => {
                        while !session.has_event() {
                            wakes.recv_timeout(std::time::Duration::from_secs(20)).expect("nobody waits for ever");
                            worker.inbox().take(&mut events);
                            events.drain(..).for_each(|event| session.deliver(event));
                        }
                    }
                    Next::Sleep(time) => {
                        std::thread::sleep(time);
                        session.wake();
                    }
                    Next::Yield | Next::Drain => {}
                    Next::Block(_) => panic!("no command is held back"),
                    Next::Close | Next::Abort | Next::HandOver => panic!("nothing ends the connection"),
                }
            }
            assert!(!out.contains(&b'-'), "no errors: {}", String::from_utf8_lossy(&out));
            out.clear();
        }
        worker.disconnect(&mut session);
    }
}

#[test]
fn expired_keys_go_by_themselves_wherever_they_are() {
    let mut server = Server::new();
    for at in 0..300 {
        server.ask(0, &format!("SET key{at} v PX 50"));
    }
    server.ask(0, "SET stays v");
    server.now_ms += 100;
    assert_eq!(server.ask(0, "DBSIZE"), ":301");
    while server.worker.expire(server.now_ms) {}
    assert_eq!(server.ask(0, "DBSIZE"), ":1");
    assert_eq!(server.info(0, "expired_keys"), "300");

    server.ask(0, "PEXPIREAT stays 9999999999999");
    for at in 0..50 {
        server.ask(0, &format!("SET cold{at} v PX 1"));
    }
    server.freeze();
    let since = Instant::now();
    while server.ask(0, "DBSIZE") != ":1" {
        assert!(since.elapsed() < PATIENCE, "{} keys are left", server.ask(0, "DBSIZE"));
        server.worker.expire_in_base();
        std::thread::yield_now();
    }
}

/// A pause keeps expired keys, as in Redis: a replica that catches up meanwhile gets no news. To readers the keys are
/// absent all the same.
#[test]
fn a_pause_keeps_expired_keys_wherever_they_are() {
    for pause in [&["CLIENT PAUSE 600000 WRITE"][..], &["MULTI", "CLIENT PAUSE 600000 WRITE", "EXEC"]] {
        let mut server = Server::new();
        for at in 0..50 {
            server.ask(0, &format!("SET cold{at} v PX 50"));
        }
        server.ask(0, "SET stays v");
        server.freeze();
        server.ask(0, "SET warm v PX 50");
        pause.iter().for_each(|command| _ = server.ask(0, command));
        server.now_ms += 100;
        // The pool goes by the clock of the wall.
        std::thread::sleep(Duration::from_millis(60));
        while server.worker.expire(server.now_ms) {}
        for _ in 0..50 {
            server.worker.expire_in_base();
            // The read comes behind the expiry on the pool.
            assert_eq!(server.ask(0, "GET stays"), "$1 v", "{pause:?}");
            server.freeze();
        }
        assert_eq!(server.ask(0, "EXISTS warm cold0"), ":0", "{pause:?}");
        assert_eq!(server.ask(0, "DBSIZE"), ":52", "{pause:?}");
        assert_eq!(server.info(0, "expired_keys"), "0", "{pause:?}");

        server.ask(0, "CLIENT UNPAUSE");
        let since = Instant::now();
        while server.ask(0, "DBSIZE") != ":1" {
            assert!(since.elapsed() < PATIENCE, "{} keys are left", server.ask(0, "DBSIZE"));
            while server.worker.expire(server.now_ms) {}
            server.worker.expire_in_base();
            std::thread::yield_now();
        }
        assert_eq!(server.info(0, "expired_keys"), "51", "{pause:?}");
    }
}

#[test]
fn a_client_that_does_not_read_keeps_no_files_of_the_base_for_ever() {
    let mut server = Server::new();
    let element = "x".repeat(10_000);
    for _ in 0..60 {
        let elements = [element.as_str(); 10].join(" ");
        server.ask(0, &format!("RPUSH list {elements}"));
    }
    server.freeze();
    let store = server.store.store.clone();
    // A client that goes on reading may have one long reply after the other, however long that takes.
    for _ in 0..3 {
        server.look(0);
        server.send(0, "LRANGE list 0 -1");
        let mut bytes = server.reply_so_far(0).len();
        while server.waits(0) {
            bytes += server.reply_so_far(0).len();
        }
        assert!(bytes + server.reply_so_far(0).len() > 6_000_000);
        server.now_ms += 400_000;
    }
    server.look(0);
    assert_eq!((server.clients(), store.views()), (1, 0));
    server.send(0, "LRANGE list 0 -1");
    while !server.reply_begun(0) {}
    server.look(0);
    assert_eq!(store.views(), 1, "nothing is read, and the reply is far from its end");
    server.now_ms += 599_000;
    server.look(0);
    assert_eq!((server.clients(), store.views()), (1, 1));
    server.now_ms += 2_000;
    server.look(0);
    assert_eq!((server.clients(), store.views()), (0, 0));
}

/// Between the I/O pool, which has made a reply, and the event loop, which has not taken it yet, it counts as well.
#[test]
fn a_reply_on_its_way_to_its_event_loop_counts() {
    const KEYS: usize = 40;
    let mut server = Server::new();
    for n in 0..KEYS {
        assert_eq!(server.ask(0, &format!("SET {n:0>10000} v")), "+OK");
    }
    let counted = |server: &mut Server| server.info(1, "mem_clients_normal").parse::<usize>().expect("a number");
    server.freeze();
    let before = counted(&mut server);
    server.send(0, "KEYS *");
    assert!(server.waits(0), "it runs on the pool");
    let mut most = 0;
    while server.waits(0) {
        server.receive_after(|server| most = most.max(counted(server)));
    }
    assert!(most > before + KEYS * 10_000, "the reply counts as {most} bytes");
    assert!(server.reply(0).len() > KEYS * 10_000);
}

/// A long reply holds handles of all rows that it is going to send: a client that goes leaves them to the pool.
#[test]
fn the_rest_of_a_long_reply_is_freed_on_the_pool() {
    let mut server = Server::new();
    let element = "x".repeat(10_000);
    for _ in 0..60 {
        let elements = [element.as_str(); 10].join(" ");
        server.ask(0, &format!("RPUSH list {elements}"));
    }
    let store = server.store.store.clone();
    server.send(0, "LRANGE list 0 -1");
    while !server.reply_begun(0) {}
    assert_eq!(store.views(), 1);
    server.leave(0);
    assert_eq!(store.views(), 1, "its event loop frees none");
    server.worker.start_jobs();
    let begun = Instant::now();
    while store.views() > 0 {
        assert!(begun.elapsed() < PATIENCE, "what a client leaves is freed");
        std::thread::yield_now();
    }
}
