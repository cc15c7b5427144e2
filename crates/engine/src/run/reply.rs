//! The reply of a command that has ended, or of a request that is not run.

use crate::clients::client_memory::RESERVED_BYTES_MIN;
use crate::clients::session::{Session, Waiting};
use crate::clients::statistics::Outcome;
use crate::keys::gate::StoreGate;
use crate::run::engine::Engine;
use crate::run::worker::{Next, WorkerState};
use haypile_commands::host::Replies;
use haypile_commands::{Body, Control, Entry, Error};
use haypile_log::Index;
use haypile_resp::{self as resp, Pieces, Reply};

/// The reply to an EXEC of which nothing takes effect, and why, with the reason's code unless that is `ERR`, as in
/// Redis.
pub(crate) fn discarded(why: &str) -> Reply {
    let why = why.strip_prefix("ERR ").unwrap_or(why);
    Reply::error(format!("EXECABORT Transaction discarded because of: {why}"))
}

impl Engine {
    /// Has the session's replies from now on wait for this record.
    #[inline]
    pub fn depend(&self, session: &mut Session, gate: Index) {
        if gate == Index(0) {
            return;
        }
        let version = self.store_version();
        if session.store_version == version {
            return session.depend_on(gate);
        }
        session.is_lost |= self.has_lost(session);
        session.begin_store(version);
        // The gate may be of a store before this one, which was synced.
        session.depend_on(gate.min(self.store().map_or(Index(0), |store| store.log().last())));
    }

    /// Has the session's replies from now on wait for the record of a reply that was made earlier.
    pub(crate) fn depend_on_earlier(&self, session: &mut Session, gate: StoreGate) {
        if gate.version == self.store_version() {
            return self.depend(session, gate.index);
        }
        session.is_lost |= self.is_lost(gate);
    }

    /// Returns a record of today's store as one of which something depends that leaves later.
    pub(crate) fn gate_at(&self, index: Index) -> StoreGate {
        StoreGate { index, version: self.store_version() }
    }

    /// Returns the record of today's store that is to be waited for: none, 0, where the one that was depended on is of
    /// an earlier store, and stands; None where it was taken away with that store.
    pub(crate) fn gate_now(&self, gate: StoreGate) -> Option<Index> {
        match gate.index == Index(0) || gate.version == self.store_version() {
            true => Some(gate.index),
            false => (!self.is_lost(gate)).then_some(Index(0)),
        }
    }
}

impl WorkerState {
    /// Encodes a reply whose command has ended.
    #[inline]
    pub(crate) fn reply(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        reply: Reply,
        gate: Index,
        out: &mut Vec<u8>,
    ) -> Next {
        engine.depend(session, gate);
        if reply.is_error() {
            self.outcome = Outcome::Failed;
            engine.counters(self.index).error_replies.add(1);
            engine.statistics.errors.add(&reply);
            if let Some(repeating) = &session.state.repeating {
                // Whatever comes behind it was made for data in which it has taken effect.
                repeating.refuse(format!("{reply:?}").trim_start_matches('-').to_owned());
                if session.multi.is_none() {
                    return Next::Abort;
                }
                // The block is refused as a whole, at its end.
            }
        }
        // Pushes are no replies: what SUBSCRIBE says comes all the same.
        if session.state.replies != Replies::On && !session.state.wants_reply() && !reply.is_push() {
            return if session.state.closing { Next::Close } else { Next::Read };
        }
        if reply.has_stream() {
            session.streams += 1;
            let pieces = reply.into_pieces();
            session.unmade_bytes = pieces.weight().encoded_bytes;
            session.waiting = Waiting::Stream(Box::new(pieces));
            return self.go_on(engine, session, out);
        }
        if let Reply::Elements(elements) = &reply
            && elements.bytes() >= RESERVED_BYTES_MIN
            && !engine.reserve_reply(session, elements.bytes())
        {
            return Next::Close;
        }
        reply.encode(session.state.protocol, out);
        if session.state.closing { Next::Close } else { Next::Read }
    }

    /// Answers a request that is not run; a transaction that is being queued will not run either.
    #[cold]
    pub(crate) fn refuse(&mut self, engine: &Engine, session: &mut Session, reply: Reply, out: &mut Vec<u8>) -> Next {
        if let Some(multi) = &mut session.multi {
            multi.refused = true;
        }
        let next = self.reply(engine, session, reply, Index(0), out);
        self.outcome = Outcome::Rejected;
        next
    }

    /// An EXEC that is refused ends the transaction all the same, and says so even where there is none, as in Redis.
    pub(crate) fn abort_block(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        entry: &Entry,
        args: resp::Args<'_>,
        why: &str,
        out: &mut Vec<u8>,
    ) -> Next {
        if engine.checks.monitors() > 0 {
            crate::run::monitor::show(engine, session, session.state.database, entry, args);
        }
        engine.drop_queue(session);
        engine.unwatch(session);
        let next = self.reply(engine, session, discarded(why), Index(0), out);
        self.outcome = Outcome::Rejected;
        next
    }

    /// Answers a request that is none: no such command, or a wrong number of arguments.
    #[cold]
    pub(crate) fn refuse_request(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        args: resp::Args<'_>,
        error: Error,
        out: &mut Vec<u8>,
    ) -> Next {
        if haypile_commands::is_http(args.get(0)) {
            return self.turn_away(engine, session);
        }
        if let Error::WrongArity(name) = &error
            && let Some(entry) = engine.table.find_full(name.as_bytes())
        {
            engine.counters(self.index).commands_by_id.of(entry.id).rejected.add(1);
        }
        let entry = engine.table.find(args.get(0));
        let is_exec = entry.is_some_and(|entry| matches!(entry.command.body, Body::Engine(Control::Exec)));
        if let Some(entry) = entry
            && is_exec
        {
            let text = "wrong number of arguments for 'exec' command";
            let next = self.abort_block(engine, session, entry, args, text, out);
            self.outcome = Outcome::Done;
            return next;
        }
        let next = self.refuse(engine, session, error.into_reply(), out);
        // The refusal was counted above: nobody else knows which command was meant.
        self.outcome = Outcome::Done;
        next
    }
}
