//! Replicas of a running server: partial and full resync, what a replica refuses, and what it shows.

mod process;

use process::following::{
    DEBUG, READONLY, field, fill, is_equal, print_tail, replica_of, wait_for_link, wait_for_only,
};
use process::{Client, Server, TempDir, free_port, wait_until};
use std::net::TcpStream;

#[test]
fn an_empty_replica_takes_a_copy_and_follows() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    let mut client = master.client();
    fill(&mut client, 0, 500);
    client.ask("SET gone soon PX 50");
    let replica = replica_of(&master, &other, &DEBUG);
    wait_until("it has expired", || client.ask("EXISTS gone") == ":0\r\n");
    is_equal(&master, &replica);
    let mut reader = replica.client();
    assert_eq!(reader.ask("GET key:7"), "$7\r\nvalue:7\r\n");
    assert_eq!(reader.ask("SET key:7 x"), READONLY);
    assert_eq!(reader.ask("FLUSHALL"), READONLY);
    assert_eq!(reader.ask("MULTI"), "+OK\r\n");
    assert_eq!(reader.ask("INCR n"), READONLY);
    assert!(reader.ask("EXEC").starts_with("-EXECABORT"));
    fill(&mut client, 500, 600);
    client.ask("DEL list:3");
    client.ask("SWAPDB 0 1");
    client.ask("SWAPDB 0 1");
    is_equal(&master, &replica);
    let role = reader.ask("ROLE");
    assert!(
        role.starts_with(&format!("*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:{}\r\n$9\r\nconnected", master.port)),
        "{role}"
    );
    wait_for_only(&master);
    let skew: f64 = field(&mut reader, "master_clock_skew_seconds").parse().expect("a number");
    assert!(skew.abs() < 5.0, "the clocks are the same: {skew}");
    let line = field(&mut client, "slave0");
    assert!(line.contains(&format!("port={},state=online", replica.port)), "{line}");
    replica.stop();
    master.stop();
}

#[test]
fn a_break_of_either_side_needs_no_second_copy() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let mut master = Server::start(dir.path(), &DEBUG);
    let mut client = master.client();
    fill(&mut client, 0, 200);
    let mut replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    let port = master.port;
    let history = field(&mut client, "master_replid");
    let resyncs = |client: &mut Client<TcpStream>| {
        let info = client.ask("INFO stats");
        ["sync_full", "sync_partial_ok", "sync_partial_err"].map(|name| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.expect("a field").parse::<u64>().expect("a number")
        })
    };
    // The replica went on behind its copy.
    assert_eq!(resyncs(&mut client), [1, 1, 0]);
    // The replica is killed and comes back.
    replica.kill();
    fill(&mut client, 200, 300);
    replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    // The replica stops and comes back.
    replica.stop();
    fill(&mut client, 300, 400);
    replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    assert_eq!(field(&mut replica.client(), "master_replid"), history);
    assert_eq!(resyncs(&mut client), [1, 3, 0], "no copy was made");
    assert_eq!(client.ask("CONFIG RESETSTAT"), "+OK\r\n");
    assert_eq!(resyncs(&mut client), [0; 3]);
    // The master is killed and comes back, in a history of its own.
    master.kill();
    master = Server::start_at(dir.path(), port, &DEBUG);
    let mut client = master.client();
    assert_ne!(field(&mut client, "master_replid"), history);
    wait_for_link(&replica);
    fill(&mut client, 400, 500);
    is_equal(&master, &replica);
    assert_eq!(field(&mut replica.client(), "master_replid"), field(&mut client, "master_replid"));
    let [full, partial, refused] = resyncs(&mut client);
    assert!((full, refused) == (0, 0) && partial > 0, "{full} copies, {partial} times it went on, {refused} times not");
    assert!(!other.path().join("incoming").exists());
    replica.stop();
    master.stop();
}

#[test]
fn a_replica_becomes_a_master_and_a_replica_again() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    let mut client = master.client();
    fill(&mut client, 0, 100);
    let replica = Server::start(other.path(), &DEBUG);
    let mut own = replica.client();
    own.ask("SET own data");
    assert_eq!(own.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port)), "+OK\r\n");
    assert_eq!(own.ask("SET own more"), READONLY);
    wait_for_link(&replica);
    is_equal(&master, &replica);
    // Of data that the master never had, the log is kept.
    let printed = print_tail(other.path());
    assert!(printed.contains("own\" (") && !printed.contains("key:"), "{printed}");
    let again = own.ask(&format!("SLAVEOF 127.0.0.1 {}", master.port));
    assert_eq!(again, "+OK Already connected to specified master\r\n");
    assert_eq!(own.ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_until("it leads", || own.ask("SET own again") == "+OK\r\n");
    assert!(own.ask("ROLE").contains("master"));
    // The former master follows: its records are all a part of the other one's.
    assert_eq!(client.ask(&format!("REPLICAOF localhost {}", replica.port)), "+OK\r\n");
    wait_for_link(&master);
    fill(&mut own, 100, 150);
    is_equal(&replica, &master);
    replica.stop();
    master.stop();
}

#[test]
fn a_replica_that_led_for_a_while_in_between_gives_up_what_it_wrote() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    let mut client = master.client();
    fill(&mut client, 0, 50);
    let replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    replica.stop();
    // The replica is started alone by mistake, and gets as many records as its master does meanwhile.
    let alone = Server::start(other.path(), &DEBUG);
    for number in 0..10 {
        assert_eq!(alone.client().ask(&format!("SET of-replica {number}")), "+OK\r\n");
        assert_eq!(client.ask(&format!("SET of-master {number}")), "+OK\r\n");
    }
    alone.stop();
    let replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    assert_eq!(replica.client().ask("GET of-replica"), "$-1\r\n");
    fill(&mut client, 50, 60);
    is_equal(&master, &replica);
    replica.stop();
    master.stop();
}

#[test]
fn a_master_whose_data_are_a_backups_is_followed_all_the_same() {
    let (dir, other, restored) = (TempDir::new(), TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    let port = master.port;
    let mut client = master.client();
    fill(&mut client, 0, 50);
    let replica = replica_of(&master, &other, &DEBUG);
    assert_eq!(client.ask("SAVE"), "+OK\r\n");
    assert_eq!(client.ask("SET behind the-backup"), "+OK\r\n");
    is_equal(&master, &replica);
    master.stop();
    let backups = std::fs::read_dir(dir.path().join("backups")).expect("there is one").filter_map(Result::ok);
    let backup = backups.map(|entry| entry.path()).find(|path| path.join("HAYPILE").exists()).expect("there is one");
    let copied = std::process::Command::new("cp").arg("-a").arg(backup.join(".")).arg(restored.path()).status();
    assert!(copied.expect("cp runs").success());
    let master = Server::start_at(restored.path(), port, &DEBUG);
    let mut client = master.client();
    // As many records as the replica has, and others.
    assert_eq!(client.ask("SET other record"), "+OK\r\n");
    wait_for_link(&replica);
    is_equal(&master, &replica);
    assert_eq!(replica.client().ask("GET behind"), "$-1\r\n");
    let printed = print_tail(other.path());
    assert!(printed.contains("behind"), "{printed}");
    replica.stop();
    master.stop();
}

#[test]
fn twenty_replicas_follow_one_master() {
    const COUNT: usize = 20;
    let dir = TempDir::new();
    let small = ["--enable-debug-command", "yes", "--workers", "1", "--maxmemory", "64mb"];
    let master = Server::start(dir.path(), &small);
    let mut client = master.client();
    fill(&mut client, 0, 200);
    let port = master.port.to_string();
    let of = [&small[..], &["--replicaof", "127.0.0.1", &port]].concat();
    let dirs: Vec<TempDir> = (0..COUNT).map(|_| TempDir::new()).collect();
    let replicas: Vec<Server> = dirs.iter().map(|dir| Server::spawn(dir.path(), free_port(), &of)).collect();
    wait_until("all follow", || {
        let info = client.ask("INFO replication");
        info.matches("state=online").count() == COUNT
    });
    fill(&mut client, 200, 300);
    assert_eq!(client.ask(&format!("WAIT {COUNT} 0")), format!(":{COUNT}\r\n"));
    // Replicas that come together share copies.
    let copies = std::fs::read_dir(dir.path().join("copies")).map_or(0, |copies| copies.count());
    assert!(copies < COUNT, "{copies} copies");
    let mut expired = client.ask("SET gone soon PX 1");
    expired += &client.ask(&format!("WAIT {COUNT} 0"));
    assert_eq!(expired, format!("+OK\r\n:{COUNT}\r\n"));
    wait_until("it has expired", || client.ask("EXISTS gone") == ":0\r\n");
    replicas.iter().for_each(|replica| is_equal(&master, replica));
    replicas.into_iter().for_each(Server::stop);
    master.stop();
}

#[test]
fn replicas_of_replicas_follow_and_circles_do_not() {
    let dirs = [TempDir::new(), TempDir::new(), TempDir::new()];
    let first = Server::start(dirs[0].path(), &DEBUG);
    let mut client = first.client();
    fill(&mut client, 0, 100);
    let second = replica_of(&first, &dirs[1], &DEBUG);
    let third = replica_of(&second, &dirs[2], &DEBUG);
    fill(&mut client, 100, 200);
    is_equal(&first, &third);
    // The first one would follow itself, over two others.
    client.ask(&format!("REPLICAOF 127.0.0.1 {}", third.port));
    wait_until("it is refused", || field(&mut client, "master_link_error").contains("circle"));
    assert_eq!(client.ask("REPLICAOF NO ONE"), "+OK\r\n");
    assert_eq!(client.ask("SET x y"), "+OK\r\n");
    is_equal(&first, &third);
    client.ask(&format!("REPLICAOF 127.0.0.1 {}", first.port));
    wait_until("it is refused", || field(&mut client, "master_link_error").contains("itself"));
    [third, second, first].into_iter().for_each(Server::stop);
}

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
fn a_replica_does_not_go_back_to_where_its_new_master_is() {
    let dirs = [TempDir::new(), TempDir::new(), TempDir::new()];
    let master = Server::start(dirs[0].path(), &DEBUG);
    let ahead = replica_of(&master, &dirs[1], &DEBUG);
    let behind = replica_of(&master, &dirs[2], &DEBUG);
    is_equal(&master, &behind);
    let disk_free_min = |value: &str| {
        assert_eq!(behind.client().ask(&format!("CONFIG SET disk-free-min {value}")), "+OK\r\n");
    };
    disk_free_min("1000000gb");
    let (mut writer, mut stuck) = (master.client(), behind.client());
    wait_until("it takes no more", || {
        writer.ask("INCR n");
        !field(&mut stuck, "master_link_error").is_empty()
    });
    fill(&mut writer, 0, 50);
    is_equal(&master, &ahead);
    let mut client = ahead.client();
    let last = field(&mut client, "slave_repl_offset");
    assert_ne!(field(&mut behind.client(), "slave_repl_offset"), last);
    client.ask(&format!("REPLICAOF 127.0.0.1 {}", behind.port));
    wait_until("it is refused", || field(&mut client, "master_link_error").contains("ahead of it"));
    assert_eq!((client.ask("GET key:7"), field(&mut client, "slave_repl_offset")), ("$7\r\nvalue:7\r\n".into(), last));
    disk_free_min("0");
    wait_for_link(&ahead);
    is_equal(&master, &ahead);
    let copies = std::fs::read_dir(dirs[2].path().join("copies")).map_or(0, Iterator::count);
    assert_eq!(copies, 0, "records were enough");
    [ahead, behind, master].into_iter().for_each(Server::stop);
}

#[test]
fn a_replica_that_takes_writes_is_refused() {
    let dir = TempDir::new();
    let said = process::fails(dir.path(), free_port(), &["--replica-read-only", "no"]);
    assert!(said.contains("replica-read-only") && said.contains("yes"), "{said}");
    let server = Server::start(dir.path(), &["--slave-read-only", "yes"]);
    let refused = server.client().ask("CONFIG SET replica-read-only no");
    assert!(
        refused.starts_with("-ERR CONFIG SET failed (possibly related to argument 'replica-read-only')"),
        "{refused}"
    );
    server.stop();
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
fn a_directory_of_several_places_takes_no_copy() {
    let (dir, other, elsewhere) = (TempDir::new(), TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    master.client().ask("SET k of-master");
    let replica = Server::start(other.path(), &DEBUG);
    assert_eq!(replica.client().ask("SET k own"), "+OK\r\n");
    replica.stop();
    std::fs::rename(other.path().join("base"), elsewhere.path().join("base")).expect("both are in one file system");
    std::os::unix::fs::symlink(elsewhere.path().join("base"), other.path().join("base")).expect("it is ours");
    let replica = Server::start(other.path(), &DEBUG);
    let mut client = replica.client();
    client.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    wait_until("it is refused", || field(&mut client, "master_link_error").contains("cannot take its place"));
    assert_eq!(client.ask("GET k"), "$3\r\nown\r\n");
    assert!(!other.path().join("incoming").exists(), "nothing was fetched");
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

#[test]
fn others_are_no_masters() {
    let dir = TempDir::new();
    let replica = Server::start(dir.path(), &DEBUG);
    let mut client = replica.client();
    client.ask("SET kept 1");
    let fails = |client: &mut Client<TcpStream>, port: u16, why: &str| {
        assert_eq!(client.ask(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK\r\n");
        wait_until(why, || field(client, "master_link_error").contains(why));
        assert_eq!(field(client, "master_link_status"), "down");
        assert_eq!(client.ask("GET kept"), "$1\r\n1\r\n");
    };
    fails(&mut client, free_port(), "refused");
    for (answer, why) in [
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "reply"),
        ("", "closed"),
        ("-ERR Unrecognized REPLCONF option: haypile-hello\r\n", "closed"),
        ("-NOAUTH Authentication required.\r\n", "NOAUTH"),
        ("+OK\r\n", "no server that can be followed"),
        ("*4\r\n$7\r\nhaypile\r\n$1\r\n9\r\n$1\r\n2\r\n$2\r\n16\r\n", "version 9"),
        ("*4\r\n$7\r\nhaypile\r\n$1\r\n2\r\n$1\r\n2\r\n$2\r\n16\r\nthis is no frame at all", "checksum"),
    ] {
        let port = liar(answer);
        fails(&mut client, port, why);
    }
    assert_eq!(client.ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_until("it leads", || client.ask("SET kept 2") == "+OK\r\n");
    replica.stop();
}

#[test]
fn nobody_waits_for_a_master_that_does_not_answer() {
    let dir = TempDir::new();
    // Connections that come here once the queue is full get no answer at all.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("there are sockets");
    full.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("the loopback has a free port");
    full.listen(0).expect("it is bound");
    let address = full.local_addr().expect("it is bound").as_socket().expect("it is an address");
    let short = std::time::Duration::from_millis(200);
    let queued: Vec<_> = (0..8).map_while(|_| TcpStream::connect_timeout(&address, short).ok()).collect();
    assert!(queued.len() < 8, "the queue is full");
    let replica = Server::start(dir.path(), &DEBUG);
    let mut client = replica.client();
    let since = std::time::Instant::now();
    for round in 0..3 {
        assert_eq!(client.ask(&format!("REPLICAOF 127.0.0.1 {}", address.port())), "+OK\r\n");
        wait_until("it follows", || client.ask("SET k v") == READONLY);
        wait_until("it is told", || client.ask("REPLICAOF NO ONE") == "+OK\r\n");
        wait_until("it leads", || client.ask(&format!("SET k {round}")) == "+OK\r\n");
    }
    client.ask(&format!("REPLICAOF 127.0.0.1 {}", address.port()));
    replica.stop();
    assert!(since.elapsed() < std::time::Duration::from_secs(8), "an attempt to connect takes ten seconds");
}

/// Starts a server that gives each client this answer to whatever it says, and closes the connection.
fn liar(answer: &'static str) -> u16 {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    // The thread ends with the process.
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { return };
            let _ = client.read(&mut [0; 1024]);
            let _ = client.write_all(answer.as_bytes());
        }
    });
    port
}

/// Fills a server with tables of the base that together have some megabytes.
fn fill_tables(client: &mut Client<TcpStream>, count: usize) {
    let value = "v".repeat(10_000);
    for number in 0..count {
        // Values that do not compress to nothing.
        assert_eq!(client.ask(&format!("SET big:{number} {number}{value}{}", number * 7919)), "+OK\r\n");
    }
}

#[test]
fn a_copy_that_is_cut_off_goes_on_without_the_tables_that_are_there() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let small = ["--memtable-size", "1mb", "--compression", "none"];
    let mut master = Server::start(dir.path(), &[&DEBUG[..], &small].concat());
    let mut client = master.client();
    fill_tables(&mut client, 2000);
    for round in 0..6 {
        // Whatever has come by then: the replica is killed, or the master.
        let of = ["--replicaof", "127.0.0.1", &master.port.to_string()].map(str::to_owned);
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        let replica = Server::spawn(other.path(), free_port(), &of);
        std::thread::sleep(std::time::Duration::from_millis(40 * round));
        if round % 2 == 1 {
            let port = master.port;
            master.kill();
            master = Server::start_at(dir.path(), port, &[&DEBUG[..], &small].concat());
            client = master.client();
        }
        replica.kill();
        client.ask(&format!("SET round {round}"));
    }
    let replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    for left in ["incoming", "replaced"] {
        assert!(!other.path().join(left).exists(), "{left}");
    }
    replica.stop();
    master.stop();
}

#[test]
fn a_copy_that_is_not_wanted_any_more_changes_nothing() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let small = ["--memtable-size", "1mb", "--compression", "none"];
    let master = Server::start(dir.path(), &[&DEBUG[..], &small].concat());
    let mut client = master.client();
    fill_tables(&mut client, 1000);
    let replica = Server::start(other.path(), &DEBUG);
    let mut own = replica.client();
    let mut copies = 0;
    for round in 0..30 {
        assert_eq!(own.ask(&format!("SET round {round}")), "+OK\r\n");
        own.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port));
        // At any moment of the copy.
        std::thread::sleep(std::time::Duration::from_millis(2 * round));
        // As in Redis, LOADING while the copy is put in place.
        wait_until("it is told", || own.ask("REPLICAOF NO ONE") == "+OK\r\n");
        wait_until("it leads", || own.ask("SET led x") == "+OK\r\n");
        // The data are its own or the copy's, and not a mixture of both.
        let (of_master, of_own) = (own.ask("EXISTS big:1 big:999"), own.ask("GET round"));
        match &*of_master {
            ":0\r\n" => assert_eq!(of_own, format!("${}\r\n{round}\r\n", round.to_string().len())),
            ":2\r\n" => {
                copies += 1;
                assert_eq!(of_own, "$-1\r\n");
                own.ask("FLUSHALL");
            }
            other => panic!("a mixture: {other}"),
        }
    }
    own.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    wait_for_link(&replica);
    is_equal(&master, &replica);
    println!("{copies} of 30 copies came into place");
    replica.stop();
    master.stop();
}

#[test]
fn a_replica_that_is_stopped_for_long_is_let_go_and_gets_a_copy() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let small = ["--memtable-size", "1mb", "--log-segment-size", "1mb", "--replica-log-size", "4mb"];
    let master = Server::start(dir.path(), &[&DEBUG[..], &small].concat());
    let mut client = master.client();
    client.ask("SET a b");
    let replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    replica.signal("STOP");
    let log = dir.path().join("log");
    let log_bytes = || -> u64 {
        let files = std::fs::read_dir(&log).expect("readable").filter_map(Result::ok);
        files.filter_map(|file| file.metadata().ok()).map(|about| about.len()).sum()
    };
    fill_tables(&mut client, 3000);
    wait_until("it is let go", || field(&mut client, "connected_slaves") == "0");
    fill_tables(&mut client, 500);
    wait_until("the log goes", || log_bytes() < 20 << 20);
    replica.signal("CONT");
    wait_until("it has all", || {
        let mut reader = replica.client();
        reader.ask("GET big:2999") != "$-1\r\n" && field(&mut reader, "master_link_status") == "up"
    });
    is_equal(&master, &replica);
    replica.stop();
    master.stop();
}
