//! The section `raft`: a member of a consensus group, and a line for each other one.

use super::field::{Field, counter, gauge, text};
use crate::run::engine::Engine;
use crate::run::group::GroupFacts;

pub(super) const FIELDS: &[Field] = &[
    text(
        "raft_role",
        |engine| of(engine, |facts| facts.role.into(), "none".into()),
        "`leader`, `follower`, `candidate`, `elected` (it leads and serves nobody yet), `stopped`, or `none` outside of a \
         group.",
    ),
    gauge("raft_node_id", |engine| number(engine, |facts| facts.node_id), "This server's number in its group."),
    gauge("raft_leader_id", |engine| number(engine, |facts| facts.leader), "The leader's number; 0 if none is known."),
    gauge("raft_term", |engine| number(engine, |facts| facts.term), "The term."),
    gauge("raft_first_entry", |engine| number(engine, |facts| facts.first), "The oldest entry that the log has."),
    gauge("raft_last_entry", |engine| number(engine, |facts| facts.last), "The last entry of the log."),
    gauge(
        "raft_commit_entry",
        |engine| number(engine, |facts| facts.commit),
        "The last entry that the group agreed on.",
    ),
    gauge(
        "raft_committed_record",
        |engine| number(engine, |facts| facts.committed.0),
        "The last record that the group agreed on.",
    ),
    counter("raft_elections", |engine| number(engine, |facts| facts.elections), "How often this server began to lead."),
    counter(
        "raft_rebuilds",
        |engine| number(engine, |facts| facts.rebuilds),
        "How often this server opened its data again, without what the group did not agree on.",
    ),
    text(
        "raft_fault",
        |engine| of(engine, |facts| facts.fault.clone().unwrap_or_default(), String::new()),
        "Why this server takes no part in its group; empty if it does.",
    ),
];

/// The lines of the other members, which a leader knows.
pub(super) const PATTERNS: &[(&str, &str, &str)] = &[(
    "raft",
    "raft_peerN",
    "Of a leader: the Nth other member, the last entry that it has, how many it lacks, and whether it was heard of lately.",
)];

fn of<R>(engine: &Engine, read: impl Fn(&GroupFacts) -> R, none: R) -> R {
    engine.group.facts().map_or(none, |facts| read(&facts))
}

fn number(engine: &Engine, read: impl Fn(&GroupFacts) -> u64) -> u64 {
    of(engine, read, 0)
}

/// Writes the lines of the other members.
pub(super) fn lines(engine: &Engine, out: &mut String) {
    let Some(facts) = engine.group.facts() else { return };
    for (at, (id, address, matched, is_active)) in facts.peers.iter().enumerate() {
        let (lag, active) = (facts.last.saturating_sub(*matched), u8::from(*is_active));
        out.push_str(&format!("raft_peer{at}:id={id},address={address},match={matched},lag={lag},active={active}\r\n"));
    }
}
