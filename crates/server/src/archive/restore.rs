//! `haypile restore`: the data of a moment, out of an archive, as a data directory.
//!
//! The files of a backup come first, several at a time, each compared with its checksum; then the log is written anew,
//! record by record, out of the backup's part and the chunks behind it, and ends at the moment that was asked for. The
//! file that makes a data directory of it comes last: what was broken off is none, and is gone on with.

use super::backup::files_below;
use super::place;
use crate::datadir;
use crate::process::set_file_mode;
use crate::progress::{ProgressLine, time_left};
use crate::unbuffered::Unbuffered;
use haypile_archive::{
    Archive, BackupFile, ChunkName, Error, Plan, PlanError, Target, digest_file, exact_time, plan as find_way,
    restorable,
};
use haypile_config::Engine;
use haypile_config::cli::{Moment, Restore};
use haypile_log::{ChunkRecords, Copy, Histories, History, Index, Options};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Files that are fetched at the same time.
const FETCHERS: usize = 4;

/// How often the progress is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// The mode of what is restored: its owner's alone.
const FILE_MODE: u32 = 0o600;

/// The outcome of a restore.
struct Restored {
    /// The last record, and its time where it was read.
    last: Index,
    time_ms: Option<u64>,
    /// Whether the archive has a record that is later than the time that was asked for.
    is_passed: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// A text for people.
pub fn run(what: &Restore) -> Result<(), String> {
    let target = match what.to {
        Moment::Newest => Target::Newest,
        Moment::Index(index) => Target::Index(Index(index)),
        Moment::Time(time_ms) => Target::Time(time_ms),
    };
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    check_has_come(target, now_ms)?;
    set_file_mode(FILE_MODE);
    let archive = place::open(&what.from)?;
    let catalog = archive.catalog().map_err(|error| error.to_string())?;
    for (name, why) in &catalog.strange {
        eprintln!("{name}: {why}");
    }
    let history = what.history.as_deref().map(|text| {
        History::parse(text).ok_or_else(|| format!("{text} is no history: those have 40 hexadecimal digits"))
    });
    let plan = find_way(&catalog, history.transpose()?, target).map_err(|error| {
        let why = format!("{} cannot be restored: {error}", shown(target));
        match error {
            PlanError::TooEarly(..) | PlanError::NoHistory(_) => format!("{why}. `haypile backups` lists what can"),
            _ => why,
        }
    })?;
    begin(&what.dir)?;
    let backup = &plan.backup;
    let files: Vec<&BackupFile> = backup.files.iter().filter(|file| file.path.starts_with("base/")).collect();
    eprintln!("restoring backup {} and {} pieces of the log behind it", backup.name(), plan.chunks.len());
    fetch(&archive, &files, &what.dir)?;
    let restored = write_log(&archive, &plan, &what.dir)?;
    finish(&what.dir, restored.last).map_err(|error| format!("{}: {error}", what.dir.display()))?;
    if let Some(warning) = warning_of_end(&restored, &plan) {
        eprintln!("{warning}");
    }
    let time = restored.time_ms.map_or(String::new(), |time_ms| format!(", made at {}", exact_time(time_ms)));
    println!("{} holds the data through record {}{time}", what.dir.display(), restored.last);
    Ok(())
}

fn shown(target: Target) -> String {
    match target {
        Target::Newest => "The newest data".into(),
        Target::Index(index) => format!("Record {index}"),
        Target::Time(time_ms) => format!("The data of {}", exact_time(time_ms)),
    }
}

/// Refuses a time in the future, as milliseconds are where seconds belong.
fn check_has_come(target: Target, now_ms: u64) -> Result<(), String> {
    match target {
        Target::Time(time_ms) if time_ms > now_ms => Err(format!(
            "{} cannot be restored: that time is in the future (now is {}). \
             `--to @N` takes seconds since 1970; `haypile log` shows milliseconds",
            shown(target),
            exact_time(now_ms)
        )),
        _ => Ok(()),
    }
}

/// Returns the warning for a time that lies behind the last record of the archive.
///
/// The server may have made records in between that it has not archived yet; nothing in the archive tells.
fn warning_of_end(restored: &Restored, plan: &Plan) -> Option<String> {
    let asked_ms = plan.time_ms.filter(|asked_ms| restored.time_ms.is_none_or(|last_ms| last_ms < *asked_ms))?;
    if restored.is_passed {
        return None;
    }
    let made = match restored.time_ms {
        Some(last_ms) => format!("made at {}", exact_time(last_ms)),
        // A backup without a log of its own tells when it was complete.
        None => format!("made by {}", exact_time(plan.backup.made_ms)),
    };
    Some(format!(
        "warning: the archive ends before {asked}: its last record, {last}, was {made}. Records made between then and \
         {asked}, if there were any, are not in the archive: wait for `archive-interval` and restore again, or take \
         them from the server's own log",
        asked = exact_time(asked_ms),
        last = restored.last
    ))
}

/// Takes an empty directory, or one in which a restore was broken off.
fn begin(dir: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    fs::create_dir_all(dir).map_err(failed)?;
    let mut entries = fs::read_dir(dir).map_err(failed)?;
    if datadir::id(dir).is_ok() {
        // The end of a restore that was killed right behind it.
        let _ = fs::remove_file(datadir::restoring_file(dir));
        return Err(format!("{} is a data directory already", dir.display()));
    }
    if !datadir::restoring_file(dir).exists() {
        if let Some(entry) = entries.next() {
            let name = entry.map_err(failed)?.file_name();
            return Err(format!("{} is not empty: there is {}", dir.display(), name.display()));
        }
        File::create(datadir::restoring_file(dir)).and_then(|file| file.sync_all()).map_err(failed)?;
    }
    // The log of a restore that was broken off may be that of another moment.
    let log = datadir::log_dir(dir);
    match fs::remove_dir_all(&log) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    fs::create_dir_all(&log).and_then(|()| fs::create_dir_all(datadir::base_dir(dir))).map_err(failed)
}

/// Fetches the files of the base, and removes what does not belong there.
fn fetch(archive: &Archive, files: &[&BackupFile], dir: &Path) -> Result<(), String> {
    let wanted: HashSet<PathBuf> = files.iter().map(|file| dir.join(&file.path)).collect();
    for path in files_below(&datadir::base_dir(dir)).map_err(|error| format!("{}: {error}", dir.display()))? {
        if !wanted.contains(&path) {
            fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    let total: u64 = files.iter().map(|file| file.bytes).sum();
    let (next, done, is_ended) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let failure: Mutex<Option<String>> = Mutex::new(None);
    let run = || {
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(why) = fetch_file(archive, file, &dir.join(&file.path), &done) {
                next.store(files.len(), Ordering::Relaxed);
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
            }
        }
    };
    std::thread::scope(|threads| {
        let fetchers: Vec<_> = (0..FETCHERS.min(files.len())).map(|_| threads.spawn(run)).collect();
        let shows = threads.spawn(|| {
            let mut line = ProgressLine::new();
            while !is_ended.load(Ordering::Acquire) {
                let done = done.load(Ordering::Relaxed);
                line.tell(|elapsed| progress("files", done, total, elapsed));
                std::thread::park_timeout(LOOK);
            }
            line.end();
        });
        for fetcher in fetchers {
            fetcher.join().expect("a thread that fetches does not panic");
        }
        is_ended.store(true, Ordering::Release);
        shows.thread().unpark();
        shows.join().expect("the thread that shows the progress does not panic");
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Returns `restoring files: 120.0 of 480.0 MB (25 %), 30 s left`.
fn progress(what: &str, done: u64, total: u64, elapsed: Duration) -> String {
    let share = if total == 0 { 1.0 } else { done as f64 / total as f64 };
    let (done, total) = (done as f64 / 1e6, total as f64 / 1e6);
    let left = time_left(share, elapsed);
    format!("restoring {what}: {done:.1} of {total:.1} MB ({:.0} %){left}", share * 100.0)
}

/// Fetches one file, unless it is there already.
fn fetch_file(archive: &Archive, file: &BackupFile, path: &Path, done: &AtomicU64) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Ok(mut there) = File::open(path)
        && there.metadata().is_ok_and(|about| about.len() == file.bytes)
        && digest_file(&mut there).map_err(failed)? == (file.digest, file.bytes)
    {
        // A process that was killed has not waited for the disk.
        there.sync_all().map_err(failed)?;
        done.fetch_add(file.bytes, Ordering::Relaxed);
        return Ok(());
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    let mut out = Unbuffered::create(path).map_err(failed)?;
    let fetched = archive.get_file(file, &mut |bytes| {
        done.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        out.write(bytes).map_err(|error| format!("{}: {error}", path.display()))
    });
    fetched.map_err(|error| error.to_string())?;
    out.finish().map_err(failed)
}

/// Writes the log through the moment that was asked for.
fn write_log(archive: &Archive, plan: &Plan, dir: &Path) -> Result<Restored, String> {
    let log = datadir::log_dir(dir);
    let options = Options::new(&log);
    let histories: Histories = plan.chain.starts().iter().copied().collect();
    let copy = Copy::new(&options, &log);
    let mut writer = Writer { copy, plan, histories: &histories, last: None, time_ms: None, is_passed: false };
    let mut line = ProgressLine::new();
    let own: Vec<&BackupFile> = plan.backup.files.iter().filter(|file| file.path.starts_with("log/")).collect();
    let total = own.len() + plan.chunks.len();
    let mut is_ended = false;
    for (at, file) in own.iter().enumerate() {
        let mut bytes = Vec::with_capacity(file.bytes as usize);
        let got = archive.get_file(file, &mut |part| {
            bytes.extend_from_slice(part);
            Ok(())
        });
        got.map_err(|error| error.to_string())?;
        let records = ChunkRecords::new(bytes).map_err(|error| format!("{}: {error}", file.path))?;
        is_ended = is_ended || writer.add(records, &file.path, plan.backup.through)?;
        if at + 1 == own.len() && !is_ended {
            writer.check_reached(&file.path, plan.backup.through)?;
        }
        line.tell(|elapsed| progress_of_log(at + 1, total, elapsed));
    }
    for (at, (name, last)) in plan.chunks.iter().enumerate() {
        if is_ended {
            break;
        }
        is_ended = writer.add_chunk(archive, name, *last)?;
        line.tell(|elapsed| progress_of_log(own.len() + at + 1, total, elapsed));
    }
    line.end();
    writer.end()
}

fn progress_of_log(done: usize, total: usize, elapsed: Duration) -> String {
    let left = time_left(done as f64 / total.max(1) as f64, elapsed);
    format!("restoring the log: {done} of {total} pieces{left}")
}

struct Writer<'a> {
    copy: Copy<'a>,
    plan: &'a Plan,
    histories: &'a Histories,
    /// The last record that was added.
    last: Option<Index>,
    time_ms: Option<u64>,
    /// Whether a record was met that is later than the time that was asked for.
    is_passed: bool,
}

impl Writer<'_> {
    fn add_chunk(&mut self, archive: &Archive, name: &ChunkName, last: Index) -> Result<bool, String> {
        let records = archive.get_chunk(name).map_err(|error| match error {
            Error::Damaged(..) | Error::Missing(_) => format!("{error}: {}", restorable(self.reached())),
            error => error.to_string(),
        })?;
        let name = name.to_string();
        let is_ended = self.add(records, &name, last)?;
        if !is_ended {
            self.check_reached(&name, last)?;
        }
        Ok(is_ended)
    }

    /// Checks that what should end with this record has done so.
    fn check_reached(&self, name: &str, last: Index) -> Result<(), String> {
        let reached = self.reached();
        match reached < last {
            true => Err(self.damaged(name, &format!("it ends with record {reached}, and not {last}"))),
            false => Ok(()),
        }
    }

    /// Returns the last record that was added, or of the base.
    fn reached(&self) -> Index {
        self.last.unwrap_or(self.plan.backup.applied)
    }

    /// Returns the error for damage in a part of the log: the records before it can be had.
    fn damaged(&self, name: &str, why: &str) -> String {
        format!("{name} in the archive is damaged: {why}: {}", restorable(self.reached()))
    }

    /// Adds the records behind the last one, through `last`; whether the moment that was asked for is reached.
    fn add(&mut self, mut records: ChunkRecords, name: &str, last: Index) -> Result<bool, String> {
        let start = records.start();
        while let Some(record) = records.next().map_err(|error| self.damaged(name, &error.to_string()))? {
            if self.last.is_some_and(|before| record.index <= before) {
                continue;
            }
            if record.index > last {
                return Ok(false);
            }
            let is_late = self.plan.time_ms.is_some_and(|time_ms| record.time_ms > time_ms);
            self.is_passed |= is_late;
            if record.index > self.plan.through || is_late && record.index > self.plan.backup.applied {
                return Ok(true);
            }
            if let Some(before) = self.last.filter(|before| record.index != before.next()) {
                return Err(self.damaged(name, &format!("record {} follows on record {before}", record.index)));
            }
            if self.histories.of(record.index) != Some(record.history) {
                return Err(self.damaged(name, &format!("record {} is of history {}", record.index, record.history)));
            }
            self.copy.take(&record);
            self.copy.add(start, &|| self.histories.clone()).map_err(|error| error.to_string())?;
            (self.last, self.time_ms) = (Some(record.index), Some(record.time_ms));
            // Records behind it may be damaged.
            if record.index >= self.plan.through {
                return Ok(true);
            }
        }
        Ok(self.last.is_some_and(|reached| reached >= self.plan.through))
    }

    fn end(self) -> Result<Restored, String> {
        // Without a record behind it the base stands for itself.
        let last = self.last.unwrap_or(self.plan.backup.applied).max(self.plan.backup.applied);
        let stamp = self.histories.stamp(last).ok_or("the archive does not know the history of its records")?;
        let start = self.histories.starts().iter().rfind(|start| start.history == stamp).copied();
        let start = start.ok_or("the archive does not know the history of its records")?;
        let ended = self.copy.end(start, last.next(), &|| self.histories.clone());
        ended.map_err(|error| error.to_string())?;
        Ok(Restored { last, time_ms: self.time_ms, is_passed: self.is_passed })
    }
}

/// Makes a data directory of what is there.
fn finish(dir: &Path, last: Index) -> std::io::Result<()> {
    for below in dirs_below(&datadir::base_dir(dir))?.iter().rev() {
        datadir::sync_dir(below)?;
    }
    datadir::sync_dir(dir)?;
    datadir::mark_backup(dir, Engine::RocksDb, last.0)?;
    fs::remove_file(datadir::restoring_file(dir))?;
    datadir::sync_dir(dir)
}

/// Returns a directory and those below it, each behind the one that it is in.
fn dirs_below(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = vec![dir.to_owned()];
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.metadata()?.is_dir() {
            found.extend(dirs_below(&entry.path())?);
        }
    }
    Ok(found)
}
