//! A public library that speaks PSYNC follows the server: redis-replicator, which programs in Java build on that carry
//! a Redis's data and changes elsewhere. `data/replicator/Follow.java` is such a program; its versions are pinned, and
//! the first run fetches them. A redis-server that follows has `psync.rs` and the tests of the server.

mod tools;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use haypile_harness::client::{Client, Reply};
use haypile_harness::psync::{compare, load};
use haypile_harness::random::fresh_seed;
use haypile_harness::server::{Server, Template, Workplace, haypile_binary};
use tools::java_program;

/// Values of all types in several databases, of which the followers read in a file.
const BEFORE: &str = "SET text one | SET number 41 | SETRANGE long 30000 end | PFADD sketch a b c | SETBIT bits 900 1
RPUSH list a b c | SADD numbers 1 2 70000 | SADD names one two 3 | HSET hash f v g w | ZADD scored 1 a 2.5 b inf c
GEOADD places 13.36 38.11 Palermo | XADD stream 1-1 f v | XADD stream 2-1 f w | XADD stream 3-1 f x
XGROUP CREATE stream group 0 | XREADGROUP GROUP group reader COUNT 2 STREAMS stream > | XACK stream group 1-1
SET late value EX 9000 | SELECT 3 | SET text of-three | HSET hash f of-three | PEXPIREAT hash 4102444800000 | SELECT 15
RPUSH list of-fifteen";

/// Commands that they read in the stream, on either side of a break.
const FIRST: &str = "SELECT 0 | INCR number | APPEND text more | EXPIRE text 8000 | SETEX late 7000 again | PERSIST late
LPUSH list z | LSET list 1 y | LREM list 1 b | SREM names one | SPOP numbers | HDEL hash f | HINCRBY hash n 4
ZINCRBY scored 3 a | ZPOPMIN scored | MULTI | INCR number | RPUSH list in-a-block | SELECT 2 | SET moved 1 | EXEC
EVAL redis.call('SET',KEYS[1],'by');return(redis.call('INCR',KEYS[2])) 2 script number | SELECT 0 | FCALL twice 1 number";
const SECOND: &str =
    "SELECT 0 | XADD stream * f y | XTRIM stream MAXLEN 3 | XCLAIM stream group other 0 2-1 | XDEL stream 3-1
XGROUP CREATE stream second $ | COPY list list2 | RENAME list2 list3 | DEL bits | GETEX text PX 700000 | SET gone 1 PX 1
SORT list ALPHA STORE sorted | SUNIONSTORE union numbers names | PFADD sketch d | BITFIELD bits SET u8 0 200
INCRBYFLOAT float 0.1 | HINCRBYFLOAT hash x 0.25 | MSET m 1 n 2 | MOVE m 4 | SWAPDB 5 6 | SELECT 7 | SET x 1 | FLUSHDB";

const LIBRARY: &str =
    "#!lua name=mine\nredis.register_function('twice', function(k, a) return redis.call('INCRBY', k[1], 2) end)";

/// The events that the library makes of the file and of the commands, by its names.
const EVENTS: [&str; 24] = [
    "Function",
    "KeyStringValueHash",
    "KeyStringValueList",
    "KeyStringValueSet",
    "KeyStringValueStream",
    "KeyStringValueString",
    "KeyStringValueZSet",
    "MultiCommand",
    "ExecCommand",
    "SelectCommand",
    "SetCommand",
    "IncrCommand",
    "IncrByCommand",
    "AppendCommand",
    "PExpireAtCommand",
    "PersistCommand",
    "LPushCommand",
    "LSetCommand",
    "RPushCommand",
    "SRemCommand",
    "HDelCommand",
    "XAddCommand",
    "XDelCommand",
    "PFAddCommand",
];

/// The time within which a follower is there, or has all.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Generated commands that are left out. A Redis that leads ends deadlines by its own clock, while a carrier is behind;
/// and some keys are to be left.
const LEFT_OUT: [&str; 12] = [
    "set",
    "setex",
    "psetex",
    "msetex",
    "getex",
    "expire",
    "pexpire",
    "expireat",
    "pexpireat",
    "restore",
    "flushall",
    "flushdb",
];

/// The time for which generated commands come.
const LOAD: Duration = Duration::from_secs(2);

fn send(client: &mut Client, commands: &str) {
    for command in commands.split(['|', '\n']) {
        let reply = client.command(command).expect("the server answers");
        assert_eq!(reply.error(), None, "{command}");
    }
}

/// Waits until a text that the server is asked for is as it is to be.
fn wait_for(client: &mut Client, question: &str, is_there: impl Fn(&str) -> bool) {
    let begin = Instant::now();
    loop {
        let reply = client.command(question).expect("the server answers");
        let text = String::from_utf8_lossy(reply.bytes().expect("a text")).into_owned();
        if is_there(&text) {
            return;
        }
        assert!(begin.elapsed() < WAIT_MAX, "{text}");
        sleep(Duration::from_millis(20));
    }
}

/// Returns all that a reply says, sorted: Redis lists functions in the order of a hash table.
fn words(reply: &Reply) -> Vec<String> {
    let mut words = match reply.elements() {
        Some(elements) => elements.iter().flat_map(words).collect(),
        None => vec![reply.to_string()],
    };
    words.sort();
    words
}

/// Starts a follower, which ends when the key `end` is set.
fn follow(class_path: &str, source: u16, to: &str, end: &str) -> Child {
    Command::new("java")
        .args(["-cp", class_path, "Follow", &source.to_string(), to, end])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("java must be installed: {error}"))
}

/// Returns what a follower has printed, which ends by itself.
fn printed(follower: Child) -> String {
    let output = follower.wait_with_output().expect("it is our child");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("all good\n"), "{text}");
    text
}

#[test]
fn redis_replicator_carries_all_to_a_redis_and_reads_each_event() {
    let (pom, program) = (include_str!("data/replicator/pom.xml"), include_str!("data/replicator/Follow.java"));
    let class_path = java_program("replicator", pom, "Follow.java", program);
    let binary = haypile_binary().expect("the server is built before its tests");
    let ours = Template::haypile(&binary, "--enable-debug-command yes --maxmemory 64mb");
    let theirs = Template::redis("--enable-debug-command yes");
    let places = ["replicator", "replicator-redis"].map(|name| Workplace::new(name, None).expect("there is a disk"));
    let start = |template: anyhow::Result<Template>, place| {
        Server::start(&template.expect("a command line"), place).expect("the server starts").0
    };
    let (source, target) = (start(ours, &places[0]), start(theirs, &places[1]));
    let (mut client, mut other) = (source.client().expect("it listens"), target.client().expect("it listens"));
    send(&mut client, BEFORE);
    assert_eq!(client.call(&["FUNCTION", "LOAD", LIBRARY]).expect("it answers").error(), None);

    let carrier = follow(&class_path, source.port(), &target.port().to_string(), "end");
    let reader = follow(&class_path, source.port(), "events", "end-of-events");
    wait_for(&mut client, "INFO replication", |info| info.matches("state=online").count() == 2);
    send(&mut client, FIRST);
    // Both go on where they were.
    let thrown_out = client.command("CLIENT KILL TYPE replica").expect("the server answers");
    assert_eq!(thrown_out.integer(), Some(2));
    send(&mut client, SECOND);
    send(&mut client, "SELECT 0 | SET end-of-events 1");
    let events = printed(reader);
    let missing: Vec<_> = EVENTS.iter().filter(|name| !events.contains(&format!("{name} "))).collect();
    assert!(missing.is_empty(), "{missing:?} of\n{events}");

    // The library's reading ends at scores without an end, which are among the generated commands.
    let (ends, port, seed) = (AtomicBool::new(false), source.port(), fresh_seed());
    println!("seed {seed}");
    let sent = std::thread::scope(|threads| {
        let writer = threads.spawn(|| load::write(port, seed, 0, &LEFT_OUT, &ends));
        sleep(LOAD);
        ends.store(true, Ordering::Release);
        writer.join().expect("the writer does not panic").expect("the server is there")
    });
    assert!(sent > 0);
    // A command whose writer has given up waiting may still be under way.
    wait_for(&mut client, "CLIENT LIST TYPE normal", |list| list.lines().count() == 1);
    send(&mut client, "SELECT 0 | SET end 1");

    printed(carrier);
    let keys = compare::compare(&mut client, None, &mut other, true, WAIT_MAX).expect("both have the same");
    assert!(keys > 20, "{keys} keys");
    let [ours, theirs] = [&mut client, &mut other].map(|client| client.command("FUNCTION LIST WITHCODE"));
    assert_eq!(words(&ours.expect("it answers")), words(&theirs.expect("it answers")));
    let log = places[0].log_text();
    assert_eq!(log.matches("a Redis, gets all data").count(), 2, "{log}");
    assert_eq!(log.matches("a Redis, goes on behind").count(), 2, "{log}");
    source.stop().expect("it stops cleanly");
}
