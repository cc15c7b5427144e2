//! The commands on hashes, for `generate`: few fields so that commands meet, and now and then so many, or so long ones,
//! that every encoding of a hash is met.

use super::arguments::Arguments;
use super::sequence::Command;

const FIELDS: &[&[u8]] = &[b"f", b"g", b"h", b"1", b"-5", b"", b"\x00\xff\r\n", b"field*"];

pub(super) fn field(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(20) {
        // The lengths are around the limit of a listpack.
        0 => {
            let length = a.random.between(62, 67);
            a.bytes(length)
        }
        1..=4 => {
            let number = a.random.below(700);
            format!("f{number}").into_bytes()
        }
        _ => a.random.pick(FIELDS).to_vec(),
    }
}

fn value(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(12) {
        0 => {
            let length = a.random.between(60, 70);
            a.bytes(length)
        }
        1..=3 => a.value(),
        4..=6 => a.number(),
        7 => a.float(),
        _ => {
            let length = a.random.below(12);
            a.bytes(length)
        }
    }
}

pub(super) fn hset(a: &mut Arguments) -> Command {
    let name = if a.random.percent(80) { "HSET" } else { "HMSET" };
    let mut command = vec![a.word(name), a.key()];
    let fields = match a.random.below(40) {
        // The counts are around the bounds of a packed row, and of a listpack.
        0 => a.random.between(60, 70),
        1 if a.large => a.random.between(505, 520),
        2..=5 => a.random.between(5, 30),
        _ => a.random.between(1, 3),
    };
    if fields > 30 {
        let first = a.random.below(40);
        for number in first..first + fields {
            command.extend([format!("f{number}").into_bytes(), a.random.below(100).to_string().into_bytes()]);
        }
        return command;
    }
    for _ in 0..fields {
        command.extend([field(a), value(a)]);
    }
    command
}

fn fields(a: &mut Arguments, name: &str) -> Command {
    let mut command = vec![a.word(name), a.key()];
    let count = if a.random.percent(10) { a.random.between(5, 80) } else { a.random.between(1, 3) };
    for _ in 0..count {
        command.push(field(a));
    }
    command
}

type Make = fn(&mut Arguments) -> Command;

/// All commands but HSET.
const OTHERS: &[(u64, Make)] = &[
    (3, |a| vec![a.word("HSETNX"), a.key(), field(a), value(a)]),
    (5, |a| vec![a.word("HGET"), a.key(), field(a)]),
    (4, |a| fields(a, "HMGET")),
    (5, |a| vec![a.word("HGETALL"), a.key()]),
    (2, |a| vec![a.word("HKEYS"), a.key()]),
    (2, |a| vec![a.word("HVALS"), a.key()]),
    (3, |a| vec![a.word("HLEN"), a.key()]),
    (2, |a| vec![a.word("HSTRLEN"), a.key(), field(a)]),
    (2, |a| vec![a.word("HEXISTS"), a.key(), field(a)]),
    (6, |a| fields(a, "HDEL")),
    (4, |a| vec![a.word("HINCRBY"), a.key(), field(a), a.number()]),
    (4, |a| vec![a.word("HINCRBYFLOAT"), a.key(), field(a), a.float()]),
    (3, hrandfield),
    (3, hscan),
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

fn hrandfield(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("HRANDFIELD"), a.key()];
    if a.random.percent(70) {
        command.push(a.sample_count());
        if a.random.percent(50) {
            let word = *a.random.pick(&["WITHVALUES", "WITHVALUES", "WITHVALUES", "WITHSCORES"]);
            command.push(a.word(word));
        }
    }
    command
}

fn hscan(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("HSCAN"), a.key(), if a.random.percent(25) { a.odd() } else { b"0".to_vec() }];
    while a.random.percent(40) {
        let (word, value) = match a.random.below(5) {
            0..=2 => ("MATCH", a.pattern()),
            3 => ("COUNT", a.number()),
            _ => ("TYPE", b"hash".to_vec()),
        };
        command.extend([a.word(word), value]);
    }
    command
}
