//! XINFO GROUPS and CONSUMERS, and what XINFO STREAM FULL tells of groups.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::stream::group::{long_if, no_group_of_key};
use crate::stream::id;
use crate::stream::info::number;
use crate::table::{Access, Arity, Body, Command, Group as CommandGroup, Keys, Use};
use haypile_resp::Reply;
use haypile_store::{Direction, Txn};
use haypile_types::element::ROWS_INLINE_MAX;
use haypile_types::stream::{Consumer, Edit, Group, GroupState, Stream, StreamId};
use std::ops::ControlFlow;

pub(crate) const XINFO_CONSUMERS: Command = Command {
    arity: Arity::exactly(4),
    summary: "Returns the consumers of a group.",
    syntax: "key groupname",
    access: Access::Read,
    body: Body::Txn(consumers),
    tips: &["nondeterministic_output"],
    history: &[("7.2.0", "Added the `inactive` field, and changed the meaning of `idle`.")],
    ..about("consumers")
};

pub(crate) const XINFO_GROUPS: Command = Command {
    arity: Arity::exactly(3),
    summary: "Returns the consumer groups of a stream.",
    syntax: "key",
    access: Access::Read,
    body: Body::Txn(groups),
    history: &[("7.0.0", "Added the `entries-read` and `lag` fields")],
    ..about("groups")
};

const fn about(name: &'static str) -> Command {
    Command {
        name,
        since: "5.0.0",
        group: CommandGroup::Stream,
        keys: Keys::first(2).ro(&[Use::Access]),
        ..Command::USUAL
    }
}

fn existing(txn: &mut Txn, args: Args) -> Result<Stream> {
    let key = args.key(txn, 2);
    Stream::lookup(txn, &key)?.ok_or(Error::NoSuchKey)
}

fn field(name: &'static str, value: Reply) -> (Reply, Reply) {
    (Reply::bulk(name), value)
}

/// Returns the numbers of entries that a group has read and has still to read, as far as these are known.
fn progress(stream: &Stream, group: &GroupState) -> [(Reply, Reply); 2] {
    let or_null = |value: Option<i64>| value.map_or(Reply::Null, Reply::Integer);
    [
        field("entries-read", or_null(group.entries_read.map(|read| read as i64))),
        field("lag", or_null(stream.head.lag(group.last, group.entries_read))),
    ]
}

fn groups(txn: &mut Txn, args: Args) -> Result<Reply> {
    let stream = existing(txn, args)?;
    let count = stream.groups(txn)?;
    long_if(txn, count as usize)?;
    let mut groups = Vec::new();
    stream.visit_groups(txn, |name, group| {
        let mut fields = vec![
            field("name", Reply::bulk(name.to_vec())),
            number("consumers", group.consumers.into()),
            number("pending", group.pending),
            field("last-delivered-id", id::reply(group.last)),
        ];
        fields.extend(progress(&stream, &group));
        groups.push(Reply::Map(fields));
    })?;
    Ok(Reply::Array(groups))
}

fn consumers(txn: &mut Txn, args: Args) -> Result<Reply> {
    let stream = existing(txn, args)?;
    let Some(group) = Group::find(txn, &stream, args.get(3))? else {
        return Err(no_group_of_key(args.get(3), args.get(2)));
    };
    long_if(txn, group.state.consumers as usize)?;
    let (mut consumers, now_ms) = (Vec::new(), txn.now_ms());
    group.visit_consumers(txn, |name, consumer| {
        let inactive = consumer.active_ms.map_or(-1, |active| now_ms as i64 - active as i64);
        consumers.push(Reply::Map(vec![
            field("name", Reply::bulk(name.to_vec())),
            number("pending", consumer.pending),
            number("idle", now_ms.saturating_sub(consumer.seen_ms)),
            field("inactive", Reply::Integer(inactive)),
        ]));
    })?;
    Ok(Reply::Array(consumers))
}

/// All groups with their consumers, and of each up to `limit` pending entries.
pub(crate) fn full(txn: &mut Txn, stream: &Stream, limit: u64) -> Result<Reply> {
    let mut found = Vec::new();
    let count = stream.groups(txn)?;
    long_if(txn, count as usize)?;
    stream.visit_groups(txn, |name, group| found.push((name.to_vec(), group)))?;
    let mut groups = Vec::with_capacity(found.len());
    let mut rows = found.len();
    for (name, state) in &found {
        let group = stream.group(name, *state);
        // The rows of a group that are shown, at most.
        rows = rows.saturating_add(state.consumers as usize).saturating_add(2 * state.pending.min(limit) as usize);
        if rows > ROWS_INLINE_MAX {
            txn.long()?;
        }
        let mut fields =
            vec![field("name", Reply::bulk(name.clone())), field("last-delivered-id", id::reply(state.last))];
        fields.extend(progress(stream, state));
        fields.push(number("pel-count", state.pending));
        // Of 8.8. Without such entries the reply is that of the versions before.
        if state.nacked > 0 {
            fields.push(number("nacked-count", state.nacked));
        }
        fields.extend([
            field("pending", pending_of_group(txn, &group, limit)?),
            field("consumers", consumers_of_group(txn, &group, limit)?),
        ]);
        groups.push(Reply::Map(fields));
    }
    Ok(Reply::Array(groups))
}

fn pending_of_group(txn: &mut Txn, group: &Group, limit: u64) -> Result<Reply> {
    let mut shown = Vec::new();
    let want = usize::try_from(limit.min(group.state.pending)).unwrap_or(usize::MAX);
    group.visit_pending(txn, StreamId::MIN..=StreamId::MAX, Direction::Forward, want, |id, pending| {
        shown.push(Reply::array([
            id::reply(id),
            Reply::bulk(pending.holder.consumer().unwrap_or_default().to_vec()),
            Reply::Integer(pending.delivered_ms as i64),
            Reply::Integer(pending.deliveries as i64),
        ]));
        if shown.len() < want { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(Reply::Array(shown))
}

fn consumers_of_group(txn: &mut Txn, group: &Group, limit: u64) -> Result<Reply> {
    let mut names = Vec::new();
    group.visit_consumers(txn, |name, _| names.push(name.to_vec()))?;
    let mut shown = Vec::with_capacity(names.len());
    for name in names {
        let Some(consumer) = group.consumer(txn, &name)? else { continue };
        let active_ms = consumer.state.active_ms.map_or(-1, |active| active as i64);
        let pending = pending_of_consumer(txn, group, &consumer, limit)?;
        shown.push(Reply::Map(vec![
            field("name", Reply::bulk(name)),
            number("seen-time", consumer.state.seen_ms),
            field("active-time", Reply::Integer(active_ms)),
            number("pel-count", consumer.state.pending),
            field("pending", pending),
        ]));
    }
    Ok(Reply::Array(shown))
}

fn pending_of_consumer(txn: &mut Txn, group: &Group, consumer: &Consumer, limit: u64) -> Result<Reply> {
    let mut ids = Vec::new();
    let want = usize::try_from(limit).unwrap_or(usize::MAX);
    group.visit_ids_of(txn, consumer, StreamId::MIN..=StreamId::MAX, want, |id| {
        ids.push(id);
        if ids.len() < want { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let edit = Edit::of(group.clone());
    let mut shown = Vec::with_capacity(ids.len());
    for id in ids {
        if let Some(held) = edit.pending(txn, id)? {
            shown.push(Reply::array([
                id::reply(id),
                Reply::Integer(held.delivered_ms as i64),
                Reply::Integer(held.deliveries as i64),
            ]));
        }
    }
    Ok(Reply::Array(shown))
}
