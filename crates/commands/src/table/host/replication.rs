//! Replication: ROLE, REPLCONF and FAILOVER.

use std::time::Duration;

/// The server's part in replication.
pub trait Replication {
    /// The part that the server has now.
    fn role(&self) -> Role;

    /// The words with which the server answers another one that wants to follow it; None if it cannot be followed.
    fn hello(&self) -> Option<Vec<String>>;

    /// The name of the consensus group that the server leads; None if it leads none.
    fn led_group(&self) -> Option<String>;
}

/// The part that a server has in replication. Offsets are indexes of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A master: the last record of its log, and its replicas, each with host, port and the last record that it has
    /// acknowledged.
    Master { offset: u64, replicas: Vec<(String, u16, u64)> },
    /// A replica: its master, the state of the connection in Redis's words, and the last record that it has.
    Replica { host: String, port: u16, state: &'static str, offset: u64 },
}

/// A wish to hand the part of the master over to a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failover {
    /// The replica's host and port, as its master sees them; None for whichever has all first.
    pub target: Option<(String, i64)>,
    /// The time in which a replica is to have all.
    pub timeout: Option<Duration>,
    /// The target takes over even if it does not have all by then.
    pub forces: bool,
}
