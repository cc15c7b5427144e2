//! SAVE and BGSAVE: one backup at a time, made by a thread of its own. The thread opens the data again, too (`reload`):
//! neither may happen during the other.
//!
//! The [`Archive`] that the server gives decides what a backup is and where it goes. The thread also lets the archive
//! remove what is not needed any more, piece by piece, between backups. A session that waits in SAVE is told like one
//! that waits for the I/O pool.

use crate::clients::inbox::Inbox;
use crate::clients::pending::{Event, Finished, What};
use crate::clients::session::{Session, State as SessionState, Waiting};
use crate::run::engine::Engine;
use crate::run::worker::{Next, WorkerState};
use haypile_commands::Error;
use haypile_commands::host::{GroupOrder, Reload};
use haypile_log::Index;
use haypile_resp::Reply;
use haypile_store::Store;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Makes backups and keeps them. Its methods may wait for the disk; one of them runs at a time.
pub trait Archive: Send + Sync {
    /// Makes a backup that is complete when this returns. Asks `goes_on` now and then: where it says no, the backup is
    /// not wanted any more.
    ///
    /// # Errors
    /// A text for people. Nothing is left of the backup then.
    fn back_up(&self, store: &Store, goes_on: &dyn Fn() -> bool) -> Result<Made, String>;

    /// Removes a piece of what is not needed any more. When to call it again, if there is more.
    fn tidy(&self) -> Option<Duration>;
}

/// A complete backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub name: String,
    /// The last record that is in the backup.
    pub index: Index,
    /// Bytes of all files; those of the base share their blocks with the data.
    pub bytes: u64,
}

/// See the file's head.
pub(crate) struct Backups {
    archive: OnceLock<Box<dyn Archive>>,
    state: Mutex<State>,
    changed: Condvar,
    closing: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The facts about backups that INFO tells.
pub(crate) struct Facts {
    /// The moment when the backup that is being made was asked for.
    pub since: Option<Instant>,
    /// Backups that were begun since the start.
    pub begun: u64,
    /// The seconds that the last backup took, whether it succeeded or not.
    pub last_seconds: Option<u64>,
    /// The reason why the last backup failed, in one line.
    pub failure: Option<String>,
    pub last: Option<Made>,
    /// The last record in the last backup; without one, the last record when the server began to serve.
    pub index: Index,
}

/// The kinds of work of the thread.
enum Work {
    /// A backup that was asked for then.
    Backup(Instant),
    Reload(Reload, Box<Waiter>),
}

/// A session that waits for a thread.
pub(crate) struct Waiter {
    session: u64,
    state: SessionState,
    inbox: Arc<Inbox>,
}

#[derive(Default)]
struct State {
    /// The moment since when a backup is asked for or being made.
    since: Option<Instant>,
    waiter: Option<Waiter>,
    /// The thread has it in hand.
    is_begun: bool,
    /// Sessions that want the data opened again, which this thread does, too.
    reloads: VecDeque<(Reload, Box<Waiter>)>,
    /// A backup is to begin when the transactions that asked for it have ended.
    scheduled: bool,
    /// Backups that were begun since the start.
    begun: u64,
    last_s: u64,
    last_seconds: Option<u64>,
    /// The reason why the last backup failed, if it did.
    failure: Option<String>,
    last: Option<Made>,
    /// The last record when the server began to serve.
    index_at_start: Index,
}

const IN_PROGRESS: &str = "ERR Background save already in progress";

impl Backups {
    pub fn new() -> Self {
        let state = State { last_s: now_s(), ..State::default() };
        Backups {
            archive: OnceLock::new(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            closing: AtomicBool::new(false),
            thread: Mutex::default(),
        }
    }

    /// Asks the thread for a backup.
    fn begin(&self, waiter: Option<Waiter>) -> Result<(), Error> {
        let mut state = self.state();
        if state.since.is_some() {
            return Err(Error::text(IN_PROGRESS));
        }
        if self.archive.get().is_none() {
            return Err(Error::text("ERR this server has no place for backups"));
        }
        state.since = Some(Instant::now());
        state.is_begun = false;
        state.begun += 1;
        state.waiter = waiter;
        self.changed.notify_all();
        Ok(())
    }

    pub fn last_s(&self) -> u64 {
        self.state().last_s
    }

    /// Returns what INFO tells of backups.
    pub fn facts(&self) -> Facts {
        let state = self.state();
        Facts {
            since: state.since,
            begun: state.begun,
            last_seconds: state.last_seconds,
            failure: state.failure.as_deref().map(one_line),
            index: state.last.as_ref().map_or(state.index_at_start, |made| made.index),
            last: state.last.clone(),
        }
    }

    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        {
            let _state = self.state();
            self.changed.notify_all();
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Sleeps until there is something to do, and takes it; nothing when the time is over or the server stops.
    fn next(&self, wait: Option<Duration>) -> Option<Work> {
        let idle = |state: &mut State| {
            let has_backup = state.since.is_some() && !state.is_begun;
            !self.is_closing() && !has_backup && state.reloads.is_empty()
        };
        let state = self.state();
        let mut state = match wait {
            None => self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner),
            Some(wait) => self.changed.wait_timeout_while(state, wait, idle).unwrap_or_else(PoisonError::into_inner).0,
        };
        if let Some((how, waiter)) = state.reloads.pop_front() {
            return Some(Work::Reload(how, waiter));
        }
        let since = state.since.filter(|_| !state.is_begun)?;
        state.is_begun = true;
        Some(Work::Backup(since))
    }

    fn run(&self, engine: &Engine) {
        let archive = self.archive.get();
        let tidy = || archive.and_then(|archive| archive.tidy());
        let mut tidy_in = tidy();
        while !self.is_closing() {
            match (self.next(tidy_in), archive) {
                (Some(Work::Backup(since)), Some(archive)) => {
                    let _data = crate::sync::lock(&engine.replication.backup);
                    let made = match engine.store() {
                        Some(store) => archive.back_up(&store, &|| !self.is_closing() && !engine.group.wants_data()),
                        None => Err("the data are not loaded".into()),
                    };
                    self.end(since, made);
                }
                (Some(Work::Backup(_)), None) => unreachable!("without an archive none is begun"),
                (Some(Work::Reload(how, waiter)), _) => {
                    let since = Instant::now();
                    waiter.tell(match engine.reload(how) {
                        Ok(()) => {
                            tracing::info!("the data were opened again in {} ms", since.elapsed().as_millis());
                            Reply::ok()
                        }
                        Err(why) => Reply::error(format!("ERR the data are not opened again: {}", one_line(&why))),
                    });
                }
                (None, _) if self.is_closing() => return,
                (None, _) => {}
            }
            tidy_in = tidy();
        }
    }

    fn end(&self, since: Instant, made: Result<Made, String>) {
        let reply = match &made {
            Ok(Made { name, bytes, .. }) => {
                tracing::info!("backup {name} is complete: {bytes} bytes in {} ms", since.elapsed().as_millis());
                Reply::ok()
            }
            Err(why) => {
                tracing::error!("a backup failed: {why}");
                Reply::error(format!("ERR the backup failed: {}", one_line(why)))
            }
        };
        let waiter = {
            let mut state = self.state();
            state.last_seconds = Some(since.elapsed().as_secs());
            state.failure = made.as_ref().err().cloned();
            if let Ok(made) = made {
                state.last_s = now_s();
                state.last = Some(made);
            }
            state.since = None;
            state.is_begun = false;
            state.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.tell(reply);
        }
    }
}

impl Waiter {
    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    /// Has the session end behind the reply.
    pub(crate) fn close(&mut self) {
        self.state.closing = true;
    }

    pub(crate) fn tell(self, reply: Reply) {
        let Waiter { session, state, inbox } = self;
        let finished = Finished::plain(state, reply);
        inbox.push(Event { session, what: What::Finished(Box::new(finished)), begun: None });
    }
}

impl Engine {
    pub(crate) fn is_closing(&self) -> bool {
        self.backups.is_closing()
    }

    /// Gives the backups a place; before `serve`.
    pub fn keep_backups(&self, archive: Box<dyn Archive>) {
        let is_first = self.backups.archive.set(archive).is_ok();
        assert!(is_first, "an engine has one archive");
    }

    /// Starts the thread; there is a store.
    pub(crate) fn start_backups(self: &Arc<Self>) -> std::io::Result<()> {
        self.backups.state().index_at_start = self.store().map_or(Index(0), |store| store.log().last());
        let engine = self.clone();
        let thread = std::thread::Builder::new().name("backup".into()).spawn(move || engine.backups.run(&engine))?;
        *self.backups.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Begins a backup for a BGSAVE outside of a block.
    pub(crate) fn begin_backup(&self) -> Result<(), Error> {
        self.backups.begin(None)
    }

    /// Checks that a backup can begin.
    ///
    /// # Errors
    /// A backup is being made.
    pub(crate) fn can_begin_backup(&self) -> Result<(), Error> {
        if self.backups.state().since.is_some() { Err(Error::text(IN_PROGRESS)) } else { Ok(()) }
    }

    /// Notes a BGSAVE between MULTI and EXEC, whose effects the backup is to hold.
    pub(crate) fn schedule_backup(&self) {
        self.backups.state().scheduled = true;
    }

    /// Begins a backup that was put off, if there is one: to be called about ten times a second.
    pub fn begin_scheduled_backup(&self) {
        let is_due = {
            let mut state = self.backups.state();
            state.since.is_none() && std::mem::take(&mut state.scheduled)
        };
        if is_due && let Err(error) = self.backups.begin(None) {
            tracing::error!("a backup that was scheduled cannot begin: {error:?}");
        }
    }
}

impl WorkerState {
    /// SAVE: the session goes on when the backup is there.
    pub(crate) fn save(&mut self, engine: &Engine, session: &mut Session, out: &mut Vec<u8>) -> Next {
        match engine.backups.begin(Some(self.waiter_for(session))) {
            Ok(()) => self.wait_for_thread(session),
            Err(error) => self.reply(engine, session, error.into_reply(), Index(0), out),
        }
    }

    /// DEBUG RELOAD and its like: the session goes on when the data are open again.
    pub(crate) fn reload(&mut self, engine: &Engine, session: &mut Session, how: Reload) -> Next {
        engine.backups.state().reloads.push_back((how, Box::new(self.waiter_for(session))));
        engine.backups.changed.notify_all();
        self.wait_for_thread(session)
    }

    /// An order to the server's group: the session goes on when it is carried out.
    pub(crate) fn order(&mut self, engine: &Engine, session: &mut Session, what: GroupOrder) -> Next {
        engine.group.give_order(what, self.waiter_for(session));
        self.wait_for_thread(session)
    }

    fn waiter_for(&self, session: &Session) -> Waiter {
        Waiter { session: session.id, state: session.state.clone(), inbox: self.inbox.clone() }
    }

    fn wait_for_thread(&mut self, session: &mut Session) -> Next {
        session.waiting = Waiting::Pool;
        // The thread holds nothing of the session's.
        session.away_bytes = 0;
        self.on_pool += 1;
        Next::Wait
    }
}

/// A text of the operating system or of RocksDB as a part of a reply.
fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
