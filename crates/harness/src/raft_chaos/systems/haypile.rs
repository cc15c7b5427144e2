//! A group of Haypile servers by Raft. On a follower commands are answered by `-MOVED slot host:port`, without a quorum
//! by `-CLUSTERDOWN`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::resp::{RespSession, ask};
use crate::client::info_field;
use crate::raft_chaos::operation::{Kind, Session};
use crate::raft_chaos::system::{Ability, Facts, Member, REPLY_MAX, Start, System};
use crate::server::check;

/// The longest wait for an answer about the group, which needs no quorum.
const INFO_MAX: Duration = Duration::from_millis(700);

/// Directives that make memtables and flushes small, beside those of one server: the log lets go of what a member that
/// is away lacks, and members flush.
pub const DIRECTIVES: &str = "--memtable-size 1mb --flush-log-bytes 1mb --log-retention-size 1mb";
/// Keys of values that nobody asks for.
const PUMPED_KEYS: u64 = 16;

/// The server's binary and its directives.
pub struct Haypile {
    pub binary: PathBuf,
    pub directives: String,
}

/// Returns a node's number in the group: 0 is none.
fn id(node: Member) -> usize {
    node.number + 1
}

/// Returns the address by which members and clients know a node.
fn peer(node: Member) -> String {
    node.client_address().to_string()
}

/// Sends a command about the group, which must be answered by OK.
fn command(asked: Member, words: &[&str]) -> Result<()> {
    let reply = ask(asked, words, REPLY_MAX)?;
    ensure!(reply.is_ok(), "{} was answered by {reply}", words.join(" "));
    Ok(())
}

impl System for Haypile {
    fn name(&self) -> &'static str {
        "haypile"
    }

    fn kinds(&self) -> &'static [Kind] {
        &Kind::ALL
    }

    fn can(&self, ability: Ability) -> bool {
        // A node with a backup in the place of its data may have forgotten what it has acknowledged: it takes no part.
        !matches!(ability, Ability::Backup | Ability::OwnAddresses)
    }

    fn command(&self, start: &Start<'_>) -> Vec<String> {
        let peers: Vec<String> =
            start.founders.iter().map(|member| format!("{}@{}", id(*member), peer(*member))).collect();
        let node = start.node;
        let mut words = vec![self.binary.display().to_string(), "server".into()];
        let own = [
            ("bind", node.ip.to_string()),
            ("protected-mode", "no".into()),
            ("enable-debug-command", "yes".into()),
            ("raft-election-timeout", "500".into()),
            ("raft-heartbeat-interval", "50".into()),
            ("port", node.client_port.to_string()),
            ("dir", start.dir.display().to_string()),
            ("raft-node-id", id(node).to_string()),
            ("raft-peers", peers.join(",")),
        ];
        words.extend(own.into_iter().flat_map(|(directive, value)| [format!("--{directive}"), value]));
        words.extend(self.directives.split_whitespace().map(str::to_string));
        if start.fills_disk {
            words.extend(["--disk-free-min", "0"].map(str::to_string));
        }
        words
    }

    fn session(&self, members: &[Member], first: usize, reply_max: Duration) -> Box<dyn Session> {
        let session = RespSession::new(members, first, reply_max);
        let misses_nothing = self.directives.contains("raft-follower-reads linearizable");
        Box::new(if misses_nothing { session.reading_beside() } else { session })
    }

    fn leads(&self, node: Member) -> Option<u64> {
        self.facts(node).filter(|facts| facts.leads).map(|facts| facts.term)
    }

    fn facts(&self, node: Member) -> Option<Facts> {
        let reply = ask(node, &["INFO", "raft"], INFO_MAX).ok()?;
        let info = String::from_utf8_lossy(reply.bytes()?).into_owned();
        let number = |name: &str| -> Option<u64> { info_field(&info, name)?.parse().ok() };
        Some(Facts {
            leads: info_field(&info, "raft_role") == Some("leader"),
            term: number("raft_term")?,
            first: number("raft_first_entry")?,
            last: number("raft_last_entry")?,
            commit: number("raft_commit_entry")?,
            copies: number("raft_copies")?,
        })
    }

    fn digest(&self, node: Member) -> Result<String> {
        let reply = ask(node, &["DEBUG", "DIGEST"], REPLY_MAX)?;
        ensure!(reply.error().is_none(), "DEBUG DIGEST was answered by {reply}");
        Ok(reply.to_string())
    }

    fn pump(&self, leader: Member, bytes: usize) -> Result<()> {
        let last = self.facts(leader).context("the leader tells how far it is")?.last;
        command(leader, &["SET", &format!("pumped:{}", last % PUMPED_KEYS), &"v".repeat(bytes)])
    }

    fn check(&self, dir: &Path) -> Result<bool> {
        check(&self.binary.display().to_string(), dir).map(|()| true)
    }

    fn transfer(&self, leader: Member, to: Member) -> Result<()> {
        command(leader, &["RAFT.TRANSFER-LEADER", &id(to).to_string()])
    }

    fn remove(&self, asked: Member, node: Member) -> Result<()> {
        let removed = command(asked, &["RAFT.NODE", "REMOVE", &id(node).to_string()]);
        if removed.as_ref().is_err_and(|error| error.to_string().contains(&peer(node))) {
            // The node leads, and is asked again when another one does.
            command(node, &["RAFT.TRANSFER-LEADER"])?;
        }
        removed
    }

    fn add(&self, asked: Member, node: Member) -> Result<()> {
        command(asked, &["RAFT.NODE", "ADD", &id(node).to_string(), &peer(node)])
    }
}
