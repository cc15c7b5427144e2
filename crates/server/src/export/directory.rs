//! The export of a data directory or a backup: a store over it that is only read, and its keys in the order in which
//! they are stored.
//!
//! The base is opened as an image, and the log over files that only seem to change (`haypile_log::UnchangedFiles`):
//! records above the base are replayed into memory, as a server would. So nothing is written there, whatever happens,
//! and a backup may lie on a read-only medium.

use super::{Exporting, unwritten};
use crate::datadir;
use haypile_commands::function::Functions;
use haypile_commands::transfer;
use haypile_log::UnchangedFiles;
use haypile_rdb::{Key, VERSION, VERSION_WITH_FIELD_DEADLINES};
use haypile_store::row::ScanPosition;
use haypile_store::{Call, Counter, DATABASES_MAX, DiskFree, Mode, Stop, Store, StoreOptions, Txn, TxnBuffers, Value};
use haypile_store_rocks::Image;
use haypile_types::key::Entry;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Keys of one transaction.
const STEP_KEYS: usize = 256;

/// Bytes of the log's segments, which lie in memory and hold only the log's own notes.
const SEGMENT_BYTES: u64 = 1 << 20;

pub struct Directory {
    store: Arc<Store>,
    /// Unix time of the moment whose data are exported: keys that lapse later are in the file.
    now_ms: u64,
    /// The file is for a Redis that follows: values are in the forms that an old one knows, and keys whose time has
    /// passed are there, which it deletes when it is told to.
    is_for_replica: bool,
}

impl Directory {
    /// Opens a directory that no process writes to.
    ///
    /// # Errors
    /// A text for people.
    pub fn open(dir: &Path) -> Result<Directory, String> {
        let fails = |why: &dyn std::fmt::Display| format!("The data in {} cannot be opened: {why}", dir.display());
        let base = Image::open(&datadir::base_dir(dir)).map_err(|error| fails(&error))?;
        let mut log = haypile_log::Options::new(datadir::log_dir(dir));
        log.files = Arc::new(UnchangedFiles::default());
        log.segment_bytes = SEGMENT_BYTES;
        datadir::tell(&mut log, dir, false)?;
        let options = StoreOptions {
            log,
            // The most databases that any server was configured to have.
            databases: DATABASES_MAX,
            memtable_bytes: u64::MAX,
            flush_log_bytes: u64::MAX,
            row_cache_bytes: 0,
            lends: false,
            presence_bytes: 0,
            txn_bytes_max: u64::MAX,
            blind_set: false,
            memory_only: false,
            in_group: false,
            disk_free_min_bytes: 0,
            disk_free: DiskFree(Arc::new(|| None)),
            reserve: None,
            plain: haypile_types::key::PLAIN,
            hash_seed: 0,
        };
        let store = Store::open(options, Arc::new(base), |_| ()).map_err(|error| fails(&error))?;
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        Ok(Directory { store, now_ms, is_for_replica: false })
    }

    /// Has the file be one for a Redis that follows.
    pub fn set_for_replica(&mut self) {
        self.is_for_replica = true;
    }

    fn count(&self, database: u32, counter: Counter) -> u64 {
        self.store.counter(database, counter).max(0) as u64
    }

    fn total(&self, counter: Counter) -> u64 {
        self.store.counted_databases().into_iter().map(|database| self.count(database, counter)).sum()
    }

    /// Returns the number of keys of all databases, lapsed ones included.
    pub fn keys(&self) -> u64 {
        self.total(Counter::Keys)
    }

    /// Returns the version of the format that is needed.
    pub fn version(&self) -> u16 {
        if self.total(Counter::FieldDeadlines) > 0 { VERSION_WITH_FIELD_DEADLINES } else { VERSION }
    }

    /// Writes all keys.
    ///
    /// # Errors
    /// A text for people.
    pub fn write<W: Write>(&self, to: &mut Exporting<W>) -> Result<(), String> {
        self.write_functions(to)?;
        for database in self.store.counted_databases() {
            let before = to.summary.passed();
            self.write_database(database, to)?;
            let (found, counted) = (to.summary.passed() - before, self.count(database, Counter::Keys));
            if found != counted {
                to.summary.note(format!(
                    "database {database}: it has {found} keys and counts {counted}; unless `blind-set yes` was in force, run haypile check"
                ));
            }
        }
        Ok(())
    }

    /// Writes the libraries of functions.
    ///
    /// # Errors
    /// A text for people.
    pub fn write_functions<W: Write>(&self, to: &mut Exporting<W>) -> Result<(), String> {
        let functions = Functions::of(&self.store.facts());
        functions.libraries().try_for_each(|library| to.function(library.code()))
    }

    fn write_database<W: Write>(&self, database: u32, to: &mut Exporting<W>) -> Result<(), String> {
        let mut buffers = TxnBuffers::default();
        let (mut has_begun, mut next) = (false, Some(ScanPosition::START));
        while let Some(from) = next {
            let call = Call { now_ms: self.now_ms, seed: 0, database, mode: Mode::Disk, pins: None };
            let mut txn = self.store.begin(buffers, call);
            txn.set_touching(false);
            if self.is_for_replica {
                txn.keep_expired();
            }
            let (keys, after) = txn.scan_keys(txn.space(database), from, STEP_KEYS).map_err(text)?;
            if !keys.is_empty() && !std::mem::replace(&mut has_begun, true) {
                let [keys, deadlines] =
                    [Counter::Keys, Counter::Deadlines].map(|counter| self.count(database, counter));
                to.database(database.into(), keys, deadlines)?;
            }
            for (name, row) in keys {
                write_key(&mut txn, database, &name, row, self.is_for_replica, to).map_err(|error| match error {
                    Failed::Unwritten(error) => unwritten(error),
                    Failed::Unread(why) => format!("The key {} cannot be exported: {why}", name.escape_ascii()),
                })?;
                to.tell();
            }
            buffers = txn.finish();
            next = after;
        }
        Ok(())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // The store has nothing to lose.
        let _ = self.store.close_without_flush();
    }
}

/// The reason why a key was not written.
enum Failed {
    Unwritten(std::io::Error),
    Unread(String),
}

impl From<haypile_commands::Error> for Failed {
    fn from(error: haypile_commands::Error) -> Failed {
        Failed::Unread(match error {
            haypile_commands::Error::Stop(stop) => text(stop),
            error => format!("{error:?}"),
        })
    }
}

fn text(stop: Stop) -> String {
    match stop {
        Stop::Failed(why) => why,
        Stop::Refused(why) => why.to_string(),
        stop => unreachable!("nobody else has the store, and it may wait for the disk: {stop:?}"),
    }
}

fn write_key<W: Write>(
    txn: &mut Txn<'_>,
    database: u32,
    name: &[u8],
    row: Value,
    is_for_replica: bool,
    to: &mut Exporting<W>,
) -> Result<(), Failed> {
    let entry = Entry::parse(row).map_err(haypile_commands::Error::from)?;
    if entry.header.is_expired(txn.expiry_ms()) {
        to.summary.expired += 1;
        return Ok(());
    }
    let key = txn.key_in(database, name);
    let kind = if is_for_replica { transfer::kind_for_old(&entry) } else { transfer::kind(txn, &key, &entry)? };
    let deadline_ms = entry.header.deadline_ms;
    let about = Key { name, kind, deadline_ms, idle_s: None, frequency: None, position: 0 };
    to.writer.key(&about).map_err(Failed::Unwritten)?;
    transfer::write(txn, &key, entry, kind, &mut to.writer)?;
    to.summary.add(Some(kind));
    Ok(())
}
