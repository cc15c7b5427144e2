//! Finds requests in the bytes that a client has sent so far.
//!
//! The parser owns a position and no data: the caller keeps a read buffer, hands over the bytes that are not consumed
//! yet, and receives ranges of them, so no argument is copied. No byte is looked at twice, however small the pieces in
//! which they arrive, and nothing is allocated or repeated by a number that a client merely claims.
//!
//! Requests are accepted and refused as by Redis 7.2, in its words (`processInlineBuffer`, `processMultibulkBuffer`),
//! its oddities included: the second byte of a line end is not looked at, nor are the two bytes behind an argument, and
//! a NUL in a line hides the line's end. The parser is stricter in one point, where Redis answers by the sizes in which
//! the data happens to arrive: a line longer than the limit is always an error. [`crate::inline`] splits such a line,
//! [`crate::Args`] gives access to the ranges.

use std::mem;
use std::ops::Range;

use memchr::memchr2;

use crate::inline;
use crate::number::parse_i64;
use crate::{Args, OwnedArgs, ProtocolError};

/// How many arguments a request may have before its client has authenticated (where that is required).
pub const UNAUTHENTICATED_ARGS_MAX: u32 = 10;

/// How many bytes an argument may have before its client has authenticated (where that is required).
pub const UNAUTHENTICATED_BULK_BYTES_MAX: u32 = 16 * 1024;

/// The smallest [`Limits::inline_bytes_max`]: the usual lines are shorter and need not be measured.
pub const LINE_BYTES_MIN: u32 = 16;

/// A number of at most this many digits takes the short way: such a number fits a `u32`.
const SHORT_DIGITS_MAX: usize = 9;

/// The bounds of a request. They can change between two requests, and also in the middle of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest argument: `proto-max-bulk-len`.
    pub bulk_bytes_max: u64,
    /// The largest number of arguments.
    pub multibulk_len_max: u32,
    /// The longest inline request, and the longest line that announces a number. At least [`LINE_BYTES_MIN`].
    pub inline_bytes_max: u32,
    /// The largest request in bytes, since it lies in the read buffer as a whole: `client-query-buffer-limit`.
    pub request_bytes_max: u32,
    /// Whether the client may use the limits above. While a client still has to authenticate,
    /// [`UNAUTHENTICATED_ARGS_MAX`] and [`UNAUTHENTICATED_BULK_BYTES_MAX`] hold too.
    pub authenticated: bool,
}

impl Default for Limits {
    /// Returns the limits of Redis 7.2 for a client that need not authenticate.
    fn default() -> Limits {
        Limits {
            bulk_bytes_max: 512 * 1024 * 1024,
            multibulk_len_max: i32::MAX as u32,
            inline_bytes_max: 64 * 1024,
            request_bytes_max: 1024 * 1024 * 1024,
            authenticated: true,
        }
    }
}

/// A request that [`Parser::next`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// A command; its arguments are the ranges in `args`, relative to the start of the buffer. At least one.
    Ranges {
        /// How many bytes of the buffer the request took.
        bytes: usize,
    },
    /// A command whose arguments were quoted and therefore had to be rewritten; `args` is empty. At least one.
    Owned {
        /// How many bytes of the buffer the request took.
        bytes: usize,
        /// The arguments.
        args: Box<OwnedArgs>,
    },
    /// Nothing to run and nothing to answer: an empty line, `*0` or `*-1`.
    Empty {
        /// How many bytes of the buffer the request took.
        bytes: usize,
    },
}

impl Request {
    /// Returns how many bytes of the buffer the request took; the next request begins behind them.
    #[inline]
    pub fn bytes(&self) -> usize {
        match self {
            Request::Ranges { bytes } | Request::Owned { bytes, .. } | Request::Empty { bytes } => *bytes,
        }
    }

    /// Returns the arguments, given the buffer and the ranges that [`Parser::next`] was called with; none if the
    /// request is [`Request::Empty`].
    #[inline]
    pub fn args<'a>(&'a self, buf: &'a [u8], ranges: &'a [Range<u32>]) -> Args<'a> {
        match self {
            Request::Ranges { .. } => Args::new(buf, ranges),
            Request::Owned { args, .. } => args.as_args(),
            Request::Empty { .. } => Args::new(buf, &[]),
        }
    }
}

/// The parser of one connection.
#[derive(Debug, Default)]
pub struct Parser {
    limits: Limits,
    /// How many arguments of the request are still to come; 0 between requests. The fields below are only kept while a
    /// request is incomplete.
    args_left: u32,
    /// The buffer is parsed up to here.
    at: usize,
    /// The length of the argument whose bytes begin at `at`, if the line before it has been read.
    bulk_len: Option<u32>,
    /// No line that ends later has its end before this offset of the buffer: the search goes on from here.
    searched: usize,
    /// The arguments found so far.
    found: Vec<Range<u32>>,
    /// See [`Parser::needed`].
    needed: usize,
}

/// The line before an argument or before all of them, from its type to its end.
enum Line {
    /// The number in it, if it is one, and the offset behind the line end.
    Whole(Option<i64>, usize),
    /// The line does not end within the bytes that have arrived.
    Incomplete,
    /// The line is longer than the limit.
    TooLong,
}

impl Parser {
    /// Returns a parser at the start of a connection.
    ///
    /// # Panics
    /// If [`Limits::inline_bytes_max`] is below [`LINE_BYTES_MIN`].
    pub fn new(limits: Limits) -> Parser {
        let mut parser = Parser::default();
        parser.set_limits(limits);
        parser
    }

    /// Returns the limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Changes the limits for the bytes parsed from now on. A client that authenticates gets its new limits with the
    /// very next request, as in Redis, if this is called between the two.
    ///
    /// # Panics
    /// If [`Limits::inline_bytes_max`] is below [`LINE_BYTES_MIN`].
    pub fn set_limits(&mut self, limits: Limits) {
        assert!(limits.inline_bytes_max >= LINE_BYTES_MIN, "a line may have {LINE_BYTES_MIN} bytes");
        self.limits = limits;
    }

    /// Returns how many bytes must arrive, at least, before calling [`Parser::next`] again can help; meaningful after
    /// that returned `None`. This is the rest of an argument whose length is known, else 1. The number is a client's
    /// claim within the limits: size the buffer by it in bounded steps.
    pub fn needed(&self) -> usize {
        self.needed.max(1)
    }

    /// Tells whether a part of a request has been parsed.
    pub fn is_inside_request(&self) -> bool {
        self.args_left > 0
    }

    /// Forgets the parsed part of an incomplete request, for a caller that parses ahead of what it consumes or has
    /// dropped the bytes: the next call begins at the first request that was not consumed.
    pub fn restart(&mut self) {
        *self = Parser { limits: self.limits, ..Parser::default() };
    }

    /// Parses the next request of `buf`, which holds everything received and not consumed yet, into `args`, which is
    /// cleared first. `None`: more data is needed; call again with the same bytes and more behind them. Anything else
    /// consumes [`Request::bytes`] bytes: the next call starts behind them.
    ///
    /// # Errors
    /// The request is none. The connection is to be answered and closed; the parser is of no more use.
    #[inline]
    pub fn next(&mut self, buf: &[u8], args: &mut Vec<Range<u32>>) -> Result<Option<Request>, ProtocolError> {
        args.clear();
        // Offsets in here fit a u32, as the ranges must.
        let buf = &buf[..buf.len().min(self.limits.request_bytes_max as usize)];
        if self.args_left > 0 {
            return self.resume(buf, args);
        }
        match buf.first() {
            Some(b'*') => {}
            Some(_) => return self.next_inline(buf, args),
            None => return Ok(self.wait(1)),
        }
        match short_number(buf, 1) {
            Some((count, at)) if count > 0 && count <= self.args_max() => self.parse_args(buf, at, count, args),
            _ => self.next_unusual(buf, args),
        }
    }

    /// Parses a request whose first line is not merely a small count.
    #[cold]
    fn next_unusual(&mut self, buf: &[u8], args: &mut Vec<Range<u32>>) -> Result<Option<Request>, ProtocolError> {
        let (count, at) = match self.line(buf, 0) {
            Line::Whole(count, at) => (count, at),
            Line::Incomplete => return self.wait_for_line(buf),
            Line::TooLong => return Err(ProtocolError::CountLineTooLong),
        };
        let count = match count {
            Some(count) if count <= i64::from(self.limits.multibulk_len_max) => count,
            _ => return Err(ProtocolError::InvalidCount),
        };
        if count > i64::from(self.args_max()) {
            return Err(ProtocolError::UnauthenticatedCount);
        }
        if count <= 0 {
            self.searched = 0;
            return Ok(Some(Request::Empty { bytes: at }));
        }
        self.parse_args(buf, at, count as u32, args)
    }

    /// Goes on with a request of which a part has been parsed.
    fn resume(&mut self, buf: &[u8], args: &mut Vec<Range<u32>>) -> Result<Option<Request>, ProtocolError> {
        let start = self.at;
        // The limit may have been lowered since.
        let room = self.limits.request_bytes_max as usize;
        if start > room {
            return Err(ProtocolError::RequestTooLarge);
        }
        debug_assert!(start <= buf.len(), "bytes that were parsed are there again");
        if let Some(len) = self.bulk_len {
            let end = start + len as usize;
            if end + 2 > room {
                return Err(ProtocolError::RequestTooLarge);
            }
            if end + 2 > buf.len() {
                return Ok(self.wait(end + 2 - buf.len()));
            }
            self.bulk_len = None;
            *args = mem::take(&mut self.found);
            args.push(start as u32..end as u32);
            let left = mem::take(&mut self.args_left) - 1;
            return self.parse_args(buf, end + 2, left, args);
        }
        *args = mem::take(&mut self.found);
        let left = mem::take(&mut self.args_left);
        self.parse_args(buf, start, left, args)
    }

    /// Parses `left` arguments, of which the first begins at `at`.
    #[inline]
    fn parse_args(
        &mut self,
        buf: &[u8],
        mut at: usize,
        mut left: u32,
        args: &mut Vec<Range<u32>>,
    ) -> Result<Option<Request>, ProtocolError> {
        let bulk_bytes_max = self.bulk_bytes_max();
        while left > 0 {
            let (len, start) = match short_number(buf, at + 1) {
                Some((len, start)) if buf[at] == b'$' && u64::from(len) <= bulk_bytes_max => (len, start),
                _ => match self.unusual_length(buf, at)? {
                    Some(found) => found,
                    None => {
                        self.park(at, left, None, args);
                        return self.wait_for_line(buf);
                    }
                },
            };
            let end = start + len as usize;
            if end + 2 > buf.len() {
                if end + 2 > self.limits.request_bytes_max as usize {
                    return Err(ProtocolError::RequestTooLarge);
                }
                self.park(start, left, Some(len), args);
                return Ok(self.wait(end + 2 - buf.len()));
            }
            args.push(start as u32..end as u32);
            at = end + 2;
            left -= 1;
        }
        self.searched = 0;
        Ok(Some(Request::Ranges { bytes: at }))
    }

    /// Returns the length of the argument whose line begins at `at`, and the offset behind the line; `None` if the line
    /// has not arrived whole.
    #[cold]
    fn unusual_length(&mut self, buf: &[u8], at: usize) -> Result<Option<(u32, usize)>, ProtocolError> {
        let (len, start) = match self.line(buf, at) {
            Line::Whole(len, start) => (len, start),
            Line::Incomplete => return Ok(None),
            Line::TooLong => return Err(ProtocolError::LengthLineTooLong),
        };
        if buf[at] != b'$' {
            return Err(ProtocolError::ExpectedDollar(buf[at]));
        }
        let len = match len.and_then(|len| u64::try_from(len).ok()) {
            Some(len) if len <= self.limits.bulk_bytes_max => len,
            _ => return Err(ProtocolError::InvalidLength),
        };
        if len > self.bulk_bytes_max() {
            return Err(ProtocolError::UnauthenticatedLength);
        }
        match u32::try_from(len) {
            Ok(len) => Ok(Some((len, start))),
            Err(_) => Err(ProtocolError::RequestTooLarge),
        }
    }

    /// Reads the line at `at`.
    fn line(&mut self, buf: &[u8], at: usize) -> Line {
        let window = &buf[..buf.len().min(at + self.line_bytes_max() + 1)];
        match self.find(b'\r', window, at) {
            // The byte behind the CR is a part of the line end, whatever it is.
            Some(end) if end + 1 < buf.len() => {
                let number = if end > at { &buf[at + 1..end] } else { &[] };
                Line::Whole(parse_i64(number), end + 2)
            }
            None if window.len() - at > self.line_bytes_max() => Line::TooLong,
            _ => Line::Incomplete,
        }
    }

    /// Returns the first `byte` of `window` from `at` on, which begins with bytes that have been searched already. A
    /// byte behind a NUL is never found.
    fn find(&mut self, byte: u8, window: &[u8], at: usize) -> Option<usize> {
        let from = self.searched.max(at).min(window.len());
        match memchr2(byte, 0, &window[from..]) {
            Some(found) => {
                self.searched = from + found;
                (window[self.searched] == byte).then_some(self.searched)
            }
            None => {
                self.searched = window.len();
                None
            }
        }
    }

    /// Parses a request that does not begin with `*`.
    #[cold]
    fn next_inline(&mut self, buf: &[u8], args: &mut Vec<Range<u32>>) -> Result<Option<Request>, ProtocolError> {
        let window = &buf[..buf.len().min(self.line_bytes_max() + 1)];
        let Some(end) = self.find(b'\n', window, 0) else {
            if window.len() > self.line_bytes_max() {
                return Err(ProtocolError::InlineTooLong);
            }
            return self.wait_for_line(buf);
        };
        self.searched = 0;
        let bytes = end + 1;
        let line = buf[..end].strip_suffix(b"\r").unwrap_or(&buf[..end]);
        if inline::has_quotes(line) {
            // A line with a quote has a word, or is refused.
            let args = Box::new(inline::split(line)?);
            return Ok(Some(Request::Owned { bytes, args }));
        }
        inline::split_plain(line, 0, args);
        Ok(Some(if args.is_empty() { Request::Empty { bytes } } else { Request::Ranges { bytes } }))
    }

    /// Keeps the position in an incomplete request, and the arguments found of it.
    fn park(&mut self, at: usize, left: u32, bulk_len: Option<u32>, args: &mut Vec<Range<u32>>) {
        self.at = at;
        self.args_left = left;
        self.bulk_len = bulk_len;
        self.found = mem::take(args);
    }

    #[inline]
    fn wait(&mut self, needed: usize) -> Option<Request> {
        self.needed = needed;
        None
    }

    /// Waits for the rest of a line, unless there is no room for it.
    fn wait_for_line(&mut self, buf: &[u8]) -> Result<Option<Request>, ProtocolError> {
        if buf.len() >= self.limits.request_bytes_max as usize {
            return Err(ProtocolError::RequestTooLarge);
        }
        Ok(self.wait(1))
    }

    fn line_bytes_max(&self) -> usize {
        self.limits.inline_bytes_max as usize
    }

    #[inline]
    fn args_max(&self) -> u32 {
        if self.limits.authenticated {
            self.limits.multibulk_len_max
        } else {
            self.limits.multibulk_len_max.min(UNAUTHENTICATED_ARGS_MAX)
        }
    }

    #[inline]
    fn bulk_bytes_max(&self) -> u64 {
        if self.limits.authenticated {
            self.limits.bulk_bytes_max
        } else {
            let unauthenticated = u64::from(UNAUTHENTICATED_BULK_BYTES_MAX);
            self.limits.bulk_bytes_max.min(unauthenticated)
        }
    }
}

/// Returns the number at `at` and the offset behind its line, if it is of the usual kind and has arrived whole: a few
/// digits, no leading zero, a line end. `unusual_length` and `next_unusual` read the others.
#[inline]
fn short_number(buf: &[u8], at: usize) -> Option<(u32, usize)> {
    let first = *buf.get(at)?;
    let mut value = u32::from(first.wrapping_sub(b'0'));
    if value > 9 {
        return None;
    }
    let mut end = at + 1;
    loop {
        let byte = *buf.get(end)?;
        let digit = u32::from(byte.wrapping_sub(b'0'));
        if digit > 9 {
            let whole = byte == b'\r' && end + 1 < buf.len();
            let canonical = first != b'0' || end == at + 1;
            return (whole && canonical).then_some((value, end + 2));
        }
        if end - at == SHORT_DIGITS_MAX {
            return None;
        }
        value = value * 10 + digit;
        end += 1;
    }
}
