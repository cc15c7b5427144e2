//! The place of a server in its Raft group: as the configuration says it at first, and then its data directory.

use crate::datadir;
use haypile_config::Config;
use haypile_log::{DiskFiles, Files, History, write_all_at};
use haypile_raft::Members;
use std::io::{self, ErrorKind};
use std::path::Path;

const TITLE: &str = "haypile raft member 1";

/// A server's place in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub id: u64,
    /// The name of the group, which no other one has.
    pub group: History,
    /// The members with which the group has begun.
    pub founding: Members,
}

impl Identity {
    /// Returns the place that data directory and configuration give a server; None of one that is in no group.
    ///
    /// # Errors
    /// A text for people: they are not what they have to be, or do not agree.
    pub fn of(config: &Config) -> Result<Option<Identity>, String> {
        let configured = configured(config)?;
        let kept = Identity::read(&config.dir)?;
        if let (Some(configured), Some(kept)) = (&configured, &kept)
            && configured != kept
        {
            return Err(format!(
                "the data in {} are of member {} of group {}, and the configuration says member {} of {}",
                config.dir.display(),
                kept.id,
                kept.group,
                configured.id,
                configured.group
            ));
        }
        let identity = kept.or(configured);
        if identity.is_some() {
            check(config)?;
        }
        Ok(identity)
    }

    /// Returns whether a new log of this group begins with its name, and its rows are placed by its seed: the group has
    /// begun with empty servers that were told of each other. Else members have that from a copy.
    pub fn begins_empty(&self) -> bool {
        self.group == self.founding.founding()
    }

    fn text(&self) -> String {
        format!("{TITLE}\nid {}\ngroup {}\nfounding {}\n", self.id, self.group, self.founding)
    }

    fn parse(text: &str) -> Option<Identity> {
        let mut lines = text.lines();
        (lines.next()? == TITLE).then_some(())?;
        let id = lines.next()?.strip_prefix("id ")?.parse().ok()?;
        let group = History::parse(lines.next()?.strip_prefix("group ")?)?;
        let founding = Members::parse(lines.next()?.strip_prefix("founding ")?).ok()?;
        let identity = Identity { id, group, founding };
        (identity.text() == text).then_some(identity)
    }

    fn read(dir: &Path) -> Result<Option<Identity>, String> {
        let path = datadir::member_file(dir);
        match std::fs::read_to_string(&path) {
            Ok(text) => match Identity::parse(&text) {
                Some(identity) => Ok(Some(identity)),
                None => Err(format!("{} does not say which member this server is: it is damaged", path.display())),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("Can't read {}: {error}", path.display())),
        }
    }

    /// Notes the place in the data directory, if it is not noted there; it is on the disk when this returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&self, dir: &Path) -> io::Result<()> {
        let path = datadir::member_file(dir);
        if path.exists() {
            return Ok(());
        }
        let fresh = path.with_extension("new");
        let file = DiskFiles.create(&fresh)?;
        write_all_at(&*file, self.text().as_bytes(), 0)?;
        file.sync()?;
        DiskFiles.rename(&fresh, &path)?;
        DiskFiles.sync_dir(dir)
    }
}

/// Returns the place that the directives give a server.
fn configured(config: &Config) -> Result<Option<Identity>, String> {
    if !config.raft.is_member() {
        return match config.raft.peers.is_empty() {
            true => Ok(None),
            false => Err("'raft-peers' names members, and 'raft-node-id' does not say which one this server is".into()),
        };
    }
    let founding = Members::parse(&config.raft.peers).map_err(|error| format!("'raft-peers': {error}"))?;
    Ok(Some(Identity { id: config.raft.node_id, group: founding.founding(), founding }))
}

/// Looks whether a server with this configuration can be a member of a group.
///
/// # Errors
/// A text for people.
pub fn check(config: &Config) -> Result<(), String> {
    if config.replication.replicaof.is_some() {
        return Err("a member of a Raft group cannot be a replica: it and 'replicaof' exclude each other".into());
    }
    if config.engine == haypile_config::Engine::Memory {
        return Err("a member of a Raft group keeps its data: it and 'engine memory' exclude each other".into());
    }
    if config.raft.has_users && config.aclfile.is_some() {
        return Err("'raft-users group' keeps users in the data: it and 'aclfile' exclude each other".into());
    }
    if 2 * config.raft.heartbeat_ms > config.raft.election_ms {
        return Err("'raft-heartbeat-interval' is more than half of 'raft-election-timeout'".into());
    }
    Ok(())
}

/// Returns what all members have to say of reads: a lease rests on the times of all.
pub fn reads_word(config: &haypile_config::config::Raft) -> String {
    match config.leases {
        true => format!("lease:{}:{}", config.election_ms, config.heartbeat_ms),
        false => "index".into(),
    }
}

/// Says that a server which has `reads` cannot be a member beside another one, which has another word.
pub fn unlike(reads: &str, other: &str, others: &str) -> String {
    format!(
        "'raft-read' and, with leases, the times of elections and heartbeats have to be the same on all members: it has \
         {reads}, and {other} has {others}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let founding = Members::parse("1@a:1,2@b:2").expect("these are members");
        let identity = Identity { id: 3, group: founding.founding(), founding };
        assert!(identity.begins_empty());
        let other = Identity { group: History([7; 20]), ..identity.clone() };
        assert!(!other.begins_empty());
        for identity in [identity, other] {
            let text = identity.text();
            assert_eq!(Identity::parse(&text).as_ref(), Some(&identity));
            (0..text.len()).for_each(|cut| assert_eq!(Identity::parse(&text[..cut]), None, "{cut}"));
        }
    }
}
