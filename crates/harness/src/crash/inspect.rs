//! Reads one collection, and checks that all replies about it agree: the count in the header with the elements that are
//! read, whole pages with single elements, ranks with scores.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

use super::model::{Entry, Millis};
use super::value::{Bytes, Field, Hash, Id, List, Set, Stream, Value, Zset, ranked};
use crate::client::{Client, Reply};

/// The most elements of one collection that are asked for one by one.
const SINGLES_MAX: usize = 40;

/// Reads the collection of this type; nothing if its deadline passed meanwhile.
pub fn inspect(client: &mut Client, key: &[u8], kind: &[u8]) -> Result<Option<Entry>> {
    let (count, all): (&str, &[&str]) = match kind {
        b"hash" => ("HLEN", &["HGETALL"]),
        b"list" => ("LLEN", &["LRANGE", "0", "-1"]),
        b"set" => ("SCARD", &["SMEMBERS"]),
        b"zset" => ("ZCARD", &["ZRANGE", "0", "-1", "WITHSCORES"]),
        b"stream" => return stream(client, key),
        _ => bail!("TYPE gave {}", String::from_utf8_lossy(kind)),
    };
    let [count, elements, deadline] = {
        client.push(&[count.as_bytes(), key]);
        client.push(&on(key, all));
        client.push(&[b"PEXPIRETIME", key]);
        client.flush()?;
        [client.read()?, client.read()?, client.read()?]
    };
    let deadline = match deadline.integer() {
        Some(-2) => return Ok(None),
        Some(-1) => None,
        Some(at) if at >= 0 => Some(at as Millis),
        _ => bail!("PEXPIRETIME gave {deadline}"),
    };
    let elements = bytes_of(&elements)?;
    let mut asked = Asked { client, key, questions: Vec::new() };
    let value = match kind {
        b"hash" => Value::Hash(hash(&mut asked, &elements)?.into()),
        b"list" => Value::List(list(&mut asked, elements).into()),
        b"set" => Value::Set(set(&mut asked, elements)?.into()),
        _ => Value::Zset(zset(&mut asked, &elements)?.into()),
    };
    let length = match &value {
        Value::Hash(hash) => hash.len(),
        Value::List(list) => list.len(),
        Value::Set(set) => set.len(),
        Value::Zset(zset) => zset.len(),
        Value::Text(_) | Value::Stream(_) => unreachable!("other collections come here"),
    };
    let agreed = count.integer() == Some(length as i64) && length > 0;
    let right = asked.check()?;
    let mut entry = Entry { value, deadline };
    if let Value::Hash(hash) = &mut entry.value {
        let fields = std::sync::Arc::make_mut(hash);
        field_deadlines(client, key, fields)?;
    }
    // The first and the last replies agree only if the key has not gone in between.
    client.push(&[b"EXISTS", key]);
    client.flush()?;
    if deadline.is_some() && client.read()?.integer() == Some(0) {
        return Ok(None);
    } else if deadline.is_none() {
        client.read()?;
    }
    ensure!(agreed, "its count is {count}, and {length} elements are read");
    right.map_err(anyhow::Error::msg)?;
    Ok(Some(entry))
}

/// Reads a stream, which may be empty: entries in both directions, and the fields of XINFO.
fn stream(client: &mut Client, key: &[u8]) -> Result<Option<Entry>> {
    client.push(&[&b"XRANGE"[..], key, b"-", b"+"]);
    client.push(&[&b"XREVRANGE"[..], key, b"+", b"-"]);
    client.push(&[&b"XLEN"[..], key]);
    client.push(&[&b"XINFO"[..], b"STREAM", key]);
    client.push(&[b"PEXPIRETIME", key]);
    client.flush()?;
    let (up, down, count, info) = (client.read()?, client.read()?, client.read()?, client.read()?);
    let deadline = match client.read()?.integer() {
        Some(-2) => return Ok(None),
        Some(-1) => None,
        Some(at) if at >= 0 => Some(at as Millis),
        _ => bail!("PEXPIRETIME gave no time"),
    };
    let mut stream = Stream::default();
    let entries = up.elements().with_context(|| format!("XRANGE gave {up}"))?;
    for entry in entries {
        let [id, fields] = entry.elements().unwrap_or_default() else { bail!("XRANGE gave an entry {entry}") };
        ensure!(stream.entries.insert(id_of(id)?, bytes_of(fields)?).is_none(), "XRANGE gave {id} twice");
    }
    let length = Some(entries.len() as i64);
    ensure!(count.integer() == length, "XLEN is {count}, and {} entries are read", entries.len());
    let from_end = down.elements().unwrap_or_default();
    ensure!(from_end.iter().rev().eq(entries), "XREVRANGE gave {down} where XRANGE gave {up}");
    let facts = info.elements().with_context(|| format!("XINFO gave {info}"))?;
    let fact = |name: &str| {
        let found = facts.chunks_exact(2).find(|pair| pair[0].bytes() == Some(name.as_bytes()));
        found.map(|pair| &pair[1]).with_context(|| format!("XINFO has no {name}"))
    };
    ensure!(fact("length")?.integer() == length, "XINFO's length is {}", fact("length")?);
    let first = stream.entries.keys().next().copied().unwrap_or_default();
    ensure!(id_of(fact("recorded-first-entry-id")?)? == first, "XINFO's first id is not {first:?}");
    stream.last = id_of(fact("last-generated-id")?)?;
    stream.max_deleted = id_of(fact("max-deleted-entry-id")?)?;
    stream.added = fact("entries-added")?.integer().context("entries-added is no number")? as u64;
    Ok(Some(Entry { value: Value::Stream(stream.into()), deadline }))
}

fn id_of(reply: &Reply) -> Result<Id> {
    let text = String::from_utf8_lossy(reply.bytes().unwrap_or_default()).into_owned();
    let (ms, seq) = text.split_once('-').with_context(|| format!("{reply} is no id"))?;
    Ok((ms.parse()?, seq.parse()?))
}

/// Questions about single elements, sent together, and their right answers.
struct Asked<'a> {
    client: &'a mut Client,
    key: &'a [u8],
    questions: Vec<(Vec<Bytes>, Reply)>,
}

impl Asked<'_> {
    fn ask(&mut self, words: &[&str], element: Option<&[u8]>, expected: Reply) {
        let mut command = on(self.key, words);
        command.extend(element.map(<[u8]>::to_vec));
        self.questions.push((command, expected));
    }

    /// Asks all questions. The outer result is the connection's, the inner one the data's.
    fn check(self) -> Result<Result<(), String>> {
        self.questions.iter().for_each(|(command, _)| self.client.push(command));
        self.client.flush()?;
        let mut result = Ok(());
        for (command, expected) in &self.questions {
            let reply = self.client.read()?;
            if reply != *expected && result.is_ok() {
                let command = crate::quoted::quote_short(command);
                result = Err(format!("read whole, it has {expected} where {command} gives {reply}"));
            }
        }
        Ok(result)
    }
}

/// Returns a command with the key behind its name.
fn on(key: &[u8], words: &[&str]) -> Vec<Bytes> {
    let mut command: Vec<Bytes> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    command.insert(1, key.to_vec());
    command
}

fn bytes_of(reply: &Reply) -> Result<Vec<Bytes>> {
    let items = reply.elements().with_context(|| format!("no elements in {reply}"))?;
    items.iter().map(|item| item.bytes().map(<[u8]>::to_vec).context("an element that is no string")).collect()
}

/// Returns the indexes of the elements that are asked for one by one.
fn singles(length: usize) -> impl Iterator<Item = usize> {
    (0..length).step_by(length.div_ceil(SINGLES_MAX).max(1))
}

fn hash(asked: &mut Asked, elements: &[Bytes]) -> Result<Hash> {
    let pairs = elements.chunks_exact(2);
    let hash: Hash = pairs.map(|pair| (pair[0].clone(), Field::from(pair[1].clone()))).collect();
    ensure!(hash.len() * 2 == elements.len(), "HGETALL gave a field twice");
    let names: Vec<&Bytes> = hash.keys().collect();
    for at in singles(names.len()) {
        asked.ask(&["HGET"], Some(names[at]), Reply::bulk(hash[names[at]].value.as_slice()));
    }
    Ok(hash)
}

/// Reads the deadlines of all fields, if the server supports these.
fn field_deadlines(client: &mut Client, key: &[u8], hash: &mut Hash) -> Result<()> {
    let count = hash.len().to_string();
    let mut command = on(key, &["HPEXPIRETIME", "FIELDS", &count]);
    command.extend(hash.keys().cloned());
    let reply = client.call(&command)?;
    if reply.error().is_some_and(|error| error.starts_with("ERR unknown command")) {
        return Ok(());
    }
    let deadlines = reply.elements().filter(|all| all.len() == hash.len());
    let deadlines = deadlines.with_context(|| format!("HPEXPIRETIME gave {reply}"))?;
    for (field, deadline) in hash.values_mut().zip(deadlines) {
        field.deadline = match deadline.integer() {
            Some(at) if at >= 0 => Some(at as Millis),
            // -2 means that the key is gone, which is noticed next.
            Some(-1 | -2) => None,
            _ => bail!("HPEXPIRETIME gave {deadline}"),
        };
    }
    Ok(())
}

fn list(asked: &mut Asked, elements: Vec<Bytes>) -> List {
    for at in singles(elements.len()) {
        let (element, from_end) = (Reply::bulk(elements[at].as_slice()), at as i64 - elements.len() as i64);
        asked.ask(&["LINDEX", &at.to_string()], None, element.clone());
        asked.ask(&["LINDEX", &from_end.to_string()], None, element);
    }
    elements.into()
}

fn set(asked: &mut Asked, elements: Vec<Bytes>) -> Result<Set> {
    let count = elements.len();
    for at in singles(count) {
        asked.ask(&["SISMEMBER"], Some(&elements[at]), Reply::Integer(1));
    }
    let set: Set = elements.into_iter().collect();
    ensure!(set.len() == count, "SMEMBERS gave a member twice");
    Ok(set)
}

fn zset(asked: &mut Asked, elements: &[Bytes]) -> Result<Zset> {
    let mut zset: Zset = BTreeMap::new();
    for pair in elements.chunks_exact(2) {
        let score = String::from_utf8_lossy(&pair[1]).parse().context("a score that no writer gave")?;
        zset.insert(pair[0].clone(), score);
    }
    ensure!(zset.len() * 2 == elements.len(), "ZRANGE gave a member twice");
    let ranked = ranked(&zset);
    for (rank, (member, score)) in ranked.iter().enumerate() {
        ensure!(elements[2 * rank] == **member, "ZRANGE does not go by scores: {rank}");
        asked.ask(&["ZRANK"], Some(member), Reply::Integer(rank as i64));
        asked.ask(&["ZSCORE"], Some(member), Reply::Bulk(score.to_string().into_bytes()));
    }
    for rank in singles(ranked.len()) {
        let at = rank.to_string();
        asked.ask(&["ZRANGE", &at, &at], None, Reply::Array(vec![Reply::bulk(ranked[rank].0.as_slice())]));
    }
    asked.ask(&["ZCOUNT", "-inf", "+inf"], None, Reply::Integer(ranked.len() as i64));
    let by_score = ranked.iter().map(|(member, _)| Reply::bulk(member.as_slice())).collect();
    asked.ask(&["ZRANGEBYSCORE", "-inf", "+inf"], None, Reply::Array(by_score));
    Ok(zset)
}
