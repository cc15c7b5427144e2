//! XREAD: entries of several streams behind ids that the client names, or those that come next.
//!
//! Where a stream has nothing yet and the client waits, `$` becomes the id that it stands for now: in a later try it
//! would mean the entry that has come.

use crate::args::Args;
use crate::error::{Error, Result, as_text};
use crate::stream::id::{self, IdText};
use crate::stream::range::{entries, write_entry};
use crate::table::{Access, Arity, Awaited, Begin, Body, Command, Find, Group, KeySpec, Keys, Mode, Tried, Use};
use haypile_resp::{Bytes, Elements, Reply};
use haypile_store::{Direction, Txn};
use haypile_types::element::{REPLY_INLINE_BYTES_MAX, ROWS_INLINE_MAX};
use haypile_types::key::{self, Type};
use haypile_types::stream::{Stream, StreamId};
use std::ops::{ControlFlow, Range};

pub(crate) const XREAD: Command = Command {
    name: "xread",
    since: "5.0.0",
    group: Group::Stream,
    arity: Arity::at_least(4),
    keys: STREAM_KEYS,
    summary: "Returns entries of several streams behind the ids given, or waits until there are some.",
    syntax: "[COUNT count] [MAXCOUNT maxcount:integer@8.10.0] [MAXSIZE maxsize:integer@8.10.0] [BLOCK milliseconds] STREAMS streams=(key... id...)",
    complexity: "For each stream mentioned: O(N) with N being the number of elements being returned, it means that XREAD-ing \
                 with a fixed COUNT is O(1). Note that when the BLOCK option is used, XADD will pay O(M) time in order to \
                 serve the M clients blocked on the stream getting new data.",
    access: Access::Read,
    body: Body::Wait(xread),
    history: &[("8.10.0", "Added the `MAXCOUNT` and `MAXSIZE` options.")],
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
    /// Milliseconds since the last delivery of pending entries that are claimed; `None` if none are.
    pub claim_ms: Option<u64>,
    /// Entries of each stream.
    pub limit: u64,
    /// Entries and bytes of the reply.
    pub room: Room,
    /// Group and consumer.
    pub group: Option<(&'a [u8], &'a [u8])>,
    pub noack: bool,
    /// The arguments that name the streams; as many ids follow.
    pub keys: Range<usize>,
}

impl<'a> Reading<'a> {
    pub fn parse(txn: &Txn, args: Args<'a>, for_group: bool) -> Result<Reading<'a>> {
        let (limit, room) = (u64::MAX, Room::default());
        let mut reading =
            Reading { block_ms: None, claim_ms: None, limit, room, group: None, noack: false, keys: 0..0 };
        let mut i = 1;
        while i < args.len() {
            let more = args.len() - i - 1;
            if more > 0 && args.is(i, "block") {
                check_may_wait(txn, args)?;
                i += 1;
                reading.block_ms = Some(timeout_ms(txn, args, i)?);
            } else if more > 0 && args.is(i, "count") {
                i += 1;
                reading.limit = match u64::try_from(args.int(i)?).unwrap_or(0) {
                    0 => u64::MAX,
                    limit => limit,
                };
            } else if more > 0 && args.is(i, "maxcount") {
                i += 1;
                reading.room.entries_max = positive(args, i, "ERR MAXCOUNT must be a positive integer")?;
            } else if more > 0 && args.is(i, "maxsize") {
                i += 1;
                reading.room.bytes_max = positive(args, i, "ERR MAXSIZE must be a positive integer")?;
            } else if more > 0 && args.is(i, "claim") {
                if !for_group {
                    return Err(Error::text(
                        "ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                i += 1;
                reading.claim_ms = Some(claim_ms(args, i)?);
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
        if reading.limit != u64::MAX && reading.room.entries_max < reading.limit {
            return Err(Error::text("ERR MAXCOUNT must be greater than or equal to COUNT"));
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
            again_ms: None,
        })
    }
}

/// Argument `i` as CLAIM's time.
fn claim_ms(args: Args, i: usize) -> Result<u64> {
    let ms = args.int(i).or(Err(Error::text("ERR min-idle-time is not an integer or out of range")))?;
    u64::try_from(ms).or(Err(Error::text("ERR min-idle-time must be a positive integer")))
}

fn positive(args: Args, i: usize, otherwise: &'static str) -> Result<u64> {
    u64::try_from(args.int(i)?).ok().filter(|number| *number > 0).ok_or(Error::text(otherwise))
}

/// The room for entries in a reply, over all its streams (MAXCOUNT and MAXSIZE). The reply is as long as MAXSIZE says
/// when its last entry has made it so: it has one entry at least, and may be longer by one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    entries_max: u64,
    /// Bytes in RESP2, which RESP3 encodes in about as many.
    bytes_max: u64,
    entries: u64,
    bytes: u64,
    /// Bytes of the name of the stream that is read, until the reply has something of it.
    name_bytes: u64,
}

impl Default for Room {
    fn default() -> Room {
        Room { entries_max: u64::MAX, bytes_max: u64::MAX, entries: 0, bytes: 0, name_bytes: 0 }
    }
}

impl Room {
    fn is_bounded(&self) -> bool {
        self.entries_max < u64::MAX || self.bytes_max < u64::MAX
    }

    /// Begins with the next stream, if an entry of it may still come.
    pub fn begin(&mut self, name: &[u8]) -> bool {
        // `*2`, and the name as a bulk string.
        let digits = name.len().checked_ilog10().unwrap_or(0) as usize + 1;
        self.name_bytes = (4 + 1 + digits + 2 + name.len() + 2) as u64;
        self.takes_more()
    }

    pub fn takes_more(&self) -> bool {
        let is_short = self.bytes.saturating_add(self.name_bytes) < self.bytes_max;
        self.entries == 0 || self.entries < self.entries_max && is_short
    }

    /// Returns how many entries of a stream may come, where COUNT allows so many.
    pub fn limit(&self, count: u64) -> u64 {
        count.min(self.entries_max - self.entries)
    }

    /// Notes so many bytes behind the name of the stream.
    pub fn take(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(std::mem::take(&mut self.name_bytes)).saturating_add(bytes as u64);
    }

    /// Adds an entry by `push` if there is room; returns the bytes of all entries then.
    pub fn push(&mut self, entries: &mut Elements, push: impl FnOnce(&mut Elements)) -> Option<usize> {
        if !self.takes_more() {
            return None;
        }
        let before = entries.bytes();
        push(entries);
        self.take(entries.bytes() - before);
        self.entries += 1;
        Some(entries.bytes())
    }

    /// Counts the entries behind an id that there is room for, up to `limit`, and takes them as shown.
    fn fill(&mut self, txn: &mut Txn, stream: &Stream, from: StreamId, limit: u64) -> Result<u64> {
        let (limit, may_be_long, before) = (self.limit(limit), txn.long().is_ok(), self.bytes);
        let (mut count, mut is_long, mut text) = (0, false, Vec::new());
        let want = usize::try_from(limit).unwrap_or(usize::MAX).min(ROWS_INLINE_MAX);
        stream.visit(txn, from..=StreamId::MAX, Direction::Forward, want, |id, fields| {
            let is_much = count >= ROWS_INLINE_MAX as u64 || self.bytes - before > REPLY_INLINE_BYTES_MAX as u64;
            is_long = is_much && !may_be_long;
            if is_long || count == limit || !self.takes_more() {
                return ControlFlow::Break(());
            }
            text.clear();
            write_entry(&mut text, id, fields);
            self.take(text.len());
            (self.entries, count) = (self.entries + 1, count + 1);
            ControlFlow::Continue(())
        })?;
        if is_long {
            txn.long()?;
        }
        Ok(count)
    }
}

/// Keys that an event loop looks at in one command.
const KEYS_AT_ONCE: usize = 1024;

/// Refuses BLOCK in a script, which cannot wait.
fn check_may_wait(txn: &Txn, args: Args) -> Result<()> {
    if !txn.is_nested() {
        return Ok(());
    }
    let why = b" command is not allowed with BLOCK option from scripts";
    Err(Error::Quoting([b"ERR ", as_text(args.get(0)), why].concat()))
}

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
    let (mut found, mut room) = (Vec::new(), reading.room);
    for (at, stream, after) in streams {
        let key = args.key(txn, at);
        if !room.begin(key.name) {
            break;
        }
        // Redis looks again, and counts again.
        key::count_lookup(txn, &key, stream.is_some());
        let Some(stream) = stream else { continue };
        if let Some(reply) = behind(txn, &stream, after, reading.limit, &mut room)? {
            found.push((Reply::Bulk(Bytes::Owned(key.name.to_vec())), reply));
        }
    }
    if found.is_empty() { Ok(reading.nothing(instead, false)) } else { Ok(Tried::Got(Reply::Keyed(found))) }
}

/// The entries behind an id, up to `limit` and as far as there is room, if there are any.
fn behind(txn: &mut Txn, stream: &Stream, after: StreamId, mut limit: u64, room: &mut Room) -> Result<Option<Reply>> {
    let Some(from) = after.next().filter(|from| *from <= stream.head.last) else { return Ok(None) };
    if room.is_bounded() {
        limit = room.fill(txn, stream, from, limit)?;
        if limit == 0 {
            return Ok(None);
        }
    }
    let reply = entries(txn, stream, from..=StreamId::MAX, Direction::Forward, limit)?;
    let is_empty = match &reply {
        Reply::Elements(entries) => entries.is_empty(),
        Reply::Array(entries) => entries.is_empty(),
        _ => false,
    };
    Ok((!is_empty).then_some(reply))
}
