//! The commands of transactions.
//!
//! Owns their entries only: they change how other commands run, so the engine runs them ([`Control`]).

use crate::table::{Arity, Body, Command, Control, Flag, Group, Keys};

pub(crate) const COMMANDS: &[Command] = &[MULTI, EXEC, DISCARD, WATCH, UNWATCH];

const MULTI: Command = Command {
    name: "multi",
    since: "1.2.0",
    group: Group::Transactions,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    summary: "Begins a transaction.",
    syntax: "",
    body: Body::Engine(Control::Multi),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::AllowBusy],
    runs_in_multi: true,
    keeps_caching: true,
    begins_at_leader: true,
    ..Command::USUAL
};

const EXEC: Command = Command {
    name: "exec",
    since: "1.2.0",
    group: Group::Transactions,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    summary: "Runs the queued commands as one transaction.",
    syntax: "",
    complexity: "Depends on commands in the transaction",
    body: Body::Engine(Control::Exec),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::SkipSlowlog],
    runs_in_multi: true,
    ..Command::USUAL
};

const DISCARD: Command = Command {
    name: "discard",
    since: "2.0.0",
    group: Group::Transactions,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    summary: "Drops the queued commands and ends the transaction.",
    syntax: "",
    complexity: "O(N), when N is the number of queued commands",
    body: Body::Engine(Control::Discard),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::AllowBusy],
    runs_in_multi: true,
    ..Command::USUAL
};

const WATCH: Command = Command {
    name: "watch",
    since: "2.2.0",
    group: Group::Transactions,
    arity: Arity::at_least(2),
    keys: Keys::all_from(1, 1).ro(&[]),
    summary: "Lets the next EXEC fail if one of these keys changes before it.",
    syntax: "key...",
    complexity: "O(1) for every key.",
    body: Body::Engine(Control::Watch),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::AllowBusy],
    runs_in_multi: true,
    ..Command::USUAL
};

const UNWATCH: Command = Command {
    name: "unwatch",
    since: "2.2.0",
    group: Group::Transactions,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    summary: "Forgets all watched keys.",
    syntax: "",
    body: Body::Engine(Control::Unwatch),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::AllowBusy],
    ..Command::USUAL
};
