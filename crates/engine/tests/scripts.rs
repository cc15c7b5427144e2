//! Commands as scripts call them: what is not theirs, what does not wait, and what answers in an order of its own. How
//! scripts run and end is tested over sockets, with the server.
#![cfg(not(feature = "shuttle"))]

mod server;

use server::{Server, check, check_on};

/// Has a script call a command and return what it gets.
fn called(server: &mut Server, command: &str) -> String {
    let words: Vec<String> = command.split(' ').map(|word| format!("'{word}'")).collect();
    let script = format!("return redis.pcall({})", words.join(","));
    server.send_words(0, &[b"EVAL", script.as_bytes(), b"0"]);
    server.reply(0)
}

#[test]
fn commands_of_a_session_are_not_those_of_a_script() {
    let mut server = Server::new();
    for command in [
        "SUBSCRIBE a",
        "UNSUBSCRIBE",
        "PSUBSCRIBE a*",
        "SSUBSCRIBE a",
        "MULTI",
        "EXEC",
        "DISCARD",
        "WATCH k",
        "UNWATCH",
        "EVAL return 0",
        "EVAL_RO return 0",
        "EVALSHA x 0",
        "FCALL f 0",
        "SCRIPT EXISTS x",
        "FUNCTION LIST",
        "HELLO 3",
        "AUTH x",
        "RESET",
        "QUIT",
        "CLIENT ID",
        "CLIENT KILL x",
        "CLIENT REPLY OFF",
        "CLIENT TRACKING ON",
        "MONITOR",
        "ACL WHOAMI",
        "CONFIG GET port",
        "DEBUG SLEEP 0",
        "SAVE",
        "SHUTDOWN",
        "REPLICAOF no one",
        "ROLE",
    ] {
        let reply = called(&mut server, command);
        assert_eq!(reply, "-ERR This Redis command is not allowed from script", "{command}");
    }
    assert_eq!(server.ask(0, "CLIENT GETNAME"), "$-1", "its session goes on as it was");
}

#[test]
fn a_script_cannot_migrate() {
    let mut server = Server::new();
    server.ask(0, "SET k v");
    let reply = called(&mut server, "MIGRATE 127.0.0.1 1 k 0 1000");
    assert_eq!(reply, "-ERR This Redis command is not allowed from script");
    assert_eq!(server.ask(0, "GET k"), "$1 v");
}

#[test]
fn commands_that_wait_answer_a_script_at_once() {
    let mut server = Server::new();
    server.ask(0, "XGROUP CREATE s block 0 MKSTREAM");
    for (command, reply) in [
        ("BLPOP k 0", "$-1"),
        ("BRPOP k 0", "$-1"),
        ("BLMOVE k d LEFT RIGHT 0", "$-1"),
        ("BRPOPLPUSH k d 0", "$-1"),
        ("BLMPOP 0 1 k LEFT", "$-1"),
        ("BZPOPMIN k 0", "$-1"),
        ("BZPOPMAX k 0", "$-1"),
        ("BZMPOP 0 1 k MIN", "$-1"),
        ("WAIT 1 0", ":0"),
        ("WAIT 0 0", ":0"),
        ("XREAD STREAMS s $", "$-1"),
        ("XREAD BLOCK 0 STREAMS s $", "-ERR XREAD command is not allowed with BLOCK option from scripts"),
        ("xread block 0 streams s $", "-ERR xread command is not allowed with BLOCK option from scripts"),
        (
            "XREADGROUP GROUP block c BLOCK 5 STREAMS s >",
            "-ERR XREADGROUP command is not allowed with BLOCK option from scripts",
        ),
        ("XREADGROUP GROUP block block STREAMS s >", "$-1"),
        ("XREADGROUP GROUP block c NOACK STREAMS s >", "$-1"),
        ("XREAD COUNT block STREAMS s $", "-ERR value is not an integer or out of range"),
    ] {
        assert_eq!(called(&mut server, command), reply, "{command}");
    }
    server.ask(0, "RPUSH k v");
    assert_eq!(called(&mut server, "BLPOP k 0"), "*2 $1 k $1 v", "what is there is taken");
    server.send(1, "XREAD BLOCK 0 STREAMS s $");
    assert!(server.waits(1), "whoever is no script waits");
    assert_eq!(server.ask(0, "XADD s 1-1 f v"), "$3 1-1");
    assert_eq!(server.reply(1), "*1 *2 $1 s *1 *2 $3 1-1 *2 $1 f $1 v");
}

#[test]
fn a_set_that_is_not_sorted_has_the_order_of_its_members_in_a_script() {
    let members = "c a b d e z y x w v u t 10 9";
    let sorted = "*14 $2 10 $1 9 $1 a $1 b $1 c $1 d $1 e $1 t $1 u $1 v $1 w $1 x $1 y $1 z";
    let mut server = Server::new();
    server.ask(0, &format!("SADD s {members}"));
    server.ask(0, &format!("RPUSH l {members}"));
    assert_eq!(called(&mut server, "SORT s BY nosort"), sorted);
    assert_eq!(called(&mut server, "SORT_RO s BY nosort"), sorted);
    assert_eq!(called(&mut server, "SORT s BY nosort DESC LIMIT 0 2"), "*2 $1 z $1 y");
    assert_eq!(called(&mut server, "SORT s BY nosort LIMIT 2 3 GET #"), "*3 $1 a $1 b $1 c");
    assert_eq!(called(&mut server, "SORT l BY nosort LIMIT 0 3"), "*3 $1 c $1 a $1 b", "a list has its own");
    server.ask(0, "MULTI");
    server.send_words(0, &[b"EVAL", b"return redis.call('SORT', 's', 'BY', 'nosort')", b"0"]);
    assert_eq!(server.reply(0), "+QUEUED");
    server.ask(0, "SORT s BY nosort");
    let replies = server.ask(0, "EXEC");
    let behind = replies.strip_prefix(&format!("*2 {sorted} ")).expect("the script is the first");
    assert_eq!(behind, server.ask(0, "SORT s BY nosort"), "what comes behind the script is none of it");
    assert_ne!(behind, sorted, "these members lie in another order");
}

#[test]
fn a_block_that_turns_replies_off_gets_none_as_a_whole() {
    check(
        "its EXEC is the command that asks for it",
        "
        0: MULTI => +OK
        0: PING => +QUEUED
        0: CLIENT REPLY OFF => +QUEUED
        0: PING => +QUEUED
        0: EXEC =>
        0: PING =>
        0: CLIENT REPLY ON => +OK
        0: MULTI => +OK
        0: CLIENT REPLY SKIP => +QUEUED
        0: PING => +QUEUED
        0: EXEC =>
        0: PING =>
        0: PING => +PONG
        ",
    );
}

#[test]
fn a_block_is_shown_to_itself_as_its_client_was_before_it() {
    let mut server = Server::new();
    for command in ["MULTI", "SELECT 3", "CLIENT INFO"] {
        server.ask(0, command);
    }
    let reply = server.ask(0, "EXEC");
    assert!(reply.contains(" flags=x ") && reply.contains(" db=0 "), "{reply}");
    assert!(server.ask(0, "CLIENT INFO").contains(" db=3 "));
}

/// Functions as `FUNCTION LOAD` of a test line takes them: one that says it only reads, and one that says nothing.
const LIBRARY: &str = "#!lua␣name=lib␤redis.register_function{function_name='reads',flags={'no-writes'},\
                       callback=function()␣return␣1␣end}␤redis.register_function('plain',function()␣return␣2␣end)";

/// A script that says it only reads, and one that has a first line and does not say so.
const READS: &str = "#!lua␣flags=no-writes␤return␣1";
const FLAGGED: &str = "#!lua␤return␣2";

#[test]
fn a_pause_of_writes_holds_scripts_by_their_own_flags() {
    let mut server = Server::new();
    server.ask(0, &format!("FUNCTION LOAD {LIBRARY}"));
    let loaded = server.ask(0, &format!("SCRIPT LOAD {READS}"));
    let name = loaded.split(' ').next_back().expect("a name").to_owned();
    ["MULTI", "FCALL reads 0", "FCALL plain 0"].iter().for_each(|command| _ = server.ask(4, command));
    server.ask(0, "CLIENT PAUSE 600000 WRITE");
    check_on(
        &mut server,
        "what says that it only reads goes on",
        &format!(
            "
            0: EVAL {READS} 0 => :1
            0: EVAL_RO {READS} 0 => :1
            0: EVALSHA {name} 0 => :1
            0: EVALSHA_RO {name} 0 => :1
            0: FCALL reads 0 => :1
            0: FCALL_RO reads 0 => :1
            0: EVAL_RO return␣1 0 => :1
            0: MULTI => +OK
            0: EVAL {READS} 0 => +QUEUED
            0: FCALL reads 0 => +QUEUED
            0: EXEC => *2 :1 :1
            "
        ),
    );
    let held =
        ["EVAL return␣2 0".to_owned(), format!("EVAL {FLAGGED} 0"), "FCALL plain 0".to_owned(), "EXEC".to_owned()];
    for (client, command) in (1..).zip(&held) {
        server.send(client, command);
        assert!(server.is_blocked(client), "{command}");
    }
    server.ask(0, "CLIENT UNPAUSE");
    (1..4).for_each(|client| assert_eq!(server.reply(client), ":2"));
    assert_eq!(server.reply(4), "*2 :1 :2");
}

#[test]
fn scripts_are_refused_as_writes_by_their_own_flags() {
    let refused = "NOREPLICAS Not enough good replicas to write.";
    check(
        "before they run, when they are queued, and when their block runs",
        &format!(
            "
            0: FUNCTION LOAD {LIBRARY} => $3 lib
            1: MULTI => +OK
            1: FCALL plain 0 => +QUEUED
            2: MULTI => +OK
            2: EVAL return␣redis.pcall('set','x',1) 0 => +QUEUED
            2: FCALL reads 0 => +QUEUED
            0: CONFIG SET min-replicas-to-write 1 => +OK
            1: EXEC => -EXECABORT Transaction discarded because of: {refused}
            2: EXEC => *2 -{refused} :1
            0: EVAL return␣1 0 => :1
            0: EVAL {READS} 0 => :1
            0: EVAL {FLAGGED} 0 => -{refused}
            0: EVAL_RO {FLAGGED} 0 => -{refused}
            0: FCALL plain 0 => -{refused}
            0: MULTI => +OK
            0: FCALL reads 0 => +QUEUED
            0: EVAL return␣1 0 => +QUEUED
            0: EXEC => *2 :1 :1
            0: MULTI => +OK
            0: FCALL plain 0 => -{refused}
            0: EXEC => -EXECABORT Transaction discarded because of previous errors.
            0: CONFIG SET min-replicas-to-write 0 => +OK
            0: EVAL_RO {FLAGGED} 0 => -ERR Can not execute a script with write flag using *_ro command.
            "
        ),
    );
}

#[test]
fn a_script_that_was_slow_goes_to_the_pool_at_once_until_it_is_quick_again() {
    let mut server = Server::new();
    let script = b"for n = 1, ARGV[1] do end return 1";
    let mut passed_after = |rounds: &[u8]| {
        server.send_words(0, &[b"EVAL", script, b"0", rounds]);
        assert_eq!(server.reply(0), ":1");
        server.info(0, "scripts_on_io_pool_at_once").parse::<u64>().expect("a number")
    };
    let (slow, quick) = (b"20000000", b"1");
    let passed: Vec<u64> = (0..7).map(|_| passed_after(slow)).collect();
    assert_eq!(passed, [0, 1, 1, 2, 3, 3, 4], "it is tried ever more seldom");
    // The pool notices that it is quick, unless the machine has the thread wait for a millisecond.
    let before = (0..1000).map(|_| passed_after(quick)).collect::<Vec<u64>>();
    assert_eq!(before[998..], [before[999]; 2]);
    let passed: Vec<u64> = (0..3).map(|_| passed_after(slow) - before[999]).collect();
    assert_eq!(passed, [0, 1, 1]);
}
