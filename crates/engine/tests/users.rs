//! Users and their rights, without sockets: `client: command => all that it gets`. The crate `acl` tests what rules
//! mean; here is where calls are looked at, and what follows when rules change.

mod server;

use haypile_commands::{Begin, Find, KeySpec, Table};
use server::{Server, check, check_on};

const NO_KEY: &str = "-NOPERM No permissions to access a key";

/// Rights are not asked for where the number of keys is wrong, so such a call may do nothing.
#[test]
fn a_wrong_number_of_keys_is_refused_by_every_command_that_takes_one() {
    let (mut server, table, mut commands) = (Server::new(), Table::new(), 0);
    for (_, entry) in table.iter() {
        let count_at = |spec: &KeySpec| match (spec.begin, spec.find) {
            (Begin::Index(at), Find::KeyNum { count_at, .. }) => Some(usize::from(at) + usize::from(count_at)),
            _ => None,
        };
        let Some(at) = entry.command.keys.of_keys().iter().find_map(count_at) else { continue };
        commands += 1;
        for number in ["9", "-1", "x", "9223372036854775807"] {
            let mut words = vec!["1"; at + 3];
            (words[0], words[at]) = (&entry.full_name, number);
            let reply = server.ask(0, &words.join(" "));
            assert!(reply.starts_with('-') && !reply.contains("unknown command"), "{words:?}: {reply}");
        }
    }
    assert!(commands > 20, "{commands}");
}

#[test]
fn a_call_is_looked_at() {
    check(
        "by itself: its command, keys, channels and database",
        &format!(
            "
            0: ACL SETUSER bob on >pw ~a* %R~r* &ch* db=0,1 +@all -@dangerous => +OK
            1: AUTH bob pw => +OK
            1: ACL WHOAMI => $3 bob
            1: SET a1 x => +OK
            1: GET r1 => $-1
            1: SET r1 x => {NO_KEY}
            1: MGET a1 b1 => {NO_KEY}
            1: BITFIELD r1 GET u4 0 => *1 :0
            1: BITFIELD r1 SET u4 0 1 => {NO_KEY}
            1: EXISTS r1 a1 => :1
            1: PFMERGE b1 => {NO_KEY}
            1: EVAL return␣1 1 b1 => {NO_KEY}
            1: SINTERCARD 9 b1 => -ERR Number of keys can't be greater than number of args
            1: SINTERCARD 1x b1 => {NO_KEY}
            1: SINTERCARD 1x a1 => -ERR numkeys should be greater than 0
            1: FLUSHALL => -NOPERM User bob has no permissions to run the 'flushall' command
            1: CONFIG GET port => -NOPERM User bob has no permissions to run the 'config|get' command
            1: PUBLISH other x => -NOPERM No permissions to access a channel
            1: PUBLISH ch1 x => :0
            1: PSUBSCRIBE ch1* => -NOPERM No permissions to access a channel
            1: SELECT 2 => -NOPERM No permissions to access database
            1: MOVE a1 2 => -NOPERM No permissions to access database
            1: COPY a1 a2 DB 2 => -NOPERM No permissions to access database
            1: MOVE a1 1 => :1
            1: NOSUCH => -ERR unknown command 'NOSUCH', with args beginning with:
            1: GET => -ERR wrong number of arguments for 'get' command
            1: RESET => +RESET
            1: GET b1 => $-1
            1: ACL WHOAMI => $7 default
            "
        ),
    );
}

#[test]
fn calls_of_a_block_are_looked_at_when_it_runs_too() {
    check(
        "when it is queued, and again when it runs",
        &format!(
            "
            0: ACL SETUSER bob on nopass ~a* +@all -shutdown => +OK
            1: AUTH bob x => +OK
            1: MULTI => +OK
            1: SHUTDOWN => -ERR Command not allowed inside a transaction
            1: GET b => {NO_KEY}
            1: EXEC => -EXECABORT Transaction discarded because of previous errors.
            1: MULTI => +OK
            1: SET a 1 => +QUEUED
            1: GET a => +QUEUED
            0: ACL SETUSER bob -get => +OK
            1: EXEC => *2 +OK -NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC \
             call. This command is no longer allowed for the following reason: no permission to execute the command or \
             subcommand
            "
        ),
    );
    check(
        "of a user that changes itself in it",
        "
        0: ACL SETUSER bob on nopass ~a* &c +@all => +OK
        1: AUTH bob x => +OK
        1: MULTI => +OK
        1: ACL SETUSER bob -set => +QUEUED
        1: SET a 2 => +QUEUED
        1: ACL GETUSER bob => +QUEUED
        1: EXEC => *3 +OK -NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
         This command is no longer allowed for the following reason: no permission to execute the command or subcommand \
         *12 $5 flags *3 $2 on $6 nopass $16 sanitize-payload $9 passwords *0 $8 commands $10 +@all -set $4 keys $3 ~a* \
         $8 channels $2 &c $9 selectors *0
        1: SET a 2 => -NOPERM User bob has no permissions to run the 'set' command
        ",
    );
}

#[test]
fn calls_of_a_script_are_looked_at() {
    check(
        "those it makes, and those it only asks about",
        "
        0: ACL SETUSER bob on nopass ~a* +@all -@dangerous => +OK
        1: AUTH bob x => +OK
        1: EVAL return␣redis.call('set','a','1') 0 => +OK
        1: EVAL return␣redis.pcall('get','b') 0 => -ERR ACL failure in script: No permissions to access a key
        1: EVAL return␣redis.pcall('keys','*') 0 => -ERR ACL failure in script: User bob has no permissions to run the \
         'keys' command
        1: EVAL return␣{redis.acl_check_cmd('get','a'),redis.acl_check_cmd('get','b')} 0 => *2 :1 $-1
        1: EVAL return␣redis.acl_check_cmd('publish') 0 => :1
        1: EVAL for␣i=1,3000␣do␣redis.pcall('get','b'..i)␣end␣return␣1 0 => :1
        ",
    );
}

#[test]
fn the_keys_that_handlers_use_are_looked_at() {
    check(
        "those of options, wherever they stand",
        &format!(
            "
            0: ACL SETUSER bob on nopass ~a* ~streams +@all => +OK
            1: AUTH bob x => +OK
            1: GEOADD a 0 0 m => :1
            1: GEORADIUS a 0 0 1 km STORE a1 STORE secret => {NO_KEY}
            1: GEORADIUS a 0 0 1 km STORE secret STOREDIST a1 => :1
            1: GEORADIUSBYMEMBER a m 1 km STORE STORE => {NO_KEY}
            1: XREADGROUP NOACK GROUP g streams STREAMS secret > => {NO_KEY}
            1: XREADGROUP GROUP streams streams COUNT 1 STREAMS secret > => {NO_KEY}
            "
        ),
    );
    check(
        "those that SORT reads and does not name",
        "
        0: ACL SETUSER bob on nopass ~a* +@all => +OK
        1: AUTH bob x => +OK
        1: RPUSH a 2 1 => :2
        1: SORT a BY w* => -ERR BY option of SORT denied due to insufficient ACL permissions.
        1: SORT a GET # => -ERR GET option of SORT denied due to insufficient ACL permissions.
        1: SORT a BY nosort LIMIT 0 1 => *1 $1 2
        1: MULTI => +OK
        1: SORT a BY w* => +QUEUED
        1: EXEC => *1 -ERR BY option of SORT denied due to insufficient ACL permissions.
        1: EVAL return␣redis.pcall('sort','a','get','x*') 0 => -ERR GET option of SORT denied due to insufficient ACL \
         permissions.
        0: ACL SETUSER bob (+sort %R~*) => +OK
        1: SORT a BY w* => *2 $1 1 $1 2
        ",
    );
}

#[test]
fn a_change_of_rules_holds_for_who_is_there() {
    let mut server = Server::new();
    check_on(
        &mut server,
        "for the next call, whoever changed them",
        "
        0: ACL SETUSER bob on nopass ~* +@all => +OK
        1: AUTH bob x => +OK
        2: AUTH bob x => +OK
        2: SUBSCRIBE => -ERR wrong number of arguments for 'subscribe' command
        1: SET k v => +OK
        0: ACL SETUSER bob -set => +OK
        1: SET k w => -NOPERM User bob has no permissions to run the 'set' command
        1: ACL SETUSER bob +set -get => +OK
        1: SET k w => +OK
        2: GET k => -NOPERM User bob has no permissions to run the 'get' command
        0: ACL SETUSER bob off => +OK
        1: SET k w => +OK
        1: AUTH bob x => -WRONGPASS invalid username-password pair or user is disabled.
        0: ACL SETUSER default -get => +OK
        0: GET k => -NOPERM User default has no permissions to run the 'get' command
        3: GET k => -NOPERM User default has no permissions to run the 'get' command
        0: ACL SETUSER default +get => +OK
        3: GET k => $1 w
        ",
    );
    server.send_together(1, &["ACL SETUSER bob -set", "SET k x", "ACL SETUSER bob +set", "SET k y"]);
    let refused = "-NOPERM User bob has no permissions to run the 'set' command";
    assert_eq!(server.reply(1), format!("+OK {refused} +OK +OK"), "within one pipeline");
}

#[test]
fn who_loses_the_user_or_a_channel_is_closed() {
    let mut server = Server::new();
    check_on(
        &mut server,
        "users with channels",
        "
        0: ACL SETUSER bob on nopass &a &b* +@all ~* => +OK
        0: ACL SETUSER joe on nopass allchannels +@all ~* => +OK
        1: AUTH bob x => +OK
        2: AUTH bob x => +OK
        3: AUTH bob x => +OK
        4: AUTH joe x => +OK
        1: SUBSCRIBE a => *3 $9 subscribe $1 a :1
        2: PSUBSCRIBE b* => *3 $10 psubscribe $2 b* :1
        4: SUBSCRIBE a => *3 $9 subscribe $1 a :1
        0: ACL SETUSER bob resetchannels &b* => +OK
        2: PING => *2 $4 pong $0
        3: PING => +PONG
        4: PING => *2 $4 pong $0
        ",
    );
    assert!(server.is_closed(1) && !server.is_closed(2) && !server.is_closed(3));
    check_on(
        &mut server,
        "the pattern that covers it is another one",
        "
        0: ACL SETUSER bob resetchannels &* => +OK
        2: PING => *2 $4 pong $0
        0: ACL SETUSER bob resetchannels &b1 => +OK
        0: ACL DELUSER joe nobody => :1
        3: GET k => $-1
        ",
    );
    assert!(server.is_closed(2) && !server.is_closed(3) && server.is_closed(4));
    assert_eq!(server.ask(3, "ACL DELUSER bob"), ":1", "its own user: the reply comes");
    assert!(server.is_closed(3));
    check_on(
        &mut server,
        "the default user stays",
        "
        0: ACL DELUSER default => -ERR The 'default' user cannot be removed
        0: ACL USERS => *1 $7 default
        ",
    );
}

#[test]
fn who_waits_for_a_key_is_looked_at_again_when_it_comes() {
    let mut server = Server::new();
    check_on(
        &mut server,
        "two users",
        "
        0: ACL SETUSER bob on nopass ~* +@all => +OK
        1: AUTH bob x => +OK
        ",
    );
    server.send(1, "BLPOP k 0");
    server.send(2, "BLPOP k 0");
    assert_eq!(server.ask(0, "ACL SETUSER bob -blpop"), "+OK");
    assert_eq!(server.ask(0, "RPUSH k v"), ":1");
    assert_eq!(server.reply(1), "-NOPERM User bob has no permissions to run the 'blpop' command");
    assert_eq!(server.reply(2), "*2 $1 k $1 v", "it is for the next one who waits");
}

#[test]
fn a_block_that_waits_runs_by_the_rules_of_the_moment_when_it_runs() {
    let mut server = Server::new();
    check_on(
        &mut server,
        "a block of a user",
        "
        0: ACL SETUSER bob on nopass ~* +@all &* => +OK
        0: SET cold v => +OK
        1: AUTH bob x => +OK
        1: MULTI => +OK
        1: GET cold => +QUEUED
        1: SET k 1 => +QUEUED
        1: SUBSCRIBE secret => +QUEUED
        ",
    );
    server.freeze();
    server.store.faults.hold_gets(true);
    server.send(1, "EXEC");
    server.store.faults.wait_for_held_gets(1);
    assert_eq!(server.ask(0, "ACL SETUSER bob -set resetchannels"), "+OK");
    server.store.faults.hold_gets(false);
    let reply = server.reply(1);
    assert_eq!(reply.matches("-NOPERM").count(), 2, "{reply}");
    server.store.base.set_cold(false);
    assert_eq!(server.ask(0, "GET k"), "$-1");
    assert_eq!(server.ask(0, "PUBSUB CHANNELS"), "*0");
}

#[test]
fn logins_are_refused_and_noted() {
    let mut server = Server::new();
    check_on(
        &mut server,
        "names and passwords",
        "
        0: ACL SETUSER bob on >a >b => +OK
        1: AUTH bob a => +OK
        1: AUTH bob b => +OK
        1: AUTH bob c => -WRONGPASS invalid username-password pair or user is disabled.
        1: ACL WHOAMI => -NOPERM User bob has no permissions to run the 'acl|whoami' command
        0: ACL SETUSER bob <b >c => +OK
        1: AUTH bob b => -WRONGPASS invalid username-password pair or user is disabled.
        1: AUTH bob c => +OK
        2: HELLO 3 AUTH bob x SETNAME me => -WRONGPASS invalid username-password pair or user is disabled.
        2: CLIENT GETNAME => $-1
        0: ACL SETUSER default off => +OK
        3: PING => -NOAUTH Authentication required.
        0: ACL SETUSER default on resetpass >s => +OK
        3: PING => -NOAUTH Authentication required.
        3: AUTH s => +OK
        3: PING => +PONG
        0: CONFIG SET requirepass t => +OK
        4: AUTH s => -WRONGPASS invalid username-password pair or user is disabled.
        4: AUTH t => +OK
        0: CONFIG SET requirepass  => -ERR wrong number of arguments for 'config|set' command
        ",
    );
    let log = server.ask(0, "ACL LOG");
    assert!(log.starts_with("*4 *20 $5 count :1 $6 reason $4 auth $7 context $8 toplevel $6 object $4 AUTH $8 username $7 default $11 age-seconds"), "{log}");
    assert!(log.contains("object $5 HELLO $8 username $3 bob") && log.contains("object $10 acl|whoami"), "{log}");
    assert!(log.contains("cmd=acl|whoami user=bob"), "{log}");
    assert_eq!(server.ask(0, "ACL LOG RESET"), "+OK");
    assert_eq!(server.ask(0, "ACL LOG"), "*0");
    let info = server.ask(0, "INFO stats");
    assert!(info.contains("acl_access_denied_auth:4") && info.contains("acl_access_denied_cmd:1"), "{info}");
}

#[test]
fn the_log_names_the_command_of_a_script_whose_call_is_denied() {
    let mut server = Server::new();
    check_on(
        &mut server,
        "by itself, and in a block that of the block",
        "
        0: ACL SETUSER ant on nopass ~* +@all -incr -decr => +OK
        1: AUTH ant x => +OK
        1: EVAL redis.pcall('incr','foo')␣return␣1 0 => :1
        1: MULTI => +OK
        1: EVAL redis.pcall('decr','foo')␣return␣1 0 => +QUEUED
        1: EXEC => *1 :1
        ",
    );
    let log = server.ask(0, "ACL LOG");
    let (of_block, alone) = log.split_once("object $4 incr").expect("both are there");
    assert!(of_block.contains("object $4 decr") && of_block.contains(" cmd=exec user=ant "), "{log}");
    assert!(alone.contains(" cmd=eval user=ant "), "{log}");
}

#[test]
fn a_long_password_does_not_hold_the_event_loop() {
    let mut server = Server::new();
    let long = "x".repeat(1 << 20);
    server.send_words(0, &[b"ACL", b"SETUSER", b"bob", b"on", format!(">{long}").as_bytes(), b"+@all", b"~*"]);
    assert!(server.clients[0].next == haypile_engine::Next::Wait, "it is hashed on the I/O pool");
    assert_eq!(server.reply(0), "+OK");
    server.send_words(1, &[b"AUTH", b"bob", long.as_bytes()]);
    assert!(server.clients[1].next == haypile_engine::Next::Wait);
    assert_eq!(server.reply(1), "+OK");
    assert_eq!(server.ask(1, "ACL WHOAMI"), "$3 bob");
}

#[test]
fn a_comparison_needs_the_right_to_read() {
    check(
        "of DELEX and of SET, which tell by it what a key holds",
        &format!(
            "
            0: ACL SETUSER bob on nopass %W~* +@all => +OK
            0: SET k v => +OK
            1: AUTH bob x => +OK
            1: DELEX k IFEQ v => {NO_KEY}
            1: SET k w IFEQ v => {NO_KEY}
            1: SET k w IFDNE 9555e8555c62dcfd => {NO_KEY}
            1: SET k w => +OK
            1: DELEX k => :1
            "
        ),
    );
}
