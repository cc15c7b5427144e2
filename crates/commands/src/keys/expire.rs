//! The commands about deadlines of keys.
//!
//! Owns their options and the units of their arguments. That an expired key reads as absent is the affair of
//! `haypile-types`, not of a command.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::statement;
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, Use};
use haypile_resp::Reply;
use haypile_store::Txn;
use haypile_types::event;
use haypile_types::key;

pub(crate) const COMMANDS: &[Command] =
    &[EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT, TTL, PTTL, EXPIRETIME, PEXPIRETIME, PERSIST];

const EXPIRE: Command = Command {
    name: "expire",
    since: "1.0.0",
    group: Group::Generic,
    arity: Arity::at_least(3),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Sets the deadline of a key to some seconds from now.",
    syntax: "key seconds [condition@7.0.0=(NX | XX | GT | LT)]",
    access: Access::Write,
    body: Body::Txn(expire),
    flags: &[Flag::Fast],
    history: &[("7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`.")],
    ..Command::USUAL
};

fn expire(txn: &mut Txn, args: Args) -> Result<Reply> {
    set_deadline(txn, args, Time::InSeconds, "expire")
}

const PEXPIRE: Command = Command {
    name: "pexpire",
    since: "2.6.0",
    group: Group::Generic,
    arity: Arity::at_least(3),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Sets the deadline of a key to some milliseconds from now.",
    syntax: "key milliseconds [condition@7.0.0=(NX | XX | GT | LT)]",
    access: Access::Write,
    body: Body::Txn(pexpire),
    flags: &[Flag::Fast],
    history: &[("7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`.")],
    ..Command::USUAL
};

fn pexpire(txn: &mut Txn, args: Args) -> Result<Reply> {
    set_deadline(txn, args, Time::InMilliseconds, "pexpire")
}

const EXPIREAT: Command = Command {
    name: "expireat",
    since: "1.2.0",
    group: Group::Generic,
    arity: Arity::at_least(3),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Sets the deadline of a key to a Unix time in seconds.",
    syntax: "key unix-time-seconds [condition@7.0.0=(NX | XX | GT | LT)]",
    access: Access::Write,
    body: Body::Txn(expireat),
    flags: &[Flag::Fast],
    history: &[("7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`.")],
    ..Command::USUAL
};

fn expireat(txn: &mut Txn, args: Args) -> Result<Reply> {
    set_deadline(txn, args, Time::AtSecond, "expireat")
}

const PEXPIREAT: Command = Command {
    name: "pexpireat",
    since: "2.6.0",
    group: Group::Generic,
    arity: Arity::at_least(3),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Sets the deadline of a key to a Unix time in milliseconds.",
    syntax: "key unix-time-milliseconds [condition@7.0.0=(NX | XX | GT | LT)]",
    access: Access::Write,
    body: Body::Txn(pexpireat),
    flags: &[Flag::Fast],
    history: &[("7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`.")],
    ..Command::USUAL
};

fn pexpireat(txn: &mut Txn, args: Args) -> Result<Reply> {
    set_deadline(txn, args, Time::AtMillisecond, "pexpireat")
}

/// Gives a key a deadline. Answers whether the key has it now, or is gone because it has passed.
fn set_deadline(txn: &mut Txn, args: Args, time: Time, command: &'static str) -> Result<Reply> {
    let conditions = Conditions::parse(args)?;
    let deadline = time.to_ms(args.int(2)?, txn.now_ms()).ok_or(Error::InvalidExpire(command))?;
    let key = args.key(txn, 1);
    let Some(entry) = key::lookup_write(txn, &key)? else { return Ok(Reply::Integer(0)) };
    if !conditions.allow(entry.header.deadline_ms, deadline) {
        return Ok(Reply::Integer(0));
    }
    match u64::try_from(deadline) {
        Ok(deadline) if deadline > txn.expiry_ms() => {
            key::set_deadline(txn, &key, &entry, Some(deadline))?;
            txn.on_event(event::GENERIC, "expire", &key);
            statement::state_deadline(txn, key.name, Some(deadline));
        }
        _ => {
            key::remove(txn, &key, &entry.header)?;
            txn.on_event(event::GENERIC, "del", &key);
            statement::state_deletion(txn, key.name);
        }
    }
    Ok(Reply::Integer(1))
}

/// The unit of a deadline that a client gives, and whether it counts from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    InSeconds,
    InMilliseconds,
    AtSecond,
    AtMillisecond,
}

impl Time {
    /// The number as a Unix time in milliseconds; `None` if that does not fit. It may lie in the past, even before
    /// 1970.
    pub(crate) fn to_ms(self, number: i64, now_ms: u64) -> Option<i64> {
        let ms = match self {
            Time::InSeconds | Time::AtSecond => number.checked_mul(1000)?,
            Time::InMilliseconds | Time::AtMillisecond => number,
        };
        if self.is_absolute() { Some(ms) } else { ms.checked_add_unsigned(now_ms) }
    }

    pub(crate) fn is_absolute(self) -> bool {
        matches!(self, Time::AtSecond | Time::AtMillisecond)
    }
}

/// The conditions for a new deadline to be taken, compared with the old one.
#[derive(Default)]
struct Conditions {
    without: bool,
    with: bool,
    later: bool,
    earlier: bool,
}

impl Conditions {
    fn parse(args: Args) -> Result<Conditions> {
        let mut conditions = Conditions::default();
        for word in args.iter_from(3) {
            match word.to_ascii_lowercase().as_slice() {
                b"nx" => conditions.without = true,
                b"xx" => conditions.with = true,
                b"gt" => conditions.later = true,
                b"lt" => conditions.earlier = true,
                _ => return Err(Error::quoting("ERR Unsupported option ", word, "")),
            }
        }
        let Conditions { without, with, later, earlier } = conditions;
        if without && (with || later || earlier) {
            return Err(Error::text("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if later && earlier {
            return Err(Error::text("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(conditions)
    }

    /// Whether a new deadline is taken. A key without one counts as a key that lives for ever.
    fn allow(&self, old: Option<u64>, new: i64) -> bool {
        let old = old.map(|old| i64::try_from(old).unwrap_or(i64::MAX));
        !(self.without && old.is_some()
            || self.with && old.is_none()
            || self.later && old.is_none_or(|old| new <= old)
            || self.earlier && old.is_some_and(|old| new >= old))
    }
}

const TTL: Command = Command {
    name: "ttl",
    since: "1.0.0",
    group: Group::Generic,
    arity: Arity::exactly(2),
    keys: Keys::first(1),
    summary: "Returns the seconds that a key has left to live.",
    syntax: "key",
    access: Access::Read,
    body: Body::Txn(ttl),
    flags: &[Flag::Fast],
    tips: &["nondeterministic_output"],
    history: &[("2.8.0", "Added the -2 reply.")],
    ..Command::USUAL
};

fn ttl(txn: &mut Txn, args: Args) -> Result<Reply> {
    deadline(txn, args, |deadline, now| seconds(deadline.saturating_sub(now)))
}

const PTTL: Command = Command {
    name: "pttl",
    since: "2.6.0",
    group: Group::Generic,
    arity: Arity::exactly(2),
    keys: Keys::first(1),
    summary: "Returns the milliseconds that a key has left to live.",
    syntax: "key",
    access: Access::Read,
    body: Body::Txn(pttl),
    flags: &[Flag::Fast],
    tips: &["nondeterministic_output"],
    history: &[("2.8.0", "Added the -2 reply.")],
    ..Command::USUAL
};

fn pttl(txn: &mut Txn, args: Args) -> Result<Reply> {
    deadline(txn, args, |deadline, now| deadline.saturating_sub(now))
}

const EXPIRETIME: Command = Command {
    name: "expiretime",
    since: "7.0.0",
    group: Group::Generic,
    arity: Arity::exactly(2),
    keys: Keys::first(1),
    summary: "Returns the deadline of a key as a Unix time in seconds.",
    syntax: "key",
    access: Access::Read,
    body: Body::Txn(expiretime),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn expiretime(txn: &mut Txn, args: Args) -> Result<Reply> {
    deadline(txn, args, |deadline, _| seconds(deadline))
}

const PEXPIRETIME: Command = Command {
    name: "pexpiretime",
    since: "7.0.0",
    group: Group::Generic,
    arity: Arity::exactly(2),
    keys: Keys::first(1),
    summary: "Returns the deadline of a key as a Unix time in milliseconds.",
    syntax: "key",
    access: Access::Read,
    body: Body::Txn(pexpiretime),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn pexpiretime(txn: &mut Txn, args: Args) -> Result<Reply> {
    deadline(txn, args, |deadline, _| deadline)
}

/// Answers with `show` of the key's deadline and the time; -1 for a key without a deadline, -2 for an absent key.
fn deadline(txn: &mut Txn, args: Args, show: fn(u64, u64) -> u64) -> Result<Reply> {
    let key = args.key(txn, 1);
    Ok(Reply::Integer(match key::lookup_unused(txn, &key)?.map(|entry| entry.header.deadline_ms) {
        None => -2,
        Some(None) => -1,
        Some(Some(deadline)) => show(deadline, txn.now_ms()) as i64,
    }))
}

/// Milliseconds as seconds, rounded to the nearest, as Redis shows times.
fn seconds(ms: u64) -> u64 {
    ms.saturating_add(500) / 1000
}

const PERSIST: Command = Command {
    name: "persist",
    since: "2.2.0",
    group: Group::Generic,
    arity: Arity::exactly(2),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Removes the deadline of a key.",
    syntax: "key",
    access: Access::Write,
    body: Body::Txn(persist),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

/// Removes a key's deadline. Answers whether there was one.
fn persist(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    match key::lookup_write(txn, &key)? {
        Some(entry) if entry.header.deadline_ms.is_some() => {
            key::set_deadline(txn, &key, &entry, None)?;
            txn.on_event(event::GENERIC, "persist", &key);
            Ok(Reply::Integer(1))
        }
        _ => Ok(Reply::Integer(0)),
    }
}
