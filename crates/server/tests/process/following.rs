//! Servers that follow others.

use super::{Client, Server, wait_until};
use std::net::TcpStream;
use std::path::Path;

/// The answer of a replica to a write.
pub const READONLY: &str = "-READONLY You can't write against a read only replica.\r\n";

/// Returns a field of INFO's section about replication.
pub fn field(client: &mut Client<TcpStream>, name: &str) -> String {
    let info = client.ask("INFO replication");
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("there is no {name} in {info}")).to_owned()
}

/// Starts a replica of a master, and waits until it follows.
pub fn replica_of(master: &Server, dir: impl AsRef<Path>, more: &[&str]) -> Server {
    let of = ["--replicaof", "127.0.0.1", &master.port.to_string()].map(str::to_owned);
    let of: Vec<&str> = of.iter().map(String::as_str).chain(more.iter().copied()).collect();
    let replica = Server::start(dir.as_ref(), &of);
    wait_for_link(&replica);
    replica
}

/// Waits until a replica takes its master's records.
pub fn wait_for_link(replica: &Server) {
    let mut client = replica.client();
    wait_until("the replica follows", || field(&mut client, "master_link_status") == "up");
}

/// Waits until the only replica of a master is one whose connection takes records. The connection that has given it a
/// copy may be there for a moment longer.
pub fn wait_for_only(master: &Server) {
    let mut client = master.client();
    wait_until("the copy's connection has gone", || {
        let info = client.ask("INFO replication");
        info.contains("connected_slaves:1\r\n") && info.contains(",state=online,")
    });
}

/// Waits until a replica has all that its master has, and compares the data.
pub fn is_equal(master: &Server, replica: &Server) {
    let (mut of_master, mut of_replica) = (master.client(), replica.client());
    let mut looks = Vec::new();
    // The master may make records of its own meanwhile: keys expire. Then what was compared is of two moments.
    wait_until("the replica has all, and nothing changes", || {
        let last = field(&mut of_master, "master_repl_offset");
        if field(&mut of_replica, "slave_repl_offset") != last {
            return false;
        }
        let look = |client: &mut Client<TcpStream>| (client.ask("DEBUG DIGEST"), client.ask("DBSIZE"));
        looks = vec![look(&mut of_replica), look(&mut of_master)];
        field(&mut of_master, "master_repl_offset") == last
    });
    assert_eq!(looks[0], looks[1]);
}

/// The directive that allows DEBUG DIGEST.
pub const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

/// Writes keys of several types.
pub fn fill(client: &mut Client<TcpStream>, from: usize, until: usize) {
    for number in from..until {
        assert_eq!(client.ask(&format!("SET key:{number} value:{number}")), "+OK\r\n");
        client.ask(&format!("RPUSH list:{} {number}", number % 10));
        client.ask(&format!("ZADD zset:{} {number} member:{number}", number % 10));
        client.ask(&format!("XADD stream * number {number}"));
    }
}

/// Runs `haypile log` and returns what it prints.
pub fn print_log(dir: &Path) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_haypile")).arg("log").arg(dir).output();
    String::from_utf8_lossy(&output.expect("the binary runs").stdout).into_owned()
}

/// Returns what is in the only tail of a log that a server has given up.
pub fn print_tail(dir: &Path) -> String {
    let tails: Vec<_> = std::fs::read_dir(dir.join("tails")).expect("there is one").collect();
    assert_eq!(tails.len(), 1);
    print_log(&tails[0].as_ref().expect("readable").path())
}
