//! The removal of dead rows in `engine memory`, which has no base whose compaction would drop them.
//!
//! Deleted rows leave the tables at once. Rows of objects that lost their owner, and of spaces that are no database any
//! more, are taken out here, by the flush thread, which has nothing else to do then: in steps, so that no latch is held
//! long.

use crate::databases::dead_row;
use crate::memtable::{ObjectKey, SHARDS, shard_of, shard_of_row};
use crate::reclaim::Orphan;
use crate::row::{Family, SLOTS, Slot, Space};
use crate::store::Store;

/// Rows that are taken out while a latch is held: some tens of microseconds.
const STEP_ROWS: usize = 256;

impl Store {
    /// Notes objects that have no owner any more, or never will have one.
    pub(crate) fn on_orphans(&self, orphans: impl IntoIterator<Item = Orphan>) {
        self.orphans.lock().extend(orphans);
    }

    pub(crate) fn tidy_memory(&self) {
        self.log.purge(self.log.last());
        let orphans = std::mem::take(&mut *self.orphans.lock());
        for orphan in orphans {
            for family in [Family::Data, Family::Score] {
                self.take_object(ObjectKey::new(family, orphan.space, orphan.slot, orphan.id));
            }
        }
        for space in self.databases.dead() {
            for slot in (0..SLOTS as u16).map(Slot) {
                let mut latch = self.memtable.latch(shard_of(slot));
                let (gone, bytes) = latch.active.take_keys(space, slot);
                self.memtable.account(-bytes);
                drop(latch);
                drop(gone);
            }
            for shard in 0..SHARDS {
                let objects: Vec<ObjectKey> = self.memtable.latch(shard).active.objects.of_space(space).collect();
                objects.into_iter().for_each(|object| self.take_object(object));
                self.take_deadlines(shard, space);
            }
            let row = dead_row(space);
            let mut latch = self.memtable.latch(shard_of_row(&row));
            let grown = latch.put(&row, None, self.log.last(), self.access_policy.fresh(0));
            self.memtable.account(grown);
            drop(latch);
            self.databases.forget_dead(space);
        }
    }

    fn take_object(&self, object: ObjectKey) {
        loop {
            let mut latch = self.memtable.latch(shard_of(object.slot()));
            let (gone, bytes) = latch.active.objects.take(object, STEP_ROWS);
            self.memtable.account(-bytes);
            drop(latch);
            if gone.len() < STEP_ROWS {
                return;
            }
        }
    }

    fn take_deadlines(&self, shard: usize, space: Space) {
        loop {
            let mut latch = self.memtable.latch(shard);
            let (gone, bytes) = latch.active.take_deadlines(space, STEP_ROWS);
            self.memtable.account(-bytes);
            drop(latch);
            if gone.len() < STEP_ROWS {
                return;
            }
        }
    }
}
