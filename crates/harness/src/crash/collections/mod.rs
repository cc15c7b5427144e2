//! The writers' operations on collections. A writer's key may come to hold any type: a missing one gets a collection of
//! a random type, DEL, SET, RENAME, COPY and the STORE commands replace it whole.
//!
//! A command on one key is made by the file of its type, as a function of the key's value: [`Step`]. Commands on
//! several keys are made here. Half of the keys stay in one row, the other half outgrow it.

mod hash;
mod list;
mod set;
pub(super) mod stream;
mod zset;

use std::sync::Arc;

use super::model::{Effect, Entry, Operation, Place};
use super::strings::MAYFLY_MS_MAX;
use super::value::{Bytes, Edit, List, Set, Value, Zset};
use super::writer::{Plan, Writer, empty};
use crate::client::Reply;
use crate::clock::now_ms;
use crate::random::Random;

/// Keys of one writer and database.
const KEYS: u64 = 16;
/// Names of fields or members to choose from, for a key that stays small, and for one that grows past every threshold.
const NAMES: [u64; 2] = [12, 400];
/// A list longer than this is trimmed.
const LIST_MAX: usize = 500;

/// One command on one key, its reply, and its changes.
struct Step {
    command: Vec<Bytes>,
    reply: Reply,
    edits: Vec<Edit>,
}

impl Step {
    /// Makes a command that changes nothing.
    fn read(command: Vec<Bytes>, reply: Reply) -> Step {
        Step { command, reply, edits: Vec::new() }
    }

    fn count(command: Vec<Bytes>, count: usize, edits: Vec<Edit>) -> Step {
        Step { command, reply: Reply::Integer(count as i64), edits }
    }
}

/// The source of the names and values of elements.
struct Dice<'a> {
    random: &'a mut Random,
    /// The number of the operation, which makes its elements unique.
    number: u64,
    /// How many fields or members there are to choose from.
    names: u64,
    field_deadlines: bool,
}

impl Dice<'_> {
    /// Returns the name of a field or member.
    fn name(&mut self) -> Bytes {
        match self.random.below(self.names) {
            // A set encodes numbers differently, and long names outgrow a row by their bytes.
            n if n % 3 == 0 => n.to_string().into_bytes(),
            n if n % 41 == 1 => format!("{n:~>300}").into_bytes(),
            n => format!("name:{n}").into_bytes(),
        }
    }

    fn value(&mut self) -> Bytes {
        let mut value = format!("{}:", self.number).into_bytes();
        let filler = match self.random.below(200) {
            0 => self.random.between(3000, 9000),
            1..=10 => self.random.below(400),
            _ => self.random.below(16),
        };
        value.resize(value.len() + filler as usize, b'.');
        value
    }

    /// Returns how many elements a command adds or removes: few, now and then many.
    fn some(&mut self) -> u64 {
        if self.random.percent(8) { self.random.between(20, 90) } else { self.random.between(1, 4) }
    }
}

fn words(command: &str, key: &[u8]) -> Vec<Bytes> {
    vec![command.as_bytes().to_vec(), key.to_vec()]
}

fn text(number: impl ToString) -> Bytes {
    number.to_string().into_bytes()
}

fn bulk_or_nil(bytes: Option<&Bytes>) -> Reply {
    bytes.map_or(Reply::NullBulk, |bytes| Reply::Bulk(bytes.clone()))
}

fn wrong_type() -> Reply {
    Reply::Error(b"WRONGTYPE Operation against a key holding the wrong kind of value".to_vec())
}

impl Writer {
    pub(super) fn collection_key(&mut self) -> Bytes {
        self.key("c", KEYS)
    }

    /// Adds a command on a collection.
    pub(super) fn collection(&mut self, plan: &mut Plan) {
        let key = self.collection_key();
        match self.random.below(100) {
            0..=1 => {
                let place = (plan.database, key.clone());
                let there = self.get(&place).is_some();
                let name = *self.random.pick(&["DEL", "UNLINK"]);
                self.push(plan, words(name, &key), Reply::Integer(i64::from(there)), vec![Effect::Remove(place)]);
            }
            2..=3 => {
                let to = self.collection_key();
                self.rename_to(plan, key, to);
            }
            4 => {
                let value = self.value();
                self.set_to(plan, key, value);
            }
            5..=6 => self.collection_deadline(plan, key),
            7..=8 => self.copy(plan, key),
            9..=10 => self.store(plan, key),
            11..=18 => self.between_two(plan, key),
            19 => self.of_wrong_type(plan, key),
            _ => self.step(plan, key),
        }
    }

    /// Adds a command of the key's own type.
    fn step(&mut self, plan: &mut Plan, key: Bytes) {
        let place = (plan.database, key);
        let small = place.1.last().is_none_or(|last| last % 2 == 0);
        let mut dice = Dice {
            random: &mut self.random,
            number: self.operations_sent,
            names: NAMES[usize::from(!small)],
            field_deadlines: self.field_deadlines,
        };
        let key = &place.1;
        let step = match self.sent.keys.get(&place).map(|entry| &entry.value) {
            Some(Value::Hash(hash)) => hash::step(key, hash, &mut dice),
            Some(Value::List(list)) => list::step(key, list, &mut dice),
            Some(Value::Set(set)) => set::step(key, set, &mut dice),
            Some(Value::Zset(zset)) => zset::step(key, zset, &mut dice),
            Some(Value::Stream(stream)) => stream::step(key, stream, &mut dice),
            Some(Value::Text(_)) => {
                return self.push(plan, words("DEL", &place.1), Reply::Integer(1), vec![Effect::Remove(place)]);
            }
            None => match dice.random.below(5) {
                0 => hash::step(key, &Default::default(), &mut dice),
                1 => list::step(key, &Default::default(), &mut dice),
                2 => set::step(key, &Default::default(), &mut dice),
                3 => stream::step(key, &Default::default(), &mut dice),
                _ => zset::step(key, &Default::default(), &mut dice),
            },
        };
        let effects = step.edits.into_iter().map(|edit| Effect::Edit(place.clone(), edit)).collect();
        self.push(plan, step.command, step.reply, effects);
    }

    fn of_wrong_type(&mut self, plan: &mut Plan, key: Bytes) {
        let Some(entry) = self.get(&(plan.database, key.clone())) else { return self.step(plan, key) };
        let mut command = match entry.value {
            Value::List(_) => words("HSET", &key),
            _ => words("RPUSH", &key),
        };
        command.extend([b"a".to_vec(), b"b".to_vec()]);
        self.push(plan, command, wrong_type(), vec![]);
    }

    /// Adds a command on the key's deadline, which no run reaches.
    fn collection_deadline(&mut self, plan: &mut Plan, key: Bytes) {
        let place = (plan.database, key.clone());
        let before = self.get(&place);
        let deadline = 4_102_444_800_000 + self.random.below(1_000_000);
        if self.random.percent(50) {
            let command = [words("PEXPIREAT", &key), vec![text(deadline)]].concat();
            let reply = Reply::Integer(i64::from(before.is_some()));
            self.push(plan, command, reply, vec![Effect::Deadline(place, Some(deadline))]);
        } else {
            let had = before.is_some_and(|entry| entry.deadline.is_some());
            let reply = Reply::Integer(i64::from(had));
            self.push(plan, words("PERSIST", &key), reply, vec![Effect::Deadline(place, None)]);
        }
    }

    fn copy(&mut self, plan: &mut Plan, from: Bytes) {
        let to = self.collection_key();
        if from == to {
            return self.step(plan, from);
        }
        let (entry, place) = (self.get(&(plan.database, from.clone())), (plan.database, to.clone()));
        let command = [words("COPY", &from), vec![to, b"REPLACE".to_vec()]].concat();
        let reply = Reply::Integer(i64::from(entry.is_some()));
        let effects = entry.map(|entry| Effect::Put(place, entry)).into_iter().collect();
        self.push(plan, command, reply, effects);
    }

    /// Adds a STORE command over two keys of one type, which replaces the value of a third key.
    fn store(&mut self, plan: &mut Plan, to: Bytes) {
        let (a, b) = (self.collection_key(), self.collection_key());
        let values = [&a, &b].map(|key| self.get(&(plan.database, key.clone())).map(|entry| entry.value));
        let (command, count, value) = match values {
            [Some(Value::Set(first)), Some(Value::Set(second))] => {
                let (name, result): (_, Set) = match self.random.below(3) {
                    0 => ("SUNIONSTORE", first.union(&second).cloned().collect()),
                    1 => ("SINTERSTORE", first.intersection(&second).cloned().collect()),
                    _ => ("SDIFFSTORE", first.difference(&second).cloned().collect()),
                };
                ([words(name, &to), vec![a, b]].concat(), result.len(), Value::Set(Arc::new(result)))
            }
            [Some(Value::Zset(first)), Some(Value::Zset(second))] => {
                let mut result = Zset::clone(&first);
                second.iter().for_each(|(member, score)| *result.entry(member.clone()).or_default() += score);
                let command = [words("ZUNIONSTORE", &to), vec![text(2), a, b]].concat();
                (command, result.len(), Value::Zset(Arc::new(result)))
            }
            _ => return self.step(plan, to),
        };
        let place = (plan.database, to);
        let effect = match count {
            0 => Effect::Remove(place),
            _ => Effect::Put(place, Entry { value, deadline: None }),
        };
        self.push(plan, command, Reply::Integer(count as i64), vec![effect]);
    }

    /// Adds LMOVE or SMOVE from a key to itself, to another one of its type, to a missing one, or to one of a wrong
    /// type.
    fn between_two(&mut self, plan: &mut Plan, from: Bytes) {
        let to = self.collection_key();
        let (source, target) = ((plan.database, from.clone()), (plan.database, to.clone()));
        let held = self.get(&target).map(|entry| entry.value);
        match self.get(&source).map(|entry| entry.value) {
            Some(Value::List(list)) => {
                if !matches!(held, None | Some(Value::List(_))) {
                    let command = [words("LMOVE", &from), vec![to, b"LEFT".to_vec(), b"LEFT".to_vec()]].concat();
                    return self.push(plan, command, wrong_type(), vec![]);
                }
                self.lmove(plan, &list, source, target, held);
            }
            Some(Value::Set(set)) => {
                let no_member = self.random.percent(10);
                let member = match set.iter().nth(self.random.below(set.len() as u64) as usize) {
                    Some(member) if !no_member => member.clone(),
                    _ => b"no member".to_vec(),
                };
                let there = set.contains(&member);
                let command = [words("SMOVE", &from), vec![to, member.clone()]].concat();
                let (reply, effects) = match held {
                    None | Some(Value::Set(_)) if !there || source == target => {
                        (Reply::Integer(i64::from(there)), vec![])
                    }
                    None | Some(Value::Set(_)) => {
                        let (drop, add) = (Edit::Drop(member.clone()), Edit::Member(member));
                        (Reply::Integer(1), vec![Effect::Edit(source, drop), Effect::Edit(target, add)])
                    }
                    _ => (wrong_type(), vec![]),
                };
                drop(set);
                self.push(plan, command, reply, effects);
            }
            _ => self.step(plan, from),
        }
    }

    fn lmove(&mut self, plan: &mut Plan, list: &List, source: Place, target: Place, held: Option<Value>) {
        let (left, to_left) = (self.random.percent(50), self.random.percent(50));
        let at = if left { 0 } else { list.len() - 1 };
        let own = source == target;
        let length = match held {
            Some(Value::List(held)) => held.len() - usize::from(own),
            _ => 0,
        };
        let side = |left: bool| if left { b"LEFT".to_vec() } else { b"RIGHT".to_vec() };
        let command = [words("LMOVE", &source.1), vec![target.1.clone(), side(left), side(to_left)]].concat();
        let element = list[at].clone();
        let insert = Edit::Insert(if to_left { 0 } else { length }, element.clone());
        // A list of one element that is moved onto itself keeps its deadline: the key is never gone.
        let effects = match own {
            true if list.len() == 1 => vec![],
            _ => vec![Effect::Edit(source, Edit::Take(at)), Effect::Edit(target, insert)],
        };
        self.push(plan, command, Reply::Bulk(element), effects);
    }

    /// Adds a collection that soon expires, under a name that no other operation touches.
    pub(super) fn collection_mayfly(&mut self, plan: &mut Plan) {
        let key = format!("{}mc{}", self.prefix, self.operations_sent).into_bytes();
        let place = (plan.database, key.clone());
        let deadline = now_ms() + self.random.between(30, MAYFLY_MS_MAX);
        let mut inner = Plan { operation: empty(), database: plan.database };
        self.step(&mut inner, key.clone());
        let there = i64::from(self.get(&place).is_some());
        let command = [words("PEXPIREAT", &key), vec![text(deadline)]].concat();
        self.push(&mut inner, command, Reply::Integer(there), vec![Effect::Deadline(place, Some(deadline))]);
        self.wrap(plan, inner);
    }

    /// Makes SPOP from one of the sets, if there is any.
    pub(super) fn draw(&mut self) -> Option<Operation> {
        // The set of a mayfly may go before the draw.
        let lasting = format!("{}c", self.prefix).into_bytes();
        let of_set = |(place, entry): (&'_ Place, &Entry)| match &entry.value {
            Value::Set(set) if place.0 == self.home && place.1.starts_with(&lasting) => {
                Some((place.clone(), set.len()))
            }
            _ => None,
        };
        let sets: Vec<(Place, usize)> = self.sent.keys.iter().filter_map(of_set).collect();
        if sets.is_empty() {
            return None;
        }
        let (place, length) = self.random.pick(&sets).clone();
        let mut command = words("SPOP", &place.1);
        let mut count = 1;
        if self.random.percent(60) {
            count = if self.random.percent(20) { 1000 } else { self.random.between(1, 8) as usize };
            command.push(text(count));
        }
        let effects = vec![Effect::Draw(place, count.min(length))];
        Some(Operation { commands: vec![command], replies: vec![], effects })
    }
}
