//! Uses of a key are counted as by redis-server: with an LFU policy whose counters rise with each use and never fall,
//! OBJECT FREQ tells how often a command has used each of its keys.

use haypile_harness::bench::BASE;
use haypile_harness::client::Client;
use haypile_harness::server::{Server, Template, Workplace, haypile_binary};
use std::time::Duration;

/// The commands before each command under test. Small integers are left out: Redis has one object for all keys that
/// hold the same one.
const KEYS: &[&str] = &[
    "MSET a 70001 b 70002",
    "RPUSH l x y z",
    "HSET h f 1 g 2",
    "SADD s x y",
    "SADD t y z",
    "ZADD z 1 x 2 y",
    "SET gone v PX 1",
];

/// Commands that read, that write, that only ask, and that make, move and remove keys.
const COMMANDS: &[&str] = &[
    "GET a",
    "GET none",
    "MGET a b none",
    "STRLEN a",
    "GETRANGE a 0 0",
    "LCS a b",
    "EXISTS a b",
    "TYPE a",
    "TTL a",
    "PTTL a",
    "EXPIRETIME a",
    "OBJECT ENCODING a",
    "OBJECT FREQ a",
    "MEMORY USAGE a",
    "DEBUG OBJECT a",
    "SCAN 0 TYPE string",
    "KEYS a",
    "TOUCH a b",
    "SET a 70003",
    "SET new 70001",
    "SET a 70003 XX",
    "SET a 70003 NX",
    "SET a 70003 GET",
    "SETNX a 70003",
    "SETNX new 70003",
    "SETEX a 100 70003",
    "GETSET a 70003",
    "GETEX a EX 100",
    "GETEX a",
    "GETDEL a",
    "INCR a",
    "INCRBYFLOAT a 1",
    "APPEND a x",
    "SETRANGE a 0 x",
    "MSET a 70001 b 70002",
    "MSETNX new 70001 a 70002",
    "EXPIRE a 100",
    "EXPIRE a 100 XX",
    "PERSIST a",
    "RENAME a b",
    "RENAME a new",
    "RENAMENX a new",
    "RENAMENX a b",
    "COPY a new",
    "COPY a b REPLACE",
    "COPY a b",
    "MOVE a 1",
    "DEL a",
    "UNLINK a",
    "SET l 70001",
    "SET gone 70001",
    "GET gone",
    "LRANGE l 0 -1",
    "LLEN l",
    "LINDEX l 0",
    "LPUSH l w",
    "LPUSHX l w",
    "RPUSH new w",
    "LPOP l",
    "RPOP l 2",
    "LSET l 0 w",
    "LTRIM l 0 1",
    "LREM l 0 x",
    "LINSERT l BEFORE x w",
    "LPOS l x",
    "LMPOP 1 l LEFT",
    "BLPOP l 0",
    "HGET h f",
    "HMGET h f g",
    "HGETALL h",
    "HLEN h",
    "HEXISTS h f",
    "HSET h f 2",
    "HSETNX h f 2",
    "HINCRBY h f 1",
    "HDEL h f",
    "HSCAN h 0",
    "HRANDFIELD h",
    "SCARD s",
    "SISMEMBER s x",
    "SMISMEMBER s x y",
    "SMEMBERS s",
    "SADD s w",
    "SREM s x",
    "SMOVE s t x",
    "SPOP s",
    "SRANDMEMBER s",
    "SINTER s t",
    "SUNION s t",
    "SDIFF s t",
    "SINTERCARD 2 s t",
    "SUNIONSTORE new s t",
    "SINTERSTORE b s t",
    "SDIFFSTORE t s t",
    "SSCAN s 0",
    "ZCARD z",
    "ZSCORE z x",
    "ZMSCORE z x y",
    "ZRANK z x",
    "ZRANGE z 0 -1",
    "ZRANGEBYSCORE z 0 9",
    "ZCOUNT z 0 9",
    "ZADD z 3 w",
    "ZINCRBY z 1 x",
    "ZREM z x",
    "ZPOPMIN z",
    "ZRANDMEMBER z",
    "ZSCAN z 0",
    "ZUNION 2 z s",
    "ZUNIONSTORE new 2 z s",
    "ZUNIONSTORE b 1 z",
    "ZRANGESTORE new z 0 -1",
    "ZRANGESTORE b z 0 -1",
    "ZREMRANGEBYRANK z 0 0",
    "SORT l ALPHA",
    "SORT l ALPHA STORE new",
    "SORT l ALPHA STORE b",
    "INCR l",
    "GET l",
];

/// Redis looks the key up twice, to read it and to overwrite it; here that is one lookup, and one use.
const USED_ONCE: &[&str] = &["SET a 70003 GET", "GETSET a 70003"];

/// The keys that a command may have used, each with its counter.
fn counters(client: &mut Client) -> Vec<String> {
    ["a", "b", "l", "h", "s", "t", "z", "new", "gone"]
        .iter()
        .map(|key| format!("{key}: {:?}", client.command(&format!("OBJECT FREQ {key}")).expect("is answered")))
        .collect()
}

#[test]
fn each_command_uses_the_keys_that_it_uses_in_redis() {
    let binary = haypile_binary().expect("the server is built before its tests");
    let templates =
        [Template::parse(BASE).expect("the template has its marks"), Template::haypile(&binary, "").expect("as well")];
    let [theirs, ours] = templates.map(|template| {
        let place = Workplace::new("touches", None).expect("the temporary directory is writable");
        let (server, _) = Server::start(&template, &place).expect("the server starts");
        let mut client = server.client().expect("it takes clients");
        for setting in ["maxmemory-policy allkeys-lfu", "lfu-log-factor 0", "lfu-decay-time 0"] {
            client.command(&format!("CONFIG SET {setting}")).expect("is answered");
        }
        let mut seen = Vec::new();
        for command in COMMANDS {
            client.command("FLUSHALL").expect("is answered");
            for setup in KEYS {
                client.command(setup).expect("is answered");
            }
            // Time itself is what is waited for: nobody is to look whether the key has gone.
            std::thread::sleep(Duration::from_millis(5));
            client.command(command).expect("is answered");
            seen.push((*command, counters(&mut client)));
        }
        server.stop().expect("it stops");
        seen
    });
    let different: Vec<String> = theirs
        .iter()
        .zip(&ours)
        .filter(|(theirs, ours)| theirs != ours && !USED_ONCE.contains(&theirs.0))
        .map(|(theirs, ours)| {
            let pairs = theirs.1.iter().zip(&ours.1).filter(|(theirs, ours)| theirs != ours);
            format!("{}: {:?}", theirs.0, pairs.collect::<Vec<_>>())
        })
        .collect();
    assert!(different.is_empty(), "redis-server and ours differ in:\n{}", different.join("\n"));
}
