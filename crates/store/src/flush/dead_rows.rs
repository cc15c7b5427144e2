//! Dead rows of the base that only the memtable knows to be dead: objects without an owner, spaces that are no database
//! any more. The base learns of them with the next flush, and only then gives their room back. A server with little to
//! write flushes seldom, so that enough dead rows ask for a flush.

use crate::reclaim::{BIG_OBJECT_BYTES, Orphan};
use crate::row::Space;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Objects whose size is asked for, of each generation; the others count as the average of these.
const MEASURED_MAX: usize = 1000;

/// The dead rows that the active generation would show to the base. Noted under a latch of the memtable, and forgotten
/// under all of them, by a freeze.
#[derive(Default)]
pub(crate) struct DeadRows {
    count: AtomicU64,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    /// Objects whose sizes have not been asked for yet.
    objects: Vec<Orphan>,
    spaces: Vec<Space>,
    measured: u64,
    object_bytes: u64,
    space_bytes: u64,
}

impl DeadRows {
    #[inline]
    pub fn on_object(&self, orphan: Option<Orphan>) {
        if self.count.fetch_add(1, Ordering::Relaxed) < MEASURED_MAX as u64 {
            self.noted.lock().objects.extend(orphan);
        }
    }

    pub fn on_spaces(&self, space: Option<Space>) {
        if space.is_some() {
            self.noted.lock().spaces.extend(space);
        }
    }

    pub fn forget(&self) {
        let mut noted = self.noted.lock();
        *noted = Noted::default();
        self.count.store(0, Ordering::Relaxed);
    }

    /// Returns whether the base has so many dead bytes that a flush which tells it so is worth its cost. Asks for the
    /// sizes of objects and spaces, once for each.
    pub fn is_worth_a_flush(&self, object_bytes: impl Fn(&Orphan) -> u64, space_bytes: impl Fn(Space) -> u64) -> bool {
        let mut noted = self.noted.lock();
        let (objects, spaces) = (std::mem::take(&mut noted.objects), std::mem::take(&mut noted.spaces));
        drop(noted);
        // Commits note more meanwhile; no note is forgotten, because only this thread freezes.
        let object_bytes: u64 = objects.iter().map(object_bytes).sum();
        let space_bytes: u64 = spaces.iter().map(|space| space_bytes(*space)).sum();
        let mut noted = self.noted.lock();
        noted.measured += objects.len() as u64;
        noted.object_bytes += object_bytes;
        noted.space_bytes += space_bytes;
        let average = noted.object_bytes / noted.measured.max(1);
        let others = self.count.load(Ordering::Relaxed).saturating_sub(noted.measured);
        noted.object_bytes + average * others + noted.space_bytes >= BIG_OBJECT_BYTES
    }
}
