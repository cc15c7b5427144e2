//! The counters of each event loop: plain words that only the loop writes, on cache lines of its own, summed up when
//! INFO asks. Also the histogram of reply times. Nothing here is shared on the hot path.

use crate::clients::statistics::{Calls, Rounds};
use crate::sync::lower_bytes;
use haypile_store::Lookups;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread adds to and others may read.
#[derive(Default, Debug)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to a number of the thread that owns it; no other one adds, so this need not be a locked instruction.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds to a number that several threads change.
    pub fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn subtract_shared(&self, n: u64) {
        lower_bytes(&self.0, n);
    }

    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Makes it `n` where it is less.
    #[inline]
    pub fn raise(&self, n: u64) {
        if self.get() < n {
            self.0.store(n, Ordering::Relaxed);
        }
    }

    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// An event loop's counters.
#[derive(Default)]
#[repr(align(128))]
pub struct Counters {
    pub commands: Count,
    pub error_replies: Count,
    pub connections: Count,
    pub rejected_connections: Count,
    /// Clients that were let in and whose handshakes over TLS failed.
    pub tls_handshakes_failed: Count,
    /// Clients that were closed because they had more under way than `client-query-buffer-limit`, or left more unread
    /// than `client-output-buffer-limit`.
    pub closed_at_input_limit: Count,
    pub closed_at_output_limit: Count,
    pub input_bytes: Count,
    pub output_bytes: Count,
    /// Reads and writes of sockets.
    pub reads: Count,
    pub writes: Count,
    /// Keys that were looked up to read their values, and were there or not.
    pub keyspace_hits: Count,
    pub keyspace_misses: Count,
    /// Turns of the loop in which replies left.
    pub ticks: Count,
    /// Commands that had to wait for rows from the disk.
    pub loads: Count,
    /// Commands that ran on the I/O pool.
    pub offloaded: Count,
    /// Commands that had to wait for another's key locks.
    pub lock_waits: Count,
    /// Writes that were slowed because the flush is behind.
    pub slowed: Count,
    /// Replies that had to wait for the log after the tick.
    pub gate_waits: Count,
    /// Times of commands that ran inline, from the read of their bytes to the write of their reply.
    pub inline_us: Histogram,
    /// Reply times of commands that waited for the disk, a lock or their turn.
    pub waited_us: Histogram,
    /// Waits of commands in nanoseconds, by `Wait`.
    pub(crate) waits_ns: [Histogram; 6],
    pub commands_by_id: Calls,
    pub rounds: Rounds,
}

impl Counters {
    /// Makes counters with those of commands whose ids are below `ids`.
    pub fn new(ids: usize) -> Counters {
        Counters { commands_by_id: Calls::new(ids), ..Counters::default() }
    }

    #[inline]
    pub fn add_lookups(&self, lookups: Lookups) {
        self.keyspace_hits.add(lookups.hits);
        self.keyspace_misses.add(lookups.misses);
    }

    /// Sets the counters back to zero that CONFIG RESETSTAT resets.
    pub fn reset(&self) {
        for count in [
            &self.commands,
            &self.error_replies,
            &self.connections,
            &self.rejected_connections,
            &self.tls_handshakes_failed,
            &self.closed_at_input_limit,
            &self.closed_at_output_limit,
            &self.input_bytes,
            &self.output_bytes,
            &self.reads,
            &self.writes,
            &self.keyspace_hits,
            &self.keyspace_misses,
            &self.ticks,
            &self.loads,
            &self.offloaded,
            &self.lock_waits,
            &self.slowed,
            &self.gate_waits,
        ] {
            count.reset();
        }
        self.inline_us.reset();
        self.waited_us.reset();
        self.waits_ns.iter().for_each(Histogram::reset);
        self.commands_by_id.reset();
        self.rounds.reset();
    }
}

/// Steps within each power of two: no bucket is wider than an eighth of its values.
const STEPS: usize = 8;
/// The number of buckets, which reach up to 2^40 of whatever is measured: eighteen minutes in nanoseconds.
const BUCKETS: usize = 38 * STEPS;

/// How often which time was seen, in buckets that grow with the time.
#[derive(Debug)]
pub struct Histogram {
    counts: Box<[Count]>,
    /// The sum of all values.
    sum: Count,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: (0..BUCKETS).map(|_| Count::default()).collect(), sum: Count::default() }
    }
}

impl Histogram {
    #[inline]
    pub fn add(&self, value: u64, times: u64) {
        self.counts[bucket_of(value)].add(times);
        self.sum.add(value.wrapping_mul(times));
    }

    pub(crate) fn reset(&self) {
        self.counts.iter().for_each(Count::reset);
        self.sum.reset();
    }
}

#[inline]
fn bucket_of(value: u64) -> usize {
    if value < STEPS as u64 {
        return value as usize;
    }
    let power = 63 - value.leading_zeros() as usize;
    let step = (value >> (power - 3)) as usize & (STEPS - 1);
    ((power - 2) * STEPS + step).min(BUCKETS - 1)
}

/// The largest value of a bucket.
fn top_of(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let (power, step) = (bucket / STEPS + 2, (bucket % STEPS) as u64);
    ((STEPS as u64 + step + 1) << (power - 3)) - 1
}

/// Several event loops' histograms together.
#[derive(Debug, Default)]
pub struct Distribution {
    counts: Vec<u64>,
    sum: u64,
}

impl Distribution {
    pub fn add(&mut self, histogram: &Histogram) {
        self.counts.resize(BUCKETS, 0);
        self.counts.iter_mut().zip(&histogram.counts).for_each(|(sum, count)| *sum += count.get());
        self.sum = self.sum.wrapping_add(histogram.sum.get());
    }

    /// The sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the number of values below `bound`, a power of two from 8 on.
    pub fn below(&self, bound: u64) -> u64 {
        self.counts.iter().take(bucket_of(bound)).sum()
    }

    /// The value that `percent` of all values do not exceed, at most an eighth too high; 0 if there are none.
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = (self.total() as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return top_of(bucket);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_are_narrow() {
        let mut last = 0;
        for value in (0..100_000).chain([1 << 20, (1 << 33) + 5]) {
            let bucket = bucket_of(value);
            assert!(bucket >= last, "{value}");
            assert!(value <= top_of(bucket) && top_of(bucket) <= value + value / 8, "{value}");
            last = bucket;
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_taken_over_all_loops() {
        let (one, two) = (Histogram::default(), Histogram::default());
        one.add(5, 98);
        two.add(1000, 2);
        let mut both = Distribution::default();
        both.add(&one);
        both.add(&two);
        assert_eq!((both.total(), both.percentile(50.0), both.percentile(98.0)), (100, 5, 5));
        assert!((1000..1125).contains(&both.percentile(99.0)));
        assert_eq!(Distribution::default().percentile(99.0), 0);
    }
}
