//! The questions and requests of a command to its connection and to the server, by subject.
//!
//! Owns the traits only, each with its types. The engine implements them for a session. Every method is cheap and never
//! blocks.
//!
//! Invariant: methods only ask. A change of the session or of the server is an [`Act`], which the command returns and
//! the engine carries out once, when the command or its MULTI block has taken effect. [`Rows::in_transaction`] alone
//! takes `&mut self`: the rows that it writes belong to the transaction.

mod act;
mod clients;
mod cluster;
mod config;
mod connection;
mod memory;
mod process;
mod pubsub;
mod replication;
mod scripts;
mod statistics;
mod storage;
mod tracking;
mod users;

pub use act::{Act, Answer, GroupOrder, UserChange};
pub use clients::{ClientFilter, ClientType, Clients, Paused};
pub use cluster::{Cluster, ClusterFacts, ClusterNode};
pub use config::Config;
pub use connection::{Connection, Library, Reached, Replies, SessionChange, Wait, WaitKind};
pub use memory::{Memory, MemoryFacts};
pub use process::{DebugAccess, Process, Shutdown};
pub use pubsub::{Audience, Channels, PubSub};
pub use replication::{Failover, Replication, Role};
pub use scripts::{RunningFunction, Scripts};
pub use statistics::{
    CommandLog, CommandTimes, InfoSection, LatencyEvent, LatencySample, LoggedCall, Shown, Statistics,
};
pub use storage::{Reload, Storage};
pub use tracking::{Tracking, TrackingMode, TrackingOptions};
pub use users::Users;

use crate::error::Result;
use crate::lookup::Table;
use haypile_resp::Reply;
use haypile_store::Txn;

/// The connection that a command came by, and the server behind it.
pub trait Host:
    Clock
    + Connection
    + Users
    + Clients
    + Tracking
    + PubSub
    + Config
    + Memory
    + Statistics
    + Storage
    + Replication
    + Cluster
    + Scripts
    + Process
    + Rows
{
    /// The commands that this server has, by the names that it gave them.
    fn table(&self) -> &Table;
}

/// Time and randomness.
pub trait Clock {
    /// The wall clock, in microseconds since 1970.
    fn now_us(&self) -> u64;

    /// Fills the slice with random bytes that nobody can guess.
    fn fill_secret(&self, bytes: &mut [u8]);
}

/// The transaction that a command is part of.
pub trait Rows {
    /// Runs something that looks at data, in the transaction that the command is part of.
    ///
    /// # Errors
    /// The errors of `run`, and [`Stop::Long`](haypile_store::Stop::Long) where there is no transaction yet: the engine
    /// begins one on the I/O pool, without key locks, and runs the command again there.
    fn in_transaction(&mut self, run: &mut dyn FnMut(&mut Txn) -> Result<Reply>) -> Result<Reply>;
}
