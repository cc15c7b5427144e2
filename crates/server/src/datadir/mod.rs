//! The data directory: its owner, and whether it is ours to use.
//!
//! `haypile.lock` keeps a second server out and names the first one; `HAYPILE` says that the directory is one of ours,
//! in which format and for which engine. Nothing is written to a directory that holds something else. The contents of
//! `log` and `base` are the business of these crates.

mod foreign;
mod making;

use crate::process::directory_mode;
use haypile_config::{Config, Engine};
use haypile_log::{DirectoryId, EndFile, Index};
use std::cmp::Ordering;
use std::fs::{File, Permissions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The format of the directory as a whole. Each part has its own version as well.
const FORMAT: u32 = 2;

const LOCK_FILE: &str = "haypile.lock";
const FORMAT_FILE: &str = "HAYPILE";
const END_FILE: &str = "haypile.end";

/// The mark of a complete copy of a master's data.
const COMPLETE_FILE: &str = "COMPLETE";

/// Where data lie that a master's copy has replaced, until they are removed.
const OLD_DIR: &str = "replaced";

/// The line of the format file of a directory that has an end file.
const HAS_END: &str = "log noted in haypile.end";

/// Returns where the log is.
pub fn log_dir(dir: &Path) -> PathBuf {
    dir.join("log")
}

/// Returns where the base is.
pub fn base_dir(dir: &Path) -> PathBuf {
    dir.join("base")
}

/// Returns the file with the term and the vote of a member of a Raft group.
pub fn ballot_file(dir: &Path) -> PathBuf {
    dir.join("raft.ballot")
}

/// Returns the file that says which member of a Raft group the server is.
pub fn member_file(dir: &Path) -> PathBuf {
    dir.join("raft.member")
}

/// Returns the file that reserves disk space for writes that make room.
pub fn reserve_file(dir: &Path) -> PathBuf {
    dir.join("reserve")
}

/// Returns the file that says how far those who follow and are no Haypile have come.
pub fn stream_file(dir: &Path) -> PathBuf {
    dir.join("haypile.stream")
}

/// Returns the file that says how far the log is in an archive.
pub fn archived_file(dir: &Path) -> PathBuf {
    dir.join("haypile.archived")
}

/// Returns the file with the checksums of files that are in an archive.
pub fn digests_file(dir: &Path) -> PathBuf {
    dir.join("haypile.digests")
}

/// Returns where a backup is made that goes to an archive.
pub fn archiving_dir(dir: &Path) -> PathBuf {
    dir.join("archiving")
}

/// Returns where backups are.
pub fn backups_dir(dir: &Path) -> PathBuf {
    dir.join("backups")
}

/// Returns where the copies are that replicas fetch from this server.
pub fn copies_dir(dir: &Path) -> PathBuf {
    dir.join("copies")
}

/// Returns where the tails of logs are that this node has given up.
pub fn tails_dir(dir: &Path) -> PathBuf {
    dir.join("tails")
}

/// Returns the file of a directory that a restore fills.
pub fn restoring_file(dir: &Path) -> PathBuf {
    dir.join(foreign::RESTORING_FILE)
}

/// Returns where the copy of a master's data is put together.
pub fn incoming_dir(dir: &Path) -> PathBuf {
    dir.join("incoming")
}

/// Returns the name of a directory.
///
/// # Errors
/// A text for people.
pub fn id(dir: &Path) -> Result<DirectoryId, String> {
    let format = read_format(dir)?;
    format.map(|format| format.id).ok_or_else(|| format!("{} is not a data directory of Haypile", dir.display()))
}

/// Marks the copy in `incoming_dir` as complete: from here on it is the data, whatever happens.
///
/// # Errors
/// The inner one, a text for people: there is no mark, and the data are what they were. The outer one: nobody knows.
pub fn mark_incoming(dir: &Path) -> Result<Result<(), String>, String> {
    let incoming = incoming_dir(dir);
    let marked = File::create(incoming.join(COMPLETE_FILE)).and_then(|file| file.sync_all());
    let Err(error) = marked.and_then(|()| sync_dir(&incoming)) else { return Ok(Ok(())) };
    let why = format!("Can't complete the copy in {}: {error}", incoming.display());
    unmark_incoming(dir).map_err(|error| format!("{why}; and its mark may be left there: {error}"))?;
    Ok(Err(why))
}

/// Removes the mark of a complete copy, before anything about the copy changes.
///
/// # Errors
/// The mark may be there.
pub fn unmark_incoming(dir: &Path) -> std::io::Result<()> {
    let incoming = incoming_dir(dir);
    match std::fs::remove_file(incoming.join(COMPLETE_FILE)) {
        Ok(()) => sync_dir(&incoming),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes what is in `incoming_dir`, unless it is a complete copy.
///
/// # Errors
/// Some of it is left.
pub fn remove_incoming(dir: &Path) -> std::io::Result<()> {
    let incoming = incoming_dir(dir);
    if incoming.join(COMPLETE_FILE).exists() { Ok(()) } else { remove(&incoming) }
}

/// Looks whether a copy can take the place of the directory's own data, by renaming.
///
/// # Errors
/// A text for people: a part of the data lies elsewhere.
pub fn check_exchange(dir: &Path) -> Result<(), String> {
    let fails = |path: &Path, error| format!("Can't look at {}: {error}", path.display());
    let device = std::fs::metadata(dir).map_err(|error| fails(dir, error))?.dev();
    for part in [log_dir(dir), base_dir(dir)] {
        let about = std::fs::symlink_metadata(&part).map_err(|error| fails(&part, error))?;
        if !about.is_dir() || about.dev() != device {
            let part = part.display();
            return Err(format!(
                "{part} lies on another file system, or is a link: a master's copy cannot take its place. Have the directory {} lie there as a whole",
                dir.display()
            ));
        }
    }
    Ok(())
}

/// Puts the copy of a master's data, if a complete one is there, in the place of the directory's own. Nothing may have
/// these open. After an error or a crash it goes on where it was.
///
/// # Errors
/// A text for people.
pub fn adopt_incoming(dir: &Path) -> Result<bool, String> {
    let incoming = incoming_dir(dir);
    if !incoming.join(COMPLETE_FILE).exists() {
        return Ok(false);
    }
    let put = || -> std::io::Result<()> {
        let old = dir.join(OLD_DIR);
        for name in [END_FILE, FORMAT_FILE, "log", "base"] {
            let (new, own) = (incoming.join(name), dir.join(name));
            // A part that was put there is not in the copy any more. The end of another log is no part of the copy.
            if new.exists() || name == END_FILE {
                remove(&old)?;
                std::fs::create_dir(&old)?;
                if own.exists() {
                    std::fs::rename(&own, old.join(name))?;
                }
                if new.exists() {
                    std::fs::rename(&new, &own)?;
                }
                sync_dir(dir)?;
            }
        }
        remove(&incoming)?;
        remove(&old)?;
        sync_dir(dir)
    };
    put().map_err(|error| format!("Can't put the master's data in place in {}: {error}", dir.display()))?;
    Ok(true)
}

/// Puts an empty directory's data in the place of the directory's own. Nothing may have these open. After a crash
/// either are there.
///
/// # Errors
/// Texts for people. The inner one: the data are what they were. The outer one: nobody knows.
pub fn exchange_for_nothing(dir: &Path, engine: Engine) -> Result<Result<(), String>, String> {
    let incoming = incoming_dir(dir);
    let made = || -> std::io::Result<()> {
        remove(&incoming)?;
        for part in [incoming.clone(), log_dir(&incoming), base_dir(&incoming)] {
            std::fs::create_dir(part)?;
        }
        write_format(&incoming, &Format::fresh(engine))
    };
    if let Err(error) = made() {
        return Ok(Err(format!("Can't make {}: {error}", incoming.display())));
    }
    exchange(dir)
}

/// Puts the copy in `incoming_dir`, which is whole, in the place of the directory's own data. Nothing may have these
/// open.
///
/// # Errors
/// Texts for people. The inner one: the data are what they were. The outer one: nobody knows what is where, and the
/// next start carries on.
pub fn exchange(dir: &Path) -> Result<Result<(), String>, String> {
    if let Err(why) = mark_incoming(dir)? {
        return Ok(Err(why));
    }
    adopt_incoming(dir).map(|_| Ok(()))
}

/// Makes the names in a directory durable.
pub fn sync_dir(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

fn remove(dir: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Tells a log the directory's facts: how far the log has to reach, and where that is noted.
pub fn tell(log: &mut haypile_log::Options, dir: &Path, is_written: bool) -> Result<(), String> {
    let Some(format) = read_format(dir)? else { return Ok(()) };
    log.complete_through = Index(format.complete_through);
    let (directory, is_expected) = (format.id, format.has_end);
    log.end = Some(EndFile { path: dir.join(END_FILE), directory, is_expected, is_written });
    Ok(())
}

/// Adds the line `HAS_END` to `HAYPILE` if the end file exists: later starts refuse the directory without that file.
/// Called before the first write is acknowledged.
///
/// # Errors
/// A text for people.
pub fn expect_end(dir: &Path) -> Result<(), String> {
    if read_format(dir)?.is_none_or(|format| format.has_end) || !dir.join(END_FILE).exists() {
        return Ok(());
    }
    // Lines of later versions stay.
    let text = std::fs::read_to_string(dir.join(FORMAT_FILE));
    text.and_then(|text| write_text(dir, &format!("{}\n{HAS_END}\n", text.trim_end())))
        .map_err(|error| format!("Can't write to the data directory {}: {error}", dir.display()))
}

/// Makes a directory one of ours which holds everything through this record.
pub fn mark_backup(dir: &Path, engine: Engine, complete_through: u64) -> std::io::Result<()> {
    write_format(dir, &Format { complete_through, ..Format::fresh(engine) })
}

/// Tells whether a server has ever been started on this directory.
pub fn was_started(dir: &Path) -> bool {
    dir.join(LOCK_FILE).exists()
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
            Some(found) => found.check(dir, config.engine)?,
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
    Ok(Inspected { engine: format.engine, _lock: lock })
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

/// The contents of the file `HAYPILE`.
#[derive(Debug, PartialEq, Eq)]
struct Format {
    version: u32,
    engine: String,
    /// The identity of this directory.
    id: DirectoryId,
    /// The last record of a backup; else 0.
    complete_through: u64,
    /// Whether the directory has an end file.
    has_end: bool,
}

fn engine_name(engine: Engine) -> &'static str {
    match engine {
        Engine::RocksDb => "rocksdb",
        Engine::Memory => "memory",
    }
}

impl Format {
    /// Returns the format of a directory that is made now.
    fn fresh(engine: Engine) -> Format {
        let engine = engine_name(engine).to_owned();
        Format { version: FORMAT, engine, id: DirectoryId::random(), complete_through: 0, has_end: false }
    }

    /// Parses `haypile data directory`, then `format N`, then `engine NAME`, then `id HEX`; in a backup then `complete
    /// through INDEX`, and where there is an end file, `HAS_END`. Later versions may add lines.
    fn parse(text: &str) -> Option<Format> {
        let mut lines = text.lines();
        if lines.next()? != "haypile data directory" {
            return None;
        }
        let version = lines.next()?.strip_prefix("format ")?.parse().ok()?;
        let engine = lines.next()?.strip_prefix("engine ")?.to_owned();
        let id = match lines.next() {
            Some(line) if version == FORMAT => DirectoryId::parse(line.strip_prefix("id ")?)?,
            None if version == FORMAT => return None,
            // The directory is refused for its version.
            _ => DirectoryId::default(),
        };
        let (mut complete_through, mut has_end) = (0, false);
        for line in lines {
            if let Some(index) = line.strip_prefix("complete through ") {
                complete_through = index.parse().ok()?;
            }
            has_end |= line == HAS_END;
        }
        Some(Format { version, engine, id, complete_through, has_end })
    }

    /// Refuses a directory of another format than this program's.
    fn check_version(&self, dir: &Path) -> Result<(), String> {
        let (age, advice) = match self.version.cmp(&FORMAT) {
            Ordering::Equal => return Ok(()),
            Ordering::Greater => ("newer", "Run the version that wrote it, or a newer one."),
            Ordering::Less => ("older", "Export the data with the version that wrote it, and import them here."),
        };
        let (dir, found) = (dir.display(), self.version);
        Err(format!(
            "The data directory {dir} is of format {found}, which is {age} than this program's format {FORMAT}. {advice}"
        ))
    }

    fn check(&self, dir: &Path, engine: Engine) -> Result<(), String> {
        self.check_version(dir)?;
        if self.engine != engine_name(engine) {
            return Err(format!(
                "The data directory {} belongs to 'engine {}', but the configuration asks for 'engine {}'. Change the directive, or choose another directory with --dir.",
                dir.display(),
                self.engine,
                engine_name(engine)
            ));
        }
        Ok(())
    }
}

fn read_format(dir: &Path) -> Result<Option<Format>, String> {
    let path = dir.join(FORMAT_FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => match Format::parse(&text) {
            Some(format) => Ok(Some(format)),
            None => Err(format!(
                "The file {} is not what this server writes there: the directory is damaged, or not one of ours.",
                path.display()
            )),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("Can't read {}: {error}", path.display())),
    }
}

fn write_format(dir: &Path, format: &Format) -> std::io::Result<()> {
    let Format { version, engine, id, complete_through, .. } = format;
    let mut text = format!("haypile data directory\nformat {version}\nengine {engine}\nid {id}\n");
    if *complete_through > 0 {
        text += &format!("complete through {complete_through}\n");
    }
    write_text(dir, &text)
}

/// Writes the format file aside, and renames it: it is whole or as it was.
fn write_text(dir: &Path, text: &str) -> std::io::Result<()> {
    let (path, fresh) = (dir.join(FORMAT_FILE), dir.join("HAYPILE.new"));
    let mut file = File::create(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&fresh, &path)?;
    sync_dir(dir)
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
    fn the_format_file_reads_back() {
        let dir = std::env::temp_dir().join(format!("haypile-datadir-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary directory can be made");
        let id = DirectoryId::parse("0f1e2d3c4b5a69788796a5b4c3d2e1f0").expect("32 digits");
        write_format(&dir, &Format { id, ..Format::fresh(Engine::RocksDb) }).expect("it is writable");
        expect_end(&dir).expect("it is writable");
        let format = read_format(&dir).expect("readable").expect("just written");
        assert!(!format.has_end, "there is none");
        std::fs::write(dir.join(END_FILE), "").expect("it is writable");
        expect_end(&dir).expect("it is writable");
        let page = include_str!("../../../../docs/format/directory.md");
        let example = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
        assert_eq!(std::fs::read_to_string(dir.join(FORMAT_FILE)).ok().as_deref(), example, "as docs/format shows it");
        let format = read_format(&dir).expect("readable").expect("just written");
        let expected = Format { version: FORMAT, engine: "rocksdb".into(), id, complete_through: 0, has_end: true };
        assert_eq!(format, expected);
        assert!(format.check(&dir, Engine::RocksDb).is_ok());
        assert!(format.check(&dir, Engine::Memory).expect_err("another engine").contains("engine rocksdb"));
        mark_backup(&dir, Engine::RocksDb, 42).expect("it is writable");
        let mut log = haypile_log::Options::new(log_dir(&dir));
        tell(&mut log, &dir, true).expect("readable");
        assert_eq!(log.complete_through, Index(42), "a backup says how far it goes");
        let end = log.end.expect("it was told");
        assert_ne!(end.directory, id, "it is a directory of its own");
        assert!(!end.is_expected, "and has no note of its log's end");
        let text = std::fs::read_to_string(dir.join(FORMAT_FILE)).expect("just written");
        std::fs::write(dir.join(FORMAT_FILE), format!("{text}a line of a later version\n")).expect("it is writable");
        expect_end(&dir).expect("it is writable");
        let after = std::fs::read_to_string(dir.join(FORMAT_FILE)).expect("readable");
        assert_eq!(after, format!("{text}a line of a later version\n{HAS_END}\n"));
        let restored = read_format(&dir).expect("readable").expect("just written");
        assert!(restored.has_end && restored.complete_through == 42);
        let newer = Format { version: FORMAT + 1, ..format };
        let why = newer.check(&dir, Engine::RocksDb).expect_err("newer");
        assert!(why.contains("is of format 3, which is newer than this program's format 2"), "{why}");
        let older = Format { version: FORMAT - 1, ..newer };
        let why = older.check(&dir, Engine::RocksDb).expect_err("older");
        assert!(why.contains("is of format 1, which is older than this program's format 2. Export"), "{why}");
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }

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

    #[test]
    fn other_texts_are_no_format_files() {
        for text in [
            "",
            "haypile data directory\n",
            "haypile data directory\nformat x\nengine rocksdb\nid 0f1e2d3c4b5a69788796a5b4c3d2e1f0\n",
            "haypile data directory\nformat 2\nengine rocksdb\n",
            "haypile data directory\nformat 2\nengine rocksdb\nid 0f1e\n",
            "haypile data directory\nformat 2\nengine rocksdb\nid 0f1e2d3c4b5a69788796a5b4c3d2e1f0\ncomplete through the end\n",
            "redis\nformat 2\nengine rocksdb\nid 0f1e2d3c4b5a69788796a5b4c3d2e1f0\n",
        ] {
            assert_eq!(Format::parse(text), None, "{text:?}");
        }
    }
}
