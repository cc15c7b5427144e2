//! The usage of this node by the clients of each user, for the limits of its rules (`rate=`, `bandwidth=`, `memory=`,
//! `connections=`).
//!
//! Every client sits on a seat of its user, by which connections are counted. The rest is counted for users with limits
//! only, whose sessions have the bit `LIMITED`: each call takes of two buckets, which are words that all event loops
//! change without a lock.

use crate::clients::statistics::counters::Count;
use crate::sync::Mutex;
use haypile_acl::Limits;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A bucket holds what its user may take in this time.
const BURST_NS: u64 = 1_000_000_000;

/// The longest wait for what was taken too much, in nanoseconds: one large reply, or messages that others send.
const DEBT_NS_MAX: u64 = 60 * 1_000_000_000;

/// Something that fills up steadily, and holds what a second brings. It may be taken of while there is any: who takes
/// more than there is has those behind wait for longer.
#[derive(Debug, Default)]
struct Bucket {
    /// The time by which all that was taken will have come in.
    paid_ns: AtomicU64,
}

impl Bucket {
    /// The time until something may be taken; zero if it is now.
    fn wait_ns(&self, now_ns: u64) -> u64 {
        (self.paid_ns.load(Ordering::Relaxed) + 1).saturating_sub(now_ns + BURST_NS)
    }

    /// Takes so much, of which `per_second` come in, if something may be taken.
    ///
    /// # Errors
    /// The time until then.
    fn take(&self, amount: u64, per_second: u64, now_ns: u64) -> Result<(), u64> {
        loop {
            let paid_ns = self.paid_ns.load(Ordering::Relaxed);
            let wait_ns = self.wait_ns(now_ns);
            if wait_ns > 0 {
                return Err(wait_ns);
            }
            let next = later(paid_ns, amount, per_second, now_ns);
            if self.paid_ns.compare_exchange_weak(paid_ns, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Ok(());
            }
        }
    }

    /// Takes so much, whatever there is.
    fn charge(&self, amount: u64, per_second: u64, now_ns: u64) {
        let next = |paid_ns| Some(later(paid_ns, amount, per_second, now_ns));
        self.paid_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).expect("it always changes");
    }
}

/// The time by which so much more will have come in.
fn later(paid_ns: u64, amount: u64, per_second: u64, now_ns: u64) -> u64 {
    let takes_ns = u128::from(amount) * 1_000_000_000 / u128::from(per_second.max(1));
    let takes_ns = u64::try_from(takes_ns).unwrap_or(u64::MAX);
    paid_ns.max(now_ns).saturating_add(takes_ns).min(now_ns + BURST_NS + DEBT_NS_MAX)
}

/// The usage of the node by the clients of a user.
#[derive(Debug)]
pub(crate) struct Usage {
    pub user: Arc<[u8]>,
    since: Instant,
    connections: AtomicU64,
    /// Bytes of connections whose user has a limit of memory.
    memory: AtomicU64,
    calls: Bucket,
    bytes: Bucket,
    /// Calls that ran, and bytes of requests and replies.
    pub called: Count,
    pub moved_bytes: Count,
    /// Calls that had to wait, each second of a longer wait anew, and calls that were refused.
    pub delayed: Count,
    pub refused: Count,
    pub delayed_us: Count,
    /// Logins, and calls of clients without a seat, that were refused.
    pub turned_away: Count,
    /// Clients that were closed for want of memory.
    pub closed: Count,
    /// The lock of a look for clients to close: two event loops at once would close more than have to be.
    pub closing: Mutex<()>,
}

/// The limit that a call has come upon, and the time until it may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsedUp {
    pub what: &'static str,
    pub wait: Duration,
}

impl Usage {
    pub fn new(user: Arc<[u8]>) -> Usage {
        Usage {
            user,
            since: Instant::now(),
            connections: AtomicU64::new(0),
            memory: AtomicU64::new(0),
            calls: Bucket::default(),
            bytes: Bucket::default(),
            called: Count::default(),
            moved_bytes: Count::default(),
            delayed: Count::default(),
            refused: Count::default(),
            delayed_us: Count::default(),
            turned_away: Count::default(),
            closed: Count::default(),
            closing: Mutex::default(),
        }
    }

    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    pub fn memory(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }

    fn now_ns(&self) -> u64 {
        self.since.elapsed().as_nanos() as u64
    }

    /// Takes a call whose request has so many bytes.
    ///
    /// # Errors
    /// A limit is used up; nothing was taken.
    pub fn take_call(&self, limits: &Limits, request_bytes: usize) -> Result<(), UsedUp> {
        let now_ns = self.now_ns();
        let used_up = |what, wait_ns| UsedUp { what, wait: Duration::from_nanos(wait_ns) };
        if limits.bandwidth > 0 {
            let wait_ns = self.bytes.wait_ns(now_ns);
            if wait_ns > 0 {
                return Err(used_up("bandwidth", wait_ns));
            }
        }
        if limits.rate > 0 {
            self.calls.take(1, limits.rate, now_ns).map_err(|wait_ns| used_up("rate", wait_ns))?;
        }
        self.called.add_shared(1);
        self.charge_at(limits, request_bytes, now_ns);
        Ok(())
    }

    /// Charges a call that is let through in any case.
    pub fn charge_call(&self, limits: &Limits, request_bytes: usize) {
        let now_ns = self.now_ns();
        if limits.rate > 0 {
            self.calls.charge(1, limits.rate, now_ns);
        }
        self.called.add_shared(1);
        self.charge_at(limits, request_bytes, now_ns);
    }

    /// Charges bytes of replies or messages.
    pub fn charge(&self, limits: &Limits, bytes: usize) {
        if bytes > 0 {
            self.charge_at(limits, bytes, self.now_ns());
        }
    }

    fn charge_at(&self, limits: &Limits, bytes: usize, now_ns: u64) {
        self.moved_bytes.add_shared(bytes as u64);
        if limits.bandwidth > 0 {
            self.bytes.charge(bytes as u64, limits.bandwidth, now_ns);
        }
    }

    pub fn reset_counts(&self) {
        let all = [&self.called, &self.moved_bytes, &self.delayed, &self.refused, &self.delayed_us];
        all.into_iter().chain([&self.turned_away, &self.closed]).for_each(Count::reset);
    }
}

/// A client's place among those of its user; it is given up when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    pub usage: Arc<Usage>,
    /// Bytes of the client that are counted for its user.
    bytes: AtomicUsize,
}

impl Seat {
    /// Takes a seat, unless `connections_max` are taken; 0 is no bound.
    pub fn take(usage: &Arc<Usage>, connections_max: u64) -> Option<Arc<Seat>> {
        let next = |taken| (connections_max == 0 || taken < connections_max).then_some(taken + 1);
        usage.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(Arc::new(Seat { usage: usage.clone(), bytes: AtomicUsize::new(0) }))
    }

    /// Sets the bytes of the client; returns those of all clients of the user. Called by the client's event loop.
    pub fn set_bytes(&self, bytes: usize) -> u64 {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        let change = (bytes as u64).wrapping_sub(before as u64);
        self.usage.memory.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.set_bytes(0);
        let before = self.usage.connections.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a seat is given up once");
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_bucket_holds_what_a_second_brings() {
        let bucket = Bucket::default();
        let mut now_ns = 5 * SECOND;
        let taken = |now_ns| (0..1000).take_while(|_| bucket.take(1, 100, now_ns).is_ok()).count();
        assert_eq!(taken(now_ns), 100, "nobody has taken anything for long");
        assert_eq!(bucket.take(1, 100, now_ns), Err(1));
        now_ns += SECOND / 2;
        assert_eq!(taken(now_ns), 50);
        now_ns += 100 * SECOND;
        assert_eq!(taken(now_ns), 100, "what is not taken is gone");
        // A thousand calls a second for a minute.
        let mut all = 0;
        for _ in 0..60_000 {
            now_ns += SECOND / 1000;
            all += usize::from(bucket.take(1, 100, now_ns).is_ok());
        }
        assert_eq!(all, 6000);
    }

    #[test]
    fn what_was_too_much_is_waited_for() {
        let (bucket, now_ns) = (Bucket::default(), 5 * SECOND);
        bucket.charge(500, 100, now_ns);
        assert_eq!(bucket.wait_ns(now_ns), 4 * SECOND + 1);
        assert_eq!(bucket.wait_ns(now_ns + 4 * SECOND), 1);
        assert_eq!(bucket.wait_ns(now_ns + 4 * SECOND + 1), 0);
        bucket.charge(u64::MAX, 1, now_ns);
        assert_eq!(bucket.wait_ns(now_ns), DEBT_NS_MAX + 1, "no overflow, and not for ever");
    }

    #[test]
    fn seats_are_counted_and_given_up() {
        let usage = Arc::new(Usage::new(Arc::from(&b"u"[..])));
        let seats: Vec<_> = (0..3).filter_map(|_| Seat::take(&usage, 2)).collect();
        assert_eq!((seats.len(), usage.connections()), (2, 2));
        assert!(Seat::take(&usage, 0).is_some());
        assert_eq!((seats[0].set_bytes(100), seats[1].set_bytes(50), seats[0].set_bytes(70)), (100, 150, 120));
        drop(seats);
        assert_eq!((usage.connections(), usage.memory()), (0, 0));
    }
}
