//! Walks over the rows of a large collection in the order of their hashes, whatever its type: a page from a cursor on,
//! and elements drawn at random without reading the collection.
//!
//! A cursor is the hash of the next element. Elements that share a hash go out together, so that none is passed over.

use crate::Result;
use crate::element::{HASH_BYTES, RESERVED_HASH, ROW_PREFIX_BYTES, Rows, of_row};
use crate::key::damaged;
use haypile_store::{Direction, Drawn, Txn};
use std::ops::ControlFlow;

/// Looks at up to about `max` elements from a hash on, in order: `each` gets the element and its row's value. Returns
/// where to go on, if there is more.
pub fn page(
    txn: &mut Txn<'_>,
    rows: Rows,
    from: u32,
    max: usize,
    mut each: impl FnMut(&[u8], &[u8]),
) -> Result<Option<u32>> {
    let (from, until) = rows.from_hash(from);
    let (mut seen, mut last, mut next) = (0, None, Ok(None));
    txn.visit(&from, &until, Direction::Forward, max.saturating_add(1), |row, value| {
        let Some((hash, element)) = of_row(row) else {
            next = Err(damaged("the row of an element", row));
            return ControlFlow::Break(());
        };
        if seen >= max && last != Some(hash) {
            next = Ok(Some(hash));
            return ControlFlow::Break(());
        }
        each(element, value);
        (seen, last) = (seen + 1, Some(hash));
        ControlFlow::Continue(())
    })?;
    next
}

/// Looks at all elements, in order, until `each` breaks.
pub fn all(
    txn: &mut Txn<'_>,
    rows: Rows,
    want: usize,
    mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<()> {
    let (from, until) = rows.from_hash(0);
    let mut ended = Ok(());
    txn.visit(&from, &until, Direction::Forward, want, |row, value| match of_row(row) {
        Some((_, element)) => each(element, value),
        None => {
            ended = Err(damaged("the row of an element", row));
            ControlFlow::Break(())
        }
    })?;
    ended
}

/// Random numbers for code that has the transaction borrowed: a sequence of its own (SplitMix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(txn: &mut Txn<'_>) -> Dice {
        Dice(txn.random())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which is not 0; all are equally likely (Lemire 2019: the upper half of a
    /// product; numbers that would make it uneven are drawn again).
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        loop {
            let product = u128::from(self.next()) * u128::from(bound);
            let low = product as u64;
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }
}

/// Chooses `count` of `total` things that come one after the other: all choices are equally likely (Knuth's algorithm
/// S).
#[derive(Clone, Debug)]
pub struct Choice {
    pub total: u64,
    pub count: u64,
}

impl Choice {
    /// Tells whether the next thing is one of them.
    pub fn takes_next(&mut self, dice: &mut Dice) -> bool {
        if self.count == 0 || self.total == 0 {
            return false;
        }
        let takes = dice.below(self.total) < self.count;
        self.total -= 1;
        self.count -= u64::from(takes);
        takes
    }
}

/// Elements that an interval of hashes is expected to have. More of them make a draw look at more rows, but less often
/// in vain.
const EXPECTED: u64 = 32;

/// The ranks that are drawn from an interval. An interval that is expected to have 32 elements has more than these with
/// a probability below 10^-15.
const RANKS: u64 = 88;

/// The size up to which a collection is one interval, with as many ranks.
const WALK_MAX: u64 = 128;

/// Draws one of `count` elements, all equally likely, and gives it and its row's value to `take`.
///
/// The hashes are divided into as many intervals as there are elements for `EXPECTED` each. One interval is drawn, and
/// one rank in it: the element of that rank in the interval is the one; if there is none, both are drawn again.
/// So each element comes up with the same probability, however many share its interval, and a draw reads some dozens of
/// rows. A collection that lies in memory is drawn from there. Returns whether so many of its rows in the base are dead
/// that it is better copied without them.
pub fn draw(
    txn: &mut Txn<'_>,
    rows: Rows,
    count: u64,
    dice: &mut Dice,
    mut take: impl FnMut(&[u8], &[u8]),
) -> Result<bool> {
    let (intervals, ranks) = match count {
        0 => return Ok(false),
        1..=WALK_MAX => (1, count),
        _ => ((count / EXPECTED).min(INTERVALS_MAX), RANKS),
    };
    let (first, end) = rows.from_hash(0);
    let of_row_drawn = |row: &[u8], value: &[u8]| take(&row[ROW_PREFIX_BYTES + HASH_BYTES..], value);
    match txn.draw(&first, &end, count, || dice.next(), of_row_drawn)? {
        Drawn::No => {}
        drawn => return Ok(drawn == Drawn::OfFew),
    }
    let bound = |interval: u64| ((interval << 32) / intervals).min(u64::from(RESERVED_HASH)) as u32;
    for _ in 0..TRIES_MAX {
        let (interval, rank) = (dice.below(intervals), dice.below(ranks));
        let from = rows.data(&bound(interval).to_be_bytes());
        let until = rows.data(&bound(interval + 1).to_be_bytes());
        let (mut at, mut is_taken) = (0, false);
        let want = rank.min(EXPECTED) as usize + 1;
        txn.visit(&from, &until, Direction::Forward, want, |row, value| {
            if at < rank {
                at += 1;
                return ControlFlow::Continue(());
            }
            if let Some((_, element)) = of_row(row) {
                take(element, value);
                is_taken = true;
            }
            ControlFlow::Break(())
        })?;
        if is_taken {
            return Ok(false);
        }
    }
    // The count promises elements that are not there.
    Err(damaged("the count of a collection", &count.to_be_bytes()))
}

/// The most intervals: beyond, their bounds would be coarse.
const INTERVALS_MAX: u64 = 1 << 28;

/// The most tries: one in three finds an element, so that so many fail only where there is none.
const TRIES_MAX: u32 = 1000;
