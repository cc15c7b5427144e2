//! Pending entries: delivered by a group and not acknowledged. Owns the two rows of a pending entry: one by its id,
//! which says which consumer has it since when, and one by its consumer. They come and go together, and both are
//! counted: by the group and by the consumer. An entry that was handed back (XNACK) has no consumer: its second row is
//! one by its place among such entries.
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

/// The holder of a pending entry, with the name of the consumer borrowed or owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder<N> {
    Consumer(N),
    /// No consumer: the entry was handed back. `order` is its place among those of the group, by when that was.
    Nobody {
        order: u64,
    },
}

impl<N: AsRef<[u8]>> Holder<N> {
    /// Returns the name of the consumer; `None` if there is none.
    pub fn consumer(&self) -> Option<&[u8]> {
        match self {
            Holder::Consumer(name) => Some(name.as_ref()),
            Holder::Nobody { .. } => None,
        }
    }
}

/// The row of a pending entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending<'v> {
    /// The time of the last delivery: Unix time in milliseconds; 0 without consumer.
    pub delivered_ms: u64,
    /// The number of deliveries.
    pub deliveries: u64,
    pub holder: Holder<&'v [u8]>,
}

/// A row of a pending entry but for the consumer's name.
pub(super) type Fixed = SmallVec<[u8; 16]>;

impl<'v> Pending<'v> {
    const FIXED_BYTES: usize = 16;
    /// The bytes of the row of an entry without consumer; no other row is so short.
    const UNOWNED_BYTES: usize = 14;

    /// Returns all but the name of `delivered_ms: u64 | deliveries: u64 | the consumer's name`; without consumer
    /// `deliveries: u64 | order: u48`.
    #[inline]
    pub(super) fn encode(&self) -> Fixed {
        let mut bytes = Fixed::new();
        match self.holder {
            Holder::Consumer(_) => {
                bytes.extend((u128::from(self.delivered_ms) << 64 | u128::from(self.deliveries)).to_be_bytes());
            }
            Holder::Nobody { order } => {
                bytes.extend(self.deliveries.to_be_bytes());
                bytes.extend(order.to_be_bytes()[2..].iter().copied());
            }
        }
        bytes
    }

    #[inline]
    pub fn parse(value: &'v [u8]) -> Option<Pending<'v>> {
        if value.len() == Pending::UNOWNED_BYTES {
            let (deliveries, order) = value.split_first_chunk::<8>()?;
            let mut place = [0; 8];
            place[2..].copy_from_slice(order);
            let holder = Holder::Nobody { order: u64::from_be_bytes(place) };
            return Some(Pending { delivered_ms: 0, deliveries: u64::from_be_bytes(*deliveries), holder });
        }
        let (fixed, consumer) = value.split_first_chunk::<{ Pending::FIXED_BYTES }>()?;
        let both = u128::from_be_bytes(*fixed);
        let holder = Holder::Consumer(consumer);
        Some(Pending { delivered_ms: (both >> 64) as u64, deliveries: both as u64, holder })
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
    pub holder: Holder<ConsumerName>,
}

/// The highest number of deliveries that is reached by counting: Redis counts with a sign.
const DELIVERIES_MAX: u64 = i64::MAX as u64;

impl Held {
    /// Returns the milliseconds since the last delivery.
    pub fn idle_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.delivered_ms)
    }

    /// Tells whether an entry has been idle for so long; one without consumer has been for ever.
    pub fn is_idle(&self, now_ms: u64, idle_min_ms: u64) -> bool {
        self.holder.consumer().is_none() || self.idle_ms(now_ms) >= idle_min_ms
    }

    /// Returns the number of deliveries with the next one.
    pub fn delivered_again(&self) -> u64 {
        if self.deliveries < DELIVERIES_MAX { self.deliveries + 1 } else { self.deliveries }
    }
}

impl From<Pending<'_>> for Held {
    fn from(Pending { delivered_ms, deliveries, holder }: Pending<'_>) -> Held {
        let holder = match holder {
            Holder::Consumer(name) => Holder::Consumer(name.into()),
            Holder::Nobody { order } => Holder::Nobody { order },
        };
        Held { delivered_ms, deliveries, holder }
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

    /// Has an entry not pending any more.
    pub fn release(&mut self, txn: &mut Txn<'_>, id: StreamId, held: &Held) -> Result<()> {
        txn.delete_row(&self.group.pending_row(id))?;
        self.take_from(txn, id, held)?;
        self.group.state.pending = lowered(txn, self.group.state.pending, 1);
        Ok(())
    }

    /// Takes an entry away from its holder.
    fn take_from(&mut self, txn: &mut Txn<'_>, id: StreamId, held: &Held) -> Result<()> {
        let name = match &held.holder {
            Holder::Consumer(name) => name,
            Holder::Nobody { order } => return self.group.leave_zone(txn, *order),
        };
        let Some(at) = self.find(txn, name)? else {
            return Err(damaged("the consumer of a pending entry", name));
        };
        let state = &mut self.consumers[at.0].state;
        state.pending = lowered(txn, state.pending, 1);
        let number = state.number;
        Ok(txn.delete_row(&self.group.by_consumer_row(number, id))?)
    }

    /// Gives an entry to a consumer, with or without a holder before; `held` is the entry until now.
    pub fn give(
        &mut self,
        txn: &mut Txn<'_>,
        id: StreamId,
        held: Option<&Held>,
        to: Place,
        delivered_ms: u64,
        deliveries: u64,
    ) -> Result<()> {
        let name = &self.consumers[to.0].name;
        let stays = held.is_some_and(|held| held.holder.consumer() == Some(name));
        if let (Some(held), false) = (held, stays) {
            self.take_from(txn, id, held)?;
        }
        let consumer = &mut self.consumers[to.0];
        let pending = Pending { delivered_ms, deliveries, holder: Holder::Consumer(&consumer.name) };
        txn.put_row(&self.group.pending_row(id), &[&pending.encode(), &consumer.name])?;
        if !stays {
            consumer.state.pending += 1;
            txn.put_row(&self.group.by_consumer_row(consumer.state.number, id), &[])?;
        }
        if held.is_none() {
            self.group.state.pending += 1;
        }
        self.group.state.note_delivery(delivered_ms);
        Ok(())
    }

    /// Takes an entry from its holder, if it has one, and hands it back to the group, behind all others that were.
    pub fn hand_back(&mut self, txn: &mut Txn<'_>, id: StreamId, held: Option<&Held>, deliveries: u64) -> Result<()> {
        match held {
            Some(held) => self.take_from(txn, id, held)?,
            None => self.group.state.pending += 1,
        }
        self.group.enter_zone(txn, id, deliveries)
    }

    /// Writes the rows of the group and the consumers if they have changed.
    pub fn save(mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        let owned = self.consumers.iter().map(|consumer| consumer.state.pending).sum::<u64>();
        debug_assert!(
            txn.is_dry_run() || owned + self.group.state.nacked <= self.group.state.pending,
            "Invariant: an entry is pending for one consumer, or for none"
        );
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
        let pending = Pending { delivered_ms: 1 << 40, deliveries: 3, holder: Holder::Consumer(b"alice") };
        let value = [&pending.encode()[..], b"alice"].concat();
        assert_eq!(Pending::parse(&value), Some(pending));
        assert_eq!(Pending::parse(&value[..15]), None, "cut off");
        assert_eq!((pending.idle_ms(5), pending.idle_ms((1 << 40) + 5)), (0, 5));
        let unowned = Pending { delivered_ms: 0, deliveries: u64::MAX, holder: Holder::Nobody { order: 1 << 40 } };
        assert_eq!(Pending::parse(&unowned.encode()), Some(unowned));
        assert_eq!(Pending::parse(&unowned.encode()[..13]), None, "cut off");
        let nameless = Pending { holder: Holder::Consumer(b""), ..pending };
        assert_eq!(Pending::parse(&nameless.encode()), Some(nameless), "a consumer may have no name");
    }

    #[test]
    fn deliveries_are_counted_up_to_the_highest_number_of_redis() {
        let held = |deliveries| Held { delivered_ms: 0, deliveries, holder: Holder::Nobody { order: 0 } };
        for (before, after) in [(0, 1), (DELIVERIES_MAX - 1, DELIVERIES_MAX), (DELIVERIES_MAX, DELIVERIES_MAX)] {
            assert_eq!(held(before).delivered_again(), after);
        }
    }
}
