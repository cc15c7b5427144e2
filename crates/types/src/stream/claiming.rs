//! XREADGROUP's CLAIM: the entries of a group that nobody has, or whose consumer has been idle with them, go to the one
//! that reads. Those that were handed back come first, then the others by when they were delivered last.
//!
//! Nothing lies in the order of deliveries: the oldest ones are found by a walk over all pending entries. A group that
//! was walked over keeps a time before which none was delivered, so that the next walk comes when one may be old
//! enough.

use super::pending::{Edit, Held, Place};
use super::{Fields, Stream, StreamId};
use crate::Result;
use crate::element::{REPLY_INLINE_BYTES_MAX, ROWS_INLINE_MAX};
use haypile_store::{Direction, Txn};
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::ControlFlow;

/// The entries that a claim takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimable {
    /// Milliseconds since the last delivery.
    pub idle_min_ms: u64,
    /// The most entries that are taken.
    pub limit: u64,
}

/// Bytes of the log for an entry that changes its consumer, besides the new one's name.
const CLAIM_BYTES: u64 = 256;

/// Entries without consumer that are looked at in one step.
const STEP: usize = 256;

/// Entries that one walk finds, at least and at most: more are found by another one.
const FOUND_MIN: u64 = 256;
const FOUND_MAX: u64 = 1 << 16;

/// The time of the last delivery, and the id: the order in which entries are claimed.
type Age = (u64, StreamId);

/// The outcome of a walk.
struct Found {
    /// The oldest entries that are idle, in order.
    oldest: Vec<Age>,
    /// Whether there may be more idle entries.
    is_full: bool,
    /// The lowest time of those that are not idle.
    fresh_ms: u64,
}

/// A claim under way.
struct Claiming<'s, F> {
    stream: &'s Stream,
    to: Place,
    limit: u64,
    taken: BTreeSet<StreamId>,
    is_ended: bool,
    each: F,
}

impl<F: FnMut(StreamId, Fields<'_>, &Held) -> Option<usize>> Claiming<'_, F> {
    /// Gives an entry to the consumer, unless the stream has it no more: then it stays as it is.
    fn take(&mut self, txn: &mut Txn<'_>, edit: &mut Edit<'_>, id: StreamId) -> Result<()> {
        if self.taken.len() as u64 >= self.limit {
            self.is_ended = true;
            return Ok(());
        }
        let (Some(held), Some(value)) = (edit.pending(txn, id)?, self.stream.get(txn, id)?) else { return Ok(()) };
        let Some(bytes) = (self.each)(id, Fields::read(&value)?, &held) else {
            self.is_ended = true;
            return Ok(());
        };
        let (now_ms, deliveries) = (txn.now_ms(), held.delivered_again());
        edit.give(txn, id, Some(&held), self.to, now_ms, deliveries)?;
        self.taken.insert(id);
        if self.taken.len() > ROWS_INLINE_MAX || bytes > REPLY_INLINE_BYTES_MAX {
            txn.long()?;
        }
        Ok(())
    }
}

impl Edit<'_> {
    /// Gives a consumer what it may claim and shows each entry with what it was before; returns how many there were.
    /// `each` returns how many bytes the caller has made of those that were shown, or `None` if it does not take this
    /// one: then it is the end. An entry that the stream has no more stays pending where it is. One call claims no more
    /// than one transaction can note.
    pub fn claim(
        &mut self,
        txn: &mut Txn<'_>,
        stream: &Stream,
        to: Place,
        what: Claimable,
        each: impl FnMut(StreamId, Fields<'_>, &Held) -> Option<usize>,
    ) -> Result<u64> {
        let name_bytes = self.consumer(to).name.len() as u64;
        let notable = (txn.bytes_max() / 2 / (CLAIM_BYTES + name_bytes)).max(1);
        let limit = what.limit.min(notable);
        let mut claiming = Claiming { stream, to, limit, taken: BTreeSet::new(), is_ended: false, each };
        self.claim_from_zone(txn, &mut claiming)?;
        let oldest_ms = self.group.state.oldest_ms;
        let may_be_idle = oldest_ms.is_none_or(|ms| txn.now_ms().saturating_sub(ms) >= what.idle_min_ms);
        if may_be_idle && !claiming.is_ended {
            self.claim_oldest(txn, what.idle_min_ms, &mut claiming)?;
        }
        if !claiming.taken.is_empty() {
            self.on_active(txn, to);
        }
        Ok(claiming.taken.len() as u64)
    }

    /// Claims the entries without consumer.
    fn claim_from_zone<F: FnMut(StreamId, Fields<'_>, &Held) -> Option<usize>>(
        &mut self,
        txn: &mut Txn<'_>,
        claiming: &mut Claiming<'_, F>,
    ) -> Result<()> {
        if claiming.limit > ROWS_INLINE_MAX as u64 {
            self.group.long_if(txn, self.group.state.nacked)?;
        }
        let (mut next, mut seen) = (Some(0), 0);
        while let Some(from) = next {
            let mut step = Vec::new();
            self.group.visit_zone(txn, from, STEP, |order, id| {
                step.push((order, id));
                if step.len() < STEP { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            next = step.last().filter(|_| step.len() == STEP).map(|(order, _)| order + 1);
            for (_, id) in step {
                claiming.take(txn, self, id)?;
                if claiming.is_ended {
                    return Ok(());
                }
            }
            seen += STEP;
            if seen > ROWS_INLINE_MAX {
                txn.long()?;
            }
        }
        Ok(())
    }

    /// Claims the entries that have been idle for so long.
    fn claim_oldest<F: FnMut(StreamId, Fields<'_>, &Held) -> Option<usize>>(
        &mut self,
        txn: &mut Txn<'_>,
        idle_min_ms: u64,
        claiming: &mut Claiming<'_, F>,
    ) -> Result<()> {
        self.group.long_if(txn, self.group.state.pending.saturating_sub(self.group.state.nacked))?;
        let mut behind = None;
        loop {
            let most = (claiming.limit - claiming.taken.len() as u64).clamp(FOUND_MIN, FOUND_MAX) as usize;
            let found = self.find_oldest(txn, idle_min_ms, behind, &claiming.taken, most)?;
            behind = found.oldest.last().copied();
            for (_, id) in found.oldest {
                claiming.take(txn, self, id)?;
                if claiming.is_ended {
                    return Ok(());
                }
            }
            if !found.is_full {
                // Entries that are claimed from now on were delivered later.
                self.group.state.oldest_ms = Some(found.fresh_ms.min(txn.now_ms()));
                return Ok(());
            }
        }
    }

    /// Finds the oldest pending entries that are idle, behind one and without those that were `taken`.
    fn find_oldest(
        &self,
        txn: &mut Txn<'_>,
        idle_min_ms: u64,
        behind: Option<Age>,
        taken: &BTreeSet<StreamId>,
        most: usize,
    ) -> Result<Found> {
        let (now_ms, mut oldest) = (txn.now_ms(), BinaryHeap::new());
        let (mut is_full, mut fresh_ms) = (false, u64::MAX);
        let want = usize::try_from(self.group.state.pending).unwrap_or(usize::MAX);
        self.group.visit_pending(txn, StreamId::MIN..=StreamId::MAX, Direction::Forward, want, |id, pending| {
            if pending.holder.consumer().is_none() || taken.contains(&id) {
                return ControlFlow::Continue(());
            }
            let age = (pending.delivered_ms, id);
            if pending.idle_ms(now_ms) < idle_min_ms {
                fresh_ms = fresh_ms.min(pending.delivered_ms);
            } else if behind.is_none_or(|behind| age > behind) {
                oldest.push(age);
                if oldest.len() > most {
                    is_full = true;
                    oldest.pop();
                }
            }
            ControlFlow::Continue(())
        })?;
        Ok(Found { oldest: oldest.into_sorted_vec(), is_full, fresh_ms })
    }
}
