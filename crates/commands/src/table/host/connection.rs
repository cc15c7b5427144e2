//! The connection of the running command, and how its replies leave.

use crate::error::Result;
use haypile_resp::{Protocol, Reply};

/// The connection that the running command came by.
pub trait Connection {
    /// The number of the client: unique among all connections since the server started, rising.
    fn client_id(&self) -> u64;

    /// The name that the client has given itself; empty if there is none.
    fn client_name(&self) -> &[u8];

    fn set_client_name(&mut self, name: &[u8]);

    fn set_library(&mut self, part: Library, value: &[u8]);

    fn protocol(&self) -> Protocol;

    /// Sets the protocol of all replies from the running command's on.
    fn set_protocol(&mut self, protocol: Protocol);

    /// The number of databases; valid indexes are below it.
    fn databases(&self) -> u32;

    /// Selects a database, whose index is below [`Connection::databases`].
    fn select(&mut self, index: u32);

    /// Whether the client is on the same host.
    fn is_local(&self) -> bool;

    /// Whether the client may do little else than change its subscriptions: it has some, and speaks RESP2.
    fn is_bound_to_channels(&self) -> bool;

    /// Whether the command is one of a MULTI block.
    fn is_in_block(&self) -> bool;

    /// Sends the reply of the running command and closes the connection.
    fn close_after_reply(&mut self);

    /// Sets which replies the client gets, from the running command on; ON only lets later replies through.
    fn set_replies(&mut self, replies: Replies);

    fn set_no_evict(&mut self, on: bool);

    fn set_no_touch(&mut self, on: bool);

    /// Shows the client every command that the server runs from now on. Returns whether it was not shown them before.
    ///
    /// # Errors
    /// Between MULTI and EXEC.
    fn monitor(&mut self) -> Result<bool>;
}

/// The facts that a client library tells about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    Name,
    Version,
}

/// Which replies a client gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replies {
    #[default]
    On,
    Off,
    /// None to the running command and the one behind it.
    SkipNext,
    /// None to the running command.
    Skip,
}

/// How long a reply is held back, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub kind: WaitKind,
    /// From now on; nothing for one that waits for ever.
    pub timeout_ms: Option<u64>,
}

/// The commands whose replies are held back. CLIENT UNBLOCK ends all waits but that of `Sleep`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// DEBUG SLEEP.
    Sleep,
    /// WAIT for replicas, which there are none of.
    Wait,
    /// WAITAOF until all that the client has seen is on the disk; or for replicas as well, which there are none of.
    WaitAof { replicas: bool },
}

impl Wait {
    /// The reply at the end of the wait, whatever ended it. `synced` says whether all that the client has seen is on
    /// the disk.
    pub fn reply(self, synced: bool) -> Reply {
        match self.kind {
            WaitKind::Sleep => Reply::ok(),
            WaitKind::Wait => Reply::Integer(0),
            WaitKind::WaitAof { .. } => Reply::array([i64::from(synced), 0].map(Reply::Integer)),
        }
    }
}
