//! Messages to very many subscribers: some deliveries in each round of an event loop, in order, and nobody is left out.

mod server;

use haypile_engine::{Delivery, Next, Peer, Push, Session};
use server::Server;
use std::collections::HashMap;
use std::time::Duration;

/// The most deliveries of a round.
const IN_ROUND: usize = 2048;

/// The deliveries between two looks at the clock.
const BETWEEN_LOOKS: usize = 32;

fn connect(server: &mut Server) -> Session {
    assert!(server.engine.admit());
    server.worker.connect(Peer::default())
}

/// Takes one turn of a session: what it is told, and what comes next.
fn turn(server: &mut Server, session: &mut Session, input: &str) -> (String, Next) {
    let mut out = Vec::new();
    let turn = server.worker.turn(session, input.as_bytes(), &mut out, server.now_ms);
    (String::from_utf8_lossy(&out).into_owned(), turn.next)
}

fn listeners(server: &mut Server, count: usize) -> Vec<Session> {
    let listeners = (0..count).map(|_| {
        let mut session = connect(server);
        turn(server, &mut session, "SUBSCRIBE news\r\n");
        session
    });
    listeners.collect()
}

/// Takes notices once; who was sent which messages, and who is to be closed.
fn take(server: &mut Server) -> (Vec<(u64, String)>, Vec<u64>) {
    let (mut sent, mut closed) = (Vec::new(), Vec::new());
    server.worker.take_notices(|session, delivery| match delivery {
        Delivery::Push { push: Push::Message { payload, .. }, .. } => {
            sent.push((session, String::from_utf8_lossy(payload.text()).into_owned()));
        }
        Delivery::Close => closed.push(session),
        _ => panic!("nothing like that was done"),
    });
    (sent, closed)
}

#[test]
fn a_round_delivers_some_and_each_subscriber_is_sent_all_in_order() {
    const LISTENERS: usize = 1500;
    let mut server = Server::new();
    let mut listeners = listeners(&mut server, LISTENERS);
    let mut publisher = connect(&mut server);
    for text in ["one", "two", "three"] {
        assert_eq!(
            turn(&mut server, &mut publisher, &format!("PUBLISH news {text}\r\n")).0,
            format!(":{LISTENERS}\r\n")
        );
    }
    let (mut by_session, mut rounds): (HashMap<u64, Vec<String>>, _) = (HashMap::new(), 0);
    while server.worker.inbox().has_notices() {
        assert!(server.worker.owes_messages(&mut listeners[7]), "its next request waits for all three");
        rounds += 1;
        server.worker.begin_deliveries();
        let (sent, _) = take(&mut server);
        assert_eq!(sent.len(), IN_ROUND.min(3 * LISTENERS - (rounds - 1) * IN_ROUND));
        sent.into_iter().for_each(|(session, text)| by_session.entry(session).or_default().push(text));
        assert!(take(&mut server).0.is_empty(), "a turn in the same round has no more delivered");
        assert!(!server.worker.owes_messages(&mut publisher), "who hears nothing waits for nobody's messages");
    }
    assert_eq!(rounds, 3);
    assert_eq!(by_session.len(), LISTENERS);
    assert!(by_session.values().all(|sent| *sent == ["one", "two", "three"]), "all, in order");
    assert!(!server.worker.owes_messages(&mut listeners[7]));
}

#[test]
fn few_deliveries_are_made_where_they_take_long() {
    let mut server = Server::new();
    let _listeners = listeners(&mut server, 100);
    let mut publisher = connect(&mut server);
    turn(&mut server, &mut publisher, "PUBLISH news text\r\n");
    server.worker.set_step_time_max(Duration::ZERO);
    for left in [100, 68, 36, 4] {
        server.worker.begin_deliveries();
        assert_eq!(take(&mut server).0.len(), BETWEEN_LOOKS.min(left));
    }
    assert!(!server.worker.inbox().has_notices());
}

/// A client that subscribes while messages are on their way hears those that are published later.
#[test]
fn who_subscribes_meanwhile_does_not_hear_what_was_published_before() {
    let mut server = Server::new();
    let _listeners = listeners(&mut server, 3000);
    let [mut publisher, mut late] = [(); 2].map(|()| connect(&mut server));
    for text in ["one", "two"] {
        assert_eq!(turn(&mut server, &mut publisher, &format!("PUBLISH news {text}\r\n")).0, ":3000\r\n");
    }
    take(&mut server);
    assert!(!server.worker.owes_messages(&mut late));
    assert!(turn(&mut server, &mut late, "SUBSCRIBE news\r\n").0.ends_with("news\r\n:1\r\n"));
    assert!(turn(&mut server, &mut late, "PSUBSCRIBE n*\r\n").0.ends_with("n*\r\n:2\r\n"));
    assert_eq!(turn(&mut server, &mut publisher, "PUBLISH news three\r\n").0, ":3002\r\n");
    let mut heard = Vec::new();
    while server.worker.inbox().has_notices() {
        server.worker.begin_deliveries();
        let (sent, _) = take(&mut server);
        heard.extend(sent.into_iter().filter(|(session, _)| *session == late.id).map(|(_, text)| text));
    }
    assert_eq!(heard, ["three", "three"], "by the channel, and by the pattern");
}

/// A client that is closed is so at once, whatever messages are on their way.
#[test]
fn an_order_overtakes_messages() {
    let mut server = Server::new();
    let listeners = listeners(&mut server, 3000);
    let mut publisher = connect(&mut server);
    turn(&mut server, &mut publisher, "PUBLISH news text\r\n");
    take(&mut server);
    let id = listeners[5].client.id;
    assert_eq!(turn(&mut server, &mut publisher, &format!("CLIENT KILL ID {id}\r\n")).0, ":1\r\n");
    assert_eq!(take(&mut server), (vec![], vec![id]));
}

/// A subscriber's request waits for what had been published when it came, and not for what is published meanwhile.
#[test]
fn a_request_waits_for_messages_of_before() {
    let mut server = Server::new();
    let mut listeners = listeners(&mut server, 3000);
    let mut publisher = connect(&mut server);
    turn(&mut server, &mut publisher, "PUBLISH news before\r\n");
    take(&mut server);
    assert!(server.worker.owes_messages(&mut listeners[0]), "the first message is not with all");
    turn(&mut server, &mut publisher, "PUBLISH news meanwhile\r\n");
    let mut rounds = 0;
    while server.worker.owes_messages(&mut listeners[0]) {
        rounds += 1;
        server.worker.begin_deliveries();
        take(&mut server);
        turn(&mut server, &mut publisher, "PUBLISH news meanwhile\r\n");
    }
    assert_eq!(rounds, 1, "the message of before is with all");
    assert!(server.worker.inbox().has_notices(), "others are not");
    assert!(server.worker.owes_messages(&mut listeners[0]), "its next request waits for those");
}

/// A publisher waits while subscribers have much to be sent.
#[test]
fn who_publishes_to_many_waits_until_the_messages_are_with_them() {
    let mut server = Server::new();
    let _listeners = listeners(&mut server, 3000);
    let mut publisher = connect(&mut server);
    let publish = format!("PUBLISH news {}\r\n", "x".repeat(8 << 10));
    let mut published = 0;
    while !matches!(turn(&mut server, &mut publisher, &publish).1, Next::Sleep(_)) {
        published += 1;
        assert!(published < 100, "24 MB each are on their way");
    }
    while server.worker.inbox().has_notices() {
        server.worker.begin_deliveries();
        take(&mut server);
    }
    publisher.wake();
    assert_eq!(turn(&mut server, &mut publisher, &publish).0, ":3000\r\n");
}
