//! `View`: the rows of a range from one moment, for a reply that is produced in pieces while the world goes on.
//!
//! The memtable's rows are copied when it is opened, under the key's lock; the base's come from one cursor that keeps its
//! files. It neither reads nor fills the row cache.

use crate::base::{Cursor, Step};
use crate::txn::{Stop, Txn, failed};
use crate::value::Value;
use std::collections::BTreeMap;
use std::iter::Peekable;

/// Rows in order, each once. Owned: it may move to another thread and outlive the transaction.
pub struct View {
    memory: Peekable<std::collections::btree_map::IntoIter<Vec<u8>, Option<Value>>>,
    base: Box<dyn Cursor + Send>,
    /// The base's next row, read but not handed out.
    ahead: Option<(Vec<u8>, Value)>,
    base_ended: bool,
}

impl Txn<'_> {
    /// The rows with `from <= key < until`, none of them meta rows, as they are now: own writes included. Takes as much
    /// memory as the memtable holds of the range. Opening it may wait for the base, so it needs the I/O pool.
    pub fn view(&mut self, from: &[u8], until: &[u8]) -> Result<View, Stop> {
        self.long()?;
        loop {
            let epoch = self.store.epoch();
            let base = self.store.base.view(from, until).map_err(|error| failed(&error))?;
            let mut rows = BTreeMap::new();
            self.store.memtable_rows(from, until, usize::MAX, &mut rows, &mut None);
            if self.store.epoch() != epoch {
                continue;
            }
            rows.extend(self.overlay.range(from, until));
            return Ok(View { memory: rows.into_iter().peekable(), base, ahead: None, base_ended: false });
        }
    }
}

impl View {
    /// The next row, or the end. An error's text says what failed.
    pub fn next_row(&mut self) -> Result<Option<(Vec<u8>, Value)>, String> {
        loop {
            self.read_ahead()?;
            let memory_first = match (self.memory.peek(), &self.ahead) {
                (Some((row, _)), Some((base, _))) => {
                    if row == base {
                        // The memtable's version is the newer one.
                        self.ahead = None;
                        continue;
                    }
                    row < base
                }
                (Some(_), None) => true,
                (None, _) => false,
            };
            if !memory_first {
                return Ok(self.ahead.take());
            }
            if let Some((row, Some(value))) = self.memory.next() {
                return Ok(Some((row, value)));
            }
        }
    }

    fn read_ahead(&mut self) -> Result<(), String> {
        if self.ahead.is_some() || self.base_ended {
            return Ok(());
        }
        match self.base.step().map_err(|error| error.to_string())? {
            Step::Row { key, value } => self.ahead = Some((key.to_vec(), Value::from(value))),
            Step::End => self.base_ended = true,
            Step::WouldBlock => return Err("a view's cursor may read the disk".into()),
        }
        Ok(())
    }
}
