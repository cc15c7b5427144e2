//! Reads: of a leader, which has it proved that it led; and of a member that does not lead, which asks the leader how
//! far the group is, and reads when its data are there.

use crate::machine::{Fault, Machine};
use crate::member::Member;
use crate::reads::{Question, context_of, own_context};
use crate::rounds::Round;
use crate::wire::is_of_leader;
use raft::eraftpb::{Message, MessageType};
use raft::{CAMPAIGN_TRANSFER, INVALID_ID, ReadState, StateRole};
use std::time::Duration;

/// Ticks after which a question is repeated that has not been answered.
const REPEAT_TICKS: usize = 4;

impl<M: Machine> Member<M> {
    /// Has reads proved, or the leader asked about them.
    pub(crate) fn look_after_reads(&mut self) {
        if self.serves.is_some() {
            self.prove_reads();
        } else if self.raw.raft.state == StateRole::Follower && self.raw.raft.leader_id != INVALID_ID {
            self.ask_leader();
        }
    }

    /// Asks a quorum whether this member leads, where reads wait for that and no entry on its way proves it.
    fn prove_reads(&mut self) {
        if self.asked.is_none() && self.reads.led.is_wanted() {
            let round = self.reads.led.close();
            self.asked = Some(round);
            self.raw.read_index(own_context(round));
        }
    }

    /// Asks the leader how far the group is, where reads wait for that; again where it has not answered.
    fn ask_leader(&mut self) {
        let leader = self.raw.raft.leader_id;
        let round = match self.question {
            Some(question) if question.leader == leader && self.ticks < question.asked + REPEAT_TICKS => return,
            Some(question) => question.round,
            None if self.reads.beside.is_wanted() => self.reads.beside.close(),
            None => return,
        };
        self.question = Some(Question { round, leader, asked: self.ticks });
        self.raw.read_index(context_of(self.raw.raft.id, self.life, round));
    }

    /// A question is answered, of this leader by its quorum, or by the leader.
    pub(crate) fn on_read_state(&mut self, state: &ReadState) {
        match (self.asked, self.question) {
            (Some(round), _) if state.request_ctx == own_context(round) => {
                self.asked = None;
                self.confirm_led(round);
            }
            (_, Some(question)) if state.request_ctx == context_of(self.raw.raft.id, self.life, question.round) => {
                self.question = None;
                self.answered.push_back((state.index, question.round));
            }
            // The answer to a question of long ago.
            _ => {}
        }
    }

    /// Notes that this member led when a round was closed. While another member may be told to lead at any moment there
    /// is no lease: votes for that one do not wait.
    pub(crate) fn confirm_led(&mut self, round: Round) {
        if self.serves.is_some() {
            self.reads.led.confirm(round, self.hands_over_in != Some(self.raw.raft.term));
        }
    }

    /// Lets those read whose rounds the data have reached.
    pub(crate) fn release_reads_beside(&mut self) {
        let has = self.raw.raft.store().whole_at(self.machine.applied());
        while let Some((_, round)) = self.answered.pop_front_if(|(entry, _)| *entry <= has) {
            self.reads.beside.confirm(round, false);
        }
    }

    /// Whether a vote, for another member or for itself, is asked of a member that has begun so lately that a leader
    /// may still have a lease of it.
    pub(crate) fn may_have_leased(&self, message: &Message) -> bool {
        let asks = matches!(
            message.get_msg_type(),
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote | MessageType::MsgTimeoutNow
        );
        asks && self.ticks < self.leased_ticks
    }

    /// Notes that a message of this member's leader has come: from now on the leader may rely on its vote.
    pub(crate) fn note_heard(&mut self, from: u64, term: u64) {
        let raft = &self.raw.raft;
        if raft.state == StateRole::Follower && (raft.leader_id, raft.term) == (from, term) {
            self.heard = Some(self.ticks);
        }
    }

    /// Whether a message would move a follower on to a newer term, without a leader, while one may have a lease of it.
    /// Raft counts the promise to vote for nobody else from its leader's word, and forgets the leader with such a
    /// message: one that has refused another member's pre-vote is enough. What comes from a leader of the newer term
    /// was agreed on by a majority, and a vote that the leader itself asks for ends its lease.
    pub(crate) fn has_promised(&self, message: &Message) -> bool {
        let raft = &self.raw.raft;
        let is_newer = message.term > raft.term && raft.state == StateRole::Follower;
        let is_by_leader = is_of_leader(message) || message.context[..] == *CAMPAIGN_TRANSFER;
        let has_heard = self.heard.is_some_and(|heard| self.ticks < heard + self.election_ticks);
        !self.leases.is_zero() && is_newer && !is_by_leader && has_heard
    }

    /// Whether the member's election timeout goes on: it ends behind all leases from before this member has begun. They
    /// may be longer than it is now, when the group's directives have changed. A member that nobody has named does not
    /// campaign.
    pub(crate) fn may_campaign(&self) -> bool {
        self.ticks + self.election_ticks > self.leased_ticks && self.ballot.unnamed().is_none()
    }

    /// Notes, when leases from before have ended that were longer, that those of now are all.
    pub(crate) fn note_leases_ended(&mut self) -> Result<(), Fault> {
        if self.ticks >= self.leased_ticks && self.ballot.leased() > self.leases {
            self.ballot.lease(self.leases)?;
        }
        Ok(())
    }

    /// Returns for how long from its beginning a member votes for nobody, where that is longer than an election
    /// timeout.
    pub fn withholds(&self) -> Option<Duration> {
        (self.leased_ticks > self.election_ticks).then_some(self.leased_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{ELECTION_TICKS, hear, member, message};

    /// Has a member that follows member 2 in term 1 hear that another one, a candidate of term 2, refuses its pre-vote.
    fn refuse_pre_vote(member: &mut Member<crate::trial::Data>) {
        let refused = message(MessageType::MsgRequestPreVoteResponse, 3, 2);
        hear(member, Message { reject: true, ..refused });
    }

    /// Returns a candidate's request to vote for it in term 2.
    fn request() -> Message {
        Message { index: 1, log_term: 1, ..message(MessageType::MsgRequestVote, 3, 2) }
    }

    #[test]
    fn a_refused_pre_vote_ends_no_promise() {
        let mut member = member(true);
        hear(&mut member, message(MessageType::MsgHeartbeat, 2, 1));
        for _ in 0..ELECTION_TICKS {
            refuse_pre_vote(&mut member);
            hear(&mut member, request());
            assert_eq!((member.leader(), member.standing().term), (2, 1), "its leader may have a lease");
            member.tick().expect("nothing is broken");
        }
        refuse_pre_vote(&mut member);
        assert_eq!((member.leader(), member.standing().term), (INVALID_ID, 2), "its promise has ended");
    }

    #[test]
    fn a_promise_lasts_no_longer_than_its_leader_wants() {
        let mut member = member(true);
        hear(&mut member, message(MessageType::MsgHeartbeat, 2, 1));
        hear(&mut member, Message { context: CAMPAIGN_TRANSFER.to_vec().into(), ..request() });
        assert_eq!(member.ballot.vote().vote, 3, "its leader hands over");
        // Without the new leader's word the promise to the one of before goes on.
        hear(&mut member, Message { reject: true, ..message(MessageType::MsgRequestPreVoteResponse, 4, 3) });
        assert_eq!(member.standing().term, 2);
        hear(&mut member, message(MessageType::MsgHeartbeat, 4, 3));
        assert_eq!((member.leader(), member.standing().term), (4, 3), "a majority has elected it");
    }

    #[test]
    fn without_leases_nothing_is_promised() {
        let mut member = member(false);
        hear(&mut member, message(MessageType::MsgHeartbeat, 2, 1));
        refuse_pre_vote(&mut member);
        assert_eq!((member.leader(), member.standing().term), (INVALID_ID, 2));
    }
}
