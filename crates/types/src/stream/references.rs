//! References of groups to the entries of a stream, as far as the removal of entries has to do with them. A group
//! refers to an entry that it has not read yet, and to one that is pending. Owns what XDELEX, XACKDEL and trims do
//! about that; the rows of pending entries belong to `pending`.

use super::group::Group;
use super::pending::Edit;
use super::{GroupState, Stream, StreamId};
use crate::Result;
use crate::element::ROWS_INLINE_MAX;
use haypile_store::{Key, Txn};

/// The treatment of references to an entry that is to be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// References stay: what is pending need not be an entry any more.
    #[default]
    KeepRef,
    /// An entry that is removed is pending for no group any more.
    DelRef,
    /// An entry that a group refers to stays.
    Acked,
}

/// The outcome of the removal of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The stream has no such entry, or none that was pending where only such ones are asked for.
    Missing,
    Removed,
    /// A group still refers to the entry.
    Kept,
}

/// The groups of a stream, each with its name.
pub type GroupList = Vec<(Vec<u8>, GroupState)>;

/// The groups that may refer to entries.
pub(super) struct References<'n> {
    groups: Vec<Referring<'n>>,
    /// The last entry that all groups have read; none where there is no group.
    read_by_all: Option<StreamId>,
}

struct Referring<'n> {
    edit: Edit<'n>,
    is_changed: bool,
}

impl<'n> References<'n> {
    pub fn of(stream: &Stream, groups: &'n GroupList) -> References<'n> {
        let edits = groups.iter().map(|(name, state)| Edit::of(stream.group(name, *state)));
        References {
            read_by_all: groups.iter().map(|(_, state)| state.last).min(),
            groups: edits.map(|edit| Referring { edit, is_changed: false }).collect(),
        }
    }

    /// Returns the last entry that may go without being missed; none where no group misses any.
    pub fn read_by_all(&self) -> Option<StreamId> {
        self.read_by_all
    }

    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Tells whether a group refers to an entry, which need not exist.
    pub fn refer_to(&self, txn: &mut Txn<'_>, id: StreamId) -> Result<bool> {
        if self.read_by_all.is_some_and(|read| id > read) {
            return Ok(true);
        }
        for Referring { edit, .. } in &self.groups {
            if edit.pending(txn, id)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Has an entry pending for no group any more.
    pub fn release(&mut self, txn: &mut Txn<'_>, id: StreamId) -> Result<()> {
        for at in 0..self.groups.len() {
            self.release_from(txn, at, id)?;
        }
        Ok(())
    }

    /// Has an entry not pending for one group any more; tells whether it was.
    fn release_from(&mut self, txn: &mut Txn<'_>, at: usize, id: StreamId) -> Result<bool> {
        let Referring { edit, is_changed } = &mut self.groups[at];
        let Some(held) = edit.pending(txn, id)? else { return Ok(false) };
        edit.release(txn, id, &held)?;
        *is_changed = true;
        Ok(true)
    }

    /// Writes the rows of the groups that have changed.
    pub fn save(self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        for Referring { edit, is_changed } in self.groups {
            if is_changed {
                edit.save(txn, key)?;
            }
        }
        Ok(())
    }
}

impl Stream {
    /// Returns all groups, in the order of their names' bytes.
    pub fn group_list(&self, txn: &mut Txn<'_>) -> Result<GroupList> {
        if self.groups(txn)? as usize > ROWS_INLINE_MAX {
            txn.long()?;
        }
        let mut groups = Vec::new();
        self.visit_groups(txn, |name, state| groups.push((name.to_vec(), state)))?;
        Ok(groups)
    }

    /// Removes entries one by one, each as the ones before have left the groups. If the stream has fewer entries then,
    /// it is to be saved.
    pub fn remove_by(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        ids: &[StreamId],
        policy: Policy,
    ) -> Result<Vec<Outcome>> {
        let groups = if policy == Policy::KeepRef { GroupList::new() } else { self.group_list(txn)? };
        let references = References::of(self, &groups);
        self.remove_each(txn, key, ids, policy, references, None)
    }

    /// Acknowledges entries for a group and removes those that were pending for it, as `remove_by` does.
    pub fn acknowledge_and_remove(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        group: &Group<'_>,
        ids: &[StreamId],
        policy: Policy,
    ) -> Result<Vec<Outcome>> {
        let groups = match policy {
            Policy::KeepRef => vec![(group.name.to_vec(), group.state)],
            Policy::DelRef | Policy::Acked => self.group_list(txn)?,
        };
        let own = groups.iter().position(|(name, _)| name == group.name);
        let references = References::of(self, &groups);
        self.remove_each(txn, key, ids, policy, references, own)
    }

    /// Removes entries; with `own`, the place of a group, only those that were pending for it.
    fn remove_each(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        ids: &[StreamId],
        policy: Policy,
        mut references: References<'_>,
        own: Option<usize>,
    ) -> Result<Vec<Outcome>> {
        if ids.len().saturating_mul(1 + references.len()) > ROWS_INLINE_MAX {
            txn.long()?;
        }
        let (mut outcomes, mut first_is_gone) = (Vec::with_capacity(ids.len()), false);
        for id in ids {
            if let Some(own) = own
                && !references.release_from(txn, own, *id)?
            {
                outcomes.push(Outcome::Missing);
                continue;
            }
            match policy {
                Policy::KeepRef => {}
                Policy::DelRef => references.release(txn, *id)?,
                Policy::Acked if references.refer_to(txn, *id)? => {
                    outcomes.push(Outcome::Kept);
                    continue;
                }
                Policy::Acked => {}
            }
            let was_there = self.remove_one(txn, *id)?;
            first_is_gone |= was_there && *id == self.head.first;
            outcomes.push(if was_there || own.is_some() { Outcome::Removed } else { Outcome::Missing });
        }
        references.save(txn, key)?;
        self.update_first(txn, first_is_gone)?;
        Ok(outcomes)
    }
}
