//! The memory of the process.

use crate::run::host::SessionHost;
use haypile_commands::host::{Memory, MemoryFacts};

impl Memory for SessionHost<'_, '_> {
    fn memory(&self) -> MemoryFacts {
        self.engine.memory_facts(self.txn.as_deref())
    }

    fn allocator_report(&self) -> String {
        (self.engine.process.allocator.report)()
    }
}
