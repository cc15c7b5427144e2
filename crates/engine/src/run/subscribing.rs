//! SUBSCRIBE and its relatives with very many names, RESET and the end of a client with as many subscriptions: a few
//! hundred at a time, each in a turn of its own, so that others have theirs in between. Each name of a command has a
//! reply of its own, which says what is so by then.
//!
//! Invariant: no step goes through all names of a client, be it to copy or to free them.
//!
//! Inside a block all names of a command take effect together.

use crate::clients::pubsub::{Change, Subscriptions};
use crate::clients::session::{Session, Waiting};
use crate::clients::steps::{ENDED_AT_ONCE, ENDED_BETWEEN_LOOKS, NAMES_AT_ONCE, Steps};
use crate::run::engine::Engine;
use crate::run::host::SessionHost;
use crate::run::worker::{Next, WorkerState};
use haypile_acl::Reason;
use haypile_commands::rights::Requested;
use haypile_commands::{Args, CommandId, Error, call_host};
use haypile_log::Index;
use haypile_resp::{OwnedArgs, Reply};
use std::sync::Arc;
use std::time::Instant;

/// Subscriptions of a client that has gone, to be ended.
pub(crate) struct Departed {
    pub session: u64,
    /// Invariant: there are some.
    pub left: Subscriptions,
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
        // RESET says nothing until its end, and ends what may flood the client.
        if out.len() >= engine.output_bytes_max() && !matches!(*steps, Steps::Reset) {
            session.waiting = Waiting::Steps(steps);
            return Next::Drain;
        }
        let mut words = OwnedArgs::default();
        let (command, is_end) = match &mut *steps {
            Steps::Reset => return self.step_of_reset(engine, session, steps, out),
            Steps::Names { command, words: all, next } => {
                let all = all.as_args();
                let until = all.len().min(*next + NAMES_AT_ONCE);
                words.push(all.get(0));
                (*next..until).for_each(|at| words.push(all.get(at)));
                *next = until;
                (*command, until == all.len())
            }
            Steps::All { command, word, kind } => {
                let all = session.state.subscriptions.of(*kind);
                words.push(word.as_args().get(0));
                all.iter().take(NAMES_AT_ONCE).for_each(|name| words.push(name));
                (*command, all.len() <= NAMES_AT_ONCE)
            }
        };
        let next = self.run_step(engine, session, command, &words, out);
        if is_end || next == Next::Close {
            return next;
        }
        session.waiting = Waiting::Steps(steps);
        Next::Yield
    }

    /// Runs a command with some of its names.
    fn run_step(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        command: CommandId,
        words: &OwnedArgs,
        out: &mut Vec<u8>,
    ) -> Next {
        let entry = engine.table.entry(command);
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
        self.reply(engine, session, reply, Index(0), out)
    }

    /// RESET. The client hears messages until its reply has been made, and none behind it.
    pub(crate) fn begin_reset(&mut self, engine: &Engine, session: &mut Session, out: &mut Vec<u8>) -> Next {
        self.step_of_reset(engine, session, Box::new(Steps::Reset), out)
    }

    fn step_of_reset(&mut self, engine: &Engine, session: &mut Session, steps: Box<Steps>, out: &mut Vec<u8>) -> Next {
        if session.state.subscriptions.len() > ENDED_AT_ONCE {
            let id = session.id;
            let until = self.ending_until();
            let all = Arc::make_mut(&mut session.state.subscriptions);
            self.end_some(engine, id, all, ENDED_AT_ONCE, Some(until));
            session.client.show_subscriptions(session.state.subscriptions.counts());
            session.waiting = Waiting::Steps(steps);
            return Next::Yield;
        }
        self.reset(engine, session);
        self.reply(engine, session, Reply::Simple("RESET"), Index(0), out)
    }

    /// Ends at most so many subscriptions of a session, and few where the time has come; returns how many.
    pub(crate) fn end_some(
        &mut self,
        engine: &Engine,
        session: u64,
        all: &mut Subscriptions,
        most: usize,
        until: Option<Instant>,
    ) -> usize {
        let mut ended = 0;
        while ended < most
            && let Some((kind, name)) = all.pop()
        {
            let change = Change { kind, name, subscribed: false };
            self.subscribers.change(&engine.pubsub, self.index, session, &change);
            ended += 1;
            if ended % ENDED_BETWEEN_LOOKS == 0 && until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
        }
        ended
    }

    fn ending_until(&self) -> Instant {
        Instant::now() + self.step_time_max
    }

    /// Ends some more subscriptions of clients that have gone; whether there are others left.
    pub(crate) fn end_departed(&mut self, engine: &Engine) -> bool {
        if self.departed.is_empty() {
            return false;
        }
        // More end than begin meanwhile, whatever the time: subscriptions do not pile up where clients come and go
        // faster.
        let least = 2 * std::mem::take(&mut self.subscribed);
        let (mut ended, most, until) = (0, ENDED_AT_ONCE.max(least), self.ending_until());
        while ended < most
            && (ended < least.max(1) || Instant::now() < until)
            && let Some(Departed { session, mut left }) = self.departed.pop_front()
        {
            let bytes = left.bytes();
            let (most, until) = if ended < least { (least - ended, None) } else { (most - ended, Some(until)) };
            ended += self.end_some(engine, session, &mut left, most, until);
            engine.client_memory.subtract_shared(bytes - left.bytes());
            if !left.is_empty() {
                self.departed.push_front(Departed { session, left });
            }
        }
        !self.departed.is_empty()
    }
}
