//! The commands that read and write whole strings: SET and GET with their relatives.
//!
//! Owns their options and replies. Never builds a row: what a string is on disk belongs to `haypile-types`. Their
//! options are in `options.rs`, comparisons in `compare.rs`, counters in `counter.rs` and `increx.rs`, parts of strings
//! in `substring.rs`, commands for several strings in `several.rs`.

pub(crate) mod compare;
pub(crate) mod counter;
pub(crate) mod increx;
pub(crate) mod lcs;
mod options;
pub(crate) mod several;
pub(crate) mod substring;

use crate::args::Args;
use crate::error::Result;
use crate::keys::expire::Time;
use crate::statement;
use crate::string::compare::Comparison;
use crate::string::options::{Expiry, Options, deadline, state_set};
use crate::table::{Access, Arity, Body, Command, Deprecated, Flag, Group, Keys, Mode, Use};
use haypile_resp::pieces::PIECE_BYTES;
use haypile_resp::{Pieces, Protocol, Reply, Weight, write};
use haypile_store::{Key, Txn};
use haypile_types::chunks::Long;
use haypile_types::event;
use haypile_types::key;
use haypile_types::string::{self, Content};

pub(crate) const COMMANDS: &[Command] = &[GET, SET, SETEX, PSETEX, SETNX, GETSET, GETEX, GETDEL];

const GET: Command = Command {
    name: "get",
    since: "1.0.0",
    group: Group::String,
    arity: Arity::exactly(2),
    keys: Keys::first(1),
    summary: "Returns the value of a string key.",
    syntax: "key",
    access: Access::Read,
    body: Body::Txn(get),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn get(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    Ok(string::get(txn, &key)?.map_or(Reply::Null, bulk))
}

/// A string, or a part of one, as a reply.
pub(crate) fn bulk(content: Content) -> Reply {
    match content {
        Content::Shared(value) => Reply::bulk(value.into_parts()),
        Content::Owned(bytes) => Reply::bulk(bytes),
        Content::Long(long) => Reply::Stream(Box::new(LongBulk { long, begun: false })),
    }
}

/// A string that is sent piece by piece.
struct LongBulk {
    long: Box<Long>,
    /// The length is out.
    begun: bool,
}

impl Pieces for LongBulk {
    fn next(&mut self, _: Protocol, out: &mut Vec<u8>) -> std::result::Result<bool, String> {
        if !self.begun {
            self.begun = true;
            write::bulk_len(out, self.long.remaining() as usize);
        }
        let more = self.long.next(PIECE_BYTES, out)?;
        if !more {
            out.extend_from_slice(b"\r\n");
        }
        Ok(more)
    }

    fn weight(&self) -> Weight {
        Weight { held_bytes: self.long.held_bytes() as usize, encoded_bytes: self.long.remaining() as usize }
    }
}

const SET: Command = Command {
    name: "set",
    since: "1.0.0",
    group: Group::String,
    arity: Arity::at_least(3),
    keys: Keys::first(1)
        .rw(&[Use::Access, Use::Update, Use::VariableFlags])
        .noting("RW and ACCESS due to the optional `GET` argument"),
    summary: "Sets a key to a string, whatever it held before, with options for conditions and a \
             deadline.",
    syntax: "key value [condition@2.6.12=(NX | XX | IFEQ ifeq-value@8.4.0 | IFNE ifne-value@8.4.0 | IFDEQ \
            ifdeq-digest@8.4.0 | IFDNE ifdne-digest@8.4.0)] [GET@6.2.0] [expiration=(EX seconds@2.6.12 | \
            PX milliseconds@2.6.12 | EXAT unix-time-seconds@6.2.0 | PXAT \
            unix-time-milliseconds@6.2.0 | KEEPTTL@6.0.0)]",
    access: Access::Write,
    body: Body::Txn(set),
    flags: &[Flag::Denyoom],
    history: &[
        ("2.6.12", "Added the `EX`, `PX`, `NX` and `XX` options."),
        ("6.0.0", "Added the `KEEPTTL` option."),
        ("6.2.0", "Added the `GET`, `EXAT` and `PXAT` option."),
        ("7.0.0", "Allowed the `NX` and `GET` options to be used together."),
        ("8.4.0", "Added the `IFEQ`, `IFNE`, `IFDEQ` and `IFDNE` options."),
    ],
    uses: Some(uses_of_set),
    ..Command::USUAL
};

/// The effect of a SET on its key, which is read only with GET or a comparison.
fn uses_of_set(args: Args) -> (Mode, &'static [Use]) {
    if (3..args.len()).any(|i| args.is(i, "get") || Comparison::parse(args, i).is_some()) {
        (Mode::Rw, &[Use::Access, Use::Update])
    } else {
        (Mode::Ow, &[Use::Update])
    }
}

fn set(txn: &mut Txn, args: Args) -> Result<Reply> {
    let (key, value) = (args.key(txn, 1), args.get(2));
    if args.len() == 3 {
        string::set(txn, &key, value)?;
        on_set(txn, &key, None);
        return Ok(Reply::ok());
    }
    let options = Options::parse(args, 3, &Options::OF_SET)?;
    statement::state_nothing(txn);
    let deadline = options.deadline(txn, args, "set")?;
    if options.condition.is_none() && !options.get && options.expiry != Expiry::Keep {
        let before = key::lookup_overwrite(txn, &key)?;
        string::put(txn, &key, before.as_ref(), value, deadline)?;
        on_set(txn, &key, deadline);
        state_set(txn, &key, value, deadline);
        return Ok(Reply::ok());
    }
    let entry = if options.get { key::lookup_update(txn, &key)? } else { key::lookup_write(txn, &key)? };
    let before = entry.as_ref().map(|entry| entry.header);
    let old = match &entry {
        Some(entry) if options.get => bulk(string::content(txn, &key, entry.clone())?),
        _ => Reply::Null,
    };
    let allowed = match options.condition {
        Some(condition) => condition.is_met(txn, args, &key, entry)?,
        None => true,
    };
    if allowed {
        let kept = before.and_then(|before| before.deadline_ms);
        let after = if options.expiry == Expiry::Keep { kept } else { deadline };
        string::put(txn, &key, before.as_ref(), value, after)?;
        on_set(txn, &key, deadline);
        state_set(txn, &key, value, after);
    }
    Ok(match options.get {
        false if allowed => Reply::ok(),
        _ => old,
    })
}

/// Tells of a string that was set, and of the deadline that it was given.
fn on_set(txn: &mut Txn, key: &Key, deadline: Option<u64>) {
    txn.on_event(event::STRING, "set", key);
    if deadline.is_some() {
        txn.on_event(event::GENERIC, "expire", key);
    }
}

const SETEX: Command = Command {
    name: "setex",
    since: "2.0.0",
    group: Group::String,
    arity: Arity::exactly(4),
    keys: Keys::first(1).ow(&[Use::Update]),
    summary: "Sets a key to a string that expires after some seconds.",
    syntax: "key seconds value",
    access: Access::Write,
    body: Body::Txn(setex),
    flags: &[Flag::Denyoom],
    deprecated: Some(Deprecated { since: "2.6.12", instead: "`SET` with the `EX` argument" }),
    ..Command::USUAL
};

fn setex(txn: &mut Txn, args: Args) -> Result<Reply> {
    set_until(txn, args, Time::InSeconds, "setex")
}

const PSETEX: Command = Command {
    name: "psetex",
    since: "2.6.0",
    group: Group::String,
    arity: Arity::exactly(4),
    keys: Keys::first(1).ow(&[Use::Update]),
    summary: "Sets a key to a string that expires after some milliseconds.",
    syntax: "key milliseconds value",
    access: Access::Write,
    body: Body::Txn(psetex),
    flags: &[Flag::Denyoom],
    deprecated: Some(Deprecated { since: "2.6.12", instead: "`SET` with the `PX` argument" }),
    ..Command::USUAL
};

fn psetex(txn: &mut Txn, args: Args) -> Result<Reply> {
    set_until(txn, args, Time::InMilliseconds, "psetex")
}

fn set_until(txn: &mut Txn, args: Args, time: Time, command: &'static str) -> Result<Reply> {
    let deadline = deadline(txn, args, 2, time, command)?;
    let key = args.key(txn, 1);
    let before = key::lookup_overwrite(txn, &key)?;
    string::put(txn, &key, before.as_ref(), args.get(3), Some(deadline))?;
    on_set(txn, &key, Some(deadline));
    state_set(txn, &key, args.get(3), Some(deadline));
    Ok(Reply::ok())
}

const SETNX: Command = Command {
    name: "setnx",
    since: "1.0.0",
    group: Group::String,
    arity: Arity::exactly(3),
    keys: Keys::first(1).ow(&[Use::Insert]),
    summary: "Sets a key to a string if the key does not exist.",
    syntax: "key value",
    access: Access::Write,
    body: Body::Txn(setnx),
    flags: &[Flag::Denyoom, Flag::Fast],
    deprecated: Some(Deprecated { since: "2.6.12", instead: "`SET` with the `NX` argument" }),
    ..Command::USUAL
};

fn setnx(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    if key::lookup_write(txn, &key)?.is_some() {
        return Ok(Reply::Integer(0));
    }
    string::put(txn, &key, None, args.get(2), None)?;
    on_set(txn, &key, None);
    Ok(Reply::Integer(1))
}

const GETSET: Command = Command {
    name: "getset",
    since: "1.0.0",
    group: Group::String,
    arity: Arity::exactly(3),
    keys: Keys::first(1).rw(&[Use::Access, Use::Update]),
    summary: "Sets a key to a string and returns the string that it held before.",
    syntax: "key value",
    access: Access::Write,
    body: Body::Txn(getset),
    flags: &[Flag::Denyoom, Flag::Fast],
    deprecated: Some(Deprecated { since: "6.2.0", instead: "`SET` with the `!GET` argument" }),
    ..Command::USUAL
};

fn getset(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let entry = key::lookup_update(txn, &key)?;
    let before = entry.as_ref().map(|entry| entry.header);
    let old = match entry {
        Some(entry) => bulk(string::content(txn, &key, entry)?),
        None => Reply::Null,
    };
    string::put(txn, &key, before.as_ref(), args.get(2), None)?;
    on_set(txn, &key, None);
    Ok(old)
}

const GETEX: Command = Command {
    name: "getex",
    since: "6.2.0",
    group: Group::String,
    arity: Arity::at_least(2),
    keys: Keys::first(1).rw(&[Use::Access, Use::Update]).noting("RW and UPDATE because it changes the TTL"),
    summary: "Returns the value of a string key and sets or removes its deadline.",
    syntax: "key [expiration=(EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT \
            unix-time-milliseconds | PERSIST)]",
    access: Access::Write,
    body: Body::Txn(getex),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn getex(txn: &mut Txn, args: Args) -> Result<Reply> {
    let options = Options::parse(args, 2, &Options::OF_GETEX)?;
    let key = args.key(txn, 1);
    let Some(entry) = key::lookup_update(txn, &key)? else { return Ok(Reply::Null) };
    string::check_type(&entry)?;
    let deadline = options.deadline(txn, args, "getex")?;
    let reply = bulk(string::content(txn, &key, entry.clone())?);
    match options.expiry {
        Expiry::At(time, _) if time.is_absolute() && deadline.is_some_and(|deadline| deadline <= txn.expiry_ms()) => {
            key::remove(txn, &key, &entry.header)?;
            txn.on_event(event::GENERIC, "del", &key);
            statement::state_deletion(txn, key.name);
        }
        Expiry::At(..) => {
            key::set_deadline(txn, &key, &entry, deadline)?;
            statement::state_deadline(txn, key.name, deadline);
            txn.on_event(event::GENERIC, "expire", &key);
        }
        Expiry::Persist if entry.header.deadline_ms.is_some() => {
            key::set_deadline(txn, &key, &entry, None)?;
            txn.on_event(event::GENERIC, "persist", &key);
            statement::state_deadline(txn, key.name, None);
        }
        _ => {}
    }
    Ok(reply)
}

const GETDEL: Command = Command {
    name: "getdel",
    since: "6.2.0",
    group: Group::String,
    arity: Arity::exactly(2),
    keys: Keys::first(1).rw(&[Use::Access, Use::Delete]),
    summary: "Returns the value of a string key and deletes the key.",
    syntax: "key",
    access: Access::Write,
    body: Body::Txn(getdel),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn getdel(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(entry) = key::lookup_update(txn, &key)? else { return Ok(Reply::Null) };
    let header = entry.header;
    let reply = bulk(string::content(txn, &key, entry)?);
    key::remove(txn, &key, &header)?;
    txn.on_event(event::GENERIC, "del", &key);
    Ok(reply)
}
