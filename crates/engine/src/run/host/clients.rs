//! All clients: CLIENT LIST, KILL, PAUSE and UNBLOCK.

use crate::clients::acts::Act;
use crate::clients::blocked::Unblock;
use crate::clients::client::Asker;
use crate::clients::session::Effect;
use crate::run::host::Desk;
use haypile_commands::host::{ClientFilter, Clients, Paused};
use haypile_commands::{Error, Result};
use haypile_store::Stop;
use std::collections::HashSet;

/// Lines of CLIENT LIST that an event loop makes by itself: each takes some microseconds.
const LINES_AT_ONCE: u64 = 128;

impl Clients for Desk<'_, '_> {
    fn clients(&mut self, filter: &ClientFilter) -> Result<String> {
        let engine = self.engine;
        // Without data there is no I/O pool yet.
        let is_long = filter.ids.is_none() && engine.connected() > LINES_AT_ONCE && engine.store().is_some();
        if is_long && !self.may_wait {
            return Err(Error::Stop(Stop::Long));
        }
        let asker = Asker { id: self.session, names: &self.state.names };
        Ok(engine.clients.list(filter, asker, &engine.table, engine.now_ms()))
    }

    fn kill_clients(&mut self, filter: &ClientFilter) -> usize {
        let mut clients = self.engine.clients.find(filter, self.session);
        // Who is closed by an earlier command of the same block is not found again.
        let closed = |effect: &Effect| if let Effect::Close(closed) = effect { Some(closed.id) } else { None };
        let closed: HashSet<u64> = self.state.effects.iter().filter_map(closed).collect();
        clients.retain(|client| !closed.contains(&client.id));
        let count = clients.len();
        for client in clients {
            match client.id == self.session {
                true => self.state.closing = true,
                false => self.changing().effects.push(Effect::Close(client)),
            }
        }
        count
    }

    fn pause(&mut self, until_ms: u64, what: Paused) {
        self.state.acts.add(Act::Pause { until_ms, what });
    }

    fn unpause(&mut self) {
        self.state.acts.add(Act::Unpause);
    }

    fn unblock(&mut self, client: u64, with_error: bool) -> bool {
        let how = if with_error { Unblock::Error } else { Unblock::Timeout };
        if self.txn.is_none() {
            return self.engine.unblock(client, how);
        }
        // A block may have to run again, and is to answer the same.
        let is_blocked = self.engine.is_blocked(client);
        if is_blocked {
            self.changing().effects.push(Effect::Unblock(client, how));
        }
        is_blocked
    }
}
