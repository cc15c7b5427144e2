//! Replicas of a running server: partial and full resync, promotions, and chains of replicas. Next: `copies`, `clients`
//! (what clients see), `refusals`.

mod clients;
mod copies;
#[path = "../process/mod.rs"]
mod process;
mod refusals;

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
