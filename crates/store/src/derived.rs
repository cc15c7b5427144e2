//! Numbers that were computed from values, kept for the next reader: in memory, beside the rows, never in them. So a
//! read makes no record, and no node learns another's numbers.
//!
//! A number holds for one version of a key's meta row. A key's change forgets no number: the key's next version is
//! another one, and the old number makes place when others need it.

use crate::row::{Key, Space};
use haypile_log::Index;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::OnceLock;

/// A version of a key's meta row. Invariant: two reads that give one version of a key gave the same bytes.
///
/// A row of the memtable is the one that its record made. A row that the memtable does not have is the base's, which
/// stays as it is until rows leave the memtable: then the epoch is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u64);

impl Version {
    /// Returns the version of a row of the memtable, by the record that wrote it last.
    pub(crate) fn of_record(index: Index) -> Version {
        Version(index.0 << 1 | 1)
    }

    /// Returns the version of a row that only the base has, by the epoch in which the row was looked for and read.
    pub(crate) fn of_base(epoch: u64) -> Version {
        Version(epoch << 1)
    }
}

/// The number of sets. A number lies in a set by its key's hash; a full set gives up its oldest number.
const SETS: usize = 1 << 14;
const WAYS: usize = 4;

/// The longest name of a key whose number is kept: all names together take 8 MB at most.
const NAME_BYTES_MAX: usize = 128;

struct Kept {
    space: Space,
    hash: u32,
    version: Version,
    number: u64,
    name: Box<[u8]>,
}

impl Kept {
    #[inline]
    fn is_of(&self, key: &Key<'_>) -> bool {
        self.hash == key.hash && self.space == key.space && *self.name == *key.name
    }
}

type Set = SmallVec<[Kept; WAYS]>;

/// The numbers that are kept. The first one allocates the memory for all.
#[derive(Default)]
pub(crate) struct Derived(OnceLock<Box<[Mutex<Set>]>>);

impl Derived {
    /// Returns the number of this version of a key, if it is known.
    #[inline]
    pub fn get(&self, key: &Key<'_>, version: Version) -> Option<u64> {
        let set = self.0.get()?[set_of(key)].lock();
        set.iter().find(|kept| kept.is_of(key)).filter(|kept| kept.version == version).map(|kept| kept.number)
    }

    pub fn keep(&self, key: &Key<'_>, version: Version, number: u64) {
        if key.name.len() > NAME_BYTES_MAX {
            return;
        }
        let sets = self.0.get_or_init(|| (0..SETS).map(|_| Mutex::default()).collect());
        let mut set = sets[set_of(key)].lock();
        if let Some(kept) = set.iter_mut().find(|kept| kept.is_of(key)) {
            (kept.version, kept.number) = (version, number);
            return;
        }
        if set.len() == WAYS {
            set.remove(0);
        }
        set.push(Kept { space: key.space, hash: key.hash, version, number, name: key.name.into() });
    }
}

fn set_of(key: &Key<'_>) -> usize {
    key.hash as usize % SETS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Slot;

    fn key(name: &[u8], hash: u32) -> Key<'_> {
        Key { space: Space(0), slot: Slot(0), hash, name }
    }

    #[test]
    fn a_number_holds_for_one_version_of_one_key() {
        let derived = Derived::default();
        let (one, two) = (Version::of_record(Index(7)), Version::of_base(7));
        assert_ne!(one, two);
        derived.keep(&key(b"a", 1), one, 10);
        assert_eq!(derived.get(&key(b"a", 1), one), Some(10));
        for other in [key(b"b", 1), Key { space: Space(1), ..key(b"a", 1) }] {
            assert_eq!(derived.get(&other, one), None);
        }
        assert_eq!(derived.get(&key(b"a", 1), two), None);
        derived.keep(&key(b"a", 1), two, 20);
        assert_eq!((derived.get(&key(b"a", 1), one), derived.get(&key(b"a", 1), two)), (None, Some(20)));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (derived, version) = (Derived::default(), Version::of_record(Index(7)));
        let names: Vec<String> = (0..=WAYS).map(|n| n.to_string()).collect();
        for name in &names {
            derived.keep(&key(name.as_bytes(), 1), version, 1);
        }
        let known = names.iter().filter(|name| derived.get(&key(name.as_bytes(), 1), version).is_some()).count();
        assert_eq!((known, derived.get(&key(b"0", 1), version)), (WAYS, None), "the oldest has gone");
        let long = [b'x'; NAME_BYTES_MAX + 1];
        derived.keep(&key(&long, 2), version, 1);
        derived.keep(&key(&long[1..], 2), version, 1);
        assert_eq!((derived.get(&key(&long, 2), version), derived.get(&key(&long[1..], 2), version)), (None, Some(1)));
    }
}
