//! A member that was removed says so. One that was there has heard of it; one that was away is told by nobody, and
//! asks.
//!
//! A member that knows no leader for a while asks the others for what they know of the group, until one leads that has
//! all the entries which this one knows to be committed. If that leader names it no more, it was removed. This is for
//! people: the member goes on as before, and hears of the group again if it is added anew.

use crate::raft::change::GroupInfo;
use crate::raft::{Raft, lock};
use haypile_engine::{GroupFacts, WAY_BACK};
use std::time::Duration;

/// How often a member looks whether it knows a leader; at the second look without one it asks.
const LOOK: Duration = Duration::from_secs(2);

/// The longest time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Asks whenever no leader is known; to the end of the server.
pub fn look_again_and_again(raft: &Raft) {
    let mut looks = 0;
    while !raft.inbox.wait_for_close(LOOK) {
        let facts = raft.engine.group.facts().filter(|facts| raft.is_member() && (has_left(facts) || is_lost(facts)));
        let Some(facts) = facts else {
            looks = 0;
            *lock(&raft.removed) = None;
            continue;
        };
        looks += 1;
        let word = match has_left(&facts) {
            true => Some(Word::Removed(facts.members.iter().map(|of| format!("{}@{}", of.id, of.address)).collect())),
            false if looks < 2 => continue,
            false => ask(raft, &facts),
        };
        match word {
            // The server may have left the group meanwhile.
            Some(Word::Removed(members)) if raft.is_member() => {
                let text = format!(
                    "member {} was removed from the group, whose members are {}: {WAY_BACK}",
                    facts.node_id,
                    members.join(", ")
                );
                if lock(&raft.removed).replace(text.clone()).is_none() {
                    tracing::warn!("{text}");
                }
            }
            Some(Word::Named) => *lock(&raft.removed) = None,
            _ => {}
        }
    }
}

/// The word of a leader about this server.
enum Word {
    Named,
    /// The leader has removed this server: the members that there are, as number@host:port.
    Removed(Vec<String>),
}

/// Returns whether a member has carried out its own removal: a group has agreed on that. A server that waits to be
/// added knows of nothing that is agreed on, or waits to be named.
fn has_left(facts: &GroupFacts) -> bool {
    let is_there = facts.members.iter().any(|member| member.id == facts.node_id);
    facts.role != "stopped" && !is_there && facts.commit > 0 && !facts.waits_to_be_named
}

/// Returns whether a member of the group knows no leader. One that waits to be added is not among its members, or is by
/// data of an earlier time; and one that has not begun yet, or is damaged, has another fault.
fn is_lost(facts: &GroupFacts) -> bool {
    let is_there = facts.members.iter().any(|member| member.id == facts.node_id);
    facts.leader == 0 && facts.role != "stopped" && is_there && !facts.waits_to_be_named
}

/// Asks the other members for the word of a leader.
fn ask(raft: &Raft, facts: &GroupFacts) -> Option<Word> {
    let others = facts.members.iter().filter(|member| member.id != facts.node_id);
    for member in others {
        if raft.inbox.is_closing() {
            return None;
        }
        let Ok((_, info)) = GroupInfo::ask(raft, &member.address, ANSWER_MAX) else { continue };
        let commit: u64 = info.field("raft_commit_entry:").parse().unwrap_or(0);
        let leads = info.field("raft_role:") == "leader" && info.field("raft_group:") == facts.group;
        if leads && commit >= facts.commit {
            let names_this = info.members().any(|(id, _)| id == facts.node_id);
            let members = || info.members().map(|(id, address)| format!("{id}@{address}")).collect();
            return Some(if names_this { Word::Named } else { Word::Removed(members()) });
        }
    }
    None
}
