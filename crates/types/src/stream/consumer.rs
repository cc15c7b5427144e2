//! Consumers of a group: when each was seen and active last, and how much it has not acknowledged. Owns a consumer's
//! row.

use super::group::{GROUP_PREFIX_BYTES, Group};
use super::{Kind, StreamId};
use crate::element::lowered;
use crate::key::damaged;
use crate::{Error, Result};
use haypile_store::row::RowKey;
use haypile_store::{Direction, Txn};
use smallvec::SmallVec;
use std::ops::ControlFlow;

/// The name of a consumer: on the stack unless it is long.
pub type ConsumerName = SmallVec<[u8; 32]>;

/// The row of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerState {
    /// The number by which its pending entries are found.
    pub number: u32,
    /// The time of the last command that served the consumer: Unix time in milliseconds.
    pub seen_ms: u64,
    /// The time when the consumer got its last entry.
    pub active_ms: Option<u64>,
    /// Entries that the consumer has not acknowledged.
    pub pending: u64,
}

impl ConsumerState {
    pub const BYTES: usize = 4 + 8 + 8 + 8;

    /// Returns `number: u32 | seen_ms: u64 | active_ms: i64, -1 if never | pending: u64`.
    #[inline]
    pub fn encode(&self) -> [u8; ConsumerState::BYTES] {
        let mut bytes = [0; ConsumerState::BYTES];
        bytes[..4].copy_from_slice(&self.number.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.seen_ms.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.active_ms.map_or(-1, |ms| ms as i64).to_be_bytes());
        bytes[20..].copy_from_slice(&self.pending.to_be_bytes());
        bytes
    }

    /// Parses the row; `None` if these bytes are none.
    #[inline]
    pub fn parse(value: &[u8]) -> Option<ConsumerState> {
        let value: &[u8; ConsumerState::BYTES] = value.try_into().ok()?;
        let long = |at: usize| u64::from_be_bytes(value[at..at + 8].try_into().expect("eight bytes"));
        let active_ms = match long(12) as i64 {
            -1 => None,
            ms => Some(u64::try_from(ms).ok()?),
        };
        let number = u32::from_be_bytes(value[..4].try_into().expect("four bytes"));
        Some(ConsumerState { number, seen_ms: long(4), active_ms, pending: long(20) })
    }
}

/// A consumer that was looked up.
#[derive(Clone, Debug)]
pub struct Consumer {
    pub name: ConsumerName,
    pub state: ConsumerState,
    /// The row as it is written; `None`: not yet.
    saved: Option<ConsumerState>,
}

impl Group<'_> {
    pub fn consumer(&self, txn: &mut Txn<'_>, name: &[u8]) -> Result<Option<Consumer>> {
        let Some(value) = txn.row(&self.row(Kind::Consumer, &[name]))? else { return Ok(None) };
        match ConsumerState::parse(&value) {
            Some(state) => Ok(Some(Consumer { name: name.into(), state, saved: Some(state) })),
            None => Err(damaged("a consumer", &value)),
        }
    }

    /// Returns a new consumer of the group, seen now. It exists once both are saved.
    pub fn add_consumer(&mut self, txn: &Txn<'_>, name: &[u8]) -> Result<Consumer> {
        let number = self.state.next_consumer;
        self.state.next_consumer = number.checked_add(1).ok_or(Error::Overflow)?;
        self.state.consumers += 1;
        let state = ConsumerState { number, seen_ms: txn.now_ms(), active_ms: None, pending: 0 };
        Ok(Consumer { name: name.into(), state, saved: None })
    }

    /// Writes a consumer's row if it has changed.
    #[inline]
    pub fn save_consumer(&self, txn: &mut Txn<'_>, consumer: &mut Consumer) -> Result<()> {
        if consumer.saved != Some(consumer.state) {
            txn.put_row(&self.row(Kind::Consumer, &[&consumer.name]), &[&consumer.state.encode()])?;
            consumer.saved = Some(consumer.state);
        }
        Ok(())
    }

    /// Removes a consumer with the entries that it has not acknowledged, which are pending no more. The group is to be
    /// saved.
    pub fn remove_consumer(&mut self, txn: &mut Txn<'_>, consumer: &Consumer) -> Result<()> {
        self.long_if(txn, consumer.state.pending)?;
        let mut ids: Vec<StreamId> = Vec::new();
        self.visit_ids_of(txn, consumer, StreamId::MIN..=StreamId::MAX, usize::MAX, |id| {
            ids.push(id);
            ControlFlow::Continue(())
        })?;
        debug_assert!(
            txn.is_dry_run() || ids.len() as u64 == consumer.state.pending,
            "Invariant: a consumer states how many entries are pending for it"
        );
        for id in &ids {
            txn.delete_row(&self.pending_row(*id))?;
            txn.delete_row(&self.by_consumer_row(consumer.state.number, *id))?;
        }
        txn.delete_row(&self.row(Kind::Consumer, &[&consumer.name]))?;
        self.state.pending = lowered(txn, self.state.pending, ids.len() as u64);
        self.state.consumers = lowered(txn, u64::from(self.state.consumers), 1) as u32;
        Ok(())
    }

    /// Shows all consumers, in the order of their names' bytes.
    pub fn visit_consumers(&self, txn: &mut Txn<'_>, mut visit: impl FnMut(&[u8], ConsumerState)) -> Result<()> {
        let (from, until) = self.range_of(Kind::Consumer);
        let mut ended = Ok(());
        let want = self.state.consumers as usize;
        txn.visit(&from, &until, Direction::Forward, want, |row, value| match ConsumerState::parse(value) {
            Some(state) => {
                visit(&row[GROUP_PREFIX_BYTES..], state);
                ControlFlow::Continue(())
            }
            None => {
                ended = Err(damaged("a consumer", value));
                ControlFlow::Break(())
            }
        })?;
        ended
    }

    /// Returns the key of the row `4 | group: u32 | consumer: u32 | ms: u64 | seq: u64`.
    #[inline]
    pub(super) fn by_consumer_row(&self, consumer: u32, id: StreamId) -> RowKey {
        self.row(Kind::ByConsumer, &[&consumer.to_be_bytes(), &id.to_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_comes_apart_as_it_was_put_together() {
        let known = ConsumerState { number: 1, seen_ms: 2, active_ms: Some(3), pending: 4 };
        for state in [known, ConsumerState { active_ms: None, ..known }] {
            assert_eq!(ConsumerState::parse(&state.encode()), Some(state));
        }
        assert_eq!(ConsumerState::parse(&known.encode()[1..]), None, "cut off");
    }
}
