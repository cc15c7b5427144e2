//! MULTI, EXEC, DISCARD, WATCH and UNWATCH: the queue of a session, and when it becomes a block.
//!
//! The block itself runs in `work`; the watched keys of all sessions are in `watch`. WATCH takes no key lock: a commit
//! looks for watchers after its effects are visible, so what it does not mark is what the session reads.

use crate::clients::client_memory::{Counted, RESERVED_BYTES_MIN};
use crate::clients::parted_list::PartedList;
use crate::clients::pending::{Block, Pending, Queued, Work};
use crate::clients::session::{Multi, Session, Waiting};
use crate::clients::statistics::{Outcome, Wait};
use crate::keys::watch::{WATCH_BYTES, Watching};
use crate::run::engine::{Engine, LOADING};
use crate::run::pool::{Job, Task};
use crate::run::reply::discarded;
use crate::run::script::{flags_of, flags_of_queued};
use crate::run::short::ARGUMENTS_AT_ONCE;
use crate::run::wait::timed;
use crate::run::worker::{Next, WorkerState};
use haypile_commands::error::refusal;
use haypile_commands::{Body, Control, Entry, Flag};
use haypile_log::Index;
use haypile_resp::{Args, OwnedArgs, Reply};
use std::sync::Arc;

/// Keys that an event loop watches or forgets at once, about a tenth of a millisecond of its time. More are for the I/O
/// pool.
const KEYS_AT_ONCE: usize = 512;

/// Commands of a queue that an event loop frees at once, about a tenth of a millisecond of its time.
const COMMANDS_AT_ONCE: usize = 1024;

/// The answer to a command that no transaction has.
pub(crate) const NOT_IN_MULTI: &str = "ERR Command not allowed inside a transaction";

/// Returns whether a command may be one of a transaction's.
pub(crate) fn may_be_queued(entry: &Entry) -> bool {
    // A block may have to be dropped and run again, but keys that another server was sent cannot be taken back.
    !entry.flags.has(Flag::NoMulti) && !matches!(entry.command.body, Body::Migrate(_))
}

impl WorkerState {
    /// Queues a request of a transaction, or refuses it, which refuses the transaction.
    pub(crate) fn queue(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        entry: &Entry,
        args: Args<'_>,
        out: &mut Vec<u8>,
    ) -> Next {
        if !may_be_queued(entry) {
            return self.refuse(engine, session, Reply::error(NOT_IN_MULTI), out);
        }
        if flags_of(engine, entry, args.into()).has(Flag::Write)
            && session.state.repeating.is_none()
            && let Some(why) = engine.store().and_then(|store| store.refusal_of_writes())
        {
            return self.refuse(engine, session, Reply::error(refusal(&why)), out);
        }
        let bytes = args.bytes_len();
        if bytes >= RESERVED_BYTES_MIN && !engine.reserve(session, bytes) {
            return Next::Close;
        }
        let queued = Queued { command: entry.id, args: args.to_owned_args() };
        if let Some(multi) = &mut session.multi {
            multi.bytes += queued.args.memory_bytes();
            // The bound of what a client may have under way, as in Redis.
            if multi.bytes > self.request_bytes_max() && session.state.repeating.is_none() {
                engine.counters(self.index).closed_at_input_limit.add(1);
                return Next::Close;
            }
            multi.commands.push(queued);
        }
        let next = self.reply(engine, session, Reply::Simple("QUEUED"), Index(0), out);
        self.outcome = Outcome::Queued;
        next
    }

    pub(crate) fn control(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        control: Control,
        args: Args<'_>,
        out: &mut Vec<u8>,
    ) -> Next {
        let reply = match (control, session.multi.is_some()) {
            (Control::Save, _) => return self.save(engine, session, out),
            (Control::Multi, true) => Reply::error("ERR MULTI calls can not be nested"),
            (Control::Multi, false) => {
                session.multi = Some(Box::new(Multi::default()));
                Reply::ok()
            }
            (Control::Exec, false) => Reply::error("ERR EXEC without MULTI"),
            (Control::Exec, true) => return self.exec(engine, session, out),
            (Control::Discard, false) => Reply::error("ERR DISCARD without MULTI"),
            (Control::Discard, true) => {
                engine.drop_queue(session);
                return self.unwatch(engine, session, out);
            }
            (Control::Watch, true) => Reply::error("ERR WATCH inside MULTI is not allowed"),
            (Control::Watch, false) => return self.watch(engine, session, args, out),
            (Control::Unwatch, _) => return self.unwatch(engine, session, out),
            (Control::Reset, _) => return self.begin_reset(engine, session, out),
        };
        self.reply(engine, session, reply, Index(0), out)
    }

    fn exec(&mut self, engine: &Engine, session: &mut Session, out: &mut Vec<u8>) -> Next {
        // In its own CLIENT LIST it is still one with a block, but watches nothing any more, as in Redis.
        let watching = session.watching.take();
        session.client.show(session, self.now_ms, session.last_command);
        session.watching = watching;
        if session.multi.as_ref().is_some_and(|multi| multi.refused) {
            engine.drop_queue(session);
            engine.unwatch(session);
            let reply = Reply::error("EXECABORT Transaction discarded because of previous errors.");
            return self.reply(engine, session, reply, Index(0), out);
        }
        if session.watching.as_ref().is_some_and(|watching| watching.is_outdated()) {
            engine.drop_queue(session);
            engine.unwatch(session);
            return self.reply(engine, session, Reply::NullArray, Index(0), out);
        }
        let Some(refused) = engine.store().map(|store| store.refusal_of_writes()) else {
            engine.drop_queue(session);
            engine.unwatch(session);
            return self.reply(engine, session, discarded(LOADING), Index(0), out);
        };
        let multi = session.multi.take().unwrap_or_default();
        let seed = self.next_seed();
        // The watched keys stay registered until the block has run: what changes before it has its locks counts.
        let (bytes, watching) = (multi.memory_bytes(), session.watching.take());
        let block = Block { commands: multi.commands, watching };
        let is_long = block.is_longer_than(ARGUMENTS_AT_ONCE);
        let writes = || block.commands.iter().any(|queued| flags_of_queued(engine, queued).has(Flag::Write));
        let refused = refused.filter(|_| session.state.repeating.is_none() && writes());
        let work = Work::Block(Box::new(block));
        if let Some(why) = refused {
            let next = self.give_up(engine, session, &work, refusal(&why), out);
            if let Work::Block(block) = work {
                engine.release_queue(session, block.commands, bytes);
            }
            return next;
        }
        let mut pending = Pending::new(work, seed);
        pending.long = is_long;
        self.run_pending(engine, session, pending, out)
    }

    fn watch(&mut self, engine: &Engine, session: &mut Session, args: Args<'_>, out: &mut Vec<u8>) -> Next {
        let bytes = args.bytes_len() + args.len() * WATCH_BYTES;
        if bytes >= RESERVED_BYTES_MIN && !engine.reserve(session, bytes) {
            return Next::Close;
        }
        let (watching, database, now_ms) = (session.watching.take(), session.state.database, self.now_ms);
        let change = Rewatch { watching, names: None, database, now_ms };
        // Without data there is no I/O pool yet.
        if args.len() > KEYS_AT_ONCE && engine.store().is_some() {
            let names = Some(args.to_owned_args());
            return self.rewatch(engine, session, Rewatch { names, ..change });
        }
        session.watching = Some(change.with(engine, args));
        self.reply(engine, session, Reply::ok(), Index(0), out)
    }

    fn unwatch(&mut self, engine: &Engine, session: &mut Session, out: &mut Vec<u8>) -> Next {
        let watching = session.watching.take();
        if watching.as_ref().is_some_and(|watching| watching.len() > KEYS_AT_ONCE) && engine.store().is_some() {
            return self.rewatch(engine, session, Rewatch { watching, names: None, database: 0, now_ms: 0 });
        }
        drop(watching);
        self.reply(engine, session, Reply::ok(), Index(0), out)
    }

    /// Leaves a change of very many watched keys to the I/O pool. Its client waits: so a client has no more under way
    /// than it has been answered for.
    fn rewatch(&mut self, engine: &Engine, session: &mut Session, change: Rewatch) -> Next {
        timed(session).begin(&engine.statistics.clock, Wait::Pool);
        self.offload(session, Waiting::Pool, Task::Watch(change))
    }
}

/// A change of what a session watches.
pub(crate) struct Rewatch {
    /// The keys that the session has watched so far.
    watching: Option<Arc<Watching>>,
    /// The names to watch in addition, from argument 1 on; without any the session watches nothing any more.
    names: Option<OwnedArgs>,
    database: u32,
    now_ms: u64,
}

impl Rewatch {
    /// Bytes that it holds, and that what it makes is going to take.
    pub fn bytes(&self) -> usize {
        let added = self.names.as_ref().map_or(0, |names| names.memory_bytes() + names.as_args().len() * WATCH_BYTES);
        self.watching.as_ref().map_or(0, |watching| watching.bytes()) + added
    }

    /// Changes the watched keys and returns them.
    pub fn carry_out(mut self, engine: &Engine) -> Option<Arc<Watching>> {
        let names = self.names.take()?;
        Some(self.with(engine, names.as_args()))
    }

    fn with(self, engine: &Engine, args: Args<'_>) -> Arc<Watching> {
        let mut watching = self.watching.unwrap_or_else(|| Arc::new(Watching::new(&engine.watches)));
        let own = Arc::get_mut(&mut watching).expect("no block is under way");
        args.iter().skip(1).for_each(|name| own.add(self.database, name, self.now_ms));
        watching
    }
}

impl Engine {
    /// Drops the queue of a transaction that is not going to run.
    pub(crate) fn drop_queue(&self, session: &mut Session) {
        if let Some(multi) = session.multi.take() {
            let bytes = multi.memory_bytes();
            self.release_queue(session, multi.commands, bytes);
        }
    }

    /// Leaves it to the I/O pool to free a long queue, of so many bytes, which count until then.
    pub(crate) fn release_queue(&self, session: &Session, commands: PartedList<Queued>, bytes: usize) {
        // Without data there is no I/O pool yet.
        if commands.len() > COMMANDS_AT_ONCE
            && self.store().is_some()
            && let Some(inbox) = self.inbox(session.client.worker)
        {
            let task = Task::Release(Box::new((commands, Counted::new(&self.client_memory, bytes))));
            self.pool.submit(Job { session: session.id, inbox: inbox.clone(), task });
        }
    }

    /// Forgets all that the session watches.
    pub(crate) fn unwatch(&self, session: &mut Session) {
        let Some(watching) = session.watching.take() else { return };
        if watching.len() > KEYS_AT_ONCE
            && let Some(inbox) = self.inbox(session.client.worker)
        {
            self.pool.submit(Job { session: session.id, inbox: inbox.clone(), task: Task::Forget(watching) });
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::clients::client::Peer;
    use crate::run::engine::Process;
    use crate::run::memory::Allocator;
    use crate::run::worker::Worker;
    use haypile_commands::Table;
    use haypile_config::read::CommandLine;
    use haypile_store::{DiskFree, MemoryBase, Store};
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    const DISK_FREE_MIN_BYTES: u64 = 1 << 20;

    /// A server with a client, and data; its I/O pool has no threads, so that what is left to the pool stays there.
    struct Server {
        engine: Arc<Engine>,
        worker: Worker,
        session: Session,
        disk_free: Arc<AtomicU64>,
        store: Arc<Store>,
        dir: PathBuf,
    }

    impl Server {
        fn new() -> Server {
            static COUNT: AtomicU64 = AtomicU64::new(0);
            let name = format!("haypile-multi-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let dir = std::env::temp_dir().join(name);
            std::fs::create_dir_all(dir.join("log")).expect("a temporary directory can be made");
            let disk_free = Arc::new(AtomicU64::new(1 << 30));
            let mut options = haypile_store::testing::options(&dir);
            let free = disk_free.clone();
            options.disk_free = DiskFree(Arc::new(move || Some(free.load(Ordering::Relaxed))));
            options.disk_free_min_bytes = DISK_FREE_MIN_BYTES;
            let store = Store::open(options, Arc::new(MemoryBase::default()), |_| ()).expect("a fresh directory opens");
            let line = haypile_config::load(&CommandLine::default(), &mut std::io::empty()).expect("a right line");
            let about = Process {
                executable: "test".into(),
                config_file: None,
                memory_budget: Arc::default(),
                version: "test",
                allocator: Allocator::NONE,
            };
            let engine = Engine::new(Arc::new(line.settings), Table::new(), 1, about, |_| ());
            engine.attach(store.clone());
            let mut worker = Worker::new(engine.clone(), 0, Box::new(|| ()));
            assert!(engine.admit());
            let session = worker.connect(Peer { is_local: true, ..Peer::default() });
            Server { engine, worker, session, disk_free, store, dir }
        }

        /// Returns the replies to lines that nothing keeps from running.
        fn ask(&mut self, mut input: &[u8]) -> String {
            let mut output = Vec::new();
            while !input.is_empty() {
                let turn = self.worker.turn(&mut self.session, input, &mut output, self.engine.now_ms());
                assert!(matches!(turn.next, Next::Read | Next::Yield), "{:?}", turn.next);
                input = &input[turn.consumed..];
            }
            String::from_utf8(output).expect("replies are text")
        }

        fn queue(&mut self, commands: usize) {
            assert_eq!(self.ask(b"MULTI\r\n"), "+OK\r\n");
            let replies = self.ask(&b"SET key value\r\n".repeat(commands));
            assert_eq!(replies, "+QUEUED\r\n".repeat(commands));
        }

        /// Returns the bytes that are counted for what nobody uses any more.
        fn released_bytes(&self) -> usize {
            self.engine.client_memory.collected.load(Ordering::Relaxed) as usize
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.store.close();
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }

    /// The end of a queue that does not run, and what the client hears of it.
    type End = fn(&mut Server) -> String;

    const ENDS: [(&str, End, &str); 6] = [
        ("DISCARD", |server| server.ask(b"DISCARD\r\n"), "+OK"),
        ("RESET", |server| server.ask(b"RESET\r\n"), "+RESET"),
        ("a client that goes", leave, ""),
        ("a command that was refused", after_refused, "-EXECABORT Transaction discarded because of previous errors."),
        ("too few replicas", without_replicas, "-EXECABORT Transaction discarded because of: NOREPLICAS"),
        ("a full disk", on_full_disk, "-EXECABORT Transaction discarded because of: MISCONF"),
    ];

    fn leave(server: &mut Server) -> String {
        server.worker.disconnect(&mut server.session);
        String::new()
    }

    fn after_refused(server: &mut Server) -> String {
        assert!(server.ask(b"SET key\r\n").starts_with("-ERR"));
        server.ask(b"EXEC\r\n")
    }

    fn without_replicas(server: &mut Server) -> String {
        server.store.set_lacks_replicas(true);
        server.ask(b"EXEC\r\n")
    }

    fn on_full_disk(server: &mut Server) -> String {
        server.disk_free.store(DISK_FREE_MIN_BYTES / 2, Ordering::Relaxed);
        let begun = Instant::now();
        while !server.store.refuses_writes() {
            assert!(begun.elapsed() < Duration::from_secs(60), "the store looks at its disk");
            std::thread::yield_now();
        }
        server.ask(b"EXEC\r\n")
    }

    #[test]
    fn a_long_queue_that_does_not_run_counts_until_the_pool_frees_it() {
        for (name, end, reply) in ENDS {
            let mut server = Server::new();
            server.queue(2 * COMMANDS_AT_ONCE);
            let multi = server.session.multi.as_ref().expect("it is queued");
            let least = multi.bytes + multi.commands.len() * size_of::<Queued>();
            assert_eq!((server.engine.pool.queued(), server.released_bytes()), (0, 0), "{name}");
            let said = end(&mut server);
            assert!(said.starts_with(reply), "{name}: {said}");
            assert_eq!(server.engine.pool.queued(), 1, "{name}: an event loop would take too long over it");
            assert!(server.released_bytes() >= least, "{name}: {} of {least}", server.released_bytes());
            server.engine.pool.close();
            assert_eq!(server.released_bytes(), 0, "{name}");
        }
    }

    #[test]
    fn a_short_queue_is_freed_at_once() {
        for (name, end, reply) in ENDS {
            let mut server = Server::new();
            server.queue(COMMANDS_AT_ONCE);
            let said = end(&mut server);
            assert!(said.starts_with(reply), "{name}: {said}");
            assert_eq!((server.engine.pool.queued(), server.released_bytes()), (0, 0), "{name}");
        }
    }
}
