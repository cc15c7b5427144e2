//! Measures the cost of a flushed row: CPU time of all threads per row, of writing and ingesting the file and of the
//! compactions that follow until nothing is left to do; and how long point reads of a second thread wait meanwhile.
//! Usage: `ingest_cost [KEYS] [ROWS_PER_FLUSH] [FLUSHES] [VALUE_BYTES]`.

use haypile_store::base::{Base, BaseError, Rows, Tier};
use haypile_store::row::{Key, Space, hash_of, meta_row, slot_of};
use haypile_store_rocks::{Options, Rocks};
use rust_rocksdb::perf::{PerfMetric, PerfStatsLevel, set_perf_stats, with_thread_local};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let keys = args.next().unwrap_or(1_000_000);
    let per_flush = args.next().unwrap_or(400_000);
    let flushes = args.next().unwrap_or(24);
    let value_bytes = args.next().unwrap_or(128) as usize;
    let directory = std::env::temp_dir().join(format!("haypile-ingest-cost-{}", std::process::id()));
    let base = Arc::new(Rocks::open(&directory, Options::default()).expect("the base opens"));

    let stop = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let (base, stop) = (base.clone(), stop.clone());
        move || read_until(&stop, &base, keys)
    });

    let mut random = Random(3);
    let mut writing_ns = 0;
    let mut written = 0;
    let mut slowest_ingest_us = 0;
    let begun_total = all_threads_ns();
    let mut generating_ns = 0;
    for _ in 0..flushes {
        let begun = this_thread_ns();
        let rows = random_rows(&mut random, keys, per_flush, value_bytes);
        written += rows.len() as u64;
        let mut sorted = Sorted::new(&rows);
        drop(rows);
        generating_ns += this_thread_ns() - begun;
        let begun = this_thread_ns();
        base.ingest(&mut sorted).expect("rows go in");
        writing_ns += this_thread_ns() - begun;
        slowest_ingest_us = slowest_ingest_us.max(figure(&base, "last_ingest_us"));
    }
    while base.pressure().running_compactions > 0 || base.pressure().pending_compaction_bytes > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    stop.store(true, Ordering::Relaxed);
    let total_ns = all_threads_ns() - begun_total - generating_ns;
    let (waits, mutex_us) = reader.join().expect("the reader ends");
    println!(
        "{written} rows in {flushes} flushes over {keys} keys: writing {} ns, compactions {} ns of CPU time per row; \
         compacted {:.2} rows per row; {} MiB on disk, {} files at level 0",
        writing_ns / written,
        (figure(&base, "compaction_cpu_us") * 1000) / written,
        figure(&base, "compaction_read_rows") as f64 / written as f64,
        base.disk_bytes() >> 20,
        base.pressure().level0_files,
    );
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize];
    println!(
        "all threads {} ns per row (reader included); the step into the base took at most {slowest_ingest_us} us; \
         reads in us: median {} p99 {} p99.9 {} p99.99 {} most {} \
         of {}; at most {mutex_us} of them for RocksDB's mutex",
        total_ns / written,
        at(0.5),
        at(0.99),
        at(0.999),
        at(0.9999),
        at(1.0),
        waits.len(),
    );
    base.close();
    std::fs::remove_dir_all(&directory).expect("the directory goes");
}

/// Reads rows as an event loop does, until it is to stop; returns how many microseconds each read took, sorted, and the
/// most that one waited for RocksDB's mutex.
fn read_until(stop: &AtomicBool, base: &Rocks, keys: u64) -> (Vec<u64>, u64) {
    let mut random = Random(99);
    let mut waits = Vec::new();
    let mut mutex_us = 0;
    set_perf_stats(PerfStatsLevel::EnableTime);
    while !stop.load(Ordering::Relaxed) {
        let row = key_of(random.next() % keys);
        let begun = Instant::now();
        let mutex_ns = with_thread_local(|perf| {
            base.get(&row, Tier::Memory).expect("a read");
            perf.metric(PerfMetric::DbMutexLockNanos)
        });
        waits.push(begun.elapsed().as_micros() as u64);
        mutex_us = mutex_us.max(mutex_ns / 1000);
        std::thread::sleep(Duration::from_micros(200));
    }
    waits.sort_unstable();
    (waits, mutex_us)
}

/// Returns rows of random keys in their order, each key once.
fn random_rows(random: &mut Random, keys: u64, count: u64, value_bytes: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows: Vec<_> = (0..count)
        .map(|_| {
            let id = random.next() % keys;
            // About half compressible.
            let value = (0..value_bytes).map(|at| if at % 16 < 8 { random.next() as u8 } else { b'x' }).collect();
            (key_of(id), value)
        })
        .collect();
    rows.sort_unstable();
    rows.dedup_by(|a: &mut (Vec<u8>, Vec<u8>), b| a.0 == b.0);
    rows
}

fn figure(base: &Rocks, name: &str) -> u64 {
    base.figures().iter().find(|(figure, _)| *figure == name).expect("a figure").1
}

fn key_of(id: u64) -> Vec<u8> {
    let name = format!("key:{id:012}");
    let name = name.as_bytes();
    meta_row(&Key { space: Space(0), slot: slot_of(name), hash: hash_of(name, 7), name }).to_vec()
}

/// Rows that lie in memory as they are written, so that reading them costs next to nothing. Fetching a memtable's rows
/// costs more, which is the memtable's share.
struct Sorted {
    bytes: Vec<u8>,
    rows: Vec<(u32, u32, u32)>,
    next: usize,
}

impl Sorted {
    fn new(rows: &[(Vec<u8>, Vec<u8>)]) -> Self {
        let mut sorted = Sorted { bytes: Vec::new(), rows: Vec::new(), next: 0 };
        for (key, value) in rows {
            sorted.rows.push((sorted.bytes.len() as u32, key.len() as u32, value.len() as u32));
            sorted.bytes.extend_from_slice(key);
            sorted.bytes.extend_from_slice(value);
        }
        sorted
    }
}

impl Rows for Sorted {
    fn next_row(&mut self) -> Result<Option<(&[u8], Option<&[u8]>)>, BaseError> {
        let Some(&(at, key, value)) = self.rows.get(self.next) else { return Ok(None) };
        self.next += 1;
        let (key, rest) = self.bytes[at as usize..].split_at(key as usize);
        Ok(Some((key, Some(&rest[..value as usize]))))
    }
}

struct Random(u64);

impl Random {
    /// Returns the next number (xorshift64*).
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
}

fn this_thread_ns() -> u64 {
    schedstat("/proc/thread-self/schedstat")
}

/// Returns the CPU time of all threads that live.
fn all_threads_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    tasks.flatten().map(|task| schedstat(&format!("{}/schedstat", task.path().display()))).sum()
}

fn schedstat(path: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}
