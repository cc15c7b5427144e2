//! The meta rows of a shard in scan order: space, slot, hash, name. Lookups by hash at nearly the speed of a hash table, and
//! ordered walks for SCAN and the flush, from one structure: sorted runs of bounded length.
//!
//! What a lookup costs is what it misses in the CPU's caches, so it looks at little: where a run begins (`firsts`), a few
//! of its 8-byte `order`s, which are found by interpolation because hashes are spread evenly, and then at the row itself,
//! which is one block with everything in it.

use super::{Found, SLOTS_PER_SHARD};
use crate::row::{META_PREFIX_BYTES, Slot};
use crate::value::Value;
use haypile_log::Index;
use std::cmp::Ordering;
use std::sync::Arc;

/// Longest run, names of one hash aside, which stay together; a longer one is split. An insertion moves half a run.
const RUN_MAX: usize = 64;

/// One meta row or its deletion, in one block: `record: u64 | key bytes: u31, live: u1 | key | value`.
pub struct MetaEntry(Arc<[u8]>);

const LEN_AT: usize = 8;
const KEY_AT: usize = 12;
const LIVE: u32 = 1 << 31;

/// What an entry takes besides its block's bytes: its two places in a run with the room that runs keep, the block's
/// counters and the allocator's share.
const ENTRY_BYTES: i64 = 64;

/// Where a row stands among those of its shard: the space's number in the table, the slot, the hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order(u64);

impl Order {
    /// `space` is counted by the table, which has far less than 2^26 of them.
    #[inline]
    pub fn new(space: usize, slot: Slot, hash: u32) -> Order {
        const { assert!(SLOTS_PER_SHARD == 1 << 6) };
        Order((space as u64) << 38 | (u64::from(slot.0) % SLOTS_PER_SHARD as u64) << 32 | u64::from(hash))
    }

    /// The last one of a slot.
    pub fn end_of_slot(self) -> Order {
        Order(self.0 | u64::from(u32::MAX))
    }

    /// The first and the last one of a space.
    pub fn of_space(space: usize) -> (Order, Order) {
        (Order((space as u64) << 38), Order(((space as u64 + 1) << 38) - 1))
    }

    pub fn hash(self) -> u32 {
        self.0 as u32
    }
}

/// Sorted runs, ascending, none empty; all rows of one order are in one run.
#[derive(Default)]
pub struct Keys {
    /// The first order of each run.
    firsts: Vec<Order>,
    runs: Vec<Run>,
}

/// `orders[i]` is where `rows[i]` stands; apart, so that a search touches few cache lines.
#[derive(Default)]
struct Run {
    orders: Vec<Order>,
    rows: Vec<MetaEntry>,
    /// `orders[0]`, without a look at it.
    first: u64,
    /// Positions for each unit of order, if they were spread evenly.
    scale: f64,
}

/// A lookup that knows its run and has not looked into it.
pub struct Probe<'t> {
    run: &'t Run,
    order: Order,
    /// Where to look first.
    from: usize,
}

impl MetaEntry {
    #[inline]
    fn new(key: &[u8], value: Option<&[u8]>, index: Index) -> Self {
        const STACK_BYTES: usize = 512;
        let (live, value) = (if value.is_some() { LIVE } else { 0 }, value.unwrap_or_default());
        let len = KEY_AT + key.len() + value.len();
        let fill = |block: &mut [u8]| {
            block[..LEN_AT].copy_from_slice(&index.0.to_le_bytes());
            block[LEN_AT..KEY_AT].copy_from_slice(&(key.len() as u32 | live).to_le_bytes());
            block[KEY_AT..KEY_AT + key.len()].copy_from_slice(key);
            block[KEY_AT + key.len()..].copy_from_slice(value);
        };
        // Short ones pass over the stack, so that there is one allocation and nothing to zero.
        if len <= STACK_BYTES {
            let mut block = [0; STACK_BYTES];
            fill(&mut block[..len]);
            return MetaEntry(Arc::from(&block[..len]));
        }
        let mut block: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        fill(Arc::get_mut(&mut block).expect("nobody else has seen this block"));
        MetaEntry(block)
    }

    #[inline]
    fn len_and_live(&self) -> u32 {
        u32::from_le_bytes(self.0[LEN_AT..KEY_AT].try_into().expect("four bytes"))
    }

    #[inline]
    fn value_at(&self) -> usize {
        KEY_AT + (self.len_and_live() & !LIVE) as usize
    }

    /// The row's key.
    #[inline]
    pub fn row(&self) -> &[u8] {
        &self.0[KEY_AT..self.value_at()]
    }

    #[inline]
    pub fn name(&self) -> &[u8] {
        &self.row()[META_PREFIX_BYTES..]
    }

    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        (self.len_and_live() & LIVE != 0).then(|| &self.0[self.value_at()..])
    }

    /// The record that wrote it.
    #[inline]
    pub fn index(&self) -> Index {
        Index(u64::from_le_bytes(self.0[..LEN_AT].try_into().expect("eight bytes")))
    }

    #[inline]
    pub fn found(&self) -> Found {
        if self.len_and_live() & LIVE != 0 {
            Found::Row(Value::new(self.0.clone(), self.value_at()..self.0.len()), self.index())
        } else {
            Found::Deleted(self.index())
        }
    }

    pub fn bytes(&self) -> i64 {
        self.0.len() as i64 + ENTRY_BYTES
    }

    /// The length of the block, which lies beside where it is.
    #[inline]
    pub fn touch(&self) -> usize {
        self.0.len()
    }

    /// Reads a byte of each of the first cache lines of the block: for what it costs, not for what it says.
    #[inline]
    pub fn touch_block(&self) -> usize {
        const LINE_BYTES: usize = 64;
        const LINES: usize = 4;
        self.0.iter().step_by(LINE_BYTES).take(LINES).map(|byte| usize::from(*byte)).sum()
    }

    /// A new value for a known key: in place where nobody else holds the block and the length stays. Returns the growth.
    #[inline]
    fn overwrite(&mut self, key: &[u8], value: Option<&[u8]>, index: Index) -> i64 {
        let value_at = self.value_at();
        if let Some(new) = value
            && self.0.len() == value_at + new.len()
            && let Some(block) = Arc::get_mut(&mut self.0)
        {
            block[..LEN_AT].copy_from_slice(&index.0.to_le_bytes());
            block[LEN_AT + 3] |= (LIVE >> 24) as u8;
            block[value_at..].copy_from_slice(new);
            return 0;
        }
        let before = self.bytes();
        *self = MetaEntry::new(key, value, index);
        self.bytes() - before
    }
}

impl Keys {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The run in which rows of an order are or would be; there is at least one.
    #[inline]
    fn run_of(&self, order: Order) -> usize {
        if self.firsts.len() <= 1 { 0 } else { self.firsts.partition_point(|first| *first <= order).saturating_sub(1) }
    }

    #[inline]
    pub fn get(&self, order: Order, name: &[u8]) -> Option<&MetaEntry> {
        let run = self.runs.get(self.run_of(order))?;
        run.find(order, name).ok().map(|at| &run.rows[at])
    }

    /// The first step of a lookup.
    #[inline]
    pub fn probe(&self, order: Order) -> Option<Probe<'_>> {
        let run = self.runs.get(self.run_of(order))?;
        Some(Probe { run, order, from: run.guess(order) })
    }

    /// Writes a row or its deletion; returns by how many bytes the table grew.
    #[inline]
    pub fn put(&mut self, order: Order, row: &[u8], value: Option<&[u8]>, index: Index) -> i64 {
        if self.runs.is_empty() {
            self.runs.push(Run::default());
            self.firsts.push(order);
        }
        let which = self.run_of(order);
        let run = &mut self.runs[which];
        match run.find(order, &row[META_PREFIX_BYTES..]) {
            Ok(at) => run.rows[at].overwrite(row, value, index),
            Err(at) => {
                let entry = MetaEntry::new(row, value, index);
                let grown = entry.bytes();
                run.orders.insert(at, order);
                run.rows.insert(at, entry);
                run.on_changed();
                self.firsts[which] = run.orders[0];
                if run.rows.len() > RUN_MAX
                    && let Some(second) = run.split()
                {
                    self.firsts.insert(which + 1, second.orders[0]);
                    self.runs.insert(which + 1, second);
                }
                grown
            }
        }
    }

    /// Takes a row out.
    pub fn remove(&mut self, order: Order, name: &[u8]) -> Option<MetaEntry> {
        let which = self.run_of(order);
        let run = self.runs.get_mut(which)?;
        let at = run.find(order, name).ok()?;
        run.orders.remove(at);
        let gone = run.rows.remove(at);
        run.on_changed();
        self.tidy();
        Some(gone)
    }

    /// Takes out all rows from one order to another, both included.
    pub fn take(&mut self, from: Order, last: Order) -> Vec<MetaEntry> {
        let mut gone = Vec::new();
        for run in &mut self.runs {
            let start = run.orders.partition_point(|order| *order < from);
            let until = run.orders.partition_point(|order| *order <= last);
            if start < until {
                run.orders.drain(start..until);
                gone.extend(run.rows.drain(start..until));
                run.on_changed();
            }
        }
        if !gone.is_empty() {
            self.tidy();
        }
        gone
    }

    /// After rows were taken out: no run is empty, and `firsts` says where they begin.
    fn tidy(&mut self) {
        self.runs.retain(|run| !run.rows.is_empty());
        self.firsts.clear();
        self.firsts.extend(self.runs.iter().map(|run| run.orders[0]));
    }

    /// Rows from one order to another, both included.
    pub fn range(&self, from: Order, last: Order) -> impl Iterator<Item = (Order, &MetaEntry)> {
        let first = self.run_of(from);
        self.runs[first.min(self.runs.len())..]
            .iter()
            .flat_map(move |run| {
                let start = run.orders.partition_point(|order| *order < from);
                run.orders[start..].iter().copied().zip(&run.rows[start..])
            })
            .take_while(move |(order, _)| *order <= last)
    }

    /// What the rows take, counted anew: for tests of the accounting.
    pub fn count_bytes(&self) -> i64 {
        self.runs.iter().flat_map(|run| &run.rows).map(MetaEntry::bytes).sum()
    }
}

/// Half of what is counted around a guess: a few cache lines side by side.
const NEAR: usize = 12;

impl<'t> Probe<'t> {
    /// Reads one order of each cache line that the next step looks at.
    #[inline]
    pub fn touch(&self) -> usize {
        const LINE_ORDERS: usize = 64 / size_of::<Order>();
        let near = self.run.orders[self.from..].iter().take(2 * NEAR).step_by(LINE_ORDERS);
        near.map(|order| order.0 as usize).sum()
    }

    /// The first row of this order, if there is one: nearly always the one that is looked for. Else the rows behind its
    /// place, which an insertion would move.
    #[inline]
    pub fn row(&self) -> Result<&'t MetaEntry, &'t [MetaEntry]> {
        let at = self.run.lower_bound_near(self.from, self.order);
        if self.run.orders.get(at) == Some(&self.order) { Ok(&self.run.rows[at]) } else { Err(&self.run.rows[at..]) }
    }
}

impl Run {
    /// Where the row is, or where it would go.
    #[inline]
    fn find(&self, order: Order, name: &[u8]) -> Result<usize, usize> {
        let mut at = self.lower_bound(order);
        // Different names of one hash are rare: this loop nearly always looks at one entry.
        while at < self.orders.len() && self.orders[at] == order {
            match self.rows[at].name().cmp(name) {
                Ordering::Equal => return Ok(at),
                Ordering::Less => at += 1,
                Ordering::Greater => return Err(at),
            }
        }
        Err(at)
    }

    /// How many orders are less: guessed, and counted where the guess is near.
    #[inline]
    fn lower_bound(&self, order: Order) -> usize {
        self.lower_bound_near(self.guess(order), order)
    }

    /// Where the orders begin that are looked at first.
    #[inline]
    fn guess(&self, order: Order) -> usize {
        let guess = (order.0.saturating_sub(self.first) as f64 * self.scale) as usize;
        guess.saturating_sub(NEAR).min(self.orders.len().saturating_sub(2 * NEAR))
    }

    #[inline]
    fn lower_bound_near(&self, from: usize, order: Order) -> usize {
        let orders = &self.orders[..];
        let less = |part: &[Order]| part.iter().map(|other| usize::from(*other < order)).sum::<usize>();
        if orders.len() <= 2 * NEAR {
            return less(orders);
        }
        let near = &orders[from..from + 2 * NEAR];
        match less(near) {
            0 if from > 0 => orders[..from].partition_point(|other| *other < order),
            count if count == near.len() => {
                from + count + orders[from + count..].partition_point(|other| *other < order)
            }
            count => from + count,
        }
    }

    /// Keeps the guess right.
    #[inline]
    fn on_changed(&mut self) {
        if let (Some(first), Some(last)) = (self.orders.first(), self.orders.last()) {
            self.first = first.0;
            self.scale = self.orders.len() as f64 / (last.0 - first.0 + 1) as f64;
        }
    }

    /// Moves about the upper half out, between two orders; `None` where there is only one.
    fn split(&mut self) -> Option<Run> {
        let middle = self.orders[self.orders.len() / 2];
        let mut at = self.orders.partition_point(|order| *order < middle);
        if at == 0 {
            at = self.orders.partition_point(|order| *order <= middle);
        }
        if at == self.orders.len() {
            return None;
        }
        let mut second = Run { orders: self.orders.split_off(at), rows: self.rows.split_off(at), ..Run::default() };
        self.on_changed();
        second.on_changed();
        Some(second)
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
                    keys.put(order, &row, None, Index(at as u64));
                    map.insert((order, name), None);
                }
                _ => {
                    let value = vec![at as u8; random.below(40) as usize];
                    keys.put(order, &row, Some(&value), Index(at as u64));
                    map.insert((order, name), Some(value));
                }
            }
            let (slot, hash) = draw(&mut random);
            let (order, name) = (Order::new(0, slot, hash), b"1".to_vec());
            let expected = map.get(&(order, name.clone())).map(|value| value.as_deref());
            assert_eq!(keys.get(order, &name).map(MetaEntry::value), expected, "{what}");
        }
        let (from, last) = Order::of_space(0);
        let all: Vec<(Order, Vec<u8>, Option<Vec<u8>>)> = keys
            .range(from, last)
            .map(|(order, entry)| (order, entry.name().to_vec(), entry.value().map(<[u8]>::to_vec)))
            .collect();
        assert!(
            all == map.into_iter().map(|((order, name), value)| (order, name, value)).collect::<Vec<_>>(),
            "{what}"
        );
        assert_eq!(keys.take(from, last).len(), all.len(), "{what}");
        assert!(keys.is_empty(), "{what}");
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
