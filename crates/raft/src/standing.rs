//! The facts of a member, for those who ask.

use haypile_log::Index;
use std::collections::BTreeMap;

/// The part that a member has in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Follower,
    /// The member asks others whether they would vote for it, or to do so.
    Candidate,
    /// The member was elected, and has not committed anything yet: nobody is served.
    Elected,
    /// The member leads, and clients are served.
    Leader,
}

/// The facts of a member, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub role: Role,
    pub term: u64,
    /// 0 for none that is known.
    pub leader: u64,
    /// Entries.
    pub first: u64,
    pub last: u64,
    pub commit: u64,
    /// The record of the last committed entry.
    pub committed: Index,
    /// The copies that this member has put in the place of its data.
    pub copies: u64,
    /// Whether this member has begun with restored data, and no record of a leader has named it since.
    pub is_unnamed: bool,
    /// Of a leader: the other members.
    pub peers: Vec<PeerStanding>,
}

/// A member, as its leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStanding {
    pub id: u64,
    /// The last entry that it is known to have.
    pub matched: u64,
    /// Whether the member was heard of within the last two election timeouts.
    pub is_heard: bool,
    /// Whether the member needs a copy.
    pub needs_copy: bool,
}

/// Whom a leader hears of, from tick to tick. Raft's own note of that begins anew at each check of the quorum, once in
/// an election timeout: for a moment it has nobody.
#[derive(Debug, Default)]
pub(crate) struct Hearing {
    term: u64,
    /// The last tick at which Raft had a member in its note.
    noted: BTreeMap<u64, usize>,
}

impl Hearing {
    /// Notes the members that Raft has heard of by this tick, in a term in which this member leads.
    pub fn note(&mut self, term: u64, tick: usize, heard: impl Iterator<Item = u64>) {
        if self.term != term {
            (self.term, self.noted) = (term, BTreeMap::new());
        }
        self.noted.extend(heard.map(|id| (id, tick)));
    }

    /// Returns whether a member was noted less than so many ticks ago, in this term.
    pub fn has(&self, term: u64, id: u64, tick: usize, within: usize) -> bool {
        self.term == term && self.noted.get(&id).is_some_and(|noted| tick - noted < within)
    }
}

/// The copy that a member needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The member that has it.
    pub from: u64,
    /// The first entry of which the copy is needed: what comes behind may be had otherwise.
    pub least: u64,
    /// The last entry that it has, at least.
    pub through: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_heard_of_for_a_while_and_in_one_term() {
        let mut hearing = Hearing::default();
        hearing.note(7, 10, [2, 3].into_iter());
        hearing.note(7, 15, [3].into_iter());
        assert!(hearing.has(7, 2, 15, 6) && !hearing.has(7, 2, 16, 6) && hearing.has(7, 3, 16, 6));
        assert!(!hearing.has(8, 3, 16, 6) && !hearing.has(7, 4, 16, 6));
        hearing.note(9, 17, [2].into_iter());
        assert!(hearing.has(9, 2, 17, 6) && !hearing.has(9, 3, 17, 6), "nothing is left of the term before");
    }
}
