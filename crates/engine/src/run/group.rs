//! A server that is a member of a consensus group. Who leads is decided elsewhere; here is what that means for clients
//! and for the data.
//!
//! Only the leader runs commands on keys. A member that does not lead says which one does, as a node of a Redis Cluster
//! says who has a slot. A leader that has lost its office opens its data again, without what its group did not agree
//! on: a client that waited for a reply then is disconnected, as nobody knows what became of its call.

use crate::run::engine::Engine;
use crate::sync::{Mutex, MutexGuard, lock};
use haypile_commands::{Body, Control, Entry};
use haypile_log::Index;
use haypile_resp as resp;
use haypile_store::slot_of;
use std::sync::atomic::{AtomicBool, Ordering};

/// The member that leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Leader {
    /// Nobody is known to.
    #[default]
    Unknown,
    /// Another one, at this address.
    At(String),
    /// This one, and clients are served.
    Here,
}

/// The facts about a member, for people and programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupFacts {
    pub node_id: u64,
    pub role: &'static str,
    pub term: u64,
    /// 0 where none is known.
    pub leader: u64,
    /// Entries.
    pub first: u64,
    pub last: u64,
    pub commit: u64,
    /// The last record that is committed.
    pub committed: Index,
    /// The other members: number, address, the last entry that it is known to have, and whether it was heard of lately.
    pub peers: Vec<(u64, String, u64, bool)>,
    /// How often this member was elected.
    pub elections: u64,
    /// How often it has opened its data again.
    pub rebuilds: u64,
    /// Why it takes no part, if it does not.
    pub fault: Option<String>,
}

/// See the file's head.
#[derive(Default)]
pub struct Group {
    leader: Mutex<Leader>,
    facts: Mutex<Option<GroupFacts>>,
    is_member: AtomicBool,
}

impl Group {
    fn leader(&self) -> MutexGuard<'_, Leader> {
        lock(&self.leader)
    }

    /// Returns whether the server is in a group: from its start to its end.
    pub fn is_member(&self) -> bool {
        self.is_member.load(Ordering::Relaxed)
    }

    /// Notes the facts of a member.
    pub fn set_facts(&self, facts: GroupFacts) {
        *lock(&self.facts) = Some(facts);
    }

    /// Returns the facts of a member; None of a server that is in no group.
    pub fn facts(&self) -> Option<GroupFacts> {
        lock(&self.facts).clone()
    }
}

/// Returns whether the leader of a group alone runs a command: what it says rests on data.
pub(crate) fn needs_leader(entry: &Entry) -> bool {
    match entry.command.body {
        Body::Txn(_) | Body::Wait(_) | Body::Migrate(_) | Body::Script(_) | Body::Engine(Control::Exec) => true,
        Body::Host(_) | Body::Act(_) | Body::Engine(_) | Body::Container => false,
    }
}

impl Engine {
    /// Notes who leads the group that this server is in: from its start on, before clients are served.
    pub fn set_leader(&self, leader: Leader) {
        self.group.is_member.store(true, Ordering::Relaxed);
        let mut now = self.group.leader();
        self.checks.set_redirected(leader != Leader::Here);
        if *now != leader {
            *now = leader;
        }
    }

    /// Returns the error of a command that the leader has to run, and who that is.
    pub(crate) fn redirect(&self, entry: &Entry, args: resp::Args<'_>) -> Option<String> {
        if matches!(entry.command.body, Body::Engine(_)) {
            // The commands of a block were looked at one by one.
            return None;
        }
        match &*self.group.leader() {
            Leader::Here => None,
            Leader::Unknown => Some("CLUSTERDOWN The cluster is down".to_owned()),
            Leader::At(address) => {
                let args = haypile_commands::Args::from(args);
                let slot = entry.command.keys(args).next().map_or(0, |(at, _)| slot_of(args.get(at)).0);
                Some(format!("MOVED {slot} {address}"))
            }
        }
    }

    /// Has clients' transactions make records: entries of `term` from `first` on. All records have been applied.
    pub fn lead_group(&self, term: u64, first: u64) -> Result<(), String> {
        let _data = lock(&self.replication.data);
        let _alone = self.hold_exclusion();
        let store = self.store().ok_or("the data are not loaded")?;
        store.lead_group(term, first);
        Ok(())
    }

    /// Opens the data of a member again, without its log's records behind `keep` and what it has not written. Blocks
    /// for as long as it takes: nobody is served meanwhile.
    ///
    /// # Errors
    /// A text for people. The server is told to stop.
    pub fn rebuild_group(&self, keep: Index) -> Result<(), String> {
        let _data = lock(&self.replication.data);
        self.open_group_again(keep)
    }
}
