//! The truth about all members together: each record that any had, what is committed, and the content that it led to.

use haypile_log::{Index, Next, Through};
use haypile_raft::{Member, Role};
use haypile_store::testing::model::{Model, check};
use std::collections::{BTreeMap, HashMap};

use crate::machine::Data;

/// A record: its index and its term. In one term a record is made by one leader.
pub type Place = (u64, u64);

/// The way of a member's log, as far as it was looked at.
#[derive(Default)]
pub struct Path {
    /// The term of each record.
    terms: Vec<u64>,
}

#[derive(Default)]
pub struct Truth {
    records: HashMap<Place, Vec<u8>>,
    /// The content behind each record of a client.
    contents: HashMap<Place, Model>,
    /// The term of each committed record.
    committed: Vec<u64>,
    leaders: BTreeMap<u64, u64>,
}

impl Path {
    /// Returns the last record.
    pub fn last(&self) -> u64 {
        self.terms.len() as u64
    }

    /// Returns the term of a record.
    pub fn term(&self, index: u64) -> Option<u64> {
        self.terms.get(index.checked_sub(1)? as usize).copied()
    }

    /// Checks that the log has a write that a client was told of.
    pub fn expect_told(&self, (index, term): Place, who: u64) {
        assert_eq!(self.term(index), Some(term), "member {who} lacks record {index}, which was acknowledged");
    }

    /// The log was opened again, with records through `keep`.
    pub fn cut(&mut self, keep: Index) {
        self.terms.truncate(keep.0 as usize);
    }
}

impl Truth {
    /// Notes the content that a client's record has led to.
    pub fn note(&mut self, place: Place, content: Model) {
        let before = self.contents.insert(place, content);
        assert!(before.is_none(), "record {} of term {} was made twice", place.0, place.1);
    }

    /// Returns the content of a member whose log goes this way, at a record. Records that it has not written yet are of
    /// its own term.
    pub fn content(&self, path: &Path, at: u64, term: u64) -> Model {
        let place = |index: u64| (index, path.term(index).unwrap_or(term));
        let found = (1..=at).rev().find_map(|index| self.contents.get(&place(index)));
        found.cloned().unwrap_or_default()
    }

    /// Returns whether this member was elected in this term, and nobody in a newer one.
    pub fn is_newest_leader(&self, id: u64, term: u64) -> bool {
        self.leaders.last_key_value() == Some((&term, &id))
    }

    /// Checks that a record is committed.
    pub fn expect_committed(&self, (index, term): Place, what: &str) {
        let found = self.committed.get(index as usize - 1);
        assert_eq!(found, Some(&term), "{what}: record {index} of term {term}");
    }

    /// Checks that the log of a member that serves in a term has all that was committed in that term or before. One
    /// that was stalled may begin to serve when others lead already: what they commit it cannot know.
    pub fn expect_whole(&self, path: &Path, term: u64, who: u64) {
        let known = self.committed.iter().take_while(|of| **of <= term).count();
        let at = (0..known).find(|at| path.terms.get(*at) != Some(&self.committed[*at]));
        assert_eq!(at, None, "member {who} lacks what is committed, behind this record");
    }

    /// Compares a member with the truth, and adds what it knows first.
    pub fn audit(&mut self, id: u64, member: &Member<Data>, path: &mut Path, sample: usize) {
        let store = &member.machine().node().store;
        let log = store.log();
        // Records that the log has no more are committed.
        let gone = log.stats().first.0.saturating_sub(1) as usize;
        if path.terms.len() < gone {
            path.terms = self.committed[..gone].to_vec();
        }
        let mut reader = log.reader(Index(path.last())).through(Through::Written);
        while let Next::Record(record) = reader.next().expect("the log can be read") {
            let place = (record.index.0, record.term);
            let bytes =
                [&[record.kind as u8], &record.entry.to_le_bytes()[..], &record.time_ms.to_le_bytes(), record.body]
                    .concat();
            let known = self.records.entry(place).or_insert_with(|| bytes.clone());
            assert!(*known == bytes, "two records {} in term {}", place.0, place.1);
            path.terms.push(record.term);
        }
        let standing = member.standing();
        if matches!(standing.role, Role::Elected | Role::Leader) {
            let leader = self.leaders.entry(standing.term).or_insert(id);
            assert_eq!(*leader, id, "two leaders in term {}", standing.term);
        }
        for index in 1..=standing.committed.0 {
            let Some(term) = path.term(index) else {
                // A leader may not have written what others have agreed on; another member has it.
                assert!(index > log.written().0, "record {index} is committed, and member {id} does not have it");
                break;
            };
            match self.committed.get(index as usize - 1) {
                Some(known) => assert_eq!(*known, term, "record {index} was committed twice"),
                None => self.committed.push(term),
            }
        }
        let content = self.content(path, store.applied_through().0, standing.term);
        let mut txn = member.machine().node().begin();
        check(&mut txn, &content, sample).expect("reads go on");
    }
}
