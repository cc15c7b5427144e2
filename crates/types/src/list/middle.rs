//! Changes in the middle of a list in rows: elements that come in between others, elements that are removed from
//! between others. Each touches a few rows, whatever the length of the list, but for the search.

use super::rows::{ListRows, POSITIONS_END, POSITIONS_START, REMOVED_MAX, REMOVED_MIN, STEP, STEP_BYTES};
use super::{ROWS_INLINE_MAX, Side};
use crate::Result;
use crate::element;
use haypile_store::{Key, Txn, Value};
use std::ops::{ControlFlow, Range};

/// The least number of elements that are spread anew where two neighbours have no position left between them.
const WINDOW_MIN: u64 = 32;

/// The most elements that are spread anew; beyond, and beyond `WINDOW_BYTES_MAX`, the whole list moves to a fresh
/// object, which may be written ahead.
const WINDOW_MAX: u64 = 8192;
const WINDOW_BYTES_MAX: usize = 4 * STEP_BYTES;

/// Positions between neighbours in a window of `WINDOW_MIN`, at least. A window of twice the elements needs twice as
/// many: when one has filled up, those around it still have room. So the cost of an insertion at one place stays
/// logarithmic (as in Bender et al., "Two Simplified Algorithms for Maintaining Order in a List", 2002).
const GAP_MIN: u64 = 16;

/// Rows that are searched in one step on the I/O pool.
const SEARCHED_ROWS: u64 = 1 << 16;

impl ListRows {
    /// Shows up to `limit` elements with index and position, from one side on, until `visit` breaks.
    pub fn search(
        &mut self,
        txn: &mut Txn<'_>,
        from: Side,
        limit: u64,
        mut visit: impl FnMut(u64, u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let length = self.len();
        let (mut seen, limit, mut rows) = (0, limit.min(length), ROWS_INLINE_MAX);
        while seen < limit {
            if seen > 0 {
                txn.long()?;
                rows = SEARCHED_ROWS;
            }
            let step = seen..limit.min(seen + rows);
            let range = if from == Side::Head { step } else { length - step.end..length - step.start };
            let mut broken = false;
            self.visit_rows(txn, range, from.inwards(), |position, element| {
                let index = if from == Side::Head { seen } else { length - 1 - seen };
                seen += 1;
                let visited = visit(index, position, element);
                broken = visited.is_break();
                visited
            })?;
            if broken {
                break;
            }
        }
        Ok(())
    }

    /// Adds an element before the one at `index`, which is not the first.
    pub fn insert(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, index: u64, element: &[u8]) -> Result<()> {
        let mut gap = self.position(txn, index - 1)?..self.position(txn, index)?;
        if gap.end - gap.start < 2 {
            self.make_room(txn, key, index)?;
            gap = self.position(txn, index - 1)?..self.position(txn, index)?;
        }
        let position = gap.start + (gap.end - gap.start) / 2;
        debug_assert!(
            txn.is_dry_run() || gap.start < position && position < gap.end,
            "Invariant: an element lies between its neighbours"
        );
        txn.put_row(&self.row(position), &[element])?;
        self.directory().insert(txn, index, position)?;
        self.head.count += 1;
        self.count_listpack(None, Some(element));
        Ok(())
    }

    /// Spreads the elements around the one at `index` so that there is room before it.
    fn make_room(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, index: u64) -> Result<()> {
        let mut width = WINDOW_MIN;
        while width <= WINDOW_MAX {
            let window = index.saturating_sub(width / 2)..self.len().min(index + width / 2);
            let elements = window.end - window.start;
            let needed = GAP_MIN * (elements / WINDOW_MIN).max(1);
            let between = self.around(txn, &window)?;
            let gap = (between.end - between.start) / (elements + 1);
            if gap >= needed {
                if self.spread(txn, window, between.start, gap)? {
                    return Ok(());
                }
                break;
            }
            width *= 2;
        }
        *self = self.copy(txn, key, 0..self.len(), |_, _| true)?;
        Ok(())
    }

    /// Returns the positions between which the elements in `window` may lie, both excluded.
    fn around(&mut self, txn: &mut Txn<'_>, window: &Range<u64>) -> Result<Range<u64>> {
        let beyond = (window.end - window.start + 1) * STEP;
        let start = match window.start {
            0 => self.first.saturating_sub(beyond).max(POSITIONS_START).min(self.first - 1),
            start => self.position(txn, start - 1)?,
        };
        let end = match window.end {
            end if end == self.len() => self.last.saturating_add(beyond).min(POSITIONS_END - 1).max(self.last + 1),
            end => self.position(txn, end)?,
        };
        Ok(start..end)
    }

    /// Gives the elements in `window` positions `gap` apart, behind `start`; returns false if they are too many bytes.
    fn spread(&mut self, txn: &mut Txn<'_>, window: Range<u64>, start: u64, gap: u64) -> Result<bool> {
        let mut elements: Vec<(u64, Value)> = Vec::new();
        let mut from = self.position(txn, window.start)?;
        let until = self.position(txn, window.end - 1)? + 1;
        let mut bytes = 0;
        while (elements.len() as u64) < window.end - window.start {
            let step = self.step(txn, from..until)?;
            let Some((last, _)) = step.last() else { return Err(self.gap(from)) };
            from = last + 1;
            bytes += step.iter().map(|(_, element)| element.len()).sum::<usize>();
            elements.extend(step);
            if bytes > WINDOW_BYTES_MAX {
                return Ok(false);
            }
        }
        let positions: Vec<u64> = (1..=elements.len() as u64).map(|number| start + number * gap).collect();
        // The directory is told before the rows move: it reads them where it says they are.
        let (count, ends) = (self.len(), (positions[0], positions[positions.len() - 1]));
        self.directory().renumber(txn, window.clone(), &positions)?;
        for (before, _) in elements.iter().filter(|(before, _)| positions.binary_search(before).is_err()) {
            txn.delete_row(&self.row(*before))?;
        }
        for ((before, element), position) in elements.iter().zip(&positions) {
            if before != position {
                txn.put_row(&self.row(*position), &[element])?;
            }
        }
        if window.start == 0 {
            self.first = ends.0;
        }
        if window.end == count {
            self.last = ends.1;
        }
        Ok(true)
    }

    /// Removes elements that equal `element`, at most `limit` of them, from one side on, and returns how many. If these
    /// are all elements, none is removed.
    pub fn remove_equal(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        from: Side,
        limit: u64,
        element: &[u8],
    ) -> Result<u64> {
        let (mut found, mut count) = (Vec::new(), 0);
        self.search(txn, from, self.len(), |index, position, candidate| {
            if candidate == element {
                count += 1;
                if count <= REMOVED_MAX {
                    found.push((index, position));
                }
            }
            if count == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let kept = self.len().saturating_sub(count);
        if count == 0 || kept == 0 {
            return Ok(count);
        }
        if count > REMOVED_MAX || count > REMOVED_MIN && count > kept {
            self.copy_without(txn, key, from, count, element)?;
            return Ok(count);
        }
        if count > ROWS_INLINE_MAX {
            txn.long()?;
        }
        if from == Side::Head {
            found.reverse();
        }
        self.remove_at(txn, &found, element)?;
        Ok(count)
    }

    /// Copies the list without the first or the last `removed` elements that equal `element` to a fresh object.
    fn copy_without(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        from: Side,
        removed: u64,
        element: &[u8],
    ) -> Result<()> {
        let mut kept_before = 0;
        if from == Side::Tail {
            let mut equal = 0;
            self.search(txn, Side::Head, self.len(), |_, _, candidate| {
                equal += u64::from(candidate == element);
                ControlFlow::Continue(())
            })?;
            kept_before = equal - removed;
        }
        let (gone, mut seen) = (kept_before..kept_before + removed, 0);
        *self = self.copy(txn, key, 0..self.len(), |_, candidate| {
            let is_equal = candidate == element;
            seen += u64::from(is_equal);
            !(is_equal && gone.contains(&(seen - 1)))
        })?;
        Ok(())
    }

    /// Removes equal elements at these indexes and positions, the last one first. Others are left.
    fn remove_at(&mut self, txn: &mut Txn<'_>, removed: &[(u64, u64)], element: &[u8]) -> Result<()> {
        for &(index, position) in removed {
            txn.delete_row(&self.row(position))?;
            self.directory().remove(txn, index)?;
            self.count_listpack(Some(element), None);
        }
        let (last_removed, first_removed) = (removed[0].1, removed[removed.len() - 1].1);
        let count = element::lowered(txn, self.head.count, removed.len() as u64);
        if first_removed == self.first {
            self.first = self.directory().position(txn, 0)?;
        }
        if last_removed == self.last {
            self.last = self.directory().position(txn, count - 1)?;
        }
        self.head.count = count;
        Ok(())
    }
}
