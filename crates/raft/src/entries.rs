//! The entries of a member's log, as Raft asks for them: for each its term and its last record.
//!
//! An entry takes eight bytes here; its records stay in the log, but for what a change of the members says. What lies
//! before the first entry that is known is one (term, number, record), from which on the log has all.

use crate::configuration::Configuration;
use haypile_log::{EntrySpan, Index};
use raft::eraftpb::{ConfState, Entry, EntryType, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The most entries that a member remembers beside those that its data lack: older ones are left to a copy of the data.
pub(crate) const ENTRIES_MAX: usize = 4 << 20;

/// The most entries in one message.
pub(crate) const PER_MESSAGE: usize = 256;

/// Raft limits messages by bytes; entries have none here, so that each counts as so many.
pub(crate) const BYTES_EACH: u64 = 16;

/// The entries of a log, and the state that Raft begins with.
///
/// Invariant: numbers have no gaps; terms and last records never go back.
#[derive(Debug)]
pub(crate) struct Entries {
    /// The entry before the first, and its last record.
    before: (u64, Index),
    /// The last record of each entry.
    ends: VecDeque<Index>,
    /// Terms, and the first entry of each that is known; the first is of `before`.
    terms: VecDeque<(u64, u64)>,
    /// Entries that change the members, and the members behind each.
    changes: BTreeMap<u64, Arc<Configuration>>,
    /// The most entries, beside those that the data lack.
    max: usize,
    initial: RaftState,
}

impl Entries {
    /// Begins behind an entry, of which the last record is known.
    pub fn new(term: u64, number: u64, last: Index) -> Entries {
        Entries {
            before: (number, last),
            ends: VecDeque::new(),
            terms: VecDeque::from([(number, term)]),
            changes: BTreeMap::new(),
            max: ENTRIES_MAX,
            initial: RaftState::default(),
        }
    }

    /// Returns the entries with another bound.
    pub fn at_most(self, max: usize) -> Entries {
        Entries { max, ..self }
    }

    /// Sets the state that Raft begins with.
    pub fn begin_with(&mut self, hard: HardState, members: ConfState) {
        self.initial = RaftState::new(hard, members);
    }

    /// Returns the number of the last entry.
    pub fn last(&self) -> u64 {
        self.before.0 + self.ends.len() as u64
    }

    /// Returns the number of the oldest entry whose records are there.
    pub fn first(&self) -> u64 {
        self.before.0 + 1
    }

    /// Returns the changes behind an entry that are known, by their numbers.
    pub fn changes_behind(&self, number: u64) -> impl Iterator<Item = (u64, &Configuration)> {
        self.changes.range(number + 1..).map(|(number, members)| (*number, &**members))
    }

    /// Returns the last record of an entry; None of one that is not known.
    pub fn end_of(&self, number: u64) -> Option<Index> {
        if number == self.before.0 {
            return Some(self.before.1);
        }
        let at = number.checked_sub(self.first())?;
        self.ends.get(at as usize).copied()
    }

    /// Returns the records of an entry; None of one that is not known.
    pub fn span(&self, number: u64) -> Option<EntrySpan> {
        let (before, last) = (self.end_of(number.checked_sub(1)?)?, self.end_of(number)?);
        let changes_members = self.changes.contains_key(&number);
        Some(EntrySpan { term: self.term_of(number)?, number, first: before.next(), last, changes_members })
    }

    /// Returns the term of an entry; None of one that is not known.
    pub fn term_of(&self, number: u64) -> Option<u64> {
        if number < self.before.0 || number > self.last() {
            return None;
        }
        let at = self.terms.partition_point(|(first, _)| *first <= number);
        self.terms.get(at.checked_sub(1)?).map(|(_, term)| *term)
    }

    /// Returns the members behind an entry that changes them; None of any other one.
    pub fn change(&self, number: u64) -> Option<&Arc<Configuration>> {
        self.changes.get(&number)
    }

    /// Returns the last entry that is known to be committed because of what follows: a change is made when all before
    /// it are carried out.
    pub fn committed_by_changes(&self) -> Option<u64> {
        self.changes.keys().rev().nth(1).copied()
    }

    /// Returns the members behind the last change that is known.
    pub fn last_change(&self) -> Option<&Arc<Configuration>> {
        self.changes.last_key_value().map(|(_, members)| members)
    }

    /// Returns the last entry that a log which ends with this record has whole.
    pub fn whole_at(&self, record: Index) -> u64 {
        self.before.0 + self.ends.partition_point(|end| *end <= record) as u64
    }

    /// Adds the next entry, with the members behind it where it changes them. The oldest entries are forgotten where
    /// there are too many, but none behind record `applied`: a change of the members among these is not in the data.
    ///
    /// # Panics
    /// The entry is not the next one.
    pub fn push(&mut self, span: EntrySpan, change: Option<Arc<Configuration>>, applied: Index) {
        let EntrySpan { term, number, first, last, changes_members } = span;
        assert_eq!(change.is_some(), changes_members, "a change says who the members are");
        assert!(
            self.changes.last_key_value().is_none_or(|(last, _)| *last < number),
            "what is taken back is forgotten"
        );
        let before = self.end_of(self.last()).expect("the last one is known");
        assert_eq!((number, first), (self.last() + 1, before.next()), "entries and records have no gaps");
        assert!(last >= first, "an entry has a record");
        let newest = self.terms.back().expect("that before the first is there").1;
        assert!(term >= newest, "terms never go back: {newest}, {span:?}");
        if term > newest {
            self.terms.push_back((number, term));
        }
        if let Some(change) = change {
            self.changes.insert(number, change);
        }
        self.ends.push_back(last);
        let excess = self.ends.len().saturating_sub(self.max) as u64;
        if excess > 0 {
            self.forget(self.whole_at(applied).min(self.before.0 + excess));
        }
    }

    /// Takes back the entries from this number on.
    pub fn truncate(&mut self, from: u64) {
        assert!(from > self.before.0, "what is forgotten is not taken back");
        self.ends.truncate((from - self.first()) as usize);
        while self.terms.back().is_some_and(|(first, _)| *first >= from) {
            self.terms.pop_back();
        }
        self.changes.split_off(&from);
    }

    /// Forgets the entries through this one: the log has their records no more.
    pub fn forget(&mut self, through: u64) {
        let through = through.min(self.last());
        let Some(term) = self.term_of(through).filter(|_| through > self.before.0) else { return };
        let end = self.end_of(through).expect("it is known");
        self.ends.drain(..(through - self.before.0) as usize);
        self.before = (through, end);
        while self.terms.get(1).is_some_and(|(first, _)| *first <= through) {
            self.terms.pop_front();
        }
        self.terms[0] = (through, term);
        self.changes = self.changes.split_off(&(through + 1));
    }

    fn entry(&self, number: u64) -> Option<Entry> {
        let mut entry = Entry { index: number, term: self.term_of(number)?, ..Entry::default() };
        if self.changes.contains_key(&number) {
            entry.set_entry_type(EntryType::EntryConfChangeV2);
        }
        Some(entry)
    }
}

fn missing(error: StorageError) -> raft::Error {
    raft::Error::Store(error)
}

impl Storage for Entries {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(self.initial.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        bytes_max: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low < self.first() {
            return Err(missing(StorageError::Compacted));
        }
        let count = bytes_max.into().map_or(u64::MAX, |bytes| (bytes / BYTES_EACH).max(1));
        let wanted = low..high.min(low.saturating_add(count));
        let found: Option<Vec<Entry>> = wanted.map(|number| self.entry(number)).collect();
        found.ok_or(missing(StorageError::Unavailable))
    }

    fn term(&self, number: u64) -> raft::Result<u64> {
        let why = if number < self.before.0 { StorageError::Compacted } else { StorageError::Unavailable };
        self.term_of(number).ok_or(missing(why))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// Returns the claim that there is a copy of everything, which ends with the last entry that is not there or later:
    /// who is told of it fetches one that is made then.
    fn snapshot(&self, _: u64, _: u64) -> raft::Result<Snapshot> {
        let (number, term) = (self.before.0, self.term_of(self.before.0));
        let Some(term) = term.filter(|_| number > 0) else {
            return Err(missing(StorageError::SnapshotTemporarilyUnavailable));
        };
        let mut snapshot = Snapshot::default();
        (snapshot.mut_metadata().index, snapshot.mut_metadata().term) = (number, term);
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_log::testing::Random;
    use std::collections::BTreeMap;

    /// Compares with a map what entries say of each number, and of each record.
    fn agree(entries: &Entries, model: &BTreeMap<u64, EntrySpan>, first: u64) {
        let last = model.last_key_value().map(|(number, _)| *number).unwrap_or_default();
        assert_eq!((entries.last(), entries.first()), (last.max(first - 1), first));
        for number in 0..last + 3 {
            let known = model.get(&number).filter(|_| number >= first);
            assert_eq!(entries.span(number), known.copied(), "{number}");
            assert_eq!(entries.term_of(number).is_some(), number + 1 >= first && number <= entries.last());
            let is_change = known.is_some_and(|span| span.last.0.is_multiple_of(7));
            assert_eq!(entries.change(number).is_some(), is_change, "{number}");
        }
        for span in model.values().filter(|span| span.number >= first) {
            assert_eq!(entries.whole_at(span.last), span.number);
            assert_eq!(entries.whole_at(Index(span.last.0 - 1)), span.number - 1);
        }
    }

    #[test]
    fn they_say_what_a_map_says() {
        for seed in 0..100 {
            let mut random = Random(seed);
            let (mut entries, mut model, mut first) = (Entries::new(0, 0, Index(0)), BTreeMap::new(), 1);
            for _ in 0..60 {
                let before = entries.last();
                match random.below(10) {
                    0 => {
                        let from = first + random.below(before + 2 - first);
                        entries.truncate(from);
                        model.split_off(&from);
                    }
                    1 => {
                        let through = random.below(before + 2);
                        entries.forget(through);
                        first = first.max(through.min(before) + 1);
                    }
                    _ => {
                        let begin = entries.end_of(before).unwrap().next();
                        let last = Index(begin.0 + random.below(3));
                        let term = entries.term_of(before).unwrap() + u64::from(random.chance(20));
                        let changes_members = last.0.is_multiple_of(7);
                        let span = EntrySpan { term, number: before + 1, first: begin, last, changes_members };
                        entries.push(span, changes_members.then(Arc::default), Index(0));
                        model.insert(span.number, span);
                    }
                }
                let known: BTreeMap<_, _> = model.range(first..).map(|(number, span)| (*number, *span)).collect();
                if known.is_empty() {
                    model.retain(|number, _| *number < first);
                }
                agree(&entries, &known, first);
            }
        }
    }

    #[test]
    #[should_panic(expected = "terms never go back")]
    fn a_term_that_goes_back_is_noticed() {
        let mut entries = Entries::new(3, 5, Index(9));
        let (first, last) = (Index(10), Index(10));
        entries.push(EntrySpan { term: 2, number: 6, first, last, changes_members: false }, None, Index(0));
    }
}
