//! Commands that have ended, and what is still to be counted of them (`run::count`).

use super::Sizes;
use super::Statistics;
use super::clock::Moment;
use super::errors::Errors;
use super::slowlog::Shown;
use super::spent::Spent;
use haypile_commands::{CommandId, Entry as TableEntry};
use haypile_log::Index;
use haypile_resp::{Args, Reply};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

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

/// Commands of a block that are counted one by one, about a tenth of a millisecond of an event loop's time.
const CALLED_MAX: usize = 1024;

/// A command of a block that has run.
pub(crate) struct Called {
    pub command: CommandId,
    /// The number of calls.
    pub calls: u64,
    /// The time of all calls.
    pub ns: u64,
    /// The first word of the error of each call, if they failed.
    pub failed: Option<Box<[u8]>>,
    /// The call as a log shows it, if it is one for a log.
    pub shown: Option<Shown>,
    pub sizes: Sizes,
}

impl Called {
    pub fn new(statistics: &Statistics, entry: &TableEntry, args: Args<'_>, reply: &Reply, started: Moment) -> Called {
        Called::between(statistics, entry, args, reply, started, statistics.clock.now())
    }

    /// Returns a command of a block that began at `started` and ended at `ended`.
    pub fn between(
        statistics: &Statistics,
        entry: &TableEntry,
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

    /// Adds calls of the same command that have ended in the same way.
    pub fn add(&mut self, other: &Called) {
        self.calls += other.calls;
        self.ns += other.ns;
    }

    /// Returns fewer that count for the same, where there are very many: calls of one command that have ended in the
    /// same way, after about as long within a factor of two, become one. An event loop would look at each.
    pub fn together(all: Vec<Called>) -> Vec<Called> {
        if all.len() <= CALLED_MAX {
            return all;
        }
        let (mut places, mut merged) = (HashMap::<_, usize>::new(), Vec::<Called>::new());
        for called in all {
            if called.shown.is_some() {
                merged.push(called);
                continue;
            }
            match places.entry((called.command, (called.ns / called.calls).checked_ilog2(), called.failed.clone())) {
                Entry::Occupied(place) => merged[*place.get()].add(&called),
                Entry::Vacant(place) => {
                    place.insert(merged.len());
                    merged.push(called);
                }
            }
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_a_long_block_are_counted_together() {
        let called = |command, ns, failed: Option<&str>| Called {
            command: CommandId(command),
            calls: 1,
            ns,
            failed: failed.map(|kind| kind.as_bytes().into()),
            shown: None,
            sizes: Sizes::default(),
        };
        let few = |count: u64| (0..count).map(|ns| called(1, ns, None)).collect::<Vec<_>>();
        assert_eq!(Called::together(few(1000)).len(), 1000, "few are counted one by one");
        let all = (0..3000).flat_map(|_| [called(1, 100, None), called(1, 120, Some("ERR")), called(2, 0, None)]);
        let all = all.chain([called(1, 5000, None), called(1, 90, Some("WRONGTYPE"))]).collect();
        let mut merged: Vec<_> = Called::together(all)
            .into_iter()
            .map(|called| (called.command.0, called.calls, called.ns, called.failed.is_some()))
            .collect();
        merged.sort();
        let expected = [
            (1, 1, 90, true),
            (1, 1, 5000, false),
            (1, 3000, 300_000, false),
            (1, 3000, 360_000, true),
            (2, 3000, 0, false),
        ];
        assert_eq!(merged, expected);
    }
}
