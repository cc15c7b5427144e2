//! ACL SETUSER, DELUSER, GETUSER, LIST, USERS and DRYRUN.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, Host};
use crate::rights::Requested;
use crate::table::{Arity, Body, Command, Flag, Group, Keys};
use haypile_acl::selector::Selector;
use haypile_acl::user::{DEFAULT, is_name, merge_parentheses};
use haypile_resp::Reply;

/// The flags of commands that show or change users.
const FLAGS: &[Flag] = &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale];

pub(super) const SETUSER: Command = Command {
    name: "setuser",
    since: "6.0.0",
    group: Group::Server,
    arity: Arity::at_least(3),
    keys: Keys::NONE,
    summary: "Makes a user, or changes its rules.",
    syntax: "username [rule...]",
    complexity: "O(N). Where N is the number of rules provided.",
    body: Body::Act(setuser),
    changes_users: true,
    flags: FLAGS,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    history: &[("6.2.0", "Added Pub/Sub channel patterns."), ("7.0.0", "Added selectors and key based permissions.")],
    ..Command::USUAL
};

/// All rules take effect, or none of them.
fn setuser(host: &mut dyn Host, args: Args) -> Result<Answer> {
    let name = args.get(2);
    if !is_name(name) {
        return Err(Error::text("ERR Usernames can't contain spaces or null characters"));
    }
    let words: Vec<&[u8]> = args.iter_from(3).collect();
    host.check_hashed_bytes(words.iter().map(|word| word.len()).sum())?;
    let rules = merge_parentheses(&words)
        .map_err(|at| Error::quoting("ERR Unmatched parenthesis in acl selector starting at '", words[at], "'."))?;
    let made = host.users().with_rules(name, &rules, host.table().catalog(), host.fresh_rights());
    match made {
        Ok(_) => Ok(Answer::ok(Act::SetUser { name: name.to_vec(), rules })),
        Err((at, wrong)) => Err(wrong_rule(&rules[at], wrong)),
    }
}

/// The error of a rule that is refused.
pub fn wrong_rule(rule: &[u8], wrong: haypile_acl::Wrong) -> Error {
    Error::quoting("ERR Error in ACL SETUSER modifier '", rule, &format!("': {}", wrong.text()))
}

pub(super) const DELUSER: Command = Command {
    name: "deluser",
    since: "6.0.0",
    group: Group::Server,
    arity: Arity::at_least(3),
    keys: Keys::NONE,
    summary: "Removes users and closes their connections.",
    syntax: "username...",
    complexity: "O(1) amortized time considering the typical user.",
    body: Body::Act(deluser),
    changes_users: true,
    flags: FLAGS,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..Command::USUAL
};

/// Answers how many were there.
fn deluser(host: &mut dyn Host, args: Args) -> Result<Answer> {
    if args.iter_from(2).any(|name| name == DEFAULT) {
        return Err(Error::text("ERR The 'default' user cannot be removed"));
    }
    let users = host.users();
    let mut names: Vec<Vec<u8>> = Vec::new();
    for name in args.iter_from(2) {
        if users.get(name).is_some() && !names.iter().any(|other| other == name) {
            names.push(name.to_vec());
        }
    }
    Ok(Answer::with(Reply::Integer(names.len() as i64), Act::DeleteUsers(names)))
}

pub(super) const GETUSER: Command = Command {
    name: "getuser",
    since: "6.0.0",
    group: Group::Server,
    arity: Arity::exactly(3),
    keys: Keys::NONE,
    summary: "Returns the flags, passwords and rules of a user.",
    syntax: "username",
    complexity: "O(N). Where N is the number of password, command and pattern rules that the user has.",
    body: Body::Host(getuser),
    flags: FLAGS,
    history: &[
        ("6.2.0", "Added Pub/Sub channel patterns."),
        (
            "7.0.0",
            "Added selectors and changed the format of key and channel patterns from a list to their rule \
            representation.",
        ),
    ],
    ..Command::USUAL
};

fn getuser(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let users = host.users();
    let Some(user) = users.get(args.get(2)) else { return Ok(Reply::Null) };
    let mut fields = vec![
        (Reply::bulk("flags"), Reply::Set(user.flags().map(Reply::bulk).collect())),
        (Reply::bulk("passwords"), Reply::array(user.passwords().map(Reply::bulk))),
    ];
    fields.extend(described(user.root()));
    let selectors = user.selectors().iter().map(|selector| Reply::Map(described(selector)));
    fields.push((Reply::bulk("selectors"), Reply::array(selectors)));
    if !user.limits().is_none() {
        fields.push((Reply::bulk("limits"), Reply::bulk(user.limits().text())));
    }
    Ok(Reply::Map(fields))
}

/// The rights of a selector. Databases are named where they are restricted, so that who knows Redis's fields only does
/// not come upon another.
fn described(selector: &Selector) -> Vec<(Reply, Reply)> {
    let mut fields = vec![
        (Reply::bulk("commands"), Reply::bulk(selector.commands_text())),
        (Reply::bulk("keys"), Reply::bulk(selector.keys_text())),
        (Reply::bulk("channels"), Reply::bulk(selector.channels_text())),
    ];
    if let Some(databases) = selector.databases_text() {
        fields.push((Reply::bulk("databases"), Reply::bulk(databases)));
    }
    fields
}

pub(super) const LIST: Command = Command {
    name: "list",
    since: "6.0.0",
    group: Group::Server,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Returns all users with their rules, as a file of users holds them.",
    syntax: "",
    complexity: "O(N). Where N is the number of configured users.",
    body: Body::Host(list),
    flags: FLAGS,
    ..Command::USUAL
};

fn list(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    Ok(Reply::array(host.users().iter().map(|user| Reply::bulk(user.line()))))
}

pub(super) const USERS: Command = Command {
    name: "users",
    since: "6.0.0",
    group: Group::Server,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Returns the names of all users.",
    syntax: "",
    complexity: "O(N). Where N is the number of configured users.",
    body: Body::Host(users),
    flags: FLAGS,
    ..Command::USUAL
};

fn users(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    Ok(Reply::array(host.users().iter().map(|user| Reply::bulk(user.name().to_vec()))))
}

pub(super) const DRYRUN: Command = Command {
    name: "dryrun",
    since: "7.0.0",
    group: Group::Server,
    arity: Arity::at_least(4),
    keys: Keys::NONE,
    summary: "Says whether a user may run a command, without running it.",
    syntax: "username command [arg...]",
    complexity: "O(1).",
    body: Body::Host(dryrun),
    flags: FLAGS,
    ..Command::USUAL
};

fn dryrun(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let users = host.users();
    let user = users.get(args.get(2)).ok_or_else(|| Error::quoting("ERR User '", args.get(2), "' not found"))?;
    let call = args.tail(3);
    let not_found = || Error::quoting("ERR Command '", args.get(3), "' not found");
    let entry = host.table().lookup(call).ok_or_else(not_found)?;
    if !entry.command.arity.allows(call.len()) {
        return Err(Error::WrongArity(entry.full_name.clone()));
    }
    let called = Requested { entry, args: call, database: host.database() };
    Ok(match called.check(user) {
        Ok(()) => Reply::ok(),
        Err(denied) => Reply::bulk(denied.long_text(user.name(), &entry.full_name, call.get(denied.argument))),
    })
}
