//! Replies as a client reads them.
//!
//! Owns the way back from bytes to [`Reply`], for clients, tests and tools; the server itself only encodes. All types
//! of RESP2 and RESP3 are read but the streamed ones (`$?`, `*?`), which Redis never sends.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use memchr::memchr;

use crate::Reply;
use crate::number::parse_i64;

/// How deep aggregates may be nested. Redis nests a handful; without a bound the bytes of a peer would decide how deep
/// the stack gets when a reply is dropped or compared.
pub const NESTING_MAX: usize = 128;

/// How many elements are made room for before they have arrived.
const ELEMENTS_AHEAD_MAX: usize = 64;

/// Bytes that are no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// No type begins with this byte.
    UnknownType(u8),
    /// The text of this type is not of its form.
    Malformed(u8),
    /// A reply has more than [`NESTING_MAX`] aggregates inside each other.
    TooDeep,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::UnknownType(byte) => {
                write!(f, "no reply begins with '{}'", byte.escape_ascii())
            }
            DecodeError::Malformed(byte) => write!(f, "malformed reply of type '{}'", *byte as char),
            DecodeError::TooDeep => write!(f, "more than {NESTING_MAX} nested aggregates"),
        }
    }
}

impl Error for DecodeError {}

/// The decoder of one connection. The elements of an incomplete reply are kept, so that their bytes can go.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The aggregates that are open, the outermost first.
    open: Vec<Aggregate>,
    /// Bytes of the input that have been searched for the end of its first line.
    searched: usize,
}

#[derive(Debug)]
struct Aggregate {
    kind: u8,
    /// How many elements are still missing. At least 1, but for the moment in which the aggregate is closed.
    missing: u64,
    elements: Vec<Reply>,
}

/// One element of the input.
enum Element {
    Whole(Reply),
    Opens(Aggregate),
}

impl Decoder {
    /// Returns a decoder at the start of a connection.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Decodes up to the end of the next reply. Returns how many bytes of `input` were taken, and the reply if it is
    /// complete; if not, call again with the bytes that were not taken and more behind them.
    ///
    /// # Errors
    /// The input is no reply; the connection is of no more use.
    pub fn next(&mut self, input: &[u8]) -> Result<(usize, Option<Reply>), DecodeError> {
        let mut taken = 0;
        while let Some((element, bytes)) = self.element(&input[taken..])? {
            taken += bytes;
            let reply = match element {
                Element::Whole(reply) => self.close_with(reply)?,
                Element::Opens(aggregate) if aggregate.missing == 0 => self.close_with(aggregate.reply()?)?,
                Element::Opens(aggregate) => {
                    if self.open.len() == NESTING_MAX {
                        return Err(DecodeError::TooDeep);
                    }
                    self.open.push(aggregate);
                    None
                }
            };
            if reply.is_some() {
                return Ok((taken, reply));
            }
        }
        Ok((taken, None))
    }

    /// Adds `reply` to the innermost open aggregate and closes every aggregate that is complete then; returns the
    /// outermost.
    fn close_with(&mut self, mut reply: Reply) -> Result<Option<Reply>, DecodeError> {
        while let Some(mut aggregate) = self.open.pop() {
            aggregate.elements.push(reply);
            aggregate.missing -= 1;
            if aggregate.missing > 0 {
                self.open.push(aggregate);
                return Ok(None);
            }
            reply = aggregate.reply()?;
        }
        Ok(Some(reply))
    }

    /// Returns the element at the start of `input` and its size, if it has arrived whole.
    fn element(&mut self, input: &[u8]) -> Result<Option<(Element, usize)>, DecodeError> {
        let searched = self.searched.min(input.len());
        let Some(end) = memchr(b'\n', &input[searched..]).map(|found| searched + found) else {
            self.searched = input.len();
            return Ok(None);
        };
        self.searched = end;
        let bytes = end + 1;
        let kind = input[0];
        let malformed = || DecodeError::Malformed(kind);
        let text = match &input[..end] {
            [_, text @ .., b'\r'] => text,
            _ => return Err(malformed()),
        };
        let whole = |reply| Ok(Some((Element::Whole(reply), bytes)));
        let result = match kind {
            b'+' => whole(Reply::Status(String::from_utf8_lossy(text).into_owned())),
            b'-' => whole(Reply::error_bytes(text.to_vec())),
            b':' => whole(Reply::Integer(parse_i64(text).ok_or_else(malformed)?)),
            b',' => whole(Reply::Double(double(text).ok_or_else(malformed)?)),
            b'(' => whole(Reply::BigNumber(big_number(text).ok_or_else(malformed)?)),
            b'#' => whole(Reply::Boolean(match text {
                b"t" => true,
                b"f" => false,
                _ => return Err(malformed()),
            })),
            b'_' if text.is_empty() => whole(Reply::Null),
            b'$' | b'*' if text == b"-1" => whole(match kind {
                b'$' => Reply::Null,
                _ => Reply::NullArray,
            }),
            b'$' | b'!' | b'=' => {
                let len = parse_i64(text).and_then(|len| u32::try_from(len).ok()).ok_or_else(malformed)? as usize;
                let Some(content) = input.get(bytes..bytes + len + 2) else {
                    return Ok(None);
                };
                let content = content.strip_suffix(b"\r\n").ok_or_else(malformed)?;
                let reply = match kind {
                    b'$' => Reply::bulk(content.to_vec()),
                    b'!' => Reply::error_bytes(content.to_vec()),
                    _ => verbatim(content).ok_or_else(malformed)?,
                };
                Ok(Some((Element::Whole(reply), bytes + len + 2)))
            }
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let len = parse_i64(text).and_then(|len| u32::try_from(len).ok()).ok_or_else(malformed)?;
                let missing = match kind {
                    b'%' => u64::from(len) * 2,
                    b'|' => u64::from(len) * 2 + 1,
                    _ => u64::from(len),
                };
                let ahead = missing.min(ELEMENTS_AHEAD_MAX as u64) as usize;
                let elements = Vec::with_capacity(ahead);
                let aggregate = Aggregate { kind, missing, elements };
                Ok(Some((Element::Opens(aggregate), bytes)))
            }
            b'_' => Err(malformed()),
            _ => Err(DecodeError::UnknownType(kind)),
        };
        self.searched = 0;
        result
    }
}

impl Aggregate {
    fn reply(self) -> Result<Reply, DecodeError> {
        let mut elements = self.elements;
        Ok(match self.kind {
            b'*' => Reply::Array(elements),
            b'~' => Reply::Set(elements),
            b'>' => Reply::Push(elements),
            b'%' => Reply::Map(pairs(elements)),
            _ => {
                let reply = elements.pop().ok_or(DecodeError::Malformed(self.kind))?;
                Reply::Attribute(pairs(elements), Box::new(reply))
            }
        })
    }
}

/// Decodes one reply at the start of `input`; returns it with its size, or `None` if it is not complete.
///
/// # Errors
/// The input is no reply.
pub fn decode(input: &[u8]) -> Result<Option<(Reply, usize)>, DecodeError> {
    let (taken, reply) = Decoder::new().next(input)?;
    Ok(reply.map(|reply| (reply, taken)))
}

/// Returns keys and values in turn as pairs.
fn pairs(elements: Vec<Reply>) -> Vec<(Reply, Reply)> {
    let mut pairs = Vec::with_capacity(elements.len() / 2);
    let mut elements = elements.into_iter();
    while let (Some(key), Some(value)) = (elements.next(), elements.next()) {
        pairs.push((key, value));
    }
    pairs
}

fn double(text: &[u8]) -> Option<f64> {
    match text {
        b"nan" | b"-nan" => Some(f64::NAN),
        b"inf" => Some(f64::INFINITY),
        b"-inf" => Some(f64::NEG_INFINITY),
        // std also reads "infinity" and the like, which RESP does not.
        [.., b'0'..=b'9' | b'.'] => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

fn big_number(text: &[u8]) -> Option<String> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| String::from_utf8_lossy(text).into_owned())
}

/// A verbatim string of one of the two kinds that the protocol knows.
fn verbatim(content: &[u8]) -> Option<Reply> {
    let (kind, text) = content.split_at_checked(4)?;
    let kind = match kind {
        b"txt:" => "txt",
        b"mkd:" => "mkd",
        _ => return None,
    };
    Some(Reply::Verbatim(kind, text.to_vec().into()))
}

/// Returns the text of an error reply as UTF-8, in whichever form it came.
pub fn error_text(reply: &Reply) -> Option<Cow<'_, str>> {
    match reply {
        Reply::Error(text) => Some(Cow::Borrowed(text)),
        Reply::ErrorBytes(text) => Some(String::from_utf8_lossy(text)),
        _ => None,
    }
}
