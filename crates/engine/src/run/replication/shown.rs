//! Connections of replication in CLIENT LIST, which no event loop serves, and their end by CLIENT KILL.

use crate::clients::client::{Client, Peer, PeerServer};
use crate::run::engine::Engine;
use haypile_commands::host::ClientType;
use std::sync::Arc;

impl Engine {
    /// Shows a connection of replication among the clients, until what is returned is dropped. CLIENT KILL calls
    /// `end`.
    pub fn show_server(&self, kind: ClientType, peer: Peer, end: impl Fn() + Send + Sync + 'static) -> ShownServer<'_> {
        let replconf = (kind == ClientType::Replica).then(|| self.table.find(b"replconf")).flatten();
        let (id, server) = (self.next_session(), PeerServer { kind, end: Box::new(end) });
        let command = replconf.map(|entry| entry.id);
        self.clients.add(Arc::new(Client::of_server(id, peer, self.now_ms(), server, command)));
        ShownServer(self, id)
    }
}

/// A connection of replication that is shown among the clients.
pub struct ShownServer<'e>(&'e Engine, u64);

impl Drop for ShownServer<'_> {
    fn drop(&mut self) {
        self.0.clients.remove(self.1);
    }
}
