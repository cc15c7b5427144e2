//! The process.

use crate::run::host::SessionHost;
use haypile_commands::host::{DebugAccess, Process};
use haypile_config::Protected;

impl Process for SessionHost<'_, '_> {
    fn debug_access(&self) -> DebugAccess {
        match self.engine.settings.config().debug_command {
            Protected::No => DebugAccess::No,
            Protected::Yes => DebugAccess::Yes,
            Protected::Local => DebugAccess::Local,
        }
    }
}
