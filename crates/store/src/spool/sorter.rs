//! A sorter of rows: in memory up to a bound, and beyond it in a file, in runs that are merged.

use super::runs::{Merged, Runs};
use crate::base::BaseError;
use crate::memtable::TOGETHER_MAX;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::PathBuf;

/// The bytes that a group of rows has in common: family and space.
pub(crate) const GROUP_BYTES: usize = 5;

type Group = [u8; GROUP_BYTES];

/// A row in the arena. Rows of one group mostly differ in what comes first behind it.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// The eight bytes of the row's key behind the group's, as a big-endian number.
    prefix: u64,
    /// The row's place in the arena.
    at: usize,
}

/// A sorter: rows in memory, and the runs of those that were too many.
pub(crate) struct Sorter {
    arena: Arena,
    groups: BTreeMap<Group, Vec<Entry>>,
    /// Bytes of rows and entries in memory.
    bytes: usize,
    bytes_max: usize,
    /// The directory in which a file may be made.
    directory: PathBuf,
    runs: Option<Runs>,
    rows: u64,
}

/// Rows one behind the other: the lengths of key and value, u32 each, key, value.
#[derive(Default)]
pub(crate) struct Arena(Vec<u8>);

const LENGTHS_BYTES: usize = 8;

impl Arena {
    fn push(&mut self, key: &[u8], value: &[u8]) -> usize {
        let at = self.0.len();
        let lengths = (key.len() as u64) << 32 | value.len() as u64;
        self.0.extend_from_slice(&lengths.to_ne_bytes());
        self.0.extend_from_slice(key);
        self.0.extend_from_slice(value);
        at
    }

    fn lengths(&self, at: usize) -> (usize, usize) {
        let bytes = self.0[at..at + LENGTHS_BYTES].try_into().expect("it is eight bytes");
        let lengths = u64::from_ne_bytes(bytes);
        ((lengths >> 32) as usize, lengths as u32 as usize)
    }

    fn key(&self, at: usize) -> &[u8] {
        let (key, _) = self.lengths(at);
        &self.0[at + LENGTHS_BYTES..][..key]
    }

    fn row(&self, at: usize) -> (&[u8], &[u8]) {
        let (key, value) = self.lengths(at);
        self.0[at + LENGTHS_BYTES..][..key + value].split_at(key)
    }

    fn bytes_of(&self, at: usize) -> &[u8] {
        let (key, value) = self.lengths(at);
        &self.0[at..][..LENGTHS_BYTES + key + value]
    }

    /// Prefetches the rows, all together.
    fn prefetch(&self, entries: &[Entry]) {
        black_box(entries.iter().map(|entry| self.0[entry.at]).fold(0, u8::wrapping_add));
    }
}

impl Sorter {
    pub fn new(directory: PathBuf, bytes_max: usize) -> Sorter {
        Sorter {
            // The capacity takes no memory until it is written.
            arena: Arena(Vec::with_capacity(bytes_max)),
            groups: BTreeMap::new(),
            bytes: 0,
            bytes_max,
            directory,
            runs: None,
            rows: 0,
        }
    }

    /// Takes a row: its key and its value are at most 4 GB long. Returns whether it is time to `spill`.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        let (group, rest) = key.split_first_chunk::<GROUP_BYTES>().expect("each row has a family and a space");
        let mut prefix = [0; 8];
        let known = rest.len().min(8);
        prefix[..known].copy_from_slice(&rest[..known]);
        let entry = Entry { prefix: u64::from_be_bytes(prefix), at: self.arena.push(key, value) };
        match self.groups.get_mut(group) {
            Some(entries) => entries.push(entry),
            None => drop(self.groups.insert(*group, vec![entry])),
        }
        self.rows += 1;
        self.bytes += LENGTHS_BYTES + key.len() + value.len() + size_of::<Entry>();
        self.bytes >= self.bytes_max
    }

    /// Returns the bytes in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether some of the rows are in a file, as all of them are going to be.
    pub fn has_file(&self) -> bool {
        self.runs.is_some()
    }

    /// Returns the bytes that may stay in memory.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns how many rows there are.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    fn sort(&mut self) {
        for entries in self.groups.values_mut() {
            let arena = &self.arena;
            entries.sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| arena.key(a.at).cmp(arena.key(b.at))));
        }
    }

    /// Writes the rows in memory to the file: as a run, or behind the last one.
    pub fn spill(&mut self) -> Result<(), BaseError> {
        self.sort();
        let mut ends = self.groups.values().filter(|entries| !entries.is_empty());
        let Some(lowest) = ends.next() else { return Ok(()) };
        let highest = ends.next_back().unwrap_or(lowest);
        let key_of = |entry: Option<&Entry>| entry.map_or(&[][..], |entry| self.arena.key(entry.at));
        let (first, last) = (key_of(lowest.first()), key_of(highest.last()));
        let runs = match &mut self.runs {
            Some(runs) => runs,
            None => self.runs.insert(Runs::create(&self.directory)?),
        };
        let mut run = runs.begin(first);
        for entries in self.groups.values() {
            for window in entries.chunks(TOGETHER_MAX) {
                self.arena.prefetch(window);
                for entry in window {
                    run.push(self.arena.bytes_of(entry.at))?;
                }
            }
        }
        run.end(last)?;
        self.groups.values_mut().for_each(Vec::clear);
        self.arena.0.clear();
        self.bytes = 0;
        Ok(())
    }

    /// Returns all rows, ascending. Where they are in the file, about `bytes` of them are read ahead.
    pub fn sorted(mut self, bytes: usize) -> Result<Sorted, BaseError> {
        if self.runs.is_some() {
            self.spill()?;
        }
        match self.runs.take() {
            Some(runs) => {
                drop(std::mem::take(&mut self.arena));
                Ok(Sorted::Merged(runs.merge(bytes)?))
            }
            None => {
                self.sort();
                let entries = self.groups.into_values().collect::<Vec<_>>().concat();
                Ok(Sorted::Memory { arena: self.arena, entries, at: 0 })
            }
        }
    }
}

/// The rows that a sorter has taken, ascending.
pub(crate) enum Sorted {
    Memory { arena: Arena, entries: Vec<Entry>, at: usize },
    Merged(Merged),
}

impl Sorted {
    /// Returns the bytes of memory that the rows take.
    pub fn bytes(&self) -> usize {
        match self {
            Sorted::Memory { arena, entries, .. } => arena.0.len() + entries.len() * size_of::<Entry>(),
            Sorted::Merged(merged) => merged.bytes(),
        }
    }

    pub fn next_row(&mut self) -> Result<Option<(&[u8], &[u8])>, BaseError> {
        match self {
            Sorted::Memory { arena, entries, at } => {
                let Some(entry) = entries.get(*at) else { return Ok(None) };
                if at.is_multiple_of(TOGETHER_MAX) {
                    arena.prefetch(&entries[*at..entries.len().min(*at + TOGETHER_MAX)]);
                }
                *at += 1;
                Ok(Some(arena.row(entry.at)))
            }
            Sorted::Merged(merged) => merged.next_row(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_arrive_in_order_are_one_run() {
        let runs_of = |numbers: &mut dyn Iterator<Item = u32>| {
            let mut sorter = Sorter::new(std::env::temp_dir(), 1000);
            for number in numbers {
                if sorter.push(&[&[0; GROUP_BYTES], &number.to_be_bytes()[..]].concat(), b"value") {
                    sorter.spill().expect("there is room");
                }
            }
            match sorter.sorted(1).expect("the file reads") {
                Sorted::Merged(merged) => merged.runs(),
                Sorted::Memory { .. } => 0,
            }
        };
        assert_eq!(runs_of(&mut (0..10)), 0);
        assert_eq!(runs_of(&mut (0..1000)), 1);
        assert!(runs_of(&mut (0..1000).rev()) > 10);
        assert_eq!(runs_of(&mut (500..1000).chain(0..500)), 3, "with the one that holds both ends");
    }
    use proptest::prelude::*;

    /// Returns keys of few groups that share long beginnings.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        (0..3u8, prop::collection::vec(0..3u8, 0..16))
            .prop_map(|(group, rest)| [&[group; GROUP_BYTES], &rest[..]].concat())
    }

    proptest! {
        #[test]
        fn rows_come_in_order_from_memory_and_from_runs(
            rows in prop::collection::vec((key(), 0..3000usize), 0..200),
            bytes_max in prop::sample::select(vec![1, 2000, 30_000, 64 << 20]),
        ) {
            let mut sorter = Sorter::new(std::env::temp_dir(), bytes_max);
            for (n, (key, len)) in rows.iter().enumerate() {
                if sorter.push(key, &vec![n as u8; *len]) {
                    sorter.spill().expect("there is room");
                }
            }
            prop_assert_eq!(sorter.rows(), rows.len() as u64);
            let mut expected: Vec<(&[u8], usize)> = rows.iter().map(|(key, len)| (&key[..], *len)).collect();
            expected.sort_unstable();
            let mut sorted = sorter.sorted(bytes_max).expect("the file reads");
            let mut got: Vec<(Vec<u8>, usize)> = Vec::new();
            while let Some((key, value)) = sorted.next_row().expect("the file reads") {
                prop_assert!(got.last().is_none_or(|(last, _)| &last[..] <= key));
                got.push((key.to_vec(), value.len()));
            }
            prop_assert!(sorted.next_row().expect("the file reads").is_none());
            // Equal keys may come in any order: a load refuses them.
            got.sort_unstable();
            prop_assert_eq!(got.iter().map(|(key, len)| (&key[..], *len)).collect::<Vec<_>>(), expected);
        }
    }
}
