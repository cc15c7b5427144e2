//! Commands about the server itself: those that change nothing that a later step can see, and that wait for nobody.

use super::arguments::Arguments;
use super::sequence::Command;

pub(super) fn info(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("INFO")];
    while a.random.percent(40) {
        let section = *a.random.pick(&["server", "memory", "stats", "everything", "all", "default", "nosuch"]);
        command.push(a.word(section));
    }
    command
}

pub(super) fn slowlog(a: &mut Arguments) -> Command {
    let subcommand = *a.random.pick(&["GET", "GET", "LEN", "RESET", "NOSUCH"]);
    let mut command = vec![a.word("SLOWLOG"), a.word(subcommand)];
    while a.random.percent(30) {
        command.push(a.random.pick(&["0", "1", "-1", "-2", "x", "", "99999999999999999999"]).as_bytes().to_vec());
    }
    command
}

/// LATENCY and its subcommands. These tests watch no events: there are none.
pub(super) fn latency(a: &mut Arguments) -> Command {
    let subcommand = *a.random.pick(&["LATEST", "HISTORY", "GRAPH", "RESET", "HISTOGRAM", "DOCTOR", "NOSUCH"]);
    let mut command = vec![a.word("LATENCY"), a.word(subcommand)];
    while a.random.percent(50) {
        command.push(a.random.pick(&["command", "flush", "get", "config", "nosuch", ""]).as_bytes().to_vec());
    }
    command
}

pub(super) fn config_get(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("CONFIG"), a.word("GET")];
    for _ in 0..a.random.between(1, 3) {
        let name = *a.random.pick(&["timeout", "databases", "tcp-keepalive", "TIMEOUT", "nosuch", "timeou[t]", ""]);
        command.push(name.as_bytes().to_vec());
    }
    command
}

/// CONFIG SET of settings that change nothing that a later step can see, other than CONFIG GET.
pub(super) fn config_set(a: &mut Arguments) -> Command {
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

pub(super) fn bgsave(a: &mut Arguments) -> Command {
    match a.random.below(4) {
        0..=1 => vec![a.word("BGSAVE")],
        2 => vec![a.word("BGSAVE"), a.word("SCHEDULE")],
        _ => vec![a.word("BGSAVE"), a.odd()],
    }
}

/// SHUTDOWN in the forms that do not stop a server. `spoil` leaves it as it is: a spoiled one might stop a server.
pub(super) fn shutdown_refused(a: &mut Arguments) -> Command {
    let words = *a.random.pick(&["SHUTDOWN ABORT", "shutdown nosuch", "SHUTDOWN SAVE NOSAVE", "SHUTDOWN ABORT NOW"]);
    words.split_whitespace().map(|w| w.as_bytes().to_vec()).collect()
}

pub(super) fn memory(a: &mut Arguments) -> Command {
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

/// DEBUG in the forms that change nothing that a later step can see.
pub(super) fn debug(a: &mut Arguments) -> Command {
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

/// Commands about the node: without replicas, modules and users of its own both servers give one answer.
pub(super) fn node(a: &mut Arguments) -> Command {
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

/// WAIT with short timeouts only.
pub(super) fn wait(a: &mut Arguments) -> Command {
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

pub(super) fn cluster(a: &mut Arguments) -> Command {
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
