//! XPENDING, XCLAIM, XAUTOCLAIM: what the consumers of a group have not acknowledged, and who takes it over.

use crate::args::Args;
use crate::error::{Error, Result, as_text};
use crate::statement;
use crate::stream::group::{long_if, see};
use crate::stream::id;
use crate::stream::range::write_entry;
use crate::stream::stating;
use crate::table::{Access, Arity, Body, Command, Flag, Group as CommandGroup, Keys, Use};
use haypile_resp::{Elements, Reply, Shape};
use haypile_store::{Direction, Txn};
use haypile_types::element::{REPLY_INLINE_BYTES_MAX, ROWS_INLINE_MAX};
use haypile_types::stream::{Edit, Fields, Group, Held, Place, Stream, StreamId};
use std::ops::{ControlFlow, RangeInclusive};

pub(crate) const COMMANDS: &[Command] = &[XPENDING, XCLAIM, XAUTOCLAIM];

const XPENDING: Command = Command {
    name: "xpending",
    since: "5.0.0",
    group: CommandGroup::Stream,
    arity: Arity::at_least(3),
    keys: Keys::first(1).ro(&[Use::Access]),
    summary: "Returns what the consumers of a group have not acknowledged.",
    syntax: "key group [filters=([IDLE min-idle-time:integer@6.2.0] start:string end:string count [consumer])]",
    complexity: "O(N) with N being the number of elements returned, so asking for a small fixed number of entries per call \
                 is O(1). O(M), where M is the total number of entries scanned when used with the IDLE filter. When the \
                 command returns just the summary and the list of consumers is small, it runs in O(1) time; otherwise, an \
                 additional O(N) time for iterating every consumer.",
    access: Access::Read,
    body: Body::Txn(pending),
    tips: &["nondeterministic_output"],
    history: &[("6.2.0", "Added the `IDLE` option and exclusive range intervals.")],
    ..Command::USUAL
};

fn no_group(key: &[u8], group: &[u8]) -> Error {
    let (key, group) = (as_text(key), as_text(group));
    Error::Quoting([b"NOGROUP No such key '", key, b"' or consumer group '", group, b"'"].concat())
}

/// The stream and the group that arguments 1 and 2 name.
pub(crate) fn existing_group<'a>(txn: &mut Txn, args: Args<'a>) -> Result<(Stream, Group<'a>)> {
    let key = args.key(txn, 1);
    if let Some(stream) = Stream::lookup(txn, &key)?
        && let Some(group) = Group::find(txn, &stream, args.get(2))?
    {
        return Ok((stream, group));
    }
    Err(no_group(args.get(1), args.get(2)))
}

/// Which pending entries are asked for.
struct Filter {
    ids: RangeInclusive<StreamId>,
    count: u64,
    idle_min_ms: i64,
    /// The argument that names a consumer.
    consumer: Option<usize>,
}

impl Filter {
    /// Parses the arguments of XPENDING; `None` if they ask for a summary.
    fn parse(args: Args) -> Result<Option<Filter>> {
        if args.len() == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&args.len()) {
            return Err(Error::Syntax);
        }
        let (mut at, mut idle_min_ms) = (3, 0);
        if args.is(3, "idle") {
            idle_min_ms = args.int(4)?;
            if args.len() < 8 {
                return Err(Error::Syntax);
            }
            at += 2;
        }
        let count = u64::try_from(args.int(at + 2)?).unwrap_or(0);
        let (from, to) = id::range(args, at, at + 1)?;
        Ok(Some(Filter { ids: from..=to, count, idle_min_ms, consumer: Some(at + 3).filter(|at| *at < args.len()) }))
    }
}

fn pending(txn: &mut Txn, args: Args) -> Result<Reply> {
    let filter = Filter::parse(args)?;
    let (_, group) = existing_group(txn, args)?;
    match filter {
        None => summary(txn, &group),
        Some(filter) => detailed(txn, args, &group, &filter),
    }
}

fn summary(txn: &mut Txn, group: &Group) -> Result<Reply> {
    let Some((first, last)) = group.pending_edges(txn)? else {
        return Ok(Reply::array([Reply::Integer(0), Reply::Null, Reply::Null, Reply::NullArray]));
    };
    long_if(txn, group.state.consumers as usize)?;
    let mut consumers = Vec::new();
    group.visit_consumers(txn, |name, consumer| {
        if consumer.pending > 0 {
            let pending = consumer.pending.to_string();
            consumers.push(Reply::array([Reply::bulk(name.to_vec()), Reply::bulk(pending)]));
        }
    })?;
    let edges = [first, last].map(id::reply);
    let [first, last] = edges;
    Ok(Reply::array([Reply::Integer(group.state.pending as i64), first, last, Reply::Array(consumers)]))
}

fn detailed(txn: &mut Txn, args: Args, group: &Group, filter: &Filter) -> Result<Reply> {
    let now_ms = txn.now_ms();
    let mut replies = Vec::new();
    let mut show = |id: StreamId, held: &Held| {
        let (consumer, idle_ms) = match held.holder.consumer() {
            Some(name) => (name, i64::try_from(held.idle_ms(now_ms)).unwrap_or(i64::MAX)),
            None => (&b""[..], -1),
        };
        if idle_ms >= filter.idle_min_ms || held.holder.consumer().is_none() {
            let name = Reply::bulk(consumer.to_vec());
            replies.push(Reply::array([
                id::reply(id),
                name,
                Reply::Integer(idle_ms),
                Reply::Integer(held.deliveries as i64),
            ]));
        }
        (replies.len() as u64) < filter.count
    };
    if filter.count == 0 {
        return Ok(Reply::Array(Vec::new()));
    }
    let want = usize::try_from(filter.count).unwrap_or(usize::MAX);
    let may_be_long = txn.long().is_ok();
    let mut seen = 0;
    let Some(at) = filter.consumer else {
        group.visit_pending(txn, filter.ids.clone(), Direction::Forward, want, |id, pending| {
            seen += 1;
            let goes_on = (may_be_long || seen <= ROWS_INLINE_MAX) && show(id, &pending.into());
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if seen > ROWS_INLINE_MAX {
            txn.long()?;
        }
        return Ok(Reply::Array(replies));
    };
    let Some(consumer) = group.consumer(txn, args.get(at))? else { return Ok(Reply::Array(Vec::new())) };
    let mut next = Some(*filter.ids.start());
    while let Some(from) = next {
        let mut ids = Vec::new();
        group.visit_ids_of(txn, &consumer, from..=*filter.ids.end(), want.min(STEP), |id| {
            ids.push(id);
            if ids.len() < STEP { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        next = ids.last().filter(|_| ids.len() == STEP).and_then(|last| last.next());
        for id in ids {
            let held = Edit::of(group.clone()).pending(txn, id)?;
            if !held.is_none_or(|held| show(id, &held)) {
                return Ok(Reply::Array(replies));
            }
        }
        seen += STEP;
        if next.is_some() && seen > ROWS_INLINE_MAX {
            txn.long()?;
        }
    }
    Ok(Reply::Array(replies))
}

/// Pending entries looked at in one step.
const STEP: usize = 256;

const XCLAIM: Command = Command {
    name: "xclaim",
    since: "5.0.0",
    group: CommandGroup::Stream,
    arity: Arity::at_least(6),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Gives pending entries of a group to a consumer, and returns them.",
    syntax: "key group consumer min-idle-time:string id... [IDLE ms:integer] [TIME unix-time-milliseconds] \
             [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID id]",
    complexity: "O(log N) with N being the number of messages in the PEL of the consumer group.",
    access: Access::Write,
    body: Body::Txn(claim),
    flags: &[Flag::Fast],
    tips: &["nondeterministic_output"],
    ..Command::USUAL
};

/// Claimed entries in the reply.
struct Shown {
    only_ids: bool,
    entries: Elements,
}

impl Shown {
    fn new(only_ids: bool) -> Shown {
        Shown { only_ids, entries: Elements::new(Shape::Array) }
    }

    fn push(&mut self, txn: &Txn, id: StreamId, value: &[u8]) -> Result<()> {
        if self.only_ids {
            self.entries.push_with(|out| id::write(out, id));
            return Ok(());
        }
        let fields = Fields::read(value)?;
        self.entries.push_with(|out| write_entry(out, id, fields));
        if self.entries.bytes() > REPLY_INLINE_BYTES_MAX {
            txn.long()?;
        }
        Ok(())
    }
}

/// XCLAIM's options.
struct Claim {
    /// The arguments that are ids.
    ids: std::ops::Range<usize>,
    idle_min_ms: u64,
    delivered_ms: u64,
    deliveries: Option<u64>,
    force: bool,
    only_ids: bool,
    last: StreamId,
}

impl Claim {
    fn parse(txn: &Txn, args: Args) -> Result<Claim> {
        let idle_min_ms = idle_min_ms(args, "ERR Invalid min-idle-time argument for XCLAIM")?;
        let first_option = (5..args.len()).find(|i| id::strict(args, *i, 0).is_err());
        let ids = 5..first_option.unwrap_or(args.len());
        let now_ms = txn.now_ms();
        let mut claim = Claim {
            idle_min_ms,
            delivered_ms: now_ms,
            deliveries: None,
            force: false,
            only_ids: false,
            last: StreamId::MIN,
            ids,
        };
        let (mut i, mut time_ms) = (claim.ids.end, -1);
        while i < args.len() {
            let has_more = i + 1 < args.len();
            let number = |what: &'static str| args.int(i + 1).map_err(|_| Error::text(what));
            if args.is(i, "force") {
                claim.force = true;
            } else if args.is(i, "justid") {
                claim.only_ids = true;
            } else if args.is(i, "idle") && has_more {
                let idle = number("ERR Invalid IDLE option argument for XCLAIM")?;
                time_ms = (now_ms as i64).wrapping_sub(idle);
                i += 1;
            } else if args.is(i, "time") && has_more {
                time_ms = number("ERR Invalid TIME option argument for XCLAIM")?;
                i += 1;
            } else if args.is(i, "retrycount") && has_more {
                let count = number("ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                claim.deliveries = u64::try_from(count).ok();
                i += 1;
            } else if args.is(i, "lastid") && has_more {
                claim.last = id::strict(args, i + 1, 0)?;
                i += 1;
            } else {
                return Err(Error::quoting("ERR Unrecognized XCLAIM option '", args.get(i), "'"));
            }
            i += 1;
        }
        // A time that cannot be is now, as in Redis: clients reckon by clocks of their own.
        if let Some(time_ms) = u64::try_from(time_ms).ok().filter(|time| *time <= now_ms) {
            claim.delivered_ms = time_ms;
        }
        Ok(claim)
    }
}

fn idle_min_ms(args: Args, otherwise: &'static str) -> Result<u64> {
    args.int(4).map(|ms| u64::try_from(ms).unwrap_or(0)).map_err(|_| Error::text(otherwise))
}

fn claim(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let (stream, group) = existing_group(txn, args)?;
    let claim = Claim::parse(txn, args)?;
    long_if(txn, claim.ids.len())?;
    let mut edit = Edit::of(group);
    statement::state_nothing(txn);
    if claim.last > edit.group.state.last {
        edit.group.state.last = claim.last;
        stating::state_read(txn, &key, &edit.group);
    }
    let place = see(txn, &mut edit, &key, args.get(3))?;
    let (mut shown, now_ms) = (Shown::new(claim.only_ids), txn.now_ms());
    let (mut given, mut released) = (Vec::new(), Vec::new());
    for at in claim.ids.clone() {
        let id = id::strict(args, at, 0)?;
        let held = edit.pending(txn, id)?;
        let Some(value) = stream.get(txn, id)? else {
            // An entry that was removed cannot be claimed.
            if let Some(held) = held {
                edit.release(txn, id, &held)?;
                released.push(id);
            }
            continue;
        };
        match &held {
            None if !claim.force => continue,
            Some(held) if !held.is_idle(now_ms, claim.idle_min_ms) => continue,
            _ => {}
        }
        let (delivered_ms, count) = (claim.delivered_ms, claim.deliveries);
        let deliveries = take(txn, &mut edit, id, held.as_ref(), place, delivered_ms, count, claim.only_ids)?;
        given.push((id, deliveries));
        shown.push(txn, id, &value)?;
    }
    stating::state_released(txn, &key, edit.group.name, &released);
    stating::state_given(txn, &key, &edit.group, args.get(3), &given, claim.delivered_ms);
    edit.save(txn, &key)?;
    Ok(Reply::Elements(shown.entries))
}

/// Gives an entry to who claims it. That is a delivery, unless only its id is asked for. Returns the deliveries.
#[allow(clippy::too_many_arguments, reason = "what a claim says of one entry")]
fn take(
    txn: &mut Txn,
    edit: &mut Edit,
    id: StreamId,
    held: Option<&Held>,
    to: Place,
    delivered_ms: u64,
    deliveries: Option<u64>,
    only_ids: bool,
) -> Result<u64> {
    let usual = match held {
        None => 2 - u64::from(only_ids),
        Some(held) if only_ids => held.deliveries,
        Some(held) => held.delivered_again(),
    };
    let deliveries = deliveries.unwrap_or(usual);
    edit.give(txn, id, held, to, delivered_ms, deliveries)?;
    edit.on_active(txn, to);
    Ok(deliveries)
}

const XAUTOCLAIM: Command = Command {
    name: "xautoclaim",
    since: "6.2.0",
    group: CommandGroup::Stream,
    arity: Arity::at_least(6),
    keys: Keys::first(1).rw(&[Use::Delete]),
    summary: "Gives pending entries of a group that have been idle to a consumer, and returns them with where to go on.",
    syntax: "key group consumer min-idle-time:string start:string [COUNT count] [JUSTID]",
    complexity: "O(1) if COUNT is small.",
    access: Access::Write,
    body: Body::Txn(auto_claim),
    flags: &[Flag::Fast],
    tips: &["nondeterministic_output"],
    history: &[(
        "7.0.0",
        "Added an element to the reply array, containing deleted entries the command cleared from the PEL",
    )],
    ..Command::USUAL
};

/// Entries that XAUTOCLAIM claims unless COUNT says otherwise.
const COUNT: u64 = 100;

/// The greatest COUNT, as in Redis.
const COUNT_MAX: i64 = i64::MAX / 16;

/// Pending entries that are looked at for each entry that may be claimed.
const ATTEMPTS: u64 = 10;

fn auto_claim(txn: &mut Txn, args: Args) -> Result<Reply> {
    let idle_min_ms = idle_min_ms(args, "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let from = id::start(args, 5)?;
    let (mut count, mut only_ids, mut i) = (COUNT, false, 6);
    while i < args.len() {
        if args.is(i, "count") && i + 1 < args.len() {
            count = match args.int(i + 1) {
                Ok(given @ 1..=COUNT_MAX) => given as u64,
                _ => return Err(Error::text("ERR COUNT must be > 0")),
            };
            i += 1;
        } else if args.is(i, "justid") {
            only_ids = true;
        } else {
            return Err(Error::Syntax);
        }
        i += 1;
    }
    let key = args.key(txn, 1);
    let (stream, group) = existing_group(txn, args)?;
    let mut edit = Edit::of(group);
    statement::state_nothing(txn);
    let place = see(txn, &mut edit, &key, args.get(3))?;
    let now_ms = txn.now_ms();
    let (mut shown, mut removed) = (Shown::new(only_ids), Vec::new());
    let (mut given, mut released) = (Vec::new(), Vec::new());
    let (mut attempts, mut next) = (count.saturating_mul(ATTEMPTS), Some(from));
    let mut cursor = StreamId::MIN;
    let mut seen = 0;
    while let Some(from) = next {
        // One more than may be looked at: that is where the next call goes on.
        let step = (attempts.min(STEP as u64) + 1) as usize;
        let mut found: Vec<(StreamId, Held)> = Vec::new();
        edit.group.visit_pending(txn, from..=StreamId::MAX, Direction::Forward, step, |id, pending| {
            found.push((id, pending.into()));
            if found.len() < step { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        next = found.last().filter(|_| found.len() == step).map(|(id, _)| *id);
        for (id, held) in found {
            if count == 0 || attempts == 0 {
                (cursor, next) = (id, None);
                break;
            }
            if next == Some(id) {
                break;
            }
            attempts -= 1;
            let Some(value) = stream.get(txn, id)? else {
                edit.release(txn, id, &held)?;
                released.push(id);
                removed.push(id::reply(id));
                count -= 1;
                continue;
            };
            if !held.is_idle(now_ms, idle_min_ms) {
                continue;
            }
            let deliveries = take(txn, &mut edit, id, Some(&held), place, now_ms, None, only_ids)?;
            given.push((id, deliveries));
            shown.push(txn, id, &value)?;
            count -= 1;
        }
        seen += STEP;
        if next.is_some() && seen > ROWS_INLINE_MAX {
            txn.long()?;
        }
    }
    stating::state_released(txn, &key, edit.group.name, &released);
    stating::state_given(txn, &key, &edit.group, args.get(3), &given, now_ms);
    edit.save(txn, &key)?;
    Ok(Reply::array([id::reply(cursor), Reply::Elements(shown.entries), Reply::Array(removed)]))
}
