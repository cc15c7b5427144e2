//! A run that is dropped has done nothing: every command of the table runs by itself, from a cold state in which it has
//! to run again, in blocks that are discarded, and in blocks that are repeated because rows are missing; what anybody
//! can see of the server afterwards is compared.
#![cfg(not(feature = "shuttle"))]

mod server;

use haypile_commands::{Args, Table};
use haypile_resp::OwnedArgs;
use haypile_store::base::BaseError;
use server::{Data, Server};
use std::collections::BTreeSet;

/// Commands as they do something: on the keys of `prepared`, or on the server. Every command of the table is among
/// them; what cannot be queued is told by the reply.
const CALLS: &str = "
    append str x|bitcount str|bitfield bits SET u8 0 1|bitfield_ro bits GET u8 0|bitop NOT new str|bitpos bits 1|getbit bits 0|setbit bits 3 1
    asking|cluster INFO|cluster ADDSLOTS 1|cluster ADDSLOTSRANGE 1 2|cluster BUMPEPOCH|cluster COUNT-FAILURE-REPORTS x|cluster COUNTKEYSINSLOT 1
    cluster DELSLOTS 1|cluster DELSLOTSRANGE 1 2|cluster FAILOVER|cluster FLUSHSLOTS|cluster FORGET x|cluster GETKEYSINSLOT 1 1|cluster HELP
    cluster KEYSLOT k|cluster LINKS|cluster MEET a 1|cluster MYID|cluster MYSHARDID|cluster NODES|cluster REPLICAS x|cluster REPLICATE x
    cluster RESET|cluster SAVECONFIG|cluster SET-CONFIG-EPOCH 1|cluster SETSLOT 1 STABLE|cluster SHARDS|cluster SLAVES x|cluster SLOTS
    archive.backup|changes.follow $|raft.cluster HELP|raft.cluster INIT a:1|raft.cluster JOIN a:1|raft.cluster RESET|raft.info
    raft.node ADD 4 a:1|raft.node HELP|raft.node REMOVE 4|raft.transfer-leader
    readonly|readwrite|auth password|client GETNAME|client GETREDIR|client HELP|client ID|client INFO|client KILL ID 3|client LIST|client NO-EVICT ON
    client NO-TOUCH ON|client PAUSE 100000 ALL|client REPLY OFF|client SETINFO LIB-NAME lib|client SETNAME me|client TRACKINGINFO|client TRACKING ON|client CACHING YES
    client UNBLOCK 4|client UNPAUSE|echo x|hello 3 SETNAME other|ping|quit|reset|select 5
    copy str new|del str list|dump str|exists str|expire str 100|expireat str 99999999999|expiretime str|keys *|move str 3
    migrate 127.0.0.1 1 str 0 10|object ENCODING str|object FREQ str|object HELP|object IDLETIME str|object REFCOUNT str|persist deadline
    pexpire str 100000|pexpireat str 99999999999000|pexpiretime str|pttl deadline|randomkey|rename str new|renamenx str new
    restore new 0 \\x00\\x01a\\x0b\\x00\\xbb|restore-asking new 0 x|scan 0|sort list ALPHA STORE new|sort_ro list ALPHA|touch str|ttl deadline|type str
    unlink str list|wait 0 1|waitaof 0 0 1
    geoadd new 13.3 38.1 a|geodist geo a b|geohash geo a|geopos geo a|georadius geo 13 38 500 km STORE new|georadius_ro geo 13 38 500 km
    georadiusbymember geo a 500 km STORE new|georadiusbymember_ro geo a 500 km|geosearch geo FROMMEMBER a BYRADIUS 500 km
    geosearchstore new geo FROMMEMBER a BYRADIUS 500 km
    hdel hash a|hexists hash a|hexpire hash 100 FIELDS 1 a|hexpireat hash 99999999999 FIELDS 1 a|hexpiretime hash FIELDS 1 a|hget hash a|hgetall hash
    hincrby hash n 1|hincrbyfloat hash n 1.5|hkeys hash|hlen hash|hmget hash a|hmset hash a 2|hpersist hash FIELDS 1 d
    hpexpire hash 100000 FIELDS 1 a|hpexpireat hash 99999999999000 FIELDS 1 a|hpexpiretime hash FIELDS 1 d|hpttl hash FIELDS 1 a|hrandfield hash
    hscan hash 0|hset hash z 1|hsetnx hash z 1|hstrlen hash a|httl hash FIELDS 1 a|hvals hash|hgetdel hash FIELDS 1 a|hgetex hash EX 100 FIELDS 1 a
    hsetex hash EX 100 FIELDS 1 a 1
    pfadd new a|pfcount hll hll2|pfdebug ENCODING hll|pfmerge new hll hll2|pfselftest
    blmove list list2 LEFT RIGHT 0|blmpop 0 1 list LEFT|blpop list 0|brpop list 0|brpoplpush list list2 0|lindex list 0|linsert list BEFORE b x
    llen list|lmove list list2 LEFT RIGHT|lmpop 1 list LEFT|lpop list|lpos list b|lpush list x|lpushx list x|lrange list 0 -1|lrem list 0 b|lset list 0 x
    ltrim list 0 0|rpop list|rpoplpush list list2|rpush list x|rpushx list x
    lmovem list list2 LEFT RIGHT COUNT 2 BULK|blmovem list list2 LEFT RIGHT 0 COUNT 2 OBO
    psubscribe p*|publish channel message|pubsub CHANNELS|pubsub HELP|pubsub NUMPAT|pubsub NUMSUB channel|pubsub SHARDCHANNELS
    pubsub SHARDNUMSUB channel|punsubscribe|spublish shard message|ssubscribe shard2|subscribe channel2|sunsubscribe|unsubscribe
    acl CAT|acl DELUSER bob|acl DRYRUN default get a|acl GENPASS|acl GETUSER default|acl HELP|acl LIST|acl LOAD|acl LOG|acl LOG RESET|acl SAVE
    acl SETUSER bob off -@all|acl SETUSER joe on|acl USERS|acl WHOAMI|command|command COUNT|command DOCS get|command GETKEYS get a
    command GETKEYSANDFLAGS get a|command HELP|command INFO get|command LIST|config GET maxmemory|config HELP|config RESETSTAT|config REWRITE
    config SET slowlog-max-len 7 timeout 77|dbsize|debug SET-ACTIVE-EXPIRE 0|failover|flushall|flushdb|info|lastsave|latency DOCTOR|latency GRAPH command
    latency HELP|latency HISTOGRAM get|latency HISTORY command|latency LATEST|latency RESET|lolwut|memory DOCTOR|memory HELP|memory MALLOC-STATS
    memory PURGE|memory STATS|memory USAGE str|module HELP|module LIST|monitor|bgsave|compact|save|bgrewriteaof|replicaof no one|slaveof no one|role|shutdown
    commandlog GET 5 large-reply|commandlog HELP|commandlog LEN large-reply|commandlog RESET large-request
    slowlog GET|slowlog HELP|slowlog LEN|slowlog RESET|swapdb 0 3|time|sync|psync x 1|replconf capa eof
    sadd set x|scard set|sdiff set set2|sdiffstore new set set2|sinter set set2|sintercard 2 set set2|sinterstore new set set2|sismember set a
    smembers set|smismember set a|smove set set2 a|spop set 3|srandmember set|srem set a|sscan set 0|sunion set set2|sunionstore new set set2
    sunioncard 2 set set2|sdiffcard 2 set set2
    bzmpop 0 1 zset MIN|bzpopmax zset 0|bzpopmin zset 0|zadd zset 5 e|zcard zset|zcount zset 0 9|zdiff 2 zset zset2|zdiffstore new 2 zset zset2
    zincrby zset 1 a|zinter 2 zset zset2|zintercard 2 zset zset2|zinterstore new 2 zset zset2|zlexcount zset - +|zmpop 1 zset MIN|zmscore zset a
    zpopmax zset|zpopmin zset|zrandmember zset|zrange zset 0 -1|zrangebylex zset - +|zrangebyscore zset 0 9|zrangestore new zset 0 -1|zrank zset a
    zrem zset a|zremrangebylex zset - +|zremrangebyrank zset 0 0|zremrangebyscore zset 0 1|zrevrange zset 0 -1|zrevrangebylex zset + -
    zrevrangebyscore zset 9 0|zrevrank zset a|zscan zset 0|zscore zset a|zunion 2 zset zset2|zunionstore new 2 zset zset2
    xack stream group 1-1|xackdel stream group IDS 1 1-1|xadd future IDMP p i * f v|xcfgset future IDMP-MAXSIZE 7|xidmprecord stream p i 1-1|xnack stream group FAIL IDS 1 1-1|xreadgroup GROUP group c2 CLAIM 1000000 STREAMS stream >|xdelex stream DELREF IDS 1 1-1|xadd stream 9-1 f v|xautoclaim stream group other 0 0|xclaim stream group other 0 1-1|xdel stream 1-1|xgroup CREATE stream g2 0
    xgroup CREATECONSUMER stream group c2|xgroup DELCONSUMER stream group c|xgroup DESTROY stream group|xgroup HELP|xgroup SETID stream group 0
    xinfo CONSUMERS stream group|xinfo GROUPS stream|xinfo HELP|xinfo STREAM stream|xlen stream|xpending stream group|xrange stream - +
    xread STREAMS stream 0|xreadgroup GROUP group c STREAMS stream >|xrevrange stream + -|xsetid stream 9-9|xtrim stream MAXLEN 1
    decr n|decrby n 2|get str|getdel str|getex str EX 100|getrange str 0 1|getset str x|incr n|incrby n 2|incrbyfloat n 1.5|lcs str str|mget str n
    mset a 1 b 2|msetnx a 1 b 2|psetex a 100000 1|set str x|setex a 100 1|setnx a 1|setrange str 1 x|strlen str|substr str 0 1
    digest str|delex str|msetex 2 a 1 b 2 EX 100|increx n EX 100
    discard|exec|multi|unwatch|watch str
    eval redis.call('set',KEYS[1],1)redis.call('publish','channel','m')redis.call('rpush','never','x') 1 str|eval_ro return(redis.call('get',KEYS[1])) 1 str
    evalsha x 0|evalsha_ro x 0|script DEBUG NO|script EXISTS x|script FLUSH|script HELP|script KILL|script LOAD return(1)
    fcall put 1 str|fcall_ro look 1 str|function DELETE lib|function DUMP|function FLUSH|function HELP|function KILL|function LIST
    function LOAD #!lua␣name=other␤redis.register_function('other',function()end)|function RESTORE x|function STATS
    post x|host: x
";

/// Calls that no block takes: those that end a block, or the connection, or that Redis does not allow in one, and
/// commands that are not there yet. All others have to be queued, or the tests of blocks would pass them over.
const NOT_QUEUED: &[&str] = &[
    "archive.backup",
    "changes.follow $",
    "raft.cluster INIT a:1",
    "raft.cluster JOIN a:1",
    "raft.cluster RESET",
    "raft.node ADD 4 a:1",
    "raft.node REMOVE 4",
    "raft.transfer-leader",
    "quit",
    "reset",
    "migrate 127.0.0.1 1 str 0 10",
    "save",
    "shutdown",
    "sync",
    "psync x 1",
    "discard",
    "exec",
    "multi",
    "watch str",
    "post x",
    "host: x",
];

/// Subcommands of DEBUG, which the table does not have.
const DEBUG_CALLS: &str = "debug LOG text|debug SLEEP 0|debug ASSERT|debug OOM|debug PANIC|debug SEGFAULT|debug OBJECT str|debug RELOAD|\
     debug LOADAOF|debug DIGEST|debug SET-ACTIVE-EXPIRE 0|debug SET-REPLY-AGE 7";

/// Calls that end the process: these are not for a test of what stands afterwards.
const ENDS_THE_PROCESS: &[&str] = &["debug ASSERT", "debug OOM", "debug PANIC", "debug SEGFAULT"];

/// The data before a command: each type, and what other clients wait for and listen to.
const PREPARED: &str = "
    SET str value|SET n 10|SETBIT bits 7 1|SET deadline v EX 1000|RPUSH list a b c|RPUSH list2 x|HSET hash a 1 b 2 n 3 d 4|HEXPIRE hash 1000 FIELDS 1 d
    ACL SETUSER bob on >right ~* &* +@all|SADD set a b c|SADD set2 b c d|ZADD zset 1 a 2 b|ZADD zset2 2 b 3 c|GEOADD geo 13.361389 38.115556 a 15.087269 37.502669 b|PFADD hll a b|PFADD hll2 c
    XADD future 99999999999999-1 f v|XADD stream 1-1 f v|XADD stream 2-1 f v|XGROUP CREATE stream group 0|XREADGROUP GROUP group c COUNT 1 STREAMS stream >|SET cold value
    FUNCTION LOAD #!lua␣name=lib␤redis.register_function('put',function(k)redis.call('publish','channel','m')return␣redis.call('set',k[1],1)end)redis.register_function{function_name='look',flags={'no-writes'},callback=function(k)return␣redis.call('get',k[1])end}
";

/// The clients: one runs the block, one looks, and others listen, wait and are closed.
const ACTOR: usize = 0;
const OBSERVER: usize = 1;
const LISTENER: usize = 2;
const WAITER: usize = 3;

/// The digests of `return(1)`, which a call loads, and of `return(2)`, which is loaded before.
const LOADED_SHA: &str = "930269f31393d0be681588b6ab08dccee7d6bb67";
const KNOWN_SHA: &str = "572625a1039fb30b308c236ab7091a2bd7724d22";

fn calls(table: &str) -> impl Iterator<Item = &str> {
    table.lines().flat_map(|line| line.split('|')).map(str::trim).filter(|call| !call.is_empty())
}

fn prepared() -> Server {
    let mut server = Server::over(Data::with(|options| options.txn_bytes_max = 64 << 10));
    for client in [ACTOR, OBSERVER, LISTENER, WAITER] {
        server.ask(client, "CLIENT ID");
    }
    for command in calls(PREPARED) {
        let reply = server.ask(ACTOR, command);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
    }
    for setting in ["slowlog-log-slower-than 0", "latency-monitor-threshold 1", "commandlog-request-larger-than 0"] {
        server.ask(OBSERVER, &format!("CONFIG SET {setting}"));
    }
    server.ask(OBSERVER, "CONFIG SET commandlog-reply-larger-than 0");
    // A refusal, for the log of these.
    server.ask(OBSERVER, "AUTH bob wrong");
    // One command that takes long, for the slow log and LATENCY.
    server.freeze();
    server.store.faults.hold_gets(true);
    server.send(OBSERVER, "GET cold");
    server.store.faults.wait_for_held_gets(1);
    std::thread::sleep(std::time::Duration::from_millis(3));
    server.store.faults.hold_gets(false);
    server.reply(OBSERVER);
    server.store.base.set_cold(false);
    for setting in ["slowlog-log-slower-than -1", "latency-monitor-threshold 0", "commandlog-request-larger-than -1"] {
        server.ask(OBSERVER, &format!("CONFIG SET {setting}"));
    }
    server.ask(OBSERVER, "CONFIG SET commandlog-reply-larger-than -1");
    assert_eq!(server.ask(OBSERVER, "SCRIPT LOAD return(2)"), format!("$40 {KNOWN_SHA}"));
    for command in ["SUBSCRIBE channel", "SSUBSCRIBE shard", "PSUBSCRIBE q*"] {
        server.ask(LISTENER, command);
    }
    server.send(WAITER, "BLPOP never 0");
    server
}

/// Pauses all clients as far as they write.
fn pause(server: &mut Server) {
    assert_eq!(server.ask(OBSERVER, "CLIENT PAUSE 100000 WRITE"), "+OK");
}

/// Sends a command that may be held back, lets time pass, and reads the reply.
fn pass(server: &mut Server, command: &str, ms: u64) {
    server.send(OBSERVER, command);
    server.now_ms += ms;
    server.send_bytes(OBSERVER, b"");
    server.reply(OBSERVER);
}

/// Returns what can be seen of the server, but for times and counts of commands.
fn observed(server: &mut Server) -> Vec<(String, String)> {
    let mut seen = Vec::new();
    let mut see = |what: &str, text: String| seen.push((what.to_owned(), text));
    // A pause would hold it.
    server.send(OBSERVER, "PUBLISH nobody x");
    see("paused", server.waits(OBSERVER).to_string());
    pass(server, "PING", 200_000);
    server.now_ms -= 200_000;
    let script = format!("SCRIPT EXISTS {LOADED_SHA} {KNOWN_SHA}");
    let plain =
        ["CONFIG GET *", "DEBUG DIGEST", "PUBSUB CHANNELS", "PUBSUB NUMPAT", "ACL LIST", "ROLE", "FUNCTION LIST"];
    for command in plain.into_iter().chain([script.as_str()]) {
        let reply = server.ask(OBSERVER, command);
        // Channels come in any order, and a master says how long its log is.
        let mut words: Vec<&str> =
            reply.split(' ').filter(|word| command != "ROLE" || !word.starts_with(':')).collect();
        if command == "PUBSUB CHANNELS" {
            words.sort_unstable();
        }
        see(command, words.join(" "));
    }
    for kind in ["slow", "large-request", "large-reply"] {
        see(kind, (server.ask(OBSERVER, &format!("COMMANDLOG LEN {kind}")) != ":0").to_string());
    }
    for field in [
        "rdb_bgsave_in_progress",
        "rdb_saves",
        "connected_clients",
        "blocked_clients",
        "monitor_clients",
        "total_watched_keys",
        "tracking_clients",
    ] {
        see(field, server.info(OBSERVER, field));
    }
    let expired = server.info(OBSERVER, "expired_keys");
    server.ask(OBSERVER, "SET gone v PX 1");
    server.worker.expire(server.now_ms + 1000);
    see("keys expire", (server.info(OBSERVER, "expired_keys") != expired).to_string());
    see("refusals", (server.ask(OBSERVER, "ACL LOG") != "*0").to_string());
    see("latency events", (server.ask(OBSERVER, "LATENCY LATEST") != "*0").to_string());
    let reset = server.info(OBSERVER, "total_commands_processed").parse::<u64>().expect("a number") < 30;
    see("statistics were reset", reset.to_string());
    see("heard", server.reply_of_what_ran(LISTENER));
    see("listens", (!server.is_closed(LISTENER)).to_string());
    see("waits for keys", server.waits(WAITER).to_string());
    // The facts of the actor are its flags, names, database and subscriptions.
    let line = server.ask(OBSERVER, "CLIENT LIST");
    let own = line.split('\n').find(|line| line.contains("id=1 ")).unwrap_or_default();
    let kept = ["name=", "flags=", "db=", "sub=", "psub=", "ssub=", "resp=", "lib-name="];
    let facts: Vec<&str> = own.split(' ').filter(|fact| kept.iter().any(|kept| fact.starts_with(kept))).collect();
    see("the client", facts.join(" "));
    let store = server.engine.store_arc().expect("it serves");
    see("the longest time of a reply", format!("{:?}", store.view_age_max()));
    // A full compaction of so little ends soon.
    while store.is_compacting() {
        std::thread::yield_now();
    }
    drop(store);
    see("full compactions", server.info(OBSERVER, "full_compactions_done"));
    seen
}

fn assert_same(call: &str, before: &[(String, String)], after: &[(String, String)]) {
    for ((what, before), (_, after)) in before.iter().zip(after) {
        assert_eq!(before, after, "{call}: {what}");
    }
}

/// Queues a call; whether it is queued, as all but `NOT_QUEUED` are.
fn queue(server: &mut Server, call: &str) -> bool {
    server.ask(ACTOR, "MULTI");
    let reply = server.ask(ACTOR, call);
    assert_eq!(reply == "+QUEUED", !NOT_QUEUED.contains(&call), "{call}: {reply}");
    reply == "+QUEUED"
}

#[test]
fn every_command_has_a_call() {
    let table = Table::new();
    let mut called = BTreeSet::new();
    for call in calls(CALLS) {
        let words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
        let mut owned = OwnedArgs::default();
        words.iter().for_each(|word| owned.push(word));
        if let Ok(entry) = table.resolve(Args::from(owned.as_args())) {
            called.insert(entry.full_name.clone());
        }
    }
    let is_container = |name: &str| name == "command";
    let missing: Vec<String> =
        all_names(&table).into_iter().filter(|name| !called.contains(name) && !is_container(name)).collect();
    assert!(missing.is_empty(), "without a call: {missing:?}");
}

/// All commands, and the subcommands in place of their containers.
fn all_names(table: &Table) -> Vec<String> {
    let mut names = Vec::new();
    for (_, entry) in table.iter() {
        match table.subcommands(entry) {
            [] => names.push(entry.full_name.clone()),
            subcommands => names.extend(subcommands.iter().map(|entry| entry.full_name.clone())),
        }
    }
    names
}

#[test]
fn a_block_that_is_discarded_has_done_nothing() {
    let too_large: String = (0..10).map(|n| format!(" too:large:{n} {}", "x".repeat(10_000))).collect();
    for call in calls(CALLS).chain(calls(DEBUG_CALLS)) {
        let mut server = prepared();
        let before = observed(&mut server);
        if !queue(&mut server, call) {
            continue;
        }
        server.ask(ACTOR, &format!("MSET{too_large}"));
        let reply = server.ask(ACTOR, "EXEC");
        assert!(reply.starts_with("-EXECABORT Transaction discarded because of: "), "{call}: {reply}");
        assert_same(call, &before, &observed(&mut server));
    }
}

/// Checks blocks that write nothing: others wait for the end of the pause.
#[test]
fn a_block_that_is_discarded_in_a_pause_has_done_nothing() {
    let mut undisturbed = prepared();
    pause(&mut undisturbed);
    let before = observed(&mut undisturbed);
    assert_eq!(before[0], ("paused".into(), "true".into()));
    let mut discarded = 0;
    for call in calls(CALLS).chain(calls(DEBUG_CALLS)) {
        let mut server = prepared();
        if !queue(&mut server, call) {
            continue;
        }
        server.ask(ACTOR, "GET cold");
        pause(&mut server);
        server.freeze();
        server.store.faults.set_get_fault(Some(BaseError::Failed("injected".into())));
        server.send(ACTOR, "EXEC");
        // Another database has no such key, and nothing is read.
        if server.is_blocked(ACTOR) || call.starts_with("select") {
            continue;
        }
        let reply = server.reply(ACTOR);
        assert!(reply.starts_with("-EXECABORT Transaction discarded because of: "), "{call}: {reply}");
        server.store.faults.set_get_fault(None);
        assert_same(call, &before, &observed(&mut server));
        discarded += 1;
    }
    assert!(discarded > 150, "only {discarded} blocks were discarded");
}

#[test]
fn a_command_that_runs_again_has_done_everything_once() {
    let mut lacked_rows = 0;
    for call in calls(CALLS).chain(calls(DEBUG_CALLS)) {
        if ENDS_THE_PROCESS.contains(&call) {
            continue;
        }
        let [(once, warm), (again, cold)] = [false, true].map(|is_cold| {
            let mut server = prepared();
            if is_cold {
                server.freeze();
            }
            server.send(ACTOR, call);
            lacked_rows += u32::from(is_cold && server.waits(ACTOR));
            let reply = server.reply(ACTOR);
            (reply, observed(&mut server))
        });
        if !has_random_reply(call) {
            assert_eq!(once, again, "{call}");
        }
        assert_same(call, &warm, &cold);
    }
    assert!(lacked_rows > 150, "only {lacked_rows} commands had to run again");
}

#[test]
fn a_block_that_runs_again_has_done_everything_once() {
    for call in calls(CALLS).chain(calls(DEBUG_CALLS)) {
        if ENDS_THE_PROCESS.contains(&call) {
            continue;
        }
        let ends = [false, true].map(|is_cold| {
            let mut server = prepared();
            if !queue(&mut server, call) {
                return None;
            }
            server.ask(ACTOR, "GET cold");
            if is_cold {
                server.freeze();
            }
            server.send(ACTOR, "EXEC");
            let has_moved = ["flush", "select", "swapdb"].iter().any(|moving| call.starts_with(moving));
            assert!(!is_cold || has_moved || server.waits(ACTOR), "{call}: the first run lacks a row");
            let reply = server.reply(ACTOR);
            Some((reply, observed(&mut server)))
        });
        let [Some((once, warm)), Some((again, cold))] = ends else { continue };
        if !has_random_reply(call) {
            assert_eq!(once, again, "{call}");
        }
        assert_same(call, &warm, &cold);
    }
}

/// Replies with times, sizes of memory, or what is drawn at random.
fn has_random_reply(call: &str) -> bool {
    const RANDOM: &[&str] = &[
        "acl GENPASS",
        "acl LOG",
        "client",
        "cluster",
        "commandlog",
        "debug OBJECT",
        "hexpiretime",
        "hpexpiretime",
        "hpttl",
        "hrandfield",
        "httl",
        "info",
        "lastsave",
        "latency",
        "lolwut",
        "memory",
        "pttl",
        "randomkey",
        "slowlog",
        "srandmember",
        "time",
        "ttl",
        "xinfo",
        "xpending",
        "zrandmember",
    ];
    RANDOM.iter().any(|random| call.starts_with(random))
}
