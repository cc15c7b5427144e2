//! XDELEX and XACKDEL: the removal of entries with a say in what becomes of the references that consumer groups hold to
//! them. The same words are options of XADD and XTRIM. The references belong to `haypile_types::stream`.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::statement;
use crate::stream::id;
use crate::stream::stating;
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, Use};
use haypile_resp::Reply;
use haypile_store::{Key, Txn};
use haypile_types::event;
use haypile_types::stream::{Group as ConsumerGroup, Outcome, Policy, Stream, StreamId};
use std::ops::Range;

pub(crate) const XDELEX: Command = Command {
    name: "xdelex",
    since: "8.2.0",
    group: Group::Stream,
    arity: Arity::at_least(5),
    keys: Keys::first(1).rw(&[Use::Delete]),
    summary: "Removes entries from a stream, with or without the references of consumer groups, and tells of each.",
    syntax: "key [condition=(KEEPREF | DELREF | ACKED)] IDS ids=(numids:integer id:string...)",
    complexity: "O(1) for each single item to delete in the stream, regardless of the stream size.",
    access: Access::Write,
    body: Body::Txn(xdelex),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

pub(crate) const XACKDEL: Command = Command {
    name: "xackdel",
    since: "8.2.0",
    group: Group::Stream,
    arity: Arity::at_least(6),
    keys: Keys::first(1).rw(&[Use::Update, Use::Delete]),
    summary: "Says that a consumer group is done with entries, removes them from the stream, and tells of each.",
    syntax: "key group [condition=(KEEPREF | DELREF | ACKED)] IDS ids=(numids:integer id:string...)",
    complexity: "O(1) for each message ID processed.",
    access: Access::Write,
    body: Body::Txn(xackdel),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

/// Argument `i` as the word for a policy; `None` if it is none.
pub(crate) fn policy(args: Args, i: usize) -> Option<Policy> {
    let words = [("keepref", Policy::KeepRef), ("delref", Policy::DelRef), ("acked", Policy::Acked)];
    words.into_iter().find(|(word, _)| args.is(i, word)).map(|(_, policy)| policy)
}

/// The options of XDELEX and XACKDEL.
struct Options {
    policy: Policy,
    /// The arguments that are ids.
    ids: Range<usize>,
}

impl Options {
    /// Reads the options, which begin at argument `i`. Of several blocks of ids the last one counts.
    fn parse(args: Args, mut i: usize) -> Result<Options> {
        let (mut given, mut ids) = (None, None);
        while i < args.len() {
            if let (None, Some(policy)) = (given, policy(args, i)) {
                given = Some(policy);
                i += 1;
            } else if args.is(i, "ids") && i + 1 < args.len() {
                let block = id_block(args, i + 1)?;
                i = block.end;
                ids = Some(block);
            } else {
                return Err(Error::Syntax);
            }
        }
        let ids = ids.ok_or(Error::text("ERR IDS option is required"))?;
        Ok(Options { policy: given.unwrap_or_default(), ids })
    }

    fn parse_ids(&self, args: Args) -> Result<Vec<StreamId>> {
        self.ids.clone().map(|at| id::strict(args, at, 0)).collect()
    }

    /// The reply where no id can be found, whatever they are.
    fn all_missing(&self) -> Reply {
        answer(&vec![Outcome::Missing; self.ids.len()])
    }
}

/// The arguments that a number of ids, which is argument `i`, announces.
fn id_block(args: Args, i: usize) -> Result<Range<usize>> {
    let count = args.int(i).ok().and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
    let count = count.ok_or(Error::text("ERR Number of IDs must be a positive integer"))?;
    let first = i + 1;
    if count > args.len() - first {
        return Err(Error::text("ERR The `numids` parameter must match the number of arguments"));
    }
    Ok(first..first + count)
}

fn answer(outcomes: &[Outcome]) -> Reply {
    let numbers = outcomes.iter().map(|outcome| match outcome {
        Outcome::Missing => -1,
        Outcome::Removed => 1,
        Outcome::Kept => 2,
    });
    Reply::Array(numbers.map(Reply::Integer).collect())
}

fn xdelex(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let found = Stream::edit(txn, &key)?;
    let options = Options::parse(args, 2)?;
    let Some(mut stream) = found else { return Ok(options.all_missing()) };
    let (ids, before) = (options.parse_ids(args)?, stream.len());
    let outcomes = stream.remove_by(txn, &key, &ids, options.policy)?;
    save_and_tell(txn, &key, &mut stream, before)?;
    if options.policy == Policy::default() {
        stating::state_removed(txn, &key, &removed(&ids, &outcomes));
    } else {
        statement::state_value(txn, &key)?;
    }
    Ok(answer(&outcomes))
}

fn xackdel(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let found = Stream::edit(txn, &key)?;
    let options = Options::parse(args, 3)?;
    let Some(mut stream) = found else { return Ok(options.all_missing()) };
    let Some(group) = ConsumerGroup::find(txn, &stream, args.get(2))? else { return Ok(options.all_missing()) };
    let (ids, before) = (options.parse_ids(args)?, stream.len());
    let name = group.name;
    let outcomes = stream.acknowledge_and_remove(txn, &key, &group, &ids, options.policy)?;
    save_and_tell(txn, &key, &mut stream, before)?;
    if options.policy == Policy::default() {
        stating::state_released(txn, &key, name, &ids);
        stating::state_removed(txn, &key, &removed(&ids, &outcomes));
    } else {
        statement::state_value(txn, &key)?;
    }
    Ok(answer(&outcomes))
}

/// Returns the entries that were removed.
fn removed(ids: &[StreamId], outcomes: &[Outcome]) -> Vec<StreamId> {
    ids.iter().zip(outcomes).filter(|(_, outcome)| **outcome == Outcome::Removed).map(|(id, _)| *id).collect()
}

/// Saves a stream that has lost entries, of which there were so many.
fn save_and_tell(txn: &mut Txn, key: &Key, stream: &mut Stream, before: u64) -> Result<()> {
    if stream.len() < before {
        stream.save(txn, key)?;
        txn.on_event(event::STREAM, "xdel", key);
    }
    Ok(())
}
