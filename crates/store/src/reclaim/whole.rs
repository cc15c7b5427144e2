//! The full compaction under way, its pieces, and what is to follow it: see `pieces`.

use super::jobs::Job;
use crate::row::{RowKey, Space};
use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

/// The part of the base that a full compaction is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    Spaces(BTreeSet<Space>),
}

impl Wanted {
    fn and(self, other: Wanted) -> Wanted {
        match (self, other) {
            (Wanted::Spaces(mut spaces), Wanted::Spaces(more)) => {
                spaces.extend(more);
                Wanted::Spaces(spaces)
            }
            _ => Wanted::All,
        }
    }
}

/// The full compaction under way, and what is to be compacted afterwards.
#[derive(Default)]
pub(super) struct Compaction {
    wanted: Option<Wanted>,
    /// Whether a full compaction is being divided into pieces.
    is_beginning: bool,
    /// Pieces that have not begun.
    pieces: VecDeque<(RowKey, RowKey)>,
    /// The moment when the full compaction under way began, and the bytes of the base then.
    begun: Option<(Instant, u64)>,
    /// Whether no piece begins for now.
    is_held: bool,
    done: u64,
    failed: u64,
}

impl Compaction {
    pub fn want(&mut self, more: Wanted) {
        self.wanted = Some(match self.wanted.take() {
            Some(wanted) => wanted.and(more),
            None => more,
        });
    }

    pub fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Returns whether one was asked for that has not ended.
    pub fn is_going_on(&self) -> bool {
        self.wanted.is_some() || self.is_beginning || self.begun.is_some()
    }

    pub fn has_job(&self) -> bool {
        !self.is_held && (!self.pieces.is_empty() || self.begun.is_none() && self.wanted.is_some())
    }

    pub fn next_job(&mut self) -> Option<Job> {
        if !self.has_job() {
            return None;
        }
        match self.pieces.pop_front() {
            Some((from, until)) => Some(Job::Piece(from, until)),
            None => {
                self.is_beginning = true;
                self.wanted.take().map(Job::Begin)
            }
        }
    }

    /// Notes the pieces of the one that begins, unless it was given up meanwhile.
    pub fn begin(&mut self, pieces: Vec<(RowKey, RowKey)>, bytes: u64) {
        if std::mem::take(&mut self.is_beginning) {
            self.pieces = pieces.into();
            self.begun = Some((Instant::now(), bytes));
        }
    }

    /// Notes that a piece is done. Returns when its compaction began and the bytes of the base then, if it was the
    /// last.
    pub fn on_piece(&mut self) -> Option<(Instant, u64)> {
        let ended = if self.pieces.is_empty() { self.begun.take() } else { None };
        self.done += u64::from(ended.is_some());
        ended
    }

    /// Ends the one under way; what was asked for meanwhile is to follow.
    pub fn give_up(&mut self) {
        self.pieces.clear();
        (self.begun, self.is_beginning) = (None, false);
        self.failed += 1;
    }

    /// Ends the one under way, and forgets what was asked for.
    pub fn forget(&mut self) {
        self.give_up();
        (self.wanted, self.is_held) = (None, false);
    }

    pub fn figures(&self) -> [(&'static str, u64); 4] {
        [
            ("full_compaction_running", u64::from(self.is_going_on())),
            ("full_compaction_ranges_left", self.pieces.len() as u64),
            ("full_compactions_done", self.done),
            ("full_compactions_failed", self.failed),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(number: u32) -> Wanted {
        Wanted::Spaces([Space(number)].into())
    }

    #[test]
    fn what_is_asked_for_meanwhile_comes_next_as_one() {
        let mut compaction = Compaction::default();
        compaction.want(space(1));
        let Some(Job::Begin(wanted)) = compaction.next_job() else { panic!("it begins") };
        assert_eq!(wanted, space(1));
        assert!(compaction.is_going_on(), "while it is divided, too");
        let piece = |number: u8| (RowKey::from_slice(&[number]), RowKey::from_slice(&[number + 1]));
        compaction.begin(vec![piece(1), piece(2)], 7);
        compaction.want(space(2));
        compaction.want(space(3));
        assert!(matches!(compaction.next_job(), Some(Job::Piece(..))));
        assert!(compaction.on_piece().is_none());
        compaction.hold(true);
        assert!(compaction.next_job().is_none(), "it is held");
        compaction.hold(false);
        assert!(matches!(compaction.next_job(), Some(Job::Piece(..))));
        assert!(compaction.next_job().is_none(), "the second one waits for the first to end");
        assert_eq!(compaction.on_piece().map(|(_, bytes)| bytes), Some(7));
        let Some(Job::Begin(wanted)) = compaction.next_job() else { panic!("it begins") };
        assert_eq!(wanted, Wanted::Spaces([Space(2), Space(3)].into()));
        compaction.begin(vec![piece(1)], 0);
        compaction.want(Wanted::All);
        compaction.want(space(1));
        compaction.give_up();
        assert_eq!(compaction.next_job().map(|job| format!("{job:?}")), Some("Begin(All)".to_owned()));
        compaction.forget();
        compaction.begin(vec![piece(1)], 0);
        assert!(!compaction.is_going_on() && compaction.next_job().is_none(), "it was given up before it was divided");
    }
}
