//! A list in parts of bounded length. A vector of hundreds of thousands of elements takes milliseconds to move all of
//! them into a larger one, and that is too long for an event loop; here an addition moves one part at most.

use std::iter::{Chain, Flatten};
use std::slice;

/// Elements of a part. So many queued commands are 56 KiB.
const PART_LEN: usize = 1024;

pub(crate) struct PartedList<T> {
    /// The parts that are full.
    ///
    /// Invariant: each has `PART_LEN` elements.
    full: Vec<Vec<T>>,
    /// The part behind them. The first part of a list grows as a vector does, so that a short list takes no more than
    /// one; the parts that follow have all their room from the beginning.
    last: Vec<T>,
}

/// The elements of a list, in order.
pub(crate) type Elements<'a, T> = Chain<Flatten<slice::Iter<'a, Vec<T>>>, slice::Iter<'a, T>>;

impl<T> Default for PartedList<T> {
    fn default() -> Self {
        PartedList { full: Vec::new(), last: Vec::new() }
    }
}

impl<T> PartedList<T> {
    pub fn len(&self) -> usize {
        self.full.len() * PART_LEN + self.last.len()
    }

    /// Adds an element at the end.
    #[inline]
    pub fn push(&mut self, element: T) {
        if self.last.len() == PART_LEN {
            self.begin_part();
        }
        self.last.push(element);
    }

    #[cold]
    fn begin_part(&mut self) {
        let full = std::mem::replace(&mut self.last, Vec::with_capacity(PART_LEN));
        assert_eq!(full.len(), PART_LEN, "only a full part is followed by another one");
        self.full.push(full);
    }

    #[inline]
    pub fn iter(&self) -> Elements<'_, T> {
        self.full.iter().flatten().chain(&self.last)
    }

    /// Returns the bytes of all parts, without what the elements hold elsewhere.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        let elements = self.full.len() * PART_LEN + self.last.capacity();
        elements * size_of::<T>() + self.full.capacity() * size_of::<Vec<T>>()
    }
}

impl<'a, T> IntoIterator for &'a PartedList<T> {
    type Item = &'a T;
    type IntoIter = Elements<'a, T>;

    fn into_iter(self) -> Elements<'a, T> {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_in_the_order_in_which_they_were_added() {
        let mut list = PartedList::default();
        for count in 0..3 * PART_LEN + 2 {
            assert_eq!(list.len(), count);
            if count % PART_LEN < 2 {
                assert!(list.iter().copied().eq(0..count), "{count}");
                assert_eq!((&list).into_iter().count(), count);
            }
            list.push(count);
        }
    }

    #[test]
    fn an_addition_moves_no_more_than_one_part() {
        let mut list = PartedList::default();
        let mut places: Vec<*const u64> = Vec::new();
        for element in 0..4 * PART_LEN as u64 {
            list.push(element);
            let moved = places.iter().zip(&list).filter(|(before, now)| !std::ptr::eq(**before, *now)).count();
            assert!(moved <= PART_LEN / 2, "{moved} of {element} elements have moved");
            places.clear();
            places.extend(list.iter().map(|element| element as *const u64));
        }
    }

    #[test]
    fn a_short_list_takes_what_a_vector_takes_and_a_long_one_a_part_more_at_most() {
        let (mut list, mut vector) = (PartedList::default(), Vec::new());
        for element in 0..PART_LEN as u64 {
            assert_eq!(list.memory_bytes(), vector.capacity() * size_of::<u64>(), "{element} elements");
            list.push(element);
            vector.push(element);
        }
        for element in PART_LEN as u64..10 * PART_LEN as u64 {
            list.push(element);
            let least = list.len() * size_of::<u64>();
            let most = least + PART_LEN * size_of::<u64>() + 16 * size_of::<Vec<u64>>();
            assert!((least..=most).contains(&list.memory_bytes()), "{} elements", list.len());
        }
    }
}
