//! A file layer that does what another one does, until it is told to fail.
//!
//! All settings take effect at once and for every file; counts are of calls on files, in the order in which they come.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::files::{File, Files};

#[derive(Debug)]
pub struct FaultFiles {
    inner: Arc<dyn Files>,
    script: Arc<Script>,
}

#[derive(Debug, Default)]
struct Script {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    writes: u64,
    syncs: u64,
    bytes: u64,
    read_bytes: u64,
    fail_writes: Option<(u64, u64, io::ErrorKind)>,
    fail_syncs: Option<(u64, u64)>,
    write_bytes_max: Option<usize>,
    full: bool,
    allocation_bytes_max: Option<u64>,
    crash_at: Option<u64>,
    crashed: bool,
    hold_writes: bool,
    hold_syncs: bool,
    waiting: u64,
}

impl FaultFiles {
    pub fn new(inner: Arc<dyn Files>) -> FaultFiles {
        FaultFiles { inner, script: Arc::default() }
    }

    /// The writes after the next `skip` fail, `count` of them, with this kind of error and without effect.
    pub fn fail_writes(&self, skip: u64, count: u64, kind: io::ErrorKind) {
        let mut state = self.script.lock();
        let from = state.writes + skip;
        state.fail_writes = Some((from, from + count, kind));
    }

    /// The syncs of files after the next `skip` fail, `count` of them.
    pub fn fail_syncs(&self, skip: u64, count: u64) {
        let mut state = self.script.lock();
        let from = state.syncs + skip;
        state.fail_syncs = Some((from, from + count));
    }

    /// Each write takes at most so many bytes.
    pub fn short_writes(&self, bytes_max: Option<usize>) {
        self.script.lock().write_bytes_max = bytes_max;
    }

    /// Sets whether the disk is full: then nothing can be created or allocated; what is allocated can be written.
    pub fn set_full(&self, full: bool) {
        self.script.lock().full = full;
    }

    /// The disk has room for files of so many bytes at the most.
    pub fn limit_allocations(&self, bytes_max: Option<u64>) {
        self.script.lock().allocation_bytes_max = bytes_max;
    }

    /// Has every call fail after so many more bytes have been written, exactly.
    pub fn crash_after(&self, bytes: u64) {
        let mut state = self.script.lock();
        state.crash_at = Some(state.bytes + bytes);
    }

    pub fn crashed(&self) -> bool {
        self.script.lock().crashed
    }

    /// Sets whether writes wait.
    pub fn hold_writes(&self, hold: bool) {
        self.script.lock().hold_writes = hold;
        self.script.changed.notify_all();
    }

    /// Sets whether syncs of files wait.
    pub fn hold_syncs(&self, hold: bool) {
        self.script.lock().hold_syncs = hold;
        self.script.changed.notify_all();
    }

    /// Blocks until some call waits because of a hold.
    pub fn wait_for_held(&self) {
        let mut state = self.script.lock();
        while state.waiting == 0 {
            state = self.script.changed.wait(state).expect("no holder of this lock panics");
        }
    }

    /// Writes to files so far.
    pub fn writes(&self) -> u64 {
        self.script.lock().writes
    }

    /// Syncs of files so far.
    pub fn syncs(&self) -> u64 {
        self.script.lock().syncs
    }

    /// Bytes written to files so far.
    pub fn bytes(&self) -> u64 {
        self.script.lock().bytes
    }

    /// Bytes read from files so far.
    pub fn read_bytes(&self) -> u64 {
        self.script.lock().read_bytes
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(FaultFile { inner: file, script: self.script.clone() })
    }
}

impl Script {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    fn alive(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.crashed { Err(io::Error::other("injected: crashed")) } else { Ok(state) }
    }

    fn wait_while<'a>(&'a self, mut state: MutexGuard<'a, State>, held: fn(&State) -> bool) -> MutexGuard<'a, State> {
        state.waiting += 1;
        self.changed.notify_all();
        while held(&state) {
            state = self.changed.wait(state).expect("no holder of this lock panics");
        }
        state.waiting -= 1;
        state
    }
}

impl Files for FaultFiles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        if self.script.alive()?.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(self.wrap(self.inner.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        drop(self.script.alive()?);
        Ok(self.wrap(self.inner.open(path)?))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        drop(self.script.alive()?);
        self.inner.list(dir)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        drop(self.script.alive()?);
        self.inner.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        drop(self.script.alive()?);
        self.inner.rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        drop(self.script.alive()?);
        self.inner.sync_dir(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        drop(self.script.alive()?);
        self.inner.create_dir_all(dir)
    }
}

#[derive(Debug)]
struct FaultFile {
    inner: Arc<dyn File>,
    script: Arc<Script>,
}

impl File for FaultFile {
    fn identity(&self) -> io::Result<Option<(u64, u64)>> {
        drop(self.script.alive()?);
        self.inner.identity()
    }

    fn len(&self) -> io::Result<u64> {
        drop(self.script.alive()?);
        self.inner.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        drop(self.script.alive()?);
        let read = self.inner.read_at(buf, offset)?;
        self.script.lock().read_bytes += read as u64;
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut state = self.script.alive()?;
        if state.hold_writes {
            state = self.script.wait_while(state, |state| state.hold_writes);
        }
        let number = state.writes;
        state.writes += 1;
        if let Some((from, until, kind)) = state.fail_writes
            && (from..until).contains(&number)
        {
            return Err(io::Error::new(kind, "injected: write failed"));
        }
        let mut length = bytes.len().min(state.write_bytes_max.unwrap_or(usize::MAX));
        if let Some(crash_at) = state.crash_at
            && state.bytes + length as u64 >= crash_at
        {
            length = (crash_at - state.bytes) as usize;
            state.crashed = true;
        }
        state.bytes += length as u64;
        let crashed = state.crashed;
        drop(state);
        if length > 0 {
            crate::files::write_all_at(&*self.inner, &bytes[..length], offset)?;
        }
        if crashed { Err(io::Error::other("injected: crashed")) } else { Ok(length) }
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let state = self.script.alive()?;
        if state.full || state.allocation_bytes_max.is_some_and(|max| bytes > max) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        drop(state);
        self.inner.allocate(bytes)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        drop(self.script.alive()?);
        self.inner.truncate(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.script.alive()?;
        if state.hold_syncs {
            state = self.script.wait_while(state, |state| state.hold_syncs);
        }
        let number = state.syncs;
        state.syncs += 1;
        if let Some((from, until)) = state.fail_syncs
            && (from..until).contains(&number)
        {
            return Err(io::Error::other("injected: sync failed"));
        }
        drop(state);
        self.inner.sync()
    }
}
