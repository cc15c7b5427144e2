//! The commands on consumer groups, for `generate`: few groups and consumers, so that they meet. Idle times are zero or
//! far beyond the length of a case, so that both servers agree. The module also has the rules that compare replies
//! about groups, where times run and 7.2 says more than 7.0.

use super::arguments::Arguments;
use super::sequence::Command;
use super::streams::id;
use crate::client::Reply;

/// Returns a key, mostly one of two that other commands seldom meet: a stream gets its groups by several commands.
fn key(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(10) {
        0 => a.key(),
        1..=2 => b"jobs".to_vec(),
        _ => b"events".to_vec(),
    }
}

fn group(a: &mut Arguments) -> Vec<u8> {
    let group = match a.random.below(40) {
        0 => return a.value(),
        1..=3 => &b""[..],
        4..=12 => b"h",
        _ => b"g",
    };
    group.to_vec()
}

/// Returns the commands that create the groups most other commands need.
pub(super) fn beginning(a: &mut Arguments) -> Vec<Command> {
    let pairs = [("events", "g"), ("events", "h"), ("jobs", "g")];
    let words = |pair: (&str, &str)| [pair.0, pair.1, "0"].map(|word| word.as_bytes().to_vec());
    let create =
        |pair| [vec![a.word("XGROUP"), a.word("CREATE")], words(pair).to_vec(), vec![a.word("MKSTREAM")]].concat();
    pairs.map(create).to_vec()
}

fn consumer(a: &mut Arguments) -> Vec<u8> {
    a.random
        .pick(&[
            &b"alice"[..],
            b"bob",
            b"bob",
            b"carol",
            b"",
            b"\x00\xff",
            b"a consumer whose name is longer than most names",
        ])
        .to_vec()
}

fn count(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(12) {
        0 => a.number(),
        1 => b"0".to_vec(),
        2 => b"-1".to_vec(),
        _ => a.random.between(1, 6).to_string().into_bytes(),
    }
}

/// Returns an idle time, mostly zero or one that no entry reaches, unless an IDLE set it.
fn idle(a: &mut Arguments) -> Vec<u8> {
    let idle = match a.random.below(20) {
        0 => return a.odd(),
        1 => "-1",
        2..=5 => "50000000",
        _ => "0",
    };
    idle.as_bytes().to_vec()
}

fn new_id(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(10) {
        0..=5 => b"0".to_vec(),
        6 => b"$".to_vec(),
        7 if a.random.percent(30) => a.random.pick(&[&b"-"[..], b"+"]).to_vec(),
        _ => id(a),
    }
}

fn entries_read(a: &mut Arguments, command: &mut Command) {
    if a.random.percent(20) {
        command.extend([a.word("ENTRIESREAD"), count(a)]);
    }
}

fn create(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("XGROUP"), a.word("CREATE"), key(a), group(a), new_id(a)];
    entries_read(a, &mut command);
    if a.random.percent(60) {
        command.push(a.word("MKSTREAM"));
    }
    command
}

fn set_id(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("XGROUP"), a.word("SETID"), key(a), group(a), new_id(a)];
    entries_read(a, &mut command);
    command
}

fn of_consumer(a: &mut Arguments, name: &str) -> Command {
    vec![a.word("XGROUP"), a.word(name), key(a), group(a), consumer(a)]
}

/// Makes XREADGROUP without BLOCK, which `blocking` has.
pub(super) fn xreadgroup(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("XREADGROUP"), a.word("GROUP"), group(a), consumer(a)];
    if a.random.percent(60) {
        command.extend([a.word("COUNT"), count(a)]);
    }
    if a.random.percent(15) {
        command.push(a.word("NOACK"));
    }
    command.push(a.word("STREAMS"));
    let streams = if a.random.percent(80) { 1 } else { a.random.between(2, 3) };
    command.extend((0..streams).map(|_| key(a)));
    command.extend((0..streams).map(|_| match a.random.below(20) {
        0 => id(a),
        1 => b"$".to_vec(),
        2..=5 => b"0".to_vec(),
        _ => b">".to_vec(),
    }));
    command
}

fn xack(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("XACK"), key(a), group(a)];
    command.extend((0..a.random.between(1, 4)).map(|_| id(a)));
    command
}

fn xpending(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("XPENDING"), key(a), group(a)];
    if a.random.percent(25) {
        return command;
    }
    if a.random.percent(30) {
        command.extend([a.word("IDLE"), idle(a)]);
    }
    let (from, to) = if a.random.percent(60) { (b"-".to_vec(), b"+".to_vec()) } else { (end(a), end(a)) };
    command.extend([from, to, count(a)]);
    if a.random.percent(40) {
        command.push(consumer(a));
    }
    command
}

fn end(a: &mut Arguments) -> Vec<u8> {
    let mut end = id(a);
    if a.random.percent(20) {
        end.insert(0, b'(');
    }
    end
}

fn xclaim(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("XCLAIM"), key(a), group(a), consumer(a), idle(a)];
    command.extend((0..a.random.between(1, 4)).map(|_| id(a)));
    while a.random.percent(45) {
        match a.random.below(8) {
            0 => command.extend([a.word("IDLE"), idle(a)]),
            // The times are long ago and in the future.
            1 => {
                let time = *a.random.pick(&["1", "1000", "99999999999999", "-5"]);
                command.extend([a.word("TIME"), time.as_bytes().to_vec()]);
            }
            2 => command.extend([a.word("RETRYCOUNT"), count(a)]),
            3..=5 => command.push(a.word("FORCE")),
            6 => command.push(a.word("JUSTID")),
            _ => command.extend([a.word("LASTID"), id(a)]),
        }
    }
    command
}

fn xautoclaim(a: &mut Arguments) -> Command {
    let from = if a.random.percent(60) { b"0".to_vec() } else { end(a) };
    let mut command = vec![a.word("XAUTOCLAIM"), key(a), group(a), consumer(a), idle(a), from];
    if a.random.percent(60) {
        // Redis allocates memory for as many entries.
        let count = *a.random.pick(&["1", "2", "3", "10", "0", "-1", "x"]);
        command.extend([a.word("COUNT"), count.as_bytes().to_vec()]);
    }
    if a.random.percent(25) {
        command.push(a.word("JUSTID"));
    }
    command
}

fn info(a: &mut Arguments) -> Command {
    match a.random.below(5) {
        0 => vec![a.word("XINFO"), a.word("CONSUMERS"), key(a), group(a)],
        1..=2 => vec![a.word("XINFO"), a.word("GROUPS"), key(a)],
        _ => {
            let mut command = vec![a.word("XINFO"), a.word("STREAM"), key(a), a.word("FULL")];
            if a.random.percent(50) {
                command.extend([a.word("COUNT"), count(a)]);
            }
            command
        }
    }
}

type Make = fn(&mut Arguments) -> Command;

const OTHERS: &[(u64, Make)] = &[
    (6, create),
    (3, set_id),
    (1, |a| vec![a.word("XGROUP"), a.word("DESTROY"), key(a), group(a)]),
    (2, |a| of_consumer(a, "CREATECONSUMER")),
    (2, |a| of_consumer(a, "DELCONSUMER")),
    (6, xack),
    (8, xpending),
    (6, xclaim),
    (5, xautoclaim),
    (8, info),
    (8, |a| vec![a.word("XADD"), key(a), format!("{}-*", a.random.below(60)).into_bytes(), b"f".to_vec(), a.value()]),
    (3, |a| vec![a.word("XDEL"), key(a), id(a), id(a)]),
    (1, |a| vec![a.word("XTRIM"), key(a), a.word("MAXLEN"), count(a)]),
    (1, |a| vec![a.word("COPY"), key(a), key(a)]),
];

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

/// Returns a reply of XINFO or XPENDING without times, and without what only one of the versions has: consumers without
/// pending entries, which 7.2 makes where 7.0 does not, and new fields.
pub fn timeless(reply: &Reply) -> Reply {
    match reply {
        Reply::Map(pairs) => Reply::Map(pairs.iter().filter_map(|(key, value)| field(key, value)).collect()),
        // In RESP2 a map is a flat array that begins with the name of its first field.
        Reply::Array(items) if is_map(items) => {
            let fields = items.chunks_exact(2).filter_map(|pair| field(&pair[0], &pair[1]));
            Reply::Array(fields.flat_map(|(key, value)| [key, value]).collect())
        }
        Reply::Array(items) => {
            Reply::Array(items.iter().filter(|item| !is_idle_consumer(item)).map(timeless).collect())
        }
        other => other.clone(),
    }
}

/// Returns a pending entry of XPENDING without its idle time: id, consumer, and the number of deliveries.
pub fn timeless_pending(reply: &Reply) -> Reply {
    match reply {
        Reply::Array(items) => match &items[..] {
            [id, consumer @ Reply::Bulk(_), Reply::Integer(_), times @ Reply::Integer(_)] => {
                Reply::Array(vec![id.clone(), consumer.clone(), times.clone()])
            }
            items => Reply::Array(items.iter().map(timeless_pending).collect()),
        },
        other => other.clone(),
    }
}

fn is_map(items: &[Reply]) -> bool {
    let first = items.first().and_then(Reply::bytes);
    items.len().is_multiple_of(2) && items.len() > 6 && first.is_some_and(|name| name == b"name" || name == b"length")
        || items.len() == 6 && first == Some(b"name") && items[2].bytes() == Some(b"pending")
}

fn field(key: &Reply, value: &Reply) -> Option<(Reply, Reply)> {
    let value = match (key.bytes()?, value) {
        (b"idle" | b"inactive" | b"seen-time" | b"active-time" | b"radix-tree-keys" | b"radix-tree-nodes", _) => {
            return None;
        }
        (b"consumers", Reply::Integer(_)) => return None,
        // In XINFO STREAM FULL the second last field of a group's and of a consumer's pending entry is a time.
        (b"pending", Reply::Array(entries)) => Reply::Array(entries.iter().map(without_time).collect()),
        (b"entries", value) => value.clone(),
        (_, value) => timeless(value),
    };
    Some((key.clone(), value))
}

fn without_time(entry: &Reply) -> Reply {
    match entry {
        Reply::Array(parts) if parts.len() >= 3 => {
            let at = parts.len() - 2;
            Reply::Array(parts.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, part)| part.clone()).collect())
        }
        other => other.clone(),
    }
}

/// Returns whether an item is a consumer of XINFO CONSUMERS or FULL without pending entries.
fn is_idle_consumer(item: &Reply) -> bool {
    let pairs: Vec<(&Reply, &Reply)> = match item {
        Reply::Map(pairs) => pairs.iter().map(|(key, value)| (key, value)).collect(),
        Reply::Array(items) if is_map(items) => items.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        _ => return false,
    };
    let find = |name: &[u8]| pairs.iter().find(|(key, _)| key.bytes() == Some(name)).map(|(_, value)| *value);
    let is_consumer = find(b"idle").or(find(b"seen-time")).is_some();
    let pending = find(b"pel-count").or(find(b"pending")).and_then(Reply::integer);
    is_consumer && pending == Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_idle_consumers_do_not_count() {
        let bulk = |text: &str| Reply::bulk(text);
        let consumer = |name: &str, pending: i64, idle: i64, more: bool| {
            let mut fields = vec![
                bulk("name"),
                bulk(name),
                bulk("pending"),
                Reply::Integer(pending),
                bulk("idle"),
                Reply::Integer(idle),
            ];
            if more {
                fields.extend([bulk("inactive"), Reply::Integer(-1)]);
            }
            Reply::Array(fields)
        };
        let theirs = Reply::Array(vec![consumer("a", 1, 5, false)]);
        let ours = Reply::Array(vec![consumer("a", 1, 7, true), consumer("b", 0, 7, true)]);
        assert_eq!(timeless(&theirs), timeless(&ours));
        assert_ne!(timeless(&theirs), timeless(&Reply::Array(vec![consumer("a", 2, 5, true)])));
        assert_ne!(timeless(&theirs), timeless(&Reply::Array(vec![consumer("b", 1, 5, true)])));
        let pending = |idle: i64, times: i64| {
            Reply::Array(vec![Reply::Array(vec![bulk("1-1"), bulk("a"), Reply::Integer(idle), Reply::Integer(times)])])
        };
        assert_eq!(timeless_pending(&pending(3, 1)), timeless_pending(&pending(9, 1)));
        assert_ne!(timeless_pending(&pending(3, 1)), timeless_pending(&pending(3, 2)));
    }
}
