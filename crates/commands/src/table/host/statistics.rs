//! Statistics: INFO, SLOWLOG and LATENCY.

use crate::command_id::CommandId;
use crate::error::Result;

/// The measurements of the server.
pub trait Statistics {
    /// The sections of INFO, in the order in which they are shown.
    fn info_sections(&self) -> &'static [InfoSection];

    /// Says that what follows asks the base.
    ///
    /// # Errors
    /// [`Stop::Long`](haypile_store::Stop::Long) on an event loop: the engine runs the command on the I/O pool.
    fn expect_wait(&self) -> Result<()>;

    /// Appends the fields of one of [`Statistics::info_sections`], `name:value\r\n` each.
    fn info(&self, section: &str, out: &mut String);

    /// The newest `count` calls of a log, the newest first.
    fn logged_calls(&self, log: CommandLog, count: usize) -> Vec<LoggedCall>;

    /// The number of calls that a log has.
    fn logged_count(&self, log: CommandLog) -> usize;

    /// The events that took long, by name.
    fn latency_events(&self) -> Vec<LatencyEvent>;

    /// How long a command's calls took, if they were measured.
    fn command_times(&self, id: CommandId) -> Option<CommandTimes>;
}

/// A section of INFO.
#[derive(Clone, Copy, Debug)]
pub struct InfoSection {
    /// The name in lower case, as clients ask for it.
    pub name: &'static str,
    /// The heading of the section: `Server` of `# Server`.
    pub title: &'static str,
    pub shown: Shown,
}

/// The condition under which INFO shows a section that is not named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Always,
    /// Shown if all sections are asked for.
    WithAll,
    Never,
}

/// A log of calls that stand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandLog {
    /// The slow log: calls that took long.
    Slow,
    LargeRequest,
    LargeReply,
}

/// An entry of a log of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedCall {
    /// The number of the entry; ids rise.
    pub id: u64,
    /// The time at which the call ended, in seconds since 1970.
    pub time_s: u64,
    /// Microseconds that the call took, or the bytes of its request or reply.
    pub value: u64,
    /// Cut to a bounded size, and without secrets.
    pub args: Vec<Vec<u8>>,
    /// The client's address, with its port.
    pub address: String,
    /// The client's name; empty if it has none.
    pub name: Vec<u8>,
}

/// A kind of event that took long, and how long lately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyEvent {
    pub name: &'static str,
    /// The longest time since the last reset.
    pub max_ms: u64,
    /// The samples, the oldest first, one a second at most; there is at least one.
    pub samples: Vec<LatencySample>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencySample {
    /// Seconds since 1970.
    pub time_s: u64,
    pub ms: u64,
}

/// How long the calls of a command took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTimes {
    pub calls: u64,
    /// A time in microseconds, and how many calls took no longer: both rise.
    pub until_us: Vec<(u64, u64)>,
}
