//! All clients: CLIENT LIST, KILL, PAUSE and UNBLOCK.

use crate::error::Result;

/// The clients of the server.
pub trait Clients {
    /// The clients that the filter lets through, in the order of their ids, as lines of CLIENT LIST.
    ///
    /// # Errors
    /// [`Stop::Long`](haypile_store::Stop::Long) on an event loop where there are many clients: the engine runs the
    /// command on the I/O pool.
    fn clients(&self, filter: &ClientFilter) -> Result<String>;

    /// The ids of the clients that the filter lets through and that no command of the same block closes.
    fn find_clients(&self, filter: &ClientFilter) -> Vec<u64>;

    /// Whether a blocking command of that client waits.
    fn is_blocked(&self, client: u64) -> bool;
}

/// Which commands a pause holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paused {
    /// Commands that change data or send messages.
    Writes,
    All,
}

/// The kinds of clients that CLIENT LIST and CLIENT KILL tell apart, and that have output limits of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientType {
    Normal,
    Replica,
    PubSub,
    Master,
}

impl ClientType {
    /// The kind of this name, in upper or lower case.
    pub fn named(name: &[u8]) -> Option<Self> {
        let names = [
            ("normal", Self::Normal),
            ("slave", Self::Replica),
            ("replica", Self::Replica),
            ("pubsub", Self::PubSub),
            ("master", Self::Master),
        ];
        names.iter().find(|(word, _)| word.as_bytes().eq_ignore_ascii_case(name)).map(|(_, kind)| *kind)
    }
}

/// A filter of clients, which lets those through that fit all fields given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFilter {
    pub ids: Option<Vec<u64>>,
    pub kind: Option<ClientType>,
    /// The address as CLIENT LIST prints it: `127.0.0.1:6379`, `[::1]:6379`, the path of a unix socket with `:0`.
    pub address: Option<Vec<u8>>,
    pub local_address: Option<Vec<u8>>,
    pub user: Option<Vec<u8>>,
    /// The connection is at least so many seconds old.
    pub age_min_s: Option<u64>,
    /// The client of the running command is left out.
    pub skip_me: bool,
}
