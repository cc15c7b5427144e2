//! The elements of a reply, one function each, for replies that are written piece by piece ([`crate::Pieces`]) and for
//! [`crate::Reply::encode`].
//!
//! Each function appends to `out` and never looks at what is there already. Where RESP2 lacks a type, the function
//! takes the protocol and writes what Redis 7.2 writes instead.

use crate::number::{write_double, write_i64, write_u64};
use crate::{Bytes, Protocol};

/// The length line of an aggregate or a bulk string has at most this many bytes: the type, 20 digits, CRLF.
const LENGTH_LINE_BYTES_MAX: usize = 23;

/// Returns the bytes of the length line of an array, or of a bulk string, of this length.
#[inline]
pub fn length_bytes(len: usize) -> usize {
    3 + len.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Returns the bytes of a bulk string of this length.
#[inline]
pub fn bulk_bytes(len: usize) -> usize {
    length_bytes(len) + len + 2
}

/// `*n`: `len` elements follow.
#[inline]
pub fn array_len(out: &mut Vec<u8>, len: usize) {
    length_line(out, b'*', len);
}

/// `%n`: `len` pairs follow; in RESP2 an array of twice as many elements.
#[inline]
pub fn map_len(protocol: Protocol, out: &mut Vec<u8>, len: usize) {
    match protocol {
        Protocol::Resp2 => length_line(out, b'*', len * 2),
        Protocol::Resp3 => length_line(out, b'%', len),
    }
}

/// `%n`: `len` keys follow, each with its value, behind `keyed_pair`; in RESP2 an array.
#[inline]
pub fn keyed_len(protocol: Protocol, out: &mut Vec<u8>, len: usize) {
    match protocol {
        Protocol::Resp2 => length_line(out, b'*', len),
        Protocol::Resp3 => length_line(out, b'%', len),
    }
}

/// The header of each pair behind `keyed_len`: in RESP2 a pair is an array.
#[inline]
pub fn keyed_pair(protocol: Protocol, out: &mut Vec<u8>) {
    if protocol == Protocol::Resp2 {
        length_line(out, b'*', 2);
    }
}

/// `~n`: `len` elements follow, all different; in RESP2 an array.
#[inline]
pub fn set_len(protocol: Protocol, out: &mut Vec<u8>, len: usize) {
    match protocol {
        Protocol::Resp2 => length_line(out, b'*', len),
        Protocol::Resp3 => length_line(out, b'~', len),
    }
}

/// `>n`: a message out of turn with `len` elements; in RESP2 an array.
#[inline]
pub fn push_len(protocol: Protocol, out: &mut Vec<u8>, len: usize) {
    match protocol {
        Protocol::Resp2 => length_line(out, b'*', len),
        Protocol::Resp3 => length_line(out, b'>', len),
    }
}

/// `|n`: `len` pairs of attributes follow, then their subject. RESP2 has no attributes: do not call this there.
#[inline]
pub fn attribute_len(out: &mut Vec<u8>, len: usize) {
    length_line(out, b'|', len);
}

/// `$n` and the bytes.
#[inline]
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(LENGTH_LINE_BYTES_MAX + bytes.len() + 2);
    bulk_len(out, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// `$n`: `len` bytes and a CRLF follow, written by the caller.
#[inline]
pub fn bulk_len(out: &mut Vec<u8>, len: usize) {
    length_line(out, b'$', len);
}

/// `:n`.
#[inline]
pub fn integer(out: &mut Vec<u8>, value: i64) {
    out.push(b':');
    write_i64(out, value);
    out.extend_from_slice(b"\r\n");
}

/// `,x`; in RESP2 a bulk string.
pub fn double(protocol: Protocol, out: &mut Vec<u8>, value: f64) {
    match protocol {
        Protocol::Resp2 => {
            let mut text = Vec::with_capacity(24);
            write_double(&mut text, value);
            bulk(out, &text);
        }
        Protocol::Resp3 => {
            out.push(b',');
            write_double(out, value);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// `,n` of a number that is written already; in RESP2 a bulk string.
pub fn decimal(protocol: Protocol, out: &mut Vec<u8>, digits: &str) {
    match protocol {
        Protocol::Resp2 => bulk(out, digits.as_bytes()),
        Protocol::Resp3 => line(out, b',', digits.as_bytes()),
    }
}

/// `(n`: an integer of any size, in decimal; in RESP2 a bulk string.
pub fn big_number(protocol: Protocol, out: &mut Vec<u8>, digits: &str) {
    match protocol {
        Protocol::Resp2 => bulk(out, digits.as_bytes()),
        Protocol::Resp3 => line(out, b'(', digits.as_bytes()),
    }
}

/// `#t` or `#f`; in RESP2 1 or 0.
pub fn boolean(protocol: Protocol, out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(match (protocol, value) {
        (Protocol::Resp2, true) => b":1\r\n",
        (Protocol::Resp2, false) => b":0\r\n",
        (Protocol::Resp3, true) => b"#t\r\n",
        (Protocol::Resp3, false) => b"#f\r\n",
    });
}

/// `_`; in RESP2 the null bulk string.
#[inline]
pub fn null(protocol: Protocol, out: &mut Vec<u8>) {
    match protocol {
        Protocol::Resp2 => out.extend_from_slice(b"$-1\r\n"),
        Protocol::Resp3 => out.extend_from_slice(b"_\r\n"),
    }
}

/// `_`; in RESP2 the null array.
pub fn null_array(protocol: Protocol, out: &mut Vec<u8>) {
    match protocol {
        Protocol::Resp2 => out.extend_from_slice(b"*-1\r\n"),
        Protocol::Resp3 => out.extend_from_slice(b"_\r\n"),
    }
}

/// `=n` with a kind of three letters ("txt", "mkd"); in RESP2 a bulk string without the kind.
pub fn verbatim(protocol: Protocol, out: &mut Vec<u8>, kind: &str, bytes: &Bytes) {
    match protocol {
        Protocol::Resp2 => bulk(out, bytes),
        Protocol::Resp3 => {
            debug_assert_eq!(kind.len(), 3, "the kind of a verbatim string has three letters");
            length_line(out, b'=', bytes.len() + kind.len() + 1);
            out.extend_from_slice(kind.as_bytes());
            out.push(b':');
            out.extend_from_slice(bytes);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// `+text`. Line ends in it become spaces.
#[inline]
pub fn status(out: &mut Vec<u8>, text: &[u8]) {
    line(out, b'+', text);
}

/// `-text`, the code first. Line ends at its end are dropped, those within become spaces, as in Redis.
pub fn error(out: &mut Vec<u8>, text: &[u8]) {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
    line(out, b'-', &text[..end]);
}

/// A type, a text that must not contain line ends, a line end.
#[inline]
fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.reserve(text.len() + 3);
    out.push(kind);
    let start = out.len();
    out.extend_from_slice(text);
    // Text from a client may have got into it; a line end there would let the client forge further replies.
    if memchr::memchr2(b'\r', b'\n', text).is_some() {
        for byte in &mut out[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
    }
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn length_line(out: &mut Vec<u8>, kind: u8, len: usize) {
    out.push(kind);
    write_u64(out, len as u64);
    out.extend_from_slice(b"\r\n");
}
