//! A call of MIGRATE, its arguments parsed: what the table says that the engine carries out.

use std::ops::Range;
use std::time::Duration;

/// The request that a call of MIGRATE makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration<'a> {
    pub host: &'a [u8],
    pub port: u16,
    /// The target's database; the target says whether it has one of this number.
    pub database: i64,
    /// The longest wait for the connection, for each reply, and for each piece that is sent.
    pub timeout: Duration,
    /// The keys stay here, too.
    pub copy: bool,
    /// Keys that the target has are overwritten.
    pub replace: bool,
    /// The words behind AUTH: a password, or a user and its password.
    pub login: Option<Vec<&'a [u8]>>,
    /// The arguments that name the keys.
    pub keys: Range<usize>,
}
