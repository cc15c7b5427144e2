//! The systems under test: what differs between them, as a trait. Processes, the network, disks and clocks are the same
//! for all, and are the group's.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use super::operation::{Kind, Session};

/// The longest wait for a connection: a node that is cut off does not even refuse one.
pub const CONNECT_MAX: Duration = Duration::from_millis(500);
/// The longest wait of a client for a reply; the outcome is unknown then.
pub const REPLY_MAX: Duration = Duration::from_secs(3);

/// A node's place in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node's number, from 0.
    pub number: usize,
    pub ip: Ipv4Addr,
    pub client_port: u16,
    pub peer_port: u16,
}

impl Member {
    pub fn client_address(self) -> SocketAddr {
        SocketAddr::from((self.ip, self.client_port))
    }
}

/// Connects, with time limits on everything.
pub fn connect(address: SocketAddr, reply_max: Duration) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_MAX)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(reply_max))?;
    stream.set_write_timeout(Some(reply_max))?;
    Ok(stream)
}

/// The circumstances of a node's start.
pub struct Start<'a> {
    pub node: Member,
    /// All members of the group as the node is to know them, the node among them.
    pub members: &'a [Member],
    /// The members with which the group has begun.
    pub founders: &'a [Member],
    pub dir: &'a Path,
    /// The node comes with an empty directory into a group that is there already.
    pub joins: bool,
    /// The node is to keep no room free on its disk.
    pub fills_disk: bool,
}

/// The facts that a node tells about its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub leads: bool,
    pub term: u64,
    /// The first and the last entry of the node's log.
    pub first: u64,
    pub last: u64,
    /// The last entry that the group has agreed on, as far as the node knows.
    pub commit: u64,
    /// The copies that the node has put in the place of its data since it was started.
    pub copies: u64,
}

/// A faculty of a system, which some scenarios need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Several nodes, one of which leads.
    Leads,
    /// Leadership is handed over on request.
    Transfer,
    /// Members come and go.
    Members,
    /// Each node may know the others by addresses of its own.
    OwnAddresses,
    /// Backups of a node's data, and starts from them.
    Backup,
    /// The wall clock is the C library's, which another library can offset.
    Clock,
    /// A node may end when its disk is full, and starts again when there is room.
    FullDisk,
    /// Nodes tell the facts of their group, and a digest of their data.
    Facts,
}

/// A system under test.
pub trait System: Sync {
    fn name(&self) -> &'static str;

    /// Returns the kinds of objects that the system has.
    fn kinds(&self) -> &'static [Kind];

    fn can(&self, ability: Ability) -> bool;

    /// Returns the command line that starts a node.
    fn command(&self, start: &Start<'_>) -> Vec<String>;

    /// Opens a session, which connects to this node first and waits so long for a reply.
    fn session(&self, members: &[Member], first: usize, reply_max: Duration) -> Box<dyn Session>;

    /// Returns the term in which the node believes to lead; None if it does not.
    fn leads(&self, _node: Member) -> Option<u64> {
        None
    }

    /// Returns the facts that a node tells; None if it does not answer.
    fn facts(&self, _node: Member) -> Option<Facts> {
        None
    }

    /// Returns a digest of all data of a node.
    fn digest(&self, _node: Member) -> Result<String> {
        bail!("{} tells no digest", self.name())
    }

    /// Has the leader take a value of so many bytes, which no client asks for.
    fn pump(&self, _leader: Member, _bytes: usize) -> Result<()> {
        bail!("{} has no facts that would change", self.name())
    }

    /// Checks the data of a node that was killed; returns false if the system has no program for that.
    fn check(&self, _dir: &Path) -> Result<bool> {
        Ok(false)
    }

    /// Has the leader hand over to another node.
    fn transfer(&self, _leader: Member, _to: Member) -> Result<()> {
        bail!("{} does not hand over", self.name())
    }

    /// Takes a node out of the group, by asking another one.
    fn remove(&self, _asked: Member, _node: Member) -> Result<()> {
        bail!("{} removes no members", self.name())
    }

    /// Takes a node into the group, by asking another one; the node starts afterwards, with an empty directory.
    fn add(&self, _asked: Member, _node: Member) -> Result<()> {
        bail!("{} adds no members", self.name())
    }

    /// Makes a backup of a node that runs with this directory; returns the backup's, below it.
    fn back_up(&self, _node: Member, _dir: &Path) -> Result<std::path::PathBuf> {
        bail!("{} makes no backups", self.name())
    }
}
