//! A file system in memory that keeps what was synced apart from what was not, and can lose the latter.
//!
//! The model is the worst that a kernel and a disk may do: of all unsynced writes any sectors survive, file lengths and
//! names change or not, each by itself; a file's sync says nothing about its name. Renames stay whole.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::Random;
use crate::files::{File, Files};

/// The bytes that a disk writes whole.
const SECTOR_BYTES: u64 = 512;

/// The disk. As a file layer it is the test's own and outlives every crash; a server under test gets a
/// [`process`](Self::process) of it. A clone is another handle on the same disk.
#[derive(Clone, Debug, Default)]
pub struct ForgetfulFiles {
    disk: Arc<Mutex<Disk>>,
    /// The life that this handle belongs to, if it is a process's.
    life: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Disk {
    /// Handles of an earlier life do not work any more.
    life: u64,
    nodes: Vec<Node>,
    dirs: BTreeSet<PathBuf>,
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    unsynced_names: Vec<NameChange>,
    failing_syncs: u64,
}

#[derive(Clone, Debug, Default)]
struct Node {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Length(u64),
}

#[derive(Clone, Debug)]
enum NameChange {
    Link { path: PathBuf, node: usize },
    Unlink { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, node: usize },
}

impl ForgetfulFiles {
    pub fn new() -> ForgetfulFiles {
        ForgetfulFiles::default()
    }

    /// A file layer that works until the next [`crash`](Self::crash) or [`kill`](Self::kill): whatever a dead server's
    /// threads still do has no effect.
    pub fn process(&self) -> Arc<dyn Files> {
        let life = self.lock().life;
        Arc::new(ForgetfulFiles { disk: self.disk.clone(), life: Some(life) })
    }

    /// The power fails now: any part of what was not synced is gone, as `seed` decides; processes and open files are
    /// dead.
    pub fn crash(&self, seed: u64) {
        let mut random = Random(seed);
        // Whole runs where nothing, or everything, survives are as likely as a mixture.
        let percent = [0, 5, 50, 95, 100][random.below(5) as usize];
        let mut disk = self.lock();
        let disk = &mut *disk;
        disk.life += 1;
        for node in &mut disk.nodes {
            for change in std::mem::take(&mut node.unsynced) {
                match change {
                    Change::Length(bytes) if random.chance(percent) => node.synced.resize(bytes as usize, 0),
                    Change::Length(_) => {}
                    Change::Write { offset, bytes } => {
                        for (offset, sector) in sectors(offset, &bytes) {
                            if random.chance(percent) {
                                write(&mut node.synced, offset, sector);
                            }
                        }
                    }
                }
            }
            node.bytes = node.synced.clone();
        }
        for change in std::mem::take(&mut disk.unsynced_names) {
            if random.chance(percent) {
                change.apply(&mut disk.synced_names);
            }
        }
        disk.names = disk.synced_names.clone();
    }

    /// The process dies now, the machine goes on: nothing is lost, processes and open files are dead.
    pub fn kill(&self) {
        self.lock().life += 1;
    }

    /// The next `count` syncs of files fail, and lose what they should have synced: it is still read, but no later sync
    /// brings it to the disk. This is what Linux does.
    pub fn fail_syncs(&self, count: u64) {
        self.lock().failing_syncs = count;
    }

    /// Returns a second disk in the same state, with what is not synced: to let the power fail there in many ways.
    pub fn copy(&self) -> ForgetfulFiles {
        ForgetfulFiles { disk: Arc::new(Mutex::new(self.lock().clone())), life: None }
    }

    /// The content of a file as a process sees it.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let disk = self.lock();
        let node = *disk.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(disk.nodes[node].bytes.clone())
    }

    /// Replaces the content of a file, durably: for tests that damage one.
    pub fn replace(&self, path: &Path, bytes: Vec<u8>) {
        let mut disk = self.lock();
        let disk = &mut *disk;
        let node = *disk.names.entry(path.to_owned()).or_insert_with(|| {
            disk.nodes.push(Node::default());
            disk.nodes.len() - 1
        });
        disk.synced_names.insert(path.to_owned(), node);
        disk.nodes[node] = Node { bytes: bytes.clone(), synced: bytes, unsynced: Vec::new() };
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().expect("no test panics while it holds this lock")
    }

    fn alive(&self) -> io::Result<MutexGuard<'_, Disk>> {
        let disk = self.lock();
        match self.life {
            Some(life) if life != disk.life => Err(dead()),
            _ => Ok(disk),
        }
    }

    fn handle(&self, life: u64, node: usize) -> Arc<dyn File> {
        Arc::new(ForgetfulFile { files: self.clone(), life, node })
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            NameChange::Link { path, node } => {
                names.insert(path.clone(), *node);
            }
            NameChange::Unlink { path } => {
                names.remove(path);
            }
            NameChange::Rename { from, to, node } => {
                if names.get(from) == Some(node) {
                    names.remove(from);
                }
                names.insert(to.clone(), *node);
            }
        }
    }

    fn is_in(&self, dir: &Path) -> bool {
        let (NameChange::Link { path, .. } | NameChange::Unlink { path } | NameChange::Rename { to: path, .. }) = self;
        path.parent() == Some(dir)
    }
}

impl Files for ForgetfulFiles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut disk = self.alive()?;
        if !path.parent().is_some_and(|dir| disk.dirs.contains(dir)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.nodes.push(Node::default());
        let node = disk.nodes.len() - 1;
        disk.change_names(NameChange::Link { path: path.to_owned(), node });
        Ok(self.handle(disk.life, node))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let disk = self.alive()?;
        let node = *disk.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.handle(disk.life, node))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let disk = self.alive()?;
        if !disk.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = disk.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.alive()?;
        if !disk.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.change_names(NameChange::Unlink { path: path.to_owned() });
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.alive()?;
        let node = *disk.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        disk.change_names(NameChange::Rename { from: from.to_owned(), to: to.to_owned(), node });
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.alive()?;
        let disk = &mut *disk;
        let (now, later) = std::mem::take(&mut disk.unsynced_names).into_iter().partition(|change| change.is_in(dir));
        disk.unsynced_names = later;
        let now: Vec<NameChange> = now;
        now.iter().for_each(|change| change.apply(&mut disk.synced_names));
        Ok(())
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.alive()?.dirs.extend(dir.ancestors().map(Path::to_owned));
        Ok(())
    }
}

impl Disk {
    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced_names.push(change);
    }
}

#[derive(Debug)]
struct ForgetfulFile {
    files: ForgetfulFiles,
    life: u64,
    node: usize,
}

impl ForgetfulFile {
    fn with<T>(&self, run: impl FnOnce(&mut Node) -> T) -> io::Result<T> {
        let mut disk = self.files.lock();
        if disk.life != self.life {
            return Err(dead());
        }
        Ok(run(&mut disk.nodes[self.node]))
    }
}

impl File for ForgetfulFile {
    fn len(&self) -> io::Result<u64> {
        self.with(|node| node.bytes.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|node| {
            let rest = node.bytes.get(offset as usize..).unwrap_or(&[]);
            let read = rest.len().min(buf.len());
            buf[..read].copy_from_slice(&rest[..read]);
            read
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.with(|node| {
            write(&mut node.bytes, offset, bytes);
            node.unsynced.push(Change::Write { offset, bytes: bytes.to_vec() });
            bytes.len()
        })
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.with(|node| {
            if (node.bytes.len() as u64) < bytes {
                node.bytes.resize(bytes as usize, 0);
                node.unsynced.push(Change::Length(bytes));
            }
        })
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.with(|node| {
            node.bytes.resize(bytes as usize, 0);
            node.unsynced.push(Change::Length(bytes));
        })
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.files.lock();
        if disk.life != self.life {
            return Err(dead());
        }
        let fails = disk.failing_syncs > 0;
        disk.failing_syncs = disk.failing_syncs.saturating_sub(1);
        let node = &mut disk.nodes[self.node];
        let unsynced = std::mem::take(&mut node.unsynced);
        if fails {
            return Err(io::Error::other("injected: sync failed"));
        }
        for change in unsynced {
            match change {
                Change::Write { offset, bytes } => write(&mut node.synced, offset, &bytes),
                Change::Length(bytes) => node.synced.resize(bytes as usize, 0),
            }
        }
        Ok(())
    }

    fn identity(&self) -> io::Result<Option<(u64, u64)>> {
        Ok(Some((0, self.node as u64)))
    }
}

fn dead() -> io::Error {
    io::Error::other("the process or the machine has died")
}

fn write(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + bytes.len());
    if content.len() < end {
        content.resize(end, 0);
    }
    content[start..end].copy_from_slice(bytes);
}

/// The pieces of a write that survive or not on their own.
fn sectors(mut offset: u64, mut bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        let until_boundary = (SECTOR_BYTES - offset % SECTOR_BYTES) as usize;
        let (sector, rest) = bytes.split_at(until_boundary.min(bytes.len()));
        let at = offset;
        offset += sector.len() as u64;
        bytes = rest;
        (!sector.is_empty()).then_some((at, sector))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_and_the_rest_may_not() {
        let (dir, path) = (Path::new("/d"), Path::new("/d/f"));
        let (mut kept, mut lost, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let files = ForgetfulFiles::new();
            files.create_dir_all(dir).unwrap();
            let process = files.process();
            let file = process.create(path).unwrap();
            file.write_at(&[1; 2048], 0).unwrap();
            file.sync().unwrap();
            files.sync_dir(dir).unwrap();
            file.write_at(&[2; 2048], 1024).unwrap();
            assert_eq!(files.read(path).unwrap().len(), 3072, "the process sees what it wrote");
            files.crash(seed);
            assert!(file.len().is_err() && process.list(dir).is_err(), "a process does not outlive the crash");
            let bytes = files.read(path).unwrap();
            assert_eq!(&bytes[..1024], &[1; 1024], "seed {seed}");
            match bytes[1024..].iter().filter(|byte| **byte == 2).count() {
                0 => lost += 1,
                2048 => kept += 1,
                _ => torn += 1,
            }
        }
        assert!(kept > 20 && lost > 20 && torn > 20, "kept {kept}, lost {lost}, torn {torn}");
    }

    #[test]
    fn a_name_is_durable_only_after_its_directory_is_synced() {
        let dir = Path::new("/d");
        let (mut old, mut new, mut none) = (0, 0, 0);
        for seed in 0..200 {
            let files = ForgetfulFiles::new();
            files.create_dir_all(dir).unwrap();
            files.create(Path::new("/d/a")).unwrap().sync().unwrap();
            files.rename(Path::new("/d/a"), Path::new("/d/b")).unwrap();
            files.crash(seed);
            match &files.list(dir).unwrap()[..] {
                [] => none += 1,
                [name] if name == "a" => old += 1,
                [name] if name == "b" => new += 1,
                names => panic!("seed {seed}: a rename is whole, found {names:?}"),
            }
        }
        assert!(old > 5 && new > 20 && none > 20, "old {old}, new {new}, none {none}");
    }

    #[test]
    fn a_failed_sync_loses_what_it_should_have_synced() {
        let (dir, path) = (Path::new("/d"), Path::new("/d/f"));
        let files = ForgetfulFiles::new();
        files.create_dir_all(dir).unwrap();
        let file = files.create(path).unwrap();
        files.sync_dir(dir).unwrap();
        file.write_at(b"lost", 0).unwrap();
        files.fail_syncs(1);
        assert!(file.sync().is_err());
        file.sync().unwrap();
        assert_eq!(files.read(path).unwrap(), b"lost", "it is still seen");
        files.crash(1);
        assert_eq!(files.read(path).unwrap(), b"");
    }
}
