//! The commands on sets, for `generate`: few members so that sets have much in common, and now and then so many, or
//! such long ones, that every encoding of a set is met.
//!
//! Two servers remove different random members: SPOP comes only where it empties the set, or where the key goes right
//! after it.

use super::arguments::Arguments;
use super::sequence::Command;

const MEMBERS: &[&[u8]] = &[b"a", b"b", b"c", b"1", b"2", b"-5", b"07", b"", b"\x00\xff\r\n", b"m*"];

fn member(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(24) {
        // The lengths are around the limit of a listpack.
        0 => {
            let length = a.random.between(62, 67);
            a.bytes(length)
        }
        1 => {
            let length = a.random.between(300, 600);
            a.bytes(length)
        }
        2 => a.number(),
        3..=9 => a.random.below(90).to_string().into_bytes(),
        10..=13 => {
            let number = a.random.below(150);
            format!("m{number}").into_bytes()
        }
        _ => a.random.pick(MEMBERS).to_vec(),
    }
}

fn members(a: &mut Arguments, command: &mut Command) {
    let count = match a.random.below(30) {
        // The counts are around the bounds of a packed row and of a listpack, and, if all members are integers, of an
        // intset.
        0 => a.random.between(60, 70),
        1 => a.random.between(125, 132),
        2 if a.large => a.random.between(508, 516),
        3..=5 => a.random.between(5, 30),
        _ => a.random.between(1, 4),
    };
    if count <= 30 {
        command.extend((0..count).map(|_| member(a)).collect::<Vec<_>>());
        return;
    }
    let (first, prefix) = (a.random.below(40), if a.random.percent(60) { "" } else { "m" });
    command.extend((first..first + count).map(|number| format!("{prefix}{number}").into_bytes()));
}

pub(super) fn sadd(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("SADD"), a.key()];
    members(a, &mut command);
    command
}

/// Returns a command on several sets.
fn operation(a: &mut Arguments, name: &str) -> Command {
    let mut command = vec![a.word(name)];
    for _ in 0..a.random.between(1, 4) {
        command.push(a.key());
    }
    command
}

fn store(a: &mut Arguments, name: &str) -> Command {
    let mut command = operation(a, name);
    command.insert(1, a.key());
    command
}

fn sintercard(a: &mut Arguments) -> Command {
    let keys = a.random.between(1, 3);
    let claimed = if a.random.percent(85) { keys.to_string().into_bytes() } else { a.number() };
    let mut command = vec![a.word("SINTERCARD"), claimed];
    command.extend((0..keys).map(|_| a.key()).collect::<Vec<_>>());
    while a.random.percent(35) {
        let limit = if a.random.percent(60) { a.random.below(6).to_string().into_bytes() } else { a.number() };
        command.extend([a.word("LIMIT"), limit]);
    }
    command
}

fn srandmember(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("SRANDMEMBER"), a.key()];
    if a.random.percent(75) {
        command.push(a.sample_count());
    }
    command
}

/// Makes SPOP of all members at once, of none, or with an error.
fn spop(a: &mut Arguments) -> Command {
    let count = *a.random.pick(&["0", "100000", "9223372036854775807", "-1", "x", "9223372036854775808", ""]);
    vec![a.word("SPOP"), a.key(), count.into()]
}

fn sscan(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("SSCAN"), a.key(), if a.random.percent(25) { a.odd() } else { b"0".to_vec() }];
    while a.random.percent(40) {
        let (word, value) = match a.random.below(5) {
            0..=2 => ("MATCH", a.pattern()),
            3 => ("COUNT", a.number()),
            _ => ("TYPE", b"set".to_vec()),
        };
        command.extend([a.word(word), value]);
    }
    command
}

/// Returns commands on a set that SPOP takes from, with replies that do not depend on the members it took.
pub(super) fn popped(a: &mut Arguments) -> Vec<Command> {
    let (key, mut add) = (b"popped".to_vec(), sadd(a));
    add[1].clone_from(&key);
    let count = a.random.between(1, add.len() as u64).to_string().into_bytes();
    let pop =
        if a.random.percent(50) { vec![a.word("SPOP"), key.clone()] } else { vec![a.word("SPOP"), key.clone(), count] };
    vec![
        vec![b"DEL".to_vec(), key.clone()],
        add,
        pop,
        vec![b"SCARD".to_vec(), key.clone()],
        vec![b"EXISTS".to_vec(), key.clone()],
        vec![b"DEL".to_vec(), key],
    ]
}

type Make = fn(&mut Arguments) -> Command;

/// All commands but SADD.
const OTHERS: &[(u64, Make)] = &[
    (6, |a| {
        let mut command = vec![a.word("SREM"), a.key()];
        members(a, &mut command);
        command
    }),
    (5, |a| vec![a.word("SISMEMBER"), a.key(), member(a)]),
    (3, |a| {
        let mut command = vec![a.word("SMISMEMBER"), a.key()];
        members(a, &mut command);
        command
    }),
    (3, |a| vec![a.word("SCARD"), a.key()]),
    (5, |a| vec![a.word("SMEMBERS"), a.key()]),
    (4, |a| vec![a.word("SMOVE"), a.key(), a.key(), member(a)]),
    (4, |a| operation(a, "SINTER")),
    (4, |a| operation(a, "SUNION")),
    (4, |a| operation(a, "SDIFF")),
    (4, |a| store(a, "SINTERSTORE")),
    (4, |a| store(a, "SUNIONSTORE")),
    (4, |a| store(a, "SDIFFSTORE")),
    (3, sintercard),
    (3, srandmember),
    (2, spop),
    (3, sscan),
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
