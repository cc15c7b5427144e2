//! Values on their way to and from Redis's format: a key's value is written to an `rdb::Writer`, and made of the parts that an
//! `rdb` reader hands over. DUMP and RESTORE are made of these, and so are whole files. Elements go one by one: whatever a
//! value's size, neither way holds it, but for what the writer keeps.

use crate::error::{Error, Result};
use haypile_rdb::{Kind, Output, Part, Writer};
use haypile_store::{Direction, Key, Stop, Txn, View};
use haypile_types::element::{self, ROWS_INLINE_MAX};
use haypile_types::key::{Entry, Type};
use haypile_types::list::List;
use haypile_types::make::Maker;
use haypile_types::set::Set;
use haypile_types::string::{self, Content};
use haypile_types::zset::{self, Stretch, Zset};
use haypile_types::{hash, key};
use std::io;
use std::ops::ControlFlow;

mod stream;

/// What is longer is written and read on the I/O pool: it is compressed, and each element is copied.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// Bytes of one piece of a long string.
const STEP_BYTES: usize = 256 << 10;

/// What a value is in Redis's format.
pub fn kind(txn: &mut Txn, key: &Key, entry: &Entry) -> Result<Kind> {
    Ok(match entry.header.type_of() {
        Type::String => Kind::String,
        Type::List => Kind::List,
        Type::Set => Kind::Set,
        Type::Zset => Kind::Zset,
        Type::Hash if has_deadlines(txn, key, entry)? => Kind::TimedHash,
        Type::Hash => Kind::Hash,
        Type::Stream => Kind::Stream,
    })
}

/// Whether some field that readers see has a deadline.
fn has_deadlines(txn: &mut Txn, key: &Key, entry: &Entry) -> Result<bool> {
    let Some(fields) = entry.header.fields else { return Ok(false) };
    if txn.now_ms() <= fields.first_ms {
        return Ok(true);
    }
    let mut found = false;
    hash::visit_stored(txn, key, entry, |_, stored| {
        found = stored.deadline_ms.is_some();
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// Writes a value, which is of this kind, behind what says so. What is long is written on the I/O pool.
pub fn write<O: Output>(txn: &mut Txn, key: &Key, entry: Entry, kind: Kind, writer: &mut Writer<O>) -> Result<()> {
    match entry.header.type_of() {
        Type::String => write_string(txn, key, entry, writer),
        Type::List => {
            let mut list = List::of(key, entry)?;
            let count = list.len();
            let mut writing = Writing::new(txn, writer, count)?;
            if let Some(view) = writing.rows(txn, |txn| Ok(list.view(txn, 0..count, Direction::Forward)?))? {
                return writing.drain(view, |writer, _, element| writer.string(element));
            }
            list.visit(txn, 0..count, Direction::Forward, |element| {
                writing.each(element.len(), |writer| writer.string(element))
            })?;
            writing.end()
        }
        Type::Set => {
            let set = Set::of(key, entry)?;
            let mut writing = Writing::new(txn, writer, set.count())?;
            let view = writing.rows(txn, |txn| match set.rows() {
                Some(rows) => {
                    let (from, until) = rows.from_hash(0);
                    Ok(Some(txn.view(&from, &until, Direction::Forward)?))
                }
                None => Ok(None),
            })?;
            if let Some(view) = view {
                return writing.drain(view, |writer, row, _| match element::of_row(row) {
                    Some((_, member)) => writer.string(member),
                    None => Err(damaged()),
                });
            }
            set.visit(txn, |member| writing.each(member.len(), |writer| writer.string(member)))?;
            writing.end()
        }
        Type::Zset => {
            let zset = Zset::of(key, entry)?;
            let count = zset.cardinality()?;
            let whole = || Stretch::whole(zset::Range::Index { from: 0, until: count });
            let mut writing = Writing::new(txn, writer, count)?;
            if let Some(view) = writing.rows(txn, |txn| Ok(zset.view(txn, whole())?.map(|(view, _)| view)))? {
                return writing.drain(view, |writer, row, value| {
                    let (member, score) = zset::element_of(row, value).ok_or_else(damaged)?;
                    writer.string(member)?;
                    writer.score(score)
                });
            }
            zset.visit(txn, whole(), |member, score| {
                writing.each(member.len(), |writer| {
                    writer.string(member)?;
                    writer.score(score)
                })
            })?;
            writing.end()
        }
        Type::Hash => write_hash(txn, key, entry, kind, writer),
        Type::Stream => stream::write(txn, key, &entry, writer),
    }
}

fn write_string<O: Output>(txn: &mut Txn, key: &Key, entry: Entry, writer: &mut Writer<O>) -> Result<()> {
    if string::length_of(key, &entry)? > INLINE_BYTES_MAX as u64 {
        txn.long()?;
    }
    match string::content(txn, key, entry)? {
        Content::Shared(bytes) => writer.string(&bytes).map_err(unwritten),
        Content::Owned(bytes) => writer.string(&bytes).map_err(unwritten),
        Content::Long(mut rest) => {
            writer.begin_string(rest.remaining()).map_err(unwritten)?;
            let (mut piece, mut more) = (Vec::new(), true);
            while more {
                piece.clear();
                more = rest.next(STEP_BYTES, &mut piece).map_err(failed)?;
                writer.raw(&piece).map_err(unwritten)?;
            }
            Ok(())
        }
    }
}

fn write_hash<O: Output>(txn: &mut Txn, key: &Key, entry: Entry, kind: Kind, writer: &mut Writer<O>) -> Result<()> {
    let (count, now_ms) = (hash::len(txn, key, &entry)?, txn.now_ms());
    let is_timed = kind == Kind::TimedHash;
    if let Some(fields) = entry.header.fields.filter(|_| is_timed) {
        // Whoever reads it goes by the fields; this is where their deadlines are counted from.
        writer.first_deadline(fields.first_ms).map_err(unwritten)?;
    }
    let put = move |writer: &mut Writer<O>, field: &[u8], stored: &hash::Stored<'_>| {
        if is_timed {
            writer.field_deadline(stored.deadline_ms)?;
        }
        writer.string(field)?;
        writer.string(stored.value)
    };
    let mut writing = Writing::new(txn, writer, count)?;
    if let Some(view) = writing.rows(txn, |txn| Ok(hash::view(txn, key, &entry)?))? {
        let mut view = view;
        while let Some((row, value)) = view.next_row().map_err(failed)? {
            let (field, stored) = (hash::field_of_row(&row)?, hash::stored_in_row(&value)?);
            if stored.is_live(now_ms) {
                writing.one(|writer| put(writer, field, &stored))?;
            }
        }
        return writing.end();
    }
    hash::visit_stored(txn, key, &entry, |field, stored| {
        writing.each(field.len() + stored.value.len(), |writer| put(writer, field, &stored))
    })?;
    writing.end()
}

/// A collection that is being written.
struct Writing<'w, O> {
    writer: &'w mut Writer<O>,
    /// Elements that are still to come.
    missing: u64,
    bytes: usize,
    /// It runs where it may take long.
    may_be_long: bool,
    result: Result<()>,
}

impl<'w, O: Output> Writing<'w, O> {
    /// Writes the count.
    fn new(txn: &mut Txn, writer: &'w mut Writer<O>, count: u64) -> Result<Writing<'w, O>> {
        if count > ROWS_INLINE_MAX as u64 {
            txn.long()?;
        }
        writer.length(count).map_err(unwritten)?;
        Ok(Writing { writer, missing: count, bytes: 0, may_be_long: txn.long().is_ok(), result: Ok(()) })
    }

    /// The rows of a large collection, which are read one by one, outside of all latches.
    fn rows(&self, txn: &mut Txn, view: impl FnOnce(&mut Txn) -> Result<Option<View>>) -> Result<Option<View>> {
        if self.missing > ROWS_INLINE_MAX as u64 { view(txn) } else { Ok(None) }
    }

    fn one(&mut self, write: impl FnOnce(&mut Writer<O>) -> io::Result<()>) -> Result<()> {
        self.missing = self.missing.checked_sub(1).ok_or_else(|| unwritten(damaged()))?;
        write(self.writer).map_err(unwritten)
    }

    /// The same, within a walk.
    fn each(&mut self, bytes: usize, write: impl FnOnce(&mut Writer<O>) -> io::Result<()>) -> ControlFlow<()> {
        self.bytes += bytes;
        self.result = match self.bytes > INLINE_BYTES_MAX && !self.may_be_long {
            true => Err(Error::Stop(Stop::Long)),
            false => self.one(write),
        };
        if self.result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Writes all rows of a view.
    fn drain(
        mut self,
        mut view: View,
        mut write: impl FnMut(&mut Writer<O>, &[u8], &[u8]) -> io::Result<()>,
    ) -> Result<()> {
        while let Some((row, value)) = view.next_row().map_err(failed)? {
            self.one(|writer| write(writer, &row, &value))?;
        }
        self.end()
    }

    fn end(self) -> Result<()> {
        self.result?;
        if self.missing == 0 { Ok(()) } else { Err(unwritten(damaged())) }
    }
}

fn failed(why: String) -> Error {
    Error::Stop(Stop::Failed(why))
}

/// What a writer says.
fn unwritten(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::FileTooLarge => Error::text("ERR the payload would be longer than proto-max-bulk-len"),
        _ => Error::Stop(Stop::Failed(format!("ERR {error}"))),
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
}

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
            Kind::Stream => Type::Stream,
        };
        Receiver { maker: Maker::new(kind), elements: 0, bytes: 0 }
    }

    /// Takes the next part. What was taken has no effect before the end, when the key gets the value.
    pub fn take(&mut self, txn: &mut Txn, key: &Key, part: Part<'_>) -> std::result::Result<(), Refused> {
        self.elements += 1;
        let (bytes, is_new) = match part {
            Part::String(bytes) | Part::Element(bytes) => (bytes.len(), self.maker.add(txn, key, bytes)?),
            Part::Scored(member, score) => (member.len(), self.maker.add_scored(txn, key, member, score)?),
            // As if it had come to its end here.
            Part::Field { deadline_ms: Some(deadline), .. } if deadline <= txn.now_ms() => (0, true),
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

    /// Gives the value to a key that is absent, with a deadline that has not passed if it shall have one; whether there is a key then.
    pub fn finish(self, txn: &mut Txn, key: &Key, deadline_ms: Option<u64>) -> Result<bool> {
        self.maker.finish(txn, key, deadline_ms)?;
        Ok(key::peek(txn, key)?.is_some())
    }
}
