//! The data as a whole: backups, and data that are opened again.

use crate::run::host::SessionHost;
use haypile_commands::host::Storage;

impl Storage for SessionHost<'_, '_> {
    fn has_disk(&self) -> bool {
        self.engine.settings.config().engine != haypile_config::Engine::Memory
    }

    fn last_backup_s(&self) -> u64 {
        self.engine.backups.last_s()
    }
}
