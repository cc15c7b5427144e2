//! Small changes of rows, of which only the change is logged: a patch writes over bytes, a splice takes some out and
//! puts others in their place. Owns the effect that they have on a row, and the rule which of them make sense; module
//! `entry` knows where a row lies.

use haypile_log::Effect;
use std::ops::Range;

/// A patch: `bytes` written at `offset`, the row zero-extended or cut to `len_after` bytes. Any row can be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch<'a> {
    pub offset: u32,
    pub bytes: &'a [u8],
    pub len_after: u32,
}

/// A splice: `bytes` in place of the `removed` ones at `offset`; the bytes behind them move. The row is `len_after`
/// bytes long afterwards, which tells how long it was before: a splice of a row of another length makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splice<'a> {
    pub offset: u32,
    pub removed: u32,
    pub bytes: &'a [u8],
    pub len_after: u32,
}

/// A patch or a splice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    Patch(Patch<'a>),
    Splice(Splice<'a>),
}

impl<'a> Change<'a> {
    /// Returns the change that an effect makes, and the row; `None` if the effect writes the row as a whole, or none.
    pub fn of(effect: &Effect<'a>) -> Option<(&'a [u8], Change<'a>)> {
        match *effect {
            Effect::Patch { key, offset, bytes, len_after } => {
                Some((key, Change::Patch(Patch { offset, bytes, len_after })))
            }
            Effect::Splice { key, offset, removed, bytes, len_after } => {
                Some((key, Change::Splice(Splice { offset, removed, bytes, len_after })))
            }
            Effect::Put { .. }
            | Effect::Delete { .. }
            | Effect::Count { .. }
            | Effect::Touch { .. }
            | Effect::Statement { .. } => None,
        }
    }

    pub fn len_after(&self) -> usize {
        match self {
            Change::Patch(patch) => patch.len_after as usize,
            Change::Splice(splice) => splice.len_after as usize,
        }
    }

    /// Returns whether the change makes sense for any row: a change that comes from disk is checked before it is
    /// applied.
    pub fn fits(&self) -> bool {
        let within = |offset: u32, bytes: &[u8], len: u32| u64::from(offset) + bytes.len() as u64 <= u64::from(len);
        match self {
            Change::Patch(patch) => within(patch.offset, patch.bytes, patch.len_after),
            Change::Splice(splice) => {
                within(splice.offset, splice.bytes, splice.len_after)
                    && u32::try_from(
                        u64::from(splice.len_after) - splice.bytes.len() as u64 + u64::from(splice.removed),
                    )
                    .is_ok()
            }
        }
    }

    /// Returns whether the change makes sense for a row of this length, a missing row's being zero; an error says why
    /// not. The change `fits`.
    pub fn suits(&self, len_before: usize) -> Result<(), String> {
        match self {
            Change::Splice(splice) if splice.len_before() != len_before => {
                Err(format!("a splice is of a row of {} bytes, and finds {len_before}", splice.len_before()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the row after the change.
    pub fn apply(&self, before: &[u8]) -> Vec<u8> {
        let mut row = vec![0; self.len_after()];
        self.copy(before, &mut row);
        row
    }

    /// Changes a row in a buffer that belongs to the caller.
    pub fn apply_to(&self, row: &mut Vec<u8>) {
        let len_before = row.len();
        row.resize(len_before.max(self.len_after()), 0);
        self.write(row, len_before);
        row.truncate(self.len_after());
    }

    /// Makes `row`, which is of the right length and zero, the row that `before` becomes. Panics if the change does not
    /// suit `before`.
    pub fn copy(&self, before: &[u8], row: &mut [u8]) {
        match self {
            Change::Patch(patch) => {
                let kept = before.len().min(row.len());
                row[..kept].copy_from_slice(&before[..kept]);
                row[patch.written()].copy_from_slice(patch.bytes);
            }
            Change::Splice(splice) => {
                assert_eq!(splice.len_before(), before.len(), "a splice is of the row that it was made for");
                let Range { start, end } = splice.written();
                row[..start].copy_from_slice(&before[..start]);
                row[start..end].copy_from_slice(splice.bytes);
                row[end..].copy_from_slice(&before[splice.tail()..]);
            }
        }
    }

    /// Changes a row where it lies, in room for the row before and after. Panics if the change does not suit the row.
    pub fn write(&self, room: &mut [u8], len_before: usize) {
        match self {
            Change::Patch(patch) => {
                if let Some(more) = room.get_mut(len_before..patch.len_after as usize) {
                    more.fill(0);
                }
                room[patch.written()].copy_from_slice(patch.bytes);
            }
            Change::Splice(splice) => {
                assert_eq!(splice.len_before(), len_before, "a splice is of the row that it was made for");
                let written = splice.written();
                if splice.tail() != written.end {
                    room.copy_within(splice.tail()..len_before, written.end);
                }
                room[written].copy_from_slice(splice.bytes);
            }
        }
    }
}

impl Patch<'_> {
    fn written(&self) -> Range<usize> {
        self.offset as usize..self.offset as usize + self.bytes.len()
    }
}

impl Splice<'_> {
    pub fn len_before(&self) -> usize {
        self.len_after as usize - self.bytes.len() + self.removed as usize
    }

    fn written(&self) -> Range<usize> {
        self.offset as usize..self.offset as usize + self.bytes.len()
    }

    /// Returns where the bytes that stay behind the change begin before the change.
    fn tail(&self) -> usize {
        self.offset as usize + self.removed as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splice(offset: u32, removed: u32, bytes: &[u8], len_after: u32) -> Change<'_> {
        Change::Splice(Splice { offset, removed, bytes, len_after })
    }

    fn patch(offset: u32, bytes: &[u8], len_after: u32) -> Change<'_> {
        Change::Patch(Patch { offset, bytes, len_after })
    }

    #[test]
    fn a_row_becomes_the_same_wherever_it_is_changed() {
        let check = |name: &str, change: Change<'_>, before: &[u8], after: &[u8]| {
            assert!(change.fits() && change.suits(before.len()).is_ok(), "{name}");
            assert_eq!(change.apply(before), after, "{name}");
            let mut row = before.to_vec();
            change.apply_to(&mut row);
            assert_eq!(row, after, "{name}, in its buffer");
            // The bytes in the room behind a row have no meaning.
            let mut room = before.to_vec();
            room.resize(before.len().max(after.len()) + 3, b'?');
            change.write(&mut room, before.len());
            assert_eq!(&room[..after.len()], after, "{name}, where it lies");
        };
        check("a patch in the middle", patch(1, b"X", 3), b"abc", b"aXc");
        check("a patch behind the end", patch(4, b"X", 6), b"abc", b"abc\0X\0");
        check("a patch that cuts", patch(0, b"X", 2), b"abc", b"Xb");
        check("a patch of nothing", patch(1, b"X", 2), b"", b"\0X");
        check("an insertion", splice(1, 0, b"XY", 5), b"abc", b"aXYbc");
        check("at the beginning", splice(0, 1, b"XY", 4), b"abc", b"XYbc");
        check("at the end", splice(3, 0, b"XY", 5), b"abc", b"abcXY");
        check("a removal", splice(1, 2, b"", 2), b"abcd", b"ad");
        check("an exchange", splice(1, 2, b"XY", 4), b"abcd", b"aXYd");
        check("one that shortens", splice(1, 2, b"X", 3), b"abcd", b"aXd");
        check("of nothing", splice(0, 0, b"XY", 2), b"", b"XY");
        check("of all", splice(0, 3, b"", 0), b"abc", b"");
    }

    #[test]
    fn what_makes_no_sense_is_known() {
        assert!(!patch(2, b"XY", 3).fits(), "a patch behind its row");
        assert!(!splice(2, 0, b"XY", 3).fits(), "a splice behind its row");
        assert!(!splice(u32::MAX, 0, b"XY", u32::MAX).fits(), "a splice beyond 32 bits");
        assert!(!splice(0, u32::MAX, b"X", 2).fits(), "a row that was longer than rows are");
        assert!(splice(0, u32::MAX, b"X", 1).fits(), "the longest one");
        for len_before in [0, 2, 4] {
            assert!(splice(1, 1, b"X", 3).suits(len_before).is_err(), "another row");
        }
    }
}
