//! `Value`: the bytes of a row as they are handed around: immutable, shared, cheap to clone and to slice.

use crate::memtable::Change;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Immutable bytes: a range of a shared block. At most `u32::MAX` bytes, as every row.
#[derive(Clone)]
pub struct Value {
    block: Arc<[u8]>,
    start: u32,
    end: u32,
}

impl Value {
    /// Returns the part `range` of `block`. Panics if the range lies outside of it.
    pub fn new(block: Arc<[u8]>, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= block.len(), "a value's range lies inside its block");
        let end = u32::try_from(range.end).expect("rows are shorter than 4 GiB");
        Value { block, start: range.start as u32, end }
    }

    /// Returns the part `range` of this value, sharing its block.
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "a slice lies inside its value");
        Value { block: self.block.clone(), start: self.start + range.start as u32, end: self.start + range.end as u32 }
    }

    /// Returns the row after a small change: changed in place where no other handle shares its block and its length
    /// stays.
    pub(crate) fn changed(mut self, change: Change<'_>) -> Value {
        let len = self.len();
        if len == self.block.len()
            && len == change.len_after()
            && let Some(bytes) = Arc::get_mut(&mut self.block)
        {
            change.write(bytes, len);
            return self;
        }
        Value::from(change.apply(&self))
    }

    /// Returns the block and where in it the value lies: for replies that share it.
    pub fn into_parts(self) -> (Arc<[u8]>, Range<u32>) {
        (self.block, self.start..self.end)
    }
}

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.block[self.start as usize..self.end as usize]
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Value::new(Arc::from(bytes), 0..bytes.len())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Value::new(Arc::from(bytes), 0..len)
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}
