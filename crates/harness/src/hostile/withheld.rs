//! Time that the machine itself withholds: a virtual machine's processors do not run while its host gives them to
//! others, which looks like a server that pauses. One thread on each processor, before all others there, sleeps for a
//! millisecond at a time. What it sleeps longer is of the host or of a system call that is not interrupted; the host's
//! part is what the kernel counts as stolen.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

/// The time that a watcher sleeps, and the least that it has to sleep longer to count.
const NAP: Duration = Duration::from_millis(1);

/// The time after which the kernel has counted what was stolen: longer than between its ticks.
const COUNTED: Duration = Duration::from_millis(11);

/// Threads that watch the processors of this machine.
pub(super) struct Watch<'scope> {
    watchers: Vec<ScopedJoinHandle<'scope, Vec<Gap>>>,
}

/// The most processors of a machine whose gaps are taken off waits: where there are more, most gaps are of processors
/// that neither the server nor a client ran on.
const PROCESSORS_MAX: usize = 4;

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gap {
    pub from: Instant,
    pub to: Instant,
}

/// The stretches of time that a processor or more did not run in, in order and apart from each other.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    gaps: Vec<Gap>,
}

impl<'scope> Watch<'scope> {
    /// Watches until `is_over`. Processors on which this process may not go before others (which takes root's rights)
    /// are not watched, nor is a machine of many.
    pub fn begin(scope: &'scope thread::Scope<'scope, '_>, is_over: &'scope AtomicBool) -> Watch<'scope> {
        let processors = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let mut processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|at| processors.is_set(*at)).collect();
        if processors.len() > PROCESSORS_MAX {
            processors.clear();
        }
        let processors = processors.into_iter();
        Watch { watchers: processors.map(|processor| scope.spawn(move || watch(processor, is_over))).collect() }
    }

    /// Waits for the threads' ends.
    pub fn end(self) -> Withheld {
        let gaps = self.watchers.into_iter().flat_map(|watcher| watcher.join().expect("a watcher does not panic"));
        Withheld::new(gaps.collect())
    }
}

/// Returns the gaps of one processor until `is_over`; none where this thread is not before all others.
fn watch(processor: usize, is_over: &AtomicBool) -> Vec<Gap> {
    let mut only = CpuSet::new();
    only.set(processor);
    let mut gaps = Vec::new();
    if sched_setaffinity(None, &only).is_err() || !goes_first() {
        return gaps;
    }
    let mut stolen = Stolen { counted: stolen(processor) };
    let (mut fresh, mut looked): (Option<Gap>, Instant) = (None, Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        let from = Instant::now() + NAP;
        sleep(NAP);
        let to = Instant::now();
        let is_late = to.saturating_duration_since(from) > NAP;
        if let Some(gap) = fresh.take_if(|gap| is_late || to - gap.to > COUNTED) {
            let share = stolen.share(gap.to - gap.from, self::stolen(processor));
            gaps.push(Gap { from: gap.to - share, to: gap.to });
            looked = to;
        } else if fresh.is_none() && !is_late && to - looked > COUNTED {
            // Steals that made no nap late are no part of a gap that comes.
            stolen.counted = self::stolen(processor);
            looked = to;
        }
        if is_late {
            fresh = Some(Gap { from, to });
        }
    }
    gaps
}

/// The time that the host took from a processor, as the kernel counts it.
struct Stolen {
    /// The count when it was looked at last.
    counted: Duration,
}

impl Stolen {
    /// Returns how much of a gap is the host's: what the kernel has counted around it, in ticks, of which one may have
    /// begun before.
    fn share(&mut self, late: Duration, counted: Duration) -> Duration {
        let tick = Duration::from_secs(1) / clock_ticks_per_second() as u32;
        let around = counted.saturating_sub(self.counted);
        self.counted = counted;
        if around.is_zero() { Duration::ZERO } else { late.min(around + tick) }
    }
}

/// Returns the time that the host has taken from a processor since this machine began; zero where nothing says it.
fn stolen(processor: usize) -> Duration {
    /// The place of the figure behind the processor's name in a line of /proc/stat.
    const STOLEN: usize = 8;
    let ticks = fs::read_to_string("/proc/stat").ok().and_then(|text| {
        let line = text.lines().find(|line| line.split(' ').next() == Some(&format!("cpu{processor}")))?;
        line.split(' ').nth(STOLEN)?.parse::<u64>().ok()
    });
    Duration::from_secs(1) * ticks.unwrap_or(0) as u32 / clock_ticks_per_second() as u32
}

/// Gives this thread the scheduler's class that goes before all usual ones, by the tool of every Debian: no safe
/// function does it. Returns whether that was allowed.
fn goes_first() -> bool {
    let thread = gettid().as_raw_nonzero().to_string();
    let chrt = Command::new("chrt").args(["--fifo", "--pid", "10", &thread]).stderr(Stdio::null()).status();
    chrt.is_ok_and(|status| status.success())
}

impl Withheld {
    fn new(mut gaps: Vec<Gap>) -> Withheld {
        gaps.sort_by_key(|gap| gap.from);
        gaps.dedup_by(|next, before| {
            let is_one = next.from <= before.to;
            if is_one {
                before.to = before.to.max(next.to);
            }
            is_one
        });
        Withheld { gaps }
    }

    /// Returns how much of the time between two moments was withheld.
    pub fn between(&self, from: Instant, to: Instant) -> Duration {
        let first = self.gaps.partition_point(|gap| gap.to <= from);
        let gaps = self.gaps[first..].iter().take_while(|gap| gap.from < to);
        gaps.map(|gap| gap.to.min(to).saturating_duration_since(gap.from.max(from))).sum()
    }

    pub fn total(&self) -> Duration {
        self.gaps.iter().map(|gap| gap.to - gap.from).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_processors_miss_at_once_counts_once() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let gap = |from, to| Gap { from: at(from), to: at(to) };
        let withheld = Withheld::new(vec![gap(30, 40), gap(10, 20), gap(15, 18), gap(18, 25), gap(50, 60)]);
        assert_eq!(withheld.gaps, [gap(10, 25), gap(30, 40), gap(50, 60)]);
        assert_eq!(withheld.total(), Duration::from_millis(35));
        for (from, to, expected) in [(0, 100, 35), (0, 10, 0), (12, 14, 2), (20, 35, 10), (25, 30, 0), (60, 70, 0)] {
            assert_eq!(withheld.between(at(from), at(to)), Duration::from_millis(expected), "{from} to {to}");
        }
    }

    #[test]
    fn a_gap_is_the_hosts_as_far_as_the_kernel_counts_it() {
        let ms = Duration::from_millis;
        let tick = Duration::from_secs(1) / clock_ticks_per_second() as u32;
        let mut stolen = Stolen { counted: ms(5000) };
        assert_eq!(stolen.share(ms(500), ms(5000)), Duration::ZERO, "nothing was stolen");
        assert_eq!(stolen.share(ms(30), ms(5100)), ms(30));
        // Invariant: what was stolen before and made no gap pays for none.
        assert_eq!(stolen.share(ms(500), ms(5110)), ms(10) + tick);
        stolen.counted = ms(9000);
        assert_eq!(stolen.share(ms(500), ms(9000)), Duration::ZERO);
    }

    #[test]
    fn watchers_end_when_they_are_told() {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let watch = Watch::begin(scope, &is_over);
            is_over.store(true, Ordering::Relaxed);
            let withheld = watch.end();
            assert!(withheld.between(Instant::now(), Instant::now()).is_zero());
        });
    }
}
