//! The rank tree: a counted B+tree over the ordered rows of a large collection, so that a place is found by its number
//! and a number by its place without a walk over the elements before. Knows no contents of rows: an element is its
//! row's key behind the prefix of its object.
//!
//! The leaves are *blocks*: runs of at most 32 rows that the tree counts but does not hold. A node is a row; its
//! entries are the first possible key of a part (a separator, as short as it can be) and how many elements the part
//! has. A new element costs a patch of some bytes in one node of each level: two levels up to about a million elements.
//! Nodes are in `node`, the making of a tree in `build`, its changes in `change`. Format: docs/format/zset.md.
//!
//! An empty block stays where it is the first or the last of all, and nothing is joined there: so a command that takes
//! elements from an end never walks over the places of those that were taken before.

mod build;
mod change;
mod node;
mod verify;

use crate::Result;
use crate::element::Rows;
use crate::key::damaged;
use haypile_store::row::{self, Family, RowKey};
use haypile_store::{Direction, Txn};
use node::Node;
use std::ops::ControlFlow;

/// Elements up to which a collection has no tree: a walk over as many costs less than the upkeep of one.
pub const WALK_MAX: u64 = 256;

/// Returns whether so many elements need no tree any more.
pub fn is_few(count: u64) -> bool {
    count < WALK_MAX / 4
}

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
    /// The family of the elements' rows.
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

impl Ranks {
    pub fn is_there(&self) -> bool {
        self.next_node > 0
    }

    /// Returns the row of an element.
    #[inline]
    pub fn row(&self, key: &[u8]) -> RowKey {
        let Rows { space, object } = self.rows;
        row::object_row(self.family, space, object.slot, object.id, key)
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
}
