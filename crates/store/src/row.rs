//! Row keys: which rows there are and how their keys sort. The families' numbers and layouts are permanent; see
//! docs/format/rows.md. Builds and takes apart keys, never looks at a value.
//!
//! Every key begins `family: u8 | space: u32 BE | slot: u16 BE`, so that one slot of one database is one range of each
//! family. Deadlines (`expire`) sort by time within their space instead, and `system` rows are named by their text.

use smallvec::SmallVec;

/// The kinds of rows, in the order in which they lie on disk. DO NOT CHANGE THESE NUMBERS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Family {
    /// One row per user key: a string inline, or the header of everything else.
    Meta = 1,
    /// Elements of an object.
    Data = 2,
    /// Sorted set members in the order of their scores.
    Score = 3,
    /// The user key that an object belongs to. Invariant: an object without an owner is garbage.
    Owner = 4,
    /// Deadlines in the order of time.
    Expire = 5,
    /// The store's own facts.
    System = 6,
}

impl Family {
    pub fn of(row: &[u8]) -> Option<Family> {
        match row.first()? {
            1 => Some(Family::Meta),
            2 => Some(Family::Data),
            3 => Some(Family::Score),
            4 => Some(Family::Owner),
            5 => Some(Family::Expire),
            6 => Some(Family::System),
            _ => None,
        }
    }
}

/// An incarnation of a database. Invariant: no space is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Space(pub u32);

/// One of the 16384 hash slots of Redis Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

/// Slots of Redis Cluster.
pub const SLOTS: usize = 16384;

/// The identity of a value that does not fit its meta row. Invariant: no id is issued twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u64);

/// A user's key with everything that its rows' keys are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    pub space: Space,
    pub slot: Slot,
    /// The key's place in its slot's scan order: the upper half of its seeded XXH3.
    pub hash: u32,
    pub name: &'a [u8],
}

/// A row key under construction: on the stack unless it is long.
pub type RowKey = SmallVec<[u8; STACK_BYTES]>;

const STACK_BYTES: usize = 64;

/// Bytes before the user key in a meta row: family, space, slot, hash.
pub const META_PREFIX_BYTES: usize = 11;

/// Bytes before the element in the key of an object's row: family, space, slot, id.
const OBJECT_PREFIX_BYTES: usize = 15;

/// Returns the row key of a fixed part and the rest, for the most part by two copies to known places: a command builds
/// several of them.
#[inline]
pub fn join<const FIXED: usize>(fixed: [u8; FIXED], rest: &[u8]) -> RowKey {
    const { assert!(FIXED <= STACK_BYTES) };
    let len = FIXED + rest.len();
    if len > STACK_BYTES {
        let mut row = RowKey::with_capacity(len);
        row.extend_from_slice(&fixed);
        row.extend_from_slice(rest);
        return row;
    }
    let mut bytes = [0; STACK_BYTES];
    bytes[..FIXED].copy_from_slice(&fixed);
    bytes[FIXED..len].copy_from_slice(rest);
    RowKey::from_buf_and_len(bytes, len)
}

fn begin(family: Family, space: Space) -> RowKey {
    let [a, b, c, d] = space.0.to_be_bytes();
    join([family as u8, a, b, c, d], &[])
}

#[inline]
fn object_prefix(family: Family, space: Space, slot: Slot, id: ObjectId) -> [u8; OBJECT_PREFIX_BYTES] {
    let mut prefix = [0; OBJECT_PREFIX_BYTES];
    prefix[0] = family as u8;
    prefix[1..5].copy_from_slice(&space.0.to_be_bytes());
    prefix[5..7].copy_from_slice(&slot.0.to_be_bytes());
    prefix[7..15].copy_from_slice(&id.0.to_be_bytes());
    prefix
}

/// Returns the key of a meta row: `1 | space | slot | hash: u32 BE | name`.
#[inline]
pub fn meta_row(key: &Key<'_>) -> RowKey {
    join(meta_prefix(key), key.name)
}

/// Returns the fixed part of a meta row's key, before the name.
#[inline]
pub fn meta_prefix(key: &Key<'_>) -> [u8; META_PREFIX_BYTES] {
    let mut prefix = [0; META_PREFIX_BYTES];
    prefix[0] = Family::Meta as u8;
    prefix[1..5].copy_from_slice(&key.space.0.to_be_bytes());
    prefix[5..7].copy_from_slice(&key.slot.0.to_be_bytes());
    prefix[7..11].copy_from_slice(&key.hash.to_be_bytes());
    prefix
}

/// Returns the lowest meta row key at a position of the scan order.
pub fn meta_position(space: Space, slot: Slot, hash: u32) -> RowKey {
    meta_row(&Key { space, slot, hash, name: b"" })
}

/// Takes a meta row's key apart.
pub fn parse_meta_row(row: &[u8]) -> Option<Key<'_>> {
    if row.len() < META_PREFIX_BYTES || row[0] != Family::Meta as u8 {
        return None;
    }
    Some(Key {
        space: Space(u32::from_be_bytes(row[1..5].try_into().ok()?)),
        slot: Slot(u16::from_be_bytes(row[5..7].try_into().ok()?)),
        hash: u32::from_be_bytes(row[7..11].try_into().ok()?),
        name: &row[META_PREFIX_BYTES..],
    })
}

/// Returns the key of an element's row: `2 | space | slot | id: u64 BE | element`.
#[inline]
pub fn data_row(space: Space, slot: Slot, id: ObjectId, element: &[u8]) -> RowKey {
    join(object_prefix(Family::Data, space, slot, id), element)
}

/// Returns the key of a row of an object: `family | space | slot | id: u64 BE | rest`.
#[inline]
pub fn object_row(family: Family, space: Space, slot: Slot, id: ObjectId, rest: &[u8]) -> RowKey {
    join(object_prefix(family, space, slot, id), rest)
}

/// Returns the key of the row of an element that begins with its hash:
/// `2 | space | slot | id | hash: u32 BE | element`.
#[inline]
pub fn hashed_row(space: Space, slot: Slot, id: ObjectId, hash: u32, element: &[u8]) -> RowKey {
    let mut fixed = [0; OBJECT_PREFIX_BYTES + 4];
    fixed[..OBJECT_PREFIX_BYTES].copy_from_slice(&object_prefix(Family::Data, space, slot, id));
    fixed[OBJECT_PREFIX_BYTES..].copy_from_slice(&hash.to_be_bytes());
    join(fixed, element)
}

/// Returns the key of a score's row: `3 | space | slot | id: u64 BE | element`.
#[inline]
pub fn score_row(space: Space, slot: Slot, id: ObjectId, element: &[u8]) -> RowKey {
    join(object_prefix(Family::Score, space, slot, id), element)
}

/// Returns the key of an owner's row: `4 | space | slot | id: u64 BE`; the value is the user key.
pub fn owner_row(space: Space, slot: Slot, id: ObjectId) -> RowKey {
    join(object_prefix(Family::Owner, space, slot, id), &[])
}

/// Bytes before the name in the key of a deadline's row.
const EXPIRE_PREFIX_BYTES: usize = 19;

/// Returns the key of a deadline's row: `5 | space | deadline_ms: u64 BE | slot: u16 BE | hash: u32 BE | name`; the
/// value is empty.
pub fn expire_row(key: &Key<'_>, deadline_ms: u64) -> RowKey {
    let mut fixed = [0; EXPIRE_PREFIX_BYTES];
    fixed[0] = Family::Expire as u8;
    fixed[1..5].copy_from_slice(&key.space.0.to_be_bytes());
    fixed[5..13].copy_from_slice(&deadline_ms.to_be_bytes());
    fixed[13..15].copy_from_slice(&key.slot.0.to_be_bytes());
    fixed[15..19].copy_from_slice(&key.hash.to_be_bytes());
    join(fixed, key.name)
}

/// Takes a deadline's row key apart: the time in milliseconds, and the key.
pub fn parse_expire_row(row: &[u8]) -> Option<(u64, Key<'_>)> {
    if row.len() < EXPIRE_PREFIX_BYTES || row[0] != Family::Expire as u8 {
        return None;
    }
    let key = Key {
        space: Space(u32::from_be_bytes(row[1..5].try_into().ok()?)),
        slot: Slot(u16::from_be_bytes(row[13..15].try_into().ok()?)),
        hash: u32::from_be_bytes(row[15..19].try_into().ok()?),
        name: &row[EXPIRE_PREFIX_BYTES..],
    };
    Some((u64::from_be_bytes(row[5..13].try_into().ok()?), key))
}

/// Returns the key of a system row: `6 | scope: u8 | name`, scope 0 for replicated facts, 1 for this node's own.
pub fn system_row(scope: SystemScope, name: &[u8]) -> RowKey {
    join([Family::System as u8, scope as u8], name)
}

/// Returns the range of all rows of a family in a space: from the first key to just beyond the last.
pub fn family_range(family: Family, space: Space) -> (RowKey, RowKey) {
    let until = match space.0.checked_add(1) {
        Some(next) => begin(family, Space(next)),
        None => RowKey::from_slice(&[family as u8 + 1]),
    };
    (begin(family, space), until)
}

/// Returns the range of all rows of an object: from the first key to just beyond the last.
pub fn object_range(family: Family, space: Space, slot: Slot, id: ObjectId) -> (RowKey, RowKey) {
    let bound = |id| object_row(family, space, slot, id, &[]);
    (bound(id), bound(ObjectId(id.0 + 1)))
}

/// Returns the object whose element a row is.
pub fn object_of(row: &[u8]) -> Option<ObjectId> {
    match Family::of(row)? {
        Family::Data | Family::Score | Family::Owner => {
            Some(ObjectId(u64::from_be_bytes(row.get(7..15)?.try_into().ok()?)))
        }
        Family::Meta | Family::Expire | Family::System => None,
    }
}

/// Returns the space of a row, if its family has one.
pub fn space_of(row: &[u8]) -> Option<Space> {
    match Family::of(row)? {
        Family::System => None,
        _ => Some(Space(u32::from_be_bytes(row.get(1..5)?.try_into().ok()?))),
    }
}

/// The scope of a system row: the data set, or this node. DO NOT CHANGE THESE NUMBERS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SystemScope {
    Replicated = 0,
    Local = 1,
}

/// Returns the slot in which a row lives; `None` for deadlines (slot first found behind the time) and system rows.
pub fn home_slot(row: &[u8]) -> Option<Slot> {
    let at = match Family::of(row)? {
        Family::Meta | Family::Data | Family::Score | Family::Owner => 5,
        Family::Expire => 13,
        Family::System => return None,
    };
    Some(Slot(u16::from_be_bytes(row.get(at..at + 2)?.try_into().ok()?)))
}

/// Returns Redis Cluster's slot of a key: CRC16 of the hash tag if there is a non-empty one, else of the whole key.
pub fn slot_of(name: &[u8]) -> Slot {
    Slot(crc16(hash_tag(name)) & (SLOTS as u16 - 1))
}

/// Returns the part of a key between the first `{` and the next `}`, if it is not empty; else the key.
fn hash_tag(name: &[u8]) -> &[u8] {
    let Some(open) = name.iter().position(|&b| b == b'{') else { return name };
    let rest = &name[open + 1..];
    match rest.iter().position(|&b| b == b'}') {
        Some(close) if close > 0 => &rest[..close],
        _ => name,
    }
}

/// Returns the CRC-16/XMODEM of these bytes, as the Redis Cluster specification asks; four bytes at a time, because
/// every command begins with it.
fn crc16(bytes: &[u8]) -> u16 {
    let (fours, rest) = bytes.as_chunks::<4>();
    let crc = fours.iter().fold(0u16, |crc, &[a, b, c, d]| {
        let [high, low] = crc.to_be_bytes();
        CRC16[3][usize::from(high ^ a)]
            ^ CRC16[2][usize::from(low ^ b)]
            ^ CRC16[1][usize::from(c)]
            ^ CRC16[0][usize::from(d)]
    });
    rest.iter().fold(crc, |crc, &byte| (crc << 8) ^ CRC16[0][usize::from((crc >> 8) as u8 ^ byte)])
}

/// Tables for the CRC: `CRC16[n][byte]` is the remainder that a byte leaves when `n` more bytes follow it.
static CRC16: [[u16; 256]; 4] = crc16_tables();

const fn crc16_tables() -> [[u16; 256]; 4] {
    let mut tables = [[0; 256]; 4];
    let mut i = 0;
    while i < 256 {
        let mut crc = (i as u16) << 8;
        let mut bit = 0;
        while bit < 32 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
            if bit % 8 == 0 {
                tables[bit / 8 - 1][i] = crc;
            }
        }
        i += 1;
    }
    tables
}

/// Returns a key's place in the scan order of its slot.
pub fn hash_of(name: &[u8], seed: u64) -> u32 {
    (xxhash_rust::xxh3::xxh3_64_with_seed(name, seed) >> 32) as u32
}

/// Returns an element's place in the order of its collection: the hash of a key of this name, but never the highest
/// number.
#[inline]
pub fn element_hash_of(element: &[u8], seed: u64) -> u32 {
    hash_of(element, seed).min(u32::MAX - 1)
}

/// A position in the scan order: everything from this slot and hash on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScanPosition {
    pub slot: Slot,
    pub hash: u32,
}

impl ScanPosition {
    pub const START: ScanPosition = ScanPosition { slot: Slot(0), hash: 0 };

    /// Returns the next position, if there is one.
    pub fn next(self) -> Option<ScanPosition> {
        match self.hash.checked_add(1) {
            Some(hash) => Some(ScanPosition { hash, ..self }),
            None if usize::from(self.slot.0) + 1 < SLOTS => Some(ScanPosition { slot: Slot(self.slot.0 + 1), hash: 0 }),
            None => None,
        }
    }

    /// Returns the number that a SCAN cursor carries: 14 bits of slot and 32 of hash, plus one, because 0 means start
    /// and end.
    pub fn cursor(self) -> u64 {
        ((u64::from(self.slot.0) << 32) | u64::from(self.hash)) + 1
    }

    /// Returns the position of a cursor; 0 is the start, and a number beyond all positions is none.
    pub fn from_cursor(cursor: u64) -> Option<ScanPosition> {
        let Some(at) = cursor.checked_sub(1) else { return Some(ScanPosition::START) };
        let slot = at >> 32;
        (slot < SLOTS as u64).then_some(ScanPosition { slot: Slot(slot as u16), hash: at as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        // The specification's check value, and CLUSTER KEYSLOT of redis-server.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!((crc16(b""), crc16(b"1"), crc16(b"1234")), (0, 0x2672, 0xd789));
        assert_eq!(slot_of(b"foo"), Slot(12182));
        assert_eq!(slot_of(b"{foo}bar"), Slot(12182));
        assert_eq!(slot_of(b"foo{}bar"), slot_of(b"foo{}bar"));
        assert_ne!(slot_of(b"{}foo"), slot_of(b""));
    }

    #[test]
    fn keys_come_apart_as_they_were_put_together() {
        let key = Key { space: Space(7), slot: Slot(300), hash: 0xdead_beef, name: b"k\0\xff" };
        assert_eq!(parse_meta_row(&meta_row(&key)), Some(key));
        assert_eq!(parse_expire_row(&expire_row(&key, 99)), Some((99, key)));
        assert_eq!(home_slot(&meta_row(&key)), Some(Slot(300)));
        assert_eq!(home_slot(&expire_row(&key, 5)), Some(Slot(300)));
    }

    #[test]
    fn cursors_survive_the_way_to_the_client_and_back() {
        for at in [
            ScanPosition::START,
            ScanPosition { slot: Slot(16383), hash: u32::MAX },
            ScanPosition { slot: Slot(1), hash: 5 },
        ] {
            assert_eq!(ScanPosition::from_cursor(at.cursor()), Some(at));
        }
        assert_eq!(ScanPosition::from_cursor(0), Some(ScanPosition::START));
        assert_eq!(ScanPosition::from_cursor(u64::MAX), None);
    }
}
