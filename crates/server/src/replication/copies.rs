//! The copies of the data that replicas fetch: each a checkpoint of hard links in a directory of its own, with the log
//! behind it held for the replica that is going to follow from there.

use crate::backups::{Backups, check_room};
use crate::datadir;
use haypile_config::Settings;
use haypile_log::{DirectoryId, Hold, Index};
use haypile_replication::manifest::is_path;
use haypile_replication::{FileEntry, Manifest, Token};
use haypile_store::Store;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a copy stays that nobody fetches: a replica that was restarted comes back for it.
const KEPT: Duration = Duration::from_secs(60);

/// The copies that this server has for replicas.
pub struct Copies {
    settings: Arc<Settings>,
    copies: Mutex<HashMap<Token, Arc<Copy>>>,
    /// The lock of the making of a copy: one is made at a time.
    making: Mutex<()>,
}

/// A complete copy. Its directory is removed with it.
pub struct Copy {
    pub manifest: Manifest,
    /// The version of the store that the copy is of.
    version: u64,
    made: Instant,
    dir: PathBuf,
    /// Keeps the records behind the copy.
    pub hold: Mutex<Hold>,
    used: Mutex<Instant>,
}

impl Copies {
    /// Removes what an earlier process has left.
    pub fn new(settings: Arc<Settings>) -> Copies {
        let dir = datadir::copies_dir(&settings.config().dir);
        if let Err(error) = std::fs::remove_dir_all(&dir)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("copies for replicas of an earlier start cannot be removed: {}: {error}", dir.display());
        }
        Copies { settings, copies: Mutex::default(), making: Mutex::default() }
    }

    /// Makes a copy of the data as of now, of the store of this version, unless another one was made meanwhile that has
    /// the record `through`. Blocks for as long as it takes; asks `goes_on` now and then.
    ///
    /// # Errors
    /// A text for people. Nothing is left then.
    pub fn make(
        &self,
        store: &Store,
        version: u64,
        through: Index,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Arc<Copy>, String> {
        let _one_at_a_time = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        // Another replica's may have been made meanwhile.
        if let Some(copy) = self.get_recent(version, through) {
            return Ok(copy);
        }
        check_room(store)?;
        let config = self.settings.config();
        let (token, source) = (Token(DirectoryId::random().0), Token(datadir::id(&config.dir)?.0));
        let dir = datadir::copies_dir(&config.dir).join(token.to_string());
        let mut hold = store.log().hold();
        let made = Backups::fill(&dir, &config, store, goes_on).and_then(|(made, _)| {
            let files = files(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
            Ok(Manifest { token, source, index: made.index, files })
        });
        let manifest = made.inspect_err(|_| {
            // Files that cannot be removed now are removed at the next start.
            let _ = std::fs::remove_dir_all(&dir);
        })?;
        hold.advance(manifest.index.max(hold.after()));
        let now = Instant::now();
        let copy = Arc::new(Copy { manifest, version, made: now, dir, hold: Mutex::new(hold), used: Mutex::new(now) });
        self.copies.lock().unwrap_or_else(PoisonError::into_inner).insert(token, copy.clone());
        Ok(copy)
    }

    /// Returns a copy that was made lately of the store of this version, with this record, if there is one: a replica
    /// that comes back, or others that come at the same time, need no new one.
    pub fn get_recent(&self, version: u64, through: Index) -> Option<Arc<Copy>> {
        let copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        let is_one =
            |copy: &&Arc<Copy>| copy.version == version && copy.made.elapsed() < KEPT && copy.manifest.index >= through;
        let recent = copies.values().filter(is_one);
        let copy = recent.max_by_key(|copy| copy.made).cloned();
        copy.inspect(|copy| copy.use_now())
    }

    /// Returns the copy of this name, if it is there still.
    pub fn get(&self, token: Token) -> Option<Arc<Copy>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner).get(&token).cloned()
    }

    /// Forgets a copy: it goes with its last user.
    pub fn remove(&self, token: Token) {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner).remove(&token);
    }

    /// Removes copies that nobody uses, and that nobody has used for a while or that keep too much.
    pub fn tidy(&self, keeps_too_much: impl Fn(&Mutex<Hold>) -> bool) {
        let is_old =
            |copy: &Arc<Copy>| Arc::strong_count(copy) == 1 && (copy.idle() > KEPT || keeps_too_much(&copy.hold));
        let old: Vec<_> = {
            let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
            copies.extract_if(|_, copy| is_old(copy)).collect()
        };
        // Files are removed without the lock.
        drop(old);
    }
}

impl Copy {
    /// Returns the directory of the copy.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Notes that somebody fetches the copy.
    pub fn use_now(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns how long nobody has fetched anything of the copy.
    pub fn idle(&self) -> Duration {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Opens a file by its place in the manifest.
    pub fn open(&self, file: u32) -> io::Result<(std::fs::File, u64)> {
        self.use_now();
        let entry = self.manifest.files.get(file as usize);
        let entry = entry.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the copy has no such file"))?;
        Ok((std::fs::File::open(self.dir.join(&entry.path))?, entry.bytes))
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            tracing::warn!("a copy for a replica cannot be removed: {}: {error}", self.dir.display());
        }
    }
}

/// Returns the files of a copy, with their lengths.
fn files(dir: &Path) -> io::Result<Vec<FileEntry>> {
    let mut files = Vec::new();
    let mut directories = vec![(dir.to_owned(), String::new())];
    while let Some((path, prefix)) = directories.pop() {
        for entry in std::fs::read_dir(&path)? {
            let entry = entry?;
            let (about, name) = (entry.metadata()?, entry.file_name().to_string_lossy().into_owned());
            let path = format!("{prefix}{name}");
            match about.is_dir() {
                true => directories.push((entry.path(), format!("{path}/"))),
                false if is_path(&path) => files.push(FileEntry { path, bytes: about.len() }),
                // The base's lock and its log for people are each node's own.
                false => {}
            }
        }
    }
    files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}
