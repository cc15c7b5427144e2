//! XINFO: what a stream is made of.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::server::introspect::help;
use crate::stream::group_info::{self, XINFO_CONSUMERS, XINFO_GROUPS};
use crate::stream::id;
use crate::stream::range::{entries, write_entry};
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, Use};
use haypile_resp::{Bytes, Reply};
use haypile_store::{Direction, Txn};
use haypile_types::EncodingLimit;
use haypile_types::stream::{Stream, StreamId};
use std::ops::ControlFlow;

pub(crate) const XINFO: Command = Command {
    name: "xinfo",
    since: "5.0.0",
    group: Group::Stream,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "A container for commands that look into streams.",
    syntax: "",
    complexity: "Depends on subcommand.",
    body: Body::Container,
    subcommands: &[XINFO_CONSUMERS, XINFO_GROUPS, XINFO_HELP, XINFO_STREAM],
    ..Command::USUAL
};

const XINFO_HELP: Command = Command {
    name: "help",
    since: "5.0.0",
    group: Group::Stream,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Lists the subcommands of XINFO.",
    syntax: "",
    body: Body::Host(help),
    flags: &[Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

const XINFO_STREAM: Command = Command {
    name: "stream",
    since: "5.0.0",
    group: Group::Stream,
    arity: Arity::at_least(3),
    keys: Keys::first(2).ro(&[Use::Access]),
    summary: "Returns figures of a stream, and its first and last entry or, with FULL, more of it.",
    syntax: "key [FULL full=([COUNT count])]",
    access: Access::Read,
    body: Body::Txn(stream),
    history: &[
        ("6.0.0", "Added the `FULL` modifier."),
        (
            "7.0.0",
            "Added the `max-deleted-entry-id`, `entries-added`, `recorded-first-entry-id`, `entries-read` and `lag` fields",
        ),
        ("7.2.0", "Added the `active-time` field, and changed the meaning of `seen-time`."),
        ("8.6.0", "Added the `idmp-*`, `pids-tracked`, `iids-*` fields."),
    ],
    ..Command::USUAL
};

/// Entries, and pending entries of a group, that FULL shows unless COUNT says otherwise.
const SHOWN_USUAL: u64 = 10;

fn stream(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 2);
    let stream = Stream::lookup(txn, &key)?.ok_or(Error::NoSuchKey)?;
    let full = shown(args)?;
    let head = &stream.head;
    let nodes = nodes(txn, stream.len());
    let mut fields = vec![
        number("length", head.count),
        number("radix-tree-keys", nodes),
        // The root, and what hangs on it.
        number("radix-tree-nodes", nodes + 1),
        (Reply::bulk("last-generated-id"), id::reply(head.last)),
        (Reply::bulk("max-deleted-entry-id"), id::reply(head.max_deleted)),
        number("entries-added", head.entries_added),
        (Reply::bulk("recorded-first-entry-id"), id::reply(head.first)),
    ];
    if let Some(producers) = stream.producers(txn)? {
        let (pids, ids) = producers.known(txn)?;
        let state = producers.state;
        fields.extend([
            number("idmp-duration", state.duration_s.into()),
            number("idmp-maxsize", state.ids_max.into()),
            number("pids-tracked", pids),
            number("iids-tracked", ids),
            number("iids-added", state.added),
            number("iids-duplicates", state.duplicates),
        ]);
    }
    match full {
        None => fields.extend([
            number("groups", stream.groups(txn)?.into()),
            (Reply::bulk("first-entry"), edge(txn, &stream, Direction::Forward)?),
            (Reply::bulk("last-entry"), edge(txn, &stream, Direction::Backward)?),
        ]),
        Some(limit) => fields.extend([
            (Reply::bulk("entries"), entries(txn, &stream, StreamId::MIN..=StreamId::MAX, Direction::Forward, limit)?),
            (Reply::bulk("groups"), group_info::full(txn, &stream, limit)?),
        ]),
    }
    Ok(Reply::Map(fields))
}

/// Returns the number of entries that FULL shows; `None` without FULL.
fn shown(args: Args) -> Result<Option<u64>> {
    match args.len() {
        3 => Ok(None),
        4 | 6 if !args.is(3, "full") => Err(args.wrong_subcommand()),
        4 => Ok(Some(SHOWN_USUAL)),
        6 if !args.is(4, "count") => Err(args.wrong_subcommand()),
        6 => Ok(Some(match u64::try_from(args.int(5)?) {
            Ok(0) => u64::MAX,
            Ok(limit) => limit,
            Err(_) => SHOWN_USUAL,
        })),
        _ => Err(args.wrong_subcommand()),
    }
}

pub(crate) fn number(name: &'static str, value: u64) -> (Reply, Reply) {
    (Reply::bulk(name), Reply::Integer(value as i64))
}

/// Nodes that so many entries would take in Redis, if they are short.
fn nodes(txn: &Txn, entries: u64) -> u64 {
    match u64::try_from(EncodingLimit::StreamNodeEntries.of(txn)) {
        Ok(node @ 1..) => entries.div_ceil(node),
        _ => entries.min(1),
    }
}

/// The first or the last entry.
fn edge(txn: &mut Txn, stream: &Stream, direction: Direction) -> Result<Reply> {
    let mut entry = None;
    stream.visit(txn, StreamId::MIN..=StreamId::MAX, direction, 1, |id, fields| {
        let mut bytes = Vec::new();
        write_entry(&mut bytes, id, fields);
        entry = Some(bytes);
        ControlFlow::Break(())
    })?;
    Ok(entry.map_or(Reply::Null, |entry| Reply::Raw(Bytes::Owned(entry))))
}
