//! A Raft group of one that becomes a server alone, with all it has, and a group again.

mod process;

use process::following::{is_equal, replica_of, wait_for_link};
use process::group::{QUICK, raft};
use process::{Client, Server, TempDir, free_port, wait_until};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const ALONE: &str = "-ERR this server is in no Raft group\r\n";

fn wait_for_leader(client: &mut Client<TcpStream>) {
    wait_until("it leads", || raft(client, "role") == "leader");
}

#[test]
fn a_group_of_one_becomes_a_server_alone_and_a_group_again() {
    let (dir, port) = (TempDir::new(), free_port());
    let more: Vec<&str> = [&QUICK[..], &["--enable-debug-command", "yes"]].concat();
    let start = || Server::start_at(dir.path(), port, &more);
    let mut server = start();
    let (init, mut value) = (format!("RAFT.CLUSTER INIT 127.0.0.1:{port}"), 0);
    for round in 0..3 {
        let mut client = server.client();
        assert_eq!(client.ask("RAFT.CLUSTER RESET"), ALONE);
        assert_eq!(client.ask(&init), "+OK\r\n");
        wait_for_leader(&mut client);
        let mut count = |client: &mut Client<TcpStream>| {
            value += 1;
            assert_eq!(client.ask("INCR counter"), format!(":{value}\r\n"), "in round {round}");
        };
        (0..200).for_each(|_| count(&mut client));
        if round == 1 {
            server.kill();
            server = start();
            client = server.client();
            wait_for_leader(&mut client);
            count(&mut client);
        }
        let mut waits = server.client();
        waits.send(b"BLPOP list 0\r\n");
        wait_until("it waits", || client.info("blocked_clients") == "1");
        let digest = client.ask("DEBUG DIGEST");
        assert_eq!(client.ask("RAFT.CLUSTER RESET"), "+OK\r\n");
        assert_eq!(client.ask("DEBUG DIGEST"), digest, "its data are what they were");
        assert_eq!((raft(&mut client, "role"), client.info("redis_mode")), ("none".into(), "standalone".into()));
        count(&mut client);
        assert_eq!(client.ask("RPUSH list element"), ":1\r\n");
        assert_eq!(waits.reply(), "*2\r\n$4\r\nlist\r\n$7\r\nelement\r\n", "who waited still does");
        if round == 0 {
            // The server is a master like any other.
            let copy = TempDir::new();
            let replica = replica_of(&server, copy.path(), &more);
            wait_for_link(&replica);
            count(&mut client);
            is_equal(&server, &replica);
        }
        server.kill();
        server = start();
        let mut client = server.client();
        assert_eq!(client.ask("INCRBY counter 0"), format!(":{value}\r\n"), "in round {round}");
    }
    server.stop();
    let checked = std::process::Command::new(env!("CARGO_BIN_EXE_haypile")).arg("check").arg(dir.path()).output();
    let checked = checked.expect("the binary runs");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn a_group_that_has_other_members_stays_one() {
    let (dirs, ports) = ([TempDir::new(), TempDir::new()], [free_port(), free_port()]);
    let servers = [0, 1].map(|at| Server::start_at(dirs[at].path(), ports[at], &QUICK));
    let [mut first, mut second] = servers.each_ref().map(Server::client);
    assert_eq!(first.ask(&format!("RAFT.CLUSTER INIT 127.0.0.1:{}", ports[0])), "+OK\r\n");
    wait_for_leader(&mut first);
    assert_eq!(second.ask(&format!("RAFT.CLUSTER JOIN 127.0.0.1:{}", ports[0])), "+OK\r\n");
    let refused = "-ERR the group has other members: remove them first\r\n";
    assert_eq!(first.ask("RAFT.CLUSTER RESET"), refused);
    assert_eq!(first.ask("SET key value"), "+OK\r\n");
    wait_until("the second votes", || first.ask("INFO raft").matches("part=voter").count() == 2);
    assert!(second.ask("RAFT.CLUSTER RESET").starts_with("-ERR this server is not the leader"));
    wait_until("it is taken out", || first.ask("RAFT.NODE REMOVE 2") == "+OK\r\n");
    assert_eq!(first.ask("RAFT.CLUSTER RESET"), "+OK\r\n");
    assert_eq!(first.ask("GET key"), "$5\r\nvalue\r\n");
}

#[test]
fn a_member_by_its_configuration_stays_one() {
    let (dir, port) = (TempDir::new(), free_port());
    let peers = format!("1@127.0.0.1:{port}");
    let server = Server::start_at(dir.path(), port, &["--raft-node-id", "1", "--raft-peers", &peers]);
    let mut client = server.client();
    wait_for_leader(&mut client);
    assert_eq!(client.ask("SET key value"), "+OK\r\n");
    let refused =
        "-ERR the configuration names the group: start the server without 'raft-node-id' and 'raft-peers' first";
    assert!(client.ask("RAFT.CLUSTER RESET").starts_with(refused));
    server.stop();
    let server = Server::start_at(dir.path(), port, &[]);
    let mut client = server.client();
    wait_for_leader(&mut client);
    assert_eq!(client.ask("RAFT.CLUSTER RESET"), "+OK\r\n");
    assert_eq!(client.ask("GET key"), "$5\r\nvalue\r\n");
}

#[test]
fn a_member_that_is_about_to_leave_takes_in_nobody() {
    let (dir, port) = (TempDir::new(), free_port());
    let server = Server::start_at(dir.path(), port, &QUICK);
    let (mut client, mut other) = (server.client(), server.client());
    let leaves = "-ERR this server is leaving its group\r\n";
    let mut was_seen = false;
    // To leave takes as long as the base takes for the rows: the look may come too late.
    for round in 0..10 {
        assert_eq!(client.ask(&format!("RAFT.CLUSTER INIT 127.0.0.1:{port}")), "+OK\r\n");
        wait_for_leader(&mut client);
        for part in 0..20 {
            let fill = "for i = 1, 10000 do redis.call('SET', KEYS[1] .. i, string.rep(i, 50)) end return 1";
            let key = format!("{round}:{part}:");
            assert_eq!(client.ask_words(&[b"EVAL", fill.as_bytes(), b"1", key.as_bytes()]), ":1\r\n");
        }
        client.send(b"RAFT.CLUSTER RESET\r\n");
        wait_until("it has left", || {
            let answer = other.ask("RAFT.NODE REMOVE 9");
            if answer == leaves {
                was_seen = true;
                assert_ne!(other.ask("RAFT.NODE ADD 2 127.0.0.1:1"), "+OK\r\n");
            }
            answer == ALONE
        });
        assert_eq!(client.reply(), "+OK\r\n");
        if was_seen {
            break;
        }
    }
    assert!(was_seen, "it was never seen on its way");
    assert_eq!(client.ask(&format!("RAFT.CLUSTER INIT 127.0.0.1:{port}")), "+OK\r\n", "it may come into a group again");
    wait_for_leader(&mut client);
    wait_until("members may change again", || other.ask("RAFT.NODE ADD 2 127.0.0.1:1") == "+OK\r\n");
}

#[test]
fn an_order_does_not_wait_long_for_a_server_that_does_not_answer() {
    let (dir, deaf) = (TempDir::new(), TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port"));
    let address = deaf.local_addr().expect("it is bound");
    let (server, asked) = (Server::start(dir.path(), &QUICK), Instant::now());
    let told = server.client().ask(&format!("RAFT.CLUSTER JOIN {address}"));
    assert_eq!(told, format!("-ERR {address}: the other end does not answer\r\n"));
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
}

/// Asks for a copy of the data of a group's member; returns the first frames, or all.
fn ask_for_copy(server: &Server, group: &str) -> String {
    let mut client = server.client();
    client.send(format!("REPLCONF haypile-copy {group}\r\n").as_bytes());
    let mut frames = Vec::new();
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = client.socket.read(&mut bytes) {
        frames.extend_from_slice(&bytes[..count]);
        if String::from_utf8_lossy(&frames).contains("haypile copy 1\n") {
            break;
        }
    }
    String::from_utf8_lossy(&frames).into_owned()
}

#[test]
fn a_copy_is_for_members_of_the_same_group() {
    let (dir, port) = (TempDir::new(), free_port());
    let server = Server::start_at(dir.path(), port, &QUICK);
    let (mut client, other) = (server.client(), "ab".repeat(20));
    assert!(ask_for_copy(&server, &other).contains("this server is in no group"));
    assert_eq!(client.ask(&format!("RAFT.CLUSTER INIT 127.0.0.1:{port}")), "+OK\r\n");
    wait_for_leader(&mut client);
    let own = raft(&mut client, "group");
    assert!(ask_for_copy(&server, &own).contains("haypile copy 1\n"), "its own group's members get one");
    assert!(ask_for_copy(&server, &other).contains(&format!("this server is in group {own}, not in {other}")));
    assert!(ask_for_copy(&server, "").contains("the request is none that this version knows"));
}
