//! Zipmaps, in which small hashes lay before Redis 2.6. Read only.
//!
//! `pairs: u8 (fe or more: count them) | (length | field | length | free: u8 | value | free bytes) ... | ff`; a length
//! is a byte, or fe and u32 LE.

use crate::error::{Damage, Fault};
use crate::item::{Item, Items};
use crate::source::Source;
use crate::text::Window;

const END: u8 = 0xff;

/// The pairs of a zipmap that are still to come.
#[derive(Clone, Debug)]
pub struct Zipmap<'a> {
    rest: &'a [u8],
    count: Option<u64>,
    seen: u64,
}

const TOO_SHORT: Damage = "a zipmap ends too early";

impl<'a> Zipmap<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Zipmap<'a>, Damage> {
        let (count, rest) = bytes.split_first().ok_or(TOO_SHORT)?;
        Ok(Zipmap { rest, count: (*count < 0xfe).then_some(u64::from(*count)), seen: 0 })
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(TOO_SHORT)?;
        self.rest = rest;
        Ok(taken)
    }

    fn length(&mut self) -> Result<usize, Damage> {
        match self.take(1)?[0] {
            0xfe => Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")) as usize),
            END => Err("a zipmap ends within a pair"),
            short => Ok(usize::from(short)),
        }
    }

    /// Returns the next field and its value; `None` at the end, where the count is checked.
    #[allow(clippy::should_implement_trait)] // Reading may fail.
    pub fn next(&mut self) -> Result<Option<(&'a [u8], &'a [u8])>, Damage> {
        if self.rest.first() == Some(&END) {
            return match (self.rest.len(), self.count) {
                (1, Some(count)) if count != self.seen => Err("a zipmap has not as many pairs as it says"),
                (1, _) => Ok(None),
                _ => Err("a zipmap is longer than it says"),
            };
        }
        let length = self.length()?;
        let field = self.take(length)?;
        let length = self.length()?;
        let free = usize::from(self.take(1)?[0]);
        let value = self.take(length)?;
        self.take(free)?;
        self.seen += 1;
        Ok(Some((field, value)))
    }
}

/// The longest length in front of a string.
const LENGTH_BYTES_MAX: u64 = 5;

/// The fields and values of a zipmap that is too long to be held at once, in turn.
pub(crate) struct LongZipmap<'s, S> {
    window: Window<'s, S>,
    count: Option<u64>,
    seen: u64,
    /// Whether the field has gone out, and its value comes next.
    in_pair: bool,
}

impl<'s, S: Source> LongZipmap<'s, S> {
    pub fn new(mut window: Window<'s, S>) -> Result<LongZipmap<'s, S>, Fault> {
        let [count] = window.array().map_err(|_| Fault::from(TOO_SHORT))?;
        let count = (count < 0xfe).then_some(u64::from(count));
        Ok(LongZipmap { window, count, seen: 0, in_pair: false })
    }

    fn length(&mut self) -> Result<usize, Fault> {
        match self.window.array()? {
            [0xfe] => Ok(u32::from_le_bytes(self.window.array()?) as usize),
            [END] => Err("a zipmap ends within a pair".into()),
            [short] => Ok(usize::from(short)),
        }
    }
}

impl<S: Source> Items for LongZipmap<'_, S> {
    fn next(&mut self) -> Result<Option<Item<'_>>, Fault> {
        if !self.in_pair && self.window.peek(1)? == [END] {
            return match (self.window.rest(), self.count) {
                (1, Some(count)) if count != self.seen => Err("a zipmap has not as many pairs as it says".into()),
                (1, _) => self.window.array::<1>().map(|_| None).map_err(Fault::from),
                _ => Err("a zipmap is longer than it says".into()),
            };
        }
        let length = self.length()?;
        self.in_pair = !self.in_pair;
        if self.in_pair {
            return Ok(Some(Item::Bytes(self.window.take(length)?)));
        }
        let [free] = self.window.array()?;
        let (length, free) = (length, usize::from(free));
        self.seen += 1;
        let value = self.window.take(length.saturating_add(free))?;
        Ok(Some(Item::Bytes(&value[..length])))
    }

    fn ahead(&mut self) -> Result<usize, Fault> {
        let head = self.window.rest().min(LENGTH_BYTES_MAX);
        match *self.window.peek(head as usize)? {
            [0xfe, a, b, c, d] => {
                let bytes = u32::from_le_bytes([a, b, c, d]);
                if u64::from(bytes) > self.window.rest() { Err(TOO_SHORT.into()) } else { Ok(bytes as usize) }
            }
            _ => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(bytes: &[u8]) -> Result<Vec<(&[u8], &[u8])>, Damage> {
        let (mut zipmap, mut pairs) = (Zipmap::new(bytes)?, Vec::new());
        while let Some(pair) = zipmap.next()? {
            pairs.push(pair);
        }
        Ok(pairs)
    }

    #[test]
    fn pairs_are_read() {
        let expected = [(&b"f1"[..], &b"v1"[..]), (b"f2", b"v")];
        assert_eq!(pairs(b"\x02\x02f1\x02\x00v1\x02f2\x01\x01v.\xff").unwrap(), expected);
        assert_eq!(pairs(b"\xfe\xfe\x02\0\0\0f1\x02\x00v1\xff").unwrap(), expected[..1]);
    }

    #[test]
    fn damage_is_refused() {
        let good = b"\x02\x02f1\x02\x00v1\x02f2\x01\x01v.\xff";
        for len in 0..good.len() {
            assert!(pairs(&good[..len]).is_err(), "cut to {len} bytes");
        }
        assert!(pairs(b"\x01\x02f1\x02\x00v1\x02f2\x01\x01v.\xff").is_err());
        assert!(pairs(b"\x00\xff\xff").is_err());
        assert!(pairs(b"\x01\xff").is_err());
    }
}
