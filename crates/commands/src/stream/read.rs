//! XREAD: entries of several streams behind ids that the client names, or those that come next.
//!
//! Where a stream has nothing yet and the client waits, `$` becomes the id that it stands for now: in a later try it
//! would mean the entry that has come.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::stream::id::{self, IdText};
use crate::stream::range::entries;
use crate::table::{Access, Arity, Awaited, Begin, Body, Command, Find, Group, KeySpec, Keys, Mode, Tried, Use};
use haypile_resp::{Bytes, Reply};
use haypile_store::{Direction, Txn};
use haypile_types::key::{self, Type};
use haypile_types::stream::{Stream, StreamId};
use std::ops::Range;

pub(crate) const XREAD: Command = Command {
    name: "xread",
    since: "5.0.0",
    group: Group::Stream,
    arity: Arity::at_least(4),
    keys: STREAM_KEYS,
    summary: "Returns entries of several streams behind the ids given, or waits until there are some.",
    syntax: "[COUNT count] [BLOCK milliseconds] STREAMS streams=(key... id...)",
    complexity: "For each stream mentioned: O(N) with N being the number of elements being returned, it means that XREAD-ing \
                 with a fixed COUNT is O(1). Note that when the BLOCK option is used, XADD will pay O(M) time in order to \
                 serve the M clients blocked on the stream getting new data.",
    access: Access::Read,
    body: Body::Wait(xread),
    ..Command::USUAL
};

/// The first half of what follows STREAMS.
const STREAM_KEYS: Keys = Keys::One(KeySpec {
    begin: Begin::Keyword { word: "STREAMS", from: 1 },
    find: Find::Range { last: -1, step: 1, limit: 2 },
    ..KeySpec::at(1).with(Mode::Ro, &[Use::Access])
});

/// The options of XREAD, and those that XREADGROUP has as well.
pub(crate) struct Reading<'a> {
    /// Milliseconds to wait, 0 for ever; `None` for a client that does not wait.
    block_ms: Option<u64>,
    /// Entries of each stream.
    pub limit: u64,
    /// Group and consumer.
    pub group: Option<(&'a [u8], &'a [u8])>,
    pub noack: bool,
    /// The arguments that name the streams; as many ids follow.
    pub keys: Range<usize>,
}

impl<'a> Reading<'a> {
    pub fn parse(txn: &Txn, args: Args<'a>, for_group: bool) -> Result<Reading<'a>> {
        let mut reading = Reading { block_ms: None, limit: u64::MAX, group: None, noack: false, keys: 0..0 };
        let mut i = 1;
        while i < args.len() {
            let more = args.len() - i - 1;
            if more > 0 && args.is(i, "block") {
                i += 1;
                reading.block_ms = Some(timeout_ms(txn, args, i)?);
            } else if more > 0 && args.is(i, "count") {
                i += 1;
                reading.limit = match u64::try_from(args.int(i)?).unwrap_or(0) {
                    0 => u64::MAX,
                    limit => limit,
                };
            } else if more > 0 && args.is(i, "streams") {
                if !more.is_multiple_of(2) {
                    return Err(Error::text(if for_group {
                        "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified."
                    } else {
                        "ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified."
                    }));
                }
                reading.keys = i + 1..i + 1 + more / 2;
                break;
            } else if more > 1 && args.is(i, "group") {
                if !for_group {
                    return Err(Error::text(
                        "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                reading.group = Some((args.get(i + 1), args.get(i + 2)));
                i += 2;
            } else if args.is(i, "noack") {
                if !for_group {
                    return Err(Error::text(
                        "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                reading.noack = true;
            } else {
                return Err(Error::Syntax);
            }
            i += 1;
        }
        if reading.keys.is_empty() {
            return Err(Error::Syntax);
        }
        if for_group && reading.group.is_none() {
            return Err(Error::text("ERR Missing GROUP option for XREADGROUP"));
        }
        if reading.keys.len() > KEYS_AT_ONCE {
            txn.long()?;
        }
        Ok(reading)
    }

    /// The argument with the id for the stream in argument `at`.
    pub fn id_at(&self, at: usize) -> usize {
        at + self.keys.len()
    }

    /// The outcome of a read that has found nothing: a wait, if the client waits. `instead` replaces arguments in later
    /// tries; `until_gone` says that the end of a stream ends the wait, too.
    pub fn nothing(self, instead: Vec<(usize, Vec<u8>)>, until_gone: bool) -> Tried {
        let Some(block_ms) = self.block_ms else { return Tried::Got(Reply::NullArray) };
        Tried::Nothing(Awaited {
            keys: self.keys,
            kind: Type::Stream,
            timeout_ms: (block_ms > 0).then_some(block_ms),
            at_once: Reply::NullArray,
            instead,
            until_gone,
        })
    }
}

/// Keys that an event loop looks at in one command.
const KEYS_AT_ONCE: usize = 1024;

/// Argument `i` as a time to wait in milliseconds.
fn timeout_ms(txn: &Txn, args: Args, i: usize) -> Result<u64> {
    let ms = args.int(i).or(Err(Error::text("ERR timeout is not an integer or out of range")))?;
    let ms = u64::try_from(ms).or(Err(Error::text("ERR timeout is negative")))?;
    if ms > i64::MAX as u64 - txn.now_ms() { Err(Error::text("ERR timeout is out of range")) } else { Ok(ms) }
}

fn xread(txn: &mut Txn, args: Args) -> Result<Tried> {
    let reading = Reading::parse(txn, args, false)?;
    let mut streams = Vec::with_capacity(reading.keys.len());
    let mut instead = Vec::new();
    for at in reading.keys.clone() {
        let key = args.key(txn, at);
        let (stream, id_at) = (Stream::lookup(txn, &key)?, reading.id_at(at));
        let after = match args.get(id_at) {
            b"$" => {
                let last = stream.as_ref().map_or(StreamId::MIN, |stream| stream.head.last);
                instead.push((id_at, IdText::of(last).to_vec()));
                last
            }
            // As in 7.4: the last entry that there is.
            b"+" => match &stream {
                Some(stream) => stream.last_entry(txn)?.and_then(StreamId::previous).unwrap_or(StreamId::MIN),
                None => StreamId::MIN,
            },
            b">" => {
                return Err(Error::text(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
                ));
            }
            _ => id::strict(args, id_at, 0)?,
        };
        streams.push((at, stream, after));
    }
    let mut found = Vec::new();
    for (at, stream, after) in streams {
        // Redis looks again, and counts again.
        let key = args.key(txn, at);
        key::count_lookup(txn, &key, stream.is_some());
        let Some(stream) = stream else { continue };
        if let Some(reply) = behind(txn, &stream, after, reading.limit)? {
            found.push((Reply::Bulk(Bytes::Owned(key.name.to_vec())), reply));
        }
    }
    if found.is_empty() { Ok(reading.nothing(instead, false)) } else { Ok(Tried::Got(Reply::Keyed(found))) }
}

/// The entries behind an id, up to `limit`, if there are any.
fn behind(txn: &mut Txn, stream: &Stream, after: StreamId, limit: u64) -> Result<Option<Reply>> {
    let Some(from) = after.next().filter(|from| *from <= stream.head.last) else { return Ok(None) };
    let reply = entries(txn, stream, from..=StreamId::MAX, Direction::Forward, limit)?;
    let is_empty = match &reply {
        Reply::Elements(entries) => entries.is_empty(),
        Reply::Array(entries) => entries.is_empty(),
        _ => false,
    };
    Ok((!is_empty).then_some(reply))
}
