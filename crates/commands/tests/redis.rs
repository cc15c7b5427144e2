//! COMMAND INFO and COMMAND DOCS beside a real redis-server 7.0: equal field by field, but for what 7.2 changed.

mod common;

use common::Session;
use haypile_harness::client::{Client, Reply, decode};
use haypile_harness::server::{Server, Template, Workplace};
use haypile_resp::Protocol;

/// Differences of 7.2 from 7.0: a full name and the field of COMMAND INFO or COMMAND DOCS.
const CHANGED_IN_7_2: &[(&str, &str)] = &[
    ("acl|deluser", "tips"),
    ("acl|log", "history"),
    ("acl|save", "tips"),
    ("acl|setuser", "tips"),
    ("blmove", "flags"),
    ("blpop", "flags"),
    ("brpop", "flags"),
    ("brpoplpush", "flags"),
    ("bzpopmax", "flags"),
    ("bzpopmin", "flags"),
    ("eval", "flags"),
    ("evalsha", "flags"),
    ("fcall", "flags"),
    ("client|kill", "arguments"),
    ("geohash", "arguments"),
    ("geopos", "arguments"),
    ("hscan", "complexity"),
    // NOVALUES, of 7.4.
    ("hscan", "arguments"),
    // Comparisons, of 8.4.
    ("set", "arguments"),
    ("set", "history"),
    // COUNT, of 8.8.
    ("zinter", "arguments"),
    ("zinterstore", "arguments"),
    ("zunion", "arguments"),
    ("zunionstore", "arguments"),
    ("zrank", "arguments"),
    ("zrank", "arity"),
    ("zrank", "history"),
    ("zrevrank", "arguments"),
    ("zrevrank", "arity"),
    ("zrevrank", "history"),
    ("zscan", "complexity"),
    ("client|pause", "since"),
    ("xinfo|consumers", "history"),
    ("xinfo|stream", "history"),
    ("command|getkeys", "arity"),
    ("command|getkeysandflags", "arity"),
    ("pfcount", "flags"),
    ("publish", "flags"),
    ("psetex", "deprecated_since"),
    ("psetex", "doc_flags"),
    ("psetex", "replaced_by"),
    ("quit", "deprecated_since"),
    ("quit", "doc_flags"),
    ("quit", "replaced_by"),
    ("spublish", "flags"),
    ("setex", "deprecated_since"),
    ("setex", "doc_flags"),
    ("setex", "replaced_by"),
    ("setnx", "deprecated_since"),
    ("setnx", "doc_flags"),
    ("setnx", "replaced_by"),
    // New options of 8.2, and of 8.4 to 8.10.
    ("xadd", "arguments"),
    ("xadd", "history"),
    ("xread", "arguments"),
    ("xread", "history"),
    ("xreadgroup", "arguments"),
    ("xreadgroup", "history"),
    ("xtrim", "arguments"),
    ("xtrim", "history"),
    ("cluster|shards", "flags"),
    ("cluster|slots", "flags"),
    ("wait", "categories"),
    ("wait", "flags"),
];

/// New in 7.2 or later.
const ADDED_SINCE: &[&str] = &[
    "client|no-touch",
    "client|setinfo",
    "cluster|myshardid",
    "waitaof",
    "hexpire",
    "hpexpire",
    "hexpireat",
    "hpexpireat",
    "httl",
    "hpttl",
    "hexpiretime",
    "hpexpiretime",
    "hpersist",
    "hgetex",
    "hsetex",
    "hgetdel",
    "digest",
    "delex",
    "msetex",
    "increx",
    "lmovem",
    "blmovem",
    "sunioncard",
    "sdiffcard",
    "archive.backup",
    "changes.follow",
    "compact",
    "raft.cluster",
    "raft.cluster|help",
    "raft.cluster|init",
    "raft.cluster|join",
    "raft.cluster|reset",
    "raft.info",
    "raft.node",
    "raft.node|add",
    "raft.node|help",
    "raft.node|remove",
    "raft.transfer-leader",
    "commandlog",
    "commandlog|get",
    "commandlog|help",
    "commandlog|len",
    "commandlog|reset",
    "xackdel",
    "xcfgset",
    "xdelex",
    "xidmprecord",
    "xnack",
];

const INFO_FIELDS: [&str; 10] =
    ["name", "arity", "flags", "first key", "last key", "step", "categories", "tips", "key specs", "subcommands"];

#[test]
fn info_and_docs_equal_those_of_redis_server() {
    let place = Workplace::new("command-info", None).expect("the temporary directory is writable");
    let template = Template::redis("").expect("the command line of redis-server parses");
    let (server, _) = Server::start(&template, &place).expect("redis-server is installed and starts");
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut redis = server.client().expect("redis-server accepts connections");
        let mut session = Session { protocol, ..Session::default() };
        redis.command(if protocol == Protocol::Resp3 { "HELLO 3" } else { "HELLO 2" }).expect("redis-server answers");
        let names: Vec<String> = names(&session);
        assert!(names.len() > 60, "the whole table is compared");
        for name in names.iter().filter(|name| !ADDED_SINCE.contains(&name.as_str())) {
            compare(name, "COMMAND INFO", info_fields, &mut session, &mut redis);
            compare(name, "COMMAND DOCS", docs_fields, &mut session, &mut redis);
        }
    }
}

fn names(session: &Session) -> Vec<String> {
    let table = &session.table;
    let all = table.iter().flat_map(|(_, entry)| std::iter::once(entry).chain(table.subcommands(entry)));
    all.map(|entry| entry.full_name.clone()).collect()
}

/// Compares one command's fields. Ours are encoded and decoded again, so that the encoding is compared too.
fn compare(
    name: &str,
    question: &str,
    fields: fn(Reply) -> Vec<(String, Reply)>,
    session: &mut Session,
    redis: &mut Client,
) {
    let line = format!("{question} {name}");
    let mut bytes = Vec::new();
    session.call(&line).encode(session.protocol, &mut bytes);
    let ours = decode(&mut &bytes[..]).expect("our own reply decodes");
    let theirs = redis.command(&line).expect("redis-server answers");
    let unlike = |(field, _): &(String, Reply)| {
        // Summaries are in our own words, and subcommands, which are compared by themselves, come in any order.
        !["summary", "subcommands"].contains(&field.as_str()) && !CHANGED_IN_7_2.contains(&(name, field))
    };
    let ours: Vec<_> = fields(ours).into_iter().filter(unlike).collect();
    let theirs: Vec<_> = fields(theirs).into_iter().filter(unlike).collect();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "{line}, protocol {:?}", session.protocol);
    }
    assert_eq!(ours.len(), theirs.len(), "{line}, protocol {:?}: {ours:?}, redis-server {theirs:?}", session.protocol);
}

/// The one command of a reply to COMMAND INFO.
fn info_fields(reply: Reply) -> Vec<(String, Reply)> {
    let [Reply::Array(fields)] = reply.elements().expect("COMMAND INFO answers an array") else {
        panic!("COMMAND INFO of one command describes one: {reply}");
    };
    INFO_FIELDS.iter().zip(fields).map(|(name, value)| (name.to_string(), value.clone())).collect()
}

/// The one command of a reply to COMMAND DOCS; its name is a field too.
fn docs_fields(reply: Reply) -> Vec<(String, Reply)> {
    let pairs = pairs(reply);
    let [(name, facts)] = &pairs[..] else { panic!("COMMAND DOCS of one command describes one: {pairs:?}") };
    let name = ("name".to_owned(), name.clone());
    let text = |reply: &Reply| String::from_utf8_lossy(reply.bytes().expect("fields have names")).into_owned();
    std::iter::once(name)
        .chain(self::pairs(facts.clone()).iter().map(|(name, value)| (text(name), value.clone())))
        .collect()
}

/// The pairs of a map, in either protocol.
fn pairs(reply: Reply) -> Vec<(Reply, Reply)> {
    match reply {
        Reply::Map(pairs) => pairs,
        Reply::Array(flat) => flat.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
        other => panic!("not a map: {other}"),
    }
}
