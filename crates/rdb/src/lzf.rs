//! LZF, the compression of strings in RDB files: runs of up to 32 bytes as they are, and copies of up to 264 bytes from
//! at most 8 KiB before.
//!
//! `000LLLLL` and L + 1 bytes: a run. `LLLooooo oooooooo`: a copy of L + 2 bytes (L from 1 to 6) from o + 1 bytes
//! before. `111ooooo LLLLLLLL oooooooo`: a copy of L + 9.

use crate::error::{Damage, Error};
use crate::source::{Source, TAKE_MAX};

/// Bytes of the longest run.
const RUN_MAX: usize = 32;

/// Bytes of the longest copy.
const COPY_MAX: usize = 264;

/// The greatest distance that a copy comes from.
const DISTANCE_MAX: usize = 8192;

/// The bytes of a copy over those that stand for it: three stand for 264.
const RATIO_MAX: u64 = 88;

/// Decompresses into `out`; the result has `length` bytes.
pub fn decompress(compressed: &[u8], length: u64, out: &mut Vec<u8>) -> Result<(), Damage> {
    can_be(compressed.len() as u64, length)?;
    let length = length as usize;
    out.clear();
    out.reserve(length);
    let mut at = 0;
    let mut next = |count: usize| {
        let bytes = compressed.get(at..at + count).ok_or(TOO_SHORT)?;
        at += count;
        Ok::<_, Damage>(bytes)
    };
    while out.len() < length {
        let control = usize::from(next(1)?[0]);
        if control < RUN_MAX {
            out.extend_from_slice(next(control + 1)?);
            continue;
        }
        let mut count = control >> 5;
        if count == 7 {
            count += usize::from(next(1)?[0]);
        }
        let distance = ((control & 0x1f) << 8 | usize::from(next(1)?[0])) + 1;
        let from = out.len().checked_sub(distance).ok_or(NO_ORIGIN)?;
        copy(out, from, count + 2);
    }
    if out.len() != length || at != compressed.len() {
        return Err(NOT_ITS_LENGTH);
    }
    Ok(())
}

const TOO_SHORT: Damage = "compressed bytes end too early";
const NO_ORIGIN: Damage = "compressed bytes copy from before the beginning";
const NOT_ITS_LENGTH: Damage = "compressed bytes are not of their length";

/// Tells whether so many compressed bytes may stand for so many.
fn can_be(compressed: u64, length: u64) -> Result<(), Damage> {
    if length > compressed.saturating_mul(RATIO_MAX) {
        return Err("compressed bytes are too few for their length");
    }
    Ok(())
}

/// Decompression step by step: memory holds as many bytes as a copy may reach back, and those that were not taken.
#[derive(Debug)]
pub(crate) struct Inflate {
    out: Vec<u8>,
    /// Bytes of `out` that were taken.
    start: usize,
    compressed_left: u64,
    /// Bytes that are still to come out.
    left: u64,
}

/// Bytes that are made at a time.
const STEP_BYTES: usize = TAKE_MAX;

impl Inflate {
    /// Begins with so many compressed bytes, which become `length`.
    pub fn new(compressed: u64, length: u64) -> Result<Inflate, Damage> {
        can_be(compressed, length)?;
        Ok(Inflate { out: Vec::new(), start: 0, compressed_left: compressed, left: length })
    }

    /// Returns the next `count` bytes, `TAKE_MAX` at most, which must exist.
    pub fn take<S: Source>(&mut self, source: &mut S, count: usize) -> Result<&[u8], Error> {
        if self.out.len() - self.start < count {
            let unused = self.start.min(self.out.len().saturating_sub(DISTANCE_MAX));
            self.out.drain(..unused);
            self.start -= unused;
            let until = self.start + count.max(STEP_BYTES);
            while self.out.len() < until && self.left > 0 {
                self.step(source)?;
            }
            if self.left == 0 && self.compressed_left > 0 {
                return Err(source.corrupt(NOT_ITS_LENGTH));
            }
        }
        let taken = self.start..self.start + count;
        self.start = taken.end;
        self.out.get(taken).ok_or_else(|| source.corrupt(TOO_SHORT))
    }

    /// Carries out one run or copy.
    fn step<S: Source>(&mut self, source: &mut S) -> Result<(), Error> {
        let control = usize::from(self.compressed(source, 1)?[0]);
        let made = if control < RUN_MAX {
            let run = self.compressed(source, control + 1)?;
            let bytes = run.len();
            self.out.extend_from_slice(run);
            bytes
        } else {
            let mut count = control >> 5;
            if count == 7 {
                count += usize::from(self.compressed(source, 1)?[0]);
            }
            let distance = ((control & 0x1f) << 8 | usize::from(self.compressed(source, 1)?[0])) + 1;
            let from = self.out.len().checked_sub(distance).ok_or_else(|| source.corrupt(NO_ORIGIN))?;
            copy(&mut self.out, from, count + 2);
            count + 2
        };
        self.left = self.left.checked_sub(made as u64).ok_or_else(|| source.corrupt(NOT_ITS_LENGTH))?;
        Ok(())
    }

    fn compressed<'s, S: Source>(&mut self, source: &'s mut S, count: usize) -> Result<&'s [u8], Error> {
        let left = self.compressed_left.checked_sub(count as u64);
        self.compressed_left = left.ok_or_else(|| source.corrupt(TOO_SHORT))?;
        source.take(count)
    }
}

/// Adds `count` bytes that begin at `from`.
#[inline]
fn copy(out: &mut Vec<u8>, from: usize, count: usize) {
    if out.len() - from >= count {
        out.extend_from_within(from..from + count);
    } else {
        // The source of the copy begins before it ends: a pattern.
        for n in 0..count {
            let byte = out[from + n];
            out.push(byte);
        }
    }
}

/// Compresses, with a table that is kept from string to string.
#[derive(Debug)]
pub struct Compressor {
    /// The positions at which three bytes of a hash were seen last, each above `base`; lower ones are of strings
    /// before.
    table: Box<[u32]>,
    base: u32,
}

const TABLE_BITS: u32 = 14;

impl Default for Compressor {
    fn default() -> Compressor {
        Compressor { table: vec![0; 1 << TABLE_BITS].into_boxed_slice(), base: 0 }
    }
}

impl Compressor {
    /// Compresses `bytes` into `out`; returns whether they became `bytes_max` or fewer.
    pub fn compress(&mut self, bytes: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> bool {
        out.clear();
        let Ok(length) = u32::try_from(bytes.len()) else { return false };
        if self.base.checked_add(length).is_none_or(|end| end == u32::MAX) {
            self.table.fill(0);
            self.base = 0;
        }
        let Some(end) = self.base.checked_add(length).and_then(|end| end.checked_add(1)) else { return false };
        let base = std::mem::replace(&mut self.base, end);
        let (mut at, mut run) = (0, 0);
        while at + 2 < bytes.len() {
            let three = u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]]);
            let slot = &mut self.table[(three.wrapping_mul(0x9e37_79b1) >> (32 - TABLE_BITS)) as usize];
            let seen = std::mem::replace(slot, base + at as u32 + 1);
            let from = (seen > base)
                .then(|| (seen - base - 1) as usize)
                .filter(|from| at - from <= DISTANCE_MAX && bytes[*from..from + 3] == bytes[at..at + 3]);
            let Some(from) = from else {
                at += 1;
                continue;
            };
            let most = COPY_MAX.min(bytes.len() - at);
            let same = (3..most).take_while(|n| bytes[from + n] == bytes[at + n]).count();
            let (count, distance) = (3 + same, at - from - 1);
            put_runs(out, &bytes[run..at]);
            let (high, low) = ((distance >> 8) as u8, distance as u8);
            match count - 2 {
                short @ 1..=6 => out.extend_from_slice(&[(short as u8) << 5 | high, low]),
                long => out.extend_from_slice(&[7 << 5 | high, (long - 7) as u8, low]),
            }
            if out.len() > bytes_max {
                return false;
            }
            at += count;
            run = at;
        }
        put_runs(out, &bytes[run..]);
        out.len() <= bytes_max
    }
}

fn put_runs(out: &mut Vec<u8>, bytes: &[u8]) {
    for run in bytes.chunks(RUN_MAX) {
        out.push(run.len() as u8 - 1);
        out.extend_from_slice(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(bytes: &[u8]) -> usize {
        let (mut compressed, mut back) = (Vec::new(), Vec::new());
        assert!(Compressor::default().compress(bytes, usize::MAX, &mut compressed));
        decompress(&compressed, bytes.len() as u64, &mut back).unwrap();
        assert!(back == bytes, "{} bytes", bytes.len());
        compressed.len()
    }

    #[test]
    fn what_was_compressed_comes_back() {
        assert_eq!(round_trip(b""), 0);
        assert_eq!(round_trip(b"abc"), 4);
        assert!(round_trip(&[b'a'; 100_000]) < 1_200);
        let mut state = 1u64;
        for len in (0..2000).chain([8191, 8192, 8193, 8194, 20_000]) {
            let bytes: Vec<u8> = (0..len)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    b"aab"[(state >> 40) as usize % 3]
                })
                .collect();
            round_trip(&bytes);
        }
    }

    #[test]
    fn a_compressor_forgets_the_strings_before() {
        let mut compressor = Compressor::default();
        let (mut out, mut back) = (Vec::new(), Vec::new());
        for base in [0, u32::MAX - 50, u32::MAX - 10] {
            compressor.base = base;
            for text in [&b"abcabcabcabcabcabcabcabcabc"[..], b"xyzabcxyzabcxyzabcxyzabcxyzabc"] {
                assert!(compressor.compress(text, text.len() - 4, &mut out));
                decompress(&out, text.len() as u64, &mut back).unwrap();
                assert_eq!(back, text);
            }
        }
    }

    #[test]
    fn what_does_not_get_shorter_is_left() {
        assert!(!Compressor::default().compress(b"abcdefghijklmnopqrstuvwxyz", 22, &mut Vec::new()));
    }

    #[test]
    fn bad_bytes_are_refused() {
        let check = |bytes: &[u8], length| assert!(decompress(bytes, length, &mut Vec::new()).is_err(), "{bytes:?}");
        check(&[0x20, 0], 3); // copies from before the beginning
        check(&[5, 1, 2], 6); // a run that is not there
        check(&[0, 1, 0xe0], 300); // a copy that is not there
        check(&[0, 1, 0, 2], 1); // more than the length
        check(&[0, 1], 2); // less
        check(&[0, 1], u64::MAX);
    }
}
