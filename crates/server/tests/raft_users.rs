//! Users that are a Raft group's: `raft-users group`.

mod process;

use process::group::Group;
use process::{Client, Server, TempDir, fails, wait_until};
use std::net::TcpStream;

const USERS: [&str; 2] = ["--raft-users", "group"];

/// Whether a user logs in on a member.
fn logs_in(group: &Group, at: usize, name: &str, password: &str) -> bool {
    group.client(at).ask(&format!("AUTH {name} {password}")) == "+OK\r\n"
}

#[test]
fn users_of_a_group_are_the_same_on_all_members() {
    let mut group = Group::start(&[&USERS[..], &["--user", "founder", "on", ">own", "+@all", "~*"]].concat());
    let leader = group.leader();
    let mut client = group.client(leader);
    assert_eq!(client.ask("ACL SETUSER alice on >secret +get +set +auth ~a:*"), "+OK\r\n");
    assert!(logs_in(&group, leader, "alice", "secret"), "it has taken effect when it is answered");
    let all = |group: &Group, password: &str| group.up().all(|at| logs_in(group, at, "alice", password));
    wait_until("all know her", || all(&group, "secret"));
    assert!((0..3).all(|at| logs_in(&group, at, "founder", "own")), "those of the configuration are there");
    // A change counts on what the group knows, and is refused whole where a rule is wrong.
    assert_eq!(
        client.ask("ACL SETUSER alice >second nonsense"),
        "-ERR Error in ACL SETUSER modifier 'nonsense': Syntax error\r\n"
    );
    assert_eq!(client.ask("ACL SETUSER alice >second"), "+OK\r\n");
    assert_eq!(client.ask("ACL SETUSER bob on nopass +@all ~*"), "+OK\r\n");
    wait_until("all know her second password", || all(&group, "second") && all(&group, "secret"));
    let mut hers = group.client((leader + 1) % 3);
    assert_eq!(hers.ask("AUTH alice second"), "+OK\r\n");
    // Others send those who change users to the leader; a block cannot wait for the group.
    let moved = format!("-MOVED 0 127.0.0.1:{}\r\n", group.ports[leader]);
    assert_eq!(group.client((leader + 1) % 3).ask("ACL SETUSER carol on"), moved);
    client.send(b"MULTI\r\nACL SETUSER carol on\r\nEXEC\r\n");
    assert_eq!([client.reply(), client.reply()], ["+OK\r\n", "+QUEUED\r\n"]);
    let refused = "*1\r\n-ERR users of a Raft group cannot be changed inside a transaction, nor by 64 KB of rules\r\n";
    assert_eq!(client.reply(), refused);
    // Who is removed is disconnected everywhere, one of the configuration too; and all that lasts.
    assert_eq!(client.ask("ACL DELUSER bob founder nobody"), ":2\r\n");
    assert_eq!(client.ask("ACL SETUSER alice resetpass >third"), "+OK\r\n");
    wait_until("all know her third password", || all(&group, "third"));
    assert!((0..3).all(|at| !logs_in(&group, at, "founder", "own") && !logs_in(&group, at, "alice", "second")));
    assert_eq!(client.ask("ACL DELUSER alice"), ":1\r\n");
    wait_until("her client has gone", || hers.try_ask("GET a:1").is_none());
    assert_eq!(client.ask("ACL SETUSER alice on >last +@all ~*"), "+OK\r\n");
    assert_eq!(client.ask("ACL DELUSER nobody"), ":0\r\n");
    // Who is made under the name of one that was removed is another one, though a member hears of both at once.
    wait_until("all know her last password", || all(&group, "last"));
    let mut hers = group.client((leader + 2) % 3);
    assert_eq!(hers.ask("AUTH alice last"), "+OK\r\n");
    client.send(b"ACL DELUSER alice\r\nACL SETUSER alice on >last +@all ~*\r\n");
    assert_eq!([client.reply(), client.reply()], [":1\r\n", "+OK\r\n"]);
    wait_until("her client has gone", || hers.try_ask("PING").is_none());
    (0..3).for_each(|at| group.kill(at));
    (0..3).for_each(|at| group.begin(at));
    group.leader();
    wait_until("all know her last password", || all(&group, "last"));
    assert!((0..3).all(|at| !logs_in(&group, at, "founder", "own")));
    group.kill(leader);
    let next = group.leader();
    assert_eq!(group.client(next).ask("ACL SETUSER alice >newest"), "+OK\r\n");
    group.begin(leader);
    wait_until("who was away hears of it", || logs_in(&group, leader, "alice", "newest"));
    assert!(group.client(leader).ask("ACL LIST").contains("user alice on"));
}

#[test]
fn who_removes_its_own_user_is_answered_and_then_disconnected() {
    let founder = ["--user", "founder", "on", ">own", "+@all", "~*"];
    let group = Group::start(&[&USERS[..], &founder, &["--raft-follower-proxy", "yes"]].concat());
    let leader = group.leader();
    let dir = TempDir::new();
    let alone = Server::start(dir.path(), &founder);
    let servers: [(&str, &dyn Fn() -> Client<TcpStream>); 3] = [
        ("alone", &|| alone.client()),
        ("on the leader", &|| group.client(leader)),
        ("by way of another member", &|| group.client((leader + 1) % 3)),
    ];
    for (place, connect) in servers {
        let mut other = connect();
        for name in ["founder", "made"] {
            if name == "made" || place.starts_with("by way") {
                assert_eq!(other.ask(&format!("ACL SETUSER {name} on >own +@all ~*")), "+OK\r\n");
            }
            let mut client = connect();
            wait_until("the user is known", || client.ask(&format!("AUTH {name} own")) == "+OK\r\n");
            client.send(format!("ACL DELUSER {name}\r\nSET key value\r\n").as_bytes());
            assert_eq!(client.rest(), ":1\r\n", "{place}: the command behind it is not run");
        }
        assert_eq!(other.ask("EXISTS key"), ":0\r\n", "{place}");
    }
    alone.stop();
}

#[test]
fn users_are_each_members_own_unless_the_directive_says_else() {
    let group = Group::start(&[]);
    let leader = group.leader();
    assert_eq!(group.client(leader).ask("ACL SETUSER alice on >secret"), "+OK\r\n");
    let other = (leader + 1) % 3;
    assert_eq!(group.client(other).ask("ACL SETUSER bob on >secret"), "+OK\r\n", "no leader is asked");
    assert_eq!(group.client(leader).ask("SET key value"), "+OK\r\n");
    group.settle();
    assert!(!logs_in(&group, other, "alice", "secret") && !logs_in(&group, leader, "bob", "secret"));
}

#[test]
fn users_are_in_the_data_or_in_a_file() {
    let dir = TempDir::new();
    let file = dir.path().join("users.acl");
    std::fs::write(&file, "").expect("it can be written");
    let (port, file) = (process::free_port(), file.display().to_string());
    let peers = format!("1@127.0.0.1:{port}");
    let more = ["--raft-node-id", "1", "--raft-peers", &peers, "--raft-users", "group", "--aclfile", &file];
    let said = fails(dir.path(), port, &more);
    assert!(said.contains("'raft-users group' keeps users in the data"), "{said}");
}
