//! ACL LOG, and the file of users: ACL LOAD and ACL SAVE.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, Host};
use crate::table::{Arity, Body, Command, Flag, Group, Keys};
use haypile_acl::log::Entry;
use haypile_resp::Reply;

const FLAGS: &[Flag] = &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale];

/// Entries that ACL LOG answers unless it is told how many.
const ENTRIES: usize = 10;

pub(super) const LOG: Command = Command {
    name: "log",
    since: "6.0.0",
    group: Group::Server,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Returns the latest denials, or forgets them.",
    syntax: "[operation=(count:integer | RESET)]",
    complexity: "O(N) with N being the number of entries shown.",
    body: Body::Act(log),
    flags: FLAGS,
    history: &[("7.2.0", "Added entry ID, timestamp created, and timestamp last updated.")],
    ..Command::USUAL
};

fn log(host: &mut dyn Host, args: Args) -> Result<Answer> {
    let count = match args.len() {
        2 => ENTRIES,
        3 if args.is(2, "RESET") => return Ok(Answer::ok(Act::ResetDenials)),
        3 => usize::try_from(args.int(2)?).unwrap_or(0),
        _ => return Err(args.wrong_subcommand()),
    };
    let now_ms = host.now_us() / 1000;
    Ok(Reply::array(host.denials(count).iter().map(|entry| described(entry, now_ms))).into())
}

fn described(entry: &Entry, now_ms: u64) -> Reply {
    let age_s = now_ms.saturating_sub(entry.updated_ms) as f64 / 1000.0;
    let fields = [
        ("count", Reply::Integer(entry.count as i64)),
        ("reason", Reply::bulk(entry.denial.reason.name())),
        ("context", Reply::bulk(entry.denial.context.name())),
        ("object", Reply::bulk(entry.denial.object.clone())),
        ("username", Reply::bulk(entry.denial.user.clone())),
        ("age-seconds", Reply::Double(age_s)),
        ("client-info", Reply::bulk(entry.client.clone())),
        ("entry-id", Reply::Integer(entry.id as i64)),
        ("timestamp-created", Reply::Integer(entry.created_ms as i64)),
        ("timestamp-last-updated", Reply::Integer(entry.updated_ms as i64)),
    ];
    Reply::Map(fields.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect())
}

pub(super) const LOAD: Command = Command {
    name: "load",
    since: "6.0.0",
    group: Group::Server,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Reads the file of users again.",
    syntax: "",
    complexity: "O(N). Where N is the number of configured users.",
    body: Body::Act(load),
    flags: FLAGS,
    ..Command::USUAL
};

fn load(host: &mut dyn Host, _args: Args) -> Result<Answer> {
    check_file(host)?;
    Ok(Answer::ok(Act::LoadUsers))
}

pub(super) const SAVE: Command = Command {
    name: "save",
    since: "6.0.0",
    group: Group::Server,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Writes all users into the file of users.",
    syntax: "",
    complexity: "O(N). Where N is the number of configured users.",
    body: Body::Act(save),
    flags: FLAGS,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..Command::USUAL
};

fn save(host: &mut dyn Host, _args: Args) -> Result<Answer> {
    check_file(host)?;
    Ok(Answer::ok(Act::SaveUsers))
}

fn check_file(host: &dyn Host) -> Result<()> {
    if host.has_user_file() {
        return Ok(());
    }
    Err(Error::text(
        "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER \
         command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store \
         users in the Redis configuration.",
    ))
}
