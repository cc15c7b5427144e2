//! Client-side caching: who is told of which key, and where among the replies. The crate's own tests have the table of
//! keys; `diff` compares modes and options with redis-server.
#![cfg(not(feature = "shuttle"))]

mod server;

use server::{Data, Server, check_on};

/// Returns the message about one key.
fn invalidated(key: &str) -> String {
    format!(">2 $10 invalidate *1 ${} {key}", key.len())
}

/// The message that all keys have changed.
const ALL: &str = ">2 $10 invalidate _";

/// Returns what CLIENT TRACKINGINFO says of a client in RESP3 that hears itself.
fn tracking_info(flags: &str) -> String {
    format!("%3 $5 flags {flags} $8 redirect :0 $8 prefixes *0")
}

/// A server with a client in RESP3 that tracks, and a key.
fn tracking(options: &str) -> Server {
    let mut server = Server::new();
    server.ask(0, "SET k v");
    server.ask(1, "HELLO 3");
    assert_eq!(server.ask(1, &format!("CLIENT TRACKING ON{options}")), "+OK");
    server
}

#[test]
fn a_client_is_told_once_of_what_it_has_read() {
    let mut server = tracking("");
    let heard = invalidated("k");
    check_on(
        &mut server,
        "by others, by itself, and in a pipeline",
        &format!(
            "
            0: SET k w => +OK
            1: PING => +PONG
            1: GET k => $1 w
            0: SET k x => +OK
            1: PING => {heard} +PONG
            0: SET k y => +OK
            1: PING => +PONG
            1: MGET k m => *2 $1 y _
            1: SET k z => +OK {heard}
            0: HSET m a 1 => :1
            1: PING => >2 $10 invalidate *1 $1 m +PONG
            1: HGET m a => $1 1
            0: HSET m a 2 => :0
            1: PING => >2 $10 invalidate *1 $1 m +PONG
            "
        ),
    );
    server.send_together(1, &["GET k", "SET k 1", "GET k"]);
    assert_eq!(
        server.reply(1),
        format!("$1 z +OK {heard} $1 1"),
        "each message stands behind the reply of its command"
    );
    assert_eq!(server.ask(0, "CLIENT TRACKING ON"), "+OK");
    assert_eq!(server.info(0, "tracking_clients"), "2");
    assert_eq!(server.info(0, "tracking_total_keys"), "1");
    server.leave(1);
    assert_eq!(server.info(0, "tracking_clients"), "1");
    assert_eq!(server.ask(0, "SET k 2"), "+OK", "nobody is there who could be told");
    assert_eq!(server.info(0, "tracking_total_keys"), "0");
}

#[test]
fn a_read_of_before_tracking_was_ended_is_told_once() {
    let mut server = tracking("");
    let heard = invalidated("k");
    for _ in 0..100 {
        server.ask(1, "GET other");
    }
    check_on(
        &mut server,
        "off and on, one by one and in a block",
        &format!(
            "
            1: GET k => $1 v
            1: CLIENT TRACKING OFF => +OK
            1: CLIENT TRACKING ON => +OK
            0: SET k 1 => +OK
            1: PING => {heard} +PONG
            0: SET k 2 => +OK
            1: PING => +PONG
            1: GET k => $1 2
            1: MULTI => +OK
            1: CLIENT TRACKING OFF => +QUEUED
            1: CLIENT TRACKING ON => +QUEUED
            1: EXEC => *2 +OK +OK {ALL}
            1: PING => +PONG
            0: SET k 3 => +OK
            1: PING => {heard} +PONG
            0: SET k 4 => +OK
            1: PING => +PONG
            "
        ),
    );
}

#[test]
fn whatever_changes_a_key_is_told() {
    let heard = invalidated("k");
    let all_ways = [
        ("EVAL return␣redis.call('set','k','1') 0", heard.as_str()),
        ("RENAME k other", heard.as_str()),
        ("DEL k", heard.as_str()),
        ("EXPIRE k 100", heard.as_str()),
        ("MOVE k 3", heard.as_str()),
        ("FLUSHALL", ALL),
        ("FLUSHDB", ALL),
        ("SWAPDB 0 1", ALL),
    ];
    for (way, expected) in all_ways {
        let mut server = tracking("");
        assert_eq!(server.ask(1, "GET k"), "$1 v", "{way}");
        let reply = server.ask(0, way);
        assert!(!reply.starts_with('-'), "{way}: {reply}");
        assert_eq!(server.ask(1, "PING"), format!("{expected} +PONG"), "{way}");
        assert_eq!(server.info(0, "tracking_total_keys"), "0", "{way}");
    }
    let mut server = tracking("");
    server.ask(0, "SET k v PX 100");
    assert_eq!(server.ask(1, "GET k"), "$1 v");
    server.now_ms += 200;
    server.worker.expire(server.now_ms);
    assert_eq!(server.ask(1, "PING"), format!("{heard} +PONG"), "a key that expires");
    let mut server = tracking("");
    server.ask(1, "LRANGE list 0 -1");
    server.send(2, "BLPOP list 0");
    assert_eq!(server.ask(0, "RPUSH list x"), ":1");
    assert_eq!(server.ask(1, "PING"), format!("{} +PONG", invalidated("list")), "a key that came and went at once");
}

#[test]
fn calls_of_a_script_and_of_a_block_are_reads_of_their_client() {
    let heard = invalidated("k");
    let mut server = tracking("");
    check_on(
        &mut server,
        "each call by itself",
        &format!(
            "
            1: EVAL redis.call('get','k')return␣1 1 other => :1
            0: SET other 1 => +OK
            1: PING => +PONG
            0: SET k 1 => +OK
            1: PING => {heard} +PONG
            1: MULTI => +OK
            1: GET k => +QUEUED
            0: SET k 2 => +OK
            1: EXEC => *1 $1 2
            0: SET k 3 => +OK
            1: PING => {heard} +PONG
            1: MULTI => +OK
            1: GET k => +QUEUED
            1: SET k 4 => +QUEUED
            1: GET k => +QUEUED
            1: EXEC => *3 $1 3 +OK $1 4 {heard}
            1: CLIENT TRACKING OFF => +OK
            1: MULTI => +OK
            1: CLIENT TRACKING ON => +QUEUED
            1: GET k => +QUEUED
            1: EXEC => *2 +OK $1 4 {ALL}
            0: SET k 5 => +OK
            1: PING => {heard} +PONG
            "
        ),
    );
}

#[test]
fn clients_say_which_commands_they_keep() {
    let heard = invalidated("k");
    let mut server = tracking(" OPTIN");
    check_on(
        &mut server,
        "only those that were announced",
        &format!(
            "
            1: GET k => $1 v
            1: CLIENT CACHING YES => +OK
            1: CLIENT GETNAME => _
            1: GET k => $1 v
            1: GET other => _
            0: MSET k 1 other 1 => +OK
            1: PING => {heard} +PONG
            1: CLIENT CACHING YES => +OK
            1: MULTI => +OK
            1: GET k => +QUEUED
            1: EXEC => *1 $1 1
            1: GET other => $1 1
            0: MSET k 2 other 2 => +OK
            1: PING => {heard} +PONG
            1: CLIENT CACHING YES => +OK
            1: GET => -ERR wrong number of arguments for 'get' command
            1: GET k => $1 2
            0: SET k 3 => +OK
            1: PING => +PONG
            "
        ),
    );
    let mut server = tracking(" OPTOUT");
    check_on(
        &mut server,
        "all but those that were announced",
        &format!(
            "
            1: CLIENT CACHING NO => +OK
            1: GET other => _
            1: GET k => $1 v
            0: MSET k 1 other 1 => +OK
            1: PING => {heard} +PONG
            "
        ),
    );
    let mut server = Server::new();
    server.ask(1, "HELLO 3");
    check_on(
        &mut server,
        "all keys with a prefix, whoever has read them",
        "
        1: CLIENT TRACKING ON BCAST PREFIX user: PREFIX a NOLOOP => +OK
        0: MSET user:1 x a1 x other x => +OK
        1: PING => >2 $10 invalidate *2 $6 user:1 $2 a1 +PONG
        1: SET user:1 y => +OK
        0: FLUSHALL => +OK
        1: PING => >2 $10 invalidate _ +PONG
        ",
    );
}

#[test]
fn what_a_client_says_of_its_next_command_holds_to_the_end_of_a_block() {
    let heard = ["a", "b", "c", "k"].map(invalidated);
    let [a, b, c, k] = &heard;
    let (set, unset) = (tracking_info("~3 $2 on $5 optin $11 caching-yes"), tracking_info("~2 $2 on $5 optin"));
    let mut server = tracking(" OPTIN");
    check_on(
        &mut server,
        "whether it was said before the block or in it",
        &format!(
            "
            1: MULTI => +OK
            1: GET b => +QUEUED
            1: CLIENT CACHING YES => +QUEUED
            1: GET a => +QUEUED
            1: GET c => +QUEUED
            1: CLIENT TRACKINGINFO => +QUEUED
            1: EXEC => *5 _ +OK _ _ {set}
            1: CLIENT TRACKINGINFO => {unset}
            1: GET k => $1 v
            0: MSET a 3 b 3 c 3 k 3 => +OK
            1: PING => {a} {c} +PONG
            1: CLIENT CACHING YES => +OK
            1: MULTI => +OK
            1: WATCH k => -ERR WATCH inside MULTI is not allowed
            1: CLIENT TRACKINGINFO => +QUEUED
            1: GET k => +QUEUED
            1: EXEC => *2 {set} $1 3
            0: SET k 4 => +OK
            1: PING => {k} +PONG
            1: CLIENT CACHING YES => +OK
            1: MULTI => +OK
            1: MULTI => -ERR MULTI calls can not be nested
            1: DISCARD => +OK
            1: CLIENT TRACKINGINFO => {unset}
            "
        ),
    );
    let mut server = tracking(" OPTOUT");
    check_on(
        &mut server,
        "what is not to be kept",
        &format!(
            "
            1: MULTI => +OK
            1: GET b => +QUEUED
            1: CLIENT CACHING NO => +QUEUED
            1: GET a => +QUEUED
            1: EXEC => *3 _ +OK _
            0: MSET a 3 b 3 => +OK
            1: PING => {b} +PONG
            "
        ),
    );
}

#[test]
fn what_a_client_says_of_its_next_command_outlives_a_subcommand_of_client_that_fails() {
    let (set, unset) = (tracking_info("~3 $2 on $5 optin $11 caching-yes"), tracking_info("~2 $2 on $5 optin"));
    let mut server = tracking(" OPTIN");
    for (command, reply, expected) in [
        ("CLIENT CACHING", "-ERR wrong number of arguments for 'client|caching' command", &set),
        ("CLIENT CACHING MAYBE", "-ERR syntax error", &set),
        ("CLIENT", "-ERR wrong number of arguments for 'client' command", &unset),
        ("CLIENT NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP.", &unset),
        ("MULTI x", "-ERR wrong number of arguments for 'multi' command", &unset),
    ] {
        assert_eq!(server.ask(1, "CLIENT CACHING YES"), "+OK");
        assert_eq!(server.ask(1, command), reply);
        assert_eq!(server.ask(1, "CLIENT TRACKINGINFO"), *expected, "{command}");
    }
    check_on(
        &mut server,
        "an EXEC that is none ends the block",
        &format!(
            "
            1: CLIENT CACHING YES => +OK
            1: MULTI => +OK
            1: EXEC x => -EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command
            1: CLIENT TRACKINGINFO => {unset}
            "
        ),
    );
}

#[test]
fn in_resp2_another_client_hears() {
    let mut server = Server::new();
    check_on(
        &mut server,
        "as of a channel",
        "
        0: SET k v => +OK
        2: PING => +PONG
        1: CLIENT TRACKING ON REDIRECT 3 => +OK
        1: CLIENT GETREDIR => :3
        1: GET k => $1 v
        0: SET k w => +OK
        2: PING => +PONG
        2: SUBSCRIBE __redis__:invalidate => *3 $9 subscribe $20 __redis__:invalidate :1
        1: GET k => $1 w
        0: SET k x => +OK
        2: PING => *3 $7 message $20 __redis__:invalidate *1 $1 k *2 $4 pong $0
        0: FLUSHALL => +OK
        2: PING => *3 $7 message $20 __redis__:invalidate $-1 *2 $4 pong $0
        1: CLIENT TRACKINGINFO => *6 $5 flags *1 $2 on $8 redirect :3 $8 prefixes *0
        1: GET k => $-1
        ",
    );
    let line = server.ask(1, "CLIENT INFO");
    assert!(line.contains(" flags=t ") && line.contains(" redir=3 "), "{line}");
    server.leave(2);
    check_on(
        &mut server,
        "until it goes",
        "
        0: SET k y => +OK
        1: CLIENT TRACKINGINFO => *6 $5 flags *2 $2 on $15 broken_redirect $8 redirect :3 $8 prefixes *0
        ",
    );
    server.ask(1, "HELLO 3");
    check_on(
        &mut server,
        "which is told in RESP3",
        "
        1: GET k => $1 y
        0: SET k z => +OK
        1: PING => >2 $21 tracking-redir-broken :3 +PONG
        1: CLIENT TRACKING OFF => +OK
        1: CLIENT TRACKING ON => +OK
        1: CLIENT TRACKINGINFO => %3 $5 flags ~1 $2 on $8 redirect :0 $8 prefixes *0
        ",
    );
}

#[test]
fn a_message_does_not_overtake_the_reply_that_it_is_about() {
    let heard = invalidated("k");
    let mut server = tracking("");
    server.freeze();
    server.store.faults.hold_gets(true);
    server.send(1, "GET k");
    server.store.faults.wait_for_held_gets(1);
    // A write that reads nothing is not held.
    assert_eq!(server.ask(0, "SET k w"), "+OK");
    assert_eq!(server.reply_of_what_ran(1), "", "its reply may be of before");
    server.store.faults.hold_gets(false);
    let reply = server.reply(1);
    assert!(reply.ends_with(&heard) && reply.starts_with("$1 "), "{reply}");
    assert_eq!(server.ask(0, "SET k x"), "+OK");
    assert_eq!(server.ask(1, "PING"), format!("{heard} +PONG"), "it may have read what the first message was about");
    assert_eq!(server.ask(0, "SET k y"), "+OK");
    assert_eq!(server.ask(1, "PING"), "+PONG");
}

#[test]
fn a_full_table_tells_of_keys_that_leave_it() {
    let mut server = Server::over(Data::with(|_| {}));
    server.ask(0, "CONFIG SET tracking-table-max-keys 100");
    server.ask(1, "HELLO 3");
    server.ask(1, "CLIENT TRACKING ON");
    let mut told = 0;
    for number in 0..5000 {
        told += server.ask(1, &format!("GET key:{number}")).matches("invalidate").count();
    }
    let kept: usize = server.info(0, "tracking_total_keys").parse().expect("a number");
    assert_eq!(told + kept, 5000);
    assert!(kept <= 100, "{kept}");
}

#[test]
fn a_table_whose_bound_is_lowered_tells_of_the_keys_above_it() {
    let mut server = Server::over(Data::with(|_| {}));
    server.ask(1, "HELLO 3");
    server.ask(1, "CLIENT TRACKING ON");
    for number in 0..3000 {
        server.ask(1, &format!("GET key:{number}"));
    }
    assert_eq!(server.info(0, "tracking_total_keys"), "3000");
    server.ask(0, "CONFIG SET tracking-table-max-keys 2");
    let mut told = 0;
    loop {
        let has_more = server.engine.shrink_tracking();
        told += server.ask(1, "PING").matches("invalidate").count();
        if !has_more {
            break;
        }
    }
    assert_eq!((told, server.info(0, "tracking_total_keys")), (2998, "2".to_owned()));
    for number in 0..200 {
        told += server.ask(1, &format!("GET other:{number}")).matches("invalidate").count();
    }
    told += server.ask(1, "PING").matches("invalidate").count();
    assert_eq!((told, server.info(0, "tracking_total_keys")), (3198, "2".to_owned()));
}
