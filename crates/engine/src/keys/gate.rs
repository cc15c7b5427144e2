//! The record that a reply or a message depends on, where it comes later than its record.

use haypile_log::Index;

/// The newest record that a reply or a message depends on, and the version of the store whose record it is: by the time
/// at which it leaves the store may be another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreGate {
    /// 0 where nothing is depended on, whatever the version.
    pub index: Index,
    pub version: u64,
}
