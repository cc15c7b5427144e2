//! A row of the memtable: everything that a reader needs of the row in one block, so that a lookup reads it with one
//! cache miss.

use super::{Change, Found};
use crate::access::{Access, Stamp};
use crate::value::Value;
use haypile_log::Index;
use std::sync::Arc;

/// A row or its tombstone. Cheap to clone; a clone keeps the row as it was.
///
/// Invariant: a shared block never changes. So the stamp lies beside the block's address, which a lookup has read
/// anyway, and takes the room that the length of the key leaves there.
#[derive(Clone)]
pub struct RowEntry {
    /// `record: u56 | slack: u8 | key | value | slack`: the last `slack` bytes are not used.
    block: Arc<[u8]>,
    /// Bytes of the key, and `LIVE` unless the row is deleted.
    key_bytes: u32,
    /// The last use of the key. Of no use in rows that are not a key's.
    stamp: Stamp,
}

const KEY_AT: usize = 8;
/// The place of `slack`: the highest byte of the record's index, which is zero for the first two thousand years at a
/// million records a second.
const SLACK_AT: usize = KEY_AT - 1;
const SLACK_MAX: usize = u8::MAX as usize;
/// The part of a value's length that is added as room when a splice makes the value grow: the splices that follow need
/// no new block.
const SLACK_PART: usize = 32;
const LIVE: u32 = 1 << 31;

/// Bytes that an entry takes besides its block: its two places in a run with the room that runs keep, the block's
/// counters and the allocator's share.
const ENTRY_BYTES: i64 = 72;

impl RowEntry {
    #[inline]
    pub fn new(key: &[u8], value: Option<&[u8]>, index: Index, access: Access) -> Self {
        const STACK_BYTES: usize = 512;
        let (live, value) = (if value.is_some() { LIVE } else { 0 }, value.unwrap_or_default());
        let len = KEY_AT + key.len() + value.len();
        let fill = |block: &mut [u8]| {
            block[..KEY_AT].copy_from_slice(&head(index, 0));
            block[KEY_AT..KEY_AT + key.len()].copy_from_slice(key);
            block[KEY_AT + key.len()..].copy_from_slice(value);
        };
        let block = if len <= STACK_BYTES {
            // Short rows pass over the stack, so that there is one allocation and nothing to zero.
            let mut block = [0; STACK_BYTES];
            fill(&mut block[..len]);
            Arc::from(&block[..len])
        } else {
            let mut block: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
            fill(Arc::get_mut(&mut block).expect("nobody else has seen this block"));
            block
        };
        RowEntry { block, key_bytes: key.len() as u32 | live, stamp: Stamp::new(access) }
    }

    #[inline]
    fn value_at(&self) -> usize {
        KEY_AT + (self.key_bytes & !LIVE) as usize
    }

    #[inline]
    fn value_end(&self) -> usize {
        self.block.len() - usize::from(self.block[SLACK_AT])
    }

    #[inline]
    pub fn is_live(&self) -> bool {
        self.key_bytes & LIVE != 0
    }

    /// Returns the row's key.
    #[inline]
    pub fn row(&self) -> &[u8] {
        &self.block[KEY_AT..self.value_at()]
    }

    /// Returns the part of the row's key behind its first bytes.
    #[inline]
    pub fn behind<const PREFIX: usize>(&self) -> &[u8] {
        &self.block[KEY_AT + PREFIX..self.value_at()]
    }

    /// Returns the value; `None`: deleted.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        self.is_live().then(|| &self.block[self.value_at()..self.value_end()])
    }

    /// Returns the value as a handle on the block.
    #[inline]
    pub fn shared_value(&self) -> Option<Value> {
        self.is_live().then(|| Value::new(self.block.clone(), self.value_at()..self.value_end()))
    }

    /// Returns the index of the record that wrote the row.
    #[inline]
    pub fn index(&self) -> Index {
        let head = u64::from_le_bytes(self.block[..KEY_AT].try_into().expect("eight bytes"));
        Index(head & !(0xff << (8 * SLACK_AT)))
    }

    #[inline]
    pub fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    #[inline]
    pub fn found(&self) -> Found {
        match self.shared_value() {
            Some(value) => Found::Row(value, self.index()),
            None => Found::Deleted(self.index()),
        }
    }

    /// Returns the bytes that the row takes in the memtable.
    pub fn bytes(&self) -> i64 {
        self.block.len() as i64 + ENTRY_BYTES
    }

    /// Reads the lengths, which lie beside the block's address: a prefetch. The sum is of no use.
    #[inline]
    pub fn touch(&self) -> usize {
        self.block.len() + self.key_bytes as usize
    }

    /// Reads a byte of the key's cache line: a prefetch. The byte is of no use.
    #[inline]
    pub fn touch_line(&self) -> usize {
        usize::from(self.block[KEY_AT])
    }

    /// Reads a byte of each of the first cache lines of the block: a prefetch. The bytes are of no use.
    #[inline]
    pub fn touch_block(&self) -> usize {
        const LINE_BYTES: usize = 64;
        const LINES: usize = 4;
        self.block.iter().step_by(LINE_BYTES).take(LINES).map(|byte| usize::from(*byte)).sum()
    }

    /// Writes a new value for a known key: in place where no other handle shares the block and the length stays.
    /// Returns the growth.
    #[inline]
    pub fn overwrite(&mut self, key: &[u8], value: Option<&[u8]>, index: Index, access: Access) -> i64 {
        debug_assert!(self.index() <= index, "records write a row in their order: {index} after {}", self.index());
        let value_at = self.value_at();
        if let Some(new) = value
            && self.value_end() == value_at + new.len()
            && let Some(block) = Arc::get_mut(&mut self.block)
        {
            let slack = block[SLACK_AT];
            block[..KEY_AT].copy_from_slice(&head(index, slack));
            block[value_at..value_at + new.len()].copy_from_slice(new);
            self.key_bytes |= LIVE;
            self.stamp = Stamp::new(access);
            return 0;
        }
        let before = self.bytes();
        *self = RowEntry::new(key, value, index, access);
        self.bytes() - before
    }

    /// Applies a small change, to a deleted row as to an empty one: in place as for `overwrite`, and where a splice
    /// finds room behind the value. Returns the growth.
    pub fn change(&mut self, change: Change<'_>, index: Index, access: Access) -> i64 {
        debug_assert!(self.index() <= index, "records change a row in their order: {index} after {}", self.index());
        let (value_at, value_end, len_after) = (self.value_at(), self.value_end(), change.len_after());
        if self.is_live()
            && let Some(slack) = self.slack_of(change, value_at + len_after)
            && let Some(block) = Arc::get_mut(&mut self.block)
        {
            block[..KEY_AT].copy_from_slice(&head(index, slack));
            change.write(&mut block[value_at..], value_end - value_at);
            self.stamp = Stamp::new(access);
            return 0;
        }
        let before = self.bytes();
        let slack = match change {
            Change::Splice(splice) if len_after > splice.len_before() => (len_after / SLACK_PART).min(SLACK_MAX),
            _ => 0,
        };
        // The row is copied once, and the change written over the copy.
        let mut block: Arc<[u8]> = std::iter::repeat_n(0, value_at + len_after + slack).collect();
        let bytes = Arc::get_mut(&mut block).expect("nobody else has seen this block");
        bytes[..KEY_AT].copy_from_slice(&head(index, slack as u8));
        bytes[KEY_AT..value_at].copy_from_slice(self.row());
        change.copy(self.value().unwrap_or_default(), &mut bytes[value_at..value_at + len_after]);
        *self = RowEntry { block, key_bytes: self.row().len() as u32 | LIVE, stamp: Stamp::new(access) };
        self.bytes() - before
    }

    /// Returns how many bytes are left behind the value if a change makes the value end there in this block; `None` if
    /// the row is to have another block.
    fn slack_of(&self, change: Change<'_>, value_end: usize) -> Option<u8> {
        match change {
            Change::Patch(_) => (value_end == self.value_end()).then_some(self.block[SLACK_AT]),
            Change::Splice(_) => {
                self.block.len().checked_sub(value_end).filter(|slack| *slack <= SLACK_MAX).map(|slack| slack as u8)
            }
        }
    }
}

/// Returns the first bytes of a block.
#[inline]
fn head(index: Index, slack: u8) -> [u8; KEY_AT] {
    let mut head = index.0.to_le_bytes();
    debug_assert_eq!(head[SLACK_AT], 0, "indexes do not get that far");
    head[SLACK_AT] = slack;
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::Splice;

    fn insert(at: u32, bytes: &[u8], len_after: usize) -> Change<'_> {
        Change::Splice(Splice { offset: at, removed: 0, bytes, len_after: len_after as u32 })
    }

    #[test]
    fn a_row_that_is_spliced_keeps_its_block_while_there_is_room_and_nobody_reads() {
        let mut expected = vec![b'v'; 600];
        let mut entry = RowEntry::new(b"key", Some(&expected), Index(1), Access::at(0));
        let (mut bytes, mut blocks) = (entry.bytes(), 1);
        for at in 0..200u32 {
            let before = (entry.block.as_ptr(), entry.value().expect("live").to_vec());
            let reader = (at % 50 == 0).then(|| entry.shared_value().expect("live"));
            expected.splice(at as usize..at as usize, *b"ab");
            bytes += entry.change(insert(at, b"ab", expected.len()), Index(2 + u64::from(at)), Access::at(0));
            assert_eq!(entry.value(), Some(&expected[..]));
            assert_eq!((entry.row(), entry.index()), (&b"key"[..], Index(2 + u64::from(at))));
            assert_eq!(entry.shared_value().as_deref(), Some(&expected[..]));
            blocks += usize::from(before.0 != entry.block.as_ptr());
            if let Some(reader) = reader {
                assert_eq!(&reader[..], before.1, "who reads keeps what was");
                assert_ne!(before.0, entry.block.as_ptr());
            }
        }
        assert_eq!(entry.bytes(), bytes);
        assert!(blocks < 30, "{blocks} blocks for 200 changes");
        // An overwrite and a patch keep the room, a shorter value gives it back.
        let block = entry.block.as_ptr();
        assert_eq!(entry.overwrite(b"key", Some(&vec![b'w'; 1000]), Index(500), Access::at(0)), 0);
        assert_eq!((entry.block.as_ptr(), entry.value()), (block, Some(&[b'w'; 1000][..])));
        assert!(entry.overwrite(b"key", Some(b"w"), Index(501), Access::at(0)) < -900);
        assert_eq!((entry.value(), entry.index()), (Some(&b"w"[..]), Index(501)));
        // Bytes that a splice takes out become room, too, but no more than `slack` can tell.
        entry.overwrite(b"key", Some(&[b'x'; 1000]), Index(502), Access::at(0));
        let shorter = |removed, len_after| Change::Splice(Splice { offset: 0, removed, bytes: b"", len_after });
        assert_eq!(entry.change(shorter(SLACK_MAX as u32, 1000 - SLACK_MAX as u32), Index(503), Access::at(0)), 0);
        assert!(entry.change(shorter(1, 999 - SLACK_MAX as u32), Index(504), Access::at(0)) < 0);
        assert_eq!(entry.value().map(<[u8]>::len), Some(999 - SLACK_MAX));
    }
}
