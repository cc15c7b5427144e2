//! The commands on HyperLogLogs: PFADD, PFCOUNT, PFMERGE, and what shows how one is made.
//!
//! Owns their replies. The HyperLogLogs themselves belong to `haypile-types`.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::table::{Access, Arity, Begin, Body, Command, Find, Flag, Group, KeySpec, Keys, Mode, Use};
use haypile_resp::Reply;
use haypile_store::{Key, Txn};
use haypile_types::{event, hyperloglog};

pub(crate) const COMMANDS: &[Command] = &[PFADD, PFCOUNT, PFDEBUG, PFMERGE, PFSELFTEST];

const PFADD: Command = Command {
    name: "pfadd",
    since: "2.8.9",
    group: Group::Hyperloglog,
    arity: Arity::at_least(2),
    keys: Keys::first(1).rw(&[Use::Insert]),
    summary: "Adds elements to a HyperLogLog, which is created if it does not exist.",
    syntax: "key [element...]",
    complexity: "O(1) to add every element.",
    access: Access::Write,
    body: Body::Txn(pfadd),
    flags: &[Flag::Denyoom, Flag::Fast],
    ..Command::USUAL
};

/// Adds elements. Answers whether the count may have changed.
fn pfadd(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let changed = hyperloglog::add(txn, &key, args.iter_from(2))?;
    if changed {
        txn.on_event(event::STRING, "pfadd", &key);
    }
    Ok(Reply::Integer(changed.into()))
}

const PFCOUNT: Command = Command {
    name: "pfcount",
    since: "2.8.9",
    group: Group::Hyperloglog,
    arity: Arity::at_least(2),
    keys: Keys::all_from(1, 1)
        .rw(&[Use::Access])
        .noting("RW because it may change the internal representation of the key, and propagate to replicas"),
    summary: "Estimates how many different elements were added to HyperLogLogs.",
    syntax: "key...",
    complexity: "O(1) with a very small average constant time when called with a single key. O(N) with N being the \
                 number of keys, and much bigger constant times, when called with multiple keys.",
    access: Access::Read,
    body: Body::Txn(pfcount),
    flags: &[Flag::MayReplicate],
    ..Command::USUAL
};

/// Counts distinct elements. The count of a single key is kept in memory.
fn pfcount(txn: &mut Txn, args: Args) -> Result<Reply> {
    let count = if args.len() == 2 {
        let key = args.key(txn, 1);
        hyperloglog::count(txn, &key)?.unwrap_or(0)
    } else {
        let keys: Vec<Key> = keys(txn, args).collect();
        hyperloglog::count_union(txn, keys.into_iter())?
    };
    Ok(Reply::Integer(count as i64))
}

fn keys<'a>(txn: &Txn, args: Args<'a>) -> impl Iterator<Item = Key<'a>> {
    (1..args.len()).map(move |i| args.key(txn, i))
}

const PFMERGE: Command = Command {
    name: "pfmerge",
    since: "2.8.9",
    group: Group::Hyperloglog,
    arity: Arity::at_least(2),
    keys: Keys::Many(&[
        KeySpec::at(1).with(Mode::Rw, &[Use::Access, Use::Insert]),
        KeySpec { begin: Begin::Index(2), find: Find::Range { last: -1, step: 1, limit: 0 }, ..KeySpec::at(2) },
    ]),
    summary: "Merges HyperLogLogs into one, which is created if it does not exist.",
    syntax: "destkey:key sourcekey:key...",
    complexity: "O(N) to merge N HyperLogLogs, but with high constant times.",
    access: Access::Write,
    body: Body::Txn(pfmerge),
    flags: &[Flag::Denyoom],
    ..Command::USUAL
};

fn pfmerge(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let keys: Vec<Key> = keys(txn, args).collect();
    hyperloglog::merge(txn, &key, keys.into_iter())?;
    // The event of an addition, as in Redis.
    txn.on_event(event::STRING, "pfadd", &key);
    Ok(Reply::ok())
}

const PFDEBUG: Command = Command {
    name: "pfdebug",
    since: "2.8.9",
    group: Group::Hyperloglog,
    arity: Arity::exactly(3),
    keys: Keys::first(2).rw(&[Use::Access]),
    summary: "Shows how a HyperLogLog is made.",
    syntax: "subcommand key",
    complexity: "N/A",
    access: Access::Write,
    body: Body::Txn(pfdebug),
    flags: &[Flag::Denyoom, Flag::Admin],
    syscmd: true,
    ..Command::USUAL
};

/// GETREG gives the registers, and makes a sparse one dense, as in Redis; DECODE the runs of a sparse one.
fn pfdebug(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 2);
    let Some(hll) = hyperloglog::inspect(txn, &key)? else {
        return Err(Error::text("ERR The specified key does not exist"));
    };
    if args.is(1, "GETREG") {
        let registers = hll.values()?.iter().map(|value| Reply::Integer((*value).into())).collect();
        hll.make_dense(txn, &key)?;
        Ok(Reply::Array(registers))
    } else if args.is(1, "DECODE") {
        let decoded = hll.decoded().ok_or(Error::text("ERR HLL encoding is not sparse"))?;
        Ok(Reply::bulk(decoded.into_bytes()))
    } else if args.is(1, "ENCODING") {
        Ok(Reply::Simple(if hll.is_sparse() { "sparse" } else { "dense" }))
    } else if args.is(1, "TODENSE") {
        Ok(Reply::Integer(hll.make_dense(txn, &key)?.into()))
    } else {
        Err(Error::quoting("ERR Unknown PFDEBUG subcommand '", args.get(1), "'"))
    }
}

const PFSELFTEST: Command = Command {
    name: "pfselftest",
    since: "2.8.9",
    group: Group::Hyperloglog,
    arity: Arity::exactly(1),
    summary: "Tests HyperLogLogs of many sizes for their error.",
    complexity: "N/A",
    body: Body::Host(pfselftest),
    flags: &[Flag::Admin],
    syscmd: true,
    ..Command::USUAL
};

fn pfselftest(host: &mut dyn Host, _: Args) -> Result<Reply> {
    host.in_transaction(&mut |txn| {
        txn.long()?;
        hyperloglog::selftest::run(txn.random()).map_err(|why| Error::text(format!("TESTFAILED {why}")))?;
        Ok(Reply::ok())
    })
}
