//! The synchronization primitives of the lock table, the exclusion and the I/O pool: those of std, or those of shuttle,
//! which tries many schedules, when the feature `shuttle` is on. And counts that never go below zero.

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, Ordering, fence},
};

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, Ordering, fence},
};

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Takes a mutex whose holders never panic between two consistent states.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A word on a cache line of its own, so that its writer disturbs nobody who reads its neighbours.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

/// Has this thread, one that may wait, look again after some time.
pub(crate) fn pause(_time: std::time::Duration) {
    #[cfg(feature = "shuttle")]
    shuttle::thread::yield_now();
    #[cfg(not(feature = "shuttle"))]
    std::thread::sleep(_time);
}

/// Tells the processor (or the scheduler under test) that this thread waits for another for a moment.
pub(crate) fn spin() {
    #[cfg(feature = "shuttle")]
    shuttle::thread::yield_now();
    #[cfg(not(feature = "shuttle"))]
    std::hint::spin_loop();
}

/// Lowers a count by as much as it was raised before; the count afterwards. Invariant: no count goes below zero.
#[inline]
pub fn lower(count: &AtomicUsize, by: usize) -> usize {
    let before = count.fetch_sub(by, Relaxed);
    assert!(before >= by, "a count never goes below zero: {before} less {by}");
    before - by
}

/// Lowers a sum of bytes by as much as it was raised before. Invariant: no sum goes below zero.
#[inline]
pub fn lower_bytes(sum: &AtomicU64, by: u64) {
    let before = sum.fetch_sub(by, Relaxed);
    debug_assert!(before >= by, "a sum never goes below zero: {before} less {by}");
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a count never goes below zero: 1 less 2")]
    fn a_count_below_zero_is_noticed() {
        assert_eq!(lower(&AtomicUsize::new(3), 2), 1);
        lower(&AtomicUsize::new(1), 2);
    }
}
