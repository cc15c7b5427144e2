//! The commands of a Raft group's operators: RAFT.CLUSTER, RAFT.NODE, RAFT.TRANSFER-LEADER and RAFT.INFO.
//!
//! These commands give orders to the group's leader, and are answered when the group has carried them out.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, GroupOrder, Host};
use crate::server::introspect::help;
use crate::table::{Arity, Body, Category, Command, Flag, Group, Keys};
use haypile_resp::Reply;

pub(crate) const COMMANDS: &[Command] = &[CLUSTER, NODE, TRANSFER_LEADER, INFO];

/// The common fields of the orders to a group.
const ORDER: Command = Command {
    since: "7.0.0",
    group: Group::Cluster,
    keys: Keys::NONE,
    flags: &[Flag::Admin, Flag::Noscript, Flag::NoMulti, Flag::Stale],
    ..Command::USUAL
};

/// The common fields of the containers of orders.
const CONTAINER: Command = Command {
    since: "7.0.0",
    group: Group::Cluster,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    complexity: "Depends on subcommand.",
    body: Body::Container,
    ..Command::USUAL
};

const fn help_of(summary: &'static str) -> Command {
    Command {
        name: "help",
        arity: Arity::exactly(2),
        summary,
        body: Body::Host(help),
        flags: &[Flag::Loading, Flag::Stale],
        ..ORDER
    }
}

fn order(what: GroupOrder) -> Result<Answer> {
    Ok(Answer::with(Reply::None, Act::Order(what)))
}

fn text(args: Args, at: usize) -> String {
    String::from_utf8_lossy(args.get(at)).into_owned()
}

const CLUSTER: Command = Command {
    name: "raft.cluster",
    summary: "A container for commands that begin, enter and end a Raft group.",
    subcommands: &[CLUSTER_INIT, CLUSTER_JOIN, CLUSTER_RESET, help_of("Lists the subcommands of RAFT.CLUSTER.")],
    ..CONTAINER
};

const CLUSTER_INIT: Command = Command {
    name: "init",
    arity: Arity::exactly(3),
    summary: "Makes this server, with its data, the first member of a Raft group.",
    syntax: "address:string",
    body: Body::Act(init),
    ..ORDER
};

fn init(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    order(GroupOrder::Begin { address: text(args, 2) })
}

const CLUSTER_JOIN: Command = Command {
    name: "join",
    arity: Arity::at_least(3),
    summary: "Makes this server a member of the Raft group of another one, whose data take the place of its own.",
    syntax: "through:string [AS address:string] [FORCE]",
    body: Body::Act(join),
    ..ORDER
};

fn join(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    let (mut address, mut forces, mut at) = (None, false, 3);
    while at < args.len() {
        if args.is(at, "force") && !forces {
            (forces, at) = (true, at + 1);
        } else if args.is(at, "as") && at + 1 < args.len() && address.is_none() {
            (address, at) = (Some(text(args, at + 1)), at + 2);
        } else {
            return Err(Error::Syntax);
        }
    }
    order(GroupOrder::Join { through: text(args, 2), address, forces })
}

const CLUSTER_RESET: Command = Command {
    name: "reset",
    arity: Arity::exactly(2),
    summary: "Makes the only member of a Raft group a server that is in none, with its data.",
    body: Body::Act(reset),
    ..ORDER
};

fn reset(_host: &mut dyn Host, _args: Args) -> Result<Answer> {
    order(GroupOrder::Reset)
}

const NODE: Command = Command {
    name: "raft.node",
    summary: "A container for commands that change the members of the Raft group.",
    subcommands: &[NODE_ADD, NODE_REMOVE, help_of("Lists the subcommands of RAFT.NODE.")],
    ..CONTAINER
};

fn member_id(args: Args, at: usize) -> Result<u64> {
    let id = args.int(at)?;
    u64::try_from(id).ok().filter(|id| *id > 0).ok_or_else(|| Error::text("ERR a member's number is from 1 on"))
}

const NODE_ADD: Command = Command {
    name: "add",
    arity: Arity::exactly(4),
    summary: "Has a server come into the Raft group as the member of a number.",
    syntax: "id:integer address:string",
    body: Body::Act(add),
    ..ORDER
};

fn add(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    order(GroupOrder::AddMember { id: member_id(args, 2)?, address: text(args, 3) })
}

const NODE_REMOVE: Command = Command {
    name: "remove",
    arity: Arity::exactly(3),
    summary: "Has a member leave the Raft group.",
    syntax: "id:integer",
    body: Body::Act(remove),
    ..ORDER
};

fn remove(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    order(GroupOrder::RemoveMember { id: member_id(args, 2)? })
}

const TRANSFER_LEADER: Command = Command {
    name: "raft.transfer-leader",
    arity: Arity::at_least(1),
    summary: "Has another member lead the Raft group.",
    syntax: "[id:integer]",
    body: Body::Act(transfer_leader),
    ..ORDER
};

fn transfer_leader(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    let to = match args.len() {
        1 => None,
        2 => Some(member_id(args, 1)?),
        _ => return Err(Error::Syntax),
    };
    order(GroupOrder::TransferLead { to })
}

const INFO: Command = Command {
    name: "raft.info",
    since: "7.0.0",
    group: Group::Cluster,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    summary: "Returns what this server knows of its Raft group: the section `raft` of INFO.",
    syntax: "",
    body: Body::Host(info),
    flags: &[Flag::Loading, Flag::Stale],
    categories: &[Category::Dangerous],
    ..Command::USUAL
};

fn info(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    let mut text = String::from("# Raft\r\n");
    host.info("raft", &mut text);
    Ok(Reply::Verbatim("txt", text.into()))
}
