//! Linearizable reads of a Raft group: beside its leader, and by a leader's lease.

mod process;

use process::group::{Group, raft};
use process::{Server, TempDir, free_port, wait_until};

/// Directives with which a read on any member misses nothing.
const BESIDE: [&str; 2] = ["--raft-follower-reads", "linearizable"];

#[test]
fn a_read_beside_the_leader_misses_no_write_that_was_acknowledged() {
    let group = Group::start(&BESIDE);
    let leader = group.leader();
    let mut writer = group.client(leader);
    let mut readers: Vec<_> = (0..3).filter(|at| *at != leader).map(|at| group.client(at)).collect();
    for reader in &mut readers {
        assert_eq!(reader.ask("READONLY"), "+OK\r\n");
    }
    group.settle();
    for round in 1..=300 {
        assert_eq!(writer.ask("INCR counter"), format!(":{round}\r\n"));
        let expected = format!("${}\r\n{round}\r\n", round.to_string().len());
        for reader in &mut readers {
            assert_eq!(reader.ask("GET counter"), expected, "in round {round}");
        }
        // Many at once, a block and a script are reads as well.
        let reader = &mut readers[round % 2];
        reader.send(b"GET counter\r\nMULTI\r\nGET counter\r\nEXEC\r\nEVAL_RO \"return redis.call('get', 'counter')\" 0\r\nPING\r\n");
        for reply in [&expected, "+OK\r\n", "+QUEUED\r\n", &format!("*1\r\n{expected}"), &expected, "+PONG\r\n"] {
            assert_eq!(reader.reply(), reply, "in round {round}");
        }
    }
}

#[test]
fn a_read_beside_a_leader_that_is_gone_waits_for_the_next_one() {
    let mut group = Group::start(&BESIDE);
    let leader = group.leader();
    assert_eq!(group.client(leader).ask("SET key before"), "+OK\r\n");
    group.settle();
    let (one, other) = ((leader + 1) % 3, (leader + 2) % 3);
    // The leader hears nothing of it.
    group.servers[leader].as_ref().expect("it is up").halt();
    let mut asked = group.client(one);
    assert_eq!(asked.ask("READONLY"), "+OK\r\n");
    asked.send(b"GET key\r\n");
    wait_until("another one leads", || [one, other].iter().any(|at| raft(&mut group.client(*at), "role") == "leader"));
    // The read may have been asked too early for the stop, and not be answered before another one leads.
    let reply = asked.reply();
    assert!(reply == "$6\r\nbefore\r\n" || reply.starts_with("-CLUSTERDOWN"), "{reply}");
    // A member that hears of a leader of long ago reads nothing.
    let next = [one, other].into_iter().find(|at| raft(&mut group.client(*at), "role") == "leader").expect("one leads");
    let mut silent = group.client(one + other - next);
    assert_eq!(silent.ask("READONLY"), "+OK\r\n");
    group.servers[next].as_ref().expect("it is up").halt();
    silent.send(b"GET key\r\n");
    let reply = silent.reply();
    assert!(reply.starts_with("-CLUSTERDOWN"), "nobody can say what it misses: {reply}");
    group.servers[next].as_ref().expect("it is up").signal("CONT");
    group.servers[leader].as_ref().expect("it is up").signal("CONT");
    group.kill(leader);
    group.kill(other);
    let down = Some("-CLUSTERDOWN The cluster is down\r\n".to_owned());
    wait_until("a member alone says nothing", || group.client(one).try_ask("GET key") == down);
}

#[test]
fn a_leader_whose_lease_is_over_says_nothing_old() {
    let group = Group::start(&["--raft-read", "lease"]);
    for round in 0..3 {
        let leader = group.leader();
        let mut client = group.client(leader);
        assert_eq!(client.ask(&format!("SET key {round}:old")), "+OK\r\n");
        let old = format!("$5\r\n{round}:old\r\n");
        (0..100).for_each(|_| assert_eq!(client.ask("GET key"), old));
        let server = group.servers[leader].as_ref().expect("it is up");
        server.halt();
        // The call lies in the socket while others elect a leader, and is read when the lease is over.
        client.send(b"GET key\r\n");
        let mut next = None;
        wait_until("another one leads", || {
            next = (0..3).filter(|at| *at != leader).find(|at| raft(&mut group.client(*at), "role") == "leader");
            next.is_some()
        });
        let mut newer = group.client(next.expect("it was found"));
        assert_eq!(newer.ask(&format!("SET key {round}:new")), "+OK\r\n");
        server.signal("CONT");
        let line = client.line();
        let reply = if line.starts_with('$') { line + &client.line() } else { line };
        assert!(!reply.contains("old"), "{reply}");
        group.settle();
    }
}

#[test]
fn a_lease_counts_to_its_end_when_the_others_come_back_with_other_directives() {
    let mut group = Group::start(&["--raft-read", "lease", "--raft-election-timeout", "3000"]);
    let leader = group.leader();
    let mut reader = group.client(leader);
    assert_eq!(reader.ask("SET key old"), "+OK\r\n");
    group.settle();
    // Directives with which another leader is elected long before the lease ends.
    group.more = vec!["--raft-read", "index", "--raft-election-timeout", "600", "--raft-heartbeat-interval", "60"];
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    for at in others {
        group.servers[at].as_mut().expect("it is up").child.kill().expect("it is our child");
    }
    // The system takes its time to end processes that are killed: the lease may be over by then.
    assert_eq!(reader.ask("GET key"), "$3\r\nold\r\n", "the lease is not over");
    others.iter().for_each(|at| group.kill(*at));
    others.iter().for_each(|at| group.begin(*at));
    wait_until("the others have a leader of their own", || {
        others.iter().any(|at| group.client(*at).try_ask("SET key new") == Some("+OK\r\n".into()))
    });
    // The former leader may be about to notice that it leads no more.
    for _ in 0..100 {
        let reply = group.client(leader).try_ask("GET key");
        assert_ne!(reply, Some("$3\r\nold\r\n".into()));
    }
    group.kill(leader);
    group.begin(leader);
    group.settle();
    let mut again = group.client(leader);
    assert_eq!(again.ask("READONLY"), "+OK\r\n");
    assert_eq!(again.ask("GET key"), "$3\r\nnew\r\n");
}

#[test]
fn members_take_no_messages_of_one_with_another_lease() {
    let group = Group::start(&["--raft-read", "lease"]);
    let leader = group.leader();
    let name = raft(&mut group.client(leader), "group");
    let config = |directive: &str| {
        let reply = group.client(leader).ask(&format!("CONFIG GET {directive}"));
        reply.lines().last().expect("it has a value").to_owned()
    };
    let (election, heartbeat) = (config("raft-election-timeout"), config("raft-heartbeat-interval"));
    let begin = |reads: &str| {
        let to = leader + 1;
        group.client(leader).ask(&format!("REPLCONF haypile-member {name} 9 {to} \"\" {reads}"))
    };
    assert_eq!(begin(&format!("lease:{election}:{heartbeat}")), "+OK\r\n");
    for other in ["index".to_owned(), format!("lease:{election}1:{heartbeat}")] {
        let reply = begin(&other);
        assert!(reply.starts_with("-ERR 'raft-read' and, with leases, ") && reply.contains(&other), "{reply}");
    }
    assert!(begin("").starts_with("-ERR the request is none of a member"), "{}", begin(""));
    // Nor does a server come in that would be one.
    let (dir, port) = (TempDir::new(), free_port());
    let alone = Server::start_at(dir.path(), port, &["--raft-read", "index"]);
    let reply = alone.client().ask(&format!("RAFT.CLUSTER JOIN 127.0.0.1:{}", group.ports[leader]));
    let lease = format!("lease:{election}:{heartbeat}");
    assert_eq!(raft(&mut group.client(leader), "reads"), lease);
    assert!(reply.starts_with("-ERR 'raft-read' and, with leases, ") && reply.contains(&lease), "{reply}");
    assert_eq!(raft(&mut alone.client(), "role"), "none");
    assert_eq!(group.client(leader).ask("INFO raft").matches("raft_member").count(), 3);
}
