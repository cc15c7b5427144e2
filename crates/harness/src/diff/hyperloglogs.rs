//! The commands on HyperLogLogs, for `generate`: few elements and many, so that HyperLogLogs are sparse, dense, and
//! become dense, and HyperLogLogs that a client sets, whole and broken. Replies of GET show whether the bytes are
//! equal.

use super::arguments::Arguments;
use super::sequence::Command;
use crate::client::Reply;

type Make = fn(&mut Arguments) -> Command;

/// All commands but PFADD.
const OTHERS: &[(u64, Make)] = &[
    (6, pfcount),
    (5, |a| keys(a, "PFMERGE", 4)),
    (3, pfdebug),
    (3, |a| vec![a.word("GET"), key(a)]),
    (2, |a| vec![a.word("SET"), BROKEN.to_vec(), hll(a)]),
    (1, |a| vec![a.word("SETRANGE"), BROKEN.to_vec(), a.random.below(24).to_string().into_bytes(), a.bytes(1)]),
    (1, |a| vec![a.word("COPY"), own(a), key(a), a.word("REPLACE")]),
    (1, |a| vec![a.word("STRLEN"), key(a)]),
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

/// A key whose HyperLogLog is often broken. Where PFADD meets an element that cannot be added, Redis keeps the elements
/// before it, and we keep none.
const BROKEN: &[u8] = b"broken";

fn own(a: &mut Arguments) -> Vec<u8> {
    format!("pf{}", a.random.below(4)).into_bytes()
}

/// Returns a key, mostly one that other types do not meet.
fn key(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(20) {
        0..=1 => BROKEN.to_vec(),
        2..=5 => a.key(),
        _ => own(a),
    }
}

/// A key that is counted alone: Redis writes its count into the value, so nobody looks at these bytes.
fn counted(a: &mut Arguments) -> Vec<u8> {
    format!("pfcounted{}", a.random.below(2)).into_bytes()
}

pub(super) fn pfadd(a: &mut Arguments) -> Command {
    let key = if a.random.below(4) == 0 { counted(a) } else { key(a) };
    let mut command = vec![a.word("PFADD"), key];
    let (count, below) = match a.random.below(30) {
        _ if !command[1].starts_with(b"pf") => (1, 100),
        0 => (0, 1),
        // A sparse HyperLogLog is about full with a thousand elements.
        1..=3 if a.large => (a.random.between(500, 3000), 100_000),
        4..=6 => (a.random.between(20, 300), 2000),
        _ => (a.random.between(1, 5), *a.random.pick(&[10, 100, 100_000])),
    };
    for _ in 0..count {
        let element = match a.random.below(20) {
            0 => a.value(),
            _ => a.random.below(below).to_string().into_bytes(),
        };
        command.push(element);
    }
    command
}

fn keys(a: &mut Arguments, name: &str, most: u64) -> Command {
    let mut command = vec![a.word(name)];
    for _ in 0..a.random.between(1, most) {
        command.push(key(a));
    }
    command
}

fn pfcount(a: &mut Arguments) -> Command {
    if a.random.below(3) == 0 {
        return vec![a.word("PFCOUNT"), counted(a)];
    }
    let one = key(a);
    let mut command = keys(a, "PFCOUNT", 2);
    command.push(one);
    command
}

fn pfdebug(a: &mut Arguments) -> Command {
    let subcommand = *a.random.pick(&["DECODE", "DECODE", "ENCODING", "ENCODING", "TODENSE", "GETREG", "NOSUCH"]);
    vec![a.word("PFDEBUG"), a.word(subcommand), key(a)]
}

/// Returns whether two strings are HyperLogLogs that differ in the counts which they keep, if at all.
pub(super) fn are_same(theirs: &Reply, ours: &Reply) -> bool {
    const COUNT: std::ops::Range<usize> = 8..16;
    let (Some(theirs), Some(ours)) = (theirs.bytes(), ours.bytes()) else { return false };
    theirs.len() == ours.len()
        && theirs.len() >= COUNT.end
        && theirs.starts_with(b"HYLL")
        && theirs[..COUNT.start] == ours[..COUNT.start]
        && theirs[COUNT.end..] == ours[COUNT.end..]
}

/// Registers, valid ones first. None ends within an opcode: there Redis reads and writes the byte behind the value.
const REGISTERS: &[&[u8]] = &[
    b"\x7f\xff",
    b"\x7f\xff",
    b"\x7f\xfd\x80\x00",
    b"\x3f\x3f\x83\x87\x84\x00\x7f\x73",
    b"\xff\xfb\x7f\xf7",
    b"\x00\x00",
    b"\x7f\xff\x7f\xff",
    b"",
];

/// Returns the value of a SET: a valid HyperLogLog, or a broken one.
fn hll(a: &mut Arguments) -> Vec<u8> {
    let registers = *a.random.pick(REGISTERS);
    let mut header = *b"HYLL\x01\0\0\0\x05\0\0\0\0\0\0\0";
    match a.random.below(8) {
        0 => header[0] = b'h',
        1 => header[4] = a.random.below(4) as u8,
        2..=4 => header[15] = 0x80,
        _ => {}
    }
    [&header[..], registers].concat()
}
