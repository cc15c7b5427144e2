//! The data as a whole: backups, and data that are opened again.

use crate::clients::acts::Act;
use crate::run::host::Desk;
use haypile_commands::host::{BackupBegun, Reload, Storage};
use haypile_commands::{Error, Result};

impl Storage for Desk<'_, '_> {
    fn has_disk(&self) -> bool {
        self.engine.settings.config().engine != haypile_config::Engine::Memory
    }

    fn reload(&mut self, how: Reload) -> Result<()> {
        if self.txn.is_some() {
            return Err(Error::text("ERR data cannot be opened again inside a transaction"));
        }
        self.state.reload = Some(how);
        Ok(())
    }

    fn begin_backup(&mut self) -> Result<BackupBegun> {
        if self.txn.is_none() {
            return self.engine.begin_backup();
        }
        self.engine.can_begin_backup()?;
        self.state.acts.add(Act::ScheduleBackup);
        Ok(BackupBegun::Later)
    }

    fn last_backup_s(&self) -> u64 {
        self.engine.backups.last_s()
    }
}
