//! Several sets together: union, intersection and difference of sorted sets and sets, with weights. All inputs are
//! walked over at once in the order of their members' hashes, a step of each in memory, whatever their size; where one
//! is small beside the others, its members are looked up in these instead.

use super::{Zset, elements_of};
use crate::element::{self, Head, RESERVED_HASH, Rows};
use crate::key::{Entry, Tag, Type, damaged};
use crate::packed::Packed;
use crate::{Error, Result, score};
use haypile_store::row::RowKey;
use haypile_store::{Direction, Key, RowPresence, Txn, Value};
use std::ops::ControlFlow;

/// How the inputs are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Union,
    Intersection,
    /// The members of the first input that no other has.
    Difference,
}

/// How the scores of a member that several inputs have are combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregate {
    #[default]
    Sum,
    Min,
    Max,
    /// The sum of the weights of the inputs that have the member, whatever its scores.
    Count,
}

impl Aggregate {
    /// Combines two scores. Infinities that cancel each other are zero.
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Aggregate::Sum | Aggregate::Count => not_nan(a + b),
            Aggregate::Min => {
                if b < a {
                    b
                } else {
                    a
                }
            }
            Aggregate::Max => {
                if b > a {
                    b
                } else {
                    a
                }
            }
        }
    }
}

fn not_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// An input of a combination: a set and its weight.
pub struct Input {
    source: Source,
    count: u64,
    pub weight: f64,
}

enum Source {
    Absent,
    Zset(Zset),
    /// A packed set, by its payload.
    Set(Value),
    SetRows(Rows),
}

/// The score that the member of a set without scores has.
const SET_SCORE: f64 = 1.0;

impl Input {
    /// Returns the value of a key as an input; an error unless it is nothing, a sorted set or a set.
    pub fn of(key: &Key<'_>, entry: Option<Entry>) -> Result<Input> {
        let Some(entry) = entry else { return Ok(Input { source: Source::Absent, count: 0, weight: 1.0 }) };
        let (source, count) = match (entry.header.type_of(), entry.header.object) {
            (Type::Zset, _) => {
                let zset = Zset::of(key, entry)?;
                let count = zset.cardinality()?;
                (Source::Zset(zset), count)
            }
            (Type::Set, None) => {
                debug_assert!(entry.header.tag == Tag::SetPacked);
                let payload = entry.into_payload();
                let count = Packed::parse(&payload)?.count;
                (Source::Set(payload), count.into())
            }
            (Type::Set, Some(object)) => {
                let payload = entry.payload();
                let count = payload.get(Head::BYTES - 8..Head::BYTES).and_then(|bytes| bytes.try_into().ok());
                let count = count.ok_or_else(|| damaged("the header of a set", payload))?;
                (Source::SetRows(Rows { space: key.space, object }), u64::from_be_bytes(count))
            }
            _ => return Err(Error::WrongType),
        };
        Ok(Input { source, count, weight: 1.0 })
    }

    /// Returns the score of a member.
    fn score(&self, txn: &mut Txn<'_>, member: &[u8]) -> Result<Option<f64>> {
        match &self.source {
            Source::Absent => Ok(None),
            Source::Zset(zset) => zset.score(txn, member),
            Source::Set(payload) => {
                let mut reader = Packed::parse(payload)?.reader();
                while !reader.is_at_end() {
                    if reader.string()? == member {
                        return Ok(Some(SET_SCORE));
                    }
                }
                Ok(None)
            }
            Source::SetRows(rows) => {
                let row = rows.element(element::hash(txn, member), member);
                Ok((txn.row_presence(&row)? != RowPresence::Absent).then_some(SET_SCORE))
            }
        }
    }

    fn weighted(&self, score: f64) -> f64 {
        not_nan(self.weight * score)
    }
}

/// Inputs, and how they are combined.
pub struct Combination {
    inputs: Vec<Input>,
    operation: Operation,
    aggregate: Aggregate,
}

/// The factor by which an input has to be smaller than the others for its members to be looked up in them.
const PROBE_SHARE: u64 = 16;

/// Members up to which the combination runs on an event loop.
const AT_ONCE: u64 = 1024;

/// Rows read from an input at once.
const STEP_ROWS: usize = 256;

impl Combination {
    /// Returns whether scores are the numbers of inputs.
    pub fn counts(&self) -> bool {
        self.aggregate == Aggregate::Count
    }

    pub fn new(mut inputs: Vec<Input>, operation: Operation, aggregate: Aggregate) -> Combination {
        if operation != Operation::Difference {
            // Redis goes from the smallest to the largest, and sums of doubles depend on the order.
            inputs.sort_by_key(|input| input.count);
        }
        Combination { inputs, operation, aggregate }
    }

    /// Returns the most members that the result can have.
    pub fn count_max(&self) -> u64 {
        match self.operation {
            Operation::Union => self.inputs.iter().map(|input| input.count).sum(),
            Operation::Intersection | Operation::Difference => self.inputs.first().map_or(0, |input| input.count),
        }
    }

    /// Gives each member of the result and its score to `each`, in no order that means anything, until it breaks.
    pub fn visit(
        &self,
        txn: &mut Txn<'_>,
        mut each: impl FnMut(&mut Txn<'_>, &[u8], f64) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let others: u64 = self.inputs.iter().skip(1).map(|input| input.count).sum();
        let first = self.count_max();
        if first == 0 {
            return Ok(());
        }
        let probes = self.operation != Operation::Union && first.saturating_mul(PROBE_SHARE) < others;
        let work = if probes { first * self.inputs.len() as u64 } else { first.max(others) };
        if work > AT_ONCE {
            txn.long()?;
        }
        if probes { self.probe(txn, &mut each) } else { self.merge(txn, &mut each) }
    }

    /// Returns what a member's score in an input contributes to its score in the result.
    fn counted(&self, input: &Input, score: f64) -> f64 {
        if self.aggregate == Aggregate::Count { input.weight } else { input.weighted(score) }
    }

    /// Looks up each member of the first input in the others.
    fn probe(
        &self,
        txn: &mut Txn<'_>,
        each: &mut impl FnMut(&mut Txn<'_>, &[u8], f64) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut walk = Walk::new(txn, &self.inputs[0])?;
        while walk.head().is_some() {
            let (member, score) = walk.take();
            let mut result = Some(self.counted(&self.inputs[0], score));
            for input in &self.inputs[1..] {
                let found = input.score(txn, &member)?;
                result = match (self.operation, result, found) {
                    (Operation::Difference, Some(_), Some(_)) => None,
                    (Operation::Difference, result, None) => result,
                    (_, Some(sum), Some(score)) => Some(self.aggregate.of(sum, self.counted(input, score))),
                    _ => None,
                };
                if result.is_none() {
                    break;
                }
            }
            if let Some(score) = result
                && each(txn, &member, score)?.is_break()
            {
                return Ok(());
            }
            walk.fill(txn)?;
        }
        Ok(())
    }

    /// Walks over all inputs at once.
    fn merge(
        &self,
        txn: &mut Txn<'_>,
        each: &mut impl FnMut(&mut Txn<'_>, &[u8], f64) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut walks = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            walks.push(Walk::new(txn, input)?);
        }
        let mut member = Vec::new();
        loop {
            let first = match self.operation {
                // Members that the first input lacks are not looked at.
                Operation::Difference | Operation::Intersection => walks[0].head(),
                Operation::Union => walks.iter().filter_map(Walk::head).min(),
            };
            let Some((hash, name)) = first else { return Ok(()) };
            member.clear();
            member.extend_from_slice(name);
            let (mut result, mut holders) = (None, 0);
            for (walk, input) in walks.iter_mut().zip(&self.inputs) {
                while walk.head().is_some_and(|head| head < (hash, &member[..])) {
                    walk.at += 1;
                    walk.fill(txn)?;
                }
                if walk.head() != Some((hash, &member[..])) {
                    continue;
                }
                let score = self.counted(input, walk.items[walk.at].score);
                walk.at += 1;
                walk.fill(txn)?;
                holders += 1;
                result = Some(result.map_or(score, |sum| self.aggregate.of(sum, score)));
            }
            let belongs = match self.operation {
                Operation::Union => true,
                Operation::Intersection => holders == self.inputs.len(),
                Operation::Difference => holders == 1,
            };
            if let (true, Some(score)) = (belongs, result)
                && each(txn, &member, score)?.is_break()
            {
                return Ok(());
            }
        }
    }
}

/// A walk over an input: the members of one step, in the order of their hashes.
struct Walk {
    bytes: Vec<u8>,
    items: Vec<Item>,
    at: usize,
    /// The rows that are still to be read.
    rest: Option<(RowKey, RowKey)>,
}

struct Item {
    hash: u32,
    member: std::ops::Range<usize>,
    score: f64,
}

impl Walk {
    fn new(txn: &mut Txn<'_>, input: &Input) -> Result<Walk> {
        let mut walk = Walk { bytes: Vec::new(), items: Vec::new(), at: 0, rest: None };
        match &input.source {
            Source::Absent => {}
            Source::Zset(zset) => match &zset.form {
                super::Form::Packed(payload) => {
                    elements_of(payload)?.iter().for_each(|(member, score)| walk.push_packed(txn, member, *score));
                }
                super::Form::Rows(large) => walk.rest = Some(large.rows().from_hash(0)),
            },
            Source::Set(payload) => {
                let mut reader = Packed::parse(payload)?.reader();
                while !reader.is_at_end() {
                    walk.push_packed(txn, reader.string()?, SET_SCORE);
                }
            }
            Source::SetRows(rows) => walk.rest = Some(rows.from_hash(0)),
        }
        let bytes = &walk.bytes;
        walk.items.sort_by(|a, b| (a.hash, &bytes[a.member.clone()]).cmp(&(b.hash, &bytes[b.member.clone()])));
        walk.fill(txn)?;
        Ok(walk)
    }

    fn push_packed(&mut self, txn: &Txn<'_>, member: &[u8], score: f64) {
        self.push(element::hash(txn, member), member, score);
    }

    fn push(&mut self, hash: u32, member: &[u8], score: f64) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(member);
        self.items.push(Item { hash, member: from..self.bytes.len(), score });
    }

    fn head(&self) -> Option<(u32, &[u8])> {
        self.items.get(self.at).map(|item| (item.hash, &self.bytes[item.member.clone()]))
    }

    /// Takes the member at the head and its score; the walk goes on once it is filled.
    fn take(&mut self) -> (Vec<u8>, f64) {
        let item = &self.items[self.at];
        self.at += 1;
        (self.bytes[item.member.clone()].to_vec(), item.score)
    }

    /// Reads the next rows once those before are used up.
    fn fill(&mut self, txn: &mut Txn<'_>) -> Result<()> {
        if self.at < self.items.len() {
            return Ok(());
        }
        let Some((from, until)) = self.rest.take() else { return Ok(()) };
        self.bytes.clear();
        self.items.clear();
        self.at = 0;
        let (mut next, mut bad) = (None, false);
        txn.visit(&from, &until, Direction::Forward, STEP_ROWS, |row, value| {
            if self.items.len() == STEP_ROWS {
                next = Some(RowKey::from_slice(row));
                return ControlFlow::Break(());
            }
            let score = if value.is_empty() { Some(SET_SCORE) } else { value.try_into().ok().map(score::from_bytes) };
            match (element::of_row(row), score) {
                (Some((hash, member)), Some(score)) if hash != RESERVED_HASH => self.push(hash, member, score),
                _ => bad = true,
            }
            ControlFlow::Continue(())
        })?;
        if bad {
            return Err(damaged("a member of a set", &from));
        }
        self.rest = next.map(|next| (next, until));
        Ok(())
    }
}
