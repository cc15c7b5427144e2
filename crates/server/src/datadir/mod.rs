//! The data directory: its owner, and whether it is ours to use.
//!
//! `haypile.lock` keeps a second server out and names the first one; `HAYPILE` says that the directory is one of ours,
//! in which format and for which engine. Nothing is written to a directory that holds something else. The contents of
//! `log` and `base` are the business of these crates.
//!
//! Next: `paths` (what lies where), `format` (the file `HAYPILE`), `incoming` (the copy of a master's data, and how it
//! takes the place of the directory's own).

mod foreign;
mod format;
mod incoming;
mod making;
mod paths;

pub use format::{complete_through, expect_end, id, is_missing, mark_backup, tell};
pub use incoming::{
    adopt_incoming, check_exchange, exchange, exchange_for_nothing, mark_incoming, remove_incoming, unmark_incoming,
};
pub use paths::{
    archived_file, archiving_dir, backups_dir, ballot_file, base_dir, copies_dir, digests_file, incoming_dir, log_dir,
    member_file, reserve_file, restoring_file, stream_file, tails_dir,
};

use crate::process::directory_mode;
use format::{FORMAT_FILE, Format, read_format, write_format};
use haypile_config::{Config, Engine};
use incoming::COMPLETE_FILE;
use paths::END_FILE;
use std::fs::{File, Permissions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const LOCK_FILE: &str = "haypile.lock";

/// Makes the names in a directory durable.
pub fn sync_dir(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Tells whether a server has ever been started on this directory.
pub fn was_started(dir: &Path) -> bool {
    dir.join(LOCK_FILE).exists()
}

/// Tells whether a directory holds a backup, or what was restored, and no member's ballot.
pub fn is_restored(dir: &Path) -> bool {
    complete_through(dir).is_some() && !ballot_file(dir).exists()
}

/// A data directory that this process holds. Others get it when this is dropped, or the process ends.
pub struct DataDir {
    _lock: Lock,
}

/// The lock of a data directory, of which nothing else was touched.
pub struct Lock(#[expect(dead_code, reason = "the file keeps others out while it is open")] File);

impl DataDir {
    /// Keeps other processes out of the directory that `config` names.
    ///
    /// # Errors
    /// A text for people: another process has it.
    pub fn lock(config: &Config) -> Result<Lock, String> {
        let dir = &config.dir;
        making::make_dir(dir, &mut sync_dir)
            .map_err(|error| format!("Can't create the data directory {}: {error}", dir.display()))?;
        lock(dir).map(Lock)
    }

    /// Takes the directory that `config` names, and makes it one of ours if it is empty.
    ///
    /// # Errors
    /// A text for people: another process has it, it holds something else, or it is of another format.
    pub fn take(config: &Config) -> Result<DataDir, String> {
        DataDir::take_locked(config, DataDir::lock(config)?)
    }

    /// Takes a directory that this process has locked, as `take` does.
    pub fn take_locked(config: &Config, lock: Lock) -> Result<DataDir, String> {
        let dir = &config.dir;
        if adopt_incoming(dir)? {
            tracing::info!("a copy of the master's data, which was complete, is in place");
        }
        match read_format(dir)? {
            Some(found) => {
                found.check(dir, config.engine)?;
                found.expect_parts(dir)?;
            }
            None => {
                refuse_foreign(config)?;
                write_format(dir, &Format::fresh(config.engine))
                    .map_err(|error| format!("Can't write to the data directory {}: {error}", dir.display()))?;
            }
        }
        if config.engine == Engine::Memory {
            // No data of an earlier run are left, as `engine memory` promises.
            match std::fs::remove_dir_all(log_dir(dir)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(format!("Can't empty the log in {}: {error}", dir.display()));
                }
                _ => {}
            }
        }
        for part in [log_dir(dir), base_dir(dir)] {
            let made = making::make_dir(&part, &mut sync_dir);
            made.map_err(|error| format!("Can't create {}: {error}", part.display()))?;
        }
        close_to_others(config);
        Ok(DataDir { _lock: lock })
    }
}

/// Gives existing files and directories the mode that they would be created with. The directory itself keeps its mode:
/// others may put their files in it, too. Files deeper down are behind these.
fn close_to_others(config: &Config) {
    let (dir, file_mode) = (&config.dir, config.data_file_mode);
    let directories = [log_dir(dir), base_dir(dir), backups_dir(dir)].map(|path| (path, directory_mode(file_mode)));
    let files = [LOCK_FILE, FORMAT_FILE, END_FILE].map(|name| (dir.join(name), file_mode));
    for (path, mode) in directories.into_iter().chain(files) {
        let Ok(about) = std::fs::metadata(&path) else { continue };
        if about.permissions().mode() & 0o777 == mode {
            continue;
        }
        match std::fs::set_permissions(&path, Permissions::from_mode(mode)) {
            Ok(()) => tracing::info!("the mode of {} is {mode:o} now, by 'data-file-mode'", path.display()),
            Err(error) => tracing::warn!("the mode of {} cannot be made {mode:o}: {error}", path.display()),
        }
    }
}

/// A data directory that is only read, and that no server takes meanwhile.
pub struct Inspected {
    pub engine: String,
    /// Whether the directory is to have a base: a start would miss it.
    pub has_base: bool,
    /// The lock; none where no server was ever started: a backup.
    _lock: Option<File>,
}

/// Takes a directory to read it, without changing a byte of it.
///
/// # Errors
/// A text for people: it is none of ours, a server has it, it is of another format, or in the middle of an exchange.
pub fn inspect(dir: &Path) -> Result<Inspected, String> {
    if incoming_dir(dir).join(COMPLETE_FILE).exists() {
        return Err(format!(
            "The server of {} ended while a copy of its master's data was taking the place of these. Start it: it carries on.",
            dir.display()
        ));
    }
    let Some(format) = read_format(dir)? else {
        let why = match restoring_file(dir).exists() {
            true => foreign::BROKEN_OFF.to_owned(),
            false => format!("there is no file {FORMAT_FILE} in it."),
        };
        return Err(format!("{} is not a data directory of Haypile: {why}", dir.display()));
    };
    format.check_version(dir)?;
    let path = dir.join(LOCK_FILE);
    let fails = |error: std::io::Error| format!("Can't lock {}: {error}", path.display());
    let lock = match File::open(&path) {
        Ok(file) => match file.try_lock_shared() {
            Ok(()) => Some(file),
            Err(TryLockError::WouldBlock) => {
                return Err(format!("{} is in use by {}. Stop it first.", dir.display(), holder(&file)));
            }
            Err(TryLockError::Error(error)) => return Err(fails(error)),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(fails(error)),
    };
    Ok(Inspected { has_base: format.has_base(), engine: format.engine, _lock: lock })
}

/// Returns the holder of the lock, as far as the file says.
fn holder(mut file: &File) -> String {
    let mut holder = String::new();
    // Without the file's text the message is only less helpful.
    let _ = file.read_to_string(&mut holder);
    match holder.trim() {
        "" => "another process".to_owned(),
        pid => format!("the server with process id {pid}"),
    }
}

/// Locks the directory and leaves our process id for servers that come later.
fn lock(dir: &Path) -> Result<File, String> {
    let path = dir.join(LOCK_FILE);
    let fails = |error: std::io::Error| format!("Can't lock the data directory {}: {error}", dir.display());
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(fails)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = holder(&file);
            return Err(format!(
                "The data directory {} is in use by {holder}. Stop it, or choose another directory with --dir.",
                dir.display()
            ));
        }
        Err(TryLockError::Error(error)) => return Err(fails(error)),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(fails)?;
    Ok(file)
}

/// Returns an error if the directory holds anything but the files that a server may have put there before its start.
fn refuse_foreign(config: &Config) -> Result<(), String> {
    let named = [&config.logfile, &config.pidfile, &config.unixsocket];
    foreign::refuse(&config.dir, |path| {
        // The root of a file system has a `lost+found`.
        let fixed = [LOCK_FILE, "HAYPILE.new", "lost+found"];
        fixed.iter().any(|name| path.file_name().is_some_and(|own| own == *name))
            || path.extension().is_some_and(|extension| extension == "conf")
            || named.iter().any(|other| other.as_deref() == Some(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_in_the_middle_of_an_exchange_are_not_looked_at() {
        let dir = std::env::temp_dir().join(format!("haypile-exchange-{}", std::process::id()));
        std::fs::create_dir_all(incoming_dir(&dir)).expect("a temporary directory can be made");
        let fresh = Format::fresh(Engine::RocksDb);
        write_format(&dir, &fresh).expect("it is writable");
        assert!(inspect(&dir).is_ok(), "the copy is not complete");
        assert_eq!(mark_incoming(&dir), Ok(Ok(())));
        let why = inspect(&dir).map(|inspected| inspected.engine).expect_err("nobody knows which part is where");
        assert!(why.contains("Start it"), "{why}");
        assert_eq!(adopt_incoming(&dir), Ok(true));
        assert!(inspect(&dir).is_ok(), "the exchange has ended");
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }
}
