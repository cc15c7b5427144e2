//! A base in memory: an ordered map that changes by whole flushes. It lies below `engine memory`, where nothing is ever
//! flushed, and serves tests, in which it can pretend to be cold: reads that would go to the disk then say so.

use crate::base::{Base, BaseError, Cursor, Direction, Lookup, Pressure, Reclaim, Rows, Step, Tier};
use crate::row::{Family, object_of, owner_row, space_of};
use crate::value::Value;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type Map = BTreeMap<Vec<u8>, Value>;

#[derive(Default)]
pub struct MemoryBase {
    rows: RwLock<Arc<Map>>,
    /// The lock of a replacement of the rows.
    changing: Mutex<()>,
    reclaim: RwLock<Reclaim>,
    /// Whether rows that `Tier::Disk` has not read before are out of reach of `Tier::Memory`.
    cold: AtomicBool,
    warm: RwLock<HashSet<Vec<u8>>>,
    /// The error with which the next ingestions fail.
    fault: RwLock<Option<BaseError>>,
}

/// The rest of a scan: rows of one moment.
struct Rest {
    map: Arc<Map>,
    from: Vec<u8>,
    until: Vec<u8>,
    direction: Direction,
    /// Whether every row is on the pretended disk, where the reader may not go.
    blocked: bool,
}

impl MemoryBase {
    /// Puts every row on a pretended disk, until it is read from there once; a scan is always on it.
    pub fn set_cold(&self, cold: bool) {
        self.cold.store(cold, Ordering::Relaxed);
        self.warm.write().clear();
    }

    /// Makes ingestions fail, or work again.
    pub fn set_fault(&self, fault: Option<BaseError>) {
        *self.fault.write() = fault;
    }

    pub fn len(&self) -> usize {
        self.rows.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn rest(&self, from: &[u8], until: &[u8], direction: Direction, tier: Tier) -> Rest {
        let blocked = tier == Tier::Memory && self.cold.load(Ordering::Relaxed);
        Rest { map: self.rows.read().clone(), from: from.to_vec(), until: until.to_vec(), direction, blocked }
    }

    /// Returns whether compaction would drop a row.
    fn is_dead(map: &Map, reclaim: &Reclaim, row: &[u8]) -> bool {
        let Some(space) = space_of(row) else { return false };
        if reclaim.dead_spaces.contains(&space) {
            return true;
        }
        match (Family::of(row), object_of(row), crate::row::home_slot(row)) {
            (Some(Family::Data | Family::Score), Some(id), Some(slot)) => {
                reclaim.covers(id) && !map.contains_key(&owner_row(space, slot, id)[..])
            }
            _ => false,
        }
    }
}

impl Base for MemoryBase {
    fn get(&self, key: &[u8], tier: Tier) -> Result<Lookup, BaseError> {
        if self.cold.load(Ordering::Relaxed) {
            if tier == Tier::Memory && !self.warm.read().contains(key) {
                return Ok(Lookup::WouldBlock);
            }
            self.warm.write().insert(key.to_vec());
        }
        Ok(self.rows.read().get(key).map_or(Lookup::Absent, |value| Lookup::Row(value.clone())))
    }

    fn scan(
        &self,
        from: &[u8],
        until: &[u8],
        direction: Direction,
        tier: Tier,
    ) -> Result<Box<dyn Cursor + '_>, BaseError> {
        Ok(Box::new(self.rest(from, until, direction, tier)))
    }

    fn view(&self, from: &[u8], until: &[u8], direction: Direction) -> Result<Box<dyn Cursor + Send>, BaseError> {
        Ok(Box::new(self.rest(from, until, direction, Tier::Disk)))
    }

    fn ingest(&self, rows: &mut dyn Rows) -> Result<(), BaseError> {
        if let Some(fault) = &*self.fault.read() {
            return Err(fault.clone());
        }
        let _changing = self.changing.lock();
        // All changes are read before the first one is made, so that readers wait only for the change itself.
        let mut changes: Vec<(Vec<u8>, Option<Value>)> = Vec::new();
        while let Some((row, value)) = rows.next_row()? {
            assert!(changes.last().is_none_or(|(last, _)| &last[..] < row), "rows come in ascending order, each once");
            changes.push((row.to_vec(), value.map(Value::from)));
        }
        let mut rows = self.rows.write();
        // Copies all rows, but only if a reader still holds them as they were.
        let map = Arc::make_mut(&mut rows);
        for (row, value) in changes {
            match value {
                Some(value) => map.insert(row, value),
                None => map.remove(&row),
            };
        }
        Ok(())
    }

    fn set_busy(&self, _busy: bool) {}

    fn pace_removals(&self, _: bool) {}

    fn set_reclaim(&self, reclaim: Reclaim) {
        *self.reclaim.write() = reclaim;
    }

    fn reclaim_range(&self, from: &[u8], until: &[u8]) -> Result<(), BaseError> {
        let _changing = self.changing.lock();
        let reclaim = self.reclaim.read().clone();
        let mut rows = self.rows.write();
        let map = &**rows;
        let dead: Vec<Vec<u8>> = map
            .range(from.to_vec()..until.to_vec())
            .filter(|(row, _)| MemoryBase::is_dead(map, &reclaim, row))
            .map(|(row, _)| row.clone())
            .collect();
        let map = Arc::make_mut(&mut rows);
        for row in dead {
            map.remove(&row);
        }
        Ok(())
    }

    fn bytes_in(&self, from: &[u8], until: &[u8]) -> u64 {
        let rows = self.rows.read();
        rows.range(from.to_vec()..until.to_vec()).map(|(row, value)| (row.len() + value.len()) as u64).sum()
    }

    fn pressure(&self) -> Pressure {
        Pressure::default()
    }

    fn checkpoint(&self, _: &Path) -> Result<(), BaseError> {
        Err(BaseError::Failed("a memory engine has nothing on disk to copy".into()))
    }

    fn background_error(&self) -> Option<BaseError> {
        None
    }

    fn resume(&self) -> Result<(), BaseError> {
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        0
    }

    fn set_cache_bytes(&self, _: u64) {}

    fn figures(&self) -> Vec<(&'static str, u64)> {
        vec![("rows", self.len() as u64)]
    }

    fn close(&self) {}
}

impl Cursor for Rest {
    fn step(&mut self) -> Result<Step<'_>, BaseError> {
        if self.blocked {
            return Ok(Step::WouldBlock);
        }
        if self.from >= self.until {
            return Ok(Step::End);
        }
        let mut rest = self.map.range(self.from.clone()..self.until.clone());
        let next = match self.direction {
            Direction::Forward => rest.next(),
            Direction::Backward => rest.next_back(),
        };
        let Some((key, value)) = next else { return Ok(Step::End) };
        match self.direction {
            Direction::Forward => {
                self.from.clone_from(key);
                self.from.push(0);
            }
            Direction::Backward => self.until.clone_from(key),
        }
        Ok(Step::Row { key, value })
    }
}
