//! A node of the rank tree as a row: parts in order, each with its first possible key and the number of its elements,
//! and, above the blocks, with the number of its node.
//!
//! `level: u8 | n: u16 | counts: n * W | children: n * u32, above level 0 | ends: n * u16 | keys`, W being 4 at level 0
//! and 8 above. `ends` are where each key ends among `keys`: a key is found without a walk, a count is patched in its
//! place.

use crate::Result;
use crate::key::damaged;
use haypile_store::Value;
use smallvec::SmallVec;

/// Parts of a node at most. Where blocks are counted, a node is rewritten for each block that is cut; above, seldom.
const BLOCKS_MAX: usize = 128;
const NODES_MAX: usize = 1024;

/// Bytes of keys at most, but for one key: a larger node would not be worth patching.
const KEYS_BYTES_MAX: usize = 16 << 10;

/// A node is small below this share of its parts.
const SMALL_SHARE: usize = 8;

const HEAD_BYTES: usize = 3;

/// A part of a node, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The lower bound of the elements of this part; all elements of the part before lie below it.
    pub key: Vec<u8>,
    /// The number of a node; at level 0 without meaning.
    pub child: u32,
    pub count: u64,
}

fn parts_max(level: u8) -> usize {
    if level == 0 { BLOCKS_MAX } else { NODES_MAX }
}

fn count_width(level: u8) -> usize {
    if level == 0 { 4 } else { 8 }
}

/// A node that was read.
pub struct Node {
    pub row: Value,
    level: u8,
    length: usize,
    /// The offset at which keys begin.
    keys: usize,
}

impl Node {
    pub fn parse(row: Value) -> Result<Node> {
        if let Some(node) = Node::layout(&row) {
            let (level, length, keys) = node;
            return Ok(Node { row, level, length, keys });
        }
        Err(damaged("a node of a rank tree", &row))
    }

    fn layout(row: &[u8]) -> Option<(u8, usize, usize)> {
        let (level, length) = (*row.first()?, usize::from(u16::from_be_bytes(row.get(1..3)?.try_into().ok()?)));
        let child_width = if level == 0 { 0 } else { 4 };
        let keys = HEAD_BYTES + length * (count_width(level) + child_width + 2);
        let last_end = u16::from_be_bytes(row.get(keys.checked_sub(2)?..keys)?.try_into().ok()?);
        (length > 0 && level < 16 && row.len() == keys + usize::from(last_end)).then_some((level, length, keys))
    }

    /// Returns an error unless the node has this level.
    pub fn expect_level(&self, level: Option<u8>) -> Result<()> {
        if level.is_none_or(|level| level == self.level) { Ok(()) } else { Err(damaged("a rank tree", &self.row)) }
    }

    pub fn level(&self) -> u8 {
        self.level
    }

    /// Returns the number of parts.
    pub fn len(&self) -> usize {
        self.length
    }

    pub fn bytes(&self) -> usize {
        self.row.len()
    }

    pub fn is_small(&self) -> bool {
        self.length < parts_max(self.level) / SMALL_SHARE
    }

    pub fn offset_of_count(&self, at: usize) -> usize {
        HEAD_BYTES + at * count_width(self.level)
    }

    /// Returns the bytes of a count as they stand in the node.
    pub fn count_bytes(&self, count: u64) -> SmallVec<[u8; 8]> {
        SmallVec::from_slice(&count.to_be_bytes()[8 - count_width(self.level)..])
    }

    pub fn count(&self, at: usize) -> u64 {
        let offset = self.offset_of_count(at);
        match self.level {
            0 => u32::from_be_bytes(self.row[offset..offset + 4].try_into().expect("four bytes")).into(),
            _ => u64::from_be_bytes(self.row[offset..offset + 8].try_into().expect("eight bytes")),
        }
    }

    /// Counts the elements in the parts before `at`.
    pub fn count_before(&self, at: usize) -> u64 {
        let counts = &self.row[HEAD_BYTES..self.offset_of_count(at)];
        match self.level {
            0 => counts.as_chunks::<4>().0.iter().map(|count| u64::from(u32::from_be_bytes(*count))).sum(),
            _ => counts.as_chunks::<8>().0.iter().map(|count| u64::from_be_bytes(*count)).sum(),
        }
    }

    pub fn child(&self, at: usize) -> u32 {
        if self.level == 0 {
            return 0;
        }
        let offset = HEAD_BYTES + self.length * 8 + at * 4;
        u32::from_be_bytes(self.row[offset..offset + 4].try_into().expect("four bytes"))
    }

    fn key_end(&self, at: usize) -> usize {
        let offset = self.keys - 2 * (self.length - at);
        self.keys + usize::from(u16::from_be_bytes([self.row[offset], self.row[offset + 1]]))
    }

    pub fn key(&self, at: usize) -> &[u8] {
        let from = if at == 0 { self.keys } else { self.key_end(at - 1) };
        // Damaged ends give a wrong key, never a panic.
        self.row.get(from..self.key_end(at)).unwrap_or_default()
    }

    /// Returns the part where `key` belongs: the last one that begins at it or before; the first one if none does.
    pub fn find(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.length);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if self.key(middle) <= key { low = middle } else { high = middle }
        }
        low
    }

    /// Returns the part that has the element with `index` before it in this node; the last one if there are too few.
    pub fn at(&self, index: u64) -> usize {
        let mut before = 0;
        for at in 0..self.length {
            before += self.count(at);
            if before > index {
                return at;
            }
        }
        self.length - 1
    }

    pub fn entries(&self) -> Vec<Entry> {
        let entry = |at| Entry { key: self.key(at).to_vec(), child: self.child(at), count: self.count(at) };
        (0..self.length).map(entry).collect()
    }
}

/// A node that is to be written.
pub struct Making {
    pub level: u8,
    pub entries: Vec<Entry>,
}

impl Making {
    pub fn sum(&self) -> u64 {
        self.entries.iter().map(|entry| entry.count).sum()
    }

    pub fn first_key(&self) -> &[u8] {
        &self.entries[0].key
    }

    pub fn is_small(&self) -> bool {
        self.entries.len() < parts_max(self.level) / SMALL_SHARE
    }

    /// Tells whether the node has as many parts as it may have but for a quarter, which is left for more.
    pub fn is_filled(&self) -> bool {
        self.entries.len() >= parts_max(self.level) / 4 * 3 || bytes_of(&self.entries) >= KEYS_BYTES_MAX / 4 * 3
    }

    /// Panics unless the parts are in order.
    pub fn assert_sound(&self) {
        assert!(self.entries.is_sorted_by(|a, b| a.key < b.key), "Invariant: the keys of a node ascend");
    }

    pub fn encode(&self) -> Vec<u8> {
        let (entries, width) = (&self.entries, count_width(self.level));
        assert!(!entries.is_empty(), "Invariant: a node has at least one part");
        let mut row = Vec::with_capacity(HEAD_BYTES + entries.len() * (width + 6) + bytes_of(entries));
        row.push(self.level);
        row.extend_from_slice(&(entries.len() as u16).to_be_bytes());
        entries.iter().for_each(|entry| row.extend_from_slice(&entry.count.to_be_bytes()[8 - width..]));
        if self.level > 0 {
            entries.iter().for_each(|entry| row.extend_from_slice(&entry.child.to_be_bytes()));
        }
        let mut end = 0;
        for entry in entries {
            end += entry.key.len();
            let end = u16::try_from(end).expect("a node's keys are a few times KEYS_BYTES_MAX at most");
            row.extend_from_slice(&end.to_be_bytes());
        }
        entries.iter().for_each(|entry| row.extend_from_slice(&entry.key));
        row
    }
}

fn bytes_of(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.key.len()).sum()
}

/// Divides parts among as many nodes as they need, about equally full.
pub fn divide(entries: Vec<Entry>, level: u8) -> Vec<Making> {
    let by_parts = entries.len().div_ceil(parts_max(level));
    let by_bytes = bytes_of(&entries).div_ceil(KEYS_BYTES_MAX);
    let nodes = by_parts.max(by_bytes).max(1);
    if nodes == 1 {
        return vec![Making { level, entries }];
    }
    // Both bounds at once: a node is closed when it has its share of parts or of bytes.
    let (parts, bytes) = (entries.len().div_ceil(nodes), bytes_of(&entries).div_ceil(nodes));
    let mut divided = vec![Making { level, entries: Vec::new() }];
    let mut bytes_in_last = 0;
    for entry in entries {
        let last = divided.last_mut().expect("one is there");
        if !last.entries.is_empty() && (last.entries.len() >= parts || bytes_in_last >= bytes.max(KEYS_BYTES_MAX / 2)) {
            divided.push(Making { level, entries: Vec::new() });
            bytes_in_last = 0;
        }
        bytes_in_last += entry.key.len();
        divided.last_mut().expect("one is there").entries.push(entry);
    }
    divided
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score;

    #[test]
    fn a_node_is_what_the_page_shows() {
        let page = include_str!("../../../../docs/format/zset.md");
        let example = page.split("```node\n").nth(1).and_then(|rest| rest.lines().next()).expect("the page has a node");
        let expected: String = example.split_whitespace().collect();
        let key = [&score::place(3.0)[..], b"m"].concat();
        let entries = vec![Entry { key: Vec::new(), child: 0, count: 20 }, Entry { key, child: 0, count: 17 }];
        let making = Making { level: 0, entries };
        let row = making.encode();
        assert_eq!(row.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), expected);
        let node = Node::parse(Value::from(row)).expect("parses");
        assert_eq!(node.entries(), making.entries);
        assert_eq!((node.find(b""), node.find(&score::place(3.0)), node.find(&[0xff; 9])), (0, 0, 1));
        assert_eq!((node.at(19), node.at(20), node.count_before(1)), (0, 1, 20));
    }

    #[test]
    #[should_panic(expected = "a node has at least one part")]
    fn a_node_without_parts_is_noticed() {
        Making { level: 0, entries: Vec::new() }.encode();
    }

    #[test]
    #[should_panic(expected = "the keys of a node ascend")]
    fn keys_out_of_order_are_noticed() {
        let entries = [3, 7, 5].map(|at| Entry { key: vec![at], child: 0, count: 1 }).into();
        Making { level: 0, entries }.assert_sound();
    }

    #[test]
    fn many_parts_are_divided_and_damage_is_refused() {
        let entry = |at: u64| Entry { key: at.to_be_bytes().to_vec(), child: at as u32, count: at };
        let nodes = divide((0..2500).map(entry).collect(), 1);
        assert_eq!(nodes.len(), 3);
        assert!(nodes.iter().all(|node| (800..=1024).contains(&node.entries.len())));
        assert_eq!(nodes.iter().map(Making::sum).sum::<u64>(), (0..2500).sum());
        let long = |at: u8| Entry { key: vec![at; 1024], child: 0, count: 1 };
        let nodes = divide((0..100).map(long).collect(), 0);
        assert!(nodes.len() >= 6 && nodes.iter().all(|node| Node::parse(Value::from(node.encode())).is_ok()));
        let row = nodes[0].encode();
        for cut in [0, 2, 3, row.len() - 1] {
            assert!(Node::parse(Value::from(&row[..cut])).is_err(), "{cut} bytes");
        }
    }
}
