//! The common parts of the commands on collections: options and replies of the *SCAN family, counts of the *RAND*
//! family, and replies that are too long to be held at once.
//!
//! A cursor is the hash of the next element plus one, so that nothing is kept between calls; what lies in one row goes
//! out whole. Never looks at a value: the types say what an element is.

use crate::args::Args;
use crate::error::{Error, Result};
use haypile_config::glob;
use haypile_resp::pieces::PIECE_BYTES;
use haypile_resp::{Elements, Pieces, Protocol, Reply, Shape, Weight, write};
use haypile_store::{Taken, Txn, View};
use std::collections::VecDeque;

/// Keys that one step looks at, whatever COUNT asks for: a step stays well below a millisecond where they are in
/// memory.
pub(crate) const STEP_KEYS_MAX: usize = 1000;

/// Keys that a step looks at if COUNT does not say.
pub(crate) const STEP_KEYS: usize = 10;

/// A cursor as C's `strtoul` reads it, as Redis does; a negative number is one beyond all positions.
pub(crate) fn parse_cursor(digits: &[u8]) -> Option<u64> {
    let (negative, digits) = match digits {
        [] => return Some(0),
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, digits),
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let cursor: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if negative { cursor.wrapping_neg() } else { cursor })
}

/// The cursor in argument `i`.
pub(crate) fn cursor(args: Args, i: usize) -> Result<u64> {
    parse_cursor(args.get(i)).ok_or(Error::InvalidCursor)
}

/// The hash from which a cursor goes on; `None` if it lies beyond all.
pub(crate) fn hash_of_cursor(cursor: u64) -> Option<u32> {
    u32::try_from(cursor.saturating_sub(1)).ok()
}

/// The options of HSCAN, SSCAN or ZSCAN.
pub(crate) struct Page<'a> {
    /// The pattern that elements have to match; `None` lets every element pass.
    pattern: Option<&'a [u8]>,
    /// Elements to look at.
    pub count: usize,
    /// HSCAN is to leave the values out.
    pub names_only: bool,
}

impl<'a> Page<'a> {
    /// The options from argument `i` on.
    pub fn parse(args: Args<'a>, mut i: usize, novalues: bool) -> Result<Page<'a>> {
        let mut page = Page { pattern: None, count: STEP_KEYS, names_only: false };
        while i < args.len() {
            let value = args.opt(i + 1);
            match value {
                Some(_) if args.is(i, "count") => {
                    let count = args.int(i + 1)?;
                    if count < 1 {
                        return Err(Error::Syntax);
                    }
                    page.count = usize::try_from(count).unwrap_or(usize::MAX).min(STEP_KEYS_MAX);
                    i += 2;
                }
                Some(pattern) if args.is(i, "match") => {
                    page.pattern = (pattern != b"*").then_some(pattern);
                    i += 2;
                }
                _ if novalues && args.is(i, "novalues") => {
                    page.names_only = true;
                    i += 1;
                }
                _ => return Err(Error::Syntax),
            }
        }
        Ok(page)
    }

    /// Returns where a step begins, and how many elements it looks at: all, whatever cursor and COUNT say, of a
    /// collection of which Redis would hold so many in one piece, unless these are more than a step may look at.
    pub fn step(&self, cursor: u64, in_one_piece: Option<u64>) -> (Option<u32>, usize) {
        match in_one_piece {
            Some(count) if count <= STEP_KEYS_MAX as u64 => (Some(0), STEP_KEYS_MAX),
            _ => (hash_of_cursor(cursor), self.count),
        }
    }

    #[inline]
    pub fn passes(&self, element: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, element, false))
    }
}

/// The reply of a page: the next cursor, 0 at the end, and the elements.
pub(crate) fn page(next: Option<u32>, elements: Elements) -> Reply {
    let cursor = next.map_or(0, |hash| u64::from(hash) + 1);
    Reply::Array(vec![Reply::bulk(cursor.to_string()), Reply::Elements(elements)])
}

/// The page of a key that is not there.
pub(crate) fn empty_page() -> Reply {
    page(None, Elements::new(Shape::Array))
}

/// Writes the elements of one row, given by its key and value, and returns how many it wrote.
pub(crate) type EachRow = dyn FnMut(&[u8], &[u8], Protocol, &mut Vec<u8>) -> std::result::Result<u64, String> + Send;

/// A reply of `count` elements that are made of the rows of a view, piece by piece; of a map, keys and values both
/// count.
pub(crate) fn stream(
    view: View,
    shape: Shape,
    count: u64,
    each: impl FnMut(&[u8], &[u8], Protocol, &mut Vec<u8>) -> std::result::Result<u64, String> + Send + 'static,
) -> Reply {
    stream_with(view, move |protocol, out| write_len(shape, protocol, count as usize, out), count, each)
}

/// A reply like that of [`stream`], where `head` writes the bytes before the elements.
pub(crate) fn stream_with(
    view: View,
    head: impl FnOnce(Protocol, &mut Vec<u8>) + Send + 'static,
    count: u64,
    each: impl FnMut(&[u8], &[u8], Protocol, &mut Vec<u8>) -> std::result::Result<u64, String> + Send + 'static,
) -> Reply {
    Reply::Stream(Box::new(RowElements { view, head: Some(Box::new(head)), missing: count, each: Box::new(each) }))
}

type Head = dyn FnOnce(Protocol, &mut Vec<u8>) + Send;

struct RowElements {
    view: View,
    /// Writes the length; `None` once the length is out.
    head: Option<Box<Head>>,
    /// Elements that are still to come.
    missing: u64,
    each: Box<EachRow>,
}

impl Pieces for RowElements {
    fn next(&mut self, protocol: Protocol, out: &mut Vec<u8>) -> std::result::Result<bool, String> {
        if let Some(head) = self.head.take() {
            head(protocol, out);
        }
        let full = out.len() + PIECE_BYTES;
        while self.missing > 0 && out.len() < full {
            let Some((row, value)) = self.view.next_row()? else {
                return Err("a collection has fewer elements than its count says".into());
            };
            let written = (self.each)(&row, &value, protocol, out)?;
            self.missing = self
                .missing
                .checked_sub(written)
                .ok_or_else(|| String::from("a collection has more elements than its count says"))?;
        }
        Ok(self.missing > 0)
    }

    /// The bytes of the rows in memory; those of the base are not known yet.
    fn weight(&self) -> Weight {
        let bytes = self.view.bytes() as usize;
        Weight { held_bytes: bytes, encoded_bytes: bytes }
    }
}

/// A reply of `count` bulk strings, piece by piece: `next` writes the next one and says whether there was one.
pub(crate) fn stream_of(
    shape: Shape,
    count: u64,
    next: impl FnMut(&mut Vec<u8>) -> std::result::Result<bool, String> + Send + 'static,
) -> Reply {
    Reply::Stream(Box::new(MadeElements { shape, count, begun: false, missing: count, next }))
}

struct MadeElements<F> {
    shape: Shape,
    count: u64,
    /// The length is out.
    begun: bool,
    /// Elements that are still to come.
    missing: u64,
    next: F,
}

impl<F> Pieces for MadeElements<F>
where
    F: FnMut(&mut Vec<u8>) -> std::result::Result<bool, String> + Send,
{
    fn next(&mut self, protocol: Protocol, out: &mut Vec<u8>) -> std::result::Result<bool, String> {
        if !self.begun {
            self.begun = true;
            write_len(self.shape, protocol, self.count as usize, out);
        }
        let full = out.len() + PIECE_BYTES;
        while self.missing > 0 && out.len() < full {
            if !(self.next)(out)? {
                return Err("a collection has fewer elements than its count says".into());
            }
            self.missing -= 1;
        }
        Ok(self.missing > 0)
    }
}

/// An array of bulk strings that may become too long to be held twice: in parts, which are sent and let go one by one.
pub(crate) struct Collected {
    full: VecDeque<Vec<u8>>,
    /// The part that is being filled.
    last: Vec<u8>,
    count: u64,
    bytes: usize,
    room: Taken,
}

impl Collected {
    pub fn new(txn: &Txn<'_>) -> Self {
        Collected { full: VecDeque::new(), last: Vec::new(), count: 0, bytes: 0, room: txn.room() }
    }

    /// Adds one, if there is room.
    pub fn push(&mut self, text: &[u8]) -> Result<()> {
        let before = self.last.len();
        write::bulk(&mut self.last, text);
        self.bytes += self.last.len() - before;
        self.count += 1;
        if self.last.len() >= PIECE_BYTES {
            self.room.grow_to(self.bytes)?;
            let next = Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 8);
            self.full.push_back(std::mem::replace(&mut self.last, next));
        }
        Ok(())
    }

    pub fn into_reply(self) -> Reply {
        let Collected { mut full, last, count, bytes, room } = self;
        // From here on it is counted as what its client has still to read.
        drop(room);
        if full.is_empty() {
            return Reply::Elements(Elements::encoded(Shape::Array, count as usize, last));
        }
        full.push_back(last);
        Reply::Stream(Box::new(CollectedPieces { parts: full, count: Some(count), bytes }))
    }
}

struct CollectedPieces {
    parts: VecDeque<Vec<u8>>,
    /// The number of elements, until it has been written.
    count: Option<u64>,
    bytes: usize,
}

impl Pieces for CollectedPieces {
    fn next(&mut self, _: Protocol, out: &mut Vec<u8>) -> std::result::Result<bool, String> {
        if let Some(count) = self.count.take() {
            write::array_len(out, count as usize);
        }
        if let Some(part) = self.parts.pop_front() {
            out.extend_from_slice(&part);
        }
        Ok(!self.parts.is_empty())
    }

    fn weight(&self) -> Weight {
        Weight { held_bytes: self.bytes, encoded_bytes: self.bytes }
    }
}

/// The line that says how many elements follow; of a map, keys and values both count.
pub(crate) fn write_len(shape: Shape, protocol: Protocol, count: usize, out: &mut Vec<u8>) {
    match shape {
        Shape::Array => write::array_len(out, count),
        Shape::Set => write::set_len(protocol, out, count),
        Shape::Map => write::map_len(protocol, out, count / 2),
        Shape::Pairs if protocol == Protocol::Resp3 => write::array_len(out, count / 2),
        Shape::Pairs => write::array_len(out, count),
    }
}

/// Writes the bytes before each pair of a reply of pairs.
pub(crate) fn begin_pair(protocol: Protocol, out: &mut Vec<u8>) {
    if protocol == Protocol::Resp3 {
        write::array_len(out, 2);
    }
}

/// How many random elements a command is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sample {
    /// The most elements that are drawn, all different.
    Different(u64),
    /// Exactly this many elements, each drawn by itself: a negative count.
    Any(u64),
}

impl Sample {
    /// The count in argument `i`, and whether there is the word behind it that asks for more (WITHVALUES, WITHSCORES).
    pub fn parse(args: Args, i: usize, with: &str) -> Result<(Sample, bool)> {
        let count = args.int(i)?;
        if count == i64::MIN {
            return Err(Error::text(
                "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
            ));
        }
        let wants_more = args.len() == i + 2 && args.is(i + 1, with);
        if args.len() > i + 1 && !wants_more {
            return Err(Error::Syntax);
        }
        if wants_more && !(-(i64::MAX / 2)..=i64::MAX / 2).contains(&count) {
            return Err(Error::text("ERR value is out of range"));
        }
        let sample = if count < 0 { Sample::Any(count.unsigned_abs()) } else { Sample::Different(count as u64) };
        Ok((sample, wants_more))
    }
}

/// Draws of different elements are made one by one where they are few among many: so many at most, and one in so many.
pub(crate) const DRAWS_MAX: u64 = 10_000;
pub(crate) const DRAWS_SHARE: u64 = 16;
