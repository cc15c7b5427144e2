//! The files of a process that can die: from then on no call of its threads reaches them.

use haypile_log::{File, Files};
use parking_lot::RwLock;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A file layer that passes everything on, until it is killed.
#[derive(Debug)]
pub struct MortalFiles {
    inner: Arc<dyn Files>,
    is_dead: Arc<RwLock<bool>>,
}

#[derive(Debug)]
struct MortalFile {
    inner: Arc<dyn File>,
    is_dead: Arc<RwLock<bool>>,
}

impl MortalFiles {
    pub fn new(inner: Arc<dyn Files>) -> MortalFiles {
        MortalFiles { inner, is_dead: Arc::default() }
    }

    /// Makes every call fail from now on. Calls in flight end first.
    pub fn kill(&self) {
        *self.is_dead.write() = true;
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(MortalFile { inner: file, is_dead: self.is_dead.clone() })
    }
}

fn alive<T>(is_dead: &RwLock<bool>, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let is_dead = is_dead.read();
    if *is_dead { Err(io::Error::other("injected: the process is dead")) } else { run() }
}

impl Files for MortalFiles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        alive(&self.is_dead, || self.inner.create(path)).map(|file| self.wrap(file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        alive(&self.is_dead, || self.inner.open(path)).map(|file| self.wrap(file))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        alive(&self.is_dead, || self.inner.list(dir))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        alive(&self.is_dead, || self.inner.remove(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        alive(&self.is_dead, || self.inner.rename(from, to))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        alive(&self.is_dead, || self.inner.sync_dir(dir))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        alive(&self.is_dead, || self.inner.create_dir_all(dir))
    }
}

impl File for MortalFile {
    fn identity(&self) -> io::Result<Option<(u64, u64)>> {
        alive(&self.is_dead, || self.inner.identity())
    }

    fn len(&self) -> io::Result<u64> {
        alive(&self.is_dead, || self.inner.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        alive(&self.is_dead, || self.inner.read_at(buf, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        alive(&self.is_dead, || self.inner.write_at(bytes, offset))
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        alive(&self.is_dead, || self.inner.allocate(bytes))
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        alive(&self.is_dead, || self.inner.truncate(bytes))
    }

    fn sync(&self) -> io::Result<()> {
        alive(&self.is_dead, || self.inner.sync())
    }
}
