//! The meta rows of a shard in scan order: space, slot, hash, name. Lookups by hash at nearly the speed of a hash
//! table, and ordered walks for SCAN and the flush, from one structure: sorted runs of bounded length.
//!
//! One search over the runs' beginnings (`firsts`) finds the run of a row; module `run` does the rest.

use super::SLOTS_PER_SHARD;
use super::entry::RowEntry;
use super::run::{self, Run};
use crate::access::Access;
use crate::row::{META_PREFIX_BYTES, Slot};
use haypile_log::Index;

/// Longest run, names of one hash aside, which stay together. One that is full is split before a row is inserted, so
/// that none takes room for more. An insertion moves half a run.
const RUN_MAX: usize = 64;

type KeyRun = Run<META_PREFIX_BYTES>;

/// A lookup that has found its run and has not looked into it.
pub type Probe<'t> = run::Probe<'t, META_PREFIX_BYTES>;

/// The place of a row among those of its shard: the space's number in the table, the slot, the hash.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order(u64);

impl Order {
    /// Returns an order. `space` is counted by the table, which has far less than 2^26 spaces.
    #[inline]
    pub fn new(space: usize, slot: Slot, hash: u32) -> Order {
        const { assert!(SLOTS_PER_SHARD == 1 << 6) };
        Order((space as u64) << 38 | (u64::from(slot.0) % SLOTS_PER_SHARD as u64) << 32 | u64::from(hash))
    }

    /// Returns the last order of this one's slot.
    pub fn end_of_slot(self) -> Order {
        Order(self.0 | u64::from(u32::MAX))
    }

    /// Returns the first and the last order of a space.
    pub fn of_space(space: usize) -> (Order, Order) {
        (Order((space as u64) << 38), Order(((space as u64 + 1) << 38) - 1))
    }

    pub fn hash(self) -> u32 {
        self.0 as u32
    }
}

/// Sorted runs, ascending, none empty. Invariant: all rows of one order are in one run.
#[derive(Default)]
pub struct Keys {
    /// The first order of each run.
    firsts: Vec<Order>,
    runs: Vec<KeyRun>,
    /// The order of the row that was inserted last.
    last: Order,
}

impl Keys {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the run in which rows of an order are or would be; there is at least one.
    #[inline]
    fn run_of(&self, order: Order) -> usize {
        if self.firsts.len() <= 1 { 0 } else { self.firsts.partition_point(|first| *first <= order).saturating_sub(1) }
    }

    #[inline]
    pub fn get(&self, order: Order, name: &[u8]) -> Option<&RowEntry> {
        let run = self.runs.get(self.run_of(order))?;
        run.find(order.0, name).ok().map(|at| &run.rows()[at])
    }

    /// Begins a lookup: finds the run.
    #[inline]
    pub fn probe(&self, order: Order) -> Option<Probe<'_>> {
        Some(self.runs.get(self.run_of(order))?.probe(order.0))
    }

    /// Writes a row or its tombstone; returns by how many bytes the table grew.
    #[inline]
    pub fn put(&mut self, order: Order, row: &[u8], value: Option<&[u8]>, index: Index, access: Access) -> i64 {
        if self.runs.is_empty() {
            self.runs.push(Run::default());
            self.firsts.push(order);
        }
        let which = self.run_of(order);
        let run = &mut self.runs[which];
        match run.find(order.0, &row[META_PREFIX_BYTES..]) {
            Ok(at) => run.row_mut(at).overwrite(row, value, index, access),
            Err(at) => {
                let entry = RowEntry::new(row, value, index, access);
                let grown = entry.bytes();
                self.insert(which, at, order, entry);
                let near = self.firsts[which.saturating_sub(1)..].iter().take(4);
                debug_assert!(near.is_sorted(), "the runs ascend");
                grown
            }
        }
    }

    /// Puts a new row at a place of a run, which is split first if it is full.
    fn insert(&mut self, which: usize, at: usize, order: Order, row: RowEntry) {
        let last = std::mem::replace(&mut self.last, order);
        let run = &self.runs[which];
        let is_behind = run.rows().len() >= RUN_MAX && run.orders().last().is_some_and(|last| *last < order.0);
        let (which, at) = if is_behind && which + 1 < self.runs.len() { (which + 1, 0) } else { (which, at) };
        let run = &mut self.runs[which];
        if run.rows().len() >= RUN_MAX {
            // Rows that come in order leave full runs behind: the row before this one went into this run, too.
            let is_next = run.first() <= last.0 && last < order;
            let half = run.rows().len() / 2;
            if let Some(cut) = cut(run.orders(), if is_next { at.max(half) } else { half }, order) {
                let mut second = run.split_off(cut, RUN_MAX);
                // Invariant: all rows of one order are in one run.
                let is_first = at < cut || at == cut && run.orders().last() == Some(&order.0);
                let (part, at) = if is_first { (&mut *run, at) } else { (&mut second, at - cut) };
                part.insert(at, order.0, row);
                self.firsts[which] = Order(run.first());
                self.firsts.insert(which + 1, Order(second.first()));
                self.runs.insert(which + 1, second);
                return;
            }
        }
        run.insert(at, order.0, row);
        self.firsts[which] = Order(run.first());
    }

    pub fn get_mut(&mut self, order: Order, name: &[u8]) -> Option<&mut RowEntry> {
        let which = self.run_of(order);
        let run = self.runs.get_mut(which)?;
        let at = run.find(order.0, name).ok()?;
        Some(run.row_mut(at))
    }

    /// Takes a row out.
    pub fn remove(&mut self, order: Order, name: &[u8]) -> Option<RowEntry> {
        let which = self.run_of(order);
        let run = self.runs.get_mut(which)?;
        let at = run.find(order.0, name).ok()?;
        let gone = run.remove(at);
        self.tidy();
        Some(gone)
    }

    /// Takes out all rows from one order to another, both included.
    pub fn take(&mut self, from: Order, last: Order) -> Vec<RowEntry> {
        let mut gone = Vec::new();
        for run in &mut self.runs {
            let start = run.orders().partition_point(|order| *order < from.0);
            let until = run.orders().partition_point(|order| *order <= last.0);
            if start < until {
                run.drain(start..until, &mut gone);
            }
        }
        if !gone.is_empty() {
            self.tidy();
        }
        gone
    }

    /// Removes empty runs, and corrects `firsts`, after rows were taken out.
    fn tidy(&mut self) {
        self.runs.retain(|run| !run.rows().is_empty());
        self.firsts.clear();
        self.firsts.extend(self.runs.iter().map(|run| Order(run.first())));
    }

    /// Returns the rows from one order to another, both included.
    pub fn range(&self, from: Order, last: Order) -> impl Iterator<Item = (Order, &RowEntry)> {
        let first = self.run_of(from);
        self.runs[first.min(self.runs.len())..]
            .iter()
            .flat_map(move |run| {
                let start = run.orders().partition_point(|order| *order < from.0);
                run.orders()[start..].iter().map(|order| Order(*order)).zip(&run.rows()[start..])
            })
            .take_while(move |(order, _)| *order <= last)
    }

    /// Returns the bytes that the rows take, counted anew: for tests of the accounting.
    pub fn count_bytes(&self) -> i64 {
        self.runs.iter().flat_map(|run| run.rows()).map(RowEntry::bytes).sum()
    }
}

/// Returns a place between two orders of a run, at or near `at`, where it is cut before `order` is inserted; the end is
/// one if that order is behind it. `None` where there is only one order.
fn cut(orders: &[u64], at: usize, order: Order) -> Option<usize> {
    if at == orders.len() && orders.last().is_some_and(|last| *last < order.0) {
        return Some(at);
    }
    let middle = orders[at.min(orders.len() - 1)];
    match orders.partition_point(|order| *order < middle) {
        0 => Some(orders.partition_point(|order| *order <= middle)).filter(|at| *at < orders.len()),
        at => Some(at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Key, Space, meta_row};
    use haypile_log::testing::Random;
    use std::collections::BTreeMap;

    /// Runs random writes on the structure and on an ordered map, with orders drawn by `draw`.
    fn check(what: &str, count: usize, draw: impl Fn(&mut Random) -> (Slot, u32)) {
        let mut random = Random(7);
        let (mut keys, mut map) = (Keys::default(), BTreeMap::new());
        for at in 0..count {
            let (slot, hash) = draw(&mut random);
            let name = random.below(3).to_string().into_bytes();
            let (order, row) = (Order::new(0, slot, hash), meta_row(&Key { space: Space(9), slot, hash, name: &name }));
            match random.below(10) {
                0 => assert_eq!(keys.remove(order, &name).is_some(), map.remove(&(order, name)).is_some(), "{what}"),
                1 => {
                    keys.put(order, &row, None, Index(at as u64), Access::at(0));
                    map.insert((order, name), None);
                }
                _ => {
                    let value = vec![at as u8; random.below(40) as usize];
                    keys.put(order, &row, Some(&value), Index(at as u64), Access::at(0));
                    map.insert((order, name), Some(value));
                }
            }
            let (slot, hash) = draw(&mut random);
            let (order, name) = (Order::new(0, slot, hash), b"1".to_vec());
            let expected = map.get(&(order, name.clone())).map(|value| value.as_deref());
            assert_eq!(keys.get(order, &name).map(RowEntry::value), expected, "{what}");
        }
        let (from, last) = Order::of_space(0);
        let all: Vec<(Order, Vec<u8>, Option<Vec<u8>>)> = keys
            .range(from, last)
            .map(|(order, entry)| {
                (order, entry.behind::<META_PREFIX_BYTES>().to_vec(), entry.value().map(<[u8]>::to_vec))
            })
            .collect();
        assert!(
            all == map.into_iter().map(|((order, name), value)| (order, name, value)).collect::<Vec<_>>(),
            "{what}"
        );
        assert_eq!(keys.take(from, last).len(), all.len(), "{what}");
        assert!(keys.is_empty(), "{what}");
    }

    fn row_of(slot: u16, hash: u32) -> (Order, crate::row::RowKey) {
        let key = Key { space: Space(9), slot: Slot(slot), hash, name: b"name" };
        (Order::new(0, key.slot, hash), meta_row(&key))
    }

    /// Inserts rows, and returns how many of the places that the runs take room for have one, in percent.
    fn filled(rows: impl Iterator<Item = (u16, u32)>) -> usize {
        let mut keys = Keys::default();
        for (slot, hash) in rows {
            let (order, row) = row_of(slot, hash);
            keys.put(order, &row, None, Index(1), Access::at(0));
        }
        let (taken, room) = keys.runs.iter().fold((0, 0), |(taken, room), run| {
            assert!(run.room() <= RUN_MAX, "{} rows in a run with room for {}", run.rows().len(), run.room());
            (taken + run.rows().len(), room + run.room())
        });
        taken * 100 / room
    }

    #[test]
    fn runs_take_no_more_room_than_for_their_longest_and_rows_in_order_leave_full_ones() {
        let hash = |number: u32| number.wrapping_mul(0x9e37_79b9);
        let at_random = filled((0..20_000).map(|number| (hash(number) as u16 % 64, hash(number).rotate_left(9))));
        assert!(at_random >= 60, "{at_random}%");
        let in_order = filled((0..20_000).map(|number| (number as u16 / 320, number * 8)));
        assert!(in_order >= 98, "{in_order}%");
        // Every other row is there already.
        let (even, odd) = ((0..10_000).map(|number| (7, number * 16)), (0..10_000).map(|number| (7, number * 16 + 8)));
        let between = filled(even.chain(odd));
        assert!(between >= 70, "{between}%");
    }

    #[test]
    fn it_does_what_an_ordered_map_does_however_the_hashes_lie() {
        check("spread evenly", 20_000, |random| (Slot(random.below(64) as u16), random.number() as u32));
        check("one slot", 5_000, |random| (Slot(3), random.number() as u32));
        check("few hashes", 5_000, |random| (Slot(random.below(2) as u16), random.below(40) as u32));
        check("one hash", 2_000, |_| (Slot(1), 77));
        check("close together, and some far away", 5_000, |random| {
            let far = random.chance(3);
            (Slot(if far { 63 } else { 0 }), if far { u32::MAX } else { random.below(3000) as u32 })
        });
    }
}
