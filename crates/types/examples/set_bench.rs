//! Measures the cost of a random member: SPOP and SRANDMEMBER of a set of a million in memory, by steps.
//!
//! `cargo run --release -p haypile-types --example set_bench`

use haypile_store::testing::options;
use haypile_store::{Call, MemoryBase, Mode, Store, StoreOptions, TxnBuffers};
use haypile_types::key;
use haypile_types::set::draw;
use haypile_types::set::{self, Set};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const MEMBERS: u64 = 1_000_000;
const TIMES: u64 = 200_000;

fn main() {
    let dir = std::env::temp_dir().join(format!("haypile-set-bench-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("log")).expect("the temporary directory is writable");
    let large = StoreOptions { memtable_bytes: 1 << 30, flush_log_bytes: 1 << 40, ..options(&dir) };
    let db = Store::open(large, Arc::new(MemoryBase::default()), |_| {}).expect("a fresh directory opens");
    let call = |seed| Call { now_ms: 1, seed, database: 0, mode: Mode::Disk, pins: None };
    let mut buffers = TxnBuffers::default();
    for part in 0..MEMBERS / 1000 {
        let members: Vec<Vec<u8>> = (0..1000).map(|i| format!("member:{:08}", part * 1000 + i).into_bytes()).collect();
        let mut txn = db.begin(buffers, call(0));
        let key = txn.key(b"myset");
        let entry = key::lookup_write(&mut txn, &key).expect("reads");
        set::add(&mut txn, &key, entry, members.iter().map(Vec::as_slice)).expect("adds");
        txn.commit().expect("commits");
        buffers = txn.finish();
    }
    let mut measure = |name: &str, what: fn(&mut haypile_store::Txn<'_>)| {
        let begun = Instant::now();
        for seed in 0..TIMES {
            let mut txn = db.begin(std::mem::take(&mut buffers), call(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            what(&mut txn);
            txn.commit().expect("commits");
            buffers = txn.finish();
            if seed % 64 == 0 {
                db.log().write();
            }
        }
        println!("{name:<20} {:>6} ns", begun.elapsed().as_nanos() as u64 / TIMES);
    };
    measure("SCARD", |txn| {
        let key = txn.key(b"myset");
        black_box(Set::lookup(txn, &key).expect("reads"));
    });
    measure("SRANDMEMBER", |txn| {
        let key = txn.key(b"myset");
        let set = Set::lookup(txn, &key).expect("reads").expect("is there");
        black_box(draw::draw(txn, set).expect("draws"));
    });
    measure("SPOP", |txn| {
        let key = txn.key(b"myset");
        let set = Set::lookup(txn, &key).expect("reads").expect("is there");
        black_box(draw::pop(txn, &key, set).expect("pops"));
    });
    db.close().expect("closes");
    let _ = std::fs::remove_dir_all(&dir);
}
