//! The commands that change streams: XADD, XDEL, XTRIM, XSETID, and XLEN. Reads of ranges are in `range.rs`, XREAD in
//! `read.rs`, XINFO in `info.rs`, XDELEX and XACKDEL in `removal.rs`, the names that
//! producers give their entries in `idempotency.rs`, and how ids are written in `id.rs`.
//!
//! Owns their options, replies and events. Never builds a row: how a stream lies there belongs to `haypile-types`.

pub(crate) mod claim;
pub(crate) mod footprint;
pub(crate) mod group;
pub(crate) mod group_info;
pub(crate) mod id;
pub(crate) mod idempotency;
pub(crate) mod info;
pub(crate) mod nack;
pub(crate) mod range;
pub(crate) mod read;
pub(crate) mod read_group;
pub(crate) mod removal;
mod stating;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::statement;
use crate::stream::id::Wanted;
use crate::stream::idempotency::Named;
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, Use};
use haypile_resp::Reply;
use haypile_store::{Key, Txn};
use haypile_types::EncodingLimit;
use haypile_types::event;
use haypile_types::stream::{Bound, ENTRY_BYTES_MAX, Nodes, Policy, Stream, StreamId, Trim};

pub(crate) const COMMANDS: &[Command] = &[
    XADD,
    XDEL,
    crate::stream::removal::XDELEX,
    XLEN,
    crate::stream::range::XRANGE,
    crate::stream::range::XREVRANGE,
    crate::stream::read::XREAD,
    XSETID,
    XTRIM,
    crate::stream::info::XINFO,
];

const XADD: Command = Command {
    name: "xadd",
    since: "5.0.0",
    group: Group::Stream,
    arity: Arity::at_least(5),
    keys: Keys::first(1).rw(&[Use::Update]).noting("UPDATE instead of INSERT because of the optional trimming feature"),
    summary: "Adds an entry to a stream, which comes to be if there is none.",
    syntax: "key [NOMKSTREAM@6.2.0] [condition@8.2.0=(KEEPREF | DELREF | ACKED)] \
             [idmp@8.6.0=(IDMPAUTO producer-id:string | IDMP named=(producer-id:string idempotent-id:string))] [trim=(strategy=(MAXLEN | MINID@6.2.0) [operator=('=' equal:pure-token | '~' approximately:pure-token)] \
             threshold:string [LIMIT count@6.2.0])] id_or_auto=('*' auto_id:pure-token | id) field_value=(field value)...",
    complexity: "O(1) when adding a new entry, O(N) when trimming where N being the number of entries evicted.",
    access: Access::Write,
    body: Body::Txn(xadd),
    flags: &[Flag::Denyoom, Flag::Fast],
    tips: &["nondeterministic_output"],
    history: &[
        ("6.2.0", "Added the `NOMKSTREAM` option, `MINID` trimming strategy and the `LIMIT` option."),
        ("7.0.0", "Added support for the `<ms>-*` explicit ID form."),
        ("8.2.0", "Added the `KEEPREF`, `DELREF` and `ACKED` options."),
        ("8.6.0", "Added the `IDMP` and `IDMPAUTO` options."),
    ],
    ..Command::USUAL
};

fn xadd(txn: &mut Txn, args: Args) -> Result<Reply> {
    let asked = Options::parse(txn, args, true)?;
    let Some(wanted) = asked.wanted.filter(|_| {
        let left = args.len() - asked.at;
        left >= 2 && left.is_multiple_of(2)
    }) else {
        return Err(Error::WrongArity("xadd".into()));
    };
    if wanted == Wanted::Exactly(StreamId::MIN) {
        return Err(Error::text("ERR The ID specified in XADD must be greater than 0-0"));
    }
    statement::state_nothing(txn);
    let key = args.key(txn, 1);
    let mut stream = match Stream::edit(txn, &key)? {
        Some(stream) => stream,
        None if asked.only_existing => return Ok(Reply::Null),
        None => Stream::create(txn, &key)?,
    };
    let mut named = match &asked.named {
        None => None,
        Some(named) => Some((stream.edit_producers(txn)?, named.producer, named.name(args.iter_from(asked.at)))),
    };
    if let Some((producers, producer, name)) = &mut named
        && let Some(id) = producers.find(txn, producer, name)?
    {
        producers.state.duplicates += 1;
        producers.save(txn, &key)?;
        statement::state_nothing(txn);
        return Ok(id::reply(id));
    }
    let id = next_id(wanted, stream.head.last, txn.now_ms())?;
    if args.iter_from(asked.at).map(<[u8]>::len).sum::<usize>() > ENTRY_BYTES_MAX {
        return Err(Error::text("ERR Elements are too large to be stored"));
    }
    let is_new = !stream.is_saved();
    stream.append(txn, &key, id, args.iter_from(asked.at))?;
    if is_new {
        // The event of the new key comes before the one of its entry.
        stream.save(txn, &key)?;
    }
    if let Some((producers, producer, name)) = &mut named {
        producers.add(txn, producer, name, id)?;
        producers.save(txn, &key)?;
    }
    txn.on_event(event::STREAM, "xadd", &key);
    let trimmed = match asked.trim {
        Some(trim) => trim_and_tell(txn, &key, &mut stream, trim)?,
        None => 0,
    };
    if !is_new || trimmed > 0 {
        stream.save(txn, &key)?;
    }
    match asked.trim {
        Some(trim) if trimmed > 0 && trim.policy != Policy::default() => statement::state_value(txn, &key)?,
        _ => {
            let left = (trimmed > 0).then(|| stream.len());
            stating::state_added(txn, &key, id, args.iter_from(asked.at), left);
        }
    }
    Ok(id::reply(id))
}

/// The id of an entry that is to be added to a stream.
fn next_id(wanted: Wanted, last: StreamId, now_ms: u64) -> Result<StreamId> {
    if last == StreamId::MAX {
        return Err(Error::text("ERR The stream has exhausted the last possible ID, unable to add more items"));
    }
    let id = match wanted {
        Wanted::Next if now_ms > last.ms => Some(StreamId::new(now_ms, 0)),
        Wanted::Next => last.next(),
        Wanted::In(ms) if ms == last.ms => last.seq.checked_add(1).map(|seq| StreamId { ms, seq }),
        Wanted::In(ms) => Some(StreamId::new(ms, 0)),
        Wanted::Exactly(id) => Some(id),
    };
    id.filter(|id| *id > last)
        .ok_or(Error::text("ERR The ID specified in XADD is equal or smaller than the target stream top item"))
}

/// Trims a stream, which is to be saved if that removed any entries.
fn trim_and_tell(txn: &mut Txn, key: &Key, stream: &mut Stream, trim: Trim) -> Result<u64> {
    let removed = stream.trim(txn, key, trim)?;
    if removed > 0 {
        txn.on_event(event::STREAM, "xtrim", key);
    }
    Ok(removed)
}

/// The options of XADD and XTRIM.
struct Options<'a> {
    trim: Option<Trim>,
    /// The name of XADD's entry.
    named: Option<Named<'a>>,
    only_existing: bool,
    /// XADD's id.
    wanted: Option<Wanted>,
    /// The argument behind.
    at: usize,
}

/// Entries of a node at a time are looked at in an approximate trim without limit, as in Redis.
const NODES_AT_ONCE: i64 = 100;
const LIMIT_USUAL: i64 = 10_000;
const LIMIT_MAX: i64 = 1_000_000;

impl<'a> Options<'a> {
    fn parse(txn: &Txn, args: Args<'a>, adds: bool) -> Result<Options<'a>> {
        let (mut bound, mut is_approximate, mut limit, mut policy) = (None, false, None, None);
        let mut options = Options { trim: None, named: None, only_existing: false, wanted: None, at: args.len() };
        let mut i = 2;
        while i < args.len() {
            let more = args.len() - 1 - i;
            if adds && args.get(i) == b"*" {
                options.wanted = Some(Wanted::Next);
                break;
            } else if more > 0 && (args.is(i, "maxlen") || args.is(i, "minid")) {
                if bound.is_some() {
                    return Err(Error::text(
                        "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                    ));
                }
                let by_length = args.is(i, "maxlen");
                is_approximate = more >= 2 && args.get(i + 1) == b"~";
                i += if is_approximate || more >= 2 && args.get(i + 1) == b"=" { 2 } else { 1 };
                bound = Some(if by_length {
                    let length = u64::try_from(args.int(i)?);
                    Bound::Length(length.map_err(|_| Error::text("ERR The MAXLEN argument must be >= 0."))?)
                } else {
                    Bound::Id(id::strict(args, i, 0)?)
                });
            } else if more > 0 && args.is(i, "limit") {
                i += 1;
                let most = u64::try_from(args.int(i)?);
                limit = Some(most.map_err(|_| Error::text("ERR The LIMIT argument must be >= 0."))?);
            } else if adds && args.is(i, "nomkstream") {
                options.only_existing = true;
            } else if let (None, Some(given)) = (policy, removal::policy(args, i)) {
                policy = Some(given);
            } else if adds && let Some((named, count)) = Named::parse(args, i, options.named.is_none())? {
                options.named = Some(named);
                i += count - 1;
            } else if adds {
                options.wanted = Some(id::wanted(args, i)?);
                if options.named.is_some() {
                    return Err(Error::text(
                        "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs",
                    ));
                }
                break;
            } else {
                return Err(Error::Syntax);
            }
            i += 1;
        }
        options.at = (i + 1).min(args.len());
        if bound.is_none() && limit.is_some_and(|limit| limit > 0) {
            return Err(Error::text("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"));
        }
        if bound.is_none() && !adds {
            return Err(Error::text("ERR syntax error, XTRIM must be called with a trimming strategy"));
        }
        // A master says exactly what it has removed, and leaves what it had been told.
        if limit.is_some() && !is_approximate && !txn.repeats() {
            return Err(Error::text("ERR syntax error, LIMIT cannot be used without the special ~ option"));
        }
        let nodes = is_approximate.then(|| nodes(txn, limit));
        options.trim = bound.map(|bound| Trim { bound, nodes, policy: policy.unwrap_or_default() });
        Ok(options)
    }
}

fn nodes(txn: &Txn, limit: Option<u64>) -> Nodes {
    let entries = EncodingLimit::StreamNodeEntries.of(txn);
    let usual = match entries.saturating_mul(NODES_AT_ONCE) {
        ..=0 => LIMIT_USUAL,
        limit => limit.min(LIMIT_MAX),
    };
    Nodes { entries: u64::try_from(entries).unwrap_or(0), limit: limit.unwrap_or(usual as u64) }
}

const XDEL: Command = Command {
    name: "xdel",
    since: "5.0.0",
    group: Group::Stream,
    arity: Arity::at_least(3),
    keys: Keys::first(1).rw(&[Use::Delete]),
    summary: "Removes entries from a stream and returns how many there were.",
    syntax: "key id...",
    complexity: "O(1) for each single item to delete in the stream, regardless of the stream size.",
    access: Access::Write,
    body: Body::Txn(xdel),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn xdel(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(mut stream) = Stream::edit(txn, &key)? else { return Ok(Reply::Integer(0)) };
    let ids = (2..args.len()).map(|i| id::strict(args, i, 0)).collect::<Result<Vec<_>>>()?;
    let removed = stream.remove(txn, ids.into_iter())?;
    if removed > 0 {
        stream.save(txn, &key)?;
        txn.on_event(event::STREAM, "xdel", &key);
    }
    Ok(Reply::Integer(removed as i64))
}

const XLEN: Command = Command {
    name: "xlen",
    since: "5.0.0",
    group: Group::Stream,
    arity: Arity::exactly(2),
    keys: Keys::first(1).ro(&[]),
    summary: "Returns how many entries a stream has.",
    syntax: "key",
    access: Access::Read,
    body: Body::Txn(xlen),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn xlen(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    Ok(Reply::Integer(Stream::lookup(txn, &key)?.map_or(0, |stream| stream.len() as i64)))
}

const XTRIM: Command = Command {
    name: "xtrim",
    since: "5.0.0",
    group: Group::Stream,
    arity: Arity::at_least(4),
    keys: Keys::first(1).rw(&[Use::Delete]),
    summary: "Removes the oldest entries of a stream and returns how many they were.",
    syntax: "key trim=(strategy=(MAXLEN | MINID@6.2.0) [operator=('=' equal:pure-token | '~' approximately:pure-token)] threshold:string \
             [LIMIT count@6.2.0]) [condition@8.2.0=(KEEPREF | DELREF | ACKED)]",
    complexity: "O(N), with N being the number of evicted entries. Constant times are very small however, since entries \
                 are organized in macro nodes containing multiple entries that can be released with a single deallocation.",
    access: Access::Write,
    body: Body::Txn(xtrim),
    tips: &["nondeterministic_output"],
    history: &[
        ("6.2.0", "Added the `MINID` trimming strategy and the `LIMIT` option."),
        ("8.2.0", "Added the `KEEPREF`, `DELREF` and `ACKED` options."),
    ],
    ..Command::USUAL
};

fn xtrim(txn: &mut Txn, args: Args) -> Result<Reply> {
    let asked = Options::parse(txn, args, false)?;
    statement::state_nothing(txn);
    let key = args.key(txn, 1);
    let (Some(mut stream), Some(trim)) = (Stream::edit(txn, &key)?, asked.trim) else { return Ok(Reply::Integer(0)) };
    let removed = trim_and_tell(txn, &key, &mut stream, trim)?;
    if removed > 0 {
        stream.save(txn, &key)?;
        if trim.policy == Policy::default() {
            stating::state_trimmed(txn, &key, stream.len());
        } else {
            statement::state_value(txn, &key)?;
        }
    }
    Ok(Reply::Integer(removed as i64))
}

const XSETID: Command = Command {
    name: "xsetid",
    since: "5.0.0",
    group: Group::Stream,
    arity: Arity::at_least(3),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Says what the last id of a stream is, for who makes a copy of one.",
    syntax: "key last-id [ENTRIESADDED entries_added:integer@7.0.0] [MAXDELETEDID max_deleted_entry_id@7.0.0]",
    access: Access::Write,
    body: Body::Txn(xsetid),
    flags: &[Flag::Denyoom, Flag::Fast],
    history: &[("7.0.0", "Added the `entries_added` and `max_deleted_entry_id` arguments.")],
    ..Command::USUAL
};

fn xsetid(txn: &mut Txn, args: Args) -> Result<Reply> {
    let last = id::strict(args, 2, 0)?;
    let (mut entries_added, mut max_deleted) = (None, StreamId::MIN);
    let mut i = 3;
    while i < args.len() {
        if i + 1 < args.len() && args.is(i, "entriesadded") {
            let added = u64::try_from(args.int(i + 1)?);
            entries_added = Some(added.map_err(|_| Error::text("ERR entries_added must be positive"))?);
        } else if i + 1 < args.len() && args.is(i, "maxdeletedid") {
            max_deleted = id::strict(args, i + 1, 0)?;
            if last < max_deleted {
                return Err(Error::text(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
        } else {
            return Err(Error::Syntax);
        }
        i += 2;
    }
    let key = args.key(txn, 1);
    let mut stream = Stream::edit(txn, &key)?.ok_or(Error::NoSuchKey)?;
    // Redis 7.0 takes such an id.
    if last < stream.head.max_deleted && !txn.repeats() {
        return Err(Error::text("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"));
    }
    if stream.last_entry(txn)?.is_some_and(|top| last < top) {
        return Err(Error::text("ERR The ID specified in XSETID is smaller than the target stream top item"));
    }
    if stream.len() > 0 && entries_added.is_some_and(|added| added < stream.len()) {
        return Err(Error::text("ERR The entries_added specified in XSETID is smaller than the target stream length"));
    }
    stream.head.last = last;
    stream.head.entries_added = entries_added.unwrap_or(stream.head.entries_added);
    if max_deleted != StreamId::MIN {
        stream.head.max_deleted = max_deleted;
    }
    stream.save(txn, &key)?;
    txn.on_event(event::STREAM, "xsetid", &key);
    Ok(Reply::ok())
}
