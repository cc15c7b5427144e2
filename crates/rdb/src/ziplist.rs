//! Ziplists: what Redis had before listpacks. Read only.
//!
//! `bytes: u32 LE | offset of the last element: u32 LE | elements: u16 LE (ffff: count them) | element ... | ff`. An element: the length
//! of the one before (a byte, or fe and u32 LE), its encoding, its bytes.

use crate::error::Damage;
use crate::item::Item;
use crate::listpack::little_endian;

/// Bytes before the elements.
const HEAD_BYTES: usize = 10;

const END: u8 = 0xff;

/// The elements of a ziplist that are still to come.
#[derive(Clone, Debug)]
pub struct Ziplist<'a> {
    /// Without the end.
    bytes: &'a [u8],
    at: usize,
    /// Bytes of the element before.
    before: usize,
    /// Where the head says that the last element is.
    last: usize,
    count: Option<u64>,
    seen: u64,
}

impl<'a> Ziplist<'a> {
    /// Checks the head.
    pub fn new(bytes: &'a [u8]) -> Result<Ziplist<'a>, Damage> {
        let (head, _) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or("a ziplist is shorter than its head")?;
        let total = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let last = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let count = u16::from_le_bytes([head[8], head[9]]);
        if total as usize != bytes.len() {
            return Err("a ziplist is not of its length");
        }
        if bytes.len() == HEAD_BYTES || bytes[bytes.len() - 1] != END {
            return Err("a ziplist does not end as one");
        }
        let count = (count != u16::MAX).then_some(u64::from(count));
        Ok(Ziplist { bytes: &bytes[..bytes.len() - 1], at: HEAD_BYTES, before: 0, last, count, seen: 0 })
    }

    /// The next element; `None` at the end, where the count and the place of the last one are checked.
    #[allow(clippy::should_implement_trait)] // It fails.
    pub fn next(&mut self) -> Result<Option<Item<'a>>, Damage> {
        const TOO_LONG: Damage = "an element of a ziplist reaches beyond its end";
        let Some(rest) = self.bytes.get(self.at..).filter(|rest| !rest.is_empty()) else {
            if self.count.is_some_and(|count| count != self.seen) {
                return Err("a ziplist has not as many elements as it says");
            }
            return if self.last == self.at - self.before {
                Ok(None)
            } else {
                Err("a ziplist's last element is elsewhere")
            };
        };
        let number = |from: usize, width: usize| rest.get(from..from + width).ok_or(TOO_LONG);
        let (before, start) = match rest[0] {
            0xfe => (u32::from_le_bytes(number(1, 4)?.try_into().expect("four bytes")) as usize, 5),
            0xff => return Err("an element of a ziplist begins as its end"),
            short => (usize::from(short), 1),
        };
        if before != self.before {
            return Err("an element of a ziplist is not as long as the next one says");
        }
        let string = |head: usize, length: usize| {
            let end = head.checked_add(length).ok_or(TOO_LONG)?;
            Ok((Item::Bytes(rest.get(head..end).ok_or(TOO_LONG)?), end))
        };
        let integer = |width: usize| Ok((Item::Number(little_endian(number(start + 1, width)?)), start + 1 + width));
        let (item, end) = match *rest.get(start).ok_or(TOO_LONG)? {
            first @ 0..=0x3f => string(start + 1, usize::from(first)),
            first @ 0x40..=0x7f => {
                string(start + 2, usize::from(first & 0x3f) << 8 | usize::from(number(start + 1, 1)?[0]))
            }
            0x80..=0xbf => {
                let length = u32::from_be_bytes(number(start + 1, 4)?.try_into().expect("four bytes"));
                string(start + 5, length as usize)
            }
            0xc0 => integer(2),
            0xd0 => integer(4),
            0xe0 => integer(8),
            0xf0 => integer(3),
            0xfe => integer(1),
            first @ 0xf1..=0xfd => Ok((Item::Number(i64::from(first & 0x0f) - 1), start + 1)),
            _ => Err("an element of a ziplist has an unknown encoding"),
        }?;
        self.at += end;
        self.before = end;
        self.seen += 1;
        Ok(Some(item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ziplist of encoded elements, without their first bytes.
    fn build(elements: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        let (mut before, mut last) = (0, HEAD_BYTES);
        for element in elements {
            last = bytes.len();
            if before < 0xfe {
                bytes.push(before as u8);
            } else {
                bytes.push(0xfe);
                bytes.extend_from_slice(&(before as u32).to_le_bytes());
            }
            bytes.extend_from_slice(element);
            before = bytes.len() - last;
        }
        bytes.push(END);
        let total = bytes.len() as u32;
        bytes[..4].copy_from_slice(&total.to_le_bytes());
        bytes[4..8].copy_from_slice(&(last as u32).to_le_bytes());
        bytes[8..10].copy_from_slice(&(elements.len() as u16).to_le_bytes());
        bytes
    }

    fn strings(bytes: &[u8]) -> Result<Vec<String>, Damage> {
        let (mut ziplist, mut strings) = (Ziplist::new(bytes)?, Vec::new());
        while let Some(item) = ziplist.next()? {
            strings.push(String::from_utf8_lossy(item.bytes(&mut itoa::Buffer::new())).into_owned());
        }
        Ok(strings)
    }

    #[test]
    fn all_encodings_are_read() {
        let long = [&[0x41, 0x2c][..], &[b'y'; 300]].concat();
        let longer = [&[0x80, 0, 0, 0x40, 0][..], &[b'z'; 0x4000]].concat();
        let bytes = build(&[
            b"\x03hay",
            &long,
            &longer,
            b"\xc0\xff\x7f",
            b"\xd0\x00\x00\x00\x80",
            b"\xe0\x00\x00\x00\x00\x00\x00\x00\x80",
            b"\xf0\xff\xff\xff",
            b"\xfe\x80",
            b"\xf1",
            b"\xfd",
        ]);
        let numbers = ["32767", "-2147483648", "-9223372036854775808", "-1", "-128", "0", "12"];
        let (ys, zs) = ("y".repeat(300), "z".repeat(0x4000));
        let expected = ["hay", &ys, &zs].into_iter().chain(numbers);
        assert_eq!(strings(&bytes).unwrap(), expected.collect::<Vec<_>>());
        assert!(strings(&build(&[])).unwrap().is_empty());
    }

    #[test]
    fn damage_is_refused() {
        let good = build(&[b"\x03hay", b"\x05stack", b"\xf5"]);
        assert_eq!(strings(&good).unwrap(), ["hay", "stack", "4"]);
        for len in 0..good.len() {
            assert!(strings(&good[..len]).is_err(), "cut to {len} bytes");
        }
        for at in (0..=11).chain([15, 16, good.len() - 1]) {
            let mut bad = good.clone();
            bad[at] ^= 0x21;
            assert!(strings(&bad).is_err(), "byte {at}");
        }
        for encoding in [0xc1, 0xff] {
            assert!(strings(&build(&[&[encoding]])).is_err(), "{encoding:x}");
        }
    }
}
