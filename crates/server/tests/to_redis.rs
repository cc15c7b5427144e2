//! A Redis follows this server: all data, then what is done, after breaks from where it was. Beside a real redis-server
//! 7.0, redis-cli, and replicas that a test makes up. `haypile-harness psync --back` does this with generated commands,
//! kills and cuts.

mod process;

use haypile_commands::Table;
use haypile_commands::table::Access;
use process::calls::CALLS;
use process::following::{DEBUG, field, print_log, replica_of, wait_for_link};
use process::group::{Group, raft};
use process::redis::redis;
use process::{Client, Server, TempDir, free_port, request, wait_until};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

/// Has a redis-server follow, and waits until it does.
fn follow(replica: &Server, port: u16) {
    assert_eq!(replica.client().ask(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK\r\n");
    wait_for_link(replica);
}

/// Waits until a redis-server has all, and compares what there is and until when.
fn is_equal(master: &Server, replica: &Server) {
    let (mut of_master, mut of_replica) = (master.client(), replica.client());
    // Behind all that is compared.
    of_master.ask("INCR fence");
    let fence = of_master.ask("GET fence");
    wait_until("the last write has arrived", || of_replica.ask("GET fence") == fence);
    for database in 0..16 {
        let digest = |client: &mut Client<TcpStream>| {
            client.ask(&format!("SELECT {database}"));
            let mut keys: Vec<String> = client.ask("KEYS *").lines().skip(1).map(str::to_owned).collect();
            keys.retain(|line| !line.starts_with('$'));
            keys.sort();
            let about = |client: &mut Client<TcpStream>, key: &String| {
                // The fingerprint of a hash has the deadlines of its fields, which a Redis of 7.0 does not have.
                let is_hash = client.ask_words(&[b"TYPE", key.as_bytes()]) == "+hash\r\n";
                let value: [&[&[u8]]; 2] =
                    [&[b"DEBUG", b"DIGEST-VALUE", key.as_bytes()], &[b"HGETALL", key.as_bytes()]];
                let mut value: Vec<String> =
                    client.ask_words(value[usize::from(is_hash)]).lines().map(str::to_owned).collect();
                value.sort();
                (value, client.ask_words(&[b"PEXPIRETIME", key.as_bytes()]))
            };
            keys.into_iter().map(|key| (about(client, &key), key)).collect::<Vec<_>>()
        };
        assert_eq!(digest(&mut of_replica), digest(&mut of_master), "database {database}");
    }
}

/// Returns how often the server has sent all data.
fn sent_all(log: &str) -> usize {
    log.matches("a Redis, gets all data").count()
}

/// A server whose output a test reads.
fn logged(dir: &TempDir, port: u16, more: &[&str]) -> Server {
    let log = dir.path().join("server.log");
    Server::start_at(dir.path(), port, &[&DEBUG[..], &["--logfile", log.to_str().expect("a path")], more].concat())
}

fn log_of(dir: &TempDir) -> String {
    std::fs::read_to_string(dir.path().join("server.log")).expect("it has a log")
}

#[test]
fn what_each_command_does_arrives_whatever_the_command() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let (master, replica) = (Server::start(dir.path(), &DEBUG), redis(&other, &[]));
    follow(&replica, master.port);
    let mut client = master.client();
    let mut called = BTreeSet::new();
    let lines = CALLS.split('\n').flat_map(|line| line.trim().split('|')).filter(|line| !line.is_empty());
    for line in lines {
        for command in line.split(';') {
            let reply = client.ask(command);
            // Some are refused, and then nothing may arrive either.
            if let Some((name, _)) = command.split_once(' ').or(Some((command, ""))) {
                called.insert(name.to_ascii_lowercase());
            }
            assert!(!reply.contains("unknown command") && !reply.contains("wrong number"), "{command}: {reply}");
        }
        if line.contains("FLUSHALL") || called.len() % 16 == 0 {
            is_equal(&master, &replica);
        }
    }
    is_equal(&master, &replica);
    // Where scores differ, a Redis may cut a range of members elsewhere.
    let scored: Vec<String> = (0..400).map(|at| format!("{} member:{}", at % 7, at * 37 % 400)).collect();
    assert_eq!(client.ask(&format!("ZADD scored {}", scored.join(" "))), ":400\r\n");
    for (from, until) in [("[member:2", "(member:3"), ("(member:15", "+"), ("-", "[member:11")] {
        assert_ne!(client.ask(&format!("ZRANGESTORE cut scored {from} {until} BYLEX")), ":0\r\n");
        assert_ne!(client.ask(&format!("ZREMRANGEBYLEX scored {from} {until}")), ":0\r\n");
        is_equal(&master, &replica);
    }
    let table = Table::new();
    let writes: BTreeSet<String> = table
        .iter()
        .flat_map(|(_, entry)| std::iter::once(entry).chain(table.subcommands(entry)))
        .filter(|entry| matches!(entry.command.access, Access::Write | Access::Exclusive))
        .map(|entry| entry.full_name.split('|').next().expect("a name").to_owned())
        .collect();
    let of_others = ["eval", "evalsha", "fcall", "migrate", "restore-asking"].map(str::to_owned).into();
    let missing: Vec<_> = writes.difference(&called).filter(|name| !BTreeSet::contains(&of_others, *name)).collect();
    assert_eq!(missing, Vec::<&String>::new(), "each command that writes is among the calls");
}

#[test]
fn scripts_blocks_functions_and_messages_arrive() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let (master, replica) = (Server::start(dir.path(), &DEBUG), redis(&other, &[]));
    let mut client = master.client();
    let library =
        "#!lua name=mine\nredis.register_function('twice', function(k, a) return redis.call('INCRBY', k[1], 2) end)";
    assert_eq!(client.ask_words(&[b"FUNCTION", b"LOAD", library.as_bytes()]), "$4\r\nmine\r\n");
    follow(&replica, master.port);
    let mut listener = replica.client();
    listener.ask("SUBSCRIBE news");
    let second =
        "#!lua name=other\nredis.register_function('thrice', function(k, a) return redis.call('INCRBY', k[1], 3) end)";
    assert_eq!(client.ask_words(&[b"FUNCTION", b"LOAD", second.as_bytes()]), "$5\r\nother\r\n");
    let script = "redis.call('SET', KEYS[1], 1) redis.call('SELECT', 7) redis.pcall('SET', KEYS[1], 'x') \
        redis.pcall('INCR', KEYS[1]) redis.call('SPOP', 'none') redis.call('SELECT', 0) return redis.call('INCR', KEYS[1])";
    assert_eq!(client.ask_words(&[b"EVAL", script.as_bytes(), b"1", b"scripted"]), ":2\r\n");
    for (command, reply) in [
        ("FCALL twice 1 counter", ":2\r\n"),
        ("FCALL thrice 1 counter", ":5\r\n"),
        ("MULTI", "+OK\r\n"),
        ("INCR counter", "+QUEUED\r\n"),
        ("SELECT 5", "+QUEUED\r\n"),
        ("LPUSH list x", "+QUEUED\r\n"),
        ("INCR list", "+QUEUED\r\n"),
        ("SPOP none", "+QUEUED\r\n"),
    ] {
        assert_eq!(client.ask(command), reply, "{command}");
    }
    assert!(client.ask("EXEC").starts_with("*5\r\n:6\r\n+OK\r\n:1\r\n-WRONGTYPE"));
    assert_eq!(client.ask("PUBLISH news hello"), ":0\r\n");
    assert!(listener.reply().ends_with("$4\r\nnews\r\n$5\r\nhello\r\n"));
    // A client that waits is served by another one's push: a push and a pop there.
    let mut waits = master.client();
    waits.send(&request(&[b"BLPOP", b"queue", b"0"]));
    wait_until("it waits", || client.info("blocked_clients") == "1");
    client.ask("SELECT 0");
    assert_eq!(client.ask("RPUSH queue one two"), ":2\r\n");
    assert_eq!(waits.reply(), "*2\r\n$5\r\nqueue\r\n$3\r\none\r\n");
    is_equal(&master, &replica);
    let mut of_replica = replica.client();
    assert_eq!(of_replica.ask("LRANGE queue 0 -1"), "*1\r\n$3\r\ntwo\r\n");
    let functions = of_replica.ask("FUNCTION LIST");
    assert!(functions.contains("twice") && functions.contains("thrice"), "{functions}");
    // A block arrives as one: the replica has counted it so.
    let calls = of_replica.ask("INFO commandstats");
    assert!(
        calls.contains("cmdstat_exec") && !calls.contains("cmdstat_eval") && !calls.contains("cmdstat_blpop"),
        "{calls}"
    );
}

#[test]
fn a_key_that_is_found_expired_is_deleted_there_before_it_is_written_anew() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let (master, replica) = (Server::start(dir.path(), &DEBUG), redis(&other, &[]));
    let mut client = master.client();
    assert_eq!(client.ask("DEBUG SET-ACTIVE-EXPIRE 0"), "+OK\r\n");
    for command in [
        "SET a 5 PX 1",
        "SET b 5 PX 1",
        "SADD c x",
        "PEXPIRE c 1",
        "SADD d y",
        "HSET h old 1 kept 2",
        "HPEXPIRE h 1 FIELDS 1 old",
        "HSET whole f 1",
        "HPEXPIRE whole 1 FIELDS 1 f",
        "SET gone v PX 1",
        "SET persisting v PX 100000",
    ] {
        assert!(!client.ask(command).starts_with('-'), "{command}");
    }
    follow(&replica, master.port);
    // Keys that had expired came all the same: only a master says when a key goes.
    for (command, reply) in [
        ("INCR a", ":1\r\n"),
        ("SETNX b new", ":1\r\n"),
        ("SUNIONSTORE e c d", ":1\r\n"),
        ("HSETNX h old again", ":1\r\n"),
        ("HINCRBY whole f 7", ":7\r\n"),
        ("PERSIST persisting", ":1\r\n"),
    ] {
        assert_eq!(client.ask(command), reply, "{command}");
    }
    // Commands that are younger than the replica, and find nothing but what has expired, leave the block as it is.
    for (number, command) in [
        "DELEX {}",
        "XDELEX {} IDS 1 1-1",
        "XACKDEL {} g IDS 1 1-1",
        "XADD {} NOMKSTREAM KEEPREF * f v",
        "SET {} w IFEQ x",
        "MSETEX 1 {} v XX",
        "HGETDEL {} FIELDS 1 f",
        "INCREX {} BYINT 0 UBOUND -5",
    ]
    .into_iter()
    .enumerate()
    {
        let (key, fence) = (format!("young:{number}"), format!("fence:{number}"));
        assert_eq!(client.ask(&format!("SET {key} v PX 1")), "+OK\r\n");
        wait_until("it has expired", || client.ask(&format!("EXISTS {key}")) == ":0\r\n");
        for command in ["MULTI", &format!("SET {fence} 1"), &command.replace("{}", &key)] {
            client.ask(command);
        }
        let answer = client.ask("EXEC");
        assert!(answer.starts_with("*2\r\n+OK\r\n"), "{command}: {answer}");
        wait_until("the block has arrived", || {
            replica.client().ask(&format!("MGET {fence} {key}")) == "*2\r\n$1\r\n1\r\n$-1\r\n"
        });
    }
    // Of a hash in rows, what has expired goes with the last field that has not.
    for (number, last) in ["HDEL", "HGETDEL"].into_iter().enumerate() {
        let key = format!("rows:{number}");
        let fields: Vec<String> = (0..1500).map(|field| format!("field:{field}")).collect();
        let pairs: Vec<&str> = fields.iter().flat_map(|field| [field.as_str(), "v"]).collect();
        client.ask(&format!("HSET {key} last v {}", pairs.join(" ")));
        client.ask(&format!("HPEXPIRE {key} 1 FIELDS 1500 {}", fields.join(" ")));
        wait_until("they have expired", || client.ask(&format!("HEXISTS {key} field:7")) == ":0\r\n");
        let command =
            if last == "HDEL" { format!("HDEL {key} last") } else { format!("HGETDEL {key} FIELDS 2 last field:3") };
        client.ask(&command);
        wait_until("it is gone there", || replica.client().ask(&format!("EXISTS {key}")) == ":0\r\n");
    }
    let gone = |client: &mut Client<TcpStream>| {
        client.ask("MGET a b gone") + &client.ask("HGETALL h") + &client.ask("EXISTS c")
    };
    wait_until("it is the same there", || gone(&mut replica.client()) == gone(&mut master.client()));
    assert_eq!(client.ask("DEBUG SET-ACTIVE-EXPIRE 1"), "+OK\r\n");
    client.ask("HPEXPIRE h 1 FIELDS 1 kept");
    wait_until("the field has gone there", || replica.client().ask("HLEN h") == ":1\r\n");
    is_equal(&master, &replica);
}

#[test]
fn after_breaks_kills_and_stops_a_redis_goes_on_from_where_it_was() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let mut master = logged(&dir, free_port(), &[]);
    let replica = redis(&other, &[]);
    master.client().ask("SET before 1");
    follow(&replica, master.port);
    for round in 0..6 {
        let mut client = master.client();
        for _ in 0..300 {
            client.ask("INCR counter");
            client.ask("RPUSH list x");
        }
        let port = master.port;
        match round % 3 {
            0 => {
                master.kill_now();
                master = logged(&dir, port, &[]);
            }
            1 => {
                drop(client);
                master.stop();
                master = logged(&dir, port, &[]);
            }
            _ => assert_eq!(client.ask("CLIENT KILL TYPE replica"), ":1\r\n"),
        }
        wait_for_link(&replica);
    }
    is_equal(&master, &replica);
    assert_eq!(replica.client().ask("LLEN list"), ":1800\r\n");
    assert_eq!(sent_all(&log_of(&dir)), 1, "{}", log_of(&dir));
    // A replica that has left for longer than the log is kept gets all data; and nothing is said any more until then.
    let mut client = master.client();
    assert_eq!(replica.client().ask("REPLICAOF NO ONE"), "+OK\r\n");
    assert_eq!(client.ask("CONFIG SET repl-backlog-ttl 1"), "+OK\r\n");
    wait_until("the stream has ended", || log_of(&dir).contains("says no more what is done"));
    assert!(!dir.path().join("haypile.stream").exists());
    client.ask("SET unsaid 1");
    follow(&replica, master.port);
    is_equal(&master, &replica);
    assert_eq!(sent_all(&log_of(&dir)), 2);
    drop(client);
    master.stop();
    let log = print_log(dir.path());
    let unsaid = log.lines().find(|line| line.contains("put") && line.contains("unsaid")).expect("it is there");
    assert!(!unsaid.contains("statement"), "{unsaid}");
}

#[test]
fn another_lineage_of_data_is_never_gone_on_with() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let (master, replica) = (logged(&dir, free_port(), &[]), redis(&other, &[]));
    follow(&replica, master.port);
    master.client().ask("SET a 1");
    is_equal(&master, &replica);
    // The replica's own writes are in a stream of its own.
    let mut of_replica = replica.client();
    of_replica.ask("REPLICAOF NO ONE");
    of_replica.ask("SET own 1");
    follow(&replica, master.port);
    is_equal(&master, &replica);
    assert_eq!((sent_all(&log_of(&dir)), &*of_replica.ask("EXISTS own")), (2, ":0\r\n"));
    // A lie about how far it has come, in this server's own stream.
    let id = field(&mut of_replica, "master_replid");
    for (id, offset) in
        [(&*id, "99999999"), (&*id, "9223372036854775807"), (&"0".repeat(40), "1"), ("?", "5"), ("é", "1")]
    {
        let mut liar = TcpStream::connect(("127.0.0.1", master.port)).expect("it listens");
        liar.write_all(&request(&[b"PSYNC", id.as_bytes(), offset.as_bytes()])).expect("it is taken");
        let mut line = [0; 12];
        liar.read_exact(&mut line).expect("it is answered");
        assert_eq!(&line, b"+FULLRESYNC ", "{id} {offset}");
    }
    // From the same stream's beginning, all of it comes again.
    let mut early = TcpStream::connect(("127.0.0.1", master.port)).expect("it listens");
    early.write_all(&request(&[b"PSYNC", id.as_bytes(), b"1"])).expect("it is taken");
    let mut line = [0; 10];
    early.read_exact(&mut line).expect("it is answered");
    assert!(&line == b"+CONTINUE\r" || &line == b"+FULLRESYN", "{line:?}");
}

#[test]
fn what_is_kept_is_what_the_slowest_needs_and_nothing_is_told_of_a_stream_that_has_ended() {
    let dirs = [TempDir::new(), TempDir::new(), TempDir::new()];
    let more = [
        "--rename-command",
        "SET",
        "mySET",
        "--log-segment-size",
        "1mb",
        "--maxmemory",
        "4gb",
        "--flush-log-bytes",
        "4mb",
    ];
    let master = logged(&dirs[0], free_port(), &more);
    let mut client = master.client();
    // Whoever wants no more than the data begins no stream.
    let file = dirs[1].path().join("dump.rdb");
    let file = file.to_str().expect("a path");
    let fetched = Command::new("redis-cli").args(["-p", &master.port.to_string(), "--rdb", file]).output();
    assert!(fetched.expect("redis-cli is installed").status.success());
    assert!(!log_of(&dirs[0]).contains("the log says what is done"));
    let (fast, slow) = (redis(&dirs[1], &[]), redis(&dirs[2], &[]));
    follow(&fast, master.port);
    follow(&slow, master.port);
    assert_eq!(client.ask("mySET named 1"), "+OK\r\n");
    is_equal(&master, &slow);
    slow.halt();
    assert!(client.ask("CLIENT KILL TYPE replica").starts_with(':'));
    wait_for_link(&fast);
    let value = vec![b'v'; 100_000];
    for number in 0..100 {
        assert_eq!(client.ask_words(&[b"mySET", format!("key:{number}").as_bytes(), &value]), "+OK\r\n");
    }
    wait_until("one of them has all", || client.ask("INFO replication").contains("lag_records=0"));
    slow.signal("CONT");
    wait_for_link(&slow);
    wait_until("both have all", || {
        client.ask("INCR fence");
        client.ask("WAIT 2 1000") == ":2\r\n"
    });
    is_equal(&master, &fast);
    is_equal(&master, &slow);
    assert_eq!(sent_all(&log_of(&dirs[0])), 2 + 1, "once each, and to redis-cli: {}", log_of(&dirs[0]));
    // A record that says too much says nothing, and all data go again.
    let value = vec![b'v'; 4_000_000];
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    for number in 0..70 {
        assert_eq!(client.ask_words(&[b"mySET", format!("huge:{number}").as_bytes(), &value]), "+QUEUED\r\n");
    }
    assert!(client.ask("EXEC").starts_with("*70\r\n+OK\r\n"));
    is_equal(&master, &fast);
    assert!(log_of(&dirs[0]).contains("says nothing of what it does"), "{}", log_of(&dirs[0]));
}

#[test]
fn a_transfer_holds_the_stream_whatever_time_it_takes() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = logged(&dir, free_port(), &["--repl-backlog-ttl", "1"]);
    let mut client = master.client();
    for number in 0..20 {
        client.ask_words(&[b"SET", format!("key:{number}").as_bytes(), &random(1 << 20)]);
    }
    let mut slow = TcpStream::connect(("127.0.0.1", master.port)).expect("it listens");
    slow.write_all(&request(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])).expect("it is taken");
    slow.write_all(&request(&[b"PSYNC", b"?", b"-1"])).expect("it is taken");
    wait_until("all data are sent", || sent_all(&log_of(&dir)) == 1);
    // Longer than the log is kept for whoever has left.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(client.ask("SET meanwhile 1"), "+OK\r\n");
    assert!(!log_of(&dir).contains("says no more what is done"));
    drop(slow);
    let replica = redis(&other, &[]);
    follow(&replica, master.port);
    is_equal(&master, &replica);
}

/// Bytes that do not compress.
fn random(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

#[test]
fn the_tools_of_redis_get_the_data_and_the_stream() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    let mut client = master.client();
    assert_eq!(client.ask("CONFIG SET requirepass secret"), "+OK\r\n");
    assert_eq!(client.ask("AUTH secret"), "+OK\r\n");
    for number in 0..500 {
        client.ask(&format!("SET key:{number} {number}"));
    }
    client.ask("HSET hash f v g w");
    client.ask("HPEXPIRE hash 1000000 FIELDS 1 f");
    let port = master.port.to_string();
    let file = other.path().join("dump.rdb");
    let cli = |more: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &port, "-a", "secret", "--no-auth-warning"]).args(more).stdin(Stdio::null());
        command
    };
    let fetched = cli(&["--rdb", file.to_str().expect("a path")]).output().expect("redis-cli is installed");
    assert!(fetched.status.success(), "{fetched:?}");
    let loaded = redis(&other, &["--dbfilename", "dump.rdb"]);
    wait_until("it has loaded", || loaded.client().ask("DBSIZE") == ":501\r\n");
    assert_eq!(loaded.client().ask("HGETALL hash"), client.ask("HGETALL hash"));
    wait_until("nobody follows any more", || field(&mut client, "connected_slaves") == "0");
    // --replica shows the stream as it comes, by SYNC.
    let mut shown = cli(&["--replica"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it is installed");
    let mut output = shown.stdout.take().expect("it is piped");
    wait_until("it follows", || client.ask("CLIENT LIST TYPE replica").contains("flags=S"));
    let reader = std::thread::spawn(move || {
        let (mut seen, mut piece) = (String::new(), [0; 4096]);
        while !seen.contains("from the stream") {
            match output.read(&mut piece) {
                Ok(0) | Err(_) => break,
                Ok(read) => seen.push_str(&String::from_utf8_lossy(&piece[..read])),
            }
        }
        seen
    });
    wait_until("it has all data", || client.ask("INFO replication").contains("state=online"));
    client.ask_words(&[b"SET", b"told", b"from the stream"]);
    let seen = reader.join().expect("it reads");
    shown.kill().expect("it runs");
    shown.wait().expect("it ends");
    assert!(seen.contains("told") && seen.contains("from the stream"), "{seen}");
    // Who does not know the mark at the end gets the length before.
    let mut plain = TcpStream::connect(("127.0.0.1", master.port)).expect("it listens");
    plain.write_all(&[request(&[b"AUTH", b"secret"]), request(&[b"SYNC"])].concat()).expect("it is taken");
    let mut head = Vec::new();
    while !head.ends_with(b"REDIS") {
        let mut byte = [0];
        plain.read_exact(&mut byte).expect("the data come");
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let length = head.trim_start_matches("+OK\r\n").trim_start().trim_start_matches('$').split("\r\n").next();
    let length: usize =
        length.and_then(|length| length.parse().ok()).unwrap_or_else(|| panic!("no length in {head:?}"));
    let mut rest = vec![0; length - 5];
    plain.read_exact(&mut rest).expect("as much as was told");
    client.ask("SET behind 1");
    let mut next = [0; 4];
    plain.read_exact(&mut next).expect("commands follow");
    assert_eq!(next[0], b'*');
    assert!(client.ask("SYNC x").starts_with("-ERR wrong number"));
    assert!(client.ask("PSYNC a b").starts_with("-ERR value is not an integer"));
}

#[test]
fn a_redis_follows_by_way_of_a_replica() {
    let dirs = [TempDir::new(), TempDir::new(), TempDir::new()];
    let master = Server::start(dirs[0].path(), &DEBUG);
    master.client().ask("MSET a 1 b 2");
    let between = replica_of(&master, &dirs[1], &DEBUG);
    let replica = redis(&dirs[2], &[]);
    follow(&replica, between.port);
    master.client().ask("INCR a");
    is_equal(&master, &replica);
    let online = format!("ip=127.0.0.1,port={},state=online", replica.port);
    wait_until("the master tells of it", || master.client().ask("INFO replication").contains(&online));
    // The replica leads, and says itself what it does: nobody has to end what goes by way of it.
    assert_eq!(between.client().ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_until("it takes writes", || between.client().ask("INCR a") == ":3\r\n");
    wait_until("the Redis follows it", || replica.client().ask("GET a") == "$1\r\n3\r\n");
    is_equal(&between, &replica);
}

#[test]
fn a_redis_follows_a_group_by_way_of_any_member_and_through_its_elections() {
    let mut group = Group::start(&["--enable-debug-command", "yes"]);
    let (leader, dir) = (group.leader(), TempDir::new());
    let other = (leader + 1) % 3;
    let address = format!("127.0.0.1:{}", group.ports[leader]);
    wait_until("it knows the leader", || raft(&mut group.client(other), "leader_address") == address);
    let mut client = group.client(leader);
    assert_eq!(client.ask("SET a 1"), "+OK\r\n");
    let replica = redis(&dir, &[]);
    follow(&replica, group.ports[other]);
    assert_eq!(client.ask("INCR a"), ":2\r\n");
    assert_eq!(client.ask("SADD set x y z"), ":3\r\n");
    assert!(client.ask("SPOP set").starts_with("$1"));
    assert_eq!(client.ask("WAIT 1 20000"), ":1\r\n");
    // Behind the members that the leader hears of: in a loaded moment the third one is not there yet.
    let online = format!("port={},state=online", replica.port);
    wait_until("it is among the replicas", || client.ask("INFO replication").contains(&online));
    let digest = |client: &mut Client<TcpStream>| client.ask("DEBUG DIGEST");
    wait_until("it is the same there", || digest(&mut replica.client()) == digest(&mut client));
    // A new leader's records say nothing until somebody asks for that: all data come once more.
    drop(client);
    group.kill(leader);
    let mut client = group.client(group.leader());
    wait_until("it takes writes", || client.ask("INCR a") == ":3\r\n");
    wait_until("the write has arrived", || replica.client().ask("GET a") == "$1\r\n3\r\n");
    wait_for_link(&replica);
    assert_eq!(client.ask("LPUSH list x"), ":1\r\n");
    wait_until("it is the same", || digest(&mut replica.client()) == digest(&mut client));
}

#[test]
fn a_redis_counts_where_it_may_be_relied_on_and_nowhere_else() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &[&DEBUG[..], &["--min-replicas-to-write", "1"]].concat());
    let mut client = master.client();
    assert!(client.ask("SET a 1").starts_with("-NOREPLICAS"));
    let replica = redis(&other, &[]);
    follow(&replica, master.port);
    wait_until("it is there", || client.ask("SET a 1") == "+OK\r\n");
    assert_eq!(client.ask("WAIT 1 20000"), ":1\r\n");
    assert!(client.ask("WAITAOF 0 1 50").ends_with(":0\r\n"), "it says nothing of its disk");
    assert!(client.ask("FAILOVER").starts_with("-ERR FAILOVER requires connected replicas"));
    assert!(client.ask("ROLE").contains(&replica.port.to_string()));
    assert!(client.ask("CLIENT LIST TYPE replica").contains("flags=S"));
    // A Redis promises nothing: not even this reply leaves in time.
    let late = client.try_ask("CONFIG SET replicas-to-ack 1 replicas-to-ack-timeout 300").unwrap_or_default();
    assert!(!late.starts_with("+OK"), "{late}");
}

#[test]
fn who_does_not_read_or_talks_nonsense_holds_nobody_up() {
    let dir = TempDir::new();
    let master = Server::start(dir.path(), &[&DEBUG[..], &["--repl-timeout", "2"]].concat());
    let mut client = master.client();
    client.ask_words(&[b"SET", b"large", &vec![b'x'; 4 << 20]]);
    let connect = |words: &[&[u8]]| {
        let mut socket = TcpStream::connect(("127.0.0.1", master.port)).expect("it listens");
        socket.write_all(&request(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])).expect("it is taken");
        socket.write_all(&request(words)).expect("it is taken");
        socket
    };
    let deaf: Vec<_> = (0..10).map(|_| connect(&[b"PSYNC", b"?", b"-1"])).collect();
    let mut rude = connect(&[b"PSYNC", b"?", b"-1"]);
    rude.write_all(b"*1000000\r\n$5\r\nhello\r\n").expect("it is taken");
    for number in 0..1000 {
        assert_eq!(client.ask(&format!("SET key:{number} v")), "+OK\r\n");
    }
    wait_until("they are given up", || field(&mut client, "connected_slaves") == "0");
    drop((deaf, rude));
    let other = TempDir::new();
    let replica = redis(&other, &[]);
    follow(&replica, master.port);
    is_equal(&master, &replica);
}

#[test]
fn a_server_without_a_log_refuses() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--engine", "memory"]);
    let mut socket = TcpStream::connect(("127.0.0.1", server.port)).expect("it listens");
    socket.write_all(&request(&[b"PSYNC", b"?", b"-1"])).expect("it is taken");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("it is answered");
    assert!(answer.starts_with("-ERR a server with 'engine memory'"), "{answer}");
}
