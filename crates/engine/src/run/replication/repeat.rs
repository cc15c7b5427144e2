//! The commands of a master that is no Haypile: a session in which they run as a client's do, on a thread that may
//! wait.
//!
//! The session differs from a client's in four things. The store takes its writes, and nobody else's. No deadline has
//! passed to it, because the master says which keys expire. With each transaction the position in the master's stream
//! is written, so that after a crash exactly those commands come again that have not taken effect. And a command that
//! is refused ends the session: those behind it were made for data in which it has taken effect.

use crate::clients::checks;
use crate::clients::client::{Client, Peer, PeerServer};
use crate::clients::inbox::Inbox;
use crate::clients::pending::Event;
use crate::clients::repeating::Repeating;
use crate::clients::session::{Session, State};
use crate::run::engine::Engine;
use crate::run::scripts::local;
use crate::run::worker::{Delivery, Next, Worker};
use haypile_acl::User;
use haypile_commands::host::ClientType;
use haypile_config::Selection;
use haypile_script::{Shebang, sha1_hex};
use haypile_store::Origin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time between looks whether the commands are wanted still, while one waits.
const LOOK: Duration = Duration::from_millis(100);

/// How long a command's turn is waited for where the engine ends.
const END_WAIT: Duration = Duration::from_secs(5);

/// The thread's part of the engine, as that of an event loop. A process has one.
pub struct Repeater {
    worker: Worker,
    bell: Arc<Bell>,
    events: Vec<Event>,
    /// Replies, which nobody reads.
    replies: Vec<u8>,
}

/// Wakes the thread.
#[derive(Default)]
struct Bell {
    has_rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.has_rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        *self.lock() = true;
        self.rings.notify_one();
    }

    /// Waits until it has rung since the last time, for so long at most.
    fn wait(&self, time: Duration) {
        let has_rung = self.lock();
        let waited = self.rings.wait_timeout_while(has_rung, time, |has_rung| !*has_rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

/// The session of a connection to a master.
pub struct Repetition {
    session: Session,
    repeating: Arc<Repeating>,
}

/// The reason why commands do not go on.
#[derive(Debug)]
pub enum Stopped {
    /// The master is another one by now, or the server ends.
    Unwanted,
    /// The master has sent what is no command.
    Malformed,
    /// A command was refused, or its block, with this error. It has had no effect, and ends at this offset in the
    /// stream.
    Refused { why: String, through: u64 },
    /// The server takes no command now, for this reason. The command has had no effect, and may come again.
    Unable(String),
}

impl Repeater {
    /// Takes the thread's place beside the event loops.
    ///
    /// # Panics
    /// The place is taken.
    pub fn new(engine: Arc<Engine>) -> Repeater {
        let bell = Arc::<Bell>::default();
        let (index, wake) = (engine.workers(), bell.clone());
        let worker = Worker::new(engine, index, Box::new(move || wake.ring()));
        Repeater { worker, bell, events: Vec::new(), replies: Vec::new() }
    }

    /// Begins to repeat the commands of a master behind this origin, on the keys that are taken. `end` ends the
    /// connection to it.
    pub fn begin(
        &mut self,
        origin: &Origin,
        selection: &Selection,
        peer: Peer,
        end: impl Fn() + Send + Sync + 'static,
    ) -> Repetition {
        let engine = self.worker.engine().clone();
        let repeating = Arc::new(Repeating::new(origin, selection));
        let server = PeerServer { kind: ClientType::Master, end: Box::new(end) };
        let id = engine.next_session();
        let client = Client::of_server(id, engine.workers(), peer, engine.now_ms(), server, None);
        let client = Arc::new(client);
        engine.clients.add(client.clone());
        let state = State {
            database: origin.database,
            authenticated: true,
            user: Arc::new(User::default_user(engine.accounts.catalog())),
            no_evict: true,
            repeating: Some(repeating.clone()),
            ..State::default()
        };
        debug_assert!(state.checks() & checks::REPEATS != 0, "each of its commands is looked at");
        let session = Session::new(client, state, haypile_resp::Limits::default(), 0);
        engine.sessions.add_shared(1);
        Repetition { session, repeating }
    }

    /// Runs the commands that `input` holds; returns how many of its bytes are done with. They are not in the log's
    /// file yet. Blocks while a command waits.
    ///
    /// # Errors
    /// The commands do not go on, and `end` is to follow. What has run before stands.
    pub fn run(
        &mut self,
        repetition: &mut Repetition,
        input: &[u8],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<usize, Stopped> {
        let Repetition { session, repeating } = repetition;
        let mut consumed = 0;
        loop {
            self.take_mail(session);
            let now_ms = self.worker.engine().now_ms();
            let turn = self.worker.turn(session, &input[consumed..], &mut self.replies, now_ms);
            consumed += turn.consumed;
            self.replies.clear();
            self.worker.start_jobs();
            if !session.is_waiting() && !session.in_multi() && !matches!(turn.next, Next::Close | Next::Abort) {
                repeating.end(session.input_at);
            }
            match turn.next {
                Next::Read => return Ok(consumed),
                Next::Yield | Next::Drain => {}
                Next::Sleep(time) => {
                    self.wait(session, Some(time), goes_on);
                    session.wake();
                }
                Next::Wait => self.wait_for_event(session, goes_on)?,
                Next::Block(time) => {
                    self.wait(session, time, goes_on);
                    // A command that waits for keys has nothing under way.
                    if !goes_on() && !session.has_event() {
                        return Err(Stopped::Unwanted);
                    }
                }
                Next::Close | Next::Abort | Next::HandOver => {
                    let through = repeating.repeated.through();
                    return Err(match repeating.take_refusal() {
                        Some(why) if repeating.is_refused_by_server(&why) || !self.worker.engine().repeats() => {
                            Stopped::Unable(why)
                        }
                        Some(why) => Stopped::Refused { why, through },
                        None => Stopped::Malformed,
                    });
                }
            }
            // A command that is under way elsewhere is waited for in any case.
            if !goes_on() && (!session.is_waiting() || session.is_paused()) {
                return Err(Stopped::Unwanted);
            }
        }
    }

    /// Ends the session of a connection that has ended.
    pub fn end(&mut self, mut repetition: Repetition) {
        self.worker.disconnect(&mut repetition.session);
    }

    /// Waits for the event that a command has to have before it goes on. What others run for it ends in any case; its
    /// turn at keys or at the exclusion may not come where the engine ends: who has them may be gone.
    fn wait_for_event(&mut self, session: &mut Session, goes_on: &dyn Fn() -> bool) -> Result<(), Stopped> {
        let mut ends_since = None;
        while !session.has_event() {
            // The master is to hear of this server.
            let ends = !goes_on() && self.worker.engine().is_closing();
            if ends && session.waits_for_its_turn() && ends_since.get_or_insert_with(Instant::now).elapsed() > END_WAIT
            {
                return Err(Stopped::Unwanted);
            }
            self.bell.wait(LOOK);
            self.take_mail(session);
        }
        Ok(())
    }

    /// Waits for an event of the session, or until this time has passed.
    fn wait(&mut self, session: &mut Session, time: Option<Duration>, goes_on: &dyn Fn() -> bool) {
        let since = Instant::now();
        while !session.has_event() && goes_on() {
            let left = time.map(|time| time.saturating_sub(since.elapsed()));
            if left == Some(Duration::ZERO) {
                return;
            }
            self.bell.wait(left.unwrap_or(LOOK).min(LOOK));
            self.take_mail(session);
        }
    }

    /// Takes what others have for the session.
    fn take_mail(&mut self, session: &mut Session) {
        let inbox: Arc<Inbox> = self.worker.inbox().clone();
        if inbox.has_notices() {
            self.worker.begin_deliveries();
            self.worker.take_notices(|id, delivery| {
                if let Delivery::Event(event) = delivery
                    && id == session.id
                {
                    session.deliver_unasked(event);
                }
            });
        }
        self.worker.end_departed();
        inbox.take(&mut self.events);
        let id = session.id;
        self.events.drain(..).filter(|event| event.session == id).for_each(|event| session.deliver(event));
    }
}

impl Engine {
    /// Puts a script of a master's data into the cache, as SCRIPT LOAD does.
    ///
    /// # Errors
    /// A text for people: the script cannot be compiled.
    pub fn load_script(&self, text: &[u8]) -> Result<(), String> {
        let shebang = Shebang::of_script(text).map_err(|why| why.escape_ascii().to_string())?;
        let name = sha1_hex(text);
        local::with(&self.scripts, |interpreter| interpreter.compile(&name, text, shebang.bytes))
            .map_err(|why| format!("{name}: {why}"))?;
        self.scripts.load(text);
        Ok(())
    }
}

impl Repetition {
    /// Returns the offset in the master's stream through which all commands have ended.
    pub fn done(&self) -> u64 {
        self.repeating.done()
    }

    /// Returns the database that the next command is for.
    pub fn database(&self) -> u32 {
        self.session.state.database
    }

    /// Returns whether the master has asked, since the last time, how far its commands have come.
    pub fn take_question(&self) -> bool {
        self.repeating.take_question()
    }

    /// Returns the bytes that the command under way lacks at least, as the master claims.
    pub fn needed_bytes(&self) -> usize {
        self.session.needed_bytes()
    }
}
