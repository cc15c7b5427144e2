//! The commands that ask only their session: replies, options, error texts.

mod common;

use common::{Session, args};
use haypile_commands::Table;
use haypile_commands::host::{
    Act, ClientFilter, ClientType, ClusterFacts, LatencyEvent, LatencySample, Library, LoggedCall, Replies, Shutdown,
};
use haypile_resp::{Protocol, Reply};

#[track_caller]
fn check(rule: &str, line: &str, expected: Reply) {
    assert_eq!(Session::default().call(line), expected, "{rule}: {line}");
}

#[track_caller]
fn fails(line: &str, expected: &'static str) {
    check("the text is Redis's", line, Reply::error(expected));
}

fn bulks(words: &[&'static str]) -> Reply {
    Reply::array(words.iter().map(|&word| Reply::bulk(word)))
}

#[test]
fn ping_and_echo() {
    check("without a message", "ping", Reply::Simple("PONG"));
    check("with a message", "PING hay", Reply::bulk("hay"));
    check("bytes come back as they are", "ECHO \"\"", Reply::bulk(""));
    fails("PING a b", "ERR wrong number of arguments for 'ping' command");
    fails("ECHO", "ERR wrong number of arguments for 'echo' command");
}

#[test]
fn select_takes_an_index_below_the_number_of_databases() {
    let mut session = Session::default();
    assert_eq!(session.call("SELECT 15"), Reply::ok());
    assert_eq!(session.database, 15);
    fails("SELECT 16", "ERR DB index is out of range");
    fails("SELECT -1", "ERR DB index is out of range");
    fails("SELECT x", "ERR value is not an integer or out of range");
    fails("SELECT 99999999999", "ERR value is out of range, value must between -2147483648 and 2147483647");
}

#[test]
fn time_is_in_seconds_and_microseconds() {
    check("as two numbers", "TIME", bulks(&["1700000000", "42"]));
    fails("TIME now", "ERR wrong number of arguments for 'time' command");
}

#[test]
fn quit_answers_and_closes() {
    let mut session = Session::default();
    assert_eq!(session.call("QUIT now please"), Reply::ok());
    assert!(session.closing);
}

#[test]
fn hello_tells_about_the_server_in_the_protocol_agreed_on() {
    let mut session = Session::default();
    let greeting = |protocol| {
        Reply::Map(vec![
            (Reply::bulk("server"), Reply::bulk("redis")),
            (Reply::bulk("version"), Reply::bulk(haypile_commands::REDIS_VERSION)),
            (Reply::bulk("proto"), Reply::Integer(protocol)),
            (Reply::bulk("id"), Reply::Integer(7)),
            (Reply::bulk("mode"), Reply::bulk("standalone")),
            (Reply::bulk("role"), Reply::bulk("master")),
            (Reply::bulk("modules"), Reply::Array(Vec::new())),
        ])
    };
    assert_eq!(session.call("HELLO"), greeting(2));
    assert_eq!(session.call("HELLO 3 SETNAME loader"), greeting(3));
    assert_eq!((session.protocol, &*session.name), (Protocol::Resp3, &b"loader"[..]));
    assert_eq!(session.call("HELLO 2"), greeting(2));
    assert_eq!(session.protocol, Protocol::Resp2);
}

#[test]
fn hello_changes_nothing_when_it_fails() {
    fails("HELLO x", "ERR Protocol version is not an integer or out of range");
    fails("HELLO 1", "NOPROTO unsupported protocol version");
    fails("HELLO 4", "NOPROTO unsupported protocol version");
    fails("HELLO 3 SETNAME", "ERR Syntax error in HELLO option 'SETNAME'");
    fails("HELLO 3 AUTH default", "ERR Syntax error in HELLO option 'AUTH'");
    fails("HELLO 3 hay", "ERR Syntax error in HELLO option 'hay'");
    let mut session = Session { password: Some(b"secret"), ..Session::default() };
    let wrong = session.call("HELLO 3 SETNAME loader AUTH default guess");
    assert_eq!(wrong, Reply::error("WRONGPASS invalid username-password pair or user is disabled."));
    let Reply::Error(text) = session.call("HELLO 3") else { panic!("HELLO without a password is refused") };
    assert!(text.starts_with("NOAUTH HELLO must be called with the client already authenticated"), "{text}");
    assert_eq!((session.protocol, &*session.name), (Protocol::Resp2, &b""[..]));
    assert!(matches!(session.call("HELLO 3 AUTH default secret"), Reply::Map(_)));
    assert_eq!(session.protocol, Protocol::Resp3);
}

#[test]
fn a_client_names_itself_and_its_library() {
    let mut session = Session::default();
    assert_eq!(session.call("CLIENT ID"), Reply::Integer(7));
    assert_eq!(session.call("CLIENT GETNAME"), Reply::Null);
    assert_eq!(session.call("CLIENT SETNAME loader"), Reply::ok());
    assert_eq!(session.call("client getname"), Reply::bulk("loader"));
    assert_eq!(session.call("CLIENT SETNAME \"\""), Reply::ok());
    assert_eq!(session.call("CLIENT GETNAME"), Reply::Null);
    assert_eq!(session.call("CLIENT SETINFO LIB-NAME redis-py"), Reply::ok());
    assert_eq!(session.call("CLIENT SETINFO lib-ver 5.0"), Reply::ok());
    assert_eq!(session.library, [(Library::Name, b"redis-py".to_vec()), (Library::Version, b"5.0".to_vec())]);
    fails("CLIENT SETNAME a\tb", "ERR Client names cannot contain spaces, newlines or special characters.");
    fails("CLIENT SETINFO lib-x 1", "ERR Unrecognized option 'lib-x'");
    fails("CLIENT SETINFO Lib-Ver 1\t", "ERR Lib-Ver cannot contain spaces, newlines or special characters.");
    fails("CLIENT SETINFO lib-ver", "ERR wrong number of arguments for 'client|setinfo' command");
}

#[test]
fn info_shows_sections_in_its_own_order() {
    let text = |text: &'static str| Reply::Verbatim("txt", text.into());
    let server = "# Server\r\ntcp_port:6379\r\n";
    check("the usual ones", "INFO", text("# Server\r\ntcp_port:6379\r\n\r\n# Keyspace\r\n"));
    check("the usual ones by name", "INFO default", text("# Server\r\ntcp_port:6379\r\n\r\n# Keyspace\r\n"));
    check("each once", "INFO keyspace SERVER server", text("# Server\r\ntcp_port:6379\r\n\r\n# Keyspace\r\n"));
    check("an unknown one is nothing", "INFO nothing server", text(server));
    check("nothing at all", "INFO nothing", text(""));
    let with_sizes = "# Keyspace\r\n\r\n# Sizes\r\n";
    check("as Pika asks for sizes", "INFO Keyspace 1", text(with_sizes));
    check("as Pika does not", "INFO keyspace 0", text("# Keyspace\r\n"));
    check("in no other way", "INFO 1 keyspace", text("# Keyspace\r\n"));
    let all = "# Server\r\ntcp_port:6379\r\n\r\n# Commandstats\r\ncmdstat_get:calls=1\r\n\r\n# Keyspace\r\n";
    check("all of them", "INFO all", text(all));
    check("all of them", "INFO everything", text(all));
}

#[test]
fn config_gets_and_sets() {
    let port = Reply::Map(vec![(Reply::bulk("port"), Reply::bulk("6379"))]);
    check("what matches, as a map", "CONFIG GET port nothing", port);
    check("several at once", "CONFIG SET maxmemory 1gb timeout 5", Reply::ok());
    let mut session = Session::default();
    session.call("CONFIG SET maxmemory 1gb timeout 5");
    let pairs = [("maxmemory", "1gb"), ("timeout", "5")].map(|(name, value)| (name.into(), value.into()));
    assert_eq!(session.done, [format!("{:?}", Act::SetConfig(pairs.into()))], "the engine sets all or none");
    fails("CONFIG REWRITE", "ERR The server is running without a config file");
    fails("CONFIG REWRITE now", "ERR wrong number of arguments for 'config|rewrite' command");
    fails("CONFIG GET", "ERR wrong number of arguments for 'config|get' command");
    fails("CONFIG SET maxmemory", "ERR wrong number of arguments for 'config|set' command");
    fails("CONFIG SET maxmemory 1 timeout", "ERR syntax error");
}

#[test]
fn the_slow_log_shows_six_fields() {
    let call = |id| LoggedCall {
        id,
        time_s: 1_700_000_000,
        value: 12_345,
        args: vec![b"GET".to_vec(), b"k".to_vec()],
        address: "127.0.0.1:50000".into(),
        name: b"me".to_vec(),
    };
    let mut session = Session { slowlog: (0..12).rev().map(call).collect(), ..Session::default() };
    let Reply::Array(entries) = session.call("SLOWLOG GET") else { panic!("SLOWLOG GET answers an array") };
    assert_eq!(entries.len(), 10);
    let expected = Reply::Array(vec![Reply::Array(vec![
        Reply::Integer(11),
        Reply::Integer(1_700_000_000),
        Reply::Integer(12_345),
        bulks(&["GET", "k"]),
        Reply::bulk("127.0.0.1:50000"),
        Reply::bulk("me"),
    ])]);
    assert_eq!(session.call("slowlog get 1"), expected);
    for (count, length) in [("0", 0), ("-1", 12), ("99", 12)] {
        let Reply::Array(entries) = session.call(&format!("SLOWLOG GET {count}")) else { panic!("an array") };
        assert_eq!(entries.len(), length);
    }
    assert_eq!(session.call("SLOWLOG LEN"), Reply::Integer(12));
    assert_eq!(session.call("SLOWLOG RESET"), Reply::ok());
    assert_eq!(session.call("SLOWLOG LEN"), Reply::Integer(0));
    for count in ["-2", "x", "1.5", "9223372036854775808"] {
        fails(&format!("SLOWLOG GET {count}"), "ERR count should be greater than or equal to -1");
    }
    fails("SLOWLOG GET 1 2", "ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.");
}

#[test]
fn latency_shows_events_and_times() {
    let samples = vec![LatencySample { time_s: 5, ms: 100 }, LatencySample { time_s: 9, ms: 20 }];
    let events = || ["command", "flush"].map(|name| LatencyEvent { name, max_ms: 300, samples: samples.clone() });
    let mut session = Session { events: events().into(), ..Session::default() };
    let event = |name: &'static str| {
        Reply::Array(vec![Reply::bulk(name), Reply::Integer(9), Reply::Integer(20), Reply::Integer(300)])
    };
    assert_eq!(session.call("LATENCY LATEST"), Reply::Array(vec![event("command"), event("flush")]));
    let pair = |time, ms| Reply::Array(vec![Reply::Integer(time), Reply::Integer(ms)]);
    assert_eq!(session.call("LATENCY HISTORY flush"), Reply::Array(vec![pair(5, 100), pair(9, 20)]));
    assert_eq!(session.call("LATENCY HISTORY FLUSH"), Reply::Array(Vec::new()), "names are case sensitive");
    assert!(matches!(session.call("LATENCY GRAPH flush"), Reply::Verbatim("txt", _)));
    assert!(matches!(session.call("LATENCY DOCTOR"), Reply::Verbatim("txt", _)));
    fails("LATENCY GRAPH none", "ERR No samples available for event 'none'");
    assert_eq!(session.call("LATENCY RESET flush none"), Reply::Integer(1));
    assert_eq!(session.call("LATENCY RESET"), Reply::Integer(1));
    assert_eq!(session.call("LATENCY LATEST"), Reply::Array(Vec::new()));
    let times = |name: &'static str| {
        let until = Reply::Map(vec![(Reply::Integer(1), Reply::Integer(2)), (Reply::Integer(33), Reply::Integer(3))]);
        (
            Reply::bulk(name),
            Reply::Map(vec![(Reply::bulk("calls"), Reply::Integer(3)), (Reply::bulk("histogram_usec"), until)]),
        )
    };
    check("of all", "LATENCY HISTOGRAM", Reply::Map(vec![times("get"), times("config|get")]));
    check("with subcommands", "LATENCY HISTOGRAM CONFIG none set", Reply::Map(vec![times("config|get")]));
    check("of a subcommand", "LATENCY HISTOGRAM config|get", Reply::Map(vec![times("config|get")]));
}

#[test]
fn shutdown_reads_its_options() {
    let after = |line: &str| {
        let mut session = Session::default();
        assert_eq!(session.call(line), Reply::None, "{line}: the connection just closes");
        session.shutdown.expect("SHUTDOWN shuts down")
    };
    let usual = Shutdown::default();
    assert_eq!(after("SHUTDOWN"), usual);
    assert_eq!(after("SHUTDOWN nosave"), Shutdown { save: Some(false), ..usual });
    assert_eq!(after("SHUTDOWN SAVE save NOW FORCE"), Shutdown { save: Some(true), now: true, force: true });
    for line in ["SHUTDOWN SAVE NOSAVE", "SHUTDOWN later", "SHUTDOWN ABORT NOW", "SHUTDOWN NOSAVE ABORT"] {
        fails(line, "ERR syntax error");
    }
    fails("SHUTDOWN ABORT", "ERR No shutdown in progress.");
    let mut session = Session { shutdown: Some(usual), ..Session::default() };
    assert_eq!(session.call("SHUTDOWN ABORT"), Reply::ok());
}

#[test]
fn unknown_commands_are_named_with_their_arguments() {
    fails("HAY", "ERR unknown command 'HAY', with args beginning with: ");
    fails("HAY a b", "ERR unknown command 'HAY', with args beginning with: 'a' 'b' ");
    fails("CONFIG hay", "ERR unknown subcommand 'hay'. Try CONFIG HELP.");
    fails("CONFIG", "ERR wrong number of arguments for 'config' command");
    fails("COMMAND COUNT x", "ERR wrong number of arguments for 'command|count' command");
    let long = "x".repeat(200);
    let expected = format!("ERR unknown command '{}', with args beginning with: '{}' ", &long[..128], &long[..128]);
    check("128 bytes of each", &format!("{long} {long} y"), Reply::error(expected));
}

#[test]
fn command_lists_and_counts() {
    let mut session = Session::default();
    let Reply::Array(all) = session.call("COMMAND") else { panic!("COMMAND answers an array") };
    assert_eq!(session.call("COMMAND COUNT"), Reply::Integer(all.len() as i64));
    assert_eq!(session.call("COMMAND INFO"), Reply::Array(all));
    let Reply::Array(names) = session.call("COMMAND LIST") else { panic!("COMMAND LIST answers an array") };
    assert_eq!(names.len(), session.table.ids(), "subcommands are listed too");
    check(
        "by category",
        "COMMAND LIST FILTERBY ACLCAT Transaction",
        bulks(&["multi", "exec", "discard", "watch", "unwatch"]),
    );
    check("the category has no @", "COMMAND LIST FILTERBY ACLCAT @transaction", bulks(&[]));
    check("by pattern", "COMMAND LIST FILTERBY pattern CONFIG|?et", bulks(&["config|get", "config|set"]));
    check("there are no modules", "COMMAND LIST FILTERBY MODULE json", bulks(&[]));
    for line in
        ["COMMAND LIST hay", "COMMAND LIST FILTERBY hay x", "COMMAND LIST FILTERBY MODULE", "COMMAND LIST a MODULE x"]
    {
        fails(line, "ERR syntax error");
    }
    check(
        "unknown ones",
        "COMMAND INFO hay config|hay hay|get",
        Reply::Array(vec![Reply::Null, Reply::Null, Reply::Null]),
    );
    check("unknown ones are left out", "COMMAND DOCS hay", Reply::Map(Vec::new()));
}

#[test]
fn getkeys_finds_the_keys_that_are_locked() {
    check("one", "COMMAND GETKEYS get k", bulks(&["k"]));
    check("every second", "COMMAND GETKEYS MSET a 1 b 2", bulks(&["a", "b"]));
    for count in ["1x", "+1", "01", "1.5"] {
        check("a count that is none", &format!("COMMAND GETKEYS SINTERCARD {count} a b"), bulks(&["a"]));
    }
    for count in ["x", "-1x", "0x1", "3x", "99999999999999999999"] {
        let wrong = Reply::error("ERR Invalid arguments specified for command");
        check("a count of no keys", &format!("COMMAND GETKEYS SINTERCARD {count} a b"), wrong);
    }
    check("of two specs", "COMMAND GETKEYS rename a b", bulks(&["a", "b"]));
    check("all", "COMMAND GETKEYS del a b c", bulks(&["a", "b", "c"]));
    let flags = |key: &'static str, flags: &[&'static str]| {
        Reply::Array(vec![Reply::Array(vec![
            Reply::bulk(key),
            Reply::Set(flags.iter().map(|flag| Reply::Simple(flag)).collect()),
        ])])
    };
    check("what is read", "COMMAND GETKEYSANDFLAGS get k", flags("k", &["RO", "access"]));
    check("what is overwritten", "COMMAND GETKEYSANDFLAGS set k v", flags("k", &["OW", "update"]));
    check("what is read, too", "COMMAND GETKEYSANDFLAGS SET k v NX GET", flags("k", &["RW", "access", "update"]));
    check("what is moved away", "COMMAND GETKEYSANDFLAGS migrate h 1 k 0 10", flags("k", &["RW", "access", "delete"]));
    let several = "COMMAND GETKEYSANDFLAGS migrate h 1 \"\" 0 10 keys k";
    check("what is one of several", several, flags("k", &["RW", "access", "delete"]));
    check("what is removed whatever it is", "COMMAND GETKEYSANDFLAGS delex k", flags("k", &["RM", "delete"]));
    for call in ["eval x 5 a", "evalsha x 2 a", "fcall f 3 a", "eval_ro x -1 a", "eval x y a", "eval x 0 a"] {
        check("as many as are not there", &format!("COMMAND GETKEYS {call}"), bulks(&[]));
        check("as many as are not there", &format!("COMMAND GETKEYSANDFLAGS {call}"), bulks(&[]));
    }
    for call in
        ["zunion 5 a b", "zunionstore d 3 a b", "zinterstore d 0 a", "zdiff 0 a", "lmpop x a left", "sintercard -1 a"]
    {
        fails(&format!("COMMAND GETKEYS {call}"), "ERR Invalid arguments specified for command");
        fails(&format!("COMMAND GETKEYSANDFLAGS {call}"), "ERR Invalid arguments specified for command");
    }
    check("as many as are there", "COMMAND GETKEYS zunionstore d 2 a b weights 1 2", bulks(&["d", "a", "b"]));
    fails("COMMAND GETKEYSANDFLAGS ping a", "ERR The command has no key arguments");
    fails("COMMAND GETKEYS ping a", "ERR The command has no key arguments");
    fails("COMMAND GETKEYS config get x", "ERR The command has no key arguments");
    fails("COMMAND GETKEYS config hay x", "ERR Invalid command specified");
    fails("COMMAND GETKEYS hay", "ERR Invalid command specified");
    fails("COMMAND GETKEYS get", "ERR Invalid number of arguments specified for command");
    fails("COMMAND GETKEYS set a", "ERR Invalid number of arguments specified for command");
    fails("COMMAND GETKEYS", "ERR wrong number of arguments for 'command|getkeys' command");
}

#[test]
fn help_lists_the_subcommands_of_the_table() {
    let lines: Vec<Reply> = [
        "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "GET <parameter> [<parameter> ...]",
        "    Returns the directives whose names match patterns, with their values.",
        "SET <parameter> <value> [<parameter> <value> ...]",
        "    Sets directives, all of them or none.",
        "REWRITE",
        "    Writes the values of the directives into the configuration file.",
        "RESETSTAT",
        "    Sets the statistics that INFO shows back to zero.",
        "HELP",
        "    Lists the subcommands of CONFIG.",
    ]
    .map(Reply::Simple)
    .into();
    check("as statuses", "config help", Reply::Array(lines));
    fails("CONFIG HELP me", "ERR wrong number of arguments for 'config|help' command");
}

#[test]
fn every_container_has_help_that_names_its_subcommands_and_refuses_unknown_ones() {
    let mut session = Session { cluster: Some(ClusterFacts::default()), ..Session::default() };
    let table = Table::new();
    let containers: Vec<_> = table.iter().filter(|(_, entry)| !table.subcommands(entry).is_empty()).collect();
    assert!(containers.len() >= 18, "{}", containers.len());
    for (_, container) in containers {
        let name = container.command.name.to_uppercase();
        let Reply::Array(lines) = session.call(&format!("{name} HELP")) else { panic!("{name} HELP answers no array") };
        let lines = lines.iter().map(|line| match line {
            Reply::Simple(line) => (*line).to_owned(),
            Reply::Status(line) => line.clone(),
            other => panic!("{name} HELP: {other:?}"),
        });
        let lines: Vec<String> = lines.collect();
        assert_eq!(lines[0], format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
        for subcommand in table.subcommands(container) {
            let word = subcommand.command.name.to_uppercase();
            let at = lines.iter().position(|line| line.split(' ').next() == Some(&word));
            let at = at.unwrap_or_else(|| panic!("{name} HELP does not name {word}: {lines:?}"));
            assert_eq!(lines[at + 1], format!("    {}", subcommand.command.summary), "{name} {word}");
        }
        let wrong = format!("ERR unknown subcommand 'NoSuch'. Try {name} HELP.");
        assert_eq!(session.call(&format!("{name} NoSuch")), Reply::error(wrong));
        let alone = format!("ERR wrong number of arguments for '{}' command", container.command.name);
        let one = session.call(&name);
        assert!(one == Reply::error(alone) || name == "COMMAND" && !one.is_error(), "{name}: {one:?}");
    }
    // A command whose syntax has several operations is a container, so that it has HELP.
    for (_, entry) in table.iter().filter(|(_, entry)| table.subcommands(entry).is_empty()) {
        assert!(
            !entry.command.syntax.starts_with("operation=("),
            "{} has subcommands without entries",
            entry.full_name
        );
    }
}

#[test]
fn a_renamed_command_has_only_its_new_name() {
    let mut session = Session::default();
    session.table.rename(b"CONFIG", b"Settings").unwrap();
    session.table.rename(b"shutdown", b"").unwrap();
    assert!(matches!(session.call("sEttings GET port"), Reply::Map(_)));
    assert!(session.call("CONFIG GET port").is_error());
    assert!(session.call("SHUTDOWN").is_error());
    assert!(session.table.rename(b"shutdown", b"stop").is_err(), "it has no name any more");
    assert!(session.table.rename(b"get", b"SET").is_err(), "the name is taken");
    session.table.rename(b"get", b"get").unwrap();
    let entry = session.table.resolve(args("get k").as_args().into()).unwrap();
    assert_eq!(entry.full_name, "get");
}

#[test]
fn every_name_is_found_in_any_case() {
    let table = Session::default().table;
    for (name, entry) in table.iter() {
        for spelling in [name.to_ascii_uppercase(), name.to_ascii_lowercase()] {
            assert_eq!(table.find(&spelling).map(|found| found.id), Some(entry.id));
        }
        for wrong in [[name, b"x"].concat(), name[1..].to_vec(), [b"\0", name].concat()] {
            assert!(table.find(&wrong).is_none_or(|found| found.command.name.as_bytes() == wrong), "{wrong:?}");
        }
    }
}

#[test]
fn bgsave_begins_a_backup_and_lastsave_tells_of_the_last() {
    let mut session = Session::default();
    assert_eq!(session.call("BGSAVE"), Reply::Simple("Background saving started"));
    assert_eq!(session.call("BGSAVE SCHEDULE"), Reply::error("ERR Background save already in progress"));
    let mut block = Session { is_in_block: true, ..Session::default() };
    assert_eq!(block.call("bgsave schedule"), Reply::Simple("Background saving scheduled"));
    fails("BGSAVE NOW", "ERR syntax error");
    fails("BGSAVE SCHEDULE SCHEDULE", "ERR syntax error");
    check("in seconds", "LASTSAVE", Reply::Integer(1_700_000_000));
    fails("LASTSAVE now", "ERR wrong number of arguments for 'lastsave' command");
}

#[test]
fn client_kill_and_list_read_their_filters() {
    let kill = |line: &str| {
        let mut session = Session::default();
        let reply = session.call(line);
        (reply, session.filter.take())
    };
    let (reply, filter) = kill("CLIENT KILL ID 5 TYPE replica ADDR 1:2 LADDR 3:4 USER default MAXAGE 60 SKIPME no");
    assert_eq!(reply, Reply::Integer(1));
    let expected = ClientFilter {
        ids: Some(vec![5]),
        kind: Some(ClientType::Replica),
        address: Some(b"1:2".to_vec()),
        local_address: Some(b"3:4".to_vec()),
        user: Some(b"default".to_vec()),
        age_min_s: Some(60),
        skip_me: false,
    };
    assert_eq!(filter, Some(expected));
    assert!(kill("CLIENT KILL TYPE normal").1.expect("a filter was made").skip_me, "by default");
    assert_eq!(kill("CLIENT KILL all").0, Reply::ok());
    assert!(!kill("CLIENT KILL ALL").1.expect("a filter was made").skip_me, "whoever asks as well");
    assert!(!kill("CLIENT KILL 1:2").1.expect("a filter was made").skip_me, "an address alone may be one's own");
    for (line, text) in [
        ("CLIENT KILL nowhere:1", "ERR No such client"),
        ("CLIENT KILL ID 0", "ERR client-id should be greater than 0"),
        ("CLIENT KILL MAXAGE old", "ERR maxage is not an integer or out of range"),
        ("CLIENT KILL MAXAGE 0", "ERR maxage should be greater than 0"),
        ("CLIENT KILL ID x", "ERR client-id should be greater than 0"),
        ("CLIENT KILL TYPE odd", "ERR Unknown client type 'odd'"),
        ("CLIENT KILL USER nobody", "ERR No such user 'nobody'"),
        ("CLIENT KILL SKIPME maybe", "ERR syntax error"),
        ("CLIENT KILL ID 1 TYPE", "ERR syntax error"),
        ("CLIENT LIST TYPE odd", "ERR Unknown client type 'odd'"),
        ("CLIENT LIST ID x", "ERR Invalid client ID"),
        ("CLIENT LIST ID", "ERR syntax error"),
        ("CLIENT REPLY maybe", "ERR syntax error"),
        ("CLIENT NO-EVICT maybe", "ERR syntax error"),
        ("CLIENT PAUSE x", "ERR timeout is not an integer or out of range"),
        ("CLIENT PAUSE -1", "ERR timeout is negative"),
        ("CLIENT PAUSE 9223372036854775807", "ERR timeout is out of range"),
        ("CLIENT PAUSE 1 some", "ERR CLIENT PAUSE mode must be WRITE or ALL"),
        ("CLIENT PAUSE 1 ALL 2", "ERR unknown subcommand or wrong number of arguments for 'PAUSE'. Try CLIENT HELP."),
        ("CLIENT UNBLOCK 1 some", "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
        ("CLIENT UNBLOCK x", "ERR value is not an integer or out of range"),
        ("PUBSUB CHANNELS a b", "ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP."),
    ] {
        assert_eq!(Session::default().call(line), Reply::error(text), "{line}");
    }
    let (_, filter) = kill("CLIENT LIST ID 1 -3 2");
    assert_eq!(filter.expect("a filter was made").ids, Some(vec![1, 2]));
}

#[test]
fn client_commands_reach_their_host() {
    let mut session = Session::default();
    for line in [
        "CLIENT PAUSE 10 WRITE",
        "CLIENT PAUSE 0",
        "CLIENT UNPAUSE",
        "CLIENT NO-EVICT on",
        "CLIENT NO-TOUCH off",
        "MONITOR",
    ] {
        assert_eq!(session.call(line), Reply::ok(), "{line}");
    }
    assert_eq!(session.call("CLIENT UNBLOCK 8 ERROR"), Reply::Integer(1));
    assert_eq!(session.call("CLIENT UNBLOCK 9"), Reply::Integer(0));
    let expected = [
        "Pause { until_ms: 1700000000010, what: Writes }",
        "Pause { until_ms: 1700000000000, what: All }",
        "Unpause",
        "no-evict true",
        "no-touch false",
        "monitor",
        "Unblock { client: 8, with_error: true }",
    ];
    assert_eq!(session.done, expected);
    assert_eq!(session.call("CLIENT REPLY off"), Reply::None);
    assert_eq!(session.replies, Replies::Off);
    assert_eq!(session.call("CLIENT GETREDIR"), Reply::Integer(-1));
}

#[test]
fn a_name_that_is_given_twice_counts_once() {
    let mut session = Session::default();
    let told = |word: &'static str, names: &[(&'static str, i64)]| {
        let of = |&(name, count)| Reply::Push(vec![Reply::bulk(word), Reply::bulk(name), Reply::Integer(count)]);
        Reply::Several(names.iter().map(of).collect())
    };
    assert_eq!(session.call("SUBSCRIBE a b a"), told("subscribe", &[("a", 1), ("b", 2), ("a", 2)]));
    assert_eq!(session.call("PSUBSCRIBE p b"), told("psubscribe", &[("p", 3), ("b", 4)]));
    assert_eq!(session.call("SUBSCRIBE b c"), told("subscribe", &[("b", 4), ("c", 5)]));
    assert_eq!(session.call("UNSUBSCRIBE a a x"), told("unsubscribe", &[("a", 4), ("a", 4), ("x", 4)]));
    assert_eq!(session.call("UNSUBSCRIBE"), told("unsubscribe", &[("b", 3), ("c", 2)]));
}

#[test]
fn compact_takes_the_words_of_pika() {
    let mut session = Session::default();
    for line in ["COMPACT", "compact all", "COMPACT Hash", "COMPACT db0 string", "COMPACT db3,5,db0 all"] {
        assert_eq!(session.call(line), Reply::ok(), "{line}");
    }
    let acts =
        ["None", "None", "None", "Some([0])", "Some([3, 5, 0])"].map(|databases| format!("Compact({databases})"));
    assert_eq!(session.done, acts);
    let words = "ERR COMPACT takes databases, like db0,db1, and one of: all, string, hash, set, zset, list, stream";
    fails("COMPACT strings", words);
    fails("COMPACT db0", words);
    fails("COMPACT db0 db1", words);
    fails("COMPACT db16 all", "ERR there is no database 'db16'");
    fails("COMPACT db-1 all", "ERR there is no database 'db-1'");
    fails("COMPACT db0, all", "ERR there is no database ''");
    fails("COMPACT db0 all now", "ERR syntax error");
    let mut session = Session { in_memory: true, ..Session::default() };
    assert_eq!(session.call("COMPACT"), Reply::error("ERR a server with 'engine memory' has nothing to compact"));
}
