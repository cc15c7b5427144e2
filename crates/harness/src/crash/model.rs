//! The model of one writer's part of the data: keys with values (`value`) and deadlines, and operations that change
//! them.
//!
//! Each writer owns the keys that begin with its prefix, in databases of its choice, and writes them through one
//! connection. The server runs one connection's commands in order, so after a crash the writer's part must equal the
//! state after the last acknowledged operation and a run, perhaps empty, of the operations in flight, each of them
//! whole. `find_survivor` checks this contract.

use std::collections::{BTreeMap, BTreeSet};

use super::value::{Edit, Set, Value};
use crate::client::Reply;
use crate::quoted::abbreviate;

pub type Database = u16;
pub type Place = (Database, Vec<u8>);
/// Unix time in milliseconds.
pub type Millis = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub value: Value,
    pub deadline: Option<Millis>,
}

impl Entry {
    pub fn text(value: impl AsRef<[u8]>) -> Entry {
        Entry { value: Value::Text(value.as_ref().into()), deadline: None }
    }

    /// Returns the bytes of a string; a collection has none.
    pub fn bytes(&self) -> &[u8] {
        self.value.text().unwrap_or_default()
    }
}

/// A change whose outcome was known when it was sent, except for a draw's.
#[derive(Clone, Debug)]
pub enum Effect {
    Put(Place, Entry),
    Remove(Place),
    Edit(Place, Edit),
    Deadline(Place, Option<Millis>),
    /// RENAME.
    Move(Place, Place),
    /// SPOP of so many members, which its reply names. The only effect of its operation; nothing is sent behind it
    /// before its reply, which replaces it by edits.
    Draw(Place, usize),
    /// FLUSHDB of a database that only this writer uses.
    Clear(Database),
    /// SWAPDB of two databases that only this writer uses.
    Swap(Database, Database),
}

/// A command or a transaction, which is acknowledged, and survives, as a whole.
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
            Effect::Edit(place, edit) => {
                let new = || Entry { value: Value::empty_for(edit), deadline: None };
                let entry = self.keys.entry(place.clone()).or_insert_with(new);
                entry.value.edit(edit);
                if entry.value.is_empty() {
                    self.keys.remove(place);
                }
            }
            Effect::Deadline(place, deadline) => {
                if let Some(entry) = self.keys.get_mut(place) {
                    entry.deadline = *deadline;
                }
            }
            Effect::Move(from, to) => {
                if let Some(entry) = self.keys.remove(from) {
                    self.keys.insert(to.clone(), entry);
                }
            }
            Effect::Draw(..) => {}
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

    /// Returns the set at a place; empty if there is none.
    pub fn set(&self, place: &Place) -> Set {
        match self.keys.get(place).map(|entry| &entry.value) {
            Some(Value::Set(set)) => Set::clone(set),
            _ => Set::new(),
        }
    }

    /// Forgets keys whose deadline has passed: they stay gone.
    pub fn forget_expired(&mut self, now: Millis) {
        self.keys.retain(|_, entry| entry.deadline.is_none_or(|deadline| deadline > now));
    }
}

/// One writer's keys in a server, read between two moments.
#[derive(Debug, Default)]
pub struct Seen {
    pub keys: BTreeMap<Place, Entry>,
    pub from: Millis,
    pub until: Millis,
}

impl Seen {
    /// Returns whether a place holds the expected entry. A key must be there until its deadline and be gone after it.
    fn agrees(&self, place: &Place, expected: Option<&Entry>) -> bool {
        match (expected, self.keys.get(place)) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some(entry), None) => entry.deadline.is_some_and(|deadline| deadline <= self.until),
            (Some(entry), Some(seen)) => entry == seen && entry.deadline.is_none_or(|deadline| deadline > self.from),
        }
    }
}

/// Returns the state that `seen` shows, and how many of the operations in flight are in it; or the errors in the
/// nearest one.
pub fn find_survivor(acknowledged: &State, in_flight: &[Operation], seen: &Seen) -> Result<(State, usize), String> {
    let mut state = acknowledged.clone();
    let mut wrong = wrong_places(&state, seen);
    let mut nearest = (wrong.len(), 0, wrong.clone(), state.clone());
    for (number, operation) in in_flight.iter().enumerate() {
        if wrong.is_empty() {
            return Ok((state, number));
        }
        for effect in &operation.effects {
            match effect {
                Effect::Draw(place, count) => {
                    drawn(&state.set(place), *count, seen, place).iter().for_each(|effect| state.apply(effect));
                }
                _ => state.apply(effect),
            }
        }
        for effect in &operation.effects {
            let places = match effect {
                Effect::Put(place, _)
                | Effect::Remove(place)
                | Effect::Edit(place, _)
                | Effect::Deadline(place, _)
                | Effect::Draw(place, _) => vec![place],
                Effect::Move(from, to) => vec![from, to],
                Effect::Clear(_) | Effect::Swap(..) => {
                    wrong = wrong_places(&state, seen);
                    continue;
                }
            };
            for place in places {
                if seen.agrees(place, state.keys.get(place)) {
                    wrong.remove(place);
                } else {
                    wrong.insert(place.clone());
                }
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
            entry.map_or_else(|| "nothing".to_string(), |e| format!("{} until {:?}", e.value.describe(), e.deadline))
        };
        let (expected, seen) = (state.keys.get(place), seen.keys.get(place));
        let name = abbreviate(&place.1);
        text += &format!("\n  {name} in database {}: expected {}, found {}", place.0, show(expected), show(seen));
        if let (Some(expected), Some(seen)) = (expected, seen) {
            let (lost, new) = (expected.value.lacking_in(&seen.value), seen.value.lacking_in(&expected.value));
            text += &format!("\n    expected and not found: {lost:?}; found and not expected: {new:?}");
        }
    }
    if let Some(operation) = in_flight.get(after) {
        let commands: Vec<String> = operation.commands.iter().map(|c| crate::quoted::quote_short(c)).collect();
        text += &format!("\n  the operation after that state: {}", commands.join(" ; "));
    }
    Err(text)
}

/// Returns the edits of a draw whose reply was lost: the members that are no longer seen, or, if their number is not
/// that of the draw, any members, which then count as wrong.
fn drawn(set: &Set, count: usize, seen: &Seen, place: &Place) -> Vec<Effect> {
    let left = match seen.keys.get(place).map(|entry| &entry.value) {
        Some(Value::Set(left)) => Some(left),
        _ => None,
    };
    let (there, gone): (Vec<_>, Vec<_>) =
        set.iter().partition(|member| left.is_some_and(|left| left.contains(*member)));
    let members = gone.into_iter().chain(there).take(count);
    members.map(|member| Effect::Edit(place.clone(), Edit::Drop(member.clone()))).collect()
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
        Effect::Put(place(key), Entry::text(value))
    }

    fn operation(effects: Vec<Effect>) -> Operation {
        Operation { commands: vec![], replies: vec![], effects }
    }

    fn seen(pairs: &[(&str, &str)]) -> Seen {
        let entry = |(key, value): &(&str, &str)| (place(key), Entry::text(value));
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
    fn a_draw_whose_reply_is_lost_took_any_members_or_none() {
        let with = |members: &[&str]| {
            let mut state = State::default();
            members.iter().for_each(|m| state.apply(&Effect::Edit(place("s"), Edit::Member(m.as_bytes().to_vec()))));
            state
        };
        let found = |members: &[&str], count| {
            let seen = Seen { keys: with(members).keys, from: 1000, until: 1010 };
            let draw = operation(vec![Effect::Draw(place("s"), count)]);
            find_survivor(&with(&["a", "b", "c"]), &[draw], &seen).map(|(_, count)| count).ok()
        };
        assert_eq!(found(&["a", "b", "c"], 1), Some(0), "it did not happen");
        assert_eq!(found(&["a", "c"], 1), Some(1), "it did");
        assert_eq!(found(&[], 3), Some(1), "the set is gone with its last member");
        assert_eq!(found(&["a"], 1), None, "one too many is gone");
        assert_eq!(found(&["a", "b"], 2), None, "half of it");
        assert_eq!(found(&["a", "x"], 1), None, "one came from nowhere");
    }

    #[test]
    fn elements_count_one_by_one() {
        let insert = |at, element: &str| Effect::Edit(place("l"), Edit::Insert(at, element.as_bytes().to_vec()));
        let mut before = State::default();
        before.apply(&insert(0, "a"));
        let push = operation(vec![insert(0, "b"), insert(0, "c")]);
        let pop = operation(vec![Effect::Edit(place("l"), Edit::Take(2))]);
        let rename = operation(vec![Effect::Move(place("l"), place("m"))]);
        let all = [push, pop, rename];
        let found = |key: &str, elements: &[&str]| {
            let list = elements.iter().map(|e| e.as_bytes().to_vec()).collect::<std::collections::VecDeque<_>>();
            let entry = Entry { value: Value::List(list.into()), deadline: None };
            let seen = Seen { keys: BTreeMap::from([(place(key), entry)]), from: 1000, until: 1010 };
            find_survivor(&before, &all, &seen).map(|(_, count)| count).ok()
        };
        assert_eq!(found("l", &["a"]), Some(0));
        assert_eq!(found("l", &["c", "b", "a"]), Some(1));
        assert_eq!(found("l", &["b", "a"]), None, "half a push");
        assert_eq!(found("l", &["b", "c", "a"]), None, "another order");
        assert_eq!(found("l", &["c", "b"]), Some(2));
        assert_eq!(found("m", &["c", "b"]), Some(3));
    }

    #[test]
    fn a_deadline_counts_to_the_millisecond() {
        let with_deadline = |deadline| {
            let mut state = State::default();
            let entry = Entry { deadline: Some(deadline), ..Entry::text("1") };
            state.apply(&Effect::Put(place("a"), entry.clone()));
            let there = Seen { keys: BTreeMap::from([(place("a"), entry)]), from: 1000, until: 1010 };
            (find_survivor(&state, &[], &there).is_ok(), find_survivor(&state, &[], &seen(&[])).is_ok())
        };
        assert_eq!(with_deadline(1000), (false, true), "it had passed when reading began");
        assert_eq!(with_deadline(1005), (true, true), "it passed while it was read");
        assert_eq!(with_deadline(1011), (true, false), "it had not passed when reading ended");
    }
}
