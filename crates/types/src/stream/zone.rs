//! Pending entries that were handed back to their group (XNACK): they have no consumer, and the next one that claims
//! gets them first, in the order in which they came. Owns their rows by that order; the row by id is in `pending`.

use super::group::{GROUP_PREFIX_BYTES, Group};
use super::pending::{Holder, Pending};
use super::{Kind, StreamId};
use crate::element::lowered;
use crate::key::damaged;
use crate::{Error, Result};
use haypile_store::row::RowKey;
use haypile_store::{Direction, Txn};
use std::ops::ControlFlow;

/// The highest order: a pending entry's row has six bytes for it.
const ORDER_MAX: u64 = (1 << 48) - 1;

impl Group<'_> {
    /// Returns the key of the row `6 | group: u32 | order: u64`.
    fn zone_row(&self, order: u64) -> RowKey {
        self.row(Kind::Nacked, &[&order.to_be_bytes()])
    }

    /// Adds an entry behind the others; the group is to be saved.
    pub(super) fn enter_zone(&mut self, txn: &mut Txn<'_>, id: StreamId, deliveries: u64) -> Result<()> {
        let order = self.state.next_nack;
        if order > ORDER_MAX {
            return Err(Error::Overflow);
        }
        let pending = Pending { delivered_ms: 0, deliveries, holder: Holder::Nobody { order } };
        txn.put_row(&self.pending_row(id), &[&pending.encode()])?;
        txn.put_row(&self.zone_row(order), &[&id.to_bytes()])?;
        self.state.nacked += 1;
        self.state.next_nack = order + 1;
        Ok(())
    }

    /// Removes the row of an entry by its order; the group is to be saved.
    pub(super) fn leave_zone(&mut self, txn: &mut Txn<'_>, order: u64) -> Result<()> {
        self.state.nacked = lowered(txn, self.state.nacked, 1);
        if self.state.nacked == 0 {
            self.state.next_nack = 0;
        }
        Ok(txn.delete_row(&self.zone_row(order))?)
    }

    /// Shows the entries without consumer from an order on, with the order of each, until `visit` breaks.
    pub fn visit_zone(
        &self,
        txn: &mut Txn<'_>,
        from: u64,
        want: usize,
        mut visit: impl FnMut(u64, StreamId) -> ControlFlow<()>,
    ) -> Result<()> {
        if self.state.nacked == 0 {
            return Ok(());
        }
        let until = self.range_of(Kind::Nacked).1;
        let mut ended = Ok(());
        txn.visit(&self.zone_row(from), &until, Direction::Forward, want, |row, value| match parse(row, value) {
            Some((order, id)) => visit(order, id),
            None => {
                ended = Err(damaged("a pending entry without consumer", value));
                ControlFlow::Break(())
            }
        })?;
        ended
    }
}

/// Returns the order in a row's key, and the id that is its value.
fn parse(row: &[u8], id: &[u8]) -> Option<(u64, StreamId)> {
    let order = row.get(GROUP_PREFIX_BYTES..)?.try_into().ok().map(u64::from_be_bytes)?;
    Some((order, StreamId::from_bytes(id.try_into().ok()?)))
}
