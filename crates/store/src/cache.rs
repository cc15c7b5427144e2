//! The row cache: rows read from the base, present or absent, weighed in bytes, kept by S3-FIFO so that a scan does not
//! wash out what is hot. A miss takes the guard, reads the base *after* that, and fills; only the flush touches it
//! otherwise, and an entry or a racing fill that the flush made stale is killed by `remove`.

use crate::value::Value;
use quick_cache::sync::{Cache, DefaultLifecycle, GuardResult, PlaceholderGuard};
use quick_cache::{DefaultHashBuilder, Weighter};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What the base said of a row: `None` is absent.
pub type CachedRow = Option<Value>;

/// Bytes an entry takes besides key and value: the cache's slot and index, two blocks' counters.
const ENTRY_BYTES: u64 = 112;

/// Average entry assumed when the cache sizes its index.
const ENTRY_BYTES_GUESS: u64 = 256;

#[derive(Clone)]
pub struct ByBytes;

impl Weighter<Vec<u8>, CachedRow> for ByBytes {
    fn weight(&self, key: &Vec<u8>, row: &CachedRow) -> u64 {
        key.len() as u64 + row.as_ref().map_or(0, |value| value.len() as u64) + ENTRY_BYTES
    }
}

type Lifecycle = DefaultLifecycle<Vec<u8>, CachedRow>;
type Inner = Cache<Vec<u8>, CachedRow, ByBytes, DefaultHashBuilder, Lifecycle>;

/// The right to fill one row.
pub type Fill<'a> = PlaceholderGuard<'a, Vec<u8>, CachedRow, ByBytes, DefaultHashBuilder, Lifecycle>;

/// What a look into the cache gives.
pub enum Cached<'a> {
    Hit(CachedRow),
    /// Read the base, then fill.
    Miss(Fill<'a>),
    /// Somebody else is filling, or the cache is off: read the base and leave it at that.
    Elsewhere,
}

pub struct RowCache {
    inner: Inner,
    /// Whether it is looked into and filled. The flush corrects it all the same: a fill may be under way.
    is_on: AtomicBool,
    /// A place in it was taken once. Until then the flush, which visits every row, has nothing to look for.
    is_used: AtomicBool,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl RowCache {
    /// A cache of at most `bytes`; 0 switches it off.
    pub fn new(bytes: u64) -> Self {
        let entries = (bytes / ENTRY_BYTES_GUESS).max(16) as usize;
        let inner = Cache::with(entries, bytes, ByBytes, DefaultHashBuilder::default(), Lifecycle::default());
        RowCache {
            inner,
            is_on: AtomicBool::new(bytes > 0),
            is_used: AtomicBool::new(false),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// A row, if it is here.
    pub fn look(&self, row: &[u8]) -> Cached<'_> {
        // Of no use as a hit: who asks this way is not going to read it again.
        if !self.is_used() {
            return Cached::Elsewhere;
        }
        self.inner.peek(row).map_or(Cached::Elsewhere, Cached::Hit)
    }

    /// Whether anything was ever filled.
    #[inline]
    fn is_used(&self) -> bool {
        self.is_used.load(Ordering::SeqCst)
    }

    /// A row, or the right to fill it. Does not wait for another who is filling it.
    pub fn get(&self, row: &[u8]) -> Cached<'_> {
        if !self.is_on.load(Ordering::Relaxed) {
            return Cached::Elsewhere;
        }
        if let Some(found) = self.inner.get(row) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Cached::Hit(found);
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        if !self.is_used() {
            // Before the base is read: a flush that does not see it yet has ingested before that.
            self.is_used.store(true, Ordering::SeqCst);
        }
        match self.inner.get_value_or_guard(row, Some(Duration::ZERO)) {
            GuardResult::Value(found) => Cached::Hit(found),
            GuardResult::Guard(fill) => Cached::Miss(fill),
            GuardResult::Timeout => Cached::Elsewhere,
        }
    }

    /// The flush has brought a new version of `row` into the base.
    pub fn on_flushed(&self, row: &[u8], value: Option<&[u8]>) {
        if !self.is_used() {
            return;
        }
        let replaced =
            self.inner.peek(row).is_some() && self.inner.replace(row.into(), value.map(Value::from), true).is_ok();
        if !replaced {
            // Also kills the placeholder of a fill that read the base before this flush.
            self.inner.remove(row);
        }
    }

    /// Bytes in use and the bound, entries, hits and misses.
    pub fn figures(&self) -> [(&'static str, u64); 5] {
        [
            ("row_cache_bytes", self.inner.weight()),
            ("row_cache_bytes_max", self.inner.capacity()),
            ("row_cache_entries", self.inner.len() as u64),
            ("row_cache_hits", self.hits.load(Ordering::Relaxed)),
            ("row_cache_misses", self.misses.load(Ordering::Relaxed)),
        ]
    }

    /// Changes the bound; 0 switches it off.
    pub fn set_bytes(&self, bytes: u64) {
        self.is_on.store(bytes > 0, Ordering::Relaxed);
        self.inner.set_capacity(bytes);
    }
}
