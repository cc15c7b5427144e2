//! Lists that are made as a whole, from head to tail. They may have any size: elements beyond a meta row go to the rows
//! of an object that nothing names until it is complete, so that it is written ahead.

use super::Side;
use super::encoding_after;
use super::rows::ListRows;
use crate::key::{self, Header, Tag, Type};
use crate::packed::{self, Packed, put_string, string_bytes};
use crate::value::encoding;
use crate::{Result, listpack};
use haypile_store::{Key, Txn};
use std::iter::once;

/// A new list.
pub struct Maker {
    encoding: u8,
    count: usize,
    entries: Vec<u8>,
    /// Bytes of Redis's listpack of these entries.
    listpack_bytes: usize,
    rows: Option<ListRows>,
}

impl Maker {
    pub fn new() -> Maker {
        Maker {
            encoding: encoding::LIST_LISTPACK,
            count: 0,
            entries: Vec::new(),
            listpack_bytes: listpack::EMPTY_BYTES,
            rows: None,
        }
    }

    /// Adds an element at the tail.
    pub fn add(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, element: &[u8]) -> Result<()> {
        if let Some(rows) = &mut self.rows {
            rows.grow(txn, element.len(), 1);
            return rows.push(txn, key, Side::Tail, once(element));
        }
        let bytes = self.listpack_bytes + element.len();
        self.encoding = encoding_after(txn, self.encoding, bytes, self.count as u64 + 1);
        if packed::fits(self.entries.len() + string_bytes(element), self.count + 1) {
            put_string(&mut self.entries, element);
            self.listpack_bytes += listpack::entry_bytes(element);
            self.count += 1;
            return Ok(());
        }
        let mut rows = ListRows::new(txn, key, self.encoding)?;
        let mut reader = Packed { encoding: 0, count: 0, entries: &self.entries }.reader();
        while !reader.is_at_end() {
            rows.push(txn, key, Side::Tail, once(reader.string()?))?;
        }
        rows.push(txn, key, Side::Tail, once(element))?;
        self.rows = Some(rows);
        Ok(())
    }

    /// Gives the list, without deadline, to a key, in place of any value. Without elements the key stays as it is.
    pub fn finish(self, txn: &mut Txn<'_>, key: &Key<'_>, before: Option<&Header>) -> Result<()> {
        if before.is_some_and(|before| before.type_of() == Type::List) {
            // Somebody may wait for as many elements as there are now.
            txn.on_ready(key);
        }
        match self.rows {
            Some(mut rows) => rows.save(txn, key, before, None),
            None if self.count == 0 => Ok(()),
            None => {
                let header = Header { tag: Tag::ListPacked, deadline_ms: None, fields: None, object: None };
                let head = Packed { encoding: self.encoding, count: self.count as u16, entries: &[] }.head();
                key::write(txn, key, before, &header, &[&head, &self.entries])
            }
        }
    }
}

impl Default for Maker {
    fn default() -> Maker {
        Maker::new()
    }
}
