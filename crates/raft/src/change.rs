//! Changes of the members: a leader makes them as entries, and each member carries them out when they are committed.

use crate::configuration::{Change, Configuration, Part};
use crate::machine::{Fault, Machine};
use crate::member::{Member, damaged};
use raft::StateRole;
use raft::eraftpb::{Entry, EntryType};
use std::sync::Arc;

/// A learner that lacks no more entries than this is made a voter.
const LAG_MAX: u64 = 1000;

impl<M: Machine> Member<M> {
    /// Returns whether this leader has made a change that is not carried out yet.
    pub fn is_changing(&self) -> bool {
        self.changing.is_some() || self.raw.raft.has_pending_conf()
    }

    /// Changes the members, if this one leads. The change is carried out when the group has agreed on it.
    ///
    /// # Errors
    /// The outer one: the member cannot go on. The inner one, a text for people: nothing has happened.
    pub fn change(&mut self, change: &Change) -> Result<Result<(), String>, Fault> {
        if !self.may_change() {
            return Ok(Err(match self.serves {
                Some(_) => "the members are being changed: try again".into(),
                None => "this member does not lead".into(),
            }));
        }
        if matches!(change, Change::Remove { id } if *id == self.raw.raft.id) {
            return Ok(Err("a leader does not remove itself: have another member lead first".into()));
        }
        let made = match self.configuration.changed_by(change) {
            Ok(next) => self.make_change(next),
            Err(why) => Err(why),
        };
        self.work()?;
        Ok(made)
    }

    /// Returns the members as far as this one has carried out what is committed.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    fn may_change(&self) -> bool {
        let raft = &self.raw.raft;
        self.serves == Some(raft.term)
            && raft.state == StateRole::Leader
            && raft.lead_transferee.is_none()
            && self.changing.is_none()
            && !raft.has_pending_conf()
    }

    fn make_change(&mut self, next: Configuration) -> Result<(), String> {
        self.machine.change_members(next.to_string().as_bytes()).map_err(|fault| fault.to_string())?;
        self.changing = Some(Arc::new(next));
        self.machine.log().write();
        Ok(())
    }

    /// Goes on with a change: ends a joint configuration, and has learners vote that have caught up.
    pub(crate) fn go_on_changing(&mut self) {
        if !self.may_change() {
            return;
        }
        let next = match self.configuration.is_joint() {
            true => Some(self.configuration.settled()),
            false => self.caught_up().map(|id| self.configuration.promoting(id)),
        };
        if let Some(next) = next {
            // A change that has no room now is tried again at the next tick.
            drop(self.make_change(next));
        }
    }

    /// Returns a learner that has nearly all, the entry by which it came in among that, and that would vote: with one
    /// that waits to be named the group could bear the loss of fewer voters than before.
    fn caught_up(&self) -> Option<u64> {
        let raft = &self.raw.raft;
        let least = raft.pending_conf_index.max(raft.raft_log.last_index().saturating_sub(LAG_MAX));
        let has_all = |id: u64| raft.prs().get(id).is_some_and(|of| of.recent_active && of.matched >= least);
        let learners = self.configuration.iter().filter(|(_, _, part)| *part == Part::Learner);
        learners.map(|(id, ..)| id).find(|id| has_all(*id) && !self.unnamed.contains(id))
    }

    /// Carries out the changes among entries that are committed.
    ///
    /// # Errors
    /// Raft does not come to the members that the records say.
    pub(crate) fn carry_out_changes(&mut self, committed: &[Entry]) -> Result<(), Fault> {
        for entry in committed.iter().filter(|entry| entry.get_entry_type() != EntryType::EntryNormal) {
            let next = self.raw.raft.store().change(entry.index).expect("what is committed is known").clone();
            let change = next.change_from(&self.configuration);
            let wrong = |why: &str| damaged(format!("entry {} makes the members {next}: {why}", entry.index));
            let mut state = self.raw.apply_conf_change(&change).map_err(|error| wrong(&error.to_string()))?;
            for ids in [&mut state.voters, &mut state.voters_outgoing, &mut state.learners] {
                ids.sort_unstable();
            }
            if state != next.state() {
                return Err(wrong("that is more than a step"));
            }
            self.configuration = next;
        }
        let raft = &mut self.raw.raft;
        if raft.state == StateRole::Leader && !self.configuration.state().voters.contains(&raft.id) {
            // The group goes on without this member.
            let term = raft.term;
            raft.become_follower(term, raft::INVALID_ID);
        }
        Ok(())
    }
}
