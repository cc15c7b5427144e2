//! Makes a case: a sequence of steps over all commands that the server has, from a seed and the number of the case.
//!
//! Each case uses a random part of the commands ("swarm testing", Groce et al. 2012): a few commands that meet often find
//! more than all of them rarely. Some commands are then spoiled: an argument lost, doubled, replaced, added.
//! It never asks a server; what it knows of a connection (is it in MULTI?) is a guess that only shapes the odds.

use super::arguments::Arguments;
use super::bitmaps;
use super::clients;
use super::geos;
use super::groups;
use super::hashes;
use super::hyperloglogs;
use super::lists;
use super::sequence::{CONNECTIONS, Command, Sequence, Step};
use super::sets;
use super::sorting;
use super::streams;
use super::zsets;
use crate::random::Random;

type Make = fn(&mut Arguments) -> Command;

/// Commands by how often they come, and what makes them.
const COMMANDS: &[(u64, Make)] = &[
    // Strings.
    (8, |a| vec![a.word("GET"), a.key()]),
    (14, set),
    (2, |a| vec![a.word("SETEX"), a.key(), a.ttl(1000), a.value()]),
    (2, |a| vec![a.word("PSETEX"), a.key(), a.ttl(1), a.value()]),
    (3, |a| vec![a.word("SETNX"), a.key(), a.value()]),
    (3, |a| vec![a.word("GETSET"), a.key(), a.value()]),
    (5, getex),
    (3, |a| vec![a.word("GETDEL"), a.key()]),
    (4, |a| many(a, "MGET", false)),
    (4, |a| many(a, "MSET", true)),
    (3, |a| many(a, "MSETNX", true)),
    (4, |a| vec![a.word("INCR"), a.key()]),
    (3, |a| vec![a.word("DECR"), a.key()]),
    (4, |a| vec![a.word("INCRBY"), a.key(), a.number()]),
    (3, |a| vec![a.word("DECRBY"), a.key(), a.number()]),
    (5, |a| vec![a.word("INCRBYFLOAT"), a.key(), a.float()]),
    (4, lcs),
    (7, |a| vec![a.word("APPEND"), a.key(), a.value()]),
    (4, |a| vec![a.word("STRLEN"), a.key()]),
    (6, |a| vec![a.word("GETRANGE"), a.key(), a.index(), a.index()]),
    (2, |a| vec![a.word("SUBSTR"), a.key(), a.index(), a.index()]),
    (8, |a| vec![a.word("SETRANGE"), a.key(), a.write_offset(), a.value()]),
    // Bits of strings.
    (24, bitmaps::bitmap),
    // HyperLogLogs.
    (10, hyperloglogs::pfadd),
    (16, hyperloglogs::other),
    // Hashes.
    (14, hashes::hset),
    (30, hashes::other),
    // Sets.
    (14, sets::sadd),
    (34, sets::other),
    // Lists.
    (44, lists::list),
    // Sorted sets.
    (16, zsets::zadd),
    (34, zsets::other),
    // Places.
    (14, geos::geoadd),
    (34, geos::other),
    // Streams.
    (16, streams::xadd),
    (28, streams::other),
    (14, groups::xreadgroup),
    (34, groups::other),
    // Keys.
    (4, |a| many(a, "DEL", false)),
    (2, |a| many(a, "UNLINK", false)),
    (4, |a| many(a, "EXISTS", false)),
    (2, |a| many(a, "TOUCH", false)),
    (6, sorting::sort),
    (4, copy),
    (3, |a| vec![a.word("MOVE"), a.key(), a.database()]),
    (2, |a| vec![a.word("TYPE"), a.key()]),
    (5, |a| expire(a, "EXPIRE", Arguments::ttl, 1000)),
    (4, |a| expire(a, "PEXPIRE", Arguments::ttl, 1)),
    (4, |a| expire(a, "EXPIREAT", Arguments::deadline, 1000)),
    (5, |a| expire(a, "PEXPIREAT", Arguments::deadline, 1)),
    (2, |a| vec![a.word("TTL"), a.key()]),
    (2, |a| vec![a.word("PTTL"), a.key()]),
    (2, |a| vec![a.word("EXPIRETIME"), a.key()]),
    (3, |a| vec![a.word("PEXPIRETIME"), a.key()]),
    (3, |a| vec![a.word("PERSIST"), a.key()]),
    (2, scan),
    (3, |a| vec![a.word("KEYS"), a.pattern()]),
    (1, |a| vec![a.word("RANDOMKEY")]),
    (4, |a| vec![a.word("RENAME"), a.key(), a.key()]),
    (4, |a| vec![a.word("RENAMENX"), a.key(), a.key()]),
    (2, |a| vec![a.word("DBSIZE")]),
    (1, |a| flush(a, "FLUSHDB")),
    (1, |a| flush(a, "FLUSHALL")),
    (2, |a| vec![a.word("SWAPDB"), a.database(), a.database()]),
    // Connections.
    (3, |a| vec![a.word("SELECT"), a.database()]),
    (1, ping),
    (1, |a| vec![a.word("ECHO"), a.value()]),
    (1, hello),
    (4, clients::client),
    (1, clients::auth),
    (1, |a| vec![a.word("RESET")]),
    (1, clients::pubsub),
    (1, clients::publish),
    // Transactions.
    (5, |a| vec![a.word("MULTI")]),
    (5, |a| vec![a.word("EXEC")]),
    (1, |a| vec![a.word("DISCARD")]),
    (4, |a| many(a, "WATCH", false)),
    (1, |a| vec![a.word("UNWATCH")]),
    // The server.
    (1, |a| if a.random.percent(30) { vec![a.word("INFO"), a.word("keyspace")] } else { info(a) }),
    (1, config_get),
    (1, config_set),
    (1, |a| vec![a.word("CONFIG"), a.word("RESETSTAT")]),
    (1, |a| vec![a.word("CONFIG"), a.word("REWRITE")]),
    (1, |a| vec![a.word("SAVE")]),
    (1, bgsave),
    (1, |a| vec![a.word("LASTSAVE")]),
    (1, slowlog),
    (1, latency),
    (1, command_table),
    (1, shutdown_refused),
    // What is inside.
    (3, object),
    (1, memory),
    (2, debug),
    // A node by itself.
    (1, node),
    (1, wait),
    (1, cluster),
    (1, unknown),
];

/// Cases of consumer groups alone: among all others few of them come so far that something is pending.
const OF_GROUPS: &[(u64, Make)] = &[
    (30, groups::xreadgroup),
    (80, groups::other),
    (1, |a| many(a, "DEL", false)),
    (4, |a| vec![a.word("MULTI")]),
    (5, |a| vec![a.word("EXEC")]),
    (2, |a| many(a, "WATCH", false)),
];

pub(super) fn set(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("SET"), a.key(), a.value()];
    while a.random.percent(35) {
        match a.random.below(9) {
            0 => command.push(a.word("NX")),
            1 => command.push(a.word("XX")),
            2 => command.push(a.word("GET")),
            3 => command.push(a.word("KEEPTTL")),
            _ => deadline_option(a, &mut command),
        }
    }
    command
}

/// EX, PX, EXAT or PXAT and its argument.
fn deadline_option(a: &mut Arguments, command: &mut Command) {
    let (word, value): (&str, Vec<u8>) = match a.random.below(4) {
        0 => ("EX", a.ttl(1000)),
        1 => ("PX", a.ttl(1)),
        2 => ("EXAT", a.deadline(1000)),
        _ => ("PXAT", a.deadline(1)),
    };
    command.extend([a.word(word), value]);
}

pub(super) fn getex(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("GETEX"), a.key()];
    match a.random.below(10) {
        0..=2 => {}
        3..=4 => command.push(a.word("PERSIST")),
        5 => {
            command.push(a.word("PERSIST"));
            deadline_option(a, &mut command);
        }
        _ => deadline_option(a, &mut command),
    }
    command
}

fn lcs(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("LCS"), a.key(), a.key()];
    while a.random.percent(50) {
        match a.random.below(5) {
            0 => command.push(a.word("LEN")),
            1 => command.push(a.word("WITHMATCHLEN")),
            2 => command.extend([a.word("MINMATCHLEN"), a.number()]),
            _ => command.push(a.word("IDX")),
        }
    }
    command
}

pub(super) fn copy(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("COPY"), a.key(), a.key()];
    while a.random.percent(40) {
        match a.random.below(2) {
            0 => command.push(a.word("REPLACE")),
            _ => command.extend([a.word("DB"), a.database()]),
        }
    }
    command
}

/// A command over several keys, each with a value if `pairs`.
pub(super) fn many(a: &mut Arguments, name: &str, pairs: bool) -> Command {
    let mut command = vec![a.word(name)];
    for _ in 0..a.random.between(1, 4) {
        command.push(a.key());
        if pairs {
            command.push(a.value());
        }
    }
    command
}

pub(super) fn expire(a: &mut Arguments, name: &str, when: fn(&mut Arguments, i64) -> Vec<u8>, unit_ms: i64) -> Command {
    let mut command = vec![a.word(name), a.key(), when(a, unit_ms)];
    while a.random.percent(30) {
        let option = *a.random.pick(&["NX", "XX", "GT", "LT", "ZZ"]);
        command.push(a.word(option));
    }
    command
}

fn scan(a: &mut Arguments) -> Command {
    let cursor = match a.random.below(4) {
        0 => a.odd(),
        _ => b"0".to_vec(),
    };
    let mut command = vec![a.word("SCAN"), cursor];
    scan_options(a, &mut command, false);
    command
}

/// MATCH, COUNT and TYPE; only right ones if `right`.
fn scan_options(a: &mut Arguments, command: &mut Command, right: bool) {
    while a.random.percent(45) {
        let (word, value) = match a.random.below(7) {
            0..=2 => ("MATCH", a.pattern()),
            3..=4 if right => ("COUNT", a.random.between(1, 20).to_string().into_bytes()),
            3..=4 => ("COUNT", a.number()),
            _ => {
                ("TYPE", a.random.pick(&["string", "STRING", "list", "hash", "stream", "nothing"]).as_bytes().to_vec())
            }
        };
        command.extend([a.word(word), value]);
    }
}

fn flush(a: &mut Arguments, name: &str) -> Command {
    let mut command = vec![a.word(name)];
    match a.random.below(6) {
        0 => command.push(a.word("ASYNC")),
        1 => command.push(a.word("SYNC")),
        2 => command.push(a.odd()),
        _ => {}
    }
    command
}

pub(super) fn ping(a: &mut Arguments) -> Command {
    if a.random.percent(50) { vec![a.word("PING")] } else { vec![a.word("PING"), a.value()] }
}

/// At most one thing is wrong with it: 7.0 does what comes before a wrong option, 7.2 looks at all of them first.
pub(super) fn hello(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("HELLO")];
    if a.random.percent(15) {
        return command;
    }
    command.push(a.random.pick(&["2", "3", "3", "2", "1", "4", "x", ""]).as_bytes().to_vec());
    let good = [b"default".to_vec(), b"any".to_vec()];
    match a.random.below(10) {
        0 => {
            command.push(a.word("AUTH"));
            command.extend(good);
        }
        1 => {
            command.push(a.word("AUTH"));
            command.extend(good);
            command.extend([a.word("SETNAME"), b"me".to_vec()]);
        }
        2 => command.extend([a.word("SETNAME"), a.random.pick(&["me", "a b", ""]).as_bytes().to_vec()]),
        3 => command.extend([a.word("AUTH"), b"nobody".to_vec(), b"any".to_vec()]),
        4 => command.push(a.random.pick(&["NOSUCH", "AUTH", "SETNAME"]).as_bytes().to_vec()),
        _ => {}
    }
    command
}

fn info(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("INFO")];
    while a.random.percent(40) {
        let section = *a.random.pick(&["server", "memory", "stats", "everything", "all", "default", "nosuch"]);
        command.push(a.word(section));
    }
    command
}

fn slowlog(a: &mut Arguments) -> Command {
    let subcommand = *a.random.pick(&["GET", "GET", "LEN", "RESET", "NOSUCH"]);
    let mut command = vec![a.word("SLOWLOG"), a.word(subcommand)];
    while a.random.percent(30) {
        command.push(a.random.pick(&["0", "1", "-1", "-2", "x", "", "99999999999999999999"]).as_bytes().to_vec());
    }
    command
}

/// Events are not watched in these tests: there are none.
fn latency(a: &mut Arguments) -> Command {
    let subcommand = *a.random.pick(&["LATEST", "HISTORY", "GRAPH", "RESET", "HISTOGRAM", "DOCTOR", "NOSUCH"]);
    let mut command = vec![a.word("LATENCY"), a.word(subcommand)];
    while a.random.percent(50) {
        command.push(a.random.pick(&["command", "flush", "get", "config", "nosuch", ""]).as_bytes().to_vec());
    }
    command
}

fn config_get(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("CONFIG"), a.word("GET")];
    for _ in 0..a.random.between(1, 3) {
        let name = *a.random.pick(&["timeout", "databases", "tcp-keepalive", "TIMEOUT", "nosuch", "timeou[t]", ""]);
        command.push(name.as_bytes().to_vec());
    }
    command
}

/// Only settings that change nothing that a later step can see, other than CONFIG GET.
fn config_set(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("CONFIG"), a.word("SET")];
    for _ in 0..a.random.between(1, 2) {
        let pair: [&str; 2] = *a.random.pick(&[
            ["timeout", "0"],
            ["timeout", "10000"],
            ["TIMEOUT", "9999"],
            ["timeout", "-1"],
            ["timeout", "x"],
            ["timeout", ""],
            ["timeout", "2147483648"],
            ["tcp-keepalive", "300"],
            ["tcp-keepalive", "100"],
            ["databases", "3"],
            ["nosuch", "1"],
        ]);
        command.extend(pair.map(|word| word.as_bytes().to_vec()));
    }
    command
}

fn bgsave(a: &mut Arguments) -> Command {
    match a.random.below(4) {
        0..=1 => vec![a.word("BGSAVE")],
        2 => vec![a.word("BGSAVE"), a.word("SCHEDULE")],
        _ => vec![a.word("BGSAVE"), a.odd()],
    }
}

/// Names of commands that exist on both sides, and some that exist nowhere.
const NAMES: &[&str] = &[
    "ping",
    "echo",
    "hello",
    "select",
    "quit",
    "command",
    "get",
    "set",
    "setex",
    "psetex",
    "setnx",
    "getset",
    "getex",
    "getdel",
    "hset",
    "hmset",
    "hgetall",
    "hrandfield",
    "hincrbyfloat",
    "sadd",
    "smove",
    "sinter",
    "sintercard",
    "sinterstore",
    "sunionstore",
    "srandmember",
    "zadd",
    "zmpop",
    "zunionstore",
    "zrangebyscore",
    "zrandmember",
    "bitcount",
    "bitfield",
    "bitop",
    "pfadd",
    "pfcount",
    "pfmerge",
    "pfdebug",
    "mget",
    "mset",
    "msetnx",
    "incr",
    "decr",
    "incrby",
    "decrby",
    "append",
    "strlen",
    "getrange",
    "substr",
    "setrange",
    "del",
    "unlink",
    "exists",
    "type",
    "expire",
    "pexpire",
    "expireat",
    "pexpireat",
    "ttl",
    "pttl",
    "expiretime",
    "pexpiretime",
    "persist",
    "scan",
    "keys",
    "randomkey",
    "rename",
    "renamenx",
    "dbsize",
    "flushdb",
    "flushall",
    "swapdb",
    "multi",
    "exec",
    "discard",
    "watch",
    "unwatch",
    "info",
    "auth",
    "reset",
    "monitor",
    "subscribe",
    "unsubscribe",
    "psubscribe",
    "punsubscribe",
    "ssubscribe",
    "sunsubscribe",
    "publish",
    "spublish",
    "pubsub|channels",
    "pubsub|shardnumsub",
    "client|list",
    "client|kill",
    "client|no-evict",
    "client|pause",
    "client|reply",
    "client|unblock",
    "client|trackinginfo",
    "shutdown",
    "save",
    "bgsave",
    "lastsave",
    "nosuch",
    "GET",
];

fn command_table(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("COMMAND")];
    match a.random.below(8) {
        0 => command.push(a.word("COUNT")),
        1..=3 => {
            command.push(a.word("INFO"));
            for _ in 0..a.random.between(1, 3) {
                command.push(a.random.pick(NAMES).as_bytes().to_vec());
            }
        }
        4 => command.extend([a.word("DOCS"), a.random.pick(NAMES).as_bytes().to_vec()]),
        5 => command.push(a.word("NOSUCH")),
        _ => {
            let word = if a.random.percent(50) { "GETKEYS" } else { "GETKEYSANDFLAGS" };
            command.push(a.word(word));
            let words = *a.random.pick(&[
                "GET a",
                "GET a b",
                "MSET a 1 b 2",
                "MSET a 1 b",
                "DEL a b c",
                "RENAME a b",
                "PING a",
                "NOSUCH a",
                "SET a 1 EX 1",
                "SET a 1 GET",
                "COPY a b REPLACE",
                "LCS a b",
                "MOVE a 1",
                "MGET x y",
                "SWAPDB 0 1",
                "WATCH a b",
                "SSUBSCRIBE a b",
                "SUNSUBSCRIBE",
                "SPUBLISH a b",
                "PUBLISH a b",
                "SUBSCRIBE a",
                "CLIENT ID",
                "",
            ]);
            command.extend(words.split_whitespace().map(|w| w.as_bytes().to_vec()));
        }
    }
    command
}

/// SHUTDOWN in the forms that do not stop a server. Never spoiled, because that might make one that does.
fn shutdown_refused(a: &mut Arguments) -> Command {
    let words = *a.random.pick(&["SHUTDOWN ABORT", "shutdown nosuch", "SHUTDOWN SAVE NOSAVE", "SHUTDOWN ABORT NOW"]);
    words.split_whitespace().map(|w| w.as_bytes().to_vec()).collect()
}

fn object(a: &mut Arguments) -> Command {
    let subcommand = *a.random.pick(&["ENCODING", "ENCODING", "REFCOUNT", "IDLETIME", "FREQ", "NOSUCH"]);
    vec![a.word("OBJECT"), a.word(subcommand), a.key()]
}

fn memory(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("MEMORY")];
    match a.random.below(8) {
        0 => command.push(a.word("DOCTOR")),
        1 => command.push(a.word("STATS")),
        2 => command.push(a.word("PURGE")),
        3 => command.push(a.word("MALLOC-STATS")),
        _ => {
            command.extend([a.word("USAGE"), a.key()]);
            if a.random.percent(30) {
                command.extend([a.word("SAMPLES"), a.number()]);
            }
        }
    }
    command
}

/// Only what changes nothing that a later step can see.
fn debug(a: &mut Arguments) -> Command {
    let words = *a.random.pick(&[
        "DIGEST",
        "DIGEST",
        "DIGEST-VALUE",
        "PROTOCOL string",
        "PROTOCOL integer",
        "PROTOCOL double",
        "PROTOCOL bignum",
        "PROTOCOL null",
        "PROTOCOL array",
        "PROTOCOL set",
        "PROTOCOL map",
        "PROTOCOL verbatim",
        "PROTOCOL true",
        "PROTOCOL nosuch",
        "ERROR hay",
        "SLEEP 0",
        "CHANGE-REPL-ID",
        "PAUSE-CRON 0",
        "QUICKLIST-PACKED-THRESHOLD 100",
        "QUICKLIST-PACKED-THRESHOLD 4gb",
        "REPLYBUFFER RESIZING 1",
        "REPLYBUFFER PEAK-RESET-TIME x",
        "STRUCTSIZE",
        "CLIENT-EVICTION",
        "HTSTATS 0",
        "HTSTATS 99",
        "NOSUCH",
    ]);
    let mut command: Command =
        std::iter::once(a.word("DEBUG")).chain(words.split_whitespace().map(|w| w.as_bytes().to_vec())).collect();
    match words {
        "DIGEST-VALUE" => command.extend([a.key(), a.key()]),
        "NOSUCH" if a.random.percent(60) => {
            let subcommand = *a.random.pick(&["OBJECT", "LISTPACK", "QUICKLIST", "HTSTATS-KEY"]);
            command = vec![a.word("DEBUG"), a.word(subcommand), a.key()];
        }
        _ => {}
    }
    command
}

/// What a node without replicas, modules and users of its own answers.
fn node(a: &mut Arguments) -> Command {
    let words = *a.random.pick(&[
        "ROLE",
        "REPLICAOF NO ONE",
        "SLAVEOF no one",
        "REPLICAOF host x",
        "REPLICAOF no two",
        "FAILOVER",
        "FAILOVER ABORT",
        "FAILOVER TO host 1 FORCE",
        "FAILOVER TO host x",
        "FAILOVER TIMEOUT 0",
        "FAILOVER TIMEOUT 5 FORCE",
        "FAILOVER nosuch",
        "MODULE LIST",
        "MODULE NOSUCH",
        "ACL WHOAMI",
        "ACL CAT",
        "ACL CAT transaction",
        "ACL CAT nosuch",
        "ACL GENPASS",
        "ACL GENPASS 7",
        "ACL GENPASS 0",
        "ACL GENPASS 4097",
        "ACL GENPASS x",
        "LOLWUT",
        "LOLWUT VERSION 5",
        "LOLWUT VERSION x",
        "READONLY",
        "READWRITE",
        "ASKING",
    ]);
    words.split_whitespace().map(|w| w.as_bytes().to_vec()).collect()
}

/// No wait is a long one.
fn wait(a: &mut Arguments) -> Command {
    let (replicas, timeout) = *a.random.pick(&[
        ("0", "0"),
        ("-1", "0"),
        ("1", "1"),
        ("1", "5"),
        ("2", "1"),
        ("1", "-1"),
        ("x", "1"),
        ("1", "x"),
        ("", "1"),
        ("1", "9223372036854775808"),
    ]);
    vec![a.word("WAIT"), replicas.into(), timeout.into()]
}

fn cluster(a: &mut Arguments) -> Command {
    let words = *a.random.pick(&[
        "INFO",
        "HELP",
        "KEYSLOT k",
        "KEYSLOT",
        "SLOTS",
        "SHARDS",
        "NODES",
        "MYID",
        "NOSUCH",
        "ADDSLOTS 1",
        "ADDSLOTSRANGE 1 2",
        "SETSLOT 1 STABLE",
        "FAILOVER",
        "RESET",
        "MEET host 1",
        "MEET host",
    ]);
    std::iter::once(a.word("CLUSTER")).chain(words.split_whitespace().map(|w| w.as_bytes().to_vec())).collect()
}

fn unknown(a: &mut Arguments) -> Command {
    let mut command = vec![a.random.pick(&["NOSUCH", "G ET", "", "get\n", "nosuch'x"]).as_bytes().to_vec()];
    while a.random.percent(60) {
        command.push(if a.random.percent(20) { vec![b'x'; 200] } else { a.value() });
        command.last_mut().expect("one was pushed").truncate(300);
    }
    command
}

/// Loses, doubles, replaces, swaps or adds an argument; not where that might do harm, nor where `hello` says why.
pub(super) fn spoil(a: &mut Arguments, command: &mut Command) {
    let names = |command: &Command| command.iter().any(|word| word.eq_ignore_ascii_case(b"setname"));
    // A wait may become one for ever, a node a replica of another, and no pause a long one.
    let dangerous: [&[u8]; 5] = [b"shutdown", b"wait", b"replicaof", b"slaveof", b"client"];
    if dangerous.iter().any(|name| command[0].eq_ignore_ascii_case(name))
        || command[0].eq_ignore_ascii_case(b"hello") && names(command)
    {
        return;
    }
    let at = a.random.below(command.len() as u64) as usize;
    match a.random.below(6) {
        0 if command.len() > 1 => {
            command.remove(at.max(1));
        }
        1 => command.truncate(1),
        2 if at > 0 => command[at] = a.odd(),
        3 => command.insert(at.max(1).min(command.len()), command[at].clone()),
        4 if at > 1 => command.swap(at, at - 1),
        _ => command.push(a.number()),
    }
}

/// How many random elements are asked for: few, none, or what is refused; never so many that a reply is huge.
pub(super) fn sample_count(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(10) {
        0 => a.odd(),
        1 => a.random.pick(&["-9223372036854775808", "9223372036854775808", "9223372036854775807"]).as_bytes().to_vec(),
        2..=5 => a.random.between(0, 90).to_string().into_bytes(),
        _ => format!("-{}", a.random.between(1, 90)).into_bytes(),
    }
}

/// Bytes that are not tidy RESP arrays: inline commands, and what parsers must refuse.
const RAW: &[&[u8]] = &[
    b"PING\r\n",
    b"PING\n",
    b"\r\n\r\nPING\r\n",
    b"  PING  \r\n",
    b"SET a b\r\nGET a\r\n",
    b"SET \"a b\" 'c d'\r\nGET \"a b\"\r\n",
    b"SET a \"\\x41\\n\\\"\"\r\nGET a\r\n",
    b"SET a 'it\\'s'\r\nGET a\r\n",
    b"SET a \"b\r\nPING\r\n",
    b"SET a \"b\"c\r\nPING\r\n",
    b"GET \"\"\r\n",
    b"NOSUCH 1 2\r\nPING\r\n",
    b"$5\r\nPING\r\n",
    b"*0\r\nPING\r\n",
    b"*-1\r\nPING\r\n",
    b"*-10\r\nPING\r\n",
    b"*x\r\nPING\r\n",
    b"*\r\nPING\r\n",
    b"*1 \r\n$4\r\nPING\r\n",
    b"*2147483648\r\nPING\r\n",
    b"*99999999999999999999\r\n",
    b"*1\r\n+PING\r\n",
    b"*1\r\nPING\r\n",
    b"*1\r\n$-1\r\nPING\r\n",
    b"*1\r\n$x\r\nPING\r\n",
    b"*1\r\n$\r\nPING\r\n",
    b"*1\r\n$536870913\r\n",
    b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n",
    b"*1\r\n$0\r\n\r\nPING\r\n",
    b"*1\r\n$4\r\nPI",
    b"*2\r\n$4\r\nECHO\r\n",
    b"*2\r\n$4\r\necho\r\n$5\r\na\r\nb\x00\r\n*1\r\n$4\r\nping\r\n",
    b"QUIT\r\nPING\r\n",
    b"*1\r\n$4\r\nQUIT\r\nPING\r\n",
    b"quit now\r\n",
    b"MULTI\r\nSET a 1\r\nNOSUCH\r\nEXEC\r\n",
];

/// A key whose deadline passes between two steps: set, maybe watched, waited for, looked at in many ways.
fn expiring(a: &mut Arguments, connection: usize, sequence: &mut Sequence) {
    let key = a.key();
    let mut first = vec![vec![b"SET".to_vec(), key.clone(), a.value(), b"PX".to_vec(), b"25".to_vec()]];
    let watched = a.random.percent(30);
    if watched {
        first.push(vec![b"WATCH".to_vec(), key.clone()]);
    }
    sequence.push(Step::Send { connection, commands: first });
    sequence.push(Step::Wait { ms: 30 });
    let mut then: Vec<Command> = if watched { vec![vec![b"MULTI".to_vec()]] } else { vec![] };
    // The first look must be one that removes the key for real in Redis too, so that DBSIZE agrees.
    let look: Make = *a.random.pick(&[
        |a: &mut Arguments| vec![a.word("EXISTS")],
        |a: &mut Arguments| vec![a.word("GET")],
        |a: &mut Arguments| vec![a.word("TTL")],
        |a: &mut Arguments| vec![a.word("DEL")],
        |a: &mut Arguments| vec![a.word("INCR")],
        |a: &mut Arguments| vec![a.word("PERSIST")],
        |a: &mut Arguments| vec![a.word("TYPE")],
        |a: &mut Arguments| vec![a.word("GETDEL")],
    ]);
    let mut command = look(a);
    command.push(key);
    then.push(command);
    if watched {
        then.push(vec![b"EXEC".to_vec()]);
    }
    sequence.push(Step::Send { connection, commands: then });
}

/// Case number `case` of `seed`.
pub fn generate(seed: u64, case: u64) -> Sequence {
    let mut random = Random::of_part(seed, case);
    let large = random.percent(12);
    let cool_per_mille = if random.percent(15) { 60 } else { 0 };
    let connections = *random.pick(&[1, 1, 2, 3]);
    let wanted = random.between(8, COMMANDS.len() as u64);
    let is_of_groups = random.percent(10);
    let table: Vec<_> = match is_of_groups {
        true => OF_GROUPS.iter().collect(),
        false => COMMANDS.iter().filter(|_| random.below(COMMANDS.len() as u64) < wanted).collect(),
    };
    let total = table.iter().map(|(weight, _)| weight).sum();
    let mut a = Arguments { random, large };

    let mut sequence = Vec::new();
    for connection in 0..connections {
        sequence.push(Step::Send { connection, commands: preamble(&mut a) });
    }
    if is_of_groups {
        sequence.push(Step::Send { connection: 0, commands: groups::beginning(&mut a) });
    }
    let mut in_multi = [false; CONNECTIONS];
    for _ in 0..a.random.between(10, 60) {
        let connection = a.random.below(connections as u64) as usize;
        if a.random.below(1000) < cool_per_mille {
            sequence.push(Step::Cool);
        }
        match a.random.below(200) {
            0 if !in_multi[connection] => expiring(&mut a, connection, &mut sequence),
            1..=3 => sequence.push(Step::Raw { bytes: a.random.pick(RAW).to_vec() }),
            4..=9 => {
                let mut command = vec![b"SCAN".to_vec()];
                scan_options(&mut a, &mut command, true);
                sequence.push(Step::Scan { connection, command });
            }
            11..=13 => {
                let name = *a.random.pick(&["HSCAN", "SSCAN", "ZSCAN"]);
                let command = vec![name.as_bytes().to_vec(), a.key()];
                sequence.push(Step::Scan { connection, command });
            }
            14..=15 if !in_multi[connection] => {
                let commands = sets::popped(&mut a);
                sequence.push(Step::Send { connection, commands });
            }
            10 => {
                sequence.push(Step::Send { connection, commands: vec![vec![a.word("QUIT")]] });
                in_multi[connection] = false;
            }
            _ => {
                let length = if a.random.percent(25) { a.random.between(2, 10) } else { 1 };
                let commands = (0..length).map(|_| next(&mut a, &table, total, &mut in_multi[connection])).collect();
                sequence.push(Step::Send { connection, commands });
            }
        }
    }
    sequence
}

/// What clients send when they connect.
fn preamble(a: &mut Arguments) -> Vec<Command> {
    let words = |line: &str| line.split_whitespace().map(|w| w.as_bytes().to_vec()).collect::<Command>();
    let mut commands = vec![match a.random.below(4) {
        0 => words("HELLO 3"),
        1 => words("HELLO 3 SETNAME tester"),
        2 => words("HELLO 2"),
        _ => words("PING"),
    }];
    if a.random.percent(20) {
        commands.push(words("CLIENT SETINFO LIB-NAME tester"));
        commands.push(words("CLIENT SETINFO lib-ver 1.0"));
    }
    commands
}

fn next(a: &mut Arguments, table: &[&(u64, Make)], total: u64, in_multi: &mut bool) -> Command {
    if *in_multi && a.random.percent(15) {
        *in_multi = false;
        return vec![a.word("EXEC")];
    }
    let mut ticket = a.random.below(total);
    let (_, make) = table
        .iter()
        .find(|(weight, _)| {
            let hit = ticket < *weight;
            ticket = ticket.saturating_sub(*weight);
            hit
        })
        .expect("the ticket is below the sum of the weights");
    let mut command = make(a);
    if a.random.percent(4) {
        spoil(a, &mut command);
    }
    if *in_multi && is_refused_by_7_0(&command) {
        command = vec![b"PING".to_vec()];
    }
    *in_multi = match command[0].to_ascii_lowercase().as_slice() {
        b"multi" => true,
        b"exec" | b"discard" | b"reset" => false,
        _ => *in_multi,
    };
    command
}

/// COMMAND GETKEYS and GETKEYSANDFLAGS of a single word, and CLIENT NO-TOUCH, which 7.2 runs: in a block, its refusal would
/// end the whole block on one side only.
fn is_refused_by_7_0(command: &Command) -> bool {
    if command[0].eq_ignore_ascii_case(b"client") && command.get(1).is_some_and(|w| w.eq_ignore_ascii_case(b"no-touch"))
    {
        return true;
    }
    let [name, subcommand, _] = &command[..] else { return false };
    let is_one = |word: &[u8]| subcommand.eq_ignore_ascii_case(word);
    name.eq_ignore_ascii_case(b"command") && (is_one(b"getkeys") || is_one(b"getkeysandflags"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::sequence::{from_text, to_text};

    #[test]
    fn a_seed_gives_the_same_case_again() {
        assert_eq!(generate(7, 3), generate(7, 3));
        assert_ne!(generate(7, 3), generate(7, 4));
    }

    #[test]
    fn every_case_survives_its_text_form() {
        for case in 0..200 {
            let sequence = generate(11, case);
            assert_eq!(from_text(&to_text(&sequence)).expect("written by us"), sequence, "case {case}");
        }
    }

    #[test]
    fn no_case_stops_a_server_or_makes_a_huge_value() {
        for case in 0..2000 {
            for step in generate(13, case) {
                let Step::Send { commands, .. } = step else { continue };
                for command in commands {
                    let name = command[0].to_ascii_lowercase();
                    assert!(name != b"shutdown" || command.len() > 1, "case {case}");
                    if name == b"setrange" && command.len() == 4 {
                        let offset = std::str::from_utf8(&command[2]).ok().and_then(|t| t.parse::<i64>().ok());
                        let huge = offset.is_some_and(|o| (8 << 20..536_870_911).contains(&o));
                        assert!(!huge, "case {case}");
                    }
                }
            }
        }
    }
}
