//! Clients of members that do not lead, whose connections go on to the leader: `raft-follower-proxy`.

mod process;

use process::group::{Group, raft};
use process::{Client, wait_until};
use std::net::TcpStream;

const PROXY: [&str; 2] = ["--raft-follower-proxy", "yes"];

/// Returns a group, its leader, and a client of another member.
fn group(more: &[&'static str]) -> (Group, usize, Client<TcpStream>) {
    let group = Group::start(&[&PROXY[..], more].concat());
    let leader = group.leader();
    let other = (leader + 1) % 3;
    let address = format!("127.0.0.1:{}", group.ports[leader]);
    wait_until("it knows the leader", || raft(&mut group.client(other), "leader_address") == address);
    let client = group.client(other);
    (group, leader, client)
}

#[test]
fn a_client_of_any_member_writes_and_reads() {
    let (group, leader, mut client) = group(&[]);
    // All that the client has said before goes with it.
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    assert_eq!(client.ask("SELECT 3"), "+OK\r\n");
    assert_eq!(client.ask("CLIENT SETNAME from-afar"), "+OK\r\n");
    assert_eq!(client.ask("SET key value"), "+OK\r\n");
    assert_eq!(client.ask("GET key"), "$5\r\nvalue\r\n");
    assert_eq!(client.ask("CLIENT GETNAME"), "$9\r\nfrom-afar\r\n");
    let mut of_leader = group.client(leader);
    assert_eq!(of_leader.ask("GET key"), "$-1\r\n");
    assert_eq!(of_leader.ask("SELECT 3"), "+OK\r\n");
    assert_eq!(of_leader.ask("GET key"), "$5\r\nvalue\r\n");
    let mut beside = group.client((leader + 1) % 3);
    assert_eq!(raft(&mut beside, "proxied_clients"), "1");
    assert_eq!(raft(&mut of_leader, "proxied_clients"), "0");
    // Blocks, scripts, blocking commands, and a pipeline whose first command needs no leader.
    client.send(b"MULTI\r\nINCR n\r\nINCR n\r\nEXEC\r\n");
    let replies = ["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n:1\r\n:2\r\n"];
    replies.iter().for_each(|reply| assert_eq!(client.reply(), *reply));
    assert_eq!(client.ask("EVAL \"return redis.call('incr', KEYS[1])\" 1 n"), ":3\r\n");
    client.send(b"BLPOP list 0\r\n");
    assert_eq!(of_leader.ask("RPUSH list element"), ":1\r\n");
    assert_eq!(client.reply(), "*2\r\n$4\r\nlist\r\n$7\r\nelement\r\n");
    let mut second = group.client((leader + 2) % 3);
    second.send(b"PING\r\nMULTI\r\nSET other 1\r\nEXEC\r\nGET other\r\n");
    for reply in ["+PONG\r\n", "+OK\r\n", "+QUEUED\r\n", "*1\r\n+OK\r\n", "$1\r\n1\r\n"] {
        assert_eq!(second.reply(), reply);
    }
    assert_eq!(second.ask("WATCH other"), "+OK\r\n");
    assert_eq!(client.ask("SELECT 0"), "+OK\r\n");
    assert_eq!(client.ask("SET other 2"), "+OK\r\n");
    second.send(b"MULTI\r\nSET other 3\r\nEXEC\r\n");
    for reply in ["+OK\r\n", "+QUEUED\r\n", "*-1\r\n"] {
        assert_eq!(second.reply(), reply);
    }
}

#[test]
fn what_is_long_goes_both_ways() {
    let (_group, _, mut client) = group(&[]);
    let value: Vec<u8> = (0..24_000_000_u32).map(|at| b'a' + (at % 26) as u8).collect();
    assert_eq!(client.ask_words(&[b"SET", b"long", &value]), "+OK\r\n");
    let reply = client.ask("GET long");
    assert!(reply.len() == value.len() + "$24000000\r\n\r\n".len() && reply.as_bytes()[11..].starts_with(&value));
    // Requests that are sent before any reply is read.
    let count = 20_000;
    client.send("INCR n\r\n".repeat(count).as_bytes());
    (1..=count).for_each(|n| assert_eq!(client.reply(), format!(":{n}\r\n")));
}

#[test]
fn reads_stay_with_a_client_that_is_content_with_them() {
    let (group, leader, mut client) = group(&[]);
    let mut of_leader = group.client(leader);
    assert_eq!(of_leader.ask("SET key value"), "+OK\r\n");
    group.settle();
    assert_eq!(client.ask("READONLY"), "+OK\r\n");
    assert_eq!(client.ask("GET key"), "$5\r\nvalue\r\n");
    let mut beside = group.client((leader + 1) % 3);
    assert_eq!(raft(&mut beside, "proxied_clients"), "0");
    // A client that waits here for messages stays here.
    assert_eq!(beside.ask("HELLO 3").lines().next(), Some("%7"));
    assert!(beside.ask("SUBSCRIBE channel").starts_with(">3"));
    assert!(beside.ask("SET key other").starts_with("-MOVED "));
    assert_eq!(client.ask("SET key other"), "+OK\r\n");
    assert_eq!(raft(&mut beside, "proxied_clients"), "1");
}

#[test]
fn a_client_is_the_user_that_it_has_logged_in_as() {
    let (group, leader, mut client) = group(&["--user", "alice", "on", ">secret", "~a:*", "+@all"]);
    assert_eq!(client.ask("AUTH alice secret"), "+OK\r\n");
    assert_eq!(client.ask("HELLO 3").lines().next(), Some("%7"));
    assert_eq!(client.ask("SET a:1 x"), "+OK\r\n");
    assert_eq!(client.ask("ACL WHOAMI"), "$5\r\nalice\r\n");
    assert!(client.ask("SET b:1 x").starts_with("-NOPERM"));
    assert_eq!(client.ask("HGETALL a:none"), "%0\r\n");
    // Who may not do everything speaks for nobody.
    let mut liar = group.client(leader);
    assert_eq!(liar.ask("AUTH alice secret"), "+OK\r\n");
    let name = raft(&mut liar, "group");
    let words = |group: &str, user: &str| format!("REPLCONF haypile-proxy {group} {user} 0 2 \"\" \"\" \"\" no no yes");
    assert!(liar.ask(&words(&name, "default")).starts_with("-NOPERM a member"));
    let mut member = group.client(leader);
    assert!(member.ask(&words(&name, "nobody")).starts_with("-WRONGPASS"));
    assert!(member.ask(&words("other", "alice")).starts_with("-CLUSTERDOWN"));
    assert_eq!(member.ask("REPLCONF haypile-proxy x"), "-ERR syntax error\r\n");
    assert_eq!(member.ask(&words(&name, "alice")), "+OK\r\n");
    assert_eq!(member.ask("ACL WHOAMI"), "$5\r\nalice\r\n");
    // Who has given no password elsewhere is nobody here where one is asked for.
    let mut another = group.client(leader);
    assert_eq!(another.ask("CONFIG SET requirepass password"), "+OK\r\n");
    let open = words(&name, "default").replace("no yes", "no no");
    assert_eq!(another.ask(&open), "-NOAUTH Authentication required.\r\n");
    assert_eq!(another.ask(&words(&name, "default")), "+OK\r\n");
}

#[test]
fn a_client_of_another_host_is_none_of_the_leaders() {
    let (group, leader, mut client) = group(&["--enable-debug-command", "local"]);
    assert!(group.client(leader).ask("DEBUG DIGEST").starts_with('+'));
    assert_eq!(client.ask("SET key value"), "+OK\r\n");
    assert!(client.ask("DEBUG DIGEST").starts_with("-ERR DEBUG command not allowed"), "the leader cannot see its host");
}

#[test]
fn a_client_that_has_gone_to_the_leader_hears_for_nobody() {
    let (group, leader, mut hears) = group(&[]);
    let id = hears.ask("CLIENT ID").trim_start_matches(':').trim().to_owned();
    assert_eq!(hears.ask("SET key value"), "+OK\r\n");
    group.settle();
    let mut reads = group.client((leader + 1) % 3);
    assert_eq!(reads.ask("READONLY"), "+OK\r\n");
    assert_eq!(reads.ask(&format!("CLIENT TRACKING ON REDIRECT {id}")), "+OK\r\n");
    assert_eq!(reads.ask("GET key"), "$5\r\nvalue\r\n");
    assert_eq!(hears.ask("SET key other"), "+OK\r\n");
    wait_until("it is told that nobody hears", || reads.ask("CLIENT TRACKINGINFO").contains("broken_redirect"));
    assert_eq!(hears.ask("GET key"), "$5\r\nother\r\n", "no message is among its replies");
}

#[test]
fn a_connection_ends_with_its_client_or_its_leader() {
    let (mut group, leader, mut client) = group(&[]);
    assert_eq!(client.ask("SET key value"), "+OK\r\n");
    let mut of_leader = group.client(leader);
    let connected = |of: &mut Client<TcpStream>| of.ask("CLIENT LIST").matches("cmd=blpop").count();
    client.send(b"BLPOP nothing 0\r\n");
    wait_until("it waits", || connected(&mut of_leader) == 1);
    drop(client);
    wait_until("it has gone", || connected(&mut of_leader) == 0);
    let other = (leader + 1) % 3;
    let mut beside = group.client(other);
    wait_until("it counts no more", || raft(&mut beside, "proxied_clients") == "0");
    // CLIENT KILL reaches one by the member that it has come by.
    let mut killed = group.client(other);
    assert_eq!(killed.ask("INCR n"), ":1\r\n");
    let clients = |of: &mut Client<TcpStream>| of.ask("CLIENT LIST TYPE normal").matches("id=").count();
    wait_until("nobody else is there", || clients(&mut beside) == 2);
    assert_eq!(beside.ask("CLIENT KILL TYPE normal SKIPME yes"), ":1\r\n");
    assert_eq!(killed.try_ask("GET key"), None);
    let mut left = group.client(other);
    assert_eq!(left.ask("INCR n"), ":2\r\n");
    group.kill(leader);
    assert_eq!(left.try_ask("INCR n"), None, "what becomes of it cannot be known");
    let next = group.leader();
    let mut again = group.client((0..3).find(|at| *at != leader && *at != next).expect("three are two more"));
    let mut value = String::new();
    wait_until("another one leads", || {
        value = again.try_ask("GET key").unwrap_or_else(|| {
            again = group.client((0..3).find(|at| *at != leader && *at != next).expect("three are two more"));
            String::new()
        });
        value.starts_with('$')
    });
    assert_eq!(value, "$5\r\nvalue\r\n");
}

#[test]
fn a_leader_that_hands_over_ends_the_connections_of_others() {
    let (group, leader, mut client) = group(&[]);
    assert_eq!(client.ask("SET key value"), "+OK\r\n");
    group.hand_over(leader, (leader + 1) % 3);
    wait_until("its connection has ended", || client.try_ask("PING").is_none());
    let value = Some("$5\r\nvalue\r\n".to_owned());
    wait_until("the former leader hands on, too", || group.client(leader).try_ask("GET key") == value);
}
