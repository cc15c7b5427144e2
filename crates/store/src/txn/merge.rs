//! The sources of an ordered read of one object: the rows of each generation of the memtable, where they lie, and rows
//! of the base in one block. A merge copies and allocates nothing for each row.

use crate::base::{BaseError, Cursor, Direction, Step};
use crate::memtable::{self, ElementRange, Fetched, RowEntry, Table};
use crate::row::RowKey;
use crate::stretch::Stretch;
use crate::stretches::Part;
use std::iter::Rev;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Rows of one generation in a direction.
pub(crate) enum Ordered<'t> {
    Up(memtable::Range<'t>),
    Down(Rev<memtable::Range<'t>>),
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

/// Rows that are visited under a latch at a time.
const REST_ROWS: usize = 256;

/// Rows of the base, some at a time, and whether there may be more.
pub(crate) struct Below<'b> {
    /// The epoch in which the base was asked. Its rows are valid as long as no flush has brought newer ones there
    /// since.
    pub epoch: u64,
    rows: Option<Arc<Stretch>>,
    /// The rows in hand, and the direction in which they go.
    hand: Range<usize>,
    direction: Direction,
    more: More<'b>,
    /// Rows that the first read reads ahead.
    ahead: usize,
}

/// Where the base's rows behind those in hand are.
enum More<'b> {
    /// No rows are left in the base.
    None,
    Cursor(Box<dyn Cursor + 'b>),
    /// The base is to be asked again.
    Beyond,
}

impl<'b> Below<'b> {
    /// Returns no rows: the base has none in the range.
    pub fn none(epoch: u64, direction: Direction) -> Self {
        Below { epoch, rows: None, hand: 0..0, direction, more: More::None, ahead: 0 }
    }

    /// Returns rows that a cursor reads in a direction, from its beginning on.
    pub fn cursor(epoch: u64, direction: Direction, cursor: Box<dyn Cursor + 'b>, ahead: usize) -> Self {
        Below { more: More::Cursor(cursor), ahead, ..Below::none(epoch, direction) }
    }

    /// Returns how many rows the next read is to read ahead. Only the first one is.
    pub fn take_ahead(&mut self) -> usize {
        std::mem::take(&mut self.ahead)
    }

    /// Returns rows that are kept.
    pub fn kept(epoch: u64, direction: Direction, part: Part) -> Self {
        let more = if part.is_cut { More::Beyond } else { More::None };
        Below { epoch, rows: Some(part.stretch), hand: part.rows, direction, more, ahead: 0 }
    }

    /// Returns the next row in hand.
    #[inline]
    pub fn peek(&self) -> Option<(&[u8], &[u8])> {
        let rows = self.rows.as_ref().filter(|_| !self.hand.is_empty())?;
        Some(rows.row(match self.direction {
            Direction::Forward => self.hand.start,
            Direction::Backward => self.hand.end - 1,
        }))
    }

    #[inline]
    pub fn advance(&mut self) {
        match self.direction {
            Direction::Forward => self.hand.start += 1,
            Direction::Backward => self.hand.end -= 1,
        }
    }

    #[inline]
    fn has_more(&self) -> bool {
        !matches!(self.more, More::None)
    }

    /// Returns whether nothing is in hand, but a cursor may have more.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.hand.is_empty() && matches!(self.more, More::Cursor(_))
    }

    /// Returns whether nothing is in hand, and the base is to be asked again for what there may be.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.hand.is_empty() && matches!(self.more, More::Beyond)
    }

    /// Returns whether the row in hand is the last one, and the base may have more.
    #[inline]
    pub fn is_last_in_hand(&self) -> bool {
        self.hand.len() == 1 && self.has_more()
    }

    /// Visits the rows in hand where nothing else is to be merged with them, as many as a step may. Returns the last
    /// one if there may be more: the next step has to look at the memtable again, so that all of these are behind it.
    pub fn visit_rest(&mut self, visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Option<RowKey> {
        let mut left = REST_ROWS;
        while let Some((key, value)) = self.peek() {
            if visit(key, value).is_break() {
                return None;
            }
            left -= 1;
            let is_end = left == 0 && self.hand.len() > 1;
            if is_end || self.is_last_in_hand() {
                let last = RowKey::from_slice(key);
                self.advance();
                return Some(last);
            }
            self.advance();
        }
        None
    }

    /// Reads up to `want` rows of `from <= key < until`, where the cursor reads on, fewer if they are long, at least
    /// one; and those up to `ahead`, as far as the tier allows. Returns false if it does not allow what is wanted.
    pub fn fill(
        &mut self,
        (from, until): (&[u8], &[u8]),
        want: usize,
        ahead: usize,
        bytes_max: usize,
    ) -> Result<bool, BaseError> {
        let More::Cursor(cursor) = &mut self.more else { return Ok(true) };
        let mut rows = Stretch::new(self.epoch, from, until);
        while rows.len() < want.max(ahead) && rows.row_bytes() < bytes_max {
            match cursor.step()? {
                Step::Row { key, value } => {
                    rows.push(key, value);
                    if rows.len() == 1 && ahead > 1 {
                        rows.reserve_like_first(ahead, bytes_max);
                    }
                }
                Step::End => {
                    self.more = More::None;
                    break;
                }
                Step::WouldBlock if rows.len() >= want => {
                    self.more = More::Beyond;
                    break;
                }
                Step::WouldBlock => return Ok(false),
            }
        }
        if self.direction == Direction::Backward {
            rows.reverse();
        }
        rows.give_back();
        if self.has_more() {
            rows.cut(self.direction);
        }
        self.hand = 0..rows.len();
        self.rows = Some(Arc::new(rows));
        Ok(true)
    }

    /// Returns the rows that were read last.
    pub fn rows(&self) -> Option<&Arc<Stretch>> {
        self.rows.as_ref()
    }
}
