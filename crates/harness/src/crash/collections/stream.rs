//! Commands of streams. No ID is taken from the clock, so that each is known when it is sent.

use super::{Dice, Step, text, words};
use crate::client::Reply;
use crate::crash::value::{Bytes, Edit, Id, Stream};

pub(super) fn step(key: &[u8], stream: &Stream, dice: &mut Dice) -> Step {
    // A small key's stream stays small.
    let most = if dice.names < 100 { 40 } else { 600 };
    if stream.entries.len() > most {
        return trim(key, stream, dice);
    }
    match dice.random.below(20) {
        0..=9 => add(key, stream, dice),
        10..=12 if stream.last > (0, 0) => delete(key, stream, dice),
        13 if stream.last > (0, 0) => trim(key, stream, dice),
        14 if stream.last > (0, 0) => too_low(key, stream, dice),
        15..=16 => range(key, stream, dice),
        17 if stream.last > (0, 0) => set_id(key, stream, dice),
        _ => Step::read(words("XLEN", key), Reply::Integer(stream.entries.len() as i64)),
    }
}

pub(in crate::crash) fn shown((ms, seq): Id) -> Bytes {
    format!("{ms}-{seq}").into_bytes()
}

fn error(what: &str) -> Reply {
    Reply::Error(what.as_bytes().to_vec())
}

fn fields(dice: &mut Dice) -> Vec<Bytes> {
    let pairs = if dice.random.percent(10) { dice.random.between(2, 5) } else { 1 };
    (0..pairs).flat_map(|_| [dice.name(), dice.value()]).collect()
}

/// Makes XADD, now and then with a trim.
fn add(key: &[u8], stream: &Stream, dice: &mut Dice) -> Step {
    let (ms, seq) = stream.last;
    let (asked, id) = match dice.random.below(4) {
        0 => (format!("{ms}-*").into_bytes(), (ms, seq + 1)),
        1 => {
            let ms = ms + dice.random.between(1, 1000);
            (format!("{ms}-*").into_bytes(), (ms, 0))
        }
        2 => {
            let id = (ms + dice.random.below(3), seq + dice.random.between(1, 5));
            (shown(id), id)
        }
        _ => {
            let id = (ms + dice.random.between(1, 9), 0);
            (text(id.0), id)
        }
    };
    let mut command = words("XADD", key);
    let (mut edits, fields) = (Vec::new(), fields(dice));
    if dice.random.percent(15) {
        let most = dice.random.below(60) as usize;
        command.extend([b"MAXLEN".to_vec(), text(most)]);
        let gone = (stream.entries.len() + 1).saturating_sub(most);
        edits.extend(stream.entries.keys().chain([&id]).take(gone).map(|id| Edit::Trimmed(*id)));
    }
    command.push(asked);
    command.extend(fields.iter().cloned());
    edits.insert(0, Edit::Entry(id, fields));
    Step { command, reply: Reply::Bulk(shown(id)), edits }
}

/// Makes XADD with an ID that was given out before: it is refused, whether the entry still exists or not.
fn too_low(key: &[u8], stream: &Stream, dice: &mut Dice) -> Step {
    let id = match dice.random.percent(50) {
        true => stream.last,
        false => stream.entries.keys().next().copied().unwrap_or(stream.last),
    };
    let command = [words("XADD", key), vec![shown(id), b"f".to_vec(), b"v".to_vec()]].concat();
    Step::read(command, error("ERR The ID specified in XADD is equal or smaller than the target stream top item"))
}

fn some_id(stream: &Stream, dice: &mut Dice) -> Id {
    let at = dice.random.below(stream.entries.len() as u64 + 1) as usize;
    stream.entries.keys().nth(at).copied().unwrap_or(stream.last)
}

fn delete(key: &[u8], stream: &Stream, dice: &mut Dice) -> Step {
    let mut ids: Vec<Id> = (0..dice.some()).map(|_| some_id(stream, dice)).collect();
    ids.sort();
    ids.dedup();
    let command = words("XDEL", key).into_iter().chain(ids.iter().copied().map(shown)).collect();
    let gone: Vec<Edit> = ids.into_iter().filter(|id| stream.entries.contains_key(id)).map(Edit::Deleted).collect();
    Step::count(command, gone.len(), gone)
}

fn trim(key: &[u8], stream: &Stream, dice: &mut Dice) -> Step {
    let (bound, gone) = match dice.random.percent(50) {
        true => {
            let most = dice.random.below(stream.entries.len() as u64 + 2) as usize;
            (["MAXLEN".into(), text(most)], stream.entries.len().saturating_sub(most))
        }
        false => {
            let id = some_id(stream, dice);
            (["MINID".into(), shown(id)], stream.entries.range(..id).count())
        }
    };
    let command = words("XTRIM", key).into_iter().chain(bound).collect();
    Step::count(command, gone, stream.entries.keys().take(gone).map(|id| Edit::Trimmed(*id)).collect())
}

fn set_id(key: &[u8], stream: &Stream, dice: &mut Dice) -> Step {
    let last = (stream.last.0 + dice.random.below(50), stream.last.1);
    let command = [words("XSETID", key), vec![shown(last)]].concat();
    Step { command, reply: Reply::ok(), edits: vec![Edit::Last(last)] }
}

fn range(key: &[u8], stream: &Stream, dice: &mut Dice) -> Step {
    let from = some_id(stream, dice);
    let command = [words("XRANGE", key), vec![shown(from), b"+".to_vec(), b"COUNT".to_vec(), text(10)]].concat();
    let entry = |(id, fields): (&Id, &Vec<Bytes>)| {
        let fields = fields.iter().map(|field| Reply::Bulk(field.clone())).collect();
        Reply::Array(vec![Reply::Bulk(shown(*id)), Reply::Array(fields)])
    };
    Step::read(command, Reply::Array(stream.entries.range(from..).take(10).map(entry).collect()))
}
