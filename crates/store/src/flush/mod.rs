//! The flush: from a full memtable to rows in the base, in the order that loses nothing.
//!
//! Freeze at an index F; sync the log through F; ingest all rows with the applied index and the counters among them in
//! one atomic step; bring the row cache and the presence set up to date; let go of the log's segments. The generation
//! is unlinked right before the next freeze: until then its room is free, and reads find its rows. The flush has a
//! thread of its own. A failure leaves the frozen generation where it is and tries again.

mod control;
pub(crate) mod dead_rows;
mod disk;
mod frozen;
mod noted;
mod pressure;
pub(crate) mod sorted;
mod tidy;

pub(crate) use control::FlushControl;
pub(crate) use frozen::{Frozen, encode_applied};

pub use frozen::applied_row;
pub use pressure::WritePressure;

use crate::access::Touch;
use crate::base::{BaseError, Pressure, Reclaim};
use crate::memtable::{Found, Table};
use crate::objects::settled_row;
use crate::role::Role;
use crate::row::{Space, parse_meta_row};
use crate::stop::Mode;
use crate::store::Store;
use control::Work;
use haypile_log::Index;
use noted::Noted;
use sorted::{OwnRows, SortedRows};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Most files of the base at level 0, through each of which every read goes, before a flush waits: twice as many as
/// those with which compaction begins.
const LEVEL0_FILES_MAX: u64 = 32;

/// Files at level 0 from which flushes are paced: with so many compaction begins.
const LEVEL0_FILES_PACED: u64 = LEVEL0_FILES_MAX / 2;

/// Most bytes by which compaction may be behind before a flush waits, a fraction of RocksDB's own bound: the disk must
/// have room for them twice.
const PENDING_COMPACTION_BYTES_MAX: u64 = 16 << 30;

/// The longest wait of a flush for the base, whatever the base says: writers wait for the flush behind a full memtable.
const BASE_WAIT_MAX: Duration = Duration::from_secs(10);

/// How often a waiting flush looks whether the base has caught up.
const BASE_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The longest wait of a flush for a consensus group to agree on its records. Then it fails, and is tried again.
const GROUP_WAIT_MAX: Duration = Duration::from_secs(5);

/// How often a waiting flush looks whether the group has agreed.
const GROUP_LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The time between two flushes that only show the base which rows are dead.
const DEAD_INTERVAL: Duration = Duration::from_secs(2);

impl Store {
    /// Runs the flush thread until `close`.
    pub(crate) fn run_flushes(&self) {
        let mut has_failed = false;
        let mut busy = false;
        loop {
            let work = self.flush.wait_for_work(has_failed);
            let result = if work.abandoned { Ok(()) } else { self.do_work(&work) };
            has_failed = result.is_err();
            self.flush.on_turn(&work, result);
            if work.closing {
                return;
            }
            let was_busy = std::mem::replace(&mut busy, self.flush.is_busy());
            if busy != was_busy {
                self.base.set_busy(busy);
                self.reclaimer.set_flushing(busy);
            }
        }
    }

    /// Makes one turn: a flush where one is due, and a look at the disk.
    fn do_work(&self, work: &Work) -> Result<(), String> {
        if self.options.memory_only {
            self.tidy_memory();
            self.look_at_the_disk(None);
            return Ok(());
        }
        if self.base.is_read_only() {
            return Ok(());
        }
        if self.role.get() == Role::Leading {
            self.disown_orphans();
        }
        let held_over = self.frozen.lock().is_some();
        let whole = work.is_forced || work.closing;
        let makes_room = self.flush.makes_room();
        let due = whole || held_over || self.flush_is_due() || makes_room || self.flush_gives_room();
        let mut result = if due { self.flush_once(!whole && !makes_room) } else { Ok(()) };
        if result.is_ok() && whole && held_over {
            // The first flush was of a generation held over from a failure; the request is for the one after it.
            result = self.flush_once(false);
        }
        if !work.closing && (whole || self.memtable.flushed_bytes() > self.flush.memtable_bytes() / 4 * 5) {
            // A generation is frozen as soon as it is larger than its size, hence a little later; only a far larger one
            // has to go. A caller that asks for everything in the base means to read it there; and CONFIG SET may have
            // lowered the budget.
            self.let_go_of_flushed();
        }
        if let Err(error) = &result {
            tracing::warn!("a flush failed and will be tried again: {error}");
        }
        self.look_at_the_disk(result.as_ref().err());
        result
    }

    fn flush_is_due(&self) -> bool {
        // Segments count as a whole, and the last one always does.
        let logged = self.log.stats().since_applied_bytes;
        let logged_max = self.flush.log_bytes().max(2 * self.options.log.segment_bytes);
        self.memtable.active_bytes() > self.flush.memtable_bytes() || logged > logged_max
    }

    /// Returns whether the base has so many dead bytes that a flush which tells it so is worth its cost.
    fn flush_gives_room(&self) -> bool {
        if self.flush.last_freeze().is_some_and(|frozen| frozen.elapsed() < DEAD_INTERVAL) {
            return false;
        }
        self.dead_rows.is_worth_a_flush(|orphan| self.orphan_bytes(orphan), |space| self.space_bytes(space))
    }

    /// Returns the error of the last flush, if it failed: after `close`, the log has to bring back the rows at the next
    /// start.
    pub fn flush_failure(&self) -> Option<String> {
        self.flush.failure()
    }

    /// Brings everything up to now into the base. Blocks; an error says why this attempt failed; the thread goes on
    /// trying.
    pub fn flush_now(&self) -> Result<(), String> {
        self.flush.flush_now()
    }

    /// Ends the flush thread after a last flush, or without it.
    pub(crate) fn stop_flushes(&self, last_flush: bool) {
        self.flush.stop(last_flush);
    }

    /// Waits until compaction has caught up: the base itself does not slow ingestion. A flush that nobody waits for is
    /// `paced` before that, so that writers are slowed evenly instead of stopped in the end.
    fn wait_for_base(&self, is_paced: bool) {
        let started = Instant::now();
        let is_early = || {
            let pressure = self.base.pressure();
            pressure.level0_files > LEVEL0_FILES_MAX
                || pressure.pending_compaction_bytes > PENDING_COMPACTION_BYTES_MAX
                || is_paced && self.may_pace() && self.flush.since_flush() < interval(&pressure)
        };
        while is_early() && started.elapsed() < BASE_WAIT_MAX {
            if self.flush.is_closing_within(BASE_LOOK_INTERVAL) {
                break;
            }
        }
        self.flush.on_waited(started.elapsed());
    }

    /// Returns whether a flush may wait only for the pace of compactions: nobody waits for it, and writers, who are
    /// slowed meanwhile, are not near to be refused.
    fn may_pace(&self) -> bool {
        !self.flush.is_demanded()
            && !self.flush.makes_room()
            && self.memtable.active_bytes() <= self.flush.memtable_bytes() / 4 * 5
    }

    /// Waits until the consensus group that this store is in has agreed on a record.
    ///
    /// # Errors
    /// A text for people: it has not yet.
    fn wait_for_group(&self, needed: Index) -> Result<(), String> {
        let started = Instant::now();
        while self.options.in_group && self.log.confirmed() < needed {
            if started.elapsed() > GROUP_WAIT_MAX || self.flush.is_closing_within(GROUP_LOOK_INTERVAL) {
                return Err(format!("the group has not agreed on record {needed} yet"));
            }
        }
        Ok(())
    }

    /// Lets go of the log's segments that the base no longer needs. In a consensus group the segment with the base's
    /// last record stays: it says of which entry that is. So the log never makes up for a member's lost last segment,
    /// though the base has all of it: a start that does not know that entry would vote for any candidate.
    pub(crate) fn purge_log(&self, applied: Index) {
        let spare = u64::from(self.options.in_group);
        self.log.purge(Index(applied.0.saturating_sub(spare)));
    }

    /// Flushes one generation: the frozen one, or else the active one; at the pace of compactions, if `is_paced`.
    fn flush_once(&self, is_paced: bool) -> Result<(), String> {
        let started = Instant::now();
        if let Some(error) = self.base.background_error() {
            match self.base.resume() {
                // A compaction may wait for room that only this flush can bring: the flush takes what is there.
                Ok(()) | Err(BaseError::Full(_)) => {}
                Err(again) => return Err(format!("{error}; after another attempt: {again}")),
            }
        }
        let frozen = self.frozen_or_freeze();
        let Some(frozen) = frozen else { return Ok(()) };
        self.bound_active(self.disk_free());
        // A flush that failed for want of room leaves out the rows that have died since. The record that says so has to
        // outlive the rows that are left out.
        let mut dead = self.databases.dead();
        dead.extend(&frozen.dead);
        dead.sort_unstable();
        dead.dedup();
        let needed = if dead == frozen.dead { frozen.index } else { self.log.last() };
        self.log.sync_through(needed).map_err(|error| error.to_string())?;
        self.wait_for_group(needed)?;
        self.wait_for_base(is_paced);
        // The history is the record's, not this run's: while the log is replayed these may differ.
        let history = self.log.history_of(frozen.index);
        let history = history.ok_or_else(|| format!("record {} is not in the log any more", frozen.index))?;
        let own = frozen.own_rows(history, &dead);
        assert!(
            frozen.index <= needed && needed <= self.log.synced(),
            "what the base takes is on the disk as records: {}, {}",
            frozen.index,
            self.log.synced()
        );
        assert!(!self.options.in_group || needed <= self.log.confirmed(), "what the base takes is never taken back");
        let mut rows = Noted::new(SortedRows::new(&frozen.tables, &dead, &own), &self.presence, self.options.plain);
        self.base.ingest(&mut rows).map_err(|error: BaseError| error.to_string())?;
        let Noted { count, orphans, .. } = rows;
        self.on_ingested(&frozen);
        self.memtable.keep_flushed();
        *self.frozen.lock() = None;
        assert!(
            frozen.objects_below <= self.objects.ended_below(),
            "the base never drops rows of an object that is not decided"
        );
        // A member of a group that has records still to apply knows spaces as dead before the record that says so.
        let is_database = |space: &Space| self.databases.database_of(*space).is_some();
        assert!(
            self.role.get() != Role::Leading || !dead.iter().any(is_database),
            "the base never drops the rows of a database: {dead:?}"
        );
        self.base.set_reclaim(Reclaim { objects_below: frozen.objects_below, dead_spaces: dead.clone() });
        // Spaces that have died since are reclaimed after the flush of the generation that says so: that one may hold
        // rows of them. So are those that the base knows as dead while the record that says so has still to come.
        let mut gone = frozen.dead.clone();
        gone.retain(|space| self.databases.database_of(*space).is_none());
        self.on_dead(&gone, &orphans);
        assert_eq!(self.applied.load(Ordering::Acquire), frozen.index.0, "the log keeps what the base lacks");
        self.purge_log(frozen.index);
        self.flush.on_flushed(count, started.elapsed());
        tracing::debug!(rows = count, index = frozen.index.0, ms = started.elapsed().as_millis() as u64, "flushed");
        Ok(())
    }

    /// Unlinks a generation that was flushed from the memtable.
    fn let_go_of_flushed(&self) {
        let held = self.frozen.lock();
        let gone = if held.is_none() { self.unlink_flushed(&held) } else { Vec::new() };
        let age = self.flush.age();
        drop(held);
        self.on_unlinked(gone, age);
    }

    /// Unlinks a generation that was flushed from the memtable, and returns it. The caller holds the lock of `frozen`.
    ///
    /// Invariant: a generation leaves the memtable after the base has taken it and the caches know that.
    fn unlink_flushed(&self, frozen: &Option<Arc<Frozen>>) -> Vec<Arc<Table>> {
        assert!(frozen.is_none(), "a generation is dropped after its ingestion");
        if !self.memtable.has_frozen() {
            return Vec::new();
        }
        // Raised before the rows leave the memtable: a reader that does not find them there any more sees the new
        // bound.
        self.base_ids_end.fetch_max(self.memtable.frozen_ids_end(), Ordering::AcqRel);
        // From here on, a row that was read from the base before may be older than the one that the memtable no longer
        // holds.
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.stretches.clear();
        self.memtable.unlink_frozen()
    }

    fn on_unlinked(&self, gone: Vec<Arc<Table>>, age: Duration) {
        let is_newer = |row: &[u8]| {
            let found = parse_meta_row(row).map(|key| self.memtable.meta(&key, &Touch::Nothing));
            found.is_none_or(|found| found != Found::Unknown)
        };
        let is_dead = |space| self.databases.is_dead(space);
        self.cache.on_unlinked(gone, is_dead, is_newer, crate::now_ms(), age);
    }

    /// Returns the generation of a flush that failed, or the active one frozen now; `None` if there is nothing to
    /// flush.
    fn frozen_or_freeze(&self) -> Option<Arc<Frozen>> {
        let (mut gone, age) = (Vec::new(), self.flush.age());
        let frozen = self.freeze_after(&mut gone);
        // Writers wait for a freeze, but not for what the row cache takes over.
        self.on_unlinked(gone, age);
        frozen
    }

    /// Freezes the active generation, unless a frozen one waits. `gone` gets the flushed generation that the memtable
    /// lets go of before.
    fn freeze_after(&self, gone: &mut Vec<Arc<Table>>) -> Option<Arc<Frozen>> {
        // A record that is being applied in steps is in this generation as a whole, and so is an entry.
        let _entry = self.entry_turn.lock();
        let _staged = self.staged.keep_out();
        let mut held = self.frozen.lock();
        if held.is_none() {
            // Looked at first, so that an idle store neither takes the latches nor lets go of its flushed generation.
            if self.last_applied().0 <= self.applied.load(Ordering::Acquire) {
                return None;
            }
            *gone = self.unlink_flushed(&held);
            self.settle_objects();
            let latches = self.memtable.latch_all_shards();
            self.log.end_entry();
            let index = self.last_applied();
            if index.0 <= self.applied.load(Ordering::Acquire) {
                return None;
            }
            let counts = self.databases.counts_now();
            let (dead, gone) = (self.databases.dead(), self.reclaimer.gone());
            let objects_below = self.objects.settled_below();
            debug_assert!(objects_below <= self.objects.ended_below(), "what is settled has ended");
            let tables = latches.freeze();
            self.dead_rows.forget();
            self.flush.on_freeze();
            self.lending.wake();
            *held = Some(Arc::new(Frozen { tables, index, counts, dead, gone, objects_below }));
        }
        held.clone()
    }

    /// Writes to the log the id below which every object is decided, where it has changed since the last such record. A
    /// node that applies the record has applied all that the record is about, so that the id bounds every node's
    /// compaction. A log that takes nothing now is told with a later freeze, and a clean stop writes nothing: a bound
    /// that is too low is safe.
    fn settle_objects(&self) {
        let ended = self.objects.ended_below();
        let is_said = self.role.get() != Role::Leading || ended <= self.objects.settled_below();
        if is_said || self.flush.is_closing() {
            return;
        }
        if let Err(stop) = self.put_system(&[(&settled_row(), Some(&ended.to_be_bytes()))], Mode::Memory) {
            tracing::debug!(?stop, "the log is not told yet which objects are settled");
        }
    }

    /// Tells the row cache the base's new content, before the generation is unlinked. Not sooner: a fill that reads the
    /// base before the ingestion must find its placeholder gone.
    fn on_ingested(&self, frozen: &Frozen) {
        let own = OwnRows::new();
        for (row, value) in SortedRows::new(&frozen.tables, &frozen.dead, &own) {
            self.cache.on_flushed(row, value);
        }
        let before = self.applied.swap(frozen.index.0, Ordering::AcqRel);
        assert!(before < frozen.index.0, "the applied index never goes back: {before}, {}", frozen.index);
        self.reclaimer.on_forgotten(&frozen.gone);
    }
}

/// Returns the time between two flushes with which level 0 is full at the earliest when its files become fewer.
fn interval(pressure: &Pressure) -> Duration {
    if pressure.running_compactions == 0 || pressure.level0_files < LEVEL0_FILES_PACED {
        return Duration::ZERO;
    }
    let room = LEVEL0_FILES_MAX.saturating_sub(pressure.level0_files) as u32;
    pressure.level0_left / (room + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_share_the_time_that_a_compaction_takes_still() {
        let left = |level0_files, seconds| Pressure {
            level0_files,
            running_compactions: 1,
            level0_left: Duration::from_secs(seconds),
            ..Pressure::default()
        };
        assert_eq!(interval(&left(15, 60)), Duration::ZERO, "there is room");
        assert_eq!(
            interval(&Pressure { running_compactions: 0, ..left(20, 60) }),
            Duration::ZERO,
            "nothing would come"
        );
        assert_eq!(interval(&left(16, 34)), Duration::from_secs(2));
        assert_eq!(interval(&left(24, 18)), Duration::from_secs(2));
        assert_eq!(interval(&left(32, 3)), Duration::from_secs(3));
    }
}
