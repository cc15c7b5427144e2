//! ACL: users, their rules, the categories of commands, and the log of what was denied.
//!
//! Owns the replies. What rules mean belongs to the crate `acl`; who is logged in, and the log, to the engine, behind
//! [`Host`]. Commands on users are in `users.rs`, the log and the file of users in `log.rs`.

mod log;
mod users;

pub use users::wrong_rule;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::server::introspect::help;
use crate::table::{Arity, Body, Category, Command, Flag, Group, Keys};
use haypile_resp::Reply;

pub(crate) const COMMANDS: &[Command] = &[ACL];

const ACL: Command = Command {
    name: "acl",
    since: "6.0.0",
    group: Group::Server,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "A container for commands about users and their rights.",
    syntax: "",
    complexity: "Depends on subcommand.",
    body: Body::Container,
    subcommands: &[
        ACL_CAT,
        users::DELUSER,
        users::DRYRUN,
        users::GETUSER,
        ACL_GENPASS,
        users::LIST,
        log::LOAD,
        log::LOG,
        log::SAVE,
        users::SETUSER,
        users::USERS,
        ACL_WHOAMI,
        ACL_HELP,
    ],
    ..Command::USUAL
};

const ACL_CAT: Command = Command {
    name: "cat",
    since: "6.0.0",
    group: Group::Server,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Returns the categories of commands, or the commands of a category.",
    syntax: "[categoryname]",
    complexity: "O(1) since the categories and commands are a fixed set.",
    body: Body::Host(cat),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn cat(host: &mut dyn Host, args: Args) -> Result<Reply> {
    match args.len() {
        2 => Ok(Reply::array(Category::ALL.iter().map(|category| Reply::bulk(category.name())))),
        3 => {
            let unknown = || Error::quoting("ERR Unknown category '", args.get(2), "'");
            let category = Category::named(args.get(2)).ok_or_else(unknown)?;
            let table = host.table();
            let all = table.iter().flat_map(|(_, entry)| std::iter::once(entry).chain(table.subcommands(entry)));
            let of_category = all.filter(|entry| entry.categories.has(category));
            Ok(Reply::array(of_category.map(|entry| Reply::bulk(entry.full_name.clone()))))
        }
        _ => Err(args.wrong_subcommand()),
    }
}

const ACL_GENPASS: Command = Command {
    name: "genpass",
    since: "6.0.0",
    group: Group::Server,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Returns a password drawn at random.",
    syntax: "[bits:integer]",
    body: Body::Host(genpass),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

const BITS: i64 = 256;
const BITS_MAX: i64 = 4096;

/// Draws a password of as many hexadecimal digits as the bits need.
fn genpass(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let bits = match args.len() {
        2 => BITS,
        3 => args.int(2)?,
        _ => return Err(args.wrong_subcommand()),
    };
    if !(1..=BITS_MAX).contains(&bits) {
        let text =
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096";
        return Err(Error::text(text));
    }
    let mut bytes = vec![0; (bits as usize).div_ceil(8)];
    host.fill_secret(&mut bytes);
    let mut digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.truncate((bits as usize).div_ceil(4));
    Ok(Reply::bulk(digits))
}

const ACL_WHOAMI: Command = Command {
    name: "whoami",
    since: "6.0.0",
    group: Group::Server,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Returns the name of the connection's user.",
    syntax: "",
    body: Body::Host(whoami),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn whoami(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    Ok(Reply::bulk(host.user().name().to_vec()))
}

const ACL_HELP: Command = Command {
    name: "help",
    since: "6.0.0",
    group: Group::Server,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Lists the subcommands of ACL.",
    syntax: "",
    body: Body::Host(help),
    flags: &[Flag::Loading, Flag::Stale],
    ..Command::USUAL
};
