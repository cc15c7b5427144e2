//! Streams as Redis 8.2 to 8.10 have them, where more than one command or client has a part in it.
#![cfg(not(feature = "shuttle"))]

mod server;

use server::Server;
use std::time::{Duration, Instant};

/// A server with a stream `s`, of which consumer `a` of group `g` has got entries `1-1` and on.
fn with_pending(entries: u64) -> Server {
    let mut server = Server::new();
    for id in 1..=entries {
        server.ask(0, &format!("XADD s {id}-1 f v"));
    }
    server.ask(0, "XGROUP CREATE s g 0");
    server.ask(0, "XREADGROUP GROUP g a STREAMS s >");
    server
}

/// Lets time pass until a client has its reply; returns the reply and the time.
fn reply_in_time(server: &mut Server, client: usize) -> (String, Duration) {
    let (begun, mut reply) = (Instant::now(), String::new());
    while server.waits(client) {
        assert!(begun.elapsed() < server::PATIENCE, "client {client} waits for ever");
        if server.is_blocked(client) {
            std::thread::sleep(Duration::from_millis(2));
            server.now_ms += 2;
            server.send_bytes(client, b"");
        } else {
            reply += &server.reply_so_far(client);
        }
    }
    let reply = reply.replace("\r\n", " ") + &server.reply(client);
    (reply.trim_end().to_owned(), begun.elapsed())
}

/// Blocked, a client claims an entry when it has been idle for long enough (`commands/xreadgroup`, Redis 8.4:
/// stream-cgroups.tcl, "CLAIM with BLOCK").
#[test]
fn a_client_that_waits_to_claim_is_woken_by_time() {
    for is_cold in [false, true] {
        let mut server = with_pending(2);
        if is_cold {
            server.freeze();
        }
        server.send(1, "XREADGROUP GROUP g b CLAIM 40 BLOCK 0 STREAMS s >");
        let (reply, waited) = reply_in_time(&mut server, 1);
        assert!(reply.starts_with("*1 *2 $1 s *2 *4 $3 1-1 *2 $1 f $1 v :"), "cold: {is_cold}: {reply}");
        assert!(reply.ends_with(" :1"), "it was delivered once: {reply}");
        assert!(waited >= Duration::from_millis(38), "cold: {is_cold}: after {waited:?}");
        assert!(server.ask(0, "XPENDING s g").ends_with("*1 *2 $1 b $1 2"));
    }
}

/// An entry that was handed back is there at once, and a new one comes by itself (`commands/xnack`,
/// stream-cgroups.tcl).
#[test]
fn a_client_that_waits_to_claim_is_served_what_is_handed_back_and_what_is_new() {
    let mut server = with_pending(1);
    server.send(1, "XREADGROUP GROUP g b CLAIM 100000 BLOCK 0 STREAMS s >");
    server.send(2, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    assert!(server.is_blocked(1) && server.is_blocked(2));
    server.ask(0, "XNACK s g FAIL IDS 1 1-1");
    let reply = server.reply(1);
    assert!(reply.starts_with("*1 *2 $1 s *1 *4 $3 1-1 *2 $1 f $1 v :") && reply.ends_with(" :1"), "{reply}");
    assert!(server.is_blocked(2), "without CLAIM there is nothing new");
    server.send(1, "XREADGROUP GROUP g b CLAIM 100000 BLOCK 0 STREAMS s >");
    server.ask(0, "XADD s 2-1 f v");
    server.ask(0, "XADD s 3-1 f v");
    assert_eq!(server.reply(2), "*1 *2 $1 s *1 *2 $3 2-1 *2 $1 f $1 v", "the one that came first");
    assert_eq!(server.reply(1), "*1 *2 $1 s *1 *4 $3 3-1 *2 $1 f $1 v :0 :0");
    server.send(1, "XREADGROUP GROUP g b CLAIM 100000 BLOCK 0 STREAMS s >");
    server.ask(0, "XGROUP DESTROY s g");
    assert!(server.reply(1).starts_with("-NOGROUP"));
}

/// Woken by time for nothing, a client waits on for what is left of its own time (`commands/xreadgroup`, Redis 8.4).
#[test]
fn a_client_that_finds_nothing_to_claim_waits_on() {
    let mut server = with_pending(1);
    let begun = Instant::now();
    server.send(1, "XREADGROUP GROUP g b CLAIM 5 BLOCK 90 STREAMS s >");
    // Another consumer is faster each time.
    while server.is_blocked(1) {
        std::thread::sleep(Duration::from_millis(1));
        server.now_ms += 1;
        server.send_bytes(1, b"");
        server.ask(0, "XCLAIM s g a 0 1-1 JUSTID");
        assert!(begun.elapsed() < server::PATIENCE, "it waits for ever");
    }
    assert_eq!(server.reply(1), "*-1");
    assert!(begun.elapsed() >= Duration::from_millis(90), "after {:?}", begun.elapsed());
    // In a block nobody waits.
    server.ask(1, "MULTI");
    server.ask(1, "XREADGROUP GROUP g b CLAIM 100000 BLOCK 0 STREAMS s >");
    assert_eq!(server.ask(1, "EXEC"), "*1 *-1");
}

/// A client that looks for something to claim in vain writes nothing and breaks no WATCH; what another consumer gets
/// meanwhile is found.
#[test]
fn a_client_that_finds_nothing_to_claim_leaves_no_trace() {
    let mut server = with_pending(1);
    server.ask(0, "XACK s g 1-1");
    server.send(1, "XREADGROUP GROUP g b CLAIM 0 BLOCK 0 STREAMS s >");
    server.ask(0, "WATCH s");
    let (begun, before) = (Instant::now(), server.store.store.log().last());
    while begun.elapsed() < Duration::from_millis(120) {
        std::thread::sleep(Duration::from_millis(2));
        server.now_ms += 2;
        server.send_bytes(1, b"");
        assert!(server.is_blocked(1));
    }
    assert_eq!(server.store.store.log().last(), before, "no record");
    server.ask(0, "MULTI");
    server.ask(0, "PING");
    assert_eq!(server.ask(0, "EXEC"), "*1 +PONG");
    server.ask(0, "XCLAIM s g a 0 1-1 FORCE");
    let (reply, _) = reply_in_time(&mut server, 1);
    assert!(reply.starts_with("*1 *2 $1 s *1 *4 $3 1-1 "), "{reply}");
}

/// A claim waits for the end of a pause, as a command that is sent during it does; the client's own time goes on.
#[test]
fn a_client_claims_nothing_while_writes_are_paused() {
    let mut server = with_pending(1);
    server.send(1, "XREADGROUP GROUP g b CLAIM 10 BLOCK 0 STREAMS s >");
    server.send(2, "XREADGROUP GROUP g c CLAIM 10 BLOCK 40 STREAMS s >");
    server.ask(0, "CLIENT PAUSE 60000 WRITE");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(80) {
        std::thread::sleep(Duration::from_millis(2));
        server.now_ms += 2;
        server.send_bytes(1, b"");
        server.send_bytes(2, b"");
        assert!(server.is_blocked(1), "in the middle of a pause");
    }
    assert_eq!(server.reply(2), "*-1");
    assert!(server.ask(0, "XPENDING s g").ends_with("$1 a $1 1"));
    server.ask(0, "CLIENT UNPAUSE");
    let (reply, _) = reply_in_time(&mut server, 1);
    assert!(reply.starts_with("*1 *2 $1 s *1 *4 $3 1-1 "), "{reply}");
}

/// A user that has lost the right to read meanwhile claims nothing.
#[test]
fn rights_are_looked_at_again_when_time_wakes_a_client() {
    let mut server = with_pending(1);
    server.ask(0, "ACL SETUSER bob on nopass ~* +@all");
    server.ask(1, "AUTH bob any");
    server.send(1, "XREADGROUP GROUP g b CLAIM 20 BLOCK 0 STREAMS s >");
    server.ask(0, "ACL SETUSER bob resetkeys");
    let (reply, _) = reply_in_time(&mut server, 1);
    assert!(reply.starts_with("-NOPERM"), "{reply}");
    assert!(server.ask(0, "XPENDING s g").contains("$1 a"));
}

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
