//! Commands of hashes.

use std::collections::BTreeSet;

use super::{Dice, Step, bulk_or_nil, text, words};
use crate::client::Reply;
use crate::crash::value::{Bytes, Edit, Field, Hash};

pub(super) fn step(key: &[u8], hash: &Hash, dice: &mut Dice) -> Step {
    match dice.random.below(20) {
        0..=6 => set(key, hash, dice),
        7..=10 => delete(key, hash, dice),
        11..=13 => increment(key, hash, dice),
        14 => set_if_new(key, hash, dice),
        15..=17 if dice.field_deadlines => deadline(key, hash, dice),
        18 => {
            let names = [dice.name(), dice.name(), number_field(dice)];
            let values = names.iter().map(|name| bulk_or_nil(hash.get(name).map(|field| &field.value))).collect();
            Step::read([words("HMGET", key), names.to_vec()].concat(), Reply::Array(values))
        }
        _ => Step::read(words("HLEN", key), Reply::Integer(hash.len() as i64)),
    }
}

/// Returns the name of a field that always holds a number.
fn number_field(dice: &mut Dice) -> Bytes {
    format!("number:{}", dice.random.below(6)).into_bytes()
}

fn set(key: &[u8], hash: &Hash, dice: &mut Dice) -> Step {
    let (mut command, mut edits, mut new) = (words("HSET", key), Vec::new(), BTreeSet::new());
    for _ in 0..dice.some() {
        let (name, value) = (dice.name(), dice.value());
        if !hash.contains_key(&name) {
            new.insert(name.clone());
        }
        command.extend([name.clone(), value.clone()]);
        // HSET removes the field's deadline.
        edits.push(Edit::Field(name, value.into()));
    }
    Step::count(command, new.len(), edits)
}

fn set_if_new(key: &[u8], hash: &Hash, dice: &mut Dice) -> Step {
    let (name, value) = (dice.name(), dice.value());
    let new = !hash.contains_key(&name);
    let command = [words("HSETNX", key), vec![name.clone(), value.clone()]].concat();
    let edits = if new { vec![Edit::Field(name, value.into())] } else { vec![] };
    Step::count(command, usize::from(new), edits)
}

fn delete(key: &[u8], hash: &Hash, dice: &mut Dice) -> Step {
    let (mut command, mut gone) = (words("HDEL", key), BTreeSet::new());
    // Now and then HDEL takes all fields, so that the key goes with its last one.
    let names: Vec<Bytes> = match dice.random.percent(6) {
        true if !hash.is_empty() => hash.keys().cloned().collect(),
        _ => (0..dice.some()).map(|_| dice.name()).collect(),
    };
    for name in names {
        if hash.contains_key(&name) {
            gone.insert(name.clone());
        }
        command.push(name);
    }
    Step::count(command, gone.len(), gone.into_iter().map(Edit::Drop).collect())
}

/// Makes HINCRBY, which keeps the field's deadline.
fn increment(key: &[u8], hash: &Hash, dice: &mut Dice) -> Step {
    let (name, by) = (number_field(dice), dice.random.between(1, 2000) as i64 - 1000);
    let before = hash.get(&name);
    let number: i64 = before.map_or(0, |field| String::from_utf8_lossy(&field.value).parse().unwrap_or(0));
    let field = Field { value: text(number + by), deadline: before.and_then(|field| field.deadline) };
    let command = [words("HINCRBY", key), vec![name.clone(), text(by)]].concat();
    Step { command, reply: Reply::Integer(number + by), edits: vec![Edit::Field(name, field)] }
}

/// Makes a command on a field's deadline, which no run reaches: set, moved, taken away.
fn deadline(key: &[u8], hash: &Hash, dice: &mut Dice) -> Step {
    let name = if dice.random.percent(50) { dice.name() } else { number_field(dice) };
    let at = 4_102_444_800_000 + dice.random.below(1_000_000);
    let (mut command, deadline) = match dice.random.percent(75) {
        true => ([words("HPEXPIREAT", key), vec![text(at)]].concat(), Some(at)),
        false => (words("HPERSIST", key), None),
    };
    command.extend([b"FIELDS".to_vec(), b"1".to_vec(), name.clone()]);
    let (answer, edits) = match hash.get(&name) {
        None => (-2, vec![]),
        Some(field) if deadline.is_none() && field.deadline.is_none() => (-1, vec![]),
        Some(field) => (1, vec![Edit::Field(name, Field { deadline, ..field.clone() })]),
    };
    Step { command, reply: Reply::Array(vec![Reply::Integer(answer)]), edits }
}
