//! The order in which a run's end becomes known: commit, watchers, events, waiters. Others look in between: their event
//! loop is woken in the middle of the run, and takes its turn there.
#![cfg(not(feature = "shuttle"))]

mod server;

use haypile_commands::keys::dump::LongDump;
use haypile_engine::{Engine, FollowerLocks, Inbox, Peer, Session, Target, Targets, Worker};
use haypile_log::testing::FaultFiles;
use haypile_resp::Reply;
use haypile_store::{Call, Mode, Named, RecordLocks, TxnBuffers};
use haypile_types::stream::{Stream, StreamId};
use haypile_types::string;
use server::{Data, PATIENCE, Server, request};
use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

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

/// The other event loop: clients that wait for a key, that hear of events, that watch a key, and one that looks.
struct Other {
    worker: Worker,
    waiter: Client,
    listener: Client,
    watcher: Client,
    looker: Client,
}

/// Two event loops. Whenever the other one is woken, it looks.
struct Loops {
    engine: Arc<Engine>,
    own: Worker,
    client: Client,
    /// Wakes of the own event loop.
    wakes: Receiver<()>,
    other: Arc<Mutex<Option<Other>>>,
    seen: Arc<Mutex<Vec<String>>>,
    // Last: the store is closed when nothing uses it any more.
    data: Data,
}

impl Loops {
    /// Begins with these commands; then the clients of the other event loop ask for what they ask for. `look` is how
    /// the committed value is looked at: a read of one row, which needs no lock.
    fn new(first: &[&str], waits: &str, listens: &[&str], watches: &str, look: &'static str) -> Loops {
        let data = Data::new();
        let engine = server::engine(2);
        let other: Arc<Mutex<Option<Other>>> = Arc::default();
        let inbox: Arc<OnceLock<Arc<Inbox>>> = Arc::default();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let wake = {
            let (other, inbox, seen) = (other.clone(), inbox.clone(), seen.clone());
            move || {
                let Some(Other { worker, watcher, looker, .. }) = &mut *other.lock().expect("no panic") else { return };
                let mut events = Vec::new();
                inbox.get().expect("it was set").take(&mut events);
                let value = looker.ask(worker, look);
                let about = watcher.ask(worker, "CLIENT INFO");
                let flags = about.split(" flags=").nth(1).and_then(|rest| rest.split(' ').next()).expect("it has some");
                let (marked, told) = (flags.contains('d'), inbox.get().expect("it was set").has_notices());
                let delivered = events.len();
                let seen_now = format!("{value} marked {marked} told {told} delivered {delivered}");
                seen.lock().expect("no panic").push(seen_now);
            }
        };
        let (woken, wakes) = channel();
        let woken = Mutex::new(woken);
        // Nobody listens any more when the test is over.
        let wake_own = move || _ = woken.lock().expect("no panic").send(());
        let mut own = Worker::new(engine.clone(), 0, Box::new(wake_own));
        let mut worker = Worker::new(engine.clone(), 1, Box::new(wake));
        inbox.set(worker.inbox().clone()).ok().expect("it is set once");
        engine.serve(data.store.clone()).expect("threads can start");
        let mut client = Client::new(&mut own);
        for command in first {
            let reply = client.ask(&mut own, command);
            assert!(!reply.starts_with('-'), "{command}: {reply}");
        }
        let [mut waiter, mut listener, mut watcher, looker] = [0; 4].map(|_| Client::new(&mut worker));
        assert_eq!(waiter.ask(&mut worker, waits), "");
        listens.iter().for_each(|command| assert!(!listener.ask(&mut worker, command).starts_with('-'), "{command}"));
        assert_eq!(watcher.ask(&mut worker, &format!("WATCH {watches}")), "+OK");
        *other.lock().expect("no panic") = Some(Other { worker, waiter, listener, watcher, looker });
        Loops { engine, own, client, wakes, other, seen, data }
    }

    fn ask(&mut self, command: &str) -> String {
        self.client.ask(&mut self.own, command)
    }

    /// Sends a command of the client that has to wait for others, and returns its reply.
    fn ask_and_wait(&mut self, command: &str) -> String {
        assert_eq!(self.ask(command), "", "{command}");
        self.own.start_jobs();
        let mut events = Vec::new();
        while events.is_empty() {
            self.wakes.recv_timeout(PATIENCE).expect("the command ends");
            self.own.inbox().take(&mut events);
        }
        events.into_iter().for_each(|event| self.client.session.deliver(event));
        self.go_on()
    }

    /// Lets the client take what was delivered to it, and returns what it got.
    fn go_on(&mut self) -> String {
        let Client { session, output } = &mut self.client;
        self.own.turn(session, b"", output, self.engine.now_ms());
        String::from_utf8_lossy(&std::mem::take(output)).trim_end().to_owned()
    }

    /// Checks that the other event loop was woken twice, when the listener was told and when the waiter was served, and
    /// found each time that the value was committed and the watcher marked.
    fn check(mut self, value: &str) {
        let Some(Other { mut worker, waiter, listener, watcher, looker }) = self.other.lock().expect("no panic").take()
        else {
            unreachable!("it was put there")
        };
        let expected = [0, 1].map(|delivered| format!("{value} marked true told true delivered {delivered}"));
        assert_eq!(*self.seen.lock().expect("no panic"), expected, "committed, marked, told of, delivered");
        for mut client in [waiter, listener, watcher, looker] {
            worker.disconnect(&mut client.session);
        }
        self.own.disconnect(&mut self.client.session);
        self.engine.close();
    }
}

#[test]
fn a_block_is_committed_then_marked_then_told_of_then_delivered() {
    let listens = ["SUBSCRIBE __keyevent@0__:rpush"];
    let first = ["CONFIG SET notify-keyspace-events El"];
    let mut loops = Loops::new(&first, "BLPOP list 0", &listens, "with", "GET with");
    for command in ["MULTI", "SET with it", "RPUSH list a"] {
        loops.ask(command);
    }
    assert_eq!(loops.ask("EXEC"), "*2 +OK :1");
    loops.check("$2 it");
}

/// A reader of a group that waits for entries is served by the end of the stream: with an error.
const READS: &str = "XREADGROUP GROUP group c BLOCK 0 STREAMS stream >";

#[test]
fn an_expired_key_is_gone_then_marked_then_told_of_then_delivered() {
    let first =
        ["CONFIG SET notify-keyspace-events Ex", "XGROUP CREATE stream group $ MKSTREAM", "PEXPIRE stream 600000"];
    let listens = ["SUBSCRIBE __keyevent@0__:expired"];
    let mut loops = Loops::new(&first, READS, &listens, "stream", "EXISTS stream");
    let later_ms = loops.engine.now_ms() + 800_000;
    loops.own.expire(later_ms);
    loops.check(":0");
}

/// A target of MIGRATE that takes everything.
struct Takes;

impl Targets for Takes {
    fn connect(&self, _: &[u8], _: u16, _: Duration) -> io::Result<Box<dyn Target>> {
        Ok(Box::new(Takes))
    }
}

impl Target for Takes {
    fn send(&mut self, _: &[&[u8]]) -> io::Result<()> {
        Ok(())
    }

    fn send_long(&mut self, _: &[&[u8]], _: &mut LongDump, _: &[&[u8]]) -> io::Result<()> {
        unreachable!("the value is short")
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Reply> {
        Ok(Reply::ok())
    }
}

#[test]
fn a_migrated_key_is_gone_then_marked_then_told_of_then_delivered() {
    let first = ["CONFIG SET notify-keyspace-events Eg", "XGROUP CREATE stream group $ MKSTREAM"];
    let listens = ["SUBSCRIBE __keyevent@0__:del"];
    let mut loops = Loops::new(&first, READS, &listens, "stream", "EXISTS stream");
    loops.engine.reach_targets(Box::new(Takes));
    assert_eq!(loops.ask_and_wait("MIGRATE host 1 stream 0 60000"), "+OK");
    loops.check(":0");
}

/// Two event loops, with what comes to database 0 by an exchange with database 1. While databases are exchanged no
/// event loop reads a key, so a look is a PING.
fn before_an_exchange() -> Loops {
    let first = ["SELECT 1", "XADD stream 1-1 f v", "SET with it", "SELECT 0"];
    let listens = ["HELLO 3", "CLIENT TRACKING ON", "GET with"];
    Loops::new(&first, "XREAD BLOCK 0 STREAMS stream 0-0", &listens, "with", "PING")
}

#[test]
fn an_exchange_of_databases_marks_then_is_told_of_then_delivered() {
    let mut loops = before_an_exchange();
    assert_eq!(loops.ask("SWAPDB 0 1"), "+OK");
    loops.check("+PONG");
}

#[test]
fn a_record_that_exchanges_databases_marks_then_is_told_of_then_delivered() {
    let loops = before_an_exchange();
    let (engine, store) = (&loops.engine, &loops.data.store);
    let mut apply = || {
        let call = Call { now_ms: engine.now_ms(), seed: 1, database: 0, mode: Mode::Memory, pins: None };
        let mut txn = store.begin(TxnBuffers::default(), call);
        txn.set_exclusive();
        txn.swap_databases(0, 1).expect("writes");
        txn.commit().expect("there is room");
    };
    let goes_on = || true;
    FollowerLocks::new(engine, store, engine.store_version(), &goes_on).hold(Named::Everything, &mut apply);
    loops.check("+PONG");
}

/// A record of a master makes no keyspace event: who has kept its key is told.
#[test]
fn a_record_takes_effect_then_marks_then_is_told_of_then_delivered() {
    let first = ["XADD stream 1-1 f v", "SET with before"];
    let listens = ["HELLO 3", "CLIENT TRACKING ON", "GET with"];
    let loops = Loops::new(&first, "XREAD BLOCK 0 STREAMS stream 1-1", &listens, "with", "GET with");
    let (engine, store) = (&loops.engine, &loops.data.store);
    let (stream, with) = (store.key(0, b"stream"), store.key(0, b"with"));
    let mut apply = || {
        let call = Call { now_ms: engine.now_ms(), seed: 1, database: 0, mode: Mode::Memory, pins: None };
        let mut txn = store.begin(TxnBuffers::default(), call);
        string::set(&mut txn, &with, b"it").expect("writes");
        let mut entries = Stream::edit(&mut txn, &stream).expect("reads").expect("is there");
        let fields = [&b"f"[..], b"v"].into_iter();
        entries.append(&mut txn, &stream, StreamId::new(1, 2), fields).expect("writes");
        entries.save(&mut txn, &stream).expect("writes");
        txn.commit().expect("there is room");
    };
    let mut keys = [store.key(0, b"stream"), store.key(0, b"with")];
    keys.sort_by_key(|key| key.hash);
    let goes_on = || true;
    FollowerLocks::new(engine, store, engine.store_version(), &goes_on).hold(Named::Keys(&keys), &mut apply);
    loops.check("$2 it");
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
