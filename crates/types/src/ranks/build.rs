//! The construction of a rank tree: blocks are cut from rows in one walk, nodes written as they fill, from the blocks
//! upwards. Memory holds one unfinished node of each level, so that any number of elements will do.

use super::node::{Entry, Making};
use super::{ROOT, Ranks, node_row};
use crate::Result;
use crate::element::ROW_PREFIX_BYTES;
use haypile_store::row::RowKey;
use haypile_store::{Direction, Txn};
use std::ops::ControlFlow;

/// Longer separators are not written down: where elements have that much in common, blocks are larger.
const SEPARATOR_BYTES_MAX: usize = 1024;

/// Elements of a block when a tree is built: it has room for more.
const BLOCK_FILL: u64 = 22;

/// Rows walked over between two writes of what was found.
const STEP_ROWS: u64 = 4096;

/// Cuts a run of elements into blocks, given their keys in order.
pub struct Cutter {
    blocks: Vec<Entry>,
    /// The key before.
    previous: Vec<u8>,
    /// Elements since the last cut.
    count: u64,
    /// The best number of elements before a cut; within `window` of it, a cut with a shorter separator is better.
    target: u64,
    window: u64,
    /// The distance to the cut after the next; `None`: no cut follows it.
    step: Option<u64>,
    best: Option<(u64, Vec<u8>)>,
}

impl Cutter {
    /// Cuts again and again, into blocks of about `target` elements. `first` is what the first block begins with.
    pub fn every(first: &[u8], target: u64) -> Cutter {
        let window = target / 4;
        Cutter { step: Some(target), ..Cutter::once(first, target, window) }
    }

    /// Cuts once, `window` or less away from `target` if it can be.
    pub fn once(first: &[u8], target: u64, window: u64) -> Cutter {
        let blocks = vec![Entry { key: first.to_vec(), child: 0, count: 0 }];
        Cutter { blocks, previous: Vec::new(), count: 0, target, window, step: None, best: None }
    }

    /// Cuts a run of `count` elements into equal parts, none larger than a block when a tree is built.
    pub fn evenly(first: &[u8], count: u64) -> Cutter {
        match count.div_ceil(BLOCK_FILL) {
            0..=2 => Cutter::once(first, count / 2, count / 8),
            parts => Cutter::every(first, count.div_ceil(parts)),
        }
    }

    pub fn add(&mut self, key: &[u8]) {
        if self.count + self.window >= self.target && self.count > 0 && self.target > 0 {
            self.consider(key);
        }
        self.previous.clear();
        self.previous.extend_from_slice(key);
        self.count += 1;
        self.blocks.last_mut().expect("one is there").count += 1;
    }

    /// Whether a cut before `key` is good, and whether the best one so far is to be made.
    fn consider(&mut self, key: &[u8]) {
        let common = self.previous.iter().zip(key).take_while(|(a, b)| a == b).count();
        let length = common + 1;
        let is_better = self.best.as_ref().is_none_or(|(at, best)| {
            length < best.len() || (length == best.len() && self.count.abs_diff(self.target) < at.abs_diff(self.target))
        });
        if is_better && length <= SEPARATOR_BYTES_MAX {
            self.best = Some((self.count, key[..length].to_vec()));
        }
        if self.count >= self.target + self.window {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let Some((at, key)) = self.best.take() else { return };
        let behind = self.count - at;
        self.blocks.last_mut().expect("one is there").count -= behind;
        self.blocks.push(Entry { key, child: 0, count: behind });
        self.count = behind;
        self.target = self.step.unwrap_or(0);
    }

    /// Takes the blocks that are complete.
    fn take(&mut self) -> impl Iterator<Item = Entry> {
        let last = self.blocks.len() - 1;
        self.blocks.drain(..last)
    }

    /// Returns all blocks.
    pub fn finish(mut self) -> Vec<Entry> {
        if self.count > self.target + self.window / 2 || self.step.is_none() {
            self.cut();
        }
        self.blocks
    }
}

/// Nodes under way: the one of each level that is being filled.
struct Builder<'r> {
    ranks: &'r mut Ranks,
    levels: Vec<Making>,
}

impl Builder<'_> {
    fn add(&mut self, txn: &mut Txn<'_>, level: usize, entry: Entry) -> Result<()> {
        if self.levels.len() == level {
            self.levels.push(Making { level: level as u8, entries: Vec::new() });
        }
        let filling = &mut self.levels[level];
        if filling.is_filled() {
            let full = std::mem::replace(filling, Making { level: level as u8, entries: vec![entry] });
            let number = self.ranks.new_node();
            let above = self.ranks.put_node(txn, number, &full)?;
            return self.add(txn, level + 1, above);
        }
        filling.entries.push(entry);
        Ok(())
    }

    /// Writes what is unfinished, the highest one as the root.
    fn finish(mut self, txn: &mut Txn<'_>) -> Result<()> {
        for level in 0.. {
            let node = std::mem::replace(&mut self.levels[level], Making { level: 0, entries: Vec::new() });
            if level + 1 == self.levels.len() {
                txn.put_row(&node_row(&self.ranks.rows, ROOT), &[&node.encode()])?;
                break;
            }
            let number = self.ranks.new_node();
            let above = self.ranks.put_node(txn, number, &node)?;
            self.add(txn, level + 1, above)?;
        }
        Ok(())
    }
}

impl Ranks {
    /// Makes the tree anew from the rows. No node of an earlier tree may be left.
    pub fn build(&mut self, txn: &mut Txn<'_>) -> Result<()> {
        self.next_node = ROOT + 1;
        let (mut at, end) = self.range(b"", None);
        let mut cutter = Cutter::every(b"", BLOCK_FILL);
        let mut builder = Builder { ranks: self, levels: Vec::new() };
        loop {
            let (mut walked, mut next) = (0, None);
            txn.visit(&at, &end, Direction::Forward, STEP_ROWS as usize, |row, _| {
                if walked == STEP_ROWS {
                    next = Some(RowKey::from_slice(row));
                    return ControlFlow::Break(());
                }
                walked += 1;
                cutter.add(&row[ROW_PREFIX_BYTES..]);
                ControlFlow::Continue(())
            })?;
            for block in cutter.take() {
                builder.add(txn, 0, block)?;
            }
            let Some(next) = next else { break };
            at = next;
        }
        for block in cutter.finish() {
            builder.add(txn, 0, block)?;
        }
        builder.finish(txn)
    }
}
