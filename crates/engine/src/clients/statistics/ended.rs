//! Commands that have ended, and what is still to be counted of them (`run::count`).

use super::Sizes;
use super::Statistics;
use super::clock::Moment;
use super::errors::Errors;
use super::slowlog::Shown;
use super::spent::Spent;
use haypile_commands::{CommandId, Entry};
use haypile_log::Index;
use haypile_resp::{Args, Reply};

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outcome {
    #[default]
    Done,
    Failed,
    /// The command was not run.
    Rejected,
    /// EXEC will run it.
    Queued,
}

/// A command whose reply was made and waits for the log.
pub(crate) struct Unacknowledged {
    pub command: CommandId,
    /// Nanoseconds until the reply was made.
    pub ns: u64,
    pub spent: Spent,
    pub ended: Moment,
    pub gate: Index,
    /// The call as the slow log shows it, if there is a slow log.
    pub shown: Option<Shown>,
}

/// A command of a block that has run.
pub(crate) struct Called {
    pub command: CommandId,
    /// The number of calls.
    pub calls: u64,
    /// The time of all calls.
    pub ns: u64,
    /// The first word of the command's error, if it failed.
    pub failed: Option<Box<[u8]>>,
    /// The call as a log shows it, if it is one for a log.
    pub shown: Option<Shown>,
    pub sizes: Sizes,
}

impl Called {
    pub fn new(statistics: &Statistics, entry: &Entry, args: Args<'_>, reply: &Reply, started: Moment) -> Called {
        Called::between(statistics, entry, args, reply, started, statistics.clock.now())
    }

    /// Returns a command of a block that began at `started` and ended at `ended`.
    pub fn between(
        statistics: &Statistics,
        entry: &Entry,
        args: Args<'_>,
        reply: &Reply,
        started: Moment,
        ended: Moment,
    ) -> Called {
        let ns = statistics.clock.ns(started, ended);
        let sizes = Sizes { request: args.bytes_len(), reply: reply.weight().encoded_bytes };
        let is_shown = statistics.is_slow(ns) || statistics.is_large(sizes);
        let shown = is_shown.then(|| Shown::new(entry, args));
        Called { command: entry.id, calls: 1, ns, failed: Errors::kind(reply).map(Box::from), shown, sizes }
    }

    /// Adds calls of the same command that have not failed.
    pub fn add(&mut self, other: &Called) {
        self.calls += other.calls;
        self.ns += other.ns;
    }
}
