//! Union, difference and intersection of several sets, as one walk over all of them in the order of their rows, which
//! is the same for all sets. Small sets are read into memory first; large ones are walked by views, so that the memory
//! needed does not depend on them. Where a small set meets a far larger one, its members are looked up there instead.

use crate::element::{self, HASH_BYTES, ROW_PREFIX_BYTES, ROWS_INLINE_MAX, Rows};
use crate::set::encoding::Tally;
use crate::set::{Set, has_row};
use crate::{Error, Result};
use haypile_store::{Direction, Key, Stop, Txn, View};
use std::cmp::Ordering;
use std::ops::ControlFlow;

/// Bytes of small sets that a command holds in memory; sets beyond are walked by views.
const PLACES_BYTES_MAX: usize = 8 << 20;

/// A set so many times larger is not walked: the few members of the other one are looked up in it.
const LOOK_UP_FROM: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Union,
    /// The first set without the others.
    Difference,
    Intersection,
}

/// Members of small sets, by where they stand: `hash: u32 BE | member`.
#[derive(Default)]
struct Places {
    bytes: Vec<u8>,
    /// Begin and end of each member.
    ranges: Vec<(usize, usize)>,
    at: usize,
}

impl Places {
    fn push(&mut self, hash: u32, member: &[u8]) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&hash.to_be_bytes());
        self.bytes.extend_from_slice(member);
        self.ranges.push((begin, self.bytes.len()));
    }

    /// Adds the members of a set.
    fn read(&mut self, txn: &mut Txn<'_>, set: &Set) -> Result<()> {
        if let Some(rows) = set.rows() {
            let (from, until) = rows.from_hash(0);
            txn.visit(&from, &until, Direction::Forward, set.count() as usize, |row, _| {
                if let Some((hash, member)) = element::of_row(row) {
                    self.push(hash, member);
                }
                ControlFlow::Continue(())
            })?;
            return Ok(());
        }
        let mut reader = set.packed()?.reader();
        while !reader.is_at_end() {
            let member = reader.string()?;
            self.push(element::hash(txn, member), member);
        }
        Ok(())
    }

    /// Sorts the members and removes repetitions.
    fn sort(&mut self) {
        let Places { bytes, ranges, .. } = self;
        let place = |(begin, end): &(usize, usize)| &bytes[*begin..*end];
        ranges.sort_unstable_by(|a, b| place(a).cmp(place(b)));
        ranges.dedup_by(|a, b| place(a) == place(b));
    }

    fn place(&self) -> Option<&[u8]> {
        self.ranges.get(self.at).map(|(begin, end)| &self.bytes[*begin..*end])
    }
}

/// The members of one set, or of several small ones, in order.
enum Source {
    Places(Places),
    Walk { view: View, row: Option<Vec<u8>> },
}

impl Source {
    fn walk(txn: &mut Txn<'_>, rows: &Rows) -> Result<Source> {
        let (from, until) = rows.from_hash(0);
        let mut source = Source::Walk { view: txn.view(&from, &until, Direction::Forward)?, row: None };
        source.advance().map_err(failed)?;
        Ok(source)
    }

    #[inline]
    fn place(&self) -> Option<&[u8]> {
        match self {
            Source::Places(places) => places.place(),
            Source::Walk { row, .. } => row.as_deref().map(|row| &row[ROW_PREFIX_BYTES..]),
        }
    }

    fn advance(&mut self) -> std::result::Result<(), String> {
        match self {
            Source::Places(places) => places.at += 1,
            Source::Walk { view, row } => *row = view.next_row()?.map(|(row, _)| row),
        }
        Ok(())
    }

    /// Goes on to the first member that is not before `place`; returns how it compares with `place`, `None` at the end.
    fn seek(&mut self, place: &[u8]) -> std::result::Result<Option<Ordering>, String> {
        loop {
            match self.place().map(|at| at.cmp(place)) {
                Some(Ordering::Less) => self.advance()?,
                found => return Ok(found),
            }
        }
    }
}

fn failed(why: String) -> Error {
    Error::Stop(Stop::Failed(why))
}

/// The members of the result, one by one, each once and in the order of rows, from one moment. They may be read later
/// and elsewhere.
pub struct Members {
    operation: Operation,
    /// The sets; the first one of a difference or an intersection leads.
    sources: Vec<Source>,
    /// The source whose place is the current member; `None` before the first one.
    current: Option<usize>,
    /// All members of the leading set so far, whether or not they are in the result.
    led: Option<Tally>,
}

impl Members {
    /// Goes to the next member and says whether there is one.
    ///
    /// # Errors
    /// The disk cannot be read, for the reason given.
    pub fn advance(&mut self) -> std::result::Result<bool, String> {
        match self.operation {
            Operation::Union => self.advance_union(),
            Operation::Difference => self.advance_difference(),
            Operation::Intersection => self.advance_intersection(),
        }
    }

    /// Returns the place of the member that `advance` went to: `hash: u32 BE | member`.
    fn place(&self) -> &[u8] {
        self.current.and_then(|current| self.sources[current].place()).expect("advance found one")
    }

    /// Returns the member that `advance` went to.
    pub fn member(&self) -> &[u8] {
        &self.place()[HASH_BYTES..]
    }

    fn advance_union(&mut self) -> std::result::Result<bool, String> {
        if let Some(current) = self.current {
            for other in (0..self.sources.len()).filter(|other| *other != current) {
                if self.sources[other].place() == self.sources[current].place() {
                    self.sources[other].advance()?;
                }
            }
            self.sources[current].advance()?;
        }
        let present = self.sources.iter().enumerate().filter_map(|(at, source)| Some((source.place()?, at)));
        self.current = present.min().map(|(_, at)| at);
        Ok(self.current.is_some())
    }

    fn advance_difference(&mut self) -> std::result::Result<bool, String> {
        let Some((leading, others)) = self.sources.split_first_mut() else { return Ok(false) };
        if self.current.is_some() {
            leading.advance()?;
        }
        self.current = Some(0);
        'members: while let Some(place) = leading.place() {
            if let Some(led) = &mut self.led {
                led.add(&place[HASH_BYTES..]);
            }
            for other in others.iter_mut() {
                if other.seek(place)? == Some(Ordering::Equal) {
                    leading.advance()?;
                    continue 'members;
                }
            }
            return Ok(true);
        }
        Ok(false)
    }

    fn advance_intersection(&mut self) -> std::result::Result<bool, String> {
        let Some((leading, others)) = self.sources.split_first_mut() else { return Ok(false) };
        if self.current.is_some() {
            leading.advance()?;
        }
        self.current = Some(0);
        'members: while let Some(place) = leading.place() {
            for other in others.iter_mut() {
                match other.seek(place)? {
                    Some(Ordering::Equal) => {}
                    None => return Ok(false),
                    Some(_) => {
                        let ahead = other.place().expect("it is not at its end");
                        leading.seek(ahead)?;
                        continue 'members;
                    }
                }
            }
            return Ok(true);
        }
        Ok(false)
    }
}

/// A merge inside a transaction: members may be looked up in some of the sets, which are not walked then.
pub struct Merge {
    members: Members,
    /// The sets in which members of the leading one are looked up.
    looked_up: Vec<Rows>,
    /// Whether the members must be in those sets, or must not be.
    wanted: bool,
}

impl Merge {
    /// Goes to the next member and says whether there is one.
    pub fn advance(&mut self, txn: &mut Txn<'_>) -> Result<bool> {
        'members: while self.members.advance().map_err(failed)? {
            for rows in &self.looked_up {
                if has_row(txn, rows, self.members.member())? != self.wanted {
                    continue 'members;
                }
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Returns the member that `advance` went to, and its hash.
    pub fn member(&self) -> (u32, &[u8]) {
        let (hash, member) =
            self.members.place().split_first_chunk::<HASH_BYTES>().expect("a place begins with a hash");
        (u32::from_be_bytes(*hash), member)
    }

    /// Returns the walk of a merge that was begun by `Means::Walks`.
    pub fn into_members(self) -> Members {
        assert!(self.looked_up.is_empty(), "every set is walked");
        self.members
    }

    /// Returns the tally of all members of the leading set of a difference.
    pub(crate) fn led(&self) -> Tally {
        self.members.led.unwrap_or(Tally::EMPTY)
    }
}

/// Returns the sets of a command's keys, in order; `None` for a key that is absent. An error if one holds something
/// else.
pub fn lookup(txn: &mut Txn<'_>, keys: &[Key<'_>]) -> Result<Vec<Option<Set>>> {
    keys.iter().map(|key| Set::lookup(txn, key)).collect()
}

/// How an operation is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// Members are looked up in large sets where that costs less than a walk over them.
    Any,
    /// Every set is walked: the result is to be read without the transaction.
    Walks,
}

/// Begins an operation over the sets of `keys`, as `lookup` found them. One that reads many rows runs on the I/O pool.
pub fn merge(
    txn: &mut Txn<'_>,
    keys: &[Key<'_>],
    sets: &[Option<Set>],
    operation: Operation,
    means: Means,
) -> Result<Merge> {
    let nothing = Members { operation, sources: Vec::new(), current: None, led: None };
    let mut merge = Merge { members: nothing, looked_up: Vec::new(), wanted: operation == Operation::Intersection };
    let Some(sets) = chosen(keys, sets, operation) else { return Ok(merge) };
    let with_rows = |set: &&Set| set.rows().is_some();
    let mut walked = sets.clone();
    if operation != Operation::Union && means == Means::Any {
        let leading = sets[0].count();
        let (far, near) = sets[1..].iter().partition(|set| with_rows(set) && set.count() / LOOK_UP_FROM > leading);
        walked = near;
        walked.insert(0, sets[0]);
        let far: Vec<&Set> = far;
        merge.looked_up = far.iter().filter_map(|set| set.rows()).collect();
    }
    let rows: u64 = walked.iter().copied().filter(|set| set.rows().is_some()).map(Set::count).sum();
    if rows + walked[0].count() * merge.looked_up.len() as u64 > ROWS_INLINE_MAX as u64 {
        txn.long()?;
    }
    let (mut small, mut walks) = (Places::default(), Vec::new());
    for (at, set) in walked.into_iter().enumerate() {
        let rows = set.rows().filter(|_| set.count() > ROWS_INLINE_MAX as u64 || small.bytes.len() > PLACES_BYTES_MAX);
        match (rows, operation) {
            (Some(rows), _) => walks.push(Source::walk(txn, &rows)?),
            (None, Operation::Union) => small.read(txn, set)?,
            (None, Operation::Difference) if at > 0 => small.read(txn, set)?,
            (None, _) => {
                let mut places = Places::default();
                places.read(txn, set)?;
                places.sort();
                walks.push(Source::Places(places));
            }
        }
    }
    if !small.ranges.is_empty() {
        small.sort();
        walks.push(Source::Places(small));
    }
    merge.members.sources = walks;
    merge.members.led = (operation == Operation::Difference).then_some(Tally::EMPTY);
    Ok(merge)
}

/// Returns the sets that matter, each once, the leading one first; `None` if the result is empty whatever they hold.
fn chosen<'s>(keys: &[Key<'_>], sets: &'s [Option<Set>], operation: Operation) -> Option<Vec<&'s Set>> {
    let is_repeated = |at: usize| keys[..at].contains(&keys[at]);
    let mut chosen: Vec<&Set> = Vec::new();
    for (at, set) in sets.iter().enumerate() {
        match (set, operation) {
            (None, Operation::Intersection) => return None,
            (None, Operation::Difference) if at == 0 => return None,
            (Some(_), Operation::Difference) if at > 0 && keys[at] == keys[0] => return None,
            (Some(set), _) if !is_repeated(at) => chosen.push(set),
            _ => {}
        }
    }
    if operation == Operation::Intersection {
        chosen.sort_by_key(|set| set.count());
    }
    (!chosen.is_empty()).then_some(chosen)
}
