//! Strings: inline in the meta row up to `INLINE_BYTES_MAX`, in chunks of an object beyond (`chunks`). Owns that choice
//! and the operations; a small change to a large value costs what it changes.

use crate::chunks::{CHUNK_BYTES, Chunked, Long};
use crate::extended::Extended;
use crate::key::{self, Entry, Header, PATCH_FROM_BYTES, Tag, Type};
use crate::{Error, Result, integer};
use haypile_store::{Key, Txn, Value};
use std::ops::Range;

/// Longer strings lie in chunks. One chunk: the largest inline value becomes exactly the first one when it grows.
pub const INLINE_BYTES_MAX: usize = CHUNK_BYTES;

/// Longer parts of strings are given out piece by piece, from a view: a reply that is put together in memory stays
/// small beside a client's buffers, and a piece's cost small beside that of a view.
pub const LONG_FROM_BYTES: u64 = 1024 * 1024;

/// The bytes of a string, or of a part of it.
pub enum Content {
    /// Shared with the row they lie in.
    Shared(Value),
    /// Put together from chunks.
    Owned(Vec<u8>),
    /// The string has more than `LONG_FROM_BYTES`: to be read piece by piece.
    Long(Box<Long>),
}

/// How a string lies in its rows.
pub(crate) enum Form {
    Inline,
    Chunked(Chunked),
}

impl Form {
    pub(crate) fn of(key: &Key<'_>, entry: &Entry) -> Result<Form> {
        match entry.header.tag {
            Tag::StringInline => Ok(Form::Inline),
            Tag::StringChunked => Ok(Form::Chunked(Chunked::of(key, entry)?)),
            _ => Err(Error::WrongType),
        }
    }
}

/// Returns an error unless the key holds a string.
pub fn check_type(entry: &Entry) -> Result<()> {
    if entry.header.type_of() == Type::String { Ok(()) } else { Err(Error::WrongType) }
}

/// Returns the whole string; `None` if the key is absent.
#[inline]
pub fn get(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Content>> {
    match key::lookup(txn, key)? {
        Some(entry) => content(txn, key, entry).map(Some),
        None => Ok(None),
    }
}

/// Returns the whole string of a key that was looked up.
#[inline]
pub fn content(txn: &mut Txn<'_>, key: &Key<'_>, entry: Entry) -> Result<Content> {
    check_type(&entry)?;
    match Form::of(key, &entry)? {
        Form::Inline => Ok(Content::Shared(entry.into_payload())),
        Form::Chunked(chunked) => part(txn, &chunked, 0..chunked.length),
    }
}

fn part(txn: &mut Txn<'_>, chunked: &Chunked, range: Range<u64>) -> Result<Content> {
    if range.end - range.start > LONG_FROM_BYTES {
        Ok(Content::Long(Box::new(chunked.long(txn, range)?)))
    } else {
        chunked.read(txn, range).map(Content::Owned)
    }
}

/// Sets the string, without deadline, in place of any value. The old bytes of a plain string are not read.
#[inline]
pub fn set(txn: &mut Txn<'_>, key: &Key<'_>, bytes: &[u8]) -> Result<()> {
    let before = key::lookup_overwrite(txn, key)?;
    put(txn, key, before.as_ref(), bytes, None)
}

/// Sets the string of a key that was `before`. With a deadline that has passed already, the key is removed.
pub fn put(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    before: Option<&Header>,
    bytes: &[u8],
    deadline_ms: Option<u64>,
) -> Result<()> {
    let inline = Header::inline(deadline_ms);
    if inline.is_expired(txn.expiry_ms()) {
        return match before {
            Some(before) => key::remove(txn, key, before),
            // The key existed for an instant: WATCH notices it.
            None => Ok(txn.delete_meta(key)?),
        };
    }
    if bytes.len() <= INLINE_BYTES_MAX {
        return key::write(txn, key, before, &inline, &[bytes]);
    }
    // The rows that name the object come last: until then its rows may be written ahead, in several records.
    let mut chunked = Chunked::new(txn, key)?;
    chunked.write(txn, 0, bytes)?;
    key::write(txn, key, before, &chunked.header(deadline_ms), &[&chunked.payload()])
}

/// Returns the length of the string, 0 if the key is absent.
pub fn length(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<u64> {
    let Some(entry) = key::lookup(txn, key)? else { return Ok(0) };
    check_type(&entry)?;
    length_of(key, &entry)
}

/// Returns the length of the string of a key that was looked up.
pub fn length_of(key: &Key<'_>, entry: &Entry) -> Result<u64> {
    match Form::of(key, entry)? {
        Form::Inline => Ok(entry.payload().len() as u64),
        Form::Chunked(chunked) => Ok(chunked.length),
    }
}

/// Returns the bytes from `start` to `end`, both included, negative offsets counting from the end; `None` if there are
/// none.
pub fn range(txn: &mut Txn<'_>, key: &Key<'_>, start: i64, end: i64) -> Result<Option<Content>> {
    let Some(entry) = key::lookup(txn, key)? else { return Ok(None) };
    check_type(&entry)?;
    let Some(range) = clamp(start, end, length_of(key, &entry)?) else { return Ok(None) };
    match Form::of(key, &entry)? {
        Form::Inline => {
            let payload = entry.into_payload();
            Ok(Some(Content::Shared(payload.slice(range.start as usize..range.end as usize))))
        }
        Form::Chunked(chunked) => part(txn, &chunked, range).map(Some),
    }
}

/// Returns Redis's offsets as a range within `length` bytes; `None` if it is empty.
fn clamp(start: i64, end: i64, length: u64) -> Option<Range<u64>> {
    if start < 0 && end < 0 && start > end {
        return None;
    }
    let from_end = |offset: i64| if offset < 0 { length.saturating_sub(offset.unsigned_abs()) } else { offset as u64 };
    let (start, end) = (from_end(start), from_end(end).min(length.checked_sub(1)?));
    (start <= end).then(|| start..end + 1)
}

/// Adds `bytes` at the end, creates the key if it is absent, and returns the length afterwards, which is at most
/// `length_max`. The deadline stays.
pub fn append(txn: &mut Txn<'_>, key: &Key<'_>, bytes: &[u8], length_max: u64) -> Result<u64> {
    let Some(entry) = key::lookup_write(txn, key)? else {
        put(txn, key, None, bytes, None)?;
        return Ok(bytes.len() as u64);
    };
    check_type(&entry)?;
    let length = length_of(key, &entry)?;
    let length_after = length_within(length, bytes, length_max)?;
    write_at(txn, key, entry, length, bytes)?;
    Ok(length_after)
}

/// Writes `bytes` at `offset`, with zeros where the string is shorter, and returns the length afterwards, which is at
/// most `length_max`. Empty `bytes` change nothing and create nothing. The deadline stays.
pub fn set_range(txn: &mut Txn<'_>, key: &Key<'_>, offset: u64, bytes: &[u8], length_max: u64) -> Result<u64> {
    let entry = key::lookup_write(txn, key)?;
    let length = match &entry {
        Some(entry) => {
            check_type(entry)?;
            length_of(key, entry)?
        }
        None => 0,
    };
    if bytes.is_empty() {
        return Ok(length);
    }
    let length_after = length.max(length_within(offset, bytes, length_max)?);
    match entry {
        Some(entry) => write_at(txn, key, entry, offset, bytes)?,
        None => create_at(txn, key, offset, bytes)?,
    }
    Ok(length_after)
}

/// Makes a string of a key that is absent: zeros up to `offset`, then `bytes`.
pub(crate) fn create_at(txn: &mut Txn<'_>, key: &Key<'_>, offset: u64, bytes: &[u8]) -> Result<()> {
    if offset + bytes.len() as u64 <= INLINE_BYTES_MAX as u64 {
        let zeros = &ZEROS[..offset as usize];
        return key::write(txn, key, None, &Header::inline(None), &[zeros, bytes]);
    }
    let mut chunked = Chunked::new(txn, key)?;
    chunked.write(txn, offset, bytes)?;
    key::write(txn, key, None, &chunked.header(None), &[&chunked.payload()])
}

fn length_within(offset: u64, bytes: &[u8], length_max: u64) -> Result<u64> {
    match offset.checked_add(bytes.len() as u64) {
        Some(length) if length <= length_max => Ok(length),
        _ => Err(Error::TooLong),
    }
}

const ZEROS: &[u8; INLINE_BYTES_MAX] = &[0; INLINE_BYTES_MAX];

/// Writes `bytes` into or behind the string of `entry`. An inline string that grows too long moves into chunks.
pub(crate) fn write_at(txn: &mut Txn<'_>, key: &Key<'_>, entry: Entry, offset: u64, bytes: &[u8]) -> Result<()> {
    let header = entry.header;
    let mut chunked = match Form::of(key, &entry)? {
        Form::Chunked(chunked) => chunked,
        Form::Inline if offset + bytes.len() as u64 <= INLINE_BYTES_MAX as u64 => {
            return write_inline(txn, key, entry, offset as usize, bytes);
        }
        Form::Inline => {
            let mut chunked = Chunked::new(txn, key)?;
            chunked.write(txn, 0, entry.payload())?;
            chunked
        }
    };
    chunked.write(txn, offset, bytes)?;
    key::write(txn, key, Some(&header), &chunked.header(header.deadline_ms), &[&chunked.payload()])
}

fn write_inline(txn: &mut Txn<'_>, key: &Key<'_>, entry: Entry, offset: usize, bytes: &[u8]) -> Result<()> {
    let (header, before) = (entry.header, entry.payload());
    let end = offset + bytes.len();
    if before.len() >= PATCH_FROM_BYTES {
        let len_after = before.len().max(end);
        drop(entry);
        return key::patch(txn, key, &header, offset, bytes, len_after);
    }
    let (head, tail) = (&before[..offset.min(before.len())], &before[end.min(before.len())..]);
    if offset > before.len() {
        key::write(txn, key, Some(&header), &header, &[head, &ZEROS[..offset - before.len()], bytes])
    } else {
        key::write(txn, key, Some(&header), &header, &[head, bytes, tail])
    }
}

/// Returns the integer that the string of a key spells.
pub fn integer_of(entry: &Entry) -> Result<i64> {
    short(entry)?.and_then(integer::parse).ok_or(Error::NotInteger)
}

/// Returns the number with a fraction that the string of a key spells.
pub fn extended_of(entry: &Entry) -> Result<Extended> {
    short(entry)?.and_then(Extended::parse).ok_or(Error::NotFloat)
}

/// Returns a string that is short enough to be a number: those in chunks are longer than any.
fn short(entry: &Entry) -> Result<Option<&[u8]>> {
    check_type(entry)?;
    Ok((entry.header.tag == Tag::StringInline).then(|| entry.payload()))
}

/// Adds `delta` to the number that the string spells, 0 if the key is absent, and returns the sum. The deadline stays.
pub fn increment(txn: &mut Txn<'_>, key: &Key<'_>, delta: i64) -> Result<i64> {
    let (header, number) = match key::lookup_write(txn, key)? {
        Some(entry) => (Some(entry.header), integer_of(&entry)?),
        None => (None, 0),
    };
    let sum = number.checked_add(delta).ok_or(Error::Overflow)?;
    let after = header.unwrap_or(Header::inline(None));
    key::write(txn, key, header.as_ref(), &after, &[itoa::Buffer::new().format(sum).as_bytes()])?;
    Ok(sum)
}

/// Adds `delta`, which is `None` if it was no number, to the number that the string spells, 0 if the key is absent, and
/// returns the sum as it is spelled then. The deadline stays.
pub fn increment_float(txn: &mut Txn<'_>, key: &Key<'_>, delta: Option<Extended>) -> Result<String> {
    let (header, number) = match key::lookup_write(txn, key)? {
        Some(entry) => (Some(entry.header), extended_of(&entry)?),
        None => (None, Extended::ZERO),
    };
    let sum = (number + delta.ok_or(Error::NotFloat)?).filter(|sum| sum.is_finite()).ok_or(Error::NotFinite)?.print();
    key::write(txn, key, header.as_ref(), &header.unwrap_or(Header::inline(None)), &[sum.as_bytes()])?;
    Ok(sum)
}

/// Gives `to`, which was `to_before`, the same string and deadline as `from`. The databases may differ.
pub fn copy(txn: &mut Txn<'_>, from: &Key<'_>, entry: &Entry, to: &Key<'_>, to_before: Option<&Header>) -> Result<()> {
    let deadline_ms = entry.header.deadline_ms;
    match Form::of(from, entry)? {
        Form::Inline => key::write(txn, to, to_before, &Header::inline(deadline_ms), &[entry.payload()]),
        Form::Chunked(chunked) => {
            let copy = chunked.copy(txn, to)?;
            key::write(txn, to, to_before, &copy.header(deadline_ms), &[&copy.payload()])
        }
    }
}
