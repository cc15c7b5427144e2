//! The commands on bits of strings, for `generate`: bits near the begin, near the end of a chunk and far away, fields
//! of all widths, and ranges that begin and end anywhere.

use super::arguments::Arguments;
use super::sequence::Command;

type Make = fn(&mut Arguments) -> Command;

const COMMANDS: &[(u64, Make)] = &[
    (8, |a| vec![a.word("SETBIT"), a.key(), offset(a), bit(a)]),
    (4, |a| vec![a.word("GETBIT"), a.key(), offset(a)]),
    (5, bitcount),
    (5, bitpos),
    (5, bitop),
    (7, |a| bitfield(a, "BITFIELD")),
    (3, |a| bitfield(a, "BITFIELD_RO")),
];

pub(super) fn bitmap(a: &mut Arguments) -> Command {
    let total = COMMANDS.iter().map(|(weight, _)| weight).sum();
    let mut ticket = a.random.below(total);
    for (weight, make) in COMMANDS {
        if ticket < *weight {
            return make(a);
        }
        ticket -= weight;
    }
    unreachable!("the ticket is below the sum of the weights")
}

/// The offsets that fail. No offset between these and those that are made is used: the value would be huge.
const FAILING: &[&str] =
    &["-1", "4294967296", "9223372036854775807", "-9223372036854775808", "x", "", "1.5", "#1", "01"];

/// Returns an offset to write to.
fn offset(a: &mut Arguments) -> Vec<u8> {
    if a.random.percent(6) {
        return a.random.pick(FAILING).as_bytes().to_vec();
    }
    place(a).to_string().into_bytes()
}

fn place(a: &mut Arguments) -> u64 {
    match a.random.below(10) {
        // Offsets around the ends of the first chunks.
        0 if a.large => a.random.between(1, 4) * 16_384 * 8 + a.random.below(64) - 32,
        1 if a.large => a.random.below(24 << 20),
        2..=3 => a.random.below(5000),
        _ => a.random.below(70),
    }
}

fn bit(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(20) {
        0 => a.number(),
        1..=6 => b"0".to_vec(),
        _ => b"1".to_vec(),
    }
}

/// Returns an end of a range of bytes or bits.
fn end(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(8) {
        0 => a.number(),
        1..=2 => a.index(),
        3 if a.large => (a.random.below(1 << 21) as i64 - (1 << 20)).to_string().into_bytes(),
        _ => (a.random.below(120) as i64 - 60).to_string().into_bytes(),
    }
}

fn unit(a: &mut Arguments) -> Vec<u8> {
    let word = *a.random.pick(&["BIT", "BIT", "BIT", "BYTE", "BYTE", "BITS"]);
    a.word(word)
}

fn bitcount(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("BITCOUNT"), a.key()];
    if a.random.percent(75) {
        command.extend([end(a), end(a)]);
        if a.random.percent(60) {
            command.push(unit(a));
        }
    }
    command
}

fn bitpos(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("BITPOS"), a.key(), bit(a)];
    for _ in 0..a.random.below(3) {
        command.push(end(a));
    }
    if command.len() == 5 && a.random.percent(60) {
        command.push(unit(a));
    }
    command
}

fn bitop(a: &mut Arguments) -> Command {
    let operation = *a.random.pick(&["AND", "AND", "OR", "OR", "XOR", "XOR", "NOT", "NOT", "NAND"]);
    let mut command = vec![a.word("BITOP"), a.word(operation), a.key()];
    let operands = if operation == "NOT" && a.random.percent(90) { 1 } else { a.random.between(1, 4) };
    for _ in 0..operands {
        command.push(a.key());
    }
    command
}

fn bitfield(a: &mut Arguments, name: &str) -> Command {
    let mut command = vec![a.word(name), a.key()];
    let reads_only = name == "BITFIELD_RO" && a.random.percent(85);
    while a.random.percent(70) {
        let step = if reads_only { 0 } else { a.random.below(10) };
        match step {
            0..=2 => {
                command.push(a.word("GET"));
                field(a, &mut command);
            }
            3..=5 => {
                command.push(a.word("SET"));
                field(a, &mut command);
                command.push(value(a));
            }
            6..=8 => {
                command.push(a.word("INCRBY"));
                field(a, &mut command);
                command.push(value(a));
            }
            _ => {
                let way = *a.random.pick(&["WRAP", "SAT", "SAT", "FAIL", "FAIL", "NONE"]);
                command.extend([a.word("OVERFLOW"), a.word(way)]);
            }
        }
    }
    command
}

/// Adds a type and an offset.
fn field(a: &mut Arguments, command: &mut Command) {
    let kind = if a.random.percent(50) { 'i' } else { 'u' };
    let bits = match a.random.below(4) {
        0 => *a.random.pick(&[1, 2, 8, 16, 32, 63, 64, 65, 0]),
        _ => a.random.between(1, 63),
    };
    command.push(format!("{kind}{bits}").into_bytes());
    let offset = match a.random.below(8) {
        0 => offset(a),
        1..=2 => format!("#{}", a.random.below(if a.large { 3000 } else { 12 })).into_bytes(),
        _ => place(a).to_string().into_bytes(),
    };
    command.push(offset);
}

fn value(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(3) {
        0 => a.number(),
        1 => (a.random.below(600) as i64 - 300).to_string().into_bytes(),
        _ => (a.random.below(u64::MAX) as i64 >> a.random.below(63)).to_string().into_bytes(),
    }
}
