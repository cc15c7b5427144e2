//! The process: SHUTDOWN, and what DEBUG does to it.

use crate::clients::acts::Act;
use crate::run::host::Desk;
use haypile_commands::host::{DebugAccess, Process, Shutdown};
use haypile_commands::{Error, Result};
use haypile_config::Protected;

impl Process for Desk<'_, '_> {
    fn debug_access(&self) -> DebugAccess {
        match self.engine.settings.config().debug_command {
            Protected::No => DebugAccess::No,
            Protected::Yes => DebugAccess::Yes,
            Protected::Local => DebugAccess::Local,
        }
    }

    fn set_active_expire(&mut self, is_on: bool) {
        self.state.acts.add(Act::SetActiveExpire(is_on));
    }

    fn log_line(&mut self, text: &[u8]) {
        self.state.acts.add(Act::LogLine(text.to_vec()));
    }

    fn crash(&mut self, why: &str) {
        self.state.acts.add(Act::Crash(why.into()));
    }

    fn shutdown(&mut self, how: Shutdown) -> Result<()> {
        self.engine.request_shutdown(how)
    }

    fn abort_shutdown(&mut self) -> Result<()> {
        Err(Error::text("ERR No shutdown in progress."))
    }
}
