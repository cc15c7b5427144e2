//! Why a command failed, and the one place that knows what the client reads then.
//!
//! Owns the texts, which equal those of Redis 7.2. Never formats anything else. An error that is the client's business
//! has a variant named after its cause; [`Error::Stop`] is the engine's business first, which may run the command
//! again.

use haypile_resp::Reply;
use haypile_store::Stop;
use std::borrow::Cow;

pub type Result<T> = std::result::Result<T, Error>;

/// Why a command failed.
#[derive(Clone, Debug)]
pub enum Error {
    /// The transaction cannot go on. The engine runs the command elsewhere ([`Stop::WouldBlock`]) or replies with the
    /// text.
    Stop(Stop),
    WrongType,
    NotInteger,
    /// Not an integer of 32 bits, where Redis reads an `int`.
    NotInt,
    NotFloat,
    /// The score would be no number.
    NotANumber,
    /// INCRBYFLOAT and its relatives would leave what can be printed.
    NotFinite,
    /// INCR and its relatives would leave the range of 64 bits.
    Overflow,
    /// The decrement cannot be negated.
    DecrementOverflow,
    Syntax,
    NoSuchKey,
    /// COPY or MOVE of a key onto itself.
    SameObject,
    OffsetOutOfRange,
    StringTooLong,
    InvalidCursor,
    DatabaseOutOfRange,
    /// A deadline that is zero, negative or too far; the command's name.
    InvalidExpire(&'static str),
    /// The full name of the command (`config|get`).
    WrongArity(String),
    /// The whole text, where only one place says it.
    Text(Cow<'static, str>),
    /// The whole text, where it quotes what the client sent.
    Quoting(Vec<u8>),
}

/// Bytes as Redis quotes them: a text of C ends at its first zero.
pub(crate) fn as_text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or(bytes)
}

impl Error {
    /// An error that only one place says, with its code: `ERR ...`.
    pub fn text(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Text(text.into())
    }

    /// An error that only one place says, and that quotes what the client sent.
    pub fn quoting(before: &str, quoted: &[u8], after: &str) -> Self {
        Self::Quoting([before.as_bytes(), as_text(quoted), after.as_bytes()].concat())
    }

    /// The reply that the client reads.
    pub fn into_reply(self) -> Reply {
        Reply::Error(Cow::Borrowed(match self {
            Self::Stop(stop) => return stop_reply(stop),
            Self::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Self::NotInteger => "ERR value is not an integer or out of range",
            Self::NotInt => "ERR value is out of range, value must between -2147483648 and 2147483647",
            Self::NotFloat => "ERR value is not a valid float",
            Self::NotANumber => "ERR resulting score is not a number (NaN)",
            Self::NotFinite => "ERR increment would produce NaN or Infinity",
            Self::Overflow => "ERR increment or decrement would overflow",
            Self::DecrementOverflow => "ERR decrement would overflow",
            Self::Syntax => "ERR syntax error",
            Self::NoSuchKey => "ERR no such key",
            Self::SameObject => "ERR source and destination objects are the same",
            Self::OffsetOutOfRange => "ERR offset is out of range",
            Self::StringTooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            Self::InvalidCursor => "ERR invalid cursor",
            Self::DatabaseOutOfRange => "ERR DB index is out of range",
            Self::InvalidExpire(command) => {
                return Reply::error(format!("ERR invalid expire time in '{command}' command"));
            }
            Self::WrongArity(command) => {
                return Reply::error(format!("ERR wrong number of arguments for '{command}' command"));
            }
            Self::Text(text) => return Reply::Error(text),
            Self::Quoting(text) => return Reply::error_bytes(text),
        }))
    }
}

fn stop_reply(stop: Stop) -> Reply {
    match stop {
        // Never sent: the engine runs the command again where it may wait.
        Stop::WouldBlock | Stop::Long | Stop::NeedsLocks => Reply::error("ERR the command has to wait for others"),
        Stop::TooLarge => Reply::error("ERR the command changes more than txn-bytes-max allows"),
        Stop::Refused(text) | Stop::Failed(text) => Reply::error(text),
    }
}

impl From<Stop> for Error {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<haypile_types::Error> for Error {
    fn from(error: haypile_types::Error) -> Self {
        use haypile_types::Error as Cause;
        match error {
            Cause::Stop(stop) => Self::Stop(stop),
            Cause::WrongType => Self::WrongType,
            Cause::NotInteger => Self::NotInteger,
            Cause::NotFloat => Self::NotFloat,
            Cause::NotANumber => Self::NotANumber,
            Cause::NotFinite => Self::NotFinite,
            Cause::Overflow => Self::Overflow,
            Cause::TooLong => Self::StringTooLong,
            Cause::TooMany => Self::text("ERR the reply would be longer than 512 MB"),
            Cause::NotHyperLogLog => Self::text("WRONGTYPE Key is not a valid HyperLogLog string value."),
            Cause::CorruptHyperLogLog => Self::text("INVALIDOBJ Corrupted HLL object detected"),
        }
    }
}
