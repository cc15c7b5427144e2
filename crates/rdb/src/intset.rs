//! Intsets: small sets of numbers, ascending. Read only.
//!
//! `bytes of a number: u32 LE (2, 4, 8) | numbers: u32 LE | number ...`.

use crate::error::{Damage, Fault};
use crate::item::{Item, Items};
use crate::listpack::little_endian;
use crate::source::Source;
use crate::text::Window;

const HEAD_BYTES: usize = 8;

const NO_HEAD: Damage = "an intset is shorter than its head";
const NO_ORDER: Damage = "an intset is not in order";

/// Returns the bytes of each of the numbers, of which `rest` bytes follow.
fn width_of(head: &[u8; HEAD_BYTES], rest: u64) -> Result<usize, Damage> {
    let width = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let count = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    if !matches!(width, 2 | 4 | 8) {
        return Err("an intset's numbers have an unknown width");
    }
    if u64::from(count) * u64::from(width) != rest {
        return Err("an intset is not of its length");
    }
    Ok(width as usize)
}

/// The numbers of an intset.
pub fn numbers(bytes: &[u8]) -> Result<impl ExactSizeIterator<Item = i64> + Clone + '_, Damage> {
    let (head, numbers) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(NO_HEAD)?;
    let width = width_of(head, numbers.len() as u64)?;
    let numbers = numbers.chunks_exact(width).map(little_endian);
    if !numbers.clone().is_sorted_by(|a, b| a < b) {
        return Err(NO_ORDER);
    }
    Ok(numbers)
}

/// The numbers of an intset that is too long to be held at once.
pub(crate) struct LongIntset<'s, S> {
    window: Window<'s, S>,
    width: usize,
    last: Option<i64>,
}

impl<'s, S: Source> LongIntset<'s, S> {
    /// Checks the head.
    pub fn new(mut window: Window<'s, S>) -> Result<LongIntset<'s, S>, Fault> {
        let head: [u8; HEAD_BYTES] = window.array().map_err(|_| Fault::from(NO_HEAD))?;
        let width = width_of(&head, window.rest())?;
        Ok(LongIntset { window, width, last: None })
    }
}

impl<S: Source> Items for LongIntset<'_, S> {
    fn next(&mut self) -> Result<Option<Item<'_>>, Fault> {
        if self.window.rest() == 0 {
            return Ok(None);
        }
        let number = little_endian(self.window.take(self.width)?);
        if self.last.is_some_and(|last| last >= number) {
            return Err(NO_ORDER.into());
        }
        self.last = Some(number);
        Ok(Some(Item::Number(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read() {
        let read = |bytes: &[u8]| numbers(bytes).map(|numbers| numbers.collect::<Vec<_>>());
        assert_eq!(read(b"\x02\0\0\0\x02\0\0\0\xff\xff\x05\0").unwrap(), [-1, 5]);
        assert_eq!(read(b"\x04\0\0\0\x01\0\0\0\0\0\0\x80").unwrap(), [i64::from(i32::MIN)]);
        assert_eq!(read(b"\x08\0\0\0\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f").unwrap(), [i64::MAX]);
        for bad in [
            &b"\x02\0\0\0\x02\0\0\0\x05\0\xff\xff"[..],
            b"\x02\0\0\0\x02\0\0\0\x05\0\x05\0",
            b"\x03\0\0\0\x01\0\0\0\x05\0\0",
            b"\x02\0\0\0\xff\xff\xff\xff\x05\0",
            b"\x02\0\0\0\x01\0\0\0\x05",
            b"\x02\0\0\0",
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
