//! Figures of the operating system about a process and the machine: CPU time, memory, stolen time, disk use. Linux
//! only, from /proc, as `docs/benchmarks.md` explains.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// CPU time in [`IDLE_WINDOW`] within which a process counts as idle: timers tick.
const IDLE_CPU_SECONDS: f64 = 0.06;
const IDLE_WINDOW: Duration = Duration::from_secs(2);

/// Keeps this thread, and those that it starts meanwhile, away from one core, until dropped.
pub struct AwayFrom {
    before: CpuSet,
}

impl AwayFrom {
    /// Leaves all cores but this one; an error where there is no other.
    pub fn cpu(cpu: u32) -> Result<AwayFrom> {
        let before = sched_getaffinity(None).context("reading on which cores this may run")?;
        let mut others = before;
        others.unset(cpu as usize);
        sched_setaffinity(None, &others).context("leaving a core to the server")?;
        Ok(AwayFrom { before })
    }
}

impl Drop for AwayFrom {
    fn drop(&mut self) {
        // The mask was in force before, so it cannot be refused.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Calls `run` with this thread, and those that it starts meanwhile, confined to a core, if one is named.
pub fn on_cpu<T>(cpu: Option<u32>, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let Some(cpu) = cpu else { return run() };
    let before = sched_getaffinity(None).context("reading on which cores this may run")?;
    let mut one = CpuSet::new();
    one.set(cpu as usize);
    sched_setaffinity(None, &one).context("going to a core")?;
    let result = run();
    sched_setaffinity(None, &before).context("leaving a core")?;
    result
}

/// Returns the CPU seconds of a process: of its threads, of the children that it has reaped, and of those that run.
pub fn cpu_seconds(pid: u32) -> f64 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    own_cpu_seconds(pid) + children.map(cpu_seconds).sum::<f64>()
}

fn own_cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may hold anything; utime, stime, cutime and cstime are fields 14 to 17 of the whole.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Returns the CPU seconds that all processes of the machine and its kernel have used since it started.
pub fn machine_cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1).take(7);
    // Of user, nice, system, idle, iowait, irq and softirq, the fourth and fifth are no work.
    let work = fields.enumerate().filter(|(at, _)| !matches!(at, 3 | 4));
    let ticks: u64 = work.filter_map(|(_, field)| field.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Returns the number of the machine's cores.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Waits until the process has been idle for two seconds, at most `limit`; returns its CPU seconds by then.
pub fn idle_cpu_seconds(pid: u32, limit: Duration) -> f64 {
    let begin = Instant::now();
    let mut last = cpu_seconds(pid);
    while begin.elapsed() < limit {
        sleep(IDLE_WINDOW);
        let now = cpu_seconds(pid);
        if now - last < IDLE_CPU_SECONDS {
            return last;
        }
        last = now;
    }
    last
}

/// Returns the resident memory in bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// A reading of the time that the machine's hypervisor gave to others; two of them give a share.
#[derive(Clone, Copy, Debug)]
pub struct Steal {
    stolen: u64,
    total: u64,
}

impl Steal {
    pub fn now() -> Steal {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = stat.lines().next().unwrap_or_default();
        let fields: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|f| f.parse().ok()).collect();
        Steal { stolen: fields.get(7).copied().unwrap_or(0), total: fields.iter().sum() }
    }

    /// Returns the percentage stolen since this reading.
    pub fn percent_since(self) -> f64 {
        let now = Steal::now();
        let total = now.total.saturating_sub(self.total);
        if total == 0 { 0.0 } else { 100.0 * now.stolen.saturating_sub(self.stolen) as f64 / total as f64 }
    }
}

/// Returns how many bytes the files below a directory occupy on disk.
pub fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let of_entry = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => disk_bytes(&entry.path()),
        Ok(data) => data.blocks() * 512,
        // The entry was deleted meanwhile.
        Err(_) => 0,
    };
    entries.flatten().map(of_entry).sum()
}

/// Returns how many bytes may still be written to the file system of a directory.
pub fn free_disk_bytes(dir: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(dir).with_context(|| format!("the free space of {}", dir.display()))?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// Returns the processor's name and number of cores, for the line under a table of results.
pub fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':')).map_or("unknown", |(_, m)| m);
    let cores = info.lines().filter(|line| line.starts_with("processor")).count();
    format!("{cores} cores of {}", model.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_uses_cpu_and_memory() {
        let pid = std::process::id();
        let before = cpu_seconds(pid);
        let begin = Instant::now();
        while cpu_seconds(pid) - before < 0.05 {
            assert!(begin.elapsed() < Duration::from_secs(20), "spinning must show as CPU time");
        }
        assert!(machine_cpu_seconds() > cpu_seconds(pid) && cores() > 0);
        assert!(resident_bytes(pid) > 100_000);
        assert!(free_disk_bytes(Path::new("/")).expect("the root is there") > 0);
        assert!((0.0..=100.0).contains(&Steal::now().percent_since()));
    }
}
