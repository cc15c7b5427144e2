//! Intents. Rows that are written ahead of their transaction's commit are garbage if the commit never comes. So an
//! intent goes with the first of them: a system row that names the object, and that the commit deletes. If the
//! transaction ended otherwise, or died with its process, a record deletes the object's owner, which never existed, and
//! the intent with it: reclaiming finds each object whose owner is deleted.

use crate::reclaim::Orphan;
use crate::row::{self, ObjectId, RowKey, Slot, Space, SystemScope, system_row};
use crate::stop::Mode;
use crate::store::Store;

const NAME: &[u8] = b"ahead/";

/// Objects whose intents one record ends.
const BATCH: usize = 1000;

/// Returns the row of an intent: `ahead/` and the object's id as u64 BE.
pub fn intent_row(id: ObjectId) -> RowKey {
    system_row(SystemScope::Replicated, &[NAME, &id.0.to_be_bytes()].concat())
}

/// Returns the value of an intent, which says where the object's rows are: the space as u32 BE, the slot as u16 BE.
pub(crate) fn intent_value(object: &Orphan) -> [u8; 6] {
    let mut value = [0; 6];
    value[..4].copy_from_slice(&object.space.0.to_be_bytes());
    value[4..].copy_from_slice(&object.slot.0.to_be_bytes());
    value
}

/// Returns the object that an intent names; without the row's value, only its id counts.
fn parse(row: &[u8], value: Option<&[u8]>) -> Option<Orphan> {
    let id = row.get(2..)?.strip_prefix(NAME)?.try_into().map(u64::from_be_bytes).ok()?;
    let (space, slot) = value.unwrap_or(&[0; 6]).split_first_chunk::<4>()?;
    let slot = slot.try_into().map(u16::from_be_bytes).ok()?;
    Some(Orphan { space: Space(u32::from_be_bytes(*space)), slot: Slot(slot), id: ObjectId(id) })
}

impl Store {
    /// Notes an intent, or its end, as the base and the log are read at open.
    pub(crate) fn on_intent(&self, row: &[u8], value: Option<&[u8]>) {
        if let Some(object) = parse(row, value) {
            let mut orphans = self.orphans.lock();
            orphans.retain(|other| other.id != object.id);
            orphans.extend(value.map(|_| object));
        }
    }

    /// Deletes the owners, though there are none, of objects whose transactions have ended without a commit: for the
    /// flush thread. Objects for which the log takes no record now wait for the next turn.
    pub(crate) fn disown_orphans(&self) {
        let orphans: Vec<Orphan> = {
            let mut orphans = self.orphans.lock();
            let count = orphans.len().min(BATCH);
            orphans.drain(..count).collect()
        };
        if orphans.is_empty() {
            return;
        }
        let rows = orphans.iter().flat_map(|object| {
            [row::owner_row(object.space, object.slot, object.id).to_vec(), intent_row(object.id).to_vec()]
        });
        let rows: Vec<Vec<u8>> = rows.collect();
        let deletes: Vec<(&[u8], Option<&[u8]>)> = rows.iter().map(|row| (&row[..], None)).collect();
        match self.put_system(&deletes, Mode::Memory) {
            Ok(()) => drop(self.log.write()),
            Err(_) => self.orphans.lock().extend(orphans),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intent_reads_back() {
        let object = Orphan { space: Space(70_000), slot: Slot(513), id: ObjectId(9) };
        assert_eq!(parse(&intent_row(object.id), Some(&intent_value(&object))), Some(object));
        assert_eq!(parse(&intent_row(object.id), None).map(|gone| gone.id), Some(object.id));
        assert_eq!(parse(&crate::store::hash_seed_row(), Some(&[0; 8])), None);
    }
}
