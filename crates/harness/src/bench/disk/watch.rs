//! Watches a server while it is measured: its memory, its files, its CPU time, and the time stolen from the machine.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::bench::process::{Steal, cpu_seconds, disk_bytes, resident_bytes};

const MEMORY_PERIOD: Duration = Duration::from_millis(200);
/// The pause between two walks of the directory: a walk over hundreds of files is not free.
const DISK_PERIOD: Duration = Duration::from_secs(1);

/// The observations during one piece of work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watched {
    pub resident_bytes_max: u64,
    pub disk_bytes_max: u64,
    pub cpu_seconds: f64,
    pub steal_percent: f64,
}

/// Runs the work and watches the process and the directory meanwhile.
pub fn watch<T>(pid: u32, dir: &Path, work: impl FnOnce() -> Result<T>) -> Result<(T, Watched)> {
    let stop = AtomicBool::new(false);
    let (resident, disk) = (AtomicU64::new(resident_bytes(pid)), AtomicU64::new(disk_bytes(dir)));
    let (steal, cpu) = (Steal::now(), cpu_seconds(pid));
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            let mut disk_seen = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                thread::park_timeout(MEMORY_PERIOD);
                resident.fetch_max(resident_bytes(pid), Ordering::Relaxed);
                if disk_seen.elapsed() >= DISK_PERIOD {
                    disk.fetch_max(disk_bytes(dir), Ordering::Relaxed);
                    disk_seen = Instant::now();
                }
            }
        });
        let result = work();
        stop.store(true, Ordering::Relaxed);
        result
    });
    let watched = Watched {
        resident_bytes_max: resident.into_inner(),
        disk_bytes_max: disk.into_inner(),
        cpu_seconds: cpu_seconds(pid) - cpu,
        steal_percent: steal.percent_since(),
    };
    Ok((result?, watched))
}
