//! A replica's side of a copy: it fetches the files over several connections, keeps those that it has already, and puts
//! the whole in place of its own data.

use crate::datadir::{self, sync_dir};
use crate::process::give_way;
use crate::replication::connect::connect_to_haypile;
use crate::replication::feed::unexpected;
use crate::replication::state::{Registered, Replication};
use crate::replication::wire::{Incoming, Outgoing};
use crate::unbuffered::Unbuffered;
use haypile_engine::{Link, Master};
use haypile_replication::frame::Frame;
use haypile_replication::{FileEntry, Manifest, Request, Sink};
use std::collections::HashMap;
use std::io::{self, Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Connections that fetch files.
pub const CONNECTIONS: usize = 3;

/// The file that names the data directory which the files in `incoming` are of.
const SOURCE_FILE: &str = "SOURCE";

/// The ending of the name of a file that is not whole.
const PART: &str = ".part";

/// A copy that is being fetched.
pub struct Fetch<'a> {
    pub replication: &'a Replication,
    pub master: &'a Master,
    version: u64,
    pub manifest: &'a Manifest,
    dir: PathBuf,
    next: AtomicUsize,
    done: AtomicU64,
    total: u64,
    failed: AtomicBool,
}

impl<'a> Fetch<'a> {
    pub fn new(replication: &'a Replication, master: &'a Master, version: u64, manifest: &'a Manifest) -> Fetch<'a> {
        let dir = datadir::incoming_dir(&replication.engine.settings.config().dir);
        let (next, done, failed) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Fetch { replication, master, version, manifest, dir, next, done, total: manifest.bytes(), failed }
    }

    /// Fetches all files that an earlier attempt has not fetched; `goes_on` is asked now and then. All are on the disk
    /// when this returns.
    ///
    /// # Errors
    /// The disk has no room for them; or the first error of any connection, or of the disk. Whole files stay for the
    /// next attempt.
    pub fn run(&self, goes_on: &(dyn Fn() -> bool + Sync)) -> io::Result<()> {
        datadir::unmark_incoming(&self.replication.engine.settings.config().dir)?;
        let kept = clear(&self.dir, self.manifest)?;
        if kept > 0 {
            tracing::info!("{kept} bytes of the copy are here already");
        }
        let room = self.replication.engine.store().map_or((None, 0), |store| store.disk_room());
        check_room(room, self.total, kept)?;
        // Files that are here count before any other: what is counted then has come since.
        self.count(kept);
        let connections = CONNECTIONS.min(self.manifest.files.len());
        std::thread::scope(|threads| {
            let fetching: Vec<_> = (0..connections)
                .map(|_| {
                    threads
                        .spawn(|| self.fetch_files(goes_on).inspect_err(|_| self.failed.store(true, Ordering::Release)))
                })
                .collect();
            let ended = fetching.into_iter().map(|thread| thread.join());
            let ended = ended.map(|ended| ended.unwrap_or_else(|_| Err(Error::other("a thread has panicked"))));
            // Where one fails, the others end because of it.
            let errors = ended.filter_map(Result::err).collect::<Vec<_>>();
            errors.into_iter().min_by_key(|error| error.kind() == ErrorKind::Interrupted).map_or(Ok(()), Err)
        })?;
        for dir in [self.dir.join("base"), self.dir.join("log"), self.dir.clone()] {
            sync_dir(&dir)?;
        }
        Ok(())
    }

    /// Fetches files over one connection until there are none.
    fn fetch_files(&self, goes_on: &(dyn Fn() -> bool + Sync)) -> io::Result<()> {
        give_way();
        let mut connection = None;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = self.manifest.files.get(number) else { return Ok(()) };
            let path = self.dir.join(&file.path);
            if path.exists() {
                continue;
            }
            let (incoming, out, _) = match &mut connection {
                Some(connection) => connection,
                None => connection.insert(self.connect()?),
            };
            out.send(&Frame::Fetch { file: number as u32, offset: 0 })?;
            out.flush()?;
            self.fetch_file(number as u32, file, &path, incoming, goes_on)
                .map_err(|error| Error::new(error.kind(), format!("{}: {error}", file.path)))?;
        }
    }

    fn connect(&self) -> io::Result<(Incoming, Outgoing, Registered<'a>)> {
        let (mut remote, registered) = connect_to_haypile(self.replication, self.master, self.version)?;
        let words = Request::Fetch(self.manifest.token).words();
        let words: Vec<&[u8]> =
            std::iter::once(&b"REPLCONF"[..]).chain(words.iter().map(|word| word.as_bytes())).collect();
        remote.send(&words)?;
        remote.flush()?;
        let (stream, read) = remote.into_parts();
        stream.set_read_timeout(Some(self.replication.timeout()))?;
        Ok((Incoming::new(stream.clone(), read), Outgoing::new(stream), registered))
    }

    fn fetch_file(
        &self,
        number: u32,
        file: &FileEntry,
        path: &Path,
        incoming: &mut Incoming,
        goes_on: &(dyn Fn() -> bool + Sync),
    ) -> io::Result<()> {
        let part = PathBuf::from(format!("{}{PART}", path.display()));
        let mut written = Unbuffered::create(&part)?;
        let mut have = 0;
        loop {
            while let Some(frame) = incoming.next()? {
                let bytes = match frame {
                    Frame::Piece { file, offset, bytes } if (file, offset) == (number, have) => bytes,
                    Frame::Refused(why) => return Err(Error::other(format!("the master says: {why}"))),
                    other => return Err(unexpected(&other)),
                };
                if bytes.is_empty() {
                    if have != file.bytes {
                        return Err(Error::new(ErrorKind::InvalidData, "the file is shorter than the list says"));
                    }
                    written.finish()?;
                    return std::fs::rename(&part, path);
                }
                have += bytes.len() as u64;
                if have > file.bytes {
                    return Err(Error::new(ErrorKind::InvalidData, "the file is longer than the list says"));
                }
                written.write(bytes)?;
                self.count(bytes.len() as u64);
            }
            if !goes_on() || self.failed.load(Ordering::Acquire) {
                return Err(Error::new(ErrorKind::Interrupted, "it is not wanted any more"));
            }
            if incoming.silence() > self.replication.timeout() || !incoming.receive()? {
                return Err(Error::new(ErrorKind::TimedOut, "the master sends nothing"));
            }
        }
    }

    fn count(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let total = self.total;
        self.replication.engine.replication.note_upstream(self.master, |upstream| {
            upstream.link = Link::Copy { done, total };
            upstream.heard = Some(std::time::Instant::now());
        });
    }
}

/// Makes sure that the disk has room for what of a copy of `total` bytes is still to come.
///
/// # Errors
/// Fewer bytes than the disk should keep would be free then.
fn check_room((free, keep_free): (Option<u64>, u64), total: u64, kept: u64) -> io::Result<()> {
    let lacks = total - kept;
    if free.is_none_or(|free| free >= keep_free.saturating_add(lacks)) {
        return Ok(());
    }
    let why = format!("the disk has no room for a copy of {total} bytes, of which {lacks} are to come");
    Err(Error::new(ErrorKind::StorageFull, why))
}

/// Removes what an earlier attempt has left in `dir` and the copy does not have. Returns the bytes of those files of
/// the copy that are there.
fn clear(dir: &Path, manifest: &Manifest) -> io::Result<u64> {
    let source = manifest.source.to_string();
    let is_same = std::fs::read_to_string(dir.join(SOURCE_FILE)).is_ok_and(|text| text == source);
    if !is_same {
        match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    for name in ["base", "log"] {
        std::fs::create_dir_all(dir.join(name))?;
    }
    std::fs::write(dir.join(SOURCE_FILE), source)?;
    let files: HashMap<PathBuf, &FileEntry> = manifest.files.iter().map(|file| (dir.join(&file.path), file)).collect();
    let mut kept = 0;
    for dir in [dir.join("base"), dir.join("log"), dir.to_owned()] {
        for entry in std::fs::read_dir(dir)? {
            let (entry, path) = entry.map(|entry| (entry.metadata(), entry.path()))?;
            let about = entry?;
            // A table is written once. All other files are fetched again.
            let is_whole = |file: &&FileEntry| file.is_table() && file.bytes == about.len();
            if files.get(&path).is_some_and(is_whole) {
                kept += about.len();
            } else if !about.is_dir() && !path.ends_with(SOURCE_FILE) {
                std::fs::remove_file(path)?;
            }
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_log::Index;
    use haypile_replication::Token;

    #[test]
    fn a_copy_that_goes_on_needs_room_for_the_rest_only() {
        let refuses = |room, kept| {
            check_room(room, 1000, kept).is_err_and(|error| {
                error.kind() == ErrorKind::StorageFull
                    && error.to_string().contains(&format!("{} are to come", 1000 - kept))
            })
        };
        // The free bytes, those to keep, and those of the copy that are here.
        for (free, keep_free, kept, is_refused) in [
            (999, 0, 0, true),
            (1000, 0, 0, false),
            (399, 0, 600, true),
            (400, 0, 600, false),
            (449, 50, 600, true),
            (450, 50, 600, false),
            (50, 50, 1000, false),
            (u64::MAX - 1, u64::MAX, 0, true),
        ] {
            assert_eq!(refuses((Some(free), keep_free), kept), is_refused, "{free} free, {kept} here");
        }
        assert!(!refuses((None, 50), 0), "nobody knows the room");
    }

    #[test]
    fn whole_tables_of_the_same_master_stay_and_need_no_room() {
        let own = std::env::temp_dir().join(format!("haypile-fetch-{}", std::process::id()));
        let dir = own.join("incoming");
        let files = [("HAYPILE", 90), ("base/000012.sst", 100), ("base/000013.sst", 50), ("log/00000001.log", 7)];
        let files = files.map(|(path, bytes)| FileEntry { path: path.into(), bytes }).to_vec();
        let manifest = Manifest { token: Token([1; 16]), source: Token([2; 16]), index: Index(9), files };
        assert_eq!(clear(&dir, &manifest).expect("the directory is ours"), 0);
        let write = |name: &str, bytes: usize| {
            std::fs::write(dir.join(name), vec![7; bytes]).expect("the directory is ours");
        };
        write("HAYPILE", 90);
        write("base/000012.sst", 100);
        write("base/000013.sst.part", 30);
        write("base/000014.sst", 10);
        write("log/00000001.log", 7);
        assert_eq!(clear(&dir, &manifest).expect("the directory is ours"), 100, "one table is whole");
        let left = |name: &str| dir.join(name).exists();
        assert!(left("base/000012.sst") && left(SOURCE_FILE));
        assert!(!["HAYPILE", "base/000013.sst.part", "base/000014.sst", "log/00000001.log"].into_iter().any(left));
        write("base/000013.sst", 49);
        assert_eq!(clear(&dir, &manifest).expect("the directory is ours"), 100, "a shorter one is none of the copy's");
        assert!(!left("base/000013.sst"));
        let of_another = Manifest { source: Token([3; 16]), ..manifest };
        assert_eq!(clear(&dir, &of_another).expect("the directory is ours"), 0);
        assert!(!left("base/000012.sst"), "a table of another master has the name by chance");
        std::fs::remove_dir_all(own).expect("the directory is ours");
    }
}
