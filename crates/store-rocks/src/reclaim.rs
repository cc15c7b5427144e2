//! The compaction filter: drops rows that nothing can reach any more, and keeps every row of which it is not sure.
//!
//! A row is dropped in two cases only:
//! - The row lies in a *dead space*. Spaces are never used twice, so that a dead one stays dead.
//! - The row is an element (`data`, `score`) of an object whose id is below `Reclaim::objects_below`, and a *successful
//!   read* of the object's owner row, at latest, says that there is none. Below that id every object is wholly in the
//!   base, its owner included, and ids are never issued twice: an object without owner will never have one.
//!
//! Why that never takes a live row: `Reclaim` is copied when a compaction begins, before any owner is read; a live
//! object below the copied mark has had its owner row in the base since then, and flushes are atomic, so that each
//! later read finds it. Everything else keeps: an error, the cache of this run saying "alive" of an object that died
//! meanwhile, a compaction inside `DB::Open` (no handle yet), and one during `close` (the handle is gone).

use crate::handle::Open;
use haypile_store::base::Reclaim;
use haypile_store::row::{Family, ObjectId, Slot, Space, home_slot, object_of, owner_row, space_of};
use parking_lot::RwLock;
use rust_rocksdb::compaction_filter::CompactionFilter;
use rust_rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use rust_rocksdb::{CompactionDecision, ReadOptions};
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The state of the filter, shared between the base and all running compactions.
#[derive(Default)]
pub(crate) struct Reclaimer {
    reclaim: RwLock<Arc<Reclaim>>,
    /// The database for owner reads: set after open, taken before close. A reader holds the latch while it reads and
    /// never keeps the `Arc`, so that the last one is never dropped, and the database never closed, by a compaction.
    owners: RwLock<Option<Arc<Open>>>,
    pub(crate) dropped_rows: AtomicU64,
    pub(crate) owner_reads: AtomicU64,
}

impl Reclaimer {
    pub(crate) fn set_reclaim(&self, mut reclaim: Reclaim) {
        reclaim.dead_spaces.sort_unstable();
        *self.reclaim.write() = Arc::new(reclaim);
    }

    pub(crate) fn reclaim(&self) -> Arc<Reclaim> {
        self.reclaim.read().clone()
    }

    pub(crate) fn open(&self, open: Arc<Open>) {
        *self.owners.write() = Some(open);
    }

    /// Waits for owner reads that run; later ones find no database and keep their rows.
    pub(crate) fn close(&self) {
        *self.owners.write() = None;
    }

    /// Tells whether the base certainly holds no owner of the object.
    fn is_ownerless(&self, owner: &[u8], options: &ReadOptions) -> bool {
        self.owner_reads.fetch_add(1, Ordering::Relaxed);
        match &*self.owners.read() {
            Some(open) => matches!(open.db.get_pinned_opt(owner, options), Ok(None)),
            None => false,
        }
    }
}

const NAME: &CStr = c"haypile.reclaim";

/// Makes a filter for each compaction. RocksDB calls it from several threads at once, hence only shared state.
pub(crate) struct ReclaimFactory(pub(crate) Arc<Reclaimer>);

impl CompactionFilterFactory for ReclaimFactory {
    type Filter = ReclaimFilter;

    fn create(&mut self, _: CompactionFilterContext) -> ReclaimFilter {
        ReclaimFilter::new(self.0.clone())
    }

    fn name(&self) -> &CStr {
        NAME
    }
}

/// The filter of one compaction, used by one thread.
pub(crate) struct ReclaimFilter {
    shared: Arc<Reclaimer>,
    /// `Reclaim` as it was when this compaction began; never newer than an owner read.
    reclaim: Arc<Reclaim>,
    options: ReadOptions,
    /// The last object that was asked for, and the answer: rows of an object follow each other.
    last_object: Option<(Space, Slot, ObjectId, bool)>,
    /// The last space that was looked up, and whether it is dead.
    last_space: Option<(Space, bool)>,
    dropped_rows: u64,
}

impl ReclaimFilter {
    pub(crate) fn new(shared: Arc<Reclaimer>) -> Self {
        let reclaim = shared.reclaim();
        ReclaimFilter {
            shared,
            reclaim,
            options: ReadOptions::default(),
            last_object: None,
            last_space: None,
            dropped_rows: 0,
        }
    }

    /// Tells whether the row may be dropped.
    pub(crate) fn is_dead(&mut self, row: &[u8]) -> bool {
        let Some(space) = space_of(row) else { return false };
        if self.is_dead_space(space) {
            return true;
        }
        if !matches!(Family::of(row), Some(Family::Data | Family::Score)) {
            return false;
        }
        let (Some(slot), Some(id)) = (home_slot(row), object_of(row)) else { return false };
        if !self.reclaim.covers(id) {
            return false;
        }
        match self.last_object {
            Some((s, l, i, dead)) if (s, l, i) == (space, slot, id) => dead,
            _ => {
                let dead = self.shared.is_ownerless(&owner_row(space, slot, id), &self.options);
                self.last_object = Some((space, slot, id, dead));
                dead
            }
        }
    }

    fn is_dead_space(&mut self, space: Space) -> bool {
        if self.reclaim.dead_spaces.is_empty() {
            return false;
        }
        match self.last_space {
            Some((last, dead)) if last == space => dead,
            _ => {
                let dead = self.reclaim.dead_spaces.binary_search(&space).is_ok();
                self.last_space = Some((space, dead));
                dead
            }
        }
    }
}

impl CompactionFilter for ReclaimFilter {
    fn filter(&mut self, _level: u32, row: &[u8], _value: &[u8]) -> CompactionDecision {
        if self.is_dead(row) {
            self.dropped_rows += 1;
            CompactionDecision::Remove
        } else {
            CompactionDecision::Keep
        }
    }

    fn name(&self) -> &CStr {
        NAME
    }
}

impl Drop for ReclaimFilter {
    fn drop(&mut self) {
        self.shared.dropped_rows.fetch_add(self.dropped_rows, Ordering::Relaxed);
    }
}

/// Returns the parts of `from..until` in which every possible row lies in a dead space, as `(first, last)`, both
/// included. An upper end that is no row key (a bare prefix) may stand in for an excluded one.
pub(crate) fn dead_ranges(reclaim: &Reclaim, from: &[u8], until: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let families = [Family::Meta, Family::Data, Family::Score, Family::Owner, Family::Expire];
    let mut ranges = Vec::new();
    for family in families {
        for space in &reclaim.dead_spaces {
            let first = prefix(family as u8, space.0);
            // No row is as short as a prefix of family and space, so that the next space's prefix bounds this one.
            let end = match space.0.checked_add(1) {
                Some(next) => prefix(family as u8, next),
                None => vec![family as u8 + 1],
            };
            let (first, end) = (first.as_slice().max(from), end.as_slice().min(until));
            if first < end {
                ranges.push((first.to_vec(), end.to_vec()));
            }
        }
    }
    ranges
}

fn prefix(family: u8, space: u32) -> Vec<u8> {
    let mut prefix = vec![family];
    prefix.extend_from_slice(&space.to_be_bytes());
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::Handle;
    use haypile_store::row::{Key, SystemScope};
    use haypile_store::row::{data_row, meta_row, system_row};
    use rust_rocksdb::{DB, ReadTier};

    const SPACE: Space = Space(3);
    const SLOT: Slot = Slot(4);

    fn reclaimer(objects_below: u64, dead_spaces: &[Space]) -> Arc<Reclaimer> {
        let reclaimer = Arc::new(Reclaimer::default());
        reclaimer.set_reclaim(Reclaim { objects_below, dead_spaces: dead_spaces.to_vec() });
        reclaimer
    }

    fn element(id: u64) -> Vec<u8> {
        data_row(SPACE, SLOT, ObjectId(id), b"element").to_vec()
    }

    /// Runs a test on a database in which object 1 has an owner and object 2 has none.
    fn with_database(test: impl FnOnce(DB, std::path::PathBuf)) {
        let path = std::env::temp_dir().join(format!("haypile-filter-{}-{:p}", std::process::id(), &test));
        let mut options = rust_rocksdb::Options::default();
        options.create_if_missing(true);
        let db = DB::open(&options, &path).expect("a database");
        db.put(owner_row(SPACE, SLOT, ObjectId(1)), b"k").expect("a write");
        test(db, path.clone());
        std::fs::remove_dir_all(path).expect("the directory goes");
    }

    #[test]
    fn without_a_database_everything_stays() {
        let reclaimer = reclaimer(u64::MAX, &[]);
        let mut filter = ReclaimFilter::new(reclaimer);
        assert!(!filter.is_dead(&element(1)));
        assert!(!filter.is_dead(&element(2)));
    }

    #[test]
    fn an_element_goes_only_when_its_owner_is_read_as_absent() {
        with_database(|db, _| {
            let reclaimer = reclaimer(3, &[]);
            let (_handle, open) = Handle::new(db);
            reclaimer.open(open);
            let mut filter = ReclaimFilter::new(reclaimer.clone());
            assert!(!filter.is_dead(&element(1)), "it has an owner");
            assert!(filter.is_dead(&element(2)), "it has none");
            assert!(filter.is_dead(&element(2)));
            assert_eq!(reclaimer.owner_reads.load(Ordering::Relaxed), 2, "asked once per object");
            assert!(!filter.is_dead(&element(3)), "it may not be wholly in the base");
            reclaimer.close();
            assert!(!ReclaimFilter::new(reclaimer).is_dead(&element(2)), "the base closes");
        });
    }

    #[test]
    fn a_read_that_fails_keeps() {
        with_database(|db, path| {
            db.flush().expect("a flush");
            drop(db);
            let db = DB::open_default(path).expect("the database, nothing of it in memory");
            let reclaimer = reclaimer(3, &[]);
            let (_handle, open) = Handle::new(db);
            reclaimer.open(open);
            let mut filter = ReclaimFilter::new(reclaimer);
            // The owner's block is not in the cache: the read fails, as with a failing disk.
            filter.options.set_read_tier(ReadTier::BlockCache);
            assert!(!filter.is_dead(&element(1)));
            filter.options.set_read_tier(ReadTier::All);
            filter.last_object = None;
            assert!(filter.is_dead(&element(2)));
        });
    }

    #[test]
    fn a_compaction_goes_by_what_was_known_when_it_began() {
        with_database(|db, _| {
            let reclaimer = reclaimer(0, &[]);
            let (_handle, open) = Handle::new(db);
            reclaimer.open(open);
            let mut before = ReclaimFilter::new(reclaimer.clone());
            reclaimer.set_reclaim(Reclaim { objects_below: 3, dead_spaces: vec![SPACE] });
            assert!(!before.is_dead(&element(2)));
            assert!(ReclaimFilter::new(reclaimer).is_dead(&element(2)));
        });
    }

    #[test]
    fn dead_spaces_go_whole_and_nothing_else() {
        let mut filter = ReclaimFilter::new(reclaimer(0, &[Space(9), SPACE]));
        let meta = |space| meta_row(&Key { space, slot: SLOT, hash: 1, name: b"k" });
        assert!(filter.is_dead(&meta(SPACE)));
        assert!(filter.is_dead(&element(1)));
        assert!(filter.is_dead(&owner_row(Space(9), SLOT, ObjectId(1))));
        assert!(!filter.is_dead(&meta(Space(4))));
        assert!(!filter.is_dead(&system_row(SystemScope::Local, &SPACE.0.to_be_bytes())));
        for short in [&b""[..], b"\x01", b"\x02\0\0\0", b"\xff\0\0\0\x03\0\0"] {
            assert!(!filter.is_dead(short), "what cannot be understood stays");
        }
    }

    #[test]
    fn dead_ranges_hold_dead_rows_only() {
        let reclaim = Reclaim { objects_below: 0, dead_spaces: vec![Space(7), Space(u32::MAX)] };
        let whole = dead_ranges(&reclaim, b"", b"\xff");
        assert_eq!(whole.len(), 10);
        assert_eq!(whole[0], (vec![1, 0, 0, 0, 7], vec![1, 0, 0, 0, 8]));
        assert_eq!(whole[1], (vec![1, 255, 255, 255, 255], vec![2]));
        // Cut to what was asked for; `until` itself then lies in the dead space too.
        let part = dead_ranges(&reclaim, &[1, 0, 0, 0, 7, 0, 9], &[1, 0, 0, 0, 7, 5]);
        assert_eq!(part, [(vec![1, 0, 0, 0, 7, 0, 9], vec![1, 0, 0, 0, 7, 5])]);
        assert_eq!(dead_ranges(&reclaim, &[1, 0, 0, 0, 8], &[1, 0, 0, 0, 9]), []);
    }
}
