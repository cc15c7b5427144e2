//! XNACK: a consumer hands entries back that it cannot deal with. They stay pending, without consumer, until somebody
//! claims or acknowledges them.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::stream::claim::existing_group;
use crate::stream::group::long_if;
use crate::stream::id;
use crate::stream::stating;
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, Use};
use haypile_resp::Reply;
use haypile_store::Txn;
use haypile_types::stream::{Edit, Held, StreamId};
use std::ops::Range;

pub(crate) const COMMANDS: &[Command] = &[XNACK];

const XNACK: Command = Command {
    name: "xnack",
    since: "8.8.0",
    group: Group::Stream,
    arity: Arity::at_least(7),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Hands pending entries back to their group, for the next consumer that claims, and returns how many there were.",
    syntax: "key group mode=(SILENT | FAIL | FATAL) IDS ids=(numids:integer id:string...) [RETRYCOUNT count] [FORCE]",
    complexity: "O(1) for each message ID processed.",
    access: Access::Write,
    body: Body::Txn(nack),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

/// The meaning of the last delivery for the count of an entry that is handed back.
#[derive(Clone, Copy)]
enum Mode {
    /// The delivery does not count.
    Silent,
    Fail,
    /// The entry has had as many deliveries as there can be.
    Fatal,
}

impl Mode {
    fn parse(args: Args, i: usize) -> Result<Mode> {
        let words = [("silent", Mode::Silent), ("fail", Mode::Fail), ("fatal", Mode::Fatal)];
        let found = words.into_iter().find(|(word, _)| args.is(i, word));
        found.map(|(_, mode)| mode).ok_or(Error::text("ERR mode must be SILENT, FAIL, or FATAL"))
    }

    fn deliveries(self, before: u64) -> u64 {
        match self {
            Mode::Silent => before.saturating_sub(1),
            Mode::Fail => before,
            Mode::Fatal => i64::MAX as u64,
        }
    }
}

/// XNACK's options. Of several of a kind the last one counts.
struct Options {
    /// The arguments that are ids.
    ids: Range<usize>,
    deliveries: Option<u64>,
    force: bool,
}

impl Options {
    fn parse(args: Args, mut i: usize) -> Result<Options> {
        let (mut ids, mut deliveries, mut force) = (None, None, false);
        while i < args.len() {
            let has_more = i + 1 < args.len();
            if args.is(i, "ids") && has_more {
                let block = id_block(args, i + 1)?;
                i = block.end;
                ids = Some(block);
            } else if args.is(i, "retrycount") && has_more {
                let count = u64::try_from(args.int(i + 1)?);
                deliveries = Some(count.map_err(|_| Error::text("ERR Invalid RETRYCOUNT value, must be >= 0"))?);
                i += 2;
            } else if args.is(i, "force") {
                force = true;
                i += 1;
            } else {
                return Err(Error::quoting("ERR Unrecognized XNACK option '", args.get(i), "'"));
            }
        }
        let ids = ids.ok_or(Error::text("ERR syntax error, expected IDS keyword"))?;
        Ok(Options { ids, deliveries, force })
    }
}

/// The arguments that a number of ids, which is argument `i`, announces.
fn id_block(args: Args, i: usize) -> Result<Range<usize>> {
    let count = args.int(i).ok().and_then(|count| i32::try_from(count).ok()).filter(|count| *count > 0);
    let count = count.ok_or(Error::text("ERR numids must be a positive integer"))? as usize;
    let first = i + 1;
    if count > args.len() - first {
        return Err(Error::text("ERR number of IDs doesn't match numids"));
    }
    Ok(first..first + count)
}

fn nack(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let (stream, group) = existing_group(txn, args)?;
    let mode = Mode::parse(args, 3)?;
    let options = Options::parse(args, 4)?;
    let ids = options.ids.map(|at| id::strict(args, at, 0)).collect::<Result<Vec<StreamId>>>()?;
    long_if(txn, ids.len())?;
    let (mut edit, mut count, name) = (Edit::of(group), 0, args.get(2));
    let mut handed_back = Vec::new();
    for id in ids {
        let held = edit.pending(txn, id)?;
        if held.is_none() && !(options.force && stream.has(txn, id)?) {
            continue;
        }
        let before = held.as_ref().map_or(0, |held: &Held| held.deliveries);
        let deliveries = options.deliveries.unwrap_or_else(|| mode.deliveries(before));
        edit.hand_back(txn, id, held.as_ref(), deliveries)?;
        handed_back.push(id);
        count += 1;
    }
    if count > 0 {
        edit.save(txn, &key)?;
        // Before Redis 8.8 a pending entry has a consumer: this one is claimed anew.
        stating::state_released(txn, &key, name, &handed_back);
        // Clients that wait to claim have something to claim.
        txn.on_ready(&key);
    }
    Ok(Reply::Integer(count))
}
