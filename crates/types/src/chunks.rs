//! A long string in rows: chunk `n` holds the bytes from `n * CHUNK_BYTES` on. Owns the data rows of such an object;
//! never its meta or owner row (`key` does), and never decides which strings are long (`string` does).
//!
//! A chunk's row may be absent or shorter than the chunk: missing bytes read as zeros. Invariant: a row is never longer
//! than its chunk, nor does it reach beyond the string. A string in chunks only grows, so that no row lies beyond its
//! end; a command that makes it shorter overwrites it as a whole, under another object. Format: docs/format/rows.md.

use crate::key::{Entry, Header, Object, Tag, damaged};
use crate::{Error, Result};
use haypile_store::row::{self, Key, RowKey, Space};
use haypile_store::{Direction, Txn, Value, View};
use std::ops::{ControlFlow, Range};

/// Bytes of a chunk. Part of the format.
pub const CHUNK_BYTES: usize = 16 * 1024;

/// `CHUNK_BYTES` for positions, which go beyond memory's.
const CHUNK: u64 = CHUNK_BYTES as u64;

/// A longer string is copied on the I/O pool only.
const COPY_AT_ONCE_BYTES: u64 = 256 * 1024;

/// Bytes of the payload in the meta row: the object and the string's length.
pub(crate) const PAYLOAD_BYTES: usize = Object::BYTES + 8;

/// A string in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunked {
    space: Space,
    object: Object,
    /// Bytes of the whole string.
    pub length: u64,
}

impl Chunked {
    /// Returns an empty string, under an object that nothing names yet.
    pub fn new(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Chunked> {
        Ok(Chunked { space: key.space, object: Object::new(txn, key)?, length: 0 })
    }

    /// Returns the string that an entry with the tag `StringChunked` describes.
    pub fn of(key: &Key<'_>, entry: &Entry) -> Result<Chunked> {
        match (entry.header.object, <&[u8; PAYLOAD_BYTES]>::try_from(entry.payload())) {
            (Some(object), Ok(payload)) => {
                let length = payload[Object::BYTES..].try_into().expect("the payload's last eight bytes");
                Ok(Chunked { space: key.space, object, length: u64::from_be_bytes(length) })
            }
            _ => Err(damaged("the payload of a string in chunks", entry.payload())),
        }
    }

    /// Returns the header of the string's meta row.
    pub fn header(&self, deadline_ms: Option<u64>) -> Header {
        Header { tag: Tag::StringChunked, deadline_ms, fields: None, object: Some(self.object) }
    }

    /// Returns the payload `id: u64 BE | slot: u16 BE | length: u64 BE`.
    pub fn payload(&self) -> [u8; PAYLOAD_BYTES] {
        debug_assert!(self.length > CHUNK, "Invariant: a string that fits one chunk lies in its meta row");
        let mut payload = [0; PAYLOAD_BYTES];
        payload[..Object::BYTES].copy_from_slice(&self.object.encode());
        payload[Object::BYTES..].copy_from_slice(&self.length.to_be_bytes());
        payload
    }

    fn row(&self, number: u64) -> RowKey {
        let number = u32::try_from(number).expect("strings are shorter than 2^32 chunks");
        row::data_row(self.space, self.object.slot, self.object.id, &number.to_be_bytes())
    }

    /// Writes `bytes` at `offset` and makes the string longer where they reach beyond its end. Touches only the chunks
    /// that they fall into, and reads none. The caller writes the meta row.
    pub fn write(&mut self, txn: &mut Txn<'_>, offset: u64, bytes: &[u8]) -> Result<()> {
        let length_before = self.length;
        self.length = length_before.max(offset + bytes.len() as u64);
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let (start, within) = (at - at % CHUNK, (at % CHUNK) as usize);
            let (piece, more) = rest.split_at(rest.len().min(CHUNK_BYTES - within));
            let row = self.row(start / CHUNK);
            let chunk_len = (self.length - start).min(CHUNK) as usize;
            debug_assert!(
                within + piece.len() <= chunk_len,
                "Invariant: no row reaches beyond its chunk or the string"
            );
            if within == 0 && (piece.len() == chunk_len || start >= length_before) {
                txn.put_row(&row, &[piece])?;
            } else {
                txn.patch_row(&row, within as u32, piece, chunk_len as u32)?;
            }
            at += piece.len() as u64;
            rest = more;
        }
        Ok(())
    }

    /// Copies the string to a new object, which nothing names yet, in the slot and the database of `key`.
    pub fn copy(&self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Chunked> {
        if self.length > COPY_AT_ONCE_BYTES {
            txn.long()?;
        }
        let copy = Chunked { length: self.length, ..Chunked::new(txn, key)? };
        for number in 0..self.length.div_ceil(CHUNK) {
            if let Some(chunk) = txn.row(&self.row(number))? {
                txn.put_row(&copy.row(number), &[&chunk])?;
            }
        }
        Ok(copy)
    }

    /// Reads the bytes from `at` on, few of them and all within the string, into `out`.
    pub(crate) fn read_into(&self, txn: &mut Txn<'_>, at: u64, out: &mut [u8]) -> Result<()> {
        let (mut at, mut rest) = (at, out);
        while !rest.is_empty() {
            let within = part_of_chunk(at, at + rest.len() as u64);
            let (piece, more) = rest.split_at_mut(within.len());
            let chunk = self.chunk(txn, at / CHUNK)?;
            let chunk = chunk.as_deref().unwrap_or_default();
            let present = chunk.get(within.start..within.end.min(chunk.len())).unwrap_or_default();
            piece[..present.len()].copy_from_slice(present);
            piece[present.len()..].fill(0);
            at += piece.len() as u64;
            rest = more;
        }
        Ok(())
    }

    /// Returns the row of a chunk, if there is one.
    pub(crate) fn chunk(&self, txn: &mut Txn<'_>, number: u64) -> Result<Option<Value>> {
        match txn.row(&self.row(number))? {
            Some(chunk) if chunk.len() > CHUNK_BYTES => Err(damaged(CHUNK_ROW, &chunk)),
            chunk => Ok(chunk),
        }
    }

    /// Writes one byte, which lies within the string, into the chunk that was read for it.
    pub(crate) fn write_byte(&self, txn: &mut Txn<'_>, at: u64, chunk: Option<Value>, byte: u8) -> Result<()> {
        debug_assert!(at < self.length);
        let (start, within) = (at - at % CHUNK, (at % CHUNK) as u32);
        let chunk_len = (self.length - start).min(CHUNK) as u32;
        Ok(txn.patch_read_row(&self.row(start / CHUNK), chunk, within, &[byte], chunk_len)?)
    }

    /// Visits the rows of the chunks that bytes of `range` lie in, each with the position of its first byte in the
    /// string, until `visit` breaks. `visit` may run under a latch: it only looks at the bytes.
    pub(crate) fn visit(
        &self,
        txn: &mut Txn<'_>,
        range: Range<u64>,
        mut visit: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let (from, until) = (self.row(range.start / CHUNK), self.row(range.end.div_ceil(CHUNK)));
        let want = (range.end.div_ceil(CHUNK) - range.start / CHUNK) as usize;
        let mut refused = None;
        txn.visit(&from, &until, Direction::Forward, want, |row, chunk| match row.last_chunk::<4>() {
            Some(number) if chunk.len() <= CHUNK_BYTES => visit(u64::from(u32::from_be_bytes(*number)) * CHUNK, chunk),
            _ => {
                refused = Some(damaged(CHUNK_ROW, chunk));
                ControlFlow::Break(())
            }
        })?;
        refused.map_or(Ok(()), Err)
    }

    /// Returns the bytes in `range`, which lies within the string, put together in memory.
    pub fn read(&self, txn: &mut Txn<'_>, range: Range<u64>) -> Result<Vec<u8>> {
        debug_assert!(range.end <= self.length);
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let mut at = range.start;
        while at < range.end {
            let (number, within) = (at / CHUNK, part_of_chunk(at, range.end));
            at += within.len() as u64;
            let chunk = txn.row(&self.row(number))?;
            extend(&mut bytes, chunk.as_deref().unwrap_or_default(), within)
                .map_err(|chunk| damaged(CHUNK_ROW, chunk))?;
        }
        Ok(bytes)
    }

    /// Returns the bytes in `range`, which lies within the string, as a view of this moment, to be read later and
    /// elsewhere.
    pub fn long(&self, txn: &mut Txn<'_>, range: Range<u64>) -> Result<Long> {
        debug_assert!(range.start < range.end && range.end <= self.length);
        let (first, last) = (range.start / CHUNK, (range.end - 1) / CHUNK);
        let view = txn.view(&self.row(first), &self.row(last + 1), Direction::Forward)?;
        Ok(Long { view, chunk: None, at: range.start, end: range.end })
    }
}

const CHUNK_ROW: &str = "a chunk's row";

/// Returns where in its chunk the byte at `at` lies, and how far the chunk or the range goes.
fn part_of_chunk(at: u64, end: u64) -> Range<usize> {
    let within = at % CHUNK;
    within as usize..CHUNK.min(within + (end - at)) as usize
}

/// Adds the part `within` of a chunk to `bytes`; zeros for bytes that its row lacks. A row that is longer than a chunk
/// comes back as the error.
fn extend<'c>(bytes: &mut Vec<u8>, chunk: &'c [u8], within: Range<usize>) -> std::result::Result<(), &'c [u8]> {
    if chunk.len() > CHUNK_BYTES {
        return Err(chunk);
    }
    let len_after = bytes.len() + within.len();
    if let Some(present) = chunk.get(within.start..within.end.min(chunk.len()).max(within.start)) {
        bytes.extend_from_slice(present);
    }
    bytes.resize(len_after, 0);
    Ok(())
}

/// A part of a long string from one moment, given out piece by piece without the key's lock.
pub struct Long {
    view: View,
    /// The last row taken from the view: its number, and the row.
    chunk: Option<(u64, Value)>,
    /// Position of the next byte in the string.
    at: u64,
    end: u64,
}

impl Long {
    /// Returns the number of bytes still to come.
    pub fn remaining(&self) -> u64 {
        self.end - self.at
    }

    /// Returns the bytes of memory that the view holds.
    pub fn held_bytes(&self) -> u64 {
        self.view.bytes()
    }

    /// Adds the next bytes to `out`, about `max` (a few chunks), and says whether more are to come.
    pub fn next(&mut self, max: usize, out: &mut Vec<u8>) -> std::result::Result<bool, String> {
        let full = out.len() + max;
        while self.at < self.end && out.len() < full {
            let (number, within) = (self.at / CHUNK, part_of_chunk(self.at, self.end));
            self.at += within.len() as u64;
            let chunk = self.chunk(number)?;
            extend(out, chunk, within).map_err(|chunk| describe(damaged(CHUNK_ROW, chunk)))?;
        }
        Ok(self.at < self.end)
    }

    /// Returns the row of a chunk, empty if there is none. Numbers ascend from call to call.
    pub(crate) fn chunk(&mut self, number: u64) -> std::result::Result<&[u8], String> {
        while self.chunk.as_ref().is_none_or(|(at, _)| *at < number) {
            let Some((row, value)) = self.view.next_row()? else { return Ok(&[]) };
            let Some(element) = row.last_chunk::<4>() else {
                return Err(describe(damaged("a chunk's row key", &row)));
            };
            self.chunk = Some((u64::from(u32::from_be_bytes(*element)), value));
        }
        match &self.chunk {
            Some((at, row)) if *at == number && row.len() > CHUNK_BYTES => Err(describe(damaged(CHUNK_ROW, row))),
            Some((at, row)) if *at == number => Ok(row),
            _ => Ok(&[]),
        }
    }
}

/// Makes an error of a text.
pub(crate) fn failed(why: String) -> Error {
    Error::Stop(haypile_store::Stop::Failed(why))
}

/// Makes a text of an error, for where only a text can be handed on.
fn describe(error: Error) -> String {
    match error {
        Error::Stop(haypile_store::Stop::Failed(why)) => why,
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_store::{ObjectId, Slot};

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a string that fits one chunk lies in its meta row")]
    fn a_short_string_in_chunks_is_noticed() {
        let object = Object { id: ObjectId(1), slot: Slot(0) };
        Chunked { space: Space(0), object, length: CHUNK }.payload();
    }
}
