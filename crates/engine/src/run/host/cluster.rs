//! The group that the server is a member of, as CLUSTER shows it.

use crate::run::group::host_and_port;
use crate::run::host::SessionHost;
use haypile_commands::host::{Cluster, ClusterFacts, ClusterNode};

impl Cluster for SessionHost<'_, '_> {
    fn cluster(&self) -> Option<ClusterFacts> {
        if !self.engine.group.is_member() {
            return None;
        }
        let facts = self.engine.group.facts().unwrap_or_default();
        let nodes = self.engine.group.nodes().into_iter().map(|node| {
            let (host, port) = host_and_port(&node.address);
            ClusterNode {
                id: node.id,
                host: host.to_owned(),
                port,
                is_self: node.is_self,
                is_leader: node.is_leader,
                is_linked: node.is_linked,
                offset: node.last,
            }
        });
        let is_up = facts.leader != 0;
        Some(ClusterFacts { nodes: nodes.collect(), shard: facts.group, epoch: facts.term, is_up })
    }
}
