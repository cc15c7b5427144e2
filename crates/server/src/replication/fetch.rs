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

    /// Fetches all files; `goes_on` is asked now and then. They are on the disk when this returns.
    ///
    /// # Errors
    /// The first error of any connection, or of the disk. Whole files stay for the next attempt.
    pub fn run(&self, goes_on: &(dyn Fn() -> bool + Sync)) -> io::Result<()> {
        self.prepare()?;
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

    /// Removes what an earlier attempt has left and the copy does not have.
    fn prepare(&self) -> io::Result<()> {
        datadir::unmark_incoming(&self.replication.engine.settings.config().dir)?;
        let source = self.manifest.source.to_string();
        let is_same = std::fs::read_to_string(self.dir.join(SOURCE_FILE)).is_ok_and(|text| text == source);
        if !is_same {
            match std::fs::remove_dir_all(&self.dir) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        for dir in ["base", "log"] {
            std::fs::create_dir_all(self.dir.join(dir))?;
        }
        std::fs::write(self.dir.join(SOURCE_FILE), source)?;
        let files: std::collections::HashMap<PathBuf, &FileEntry> =
            self.manifest.files.iter().map(|file| (self.dir.join(&file.path), file)).collect();
        for dir in [self.dir.join("base"), self.dir.join("log"), self.dir.clone()] {
            for entry in std::fs::read_dir(dir)? {
                let (entry, path) = entry.map(|entry| (entry.metadata(), entry.path()))?;
                let about = entry?;
                // A table is written once. All other files are fetched again.
                let is_whole = |file: &&FileEntry| file.is_table() && file.bytes == about.len();
                let keeps = about.is_dir() || path.ends_with(SOURCE_FILE) || files.get(&path).is_some_and(is_whole);
                if !keeps {
                    std::fs::remove_file(path)?;
                }
            }
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
                self.count(file.bytes);
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
            if !incoming.receive()? {
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
