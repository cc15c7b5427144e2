//! Notes of what there was before a command, for those who follow the log and want to see what a change has replaced.
//!
//! A note is made before the command runs and comes before its statements. It has an array for each key that the
//! command may change: the key, its type (`none` where it is absent), how much of the value follows (`whole`, `part`:
//! the fields or members that the command names, `length`: nothing), the value's length in bytes or elements, and the
//! elements: of a hash fields and values in turn, of a sorted set members and scores.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::lookup::Entry;
use crate::table::Databases;
use haypile_resp::write;
use haypile_store::{Direction, Key, NOTE, Txn};
use haypile_types::key::{self, Entry as Value, Type};
use haypile_types::list::List;
use haypile_types::set::Set;
use haypile_types::string::{self, Content};
use haypile_types::zset::Zset;
use haypile_types::{hash, score};
use std::ops::ControlFlow;

/// Elements of a value that is noted whole, at most.
const ELEMENTS_MAX: u64 = 128;

/// Bytes of a value that is noted, at most.
const BYTES_MAX: usize = 64 << 10;

/// Returns the note of what there is before a command. A value that is damaged has none: the command says so, or puts
/// another one in its place.
///
/// # Errors
/// The values are on disk.
#[cold]
pub(crate) fn note(txn: &mut Txn<'_>, entry: &Entry, args: Args<'_>) -> Result<Option<Vec<u8>>> {
    let mut note = vec![NOTE];
    let mut before = note.len();
    // A database that is named is that of the key that the command makes there.
    let is_named = |word: &str| (1..args.len()).any(|at| args.is(at, word));
    let goes_elsewhere = matches!(entry.command.databases, Databases::Keyword(word) if is_named(word));
    for (at, spec) in entry.command.keys(args) {
        if !entry.command.changes(spec) || (goes_elsewhere && spec.overwrites()) {
            continue;
        }
        let key = args.key(txn, at);
        let room = txn.note_room().saturating_sub(note.len());
        match note_key(txn, entry, args, &key, room.min(BYTES_MAX), &mut note) {
            Err(error @ Error::Stop(_)) => return Err(error),
            Err(_) => note.truncate(before),
            Ok(()) => {}
        }
        if note.len() > txn.note_room() {
            note.truncate(before);
            break;
        }
        before = note.len();
    }
    if note.len() <= 1 {
        return Ok(None);
    }
    txn.on_noted(note.len());
    Ok(Some(note))
}

/// Notes a key, with elements of so many bytes at most.
fn note_key(
    txn: &mut Txn<'_>,
    entry: &Entry,
    args: Args<'_>,
    key: &Key<'_>,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    let Some(value) = key::peek(txn, key)? else {
        write::array_len(out, 2);
        [key.name, b"none"].into_iter().for_each(|word| write::bulk(out, word));
        return Ok(());
    };
    let (kind, length) = (value.header.type_of(), length(txn, key, &value)?);
    let mut elements = Elements::new(bytes_max);
    let mut extent = "length";
    if kind == Type::String || length <= ELEMENTS_MAX {
        whole(txn, key, &value, &mut elements)?;
        extent = "whole";
    }
    if elements.are_many {
        (elements, extent) = (Elements::new(bytes_max), "length");
    }
    if extent == "length" && matches!(kind, Type::Hash | Type::Set | Type::Zset) {
        for named in named(&entry.full_name, args) {
            element(txn, key, &value, args.get(named), &mut elements)?;
            extent = "part";
        }
    }
    if elements.are_many {
        (elements, extent) = (Elements::new(bytes_max), "length");
    }
    write::array_len(out, 4 + elements.count);
    let length = length.to_string();
    [key.name, kind.name().as_bytes(), extent.as_bytes(), length.as_bytes()]
        .into_iter()
        .for_each(|word| write::bulk(out, word));
    out.extend_from_slice(&elements.words);
    Ok(())
}

/// The elements of a value that have been noted.
struct Elements {
    bytes_max: usize,
    words: Vec<u8>,
    count: usize,
    /// The value has more elements than are noted.
    are_many: bool,
}

impl Elements {
    fn new(bytes_max: usize) -> Elements {
        Elements { bytes_max, words: Vec::new(), count: 0, are_many: false }
    }

    fn add(&mut self, words: &[&[u8]]) -> ControlFlow<()> {
        let bytes: usize = words.iter().map(|word| word.len()).sum();
        if self.words.len() + bytes > self.bytes_max {
            self.are_many = true;
            return ControlFlow::Break(());
        }
        words.iter().for_each(|word| write::bulk(&mut self.words, word));
        self.count += words.len();
        ControlFlow::Continue(())
    }
}

fn length(txn: &mut Txn<'_>, key: &Key<'_>, value: &Value) -> Result<u64> {
    Ok(match value.header.type_of() {
        Type::String => string::length_of(key, value)?,
        Type::Hash => hash::len(txn, key, value)?,
        Type::List => List::of(key, value.clone())?.len(),
        Type::Set => Set::of(key, value.clone())?.count(),
        Type::Zset => Zset::of(key, value.clone())?.cardinality()?,
        Type::Stream => haypile_types::stream::Stream::of(key, value)?.len(),
    })
}

fn whole(txn: &mut Txn<'_>, key: &Key<'_>, value: &Value, out: &mut Elements) -> Result<()> {
    match value.header.type_of() {
        Type::String if string::length_of(key, value)? > BYTES_MAX as u64 => out.are_many = true,
        Type::String => {
            let _ = match string::content(txn, key, value.clone())? {
                Content::Shared(bytes) => out.add(&[&bytes]),
                Content::Owned(bytes) => out.add(&[&bytes]),
                Content::Long(_) => unreachable!("a long string is longer than what is noted"),
            };
        }
        Type::Hash => hash::visit(txn, key, value, |field, value| out.add(&[field, value]))?,
        Type::List => {
            let mut list = List::of(key, value.clone())?;
            let range = 0..list.len();
            list.visit(txn, range, Direction::Forward, |element| out.add(&[element]))?;
        }
        Type::Set => Set::of(key, value.clone())?.visit(txn, |member| out.add(&[member]))?,
        Type::Zset => {
            let zset = Zset::of(key, value.clone())?;
            zset.page(txn, Some(0), usize::MAX, |member, score| {
                let _ = out.add(&[member, &digits(score)]);
            })?;
        }
        // A stream's entries are for those who read it, not for those who want to know what has changed.
        Type::Stream => out.are_many = true,
    }
    Ok(())
}

/// Returns a score as Redis writes it.
fn digits(score: f64) -> Vec<u8> {
    let mut digits = Vec::new();
    score::write_digits(&mut digits, score);
    digits
}

/// Notes a field or a member, if the value has it.
fn element(txn: &mut Txn<'_>, key: &Key<'_>, value: &Value, name: &[u8], out: &mut Elements) -> Result<()> {
    match value.header.type_of() {
        Type::Hash => {
            if let Some(found) = hash::get(txn, key, value.clone(), name)? {
                let _ = out.add(&[name, &found]);
            }
        }
        Type::Set => {
            if Set::of(key, value.clone())?.contains(txn, name)? {
                let _ = out.add(&[name]);
            }
        }
        Type::Zset => {
            if let Some(score) = Zset::of(key, value.clone())?.score(txn, name)? {
                let _ = out.add(&[name, &digits(score)]);
            }
        }
        Type::String | Type::List | Type::Stream => {}
    }
    Ok(())
}

/// Returns the positions of the fields or members that a call names; none of a command that names them otherwise.
fn named(command: &str, args: Args<'_>) -> impl Iterator<Item = usize> + use<> {
    let count = args.len();
    let (first, end, step) = match command {
        "hset" | "hmset" => (2, count, 2),
        "hsetnx" | "hincrby" | "hincrbyfloat" => (2, 3, 1),
        "hdel" | "sadd" | "srem" | "zrem" => (2, count, 1),
        "smove" | "zincrby" => (3, 4, 1),
        "zadd" => {
            let is_option = |at: &usize| ["nx", "xx", "gt", "lt", "ch", "incr"].iter().any(|word| args.is(*at, word));
            ((2..count).find(|at| !is_option(at)).unwrap_or(count) + 1, count, 2)
        }
        "geoadd" => {
            let is_option = |at: &usize| ["nx", "xx", "ch"].iter().any(|word| args.is(*at, word));
            ((2..count).find(|at| !is_option(at)).unwrap_or(count) + 2, count, 3)
        }
        _ => (0, 0, 1),
    };
    (first..end.max(first)).step_by(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_resp::OwnedArgs;

    #[track_caller]
    fn check(call: &str, expected: &[&str]) {
        let mut args = OwnedArgs::default();
        call.split(' ').for_each(|word| args.push(word.as_bytes()));
        let (args, command) = (Args::from(args.as_args()), call.split(' ').next().unwrap());
        let found: Vec<_> = named(command, args).map(|at| String::from_utf8_lossy(args.get(at)).into_owned()).collect();
        assert_eq!(found, expected, "{call}");
    }

    #[test]
    fn fields_and_members_are_named() {
        check("hset k f1 v1 f2 v2", &["f1", "f2"]);
        check("hsetnx k f v", &["f"]);
        check("hdel k f1 f2", &["f1", "f2"]);
        check("smove a b m", &["m"]);
        check("zincrby k 2 m", &["m"]);
        check("zadd k XX ch 1 a 2 b", &["a", "b"]);
        check("zadd k NX", &[]);
        check("geoadd k ch 13 38 palermo 15 37 catania", &["palermo", "catania"]);
        check("hexpire k 10 fields 1 f", &[]);
    }
}
