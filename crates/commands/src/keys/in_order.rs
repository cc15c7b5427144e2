//! The order in which a command of very many keys visits them: that of their rows, where nobody can tell.
//!
//! Rows lie in the order of slots and hashes, so that keys in the order of a request are everywhere: on the disk, each
//! would be looked for in a block of its own. In the order of rows each block is read once, and rows that lie close
//! together come from one ordered read (`Txn::begin_walk`).

use crate::args::Args;
use crate::error::Result;
use haypile_store::{Key, Txn};

/// Keys from which on the order is made; those of fewer are looked up in less time than others notice.
const ORDERED_FROM: usize = 256;

/// Keys from which on they are looked up by a walk: rows of fewer are put into the row cache, for the next command.
const WALKED_FROM: usize = 4096;

/// The number of keys that are read and stay, from which on nobody expects their rows in the row cache.
const WALKED_TO_READ_FROM: usize = 1 << 16;

/// The fate of the rows of keys that are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// The rows go, or are written anew.
    Replaced,
    /// The rows stay, and the next command may read them.
    Kept,
}

/// Visits the keys among the arguments from `first` on, each `step` one, with the number of the argument. Keys of one
/// name are visited in the order of the arguments, others in any order: the visits must not depend on each other.
///
/// # Errors
/// The error of the first visit that fails.
#[inline]
pub(crate) fn visit(
    txn: &mut Txn<'_>,
    args: Args<'_>,
    first: usize,
    step: usize,
    rows: Rows,
    mut visit: impl FnMut(&mut Txn<'_>, usize, &Key<'_>) -> Result<()>,
) -> Result<()> {
    let count = args.len().saturating_sub(first).div_ceil(step);
    // An event loop finds all rows in memory, or gives up at the first one that it does not. Events are told in the
    // order of the visits.
    if count >= ORDERED_FROM && txn.may_take_long() && !txn.tells_order() {
        return visit_in_order(txn, args, first, step, rows, &mut visit);
    }
    (first..args.len()).step_by(step).try_for_each(|i| {
        let key = args.key(txn, i);
        visit(txn, i, &key)
    })
}

/// Visits very many keys in the order of their rows.
#[cold]
fn visit_in_order(
    txn: &mut Txn<'_>,
    args: Args<'_>,
    first: usize,
    step: usize,
    rows: Rows,
    visit: &mut dyn FnMut(&mut Txn<'_>, usize, &Key<'_>) -> Result<()>,
) -> Result<()> {
    let order = Order::of(txn, args, first, step);
    let walks = match rows {
        Rows::Replaced => order.places.len() >= WALKED_FROM,
        Rows::Kept => order.places.len() >= WALKED_TO_READ_FROM,
    };
    if let Some(last) = order.arguments().next_back().filter(|_| walks) {
        let last = args.key(txn, last);
        txn.begin_walk(&last);
    }
    let visited = order.arguments().try_for_each(|i| {
        let key = args.key(txn, i);
        visit(txn, i, &key)
    });
    txn.end_walk();
    visited
}

/// Arguments in the order of their keys' rows.
struct Order {
    /// The place of each key's row, whose last bits are the number of the key among the others. One number for each of
    /// a million keys is all the memory that the order takes: the last bits of the hash give way, which leaves a few
    /// neighbours out of order.
    places: Vec<u64>,
    number_bits: u32,
    first: usize,
    step: usize,
}

impl Order {
    fn of(txn: &Txn<'_>, args: Args<'_>, first: usize, step: usize) -> Order {
        let count = args.len().saturating_sub(first).div_ceil(step);
        let number_bits = usize::BITS - count.leading_zeros();
        let place_of = |(number, i): (usize, usize)| {
            let key = args.key(txn, i);
            // 14 bits of the slot, 32 of the hash.
            let place = u64::from(key.slot.0) << 50 | u64::from(key.hash) << 18;
            place >> number_bits << number_bits | number as u64
        };
        let mut places = Vec::with_capacity(count);
        places.extend((first..args.len()).step_by(step).enumerate().map(place_of));
        places.sort_unstable();
        Order { places, number_bits, first, step }
    }

    fn arguments(&self) -> impl DoubleEndedIterator<Item = usize> {
        let numbers = self.places.iter().map(|place| (place & ((1 << self.number_bits) - 1)) as usize);
        numbers.map(|number| self.first + number * self.step)
    }
}
