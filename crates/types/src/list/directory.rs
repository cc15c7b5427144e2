//! The directory of a list that was changed in its middle: where which elements lie. A *segment* is a run of elements:
//! a dense one of any length, whose positions are `STEP` apart, or a loose one of at most `LOOSE_MAX`, which are
//! walked. Segments are the entries of a counted B+tree whose nodes are rows, so that an index is found in a few rows
//! and a change writes a few.
//!
//! Invariants: segments and subtrees are in the order of positions, without overlap; each counts at least one element;
//! the start of a dense segment is the position of its first element, that of a loose one at most that, and beyond the
//! last element before it; two neighbours have more than `JOINED_MAX` elements together; an entry of an inner node has
//! the start of its child's first entry and the sum of its counts; all leaves have level 0, and a node's level is one
//! above its children's; nodes but the root have at least two entries.

use super::rows::{POSITIONS_END, STEP, position_of};
use crate::Result;
use crate::element::Rows;
use crate::key::damaged;
use haypile_store::row::RowKey;
use haypile_store::{Direction, Txn, Value};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

/// The most elements of a loose segment, and so of a walk.
pub(super) const LOOSE_MAX: u64 = 128;

/// Neighbours that have no more elements together are one segment.
pub(super) const JOINED_MAX: u64 = LOOSE_MAX / 2;

/// Entries of a node.
const ENTRIES_MAX: usize = 64;

/// A node with fewer entries is joined with one beside it.
const ENTRIES_MIN: usize = ENTRIES_MAX / 4;

/// The number of entries to which nodes are filled where one becomes several, or two become one.
const ENTRIES_FILLED: usize = ENTRIES_MAX * 3 / 4;

/// Bytes of an entry: `start: u64 | count: u64 | link: u32`.
const ENTRY_BYTES: usize = 20;

/// How the elements of a segment lie. DO NOT CHANGE THESE NUMBERS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kind {
    Dense = 0,
    Loose = 1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub start: u64,
    pub count: u64,
    pub kind: Kind,
}

/// An entry of a node: a segment (`link` is its kind) or a child (`link` is its number).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    start: u64,
    count: u64,
    link: u32,
}

impl From<Segment> for Entry {
    fn from(segment: Segment) -> Entry {
        Entry { start: segment.start, count: segment.count, link: segment.kind as u32 }
    }
}

#[derive(Clone, Debug)]
struct Node {
    level: u8,
    /// The parts of the node; empty if it is to be removed.
    entries: Vec<Entry>,
    /// The node's row as it was read.
    stored: Option<Value>,
    changed: bool,
}

/// The nodes that were looked at, with their changes, which `save` writes.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    rows: Rows,
    root: u32,
    /// The number of the next new node; none has number 0.
    next: u32,
    nodes: BTreeMap<u32, Node>,
}

/// The way from the root to a segment: nodes and places of entries.
type Path = Vec<(u32, usize)>;

impl Directory {
    /// Opens a directory that is in the store.
    pub fn stored(rows: Rows, root: u32, next: u32) -> Directory {
        Directory { rows, root, next, nodes: BTreeMap::new() }
    }

    /// Makes a directory of one segment.
    pub fn of(rows: Rows, segment: Segment) -> Directory {
        let mut directory = Directory { rows, root: 1, next: 1, nodes: BTreeMap::new() };
        directory.add_node(0, vec![segment.into()]);
        directory
    }

    /// Returns the root's number and the next one.
    pub fn numbers(&self) -> (u32, u32) {
        (self.root, self.next)
    }

    /// Tells whether the directory is known to say no more than that the list is dense.
    pub fn is_dense(&self) -> bool {
        matches!(self.nodes.get(&self.root), Some(Node { level: 0, entries, .. })
            if matches!(entries[..], [Entry { link: DENSE, .. }]))
    }

    /// Tells whether there are no segments.
    pub fn is_empty(&self) -> bool {
        self.nodes.get(&self.root).is_some_and(|root| root.entries.is_empty())
    }

    /// Takes out the only segment.
    pub fn clear(&mut self) {
        let root = self.nodes.get_mut(&self.root).expect("the caller has looked at it");
        root.entries.clear();
        root.changed = true;
    }

    fn row(&self, number: u32) -> RowKey {
        self.rows.data(&(POSITIONS_END + u64::from(number)).to_be_bytes())
    }

    fn add_node(&mut self, level: u8, entries: Vec<Entry>) -> u32 {
        let number = self.next;
        // Four thousand million splits only happen to a list that never was copied to a fresh object.
        self.next = self.next.checked_add(1).expect("numbers of nodes suffice");
        self.nodes.insert(number, Node { level, entries, stored: None, changed: true });
        number
    }

    /// Returns a node, read if need be.
    fn node(&mut self, txn: &mut Txn<'_>, number: u32) -> Result<&mut Node> {
        if !self.nodes.contains_key(&number) {
            let row = self.row(number);
            let stored = txn.row(&row)?.ok_or_else(|| damaged("a list: the row of a node", &row))?;
            self.nodes.insert(number, Node::parse(stored)?);
        }
        Ok(self.nodes.get_mut(&number).expect("it was inserted above"))
    }

    /// Returns a node's level and its entries: start, count, link.
    pub fn look(&mut self, txn: &mut Txn<'_>, number: u32) -> Result<(u8, Vec<(u64, u64, u32)>)> {
        let node = self.node(txn, number)?;
        Ok((node.level, node.entries.iter().map(|entry| (entry.start, entry.count, entry.link)).collect()))
    }

    /// Returns the way to the segment with the element at `index`, or to the last one, and the element's place in it.
    fn descend(&mut self, txn: &mut Txn<'_>, index: u64) -> Result<(Path, u64)> {
        let (mut path, mut rest, mut number, mut above) = (Path::new(), index, self.root, None);
        loop {
            let node = self.node(txn, number)?;
            if node.entries.is_empty() || above.is_some_and(|above| node.level + 1 != above) {
                let row = self.row(number);
                return Err(damaged("a list: the place of a node", &row));
            }
            let mut at = 0;
            while at + 1 < node.entries.len() && rest >= node.entries[at].count {
                rest -= node.entries[at].count;
                at += 1;
            }
            path.push((number, at));
            if node.level == 0 {
                return Ok((path, rest));
            }
            (number, above) = (node.entries[at].link, Some(node.level));
        }
    }

    /// Returns the segment with the element at `index`, and the element's place in it.
    pub fn find(&mut self, txn: &mut Txn<'_>, index: u64) -> Result<(Segment, u64)> {
        let (path, offset) = self.descend(txn, index)?;
        let &(number, at) = path.last().expect("a way has a step");
        let Entry { start, count, link } = self.nodes[&number].entries[at];
        let kind = if link == DENSE { Kind::Dense } else { Kind::Loose };
        if offset < count {
            Ok((Segment { start, count, kind }, offset))
        } else {
            Err(damaged("a list: the counts of a node", &self.row(number)))
        }
    }

    /// Counts all elements.
    pub fn count(&mut self, txn: &mut Txn<'_>) -> Result<u64> {
        let root = self.root;
        Ok(self.node(txn, root)?.entries.iter().map(|entry| entry.count).sum())
    }

    /// Returns where the element at `index` lies.
    pub fn position(&mut self, txn: &mut Txn<'_>, index: u64) -> Result<u64> {
        match self.find(txn, index)? {
            (Segment { start, kind: Kind::Dense, .. }, offset) => Ok(start + offset * STEP),
            (Segment { start, kind: Kind::Loose, .. }, offset) => self.walk(txn, start, offset),
        }
    }

    /// Returns the position of an element that has `offset` others between it and `start`.
    fn walk(&self, txn: &mut Txn<'_>, start: u64, offset: u64) -> Result<u64> {
        let (from, until) = (self.rows.data(&start.to_be_bytes()), self.rows.data(&POSITIONS_END.to_be_bytes()));
        let (mut found, mut left) = (None, offset);
        txn.visit(&from, &until, Direction::Forward, offset as usize + 1, |row, _| match left {
            0 => {
                found = Some(position_of(row));
                ControlFlow::Break(())
            }
            _ => {
                left -= 1;
                ControlFlow::Continue(())
            }
        })?;
        found.ok_or_else(|| damaged("a list: elements are missing behind the row", &from))
    }

    /// Puts other segments, or none, into the place of the one with the element at `index`.
    pub fn replace(&mut self, txn: &mut Txn<'_>, index: u64, with: &[Segment]) -> Result<()> {
        let (path, _) = self.descend(txn, index)?;
        let &(_, at) = path.last().expect("a way has a step");
        let (mut with, mut range): (Vec<Entry>, _) = (with.iter().copied().map(Entry::from).collect(), at..at + 1);
        for (depth, &(number, _)) in path.iter().enumerate().rev() {
            let node = self.nodes.get_mut(&number).expect("the way leads through nodes that were read");
            node.entries.splice(range.clone(), with);
            node.changed = true;
            let Some(&(parent, at)) = depth.checked_sub(1).map(|above| &path[above]) else { break };
            range = self.rebalance(txn, number, parent, at)?;
            with = self.split(range.clone().map(|at| self.nodes[&parent].entries[at].link).collect());
        }
        self.grow_or_shrink_root(txn)
    }

    /// Joins a node that was changed with one beside it if its size asks for that; returns which of the parent's
    /// entries, around that at `at`, have to be made again.
    fn rebalance(&mut self, txn: &mut Txn<'_>, number: u32, parent: u32, at: usize) -> Result<Range<usize>> {
        let entries = self.nodes[&number].entries.len();
        let beside = if at > 0 { at - 1 } else { at + 1 };
        let Some(&Entry { link: other, .. }) = self.nodes[&parent].entries.get(beside) else { return Ok(at..at + 1) };
        if entries >= ENTRIES_MIN {
            return Ok(at..at + 1);
        }
        // Both become one node, or two that are full enough: `split` decides.
        self.node(txn, other)?;
        let (left, right) = if beside < at { (other, number) } else { (number, other) };
        let moved = std::mem::take(&mut self.change(right).entries);
        self.change(left).entries.extend(moved);
        Ok(at.min(beside)..at.max(beside) + 1)
    }

    fn change(&mut self, number: u32) -> &mut Node {
        let node = self.nodes.get_mut(&number).expect("a node that was read");
        node.changed = true;
        node
    }

    /// Returns the parent's entries for children that follow each other: empty children are left out, one with too many
    /// entries becomes several.
    fn split(&mut self, children: Vec<u32>) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(children.len());
        for number in children {
            let node = &self.nodes[&number];
            if node.entries.len() <= ENTRIES_MAX {
                entries.extend(node.as_entry(number));
                continue;
            }
            let (level, all) = (node.level, std::mem::take(&mut self.change(number).entries));
            let pieces = all.len().div_ceil(ENTRIES_FILLED);
            let mut rest = &all[..];
            for left in (1..=pieces).rev() {
                let (piece, others) = rest.split_at(rest.len() / left);
                rest = others;
                let number = match left == pieces {
                    true => {
                        self.change(number).entries = piece.to_vec();
                        number
                    }
                    false => self.add_node(level, piece.to_vec()),
                };
                entries.extend(self.nodes[&number].as_entry(number));
            }
        }
        entries
    }

    /// Gives a root with too many entries a new root above it, and removes a root with a single child.
    fn grow_or_shrink_root(&mut self, txn: &mut Txn<'_>) -> Result<()> {
        loop {
            let number = self.root;
            let root = &self.nodes[&number];
            match root.entries[..] {
                [Entry { link, .. }] if root.level > 0 => {
                    self.change(number).entries.clear();
                    self.root = link;
                    self.node(txn, link)?;
                }
                _ if root.entries.len() > ENTRIES_MAX => {
                    let level = root.level + 1;
                    let entries = self.split(vec![number]);
                    self.root = self.add_node(level, entries);
                }
                _ => {
                    // Nodes above the last entry are empty once it is removed.
                    if root.entries.is_empty() && root.level > 0 {
                        self.change(number).level = 0;
                    }
                    return Ok(());
                }
            }
        }
    }

    /// Joins the segments on both sides of the element at `boundary` if they should be one; inside one segment there is
    /// nothing to join.
    pub fn join(&mut self, txn: &mut Txn<'_>, boundary: u64) -> Result<()> {
        if boundary == 0 || boundary >= self.count(txn)? {
            return Ok(());
        }
        let (left, _) = self.find(txn, boundary - 1)?;
        let (right, offset) = self.find(txn, boundary)?;
        if offset != 0 {
            return Ok(());
        }
        let is_one_run =
            left.kind == Kind::Dense && right.kind == Kind::Dense && left.start + left.count * STEP == right.start;
        let count = left.count + right.count;
        if is_one_run || count <= JOINED_MAX {
            let kind = if is_one_run { Kind::Dense } else { Kind::Loose };
            self.replace(txn, boundary, &[])?;
            self.replace(txn, boundary - 1, &[Segment { start: left.start, count, kind }])?;
        }
        Ok(())
    }

    /// Notes elements added at the head, `STEP` apart, before the one at `first`.
    pub fn push_head(&mut self, txn: &mut Txn<'_>, first: u64, added: u64) -> Result<()> {
        let (segment, _) = self.find(txn, 0)?;
        let start = first - added * STEP;
        match segment.kind {
            Kind::Dense => self.replace(txn, 0, &[Segment { start, count: segment.count + added, ..segment }]),
            Kind::Loose => {
                // The segment's start may lie before its first element, where others come now.
                let segment = Segment { start: first, ..segment };
                self.replace(txn, 0, &[Segment { start, count: added, kind: Kind::Dense }, segment])?;
                self.join(txn, added)
            }
        }
    }

    /// Notes elements added at the tail, `STEP` apart, behind the one at `last`.
    pub fn push_tail(&mut self, txn: &mut Txn<'_>, last: u64, added: u64) -> Result<()> {
        let count = self.count(txn)?;
        let (segment, _) = self.find(txn, count - 1)?;
        match segment.kind {
            Kind::Dense => self.replace(txn, count - 1, &[Segment { count: segment.count + added, ..segment }]),
            Kind::Loose => {
                let new = Segment { start: last + STEP, count: added, kind: Kind::Dense };
                self.replace(txn, count - 1, &[segment, new])?;
                self.join(txn, count)
            }
        }
    }

    /// Notes that of `count` elements those outside of `keep` were removed.
    pub fn trim(&mut self, txn: &mut Txn<'_>, count: u64, keep: Range<u64>) -> Result<()> {
        let mut end = count;
        while end > keep.end {
            let (segment, _) = self.find(txn, end - 1)?;
            let left = segment.count.saturating_sub(end - keep.end);
            let shorter = Segment { count: left, ..segment };
            self.replace(txn, end - 1, if left == 0 { &[] } else { std::slice::from_ref(&shorter) })?;
            end -= segment.count - left;
        }
        let mut before = keep.start;
        while before > 0 {
            let (segment, _) = self.find(txn, 0)?;
            let removed = segment.count.min(before);
            let start = if segment.kind == Kind::Dense { segment.start + removed * STEP } else { segment.start };
            let shorter = Segment { start, count: segment.count - removed, ..segment };
            self.replace(txn, 0, if shorter.count == 0 { &[] } else { std::slice::from_ref(&shorter) })?;
            before -= removed;
        }
        let (last, _) = self.find(txn, keep.end - keep.start - 1)?;
        self.join(txn, keep.end - keep.start - last.count)?;
        let (first, _) = self.find(txn, 0)?;
        self.join(txn, first.count)
    }

    /// Notes an element added before the one at `index`, at a position between its neighbours'.
    pub fn insert(&mut self, txn: &mut Txn<'_>, index: u64, position: u64) -> Result<()> {
        let (mut segment, mut offset) = self.find(txn, index)?;
        if offset == 0 && index > 0 {
            let (before, _) = self.find(txn, index - 1)?;
            let is_shorter = segment.kind == Kind::Dense || before.count < segment.count;
            if before.kind == Kind::Loose && position < segment.start && is_shorter {
                (segment, offset) = (before, before.count);
            }
        }
        let Segment { start, count, kind } = segment;
        let first = index - offset;
        match kind {
            Kind::Loose if count < LOOSE_MAX => {
                let more = Segment { start: start.min(position), count: count + 1, kind };
                self.replace(txn, first, &[more])
            }
            Kind::Loose => {
                let start = start.min(position);
                let half = count.div_ceil(2);
                let middle = self.walk(txn, start, half)?;
                let left = Segment { start, count: half, kind };
                let right = Segment { start: middle, count: count + 1 - half, kind };
                self.replace(txn, first, &[left, right])
            }
            Kind::Dense => {
                let carved = offset.saturating_sub(JOINED_MAX / 2)..count.min(offset + JOINED_MAX / 2);
                let left = Segment { start, count: carved.start, kind };
                let loose = Segment {
                    start: position.min(start + carved.start * STEP),
                    count: carved.end - carved.start + 1,
                    kind: Kind::Loose,
                };
                let right = Segment { start: start + carved.end * STEP, count: count - carved.end, kind };
                self.replace_joined(txn, first, &[left, loose, right])
            }
        }
    }

    /// Notes the removal of the element at `index`. At least one is left.
    pub fn remove(&mut self, txn: &mut Txn<'_>, index: u64) -> Result<()> {
        let (Segment { start, count, kind }, offset) = self.find(txn, index)?;
        let (left, right) = match kind {
            Kind::Loose => (count - 1, 0),
            Kind::Dense => (offset, count - 1 - offset),
        };
        let left = Segment { start, count: left, kind };
        let right = Segment { start: start + (offset + 1) * STEP, count: right, kind };
        self.replace_joined(txn, index - offset, &[left, right])
    }

    /// Puts other segments, as far as they have elements, into the place of the one that begins at index `first`, and
    /// joins those that should be one with them and around them.
    fn replace_joined(&mut self, txn: &mut Txn<'_>, first: u64, with: &[Segment]) -> Result<()> {
        let with: Vec<Segment> = with.iter().copied().filter(|segment| segment.count > 0).collect();
        self.replace(txn, first, &with)?;
        let mut boundary = first + with.iter().map(|segment| segment.count).sum::<u64>();
        self.join(txn, boundary)?;
        for segment in with.iter().rev() {
            boundary -= segment.count;
            self.join(txn, boundary)?;
        }
        Ok(())
    }

    /// Makes the element at `index` the first of a segment, which starts at its position. Rows must lie where the
    /// directory says.
    fn cut(&mut self, txn: &mut Txn<'_>, index: u64) -> Result<()> {
        if index == 0 || index >= self.count(txn)? {
            return Ok(());
        }
        let (Segment { start, count, kind }, offset) = self.find(txn, index)?;
        let left = Segment { start, count: offset, kind };
        let both = [left, Segment { start: self.position(txn, index)?, count: count - offset, kind }];
        self.replace(txn, index, if offset == 0 { &both[1..] } else { &both })
    }

    /// Notes that the elements in `window` are going to lie at other positions, between those of their neighbours.
    pub fn renumber(&mut self, txn: &mut Txn<'_>, window: Range<u64>, positions: &[u64]) -> Result<()> {
        self.cut(txn, window.end)?;
        self.cut(txn, window.start)?;
        let mut end = window.end;
        loop {
            let (segment, _) = self.find(txn, end - 1)?;
            if end - segment.count == window.start {
                break;
            }
            self.replace(txn, end - 1, &[])?;
            end -= segment.count;
        }
        let pieces = positions.chunks(JOINED_MAX as usize);
        let loose = pieces
            .map(|piece| Segment { start: piece[0], count: piece.len() as u64, kind: Kind::Loose })
            .collect::<Vec<_>>();
        self.replace(txn, window.start, &loose)?;
        // The segments cut off on either side may be short now.
        let mut boundaries = vec![window.end, window.start];
        if window.end < self.count(txn)? {
            boundaries.insert(0, window.end + self.find(txn, window.end)?.0.count);
        }
        if window.start > 0 {
            boundaries.push(window.start - self.find(txn, window.start - 1)?.0.count);
        }
        boundaries.into_iter().try_for_each(|boundary| self.join(txn, boundary))
    }

    /// Panics unless the nodes that have changed, and are not removed, are such as the format has them.
    pub fn assert_sound(&self) {
        for (number, node) in self.nodes.iter().filter(|(_, node)| node.changed && !node.entries.is_empty()) {
            let (entries, level) = (&node.entries, node.level);
            let least = if *number == self.root && level == 0 { 1 } else { 2 };
            assert!(
                (least..=ENTRIES_MAX).contains(&entries.len()),
                "Invariant: nodes but the root have several entries"
            );
            assert!(entries.iter().all(|entry| entry.count > 0), "Invariant: segments and nodes count some element");
            assert!(entries.is_sorted_by(|a, b| a.start < b.start), "Invariant: segments and nodes are in order");
            let is_short = entries.iter().all(|entry| entry.link == DENSE || entry.count <= LOOSE_MAX);
            assert!(level > 0 || is_short, "Invariant: loose segments have at most {LOOSE_MAX} elements");
            let are_long = entries.windows(2).all(|two| two[0].count + two[1].count > JOINED_MAX);
            assert!(level > 0 || are_long, "Invariant: two neighbours have more than {JOINED_MAX} elements together");
            let is_run = |two: &[Entry]| {
                [two[0].link, two[1].link] == [DENSE; 2] && two[0].start + two[0].count * STEP == two[1].start
            };
            assert!(
                level > 0 || !entries.windows(2).any(is_run),
                "Invariant: dense neighbours do not continue each other"
            );
        }
    }

    /// Writes the changed nodes: of a node that was there before, the difference.
    pub fn save(&mut self, txn: &mut Txn<'_>) -> Result<()> {
        for (&number, node) in self.nodes.iter().filter(|(_, node)| node.changed) {
            let row = self.row(number);
            match (&node.stored, node.entries.is_empty()) {
                (None, true) => {}
                (Some(_), true) => txn.delete_row(&row)?,
                (None, false) => txn.put_row(&row, &[&node.encode()])?,
                (Some(before), false) => write_difference(txn, &row, before, &node.encode())?,
            }
        }
        Ok(())
    }
}

const DENSE: u32 = Kind::Dense as u32;

impl Node {
    /// Parses `level: u8`, then the entries.
    fn parse(stored: Value) -> Result<Node> {
        let parsed = stored.split_first().and_then(|(level, entries)| {
            let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
            let entries: Vec<Entry> = entries.iter().map(Entry::parse).collect();
            let is_sound = rest.is_empty()
                && entries.iter().all(|entry| entry.count > 0 && (*level > 0 || entry.link <= Kind::Loose as u32));
            is_sound.then_some((*level, entries))
        });
        match parsed {
            Some((level, entries)) => Ok(Node { level, entries, stored: Some(stored), changed: false }),
            None => Err(damaged("a node of a list", &stored)),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + self.entries.len() * ENTRY_BYTES);
        bytes.push(self.level);
        for Entry { start, count, link } in &self.entries {
            bytes.extend_from_slice(&start.to_be_bytes());
            bytes.extend_from_slice(&count.to_be_bytes());
            bytes.extend_from_slice(&link.to_be_bytes());
        }
        bytes
    }

    /// Returns the parent's entry for the node; none for one without entries.
    fn as_entry(&self, number: u32) -> Option<Entry> {
        let first = self.entries.first()?;
        Some(Entry { start: first.start, count: self.entries.iter().map(|entry| entry.count).sum(), link: number })
    }
}

impl Entry {
    fn parse(bytes: &[u8; ENTRY_BYTES]) -> Entry {
        let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let link = u32::from_be_bytes(bytes[16..].try_into().expect("four bytes"));
        Entry { start: number(0), count: number(8), link }
    }
}

/// Writes a row that was `before`: only the part that differs, if that is much less.
fn write_difference(txn: &mut Txn<'_>, row: &[u8], before: &[u8], after: &[u8]) -> Result<()> {
    let start = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let end = match before.len() == after.len() {
        true => after.len() - before.iter().zip(after).rev().take_while(|(a, b)| a == b).count(),
        false => after.len(),
    };
    if start >= end && before.len() == after.len() {
        return Ok(());
    }
    let end = end.max(start);
    if (end - start) * 2 > after.len() {
        Ok(txn.put_row(row, &[after])?)
    } else {
        Ok(txn.patch_row(row, start as u32, &after[start..end], after.len() as u32)?)
    }
}
