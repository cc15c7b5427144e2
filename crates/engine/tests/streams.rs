//! Streams as Redis 8.2 to 8.10 have them, where more than one command or client has a part in it.
#![cfg(not(feature = "shuttle"))]

mod server;

use server::Server;

/// The rules of MAXSIZE are those of `commands/xread` (Redis 8.10); the client's protocol changes nothing.
#[test]
fn a_stream_without_room_for_an_entry_is_not_in_the_reply() {
    for protocol in ["HELLO 2", "HELLO 3"] {
        let mut server = Server::new();
        server.ask(0, protocol);
        for stream in ["s", "t"] {
            server.ask(0, &format!("XADD {stream} 1-1 f v"));
        }
        // An entry takes 31 bytes, the name of a stream before it 11.
        for (size, streams) in [(42, 1), (43, 1), (53, 1), (54, 2)] {
            let reply = server.ask(0, &format!("XREAD MAXSIZE {size} STREAMS s t 0 0"));
            assert_eq!(reply.matches("1-1").count(), streams, "{protocol}, {size}: {reply}");
            assert_eq!(reply.contains(" t "), streams == 2, "{protocol}, {size}: {reply}");
        }
        // In a block each command has its own room (stream.tcl: "budget is per-command inside MULTI/EXEC").
        server.ask(0, "MULTI");
        for _ in 0..2 {
            server.ask(0, "XREAD MAXSIZE 54 STREAMS s t 0 0");
        }
        let reply = server.ask(0, "EXEC");
        assert_eq!(reply.matches("1-1").count(), 4, "{protocol}: {reply}");
    }
}

/// The entries of an XREADGROUP within MAXCOUNT are those that a waiting client gets (`commands/xreadgroup`).
#[test]
fn a_client_that_has_waited_gets_no_more_than_maxcount() {
    let mut server = Server::new();
    server.ask(0, "XGROUP CREATE s g 0 MKSTREAM");
    server.send(1, "XREADGROUP GROUP g c MAXCOUNT 2 BLOCK 0 STREAMS s >");
    assert!(server.is_blocked(1));
    server.ask(0, "MULTI");
    for id in 1..4 {
        server.ask(0, &format!("XADD s {id}-1 f v"));
    }
    server.ask(0, "EXEC");
    let reply = server.reply(1);
    assert!(reply.contains("1-1") && reply.contains("2-1") && !reply.contains("3-1"), "{reply}");
    assert!(server.ask(0, "XPENDING s g").starts_with("*4 :2 "), "two are pending");
}
