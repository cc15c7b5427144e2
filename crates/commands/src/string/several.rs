//! The commands that read or write several whole strings.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::keys::in_order::{self, Rows};
use crate::string::options::{Condition, Expiry, Options, state_set};
use crate::string::{bulk, on_set};
use crate::table::{Access, Arity, Begin, Body, Command, Find, Flag, Group, KeySpec, Keys, Mode, Use};
use haypile_resp::{Reply, number};
use haypile_store::Txn;
use haypile_types::event;
use haypile_types::key;
use haypile_types::string;

pub(crate) const COMMANDS: &[Command] = &[MGET, MSET, MSETNX, MSETEX];

const MGET: Command = Command {
    name: "mget",
    since: "1.0.0",
    group: Group::String,
    arity: Arity::at_least(2),
    keys: Keys::all_from(1, 1),
    summary: "Returns the values of several string keys from one moment.",
    syntax: "key...",
    complexity: "O(N) where N is the number of keys to retrieve.",
    access: Access::Read,
    body: Body::Txn(mget),
    flags: &[Flag::Fast],
    tips: &["request_policy:multi_shard"],
    ..Command::USUAL
};

/// Reads several strings. A key that holds no string counts as absent.
fn mget(txn: &mut Txn, args: Args) -> Result<Reply> {
    let mut values = Vec::with_capacity(args.len() - 1);
    values.resize_with(args.len() - 1, || Reply::Null);
    in_order::visit(txn, args, 1, 1, Rows::Kept, |txn, i, key| {
        values[i - 1] = match string::get(txn, key) {
            Ok(Some(content)) => bulk(content),
            Ok(None) | Err(haypile_types::Error::WrongType) => Reply::Null,
            Err(error) => return Err(error.into()),
        };
        Ok(())
    })?;
    Ok(Reply::Array(values))
}

const MSET: Command = Command {
    name: "mset",
    since: "1.0.1",
    group: Group::String,
    arity: Arity::at_least(3),
    keys: Keys::all_from(1, 2).ow(&[Use::Update]),
    summary: "Sets several keys to strings at once.",
    syntax: "key_value=(key value)...",
    complexity: "O(N) where N is the number of keys to set.",
    access: Access::Write,
    body: Body::Txn(mset),
    flags: &[Flag::Denyoom],
    tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
    ..Command::USUAL
};

fn mset(txn: &mut Txn, args: Args) -> Result<Reply> {
    check_pairs(args, "mset")?;
    set_all(txn, args)?;
    Ok(Reply::ok())
}

fn check_pairs(args: Args, command: &str) -> Result<()> {
    if args.len().is_multiple_of(2) { Err(Error::WrongArity(command.to_owned())) } else { Ok(()) }
}

fn set_all(txn: &mut Txn, args: Args) -> Result<()> {
    in_order::visit(txn, args, 1, 2, Rows::Replaced, |txn, i, key| {
        string::set(txn, key, args.get(i + 1))?;
        on_set(txn, key, None);
        Ok(())
    })
}

const MSETNX: Command = Command {
    name: "msetnx",
    since: "1.0.1",
    group: Group::String,
    arity: Arity::at_least(3),
    keys: Keys::all_from(1, 2).ow(&[Use::Insert]),
    summary: "Sets several keys to strings at once if none of them exists.",
    syntax: "key_value=(key value)...",
    complexity: "O(N) where N is the number of keys to set.",
    access: Access::Write,
    body: Body::Txn(msetnx),
    flags: &[Flag::Denyoom],
    tips: &["request_policy:multi_shard", "response_policy:agg_min"],
    ..Command::USUAL
};

fn msetnx(txn: &mut Txn, args: Args) -> Result<Reply> {
    check_pairs(args, "msetnx")?;
    for i in (1..args.len()).step_by(2) {
        let key = args.key(txn, i);
        if key::lookup_write(txn, &key)?.is_some() {
            return Ok(Reply::Integer(0));
        }
    }
    set_all(txn, args)?;
    Ok(Reply::Integer(1))
}

const MSETEX: Command = Command {
    name: "msetex",
    since: "8.4.0",
    group: Group::String,
    arity: Arity::at_least(4),
    keys: Keys::One(KeySpec {
        begin: Begin::Index(1),
        find: Find::KeyNum { count_at: 0, first: 1, step: 2 },
        ..KeySpec::at(1).with(Mode::Ow, &[Use::Update])
    }),
    summary: "Sets several keys to strings at once, with options for conditions and one deadline.",
    syntax: "numkeys:integer key_value=(key value)... [condition=(NX | XX)] [expiration=(EX seconds | PX milliseconds \
             | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL)]",
    complexity: "O(N) where N is the number of keys to set.",
    access: Access::Write,
    body: Body::Txn(msetex),
    flags: &[Flag::Denyoom],
    tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
    ..Command::USUAL
};

fn msetex(txn: &mut Txn, args: Args) -> Result<Reply> {
    let count = number::parse_i64(args.get(1)).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let count = count.ok_or(Error::text("ERR invalid numkeys value"))? as usize;
    let end = 2 + count * 2;
    if end > args.len() {
        return Err(Error::text("ERR wrong number of key-value pairs"));
    }
    let options = Options::parse(args, end, &Options::OF_MSETEX)?;
    let deadline = options.deadline(txn, args, "msetex")?;
    if let Some(condition) = options.condition {
        for i in (2..end).step_by(2) {
            let is_there = key::lookup_write(txn, &args.key(txn, i))?.is_some();
            if is_there != (condition == Condition::Present) {
                return Ok(Reply::Integer(0));
            }
        }
    }
    for i in (2..end).step_by(2) {
        let (key, value) = (args.key(txn, i), args.get(i + 1));
        match options.expiry {
            Expiry::Unsaid => {
                string::set(txn, &key, value)?;
                state_set(txn, &key, value, None);
            }
            Expiry::Keep => {
                let before = key::lookup_write(txn, &key)?.map(|entry| entry.header);
                let kept = before.and_then(|before| before.deadline_ms);
                string::put(txn, &key, before.as_ref(), value, kept)?;
                state_set(txn, &key, value, kept);
            }
            _ => {
                let before = key::lookup_overwrite(txn, &key)?;
                string::put(txn, &key, before.as_ref(), value, deadline)?;
                state_set(txn, &key, value, deadline);
            }
        }
        // In this order, other than SET.
        if deadline.is_some() {
            txn.on_event(event::GENERIC, "expire", &key);
        }
        txn.on_event(event::STRING, "set", &key);
    }
    Ok(Reply::Integer(1))
}
