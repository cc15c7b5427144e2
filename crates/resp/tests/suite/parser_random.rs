//! Seeded inputs for [`crate::parser_check`]: pipelines of requests, some of them damaged.

use crate::parser_check::{CHOICE_BYTES, check};
use crate::random::{Random, cases};

/// Bytes that mean something to the parser, and a few that do not.
pub const ALPHABET: &[u8] = b"*$\r\n\r\n0123456789-+\"'\\xafn \t\x0b\0\x80\xffzq";

/// A pipeline of requests.
pub fn pipeline(random: &mut Random, requests_max: usize) -> Vec<u8> {
    let mut data = Vec::new();
    for _ in 0..=random.below(requests_max) {
        request(random, &mut data);
    }
    data
}

fn request(random: &mut Random, data: &mut Vec<u8>) {
    match random.below(8) {
        0 => data.extend_from_slice(random.pick::<&[u8]>(&[b"\r\n", b"\n", b" \r\n", b"*0\r\n", b"*-1\r\n"])),
        1 | 2 => {
            for _ in 0..=random.below(4) {
                let word = random.bytes(b"abcz09\\", 6);
                let quote: &[u8] = random.pick::<&[u8]>(&[b"", b"", b"\"", b"'"]);
                data.extend_from_slice(&[quote, &word, quote, b" "].concat());
            }
            data.extend_from_slice(if random.chance(3) { b"\n" } else { b"\r\n" });
        }
        _ => {
            let args_max = if random.chance(8) { 16 } else { 4 };
            let args = 1 + random.below(args_max);
            data.extend_from_slice(format!("*{args}\r\n").as_bytes());
            for i in 0..args {
                let len_max = if random.chance(20) { 400 } else { 12 };
                let mut arg = random.bytes(ALPHABET, len_max);
                if i == 0 {
                    arg.splice(..0, *b"zq");
                }
                data.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
                data.extend_from_slice(&arg);
                data.extend_from_slice(b"\r\n");
            }
        }
    }
}

/// Replaces, removes, inserts or repeats a few bytes somewhere.
pub fn damage(random: &mut Random, data: &mut Vec<u8>) {
    for _ in 0..=random.below(3) {
        if data.is_empty() {
            return;
        }
        let at = random.below(data.len());
        let until = data.len().min(at + 1 + random.below(4));
        match random.below(5) {
            0 => data[at] = *random.pick(ALPHABET),
            1 => drop(data.drain(at..until)),
            2 => data.insert(at, *random.pick(ALPHABET)),
            3 => {
                let again = data[at..until].to_vec();
                drop(data.splice(at..at, again));
            }
            _ => data.truncate(at),
        }
    }
}

#[test]
fn the_parser_agrees_with_its_model_in_any_pieces() {
    cases(30_000, |random| {
        let mut input: Vec<u8> = (0..CHOICE_BYTES).map(|_| random.next() as u8).collect();
        if random.chance(2) {
            input[0] = 0xff; // The default limits, authenticated.
        }
        let mut data = pipeline(random, 6);
        if random.chance(2) {
            damage(random, &mut data);
        }
        input.extend(data);
        check(&input);
    });
}

#[test]
fn the_parser_agrees_with_its_model_on_noise() {
    cases(30_000, |random| check(&random.bytes(ALPHABET, 80)));
}
