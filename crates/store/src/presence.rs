//! What a plain SET has to know of a key that it overwrites, without reading it: that the base holds it as an inline
//! string without a deadline. Eight bytes for each such key, where the row would take hundreds.
//!
//! A set of 64-bit fingerprints, lossy: who is not in it is looked up in the base. It never claims what is not so, but for
//! two keys with the same 64-bit keyed hash (less likely, for each look, than an undetected memory error). Coherent
//! because the flush corrects it before it takes the frozen rows out of sight, and a reader asks the memtable first.

use crate::memtable::TOGETHER_MAX;
use smallvec::SmallVec;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Fingerprints in one cache line.
const WAYS: usize = 8;

#[repr(align(64))]
#[derive(Default)]
struct Bucket([AtomicU64; WAYS]);

pub struct Presence {
    buckets: Box<[Bucket]>,
    seed: u64,
    /// Which way goes next when a bucket is full.
    hand: AtomicUsize,
}

impl Presence {
    /// A set of at most `bytes`.
    pub fn new(bytes: u64, seed: u64) -> Self {
        let buckets = (bytes as usize / size_of::<Bucket>()).max(1);
        Presence { buckets: (0..buckets).map(|_| Bucket::default()).collect(), seed, hand: AtomicUsize::new(0) }
    }

    fn place(&self, row: &[u8]) -> (&Bucket, u64) {
        let hash = xxhash_rust::xxh3::xxh3_128_with_seed(row, self.seed);
        let bucket = ((hash >> 64) as u64 as u128 * self.buckets.len() as u128) >> 64;
        // 0 marks an empty way.
        (&self.buckets[bucket as usize], (hash as u64).max(1))
    }

    /// Whether the base is known to hold the meta row `row` as a plain string.
    pub fn contains(&self, row: &[u8]) -> bool {
        let (bucket, print) = self.place(row);
        bucket.0.iter().any(|way| way.load(Ordering::Relaxed) == print)
    }

    /// Brings what looks at these rows need into the CPU's caches, all together.
    pub fn prefetch(&self, rows: impl Iterator<Item = impl AsRef<[u8]>>) {
        let buckets: SmallVec<[&Bucket; TOGETHER_MAX]> = rows.map(|row| self.place(row.as_ref()).0).collect();
        black_box(buckets.iter().map(|bucket| bucket.0[0].load(Ordering::Relaxed)).fold(0, u64::wrapping_add));
    }

    /// The base holds it. Called by the flush for what it has ingested, before the frozen rows go, and by who has just read
    /// it from the base under the key's lock.
    pub fn insert(&self, row: &[u8]) {
        let (bucket, print) = self.place(row);
        let mut empty = None;
        for (way, held) in bucket.0.iter().enumerate() {
            match held.load(Ordering::Relaxed) {
                held if held == print => return,
                0 => empty = Some(way),
                _ => {}
            }
        }
        let way = empty.unwrap_or_else(|| self.hand.fetch_add(1, Ordering::Relaxed) % WAYS);
        bucket.0[way].store(print, Ordering::Relaxed);
    }

    /// The base holds it no more, or not as a plain string.
    pub fn remove(&self, row: &[u8]) {
        let (bucket, print) = self.place(row);
        for way in &bucket.0 {
            let _ = way.compare_exchange(print, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.buckets) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_was_put_and_forgets_what_was_taken() {
        let presence = Presence::new(1 << 20, 7);
        let rows: Vec<[u8; 4]> = (0u32..10_000).map(u32::to_be_bytes).collect();
        rows.iter().for_each(|row| presence.insert(row));
        assert!(rows.iter().all(|row| presence.contains(row)));
        rows.iter().step_by(2).for_each(|row| presence.remove(row));
        assert!(rows.iter().enumerate().all(|(at, row)| presence.contains(row) == (at % 2 == 1)));
    }

    #[test]
    fn a_full_one_forgets_but_never_claims() {
        let presence = Presence::new(1024, 7);
        (0u32..10_000).for_each(|row| presence.insert(&row.to_be_bytes()));
        assert!((0u32..10_000).filter(|row| presence.contains(&row.to_be_bytes())).count() <= 128);
        assert!((10_000u32..1_000_000).all(|row| !presence.contains(&row.to_be_bytes())));
    }
}
