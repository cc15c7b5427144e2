//! The results of a search: in memory, in the order asked for, and no more than asked for. Results that are too many
//! for memory go into a spool of the store, which is a file of this node.

use crate::error::Result;
use crate::keys::sort::MEMORY_BYTES_MAX;
use haypile_store::{Direction, Spool, Spooled, Txn};
use haypile_types::score;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

/// The order of distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Ascending,
    Descending,
}

/// A position that was found.
pub(crate) struct Hit<'h> {
    pub member: Cow<'h, [u8]>,
    pub score: f64,
    pub distance_m: f64,
}

#[derive(Clone, Debug)]
struct Item {
    /// The member's range in the bytes of all members.
    member: Range<usize>,
    score: f64,
    distance_m: f64,
}

/// Items and their members, one behind the other.
#[derive(Default)]
struct Items {
    items: Vec<Item>,
    bytes: Vec<u8>,
}

impl Items {
    #[inline]
    fn push(&mut self, member: &[u8], score: f64, distance_m: f64) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(member);
        self.items.push(Item { member: from..self.bytes.len(), score, distance_m });
    }

    fn bytes(&self) -> usize {
        self.bytes.len() + self.items.len() * size_of::<Item>()
    }

    /// Sorts by distance; equal distances stay in the order in which they were found.
    fn sort(&mut self, order: Option<Order>) {
        let compare =
            |one: &Item, other: &Item| one.distance_m.partial_cmp(&other.distance_m).unwrap_or(Ordering::Equal);
        match order {
            None => {}
            Some(Order::Ascending) => self.items.sort_by(compare),
            Some(Order::Descending) => self.items.sort_by(|one, other| compare(other, one)),
        }
    }

    /// Drops all but the first `count` items.
    fn keep(&mut self, count: usize) {
        let mut kept = Items::default();
        for item in self.items.iter().take(count) {
            kept.push(&self.bytes[item.member.clone()], item.score, item.distance_m);
        }
        *self = kept;
    }
}

/// The results of a search in progress.
pub(crate) struct Hits {
    order: Option<Order>,
    /// The number of results that are asked for.
    count: Option<u64>,
    items: Items,
    /// The results that did not fit into memory.
    spool: Option<Spool>,
}

impl Hits {
    pub fn new(order: Option<Order>, count: Option<u64>) -> Hits {
        Hits { order, count, items: Items::default(), spool: None }
    }

    #[inline]
    pub fn push(&mut self, member: &[u8], score: f64, distance_m: f64) {
        self.items.push(member, score, distance_m);
    }

    /// The number of results so far.
    #[inline]
    pub fn len(&self) -> u64 {
        self.items.items.len() as u64 + self.spool.as_ref().map_or(0, Spool::count)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.items.bytes()
    }

    /// Drops the results beyond the count asked for, or moves all to a spool, where they take much memory.
    pub fn make_room(&mut self, txn: &Txn) -> Result<()> {
        if self.items.bytes() < MEMORY_BYTES_MAX {
            return Ok(());
        }
        if let (Some(count), None) = (self.count, &self.spool) {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if count < self.items.items.len() / 2 {
                self.items.sort(self.order);
                self.items.keep(count);
                return Ok(());
            }
        }
        let spool = match &mut self.spool {
            Some(spool) => spool,
            None => {
                let is_descending = self.order == Some(Order::Descending);
                let direction = if is_descending { Direction::Backward } else { Direction::Forward };
                self.spool.insert(txn.spool(direction)?)
            }
        };
        put_all(txn, spool, std::mem::take(&mut self.items), self.order)
    }

    /// Ends the search and returns its results in order.
    pub fn into_found(mut self, txn: &Txn) -> Result<Found> {
        let count = self.len().min(self.count.unwrap_or(u64::MAX));
        let source = match self.spool {
            None => {
                self.items.sort(self.order);
                Source::Memory(self.items)
            }
            Some(mut spool) => {
                put_all(txn, &mut spool, self.items, self.order)?;
                Source::Spooled(spool.into_rows(txn)?)
            }
        };
        Ok(Found { count, at: 0, source })
    }
}

/// Moves items to a spool: `score | distance | member` under the distance, or in the order in which they were found.
fn put_all(txn: &Txn, spool: &mut Spool, items: Items, order: Option<Order>) -> Result<()> {
    for item in &items.items {
        let distance = score::place(item.distance_m);
        let sort_key = if order.is_some() { &distance[..] } else { &[] };
        let member = &items.bytes[item.member.clone()];
        spool.put(txn, sort_key, &[&item.score.to_be_bytes(), &item.distance_m.to_be_bytes(), member])?;
    }
    Ok(())
}

/// The results of a search that has ended, read one by one.
#[derive(Default)]
pub(crate) struct Found {
    count: u64,
    at: u64,
    source: Source,
}

enum Source {
    Memory(Items),
    Spooled(Spooled),
}

impl Default for Source {
    fn default() -> Source {
        Source::Memory(Items::default())
    }
}

impl Found {
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Tells whether all results would take more than so many bytes of memory.
    pub fn is_longer_than(&self, bytes: usize) -> bool {
        match &self.source {
            Source::Memory(items) => items.bytes() > bytes,
            Source::Spooled(_) => true,
        }
    }

    /// The bytes of memory that the results take.
    pub fn bytes(&self) -> usize {
        match &self.source {
            Source::Memory(items) => items.bytes(),
            Source::Spooled(rows) => rows.bytes() as usize,
        }
    }

    /// Returns the next result; `None` at the end.
    pub fn next(&mut self) -> std::result::Result<Option<Hit<'_>>, String> {
        if self.at == self.count {
            return Ok(None);
        }
        self.at += 1;
        match &mut self.source {
            Source::Memory(Items { items, bytes }) => {
                let item = &items[self.at as usize - 1];
                let member = Cow::Borrowed(&bytes[item.member.clone()]);
                Ok(Some(Hit { member, score: item.score, distance_m: item.distance_m }))
            }
            Source::Spooled(rows) => {
                let row = rows.next_row()?.ok_or("fewer positions than were found")?;
                let number =
                    |at: usize| row.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(f64::from_be_bytes);
                match (number(0), number(8)) {
                    (Some(score), Some(distance_m)) => {
                        Ok(Some(Hit { member: Cow::Borrowed(&row[16..]), score, distance_m }))
                    }
                    _ => Err("a position that was found is damaged".into()),
                }
            }
        }
    }
}
