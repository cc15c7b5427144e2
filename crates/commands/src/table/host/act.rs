//! Acts: changes beside rows that a command asks for by returning them.

use super::clients::Paused;
use super::connection::{SessionChange, Wait};
use super::process::Shutdown;
use super::pubsub::{Audience, Channels};
use super::replication::Failover;
use super::statistics::CommandLog;
use super::storage::Reload;
use haypile_acl::Denial;
use haypile_resp::Reply;
use std::sync::Arc;
use std::time::Duration;

/// An order to a Raft group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupOrder {
    AddMember {
        id: u64,
        /// The member's address, host:port.
        address: String,
    },
    RemoveMember {
        id: u64,
    },
    /// Makes the server the first member of a group, which has its data.
    Begin {
        /// The address of this server, host:port.
        address: String,
    },
    /// Makes the server a member of the group that another server is in; its own data are given up.
    Join {
        /// The address of the other server, host:port.
        through: String,
        /// The address of this server, host:port; None for the way by which it reaches the other server.
        address: Option<String>,
        /// Whether the server joins although it has keys, which it loses.
        forces: bool,
    },
    /// Changes the group's users; the number of the record, when it is made.
    ChangeUsers {
        change: UserChange,
        record: Option<u64>,
    },
    /// Has the server be in no group any more, of which it is the only member; its data stay.
    Reset,
    /// Has this member lead, or one that has most.
    TransferLead {
        to: Option<u64>,
    },
}

/// A change of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserChange {
    /// Gives a user these rules, in order, and makes it if it is not there.
    Set { name: Vec<u8>, rules: Vec<Vec<u8>> },
    /// Removes users and closes their clients.
    Remove(Vec<Vec<u8>>),
}

/// A change of the client's session or of the server.
///
/// Invariant: the engine carries an act out once, when the run that returned the act has taken effect. A run that is
/// dropped has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Changes the session of the running command's client. The commands behind it in the same block run on the changed
    /// session; other clients see the change when the run has taken effect.
    Session(SessionChange),
    /// Sends a message to its audience. `payload` is the message as a bulk string.
    Publish {
        kind: Channels,
        channel: Arc<[u8]>,
        payload: Vec<u8>,
        audience: Audience,
    },
    /// Sets all of these directives, or none of them: names and values.
    SetConfig(Vec<(Vec<u8>, Vec<u8>)>),
    /// Writes the directives into the configuration file, on a thread that may wait for the disk.
    RewriteConfig,
    /// Holds commands until a Unix time in milliseconds. An earlier pause that lasts longer or holds more stands.
    Pause {
        until_ms: u64,
        what: Paused,
    },
    /// Ends all pauses.
    Unpause,
    /// Ends the wait of a client's blocking command, as if its time were over or by an error. The reply becomes 0 if
    /// the client is not blocked any more.
    Unblock {
        client: u64,
        with_error: bool,
    },
    /// Closes the clients of these ids.
    CloseClients(Vec<u64>),
    /// Sets the counters that INFO shows back to zero.
    ResetStatistics,
    /// Forgets all entries of the slow log.
    ResetLog(CommandLog),
    /// Forgets the events of these names, or all if none is named.
    ResetLatency(Vec<Vec<u8>>),
    /// Sets whether expired keys are removed although no command asks for them.
    SetActiveExpire(bool),
    /// Sets how long a client may take to read one long reply before the server closes it.
    SetReplyAge(Duration),
    /// Writes a line to the server's log.
    LogLine(Vec<u8>),
    /// Ends the process as a bug would.
    Crash(String),
    /// Has a backup made: at once, or as soon as none is being made where the command is one of a MULTI block.
    BeginBackup,
    /// Has a backup made that goes to the archive.
    BeginArchiveBackup,
    /// Has all rows of these databases compacted, or of all, in the background.
    Compact(Option<Vec<u32>>),
    /// Has the allocator give back what is not in use, on a thread that may wait.
    PurgeMemory,
    /// Begins to shut the server down; the connection gets no reply if that works.
    Shutdown(Shutdown),
    /// Takes a shutdown that is under way back.
    AbortShutdown,
    /// Follows the server of this host and port, or none. The reply says so if that is no change.
    Follow(Option<(String, u16)>),
    /// Follows a server, of which a copy takes the place of the data first, whatever these are.
    FollowAnew {
        host: String,
        port: u16,
    },
    /// Begins to hand the part of the master over. An error if there is no such replica, or it goes on already.
    Failover(Failover),
    /// Gives an order to the server's Raft group; the session waits until it is carried out.
    Order(GroupOrder),
    /// Puts a script into the cache, under its name.
    LoadScript {
        name: String,
        text: Arc<[u8]>,
    },
    /// Empties the cache of scripts.
    FlushScripts,
    /// Ends the scripts that have run for long and have written nothing. An error if there is none.
    KillScripts,
    /// Ends running functions that have written nothing.
    KillFunctions,
    /// Gives a user these rules, in order, and makes it if it is not there. An error if one of them does not fit any
    /// more.
    SetUser {
        name: Vec<u8>,
        rules: Vec<Vec<u8>>,
    },
    /// Removes users and closes their clients; the running command's own client is closed after its reply.
    DeleteUsers(Vec<Vec<u8>>),
    /// Reads the file of users again, or writes it, on a thread that may wait for the disk.
    LoadUsers,
    SaveUsers,
    /// Adds a denial that has happened so often to ACL LOG.
    NoteDenial(Denial, u64),
    /// Forgets all entries of ACL LOG.
    ResetDenials,
    /// Gives up a failover. An error if there is none.
    AbortFailover,
    /// Closes and opens the data again; the reply is held back until then. An error in a transaction.
    Reload(Reload),
    /// Holds the reply back, which is then made by [`Wait::reply`]. In a transaction nothing is held back.
    Wait(Wait),
}

impl Act {
    /// Whether the act changes users, or notes what one of them was denied.
    pub fn is_about_users(&self) -> bool {
        matches!(
            self,
            Act::SetUser { .. }
                | Act::DeleteUsers(_)
                | Act::LoadUsers
                | Act::SaveUsers
                | Act::NoteDenial(..)
                | Act::ResetDenials
        )
    }

    /// Whether only a thread that may wait carries the act out.
    pub fn may_block(&self) -> bool {
        match self {
            Act::RewriteConfig | Act::PurgeMemory | Act::LoadUsers | Act::SaveUsers => true,
            Act::SetConfig(pairs) => pairs.iter().any(|(name, _)| haypile_config::may_wait(name)),
            _ => false,
        }
    }
}

/// The reply of a command, and the acts that it asks for.
#[derive(Debug)]
pub struct Answer {
    pub reply: Reply,
    pub acts: Vec<Act>,
}

impl Answer {
    /// Answers OK and asks for one act.
    pub fn ok(act: impl Into<Act>) -> Answer {
        Answer::with(Reply::ok(), act)
    }

    /// Answers with `reply` and asks for one act.
    pub fn with(reply: Reply, act: impl Into<Act>) -> Answer {
        Answer { reply, acts: vec![act.into()] }
    }
}

impl From<SessionChange> for Act {
    fn from(change: SessionChange) -> Act {
        Act::Session(change)
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        Answer { reply, acts: Vec::new() }
    }
}
