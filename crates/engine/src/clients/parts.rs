//! A hash map in parts that grow one at a time. A map of hundreds of thousands of entries takes tens of milliseconds to
//! move them all into a larger table, and that is too long for an event loop; here an insertion moves a small share.

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

/// Half a million entries are eight thousand in each part, which move in less than a millisecond.
const PARTS: usize = 64;

pub(crate) struct PartedMap<K, V> {
    /// The tables of the parts: none until there is an entry, then `PARTS` of them.
    parts: Vec<HashTable<(K, V)>>,
    len: usize,
    hasher: RandomState,
}

impl<K, V> Default for PartedMap<K, V> {
    fn default() -> Self {
        PartedMap { parts: Vec::new(), len: 0, hasher: RandomState::default() }
    }
}

/// The part of an entry, by bits of its hash that a table does not look at first.
fn part_of(hash: u64) -> usize {
    (hash >> 32) as usize % PARTS
}

impl<K: Hash + Eq, V> PartedMap<K, V> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        if self.is_empty() {
            return None;
        }
        let hash = self.hash(key);
        self.parts[part_of(hash)].find(hash, |(other, _)| other.borrow() == key).map(|(_, value)| value)
    }

    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        if self.is_empty() {
            return None;
        }
        let hash = self.hash(key);
        self.parts[part_of(hash)].find_mut(hash, |(other, _)| other.borrow() == key).map(|(_, value)| value)
    }

    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Returns the value of a key, a fresh one if there was none.
    pub fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        if self.parts.is_empty() {
            self.parts.resize_with(PARTS, HashTable::new);
        }
        let hash = self.hash(&key);
        let (hasher, len) = (&self.hasher, &mut self.len);
        let found = self.parts[part_of(hash)].entry(hash, |(other, _)| *other == key, |(key, _)| hasher.hash_one(key));
        let occupied = match found {
            Entry::Occupied(occupied) => occupied,
            Entry::Vacant(vacant) => {
                *len += 1;
                vacant.insert((key, V::default()))
            }
        };
        &mut occupied.into_mut().1
    }

    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        if self.is_empty() {
            return None;
        }
        let hash = self.hash(key);
        let found = self.parts[part_of(hash)].find_entry(hash, |(other, _)| other.borrow() == key).ok()?;
        let ((_, value), _) = found.remove();
        self.len -= 1;
        if self.len == 0 {
            // The memory of very many goes with the last of them.
            self.parts = Vec::new();
        }
        Some(value)
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.parts.iter().flatten().map(|(key, _)| key)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Random changes, compared with a plain map.
    #[test]
    fn entries_are_those_of_a_map() {
        let mut state = 11u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(0x2545_f491_4f6c_dd1d);
            (state >> 33) % n
        };
        let (mut parted, mut plain) = (PartedMap::<String, u64>::default(), HashMap::<String, u64>::new());
        for round in 0..50_000u64 {
            let key = below(3000).to_string();
            match below(if round % 10_000 < 6000 { 3 } else { 8 }) {
                0 => {
                    *parted.or_default(key.clone()) += round;
                    *plain.entry(key.clone()).or_default() += round;
                }
                1 => {
                    assert_eq!(parted.get_mut(&*key).map(std::mem::take), { plain.get_mut(&*key).map(std::mem::take) })
                }
                _ => assert_eq!(parted.remove(&*key), plain.remove(&*key)),
            }
            assert_eq!((parted.get(&*key), parted.len()), (plain.get(&*key), plain.len()));
        }
        let mut keys: Vec<&String> = parted.keys().collect();
        let mut expected: Vec<&String> = plain.keys().collect();
        keys.sort();
        expected.sort();
        assert!(keys == expected && !keys.is_empty());
        let keys: Vec<String> = plain.into_keys().collect();
        keys.iter().for_each(|key| _ = parted.remove(&**key));
        assert!(parted.is_empty() && parted.parts.is_empty() && parted.keys().next().is_none());
    }

    #[test]
    fn no_part_has_more_than_a_small_share() {
        let mut map = PartedMap::<u64, ()>::default();
        (0..64_000).for_each(|key| *map.or_default(key) = ());
        let most = map.parts.iter().map(HashTable::len).max();
        assert!(most.is_some_and(|most| most < 1300), "{most:?} of 64000 are in one part");
    }
}
