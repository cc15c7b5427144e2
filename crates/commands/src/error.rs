//! Why a command failed, and the one place that knows what the client reads then.
//!
//! Owns the texts, which equal those of Redis 7.2. Never formats anything else. An error that is the client's business
//! has a variant named after its cause; [`Error::Stop`] is the engine's business first, which may run the command
//! again.

use haypile_resp::Reply;
use haypile_store::{Refusal, Stop};
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
    /// An argument is no integer of 32 bits, where Redis reads an `int`.
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
        Stop::Refused(why) => Reply::error(refusal(&why)),
        Stop::Failed(why) => Reply::error(format!("ERR {why}")),
    }
}

/// Returns the error of a write, or of another command, that the store refuses.
pub fn refusal(why: &Refusal) -> String {
    match why {
        Refusal::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.".to_owned(),
        Refusal::NoRoom => "OOM the command would take more memory than 'maxmemory-clients' leaves".to_owned(),
        // Nobody is left to read it: the connections are closed by then.
        Refusal::Stopping => "ERR the server is stopping".to_owned(),
        Refusal::Follows => "READONLY You can't write against a read only replica.".to_owned(),
        Refusal::NoReplicas => "NOREPLICAS Not enough good replicas to write.".to_owned(),
        Refusal::SpoolFull(why) => format!("MISCONF Haypile cannot sort or collect that much: {why}."),
        _ if why.deletions_go_on() => format!("MISCONF Haypile cannot write: {why}. Reads and deletions go on."),
        _ => format!("MISCONF Haypile cannot write: {why}. Reads go on."),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients get each refusal in these words: tools look for the codes, people read the rest.
    #[test]
    fn refusals_are_worded_with_their_codes() {
        let says = |why: Refusal, text: &str| assert_eq!(refusal(&why), text);
        let short = |free| Refusal::DiskShort { free, least: 7, unflushed: 3 };
        says(
            short(6),
            "MISCONF Haypile cannot write: the disk has 6 bytes left, less than disk-free-min. Reads and deletions go on.",
        );
        says(
            short(8),
            "MISCONF Haypile cannot write: the disk has 8 bytes left, 3 of which are for a flush, disk-free-min is 7. Reads \
             and deletions go on.",
        );
        let failed = |deletions_go_on| Refusal::FlushFailed { why: "no luck".to_owned(), deletions_go_on };
        says(failed(true), "MISCONF Haypile cannot write: no luck. Reads and deletions go on.");
        says(failed(false), "MISCONF Haypile cannot write: no luck. Reads go on.");
        says(Refusal::FlushBehind, "MISCONF Haypile cannot write: the disk is too far behind. Reads go on.");
        says(Refusal::LogFailed("it is full".to_owned()), "MISCONF Haypile cannot write: it is full. Reads go on.");
        says(
            Refusal::FilesMissing("/log/1.log was removed".to_owned()),
            "MISCONF Haypile cannot write: /log/1.log was removed. Reads go on.",
        );
        says(
            Refusal::SpoolFull("it is full".to_owned()),
            "MISCONF Haypile cannot sort or collect that much: it is full.",
        );
        says(Refusal::OutOfMemory, "OOM command not allowed when used memory > 'maxmemory'.");
        says(Refusal::NoRoom, "OOM the command would take more memory than 'maxmemory-clients' leaves");
        says(Refusal::Stopping, "ERR the server is stopping");
        says(Refusal::Follows, "READONLY You can't write against a read only replica.");
        says(Refusal::NoReplicas, "NOREPLICAS Not enough good replicas to write.");
        let failed = stop_reply(Stop::Failed("it is damaged".to_owned()));
        assert!(matches!(failed, Reply::Error(text) if text == "ERR it is damaged"));
    }
}
