//! Intsets: small sets of numbers, ascending. Read only.
//!
//! `bytes of a number: u32 LE (2, 4, 8) | numbers: u32 LE | number ...`.

use crate::error::Damage;
use crate::listpack::little_endian;

const HEAD_BYTES: usize = 8;

/// The numbers of an intset.
pub fn numbers(bytes: &[u8]) -> Result<impl ExactSizeIterator<Item = i64> + Clone + '_, Damage> {
    let (head, numbers) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or("an intset is shorter than its head")?;
    let width = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let count = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if !matches!(width, 2 | 4 | 8) {
        return Err("an intset's numbers have an unknown width");
    }
    if count.checked_mul(width) != Some(numbers.len()) {
        return Err("an intset is not of its length");
    }
    let numbers = numbers.chunks_exact(width).map(little_endian);
    if !numbers.clone().is_sorted_by(|a, b| a < b) {
        return Err("an intset is not in order");
    }
    Ok(numbers)
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
