//! The work that no client asks for goes on beside what takes long of it.

mod process;

use process::following::DEBUG;
use process::{Server, TempDir};

#[test]
fn idle_clients_are_closed_while_very_many_keys_expire() {
    const KEYS: usize = 200_000;
    const TOGETHER: usize = 1000;
    let dir = TempDir::new();
    let more = ["--workers", "1", "--maxmemory", "1gb", "--memtable-size", "256mb"];
    let server = Server::start(dir.path(), &[&more[..], &DEBUG[..]].concat());
    let (mut client, mut idle) = (server.client(), server.client());
    assert_eq!(client.ask("DEBUG SET-ACTIVE-EXPIRE 0"), "+OK\r\n");
    for from in (0..KEYS).step_by(TOGETHER) {
        let sets = (from..from + TOGETHER).map(|n| format!("SET key:{n} x PX 1\r\n"));
        client.send(sets.collect::<String>().as_bytes());
        (0..TOGETHER).for_each(|_| assert_eq!(client.reply(), "+OK\r\n"));
    }
    assert_eq!(idle.ask("PING"), "+PONG\r\n");
    assert_eq!(client.ask("CONFIG SET timeout 1"), "+OK\r\n");
    assert_eq!(client.ask("DEBUG SET-ACTIVE-EXPIRE 1"), "+OK\r\n");
    assert_eq!(idle.rest(), "", "it is closed");
    // The other one may be closed by now, too.
    let expired: usize = server.client().info("expired_keys").parse().expect("a number");
    assert!((1..KEYS).contains(&expired), "{expired} keys were expired when an idle client was closed");
    server.stop();
}
