//! The rows of all of a stream's groups in views, for writing a large stream elsewhere while other commands run.

use super::group::GROUP_PREFIX_BYTES;
use super::{ConsumerState, Kind, Pending, Stream, StreamId};
use crate::Result;
use haypile_store::{Direction, Txn, View};

/// Views of all rows of groups, each in the order of the groups' numbers.
pub struct GroupViews {
    /// Consumers of each group by their names.
    pub consumers: View,
    /// Pending entries of each group by their ids.
    pub pending: View,
    /// Pending entries of each group by the consumers' numbers, then by their ids.
    pub owned: View,
    /// Pending entries of each group that have no consumer, in their order.
    pub nacked: View,
}

impl Stream {
    /// Returns the rows of idempotent IDs, in the order of the producers' numbers, as a view of this moment.
    pub fn view_idempotent(&self, txn: &mut Txn<'_>) -> Result<View> {
        let rows = self.rows();
        let (from, until) = (rows.data(&[Kind::OfProducer as u8]), rows.data(&[Kind::ByAge as u8]));
        Ok(txn.view(&from, &until, Direction::Forward)?)
    }

    /// Returns the rows of all groups as views of this moment.
    pub fn view_groups(&self, txn: &mut Txn<'_>) -> Result<GroupViews> {
        let rows = self.rows();
        let mut view = |kind: Kind| {
            let (from, until) = (rows.data(&[kind as u8]), rows.data(&[kind as u8 + 1]));
            txn.view(&from, &until, Direction::Forward)
        };
        Ok(GroupViews {
            consumers: view(Kind::Consumer)?,
            pending: view(Kind::Pending)?,
            owned: view(Kind::ByConsumer)?,
            nacked: view(Kind::Nacked)?,
        })
    }
}

/// Returns the number of the group that a row belongs to.
fn group_of(row: &[u8]) -> Option<u32> {
    let number = row.get(GROUP_PREFIX_BYTES - size_of::<u32>()..GROUP_PREFIX_BYTES)?;
    number.try_into().ok().map(u32::from_be_bytes)
}

/// Returns the consumer of a row of `GroupViews::consumers`, if it is one of this group.
pub fn consumer_in_row<'r>(group: u32, row: &'r [u8], value: &[u8]) -> Option<(&'r [u8], ConsumerState)> {
    let state = ConsumerState::parse(value).filter(|_| group_of(row) == Some(group))?;
    Some((&row[GROUP_PREFIX_BYTES..], state))
}

/// Returns the entry of a row of `GroupViews::pending`, if it is one of this group.
pub fn pending_in_row<'v>(group: u32, row: &[u8], value: &'v [u8]) -> Option<(StreamId, Pending<'v>)> {
    let pending = Pending::parse(value).filter(|_| group_of(row) == Some(group))?;
    Some((id_behind(row, 0)?, pending))
}

/// Returns the id in a row of `GroupViews::owned`, if it is one of this consumer of this group.
pub fn owned_in_row(group: u32, consumer: u32, row: &[u8]) -> Option<StreamId> {
    let number = row.get(GROUP_PREFIX_BYTES..)?.first_chunk().map(|number| u32::from_be_bytes(*number));
    if group_of(row) != Some(group) || number != Some(consumer) {
        return None;
    }
    id_behind(row, size_of::<u32>())
}

/// Returns the id in a row of `GroupViews::nacked`, if it is one of this group.
pub fn nacked_in_row(group: u32, row: &[u8], value: &[u8]) -> Option<StreamId> {
    if group_of(row) != Some(group) {
        return None;
    }
    Some(StreamId::from_bytes(value.try_into().ok()?))
}

/// Returns the id in the last bytes of a row's key, `at` bytes behind the group's number.
fn id_behind(row: &[u8], at: usize) -> Option<StreamId> {
    Some(StreamId::from_bytes(row.get(GROUP_PREFIX_BYTES + at..)?.try_into().ok()?))
}
