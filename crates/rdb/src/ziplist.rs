//! Ziplists, which Redis had before listpacks. Read only.
//!
//! `bytes: u32 LE | offset of the last element: u32 LE | elements: u16 LE (ffff: count them) | element ... | ff`. An
//! element: the length of the one before (a byte, or fe and u32 LE), its encoding, its bytes.

use crate::error::{Damage, Fault};
use crate::item::{Item, Items};
use crate::listpack::little_endian;
use crate::source::Source;
use crate::text::Window;

/// Bytes before the elements.
const HEAD_BYTES: usize = 10;

const END: u8 = 0xff;

/// The elements of a ziplist that are still to come.
#[derive(Clone, Debug)]
pub struct Ziplist<'a> {
    /// The bytes without the end.
    bytes: &'a [u8],
    at: usize,
    place: Place,
}

impl<'a> Ziplist<'a> {
    /// Checks the head.
    pub fn new(bytes: &'a [u8]) -> Result<Ziplist<'a>, Damage> {
        let (head, _) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or("a ziplist is shorter than its head")?;
        let place = Place::new(head, bytes.len() as u64)?;
        if bytes.len() == HEAD_BYTES || bytes[bytes.len() - 1] != END {
            return Err(NO_END);
        }
        Ok(Ziplist { bytes: &bytes[..bytes.len() - 1], at: HEAD_BYTES, place })
    }

    /// Returns the next element; `None` at the end, where the count and the place of the last one are checked.
    #[allow(clippy::should_implement_trait)] // Reading may fail.
    pub fn next(&mut self) -> Result<Option<Item<'a>>, Damage> {
        let Some(rest) = self.bytes.get(self.at..).filter(|rest| !rest.is_empty()) else {
            return self.place.end(self.at as u64).map(|()| None);
        };
        let (item, bytes) = element(rest, self.place.before)?;
        self.at += bytes;
        self.place.before = bytes;
        self.place.seen += 1;
        Ok(Some(item))
    }
}

/// The place in a ziplist and the statements of its head, which are compared with the elements.
#[derive(Clone, Debug)]
struct Place {
    /// Bytes of the element before.
    before: usize,
    /// The offset of the last element, as the head has it.
    last: u64,
    count: Option<u64>,
    seen: u64,
}

impl Place {
    fn new(head: &[u8; HEAD_BYTES], total: u64) -> Result<Place, Damage> {
        let said = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let last = u32::from_le_bytes([head[4], head[5], head[6], head[7]]).into();
        let count = u16::from_le_bytes([head[8], head[9]]);
        if u64::from(said) != total {
            return Err("a ziplist is not of its length");
        }
        Ok(Place { before: 0, last, count: (count != u16::MAX).then_some(u64::from(count)), seen: 0 })
    }

    /// Checks the statements of the head, behind the last element.
    fn end(&self, at: u64) -> Result<(), Damage> {
        if self.count.is_some_and(|count| count != self.seen) {
            return Err("a ziplist has not as many elements as it says");
        }
        if self.last == at - self.before as u64 { Ok(()) } else { Err("a ziplist's last element is elsewhere") }
    }
}

const NO_END: Damage = "a ziplist does not end as one";
const TOO_LONG: Damage = "an element of a ziplist reaches beyond its end";

/// The shape of an element, as its first bytes say.
enum Shape {
    /// A number within the encoding.
    Number(i64),
    /// A number of so many bytes behind the encoding.
    Wide(usize),
    Bytes(usize),
}

/// The length of the element before, and the longest encoding.
const SHAPE_BYTES_MAX: usize = 10;

/// Returns the length of the element before, this one's shape, and where the bytes behind the encoding begin.
fn shape(rest: &[u8]) -> Result<(usize, Shape, usize), Damage> {
    let number = |from: usize, width: usize| rest.get(from..from + width).ok_or(TOO_LONG);
    let (before, at) = match number(0, 1)?[0] {
        0xfe => (u32::from_le_bytes(number(1, 4)?.try_into().expect("four bytes")) as usize, 5),
        0xff => return Err("an element of a ziplist begins as its end"),
        short => (usize::from(short), 1),
    };
    let (shape, head) = match number(at, 1)?[0] {
        first @ 0..=0x3f => (Shape::Bytes(first.into()), 1),
        first @ 0x40..=0x7f => (Shape::Bytes(usize::from(first & 0x3f) << 8 | usize::from(number(at + 1, 1)?[0])), 2),
        0x80..=0xbf => {
            let length = u32::from_be_bytes(number(at + 1, 4)?.try_into().expect("four bytes"));
            (Shape::Bytes(length as usize), 5)
        }
        0xc0 => (Shape::Wide(2), 1),
        0xd0 => (Shape::Wide(4), 1),
        0xe0 => (Shape::Wide(8), 1),
        0xf0 => (Shape::Wide(3), 1),
        0xfe => (Shape::Wide(1), 1),
        first @ 0xf1..=0xfd => (Shape::Number(i64::from(first & 0x0f) - 1), 1),
        _ => return Err("an element of a ziplist has an unknown encoding"),
    };
    Ok((before, shape, at + head))
}

impl Shape {
    /// Returns the number of bytes behind the encoding.
    fn bytes(&self) -> usize {
        match *self {
            Shape::Number(_) => 0,
            Shape::Wide(bytes) | Shape::Bytes(bytes) => bytes,
        }
    }
}

/// Returns the element at the beginning of `rest`, which follows one of `before` bytes, and its own bytes.
fn element(rest: &[u8], before: usize) -> Result<(Item<'_>, usize), Damage> {
    let (said, shape, at) = shape(rest)?;
    if said != before {
        return Err("an element of a ziplist is not as long as the next one says");
    }
    let end = at.checked_add(shape.bytes()).ok_or(TOO_LONG)?;
    let bytes = rest.get(at..end).ok_or(TOO_LONG)?;
    let item = match shape {
        Shape::Number(number) => Item::Number(number),
        Shape::Wide(_) => Item::Number(little_endian(bytes)),
        Shape::Bytes(_) => Item::Bytes(bytes),
    };
    Ok((item, end))
}

impl Items for Ziplist<'_> {
    fn next(&mut self) -> Result<Option<Item<'_>>, Fault> {
        Ok(Ziplist::next(self)?)
    }
}

/// The elements of a ziplist that is too long to be held at once.
pub(crate) struct LongZiplist<'s, S> {
    window: Window<'s, S>,
    total: u64,
    place: Place,
}

impl<'s, S: Source> LongZiplist<'s, S> {
    /// Checks the head.
    pub fn new(mut window: Window<'s, S>) -> Result<LongZiplist<'s, S>, Fault> {
        let total = window.rest();
        let head = window.array().map_err(|_| Fault::from("a ziplist is shorter than its head"))?;
        Ok(LongZiplist { window, total, place: Place::new(&head, total)? })
    }
}

impl<S: Source> LongZiplist<'_, S> {
    /// Returns the bytes of the next element; 0 at the end.
    fn length(&mut self) -> Result<usize, Fault> {
        // All bytes but the end.
        let rest = self.window.rest().saturating_sub(1);
        if rest == 0 {
            return Ok(0);
        }
        let within = |bytes: usize| usize::try_from(rest).map_or(bytes, |rest| bytes.min(rest));
        let (_, shape, at) = shape(self.window.peek(within(SHAPE_BYTES_MAX))?)?;
        let bytes = at.saturating_add(shape.bytes());
        if bytes as u64 > rest { Err(TOO_LONG.into()) } else { Ok(bytes) }
    }
}

impl<S: Source> Items for LongZiplist<'_, S> {
    fn next(&mut self) -> Result<Option<Item<'_>>, Fault> {
        let bytes = self.length()?;
        if bytes == 0 {
            let at = self.total - self.window.rest();
            let last: Result<[u8; 1], _> = self.window.array();
            if !matches!(last, Ok([END])) {
                return Err(NO_END.into());
            }
            self.place.end(at)?;
            return Ok(None);
        }
        let before = std::mem::replace(&mut self.place.before, bytes);
        self.place.seen += 1;
        let (item, _) = element(self.window.take(bytes)?, before)?;
        Ok(Some(item))
    }

    fn ahead(&mut self) -> Result<usize, Fault> {
        self.length()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a ziplist of encoded elements, without their first bytes.
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
