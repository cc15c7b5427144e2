//! The memory of the process, for MEMORY: the allocator's figures, which the server hands in, and those of the engine
//! itself.

use crate::run::engine::Engine;
use haypile_commands::host::MemoryFacts;
use haypile_store::{Counter, Txn};
use std::sync::atomic::{AtomicU64, Ordering};

/// How the engine asks the process's allocator, and has it tidy up.
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    /// Bytes given out, bytes of the pages that they lie in, and bytes of all pages that it holds.
    pub figures: fn() -> [u64; 3],
    /// Gives back what is not in use. Takes a while.
    pub purge: fn() -> Result<(), String>,
    /// A function that reports the state of the allocator, for people.
    pub report: fn() -> String,
}

impl Allocator {
    /// An allocator that knows nothing, for tests.
    pub const NONE: Allocator = Allocator { figures: || [0; 3], purge: || Ok(()), report: String::new };
}

/// Earlier figures of the memory.
#[derive(Default)]
pub(crate) struct MemoryMarks {
    startup: AtomicU64,
    peak: AtomicU64,
}

impl Engine {
    /// Notes what is allocated: to be called about once a second.
    pub fn note_memory(&self) {
        let [allocated, _, _] = (self.process.allocator.figures)();
        self.memory_marks.peak.fetch_max(allocated, Ordering::Relaxed);
        // The first time is when the store has just been loaded.
        let _ = self.memory_marks.startup.compare_exchange(0, allocated, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn memory_peak(&self) -> u64 {
        self.note_memory();
        self.memory_marks.peak.load(Ordering::Relaxed)
    }

    /// Returns the bytes that were allocated when the data had just been loaded.
    pub(crate) fn memory_at_start(&self) -> u64 {
        self.memory_marks.startup.load(Ordering::Relaxed)
    }

    pub(crate) fn memory_facts(&self, txn: Option<&Txn<'_>>) -> MemoryFacts {
        self.note_memory();
        let [allocated, active, resident] = (self.process.allocator.figures)();
        let count = |database, counter| match (txn, self.store()) {
            (Some(txn), _) => txn.peek_counter(txn.space(database), counter),
            (None, Some(store)) => store.counter(database, counter),
            (None, None) => 0,
        };
        let counts =
            |database| (database, count(database, Counter::Keys) as u64, count(database, Counter::Deadlines) as u64);
        MemoryFacts {
            peak: self.memory_marks.peak.load(Ordering::Relaxed).max(allocated),
            startup: self.memory_marks.startup.load(Ordering::Relaxed),
            allocated,
            active,
            resident,
            process: resident_bytes(),
            clients: self.client_bytes(),
            log: self.store().map_or(0, |store| store.log().stats().unsynced_bytes),
            databases: (0..self.databases).map(counts).collect(),
        }
    }
}

/// Bytes of the process that the operating system has swapped out.
pub(crate) fn swapped_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSwap:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Bytes of memory that the process has from the operating system.
pub(crate) fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.and_then(|text| text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()));
    // The page size of all platforms that this runs on.
    resident.unwrap_or(0) * 4096
}
