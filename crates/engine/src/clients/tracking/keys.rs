//! The keys that clients which track have read, and who has read each: a part of the table, behind one mutex.

use hashbrown::HashTable;
use smallvec::SmallVec;

/// A client that has read a key, and the number of the read.
#[derive(Clone, Copy)]
pub(super) struct Reader {
    pub session: u64,
    pub read: u64,
}

pub(super) type Readers = SmallVec<[Reader; 1]>;

/// A key that somebody has read.
pub(super) struct Known {
    hash: u64,
    pub name: Box<[u8]>,
    pub readers: Readers,
}

/// A part of the table of keys.
#[derive(Default)]
pub(super) struct Shard {
    /// The places of the keys in `known`, by hash.
    places: HashTable<u32>,
    /// The keys that clients have read, in any order.
    pub known: Vec<Known>,
}

impl Shard {
    pub fn find(&self, hash: u64, name: &[u8]) -> Option<usize> {
        self.places.find(hash, |&at| *self.known[at as usize].name == *name).map(|&at| at as usize)
    }

    /// Adds a key that is not there.
    pub fn add(&mut self, hash: u64, name: &[u8]) -> usize {
        let at = self.known.len();
        self.known.push(Known { hash, name: name.into(), readers: Readers::new() });
        let known = &self.known;
        self.places.insert_unique(hash, at as u32, |&at| known[at as usize].hash);
        at
    }

    /// Returns the place of any key but the one at `place`.
    pub fn other_than(&self, place: Option<usize>, hash: u64) -> Option<usize> {
        let count = self.known.len();
        let any = (hash as usize).checked_rem(count)?;
        let other = if place == Some(any) { (any + 1) % count } else { any };
        (place != Some(other)).then_some(other)
    }

    /// Removes a key; the last one takes its place.
    pub fn remove(&mut self, at: usize) -> Known {
        let removed = self.known.swap_remove(at);
        let place = self.places.find_entry(removed.hash, |&place| place as usize == at);
        place.expect("each key has a place").remove();
        if let Some(moved) = self.known.get(at) {
            let last = self.known.len();
            let place = self.places.find_mut(moved.hash, |&place| place as usize == last);
            *place.expect("each key has a place") = at as u32;
        }
        removed
    }
}
