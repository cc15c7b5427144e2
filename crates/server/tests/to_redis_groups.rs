//! A Redis that follows this server has its consumer groups: who was given what, and how far a group has read. Beside a
//! real redis-server 7.0. `to_redis` compares values, whose fingerprints have nothing of groups.

mod process;

use process::following::wait_for_link;
use process::redis::redis;
use process::{Client, Server, TempDir, wait_until};
use std::net::TcpStream;

type Tcp = Client<TcpStream>;

/// Returns what a server knows of the groups of streams, without times.
fn groups(client: &mut Tcp, streams: &[&str]) -> Vec<String> {
    let mut all = Vec::new();
    for stream in streams {
        all.push(client.ask(&format!("XINFO GROUPS {stream}")));
        let pending = client.ask(&format!("XPENDING {stream} g - + 100"));
        let mut lines: Vec<&str> = pending.lines().collect();
        // The milliseconds since the last delivery stand behind the consumer, before the number of deliveries.
        let is_time =
            |at: usize| lines[at].starts_with(':') && lines.get(at + 1).is_some_and(|next| next.starts_with(':'));
        let times: Vec<usize> = (0..lines.len()).filter(|at| is_time(*at)).collect();
        times.into_iter().for_each(|at| lines[at] = "time");
        all.push(lines.join(" "));
    }
    all
}

#[test]
fn entries_that_had_no_room_are_not_stated_as_delivered() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let (master, replica) = (Server::start(dir.path(), &[]), redis(&other, &[]));
    let (mut of_master, mut of_replica) = (master.client(), replica.client());
    assert_eq!(of_replica.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port)), "+OK\r\n");
    wait_for_link(&replica);
    let streams = ["s", "t"];
    for stream in streams {
        (1..=9).for_each(|ms| _ = of_master.ask(&format!("XADD {stream} {ms}-1 f {ms}")));
        assert_eq!(of_master.ask(&format!("XGROUP CREATE {stream} g 0")), "+OK\r\n");
    }
    // An entry has 31 bytes, or 39 with CLAIM, the name of its stream 11 before the first one.
    for (command, entries) in [
        ("XREADGROUP GROUP g alice MAXSIZE 40 STREAMS s t > >", 1),
        ("XREADGROUP GROUP g alice MAXSIZE 60 STREAMS s t > >", 2),
        ("XREADGROUP GROUP g alice MAXSIZE 1 NOACK STREAMS s >", 1),
        ("XREADGROUP GROUP g alice COUNT 1 MAXSIZE 60 STREAMS s t > >", 2),
        ("XREADGROUP GROUP g alice MAXCOUNT 2 STREAMS s t > >", 2),
        ("XREADGROUP GROUP g alice MAXSIZE 60 STREAMS s t 0 >", 2),
        ("XREADGROUP GROUP g bob CLAIM 0 MAXSIZE 60 STREAMS s t > >", 2),
        ("XREADGROUP GROUP g carol CLAIM 100000 MAXSIZE 60 STREAMS t s > >", 2),
        ("XREADGROUP GROUP g carol CLAIM 0 COUNT 20 MAXSIZE 280 STREAMS s t > >", 7),
    ] {
        let before = groups(&mut of_master, &streams);
        let reply = of_master.ask(command);
        assert_eq!(reply.matches("$1\r\nf\r\n").count(), entries, "{command}: {reply}");
        let now = groups(&mut of_master, &streams);
        assert_ne!(before, now, "{command}");
        let fence = of_master.ask("INCR fence").replace(':', "");
        wait_until("it has arrived", || of_replica.ask("GET fence").ends_with(&format!("\r\n{fence}")));
        assert_eq!(groups(&mut of_replica, &streams), now, "{command}");
    }
    replica.stop();
    master.stop();
}
