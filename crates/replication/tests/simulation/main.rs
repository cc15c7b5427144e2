//! A seeded simulation of servers that follow each other: stores over fake disks and bases in memory, a fake network,
//! and every step drawn from the seed. `HAYPILE_CASES` sets how many seeds are run, `HAYPILE_SEED` the first one; a
//! single one is told step by step.
//!
//! What decides is the product's own: the log, the store, the stream of records, frames and the choice between records
//! and a copy. What the server adds with threads and sockets is played by `cluster` and `link`.
//!
//! Every step is followed by a look at the nodes that it has changed (`truth`): no two of them have different records
//! at the same place, each holds what the records up to its last one have made, and what a client was told is on the
//! leader's way. In the end all are connected, and equal.

mod cluster;
mod link;
mod truth;

use cluster::Cluster;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Steps between the start and the end of one case.
const STEPS: u64 = 120;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The events that all cases together have come to: a simulation that never gets to them shows nothing.
#[derive(Default)]
struct Seen {
    records: AtomicU64,
    acknowledged: AtomicU64,
    promotions: AtomicU64,
    copies: AtomicU64,
    beyond: AtomicU64,
    partial: AtomicU64,
    power_losses: AtomicU64,
    /// Promotions of a node that is not in step any more: too rare for a least number of them.
    from_elsewhere: AtomicU64,
}

impl Seen {
    fn all(&self) -> [(&'static str, u64); 7] {
        let Seen { records, acknowledged, promotions, copies, beyond, partial, power_losses, .. } = self;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("records", of(records)),
            ("acknowledged", of(acknowledged)),
            ("promotions", of(promotions)),
            ("copies", of(copies)),
            ("beyond a fork", of(beyond)),
            ("partial resyncs", of(partial)),
            ("power losses", of(power_losses)),
        ]
    }
}

fn run(seed: u64, seen: &Seen, tells: bool) {
    let mut cluster = Cluster::new(seed, seen, tells);
    for _ in 0..STEPS {
        cluster.step();
    }
    cluster.settle();
}

#[test]
fn servers_agree_over_any_network() {
    let (first, count) = (number("HAYPILE_SEED").unwrap_or(0), number("HAYPILE_CASES").unwrap_or(60));
    let (next, seen) = (AtomicU64::new(first), Seen::default());
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let failed = std::thread::scope(|scope| {
        let work = || -> Option<u64> {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + count {
                    return None;
                }
                if catch_unwind(AssertUnwindSafe(|| run(seed, &seen, count == 1))).is_err() {
                    // The others end, too.
                    next.store(first + count, Ordering::Relaxed);
                    return Some(seed);
                }
            }
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().find_map(|thread| thread.join().expect("panics are caught"))
    });
    println!("{count} seeds from {first}: {:?}, {:?} promotions from elsewhere", seen.all(), seen.from_elsewhere);
    assert_eq!(failed, None, "HAYPILE_SEED of it and HAYPILE_CASES=1 show this case alone");
    for (name, times) in seen.all() {
        assert!(count == 1 || times >= count / 20, "it has hardly come to {name}: {times}");
    }
}
