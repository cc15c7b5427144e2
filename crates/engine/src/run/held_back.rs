//! Replies that are held back (`clients::blocked`), on their event loop.

use crate::clients::blocked::{Held, Unblock};
use crate::clients::pending::What;
use crate::clients::session::{Session, Waiting};
use crate::keys::waiters::End;
use crate::run::engine::Engine;
use crate::run::worker::{Next, WorkerState};
use haypile_commands::Error;
use haypile_commands::host::{Reached, Wait, WaitKind};
use haypile_log::Index;
use haypile_resp::Reply;
use haypile_store::Store;
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
    /// Asks for what is missing; returns how far it is by now.
    fn reached(&self, engine: &Engine) -> Reached {
        // In this order: progress in between finds the mark.
        engine.blocked.wait_for_sync();
        let Some(store) = engine.store() else {
            return Reached { has_role: engine.has_role(None), ..Reached::default() };
        };
        if matches!(self.wait.kind, WaitKind::WaitAof { local: true, .. }) && store.log().synced() < self.through {
            store.log().request_sync();
        }
        engine.reached(&store, self.through)
    }
}

impl Engine {
    /// Returns how far the records through `through` have got.
    fn reached(&self, store: &Store, through: Index) -> Reached {
        let (replicas, synced_replicas) = match self.group.others_of_majority() {
            // Records that a group has agreed on are on the disks of a majority.
            Some(others) if store.log().confirmed() >= through => (others, others),
            Some(_) => (0, 0),
            None => self.replication.acknowledged(through),
        };
        let (synced, has_role) = (store.log().synced() >= through, self.has_role(Some(store)));
        Reached { synced, replicas, synced_replicas, has_role }
    }
}

impl WorkerState {
    /// Answers a command that has ended and whose acts are carried out, or holds its reply back.
    #[inline]
    pub(crate) fn reply_or_hold(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        reply: Reply,
        out: &mut Vec<u8>,
    ) -> Next {
        match session.state.wait.take() {
            None => self.reply(engine, session, reply, Index(0), out),
            Some(wait) => self.block(engine, session, wait, reply, out),
        }
    }

    /// Holds the reply of a command back.
    #[cold]
    fn block(&mut self, engine: &Engine, session: &mut Session, wait: Wait, made: Reply, out: &mut Vec<u8>) -> Next {
        let deadline = wait.timeout_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
        let bytes = size_of::<Held>() + made.weight().held_bytes;
        let held = Box::new(Held { wait, made, bytes, deadline, through: session.gate() });
        if !held.sleeps() {
            // A wait that the client asked for is not the server's time.
            session.timed.get_or_insert_with(Box::default).begin_pause(&engine.statistics.clock);
            engine.blocked.add(session.id, self.inbox.clone(), held.is_done());
            if !held.wait.is_satisfied(held.reached(engine)) {
                engine.ask_for_acknowledgements();
            }
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
        let reached = if held.sleeps() { Reached::default() } else { held.reached(engine) };
        if unblocked.is_none() {
            let ends = held.is_over() || held.wait.is_satisfied(reached);
            // A session that CLIENT UNBLOCK has let go meanwhile waits for the event that says how.
            if !ends || !held.sleeps() && !engine.blocked.remove(session.id) {
                let time = if ends { None } else { held.left() };
                session.waiting = Waiting::Blocked(held);
                return Next::Block(time);
            }
        }
        let reply = match unblocked {
            Some(Unblock::Error) => Error::text("UNBLOCKED client unblocked via CLIENT UNBLOCK").into_reply(),
            _ => held.wait.reply(held.made, reached),
        };
        self.reply(engine, session, reply, Index(0), out)
    }
}

/// Returns the reply of a command that waits in a transaction, where nothing waits: as if its time were over at once.
pub(crate) fn reply_at_once(engine: &Engine, wait: Wait, made: Reply) -> Reply {
    // Which records are the client's own is not known here: none of them is missing if no record is.
    let reached = engine.store().map(|store| engine.reached(&store, store.log().last()));
    wait.reply(made, reached.unwrap_or_default())
}
