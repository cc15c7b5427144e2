//! Stores for tests, here and in the crates above: in memory, in a temporary directory, with a base that can pretend to
//! be cold or fail (`FaultBase`), and a machine on which a store is run against a plain map while it is flushed,
//! reopened, killed and denied its disk (`model`), and pairs of which one store follows the other (`pair`, `unowned`).

mod base;
pub mod model;
mod mortal;
pub mod node;
pub mod pair;
pub mod unowned;
mod world;

pub use base::FaultBase;
pub use mortal::MortalFiles;

use crate::base::Base;
use crate::base::memory::MemoryBase;
use crate::open::OpenError;
use crate::options::{DiskFree, StoreOptions};
use crate::store::Store;
use std::path::Path;
use std::sync::Arc;

/// The first bytes of plain meta rows in stores of tests, those of the types among them.
pub const PLAIN: [u8; 2] = [1, 0];

/// Returns options with small sizes: generations fill after a few hundred rows.
pub fn options(dir: &Path) -> StoreOptions {
    let mut log = haypile_log::Options::new(dir.join("log"));
    log.segment_bytes = 1 << 20;
    StoreOptions {
        log,
        databases: 16,
        memtable_bytes: 1 << 20,
        flush_log_bytes: 4 << 20,
        row_cache_bytes: 1 << 20,
        lends: false,
        presence_bytes: 64 << 10,
        txn_bytes_max: 8 << 20,
        blind_set: false,
        memory_only: false,
        in_group: false,
        disk_free_min_bytes: 0,
        disk_free: DiskFree(Arc::new(|| None)),
        reserve: None,
        plain: PLAIN,
        hash_seed: 0x5eed,
    }
}

/// Opens a store whose log is in `dir` and whose base is in memory.
pub fn store_in(dir: &Path, base: Arc<dyn Base>) -> Result<Arc<Store>, OpenError> {
    std::fs::create_dir_all(dir.join("log")).map_err(|error| OpenError(error.to_string()))?;
    Store::open(options(dir), base, |_| {})
}

/// Blocks until the store has given back all room that it knows to be dead.
pub fn wait_for_reclaims(store: &Store) {
    store.reclaimer.wait_until_idle();
}

/// A store with its log and its base; the directory is removed with it.
pub struct TestStore {
    pub store: Arc<Store>,
    pub base: Arc<MemoryBase>,
    dir: std::path::PathBuf,
}

/// Returns a fresh store over a memory base.
pub fn memory_store() -> TestStore {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("haypile-store-{}-{count}", std::process::id()));
    let base = Arc::new(MemoryBase::default());
    let store = store_in(&dir, base.clone()).expect("a fresh directory opens");
    TestStore { store, base, dir }
}

impl TestStore {
    /// Returns the directory of the store's log, and of the rows that a command spools.
    pub fn log_dir(&self) -> std::path::PathBuf {
        self.dir.join("log")
    }
}

impl std::ops::Deref for TestStore {
    type Target = Arc<Store>;
    fn deref(&self) -> &Arc<Store> {
        &self.store
    }
}

impl Drop for TestStore {
    fn drop(&mut self) {
        let _ = self.store.close();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
