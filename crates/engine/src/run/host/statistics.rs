//! Statistics: INFO, SLOWLOG and LATENCY.

use crate::run::host::SessionHost;
use haypile_commands::CommandId;
use haypile_commands::host::{CommandLog, CommandTimes, InfoSection, LatencyEvent, LoggedCall, Statistics};

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

    fn info(&self, section: &str, out: &mut String) {
        (self.engine.pages.write)(self.engine, self.txn.as_deref(), section, out);
    }
}
