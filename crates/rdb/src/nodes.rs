//! The entries of a stream, gathered into the listpacks that a file has of them.

use crate::event::StreamId;
use crate::listpack::Builder;
use crate::stream::SAME_FIELDS;

/// Entries of a node at most, as Redis has them.
const ENTRIES_MAX: usize = 100;

/// Bytes of a node's entries, about.
const BYTES_MAX: usize = 4096;

/// Decides which entries go into one node, so that these can be counted before they are written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grouping {
    entries: usize,
    bytes: usize,
}

impl Grouping {
    /// Tells whether a new node begins with an entry of so many bytes, however they are counted.
    pub fn begins(&mut self, bytes: usize) -> bool {
        let is_first = self.entries == 0;
        if !is_first && self.entries < ENTRIES_MAX && self.bytes + bytes <= BYTES_MAX {
            self.entries += 1;
            self.bytes += bytes;
            return false;
        }
        *self = Grouping { entries: 1, bytes };
        true
    }
}

/// A node in the making.
#[derive(Clone, Debug, Default)]
pub struct Node {
    id: StreamId,
    /// Field names of the first entry.
    names: Vec<Vec<u8>>,
    entries: Builder,
    count: i64,
}

impl Node {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds an entry: field, value, field, value.
    pub fn push<'f>(&mut self, id: StreamId, strings: impl ExactSizeIterator<Item = &'f [u8]> + Clone) {
        let pairs = strings.len() / 2;
        if self.count == 0 {
            self.id = id;
            self.names.clear();
            self.names.extend(strings.clone().step_by(2).map(<[u8]>::to_vec));
        }
        self.count += 1;
        let same = self.names.len() == pairs && strings.clone().step_by(2).eq(self.names.iter().map(Vec::as_slice));
        self.entries.number(if same { SAME_FIELDS } else { 0 });
        self.entries.number(id.ms.wrapping_sub(self.id.ms) as i64);
        self.entries.number(id.seq.wrapping_sub(self.id.seq) as i64);
        if same {
            strings.skip(1).step_by(2).for_each(|value| self.entries.string(value));
            self.entries.number(3 + pairs as i64);
        } else {
            self.entries.number(pairs as i64);
            strings.for_each(|string| self.entries.string(string));
            self.entries.number(4 + 2 * pairs as i64);
        }
    }

    /// Returns the node's ID and its listpack; the node is empty then.
    pub(crate) fn take(&mut self) -> (StreamId, Vec<u8>) {
        let mut head = Builder::default();
        head.number(std::mem::take(&mut self.count));
        head.number(0);
        head.number(self.names.len() as i64);
        self.names.iter().for_each(|name| head.string(name));
        head.number(0);
        head.append(&mut self.entries);
        (self.id, head.take())
    }
}
