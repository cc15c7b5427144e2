//! Deadlines that have passed: candidates for active expiry.

use crate::base::{Direction, Step, Tier};
use crate::memtable::Found;
use crate::row::{self, Family, Space};
use crate::store::Store;

/// A deadline that has passed, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub space: Space,
    pub deadline_ms: u64,
    pub name: Vec<u8>,
}

impl Due {
    fn of(row: &[u8]) -> Option<Due> {
        row::parse_expire_row(row).map(|(deadline_ms, key)| Due {
            space: key.space,
            deadline_ms,
            name: key.name.to_vec(),
        })
    }
}

impl Store {
    /// Returns passed deadlines, as far as the memtable knows: candidates for active expiry, at most `max`.
    pub fn due_deadlines(&self, now_ms: u64, max: usize) -> Vec<Due> {
        self.memtable
            .due(now_ms, max, &|space| self.databases.is_dead(space))
            .iter()
            .filter_map(|row| Due::of(row))
            .collect()
    }

    /// Returns passed deadlines from the base of one database: reads the disk, for the I/O pool. Deadlines that the
    /// memtable has deleted meanwhile may be among them; active expiry looks at the key again before it removes it.
    pub fn due_in_base(&self, database: u32, now_ms: u64, max: usize) -> Result<Vec<Due>, String> {
        let space = self.databases.space(database);
        let (from, _) = row::family_range(Family::Expire, space);
        let mut until = from.clone();
        until.extend_from_slice(&(now_ms.saturating_add(1)).to_be_bytes());
        let mut due = Vec::new();
        let mut cursor =
            self.base.scan(&from, &until, Direction::Forward, Tier::Disk).map_err(|error| error.to_string())?;
        while due.len() < max {
            match cursor.step().map_err(|error| error.to_string())? {
                Step::Row { key, .. } => {
                    // A row that the memtable knows, deleted or not, is the memtable's to tell.
                    if self.memtable.row(key) == Found::Unknown
                        && let Some(found) = Due::of(key)
                    {
                        due.push(found);
                    }
                }
                Step::End | Step::WouldBlock => break,
            }
        }
        Ok(due)
    }
}
