//! HyperLogLogs in the running server: that PFCOUNT is a read, and what PFDEBUG shows.

mod server;

use server::Server;

/// In Redis a PFCOUNT that computes anew writes the count into the value, which is a change to who watches the key.
#[test]
fn a_count_is_a_change_to_nobody() {
    let mut server = Server::new();
    server.ask(0, "CONFIG SET notify-keyspace-events KEA");
    assert_eq!(server.ask(0, "PFADD h a b c"), ":1");
    server.ask(1, "PSUBSCRIBE __key*");
    for _ in 0..2 {
        server.ask(2, "WATCH h");
        assert_eq!(server.ask(0, "PFCOUNT h"), ":3");
        server.ask(2, "MULTI");
        server.ask(2, "PING");
        assert_eq!(server.ask(2, "EXEC"), "*1 +PONG", "it is a read");
    }
    let told = server.ask(1, "PING");
    assert!(!told.contains("pfcount") && !told.contains("pfadd"), "{told}");
    server.ask(2, "WATCH h");
    server.ask(0, "PFADD h d");
    assert!(server.ask(1, "PING").contains("pfadd"));
    server.ask(2, "MULTI");
    server.ask(2, "PING");
    assert_eq!(server.ask(2, "EXEC"), "*-1");
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
