//! Clients with very many subscriptions: these begin and end a few hundred at a time, and others have their turns in
//! between.

mod server;

use haypile_engine::{Delivery, Next, Peer, Session};
use server::Server;
use std::time::Duration;

/// The most subscriptions that end in one turn.
const AT_ONCE: usize = 64;

/// Has a client subscribe to so many patterns.
fn psubscribe(server: &mut Server, client: usize, count: usize) {
    let names: String = (0..count).map(|name| format!(" {client}:{name}*")).collect();
    server.ask(client, &format!("PSUBSCRIBE{names}"));
}

/// Connects a client whose turns the test takes one by one.
fn connect(server: &mut Server) -> Session {
    assert!(server.engine.admit());
    server.worker.connect(Peer::default())
}

fn patterns(server: &mut Server, client: usize) -> usize {
    server.ask(client, "PUBSUB NUMPAT")[1..].parse().expect("a number")
}

#[test]
fn many_names_are_subscribed_to_in_turns() {
    let mut server = Server::new();
    let names: String = (0..2000).map(|number| format!(" ch{number}")).collect();
    let before = server.engine.counters(0).commands.get();
    server.send_together(0, &[&format!("SUBSCRIBE{names}"), "PING"]);
    let replies = server.reply(0);
    assert!(replies.starts_with("*3 $9 subscribe $3 ch0 :1 "), "{}", &replies[..40]);
    assert!(
        replies.ends_with("*3 $9 subscribe $6 ch1999 :2000 *2 $4 pong $0"),
        "the next command comes behind all names"
    );
    assert_eq!(replies.matches("subscribe").count(), 2000);
    assert_eq!(server.engine.counters(0).commands.get() - before, 2, "two commands, in however many turns");
    assert_eq!(server.ask(1, "PUBLISH ch1999 x"), ":1");
    server.reply(0);
    assert_eq!(server.ask(0, &format!("UNSUBSCRIBE{names}")).matches("unsubscribe").count(), 2000);
    assert_eq!(server.ask(1, "PUBLISH ch7 x"), ":0");
    // All of them, without names; patterns are no channels.
    server.ask(0, &format!("PSUBSCRIBE{names}"));
    server.ask(0, &format!("SUBSCRIBE{names}"));
    let replies = server.ask(0, "UNSUBSCRIBE");
    assert!(replies.ends_with(":2000") && replies.matches("unsubscribe").count() == 2000);
    assert_eq!(server.ask(1, "PUBSUB NUMPAT"), ":2000");
    assert_eq!(server.ask(1, "PUBSUB NUMSUB ch1"), "*2 $3 ch1 :0");
    // Subscriptions of a client that goes end a little later.
    server.leave(0);
    let begun = std::time::Instant::now();
    while server.ask(0, "PUBSUB NUMPAT") != ":0" {
        assert!(begun.elapsed() < server::PATIENCE, "subscriptions of a client that has gone end");
    }
    assert_eq!(server.ask(0, "PUBLISH ch1 x"), ":0");
}

/// However many clients go at once, a round of their event loop ends a bounded number of their subscriptions.
#[test]
fn many_who_go_at_once_hold_up_nobody() {
    const CLIENTS: usize = 20;
    const EACH: usize = 1000;
    let mut server = Server::new();
    server.ask(0, "PING");
    for client in 1..=CLIENTS {
        psubscribe(&mut server, client, EACH);
    }
    assert_eq!(patterns(&mut server, 0), CLIENTS * EACH);
    (1..=CLIENTS).rev().for_each(|client| server.leave(client));
    let (mut left, begun) = (CLIENTS * EACH, std::time::Instant::now());
    while left > 0 {
        assert!(begun.elapsed() < server::PATIENCE, "subscriptions of clients that have gone end");
        // A command sees a few rounds.
        let now = patterns(&mut server, 0);
        assert!(left - now <= 4 * AT_ONCE, "{} subscriptions ended at once", left - now);
        left = now;
    }
}

/// The subscriptions of who has gone end between the rounds of an event loop, however many turns a round has.
#[test]
fn a_turn_ends_no_subscriptions_of_others() {
    const NAMES: usize = 10_000;
    let mut server = Server::new();
    server.ask(0, "PING");
    psubscribe(&mut server, 1, NAMES);
    server.leave(1);
    let mut looks = connect(&mut server);
    let mut count = |server: &mut Server| {
        let mut out = Vec::new();
        server.worker.turn(&mut looks, b"PUBSUB NUMPAT\r\n", &mut out, server.now_ms);
        String::from_utf8_lossy(&out[1..]).trim_end().parse::<usize>().expect("a number")
    };
    for _ in 0..100 {
        assert_eq!(count(&mut server), NAMES, "all are there, also for the messages of others");
        server.worker.take_notices(|_, _| ());
    }
    for round in 1..=NAMES / AT_ONCE {
        assert!(server.worker.end_departed());
        assert_eq!(count(&mut server), NAMES - round * AT_ONCE);
    }
    assert!(!server.worker.end_departed(), "the rest is fewer");
    assert_eq!(count(&mut server), 0);
}

/// Where subscriptions take long to end, a round and a turn of a RESET end few of them.
#[test]
fn few_subscriptions_end_at_once_where_they_take_long() {
    const NAMES: usize = 80;
    const AT_LEAST: usize = 8;
    let mut server = Server::new();
    server.ask(0, "PING");
    (1..=2).for_each(|client| psubscribe(&mut server, client, NAMES));
    let mut session = connect(&mut server);
    let names: String = (0..NAMES).map(|name| format!(" 3:{name}*")).collect();
    turn(&mut server, &mut session, format!("PSUBSCRIBE{names}\r\n").as_bytes());
    // As many as begin in a round end in one whatever the time.
    while server.worker.end_departed() {}
    server.worker.set_step_time_max(Duration::ZERO);
    server.leave(2);
    server.leave(1);
    let mut looks = connect(&mut server);
    let mut count = |server: &mut Server| turn(server, &mut looks, b"PUBSUB NUMPAT\r\n").0;
    for round in 1..=2 * NAMES / AT_LEAST {
        assert_eq!(server.worker.end_departed(), round < 2 * NAMES / AT_LEAST);
        assert_eq!(count(&mut server), format!(":{}\r\n", 3 * NAMES - round * AT_LEAST));
    }
    let mut turns = 0;
    let mut next = turn(&mut server, &mut session, b"RESET\r\n").1;
    while next == Next::Yield {
        turns += 1;
        next = turn(&mut server, &mut session, b"").1;
    }
    assert_eq!(turns, (NAMES - AT_ONCE) / AT_LEAST, "the last ones end together");
}

/// Takes one turn of a session: what it is told, and what comes next.
fn turn(server: &mut Server, session: &mut Session, input: &[u8]) -> (String, Next) {
    let mut out = Vec::new();
    let turn = server.worker.turn(session, input, &mut out, server.now_ms);
    (String::from_utf8_lossy(&out).into_owned(), turn.next)
}

/// Publishes a message; how many clients get it, and how many have heard it once the notices are taken.
fn publish(server: &mut Server, speaker: &mut Session, channel: &str) -> (String, usize) {
    let reply = turn(server, speaker, format!("PUBLISH {channel} x\r\n").as_bytes()).0;
    let mut heard = 0;
    server.worker.take_notices(|_, delivery| heard += usize::from(matches!(delivery, Delivery::Push { .. })));
    (reply.trim_end().to_owned(), heard)
}

/// RESET is answered when all subscriptions have ended: the client hears nothing behind the reply.
#[test]
fn a_reset_ends_many_subscriptions_in_turns() {
    const NAMES: usize = 2000;
    let mut server = Server::new();
    let names: String = (0..NAMES).map(|name| format!(" ch{name:04}")).collect();
    let [mut session, mut speaker] = [(); 2].map(|()| connect(&mut server));
    turn(&mut server, &mut session, b"HELLO 3\r\n");
    let mut next = turn(&mut server, &mut session, format!("SUBSCRIBE{names}\r\n").as_bytes()).1;
    while next == Next::Yield {
        next = turn(&mut server, &mut session, b"").1;
    }
    assert_eq!(publish(&mut server, &mut speaker, "ch0000"), (":1".into(), 1));
    let mut turns = 0;
    let (mut reply, mut next) = turn(&mut server, &mut session, b"RESET\r\n");
    while next == Next::Yield {
        turns += 1;
        assert_eq!(reply, "", "there is none before the end");
        assert_eq!(publish(&mut server, &mut speaker, "ch0000"), (":0".into(), 0), "the first have ended");
        assert_eq!(publish(&mut server, &mut speaker, "ch1999"), (":1".into(), 1), "the last have not");
        (reply, next) = turn(&mut server, &mut session, b"");
    }
    assert_eq!((reply.as_str(), next), ("+RESET\r\n", Next::Read));
    assert_eq!(turns, NAMES / AT_ONCE);
    assert_eq!(publish(&mut server, &mut speaker, "ch1999"), (":0".into(), 0));
    assert_eq!(turn(&mut server, &mut session, b"GET a\r\n"), ("$-1\r\n".into(), Next::Read), "in RESP2 again");
    // Channels that it subscribes to now are not ended later.
    turn(&mut server, &mut session, b"SUBSCRIBE ch0000 ch1999\r\n");
    assert_eq!(publish(&mut server, &mut speaker, "ch1999"), (":1".into(), 1));
    server.worker.disconnect(&mut session);
    assert_eq!(publish(&mut server, &mut speaker, "ch1999"), (":0".into(), 0));
}

/// A client that goes in the middle of its RESET has the rest of its subscriptions ended, and those only once.
#[test]
fn a_client_may_go_in_the_middle_of_a_reset() {
    let mut server = Server::new();
    server.ask(0, "PING");
    psubscribe(&mut server, 1, 10);
    let names: String = (0..2000).map(|name| format!(" 1:{name}*")).collect();
    let mut session = connect(&mut server);
    let mut next = turn(&mut server, &mut session, format!("PSUBSCRIBE{names}\r\n").as_bytes()).1;
    while next == Next::Yield {
        next = turn(&mut server, &mut session, b"").1;
    }
    assert_eq!(turn(&mut server, &mut session, b"RESET\r\n").1, Next::Yield);
    server.worker.disconnect(&mut session);
    while server.worker.end_departed() {}
    assert_eq!(patterns(&mut server, 0), 10, "those of the other client stay");
}
