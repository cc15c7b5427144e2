//! CHANGES.FOLLOW, which Redis does not have: a connection from which on a client is told what is done to the data.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Answer, Host, SessionChange};
use crate::table::{Arity, Body, Command, Flag, Group, Keys};
use haypile_resp::{Protocol, Reply};

pub(crate) const COMMANDS: &[Command] = &[CHANGES_FOLLOW];

/// The first word of a connection that is handed over by this command. The others: the index, `-` or `$`; the history,
/// the database, both empty if they were not given; whether notes of before are wanted, and whether RESP3 is spoken, 1
/// or 0 each; and the patterns of keys.
pub const WORD: &str = "changes";

/// Patterns of keys, at most.
const PATTERNS_MAX: usize = 64;

const CHANGES_FOLLOW: Command = Command {
    name: "changes.follow",
    since: "7.0.0",
    group: Group::Server,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Tells the client what is done to the data, record by record, from a place in the log on: docs/changes.md.",
    syntax: "index:string [HISTORY history:string] [DB database:integer] [MATCH pattern*] [BEFORE before:pure-token]",
    complexity: "O(N) with N being the records behind that place",
    body: Body::Act(follow),
    flags: &[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading, Flag::NoMulti],
    ..Command::USUAL
};

fn follow(host: &mut dyn Host, args: Args) -> Result<Answer> {
    let set = host.config_get(&[b"change-stream"]).into_iter().next().map_or_else(String::new, |(_, value)| value);
    if set == "no" {
        return Err(Error::text("ERR records do not say what they do: set change-stream to yes or before"));
    }
    let index = args.get(1);
    let is_index = |text: &[u8]| !text.is_empty() && text.len() < 20 && text.iter().all(u8::is_ascii_digit);
    if !matches!(index, b"-" | b"$") && !is_index(index) {
        return Err(Error::text("ERR the index is a number, - for the oldest record or $ for what comes from now on"));
    }
    let (mut history, mut database, mut before) = (Vec::new(), Vec::new(), false);
    let mut patterns: Vec<Vec<u8>> = Vec::new();
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "before") {
            before = true;
            at += 1;
            continue;
        }
        let value = args.opt(at + 1).ok_or(Error::Syntax)?;
        if args.is(at, "history") {
            if value.len() != 40 || !value.iter().all(u8::is_ascii_hexdigit) {
                return Err(Error::text("ERR a history is 40 hexadecimal digits"));
            }
            history = value.to_vec();
        } else if args.is(at, "db") {
            let number = u32::try_from(args.int(at + 1)?).ok().filter(|number| *number < host.databases());
            let number = number.ok_or_else(|| Error::text("ERR DB index is out of range"))?;
            database = number.to_string().into_bytes();
        } else if args.is(at, "match") && patterns.len() < PATTERNS_MAX {
            patterns.push(value.to_vec());
        } else {
            return Err(Error::Syntax);
        }
        at += 2;
    }
    if before && set != "before" {
        return Err(Error::text("ERR records do not say what there was before: set change-stream to before"));
    }
    let bit = |on: bool| if on { b"1".to_vec() } else { b"0".to_vec() };
    let pushes = host.protocol() == Protocol::Resp3;
    let words = [WORD.as_bytes().to_vec(), index.to_vec(), history, database, bit(before), bit(pushes)];
    let words = words.into_iter().chain(patterns).collect();
    Ok(Answer::with(Reply::None, SessionChange::HandOver(words)))
}
