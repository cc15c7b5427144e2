//! Makes the cases of `blocking`: over few keys, so that waiting and pushing connections meet.
//!
//! In 7.2 a client that waits for several keys runs its command once more and looks at them in its own order, in 7.0 it
//! gets the key that was ready first. So that both give one answer, a block and a pipeline make one key at most, a
//! target of moves is waited for by itself, and the key that changes its type is the last one of those that a command
//! waits for: the others stay lists or sorted sets.

use crate::diff::arguments::Arguments;
use crate::diff::sequence::{CONNECTIONS, Command, LEAVE, Sequence, Step};
use crate::random::Random;

#[path = "streams.rs"]
pub(super) mod streams;

type Make = fn(&mut Arguments) -> Command;

/// The part of the seed that sets these cases apart from the other kinds.
const STREAM: u64 = 0x00b1_0c4e_dca5_e500;

/// All keys of these cases: first those that elements are pushed to, then the targets of moves, at last the key that
/// changes its type.
pub(super) const KEYS: &[&[u8]] = &[b"a", b"b", b"c", b"d", b"e", b"z"];
const PUSHED: &[&[u8]] = &[b"a", b"b", b"c"];
const LISTS: &[&[u8]] = &[b"a", b"b"];
const SORTED_SETS: &[&[u8]] = &[b"c"];
const MOVED_TO: &[&[u8]] = &[b"d", b"e"];
const CHANGING: &[u8] = b"z";

/// No timeout, and short ones.
const TIMEOUTS: &[&str] = &["0", "0", "0", "0", "0", "100", "0.01", "1e-3", "0.02", "0x1p-7", "-0.0001", "0.0"];
/// Timeouts that are refused. A timeout beyond 64 bits is left out: 7.0 takes it for negative, or for right.
const ODD_TIMEOUTS: &[&str] = &["-1", "x", "", "-inf", "nan", "1 ", "-1e30"];

const WAITING: &[(u64, Make)] = &[
    (10, |a| waits(a, "BLPOP")),
    (8, |a| waits(a, "BRPOP")),
    (6, |a| waits(a, "BZPOPMIN")),
    (4, |a| waits(a, "BZPOPMAX")),
    (7, |a| waits_for_many(a, "BLMPOP", ["LEFT", "RIGHT"])),
    (5, |a| waits_for_many(a, "BZMPOP", ["MIN", "MAX"])),
    (8, |a| {
        let (from, to, timeout) = (source(a), destination(a), timeout(a));
        vec![a.word("BLMOVE"), from, to, side(a), side(a), timeout]
    }),
    (4, |a| {
        let (from, to, timeout) = (source(a), destination(a), timeout(a));
        vec![a.word("BRPOPLPUSH"), from, to, timeout]
    }),
];

const OTHER: &[(u64, Make)] = &[
    (3, |a| vec![a.word("LPOP"), key(a)]),
    (2, |a| vec![a.word("RPOP"), key(a)]),
    (3, |a| vec![a.word("ZPOPMIN"), key(a)]),
    (2, |a| vec![a.word("RPUSHX"), key(a), b"x".to_vec()]),
    (4, |a| {
        let (from, to) = (source(a), destination(a));
        vec![a.word("LMOVE"), from, to, side(a), side(a)]
    }),
    (2, |a| vec![a.word("RPOPLPUSH"), source(a), destination(a)]),
    (4, |a| vec![a.word("DEL"), key(a)]),
    (5, |a| vec![a.word("RENAME"), key(a), one_of(a, MOVED_TO)]),
    (3, |a| vec![a.word("COPY"), key(a), one_of(a, MOVED_TO), a.word("REPLACE")]),
    (2, |a| vec![a.word("EXPIRE"), key(a), b"-1".to_vec()]),
    (2, |a| vec![a.word("PEXPIRE"), key(a), b"100000".to_vec()]),
    (4, |a| vec![a.word("SET"), CHANGING.to_vec(), b"text".to_vec()]),
    (3, |a| vec![a.word("ZUNIONSTORE"), one_of(a, MOVED_TO), b"1".to_vec(), key(a)]),
    (3, |a| vec![a.word("LRANGE"), key(a), b"0".to_vec(), b"-1".to_vec()]),
    (2, |a| vec![a.word("EXISTS"), key(a)]),
    (1, |a| vec![a.word("FLUSHALL")]),
    (2, |a| vec![a.word("CLIENT"), a.word("UNBLOCK"), connection(a)]),
    (3, |a| {
        let how = *a.random.pick(&["TIMEOUT", "ERROR", "x"]);
        vec![a.word("CLIENT"), a.word("UNBLOCK"), connection(a), a.word(how)]
    }),
    (2, |a| vec![a.word("CLIENT"), a.word("KILL"), a.word("ID"), connection(a)]),
];

fn pick(a: &mut Arguments, table: &[(u64, Make)]) -> Command {
    let mut ticket = a.random.below(table.iter().map(|(weight, _)| weight).sum());
    let make = table.iter().find(|(weight, _)| {
        let hit = ticket < *weight;
        ticket = ticket.saturating_sub(*weight);
        hit
    });
    let (_, make) = make.expect("the ticket is below the sum of the weights");
    make(a)
}

fn one_of(a: &mut Arguments, keys: &[&[u8]]) -> Vec<u8> {
    a.random.pick(keys).to_vec()
}

fn key(a: &mut Arguments) -> Vec<u8> {
    one_of(a, KEYS)
}

fn key_but(a: &mut Arguments, others: &[&[u8]]) -> Vec<u8> {
    loop {
        let key = key(a);
        if !others.contains(&&*key) {
            return key;
        }
    }
}

/// Returns a command that makes this key.
fn making(a: &mut Arguments, key: &[u8]) -> Command {
    let (is_list, is_zset) = (LISTS.contains(&key), SORTED_SETS.contains(&key));
    if is_zset || !is_list && a.random.percent(30) {
        return scored(a, key.to_vec());
    }
    let name = *a.random.pick(&["LPUSH", "RPUSH"]);
    elements(a, name, key.to_vec())
}

fn source(a: &mut Arguments) -> Vec<u8> {
    if a.random.percent(70) { one_of(a, PUSHED) } else { key(a) }
}

fn destination(a: &mut Arguments) -> Vec<u8> {
    if a.random.percent(90) { one_of(a, MOVED_TO) } else { CHANGING.to_vec() }
}

fn side(a: &mut Arguments) -> Vec<u8> {
    let side = *a.random.pick(&["LEFT", "RIGHT"]);
    a.word(side)
}

fn connection(a: &mut Arguments) -> Vec<u8> {
    format!("{{id:{}}}", a.random.below(CONNECTIONS as u64)).into_bytes()
}

fn timeout(a: &mut Arguments) -> Vec<u8> {
    let among = if a.random.percent(93) { TIMEOUTS } else { ODD_TIMEOUTS };
    a.random.pick(among).as_bytes().to_vec()
}

/// Returns the keys that a command waits for.
fn awaited(a: &mut Arguments, among: &[&[u8]]) -> Vec<Vec<u8>> {
    if a.random.percent(25) {
        return vec![one_of(a, MOVED_TO)];
    }
    let mut keys: Vec<_> = (0..a.random.between(0, 2)).map(|_| one_of(a, among)).collect();
    if keys.is_empty() || a.random.percent(30) {
        keys.push(CHANGING.to_vec());
    }
    keys
}

/// Returns the keys of the type that a command waits for, by its name.
fn fitting(name: &str) -> &'static [&'static [u8]] {
    if name.starts_with("BZ") { SORTED_SETS } else { LISTS }
}

fn waits(a: &mut Arguments, name: &str) -> Command {
    let mut command = vec![a.word(name)];
    command.extend(awaited(a, fitting(name)));
    command.push(timeout(a));
    command
}

fn waits_for_many(a: &mut Arguments, name: &str, sides: [&str; 2]) -> Command {
    let keys = awaited(a, fitting(name));
    let mut command = vec![a.word(name), timeout(a), keys.len().to_string().into_bytes()];
    command.extend(keys);
    let side = *a.random.pick(&sides);
    command.push(a.word(side));
    if a.random.percent(60) {
        let count = *a.random.pick(&["1", "2", "3", "100", "0", "-1"]);
        command.extend([a.word("COUNT"), count.as_bytes().to_vec()]);
    }
    command
}

fn elements(a: &mut Arguments, name: &str, key: Vec<u8>) -> Command {
    let mut command = vec![a.word(name), key];
    for _ in 0..a.random.between(1, 4) {
        command.push(format!("{}", a.random.below(100)).into_bytes());
    }
    command
}

fn scored(a: &mut Arguments, key: Vec<u8>) -> Command {
    let mut command = vec![a.word("ZADD"), key];
    for _ in 0..a.random.between(1, 3) {
        let score = *a.random.pick(&["1", "2", "2.5", "-inf", "1024"]);
        command.extend([score.as_bytes().to_vec(), format!("m{}", a.random.below(5)).into_bytes()]);
    }
    command
}

/// Returns MULTI, some commands, and EXEC.
fn block(a: &mut Arguments) -> Vec<Command> {
    let key = key(a);
    let mut commands = vec![vec![a.word("MULTI")]];
    for _ in 0..a.random.between(1, 4) {
        let command = match a.random.below(10) {
            0..=5 => making(a, &key),
            6 => waits(a, "BLPOP"),
            7 => vec![a.word("BLMOVE"), key.clone(), key.clone(), side(a), side(a), timeout(a)],
            8 => vec![a.word("DEL"), key.clone()],
            _ => vec![a.word("TYPE"), key.clone()],
        };
        commands.push(command);
    }
    commands.push(vec![a.word("EXEC")]);
    commands
}

/// Returns commands that fill a database with one key and swap another one with it.
fn swap(a: &mut Arguments) -> Vec<Command> {
    let key = one_of(a, PUSHED);
    let make = making(a, &key);
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Command>();
    vec![words("SELECT 1"), words("FLUSHDB"), make, words("SELECT 0"), words("SWAPDB 0 1")]
}

/// Returns case number `case` of `seed`.
pub fn generate(seed: u64, case: u64) -> Sequence {
    let mut a = Arguments { random: Random::of_part(seed ^ STREAM, case), large: false };
    let mut sequence = vec![Step::Blocking];
    let send = |connection, commands| Step::Send { connection, commands };
    for connection in 0..CONNECTIONS {
        if a.random.percent(50) {
            let hello = *a.random.pick(&[b"2", b"3", b"3"]);
            sequence.push(send(connection, vec![vec![a.word("HELLO"), hello.to_vec()]]));
        }
    }
    if a.random.percent(30) {
        streams::generate(&mut a, &mut sequence);
        return sequence;
    }
    let listener = CONNECTIONS - 1;
    let connections = match a.random.percent(25) {
        true => {
            let classes = ["CONFIG", "SET", "notify-keyspace-events", "Eglzx"];
            sequence.push(send(0, vec![classes.map(|word| word.as_bytes().to_vec()).to_vec()]));
            sequence.push(send(listener, vec![vec![a.word("PSUBSCRIBE"), b"__key*__:*".to_vec()]]));
            listener
        }
        false => CONNECTIONS,
    };
    let patience = *a.random.pick(&[20, 35, 50]);
    for _ in 0..a.random.between(10, 50) {
        let connection = a.random.below(connections as u64) as usize;
        let commands = match a.random.below(100) {
            n if n < patience => {
                let behind = a.random.percent(20).then(|| vec![a.word("ECHO"), b"behind".to_vec()]);
                std::iter::once(pick(&mut a, WAITING)).chain(behind).collect()
            }
            n if n < patience + 30 => {
                let key = key(&mut a);
                vec![making(&mut a, &key)]
            }
            95..=96 => block(&mut a),
            97 => swap(&mut a),
            98 => vec![vec![LEAVE.to_vec()]],
            // The element is popped in the pipeline that pushes it.
            99 => {
                let key = key_but(&mut a, SORTED_SETS);
                let push = elements(&mut a, "RPUSH", key);
                let look = vec![a.word("LPOP"), push[1].clone()];
                vec![push, look]
            }
            n if n > 88 => block(&mut a),
            _ => vec![pick(&mut a, OTHER)],
        };
        sequence.push(send(connection, commands));
    }
    sequence
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::sequence::{from_text, to_text};

    #[test]
    fn every_case_survives_its_text_form() {
        for case in 0..200 {
            let sequence = generate(11, case);
            assert_eq!(from_text(&to_text(&sequence)).expect("written by us"), sequence, "case {case}");
        }
    }
}
