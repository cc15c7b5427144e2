//! The sources of an ordered read of one object: the rows of each generation of the memtable, where they lie, and rows
//! of the base in one block. A merge copies and allocates nothing for each row.

use crate::base::{BaseError, Cursor, Direction, Step};
use crate::memtable::{ElementRange, Fetched, Range, RowEntry, Table};
use crate::row::RowKey;
use std::iter::Rev;
use std::ops::ControlFlow;

/// Rows of one generation in a direction.
pub(crate) enum Ordered<'t> {
    Up(Range<'t>),
    Down(Rev<Range<'t>>),
}

impl<'t> Iterator for Ordered<'t> {
    type Item = &'t RowEntry;

    #[inline]
    fn next(&mut self) -> Option<&'t RowEntry> {
        match self {
            Ordered::Up(rows) => rows.next(),
            Ordered::Down(rows) => rows.next(),
        }
    }
}

/// Rows of one generation, with the next one in hand.
pub(crate) struct Source<'t> {
    rows: Option<Fetched<'t, Ordered<'t>>>,
    next: Option<&'t RowEntry>,
}

impl<'t> Source<'t> {
    /// Begins a source. `want` is how many rows may be needed, and so how many are prefetched together.
    pub fn new(table: Option<&'t Table>, range: &ElementRange<'_>, direction: Direction, want: usize) -> Self {
        let rows = table.and_then(|table| table.objects.range(range)).map(|rows| match direction {
            Direction::Forward => Ordered::Up(rows),
            Direction::Backward => Ordered::Down(rows.rev()),
        });
        let mut source = Source { rows: rows.map(|rows| Fetched::of(rows, want)), next: None };
        source.advance();
        source
    }

    #[inline]
    pub fn peek(&self) -> Option<&'t RowEntry> {
        self.next
    }

    #[inline]
    pub fn key(&self) -> Option<&'t [u8]> {
        self.next.map(RowEntry::row)
    }

    #[inline]
    pub fn advance(&mut self) {
        self.next = self.rows.as_mut().and_then(Iterator::next);
    }
}

/// Returns the key that comes first in a direction.
#[inline]
pub(crate) fn first(direction: Direction, keys: [Option<&[u8]>; 4]) -> Option<&[u8]> {
    let keys = keys.into_iter().flatten();
    match direction {
        Direction::Forward => keys.min(),
        Direction::Backward => keys.max(),
    }
}

/// Rows of the base, some at a time, and whether there may be more.
pub(crate) struct Below<'b> {
    /// The epoch in which the base was asked. Its rows are valid as long as no flush has brought newer ones there
    /// since.
    pub epoch: u64,
    /// The base's cursor; `None`: the base has no more rows.
    cursor: Option<Box<dyn Cursor + 'b>>,
    /// Keys and values, one after the other.
    bytes: Vec<u8>,
    /// The ends of each key and each value.
    ends: Vec<(usize, usize)>,
    at: usize,
}

impl<'b> Below<'b> {
    /// Returns rows of the base; without a cursor the base has none in the range.
    pub fn new(epoch: u64, cursor: Option<Box<dyn Cursor + 'b>>) -> Self {
        Below { epoch, cursor, bytes: Vec::new(), ends: Vec::new(), at: 0 }
    }

    /// Returns the next row in hand.
    #[inline]
    pub fn peek(&self) -> Option<(&[u8], &[u8])> {
        let (key_end, end) = *self.ends.get(self.at)?;
        let start = if self.at == 0 { 0 } else { self.ends[self.at - 1].1 };
        Some((&self.bytes[start..key_end], &self.bytes[key_end..end]))
    }

    #[inline]
    pub fn advance(&mut self) {
        self.at += 1;
    }

    /// Returns whether nothing is in hand, but the base may have more.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.at == self.ends.len() && self.cursor.is_some()
    }

    /// Returns whether the row in hand is the last one, and the base may have more.
    #[inline]
    pub fn is_last_in_hand(&self) -> bool {
        self.at + 1 == self.ends.len() && self.cursor.is_some()
    }

    /// Visits the rows in hand where nothing else is to be merged with them. Returns the last one if there may be more:
    /// the next step has to look at the memtable again, so that all of these rows are behind it.
    pub fn visit_rest(&mut self, visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Option<RowKey> {
        while let Some((key, value)) = self.peek() {
            if visit(key, value).is_break() {
                return None;
            }
            if self.is_last_in_hand() {
                let last = RowKey::from_slice(key);
                self.advance();
                return Some(last);
            }
            self.advance();
        }
        None
    }

    /// Reads up to `rows_max` rows, fewer if they are long, at least one. Returns false if the tier does not allow it.
    pub fn fill(&mut self, rows_max: usize, bytes_max: usize) -> Result<bool, BaseError> {
        self.bytes.clear();
        self.ends.clear();
        self.at = 0;
        let Some(cursor) = &mut self.cursor else { return Ok(true) };
        while self.ends.len() < rows_max && self.bytes.len() < bytes_max {
            match cursor.step()? {
                Step::Row { key, value } => {
                    self.bytes.extend_from_slice(key);
                    let key_end = self.bytes.len();
                    self.bytes.extend_from_slice(value);
                    self.ends.push((key_end, self.bytes.len()));
                }
                Step::End => {
                    self.cursor = None;
                    break;
                }
                Step::WouldBlock => return Ok(false),
            }
        }
        Ok(true)
    }
}
