//! Sessions whose reply is held back: WAIT, WAITAOF, DEBUG SLEEP.
//!
//! No thread waits with them. Their event loop comes back when their time is over, when the log is on the disk as far as
//! they asked (`Blocked::on_sync`, from the log's threads), or when somebody lets them go (`Blocked::unblock`). Of time
//! and unblocking exactly one wins: whoever takes the session out of the table. Those that wait for keys are in `blocking`.

use crate::clients::inbox::Inbox;
use crate::clients::session::{Event, Session, Waiting, What};
use crate::engine::Engine;
use crate::keys::waiters::End;
use crate::run::worker::{Next, Workbench};
use crate::sync::{Mutex, lock};
use haypile_commands::Error;
use haypile_commands::host::{Wait, WaitKind};
use haypile_log::Index;
use haypile_resp::Reply;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a blocked session waits for.
pub(crate) struct Held {
    pub wait: Wait,
    /// When its time is over; nothing for one that waits for ever.
    deadline: Option<Instant>,
    /// What its client has written or read so far: WAITAOF asks for that to be on the disk.
    through: Index,
}

/// Why a session was let go before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unblock {
    /// As if its time were over.
    Timeout,
    /// With an error.
    Error,
}

/// The blocked sessions of all event loops, but for those that sleep: nobody can wake these.
#[derive(Default)]
pub struct Blocked {
    sessions: Mutex<HashMap<u64, Arc<Inbox>>>,
    /// Some session waits for the log: only then a sync is worth a look at the table.
    waits_for_sync: AtomicBool,
}

impl Blocked {
    /// How many there are.
    pub fn count(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// Lets a session go, from any thread; whether it was blocked.
    pub fn unblock(&self, session: u64, how: Unblock) -> bool {
        let Some(inbox) = lock(&self.sessions).remove(&session) else { return false };
        inbox.push(Event { session, what: What::Unblocked(how), begun: None });
        true
    }

    /// Whether a session is there to be let go.
    pub(crate) fn has(&self, session: u64) -> bool {
        lock(&self.sessions).contains_key(&session)
    }

    /// The log has got further on its way to the disk: has the event loops look.
    pub fn on_sync(&self) {
        if !self.waits_for_sync.swap(false, Ordering::SeqCst) {
            return;
        }
        let sessions: Vec<_> = lock(&self.sessions).iter().map(|(id, inbox)| (*id, inbox.clone())).collect();
        sessions.into_iter().for_each(|(session, inbox)| inbox.push(Event { session, what: What::Look, begun: None }));
    }

    /// Has all of them look.
    pub(crate) fn look_again(&self) {
        self.waits_for_sync.store(true, Ordering::SeqCst);
        self.on_sync();
    }

    fn add(&self, session: u64, inbox: Arc<Inbox>) {
        lock(&self.sessions).insert(session, inbox);
    }

    /// Whether it was there: if not, somebody has let it go and the event is on its way.
    pub(crate) fn remove(&self, session: u64) -> bool {
        lock(&self.sessions).remove(&session).is_some()
    }
}

impl Engine {
    /// Lets a session go that is blocked in any way, from any thread; whether it was.
    pub(crate) fn unblock(&self, session: u64, how: Unblock) -> bool {
        let end = match how {
            Unblock::Timeout => End::Timeout,
            Unblock::Error => End::Error,
        };
        self.blocked.unblock(session, how) || self.end_wait(session, end)
    }

    /// Whether a session is there to be let go.
    pub(crate) fn is_blocked(&self, session: u64) -> bool {
        self.blocked.has(session) || self.waiters.of_session(session).is_some()
    }
}

impl Held {
    fn sleeps(&self) -> bool {
        self.wait.kind == WaitKind::Sleep
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Asks for what is missing, and whether it is there by now.
    fn is_synced(&self, engine: &Engine) -> bool {
        let Some(store) = engine.store() else { return false };
        if store.log().synced() < self.through {
            // In this order: a sync that ends in between finds the mark.
            engine.blocked.waits_for_sync.store(true, Ordering::SeqCst);
            store.log().request_sync();
        }
        store.log().synced() >= self.through
    }

    /// Whether it waits for no more than it has; `synced` tells about the log.
    fn is_satisfied(&self, synced: bool) -> bool {
        self.wait.kind == (WaitKind::WaitAof { replicas: false }) && synced
    }
}

impl Workbench {
    /// Holds the reply of a command back.
    #[cold]
    pub(crate) fn block(&mut self, engine: &Engine, session: &mut Session, wait: Wait, out: &mut Vec<u8>) -> Next {
        let deadline = wait.timeout_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
        let held = Box::new(Held { wait, deadline, through: session.gate });
        if !held.sleeps() {
            // What a client waits for because it wants to is not the server's time.
            session.timed.get_or_insert_with(Box::default).begin_pause(&engine.statistics.clock);
            engine.blocked.add(session.id, self.inbox.clone());
        }
        self.stay_blocked(engine, session, held, None, out)
    }

    /// Looks whether the wait of a blocked session is over.
    pub(crate) fn stay_blocked(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        held: Box<Held>,
        event: Option<What>,
        out: &mut Vec<u8>,
    ) -> Next {
        let unblocked = match event {
            Some(What::Unblocked(how)) => Some(how),
            _ => None,
        };
        let synced = matches!(held.wait.kind, WaitKind::WaitAof { .. }) && held.is_synced(engine);
        if unblocked.is_none() {
            let ends = held.is_over() || held.is_satisfied(synced);
            // One that was let go meanwhile waits for the event that says how.
            if !ends || !held.sleeps() && !engine.blocked.remove(session.id) {
                let time = if ends { None } else { held.left() };
                session.waiting = Waiting::Blocked(held);
                return Next::Block(time);
            }
        }
        let reply = match unblocked {
            Some(Unblock::Error) => Error::text("UNBLOCKED client unblocked via CLIENT UNBLOCK").into_reply(),
            _ => held.wait.reply(synced),
        };
        self.reply(engine, session, reply, Index(0), out)
    }
}

/// What a command that waits answers in a transaction, where nothing waits: as if its time were over at once.
pub(crate) fn reply_at_once(engine: &Engine, wait: Wait) -> Reply {
    // Which records are the client's own is not known here: none of them is missing if no record is.
    let is_synced = |store: crate::engine::StoreRef| store.log().synced() >= store.log().last();
    wait.reply(engine.store().is_some_and(is_synced))
}
