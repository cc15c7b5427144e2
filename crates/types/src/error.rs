//! Why an operation on a value fails. The texts that clients see are made in the crate commands.

use haypile_store::Stop;

/// The reasons why an operation of a type fails. Nothing was written unless a variant says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The transaction cannot go on.
    Stop(Stop),
    /// The key holds a value of another type.
    WrongType,
    /// The value is not a decimal integer of 64 bits.
    NotInteger,
    /// The sum does not fit 64 bits.
    Overflow,
    /// The value is not a number.
    NotFloat,
    /// The sum is no number, or infinite.
    NotFinite,
    /// The score would be no number.
    NotANumber,
    /// The string would grow beyond the longest that is allowed.
    TooLong,
    /// More elements are asked for than a reply may hold.
    TooMany,
    /// The string is no HyperLogLog.
    NotHyperLogLog,
    /// The string begins as a HyperLogLog does, but its registers do not parse.
    CorruptHyperLogLog,
}

pub type Result<T> = std::result::Result<T, Error>;

impl From<Stop> for Error {
    fn from(stop: Stop) -> Self {
        Error::Stop(stop)
    }
}
