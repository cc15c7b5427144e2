//! The truth about all nodes together: each record, and the content that it led to.

use haypile_log::{Histories, History, Index, Next, Through};
use haypile_store::testing::model::{Model, check};
use haypile_store::testing::node::Node;
use std::collections::HashMap;

/// A place in the order of all changes, on one of the ways that nodes have gone.
pub type Place = (History, Index);

#[derive(Default)]
pub struct Truth {
    /// The bytes of each record that any node had.
    records: HashMap<Place, Vec<u8>>,
    /// The content behind each record of a client.
    contents: HashMap<Place, Model>,
}

impl Truth {
    /// Notes the content that a client's record has led to.
    pub fn note(&mut self, place: Place, content: Model) {
        let before = self.contents.insert(place, content);
        assert!(before.is_none(), "record {} of history {} was made twice", place.1, place.0);
    }

    /// Returns the content of a node that went through these histories up to a record.
    pub fn content(&self, histories: &Histories, last: Index) -> Model {
        let place = |index: u64| histories.of(Index(index)).map(|history| (history, Index(index)));
        let found = (1..=last.0).rev().find_map(|index| self.contents.get(&place(index)?));
        found.cloned().unwrap_or_default()
    }

    /// Compares the records of a node behind `audited` with those of the others, and its content with theirs.
    pub fn audit(&mut self, node: &Node, audited: &mut Index, seed: u64) {
        let log = node.store.log();
        let last = log.last();
        log.write();
        let mut reader = log.reader(*audited).through(Through::Written);
        while let Next::Record(record) = reader.next().expect("the log can be read") {
            let place = (record.history, record.index);
            let bytes = [&[record.kind as u8], &record.time_ms.to_le_bytes()[..], record.body].concat();
            let known = self.records.entry(place).or_insert_with(|| bytes.clone());
            assert!(*known == bytes, "two records at {} of history {}", place.1, place.0);
        }
        *audited = last;
        let content = self.content(&log.histories(), last);
        let mut txn = node.begin();
        check(&mut txn, &content, 1 + seed as usize % 5).expect("reads go on");
    }
}
