//! Stretches of the base: all rows of an object between two bounds, kept as they were read for as long as no flush
//! brings newer ones.
//!
//! An ordered read of the base costs far more for its seek than for each row, and a queue is read at one end again and
//! again, a row or two each time. So where the reads of an object follow each other, each reads some rows ahead into a
//! stretch, twice as many whenever the last ones were of use, and the next reads find them here. The rows are valid in
//! their epoch only: what has been written since lies in the memtable, which is merged with them as with the base. One
//! stretch is in `stretch.rs`.

use crate::base::Direction;
use crate::memtable::ObjectKey;
use crate::stretch::{ROOM_PART, Stretch};
use crate::value::Value;
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Places for stretches, one for each object whose hash falls there.
const PLACES: usize = 2048;

/// The fewest and the most rows that are read ahead.
const AHEAD_MIN: usize = 8;
const AHEAD_MAX: usize = 256;

/// The most reads of other objects that it takes to lose a place.
const CREDIT_MAX: u32 = 4;

/// Reads of an object's rows in the base before rows are read ahead, and before it is tried again where it was in vain.
const READS_BEFORE: u32 = 3;
const READS_BEFORE_RETRY: u32 = 100;

/// Reads in vain until a stretch that is to have a whole object gives way to one of a few rows.
const MISSES_MAX: u32 = 64;

/// The bytes that a row takes at least, and how many are added at a time, at most.
const ROW_BYTES_LEAST: u64 = 32;
const GROWTH_BYTES: u64 = 64 << 10;

/// The most bytes of one stretch, whose rows' ends are numbers of 32 bits.
const BYTES_MAX: u64 = 1 << 30;

/// The rows of a stretch that a read asks for, and whether the base may have more of them beyond it.
pub(crate) struct Part {
    pub stretch: Arc<Stretch>,
    pub rows: Range<usize>,
    pub is_cut: bool,
}

/// A place, and the object that has it.
#[derive(Default)]
struct Place {
    stretch: Option<Arc<Stretch>>,
    reads: Reads,
}

/// Facts about the reads of one object.
#[derive(Clone, Copy, Default)]
struct Reads {
    object: Option<ObjectKey>,
    /// Rows that the next read of the base reads ahead.
    ahead: usize,
    /// Reads that found their rows here since the last one that did not.
    hits: u32,
    /// Reads that did not find their rows here since the last one that did.
    misses: u32,
    /// Reads of the base until rows are read ahead.
    reads_left: u32,
    /// How many reads of other objects it takes until one of them gets the place.
    credit: u32,
}

/// The stretches that are kept.
pub(crate) struct Stretches {
    places: Box<[Mutex<Place>]>,
    /// A turn for each place: of the threads that may wait, one at a time reads a queue's rows.
    turns: Box<[Mutex<()>]>,
    bytes: AtomicU64,
    bytes_max: AtomicU64,
    bytes_most: AtomicU64,
    /// The place whose stretch goes next where there is no room.
    hand: AtomicUsize,
    hits: AtomicU64,
}

impl Reads {
    /// Notes a read that has not found its rows here, and returns how many rows it is to read ahead.
    fn on_miss(&mut self, object: ObjectKey) -> usize {
        if self.object != Some(object) {
            if self.credit > 0 {
                self.credit -= 1;
                return 0;
            }
            *self = Reads { object: Some(object), reads_left: READS_BEFORE, ..Reads::default() };
        }
        self.credit = (self.credit + 1).min(CREDIT_MAX);
        self.misses = self.misses.saturating_add(1);
        let hits = std::mem::take(&mut self.hits);
        if self.ahead == 0 {
            self.reads_left -= 1;
            self.ahead = if self.reads_left == 0 { AHEAD_MIN } else { 0 };
        } else if hits > 0 {
            self.ahead = (self.ahead * 2).min(AHEAD_MAX);
        } else {
            self.ahead = if self.ahead > AHEAD_MIN { self.ahead / 2 } else { 0 };
            self.reads_left = READS_BEFORE_RETRY;
        }
        self.ahead
    }

    fn on_hit(&mut self) {
        self.hits = self.hits.saturating_add(1);
        self.misses = 0;
        self.credit = (self.credit + 1).min(CREDIT_MAX);
    }
}

impl Place {
    /// Returns the stretch of an object, if it is of this epoch.
    fn held(&self, object: ObjectKey, epoch: u64) -> Option<&Arc<Stretch>> {
        self.stretch.as_ref().filter(|stretch| self.reads.object == Some(object) && stretch.epoch == epoch)
    }
}

impl Stretches {
    pub fn new(bytes_max: u64) -> Stretches {
        Stretches {
            places: (0..PLACES).map(|_| Mutex::default()).collect(),
            turns: (0..PLACES).map(|_| Mutex::default()).collect(),
            bytes: AtomicU64::new(0),
            bytes_max: AtomicU64::new(bytes_max),
            bytes_most: AtomicU64::new(bytes_max),
            hand: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
        }
    }

    #[inline]
    fn place(&self, object: ObjectKey) -> &Mutex<Place> {
        &self.places[object.spread() as usize % PLACES]
    }

    /// Waits until no other thread that took its turn reads this object's rows, for so long at most.
    pub fn wait_for_turn(&self, object: ObjectKey, wait: Duration) -> Option<MutexGuard<'_, ()>> {
        self.turns[object.spread() as usize % PLACES].try_lock_for(wait)
    }

    /// Returns the rows of a read of one object, if they are here: those that the base has with `from <= key < until`,
    /// or the first of them in the direction.
    pub fn find(&self, epoch: u64, object: ObjectKey, from: &[u8], until: &[u8], direction: Direction) -> Option<Part> {
        let mut place = self.place(object).lock();
        let stretch = place.held(object, epoch)?.clone();
        let (rows, is_cut) = stretch.part(from, until, direction)?;
        place.reads.on_hit();
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(Part { stretch, rows, is_cut })
    }

    /// Returns what the base has of a row, if that is known here: its value, or that there is none.
    pub fn row(&self, epoch: u64, row: &[u8]) -> Option<Option<Value>> {
        let (object, _) = ObjectKey::of(row)?;
        let mut place = self.place(object).lock();
        let found = place.held(object, epoch)?.find(row)?;
        place.reads.on_hit();
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    /// Returns the stretch that says what the base has of a row, if there is one.
    pub fn with_row(&self, epoch: u64, row: &[u8]) -> Option<Arc<Stretch>> {
        let (object, _) = ObjectKey::of(row)?;
        let mut place = self.place(object).lock();
        let stretch = place.held(object, epoch)?.clone();
        if !stretch.covers(row) {
            return None;
        }
        place.reads.on_hit();
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(stretch)
    }

    /// Returns how many rows a read of an object that goes to the base is to read, at least, for those that follow it;
    /// 0: as many as it needs. It may read none, because it would have to wait for the disk: only `on_read` notes it.
    pub fn ahead(&self, object: ObjectKey) -> usize {
        let mut reads = self.place(object).lock().reads;
        reads.on_miss(object)
    }

    /// Returns whether the rows that a read of an object brings will be kept: its place is not another one's.
    pub fn would_keep(&self, object: ObjectKey) -> bool {
        let mut reads = self.place(object).lock().reads;
        reads.on_miss(object);
        reads.object == Some(object)
    }

    /// Returns how many bytes the rows of an object take that are kept, on average, if there are some.
    pub fn row_bytes(&self, object: ObjectKey) -> Option<usize> {
        let place = self.place(object).lock();
        let stretch = place.stretch.as_ref().filter(|_| place.reads.object == Some(object))?;
        stretch.row_bytes().checked_div(stretch.len())
    }

    /// Notes a read of an object's rows in the base.
    pub fn on_read(&self, object: ObjectKey) {
        let mut place = self.place(object).lock();
        let before = place.reads.object;
        place.reads.on_miss(object);
        let gone = if place.reads.object == before { None } else { place.stretch.take() };
        drop(place);
        self.let_go(gone);
    }

    /// Keeps a stretch, in the place of the one of the same object, if there is room. Where it goes on where that one
    /// ends, the last rows of that one stay: a queue's reads begin a little before what is left of it.
    pub fn keep(&self, object: ObjectKey, stretch: Arc<Stretch>) {
        let mut place = self.place(object).lock();
        let bytes_max = self.bytes_max();
        let max = bytes_max.min(BYTES_MAX);
        let joined = place.held(object, stretch.epoch).and_then(|held| held.joined(&stretch, max));
        let stretch = joined.map_or(stretch, Arc::new);
        let bytes = stretch.taken_bytes();
        if bytes > max {
            return;
        }
        if place.reads.object != Some(object) {
            return;
        }
        // Another thread may have kept more meanwhile, or something newer.
        if let Some(held) = &place.stretch {
            let stays = match (held.grows, stretch.grows) {
                _ if held.epoch != stretch.epoch => held.epoch > stretch.epoch,
                (true, true) => held.len() > stretch.len(),
                (true, false) => place.reads.misses < MISSES_MAX,
                (false, _) => false,
            };
            if stays {
                return;
            }
        }
        let before = place.stretch.replace(stretch);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        drop(place);
        self.let_go(before);
        self.make_room(bytes_max);
    }

    /// Forgets all stretches: they are of an epoch that has ended.
    pub fn clear(&self) {
        for place in &self.places {
            let before = place.lock().stretch.take();
            self.let_go(before);
        }
    }

    /// Takes the rows of an object out that are known from `from` on, none at first, to be kept again with some more.
    /// Returns none if all of them, about `count`, have no room, or somebody reads them.
    pub fn take_to_grow(&self, object: ObjectKey, epoch: u64, from: &[u8], count: u64) -> Option<Stretch> {
        let most = self.bytes_most.load(Ordering::Relaxed).min(BYTES_MAX);
        let mut place = self.place(object).lock();
        if place.reads.object != Some(object) {
            return None;
        }
        let Some(stretch) = place.stretch.take_if(|stretch| stretch.epoch == epoch && stretch.grows) else {
            let stretch = Stretch::growing(epoch, from);
            return (count.saturating_mul(ROW_BYTES_LEAST) < most).then_some(stretch);
        };
        let (bytes, rows) = (stretch.taken_bytes(), stretch.len() as u64);
        let grown = bytes + bytes / ROOM_PART as u64 + GROWTH_BYTES;
        let has_room = rows == 0 || bytes / rows * count <= most && grown <= self.bytes_max().min(most);
        match Arc::try_unwrap(stretch) {
            Ok(stretch) if has_room => {
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                return Some(stretch);
            }
            Ok(stretch) => place.stretch = Some(Arc::new(stretch)),
            Err(read) => place.stretch = Some(read),
        }
        None
    }

    /// Returns all rows of a range, if they are known.
    pub fn whole(&self, epoch: u64, object: ObjectKey, from: &[u8], until: &[u8]) -> Option<Part> {
        let mut place = self.place(object).lock();
        let stretch = place.held(object, epoch)?;
        let (rows, is_cut) = stretch.part(from, until, Direction::Forward)?;
        let part = Part { stretch: stretch.clone(), rows, is_cut };
        if is_cut {
            return None;
        }
        place.reads.on_hit();
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(part)
    }

    /// Sets the bound of what is kept, and how far it may be moved where more is to be kept.
    pub fn set_bytes_max(&self, bytes: u64, most: u64) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
        self.bytes_most.store(most, Ordering::Relaxed);
        self.make_room(bytes);
    }

    pub fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Returns the bytes of what is kept. A reader may hold a stretch a little longer.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn figures(&self) -> [(&'static str, u64); 3] {
        [
            ("base_stretches_bytes", self.bytes()),
            ("base_stretches_bytes_max", self.bytes_max()),
            ("base_stretches_hits", self.hits.load(Ordering::Relaxed)),
        ]
    }

    fn let_go(&self, stretch: Option<Arc<Stretch>>) {
        if let Some(stretch) = stretch {
            self.bytes.fetch_sub(stretch.taken_bytes(), Ordering::Relaxed);
        }
    }

    /// Lets go of stretches, one place after the other, until the others fit.
    fn make_room(&self, max: u64) {
        for _ in 0..PLACES {
            if self.bytes() <= max {
                return;
            }
            let hand = self.hand.fetch_add(1, Ordering::Relaxed) % PLACES;
            let before = self.places[hand].lock().stretch.take();
            self.let_go(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Family, ObjectId, RowKey, Slot, Space, data_row, object_range};

    const EPOCH: u64 = 7;

    fn row(element: u8) -> RowKey {
        data_row(Space(1), Slot(2), ObjectId(3), &[element])
    }

    fn object() -> ObjectKey {
        ObjectKey::new(Family::Data, Space(1), Slot(2), ObjectId(3))
    }

    /// The rows 20, 22, … 38 between 20 and 40.
    fn stretch() -> Stretch {
        let mut stretch = Stretch::new(EPOCH, &row(20), &row(40));
        (20..40).step_by(2).for_each(|element| stretch.push(&row(element), &[element; 3]));
        stretch
    }

    fn elements(part: &Part) -> Vec<u8> {
        part.rows.clone().map(|at| *part.stretch.row(at).0.last().expect("an element")).collect()
    }

    fn kept() -> Stretches {
        let stretches = Stretches::new(1 << 20);
        stretches.on_read(object());
        stretches.keep(object(), Arc::new(stretch()));
        stretches
    }

    #[test]
    fn a_read_that_begins_in_a_stretch_gets_what_is_there() {
        let stretches = kept();
        let find = |from: u8, until: u8, direction| {
            stretches
                .find(EPOCH, object(), &row(from), &row(until), direction)
                .map(|part| (elements(&part), part.is_cut))
        };
        assert_eq!(find(23, 31, Direction::Forward), Some((vec![24, 26, 28, 30], false)));
        assert_eq!(find(36, 60, Direction::Forward), Some((vec![36, 38], true)));
        assert_eq!(find(39, 40, Direction::Forward), Some((vec![], false)), "there is none");
        assert_eq!(find(39, 60, Direction::Forward), None, "the base may have some behind");
        assert_eq!((find(40, 60, Direction::Forward), find(19, 30, Direction::Forward)), (None, None));
        assert_eq!(find(0, 25, Direction::Backward), Some((vec![20, 22, 24], true)));
        assert_eq!(find(0, 20, Direction::Backward), None);
        assert_eq!(find(30, 41, Direction::Backward), None);
        assert!(stretches.find(EPOCH + 1, object(), &row(23), &row(31), Direction::Forward).is_none(), "it is old");
        let (from, _) = object_range(Family::Score, Space(1), Slot(2), ObjectId(3));
        assert!(stretches.row(EPOCH, &from).is_none(), "it is another object's");
        assert_eq!(stretches.row(EPOCH, &row(22)), Some(Some(Value::from(&[22; 3][..]))));
        assert_eq!(stretches.row(EPOCH, &row(23)), Some(None));
        assert_eq!(stretches.row(EPOCH, &row(40)), None);
    }

    #[test]
    fn a_stretch_that_goes_on_where_one_ends_is_joined_to_it() {
        let stretches = kept();
        let next = |from: u8, until: u8| {
            let mut next = Stretch::new(EPOCH, &row(from), &row(until));
            (from..until).filter(|element| element % 2 == 0).for_each(|element| next.push(&row(element), b"n"));
            stretches.keep(object(), Arc::new(next));
        };
        let known = |from: u8, until: u8| {
            let part = stretches.find(EPOCH, object(), &row(from), &row(until), Direction::Forward);
            part.filter(|part| !part.is_cut).map(|part| elements(&part))
        };
        next(40, 50);
        assert_eq!(known(36, 45), Some(vec![36, 38, 40, 42, 44]));
        next(10, 21);
        assert_eq!(known(18, 24), Some(vec![18, 20, 22]));
        next(50, 250);
        assert_eq!(known(48, 54), Some(vec![48, 50, 52]));
        next(0, 10);
        assert_eq!(known(0, 250).map(|rows| rows.len()), None, "the other end has been let go of");
        assert_eq!(known(0, 100).map(|rows| rows.len()), Some(50));
        next(200, 210);
        assert_eq!((known(200, 210).map(|rows| rows.len()), known(0, 9)), (Some(5), None), "a gap is between them");
    }

    #[test]
    fn stretches_that_have_no_room_together_are_not_joined() {
        let stretches = kept();
        stretches.set_bytes_max(stretch().taken_bytes() * 5 / 4, 1 << 20);
        let mut next = Stretch::new(EPOCH, &row(40), &row(60));
        (40..60).step_by(2).for_each(|element| next.push(&row(element), &[element; 3]));
        stretches.keep(object(), Arc::new(next));
        assert_eq!(stretches.row(EPOCH, &row(42)), Some(Some(Value::from(&[42; 3][..]))), "the new one is kept");
        assert_eq!(stretches.row(EPOCH, &row(22)), None);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "rows come in order, or against it")]
    fn a_row_out_of_order_is_noticed() {
        let mut stretch = Stretch::new(EPOCH, &row(20), &row(40));
        [22, 26, 24].iter().for_each(|element| stretch.push(&row(*element), b"v"));
    }

    #[test]
    fn rows_are_read_ahead_where_that_is_of_use() {
        let stretches = kept();
        let hit = || assert!(stretches.row(EPOCH, &row(22)).is_some());
        let ahead = || {
            let ahead = stretches.ahead(object());
            stretches.on_read(object());
            ahead
        };
        assert_eq!([ahead(), ahead()], [0, AHEAD_MIN], "the third read");
        for rows in [16, 32, 64, 128, 256, 256] {
            hit();
            assert_eq!(ahead(), rows);
        }
        for rows in [128, 64, 32, 16, 8, 0] {
            assert_eq!(ahead(), rows, "in vain");
        }
        assert!((1..READS_BEFORE_RETRY).all(|_| ahead() == 0));
        assert_eq!(ahead(), AHEAD_MIN, "times change");
    }

    #[test]
    fn an_object_that_is_read_keeps_its_place_and_no_other_gets_its_rows() {
        let stretches = Stretches::new(1 << 20);
        let other = (4..).map(|id| ObjectKey::new(Family::Data, Space(1), Slot(2), ObjectId(id)));
        let other = other.into_iter().find(|other| std::ptr::eq(stretches.place(*other), stretches.place(object())));
        let other = other.expect("one of them has the same place");
        assert!(stretches.would_keep(other), "the place is free");
        (0..5).for_each(|_| stretches.on_read(object()));
        stretches.keep(object(), Arc::new(stretch()));
        assert!(stretches.would_keep(object()) && !stretches.would_keep(other));
        assert_eq!(stretches.row_bytes(object()), Some(stretch().row_bytes() / stretch().len()));
        assert_eq!(stretches.row_bytes(other), None);
        stretches.on_read(other);
        stretches.keep(other, Arc::new(stretch()));
        assert!(stretches.row(EPOCH, &row(22)).is_some());
        (0..5).for_each(|_| stretches.on_read(other));
        assert!(stretches.row(EPOCH, &row(22)).is_none(), "it is read no more");
        assert!(stretches.would_keep(other));
        assert_eq!(stretches.bytes(), 0);
    }

    /// Adds rows to the stretch that is to have a whole object, and keeps it.
    fn grow(stretches: &Stretches, mut stretch: Stretch, rows: u32) {
        let from = stretch.len() as u32;
        stretch.open(&object_range(Family::Data, Space(1), Slot(2), ObjectId(3)).1);
        for number in from..from + rows {
            stretch.push(&data_row(Space(1), Slot(2), ObjectId(3), &number.to_be_bytes()), &[7; 30]);
        }
        stretch.cut(Direction::Forward);
        stretches.keep(object(), Arc::new(stretch));
    }

    #[test]
    fn a_whole_object_is_kept_piece_by_piece_as_room_comes() {
        let stretches = Stretches::new(0);
        let (most, count) = (8 << 20, 100_000);
        let from = data_row(Space(1), Slot(2), ObjectId(3), &[]);
        stretches.on_read(object());
        let take = || stretches.take_to_grow(object(), EPOCH, &from, count);
        let mut steps = 0;
        while steps < 2 * count / 128 {
            // As the lender does it.
            stretches.set_bytes_max((stretches.bytes() + stretches.bytes() / 4 + (1 << 20)).min(most), most);
            let Some(stretch) = take() else { break };
            let rows = stretch.len() as u64;
            assert_eq!(rows, steps * 128, "no row is lost");
            if rows >= count {
                stretches.keep(object(), Arc::new(stretch));
                break;
            }
            grow(&stretches, stretch, 128);
            steps += 1;
            assert!(stretches.bytes() <= stretches.bytes_max());
        }
        assert!(steps * 128 >= count, "it has room as a whole: {steps} steps, {} bytes", stretches.bytes());
        assert!(stretches.take_to_grow(object(), EPOCH, &from, count * 2).is_none(), "twice as many have none");
        // Another thread began anew while this one read, or is late.
        let bytes = stretches.bytes();
        grow(&stretches, Stretch::growing(EPOCH, &from), 128);
        grow(&stretches, Stretch::growing(EPOCH - 1, &from), 128);
        assert_eq!(stretches.bytes(), bytes);
        grow(&stretches, Stretch::growing(EPOCH + 1, &from), 128);
        assert!(stretches.bytes() < bytes, "a flush has ended");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let bytes = stretch().taken_bytes();
        let stretches = Stretches::new(bytes * 10);
        let object = |id| ObjectKey::new(Family::Data, Space(1), Slot(2), ObjectId(id));
        for id in 0..200 {
            stretches.on_read(object(id));
            stretches.keep(object(id), Arc::new(stretch()));
            assert!(stretches.bytes() <= bytes * 10, "{}", stretches.bytes());
        }
        assert!(stretches.bytes() > bytes * 8);
        stretches.set_bytes_max(bytes * 3, bytes * 3);
        assert!((bytes..=bytes * 3).contains(&stretches.bytes()));
        stretches.clear();
        assert_eq!(stretches.bytes(), 0);
        stretches.set_bytes_max(bytes - 1, bytes);
        stretches.on_read(object(1));
        stretches.keep(object(1), Arc::new(stretch()));
        assert_eq!(stretches.bytes(), 0, "it has no room");
    }
}
