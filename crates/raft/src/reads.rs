//! The rounds of reads, and the questions about them as they go through Raft and over the network.

use crate::rounds::{Round, Rounds};
use raft::eraftpb::{Entry, Message, MessageType};

/// The rounds of reads, shared by those who read.
#[derive(Debug, Default)]
pub struct Reads {
    /// Reads of a leader: who has read waits.
    pub led: Rounds,
    /// Reads beside the leader: who is about to read waits. A round is confirmed when the data have all that the group
    /// had agreed on when it was closed, or later.
    pub beside: Rounds,
}

/// A question to the leader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub round: Round,
    /// The member that was asked, and the tick.
    pub leader: u64,
    pub asked: usize,
}

/// A round of a leader, as it goes through Raft.
pub(crate) fn own_context(round: Round) -> Vec<u8> {
    round.number.to_le_bytes().to_vec()
}

/// A round of another member: the leader's are shorter. What Raft remembers of a question must not count for one of a
/// later life of the member.
pub(crate) fn context_of(member: u64, life: u64, round: Round) -> Vec<u8> {
    [member.to_le_bytes(), life.to_le_bytes(), round.number.to_le_bytes()].concat()
}

/// Puts what Raft has in an entry into the context, which travels.
pub(crate) fn pack(mut message: Message) -> Message {
    if is_question(&message)
        && let Some(entry) = message.mut_entries().pop()
    {
        message.context = entry.data;
    }
    message
}

/// Puts the context where Raft has it.
pub(crate) fn unpack(mut message: Message) -> Message {
    if is_question(&message) {
        let data = std::mem::take(&mut message.context);
        message.set_entries(vec![Entry { data, ..Entry::default() }].into());
    }
    message
}

/// Returns whether this is a question how far the group is, or the answer.
fn is_question(message: &Message) -> bool {
    matches!(message.get_msg_type(), MessageType::MsgReadIndex | MessageType::MsgReadIndexResp)
}
