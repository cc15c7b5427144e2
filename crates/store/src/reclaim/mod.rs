//! Giving room back: dead rows are taken out of the base without waiting for chance to compact them.
//!
//! A flush tells which objects lost their owner and which spaces are dead. A dead space's ranges go as a whole. Dead
//! objects are counted by range; past a share of what lies there, or for one big object, that range is compacted, and
//! the base drops the rows of objects without an owner. Other compactions drop them too, so that the count is checked
//! by a sample before (`dead`). The base's periodic compaction finds the rest, such as an object that was written ahead
//! before a crash. Reclaiming has a thread of its own.

mod dead;
pub(crate) mod intent;
mod jobs;
mod orphan;
mod pieces;
mod whole;

pub(crate) use jobs::Reclaimer;
pub(crate) use orphan::{BIG_OBJECT_BYTES, Orphan};

use crate::base::{BaseError, Direction, Step, Tier};
use crate::row::{Family, Space, family_range, object_range};
use crate::store::Store;
use jobs::Job;
use std::time::Duration;

/// About how many objects of one flush have their size asked for, which looks into the indexes of all files of level 0;
/// the others count as the average of these.
const MEASURED: usize = 200;

/// How long the thread waits after a job for which the disk has no room.
const SHORT_INTERVAL: Duration = Duration::from_secs(2);

/// How long the thread waits after a job that failed for another reason: a damaged file does not heal by itself.
const FAILURE_INTERVAL: Duration = Duration::from_secs(10);

impl Store {
    /// Takes the news that a flush has brought into the base.
    pub(crate) fn on_dead(&self, spaces: &[Space], orphans: &[Orphan]) {
        let each = orphans.len() / MEASURED + 1;
        let sizes: Vec<u64> = orphans.iter().step_by(each).map(|orphan| self.orphan_bytes(orphan)).collect();
        // A big one says nothing of the others.
        let usual = || sizes.iter().filter(|bytes| **bytes < BIG_OBJECT_BYTES);
        let average = usual().sum::<u64>() / usual().count().max(1) as u64;
        let sized = orphans.iter().enumerate().map(|(at, orphan)| {
            let bytes = if at % each == 0 { sizes[at / each] } else { average };
            (*orphan, bytes)
        });
        self.reclaimer.on_dead(spaces, sized);
    }

    /// Has the ripest window of dead objects compacted, if one is worth it.
    fn look_at_dead(&self) {
        let (counts, share) = self.reclaimer.dead_counts();
        for window in dead::ripe_windows(&counts, share, |from, until| self.base.bytes_in(from, until)) {
            let mut with_rows = Vec::new();
            for orphan in self.reclaimer.dead_sample(&window) {
                match self.has_rows(&orphan) {
                    Ok(false) => {}
                    Ok(true) => with_rows.push(orphan),
                    Err(error) => {
                        // The compaction that it may lead to says what is wrong.
                        tracing::warn!("it cannot be read whether an object still has rows: {error}");
                        with_rows.push(orphan);
                    }
                }
            }
            if self.reclaimer.on_sampled(&window, &with_rows, share) {
                break;
            }
        }
    }

    /// Returns whether the base has a row of an object.
    fn has_rows(&self, orphan: &Orphan) -> Result<bool, BaseError> {
        for family in dead::ELEMENTS {
            let (from, until) = object_range(family, orphan.space, orphan.slot, orphan.id);
            if self.base.view(&from, &until, Direction::Forward)?.step()? != Step::End {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the bytes that the base has of an object.
    pub(crate) fn orphan_bytes(&self, orphan: &Orphan) -> u64 {
        dead::ELEMENTS
            .map(|family| object_range(family, orphan.space, orphan.slot, orphan.id))
            .iter()
            .map(|(from, until)| self.base.bytes_in(from, until))
            .sum()
    }

    /// Returns the bytes that the base has of a space.
    pub(crate) fn space_bytes(&self, space: Space) -> u64 {
        [Family::Meta, Family::Data, Family::Score, Family::Owner, Family::Expire]
            .map(|family| family_range(family, space))
            .iter()
            .map(|(from, until)| self.base.bytes_in(from, until))
            .sum()
    }

    /// Runs the reclaiming thread until `close`.
    pub(crate) fn run_reclaims(&self) {
        let mut is_short = false;
        while let Some(job) = self.reclaimer.next_job() {
            let result = self.reclaim(&job);
            let was_short = std::mem::replace(&mut is_short, matches!(result, Err(BaseError::Full(_))));
            match result {
                Ok(()) => {}
                Err(why) if job.is_of_compaction() => {
                    tracing::warn!("a full compaction has ended early: {why}");
                    self.reclaimer.on_failed_piece();
                    continue;
                }
                Err(BaseError::Full(why)) => {
                    if !was_short {
                        tracing::warn!("room cannot be given back yet: {why}");
                    }
                    self.reclaimer.put_off(job, SHORT_INTERVAL);
                    continue;
                }
                Err(error) => {
                    tracing::warn!("room could not be given back, which is tried again: {error}");
                    self.reclaimer.put_off(job, FAILURE_INTERVAL);
                    continue;
                }
            }
            self.reclaimer.on_done(&job);
        }
        self.reclaimer.on_closed();
    }

    fn reclaim(&self, job: &Job) -> Result<(), BaseError> {
        match job {
            Job::Range(from, until) => self.base.reclaim_range(from, until),
            Job::Look => {
                self.look_at_dead();
                Ok(())
            }
            Job::Begin(wanted) => self.begin_compaction(wanted),
            Job::Piece(from, until) => self.compact_piece(from, until),
            Job::Space(space) => {
                let ranges = [Family::Meta, Family::Data, Family::Score, Family::Owner, Family::Expire]
                    .map(|family| family_range(family, *space));
                for (from, until) in &ranges {
                    self.base.reclaim_range(from, until)?;
                }
                for (from, until) in &ranges {
                    self.expect_no_rows(from, until)?;
                }
                // Nothing is left of the space, so that it need not be remembered as dead any more. That is a fact
                // about this base alone, so that no record states it: the next flush takes the row out, and after a
                // crash before it this job comes again.
                self.databases.forget_dead(*space);
                self.reclaimer.on_gone(*space);
                Ok(())
            }
        }
    }

    /// Returns an error if the base still has rows here: a compaction does not say how it ended, and rows of a space
    /// that is not remembered as dead would never go.
    fn expect_no_rows(&self, from: &[u8], until: &[u8]) -> Result<(), BaseError> {
        match self.base.scan(from, until, Direction::Forward, Tier::Disk)?.step()? {
            Step::End => Ok(()),
            Step::Row { key, .. } => {
                let row = key.escape_ascii();
                Err(BaseError::Failed(format!("row {row} of an emptied database is still there")))
            }
            Step::WouldBlock => Err(BaseError::Failed("the base said that a read of the disk would block".into())),
        }
    }
}
