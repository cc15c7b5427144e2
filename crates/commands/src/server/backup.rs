//! The commands that make backups: SAVE, BGSAVE, LASTSAVE, and ARCHIVE.BACKUP, which Redis does not have.
//!
//! Owns their options and replies. When a backup runs, and what is in it, is the engine's and the server's business.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, Host};
use crate::table::{Arity, Body, Category, Command, Control, Flag, Group, Keys};
use haypile_resp::Reply;

pub(crate) const COMMANDS: &[Command] = &[SAVE, BGSAVE, LASTSAVE, ARCHIVE_BACKUP];

/// SAVE makes only its own connection wait: the engine answers when the backup is there.
const SAVE: Command = Command {
    name: "save",
    since: "1.0.0",
    group: Group::Server,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    summary: "Writes a backup and returns when it is complete.",
    syntax: "",
    complexity: "O(N) where N is the total number of keys in all databases",
    body: Body::Engine(Control::Save),
    flags: &[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading, Flag::NoMulti],
    ..Command::USUAL
};

const BGSAVE: Command = Command {
    name: "bgsave",
    since: "1.0.0",
    group: Group::Server,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Begins to write a backup.",
    syntax: "[SCHEDULE@3.2.2]",
    body: Body::Act(bgsave),
    flags: &[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading],
    history: &[("3.2.2", "Added the `SCHEDULE` option.")],
    ..Command::USUAL
};

/// Begins a backup. It waits for nothing but the end of a transaction, so that SCHEDULE changes nothing else.
fn bgsave(host: &mut dyn Host, args: Args) -> Result<Answer> {
    match args.len() {
        1 => {}
        2 if args.is(1, "SCHEDULE") => {}
        _ => return Err(Error::Syntax),
    }
    let text = if host.is_in_block() { "Background saving scheduled" } else { "Background saving started" };
    Ok(Answer::with(Reply::Simple(text), Act::BeginBackup))
}

const LASTSAVE: Command = Command {
    name: "lastsave",
    since: "1.0.0",
    group: Group::Server,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    summary: "Returns the Unix time at which the last backup was complete.",
    syntax: "",
    body: Body::Host(lastsave),
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    categories: &[Category::Admin, Category::Dangerous],
    tips: &["nondeterministic_output"],
    ..Command::USUAL
};

fn lastsave(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    Ok(Reply::Integer(host.last_backup_s() as i64))
}

const ARCHIVE_BACKUP: Command = Command {
    name: "archive.backup",
    since: "7.0.0",
    group: Group::Server,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    summary: "Begins a backup that goes to the archive: `archive-to`.",
    syntax: "",
    body: Body::Act(archive_backup),
    flags: &[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading, Flag::NoMulti],
    ..Command::USUAL
};

fn archive_backup(_host: &mut dyn Host, _args: Args) -> Result<Answer> {
    Ok(Answer::with(Reply::Simple("Background archiving started"), Act::BeginArchiveBackup))
}
