//! The messages of other members, among them those that Raft is not to have, and word that a long one is on its way.

use crate::machine::{Fault, Machine};
use crate::member::{Member, damaged};
use crate::reads::unpack;
use crate::wire::{Envelope, is_of_leader, travels};
use raft::eraftpb::{Message, MessageType};
use raft::{INVALID_ID, StateRole};

/// Election timeouts in which a member that has begun with nothing waits to be filled before it votes for whoever has
/// more.
const FILL_TIMEOUTS: usize = 10;

/// The context of a follower's word to its leader that it hears it; those of rounds are longer.
const HEARS: &[u8] = b"hears";

/// Terms that are further ahead than this are none that elections have come to.
const TERMS_AHEAD_MAX: u64 = 1 << 32;

impl<M: Machine> Member<M> {
    /// A message of another member. One that makes no sense is passed over.
    pub fn receive(&mut self, envelope: Envelope) -> Result<(), Fault> {
        let Envelope { message, entries } = envelope;
        let raft = &self.raw.raft;
        // A member that was away may not know all those that came meanwhile.
        let is_other = message.from != raft.id && message.from != INVALID_ID;
        if message.to != raft.id || !is_other || !travels(message.get_msg_type()) {
            return Ok(());
        }
        if message.term > raft.term.saturating_add(TERMS_AHEAD_MAX) {
            return Ok(());
        }
        if message.get_msg_type() == MessageType::MsgHeartbeat
            && message.term >= raft.term
            && message.commit > raft.raft_log.last_index()
        {
            let (had, last) = (message.commit, raft.raft_log.last_index());
            return Err(damaged(format!(
                "the leader knows that this member had entries through {had}, and it has {last}: its log was lost, and it \
                 must be replaced"
            )));
        }
        if message.get_msg_type() == MessageType::MsgSnapshot {
            return self.hear_of_copy(message);
        }
        self.note_unnamed(&message);
        let waits = self.may_have_forgotten(&message)
            || self.is_unnamed_for(&message)
            || self.may_have_leased(&message)
            || self.has_promised(&message);
        if waits || self.hears(&message) {
            return Ok(());
        }
        let raft = &self.raw.raft;
        // Raft would hand on what is asked of a leader that leads no more, in the name of the one who asks.
        if message.get_msg_type() == MessageType::MsgReadIndex && raft.state != StateRole::Leader {
            return Ok(());
        }
        self.received = entries.into_iter().map(|entry| (entry.span.number, entry)).collect();
        let (from, term, is_of_leader) = (message.from, message.term, is_of_leader(&message));
        // A message that Raft refuses is as if it had been lost.
        drop(self.raw.step(unpack(message)));
        if is_of_leader {
            self.note_heard(from, term);
        }
        let done = self.work();
        self.received.clear();
        done
    }

    /// Whether a vote is asked of a member that has begun with nothing and has not been filled yet, by one that has
    /// more. A member that has lost its disk would take back what it has acknowledged: a leader fills it first, for
    /// which there is a while. The first entry of a group has no data.
    fn may_have_forgotten(&self, message: &Message) -> bool {
        let asks = matches!(message.get_msg_type(), MessageType::MsgRequestVote | MessageType::MsgRequestPreVote);
        let has_less = message.index > self.raw.raft.raft_log.last_index().max(1);
        asks && has_less && !self.ballot.is_filled() && self.ticks < FILL_TIMEOUTS * self.election_ticks
    }

    /// Notes that this member has all that any leader before has had: an entry of a leader that it has heard of is
    /// committed, and that leader began with all that was.
    pub(crate) fn note_filled(&mut self) -> Result<(), Fault> {
        let raft = &self.raw.raft;
        let has_leader = raft.leader_id != INVALID_ID && raft.commit_to_current_term();
        if has_leader && !self.ballot.is_filled() && self.machine.log().synced() >= self.committed {
            self.ballot.fill()?;
        }
        Ok(())
    }

    /// Bytes of a leader's message of this term have come, and not yet all: it is there, and its heartbeats are behind
    /// them. It is told that this member is there, too.
    pub fn on_bytes_of(&mut self, id: u64, term: u64) -> Result<(), Fault> {
        let raft = &mut self.raw.raft;
        if raft.state == StateRole::Follower && raft.leader_id == id && raft.term == term {
            raft.election_elapsed = 0;
            self.heard = Some(self.ticks);
            let (from, context) = (raft.id, HEARS.to_vec().into());
            let mut word = Message { from, to: id, term, context, ..Message::default() };
            word.set_msg_type(MessageType::MsgHeartbeatResponse);
            self.send(vec![word]);
        }
        self.work()
    }

    /// Takes the word of a member that hears a long message of this leader. It is none for Raft, which would send again
    /// what is on its way.
    fn hears(&mut self, message: &Message) -> bool {
        let hears = message.get_msg_type() == MessageType::MsgHeartbeatResponse && message.context[..] == *HEARS;
        let raft = &mut self.raw.raft;
        if hears
            && raft.state == StateRole::Leader
            && raft.term == message.term
            && let Some(of) = raft.mut_prs().get_mut(message.from)
        {
            of.recent_active = true;
        }
        hears
    }

    /// A message to this member was lost.
    pub fn on_unreachable(&mut self, id: u64) -> Result<(), Fault> {
        self.raw.report_unreachable(id);
        self.work()
    }
}
