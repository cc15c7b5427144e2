//! The presence set: a digest of the base's rows of user keys and of elements, in eight bytes for each, where a row
//! would take hundreds: whether there is a row, and whether that of a key is an inline string without a deadline. So a
//! plain SET and an HSET know without a read whether they create, and a lookup of a missing key need not ask the base.
//!
//! A set of 64-bit keyed fingerprints in buckets of a cache line. A bucket that is full forgets one and says so ever
//! after: a row that is not in it may then still be in the base. The set never claims a falsehood, but for two keys
//! with one fingerprint (less likely, for each look, than an undetected memory error).
//!
//! Keys come first: an element takes no key's place, and a key takes an element's before another key's. So however many
//! elements there are, and however many of them died with their object, which no deletion takes out one by one, keys
//! are known as they would be without them.
//!
//! The memory comes from the system page by page. A page that is read before it is written is mapped twice, the second
//! time with an interrupt for every core; so the set knows which parts were written, and does not look at the others.
//!
//! Invariant: about a row that the memtable does not know, the set agrees with the base. The flush corrects the set
//! before it takes the frozen rows away from readers, and a reader asks the memtable first. The set starts with full
//! knowledge only where the base starts empty.

use crate::memtable::TOGETHER_MAX;
use smallvec::SmallVec;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Buckets that are written for the first time together: a page of memory.
const PART: usize = 64;

/// Fingerprints in one cache line.
const WAYS: usize = 8;

/// The bits of a fingerprint that mark *a plain string* and *an element*; the other bits are the row's.
const PLAIN: u64 = 1;
const ELEMENT: u64 = 2;
const MARKS: u64 = PLAIN | ELEMENT;

#[repr(align(64))]
#[derive(Default)]
struct Bucket([AtomicU64; WAYS]);

/// The set's answer about a row of the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    Absent,
    /// An inline string without a deadline.
    Plain,
    /// The row may be there or not, and be of any kind: the caller asks the base.
    No,
}

pub struct Presence {
    buckets: Box<[Bucket]>,
    /// A bit for each part: set once the part was written, so that its buckets may hold something.
    written: Box<[AtomicU64]>,
    /// A bit for each bucket: set once the bucket does not hold all keys that it should; and likewise for elements.
    forgetful_keys: Box<[AtomicU64]>,
    forgetful_elements: Box<[AtomicU64]>,
    seed: u64,
    /// The way that goes next when a bucket is full.
    hand: AtomicUsize,
}

/// A row's place and fingerprint.
struct Place {
    /// The number of the row's bucket.
    number: usize,
    print: u64,
}

impl Presence {
    /// Returns a set of at most `bytes` over a base that is `empty`, or of which nothing is known yet.
    pub fn new(bytes: u64, seed: u64, empty: bool) -> Self {
        let buckets = (bytes as usize / size_of::<Bucket>()).max(1);
        let forgetful = if empty { 0 } else { u64::MAX };
        let bits = || (0..buckets.div_ceil(64)).map(|_| AtomicU64::new(forgetful)).collect();
        Presence {
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
            written: (0..buckets.div_ceil(PART * 64)).map(|_| AtomicU64::new(0)).collect(),
            forgetful_keys: bits(),
            forgetful_elements: bits(),
            seed,
            hand: AtomicUsize::new(0),
        }
    }

    fn place(&self, row: &[u8]) -> Place {
        let hash = xxhash_rust::xxh3::xxh3_128_with_seed(row, self.seed);
        let number = (((hash >> 64) as u64 as u128 * self.buckets.len() as u128) >> 64) as usize;
        // A print is never 0, which marks an empty way.
        Place { number, print: (hash as u64 & !MARKS).max(MARKS + 1) }
    }

    /// Returns the ways of a bucket; none if nothing was ever put into its part.
    fn ways(&self, place: &Place) -> &[AtomicU64] {
        let part = place.number / PART;
        let is_written = self.written[part / 64].load(Ordering::Acquire) >> (part % 64) & 1 != 0;
        if is_written { &self.buckets[place.number].0 } else { &[] }
    }

    /// Returns the ways of a bucket that is going to be written, and notes that its part is.
    fn ways_to_write(&self, place: &Place) -> &[AtomicU64] {
        if self.ways(place).is_empty() {
            let part = place.number / PART;
            let buckets = &self.buckets[part * PART..self.buckets.len().min((part + 1) * PART)];
            // The part may lie on two pages. The write changes nothing; it only has the pages mapped.
            for bucket in buckets.first().into_iter().chain(buckets.last()) {
                let _ = bucket.0[0].compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
            self.written[part / 64].fetch_or(1 << (part % 64), Ordering::AcqRel);
        }
        &self.buckets[place.number].0
    }

    /// Returns what is known of the meta row `row`. The caller has found that the memtable does not know the row.
    pub fn look(&self, row: &[u8]) -> Known {
        let place = self.place(row);
        for way in self.ways(&place) {
            let held = way.load(Ordering::Acquire);
            if held & !MARKS == place.print {
                return if held & PLAIN != 0 { Known::Plain } else { Known::No };
            }
        }
        if is_forgetful(&self.forgetful_keys, &place) { Known::No } else { Known::Absent }
    }

    /// Returns whether the base has the `data` row `row`, if that is known. The caller has found that the memtable does
    /// not know the row.
    pub fn has_element(&self, row: &[u8]) -> Option<bool> {
        let place = self.place(row);
        if self.ways(&place).iter().any(|way| way.load(Ordering::Acquire) & !MARKS == place.print) {
            return Some(true);
        }
        if is_forgetful(&self.forgetful_elements, &place) { None } else { Some(false) }
    }

    /// Prefetches the buckets of these rows, all together.
    pub fn prefetch(&self, rows: impl Iterator<Item = impl AsRef<[u8]>>) {
        let firsts: SmallVec<[&AtomicU64; TOGETHER_MAX]> =
            rows.filter_map(|row| self.ways(&self.place(row.as_ref())).first()).collect();
        black_box(firsts.iter().map(|way| way.load(Ordering::Relaxed)).fold(0, u64::wrapping_add));
    }

    /// Notes a meta row that the base holds, or will hold before the memtable lets go of it. Called by the flush for
    /// the rows that it writes, and by a reader that has just read the row from the base under the key's lock.
    pub fn insert(&self, row: &[u8], plain: bool) {
        self.insert_marked(row, u64::from(plain));
    }

    /// Notes a `data` row that the base holds, or will hold before the memtable lets go of it.
    pub fn insert_element(&self, row: &[u8]) {
        self.insert_marked(row, ELEMENT);
    }

    fn insert_marked(&self, row: &[u8], marks: u64) {
        let place = self.place(row);
        let (print, ways) = (place.print | marks, self.ways_to_write(&place));
        loop {
            let (mut own, mut empty) = (None, None);
            for way in ways {
                match way.load(Ordering::Acquire) {
                    held if held == print => return,
                    held if held & !MARKS == place.print => own = own.or(Some((way, held))),
                    0 => empty = Some((way, 0)),
                    _ => {}
                }
            }
            let Some((way, held)) = own.or(empty).or_else(|| self.forget_one(&place, marks)) else {
                return;
            };
            // The exchange fails where another row has come into the way meanwhile. In the row's own, too: two readers
            // may note one element, and the flush a key in its place between the looks of them.
            if way.compare_exchange(held, print, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Returns the way that has to go for a row with these marks, and its fingerprint; `None` if that is the row's own.
    fn forget_one(&self, place: &Place, marks: u64) -> Option<(&AtomicU64, u64)> {
        let hand = self.hand.fetch_add(1, Ordering::Relaxed);
        let mut ways = (0..WAYS).map(|at| {
            let way = &self.buckets[place.number].0[(hand + at) % WAYS];
            (way, way.load(Ordering::Acquire))
        });
        let first = ways.clone().next();
        let element = ways.find(|(_, held)| held & ELEMENT != 0);
        if element.is_some() || marks & ELEMENT != 0 {
            set_forgetful(&self.forgetful_elements, place);
            return element;
        }
        set_forgetful(&self.forgetful_keys, place);
        first
    }

    /// Forgets everything: the base has become another one.
    pub fn forget(&self) {
        for bits in self.forgetful_keys.iter().chain(&self.forgetful_elements) {
            bits.store(u64::MAX, Ordering::Release);
        }
    }

    /// Notes that the base does not hold a row any more, or will not before the memtable lets go of its tombstone.
    pub fn remove(&self, row: &[u8]) {
        let place = self.place(row);
        for way in self.ways(&place) {
            let held = way.load(Ordering::Acquire);
            if held & !MARKS == place.print {
                // A thread that changed the way meanwhile has put another key there.
                let _ = way.compare_exchange(held, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    pub fn bytes(&self) -> u64 {
        let of_parts = size_of_val(&*self.written);
        let bits = size_of_val(&*self.forgetful_keys) + size_of_val(&*self.forgetful_elements) + of_parts;
        (size_of_val(&*self.buckets) + bits) as u64
    }
}

/// Returns whether a bucket does not hold all that it should. Invariant: asked after the bucket's ways are read,
/// because a writer that forgets one sets the bit first.
fn is_forgetful(bits: &[AtomicU64], place: &Place) -> bool {
    bits[place.number / 64].load(Ordering::Acquire) >> (place.number % 64) & 1 != 0
}

fn set_forgetful(bits: &[AtomicU64], place: &Place) {
    bits[place.number / 64].fetch_or(1 << (place.number % 64), Ordering::AcqRel);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    #[test]
    fn it_knows_what_was_put_and_what_was_taken() {
        let presence = Presence::new(1 << 20, 7, true);
        (0..10_000).for_each(|number| presence.insert(&row(number), number % 3 > 0));
        (0..10_000).step_by(2).for_each(|number| presence.remove(&row(number)));
        for number in 0..20_000 {
            let expected = match number {
                10_000.. => Known::Absent,
                number if number % 2 == 0 => Known::Absent,
                number if number % 3 == 0 => Known::No,
                _ => Known::Plain,
            };
            assert_eq!(presence.look(&row(number)), expected, "{number}");
        }
        presence.insert(&row(3), true);
        assert_eq!(presence.look(&row(3)), Known::Plain, "what it is may change");
    }

    #[test]
    fn a_full_one_forgets_and_says_so() {
        let presence = Presence::new(1024, 7, true);
        (0..10_000).for_each(|number| presence.insert(&row(number), true));
        let known = (0..10_000).filter(|number| presence.look(&row(*number)) == Known::Plain).count();
        assert_eq!(known, 1024 / 8);
        assert!((0..100_000).all(|number| presence.look(&row(number)) != Known::Absent));
    }

    #[test]
    fn elements_never_take_the_place_of_keys() {
        let presence = Presence::new(1 << 18, 7, true);
        let (keys, elements) = (0..2_000, 10_000..60_000);
        keys.clone().for_each(|number| presence.insert(&row(number), true));
        elements.clone().for_each(|number| presence.insert_element(&row(number)));
        (2_000..3_000).for_each(|number| presence.insert(&row(number), true));
        assert!((0..3_000).all(|number| presence.look(&row(number)) == Known::Plain), "all keys are known");
        assert!((3_000..10_000).all(|number| presence.look(&row(number)) == Known::Absent), "and those that are none");
        let known = elements.clone().filter(|number| presence.has_element(&row(*number)) == Some(true)).count();
        assert!((20_000..=(1 << 18) / 8 - 3_000).contains(&known), "{known} elements fill what the keys leave");
        assert!(elements.into_iter().all(|number| presence.has_element(&row(number)) != Some(false)));
        // An element that is known to be gone is not there, if its bucket never forgot one.
        let presence = Presence::new(1 << 16, 7, true);
        (0..1_000).for_each(|number| presence.insert_element(&row(number)));
        (0..500).for_each(|number| presence.remove(&row(number)));
        assert!((0..1_000).all(|number| presence.has_element(&row(number)) == Some(number >= 500)));
    }

    #[test]
    fn nothing_is_known_of_a_base_with_rows() {
        let presence = Presence::new(1 << 20, 7, false);
        presence.insert(&row(1), true);
        assert_eq!((presence.look(&row(1)), presence.look(&row(2))), (Known::Plain, Known::No));
    }

    #[test]
    fn keys_that_come_at_once_are_all_held() {
        let presence = Presence::new(64 * 16, 7, true);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let presence = &presence;
                scope.spawn(move || (0..40).for_each(|number| presence.insert(&row(2 * number + thread), true)));
            }
        });
        assert!((0..80).all(|number| presence.look(&row(number)) != Known::Absent));
    }
}
