//! Replication: ROLE and REPLCONF.

/// The server's part in replication.
pub trait Replication {
    /// The part that the server has now.
    fn role(&self) -> Role;

    /// The words with which the server answers another one that wants to follow it; None if it cannot be followed.
    fn hello(&self) -> Option<Vec<String>>;
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
