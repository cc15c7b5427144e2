//! Copies of everything, for a member that lacks entries which the leader's log has no more.
//!
//! The leader says so; the member fetches a copy of the leader's data and log by other ways, meanwhile it hears and
//! votes as ever. The copy holds what the group has agreed on and nothing else. It is put in the place of what the
//! member has where it has more than that.

use crate::machine::{Fault, Machine};
use crate::member::{Member, damaged};
use crate::standing::Wanted;
use crate::survey::survey;
use haypile_log::Index;
use raft::eraftpb::{Message, MessageType, Snapshot};
use raft::{INVALID_ID, SnapshotStatus, StateRole, Storage};
use std::sync::Arc;

impl<M: Machine> Member<M> {
    /// Returns the copy that this member needs to go on, if it does.
    pub fn wanted_copy(&self) -> Option<Wanted> {
        self.wanted.filter(|wanted| wanted.least > self.raw.raft.raft_log.committed)
    }

    /// The leader has no entries that this member could go on with, as far as it knows.
    pub(crate) fn hear_of_copy(&mut self, mut message: Message) -> Result<(), Fault> {
        let raft = &self.raw.raft;
        if message.index <= raft.raft_log.committed {
            // Raft says what this member has.
            let mut about = Snapshot::default();
            (about.mut_metadata().index, about.mut_metadata().term) = (message.index, message.log_term);
            message.set_snapshot(about);
            drop(self.raw.step(message));
            return self.work();
        }
        if message.term >= raft.term {
            // A copy that is on its way is of use although the leader tells of more by now.
            let before = self.wanted_copy().map_or(u64::MAX, |wanted| wanted.through);
            let through = before.min(message.commit);
            self.wanted = Some(Wanted { from: message.from, least: message.index, through });
        }
        Ok(())
    }

    /// Puts a copy, of which the last entry is (term, number), in the place of log and data, and goes on from there.
    /// Returns whether that was done: else the copy is of no use any more, or not yet.
    ///
    /// # Errors
    /// The member cannot go on.
    pub fn install(&mut self, (term, number): (u64, u64)) -> Result<bool, Fault> {
        let Some(wanted) = self.wanted_copy() else { return Ok(false) };
        let raft = &mut self.raw.raft;
        // An entry that is there already comes from a leader that goes on sending.
        let lacks_it = number > raft.raft_log.committed && !raft.raft_log.match_term(number, term);
        if raft.state != StateRole::Follower || number < wanted.through || !lacks_it {
            return Ok(false);
        }
        if term > raft.term {
            // Known before the entries of that term are there: whoever has these has heard of it.
            raft.become_follower(term, INVALID_ID);
            self.work()?;
        }
        self.machine.install()?;
        let entries = survey(&self.machine)?;
        if (entries.last(), entries.term_of(number)) != (number, Some(term)) {
            return Err(damaged(format!("the copy ends with entry {}, and not with {number}", entries.last())));
        }
        let configuration = match entries.last_change() {
            Some(change) => change.clone(),
            None => Arc::new(self.founding_or(self.machine.members())?),
        };
        // An acknowledgement of what is gone would be a lie.
        for waiting in &mut self.unpersisted {
            waiting.messages.clear();
            waiting.through = Index(0);
        }
        let mut snapshot = Snapshot::default();
        let about = snapshot.mut_metadata();
        (about.index, about.term) = (number, term);
        about.set_conf_state(configuration.state());
        let raft = &self.raw.raft;
        let leader = raft.leader_id;
        let from = if leader == INVALID_ID { wanted.from } else { leader };
        let mut message = Message { from, to: raft.id, term: raft.term, ..Message::default() };
        message.set_msg_type(MessageType::MsgSnapshot);
        message.set_snapshot(snapshot);
        self.installed = Some((entries, configuration));
        self.wanted = None;
        self.raw.step(message).map_err(|error| damaged(error.to_string()))?;
        // The member that has told of the copy may lead no more; where it does, it may rely on the acknowledgement.
        self.raw.raft.leader_id = leader;
        self.heard = Some(self.ticks);
        self.work()?;
        match self.installed.take() {
            None => Ok(true),
            Some((entries, members)) if members.get(self.raw.raft.id).is_some() => {
                Err(damaged(format!("Raft does not go on behind a copy that ends with entry {}", entries.last())))
            }
            // The member begins again with that, and waits to be taken in.
            Some((_, members)) => Err(Fault::Refused(format!("the copy is of a group without this member: {members}"))),
        }
    }

    /// Takes the entries of a copy in the place of those that were there; returns the last one, if there is a copy.
    pub(crate) fn take_installed(&mut self, snapshot: &Snapshot) -> Option<u64> {
        if snapshot.is_empty() {
            return None;
        }
        let (entries, configuration) = self.installed.take().expect("Raft takes what was just put in place");
        assert_eq!(Ok(entries.last()), entries.last_index().map_err(drop));
        assert_eq!(entries.last(), snapshot.get_metadata().index, "Raft goes on behind the copy");
        let last = entries.last();
        *self.raw.raft.mut_store() = entries;
        self.configuration = configuration;
        self.committed = Index(0);
        self.copies += 1;
        Some(last)
    }

    /// Has members told again that they need a copy: they may have forgotten it, or have failed to fetch it.
    pub(crate) fn tell_of_copies(&mut self) {
        let raft = &self.raw.raft;
        if raft.state != StateRole::Leader {
            return;
        }
        let waiting = raft.prs().iter().filter(|(_, of)| of.state == raft::ProgressState::Snapshot);
        let waiting: Vec<u64> = waiting.map(|(id, _)| *id).collect();
        waiting.into_iter().for_each(|id| self.raw.report_snapshot(id, SnapshotStatus::Failure));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{data, hear, keep, member, message};
    use haypile_store::testing::node::MemoryBases;

    #[test]
    fn a_copy_of_a_newer_term_names_no_leader() {
        let mut member = member(false);
        let told = message(MessageType::MsgSnapshot, 2, 1);
        hear(&mut member, Message { index: 5, log_term: 1, commit: 5, ..told });
        let leader = data();
        (1..=5).for_each(|number| keep(&leader, (1, number)));
        (6..=7).for_each(|number| keep(&leader, (2, number)));
        leader.log().write();
        leader.node().sync();
        leader.log().confirm(Index(7));
        member.machine_mut().fetched = leader.node().copy(&MemoryBases);
        assert_eq!(member.install((2, 7)), Ok(true));
        assert_eq!((member.standing().term, member.standing().commit), (2, 7));
        assert_eq!(member.leader(), INVALID_ID, "member 2 has led in term 1");
    }
}
