//! Operations on values of all types: copies, and the encoding that Redis would report.

use crate::element::{Head, ROW_PREFIX_BYTES};
use crate::key::{self, Entry, Header, Object, Type};
use crate::packed::Packed;
use crate::{Result, stream, string};
use haypile_store::row::{self, Family, RowKey};
use haypile_store::{Direction, Key, Txn, Value};
use std::ops::ControlFlow;

/// Collections of more elements are copied on the I/O pool.
const COPY_AT_ONCE: u64 = 1024;

/// Rows and bytes that are copied in one step.
const STEP_ROWS: usize = 1024;
const STEP_BYTES: usize = 1 << 20;

/// The encodings of Redis, by the number in a collection's header. DO NOT CHANGE THESE NUMBERS.
pub mod encoding {
    pub const HASH_LISTPACK: u8 = 0;
    pub const HASH_TABLE: u8 = 1;
    /// Fields of the hash may have deadlines.
    pub const HASH_HAS_DEADLINES: u8 = 0x80;
    pub const SET_INTSET: u8 = 0;
    pub const SET_LISTPACK: u8 = 1;
    pub const SET_TABLE: u8 = 2;
    pub const LIST_LISTPACK: u8 = 0;
    pub const LIST_QUICKLIST: u8 = 1;
    pub const ZSET_LISTPACK: u8 = 0;
    pub const ZSET_SKIPLIST: u8 = 1;

    /// The bits that hold the number; the others belong to the type.
    pub const MASK: u8 = 0x0f;
}

/// Returns the encoding of a collection as OBJECT ENCODING names it; `None` for a string, where the bytes decide.
pub fn encoding_name(entry: &Entry) -> Result<Option<&'static str>> {
    use encoding::*;
    let kind = entry.header.type_of();
    let number = match kind {
        Type::String => return Ok(None),
        Type::Stream => return Ok(Some("stream")),
        _ if entry.header.object.is_some() => entry.payload().get(Object::BYTES).copied().unwrap_or(u8::MAX),
        _ => Packed::parse(entry.payload())?.encoding,
    };
    let name = match (kind, number & MASK) {
        (Type::Hash, HASH_LISTPACK) if number & HASH_HAS_DEADLINES != 0 => "listpackex",
        (Type::Hash, HASH_LISTPACK) => "listpack",
        (Type::Hash, HASH_TABLE) => "hashtable",
        (Type::Set, SET_INTSET) => "intset",
        (Type::Set, SET_LISTPACK) => "listpack",
        (Type::Set, SET_TABLE) => "hashtable",
        (Type::List, LIST_LISTPACK) => "listpack",
        (Type::List, LIST_QUICKLIST) => "quicklist",
        (Type::Zset, ZSET_LISTPACK) => "listpack",
        (Type::Zset, ZSET_SKIPLIST) => "skiplist",
        _ => return Err(key::damaged("the encoding of a collection", entry.payload())),
    };
    Ok(Some(name))
}

/// Gives `to`, which was `to_before`, the same value and deadline as `from`. The databases may differ.
pub fn copy(txn: &mut Txn<'_>, from: &Key<'_>, entry: &Entry, to: &Key<'_>, to_before: Option<&Header>) -> Result<()> {
    key::note_arrived(txn, to, to_before, &entry.header);
    match (entry.header.type_of(), entry.header.object) {
        (Type::String, _) => string::copy(txn, from, entry, to, to_before),
        (_, None) => key::write(txn, to, to_before, &entry.header, &[entry.payload()]),
        (_, Some(object)) => {
            let copy = copy_rows(txn, from, entry, object, to)?;
            let header = Header { object: Some(copy), ..entry.header };
            key::write(txn, to, to_before, &header, &[&copy.encode(), &entry.payload()[Object::BYTES..]])
        }
    }
}

/// Counts the elements of a collection in rows.
fn count_of(entry: &Entry) -> u64 {
    match stream::Head::parse(entry.payload()) {
        Some(head) if entry.header.type_of() == Type::Stream => head.count,
        _ => {
            let count = entry.payload().get(Object::BYTES + 1..Head::BYTES).and_then(|bytes| bytes.try_into().ok());
            count.map_or(0, u64::from_be_bytes)
        }
    }
}

/// Copies the rows of a collection to a new object, which nothing names yet, in the slot and the database of `to`.
fn copy_rows(txn: &mut Txn<'_>, from: &Key<'_>, entry: &Entry, object: Object, to: &Key<'_>) -> Result<Object> {
    if count_of(entry) > COPY_AT_ONCE {
        txn.long()?;
    }
    let copy = Object::new(txn, to)?;
    for family in [Family::Data, Family::Score] {
        let (mut at, until) = row::object_range(family, from.space, object.slot, object.id);
        let (prefix, _) = row::object_range(family, to.space, copy.slot, copy.id);
        loop {
            let (mut rows, mut bytes) = (Vec::new(), 0);
            txn.visit(&at, &until, Direction::Forward, STEP_ROWS, |row, value| {
                bytes += row.len() + value.len();
                rows.push((RowKey::from_slice(row), Value::from(value)));
                if rows.len() < STEP_ROWS && bytes < STEP_BYTES {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
            let Some((last, _)) = rows.last() else { break };
            if rows.len() == STEP_ROWS || bytes >= STEP_BYTES {
                // The count does not tell of all rows: consumer groups of a stream have rows, too.
                txn.long()?;
            }
            at = last.clone();
            at.push(0);
            for (row, value) in &rows {
                let mut target = prefix.clone();
                target.extend_from_slice(&row[ROW_PREFIX_BYTES..]);
                txn.put_row(&target, &[value])?;
            }
        }
    }
    Ok(copy)
}
