//! The rows of one object in the order of their keys. Most objects are small: one run. A larger object is cut into
//! runs, and these into groups, so that an insertion moves a bounded number of rows and runs, however large the object.
//!
//! The order is the first eight bytes of the element: a hash and the beginning of a name, a position, a score. Where
//! many elements share an order, as members of one score do, runs are cut between two of them, so a search compares
//! elements too.

#[cfg(test)]
mod tests;

use super::entry::RowEntry;
use super::run::{Probe, Run};
use crate::access::Stamp;
use haypile_log::Index;

/// Bytes of a row's key before the element: family, space, slot, id.
pub const PREFIX: usize = 15;

/// Most rows of an object that is one run: an insertion moves half of them, 32 bytes for each.
const FEW_MAX: usize = 128;

/// Longest run of an object that has several.
const RUN_MAX: usize = 64;

/// Most runs of a group: a split moves half of them, about 90 bytes for each. A group holds some thousand rows.
const GROUP_MAX: usize = 64;

/// Bits of a random number that stand for a place in a run, and for a run of a group.
const PLACE_BITS: u32 = (RUN_MAX * GROUP_MAX).ilog2();

type ElementRun = Run<PREFIX>;
type Group = Parts<ElementRun>;

/// Rows of one object.
pub enum Elements {
    Few(ElementRun),
    Some(Group),
    Many(Box<Parts<Group>>),
}

/// Ascending parts of an object's rows, none empty, and their separators. Invariant: all elements of a part are at or
/// above its separator and below the next part's. The first part also takes each element below its own separator.
pub struct Parts<T> {
    /// The separators' orders, apart so that a search touches few cache lines.
    orders: Vec<u64>,
    separators: Vec<Box<[u8]>>,
    parts: Vec<T>,
}

/// Returns the order of an element among those of its object: its first eight bytes, filled up with zeros.
#[inline]
pub fn order_of(element: &[u8]) -> u64 {
    match element.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..element.len()].copy_from_slice(element);
            u64::from_be_bytes(bytes)
        }
    }
}

impl<T> Parts<T> {
    fn one(part: T) -> Self {
        Parts { orders: vec![0], separators: vec![Box::default()], parts: vec![part] }
    }

    fn len(&self) -> usize {
        self.parts.len()
    }

    /// Returns the part in which an element is or would be.
    #[inline]
    fn find(&self, order: u64, element: &[u8]) -> usize {
        let until = self.orders.partition_point(|other| *other <= order);
        if until <= 1 || self.orders[until - 1] < order {
            return until.saturating_sub(1);
        }
        // The separators of this order begin here.
        let from = self.orders[..until].partition_point(|other| *other < order);
        let below = self.separators[from..until].partition_point(|other| **other <= *element);
        (from + below).saturating_sub(1)
    }

    /// Returns the last part in which an element of this order may be.
    #[inline]
    fn last_of(&self, order: u64) -> usize {
        self.orders.partition_point(|other| *other <= order).saturating_sub(1)
    }

    fn insert(&mut self, at: usize, separator: &[u8], part: T) {
        self.orders.insert(at, order_of(separator));
        self.separators.insert(at, separator.into());
        self.parts.insert(at, part);
    }

    fn remove(&mut self, at: usize) {
        self.orders.remove(at);
        self.separators.remove(at);
        self.parts.remove(at);
    }

    /// Moves the parts from `at` on to another list, whose first separator separates the two.
    fn split_off(&mut self, at: usize) -> Self {
        Parts {
            orders: self.orders.split_off(at),
            separators: self.separators.split_off(at),
            parts: self.parts.split_off(at),
        }
    }
}

impl Parts<ElementRun> {
    /// Puts a new row at a place of a run. Returns where a new run is, if the row made one. `ends` says whether the
    /// group is the first one of all and whether it is the last.
    fn insert_row(&mut self, which: usize, at: usize, entry: RowEntry, ends: (bool, bool)) -> Option<usize> {
        let order = order_of(entry.behind::<PREFIX>());
        let is_last = which + 1 == self.len();
        let run = &mut self.parts[which];
        if run.rows().len() < RUN_MAX {
            run.insert(at, order, entry);
            return None;
        }
        // Lists grow at their ends: a full run there stays full, and the row begins a run of its own.
        if at == RUN_MAX && is_last && ends.1 {
            let separator: Box<[u8]> = entry.behind::<PREFIX>().into();
            self.insert(which + 1, &separator, ElementRun::of(order, entry, RUN_MAX));
            return Some(which + 1);
        }
        if at == 0 && which == 0 && ends.0 {
            let separator: Box<[u8]> = run.rows()[0].behind::<PREFIX>().into();
            (self.orders[0], self.separators[0]) = (order_of(&separator), separator);
            self.insert(0, b"", ElementRun::of(order, entry, RUN_MAX));
            return Some(0);
        }
        let mut second = run.split_off(RUN_MAX / 2, RUN_MAX);
        match at.checked_sub(RUN_MAX / 2) {
            None | Some(0) => run.insert(at, order, entry),
            Some(at) => second.insert(at, order, entry),
        }
        let separator: Box<[u8]> = second.rows()[0].behind::<PREFIX>().into();
        self.insert(which + 1, &separator, second);
        Some(which + 1)
    }
}

impl Parts<Group> {
    /// Divides a group that has become too large: before or behind its new run where that is at an end of the object,
    /// else in the middle.
    fn split(&mut self, at: usize, new_run: usize) {
        let is_last = at + 1 == self.len();
        let group = &mut self.parts[at];
        let cut = match new_run {
            0 if at == 0 => 1,
            new_run if is_last && new_run + 1 == group.len() => new_run,
            _ => group.len() / 2,
        };
        let second = group.split_off(cut);
        let separator = second.separators[0].clone();
        self.insert(at + 1, &separator, second);
    }
}

impl Default for Elements {
    fn default() -> Self {
        Elements::Few(ElementRun::default())
    }
}

impl Elements {
    #[inline]
    pub fn get(&self, element: &[u8]) -> Option<&RowEntry> {
        let order = order_of(element);
        let run = self.run(self.run_of(order, element));
        run.find(order, element).ok().map(|at| &run.rows()[at])
    }

    /// Begins a lookup by the element's order alone: among elements of one order in the last run that may have them.
    #[inline]
    pub fn probe(&self, order: u64) -> Probe<'_, PREFIX> {
        let run = match self {
            Elements::Few(run) => run,
            Elements::Some(group) => &group.parts[group.last_of(order)],
            Elements::Many(groups) => {
                let group = &groups.parts[groups.last_of(order)];
                &group.parts[group.last_of(order)]
            }
        };
        run.probe(order)
    }

    #[inline]
    pub fn get_mut(&mut self, element: &[u8]) -> Option<&mut RowEntry> {
        let order = order_of(element);
        let place = self.run_of(order, element);
        let run = self.run_mut(place);
        let at = run.find(order, element).ok()?;
        Some(run.row_mut(at))
    }

    /// Writes a row or its tombstone; returns by how many bytes the object's rows grew.
    pub fn put(&mut self, row: &[u8], value: Option<&[u8]>, index: Index) -> i64 {
        let (element, order) = (&row[PREFIX..], order_of(&row[PREFIX..]));
        let place = self.run_of(order, element);
        let run = self.run_mut(place);
        match run.find(order, element) {
            Ok(at) => run.row_mut(at).overwrite(row, value, index, Stamp::UNUSED),
            Err(at) => {
                let entry = RowEntry::new(row, value, index, Stamp::UNUSED);
                let grown = entry.bytes();
                self.insert(Place { at, ..place }, order, entry);
                grown
            }
        }
    }

    fn insert(&mut self, place: Place, order: u64, entry: RowEntry) {
        match self {
            Elements::Few(run) if run.rows().len() < FEW_MAX => run.insert(place.at, order, entry),
            Elements::Few(run) => {
                let second = run.split_off(FEW_MAX / 2, RUN_MAX);
                let separator: Box<[u8]> = second.rows()[0].behind::<PREFIX>().into();
                let mut first = std::mem::take(run);
                first.shrink_to(RUN_MAX);
                let mut group = Parts::one(first);
                group.insert(1, &separator, second);
                let (run, at) = match place.at.checked_sub(FEW_MAX / 2) {
                    None | Some(0) => (0, place.at),
                    Some(at) => (1, at),
                };
                group.insert_row(run, at, entry, (true, true));
                *self = Elements::Some(group);
            }
            Elements::Some(group) => {
                let new = group.insert_row(place.run, place.at, entry, (true, true));
                if let Some(new) = new.filter(|_| group.len() > GROUP_MAX) {
                    let group = std::mem::replace(group, Parts::one(ElementRun::default()));
                    let mut groups = Parts::one(group);
                    groups.split(0, new);
                    *self = Elements::Many(Box::new(groups));
                }
            }
            Elements::Many(groups) => {
                let ends = (place.group == 0, place.group + 1 == groups.len());
                let group = &mut groups.parts[place.group];
                let new = group.insert_row(place.run, place.at, entry, ends);
                if let Some(new) = new.filter(|_| group.len() > GROUP_MAX) {
                    groups.split(place.group, new);
                }
            }
        }
    }

    /// Takes a row out.
    pub fn remove(&mut self, element: &[u8]) -> Option<RowEntry> {
        let order = order_of(element);
        let place = self.run_of(order, element);
        let run = self.run_mut(place);
        let at = run.find(order, element).ok()?;
        let gone = run.remove(at);
        self.tidy(place);
        Some(gone)
    }

    /// Deletes a row: without a trace where `below` does not have it. A row that is not here is taken to be in the
    /// base: a caller that deletes a row has found it, and a tombstone that hides nothing does no harm. Returns by how
    /// many bytes the object's rows grew.
    pub fn hide(&mut self, row: &[u8], below: &Elements, index: Index) -> i64 {
        let (element, order) = (&row[PREFIX..], order_of(&row[PREFIX..]));
        let place = self.run_of(order, element);
        let run = self.run_mut(place);
        match run.find(order, element) {
            Ok(at) if below.get(element).is_some() => run.row_mut(at).overwrite(row, None, index, Stamp::UNUSED),
            Ok(at) => {
                let gone = run.remove(at);
                self.tidy(place);
                -gone.bytes()
            }
            Err(at) => {
                let entry = RowEntry::new(row, None, index, Stamp::UNUSED);
                let grown = entry.bytes();
                self.insert(Place { at, ..place }, order, entry);
                grown
            }
        }
    }

    /// Takes out `max` rows, or all if they are fewer: the last ones first.
    pub fn take(&mut self, max: usize, into: &mut Vec<RowEntry>) {
        let until = into.len() + max;
        while into.len() < until && !self.is_empty() {
            let place = self.run_before(self.end());
            let run = self.run_mut(place);
            let len = run.rows().len();
            run.drain(len.saturating_sub(until - into.len())..len, into);
            self.tidy(place);
        }
    }

    /// Removes the parts that became empty when rows were taken out of a run. The last run of all stays.
    fn tidy(&mut self, place: Place) {
        if !self.run(place).rows().is_empty() {
            return;
        }
        match self {
            Elements::Few(_) => {}
            Elements::Some(group) if group.len() > 1 => group.remove(place.run),
            Elements::Some(_) => *self = Elements::default(),
            Elements::Many(groups) => {
                groups.parts[place.group].remove(place.run);
                if groups.parts[place.group].len() == 0 {
                    groups.remove(place.group);
                }
                if groups.len() == 0 {
                    *self = Elements::default();
                }
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Elements::Few(run) if run.rows().is_empty())
    }

    /// Returns the rows from one element to another, the second one excluded and perhaps the end.
    pub fn range(&self, from: &[u8], until: Option<&[u8]>) -> Range<'_> {
        let front = self.lower_bound(from);
        let back = until.map_or(self.end(), |until| self.lower_bound(until));
        Range::new(self, front, back)
    }

    pub fn all(&self) -> Range<'_> {
        self.range(b"", None)
    }

    /// Returns the number of places of which `at_place` chooses.
    pub fn places(&self) -> usize {
        match self {
            Elements::Few(run) => run.rows().len(),
            Elements::Some(group) => group.len() * RUN_MAX,
            Elements::Many(groups) => groups.len() * GROUP_MAX * RUN_MAX,
        }
    }

    /// Returns the row at the place that a random number stands for, if there is one. All rows are at equally many
    /// places.
    pub fn at_place(&self, random: u64) -> Option<&RowEntry> {
        // Returns the upper bits as a number below `bound`, which is far smaller.
        let below = |bound: usize| ((u128::from(random >> PLACE_BITS) * bound as u128) >> (64 - PLACE_BITS)) as usize;
        let (at, run) = (random as usize % RUN_MAX, random as usize / RUN_MAX % GROUP_MAX);
        let run = match self {
            Elements::Few(run) => return run.rows().get(below(run.rows().len())),
            Elements::Some(group) => group.parts.get(below(group.parts.len())),
            Elements::Many(groups) => {
                groups.parts.get(below(groups.parts.len())).and_then(|group| group.parts.get(run))
            }
        };
        run.and_then(|run| run.rows().get(at))
    }

    /// Returns the beginning of the run in which an element is or would be.
    #[inline]
    fn run_of(&self, order: u64, element: &[u8]) -> Place {
        let (group, run) = match self {
            Elements::Few(_) => (0, 0),
            Elements::Some(group) => (0, group.find(order, element)),
            Elements::Many(groups) => {
                let group = groups.find(order, element);
                (group, groups.parts[group].find(order, element))
            }
        };
        Place { group, run, at: 0 }
    }

    #[inline]
    fn run(&self, place: Place) -> &ElementRun {
        match self {
            Elements::Few(run) => run,
            Elements::Some(group) => &group.parts[place.run],
            Elements::Many(groups) => &groups.parts[place.group].parts[place.run],
        }
    }

    #[inline]
    fn run_mut(&mut self, place: Place) -> &mut ElementRun {
        match self {
            Elements::Few(run) => run,
            Elements::Some(group) => &mut group.parts[place.run],
            Elements::Many(groups) => &mut groups.parts[place.group].parts[place.run],
        }
    }

    /// Returns the number of a group's runs.
    fn runs_in(&self, group: usize) -> usize {
        match self {
            Elements::Few(_) => 1,
            Elements::Some(group) => group.len(),
            Elements::Many(groups) => groups.parts[group].len(),
        }
    }

    /// Returns the place behind the last row.
    fn end(&self) -> Place {
        let group = match self {
            Elements::Few(_) | Elements::Some(_) => 1,
            Elements::Many(groups) => groups.len(),
        };
        Place { group, run: 0, at: 0 }
    }

    /// Returns the place of the first row that is not before an element.
    fn lower_bound(&self, element: &[u8]) -> Place {
        let order = order_of(element);
        let place = self.run_of(order, element);
        let at = self.run(place).find(order, element).unwrap_or_else(|at| at);
        self.normal(Place { at, ..place })
    }

    /// Returns a place in its normal form: behind the last row of a run is the beginning of the next one.
    #[inline]
    fn normal(&self, place: Place) -> Place {
        if place.at < self.run(place).rows().len() { place } else { self.behind(place) }
    }

    /// Returns the beginning of the run behind the one of a place.
    fn behind(&self, place: Place) -> Place {
        if place.run + 1 < self.runs_in(place.group) {
            Place { run: place.run + 1, at: 0, ..place }
        } else {
            Place { group: place.group + 1, run: 0, at: 0 }
        }
    }

    /// Returns the beginning of the run before one that begins at this place and is not the first.
    fn run_before(&self, place: Place) -> Place {
        let (group, run) = match place.run {
            0 => (place.group - 1, self.runs_in(place.group - 1) - 1),
            run => (place.group, run - 1),
        };
        Place { group, run, at: 0 }
    }
}

/// The place of a row. Places compare as the rows do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    group: usize,
    run: usize,
    at: usize,
}

/// Rows of an object between two places, from both ends: those that are left of the first run and of the last one, and
/// the runs between them.
#[derive(Clone)]
pub struct Range<'t> {
    elements: &'t Elements,
    front: std::slice::Iter<'t, RowEntry>,
    back: std::slice::Iter<'t, RowEntry>,
    /// The beginnings of the first run that is left between the two, and of the one behind the last.
    next: Place,
    until: Place,
}

impl<'t> Range<'t> {
    fn new(elements: &'t Elements, from: Place, until: Place) -> Self {
        let rows = |place: Place| elements.run(place).rows();
        if from >= until {
            return Range { elements, front: [].iter(), back: [].iter(), next: from, until: from };
        }
        let until_run = Place { at: 0, ..until };
        if until_run == (Place { at: 0, ..from }) {
            let front = rows(from)[from.at..until.at].iter();
            return Range { elements, front, back: [].iter(), next: until_run, until: until_run };
        }
        // A place at the beginning of a run, as the one behind all rows, has nothing before it there.
        let back = if until.at == 0 { [].iter() } else { rows(until)[..until.at].iter() };
        Range { elements, front: rows(from)[from.at..].iter(), back, next: elements.behind(from), until: until_run }
    }

    #[cold]
    fn next_run(&mut self) -> Option<&'t RowEntry> {
        if self.next == self.until {
            return self.back.next();
        }
        self.front = self.elements.run(self.next).rows().iter();
        self.next = self.elements.behind(self.next);
        self.front.next()
    }

    #[cold]
    fn run_before(&mut self) -> Option<&'t RowEntry> {
        if self.next == self.until {
            return self.front.next_back();
        }
        self.until = self.elements.run_before(self.until);
        self.back = self.elements.run(self.until).rows().iter();
        self.back.next_back()
    }
}

impl<'t> Iterator for Range<'t> {
    type Item = &'t RowEntry;

    #[inline]
    fn next(&mut self) -> Option<&'t RowEntry> {
        self.front.next().or_else(|| self.next_run())
    }
}

impl DoubleEndedIterator for Range<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.back.next_back().or_else(|| self.run_before())
    }
}
