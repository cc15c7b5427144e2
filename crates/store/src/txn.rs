//! `Txn`: a command's private overlay over committed state. Reads go *own writes → memtable → row cache → base*, writes are
//! buffered in the bytes of the log record that they will be, and nothing has any effect before `commit`.
//!
//! Handlers know neither cache nor memtable: this is the only way to the rows. A read that only the disk can answer ends
//! with `Stop::WouldBlock` on an event loop; the transaction is dropped and the command runs again elsewhere, which is safe
//! because nothing had happened yet. Ordered reads are in `visit` and `scan`, the commit in `commit`.

use crate::access::Touch;
use crate::accesses::OwnAccesses;
use crate::base::{BaseError, Lookup, Tier};
use crate::cache::Cached;
use crate::databases::Counter;
use crate::limits::EncodingLimit;
use crate::memtable::{Found, Patch};
use crate::own::{Overlay, OverlayMark, print_of_key, print_of_row};
use crate::presence::Known;
use crate::reclaim::Orphan;
use crate::row::{self, Key, ObjectId, Space};
use crate::store::Store;
use crate::value::Value;
use haypile_log::Index;
use smallvec::SmallVec;
use std::collections::HashMap;

/// Why a transaction cannot go on. It is dropped; nothing has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Only the disk can answer: load the rows, then run again.
    WouldBlock,
    /// This is going to take long: run it on the I/O pool under its locks.
    Long,
    /// It needs key locks that are not held: run it under them.
    NeedsLocks,
    /// It comes to keys that nobody could know of before: run it while nothing else runs.
    Alone,
    /// It changes more than `txn-bytes-max` at once.
    TooLarge,
    /// The store takes no writes now; the text of the error reply.
    Refused(String),
    /// The disk failed or holds damaged bytes; the text of the error reply.
    Failed(String),
}

/// Where a command runs, and so what its reads may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On an event loop, under its key locks: never the disk.
    Memory,
    /// On an event loop without key locks, only to see whether the disk is needed: what it writes is dropped.
    Look,
    /// On the I/O pool without key locks, only to load rows: what it reads is pinned, what it writes is dropped.
    Load,
    /// On the I/O pool under its key locks.
    Disk,
}

/// What a command gets from outside: all that makes it repeatable.
#[derive(Clone, Copy)]
pub struct Call<'s> {
    /// Wall clock in milliseconds since 1970.
    pub now_ms: u64,
    pub seed: u64,
    pub database: u32,
    pub mode: Mode,
    pub pins: Option<&'s Pins>,
}

/// Rows that were loaded for a session's commands, valid as long as no flush has finished since.
#[derive(Default, Debug)]
pub struct Pins {
    epoch: u64,
    rows: HashMap<Vec<u8>, Option<Value>>,
}

impl Pins {
    /// Adds rows that were loaded at the same time for the same session. Of those that a flush has come between, only the
    /// newer ones count.
    pub fn add(&mut self, other: Pins) {
        if other.epoch > self.epoch {
            self.rows.clear();
            self.epoch = other.epoch;
        }
        if other.epoch == self.epoch {
            self.rows.extend(other.rows);
        }
    }
}

/// What a plain SET has to know of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    Absent,
    /// An inline string without a deadline: overwriting its meta row is all there is to do.
    Plain,
    Row(Value),
}

/// Where a transaction stood, to go back to.
#[derive(Clone, Debug)]
pub struct Savepoint {
    overlay: OverlayMark,
    counts: Counts,
    database: u32,
    moved: Vec<(u32, Space)>,
    next_space: Option<Space>,
    issued: usize,
    lapsed: Vec<Lapsed>,
    events: usize,
    ready: usize,
    accesses: usize,
}

/// A key that was removed because its deadline had passed.
#[derive(Clone, Debug)]
struct Lapsed {
    space: Space,
    name: Box<[u8]>,
    deadline_ms: u64,
}

/// Changes of counters: few, and mostly of one space.
type Counts = SmallVec<[(Space, Counter, i64); 3]>;

/// Keys that a command looked up to read their values, as `keyspace_hits` and `keyspace_misses` count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    pub hits: u64,
    pub misses: u64,
}

/// Memory that one transaction leaves to the next.
#[derive(Default)]
pub struct TxnBuffers {
    pub(crate) overlay: Overlay,
}

/// See the file's head. Made by `Store::begin`.
pub struct Txn<'s> {
    pub(crate) store: &'s Store,
    pub(crate) call: Call<'s>,
    pub(crate) overlay: Overlay,
    pub(crate) counts: Counts,
    /// Objects that this transaction made.
    pub(crate) issued: Vec<ObjectId>,
    /// How many of them are older than the last savepoint. Rows of the others may be written ahead of the rest: who goes
    /// back to the savepoint has no need of them any more.
    issued_before: usize,
    /// Objects of which rows were written ahead, noted where nothing else will find them if nobody comes to own them.
    pub(crate) ahead: Vec<Orphan>,
    /// Its own writes are what everybody sees.
    pub(crate) committed: bool,
    /// The newest record whose effects were read.
    pub(crate) gate: Index,
    /// Databases whose space this transaction changes, and the space that comes after the ones it took.
    pub(crate) moved: Vec<(u32, Space)>,
    pub(crate) next_space: Option<Space>,
    /// Keys whose passed deadlines this transaction has carried out and that it has not written since. To who has seen
    /// them absent already, nothing changed.
    lapsed: Vec<Lapsed>,
    /// How many rows it may still read, where it holds no key locks: one, which is what it is at some moment.
    rows_left: Option<u8>,
    lookups: Lookups,
    /// The classes of events that somebody wants to hear of, as bits; what they are is the caller's business.
    event_classes: u32,
    events: Vec<KeyEvent>,
    /// Somebody waits for keys: those that come to be are noted.
    notes_ready: bool,
    ready: Vec<Ready>,
    /// Nothing else runs.
    is_alone: bool,
    random: u64,
    pins: Pins,
    /// What its lookups of keys leave on their rows.
    pub(crate) touch: Touch<'s>,
    pub(crate) accesses: Option<Box<OwnAccesses>>,
}

/// Something that happened to a key, to be told when the transaction has committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEvent {
    pub name: &'static str,
    pub database: u32,
    pub key: Box<[u8]>,
}

/// A key that has come to be, or holds a value of another type than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    pub database: u32,
    pub name: Box<[u8]>,
}

/// Bytes of a new object that are kept back before they are written ahead of the rest, or, on an event loop, before the
/// command moves to the I/O pool.
const AHEAD_BYTES: usize = 1 << 20;

/// The tag of an inline string, and the flag of a deadline: the two facts of a meta row that `presence` looks at. The
/// encoding is documented in docs/format/rows.md and owned by the crate of the types, whose golden test pins both.
pub const PLAIN_STRING: [u8; 2] = [1, 0];

impl<'s> Txn<'s> {
    pub(crate) fn new(store: &'s Store, buffers: TxnBuffers, call: Call<'s>) -> Self {
        let touch = match call.mode {
            Mode::Memory | Mode::Disk => store.access_policy.touch(call.now_ms, call.seed),
            // It runs again, and counts then.
            Mode::Look | Mode::Load => Touch::Nothing,
        };
        Txn {
            store,
            overlay: buffers.overlay,
            counts: Counts::new(),
            issued: Vec::new(),
            issued_before: 0,
            ahead: Vec::new(),
            committed: false,
            // Which space a database is comes from a record, too.
            gate: store.databases.exchanged_at(),
            moved: Vec::new(),
            next_space: None,
            lapsed: Vec::new(),
            rows_left: None,
            lookups: Lookups::default(),
            event_classes: 0,
            events: Vec::new(),
            notes_ready: false,
            ready: Vec::new(),
            is_alone: false,
            random: call.seed,
            pins: Pins { epoch: if call.mode == Mode::Load { store.epoch() } else { 0 }, rows: HashMap::new() },
            touch,
            accesses: None,
            call,
        }
    }

    /// From now on, events of these classes are noted.
    #[inline]
    pub fn note_events(&mut self, classes: u32) {
        self.event_classes = classes;
    }

    /// Something has happened to a key.
    #[inline]
    pub fn on_event(&mut self, class: u32, name: &'static str, key: &Key<'_>) {
        if self.event_classes & class != 0 {
            self.note_event(name, key);
        }
    }

    #[cold]
    fn note_event(&mut self, name: &'static str, key: &Key<'_>) {
        if let Some(database) = self.database_of(key) {
            self.events.push(KeyEvent { name, database, key: key.name.into() });
        }
    }

    fn database_of(&self, key: &Key<'_>) -> Option<u32> {
        let is_there = |database: &u32| self.space(*database) == key.space;
        // Nearly always the selected one.
        Some(self.call.database).filter(is_there).or_else(|| (0..self.databases()).find(is_there))
    }

    /// From now on, keys are noted that others may wait for.
    #[inline]
    pub fn note_ready(&mut self) {
        self.notes_ready = true;
    }

    /// A key has come to be that others may wait for, or holds a value of another type than before.
    #[inline]
    pub fn on_ready(&mut self, key: &Key<'_>) {
        if self.notes_ready
            && let Some(database) = self.database_of(key)
        {
            self.ready.push(Ready { database, name: key.name.into() });
        }
    }

    /// The keys that have come to be so far, in order.
    #[inline]
    pub fn ready(&self) -> &[Ready] {
        &self.ready
    }

    /// Its caller lets nothing else run.
    pub fn be_alone(&mut self) {
        self.is_alone = true;
    }

    /// Ends a command that comes to keys which are not among its arguments, unless nothing else runs.
    pub fn alone(&self) -> Result<(), Stop> {
        if self.is_alone || self.is_rehearsal() { Ok(()) } else { Err(Stop::Alone) }
    }

    /// What has happened so far, in order.
    #[inline]
    pub fn events(&self) -> &[KeyEvent] {
        &self.events
    }

    /// For a command that reads and holds no key locks: what it sees must be one row, or it ends with `Stop::NeedsLocks`.
    pub fn read_one_row(&mut self) {
        self.rows_left = Some(1);
    }

    /// A key was looked up to read its value.
    #[inline]
    pub fn on_lookup(&mut self, found: bool) {
        self.lookups.hits += u64::from(found);
        self.lookups.misses += u64::from(!found);
    }

    pub fn lookups(&self) -> Lookups {
        self.lookups
    }

    /// Before each read of a row.
    #[inline]
    pub(crate) fn on_read(&mut self) -> Result<(), Stop> {
        match &mut self.rows_left {
            None => Ok(()),
            Some(0) => Err(Stop::NeedsLocks),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    /// Before each read of several rows, or of a part of a value that lies in several.
    pub(crate) fn on_read_many(&self) -> Result<(), Stop> {
        if self.rows_left.is_none() { Ok(()) } else { Err(Stop::NeedsLocks) }
    }

    /// It runs without key locks and is going to be dropped: what it reads may change meanwhile, and nobody learns from it.
    pub(crate) fn is_rehearsal(&self) -> bool {
        matches!(self.call.mode, Mode::Look | Mode::Load)
    }

    /// The wall clock of this command, in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.call.now_ms
    }

    /// The next number of the command's own sequence: the same ones when it runs again.
    pub fn random(&mut self) -> u64 {
        next_random(&mut self.random)
    }

    pub fn database(&self) -> u32 {
        self.call.database
    }

    /// Panics if the database does not exist: SELECT has checked.
    pub fn select(&mut self, database: u32) {
        assert!(database < self.databases(), "a selected database exists");
        self.call.database = database;
    }

    pub fn databases(&self) -> u32 {
        self.store.databases.len()
    }

    /// The longest value that a command may make by adding to one: `proto-max-bulk-len`.
    pub fn value_bytes_max(&self) -> u64 {
        self.store.value_bytes_max.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// What it may write at once: `txn-bytes-max`. Rows of new objects do not count.
    pub fn bytes_max(&self) -> u64 {
        self.store.txn_bytes_max()
    }

    /// Whether `maxmemory-policy` is one that counts how often keys are used.
    pub fn has_frequency_policy(&self) -> bool {
        self.store.access_policy.counts()
    }

    /// The space of a database as this transaction sees it.
    pub fn space(&self, database: u32) -> Space {
        match self.moved.iter().rev().find(|(moved, _)| *moved == database) {
            Some((_, space)) => *space,
            None => self.store.databases.space(database),
        }
    }

    /// A key of the selected database.
    #[inline]
    pub fn key<'a>(&self, name: &'a [u8]) -> Key<'a> {
        self.key_in(self.call.database, name)
    }

    /// Where an element of a collection stands among the others: the hash of a key of this name, but never the highest number.
    #[inline]
    pub fn element_hash(&self, element: &[u8]) -> u32 {
        self.store.element_hash(element)
    }

    /// The bound of an encoding, as the configuration has it now.
    #[inline]
    pub fn encoding_limit(&self, limit: EncodingLimit) -> i64 {
        self.store.encoding_limits.get(limit)
    }

    #[inline]
    pub fn key_in<'a>(&self, database: u32, name: &'a [u8]) -> Key<'a> {
        Key {
            space: self.space(database),
            slot: row::slot_of(name),
            hash: row::hash_of(name, self.store.hash_seed()),
            name,
        }
    }

    /// Ends a command that is going to take long unless it is on the I/O pool under its locks.
    pub fn long(&self) -> Result<(), Stop> {
        if self.call.mode == Mode::Disk { Ok(()) } else { Err(Stop::Long) }
    }

    /// Its last write of a key's meta row. After the commit the store has it.
    #[inline]
    pub(crate) fn own_key(&self, key: &Key<'_>) -> Option<usize> {
        if self.overlay.is_empty() || self.committed { None } else { self.overlay.find_key(key) }
    }

    /// Whether its last write of a row leaves it there; `None` if it has not written it.
    pub(crate) fn own_presence(&self, row: &[u8]) -> Option<bool> {
        self.own_row(row).map(|at| self.overlay.is_there(at))
    }

    fn own_row(&self, row: &[u8]) -> Option<usize> {
        if self.overlay.is_empty() || self.committed { None } else { self.overlay.find_row(row) }
    }

    /// The meta row of a key that is used: from now on it is not idle.
    #[inline]
    pub fn use_meta(&mut self, key: &Key<'_>) -> Result<Option<Value>, Stop> {
        self.touch.draw();
        self.meta_touched::<true>(key)
    }

    /// The meta row of a key that is only looked at.
    pub fn meta(&mut self, key: &Key<'_>) -> Result<Option<Value>, Stop> {
        self.meta_touched::<false>(key)
    }

    #[inline]
    fn meta_touched<const USED: bool>(&mut self, key: &Key<'_>) -> Result<Option<Value>, Stop> {
        self.on_read()?;
        if let Some(at) = self.own_key(key) {
            if USED && matches!(self.touch, Touch::Count(_)) {
                self.touch_own(key);
            }
            return Ok(self.overlay.read(at));
        }
        match self.store.memtable.meta(key, if USED { &self.touch } else { &Touch::Nothing }) {
            Found::Row(value, index) => {
                self.gate = self.gate.max(index);
                Ok(Some(value))
            }
            Found::Deleted(index) => {
                self.gate = self.gate.max(index);
                Ok(None)
            }
            Found::Unknown => {
                let row = row::meta_row(key);
                if self.store.presence.look(&row) == Known::Absent {
                    return Ok(None);
                }
                self.base_row(&row, true, USED)
            }
        }
    }

    /// As much of the meta row as an overwrite needs, which is a use of the key, too; of a plain string in the base its
    /// existence is all that is looked up.
    #[inline]
    pub fn presence(&mut self, key: &Key<'_>) -> Result<Presence, Stop> {
        self.on_read()?;
        self.touch.draw();
        if let Some(at) = self.own_key(key) {
            if matches!(self.touch, Touch::Count(_)) {
                self.touch_own(key);
            }
            return Ok(presence_of(self.overlay.read(at)));
        }
        let latch = self.store.memtable.latch_of(key);
        if let Some(entry) = latch.find(key) {
            entry.stamp().touch(&self.touch);
            self.gate = self.gate.max(entry.index());
            return Ok(match entry.value() {
                None => Presence::Absent,
                Some(value) if value.starts_with(&PLAIN_STRING) => Presence::Plain,
                Some(value) => Presence::Row(Value::from(value)),
            });
        }
        drop(latch);
        self.base_presence(key)
    }

    fn base_presence(&mut self, key: &Key<'_>) -> Result<Presence, Stop> {
        let row = row::meta_row(key);
        if matches!(self.touch, Touch::Count(_)) {
            // The count that the write takes over.
            self.store.cache.look(&row, &self.touch);
        }
        match self.store.presence.look(&row) {
            Known::Plain => return Ok(Presence::Plain),
            Known::Absent => return Ok(Presence::Absent),
            Known::No => {}
        }
        // What is about to be overwritten has no place in the row cache.
        match self.base_row(&row, false, false) {
            Ok(found) => {
                let presence = presence_of(found);
                if presence == Presence::Plain && !self.is_rehearsal() {
                    // Under the key's lock, and not in the memtable: nobody can have changed it since it was read.
                    self.store.presence.insert(&row, true);
                }
                Ok(presence)
            }
            Err(Stop::WouldBlock) if self.store.blind_set() => Ok(Presence::Absent),
            Err(stop) => Err(stop),
        }
    }

    /// Any other row, by its full key.
    pub fn row(&mut self, row: &[u8]) -> Result<Option<Value>, Stop> {
        if let Some(key) = row::parse_meta_row(row) {
            return self.meta(&key);
        }
        self.row_below(row, |_| Ok(()))
    }

    /// A row that is no meta row; `before_base` runs before the base is asked, or what was read of it.
    #[inline]
    pub(crate) fn row_below(
        &mut self,
        row: &[u8],
        before_base: impl FnOnce(&mut Self) -> Result<(), Stop>,
    ) -> Result<Option<Value>, Stop> {
        self.on_read()?;
        if let Some(at) = self.own_row(row) {
            return Ok(self.overlay.read(at));
        }
        match self.store.memtable.row(row) {
            Found::Row(value, index) => {
                self.gate = self.gate.max(index);
                Ok(Some(value))
            }
            Found::Deleted(index) => {
                self.gate = self.gate.max(index);
                Ok(None)
            }
            Found::Unknown if self.store.element_below(row) == Some(false) => Ok(None),
            Found::Unknown => {
                before_base(self)?;
                self.base_row(row, true, false)
            }
        }
    }

    /// Whether a row was loaded for this command, and is what it was.
    pub(crate) fn is_pinned(&self, row: &[u8]) -> bool {
        self.call.pins.is_some_and(|pins| pins.rows.contains_key(row) && pins.epoch == self.store.epoch())
    }

    /// A row that the memtable does not know: what was pinned, the row cache, the base. `keep` says whether
    /// the row cache is to have it from now on, `used` whether it is a key's that is used.
    pub(crate) fn base_row(&mut self, row: &[u8], keep: bool, used: bool) -> Result<Option<Value>, Stop> {
        if let Some(pins) = self.call.pins
            && let Some(found) = pins.rows.get(row)
            && pins.epoch == self.store.epoch()
        {
            return Ok(found.clone());
        }
        let tier = self.tier();
        let touch = if used { &self.touch } else { &Touch::Nothing };
        let cached = match keep {
            true => self.store.cache.get(row, touch, self.fresh_access()),
            false => self.store.cache.look(row, touch),
        };
        let found = match cached {
            Cached::Hit(found) => found,
            Cached::Miss(fill) => {
                let found = lookup(self.store.base.get(row, tier))?;
                // Fails if the flush has brought a newer version meanwhile: then it must.
                let _ = fill.insert(found.clone());
                found
            }
            Cached::Elsewhere => lookup(self.store.base.get(row, tier))?,
        };
        if self.call.mode == Mode::Load {
            self.pins.rows.insert(row.to_vec(), found.clone());
        }
        Ok(found)
    }

    pub(crate) fn tier(&self) -> Tier {
        if matches!(self.call.mode, Mode::Memory | Mode::Look) { Tier::Memory } else { Tier::Disk }
    }

    /// Writes the meta row of a key: the parts, one after the other.
    #[inline]
    pub fn put_meta(&mut self, key: &Key<'_>, parts: &[&[u8]]) -> Result<(), Stop> {
        if !self.lapsed.is_empty() {
            self.lapsed.retain(|lapsed| (lapsed.space, &*lapsed.name) != (key.space, key.name));
        }
        let prefix = row::meta_prefix(key);
        self.overlay.put(print_of_key(key), &[&prefix, key.name], parts, false);
        self.bounded()
    }

    #[inline]
    pub fn delete_meta(&mut self, key: &Key<'_>) -> Result<(), Stop> {
        self.forget_access(key);
        let prefix = row::meta_prefix(key);
        self.overlay.delete(print_of_key(key), &[&prefix, key.name], false);
        self.bounded()
    }

    /// Writes any other row. Rows of an object that this transaction made may be written ahead of the rest.
    pub fn put_row(&mut self, row: &[u8], parts: &[&[u8]]) -> Result<(), Stop> {
        self.overlay.put(print_of_row(row), &[row], parts, self.is_ahead(row));
        self.spill()
    }

    /// Whether nothing can name the row yet: an element of an object that this transaction made.
    fn is_ahead(&self, row: &[u8]) -> bool {
        !self.issued.is_empty()
            && row::Family::of(row) != Some(row::Family::Owner)
            && row::object_of(row).is_some_and(|id| self.issued[self.issued_before..].contains(&id))
    }

    fn spill(&mut self) -> Result<(), Stop> {
        if self.overlay.ahead_bytes() > AHEAD_BYTES {
            self.write_ahead()?;
        }
        self.bounded()
    }

    /// Writes `bytes` at `offset` of a row that is `len_after` bytes long afterwards, zero-extended or cut. Only the change
    /// goes into the log.
    pub fn patch_row(&mut self, row: &[u8], offset: u32, bytes: &[u8], len_after: u32) -> Result<(), Stop> {
        let patch = Patch { offset, bytes, len_after };
        assert!(patch.fits(), "a patch lies inside the row it leaves");
        // What is below is read now: it must be in memory when the change is applied.
        let earlier = self.own_row(row);
        let before = if earlier.is_some() { None } else { self.row(row)? };
        self.overlay.patch(print_of_row(row), row, patch, before, earlier, self.is_ahead(row));
        self.spill()
    }

    /// `patch_row` for the meta row of a key.
    pub fn patch_meta(&mut self, key: &Key<'_>, offset: u32, bytes: &[u8], len_after: u32) -> Result<(), Stop> {
        self.patch_row(&row::meta_row(key), offset, bytes, len_after)
    }

    pub fn delete_row(&mut self, row: &[u8]) -> Result<(), Stop> {
        self.overlay.delete(print_of_row(row), &[row], self.is_ahead(row));
        self.bounded()
    }

    fn bounded(&self) -> Result<(), Stop> {
        if self.overlay.main_bytes() as u64 > self.store.txn_bytes_max() { Err(Stop::TooLarge) } else { Ok(()) }
    }

    /// Adds to a counter of a space: part of this transaction's record.
    #[inline]
    pub fn count(&mut self, space: Space, counter: Counter, delta: i64) {
        match self.counts.iter_mut().find(|(at, which, _)| (*at, *which) == (space, counter)) {
            Some((_, _, sum)) => *sum += delta,
            None => self.counts.push((space, counter, delta)),
        }
    }

    /// A counter with this transaction's own changes.
    pub fn counter(&mut self, space: Space, counter: Counter) -> i64 {
        let sum = self.peek_counter(space, counter);
        // It stands for all records so far.
        self.gate = self.gate.max(self.store.log.last());
        sum
    }

    /// The same for who does not promise that it lasts: INFO.
    pub fn peek_counter(&self, space: Space, counter: Counter) -> i64 {
        let committed = self.store.databases.counter(space, counter);
        let pending = if self.committed { &[][..] } else { &self.counts[..] };
        let own: i64 =
            pending.iter().filter(|(at, which, _)| (*at, *which) == (space, counter)).map(|(_, _, delta)| delta).sum();
        committed + own
    }

    /// A fresh object id, whose rows nobody else can name.
    pub fn new_object(&mut self) -> Result<ObjectId, Stop> {
        let id = match self.call.mode {
            // Objects of a run that only loads rows never come to be.
            Mode::Look | Mode::Load => ObjectId(u64::MAX - 1 - self.issued.len() as u64),
            mode => self.store.issue_object(mode)?,
        };
        self.issued.push(id);
        Ok(id)
    }

    /// Gives a database a fresh, empty space; the old one's rows are garbage from then on. The caller holds the exclusive
    /// lock.
    pub fn flush_database(&mut self, database: u32) -> Result<(), Stop> {
        use crate::databases::{database_row, dead_row, next_space_row};
        let old = self.space(database);
        let fresh = self.next_space.unwrap_or_else(|| self.store.databases.next_space());
        let next = Space(fresh.0.checked_add(1).ok_or_else(|| Stop::Failed("ERR all spaces are used up".into()))?);
        self.put_row(&database_row(database), &[&fresh.0.to_be_bytes()])?;
        self.put_row(&next_space_row(), &[&next.0.to_be_bytes()])?;
        self.put_row(&dead_row(old), &[])?;
        self.counts.retain(|(space, _, _)| *space != old);
        self.moved.push((database, fresh));
        self.next_space = Some(next);
        Ok(())
    }

    /// Swaps what two databases hold. The caller holds the exclusive lock.
    pub fn swap_databases(&mut self, a: u32, b: u32) -> Result<(), Stop> {
        use crate::databases::database_row;
        let (space_a, space_b) = (self.space(a), self.space(b));
        self.put_row(&database_row(a), &[&space_b.0.to_be_bytes()])?;
        self.put_row(&database_row(b), &[&space_a.0.to_be_bytes()])?;
        self.moved.extend([(a, space_b), (b, space_a)]);
        Ok(())
    }

    /// A place to go back to. What is written after it to an object that is older counts against `txn-bytes-max`.
    pub fn savepoint(&mut self) -> Savepoint {
        self.issued_before = self.issued.len();
        Savepoint {
            overlay: self.overlay.mark(),
            counts: self.counts.clone(),
            database: self.call.database,
            moved: self.moved.clone(),
            next_space: self.next_space,
            issued: self.issued.len(),
            lapsed: self.lapsed.clone(),
            events: self.events.len(),
            ready: self.ready.len(),
            accesses: self.mark_accesses(),
        }
    }

    /// Undoes everything since `to`.
    pub fn rollback(&mut self, to: Savepoint) {
        self.overlay.rollback(to.overlay);
        self.counts = to.counts;
        self.call.database = to.database;
        self.moved = to.moved;
        self.next_space = to.next_space;
        self.lapsed = to.lapsed;
        self.events.truncate(to.events);
        self.ready.truncate(to.ready);
        self.rollback_accesses(to.accesses);
        let undone = &self.issued[to.issued..];
        let garbage: Vec<Orphan> = self.ahead.extract_if(.., |orphan| undone.contains(&orphan.id)).collect();
        if !garbage.is_empty() {
            self.store.on_orphans(garbage);
        }
    }

    /// The newest record whose effects this transaction has read.
    pub fn gate(&self) -> Index {
        self.gate
    }

    /// The keys whose meta rows it wrote, some perhaps twice.
    pub fn touched(&self) -> impl Iterator<Item = Key<'_>> {
        self.overlay.keys().filter_map(row::parse_meta_row)
    }

    /// Notes that a key was removed because its deadline had passed.
    pub fn on_lapsed(&mut self, key: &Key<'_>, deadline_ms: u64) {
        self.lapsed.push(Lapsed { space: key.space, name: key.name.into(), deadline_ms });
    }

    /// The deadline of a key that it removed for no other reason, in milliseconds since 1970.
    pub fn lapsed(&self, key: &Key<'_>) -> Option<u64> {
        let lapsed = self.lapsed.iter().find(|lapsed| (lapsed.space, &*lapsed.name) == (key.space, key.name));
        lapsed.map(|lapsed| lapsed.deadline_ms)
    }

    /// Whether it wrote anything.
    pub fn is_read_only(&self) -> bool {
        self.overlay.is_empty() && self.counts.is_empty()
    }

    /// Databases whose content it exchanges as a whole.
    pub fn moved_databases(&self) -> impl Iterator<Item = u32> {
        self.moved.iter().map(|(database, _)| *database)
    }

    /// The rows that a run in `Mode::Load` has read.
    pub fn take_pins(&mut self) -> Pins {
        std::mem::take(&mut self.pins)
    }

    /// Ends it without effect, unless it was committed, and gives its memory back.
    pub fn finish(mut self) -> TxnBuffers {
        self.settle();
        let mut overlay = std::mem::take(&mut self.overlay);
        overlay.clear();
        TxnBuffers { overlay }
    }

    fn settle(&mut self) {
        if !self.ahead.is_empty() && !self.committed {
            self.store.on_orphans(std::mem::take(&mut self.ahead));
        }
        if !self.issued.is_empty() {
            self.store.objects.settle(&self.issued);
            self.issued.clear();
        }
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        self.settle();
    }
}

/// The next number of a sequence (SplitMix64).
#[inline]
pub(crate) fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn presence_of(row: Option<Value>) -> Presence {
    match row {
        None => Presence::Absent,
        Some(value) if value.starts_with(&PLAIN_STRING) => Presence::Plain,
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

pub(crate) fn failed(error: &BaseError) -> Stop {
    Stop::Failed(format!("ERR storage error: {error}"))
}
