//! The record that a reply depends on, where the reply comes later than its record.

use haypile_log::Index;

/// The newest record that a reply depends on, and the version of the store whose record it is: by the time of the reply
/// the store may be another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreGate {
    pub index: Index,
    pub version: u64,
}
