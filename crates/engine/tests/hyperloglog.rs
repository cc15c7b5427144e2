//! HyperLogLogs in the running server: what PFCOUNT keeps and whom it tells, and what runs on the I/O pool.

mod server;

use server::Server;

#[test]
fn a_count_that_is_kept_is_a_change_to_who_watches_and_none_to_who_listens() {
    let mut server = Server::new();
    server.ask(0, "CONFIG SET notify-keyspace-events KEA");
    assert_eq!(server.ask(0, "PFADD h a b c"), ":1");
    server.ask(1, "PSUBSCRIBE __key*");
    server.ask(2, "WATCH h");
    assert_eq!(server.ask(0, "PFCOUNT h"), ":3");
    server.ask(2, "MULTI");
    server.ask(2, "PING");
    assert_eq!(server.ask(2, "EXEC"), "*-1", "as in Redis");
    server.ask(2, "WATCH h");
    assert_eq!(server.ask(0, "PFCOUNT h"), ":3");
    server.ask(2, "MULTI");
    server.ask(2, "PING");
    assert_eq!(server.ask(2, "EXEC"), "*1 +PONG", "what was kept is only read");
    let told = server.ask(1, "PING");
    assert!(!told.contains("pfcount") && !told.contains("pfadd"), "{told}");
    server.ask(0, "PFADD h d");
    assert!(server.ask(1, "PING").contains("pfadd"));
}

#[test]
fn registers_are_shown_and_the_test_of_itself_passes() {
    let mut server = Server::new();
    server.ask(0, "PFADD h a");
    let registers = server.ask(0, "PFDEBUG GETREG h");
    let lines: Vec<&str> = registers.split(' ').collect();
    assert!(lines[0] == "*16384" && lines.len() == 16_385);
    let set: Vec<usize> = (0..16_384).filter(|at| lines[at + 1] != ":0").collect();
    assert!((&set[..], lines[12_712]) == (&[12_711], ":2"), "{set:?}");
    assert_eq!(server.ask(0, "PFDEBUG ENCODING h"), "+dense");
    assert_eq!(server.ask(0, "PFSELFTEST"), "+OK");
}
