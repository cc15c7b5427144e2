//! Parts of sorted sets: by index, by score, by member. Owns how a range becomes a run of rows, and the walks over it,
//! up and down, past as many elements as are left out.

use super::{Form, Large, Zset, element_of, elements_of, place_of};
use crate::key::damaged;
use crate::ranks::WALK_MAX;
use crate::{Result, score};
use haypile_store::row::RowKey;
use haypile_store::{Direction, Txn, View};
use std::ops::ControlFlow;

/// A bound of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreBound {
    pub score: f64,
    pub exclusive: bool,
}

/// A bound of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LexBound<'a> {
    Lowest,
    Highest,
    At(&'a [u8]),
    /// The bound is the member, which is outside.
    Beside(&'a [u8]),
}

impl LexBound<'_> {
    /// Tells whether a member is not below this, taken as a lower bound.
    fn allows_above(self, member: &[u8]) -> bool {
        match self {
            LexBound::Lowest => true,
            LexBound::Highest => false,
            LexBound::At(bound) => member >= bound,
            LexBound::Beside(bound) => member > bound,
        }
    }

    /// Tells whether a member is not above this, taken as an upper bound.
    fn allows_below(self, member: &[u8]) -> bool {
        match self {
            LexBound::Lowest => false,
            LexBound::Highest => true,
            LexBound::At(bound) => member <= bound,
            LexBound::Beside(bound) => member < bound,
        }
    }

    /// Tells whether two bounds have nothing between them.
    fn excludes(self, max: LexBound<'_>) -> bool {
        use LexBound::*;
        match (self, max) {
            (Highest, _) | (_, Lowest) => true,
            (Lowest, _) | (_, Highest) => false,
            (At(min), At(max)) => min > max,
            (At(min) | Beside(min), At(max) | Beside(max)) => min >= max,
        }
    }
}

/// A range of elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range<'a> {
    /// Elements from one index to another, counted from the lowest element, the end exclusive; within the set.
    Index {
        from: u64,
        until: u64,
    },
    Score {
        min: ScoreBound,
        max: ScoreBound,
    },
    /// Elements by member, for elements of one score; where scores differ, that of the lowest element is taken for all
    /// bounds.
    Lex {
        min: LexBound<'a>,
        max: LexBound<'a>,
    },
}

impl Range<'_> {
    fn min_allows(&self, member: &[u8], score: f64) -> bool {
        match self {
            Range::Index { .. } => true,
            Range::Score { min, .. } => {
                if min.exclusive {
                    score > min.score
                } else {
                    score >= min.score
                }
            }
            Range::Lex { min, .. } => min.allows_above(member),
        }
    }

    fn max_allows(&self, member: &[u8], score: f64) -> bool {
        match self {
            Range::Index { .. } => true,
            Range::Score { max, .. } => {
                if max.exclusive {
                    score < max.score
                } else {
                    score <= max.score
                }
            }
            Range::Lex { max, .. } => max.allows_below(member),
        }
    }
}

/// A range, the direction in which it is walked over, and which of its elements are meant: `skip` are left out, then at
/// most `take` come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch<'a> {
    pub range: Range<'a>,
    pub direction: Direction,
    pub skip: u64,
    pub take: u64,
}

impl<'a> Stretch<'a> {
    pub fn whole(range: Range<'a>) -> Stretch<'a> {
        Stretch { range, direction: Direction::Forward, skip: 0, take: u64::MAX }
    }
}

/// A run of rows: between two row keys (`None`: to the end), elements to pass over first, elements to take at most.
pub(super) struct Run {
    pub from: RowKey,
    pub until: Option<RowKey>,
    pub skip: u64,
    pub take: u64,
}

impl Zset {
    /// Counts the elements in a range.
    pub fn count(&self, txn: &mut Txn<'_>, range: Range<'_>) -> Result<u64> {
        match (range, &self.form) {
            (Range::Index { from, until }, _) => Ok(until.min(self.cardinality()?).saturating_sub(from)),
            (_, Form::Packed(payload)) => {
                let elements = elements_of(payload)?;
                Ok(within(&elements, range, Direction::Forward).len() as u64)
            }
            (_, Form::Rows(large)) => match large.row_bounds(txn, range)? {
                None => Ok(0),
                Some((from, None)) if from.is_empty() => self.cardinality(),
                Some((from, None)) => Ok(self.cardinality()?.saturating_sub(large.ranks.rank(txn, &from)?)),
                Some((from, Some(until))) => large.ranks.count(txn, &from, &until),
            },
        }
    }

    /// Counts the elements before a range of a set in rows.
    pub(super) fn before(&self, txn: &mut Txn<'_>, range: Range<'_>) -> Result<u64> {
        match (range, &self.form) {
            (Range::Index { from, .. }, _) => Ok(from),
            (_, Form::Packed(_)) => unreachable!("nothing asks for it"),
            (_, Form::Rows(large)) => match large.row_bounds(txn, range)? {
                Some((from, _)) => large.ranks.rank(txn, &from),
                None => Ok(0),
            },
        }
    }

    /// Visits the elements of a stretch.
    pub fn visit(
        &self,
        txn: &mut Txn<'_>,
        stretch: Stretch<'_>,
        mut visit: impl FnMut(&[u8], f64) -> ControlFlow<()>,
    ) -> Result<()> {
        let large = match &self.form {
            Form::Packed(payload) => {
                let elements = elements_of(payload)?;
                let part = &elements[within(&elements, stretch.range, stretch.direction)];
                let (skip, take) = (stretch.skip as usize, usize::try_from(stretch.take).unwrap_or(usize::MAX));
                let mut each = |(member, score): &(&[u8], f64)| visit(member, *score);
                let _ = match stretch.direction {
                    Direction::Forward => part.iter().skip(skip).take(take).try_for_each(&mut each),
                    Direction::Backward => part.iter().rev().skip(skip).take(take).try_for_each(&mut each),
                };
                return Ok(());
            }
            Form::Rows(large) => large,
        };
        let Some(run) = large.run(txn, stretch)? else { return Ok(()) };
        let (mut skip, mut take, mut bad) = (run.skip, run.take, false);
        let want = usize::try_from(skip.saturating_add(take)).unwrap_or(usize::MAX).min(large.head.count as usize);
        let (from, until) = large.ranks.range(&run.from, run.until.as_deref());
        txn.visit(&from, &until, stretch.direction, want, |row, value| {
            if skip > 0 {
                skip -= 1;
                return ControlFlow::Continue(());
            }
            let Some((member, score)) = element_of(row, value) else {
                bad = true;
                return ControlFlow::Break(());
            };
            take -= 1;
            match visit(member, score) {
                ControlFlow::Continue(()) if take > 0 => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        })?;
        if bad { Err(damaged("an element of a sorted set", &from)) } else { Ok(()) }
    }

    /// Returns the rows of a stretch as a view of this moment, to be read later and elsewhere, and how many of them
    /// come before its first element. `None`: there are none, or they all lie in the meta row.
    pub fn view(&self, txn: &mut Txn<'_>, stretch: Stretch<'_>) -> Result<Option<(View, u64)>> {
        let Form::Rows(large) = &self.form else { return Ok(None) };
        let Some(run) = large.run(txn, stretch)? else { return Ok(None) };
        let (from, until) = large.ranks.range(&run.from, run.until.as_deref());
        Ok(Some((txn.view(&from, &until, stretch.direction)?, run.skip)))
    }
}

/// Returns the elements of a packed set that are in a range, found from the end where the walk begins.
fn within(elements: &[(&[u8], f64)], range: Range<'_>, direction: Direction) -> std::ops::Range<usize> {
    match range {
        Range::Index { from, until } => {
            let until = (until as usize).min(elements.len());
            return (from as usize).min(until)..until;
        }
        Range::Lex { min, max } if min.excludes(max) => return 0..0,
        Range::Lex { .. } | Range::Score { .. } => {}
    }
    let min_allows = |element: &(&[u8], f64)| range.min_allows(element.0, element.1);
    let max_allows = |element: &(&[u8], f64)| range.max_allows(element.0, element.1);
    let reaches = elements.last().is_some_and(min_allows) && elements.first().is_some_and(max_allows);
    if !reaches {
        return 0..0;
    }
    match direction {
        Direction::Forward => {
            let from = elements.iter().position(min_allows).unwrap_or(elements.len());
            from..from + elements[from..].iter().take_while(|element| max_allows(element)).count()
        }
        Direction::Backward => {
            let until = elements.iter().rposition(max_allows).map_or(0, |last| last + 1);
            until - elements[..until].iter().rev().take_while(|element| min_allows(element)).count()..until
        }
    }
}

impl Large {
    /// Returns the row keys between which a range of scores or members lies, the end exclusive (`None`: to the end of
    /// all); nothing if the range is empty whatever the elements are.
    fn row_bounds(&self, txn: &mut Txn<'_>, range: Range<'_>) -> Result<Option<(RowKey, Option<RowKey>)>> {
        match range {
            Range::Index { .. } => unreachable!("an index is no place"),
            Range::Score { min, max } => {
                let from = if min.exclusive { score::place_behind(min.score) } else { score::place(min.score) };
                let until = if max.exclusive { score::place(max.score) } else { score::place_behind(max.score) };
                Ok((from < until).then(|| (RowKey::from_slice(&from), Some(RowKey::from_slice(&until)))))
            }
            Range::Lex { min, max } => {
                if min.excludes(max) {
                    return Ok(None);
                }
                let score = match (min, max) {
                    (LexBound::Lowest, LexBound::Highest) => 0.0,
                    _ => self.first_score(txn)?,
                };
                let from = match min {
                    LexBound::At(member) => place_of(member, score),
                    LexBound::Beside(member) => just_behind(member, score),
                    LexBound::Lowest | LexBound::Highest => RowKey::new(),
                };
                let until = match max {
                    LexBound::At(member) => Some(just_behind(member, score)),
                    LexBound::Beside(member) => Some(place_of(member, score)),
                    LexBound::Lowest | LexBound::Highest => None,
                };
                Ok(Some((from, until)))
            }
        }
    }

    fn first_score(&self, txn: &mut Txn<'_>) -> Result<f64> {
        let (from, _) = self.ranks.start(txn, RowKey::new(), None, Direction::Forward)?;
        let (from, until) = self.ranks.range(&from, None);
        let mut first = None;
        txn.visit(&from, &until, Direction::Forward, 1, |row, value| {
            first = element_of(row, value).map(|(_, score)| score);
            ControlFlow::Break(())
        })?;
        Ok(first.unwrap_or(0.0))
    }

    /// Returns the rows of a stretch, begun as close to its first element as the tree tells.
    pub(super) fn run(&self, txn: &mut Txn<'_>, stretch: Stretch<'_>) -> Result<Option<Run>> {
        let Stretch { range, direction, skip, take } = stretch;
        if take == 0 {
            return Ok(None);
        }
        if let Range::Index { from, until } = range {
            let until = until.min(self.head.count);
            let length = until.saturating_sub(from);
            let take = length.saturating_sub(skip).min(take);
            if take == 0 {
                return Ok(None);
            }
            let first = match direction {
                Direction::Forward => from + skip,
                Direction::Backward => until - 1 - skip,
            };
            return self.run_from(txn, first, direction, take).map(Some);
        }
        let Some((from, until)) = self.row_bounds(txn, range)? else { return Ok(None) };
        if skip > WALK_MAX {
            // The index of the first element, and how many there are.
            let low = self.ranks.rank(txn, &from)?;
            let high = match &until {
                Some(until) => self.ranks.rank(txn, until)?,
                None => self.head.count,
            };
            let range = Range::Index { from: low, until: high.max(low) };
            return self.run(txn, Stretch { range, ..stretch });
        }
        let (from, until) = self.ranks.start(txn, from, until, direction)?;
        Ok(Some(Run { from, until, skip, take }))
    }

    /// Returns `take` elements from the one with this index on.
    fn run_from(&self, txn: &mut Txn<'_>, first: u64, direction: Direction, take: u64) -> Result<Run> {
        let skip = match direction {
            Direction::Forward => first,
            Direction::Backward => self.head.count.saturating_sub(1 + first),
        };
        let is_near = !self.ranks.is_there() || (skip == 0 && self.ranks.is_dense(txn));
        let (key, skip) = if is_near { (None, skip) } else { self.ranks.find(txn, first, direction)? };
        let (from, until) = match direction {
            Direction::Forward => (key.unwrap_or_default(), None),
            Direction::Backward => (RowKey::new(), key),
        };
        Ok(Run { from, until, skip, take })
    }
}

/// Returns the first place behind that of a member.
fn just_behind(member: &[u8], score: f64) -> RowKey {
    let mut place = place_of(member, score);
    place.push(0);
    place
}
