//! `View`: the rows of a range from one moment, for a reply that is produced in pieces while writes go on.
//!
//! The memtable's rows are gathered when the view is opened, under the key's lock, which keeps them from changing: in
//! steps, so that no latch is held long, and as handles, which a later write leaves alone. The base's rows come from
//! one cursor that keeps its files. A view neither reads nor fills the row cache.

use crate::access::Stamp;
use crate::base::{Cursor, Direction, Step};
use crate::memtable::{ElementRange, RowEntry, shard_of};
use crate::row::RowKey;
use crate::stop::{Stop, failed};
use crate::store::Store;
use crate::txn::Txn;
use crate::txn::merge::{Source, first};
use crate::txn::visit::{Layer, STEP_ROWS};
use crate::value::Value;
use haypile_log::Index;
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Rows in order, up or down, each once. Owned: it may move to another thread and outlive the transaction.
pub struct View {
    memory: Peekable<std::vec::IntoIter<RowEntry>>,
    direction: Direction,
    /// The base's cursor; `None`: the base has no more rows.
    base: Option<Box<dyn Cursor + Send>>,
    /// The base's next row, read but not handed out.
    ahead: Option<(Vec<u8>, Value)>,
    life: Life,
}

/// The life of a view, or of a spool that is read: bounds how long it is kept, and counts its bytes.
pub(crate) struct Life {
    /// The time when the view was opened, and how old it may get; `None` where the base is only read: no file
    /// waits for the view's end there.
    opened: Option<(Instant, Duration)>,
    /// The bytes of memory that the view takes, and those of all views of the store.
    bytes: u64,
    all_bytes: Arc<AtomicU64>,
    /// Set when the server stops.
    stops: Arc<AtomicBool>,
}

/// The age at which a view ends: it holds up the removal of the base's files, so that a client which reads it more
/// slowly is disconnected.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(600);

/// A generation's rows in a range, and the newest record that wrote any of them.
type Gathered = (Vec<RowEntry>, Index);

impl Txn<'_> {
    /// Opens a view of the rows with `from <= key < until`, none of them meta rows, up or down, as they are now: own
    /// writes included. Takes as much memory as the memtable holds of the range. Opening may wait for the base, so it
    /// needs the I/O pool.
    pub fn view(&mut self, from: &[u8], until: &[u8], direction: Direction) -> Result<View, Stop> {
        self.on_read_many()?;
        self.long()?;
        let memory = loop {
            let epoch = self.store.epoch();
            let base = if self.store.is_above_base(from) && ElementRange::of(from, until).is_some() {
                None
            } else {
                Some(self.store.base.view(from, until, direction).map_err(|error| failed(&error))?)
            };
            let gathered = match ElementRange::of(from, until) {
                Some(_) => self.store.gather_object(from, until, direction, epoch),
                None => self.store.gather_any(from, until, direction, epoch),
            };
            if let Some((rows, newest)) = gathered {
                self.gate.rise(newest);
                break (self.with_own(rows, from, until, direction), base);
            }
        };
        let (memory, base) = memory;
        let bytes = memory.iter().map(|row| row.bytes() as u64).sum();
        let life = self.store.begin_life(bytes);
        Ok(View { memory: memory.into_iter().peekable(), direction, base, ahead: None, life })
    }

    /// Puts the transaction's own writes between the rows of the memtable, in the place of those that they change.
    fn with_own(&self, rows: Vec<RowEntry>, from: &[u8], until: &[u8], direction: Direction) -> Vec<RowEntry> {
        let own = self.own_writes(from, until, direction);
        if own.is_empty() {
            return rows;
        }
        let mut merged = Vec::with_capacity(rows.len() + own.len());
        let mut rows = rows.into_iter().peekable();
        for at in own {
            let key = self.overlay.key_at(at);
            let is_before = |row: &RowEntry| match direction {
                Direction::Forward => row.row() < key,
                Direction::Backward => row.row() > key,
            };
            while let Some(row) = rows.next_if(is_before) {
                merged.push(row);
            }
            rows.next_if(|row| row.row() == key);
            merged.push(RowEntry::new(key, self.overlay.look(at).as_deref(), Index(0), Stamp::UNUSED));
        }
        merged.extend(rows);
        merged
    }
}

impl Store {
    /// Gathers the memtable's rows of a part of one object; `None` if a flush has taken rows away meanwhile. The caller
    /// holds the key's lock, so that the rows stay as they are from step to step.
    fn gather_object(&self, from: &[u8], until: &[u8], direction: Direction, epoch: u64) -> Option<Gathered> {
        let (mut from, mut until) = (RowKey::from_slice(from), RowKey::from_slice(until));
        let (mut rows, mut newest) = (Vec::new(), Index(0));
        loop {
            let range = ElementRange::of(&from, &until).expect("a part of a range within an object");
            let latch = self.memtable.latch(shard_of(range.object.slot()));
            if self.epoch() != epoch {
                return None;
            }
            let mut active = Source::new(Some(&latch.active), &range, direction, STEP_ROWS);
            let mut frozen = Source::new(latch.frozen.as_deref(), &range, direction, STEP_ROWS);
            let before = rows.len();
            while rows.len() - before < STEP_ROWS
                && let Some(key) = first(direction, [active.key(), frozen.key(), None, None])
            {
                let is_older = frozen.key() == Some(key);
                if active.key() == Some(key) {
                    rows.extend(active.peek().cloned());
                    active.advance();
                } else {
                    rows.extend(frozen.peek().cloned());
                }
                if is_older {
                    frozen.advance();
                }
            }
            drop((active, frozen));
            drop(latch);
            newest = rows[before..].iter().map(RowEntry::index).fold(newest, Index::max);
            match (rows.last(), direction) {
                (Some(last), _) if rows.len() - before == STEP_ROWS => match direction {
                    Direction::Forward => {
                        from = RowKey::from_slice(last.row());
                        from.push(0);
                    }
                    Direction::Backward => until = RowKey::from_slice(last.row()),
                },
                _ => return Some((rows, newest)),
            }
        }
    }

    /// Gathers the memtable's rows of any range at once, which only tests and checks do; `None` if a flush has taken
    /// rows away meanwhile.
    fn gather_any(&self, from: &[u8], until: &[u8], direction: Direction, epoch: u64) -> Option<Gathered> {
        let mut rows = Layer::new();
        let newest = self.memtable_rows(from, until, Direction::Forward, usize::MAX, &mut rows, &mut None);
        if self.epoch() != epoch {
            return None;
        }
        let entry =
            |(row, value): (&Vec<u8>, &Option<Value>)| RowEntry::new(row, value.as_deref(), Index(0), Stamp::UNUSED);
        let mut entries: Vec<RowEntry> = rows.iter().map(entry).collect();
        if direction == Direction::Backward {
            entries.reverse();
        }
        Some((entries, newest))
    }
}

impl Store {
    /// Returns how old a view may get. A caller that waits for its client to read has to see to that age.
    pub fn view_age_max(&self) -> Duration {
        Duration::from_millis(self.view_age_max_ms.load(Ordering::Relaxed))
    }

    /// Bounds the age of views that are opened from now on.
    pub fn set_view_age_max(&self, age_max: Duration) {
        self.view_age_max_ms.store(age_max.as_millis() as u64, Ordering::Relaxed);
    }

    /// Begins the life of a view that is opened now and takes so many bytes.
    pub(crate) fn begin_life(&self, bytes: u64) -> Life {
        let all_bytes = self.views_bytes.clone();
        all_bytes.fetch_add(bytes, Ordering::Relaxed);
        let opened = (!self.base.is_read_only()).then(|| (Instant::now(), self.view_age_max()));
        Life { opened, bytes, all_bytes, stops: self.stops_commands.clone() }
    }

    /// Returns how many views, and spools that are read, have not been dropped.
    pub fn views(&self) -> usize {
        Arc::strong_count(&self.views_bytes) - 1
    }
}

impl Life {
    /// Returns the bytes of memory that the view takes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Refuses the next row of a view that has come to its end.
    ///
    /// # Errors
    /// The view has come to its end; the text says why.
    pub fn goes_on(&self) -> Result<(), String> {
        if self.opened.is_some_and(|(opened, age_max)| opened.elapsed() > age_max) {
            return Err("the reply was read too slowly".into());
        }
        if self.stops.load(Ordering::Relaxed) {
            return Err("the server is stopping".into());
        }
        Ok(())
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.all_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl View {
    /// Returns the bytes of memory that the view holds: rows that were in the memtable.
    pub fn bytes(&self) -> u64 {
        self.life.bytes()
    }

    /// Returns the next row, or the end. An error's text says what failed.
    pub fn next_row(&mut self) -> Result<Option<(Vec<u8>, Value)>, String> {
        self.life.goes_on()?;
        loop {
            self.read_ahead()?;
            let memory_first = match (self.memory.peek(), &self.ahead) {
                (Some(row), Some((base, _))) => {
                    let row = row.row();
                    if row == base {
                        // The memtable's version is the newer one.
                        self.ahead = None;
                        continue;
                    }
                    match self.direction {
                        Direction::Forward => row < &base[..],
                        Direction::Backward => row > &base[..],
                    }
                }
                (Some(_), None) => true,
                (None, _) => false,
            };
            if !memory_first {
                return Ok(self.ahead.take());
            }
            if let Some(row) = self.memory.next()
                && let Some(value) = row.shared_value()
            {
                return Ok(Some((row.row().to_vec(), value)));
            }
        }
    }

    fn read_ahead(&mut self) -> Result<(), String> {
        let Some(base) = self.base.as_mut().filter(|_| self.ahead.is_none()) else { return Ok(()) };
        match base.step().map_err(|error| error.to_string())? {
            Step::Row { key, value } => self.ahead = Some((key.to_vec(), Value::from(value))),
            Step::End => self.base = None,
            Step::WouldBlock => return Err("a view's cursor may read the disk".into()),
        }
        Ok(())
    }
}
