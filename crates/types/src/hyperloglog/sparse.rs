//! Sparse registers: runs of equal values, in the order of the registers.
//!
//! ```text
//! 00llllll           ZERO:  1 to 64 registers that are 0; the length is one more than the number
//! 01llllll llllllll  XZERO: 1 to 16384 of them
//! 1vvvvvll           VAL:   1 to 4 registers of the same value, 1 to 32; both one more than the number
//! ```
//!
//! A change splits one run, and joins runs of one value near it that fit together, in exactly the places where Redis
//! does, so that the bytes are the same. A change is found in the few bytes that it may touch. Any bytes may be given:
//! those that do not parse, or are not of all registers, are refused.

use super::layout::{Corrupt, HEADER_BYTES, REGISTERS};
use super::skip::{self, Start};
use smallvec::SmallVec;

const XZERO: u8 = 0x40;
const VAL: u8 = 0x80;
const ZERO_LEN_MAX: usize = 64;
const VAL_LEN_MAX: usize = 4;

/// The largest value that a run has.
pub const VALUE_MAX: u8 = 32;

/// The most runs after a change that are tested for whether they fit together.
const JOINED_MAX: usize = 5;

/// A run of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub value: u8,
    pub len: usize,
    bytes: usize,
}

impl Run {
    /// Parses the run that begins with these bytes, at least one. Where the second byte of an XZERO is missing it
    /// counts as zero.
    #[inline]
    fn parse(bytes: &[u8]) -> Run {
        let first = bytes[0];
        let low = usize::from(first & 0x3f);
        match first & (VAL | XZERO) {
            0 => Run { value: 0, len: low + 1, bytes: 1 },
            XZERO => {
                let second = usize::from(bytes.get(1).copied().unwrap_or(0));
                Run { value: 0, len: (low << 8 | second) + 1, bytes: 2 }
            }
            _ => Run { value: (first >> 2 & 0x1f) + 1, len: usize::from(first & 3) + 1, bytes: 1 },
        }
    }

    /// Returns the bytes that the run takes, or would take if it were not cut off.
    pub fn bytes(self) -> usize {
        self.bytes
    }

    fn is_val(self) -> bool {
        self.value > 0
    }
}

/// Returns the runs of these registers.
pub fn runs(registers: &[u8]) -> impl Iterator<Item = Run> {
    let mut rest = registers;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let run = Run::parse(rest);
        rest = rest.get(run.bytes..).unwrap_or_default();
        Some(run)
    })
}

fn put_val(bytes: &mut impl Extend<u8>, value: u8, len: usize) {
    if len > 0 {
        bytes.extend([val(value, len)]);
    }
}

/// Returns the byte of a run of 1 to 4 registers.
fn val(value: u8, len: usize) -> u8 {
    VAL | (value - 1) << 2 | (len - 1) as u8
}

/// Adds a run of zeros, of any length up to that of all registers.
pub fn put_zeros(bytes: &mut impl Extend<u8>, len: usize) {
    match len {
        0 => {}
        1..=ZERO_LEN_MAX => bytes.extend([(len - 1) as u8]),
        _ => bytes.extend([XZERO | ((len - 1) >> 8) as u8, (len - 1) as u8]),
    }
}

/// The place of a register.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The offset of the register's run, and of the run before it.
    at: usize,
    before: usize,
    run: Run,
    /// The run's first register.
    first: usize,
}

impl Place {
    pub fn value(&self) -> u8 {
        self.run.value
    }
}

/// Finds the run of a register. Most runs before it are passed eight bytes at a time.
pub fn find(registers: &[u8], register: usize) -> Result<Place, Corrupt> {
    let Start { mut at, mut first } = skip::most(registers, register);
    let mut before = at;
    while at < registers.len() {
        let run = Run::parse(&registers[at..]);
        if register < first + run.len {
            return Ok(Place { at, before, run, first });
        }
        before = at;
        at += run.bytes;
        first += run.len;
    }
    Err(Corrupt)
}

/// A raised register as a change of the HyperLogLog: `bytes` in place of the `removed` ones at `at`. Few of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub at: usize,
    pub removed: usize,
    pub bytes: SmallVec<[u8; WINDOW_MAX]>,
}

/// Bytes behind the run of a register that joining looks at, at most: two for each run.
const BEHIND_MAX: usize = 2 * (JOINED_MAX + 1);

/// A run before the register's, five bytes in place of that, and what is behind.
const WINDOW_MAX: usize = 2 + 5 + BEHIND_MAX;

impl Change {
    pub fn len_after(&self, len_before: usize) -> usize {
        len_before - self.removed + self.bytes.len()
    }

    pub fn apply_to(self, hll: &mut Vec<u8>) {
        hll.splice(self.at..self.at + self.removed, self.bytes);
    }
}

/// Returns the change that gives the register at `place`, which is lower, this value. `None` if the value is too large
/// for a run, or the HyperLogLog would be longer than `bytes_max` afterwards.
pub fn raised(hll: &[u8], place: &Place, register: usize, value: u8, bytes_max: usize) -> Option<Change> {
    raised_within(hll, place, register, value, bytes_max, BEHIND_MAX)
}

/// Returns the change of `raised`, looking at so many bytes behind the run of the register.
fn raised_within(
    hll: &[u8],
    place: &Place,
    register: usize,
    value: u8,
    bytes_max: usize,
    behind_max: usize,
) -> Option<Change> {
    if value > VALUE_MAX {
        return None;
    }
    let Place { run, first, .. } = *place;
    // The parts before, at and behind the register: five bytes at most.
    let mut split = SmallVec::<[u8; 5]>::new();
    let (left, right) = (register - first, first + run.len - 1 - register);
    let put = |split: &mut SmallVec<[u8; 5]>, len| match run.is_val() {
        true => put_val(split, run.value, len),
        false => put_zeros(split, len),
    };
    put(&mut split, left);
    put_val(&mut split, value, 1);
    put(&mut split, right);
    if split.len() > run.bytes && hll.len() + split.len() - run.bytes > bytes_max {
        return None;
    }
    let (before, at) = (HEADER_BYTES + place.before, HEADER_BYTES + place.at);
    let end = (at + run.bytes).min(hll.len());
    let window = &hll[before..hll.len().min(end + behind_max)];
    let mut bytes = SmallVec::from_slice(&hll[before..at]);
    bytes.extend_from_slice(&split);
    bytes.extend_from_slice(&window[end - before..]);
    // The second byte of an XZERO at the end may be missing. Redis counts it as if it were there, and so loses the last
    // byte of what comes in its place.
    if at + run.bytes > hll.len() {
        bytes.pop();
    }
    join(&mut bytes);
    debug_assert!(
        at + run.bytes > hll.len() || registers(window) == registers(&bytes),
        "Invariant: the runs are those of all registers, after a change as before"
    );
    // Equal bytes at both ends stay.
    let head = window.iter().zip(&bytes).take_while(|(old, new)| old == new).count();
    let tails = window[head..].iter().rev().zip(bytes[head..].iter().rev());
    let tail = tails.take_while(|(old, new)| old == new).count();
    bytes.truncate(bytes.len() - tail);
    bytes.drain(..head);
    Some(Change { at: before + head, removed: window.len() - head - tail, bytes })
}

/// Returns how many registers the runs of these bytes have.
fn registers(bytes: &[u8]) -> usize {
    runs(bytes).map(|run| run.len).sum()
}

/// Joins runs of one value that lie side by side, from the first byte on, where one is long enough for both.
fn join(bytes: &mut SmallVec<[u8; WINDOW_MAX]>) {
    let (mut at, mut left) = (0, JOINED_MAX);
    while at < bytes.len() && left > 0 {
        left -= 1;
        let run = Run::parse(&bytes[at..]);
        if run.is_val() && at + 1 < bytes.len() {
            let next = Run::parse(&bytes[at + 1..]);
            if next.value == run.value && run.len + next.len <= VAL_LEN_MAX {
                bytes[at] = val(run.value, run.len + next.len);
                bytes.remove(at + 1);
                // The longer run may take in the one behind it, too.
                continue;
            }
        }
        at += run.bytes;
    }
}

/// Makes each of `values` at least its register's value.
pub fn merge(registers: &[u8], values: &mut [u8; REGISTERS]) -> Result<(), Corrupt> {
    let mut first = 0;
    for run in runs(registers) {
        let covered = values.get_mut(first..first + run.len).ok_or(Corrupt)?;
        if run.is_val() {
            covered.iter_mut().for_each(|value| *value = (*value).max(run.value));
        }
        first += run.len;
    }
    if first == REGISTERS { Ok(()) } else { Err(Corrupt) }
}

/// Counts the registers that have each value.
pub fn histogram(registers: &[u8]) -> Result<[u32; 64], Corrupt> {
    let mut counts = [0; 64];
    let mut all = 0;
    for run in runs(registers) {
        counts[usize::from(run.value)] += run.len as u32;
        all += run.len;
        if all > REGISTERS {
            return Err(Corrupt);
        }
    }
    if all == REGISTERS { Ok(counts) } else { Err(Corrupt) }
}

/// Returns the runs as PFDEBUG DECODE shows them.
pub fn decoded(registers: &[u8]) -> String {
    let shown = runs(registers).map(|run| match run {
        Run { value: 0, len, bytes: 1 } => format!("z:{len}"),
        Run { value: 0, len, .. } => format!("Z:{len}"),
        Run { value, len, .. } => format!("v:{value},{len}"),
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_further_behind_is_of_no_meaning() {
        let mut state = 7u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for round in 0..20_000 {
            let mut hll = vec![0; HEADER_BYTES];
            let kinds = [1, 2, 4][round % 3];
            let len = 1 + random(60);
            hll.extend((0..len).map(|_| match random(kinds) {
                // Short runs of few values, which fit together.
                0 => val([1, 2][random(2)], 1 + random(2)),
                1 => random(3) as u8,
                2 => XZERO | random(2) as u8,
                _ => random(256) as u8,
            }));
            let all: usize = runs(&hll[HEADER_BYTES..]).map(|run| run.len).sum();
            let register = random(all);
            let place = find(&hll[HEADER_BYTES..], register).expect("it is covered");
            let value = place.value() + 1 + random(2) as u8;
            let near = raised(&hll, &place, register, value, usize::MAX);
            let far = raised_within(&hll, &place, register, value, usize::MAX, 1000);
            assert_eq!(near, far, "register {register} to {value} in {hll:?}");
            if let Some(change) = near {
                let mut after = hll.clone();
                let len_after = change.len_after(hll.len());
                change.apply_to(&mut after);
                assert_eq!(after.len(), len_after);
                assert_eq!(after[..HEADER_BYTES], hll[..HEADER_BYTES]);
            }
        }
    }
}
