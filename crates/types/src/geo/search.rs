//! The walk over the positions of a sorted set that lie within an area, in the order in which Redis comes to them: cell
//! by cell, by score within each. Goes in steps, so that a caller with many positions can do other work in between.

use super::{Area, Cell, Position, Test};
use crate::Result;
use crate::zset::{Range, ScoreBound, Stretch, Zset};
use haypile_store::{Direction, Txn};
use smallvec::SmallVec;
use std::ops::ControlFlow;

/// A search under way.
pub struct Search {
    test: Test,
    cells: SmallVec<[Cell; 9]>,
    /// The cell that is looked into, and at how many of its elements the search has looked.
    at: usize,
    looked: u64,
}

impl Search {
    pub fn new(area: &Area) -> Search {
        Search { test: Test::new(area), cells: area.cells(), at: 0, looked: 0 }
    }

    /// Looks at up to so many further elements, and gives the member, score and distance in metres of each position in
    /// the area to `each`, until that breaks. Says whether there may be more.
    pub fn step(
        &mut self,
        txn: &mut Txn<'_>,
        zset: &Zset,
        elements_max: u64,
        mut each: impl FnMut(&[u8], f64, f64) -> ControlFlow<()>,
    ) -> Result<bool> {
        let (mut left, test, mut ended) = (elements_max, self.test, false);
        while let Some(cell) = self.cells.get(self.at) {
            let (min, max) = cell.scores();
            let range = Range::Score {
                min: ScoreBound { score: min, exclusive: false },
                max: ScoreBound { score: max, exclusive: true },
            };
            // One element more than wanted tells whether the cell ends there.
            let stretch =
                Stretch { range, direction: Direction::Forward, skip: self.looked, take: left.saturating_add(1) };
            let mut looked = 0;
            zset.visit(txn, stretch, |member, score| {
                if looked == left {
                    ended = true;
                    return ControlFlow::Break(());
                }
                looked += 1;
                match test.distance_m(Position::of_score(score)) {
                    Some(distance_m) => {
                        let flow = each(member, score, distance_m);
                        ended |= flow.is_break();
                        flow
                    }
                    None => ControlFlow::Continue(()),
                }
            })?;
            self.looked += looked;
            left -= looked;
            if ended {
                return Ok(true);
            }
            (self.at, self.looked) = (self.at + 1, 0);
        }
        Ok(false)
    }
}
