//! The rank tree: a counted B+tree over the ordered rows of a large collection, so that a place is found by its number
//! and a number by its place without a walk over the elements before. Knows no contents of rows: an element is its
//! row's key behind the prefix of its object.
//!
//! The leaves are *blocks*: runs of at most 32 rows that the tree counts but does not hold. A node is a row; its
//! entries are the first possible key of a part (a separator, as short as it can be) and how many elements the part
//! has. A new element costs a patch of some bytes in one node of each level: two levels up to about a million elements.
//! Nodes are in `node`, their making in `build`. Format: docs/format/zset.md.
//!
//! An empty block stays where it is the first or the last of all, and nothing is joined there: so a command that takes
//! elements from an end never walks over the places of those that were taken before.

mod build;
mod node;

use crate::Result;
use crate::element::{ROW_PREFIX_BYTES, Rows};
use crate::key::damaged;
use build::Cutter;
use haypile_store::row::{self, Family, RowKey};
use haypile_store::{Direction, Txn};
use node::{Entry, Making, Node};
use smallvec::SmallVec;
use std::ops::ControlFlow;

/// Elements up to which a collection has no tree: a walk over as many costs less than the upkeep of one.
pub const WALK_MAX: u64 = 256;

/// Returns whether so many elements need no tree any more.
pub fn is_few(count: u64) -> bool {
    count < WALK_MAX / 4
}

/// Elements of a block: beyond `BLOCK_MAX` it is cut, below `BLOCK_MIN` joined with a neighbour if both have at most
/// `BLOCK_JOINED`.
const BLOCK_MAX: u64 = 32;
const BLOCK_MIN: u64 = 8;
const BLOCK_JOINED: u64 = 24;

/// A node with more changes is written anew.
const PATCHES_MAX: usize = 16;

/// The number of the root node.
const ROOT: u32 = 0;

/// Returns the key of a node's row: `data(RESERVED_HASH | number: u32 BE)`.
fn node_row(rows: &Rows, number: u32) -> RowKey {
    let mut element = [0xff; 8];
    element[4..].copy_from_slice(&number.to_be_bytes());
    rows.data(&element)
}

/// The tree of one collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    pub rows: Rows,
    /// Where the rows of the elements lie.
    pub family: Family,
    /// The next node's number, part of the collection's header; 0: there is no tree.
    pub next_node: u32,
}

/// A block, and the number of elements before it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    before: u64,
    count: u64,
    /// The bounds of the elements' keys behind the prefix, the end exclusive. `None`: the end of all.
    from: RowKey,
    until: Option<RowKey>,
}

/// Elements that came or went at a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    pub key: RowKey,
    pub delta: i64,
}

/// A node after a change.
struct Changed {
    delta: i64,
    /// The entries that take its place in the parent, unless only its count changes.
    entries: Option<Vec<Entry>>,
    /// Whether it has so few entries that a neighbour could take them.
    is_small: bool,
}

impl Ranks {
    pub fn is_there(&self) -> bool {
        self.next_node > 0
    }

    /// Returns the row of an element.
    #[inline]
    pub fn row(&self, key: &[u8]) -> RowKey {
        let Rows { space, object } = self.rows;
        let (mut row, _) = row::object_range(self.family, space, object.slot, object.id);
        row.extend_from_slice(key);
        row
    }

    /// Returns the key right behind all elements.
    fn end(&self) -> RowKey {
        let Rows { space, object } = self.rows;
        row::object_range(self.family, space, object.slot, object.id).1
    }

    /// Returns the bounds of the rows between two keys; `None`: to the end.
    pub fn range(&self, from: &[u8], until: Option<&[u8]>) -> (RowKey, RowKey) {
        (self.row(from), until.map_or_else(|| self.end(), |until| self.row(until)))
    }

    /// Counts the elements before `key`.
    pub fn rank(&self, txn: &mut Txn<'_>, key: &[u8]) -> Result<u64> {
        if !self.is_there() {
            return self.count_rows(txn, b"", Some(key), WALK_MAX);
        }
        let place = self.block_of(txn, key)?;
        if place.count == 0 || *key <= *place.from {
            return Ok(place.before);
        }
        Ok(place.before + self.count_rows(txn, &place.from, Some(key), place.count)?)
    }

    /// Counts the elements with `from <= key < until`.
    pub fn count(&self, txn: &mut Txn<'_>, from: &[u8], until: &[u8]) -> Result<u64> {
        if until <= from {
            return Ok(0);
        }
        if !self.is_there() {
            return self.count_rows(txn, from, Some(until), WALK_MAX);
        }
        Ok(self.rank(txn, until)?.saturating_sub(self.rank(txn, from)?))
    }

    /// Returns where to begin to find the element that has `index` before it: a key, and how many elements to pass over
    /// from there on. Backwards, the key is the end to walk down from.
    pub fn find(&self, txn: &mut Txn<'_>, index: u64, direction: Direction) -> Result<(Option<RowKey>, u64)> {
        let place = self.block_at(txn, index)?;
        Ok(match direction {
            Direction::Forward => (Some(place.from), index - place.before),
            Direction::Backward => (place.until, (place.before + place.count).saturating_sub(1 + index)),
        })
    }

    /// Returns whether a walk needs no tree to pass over the places of elements that were taken: they have left none.
    pub fn is_dense(&self, txn: &Txn<'_>) -> bool {
        txn.is_dense(&self.row(b""))
    }

    /// Returns the bounds of a walk, moved past empty blocks at its beginning.
    pub fn start(
        &self,
        txn: &mut Txn<'_>,
        from: RowKey,
        until: Option<RowKey>,
        direction: Direction,
    ) -> Result<(RowKey, Option<RowKey>)> {
        if !self.is_there() || self.is_dense(txn) {
            return Ok((from, until));
        }
        match direction {
            Direction::Forward => {
                let place = self.block_of(txn, &from)?;
                let first = if place.count > 0 { place } else { self.block_at(txn, place.before)? };
                Ok((if first.from > from { first.from } else { from }, until))
            }
            Direction::Backward => {
                let place = match &until {
                    Some(until) => self.block_of(txn, until)?,
                    None => self.descend(txn, |node, _| node.len() - 1)?,
                };
                let is_before = until.as_ref().is_some_and(|until| *until <= place.from);
                if (place.count > 0 && !is_before) || place.before == 0 {
                    return Ok((from, until));
                }
                let last = self.block_at(txn, place.before - 1)?;
                let is_lower = match (&last.until, &until) {
                    (Some(last), Some(until)) => last < until,
                    (Some(_), None) => true,
                    (None, _) => false,
                };
                Ok((from, if is_lower { last.until } else { until }))
            }
        }
    }

    fn count_rows(&self, txn: &mut Txn<'_>, from: &[u8], until: Option<&[u8]>, expected: u64) -> Result<u64> {
        let (from, until) = self.range(from, until);
        let mut count = 0;
        txn.visit(&from, &until, Direction::Forward, expected as usize, |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    fn node(&self, txn: &mut Txn<'_>, number: u32) -> Result<Node> {
        match txn.row(&node_row(&self.rows, number))? {
            Some(row) => Node::parse(row),
            None => Err(damaged("a rank tree, which lacks a node: it", &number.to_be_bytes())),
        }
    }

    /// Returns the block where `key` belongs.
    fn block_of(&self, txn: &mut Txn<'_>, key: &[u8]) -> Result<Place> {
        self.descend(txn, |node, _| node.find(key))
    }

    /// Returns the block with the element that has `index` before it.
    fn block_at(&self, txn: &mut Txn<'_>, index: u64) -> Result<Place> {
        self.descend(txn, |node, before| node.at(index - before))
    }

    fn descend(&self, txn: &mut Txn<'_>, choose: impl Fn(&Node, u64) -> usize) -> Result<Place> {
        let (mut number, mut level, mut before, mut until) = (ROOT, None, 0, None);
        loop {
            let node = self.node(txn, number)?;
            node.expect_level(level)?;
            let at = choose(&node, before);
            before += node.count_before(at);
            if at + 1 < node.len() {
                until = Some(RowKey::from_slice(node.key(at + 1)));
            }
            if node.level() == 0 {
                return Ok(Place { before, count: node.count(at), from: RowKey::from_slice(node.key(at)), until });
            }
            number = node.child(at);
            level = Some(node.level() - 1);
        }
    }

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

    fn new_node(&mut self) -> u32 {
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
    fn put_node(&self, txn: &mut Txn<'_>, number: u32, node: &Making) -> Result<Entry> {
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

    /// Checks that the tree counts the elements that exist, comparing each block with its rows; the inner error is the
    /// defect.
    pub fn verify(&self, txn: &mut Txn<'_>, count: u64) -> Result<std::result::Result<(), String>> {
        if !self.is_there() {
            let walked = self.count_rows(txn, b"", None, WALK_MAX)?;
            let is_right = walked == count && count <= WALK_MAX;
            return Ok(if is_right { Ok(()) } else { Err(format!("{walked} of {count} elements, no tree")) });
        }
        self.verify_node(txn, ROOT, None, b"", None, count)
    }

    fn verify_node(
        &self,
        txn: &mut Txn<'_>,
        number: u32,
        level: Option<u8>,
        from: &[u8],
        until: Option<&[u8]>,
        count: u64,
    ) -> Result<std::result::Result<(), String>> {
        let node = self.node(txn, number)?;
        node.expect_level(level)?;
        let (entries, sum) = (node.entries(), node.count_before(node.len()));
        if sum != count || entries[0].key != from || number >= self.next_node {
            return Ok(Err(format!("node {number}: {sum} elements for {count}, from {:02x?}", entries[0].key)));
        }
        for (at, entry) in entries.iter().enumerate() {
            let end = entries.get(at + 1).map_or(until, |next| Some(&next.key[..]));
            if end.is_some_and(|end| *end <= entry.key[..]) {
                return Ok(Err(format!("node {number}: part {at} ends before it begins")));
            }
            let checked = match node.level() {
                0 => match self.count_rows(txn, &entry.key, end, entry.count)? {
                    walked if walked == entry.count => Ok(()),
                    walked => Err(format!("node {number}: block {at} has {walked} elements, not {}", entry.count)),
                },
                level => self.verify_node(txn, entry.child, Some(level - 1), &entry.key, end, entry.count)?,
            };
            if checked.is_err() {
                return Ok(checked);
            }
        }
        Ok(Ok(()))
    }

    /// Returns the numbers of levels and nodes.
    pub fn size(&self, txn: &mut Txn<'_>) -> Result<(u32, u64)> {
        if !self.is_there() {
            return Ok((0, 0));
        }
        let (mut levels, mut nodes, mut below) = (0, 0, vec![ROOT]);
        while !below.is_empty() {
            levels += 1;
            nodes += below.len() as u64;
            let mut next = Vec::new();
            for number in below {
                let node = self.node(txn, number)?;
                if node.level() > 0 {
                    next.extend((0..node.len()).map(|at| node.child(at)));
                }
            }
            below = next;
        }
        Ok((levels, nodes))
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
