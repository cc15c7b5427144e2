//! Commands about strings.

use super::arguments::Arguments;
use super::sequence::Command;

pub(super) fn set(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("SET"), a.key(), a.value()];
    while a.random.percent(35) {
        match a.random.below(9) {
            0 => command.push(a.word("NX")),
            1 => command.push(a.word("XX")),
            2 => command.push(a.word("GET")),
            3 => command.push(a.word("KEEPTTL")),
            _ => deadline_option(a, &mut command),
        }
    }
    command
}

/// Adds EX, PX, EXAT or PXAT and its argument.
fn deadline_option(a: &mut Arguments, command: &mut Command) {
    let (word, value): (&str, Vec<u8>) = match a.random.below(4) {
        0 => ("EX", a.ttl(1000)),
        1 => ("PX", a.ttl(1)),
        2 => ("EXAT", a.deadline(1000)),
        _ => ("PXAT", a.deadline(1)),
    };
    command.extend([a.word(word), value]);
}

pub(super) fn getex(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("GETEX"), a.key()];
    match a.random.below(10) {
        0..=2 => {}
        3..=4 => command.push(a.word("PERSIST")),
        5 => {
            command.push(a.word("PERSIST"));
            deadline_option(a, &mut command);
        }
        _ => deadline_option(a, &mut command),
    }
    command
}

pub(super) fn lcs(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("LCS"), a.key(), a.key()];
    while a.random.percent(50) {
        match a.random.below(5) {
            0 => command.push(a.word("LEN")),
            1 => command.push(a.word("WITHMATCHLEN")),
            2 => command.extend([a.word("MINMATCHLEN"), a.number()]),
            _ => command.push(a.word("IDX")),
        }
    }
    command
}
