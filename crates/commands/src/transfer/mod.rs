//! Values on their way to and from Redis's format: a key's value is written to an `rdb::Writer`, and made of the parts
//! that an `rdb` reader hands over. DUMP and RESTORE are made of these, and so are whole files. Elements go one by one:
//! whatever a value's size, neither way holds it, but for what the writer keeps.

use crate::error::{Error, Result};
use haypile_rdb::{Kind, Measure, Measured, Output, Part, Writer};
use haypile_store::{Direction, Key, Stop, Taken, Txn};
use haypile_types::element::ROWS_INLINE_MAX;
use haypile_types::key::{Entry, Type};
use haypile_types::list::List;
use haypile_types::make::Maker;
use haypile_types::set::Set;
use haypile_types::stream::Stream;
use haypile_types::string::{self, Content};
use haypile_types::zset::{self, Stretch, Zset};
use haypile_types::{hash, key};
use std::io;
use std::ops::ControlFlow;

mod long_element;
mod outgoing;
mod stream;

pub use outgoing::{Broken, Outgoing};

/// Longer values are written and read on the I/O pool: they are compressed, and each element is copied.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// The form of a value in Redis's format.
pub fn kind(txn: &mut Txn, key: &Key, entry: &Entry) -> Result<Kind> {
    Ok(match entry.header.type_of() {
        Type::String => Kind::String,
        Type::List => Kind::List,
        Type::Set => Kind::Set,
        Type::Zset => Kind::Zset,
        Type::Hash if has_deadlines(txn, key, entry)? => Kind::TimedHash,
        Type::Hash => Kind::Hash,
        Type::Stream => stream::kind(txn, key, entry)?,
    })
}

/// Returns the form of a value as Redis has it since 5.0: without deadlines of fields, and for a stream without what
/// later versions added.
pub fn kind_for_old(entry: &Entry) -> Kind {
    match entry.header.type_of() {
        Type::String => Kind::String,
        Type::List => Kind::List,
        Type::Set => Kind::Set,
        Type::Zset => Kind::Zset,
        Type::Hash => Kind::Hash,
        Type::Stream => Kind::Stream,
    }
}

/// Returns a value's payload that any Redis since 5.0 can restore; None if it is longer than so many bytes.
///
/// # Errors
/// The value is read from the disk, or takes long.
pub fn payload_for_old(txn: &mut Txn, key: &Key, entry: Entry, bytes_max: usize) -> Result<Option<Vec<u8>>> {
    let (kind, mut writer) = (kind_for_old(&entry), Writer::new(Measure::new(bytes_max, u64::MAX)));
    writer.kind(kind).map_err(unwritten)?;
    write(txn, key, entry, kind, &mut writer)?;
    Ok(match writer.measured().map_err(unwritten)? {
        Measured::Whole(payload) => Some(payload),
        Measured::Long(_) => None,
    })
}

/// Whether some field that readers see has a deadline.
fn has_deadlines(txn: &mut Txn, key: &Key, entry: &Entry) -> Result<bool> {
    let Some(fields) = entry.header.fields else { return Ok(false) };
    if txn.expiry_ms() <= fields.first_ms {
        return Ok(true);
    }
    let mut found = false;
    hash::visit_stored(txn, key, entry, |_, stored| {
        found = stored.deadline_ms.is_some();
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// Writes a value of this kind, behind the byte that names the kind. A long one is written on the I/O pool.
pub fn write<O: Output>(txn: &mut Txn, key: &Key, entry: Entry, kind: Kind, writer: &mut Writer<O>) -> Result<()> {
    if has_many_rows(txn, key, &entry)?
        && let Some(mut outgoing) = Outgoing::open(txn, key, entry.clone(), kind)?
    {
        while outgoing.next(writer)? {}
        return Ok(());
    }
    match entry.header.type_of() {
        Type::String => write_string(txn, key, entry, writer),
        Type::List => {
            let mut list = List::of(key, entry)?;
            let count = list.len();
            let mut writing = Writing::new(txn, writer, count)?;
            list.visit(txn, 0..count, Direction::Forward, |element| {
                writing.each(element.len(), |writer| writer.string(element))
            })?;
            writing.end()
        }
        Type::Set => {
            let set = Set::of(key, entry)?;
            let mut writing = Writing::new(txn, writer, set.count())?;
            set.visit(txn, |member| writing.each(member.len(), |writer| writer.string(member)))?;
            writing.end()
        }
        Type::Zset => {
            let zset = Zset::of(key, entry)?;
            let count = zset.cardinality()?;
            let mut writing = Writing::new(txn, writer, count)?;
            zset.visit(txn, Stretch::whole(zset::Range::Index { from: 0, until: count }), |member, score| {
                writing.each(member.len(), |writer| {
                    writer.string(member)?;
                    writer.score(score)
                })
            })?;
            writing.end()
        }
        Type::Hash => write_hash(txn, key, entry, kind, writer),
        Type::Stream => stream::write(txn, key, &entry, kind, writer),
    }
}

/// Whether a value is read from views rather than under latches.
fn has_many_rows(txn: &mut Txn, key: &Key, entry: &Entry) -> Result<bool> {
    let elements = match entry.header.type_of() {
        Type::String => return Ok(string::length_of(key, entry)? > string::LONG_FROM_BYTES),
        Type::List => List::of(key, entry.clone())?.len(),
        Type::Set => Set::of(key, entry.clone())?.count(),
        Type::Zset => Zset::of(key, entry.clone())?.cardinality()?,
        Type::Hash => hash::len(txn, key, entry)?,
        Type::Stream => Stream::of(key, entry)?.len(),
    };
    Ok(elements > ROWS_INLINE_MAX as u64)
}

fn write_string<O: Output>(txn: &mut Txn, key: &Key, entry: Entry, writer: &mut Writer<O>) -> Result<()> {
    if string::length_of(key, &entry)? > INLINE_BYTES_MAX as u64 {
        txn.long()?;
    }
    match string::content(txn, key, entry)? {
        Content::Shared(bytes) => writer.string(&bytes).map_err(unwritten),
        Content::Owned(bytes) => writer.string(&bytes).map_err(unwritten),
        Content::Long(_) => unreachable!("it has many rows"),
    }
}

fn write_hash<O: Output>(txn: &mut Txn, key: &Key, entry: Entry, kind: Kind, writer: &mut Writer<O>) -> Result<()> {
    let count = hash::len(txn, key, &entry)?;
    let timed = timed(&entry, kind);
    if let Some(first_ms) = timed {
        writer.first_deadline(first_ms).map_err(unwritten)?;
    }
    let mut writing = Writing::new(txn, writer, count)?;
    hash::visit_stored(txn, key, &entry, |field, stored| {
        writing.each(field.len() + stored.value.len(), |writer| put_field(writer, timed.is_some(), field, &stored))
    })?;
    writing.end()
}

/// The time that the deadlines of a hash's fields are counted from, if it has some. Readers go by the fields.
fn timed(entry: &Entry, kind: Kind) -> Option<u64> {
    entry.header.fields.filter(|_| kind == Kind::TimedHash).map(|fields| fields.first_ms)
}

fn put_field<O: Output>(
    writer: &mut Writer<O>,
    is_timed: bool,
    field: &[u8],
    stored: &hash::Stored<'_>,
) -> io::Result<()> {
    if is_timed {
        writer.field_deadline(stored.deadline_ms)?;
    }
    writer.string(field)?;
    writer.string(stored.value)
}

/// A collection that is being written.
struct Writing<'w, O> {
    writer: &'w mut Writer<O>,
    /// Elements that are still to come.
    missing: u64,
    bytes: usize,
    /// The command runs where it may take long: on the I/O pool.
    may_be_long: bool,
    result: Result<()>,
}

impl<'w, O: Output> Writing<'w, O> {
    /// Writes the count.
    fn new(txn: &mut Txn, writer: &'w mut Writer<O>, count: u64) -> Result<Writing<'w, O>> {
        writer.length(count).map_err(unwritten)?;
        Ok(Writing { writer, missing: count, bytes: 0, may_be_long: txn.long().is_ok(), result: Ok(()) })
    }

    fn one(&mut self, write: impl FnOnce(&mut Writer<O>) -> io::Result<()>) -> Result<()> {
        self.missing = self.missing.checked_sub(1).ok_or_else(|| unwritten(damaged()))?;
        write(self.writer).map_err(unwritten)
    }

    /// Writes an element of so many bytes, within a walk.
    fn each(&mut self, bytes: usize, write: impl FnOnce(&mut Writer<O>) -> io::Result<()>) -> ControlFlow<()> {
        self.bytes += bytes;
        self.result = match self.bytes > INLINE_BYTES_MAX && !self.may_be_long {
            true => Err(Error::Stop(Stop::Long)),
            false => self.one(write),
        };
        if self.result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn end(self) -> Result<()> {
        self.result?;
        if self.missing == 0 { Ok(()) } else { Err(unwritten(damaged())) }
    }
}

fn failed(why: String) -> Error {
    Error::Stop(Stop::Failed(why))
}

/// The error that a writer's stands for.
pub(crate) fn unwritten(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::FileTooLarge => Error::text("ERR the payload would be longer than proto-max-bulk-len"),
        _ => Error::Stop(Stop::Failed(error.to_string())),
    }
}

fn damaged() -> io::Error {
    io::Error::other("a collection has not as many elements as its count says, or a damaged row")
}

/// A value that is being received.
pub struct Receiver {
    maker: Maker,
    elements: u64,
    bytes: usize,
    /// Room for the longest part.
    room: Option<Taken>,
}

/// How often a long part is held: where it is read, and among the rows of the transaction.
const HELD_TIMES: u64 = 2;

/// The most bytes that a payload may ask for ahead: no payload that tells the truth asks for more.
const AHEAD_BYTES_MAX: u64 = 1 << 40;

/// Why a value was not received.
#[derive(Debug)]
pub enum Refused {
    /// Bytes that no Redis has written.
    Corrupt(&'static str),
    Stop(haypile_types::Error),
}

impl<E: Into<haypile_types::Error>> From<E> for Refused {
    fn from(error: E) -> Refused {
        Refused::Stop(error.into())
    }
}

impl Receiver {
    pub fn new(kind: Kind) -> Receiver {
        let kind = match kind {
            Kind::String => Type::String,
            Kind::List => Type::List,
            Kind::Set => Type::Set,
            Kind::Zset => Type::Zset,
            Kind::Hash | Kind::TimedHash => Type::Hash,
            Kind::Stream | Kind::IdempotentStream | Kind::NackedStream => Type::Stream,
        };
        Receiver { maker: Maker::new(kind), elements: 0, bytes: 0, room: None }
    }

    /// Takes the next part. What was taken has no effect before the end, when the key gets the value.
    pub fn take(&mut self, txn: &mut Txn, key: &Key, part: Part<'_>) -> std::result::Result<(), Refused> {
        if let Part::Ahead { bytes } = part {
            return Ok(self.find_room(txn, bytes)?);
        }
        self.elements += 1;
        let (bytes, is_new) = match part {
            Part::String(bytes) | Part::Element(bytes) => (bytes.len(), self.maker.add(txn, key, bytes)?),
            Part::Scored(member, score) => (member.len(), self.maker.add_scored(txn, key, member, score)?),
            // A field that has expired counts as one that came to its end here.
            Part::Field { deadline_ms: Some(deadline), .. } if deadline <= txn.expiry_ms() => (0, true),
            Part::Field { field, value, deadline_ms } => {
                (field.len() + value.len(), self.maker.add_field(txn, key, field, value, deadline_ms)?)
            }
            _ => {
                let Maker::Stream(maker) = &mut self.maker else { unreachable!("only streams have other parts") };
                (stream::take(maker, txn, key, part)?, true)
            }
        };
        if !is_new {
            return Err(Refused::Corrupt("an element is there twice"));
        }
        self.bytes += bytes;
        if self.elements > ROWS_INLINE_MAX as u64 || self.bytes > INLINE_BYTES_MAX {
            txn.long()?;
        }
        Ok(())
    }

    /// Sees to it that there is room for a long part, before it is there.
    fn find_room(&mut self, txn: &Txn, bytes: u64) -> std::result::Result<(), Stop> {
        txn.long()?;
        let bytes = bytes.min(AHEAD_BYTES_MAX) * HELD_TIMES;
        self.room.get_or_insert_with(|| txn.room()).grow_to(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Gives the value to a key that is absent, with a deadline that has not passed if it shall have one; whether there
    /// is a key then.
    pub fn finish(self, txn: &mut Txn, key: &Key, deadline_ms: Option<u64>) -> Result<bool> {
        self.maker.finish(txn, key, deadline_ms)?;
        Ok(key::peek(txn, key)?.is_some())
    }
}
