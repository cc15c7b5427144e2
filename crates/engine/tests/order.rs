//! The order in which a run's end becomes known: commit, watchers, events, waiters. Others look in between: their event
//! loop is woken in the middle of the run, and takes its turn there.
#![cfg(not(feature = "shuttle"))]

mod server;

use haypile_engine::{Inbox, Peer, Session, Worker};
use haypile_log::testing::FaultFiles;
use server::{Data, PATIENCE, Server, request};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

/// A client of an event loop.
struct Client {
    session: Session,
    output: Vec<u8>,
}

impl Client {
    fn new(worker: &mut Worker) -> Client {
        let peer = Peer { address: "client:1".into(), is_local: true, ..Peer::default() };
        assert!(worker.engine().admit());
        Client { session: worker.connect(peer), output: Vec::new() }
    }

    /// Sends a command and returns what came back at once.
    fn ask(&mut self, worker: &mut Worker, command: &str) -> String {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let now_ms = worker.engine().now_ms();
        worker.turn(&mut self.session, &request(&words), &mut self.output, now_ms);
        String::from_utf8_lossy(&std::mem::take(&mut self.output)).replace("\r\n", " ").trim_end().to_owned()
    }
}

/// The other event loop: a client that waits for a key, one that hears of events, and one that looks.
struct Other {
    worker: Worker,
    waiter: Client,
    listener: Client,
    looker: Client,
}

#[test]
fn a_run_is_committed_then_marked_then_told_of_then_delivered() {
    let data = Data::new();
    let engine = server::engine(2);
    let other: Arc<Mutex<Option<Other>>> = Arc::default();
    let inbox: Arc<OnceLock<Arc<Inbox>>> = Arc::default();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let wake = {
        let (other, inbox, seen) = (other.clone(), inbox.clone(), seen.clone());
        move || {
            let Some(Other { worker, looker, .. }) = &mut *other.lock().expect("no panic") else { return };
            let mut events = Vec::new();
            inbox.get().expect("it was set").take(&mut events);
            let watched = looker.ask(worker, "WATCH with list");
            let value = looker.ask(worker, "GET with");
            let told = inbox.get().expect("it was set").has_notices();
            seen.lock().expect("no panic").push(format!("{watched} {value} told {told} delivered {}", events.len()));
        }
    };
    let mut own = Worker::new(engine.clone(), 0, Box::new(|| ()));
    let mut worker = Worker::new(engine.clone(), 1, Box::new(wake));
    inbox.set(worker.inbox().clone()).ok().expect("it is set once");
    engine.serve(data.store.clone()).expect("threads can start");
    let mut pusher = Client::new(&mut own);
    assert_eq!(pusher.ask(&mut own, "CONFIG SET notify-keyspace-events El"), "+OK");
    let [mut waiter, mut listener, looker] = [0; 3].map(|_| Client::new(&mut worker));
    assert_eq!(waiter.ask(&mut worker, "BLPOP list 0"), "");
    listener.ask(&mut worker, "SUBSCRIBE __keyevent@0__:rpush");
    *other.lock().expect("no panic") = Some(Other { worker, waiter, listener, looker });

    for command in ["MULTI", "SET with it", "RPUSH list a"] {
        pusher.ask(&mut own, command);
    }
    assert_eq!(pusher.ask(&mut own, "EXEC"), "*2 +OK :1");

    let Some(Other { mut worker, mut waiter, mut listener, mut looker }) = other.lock().expect("no panic").take()
    else {
        unreachable!("it was put there")
    };
    let expected = ["+OK $2 it told true delivered 0", "+OK $2 it told true delivered 1"];
    assert_eq!(*seen.lock().expect("no panic"), expected, "committed, told of, delivered");
    assert_eq!(looker.ask(&mut worker, "MULTI"), "+OK");
    assert_eq!(looker.ask(&mut worker, "GET with"), "+QUEUED");
    assert_eq!(looker.ask(&mut worker, "EXEC"), "*1 $2 it", "nothing has changed since it was watched");
    for client in [&mut waiter, &mut listener, &mut looker] {
        worker.disconnect(&mut client.session);
    }
    own.disconnect(&mut pusher.session);
    engine.close();
}

/// The rest of a client may be ended when there is time for it; its wait ends at once.
#[test]
fn nothing_is_taken_for_a_client_that_is_lost() {
    let data = Data::new();
    let engine = server::engine(1);
    let mut worker = Worker::new(engine.clone(), 0, Box::new(|| ()));
    engine.serve(data.store.clone()).expect("threads can start");
    let [mut waiter, mut pusher] = [0; 2].map(|_| Client::new(&mut worker));
    assert_eq!(waiter.ask(&mut worker, "BLPOP list 0"), "");
    worker.lose(&mut waiter.session);
    assert_eq!(pusher.ask(&mut worker, "RPUSH list a"), ":1");
    assert_eq!(pusher.ask(&mut worker, "LLEN list"), ":1");
    worker.part(&mut waiter.session);
    worker.disconnect(&mut pusher.session);
    engine.close();
}

/// Lets held syncs go on, so that a test that fails leaves no thread waiting.
struct LetGo(Arc<FaultFiles>);

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.hold_syncs(false);
    }
}

/// While a commit waits for room in the log, nobody watches in vain, is told of anything or is served.
#[test]
fn a_commit_that_waits_has_told_nobody() {
    let mut files = None;
    let data = Data::with(|options| {
        let faults = Arc::new(FaultFiles::new(options.log.files.clone()));
        options.log.files = faults.clone();
        options.log.unsynced_bytes_max = 64 << 10;
        files = Some(faults);
    });
    let (mut server, files) = (Server::over(data), files.expect("the options were changed"));
    let filler = "x".repeat(40 << 10);
    let (pusher, waiter, listener, watcher) = (0, 1, 2, 3);
    server.ask(pusher, "CONFIG SET notify-keyspace-events El");
    server.ask(listener, "SUBSCRIBE __keyevent@0__:rpush");
    server.send(waiter, "BLPOP list 0");
    server.ask(watcher, "WATCH list");
    for command in ["MULTI", "LLEN list"] {
        server.ask(watcher, command);
    }
    files.hold_syncs(true);
    let _let_go = LetGo(files.clone());
    server.ask(pusher, &format!("SET filler {filler}"));
    let log = server.store.store.clone();
    let before = log.log().stats().unsynced_bytes;
    server.send(pusher, &format!("RPUSH list a {filler}"));
    let started = Instant::now();
    while log.log().stats().unsynced_bytes == before {
        assert!(started.elapsed() < PATIENCE, "the list finds no room, and is counted while it waits");
        std::thread::yield_now();
    }
    server.send(watcher, "EXEC");
    assert!(server.waits(watcher), "it waits for the key: its mark is not set");
    server.send(listener, "PING");
    assert_eq!(server.reply_of_what_ran(listener), "*2 $4 pong $0", "nothing is told");
    assert!(server.waits(waiter) && server.unread(waiter) == 0, "nothing is delivered");
    files.hold_syncs(false);
    assert_eq!(server.reply(pusher), ":2");
    assert_eq!(server.reply(waiter), "*2 $4 list $1 a");
    assert_eq!(server.reply(listener), "*3 $7 message $20 __keyevent@0__:rpush $4 list");
    assert_eq!(server.reply(watcher), "*-1");
}

/// The reply of a client that waited depends on the record that ended its wait, though it has written nothing itself.
#[test]
fn the_reply_of_who_waited_depends_on_the_record_that_served_it() {
    let mut server = Server::new();
    assert_eq!(server.ask(0, "XGROUP CREATE jobs group $ MKSTREAM"), "+OK");
    for (waits, serves) in [
        ("BLPOP list 0", "RPUSH list a"),
        ("BLMOVE list other LEFT RIGHT 0", "RPUSH list a"),
        ("BLMOVEM list other LEFT RIGHT 0 COUNT 2 OBO", "RPUSH list a"),
        ("BLMPOP 0 1 list LEFT", "RPUSH list a"),
        ("BZPOPMIN zset 0", "ZADD zset 1 a"),
        ("XREAD BLOCK 0 STREAMS stream $", "XADD stream 1-1 f v"),
        ("XREADGROUP GROUP group c BLOCK 0 STREAMS jobs >", "XADD jobs 1-1 f v"),
        ("XREADGROUP GROUP group c BLOCK 0 STREAMS jobs >", "XGROUP DESTROY jobs group"),
        ("XREADGROUP GROUP group c BLOCK 0 STREAMS jobs >", "DEL jobs"),
    ] {
        if serves.starts_with("DEL") {
            server.ask(0, "XGROUP CREATE jobs group $");
        }
        server.send(1, waits);
        assert!(server.waits(1), "{waits}");
        server.ask(0, serves);
        assert!(!server.reply(1).is_empty(), "{waits}");
        assert_eq!(server.gate(1), server.store.store.log().last(), "{waits} after {serves}");
    }
}
