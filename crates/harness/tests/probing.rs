//! The questions of graphical clients when they connect and while they show a server, over both protocols: each reply
//! must be of the kind that redis-server's is, and make sense.

mod tools;

use haypile_harness::client::{Client, Reply};
use haypile_harness::server::{REPLY_TIMEOUT, Server, Template, Workplace};
use tools::start;

/// The demand on a reply, beside the kind of redis-server's.
enum Sane {
    /// No other demand: the content is the server's own.
    Kind,
    /// A text with all of these in it.
    Text(&'static [&'static str]),
    /// The given number or word.
    Is(&'static str),
    /// A number in this range.
    Between(i64, i64),
    /// At least so many elements or pairs, of the same kinds as redis-server's first.
    Many(usize),
    /// An error that begins so.
    Error(&'static str),
    /// One that 7.0 does not know, `OK` here.
    NewerOk,
}
use Sane::*;

/// In the order in which such clients ask: who they are, what the server is, what it can, what is in it, how it does.
const PROBES: &[(&str, Sane)] = &[
    ("CLIENT SETNAME browser", Is("OK")),
    ("CLIENT SETINFO LIB-NAME prober", NewerOk),
    ("CLIENT SETINFO LIB-VER 1.2.3", NewerOk),
    ("CLIENT GETNAME", Is("browser")),
    ("CLIENT INFO", Text(&["name=browser ", "cmd=client|info"])),
    ("CLIENT LIST", Text(&["name=browser "])),
    ("INFO", Text(&["redis_version:7.", "redis_mode:standalone", "used_memory_human:", "role:master", "db0:keys=4,"])),
    ("INFO server", Text(&["# Server", "os:", "uptime_in_seconds:"])),
    ("INFO replication", Text(&["role:master", "connected_slaves:0"])),
    ("INFO commandstats", Text(&["cmdstat_client|setname:calls="])),
    ("INFO modules", Text(&["# Modules"])),
    ("COMMAND", Many(50)),
    ("COMMAND COUNT", Between(50, 1000)),
    ("COMMAND INFO get set nosuch", Many(3)),
    ("COMMAND LIST", Many(50)),
    ("COMMAND LIST FILTERBY PATTERN client|*", Many(10)),
    ("COMMAND DOCS", Many(50)),
    ("COMMAND DOCS get", Many(1)),
    ("COMMAND GETKEYS MSET a 1 b 2", Many(2)),
    ("MODULE LIST", Many(0)),
    ("ACL WHOAMI", Is("default")),
    ("ACL CAT", Many(20)),
    ("CLUSTER INFO", Error("ERR This instance has cluster support disabled")),
    ("CLUSTER NODES", Error("ERR This instance has cluster support disabled")),
    ("ROLE", Many(3)),
    ("CONFIG GET *", Many(100)),
    ("CONFIG GET databases", Many(1)),
    ("CONFIG GET maxmemory*", Many(2)),
    ("SELECT 0", Is("OK")),
    ("DBSIZE", Is("4")),
    ("SCAN 0 COUNT 1000", Many(2)),
    ("SCAN 0 MATCH user:* COUNT 1000 TYPE string", Many(2)),
    ("SCAN 0 TYPE hash", Many(2)),
    ("TYPE user:1", Is("string")),
    ("TYPE nothing", Is("none")),
    ("TTL user:1", Is("-1")),
    ("PTTL with:deadline", Between(1, 1_000_000)),
    ("OBJECT ENCODING user:1", Is("embstr")),
    ("OBJECT ENCODING number", Is("int")),
    ("OBJECT ENCODING long", Is("raw")),
    ("OBJECT ENCODING nothing", Kind),
    ("OBJECT IDLETIME user:1", Between(0, 60)),
    ("OBJECT FREQ user:1", Error("ERR An LFU maxmemory policy is not selected")),
    ("MEMORY USAGE user:1", Between(1, 1000)),
    ("MEMORY USAGE long SAMPLES 0", Between(100, 2000)),
    ("MEMORY USAGE nothing", Kind),
    ("STRLEN long", Is("100")),
    ("GETRANGE long 0 3", Is("vvvv")),
    ("MEMORY DOCTOR", Kind),
    ("MEMORY STATS", Many(10)),
    ("MEMORY PURGE", Is("OK")),
    ("SLOWLOG LEN", Between(0, 128)),
    ("SLOWLOG GET 128", Many(0)),
    ("CONFIG GET slowlog*", Many(2)),
    ("LATENCY LATEST", Many(0)),
    ("LATENCY HISTOGRAM get", Many(0)),
    ("LATENCY HISTORY command", Many(0)),
    ("LATENCY DOCTOR", Kind),
    ("LATENCY RESET", Between(0, 10)),
    ("PUBSUB CHANNELS", Many(0)),
    ("PUBSUB NUMPAT", Is("0")),
    ("PUBLISH probes hello", Is("0")),
    ("LASTSAVE", Between(1_700_000_000, i64::MAX)),
    ("TIME", Many(2)),
    ("WAIT 0 0", Is("0")),
    ("LOLWUT", Kind),
    ("PING", Is("PONG")),
    ("ECHO hello", Is("hello")),
    ("NOSUCH command", Error("ERR unknown command 'NOSUCH'")),
    ("CLIENT NO-EVICT on", Is("OK")),
    ("CLIENT TRACKINGINFO", Many(3)),
    ("RESET", Is("RESET")),
];

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Integer(number) => number.to_string(),
        reply => String::from_utf8_lossy(reply.bytes().unwrap_or_default()).into_owned(),
    }
}

/// How many elements or pairs it has, and the first of them.
fn parts(reply: &Reply) -> Option<(usize, Vec<&Reply>)> {
    match reply {
        Reply::Map(pairs) => Some((pairs.len(), pairs.first().map_or(vec![], |(name, value)| vec![name, value]))),
        reply => reply.elements().map(|items| (items.len(), items.iter().take(1).collect())),
    }
}

fn same_kind(ours: &Reply, theirs: &Reply) -> bool {
    std::mem::discriminant(ours) == std::mem::discriminant(theirs)
}

fn check(words: &str, sane: &Sane, ours: &Reply, theirs: &Reply) {
    let where_ = format!("{words}: {ours}\nredis-server: {theirs}");
    if matches!(sane, NewerOk) {
        return assert!(ours.is_ok(), "{where_}");
    }
    assert!(same_kind(ours, theirs), "another kind: {where_}");
    let is_sane = match sane {
        Kind | NewerOk => true,
        Text(all) => all.iter().all(|part| text(ours).contains(part)),
        Is(word) => text(ours) == *word && text(theirs) == *word,
        Between(least, most) => ours.integer().is_some_and(|number| (*least..=*most).contains(&number)),
        Many(least) => {
            let (Some((count, first)), Some((_, other))) = (parts(ours), parts(theirs)) else { panic!("{where_}") };
            let alike = first.iter().zip(other).all(|(ours, theirs)| same_kind(ours, theirs));
            count >= *least && alike
        }
        Error(begin) => [ours, theirs].iter().all(|reply| reply.error().is_some_and(|text| text.starts_with(begin))),
    };
    assert!(is_sane, "{where_}");
}

fn connect(server: &Server, protocol: u32) -> Client {
    let mut client = Client::connect(server.port(), REPLY_TIMEOUT).expect("it serves");
    let hello = client.command(&format!("HELLO {protocol}")).expect("it answers");
    assert!(hello.error().is_none(), "{hello}");
    client
}

#[test]
fn what_graphical_clients_ask_is_answered_as_redis_server_does() {
    let (ours, _place) = start("probing");
    let place = Workplace::new("probing-redis", None).expect("the temporary directory is writable");
    let (theirs, _) =
        Server::start(&Template::redis("").expect("the template has its marks"), &place).expect("redis-server starts");
    for server in [&ours, &theirs] {
        let mut client = connect(server, 2);
        let long = "v".repeat(100);
        for command in ["SET user:1 alice", "SET number 17", "SET with:deadline x EX 600", &format!("SET long {long}")]
        {
            assert!(client.command(command).expect("it answers").is_ok());
        }
    }
    for protocol in [2, 3] {
        let mut pair = [connect(&ours, protocol), connect(&theirs, protocol)];
        for (words, sane) in PROBES {
            let [ours, theirs] = pair.each_mut().map(|client| client.command(words).expect("it answers"));
            check(words, sane, &ours, &theirs);
        }
    }
    ours.stop().expect("it stops cleanly");
    theirs.stop().expect("it stops cleanly");
}
