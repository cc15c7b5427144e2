//! MODULE: there are none, and none can be loaded.

use crate::args::Args;
use crate::error::Result;
use crate::host::Host;
use crate::server::introspect::help;
use crate::table::{Arity, Body, Command, Flag, Group, Keys};
use haypile_resp::Reply;

pub(crate) const COMMANDS: &[Command] = &[MODULE];

const MODULE: Command = Command {
    name: "module",
    since: "4.0.0",
    group: Group::Server,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "A container for commands about modules.",
    syntax: "",
    complexity: "Depends on subcommand.",
    body: Body::Container,
    subcommands: &[MODULE_LIST, MODULE_HELP],
    ..Command::USUAL
};

const MODULE_LIST: Command = Command {
    name: "list",
    since: "4.0.0",
    group: Group::Server,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Returns the loaded modules: there are none.",
    syntax: "",
    complexity: "O(N) where N is the number of loaded modules.",
    body: Body::Host(list),
    flags: &[Flag::Admin, Flag::Noscript],
    tips: &["nondeterministic_output_order"],
    ..Command::USUAL
};

fn list(_host: &mut dyn Host, _args: Args) -> Result<Reply> {
    Ok(Reply::Array(Vec::new()))
}

const MODULE_HELP: Command = Command {
    name: "help",
    since: "5.0.0",
    group: Group::Server,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Lists the subcommands of MODULE.",
    syntax: "",
    body: Body::Host(help),
    flags: &[Flag::Loading, Flag::Stale],
    ..Command::USUAL
};
