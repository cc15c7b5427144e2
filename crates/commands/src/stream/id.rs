//! The ids of entries as clients write and read them: `ms-seq`, parts of it, and the ends of a range.
//!
//! Redis reads each half with `strtoull` where it is not an integer as it prints them itself, so spaces and signs
//! before the digits pass, and what follows a zero byte is not looked at.

use crate::args::Args;
use crate::error::{Error, Result};
use haypile_resp::{Bytes, Reply, number, write};
use haypile_types::stream::StreamId;
use std::ops::Deref;

/// The id that XADD is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// `*`
    Next,
    /// `ms-*`
    In(u64),
    Exactly(StreamId),
}

const INVALID: Error =
    Error::Text(std::borrow::Cow::Borrowed("ERR Invalid stream ID specified as stream command argument"));

/// Bytes of the longest text that is read as an id, as in Redis.
const BYTES_MAX: usize = 127;

/// Argument `i` as the id of an entry; `seq` is the number where it has only the time.
pub(crate) fn strict(args: Args, i: usize, seq: u64) -> Result<StreamId> {
    parse_strict(args.get(i), seq)
}

pub(crate) fn parse_strict(text: &[u8], seq: u64) -> Result<StreamId> {
    match parse(text)? {
        (ms, None) => Ok(StreamId { ms, seq }),
        (ms, Some(text)) => Ok(StreamId { ms, seq: unsigned(text).ok_or(INVALID)? }),
    }
}

/// Argument `i` as XADD's id, where it is not `*`.
pub(crate) fn wanted(args: Args, i: usize) -> Result<Wanted> {
    match parse(args.get(i))? {
        (ms, Some(b"*")) => Ok(Wanted::In(ms)),
        (ms, None) => Ok(Wanted::Exactly(StreamId { ms, seq: 0 })),
        (ms, Some(text)) => Ok(Wanted::Exactly(StreamId { ms, seq: unsigned(text).ok_or(INVALID)? })),
    }
}

/// An end of a range: `-`, `+`, an id, or `(` and an id that is not within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub id: StreamId,
    pub is_excluded: bool,
}

/// Argument `i` as an end of a range.
pub(crate) fn end(args: Args, i: usize, seq: u64) -> Result<End> {
    let text = args.get(i);
    match text {
        [b'(', id @ ..] if !id.is_empty() => Ok(End { id: parse_strict(id, seq)?, is_excluded: true }),
        b"-" => Ok(End { id: StreamId::MIN, is_excluded: false }),
        b"+" => Ok(End { id: StreamId::MAX, is_excluded: false }),
        id => Ok(End { id: parse_strict(id, seq)?, is_excluded: false }),
    }
}

/// Argument `i` as the first id of a range.
pub(crate) fn start(args: Args, i: usize) -> Result<StreamId> {
    let start = end(args, i, 0)?;
    match start.is_excluded {
        true => start.id.next().ok_or(Error::text("ERR invalid start ID for the interval")),
        false => Ok(start.id),
    }
}

/// Arguments `i` and `j` as the first and the last id of a range.
pub(crate) fn range(args: Args, i: usize, j: usize) -> Result<(StreamId, StreamId)> {
    let start = start(args, i)?;
    let end = end(args, j, u64::MAX)?;
    let end = match end.is_excluded {
        true => end.id.previous().ok_or(Error::text("ERR invalid end ID for the interval"))?,
        false => end.id,
    };
    Ok((start, end))
}

/// The time, and what stands for the number.
fn parse(text: &[u8]) -> Result<(u64, Option<&[u8]>)> {
    if text.len() > BYTES_MAX || matches!(text, b"-" | b"+") {
        return Err(INVALID);
    }
    // A text of C ends at its first zero.
    let text = text.split(|&byte| byte == 0).next().unwrap_or(text);
    let (ms, seq) = match text.iter().position(|&byte| byte == b'-') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    Ok((unsigned(ms).ok_or(INVALID)?, seq))
}

/// A number of 64 bits, as `strtoull` reads it unless it is an integer below zero.
fn unsigned(text: &[u8]) -> Option<u64> {
    if let Some(number) = number::parse_i64(text) {
        return u64::try_from(number).ok();
    }
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = text.iter().position(|byte| !is_space(byte))?;
    let (is_negative, digits) = match &text[start..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })?;
    Some(if is_negative { number.wrapping_neg() } else { number })
}

/// An id as it is shown: on the stack.
pub(crate) struct IdText {
    bytes: [u8; IdText::BYTES_MAX],
    start: usize,
}

impl IdText {
    /// Two numbers of twenty digits, and what separates them.
    const BYTES_MAX: usize = 41;

    #[inline]
    pub fn of(id: StreamId) -> IdText {
        let mut text = IdText { bytes: [b'-'; IdText::BYTES_MAX], start: IdText::BYTES_MAX };
        text.put(id.seq);
        text.start -= 1;
        text.put(id.ms);
        text
    }

    /// Puts the digits of a number before what is there.
    #[inline]
    fn put(&mut self, mut number: u64) {
        loop {
            self.start -= 1;
            self.bytes[self.start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return;
            }
        }
    }
}

impl Deref for IdText {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// An id as a reply.
#[inline]
pub(crate) fn reply(id: StreamId) -> Reply {
    Reply::Bulk(Bytes::Owned(IdText::of(id).to_vec()))
}

/// Writes an id as a bulk string.
#[inline]
pub(crate) fn write(out: &mut Vec<u8>, id: StreamId) {
    write::bulk(out, &IdText::of(id));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_redis_reads_them() {
        let read = |text: &str| parse_strict(text.as_bytes(), 7).ok().map(|id| (id.ms, id.seq));
        assert_eq!(read("5"), Some((5, 7)));
        assert_eq!(read("5-0"), Some((5, 0)));
        assert_eq!(read("18446744073709551615-18446744073709551615"), Some((u64::MAX, u64::MAX)));
        for wrong in ["", "-", "+", "x", "5-", "-5", "5-x", "5-6-7", "18446744073709551616", "5-*", "(5", "5-0x6"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        // strtoull lets these pass.
        assert_eq!(read("05-+6"), Some((5, 6)));
        assert_eq!(read(" 5-\t6"), Some((5, 6)));
        assert_eq!(read("5- -6"), Some((5, u64::MAX - 5)));
        assert_eq!(read("5--6"), None, "an integer below zero is none");
        assert_eq!(read("5\0-6"), Some((5, 7)));
        assert_eq!(read(&"0".repeat(BYTES_MAX)), Some((0, 7)));
        assert_eq!(read(&"0".repeat(BYTES_MAX + 1)), None);
    }

    #[test]
    fn ids_are_shown_whole() {
        for id in [StreamId::MIN, StreamId::new(1_700_000_000_000, 10), StreamId::MAX] {
            assert_eq!(&*IdText::of(id), id.to_string().as_bytes());
        }
    }
}
