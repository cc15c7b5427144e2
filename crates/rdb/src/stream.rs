//! Streams as they lie in a file: listpacks of entries, each under the ID that its entries' are counted from; then the
//! state of the stream, and its consumer groups.
//!
//! `listpacks | (ID: 16 bytes | listpack) ... | length | last ms | last seq | first ms, seq, max deleted ms, seq,
//! entries added, since 7.0 | groups | group ... | producers, since 8.6`; a group: `name | last ms | last seq |
//! entries read, since 7.0 | pending | (ID | delivered: u64 LE | deliveries) ... | consumers | consumer ... | handed
//! back | ID ..., since 8.8`; a consumer: `name | seen: u64 LE | active: u64 LE, since 7.2 | pending | ID ...`. The
//! producers: `seconds | IDs of each | number | (name | number | (idempotent ID | ms | seq) ...) ... | added |
//! duplicates`.
//!
//! A listpack: `entries | deleted ones | fields | field ... | 0`, then for each entry `flags | ms - that of the node |
//! seq - that of the node | fields and values | elements of the entry`; with the flag for it, the fields are those of
//! the node.

use crate::encoded;
use crate::error::{Damage, Failure, Stop};
use crate::event::{Consumer, Fields, Group, Idempotency, Part, StreamHead, StreamId};
use crate::form::Form;
use crate::item::{Item, Items};
use crate::listpack::{Listpack, LongListpack};
use crate::source::Source;
use crate::text::{WHOLE_BYTES_MAX, Window};

/// Flags of an entry.
pub(crate) const DELETED: i64 = 1;
pub(crate) const SAME_FIELDS: i64 = 2;

/// Bytes of the string that says from which ID on a node's entries are counted.
const NODE_ID_BYTES: u64 = StreamId::BYTES as u64;

/// Buffers that are kept from entry to entry.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The fields of a node.
    names: Strings,
    /// Fields and values of an entry.
    entry: Strings,
}

#[derive(Debug, Default)]
struct Strings {
    text: Vec<u8>,
    ends: Vec<usize>,
    /// Bytes that were announced for the text.
    announced: usize,
}

impl Strings {
    fn clear(&mut self) {
        encoded::trim(&mut self.text);
        self.text.clear();
        self.ends.clear();
        self.announced = 0;
    }

    /// Announces that so many bytes are about to be added, where the text becomes long, with those that are held
    /// `beside` it.
    fn announce<E>(
        &mut self,
        more: usize,
        beside: usize,
        each: &mut impl FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = self.text.len().saturating_add(more);
        if bytes > self.announced.saturating_add(WHOLE_BYTES_MAX as usize) {
            self.announced = bytes;
            each(Part::Ahead { bytes: bytes.saturating_add(beside) as u64 })?;
        }
        Ok(())
    }

    /// Adds the next item of a listpack.
    fn take<E>(
        &mut self,
        items: &mut impl Items,
        beside: usize,
        each: &mut impl FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<(), Stop<E>> {
        // An item that is not there yet is held twice for a moment.
        let more = items.ahead()?.saturating_mul(2);
        self.announce(more, beside, each).map_err(Stop::Sink)?;
        self.push(items.other()?);
        Ok(())
    }

    fn push(&mut self, item: Item<'_>) {
        self.push_bytes(item.bytes(&mut itoa::Buffer::new()));
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
        self.ends.push(self.text.len());
    }

    fn fields(&self) -> Fields<'_> {
        Fields { text: &self.text, ends: &self.ends }
    }
}

/// Reads the entries of a node that are not deleted, in order. IDs ascend from `last` on.
fn node<E>(
    id: StreamId,
    mut listpack: impl Items,
    last: &mut Option<StreamId>,
    scratch: &mut Scratch,
    mut each: impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<u64, Stop<E>> {
    let Scratch { names, entry } = scratch;
    let live = count(listpack.number()?)?;
    let deleted = count(listpack.number()?)?;
    let fields = count(listpack.number()?)?;
    names.clear();
    for _ in 0..fields {
        names.take(&mut listpack, 0, &mut each)?;
    }
    if listpack.number()? != 0 {
        return Err("the fields of a stream's node do not end as such".into());
    }
    let mut seen = [0u64; 2];
    while let Some(flags) = listpack.next()? {
        let flags = flags.number().filter(|flags| flags & !(DELETED | SAME_FIELDS) == 0);
        let flags = flags.ok_or("an entry of a stream has unknown flags")?;
        let (ms, seq) = (listpack.number()?, listpack.number()?);
        // Both may wrap around: a number below the node's is written as a negative difference.
        let id = StreamId { ms: id.ms.wrapping_add(ms as u64), seq: id.seq.wrapping_add(seq as u64) };
        entry.clear();
        let elements = if flags & SAME_FIELDS != 0 {
            for name in names.fields().strings() {
                entry.announce(name.len(), names.text.len(), &mut each).map_err(Stop::Sink)?;
                entry.push_bytes(name);
                entry.take(&mut listpack, names.text.len(), &mut each)?;
            }
            3 + fields
        } else {
            let pairs = count(listpack.number()?)?;
            for _ in 0..pairs {
                entry.take(&mut listpack, names.text.len(), &mut each)?;
                entry.take(&mut listpack, names.text.len(), &mut each)?;
            }
            4 + 2 * pairs
        };
        if listpack.number()? != elements as i64 {
            return Err("an entry of a stream has not as many elements as it says".into());
        }
        if entry.ends.is_empty() {
            return Err("an entry of a stream has no fields".into());
        }
        let is_deleted = flags & DELETED != 0;
        seen[usize::from(is_deleted)] += 1;
        if is_deleted {
            continue;
        }
        if last.is_some_and(|last| last >= id) || id == StreamId::default() {
            return Err("the entries of a stream are not in order".into());
        }
        *last = Some(id);
        each(Part::Entry { id, fields: entry.fields() }).map_err(Stop::Sink)?;
    }
    if seen != [live, deleted] {
        return Err("a stream's node has not as many entries as it says".into());
    }
    Ok(live)
}

/// Checks a count in a listpack: no more than the elements of one.
fn count(number: i64) -> Result<u64, Damage> {
    u32::try_from(number).map(u64::from).map_err(|_| "a number in a stream's node is no count")
}

fn id(source: &mut impl Source) -> Result<StreamId, crate::Error> {
    Ok(StreamId { ms: encoded::length(source)?, seq: encoded::length(source)? })
}

fn raw_id(source: &mut impl Source) -> Result<StreamId, crate::Error> {
    Ok(StreamId::parse(source.take(StreamId::BYTES)?).expect("as many bytes as were asked for"))
}

/// Reads a stream; see `Reader::value`.
#[allow(clippy::too_many_arguments, reason = "the reader's buffers, handed on as they are")]
pub(crate) fn read<S: Source, E>(
    source: &mut S,
    form: Form,
    whole_bytes: u64,
    text: &mut Vec<u8>,
    compressed: &mut Vec<u8>,
    scratch: &mut Scratch,
    each: &mut impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<u64, Failure<E>> {
    let nodes = encoded::length(source)?;
    let (mut last, mut first, mut entries) = (None, None, 0);
    for _ in 0..nodes {
        // A long string is none, and is not read.
        let is_long = encoded::begin(source, whole_bytes.max(NODE_ID_BYTES), text, compressed)?.is_some();
        let node_id = StreamId::parse(text).filter(|_| !is_long);
        let node_id = node_id.ok_or_else(|| source.corrupt("a stream's node has no ID"))?;
        let each = |part: Part<'_>| {
            if let (None, Part::Entry { id, .. }) = (first, part) {
                first = Some(id);
            }
            each(part)
        };
        let read = match encoded::begin(source, whole_bytes, text, compressed)? {
            None => {
                Listpack::new(text).map_err(Stop::from).and_then(|items| node(node_id, items, &mut last, scratch, each))
            }
            Some(long) => LongListpack::new(Window::new(long.of(source)))
                .map_err(Stop::from)
                .and_then(|items| node(node_id, items, &mut last, scratch, each)),
        };
        entries += read.map_err(|stop| stop.at(source))?;
    }
    let length = encoded::length(source)?;
    if length != entries {
        return Err(source.corrupt("a stream has not as many entries as it says").into());
    }
    let mut head = StreamHead { length, last: id(source)?, first: first.unwrap_or_default(), ..StreamHead::default() };
    head.entries_added = length;
    if last.is_some_and(|last| last > head.last) {
        return Err(source.corrupt("a stream's last ID is before that of an entry").into());
    }
    if form != Form::Stream1 {
        // The first ID, which the entries have shown.
        id(source)?;
        head.max_deleted = id(source)?;
        head.entries_added = encoded::length(source)?;
        if head.max_deleted > head.last {
            return Err(source.corrupt("a stream's last ID is before one that was deleted").into());
        }
    }
    head.groups = encoded::length(source)?;
    each(Part::Stream(head)).map_err(Failure::Sink)?;
    for _ in 0..head.groups {
        group(source, form, whole_bytes, text, compressed, each)?;
    }
    if form.has_producers() {
        producers(source, whole_bytes, text, compressed, each)?;
    }
    // The head counts as one, so that an empty stream has an element.
    Ok(entries + 1)
}

fn group<S: Source, E>(
    source: &mut S,
    form: Form,
    whole_bytes: u64,
    text: &mut Vec<u8>,
    compressed: &mut Vec<u8>,
    each: &mut impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<(), Failure<E>> {
    encoded::announced(source, whole_bytes, text, compressed, 0, each)?;
    let last = id(source)?;
    // The number is kept unsigned, -1 too.
    let entries_read = if form == Form::Stream1 { None } else { Some(encoded::length(source)? as i64) };
    let pending = encoded::length(source)?;
    each(Part::Group(Group { name: text, last, entries_read, pending })).map_err(Failure::Sink)?;
    let mut before = None;
    for _ in 0..pending {
        let id = ascending(source, &mut before)?;
        let delivered_ms = u64::from_le_bytes(source.array()?);
        let deliveries = encoded::length(source)?;
        each(Part::Pending { id, delivered_ms, deliveries }).map_err(Failure::Sink)?;
    }
    let (consumers, mut owned) = (encoded::length(source)?, 0);
    for _ in 0..consumers {
        encoded::announced(source, whole_bytes, text, compressed, 0, each)?;
        let seen_ms = u64::from_le_bytes(source.array()?);
        let has_active = !matches!(form, Form::Stream1 | Form::Stream2);
        let active_ms = if has_active { i64::from_le_bytes(source.array()?) } else { seen_ms as i64 };
        let mine = encoded::length(source)?;
        let consumer = Consumer { name: text, seen_ms, active_ms, pending: mine };
        each(Part::Consumer(consumer)).map_err(Failure::Sink)?;
        let mut before = None;
        for _ in 0..mine {
            let id = ascending(source, &mut before)?;
            each(Part::Owned(id)).map_err(Failure::Sink)?;
            owned += 1;
        }
    }
    if form == Form::Stream5 {
        let nacked = encoded::length(source)?;
        for _ in 0..nacked {
            let id = raw_id(source)?;
            each(Part::Nacked(id)).map_err(Failure::Sink)?;
            owned += 1;
        }
    }
    if owned != pending {
        return Err(source.corrupt("a pending entry of a stream's group has no consumer, or several").into());
    }
    Ok(())
}

/// The bounds of Redis for what a stream keeps of its producers.
const DURATION_S_MAX: u64 = 86_400;
const IDS_MAX: u64 = 10_000;

fn producers<S: Source, E>(
    source: &mut S,
    whole_bytes: u64,
    text: &mut Vec<u8>,
    compressed: &mut Vec<u8>,
    each: &mut impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<(), Failure<E>> {
    let (duration_s, ids_max) = (encoded::length(source)?, encoded::length(source)?);
    if !(1..=DURATION_S_MAX).contains(&duration_s) || !(1..=IDS_MAX).contains(&ids_max) {
        return Err(source.corrupt("the bounds of a stream's producers are out of range").into());
    }
    let producers = encoded::length(source)?;
    each(Part::Idempotency(Idempotency { duration_s, ids_max, producers })).map_err(Failure::Sink)?;
    for _ in 0..producers {
        encoded::announced(source, whole_bytes, text, compressed, 0, each)?;
        let ids = encoded::length(source)?;
        each(Part::Producer { name: text, ids }).map_err(Failure::Sink)?;
        for _ in 0..ids {
            encoded::announced(source, whole_bytes, text, compressed, 0, each)?;
            let id = id(source)?;
            each(Part::Idempotent { name: text, id }).map_err(Failure::Sink)?;
        }
    }
    let (added, duplicates) = (encoded::length(source)?, encoded::length(source)?);
    each(Part::IdempotencyCounts { added, duplicates }).map_err(Failure::Sink)
}

/// Reads an ID of a list of pending ones: Redis keeps and writes them in order.
fn ascending(source: &mut impl Source, before: &mut Option<StreamId>) -> Result<StreamId, crate::Error> {
    let id = raw_id(source)?;
    if before.is_some_and(|before| before >= id) {
        return Err(source.corrupt("the pending entries of a stream are not in order"));
    }
    *before = Some(id);
    Ok(id)
}
