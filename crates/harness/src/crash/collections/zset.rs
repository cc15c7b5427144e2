//! Commands of sorted sets.

use std::collections::BTreeMap;

use super::{Dice, Step, bulk_or_nil, text, words};
use crate::client::Reply;
use crate::crash::value::{Bytes, Edit, Zset, ranked};

pub(super) fn step(key: &[u8], zset: &Zset, dice: &mut Dice) -> Step {
    match dice.random.below(20) {
        0..=6 => add(key, zset, dice),
        7..=8 => remove(key, zset, dice),
        9..=11 => {
            let (member, by) = (dice.name(), score(dice));
            let sum = zset.get(&member).unwrap_or(&0) + by;
            let command = [words("ZINCRBY", key), vec![text(by), member.clone()]].concat();
            Step { command, reply: Reply::Bulk(text(sum)), edits: vec![Edit::Score(member, sum)] }
        }
        12..=13 => pop(key, zset, dice),
        14 => by_rank(key, zset, dice),
        15 => by_score(key, zset, dice),
        16..=18 => read(key, zset, dice),
        _ => Step::read(words("ZCARD", key), Reply::Integer(zset.len() as i64)),
    }
}

/// Returns a score: many are equal; some are far apart and below zero.
fn score(dice: &mut Dice) -> i64 {
    match dice.random.below(10) {
        0 => dice.random.below(2_000_000_000) as i64 - 1_000_000_000,
        _ => dice.random.below(9) as i64 - 4,
    }
}

fn add(key: &[u8], zset: &Zset, dice: &mut Dice) -> Step {
    let flags: &[&str] = dice.random.pick::<&[&str]>(&[&[], &[], &["NX"], &["XX"], &["CH"], &["GT", "CH"]]);
    let has = |flag| flags.contains(&flag);
    let mut command = words("ZADD", key);
    command.extend(flags.iter().map(|flag| flag.as_bytes().to_vec()));
    let mut changed: BTreeMap<Bytes, i64> = BTreeMap::new();
    let mut count = 0;
    for _ in 0..dice.some() {
        let (member, new) = (dice.name(), score(dice));
        command.extend([text(new), member.clone()]);
        let now = changed.get(&member).or_else(|| zset.get(&member)).copied();
        let counted = match now {
            None if has("XX") => continue,
            None => true,
            Some(old) if has("NX") || old == new || (has("GT") && new < old) => continue,
            Some(_) => has("CH"),
        };
        count += usize::from(counted);
        changed.insert(member, new);
    }
    Step::count(command, count, changed.into_iter().map(|(member, score)| Edit::Score(member, score)).collect())
}

fn remove(key: &[u8], zset: &Zset, dice: &mut Dice) -> Step {
    let mut members: Vec<Bytes> = (0..dice.some()).map(|_| dice.name()).collect();
    members.sort();
    members.dedup();
    let edits: Vec<Edit> = members.iter().filter(|m| zset.contains_key(*m)).cloned().map(Edit::Drop).collect();
    Step::count([words("ZREM", key), members].concat(), edits.len(), edits)
}

fn pop(key: &[u8], zset: &Zset, dice: &mut Dice) -> Step {
    let least = dice.random.percent(50);
    let mut command = words(if least { "ZPOPMIN" } else { "ZPOPMAX" }, key);
    let count = if dice.random.percent(50) { 1 } else { dice.some() as usize };
    if count > 1 {
        command.push(text(count));
    }
    let mut all = ranked(zset);
    if !least {
        all.reverse();
    }
    all.truncate(count);
    let reply = all.iter().flat_map(|(member, score)| [Reply::bulk(member.as_slice()), Reply::Bulk(text(score))]);
    let reply = Reply::Array(reply.collect());
    Step { command, reply, edits: all.into_iter().map(|(member, _)| Edit::Drop(member.clone())).collect() }
}

/// Makes ZREMRANGEBYRANK, counted from either end.
fn by_rank(key: &[u8], zset: &Zset, dice: &mut Dice) -> Step {
    let all = ranked(zset);
    let from = dice.random.below(all.len() as u64 + 1) as usize;
    let count = dice.some() as usize;
    let (mut first, mut last) = (from as i64, (from + count) as i64 - 1);
    if dice.random.percent(50) && from + count <= all.len() {
        (first, last) = (first - all.len() as i64, last - all.len() as i64);
    }
    let command = [words("ZREMRANGEBYRANK", key), vec![text(first), text(last)]].concat();
    let gone: Vec<Edit> = all.iter().skip(from).take(count).map(|(member, _)| Edit::Drop((*member).clone())).collect();
    Step::count(command, gone.len(), gone)
}

fn by_score(key: &[u8], zset: &Zset, dice: &mut Dice) -> Step {
    let (low, high) = if dice.random.percent(30) { (5, 2_000_000_000) } else { (dice.random.below(9) as i64 - 4, 4) };
    let high = if high == 4 { low } else { high };
    let command = [words("ZREMRANGEBYSCORE", key), vec![text(low), text(high)]].concat();
    let inside = zset.iter().filter(|(_, score)| (low..=high).contains(*score));
    let gone: Vec<Edit> = inside.map(|(member, _)| Edit::Drop(member.clone())).collect();
    Step::count(command, gone.len(), gone)
}

fn read(key: &[u8], zset: &Zset, dice: &mut Dice) -> Step {
    let all = ranked(zset);
    let member = dice.name();
    match dice.random.below(3) {
        0 => {
            let score = zset.get(&member).map(text);
            Step::read([words("ZSCORE", key), vec![member]].concat(), bulk_or_nil(score.as_ref()))
        }
        1 => {
            let rank = all.iter().position(|(other, _)| **other == member);
            let reply = rank.map_or(Reply::NullBulk, |rank| Reply::Integer(rank as i64));
            Step::read([words("ZRANK", key), vec![member]].concat(), reply)
        }
        _ => {
            let from = dice.random.below(all.len() as u64 + 1) as usize;
            let found = all.iter().skip(from).take(10).map(|(member, _)| Reply::bulk(member.as_slice())).collect();
            Step::read([words("ZRANGE", key), vec![text(from), text(from + 9)]].concat(), Reply::Array(found))
        }
    }
}
