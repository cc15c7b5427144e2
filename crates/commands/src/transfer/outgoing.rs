//! A value of many rows on its way out, from views: element by element, also after the transaction that opened the
//! views. The bytes are those that `write` would write.

use super::long_element::{LongElement, Part, Step};
use super::{damaged, failed, put_field, stream, timed, unwritten};
use crate::error::{Error, Result};
use haypile_rdb::{Kind, Output, Writer};
use haypile_resp::pieces::PIECE_BYTES;
use haypile_store::{Direction, Key, Txn, Value, View};
use haypile_types::chunks::Long;
use haypile_types::key::{Entry, Type};
use haypile_types::list::List;
use haypile_types::set::Set;
use haypile_types::string::{self, Content};
use haypile_types::zset::{self, Stretch, Zset};
use haypile_types::{element, hash};
use std::io;

/// A value on its way out.
pub struct Outgoing {
    /// The first part has been written.
    has_begun: bool,
    rows: Rows,
}

/// The place that the value comes from.
enum Rows {
    String(Box<Long>),
    Elements {
        view: Box<View>,
        count: u64,
        /// Elements that are still to come.
        missing: u64,
        shape: Shape,
        /// The element that is on its way, if it is long.
        long: Option<Box<LongElement>>,
    },
    Stream(Box<stream::Outgoing>),
}

/// How an element lies in its row.
#[derive(Clone, Copy)]
enum Shape {
    List,
    Set,
    Zset,
    Hash {
        /// The time that the deadlines of the fields are counted from; `None` for a kind without deadlines.
        timed: Option<u64>,
        /// Fields whose time had passed then are not there.
        now_ms: u64,
    },
}

/// Why a value does not come to its end.
#[derive(Debug)]
pub enum Broken {
    /// A view does not go on, for the reason given.
    Read(String),
    Written(io::Error),
}

impl From<String> for Broken {
    fn from(why: String) -> Broken {
        Broken::Read(why)
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Written(error)
    }
}

impl From<Broken> for Error {
    fn from(broken: Broken) -> Error {
        match broken {
            Broken::Read(why) => failed(why),
            Broken::Written(error) => unwritten(error),
        }
    }
}

impl From<Broken> for String {
    fn from(broken: Broken) -> String {
        match broken {
            Broken::Read(why) => why,
            Broken::Written(error) => error.to_string(),
        }
    }
}

impl Outgoing {
    /// Opens the views of a value of this kind; `None` if it is short enough to lie in one row. Asks for the I/O pool.
    pub fn open(txn: &mut Txn, key: &Key, entry: Entry, kind: Kind) -> Result<Option<Outgoing>> {
        txn.long()?;
        let elements = |view: View, count: u64, shape: Shape| Rows::Elements {
            view: Box::new(view),
            count,
            missing: count,
            shape,
            long: None,
        };
        let rows = match entry.header.type_of() {
            Type::String => match string::content(txn, key, entry)? {
                Content::Long(long) => Some(Rows::String(long)),
                Content::Shared(_) | Content::Owned(_) => None,
            },
            Type::List => {
                let mut list = List::of(key, entry)?;
                let count = list.len();
                list.view(txn, 0..count, Direction::Forward)?.map(|view| elements(view, count, Shape::List))
            }
            Type::Set => {
                let set = Set::of(key, entry)?;
                let range = set.rows().map(|rows| rows.from_hash(0));
                let view = range.map(|(from, until)| txn.view(&from, &until, Direction::Forward)).transpose()?;
                view.map(|view| elements(view, set.count(), Shape::Set))
            }
            Type::Zset => {
                let zset = Zset::of(key, entry)?;
                let count = zset.cardinality()?;
                let whole = Stretch::whole(zset::Range::Index { from: 0, until: count });
                zset.view(txn, whole)?.map(|(view, _)| elements(view, count, Shape::Zset))
            }
            Type::Hash => {
                let count = hash::len(txn, key, &entry)?;
                let shape = Shape::Hash { timed: timed(&entry, kind), now_ms: txn.now_ms() };
                hash::view(txn, key, &entry)?.map(|view| elements(view, count, shape))
            }
            Type::Stream => Some(Rows::Stream(Box::new(stream::Outgoing::open(txn, key, &entry, kind)?))),
        };
        Ok(rows.map(|rows| Outgoing { has_begun: false, rows }))
    }

    /// Writes what comes next, an element or a piece of a string; whether there is more.
    pub fn next<O: Output>(&mut self, writer: &mut Writer<O>) -> std::result::Result<bool, Broken> {
        if !self.has_begun {
            self.has_begun = true;
            self.rows.begin(writer)?;
        }
        match &mut self.rows {
            Rows::String(long) => Ok(writer.raw_of(|out| long.next(PIECE_BYTES, out))??),
            Rows::Elements { view, missing, shape, long, .. } => {
                if let Some(element) = long {
                    if !element.next(writer)? {
                        *long = None;
                    }
                    return Ok(true);
                }
                let Some((row, value)) = view.next_row()? else {
                    return if *missing == 0 { Ok(false) } else { Err(damaged().into()) };
                };
                let is_seen = if Writer::<O>::keeps_as_it_is(row.len() + value.len()) {
                    *long = shape.long(row, value)?.map(Box::new);
                    long.is_some()
                } else {
                    shape.put(writer, &row, &value)?
                };
                if is_seen {
                    *missing = missing.checked_sub(1).ok_or_else(damaged)?;
                }
                Ok(true)
            }
            Rows::Stream(outgoing) => outgoing.next(writer),
        }
    }
}

impl Rows {
    fn begin<O: Output>(&self, writer: &mut Writer<O>) -> io::Result<()> {
        match self {
            Rows::String(long) => writer.begin_string(long.remaining()),
            Rows::Elements { count, shape, .. } => {
                if let Shape::Hash { timed: Some(first_ms), .. } = shape {
                    writer.first_deadline(*first_ms)?;
                }
                writer.length(*count)
            }
            Rows::Stream(outgoing) => outgoing.begin(writer),
        }
    }
}

impl Shape {
    /// Takes the element of a row that is long, if readers see it.
    fn long(self, row: Vec<u8>, value: Value) -> io::Result<Option<LongElement>> {
        let in_row = |bytes: &[u8]| Step::String { of: Part::Row, bytes: bytes.len() };
        let in_value = |bytes: &[u8]| Step::String { of: Part::Value, bytes: bytes.len() };
        let steps = match self {
            Shape::List => vec![in_value(&value)],
            Shape::Set => vec![in_row(element::of_row(&row).ok_or_else(damaged)?.1)],
            Shape::Zset => {
                let (member, score) = zset::element_of(&row, &value).ok_or_else(damaged)?;
                vec![in_row(member), Step::Score(score)]
            }
            Shape::Hash { timed, now_ms } => {
                let field = hash::field_of_row(&row).map_err(|_| damaged())?;
                let stored = hash::stored_in_row(&value).map_err(|_| damaged())?;
                if !stored.is_live(now_ms) {
                    return Ok(None);
                }
                let deadline = timed.map(|_| Step::Deadline(stored.deadline_ms));
                deadline.into_iter().chain([in_row(field), in_value(stored.value)]).collect()
            }
        };
        Ok(Some(LongElement::new(row, value, steps)))
    }

    /// Writes the element of a row, if readers see it.
    fn put<O: Output>(self, writer: &mut Writer<O>, row: &[u8], value: &[u8]) -> io::Result<bool> {
        match self {
            Shape::List => writer.string(value)?,
            Shape::Set => {
                let (_, member) = element::of_row(row).ok_or_else(damaged)?;
                writer.string(member)?;
            }
            Shape::Zset => {
                let (member, score) = zset::element_of(row, value).ok_or_else(damaged)?;
                writer.string(member)?;
                writer.score(score)?;
            }
            Shape::Hash { timed, now_ms } => {
                let field = hash::field_of_row(row).map_err(|_| damaged())?;
                let stored = hash::stored_in_row(value).map_err(|_| damaged())?;
                if !stored.is_live(now_ms) {
                    return Ok(false);
                }
                put_field(writer, timed.is_some(), field, &stored)?;
            }
        }
        Ok(true)
    }
}
