//! DEBUG: who may call it, and what its subcommands that look at no data answer. Those that do are in the server's
//! tests.

mod common;

use common::Session;
use haypile_commands::host::{DebugAccess, Reload, Wait, WaitKind};
use haypile_resp::{Protocol, Reply};

fn allowed() -> Session {
    Session { debug_access: DebugAccess::Yes, ..Session::default() }
}

#[track_caller]
fn check(line: &str, expected: Reply) {
    assert_eq!(allowed().call(line), expected, "{line}");
}

#[track_caller]
fn fails(line: &str, expected: &'static str) {
    check(line, Reply::error(expected));
}

/// The text is that of Redis 7.2; 7.0 has the same.
#[test]
fn debug_is_for_those_who_may() {
    const REFUSED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local \
         connection, otherwise you need to set this option in the configuration file, and then restart the server.";
    for (debug_access, local, is_allowed) in [
        (DebugAccess::No, true, false),
        (DebugAccess::Local, false, false),
        (DebugAccess::Local, true, true),
        (DebugAccess::Yes, false, true),
    ] {
        let mut session = Session { debug_access, local, ..Session::default() };
        let expected = if is_allowed { Reply::ok() } else { Reply::error(REFUSED) };
        assert_eq!(session.call("DEBUG CHANGE-REPL-ID"), expected, "{debug_access:?}, local {local}");
    }
    fails("DEBUG NOSUCH", "ERR unknown subcommand or wrong number of arguments for 'NOSUCH'. Try DEBUG HELP.");
    fails("DEBUG sleep", "ERR unknown subcommand or wrong number of arguments for 'sleep'. Try DEBUG HELP.");
    fails("DEBUG hay\0stack", "ERR unknown subcommand or wrong number of arguments for 'hay'. Try DEBUG HELP.");
    fails("DEBUG digest x", "ERR unknown subcommand or wrong number of arguments for 'digest'. Try DEBUG HELP.");
    fails("DEBUG", "ERR wrong number of arguments for 'debug' command");
}

#[test]
fn sleep_holds_back_its_own_reply_only() {
    let sleeps = |line: &str| {
        let mut session = allowed();
        assert_eq!(session.call(line), Reply::ok(), "{line}");
        session.wait.expect("it waits")
    };
    let of = |ms| Wait { kind: WaitKind::Sleep, timeout_ms: Some(ms) };
    assert_eq!(sleeps("DEBUG SLEEP 0.25"), of(250));
    assert_eq!(sleeps("debug sleep 2"), of(2000));
    // As C reads numbers.
    assert_eq!(sleeps("DEBUG SLEEP 1.5s"), of(1500));
    assert_eq!(sleeps("DEBUG SLEEP x"), of(0));
    assert_eq!(sleeps("DEBUG SLEEP -1"), of(0));
}

#[test]
fn the_server_is_told() {
    let mut session = allowed();
    assert_eq!(session.call("DEBUG SET-ACTIVE-EXPIRE 0"), Reply::ok());
    assert_eq!(session.active_expire, Some(false));
    assert_eq!(session.call("DEBUG SET-ACTIVE-EXPIRE 1"), Reply::ok());
    assert_eq!(session.active_expire, Some(true));
    assert_eq!(session.call("DEBUG LOG hay"), Reply::ok());
    assert_eq!(session.logged, b"hay");
    for word in ["PANIC", "SEGFAULT", "ASSERT", "OOM"] {
        session.call(&format!("DEBUG {word}"));
        assert_eq!(session.crashed.take().as_deref(), Some(word));
    }
}

#[test]
fn tuning_is_accepted_as_redis_does() {
    for line in [
        "PAUSE-CRON 1",
        "DICT-RESIZING 0",
        "SET-SKIP-CHECKSUM-VALIDATION 1",
        "SET-DISABLE-DENY-SCRIPTS 1",
        "AOF-FLUSH-SLEEP 5",
        "REPLYBUFFER PEAK-RESET-TIME NEVER",
        "REPLYBUFFER peak-reset-time 100",
        "REPLYBUFFER RESIZING 0",
        "QUICKLIST-PACKED-THRESHOLD 100b",
        "QUICKLIST-PACKED-THRESHOLD 0",
        "DROP-CLUSTER-PACKET-FILTER -1",
    ] {
        check(&format!("DEBUG {line}"), Reply::ok());
    }
    let not_integer = "ERR value is not an integer or out of range";
    fails("DEBUG REPLYBUFFER PEAK-RESET-TIME x", not_integer);
    fails("DEBUG DROP-CLUSTER-PACKET-FILTER x", not_integer);
    fails(
        "DEBUG REPLYBUFFER a b",
        "ERR unknown subcommand or wrong number of arguments for 'REPLYBUFFER'. Try DEBUG HELP.",
    );
    let range = "ERR argument must be a memory value bigger than 1 and smaller than 4gb";
    fails("DEBUG QUICKLIST-PACKED-THRESHOLD 4gb", range);
    fails("DEBUG QUICKLIST-PACKED-THRESHOLD x", range);
    fails("DEBUG CLIENT-EVICTION", "ERR maxmemory-clients is disabled.");
    fails("DEBUG CLUSTERLINK KILL all x", "ERR Debug option only available for cluster mode enabled setup!");
    fails("DEBUG ERROR WRONGTYPE", "WRONGTYPE");
    check("DEBUG STRINGMATCH-LEN a*c abbc", Reply::Integer(1));
    check("DEBUG STRINGMATCH-LEN a*c abb", Reply::Integer(0));
}

/// The bytes are those that redis-server 7.0 sends.
#[test]
fn protocol_shows_each_type() {
    let sent = |protocol, word: &str| {
        let mut session = Session { protocol, ..allowed() };
        let mut bytes = Vec::new();
        session.call(&format!("DEBUG PROTOCOL {word}")).encode(protocol, &mut bytes);
        String::from_utf8(bytes).expect("a text")
    };
    for (word, in_resp2, in_resp3) in [
        ("string", "$11\r\nHello World\r\n", "$11\r\nHello World\r\n"),
        ("integer", ":12345\r\n", ":12345\r\n"),
        ("double", "$5\r\n3.141\r\n", ",3.141\r\n"),
        ("null", "$-1\r\n", "_\r\n"),
        ("array", "*3\r\n:0\r\n:1\r\n:2\r\n", "*3\r\n:0\r\n:1\r\n:2\r\n"),
        ("set", "*3\r\n:0\r\n:1\r\n:2\r\n", "~3\r\n:0\r\n:1\r\n:2\r\n"),
        ("map", "*6\r\n:0\r\n:0\r\n:1\r\n:1\r\n:2\r\n:0\r\n", "%3\r\n:0\r\n#f\r\n:1\r\n#t\r\n:2\r\n#f\r\n"),
        (
            "attrib",
            "$39\r\nSome real reply following the attribute\r\n",
            "|1\r\n$14\r\nkey-popularity\r\n*2\r\n$7\r\nkey:123\r\n:90\r\n$39\r\nSome real reply following the attribute\r\n",
        ),
        (
            "push",
            "-ERR RESP2 is not supported by this command\r\n",
            ">2\r\n$16\r\nserver-cpu-usage\r\n:42\r\n$40\r\nSome real reply following the push reply\r\n",
        ),
        ("verbatim", "$25\r\nThis is a verbatim\nstring\r\n", "=29\r\ntxt:This is a verbatim\nstring\r\n"),
        ("true", ":1\r\n", "#t\r\n"),
        ("False", ":0\r\n", "#f\r\n"),
        ("bignum", "$37\r\n1234567999999999999999999999999999999\r\n", "(1234567999999999999999999999999999999\r\n"),
    ] {
        assert_eq!(sent(Protocol::Resp2, word), in_resp2, "{word}");
        assert_eq!(sent(Protocol::Resp3, word), in_resp3, "{word}");
    }
    fails(
        "DEBUG PROTOCOL hay",
        "ERR Wrong protocol type name. Please use one of the following: \
         string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
    );
}

#[test]
fn reload_and_loadaof_open_the_data_again() {
    let mut session = allowed();
    let lines = ["RELOAD", "RELOAD NOFLUSH merge", "RELOAD NOSAVE NOFLUSH MERGE", "LOADAOF", "loadaof what ever"];
    for line in lines {
        assert_eq!(session.call(&format!("DEBUG {line}")), Reply::ok(), "{line}");
    }
    assert_eq!(session.reloads, [Reload::Base, Reload::Base, Reload::Log, Reload::Log, Reload::Log]);
    let text = "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.";
    assert_eq!(session.call("DEBUG RELOAD NOW"), Reply::error(text));
}
