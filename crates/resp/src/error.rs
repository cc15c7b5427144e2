//! The errors that a client can make in the protocol itself, in Redis's words.
//!
//! The texts are those of Redis 7.2; clients and their tests compare them. After any of these errors the connection is
//! answered and closed, since the begin of its next request is not known.

use std::error::Error;
use std::fmt;

/// The error of a request that is none. `Display` is Redis's text without the `ERR ` before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// An inline request has more than [`crate::Limits::inline_bytes_max`] bytes and no line end among them.
    InlineTooLong,
    /// An inline request ends inside quotes, or goes on right behind a closing quote.
    UnbalancedQuotes,
    /// The line behind `*` does not end within [`crate::Limits::inline_bytes_max`] bytes.
    CountLineTooLong,
    /// The text behind `*` is no integer, or a number above [`crate::Limits::multibulk_len_max`].
    InvalidCount,
    /// A request has more than [`crate::parser::UNAUTHENTICATED_ARGS_MAX`] arguments before the client has
    /// authenticated.
    UnauthenticatedCount,
    /// The line before an argument does not end within [`crate::Limits::inline_bytes_max`] bytes.
    LengthLineTooLong,
    /// An argument begins with this byte instead of `$`.
    ExpectedDollar(u8),
    /// The text behind `$` is no integer, a negative one, or one above [`crate::Limits::bulk_bytes_max`].
    InvalidLength,
    /// An argument above [`crate::parser::UNAUTHENTICATED_BULK_BYTES_MAX`] before the client has authenticated.
    UnauthenticatedLength,
    /// The request would have more than [`crate::Limits::request_bytes_max`] bytes. Redis closes such a connection
    /// without a word (`client-query-buffer-limit`), so this text is ours.
    RequestTooLarge,
}

impl ProtocolError {
    /// Appends the error reply for this error, as Redis sends it, line end included.
    pub fn write_reply(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"-ERR ");
        if let ProtocolError::ExpectedDollar(byte) = self {
            out.extend_from_slice(b"Protocol error: expected '$', got '");
            // The byte itself, even if that makes the line invalid UTF-8; only line ends become spaces.
            out.push(if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte });
            out.push(b'\'');
        } else {
            out.extend_from_slice(self.text().as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Returns the text; for [`ProtocolError::ExpectedDollar`] without the byte that was found.
    fn text(&self) -> &'static str {
        match self {
            ProtocolError::InlineTooLong => "Protocol error: too big inline request",
            ProtocolError::UnbalancedQuotes => "Protocol error: unbalanced quotes in request",
            ProtocolError::CountLineTooLong => "Protocol error: too big mbulk count string",
            ProtocolError::InvalidCount => "Protocol error: invalid multibulk length",
            ProtocolError::UnauthenticatedCount => "Protocol error: unauthenticated multibulk length",
            ProtocolError::LengthLineTooLong => "Protocol error: too big bulk count string",
            ProtocolError::ExpectedDollar(_) => "Protocol error: expected '$'",
            ProtocolError::InvalidLength => "Protocol error: invalid bulk length",
            ProtocolError::UnauthenticatedLength => "Protocol error: unauthenticated bulk length",
            ProtocolError::RequestTooLarge => "Protocol error: too big request",
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())?;
        match self {
            ProtocolError::ExpectedDollar(byte) if byte.is_ascii_graphic() || *byte == b' ' => {
                write!(f, ", got '{}'", *byte as char)
            }
            ProtocolError::ExpectedDollar(byte) => write!(f, ", got '\\x{byte:02x}'"),
            _ => Ok(()),
        }
    }
}

impl Error for ProtocolError {}
