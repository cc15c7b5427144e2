//! The progress of a check, and its speed.

use super::Stored;
use crate::row::Family;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// The time between two reports of progress.
const INTERVAL: Duration = Duration::from_secs(5);

/// The number of rows between two looks at the clock.
const ROWS_BETWEEN_LOOKS: u64 = 4096;

/// The families of rows with a space, in the order of their numbers.
const FAMILIES: [Family; 5] = [Family::Meta, Family::Data, Family::Score, Family::Owner, Family::Expire];

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Records of the log and rows.
    pub rows: u64,
    pub bytes: u64,
    pub bytes_per_s: u64,
    /// The part that has been read, 0 to 1, as far as it can be told.
    pub share: f64,
}

/// Counts records and rows as they pass, and tells the progress now and then.
pub struct Meter {
    tell: RefCell<Box<dyn FnMut(Progress)>>,
    begun: Instant,
    told: Cell<Instant>,
    rows: Cell<u64>,
    bytes: Cell<u64>,
    /// Bytes of files: all there are, and those that are done with.
    total_bytes: Cell<u64>,
    done_bytes: Cell<u64>,
}

impl Meter {
    pub fn new(tell: impl FnMut(Progress) + 'static) -> Meter {
        let now = Instant::now();
        Meter {
            tell: RefCell::new(Box::new(tell)),
            begun: now,
            told: Cell::new(now),
            rows: Cell::default(),
            bytes: Cell::default(),
            total_bytes: Cell::default(),
            done_bytes: Cell::default(),
        }
    }

    pub fn rows(&self) -> u64 {
        self.rows.get()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Begins to count: `log_bytes` and the files of `base` are all there is to read.
    pub(crate) fn begin(&self, log_bytes: u64, base: &dyn Stored) {
        let rows: u64 = FAMILIES.iter().map(|family| base.bytes_in(&[*family as u8], &[*family as u8 + 1])).sum();
        self.total_bytes.set(log_bytes + rows);
    }

    pub(crate) fn on_record(&self, bytes: u64) {
        self.done_bytes.set(self.done_bytes.get() + bytes);
        self.on_bytes(bytes, &|| 0);
    }

    /// Counts a row. Where rows of several families pass together, `families` are those.
    pub(crate) fn on_row(&self, row: &[u8], value: &[u8], base: &dyn Stored, families: &[Family]) {
        // The rows up to this one, in each of the families.
        let partial = || {
            let up_to = |family: &Family| [&[*family as u8], row.get(1..).unwrap_or_default()].concat();
            families.iter().map(|family| base.bytes_in(&[*family as u8], &up_to(family))).sum()
        };
        self.on_bytes((row.len() + value.len()) as u64, &partial);
    }

    /// Notes that all rows of these families have passed.
    pub(crate) fn on_end_of(&self, families: &[Family], base: &dyn Stored) {
        let bytes: u64 = families.iter().map(|family| base.bytes_in(&[*family as u8], &[*family as u8 + 1])).sum();
        self.done_bytes.set(self.done_bytes.get() + bytes);
    }

    fn on_bytes(&self, bytes: u64, partial: &dyn Fn() -> u64) {
        self.bytes.set(self.bytes.get() + bytes);
        self.rows.set(self.rows.get() + 1);
        if self.rows.get().is_multiple_of(ROWS_BETWEEN_LOOKS) && self.told.get().elapsed() >= INTERVAL {
            self.told.set(Instant::now());
            let done = self.done_bytes.get() + partial();
            let elapsed_ms = self.begun.elapsed().as_millis().max(1) as u64;
            (self.tell.borrow_mut())(Progress {
                rows: self.rows.get(),
                bytes: self.bytes.get(),
                bytes_per_s: self.bytes.get().saturating_mul(1000) / elapsed_ms,
                share: (done as f64 / self.total_bytes.get().max(1) as f64).min(1.0),
            });
        }
    }
}
