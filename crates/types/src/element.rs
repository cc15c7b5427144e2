//! Where the elements of a large collection lie: the fixed part of the header that names their object, and the keys of
//! rows that are found by the element. Elements lie in the order of their hashes, so that a cursor is a number,
//! collections can be merged, and a random place can be drawn. Format: docs/format/collections.md.

use crate::Result;
use crate::key::{Entry, Header, Object, damaged};
use haypile_store::row::{self, RowKey};
use haypile_store::{Key, ObjectId, Sought, Space, Store, Txn};

/// Lowers a count that a row states. Invariant: it states at least as many as go; only in damaged rows, which `haypile
/// check` finds, it does not, and in a dry run, whose rows may be of two moments.
#[inline]
pub(crate) fn lowered(txn: &Txn<'_>, count: u64, by: u64) -> u64 {
    debug_assert!(txn.is_dry_run() || count >= by, "Invariant: a row that counts {count} loses {by}");
    count.saturating_sub(by)
}

/// The part of the header that collections of all types share. The type's own part follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub object: Object,
    /// The encoding that Redis would report: the type knows the numbers.
    pub encoding: u8,
    /// Elements; of a hash, fields.
    pub count: u64,
}

impl Head {
    /// Bytes of the head: `id: u64 | slot: u16 | encoding: u8 | count: u64`.
    pub const BYTES: usize = Object::BYTES + 9;

    /// The offset of the encoding in the head.
    pub const ENCODING_AT: usize = Object::BYTES;

    /// The offset of the count in the head.
    pub const COUNT_AT: usize = Object::BYTES + 1;

    #[inline]
    pub fn encode(&self) -> [u8; Head::BYTES] {
        let mut bytes = [0; Head::BYTES];
        bytes[..Object::BYTES].copy_from_slice(&self.object.encode());
        bytes[Object::BYTES] = self.encoding;
        bytes[Head::COUNT_AT..].copy_from_slice(&self.count.to_be_bytes());
        bytes
    }

    /// Splits a key's payload into the head and the type's own part of exactly `own_bytes`.
    #[inline]
    pub fn parse(entry: &Entry, own_bytes: usize) -> Result<(Head, &[u8])> {
        let payload = entry.payload();
        match (entry.header.object, payload.len() == Head::BYTES + own_bytes) {
            (Some(object), true) => {
                let count: [u8; 8] = payload[Head::COUNT_AT..Head::BYTES].try_into().expect("eight bytes");
                let head = Head { object, encoding: payload[Object::BYTES], count: u64::from_be_bytes(count) };
                Ok((head, &payload[Head::BYTES..]))
            }
            _ => Err(damaged("the header of a collection", payload)),
        }
    }

    /// Returns the rows of the collection of a key.
    #[inline]
    pub fn rows(&self, key: &Key<'_>) -> Rows {
        Rows { space: key.space, object: self.object }
    }
}

/// The place of an object's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    pub space: Space,
    pub object: Object,
}

/// Bytes of a `data` or `score` row's key before the element: family, space, slot, id.
pub const ROW_PREFIX_BYTES: usize = 15;

/// A command that reads or writes more rows than this, or makes a longer reply than `REPLY_INLINE_BYTES_MAX`, asks for
/// the I/O pool first.
pub const ROWS_INLINE_MAX: usize = 1024;

/// A longer reply is sent piece by piece.
pub const REPLY_INLINE_BYTES_MAX: usize = 1 << 20;

/// Bytes of an element's hash.
pub const HASH_BYTES: usize = 4;

/// The hash that no element has: rows at it belong to the type.
pub const RESERVED_HASH: u32 = u32::MAX;

/// Returns the hash by which an element stands in its collection: never `RESERVED_HASH`.
#[inline]
pub fn hash(txn: &Txn<'_>, element: &[u8]) -> u32 {
    txn.element_hash(element)
}

impl Rows {
    /// Returns the key of the `data` row `prefix | hash: u32 BE | element`.
    #[inline]
    pub fn element(&self, hash: u32, element: &[u8]) -> RowKey {
        row::hashed_row(self.space, self.object.slot, self.object.id, hash, element)
    }

    /// Returns the key of a `data` row.
    #[inline]
    pub fn data(&self, element: &[u8]) -> RowKey {
        row::data_row(self.space, self.object.slot, self.object.id, element)
    }

    /// Returns the bounds of all `data` rows from a hash on, the type's reserved ones left out.
    pub fn from_hash(&self, hash: u32) -> (RowKey, RowKey) {
        (self.data(&hash.to_be_bytes()), self.data(&RESERVED_HASH.to_be_bytes()))
    }

    /// Returns the rows of the collection that a header belongs to.
    #[inline]
    pub fn of(key: &Key<'_>, header: &Header) -> Option<Rows> {
        Some(Rows { space: key.space, object: header.object? })
    }

    /// Returns where the row at a position stands.
    #[inline]
    pub fn sought_at(&self, position: u64) -> Sought {
        Sought::new(self.space, self.object.slot, self.object.id, position)
    }

    /// Returns where the row of an element stands.
    #[inline]
    pub fn sought(&self, store: &Store, element: &[u8]) -> Sought {
        const NAME_BYTES: usize = 8 - HASH_BYTES;
        let (mut name, len) = ([0; NAME_BYTES], element.len().min(NAME_BYTES));
        name[..len].copy_from_slice(&element[..len]);
        let order = u64::from(store.element_hash(element)) << 32 | u64::from(u32::from_be_bytes(name));
        self.sought_at(order)
    }

    pub fn id(&self) -> ObjectId {
        self.object.id
    }
}

/// Returns the hash and the element in a row's key that `Rows::element` made.
#[inline]
pub fn of_row(row: &[u8]) -> Option<(u32, &[u8])> {
    let (hash, element) = row.get(ROW_PREFIX_BYTES..)?.split_first_chunk::<HASH_BYTES>()?;
    Some((u32::from_be_bytes(*hash), element))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_store::Slot;

    #[test]
    fn rows_come_apart_as_they_were_put_together() {
        let object = Object { id: ObjectId(77), slot: Slot(9) };
        let rows = Rows { space: Space(3), object };
        let row = rows.element(0xdead_beef, b"member");
        assert_eq!(of_row(&row), Some((0xdead_beef, &b"member"[..])));
        let (from, until) = rows.from_hash(0xdead_beef);
        assert!(from <= row && row < until);
        assert_eq!(of_row(&row[..ROW_PREFIX_BYTES + 3]), None);
    }
}
