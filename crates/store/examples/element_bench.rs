//! Measures rows of objects: nanoseconds of CPU per operation on one thread, in objects of 100 rows, in one of many, at
//! both ends of lists, and the memory that a row takes. Everything is in the memtable, over a base in memory.
//! `cargo run --release -p haypile-store --example element_bench [CASE]`.

use haypile_store::testing::options;
use haypile_store::{Call, Direction, MemoryBase, Mode, ObjectId, Slot, Space, Store, Txn, TxnBuffers, row};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Commits between two ticks of the log, as 50 clients with 16 commands each.
const TICK: u64 = 800;
const OBJECTS: u64 = 10_000;
const ROWS: u64 = 100;
const MANY: u64 = 1_000_000;
const VALUE: [u8; 32] = [7; 32];

fn own_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// A permutation's step: numbers in an order that no cache foresees.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

struct Bench {
    store: Arc<Store>,
    buffers: TxnBuffers,
    ticks: u64,
}

impl Bench {
    fn open(dir: &std::path::Path) -> Bench {
        std::fs::create_dir_all(dir.join("log")).expect("a temporary directory");
        let mut options = options(dir);
        options.memtable_bytes = 4 << 30;
        options.flush_log_bytes = 64 << 30;
        options.log.segment_bytes = 64 << 20;
        let store = Store::open(options, Arc::new(MemoryBase::default()), |_| {}).expect("opens");
        Bench { store, buffers: TxnBuffers::default(), ticks: 0 }
    }

    fn object(&mut self, number: u64) -> (Slot, ObjectId) {
        let slot = Slot((mix(number) % 16384) as u16);
        (slot, self.txn(|txn| txn.new_object().expect("room")))
    }

    fn txn<T>(&mut self, run: impl FnOnce(&mut Txn<'_>) -> T) -> T {
        let call = Call { now_ms: 1, seed: 1, database: 0, mode: Mode::Memory, pins: None };
        let mut txn = self.store.begin(std::mem::take(&mut self.buffers), call);
        let result = run(&mut txn);
        if !txn.is_read_only() {
            txn.commit().expect("room");
            self.ticks += 1;
        }
        self.buffers = txn.finish();
        if self.ticks >= TICK {
            self.ticks = 0;
            self.store.log().write();
        }
        result
    }

    fn timed(&mut self, what: &str, count: u64, mut operation: impl FnMut(&mut Bench, u64)) {
        let (before, resident) = (own_ns(), resident_bytes());
        (0..count).for_each(|number| operation(self, number));
        let ns = (own_ns() - before) as f64 / count as f64;
        let bytes = resident_bytes().saturating_sub(resident) / count.max(1);
        println!("{what:44} {ns:7.0} ns  {bytes:5} bytes of memory");
    }

    fn put(&mut self, row: &[u8]) {
        self.txn(|txn| txn.put_row(row, &[&VALUE]).expect("small"));
    }

    fn get(&mut self, row: &[u8], expected: bool) {
        let found = self.txn(|txn| txn.row(row).expect("memory").is_some());
        assert_eq!(found, expected);
    }

    fn visit(&mut self, slot: Slot, id: ObjectId, direction: Direction, max: u64) -> u64 {
        let (from, until) = row::object_range(row::Family::Data, Space(0), slot, id);
        let mut count = 0;
        self.txn(|txn| {
            let visited = txn.visit(&from, &until, direction, max as usize, |row, value| {
                std::hint::black_box((row, value));
                count += 1;
                if count < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            visited.expect("memory");
        });
        count
    }
}

/// An element as a hash has it: its hash and its name.
fn element(number: u64) -> Vec<u8> {
    let mut element = ((mix(number) >> 32) as u32).to_be_bytes().to_vec();
    element.extend_from_slice(format!("field:{number:08}").as_bytes());
    element
}

fn many_objects(bench: &mut Bench) {
    let objects: Vec<(Slot, ObjectId)> = (0..OBJECTS).map(|number| bench.object(number)).collect();
    let row_of = |number: u64| {
        let (slot, id) = objects[(number % OBJECTS) as usize];
        row::data_row(Space(0), slot, id, &element(number / OBJECTS))
    };
    let all = OBJECTS * ROWS;
    bench.timed("nothing: a key is made", all, |_, number| {
        std::hint::black_box(row_of(mix(number) % all));
    });
    bench.timed("10000 x 100: new elements", all, |bench, number| bench.put(&row_of(number)));
    bench.timed("10000 x 100: overwritten", all, |bench, number| bench.put(&row_of(mix(number) % all)));
    bench.timed("10000 x 100: read", all, |bench, number| bench.get(&row_of(mix(number) % all), true));
    bench.timed("10000 x 100: read, absent", all, |bench, number| bench.get(&row_of(all + mix(number) % all), false));
    for direction in [Direction::Forward, Direction::Backward] {
        bench.timed(&format!("10000 x 100: all of one visited, {direction:?}"), 100_000, |bench, number| {
            let (slot, id) = objects[(mix(number) % OBJECTS) as usize];
            assert_eq!(bench.visit(slot, id, direction, u64::MAX), ROWS);
        });
    }
    bench.timed("10000 x 100: first of one visited", 100_000, |bench, number| {
        let (slot, id) = objects[(mix(number) % OBJECTS) as usize];
        bench.visit(slot, id, Direction::Forward, 1);
    });
}

fn one_object(bench: &mut Bench) {
    let (slot, id) = bench.object(1);
    let row_of = |number: u64| row::data_row(Space(0), slot, id, &element(number));
    bench.timed("1000000: new elements", MANY, |bench, number| bench.put(&row_of(number)));
    bench.timed("1000000: overwritten", MANY, |bench, number| bench.put(&row_of(mix(number) % MANY)));
    bench.timed("1000000: read", MANY, |bench, number| bench.get(&row_of(mix(number) % MANY), true));
    bench.timed("1000000: all visited", 3, |bench, _| {
        assert_eq!(bench.visit(slot, id, Direction::Forward, u64::MAX), MANY);
    });
}

fn scores(bench: &mut Bench) {
    let (slot, id) = bench.object(2);
    let row_of = |number: u64, scores: u64| {
        let mut element = (1 << 63 | ((mix(number) % scores) as f64).to_bits()).to_be_bytes().to_vec();
        element.extend_from_slice(format!("member:{:08}", mix(number) % 100_000_000).as_bytes());
        row::score_row(Space(0), slot, id, &element)
    };
    bench.timed("1000000 scores", MANY, |bench, number| bench.put(&row_of(number, u64::MAX)));
    let (slot, id) = bench.object(3);
    let row_of = |number: u64| {
        let member = format!("\0\0\0\0\0\0\0\0member:{:08}", mix(number) % 100_000_000);
        row::score_row(Space(0), slot, id, member.as_bytes())
    };
    bench.timed("1000000 members of one score", MANY, |bench, number| bench.put(&row_of(number)));
}

fn lists(bench: &mut Bench) {
    for (what, up) in [("right", true), ("left", false)] {
        let (slot, id) = bench.object(4);
        let row_of = move |number: u64| {
            let position = if up { (1u64 << 63) + (number << 16) } else { (1u64 << 63) - (number << 16) };
            row::data_row(Space(0), slot, id, &position.to_be_bytes())
        };
        bench.timed(&format!("list: pushed {what}"), MANY, |bench, number| bench.put(&row_of(number)));
        bench.timed("list: read", MANY, |bench, number| bench.get(&row_of(mix(number) % MANY), true));
    }
}

fn main() {
    let chosen = std::env::args().nth(1);
    let dir = std::env::temp_dir().join(format!("haypile-element-bench-{}", std::process::id()));
    type Case = fn(&mut Bench);
    let cases: [(&str, Case); 4] =
        [("objects", many_objects), ("one", one_object), ("scores", scores), ("lists", lists)];
    for (name, case) in cases {
        if chosen.as_deref().is_none_or(|chosen| chosen == name) {
            let mut bench = Bench::open(&dir);
            case(&mut bench);
            bench.store.close_without_flush().expect("closes");
            let _ = std::fs::remove_dir_all(&dir);
        }
    }
}
