//! The rows of objects of one shard, by object: a lookup is a hash lookup and a search in a few cache lines.

use super::Found;
use super::elements::{Elements, PREFIX, Range};
use super::entry::RowEntry;
use crate::row::{Family, ObjectId, Slot, Space};
use haypile_log::Index;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

/// An object and one of its families: `data`, `score` or `owner`. Compares as the rows' keys do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Family, space and slot as they begin a row's key.
    place: u64,
    id: u64,
}

/// Bytes that an object takes besides its rows: its place in the map with the room that the map keeps.
const OBJECT_BYTES: i64 = 144;

/// A hasher of numbers that only the store gives out, so that no client can choose collisions.
#[derive(Default)]
pub struct ObjectHasher(u64);

#[derive(Default)]
pub struct Objects {
    map: HashMap<ObjectKey, Elements, BuildHasherDefault<ObjectHasher>>,
    /// Invariant: no object here has this id or a higher one.
    ids_end: u64,
}

impl ObjectKey {
    /// Returns the object and family of a row, and the element; `None` for rows of other families.
    #[inline]
    pub fn of(row: &[u8]) -> Option<(ObjectKey, &[u8])> {
        let (prefix, element) = row.split_first_chunk::<PREFIX>()?;
        let number = |at: usize| u64::from_be_bytes(prefix[at..at + 8].try_into().expect("eight bytes"));
        let is_of_object = matches!(prefix[0], FIRST..=LAST);
        is_of_object.then(|| (ObjectKey { place: number(0) >> 8, id: number(7) }, element))
    }

    pub fn new(family: Family, space: Space, slot: Slot, id: ObjectId) -> ObjectKey {
        let place = u64::from(family as u8) << 48 | u64::from(space.0) << 16 | u64::from(slot.0);
        ObjectKey { place, id: id.0 }
    }

    pub fn slot(&self) -> Slot {
        Slot(self.place as u16)
    }

    /// Returns a number that spreads objects over places.
    #[inline]
    pub fn spread(&self) -> u64 {
        let mut hasher = ObjectHasher::default();
        hasher.write_u64(self.place);
        hasher.write_u64(self.id);
        hasher.finish()
    }

    /// Returns the key of the object with the next id.
    fn next(self) -> Option<ObjectKey> {
        self.id.checked_add(1).map(|id| ObjectKey { id, ..self })
    }
}

const FIRST: u8 = Family::Data as u8;
const LAST: u8 = Family::Owner as u8;
const _: () = assert!(FIRST + 1 == Family::Score as u8 && FIRST + 2 == LAST);

/// A range of rows of one object and family: from one element to another, the second one excluded and perhaps the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementRange<'r> {
    pub object: ObjectKey,
    pub from: &'r [u8],
    pub until: Option<&'r [u8]>,
}

impl<'r> ElementRange<'r> {
    /// Returns the rows with `from <= key < until` as a range of one object, if they are of one.
    pub fn of(from: &'r [u8], until: &'r [u8]) -> Option<ElementRange<'r>> {
        let (object, from) = ObjectKey::of(from)?;
        match ObjectKey::of(until)? {
            (other, until) if other == object => Some(ElementRange { object, from, until: Some(until) }),
            (other, b"") if Some(other) == object.next() => Some(ElementRange { object, from, until: None }),
            _ => None,
        }
    }
}

impl Hasher for ObjectHasher {
    fn write_u64(&mut self, number: u64) {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from(self.0 ^ number) * u128::from(FACTOR);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("an object's key is two numbers");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Objects {
    #[inline]
    pub fn find(&self, row: &[u8]) -> Option<&RowEntry> {
        let (object, element) = ObjectKey::of(row)?;
        self.map.get(&object)?.get(element)
    }

    #[inline]
    pub fn row(&self, row: &[u8]) -> Found {
        self.find(row).map_or(Found::Unknown, RowEntry::found)
    }

    /// Writes a row of `object` or its tombstone; returns by how many bytes the table grew, and whether the object is
    /// new.
    pub fn put(&mut self, object: ObjectKey, row: &[u8], value: Option<&[u8]>, index: Index) -> (i64, bool) {
        match self.map.entry(object) {
            Entry::Occupied(mut held) => (held.get_mut().put(row, value, index), false),
            Entry::Vacant(place) => {
                self.ids_end = self.ids_end.max(object.id.saturating_add(1));
                (place.insert(Elements::default()).put(row, value, index) + OBJECT_BYTES, true)
            }
        }
    }

    /// Deletes a row of an object that has rows `below`; returns the growth, and whether the object is new.
    pub fn hide(&mut self, row: &[u8], below: &Elements, index: Index) -> (i64, bool) {
        let Some((object, _)) = ObjectKey::of(row) else { return (0, false) };
        match self.map.get_mut(&object) {
            None => self.put(object, row, None, index),
            Some(elements) => {
                let grown = elements.hide(row, below, index);
                let emptied = if elements.is_empty() { self.drop_empty(object) } else { 0 };
                (grown - emptied, false)
            }
        }
    }

    pub fn find_mut(&mut self, row: &[u8]) -> Option<&mut RowEntry> {
        let (object, element) = ObjectKey::of(row)?;
        self.map.get_mut(&object)?.get_mut(element)
    }

    /// Takes a row out without a trace; returns by how much the table shrank, as a negative number.
    pub fn forget(&mut self, row: &[u8]) -> i64 {
        let Some((object, element)) = ObjectKey::of(row) else { return 0 };
        let Some(elements) = self.map.get_mut(&object) else { return 0 };
        let gone = elements.remove(element).map_or(0, |gone| -gone.bytes());
        if elements.is_empty() { gone - self.drop_empty(object) } else { gone }
    }

    /// Takes out `max` rows of an object, or all if they are fewer; also returns the bytes that they took.
    pub fn take(&mut self, object: ObjectKey, max: usize) -> (Vec<RowEntry>, i64) {
        let mut gone = Vec::new();
        let Some(elements) = self.map.get_mut(&object) else { return (gone, 0) };
        elements.take(max, &mut gone);
        let bytes = gone.iter().map(RowEntry::bytes).sum::<i64>();
        (gone, bytes + self.drop_empty(object))
    }

    /// Removes an object that has no rows any more; returns the bytes that it took.
    fn drop_empty(&mut self, object: ObjectKey) -> i64 {
        match self.map.entry(object) {
            Entry::Occupied(held) if held.get().is_empty() => {
                held.remove();
                OBJECT_BYTES
            }
            _ => 0,
        }
    }

    /// Returns the objects of a space, in no order.
    pub fn of_space(&self, space: Space) -> impl Iterator<Item = ObjectKey> {
        self.map.keys().copied().filter(move |object| (object.place >> 16) as u32 == space.0)
    }

    /// Returns an id such that no object here has this id or a higher one.
    pub fn ids_end(&self) -> u64 {
        self.ids_end
    }

    /// Returns the rows of an object, if it has any here.
    #[inline]
    pub fn elements(&self, object: ObjectKey) -> Option<&Elements> {
        self.map.get(&object)
    }

    #[inline]
    pub fn range(&self, range: &ElementRange<'_>) -> Option<Range<'_>> {
        self.map.get(&range.object).map(|elements| elements.range(range.from, range.until))
    }

    /// Returns all rows of a family of a space, in the order of their keys.
    pub fn in_space(&self, family: Family, space: Space) -> impl Iterator<Item = &RowEntry> {
        let first = ObjectKey::new(family, space, Slot(0), ObjectId(0));
        let places = first.place..=first.place | u64::from(u16::MAX);
        self.sorted(move |object| places.contains(&object.place)).flat_map(|(_, elements)| elements.all())
    }

    /// Returns the rows of any objects with `from <= key < until`, in the order of their keys.
    pub fn rows_in(&self, from: &[u8], until: &[u8]) -> Vec<&RowEntry> {
        let is_in = |entry: &&RowEntry| from <= entry.row() && entry.row() < until;
        self.sorted(|_| true).flat_map(|(_, elements)| elements.all()).filter(is_in).collect()
    }

    fn sorted(&self, which: impl Fn(&ObjectKey) -> bool) -> impl Iterator<Item = (ObjectKey, &Elements)> {
        let mut objects: Vec<(ObjectKey, &Elements)> =
            self.map.iter().filter(|(object, _)| which(object)).map(|(object, elements)| (*object, elements)).collect();
        objects.sort_unstable_by_key(|(object, _)| *object);
        objects.into_iter()
    }

    /// Returns the bytes that the rows take, counted anew: for tests of the accounting.
    pub fn count_bytes(&self) -> i64 {
        let rows = self.map.values().flat_map(Elements::all).map(RowEntry::bytes).sum::<i64>();
        rows + self.map.len() as i64 * OBJECT_BYTES
    }
}
