//! Replication, as ROLE and REPLCONF ask for it.

use crate::run::group::Leader;
use crate::run::host::SessionHost;
use crate::run::replication::facts::Link;
use haypile_commands::host::{Replication, Role};

impl Replication for SessionHost<'_, '_> {
    fn role(&self) -> Role {
        if let Some(role) = self.engine.role_in_group() {
            return role;
        }
        let offset = self.engine.store().map_or(0, |store| store.log().last().0);
        match self.engine.upstream() {
            Some(upstream) => {
                let state = match upstream.link {
                    Link::Connect(_) => "connect",
                    Link::Handshake => "connecting",
                    Link::Copy { .. } => "sync",
                    Link::Connected => "connected",
                };
                let offset = upstream.origin.map_or(offset, |origin| origin.offset);
                Role::Replica { host: upstream.master.host, port: upstream.master.port, state, offset }
            }
            None => {
                let replicas = self.engine.replication.downstream().into_iter();
                let replicas = replicas.map(|replica| (replica.host, replica.port, replica.applied.0)).collect();
                Role::Master { offset, replicas }
            }
        }
    }

    fn hello(&self) -> Option<Vec<String>> {
        self.engine.replication.hello()
    }

    fn led_group(&self) -> Option<String> {
        let leads = self.engine.group.leader_now() == Leader::Here;
        self.engine.group.facts().filter(|_| leads).map(|facts| facts.group)
    }
}
