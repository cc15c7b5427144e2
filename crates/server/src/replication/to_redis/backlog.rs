//! The part of the log from which a Redis can go on: the stream's name, and places in it whose offsets are known.
//!
//! A record always says the same bytes, so one known place is enough: what lies behind it is found by reading on. The
//! place through which all who follow have acknowledged is kept in a file, for the next start. The stream has an id in
//! each history of the log, made from the history and a number that is the stream's own: so a replica that has seen
//! more than what a crash has left, or than what a master had that it did not follow, asks by an id whose end is known.

use super::commands::Point;
use haypile_log::{DirectoryId, History, Hold, Index};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Bytes of the stream between two places whose offsets are kept.
const APART_BYTES: u64 = 64 << 10;

/// Records between two such places: those that say nothing take their time to be passed, too.
const APART_RECORDS: u64 = 4096;

/// Places that are kept at most; then every other one goes.
const POINTS_MAX: usize = 4096;

/// Replicas that have gone and are remembered.
const DEPARTED_MAX: usize = 64;

/// See the file's head.
pub struct Backlog {
    /// Makes the ids of the histories.
    pub(super) salt: History,
    /// The store of this version says what it does.
    pub(super) version: u64,
    /// The term in which a group's leader does.
    pub(super) term: u64,
    /// Places whose offsets are known, in their order. The log need not go back to all of them.
    pub(super) points: Vec<Point>,
    /// The place in the file, behind which all is held.
    pub(super) kept: Point,
    pub(super) hold: Hold,
    pub(super) saved: Instant,
    /// Through which record each replica has acknowledged, by the number of its connection.
    pub(super) acknowledged: BTreeMap<u64, Index>,
    /// Through which record replicas had acknowledged that have gone, and when: they may come back.
    pub(super) departed: Vec<(Index, Instant)>,
    /// The moment when the last replica has gone.
    pub(super) left: Instant,
    /// A record says nothing of what it does.
    pub(super) is_void: bool,
}

impl Backlog {
    pub(super) fn is_of(&self, version: u64, term: u64) -> bool {
        !self.is_void && (self.version, self.term) == (version, term)
    }

    /// Returns the last known place that a replica with so many bytes is behind: of records that say nothing, it has
    /// seen none for sure.
    pub(super) fn point_before(&self, had: u64) -> Option<Point> {
        let at = self.points.partition_point(|point| point.offset < had);
        let exact = || self.points.first().filter(|point| point.offset == had);
        at.checked_sub(1).and_then(|at| self.points.get(at)).or_else(exact).copied()
    }

    /// Returns the record behind which all is kept, for those who are there and those who have gone within `kept`.
    pub(super) fn needed(&mut self, kept: Option<Duration>) -> Option<Index> {
        self.departed.retain(|(_, at)| kept.is_none_or(|kept| at.elapsed() <= kept));
        let departed = self.departed.iter().map(|(index, _)| *index);
        self.acknowledged.values().copied().chain(departed).min()
    }

    /// Notes that a replica has gone. One that has not followed has nothing to come back to.
    pub(super) fn leave(&mut self, number: u64, has_followed: bool) {
        if let Some(through) = self.acknowledged.remove(&number).filter(|_| has_followed) {
            self.left = Instant::now();
            if self.departed.len() >= DEPARTED_MAX {
                self.departed.remove(0);
            }
            self.departed.push((through, self.left));
        }
    }

    /// Notes that a replica has come back, which goes on behind this record.
    pub(super) fn come_back(&mut self, at: Index) {
        let had = (0..self.departed.len()).filter(|&one| self.departed[one].0 <= at);
        if let Some(one) = had.max_by_key(|&one| self.departed[one].0) {
            self.departed.remove(one);
        }
    }

    /// Adds a place, if it is far enough behind the last one.
    pub(super) fn add(&mut self, at: Point) {
        let last = self.points.last().copied().unwrap_or(at);
        if at.offset < last.offset + APART_BYTES && at.index.0 < last.index.0 + APART_RECORDS {
            return;
        }
        if self.points.len() == POINTS_MAX {
            let mut number = 0;
            self.points.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        self.points.push(at);
    }
}

/// Makes an id of a history, or the history of an id.
pub(super) fn mixed(one: History, other: History) -> History {
    History(std::array::from_fn(|at| one.0[at] ^ other.0[at]))
}

pub(super) fn random() -> [u8; 20] {
    let (first, second) = (DirectoryId::random().0, DirectoryId::random().0);
    std::array::from_fn(|at| if at < first.len() { first[at] } else { second[at - first.len()] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_and_a_history_make_each_other() {
        let (history, salt) = (History([0x33; 20]), History(random()));
        let id = mixed(history, salt);
        assert_eq!(mixed(id, salt), history);
        assert_ne!(id, history);
    }
}
