//! How much memory there is: the machine's, or less if a cgroup bounds the process.
//!
//! The rules are pure functions over the contents of files, so that tests can hand in any machine; `detect` reads the
//! real ones.

use std::path::PathBuf;

/// Memory that the process can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    pub bytes: u64,
    pub source: Source,
}

/// The bound of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Machine,
    Cgroup,
    /// The source when neither could be read: a guess.
    Unknown,
}

/// The share of the available memory that is the budget by default. The rest is for connections, for memory that
/// RocksDB and the allocator need beside the caches, and for the page cache.
pub const DEFAULT_SHARE_PERCENT: u64 = 50;
/// The least default budget in bytes.
pub const DEFAULT_BUDGET_BYTES_MIN: u64 = 64 << 20;
/// The stand-in for the machine's memory when /proc/meminfo cannot be read.
const UNKNOWN_BYTES: u64 = 1 << 30;

impl Available {
    /// Returns the bound of every part of the budget.
    pub fn bound(&self) -> u64 {
        if self.source == Source::Unknown { u64::MAX } else { self.bytes }
    }

    /// Returns the budget when `maxmemory` is 0.
    pub fn default_budget(&self) -> u64 {
        (self.bytes / 100 * DEFAULT_SHARE_PERCENT).max(DEFAULT_BUDGET_BYTES_MIN)
    }
}

/// Reads this machine's memory.
pub fn detect() -> Available {
    available(|path| std::fs::read_to_string(path).ok())
}

/// Returns the memory that the files allow: the least of the machine's and of the limits of the cgroup and all above
/// it, of version 2 or 1.
pub fn available(read: impl Fn(&str) -> Option<String>) -> Available {
    let machine = read("/proc/meminfo").as_deref().and_then(mem_total);
    let cgroup = read("/proc/self/cgroup").and_then(|groups| cgroup_limit(&groups, &read));
    match (machine, cgroup) {
        (Some(machine), Some(cgroup)) if cgroup < machine => Available { bytes: cgroup, source: Source::Cgroup },
        (Some(machine), _) => Available { bytes: machine, source: Source::Machine },
        // Without a machine to compare with, the huge number by which version 1 says "no limit" cannot be told from a
        // limit.
        (None, Some(cgroup)) if cgroup < 1 << 60 => Available { bytes: cgroup, source: Source::Cgroup },
        (None, _) => Available { bytes: UNKNOWN_BYTES, source: Source::Unknown },
    }
}

/// Reads `MemTotal:       24571892 kB`.
fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the least limit of the cgroups. Lines of /proc/self/cgroup are `id:controllers:path`; version 2 has
/// `0::path`, version 1 a line whose controllers have `memory`.
fn cgroup_limit(groups: &str, read: &impl Fn(&str) -> Option<String>) -> Option<u64> {
    let mut least: Option<u64> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (mount, file) = if id == "0" && controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        let limits = up_from(path).into_iter().filter_map(|group| {
            let limit = read(&format!("{mount}{}/{file}", if group == "/" { "" } else { &group }))?;
            // Version 2 says `max` for no limit.
            limit.trim().parse::<u64>().ok()
        });
        least = least.into_iter().chain(limits).min();
    }
    least
}

/// Returns a group and all above it: `/a/b`, `/a`, `/`. Inside a container the path may be the host's and not exist
/// here; the root does.
fn up_from(path: &str) -> Vec<String> {
    let path = PathBuf::from(path);
    path.ancestors()
        .map(|group| group.to_string_lossy().into_owned())
        .filter(|group| !group.is_empty() && !group.contains(".."))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1 << 30;
    const MEMINFO_8GB: (&str, &str) = ("/proc/meminfo", "MemTotal:        8388608 kB\nMemFree:  12 kB\n");

    #[track_caller]
    fn check(rule: &str, files: &[(&str, &str)], bytes: u64, source: Source) {
        let read = |path: &str| files.iter().find(|(name, _)| *name == path).map(|(_, text)| text.to_string());
        assert_eq!(available(read), Available { bytes, source }, "{rule}");
    }

    #[test]
    fn the_least_of_machine_and_cgroups_counts() {
        let v2 = ("/proc/self/cgroup", "0::/a/b\n");
        check("no cgroup", &[MEMINFO_8GB], 8 * GB, Source::Machine);
        check("version 2", &[MEMINFO_8GB, v2, ("/sys/fs/cgroup/a/b/memory.max", "1073741824\n")], GB, Source::Cgroup);
        check(
            "a limit above the group",
            &[
                MEMINFO_8GB,
                v2,
                ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("/sys/fs/cgroup/a/memory.max", "2147483648\n"),
            ],
            2 * GB,
            Source::Cgroup,
        );
        check("no limit", &[MEMINFO_8GB, v2, ("/sys/fs/cgroup/a/b/memory.max", "max\n")], 8 * GB, Source::Machine);
        check(
            "inside a container",
            &[MEMINFO_8GB, ("/proc/self/cgroup", "0::/\n"), ("/sys/fs/cgroup/memory.max", "1073741824\n")],
            GB,
            Source::Cgroup,
        );
        check(
            "inside a container that sees the host's path",
            &[MEMINFO_8GB, ("/proc/self/cgroup", "0::/../../x\n"), ("/sys/fs/cgroup/memory.max", "1073741824\n")],
            GB,
            Source::Cgroup,
        );
        let v1 = ("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/c\n1:name=systemd:/x\n");
        check(
            "version 1",
            &[MEMINFO_8GB, v1, ("/sys/fs/cgroup/memory/docker/c/memory.limit_in_bytes", "1073741824\n")],
            GB,
            Source::Cgroup,
        );
        check(
            "version 1 in a container",
            &[MEMINFO_8GB, v1, ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n")],
            GB,
            Source::Cgroup,
        );
        let unlimited = ("/sys/fs/cgroup/memory/docker/c/memory.limit_in_bytes", "9223372036854771712\n");
        check("version 1 without limit", &[MEMINFO_8GB, v1, unlimited], 8 * GB, Source::Machine);
        check("version 1 without limit, on an unknown machine", &[v1, unlimited], UNKNOWN_BYTES, Source::Unknown);
        check(
            "more than the machine has",
            &[MEMINFO_8GB, v2, ("/sys/fs/cgroup/a/memory.max", "99999999999\n")],
            8 * GB,
            Source::Machine,
        );
        check("nothing can be read", &[], UNKNOWN_BYTES, Source::Unknown);
        check(
            "nonsense",
            &[("/proc/meminfo", "x"), ("/proc/self/cgroup", "::\n\n4"), v2],
            UNKNOWN_BYTES,
            Source::Unknown,
        );
    }

    #[test]
    fn the_budget_is_half_of_it() {
        let budget = |bytes| Available { bytes, source: Source::Machine }.default_budget();
        assert_eq!(budget(8_000_000_000), 4_000_000_000);
        assert_eq!(budget(1 << 20), DEFAULT_BUDGET_BYTES_MIN);
        assert!(detect().bytes > 0);
    }
}
