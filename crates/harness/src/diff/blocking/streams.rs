//! Cases of `blocking` with streams: readers and consumers of groups that wait, entries that come, groups and streams
//! that go.
//!
//! In 7.2 a client that waits for several streams reads all of them when one becomes ready, in 7.0 that one only: so
//! entries are added to one stream at a time. IDs rise from step to step, so that both servers give equal ones.

use super::connection;
use crate::diff::arguments::Arguments;
use crate::diff::sequence::{CONNECTIONS, Command, LEAVE, Sequence, Step};

/// The streams of these cases; each has the groups `g` and `h`.
pub(in super::super) const STREAMS: &[&[u8]] = &[b"s", b"t"];

const TIMEOUTS: &[&str] = &["0", "0", "0", "0", "100000", "10", "20", "1", "-1", "x", "1.5"];

fn stream(a: &mut Arguments) -> Vec<u8> {
    if a.random.percent(75) { STREAMS[0].to_vec() } else { STREAMS[1].to_vec() }
}

fn group(a: &mut Arguments) -> Vec<u8> {
    if a.random.percent(80) { b"g".to_vec() } else { b"h".to_vec() }
}

fn create(a: &mut Arguments, stream: &[u8], group: &[u8]) -> Command {
    vec![a.word("XGROUP"), a.word("CREATE"), stream.to_vec(), group.to_vec(), b"$".to_vec(), a.word("MKSTREAM")]
}

fn reading(a: &mut Arguments, connection: usize, waits: bool) -> Command {
    let as_consumer = a.random.percent(75);
    let mut command = match as_consumer {
        true => {
            let consumer = format!("c{connection}").into_bytes();
            vec![a.word("XREADGROUP"), a.word("GROUP"), group(a), consumer]
        }
        false => vec![a.word("XREAD")],
    };
    if a.random.percent(40) {
        command.extend([a.word("COUNT"), a.random.between(1, 2).to_string().into_bytes()]);
    }
    if waits {
        let timeout = *a.random.pick(TIMEOUTS);
        command.extend([a.word("BLOCK"), timeout.as_bytes().to_vec()]);
    }
    if as_consumer && a.random.percent(15) {
        command.push(a.word("NOACK"));
    }
    command.push(a.word("STREAMS"));
    let streams =
        if a.random.percent(75) { vec![stream(a)] } else { STREAMS.iter().map(|name| name.to_vec()).collect() };
    let after = match (as_consumer, a.random.below(10)) {
        (true, 0) => b"0".to_vec(),
        (true, _) => b">".to_vec(),
        (false, _) => b"$".to_vec(),
    };
    let count = streams.len();
    command.extend(streams);
    command.extend(std::iter::repeat_n(after, count));
    command
}

fn add(a: &mut Arguments, stream: Vec<u8>, step: usize, number: usize) -> Command {
    vec![a.word("XADD"), stream, format!("{}-{number}", step + 1).into_bytes(), b"f".to_vec(), b"v".to_vec()]
}

fn id(a: &mut Arguments, step: usize) -> Vec<u8> {
    format!("{}-1", a.random.between(1, step as u64 + 1)).into_bytes()
}

fn other(a: &mut Arguments, connection_number: usize, step: usize) -> Command {
    let (name, of) = (stream(a), group(a));
    match a.random.below(20) {
        0..=3 => create(a, &name, &of),
        4..=5 => vec![a.word("XGROUP"), a.word("DESTROY"), name, of],
        6..=7 => vec![a.word("DEL"), name],
        8 => vec![a.word("RENAME"), STREAMS[1].to_vec(), STREAMS[0].to_vec()],
        9..=11 => vec![a.word("XACK"), name, of, id(a, step), id(a, step)],
        12 => vec![a.word("XDEL"), name, id(a, step)],
        13 => vec![a.word("XPENDING"), name, of],
        14..=15 => reading(a, connection_number, false),
        16 => vec![a.word("CLIENT"), a.word("UNBLOCK"), connection(a)],
        17 => vec![a.word("CLIENT"), a.word("UNBLOCK"), connection(a), a.word("ERROR")],
        18 => vec![a.word("CLIENT"), a.word("KILL"), a.word("ID"), connection(a)],
        _ => vec![a.word("FLUSHALL")],
    }
}

/// Adds the steps of a case, behind its mark.
pub(super) fn generate(a: &mut Arguments, sequence: &mut Sequence) {
    let send = |connection, commands| Step::Send { connection, commands };
    for name in STREAMS {
        let commands = vec![create(a, name, b"g")];
        sequence.push(send(0, commands));
    }
    let patience = *a.random.pick(&[20, 35, 50]);
    for step in 0..a.random.between(10, 50) as usize {
        let connection = a.random.below(CONNECTIONS as u64) as usize;
        let commands = match a.random.below(100) {
            n if n < patience => {
                let behind = a.random.percent(20).then(|| vec![a.word("ECHO"), b"behind".to_vec()]);
                std::iter::once(reading(a, connection, true)).chain(behind).collect()
            }
            n if n < patience + 25 => {
                let name = stream(a);
                (0..a.random.between(1, 2) as usize).map(|number| add(a, name.clone(), step, number + 1)).collect()
            }
            n if n < patience + 32 => {
                let name = stream(a);
                let mut block = vec![vec![a.word("MULTI")]];
                block.extend((0..a.random.between(1, 3) as usize).map(|number| add(a, name.clone(), step, number + 1)));
                if a.random.percent(30) {
                    let reading = reading(a, connection, true);
                    block.push(reading);
                }
                block.push(vec![a.word("EXEC")]);
                block
            }
            99 => vec![vec![LEAVE.to_vec()]],
            _ => vec![other(a, connection, step)],
        };
        sequence.push(send(connection, commands));
    }
}
