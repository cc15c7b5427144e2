//! The cluster that the server is a node of, as CLUSTER shows it.

/// The server's part in a cluster.
pub trait Cluster {
    /// The cluster as this node sees it; None of a server that is in none.
    fn cluster(&self) -> Option<ClusterFacts>;
}

/// A cluster of one shard, whose leader has all slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    /// The shard's name: 40 hex digits that never change, the same on all nodes.
    pub shard: String,
    /// A number that rises with each new leader.
    pub epoch: u64,
    /// Whether a leader is known.
    pub is_up: bool,
    /// All nodes, this one included, by their numbers.
    pub nodes: Vec<ClusterNode>,
}

/// A node of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterNode {
    /// The number, which never changes.
    pub id: u64,
    pub host: String,
    pub port: u16,
    pub is_self: bool,
    /// The node has all slots: it leads, or it led last while no leader is known. At most one node has them.
    pub is_leader: bool,
    /// Whether the node was heard of lately, or this node cannot know.
    pub is_linked: bool,
    /// The last entry that the node is known to have.
    pub offset: u64,
}
