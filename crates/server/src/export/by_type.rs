//! The values of a server that knows no DUMP, as Pika: each is read by the commands of its type.
//!
//! A small value comes in one reply, and so is of one moment. A large one comes page by page, twice: both times it
//! has to be the same, or it is read again. It lies in memory as a whole meanwhile.

use super::elements::{Elements, after, bytes_of, head_of, put_elements, put_stream};
use super::link::Link;
use super::replies::{number_of, text_of, time_ms};
use super::{Exporting, unwritten};
use haypile_rdb::{File, Key, Kind, StreamId, Writer};
use haypile_resp::Reply;
use std::io::{self, Write};

/// Elements of a value that are read at once.
const PAGE: i64 = 1000;

/// How often a large value is read that changes meanwhile.
const ATTEMPTS: usize = 4;

/// A key as it is found before its value is read.
struct Found {
    kind: Kind,
    deadline_ms: Option<u64>,
}

/// Returns the databases of a server that does not list them: their number is that of `databases`.
pub fn count_databases(link: &mut Link) -> Result<u64, String> {
    let reply = link.try_asking(&[b"CONFIG", b"GET", b"databases"])?;
    Ok(match &reply {
        Reply::Array(words) => words.get(1).and_then(number_of).unwrap_or(1),
        _ => 1,
    })
}

/// Writes keys, as far as they exist; returns how many bytes their values have.
pub fn write(link: &mut Link, names: &[Vec<u8>], to: &mut Exporting) -> Result<usize, String> {
    let (mut sized, mut large, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (name, found) in find(link, names, to)? {
        let question = match found.kind {
            Kind::String => [&b"GET"[..], name],
            Kind::List => [b"LLEN", name],
            Kind::Set => [b"SCARD", name],
            Kind::Zset => [b"ZCARD", name],
            Kind::Hash => [b"HLEN", name],
            _ => [b"XLEN", name],
        };
        link.send(&question)?;
        sized.push((name, found));
    }
    let mut small = Vec::new();
    for (name, found) in sized {
        let answer = link.receive()?;
        match (&answer, found.kind) {
            (answer, _) if answer.is_error() => to.summary.miss(name, &text_of(answer)),
            (Reply::Bulk(value), Kind::String) => {
                bytes += value.len();
                put_string(&mut to.writer, &key(name, &found), value).map_err(unwritten)?;
                to.summary.add(Some(Kind::String));
            }
            (Reply::Null, Kind::String) | (Reply::Integer(0), _) if found.kind != Kind::Stream => to.summary.gone += 1,
            (Reply::Integer(0..=PAGE), _) => small.push((name, found)),
            (Reply::Integer(_), _) => large.push((name, found)),
            _ => return Err(link.strange("GET")),
        }
    }
    for (name, found) in &small {
        link.send(&whole(found.kind, name))?;
    }
    // Of a stream more is asked when it is written: no answer may be outstanding then.
    let answers: Vec<Reply> = small.iter().map(|_| link.receive()).collect::<Result<_, _>>()?;
    for ((name, found), answer) in small.into_iter().zip(answers) {
        if answer.is_error() {
            to.summary.miss(name, &text_of(&answer));
            continue;
        }
        let elements = Elements::of(found.kind, answer).ok_or_else(|| link.strange("a read of a value"))?;
        bytes += put(link, name, &found, &elements, to)?;
    }
    for (name, found) in large {
        match read(link, name, found.kind)? {
            Ok(elements) => bytes += put(link, name, &found, &elements, to)?,
            Err(why) => to.summary.miss(name, &why),
        }
    }
    Ok(bytes)
}

/// Finds out of what type keys are, and their deadlines; keys that are gone are left out.
fn find<'n>(link: &mut Link, names: &'n [Vec<u8>], to: &mut Exporting) -> Result<Vec<(&'n [u8], Found)>, String> {
    link.send(&[b"TIME"])?;
    for name in names {
        link.send(&[b"TYPE", name])?;
        link.send(&[b"EXISTS", name])?;
        link.send(&[b"PTTL", name])?;
    }
    let time = link.receive()?;
    let now_ms = time_ms(&time).ok_or_else(|| link.strange("TIME"))?;
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let [kind, count, left] = [link.receive()?, link.receive()?, link.receive()?];
        let kind = match &kind {
            Reply::Simple(text) => text.as_bytes(),
            Reply::Bulk(text) => text,
            Reply::Status(text) => text.as_bytes(),
            _ => return Err(link.strange("TYPE")),
        };
        let kind = match kind {
            b"string" => Kind::String,
            b"list" => Kind::List,
            b"set" => Kind::Set,
            b"zset" => Kind::Zset,
            b"hash" => Kind::Hash,
            b"stream" => Kind::Stream,
            b"none" => {
                to.summary.gone += 1;
                continue;
            }
            other => {
                to.summary.miss(name, &format!("it is of type {}", other.escape_ascii()));
                continue;
            }
        };
        // Of a deadline that is not told, nobody would know that it is missing.
        if let Some(error) = [&count, &left].into_iter().find(|reply| reply.is_error()) {
            to.summary.miss(name, &text_of(error));
            continue;
        }
        if number_of(&count).is_some_and(|count| count > 1) {
            let name = name.escape_ascii();
            to.summary.note(format!("{name} has values of several types, of which the {} is in the file", named(kind)));
        }
        // -1: there is no deadline; -2: the key is gone, which its value says.
        let deadline_ms = number_of(&left).map(|left| now_ms.saturating_add(left));
        found.push((&name[..], Found { kind, deadline_ms }));
    }
    Ok(found)
}

fn named(kind: Kind) -> &'static str {
    match kind {
        Kind::String => "string",
        Kind::List => "list",
        Kind::Set => "set",
        Kind::Zset => "sorted set",
        Kind::Hash => "hash",
        _ => "stream",
    }
}

/// Returns the command that reads a small value.
fn whole(kind: Kind, name: &[u8]) -> Vec<&[u8]> {
    match kind {
        Kind::List => vec![b"LRANGE", name, b"0", b"-1"],
        Kind::Set => vec![b"SMEMBERS", name],
        Kind::Zset => vec![b"ZRANGE", name, b"0", b"-1", b"WITHSCORES"],
        Kind::Hash => vec![b"HGETALL", name],
        _ => vec![b"XRANGE", name, b"-", b"+"],
    }
}

/// Reads a large value until it is twice the same; why it is not, otherwise.
fn read(link: &mut Link, name: &[u8], kind: Kind) -> Result<Result<Elements, String>, String> {
    let mut before = None;
    for _ in 0..ATTEMPTS {
        let Some(elements) = pages(link, name, kind)? else { return Ok(Err("it cannot be read".into())) };
        if before.as_ref() == Some(&elements) {
            return Ok(Ok(elements));
        }
        before = Some(elements);
    }
    Ok(Err("it changes while it is read".into()))
}

/// Reads a large value page by page; `None` if the server refuses that.
fn pages(link: &mut Link, name: &[u8], kind: Kind) -> Result<Option<Elements>, String> {
    let mut all = Elements::none(kind);
    let (mut cursor, mut at, mut from) = (b"0".to_vec(), 0, StreamId::default());
    let count = PAGE.to_string();
    loop {
        let (first, last) = (at.to_string(), (at + PAGE - 1).to_string());
        let since = format!("{}-{}", from.ms, from.seq);
        let question: Vec<&[u8]> = match kind {
            Kind::List => vec![b"LRANGE", name, first.as_bytes(), last.as_bytes()],
            Kind::Set => vec![b"SSCAN", name, &cursor, b"COUNT", count.as_bytes()],
            Kind::Zset => vec![b"ZSCAN", name, &cursor, b"COUNT", count.as_bytes()],
            Kind::Hash => vec![b"HSCAN", name, &cursor, b"COUNT", count.as_bytes()],
            _ => vec![b"XRANGE", name, since.as_bytes(), b"+", b"COUNT", count.as_bytes()],
        };
        let mut answer = link.try_asking(&question)?;
        if answer.is_error() {
            return Ok(None);
        }
        let is_scan = matches!(kind, Kind::Set | Kind::Zset | Kind::Hash);
        if is_scan {
            let Reply::Array(scanned) = answer else { return Err(link.strange("a scan")) };
            let Ok([Reply::Bulk(next), page]) = <[Reply; 2]>::try_from(scanned) else {
                return Err(link.strange("a scan"));
            };
            (cursor, answer) = (next.into_vec(), page);
        }
        let page = Elements::of(kind, answer).ok_or_else(|| link.strange("a read of a value"))?;
        let read = page.len();
        if let Elements::Stream(entries) = &page
            && entries.first().is_some_and(|(id, _)| *id < from)
        {
            return Err(link.strange("XRANGE"));
        }
        if let Elements::Stream(entries) = &page
            && let Some((id, _)) = entries.last()
        {
            let Some(next) = after(*id) else { return Ok(Some(all.with(page))) };
            from = next;
        }
        all = all.with(page);
        at += PAGE;
        if if is_scan { cursor == b"0" } else { (read as i64) < PAGE } {
            return Ok(Some(all));
        }
    }
}

fn key<'n>(name: &'n [u8], found: &Found) -> Key<'n> {
    Key { name, kind: found.kind, deadline_ms: found.deadline_ms, idle_s: None, frequency: None, position: 0 }
}

/// Writes a key with its elements; returns their bytes.
fn put(link: &mut Link, name: &[u8], found: &Found, elements: &Elements, to: &mut Exporting) -> Result<usize, String> {
    let key = key(name, found);
    if let Elements::Stream(entries) = elements {
        let head = head_of(entries, &link.try_asking(&[b"XINFO", b"STREAM", name])?);
        if head.groups > 0 {
            to.summary.note(format!("{} has consumer groups, which are left out", name.escape_ascii()));
        }
        put_stream(&mut to.writer, &key, entries, &head).map_err(unwritten)?;
    } else if elements.len() == 0 {
        to.summary.gone += 1;
        return Ok(0);
    } else if !put_elements(&mut to.writer, &key, elements).map_err(unwritten)? {
        return Err(link.strange("ZRANGE"));
    }
    to.summary.add(Some(found.kind));
    Ok(match elements {
        Elements::List(all) => all.iter().map(Vec::len).sum(),
        Elements::Set(all) => all.iter().map(Vec::len).sum(),
        Elements::Pairs(all) => all.iter().map(|(name, value)| name.len() + value.len()).sum(),
        Elements::Stream(all) => all.iter().map(|(_, fields)| bytes_of(fields)).sum(),
    })
}

fn put_string<W: Write>(writer: &mut Writer<File<W>>, key: &Key<'_>, value: &[u8]) -> io::Result<()> {
    writer.key(key)?;
    writer.string(value)
}
