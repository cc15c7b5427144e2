//! How long things take, and for whom: commands by name, errors by kind, the slow log, the events of LATENCY.
//!
//! The counts of every command are in `calls`, one part for each event loop; all else here is shared, and touched only
//! when something took long or failed. When a command is counted is decided in `run::count`.
//!
//! A command's time begins when it comes up: when the one before it in its pipeline has ended. It ends, for `#
//! Commandstats`, when its reply is made, and for everything else when the reply is durable and may leave. What it
//! waited for in between (`Wait`) is part of it.

mod calls;
mod clock;
pub(crate) mod counters;
mod ended;
mod errors;
mod monitor;
mod rounds;
mod slowlog;
mod spent;

pub use calls::{Calls, OfCommand};
pub(crate) use clock::Clock;
pub use clock::Moment;
pub(crate) use ended::{Called, Outcome, Unacknowledged};
pub use rounds::Rounds;
pub(crate) use slowlog::{Caller, Shown};
pub(crate) use spent::{Spent, Timed, Wait};

use errors::Errors;
use haypile_commands::host::CommandLog;
use haypile_config::{Config, Settings};
use monitor::Monitor;
use slowlog::Slowlog;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The calls whose requests, or replies, are large.
#[derive(Default)]
pub(crate) struct Large {
    pub log: Slowlog,
    /// Bytes from which one is; `u64::MAX` for never.
    from_bytes: AtomicU64,
    entries_max: AtomicUsize,
}

impl Large {
    fn follow(&self, (from_bytes, entries_max): (Option<u64>, u64)) {
        let from_bytes = from_bytes.filter(|_| entries_max > 0).unwrap_or(u64::MAX);
        self.from_bytes.store(from_bytes, Ordering::Relaxed);
        self.entries_max.store(usize::try_from(entries_max).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    #[inline]
    fn has(&self, bytes: usize) -> bool {
        bytes as u64 >= self.from_bytes.load(Ordering::Relaxed)
    }

    fn push(&self, shown: Shown, bytes: usize, caller: &Caller<'_>) {
        let entries_max = self.entries_max.load(Ordering::Relaxed);
        self.log.push(shown, bytes as u64, &Spent::default(), caller, now_s(), entries_max);
    }
}

/// The bytes of a call's request and of its reply.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizes {
    pub request: usize,
    pub reply: usize,
}

/// The statistics that all event loops share.
#[derive(Default)]
pub(crate) struct Statistics {
    pub clock: Clock,
    pub errors: Errors,
    pub slowlog: Slowlog,
    pub large_requests: Large,
    pub large_replies: Large,
    pub monitor: Monitor,
    /// `latency-tracking`.
    tracking: AtomicBool,
    /// Time from which a command is in the slow log; `u64::MAX` for never.
    slow_ns: AtomicU64,
    slowlog_entries_max: AtomicUsize,
    /// Time from which an event is kept; `u64::MAX` for never.
    event_ns: AtomicU64,
    /// The lesser of the two.
    notable_ns: AtomicU64,
}

impl Statistics {
    pub fn new(settings: &Settings) -> Arc<Statistics> {
        let statistics = Arc::new(Statistics::default());
        statistics.follow(&settings.config());
        let followed = statistics.clone();
        settings.listen(move |_, _, after| {
            followed.follow(after);
            Ok(())
        });
        statistics
    }

    fn follow(&self, config: &Config) {
        let (slow_us, entries_max) = config.slow_calls;
        let entries_max = usize::try_from(entries_max).unwrap_or(usize::MAX);
        let slow_us = slow_us.filter(|_| entries_max > 0);
        let slow_ns = slow_us.map_or(u64::MAX, |us| us.saturating_mul(1000));
        let event_ns = config.latency_threshold_ms.map_or(u64::MAX, |ms| ms.saturating_mul(1_000_000));
        self.tracking.store(config.latency_tracking, Ordering::Relaxed);
        self.slow_ns.store(slow_ns, Ordering::Relaxed);
        self.slowlog_entries_max.store(entries_max, Ordering::Relaxed);
        self.event_ns.store(event_ns, Ordering::Relaxed);
        self.notable_ns.store(slow_ns.min(event_ns), Ordering::Relaxed);
        self.large_requests.follow(config.large_requests);
        self.large_replies.follow(config.large_replies);
    }

    /// Returns a log of calls.
    pub fn log(&self, log: CommandLog) -> &Slowlog {
        match log {
            CommandLog::Slow => &self.slowlog,
            CommandLog::LargeRequest => &self.large_requests.log,
            CommandLog::LargeReply => &self.large_replies.log,
        }
    }

    /// Whether the request or the reply of a call is large.
    #[inline]
    pub fn is_large(&self, sizes: Sizes) -> bool {
        self.large_requests.has(sizes.request) || self.large_replies.has(sizes.reply)
    }

    /// Keeps a call whose request or reply is large.
    pub fn log_large(&self, shown: &Shown, sizes: Sizes, caller: &Caller<'_>) {
        for (large, bytes) in [(&self.large_requests, sizes.request), (&self.large_replies, sizes.reply)] {
            if large.has(bytes) {
                large.push(shown.clone(), bytes, caller);
            }
        }
    }

    #[inline]
    pub fn tracks(&self) -> bool {
        self.tracking.load(Ordering::Relaxed)
    }

    /// Whether a command of this time may be in the slow log.
    #[inline]
    pub fn is_slow(&self, ns: u64) -> bool {
        ns >= self.slow_ns.load(Ordering::Relaxed)
    }

    /// Whether there is a slow log.
    pub fn has_slowlog(&self) -> bool {
        self.slow_ns.load(Ordering::Relaxed) < u64::MAX
    }

    /// Whether there is a log of calls at all.
    pub fn has_logs(&self) -> bool {
        let may_be_large = |large: &Large| large.from_bytes.load(Ordering::Relaxed) < u64::MAX;
        self.has_slowlog() || may_be_large(&self.large_requests) || may_be_large(&self.large_replies)
    }

    /// Whether a command of this time is to be kept somewhere.
    #[inline]
    pub fn is_notable(&self, ns: u64) -> bool {
        ns >= self.notable_ns.load(Ordering::Relaxed)
    }

    /// An event that is kept if it took long.
    #[inline]
    pub fn event(&self, name: &'static str, ns: u64) {
        if ns >= self.event_ns.load(Ordering::Relaxed) {
            self.monitor.add(name, now_s(), ns / 1_000_000);
        }
    }

    pub fn log_slow(&self, shown: Shown, ns: u64, spent: &Spent, caller: &Caller<'_>) {
        let entries_max = self.slowlog_entries_max.load(Ordering::Relaxed);
        self.slowlog.push(shown, ns / 1000, spent, caller, now_s(), entries_max);
    }
}

/// Seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
