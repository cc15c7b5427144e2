//! MIGRATE to a target that answers when the test says so: what runs meanwhile, and what the reply depends on.

mod server;

use haypile_commands::keys::dump::LongDump;
use haypile_engine::{Target, Targets};
use haypile_resp::Reply;
use server::{PATIENCE, Server};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The far end of a call of MIGRATE.
struct FarEnd {
    /// Hears of the first reply that is waited for.
    asked: Receiver<()>,
    /// Lets the target answer.
    go: Sender<()>,
}

impl FarEnd {
    fn of(server: &Server) -> FarEnd {
        let ((ask, asked), (go, goes)) = (channel(), channel());
        server.engine.reach_targets(Box::new(Held { ask: Mutex::new(ask), goes: Arc::new(Mutex::new(goes)) }));
        FarEnd { asked, go }
    }

    /// Has client 0 call MIGRATE with these keys, and waits until all were sent.
    fn migrate(&self, server: &mut Server, keys: &[&str]) {
        let words = [&["MIGRATE", "host", "1", "", "0", "60000", "KEYS"], keys].concat();
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        server.send_words(0, &words);
        self.asked.recv_timeout(PATIENCE).expect("the target is waited for");
        assert!(server.waits(0));
    }

    fn answer(&self) {
        self.go.send(()).expect("the target waits");
    }
}

/// A target that takes all it is sent, and answers when it is told to.
struct Held {
    ask: Mutex<Sender<()>>,
    goes: Arc<Mutex<Receiver<()>>>,
}

impl Targets for Held {
    fn connect(&self, _: &[u8], _: u16, _: Duration) -> io::Result<Box<dyn Target>> {
        let ask = self.ask.lock().expect("no panic").clone();
        Ok(Box::new(Connection { ask: Some(ask), goes: self.goes.clone() }))
    }
}

struct Connection {
    /// Taken by the first reply that is waited for.
    ask: Option<Sender<()>>,
    goes: Arc<Mutex<Receiver<()>>>,
}

impl Target for Connection {
    fn send(&mut self, _: &[&[u8]]) -> io::Result<()> {
        Ok(())
    }

    fn send_long(&mut self, _: &[&[u8]], _: &mut LongDump, _: &[&[u8]]) -> io::Result<()> {
        unreachable!("the values are short")
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Reply> {
        if let Some(ask) = self.ask.take() {
            ask.send(()).expect("the test waits");
            self.goes.lock().expect("no panic").recv_timeout(PATIENCE).expect("the test says when");
        }
        Ok(Reply::ok())
    }
}

/// The reply says that a key was changed meanwhile: it must not leave before that change is durable.
#[test]
fn a_reply_depends_on_what_the_last_look_at_the_keys_has_found() {
    let mut server = Server::new();
    let far_end = FarEnd::of(&server);
    assert_eq!(server.ask(1, "SET k 1"), "+OK");
    far_end.migrate(&mut server, &["k"]);
    // The block runs exclusively, and exchanges no databases.
    for (command, reply) in
        [("MULTI", "+OK"), ("SWAPDB 4 4", "+QUEUED"), ("SET k 2", "+QUEUED"), ("EXEC", "*2 +OK +OK")]
    {
        assert_eq!(server.ask(1, command), reply);
    }
    let changed = server.store.store.log().last();
    assert_eq!(server.gate(1), changed);
    assert!(server.gate(0) < changed);
    far_end.answer();
    let reply = server.reply(0);
    assert!(reply.starts_with("-ERR a command on all keys has changed some of these meanwhile"), "{reply}");
    assert_eq!(server.store.store.log().last(), changed, "no key was removed");
    assert_eq!(server.gate(0), changed);
}

/// The record of the removal is one of the data that were opened meanwhile.
#[test]
fn a_reply_depends_on_records_of_the_data_that_are_there_by_then() {
    let (mut server, _) = Server::reopening(false);
    let far_end = FarEnd::of(&server);
    assert_eq!(server.ask(1, "SET k 1"), "+OK");
    far_end.migrate(&mut server, &["k"]);
    assert_eq!(server.ask(1, "DEBUG LOADAOF"), "+OK");
    let before = server.engine.store_arc().expect("it is open").log().last();
    far_end.answer();
    assert_eq!(server.reply(0), "+OK");
    assert_eq!(server.ask(1, "EXISTS k"), ":0");
    let removed = server.engine.store_arc().expect("it is open").log().last();
    assert!(removed > before, "the removal is a record");
    assert_eq!(server.gate(0), removed);
}

/// The call holds more keys than one call of the expiry looks at, and theirs are the earliest deadlines.
#[test]
fn keys_behind_those_that_are_held_expire() {
    const HELD: usize = 100;
    const BEHIND: usize = 20;
    let mut server = Server::new();
    let far_end = FarEnd::of(&server);
    // Keys of one slot are found in the order of their deadlines.
    let held: Vec<String> = (0..HELD).map(|at| format!("{{slot}}held{at}")).collect();
    for key in &held {
        assert_eq!(server.ask(1, &format!("SET {key} v PX 600000")), "+OK");
    }
    for at in 0..BEHIND {
        assert_eq!(server.ask(1, &format!("SET {{slot}}behind{at} v PX 700000")), "+OK");
    }
    far_end.migrate(&mut server, &held.iter().map(String::as_str).collect::<Vec<_>>());
    let later_ms = server.now_ms + 800_000;
    for _ in 0..10 {
        server.worker.expire(later_ms);
    }
    let (expired, left) = (server.info(1, "expired_keys"), server.ask(1, "DBSIZE"));
    far_end.answer();
    assert_eq!(server.reply(0), "+OK");
    assert_eq!((expired, left), (BEHIND.to_string(), format!(":{HELD}")));
    assert_eq!(server.ask(1, "DBSIZE"), ":0");
}

/// Returns the bytes that CLIENT LIST shows of the arguments of client 0.
fn argument_bytes(server: &mut Server) -> usize {
    let all = server.ask(1, "CLIENT LIST");
    let line = all.lines().find(|line| line.contains(" addr=client:0 ")).expect("it is connected");
    let field = line.split(' ').find_map(|field| field.strip_prefix("argv-mem=")).expect("it is listed");
    field.parse().expect("a number")
}

#[test]
fn a_client_that_waits_for_a_reload_holds_no_arguments_of_an_earlier_command() {
    const NAME_BYTES: usize = 300_000;
    let (mut server, open) = Server::reopening(true);
    let far_end = FarEnd::of(&server);
    assert_eq!(server.ask(1, "SET k 1"), "+OK");
    far_end.migrate(&mut server, &["k", &"x".repeat(NAME_BYTES)]);
    let held = argument_bytes(&mut server);
    far_end.answer();
    assert_eq!(server.reply(0), "+OK");
    server.send(0, "DEBUG RELOAD");
    assert!(server.waits(0));
    let left = argument_bytes(&mut server);
    open.send(false).expect("it waits");
    assert_eq!(server.reply(0), "+OK");
    assert!(held >= NAME_BYTES, "{held} bytes");
    assert_eq!(left, 0);
}
