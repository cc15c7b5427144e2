//! The commands on sorted sets, for `generate`: few members with few scores so that commands meet and scores are equal,
//! and now and then so many, or such long ones, that every encoding of a sorted set is met.

use super::arguments::Arguments;
use super::sequence::Command;

const MEMBERS: &[&[u8]] = &[b"m", b"n", b"o", b"p", b"1", b"-5", b"", b"\x00\xff\r\n", b"mm", b"member*"];

/// Scores whose digits are equal in 7.0, which prints 17 of them, and in 7.2, which prints as few as possible.
const SCORES: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "-1",
    "-0",
    "0.5",
    "1.5",
    "-2.25",
    "10",
    "100",
    "1e3",
    "0x10",
    "inf",
    "-inf",
    "+inf",
    "4503599627370497",
    "1.",
    ".5",
    "+7",
];

fn member(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(20) {
        // The lengths are around the limit of a listpack.
        0 => {
            let length = a.random.between(62, 67);
            a.bytes(length)
        }
        1..=4 => format!("m{}", a.random.below(400)).into_bytes(),
        _ => a.random.pick(MEMBERS).to_vec(),
    }
}

fn score(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(24) {
        0 => a.odd(),
        1..=8 => a.random.pick(SCORES).as_bytes().to_vec(),
        _ => a.random.below(6).to_string().into_bytes(),
    }
}

fn bound(a: &mut Arguments) -> Vec<u8> {
    let mut bound = match a.random.below(6) {
        0 => b"-inf".to_vec(),
        1 => b"+inf".to_vec(),
        _ => score(a),
    };
    if a.random.percent(25) {
        bound.insert(0, b'(');
    }
    bound
}

fn lex(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(8) {
        0 | 1 => b"-".to_vec(),
        2 | 3 => b"+".to_vec(),
        4 if a.random.percent(20) => a.odd(),
        _ => {
            let mut bound = member(a);
            bound.insert(0, if a.random.percent(60) { b'[' } else { b'(' });
            bound
        }
    }
}

/// Returns one of the sets that all commands on ranges of members share: their members have one score, because the
/// result with several is not defined in Redis.
fn key_of_lex(a: &mut Arguments) -> Vec<u8> {
    a.random.pick(&[&b"lex"[..], b"lexi"]).to_vec()
}

fn add_lex(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("ZADD"), key_of_lex(a)];
    let pairs = if a.random.percent(10) { a.random.between(60, 140) } else { a.random.between(1, 6) };
    for _ in 0..pairs {
        command.extend([b"0".to_vec(), member(a)]);
    }
    command
}

/// Returns a command on a range of members.
fn by_lex(a: &mut Arguments) -> Command {
    let name =
        *a.random.pick(&["ZRANGE", "ZRANGESTORE", "ZRANGEBYLEX", "ZREVRANGEBYLEX", "ZLEXCOUNT", "ZREMRANGEBYLEX"]);
    let mut command = vec![a.word(name)];
    if name == "ZRANGESTORE" {
        command.push(a.key());
    }
    let reverse = name == "ZREVRANGEBYLEX" || (name.len() < 12 && name.starts_with("ZRANGE") && a.random.percent(30));
    command.push(if a.random.percent(90) { key_of_lex(a) } else { a.key() });
    let is_lex_key = command.last().is_some_and(|key| key.starts_with(b"lex"));
    let mut bounds = if is_lex_key { [lex(a), lex(a)] } else { [b"-".to_vec(), b"+".to_vec()] };
    if reverse {
        bounds.reverse();
    }
    command.extend(bounds);
    if name == "ZRANGE" || name == "ZRANGESTORE" {
        command.push(a.word("BYLEX"));
        if reverse {
            command.push(a.word("REV"));
        }
    }
    if name != "ZLEXCOUNT" && name != "ZREMRANGEBYLEX" {
        limit(a, &mut command);
    }
    if name.starts_with("ZRANGEBY") && a.random.percent(5) {
        command.push(a.word("WITHSCORES"));
    }
    command
}

fn small(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(12) {
        0 => a.number(),
        _ => (a.random.below(16) as i64 - 6).to_string().into_bytes(),
    }
}

pub(super) fn zadd(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("ZADD"), a.key()];
    let pairs = match a.random.below(40) {
        // The counts are around the bounds of a packed row, of a listpack, and of a set without rank tree.
        0 => a.random.between(60, 70),
        1 => a.random.between(120, 135),
        2 | 3 if a.large => a.random.between(250, 330),
        4..=8 => a.random.between(5, 30),
        _ => a.random.between(1, 3),
    };
    if pairs > 30 {
        let (first, step) = (a.random.below(40), a.random.below(3));
        for number in first..first + pairs {
            command.extend([(number * step / 2).to_string().into_bytes(), format!("m{number}").into_bytes()]);
        }
        return command;
    }
    while a.random.percent(25) {
        let option = *a.random.pick(&["NX", "XX", "GT", "LT", "CH", "CH", "INCR"]);
        command.push(a.word(option));
    }
    for _ in 0..pairs {
        command.extend([score(a), member(a)]);
    }
    command
}

fn members(a: &mut Arguments, name: &str) -> Command {
    let mut command = vec![a.word(name), a.key()];
    let count = if a.random.percent(10) { a.random.between(5, 80) } else { a.random.between(1, 3) };
    for _ in 0..count {
        command.push(member(a));
    }
    command
}

fn limit(a: &mut Arguments, command: &mut Command) {
    if a.random.percent(35) {
        command.extend([a.word("LIMIT"), small(a), small(a)]);
    }
}

fn with_scores(a: &mut Arguments, command: &mut Command) {
    if a.random.percent(50) {
        command.push(a.word("WITHSCORES"));
    }
}

/// Adds the two bounds of a range and the word for their kind, as ZRANGE takes them.
fn range(a: &mut Arguments, command: &mut Command) {
    let (by, mut bounds): (Option<&str>, [Vec<u8>; 2]) = match a.random.below(4) {
        0 | 1 => (None, [small(a), small(a)]),
        _ => (Some("BYSCORE"), [bound(a), bound(a)]),
    };
    let reverse = a.random.percent(40);
    if reverse {
        bounds.reverse();
    }
    command.extend(bounds);
    if let Some(by) = by {
        command.push(a.word(by));
    }
    if reverse {
        command.push(a.word("REV"));
    }
    if by.is_some() || a.random.percent(5) {
        limit(a, command);
    }
}

fn zrange(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("ZRANGE"), a.key()];
    range(a, &mut command);
    with_scores(a, &mut command);
    command
}

fn zrangestore(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("ZRANGESTORE"), a.key(), a.key()];
    range(a, &mut command);
    command
}

fn by_name(a: &mut Arguments) -> Command {
    let (name, bounds): (&str, fn(&mut Arguments) -> Vec<u8>) = *a.random.pick(&[
        ("ZREVRANGE", small as fn(&mut Arguments) -> Vec<u8>),
        ("ZRANGEBYSCORE", bound),
        ("ZREVRANGEBYSCORE", bound),
    ]);
    let mut command = vec![a.word(name), a.key(), bounds(a), bounds(a)];
    with_scores(a, &mut command);
    if name != "ZREVRANGE" {
        limit(a, &mut command);
    }
    command
}

fn keys(a: &mut Arguments, command: &mut Command) {
    let count = a.random.between(1, 3);
    command.push(if a.random.percent(4) { a.number() } else { count.to_string().into_bytes() });
    (0..count).for_each(|_| command.push(a.key()));
}

fn combine(a: &mut Arguments) -> Command {
    let name = *a.random.pick(&["ZUNION", "ZINTER", "ZDIFF", "ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE", "ZINTERCARD"]);
    let mut command = vec![a.word(name)];
    if name.ends_with("STORE") {
        command.push(a.key());
    }
    let before = command.len();
    keys(a, &mut command);
    let count = command.len() - before - 1;
    if name == "ZINTERCARD" {
        if a.random.percent(40) {
            command.extend([a.word("LIMIT"), small(a)]);
        }
        return command;
    }
    if !name.starts_with("ZDIFF") || a.random.percent(3) {
        if a.random.percent(35) {
            command.push(a.word("WEIGHTS"));
            (0..count).for_each(|_| command.push(score(a)));
        }
        if a.random.percent(35) {
            let aggregate = *a.random.pick(&["SUM", "MIN", "MAX", "MAX", "AVG"]);
            command.extend([a.word("AGGREGATE"), a.word(aggregate)]);
        }
    }
    if !name.ends_with("STORE") {
        with_scores(a, &mut command);
    }
    command
}

fn zmpop(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("ZMPOP")];
    keys(a, &mut command);
    let end = *a.random.pick(&["MIN", "MAX", "MIN", "MAX", "MID"]);
    command.push(a.word(end));
    if a.random.percent(40) {
        command.extend([a.word("COUNT"), small(a)]);
    }
    command
}

fn zpop(a: &mut Arguments) -> Command {
    let name = *a.random.pick(&["ZPOPMIN", "ZPOPMAX"]);
    let mut command = vec![a.word(name), a.key()];
    if a.random.percent(50) {
        command.push(small(a));
    }
    command
}

fn zrandmember(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("ZRANDMEMBER"), a.key()];
    if a.random.percent(70) {
        command.push(a.sample_count());
        with_scores(a, &mut command);
    }
    command
}

fn zscan(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("ZSCAN"), a.key(), if a.random.percent(25) { a.odd() } else { b"0".to_vec() }];
    while a.random.percent(40) {
        let (word, value) = match a.random.below(3) {
            0 | 1 => ("MATCH", a.pattern()),
            _ => ("COUNT", a.number()),
        };
        command.extend([a.word(word), value]);
    }
    command
}

type Make = fn(&mut Arguments) -> Command;

/// All commands but ZADD.
const OTHERS: &[(u64, Make)] = &[
    (4, |a| vec![a.word("ZINCRBY"), a.key(), score(a), member(a)]),
    (5, |a| members(a, "ZREM")),
    (3, |a| vec![a.word("ZCARD"), a.key()]),
    (4, |a| vec![a.word("ZSCORE"), a.key(), member(a)]),
    (3, |a| members(a, "ZMSCORE")),
    (4, |a| vec![a.word("ZRANK"), a.key(), member(a)]),
    (4, |a| vec![a.word("ZREVRANK"), a.key(), member(a)]),
    (4, |a| vec![a.word("ZCOUNT"), a.key(), bound(a), bound(a)]),
    (9, zrange),
    (6, by_name),
    (4, zrangestore),
    (2, |a| vec![a.word("ZREMRANGEBYRANK"), a.key(), small(a), small(a)]),
    (2, |a| vec![a.word("ZREMRANGEBYSCORE"), a.key(), bound(a), bound(a)]),
    (7, by_lex),
    (6, add_lex),
    (1, |a| vec![a.word("ZREM"), key_of_lex(a), member(a)]),
    (5, zpop),
    (3, zmpop),
    (2, zrandmember),
    (8, combine),
    (2, zscan),
];

pub(super) fn other(a: &mut Arguments) -> Command {
    let total = OTHERS.iter().map(|(weight, _)| weight).sum();
    let mut ticket = a.random.below(total);
    for (weight, make) in OTHERS {
        if ticket < *weight {
            return make(a);
        }
        ticket -= weight;
    }
    unreachable!("the ticket is below the sum of the weights")
}
