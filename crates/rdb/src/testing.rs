//! Properties that the fuzz targets and the seeded tests check on arbitrary bytes, and values that own their parts, for
//! tests here and in the crates above. No reader may panic, hang or allocate by a claimed length; a value that was read
//! is written, and is the same when it is read again.

use crate::error::Failure;
use crate::event::{Consumer, Event, Group, Idempotency, Kind, Part, Sink, StreamHead, StreamId};
use crate::form::Form;
use crate::listpack::{Builder, Listpack};
use crate::lzf::{self, Compressor};
use crate::nodes::{Grouping, Node};
use crate::source::{Slice, TAKE_MAX};
use crate::ziplist::Ziplist;
use crate::{Memory, Payload, Writer, intset, read_file, zipmap};
use std::io;

/// A part of a value that owns its bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    String(Vec<u8>),
    Element(Vec<u8>),
    Scored(Vec<u8>, f64),
    Field(Vec<u8>, Vec<u8>, Option<u64>),
    Entry(StreamId, Vec<Vec<u8>>),
    Stream(StreamHead),
    Group(Vec<u8>, StreamId, Option<i64>, u64),
    Pending(StreamId, u64, u64),
    /// A consumer, without the time of activity, which is not written.
    Consumer(Vec<u8>, u64, u64),
    Owned(StreamId),
    Nacked(StreamId),
    Idempotency(Idempotency),
    Producer(Vec<u8>, u64),
    Idempotent(Vec<u8>, StreamId),
    IdempotencyCounts(u64, u64),
}

impl Piece {
    /// Returns what a part brings; an announcement brings nothing.
    pub fn of(part: Part<'_>) -> Option<Piece> {
        Some(match part {
            Part::Ahead { .. } => return None,
            Part::String(bytes) => Piece::String(bytes.to_vec()),
            Part::Element(bytes) => Piece::Element(bytes.to_vec()),
            Part::Scored(member, score) => Piece::Scored(member.to_vec(), score),
            Part::Field { field, value, deadline_ms } => Piece::Field(field.to_vec(), value.to_vec(), deadline_ms),
            Part::Entry { id, fields } => Piece::Entry(id, fields.strings().map(<[u8]>::to_vec).collect()),
            Part::Stream(head) => Piece::Stream(head),
            Part::Group(Group { name, last, entries_read, pending }) => {
                Piece::Group(name.to_vec(), last, entries_read, pending)
            }
            Part::Pending { id, delivered_ms, deliveries } => Piece::Pending(id, delivered_ms, deliveries),
            Part::Consumer(Consumer { name, seen_ms, pending, .. }) => Piece::Consumer(name.to_vec(), seen_ms, pending),
            Part::Owned(id) => Piece::Owned(id),
            Part::Nacked(id) => Piece::Nacked(id),
            Part::Idempotency(of) => Piece::Idempotency(of),
            Part::Producer { name, ids } => Piece::Producer(name.to_vec(), ids),
            Part::Idempotent { name, id } => Piece::Idempotent(name.to_vec(), id),
            Part::IdempotencyCounts { added, duplicates } => Piece::IdempotencyCounts(added, duplicates),
        })
    }
}

/// Returns the pieces of a value, and its type.
pub fn pieces(payload: &Payload<'_>) -> Result<(Kind, Vec<Piece>), Failure<()>> {
    let (kind, mut pieces) = (payload.kind()?, Vec::new());
    payload.read(|part| {
        pieces.extend(Piece::of(part));
        Ok(())
    })?;
    Ok((kind, pieces))
}

/// Returns the pieces of a value whose strings are read piece by piece where they are longer than `whole_bytes`, and
/// put together again.
fn pieces_in_pieces(payload: &Payload<'_>, whole_bytes: u64) -> Result<Vec<Piece>, Failure<()>> {
    let mut pieces = Vec::new();
    payload.read_in_pieces(whole_bytes, |part| {
        match (pieces.last_mut(), part) {
            (Some(Piece::String(text)), Part::String(more)) => text.extend_from_slice(more),
            _ => pieces.extend(Piece::of(part)),
        }
        Ok(())
    })?;
    Ok(pieces)
}

/// Returns the payload of a value; memory as long as it needs.
pub fn payload(kind: Kind, pieces: &[Piece]) -> Vec<u8> {
    write(kind, pieces).expect("memory does not fail").seal()
}

/// Makes a payload of any bytes.
pub fn sealed(body: &[u8]) -> Vec<u8> {
    crate::payload::seal(body.to_vec(), crate::VERSION)
}

/// Writes the number of elements, or of nodes, behind the type.
fn begin(writer: &mut Writer<Memory>, kind: Kind, pieces: &[Piece]) -> io::Result<()> {
    writer.kind(kind)?;
    match kind {
        Kind::String => {}
        Kind::Stream | Kind::IdempotentStream | Kind::NackedStream => {
            let mut grouping = Grouping::default();
            writer.length(
                pieces.iter().filter(|piece| grouping.begins(entry_bytes(piece)) && is_entry(piece)).count() as u64,
            )?;
        }
        _ => {
            if kind == Kind::TimedHash {
                writer.first_deadline(first_deadline(pieces))?;
            }
            writer.length(pieces.len() as u64)?;
        }
    }
    Ok(())
}

fn write(kind: Kind, pieces: &[Piece]) -> io::Result<Writer<Memory>> {
    let mut writer = Writer::new(Memory::new(usize::MAX));
    begin(&mut writer, kind, pieces)?;
    let (mut node, mut grouping) = (Node::default(), Grouping::default());
    let mut consumers = 0;
    // Entries of the last group that have no consumer, until their number is written.
    let mut nacked: Option<u64> = None;
    for (n, piece) in pieces.iter().enumerate() {
        if matches!(piece, Piece::Group(..) | Piece::Nacked(_) | Piece::Idempotency(_))
            && let Some(nacked) = nacked.take()
        {
            writer.length(nacked)?;
        }
        match piece {
            Piece::String(bytes) | Piece::Element(bytes) => writer.string(bytes)?,
            Piece::Scored(member, score) => {
                writer.string(member)?;
                writer.score(*score)?;
            }
            Piece::Field(field, value, deadline_ms) => {
                if kind == Kind::TimedHash {
                    writer.field_deadline(*deadline_ms)?;
                }
                writer.string(field)?;
                writer.string(value)?;
            }
            Piece::Entry(id, strings) => {
                if grouping.begins(entry_bytes(piece)) && !node.is_empty() {
                    writer.node(&mut node)?;
                }
                node.push(*id, strings.iter().map(Vec::as_slice));
            }
            Piece::Stream(head) => {
                if !node.is_empty() {
                    writer.node(&mut node)?;
                }
                writer.stream(head)?;
            }
            Piece::Group(name, last, entries_read, pending) => {
                let (last, pending) = (*last, *pending);
                writer.group(&Group { name, last, entries_read: *entries_read, pending })?;
                let rest = &pieces[n + 1..];
                let until = rest.iter().position(|piece| matches!(piece, Piece::Group(..))).unwrap_or(rest.len());
                consumers = rest[..until].iter().filter(|piece| matches!(piece, Piece::Consumer(..))).count();
                if kind == Kind::NackedStream {
                    nacked =
                        Some(rest[..until].iter().filter(|piece| matches!(piece, Piece::Nacked(_))).count() as u64);
                }
                if pending == 0 {
                    writer.length(consumers as u64)?;
                }
            }
            Piece::Pending(id, delivered_ms, deliveries) => {
                writer.pending(*id, *delivered_ms, *deliveries)?;
                if !matches!(pieces.get(n + 1), Some(Piece::Pending(..))) {
                    writer.length(consumers as u64)?;
                }
            }
            Piece::Consumer(name, seen_ms, pending) => {
                writer.consumer(&Consumer { name, seen_ms: *seen_ms, active_ms: 0, pending: *pending })?;
            }
            Piece::Owned(id) | Piece::Nacked(id) => writer.owned(*id)?,
            Piece::Idempotency(of) => writer.idempotency(of)?,
            Piece::Producer(name, ids) => writer.producer(name, *ids)?,
            Piece::Idempotent(name, id) => writer.idempotent(name, *id)?,
            Piece::IdempotencyCounts(added, duplicates) => writer.idempotency_counts(*added, *duplicates)?,
        }
    }
    Ok(writer)
}

fn is_entry(piece: &Piece) -> bool {
    matches!(piece, Piece::Entry(..))
}

/// Returns the bytes of an entry as the sizes of a node's entries are counted here.
fn entry_bytes(piece: &Piece) -> usize {
    match piece {
        Piece::Entry(_, strings) => strings.iter().map(Vec::len).sum(),
        _ => 0,
    }
}

fn first_deadline(pieces: &[Piece]) -> u64 {
    let deadlines = pieces.iter().filter_map(|piece| match piece {
        Piece::Field(_, _, deadline_ms) => *deadline_ms,
        _ => None,
    });
    deadlines.min().unwrap_or(0)
}

/// Reads `data` as the body of a payload, whole and piece by piece, with equal results. A value that can be read is
/// written and read again.
pub fn check_payload(data: &[u8]) {
    let payload = Payload::unchecked(data);
    let read = pieces(&payload);
    for whole_bytes in [0, 9] {
        match (&read, pieces_in_pieces(&payload, whole_bytes)) {
            (Ok((Kind::String, pieces)), Ok(again)) => assert!(*pieces == again || again.is_empty()),
            (Ok((_, pieces)), Ok(again)) => assert_eq!(*pieces, again),
            (Err(_), Err(_)) => {}
            (read, again) => panic!("whole: {read:?}, in pieces: {again:?}"),
        }
    }
    let Ok((kind, pieces)) = read else { return };
    let sealed = self::payload(kind, &pieces);
    let again = Payload::check(&sealed).expect("what was sealed has the right checksum");
    let (kind_again, mut pieces_again) = self::pieces(&again).expect("what was written can be read");
    assert_eq!(kind, kind_again);
    // A count that was not told is not known afterwards.
    for (before, after) in pieces.iter().zip(&mut pieces_again) {
        if let (Piece::Group(_, _, read @ None, _), Piece::Group(_, _, after, _)) = (before, after) {
            assert_eq!(after.take(), Some(-1));
            *after = *read;
        }
    }
    assert!(pieces.len() == pieces_again.len());
    for (before, after) in pieces.iter().zip(&pieces_again) {
        // A NaN would not equal itself: no part is one.
        assert_eq!(before, after);
    }
}

/// Reads `data` as a stream's payload, in each of its forms.
pub fn check_stream(data: &[u8]) {
    for form in [Form::Stream1, Form::Stream2, Form::Stream3, Form::Stream4, Form::Stream5] {
        check_payload(&[&[form as u8], data].concat());
    }
}

/// Reads `data` as a file: whole, and as the rest of one behind a file's head.
pub fn check_file(data: &[u8]) {
    struct Nothing(u64);
    impl Sink for Nothing {
        type Error = ();

        fn take(&mut self, event: Event<'_>) -> Result<(), ()> {
            if let Event::Key(key) = event {
                assert!(key.position >= self.0);
                self.0 = key.position;
            }
            Ok(())
        }
    }
    for head in [&b""[..], b"REDIS0004", b"REDIS0012"] {
        if let Ok(summary) = read_file(io::Read::chain(head, data), &mut Nothing(0)) {
            assert!(summary.bytes <= (head.len() + data.len()) as u64);
        }
    }
}

/// Reads `data` as packed elements of these forms.
fn check_packed(forms: &[Form], data: &[u8]) {
    for form in forms {
        let length = (data.len() as u32).to_be_bytes();
        check_payload(&[&[*form as u8, 0x80], &length[..], data].concat());
    }
}

/// Decompresses in pieces of `piece` bytes.
fn inflate(compressed: &[u8], length: u64, piece: usize) -> Option<Vec<u8>> {
    let mut inflate = lzf::Inflate::new(compressed.len() as u64, length).ok()?;
    let (mut source, mut out) = (Slice::new(compressed), Vec::new());
    while (out.len() as u64) < length {
        let count = piece.min(length as usize - out.len());
        out.extend_from_slice(inflate.take(&mut source, count).ok()?);
    }
    Some(out)
}

/// Reads `data` as compressed bytes, at once and in pieces, with equal results, and compresses it.
pub fn check_lzf(data: &[u8]) {
    let (mut compressed, mut back) = (Vec::new(), Vec::new());
    if let Some((length, bytes)) = data.split_first_chunk::<2>() {
        let length = u64::from(u16::from_le_bytes(*length));
        let is_sound = lzf::decompress(bytes, length, &mut back).is_ok();
        assert!(!is_sound || back.len() as u64 == length);
        for piece in [1, 7, TAKE_MAX].into_iter().filter(|_| length > 0) {
            assert_eq!(inflate(bytes, length, piece), is_sound.then(|| back.clone()));
        }
    }
    let mut compressor = Compressor::default();
    for _ in 0..2 {
        assert!(compressor.compress(data, usize::MAX, &mut compressed));
        assert!(compressed.len() <= data.len() + data.len().div_ceil(32));
        lzf::decompress(&compressed, data.len() as u64, &mut back).expect("what was compressed comes back");
        assert!(back == data);
        assert_eq!(inflate(&compressed, data.len() as u64, 1000).as_deref(), Some(data));
    }
}

/// Reads `data` as a listpack, and as elements that a listpack is made of.
pub fn check_listpack(data: &[u8]) {
    let read = |bytes: &[u8]| {
        let (mut listpack, mut strings) = (Listpack::new(bytes).ok()?, Vec::new());
        while let Some(item) = listpack.next().ok()? {
            strings.push(item.bytes(&mut itoa::Buffer::new()).to_vec());
        }
        Some(strings)
    };
    let mut builder = Builder::default();
    let mut check = |strings: &[Vec<u8>]| {
        strings.iter().for_each(|string| builder.string(string));
        assert_eq!(read(&builder.take()).as_deref(), Some(strings));
    };
    let mut framed = framed(data, 6, &[0xff, 0xff]);
    for bytes in [data, {
        framed.push(0xff);
        let total = (framed.len() as u32).to_le_bytes();
        framed[..4].copy_from_slice(&total);
        &framed
    }] {
        if let Some(strings) = read(bytes) {
            check(&strings);
        }
    }
    check(&data.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>());
    for bytes in [data, &framed] {
        check_packed(&[Form::SetListpack, Form::ZsetListpack, Form::HashListpack, Form::TimedHashListpackEarly], bytes);
    }
}

/// Reads `data` as a ziplist, a zipmap and an intset.
pub fn check_ziplist(data: &[u8]) {
    let read = |bytes: &[u8]| {
        let (mut ziplist, mut total) = (Ziplist::new(bytes)?, 0);
        while let Some(item) = ziplist.next()? {
            total += item.bytes(&mut itoa::Buffer::new()).len();
        }
        Ok::<_, crate::error::Damage>(total)
    };
    let _ = read(data);
    // Any elements, of any count, with the last one where the first bytes say.
    let (last, rest) = data.split_at(data.len().min(2));
    let mut framed = framed(rest, 10, &[0xff, 0xff]);
    framed.push(0xff);
    let total = (framed.len() as u32).to_le_bytes();
    framed[..4].copy_from_slice(&total);
    framed[4..4 + last.len()].copy_from_slice(last);
    if let Ok(total) = read(&framed) {
        // A digit takes half a bit less than a nibble, and no number has more than twenty.
        assert!(total <= framed.len() * 20);
    }
    for bytes in [data, &framed] {
        check_packed(
            &[Form::ListZiplist, Form::ZsetZiplist, Form::HashZiplist, Form::HashZipmap, Form::SetIntset],
            bytes,
        );
    }
    if let Ok(mut zipmap) = zipmap::Zipmap::new(data) {
        let mut total = 0;
        while let Ok(Some((field, value))) = zipmap.next() {
            total += field.len() + value.len();
        }
        assert!(total <= data.len());
    }
    if let Ok(numbers) = intset::numbers(data) {
        assert!(numbers.len() <= data.len() / 2);
    }
}

/// Returns bytes behind a head whose last two are these.
fn framed(data: &[u8], head_bytes: usize, count: &[u8; 2]) -> Vec<u8> {
    let mut framed = vec![0; head_bytes - 2];
    framed.extend_from_slice(count);
    framed.extend_from_slice(data);
    framed
}
