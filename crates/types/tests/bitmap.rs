//! Bits of strings against a vector of bytes, with flushes and reopens in between, and the rows that a change of a bit
//! puts into the log.

mod common;

use common::{Db, Random, bytes, on_each_base};
use haypile_types::bitmap::combine::{self, Operation as Combine};
use haypile_types::bitmap::field::{self, Kind, Operation, Overflow, Step};
use haypile_types::bitmap::{self, Bitmap};
use haypile_types::chunks::CHUNK_BYTES;
use haypile_types::string;
use std::collections::HashMap;

const NAMES: [&[u8]; 4] = [b"a", b"b", b"{a}c", b"d"];

type Model = HashMap<&'static [u8], Vec<u8>>;

fn bit_of(bytes: &[u8], at: usize) -> bool {
    bytes.get(at / 8).is_some_and(|byte| byte & (0x80 >> (at % 8)) != 0)
}

/// A bit near the begin, around the ends of chunks, or far away.
fn place(random: &mut Random) -> u64 {
    let chunk = CHUNK_BYTES as u64 * 8;
    match random.below(6) {
        0 => random.below(40),
        1 => random.below(4000),
        2 => chunk - 20 + random.below(40),
        3 => 3 * chunk - 20 + random.below(40),
        4 => random.below(2 * chunk),
        _ => random.below(6 * chunk),
    }
}

fn step(db: &mut Db, model: &mut Model, random: &mut Random) {
    let name = random.pick(&NAMES);
    match random.below(10) {
        0..=4 => {
            let (at, bit) = (place(random), random.below(3) > 0);
            let set = db.run(|txn| bitmap::set(txn, &txn.key(name), at, bit)).expect("sets");
            let exists = model.contains_key(name);
            let string = model.entry(name).or_default();
            let before = bit_of(string, at as usize);
            let byte = at as usize / 8;
            let changed = !exists || byte >= string.len() || before != bit;
            assert_eq!(set, bitmap::Set { before, changed });
            string.resize(string.len().max(byte + 1), 0);
            let mask = 0x80 >> (at % 8);
            string[byte] = if bit { string[byte] | mask } else { string[byte] & !mask };
        }
        5..=6 => change_fields(db, model, random, name),
        7..=8 => combine(db, model, random, name),
        _ => {
            let length = random.below(60_000);
            let value = vec![random.pick(&[0x00, 0xff, 0x5a]); length as usize];
            db.run(|txn| string::set(txn, &txn.key(name), &value)).expect("sets");
            model.insert(name, value);
        }
    }
    compare(db, model, random, name);
}

fn change_fields(db: &mut Db, model: &mut Model, random: &mut Random, name: &'static [u8]) {
    let steps: Vec<Step> = (0..1 + random.below(4))
        .map(|_| {
            let signed = random.below(2) == 0;
            let kind = Kind { signed, bits: (1 + random.below(if signed { 64 } else { 63 })) as u8 };
            let value = random.below(u64::MAX) as i64;
            let overflow = random.pick(&[Overflow::Wrap, Overflow::Sat, Overflow::Fail]);
            let operations = [Operation::Get, Operation::Set(value, overflow), Operation::Increment(value, overflow)];
            Step { operation: random.pick(&operations), kind, offset: place(random) }
        })
        .collect();
    let writes = steps.iter().filter(|step| step.operation != Operation::Get);
    let Some(end) = writes.map(|step| step.offset + u64::from(step.kind.bits)).max() else { return };
    let found = db.run(|txn| field::change(txn, &txn.key(name), &steps)).expect("changes");
    let string = model.entry(name).or_default();
    string.resize(string.len().max(end.div_ceil(8) as usize), 0);
    let mut expected = Vec::new();
    for step in &steps {
        let bits = step.kind.bits as usize;
        let low = (0..bits).fold(0u64, |n, at| n << 1 | u64::from(bit_of(string, step.offset as usize + at)));
        let before = match step.kind.signed && bits < 64 && low >> (bits - 1) == 1 {
            true => i128::from(low) - (1 << bits),
            false if step.kind.signed => i128::from(low as i64),
            false => i128::from(low),
        };
        let (least, most) = match step.kind.signed {
            true => (-(1i128 << (bits - 1)), (1 << (bits - 1)) - 1),
            false => (0, (1 << bits) - 1),
        };
        let (wanted, overflow, answers_before) = match step.operation {
            Operation::Get => {
                expected.push(Some(before as i64));
                continue;
            }
            Operation::Set(value, overflow) if step.kind.signed => (i128::from(value), overflow, true),
            Operation::Set(value, overflow) => (i128::from(value as u64), overflow, true),
            Operation::Increment(value, overflow) => (before + i128::from(value), overflow, false),
        };
        let after = match overflow {
            _ if (least..=most).contains(&wanted) => wanted,
            Overflow::Sat => wanted.clamp(least, most),
            Overflow::Wrap => (wanted - least).rem_euclid(1 << bits) + least,
            Overflow::Fail => {
                expected.push(None);
                continue;
            }
        };
        expected.push(Some(if answers_before { before } else { after } as i64));
        for at in 0..bits {
            let (byte, mask) = ((step.offset as usize + at) / 8, 0x80 >> ((step.offset as usize + at) % 8));
            let bit = after >> (bits - 1 - at) & 1 == 1;
            string[byte] = if bit { string[byte] | mask } else { string[byte] & !mask };
        }
    }
    assert_eq!(found.values, expected, "{steps:?}");
}

fn combine(db: &mut Db, model: &mut Model, random: &mut Random, name: &'static [u8]) {
    use Combine::{And, AndOr, Diff, Diff1, Not, One, Or, Xor};
    let operation = random.pick(&[And, Or, Xor, Not, Diff, Diff1, AndOr, One]);
    let count = match operation {
        Not => 1,
        Diff | Diff1 | AndOr => 2 + random.below(3),
        And | Or | Xor | One => 1 + random.below(3),
    };
    let names: Vec<&[u8]> = (0..count).map(|_| random.pick(&NAMES)).collect();
    let length = db
        .run(|txn| {
            let operands = names.iter().map(|name| Bitmap::lookup(txn, &txn.key(name)).expect("reads")).collect();
            combine::store(txn, operation, &txn.key(name), operands)
        })
        .expect("stores");
    let empty = Vec::new();
    let operands: Vec<&Vec<u8>> = names.iter().map(|name| model.get(name).unwrap_or(&empty)).collect();
    let longest = operands.iter().map(|operand| operand.len()).max().unwrap_or(0);
    assert_eq!(length, longest as u64);
    let byte_of = |at: usize| {
        let bytes = operands.iter().map(|operand| operand.get(at).copied().unwrap_or(0));
        let (first, others) = (bytes.clone().next()?, bytes.clone().skip(1).fold(0, |a, b| a | b));
        match operation {
            And => bytes.reduce(|a, b| a & b),
            Or => bytes.reduce(|a, b| a | b),
            Xor => bytes.reduce(|a, b| a ^ b),
            Not => Some(!first),
            Diff => Some(first & !others),
            Diff1 => Some(others & !first),
            AndOr => Some(first & others),
            One => {
                let has_one = |bit: &u8| bytes.clone().filter(|byte| byte >> bit & 1 == 1).count() == 1;
                Some((0..8).filter(has_one).fold(0, |byte, bit| byte | 1 << bit))
            }
        }
    };
    if longest > 0 {
        let result = (0..longest).map(|at| byte_of(at).expect("there is an operand")).collect();
        model.insert(name, result);
    }
}

fn compare(db: &mut Db, model: &Model, random: &mut Random, name: &[u8]) {
    let content = db.run(|txn| string::get(txn, &txn.key(name)).expect("reads").map(bytes));
    let Some(string) = model.get(name) else { return assert!(content.is_none()) };
    assert!(content.as_ref() == Some(string), "the bytes of {}", name.escape_ascii());
    let total = string.len() as u64 * 8;
    let (from, until) = (random.below(total + 1), random.below(total + 1));
    let range = from.min(until)..from.max(until);
    db.run(|txn| {
        let bitmap = Bitmap::lookup(txn, &txn.key(name)).expect("reads").expect("is there");
        let (all, ones) = (range.start as usize..range.end as usize, |at: &usize| bit_of(string, *at));
        assert_eq!(bitmap.count(txn, range.clone()).expect("counts"), all.clone().filter(ones).count() as u64);
        for bit in [true, false] {
            let expected = all.clone().find(|at| bit_of(string, *at) == bit).map(|at| at as u64);
            assert_eq!(bitmap.first(txn, bit, range.clone()).expect("searches"), expected, "{bit} in {range:?}");
        }
        let at = random.below(total + 100);
        assert_eq!(bitmap.bit(txn, at).expect("reads"), bit_of(string, at as usize));
    });
}

#[test]
fn bits_are_those_of_a_vector() {
    for (seed, mut db) in on_each_base(1..=4) {
        let (mut model, mut random) = (Model::new(), Random(seed));
        for round in 0..250 {
            step(&mut db, &mut model, &mut random);
            match random.below(20) {
                0 => db.store.flush_now().expect("flushes to memory"),
                1 if round % 3 == 0 => db.reopen(),
                _ => {}
            }
        }
        db.check();
    }
}

#[test]
fn one_bit_of_a_chunk_is_a_byte_in_the_log() {
    let mut db = Db::new();
    db.run(|txn| string::set(txn, &txn.key(b"k"), &[0x0f; 3 * CHUNK_BYTES]).expect("writes"));
    let mut logged = |at: u64, bit: bool| {
        db.logged(|txn| {
            bitmap::set(txn, &txn.key(b"k"), at, bit).expect("sets");
        })
    };
    // The patch of the chunk and the meta row, by which watchers learn of the change.
    let (bytes, rows) = logged(200_000, true);
    assert!(bytes < 120 && rows == 2, "{bytes} bytes, {rows} rows");
    assert_eq!(logged(200_000, true), (0, 0), "a bit that is set already is not written");
}

#[test]
fn a_bit_far_away_makes_one_chunk() {
    let mut db = Db::new();
    let far = 4_000_000_000;
    let (bytes, rows) = db.logged(|txn| {
        bitmap::set(txn, &txn.key(b"k"), far, true).expect("sets");
    });
    // The chunk, the meta row and the owner row.
    assert!(bytes < 200 && rows == 3, "{bytes} bytes, {rows} rows");
    db.run(|txn| {
        let bitmap = Bitmap::lookup(txn, &txn.key(b"k")).expect("reads").expect("is there");
        assert_eq!(bitmap.length, far / 8 + 1);
        let all = 0..bitmap.length * 8;
        assert_eq!(bitmap.count(txn, all.clone()).expect("counts"), 1);
        assert_eq!(bitmap.first(txn, true, all.clone()).expect("searches"), Some(far));
        assert_eq!(bitmap.first(txn, false, all).expect("searches"), Some(0));
    });
}
