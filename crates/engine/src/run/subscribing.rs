//! SUBSCRIBE and its relatives with very many names: a few hundred at a time, each in a turn of its own, so that others
//! have theirs in between. Each name has a reply of its own, which says what is so by then.
//!
//! Inside a block all names of a command take effect together.

use crate::clients::pubsub::{Change, SUBSCRIPTION_BYTES};
use crate::clients::session::{Session, Waiting};
use crate::clients::steps::{NAMES_AT_ONCE, Steps};
use crate::run::engine::Engine;
use crate::run::host::SessionHost;
use crate::run::worker::{Next, WorkerState};
use haypile_acl::Reason;
use haypile_commands::rights::Requested;
use haypile_commands::{Args, Error, call_host};
use haypile_log::Index;
use haypile_resp::OwnedArgs;

/// Subscriptions of a client that has gone, to be ended.
pub(crate) struct Departed {
    pub session: u64,
    pub ended: std::vec::IntoIter<Change>,
}

impl Departed {
    pub fn new(session: u64, ended: Vec<Change>) -> Self {
        Departed { session, ended: ended.into_iter() }
    }

    /// Returns whether so many subscriptions have ended that others have their turn in between.
    pub fn is_long(ended: usize) -> bool {
        ended > NAMES_AT_ONCE
    }
}

impl WorkerState {
    /// Carries a command out for the next of its names.
    #[cold]
    pub(crate) fn step(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        mut steps: Box<Steps>,
        out: &mut Vec<u8>,
    ) -> Next {
        if out.len() >= engine.output_bytes_max() {
            session.waiting = Waiting::Steps(steps);
            return Next::Drain;
        }
        let entry = engine.table.entry(steps.command);
        let all = steps.words.as_args();
        let until = all.len().min(steps.next + NAMES_AT_ONCE);
        let mut words = OwnedArgs::default();
        words.push(all.get(0));
        (steps.next..until).for_each(|at| words.push(all.get(at)));
        let is_end = until == all.len();
        steps.next = until;
        engine.refresh_user(&mut session.state);
        let asked = Requested { entry, args: Args::from(words.as_args()), database: session.state.database };
        if asked.check(&session.state.user).is_err_and(|denied| denied.reason == Reason::Channel) {
            // The connection ends as if the client had lost the right to all of its names once it had subscribed to
            // them.
            return Next::Close;
        }
        let state = &mut session.state;
        let mut host = SessionHost { engine, session: session.id, state, txn: None, may_wait: false };
        let answer = call_host(&mut host, entry, Args::from(words.as_args()));
        let reply = answer.and_then(|answer| host.note(answer)).unwrap_or_else(Error::into_reply);
        let reply = engine.carry_out(session.id, &mut session.state, reply, false);
        self.show_changes(engine, session, Index(0));
        let next = self.reply(engine, session, reply, Index(0), out);
        if is_end {
            return next;
        }
        session.waiting = Waiting::Steps(steps);
        Next::Yield
    }

    /// Ends some more subscriptions of clients that have gone; whether there are others left.
    pub(crate) fn end_departed(&mut self, engine: &Engine) -> bool {
        // More end than begin meanwhile: subscriptions do not pile up where clients come and go faster.
        let mut left = NAMES_AT_ONCE.max(2 * std::mem::take(&mut self.subscribed));
        while left > 0
            && let Some(departed) = self.departed.front_mut()
        {
            let session = departed.session;
            let some: Vec<Change> = departed.ended.by_ref().take(left).collect();
            left -= some.len();
            if departed.ended.len() == 0 {
                self.departed.pop_front();
            }
            for change in &some {
                self.subscribers.change(&engine.pubsub, self.index, session, change);
                engine.client_memory.subtract_shared(SUBSCRIPTION_BYTES + change.name.len());
            }
        }
        !self.departed.is_empty()
    }
}
