//! A stretch: rows of one object that were read from the base one after the other, kept side by side with the bounds
//! between which they are all that there is. Those that are kept are in `stretches.rs`.

use crate::base::Direction;
use crate::row::RowKey;
use crate::value::Value;
use std::ops::Range;

/// Rows that stay of a stretch when the next one goes on where it ends.
const BEHIND: usize = 64;

/// The part of its bytes that a stretch keeps as room for more.
pub(crate) const ROOM_PART: usize = 8;

/// Bytes of a row besides its own: where key and value end.
const ROW_BYTES: usize = size_of::<(u32, u32)>();

/// All rows that the base has of one object with `from <= key < until`, in order.
pub(crate) struct Stretch {
    /// The epoch in which the rows were read, in which alone they are valid.
    pub epoch: u64,
    from: RowKey,
    until: RowKey,
    /// Keys and values, one after the other, and the ends of each. Invariant: all keys ascend, or descend before
    /// `reverse`.
    bytes: Vec<u8>,
    ends: Vec<(u32, u32)>,
    /// Whether the stretch is to have all rows of the object in the end.
    pub grows: bool,
}

impl Stretch {
    pub fn new(epoch: u64, from: &[u8], until: &[u8]) -> Stretch {
        let (from, until) = (RowKey::from_slice(from), RowKey::from_slice(until));
        Stretch { epoch, from, until, bytes: Vec::new(), ends: Vec::new(), grows: false }
    }

    /// Returns a stretch without rows that is to have all of the object in the end, from its first one on.
    pub fn growing(epoch: u64, from: &[u8]) -> Stretch {
        Stretch { grows: true, ..Stretch::new(epoch, from, from) }
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns key and value of a row.
    #[inline]
    pub fn row(&self, at: usize) -> (&[u8], &[u8]) {
        let (key_end, end) = self.ends[at];
        (&self.bytes[self.start_of(at)..key_end as usize], &self.bytes[key_end as usize..end as usize])
    }

    /// Returns the bytes of its rows.
    pub fn row_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a row behind the others. All rows come in order, or all against it: then `reverse` follows.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        debug_assert!(self.from[..] <= *key && *key < self.until[..], "rows are within the bounds");
        debug_assert!(self.is_in_order(key), "rows come in order, or against it");
        if self.ends.len() == self.ends.capacity() {
            self.ends.reserve_exact(self.room_behind(self.ends.len(), 8));
        }
        let needed = self.bytes.len() + key.len() + value.len();
        assert!(u32::try_from(needed).is_ok(), "the ends of a stretch's rows fit 32 bits: {needed}");
        if needed > self.bytes.capacity() {
            self.bytes.reserve_exact(needed - self.bytes.len() + self.room_behind(self.bytes.len(), 256));
        }
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len() as u32));
    }

    /// Returns the room to make behind `len` that are there: as much again, as a vector makes, but less in a stretch
    /// that is kept, because most of the rows of a large object come one by one.
    fn room_behind(&self, len: usize, least: usize) -> usize {
        if self.grows { len / ROOM_PART + 8 } else { len.max(least) }
    }

    /// Makes room for so many rows like the first one, in this many bytes at most.
    pub fn reserve_like_first(&mut self, rows: usize, bytes_max: usize) {
        let wanted = self.row_bytes().saturating_mul(rows).min(bytes_max);
        self.bytes.reserve_exact(wanted.saturating_sub(self.bytes.len()));
        self.ends.reserve_exact(rows.saturating_sub(self.ends.len()).min(wanted / self.row_bytes().max(1) + 1));
    }

    /// Gives back the room that most of these rows have not taken.
    pub fn give_back(&mut self) {
        if self.bytes.len() < self.bytes.capacity() / 2 {
            self.bytes.shrink_to_fit();
            self.ends.shrink_to_fit();
        }
    }

    /// Returns whether a row goes on in the direction of those that there are.
    fn is_in_order(&self, key: &[u8]) -> bool {
        let Some(last) = self.len().checked_sub(1) else { return true };
        let (first, last) = (self.row(0).0, self.row(last).0);
        if first == last { key != last } else { (first < last) == (last < key) && key != last }
    }

    /// Turns the order of the rows round.
    pub fn reverse(&mut self) {
        let (mut bytes, mut ends) = (Vec::with_capacity(self.bytes.len()), Vec::with_capacity(self.ends.len()));
        for at in (0..self.len()).rev() {
            let (key, value) = self.row(at);
            bytes.extend_from_slice(key);
            let key_end = bytes.len() as u32;
            bytes.extend_from_slice(value);
            ends.push((key_end, bytes.len() as u32));
        }
        (self.bytes, self.ends) = (bytes, ends);
    }

    /// Draws the bound in to the last row in a direction: the base may have more behind it.
    pub fn cut(&mut self, direction: Direction) {
        match (direction, self.len()) {
            (Direction::Forward, 0) => self.until = self.from.clone(),
            (Direction::Backward, 0) => self.from = self.until.clone(),
            (Direction::Forward, len) => {
                self.until = RowKey::from_slice(self.row(len - 1).0);
                self.until.push(0);
            }
            (Direction::Backward, _) => self.from = RowKey::from_slice(self.row(0).0),
        }
    }

    /// Returns these rows, some of them, with those of another stretch that goes on where they end; nothing if it does
    /// not, or if both take more than `bytes_max`.
    pub fn joined(&self, next: &Stretch, bytes_max: u64) -> Option<Stretch> {
        if self.grows || next.grows {
            return None;
        }
        if self.from <= next.from && next.from <= self.until && self.until < next.until {
            let end = self.before(&next.from);
            let start = end.saturating_sub(BEHIND);
            let from = if start == 0 { &self.from[..] } else { self.row(start).0 };
            let parts = [(self, start..end), (next, 0..next.len())];
            return Stretch::of(self.epoch, (from, &next.until), parts, bytes_max);
        }
        if next.from < self.from && self.from <= next.until && next.until <= self.until {
            let start = self.before(&next.until);
            let end = self.len().min(start + BEHIND);
            let until = if end == self.len() { &self.until[..] } else { self.row(end).0 };
            let parts = [(next, 0..next.len()), (self, start..end)];
            return Stretch::of(self.epoch, (&next.from, until), parts, bytes_max);
        }
        None
    }

    /// Returns a stretch of these rows, unless it takes more than `bytes_max`.
    fn of(
        epoch: u64,
        (from, until): (&[u8], &[u8]),
        parts: [(&Stretch, Range<usize>); 2],
        bytes_max: u64,
    ) -> Option<Stretch> {
        let rows: usize = parts.iter().map(|(_, rows)| rows.len()).sum();
        let bytes: usize = parts.iter().map(|(part, rows)| part.start_of(rows.end) - part.start_of(rows.start)).sum();
        if (bytes + rows * ROW_BYTES) as u64 > bytes_max {
            return None;
        }
        let mut stretch = Stretch::new(epoch, from, until);
        stretch.bytes.reserve_exact(bytes);
        stretch.ends.reserve_exact(rows);
        for (part, rows) in parts {
            for at in rows {
                let (key, value) = part.row(at);
                stretch.push(key, value);
            }
        }
        Some(stretch)
    }

    /// Returns where the bytes of a row begin; for the number of rows, where they end.
    fn start_of(&self, at: usize) -> usize {
        if at == 0 { 0 } else { self.ends[at - 1].1 as usize }
    }

    /// Returns the bound up to which the rows are known.
    pub fn until(&self) -> &[u8] {
        &self.until
    }

    /// Moves that bound out, for rows to be added.
    pub fn open(&mut self, until: &[u8]) {
        self.until = RowKey::from_slice(until);
    }

    /// Returns the bytes that it takes, with its room for more rows.
    pub fn taken_bytes(&self) -> u64 {
        (self.bytes.capacity() + self.ends.capacity() * ROW_BYTES) as u64
    }

    /// Returns the number of rows before a key.
    fn before(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.row(middle).0 < key { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Returns the rows of a read, if the read begins here.
    pub fn part(&self, from: &[u8], until: &[u8], direction: Direction) -> Option<(Range<usize>, bool)> {
        let is_cut = match direction {
            Direction::Forward if self.from[..] <= *from && *from < self.until[..] => *until > self.until[..],
            Direction::Backward if self.from[..] < *until && *until <= self.until[..] => *from < self.from[..],
            _ => return None,
        };
        let rows = self.before(from)..self.before(until);
        (!is_cut || !rows.is_empty()).then_some((rows, is_cut))
    }

    /// Returns whether a row is in the bounds, so that what the base has of it is known.
    pub fn covers(&self, row: &[u8]) -> bool {
        self.from[..] <= *row && *row < self.until[..]
    }

    /// Returns what the base has of a row: its value, or that there is none; nothing if the row is not in the bounds.
    pub fn find(&self, row: &[u8]) -> Option<Option<Value>> {
        if !self.covers(row) {
            return None;
        }
        let at = self.before(row);
        let found = (at < self.len()).then(|| self.row(at)).filter(|(key, _)| *key == row);
        Some(found.map(|(_, value)| Value::from(value)))
    }
}
