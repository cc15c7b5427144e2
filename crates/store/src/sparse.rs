//! Sorted sets of which an ordered read has passed over many deleted rows. What is left of one that is small is copied
//! to a new object by its next write: a queue that is hardly ever empty would else be read through all that was taken
//! from it.

use crate::row::ObjectId;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// Deleted rows in one read from which an object is sparse. They cost about as much as copying so many rows does.
pub(crate) const DEAD_MIN: usize = 256;

/// Objects that are known at most. Which ones are sparse is found again.
const OBJECTS_MAX: usize = 64;

/// The objects that reads have found. One that is copied is forgotten; any other does no harm, since ids do not come
/// again.
#[derive(Default)]
pub(crate) struct Sparse {
    objects: Mutex<HashSet<ObjectId>>,
    /// Whether there may be sparse objects: while there is none, a write costs one load.
    any: AtomicBool,
}

impl Sparse {
    /// Notes that a read has passed over at least `DEAD_MIN` deleted rows of an object.
    #[cold]
    pub fn note(&self, id: ObjectId) {
        let mut objects = self.objects.lock();
        if objects.len() >= OBJECTS_MAX
            && !objects.contains(&id)
            && let Some(other) = objects.iter().next().copied()
        {
            objects.remove(&other);
        }
        objects.insert(id);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Returns whether an object is known to be sparse.
    #[inline]
    pub fn has(&self, id: ObjectId) -> bool {
        self.any.load(Ordering::Relaxed) && self.objects.lock().contains(&id)
    }

    #[cold]
    pub fn forget(&self, id: ObjectId) {
        let mut objects = self.objects.lock();
        objects.remove(&id);
        self.any.store(!objects.is_empty(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_objects_are_known_until_they_are_forgotten() {
        let sparse = Sparse::default();
        assert!(!sparse.has(ObjectId(1)));
        (1..3).for_each(|id| sparse.note(ObjectId(id)));
        assert!(sparse.has(ObjectId(1)) && sparse.has(ObjectId(2)) && !sparse.has(ObjectId(3)));
        (1..3).for_each(|id| sparse.forget(ObjectId(id)));
        assert!(!sparse.has(ObjectId(1)) && !sparse.any.load(Ordering::Relaxed));
        (0..1000).for_each(|id| sparse.note(ObjectId(id)));
        assert_eq!(sparse.objects.lock().len(), OBJECTS_MAX);
        assert!(sparse.has(ObjectId(999)));
    }
}
