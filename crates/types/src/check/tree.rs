//! The counted trees of large lists and sorted sets, walked from their first part to their last beside the elements
//! that they count. The types know a node's bytes; counts, keys and levels are checked here.
//!
//! Memory is a node for each level. Nodes are looked up one by one, some dozens of elements for each.

use super::place::Report;
use haypile_store::base::BaseError;

/// A part of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// A lower bound of the part's elements.
    pub key: Vec<u8>,
    pub count: u64,
    /// A value of the type at level 0, else the number of a node.
    pub link: u32,
}

pub(super) struct Node {
    pub level: u8,
    pub parts: Vec<Part>,
}

/// The rules of a type for its trees.
pub(super) struct Rules {
    pub parse: fn(&[u8]) -> Option<Node>,
    /// Parts of a node at most, and of one that is not the root at least.
    pub parts: (usize, usize),
    /// Returns the defect of a leaf's part behind the one before it.
    pub part: fn(Option<&Part>, &Part) -> Option<String>,
}

/// The leaves' parts in order.
pub(super) struct Tree<'t> {
    node: &'t dyn Fn(u32) -> Result<Option<Vec<u8>>, BaseError>,
    rules: &'static Rules,
    /// The nodes on the way to the next part, each with the index of its next part.
    way: Vec<(Node, usize)>,
    /// Nodes that were met.
    pub nodes: u64,
    /// A node was wrong: what lies behind it is not known.
    pub is_broken: bool,
    last: Option<Part>,
}

impl<'t> Tree<'t> {
    /// `node` reads the row of a node.
    pub fn new(
        root: u32,
        count: u64,
        node: &'t dyn Fn(u32) -> Result<Option<Vec<u8>>, BaseError>,
        rules: &'static Rules,
        report: &mut Report<'_, '_, '_>,
    ) -> Result<Tree<'t>, BaseError> {
        let mut tree = Tree { node, rules, way: Vec::new(), nodes: 0, is_broken: false, last: None };
        let whole = Part { key: Vec::new(), count, link: root };
        tree.descend(&whole, None, report)?;
        Ok(tree)
    }

    /// Returns the next part of a leaf.
    pub fn next(&mut self, report: &mut Report<'_, '_, '_>) -> Result<Option<Part>, BaseError> {
        while !self.is_broken {
            let Some((node, at)) = self.way.last_mut() else { return Ok(None) };
            let Some(part) = node.parts.get(*at).cloned() else {
                self.way.pop();
                continue;
            };
            *at += 1;
            if node.level > 0 {
                let level = node.level - 1;
                self.descend(&part, Some(level), report)?;
                continue;
            }
            if self.last.as_ref().is_some_and(|last| last.key >= part.key) {
                report.add(format_args!("the parts of its tree are not in order at key {}", hex(&part.key)));
            } else if let Some(what) = (self.rules.part)(self.last.as_ref(), &part) {
                report.add(format_args!("the part of its tree at key {} {what}", hex(&part.key)));
            }
            self.last = Some(part.clone());
            return Ok(Some(part));
        }
        Ok(None)
    }

    /// Goes down to the node that a part of another one stands for.
    fn descend(&mut self, part: &Part, level: Option<u8>, report: &mut Report<'_, '_, '_>) -> Result<(), BaseError> {
        let number = part.link;
        self.nodes += 1;
        let Some(row) = (self.node)(number)? else {
            self.is_broken = true;
            report.add(format_args!("node {number} of its tree has no row"));
            return Ok(());
        };
        let Some(node) = (self.rules.parse)(&row).filter(|node| !node.parts.is_empty()) else {
            self.is_broken = true;
            report.add(format_args!("node {number} of its tree does not parse"));
            return Ok(());
        };
        if level.is_some_and(|level| level != node.level) {
            self.is_broken = true;
            report.add(format_args!("node {number} of its tree has level {}, which is not one below", node.level));
            return Ok(());
        }
        let sum: u64 = node.parts.iter().map(|part| part.count).sum();
        if sum != part.count {
            let what =
                format!("node {number} of its tree counts {sum} elements, and {} are said to be there", part.count);
            report.add(what);
        }
        let (parts_max, parts_min) = self.rules.parts;
        if node.parts.len() > parts_max || level.is_some() && node.parts.len() < parts_min {
            report.add(format_args!("node {number} of its tree has {} parts", node.parts.len()));
        }
        // The first part of a node takes what has no other place, so its elements may lie before its key.
        let is_after = self.last.as_ref().is_some_and(|last| last.key >= part.key);
        let is_before = node.parts.get(1).is_some_and(|second| second.key <= part.key);
        if level.is_some() && (is_after || is_before) {
            report.add(format_args!("node {number} of its tree does not lie where the part begins that it is"));
        }
        self.way.push((node, 0));
        Ok(())
    }
}

/// A walk over elements in order, compared with the parts of a tree.
pub(super) struct Counting<'t> {
    tree: Tree<'t>,
    part: Option<Part>,
    next: Option<Part>,
    counted: u64,
}

impl<'t> Counting<'t> {
    pub fn new(mut tree: Tree<'t>, report: &mut Report<'_, '_, '_>) -> Result<Counting<'t>, BaseError> {
        let part = tree.next(report)?;
        let next = tree.next(report)?;
        Ok(Counting { tree, part, next, counted: 0 })
    }

    /// Returns the part with which the tree begins.
    pub fn first(&self) -> Option<&Part> {
        self.part.as_ref()
    }

    /// Returns the part that the next element belongs to, and how many elements of it have come before.
    pub fn on_element(
        &mut self,
        key: &[u8],
        report: &mut Report<'_, '_, '_>,
    ) -> Result<Option<(&Part, u64)>, BaseError> {
        while self.next.as_ref().is_some_and(|next| *next.key <= *key) {
            self.end_part(report)?;
        }
        self.counted += 1;
        let counted = self.counted - 1;
        Ok(self.part.as_ref().map(|part| (part, counted)))
    }

    fn end_part(&mut self, report: &mut Report<'_, '_, '_>) -> Result<(), BaseError> {
        if let Some(part) = self.part.as_ref().filter(|part| part.count != self.counted && !self.tree.is_broken) {
            let what = format!(
                "its tree counts {} elements from key {} on, there are {}",
                part.count,
                hex(&part.key),
                self.counted
            );
            report.add(what);
        }
        self.counted = 0;
        self.part = self.next.take();
        self.next = self.tree.next(report)?;
        Ok(())
    }

    /// Checks the counts after the last element. `rows` is how many rows of nodes there are.
    pub fn finish(mut self, rows: u64, report: &mut Report<'_, '_, '_>) -> Result<(), BaseError> {
        while self.part.is_some() {
            self.end_part(report)?;
        }
        if rows != self.tree.nodes && !self.tree.is_broken {
            report.add(format_args!("its tree has {} nodes, there are rows of {rows}", self.tree.nodes));
        }
        Ok(())
    }
}

fn hex(key: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 24;
    key.iter().take(SHOWN_BYTES_MAX).map(|byte| format!("{byte:02x}")).collect()
}
