//! MONITOR.

use crate::args::Args;
use crate::error::Result;
use crate::host::Host;
use crate::table::{Arity, Body, Command, Flag, Group, Keys};
use haypile_resp::Reply;

pub(crate) const COMMANDS: &[Command] = &[MONITOR];

const MONITOR: Command = Command {
    name: "monitor",
    since: "1.0.0",
    group: Group::Server,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    summary: "Shows the connection every command that the server runs.",
    syntax: "",
    complexity: "",
    body: Body::Host(monitor),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

/// Redis does not answer a client that is shown all commands already.
fn monitor(host: &mut dyn Host, _: Args) -> Result<Reply> {
    Ok(if host.monitor()? { Reply::ok() } else { Reply::None })
}
