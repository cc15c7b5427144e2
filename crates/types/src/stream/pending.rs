//! Pending entries: delivered by a group and not acknowledged. Owns the two rows of a pending entry: one by its id,
//! which says which consumer has it since when, and one by its consumer. They come and go together, and both are
//! counted: by the group and by the consumer.
//!
//! A pending entry need not be an entry of the stream any more: XDEL and XTRIM leave it, as in Redis.

use super::consumer::{Consumer, ConsumerName};
use super::group::{GROUP_PREFIX_BYTES, Group};
use super::{Kind, StreamId};
use crate::Result;
use crate::element::lowered;
use crate::key::damaged;
use haypile_store::row::RowKey;
use haypile_store::{Direction, Key, Txn};
use smallvec::SmallVec;
use std::ops::{ControlFlow, RangeInclusive};

/// The row of a pending entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending<'v> {
    /// The time of the last delivery: Unix time in milliseconds.
    pub delivered_ms: u64,
    /// The number of deliveries.
    pub deliveries: u64,
    /// The name of the consumer that has it.
    pub consumer: &'v [u8],
}

impl<'v> Pending<'v> {
    const FIXED_BYTES: usize = 16;

    /// Returns all but the name of `delivered_ms: u64 | deliveries: u64 | the consumer's name`.
    #[inline]
    pub(super) fn encode(&self) -> [u8; Pending::FIXED_BYTES] {
        (u128::from(self.delivered_ms) << 64 | u128::from(self.deliveries)).to_be_bytes()
    }

    #[inline]
    pub fn parse(value: &'v [u8]) -> Option<Pending<'v>> {
        let (fixed, consumer) = value.split_first_chunk::<{ Pending::FIXED_BYTES }>()?;
        let both = u128::from_be_bytes(*fixed);
        Some(Pending { delivered_ms: (both >> 64) as u64, deliveries: both as u64, consumer })
    }

    /// Returns the milliseconds since the last delivery.
    pub fn idle_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.delivered_ms)
    }
}

/// Returns the id in the last bytes of a row's key, `at` bytes behind the group's prefix.
#[inline]
fn id_in(row: &[u8], at: usize) -> Option<StreamId> {
    Some(StreamId::from_bytes(row.get(GROUP_PREFIX_BYTES + at..)?.try_into().ok()?))
}

impl Group<'_> {
    /// Returns the key of the row `3 | group: u32 | ms: u64 | seq: u64`.
    #[inline]
    pub(super) fn pending_row(&self, id: StreamId) -> RowKey {
        self.row(Kind::Pending, &[&id.to_bytes()])
    }

    /// Shows pending entries, up or down, until `visit` breaks. `want` is how many the caller expects to need.
    pub fn visit_pending(
        &self,
        txn: &mut Txn<'_>,
        ids: RangeInclusive<StreamId>,
        direction: Direction,
        want: usize,
        mut visit: impl FnMut(StreamId, Pending<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        if self.state.pending == 0 || ids.is_empty() {
            return Ok(());
        }
        let until = match ids.end().next() {
            Some(behind) => self.pending_row(behind),
            None => self.range_of(Kind::Pending).1,
        };
        let mut ended = Ok(());
        txn.visit(&self.pending_row(*ids.start()), &until, direction, want, |row, value| {
            match (id_in(row, 0), Pending::parse(value)) {
                (Some(id), Some(pending)) => visit(id, pending),
                _ => {
                    ended = Err(damaged("a pending entry", value));
                    ControlFlow::Break(())
                }
            }
        })?;
        ended
    }

    /// Shows the ids that a consumer has not acknowledged.
    pub fn visit_ids_of(
        &self,
        txn: &mut Txn<'_>,
        consumer: &Consumer,
        ids: RangeInclusive<StreamId>,
        want: usize,
        mut visit: impl FnMut(StreamId) -> ControlFlow<()>,
    ) -> Result<()> {
        if consumer.state.pending == 0 || ids.is_empty() {
            return Ok(());
        }
        let number = consumer.state.number;
        let until = match (ids.end().next(), number.checked_add(1)) {
            (Some(behind), _) => self.by_consumer_row(number, behind),
            (None, Some(next)) => self.row(Kind::ByConsumer, &[&next.to_be_bytes()]),
            (None, None) => self.range_of(Kind::ByConsumer).1,
        };
        let mut ended = Ok(());
        let want = want.min(usize::try_from(consumer.state.pending).unwrap_or(usize::MAX));
        txn.visit(
            &self.by_consumer_row(number, *ids.start()),
            &until,
            Direction::Forward,
            want,
            |row, _| match id_in(row, size_of_val(&number)) {
                Some(id) => visit(id),
                None => {
                    ended = Err(damaged("a pending entry of a consumer", row));
                    ControlFlow::Break(())
                }
            },
        )?;
        ended
    }

    /// Returns the lowest and the highest pending id.
    pub fn pending_edges(&self, txn: &mut Txn<'_>) -> Result<Option<(StreamId, StreamId)>> {
        let mut edges = [None; 2];
        for (edge, direction) in edges.iter_mut().zip([Direction::Forward, Direction::Backward]) {
            self.visit_pending(txn, StreamId::MIN..=StreamId::MAX, direction, 1, |id, _| {
                *edge = Some(id);
                ControlFlow::Break(())
            })?;
        }
        Ok(edges[0].zip(edges[1]))
    }
}

/// A pending entry with an owned name, for callers that go on to change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub delivered_ms: u64,
    pub deliveries: u64,
    pub consumer: ConsumerName,
}

impl Held {
    /// Returns the milliseconds since the last delivery.
    pub fn idle_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.delivered_ms)
    }
}

impl From<Pending<'_>> for Held {
    fn from(Pending { delivered_ms, deliveries, consumer }: Pending<'_>) -> Held {
        Held { delivered_ms, deliveries, consumer: consumer.into() }
    }
}

/// A group under change, with those of its consumers that the change has met. Rows of pending entries are written at
/// once; the counts, and when each consumer was seen, with `save`.
pub struct Edit<'n> {
    pub group: Group<'n>,
    consumers: SmallVec<[Consumer; 1]>,
}

/// A consumer of an `Edit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(usize);

impl<'n> Edit<'n> {
    pub fn of(group: Group<'n>) -> Edit<'n> {
        Edit { group, consumers: SmallVec::new() }
    }

    pub fn consumer(&self, at: Place) -> &Consumer {
        &self.consumers[at.0]
    }

    pub fn find(&mut self, txn: &mut Txn<'_>, name: &[u8]) -> Result<Option<Place>> {
        if let Some(at) = self.consumers.iter().position(|consumer| consumer.name[..] == *name) {
            return Ok(Some(Place(at)));
        }
        Ok(self.group.consumer(txn, name)?.map(|consumer| self.hold(consumer)))
    }

    /// Returns the consumer of this name, which is seen now, and whether it was created by this.
    pub fn see(&mut self, txn: &mut Txn<'_>, name: &[u8]) -> Result<(Place, bool)> {
        if let Some(at) = self.find(txn, name)? {
            self.consumers[at.0].state.seen_ms = txn.now_ms();
            return Ok((at, false));
        }
        let consumer = self.group.add_consumer(txn, name)?;
        Ok((self.hold(consumer), true))
    }

    /// Notes that the consumer gets an entry now.
    pub fn on_active(&mut self, txn: &Txn<'_>, at: Place) {
        self.consumers[at.0].state.active_ms = Some(txn.now_ms());
    }

    fn hold(&mut self, consumer: Consumer) -> Place {
        self.consumers.push(consumer);
        Place(self.consumers.len() - 1)
    }

    pub fn pending(&self, txn: &mut Txn<'_>, id: StreamId) -> Result<Option<Held>> {
        if self.group.state.pending == 0 {
            return Ok(None);
        }
        let Some(value) = txn.row(&self.group.pending_row(id))? else { return Ok(None) };
        match Pending::parse(&value) {
            Some(pending) => Ok(Some(pending.into())),
            None => Err(damaged("a pending entry", &value)),
        }
    }

    /// Takes an entry away from its consumer.
    pub fn release(&mut self, txn: &mut Txn<'_>, id: StreamId, held: &Held) -> Result<()> {
        txn.delete_row(&self.group.pending_row(id))?;
        self.take_from(txn, id, &held.consumer)?;
        self.group.state.pending = lowered(txn, self.group.state.pending, 1);
        Ok(())
    }

    fn take_from(&mut self, txn: &mut Txn<'_>, id: StreamId, name: &[u8]) -> Result<()> {
        let Some(at) = self.find(txn, name)? else {
            return Err(damaged("the consumer of a pending entry", name));
        };
        let state = &mut self.consumers[at.0].state;
        state.pending = lowered(txn, state.pending, 1);
        let number = state.number;
        Ok(txn.delete_row(&self.group.by_consumer_row(number, id))?)
    }

    /// Gives an entry to a consumer, with or without one before; `held` is the entry until now.
    pub fn give(
        &mut self,
        txn: &mut Txn<'_>,
        id: StreamId,
        held: Option<&Held>,
        to: Place,
        delivered_ms: u64,
        deliveries: u64,
    ) -> Result<()> {
        let stays = held.is_some_and(|held| held.consumer == self.consumers[to.0].name);
        if let (Some(held), false) = (held, stays) {
            self.take_from(txn, id, &held.consumer)?;
        }
        let consumer = &mut self.consumers[to.0];
        let pending = Pending { delivered_ms, deliveries, consumer: &consumer.name };
        txn.put_row(&self.group.pending_row(id), &[&pending.encode(), pending.consumer])?;
        if !stays {
            consumer.state.pending += 1;
            txn.put_row(&self.group.by_consumer_row(consumer.state.number, id), &[])?;
        }
        if held.is_none() {
            self.group.state.pending += 1;
        }
        Ok(())
    }

    /// Writes the rows of the group and the consumers if they have changed.
    pub fn save(mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        for consumer in &mut self.consumers {
            self.group.save_consumer(txn, consumer)?;
        }
        self.group.save(txn, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_entry_comes_apart_as_it_was_put_together() {
        let pending = Pending { delivered_ms: 1 << 40, deliveries: 3, consumer: b"alice" };
        let value = [&pending.encode()[..], pending.consumer].concat();
        assert_eq!(Pending::parse(&value), Some(pending));
        assert_eq!(Pending::parse(&value[..15]), None, "cut off");
        assert_eq!((pending.idle_ms(5), pending.idle_ms((1 << 40) + 5)), (0, 5));
    }
}
