//! The meta rows of one slot in scan order: space, hash, name. Lookups by hash, at the speed of a hash table, and ordered
//! walks for SCAN and the flush, from one structure: sorted runs of bounded length, a single one unless a hash tag has
//! put very many keys into the slot.

use super::Found;
use crate::row::{Key, Space};
use crate::value::Value;
use haypile_log::Index;
use smallvec::SmallVec;
use std::sync::Arc;

/// Longest run; a longer one is split in two. An insertion moves half a run on average: 5 KiB.
const RUN_MAX: usize = 256;

/// Neighbours of the place where a hash should be that a search looks at before it halves the run instead.
const WALK_MAX: usize = 12;

/// One meta row: its place in the order, and the name and the value in one block.
pub struct MetaEntry {
    /// Space and hash.
    order: u64,
    block: Arc<[u8]>,
    name_len: u32,
    live: bool,
    index: Index,
}

/// What an entry takes besides its block: itself in a run that is three quarters full, the block's counters and the
/// allocator's share.
const ENTRY_BYTES: i64 = 80;

/// Sorted runs, ascending, none empty.
#[derive(Default)]
pub struct SlotKeys {
    runs: SmallVec<[Run; 1]>,
}

/// Entries in their order.
#[derive(Default)]
struct Run(Vec<MetaEntry>);

fn order_of(space: Space, hash: u32) -> u64 {
    (u64::from(space.0) << 32) | u64::from(hash)
}

impl MetaEntry {
    fn new(order: u64, name: &[u8], value: Option<&[u8]>, index: Index) -> Self {
        MetaEntry {
            order,
            block: block_of(name, value.unwrap_or_default()),
            name_len: name.len() as u32,
            live: value.is_some(),
            index,
        }
    }

    pub fn name(&self) -> &[u8] {
        &self.block[..self.name_len as usize]
    }

    pub fn value(&self) -> Option<&[u8]> {
        self.live.then(|| &self.block[self.name_len as usize..])
    }

    /// The record that wrote it.
    pub fn index(&self) -> Index {
        self.index
    }

    pub fn found(&self) -> Found {
        if self.live {
            Found::Row(Value::new(self.block.clone(), self.name_len as usize..self.block.len()), self.index)
        } else {
            Found::Deleted(self.index)
        }
    }

    pub fn bytes(&self) -> i64 {
        self.block.len() as i64 + ENTRY_BYTES
    }
}

/// Name and value in one block. Short ones pass over the stack, so that there is one allocation and nothing to zero.
#[inline]
fn block_of(name: &[u8], value: &[u8]) -> Arc<[u8]> {
    const STACK_BYTES: usize = 512;
    let len = name.len() + value.len();
    if len <= STACK_BYTES {
        let mut block = [0; STACK_BYTES];
        block[..name.len()].copy_from_slice(name);
        block[name.len()..len].copy_from_slice(value);
        return Arc::from(&block[..len]);
    }
    let mut block: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
    let bytes = Arc::get_mut(&mut block).expect("nobody else has seen this block");
    bytes[..name.len()].copy_from_slice(name);
    bytes[name.len()..].copy_from_slice(value);
    block
}

impl SlotKeys {
    /// The run in which a key is or would be.
    #[inline]
    fn run_of(&self, order: u64, name: &[u8]) -> usize {
        if self.runs.len() <= 1 {
            return 0;
        }
        let after = self.runs.partition_point(|run| (run.0[0].order, run.0[0].name()) <= (order, name));
        after.saturating_sub(1)
    }

    #[inline]
    pub fn get(&self, key: &Key<'_>) -> Option<&MetaEntry> {
        let order = order_of(key.space, key.hash);
        let run = self.runs.get(self.run_of(order, key.name))?;
        run.find(order, key.name).ok().map(|at| &run.0[at])
    }

    /// Writes a row or its deletion; returns by how many bytes the slot grew.
    #[inline]
    pub fn put(&mut self, key: &Key<'_>, value: Option<&[u8]>, index: Index) -> i64 {
        let order = order_of(key.space, key.hash);
        if self.runs.is_empty() {
            self.runs.push(Run::default());
        }
        let which = self.run_of(order, key.name);
        let run = &mut self.runs[which];
        match run.find(order, key.name) {
            Ok(at) => run.0[at].overwrite(value, index),
            Err(at) => {
                let entry = MetaEntry::new(order, key.name, value, index);
                let grown = entry.bytes();
                run.0.insert(at, entry);
                if run.0.len() > RUN_MAX {
                    let second = run.split();
                    self.runs.insert(which + 1, second);
                }
                grown
            }
        }
    }

    /// Takes a row out.
    pub fn remove(&mut self, key: &Key<'_>) -> Option<MetaEntry> {
        let order = order_of(key.space, key.hash);
        let which = self.run_of(order, key.name);
        let run = self.runs.get_mut(which)?;
        let at = run.find(order, key.name).ok()?;
        let gone = run.0.remove(at);
        if run.0.is_empty() {
            self.runs.remove(which);
        }
        Some(gone)
    }

    /// Takes out all rows of a space.
    pub fn take(&mut self, space: Space) -> Vec<MetaEntry> {
        let mut gone = Vec::new();
        for run in &mut self.runs {
            let from = run.0.partition_point(|entry| entry.order < order_of(space, 0));
            let until = run.0.partition_point(|entry| entry.order <= order_of(space, u32::MAX));
            gone.extend(run.0.drain(from..until));
        }
        self.runs.retain(|run| !run.0.is_empty());
        gone
    }

    pub fn count_bytes(&self) -> i64 {
        self.runs.iter().flat_map(|run| &run.0).map(MetaEntry::bytes).sum()
    }

    /// Entries of `space` from `hash` on, in order.
    pub fn range(&self, space: Space, hash: u32) -> impl Iterator<Item = (u32, &MetaEntry)> {
        let from = order_of(space, hash);
        let until = order_of(space, u32::MAX);
        let first = self.runs.partition_point(|run| run.0.last().is_some_and(|last| last.order < from));
        self.runs[first..]
            .iter()
            .flat_map(move |run| &run.0[run.0.partition_point(|entry| entry.order < from)..])
            .take_while(move |entry| entry.order <= until)
            .map(|entry| (entry.order as u32, entry))
    }
}

impl MetaEntry {
    /// A new value for a known key: in place where nobody else holds the block and the length stays.
    #[inline]
    fn overwrite(&mut self, value: Option<&[u8]>, index: Index) -> i64 {
        let before = self.bytes();
        self.index = index;
        self.live = value.is_some();
        let value = value.unwrap_or_default();
        let name_len = self.name_len as usize;
        if self.block.len() == name_len + value.len()
            && let Some(block) = Arc::get_mut(&mut self.block)
        {
            block[name_len..].copy_from_slice(value);
            return 0;
        }
        self.block = block_of(self.name(), value);
        self.bytes() - before
    }
}

impl Run {
    /// Where the key is, or where it would go.
    #[inline]
    fn find(&self, order: u64, name: &[u8]) -> Result<usize, usize> {
        let mut at = self.lower_bound(order);
        // Different names of one hash are rare: this loop nearly always looks at one entry.
        while let Some(entry) = self.0.get(at).filter(|entry| entry.order == order) {
            if entry.name() == name {
                return Ok(at);
            }
            if entry.name() > name {
                break;
            }
            at += 1;
        }
        Err(at)
    }

    /// The first entry that is not before `order`. Hashes are uniform, so in the usual run, which holds the whole range of
    /// one space, it is next to where its hash says.
    #[inline]
    fn lower_bound(&self, order: u64) -> usize {
        let entries = &self.0;
        let mut at = ((u64::from(order as u32) * entries.len() as u64) >> 32) as usize;
        for _ in 0..WALK_MAX {
            if at < entries.len() && entries[at].order < order {
                at += 1;
            } else if at > 0 && entries[at - 1].order >= order {
                at -= 1;
            } else {
                return at;
            }
        }
        entries.partition_point(|entry| entry.order < order)
    }

    /// Moves the upper half out.
    fn split(&mut self) -> Run {
        Run(self.0.split_off(self.0.len() / 2))
    }
}
