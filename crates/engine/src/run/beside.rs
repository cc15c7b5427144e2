//! Reads on a member of a group that does not lead, where they are to miss nothing: each waits until the data here have
//! all that the group had agreed on when the read was asked for, or later.

use crate::clients::session::{Question, Session, Waiting};
use crate::run::check::Checked;
use crate::run::engine::Engine;
use crate::run::worker::{Next, WorkerState};
use haypile_commands::Entry;
use std::time::Duration;

/// How long a read waits before it looks by itself: the answer wakes it before.
const LOOK: Duration = Duration::from_millis(200);

impl WorkerState {
    /// Returns what becomes of a read beside the leader; None once it may run.
    pub(crate) fn wait_for_leader(&mut self, engine: &Engine, session: &mut Session, entry: &Entry) -> Option<Checked> {
        let is_queued = session.multi.is_some() && !entry.command.runs_in_multi;
        if is_queued || !engine.settings.config().raft.reads_beside_miss_nothing {
            return None;
        }
        // The turn runs on this store, whichever there is by now.
        let (position, store_version) = (self.position, self.store_version);
        let known = session
            .question
            .filter(|question| question.store_version == store_version && position.at < question.through);
        let question = match known {
            Some(question) if question.round <= engine.group.reached_beside() => return None,
            Some(question) => question,
            None => Question { round: engine.group.join_beside(), store_version, through: position.end },
        };
        session.question = Some(question);
        (session.waiting, session.is_counted) = (Waiting::Paused, true);
        self.hold_back(engine, session);
        Some(Checked::Held(Next::Block(Some(LOOK))))
    }
}
