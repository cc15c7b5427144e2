//! The connection of the running command, and how its replies leave.

use super::pubsub::Channels;
use super::tracking::TrackingOptions;
use haypile_acl::User;
use haypile_resp::{Protocol, Reply};
use std::sync::Arc;

/// The connection that the running command came by.
pub trait Connection {
    /// The number of the client: unique among all connections since the server started, rising.
    fn client_id(&self) -> u64;

    /// The name that the client has given itself; empty if there is none.
    fn client_name(&self) -> &[u8];

    fn protocol(&self) -> Protocol;

    /// The number of the selected database.
    fn database(&self) -> u32;

    /// The number of databases; valid indexes are below it.
    fn databases(&self) -> u32;

    /// Whether the client is on the same host.
    fn is_local(&self) -> bool;

    /// Whether the client may do little else than change its subscriptions: it has some, and speaks RESP2.
    fn is_bound_to_channels(&self) -> bool;

    /// Whether the command is one of a MULTI block.
    fn is_in_block(&self) -> bool;

    /// Whether the client is shown every command that the server runs.
    fn monitors(&self) -> bool;
}

/// A change of the session of the running command's client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChange {
    /// Makes the client act as this user, which [`Users::login`](super::Users::login) has found.
    Login(Arc<User>),
    Name(Vec<u8>),
    Library(Library, Vec<u8>),
    /// The protocol of all replies from the running command's on.
    Protocol(Protocol),
    /// Selects a database, whose index is below [`Connection::databases`].
    Database(u32),
    /// The replies that the client gets, from the running command on; ON only lets later replies through.
    Replies(Replies),
    NoEvict(bool),
    /// The client is content with what a member of a group has that does not lead.
    ReadsHere(bool),
    NoTouch(bool),
    /// The client has come by another member of the server's group, which hands its bytes on.
    Proxied,
    /// Tells the client of keys that change, by these options; None ends that.
    Track(Option<TrackingOptions>),
    /// The client has said by CLIENT CACHING what the next command's keys are to it.
    CacheNext,
    /// Shows the client every command that the server runs from now on.
    Monitor,
    /// Closes the connection after the reply of the running command.
    Close,
    /// A Redis that is to follow has said this of itself by REPLCONF: `option=value` each.
    ReplicaSays(Vec<Vec<u8>>),
    /// Hands the connection to the server, which answers these words of REPLCONF.
    HandOver(Vec<Vec<u8>>),
    /// Hands the connection to the server, which answers these words of PSYNC or SYNC, and what the replica has said of
    /// itself.
    Synchronize(Vec<Vec<u8>>),
    /// Begins a subscription that the client does not have.
    Subscribe(Channels, Arc<[u8]>),
    /// Ends a subscription that the client has.
    Unsubscribe(Channels, Arc<[u8]>),
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
    /// No reply to the running command and the one behind it.
    SkipNext,
    /// No reply to the running command.
    Skip,
}

/// How long a reply is held back, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub kind: WaitKind,
    /// The time from now on; none waits for ever.
    pub timeout_ms: Option<u64>,
}

/// The reason why the reply of a command is held back. CLIENT UNBLOCK ends all waits but those of `Sleep` and
/// `Promotion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// DEBUG SLEEP.
    Sleep,
    /// WAIT until so many replicas have all that the client has seen.
    Wait { replicas: usize },
    /// WAITAOF until all that the client has seen is on the disk: here, if `local`, and on so many replicas.
    WaitAof { local: bool, replicas: usize },
    /// REPLICAOF NO ONE, until the server takes writes, or is a replica again.
    Promotion,
}

/// How far that has got which a client has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Whether the record is on the disk here.
    pub synced: bool,
    /// The number of replicas that have it.
    pub replicas: usize,
    /// The number of replicas that have it on their disks.
    pub synced_replicas: usize,
    /// Whether the server takes writes, or follows a master.
    pub has_role: bool,
}

impl Wait {
    /// Whether there is nothing more to wait for.
    pub fn is_satisfied(self, reached: Reached) -> bool {
        match self.kind {
            WaitKind::Sleep => false,
            WaitKind::Wait { replicas } => reached.replicas >= replicas,
            WaitKind::WaitAof { local, replicas } => (reached.synced || !local) && reached.synced_replicas >= replicas,
            WaitKind::Promotion => reached.has_role,
        }
    }

    /// Returns the reply at the end of the wait, whatever ended it; `made` is the one that the command has made before.
    pub fn reply(self, made: Reply, reached: Reached) -> Reply {
        match self.kind {
            WaitKind::Sleep | WaitKind::Promotion => made,
            WaitKind::Wait { .. } => Reply::Integer(reached.replicas as i64),
            WaitKind::WaitAof { .. } => {
                Reply::array([i64::from(reached.synced), reached.synced_replicas as i64].map(Reply::Integer))
            }
        }
    }
}
