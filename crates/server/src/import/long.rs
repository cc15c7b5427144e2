//! A value that is too long for one command, on its way into a server: elements are added to a key of another name,
//! which takes the name when it is complete.
//!
//! The other name is random, so no client uses it, and has a deadline while it is in the making, so that a key left by
//! a kill expires. Memory is bounded, but for the pending entries of one consumer group.

use super::Ended;
use super::server::{Link, head_words, text_of};
use haypile_rdb::{Fields, Idempotency, Kind, Part, StreamId};
use haypile_resp::Reply;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// How long an abandoned key in the making stays: the deadline is renewed with each command for elements.
const TEMPORARY_MS: &str = "3600000";

/// Elements, and bytes of elements, that go with one command.
const ELEMENTS: usize = 512;
const BYTES: usize = 512 << 10;

/// Bytes of a string that go with one command.
const STRING_BYTES: usize = 512 << 10;

pub struct Long {
    name: Vec<u8>,
    temporary: Vec<u8>,
    kind: Kind,
    gathered: Gathered,
    /// The name of the last group.
    group: Vec<u8>,
    consumer: Vec<u8>,
    producer: Vec<u8>,
    /// The times at which, and how often, each pending entry of the group was delivered.
    pending: HashMap<StreamId, (u64, u64)>,
    /// The elements so far: bytes of a string, entries of a stream.
    elements: u64,
    may_lapse: bool,
}

/// The end of a long value.
pub enum Outcome {
    /// The value has its name.
    Named,
    /// The name was to be kept, and is taken.
    Kept,
    /// The deadline of the key, or of all fields of a hash, has passed while the value was made.
    Expired,
}

/// Words for one command.
#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Gathered {
    fn push(&mut self, word: &[u8]) {
        self.bytes.extend_from_slice(word);
        self.ends.push(self.bytes.len());
    }

    fn is_full(&self) -> bool {
        self.ends.len() >= ELEMENTS || self.bytes.len() >= BYTES
    }

    fn words(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}

impl Long {
    pub fn new(name: &[u8], kind: Kind) -> Long {
        // Seeds of hash maps are random.
        let random = || RandomState::new().build_hasher().finish();
        Long {
            name: name.to_vec(),
            temporary: format!("haypile:import:{:016x}{:016x}", random(), random()).into_bytes(),
            kind,
            gathered: Gathered::default(),
            group: Vec::new(),
            consumer: Vec::new(),
            producer: Vec::new(),
            pending: HashMap::new(),
            elements: 0,
            may_lapse: false,
        }
    }

    pub fn take(&mut self, link: &mut Link, part: Part<'_>) -> Result<(), Ended> {
        match part {
            // An import holds one element at a time.
            Part::Ahead { .. } => return Ok(()),
            Part::String(bytes) => {
                for piece in bytes.chunks(STRING_BYTES) {
                    self.step(link, &[b"APPEND", &self.temporary, piece])?;
                    self.keep_for_now(link)?;
                }
                self.elements += bytes.len() as u64;
                return Ok(());
            }
            Part::Element(element) => self.gathered.push(element),
            Part::Scored(member, score) => {
                self.gathered.push(score_text(score).as_bytes());
                self.gathered.push(member);
            }
            Part::Field { field, value, deadline_ms } => return self.take_field(link, field, value, deadline_ms),
            Part::Entry { id, fields } => {
                self.elements += 1;
                return self.add_entry(link, id, fields);
            }
            Part::Stream(head) => {
                if head.length == 0 {
                    // XGROUP CREATE is the only way to a stream without entries.
                    let group = b"import";
                    self.step(link, &[b"XGROUP", b"CREATE", &self.temporary, group, b"0", b"MKSTREAM"])?;
                    self.step(link, &[b"XGROUP", b"DESTROY", &self.temporary, group])?;
                }
                let [last, added, deleted] = head_words(&head);
                let words = [b"ENTRIESADDED", added.as_bytes(), b"MAXDELETEDID", deleted.as_bytes()];
                let words: Vec<&[u8]> =
                    [b"XSETID", &self.temporary[..], last.as_bytes()].into_iter().chain(words).collect();
                self.step(link, &words)?;
                // A stream without entries has no deadline yet.
                return self.keep_for_now(link);
            }
            Part::Group(group) => {
                self.group.clear();
                self.group.extend_from_slice(group.name);
                self.pending.clear();
                let (last, read) = (id_text(group.last), group.entries_read.map(|read| read.to_string()));
                let mut words: Vec<&[u8]> = vec![b"XGROUP", b"CREATE", &self.temporary, &self.group, last.as_bytes()];
                if let Some(read) = &read {
                    words.extend([&b"ENTRIESREAD"[..], read.as_bytes()]);
                }
                return self.step(link, &words);
            }
            Part::Pending { id, delivered_ms, deliveries } => {
                self.pending.insert(id, (delivered_ms, deliveries));
                return Ok(());
            }
            Part::Consumer(consumer) => {
                self.consumer.clear();
                self.consumer.extend_from_slice(consumer.name);
                return self.step(link, &[b"XGROUP", b"CREATECONSUMER", &self.temporary, &self.group, &self.consumer]);
            }
            // A pending entry that was deleted is not taken: no consumer could read it any more.
            Part::Owned(id) => return self.claim(link, id),
            Part::Nacked(id) => return self.hand_back(link, id),
            Part::Idempotency(Idempotency { duration_s, ids_max, .. }) => {
                let (duration, most) = (duration_s.to_string(), ids_max.to_string());
                let words = [b"XCFGSET", &self.temporary[..], b"IDMP-DURATION", duration.as_bytes(), b"IDMP-MAXSIZE"];
                let words: Vec<&[u8]> = words.into_iter().chain([most.as_bytes()]).collect();
                return self.step(link, &words);
            }
            Part::Producer { name, .. } => {
                self.producer.clear();
                self.producer.extend_from_slice(name);
                return Ok(());
            }
            // One whose entry is gone is not noted, as in the files of commands that Redis writes.
            Part::Idempotent { name, id } => return self.record(link, name, id),
            Part::IdempotencyCounts { .. } => return Ok(()),
        }
        self.elements += 1;
        if self.gathered.is_full() { self.send_gathered(link) } else { Ok(()) }
    }

    fn take_field(
        &mut self,
        link: &mut Link,
        field: &[u8],
        value: &[u8],
        deadline_ms: Option<u64>,
    ) -> Result<(), Ended> {
        self.gathered.push(field);
        self.gathered.push(value);
        self.elements += 1;
        let Some(deadline) = deadline_ms else {
            return if self.gathered.is_full() { self.send_gathered(link) } else { Ok(()) };
        };
        self.may_lapse = true;
        self.send_gathered(link)?;
        let deadline = deadline.to_string();
        self.step(link, &[b"HPEXPIREAT", &self.temporary, deadline.as_bytes(), b"FIELDS", b"1", field])
    }

    fn add_entry(&mut self, link: &mut Link, id: StreamId, fields: Fields<'_>) -> Result<(), Ended> {
        let id = id_text(id);
        let head = [b"XADD", &self.temporary[..], id.as_bytes()];
        let words: Vec<&[u8]> = head.into_iter().chain(fields.strings()).collect();
        self.step(link, &words)?;
        if self.elements % ELEMENTS as u64 == 1 { self.keep_for_now(link) } else { Ok(()) }
    }

    fn claim(&mut self, link: &mut Link, id: StreamId) -> Result<(), Ended> {
        let (delivered_ms, deliveries) = self.pending.get(&id).copied().unwrap_or_default();
        let (id, delivered, deliveries) = (id_text(id), delivered_ms.to_string(), deliveries.to_string());
        let words = [b"XCLAIM", &self.temporary[..], &self.group, &self.consumer, b"0", id.as_bytes(), b"TIME"];
        let more = [delivered.as_bytes(), b"RETRYCOUNT", deliveries.as_bytes(), b"FORCE", b"JUSTID"];
        let words: Vec<&[u8]> = words.into_iter().chain(more).collect();
        self.step(link, &words)
    }

    fn hand_back(&self, link: &mut Link, id: StreamId) -> Result<(), Ended> {
        let (_, deliveries) = self.pending.get(&id).copied().unwrap_or_default();
        let (id, deliveries) = (id_text(id), deliveries.to_string());
        let words = [b"XNACK", &self.temporary[..], &self.group, b"FAIL", b"IDS", b"1", id.as_bytes(), b"RETRYCOUNT"];
        let words: Vec<&[u8]> = words.into_iter().chain([deliveries.as_bytes(), b"FORCE"]).collect();
        self.step(link, &words)
    }

    fn record(&self, link: &mut Link, name: &[u8], id: StreamId) -> Result<(), Ended> {
        let (name_of_key, id) = (&self.temporary[..], id_text(id));
        let bounds = [id.as_bytes(), id.as_bytes()];
        let words: Vec<&[u8]> = [b"XRANGE", name_of_key].into_iter().chain(bounds).collect();
        if link.call(&words)? == Reply::Array(Vec::new()) {
            return Ok(());
        }
        self.step(link, &[b"XIDMPRECORD", name_of_key, &self.producer, name, id.as_bytes()])
    }

    fn send_gathered(&mut self, link: &mut Link) -> Result<(), Ended> {
        if self.gathered.ends.is_empty() {
            return Ok(());
        }
        let command = match self.kind {
            Kind::List => &b"RPUSH"[..],
            Kind::Set => b"SADD",
            Kind::Zset => b"ZADD",
            Kind::Hash | Kind::TimedHash => b"HSET",
            Kind::String | Kind::Stream | Kind::IdempotentStream | Kind::NackedStream => {
                unreachable!("their parts are not gathered")
            }
        };
        let words: Vec<&[u8]> = [command, &self.temporary].into_iter().chain(self.gathered.words()).collect();
        self.step(link, &words)?;
        self.gathered.bytes.clear();
        self.gathered.ends.clear();
        self.keep_for_now(link)
    }

    fn step(&self, link: &mut Link, words: &[&[u8]]) -> Result<(), Ended> {
        link.step(&self.name, words)
    }

    fn keep_for_now(&self, link: &mut Link) -> Result<(), Ended> {
        self.step(link, &[b"PEXPIRE", &self.temporary, TEMPORARY_MS.as_bytes()])
    }

    /// Gives the value its name and its deadline.
    pub fn finish(
        mut self: Box<Self>,
        link: &mut Link,
        elements: u64,
        deadline_ms: Option<u64>,
        keep: bool,
    ) -> Result<Outcome, Ended> {
        self.send_gathered(link)?;
        let count = match self.kind {
            Kind::String => &b"STRLEN"[..],
            Kind::List => b"LLEN",
            Kind::Set => b"SCARD",
            Kind::Zset => b"ZCARD",
            Kind::Hash | Kind::TimedHash => b"HLEN",
            Kind::Stream | Kind::IdempotentStream | Kind::NackedStream => b"XLEN",
        };
        let reply = link.call(&[count, &self.temporary])?;
        // The count differs for an element that comes twice, or a server that has lost the beginning meanwhile.
        let is_complete = match &reply {
            Reply::Integer(count) if self.may_lapse => (0..=self.elements as i64).contains(count),
            reply => *reply == Reply::Integer(self.elements as i64),
        };
        if !is_complete {
            let _ = self.abandon(link);
            let name = self.name[..self.name.len().min(128)].escape_ascii();
            return Err(Ended::Refused(format!(
                "Key \"{name}\" of {elements} elements is not complete in the server: {reply:?}."
            )));
        }
        let deadline = deadline_ms.map(|deadline| deadline.to_string());
        let lasts: Vec<&[u8]> = match &deadline {
            Some(deadline) => vec![b"PEXPIREAT", &self.temporary, deadline.as_bytes()],
            None => vec![b"PERSIST", &self.temporary],
        };
        let rename = if keep { &b"RENAMENX"[..] } else { b"RENAME" };
        self.step(link, &[b"MULTI"])?;
        self.step(link, &lasts)?;
        self.step(link, &[rename, &self.temporary, &self.name])?;
        let reply = link.call(&[b"EXEC"])?;
        let renamed = match &reply {
            Reply::Array(replies) => replies.get(1),
            _ => None,
        };
        let may_be_gone = deadline.is_some() || self.may_lapse;
        match renamed {
            Some(Reply::Integer(0)) => {
                self.abandon(link)?;
                Ok(Outcome::Kept)
            }
            Some(renamed) if !renamed.is_error() => Ok(Outcome::Named),
            Some(error) if may_be_gone && text_of(error).contains("no such key") => {
                if !keep {
                    // Nothing has the name, as after a RESTORE with REPLACE whose deadline has passed.
                    let removed = link.call(&[b"DEL", &self.name])?;
                    if removed.is_error() {
                        return Err(link.refuses(&self.name, &removed));
                    }
                }
                Ok(Outcome::Expired)
            }
            _ => {
                // The key in the making may have no deadline by now.
                let _ = self.abandon(link);
                Err(link.refuses(&self.name, renamed.unwrap_or(&reply)))
            }
        }
    }

    /// Removes the key in the making.
    pub fn abandon(&self, link: &mut Link) -> Result<(), Ended> {
        link.call(&[b"DEL", &self.temporary]).map(drop)
    }
}

fn id_text(id: StreamId) -> String {
    format!("{}-{}", id.ms, id.seq)
}

/// Returns as many digits as it takes to be the same number again.
fn score_text(score: f64) -> String {
    match score {
        f64::INFINITY => "inf".into(),
        f64::NEG_INFINITY => "-inf".into(),
        score => format!("{score:e}"),
    }
}
