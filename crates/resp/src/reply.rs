//! Replies of commands, before the protocol is known.
//!
//! A [`Reply`] is made by a handler and encoded when its connection's turn comes. Handlers choose the richest type
//! (a map, a double); the downgrade to RESP2 is made here and in [`crate::write`], nowhere else.

use std::borrow::Cow;
use std::fmt;

use crate::{Bytes, Elements, Pieces, Protocol, Records, Scored, write};

/// A reply.
pub enum Reply {
    /// A constant status, as `OK`.
    Simple(&'static str),
    /// A status made at run time.
    Status(String),
    /// An error: the code (`ERR`, `WRONGTYPE`) and the text, without the leading `-`.
    Error(Cow<'static, str>),
    /// An error that quotes bytes of a client, which need not be UTF-8.
    ErrorBytes(Vec<u8>),
    Integer(i64),
    /// A double; in RESP2 a bulk string.
    Double(f64),
    /// A number in decimal, with more digits than a double keeps. A double in RESP3, in RESP2 a bulk string.
    Decimal(String),
    /// A decimal integer of any size. In RESP2 a bulk string.
    BigNumber(String),
    /// A boolean; in RESP2 the integers 1 and 0.
    Boolean(bool),
    /// No value: `$-1` in RESP2.
    Null,
    /// No list: `*-1` in RESP2, the same as [`Reply::Null`] in RESP3.
    NullArray,
    Bulk(Bytes),
    /// A text for people, with its kind of three letters ("txt", "mkd"). In RESP2 a bulk string.
    Verbatim(&'static str, Bytes),
    Array(Vec<Reply>),
    /// Pairs, in the order in which they are sent. In RESP2 an array of keys and values in turn.
    Map(Vec<(Reply, Reply)>),
    /// A map of several keys to their values. In RESP2 an array with an array of two for each.
    Keyed(Vec<(Reply, Reply)>),
    /// A set; in RESP2 an array.
    Set(Vec<Reply>),
    /// An array, a set or a map of bulk strings, encoded while they were collected.
    Elements(Elements),
    /// Members with scores, encoded while they were collected.
    Scored(Box<Scored>),
    /// An array of arrays, encoded while it was collected.
    Records(Records),
    /// A message out of turn. In RESP2 an array.
    Push(Vec<Reply>),
    /// Attributes of the reply that follows. Left out in RESP2.
    Attribute(Vec<(Reply, Reply)>, Box<Reply>),
    /// A reply too long to be held at once. Only [`crate::ReplyPieces`] can write it.
    Stream(Box<dyn Pieces>),
    /// Several replies, one behind the other: SUBSCRIBE answers for each of its channels. In an array they have the
    /// place of one element all the same, as in Redis.
    Several(Vec<Reply>),
    /// Bytes that are encoded already, for the protocol in question.
    Raw(Bytes),
    /// No reply is sent.
    None,
}

impl Reply {
    /// Returns `+OK`.
    #[inline]
    pub fn ok() -> Reply {
        Reply::Simple("OK")
    }

    /// Returns a bulk string.
    #[inline]
    pub fn bulk(bytes: impl Into<Bytes>) -> Reply {
        Reply::Bulk(bytes.into())
    }

    /// Returns an error from its code and text, without the leading `-`.
    pub fn error(text: impl Into<Cow<'static, str>>) -> Reply {
        Reply::Error(text.into())
    }

    /// Returns an error whose text quotes bytes of a client. Line ends are made harmless when the error is encoded.
    pub fn error_bytes(text: Vec<u8>) -> Reply {
        match String::from_utf8(text) {
            Ok(text) => Reply::Error(Cow::Owned(text)),
            Err(text) => Reply::ErrorBytes(text.into_bytes()),
        }
    }

    /// Returns an array.
    pub fn array(elements: impl IntoIterator<Item = Reply>) -> Reply {
        Reply::Array(elements.into_iter().collect())
    }

    /// Tells whether the reply consists of messages out of turn.
    pub fn is_push(&self) -> bool {
        match self {
            Reply::Push(_) => true,
            Reply::Several(replies) => replies.iter().all(Reply::is_push),
            _ => false,
        }
    }

    #[inline]
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_) | Reply::ErrorBytes(_))
    }

    /// Tells whether a [`Reply::Stream`] is in the reply, which must then be written by [`Reply::into_pieces`].
    pub fn has_stream(&self) -> bool {
        match self {
            Reply::Stream(_) => true,
            Reply::Array(elements) | Reply::Set(elements) | Reply::Push(elements) | Reply::Several(elements) => {
                elements.iter().any(Reply::has_stream)
            }
            Reply::Map(pairs) | Reply::Keyed(pairs) => pairs.iter().any(|(k, v)| k.has_stream() || v.has_stream()),
            Reply::Attribute(pairs, reply) => {
                reply.has_stream() || pairs.iter().any(|(k, v)| k.has_stream() || v.has_stream())
            }
            _ => false,
        }
    }

    /// Appends the reply in the given protocol.
    ///
    /// # Panics
    /// If a [`Reply::Stream`] is in it: ask [`Reply::has_stream`], and write such a reply by [`Reply::into_pieces`].
    pub fn encode(&self, protocol: Protocol, out: &mut Vec<u8>) {
        match self {
            Reply::Bulk(bytes) => write::bulk(out, bytes),
            Reply::Simple(text) => {
                out.push(b'+');
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Reply::Integer(value) => write::integer(out, *value),
            Reply::Null => write::null(protocol, out),
            Reply::Status(text) => write::status(out, text.as_bytes()),
            Reply::Error(text) => write::error(out, text.as_bytes()),
            Reply::ErrorBytes(text) => write::error(out, text),
            Reply::Double(value) => write::double(protocol, out, *value),
            Reply::Decimal(digits) => write::decimal(protocol, out, digits),
            Reply::BigNumber(digits) => write::big_number(protocol, out, digits),
            Reply::Boolean(value) => write::boolean(protocol, out, *value),
            Reply::NullArray => write::null_array(protocol, out),
            Reply::Verbatim(kind, bytes) => write::verbatim(protocol, out, kind, bytes),
            Reply::Array(elements) => {
                write::array_len(out, elements.len());
                encode_all(elements, protocol, out);
            }
            Reply::Map(pairs) => {
                write::map_len(protocol, out, pairs.len());
                encode_pairs(pairs, protocol, out);
            }
            Reply::Keyed(pairs) => {
                write::keyed_len(protocol, out, pairs.len());
                for (key, value) in pairs {
                    write::keyed_pair(protocol, out);
                    key.encode(protocol, out);
                    value.encode(protocol, out);
                }
            }
            Reply::Set(elements) => {
                write::set_len(protocol, out, elements.len());
                encode_all(elements, protocol, out);
            }
            Reply::Elements(elements) => elements.encode(protocol, out),
            Reply::Scored(scored) => scored.encode(protocol, out),
            Reply::Records(records) => records.encode(protocol, out),
            Reply::Push(elements) => {
                write::push_len(protocol, out, elements.len());
                encode_all(elements, protocol, out);
            }
            Reply::Attribute(pairs, reply) => {
                if protocol == Protocol::Resp3 {
                    write::attribute_len(out, pairs.len());
                    encode_pairs(pairs, protocol, out);
                }
                reply.encode(protocol, out);
            }
            Reply::Several(replies) => encode_all(replies, protocol, out),
            Reply::Raw(bytes) => out.extend_from_slice(bytes),
            Reply::None => {}
            Reply::Stream(_) => panic!("a stream is written piece by piece, by Reply::into_pieces"),
        }
    }
}

fn encode_all(elements: &[Reply], protocol: Protocol, out: &mut Vec<u8>) {
    for element in elements {
        element.encode(protocol, out);
    }
}

fn encode_pairs(pairs: &[(Reply, Reply)], protocol: Protocol, out: &mut Vec<u8>) {
    for (key, value) in pairs {
        key.encode(protocol, out);
        value.encode(protocol, out);
    }
}

/// Compares as a RESP3 client sees the replies, but for [`Reply::Null`] and [`Reply::NullArray`], which differ; a NaN
/// equals a NaN; a stream equals nothing.
impl PartialEq for Reply {
    fn eq(&self, other: &Reply) -> bool {
        fn status(reply: &Reply) -> Option<&str> {
            match reply {
                Reply::Simple(text) => Some(text),
                Reply::Status(text) => Some(text),
                _ => None,
            }
        }
        match (self, other) {
            (Reply::Simple(_) | Reply::Status(_), _) => status(self) == status(other),
            (Reply::Error(a), Reply::Error(b)) => a == b,
            (Reply::ErrorBytes(a), Reply::ErrorBytes(b)) => a == b,
            (Reply::Integer(a), Reply::Integer(b)) => a == b,
            (Reply::Decimal(a), Reply::Decimal(b)) => a == b,
            (Reply::Double(a), Reply::Double(b)) => a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
            (Reply::BigNumber(a), Reply::BigNumber(b)) => a == b,
            (Reply::Boolean(a), Reply::Boolean(b)) => a == b,
            (Reply::Null, Reply::Null) | (Reply::NullArray, Reply::NullArray) | (Reply::None, Reply::None) => true,
            (Reply::Bulk(a), Reply::Bulk(b)) | (Reply::Raw(a), Reply::Raw(b)) => a == b,
            (Reply::Verbatim(a, b), Reply::Verbatim(c, d)) => a == c && b == d,
            (Reply::Array(a), Reply::Array(b))
            | (Reply::Set(a), Reply::Set(b))
            | (Reply::Push(a), Reply::Push(b))
            | (Reply::Several(a), Reply::Several(b)) => a == b,
            (Reply::Map(a), Reply::Map(b)) | (Reply::Keyed(a), Reply::Keyed(b)) => a == b,
            (Reply::Elements(elements), other) | (other, Reply::Elements(elements)) if !other.has_stream() => {
                let (mut ours, mut theirs) = (Vec::new(), Vec::new());
                elements.encode(Protocol::Resp3, &mut ours);
                other.encode(Protocol::Resp3, &mut theirs);
                ours == theirs
            }
            (Reply::Attribute(a, b), Reply::Attribute(c, d)) => a == c && b == d,
            _ => false,
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn pairs(f: &mut fmt::Formatter<'_>, pairs: &[(Reply, Reply)]) -> fmt::Result {
            f.debug_map().entries(pairs.iter().map(|(k, v)| (k, v))).finish()
        }
        match self {
            Reply::Simple(text) => write!(f, "+{text}"),
            Reply::Status(text) => write!(f, "+{text}"),
            Reply::Error(text) => write!(f, "-{text}"),
            Reply::ErrorBytes(text) => write!(f, "-{}", text.escape_ascii()),
            Reply::Integer(value) => write!(f, ":{value}"),
            Reply::Double(value) => write!(f, ",{value:?}"),
            Reply::Decimal(digits) => write!(f, ",{digits}"),
            Reply::BigNumber(digits) => write!(f, "({digits}"),
            Reply::Boolean(value) => write!(f, "#{value}"),
            Reply::Null => f.write_str("null"),
            Reply::NullArray => f.write_str("null array"),
            Reply::Bulk(bytes) => bytes.fmt(f),
            Reply::Verbatim(kind, bytes) => write!(f, "{kind}:{bytes:?}"),
            Reply::Array(elements) => elements.fmt(f),
            Reply::Map(entries) | Reply::Keyed(entries) => pairs(f, entries),
            Reply::Set(elements) => {
                f.write_str("~")?;
                elements.fmt(f)
            }
            Reply::Elements(elements) => elements.fmt(f),
            Reply::Scored(scored) => scored.fmt(f),
            Reply::Records(records) => records.fmt(f),
            Reply::Push(elements) => {
                f.write_str(">")?;
                elements.fmt(f)
            }
            Reply::Several(replies) => {
                f.write_str("several ")?;
                replies.fmt(f)
            }
            Reply::Attribute(entries, reply) => {
                f.write_str("|")?;
                pairs(f, entries)?;
                reply.fmt(f)
            }
            Reply::Stream(_) => f.write_str("stream"),
            Reply::Raw(bytes) => write!(f, "raw {bytes:?}"),
            Reply::None => f.write_str("none"),
        }
    }
}
