//! Clients of a Redis Cluster against a Raft group: they find the leader from any member, follow it, and read from the
//! other members what these have.

mod process;

use process::group::{Group, raft};
use process::{Client, PATIENCE, Server, TempDir, wait_until};
use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DOWN: &str = "-CLUSTERDOWN The cluster is down\r\n";

/// A client that knows one member at first, and goes where it is sent.
struct ClusterClient {
    /// The ports of CLUSTER SLOTS, the leader's first.
    known: Vec<u16>,
    at: Option<Client<TcpStream>>,
}

impl ClusterClient {
    fn new(port: u16) -> ClusterClient {
        ClusterClient { known: vec![port], at: None }
    }

    /// Connects to a member that listens, and learns from it who the members are.
    fn connect(&mut self) {
        for port in self.known.clone() {
            let Ok(socket) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
            let mut client = Client { socket };
            let slots = client.try_ask("CLUSTER SLOTS").unwrap_or_default();
            let ports: Vec<u16> = ports_of(&slots);
            if !ports.is_empty() {
                self.known = ports;
                self.at = Some(client);
                return;
            }
        }
    }

    /// Runs a command on the leader, whoever that is by now. One whose reply does not come may run twice.
    fn call(&mut self, command: &str) -> String {
        let since = Instant::now();
        loop {
            assert!(since.elapsed() < PATIENCE, "{command}: nobody answers");
            if self.at.is_none() {
                self.connect();
            }
            let reply = self.at.as_mut().and_then(|client| client.try_ask(command));
            match reply {
                Some(reply) if reply.starts_with("-MOVED ") => {
                    let port = reply.trim_end().rsplit(':').next().and_then(|port| port.parse().ok());
                    let port: u16 = port.expect("an address ends in a port");
                    self.at = TcpStream::connect(("127.0.0.1", port)).ok().map(|socket| Client { socket });
                }
                Some(reply) if !reply.starts_with("-CLUSTERDOWN") && !reply.starts_with("-LOADING") => return reply,
                _ => self.at = None,
            }
            if self.at.is_none() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Returns the ports in a reply of CLUSTER SLOTS: numbers behind addresses.
fn ports_of(slots: &str) -> Vec<u16> {
    let lines: Vec<&str> = slots.lines().collect();
    let behind = lines.windows(2).filter(|pair| pair[0] == "127.0.0.1");
    behind.filter_map(|pair| pair[1].strip_prefix(':')?.parse().ok()).collect()
}

/// Returns what a member says of the cluster, without what each says of itself.
fn view(client: &mut Client<TcpStream>) -> [String; 4] {
    let nodes = client.ask("CLUSTER NODES").replace("myself,", "");
    let (_, nodes) = nodes.split_once("\r\n").expect("a length comes first");
    let mut shards = Vec::new();
    let mut is_offset = false;
    for line in client.ask("CLUSTER SHARDS").lines() {
        if !is_offset {
            shards.push(line.to_owned());
        }
        is_offset = line == "replication-offset";
    }
    let state = client.ask("CLUSTER INFO").lines().nth(1).unwrap_or_default().to_owned();
    [client.ask("CLUSTER SLOTS"), shards.join(" "), nodes.to_owned(), state]
}

/// Waits until all members that are up say the same of the cluster.
fn agreed(group: &Group) -> [String; 4] {
    let mut views = Vec::new();
    wait_until("all members agree", || {
        views = group.up().map(|at| view(&mut group.client(at))).collect();
        views.iter().all(|view| *view == views[0] && view[3] == "cluster_state:ok")
    });
    views.swap_remove(0)
}

fn ids(group: &Group) -> Vec<String> {
    group.up().map(|at| group.client(at).ask("CLUSTER MYID")).collect()
}

/// Has a client of a member that does not lead read there, once that has all.
fn reader(group: &Group, at: usize) -> Client<TcpStream> {
    group.settle();
    let mut client = group.client(at);
    assert_eq!(client.ask("READONLY"), "+OK\r\n");
    client
}

#[test]
fn a_client_of_a_cluster_follows_the_leader() {
    let mut group = Group::start(&[]);
    let names = ids(&group);
    assert!(names.iter().all(|name| name.len() == "$40\r\n\r\n".len() + 40), "{names:?}");
    let mut client = ClusterClient::new(group.ports[2]);
    for round in 0..3 {
        let leader = group.leader();
        let [slots, shards, nodes, _] = agreed(&group);
        let mut ports = ports_of(&slots);
        assert_eq!(ports[0], group.ports[leader]);
        ports.sort_unstable();
        let mut expected = group.ports.clone();
        expected.sort_unstable();
        assert_eq!(ports, expected, "{slots}");
        assert_eq!(shards.matches(" online").count(), 3, "{shards}");
        let master = format!(" 127.0.0.1:{0}@{0} master - 0 0 ", group.ports[leader]);
        assert!(nodes.contains(&master) && nodes.matches(" slave ").count() == 2, "{nodes}");
        assert_eq!(client.call(&format!("SET {{a}}{round} value")), "+OK\r\n");
        assert_eq!(client.call("CLUSTER COUNTKEYSINSLOT 15495"), format!(":{}\r\n", round + 1));
        assert_eq!(client.call("CLUSTER COUNTKEYSINSLOT 15494"), ":0\r\n");
        // Commands may name keys of several slots, and all databases are there.
        assert_eq!(client.call("MSET a:1 x b:2 y"), "+OK\r\n");
        assert_eq!(group.client(leader).ask("SELECT 5"), "+OK\r\n");
        group.kill(leader);
        assert_eq!(client.call(&format!("GET {{a}}{round}")), "$5\r\nvalue\r\n");
        let next = group.leader();
        wait_until("the leader misses the one that was killed", || {
            let [slots, _, nodes, _] = view(&mut group.client(next));
            let failed = format!("127.0.0.1:{0}@{0} slave,fail? ", group.ports[leader]);
            ports_of(&slots).len() == 2 && nodes.contains(&failed) && nodes.contains(" disconnected")
        });
        group.begin(leader);
        assert_eq!(ids(&group), names, "names never change");
    }
    let mut keys = client.call("CLUSTER GETKEYSINSLOT 15495 10").lines().map(str::to_owned).collect::<Vec<_>>();
    keys.retain(|line| line.starts_with('{'));
    keys.sort_unstable();
    assert_eq!(keys, ["{a}0", "{a}1", "{a}2"]);
    assert!(client.call("CLUSTER GETKEYSINSLOT 15495 2").starts_with("*2\r\n"));
    assert_eq!(client.call("CLUSTER GETKEYSINSLOT 15495 0"), "*0\r\n");
}

#[test]
fn a_client_that_says_so_reads_from_any_member() {
    let group = Group::start(&[]);
    let leader = group.leader();
    let other = (leader + 1) % 3;
    let mut writer = group.client(leader);
    assert_eq!(writer.ask("SET a value"), "+OK\r\n");
    assert_eq!(writer.ask("RPUSH list x"), ":1\r\n");
    let words: Vec<String> = (0..5000).flat_map(|key| [format!("{{k}}{key}"), key.to_string()]).collect();
    let words: Vec<&[u8]> =
        std::iter::once("MSET").chain(words.iter().map(String::as_str)).map(str::as_bytes).collect();
    assert_eq!(writer.ask_words(&words), "+OK\r\n");
    let moved = |slot: u16| format!("-MOVED {slot} 127.0.0.1:{}\r\n", group.ports[leader]);

    let mut stranger = group.client(other);
    assert_eq!(stranger.ask("GET a"), moved(15495));
    assert_eq!(stranger.ask("WATCH a"), moved(15495));
    assert_eq!(stranger.ask("CLUSTER COUNTKEYSINSLOT 15495"), moved(0));
    // A block without data runs anywhere, and one that was refused ends.
    for (command, reply) in [
        ("MULTI", "+OK\r\n"),
        ("PING", "+QUEUED\r\n"),
        ("EXEC", "*1\r\n+PONG\r\n"),
        ("MULTI", "+OK\r\n"),
        ("GET a", &moved(15495)),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"),
        ("CLUSTER KEYSLOT a", ":15495\r\n"),
    ] {
        assert_eq!(stranger.ask(command), reply, "{command}");
    }

    let mut client = reader(&group, other);
    let write = "-READONLY You can't write against a read only replica.";
    for (command, reply) in [
        ("GET a", "$5\r\nvalue\r\n"),
        ("DBSIZE", ":5002\r\n"),
        ("CLUSTER COUNTKEYSINSLOT 15495", ":1\r\n"),
        ("CLUSTER GETKEYSINSLOT 15495 5", "*1\r\n$1\r\na\r\n"),
        ("WATCH a", "+OK\r\n"),
        ("MULTI", "+OK\r\n"),
        ("GET a", "+QUEUED\r\n"),
        ("STRLEN a", "+QUEUED\r\n"),
        ("EXEC", "*2\r\n$5\r\nvalue\r\n:5\r\n"),
        ("EVAL_RO \"return redis.call('get',KEYS[1])\" 1 a", "$5\r\nvalue\r\n"),
        ("EVAL \"return redis.call('get',KEYS[1])\" 1 a", "$5\r\nvalue\r\n"),
        ("XREAD STREAMS stream 0", "*-1\r\n"),
        // Calls that write go to the leader.
        ("SET a other", &moved(15495)),
        ("BLPOP list 0", &moved(12291)),
        ("EVAL \"#!lua\\nreturn 1\" 1 a", &moved(15495)),
        ("FLUSHALL", &moved(0)),
        ("MULTI", "+OK\r\n"),
        ("SET a other", &moved(15495)),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"),
    ] {
        assert_eq!(client.ask(command), reply, "{command}");
    }
    assert!(client.ask("KEYS {k}*").starts_with("*5000\r\n"));
    let refused = client.ask("EVAL \"return redis.call('set',KEYS[1],1)\" 1 a");
    assert!(refused.starts_with(write), "{refused}");
    assert!(client.ask("CLIENT INFO").contains(" flags=r "));
}

#[test]
fn a_client_that_reads_from_a_member_sees_what_it_applies() {
    let group = Group::start(&[]);
    let leader = group.leader();
    let other = (leader + 1) % 3;
    let moved = |slot: u16| format!("-MOVED {slot} 127.0.0.1:{}\r\n", group.ports[leader]);
    let (mut writer, mut client) = (group.client(leader), reader(&group, other));
    // A client that waits to read is served by what its member applies.
    client.send(b"XREAD BLOCK 0 STREAMS stream 0\r\n");
    wait_until("it waits", || group.client(other).info("blocked_clients") == "1");
    assert_eq!(writer.ask("XADD stream 1-1 f v"), "$3\r\n1-1\r\n");
    assert!(client.reply().contains("1-1"));
    // A key that the client watches changes by what its member applies.
    assert_eq!(client.ask("WATCH a"), "+OK\r\n");
    assert_eq!(writer.ask("SET a new"), "+OK\r\n");
    let mut second = reader(&group, other);
    wait_until("it is applied", || second.ask("GET a") == "$3\r\nnew\r\n");
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    assert_eq!(client.ask("GET a"), "+QUEUED\r\n");
    assert_eq!(client.ask("EXEC"), "*-1\r\n");

    assert_eq!(client.ask("READWRITE"), "+OK\r\n");
    assert_eq!(client.ask("GET a"), moved(15495));
    assert_eq!(client.ask("READONLY"), "+OK\r\n");
    assert_eq!(client.ask("RESET"), "+RESET\r\n");
    assert_eq!(client.ask("GET a"), moved(15495));
    // On the leader it changes nothing.
    assert_eq!(writer.ask("READONLY"), "+OK\r\n");
    assert_eq!(writer.ask("SET a last"), "+OK\r\n");
    assert_eq!(writer.ask("GET a"), "$4\r\nlast\r\n");
}

/// A member runs no script that says it is not for clusters; a server alone does.
#[test]
fn a_script_that_is_not_for_a_cluster_runs_only_on_a_server_alone() {
    let group = Group::start(&[]);
    let library =
        b"#!lua name=lib\nredis.register_function{function_name='f', flags={'no-cluster'}, callback=function() \
                    return 1 end}\nredis.register_function('g', function() return 2 end)";
    let dir = TempDir::new();
    let alone = Server::start(dir.path(), &[]);
    let refused = "-ERR Can not run script on cluster, 'no-cluster' flag is set.\r\n";
    for (mut client, expected) in [(group.client(group.leader()), refused), (alone.client(), ":1\r\n")] {
        assert_eq!(client.ask_words(&[b"FUNCTION", b"LOAD", library]), "$3\r\nlib\r\n");
        for flags in ["no-cluster", "no-writes,no-cluster", "no-cluster,allow-stale"] {
            let script = format!("#!lua flags={flags}\nreturn 1");
            assert_eq!(client.ask_words(&[b"EVAL", script.as_bytes(), b"0"]), expected, "{flags}");
            let loaded = client.ask_words(&[b"SCRIPT", b"LOAD", script.as_bytes()]);
            let name = loaded.lines().nth(1).expect("its name");
            assert_eq!(client.ask(&format!("EVALSHA {name} 1 k")), expected, "{flags}");
        }
        assert_eq!(client.ask("FCALL f 0"), expected);
        assert_eq!(client.ask("FCALL g 0"), ":2\r\n");
        for text in [&b"#!lua\nreturn 1"[..], b"#!lua flags=allow-cross-slot-keys\nreturn 1", b"return 1"] {
            assert_eq!(client.ask_words(&[b"EVAL", text, b"0"]), ":1\r\n");
        }
    }
    alone.stop();
}

#[test]
fn without_a_leader_only_those_read_who_may() {
    let mut group = Group::start(&[]);
    let leader = group.leader();
    assert_eq!(group.client(leader).ask("SET a value"), "+OK\r\n");
    let last = (leader + 1) % 3;
    let mut client = reader(&group, last);
    wait_until("it is applied", || client.ask("GET a") == "$5\r\nvalue\r\n");
    group.kill(leader);
    group.kill((leader + 2) % 3);
    wait_until("it knows no leader", || client.ask("GET a") == DOWN);
    // As in Redis, the slots stay with the one that has failed until another one leads.
    assert_eq!(ports_of(&client.ask("CLUSTER SLOTS"))[0], group.ports[leader]);
    assert!(client.ask("CLUSTER NODES").contains(" master,fail? - "));
    assert!(client.ask("CLUSTER INFO").contains("cluster_state:fail\r\n"));
    assert_eq!(raft(&mut client, "leader_id"), "0");
    assert_eq!(client.ask("CONFIG SET cluster-allow-reads-when-down yes"), "+OK\r\n");
    assert_eq!(client.ask("GET a"), "$5\r\nvalue\r\n");
    assert_eq!(client.ask("SET a b"), "-CLUSTERDOWN The cluster is down and only accepts read commands\r\n");
    assert_eq!(client.ask("READWRITE"), "+OK\r\n");
    assert_eq!(client.ask("GET a"), DOWN);
}

#[test]
fn what_is_published_on_any_member_is_heard_on_all() {
    let mut group = Group::start(&[]);
    let leader = group.leader();
    group.settle();
    // A member that is not connected yet misses messages.
    for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
        let (mut publisher, mut first) = (group.client(from), group.client(to));
        assert!(first.ask("SUBSCRIBE first").contains("first"));
        wait_until("they are connected", || {
            publisher.ask("PUBLISH first message");
            first.has_reply()
        });
    }
    let mut listeners: Vec<_> = (0..3).map(|at| group.client(at)).collect();
    for listener in &mut listeners {
        for (command, channel) in [("SUBSCRIBE", "news"), ("PSUBSCRIBE", "n*s"), ("SSUBSCRIBE", "news")] {
            assert!(listener.ask(&format!("{command} {channel}")).contains(channel));
        }
    }
    let message = |word: &str, text: &str| {
        format!("*3\r\n${}\r\n{word}\r\n$4\r\nnews\r\n${}\r\n{text}\r\n", word.len(), text.len())
    };
    let by_pattern =
        |text: &str| format!("*4\r\n$8\r\npmessage\r\n$3\r\nn*s\r\n$4\r\nnews\r\n${}\r\n{text}\r\n", text.len());
    let heard = |listeners: &mut Vec<Client<TcpStream>>, text: &str| {
        for listener in listeners {
            assert_eq!(listener.reply(), message("message", text));
            assert_eq!(listener.reply(), by_pattern(text));
        }
    };
    let long = "x".repeat(3 << 20);
    for at in 0..3 {
        let mut publisher = group.client(at);
        // In their order, and those of this member only are counted.
        for n in 0..200 {
            assert_eq!(publisher.ask(&format!("PUBLISH news {at}-{n}")), ":2\r\n");
        }
        for n in 0..200 {
            heard(&mut listeners, &format!("{at}-{n}"));
        }
        assert_eq!(publisher.ask("SPUBLISH news of-a-shard"), ":1\r\n");
        listeners.iter_mut().for_each(|one| assert_eq!(one.reply(), message("smessage", "of-a-shard")));
        assert_eq!(publisher.ask_words(&[b"PUBLISH", b"news", long.as_bytes()]), ":2\r\n");
        heard(&mut listeners, &long);
    }
    // A block's message comes when the group has agreed on the block.
    let mut writer = group.client(leader);
    for command in ["MULTI", "SET key value", "PUBLISH news written"] {
        writer.ask(command);
    }
    assert_eq!(writer.ask("EXEC"), "*2\r\n+OK\r\n:2\r\n");
    heard(&mut listeners, "written");
    // Messages go on when another member leads, and with one that came back.
    group.kill(leader);
    drop(listeners.remove(leader));
    let next = group.leader();
    assert_eq!(group.client(next).ask("PUBLISH news on"), ":2\r\n");
    heard(&mut listeners, "on");
    group.begin(leader);
    group.settle();
    let mut back = group.client(leader);
    let mut publisher = group.client(next);
    assert!(back.ask("SUBSCRIBE news").contains("news"));
    wait_until("it is connected", || {
        publisher.ask("PUBLISH news again");
        back.has_reply()
    });
}

#[test]
fn who_waits_for_keys_of_a_leader_is_sent_away_with_it() {
    let group = Group::start(&[]);
    let leader = group.leader();
    let mut waiter = group.client(leader);
    waiter.send(b"BLPOP list 0\r\n");
    wait_until("it waits", || group.client(leader).info("blocked_clients") == "1");
    let server = group.servers[leader].as_ref().expect("it is up");
    server.halt();
    let others = || group.up().filter(|at| *at != leader);
    wait_until("another one leads", || others().any(|at| raft(&mut group.client(at), "role") == "leader"));
    server.signal("CONT");
    // The client cannot be told what became of its call.
    wait_until("its connection ends", || waiter.has_reply());
    let told = waiter.rest();
    assert!(told.is_empty() || told == DOWN, "{told}");
}

/// Runs a program with this input, and returns what it prints.
fn output(command: &mut Command, input: &str) -> String {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap_or_else(|error| panic!("{command:?} must be installed: {error}"));
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads its input");
    let output = child.wait_with_output().expect("it is our child");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    text
}

/// redis-cli goes where it is sent.
#[test]
fn redis_cli_finds_the_leader() {
    let group = Group::start(&[]);
    let leader = group.leader();
    agreed(&group);
    let port = group.ports[(leader + 1) % 3].to_string();
    let text = output(Command::new("redis-cli").args(["-c", "-p", &port]), "SET a value\nGET a\nGET b\n");
    assert!(text.contains("OK\n") && text.contains("value\n"), "{text}");
}

/// redis-py comes with the system's Python; another may be named in `HAYPILE_PYTHON`. It kills the leader itself.
#[test]
fn redis_py_follows_the_leader() {
    let group = Group::start(&[]);
    let leader = group.leader();
    agreed(&group);
    let python = std::env::var("HAYPILE_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".to_string());
    let port = group.ports[(leader + 1) % 3].to_string();
    let pid = group.servers[leader].as_ref().expect("it is up").pid().to_string();
    let text = output(Command::new(python).args(["-", &port, &pid]), include_str!("data/cluster.py"));
    // The library tells on standard error of what it has lost.
    assert!(text.contains("all good\n"), "{text}");
}
