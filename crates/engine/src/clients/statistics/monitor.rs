//! Events that took long, as LATENCY shows them: for each kind of event, by Redis's name where Redis has it, the last
//! samples above `latency-monitor-threshold`.

use haypile_commands::host::{LatencyEvent, LatencySample};
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Samples of an event, as in Redis.
const SAMPLES_MAX: usize = 160;

#[derive(Default)]
pub(crate) struct Monitor(Mutex<BTreeMap<&'static str, Samples>>);

#[derive(Default)]
struct Samples {
    /// The samples, the oldest first; one for each second, the worst.
    kept: VecDeque<LatencySample>,
    max_ms: u64,
}

impl Monitor {
    #[cold]
    pub fn add(&self, event: &'static str, time_s: u64, ms: u64) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = events.entry(event).or_default();
        samples.max_ms = samples.max_ms.max(ms);
        match samples.kept.back_mut() {
            Some(last) if last.time_s == time_s => last.ms = last.ms.max(ms),
            _ => {
                if samples.kept.len() == SAMPLES_MAX {
                    samples.kept.pop_front();
                }
                samples.kept.push_back(LatencySample { time_s, ms });
            }
        }
    }

    /// All events that have samples, by name.
    pub fn events(&self) -> Vec<LatencyEvent> {
        let events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let event = |(name, samples): (&&'static str, &Samples)| LatencyEvent {
            name,
            max_ms: samples.max_ms,
            samples: samples.kept.iter().copied().collect(),
        };
        events.iter().map(event).collect()
    }

    /// Forgets these events, or all if none is named; how many there were.
    pub fn reset(&self, names: &[&[u8]]) -> usize {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = events.len();
        events.retain(|name, _| !names.is_empty() && !names.contains(&name.as_bytes()));
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_one_sample_the_worst() {
        let monitor = Monitor::default();
        [(1, 5), (1, 9), (1, 7), (2, 3)].iter().for_each(|(time_s, ms)| monitor.add("command", *time_s, *ms));
        let [event] = &monitor.events()[..] else { panic!("one event happened") };
        assert_eq!(event.samples, [LatencySample { time_s: 1, ms: 9 }, LatencySample { time_s: 2, ms: 3 }]);
        assert_eq!((event.name, event.max_ms), ("command", 9));
    }

    #[test]
    fn samples_are_bounded_and_the_maximum_is_of_all_time() {
        let monitor = Monitor::default();
        (0..SAMPLES_MAX as u64 + 10).for_each(|time_s| monitor.add("flush", time_s, 1000 - time_s));
        let events = monitor.events();
        assert_eq!((events[0].samples.len(), events[0].samples[0].time_s, events[0].max_ms), (SAMPLES_MAX, 10, 1000));
    }

    #[test]
    fn events_are_forgotten_by_name() {
        let monitor = Monitor::default();
        ["a", "b", "c"].iter().for_each(|name| monitor.add(name, 1, 1));
        assert_eq!(monitor.reset(&[b"a", b"x"]), 1);
        assert_eq!(monitor.reset(&[]), 2);
        assert!(monitor.events().is_empty());
    }
}
