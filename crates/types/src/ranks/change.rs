//! Changes of a rank tree: elements that come and go are counted, blocks and nodes cut and joined.

use super::build::Cutter;
use super::node::{self, Entry, Making, Node};
use super::{Change, ROOT, Ranks, WALK_MAX, is_few, node_row};
use crate::Result;
use crate::element::ROW_PREFIX_BYTES;
use crate::key::damaged;
use haypile_store::{Direction, Txn};
use smallvec::SmallVec;
use std::ops::ControlFlow;

/// Elements of a block: beyond `BLOCK_MAX` it is cut, below `BLOCK_MIN` joined with a neighbour if both have at most
/// `BLOCK_JOINED`.
const BLOCK_MAX: u64 = 32;
const BLOCK_MIN: u64 = 8;
const BLOCK_JOINED: u64 = 24;

/// A node with more changes is written anew.
const PATCHES_MAX: usize = 16;

/// A node after a change.
struct Changed {
    delta: i64,
    /// The entries that take its place in the parent, unless only its count changes.
    entries: Option<Vec<Entry>>,
    /// Whether the node has so few entries that a neighbour could take them.
    is_small: bool,
}

impl Ranks {
    /// Notes that elements came and went, whose rows are written already. Sorts `changes`. `count` is the number of
    /// elements now: a tree is made where they have become too many for a walk, and removed where they are few, unless
    /// it `stays`.
    pub fn apply(&mut self, txn: &mut Txn<'_>, changes: &mut [Change], count: u64, stays: bool) -> Result<()> {
        if !self.is_there() {
            return if count > WALK_MAX { self.build(txn) } else { Ok(()) };
        }
        if is_few(count) && !stays {
            return self.clear(txn);
        }
        if changes.len() > 1 {
            changes.sort_unstable();
        }
        let changed = self.change(txn, ROOT, None, changes, true, None)?;
        if let Some(entries) = changed.entries {
            self.put_root(txn, entries)?;
        }
        // In a dry run the rows may be of two moments.
        if cfg!(debug_assertions) && !txn.is_dry_run() {
            assert_eq!(self.sum(txn)?, count, "Invariant: the root's sum is the head's count");
        }
        Ok(())
    }

    /// Removes a tree that has stayed although there are few elements.
    pub fn clear_if_few(&mut self, txn: &mut Txn<'_>, count: u64) -> Result<()> {
        if self.is_there() && is_few(count) { self.clear(txn) } else { Ok(()) }
    }

    /// Returns how many elements the root counts.
    fn sum(&self, txn: &mut Txn<'_>) -> Result<u64> {
        let root = self.node(txn, ROOT)?;
        Ok(root.count_before(root.len()))
    }

    /// Applies changes, in order and all below one node, to this node and those below. `until` is where its last part
    /// ends.
    fn change(
        &mut self,
        txn: &mut Txn<'_>,
        number: u32,
        level: Option<u8>,
        changes: &[Change],
        is_first: bool,
        until: Option<&[u8]>,
    ) -> Result<Changed> {
        let node = self.node(txn, number)?;
        node.expect_level(level)?;
        let ends = Ends { is_first, is_last: until.is_none() };
        let (mut rest, mut sum) = (changes, 0);
        let mut counts: SmallVec<[(usize, u64); 4]> = SmallVec::new();
        let mut replaced: Vec<(usize, Option<Vec<Entry>>)> = Vec::new();
        while let Some(first) = rest.first() {
            let at = node.find(&first.key);
            let part_until = if at + 1 < node.len() { Some(node.key(at + 1)) } else { until };
            let length = match part_until {
                Some(end) => rest.partition_point(|change| *change.key < *end),
                None => rest.len(),
            };
            let (part, behind) = rest.split_at(length);
            rest = behind;
            let changed = if node.level() == 0 {
                self.change_block(txn, &node, at, part, ends, part_until)?
            } else {
                let (child, level) = (node.child(at), node.level() - 1);
                self.change(txn, child, Some(level), part, is_first && at == 0, part_until)?
            };
            sum += changed.delta;
            let count = node.count(at).checked_add_signed(changed.delta);
            let count = count.ok_or_else(|| damaged("a rank tree, which counts too few: it", node.key(at)))?;
            match changed.entries {
                Some(entries) => replaced.push((at, Some(entries))),
                None if changed.is_small && node.len() > 1 => replaced.push((at, None)),
                None => {}
            }
            if changed.delta != 0 {
                counts.push((at, count));
            }
        }
        if replaced.is_empty() {
            let is_small = node.is_small() && sum < 0;
            self.put_counts(txn, number, node, &counts)?;
            return Ok(Changed { delta: sum, entries: None, is_small });
        }
        self.restructure(txn, number, node, &counts, replaced, sum, ends)
    }

    /// Gives parts of a node another count.
    fn put_counts(&self, txn: &mut Txn<'_>, number: u32, node: Node, counts: &[(usize, u64)]) -> Result<()> {
        let (row, length) = (node_row(&self.rows, number), node.bytes() as u32);
        if counts.len() > PATCHES_MAX {
            let (level, mut entries) = (node.level(), node.entries());
            counts.iter().for_each(|(at, count)| entries[*at].count = *count);
            return Ok(txn.put_row(&row, &[&Making { level, entries }.encode()])?);
        }
        let patches: SmallVec<[_; 4]> =
            counts.iter().map(|(at, count)| (node.offset_of_count(*at) as u32, node.count_bytes(*count))).collect();
        // The only handle on the row, so that it is changed in place.
        drop(node);
        for (offset, bytes) in patches {
            txn.patch_row(&row, offset, &bytes, length)?;
        }
        Ok(())
    }

    /// Applies changes to a block of a node.
    fn change_block(
        &self,
        txn: &mut Txn<'_>,
        node: &Node,
        at: usize,
        changes: &[Change],
        ends: Ends,
        until: Option<&[u8]>,
    ) -> Result<Changed> {
        let delta: i64 = changes.iter().map(|change| change.delta).sum();
        let count = node.count(at).saturating_add_signed(delta);
        let mut changed = Changed { delta, entries: None, is_small: false };
        // A block that could not be cut is tried again later only.
        if count > BLOCK_MAX && delta > 0 && (delta > 1 || count % BLOCK_MAX == 1) {
            let entries = self.cut_block(txn, node.key(at), until, changes, count)?;
            changed.entries = (entries.len() > 1).then_some(entries);
        } else if delta < 0 && count < BLOCK_MIN {
            changed.is_small = ends.may_join(node, at, count);
        }
        Ok(changed)
    }

    /// Returns the blocks that one with `count` elements becomes.
    fn cut_block(
        &self,
        txn: &mut Txn<'_>,
        from: &[u8],
        until: Option<&[u8]>,
        changes: &[Change],
        count: u64,
    ) -> Result<Vec<Entry>> {
        let (first, end) = self.range(from, until);
        let mut cutter = Cutter::evenly(from, count);
        if until.is_none() && changes.len() == 1 {
            let mut is_last = false;
            txn.visit(&first, &end, Direction::Backward, 1, |row, _| {
                is_last = *changes[0].key == row[ROW_PREFIX_BYTES..];
                ControlFlow::Break(())
            })?;
            if is_last {
                // Elements come in order: the block before is full, and stays so.
                cutter = Cutter::once(from, count - 4, 3);
            }
        }
        let mut found = 0;
        txn.visit(&first, &end, Direction::Forward, count as usize, |row, _| {
            found += 1;
            cutter.add(&row[ROW_PREFIX_BYTES..]);
            ControlFlow::Continue(())
        })?;
        if found != count {
            return Err(damaged("a rank tree, which miscounts a block: it", from));
        }
        Ok(cutter.finish())
    }

    /// Writes a node whose entries have changed: `counts` are those with another count, `replaced` those that are cut
    /// or to be joined with others.
    #[allow(clippy::too_many_arguments)] // All of them are facts of a node.
    fn restructure(
        &mut self,
        txn: &mut Txn<'_>,
        number: u32,
        node: Node,
        counts: &[(usize, u64)],
        replaced: Vec<(usize, Option<Vec<Entry>>)>,
        delta: i64,
        ends: Ends,
    ) -> Result<Changed> {
        let level = node.level();
        let mut old = node.entries();
        drop(node);
        for (at, count) in counts {
            old[*at].count = *count;
        }
        let mut entries = Vec::with_capacity(old.len() + replaced.len());
        let mut small = Vec::new();
        let mut replaced = replaced.into_iter().peekable();
        for (at, entry) in old.into_iter().enumerate() {
            match replaced.next_if(|(which, _)| *which == at) {
                Some((_, Some(several))) => entries.extend(several),
                Some((_, None)) => {
                    small.push(entries.len());
                    entries.push(entry);
                }
                None => entries.push(entry),
            }
        }
        if !small.is_empty() {
            entries = match level {
                0 => ends.join(entries),
                _ => self.join_nodes(txn, entries, level - 1, &small)?,
            };
        }
        let nodes = node::divide(entries, level);
        let is_small = nodes.len() == 1 && nodes[0].is_small();
        let mut parts = Vec::with_capacity(nodes.len());
        for (at, node) in nodes.iter().enumerate() {
            let number = if at == 0 { number } else { self.new_node() };
            parts.push(self.put_node(txn, number, node)?);
        }
        let is_lonely_root = number == ROOT && level > 0 && nodes[0].entries.len() == 1;
        let entries = (parts.len() > 1 || is_lonely_root).then_some(parts);
        Ok(Changed { delta, is_small, entries })
    }

    pub(super) fn new_node(&mut self) -> u32 {
        self.next_node += 1;
        self.next_node - 1
    }

    /// Joins the children that have become small with a neighbour, or gives them a part of what it has.
    fn join_nodes(&mut self, txn: &mut Txn<'_>, entries: Vec<Entry>, level: u8, small: &[usize]) -> Result<Vec<Entry>> {
        let mut joined: Vec<Entry> = Vec::with_capacity(entries.len());
        for (at, entry) in entries.into_iter().enumerate() {
            let is_small = small.contains(&at) || (at > 0 && small.contains(&(at - 1)));
            let Some(last) = joined.pop_if(|_| is_small) else {
                joined.push(entry);
                continue;
            };
            let (before, after) = (self.node(txn, last.child)?, self.node(txn, entry.child)?);
            before.expect_level(Some(level))?;
            after.expect_level(Some(level))?;
            if !before.is_small() && !after.is_small() {
                joined.extend([last, entry]);
                continue;
            }
            let mut all = before.entries();
            all.extend(after.entries());
            drop((before, after));
            let mut numbers = [last.child, entry.child].into_iter();
            for node in node::divide(all, level) {
                let number = numbers.next().unwrap_or_else(|| self.new_node());
                joined.push(self.put_node(txn, number, &node)?);
            }
            for number in numbers {
                txn.delete_row(&node_row(&self.rows, number))?;
            }
        }
        Ok(joined)
    }

    /// Writes a node, and returns its entry in the parent.
    pub(super) fn put_node(&self, txn: &mut Txn<'_>, number: u32, node: &Making) -> Result<Entry> {
        // In a dry run the rows may be of two moments.
        if cfg!(debug_assertions) && !txn.is_dry_run() {
            node.assert_sound();
            assert!(number < self.next_node, "Invariant: node {number} is below {}, the next one", self.next_node);
            assert!(number != ROOT || node.first_key().is_empty(), "Invariant: the first key of all is empty");
        }
        txn.put_row(&node_row(&self.rows, number), &[&node.encode()])?;
        Ok(Entry { key: node.first_key().to_vec(), child: number, count: node.sum() })
    }

    /// Makes a root of several parts, or of the children of a single one. The first part lies in the root's row.
    fn put_root(&mut self, txn: &mut Txn<'_>, mut entries: Vec<Entry>) -> Result<()> {
        if let [one] = &entries[..]
            && one.child == ROOT
        {
            let mut root = self.node(txn, ROOT)?;
            while root.level() > 0 && root.len() == 1 {
                let child = root.child(0);
                let below = self.node(txn, child)?;
                txn.put_row(&node_row(&self.rows, ROOT), &[&below.row])?;
                txn.delete_row(&node_row(&self.rows, child))?;
                root = below;
            }
            return Ok(());
        }
        let first = self.node(txn, ROOT)?;
        let level = first.level();
        let number = self.new_node();
        txn.put_row(&node_row(&self.rows, number), &[&first.row])?;
        entries[0].child = number;
        let root = Making { level: level + 1, entries };
        Ok(txn.put_row(&node_row(&self.rows, ROOT), &[&root.encode()])?)
    }

    /// Removes all nodes.
    fn clear(&mut self, txn: &mut Txn<'_>) -> Result<()> {
        let mut numbers = vec![ROOT];
        while let Some(number) = numbers.pop() {
            let node = self.node(txn, number)?;
            if node.level() > 0 {
                numbers.extend((0..node.len()).map(|at| node.child(at)));
            }
            txn.delete_row(&node_row(&self.rows, number))?;
        }
        self.next_node = 0;
        Ok(())
    }
}

/// Which ends of all blocks a node holds. At an end an empty block stays: elements taken from there leave their places
/// to it, and the walk from that end begins behind it. For the same reason the first block with elements is joined with
/// no other one.
#[derive(Clone, Copy)]
struct Ends {
    is_first: bool,
    is_last: bool,
}

impl Ends {
    /// Tells whether a block that has become small may be joined with a neighbour.
    fn may_join(self, node: &Node, at: usize, count: u64) -> bool {
        let is_outermost = (self.is_first && at == 0) || (self.is_last && at + 1 == node.len());
        if count == 0 {
            return !is_outermost && node.len() > 1;
        }
        let is_inside =
            |at: usize| !(self.is_first && at < 2) && at < node.len() && !(self.is_last && at + 2 >= node.len());
        let takes = |at: usize| is_inside(at) && node.count(at) + count <= BLOCK_JOINED;
        is_inside(at) && ((at > 0 && takes(at - 1)) || takes(at + 1))
    }

    /// Adds blocks that have become small to a neighbour.
    fn join(self, entries: Vec<Entry>) -> Vec<Entry> {
        let length = entries.len();
        let is_last_empty = entries.last().is_some_and(|entry| entry.count == 0);
        let mut joined: Vec<Entry> = Vec::with_capacity(length);
        for (at, entry) in entries.into_iter().enumerate() {
            let is_first_empty = joined.first().is_some_and(|first| first.count == 0);
            let at_start = self.is_first && (joined.len() == 1 || (joined.len() == 2 && is_first_empty));
            let at_end = self.is_last && (at + 1 == length || (at + 2 == length && is_last_empty));
            let joins = joined.last().is_some_and(|last| {
                let (fewer, sum) = (last.count.min(entry.count), last.count + entry.count);
                if sum == 0 {
                    true
                } else if at_start || at_end {
                    // At an end only an empty block is joined with a neighbour.
                    (!at_start || entry.count == 0) && (!at_end || last.count == 0)
                } else {
                    fewer == 0 || (fewer < BLOCK_MIN && sum <= BLOCK_JOINED)
                }
            });
            match joined.last_mut() {
                Some(last) if joins => last.count += entry.count,
                _ => joined.push(entry),
            }
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_blocks_stay_at_the_ends_only() {
        let check = |is_first: bool, is_last: bool, counts: &[u64], expected: &[u64]| {
            let entries = counts.iter().map(|count| Entry { key: Vec::new(), child: 0, count: *count }).collect();
            let joined: Vec<u64> = Ends { is_first, is_last }.join(entries).iter().map(|entry| entry.count).collect();
            assert_eq!(joined, expected, "{counts:?}");
        };
        check(false, false, &[5, 10, 20, 0, 30, 3], &[15, 20, 30, 3]);
        check(true, false, &[0, 0, 10, 20], &[0, 10, 20]);
        check(true, false, &[0, 5, 10, 20], &[0, 5, 10, 20]);
        check(true, false, &[3, 0, 10, 20], &[3, 10, 20]);
        check(true, false, &[3, 5, 10, 20], &[3, 15, 20]);
        check(false, true, &[10, 20, 0, 0], &[10, 20, 0]);
        check(false, true, &[10, 10, 5, 0], &[10, 10, 5, 0]);
        check(false, true, &[10, 5, 10, 3], &[15, 10, 3]);
        check(true, true, &[0, 0, 0, 9, 0], &[0, 9, 0]);
    }
}
