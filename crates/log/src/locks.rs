//! The two locks of a log, in their order: a thread that has the second one takes no first one. A build with debug
//! assertions checks that for each thread; in others these are plain mutexes.

use crate::budget::Padded;
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};

/// The lock that is taken first.
pub(crate) struct First<T>(Mutex<T>);

/// The lock that is taken second, or alone.
pub(crate) struct Second<T>(Padded<Mutex<T>>);

/// The second lock, held.
pub(crate) struct SecondGuard<'l, T> {
    guard: MutexGuard<'l, T>,
    #[cfg(debug_assertions)]
    _noted: Noted,
}

impl<T> First<T> {
    pub fn new(value: T) -> First<T> {
        First(Mutex::new(value))
    }

    /// Takes the lock.
    ///
    /// # Panics
    /// With debug assertions, where the thread holds the second lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(debug_assertions)]
        assert!(!Noted::is_there(), "`state` is locked before `queue`, never behind it");
        self.0.lock()
    }
}

impl<T> Second<T> {
    pub fn new(value: T) -> Second<T> {
        Second(Padded(Mutex::new(value)))
    }

    #[inline]
    pub fn lock(&self) -> SecondGuard<'_, T> {
        SecondGuard {
            guard: self.0.lock(),
            #[cfg(debug_assertions)]
            _noted: Noted::note(),
        }
    }
}

impl<T> Deref for SecondGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for SecondGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(debug_assertions)]
std::thread_local! {
    /// The number of second locks that the thread holds.
    static HELD: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// Counts a second lock among those that its thread holds, as long as it lives.
#[cfg(debug_assertions)]
struct Noted(std::marker::PhantomData<*const ()>);

#[cfg(debug_assertions)]
impl Noted {
    fn note() -> Noted {
        HELD.set(HELD.get() + 1);
        Noted(std::marker::PhantomData)
    }

    fn is_there() -> bool {
        HELD.get() > 0
    }
}

#[cfg(debug_assertions)]
impl Drop for Noted {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn the_second_lock_is_taken_behind_the_first_one_or_alone() {
        let (first, second) = (First::new(1), Second::new(2));
        let held = first.lock();
        assert_eq!(*held + *second.lock(), 3);
        drop(held);
        *second.lock() = 3;
        assert_eq!(*first.lock(), 1, "the second lock was given back");
    }

    #[test]
    #[should_panic = "`state` is locked before `queue`"]
    fn the_first_lock_is_not_taken_behind_the_second_one() {
        let (first, second) = (First::new(1), Second::new(2));
        let _held = second.lock();
        let _behind = first.lock();
    }
}
