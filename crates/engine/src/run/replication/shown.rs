//! Connections of replication in CLIENT LIST, which no event loop serves, and their end by CLIENT KILL.

use crate::clients::client::{Client, Names, Peer, PeerServer};
use crate::run::engine::Engine;
use haypile_commands::host::ClientType;
use std::sync::Arc;

impl Engine {
    /// Shows a connection of replication, or of somebody who follows the changes, among the clients, until what is
    /// returned is dropped. CLIENT KILL calls `end`, and so does the end of the user that it is logged in as.
    pub fn show_server(
        &self,
        kind: ClientType,
        peer: Peer,
        names: &Arc<Names>,
        end: impl Fn() + Send + Sync + 'static,
    ) -> ShownServer<'_> {
        let command: Option<&[u8]> = match kind {
            ClientType::Replica => Some(b"replconf"),
            ClientType::Normal => Some(b"changes.follow"),
            _ => None,
        };
        let (id, server) = (self.next_session(), PeerServer { kind, end: Box::new(end) });
        let command = command.and_then(|name| self.table.find(name)).map(|entry| entry.id);
        let client = Arc::new(Client::of_server(id, 0, peer, self.now_ms(), server, command));
        client.show_names(names);
        self.clients.add(client.clone());
        // The server's user may have been removed before the server was shown.
        if let Some(user) = &names.user
            && self.users().get(user).is_none()
        {
            self.close_client(&client);
        }
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
