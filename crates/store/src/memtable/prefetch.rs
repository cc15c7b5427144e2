//! Prefetch: lookups of many keys at once, only to bring their rows into the CPU's caches.
//!
//! A lookup waits for memory several times in a row: for the orders of a run, for the row's handle, for its block. The
//! lookups of a pipeline's commands do not depend on each other, so a prefetch makes each of these steps for all keys
//! before it makes the next one: the CPU then waits for many of them together. The commands look again, one by one, and
//! find everything near. A prefetch decides nothing, and passes over shards whose latches other threads hold.

use super::elements::PREFIX;
use super::entry::RowEntry;
use super::keys::Probe;
use super::objects::ObjectKey;
use super::{Memtable, Shard, Table, run, shard_of};
use crate::row::{Family, Key, ObjectId, Slot, Space};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::hint::black_box;

/// Keys that are looked up together: about as many as a CPU can wait for, few enough that their rows stay in its first
/// caches until the commands come to them.
pub const TOGETHER_MAX: usize = 48;

/// Bytes that a CPU brings from memory at once.
const LINE_BYTES: usize = 64;

impl Memtable {
    /// Prefetches the rows of these keys, at most of the first `TOGETHER_MAX`; `writes` says that the missing ones are
    /// going to be inserted. Returns the keys that were not found.
    pub fn prefetch<'a>(&self, keys: &'a [Key<'a>], writes: bool) -> SmallVec<[&'a Key<'a>; TOGETHER_MAX]> {
        let mut latches: SmallVec<[(MutexGuard<'_, Shard>, &Key<'_>); TOGETHER_MAX]> = SmallVec::new();
        let mut missing = SmallVec::new();
        for key in keys.iter().take(TOGETHER_MAX) {
            // The latch is also missed for the second key of a shard, which is rare.
            if let Some(latch) = self.shards[shard_of(key.slot)].0.try_lock() {
                latches.push((latch, key));
            }
        }
        let mut rows: SmallVec<[&RowEntry; TOGETHER_MAX]> = SmallVec::new();
        let mut moving: SmallVec<[&[RowEntry]; TOGETHER_MAX]> = SmallVec::new();
        let probes: SmallVec<[(Option<Probe<'_>>, Option<Probe<'_>>); TOGETHER_MAX]> = latches
            .iter()
            .map(|(shard, key)| (shard.active.probe(key), shard.frozen.as_ref().and_then(|frozen| frozen.probe(key))))
            .collect();
        black_box(
            probes.iter().flat_map(|(active, frozen)| [active, frozen]).flatten().map(Probe::touch).sum::<usize>(),
        );
        for ((active, frozen), (_, key)) in probes.iter().zip(&latches) {
            match active.as_ref().map(Probe::row) {
                Some(Ok(row)) => {
                    rows.push(row);
                    continue;
                }
                Some(Err(behind)) if writes => moving.push(behind),
                _ => {}
            }
            match frozen.as_ref().map(Probe::row) {
                Some(Ok(row)) => rows.push(row),
                _ => missing.push(*key),
            }
        }
        let lines = moving.iter().flat_map(|rows| rows.iter().step_by(LINE_BYTES / size_of::<RowEntry>()));
        black_box(lines.map(RowEntry::touch).sum::<usize>());
        black_box(rows.iter().map(|row| row.touch()).sum::<usize>());
        black_box(rows.iter().map(|row| row.touch_block()).sum::<usize>());
        missing
    }
}

/// An element that is going to be looked for, by the place of its `data` row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought {
    object: ObjectKey,
    order: u64,
}

impl Sought {
    /// Returns the place of an element; `order` is its first eight bytes, as a number.
    #[inline]
    pub fn new(space: Space, slot: Slot, id: ObjectId, order: u64) -> Sought {
        Sought { object: ObjectKey::new(Family::Data, space, slot, id), order }
    }

    /// Begins the lookup: finds the run.
    fn probe<'t>(&self, table: &'t Table) -> Option<run::Probe<'t, PREFIX>> {
        table.objects.elements(self.object).map(|elements| elements.probe(self.order))
    }
}

impl Memtable {
    /// Prefetches the rows of elements, at most of the first `TOGETHER_MAX`; returns how many were found.
    pub fn prefetch_elements(&self, sought: &[Sought]) -> usize {
        let mut latches: SmallVec<[(usize, MutexGuard<'_, Shard>); TOGETHER_MAX]> = SmallVec::new();
        let mut places: SmallVec<[(usize, Sought); TOGETHER_MAX]> = SmallVec::new();
        for sought in sought.iter().take(TOGETHER_MAX) {
            let shard = shard_of(sought.object.slot());
            let held = latches.iter().position(|(other, _)| *other == shard);
            let at = held.or_else(|| {
                latches.push((shard, self.shards[shard].0.try_lock()?));
                Some(latches.len() - 1)
            });
            places.extend(at.map(|at| (at, *sought)));
        }
        let probes: SmallVec<[_; TOGETHER_MAX]> = places
            .iter()
            .map(|(at, sought)| {
                let shard = &latches[*at].1;
                (sought.probe(&shard.active), shard.frozen.as_ref().and_then(|frozen| sought.probe(frozen)))
            })
            .collect();
        let each = || probes.iter().flat_map(|(active, frozen)| [active, frozen]).flatten();
        black_box(each().map(|probe| probe.touch()).sum::<usize>());
        let rows: SmallVec<[&RowEntry; TOGETHER_MAX]> =
            probes.iter().filter_map(|(active, frozen)| row_of(active).or_else(|| row_of(frozen))).collect();
        black_box(rows.iter().map(|row| row.touch()).sum::<usize>());
        black_box(rows.iter().map(|row| row.touch_block()).sum::<usize>());
        rows.len()
    }
}

/// Returns the row that a lookup has found.
fn row_of<'t>(probe: &Option<run::Probe<'t, PREFIX>>) -> Option<&'t RowEntry> {
    probe.as_ref()?.row().ok()
}

/// An iterator that prefetches: it hands out rows in the order in which they come, each fetched from memory together
/// with those around it.
pub struct Fetched<'t, I> {
    rows: I,
    together: usize,
    window: SmallVec<[&'t RowEntry; TOGETHER_MAX]>,
    at: usize,
}

impl<'t, I: Iterator<Item = &'t RowEntry>> Fetched<'t, I> {
    pub fn new(rows: I) -> Self {
        Fetched::of(rows, TOGETHER_MAX)
    }

    /// Returns an iterator that prefetches at most `together` rows before they are asked for: few for a reader that may
    /// need only a few.
    pub fn of(rows: I, together: usize) -> Self {
        Fetched { rows, together: together.clamp(1, TOGETHER_MAX), window: SmallVec::new(), at: 0 }
    }

    #[inline(never)]
    fn fetch(&mut self) {
        self.at = 0;
        self.window.clear();
        self.window.extend(self.rows.by_ref().take(self.together));
        black_box(self.window.iter().map(|row| row.touch_block()).sum::<usize>());
    }
}

impl<'t, I: Iterator<Item = &'t RowEntry>> Iterator for Fetched<'t, I> {
    type Item = &'t RowEntry;

    #[inline]
    fn next(&mut self) -> Option<&'t RowEntry> {
        if self.at == self.window.len() {
            self.fetch();
        }
        let row = self.window.get(self.at).copied();
        self.at += 1;
        row
    }
}
