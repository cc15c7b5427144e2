//! Sparse registers: runs of equal values, in the order of the registers.
//!
//! ```text
//! 00llllll           ZERO:  1 to 64 registers that are 0; the length is one more than the number
//! 01llllll llllllll  XZERO: 1 to 16384 of them
//! 1vvvvvll           VAL:   1 to 4 registers of the same value, 1 to 32; both one more than the number
//! ```
//!
//! A change splits one run, and joins runs of one value near it that fit together: in exactly the places where Redis does, so
//! that the bytes are the same. Any bytes may be given: what does not parse, or is not of all registers, is refused.

use super::sketch::{Corrupt, HEADER_BYTES, REGISTERS};
use super::skip::{self, Start};
use smallvec::SmallVec;

const XZERO: u8 = 0x40;
const VAL: u8 = 0x80;
const ZERO_LEN_MAX: usize = 64;
const VAL_LEN_MAX: usize = 4;

/// The largest value that a run has.
pub const VALUE_MAX: u8 = 32;

/// Runs that are looked at after a change, whether they fit together.
const JOINED_MAX: usize = 5;

/// A run of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub value: u8,
    pub len: usize,
    bytes: usize,
}

impl Run {
    /// The run that begins with these bytes, of which there are some. Where the second byte of an XZERO is missing it counts as
    /// zero.
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

    /// Bytes that it takes, or would take if it were not cut off.
    pub fn bytes(self) -> usize {
        self.bytes
    }

    fn is_val(self) -> bool {
        self.value > 0
    }
}

/// The runs of these registers.
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

/// The byte of a run of 1 to 4 registers.
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

/// Where a register lies.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Where its run begins, and the run before it.
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

/// The run of a register. Most of what lies before it is passed eight bytes at a time.
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

/// Gives the register at `place`, which is lower, this value. False, and nothing is done, if the value is too large for a
/// run, or the sketch would be longer than `bytes_max` afterwards.
pub fn set(sketch: &mut Vec<u8>, place: &Place, register: usize, value: u8, bytes_max: usize) -> bool {
    if value > VALUE_MAX {
        return false;
    }
    let Place { run, first, .. } = *place;
    // One before, the register, one behind: five bytes at most.
    let mut split = SmallVec::<[u8; 5]>::new();
    let (left, right) = (register - first, first + run.len - 1 - register);
    let put = |split: &mut SmallVec<[u8; 5]>, len| match run.is_val() {
        true => put_val(split, run.value, len),
        false => put_zeros(split, len),
    };
    put(&mut split, left);
    put_val(&mut split, value, 1);
    put(&mut split, right);
    let at = HEADER_BYTES + place.at;
    if split.len() > run.bytes && sketch.len() + split.len() - run.bytes > bytes_max {
        return false;
    }
    // Of an XZERO at the end the second byte may be missing. Redis counts it as if it were there, and so loses the last byte of
    // what comes in its place.
    let is_cut_off = at + run.bytes > sketch.len();
    sketch.splice(at..(at + run.bytes).min(sketch.len()), split);
    if is_cut_off {
        sketch.pop();
    }
    join(sketch, HEADER_BYTES + place.before);
    true
}

/// Joins runs of one value that lie side by side, from `at` on, where one is long enough for both.
fn join(sketch: &mut Vec<u8>, mut at: usize) {
    let mut left = JOINED_MAX;
    while at < sketch.len() && left > 0 {
        left -= 1;
        let run = Run::parse(&sketch[at..]);
        if run.is_val() && at + 1 < sketch.len() {
            let next = Run::parse(&sketch[at + 1..]);
            if next.value == run.value && run.len + next.len <= VAL_LEN_MAX {
                sketch[at] = val(run.value, run.len + next.len);
                sketch.remove(at + 1);
                // What is longer now may take in the one behind it, too.
                continue;
            }
        }
        at += run.bytes;
    }
}

/// Makes each of `values` at least what its register has.
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

/// How many registers have each value.
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

/// The runs as PFDEBUG DECODE shows them.
pub fn decoded(registers: &[u8]) -> String {
    let shown = runs(registers).map(|run| match run {
        Run { value: 0, len, bytes: 1 } => format!("z:{len}"),
        Run { value: 0, len, .. } => format!("Z:{len}"),
        Run { value, len, .. } => format!("v:{value},{len}"),
    });
    shown.collect::<Vec<_>>().join(" ")
}
