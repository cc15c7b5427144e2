//! The commands on streams, for `generate`: few IDs, small ones, so that they are met again. No ID is taken from the
//! clock: two servers would not agree on it.

use super::arguments::Arguments;
use super::sequence::Command;

/// Returns the milliseconds of an ID, one of few.
fn ms(a: &mut Arguments) -> u64 {
    match a.random.below(20) {
        0 => a.random.below(3),
        1 => u64::MAX - a.random.below(2),
        _ => a.random.below(60),
    }
}

/// Returns an ID, mostly a valid one.
pub(super) fn id(a: &mut Arguments) -> Vec<u8> {
    let seq = if a.random.percent(3) { u64::MAX - a.random.below(2) } else { a.random.below(4) };
    let text = match a.random.below(40) {
        0 => {
            return a
                .random
                .pick(&["", "x", "1-", "-1", "1-x", "1-1-1", "18446744073709551616", "(1", "1-*", "$", ">"])
                .as_bytes()
                .to_vec();
        }
        1 => return a.random.pick(&["+1-01", " 1-2", "1- 2", "007", "1-+1", "1- -1"]).as_bytes().to_vec(),
        2..=14 => ms(a).to_string(),
        _ => format!("{}-{seq}", ms(a)),
    };
    text.into_bytes()
}

/// Returns an end of a range.
fn end(a: &mut Arguments, whole: &str) -> Vec<u8> {
    match a.random.below(10) {
        0..=3 => whole.as_bytes().to_vec(),
        4 => a.random.pick(&["-", "+", "(", "(-", "(+"]).as_bytes().to_vec(),
        5..=6 => [b"(".to_vec(), id(a)].concat(),
        _ => id(a),
    }
}

fn count(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(8) {
        0 => a.number(),
        1 => b"0".to_vec(),
        2 => b"-1".to_vec(),
        _ => a.random.between(1, 8).to_string().into_bytes(),
    }
}

/// Adds MAXLEN or MINID. The effect of an approximate trim depends on Redis's nodes; of a stream that is one node all
/// entries go or none.
fn trim(a: &mut Arguments, command: &mut Command) {
    let by_length = a.random.percent(50);
    command.push(a.word(if by_length { "MAXLEN" } else { "MINID" }));
    let operator = a.random.below(10);
    match operator {
        0..=1 => command.push(b"=".to_vec()),
        2..=4 => command.push(b"~".to_vec()),
        _ => {}
    }
    command.push(if by_length { count(a) } else { id(a) });
    if matches!(operator, 2..=4) && a.random.percent(40) || a.random.percent(4) {
        command.extend([a.word("LIMIT"), count(a)]);
    }
}

pub(super) fn xadd(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("XADD"), a.key()];
    if a.random.percent(10) {
        command.push(a.word("NOMKSTREAM"));
    }
    while a.random.percent(12) {
        trim(a, &mut command);
    }
    command.push(match a.random.below(10) {
        0..=5 => format!("{}-*", ms(a)).into_bytes(),
        _ => id(a),
    });
    let pairs = if a.random.percent(10) { a.random.between(0, 5) } else { 1 };
    for _ in 0..pairs {
        let field = *a.random.pick(&["f", "g", "", "a field"]);
        command.extend([field.as_bytes().to_vec(), a.value()]);
    }
    if a.random.percent(2) {
        command.push(a.value());
    }
    command
}

fn xrange(a: &mut Arguments) -> Command {
    let mut command = match a.random.percent(50) {
        true => vec![a.word("XRANGE"), a.key(), end(a, "-"), end(a, "+")],
        false => vec![a.word("XREVRANGE"), a.key(), end(a, "+"), end(a, "-")],
    };
    while a.random.percent(35) {
        command.extend([a.word("COUNT"), count(a)]);
    }
    command
}

fn xdel(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("XDEL"), a.key()];
    command.extend((0..a.random.between(1, 4)).map(|_| id(a)));
    command
}

fn xtrim(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("XTRIM"), a.key()];
    trim(a, &mut command);
    while a.random.percent(5) {
        trim(a, &mut command);
    }
    command
}

/// Makes XREAD without BLOCK, which `blocking` has: an ID `$` finds no entry.
fn xread(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("XREAD")];
    if a.random.percent(40) {
        command.extend([a.word("COUNT"), count(a)]);
    }
    if a.random.percent(3) {
        command.push(a.word("NOACK"));
    }
    command.push(a.word("STREAMS"));
    let streams = a.random.between(1, 3);
    command.extend((0..streams).map(|_| a.key()));
    command.extend((0..streams).map(|_| if a.random.percent(10) { b"$".to_vec() } else { id(a) }));
    command
}

fn xsetid(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("XSETID"), a.key(), id(a)];
    while a.random.percent(30) {
        match a.random.percent(50) {
            true => command.extend([a.word("ENTRIESADDED"), count(a)]),
            false => command.extend([a.word("MAXDELETEDID"), id(a)]),
        }
    }
    command
}

/// Makes XINFO STREAM. Radix trees are Redis's own: `compare` leaves their figures out.
fn xinfo(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("XINFO"), a.word("STREAM"), a.key()];
    if a.random.percent(50) {
        command.push(a.word("FULL"));
        if a.random.percent(50) {
            command.extend([a.word("COUNT"), count(a)]);
        }
    }
    command
}

type Make = fn(&mut Arguments) -> Command;

const OTHERS: &[(u64, Make)] =
    &[(8, xrange), (4, xdel), (3, xtrim), (2, |a| vec![a.word("XLEN"), a.key()]), (5, xread), (2, xsetid), (4, xinfo)];

pub(super) fn other(a: &mut Arguments) -> Command {
    let mut ticket = a.random.below(OTHERS.iter().map(|(weight, _)| weight).sum());
    for (weight, make) in OTHERS {
        if ticket < *weight {
            return make(a);
        }
        ticket -= weight;
    }
    unreachable!("the ticket is below the sum of the weights")
}
