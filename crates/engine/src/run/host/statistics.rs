//! Statistics: INFO, SLOWLOG and LATENCY.

use crate::run::host::SessionHost;
use haypile_commands::host::{CommandLog, CommandTimes, InfoSection, LatencyEvent, LoggedCall, Statistics};
use haypile_commands::{CommandId, Error, Result};
use haypile_store::Stop;

impl Statistics for SessionHost<'_, '_> {
    fn logged_calls(&self, log: CommandLog, count: usize) -> Vec<LoggedCall> {
        if self.state.acts.resets_log(log) { Vec::new() } else { self.engine.statistics.log(log).newest(count) }
    }

    fn logged_count(&self, log: CommandLog) -> usize {
        if self.state.acts.resets_log(log) { 0 } else { self.engine.statistics.log(log).len() }
    }

    fn latency_events(&self) -> Vec<LatencyEvent> {
        let mut events = self.engine.statistics.monitor.events();
        events.retain(|event| !self.state.acts.resets_latency_of(event.name));
        events
    }

    fn command_times(&self, id: CommandId) -> Option<CommandTimes> {
        (self.engine.pages.command_times)(self.engine, id)
    }

    fn info_sections(&self) -> &'static [InfoSection] {
        self.engine.pages.sections
    }

    fn expect_wait(&self) -> Result<()> {
        // Without data there is nothing to ask, and no I/O pool.
        let may_wait = self.may_wait || self.engine.store().is_none();
        if may_wait { Ok(()) } else { Err(Error::Stop(Stop::Long)) }
    }

    fn info(&self, section: &str, out: &mut String) {
        (self.engine.pages.write)(self.engine, self.txn.as_deref(), section, out);
    }
}
