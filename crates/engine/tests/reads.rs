//! Reads never make a record: every command of the table that reads runs, over so much data that what is too much for
//! memory is spooled, with expired keys in the way, in blocks, and until it has waited in vain, and the log's last
//! index stands still.
//!
//! Active expiry writes by itself. It is no read, and nobody calls it here.
#![cfg(not(feature = "shuttle"))]

mod server;

use haypile_commands::keys::sort::MEMORY_BYTES_MAX;
use haypile_commands::{Access, Args, Table};
use haypile_resp::OwnedArgs;
use server::{Data, Server};
use std::collections::BTreeSet;

/// Every command that reads, and what reads without being one by its access. Those of the first lines find what is too
/// much for memory.
const CALLS: &str = "
    sort_ro large ALPHA|sort_ro large BY nosort GET # GET missing|sort large ALPHA DESC LIMIT 0 10
    geosearch geo FROMLONLAT 11 51 BYRADIUS 400 km ASC|georadius_ro geo 11 51 400 km|georadiusbymember_ro geo GEO 400 km DESC
    keys *|keys k*|scan 0 COUNT 100000|scan 0 MATCH k* COUNT 1000 TYPE string|lrange large 0 -1|zrange geo 0 -1 WITHSCORES|dump geo|dump large
    geosearch geo FROMLONLAT 11 51 BYRADIUS 400 km COUNT 5|geodist geo GEO GEO|geohash geo GEO|geopos geo GEO
    sort_ro set ALPHA|sort_ro zset ALPHA LIMIT 0 5|sort_ro list BY k:* ALPHA GET k:* GET #|sort_ro missing|sort list LIMIT 0 1
    get k:1|get gone|mget k:1 k:2 gone missing|lcs k:1 k:2|strlen k:1|strlen gone|getrange k:1 0 1|substr k:1 0 1|getex k:1|digest k:1|delex k:1 IFEQ no
    bitcount k:1|bitpos k:1 1|getbit k:1 3|bitfield_ro k:1 GET u8 0
    pfcount hll|pfcount hll|pfcount dense|pfcount dense hll|pfcount cold|pfcount gone missing
    hget hash f:1|hmget hash f:1 gone|hgetall hash|hkeys hash|hvals hash|hlen hash|hstrlen hash f:1|hexists hash gone|hrandfield hash 5|hrandfield hash -5000
    hscan hash 0 COUNT 100|httl hash FIELDS 1 f:1|hpttl hash FIELDS 1 f:1|hexpiretime hash FIELDS 1 f:1|hpexpiretime hash FIELDS 2 f:1 gone
    hgetall expiring|hlen expiring|hget expiring gone|hgetall gone:hash|hlen gone:hash|hrandfield gone:hash|hscan expiring 0
    llen list|lindex list 50|lpos list 7 COUNT 0|lrange gone:list 0 -1|sismember set m:1|smismember set m:1 m:2|scard set|smembers set|sscan set 0
    srandmember set 5|srandmember set -5000|sinter set set2|sintercard 2 set set2|sunion set set2|sdiff set set2|sunion gone:set set|sunioncard 2 set set2|sdiffcard 2 set set2
    zcard zset|zcount zset 0 9|zdiff 2 zset zset2|zinter 2 zset zset2|zintercard 2 zset zset2|zlexcount zset - +|zmscore zset m:1|zrandmember zset 5
    zrandmember zset -5000|zrange zset 0 -1|zrange gone:zset 0 -1|zrangebylex zset - +|zrangebyscore zset 0 9|zrank zset m:1|zrevrange zset 0 -1
    zrevrangebylex zset + -|zrevrangebyscore zset 9 0|zrevrank zset m:1|zscan zset 0|zscore zset m:1|zunion 2 zset zset2 WITHSCORES
    xlen stream|xrange stream - +|xrevrange stream + -|xread STREAMS stream 0|xread MAXCOUNT 10 MAXSIZE 1000 STREAMS stream 0|xread BLOCK 10 STREAMS stream $|xinfo CONSUMERS stream group
    xinfo GROUPS stream|xinfo STREAM stream|xinfo STREAM stream FULL|xpending stream group|xpending stream group - + 10|xrange gone - +
    exists k:1 gone|touch k:1 gone|type k:1|type gone|ttl k:1|ttl gone|pttl deadline|expiretime deadline|pexpiretime gone|dump hash|dump gone|randomkey|dbsize
    object ENCODING zset|object FREQ k:1|object IDLETIME k:1|object REFCOUNT k:1|object ENCODING gone|memory USAGE geo|memory USAGE gone
    memory STATS|debug OBJECT geo|debug DIGEST|debug DIGEST-VALUE geo hll gone|info everything|config GET *|command COUNT|object HELP
    blpop missing 0.01|bzpopmin missing 0.01|blmove missing list LEFT RIGHT 0.01|getdel missing|spop missing|hdel missing none
    wait 0 1
    eval_ro return{redis.call('get',KEYS[1]),redis.call('hgetall','hash')} 1 k:1|evalsha_ro c77382aa965ed715a9230ae8a1d2409e254c2b00 1 k:2
    fcall_ro look 1 k:1|function DUMP|function LIST WITHCODE
";

/// The data beside the keys that are large.
const PREPARED: &str = "
    FUNCTION LOAD #!lua␣name=lib␤redis.register_function{function_name='look',flags={'no-writes'},callback=function(k)return␣redis.call('get',k[1])end}
    SET deadline v EX 100000|PFADD hll a b c|PFADD cold a b|RPUSH list2 x|SADD set2 m:1 x|ZADD zset2 2 m:1 3 x
    XGROUP CREATE stream group 0|XREADGROUP GROUP group c COUNT 10 STREAMS stream >|HSET expiring a 1 gone 2|HPEXPIRE expiring 1 FIELDS 1 gone
    SET gone v PX 1|RPUSH gone:list a|PEXPIRE gone:list 1|SADD gone:set a|PEXPIRE gone:set 1|ZADD gone:zset 1 a|PEXPIRE gone:zset 1
    HSET gone:hash a 1|PEXPIRE gone:hash 1|SCRIPT LOAD return(redis.call('get',KEYS[1]))
";

/// The bytes of an element of those that are too much for memory.
const ELEMENT_BYTES: usize = 3100;

fn calls(table: &str) -> impl Iterator<Item = &str> {
    table.lines().flat_map(|line| line.split('|')).map(str::trim).filter(|call| !call.is_empty())
}

/// Repeats a command with the arguments of so many numbers, a hundred a time.
fn fill(server: &mut Server, command: &str, count: usize, arguments: impl Fn(usize) -> String) {
    for part in (0..count).collect::<Vec<_>>().chunks(100) {
        let arguments: String = part.iter().map(|&number| format!(" {}", arguments(number))).collect();
        let reply = server.ask(0, &format!("{command}{arguments}"));
        assert!(!reply.starts_with('-'), "{command}: {reply}");
    }
}

fn prepared() -> Server {
    // All of it stays in the memtable until it is flushed.
    let mut server = Server::over(Data::with(|options| {
        (options.memtable_bytes, options.flush_log_bytes) = (1 << 30, 1 << 30);
    }));
    // Each larger than what is sorted in memory, by few long elements.
    let count = MEMORY_BYTES_MAX / ELEMENT_BYTES + 1;
    fill(&mut server, "RPUSH large", count, |n| format!("{:0ELEMENT_BYTES$}", n * 48_271 % count));
    fill(&mut server, "GEOADD geo", count, |n| {
        format!("{} {} {n:0ELEMENT_BYTES$}", 10.0 + (n % 50) as f64 / 100.0, 50.0 + (n / 50) as f64 / 100.0)
    });
    fill(&mut server, "GEOADD geo", 1, |_| "11 51 GEO".into());
    fill(&mut server, "MSET", 10_000, |n| format!("k:{n} v:{n}"));
    fill(&mut server, "PFADD dense", 5000, |n| n.to_string());
    fill(&mut server, "HSET hash", 2000, |n| format!("f:{n} v"));
    fill(&mut server, "RPUSH list", 2000, |n| n.to_string());
    fill(&mut server, "SADD set", 2000, |n| format!("m:{n}"));
    fill(&mut server, "ZADD zset", 2000, |n| format!("{n} m:{n}"));
    for n in 1..500 {
        server.ask(0, &format!("XADD stream {n}-1 f v"));
    }
    for command in calls(PREPARED) {
        let reply = server.ask(0, command);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
    }
    server.now_ms += 1000;
    server
}

/// Runs a command to its end, which a waiting one comes to when its time is over.
fn run(server: &mut Server, call: &str) -> String {
    server.send(0, call);
    let mut reply = String::new();
    while server.waits(0) {
        if server.is_blocked(0) {
            server.now_ms += 1000;
            server.send_bytes(0, b"");
        } else {
            // Long ones come piece by piece.
            reply += &server.reply_so_far(0);
        }
    }
    reply + &server.reply(0)
}

#[test]
fn every_command_that_reads_has_a_call() {
    let table = Table::new();
    let mut called = BTreeSet::new();
    for call in calls(CALLS) {
        let mut owned = OwnedArgs::default();
        call.split(' ').for_each(|word| owned.push(word.as_bytes()));
        if let Ok(entry) = table.resolve(Args::from(owned.as_args())) {
            called.insert(entry.full_name.clone());
        }
    }
    let entries = table.iter().flat_map(|(_, entry)| std::iter::once(entry).chain(table.subcommands(entry)));
    let reads = entries.filter(|entry| entry.command.access == Access::Read).map(|entry| entry.full_name.clone());
    let missing: Vec<String> = reads.filter(|name| !called.contains(name)).collect();
    assert!(missing.is_empty(), "without a call: {missing:?}");
}

#[test]
fn reads_make_no_record() {
    let mut server = prepared();
    for is_cold in [false, true] {
        if is_cold {
            server.freeze();
        }
        let log = |server: &Server| server.store.store.log().last();
        let last = log(&server);
        for call in calls(CALLS) {
            let reply = run(&mut server, call);
            assert!(!reply.starts_with('-') || call.starts_with("object FREQ"), "{call}: {reply}");
            assert_eq!(log(&server), last, "{call}, cold: {is_cold}");
        }
        for block in calls(CALLS).collect::<Vec<_>>().chunks(5) {
            server.ask(0, "MULTI");
            for call in block {
                assert_eq!(server.ask(0, call), "+QUEUED", "{call}");
            }
            let reply = run(&mut server, "EXEC");
            assert!(reply.starts_with(&format!("*{}", block.len())), "{}", &reply[..reply.len().min(1000)]);
            assert_eq!(log(&server), last, "a block of {block:?}, cold: {is_cold}");
        }
    }
}
