//! The store against plain maps: random transactions between flushes, reopens, crashes and faults.
//! `HAYPILE_CASES` sets how many sequences each test runs. A failing one is printed, as small as it could be made.

use haypile_log::Durability;
use haypile_store::MemoryBase;
use haypile_store::testing::model::{Setup, Step, run};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::sync::Arc;

fn setup(durability: Durability, memory_only: bool) -> Setup {
    let base = Arc::new(MemoryBase::default());
    Setup { make_base: Box::new(move || base.clone()), durability, memory_only, reclaims_all: true }
}

fn check(durability: Durability, memory_only: bool, faults: bool) {
    let cases = std::env::var("HAYPILE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(60);
    let config =
        ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 400, ..ProptestConfig::default() };
    let step = (any::<u8>(), any::<u32>()).prop_map(move |(kind, number)| Step::of(kind, number, faults));
    let result = TestRunner::new(config).run(&prop::collection::vec(step, 1..60), |steps| {
        run(setup(durability, memory_only), &steps);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn what_a_transaction_reads_is_what_was_written() {
    check(Durability::Os, false, false);
}

#[test]
fn without_a_base_everything_is_the_same_and_nothing_dead_stays() {
    check(Durability::Os, true, false);
}

#[test]
fn faults_and_crashes_lose_nothing_that_was_handed_to_the_system() {
    check(Durability::Os, false, true);
}

#[test]
fn faults_and_power_failures_lose_nothing_that_was_synced() {
    check(Durability::Fsync, false, true);
}
