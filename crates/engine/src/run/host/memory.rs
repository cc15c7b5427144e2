//! The memory of the process.

use crate::clients::acts::Act;
use crate::run::host::Desk;
use haypile_commands::host::{Memory, MemoryFacts};
use haypile_commands::{Error, Result};
use haypile_store::Stop;

impl Memory for Desk<'_, '_> {
    fn memory(&self) -> MemoryFacts {
        self.engine.memory_facts(self.txn.as_deref())
    }

    fn allocator_report(&self) -> String {
        (self.engine.process.allocator.report)()
    }

    fn purge_memory(&mut self) -> Result<()> {
        if !self.may_wait {
            return Err(Error::Stop(Stop::Long));
        }
        self.state.acts.add(Act::PurgeMemory);
        Ok(())
    }
}
