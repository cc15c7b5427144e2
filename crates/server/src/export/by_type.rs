//! The values of a server that knows no DUMP, as Pika: each is read by the commands of its type.
//!
//! A small value comes in one reply, and so is of one moment. A large one comes page by page, twice: both times it
//! has to be the same, or it is read again. It lies in memory as a whole meanwhile.

use super::link::{Link, number_of, text_of};
use super::{Exporting, unwritten};
use haypile_rdb::nodes::{Grouping, Node};
use haypile_rdb::{File, Key, Kind, StreamHead, StreamId, Writer};
use haypile_resp::Reply;
use std::collections::{BTreeMap, BTreeSet};
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

/// The elements of a value: those of a list in order, members, members with scores, fields with values.
#[derive(Debug, PartialEq)]
enum Elements {
    List(Vec<Vec<u8>>),
    Set(BTreeSet<Vec<u8>>),
    Pairs(BTreeMap<Vec<u8>, Vec<u8>>),
    Stream(Vec<(StreamId, Vec<Vec<u8>>)>),
}

/// Whether a reply says that a server does not know a command.
pub fn is_unknown(reply: &Reply) -> bool {
    reply.is_error() && text_of(reply).contains("unknown")
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

fn time_ms(time: &Reply) -> Option<u64> {
    let Reply::Array(time) = time else { return None };
    let [seconds, us] = &time[..] else { return None };
    Some(number_of(seconds)?.checked_mul(1000)? + number_of(us)? / 1000)
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

/// Returns the id behind another one.
fn after(id: StreamId) -> Option<StreamId> {
    match id.seq.checked_add(1) {
        Some(seq) => Some(StreamId { ms: id.ms, seq }),
        None => id.ms.checked_add(1).map(|ms| StreamId { ms, seq: 0 }),
    }
}

impl Elements {
    fn none(kind: Kind) -> Elements {
        match kind {
            Kind::List => Elements::List(Vec::new()),
            Kind::Set => Elements::Set(BTreeSet::new()),
            Kind::Zset | Kind::Hash => Elements::Pairs(BTreeMap::new()),
            _ => Elements::Stream(Vec::new()),
        }
    }

    /// Takes the elements of a reply; `None` if it makes no sense.
    fn of(kind: Kind, reply: Reply) -> Option<Elements> {
        let Reply::Array(replies) = reply else { return None };
        let strings = |replies: Vec<Reply>| -> Option<Vec<Vec<u8>>> { replies.into_iter().map(string).collect() };
        Some(match kind {
            Kind::List => Elements::List(strings(replies)?),
            Kind::Set => Elements::Set(strings(replies)?.into_iter().collect()),
            Kind::Zset | Kind::Hash => {
                let strings = strings(replies)?;
                let (pairs, rest) = strings.as_chunks::<2>();
                if !rest.is_empty() {
                    return None;
                }
                Elements::Pairs(pairs.iter().cloned().map(|[name, value]| (name, value)).collect())
            }
            _ => {
                let entry = |reply: Reply| {
                    let Reply::Array(parts) = reply else { return None };
                    let [id, Reply::Array(fields)] = <[Reply; 2]>::try_from(parts).ok()? else { return None };
                    Some((stream_id(&string(id)?)?, strings(fields)?))
                };
                Elements::Stream(replies.into_iter().map(entry).collect::<Option<_>>()?)
            }
        })
    }

    fn with(self, more: Elements) -> Elements {
        match (self, more) {
            (Elements::List(mut all), Elements::List(more)) => {
                all.extend(more);
                Elements::List(all)
            }
            (Elements::Set(mut all), Elements::Set(more)) => {
                all.extend(more);
                Elements::Set(all)
            }
            (Elements::Pairs(mut all), Elements::Pairs(more)) => {
                all.extend(more);
                Elements::Pairs(all)
            }
            (Elements::Stream(mut all), Elements::Stream(more)) => {
                all.extend(more);
                Elements::Stream(all)
            }
            (all, more) => unreachable!("{all:?} and {more:?} are of different types"),
        }
    }

    fn len(&self) -> usize {
        match self {
            Elements::List(all) => all.len(),
            Elements::Set(all) => all.len(),
            Elements::Pairs(all) => all.len(),
            Elements::Stream(all) => all.len(),
        }
    }
}

fn string(reply: Reply) -> Option<Vec<u8>> {
    match reply {
        Reply::Bulk(bytes) => Some(bytes.into_vec()),
        _ => None,
    }
}

fn stream_id(text: &[u8]) -> Option<StreamId> {
    let (ms, seq) = std::str::from_utf8(text).ok()?.split_once('-')?;
    Some(StreamId { ms: ms.parse().ok()?, seq: seq.parse().ok()? })
}

fn key<'n>(name: &'n [u8], found: &Found) -> Key<'n> {
    Key { name, kind: found.kind, deadline_ms: found.deadline_ms, idle_s: None, frequency: None, position: 0 }
}

/// Writes a key with its elements; returns their bytes.
fn put(link: &mut Link, name: &[u8], found: &Found, elements: &Elements, to: &mut Exporting) -> Result<usize, String> {
    let key = key(name, found);
    if let Elements::Stream(entries) = elements {
        let head = head(link, name, entries)?;
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

/// Writes the elements of a list, a set, a sorted set or a hash. False, and nothing was written, where a score is none.
fn put_elements<W: Write>(writer: &mut Writer<File<W>>, key: &Key<'_>, elements: &Elements) -> io::Result<bool> {
    let score = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok().filter(|score| !score.is_nan());
    if let (Kind::Zset, Elements::Pairs(pairs)) = (key.kind, elements)
        && pairs.values().any(|text| score(text).is_none())
    {
        return Ok(false);
    }
    writer.key(key)?;
    writer.length(elements.len() as u64)?;
    match elements {
        Elements::List(all) => all.iter().try_for_each(|element| writer.string(element))?,
        Elements::Set(all) => all.iter().try_for_each(|member| writer.string(member))?,
        Elements::Pairs(pairs) => pairs.iter().try_for_each(|(name, value)| {
            writer.string(name)?;
            match key.kind {
                Kind::Zset => writer.score(score(value).unwrap_or_default()),
                _ => writer.string(value),
            }
        })?,
        Elements::Stream(_) => unreachable!("streams are written by put_stream"),
    }
    Ok(true)
}

fn bytes_of(fields: &[Vec<u8>]) -> usize {
    fields.iter().map(Vec::len).sum()
}

/// Asks for the state of a stream beside its entries. A server that does not know it has the last entry's.
fn head(link: &mut Link, name: &[u8], entries: &[(StreamId, Vec<Vec<u8>>)]) -> Result<StreamHead, String> {
    let [first, last] = [entries.first(), entries.last()].map(|entry| entry.map_or(StreamId::default(), |(id, _)| *id));
    let length = entries.len() as u64;
    let mut head =
        StreamHead { length, last, first, max_deleted: StreamId::default(), entries_added: length, groups: 0 };
    if let Reply::Array(facts) = link.try_asking(&[b"XINFO", b"STREAM", name])? {
        for [fact, value] in facts.as_chunks::<2>().0 {
            let Reply::Bulk(fact) = fact else { continue };
            let id = || if let Reply::Bulk(text) = value { stream_id(text) } else { None };
            match &fact[..] {
                b"last-generated-id" => head.last = id().unwrap_or(last).max(last),
                b"max-deleted-entry-id" => head.max_deleted = id().unwrap_or_default(),
                b"entries-added" => head.entries_added = number_of(value).unwrap_or(length).max(length),
                b"groups" => head.groups = number_of(value).unwrap_or(0),
                _ => {}
            }
        }
    }
    Ok(head)
}

fn put_stream<W: Write>(
    writer: &mut Writer<File<W>>,
    key: &Key<'_>,
    entries: &[(StreamId, Vec<Vec<u8>>)],
    head: &StreamHead,
) -> io::Result<()> {
    writer.key(key)?;
    let mut grouping = Grouping::default();
    let nodes = entries.iter().filter(|(_, fields)| grouping.begins(bytes_of(fields))).count();
    writer.length(nodes as u64)?;
    let (mut grouping, mut node) = (Grouping::default(), Node::default());
    for (id, fields) in entries {
        if grouping.begins(bytes_of(fields)) && !node.is_empty() {
            writer.node(&mut node)?;
        }
        node.push(*id, fields.iter().map(Vec::as_slice));
    }
    if !node.is_empty() {
        writer.node(&mut node)?;
    }
    writer.stream(&StreamHead { groups: 0, ..*head })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_as_elements() {
        let bulks = |words: &[&str]| Reply::Array(words.iter().map(|word| Reply::bulk(word.to_string())).collect());
        let list = Elements::of(Kind::List, bulks(&["b", "a", "b"])).expect("it is one");
        assert_eq!(list, Elements::List(["b", "a", "b"].map(|word| word.as_bytes().to_vec()).to_vec()));
        let set = Elements::of(Kind::Set, bulks(&["b", "a", "b"])).expect("it is one");
        assert_eq!(set.len(), 2, "a scan may show a member twice");
        assert_eq!(Elements::of(Kind::Hash, bulks(&["f", "v", "g"])), None);
        let entry = Reply::Array(vec![Reply::bulk("5-2"), bulks(&["f", "v"])]);
        let stream = Elements::of(Kind::Stream, Reply::Array(vec![entry])).expect("it is one");
        let fields = ["f", "v"].map(|word| word.as_bytes().to_vec()).to_vec();
        assert_eq!(stream, Elements::Stream(vec![(StreamId { ms: 5, seq: 2 }, fields)]));
        assert_eq!(Elements::of(Kind::List, Reply::Integer(1)), None);
    }

    #[test]
    fn the_id_behind_the_last_of_a_millisecond_is_of_the_next() {
        assert_eq!(after(StreamId { ms: 5, seq: 2 }), Some(StreamId { ms: 5, seq: 3 }));
        assert_eq!(after(StreamId { ms: 5, seq: u64::MAX }), Some(StreamId { ms: 6, seq: 0 }));
        assert_eq!(after(StreamId { ms: u64::MAX, seq: u64::MAX }), None);
    }
}
