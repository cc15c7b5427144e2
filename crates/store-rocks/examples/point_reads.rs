//! Measures the cost of a point read: CPU time per `get` at `Tier::Memory`, one thread, uniform random keys, all rows
//! in the block cache. Usage: `point_reads [ROWS] [VALUE_BYTES]`. Prints a table: the state of the files, present and
//! absent keys.

use haypile_store::base::{Base, BaseError, Lookup, Rows, Tier};
use haypile_store::row::{Key, Space, hash_of, meta_row, slot_of};
use haypile_store_rocks::{Options, Rocks};
use std::collections::BTreeMap;

const READS: u64 = 2_000_000;

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let rows = args.next().unwrap_or(1_000_000);
    let value_bytes = args.next().unwrap_or(128) as usize;
    let directory = std::env::temp_dir().join(format!("haypile-point-reads-{}", std::process::id()));
    let options = Options { cache_bytes: 1 << 30, level0_files: 64, level0_files_quiet: 64, ..Options::default() };
    let base = Rocks::open(&directory, options).expect("the base opens");

    let mut all = Sorted::default();
    for id in 0..rows {
        all.put(id, value_bytes);
    }
    base.ingest(&mut all).expect("rows go in");
    base.reclaim_range(b"", b"\xff").expect("rows are compacted");
    println!(
        "{rows} rows of {value_bytes} bytes, {READS} reads each, ns of CPU time per read (loop and key taken off)"
    );
    println!("| files at level 0 | present | absent | block cache MiB |");
    println!("|---|---|---|---|");
    for level0 in [0, 1, 4, 8] {
        while base.pressure().level0_files < level0 {
            let mut some = Sorted::default();
            let mut random = Random(base.pressure().level0_files + 7);
            for _ in 0..rows / 20 {
                some.put(random.next() % rows, value_bytes);
            }
            base.ingest(&mut some).expect("rows go in");
        }
        // Everything into the cache first.
        let mut row = Vec::new();
        for id in 0..rows {
            key_of(id, &mut row);
            base.get(&row, Tier::Disk).expect("a read");
        }
        let present = measure(&base, rows, 0);
        let absent = measure(&base, rows, 1 << 40);
        let cached = base.figures().iter().find(|(name, _)| *name == "block_cache_bytes").expect("a figure").1;
        println!("| {level0} | {present} | {absent} | {} |", cached >> 20);
    }
    if std::env::var_os("FIGURES").is_some() {
        for (name, value) in base.figures() {
            println!("{name} {value}");
        }
    }
    base.close();
    std::fs::remove_dir_all(&directory).expect("the directory goes");
}

/// Returns the nanoseconds of CPU time per read of random keys out of `rows`, their numbers moved by `offset`.
fn measure(base: &Rocks, rows: u64, offset: u64) -> u64 {
    let mut random = Random(1);
    let mut row = Vec::new();
    let begun = cpu_ns();
    let mut sum = 0;
    for _ in 0..READS {
        key_of(random.next() % rows + offset, &mut row);
        sum += row[row.len() - 1] as u64;
    }
    std::hint::black_box(sum);
    let idle = cpu_ns() - begun;
    let mut random = Random(1);
    let begun = cpu_ns();
    for _ in 0..READS {
        key_of(random.next() % rows + offset, &mut row);
        match base.get(&row, Tier::Memory).expect("a read") {
            Lookup::Row(value) => assert!(offset == 0 && !value.is_empty()),
            Lookup::Absent => assert!(offset > 0),
            Lookup::WouldBlock => panic!("everything is in the cache"),
        }
    }
    (cpu_ns() - begun).saturating_sub(idle) / READS
}

fn key_of(id: u64, row: &mut Vec<u8>) {
    let mut name = *b"key:000000000000";
    let mut rest = id;
    for digit in name[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    row.clear();
    let key = Key { space: Space(0), slot: slot_of(&name), hash: hash_of(&name, 7), name: &name };
    row.extend_from_slice(&meta_row(&key));
}

/// Rows in order, for one ingestion.
#[derive(Default)]
struct Sorted {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    current: Option<(Vec<u8>, Vec<u8>)>,
}

impl Sorted {
    fn put(&mut self, id: u64, value_bytes: usize) {
        let mut row = Vec::new();
        key_of(id, &mut row);
        let mut random = Random(id + 1);
        // About half compressible.
        let value = (0..value_bytes).map(|at| if at % 16 < 8 { random.next() as u8 } else { b'x' }).collect();
        self.rows.insert(row, value);
    }
}

impl Rows for Sorted {
    fn next_row(&mut self) -> Result<Option<(&[u8], Option<&[u8]>)>, BaseError> {
        self.current = self.rows.pop_first();
        Ok(self.current.as_ref().map(|(key, value)| (key.as_slice(), Some(value.as_slice()))))
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

/// Returns the CPU time of this thread.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with schedstats");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}
