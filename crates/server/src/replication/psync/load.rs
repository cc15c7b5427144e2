//! The load of a master's data: they are brought into a directory beside this server's, as an import does it, and take
//! the place of its data in one step. Until then it has and serves what it had.

use super::payload::Payload;
use super::{ACKNOWLEDGE, LOOK, store_of};
use super::{scripts, selection};
use crate::datadir::{self, DataDir, sync_dir};
use crate::import::{Directory, Ended, Progress, Scripts, Target};
use crate::process::give_way_a_little;
use crate::replication::attempt::{Attempt, look};
use crate::socket::Socket;
use crate::storage::{self, Budget};
use haypile_config::{Config, Selection};
use haypile_engine::Link;
use haypile_rdb::{Failure, Why, read_file};
use haypile_store::{Counter, Origin, Store};
use std::io::{self, Error, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

const MIB: u64 = 1 << 20;

/// The memory of a load beside the server's own: rows that are sorted, and values that are too long for that.
const SORTED_BYTES: u64 = 64 * MIB;
const MEMTABLE_BYTES: u64 = 16 * MIB;
const BLOCK_CACHE_BYTES: u64 = 16 * MIB;

/// The outcome of a load.
struct Loaded {
    origin: Origin,
    scripts: Scripts,
    /// Bytes that have come behind the data.
    behind: Vec<u8>,
}

/// Looks whether a load could take the place of this server's data.
///
/// # Errors
/// The data could not be exchanged.
pub fn check(config: &Config) -> io::Result<()> {
    if config.engine == haypile_config::Engine::Memory {
        let why = "a server with 'engine memory' cannot exchange its data, and so follows no Redis";
        return Err(Error::new(ErrorKind::Unsupported, why));
    }
    datadir::check_exchange(&config.dir).map_err(|why| Error::new(ErrorKind::Unsupported, why))
}

/// Loads the data that come over a connection, and puts them in the place of this server's; returns their origin, of
/// which `origin` says all but the database, and the bytes that have come behind them. `read` has come already.
///
/// # Errors
/// The connection broke, the data cannot be read or held, or are not wanted any more: this server's own stay.
pub fn run(
    attempt: &Attempt<'_>,
    socket: &Socket,
    read: Vec<u8>,
    origin: Origin,
    selection: &Selection,
) -> io::Result<(Origin, Vec<u8>)> {
    let engine = &*attempt.replication.engine;
    let config = engine.settings.config();
    let since = Instant::now();
    tracing::info!("the data of the master come as a whole, of byte {} of its stream", origin.offset);
    attempt.note(|upstream| upstream.link = Link::Copy { done: 0, total: 0 });
    let (done, has_ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let behind = std::thread::scope(|threads| {
        let keeper = threads.spawn(|| keep_alive(attempt, socket, &done, &has_ended));
        let loads = threads.spawn(|| {
            // The master keeps what clients do meanwhile in its memory, and lets go of who is slow.
            give_way_a_little();
            let goes_on = || attempt.goes_on();
            let payload = Payload::begin(socket, read, &done, attempt.replication.timeout(), &goes_on)?;
            let total = payload.length().unwrap_or(0);
            let (free, keep_free) = store_of(engine)?.disk_room();
            if free.is_some_and(|free| free < keep_free.saturating_add(total)) {
                let why = format!("the disk has no room for data of {total} bytes");
                return Err(Error::new(ErrorKind::StorageFull, why));
            }
            attempt.note(|upstream| upstream.link = Link::Copy { done: 0, total });
            load(&config, payload, origin, selection)
        });
        let loaded = loads.join();
        has_ended.store(true, Ordering::Release);
        keeper.thread().unpark();
        loaded.unwrap_or_else(|_| Err(Error::other("the thread that loads has panicked")))
    });
    let installed = behind.and_then(|behind| install(attempt, &config.dir).map(|()| behind));
    let Loaded { origin, scripts, behind } = installed.inspect_err(|_| discard(&config.dir))?;
    scripts::load(engine, &scripts);
    let (bytes, seconds) = (done.into_inner(), since.elapsed().as_secs_f64());
    let keys = engine.store_arc().map_or(0, |store| keys_of(&store));
    tracing::info!("the data of the master are in place after {seconds:.1} s: {keys} keys, {bytes} bytes");
    Ok((origin, behind))
}

/// Removes what was loaded and is not taken, unless it is marked as the data.
fn discard(dir: &Path) {
    let removed = datadir::remove_incoming(dir);
    removed.unwrap_or_else(|why| tracing::warn!("{}: {why}", datadir::incoming_dir(dir).display()));
}

/// Has the master and INFO hear that the load goes on.
fn keep_alive(attempt: &Attempt<'_>, socket: &Socket, done: &AtomicU64, has_ended: &AtomicBool) {
    let mut said = Instant::now();
    while !has_ended.load(Ordering::Acquire) {
        std::thread::park_timeout(LOOK);
        let now = done.load(Ordering::Relaxed);
        attempt.note(|upstream| {
            if let Link::Copy { done, .. } = &mut upstream.link {
                if *done != now {
                    upstream.heard = Some(Instant::now());
                }
                *done = now;
            }
        });
        if said.elapsed() >= ACKNOWLEDGE {
            // The thread that reads finds out if it fails.
            let _ = socket.write_all(b"\n");
            said = Instant::now();
        }
    }
}

/// Brings the data into the directory of what comes in.
fn load(config: &Arc<Config>, mut payload: Payload<'_>, origin: Origin, selection: &Selection) -> io::Result<Loaded> {
    let dir = datadir::incoming_dir(&config.dir);
    datadir::unmark_incoming(&config.dir)?;
    match std::fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let config = Config { dir: dir.clone(), ..Config::clone(config) };
    let data_dir = DataDir::take(&config).map_err(Error::other)?;
    let budget = Budget {
        total: SORTED_BYTES + 4 * MEMTABLE_BYTES + BLOCK_CACHE_BYTES,
        memtable: MEMTABLE_BYTES,
        row_cache: 0,
        block_cache: BLOCK_CACHE_BYTES,
        unsynced: MEMTABLE_BYTES,
        presence: MIB,
    };
    let store = storage::open(&config, &budget, false, |_| ()).map_err(Error::other)?;
    let loaded = fill(&store, &dir, &mut payload, origin, selection);
    let closed = store.close().map_err(Error::other);
    drop((store, data_dir));
    let (origin, scripts) = closed.and(loaded)?;
    for dir in [datadir::base_dir(&dir), datadir::log_dir(&dir), dir] {
        sync_dir(&dir)?;
    }
    Ok(Loaded { origin, scripts, behind: payload.finish()? })
}

/// Reads the data into an empty store, and notes their origin; returns it, and the master's scripts.
fn fill(
    store: &Store,
    dir: &Path,
    payload: &mut impl Read,
    origin: Origin,
    selection: &Selection,
) -> io::Result<(Origin, Scripts)> {
    let rows = store.load(dir, SORTED_BYTES as usize).map_err(Error::other)?;
    let mut target = Directory::new(store, rows, false, Progress::hidden()).for_replica(selection);
    let read = read_file(payload, &mut target);
    let completed = if read.is_ok() { target.complete() } else { Ok(()) };
    match read.map(drop).and_then(|()| completed.map_err(Failure::Sink)) {
        Ok(()) => {}
        Err(Failure::Input(haypile_rdb::Error { why: Why::Io(error), .. })) => return Err(error),
        Err(Failure::Input(error) | Failure::Sink(Ended::Input(error))) => {
            return Err(Error::new(ErrorKind::InvalidData, format!("its data are wrong {error}")));
        }
        Err(Failure::Sink(Ended::Refused(why))) => {
            return Err(Error::new(ErrorKind::Unsupported, format!("its data cannot be held here: {why}")));
        }
    }
    if let Some(left_out) = target.tally().left_out() {
        return Err(Error::new(ErrorKind::Unsupported, format!("its data cannot be held here: {left_out}")));
    }
    let (database, databases) = (target.stream_database(), store.databases());
    if database >= databases {
        let why = format!("its commands go on in database {database}, and here are {databases}");
        return Err(Error::new(ErrorKind::Unsupported, why));
    }
    let origin = Origin { database, ..origin };
    selection::note(store, selection)?;
    store.set_origin(&origin).map_err(Error::other)?;
    Ok((origin, target.take_scripts()))
}

fn keys_of(store: &Store) -> i64 {
    store.counted_databases().into_iter().map(|database| store.counter(database, Counter::Keys)).sum()
}

/// Puts what was loaded in the place of this server's data.
fn install(attempt: &Attempt<'_>, dir: &Path) -> io::Result<()> {
    let engine = &*attempt.replication.engine;
    let incoming = datadir::incoming_dir(dir);
    look(&incoming).map_err(|why| Error::new(ErrorKind::InvalidData, format!("what was loaded is damaged: {why}")))?;
    let mut put = Ok(());
    let keys = keys_of(&*store_of(engine)?);
    if keys > 0 {
        tracing::warn!("the data of this server, {keys} keys, give way to those of the master");
    }
    let installed = engine.put_copy(&mut || {
        // Until the copy is marked, the data are what they were: they are opened again then.
        put = match attempt.goes_on() {
            true => datadir::mark_incoming(dir)?,
            false => Err("the master is another one by now".into()),
        };
        if put.is_ok() { datadir::adopt_incoming(dir).map(drop) } else { Ok(()) }
    });
    installed.and(put).map_err(Error::other)?;
    store_of(engine).map(drop)
}
