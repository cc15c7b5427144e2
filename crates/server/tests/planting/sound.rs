//! A sound directory with keys of all types, in the base and in the log, in copies of which defects are planted.

use super::copy;
use crate::process::{Server, TempDir};
use std::sync::LazyLock;

pub const OPTIONS: [&str; 4] = ["--durability", "fsync", "--log-segment-size", "1mb"];

/// Commands whose rows lie in the base, and are not touched by the records of the log above it.
pub const IN_BASE: &[&str] = &[
    "SET plain hello",
    "SET timed x PXAT 1800000000000",
    "SETRANGE still 40000 end",
    "SETRANGE changing 40000 end",
    "SELECT 3",
    "SET old x",
    "FLUSHDB",
    "SET new x EX 1000",
];

const IN_LOG: &[&str] = &[
    "SETRANGE changing 39000 changed",
    "SETRANGE longer 20000 x",
    "APPEND longer y",
    "SET late x EX 1000",
    "DEL late",
];

/// Collections of each type: small ones in their meta row, others in rows, of which the log changes some.
fn collections(in_log: bool) -> Vec<String> {
    let many = |first: u32, each: &dyn Fn(u32) -> String| (first..first + 100).map(each).collect::<Vec<_>>().join(" ");
    if in_log {
        return vec![
            format!("HSET moving {}", many(150, &|n| format!("f{n} changed"))),
            "HDEL moving f0 f199".into(),
            format!("SADD moving:set {}", many(150, &|n| format!("m{n}"))),
            "SREM moving:set m0".into(),
            "RPUSH moving:list x y z".into(),
            "LPOP moving:list".into(),
            "LINSERT moving:list AFTER e70 new".into(),
            "LREM moving:list 1 e30".into(),
            format!("HSETEX moving:times KEEPTTL FIELDS 100 {}", many(50, &|n| format!("f{n} changed"))),
            "HPERSIST moving:times FIELDS 2 f1 f60".into(),
            "XADD moving:stream 60-1 f changed".into(),
            "XDEL moving:stream 40-1 60-1".into(),
            "XTRIM moving:stream MAXLEN 30".into(),
            "XACK moving:events g 2-1".into(),
            "XADD moving:events 4-1 a 4".into(),
            "XREADGROUP GROUP g carol STREAMS moving:events >".into(),
            "XCLAIM moving:events g bob 0 4-1".into(),
            "XGROUP DELCONSUMER moving:events other alice".into(),
        ];
    }
    let mut commands = vec!["SELECT 0".to_owned()];
    for (hash, set, list) in [("hash", "set", "list"), ("moving", "moving:set", "moving:list")] {
        commands.push(format!("HSET {hash} {}", many(0, &|n| format!("f{n} v{n}"))));
        commands.push(format!("SADD {set} {}", many(100, &|n| format!("m{n}"))));
        commands.push(format!("RPUSH {list} {}", many(0, &|n| format!("e{n}"))));
    }
    commands.push(format!("RPUSH middle {}", many(0, &|n| format!("e{n}"))));
    // The elements lie in order, then anywhere, then in order again.
    commands.extend((20..80).map(|n| format!("LINSERT middle AFTER e{n} new{n}")));
    commands.extend((30..40).map(|n| format!("LREM middle -1 e{n}")));
    for name in ["times", "moving:times"] {
        let pairs = many(0, &|n| format!("f{n} v{n}"));
        commands.push(format!("HSETEX {name} PXAT 33000000000000 FIELDS 100 {pairs}"));
        commands.push(format!("HPEXPIREAT {name} 32000000000000 FIELDS 1 f7"));
        commands.push(format!("HPERSIST {name} FIELDS 1 f3"));
    }
    for name in ["stream", "moving:stream"] {
        commands.extend((1..51).map(|n| format!("XADD {name} {n}-1 f v{n}")));
        commands.push(format!("XDEL {name} 1-1 7-1"));
    }
    commands.push("XADD empty:stream MAXLEN 0 5-5 f v".into());
    for name in ["events", "moving:events"] {
        commands.extend((1..=3).map(|n| format!("XADD {name} {n}-1 a {n}")));
        commands.extend(["g", "other"].map(|group| format!("XGROUP CREATE {name} {group} 0")));
        for (group, consumer) in [("g", "alice"), ("other", "alice"), ("g", "bob")] {
            commands.push(format!("XREADGROUP GROUP {group} {consumer} COUNT 2 STREAMS {name} >"));
        }
        commands.push(format!("XACK {name} g 1-1"));
    }
    commands.push("HSETEX small:times PXAT 33000000000000 FIELDS 2 a 1 b 2".into());
    commands.extend(["HSET small:hash a 1 b 2", "SADD small:set a b", "RPUSH small:list a b"].map(str::to_owned));
    commands
}

/// A directory of which a part is in the base and a part in the log, as a kill leaves it.
pub static SOUND: LazyLock<TempDir> = LazyLock::new(|| {
    let dir = TempDir::new();
    for (commands, killed) in [(IN_BASE, false), (IN_LOG, true)] {
        let server = Server::start(dir.path(), &OPTIONS);
        let mut client = server.client();
        let all = commands.iter().map(|command| command.to_string()).chain(collections(killed));
        for command in all {
            let reply = client.ask(&command);
            assert!(!reply.starts_with('-'), "{command}: {reply}");
        }
        if killed { server.kill() } else { server.stop() }
    }
    dir
});

pub fn sound_copy() -> TempDir {
    let dir = TempDir::new();
    copy(SOUND.path(), dir.path());
    dir
}
