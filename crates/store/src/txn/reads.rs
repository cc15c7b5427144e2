//! Reads of single rows: *own writes → memtable → row cache → base*.

use super::{Presence, Txn};
use crate::access::Touch;
use crate::base::{BaseError, Lookup, Tier};
use crate::cache::Cached;
use crate::derived::Version;
use crate::memtable::Found;
use crate::presence::Known;
use crate::row::{self, Key};
use crate::stop::{Mode, Stop, failed};
use crate::value::Value;
use haypile_log::Index;

/// Rows that a run on an event loop looks up in the base at most: a millisecond's work.
const LOOKS_IN_BASE_MAX: u32 = 128;

/// The layer in which a meta row was found, or found missing.
enum FoundIn {
    Own,
    Memtable(Index),
    Base,
}

impl Txn<'_> {
    /// Restricts a transaction without key locks to a single row, so that its reads are of one moment: a read of
    /// another row ends with `Stop::NeedsLocks`.
    pub fn read_one_row(&mut self) {
        self.rows_left = Some(1);
    }

    /// Checks, before each read of a row, that the transaction may go on.
    #[inline]
    pub(crate) fn on_read(&mut self) -> Result<(), Stop> {
        self.has_read.set(true);
        match &mut self.rows_left {
            None => Ok(()),
            Some(0) => Err(Stop::NeedsLocks),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    /// Checks, before each read of several rows, or of a part of a value that lies in several, that the transaction may
    /// go on.
    pub(crate) fn on_read_many(&self) -> Result<(), Stop> {
        self.has_read.set(true);
        if self.rows_left.is_none() { Ok(()) } else { Err(Stop::NeedsLocks) }
    }

    /// Returns the transaction's last write of a key's meta row. After the commit the store has it.
    #[inline]
    pub(crate) fn own_key(&self, key: &Key<'_>) -> Option<usize> {
        if self.overlay.is_empty() || self.committed { None } else { self.overlay.find_key(key) }
    }

    /// Returns whether the transaction's last write of a row leaves it there; `None` if the transaction has not written
    /// it.
    pub(crate) fn own_presence(&self, row: &[u8]) -> Option<bool> {
        self.own_row(row).map(|at| self.overlay.is_there(at))
    }

    pub(super) fn own_row(&self, row: &[u8]) -> Option<usize> {
        if self.overlay.is_empty() || self.committed { None } else { self.overlay.find_row(row) }
    }

    /// Returns the meta row of a key that is used: from now on the key is not idle.
    #[inline]
    pub fn use_meta(&mut self, key: &Key<'_>) -> Result<Option<Value>, Stop> {
        self.touch.draw();
        self.meta_touched::<true>(key).map(|(row, _)| row)
    }

    /// Returns the meta row of a key that is used, and its version. The transaction's own writes have no version: no
    /// other reader may know them yet.
    pub fn use_meta_version(&mut self, key: &Key<'_>) -> Result<(Option<Value>, Option<Version>), Stop> {
        self.touch.draw();
        let epoch = self.store.epoch();
        let (row, found_in) = self.meta_touched::<true>(key)?;
        let version = match found_in {
            FoundIn::Own => None,
            FoundIn::Memtable(index) => Some(Version::of_record(index)),
            // A base row has no version if rows left the memtable while it was looked for, before or after it was
            // found.
            FoundIn::Base => (self.store.epoch() == epoch).then(|| Version::of_base(epoch)),
        };
        Ok((row, version))
    }

    /// Returns a number that was computed from this version of a key's row, if it is still known.
    #[inline]
    pub fn derived(&self, key: &Key<'_>, version: Version) -> Option<u64> {
        self.store.derived.get(key, version)
    }

    /// Keeps a number for the next reader of this version of a key's row: in memory, on this node.
    pub fn keep_derived(&self, key: &Key<'_>, version: Version, number: u64) {
        self.store.derived.keep(key, version, number);
    }

    /// Returns the meta row of a key that is only looked at.
    pub fn meta(&mut self, key: &Key<'_>) -> Result<Option<Value>, Stop> {
        self.meta_touched::<false>(key).map(|(row, _)| row)
    }

    #[inline]
    fn meta_touched<const USED: bool>(&mut self, key: &Key<'_>) -> Result<(Option<Value>, FoundIn), Stop> {
        self.on_read()?;
        if let Some(at) = self.own_key(key) {
            if USED && self.notes_own_uses() && self.overlay.is_there(at) {
                self.touch_own(key);
            }
            return Ok((self.overlay.read(at), FoundIn::Own));
        }
        match self.store.memtable.meta(key, if USED { &self.touch } else { &Touch::Nothing }) {
            Found::Row(value, index) => {
                self.gate.rise(index);
                Ok((Some(value), FoundIn::Memtable(index)))
            }
            Found::Deleted(index) => {
                self.gate.rise(index);
                Ok((None, FoundIn::Memtable(index)))
            }
            Found::Unknown => {
                let row = row::meta_row(key);
                if self.store.presence.look(&row) == Known::Absent {
                    return Ok((None, FoundIn::Base));
                }
                Ok((self.base_row(&row, true, USED)?, FoundIn::Base))
            }
        }
    }

    /// Returns as much of the meta row as an overwrite needs, which is a use of the key, too; of a plain string in the
    /// base only the existence is looked up.
    #[inline]
    pub fn presence(&mut self, key: &Key<'_>) -> Result<Presence, Stop> {
        self.on_read()?;
        self.touch.draw();
        if let Some(at) = self.own_key(key) {
            if self.notes_own_uses() && self.overlay.is_there(at) {
                self.touch_own(key);
            }
            return Ok(presence_of(self.overlay.read(at), &self.store.options.plain));
        }
        let latch = self.store.memtable.latch_of(key);
        if let Some(entry) = latch.find(key) {
            entry.stamp().touch(&self.touch);
            self.gate.rise(entry.index());
            return Ok(match entry.value() {
                None => Presence::Absent,
                Some(value) if value.starts_with(&self.store.options.plain) => Presence::Plain,
                Some(value) => Presence::Row(Value::from(value)),
            });
        }
        drop(latch);
        self.base_presence(key)
    }

    fn base_presence(&mut self, key: &Key<'_>) -> Result<Presence, Stop> {
        let row = row::meta_row(key);
        if matches!(self.touch, Touch::Count(_)) {
            // Stamps the cached row: the write takes over its count.
            self.store.cache.look(&row, &self.touch);
        }
        match self.store.presence.look(&row) {
            Known::Plain => return Ok(Presence::Plain),
            Known::Absent => return Ok(Presence::Absent),
            Known::No => {}
        }
        // A value that is about to be overwritten has no place in the row cache.
        match self.base_row(&row, false, false) {
            Ok(found) => {
                let presence = presence_of(found, &self.store.options.plain);
                if presence == Presence::Plain && !self.is_dry_run() {
                    // The key's lock is held, and the memtable does not have the row: no thread can have changed it
                    // since it was read.
                    self.store.presence.insert(&row, true);
                }
                Ok(presence)
            }
            Err(Stop::WouldBlock) if self.store.blind_set() => Ok(Presence::Absent),
            Err(stop) => Err(stop),
        }
    }

    /// Returns any other row, by its full key.
    pub fn row(&mut self, row: &[u8]) -> Result<Option<Value>, Stop> {
        if let Some(key) = row::parse_meta_row(row) {
            return self.meta(&key);
        }
        self.on_read()?;
        if let Some(newer) = self.row_above_base(row) {
            return Ok(newer);
        }
        if self.store.element_below(row) == Some(false) {
            return Ok(None);
        }
        // The epoch after the memtable was asked: rows that have left it before are in the base of that one.
        if let Some(found) = self.store.stretches.row(self.store.epoch(), row) {
            return Ok(found);
        }
        self.base_row(row, true, false)
    }

    /// Returns what the transaction itself or the memtable has of a row that is no meta row; nothing if only the base
    /// may know it.
    #[inline]
    pub(crate) fn row_above_base(&mut self, row: &[u8]) -> Option<Option<Value>> {
        if let Some(at) = self.own_row(row) {
            return Some(self.overlay.read(at));
        }
        match self.store.memtable.row(row) {
            Found::Row(value, index) => {
                self.gate.rise(index);
                Some(Some(value))
            }
            Found::Deleted(index) => {
                self.gate.rise(index);
                Some(None)
            }
            Found::Unknown => None,
        }
    }

    /// Keeps a row of the base for the run that this one loads rows for.
    pub(crate) fn pin(&mut self, row: &[u8], found: &Option<Value>) {
        if let Some(pins) = &mut self.pins {
            pins.rows.insert(row.to_vec(), found.clone());
        }
    }

    /// Returns whether a row was loaded for this command, and has not changed since.
    pub(crate) fn is_pinned(&self, row: &[u8]) -> bool {
        self.call.pins.is_some_and(|pins| pins.rows.contains_key(row) && pins.epoch == self.store.epoch())
    }

    /// Returns a row that the memtable does not know: from the pins, the row cache, or the base. `keep` says whether
    /// the row cache is to have it from now on, `used` whether it is that of a key that is used.
    pub(crate) fn base_row(&mut self, row: &[u8], keep: bool, used: bool) -> Result<Option<Value>, Stop> {
        self.goes_on()?;
        if let Some(pins) = self.call.pins
            && let Some(found) = pins.rows.get(row)
            && pins.epoch == self.store.epoch()
        {
            return Ok(found.clone());
        }
        let touch = if used { &self.touch } else { &Touch::Nothing };
        // A row that a walk has found may not be filled in: the walk's read began before the fill.
        let cached = match keep && self.walk.is_none() {
            true => self.store.cache.get(row, touch, self.fresh_access()),
            false => self.store.cache.look(row, touch),
        };
        let found = match cached {
            Cached::Hit(found) => found,
            Cached::Miss(fill) => {
                let found = self.look_in_base(row)?;
                // Fails if the flush has brought a newer version meanwhile, which must win.
                let _ = fill.insert(found.clone());
                found
            }
            Cached::Elsewhere => self.look_in_base(row)?,
        };
        self.pin(row, &found);
        Ok(found)
    }

    /// Notes looks into the base on an event loop: only so many may be, since each takes several microseconds even
    /// where no disk is read. The others are to be loaded, as if the disk had to be read. So is any row where hardly
    /// any were in memory of late.
    pub(crate) fn on_look_in_base(&mut self, looks: usize) -> Result<(), Stop> {
        self.looked_in_base = self.looked_in_base.saturating_add(looks as u32);
        if self.looked_in_base > LOOKS_IN_BASE_MAX || !self.store.attempts.is_due() {
            return Err(Stop::WouldBlock);
        }
        Ok(())
    }

    /// Looks a row up in the base.
    fn look_in_base(&mut self, row: &[u8]) -> Result<Option<Value>, Stop> {
        if self.tier() == Tier::Disk {
            // The epoch after the memtable was asked: rows that have left it before are in the base of that one.
            if let Some(walk) = &mut self.walk
                && let Some(found) =
                    walk.find(&*self.store.base, self.store.epoch(), row).map_err(|error| failed(&error))?
            {
                return Ok(found);
            }
            return lookup(self.store.base.get(row, Tier::Disk));
        }
        self.on_look_in_base(1)?;
        let found = self.store.base.get(row, Tier::Memory);
        self.store.attempts.note(matches!(found, Ok(Lookup::Row(_) | Lookup::Absent)));
        lookup(found)
    }

    pub(crate) fn tier(&self) -> Tier {
        if matches!(self.call.mode, Mode::Memory | Mode::Look) { Tier::Memory } else { Tier::Disk }
    }
}

fn presence_of(row: Option<Value>, plain: &[u8; 2]) -> Presence {
    match row {
        None => Presence::Absent,
        Some(value) if value.starts_with(plain) => Presence::Plain,
        Some(value) => Presence::Row(value),
    }
}

fn lookup(found: Result<Lookup, BaseError>) -> Result<Option<Value>, Stop> {
    match found {
        Ok(Lookup::Row(value)) => Ok(Some(value)),
        Ok(Lookup::Absent) => Ok(None),
        Ok(Lookup::WouldBlock) => Err(Stop::WouldBlock),
        Err(error) => Err(failed(&error)),
    }
}
