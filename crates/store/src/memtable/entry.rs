//! A row of the memtable: everything that a reader needs of it in one block, so that who has found it has it in one cache miss.

use super::{Found, Patch};
use crate::access::{Access, Stamp};
use crate::value::Value;
use haypile_log::Index;
use std::sync::Arc;

/// A row or its deletion. Cheap to clone; who holds a clone keeps what the row was then.
///
/// The stamp lies beside the block's address, which a lookup has read anyway: a block is shared, and never changes while it
/// is. It takes the room that the length of the key leaves there.
#[derive(Clone)]
pub struct RowEntry {
    /// `record: u64 | key | value`.
    block: Arc<[u8]>,
    /// Bytes of the key, and `LIVE` unless the row is deleted.
    key_bytes: u32,
    /// When its key was used last. Of no use in rows that are not a key's.
    stamp: Stamp,
}

const KEY_AT: usize = 8;
const LIVE: u32 = 1 << 31;

/// What an entry takes besides its block's bytes: its two places in a run with the room that runs keep, the block's
/// counters and the allocator's share.
const ENTRY_BYTES: i64 = 72;

impl RowEntry {
    #[inline]
    pub fn new(key: &[u8], value: Option<&[u8]>, index: Index, access: Access) -> Self {
        const STACK_BYTES: usize = 512;
        let (live, value) = (if value.is_some() { LIVE } else { 0 }, value.unwrap_or_default());
        let len = KEY_AT + key.len() + value.len();
        let fill = |block: &mut [u8]| {
            block[..KEY_AT].copy_from_slice(&index.0.to_le_bytes());
            block[KEY_AT..KEY_AT + key.len()].copy_from_slice(key);
            block[KEY_AT + key.len()..].copy_from_slice(value);
        };
        let block = if len <= STACK_BYTES {
            // Short ones pass over the stack, so that there is one allocation and nothing to zero.
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
    pub fn is_live(&self) -> bool {
        self.key_bytes & LIVE != 0
    }

    /// The row's key.
    #[inline]
    pub fn row(&self) -> &[u8] {
        &self.block[KEY_AT..self.value_at()]
    }

    /// The part of the row's key behind its first bytes.
    #[inline]
    pub fn behind<const PREFIX: usize>(&self) -> &[u8] {
        &self.block[KEY_AT + PREFIX..self.value_at()]
    }

    /// `None`: deleted.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        self.is_live().then(|| &self.block[self.value_at()..])
    }

    /// The value as a handle on the block.
    #[inline]
    pub fn shared_value(&self) -> Option<Value> {
        self.is_live().then(|| Value::new(self.block.clone(), self.value_at()..self.block.len()))
    }

    /// The record that wrote it.
    #[inline]
    pub fn index(&self) -> Index {
        Index(u64::from_le_bytes(self.block[..KEY_AT].try_into().expect("eight bytes")))
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

    /// What it takes in the memtable.
    pub fn bytes(&self) -> i64 {
        self.block.len() as i64 + ENTRY_BYTES
    }

    /// The lengths, which lie beside where the block is.
    #[inline]
    pub fn touch(&self) -> usize {
        self.block.len() + self.key_bytes as usize
    }

    /// Reads a byte of where the key is: for what it costs, not for what it says.
    #[inline]
    pub fn touch_line(&self) -> usize {
        usize::from(self.block[KEY_AT])
    }

    /// Reads a byte of each of the first cache lines of the block: for what it costs, not for what it says.
    #[inline]
    pub fn touch_block(&self) -> usize {
        const LINE_BYTES: usize = 64;
        const LINES: usize = 4;
        self.block.iter().step_by(LINE_BYTES).take(LINES).map(|byte| usize::from(*byte)).sum()
    }

    /// A new value for a known key: in place where nobody else holds the block and the length stays. Returns the growth.
    #[inline]
    pub fn overwrite(&mut self, key: &[u8], value: Option<&[u8]>, index: Index, access: Access) -> i64 {
        let value_at = self.value_at();
        if let Some(new) = value
            && self.block.len() == value_at + new.len()
            && let Some(block) = Arc::get_mut(&mut self.block)
        {
            block[..KEY_AT].copy_from_slice(&index.0.to_le_bytes());
            block[value_at..].copy_from_slice(new);
            self.key_bytes |= LIVE;
            self.stamp = Stamp::new(access);
            return 0;
        }
        let before = self.bytes();
        *self = RowEntry::new(key, value, index, access);
        self.bytes() - before
    }

    /// A small change, of a deleted row as of an empty one: in place as for `overwrite`. Returns the growth.
    pub fn patch(&mut self, patch: Patch<'_>, index: Index, access: Access) -> i64 {
        let value_at = self.value_at();
        if self.is_live()
            && self.block.len() == value_at + patch.len_after as usize
            && let Some(block) = Arc::get_mut(&mut self.block)
        {
            block[..KEY_AT].copy_from_slice(&index.0.to_le_bytes());
            patch.write(&mut block[value_at..]);
            self.stamp = Stamp::new(access);
            return 0;
        }
        let before = self.bytes();
        let old = self.value().unwrap_or_default();
        let kept = &old[..old.len().min(patch.len_after as usize)];
        let value_at = KEY_AT + self.row().len();
        // Copied once, and the change written over it.
        let mut block: Arc<[u8]> = std::iter::repeat_n(0, value_at + patch.len_after as usize).collect();
        let bytes = Arc::get_mut(&mut block).expect("nobody else has seen this block");
        bytes[..KEY_AT].copy_from_slice(&index.0.to_le_bytes());
        bytes[KEY_AT..value_at].copy_from_slice(self.row());
        bytes[value_at..value_at + kept.len()].copy_from_slice(kept);
        patch.write(&mut bytes[value_at..]);
        *self = RowEntry { block, key_bytes: self.row().len() as u32 | LIVE, stamp: Stamp::new(access) };
        self.bytes() - before
    }
}
