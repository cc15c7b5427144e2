//! One of several nodes of a test: its log lies on files that forget unsynced bytes, its base is of any kind.

use super::{FaultBase, MortalFiles, options};
use crate::base::memory::MemoryBase;
use crate::base::{Base, BaseError, Direction, Rows, Step, Tier};
use crate::check::LogEnd;
use crate::follow::{Named, RecordLocks};
use crate::open::OpenError;
use crate::options::StoreOptions;
use crate::stop::Mode;
use crate::store::Store;
use crate::txn::{Call, Txn, TxnBuffers};
use haypile_log::testing::ForgetfulFiles;
use haypile_log::{Files, History, HistoryStart, Index, Next, Through};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A function that opens a base, again after it was closed, with the rows it had.
pub type OpenBase = Arc<dyn Fn() -> Arc<dyn Base> + Send + Sync>;

/// A source of bases for nodes.
pub trait Bases {
    /// Returns a base without rows.
    fn fresh(&self) -> OpenBase;
    /// Returns a base that begins with the rows of another one.
    fn copy_of(&self, base: &dyn Base) -> OpenBase;
}

/// Bases in memory.
pub struct MemoryBases;

impl Bases for MemoryBases {
    fn fresh(&self) -> OpenBase {
        let base = Arc::new(MemoryBase::default());
        Arc::new(move || base.clone())
    }

    fn copy_of(&self, base: &dyn Base) -> OpenBase {
        let copy = Arc::new(MemoryBase::default());
        copy.ingest(&mut Copied(rows_of(base).into_iter(), Default::default())).expect("memory has room");
        Arc::new(move || copy.clone())
    }
}

/// The rows of a copied base, in ascending order.
struct Copied(std::vec::IntoIter<(Vec<u8>, Vec<u8>)>, (Vec<u8>, Vec<u8>));

impl Rows for Copied {
    fn next_row(&mut self) -> Result<Option<(&[u8], Option<&[u8]>)>, BaseError> {
        let Some(next) = self.0.next() else { return Ok(None) };
        self.1 = next;
        Ok(Some((&self.1.0, Some(&self.1.1))))
    }
}

/// Returns all rows of a base, in ascending order.
pub fn rows_of(base: &dyn Base) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut cursor = base.scan(&[0], &[255], Direction::Forward, Tier::Disk).expect("the base can be read");
    while let Step::Row { key, value } = cursor.step().expect("the base can be read") {
        rows.push((key.to_vec(), value.to_vec()));
    }
    rows
}

/// The locks of a store that has no readers while it takes a record.
pub struct NoReaders;

impl RecordLocks for NoReaders {
    fn hold(&self, _: Named<'_>, apply: &mut dyn FnMut()) {
        apply();
    }
}

/// The way in which a process ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// A clean stop.
    Stop,
    /// A kill: the machine goes on.
    Kill,
    /// The machine's power goes. The seed says which unsynced bytes are left.
    LosePower(u64),
}

/// The disks of a node whose process has ended.
pub struct Rest {
    disk: ForgetfulFiles,
    open_base: OpenBase,
}

impl Rest {
    /// Starts a process over these disks.
    pub fn start(self, change: fn(&mut StoreOptions)) -> Node {
        Node::start(self.disk, self.open_base, change, None)
    }
}

/// A copy of a node's data, all of it agreed on by its consensus group.
pub struct Copy {
    log: Vec<(PathBuf, Vec<u8>)>,
    open_base: OpenBase,
    /// The last record, and the term and number of its entry.
    pub end: LogEnd,
}

/// A store with its files and its base.
pub struct Node {
    pub store: Arc<Store>,
    /// The handle of the process that runs now.
    pub base: Arc<FaultBase>,
    disk: ForgetfulFiles,
    process: Arc<MortalFiles>,
    open_base: OpenBase,
    change: fn(&mut StoreOptions),
}

impl Node {
    pub fn new(bases: &dyn Bases, change: fn(&mut StoreOptions)) -> Node {
        Node::start(ForgetfulFiles::new(), bases.fresh(), change, None)
    }

    fn start(
        disk: ForgetfulFiles,
        open_base: OpenBase,
        change: fn(&mut StoreOptions),
        keep_through: Option<Index>,
    ) -> Node {
        let process = Arc::new(MortalFiles::new(Arc::new(disk.clone())));
        let base = FaultBase::new(open_base());
        let mut options = options(Path::new("/"));
        options.log.files = process.clone();
        change(&mut options);
        options.log.keep_through = keep_through;
        let store = Store::open(options, base.clone(), |_| {}).expect("what is left opens");
        let log = Arc::downgrade(&store);
        base.compare_with_log(move || log.upgrade().map_or(Index(u64::MAX), |store| store.log().synced()));
        Node { store, base, disk, process, open_base, change }
    }

    /// Starts a node that begins with what this one has on its disk now.
    pub fn checkpoint(&self, bases: &dyn Bases, change: fn(&mut StoreOptions)) -> Node {
        Node::start(self.disk.copy(), bases.copy_of(&*self.base), change, None)
    }

    /// Opens a copy of this node's log over a copy of some base; returns where the log ends.
    pub fn open_over(&self, base: &dyn Base, bases: &dyn Bases) -> Result<Index, OpenError> {
        let mut options = options(Path::new("/"));
        options.log.files = Arc::new(self.disk.copy());
        (self.change)(&mut options);
        let store = Store::open(options, bases.copy_of(base)(), |_| {})?;
        let last = store.log().last();
        store.close().map_err(OpenError)?;
        Ok(last)
    }

    /// Returns the record up to which the base holds everything.
    pub fn applied(&self) -> Index {
        crate::check::applied(&*self.base).expect("the base can be read").unwrap_or_default().index
    }

    fn again(self) -> Node {
        Node::start(self.disk.clone(), self.open_base.clone(), self.change, None)
    }

    /// Opens the store again without what it has not written, and without the log's records behind `keep`.
    pub fn rebuild(self, keep: Index) -> Node {
        self.store.abandon();
        Node::start(self.disk.clone(), self.open_base.clone(), self.change, Some(keep))
    }

    /// Returns a copy of what the group has agreed on, as a backup takes it; None where its end cannot be told.
    pub fn copy(&self, bases: &dyn Bases) -> Option<Copy> {
        let (log, dir) = (self.store.log(), Path::new("/copy"));
        let hold = log.hold();
        let open_base = bases.copy_of(&*self.base);
        let index = self.store.backup_end();
        log.sync_through(index).ok()?;
        self.process.create_dir_all(dir).expect("the disk has room");
        // A crash brings back what was removed.
        for name in self.process.list(dir).expect("it is there") {
            self.process.remove(&dir.join(name)).expect("it is there");
        }
        log.export(&hold, index, dir, &|| true).expect("nothing is broken");
        let mut of_copy = options(Path::new("/"));
        (self.change)(&mut of_copy);
        of_copy.log.dir = dir.to_owned();
        of_copy.log.files = self.process.clone();
        let end = crate::check::look(&of_copy.log, &*open_base()).expect("a copy is sound").end;
        assert_eq!(end.last, index, "a copy ends where it was to end");
        let files = self.process.list(dir).expect("it was just made").into_iter().map(|name| {
            let path = dir.join(&name);
            let bytes = self.disk.read(&path).expect("it was just listed");
            self.process.remove(&path).expect("it is there");
            (options(Path::new("/")).log.dir.join(name), bytes)
        });
        Some(Copy { log: files.collect(), open_base, end }).filter(|copy| copy.end.entry != (0, 0))
    }

    /// Puts a copy in the place of log and base, and opens them.
    pub fn install(self, copy: Copy) -> Node {
        self.store.abandon();
        let dir = options(Path::new("/")).log.dir;
        for name in self.process.list(&dir).expect("a log has a directory") {
            self.process.remove(&dir.join(name)).expect("it is there");
        }
        // A removed file does not come back, whatever takes its name.
        self.process.sync_dir(&dir).expect("nothing is broken");
        copy.log.into_iter().for_each(|(path, bytes)| self.disk.replace(&path, bytes));
        Node::start(self.disk.clone(), copy.open_base, self.change, None)
    }

    /// Returns the files that this process has: they end with it.
    pub fn files(&self) -> Arc<dyn Files> {
        self.process.clone()
    }

    /// Ends the process, and keeps what is on its disks.
    pub fn end(self, how: End) -> Rest {
        match how {
            End::Stop => self.store.close().expect("nothing is broken"),
            End::Kill => self.die(),
            End::LosePower(seed) => {
                self.die();
                self.disk.crash(seed);
            }
        }
        Rest { disk: self.disk.clone(), open_base: self.open_base.clone() }
    }

    /// Stops cleanly and starts again.
    pub fn stop(self) -> Node {
        self.store.close().expect("nothing is broken");
        self.again()
    }

    /// Kills the process and starts it again.
    pub fn kill(self) -> Node {
        self.die();
        self.again()
    }

    /// Takes the machine's power away and starts it again. The seed says which unsynced bytes are left.
    pub fn lose_power(self, seed: u64) -> Node {
        self.die();
        self.disk.crash(seed);
        self.again()
    }

    /// Kills the process: its threads' calls have no effect from now on.
    pub fn die(&self) {
        self.base.kill();
        self.process.kill();
        drop(self.store.close());
    }

    /// Begins a transaction that may read the disk.
    pub fn begin(&self) -> Txn<'_> {
        self.store
            .begin(TxnBuffers::default(), Call { now_ms: 1_000, seed: 1, database: 0, mode: Mode::Disk, pins: None })
    }

    /// Has all records of the log synced.
    pub fn sync(&self) {
        self.store.log().sync_through(self.store.log().last()).expect("nothing is broken");
    }

    /// Drops all rows that a compaction may drop.
    pub fn compact(&self) {
        self.base.reclaim_range(&[0], &[255]).expect("the base can be changed");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.store.close());
        if !std::thread::panicking() {
            assert_eq!(self.base.ahead_of_log(), None, "the base never holds what a power loss takes out of the log");
        }
    }
}

/// Brings a follower to where its leader is synced, through all histories that it has not gone through.
pub fn feed(leader: &Store, follower: &Store, locks: &dyn RecordLocks) {
    let histories = leader.log().histories();
    let (history, last) = (follower.log().history(), follower.log().last());
    assert_eq!(
        histories.shared_through(history, last),
        Some(last),
        "a follower of synced records is on its leader's way"
    );
    let mut ahead: Vec<HistoryStart> =
        histories.starts().iter().rev().take_while(|start| start.history != history).copied().collect();
    let mut follow_histories = |through: Option<History>| {
        while through.is_none_or(|history| history != follower.log().history())
            && let Some(start) = ahead.pop()
        {
            follower.follow_history(start).expect("nothing is broken");
        }
    };
    let mut reader = leader.log().reader(last).through(Through::Synced);
    loop {
        match reader.next().expect("the log can be read") {
            Next::Record(record) => {
                follow_histories(Some(record.history));
                follower.follow(&record, locks).expect("nothing is broken");
                assert_eq!(follower.log().last(), record.index);
            }
            Next::UpToDate => return follow_histories(None),
            Next::Gap(first) => panic!("a gap up to {first}"),
        }
    }
}
