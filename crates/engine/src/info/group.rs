//! The section `raft`: a member of a consensus group, and a line for each other one.

use super::field::{Field, counter, gauge, text};
use crate::run::engine::Engine;
use crate::run::group::{GroupFacts, MemberFacts, MemberSeen};

pub(super) const FIELDS: &[Field] = &[
    text(
        "raft_role",
        |engine| of(engine, |facts| facts.role.into(), "none".into()),
        "`leader`, `follower`, `candidate`, `elected` (it leads and serves nobody yet), `stopped`, or `none` outside of a \
         group.",
    ),
    gauge("raft_node_id", |engine| number(engine, |facts| facts.node_id), "This server's number in its group."),
    text("raft_group", |engine| of(engine, |facts| facts.group.clone(), String::new()), "The name of the group."),
    text(
        "raft_founding",
        |engine| of(engine, |facts| facts.founding.clone(), String::new()),
        "The members with which the group has begun.",
    ),
    text(
        "raft_reads",
        |engine| of(engine, |facts| facts.reads.clone(), String::new()),
        "`index`, or `lease` with the times of elections and heartbeats in milliseconds: the same on all members.",
    ),
    text(
        "raft_leader_address",
        |engine| of(engine, |facts| facts.leader_address.clone(), String::new()),
        "The leader's address; empty if none is known.",
    ),
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
        "raft_copies",
        |engine| number(engine, |facts| facts.copies),
        "How often this server has put a copy of a leader's data in the place of its own.",
    ),
    counter(
        "raft_rebuilds",
        |engine| number(engine, |facts| facts.rebuilds),
        "How often this server opened its data again, without what the group did not agree on.",
    ),
    gauge(
        "raft_proxied_clients",
        |engine| engine.group.proxied_clients(),
        "Clients whose connections go on to the leader: `raft-follower-proxy`.",
    ),
    text(
        "raft_fault",
        |engine| of(engine, |facts| facts.fault.clone().unwrap_or_default(), String::new()),
        "Why this server takes no part in its group; empty if it does.",
    ),
];

/// The lines of the members; the last fields of each are those that a leader knows.
pub(super) const PATTERNS: &[(&str, &str, &str)] = &[(
    "raft",
    "raft_memberN",
    "The Nth member: its number, address and part (`voter`, `learner`, and while voters change `joining` or `leaving`); of \
     a leader for each other one: the last entry that it has, how many it lacks, whether it was heard of lately, and whether \
     it needs a copy of the data.",
)];

fn of<R>(engine: &Engine, read: impl Fn(&GroupFacts) -> R, none: R) -> R {
    engine.group.facts().map_or(none, |facts| read(&facts))
}

fn number(engine: &Engine, read: impl Fn(&GroupFacts) -> u64) -> u64 {
    of(engine, read, 0)
}

/// Writes the lines of the members.
pub(super) fn lines(engine: &Engine, out: &mut String) {
    let Some(facts) = engine.group.facts() else { return };
    for (at, MemberFacts { id, address, part, seen }) in facts.members.iter().enumerate() {
        out.push_str(&format!("raft_member{at}:id={id},address={address},part={part}"));
        if let Some(MemberSeen { matched, is_heard, needs_copy }) = seen {
            let (lag, active, copy) = (facts.last.saturating_sub(*matched), u8::from(*is_heard), u8::from(*needs_copy));
            out.push_str(&format!(",match={matched},lag={lag},active={active},needs_copy={copy}"));
        }
        out.push_str("\r\n");
    }
}
