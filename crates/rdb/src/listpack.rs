//! Listpacks: elements in one string, read with all lengths checked, and written for the nodes of streams.
//!
//! `bytes: u32 LE | elements: u16 LE (ffff: count them) | element ... | ff`. An element: its encoding with its bytes,
//! then the length of that in seven bits a byte, the last byte the lowest, all but the first with the high bit set: so
//! that the elements can be read backwards.

use crate::error::{Damage, Fault};
use crate::item::{Item, Items, number_of};
use crate::source::Source;
use crate::text::Window;

/// Bytes before the elements.
const HEAD_BYTES: usize = 6;

const END: u8 = 0xff;

/// The count of a listpack that has so many elements, or more.
const COUNT_UNKNOWN: u16 = u16::MAX;

/// The elements of a listpack that are still to come.
#[derive(Clone, Debug)]
pub struct Listpack<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The count in the head, if there is one, and the elements seen.
    count: Option<u64>,
    seen: u64,
}

impl<'a> Listpack<'a> {
    /// Checks the head.
    pub fn new(bytes: &'a [u8]) -> Result<Listpack<'a>, Damage> {
        let (head, _) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or("a listpack is shorter than its head")?;
        let total = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let count = u16::from_le_bytes([head[4], head[5]]);
        if total as usize != bytes.len() {
            return Err("a listpack is not of its length");
        }
        if bytes.len() == HEAD_BYTES || bytes[bytes.len() - 1] != END {
            return Err("a listpack does not end as one");
        }
        let count = (count != COUNT_UNKNOWN).then_some(u64::from(count));
        Ok(Listpack { bytes: &bytes[..bytes.len() - 1], at: HEAD_BYTES, count, seen: 0 })
    }

    /// Returns the next element; `None` at the end, where the count is checked.
    #[inline]
    #[allow(clippy::should_implement_trait)] // Reading may fail.
    pub fn next(&mut self) -> Result<Option<Item<'a>>, Damage> {
        let Some(rest) = self.bytes.get(self.at..).filter(|rest| !rest.is_empty()) else {
            return end(self.count, self.seen).map(|()| None);
        };
        let (item, bytes) = element(rest)?;
        self.at += bytes;
        self.seen += 1;
        Ok(Some(item))
    }
}

/// Checks the number of elements behind the last one.
fn end(count: Option<u64>, seen: u64) -> Result<(), Damage> {
    match count {
        Some(count) if count != seen => Err("a listpack has not as many elements as it says"),
        _ => Ok(()),
    }
}

const TOO_LONG: Damage = "an element of a listpack reaches beyond its end";

/// The shape of an element, as its first bytes say.
enum Shape {
    /// A number within the encoding, which takes so many bytes.
    Number(i64, usize),
    /// A number of so many bytes behind the encoding.
    Wide(usize),
    /// A string behind an encoding of `head` bytes.
    Bytes { head: usize, length: usize },
}

/// The longest encoding before an element's own bytes.
const SHAPE_BYTES_MAX: usize = 5;

impl Shape {
    #[inline]
    fn of(rest: &[u8]) -> Result<Shape, Damage> {
        let byte = |n: usize| rest.get(n).map(|byte| u32::from(*byte)).ok_or(TOO_LONG);
        let string = |head: usize, length: u32| Shape::Bytes { head, length: length as usize };
        Ok(match byte(0)? as u8 {
            first @ 0..=0x7f => Shape::Number(i64::from(first), 1),
            first @ 0x80..=0xbf => string(1, u32::from(first & 0x3f)),
            first @ 0xc0..=0xdf => {
                let bits = (u32::from(first & 0x1f) << 8 | byte(1)?) as i64;
                Shape::Number(if bits >= 1 << 12 { bits - (1 << 13) } else { bits }, 2)
            }
            first @ 0xe0..=0xef => string(2, u32::from(first & 0x0f) << 8 | byte(1)?),
            0xf0 => string(5, byte(1)? | byte(2)? << 8 | byte(3)? << 16 | byte(4)? << 24),
            first @ 0xf1..=0xf4 => Shape::Wide([2, 3, 4, 8][usize::from(first - 0xf1)]),
            _ => return Err("an element of a listpack has an unknown encoding"),
        })
    }

    /// Returns the bytes of the encoding and of the element behind it.
    #[inline]
    fn bytes(&self) -> usize {
        match *self {
            Shape::Number(_, bytes) => bytes,
            Shape::Wide(width) => 1 + width,
            Shape::Bytes { head, length } => head.saturating_add(length),
        }
    }
}

/// Returns the element at the beginning of `rest`, and its bytes with the length behind it.
#[inline]
fn element(rest: &[u8]) -> Result<(Item<'_>, usize), Damage> {
    let shape = Shape::of(rest)?;
    let length = shape.bytes();
    let own = rest.get(..length).ok_or(TOO_LONG)?;
    let item = match shape {
        Shape::Number(number, _) => Item::Number(number),
        Shape::Wide(_) => Item::Number(little_endian(&own[1..])),
        Shape::Bytes { head, .. } => Item::Bytes(&own[head..]),
    };
    let back = Back::of(length as u64);
    if rest.get(length..length + back.as_slice().len()) != Some(back.as_slice()) {
        return Err("an element of a listpack does not end as one");
    }
    Ok((item, length + back.as_slice().len()))
}

impl Items for Listpack<'_> {
    #[inline]
    fn next(&mut self) -> Result<Option<Item<'_>>, Fault> {
        Ok(Listpack::next(self)?)
    }
}

/// The elements of a listpack that is too long to be held at once.
pub(crate) struct LongListpack<'s, S> {
    window: Window<'s, S>,
    count: Option<u64>,
    seen: u64,
}

impl<'s, S: Source> LongListpack<'s, S> {
    /// Checks the head.
    pub fn new(mut window: Window<'s, S>) -> Result<LongListpack<'s, S>, Fault> {
        let total = window.rest();
        let head: [u8; HEAD_BYTES] = window.array().map_err(|_| Fault::from("a listpack is shorter than its head"))?;
        if u64::from(u32::from_le_bytes([head[0], head[1], head[2], head[3]])) != total {
            return Err("a listpack is not of its length".into());
        }
        let count = u16::from_le_bytes([head[4], head[5]]);
        let count = (count != COUNT_UNKNOWN).then_some(u64::from(count));
        Ok(LongListpack { window, count, seen: 0 })
    }
}

impl<S: Source> LongListpack<'_, S> {
    /// Returns the bytes of the next element with the length behind it; 0 at the end.
    fn length(&mut self) -> Result<usize, Fault> {
        // All bytes but the end.
        let rest = self.window.rest().saturating_sub(1);
        if rest == 0 {
            return Ok(0);
        }
        let within = |bytes: usize| usize::try_from(rest).map_or(bytes, |rest| bytes.min(rest));
        let length = Shape::of(self.window.peek(within(SHAPE_BYTES_MAX))?)?.bytes();
        let bytes = length.saturating_add(Back::of(length as u64).as_slice().len());
        if bytes as u64 > rest { Err(TOO_LONG.into()) } else { Ok(bytes) }
    }
}

impl<S: Source> Items for LongListpack<'_, S> {
    fn next(&mut self) -> Result<Option<Item<'_>>, Fault> {
        let bytes = self.length()?;
        if bytes == 0 {
            let last: Result<[u8; 1], _> = self.window.array();
            if !matches!(last, Ok([END])) {
                return Err("a listpack does not end as one".into());
            }
            end(self.count, self.seen)?;
            return Ok(None);
        }
        self.seen += 1;
        let (item, _) = element(self.window.take(bytes)?)?;
        Ok(Some(item))
    }

    fn ahead(&mut self) -> Result<usize, Fault> {
        self.length()
    }
}

/// A signed number of up to eight bytes.
pub(crate) fn little_endian(digits: &[u8]) -> i64 {
    let sign = if digits.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
    let mut bytes = [sign; 8];
    bytes[..digits.len()].copy_from_slice(digits);
    i64::from_le_bytes(bytes)
}

/// The length of an element, behind it.
struct Back {
    bytes: [u8; 5],
    len: usize,
}

impl Back {
    #[inline]
    fn of(length: u64) -> Back {
        // Redis's bounds, which leave out the last length of each width but the first.
        let len = match length {
            0..=127 => 1,
            128..=16_382 => 2,
            16_383..=2_097_150 => 3,
            2_097_151..=268_435_454 => 4,
            _ => 5,
        };
        let mut bytes = [0; 5];
        for (n, byte) in bytes[..len].iter_mut().enumerate() {
            let seven = (length >> (7 * (len - 1 - n))) as u8 & 0x7f;
            *byte = if n == 0 { seven } else { seven | 0x80 };
        }
        Back { bytes, len }
    }

    #[inline]
    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A listpack in the making.
#[derive(Clone, Debug)]
pub struct Builder {
    bytes: Vec<u8>,
    count: u64,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder { bytes: vec![0; HEAD_BYTES], count: 0 }
    }
}

impl Builder {
    /// Returns the bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a number.
    pub fn number(&mut self, number: i64) {
        let start = self.bytes.len();
        let digits = number.to_le_bytes();
        match number {
            0..=127 => self.bytes.push(number as u8),
            -4096..=4095 => self.bytes.extend_from_slice(&((number as u16 & 0x1fff) | 0xc000).to_be_bytes()),
            -0x8000..=0x7fff => self.wide(0xf1, &digits[..2]),
            -0x80_0000..=0x7f_ffff => self.wide(0xf2, &digits[..3]),
            -0x8000_0000..=0x7fff_ffff => self.wide(0xf3, &digits[..4]),
            _ => self.wide(0xf4, &digits),
        }
        self.end(start);
    }

    fn wide(&mut self, encoding: u8, bytes: &[u8]) {
        self.bytes.push(encoding);
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds a string of less than 4 GiB, as a number where it is the spelling of one.
    pub fn string(&mut self, string: &[u8]) {
        if let Some(number) = number_of(string) {
            return self.number(number);
        }
        let start = self.bytes.len();
        match string.len() {
            length @ 0..=0x3f => self.bytes.push(0x80 | length as u8),
            length @ 0x40..=0xfff => self.bytes.extend_from_slice(&(0xe000 | length as u16).to_be_bytes()),
            length => self.wide(0xf0, &(length as u32).to_le_bytes()),
        }
        self.bytes.extend_from_slice(string);
        self.end(start);
    }

    fn end(&mut self, start: usize) {
        let back = Back::of((self.bytes.len() - start) as u64);
        self.bytes.extend_from_slice(back.as_slice());
        self.count += 1;
    }

    /// Adds all elements of another one, which is empty then.
    pub fn append(&mut self, other: &mut Builder) {
        self.bytes.extend_from_slice(&other.bytes[HEAD_BYTES..]);
        self.count += other.count;
        *other = Builder::default();
    }

    /// Returns the whole listpack; the builder begins anew.
    pub fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::replace(&mut self.bytes, vec![0; HEAD_BYTES]);
        let count = u16::try_from(std::mem::take(&mut self.count)).unwrap_or(COUNT_UNKNOWN);
        bytes.push(END);
        let total = u32::try_from(bytes.len()).expect("listpacks are kept far below 4 GiB");
        bytes[..4].copy_from_slice(&total.to_le_bytes());
        bytes[4..HEAD_BYTES].copy_from_slice(&count.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Damage> {
        let (mut listpack, mut strings) = (Listpack::new(bytes)?, Vec::new());
        while let Some(item) = listpack.next()? {
            strings.push(item.bytes(&mut itoa::Buffer::new()).to_vec());
        }
        Ok(strings)
    }

    #[test]
    fn what_was_built_is_read() {
        let mut texts: Vec<Vec<u8>> = Vec::new();
        for power in 0..64 {
            for near in -2..=2i64 {
                let number = (1i64 << power.min(62)).wrapping_add(near);
                texts.push(number.to_string().into_bytes());
                texts.push(number.wrapping_neg().to_string().into_bytes());
            }
        }
        texts.extend([i64::MIN, i64::MAX].map(|number| number.to_string().into_bytes()));
        for length in [0, 1, 63, 64, 125, 126, 4095, 4096, 16_380, 16_381, 16_382, 16_383, 2_097_150, 2_097_151] {
            texts.push(vec![b'x'; length]);
        }
        let mut builder = Builder::default();
        texts.iter().for_each(|text| builder.string(text));
        assert_eq!(strings(&builder.take()).unwrap(), texts);
        assert_eq!(strings(&builder.take()).unwrap(), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn bytes_are_redis_s() {
        let mut builder = Builder::default();
        for text in ["a", "127", "-1", "4096", "70000"] {
            builder.string(text.as_bytes());
        }
        let expected = "180000000500 8161 02 7f 01 dfff 02 f10010 03 f2701101 04 ff";
        let hex: String = builder.take().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected.replace(' ', ""));
    }

    #[test]
    fn damage_is_refused() {
        let mut builder = Builder::default();
        ["hay", "5000", "x"].iter().for_each(|text| builder.string(text.as_bytes()));
        let good = builder.take();
        assert!(strings(&good).is_ok());
        for len in 0..good.len() {
            assert!(strings(&good[..len]).is_err(), "cut to {len} bytes");
        }
        for at in [0, 4, 6, 10, 11, 14, 17, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 0x41;
            assert!(strings(&bad).is_err(), "byte {at}");
        }
    }
}
