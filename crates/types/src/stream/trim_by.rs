//! Trims that mind the references of groups (DELREF and ACKED, Redis 8.2). They go from the first entry on, one by
//! one: an approximate one, too, whose nodes only say where its limit is looked at.

use super::references::References;
use super::trim::REMOVAL_BYTES;
use super::{Bound, Nodes, Policy, STEP_ROWS, Stream, StreamId, Trim, element_of};
use crate::Result;
use crate::element::ROWS_INLINE_MAX;
use haypile_store::{Direction, Key, Txn};
use std::ops::ControlFlow;

/// The entries of a stream as a trim counts them: those that were there before it, from the first one on.
#[derive(Clone, Copy)]
struct Counted {
    /// Entries that were gone before the first one.
    gone: u64,
    count: u64,
    nodes: Option<Nodes>,
}

impl Counted {
    fn of(stream: &Stream, nodes: Option<Nodes>) -> Counted {
        let (added, count) = (stream.head.entries_added, stream.head.count);
        Counted { gone: added.saturating_sub(count), count, nodes }
    }

    /// Returns the limit, and how many entries the node has that begins with the entry at this place; `None` if none
    /// does or there is no limit.
    fn node_at(self, place: u64) -> Option<(u64, u64)> {
        let Nodes { entries, limit } = self.nodes.filter(|nodes| nodes.limit > 0)?;
        let left = self.count - place;
        let within = if entries == 0 { place } else { (self.gone + place) % entries };
        let live = match (entries, place) {
            (0, 0) => left,
            (0, _) => return None,
            (_, 0) => (entries - within).min(left),
            _ if within > 0 => return None,
            _ => entries.min(left),
        };
        Some((limit, live))
    }

    /// Tells whether a trim that has removed so many entries goes on with the one at this place.
    fn goes_on(self, place: u64, removed: u64) -> bool {
        self.node_at(place).is_none_or(|(limit, live)| removed + live <= limit)
    }

    /// Returns how many of the `removable` first entries go, where none of them stays.
    fn within_limit(self, removable: u64) -> u64 {
        let mut removed = 0;
        while removed < removable && self.goes_on(removed, removed) {
            let live = self.node_at(removed).map_or(removable, |(_, live)| live);
            removed += live.min(removable - removed);
        }
        removed
    }
}

impl Stream {
    /// Removes the entries that are too old, with what refers to them or as far as nothing does, and returns how many
    /// they were. One call removes no more than one transaction can note.
    pub(super) fn trim_by(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, trim: Trim) -> Result<u64> {
        let groups = self.group_list(txn)?;
        let counted = Counted::of(self, trim.nodes);
        let is_free = match trim.policy {
            Policy::Acked => groups.is_empty(),
            Policy::KeepRef | Policy::DelRef => groups.iter().all(|(_, group)| group.pending == 0),
        };
        if is_free {
            let removed = counted.within_limit(self.removable(txn, trim)?);
            if removed > 0 {
                self.remove_first(txn, key, removed)?;
            }
            return Ok(removed);
        }
        let mut references = References::of(self, &groups);
        let removed = self.trim_each(txn, trim, counted, &mut references)?;
        references.save(txn, key)?;
        let first_is_gone = removed > 0 && !self.has(txn, self.head.first)?;
        self.head.count -= removed;
        self.update_first(txn, first_is_gone)?;
        Ok(removed)
    }

    /// Removes the rows of entries that are too old, one by one; returns how many they were.
    fn trim_each(
        &self,
        txn: &mut Txn<'_>,
        trim: Trim,
        counted: Counted,
        references: &mut References<'_>,
    ) -> Result<u64> {
        let lengths = match trim.bound {
            Bound::Length(length) => length,
            Bound::Id(_) => 0,
        };
        // Under the policy `Acked` an entry stays that a group has not read, and so do all behind it.
        let read = references.read_by_all().filter(|_| trim.policy == Policy::Acked);
        let until = match trim.bound {
            Bound::Length(_) => Some(StreamId::MAX),
            Bound::Id(id) => id.previous(),
        };
        let Some(until) = until.map(|until| read.map_or(until, |read| until.min(read))) else { return Ok(0) };
        let notable = (txn.bytes_max() / 2 / (REMOVAL_BYTES * (1 + 2 * references.len() as u64))).max(1);
        let (mut place, mut removed, mut next) = (0, 0, Some(StreamId::MIN));
        while let Some(from) = next {
            let excess = (counted.count - removed).saturating_sub(lengths);
            let want = excess.clamp(1, STEP_ROWS as u64) as usize;
            let mut ids = Vec::with_capacity(want);
            self.visit_ids(txn, from..=until, Direction::Forward, want, |id| {
                ids.push(id);
                if ids.len() < want { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            next = ids.last().filter(|_| ids.len() == want).and_then(|last| last.next());
            for id in ids {
                if counted.count - removed <= lengths || removed == notable || !counted.goes_on(place, removed) {
                    return Ok(removed);
                }
                place += 1;
                if place.saturating_mul(1 + references.len() as u64) > ROWS_INLINE_MAX as u64 {
                    txn.long()?;
                }
                if trim.policy == Policy::DelRef {
                    references.release(txn, id)?;
                } else if references.refer_to(txn, id)? {
                    continue;
                }
                txn.delete_row(&self.rows().data(&element_of(id)))?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_looked_at_where_a_node_begins() {
        let removed = |entries, limit, (gone, count), removable| {
            let counted = Counted { gone, count, nodes: Some(Nodes { entries, limit }) };
            counted.within_limit(removable)
        };
        assert_eq!(removed(100, 0, (0, 250), 150), 150, "no limit");
        assert_eq!(removed(100, 100, (0, 250), 50), 50, "a part of a node");
        assert_eq!(removed(100, 99, (0, 250), 50), 0, "the whole node counts");
        assert_eq!(removed(100, 199, (0, 250), 150), 100);
        assert_eq!(removed(100, 200, (0, 250), 150), 150);
        assert_eq!(removed(100, 70, (30, 220), 70), 70, "thirty of the first node went before");
        assert_eq!(removed(100, 69, (30, 220), 70), 0);
        assert_eq!(removed(100, 250, (0, 250), 250), 250, "the last node is short");
        assert_eq!(removed(0, 249, (0, 250), 10), 0, "all is one node");
        assert_eq!(removed(0, 250, (0, 250), 10), 10);
    }
}
