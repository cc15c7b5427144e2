//! The map from databases to spaces, and the number of keys that each space has. FLUSHDB takes a fresh space, SWAPDB
//! swaps two: both are changes of system rows, noted here as their records are applied.

use crate::row::{Space, SystemScope, system_row};
use haypile_log::Index;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// The counters of each space. DO NOT CHANGE THESE NUMBERS: they are in the log and in the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Counter {
    /// Keys, expired ones that were not removed yet included: DBSIZE.
    Keys = 0,
    /// Keys with a deadline.
    Deadlines = 1,
    Strings = 2,
    Lists = 3,
    Sets = 4,
    SortedSets = 5,
    Hashes = 6,
    Streams = 7,
    /// Hashes of which fields have deadlines.
    FieldDeadlines = 8,
}

/// Kinds of counters.
pub const COUNTERS: usize = 9;

/// Databases that a server may be configured to have. Space n is database n's first one, fresh spaces come above all of
/// them.
pub const DATABASES_MAX: u32 = 65_536;

/// The number of databases that have counters before anything is counted. With more, each look would walk over unused
/// ones.
const LIVE_FROM_START: u32 = 256;

/// The counters of one space.
#[derive(Default, Debug)]
pub struct Counts([AtomicI64; COUNTERS]);

/// The counters of one space at one index.
pub type CountsAt = [i64; COUNTERS];

impl Counts {
    pub fn get(&self, counter: Counter) -> i64 {
        self.0[counter as usize].load(Ordering::Acquire)
    }

    fn add(&self, counter: u8, delta: i64) {
        if let Some(count) = self.0.get(usize::from(counter)) {
            // Released, so that a reader of the count also sees the index of the record, which was given out before.
            let before = count.fetch_add(delta, Ordering::Release);
            debug_assert!(before + delta >= 0, "counters never go below zero: {before}, {delta}");
        }
    }

    fn now(&self) -> CountsAt {
        std::array::from_fn(|counter| self.0[counter].load(Ordering::Relaxed))
    }
}

/// A live space and its counters.
type Live = (Space, Arc<Counts>);

/// The map from databases to spaces. Invariant: only commits under the exclusive lock, and opens, change it.
pub struct Databases {
    spaces: Box<[AtomicU32]>,
    live: RwLock<Vec<Live>>,
    /// Dead spaces. Each FLUSHALL adds one for each database, and a flush may be far away: so no walk over them looks
    /// for one.
    dead: RwLock<BTreeSet<Space>>,
    next: AtomicU32,
    /// The newest record that changed which space a database is.
    exchanged_at: AtomicU64,
}

const DATABASE_ROW: &[u8] = b"database/";
const DEAD_ROW: &[u8] = b"dead/";
const NEXT_ROW: &[u8] = b"next-space";
const COUNTS_ROW: &[u8] = b"counts/";

/// Returns the row of a database: `database/` and its number as u32 BE; the value is the space as u32 BE.
pub fn database_row(database: u32) -> crate::row::RowKey {
    system_row(SystemScope::Replicated, &[DATABASE_ROW, &database.to_be_bytes()].concat())
}

/// Returns the row of a dead space: `dead/` and the space as u32 BE. The space's rows are garbage that is not wholly
/// gone yet. A record says so to every node; when nothing is left, which is a fact about one base, that base forgets
/// the row by itself.
pub fn dead_row(space: Space) -> crate::row::RowKey {
    system_row(SystemScope::Local, &[DEAD_ROW, &space.0.to_be_bytes()].concat())
}

/// Returns the space that a row of a dead space names.
pub fn dead_space(row: &[u8]) -> Option<Space> {
    let number = row.get(2..)?.strip_prefix(DEAD_ROW)?;
    number.try_into().map(|bytes| Space(u32::from_be_bytes(bytes))).ok()
}

/// Returns whether a row says which space a database is.
pub(crate) fn is_database_row(row: &[u8]) -> bool {
    row.starts_with(&system_row(SystemScope::Replicated, DATABASE_ROW))
}

/// Returns the row of the lowest space that was never a database; the value is u32 BE.
pub fn next_space_row() -> crate::row::RowKey {
    system_row(SystemScope::Replicated, NEXT_ROW)
}

/// Returns the row of a space's counters: `counts/` and the space as u32 BE; the value is the counters at the applied
/// index, each i64 BE.
pub fn counts_row(space: Space) -> crate::row::RowKey {
    system_row(SystemScope::Replicated, &[COUNTS_ROW, &space.0.to_be_bytes()].concat())
}

impl Databases {
    pub fn new(databases: u32) -> Self {
        Databases {
            spaces: (0..databases).map(AtomicU32::new).collect(),
            live: RwLock::new(
                (0..databases.min(LIVE_FROM_START)).map(|space| (Space(space), Arc::default())).collect(),
            ),
            dead: RwLock::default(),
            next: AtomicU32::new(DATABASES_MAX),
            exchanged_at: AtomicU64::new(0),
        }
    }

    pub fn len(&self) -> u32 {
        self.spaces.len() as u32
    }

    /// Returns the space of a database. Panics beyond the last one: SELECT has checked.
    #[inline]
    pub fn space(&self, database: u32) -> Space {
        Space(self.spaces[database as usize].load(Ordering::Relaxed))
    }

    /// Returns the database that a space is now, if any.
    pub fn database_of(&self, space: Space) -> Option<u32> {
        self.spaces.iter().position(|at| at.load(Ordering::Relaxed) == space.0).map(|at| at as u32)
    }

    /// Returns the space that the next FLUSHDB takes.
    pub fn next_space(&self) -> Space {
        Space(self.next.load(Ordering::Relaxed))
    }

    /// Returns the newest record that changed which space a database is: each read of a database depends on it.
    #[inline]
    pub fn exchanged_at(&self) -> Index {
        Index(self.exchanged_at.load(Ordering::Relaxed))
    }

    pub fn counter(&self, space: Space, counter: Counter) -> i64 {
        self.live.read().iter().find(|(live, _)| *live == space).map_or(0, |(_, counts)| counts.get(counter))
    }

    /// Adds a record's delta. A space that is dead counts nothing.
    pub fn add(&self, space: Space, counter: u8, delta: i64) {
        if let Some((_, counts)) = self.live.read().iter().find(|(live, _)| *live == space) {
            counts.add(counter, delta);
        } else if !self.dead.read().contains(&space) {
            // The database of this space is beyond the ones that are configured now, and may be configured again.
            self.counts_of(space).add(counter, delta);
        }
    }

    fn counts_of(&self, space: Space) -> Arc<Counts> {
        let mut live = self.live.write();
        if let Some((_, counts)) = live.iter().find(|(live, _)| *live == space) {
            return counts.clone();
        }
        let counts = Arc::<Counts>::default();
        live.push((space, counts.clone()));
        counts
    }

    /// Returns the databases that may have keys, in order: none of the others has ever counted one.
    pub fn counted(&self) -> Vec<u32> {
        let spaces: BTreeSet<Space> = self.live.read().iter().map(|(space, _)| *space).collect();
        (0..self.len()).filter(|database| spaces.contains(&self.space(*database))).collect()
    }

    /// Returns the spaces whose rows are garbage, in order.
    pub fn dead(&self) -> Vec<Space> {
        self.dead.read().iter().copied().collect()
    }

    pub fn dead_count(&self) -> usize {
        self.dead.read().len()
    }

    pub fn is_dead(&self, space: Space) -> bool {
        self.dead.read().contains(&space)
    }

    /// Forgets a dead space of which nothing is left. It may be forgotten already: a generation that was frozen while
    /// the space was remembered brings the job that empties it once more.
    pub fn forget_dead(&self, space: Space) {
        self.dead.write().remove(&space);
        assert_eq!(self.database_of(space), None, "a space that is forgotten is no database: {space:?}");
    }

    /// Returns all live spaces with their counters: for a freeze, under all latches.
    pub fn counts_now(&self) -> Vec<(Space, CountsAt)> {
        self.live.read().iter().map(|(space, counts)| (*space, counts.now())).collect()
    }

    /// Notes a system row as its record is applied or read from the base at open. Rows that are not about databases are
    /// left alone.
    pub fn on_system_row(&self, row: &[u8], value: Option<&[u8]>, index: Index) {
        let Some(name) = row.get(2..) else { return };
        let number = |bytes: &[u8]| bytes.try_into().map(u32::from_be_bytes).ok();
        if let Some(database) = name.strip_prefix(DATABASE_ROW).and_then(number) {
            if let (Some(at), Some(space)) = (self.spaces.get(database as usize), value.and_then(number)) {
                at.store(space, Ordering::Relaxed);
                self.exchanged_at.fetch_max(index.0, Ordering::Relaxed);
                self.counts_of(Space(space));
            }
        } else if let Some(space) = name.strip_prefix(DEAD_ROW).and_then(number) {
            let mut dead = self.dead.write();
            dead.remove(&Space(space));
            if value.is_some() {
                dead.insert(Space(space));
                self.live.write().retain(|(live, _)| live.0 != space);
            }
        } else if name == NEXT_ROW {
            if let Some(next) = value.and_then(number) {
                self.next.store(next, Ordering::Relaxed);
            }
        } else if let (Some(space), Some(value)) = (name.strip_prefix(COUNTS_ROW).and_then(number), value) {
            let counts = self.counts_of(Space(space));
            for (count, bytes) in counts.0.iter().zip(value.chunks_exact(8)) {
                count.store(i64::from_be_bytes(bytes.try_into().expect("chunks of eight bytes")), Ordering::Relaxed);
            }
        }
    }
}

/// Returns a counter row's value.
pub fn encode_counts(counts: &CountsAt) -> Vec<u8> {
    counts.iter().flat_map(|count| count.to_be_bytes()).collect()
}

/// Changes of counters: few, and mostly of one space.
pub(crate) type CountChanges = SmallVec<[(Space, Counter, i64); 3]>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_spaces_are_told_in_order_and_forgotten() {
        let databases = Databases::new(4);
        for space in [9, 3, 7, 3] {
            databases.on_system_row(&dead_row(Space(space)), Some(&[]), Index(1));
        }
        assert_eq!(databases.dead(), [Space(3), Space(7), Space(9)]);
        databases.forget_dead(Space(7));
        assert_eq!(
            (databases.is_dead(Space(7)), databases.is_dead(Space(9)), databases.dead_count()),
            (false, true, 2)
        );
    }

    #[test]
    #[should_panic(expected = "a space that is forgotten is no database")]
    fn the_space_of_a_database_is_not_forgotten() {
        let databases = Databases::new(4);
        databases.on_system_row(&dead_row(Space(3)), Some(&[]), Index(1));
        databases.forget_dead(Space(3));
    }

    #[test]
    fn a_flushed_database_is_empty_and_its_old_space_dead() {
        let databases = Databases::new(2);
        databases.add(Space(1), Counter::Keys as u8, 3);
        databases.on_system_row(&database_row(1), Some(&70_000u32.to_be_bytes()), Index(1));
        databases.on_system_row(&dead_row(Space(1)), Some(b""), Index(1));
        assert_eq!(databases.space(1), Space(70_000));
        assert_eq!(databases.counter(databases.space(1), Counter::Keys), 0);
        assert_eq!(databases.counted(), [0, 1]);
        databases.add(Space(1), Counter::Keys as u8, 3);
        assert_eq!(databases.dead(), [Space(1)]);
        databases.forget_dead(Space(1));
        assert_eq!(databases.dead(), []);
    }

    #[test]
    fn databases_that_nobody_uses_are_not_walked_over() {
        let databases = Databases::new(DATABASES_MAX);
        databases.add(Space(60_000), Counter::Keys as u8, 1);
        let expected: Vec<u32> = (0..LIVE_FROM_START).chain([60_000]).collect();
        assert_eq!(databases.counted(), expected);
        assert_eq!(databases.counter(Space(60_000), Counter::Keys), 1);
    }

    #[test]
    fn counters_come_back_as_they_went() {
        let databases = Databases::new(1);
        databases.add(Space(0), Counter::Deadlines as u8, 5);
        let [(space, counts)] = databases.counts_now()[..] else { panic!("one space") };
        let reopened = Databases::new(1);
        reopened.on_system_row(&counts_row(space), Some(&encode_counts(&counts)), Index(0));
        assert_eq!(reopened.counter(space, Counter::Deadlines), 5);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "counters never go below zero")]
    fn a_counter_below_zero_is_noticed() {
        let databases = Databases::new(1);
        databases.add(Space(0), Counter::Keys as u8, 1);
        databases.add(Space(0), Counter::Keys as u8, -2);
    }

    /// Checks the example of docs/format/directory.md.
    #[test]
    fn system_rows_are_those_of_the_page() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let counts = [2, 1, 2, 0, 0, 0, 0, 0, 0];
        let rows = [
            (database_row(3), DATABASES_MAX.to_be_bytes().to_vec()),
            (dead_row(Space(3)), Vec::new()),
            (next_space_row(), (DATABASES_MAX + 1).to_be_bytes().to_vec()),
            (counts_row(Space(DATABASES_MAX)), encode_counts(&counts).to_vec()),
        ];
        let page = include_str!("../../../docs/format/directory.md");
        let example = page.split("```rows\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
        let shown: Vec<(String, String)> = example
            .lines()
            .map(|line| line.replace(" ×6", &"0000000000000000".repeat(5)).replace(' ', ""))
            .filter_map(|line| line.split_once('→').map(|(row, value)| (row.to_owned(), value.to_owned())))
            .collect();
        let written: Vec<(String, String)> = rows.iter().map(|(row, value)| (hex(row), hex(value))).collect();
        assert_eq!(written, shown);
    }
}
