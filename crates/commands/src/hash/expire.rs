//! The commands about deadlines of fields, of Redis 7.4, and those of 8.0 that read or set fields together with them.
//!
//! Owns their options and replies. That an expired field is absent is the affair of `haypile-types`.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::hash::lookup;
use crate::keys::expire::Time;
use crate::statement;
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, Use};
use haypile_resp::{Elements, Reply, Shape};
use haypile_store::{Key, Txn};
use haypile_types::element::{REPLY_INLINE_BYTES_MAX, ROWS_INLINE_MAX};
use haypile_types::event;
use haypile_types::hash::{self, After, Condition, Timed};

pub(crate) const COMMANDS: &[Command] = &[
    HEXPIRE,
    HPEXPIRE,
    HEXPIREAT,
    HPEXPIREAT,
    HTTL,
    HPTTL,
    HEXPIRETIME,
    HPEXPIRETIME,
    HPERSIST,
    HGETEX,
    HSETEX,
    HGETDEL,
];

const OF_FIELDS: &str = "O(N) where N is the number of specified fields";

const HEXPIRE: Command = Command {
    name: "hexpire",
    summary: "Sets the deadlines of fields of a hash to some seconds from now.",
    syntax: "key seconds [condition=(NX | XX | GT | LT)] FIELDS fields=(numfields:integer field...)",
    access: Access::Write,
    body: Body::Txn(hexpire),
    ..SETS_DEADLINES
};

const HPEXPIRE: Command = Command {
    name: "hpexpire",
    summary: "Sets the deadlines of fields of a hash to some milliseconds from now.",
    syntax: "key milliseconds [condition=(NX | XX | GT | LT)] FIELDS fields=(numfields:integer field...)",
    access: Access::Write,
    body: Body::Txn(hpexpire),
    ..SETS_DEADLINES
};

const HEXPIREAT: Command = Command {
    name: "hexpireat",
    summary: "Sets the deadlines of fields of a hash to a Unix time in seconds.",
    syntax: "key unix-time-seconds [condition=(NX | XX | GT | LT)] FIELDS fields=(numfields:integer field...)",
    access: Access::Write,
    body: Body::Txn(hexpireat),
    ..SETS_DEADLINES
};

const HPEXPIREAT: Command = Command {
    name: "hpexpireat",
    summary: "Sets the deadlines of fields of a hash to a Unix time in milliseconds.",
    syntax: "key unix-time-milliseconds [condition=(NX | XX | GT | LT)] FIELDS fields=(numfields:integer field...)",
    access: Access::Write,
    body: Body::Txn(hpexpireat),
    ..SETS_DEADLINES
};

/// The common fields of the four commands that set deadlines of fields.
const SETS_DEADLINES: Command = Command {
    since: "7.4.0",
    group: Group::Hash,
    arity: Arity::at_least(6),
    keys: Keys::first(1).rw(&[Use::Update]),
    complexity: OF_FIELDS,
    flags: &[Flag::Denyoom, Flag::Fast],
    ..Command::USUAL
};

fn hexpire(txn: &mut Txn, args: Args) -> Result<Reply> {
    set_deadlines(txn, args, Time::InSeconds, "hexpire")
}

fn hpexpire(txn: &mut Txn, args: Args) -> Result<Reply> {
    set_deadlines(txn, args, Time::InMilliseconds, "hpexpire")
}

fn hexpireat(txn: &mut Txn, args: Args) -> Result<Reply> {
    set_deadlines(txn, args, Time::AtSecond, "hexpireat")
}

fn hpexpireat(txn: &mut Txn, args: Args) -> Result<Reply> {
    set_deadlines(txn, args, Time::AtMillisecond, "hpexpireat")
}

fn set_deadlines(txn: &mut Txn, args: Args, time: Time, command: &'static str) -> Result<Reply> {
    let key = args.key(txn, 1);
    let entry = hash::lookup(txn, &key)?;
    let deadline = deadline(txn, args, 2, time, command)?;
    let conditions =
        [("nx", Condition::Without), ("xx", Condition::With), ("gt", Condition::Later), ("lt", Condition::Earlier)];
    let condition = conditions.into_iter().find(|(word, _)| args.is(3, word)).map(|(_, condition)| condition);
    let fields_at = if condition.is_some() { 4 } else { 3 };
    let fields = fields(args, fields_at, "ERR Parameter `numFields` should be greater than 0")?;
    let Some(entry) = entry else { return Ok(absent(fields)) };
    let condition = condition.unwrap_or(Condition::Always);
    let outcomes = hash::set_deadlines(txn, &key, &entry, deadline, condition, fields.iter(args))?;
    tell(txn, &key, &outcomes, "hexpire")?;
    state_deleted(txn, &key, &outcomes, args, fields);
    Ok(Reply::array(outcomes.into_iter().map(|outcome| {
        Reply::Integer(match outcome {
            After::NoField => -2,
            After::Unchanged => 0,
            After::Changed => 1,
            After::Deleted => 2,
        })
    })))
}

/// Tells of fields whose deadlines were changed, or that went because of it.
fn tell(txn: &mut Txn, key: &Key, outcomes: &[After], changed: &'static str) -> Result<()> {
    if outcomes.contains(&After::Deleted) {
        txn.on_event(event::HASH, "hdel", key);
        tell_if_gone(txn, key)?;
    } else if outcomes.contains(&After::Changed) {
        txn.on_event(event::HASH, changed, key);
    }
    Ok(())
}

/// States which fields went because their deadlines were set to a time that has passed. Of other deadlines of fields a
/// Redis of before 7.4 knows nothing: it is told when they pass.
fn state_deleted(txn: &mut Txn, key: &Key, outcomes: &[After], args: Args, fields: Named) {
    statement::state_nothing(txn);
    let gone = fields.iter(args).zip(outcomes).filter(|(_, outcome)| **outcome == After::Deleted);
    state_fields_deleted(txn, key, gone.map(|(field, _)| field));
}

fn state_fields_deleted<'a>(txn: &mut Txn, key: &Key, fields: impl Iterator<Item = &'a [u8]>) {
    if txn.states() {
        let fields: Vec<&[u8]> = fields.collect();
        let words: Vec<&[u8]> = [&b"HDEL"[..], key.name].into_iter().chain(fields.iter().copied()).collect();
        if !fields.is_empty() {
            statement::state(txn, &words);
        }
    }
}

fn tell_if_gone(txn: &mut Txn, key: &Key) -> Result<()> {
    if haypile_types::key::peek(txn, key)?.is_none() {
        txn.on_event(event::GENERIC, "del", key);
    }
    Ok(())
}

/// The latest deadline that Redis takes: it keeps two of 48 bits for itself.
const DEADLINE_MAX_MS: i64 = 0xffff_ffff_ffff >> 2;

/// Argument `i` as a deadline, a Unix time in milliseconds.
fn deadline(txn: &Txn, args: Args, i: usize, time: Time, command: &'static str) -> Result<u64> {
    let number = args.int(i)?;
    if number < 0 {
        return Err(Error::text("ERR invalid expire time, must be >= 0"));
    }
    let deadline = time.to_ms(number, txn.now_ms()).filter(|deadline| *deadline <= DEADLINE_MAX_MS);
    deadline.map(|deadline| deadline as u64).ok_or(Error::InvalidExpire(command))
}

/// The fields that a command names: the first one's argument, and how many.
#[derive(Clone, Copy)]
struct Named {
    first: usize,
    count: usize,
}

impl Named {
    fn iter<'a>(self, args: Args<'a>) -> impl ExactSizeIterator<Item = &'a [u8]> {
        (self.first..self.first + self.count).map(move |i| args.get(i))
    }
}

/// `FIELDS numfields field...` from argument `at` to the end; `refusal` is what is said of a wrong number.
fn fields(args: Args, at: usize, refusal: &'static str) -> Result<Named> {
    if !args.is(at, "fields") {
        return Err(Error::text("ERR Mandatory argument FIELDS is missing or not at the right position"));
    }
    let count = match args.opt(at + 1) {
        Some(_) => args.int(at + 1).ok().and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0),
        None => None,
    };
    let count = count.ok_or(Error::text(refusal))?;
    if Some(count) != args.len().checked_sub(at + 2) {
        return Err(Error::text("ERR The `numfields` parameter must match the number of arguments"));
    }
    Ok(Named { first: at + 2, count })
}

const NOT_POSITIVE: &str = "ERR Number of fields must be a positive integer";

/// Returns the reply for a missing key: -2 for each field.
fn absent(fields: Named) -> Reply {
    Reply::array((0..fields.count).map(|_| Reply::Integer(-2)))
}

const HTTL: Command = Command {
    name: "httl",
    summary: "Returns the seconds that fields of a hash have left to live.",
    access: Access::Read,
    body: Body::Txn(httl),
    tips: &["nondeterministic_output"],
    ..TELLS_DEADLINES
};

const HPTTL: Command = Command {
    name: "hpttl",
    summary: "Returns the milliseconds that fields of a hash have left to live.",
    access: Access::Read,
    body: Body::Txn(hpttl),
    tips: &["nondeterministic_output"],
    ..TELLS_DEADLINES
};

const HEXPIRETIME: Command = Command {
    name: "hexpiretime",
    summary: "Returns the deadlines of fields of a hash as Unix times in seconds.",
    access: Access::Read,
    body: Body::Txn(hexpiretime),
    ..TELLS_DEADLINES
};

const HPEXPIRETIME: Command = Command {
    name: "hpexpiretime",
    summary: "Returns the deadlines of fields of a hash as Unix times in milliseconds.",
    access: Access::Read,
    body: Body::Txn(hpexpiretime),
    ..TELLS_DEADLINES
};

/// The common fields of the four commands that return deadlines of fields.
const TELLS_DEADLINES: Command = Command {
    since: "7.4.0",
    group: Group::Hash,
    arity: Arity::at_least(5),
    keys: Keys::first(1),
    syntax: "key FIELDS fields=(numfields:integer field...)",
    complexity: OF_FIELDS,
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn httl(txn: &mut Txn, args: Args) -> Result<Reply> {
    tell_deadlines(txn, args, |deadline, now| (deadline - now).div_ceil(1000))
}

fn hpttl(txn: &mut Txn, args: Args) -> Result<Reply> {
    tell_deadlines(txn, args, |deadline, now| deadline - now)
}

fn hexpiretime(txn: &mut Txn, args: Args) -> Result<Reply> {
    tell_deadlines(txn, args, |deadline, _| deadline.div_ceil(1000))
}

fn hpexpiretime(txn: &mut Txn, args: Args) -> Result<Reply> {
    tell_deadlines(txn, args, |deadline, _| deadline)
}

/// Answers for each field with `show` of its deadline and the time; -1 for a field without a deadline, -2 for a missing
/// field.
fn tell_deadlines(txn: &mut Txn, args: Args, show: fn(u64, u64) -> u64) -> Result<Reply> {
    let key = args.key(txn, 1);
    let entry = lookup(txn, &key)?;
    let fields = fields(args, 2, NOT_POSITIVE)?;
    let Some(entry) = entry else { return Ok(absent(fields)) };
    if fields.count > ROWS_INLINE_MAX {
        txn.long()?;
    }
    let (mut replies, now_ms) = (Vec::with_capacity(fields.count), txn.now_ms());
    hash::times(txn, &key, &entry, fields.iter(args), |found| {
        replies.push(Reply::Integer(match found {
            None => -2,
            Some(None) => -1,
            Some(Some(deadline)) => show(deadline, now_ms) as i64,
        }));
    })?;
    Ok(Reply::Array(replies))
}

const HPERSIST: Command = Command {
    name: "hpersist",
    since: "7.4.0",
    group: Group::Hash,
    arity: Arity::at_least(5),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Takes away the deadlines of fields of a hash.",
    syntax: "key FIELDS fields=(numfields:integer field...)",
    complexity: OF_FIELDS,
    access: Access::Write,
    body: Body::Txn(hpersist),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn hpersist(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let entry = hash::lookup(txn, &key)?;
    let fields = fields(args, 2, NOT_POSITIVE)?;
    let Some(entry) = entry else { return Ok(absent(fields)) };
    let outcomes = hash::persist(txn, &key, &entry, fields.iter(args))?;
    tell(txn, &key, &outcomes, "hpersist")?;
    statement::state_nothing(txn);
    Ok(Reply::array(outcomes.into_iter().map(|outcome| {
        Reply::Integer(match outcome {
            After::NoField => -2,
            After::Unchanged => -1,
            After::Changed | After::Deleted => 1,
        })
    })))
}

const HGETEX: Command = Command {
    name: "hgetex",
    since: "8.0.0",
    group: Group::Hash,
    arity: Arity::at_least(5),
    keys: Keys::first(1).rw(&[Use::Access, Use::Update]).noting("RW and UPDATE because it changes the TTL"),
    summary: "Returns the values of fields of a hash and sets or removes their deadlines.",
    syntax: "key [expiration=(EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT \
            unix-time-milliseconds | PERSIST)] FIELDS fields=(numfields:integer field...)",
    complexity: OF_FIELDS,
    access: Access::Write,
    body: Body::Txn(hgetex),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

/// The options that are followed by a number.
const TIMES: [(&str, Time); 4] =
    [("ex", Time::InSeconds), ("px", Time::InMilliseconds), ("exat", Time::AtSecond), ("pxat", Time::AtMillisecond)];

fn hgetex(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let entry = hash::lookup(txn, &key)?;
    let persists = args.is(2, "persist");
    let (deadline, at) = match TIMES.into_iter().find(|(word, _)| args.is(2, word)) {
        Some((_, time)) => (Some(deadline(txn, args, 3, time, "hgetex")?), 4),
        None => (None, if persists { 3 } else { 2 }),
    };
    let fields = fields(args, at, NOT_POSITIVE)?;
    let values = match deadline {
        Some(deadline) if deadline <= txn.expiry_ms() => values_once(txn, &key, entry.as_ref(), args, fields)?,
        _ => values(txn, &key, entry.as_ref(), args, fields)?,
    };
    let Some(entry) = entry else { return Ok(values) };
    if let Some(deadline) = deadline {
        let outcomes = hash::set_deadlines(txn, &key, &entry, deadline, Condition::Always, fields.iter(args))?;
        tell(txn, &key, &outcomes, "hexpire")?;
        state_deleted(txn, &key, &outcomes, args, fields);
    } else if persists {
        let outcomes = hash::persist(txn, &key, &entry, fields.iter(args))?;
        tell(txn, &key, &outcomes, "hpersist")?;
        statement::state_nothing(txn);
    }
    Ok(values)
}

/// The values of fields, as HMGET replies them.
fn values(
    txn: &mut Txn,
    key: &Key,
    entry: Option<&haypile_types::key::Entry>,
    args: Args,
    fields: Named,
) -> Result<Reply> {
    if fields.count > ROWS_INLINE_MAX {
        txn.long()?;
    }
    let mut values = Elements::new(Shape::Array);
    for field in fields.iter(args) {
        let found = match entry {
            Some(entry) => hash::look(txn, key, entry, field, |value| values.push(value))?,
            None => None,
        };
        if found.is_none() {
            values.push_null();
        }
        if values.bytes() > REPLY_INLINE_BYTES_MAX {
            txn.long()?;
        }
    }
    Ok(Reply::Elements(values))
}

const HGETDEL: Command = Command {
    name: "hgetdel",
    since: "8.0.0",
    group: Group::Hash,
    arity: Arity::at_least(5),
    keys: Keys::first(1).rw(&[Use::Access, Use::Delete]),
    summary: "Returns the values of fields of a hash and removes the fields.",
    syntax: "key FIELDS fields=(numfields:integer field...)",
    complexity: OF_FIELDS,
    access: Access::Write,
    body: Body::Txn(hgetdel),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn hgetdel(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let entry = hash::lookup(txn, &key)?;
    let fields = fields(args, 2, NOT_POSITIVE)?;
    let values = values_once(txn, &key, entry.as_ref(), args, fields)?;
    let Some(entry) = entry else { return Ok(values) };
    statement::state_nothing(txn);
    let deleted = hash::delete_in(txn, &key, &entry, fields.iter(args))?;
    if deleted.fields > 0 {
        txn.on_event(event::HASH, "hdel", &key);
        state_fields_deleted(txn, &key, fields.iter(args));
    }
    if deleted.key {
        txn.on_event(event::GENERIC, "del", &key);
    }
    Ok(values)
}

/// The values of fields that are deleted as they are read: a field that is named again has none.
fn values_once(
    txn: &mut Txn,
    key: &Key,
    entry: Option<&haypile_types::key::Entry>,
    args: Args,
    fields: Named,
) -> Result<Reply> {
    let mut seen = std::collections::HashSet::new();
    let is_repeated = fields.iter(args).any(|field| !seen.insert(field));
    if !is_repeated {
        return values(txn, key, entry, args, fields);
    }
    let (mut seen, mut values) = (std::collections::HashSet::new(), Elements::new(Shape::Array));
    for field in fields.iter(args) {
        let found = match entry.filter(|_| seen.insert(field)) {
            Some(entry) => hash::look(txn, key, entry, field, |value| values.push(value))?,
            None => None,
        };
        if found.is_none() {
            values.push_null();
        }
    }
    Ok(Reply::Elements(values))
}

const HSETEX: Command = Command {
    name: "hsetex",
    since: "8.0.0",
    group: Group::Hash,
    arity: Arity::at_least(6),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Sets fields of a hash to values, and their deadlines, with conditions.",
    syntax: "key [key-condition=(NX | XX)] [condition=(FNX | FXX)] [expiration=(EX seconds | PX milliseconds | EXAT \
            unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL)] FIELDS fields=(numfields:integer data=(field \
            value)...)",
    complexity: OF_FIELDS,
    access: Access::Write,
    body: Body::Txn(hsetex),
    flags: &[Flag::Denyoom, Flag::Fast],
    ..Command::USUAL
};

/// The options of HSETEX.
struct SetOptions {
    /// The key has to be there, or not.
    key_exists: Option<bool>,
    /// Whether all named fields have to exist, or none of them; `None` if neither is asked for.
    all_exist: Option<bool>,
    keeps: bool,
    deadline_ms: Option<u64>,
    /// The first field's argument; values follow in turn, up to the end.
    first: usize,
}

impl SetOptions {
    fn parse(txn: &Txn, args: Args) -> Result<SetOptions> {
        let mut options = SetOptions { key_exists: None, all_exist: None, keeps: false, deadline_ms: None, first: 0 };
        let mut i = 2;
        while i < args.len() {
            let time = TIMES.into_iter().find(|(word, _)| args.is(i, word));
            if args.is(i, "fields") {
                options.first = pairs(args, i)?;
                return Ok(options);
            } else if time.is_some() || args.is(i, "keepttl") {
                if options.keeps || options.deadline_ms.is_some() {
                    return Err(Error::text(
                        "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
                    ));
                }
                match time {
                    Some((_, time)) => {
                        i += 1;
                        args.opt(i).ok_or(Error::text("ERR missing expire time"))?;
                        options.deadline_ms = Some(deadline(txn, args, i, time, "hsetex")?);
                    }
                    None => options.keeps = true,
                }
            } else if args.is(i, "xx") || args.is(i, "nx") {
                if options.key_exists.replace(args.is(i, "xx")).is_some() {
                    return Err(Error::text("ERR Only one of NX or XX arguments can be specified"));
                }
            } else if args.is(i, "fxx") || args.is(i, "fnx") {
                if options.all_exist.replace(args.is(i, "fxx")).is_some() {
                    return Err(Error::text("ERR Only one of FXX or FNX arguments can be specified"));
                }
            } else {
                return Err(Error::quoting("ERR unknown argument: ", args.get(i), ""));
            }
            i += 1;
        }
        Err(Error::WrongArity("hsetex".into()))
    }
}

/// `FIELDS numfields field value...` from argument `at` to the end: the argument of the first field.
fn pairs(args: Args, at: usize) -> Result<usize> {
    if at + 3 >= args.len() {
        return Err(Error::WrongArity("hsetex".into()));
    }
    let count = args.int(at + 1).ok().filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let count = count.ok_or(Error::text("ERR invalid number of fields"))?;
    let rest = args.len() - at - 2;
    if !rest.is_multiple_of(2) || count as usize != rest / 2 {
        return Err(Error::WrongArity("hsetex".into()));
    }
    Ok(at + 2)
}

fn hsetex(txn: &mut Txn, args: Args) -> Result<Reply> {
    let options = SetOptions::parse(txn, args)?;
    let key = args.key(txn, 1);
    let entry = hash::lookup(txn, &key)?;
    let names = (options.first..args.len()).step_by(2).map(|i| args.get(i));
    if names.len() > ROWS_INLINE_MAX {
        txn.long()?;
    }
    if options.key_exists.is_some_and(|exists| exists != entry.is_some()) {
        return Ok(Reply::Integer(0));
    }
    if let Some(all_exist) = options.all_exist {
        for name in names.clone() {
            let exists = match &entry {
                Some(entry) => hash::contains(txn, &key, entry, name)?,
                None => false,
            };
            if exists != all_exist {
                return Ok(Reply::Integer(0));
            }
        }
    }
    let has_passed = options.deadline_ms.is_some_and(|deadline| deadline <= txn.expiry_ms());
    let timed = match options.deadline_ms {
        _ if options.keeps => Timed::Keep,
        Some(_) if has_passed => Timed::Never,
        Some(deadline) => Timed::Until(deadline),
        None => Timed::Never,
    };
    let pairs = (options.first..args.len()).step_by(2).map(|i| (args.get(i), args.get(i + 1)));
    hash::set_until(txn, &key, entry, pairs, timed)?;
    if txn.states() && !has_passed {
        let words: Vec<&[u8]> = [&b"HSET"[..], key.name].into_iter().chain(args.iter_from(options.first)).collect();
        statement::state(txn, &words);
    }
    txn.on_event(event::HASH, "hset", &key);
    if has_passed {
        // The fields were there for an instant.
        state_fields_deleted(txn, &key, names.clone());
        let deleted = hash::delete(txn, &key, names)?;
        txn.on_event(event::HASH, "hdel", &key);
        if deleted.key {
            txn.on_event(event::GENERIC, "del", &key);
        }
    } else if options.deadline_ms.is_some() {
        txn.on_event(event::HASH, "hexpire", &key);
    }
    Ok(Reply::Integer(1))
}
