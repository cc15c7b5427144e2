//! Broken modes: sessions that lie about what they have done, which the checker has to find.

use std::collections::BTreeMap;

use clap::ValueEnum;

use super::operation::{Answer, Object, Operation, Outcome, Session};
use crate::random::Random;

/// A way to break a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Lie {
    /// Some reads answer what the session has read before.
    StaleRead,
    /// Some writes are acknowledged and never sent.
    LostWrite,
    /// Some appends and additions are sent twice.
    DoubleWrite,
}

/// How many of a hundred operations that can be lied about are.
const LIES_PERCENT: u64 = 5;

/// A session that lies about another one.
pub struct Liar {
    session: Box<dyn Session>,
    lie: Lie,
    random: Random,
    /// The last answers to reads.
    seen: BTreeMap<Object, Answer>,
}

impl Liar {
    pub fn new(session: Box<dyn Session>, lie: Lie, random: Random) -> Liar {
        Liar { session, lie, random, seen: BTreeMap::new() }
    }
}

impl Session for Liar {
    fn call(&mut self, object: Object, operation: &Operation) -> Outcome {
        let lies = self.random.percent(LIES_PERCENT);
        match (self.lie, operation) {
            (Lie::StaleRead, Operation::Read) => {
                if let Some(answer) = self.seen.get(&object).filter(|_| lies) {
                    return Outcome::Done(answer.clone());
                }
                let outcome = self.session.call(object, operation);
                if let Outcome::Done(answer) = &outcome {
                    self.seen.insert(object, answer.clone());
                }
                outcome
            }
            (Lie::LostWrite, Operation::Write(_) | Operation::Both(..)) if lies => Outcome::numbers([]),
            (Lie::DoubleWrite, Operation::Append(_) | Operation::Add(_)) if lies => {
                let outcome = self.session.call(object, operation);
                // The repetition's outcome is what a client would not hear of.
                let _ = self.session.call(object, operation);
                outcome
            }
            _ => self.session.call(object, operation),
        }
    }
}
