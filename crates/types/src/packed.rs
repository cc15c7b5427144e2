//! Small collections: all elements in the meta row. Owns how the elements follow each other there, and how large a
//! collection may be to lie so; the types choose the elements.
//!
//! The payload is `encoding: u8 | count: u16 BE | entries`, an entry being strings (`length: LEB128 | bytes`) and,
//! where the type says so, numbers of fixed width. Format: docs/format/collections.md.

use crate::Result;
use crate::key::damaged;
use haypile_store::row::RowKey;

/// Bytes of entries up to which a collection lies in its meta row. A change writes all of them again, or at least to
/// memory, and a lookup walks over them: that costs as much as a row of its own, header and place in the memtable.
pub const PACKED_BYTES_MAX: usize = 1024;

/// Entries up to which a collection lies in its meta row: the bound of a walk over short ones.
pub const PACKED_ENTRIES_MAX: usize = 64;

/// Bytes of `encoding | count`.
pub const HEAD_BYTES: usize = 3;

/// A collection in a meta row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed<'p> {
    /// The encoding that Redis would report: the type knows the numbers.
    pub encoding: u8,
    pub count: u16,
    pub entries: &'p [u8],
}

impl<'p> Packed<'p> {
    /// Takes a payload apart.
    #[inline]
    pub fn parse(payload: &'p [u8]) -> Result<Packed<'p>> {
        match payload {
            [encoding, high, low, entries @ ..] => {
                Ok(Packed { encoding: *encoding, count: u16::from_be_bytes([*high, *low]), entries })
            }
            _ => Err(damaged("a packed collection", payload)),
        }
    }

    /// Returns `encoding | count` as bytes.
    #[inline]
    pub fn head(&self) -> [u8; HEAD_BYTES] {
        debug_assert!(self.count > 0, "Invariant: a collection has at least one element");
        let [high, low] = self.count.to_be_bytes();
        [self.encoding, high, low]
    }

    /// Returns a reader of the entries from the first one on.
    #[inline]
    pub fn reader(&self) -> Reader<'p> {
        Reader { entries: self.entries, at: 0 }
    }
}

/// Tells whether a collection with this many bytes of entries and this many entries lies in its meta row.
#[inline]
pub fn fits(entries_bytes: usize, count: usize) -> bool {
    entries_bytes <= PACKED_BYTES_MAX && count <= PACKED_ENTRIES_MAX
}

/// The shift of the last seven bits of the longest length: strings are shorter than 4 GiB.
const LENGTH_SHIFT_MAX: u32 = 28;

/// A walk over entries.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'p> {
    entries: &'p [u8],
    at: usize,
}

impl<'p> Reader<'p> {
    /// Returns where the next part begins, in bytes from the first entry on.
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.at >= self.entries.len()
    }

    /// The next string.
    #[inline(always)]
    pub fn string(&mut self) -> Result<&'p [u8]> {
        match self.entries.get(self.at) {
            Some(&length) if length < 0x80 => {
                self.at += 1;
                self.bytes(usize::from(length))
            }
            _ => self.long_string(),
        }
    }

    /// The next string, of which the length takes several bytes.
    fn long_string(&mut self) -> Result<&'p [u8]> {
        let mut length = 0;
        let mut shift = 0;
        loop {
            let Some(&byte) = self.entries.get(self.at) else { return Err(self.damaged()) };
            self.at += 1;
            length |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
            shift += 7;
            // Entries that are about to get rows of their own may hold one string of any length.
            if shift > LENGTH_SHIFT_MAX {
                return Err(self.damaged());
            }
        }
        self.bytes(length)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.bytes(N)?;
        Ok(bytes.try_into().expect("as many as were asked for"))
    }

    #[inline(always)]
    fn bytes(&mut self, length: usize) -> Result<&'p [u8]> {
        match self.entries.get(self.at..self.at + length) {
            Some(bytes) => {
                self.at += length;
                Ok(bytes)
            }
            None => Err(self.damaged()),
        }
    }

    #[cold]
    fn damaged(&self) -> crate::Error {
        damaged("a packed collection", self.entries)
    }
}

/// Adds a string to entries.
#[inline]
pub fn put_string(entries: &mut Vec<u8>, bytes: &[u8]) {
    let mut length = bytes.len();
    while length >= 0x80 {
        entries.push(length as u8 | 0x80);
        length >>= 7;
    }
    entries.push(length as u8);
    entries.extend_from_slice(bytes);
}

/// Returns a string as it lies among entries: on the stack unless it is long.
#[inline]
pub fn item(bytes: &[u8]) -> RowKey {
    let mut item = RowKey::new();
    let mut length = bytes.len();
    while length >= 0x80 {
        item.push(length as u8 | 0x80);
        length >>= 7;
    }
    item.push(length as u8);
    item.extend_from_slice(bytes);
    item
}

/// Returns the bytes that a string takes among entries.
#[inline]
pub fn string_bytes(bytes: &[u8]) -> usize {
    let length_bytes = match bytes.len() {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        0x20_0000..0x1000_0000 => 4,
        _ => 5,
    };
    length_bytes + bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_read() {
        let long = vec![3; 0x20_0000];
        let strings = [&b""[..], b"a", &[7; 127], &[8; 128], &[9; 600], &long];
        let mut entries = Vec::new();
        for string in strings {
            put_string(&mut entries, string);
            assert!(entries.ends_with(&item(string)));
            entries.extend_from_slice(&[1, 2, 3]);
        }
        assert_eq!(entries.len(), strings.iter().map(|string| string_bytes(string) + 3).sum::<usize>());
        let payload = [&Packed { encoding: 1, count: 5, entries: &[] }.head()[..], &entries].concat();
        let packed = Packed::parse(&payload).expect("parses");
        assert_eq!((packed.encoding, packed.count), (1, 5));
        let mut reader = packed.reader();
        for string in strings {
            assert_eq!(reader.string().expect("a string"), string);
            assert_eq!(reader.fixed::<3>().expect("three bytes"), [1, 2, 3]);
        }
        assert!(reader.is_at_end());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a collection has at least one element")]
    fn an_empty_collection_is_noticed() {
        Packed { encoding: 0, count: 0, entries: &[] }.head();
    }

    #[test]
    fn damaged_entries_are_refused() {
        assert!(Packed::parse(b"\x01\x00").is_err(), "half a head");
        for entries in [&b"\x05abc"[..], b"\x80", b"\xff\xff\xff\xff\x7f", b""] {
            assert!(Packed { encoding: 0, count: 1, entries }.reader().string().is_err(), "{entries:?}");
        }
        assert!(Packed { encoding: 0, count: 1, entries: b"1234567" }.reader().fixed::<8>().is_err());
    }
}
