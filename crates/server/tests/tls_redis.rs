//! TLS with a real redis-server at the other end, which asks for a certificate, a user and a password.

mod authority;
mod process;

use authority::{Authority, connect, start, text};
use process::following::{DEBUG, field, fill, is_equal, wait_for_link};
use process::redis::redis;
use process::{Client, Server, TempDir, free_port, wait_until};
use std::net::TcpStream;

/// Starts a redis-server with a certificate of an authority, which has its links over TLS.
fn redis_over_tls(dir: &TempDir, directives: &[String], more: &[&str]) -> Server {
    let own = ["--tls-replication", "yes", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];
    let directives: Vec<&str> = directives.iter().map(String::as_str).chain(own).chain(more.iter().copied()).collect();
    redis(dir, &directives)
}

fn digest_when_equal(one: &mut Client<TcpStream>, other: &mut Client<TcpStream>) {
    wait_until("both have the same", || one.ask("DEBUG DIGEST") == other.ask("DEBUG DIGEST"));
}

#[test]
fn a_redis_is_followed_over_tls_by_its_user_and_password() {
    let authority = Authority::new();
    let (dirs, ports) = ([TempDir::new(), TempDir::new()], [free_port(), free_port()]);
    let master = redis_over_tls(&dirs[0], &authority.directives(ports[0]), &[]);
    let mut of_master = master.client();
    assert_eq!(of_master.ask("ACL SETUSER copier on >copies +psync +replconf +ping"), "+OK\r\n");
    fill(&mut of_master, 0, 500);
    let long = "x".repeat(5 << 20);
    assert_eq!(of_master.ask_words(&[b"SET", b"long", long.as_bytes()]), "+OK\r\n");
    // In the clear nobody comes in where TLS is spoken.
    let mut plain = Client::at(ports[0]);
    assert_eq!(plain.try_ask("PING"), None);

    let of = ["--replicaof", "127.0.0.1", &ports[0].to_string(), "--tls-replication", "yes"].map(str::to_owned);
    let directives: Vec<String> = authority.directives(ports[1]).into_iter().chain(of).collect();
    let login = |password| [&DEBUG[..], &["--masteruser", "copier", "--masterauth", password]].concat();
    let replica = start(dirs[1].path(), &directives, &login("wrong"));
    let mut of_replica = replica.client();
    wait_until("the refusal is told", || field(&mut of_replica, "master_link_error").contains("refuses the password"));
    assert_eq!(of_replica.ask("CONFIG SET masterauth copies"), "+OK\r\n");
    wait_for_link(&replica);
    is_equal(&master, &replica);
    assert_eq!(field(&mut of_replica, "master_protocol"), "psync");
    assert!(of_master.ask("CLIENT LIST TYPE replica").contains("user=copier"));
    assert!(field(&mut of_master, "slave0").contains(&format!("port={}", ports[1])), "it announces its port of TLS");
    fill(&mut of_master, 500, 1500);
    assert_eq!(of_master.ask_words(&[b"APPEND", b"long", long.as_bytes()]), format!(":{}\r\n", 2 * long.len()));
    is_equal(&master, &replica);
    // After a kill, and after a break, it goes on.
    drop(of_replica);
    replica.kill();
    fill(&mut of_master, 1500, 1600);
    let replica = start(dirs[1].path(), &directives, &login("copies"));
    wait_for_link(&replica);
    is_equal(&master, &replica);
    assert_eq!(of_master.ask("CLIENT KILL TYPE replica"), ":1\r\n");
    fill(&mut of_master, 1600, 1700);
    wait_until("it is back", || of_master.info("sync_partial_ok") == "2");
    is_equal(&master, &replica);
    assert_eq!(of_master.info("sync_full"), "1");
    assert_eq!(of_master.ask("WAIT 1 10000"), ":1\r\n");

    // A Redis of another authority is not followed, and neither is one that asks for a certificate that it trusts.
    let (stranger, dir, port) = (Authority::new(), TempDir::new(), free_port());
    let other = redis_over_tls(&dir, &stranger.directives(port), &["--tls-auth-clients", "no"]);
    assert_eq!(replica.client().ask(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK\r\n");
    wait_until("it is refused", || replica.client().ask("INFO replication").contains("no connection over TLS"));
    assert_eq!(other.client().info("sync_full"), "0");
    replica.stop();
}

#[test]
fn a_redis_follows_over_tls_by_its_user_and_password() {
    let authority = Authority::new();
    let (dirs, port) = ([TempDir::new(), TempDir::new()], free_port());
    let directives = authority.directives(port);
    let user = ["--user", "copier", "on", ">copies", "+psync", "+replconf", "+ping"];
    let more = [&DEBUG[..], &user].concat();
    let master = start(dirs[0].path(), &directives, &more);
    let mut of_master = master.client();
    for number in 0..500 {
        assert_eq!(of_master.ask(&format!("SET key:{number} {number}")), "+OK\r\n");
    }
    let long = "x".repeat(5 << 20);
    assert_eq!(of_master.ask_words(&[b"SET", b"long", long.as_bytes()]), "+OK\r\n");
    let pair = authority.pair("replica");
    let own = [
        "--tls-ca-cert-file",
        &authority.file(),
        "--tls-cert-file",
        &text(&pair.cert),
        "--tls-key-file",
        &text(&pair.key),
        "--replicaof",
        "127.0.0.1",
        &port.to_string(),
        "--masteruser",
        "copier",
    ]
    .map(str::to_owned);
    let replica = redis_over_tls(&dirs[1], &own, &["--masterauth", "wrong"]);
    let mut of_replica = replica.client();
    wait_until("it is refused", || of_master.info("acl_access_denied_auth") != "0");
    assert_eq!(of_replica.ask("CONFIG SET masterauth copies"), "+OK\r\n");
    wait_for_link(&replica);
    digest_when_equal(&mut of_master, &mut of_replica);
    assert!(of_master.ask("CLIENT LIST TYPE replica").contains("user=copier"));
    for number in 0..500 {
        assert_eq!(of_master.ask(&format!("RPUSH list {number}")), format!(":{}\r\n", number + 1));
    }
    assert_eq!(of_master.ask_words(&[b"APPEND", b"long", long.as_bytes()]), format!(":{}\r\n", 2 * long.len()));
    digest_when_equal(&mut of_master, &mut of_replica);
    // After a kill it goes on where it was.
    drop(of_master);
    master.kill();
    let master = start(dirs[0].path(), &directives, &more);
    let mut of_master = master.client();
    assert_eq!(of_master.ask("INCR behind"), ":1\r\n");
    wait_until("it has come there", || of_replica.ask("GET behind") == "$1\r\n1\r\n");
    digest_when_equal(&mut of_master, &mut of_replica);
    let last = connect(port, &authority.client(Some(&pair))).ask("LLEN list");
    assert_eq!(of_replica.ask("LLEN list"), last);
    assert_eq!(of_master.info("sync_full"), "0", "not all data again");
    master.stop();
}
