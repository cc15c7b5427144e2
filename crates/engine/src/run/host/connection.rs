//! The connection of the running command.

use crate::run::host::Desk;
use haypile_commands::host::{Connection, Library, Replies};
use haypile_commands::{Error, Result};
use haypile_resp::Protocol;
use std::sync::Arc;

impl Connection for Desk<'_, '_> {
    fn client_id(&self) -> u64 {
        self.session
    }

    fn client_name(&self) -> &[u8] {
        &self.state.names.name
    }

    fn set_client_name(&mut self, name: &[u8]) {
        Arc::make_mut(&mut self.changing().names).name = name.to_vec();
    }

    fn set_library(&mut self, part: Library, value: &[u8]) {
        let names = Arc::make_mut(&mut self.changing().names);
        match part {
            Library::Name => names.library_name = value.to_vec(),
            Library::Version => names.library_version = value.to_vec(),
        }
    }

    fn protocol(&self) -> Protocol {
        self.state.protocol
    }

    fn set_protocol(&mut self, protocol: Protocol) {
        self.changing().protocol = protocol;
    }

    fn databases(&self) -> u32 {
        self.engine.databases
    }

    fn is_local(&self) -> bool {
        self.state.is_local
    }

    fn select(&mut self, index: u32) {
        self.state.database = index;
        if let Some(txn) = &mut self.txn {
            txn.select(index);
        }
    }

    fn close_after_reply(&mut self) {
        self.state.closing = true;
    }

    fn set_replies(&mut self, replies: Replies) {
        let now = self.state.replies;
        // Who gets no replies at all skips none.
        if !(replies == Replies::SkipNext && now == Replies::Off) {
            self.state.replies = replies;
        }
    }

    fn set_no_evict(&mut self, on: bool) {
        self.state.no_evict = on;
    }

    fn set_no_touch(&mut self, on: bool) {
        self.state.no_touch = on;
        if let Some(txn) = &mut self.txn {
            txn.set_touching(!on);
        }
    }

    fn monitor(&mut self) -> Result<bool> {
        if self.txn.is_some() {
            return Err(Error::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
        }
        Ok(!std::mem::replace(&mut self.changing().monitors, true))
    }

    fn is_bound_to_channels(&self) -> bool {
        self.state.is_bound()
    }

    fn is_in_block(&self) -> bool {
        self.txn.is_some()
    }
}
