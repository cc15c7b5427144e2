//! The counts of each command, by event loop: how often it was called, how long that took and how it ended. Plain words
//! that only the loop writes, as in `counters`.

use crate::clients::statistics::counters::{Count, Histogram};
use haypile_commands::CommandId;
use std::sync::OnceLock;

/// An event loop's counts of all commands, by id.
#[derive(Default)]
pub struct Calls(Box<[OfCommand]>);

/// An event loop's counts of one command.
#[derive(Default)]
#[repr(align(64))]
pub struct OfCommand {
    /// Calls that ran, those that failed included.
    pub calls: Count,
    /// Nanoseconds of the calls, each from when it came up to when its reply was made: with its waits, but for the log.
    pub ns: Count,
    /// Calls that were not run: a wrong number of arguments, no memory.
    pub rejected: Count,
    pub failed: Count,
    /// The nanoseconds of calls until the reply could leave. Most commands never run on most loops.
    times: OnceLock<Box<Histogram>>,
}

impl Calls {
    /// Makes the counts of commands whose ids are below `ids`.
    pub fn new(ids: usize) -> Calls {
        Calls((0..ids).map(|_| OfCommand::default()).collect())
    }

    #[inline]
    pub fn of(&self, id: CommandId) -> &OfCommand {
        &self.0[id.0 as usize]
    }

    pub(crate) fn reset(&self) {
        for command in &self.0 {
            [&command.calls, &command.ns, &command.rejected, &command.failed].into_iter().for_each(Count::reset);
            if let Some(times) = command.times.get() {
                times.reset();
            }
        }
    }
}

impl OfCommand {
    #[inline]
    pub fn add_time(&self, ns: u64) {
        self.add_times(ns, 1);
    }

    /// Adds the time that each of so many calls took.
    pub fn add_times(&self, ns: u64, calls: u64) {
        self.times.get_or_init(Box::default).add(ns, calls);
    }

    /// Returns the times of the calls, if any was added.
    pub fn times(&self) -> Option<&Histogram> {
        self.times.get().map(|times| &**times)
    }
}
