//! Bitmaps: strings whose bits are read and set one by one, counted, searched and combined. Bit 0 is the highest bit of
//! the first byte, as in Redis. Owns these operations; how a string lies in its rows belongs to `string` and `chunks`.
//!
//! An operation on one bit touches one chunk and logs that byte; one on a range streams over the chunks that have rows:
//! missing ones are zeros. `bits` works on bytes, `field` on integers of any width (BITFIELD), `combine` on whole
//! strings (BITOP).

pub mod bits;
pub mod combine;
pub mod field;

use crate::Result;
use crate::chunks::{CHUNK_BYTES, Chunked};
use crate::key::{self, Entry};
use crate::string::{self, Form, LONG_FROM_BYTES};
use haypile_store::{Key, Txn, Value};
use std::ops::{ControlFlow, Range};

/// A string as bits.
pub struct Bitmap {
    held: Held,
    /// Bytes of the string.
    pub length: u64,
}

/// The place of a string's bytes.
enum Held {
    Row(Value),
    Chunks(Chunked),
}

impl Bitmap {
    /// Returns the string of a key, for a reader.
    pub fn lookup(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Bitmap>> {
        match key::lookup(txn, key)? {
            Some(entry) => Bitmap::of(key, entry).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the string of a key that was looked up.
    pub fn of(key: &Key<'_>, entry: Entry) -> Result<Bitmap> {
        match Form::of(key, &entry)? {
            Form::Inline => {
                let bytes = entry.into_payload();
                Ok(Bitmap { length: bytes.len() as u64, held: Held::Row(bytes) })
            }
            Form::Chunked(chunked) => Ok(Bitmap { length: chunked.length, held: Held::Chunks(chunked) }),
        }
    }

    /// Returns the bytes from `at` on; beyond the string they are zeros.
    pub fn bytes<const N: usize>(&self, txn: &mut Txn<'_>, at: u64) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        let end = self.length.min(at.saturating_add(N as u64));
        if at < end {
            match &self.held {
                Held::Row(row) => {
                    let part = &row[at as usize..end as usize];
                    bytes[..part.len()].copy_from_slice(part);
                }
                Held::Chunks(chunked) => chunked.read_into(txn, at, &mut bytes[..(end - at) as usize])?,
            }
        }
        Ok(bytes)
    }

    pub fn bit(&self, txn: &mut Txn<'_>, offset: u64) -> Result<bool> {
        let [byte] = self.bytes(txn, offset / 8)?;
        Ok(byte & mask(offset) != 0)
    }

    /// Counts the set bits of a range within the string.
    pub fn count(&self, txn: &mut Txn<'_>, range: Range<u64>) -> Result<u64> {
        let mut count = 0;
        self.visit(txn, &range, |start, bytes| {
            count += bits::count(bytes, within(&range, start, bytes));
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    /// Returns the first bit of a range within the string that is `bit`.
    pub fn first(&self, txn: &mut Txn<'_>, bit: bool, range: Range<u64>) -> Result<Option<u64>> {
        // Before this bit there are only others.
        let mut at = range.start;
        let mut found = None;
        self.visit(txn, &range, |start, bytes| {
            if !bit && start * 8 > at {
                // Between two rows everything is zero.
                return ControlFlow::Break(());
            }
            let part = within(&range, start, bytes);
            at = at.max(start * 8 + part.end as u64);
            found = bits::first(bytes, bit, part).map(|position| start * 8 + position as u64);
            if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found.or_else(|| (!bit && at < range.end).then_some(at)))
    }

    /// Visits the bytes that hold these bits in pieces, each with its position in the string; missing pieces are zeros.
    fn visit(
        &self,
        txn: &mut Txn<'_>,
        range: &Range<u64>,
        mut visit: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        match &self.held {
            Held::Row(row) => {
                let _ = visit(0, row);
                Ok(())
            }
            Held::Chunks(chunked) => {
                let bytes = range.start / 8..range.end.div_ceil(8);
                if bytes.end - bytes.start > LONG_FROM_BYTES {
                    txn.long()?;
                }
                chunked.visit(txn, bytes, visit)
            }
        }
    }
}

/// Returns the bits of `range` that lie in a piece, counted from the piece's begin.
fn within(range: &Range<u64>, start: u64, bytes: &[u8]) -> Range<usize> {
    let (first, end) = (start * 8, (start + bytes.len() as u64) * 8);
    let from = range.start.clamp(first, end) - first;
    from as usize..(range.end.clamp(first, end) - first).max(from) as usize
}

/// Returns a byte with one bit set, where the bit at `offset` stands in its byte.
fn mask(offset: u64) -> u8 {
    0x80 >> (offset % 8)
}

/// The outcome of SETBIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    pub before: bool,
    /// Whether the string was created, became longer, or has another bit now.
    pub changed: bool,
}

/// Sets or clears one bit; the string grows with zeros as far as it has to. A bit that has the value already is not
/// written.
pub fn set(txn: &mut Txn<'_>, key: &Key<'_>, offset: u64, bit: bool) -> Result<Set> {
    let (at, mask) = (offset / 8, mask(offset));
    let Some(entry) = key::lookup_write(txn, key)? else {
        string::create_at(txn, key, at, &[if bit { mask } else { 0 }])?;
        return Ok(Set { before: false, changed: true });
    };
    let header = entry.header;
    if let Form::Chunked(chunked) = Form::of(key, &entry)?
        && at < chunked.length
    {
        let chunk = chunked.chunk(txn, at / CHUNK_BYTES as u64)?;
        let byte = chunk.as_ref().and_then(|chunk| chunk.get((at % CHUNK_BYTES as u64) as usize)).copied().unwrap_or(0);
        let before = byte & mask != 0;
        if before != bit {
            chunked.write_byte(txn, at, chunk, byte ^ mask)?;
            key::write(txn, key, Some(&header), &header, &[entry.payload()])?;
        }
        return Ok(Set { before, changed: before != bit });
    }
    let bitmap = Bitmap::of(key, entry.clone())?;
    let [byte] = bitmap.bytes(txn, at)?;
    let before = byte & mask != 0;
    let changed = at >= bitmap.length || before != bit;
    drop(bitmap);
    if changed {
        let byte = if bit { byte | mask } else { byte & !mask };
        string::write_at(txn, key, entry, at, &[byte])?;
    }
    Ok(Set { before, changed })
}
