//! The rows of a generation on their way to the base, from which the presence set and the reclaimer learn.

use super::sorted::{Row, SortedRows};
use crate::base::{BaseError, Rows};
use crate::memtable::TOGETHER_MAX;
use crate::presence::Presence;
use crate::reclaim::Orphan;
use crate::row::Family;
use smallvec::SmallVec;

/// The rows of a flush on their way to the base, and the facts that are learned on the way: the presence set's new rows
/// (no reader asks it about rows that are still in the memtable), and the objects that have lost their owner.
pub(super) struct Noted<'f> {
    rows: SortedRows<'f>,
    presence: &'f Presence,
    /// The first bytes of plain meta rows.
    plain: [u8; 2],
    pub count: u64,
    pub orphans: Vec<Orphan>,
    /// The next rows, as many as the presence set prefetches together.
    window: SmallVec<[Row<'f>; TOGETHER_MAX]>,
    at: usize,
}

impl<'f> Noted<'f> {
    pub fn new(rows: SortedRows<'f>, presence: &'f Presence, plain: [u8; 2]) -> Self {
        Noted { rows, presence, plain, count: 0, orphans: Vec::new(), window: SmallVec::new(), at: 0 }
    }

    fn next_window(&mut self) {
        self.at = 0;
        self.window.clear();
        self.window.extend(self.rows.by_ref().take(TOGETHER_MAX));
        let is_held = |row: &&[u8]| matches!(Family::of(row), Some(Family::Meta | Family::Data));
        self.presence.prefetch(self.window.iter().map(|(row, _)| *row).filter(is_held));
        for (row, value) in &self.window {
            match (Family::of(row), value) {
                (Some(Family::Meta), Some(value)) => self.presence.insert(row, value.starts_with(&self.plain)),
                (Some(Family::Data), Some(_)) => self.presence.insert_element(row),
                (Some(Family::Meta | Family::Data), None) => self.presence.remove(row),
                (Some(Family::Owner), None) => self.orphans.extend(Orphan::of(row)),
                _ => {}
            }
        }
        self.count += self.window.len() as u64;
    }
}

impl Rows for Noted<'_> {
    fn next_row(&mut self) -> Result<Option<(&[u8], Option<&[u8]>)>, BaseError> {
        if self.at == self.window.len() {
            self.next_window();
        }
        let row = self.window.get(self.at).copied();
        self.at += 1;
        Ok(row)
    }
}
