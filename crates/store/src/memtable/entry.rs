//! A row of the memtable: everything that is known of it in one block, so that who has found it has it in one cache miss.

use super::{Found, Patch};
use crate::value::Value;
use haypile_log::Index;
use std::sync::Arc;

/// A row or its deletion: `record: u64 | key bytes: u31, live: u1 | key | value`. Cheap to clone; who holds a clone keeps
/// what the row was then.
#[derive(Clone)]
pub struct RowEntry(Arc<[u8]>);

const LEN_AT: usize = 8;
const KEY_AT: usize = 12;
const LIVE: u32 = 1 << 31;

/// What an entry takes besides its block's bytes: its two places in a run with the room that runs keep, the block's
/// counters and the allocator's share.
const ENTRY_BYTES: i64 = 64;

impl RowEntry {
    #[inline]
    pub fn new(key: &[u8], value: Option<&[u8]>, index: Index) -> Self {
        const STACK_BYTES: usize = 512;
        let (live, value) = (if value.is_some() { LIVE } else { 0 }, value.unwrap_or_default());
        let len = KEY_AT + key.len() + value.len();
        let fill = |block: &mut [u8]| {
            block[..LEN_AT].copy_from_slice(&index.0.to_le_bytes());
            block[LEN_AT..KEY_AT].copy_from_slice(&(key.len() as u32 | live).to_le_bytes());
            block[KEY_AT..KEY_AT + key.len()].copy_from_slice(key);
            block[KEY_AT + key.len()..].copy_from_slice(value);
        };
        // Short ones pass over the stack, so that there is one allocation and nothing to zero.
        if len <= STACK_BYTES {
            let mut block = [0; STACK_BYTES];
            fill(&mut block[..len]);
            return RowEntry(Arc::from(&block[..len]));
        }
        let mut block: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        fill(Arc::get_mut(&mut block).expect("nobody else has seen this block"));
        RowEntry(block)
    }

    #[inline]
    fn len_and_live(&self) -> u32 {
        u32::from_le_bytes(self.0[LEN_AT..KEY_AT].try_into().expect("four bytes"))
    }

    #[inline]
    fn value_at(&self) -> usize {
        KEY_AT + (self.len_and_live() & !LIVE) as usize
    }

    #[inline]
    fn is_live(&self) -> bool {
        self.len_and_live() & LIVE != 0
    }

    /// The row's key.
    #[inline]
    pub fn row(&self) -> &[u8] {
        &self.0[KEY_AT..self.value_at()]
    }

    /// The part of the row's key behind its first bytes.
    #[inline]
    pub fn behind<const PREFIX: usize>(&self) -> &[u8] {
        &self.0[KEY_AT + PREFIX..self.value_at()]
    }

    /// `None`: deleted.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        self.is_live().then(|| &self.0[self.value_at()..])
    }

    /// The value as a handle on the block.
    #[inline]
    pub fn shared_value(&self) -> Option<Value> {
        self.is_live().then(|| Value::new(self.0.clone(), self.value_at()..self.0.len()))
    }

    /// The record that wrote it.
    #[inline]
    pub fn index(&self) -> Index {
        Index(u64::from_le_bytes(self.0[..LEN_AT].try_into().expect("eight bytes")))
    }

    #[inline]
    pub fn found(&self) -> Found {
        match self.shared_value() {
            Some(value) => Found::Row(value, self.index()),
            None => Found::Deleted(self.index()),
        }
    }

    /// What it takes in the memtable.
    pub fn bytes(&self) -> i64 {
        self.0.len() as i64 + ENTRY_BYTES
    }

    /// The length of the block, which lies beside where it is.
    #[inline]
    pub fn touch(&self) -> usize {
        self.0.len()
    }

    /// Reads a byte of where the key is: for what it costs, not for what it says.
    #[inline]
    pub fn touch_line(&self) -> usize {
        usize::from(self.0[KEY_AT])
    }

    /// Reads a byte of each of the first cache lines of the block: for what it costs, not for what it says.
    #[inline]
    pub fn touch_block(&self) -> usize {
        const LINE_BYTES: usize = 64;
        const LINES: usize = 4;
        self.0.iter().step_by(LINE_BYTES).take(LINES).map(|byte| usize::from(*byte)).sum()
    }

    /// A new value for a known key: in place where nobody else holds the block and the length stays. Returns the growth.
    #[inline]
    pub fn overwrite(&mut self, key: &[u8], value: Option<&[u8]>, index: Index) -> i64 {
        let value_at = self.value_at();
        if let Some(new) = value
            && self.0.len() == value_at + new.len()
            && let Some(block) = Arc::get_mut(&mut self.0)
        {
            block[..LEN_AT].copy_from_slice(&index.0.to_le_bytes());
            block[LEN_AT + 3] |= (LIVE >> 24) as u8;
            block[value_at..].copy_from_slice(new);
            return 0;
        }
        let before = self.bytes();
        *self = RowEntry::new(key, value, index);
        self.bytes() - before
    }

    /// A small change, of a deleted row as of an empty one: in place as for `overwrite`. Returns the growth.
    pub fn patch(&mut self, patch: Patch<'_>, index: Index) -> i64 {
        let value_at = self.value_at();
        if self.is_live()
            && self.0.len() == value_at + patch.len_after as usize
            && let Some(block) = Arc::get_mut(&mut self.0)
        {
            block[..LEN_AT].copy_from_slice(&index.0.to_le_bytes());
            patch.write(&mut block[value_at..]);
            return 0;
        }
        let before = self.bytes();
        let patched = patch.apply(self.value().unwrap_or_default());
        *self = RowEntry::new(self.row(), Some(&patched), index);
        self.bytes() - before
    }
}
