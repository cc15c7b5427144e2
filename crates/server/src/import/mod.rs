//! `haypile import`: an RDB file of Redis goes into a data directory (`directory`), or into a server (`server`).
//!
//! The file is read once from its beginning to its end, and each key takes effect as a whole, so that an import that
//! was ended in any way is run again. This file opens both ends, and prints a summary at the end (`tally`) and the
//! progress meanwhile (`progress`).

mod directory;
mod long;
mod progress;
mod server;
mod tally;

use crate::datadir::DataDir;
use crate::storage::{self, Budget};
use crate::{allocator, process};
pub use directory::{Directory, Scripts};
use haypile_config::cli::{Import, Into, Server as Place};
use haypile_config::{CommandLine, Config, Engine, Loaded};
use haypile_rdb::{Failure, Sink, Summary, read_file, read_file_recorded};
use haypile_store::Store;
use progress::Counted;
pub use progress::Progress;
use server::Server;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use tally::Tally;

/// The reason why an import ended early.
#[derive(Debug)]
pub enum Ended {
    /// The file is wrong: where, and in which key.
    Input(haypile_rdb::Error),
    /// The target does not take the file.
    Refused(String),
}

/// The target of an import.
pub trait Target: Sink<Error = Ended> {
    /// Completes the import when the file was taken, as a whole or as much as could be read.
    fn complete(&mut self) -> Result<(), Ended>;

    fn tally(&self) -> &Tally;
}

/// Imports as the command line asks.
///
/// # Errors
/// A text for people.
pub fn run(import: &Import) -> Result<(), String> {
    process::set_file_mode(process::FILE_MODE);
    let (file, bytes) = open(import.file.as_deref())?;
    let counted = Counted::new(file);
    let progress = Progress::new(counted.count(), bytes);
    match &import.into {
        Into::Directory { made, line } => {
            let config = configuration(made.as_deref(), line)?;
            process::set_file_mode(config.data_file_mode);
            into_directory(counted, bytes, progress, import.keep, &config)
        }
        Into::Server(place) => {
            let place = Place { password: place.password.clone().or_else(password), ..place.clone() };
            let (target, tape) = Server::connect(&place, import.keep, progress)?;
            let told = format!("the server {}:{}", place.host, place.port);
            take(|target| read_file_recorded(counted, &tape, target), target, &told)
        }
    }
}

/// Returns the password from the environment, where other users do not see it.
fn password() -> Option<String> {
    ["HAYPILE_PASSWORD", "REDISCLI_AUTH"].iter().find_map(|name| std::env::var(name).ok())
}

/// Returns the file, and how many bytes it has if that is known.
fn open(path: Option<&Path>) -> Result<(Box<dyn Read>, Option<u64>), String> {
    let Some(path) = path else { return Ok((Box::new(io::stdin()), None)) };
    let fails = |error: io::Error| format!("{} cannot be read: {error}", path.display());
    let file = File::open(path).map_err(fails)?;
    let data = file.metadata().map_err(fails)?;
    if data.is_dir() {
        return Err(format!("{} is a directory, no file.", path.display()));
    }
    Ok((Box::new(file), data.is_file().then_some(data.len())))
}

fn configuration(made: Option<&Path>, line: &CommandLine) -> Result<Arc<Config>, String> {
    if let Some(made) = made {
        std::fs::create_dir_all(made).map_err(|error| format!("{} cannot be made: {error}", made.display()))?;
    }
    let Loaded { settings, .. } = haypile_config::load(line, &mut io::empty()).map_err(|error| error.to_string())?;
    let config = settings.config();
    if config.engine == Engine::Memory {
        return Err("With 'engine memory' nothing stays on disk: there is nothing to import into.".into());
    }
    Ok(config)
}

/// Bytes of a file for each byte of the set that notes keys in the base (`store::presence`), eight bytes each. A file
/// with fewer bytes per key does not matter: a full set forgets, and a set that is larger than needed has many pages to
/// be cleared.
const BYTES_OF_FILE_FOR_PRESENCE: u64 = 8;

/// The most memory that a load takes: a larger one has more pages to clear and waits longer for rows.
const LOAD_BYTES_MAX: u64 = 128 << 20;

fn into_directory(
    from: Counted,
    bytes: Option<u64>,
    progress: Progress,
    keep: bool,
    config: &Config,
) -> Result<(), String> {
    process::abort_on_panic();
    allocator::keep_little()?;
    let mut budget = Budget::split(config, &haypile_config::memory::detect());
    if let Some(bytes) = bytes {
        budget.presence = budget.presence.min(bytes / BYTES_OF_FILE_FOR_PRESENCE);
    }
    let data_dir = DataDir::take(config)?;
    let store = storage::open(config, &budget, false, |_| ())?;
    // An import is not bound by the time of a replay, so that only memory starts a flush: fewer and larger ones, and
    // less to compact.
    store.set_flush_bounds(config.flush_log_bytes.max(budget.memtable), config.disk_free_bytes_min);
    let told = format!("the data directory {}", config.dir.display());
    // Data that came from a Redis are mixed with the file's from here on.
    store.forget_origin()?;
    let load = store.load(&config.dir, budget.memtables().min(LOAD_BYTES_MAX) as usize)?;
    let imported = take(|target| read_file(from, target), Directory::new(&store, load, keep, progress), &told);
    let closed = close(store);
    drop(data_dir);
    imported.and(closed)
}

/// Brings all imported data into the base, so that a server starts at once.
fn close(store: Arc<Store>) -> Result<(), String> {
    let closed = store.close().and_then(|()| store.flush_failure().map_or(Ok(()), Err));
    // The process ends, and its memory goes as a whole.
    std::mem::forget(store);
    // The server that starts next replays the log.
    closed.map_err(|why| format!("What was imported is in the log, but could not be brought further: {why}"))
}

/// Has the file read into the target, and prints the outcome.
fn take<T: Target>(
    read: impl FnOnce(&mut T) -> Result<Summary, Failure<Ended>>,
    mut target: T,
    into: &str,
) -> Result<(), String> {
    let read = read(&mut target);
    // Keys that were read before an error stay.
    let completed = target.complete();
    let tally = target.tally();
    print!("{tally}");
    let why = match (read, completed) {
        (Ok(_), Ok(())) => return Ok(()),
        (Err(Failure::Input(error) | Failure::Sink(Ended::Input(error))), _) => format!("The file is wrong {error}."),
        (Err(Failure::Sink(Ended::Refused(why))), _) | (Ok(_), Err(Ended::Refused(why))) => why,
        (Ok(_), Err(Ended::Input(error))) => format!("The file is wrong {error}."),
    };
    Err(format!("{why}\nNot all of the file was imported; what was, {} keys, stays in {into}.", tally.imported()))
}
