//! The facts of a member, for those who ask.

use haypile_log::Index;

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
    /// Of a leader: the other members.
    pub peers: Vec<PeerStanding>,
}

/// Another member, as its leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStanding {
    pub id: u64,
    /// The last entry that it is known to have.
    pub matched: u64,
    /// Whether it was heard of lately.
    pub is_heard: bool,
    /// Whether it needs a copy.
    pub needs_copy: bool,
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
