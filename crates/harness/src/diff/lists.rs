//! The commands on lists, for `generate`: few elements so that they are found and removed, and now and then so many, or
//! so long ones, that every encoding of a list is met.

use super::arguments::Arguments;
use super::sequence::Command;

const ELEMENTS: &[&[u8]] = &[b"x", b"y", b"z", b"1", b"-5", b"", b"\x00\xff\r\n"];

fn element(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(30) {
        0 if a.large => {
            let length = a.random.between(500, 9000);
            a.bytes(length)
        }
        0..=2 => a.value(),
        3..=5 => a.random.below(50).to_string().into_bytes(),
        _ => a.random.pick(ELEMENTS).to_vec(),
    }
}

fn push(a: &mut Arguments) -> Command {
    let name = *a.random.pick(&["LPUSH", "RPUSH", "LPUSH", "RPUSH", "LPUSHX", "RPUSHX"]);
    let mut command = vec![a.word(name), a.key()];
    let count = match a.random.below(40) {
        // The counts are around the bound of a packed row, and where replies become long.
        0 => a.random.between(55, 75),
        1 if a.large => a.random.between(900, 1100),
        2..=9 => a.random.between(5, 30),
        _ => a.random.between(1, 4),
    };
    command.extend((0..count).map(|_| element(a)));
    command
}

/// Returns an index, mostly one within short lists.
fn index(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(12) {
        0 => a.number(),
        1 if a.large => (a.random.below(2400) as i64 - 1200).to_string().into_bytes(),
        2..=3 => (a.random.below(160) as i64 - 80).to_string().into_bytes(),
        _ => (a.random.below(14) as i64 - 7).to_string().into_bytes(),
    }
}

fn pop(a: &mut Arguments) -> Command {
    let name = *a.random.pick(&["LPOP", "RPOP"]);
    let mut command = vec![a.word(name), a.key()];
    if a.random.percent(40) {
        command.push(if a.random.percent(70) { a.random.below(6).to_string().into_bytes() } else { index(a) });
    }
    command
}

fn side(a: &mut Arguments) -> Vec<u8> {
    let word = *a.random.pick(&["LEFT", "RIGHT", "LEFT", "RIGHT", "LEFT", "RIGHT", "UP"]);
    a.word(word)
}

fn lmpop(a: &mut Arguments) -> Command {
    let keys = a.random.between(1, 3);
    let claimed = if a.random.percent(85) { keys.to_string().into_bytes() } else { count_of_keys(a) };
    let mut command = vec![a.word("LMPOP"), claimed];
    command.extend((0..keys).map(|_| a.key()));
    command.push(side(a));
    while a.random.percent(40) {
        command.extend([a.word("COUNT"), index(a)]);
    }
    command
}

/// Returns a number of keys; none that overflows, because Redis 7.0 computes with it before it checks whether there are
/// so many keys.
fn count_of_keys(a: &mut Arguments) -> Vec<u8> {
    a.random.pick(&["0", "1", "2", "3", "4", "-1", "100", "2147483648", "x", ""]).as_bytes().to_vec()
}

fn linsert(a: &mut Arguments) -> Command {
    let word = *a.random.pick(&["BEFORE", "AFTER", "BEFORE", "AFTER", "BEFORE", "AFTER", "BESIDE"]);
    vec![a.word("LINSERT"), a.key(), a.word(word), element(a), element(a)]
}

fn lpos(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("LPOS"), a.key(), element(a)];
    while a.random.percent(50) {
        let word = *a.random.pick(&["RANK", "COUNT", "MAXLEN"]);
        command.extend([a.word(word), index(a)]);
    }
    command
}

type Make = fn(&mut Arguments) -> Command;

const COMMANDS: &[(u64, Make)] = &[
    (12, push),
    (6, pop),
    (2, |a| vec![a.word("LLEN"), a.key()]),
    (4, |a| vec![a.word("LINDEX"), a.key(), index(a)]),
    (4, |a| vec![a.word("LSET"), a.key(), index(a), element(a)]),
    (6, |a| vec![a.word("LRANGE"), a.key(), index(a), index(a)]),
    (3, |a| vec![a.word("LTRIM"), a.key(), index(a), index(a)]),
    (5, |a| vec![a.word("LREM"), a.key(), index(a), element(a)]),
    (6, linsert),
    (5, lpos),
    (4, |a| vec![a.word("LMOVE"), a.key(), a.key(), side(a), side(a)]),
    (2, |a| vec![a.word("RPOPLPUSH"), a.key(), a.key()]),
    (3, lmpop),
];

pub(super) fn list(a: &mut Arguments) -> Command {
    let mut ticket = a.random.below(COMMANDS.iter().map(|(weight, _)| weight).sum());
    for (weight, make) in COMMANDS {
        if ticket < *weight {
            return make(a);
        }
        ticket -= weight;
    }
    unreachable!("the ticket is below the sum of the weights")
}
