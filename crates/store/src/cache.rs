//! The row cache: rows read from the base, present or absent, weighed in bytes, kept by S3-FIFO so that a scan does not
//! wash out what is hot. A miss takes the guard, reads the base *after* that, and fills; otherwise only the flush
//! touches the cache. An entry or a racing fill that the flush made stale is killed by `remove`.

use crate::access::{Access, Stamp, Touch};
use crate::memtable::Table;
use crate::row::{Family, Space};
use crate::value::Value;
use quick_cache::sync::{Cache, DefaultLifecycle, GuardResult, PlaceholderGuard};
use quick_cache::{DefaultHashBuilder, Equivalent, Weighter};
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A row as the base has it: `None` is absent.
pub type CachedRow = Option<Value>;

/// Bytes an entry takes besides key and value: the cache's slot and index, two blocks' counters.
const ENTRY_BYTES: u64 = 112;

/// The size of an average entry, by which the cache sizes its index.
const ENTRY_BYTES_GUESS: u64 = 256;

/// A row's key with the stamp of its last use, which takes the room that a vector's capacity would.
#[derive(Clone)]
pub struct CachedKey {
    row: Box<[u8]>,
    stamp: Stamp,
}

impl PartialEq for CachedKey {
    fn eq(&self, other: &Self) -> bool {
        self.row == other.row
    }
}

impl Eq for CachedKey {}

impl Hash for CachedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.row.hash(state);
    }
}

/// A row that is looked for. The cache calls `found` with the row's stamp under its own lock, so that a stamp costs no
/// lookup of its own.
struct Asked<'a, F: Fn(&Stamp)> {
    row: &'a [u8],
    found: F,
}

impl<F: Fn(&Stamp)> Hash for Asked<'_, F> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.row.hash(state);
    }
}

impl<F: Fn(&Stamp)> Equivalent<CachedKey> for Asked<'_, F> {
    #[inline]
    fn equivalent(&self, key: &CachedKey) -> bool {
        let is_it = *self.row == *key.row;
        if is_it {
            (self.found)(&key.stamp);
        }
        is_it
    }
}

#[derive(Clone)]
pub struct ByBytes;

impl Weighter<CachedKey, CachedRow> for ByBytes {
    fn weight(&self, key: &CachedKey, row: &CachedRow) -> u64 {
        key.row.len() as u64 + row.as_ref().map_or(0, |value| value.len() as u64) + ENTRY_BYTES
    }
}

type Lifecycle = DefaultLifecycle<CachedKey, CachedRow>;
type Inner = Cache<CachedKey, CachedRow, ByBytes, DefaultHashBuilder, Lifecycle>;

/// The right to fill one row.
pub type Fill<'a> = PlaceholderGuard<'a, CachedKey, CachedRow, ByBytes, DefaultHashBuilder, Lifecycle>;

/// The result of a look into the cache.
pub enum Cached<'a> {
    Hit(CachedRow),
    /// The row is not cached: the caller reads the base, then fills.
    Miss(Fill<'a>),
    /// The caller reads the base and does not fill, because another thread is filling, or the cache is off.
    Elsewhere,
}

pub struct RowCache {
    inner: Inner,
    /// The bound as it was set: the cache rounds it.
    bound: AtomicU64,
    /// Whether the cache is read and filled. The flush corrects it all the same: a fill may be in flight.
    is_on: AtomicBool,
    /// Whether the cache was ever filled. Until then the flush, which visits every row, has nothing to look for.
    is_used: AtomicBool,
    /// Whether a flush found keys here that the memtable holds, too: their stamps are those of the memtable once they
    /// leave it.
    has_flushed: AtomicBool,
    hits: AtomicU64,
    misses: AtomicU64,
    /// Rows that were taken over from the memtable.
    kept: AtomicU64,
}

impl RowCache {
    /// Returns a cache of at most `bytes`; 0 switches it off.
    pub fn new(bytes: u64) -> Self {
        let entries = (bytes / ENTRY_BYTES_GUESS).max(16) as usize;
        let inner = Cache::with(entries, bytes, ByBytes, DefaultHashBuilder::default(), Lifecycle::default());
        RowCache {
            inner,
            bound: AtomicU64::new(bytes),
            is_on: AtomicBool::new(bytes > 0),
            is_used: AtomicBool::new(false),
            has_flushed: AtomicBool::new(false),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            kept: AtomicU64::new(0),
        }
    }

    /// Returns a row, if it is cached.
    pub fn look(&self, row: &[u8], touch: &Touch<'_>) -> Cached<'_> {
        // The entry is peeked at, which does not count as its use: the caller is not going to read the row again.
        if !self.is_used() {
            return Cached::Elsewhere;
        }
        let asked = Asked { row, found: |stamp: &Stamp| stamp.touch(touch) };
        self.inner.peek(&asked).map_or(Cached::Elsewhere, Cached::Hit)
    }

    /// Returns the access of a key that is cached.
    pub fn access(&self, row: &[u8]) -> Option<Access> {
        let access = Cell::new(None);
        let found = self.is_used()
            && self.inner.contains_key(&Asked { row, found: |stamp: &Stamp| access.set(Some(stamp.get())) });
        access.get().filter(|_| found)
    }

    /// Returns whether the cache was ever filled.
    #[inline]
    fn is_used(&self) -> bool {
        self.is_used.load(Ordering::SeqCst)
    }

    /// Returns a row, on which `touch` is left, or the right to fill it, with the access `fresh`. Does not wait for
    /// another thread's fill of the row.
    pub fn get(&self, row: &[u8], touch: &Touch<'_>, fresh: Access) -> Cached<'_> {
        if !self.is_on.load(Ordering::Relaxed) {
            return Cached::Elsewhere;
        }
        if let Some(found) = self.inner.get(&Asked { row, found: |stamp: &Stamp| stamp.touch(touch) }) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Cached::Hit(found);
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        if !self.is_used() {
            // Set before the base is read: a flush that does not see it yet has ingested before that.
            self.is_used.store(true, Ordering::SeqCst);
        }
        let key = CachedKey { row: row.into(), stamp: Stamp::new(fresh) };
        match self.inner.get_value_or_guard(&key, Some(Duration::ZERO)) {
            GuardResult::Value(found) => Cached::Hit(found),
            GuardResult::Guard(fill) => Cached::Miss(fill),
            GuardResult::Timeout => Cached::Elsewhere,
        }
    }

    /// Corrects the cache after the flush has brought a new version of `row` into the base.
    pub fn on_flushed(&self, row: &[u8], value: Option<&[u8]>) {
        if !self.is_used() {
            return;
        }
        let replaced = self.access(row).is_some_and(|access| {
            let key = CachedKey { row: row.into(), stamp: Stamp::new(access) };
            self.inner.replace(key, value.map(Value::from), true).is_ok()
        });
        if !replaced {
            // A removal also kills the placeholder of a fill that read the base before this flush.
            self.inner.remove(&Asked { row, found: |_: &Stamp| {} });
        } else if Family::of(row) == Some(Family::Meta) && value.is_some() {
            self.has_flushed.store(true, Ordering::Relaxed);
        }
    }

    /// Drops all rows.
    pub fn clear(&self) {
        self.inner.clear();
    }

    /// Takes over what has left the memtable, `age` after it was frozen: the stamps of keys that are cached, and the
    /// rows of keys that were used since the freeze and that the memtable does not have newer. Only the flush's thread
    /// may call it, behind the correction of these rows and before that of the next generation's: so a row that is put
    /// here is the base's, or is corrected.
    pub fn on_unlinked(
        &self,
        tables: Vec<Arc<Table>>,
        is_dead: impl Fn(Space) -> bool,
        is_newer: impl Fn(&[u8]) -> bool,
        now_ms: u64,
        age: Duration,
    ) {
        let has_flushed = self.has_flushed.swap(false, Ordering::Relaxed);
        let keeps = self.is_on.load(Ordering::Relaxed) && age >= Access::PRECISION;
        if !has_flushed && !keeps {
            return;
        }
        for table in tables {
            for space in table.spaces().iter().filter(|space| !is_dead(**space)) {
                for entry in table.keys_in(*space) {
                    let Some(value) = entry.value() else { continue };
                    let (row, access) = (entry.row(), entry.stamp().get());
                    let is_kept = keeps && access.is_used_within(age, now_ms);
                    if !has_flushed && !is_kept {
                        continue;
                    }
                    let merge = |stamp: &Stamp| stamp.merge(access, now_ms);
                    let is_cached = self.inner.contains_key(&Asked { row, found: merge });
                    if is_kept && !is_cached && !is_newer(row) {
                        self.keep(row, value, access);
                    }
                }
            }
        }
    }

    fn keep(&self, row: &[u8], value: &[u8], access: Access) {
        self.is_used.store(true, Ordering::SeqCst);
        self.inner.insert(CachedKey { row: row.into(), stamp: Stamp::new(access) }, Some(Value::from(value)));
        // The row counts as used, so that the cache does not take it for one that was seen once.
        if self.inner.get(&Asked { row, found: |_: &Stamp| {} }).is_some() {
            self.kept.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the bytes in use and the bound, entries, rows that were taken over, hits and misses.
    pub fn figures(&self) -> [(&'static str, u64); 6] {
        [
            ("row_cache_bytes", self.inner.weight()),
            ("row_cache_bytes_max", self.inner.capacity()),
            ("row_cache_entries", self.inner.len() as u64),
            ("row_cache_kept_rows", self.kept.load(Ordering::Relaxed)),
            ("row_cache_hits", self.hits.load(Ordering::Relaxed)),
            ("row_cache_misses", self.misses.load(Ordering::Relaxed)),
        ]
    }

    /// Returns the bound.
    pub fn bytes_max(&self) -> u64 {
        self.bound.load(Ordering::Relaxed)
    }

    /// Changes the bound; 0 switches the cache off.
    pub fn set_bytes(&self, bytes: u64) {
        self.is_on.store(bytes > 0, Ordering::Relaxed);
        self.bound.store(bytes, Ordering::Relaxed);
        self.inner.set_capacity(bytes);
    }
}
