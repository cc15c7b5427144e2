//! BITFIELD: integers of any width up to 64 bits at any bit of a string, the highest bit first. Owns their arithmetic
//! with its three ways to overflow, and the several steps of one command, which see each other's effects.

use super::Bitmap;
use crate::Result;
use crate::chunks::Chunked;
use crate::key::{self, Header, PATCH_FROM_BYTES};
use crate::string::{Form, INLINE_BYTES_MAX};
use haypile_store::{Key, Txn};
use std::ops::Range;

/// The kind of an integer: 1 to 64 bits, 63 without a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub signed: bool,
    pub bits: u8,
}

/// How a number that does not fit is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The number's low bits stay.
    #[default]
    Wrap,
    /// The number becomes the nearest one that fits.
    Sat,
    /// A number that does not fit is not written.
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Get,
    Set(i64, Overflow),
    Increment(i64, Overflow),
}

/// One integer, and the operation on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub operation: Operation,
    pub kind: Kind,
    /// The integer's first bit.
    pub offset: u64,
}

impl Step {
    /// Returns the byte that the integer's last bit is in.
    fn last_byte(&self) -> u64 {
        (self.offset + u64::from(self.kind.bits) - 1) / 8
    }
}

/// The answers of the steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The number asked for, before (GET, SET) or after the step (INCRBY); `None` where it would have overflown.
    pub values: Vec<Option<i64>>,
    /// Whether a step has written, and the string has become longer or a number another one.
    pub changed: bool,
}

impl Kind {
    /// Returns the smallest and the largest number.
    fn bounds(self) -> (i128, i128) {
        match self.signed {
            true => (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1),
            false => (0, (1 << self.bits) - 1),
        }
    }

    /// Returns the number whose low bits these are.
    fn of_bits(self, bits: u64) -> i64 {
        let unused = 64 - u32::from(self.bits);
        match self.signed {
            true => ((bits << unused) as i64) >> unused,
            false => ((bits << unused) >> unused) as i64,
        }
    }

    /// Returns the number that SET of a signed integer stands for. Redis computes how far it is from the largest one in
    /// 64 bits, where the distance of the least numbers does not fit: with SAT they become the largest.
    fn as_set(self, number: i64) -> i128 {
        let (_, most) = self.bounds();
        match number.checked_neg().and_then(|distance| distance.checked_add(most as i64)) {
            None if number < 0 && self.bits < 64 => i128::from(number) + (1 << 64),
            _ => i128::from(number),
        }
    }

    /// Makes a number one of this kind; `None` if it does not fit and has to.
    fn fit(self, number: i128, overflow: Overflow) -> Option<i64> {
        let (least, most) = self.bounds();
        if (least..=most).contains(&number) {
            return Some(number as i64);
        }
        match overflow {
            Overflow::Wrap => Some(self.of_bits(number as u64)),
            Overflow::Sat => Some(number.clamp(least, most) as i64),
            Overflow::Fail => None,
        }
    }
}

/// The most bytes that an integer may lie in.
const WINDOW: usize = 9;

/// The bytes around an integer as one number, and where in it the integer's lowest bit is.
struct Window {
    bits: u128,
    shift: u32,
    kind: Kind,
}

impl Window {
    fn new(bytes: [u8; WINDOW], step: &Step) -> Window {
        let mut wide = [0; 16];
        wide[16 - WINDOW..].copy_from_slice(&bytes);
        let shift = WINDOW as u32 * 8 - (step.offset % 8) as u32 - u32::from(step.kind.bits);
        Window { bits: u128::from_be_bytes(wide), shift, kind: step.kind }
    }

    fn get(&self) -> i64 {
        self.kind.of_bits((self.bits >> self.shift) as u64)
    }

    fn set(&mut self, number: i64) {
        let mask = ((1u128 << self.kind.bits) - 1) << self.shift;
        self.bits = self.bits & !mask | ((number as u128) << self.shift) & mask;
    }

    fn bytes(&self) -> [u8; WINDOW] {
        let wide = self.bits.to_be_bytes();
        wide[16 - WINDOW..].try_into().expect("the last bytes")
    }
}

/// Returns the numbers that the steps, all of them GET, ask for.
pub fn read(txn: &mut Txn<'_>, key: &Key<'_>, steps: &[Step]) -> Result<Outcome> {
    let Some(bitmap) = Bitmap::lookup(txn, key)? else {
        return Ok(Outcome { values: vec![Some(0); steps.len()], changed: false });
    };
    let get = |step: &Step| Ok(Some(Window::new(bitmap.bytes(txn, step.offset / 8)?, step).get()));
    Ok(Outcome { values: steps.iter().map(get).collect::<Result<_>>()?, changed: false })
}

/// Carries out the steps, of which one writes at least, in order. The string grows as far as any of them writes, even
/// if they all fail.
pub fn change(txn: &mut Txn<'_>, key: &Key<'_>, steps: &[Step]) -> Result<Outcome> {
    let writes = steps.iter().filter(|step| step.operation != Operation::Get);
    let length = writes.map(|step| step.last_byte() + 1).max().unwrap_or(0);
    let mut draft = Draft::new(txn, key, length)?;
    let mut outcome = Outcome::default();
    for step in steps {
        let mut window = Window::new(draft.bytes(txn, step.offset / 8)?, step);
        let before = window.get();
        let (number, overflow, answers_before) = match step.operation {
            Operation::Get => {
                outcome.values.push(Some(before));
                continue;
            }
            // Without a sign a negative number is a huge one, as in Redis.
            Operation::Set(number, overflow) if step.kind.signed => (step.kind.as_set(number), overflow, true),
            Operation::Set(number, overflow) => (i128::from(number as u64), overflow, true),
            Operation::Increment(by, overflow) => (i128::from(before) + i128::from(by), overflow, false),
        };
        let Some(after) = step.kind.fit(number, overflow) else {
            outcome.values.push(None);
            continue;
        };
        outcome.values.push(Some(if answers_before { before } else { after }));
        outcome.changed |= draft.has_grown || before != after;
        if before != after {
            window.set(after);
            let len = (step.last_byte() - step.offset / 8 + 1) as usize;
            draft.write(txn, step.offset / 8, &window.bytes()[..len])?;
        }
    }
    draft.finish(txn, key)?;
    Ok(outcome)
}

/// A string that several steps change, written when all are done.
struct Draft {
    before: Option<Header>,
    /// Whether the string was created, or is longer than before.
    has_grown: bool,
    state: State,
}

enum State {
    /// The whole string, its length before, and the part of it that has changed.
    Inline { bytes: Vec<u8>, len_before: usize, changed: Option<Range<usize>> },
    /// A string in chunks, whose changes are patches already; the meta row is still to be written.
    Chunked { chunked: Chunked, is_changed: bool },
}

impl Draft {
    /// Opens the string of a key, made `length` bytes long at least.
    fn new(txn: &mut Txn<'_>, key: &Key<'_>, length: u64) -> Result<Draft> {
        let entry = key::lookup_write(txn, key)?;
        let (before, form) = match &entry {
            Some(entry) => (Some(entry.header), Form::of(key, entry)?),
            None => (None, Form::Inline),
        };
        let payload = match &form {
            Form::Inline => entry.as_ref().map_or(&[][..], |entry| entry.payload()),
            Form::Chunked(_) => &[],
        };
        let state = match form {
            Form::Inline if length.max(payload.len() as u64) <= INLINE_BYTES_MAX as u64 => {
                let mut bytes = Vec::with_capacity(payload.len().max(length as usize));
                bytes.extend_from_slice(payload);
                bytes.resize(payload.len().max(length as usize), 0);
                State::Inline { bytes, len_before: payload.len(), changed: None }
            }
            Form::Inline => {
                let mut chunked = Chunked::new(txn, key)?;
                chunked.write(txn, 0, payload)?;
                State::Chunked { chunked, is_changed: false }
            }
            Form::Chunked(chunked) => State::Chunked { chunked, is_changed: false },
        };
        let mut draft = Draft { before, has_grown: before.is_none(), state };
        match &mut draft.state {
            State::Inline { bytes, len_before, .. } => draft.has_grown |= bytes.len() > *len_before,
            State::Chunked { chunked, .. } if chunked.length < length => {
                // Bytes without a row read as zeros.
                chunked.length = length;
                draft.has_grown = true;
            }
            State::Chunked { .. } => {}
        }
        Ok(draft)
    }

    fn bytes(&self, txn: &mut Txn<'_>, at: u64) -> Result<[u8; WINDOW]> {
        let mut window = [0; WINDOW];
        match &self.state {
            State::Inline { bytes, .. } => {
                let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
                let len = rest.len().min(WINDOW);
                window[..len].copy_from_slice(&rest[..len]);
            }
            State::Chunked { chunked, .. } => {
                let len = chunked.length.saturating_sub(at).min(WINDOW as u64) as usize;
                chunked.read_into(txn, at, &mut window[..len])?;
            }
        }
        Ok(window)
    }

    fn write(&mut self, txn: &mut Txn<'_>, at: u64, part: &[u8]) -> Result<()> {
        match &mut self.state {
            State::Inline { bytes, changed, .. } => {
                let range = at as usize..at as usize + part.len();
                bytes[range.clone()].copy_from_slice(part);
                *changed = Some(match changed.take() {
                    Some(other) => other.start.min(range.start)..other.end.max(range.end),
                    None => range,
                });
                Ok(())
            }
            State::Chunked { chunked, is_changed } => {
                *is_changed = true;
                chunked.write(txn, at, part)
            }
        }
    }

    fn finish(self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        let Draft { before, has_grown, state } = self;
        match state {
            State::Inline { changed: None, .. } | State::Chunked { is_changed: false, .. } if !has_grown => Ok(()),
            State::Inline { bytes, len_before, changed } => match before {
                Some(header) if len_before >= PATCH_FROM_BYTES => {
                    // A string that only grows is given its last byte.
                    let part = changed.unwrap_or(bytes.len() - 1..bytes.len());
                    key::patch(txn, key, &header, part.start, &bytes[part], bytes.len())
                }
                _ => {
                    let header = before.unwrap_or(Header::inline(None));
                    key::write(txn, key, before.as_ref(), &header, &[&bytes])
                }
            },
            State::Chunked { chunked, .. } => {
                let deadline_ms = before.and_then(|before| before.deadline_ms);
                key::write(txn, key, before.as_ref(), &chunked.header(deadline_ms), &[&chunked.payload()])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: Kind, number: i128, expected: [Option<i64>; 3]) {
        let found = [Overflow::Wrap, Overflow::Sat, Overflow::Fail].map(|overflow| kind.fit(number, overflow));
        assert_eq!(found, expected, "{kind:?} {number}");
    }

    #[test]
    fn a_number_that_does_not_fit_wraps_saturates_or_fails() {
        let (i8_, u8_) = (Kind { signed: true, bits: 8 }, Kind { signed: false, bits: 8 });
        let (i64_, u63) = (Kind { signed: true, bits: 64 }, Kind { signed: false, bits: 63 });
        check(i8_, 127, [Some(127); 3]);
        check(i8_, 128, [Some(-128), Some(127), None]);
        check(i8_, -129, [Some(127), Some(-128), None]);
        check(u8_, 256, [Some(0), Some(255), None]);
        check(u8_, -1, [Some(255), Some(0), None]);
        check(i64_, i128::from(i64::MAX) + 1, [Some(i64::MIN), Some(i64::MAX), None]);
        check(i64_, i128::from(i64::MIN) - 1, [Some(i64::MAX), Some(i64::MIN), None]);
        check(u63, 1 << 63, [Some(0), Some(i64::MAX), None]);
        check(Kind { signed: true, bits: 1 }, 1, [Some(-1), Some(0), None]);
    }

    #[test]
    fn an_integer_at_any_bit_leaves_its_neighbours_alone() {
        for (signed, most) in [(true, 64), (false, 63)] {
            for bits in 1..=most {
                for offset in 0..8 {
                    let step = Step { operation: Operation::Get, kind: Kind { signed, bits }, offset };
                    for (around, number) in [(0x00, -1i64), (0xff, 0), (0x5a, 0x1234_5678_9abc_def1)] {
                        let mut window = Window::new([around; WINDOW], &step);
                        let number = step.kind.of_bits(number as u64);
                        window.set(number);
                        assert_eq!(window.get(), number, "{step:?}");
                        let (after, before) = (Window::new(window.bytes(), &step), [around; WINDOW]);
                        assert_eq!(after.get(), number, "{step:?}");
                        for bit in (0..72).filter(|bit| !(offset..offset + u64::from(bits)).contains(bit)) {
                            let of = |bytes: &[u8]| bytes[bit as usize / 8] & (0x80 >> (bit % 8));
                            assert_eq!(of(&after.bytes()), of(&before), "bit {bit} of {step:?}");
                        }
                    }
                }
            }
        }
    }
}
