//! An import into a data directory: keys become transactions on a store that no other process has.
//!
//! An empty directory is loaded (`store::Load`): transactions are sorted past log and memtable, and take effect when
//! the file has been read to its end. Elsewhere each is committed, and takes effect then. Rows of a long value are
//! written ahead, so that such a value is committed in either case.
//!
//! Short strings are gathered, and written many at a time: the memory that their lookups and insertions touch is
//! fetched for all of them together. Every other key is a transaction of its own. How idle keys were is not kept,
//! because no store keeps it on disk. Nothing waits for the disk but to let the flush keep up.

use super::progress::Progress;
use super::tally::{DEADLINE_OF_MEMBER, Tally};
use super::{Ended, Target};
use haypile_commands::function;
use haypile_commands::transfer::{Receiver, Refused};
use haypile_config::Selection;
use haypile_rdb::{Event, Kind, Part, Sink, Why};
use haypile_store::{
    Call, Key, Load, LoadError, Mode, Slot, Space, Stop, Store, TOGETHER_MAX, Txn, TxnBuffers, slot_of,
};
use haypile_types::key::Header;
use haypile_types::{key, string};
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// Strings that are written together.
const BATCH_KEYS: usize = TOGETHER_MAX;

/// Bytes of names and values after which the strings are written, however few they are.
const BATCH_BYTES: usize = 256 << 10;

/// Bytes of the log that are handed to the operating system at once.
const LOG_WRITE_BYTES: usize = 1 << 20;

/// Bytes of scripts that are kept, with what each takes beside its text: a Redis keeps them in its memory, too.
const SCRIPTS_BYTES_MAX: usize = 64 << 20;
const SCRIPT_BYTES: usize = 256;

/// Elements of one value between two looks at the clock.
const TELL_ELEMENTS: u64 = 4096;

pub struct Directory<'s> {
    store: &'s Store,
    /// The load, into a directory that was empty.
    load: Option<Load<'s>>,
    /// Whether keys that exist stay as they are.
    keep: bool,
    /// Whether keys come in whose deadlines have passed.
    keeps_expired: bool,
    /// The keys that come in.
    selection: Selection,
    /// Whether keys of the database come in.
    is_selected: bool,
    database: u32,
    /// The database in which the stream of commands goes on behind the file, as the file says.
    stream_database: u32,
    batch: Batch,
    /// The key whose value is being read.
    key: Current<'s>,
    about: About,
    buffers: TxnBuffers,
    /// Bytes of values since the log was written.
    unwritten: usize,
    tally: Tally,
    /// The name of the last key that is no string, if it was taken.
    named: Option<Vec<u8>>,
    scripts: Scripts,
    /// Keys that the load has taken, by database and type.
    loaded: Vec<(u32, Kind, u64)>,
    progress: Progress,
}

/// The scripts that a file of Redis 4.0 to 6.2 has for a replica.
#[derive(Default)]
pub struct Scripts {
    pub texts: Vec<Box<[u8]>>,
    bytes: usize,
    /// Scripts that had no room.
    pub left_out: u64,
}

impl Scripts {
    fn add(&mut self, text: &[u8]) {
        let bytes = self.bytes.saturating_add(text.len()).saturating_add(SCRIPT_BYTES);
        if bytes > SCRIPTS_BYTES_MAX {
            self.left_out += 1;
            return;
        }
        self.bytes = bytes;
        self.texts.push(text.into());
    }
}

/// Short strings that are not written yet.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    strings: Vec<Gathered>,
}

/// A short string: where its name and its value lie in the batch's bytes.
struct Gathered {
    name: Range<usize>,
    value: Range<usize>,
    deadline_ms: Option<u64>,
}

/// The facts that precede a key's value in the file.
struct About {
    kind: Kind,
    deadline_ms: Option<u64>,
    position: u64,
    elements: u64,
}

/// The destination of the key that is being read.
enum Current<'s> {
    Nothing,
    /// The key's parts are ignored.
    Skipped,
    /// The name of a string lies in the batch.
    String {
        name: Range<usize>,
    },
    Value(Box<Value<'s>>),
}

/// A key in the making.
struct Value<'s> {
    txn: Txn<'s>,
    key: Located,
    before: Option<Header>,
    receiver: Receiver,
}

/// A key that has its name.
struct Located {
    space: Space,
    slot: Slot,
    hash: u32,
    name: Vec<u8>,
}

impl Located {
    fn key(&self) -> Key<'_> {
        Key { space: self.space, slot: self.slot, hash: self.hash, name: &self.name }
    }
}

impl<'s> Directory<'s> {
    pub fn new(store: &'s Store, load: Option<Load<'s>>, keep: bool, progress: Progress) -> Directory<'s> {
        Directory {
            store,
            load,
            keep,
            keeps_expired: false,
            selection: Selection::default(),
            is_selected: true,
            database: 0,
            stream_database: 0,
            batch: Batch::default(),
            key: Current::Nothing,
            about: About { kind: Kind::String, deadline_ms: None, position: 0, elements: 0 },
            buffers: TxnBuffers::default(),
            unwritten: 0,
            tally: Tally::new(),
            named: None,
            scripts: Scripts::default(),
            loaded: Vec::new(),
            progress,
        }
    }

    /// Has keys come in whose deadlines have passed, as a replica keeps them until its master removes them, and
    /// scripts; and no keys but those that are selected.
    pub fn for_replica(self, selection: &Selection) -> Self {
        let is_selected = selection.has_database(self.database);
        Directory { keeps_expired: true, selection: selection.clone(), is_selected, ..self }
    }

    /// Returns whether a key of the database comes in.
    fn selects(&self, name: &[u8]) -> bool {
        self.is_selected && self.selection.has_slot(slot_of(name).0)
    }

    /// Returns the scripts of the file, if it is for a replica.
    pub fn take_scripts(&mut self) -> Scripts {
        std::mem::take(&mut self.scripts)
    }

    /// Returns the database in which the stream of commands goes on behind the file: a replica that hands on its
    /// master's stream does not begin with a SELECT.
    pub fn stream_database(&self) -> u32 {
        self.stream_database
    }

    fn begin(&mut self) -> Txn<'s> {
        let call = Call { now_ms: now_ms(), seed: 0, database: self.database, mode: Mode::Disk, pins: None };
        let mut txn = self.store.begin(std::mem::take(&mut self.buffers), call);
        txn.set_touching(false);
        if self.keeps_expired {
            txn.keep_expired();
        }
        txn
    }

    fn on_key(&mut self, key: haypile_rdb::Key<'_>) -> Result<(), Ended> {
        let haypile_rdb::Key { kind, deadline_ms, position, .. } = key;
        self.about = About { kind, deadline_ms, position, elements: 0 };
        if !self.selects(key.name) {
            (self.key, self.named) = (Current::Skipped, None);
            return Ok(());
        }
        if kind == Kind::String {
            self.key = Current::String { name: self.batch.push(key.name) };
        } else {
            self.write_batch()?;
            self.begin_value(key.name)?;
        }
        Ok(())
    }

    /// Begins a value that is made part by part, in a transaction of its own.
    fn begin_value(&mut self, name: &[u8]) -> Result<(), Ended> {
        self.named = None;
        self.store.wait_for_room().map_err(refused)?;
        let mut txn = self.begin();
        if has_passed(self.about.deadline_ms, &txn) {
            self.tally.expired += 1;
            self.buffers = txn.finish();
            self.key = Current::Skipped;
            return Ok(());
        }
        let Key { space, slot, hash, name } = txn.key(name);
        let key = Located { space, slot, hash, name: name.to_vec() };
        let before = match &self.load {
            Some(_) => None,
            None => key::lookup_write(&mut txn, &key.key()).map_err(|error| refused(stop_of(error)))?,
        };
        let before = before.map(|entry| entry.header);
        if self.keep && before.is_some() {
            self.tally.kept += 1;
            self.buffers = txn.finish();
            self.key = Current::Skipped;
            return Ok(());
        }
        let receiver = Receiver::new(self.about.kind);
        self.key = Current::Value(Box::new(Value { txn, key, before, receiver }));
        Ok(())
    }

    fn on_part(&mut self, part: Part<'_>) -> Result<(), Ended> {
        self.about.elements += u64::from(!matches!(part, Part::Ahead { .. }));
        if self.about.elements.is_multiple_of(TELL_ELEMENTS) {
            self.tell();
        }
        if let (Current::String { name }, Part::String(value)) = (&self.key, part) {
            let name = name.clone();
            if value.len() <= string::INLINE_BYTES_MAX {
                let value = self.batch.push(value);
                self.batch.strings.push(Gathered { name, value, deadline_ms: self.about.deadline_ms });
                self.key = Current::Nothing;
                return Ok(());
            }
            let name = self.batch.bytes[name].to_vec();
            self.write_batch()?;
            self.begin_value(&name)?;
        }
        let Current::Value(value) = &mut self.key else { return Ok(()) };
        let Value { txn, key, receiver, .. } = &mut **value;
        receiver.take(txn, &key.key(), part).map_err(|why| match why {
            Refused::Stop(error) => refused(stop_of(error)),
            Refused::Corrupt(what) => Ended::Input(haypile_rdb::Error {
                position: self.about.position,
                key: Some(key.name.clone()),
                why: Why::Corrupt(what),
            }),
        })
    }

    fn on_end(&mut self, elements: u64) -> Result<(), Ended> {
        match std::mem::replace(&mut self.key, Current::Nothing) {
            Current::Value(value) if elements == 0 => {
                self.tally.empty += 1;
                self.buffers = value.txn.finish();
            }
            Current::Value(value) => self.end_value(*value)?,
            Current::Nothing | Current::Skipped | Current::String { .. } => {}
        }
        if self.batch.strings.len() >= BATCH_KEYS || self.batch.bytes.len() >= BATCH_BYTES {
            self.write_batch()?;
        }
        Ok(())
    }

    /// Puts a library into effect at once: there are few.
    fn on_function(&mut self, code: &[u8]) -> Result<(), Ended> {
        self.write_batch()?;
        let mut txn = self.begin();
        txn.set_exclusive();
        match function::import(&mut txn, code, self.keep) {
            Ok(true) => {
                txn.commit().map_err(refused)?;
                self.tally.libraries += 1;
            }
            Ok(false) => self.tally.kept_libraries += 1,
            Err(haypile_commands::Error::Stop(stop)) => return Err(refused(stop)),
            Err(_) => self.tally.skip_function(code),
        }
        self.buffers = txn.finish();
        Ok(())
    }

    fn end_value(&mut self, value: Value<'s>) -> Result<(), Ended> {
        let Value { mut txn, key: located, before, receiver } = value;
        let About { kind, deadline_ms, .. } = self.about;
        let key = located.key();
        let finish = || {
            if let Some(before) = &before {
                key::remove(&mut txn, &key, before).map_err(stop_of)?;
            }
            receiver.finish(&mut txn, &key, deadline_ms).map_err(|error| match error {
                haypile_commands::Error::Stop(stop) => stop,
                error => Stop::Failed(format!("{:?}", error.into_reply())),
            })
        };
        if finish().map_err(refused)? {
            self.end(txn, kind, 1)?;
            self.named = Some(located.name);
        } else {
            // The deadlines of all of its fields had passed.
            self.tally.expired += 1;
            self.buffers = txn.finish();
        }
        self.write_log(4096);
        self.tell();
        Ok(())
    }

    /// Makes keys take effect: now, or with all that is loaded.
    fn end(&mut self, mut txn: Txn<'s>, kind: Kind, keys: u64) -> Result<(), Ended> {
        let is_loaded = match &mut self.load {
            Some(load) => load.take(&mut txn).map_err(refused)?,
            None => false,
        };
        if is_loaded {
            match self.loaded.iter_mut().find(|(database, of, _)| (*database, *of) == (self.database, kind)) {
                Some((_, _, count)) => *count += keys,
                None => self.loaded.push((self.database, kind, keys)),
            }
        } else {
            txn.commit().map_err(refused)?;
            self.tally.add(self.database.into(), kind, keys);
        }
        self.buffers = txn.finish();
        Ok(())
    }

    /// Puts the load into effect.
    fn end_load(&mut self) -> Result<(), Ended> {
        let Some(load) = self.load.take() else { return Ok(()) };
        let progress = &mut self.progress;
        load.finish(|done, rows| progress.tell_sorted(done, rows)).map_err(|error| {
            Ended::Refused(match error {
                LoadError::Failed(why) => why,
                LoadError::Twice { database, name } => {
                    let (name, database) = (name.escape_ascii(), database.unwrap_or_default());
                    format!("The file is wrong: key \"{name}\" of database {database} is in it twice.")
                }
            })
        })?;
        for (database, kind, keys) in self.loaded.drain(..) {
            self.tally.add(database.into(), kind, keys);
        }
        Ok(())
    }

    fn tell(&mut self) {
        let loaded: u64 = self.loaded.iter().map(|(_, _, keys)| keys).sum();
        self.progress.tell(self.tally.passed() + loaded);
    }

    /// Writes the strings that were gathered.
    fn write_batch(&mut self) -> Result<(), Ended> {
        if self.batch.strings.is_empty() {
            self.batch.bytes.clear();
            return Ok(());
        }
        self.store.wait_for_room().map_err(refused)?;
        let mut txn = self.begin();
        let mut batch = std::mem::take(&mut self.batch);
        let Batch { bytes, strings } = &batch;
        let keys: Vec<Key<'_>> = strings.iter().map(|string| txn.key(&bytes[string.name.clone()])).collect();
        if self.load.is_none() {
            self.store.prefetch(&keys, true);
        }
        let mut count = 0;
        for (at, (string, key)) in strings.iter().zip(&keys).enumerate() {
            if has_passed(string.deadline_ms, &txn) {
                self.tally.expired += 1;
                continue;
            }
            let before = if self.load.is_some() {
                // The load finds out which keys come twice, but it sees only the last state of a row within one
                // transaction.
                if keys[..at].iter().any(|other| other.hash == key.hash && other == key) {
                    self.end(txn, Kind::String, std::mem::take(&mut count))?;
                    txn = self.begin();
                }
                None
            } else if self.keep {
                if key::lookup_write(&mut txn, key).map_err(|error| refused(stop_of(error)))?.is_some() {
                    self.tally.kept += 1;
                    continue;
                }
                None
            } else {
                key::lookup_overwrite(&mut txn, key).map_err(|error| refused(stop_of(error)))?
            };
            let value = &bytes[string.value.clone()];
            string::put(&mut txn, key, before.as_ref(), value, string.deadline_ms)
                .map_err(|error| refused(stop_of(error)))?;
            count += 1;
        }
        self.end(txn, Kind::String, count)?;
        self.write_log(bytes.len());
        self.tell();
        batch.strings.clear();
        batch.bytes.clear();
        self.batch = batch;
        Ok(())
    }

    fn write_log(&mut self, bytes: usize) {
        self.unwritten += bytes;
        if self.unwritten >= LOG_WRITE_BYTES {
            self.unwritten = 0;
            self.store.log().write();
        }
    }
}

impl Batch {
    fn push(&mut self, bytes: &[u8]) -> Range<usize> {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        at..self.bytes.len()
    }
}

impl Sink for Directory<'_> {
    type Error = Ended;

    fn take(&mut self, event: Event<'_>) -> Result<(), Ended> {
        match event {
            Event::Key(key) => return self.on_key(key),
            Event::Part(part) => return self.on_part(part),
            Event::End { elements } => return self.on_end(elements),
            Event::Database(number) => {
                self.write_batch()?;
                self.is_selected = u32::try_from(number).is_ok_and(|number| self.selection.has_database(number));
                if !self.is_selected {
                    return Ok(());
                }
                let databases = self.store.databases();
                self.database = u32::try_from(number).ok().filter(|number| *number < databases).ok_or_else(|| {
                    let needed = number.saturating_add(1);
                    Ended::Refused(format!(
                        "The file has keys of database {number}, and here are {databases}, counted from 0: add --databases {needed}, \
                         and set `databases` for the server, too."
                    ))
                })?;
            }
            Event::Function(code) => self.on_function(code)?,
            Event::Module { key, .. } if key.is_some_and(|key| !self.selects(key)) => self.named = None,
            Event::Module { name, .. } => self.tally.skip_module(name),
            Event::Aux { name: b"repl-stream-db", value } => {
                let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                self.stream_database = number.unwrap_or_default();
            }
            // Behind a key that was not taken there is nothing to lose.
            Event::Aux { name: DEADLINE_OF_MEMBER, .. } => {
                self.named.iter().for_each(|key| self.tally.skip_deadline(key));
            }
            Event::Aux { name: b"lua", value } if self.keeps_expired => self.scripts.add(value),
            Event::Aux { .. } | Event::Sizes { .. } => {}
        }
        Ok(())
    }
}

impl Target for Directory<'_> {
    fn complete(&mut self) -> Result<(), Ended> {
        let written = self.write_batch();
        self.key = Current::Nothing;
        self.store.log().write();
        let loaded = self.end_load();
        self.tally.bytes = self.progress.bytes();
        self.progress.end();
        written.and(loaded)
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}

/// Tells whether the deadline has passed: Redis leaves such a key out, too.
fn has_passed(deadline_ms: Option<u64>, txn: &Txn<'_>) -> bool {
    deadline_ms.is_some_and(|deadline| deadline < txn.expiry_ms())
}

fn stop_of(error: haypile_types::Error) -> Stop {
    match error {
        haypile_types::Error::Stop(stop) => stop,
        error => Stop::Failed(format!("{error:?}")),
    }
}

/// Returns the reason why the store does not take a key, for people.
fn refused(stop: Stop) -> Ended {
    Ended::Refused(match stop {
        Stop::Refused(why) => format!("Haypile cannot write: {why}."),
        Stop::Failed(why) => why,
        Stop::TooLarge => "A key changes more at once than `txn-bytes-max` allows.".into(),
        stop => unreachable!("nobody else has the store, and it may wait for the disk: {stop:?}"),
    })
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
