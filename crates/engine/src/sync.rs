//! The synchronization primitives of the lock table, the exclusion and the I/O pool: those of std, or those of shuttle, which
//! tries many schedules, when the feature `shuttle` is on. Nothing else is kept here.

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
