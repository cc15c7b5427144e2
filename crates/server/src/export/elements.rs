//! The elements of a value as a server's replies have them, and as they go into a file.
//!
//! Replies are checked, not trusted: a file that is written of them can be loaded.

use super::replies::number_of;
use haypile_rdb::nodes::{Grouping, Node};
use haypile_rdb::{File, Key, Kind, StreamHead, StreamId, Writer};
use haypile_resp::Reply;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// The elements of a value: those of a list in order, members, members with scores, fields with values.
#[derive(Debug, PartialEq)]
pub enum Elements {
    List(Vec<Vec<u8>>),
    Set(BTreeSet<Vec<u8>>),
    Pairs(BTreeMap<Vec<u8>, Vec<u8>>),
    Stream(Vec<(StreamId, Vec<Vec<u8>>)>),
}

impl Elements {
    /// Returns no elements of a type.
    pub fn none(kind: Kind) -> Elements {
        match kind {
            Kind::List => Elements::List(Vec::new()),
            Kind::Set => Elements::Set(BTreeSet::new()),
            Kind::Zset | Kind::Hash => Elements::Pairs(BTreeMap::new()),
            _ => Elements::Stream(Vec::new()),
        }
    }

    /// Takes the elements of a reply; `None` if it makes no sense.
    pub fn of(kind: Kind, reply: Reply) -> Option<Elements> {
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
                    let fields = strings(fields)?;
                    let has_pairs = !fields.is_empty() && fields.len().is_multiple_of(2);
                    has_pairs.then_some((stream_id(&string(id)?)?, fields))
                };
                let entries = replies.into_iter().map(entry).collect::<Option<Vec<_>>>()?;
                if !entries.is_sorted_by(|(before, _), (id, _)| before < id) {
                    return None;
                }
                Elements::Stream(entries)
            }
        })
    }

    /// Adds the elements of another page.
    pub fn with(self, more: Elements) -> Elements {
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

    pub fn len(&self) -> usize {
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

/// Returns the id behind another one.
pub fn after(id: StreamId) -> Option<StreamId> {
    match id.seq.checked_add(1) {
        Some(seq) => Some(StreamId { ms: id.ms, seq }),
        None => id.ms.checked_add(1).map(|ms| StreamId { ms, seq: 0 }),
    }
}

/// Writes the elements of a list, a set, a sorted set or a hash. False, and nothing was written, where a score is none.
pub fn put_elements<W: Write>(writer: &mut Writer<File<W>>, key: &Key<'_>, elements: &Elements) -> io::Result<bool> {
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

pub fn bytes_of(fields: &[Vec<u8>]) -> usize {
    fields.iter().map(Vec::len).sum()
}

/// Returns the state of a stream beside its entries, as far as XINFO tells it: a server that does not know it has the
/// last entry's.
pub fn head_of(entries: &[(StreamId, Vec<Vec<u8>>)], info: &Reply) -> StreamHead {
    let [first, last] = [entries.first(), entries.last()].map(|entry| entry.map_or(StreamId::default(), |(id, _)| *id));
    let length = entries.len() as u64;
    let mut head =
        StreamHead { length, last, first, max_deleted: StreamId::default(), entries_added: length, groups: 0 };
    if let Reply::Array(facts) = info {
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
    head
}

/// Writes a stream without its groups.
pub fn put_stream<W: Write>(
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
    fn entries_that_no_stream_has_make_no_sense() {
        let entry = |id: &str, fields: &[&str]| {
            let fields = Reply::array(fields.iter().map(|field| Reply::bulk(field.to_string())));
            Reply::array([Reply::bulk(id.to_owned()), fields])
        };
        let stream = |entries: Vec<Reply>| Elements::of(Kind::Stream, Reply::Array(entries));
        assert!(stream(vec![entry("5-2", &["f", "v"]), entry("5-3", &["f", "v"])]).is_some());
        assert_eq!(stream(vec![entry("5-2", &["f", "v", "g"])]), None, "a field without a value");
        assert_eq!(stream(vec![entry("5-2", &[])]), None, "no field");
        assert_eq!(stream(vec![entry("5-2", &["f", "v"]), entry("5-2", &["f", "v"])]), None, "an ID twice");
        assert_eq!(stream(vec![entry("5-2", &["f", "v"]), entry("4-9", &["f", "v"])]), None, "they go back");
    }

    #[test]
    fn the_id_behind_the_last_of_a_millisecond_is_of_the_next() {
        assert_eq!(after(StreamId { ms: 5, seq: 2 }), Some(StreamId { ms: 5, seq: 3 }));
        assert_eq!(after(StreamId { ms: 5, seq: u64::MAX }), Some(StreamId { ms: 6, seq: 0 }));
        assert_eq!(after(StreamId { ms: u64::MAX, seq: u64::MAX }), None);
    }
}
