//! A session whose blocking command has found nothing: how it begins to wait for its keys, and how that ends.
//!
//! The command has tried under its key locks, and its waiter was registered there (`work`). From then on the session
//! waits for a look at its waiter: because it was served (`serving`), let go or its time is over. Its connection goes
//! on reading, so that a client that goes is noticed at once: nothing is taken for one that has gone.

use crate::clients::inbox::Inbox;
use crate::clients::pending::{Pending, Work};
use crate::clients::session::{Session, Waiting};
use crate::keys::waiters::{Attempt, End, Waiter, WaiterOf, in_ms};
use crate::run::engine::Engine;
use crate::run::group::CLUSTERDOWN;
use crate::run::pool::{Job, Task};
use crate::run::worker::{Next, WorkerState};
use haypile_acl::User;
use haypile_commands::{Args, Awaited, CommandId, Error};
use haypile_log::Index;
use haypile_resp::{OwnedArgs, Reply};
use std::sync::Arc;
use std::time::Instant;

/// Keys of one waiter that an event loop takes out of the queues by itself.
const KEYS_AT_ONCE: usize = 1024;

/// The milliseconds after which a waiter looks again whether commands are still paused.
const PAUSED_LOOK_MS: u64 = 50;

/// The reply to a client that waits for a key when its server gets another master.
const FOLLOWS: &str = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";

impl Engine {
    /// Registers a wait that ends at `deadline`, under the locks of its keys.
    #[allow(clippy::too_many_arguments, reason = "the pieces of one request, handed on as they are")]
    pub(crate) fn begin_wait(
        &self,
        session: u64,
        user: &Arc<User>,
        inbox: &Arc<Inbox>,
        command: CommandId,
        args: &OwnedArgs,
        database: u32,
        awaited: Awaited,
        deadline: Option<Instant>,
    ) -> Arc<Waiter> {
        let Awaited { keys, kind, instead, until_gone, again_ms, .. } = awaited;
        let again = again_ms.and_then(in_ms);
        let args = replaced(args, &instead);
        let (user, bell) = (user.clone(), inbox.clone());
        let waiter = WaiterOf { session, user, bell, command, args, database, kind, until_gone, keys, deadline, again };
        let waiter = self.waiters.add(waiter);
        // A client that was closed before has no need of its keys; one that is closed from now on is found waiting.
        if self.clients.get(session).is_none() {
            self.end_wait(session, End::Gone);
        }
        waiter
    }

    /// Takes one whose wait has ended out of the queues.
    pub(crate) fn dismiss(&self, waiter: &Arc<Waiter>) {
        if waiter.keys.len() <= KEYS_AT_ONCE {
            return self.waiters.remove(waiter);
        }
        let task = Task::Dismiss(waiter.clone());
        // Nobody waits for that.
        let inbox = Arc::new(Inbox::new(Box::new(|| ())));
        self.pool.submit(Job { session: waiter.session, inbox, task });
    }
}

/// The arguments with others in the place of some.
fn replaced(args: &OwnedArgs, instead: &[(usize, Vec<u8>)]) -> OwnedArgs {
    if instead.is_empty() {
        return args.clone();
    }
    let other = |at: usize| instead.iter().find(|(replaced, _)| *replaced == at).map(|(_, text)| &text[..]);
    args.as_args().iter().enumerate().map(|(at, arg)| other(at).unwrap_or(arg)).collect()
}

impl WorkerState {
    /// The command has found nothing and is registered.
    #[cold]
    pub(crate) fn wait_for_keys(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        waiter: Arc<Waiter>,
        out: &mut Vec<u8>,
    ) -> Next {
        // A wait that the client asked for is not the server's time.
        session.timed.get_or_insert_with(Box::default).begin_pause(&engine.statistics.clock);
        self.look_at_waiter(engine, session, waiter, out)
    }

    /// Looks whether the wait is over.
    pub(crate) fn look_at_waiter(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        waiter: Arc<Waiter>,
        out: &mut Vec<u8>,
    ) -> Next {
        // Each kind of pause holds a command that writes.
        let is_paused = engine.checks.paused(self.now_ms).is_some();
        let over = match waiter.is_over() {
            true => Some(End::Timeout),
            false => Some(End::Again).filter(|_| !is_paused && waiter.is_due()),
        };
        let is_over = over.is_some();
        if let Some(end) = over
            && waiter.end(end) == Attempt::Ended
        {
            engine.dismiss(&waiter);
        }
        let reply = match waiter.take_end() {
            Some(End::Served(reply, gate)) => {
                engine.depend_on_earlier(session, gate);
                reply
            }
            Some(End::Timeout) => Reply::NullArray,
            Some(End::Again) => return self.run_again(engine, session, &waiter, out),
            Some(End::Error) => Error::text("UNBLOCKED client unblocked via CLIENT UNBLOCK").into_reply(),
            Some(End::Deposed) => Error::text(CLUSTERDOWN).into_reply(),
            Some(End::Follows) => {
                // As in Redis, the client's connection ends, too.
                session.state.closing = true;
                Error::text(FOLLOWS).into_reply()
            }
            // The client's connection is about to end. Or somebody is about to serve it: the look that comes then finds
            // out.
            end @ (Some(End::Gone) | None) => {
                let not_before = if is_paused { in_ms(PAUSED_LOOK_MS) } else { None };
                let left = waiter.looked_at_next(not_before).filter(|_| !is_over && end.is_none());
                session.waiting = Waiting::ForKeys(waiter);
                session.rest_on_nothing();
                return Next::Block(left.map(|deadline| deadline.saturating_duration_since(Instant::now())));
            }
        };
        self.reply(engine, session, reply, Index(0), out)
    }

    /// Runs a command again whose wait has come to the moment for that.
    fn run_again(&mut self, engine: &Engine, session: &mut Session, waiter: &Waiter, out: &mut Vec<u8>) -> Next {
        if let Err(denied) = engine.permit(waiter, Args::from(waiter.args.as_args())) {
            return self.reply(engine, session, denied.into_reply(), Index(0), out);
        }
        let work = Work::Again(waiter.command, waiter.args.clone(), waiter.deadline);
        let seed = self.next_seed();
        self.run_pending(engine, session, Pending::new(work, seed), out)
    }
}
