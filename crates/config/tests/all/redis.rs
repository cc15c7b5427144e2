//! Compares with a real redis-server: which configurations it takes, the values of CONFIG GET then, the replies of
//! CONFIG SET, and which keys a pattern finds. Where Haypile differs on purpose, the row says so.

use std::ffi::OsString;

use crate::common::{Random, Redis, Scratch};
use haypile_config::table;
use haypile_config::{CommandLine, Settings, glob, load};

/// Redis's directives with another default, or other values, than Redis 7.0 has: of this run, or new in 7.2.
const OF_THE_RUN: [&str; 6] = ["port", "unixsocket", "dir", "save", "pidfile", "logfile"];

fn ours(scratch: &Scratch, file: Option<&str>, arguments: &[&str], stdin: &[u8]) -> Result<Settings, String> {
    let file = file.map(|file| scratch.0.join(file).into_os_string());
    let arguments: Vec<OsString> = file.into_iter().chain(arguments.iter().map(OsString::from)).collect();
    let mut stdin = stdin;
    load(&CommandLine::parse(&arguments), &mut stdin).map(|loaded| loaded.settings).map_err(|error| error.to_string())
}

/// Writes `text` into a file after what a run needs, starts both with it and with `arguments`, and compares whether
/// they take it, and then the values of `names`.
#[track_caller]
fn check(rule: &str, text: &str, arguments: &[&str], names: &[&str]) {
    let scratch = Scratch::new();
    let dir = scratch.0.display();
    std::fs::create_dir(scratch.0.join("below")).unwrap();
    scratch.write("conf.d/a.conf", "timeout 11\n");
    scratch.write("conf.d/b.conf", "timeout 12\ntcp-backlog 99");
    scratch.write("conf.d/.hidden.conf", "timeout 13\n");
    scratch.write("redis.conf", format!("dir {dir}\nport 0\nunixsocket {dir}/redis.sock\n{text}\n"));
    let file = scratch.0.join("redis.conf");
    let with_file: Vec<&str> = std::iter::once(file.to_str().unwrap()).chain(arguments.iter().copied()).collect();
    let theirs = Redis::start(&scratch.0, &with_file, b"timeout 77\n");
    let ours = ours(&scratch, Some("redis.conf"), arguments, b"timeout 77\n");
    match (theirs, ours) {
        (None, Err(_)) => {}
        (Some(mut theirs), Ok(ours)) => {
            for name in names {
                let theirs = theirs.call(&[b"CONFIG", b"GET", name.as_bytes()]).unwrap();
                let ours = flat(ours.get(&[name.as_bytes()]));
                assert_eq!(lossy(&ours), lossy(&theirs), "{rule}: {name}");
            }
        }
        (theirs, ours) => panic!("{rule}: Redis takes it: {}, Haypile: {ours:?}", theirs.is_some()),
    }
}

fn flat(pairs: Vec<(String, Vec<u8>)>) -> Vec<Vec<u8>> {
    pairs.into_iter().flat_map(|(name, value)| [name.into_bytes(), value]).collect()
}

fn lossy(texts: &[Vec<u8>]) -> Vec<String> {
    texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}

#[test]
fn files_are_taken_or_refused_as_by_redis() {
    check("an empty file", "", &[], &["timeout"]);
    check("a comment and blanks", "  # comment\n\t\n timeout   5\t\r", &[], &["timeout"]);
    check("a comment cannot follow a value", "timeout 5 # five", &[], &[]);
    check("the last line wins", "timeout 5\ntimeout 6", &[], &["timeout"]);
    check("names in any case", "TimeOut 5\nAPPENDFSYNC Always", &[], &["timeout", "appendfsync"]);
    check("an unknown directive", "tiemout 5", &[], &[]);
    check("no value", "timeout", &[], &[]);
    check("two values", "timeout 5 6", &[], &[]);
    check("an open quote", "logfile \"a", &[], &[]);
    check("a quote inside a word", "syslog-ident a\"b", &[], &[]);
    check("text after a quote", "syslog-ident \"a\"b", &[], &[]);
    check("escapes", r#"syslog-ident "a\x41\t\"b\q""#, &[], &["syslog-ident"]);
    check("single quotes", r"syslog-ident 'a\'b\n'", &[], &["syslog-ident"]);
    check("a quoted name", "\"timeout\" 5", &[], &["timeout"]);
    check("an empty text", "syslog-ident \"\"", &[], &["syslog-ident"]);
}

#[test]
fn values_are_taken_or_refused_as_by_redis() {
    check(
        "units",
        "maxmemory 1k\nproto-max-bulk-len 2MB\nclient-query-buffer-limit 1gB",
        &[],
        &["maxmemory", "proto-max-bulk-len", "client-query-buffer-limit"],
    );
    check("bytes", "maxmemory 12b", &[], &["maxmemory"]);
    check("powers of ten", "maxmemory 3m\nrepl-backlog-size 2g", &[], &["maxmemory", "repl-backlog-size"]);
    check("no such unit", "maxmemory 1t", &[], &[]);
    check("negative bytes", "maxmemory -1", &[], &[]);
    check("a fraction", "maxmemory 1.5gb", &[], &[]);
    check("no digits", "maxmemory mb", &[], &["maxmemory"]);
    check("too few bytes", "proto-max-bulk-len 1023kb", &[], &[]);
    check("more bytes than there are numbers", "maxmemory 99999999999999999999999", &[], &["maxmemory"]);
    check("a share", "maxmemory-clients 5%", &[], &["maxmemory-clients"]);
    check("too large a share", "maxmemory-clients 101%", &[], &[]);
    check("a negative share", "maxmemory-clients -5%", &[], &[]);
    check("a plus sign", "timeout +5", &[], &[]);
    check("a leading zero", "timeout 05", &[], &[]);
    check("a hexadecimal number", "timeout 0x5", &[], &[]);
    check("minus zero", "timeout -0", &[], &[]);
    check("out of range", "databases 0", &[], &[]);
    check("the largest", "timeout 2147483647", &[], &["timeout"]);
    check("one more", "timeout 2147483648", &[], &[]);
    check("more than 64 bits", "timeout 99999999999999999999", &[], &[]);
    check("a negative number", "slowlog-log-slower-than -1", &[], &["slowlog-log-slower-than"]);
    check("hz is moved into its range", "hz 100000", &[], &["hz"]);
    check("yes and no in any case", "dynamic-hz NO\ndaemonize no", &[], &["dynamic-hz", "daemonize"]);
    check("neither yes nor no", "dynamic-hz true", &[], &[]);
    check("a choice", "maxmemory-policy AllKeys-LRU", &[], &["maxmemory-policy"]);
    check("no such choice", "maxmemory-policy lru", &[], &[]);
    check("a choice with two names", "oom-score-adj relative", &[], &["oom-score-adj"]);
    check("an octal mode", "unixsocketperm 0750", &[], &["unixsocketperm"]);
    check("an octal mode with a nine", "unixsocketperm 790", &[], &[]);
    check("too large an octal mode", "unixsocketperm 1000", &[], &[]);
    check("a negative octal mode", "unixsocketperm -1", &[], &[]);
    check("flags", "shutdown-on-sigterm now FORCE", &[], &["shutdown-on-sigterm"]);
    check("flags that exclude each other", "shutdown-on-sigterm save nosave", &[], &[]);
    check("a path for a file name", "dbfilename a/b", &[], &[]);
    check("an empty file name", "appendfilename \"\"", &[], &[]);
    check("a title", "proc-title-template \"{title} x {port}\"", &[], &["proc-title-template"]);
    check("an unknown variable", "proc-title-template {foo}", &[], &[]);
    check("an open variable", "proc-title-template {title", &[], &[]);
    check("a hostname", "cluster-announce-hostname a-b.c", &[], &["cluster-announce-hostname"]);
    check("no hostname", "cluster-announce-hostname a_b", &[], &[]);
}

#[test]
fn values_of_several_words_are_taken_or_refused_as_by_redis() {
    check("save points add up", "save 1 2\nsave 3 4 5 6", &[], &["save"]);
    check("one word of save points", "save \"1 2 3 4\"", &[], &["save"]);
    check("no save points", "save \"\"", &[], &["save"]);
    check("save points, then none", "save 1 2\nsave \"\"", &[], &["save"]);
    check("save points after none", "save \"\"\nsave 1 2", &[], &["save"]);
    check("half a save point", "save 1 2 3", &[], &[]);
    check("a save point of no time", "save 0 1", &[], &[]);
    check("save without words", "save", &[], &["save"]);
    let limits = "client-output-buffer-limit";
    check("limits of one class", &format!("{limits} pubsub 1mb 2kb 3"), &[], &[limits]);
    check("limits of two classes", &format!("{limits} normal 1 2 3 replica 4 5 6"), &[], &[limits]);
    check("limits line by line", &format!("{limits} normal 1 2 3\n{limits} slave 4 5 6"), &[], &[limits]);
    check("limits of no class", &format!("{limits} master 1 2 3"), &[], &[]);
    check("too few limits", &format!("{limits} normal 1 2"), &[], &[]);
    check("a bad limit", &format!("{limits} normal x 2 3"), &[], &[]);
    check("negative seconds", &format!("{limits} normal 1 2 -3"), &[], &[]);
    check("no addresses", "bind \"\"", &[], &["bind"]);
    check("an address", "bind 127.0.0.1 -::1", &[], &["bind"]);
    check("one word of addresses", "bind \"127.0.0.1 -::1\"", &[], &["bind"]);
    check("too many addresses", &format!("bind {}", "127.0.0.1 ".repeat(17)), &[], &[]);
    check("scores", "oom-score-adj-values 1 20 300", &[], &["oom-score-adj-values"]);
    check("too few scores", "oom-score-adj-values 1 20", &[], &[]);
    check("percentiles", "latency-tracking-info-percentiles 50 99.90 100", &[], &["latency-tracking-info-percentiles"]);
    check("no percentiles", "latency-tracking-info-percentiles \"\"", &[], &["latency-tracking-info-percentiles"]);
    check("a bad percentile", "latency-tracking-info-percentiles 101", &[], &[]);
    check("no percentile", "latency-tracking-info-percentiles x", &[], &[]);
    check("no such event", "notify-keyspace-events KEQ", &[], &[]);
    check("no events", "notify-keyspace-events \"\"", &[], &["notify-keyspace-events"]);
    check("no master", "replicaof no one", &[], &["replicaof"]);
    check("half a master", "replicaof no", &[], &[]);
}

#[test]
fn other_lines_are_taken_or_refused_as_by_redis() {
    check(
        "an old name",
        "slave-priority 7\nlua-time-limit 9",
        &[],
        &["replica-priority", "slave-priority", "busy-reply-threshold"],
    );
    check("a name without effect", "list-max-ziplist-entries 5\nlua-replicate-commands yes", &[], &["timeout"]);
    check("a name without effect and without value", "list-max-ziplist-entries", &[], &[]);
    check("an included file", "include conf.d/a.conf", &[], &["timeout"]);
    check("what follows an included file wins", "include conf.d/a.conf\ntimeout 3", &[], &["timeout"]);
    check("a missing included file", "include conf.d/c.conf", &[], &[]);
    check("included files by pattern, in order", "include conf.d/*.conf", &[], &["timeout", "tcp-backlog"]);
    check("an included pattern of a class", "include conf.d/[a].conf", &[], &["timeout"]);
    check("a pattern without files", "include conf.d/x*.conf", &[], &["timeout"]);
    check("a path from dir", "dir below\ninclude ../conf.d/a.conf", &[], &["timeout", "dir"]);
    check("a missing directory", "dir nowhere", &[], &[]);
    check("a file for a directory", "dir redis.conf", &[], &[]);
    check("a command without a name", "rename-command get", &[], &[]);
    check("two commands with new names", "rename-command get abc\nrename-command SET \"\"", &[], &["timeout"]);
    check("a directive of Sentinel", "sentinel monitor a 127.0.0.1 1 1", &[], &[]);
    check("the default user", "user default on nopass sanitize-payload ~* &* +@all", &[], &["timeout"]);
}

#[test]
fn command_lines_are_taken_or_refused_as_by_redis() {
    check("a directive", "", &["--timeout", "5"], &["timeout"]);
    check("the command line wins", "timeout 5", &["--timeout", "6"], &["timeout"]);
    check("two directives", "", &["--timeout", "5", "--maxmemory", "1mb"], &["timeout", "maxmemory"]);
    check("name and value in one argument", "", &["--timeout 5"], &["timeout"]);
    check("name with a blank", "", &["--timeout ", "5"], &["timeout"]);
    check("no dashes", "", &["timeout", "5"], &[]);
    check("one dash", "", &["-timeout", "5"], &[]);
    check(
        "several values",
        "",
        &["--client-output-buffer-limit", "normal", "1", "2", "3"],
        &["client-output-buffer-limit"],
    );
    check("several values in one argument", "", &["--bind", "127.0.0.1 -::1"], &["bind"]);
    check("a value with blanks", "", &["--syslog-ident", "a b"], &["syslog-ident"]);
    check("a value with quotes and escapes", "", &["--syslog-ident", "a\"\\n\n"], &["syslog-ident"]);
    check("an empty value", "", &["--syslog-ident", ""], &["syslog-ident"]);
    check("a value with dashes", "", &["--syslog-ident", "--x"], &["syslog-ident"]);
    check("a missing value at the end", "", &["--timeout"], &[]);
    check("a missing value", "", &["--timeout", "--hz", "3"], &[]);
    check("save with an empty value", "save 1 2", &["--save", ""], &["save"]);
    check("save without a value at the end", "", &["--save"], &["save"]);
    check("save without a value", "", &["--save", "--timeout", "3"], &["save", "timeout"]);
    check("save points", "", &["--save", "1", "2", "--save", "3", "4"], &["save"]);
    check("standard input", "timeout 5", &["-"], &["timeout"]);
    check("standard input before the directives", "timeout 5", &["--hz", "3", "-"], &["timeout", "hz"]);
    check("standard input and a directive that wins", "timeout 5", &["--timeout", "3", "-"], &["timeout"]);
    check("a dash in the middle is a value", "", &["--syslog-ident", "-", "--hz", "3"], &["syslog-ident", "hz"]);
    check("an include", "", &["--include", "conf.d/a.conf"], &["timeout"]);
    check("an unknown directive", "", &["--tiemout", "5"], &[]);
}

/// Directives whose defaults are deliberately others than Redis's: ours and theirs. docs/compatibility.md says why.
const OTHER_DEFAULTS: [(&str, &str, &str); 1] = [("maxmemory-clients", "50%", "0")];

#[test]
fn no_more_defaults_differ_than_are_named() {
    for (name, ours, _) in OTHER_DEFAULTS {
        assert_eq!(table::find(name.as_bytes()).map(|found| found.row.default), Some(ours), "{name}");
    }
}

#[test]
fn defaults_are_those_of_redis_and_every_directive_of_it_is_known() {
    let scratch = Scratch::new();
    let mut redis = Redis::plain(&scratch.0);
    let ours = Settings::defaults(&scratch.0);
    ours.set(&OTHER_DEFAULTS.map(|(name, _, theirs)| (name.as_bytes(), theirs.as_bytes()))).unwrap();
    let theirs = redis.call(&[b"CONFIG", b"GET", b"*"]).unwrap();
    assert!(theirs.len() > 380, "names and values: {}", theirs.len());
    for pair in theirs.chunks(2) {
        let name = String::from_utf8(pair[0].clone()).unwrap();
        let found = table::find(name.as_bytes()).unwrap_or_else(|| panic!("{name} is not in the table"));
        assert!(!found.row.hidden && !found.row.ours, "{name}");
        if !OF_THE_RUN.contains(&name.as_str()) {
            let ours = ours.get(&[name.as_bytes()]);
            assert_eq!(String::from_utf8_lossy(&ours[0].1), String::from_utf8_lossy(&pair[1]), "{name}");
        }
        // An immutable directive is refused before its value is looked at.
        let set = redis.call(&[b"CONFIG", b"SET", name.as_bytes(), &pair[1]]);
        let immutable = set.as_ref().is_err_and(|error| error.contains("can't set immutable"));
        if name != "dir" {
            assert_eq!(found.row.immutable, immutable, "{name}: {set:?}");
        }
        assert_eq!(
            found.row.protected,
            set.as_ref().is_err_and(|error| error.contains("can't set protected")),
            "{name}: {set:?}"
        );
    }
}

/// Arguments of CONFIG SET, in the order in which they are set.
const SET: &[&[&str]] = &[
    &["maxmemory", "100mb"],
    &["MaxMemory", "1gb"],
    &["maxmemory", "x"],
    &["maxmemory", ""],
    &["maxmemory-clients", "5x"],
    &["maxmemory-clients", "101%"],
    &["maxmemory-clients", "7%"],
    &["proto-max-bulk-len", "1"],
    &["timeout", "-1"],
    &["timeout", "x"],
    &["timeout", "1.5"],
    &["timeout", "10", "hz", "20"],
    &["timeout", "11", "hz", "x"],
    &["timeout", "12", "TIMEOUT", "13"],
    &["replica-priority", "12", "slave-priority", "13"],
    &["timeout", "14", "nosuch", "15"],
    &["nosuch", "15"],
    &["nosuch\0rest", "15"],
    &["databases", "3", "nosuch", "1"],
    &["databases", "3"],
    &["dir", "/"],
    &["dbfilename", "x"],
    &["appendonly", "maybe"],
    &["slave-serve-stale-data", "maybe"],
    &["maxmemory-policy", "lru"],
    &["maxmemory-policy", "ALLKEYS-lru"],
    &["appendfsync", "x"],
    &["oom-score-adj", "x"],
    &["hz", "0"],
    &["hz", "9999"],
    &["save", "1 2 3 4"],
    &["save", "5 6"],
    &["save", "1 2  3 4"],
    &["save", "1 2 3"],
    &["save", ""],
    &["client-output-buffer-limit", "normal 1 2"],
    &["client-output-buffer-limit", "norml 1 2 3"],
    &["client-output-buffer-limit", "normal 1 x 3"],
    &["client-output-buffer-limit", "replica 1kb 2kb 3"],
    &["latency-tracking-info-percentiles", "1 2.50 99.999"],
    &["latency-tracking-info-percentiles", "101"],
    &["latency-tracking-info-percentiles", "x"],
    &["latency-tracking-info-percentiles", ""],
    &["shutdown-on-sigterm", "save nosave"],
    &["shutdown-on-sigterm", "save x"],
    &["shutdown-on-sigterm", "save now"],
    &["oom-score-adj-values", "1 2 3000"],
    &["oom-score-adj-values", "1 2 3"],
    &["notify-keyspace-events", "KEQ"],
    &["proc-title-template", "{foo}"],
    &["proc-title-template", ""],
    &["proc-title-template", " {title} "],
    &["proc-title-template", "{{title}"],
    &["proc-title-template", "{title} {port}"],
    &["cluster-announce-hostname", "a_b"],
    &["unixsocketperm", "777"],
    &["requirepass", ""],
    &["appendfsync", "always"],
    &["appendfsync", "no"],
];

#[test]
fn config_set_answers_as_redis_does() {
    let scratch = Scratch::new();
    let mut redis = Redis::plain(&scratch.0);
    let ours = Settings::defaults(&scratch.0);
    ours.set(&[(b"save", b"")]).unwrap();
    ours.set(&OTHER_DEFAULTS.map(|(name, _, theirs)| (name.as_bytes(), theirs.as_bytes()))).unwrap();
    for case in SET {
        let words: Vec<&[u8]> =
            [b"CONFIG".as_slice(), b"SET"].into_iter().chain(case.iter().map(|word| word.as_bytes())).collect();
        let theirs = redis.call(&words).map(|_| ());
        let pairs: Vec<(&[u8], &[u8])> = case.chunks(2).map(|pair| (pair[0].as_bytes(), pair[1].as_bytes())).collect();
        let answer = ours.set(&pairs).map(|_| ());
        assert_eq!(answer, theirs, "CONFIG SET {case:?}");
        for name in case.iter().step_by(2).filter(|name| !OF_THE_RUN[..3].contains(name)) {
            let theirs = redis.call(&[b"CONFIG", b"GET", name.as_bytes()]).unwrap();
            assert_eq!(
                lossy(&flat(ours.get(&[name.as_bytes()]))),
                lossy(&theirs),
                "CONFIG GET {name} after CONFIG SET {case:?}"
            );
        }
    }
}

#[test]
fn config_get_finds_the_names_that_redis_finds() {
    let scratch = Scratch::new();
    let mut redis = Redis::plain(&scratch.0);
    let ours = Settings::defaults(&scratch.0);
    let cases: &[&[&str]] = &[
        &["max*"],
        &["MAXMEMORY*"],
        &["Timeout"],
        &["Timeout", "TIMEOUT", "time*"],
        &["*slave*", "*replica*"],
        &["hash-max-[lz]i*"],
        &["[^a-y]*"],
        &["nosuch"],
        &["watchdog-period"],
        &["watchdog*"],
        &["t?meout"],
        &["include"],
        &["[z-A]*"],
        &["\\timeout"],
    ];
    // New in 7.2 or later, or ours.
    let only_here = |name: &String| {
        let row = table::find(name.as_bytes()).expect("it was found").row;
        row.ours
            || name.starts_with("commandlog-")
            || [
                "set-max-listpack-entries",
                "set-max-listpack-value",
                "locale-collate",
                "cluster-announce-human-nodename",
                "stream-idmp-duration",
                "stream-idmp-maxsize",
            ]
            .contains(&row.name)
    };
    for case in cases {
        let words: Vec<&[u8]> =
            [b"CONFIG".as_slice(), b"GET"].into_iter().chain(case.iter().map(|word| word.as_bytes())).collect();
        let mut theirs: Vec<String> = lossy(&redis.call(&words).unwrap()).into_iter().step_by(2).collect();
        let patterns: Vec<&[u8]> = case.iter().map(|word| word.as_bytes()).collect();
        let mut found: Vec<String> =
            ours.get(&patterns).into_iter().map(|(name, _)| name).filter(|name| !only_here(name)).collect();
        theirs.sort();
        found.sort();
        assert_eq!(found, theirs, "CONFIG GET {case:?}");
    }
}

#[test]
fn patterns_match_what_they_match_in_redis() {
    let scratch = Scratch::new();
    let mut redis = Redis::plain(&scratch.0);
    let seed = 20_240_817;
    let mut random = Random(seed);
    let mut text = |alphabet: &[u8], longest: usize| -> Vec<u8> {
        let length = 1 + random.below(longest);
        (0..length).map(|_| alphabet[random.below(alphabet.len())]).collect()
    };
    let keys: Vec<Vec<u8>> = (0..400).map(|_| text(b"abcABZ-]^[\\*?\xe9\x80\x7f", 5)).collect();
    for key in &keys {
        redis.call(&[b"SET", key, b""]).unwrap();
    }
    for _ in 0..4000 {
        let pattern = text(b"aabbcABZ**?[[]^--\\\xe9\x80", 9);
        if pattern == b"*" {
            continue;
        }
        let mut theirs = redis.call(&[b"KEYS", &pattern]).unwrap();
        theirs.sort();
        let mut ours: Vec<Vec<u8>> = keys.iter().filter(|key| glob::matches(&pattern, key, false)).cloned().collect();
        ours.sort();
        ours.dedup();
        assert_eq!(lossy(&ours), lossy(&theirs), "seed {seed}, KEYS {:?}", String::from_utf8_lossy(&pattern));
    }
}
