//! Streams that are made as a whole, of entries whose ids ascend. They may have any size: the rows of an object that
//! nothing names until it is complete are written ahead. The groups come after the entries, each with all its pending
//! entries, then their consumers. What is kept of producers comes last.
//!
//! A pending entry without consumer yet lies among those of a consumer number that no group gives out.

use super::group::Group;
use super::{Consumer, ConsumerName, GroupState, Head, Holder, Pending, Producers, ProducersState, Stream, StreamId};
use crate::Result;
use haypile_store::{Key, Txn};
use std::collections::HashSet;

/// A new stream.
#[derive(Default)]
pub struct Maker {
    stream: Option<Stream>,
    /// The group in the making.
    group: Option<Growing>,
    consumer: Option<Consumer>,
    producers: Option<Producers>,
    /// The state of a stream without producers and bounds of its own.
    without_producers: Option<ProducersState>,
    /// The producer in the making.
    producer: Option<Vec<u8>>,
    /// The names of all producers.
    named: HashSet<Vec<u8>>,
}

/// A group as far as it is known.
struct Growing {
    name: Vec<u8>,
    written: GroupState,
    state: GroupState,
}

/// The consumer number of pending entries that have no consumer yet.
const NOBODY: u32 = u32::MAX;

/// The state of a stream beside its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// The last ID, not below the last entry's.
    pub last: StreamId,
    pub max_deleted: StreamId,
    pub entries_added: u64,
}

impl Maker {
    fn stream(&mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<&mut Stream> {
        if self.stream.is_none() {
            self.stream = Some(Stream::create(txn, key)?);
        }
        Ok(self.stream.as_mut().expect("it was just made"))
    }

    /// Adds an entry behind the others.
    pub fn add<'f>(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        id: StreamId,
        fields: impl Iterator<Item = &'f [u8]>,
    ) -> Result<()> {
        self.stream(txn, key)?.put(txn, id, fields)
    }

    /// Sets the state of the stream, behind all entries.
    pub fn set_past(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, past: Past) -> Result<()> {
        let Past { last, max_deleted, entries_added } = past;
        let stream = self.stream(txn, key)?;
        stream.head = Head { last, max_deleted, entries_added, ..stream.head };
        Ok(())
    }

    /// Adds a group; returns whether there was none of this name. `None` for `entries_read`: it is computed.
    pub fn add_group(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        name: &[u8],
        last: StreamId,
        entries_read: Option<Option<u64>>,
    ) -> Result<bool> {
        self.end_group(txn, key)?;
        let stream = self.stream(txn, key)?;
        let entries_read = entries_read.unwrap_or_else(|| stream.head.entries_up_to(last));
        if !Group::create(txn, key, stream, name, last, entries_read)? {
            return Ok(false);
        }
        let state = Group::find(txn, stream, name)?.expect("it was just made").state;
        self.group = Some(Growing { name: name.to_vec(), written: state, state });
        Ok(true)
    }

    /// Runs `change` on the group in the making.
    fn change<R>(
        &mut self,
        txn: &mut Txn<'_>,
        change: impl FnOnce(&mut Txn<'_>, &mut Group<'_>, &mut Option<Consumer>) -> Result<R>,
    ) -> Result<R> {
        let (Some(stream), Some(growing)) = (&self.stream, &mut self.group) else {
            unreachable!("its parts follow a group")
        };
        let mut group = stream.group(&growing.name, growing.state);
        let result = change(txn, &mut group, &mut self.consumer)?;
        growing.state = group.state;
        Ok(result)
    }

    /// Adds an entry that the group has delivered.
    pub fn add_pending(&mut self, txn: &mut Txn<'_>, id: StreamId, delivered_ms: u64, deliveries: u64) -> Result<()> {
        self.change(txn, |txn, group, _| {
            let pending = Pending { delivered_ms, deliveries, holder: Holder::Consumer(b"") };
            txn.put_row(&group.by_consumer_row(NOBODY, id), &[&pending.encode()])?;
            group.state.pending += 1;
            Ok(())
        })
    }

    /// Adds a consumer to the group; returns whether there was none of this name.
    pub fn add_consumer(
        &mut self,
        txn: &mut Txn<'_>,
        name: &[u8],
        seen_ms: u64,
        active_ms: Option<u64>,
    ) -> Result<bool> {
        self.end_consumer(txn)?;
        self.change(txn, |txn, group, current| {
            if group.consumer(txn, name)?.is_some() {
                return Ok(false);
            }
            let mut consumer = group.add_consumer(txn, name)?;
            (consumer.state.seen_ms, consumer.state.active_ms) = (seen_ms, active_ms);
            *current = Some(consumer);
            Ok(true)
        })
    }

    /// Gives the last consumer a pending entry; returns whether there was such an entry without consumer.
    pub fn give(&mut self, txn: &mut Txn<'_>, id: StreamId) -> Result<bool> {
        self.change(txn, |txn, group, consumer| {
            let Some(consumer) = consumer else { unreachable!("its entries follow a consumer") };
            let row = group.by_consumer_row(NOBODY, id);
            let Some(value) = txn.row(&row)? else { return Ok(false) };
            txn.delete_row(&row)?;
            let name: ConsumerName = consumer.name.clone();
            txn.put_row(&group.pending_row(id), &[&value, &name])?;
            txn.put_row(&group.by_consumer_row(consumer.state.number, id), &[])?;
            consumer.state.pending += 1;
            Ok(true)
        })
    }

    /// Says that a pending entry has no consumer, behind all that have one; returns whether there was such an entry.
    pub fn hand_back(&mut self, txn: &mut Txn<'_>, id: StreamId) -> Result<bool> {
        self.end_consumer(txn)?;
        self.change(txn, |txn, group, _| {
            let row = group.by_consumer_row(NOBODY, id);
            let Some(value) = txn.row(&row)? else { return Ok(false) };
            txn.delete_row(&row)?;
            let deliveries = Pending::parse(&value).map_or(0, |pending| pending.deliveries);
            group.enter_zone(txn, id, deliveries)?;
            Ok(true)
        })
    }

    fn end_consumer(&mut self, txn: &mut Txn<'_>) -> Result<()> {
        if self.consumer.is_some() {
            self.change(txn, |txn, group, consumer| match consumer.take() {
                Some(mut consumer) => group.save_consumer(txn, &mut consumer),
                None => Ok(()),
            })?;
        }
        Ok(())
    }

    fn end_group(&mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        self.end_consumer(txn)?;
        if let Some(Growing { name, written, state }) = self.group.take() {
            let mut group = self.stream(txn, key)?.group(&name, written);
            group.state = state;
            group.save(txn, key)?;
        }
        Ok(())
    }

    /// Sets the bounds of what is kept of producers, behind the groups.
    pub fn set_bounds(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, duration_s: u32, ids_max: u32) -> Result<()> {
        self.end_group(txn, key)?;
        let mut producers = self.stream(txn, key)?.edit_producers(txn)?;
        self.without_producers = Some(producers.state);
        producers.state = ProducersState { duration_s, ids_max, ..producers.state };
        self.producers = Some(producers);
        Ok(())
    }

    /// Begins with a producer; returns whether there was none of this name.
    pub fn add_producer(&mut self, name: &[u8]) -> bool {
        self.producer = Some(name.to_vec());
        self.named.insert(name.to_vec())
    }

    /// Adds an idempotent ID of the producer, unless there is one of this name or its time is over.
    pub fn add_idempotent(&mut self, txn: &mut Txn<'_>, name: &[u8], id: StreamId) -> Result<()> {
        let (Some(producers), Some(producer)) = (&mut self.producers, &self.producer) else {
            unreachable!("idempotent IDs follow their producer")
        };
        if producers.state.is_over(id, txn.now_ms()) || producers.find(txn, producer, name)?.is_some() {
            return Ok(());
        }
        producers.add(txn, producer, name, id)
    }

    /// Sets how many entries were ever added, and not added, behind the producers.
    pub fn set_counts(&mut self, added: u64, duplicates: u64) {
        if let Some(producers) = &mut self.producers {
            producers.state = ProducersState { added, duplicates, ..producers.state };
        }
    }

    /// Gives the stream, without deadline, to a key that is absent. Every pending entry has a consumer or was handed
    /// back.
    pub fn finish(mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        self.end_group(txn, key)?;
        // Newer versions of Redis write about producers of every stream.
        if let Some(producers) = self.producers.as_mut().filter(|kept| self.without_producers != Some(kept.state)) {
            producers.save(txn, key)?;
        }
        self.stream(txn, key)?.save(txn, key)
    }
}
