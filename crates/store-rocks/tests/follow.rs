//! A leader and a store that follows its log, both over RocksDB: the sequences that the crate of the store runs over
//! bases in memory, with the compactions and the filter of this base. A follower begins with a checkpoint, in files
//! that both share. `HAYPILE_CASES` sets how many sequences each test runs.

mod contract;

use contract::Directory;
use haypile_store::base::Base;
use haypile_store::testing::node::{Bases, OpenBase};
use haypile_store::testing::{pair, unowned};
use haypile_store_rocks::{Options, Rocks};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bases in a directory, each in one of its own.
struct RocksBases {
    directory: Directory,
    count: AtomicU64,
}

impl RocksBases {
    fn new() -> RocksBases {
        RocksBases { directory: Directory::new("follow"), count: AtomicU64::new(0) }
    }

    fn next(&self) -> PathBuf {
        self.directory.path().join(self.count.fetch_add(1, Ordering::Relaxed).to_string())
    }
}

/// Opens what is there. With so few files to a level that compactions of its own come often.
fn opens(path: PathBuf) -> OpenBase {
    Arc::new(move || {
        let options = Options { cache_bytes: 4 << 20, level0_files: 2, ..Options::default() };
        Arc::new(Rocks::open(&path, options).expect("a base opens"))
    })
}

impl Bases for RocksBases {
    fn fresh(&self) -> OpenBase {
        opens(self.next())
    }

    fn copy_of(&self, base: &dyn Base) -> OpenBase {
        let path = self.next();
        base.checkpoint(&path).expect("a checkpoint is made");
        opens(path)
    }
}

/// How many sequences a test runs.
fn cases(usual: u64) -> u64 {
    std::env::var("HAYPILE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

#[test]
fn a_follower_holds_what_its_leader_held_at_the_same_index() {
    (0..cases(12)).for_each(|seed| drop(pair::run(&RocksBases::new(), seed)));
}

#[test]
fn a_compaction_of_a_follower_drops_nothing_that_its_leader_has() {
    let mut seen = unowned::Seen::default();
    for seed in 0..cases(10) {
        let of_seed = unowned::run(&RocksBases::new(), seed);
        seen.ahead += of_seed.ahead;
        seen.dropped += of_seed.dropped;
    }
    assert!(seen.ahead > 50 && seen.dropped > 50, "it has not come to it: {seen:?}");
}
