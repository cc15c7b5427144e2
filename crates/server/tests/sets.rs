//! Sets that are larger than the memory of a server: stored, read and taken apart within its budget, whole or not at
//! all.

mod process;

use process::{Client, Server, TempDir, wait_until};
use std::net::TcpStream;

const BUDGET: &[&str] = &["--maxmemory", "64mb"];

/// Members of each of two sets, and of both: one takes about 150 bytes in the memtable, whose generations have 13 MB.
const EACH: usize = 200_000;
const SHARED: usize = 100_000;

fn fill(client: &mut Client<TcpStream>, key: &str, from: usize) {
    for first in (from..from + EACH).step_by(1000) {
        let members: Vec<String> = (first..first + 1000).map(|number| format!("member:{number}")).collect();
        let words = [b"SADD", key.as_bytes()].into_iter().chain(members.iter().map(String::as_bytes));
        assert_eq!(client.ask_words(&words.collect::<Vec<_>>()), ":1000\r\n");
    }
}

#[test]
fn a_union_larger_than_the_memtable_is_stored_as_a_whole() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), BUDGET);
    let mut client = server.client();
    fill(&mut client, "a", 0);
    fill(&mut client, "b", EACH - SHARED);
    assert_eq!(client.ask("SET d before"), "+OK\r\n");

    // A command killed in the middle has no effect; killed at the end, it has all of it.
    let mut other = server.client();
    client.send(&process::request(&[b"SUNIONSTORE", b"d", b"a", b"b"]));
    let written = |other: &mut Client<TcpStream>| other.info("flushes_completed").parse::<u64>().expect("a number");
    let before = written(&mut other);
    wait_until("a part of it is in the base", || written(&mut other) > before);
    server.kill();
    let server = Server::start(dir.path(), BUDGET);
    let mut client = server.client();
    let all = format!(":{}\r\n", 2 * EACH - SHARED);
    if client.ask("TYPE d") == "+set\r\n" {
        assert_eq!(client.ask("SCARD d"), all);
    } else {
        assert_eq!(client.ask("GET d"), "$6\r\nbefore\r\n");
    }

    assert_eq!(client.ask("SUNIONSTORE d a b"), all);
    server.kill();
    let server = Server::start(dir.path(), BUDGET);
    let mut client = server.client();
    assert_eq!(client.ask("SCARD d"), all);
    assert_eq!(client.ask("SINTERCARD 2 a d"), format!(":{EACH}\r\n"));
    assert_eq!(client.ask("SDIFFSTORE e d a"), format!(":{}\r\n", EACH - SHARED));
    assert_eq!(client.ask("SINTERCARD 2 e b LIMIT 7"), ":7\r\n");
    assert_eq!(client.ask("SPOP d 290000").lines().next(), Some("*290000"));
    assert_eq!(client.ask("SCARD d"), format!(":{}\r\n", 2 * EACH - SHARED - 290_000));
    assert_eq!(client.ask("SINTERSTORE d d a b e"), ":0\r\n");
    assert_eq!(client.ask("EXISTS d"), ":0\r\n");
    server.stop();
}
