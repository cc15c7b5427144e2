//! Three servers that are a Raft group: they elect a leader from empty directories, go on without any one of them, and
//! keep what they acknowledged.

mod process;

use process::group::{Group, QUICK, raft};
use process::{Client, Server, TempDir, fails, free_port, wait_until};
use std::net::TcpStream;

#[test]
fn a_group_goes_on_without_any_one_of_its_members() {
    let mut group = Group::start(&["--enable-debug-command", "yes"]);
    for round in 0..3 {
        let leader = group.leader();
        let mut client = group.client(leader);
        assert_eq!(client.ask(&format!("SET key:{round} value")), "+OK\r\n");
        assert_eq!(client.ask("INCR rounds"), format!(":{}\r\n", 2 * round + 1));
        let other = (leader + 1) % 3;
        let moved = format!("-MOVED 2592 127.0.0.1:{}\r\n", group.ports[leader]);
        wait_until("a follower knows the leader", || group.client(other).ask("GET key:0") == moved);
        assert_eq!(group.client(other).ask("PING"), "+PONG\r\n", "what needs no keys runs anywhere");
        let role = group.client(other).ask("ROLE");
        let expected = format!("*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:{}\r\n", group.ports[leader]);
        assert!(role.starts_with(&expected), "{role}");
        assert_eq!(group.client(other).info("role"), "slave");
        assert!(client.ask("ROLE").starts_with("*3\r\n$6\r\nmaster\r\n"));
        assert_eq!(client.ask("SET waited for"), "+OK\r\n");
        assert_eq!(client.ask("WAIT 1 20000"), ":1\r\n", "a majority has what is acknowledged");
        wait_until("it hears of both", || client.info("connected_slaves") == "2");
        group.kill(leader);
        let next = group.leader();
        let mut client = group.client(next);
        assert_eq!(client.ask(&format!("GET key:{round}")), "$5\r\nvalue\r\n");
        assert_eq!(client.ask("INCR rounds"), format!(":{}\r\n", 2 * round + 2));
        group.begin(leader);
        group.settle();
        let digests = group.digests();
        assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
    }
}

#[test]
fn a_leader_without_a_quorum_answers_nothing() {
    let mut group = Group::start(&[]);
    let leader = group.leader();
    let mut client = group.client(leader);
    assert_eq!(client.ask("SET key before"), "+OK\r\n");
    let mut waits = group.client(leader);
    (1..3).for_each(|more| group.kill((leader + more) % 3));
    // A leader that has not noticed yet runs the command, and does not say so.
    let down = "-CLUSTERDOWN The cluster is down\r\n";
    let reply = waits.try_ask("SET key after");
    assert!(reply.as_deref().is_none_or(|reply| reply == down), "what became of it cannot be known: {reply:?}");
    wait_until("it serves nobody", || group.client(leader).try_ask("GET key").as_deref() == Some(down));
    group.begin((leader + 1) % 3);
    let next = group.leader();
    let value = group.client(next).ask("GET key");
    assert!(value == "$6\r\nbefore\r\n" || value == "$5\r\nafter\r\n", "{value}");
}

#[test]
fn a_member_that_has_nothing_to_send_connects_again() {
    let mut group = Group::start(&["--logfile", "server.log"]);
    let leader = group.leader();
    group.settle();
    let (silent, killed) = ((leader + 1) % 3, (leader + 2) % 3);
    let connections = |group: &Group| {
        let log = std::fs::read_to_string(group.dirs[silent].path().join("server.log")).expect("it is written");
        log.matches(&format!("connected to member {}", killed + 1)).count()
    };
    let before = connections(&group);
    group.kill(killed);
    group.begin(killed);
    // Were it to notice only when it campaigns, its request for a vote would be lost.
    wait_until("it has connected", || connections(&group) > before);
}

#[test]
fn a_member_that_stops_cleanly_comes_back_as_it_was() {
    let mut group = Group::start(&["--enable-debug-command", "yes"]);
    for round in 0..2 {
        let leader = group.leader();
        let mut client = group.client(leader);
        (0..50).for_each(|at| assert_eq!(client.ask(&format!("SET key:{round}:{at} {at}")), "+OK\r\n"));
        for at in [(leader + 1) % 3, leader] {
            group.servers[at].take().expect("it is up").stop();
            group.begin(at);
        }
        assert_eq!(group.client(group.leader()).ask(&format!("GET key:{round}:49")), "$2\r\n49\r\n");
    }
    group.settle();
    let digests = group.digests();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

/// Returns the lines of INFO raft about members.
fn members(client: &mut Client<TcpStream>) -> Vec<String> {
    let page = client.ask("INFO raft");
    page.lines().filter(|line| line.starts_with("raft_member")).map(str::to_owned).collect()
}

/// A log that keeps nothing longer than it has to.
const SHORT: [&str; 8] = [
    "--log-segment-size",
    "1mb",
    "--log-retention-size",
    "1mb",
    "--flush-log-bytes",
    "1mb",
    "--enable-debug-command",
    "yes",
];

fn fill(client: &mut Client<TcpStream>, from: usize) {
    let value = "v".repeat(20_000);
    (from..from + 400).for_each(|at| assert_eq!(client.ask(&format!("SET key:{at} {value}")), "+OK\r\n"));
}

#[test]
fn a_member_that_was_away_for_longer_than_the_log_reaches_gets_a_copy() {
    let mut group = Group::start(&SHORT);
    let leader = group.leader();
    let away = (leader + 1) % 3;
    assert_eq!(group.client(leader).ask("SET before value"), "+OK\r\n");
    group.settle();
    group.kill(away);
    let mut client = group.client(leader);
    let last = raft(&mut client, "last_entry").parse::<u64>().unwrap();
    let mut filled = 0;
    wait_until("the log has let go of what it had", || {
        fill(&mut client, filled);
        filled += 400;
        raft(&mut client, "first_entry").parse::<u64>().unwrap() > last + 1
    });
    assert_eq!(client.ask("DEL before"), ":1\r\n");
    group.begin(away);
    wait_until("it has a copy", || raft(&mut group.client(away), "copies") == "1");
    group.settle();
    // The one that was away is a member like any other: the group needs it now.
    group.kill(3 - leader - away);
    assert_eq!(group.client(group.leader()).ask("EXISTS before"), ":0\r\n");
    group.begin(3 - leader - away);
    for at in [away, leader] {
        group.kill(at);
        group.begin(at);
    }
    group.settle();
    let digests = group.digests();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

#[test]
fn members_come_and_go_while_the_group_serves() {
    let mut group = Group::start(&SHORT);
    let leader = group.leader();
    let mut client = group.client(leader);
    fill(&mut client, 0);
    // A fourth one begins empty, and waits until it is told to come in.
    let (dir, port) = (TempDir::new(), free_port());
    group.dirs.push(dir);
    group.ports.push(port);
    group.servers.push(None);
    group.begin(3);
    let mut fourth = group.client(3);
    assert_eq!(fourth.ask("GET key:1"), "-CLUSTERDOWN The cluster is down\r\n");
    let follower = (leader + 1) % 3;
    let moved = format!("-MOVED 0 127.0.0.1:{}\r\n", group.ports[leader]);
    assert_eq!(group.client(follower).ask("RAFT.NODE REMOVE 1"), moved);
    assert_eq!(client.ask(&format!("RAFT.NODE ADD 1 127.0.0.1:{port}")), "-ERR the group has a member 1 already\r\n");
    assert_eq!(client.ask(&format!("RAFT.NODE ADD 4 127.0.0.1:{port}")), "+OK\r\n");
    wait_until("it votes", || {
        members(&mut client).iter().any(|line| line.contains("id=4,") && line.contains("part=voter"))
    });
    assert_eq!(client.ask("SET shared value"), "+OK\r\n");
    // The one that came leads, and the one that led goes.
    assert_eq!(
        client.ask(&format!("RAFT.NODE REMOVE {}", leader + 1)),
        "-ERR a leader does not remove itself: have another member lead first\r\n"
    );
    group.hand_over(leader, 3);
    wait_until("nothing else changes", || fourth.ask(&format!("RAFT.NODE REMOVE {}", leader + 1)) == "+OK\r\n");
    wait_until("it is gone", || members(&mut fourth).len() == 3);
    assert!(members(&mut fourth).iter().all(|line| line.contains("part=voter")), "{:?}", members(&mut fourth));
    assert_eq!(fourth.ask("GET shared"), "$5\r\nvalue\r\n");
    group.kill(leader);
    // A majority of those that are left is enough, and remembers who they are.
    group.kill(follower);
    assert_eq!(group.client(group.leader()).ask("INCR counter"), ":1\r\n");
    group.kill(3);
    group.begin(follower);
    group.begin(3);
    group.settle();
    let digests = group.digests();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
    assert_eq!(group.client(group.leader()).ask("GET counter"), "$1\r\n1\r\n");
}

#[test]
fn a_server_with_its_data_becomes_a_group_and_others_join_it() {
    let alone = [&QUICK[..], &["--enable-debug-command", "yes"]].concat();
    let dirs: Vec<_> = (0..3).map(|_| TempDir::new()).collect();
    let ports: Vec<_> = (0..3).map(|_| free_port()).collect();
    let start = |at: usize| Server::start_at(dirs[at].path(), ports[at], &alone);
    let mut servers: Vec<_> = (0..3).map(start).collect();
    let address = |at: usize| format!("127.0.0.1:{}", ports[at]);
    let mut first = servers[0].client();
    fill(&mut first, 0);
    assert_eq!(first.ask("SELECT 3"), "+OK\r\n");
    assert_eq!(first.ask("SADD set a b c"), ":3\r\n");
    let digest = first.ask("DEBUG DIGEST");
    assert_eq!(first.ask("RAFT.NODE REMOVE 1"), "-ERR this server is in no Raft group\r\n");
    let elsewhere =
        format!("-ERR another server answers at {}: give the address at which others reach this one\r\n", address(1));
    assert_eq!(first.ask(&format!("RAFT.CLUSTER INIT {}", address(1))), elsewhere);
    assert_eq!(raft(&mut first, "role"), "none");
    // Several who say so at the same time make one group.
    let mut asks: Vec<_> = (0..4).map(|_| servers[0].client()).collect();
    let init = format!("RAFT.CLUSTER INIT {}", address(0));
    let answers: Vec<String> = std::thread::scope(|threads| {
        let asking: Vec<_> = asks.iter_mut().map(|client| threads.spawn(|| client.ask(&init))).collect();
        asking.into_iter().map(|thread| thread.join().expect("it is answered")).collect()
    });
    let others = "-ERR this server is in a Raft group already\r\n";
    assert_eq!(answers.iter().filter(|answer| *answer == "+OK\r\n").count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| *answer == others).count(), 3, "{answers:?}");
    assert_eq!(
        first.ask(&format!("RAFT.CLUSTER INIT {}", address(0))),
        "-ERR this server is in a Raft group already\r\n"
    );
    wait_until("it leads itself", || raft(&mut first, "role") == "leader");
    assert_eq!(first.ask("DEBUG DIGEST"), digest, "its data are what they were");
    let mut second = servers[1].client();
    assert_eq!(second.ask("SET mine value"), "+OK\r\n");
    let join = format!("RAFT.CLUSTER JOIN {}", address(0));
    let refused = "-ERR this server has keys, which would be lost: empty it by FLUSHALL, or say FORCE\r\n";
    assert_eq!(second.ask(&join), refused);
    assert_eq!(second.ask("GET mine"), "$5\r\nvalue\r\n", "nothing has changed");
    assert_eq!(second.ask(&format!("{join} FORCE")), "+OK\r\n");
    // The third one asks a member that does not lead.
    wait_until("the second knows the leader", || raft(&mut second, "leader_id") == "1");
    assert_eq!(servers[2].client().ask(&format!("RAFT.CLUSTER JOIN {} AS {}", address(0), address(1))), elsewhere);
    assert_eq!(members(&mut first).len(), 2, "the group has not heard of it");
    assert_eq!(servers[2].client().ask(&format!("RAFT.CLUSTER JOIN {} AS {}", address(1), address(2))), "+OK\r\n");
    let votes =
        |client: &mut Client<TcpStream>| members(client).iter().filter(|line| line.contains("part=voter")).count();
    wait_until("all vote", || votes(&mut first) == 3);
    assert_eq!(first.ask("INCR counter"), ":1\r\n");
    // Without directives they are what they were: one is killed, and another one leads.
    servers.remove(0).kill();
    let mut rest: Vec<_> = servers.iter().map(Server::client).collect();
    wait_until("another one leads", || rest.iter_mut().any(|client| raft(client, "role") == "leader"));
    let leader = rest.iter_mut().position(|client| raft(client, "role") == "leader").expect("one was found");
    assert_eq!(rest[leader].ask("SELECT 3"), "+OK\r\n");
    assert_eq!(rest[leader].ask("INCR counter"), ":2\r\n");
    assert_eq!(rest[leader].ask("SCARD set"), ":3\r\n");
    servers.insert(0, start(0));
    let digests = || servers.iter().map(|server| server.client().ask("DEBUG DIGEST")).collect::<Vec<_>>();
    wait_until("all have the same", || digests().windows(2).all(|pair| pair[0] == pair[1]));
    assert_ne!(digests()[0], digest);
}

#[test]
fn a_member_is_no_replica_and_opens_no_data_at_will() {
    let group = Group::start(&["--enable-debug-command", "yes"]);
    let mut client = group.client(group.leader());
    let refused = "-ERR REPLICAOF not allowed in cluster mode.\r\n";
    assert_eq!(client.ask("REPLICAOF 127.0.0.1 1"), refused);
    assert_eq!(client.ask("REPLICAOF NO ONE"), refused);
    assert!(client.ask("DEBUG RELOAD").starts_with("-ERR"));
    assert_eq!(client.ask("SET key value"), "+OK\r\n");
}

#[test]
fn directives_of_a_group_that_cannot_be_are_told() {
    let peers = "1@127.0.0.1:7001,2@127.0.0.1:7002";
    for (more, why) in [
        (&["--raft-peers", peers][..], "does not say which one this server is"),
        (&["--raft-node-id", "1", "--raft-peers", "1@here"], "its address is host:port"),
        (&["--raft-node-id", "1", "--raft-peers", peers, "--replicaof", "127.0.0.1", "1"], "exclude each other"),
        (&["--raft-node-id", "1", "--raft-peers", peers, "--engine", "memory"], "exclude each other"),
        (&["--raft-node-id", "1", "--raft-peers", peers, "--raft-heartbeat-interval", "600"], "more than half"),
    ] {
        let dir = TempDir::new();
        let told = fails(dir.path(), free_port(), more);
        assert!(told.contains(why), "{more:?}: {told}");
    }
}

/// Nobody tells a member that was away when it was removed.
#[test]
fn a_member_that_was_removed_while_it_was_away_says_so_until_it_is_added_again() {
    let mut group = Group::start(&[]);
    let leader = group.leader();
    let gone = (leader + 1) % 3;
    group.settle();
    group.kill(gone);
    let mut client = group.client(leader);
    let remove = format!("RAFT.NODE REMOVE {}", gone + 1);
    wait_until("it is taken out", || client.ask(&remove) == "+OK\r\n");
    group.begin(gone);
    let mut removed = group.client(gone);
    let says = format!("member {} was removed from the group, whose members are ", gone + 1);
    wait_until("it says so", || raft(&mut removed, "fault").starts_with(&says));
    assert_eq!(raft(&mut client, "fault"), "");
    let add = format!("RAFT.NODE ADD {} 127.0.0.1:{}", gone + 1, group.ports[gone]);
    wait_until("it is added again", || client.ask(&add) == "+OK\r\n");
    wait_until("it takes part", || raft(&mut removed, "leader_id") != "0" && raft(&mut removed, "fault").is_empty());
}
