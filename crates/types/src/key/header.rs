//! The type of a value and the object that holds it, and the beginning of a meta row, which names them.

use crate::{Error, Result};
use haypile_store::row::{Key, ObjectId, Slot};
use haypile_store::{Counter, Stop, Txn, Value};

/// How a key's value is laid out. DO NOT CHANGE THESE NUMBERS: retire, never reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Tag {
    /// A string, in the meta row itself.
    StringInline = 1,
    /// A string in chunks of an object.
    StringChunked = 2,
    /// Collections, each in the meta row itself or in rows of an object.
    HashPacked = 3,
    HashRows = 4,
    SetPacked = 5,
    SetRows = 6,
    ListPacked = 7,
    ListRows = 8,
    ZsetPacked = 9,
    ZsetRows = 10,
    /// A stream: a header, and rows of an object for all else.
    Stream = 11,
}

impl Tag {
    fn of(number: u8) -> Option<Tag> {
        match number {
            1 => Some(Tag::StringInline),
            2 => Some(Tag::StringChunked),
            3 => Some(Tag::HashPacked),
            4 => Some(Tag::HashRows),
            5 => Some(Tag::SetPacked),
            6 => Some(Tag::SetRows),
            7 => Some(Tag::ListPacked),
            8 => Some(Tag::ListRows),
            9 => Some(Tag::ZsetPacked),
            10 => Some(Tag::ZsetRows),
            11 => Some(Tag::Stream),
            _ => None,
        }
    }

    pub fn type_of(self) -> Type {
        match self {
            Tag::StringInline | Tag::StringChunked => Type::String,
            Tag::HashPacked | Tag::HashRows => Type::Hash,
            Tag::SetPacked | Tag::SetRows => Type::Set,
            Tag::ListPacked | Tag::ListRows => Type::List,
            Tag::ZsetPacked | Tag::ZsetRows => Type::Zset,
            Tag::Stream => Type::Stream,
        }
    }

    /// Tells whether the payload begins with the identity of an object.
    fn has_object(self) -> bool {
        match self {
            Tag::StringInline | Tag::HashPacked | Tag::SetPacked | Tag::ListPacked | Tag::ZsetPacked => false,
            Tag::StringChunked | Tag::HashRows | Tag::SetRows | Tag::ListRows | Tag::ZsetRows | Tag::Stream => true,
        }
    }
}

/// The types of values, as TYPE names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    String,
    List,
    Set,
    Zset,
    Hash,
    Stream,
}

impl Type {
    pub fn name(self) -> &'static str {
        match self {
            Type::String => "string",
            Type::List => "list",
            Type::Set => "set",
            Type::Zset => "zset",
            Type::Hash => "hash",
            Type::Stream => "stream",
        }
    }

    /// Tells whether commands wait for such values to come to be.
    pub(super) fn is_awaited(self) -> bool {
        matches!(self, Type::List | Type::Zset | Type::Stream)
    }

    pub(crate) fn counter(self) -> Counter {
        match self {
            Type::String => Counter::Strings,
            Type::List => Counter::Lists,
            Type::Set => Counter::Sets,
            Type::Zset => Counter::SortedSets,
            Type::Hash => Counter::Hashes,
            Type::Stream => Counter::Streams,
        }
    }
}

/// The identity of the rows that hold a value, and the slot where they lie, which stays that of the key's first name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    pub id: ObjectId,
    pub slot: Slot,
}

impl Object {
    /// Bytes of an object in a payload: `id: u64 BE | slot: u16 BE`.
    pub const BYTES: usize = 10;

    /// Returns a new object, in the slot of the key that is going to own it.
    pub fn new(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Object> {
        Ok(Object { id: txn.new_object()?, slot: key.slot })
    }

    pub fn encode(self) -> [u8; Object::BYTES] {
        let mut bytes = [0; Object::BYTES];
        bytes[..8].copy_from_slice(&self.id.0.to_be_bytes());
        bytes[8..].copy_from_slice(&self.slot.0.to_be_bytes());
        bytes
    }

    pub(crate) fn parse(payload: &[u8]) -> Option<Object> {
        let id = u64::from_be_bytes(payload.get(..8)?.try_into().ok()?);
        let slot = u16::from_be_bytes(payload.get(8..10)?.try_into().ok()?);
        Some(Object { id: ObjectId(id), slot: Slot(slot) })
    }
}

/// The part of a meta row before the payload, and the object that the payload names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub tag: Tag,
    /// Unix time. From the next millisecond on, the key is absent to readers.
    pub deadline_ms: Option<u64>,
    /// The span of the fields' deadlines, for a hash of which some fields have one.
    pub fields: Option<FieldTimes>,
    pub object: Option<Object>,
}

/// The span in which fields of a hash expire. Unix times, as deadlines of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldTimes {
    /// The earliest deadline of a field, whether it has passed or not.
    pub first_ms: u64,
    /// The latest deadline if all fields have one, and with it the end of the key; else `NEVER_MS`.
    pub last_ms: u64,
}

/// A time that does not come.
pub const NEVER_MS: u64 = u64::MAX;

const HAS_DEADLINE: u8 = 1;
const HAS_FIELD_TIMES: u8 = 2;

/// Bytes of the longest header.
pub(super) const HEADER_BYTES_MAX: usize = 26;

/// The header of an inline string without deadline, as bytes: the most common one, and that of `StoreOptions::plain`.
pub const PLAIN: [u8; 2] = [Tag::StringInline as u8, 0];

impl Header {
    /// Returns the header of an inline string.
    #[inline]
    pub fn inline(deadline_ms: Option<u64>) -> Header {
        Header { tag: Tag::StringInline, deadline_ms, fields: None, object: None }
    }

    /// Tells whether the deadline has passed, or those of all fields: to readers the key is absent.
    #[inline]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.deadline_ms.is_some_and(|deadline| now_ms > deadline)
            || self.fields.is_some_and(|fields| now_ms > fields.last_ms)
    }

    /// Returns the last millisecond in which readers see the key, if it ever expires.
    pub fn ends_ms(&self) -> Option<u64> {
        let ends = self.fields.map(|fields| fields.last_ms).filter(|last| *last != NEVER_MS);
        self.deadline_ms.into_iter().chain(ends).min()
    }

    pub fn type_of(&self) -> Type {
        self.tag.type_of()
    }

    /// Returns the number of bytes before the payload.
    #[inline]
    pub(crate) fn bytes_len(&self) -> usize {
        let deadline = if self.deadline_ms.is_some() { 8 } else { 0 };
        let fields = if self.fields.is_some() { 16 } else { 0 };
        2 + deadline + fields
    }

    /// Writes `tag: u8 | flags: u8 | deadline_ms: u64 BE, if flag 1 | first_ms: u64 BE | last_ms: u64 BE, if flag 2` to
    /// the start of `bytes`.
    #[inline]
    pub(super) fn encode<'b>(&self, bytes: &'b mut [u8; HEADER_BYTES_MAX]) -> &'b [u8] {
        bytes[0] = self.tag as u8;
        bytes[1] = 0;
        let mut at = 2;
        if let Some(deadline) = self.deadline_ms {
            bytes[1] = HAS_DEADLINE;
            bytes[2..10].copy_from_slice(&deadline.to_be_bytes());
            at = 10;
        }
        if let Some(FieldTimes { first_ms, last_ms }) = self.fields {
            bytes[1] |= HAS_FIELD_TIMES;
            bytes[at..at + 8].copy_from_slice(&first_ms.to_be_bytes());
            bytes[at + 8..at + 16].copy_from_slice(&last_ms.to_be_bytes());
        }
        &bytes[..self.bytes_len()]
    }

    /// Panics unless a meta row may have this header before a payload that begins so.
    pub(super) fn assert_sound(&self, payload: &[u8]) {
        assert_eq!(self.object.is_some(), self.tag.has_object(), "Invariant: a key has an object if its tag says so");
        assert!(
            self.object.is_none_or(|object| payload.starts_with(&object.encode())),
            "Invariant: the payload names the object whose owner row names the key"
        );
        assert!(
            self.fields.is_none_or(|fields| self.type_of() == Type::Hash && fields.first_ms <= fields.last_ms),
            "Invariant: only fields of hashes have deadlines, of which the first is not behind the last"
        );
    }

    #[inline]
    pub(crate) fn parse(row: &[u8]) -> Option<Header> {
        let tag = Tag::of(*row.first()?)?;
        let number = |at: usize| Some(u64::from_be_bytes(row.get(at..at + 8)?.try_into().ok()?));
        let mut header = Header { tag, deadline_ms: None, fields: None, object: None };
        match *row.get(1)? {
            0 => {}
            HAS_DEADLINE => header.deadline_ms = Some(number(2)?),
            flags if flags & !(HAS_DEADLINE | HAS_FIELD_TIMES) == 0 && header.type_of() == Type::Hash => {
                let mut at = 2;
                if flags & HAS_DEADLINE != 0 {
                    header.deadline_ms = Some(number(2)?);
                    at = 10;
                }
                header.fields = Some(FieldTimes { first_ms: number(at)?, last_ms: number(at + 8)? });
            }
            _ => return None,
        }
        if tag.has_object() {
            header.object = Some(Object::parse(&row[header.bytes_len()..])?);
        }
        Some(header)
    }
}

/// A key with its whole meta row.
#[derive(Clone, Debug)]
pub struct Entry {
    pub header: Header,
    pub(super) row: Value,
}

impl Entry {
    /// Takes a meta row apart.
    #[inline]
    pub fn parse(row: Value) -> Result<Entry> {
        match Header::parse(&row) {
            Some(header) => Ok(Entry { header, row }),
            None => Err(damaged("the header of a meta row", &row)),
        }
    }

    /// Returns the entry, or an error unless the key holds a value of this type.
    #[inline]
    pub fn expect(self, expected: Type) -> Result<Entry> {
        if self.header.type_of() == expected { Ok(self) } else { Err(Error::WrongType) }
    }

    /// Returns the bytes behind the header.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.row[self.header.bytes_len()..]
    }

    /// Returns the payload, sharing the row's bytes.
    #[inline]
    pub fn into_payload(self) -> Value {
        let at = self.header.bytes_len() as u32;
        let (block, range) = self.row.into_parts();
        Value::new(block, (range.start + at) as usize..range.end as usize)
    }

    /// Returns the number of a hash's fields, those whose deadlines have passed included. The payload is `object, where
    /// there is one | encoding: u8 | count`, as in `packed` and `element`.
    pub(super) fn fields(&self) -> u64 {
        let (at, width) = if self.header.object.is_some() { (Object::BYTES + 1, 8) } else { (1, 2) };
        let count = self.payload().get(at..at + width).unwrap_or_default();
        count.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

/// Returns the error for a row that does not parse: damage, or a format that is newer than this program.
pub(crate) fn damaged(what: &str, bytes: &[u8]) -> crate::Error {
    let start = &bytes[..bytes.len().min(16)];
    Stop::Failed(format!("{what} is damaged or of a newer format: it begins {:02x?}", start)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a key has an object if its tag says so")]
    fn a_key_without_its_object_is_noticed() {
        Header::inline(None).assert_sound(b"bytes");
        Header { tag: Tag::SetRows, ..Header::inline(None) }.assert_sound(b"bytes");
    }
}
