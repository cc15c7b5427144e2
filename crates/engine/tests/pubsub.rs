//! Publish and subscribe, MONITOR and what clients do to each other, without sockets: `client: command => all that it
//! gets`.

mod server;

use server::{Server, check, check_on};

#[test]
fn a_message_reaches_those_who_are_subscribed() {
    check(
        "by name, by pattern, by both, and in the order of the connection",
        "
        0: SUBSCRIBE news sport => *3 $9 subscribe $4 news :1 *3 $9 subscribe $5 sport :2
        1: PSUBSCRIBE n* ne[v-x]s => *3 $10 psubscribe $2 n* :1 *3 $10 psubscribe $8 ne[v-x]s :2
        1: SUBSCRIBE news => *3 $9 subscribe $4 news :3
        2: PUBLISH news hello => :4
        0: PING => *3 $7 message $4 news $5 hello *2 $4 pong $0
        2: PUBLISH weather rain => :0
        2: PUBLISH sport goal => :1
        0: PING text => *3 $7 message $5 sport $4 goal *2 $4 pong $4 text
        0: UNSUBSCRIBE news => *3 $11 unsubscribe $4 news :1
        2: PUBLISH news again => :3
        0: PING => *2 $4 pong $0
        ",
    );
}

#[test]
fn the_order_of_copies_is_the_channel_first() {
    let mut server = Server::new();
    check_on(
        &mut server,
        "one client, its name and one pattern",
        "
        0: SUBSCRIBE news => *3 $9 subscribe $4 news :1
        0: PSUBSCRIBE n* => *3 $10 psubscribe $2 n* :2
        1: PUBLISH news hello => :2
        0: PING => *3 $7 message $4 news $5 hello *4 $8 pmessage $2 n* $4 news $5 hello *2 $4 pong $0
        ",
    );
    server.leave(0);
    check_on(&mut server, "who has gone gets nothing", "0: PUBLISH news hello => :0\n0: PUBSUB NUMPAT => :0");
}

#[test]
fn shard_channels_are_a_world_of_their_own() {
    check(
        "counted and published by themselves",
        "
        0: SUBSCRIBE a => *3 $9 subscribe $1 a :1
        0: SSUBSCRIBE a b => *3 $10 ssubscribe $1 a :1 *3 $10 ssubscribe $1 b :2
        1: SPUBLISH a x => :1
        0: PING => *3 $8 smessage $1 a $1 x *2 $4 pong $0
        1: PUBSUB SHARDNUMSUB a b c => *6 $1 a :1 $1 b :1 $1 c :0
        1: PUBSUB SHARDCHANNELS b => *1 $1 b
        1: PUBSUB CHANNELS => *1 $1 a
        1: PUBSUB NUMSUB a b => *4 $1 a :1 $1 b :0
        0: SUNSUBSCRIBE => *3 $12 sunsubscribe $1 a :1 *3 $12 sunsubscribe $1 b :0
        0: SUNSUBSCRIBE => *3 $12 sunsubscribe $-1 :0
        0: PUNSUBSCRIBE => *3 $12 punsubscribe $-1 :1
        0: UNSUBSCRIBE => *3 $11 unsubscribe $1 a :0
        0: GET a => $-1
        ",
    );
}

#[test]
fn a_resp2_subscriber_may_do_little_else() {
    let denied = "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
                  context";
    check(
        "until it has no subscription left, or resets",
        &format!(
            "
            0: SUBSCRIBE a => *3 $9 subscribe $1 a :1
            0: GET k => {denied}
            0: CLIENT LIST => {}
            0: SLOWLOG RESET => {}
            0: RESET => +RESET
            0: GET k => $-1
            1: PUBLISH a x => :0
            ",
            denied.replace("'get'", "'client|list'"),
            denied.replace("'get'", "'slowlog|reset'")
        ),
    );
}

#[test]
fn resp3_pushes_come_after_the_reply_that_caused_them() {
    let mut server = Server::new();
    server.ask(0, "HELLO 3");
    check_on(
        &mut server,
        "its own message, and those of others",
        "
        0: SUBSCRIBE a => >3 $9 subscribe $1 a :1
        0: PUBLISH a x => :1 >3 $7 message $1 a $1 x
        0: SET k v => +OK
        1: PUBLISH a y => :1
        0: GET k => >3 $7 message $1 a $1 y $1 v
        ",
    );
    // In a pipeline, too.
    server.send_together(0, &["PUBLISH a 1", "GET k", "PUBLISH a 2", "PING"]);
    assert_eq!(
        server.reply(0),
        ":1 >3 $7 message $1 a $1 1 $1 v :1 >3 $7 message $1 a $1 2 +PONG",
        "each message comes before the next reply"
    );
}

#[test]
fn a_transaction_publishes_when_it_has_taken_effect() {
    let mut server = Server::new();
    server.ask(1, "SUBSCRIBE a");
    check_on(
        &mut server,
        "nothing before EXEC, and nothing of what is discarded",
        "
        0: MULTI => +OK
        0: PUBLISH a x => +QUEUED
        1: PING => *2 $4 pong $0
        0: DISCARD => +OK
        0: MULTI => +OK
        0: PUBLISH a y => +QUEUED
        0: SET k v => +QUEUED
        0: EXEC => *2 :1 +OK
        1: PING => *3 $7 message $1 a $1 y *2 $4 pong $0
        ",
    );
    server.ask(0, "SET cold value");
    server.freeze();
    check_on(
        &mut server,
        "a block that needs the disk runs more than once and publishes once",
        "
        0: MULTI => +OK
        0: PUBLISH a z => +QUEUED
        0: GET cold => +QUEUED
        0: SUBSCRIBE own => +QUEUED
        0: PUBLISH own mine => +QUEUED
        0: EXEC => *4 :1 $5 value *3 $9 subscribe $3 own :1 :1 *3 $7 message $3 own $4 mine
        1: PING => *3 $7 message $1 a $1 z *2 $4 pong $0
        ",
    );
}

/// Nobody may hear of what a power loss could take back.
#[test]
fn what_a_transaction_publishes_waits_for_its_record() {
    let mut server = Server::new();
    server.ask(1, "SUBSCRIBE a");
    server.ask(0, "SET cold value");
    let last = |server: &Server| server.store.store.log().last();
    for block in [
        &["SET k v", "PUBLISH a inline"][..],
        &["PUBLISH a first", "SET k w"],
        &["GET cold", "PUBLISH a pool", "INCR n"],
    ] {
        server.freeze();
        let before = last(&server);
        server.ask(0, "MULTI");
        block.iter().for_each(|command| assert_eq!(server.ask(0, command), "+QUEUED"));
        server.ask(0, "EXEC");
        server.reply(1);
        assert!(last(&server) > before);
        assert_eq!(server.heard_gate(1), last(&server), "{block:?}");
    }
    // The gate counts also for what a block has only read.
    server.ask(0, "SET k x");
    server.ask(0, "MULTI");
    server.ask(0, "GET k");
    server.ask(0, "PUBLISH a read");
    server.ask(0, "EXEC");
    server.reply(1);
    assert_eq!(server.heard_gate(1), last(&server));
}

#[test]
fn monitor_shows_commands_before_they_run() {
    let mut server = Server::new();
    server.ask(1, "SELECT 3");
    assert_eq!(server.ask(0, "MONITOR"), "+OK");
    server.ask(1, "SET k v");
    server.ask(1, "CONFIG GET maxmemory");
    server.ask(1, "AUTH user secret");
    server.send_words(1, &[b"ECHO", b"\"\r\n\x00"]);
    server.reply(1);
    for command in ["MULTI", "GET k", "EXEC", "NOSUCH"] {
        server.ask(1, command);
    }
    let shown = server.ask(0, "PING");
    let commands: Vec<&str> =
        shown.split('+').filter_map(|line| line.trim_end().split_once("] ")).map(|(_, c)| c).collect();
    let expected = [
        "\"SET\" \"k\" \"v\"",
        "\"AUTH\" \"(redacted)\" \"(redacted)\"",
        "\"ECHO\" \"\\\"\\r\\n\\x00\"",
        "\"MULTI\"",
        "\"GET\" \"k\"",
        "\"EXEC\"",
        "\"PING\"",
    ];
    assert_eq!(commands, expected, "administration and what is no command are not shown");
    assert!(shown.contains("[3 client:1] "), "{shown}");
    check_on(
        &mut server,
        "what a client in MONITOR gets, as in Redis",
        "
        0: MONITOR =>
        0: GET k => -ERR Replica can't interact with the keyspace
        0: PUBLISH a b => -ERR Replica can't interact with the keyspace
        2: MULTI => +OK
        2: MONITOR => +QUEUED
        2: EXEC => *1 -ERR MONITOR isn't allowed for DENY BLOCKING client
        ",
    );
    server.ask(0, "RESET");
    assert_eq!(server.ask(0, "MONITOR"), "+OK");
    server.ask(1, "CLIENT PAUSE 60000");
    assert!(server.ask(0, "ECHO on").contains("$2 on"), "no pause holds it");
    assert_eq!(server.ask(0, "CLIENT UNPAUSE"), "+OK");
    assert_eq!(server.ask(0, "RESET"), "+RESET");
    server.ask(1, "GET k");
    assert_eq!(server.ask(0, "PING"), "+PONG");
}

#[test]
fn clients_are_listed_and_closed() {
    let mut server = Server::new();
    server.ask(0, "CLIENT SETNAME one");
    server.ask(1, "SELECT 2");
    server.ask(1, "MULTI");
    server.ask(1, "GET k");
    server.ask(2, "SUBSCRIBE a b");
    server.ask(2, "PSUBSCRIBE c*");
    let list = server.ask(0, "CLIENT LIST");
    let lines: Vec<&str> = list.split("id=").skip(1).collect();
    assert_eq!(lines.len(), 3, "{list}");
    let has =
        |line: &str, fields: &[&str]| fields.iter().for_each(|field| assert!(line.contains(field), "{field}: {line}"));
    has(
        lines[0],
        &["addr=client:0 ", " name=one ", " flags=N ", " db=0 ", " cmd=client|list ", " user=default ", " resp=2 "],
    );
    has(lines[1], &[" flags=x ", " db=2 ", " multi=1 ", " cmd=get "]);
    has(lines[2], &[" flags=P ", " sub=2 psub=1 ssub=0 ", " cmd=psubscribe "]);
    assert_eq!(server.ask(0, "CLIENT LIST TYPE pubsub").matches("id=").count(), 1);
    assert_eq!(server.ask(0, "CLIENT LIST ID 2 99 1").matches("id=").count(), 2);
    assert_eq!(server.ask(0, "CLIENT KILL TYPE pubsub"), ":1");
    assert!(
        server.is_closed(2) || {
            server.ask(0, "PING");
            server.is_closed(2)
        }
    );
    assert_eq!(server.ask(0, "CLIENT KILL client:9"), "-ERR No such client");
    assert_eq!(server.ask(0, "CLIENT KILL ADDR client:1 SKIPME no"), ":1");
    assert_eq!(server.ask(0, "CLIENT KILL USER default"), ":0", "who is closed is not found again");
    assert_eq!(server.ask(0, "CLIENT LIST").matches("id=").count(), 1);
    assert_eq!(server.ask(0, "CLIENT KILL client:0"), "+OK");
    assert!(server.is_closed(0), "after its reply");
}

#[test]
fn many_channels_are_listed_elsewhere() {
    let mut server = Server::new();
    let names: Vec<String> = (0..5000).map(|number| format!("channel:{number}")).collect();
    server.ask(0, &format!("SUBSCRIBE {}", names.join(" ")));
    assert!(server.ask(1, "PUBSUB CHANNELS").starts_with("*5000 "));
    assert_eq!(server.ask(1, "PUBSUB CHANNELS channel:777"), "*1 $11 channel:777");
    assert_eq!(server.info(1, "commands_on_io_pool"), "2");
}

#[test]
fn many_clients_are_listed_elsewhere() {
    let mut server = Server::new();
    for client in 0..300 {
        server.ask(client, "PING");
    }
    assert_eq!(server.ask(7, "CLIENT LIST").matches("id=").count(), 300);
    assert_eq!(server.info(7, "commands_on_io_pool"), "1");
    server.ask(7, "MULTI");
    server.ask(7, "CLIENT SETNAME seven");
    server.ask(7, "CLIENT LIST");
    let replies = server.ask(7, "EXEC");
    assert!(replies.starts_with("*2 +OK") && replies.contains(" name=seven "), "{}", &replies[..200]);
    assert_eq!(server.ask(7, "CLIENT LIST ID 1 2").matches("id=").count(), 2);
}

#[test]
fn what_a_block_does_to_other_clients_happens_once() {
    let mut server = Server::new();
    check_on(&mut server, "somebody to close, somebody to let go", "0: SET k v => +OK\n1: PING => +PONG");
    server.send(2, "WAIT 1 0");
    assert!(server.waits(2));
    // The block runs a first time before it finds that a row is on disk.
    server.freeze();
    server.send_together(0, &["MULTI", "CLIENT KILL ID 2", "CLIENT KILL ID 2", "CLIENT UNBLOCK 3 ERROR", "GET k"]);
    assert!(!server.is_closed(1));
    server.reply(0);
    assert_eq!(server.ask(0, "EXEC"), "*4 :1 :0 :1 $1 v");
    server.ask(0, "PING");
    assert!(server.is_closed(1));
    assert_eq!(server.reply(2), "-UNBLOCKED client unblocked via CLIENT UNBLOCK");
}

#[test]
fn a_pause_holds_what_it_says_and_no_longer() {
    let mut server = Server::new();
    assert_eq!(server.ask(0, "CLIENT PAUSE 60000 WRITE"), "+OK");
    assert_eq!(server.ask(1, "GET k"), "$-1");
    server.send_together(1, &["SET k v", "GET k"]);
    server.send(2, "MULTI");
    server.send(2, "PUBLISH a b");
    assert!(server.waits(1) && server.waits(2));
    assert_eq!(server.ask(0, "GET k"), "$-1");
    assert_eq!(server.ask(0, "CLIENT UNPAUSE"), "+OK");
    assert_eq!(server.reply(2), "+OK +QUEUED");
    assert_eq!(server.reply(1), "+OK $1 v");
    assert_eq!(server.ask(0, "CLIENT PAUSE 50"), "+OK");
    server.send(1, "PING");
    assert!(server.waits(1));
    // The pause counts from the real time, which may be later than the test's.
    server.now_ms += 60_000;
    assert_eq!(server.ask(0, "PING"), "+PONG", "it is over");
}

#[test]
fn replies_are_off_or_skipped() {
    check(
        "ON alone answers",
        "
        0: CLIENT REPLY SKIP =>
        0: SET a b =>
        0: GET a => $1 b
        0: CLIENT REPLY OFF =>
        0: GET a =>
        0: CLIENT REPLY SKIP =>
        0: GET a =>
        0: CLIENT REPLY ON => +OK
        0: GET a => $1 b
        ",
    );
    check(
        "but pushes are no replies",
        "
        0: CLIENT REPLY OFF =>
        0: SUBSCRIBE a b => *3 $9 subscribe $1 a :1 *3 $9 subscribe $1 b :2
        1: PUBLISH a x => :1
        0: PING => *3 $7 message $1 a $1 x
        ",
    );
}

#[test]
fn reset_makes_a_connection_new() {
    let mut server = Server::new();
    for command in ["HELLO 3 SETNAME me", "SELECT 5", "WATCH k", "SUBSCRIBE a", "CLIENT REPLY OFF", "MULTI", "SET k v"]
    {
        server.ask(0, command);
    }
    assert_eq!(server.ask(0, "RESET"), "+RESET");
    assert_eq!(server.ask(0, "CLIENT GETNAME"), "$-1", "and RESP2");
    assert_eq!(server.ask(0, "EXEC"), "-ERR EXEC without MULTI");
    let info = server.ask(0, "CLIENT INFO");
    assert!(info.contains(" db=0 ") && info.contains(" flags=N "), "{info}");
    assert_eq!(server.ask(1, "PUBLISH a x"), ":0");
}

#[test]
fn a_password_is_asked_for() {
    let mut server = Server::new();
    assert!(server.ask(0, "AUTH secret").starts_with("-ERR AUTH <password> called without any password configured"));
    assert_eq!(server.ask(0, "AUTH default whatever"), "+OK");
    assert_eq!(server.ask(0, "CONFIG SET requirepass secret"), "+OK");
    let refused = "-NOAUTH Authentication required.";
    check_on(
        &mut server,
        "who was there before stays; others have to give it",
        &format!(
            "
            0: GET k => $-1
            1: GET k => {refused}
            1: MULTI => {refused}
            1: NOSUCH => -ERR unknown command 'NOSUCH', with args beginning with:
            1: AUTH wrong => -WRONGPASS invalid username-password pair or user is disabled.
            1: AUTH nobody secret => -WRONGPASS invalid username-password pair or user is disabled.
            1: AUTH a b c => -ERR syntax error
            1: QUIT => +OK
            2: AUTH secret => +OK
            2: GET k => $-1
            2: RESET => +RESET
            2: GET k => {refused}
            3: HELLO 3 AUTH default secret SETNAME me => %7 $6 server $5 redis $7 version $5 7.4.0 $5 proto :3 $2 id :4 $4 mode $10 standalone $4 role $6 master $7 modules *0
            "
        ),
    );
    assert_eq!(server.ask(4, "GET k"), refused);
    server.send_words(0, &[b"CONFIG", b"SET", b"requirepass", b""]);
    assert_eq!(server.ask(4, "GET k"), "$-1", "a password that is taken away is not asked for any more");
    server.ask(0, "CONFIG SET requirepass secret");
    assert_eq!(server.ask(4, "GET k"), refused);
    let large = "x".repeat(20_000);
    server.send_words(2, &[b"AUTH", large.as_bytes()]);
    assert!(server.reply_so_far(2).starts_with("-ERR Protocol error: unauthenticated bulk length"));
}

#[test]
fn a_block_that_is_refused_at_its_end_says_so() {
    let mut server = Server::new();
    server.ask(0, "SUBSCRIBE news");
    let text = server.ask(0, "EXEC");
    assert!(
        text.starts_with("-EXECABORT Transaction discarded because of: Can't execute 'exec': only (P|S)SUBSCRIBE"),
        "{text}"
    );
    server.ask(1, "MULTI");
    server.ask(1, "SSUBSCRIBE news");
    assert!(server.ask(1, "EXEC").contains("-ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
}

#[test]
fn a_client_in_monitor_keeps_away_from_keys() {
    let mut server = Server::new();
    server.ask(0, "MONITOR");
    assert!(server.ask(0, "GET k").contains("-ERR Replica can't interact with the keyspace"));
    assert!(server.ask(0, "PUBLISH a b").contains("-ERR Replica can't interact with the keyspace"));
    server.ask(1, "SELECT 3");
    let heard = server.ask(0, "PING");
    assert!(heard.contains("[3 ") && heard.contains("\"SELECT\" \"3\""), "the database that it has chosen: {heard}");
}

#[test]
fn who_subscribes_does_not_hear_what_was_told_before() {
    let mut server = Server::new();
    server.ask(1, "PSUBSCRIBE n*");
    server.ask(0, "HELLO 3");
    server.send_together(0, &["PUBLISH news 1", "PSUBSCRIBE n*", "PUBLISH news 2"]);
    let replies = server.reply(0) + &server.ask(0, "PING");
    assert!(!replies.contains("$1 1"), "{replies}");
    assert!(replies.contains("$1 2"), "{replies}");
}

#[test]
fn what_takes_long_to_match_is_left_to_the_pool() {
    let mut server = Server::new();
    // A class between stars can only be looked for byte by byte.
    for first in (0..3000).step_by(100) {
        let patterns: String = (first..first + 100).map(|number| format!(" *a[bc]{number}*")).collect();
        server.ask(0, &format!("PSUBSCRIBE{patterns}"));
    }
    server.ask(0, "PSUBSCRIBE *ab");
    let channel = "ab".repeat(1000);
    server.send(1, &format!("PUBLISH {channel} 1"));
    assert!(server.waits(1), "an event loop does not match so much");
    // The messages of one client are heard in the order in which it has sent them, however long each took.
    server.send(1, "PUBLISH xab 2");
    assert_eq!(server.reply(1), ":1 :1");
    let heard = server.reply(0);
    let (one, two) = (heard.find(" $1 1"), heard.find("$3 xab $1 2"));
    assert!(one.is_some() && one < two, "{heard}");
    // In a block, too.
    server.ask(1, "MULTI");
    server.ask(1, &format!("PUBLISH {channel} 3"));
    server.ask(1, "PUBLISH xab 4");
    assert_eq!(server.ask(1, "EXEC"), "*2 :1 :1");
    let heard = server.reply(0);
    assert!(heard.find(" $1 3").is_some_and(|one| Some(one) < heard.find("$3 xab $1 4")), "{heard}");
    // Who has begun and not ended a wait for the pool is no reason for others to wait.
    server.send(1, &format!("PUBLISH {channel} 5"));
    assert_eq!(server.ask(2, "PUBLISH xab 6"), ":1");
    assert_eq!(server.reply(1), ":1");
}

/// Events are told by the run that makes them, under the locks of its keys: where matching them takes long, that is no
/// run of an event loop.
#[test]
fn a_change_that_takes_long_to_tell_is_left_to_the_pool() {
    let mut server = Server::new();
    assert_eq!(server.ask(1, "CONFIG SET notify-keyspace-events KA"), "+OK");
    let name = "ab".repeat(1000);
    server.ask(1, "SET short 1");
    for first in (0..3000).step_by(100) {
        let patterns: String = (first..first + 100).map(|number| format!(" *a[bc]{number}*")).collect();
        server.ask(0, &format!("PSUBSCRIBE{patterns}"));
    }
    server.ask(0, "PSUBSCRIBE *ab");
    for (command, reply) in [("SET", "+OK"), ("EXISTS", ":1"), ("APPEND", ":2"), ("PEXPIRE", ":1")] {
        server.send(1, &format!("{command} {name} 1"));
        let waits = command != "EXISTS";
        assert_eq!(server.waits(1), waits, "{command}: only what tells something takes long");
        assert_eq!(server.ask(2, "GET short"), "$1 1", "nobody else waits");
        assert_eq!(server.reply(1), reply, "{command}");
        let heard = server.ask(0, "PING");
        assert_eq!(heard.contains(&format!("__keyspace@0__:{name}")), waits, "{command}");
    }
    // In a block, too.
    server.ask(1, "MULTI");
    server.ask(1, &format!("SET {name} 1 PX 50"));
    server.ask(1, "SET short 2");
    server.send(1, "EXEC");
    assert!(server.waits(1));
    assert_eq!(server.reply(1), "*2 +OK +OK");
    assert_eq!(server.info(1, "commands_on_io_pool"), "4");
}
