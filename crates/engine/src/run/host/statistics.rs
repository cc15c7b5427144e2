//! Statistics: INFO, SLOWLOG and LATENCY.

use crate::run::host::SessionHost;
use haypile_commands::CommandId;
use haypile_commands::host::{CommandTimes, InfoSection, LatencyEvent, SlowCall, Statistics};

impl Statistics for SessionHost<'_, '_> {
    fn slowlog(&self, count: usize) -> Vec<SlowCall> {
        if self.state.acts.resets_slowlog() { Vec::new() } else { self.engine.statistics.slowlog.newest(count) }
    }

    fn slowlog_len(&self) -> usize {
        if self.state.acts.resets_slowlog() { 0 } else { self.engine.statistics.slowlog.len() }
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
