//! MULTI, EXEC, DISCARD, WATCH and UNWATCH: what a session queues, and when it becomes a block.
//!
//! The block itself runs in `work`; the watched keys of all sessions are in `watch`. WATCH takes no key lock: a commit that
//! does not see it yet was visible before it, to whatever the session reads next.

use crate::engine::{Engine, LOADING};
use crate::session::{Block, Multi, Pending, Queued, Session, Work};
use crate::statistics::Outcome;
use crate::watch::Watched;
use crate::worker::{Next, Workbench};
use haypile_commands::{Control, Entry, Flag, Run};
use haypile_log::Index;
use haypile_resp::{Args, Reply};
use std::sync::Arc;

impl Workbench {
    /// Queues a request of a transaction, or refuses it, which refuses the transaction.
    pub(crate) fn queue(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        entry: &Entry,
        args: Args<'_>,
        out: &mut Vec<u8>,
    ) -> Next {
        // What another server was sent cannot be taken back, which a block may have to be, and be run again.
        if entry.flags.has(Flag::NoMulti) || matches!(entry.command.run, Run::Migrate(_)) {
            return self.refuse(engine, session, Reply::error("ERR Command not allowed inside a transaction"), out);
        }
        let queued = Queued { command: entry.id, args: args.to_owned_args() };
        if let Some(multi) = &mut session.multi {
            multi.bytes += queued.args.memory_bytes();
            // The bound of what a client may have under way, as in Redis.
            if multi.bytes > self.request_bytes_max() {
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
                session.multi = None;
                engine.unwatch(session);
                Reply::ok()
            }
            (Control::Watch, true) => Reply::error("ERR WATCH inside MULTI is not allowed"),
            (Control::Watch, false) => {
                for name in args.iter().skip(1) {
                    engine.watch(session, name, self.now_ms);
                }
                Reply::ok()
            }
            (Control::Unwatch, _) => {
                engine.unwatch(session);
                Reply::ok()
            }
            (Control::Reset, _) => {
                self.reset(engine, session);
                Reply::Simple("RESET")
            }
        };
        self.reply(engine, session, reply, Index(0), out)
    }

    fn exec(&mut self, engine: &Engine, session: &mut Session, out: &mut Vec<u8>) -> Next {
        // In its own CLIENT LIST it is still one with a block.
        session.client.show(session, self.now_ms, session.last_command);
        let multi = session.multi.take().unwrap_or_default();
        if multi.refused {
            engine.unwatch(session);
            let reply = Reply::error("EXECABORT Transaction discarded because of previous errors.");
            return self.reply(engine, session, reply, Index(0), out);
        }
        if session.mark.as_ref().is_some_and(|mark| mark.is_set()) {
            engine.unwatch(session);
            return self.reply(engine, session, Reply::NullArray, Index(0), out);
        }
        if engine.store().is_none() {
            engine.unwatch(session);
            let reply = Reply::error(format!("EXECABORT Transaction discarded because of: {LOADING}"));
            return self.reply(engine, session, reply, Index(0), out);
        }
        let seed = self.next_seed();
        // The watched keys stay registered until the block has run: what changes before it has its locks counts.
        let block = Block { commands: multi.commands, watched: session.watched.clone(), mark: session.mark.clone() };
        self.run_pending(engine, session, Pending::new(Work::Block(Box::new(block)), seed), out)
    }
}

impl Engine {
    fn watch(&self, session: &mut Session, name: &[u8], now_ms: u64) {
        let database = session.state.database;
        if session.watched.iter().any(|watched| watched.database == database && *watched.name == *name) {
            return;
        }
        let watched = Watched { database, name: name.into(), since_ms: now_ms };
        let mark = session.mark.get_or_insert_with(Arc::default);
        self.watches.watch(&watched, mark);
        session.watched.push(watched);
    }

    /// Forgets all that the session watches.
    pub(crate) fn unwatch(&self, session: &mut Session) {
        if let Some(mark) = session.mark.take() {
            self.watches.unwatch(&session.watched, &mark);
            session.watched.clear();
        }
    }
}
