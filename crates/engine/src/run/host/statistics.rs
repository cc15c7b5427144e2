//! Statistics: INFO, SLOWLOG, LATENCY and CONFIG RESETSTAT.

use crate::clients::acts::Act;
use crate::run::host::Desk;
use haypile_commands::CommandId;
use haypile_commands::host::{CommandTimes, InfoSection, LatencyEvent, SlowCall, Statistics};

impl Statistics for Desk<'_, '_> {
    fn reset_statistics(&mut self) {
        self.state.acts.add(Act::ResetStatistics);
    }

    fn slowlog(&self, count: usize) -> Vec<SlowCall> {
        if self.state.acts.resets_slowlog() { Vec::new() } else { self.engine.statistics.slowlog.newest(count) }
    }

    fn slowlog_len(&self) -> usize {
        if self.state.acts.resets_slowlog() { 0 } else { self.engine.statistics.slowlog.len() }
    }

    fn reset_slowlog(&mut self) {
        self.state.acts.add(Act::ResetSlowlog);
    }

    fn latency_events(&self) -> Vec<LatencyEvent> {
        let mut events = self.engine.statistics.monitor.events();
        events.retain(|event| !self.state.acts.resets_latency_of(event.name));
        events
    }

    fn reset_latency(&mut self, names: &[&[u8]]) -> usize {
        let is_named = |event: &LatencyEvent| names.is_empty() || names.contains(&event.name.as_bytes());
        let count = self.latency_events().into_iter().filter(is_named).count();
        self.state.acts.add(Act::ResetLatency(names.iter().map(|name| name.to_vec()).collect()));
        count
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
