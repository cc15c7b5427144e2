//! The reserve: room of the disk that is held in a file, so that commands that make room work when there is none left,
//! and no other program that writes to the disk can take it.
//!
//! A part of `disk-free-min` lies in the reserve. It is let go when the rest of the disk comes to an end, for the log's
//! short segments, the flush's files and the base's own, and taken back when there is room again. The flush thread
//! looks after the reserve; an open on a full disk lets it go before it opens anything.

use haypile_log::Files;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The reserve's part of `disk-free-min`: one in so many.
const PART: u64 = 4;

/// The longest reserve: the base writes files of this size.
const BYTES_MAX: u64 = 64 << 20;

/// Room that is held in a file.
#[derive(Debug)]
pub struct Reserve {
    files: Arc<dyn Files>,
    path: PathBuf,
    held: AtomicU64,
}

impl Reserve {
    /// Returns the reserve in this file: as long as an earlier run has left it, and empty where there is no file.
    pub fn at(files: Arc<dyn Files>, path: PathBuf) -> Reserve {
        let held = files.open(&path).and_then(|file| file.len()).unwrap_or(0);
        Reserve { files, path, held: AtomicU64::new(held) }
    }

    /// Returns how much of `disk-free-min` belongs in the reserve.
    pub fn wanted_bytes(disk_free_min_bytes: u64) -> u64 {
        (disk_free_min_bytes / PART).min(BYTES_MAX)
    }

    pub fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Brings the reserve to its size while the disk has `free` bytes beside it: lets go of the reserve where that is
    /// less than its size, or where its room is `needed`. Returns whether it was let go.
    pub fn settle(&self, free: u64, disk_free_min_bytes: u64, needed: bool) -> bool {
        let (held, wanted) = (self.held_bytes(), Reserve::wanted_bytes(disk_free_min_bytes));
        if held > 0 && (needed || free < held || held > wanted) {
            self.let_go();
            return true;
        }
        if !needed && held < wanted && free.saturating_add(held) >= disk_free_min_bytes {
            self.take(wanted);
        }
        false
    }

    fn let_go(&self) {
        match self.files.remove(&self.path) {
            Ok(()) => self.held.store(0, Ordering::Relaxed),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.held.store(0, Ordering::Relaxed),
            Err(error) => tracing::warn!("the reserve {} cannot be let go: {error}", self.path.display()),
        }
    }

    fn take(&self, bytes: u64) {
        let taken = self.files.create(&self.path).and_then(|file| file.allocate(bytes));
        match taken {
            Ok(()) => self.held.store(bytes, Ordering::Relaxed),
            // A failed attempt is made again as long as there seems to be room.
            Err(_) => self.let_go(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_log::testing::{FaultFiles, ForgetfulFiles};

    const MIN: u64 = 64 << 10;

    #[test]
    fn it_is_taken_let_go_and_taken_back_by_what_the_disk_has() {
        let disk = ForgetfulFiles::new();
        disk.create_dir_all("/dir".as_ref()).expect("a directory");
        let faults = Arc::new(FaultFiles::new(disk.process()));
        let reserve = Reserve::at(faults.clone(), "/dir/reserve".into());
        let settle = |free: u64, needed: bool| (reserve.settle(free, MIN, needed), reserve.held_bytes());
        assert_eq!(settle(MIN - 1, false), (false, 0), "nothing is taken that writes have no room without");
        assert_eq!(settle(MIN, false), (false, MIN / 4));
        assert_eq!(settle(MIN / 4, false), (false, MIN / 4), "deletions have room");
        assert_eq!(settle(MIN / 4 - 1, false), (true, 0));
        assert_eq!(settle(MIN - 1, false), (false, 0));
        assert_eq!(settle(MIN, true), (false, 0), "not while something fails for want of room");
        assert_eq!(settle(MIN, false), (false, MIN / 4));
        assert_eq!(settle(MIN, true), (true, 0));
        faults.set_full(true);
        assert_eq!(settle(MIN, false), (false, 0), "what is free by the figures may not be there");
        faults.set_full(false);
        assert_eq!(settle(MIN, false), (false, MIN / 4));
        assert!(reserve.settle(u64::MAX, MIN / 2, false), "the demand was lowered");
        assert_eq!((reserve.settle(u64::MAX, MIN / 2, false), reserve.held_bytes()), (false, MIN / 8));
        assert_eq!(Reserve::at(faults, "/dir/reserve".into()).held_bytes(), MIN / 8, "the next run finds it");
    }

    #[test]
    fn without_a_demand_there_is_none() {
        let reserve = Reserve::at(Arc::new(ForgetfulFiles::new()), "/dir/reserve".into());
        assert!(!reserve.settle(u64::MAX, 0, false));
        assert_eq!(reserve.held_bytes(), 0);
        assert_eq!(Reserve::wanted_bytes(1 << 40), BYTES_MAX);
    }
}
