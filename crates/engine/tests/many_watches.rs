//! WATCH of very many keys: one more costs the same, however many the client watches already.
#![cfg(not(feature = "shuttle"))]

mod server;

use rustix::time::{ClockId, clock_gettime};
use server::Server;
use std::time::Duration;

/// Names of one call: an event loop, which is the test's own thread here, works on so many at once.
const NAMES_PER_CALL: usize = 100;

const FEW: usize = 10_000;
const MANY: usize = 10 * FEW;

/// The bound of what a key costs among many, in those among few. A search through all of them costs ten times as much.
const RATIO_MAX: u32 = 5;

/// Runs of each, of which the shortest counts.
const RUNS: usize = 3;

/// Returns the processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Returns the processor time in which a client begins to watch `count` keys, call by call.
fn time_of_watching(count: usize) -> Duration {
    let mut server = Server::new();
    let calls: Vec<String> = (0..count)
        .step_by(NAMES_PER_CALL)
        .map(|first| {
            (first..first + NAMES_PER_CALL).fold("WATCH".into(), |call, number| format!("{call} key:{number}"))
        })
        .collect();
    let begin = thread_time();
    for call in &calls {
        assert_eq!(server.ask(0, call), "+OK");
    }
    let spent = thread_time() - begin;
    assert_eq!(server.info(0, "total_watched_keys"), count.to_string());
    spent
}

#[test]
fn a_watched_key_costs_the_same_among_many() {
    let shortest = |count| (0..RUNS).map(|_| time_of_watching(count)).min().expect("it runs");
    let (few, many) = (shortest(FEW), shortest(MANY));
    let bound = few * RATIO_MAX * (MANY / FEW) as u32;
    assert!(many < bound, "{FEW} keys take {few:?}, {MANY} keys {many:?}");
}
