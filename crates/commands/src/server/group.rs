//! The commands of a Raft group's operators: RAFT.CLUSTER, RAFT.NODE, RAFT.TRANSFER-LEADER and RAFT.INFO.
//!
//! These commands give orders to the group's leader, and are answered when the group has carried them out.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, GroupOrder, Host};
use crate::table::{Arity, Body, Category, Command, Flag, Group, Keys};
use haypile_resp::Reply;

pub(crate) const COMMANDS: &[Command] = &[CLUSTER, NODE, TRANSFER_LEADER, INFO];

const CLUSTER: Command = Command {
    name: "raft.cluster",
    since: "7.0.0",
    group: Group::Cluster,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Makes this server the first member of a Raft group, with its data, or a member of one that is there; or the \
              only member of one a server that is in none.",
    syntax: "operation=(init=(INIT address:string) | join=(JOIN through:string [AS address:string] [FORCE]) | RESET)",
    body: Body::Act(cluster),
    flags: &[Flag::Admin, Flag::Noscript, Flag::NoMulti, Flag::Stale],
    ..Command::USUAL
};

fn cluster(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    let text = |at: usize| String::from_utf8_lossy(args.get(at)).into_owned();
    if args.is(1, "init") && args.len() == 3 {
        return Ok(Answer::with(Reply::None, Act::Order(GroupOrder::Begin { address: text(2) })));
    }
    if args.is(1, "reset") && args.len() == 2 {
        return Ok(Answer::with(Reply::None, Act::Order(GroupOrder::Reset)));
    }
    if !args.is(1, "join") || args.len() < 3 {
        return Err(Error::Syntax);
    }
    let (mut address, mut forces, mut at) = (None, false, 3);
    while at < args.len() {
        if args.is(at, "force") && !forces {
            (forces, at) = (true, at + 1);
        } else if args.is(at, "as") && at + 1 < args.len() && address.is_none() {
            (address, at) = (Some(text(at + 1)), at + 2);
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok(Answer::with(Reply::None, Act::Order(GroupOrder::Join { through: text(2), address, forces })))
}

const NODE: Command = Command {
    name: "raft.node",
    since: "7.0.0",
    group: Group::Cluster,
    arity: Arity::at_least(3),
    keys: Keys::NONE,
    summary: "Has a member come into the Raft group, or leave it.",
    syntax: "operation=(add=(ADD id:integer address:string) | remove=(REMOVE id:integer))",
    body: Body::Act(node),
    flags: &[Flag::Admin, Flag::Noscript, Flag::NoMulti, Flag::Stale],
    ..Command::USUAL
};

fn member_id(args: Args, at: usize) -> Result<u64> {
    let id = args.int(at)?;
    u64::try_from(id).ok().filter(|id| *id > 0).ok_or_else(|| Error::text("ERR a member's number is from 1 on"))
}

fn node(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    let order = if args.is(1, "add") && args.len() == 4 {
        let address = String::from_utf8_lossy(args.get(3)).into_owned();
        GroupOrder::AddMember { id: member_id(args, 2)?, address }
    } else if args.is(1, "remove") && args.len() == 3 {
        GroupOrder::RemoveMember { id: member_id(args, 2)? }
    } else {
        return Err(Error::Syntax);
    };
    Ok(Answer::with(Reply::None, Act::Order(order)))
}

const TRANSFER_LEADER: Command = Command {
    name: "raft.transfer-leader",
    since: "7.0.0",
    group: Group::Cluster,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Has another member lead the Raft group.",
    syntax: "[id:integer]",
    body: Body::Act(transfer_leader),
    flags: &[Flag::Admin, Flag::Noscript, Flag::NoMulti, Flag::Stale],
    ..Command::USUAL
};

fn transfer_leader(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    let to = match args.len() {
        1 => None,
        2 => Some(member_id(args, 1)?),
        _ => return Err(Error::Syntax),
    };
    Ok(Answer::with(Reply::None, Act::Order(GroupOrder::TransferLead { to })))
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
