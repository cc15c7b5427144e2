//! `View`: the rows of a range from one moment, for a reply that is produced in pieces while the world goes on.
//!
//! The memtable's rows are copied when it is opened, under the key's lock; the base's come from one cursor that keeps its
//! files. It neither reads nor fills the row cache.

use crate::base::{Cursor, Direction, Step};
use crate::store::Store;
use crate::txn::{Stop, Txn, failed};
use crate::value::Value;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Rows in order, up or down, each once. Owned: it may move to another thread and outlive the transaction.
pub struct View {
    memory: Peekable<std::vec::IntoIter<(Vec<u8>, Option<Value>)>>,
    direction: Direction,
    base: Box<dyn Cursor + Send>,
    /// The base's next row, read but not handed out.
    ahead: Option<(Vec<u8>, Value)>,
    base_ended: bool,
    opened: Instant,
    /// Bytes that it takes, and what all views of the store take.
    bytes: u64,
    all_bytes: Arc<AtomicU64>,
}

/// A view holds up the removal of the base's files: whoever reads it more slowly than this is sent away.
const AGE_MAX: Duration = Duration::from_secs(600);

/// What a row takes besides its key and value: its place in the map, two blocks' counters.
const ROW_BYTES: usize = 96;

impl Txn<'_> {
    /// The rows with `from <= key < until`, none of them meta rows, up or down, as they are now: own writes included. Takes as much
    /// memory as the memtable holds of the range. Opening it may wait for the base, so it needs the I/O pool.
    pub fn view(&mut self, from: &[u8], until: &[u8], direction: Direction) -> Result<View, Stop> {
        self.on_read_many()?;
        self.long()?;
        loop {
            let epoch = self.store.epoch();
            let base = self.store.base.view(from, until, direction).map_err(|error| failed(&error))?;
            let mut rows = BTreeMap::new();
            let newest = self.store.memtable_rows(from, until, Direction::Forward, usize::MAX, &mut rows, &mut None);
            self.gate = self.gate.max(newest);
            if self.store.epoch() != epoch {
                continue;
            }
            rows.extend(self.own_range(from, until));
            let row_bytes = |(row, value): (&Vec<u8>, &Option<Value>)| {
                row.len() + value.as_ref().map_or(0, |value| value.len()) + ROW_BYTES
            };
            let bytes = rows.iter().map(row_bytes).sum::<usize>() as u64;
            let all_bytes = self.store.views_bytes.clone();
            all_bytes.fetch_add(bytes, Ordering::Relaxed);
            let mut memory: Vec<(Vec<u8>, Option<Value>)> = rows.into_iter().collect();
            if direction == Direction::Backward {
                memory.reverse();
            }
            return Ok(View {
                memory: memory.into_iter().peekable(),
                direction,
                base,
                ahead: None,
                base_ended: false,
                opened: Instant::now(),
                bytes,
                all_bytes,
            });
        }
    }
}

impl Store {
    /// Views that have not been dropped.
    pub fn views(&self) -> usize {
        Arc::strong_count(&self.views_bytes) - 1
    }
}

impl View {
    /// The next row, or the end. An error's text says what failed.
    pub fn next_row(&mut self) -> Result<Option<(Vec<u8>, Value)>, String> {
        if self.opened.elapsed() > AGE_MAX {
            return Err("the reply was read too slowly".into());
        }
        loop {
            self.read_ahead()?;
            let memory_first = match (self.memory.peek(), &self.ahead) {
                (Some((row, _)), Some((base, _))) => {
                    if row == base {
                        // The memtable's version is the newer one.
                        self.ahead = None;
                        continue;
                    }
                    match self.direction {
                        Direction::Forward => row < base,
                        Direction::Backward => row > base,
                    }
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

impl Drop for View {
    fn drop(&mut self) {
        self.all_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
