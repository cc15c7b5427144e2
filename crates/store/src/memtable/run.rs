//! A sorted run: the building block of `keys` and `elements`. The rows stand in the order of a number that is made of
//! their keys, and rows of one number in the order of the keys themselves.
//!
//! The cost of a lookup is its misses in the CPU's caches, so it reads little: a few of the 8-byte orders, which are
//! found by interpolation because most are spread evenly, and then the row itself, which is one block.

use super::entry::RowEntry;
use std::cmp::Ordering;
use std::hint::black_box;

/// A sorted run. Invariant: `orders[i]` is the order of `rows[i]`; the orders stand apart, so that a search touches few
/// cache lines. Invariant: rows of equal orders begin with the same `PREFIX` bytes.
#[derive(Default)]
pub struct Run<const PREFIX: usize> {
    orders: Vec<u64>,
    rows: Vec<RowEntry>,
    /// A copy of `orders[0]`, which saves a cache miss.
    first: u64,
    /// Positions for each unit of order, if the orders were spread evenly.
    scale: f64,
}

/// A lookup that has found its run and has not looked into it.
pub struct Probe<'t, const PREFIX: usize> {
    run: &'t Run<PREFIX>,
    order: u64,
    /// The position at which the search begins.
    from: usize,
}

/// Half of the orders that are compared around a guess: a few cache lines side by side.
const NEAR: usize = 12;

impl<const PREFIX: usize> Run<PREFIX> {
    /// Returns an empty run with room for `rows`.
    pub fn with_room(rows: usize) -> Self {
        Run { orders: Vec::with_capacity(rows), rows: Vec::with_capacity(rows), first: 0, scale: 0.0 }
    }

    /// Returns a run of one row, with room for `rows`.
    pub fn of(order: u64, row: RowEntry, rows: usize) -> Self {
        let mut run = Run::with_room(rows);
        run.insert(0, order, row);
        run
    }

    /// Gives back room beyond `rows`.
    pub fn shrink_to(&mut self, rows: usize) {
        self.orders.shrink_to(rows);
        self.rows.shrink_to(rows);
    }

    /// Returns how many rows there is room for.
    #[cfg(test)]
    pub fn room(&self) -> usize {
        self.rows.capacity()
    }

    #[inline]
    pub fn rows(&self) -> &[RowEntry] {
        &self.rows
    }

    #[inline]
    pub fn row_mut(&mut self, at: usize) -> &mut RowEntry {
        &mut self.rows[at]
    }

    #[inline]
    pub fn orders(&self) -> &[u64] {
        &self.orders
    }

    /// Returns the first order; 0 if the run is empty.
    #[inline]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns where the row is, or where it would go. `name` is its key behind the prefix.
    #[inline]
    pub fn find(&self, order: u64, name: &[u8]) -> Result<usize, usize> {
        let at = self.lower_bound(order);
        if self.orders.get(at) != Some(&order) {
            return Err(at);
        }
        match self.rows[at].behind::<PREFIX>().cmp(name) {
            Ordering::Equal => Ok(at),
            Ordering::Greater => Err(at),
            Ordering::Less => {
                // Rows of one order are mostly rare; but a sorted set may be full of members of one score.
                let behind = at + 1;
                let count = self.orders[behind..].partition_point(|other| *other == order);
                let found = search::<PREFIX>(&self.rows[behind..behind + count], name);
                found.map(|at| behind + at).map_err(|at| behind + at)
            }
        }
    }

    /// Begins a lookup: guesses where the order is.
    #[inline]
    pub fn probe(&self, order: u64) -> Probe<'_, PREFIX> {
        Probe { run: self, order, from: self.guess(order) }
    }

    pub fn insert(&mut self, at: usize, order: u64, row: RowEntry) {
        debug_assert!(self.orders[..at].last().is_none_or(|before| *before <= order), "the orders of a run ascend");
        debug_assert!(self.orders[at..].first().is_none_or(|behind| order <= *behind), "the orders of a run ascend");
        if self.rows.capacity() == 0 {
            // Most objects with one row never get another: the owner rows.
            self.orders.reserve_exact(1);
            self.rows.reserve_exact(1);
        }
        self.orders.insert(at, order);
        self.rows.insert(at, row);
        self.on_changed();
    }

    pub fn remove(&mut self, at: usize) -> RowEntry {
        self.orders.remove(at);
        let gone = self.rows.remove(at);
        self.on_changed();
        gone
    }

    /// Takes out the rows of a range of places.
    pub fn drain(&mut self, range: std::ops::Range<usize>, into: &mut Vec<RowEntry>) {
        self.orders.drain(range.clone());
        into.extend(self.rows.drain(range));
        self.on_changed();
    }

    /// Moves the rows from `at` on to another run, with room for `rows`.
    pub fn split_off(&mut self, at: usize, rows: usize) -> Self {
        let mut second = Run::with_room(rows);
        second.orders.extend(self.orders.drain(at..));
        second.rows.extend(self.rows.drain(at..));
        self.on_changed();
        second.on_changed();
        second
    }

    /// Returns how many orders are less: guesses, and counts where the guess is near.
    #[inline]
    fn lower_bound(&self, order: u64) -> usize {
        self.lower_bound_near(self.guess(order), order)
    }

    /// Returns where the orders begin that are looked at first.
    #[inline]
    fn guess(&self, order: u64) -> usize {
        let guess = (order.saturating_sub(self.first) as f64 * self.scale) as usize;
        guess.saturating_sub(NEAR).min(self.orders.len().saturating_sub(2 * NEAR))
    }

    #[inline]
    fn lower_bound_near(&self, from: usize, order: u64) -> usize {
        let orders = &self.orders[..];
        let less = |part: &[u64]| part.iter().map(|other| usize::from(*other < order)).sum::<usize>();
        if orders.len() <= 2 * NEAR {
            return less(orders);
        }
        let near = &orders[from..from + 2 * NEAR];
        match less(near) {
            0 if from > 0 => orders[..from].partition_point(|other| *other < order),
            count if count == near.len() => {
                from + count + orders[from + count..].partition_point(|other| *other < order)
            }
            count => from + count,
        }
    }

    /// Corrects the figures from which the position is guessed.
    #[inline]
    fn on_changed(&mut self) {
        if let (Some(first), Some(last)) = (self.orders.first(), self.orders.last()) {
            self.first = *first;
            self.scale = self.orders.len() as f64 / ((last - first) as f64 + 1.0);
        }
    }
}

/// Rows that are fetched from memory together in a search that has nothing but the rows to go by.
const WAYS: usize = 8;

/// Returns where a name is among rows, or where it would go: a search in which each step looks at several rows, because
/// to wait for all of them takes hardly longer than to wait for one.
fn search<const PREFIX: usize>(rows: &[RowEntry], name: &[u8]) -> Result<usize, usize> {
    let (mut low, mut high) = (0, rows.len());
    while high - low > WAYS {
        let step = (high - low) / WAYS;
        let at = |way: usize| low + way * step;
        black_box((1..WAYS).map(|way| rows[at(way)].touch_line()).sum::<usize>());
        let below = (1..WAYS).take_while(|way| rows[at(*way)].behind::<PREFIX>() <= name).count();
        (low, high) = (at(below), if below + 1 == WAYS { high } else { at(below + 1) });
    }
    black_box(rows[low..high].iter().map(RowEntry::touch_line).sum::<usize>());
    rows[low..high].binary_search_by(|row| row.behind::<PREFIX>().cmp(name)).map(|at| low + at).map_err(|at| low + at)
}

impl<'t, const PREFIX: usize> Probe<'t, PREFIX> {
    /// Reads one order of each cache line that the next step looks at: a prefetch. The sum is small: callers add some
    /// up.
    #[inline]
    pub fn touch(&self) -> usize {
        const LINE_ORDERS: usize = 64 / size_of::<u64>();
        let near = self.run.orders[self.from..].iter().take(2 * NEAR).step_by(LINE_ORDERS);
        near.fold(0, |seen, order| seen | (*order as usize & 1))
    }

    /// Returns the first row of this order: nearly always the one that is looked for. If there is none, the error has
    /// the rows behind the order's place, which an insertion would move.
    #[inline]
    pub fn row(&self) -> Result<&'t RowEntry, &'t [RowEntry]> {
        let at = self.run.lower_bound_near(self.from, self.order);
        if self.run.orders.get(at) == Some(&self.order) { Ok(&self.run.rows[at]) } else { Err(&self.run.rows[at..]) }
    }
}
