//! The directives of a member of a Raft group.

use super::choices::{FOLLOWER_READS, RAFT_READS, RAFT_USERS};
use super::fields::Fields;

/// The directives of a member of a Raft group.
#[derive(Clone, Debug, PartialEq)]
pub struct Raft {
    /// The member's number; 0 if the server is in no group.
    pub node_id: u64,
    /// The members with which the group begins, as they were written.
    pub peers: String,
    pub election_ms: u64,
    pub heartbeat_ms: u64,
    /// Whether a leader relies on a lease for reads.
    pub leases: bool,
    /// Whether users are the group's, and not each member's own.
    pub has_users: bool,
    /// Whether a member that does not lead hands clients on to the leader.
    pub proxies: bool,
    /// Whether a read on a member that does not lead waits until it misses nothing.
    pub reads_beside_miss_nothing: bool,
    reads_when_down: bool,
}

impl Raft {
    pub(super) fn read(fields: &mut Fields) -> Raft {
        Raft {
            node_id: fields.int("raft-node-id"),
            peers: fields.printed("raft-peers"),
            election_ms: fields.int("raft-election-timeout"),
            heartbeat_ms: fields.int("raft-heartbeat-interval"),
            leases: fields.choice("raft-read", RAFT_READS),
            has_users: fields.choice("raft-users", RAFT_USERS),
            proxies: fields.bool("raft-follower-proxy"),
            reads_beside_miss_nothing: fields.choice("raft-follower-reads", FOLLOWER_READS),
            reads_when_down: fields.bool("cluster-allow-reads-when-down"),
        }
    }

    /// Returns whether a member that knows no leader serves clients that have said READONLY: nobody can tell it what it
    /// misses then.
    pub fn reads_when_down(&self) -> bool {
        self.reads_when_down && !self.reads_beside_miss_nothing
    }

    /// Returns whether the server is a member of a group.
    pub fn is_member(&self) -> bool {
        self.node_id > 0
    }
}
