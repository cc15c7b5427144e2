//! The clients of a replica and of its master: what they are told, what they wait for, and what is shown to them.

use crate::process::following::{DEBUG, field, fill, is_equal, replica_of, wait_for_link, wait_for_only};
use crate::process::{Client, Server, TempDir, wait_until};
use std::net::TcpStream;

#[test]
fn readers_of_a_replica_are_told_what_comes() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    let mut client = master.client();
    client.ask("SET watched 1");
    client.ask("XADD s 1-1 a b");
    let replica = replica_of(&master, &other, &DEBUG);
    let (mut reader, mut watcher) = (replica.client(), replica.client());
    is_equal(&master, &replica);
    assert_eq!(watcher.ask("WATCH watched"), "+OK\r\n");
    assert_eq!(watcher.ask("MULTI"), "+OK\r\n");
    assert_eq!(watcher.ask("GET watched"), "+QUEUED\r\n");
    reader.send(b"XREAD BLOCK 0 STREAMS s 1-1\r\n");
    wait_until("it waits", || watcher_info(&replica) == "1");
    client.ask("MULTI");
    client.ask("SET watched 2");
    client.ask("XADD s 1-2 c d");
    client.ask("EXEC");
    assert!(reader.reply().contains("1-2"));
    assert_eq!(watcher.ask("EXEC"), "*-1\r\n");
    replica.stop();
    master.stop();
}

#[test]
fn subscribers_of_a_replica_hear_what_those_of_the_master_do() {
    let dirs = [TempDir::new(), TempDir::new(), TempDir::new()];
    let master = Server::start(dirs[0].path(), &DEBUG);
    let mut client = master.client();
    let events = ["--notify-keyspace-events", "Kg$lx"];
    let replica = replica_of(&master, &dirs[1], &[&DEBUG[..], &events].concat());
    let below = replica_of(&replica, &dirs[2], &DEBUG);
    let mut listeners = [replica.client(), below.client()];
    for listener in &mut listeners {
        listener.ask("SUBSCRIBE news");
        listener.ask("PSUBSCRIBE n*s __key*");
        listener.reply();
        listener.ask("SSUBSCRIBE shard");
    }
    let hears = |listeners: &mut [Client<TcpStream>], expected: &[&str]| {
        for listener in listeners {
            for expected in expected {
                let message = listener.reply().split("\r\n").skip(2).step_by(2).collect::<Vec<_>>().join(" ");
                assert_eq!(message, *expected);
            }
        }
    };
    // Nobody is subscribed on the master: subscribers of replicas do not count.
    assert_eq!(client.ask("PUBLISH news first"), ":0\r\n");
    assert_eq!(client.ask("SPUBLISH shard second"), ":0\r\n");
    let heard = ["message news first", "pmessage n*s news first", "smessage shard second"];
    hears(&mut listeners, &heard);
    // In a block, and behind what it tells of.
    let mut reader = below.client();
    for number in 0..50 {
        client.send(format!("MULTI\r\nSET n {number}\r\nPUBLISH news {number}\r\nEXEC\r\n").as_bytes());
        (0..4).for_each(|_| _ = client.reply());
        let of_event = "pmessage __key* __keyspace@0__:n set";
        let (message, matched) = (format!("message news {number}"), format!("pmessage n*s news {number}"));
        hears(&mut listeners[..1], &[of_event, &message, &matched]);
        hears(&mut listeners[1..], &[&message, &matched]);
        assert_eq!(reader.ask("GET n"), format!("${}\r\n{number}\r\n", number.to_string().len()));
    }
    // Events come as the replica's own directive says, of what the master does.
    client.ask("RPUSH list a");
    client.ask("SADD set a");
    client.ask("PEXPIRE n 1");
    let heard = ["list rpush", "n expire", "n expired"].map(|event| format!("pmessage __key* __keyspace@0__:{event}"));
    hears(&mut listeners[..1], &heard.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(below.client().ask("CONFIG SET notify-keyspace-events Es"), "+OK\r\n");
    wait_until("the classes are asked for", || {
        client.ask("SADD set b");
        client.ask("SREM set b");
        listeners[1].has_reply()
    });
    let event = listeners[1].reply();
    assert!(event.contains("__keyevent@0__:sadd") || event.contains("__keyevent@0__:srem"), "{event}");
    // A replica's own messages go no further.
    assert_eq!(replica.client().ask("PUBLISH news own"), ":2\r\n");
    hears(&mut listeners[..1], &["message news own", "pmessage n*s news own"]);
    [below, replica, master].into_iter().for_each(Server::stop);
}

#[test]
fn writes_wait_for_replicas_as_far_as_they_are_asked_to() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &[&DEBUG[..], &["--min-replicas-to-write", "1"]].concat());
    let mut client = master.client();
    let refused = "-NOREPLICAS Not enough good replicas to write.\r\n";
    wait_until("it is refused", || client.ask("SET k v") == refused);
    assert_eq!(client.ask("GET k"), "$-1\r\n");
    let replica = replica_of(&master, &other, &DEBUG);
    wait_until("it is taken", || client.ask("SET k v") == "+OK\r\n");
    assert!(client.ask("INFO replication").contains("min_slaves_good_slaves:1"));
    let since = std::time::Instant::now();
    for number in 0..20 {
        client.send(format!("SET k {number}\r\nWAIT 1 0\r\n").as_bytes());
        assert_eq!((client.reply(), client.reply()), ("+OK\r\n".into(), ":1\r\n".into()));
        assert_eq!(replica.client().ask("GET k"), format!("${}\r\n{number}\r\n", number.to_string().len()));
    }
    assert!(
        since.elapsed() < std::time::Duration::from_secs(10),
        "a record does not wait for a heartbeat, once a second"
    );
    assert_eq!(client.ask("WAIT 2 20"), ":1\r\n");
    assert_eq!(client.ask("WAITAOF 1 1 0"), "*2\r\n:1\r\n:1\r\n");
    let mut reader = replica.client();
    assert!(reader.ask("WAIT 1 0").starts_with("-ERR WAIT cannot be used with replica instances."));
    replica.stop();
    wait_until("it is refused", || client.ask("SET k v") == refused);
    assert_eq!(client.ask("WAIT 1 20"), ":0\r\n");
    master.stop();
}

#[test]
fn connections_of_replication_are_listed_and_closed_as_in_redis() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    let mut client = master.client();
    let replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    let mut reader = replica.client();
    assert!(client.ask("HELLO").contains("$6\r\nmaster"));
    assert!(reader.ask("HELLO").contains("$7\r\nreplica"));
    wait_for_only(&master);
    let of_replica = client.ask("CLIENT LIST TYPE replica");
    assert!(of_replica.contains(" flags=S ") && of_replica.contains(" cmd=replconf "), "{of_replica}");
    assert_eq!(of_replica.matches("id=").count(), 1);
    assert!(client.ask("CLIENT LIST").contains(&of_replica.split_once("\r\n").expect("a bulk").1[..40]));
    let of_master = reader.ask("CLIENT LIST TYPE master");
    assert!(
        of_master.contains(" flags=M ") && of_master.contains(&format!("addr=127.0.0.1:{}", master.port)),
        "{of_master}"
    );
    // Connections that the server has handed on, or whose ends it has not seen yet, count for a moment.
    wait_until("a replica is no client", || client.ask("INFO clients").contains("connected_clients:1\r\n"));
    let has_all = ",lag_records=0,lag_bytes=0,lag_ms=0";
    wait_until("it has acknowledged all", || client.ask("INFO replication").contains(has_all));
    // A connection that is closed comes back.
    assert_eq!(client.ask("CLIENT KILL TYPE normal"), ":0\r\n");
    let id_of = |client: &mut Client<TcpStream>, kind: &str| {
        let line = client.ask(&format!("CLIENT LIST TYPE {kind}"));
        line.split("id=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default().to_owned()
    };
    let before = id_of(&mut client, "replica");
    assert_eq!(client.ask("CLIENT KILL TYPE slave"), ":1\r\n");
    wait_until("it is back", || !["", &before].contains(&id_of(&mut client, "replica").as_str()));
    let before = id_of(&mut reader, "master");
    assert_eq!(reader.ask("CLIENT KILL TYPE master"), ":1\r\n");
    wait_until("it is back", || !["", &before].contains(&id_of(&mut reader, "master").as_str()));
    wait_for_link(&replica);
    fill(&mut client, 0, 10);
    is_equal(&master, &replica);
    replica.stop();
    master.stop();
}

#[test]
fn an_idle_replica_counts_as_a_good_one() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let needs = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "3"];
    let master = Server::start(dir.path(), &[&DEBUG[..], &needs].concat());
    let replica = replica_of(&master, &other, &DEBUG);
    let mut client = master.client();
    wait_until("it is taken", || client.ask("SET k v") == "+OK\r\n");
    let since = std::time::Instant::now();
    while since.elapsed() < std::time::Duration::from_secs(6) {
        let line = field(&mut client, "slave0");
        assert!(["0", "1", "2"].iter().any(|lag| line.contains(&format!(",lag={lag},"))), "{line}");
    }
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    replica.stop();
    master.stop();
}

#[test]
fn what_is_stale_is_served_where_the_directive_says_so() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    master.client().ask("SET k v");
    let replica = replica_of(&master, &other, &["--replica-serve-stale-data", "no"]);
    let mut reader = replica.client();
    assert_eq!(reader.ask("GET k"), "$1\r\nv\r\n");
    let mut block = replica.client();
    assert_eq!(block.ask("MULTI"), "+OK\r\n");
    assert_eq!(block.ask("GET k"), "+QUEUED\r\n");
    master.stop();
    let down = "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n";
    wait_until("it is refused", || reader.ask("GET k") == down);
    let discarded = format!("-EXECABORT Transaction discarded because of: {}", &down[1..]);
    assert_eq!(block.ask("EXEC"), discarded);
    let mut eval = |script: &str| {
        reader.send(format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len()).as_bytes());
        reader.reply()
    };
    assert_eq!(eval("return redis.call('GET', 'k')"), down);
    assert_eq!(eval("#!lua flags=no-writes\nreturn 1"), down);
    assert_eq!(eval("#!lua flags=no-writes,allow-stale\nreturn 1"), ":1\r\n");
    let refused = eval("#!lua flags=no-writes,allow-stale\nreturn redis.call('GET', 'k')");
    assert!(refused.starts_with("-ERR Can not execute the command on a stale replica"), "{refused}");
    assert!(reader.ask("INFO replication").contains("master_link_status:down"));
    assert_eq!(reader.ask("CONFIG SET replica-serve-stale-data yes"), "+OK\r\n");
    wait_until("it is served", || reader.ask("GET k") == "$1\r\nv\r\n");
    replica.stop();
}

fn watcher_info(replica: &Server) -> String {
    let info = replica.client().ask("INFO clients");
    info.lines().find_map(|line| line.strip_prefix("blocked_clients:")).unwrap_or_default().to_owned()
}
