//! A system in memory that does what it says: what the checker and the broken modes are tried with.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::operation::{FAMILY, Kind, Object, Operation, Outcome, Session, Step};

/// The lists of numbers of each object: one, but for a family.
type Objects = BTreeMap<Object, Vec<Vec<i64>>>;

/// A session; its clones see the same objects.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Objects>>);

impl Session for Memory {
    fn call(&mut self, object: Object, operation: &Operation) -> Outcome {
        let mut objects = self.0.lock().expect("no session panics");
        apply(objects.entry(object).or_insert_with(|| empty(object.kind)), operation)
    }
}

/// Returns the state of an object that nobody has written.
pub fn empty(kind: Kind) -> Vec<Vec<i64>> {
    match kind {
        Kind::Register | Kind::Counter => vec![vec![0]],
        Kind::Pair => vec![vec![0, 0]],
        Kind::List | Kind::Sorted => vec![vec![]],
        Kind::Family => vec![vec![]; FAMILY],
    }
}

/// Carries out an operation.
pub fn apply(state: &mut [Vec<i64>], operation: &Operation) -> Outcome {
    let whole = &mut state[0];
    match operation {
        Operation::Read => Outcome::numbers(whole.clone()),
        Operation::Write(value) => {
            whole[0] = *value;
            Outcome::numbers([])
        }
        Operation::Swap { old, new } => {
            let held = whole[0];
            if held == *old {
                whole[0] = *new;
            }
            Outcome::numbers([held])
        }
        Operation::Add(by) => {
            whole[0] += by;
            Outcome::numbers([whole[0]])
        }
        Operation::Append(value) => {
            whole.push(*value);
            Outcome::numbers([whole.len() as i64])
        }
        Operation::Score { member, score } => {
            Outcome::numbers([i64::from(with_score(whole, *member, |_| Some(*score)).is_none())])
        }
        Operation::Raise { member, by } => {
            let before = with_score(whole, *member, |score| Some(score.unwrap_or(0) + by));
            Outcome::numbers([before.unwrap_or(0) + by])
        }
        Operation::Remove { member } => Outcome::numbers([i64::from(with_score(whole, *member, |_| None).is_some())]),
        Operation::Both(first, second) => {
            *whole = vec![*first, *second];
            Outcome::numbers([])
        }
        Operation::Exchange => {
            let held = whole.clone();
            whole.reverse();
            Outcome::numbers(held)
        }
        Operation::Transact(steps) => {
            let mut answer = Vec::new();
            for step in steps {
                match step {
                    Step::Append { key, value } => state[*key].push(*value),
                    Step::Read { key } => answer.push(state[*key].clone()),
                }
            }
            Outcome::Done(answer)
        }
    }
}

/// Changes a member's score in members and scores by turns; returns the score before.
fn with_score(pairs: &mut Vec<i64>, member: i64, change: impl FnOnce(Option<i64>) -> Option<i64>) -> Option<i64> {
    let mut all: Vec<(i64, i64)> = pairs.chunks(2).map(|pair| (pair[1], pair[0])).collect();
    let before = all.iter().find(|(_, other)| *other == member).map(|(score, _)| *score);
    all.retain(|(_, other)| *other != member);
    all.extend(change(before).map(|score| (score, member)));
    all.sort_unstable();
    *pairs = all.into_iter().flat_map(|(score, member)| [member, score]).collect();
    before
}
