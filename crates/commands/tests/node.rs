//! The answers of a node by itself to the commands about replication, clusters, users and modules.

mod common;

use common::Session;
use haypile_commands::host::{Act, ClusterFacts, ClusterNode, Failover, MemoryFacts, Wait, WaitKind};
use haypile_resp::{Protocol, Reply};
use std::time::Duration;

#[track_caller]
fn check(line: &str, expected: Reply) {
    assert_eq!(Session::default().call(line), expected, "{line}");
}

#[track_caller]
fn fails(line: &str, expected: &'static str) {
    check(line, Reply::error(expected));
}

#[test]
fn a_node_is_a_master_without_replicas() {
    check("ROLE", Reply::Array(vec![Reply::bulk("master"), Reply::Integer(0), Reply::Array(Vec::new())]));
    for (line, expected) in [
        ("FAILOVER ABORT TO host 1", "ERR syntax error"),
        ("FAILOVER TO host", "ERR syntax error"),
        ("FAILOVER TO host x", "ERR value is not an integer or out of range"),
        ("FAILOVER TIMEOUT 0", "ERR FAILOVER timeout must be greater than 0"),
        ("FAILOVER FORCE FORCE", "ERR syntax error"),
    ] {
        fails(line, expected);
    }
}

#[test]
fn it_asks_for_a_failover() {
    let wanted = |target: Option<(&str, i64)>, timeout_ms: Option<u64>, forces| {
        let target = target.map(|(host, port)| (host.to_owned(), port));
        Act::Failover(Failover { target, timeout: timeout_ms.map(Duration::from_millis), forces })
    };
    for (line, act) in [
        ("FAILOVER", wanted(None, None, false)),
        ("failover timeout 7 to host 1", wanted(Some(("host", 1)), Some(7), false)),
        ("FAILOVER TO host 1 FORCE TIMEOUT 10", wanted(Some(("host", 1)), Some(10), true)),
        ("FAILOVER FORCE", wanted(None, None, true)),
        ("FAILOVER abort", Act::AbortFailover),
    ] {
        let mut session = Session::default();
        assert_eq!(session.call(line), Reply::ok(), "{line}");
        assert_eq!(session.done, [format!("{act:?}")], "{line}");
    }
}

#[test]
fn it_follows_and_leads_again() {
    let follows = |line: &str| {
        let mut session = Session::default();
        assert_eq!(session.call(line), Reply::ok(), "{line}");
        session.follows.expect("it changes its master")
    };
    assert_eq!(follows("REPLICAOF host 6379"), Some(("host".to_owned(), 6379)));
    assert_eq!(follows("slaveof ::1 0"), Some(("::1".to_owned(), 0)));
    assert_eq!(follows("REPLICAOF no ONE"), None);
    assert_eq!(follows("slaveof NO one"), None);
    for line in ["REPLICAOF host port", "REPLICAOF no two", "SLAVEOF host -1", "SLAVEOF host 65536"] {
        fails(line, "ERR Invalid master port");
    }
}

#[test]
fn slaveof_takes_the_word_with_which_pika_fetches_a_copy() {
    let mut session = Session::default();
    assert_eq!(session.call("SLAVEOF host 6379 Force"), Reply::ok());
    assert_eq!(session.done, [r#"FollowAnew { host: "host", port: 6379 }"#]);
    fails("SLAVEOF host port force", "ERR Invalid master port");
    for line in ["SLAVEOF host 1 now", "SLAVEOF no one force", "SLAVEOF host 1 force 2", "SLAVEOF host"] {
        fails(line, "ERR wrong number of arguments for 'slaveof' command");
    }
    fails("REPLICAOF host 1 force", "ERR wrong number of arguments for 'replicaof' command");
}

#[test]
fn replconf_knows_the_options_of_redis_and_hands_its_own_over() {
    check("REPLCONF listening-port 6380 capa eof capa psync2", Reply::ok());
    check("REPLCONF ack 0", Reply::None);
    check("REPLCONF getack *", Reply::None);
    fails("REPLCONF listening-port x", "ERR value is not an integer or out of range");
    fails("REPLCONF rdb-filter-only keys", "ERR Unsupported rdb-filter-only option: keys");
    fails("REPLCONF x y", "ERR Unrecognized REPLCONF option: x");
    fails("REPLCONF capa", "ERR syntax error");
    fails("REPLCONF haypile-hello", "ERR this server cannot be followed");
    let mut session = Session::default();
    assert_eq!(session.call("REPLCONF haypile-fetch abc"), Reply::None);
    assert_eq!(session.handed_over, Some(vec![b"haypile-fetch".to_vec(), b"abc".to_vec()]));
    assert_eq!(session.call("REPLCONF listening-port 6380 capa eof"), Reply::ok());
    assert_eq!(session.replica_says, [b"listening-port=6380".to_vec(), b"capa=eof".to_vec()]);
    assert_eq!(session.call("PSYNC ? -1"), Reply::None);
    assert_eq!(session.handed_over, Some([&b"psync"[..], b"?", b"-1"].map(<[u8]>::to_vec).into()));
    fails("PSYNC ? x", "ERR value is not an integer or out of range");
    assert_eq!(session.call("SYNC"), Reply::None);
    assert_eq!(session.handed_over, Some(vec![b"sync".to_vec()]));
}

#[test]
fn wait_is_held_back_until_its_time_is_over() {
    let waits = |line: &str| {
        let mut session = Session::default();
        assert_eq!(session.call(line), Reply::None, "{line}");
        session.wait.expect("it waits")
    };
    assert_eq!(waits("WAIT 1 100"), Wait { kind: WaitKind::Wait { replicas: 1 }, timeout_ms: Some(100) });
    assert_eq!(waits("WAIT 3 0"), Wait { kind: WaitKind::Wait { replicas: 3 }, timeout_ms: None });
    let aof = |local, replicas| WaitKind::WaitAof { local, replicas };
    assert_eq!(waits("WAITAOF 1 0 7"), Wait { kind: aof(true, 0), timeout_ms: Some(7) });
    assert_eq!(waits("WAITAOF 0 0 7"), Wait { kind: aof(false, 0), timeout_ms: Some(0) });
    assert_eq!(waits("WAITAOF 1 1 0"), Wait { kind: aof(true, 1), timeout_ms: None });
    for line in ["WAIT 0 100", "WAIT -5 100"] {
        assert_eq!(waits(line), Wait { kind: WaitKind::Wait { replicas: 0 }, timeout_ms: Some(0) });
    }
}

/// From the source of Redis 7.2: 7.0 has no WAITAOF, and lets timeouts go beyond the end of time.
#[test]
fn wait_and_waitaof_check_their_numbers() {
    for (line, expected) in [
        ("WAIT x 1", "ERR value is not an integer or out of range"),
        ("WAIT 1 x", "ERR timeout is not an integer or out of range"),
        ("WAIT 1 -1", "ERR timeout is negative"),
        ("WAIT 1 9223372036854775807", "ERR timeout is out of range"),
        ("WAIT 1 9223372036854775808", "ERR timeout is not an integer or out of range"),
        ("WAITAOF x 0 0", "ERR value is not an integer or out of range"),
        ("WAITAOF 2 0 0", "ERR value is out of range, value must between 0 and 1"),
        ("WAITAOF -1 0 0", "ERR value is out of range, value must between 0 and 1"),
        ("WAITAOF 1 -1 0", "ERR value is out of range, must be positive"),
        ("WAITAOF 1 x 0", "ERR value is out of range, must be positive"),
        ("WAITAOF 1 0 -1", "ERR timeout is negative"),
        ("WAITAOF 1 0", "ERR wrong number of arguments for 'waitaof' command"),
    ] {
        fails(line, expected);
    }
    let mut session = Session { in_memory: true, ..Session::default() };
    let text = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
    assert_eq!(session.call("WAITAOF 1 0 0"), Reply::error(text));
    assert_eq!(session.call("WAITAOF 0 0 0"), Reply::None);
}

#[test]
fn there_is_no_cluster() {
    let mut session = Session::default();
    let disabled = Reply::error("ERR This instance has cluster support disabled");
    for line in ["READONLY", "READWRITE", "ASKING", "CLUSTER INFO", "cluster help", "CLUSTER KEYSLOT k"] {
        assert_eq!(session.call(line), disabled, "{line}");
    }
    fails("CLUSTER KEYSLOT", "ERR wrong number of arguments for 'cluster|keyslot' command");
    fails("CLUSTER NOSUCH", "ERR unknown subcommand 'NOSUCH'. Try CLUSTER HELP.");
}

/// A cluster of three, as the second of them sees it.
fn cluster(leader: Option<u64>) -> ClusterFacts {
    let node = |id: u64| ClusterNode {
        id,
        host: "10.0.0.1".to_owned(),
        port: 7000 + id as u16,
        is_self: id == 2,
        is_leader: leader == Some(id),
        is_linked: id != 3,
        offset: 40 + id,
    };
    ClusterFacts { shard: "01".repeat(20), epoch: 6, is_up: leader.is_some(), nodes: (1..4).map(node).collect() }
}

fn in_cluster(leader: Option<u64>) -> Session {
    Session { cluster: Some(cluster(leader)), ..Session::default() }
}

/// Returns a reply in RESP2, its lines between spaces.
fn told(session: &mut Session, line: &str) -> String {
    let mut out = Vec::new();
    session.call(line).encode(Protocol::Resp2, &mut out);
    String::from_utf8(out).expect("it is text").replace("\r\n", " ")
}

/// The names of the three nodes: they must never change.
const NAMES: [&str; 3] = [
    "29daff44f88db199e21af32934131adf3d2de4b0",
    "cfb9dec53e474179a8a7eb7350bb88c54a5b0752",
    "e494d8a323ccfcbc0ea1130d2c8799a74c592438",
];

#[test]
fn a_group_is_a_cluster_of_one_shard() {
    let [first, second, third] = NAMES;
    let mut session = in_cluster(Some(1));
    assert_eq!(session.call("CLUSTER MYID"), Reply::bulk(second));
    assert_eq!(session.call("CLUSTER MYSHARDID"), Reply::bulk("01".repeat(20)));
    let slots = |name: &str, port: u16| format!("*4 $8 10.0.0.1 :{port} $40 {name} *0 ");
    // A replica that has failed is no address for clients.
    let expected = format!("*1 *4 :0 :16383 {}{}", slots(first, 7001), slots(second, 7002));
    assert_eq!(told(&mut session, "CLUSTER SLOTS"), expected);
    let lines = [
        format!("{first} 10.0.0.1:7001@7001 master - 0 0 6 connected 0-16383"),
        format!("{second} 10.0.0.1:7002@7002 myself,slave {first} 0 0 6 connected"),
        format!("{third} 10.0.0.1:7003@7003 slave,fail? {first} 0 0 6 disconnected"),
    ];
    let text = lines.join("\n") + "\n";
    assert_eq!(session.call("CLUSTER NODES"), Reply::Verbatim("txt", text.into_bytes().into()));
    let replicas = Reply::array(lines[1..].iter().cloned().map(Reply::bulk));
    for command in ["REPLICAS", "SLAVES"] {
        assert_eq!(session.call(&format!("CLUSTER {command} {first}")), replicas);
        let refused = Reply::error("ERR The specified node is not a master");
        assert_eq!(session.call(&format!("CLUSTER {command} {second}")), refused);
        assert_eq!(session.call(&format!("CLUSTER {command} x")), Reply::error("ERR Unknown node x"));
    }
    assert_eq!(session.call(&format!("CLUSTER COUNT-FAILURE-REPORTS {third}")), Reply::Integer(0));
    assert_eq!(session.call("CLUSTER COUNT-FAILURE-REPORTS x"), Reply::error("ERR Unknown node x"));
    let node = |name: &str, port: u16, role: &str, offset: u64, health: &str| {
        let role = format!("${} {role}", role.len());
        let health = format!("${} {health}", health.len());
        format!(
            "*14 $2 id $40 {name} $4 port :{port} $2 ip $8 10.0.0.1 $8 endpoint $8 10.0.0.1 $4 role {role} \
             $18 replication-offset :{offset} $6 health {health} "
        )
    };
    let nodes = [
        node(first, 7001, "master", 41, "online"),
        node(second, 7002, "replica", 42, "online"),
        node(third, 7003, "replica", 43, "fail"),
    ];
    let expected = format!("*1 *4 $5 slots *2 :0 :16383 $5 nodes *3 {}", nodes.concat());
    assert_eq!(told(&mut session, "CLUSTER SHARDS"), expected);
    let info = told(&mut session, "CLUSTER INFO");
    for field in ["state:ok", "slots_assigned:16384", "known_nodes:3", "size:1", "current_epoch:6", "my_epoch:6"] {
        assert!(info.contains(&format!("cluster_{field} ")), "{field}: {info}");
    }
    for (line, expected) in [
        ("CLUSTER KEYSLOT foo", Reply::Integer(12182)),
        ("CLUSTER LINKS", Reply::Array(Vec::new())),
        ("CLUSTER SAVECONFIG", Reply::ok()),
        ("ASKING", Reply::ok()),
        ("READONLY", Reply::ok()),
        ("READWRITE", Reply::ok()),
        ("CLUSTER COUNTKEYSINSLOT 16384", Reply::error("ERR Invalid slot")),
        ("CLUSTER COUNTKEYSINSLOT -1", Reply::error("ERR Invalid slot")),
        ("CLUSTER COUNTKEYSINSLOT x", Reply::error("ERR value is not an integer or out of range")),
        ("CLUSTER GETKEYSINSLOT 16384 1", Reply::error("ERR Invalid slot or number of keys")),
        ("CLUSTER GETKEYSINSLOT 1 -1", Reply::error("ERR Invalid slot or number of keys")),
        ("CLUSTER GETKEYSINSLOT 1 x", Reply::error("ERR value is not an integer or out of range")),
    ] {
        assert_eq!(session.call(line), expected, "{line}");
    }
    assert_eq!(session.done, ["reads-here true", "reads-here false"]);
    assert!(told(&mut session, "HELLO").contains("$4 mode $7 cluster "));
}

#[test]
fn a_cluster_without_a_leader_has_no_slots() {
    let [first, ..] = NAMES;
    // One that has failed keeps its slots until another one leads.
    let mut session = in_cluster(Some(3));
    session.cluster.as_mut().expect("it is in one").is_up = false;
    let info = told(&mut session, "CLUSTER INFO");
    let expected = "cluster_state:fail cluster_slots_assigned:16384 cluster_slots_ok:0 cluster_slots_pfail:16384 ";
    assert!(info.contains(expected), "{info}");
    assert!(told(&mut session, "CLUSTER SLOTS").starts_with("*1 *5 :0 :16383 *4 $8 10.0.0.1 :7003 "));
    assert!(told(&mut session, "CLUSTER NODES").contains(" master,fail? - 0 0 6 disconnected 0-16383\n"));
    // Before there was one, nobody has them.
    let mut session = in_cluster(None);
    assert_eq!(session.call("CLUSTER SLOTS"), Reply::Array(Vec::new()));
    assert!(told(&mut session, "CLUSTER SHARDS").starts_with("*1 *4 $5 slots *0 $5 nodes *3 "));
    assert!(told(&mut session, "CLUSTER INFO").contains("cluster_state:fail cluster_slots_assigned:0 "));
    assert!(
        told(&mut session, "CLUSTER NODES").contains(&format!("{first} 10.0.0.1:7001@7001 slave - 0 0 6 connected\n"))
    );
}

#[test]
fn a_group_does_not_change_by_commands_of_a_cluster() {
    let slots = "ERR a Raft group has all slots, which are its leader's: slots are not assigned";
    let epoch = "ERR the epoch is the term of the Raft group, which its elections change";
    let members = "ERR a Raft group agrees on its members: use RAFT.NODE";
    let leader = "ERR a Raft group elects its leader: use RAFT.TRANSFER-LEADER";
    for (words, expected) in [
        ("ADDSLOTS 1", slots),
        ("ADDSLOTSRANGE 1 2", slots),
        ("DELSLOTS 1", slots),
        ("DELSLOTSRANGE 1 2", slots),
        ("FLUSHSLOTS", slots),
        ("SETSLOT 1 STABLE", slots),
        ("BUMPEPOCH", epoch),
        ("SET-CONFIG-EPOCH 1", epoch),
        ("MEET host 1", members),
        ("FORGET x", members),
        ("REPLICATE x", members),
        ("RESET", members),
        ("FAILOVER", leader),
    ] {
        let line = format!("CLUSTER {words}");
        assert_eq!(in_cluster(Some(1)).call(&line), Reply::error(expected), "{line}");
        fails(&line, "ERR This instance has cluster support disabled");
    }
}

#[test]
fn acl_knows_the_default_user_and_the_categories() {
    let mut session = Session::default();
    assert_eq!(session.call("ACL WHOAMI"), Reply::bulk("default"));
    let Reply::Array(categories) = session.call("ACL CAT") else { panic!("an array of names") };
    assert_eq!(categories.len(), 21, "as many as Redis has");
    let transaction = Reply::array(["multi", "exec", "discard", "watch", "unwatch"].map(Reply::bulk));
    assert_eq!(session.call("ACL CAT Transaction"), transaction);
    fails("ACL CAT nosuch", "ERR Unknown category 'nosuch'");
    fails("ACL CAT a b", "ERR unknown subcommand or wrong number of arguments for 'CAT'. Try ACL HELP.");
    fails("ACL WHOAMI me", "ERR wrong number of arguments for 'acl|whoami' command");
}

#[test]
fn genpass_gives_as_many_digits_as_the_bits_need() {
    let digits = |line: &str| match Session::default().call(line) {
        Reply::Bulk(bytes) => String::from_utf8(bytes.to_vec()).expect("digits"),
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(digits("ACL GENPASS 12"), "a0a");
    assert_eq!(digits("ACL GENPASS 5"), "a0");
    assert_eq!(digits("ACL GENPASS 1"), "a");
    assert_eq!(digits("ACL GENPASS").len(), 64);
    assert_eq!(digits("ACL GENPASS 4096").len(), 1024);
    let range =
        "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096";
    fails("ACL GENPASS 0", range);
    fails("ACL GENPASS 4097", range);
    fails("ACL GENPASS x", "ERR value is not an integer or out of range");
    fails("ACL GENPASS 1 2", "ERR unknown subcommand or wrong number of arguments for 'GENPASS'. Try ACL HELP.");
}

#[test]
fn there_are_no_modules_and_nothing_to_rewrite() {
    check("MODULE LIST", Reply::Array(Vec::new()));
    fails("MODULE LOAD x", "ERR unknown subcommand 'LOAD'. Try MODULE HELP.");
    check("BGREWRITEAOF", Reply::Simple("Background append only file rewriting started"));
}

#[test]
fn lolwut_draws_and_names_the_version() {
    for line in [
        "LOLWUT",
        "LOLWUT VERSION 5",
        "LOLWUT VERSION",
        "LOLWUT version 99 1 2 x",
        "LOLWUT VERSION 6 1 2 x",
        "LOLWUT hay",
    ] {
        let Reply::Verbatim("txt", text) = Session::default().call(line) else { panic!("{line}: a text") };
        let text = String::from_utf8(text.to_vec()).expect("a text");
        assert!(text.ends_with("\nRedis ver. 7.4.0\n") && text.lines().count() > 5, "{line}: {text}");
    }
    for line in ["LOLWUT VERSION x", "LOLWUT VERSION 5 x", "LOLWUT VERSION 5 1 2 x", "LOLWUT VERSION 6 1 x"] {
        fails(line, "ERR value is not an integer or out of range");
    }
}

#[test]
fn memory_tells_of_the_process() {
    let facts = MemoryFacts {
        peak: 1000,
        startup: 100,
        allocated: 500,
        active: 750,
        resident: 900,
        process: 1800,
        clients: 30,
        log: 20,
        databases: vec![(0, 7, 1), (1, 0, 0), (3, 3, 3)],
    };
    let mut session = Session { memory: facts, ..Session::default() };
    let Reply::Map(fields) = session.call("MEMORY STATS") else { panic!("MEMORY STATS answers a map") };
    let field = |name: &'static str| {
        let found = fields.iter().find(|(key, _)| *key == Reply::bulk(name));
        &found.unwrap_or_else(|| panic!("no field {name}")).1
    };
    assert_eq!(*field("keys.count"), Reply::Integer(10));
    assert_eq!(*field("overhead.total"), Reply::Integer(150));
    assert_eq!(*field("dataset.bytes"), Reply::Integer(350));
    assert_eq!(*field("keys.bytes-per-key"), Reply::Integer(35));
    assert_eq!(*field("dataset.percentage"), Reply::Double(87.5));
    assert_eq!(*field("allocator-fragmentation.ratio"), Reply::Double(1.5));
    assert_eq!(*field("rss-overhead.ratio"), Reply::Double(2.0));
    assert!(matches!(field("db.3"), Reply::Map(_)));
    assert!(!fields.iter().any(|(key, _)| *key == Reply::bulk("db.1")), "an empty database is left out");
    let Reply::Map(nothing) = Session::default().call("MEMORY STATS") else { panic!("a map") };
    assert!(nothing.contains(&(Reply::bulk("fragmentation"), Reply::Double(0.0))), "nothing is divided by nothing");

    assert_eq!(session.call("MEMORY MALLOC-STATS"), Reply::Verbatim("txt", "all well".into()));
    assert_eq!(session.call("MEMORY PURGE"), Reply::ok());
    assert!(session.purged);
    let text = "Hardly any memory is in use: there is nothing to examine yet.\n";
    assert_eq!(session.call("MEMORY DOCTOR"), Reply::Verbatim("txt", text.into()));
}
