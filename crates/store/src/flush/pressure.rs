//! Back-pressure: whether writes may come, should slow down, or must stop. Asked before locks are taken.

use crate::refusal::Refusal;
use crate::stop::Stop;
use crate::store::Store;
use std::time::{Duration, Instant};

/// The store's answer to a command that wants to write, given before locks are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WritePressure {
    Go,
    /// The flush is falling behind: the command waits so long before its write.
    Slow(Duration),
    /// The command may not write now. Reads go on.
    Stop(Refusal),
}

/// The part of the next generation's size from which writers are slowed while a generation is on its way to the base:
/// early enough that they hardly ever fill the rest.
const SLOW_FROM: f64 = 0.75;

/// The part of the next generation's size from which writes stall, if the generation before has been on its way for
/// longer than `LATE`: sooner, one very large transaction may have filled the next one beyond its size.
const SLOW_UNTIL: f64 = 1.5;
const LATE: Duration = Duration::from_secs(5);

/// The wait of a write where a generation is full and will be frozen at once.
const FREEZE_WAIT: Duration = Duration::from_millis(1);

/// The longest wait of one write. A wait grows with the fourth power of the way between: 12 ms where the next
/// generation is full, less than 1 ms until nine tenths of it are.
const SLOW_MAX: Duration = Duration::from_secs(1);

/// How often a transaction that is written ahead on the I/O pool looks whether there is room again.
const ROOM_LOOK: Duration = Duration::from_millis(5);

/// How long a transaction that is written ahead waits for the flush: it may be the rest of a command that has run for
/// minutes, and holds up only the commands that want its keys.
const AHEAD_WAIT: Duration = Duration::from_secs(120);

impl Store {
    /// Returns whether nothing slows or stops a write of anybody, as for the most part: each write asks.
    #[inline]
    fn is_calm(&self) -> bool {
        let (active_bytes, full_bytes) = (self.memtable.active_bytes(), self.flush.memtable_bytes());
        const { assert!(SLOW_FROM == 0.75) };
        !self.flush.is_stopped()
            && active_bytes < full_bytes - full_bytes / 4
            && active_bytes <= self.flush.active_bytes_max()
    }

    /// Returns whether writes of clients may come, should slow down, or must stop.
    #[inline]
    pub fn pressure(&self) -> WritePressure {
        self.refusal_of_writes().map_or_else(|| self.pressure_of_data(), WritePressure::Stop)
    }

    /// Returns whether there is room for what comes, from wherever.
    #[inline]
    fn pressure_of_data(&self) -> WritePressure {
        if self.is_calm() { WritePressure::Go } else { self.pressure_of_much_data() }
    }

    #[cold]
    fn pressure_of_much_data(&self) -> WritePressure {
        let stopped = self.flush.stopped(false);
        let is_beyond = stopped.is_none() && self.memtable.active_bytes() > self.flush.active_bytes_max();
        self.pressure_unless(if is_beyond { Some(self.short_of_disk()) } else { stopped })
    }

    /// Returns whether nothing can be written now, whoever asks.
    pub fn refuses_writes(&self) -> bool {
        matches!(self.pressure_of_data(), WritePressure::Stop(_))
    }

    fn pressure_unless(&self, stopped: Option<Refusal>) -> WritePressure {
        if let Some(why) = stopped {
            return WritePressure::Stop(why);
        }
        let part = self.memtable.active_bytes() as f64 / self.flush.memtable_bytes() as f64;
        if part < SLOW_FROM {
            return WritePressure::Go;
        }
        if self.options.memory_only {
            return if part <= 1.0 { WritePressure::Go } else { WritePressure::Stop(Refusal::OutOfMemory) };
        }
        if let Some(why) = self.flush.failure().filter(|_| part > 1.0) {
            return WritePressure::Stop(Refusal::FlushFailed { why, deletions_go_on: false });
        }
        if self.memtable.frozen_bytes() == 0 {
            // A generation is frozen as soon as it is full.
            return if part <= 1.0 { WritePressure::Go } else { WritePressure::Slow(FREEZE_WAIT) };
        }
        if part >= SLOW_UNTIL && self.flush.age() > LATE {
            return WritePressure::Stop(Refusal::FlushBehind);
        }
        let way = ((part - SLOW_FROM) / (SLOW_UNTIL - SLOW_FROM)).min(1.0);
        WritePressure::Slow(SLOW_MAX.mul_f64(way.powi(4)))
    }

    /// Returns whether a command may come that cannot make the data larger: in `engine memory`, and on a disk that is
    /// short, such commands make room.
    #[inline]
    pub fn pressure_to_shrink(&self) -> WritePressure {
        self.refusal_of_writes().map_or_else(|| self.pressure_of_deletions(), WritePressure::Stop)
    }

    /// Returns whether a write may come of the server whose commands the store repeats; `grows` as it can make the data
    /// larger.
    pub fn pressure_to_repeat(&self, grows: bool) -> WritePressure {
        if grows { self.pressure_of_data() } else { self.pressure_of_deletions() }
    }

    /// Returns whether there is room for what cannot make the data larger.
    #[inline]
    fn pressure_of_deletions(&self) -> WritePressure {
        if self.is_calm() { WritePressure::Go } else { self.pressure_of_deletions_in_need() }
    }

    #[cold]
    fn pressure_of_deletions_in_need(&self) -> WritePressure {
        let stopped = self.flush.stopped(true);
        // A flush that fails for want of room may need the room that this command's deletions give back.
        let has_memory = || self.memtable.active_bytes() as f64 <= self.flush.memtable_bytes() as f64 * SLOW_UNTIL;
        if stopped.is_none() && (self.options.memory_only || self.flush.failure().is_some() && has_memory()) {
            return WritePressure::Go;
        }
        self.pressure_unless(stopped)
    }

    /// Blocks until a flush has made room: for callers that write much and will write more, which are transactions
    /// written ahead on the I/O pool, and imports.
    ///
    /// # Errors
    /// There is none after two minutes, or there will be none.
    pub fn wait_for_room(&self) -> Result<(), Stop> {
        self.wait_for_room_within(AHEAD_WAIT)
    }

    /// Blocks until a flush has made room, for so long at most.
    ///
    /// # Errors
    /// There is none then, or there will be none.
    pub(crate) fn wait_for_room_within(&self, time: Duration) -> Result<(), Stop> {
        let mut started = None;
        loop {
            match self.pressure_of_data() {
                WritePressure::Go => return Ok(()),
                WritePressure::Slow(_) if started.get_or_insert_with(Instant::now).elapsed() < time => {
                    self.flush.wait_for_progress(ROOM_LOOK);
                }
                WritePressure::Slow(_) => return Err(Stop::Refused(Refusal::FlushBehind)),
                WritePressure::Stop(why) => return Err(Stop::Refused(why)),
            }
        }
    }
}
