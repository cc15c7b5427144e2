//! Bits of byte strings: counting and searching, a word at a time. Bit 0 is the highest one of the first byte.

use std::ops::Range;

/// Returns how many of the bits in `range` are set. Panics if some lie outside.
pub fn count(bytes: &[u8], range: Range<usize>) -> u64 {
    let Some((first, last)) = ends(&range) else { return 0 };
    if first.byte == last.byte {
        return u64::from((bytes[first.byte] & first.mask & last.mask).count_ones());
    }
    let edges = (bytes[first.byte] & first.mask).count_ones() + (bytes[last.byte] & last.mask).count_ones();
    u64::from(edges) + count_all(&bytes[first.byte + 1..last.byte])
}

/// Words that are added up bit by bit before any are counted.
const BLOCK_WORDS: usize = 16;

/// The count of a whole piece: carry-save adders take sixteen words at a time, so that few of them are counted (Harley
/// and Seal; Mula, Kurz and Lemire, "Faster population counts", 2018).
fn count_all(bytes: &[u8]) -> u64 {
    let (mut ones, mut twos, mut fours, mut eights) = (0, 0, 0, 0);
    let mut sixteens = 0;
    let blocks = bytes.chunks_exact(BLOCK_WORDS * 8);
    let rest = blocks.remainder();
    for block in blocks {
        let word = |at: usize| word_of(&block[at * 8..at * 8 + 8]);
        let mut carries = [0; 2];
        for (half, carry) in carries.iter_mut().enumerate() {
            let mut quarters = [0; 2];
            for (quarter, carry) in quarters.iter_mut().enumerate() {
                let at = half * 8 + quarter * 4;
                let first = add(&mut ones, word(at), word(at + 1));
                let second = add(&mut ones, word(at + 2), word(at + 3));
                *carry = add(&mut twos, first, second);
            }
            *carry = add(&mut fours, quarters[0], quarters[1]);
        }
        sixteens += u64::from(add(&mut eights, carries[0], carries[1]).count_ones());
    }
    let left = |word: u64, weight: u64| u64::from(word.count_ones()) * weight;
    let rest: u64 = rest.iter().map(|byte| u64::from(byte.count_ones())).sum();
    sixteens * 16 + left(eights, 8) + left(fours, 4) + left(twos, 2) + left(ones, 1) + rest
}

/// Adds two words to `sum`, each bit by itself, and returns the carries.
#[inline(always)]
fn add(sum: &mut u64, a: u64, b: u64) -> u64 {
    let half = *sum ^ a;
    let carry = (*sum & a) | (half & b);
    *sum = half ^ b;
    carry
}

#[inline(always)]
fn word_of(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

/// Returns the first of the bits in `range` that is `bit`. Panics if some lie outside.
pub fn first(bytes: &[u8], bit: bool, range: Range<usize>) -> Option<usize> {
    let (first, last) = ends(&range)?;
    // From here on the search is for a one.
    let flip = if bit { 0 } else { 0xff };
    let in_byte = |at: usize, mask: u8| {
        let sought = (bytes[at] ^ flip) & mask;
        (sought != 0).then(|| at * 8 + sought.leading_zeros() as usize)
    };
    if first.byte == last.byte {
        return in_byte(first.byte, first.mask & last.mask);
    }
    let whole = &bytes[first.byte + 1..last.byte];
    in_byte(first.byte, first.mask)
        .or_else(|| {
            let at = first_in(whole, flip)?;
            in_byte(first.byte + 1 + at, 0xff)
        })
        .or_else(|| in_byte(last.byte, last.mask))
}

/// The first byte that is not `other`.
fn first_in(bytes: &[u8], other: u8) -> Option<usize> {
    let others = u64::from_ne_bytes([other; 8]);
    let words = bytes.chunks_exact(8);
    let skipped = words.take_while(|word| word_of(word) == others).count() * 8;
    let at = bytes[skipped..].iter().position(|byte| *byte != other)?;
    Some(skipped + at)
}

/// The first or last byte of a range of bits, and which of its bits belong to it.
struct End {
    byte: usize,
    mask: u8,
}

fn ends(range: &Range<usize>) -> Option<(End, End)> {
    let last = range.end.checked_sub(1).filter(|last| *last >= range.start)?;
    let first = End { byte: range.start / 8, mask: 0xff >> (range.start % 8) };
    Some((first, End { byte: last / 8, mask: 0xff << (7 - last % 8) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bit(bytes: &[u8], at: usize) -> bool {
        bytes[at / 8] & (0x80 >> (at % 8)) != 0
    }

    /// Compares with a look at each bit, for ranges of all lengths from each of `starts`.
    fn check(bytes: &[u8], starts: impl Iterator<Item = usize>) {
        for start in starts {
            for end in start..=bytes.len() * 8 {
                let ones = (start..end).filter(|at| bit(bytes, *at)).count() as u64;
                assert_eq!(count(bytes, start..end), ones, "{start}..{end}");
                for sought in [false, true] {
                    let expected = (start..end).find(|at| bit(bytes, *at) == sought);
                    assert_eq!(first(bytes, sought, start..end), expected, "{sought} in {start}..{end}");
                }
            }
        }
    }

    #[test]
    fn ranges_of_bits_are_counted_and_searched_as_one_by_one() {
        let mixed: Vec<u8> = (0..19u32).map(|i| (i * 0x9d + 7) as u8).collect();
        check(&mixed, 0..mixed.len() * 8 + 1);
        for filled in [0x00, 0xff] {
            let mut bytes = vec![filled; 21];
            check(&bytes, 0..64);
            bytes[20] ^= 0x10;
            check(&bytes, (0..168).step_by(7));
        }
        check(&[], 0..1);
    }

    #[test]
    fn long_pieces_are_counted_whole() {
        for len in [127, 128, 129, 4096, 5000] {
            let bytes: Vec<u8> = (0..len as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
            let ones: u64 = bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
            assert_eq!(count(&bytes, 0..len * 8), ones);
            let inner: u64 = (3..len * 8 - 5).filter(|at| bit(&bytes, *at)).count() as u64;
            assert_eq!(count(&bytes, 3..len * 8 - 5), inner);
        }
    }
}
