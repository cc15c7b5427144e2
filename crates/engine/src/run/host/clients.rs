//! All clients: CLIENT LIST, KILL, PAUSE and UNBLOCK.

use crate::clients::client::Asker;
use crate::run::host::SessionHost;
use haypile_commands::host::{ClientFilter, Clients};
use haypile_commands::{Error, Result};
use haypile_store::Stop;

/// Lines of CLIENT LIST that an event loop makes by itself: each takes some microseconds.
const LINES_AT_ONCE: u64 = 128;

impl Clients for SessionHost<'_, '_> {
    fn clients(&self, filter: &ClientFilter) -> Result<String> {
        let engine = self.engine;
        // Without data there is no I/O pool yet.
        let is_long = filter.ids.is_none() && engine.connected() > LINES_AT_ONCE && engine.store().is_some();
        if is_long && !self.may_wait {
            return Err(Error::Stop(Stop::Long));
        }
        let asker = Asker { id: self.session, names: &self.state.names };
        Ok(engine.clients.list(filter, asker, &engine.table, engine.now_ms()))
    }

    fn find_clients(&self, filter: &ClientFilter) -> Vec<u64> {
        let now_ms = self.engine.now_ms();
        let found = self.engine.clients.find(filter, self.session, now_ms).into_iter().map(|client| client.id);
        found.filter(|&id| !self.state.acts.closes(id)).collect()
    }

    fn is_blocked(&self, client: u64) -> bool {
        self.engine.is_blocked(client)
    }
}
