//! What one writer's part of the data must be: keys with values and deadlines, and operations that change them.
//!
//! Each writer owns the keys that begin with its prefix, in databases of its choice, and writes them through one
//! connection. The server runs one connection's commands in order, so after a crash the writer's part must equal the
//! state after the last acknowledged operation, or that state and a run of the operations in flight, none of them in
//! half. That is the whole contract, and `find_survivor` checks it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::client::Reply;
use crate::quoted::abbreviate;

pub type Database = u16;
pub type Place = (Database, Vec<u8>);
/// Unix time in milliseconds.
pub type Millis = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub value: Arc<[u8]>,
    pub deadline: Option<Millis>,
}

impl Entry {
    pub fn new(value: impl Into<Arc<[u8]>>) -> Entry {
        Entry { value: value.into(), deadline: None }
    }
}

/// A change whose outcome was known when it was sent.
#[derive(Clone, Debug)]
pub enum Effect {
    Put(Place, Entry),
    Remove(Place),
    /// FLUSHDB of a database that only this writer uses.
    Clear(Database),
    /// SWAPDB of two databases that only this writer uses.
    Swap(Database, Database),
}

/// What is acknowledged, and survives, as one: a command, or a transaction.
#[derive(Clone, Debug)]
pub struct Operation {
    pub commands: Vec<Vec<Vec<u8>>>,
    pub replies: Vec<Reply>,
    pub effects: Vec<Effect>,
}

/// The keys of one writer.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub keys: BTreeMap<Place, Entry>,
}

impl State {
    pub fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Put(place, entry) => {
                self.keys.insert(place.clone(), entry.clone());
            }
            Effect::Remove(place) => {
                self.keys.remove(place);
            }
            Effect::Clear(database) => self.keys.retain(|place, _| place.0 != *database),
            Effect::Swap(a, b) => {
                let other = |database: Database| match database {
                    d if d == *a => *b,
                    d if d == *b => *a,
                    d => d,
                };
                let keys = std::mem::take(&mut self.keys);
                self.keys = keys.into_iter().map(|((d, key), entry)| ((other(d), key), entry)).collect();
            }
        }
    }

    /// Forgets keys whose deadline has passed: they are gone for good.
    pub fn forget_expired(&mut self, now: Millis) {
        self.keys.retain(|_, entry| entry.deadline.is_none_or(|deadline| deadline > now));
    }
}

/// What a server was seen to hold of one writer's keys, read between two moments.
#[derive(Debug, Default)]
pub struct Seen {
    pub keys: BTreeMap<Place, Entry>,
    pub from: Millis,
    pub until: Millis,
}

impl Seen {
    /// Whether a place holds what it should. A key must be there until its deadline and be gone after it.
    fn agrees(&self, place: &Place, expected: Option<&Entry>) -> bool {
        match (expected, self.keys.get(place)) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some(entry), None) => entry.deadline.is_some_and(|deadline| deadline <= self.until),
            (Some(entry), Some(seen)) => entry == seen && entry.deadline.is_none_or(|deadline| deadline > self.from),
        }
    }
}

/// The state that `seen` shows, and how many of the operations in flight are in it; or what is wrong with the nearest.
pub fn find_survivor(acknowledged: &State, in_flight: &[Operation], seen: &Seen) -> Result<(State, usize), String> {
    let mut state = acknowledged.clone();
    let mut wrong = wrong_places(&state, seen);
    let mut nearest = (wrong.len(), 0, wrong.clone(), state.clone());
    for (number, operation) in in_flight.iter().enumerate() {
        if wrong.is_empty() {
            return Ok((state, number));
        }
        for effect in &operation.effects {
            state.apply(effect);
        }
        for effect in &operation.effects {
            match effect {
                Effect::Put(place, _) | Effect::Remove(place) => {
                    if seen.agrees(place, state.keys.get(place)) {
                        wrong.remove(place);
                    } else {
                        wrong.insert(place.clone());
                    }
                }
                Effect::Clear(_) | Effect::Swap(..) => wrong = wrong_places(&state, seen),
            }
        }
        if wrong.len() < nearest.0 {
            nearest = (wrong.len(), number + 1, wrong.clone(), state.clone());
        }
    }
    if wrong.is_empty() {
        return Ok((state, in_flight.len()));
    }
    let (count, after, places, state) = nearest;
    let mut text = format!(
        "the data is no state that this writer's acknowledged operations and a run of its {} operations in flight lead \
         to; nearest is the state after {after} of those, with {count} keys wrong:",
        in_flight.len()
    );
    for place in places.iter().take(5) {
        let show = |entry: Option<&Entry>| {
            entry.map_or_else(|| "nothing".to_string(), |e| format!("{} until {:?}", abbreviate(&e.value), e.deadline))
        };
        let (expected, seen) = (show(state.keys.get(place)), show(seen.keys.get(place)));
        text += &format!("\n  {} in database {}: expected {expected}, found {seen}", abbreviate(&place.1), place.0);
    }
    if let Some(operation) = in_flight.get(after) {
        let commands: Vec<String> = operation.commands.iter().map(|c| crate::quoted::quote_short(c)).collect();
        text += &format!("\n  the operation after that state: {}", commands.join(" ; "));
    }
    Err(text)
}

fn wrong_places(state: &State, seen: &Seen) -> BTreeSet<Place> {
    let places = state.keys.keys().chain(seen.keys.keys());
    places.filter(|place| !seen.agrees(place, state.keys.get(*place))).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(key: &str) -> Place {
        (0, key.as_bytes().to_vec())
    }

    fn put(key: &str, value: &str) -> Effect {
        Effect::Put(place(key), Entry::new(value.as_bytes()))
    }

    fn operation(effects: Vec<Effect>) -> Operation {
        Operation { commands: vec![], replies: vec![], effects }
    }

    fn seen(pairs: &[(&str, &str)]) -> Seen {
        let entry = |(key, value): &(&str, &str)| (place(key), Entry::new(value.as_bytes()));
        Seen { keys: pairs.iter().map(entry).collect(), from: 1000, until: 1010 }
    }

    fn check(name: &str, in_flight: &[Operation], found: &[(&str, &str)], expected: Option<usize>) {
        let mut acknowledged = State::default();
        acknowledged.apply(&put("a", "1"));
        let survivor = find_survivor(&acknowledged, in_flight, &seen(found));
        assert_eq!(survivor.map(|(_, count)| count).ok(), expected, "{name}");
    }

    #[test]
    fn survivors_are_a_run_of_whole_operations() {
        let both = operation(vec![put("a", "2"), put("b", "2")]);
        let then = operation(vec![put("c", "3")]);
        let all = [both, then];
        check("nothing in flight survived", &all, &[("a", "1")], Some(0));
        check("the first survived", &all, &[("a", "2"), ("b", "2")], Some(1));
        check("all survived", &all, &[("a", "2"), ("b", "2"), ("c", "3")], Some(2));
        check("an acknowledged write is lost", &all, &[], None);
        check("half an operation", &all, &[("a", "2")], None);
        check("a later one without the earlier", &all, &[("a", "1"), ("c", "3")], None);
        check("a ghost", &all, &[("a", "1"), ("x", "1")], None);
        check("cleared", &[operation(vec![Effect::Clear(0)])], &[], Some(1));
    }

    #[test]
    fn a_deadline_counts_to_the_millisecond() {
        let with_deadline = |deadline| {
            let mut state = State::default();
            let entry = Entry { value: b"1"[..].into(), deadline: Some(deadline) };
            state.apply(&Effect::Put(place("a"), entry.clone()));
            let there = Seen { keys: BTreeMap::from([(place("a"), entry)]), from: 1000, until: 1010 };
            (find_survivor(&state, &[], &there).is_ok(), find_survivor(&state, &[], &seen(&[])).is_ok())
        };
        assert_eq!(with_deadline(1000), (false, true), "it had passed when reading began");
        assert_eq!(with_deadline(1005), (true, true), "it passed while it was read");
        assert_eq!(with_deadline(1011), (true, false), "it had not passed when reading ended");
    }
}
