//! Measures what the base alone gives: random point reads of the rows of a server that is stopped, by threads that do
//! nothing else, as `db_bench readrandom` does. What the server adds is the difference to its own reads.
//! Usage: `cold_reads BASE_DIRECTORY [THREADS] [SECONDS] [CACHE_MIB] [direct]`.

use haypile_store::base::{Base, Direction, Lookup, Step, Tier};
use haypile_store_rocks::{Options, Rocks};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// One of so many rows is read: enough blocks for a cache that holds none of them twice.
const SAMPLE: usize = 20;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let directory = args.first().expect("usage: cold_reads BASE_DIRECTORY [THREADS] [SECONDS] [CACHE_MIB] [direct]");
    let number = |at: usize, default: u64| args.get(at).map_or(default, |arg| arg.parse().expect("a number"));
    let (threads, seconds, cache_mib) = (number(1, 16), number(2, 10), number(3, 64));
    let direct_reads = args.get(4).is_some_and(|arg| arg == "direct");
    let options = Options { cache_bytes: cache_mib << 20, direct_reads, ..Options::default() };
    let base = Rocks::open(Path::new(directory), options).expect("the base opens");
    let mut rows = Vec::new();
    let mut cursor = base.view(b"", b"\xff", Direction::Forward).expect("the base can be read");
    let mut count = 0;
    while let Step::Row { key, .. } = cursor.step().expect("the base can be read") {
        if count % SAMPLE == 0 {
            rows.push(key.to_vec());
        }
        count += 1;
    }
    drop(cursor);
    println!("{count} rows, {} of them are read by {threads} threads for {seconds} s", rows.len());

    let (ends, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let (cpu, disk) = (cpu_ms(), disk_bytes());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (base, rows, ends, reads) = (&base, &rows, &ends, &reads);
            scope.spawn(move || {
                let mut random = thread + 1;
                while !ends.load(Ordering::Relaxed) {
                    // xorshift64*
                    random ^= random >> 12;
                    random ^= random << 25;
                    random ^= random >> 27;
                    let row = &rows[(random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) as usize % rows.len()];
                    assert!(matches!(base.get(row, Tier::Disk), Ok(Lookup::Row(_))), "a row is read");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_secs(seconds));
        ends.store(true, Ordering::Relaxed);
    });
    let reads = reads.load(Ordering::Relaxed);
    println!(
        "{} reads a second, {:.1} us of CPU time and {} bytes of the disk each",
        reads / seconds,
        (cpu_ms() - cpu) as f64 * 1000.0 / reads as f64,
        (disk_bytes() - disk) / reads
    );
    base.close();
}

/// Returns the CPU time of this process, in milliseconds.
fn cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields = stat.rsplit(')').next().expect("a name in brackets").split_whitespace();
    // Clock ticks are a hundredth of a second on all that Linux runs on.
    fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum::<u64>() * 10
}

/// Returns the bytes that this process has had read from disks.
fn disk_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").expect("Linux");
    let read = io.lines().find_map(|line| line.strip_prefix("read_bytes: ")).expect("a line for it");
    read.parse().expect("a number")
}
