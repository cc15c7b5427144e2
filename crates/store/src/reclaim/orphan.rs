//! Objects without an owner.

use crate::row::{ObjectId, Slot, Space, home_slot, object_of, space_of};

/// The size from which an object is worth a compaction of its own range.
pub(crate) const BIG_OBJECT_BYTES: u64 = 32 << 20;

/// An object without an owner, and where its rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Orphan {
    pub space: Space,
    pub slot: Slot,
    pub id: ObjectId,
}

impl Orphan {
    /// Returns the object that a row belongs to.
    pub fn of(row: &[u8]) -> Option<Orphan> {
        Some(Orphan { space: space_of(row)?, slot: home_slot(row)?, id: object_of(row)? })
    }
}
