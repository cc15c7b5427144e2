//! Keys: the type, the deadline, the object that holds the value, and how these agree with the rows around them. Owns
//! the meta row's header, the deadline and owner rows, and the counters: every creation, change and removal of a key
//! goes through here, so that they always agree. Never looks at a value. Format: docs/format/rows.md.
//!
//! Invariants, for each key: one meta row; if it has a deadline, exactly one deadline row, at that time, and one at the
//! first deadline of its fields, if any has one; if its value has an object, exactly one owner row, which names the
//! key; and it counts once in `Keys`, once in its type's counter, and once in `Deadlines` if it has one. A key whose
//! deadline has passed reads as absent, but keeps all of these until a write removes it. Every change of a value writes
//! the meta row, even if its bytes stay: that is how others learn that the key was touched.

use crate::{Error, Result, event};
use haypile_store::row::{self, Key, ObjectId, Slot};
use haypile_store::{Counter, Presence, Stop, Txn, Value, Version};
use smallvec::SmallVec;

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
    fn is_awaited(self) -> bool {
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
const HEADER_BYTES_MAX: usize = 26;

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
    fn encode<'b>(&self, bytes: &'b mut [u8; HEADER_BYTES_MAX]) -> &'b [u8] {
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
    row: Value,
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
    fn fields(&self) -> u64 {
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

/// Returns the key as readers see it: one whose deadline has passed is absent. Counts a reader.
#[inline]
pub fn lookup(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Entry>> {
    let row = txn.use_meta(key)?;
    let entry = as_readers_see(txn, key, row)?;
    on_lookup(txn, key, entry.is_some());
    Ok(entry)
}

/// Returns the key as readers see it, and which version of its meta row that is, as far as it has one. Counts a reader.
pub fn lookup_version(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<(Entry, Option<Version>)>> {
    let (row, version) = txn.use_meta_version(key)?;
    let entry = as_readers_see(txn, key, row)?;
    on_lookup(txn, key, entry.is_some());
    Ok(entry.map(|entry| (entry, version)))
}

/// Returns the key as readers see it and counts a reader, for callers that do not use the value: it stays as idle as it
/// was.
pub fn lookup_unused(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Entry>> {
    let entry = peek(txn, key)?;
    on_lookup(txn, key, entry.is_some());
    Ok(entry)
}

/// Returns the key as readers see it, for callers that look at its layout: counts a reader, but tells of no miss.
pub fn inspect(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Entry>> {
    let entry = peek(txn, key)?;
    txn.on_lookup(entry.is_some());
    Ok(entry)
}

/// Returns the key as readers see it, without counting a reader.
pub fn peek(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Entry>> {
    let row = txn.meta(key)?;
    as_readers_see(txn, key, row)
}

#[inline]
fn as_readers_see(txn: &mut Txn<'_>, key: &Key<'_>, row: Option<Value>) -> Result<Option<Entry>> {
    let Some(row) = row else { return Ok(None) };
    let entry = Entry::parse(row)?;
    if entry.header.is_expired(txn.expiry_ms()) {
        txn.on_found_expired(key);
        return Ok(None);
    }
    Ok(Some(entry))
}

/// Returns the key as writers see it, and counts a reader: for commands that read a key and then write it.
pub fn lookup_update(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Entry>> {
    let entry = lookup_write(txn, key)?;
    on_lookup(txn, key, entry.is_some());
    Ok(entry)
}

/// Counts a reader of a key that was looked up before and is looked up again.
#[inline]
pub fn count_lookup(txn: &mut Txn<'_>, key: &Key<'_>, found: bool) {
    on_lookup(txn, key, found);
}

#[inline]
fn on_lookup(txn: &mut Txn<'_>, key: &Key<'_>, found: bool) {
    txn.on_lookup(found);
    if !found {
        txn.on_event(event::KEY_MISS, "keymiss", key);
    }
}

/// Returns the key as writers see it: one whose deadline has passed is removed first.
pub fn lookup_write(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Entry>> {
    let Some(row) = txn.use_meta(key)? else { return Ok(None) };
    let entry = Entry::parse(row)?;
    if let Some(end_ms) = entry.header.ends_ms().filter(|_| entry.header.is_expired(txn.expiry_ms())) {
        remove(txn, key, &entry.header)?;
        txn.on_lapsed(key, end_ms);
        tell_expired(txn, key, &entry);
        return Ok(None);
    }
    Ok(Some(entry))
}

/// Tells that a key has expired, by its own deadline or with the last of its fields.
fn tell_expired(txn: &mut Txn<'_>, key: &Key<'_>, entry: &Entry) {
    txn.on_expired();
    txn.on_found_expired(key);
    if entry.header.deadline_ms.is_some_and(|deadline| txn.expiry_ms() > deadline) {
        txn.on_event(event::EXPIRED, "expired", key);
    } else {
        txn.on_expired_fields(entry.fields());
        txn.on_event(event::HASH, "hexpired", key);
        txn.on_event(event::GENERIC, "del", key);
    }
}

/// Returns the header of a key that is about to be overwritten, an expired one too; does not read a plain string's
/// bytes.
#[inline]
pub fn lookup_overwrite(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Header>> {
    match txn.presence(key)? {
        Presence::Absent => Ok(None),
        Presence::Plain => Ok(Some(Header::inline(None))),
        Presence::Row(row) => {
            let entry = Entry::parse(row)?;
            if entry.header.is_expired(txn.expiry_ms()) {
                // An expired key counts as absent: the write makes a new key.
                tell_expired(txn, key, &entry);
                txn.on_event(event::NEW, "new", key);
                txn.on_ready(key);
                txn.forget_access(key);
            }
            Ok(Some(entry.header))
        }
    }
}

/// Writes the key: `before` is its old header, `after` the new one, with the payload in parts (four at most). An object
/// of `before` that is not one of `after` is abandoned with this.
#[inline]
pub fn write(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    before: Option<&Header>,
    after: &Header,
    payload: &[&[u8]],
) -> Result<()> {
    if before != Some(after) {
        update_counters_and_rows(txn, key, before, Some(after))?;
    }
    put(txn, key, after, payload)
}

/// Changes `bytes` at `offset` of the payload, which is `len_after` bytes long afterwards; the header stays. The cost
/// is that of the change, not of the row.
pub fn patch(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    header: &Header,
    offset: usize,
    bytes: &[u8],
    len_after: usize,
) -> Result<()> {
    let at = header.bytes_len();
    Ok(txn.patch_meta(key, (at + offset) as u32, bytes, (at + len_after) as u32)?)
}

/// Patches like `patch`, for a caller that has just read the entry and gives its payload back: the row changes in place
/// if that is the only handle on it.
pub fn patch_read(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    header: &Header,
    payload: Value,
    offset: usize,
    bytes: &[u8],
    len_after: usize,
) -> Result<()> {
    let (at, row) = (header.bytes_len(), row::meta_row(key));
    let read = Some(row_of(header, payload));
    Ok(txn.patch_read_row(&row, read, (at + offset) as u32, bytes, (at + len_after) as u32)?)
}

/// Puts `bytes` in place of the `removed` ones at `offset` of the payload, for a caller that has just read the entry
/// and gives its payload back, as in `patch_read`.
pub fn splice_read(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    header: &Header,
    payload: Value,
    offset: usize,
    removed: usize,
    bytes: &[u8],
) -> Result<()> {
    let at = (header.bytes_len() + offset) as u32;
    Ok(txn.splice_read_row(&row::meta_row(key), Some(row_of(header, payload)), at, removed as u32, bytes)?)
}

/// Returns the row of a payload, as the same handle on it.
fn row_of(header: &Header, payload: Value) -> Value {
    let (block, range) = payload.into_parts();
    Value::new(block, range.start as usize - header.bytes_len()..range.end as usize)
}

/// Removes the key: two or three rows, whatever its size.
pub fn remove(txn: &mut Txn<'_>, key: &Key<'_>, before: &Header) -> Result<()> {
    update_counters_and_rows(txn, key, Some(before), None)?;
    Ok(txn.delete_meta(key)?)
}

/// Removes the key if readers see one, and says whether they did. An expired one is removed, too.
pub fn delete(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<bool> {
    let Some(entry) = lookup_write(txn, key)? else { return Ok(false) };
    remove(txn, key, &entry.header)?;
    Ok(true)
}

/// The purpose of a deadline row that came due.
#[derive(Clone, Debug)]
pub enum Due {
    /// A key that this has removed.
    Removed,
    /// Fields of this hash.
    Fields(Entry),
    /// Nothing that is to be done now.
    Nothing,
}

/// Carries out a deadline row that comes due: removes the key if it still has that deadline and it has passed. A
/// deadline row that its key does not have any more, as an overwrite that did not look may leave it, is removed.
pub fn expire(txn: &mut Txn<'_>, key: &Key<'_>, deadline_ms: u64) -> Result<Due> {
    let entry = txn.meta(key)?.map(Entry::parse).transpose()?;
    let Some(entry) = entry.filter(|entry| deadline_rows(Some(&entry.header)).iter().any(|row| row.0 == deadline_ms))
    else {
        txn.delete_row(&row::expire_row(key, deadline_ms))?;
        return Ok(Due::Nothing);
    };
    let header = entry.header;
    if header.is_expired(txn.expiry_ms()) {
        remove(txn, key, &header)?;
        tell_expired(txn, key, &entry);
        return Ok(Due::Removed);
    }
    let is_of_fields = header.fields.is_some_and(|fields| fields.first_ms == deadline_ms);
    Ok(if is_of_fields && txn.expiry_ms() > deadline_ms { Due::Fields(entry) } else { Due::Nothing })
}

/// Returns the deadline rows of a key, with their values: one for its own deadline, and one for the first of its
/// fields'. Where both are the same, the key's stands for both.
pub(crate) fn deadline_rows(header: Option<&Header>) -> SmallVec<[(u64, &'static [u8]); 2]> {
    let Some(header) = header else { return SmallVec::new() };
    let first = header.fields.map(|fields| fields.first_ms).filter(|first| Some(*first) != header.deadline_ms);
    let rows = header.deadline_ms.map(|deadline| (deadline, &OF_KEY[..])).into_iter();
    rows.chain(first.map(|first| (first, &OF_FIELDS[..]))).collect()
}

/// Values of deadline rows.
const OF_KEY: [u8; 0] = [];
const OF_FIELDS: [u8; 1] = [1];

/// A row of at least this many bytes is patched where a small part of it changes; a shorter one is written again.
pub(crate) const PATCH_FROM_BYTES: usize = 256;

/// Gives the key this deadline, or none; the value stays.
pub fn set_deadline(txn: &mut Txn<'_>, key: &Key<'_>, entry: &Entry, deadline_ms: Option<u64>) -> Result<()> {
    let after = Header { deadline_ms, ..entry.header };
    update_counters_and_rows(txn, key, Some(&entry.header), Some(&after))?;
    match deadline_ms {
        Some(deadline) if entry.header.deadline_ms.is_some() && entry.row.len() >= PATCH_FROM_BYTES => {
            Ok(txn.patch_meta(key, 2, &deadline.to_be_bytes(), entry.row.len() as u32)?)
        }
        _ => put(txn, key, &after, &[entry.payload()]),
    }
}

/// Moves the value of `from` to `to`, another key of the same database; `to_before` is the old header of `to`. The
/// value's rows stay where they are.
pub fn rename(
    txn: &mut Txn<'_>,
    from: &Key<'_>,
    entry: &Entry,
    to: &Key<'_>,
    to_before: Option<&Header>,
) -> Result<()> {
    debug_assert!(from != to, "a key is not renamed to itself");
    txn.move_access(from, to);
    // Without its object, the old name gives up everything but the owner row, which the new name then writes.
    let left = Header { object: None, ..entry.header };
    update_counters_and_rows(txn, from, Some(&left), None)?;
    txn.delete_meta(from)?;
    update_counters_and_rows(txn, to, to_before, Some(&entry.header))?;
    note_arrived(txn, to, to_before, &entry.header);
    if to_before.is_some() {
        // The old value of the name is gone, as in Redis.
        txn.on_event(event::NEW, "new", to);
    }
    put(txn, to, &entry.header, &[entry.payload()])
}

/// Notes a value that takes the place of another one under its name: somebody may wait for it, or for as many elements
/// as it has. What a command stores over a value serves nobody who waits, as in Redis.
pub(crate) fn note_arrived(txn: &mut Txn<'_>, key: &Key<'_>, before: Option<&Header>, after: &Header) {
    if before.is_some() && after.type_of().is_awaited() {
        txn.on_ready(key);
    }
}

/// Writes the meta row itself.
fn put(txn: &mut Txn<'_>, key: &Key<'_>, header: &Header, payload: &[&[u8]]) -> Result<()> {
    let mut bytes = [0; HEADER_BYTES_MAX];
    let header = if *header == Header::inline(None) { &PLAIN } else { header.encode(&mut bytes) };
    match payload {
        [one] => txn.put_meta(key, &[header, one])?,
        [one, two] => txn.put_meta(key, &[header, one, two])?,
        [one, two, three] => txn.put_meta(key, &[header, one, two, three])?,
        [one, two, three, four] => txn.put_meta(key, &[header, one, two, three, four])?,
        _ => unreachable!("payloads come in one to four parts"),
    }
    Ok(())
}

/// Moves the counters, the deadline rows and the owner row of a key from its header `before` to its header `after`.
fn update_counters_and_rows(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    before: Option<&Header>,
    after: Option<&Header>,
) -> Result<()> {
    let types = (before.map(Header::type_of), after.map(Header::type_of));
    if types.0 != types.1 {
        if let Some(was) = types.0 {
            txn.count(key.space, was.counter(), -1);
        }
        if let Some(is) = types.1 {
            txn.count(key.space, is.counter(), 1);
        }
        // Readers of a stream for a consumer group wait for its removal, too.
        let is_new = types.0.is_none() && types.1.is_some_and(Type::is_awaited);
        if is_new || types.0 == Some(Type::Stream) {
            txn.on_ready(key);
        }
        match types {
            (None, Some(_)) => {
                txn.count(key.space, Counter::Keys, 1);
                txn.on_event(event::NEW, "new", key);
            }
            (Some(_), None) => txn.count(key.space, Counter::Keys, -1),
            _ => {}
        }
    }
    let deadlines = (before.and_then(|h| h.deadline_ms), after.and_then(|h| h.deadline_ms));
    let fields = (before.and_then(|h| h.fields), after.and_then(|h| h.fields));
    if deadlines.0 != deadlines.1 || fields.0 != fields.1 {
        let (were, are) = (deadline_rows(before), deadline_rows(after));
        for (was, _) in were.iter().filter(|was| are.iter().all(|is| is.0 != was.0)) {
            txn.delete_row(&row::expire_row(key, *was))?;
        }
        for (is, value) in are.iter().filter(|is| !were.contains(is)) {
            txn.put_row(&row::expire_row(key, *is), &[value])?;
        }
        let changes = [
            (Counter::Deadlines, deadlines.0.is_some(), deadlines.1.is_some()),
            (Counter::FieldDeadlines, fields.0.is_some(), fields.1.is_some()),
        ];
        for (counter, was, is) in changes {
            if was != is {
                txn.count(key.space, counter, if is { 1 } else { -1 });
            }
        }
    }
    let objects = (before.and_then(|h| h.object), after.and_then(|h| h.object));
    if objects.0 != objects.1 {
        if let Some(was) = objects.0 {
            txn.delete_row(&row::owner_row(key.space, was.slot, was.id))?;
        }
        if types == (Some(Type::Stream), Some(Type::Stream)) {
            // Another stream has taken the place of one that readers wait for.
            txn.on_ready(key);
        }
        if let Some(is) = objects.1 {
            txn.put_row(&row::owner_row(key.space, is.slot, is.id), &[key.name])?;
        }
    }
    Ok(())
}
