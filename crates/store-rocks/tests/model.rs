//! The store over RocksDB against plain maps: the same random transactions, flushes, reopens, crashes and faults that
//! the crate of the store runs over a base in memory. `HAYPILE_CASES` sets how many sequences each test runs.

mod contract;

use contract::Directory;
use haypile_log::Durability;
use haypile_store::testing::model::{Setup, Step, run};
use haypile_store_rocks::{Options, Rocks};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::sync::Arc;

fn check(faults: bool) {
    let cases = std::env::var("HAYPILE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(8);
    let config =
        ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 100, ..ProptestConfig::default() };
    let step = (any::<u8>(), any::<u32>()).prop_map(move |(kind, number)| Step::of(kind, number, faults));
    let result = TestRunner::new(config).run(&prop::collection::vec(step, 1..60), |steps| {
        let directory = Directory::new("model");
        let path = directory.path().to_path_buf();
        let setup = Setup {
            make_base: Box::new(move || Arc::new(Rocks::open(&path, Options::default()).expect("a base opens"))),
            durability: Durability::Os,
            memory_only: false,
            // A compaction may leave dead rows.
            reclaims_all: false,
        };
        run(setup, &steps);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn what_a_transaction_reads_is_what_was_written() {
    check(false);
}

#[test]
fn faults_and_crashes_lose_nothing_that_was_handed_to_the_system() {
    check(true);
}
