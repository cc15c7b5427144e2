//! Commands of lists.

use super::{Dice, LIST_MAX, Step, bulk_or_nil, text, words};
use crate::client::Reply;
use crate::crash::value::{Bytes, Edit, List};

pub(super) fn step(key: &[u8], list: &List, dice: &mut Dice) -> Step {
    // A small key's list stays in one row, and a list beyond every bound is cut.
    if list.len() > LIST_MAX || (dice.names < 100 && list.len() > 40) {
        return trim(key, list, dice);
    }
    match dice.random.below(20) {
        0..=5 => push(key, list, dice),
        6..=8 => pop(key, list, dice),
        9..=11 => remove(key, list, dice),
        12..=14 => insert(key, list, dice),
        15..=16 if !list.is_empty() => {
            let at = dice.random.below(list.len() as u64) as usize;
            let value = element(dice);
            let command = [words("LSET", key), vec![text(at), value.clone()]].concat();
            // A list of one would be gone between the two edits.
            match list.len() {
                1 => Step::read(words("LLEN", key), Reply::Integer(1)),
                _ => Step { command, reply: Reply::ok(), edits: vec![Edit::Take(at), Edit::Insert(at, value)] },
            }
        }
        17 => trim(key, list, dice),
        18 => {
            let at = dice.random.below(list.len() as u64 + 2) as usize;
            Step::read([words("LINDEX", key), vec![text(at)]].concat(), bulk_or_nil(list.get(at)))
        }
        19 => {
            let (from, count) = (dice.random.below(list.len() as u64 + 1) as usize, 20);
            let found = list.iter().skip(from).take(count).map(|element| Reply::Bulk(element.clone())).collect();
            Step::read([words("LRANGE", key), vec![text(from), text(from + count - 1)]].concat(), Reply::Array(found))
        }
        _ => Step::read(words("LLEN", key), Reply::Integer(list.len() as i64)),
    }
}

/// Returns an element; some are equal, for LREM and LINSERT.
fn element(dice: &mut Dice) -> Bytes {
    if dice.random.percent(40) { pivot(dice) } else { dice.value() }
}

fn pivot(dice: &mut Dice) -> Bytes {
    format!("again{}", dice.random.below(5)).into_bytes()
}

fn push(key: &[u8], list: &List, dice: &mut Dice) -> Step {
    let left = dice.random.percent(50);
    let only_if_there = dice.random.percent(10);
    let name = match (left, only_if_there) {
        (true, false) => "LPUSH",
        (false, false) => "RPUSH",
        (true, true) => "LPUSHX",
        (false, true) => "RPUSHX",
    };
    let (mut command, mut edits) = (words(name, key), Vec::new());
    for number in 0..dice.some() as usize {
        let value = element(dice);
        command.push(value.clone());
        edits.push(Edit::Insert(if left { 0 } else { list.len() + number }, value));
    }
    if only_if_there && list.is_empty() {
        return Step::count(command, 0, vec![]);
    }
    Step::count(command, list.len() + edits.len(), edits)
}

fn pop(key: &[u8], list: &List, dice: &mut Dice) -> Step {
    let left = dice.random.percent(50);
    let mut command = words(if left { "LPOP" } else { "RPOP" }, key);
    let with_count = dice.random.percent(40);
    let count = if with_count { dice.some() as usize } else { 1 }.min(list.len());
    if with_count {
        command.push(text(count.max(1)));
    }
    let at = |number| if left { number } else { list.len() - 1 - number };
    let popped: Vec<Reply> = (0..count).map(|number| Reply::Bulk(list[at(number)].clone())).collect();
    let edits = (0..count).map(|number| Edit::Take(if left { 0 } else { list.len() - 1 - number })).collect();
    let reply = match (list.is_empty(), with_count) {
        (true, true) => Reply::NullArray,
        (true, false) => Reply::NullBulk,
        (false, true) => Reply::Array(popped),
        (false, false) => popped[0].clone(),
    };
    Step { command, reply, edits }
}

/// Makes LREM from either end.
fn remove(key: &[u8], list: &List, dice: &mut Dice) -> Step {
    let value = pivot(dice);
    let count = dice.random.below(7) as i64 - 3;
    let equal: Vec<usize> = (0..list.len()).filter(|at| list[*at] == value).collect();
    let most = if count == 0 { equal.len() } else { equal.len().min(count.unsigned_abs() as usize) };
    let taken = if count < 0 { &equal[equal.len() - most..] } else { &equal[..most] };
    let command = [words("LREM", key), vec![text(count), value]].concat();
    // The edits go from the right, so that the indexes of the others stay.
    Step::count(command, taken.len(), taken.iter().rev().map(|at| Edit::Take(*at)).collect())
}

fn insert(key: &[u8], list: &List, dice: &mut Dice) -> Step {
    let (before, pivot, value) = (dice.random.percent(50), pivot(dice), element(dice));
    let side = if before { b"BEFORE".to_vec() } else { b"AFTER".to_vec() };
    let command = [words("LINSERT", key), vec![side, pivot.clone(), value.clone()]].concat();
    match list.iter().position(|element| *element == pivot) {
        Some(at) => Step::count(command, list.len() + 1, vec![Edit::Insert(at + usize::from(!before), value)]),
        None if list.is_empty() => Step::count(command, 0, vec![]),
        None => Step::read(command, Reply::Integer(-1)),
    }
}

/// Makes LTRIM to a half at most, now and then to nothing.
fn trim(key: &[u8], list: &List, dice: &mut Dice) -> Step {
    let from = dice.random.below(list.len() as u64 / 2 + 1) as usize;
    let until = if dice.random.percent(5) { from } else { (from + list.len() / 2).min(list.len()) };
    let command = [words("LTRIM", key), vec![text(from), text(until as i64 - 1)]].concat();
    if from >= until {
        // The end is before the beginning, or both are 0 and the end becomes -1, which keeps all.
        let all = until == 0;
        let edits = if all { vec![] } else { (0..list.len()).rev().map(Edit::Take).collect() };
        return Step { command, reply: Reply::ok(), edits };
    }
    let gone = (until..list.len()).rev().chain((0..from).rev());
    Step { command, reply: Reply::ok(), edits: gone.map(Edit::Take).collect() }
}
