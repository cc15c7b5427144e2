//! Commands of sets, but for SPOP, whose outcome is random (`Writer::draw`).

use std::collections::BTreeSet;

use super::{Dice, Step, words};
use crate::client::Reply;
use crate::crash::value::{Bytes, Edit, Set};

pub(super) fn step(key: &[u8], set: &Set, dice: &mut Dice) -> Step {
    match dice.random.below(20) {
        0..=10 => {
            let members: Vec<Bytes> = (0..dice.some()).map(|_| dice.name()).collect();
            let new: BTreeSet<&Bytes> = members.iter().filter(|member| !set.contains(*member)).collect();
            let edits = new.into_iter().cloned().map(Edit::Member).collect::<Vec<_>>();
            Step::count([words("SADD", key), members].concat(), edits.len(), edits)
        }
        11..=16 => {
            // Now and then SREM takes all members, so that the key goes with its last one.
            let members: Vec<Bytes> = match dice.random.percent(4) {
                true if !set.is_empty() => set.iter().cloned().collect(),
                _ => (0..dice.some()).map(|_| dice.name()).collect(),
            };
            let gone: BTreeSet<&Bytes> = members.iter().filter(|member| set.contains(*member)).collect();
            let edits = gone.into_iter().cloned().map(Edit::Drop).collect::<Vec<_>>();
            Step::count([words("SREM", key), members].concat(), edits.len(), edits)
        }
        17..=18 => {
            let members = [dice.name(), dice.name()];
            let answers = members.iter().map(|member| Reply::Integer(i64::from(set.contains(member)))).collect();
            Step::read([words("SMISMEMBER", key), members.to_vec()].concat(), Reply::Array(answers))
        }
        _ => Step::read(words("SCARD", key), Reply::Integer(set.len() as i64)),
    }
}
