//! The waits of a command, and how long each took.

use super::clock::{Clock, Moment};
use haypile_commands::CommandId;

/// The kinds of waits. The rest of a command's time is its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The command's turn: others had the I/O pool, or an exclusive command ran.
    Queue,
    /// Rows from the disk.
    Disk,
    /// A key that others had locked.
    Lock,
    /// A write stall: the flush was behind.
    Stall,
    /// The run on the I/O pool, with its own reads from the disk.
    Pool,
    /// The log: its reply was made, and held back until its records were durable.
    Gate,
}

impl Wait {
    pub const ALL: [Wait; 6] = [Wait::Queue, Wait::Disk, Wait::Lock, Wait::Stall, Wait::Pool, Wait::Gate];

    pub fn name(self) -> &'static str {
        match self {
            Wait::Queue => "queue",
            Wait::Disk => "disk",
            Wait::Lock => "lock",
            Wait::Stall => "stall",
            Wait::Pool => "pool",
            Wait::Gate => "gate",
        }
    }

    /// Returns the name that LATENCY shows.
    pub fn event(self) -> &'static str {
        match self {
            Wait::Queue => "command-queue",
            Wait::Disk => "disk-read",
            Wait::Lock => "key-lock",
            Wait::Stall => "write-stall",
            Wait::Pool => "long-command",
            Wait::Gate => "log-gate",
        }
    }
}

/// Nanoseconds for each wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent([u64; Wait::ALL.len()]);

impl Spent {
    pub fn add(&mut self, wait: Wait, ns: u64) {
        self.0[wait as usize] += ns;
    }

    pub fn ns(&self, wait: Wait) -> u64 {
        self.0[wait as usize]
    }

    /// Returns each wait that took any time, with its time.
    pub fn iter(&self) -> impl Iterator<Item = (Wait, u64)> {
        Wait::ALL.into_iter().map(|wait| (wait, self.ns(wait))).filter(|(_, ns)| *ns > 0)
    }
}

/// The time of a command that did not end at once.
#[derive(Default)]
pub(crate) struct Timed {
    /// The command; `None` until it is known that the command's first run has not ended it.
    pub command: Option<CommandId>,
    /// The moment at which the command came up.
    pub started: Moment,
    /// The call as the logs show it, if there are any.
    pub shown: Option<super::Shown>,
    /// The bytes so far.
    pub sizes: super::Sizes,
    /// The wait under way, and its beginning.
    wait: Option<(Wait, Moment)>,
    pub spent: Spent,
    /// Nanoseconds that are the client's: it did not read the reply, or wanted it to be held back.
    pub paused_ns: u64,
    paused_since: Option<Moment>,
}

impl Timed {
    pub fn begin(&mut self, clock: &Clock, wait: Wait) {
        let now = clock.now();
        self.end_pause(clock, now);
        self.wait = Some((wait, now));
    }

    /// Ends the wait under way. A job of the I/O pool began at `begun`; before that it was queued, or, if
    /// `locked`, its keys were.
    pub fn end(&mut self, clock: &Clock, begun: Option<Moment>, locked: bool) {
        let Some((wait, since)) = self.wait.take() else { return };
        let now = clock.now();
        let from = match (begun, wait) {
            (Some(begun), Wait::Disk | Wait::Pool) => {
                self.spent.add(if locked { Wait::Lock } else { Wait::Queue }, clock.ns(since, begun));
                begun.max(since)
            }
            _ => since,
        };
        self.spent.add(wait, clock.ns(from, now));
    }

    /// Begins a pause: the command waits for its client, until it waits for something else or ends.
    pub fn begin_pause(&mut self, clock: &Clock) {
        self.paused_since.get_or_insert_with(|| clock.now());
    }

    pub fn end_pause(&mut self, clock: &Clock, now: Moment) {
        if let Some(since) = self.paused_since.take() {
            self.paused_ns += clock.ns(since, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_on_the_pool_is_told_from_the_wait_for_the_pool() {
        let clock = Clock::default();
        let busy = || {
            (0..200_000u64).map(std::hint::black_box).sum::<u64>();
        };
        let mut timed = Timed::default();
        timed.begin(&clock, Wait::Disk);
        busy();
        let begun = clock.now();
        busy();
        timed.end(&clock, Some(begun), false);
        assert!(timed.spent.ns(Wait::Queue) > 0 && timed.spent.ns(Wait::Disk) > 0, "{:?}", timed.spent);
        let before = timed.spent;
        timed.end(&clock, None, false);
        assert_eq!(timed.spent, before, "it waited for nothing");
        timed.begin(&clock, Wait::Pool);
        let begun = clock.now();
        timed.end(&clock, Some(begun), true);
        assert_eq!(timed.spent.ns(Wait::Queue), before.ns(Wait::Queue), "it was locked, not queued");
    }
}
