//! Measures transactions: nanoseconds of CPU per operation on one thread, key hashing included, over a log on disk and
//! a base in memory. `cargo run --release -p haypile-store --example txn_bench [OPERATIONS [CASE]]`, a case as
//! `set:100000`.
//!
//! `own` is the calling thread's time, `all` that of all threads, the log's among them.

use haypile_store::base::Base;
use haypile_store::testing::{PLAIN, options};
use haypile_store::{Call, Counter, MemoryBase, Mode, Presence, Stop, Store, Txn, TxnBuffers};
use std::sync::Arc;

/// Commits between two ticks of the log, as 50 clients with 16 commands each.
const TICK: u64 = 800;

struct Clock {
    own_ns: u64,
    all_ns: u64,
}

impl Clock {
    fn now() -> Clock {
        let on_cpu = |path: &std::path::Path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
        };
        let tasks = std::fs::read_dir("/proc/self/task").expect("this is Linux");
        Clock {
            own_ns: on_cpu("/proc/thread-self/schedstat".as_ref()),
            all_ns: tasks.filter_map(Result::ok).map(|task| on_cpu(&task.path().join("schedstat"))).sum(),
        }
    }
}

struct Bench {
    store: Arc<Store>,
    buffers: TxnBuffers,
    random: u64,
    ticks: u64,
    count: u64,
}

/// Returns `key:` and twelve digits, as redis-benchmark names its keys.
fn name(number: u64) -> [u8; 16] {
    let mut name = *b"key:000000000000";
    let mut rest = number;
    for digit in name[4..].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    name
}

impl Bench {
    fn number(&mut self, keys: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % keys
    }

    fn run(&mut self, what: &str, keys: u64, operation: impl Fn(&mut Bench, &[u8])) {
        for round in 0..2 {
            let before = Clock::now();
            for _ in 0..self.count {
                let name = name(self.number(keys));
                operation(self, &name);
            }
            let after = Clock::now();
            if round == 1 {
                let per_operation = |ns: u64| ns as f64 / self.count as f64;
                let (own, all) =
                    (per_operation(after.own_ns - before.own_ns), per_operation(after.all_ns - before.all_ns));
                println!("{what:32} {keys:>8} keys  own {own:6.0} ns  all {all:6.0} ns");
            }
        }
    }

    /// Draws a key and does nothing with it: the cost to subtract from the other cases.
    fn nothing(&mut self, name: &[u8]) {
        std::hint::black_box(name);
    }

    fn call(&self) -> Call<'static> {
        Call { now_ms: 1, seed: 1, database: 0, mode: Mode::Memory, pins: None }
    }

    fn get(&mut self, name: &[u8]) {
        let mut txn = self.store.begin(std::mem::take(&mut self.buffers), self.call());
        let key = txn.key(name);
        std::hint::black_box(txn.use_meta(&key).expect("in memory"));
        self.buffers = txn.finish();
    }

    fn set(&mut self, name: &[u8]) {
        let mut txn = self.store.begin(std::mem::take(&mut self.buffers), self.call());
        let key = txn.key(name);
        if txn.presence(&key).expect("in memory") == Presence::Absent {
            txn.count(key.space, Counter::Keys, 1);
            txn.count(key.space, Counter::Strings, 1);
        }
        txn.put_meta(&key, &[&PLAIN, &[b'x'; 128]]).expect("small");
        committed(&mut txn);
        self.buffers = txn.finish();
        self.tick();
    }

    fn incr(&mut self, name: &[u8]) {
        let mut txn = self.store.begin(std::mem::take(&mut self.buffers), self.call());
        let key = txn.key(name);
        let number = match txn.use_meta(&key).expect("in memory") {
            Some(value) => value.get(2..10).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes),
            None => {
                txn.count(key.space, Counter::Keys, 1);
                0
            }
        };
        txn.put_meta(&key, &[&PLAIN, &(number + 1).to_be_bytes()]).expect("small");
        committed(&mut txn);
        self.buffers = txn.finish();
        self.tick();
    }

    fn tick(&mut self) {
        self.ticks += 1;
        if self.ticks.is_multiple_of(TICK) {
            self.store.log().write();
            while self.store.pressure() != haypile_store::WritePressure::Go {
                std::thread::yield_now();
            }
        }
    }
}

/// Commits. Where the log waits for its disk, an event loop would hand the command to the I/O pool; here the thread
/// waits.
fn committed(txn: &mut Txn<'_>) {
    loop {
        match txn.commit() {
            Ok(_) => return,
            Err(Stop::Long) => std::thread::yield_now(),
            Err(stop) => panic!("{stop:?}"),
        }
    }
}

fn main() {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(2_000_000);
    let dir = std::env::temp_dir().join(format!("haypile-txn-bench-{}", std::process::id()));
    let only = std::env::args().nth(2);
    let mut cases = vec![("nothing", 1_000_000)];
    // A thousand keys fit the CPU's own caches, so that their time is work; with more keys, it is mostly the memory's
    // latency.
    cases.extend(["get", "set", "incr"].into_iter().flat_map(|what| [(what, 1_000), (what, 100_000)]));
    cases.push(("set", 1_000_000));
    for (what, keys) in cases {
        if only.as_ref().is_some_and(|only| *only != format!("{what}:{keys}")) {
            continue;
        }
        let mut options = options(&dir);
        options.log.segment_bytes = 64 << 20;
        // Nothing is flushed: the base's own time is no part of this measurement.
        (options.memtable_bytes, options.flush_log_bytes) = (1 << 30, 8 << 30);
        (options.row_cache_bytes, options.presence_bytes) = (64 << 20, 16 << 20);
        let base: Arc<dyn Base> = Arc::new(MemoryBase::default());
        let store = Store::open(options, base, |_| {}).expect("a fresh directory opens");
        let mut bench =
            Bench { store, buffers: TxnBuffers::default(), random: 88_172_645_463_325_252, ticks: 0, count };
        if what == "get" {
            for number in 0..keys {
                bench.set(&name(number));
            }
        }
        match what {
            "get" => bench.run("GET (meta)", keys, Bench::get),
            "set" => bench.run("SET (presence, put_meta, commit)", keys, Bench::set),
            "incr" => bench.run("INCR (meta, put_meta, commit)", keys, Bench::incr),
            _ => bench.run("drawing a key", keys, Bench::nothing),
        }
        bench.store.close().expect("the log can be written");
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }
}
