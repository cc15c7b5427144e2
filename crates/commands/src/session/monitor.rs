//! MONITOR.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Answer, Host, SessionChange};
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
    body: Body::Act(monitor),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

/// Redis does not answer a client that is shown all commands already.
fn monitor(host: &mut dyn Host, _: Args) -> Result<Answer> {
    if host.is_in_block() {
        return Err(Error::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    Ok(if host.monitors() { Reply::None.into() } else { Answer::ok(SessionChange::Monitor) })
}
