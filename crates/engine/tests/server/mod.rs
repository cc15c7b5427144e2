//! A server without sockets for tests: one event loop, driven by hand, over a memory base that can pretend to be cold.
//! A case is data: who says what, and what comes back.
#![allow(dead_code, reason = "each test file uses its part")]

use haypile_commands::Table;
use haypile_config::Settings;
use haypile_config::read::CommandLine;
use haypile_engine::{Delivery, Engine, Event, Next, Opener, Peer, Process, Session, Wake, Worker};
use haypile_log::Index;
use haypile_store::testing::FaultBase;
use haypile_store::{MemoryBase, Store, StoreOptions};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a test waits for another thread before it fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Server {
    pub engine: Arc<Engine>,
    pub worker: Worker,
    pub now_ms: u64,
    pub clients: Vec<Client>,
    wakes: Receiver<()>,
    // Last: the store is closed when nothing uses it any more.
    pub store: Data,
}

/// A store over a memory base; its directory goes with it.
pub struct Data {
    pub store: Arc<Store>,
    pub base: Arc<MemoryBase>,
    /// Between the store and its base.
    pub faults: Arc<FaultBase>,
    dir: PathBuf,
}

impl Data {
    pub fn new() -> Data {
        Data::with(|_| ())
    }

    /// A fresh store whose options `change` has had a look at.
    pub fn with(change: impl FnOnce(&mut StoreOptions)) -> Data {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("haypile-engine-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(dir.join("log")).expect("a temporary directory can be made");
        let mut options = haypile_store::testing::options(&dir);
        // Without it, what was written or looked for stays in memory, whatever the base pretends.
        options.row_cache_bytes = 0;
        change(&mut options);
        let base = Arc::new(MemoryBase::default());
        let faults = FaultBase::new(base.clone());
        let store = Store::open(options, faults.clone(), |_| ()).expect("a fresh directory opens");
        Data { store, base, faults, dir }
    }
}

/// Opens the data of a test again, over the same base.
pub struct Reopen {
    options: StoreOptions,
    base: Arc<FaultBase>,
    /// Each open takes one from here first, if there is a sender: whether it is to fail.
    pub gate: Mutex<Option<Receiver<bool>>>,
}

impl Reopen {
    pub fn of(data: &Data) -> Reopen {
        let mut options = haypile_store::testing::options(&data.dir);
        options.row_cache_bytes = 0;
        Reopen { options, base: data.faults.clone(), gate: Mutex::new(None) }
    }
}

impl Opener for Reopen {
    fn open(&self, _follows: bool) -> Result<Arc<Store>, String> {
        if let Some(gate) = &*self.gate.lock().expect("no panic")
            && gate.recv_timeout(PATIENCE).map_err(|error| error.to_string())?
        {
            return Err("injected".into());
        }
        Store::open(self.options.clone(), self.base.clone(), |_| ()).map_err(|error| error.to_string())
    }

    fn open_group(&self, _: Index) -> Result<Arc<Store>, String> {
        Err("these data are of no group".into())
    }

    fn opened(&self, _: &Store) {}
}

impl Drop for Data {
    fn drop(&mut self) {
        let _ = self.store.close();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A client: what it has sent that was not looked at, and what it has not read.
pub struct Client {
    session: Session,
    input: Vec<u8>,
    output: Vec<u8>,
    pub next: Next,
    /// The time at which the client was found to wait for a moment, or for somebody.
    blocked_at: Option<u64>,
    /// The record that the last message to it depends on.
    pub heard_gate: Index,
}

/// The defaults, but for who may call DEBUG.
fn settings() -> Settings {
    let line = CommandLine { options: vec![b"enable-debug-command yes".to_vec()], ..CommandLine::default() };
    haypile_config::load(&line, &mut std::io::empty()).expect("a right line").settings
}

pub fn engine(workers: usize) -> Arc<Engine> {
    engine_of(Table::new(), workers)
}

fn engine_of(table: Table, workers: usize) -> Arc<Engine> {
    let about = Process {
        executable: "test".into(),
        config_file: None,
        memory_budget: Arc::default(),
        version: "test",
        allocator: haypile_engine::Allocator::NONE,
    };
    let settings = Arc::new(settings());
    Engine::new(settings, table, workers, about, |_| ())
}

/// The word that is written so: white space within it has signs of its own.
fn word_of(written: &str) -> String {
    written.replace('␣', " ").replace('␤', "\n")
}

impl Server {
    pub fn new() -> Server {
        Server::over(Data::new())
    }

    /// A server of this data.
    pub fn over(data: Data) -> Server {
        Server::with_table(data, Table::new())
    }

    /// A server of this data that has the commands of `table`.
    pub fn with_table(data: Data, table: Table) -> Server {
        let server = Server::loading_over(data, table);
        server.engine.serve(server.store.store.clone()).expect("threads can start");
        server
    }

    /// A server that can open its data again; a sender for each open, to let it go on (false) or fail (true), if
    /// `gated`.
    pub fn reopening(gated: bool) -> (Server, Sender<bool>) {
        let server = Server::loading();
        let reopen = Reopen::of(&server.store);
        let (sender, gate) = channel();
        if gated {
            *reopen.gate.lock().expect("no panic") = Some(gate);
        }
        server.engine.reopen_with(Box::new(reopen));
        server.engine.serve(server.store.store.clone()).expect("threads can start");
        (server, sender)
    }

    /// A server whose store is not there yet.
    pub fn loading() -> Server {
        Server::loading_over(Data::new(), Table::new())
    }

    fn loading_over(data: Data, table: Table) -> Server {
        let engine = engine_of(table, 1);
        let (wake, wakes) = channel();
        let wake = Mutex::new(wake);
        let wake: Wake = Box::new(move || _ = wake.lock().expect("senders do not panic").send(()));
        let mut worker = Worker::new(engine.clone(), 0, wake);
        // Steps are as long as their counts say, on slow machines, too.
        worker.set_step_time_max(PATIENCE);
        Server { now_ms: engine.now_ms(), engine, worker, clients: Vec::new(), wakes, store: data }
    }

    /// Sends a command's words, separated by blanks; runs as far as it can go without waiting.
    pub fn send(&mut self, client: usize, command: &str) {
        let words: Vec<String> = command.split_ascii_whitespace().map(word_of).collect();
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        self.send_words(client, &words);
    }

    pub fn send_words(&mut self, client: usize, words: &[&[u8]]) {
        self.send_bytes(client, &request(words));
    }

    /// Sends several commands in one go.
    pub fn send_together(&mut self, client: usize, commands: &[&str]) {
        let requests = commands.iter().map(|command| {
            let words: Vec<&[u8]> = command.split_ascii_whitespace().map(str::as_bytes).collect();
            request(&words)
        });
        let bytes: Vec<u8> = requests.flatten().collect();
        self.send_bytes(client, &bytes);
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, client: usize, bytes: &[u8]) {
        while self.clients.len() <= client {
            assert!(self.engine.admit());
            let session = self.worker.connect(Peer {
                address: format!("client:{}", self.clients.len()),
                is_local: true,
                ..Peer::default()
            });
            self.clients.push(Client {
                session,
                input: Vec::new(),
                output: Vec::new(),
                next: Next::Read,
                blocked_at: None,
                heard_gate: Index(0),
            });
        }
        self.clients[client].input.extend_from_slice(bytes);
        self.run(client);
    }

    pub fn is_closed(&self, client: usize) -> bool {
        matches!(self.clients[client].next, Next::Close | Next::Abort)
    }

    /// Takes turns until the client has to wait for something or to send more.
    fn run(&mut self, client: usize) {
        let at = client;
        loop {
            self.take_notices();
            let client = &mut self.clients[at];
            if client.next == Next::Wait && !client.session.has_event() {
                return;
            }
            if let Next::Sleep(_) = client.next {
                client.session.wake();
            }
            let looks_again = client.session.has_event() || client.blocked_at != Some(self.now_ms);
            if matches!(client.next, Next::Block(_)) && !looks_again {
                return;
            }
            if matches!(client.next, Next::Close | Next::Abort) {
                return;
            }
            let turn = self.worker.turn(&mut client.session, &client.input, &mut client.output, self.now_ms);
            self.worker.start_jobs();
            client.session.push_deferred(&mut client.output);
            client.input.drain(..turn.consumed);
            client.next = turn.next;
            client.blocked_at = matches!(turn.next, Next::Block(_)).then_some(self.now_ms);
            if matches!(turn.next, Next::Read | Next::Drain) {
                return;
            }
        }
    }

    /// Hands clients what others have sent them.
    fn take_notices(&mut self) {
        let Server { worker, clients, .. } = self;
        let engine = worker.engine().clone();
        worker.end_departed();
        worker.begin_deliveries();
        worker.take_notices(|session, delivery| {
            let client = clients.iter_mut().find(|client| client.session.id == session);
            let client = client.expect("a notice is for a session");
            match delivery {
                Delivery::Push { push, gate } => {
                    client.heard_gate = gate;
                    engine.depend(&mut client.session, gate);
                    client.session.push(push, &mut client.output);
                }
                Delivery::Event(event) => _ = client.session.deliver_unasked(event),
                Delivery::Close => client.next = Next::Close,
                Delivery::Recheck if engine.loses_channels(&client.session) => client.next = Next::Close,
                Delivery::Recheck => {}
            }
        });
    }

    /// Takes what has come from other threads, waiting for it if nothing has; false if nothing comes.
    fn receive(&mut self) -> bool {
        let mut events: Vec<Event> = Vec::new();
        self.worker.inbox().take(&mut events);
        if events.is_empty() {
            if self.wakes.recv_timeout(PATIENCE).is_err() {
                return false;
            }
            self.worker.inbox().take(&mut events);
        }
        self.deliver(events);
        true
    }

    fn deliver(&mut self, events: Vec<Event>) {
        for event in events {
            let at = self.clients.iter().position(|client| client.session.id == event.session);
            let at = at.expect("an event is for a session");
            self.clients[at].session.deliver(event);
            self.run(at);
        }
    }

    /// Waits until another thread has something for the event loop, lets `look` look at the server, and takes it.
    pub fn receive_after(&mut self, look: impl FnOnce(&mut Server)) {
        let mut events: Vec<Event> = Vec::new();
        self.worker.inbox().take(&mut events);
        while events.is_empty() {
            self.wakes.recv_timeout(PATIENCE).expect("something comes");
            self.worker.inbox().take(&mut events);
        }
        look(self);
        self.deliver(events);
    }

    /// The client goes.
    pub fn leave(&mut self, client: usize) {
        let mut client = self.clients.remove(client);
        self.worker.disconnect(&mut client.session);
    }

    /// Everything the client gets until nothing of it is under way, line ends shown as blanks.
    pub fn reply(&mut self, client: usize) -> String {
        self.take_notices();
        if self.clients[client].session.has_event() {
            self.run(client);
        }
        while self.clients[client].session.is_waiting() || !self.clients[client].input.is_empty() {
            assert!(self.receive(), "client {client} waits for ever");
            self.run(client);
        }
        let output = std::mem::take(&mut self.clients[client].output);
        String::from_utf8_lossy(&output).replace("\r\n", " ").trim_end().to_owned()
    }

    /// Returns what the client has got by now, after something has come for it.
    pub fn reply_so_far(&mut self, client: usize) -> String {
        if self.clients[client].output.is_empty() && self.waits(client) {
            assert!(self.receive(), "client {client} waits for ever");
        }
        let output = std::mem::take(&mut self.clients[client].output);
        self.run(client);
        String::from_utf8_lossy(&output).into_owned()
    }

    /// Returns what the client has got by now, without waiting for more.
    pub fn reply_of_what_ran(&mut self, client: usize) -> String {
        let output = std::mem::take(&mut self.clients[client].output);
        String::from_utf8_lossy(&output).replace("\r\n", " ").trim_end().to_owned()
    }

    /// Bytes that the client has not read.
    pub fn unread(&self, client: usize) -> usize {
        self.clients[client].output.len()
    }

    /// The look at clients that is taken once a second: closes the client if it takes too long over a long reply.
    pub fn look(&mut self, client: usize) {
        let (now_us, age_max) = (self.now_ms * 1000, self.store.store.view_age_max());
        let at = client;
        let client = &mut self.clients[at];
        if client.session.lingers(now_us, age_max.as_micros() as u64) {
            self.leave(at);
        }
    }

    /// Takes what comes for the client, which reads nothing; whether its reply has filled its output.
    pub fn reply_begun(&mut self, client: usize) -> bool {
        assert!(self.clients[client].next == Next::Drain || self.receive(), "client {client} waits for ever");
        self.clients[client].next == Next::Drain
    }

    /// Counts what the client takes, as its connection does at the end of a turn.
    pub fn count(&self, client: usize) {
        self.engine.count_client(&self.clients[client].session, 0, 0, 0);
    }

    /// The record up to which the log has to be durable before the client's replies may leave.
    pub fn gate(&self, client: usize) -> Index {
        self.clients[client].session.gate()
    }

    /// The record that the last message to the client depends on.
    pub fn heard_gate(&self, client: usize) -> Index {
        self.clients[client].heard_gate
    }

    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Whether the client's last command has not been answered.
    pub fn waits(&self, client: usize) -> bool {
        self.clients[client].session.is_waiting()
    }

    /// Whether the client waits for keys, and no longer than until a time of its own.
    pub fn is_blocked(&self, client: usize) -> bool {
        matches!(self.clients[client].next, Next::Block(_))
    }

    pub fn ask(&mut self, client: usize, command: &str) -> String {
        self.send(client, command);
        self.reply(client)
    }

    /// Moves everything to the base, and the base to its pretended disk.
    pub fn freeze(&self) {
        self.store.store.flush_now().expect("a memory base takes everything");
        self.store.base.set_cold(true);
    }

    /// The value of a field of INFO.
    pub fn info(&mut self, client: usize, field: &str) -> String {
        let all = self.ask(client, "INFO everything");
        let at = all.find(&format!(" {field}:")).unwrap_or_else(|| panic!("there is a field {field}"));
        all[at..].trim_start().split(' ').next().unwrap_or_default().split_once(':').expect("name:value").1.to_owned()
    }
}

/// A request as clients send it.
pub fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Drop for Server {
    fn drop(&mut self) {
        for client in &mut self.clients {
            self.worker.disconnect(&mut client.session);
        }
        // A test that failed leaves no thread waiting.
        self.store.faults.hold_scans(false);
        self.store.faults.hold_gets(false);
        self.engine.close();
        if let Some(store) = self.engine.store_arc() {
            let _ = store.close();
        }
    }
}

/// Runs one case on a fresh server: each line is `client: command => reply`.
#[track_caller]
pub fn check(name: &str, lines: &str) {
    let mut server = Server::new();
    check_on(&mut server, name, lines);
}

/// Runs lines on a server. `time +N` moves the clock by N milliseconds; `freeze` makes everything cold.
#[track_caller]
pub fn check_on(server: &mut Server, name: &str, lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(ms) = line.strip_prefix("time +") {
            server.now_ms += ms.parse::<u64>().expect("milliseconds");
            continue;
        }
        if line == "freeze" {
            server.freeze();
            continue;
        }
        let (client, rest) = line.split_once(": ").expect("client: command => reply");
        let (command, expected) = rest.split_once(" =>").expect("client: command => reply");
        let client = client.parse().expect("a number");
        assert_eq!(server.ask(client, command.trim()), expected.trim_start(), "{name}: {line}");
    }
}
