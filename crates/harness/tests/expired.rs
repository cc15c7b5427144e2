//! Keys whose deadline has passed and that a write comes upon: `expired_keys`, DBSIZE and the reply are those of
//! redis-server, for every command that writes. Nothing else removes them meanwhile: the active expiry is off in both.

use haypile_harness::client::{Client, Reply, info_field};
use haypile_harness::quoted;
use haypile_harness::server::{Server, Template, Workplace, haypile_binary};
use std::collections::BTreeSet;
use std::time::Duration;

/// The commands before each command under test; all keys that begin with `gone` have expired by then.
const KEYS: &[&str] = &[
    "SET a 1",
    "RPUSH l x y z",
    "HSET h f 1",
    "SADD s x y",
    "SADD t y z",
    "ZADD z 1 x 2 y",
    "GEOADD places 13 38 p",
    "XADD x 1-1 f v",
    "XGROUP CREATE x g 0",
    "PFADD hll v",
    "SET gone v PX 1",
    "SET gone2 v PX 1",
];

/// Each command that writes, over expired keys in all places where it takes keys to write. Those that differ are in the
/// lists behind.
const COMMANDS: &[&str] = &[
    "SET gone 1",
    "SET gone 1 GET",
    "SET gone 1 NX",
    "SET gone 1 XX",
    "SET gone 1 KEEPTTL",
    "SET gone 1 EX 100",
    "SETNX gone 1",
    "SETEX gone 100 1",
    "PSETEX gone 100000 1",
    "GETSET gone 1",
    "GETDEL gone",
    "GETEX gone EX 100",
    "MSET gone 1 gone2 2 a 3",
    "MSETNX gone 1 gone2 2",
    "MSETNX gone 1 a 2",
    "APPEND gone 1",
    "SETRANGE gone 0 x",
    "SETRANGE gone 0 \"\"",
    "INCR gone",
    "DECR gone",
    "INCRBY gone 2",
    "DECRBY gone 2",
    "INCRBYFLOAT gone 1.5",
    "SETBIT gone 7 1",
    "SETBIT gone 7 0",
    "BITFIELD gone SET u8 0 1",
    "BITOP OR gone a",
    "PFADD gone v",
    "PFMERGE gone hll",
    "PFDEBUG TODENSE hll",
    "DEL gone a gone2 none",
    "UNLINK gone gone2",
    "EXPIRE gone 100",
    "PEXPIRE gone 100",
    "EXPIREAT gone 9999999999",
    "PEXPIREAT gone 9999999999999",
    "EXPIRE a -1",
    "PERSIST gone",
    "RENAME a gone",
    "RENAMENX a gone",
    "COPY a gone",
    "COPY a gone REPLACE",
    "MOVE gone 1",
    "SORT l ALPHA STORE gone",
    "RESTORE gone 0 \"\\x00\\xc0\\x01\\x0a\\x00\\x26\\x78\\xe7\\xb6\\xd1\\x01\\x11\\xfc\"",
    "RESTORE-ASKING gone 0 \"\\x00\\xc0\\x01\\x0a\\x00\\x26\\x78\\xe7\\xb6\\xd1\\x01\\x11\\xfc\"",
    "LPUSH gone x",
    "RPUSH gone x",
    "LPUSHX gone x",
    "RPUSHX gone x",
    "LPOP gone",
    "RPOP gone",
    "LMPOP 2 gone l LEFT",
    "BLMPOP 0 2 gone l LEFT",
    "BLPOP gone l 0",
    "BRPOP gone l 0",
    "LINSERT gone BEFORE x y",
    "LREM gone 0 x",
    "LTRIM gone 0 0",
    "LMOVE gone l LEFT LEFT",
    "LMOVE l gone LEFT LEFT",
    "RPOPLPUSH l gone",
    "RPOPLPUSH gone l",
    "BLMOVE l gone LEFT LEFT 0",
    "BRPOPLPUSH l gone 0",
    "HSET gone f 1",
    "HMSET gone f 1",
    "HSETNX gone f 1",
    "HINCRBY gone f 1",
    "HINCRBYFLOAT gone f 1",
    "HDEL gone f",
    "SADD gone x",
    "SREM gone x",
    "SPOP gone",
    "SPOP gone 2",
    "SMOVE s gone x",
    "SMOVE gone s x",
    "SINTERSTORE gone s t",
    "SUNIONSTORE gone s t",
    "SDIFFSTORE gone s t",
    "ZADD gone 1 x",
    "ZADD gone XX 1 x",
    "ZINCRBY gone 1 x",
    "ZREM gone x",
    "ZPOPMIN gone",
    "ZPOPMAX gone",
    "ZMPOP 2 gone z MIN",
    "BZMPOP 0 2 gone z MIN",
    "BZPOPMIN gone z 0",
    "BZPOPMAX gone z 0",
    "ZREMRANGEBYRANK gone 0 -1",
    "ZREMRANGEBYSCORE gone 0 1",
    "ZREMRANGEBYLEX gone - +",
    "ZRANGESTORE gone z 0 -1",
    "ZUNIONSTORE gone 1 z",
    "ZDIFFSTORE gone 2 z none",
    "GEOADD gone 13 38 p",
    "GEOSEARCHSTORE gone places FROMLONLAT 13 38 BYRADIUS 9 km",
    "GEORADIUS places 13 38 9 km STORE gone",
    "GEORADIUSBYMEMBER places p 9 km STORE gone",
    "XADD gone 1-1 f v",
    "XADD gone NOMKSTREAM 1-1 f v",
    "XDEL gone 1-1",
    "XTRIM gone MAXLEN 1",
    "XGROUP CREATE gone g 0 MKSTREAM",
];

/// Commands that answer an error for an absent key. redis-server has removed the expired key by then; here, a command
/// that fails has no effect, and the active expiry removes the key.
const REFUSED: &[&str] = &[
    "RENAME gone b",
    "RENAMENX gone b",
    "LSET gone 0 x",
    "XSETID gone 5-5",
    "XCLAIM gone g c 0 1-1",
    "XAUTOCLAIM gone g c 0 0",
    "XREADGROUP GROUP g c STREAMS gone >",
    "XGROUP CREATECONSUMER gone g c",
    "XGROUP DELCONSUMER gone g c",
    "XGROUP DESTROY gone g",
    "XGROUP SETID gone g 0",
    "PFDEBUG TODENSE gone",
];

/// Commands that change nothing, and leave an expired key as reads do.
const UNCHANGED: &[&str] = &["BITFIELD gone GET u8 0", "XACK gone g 1-1"];

/// Commands that have nothing to store. redis-server deletes the destination without a look at its deadline, which does
/// not count; here it has expired, as in all other commands.
const EMPTY: &[&str] = &[
    "BITOP OR gone none",
    "SORT none STORE gone",
    "SINTERSTORE gone s none",
    "SDIFFSTORE gone none s",
    "ZRANGESTORE gone none 0 -1",
    "ZINTERSTORE gone 2 z none",
    "GEOSEARCHSTORE gone places FROMLONLAT 0 0 BYRADIUS 9 km",
];

/// Commands on no single key, commands that are not in 7.0, and those of functions, which are not here.
const ELSEWHERE: &[&str] = &[
    "flushall",
    "flushdb",
    "swapdb",
    "migrate",
    "hexpire",
    "hpexpire",
    "hexpireat",
    "hpexpireat",
    "hpersist",
    "hgetex",
    "hsetex",
    "hgetdel",
    "xdelex",
    "xackdel",
    "xnack",
    "xcfgset",
    "xidmprecord",
    "function|restore",
    "function|flush",
    "function|delete",
    "function|load",
];

/// Commands that came later, each with one of 7.0 that does the same to expired keys.
const NEWER: &[(&str, &str)] = &[
    ("INCREX gone", "INCR gone"),
    ("MSETEX 2 gone 1 a 2", "MSET gone 1 a 2"),
    ("MSETEX 2 gone 1 a 2 NX", "MSETNX gone 1 a 2"),
    ("DELEX gone", "DEL gone"),
    ("LMOVEM gone l LEFT LEFT", "LMOVE gone l LEFT LEFT"),
    ("LMOVEM l gone LEFT LEFT COUNT 1 OBO", "LMOVE l gone LEFT LEFT"),
    ("BLMOVEM l gone LEFT LEFT 0", "BLMOVE l gone LEFT LEFT 0"),
];

fn all() -> impl Iterator<Item = &'static &'static str> {
    [COMMANDS, REFUSED, UNCHANGED, EMPTY].into_iter().flatten()
}

/// The effect of a command: its reply where that says something, and how many keys have expired and are there.
type Seen = (String, Option<String>, Option<String>);

fn ask(client: &mut Client, command: &str) -> String {
    let words = quoted::split(command).expect("quotes are balanced");
    client.call(&words).expect("is answered").to_string()
}

fn text(name: &Reply) -> String {
    String::from_utf8_lossy(name.bytes().expect("is text")).into_owned()
}

fn see(client: &mut Client, command: &str, in_block: bool) -> Seen {
    ask(client, "FLUSHALL");
    for setup in KEYS {
        let reply = ask(client, setup);
        assert!(!reply.contains("ERR"), "{setup}: {reply}");
    }
    ask(client, "CONFIG RESETSTAT");
    // Time itself is what is waited for.
    std::thread::sleep(Duration::from_millis(4));
    let reply = match in_block {
        false => ask(client, command),
        true => {
            ask(client, "MULTI");
            ask(client, command);
            ask(client, "EXEC")
        }
    };
    let info = client.info("everything").expect("is answered").expect("is text");
    let expired = info_field(&info, "expired_keys").map(str::to_owned);
    let keys = info_field(&info, "db0").map(|keys| keys.split(',').next().unwrap_or_default().to_owned());
    (reply, expired, keys)
}

#[test]
fn an_expired_key_that_a_write_comes_upon_counts_as_in_redis() {
    let binary = haypile_binary().expect("the server is built before its tests");
    let more = "--enable-debug-command yes";
    let templates = [Template::redis(more), Template::haypile(&binary, more)];
    let mut is_first = true;
    let [theirs, ours] = templates.map(|template| {
        let template_is_ours = !std::mem::take(&mut is_first);
        let place = Workplace::new("expired", None).expect("the temporary directory is writable");
        let (server, _) = Server::start(&template.expect("the template has its marks"), &place).expect("it starts");
        let mut client = server.client().expect("it takes clients");
        assert_eq!(ask(&mut client, "DEBUG SET-ACTIVE-EXPIRE 0"), "+OK");
        let mut seen = Vec::new();
        for in_block in [false, true] {
            for command in all() {
                seen.push((*command, in_block, see(&mut client, command, in_block)));
            }
        }
        if template_is_ours {
            for (newer, older) in NEWER {
                let (newer, older) = (see(&mut client, newer, false), see(&mut client, older, false));
                assert_eq!((newer.1, newer.2), (older.1, older.2), "{}", newer.0);
            }
        }
        let writes = client.command("COMMAND LIST FILTERBY ACLCAT write").expect("is answered");
        let writes = writes.elements().expect("is a list").iter().map(text).collect::<BTreeSet<_>>();
        server.stop().expect("it stops");
        (seen, writes)
    });
    let mut different = Vec::new();
    for (theirs, ours) in theirs.0.iter().zip(&ours.0) {
        let (command, _, (reply, expired, keys)) = ours;
        let (_, _, (their_reply, _, their_keys)) = theirs;
        let is_right = match command {
            command if REFUSED.contains(command) || UNCHANGED.contains(command) => {
                reply == their_reply && expired.as_deref() == Some("0")
            }
            command if EMPTY.contains(command) => {
                (reply, keys) == (their_reply, their_keys) && expired.as_deref() == Some("1")
            }
            _ => ours == theirs,
        };
        if !is_right {
            different.push(format!("{theirs:?}\n    ours {ours:?}"));
        }
    }
    assert!(different.is_empty(), "redis-server and ours differ in:\n{}", different.join("\n"));

    let name = |command: &&'static str| {
        let mut words = command.split(' ').map(str::to_lowercase);
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if first == "xgroup" { format!("{first}|{second}") } else { first }
    };
    let tried = all().map(name).chain(ELSEWHERE.iter().map(|name| (*name).to_owned()));
    let tried: BTreeSet<String> = tried.chain(NEWER.iter().map(|(newer, _)| name(newer))).collect();
    let missing: Vec<&String> = theirs.1.union(&ours.1).filter(|name| !tried.contains(*name)).collect();
    assert!(missing.is_empty(), "no write of these over an expired key is tried: {missing:?}");
}
