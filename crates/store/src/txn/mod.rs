//! `Txn`: a command's private overlay over committed state. Reads go *own writes → memtable → row cache → base*, writes
//! are buffered in the bytes of the log record that they will be, and nothing has any effect before `commit`.
//!
//! Handlers know neither cache nor memtable: a transaction is the only way to the rows. A read that only the disk can
//! answer ends with `Stop::WouldBlock` on an event loop; the transaction is dropped and the command runs again
//! elsewhere, which is safe because nothing had happened yet. Ordered reads are in `visit` and `scan`, the commit in
//! `commit`; this file has a transaction's life, its context and its savepoints.

pub(crate) mod accesses;
pub(crate) mod commit;
mod draw;
mod facts;
mod gate;
pub(crate) mod merge;
pub(crate) mod next;
mod notes;
pub(crate) mod own;
mod reads;
mod repeat;
mod scan;
mod statements;
pub(crate) mod view;
pub(crate) mod visit;
mod visiting;
mod walk;
mod writes;

pub use draw::Drawn;
pub use statements::{Before, NOTE, STATEMENTS_BYTES_MAX, UNSAID, Unstated, is_stated};
pub use visiting::{KeyLocks, Lacking};

use crate::access::Touch;
use crate::databases::CountChanges;
use crate::origin::Repeated;
use crate::random::next_random;
use crate::reclaim::Orphan;
use crate::refusal::Refusal;
use crate::row::{self, Key, ObjectId, RowKey, Space};
use crate::stop::{Mode, Stop};
use crate::store::Store;
use crate::txn::accesses::OwnAccesses;
use crate::txn::gate::Gate;
use crate::txn::own::{Overlay, OverlayMark};
use crate::txn::walk::Walk;
use crate::value::Value;
use haypile_log::Index;
use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

/// The values that a command gets from outside: with them, its run is repeatable.
#[derive(Clone, Copy)]
pub struct Call<'s> {
    /// The wall clock in milliseconds since 1970.
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
    /// Adds rows that were loaded at the same time for this session. Of two sets that a flush has come between, only
    /// the newer one counts.
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

/// The facts about a key that a plain SET has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    Absent,
    /// The key holds an inline string without a deadline: overwriting its meta row is all there is to do.
    Plain,
    Row(Value),
}

/// The state of a transaction, to go back to.
#[derive(Clone, Debug)]
pub struct Savepoint {
    overlay: OverlayMark,
    counts: CountChanges,
    named: usize,
    database: u32,
    moved: Vec<(u32, Space)>,
    next_space: Option<Space>,
    issued: usize,
    lapsed: Vec<Lapsed>,
    events: usize,
    ready: usize,
    expired: u32,
    expired_fields: u64,
    accesses: usize,
}

/// A key that was removed because its deadline had passed.
#[derive(Clone, Debug)]
struct Lapsed {
    space: Space,
    name: Box<[u8]>,
    deadline_ms: u64,
}

/// Lookups of keys whose values a command reads, as `keyspace_hits` and `keyspace_misses` count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    pub hits: u64,
    pub misses: u64,
}

/// Memory that one transaction leaves to the next.
#[derive(Default)]
pub struct TxnBuffers {
    overlay: Lent,
}

/// An overlay in memory of its own, so that a transaction is small to move. Invariant: it is there from a transaction's
/// beginning to its end.
#[derive(Default)]
pub(crate) struct Lent(Option<Box<Overlay>>);

impl Deref for Lent {
    type Target = Overlay;

    #[inline]
    fn deref(&self) -> &Overlay {
        self.0.as_ref().expect("it is there until the transaction ends")
    }
}

impl DerefMut for Lent {
    #[inline]
    fn deref_mut(&mut self) -> &mut Overlay {
        self.0.as_mut().expect("it is there until the transaction ends")
    }
}

/// A transaction. Made by `Store::begin`.
pub struct Txn<'s> {
    pub(crate) store: &'s Store,
    pub(crate) call: Call<'s>,
    pub(crate) overlay: Lent,
    pub(crate) counts: CountChanges,
    /// Meta rows of keys whose values the transaction changes beside these rows.
    pub(crate) named: SmallVec<[RowKey; 1]>,
    /// Objects that this transaction made.
    pub(crate) issued: Vec<ObjectId>,
    /// The number of issued objects that are older than the last savepoint. Rows of the younger ones may be written
    /// ahead of the rest: a rollback to the savepoint makes garbage of them.
    issued_before: usize,
    /// Objects of which rows were written ahead: garbage unless this transaction commits.
    pub(crate) ahead: Vec<Orphan>,
    /// Objects of commands that were undone: garbage when the transaction ends.
    undone: Vec<Orphan>,
    /// Whether the transaction's own writes are committed.
    pub(crate) committed: bool,
    /// The newest record whose effects were read.
    gate: Gate,
    /// Databases whose space this transaction changes, and the space that comes after the ones it took.
    pub(crate) moved: Vec<(u32, Space)>,
    pub(crate) next_space: Option<Space>,
    /// Keys whose passed deadlines this transaction has carried out and that it has not written since. For a reader
    /// that has seen them absent already, nothing changed.
    lapsed: Vec<Lapsed>,
    /// The number of rows that the transaction may still read, where it holds no key locks: one, because a single row
    /// is always that of one moment.
    rows_left: Option<u8>,
    /// The number of rows that were looked up in the base; counted on event loops alone.
    looked_in_base: u32,
    /// The walk over the base by which keys in order are looked up, during a command of very many.
    walk: Option<Box<Walk>>,
    /// Whether the transaction has read rows.
    has_read: Cell<bool>,
    lookups: Lookups,
    /// The number of keys that were removed because their deadlines had passed.
    expired: u32,
    /// The number of fields that were removed because their deadlines had passed, those of such keys included.
    expired_fields: u64,
    /// The classes of events that a client listens for, as bits; their meaning is the caller's business.
    event_classes: u32,
    events: Vec<KeyEvent>,
    /// Whether clients wait for keys: the keys that come to be are then noted.
    notes_ready: bool,
    ready: Vec<Ready>,
    /// Whether the caller holds the exclusive lock, so that no other command runs.
    is_exclusive: bool,
    /// Whether another call makes those that run.
    is_nested: bool,
    /// The locks of keys that are not among the arguments.
    locks: Option<&'s dyn KeyLocks>,
    /// Keys whose locks the transaction lacked.
    lacking: Vec<Lacking>,
    random: u64,
    /// The time up to which deadlines have passed.
    pub(crate) expiry_ms: u64,
    /// The command of another server that the transaction repeats, if it does.
    pub(crate) repeated: Option<&'s Repeated>,
    /// Whether the record says what its effects do.
    pub(crate) states: bool,
    /// Whether the transaction notes what there was before.
    notes_before: bool,
    /// Bytes of the notes that were made.
    noted_bytes: usize,
    /// Keys that the transaction has found expired since its last statement.
    unstated: Vec<Unstated>,
    /// The command that runs has nothing to say of what it does.
    is_silent: bool,
    /// The transaction had too many statements.
    is_unsaid: bool,
    /// The rows that a run in `Mode::Load` has read.
    pins: Option<Box<Pins>>,
    /// The trace that the transaction's lookups of keys leave on their rows.
    pub(crate) touch: Touch<'s>,
    pub(crate) accesses: Option<Box<OwnAccesses>>,
}

/// An event of a key, to be told when the transaction has committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEvent<N = &'static str> {
    /// The class, as one bit of those that the caller asked for.
    pub class: u32,
    pub name: N,
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

impl Store {
    /// Begins a transaction, which borrows the memory of `buffers`; `Txn::finish` gives it back.
    #[inline]
    pub fn begin<'s>(&'s self, buffers: TxnBuffers, call: Call<'s>) -> Txn<'s> {
        Txn::new(self, buffers, call)
    }
}

impl<'s> Txn<'s> {
    pub(crate) fn new(store: &'s Store, buffers: TxnBuffers, call: Call<'s>) -> Self {
        let touch = match call.mode {
            Mode::Memory | Mode::Disk => store.access_policy.touch(call.now_ms, call.seed),
            // The command runs again, and counts then.
            Mode::Look | Mode::Load => Touch::Nothing,
        };
        Txn {
            store,
            overlay: Lent(Some(buffers.overlay.0.unwrap_or_default())),
            counts: CountChanges::new(),
            named: SmallVec::new(),
            issued: Vec::new(),
            issued_before: 0,
            ahead: Vec::new(),
            undone: Vec::new(),
            committed: false,
            // A record also says which space a database is.
            gate: Gate::new(store.databases.exchanged_at()),
            moved: Vec::new(),
            next_space: None,
            lapsed: Vec::new(),
            rows_left: None,
            looked_in_base: 0,
            walk: None,
            has_read: Cell::new(false),
            lookups: Lookups::default(),
            expired: 0,
            expired_fields: 0,
            event_classes: 0,
            events: Vec::new(),
            notes_ready: false,
            ready: Vec::new(),
            is_exclusive: false,
            is_nested: false,
            locks: None,
            lacking: Vec::new(),
            random: call.seed,
            expiry_ms: call.now_ms,
            repeated: None,
            states: store.states() && matches!(call.mode, Mode::Memory | Mode::Disk),
            notes_before: store.notes_before(),
            noted_bytes: 0,
            unstated: Vec::new(),
            is_silent: false,
            is_unsaid: false,
            pins: (call.mode == Mode::Load).then(|| Box::new(Pins { epoch: store.epoch(), rows: HashMap::new() })),
            touch,
            accesses: None,
            call,
        }
    }

    /// Tells the transaction that its caller holds the exclusive lock: no other command runs.
    pub fn set_exclusive(&mut self) {
        self.is_exclusive = true;
    }

    /// Tells the transaction whether another call makes those that follow.
    pub fn set_nested(&mut self, is_nested: bool) {
        self.is_nested = is_nested;
    }

    /// Returns whether another call makes those that run: some answer differently there.
    pub fn is_nested(&self) -> bool {
        self.is_nested
    }

    /// Returns whether this is a dry run, without key locks and without a commit: the rows that it reads may change
    /// meanwhile, and nothing is noted of them.
    pub fn is_dry_run(&self) -> bool {
        matches!(self.call.mode, Mode::Look | Mode::Load)
    }

    /// Returns the wall clock of this command, in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.call.now_ms
    }

    /// Returns the next number of the command's own sequence, which is repeated when the command runs again.
    pub fn random(&mut self) -> u64 {
        next_random(&mut self.random)
    }

    pub fn database(&self) -> u32 {
        self.call.database
    }

    /// Selects a database. Panics if it does not exist: SELECT has checked.
    pub fn select(&mut self, database: u32) {
        assert!(database < self.databases(), "a selected database exists");
        self.call.database = database;
    }

    pub fn databases(&self) -> u32 {
        self.store.databases.len()
    }

    /// Returns the longest value that a command may make by adding to one: `proto-max-bulk-len`.
    pub fn value_bytes_max(&self) -> u64 {
        self.store.value_bytes_max.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns the bytes that the transaction may write at once: `txn-bytes-max`. Rows of new objects do not count.
    pub fn bytes_max(&self) -> u64 {
        self.store.txn_bytes_max()
    }

    /// Returns whether `maxmemory-policy` is one that counts how often keys are used.
    pub fn has_frequency_policy(&self) -> bool {
        self.store.access_policy.counts()
    }

    /// Returns the space of a database as this transaction sees it.
    pub fn space(&self, database: u32) -> Space {
        match self.moved.iter().rev().find(|(moved, _)| *moved == database) {
            Some((_, space)) => *space,
            None => self.store.databases.space(database),
        }
    }

    /// Returns a key of the selected database.
    #[inline]
    pub fn key<'a>(&self, name: &'a [u8]) -> Key<'a> {
        self.key_in(self.call.database, name)
    }

    /// Returns an element's place in the order of its collection: the hash of a key of this name, but never the highest
    /// number.
    #[inline]
    pub fn element_hash(&self, element: &[u8]) -> u32 {
        self.store.element_hash(element)
    }

    /// Returns a number that the crates above have set, if they have.
    #[inline]
    pub fn tunable(&self, index: usize) -> Option<i64> {
        self.store.tunables.get(index)
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

    /// Looks whether a command that runs for long without reading may go on.
    ///
    /// # Errors
    /// The server stops.
    pub fn check_goes_on(&self) -> Result<(), Stop> {
        self.goes_on()
    }

    /// Ends a command that runs on the I/O pool when the server stops: it may have minutes to go.
    #[inline]
    pub(crate) fn goes_on(&self) -> Result<(), Stop> {
        if self.call.mode == Mode::Disk && self.store.stops_commands.load(Ordering::Relaxed) {
            return Err(Stop::Refused(Refusal::Stopping));
        }
        Ok(())
    }

    /// Ends a command that is going to take long unless it is on the I/O pool under its locks.
    pub fn long(&self) -> Result<(), Stop> {
        if self.call.mode == Mode::Disk { Ok(()) } else { Err(Stop::Long) }
    }

    /// Returns whether this runs on a thread that may take long: as a dry run, or under the locks.
    pub fn may_take_long(&self) -> bool {
        matches!(self.call.mode, Mode::Load | Mode::Disk)
    }

    /// Returns room for the rows that the command is going to collect: none yet. On an event loop, where only short
    /// collections are made, no counter is asked.
    pub fn room(&self) -> crate::room::Taken {
        let room = (self.call.mode == Mode::Disk).then(|| self.store.room.get().cloned()).flatten();
        crate::room::Taken::of(room)
    }

    /// Returns a state to go back to. Bytes that are written after it to an older object count against `txn-bytes-max`.
    pub fn savepoint(&mut self) -> Savepoint {
        self.issued_before = self.issued.len();
        Savepoint {
            overlay: self.overlay.mark(),
            counts: self.counts.clone(),
            named: self.named.len(),
            database: self.call.database,
            moved: self.moved.clone(),
            next_space: self.next_space,
            issued: self.issued.len(),
            lapsed: self.lapsed.clone(),
            events: self.events.len(),
            ready: self.ready.len(),
            expired: self.expired,
            expired_fields: self.expired_fields,
            accesses: self.mark_accesses(),
        }
    }

    /// Undoes everything since `to`.
    pub fn rollback(&mut self, to: Savepoint) {
        self.overlay.rollback(to.overlay);
        self.counts = to.counts;
        self.named.truncate(to.named);
        self.call.database = to.database;
        self.moved = to.moved;
        self.next_space = to.next_space;
        self.lapsed = to.lapsed;
        self.events.truncate(to.events);
        self.ready.truncate(to.ready);
        self.expired = to.expired;
        self.expired_fields = to.expired_fields;
        self.rollback_accesses(to.accesses);
        let undone = &self.issued[to.issued..];
        self.undone.extend(self.ahead.extract_if(.., |orphan| undone.contains(&orphan.id)));
    }

    /// Returns the newest record whose effects this transaction has read.
    pub fn gate(&self) -> Index {
        let (store, gate) = (self.store, self.gate.get());
        // The base's rows are on the disk here, and perhaps nowhere else. Looked at behind all reads: a flush may have
        // ended in between.
        let asks = self.has_read.get() && store.log.asks_others();
        // In a group what is read needs a proof even where there is nothing: it rests on the first record at least.
        let least = u64::from(store.options.in_group);
        if asks { gate.max(Index(store.applied.load(Ordering::Acquire).max(least))) } else { gate }
    }

    /// Returns the keys whose meta rows the transaction wrote, some perhaps twice.
    pub fn touched(&self) -> impl Iterator<Item = Key<'_>> {
        self.overlay.keys().chain(self.overlay.sealed_keys()).filter_map(row::parse_meta_row)
    }

    /// Returns whether the transaction wrote nothing.
    pub fn is_read_only(&self) -> bool {
        self.overlay.is_empty() && self.counts.is_empty()
    }

    /// Returns the databases whose content the transaction exchanges as a whole.
    pub fn moved_databases(&self) -> impl Iterator<Item = u32> {
        self.moved.iter().map(|(database, _)| *database)
    }

    /// Returns the rows that a run in `Mode::Load` has read.
    pub fn take_pins(&mut self) -> Pins {
        self.pins.take().map(|pins| *pins).unwrap_or_default()
    }

    /// Ends the transaction without effect, unless it was committed, and gives its memory back.
    pub fn finish(mut self) -> TxnBuffers {
        self.end()
    }

    /// Ends the transaction where it is, as `finish` does: a transaction is large to move. Nothing can be asked of it
    /// afterwards.
    #[inline]
    pub fn end(&mut self) -> TxnBuffers {
        self.release_objects();
        self.overlay.clear();
        TxnBuffers { overlay: std::mem::take(&mut self.overlay) }
    }

    /// Ends the issued ids, and hands objects without an owner to the reclaimer. Most transactions have neither.
    #[inline]
    fn release_objects(&mut self) {
        if !(self.issued.is_empty() && self.ahead.is_empty() && self.undone.is_empty()) {
            self.release_some_objects();
        }
    }

    #[cold]
    fn release_some_objects(&mut self) {
        if !self.issued.is_empty() {
            // The ids of a dry run are none that the store has given out.
            if !self.is_dry_run() {
                self.store.objects.settle(&self.issued);
            }
            self.issued.clear();
        }
        // Settled only now: the base reclaims nothing of an object that may still come to be.
        if !self.ahead.is_empty() && !self.committed {
            self.store.on_orphans(std::mem::take(&mut self.ahead));
        }
        if !self.undone.is_empty() {
            self.store.on_orphans(std::mem::take(&mut self.undone));
        }
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        self.release_objects();
    }
}
