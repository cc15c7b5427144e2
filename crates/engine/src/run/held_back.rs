//! Replies that are held back (`clients::blocked`), on their event loop.

use crate::clients::blocked::{Held, Unblock};
use crate::clients::session::{Session, Waiting, What};
use crate::keys::waiters::End;
use crate::run::engine::Engine;
use crate::run::worker::{Next, WorkerState};
use haypile_commands::Error;
use haypile_commands::host::{Wait, WaitKind};
use haypile_log::Index;
use haypile_resp::Reply;
use std::time::{Duration, Instant};

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
    /// Asks for what is missing, and whether it is there by now.
    fn is_synced(&self, engine: &Engine) -> bool {
        let Some(store) = engine.store() else { return false };
        if store.log().synced() < self.through {
            // In this order: a sync that ends in between finds the mark.
            engine.blocked.wait_for_sync();
            store.log().request_sync();
        }
        store.log().synced() >= self.through
    }
}

impl WorkerState {
    /// Holds the reply of a command back.
    #[cold]
    pub(crate) fn block(&mut self, engine: &Engine, session: &mut Session, wait: Wait, out: &mut Vec<u8>) -> Next {
        let deadline = wait.timeout_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
        let held = Box::new(Held { wait, deadline, through: session.gate() });
        if !held.sleeps() {
            // A wait that the client asked for is not the server's time.
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
            // A session that CLIENT UNBLOCK has let go meanwhile waits for the event that says how.
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

/// Returns the reply of a command that waits in a transaction, where nothing waits: as if its time were over at once.
pub(crate) fn reply_at_once(engine: &Engine, wait: Wait) -> Reply {
    // Which records are the client's own is not known here: none of them is missing if no record is.
    let is_synced = |store: crate::run::engine::StoreRef| store.log().synced() >= store.log().last();
    wait.reply(engine.store().is_some_and(is_synced))
}
