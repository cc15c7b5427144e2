//! A machine with a store on it: transactions on the store and on the model, and between them flushes, reopens, faults
//! of the log's files and of the base, kills and power failures. After each of these the store must hold what the model
//! does.
//!
//! Every transaction writes its number, so that after a crash the store says itself which ones survived: these must be
//! all up to that one, each whole, and all that were durable before.

use super::model::{DATABASES, Model, check, transact};
use super::{FaultBase, MortalFiles};
use crate::base::{Base, BaseError, Direction, Step as BaseStep, Tier};
use crate::flush::WritePressure;
use crate::options::StoreOptions;
use crate::row::{self, Family};
use crate::stop::{Mode, Stop};
use crate::store::Store;
use crate::txn::view::View;
use crate::txn::{Call, Pins, TxnBuffers};
use haypile_log::testing::{FaultFiles, ForgetfulFiles, Random};
use haypile_log::{DirectoryId, Durability, EndFile, Index};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The kind of machine that is run.
pub struct Setup {
    /// Opens the base, again after it was closed; with the rows it had.
    pub make_base: Box<dyn FnMut() -> Arc<dyn Base>>,
    pub durability: Durability,
    /// Whether the engine is `engine memory`.
    pub memory_only: bool,
    /// Whether the base is known to have dropped all dead rows when it has reclaimed everything.
    pub reclaims_all: bool,
}

/// The next event of a machine.
#[derive(Clone, Debug)]
pub enum Step {
    Transactions {
        seed: u64,
        count: u64,
    },
    /// A tick of the log.
    Write,
    Sync,
    Flush,
    Check {
        step: usize,
    },
    View {
        seed: u64,
    },
    Cold(bool),
    Reclaim,
    Reopen,
    Kill,
    PowerLoss {
        seed: u64,
    },
    /// Faults from here on, until `Repair`, a reopen or a crash.
    FailIngests,
    FailWrites {
        skip: u64,
        count: u64,
    },
    FailSyncs {
        skip: u64,
        count: u64,
    },
    ShortWrites {
        bytes_max: usize,
    },
    DiskFull,
    CrashAfter {
        bytes: u64,
    },
    Repair,
}

impl Step {
    /// Returns some step: a kind and a number make it, so that a test can shrink a failing sequence.
    pub fn of(kind: u8, number: u32, faults: bool) -> Step {
        let seed = u64::from(number);
        let mut random = Random(seed);
        match kind % if faults { 100 } else { 72 } {
            0..38 => Step::Transactions { seed, count: 1 + random.below(6) },
            38..44 => Step::Write,
            44..46 => Step::Sync,
            46..52 => Step::Flush,
            52..57 => Step::Check { step: 1 + random.below(50) as usize },
            57..60 => Step::View { seed },
            60..63 => Step::Cold(random.chance(60)),
            63..65 => Step::Reclaim,
            65..67 => Step::Reopen,
            67..70 => Step::Kill,
            70..72 => Step::PowerLoss { seed },
            72..75 => Step::FailIngests,
            75..79 => Step::FailWrites { skip: random.below(4), count: 1 + random.below(4) },
            79..83 => Step::FailSyncs { skip: random.below(4), count: 1 + random.below(3) },
            83..85 => Step::ShortWrites { bytes_max: 1 + random.below(3000) as usize },
            85..88 => Step::DiskFull,
            88..92 => Step::CrashAfter { bytes: random.below(30_000) },
            _ => Step::Repair,
        }
    }
}

/// Runs steps on a fresh machine, and checks everything at the end.
pub fn run(setup: Setup, steps: &[Step]) {
    let mut world = World::new(setup);
    for (at, step) in steps.iter().enumerate() {
        world.at = at;
        world.step(step);
    }
    world.repair();
    world.step(&Step::Check { step: 13 });
    world.step(&Step::Reclaim);
    world.step(&Step::Reopen);
    world.end();
}

const SEGMENT_BYTES: usize = 64 << 10;

/// How long a store may take to resume after the last fault is gone, which is far longer than it takes.
const RESUME_MAX: Duration = Duration::from_secs(60);

/// One committed transaction: its number, its record, and the model after it.
struct Past {
    number: u64,
    index: Index,
    model: Model,
}

/// A machine, its store and its model.
pub struct World {
    setup: Setup,
    files: ForgetfulFiles,
    faults: Arc<FaultFiles>,
    process: Arc<MortalFiles>,
    base: Arc<FaultBase>,
    store: Arc<Store>,
    model: Model,
    /// Transactions since the last crash; never empty.
    past: Vec<Past>,
    views: Vec<(View, Vec<Vec<u8>>)>,
    buffers: TxnBuffers,
    /// Whether something may fail now.
    is_faulty: bool,
    /// Whether something could fail since the store was opened.
    was_faulty: bool,
    /// Whether the files fail for good, now or soon.
    is_dying: bool,
    woken: Arc<(Mutex<u64>, Condvar)>,
    at: usize,
}

fn options(files: Arc<MortalFiles>, setup: &Setup) -> StoreOptions {
    let mut options = super::options(Path::new("/"));
    options.log.files = files;
    options.log.durability = setup.durability;
    options.log.segment_bytes = SEGMENT_BYTES as u64;
    options.log.unsynced_bytes_max = 1 << 20;
    options.log.sync_interval_ms = 20;
    options.databases = DATABASES + 1;
    options.memtable_bytes = if setup.memory_only { 1 << 30 } else { 48 << 10 };
    options.flush_log_bytes = 1 << 20;
    options.row_cache_bytes = 16 << 10;
    // The small set soon forgets, the large one knows all until the store is opened again.
    options.presence_bytes = if setup.durability == Durability::Os { 1 << 10 } else { 64 << 10 };
    options.txn_bytes_max = 1 << 20;
    options.memory_only = setup.memory_only;
    if !setup.memory_only {
        let (path, directory) = ("/haypile.end".into(), DirectoryId([5; 16]));
        options.log.end = Some(EndFile { path, directory, is_expected: false, is_written: true });
    }
    options
}

impl World {
    pub fn new(mut setup: Setup) -> World {
        let files = ForgetfulFiles::new();
        let faults = Arc::new(FaultFiles::new(Arc::new(files.clone())));
        let process = Arc::new(MortalFiles::new(faults.clone()));
        let base = FaultBase::new((setup.make_base)());
        let store = Store::open(options(process.clone(), &setup), base.clone(), |_| {}).expect("a fresh store opens");
        let mut world = World {
            setup,
            files,
            faults,
            process,
            base,
            store,
            model: Model::default(),
            past: vec![Past { number: 0, index: Index(0), model: Model::default() }],
            views: Vec::new(),
            buffers: TxnBuffers::default(),
            is_faulty: false,
            was_faulty: false,
            is_dying: false,
            woken: Arc::default(),
            at: 0,
        };
        world.listen();
        world
    }

    fn listen(&mut self) {
        let store = Arc::downgrade(&self.store);
        self.base.compare_with_log(move || store.upgrade().map_or(Index(u64::MAX), |store| store.log().synced()));
        let woken = self.woken.clone();
        let wake = move || {
            *woken.0.lock() += 1;
            woken.1.notify_all();
        };
        self.store.log().on_durable(Arc::new(wake));
    }

    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Transactions { seed, count } => (0..count).for_each(|n| self.transaction(seed.wrapping_add(n << 32))),
            Step::Write => drop(self.store.log().write()),
            Step::Sync => {
                self.store.log().write();
                let synced = self.store.log().sync_through(self.store.log().last());
                assert!(synced.is_ok() || self.is_faulty, "{synced:?}");
            }
            Step::Flush => {
                let flushed = self.store.flush_now();
                assert!(flushed.is_ok() || self.is_faulty, "{flushed:?}");
            }
            Step::Check { step } => self.check(step),
            Step::View { seed } => self.open_view(seed),
            Step::Cold(cold) => self.base.set_cold(cold),
            Step::Reclaim => self.reclaim(),
            Step::Reopen => self.reopen(),
            Step::Kill if self.setup.memory_only => {}
            Step::Kill => {
                let durable = self.store.log().written();
                self.crash(durable, |files| files.kill());
            }
            Step::PowerLoss { .. } if self.setup.memory_only => {}
            Step::PowerLoss { seed } => {
                // `durability os` promises only that records which are known to be synced survive.
                let fsync = self.setup.durability == Durability::Fsync;
                let durable = if fsync { self.store.log().durable() } else { self.store.log().synced() };
                self.crash(durable, |files| files.crash(seed));
            }
            Step::FailIngests => {
                (self.is_faulty, self.was_faulty) = (true, true);
                self.base.set_fault(Some(BaseError::Full("injected".into())));
            }
            Step::FailWrites { skip, count } => {
                (self.is_faulty, self.was_faulty) = (true, true);
                self.faults.fail_writes(skip, count, std::io::ErrorKind::Other);
            }
            Step::FailSyncs { skip, count } => {
                (self.is_faulty, self.was_faulty) = (true, true);
                self.faults.fail_syncs(skip, count);
            }
            Step::ShortWrites { bytes_max } => self.faults.short_writes(Some(bytes_max)),
            Step::DiskFull => {
                (self.is_faulty, self.was_faulty) = (true, true);
                self.faults.set_full(true);
            }
            Step::CrashAfter { bytes } => {
                (self.is_faulty, self.was_faulty) = (true, true);
                self.is_dying = true;
                self.faults.crash_after(bytes);
            }
            Step::Repair => self.repair(),
        }
    }

    /// Waits until the store takes writes; returns false if it need not.
    fn wait_for_room(&self) -> bool {
        let started = Instant::now();
        loop {
            match self.store.pressure() {
                WritePressure::Go => return true,
                _ if self.is_faulty => return false,
                _ => drop(self.store.flush_now()),
            }
            assert!(started.elapsed() < RESUME_MAX, "no room comes");
        }
    }

    /// Runs one transaction as the engine does: in memory first, then with the rows that were loaded for it, in the end
    /// on the disk.
    fn transaction(&mut self, seed: u64) {
        if !self.wait_for_room() {
            return;
        }
        let number = self.past.last().expect("never empty").number + 1;
        let mut random = Random(seed ^ 0x7a);
        let (is_dropped, large) = (random.chance(10), random.chance(15));
        let mut mode = if random.chance(60) { Mode::Memory } else { Mode::Disk };
        let (mut pins, mut loads): (Option<Pins>, u32) = (None, 0);
        loop {
            let mut model = self.model.clone();
            let call = Call { now_ms: 1000, seed, database: 0, mode, pins: pins.as_ref() };
            let mut txn = self.store.begin(std::mem::take(&mut self.buffers), call);
            let mut result = transact(&mut txn, &mut model, seed, large);
            if mode == Mode::Load {
                let loaded = txn.take_pins();
                self.buffers = txn.finish();
                (pins, mode) = (Some(loaded), Mode::Memory);
                continue;
            }
            if is_dropped && result.is_ok() {
                self.buffers = txn.finish();
                return;
            }
            if result.is_ok() {
                let key = txn.key_in(DATABASES, b"number");
                result = txn.put_meta(&key, &[&number.to_be_bytes()]);
            }
            let committed = result.and_then(|()| txn.commit());
            self.buffers = txn.finish();
            match committed {
                Ok(committed) => {
                    let index = committed.index.expect("it wrote its number");
                    assert_eq!(committed.gate, index, "the reply depends on the record");
                    self.model = model.clone();
                    self.past.push(Past { number, index, model });
                    return self.check_counts();
                }
                Err(Stop::WouldBlock) => {
                    assert_eq!(mode, Mode::Memory, "only an event loop may not go to the disk");
                    loads += 1;
                    mode = if loads > 3 { Mode::Disk } else { Mode::Load };
                }
                Err(Stop::Long) => {
                    assert_ne!(mode, Mode::Disk, "the pool has time");
                    mode = Mode::Disk;
                }
                Err(Stop::NeedsLocks) => {
                    unreachable!("no transaction of this world asks to do without locks")
                }
                Err(Stop::TooLarge) => return,
                Err(stop @ (Stop::Refused(_) | Stop::Failed(_))) => {
                    assert!(self.was_faulty, "step {}: {stop:?}", self.at);
                    if !self.is_faulty {
                        // The log may have to get over a fault that nothing has shown since.
                        self.is_faulty = true;
                        self.repair();
                    }
                    return;
                }
            }
        }
    }

    fn check_counts(&self) {
        for database in 0..DATABASES {
            assert_eq!(self.store.counter(database, crate::Counter::Keys), self.model.key_count(database));
        }
    }

    /// Checks everything, as a transaction and from the outside. Reads work whatever is broken, the base excepted.
    fn check(&mut self, step: usize) {
        let call = Call { now_ms: 1000, seed: 1, database: 0, mode: Mode::Disk, pins: None };
        let mut txn = self.store.begin(std::mem::take(&mut self.buffers), call);
        check(&mut txn, &self.model, step).expect("reads go on");
        self.buffers = txn.finish();
        self.check_counts();
        self.check_deadlines();
        assert_eq!(self.base.ahead_of_log(), None);
        let latches = self.store.memtable.latch_all_shards();
        assert_eq!(self.store.memtable.active_bytes() as i64, latches.count_bytes(), "the accounting is exact");
        drop(latches);
        for (view, rows) in self.views.drain(..) {
            check_view(view, &rows);
        }
    }

    fn check_deadlines(&self) {
        let now_ms = 600;
        let in_memory = self.store.due_deadlines(now_ms, usize::MAX);
        for database in 0..DATABASES {
            let space = self.store.key(database, b"").space;
            let mut due: BTreeSet<(u64, Vec<u8>)> = in_memory
                .iter()
                .filter(|due| due.space == space)
                .map(|due| (due.deadline_ms, due.name.clone()))
                .collect();
            let in_base = self.store.due_in_base(database, now_ms, usize::MAX).expect("reads go on");
            due.extend(in_base.into_iter().map(|due| (due.deadline_ms, due.name)));
            assert_eq!(due, self.model.due(database, now_ms), "what is due in database {database}");
        }
    }

    fn open_view(&mut self, seed: u64) {
        let call = Call { now_ms: 1000, seed, database: 0, mode: Mode::Disk, pins: None };
        let mut txn = self.store.begin(TxnBuffers::default(), call);
        self.views.extend(self.model.open_view(&mut txn, &mut Random(seed)).expect("reads go on"));
    }

    /// Has the base drop dead rows, which never drops a row that stands.
    fn reclaim(&mut self) {
        // A flush of something tells the base that all transactions so far have ended.
        let flushed = if self.takes_writes() { self.store.flush_now() } else { Err("not now".into()) };
        let data = |family: Family| [family as u8];
        let reclaimed = self.base.reclaim_range(&data(Family::Data), &data(Family::Owner));
        assert!(reclaimed.is_ok(), "{reclaimed:?}");
        if flushed.is_err() || !self.setup.reclaims_all {
            return;
        }
        let expected = self.model.data_rows(|database| self.store.key(database, b"").space);
        let mut found = BTreeSet::new();
        if self.setup.memory_only {
            let mut txn = self
                .store
                .begin(TxnBuffers::default(), Call { now_ms: 0, seed: 0, database: 0, mode: Mode::Disk, pins: None });
            let rows = txn.scan(&data(Family::Data), &data(Family::Owner), usize::MAX).expect("memory can be read");
            found.extend(rows.into_iter().map(|(row, _)| row::RowKey::from_vec(row)));
        } else {
            let mut cursor = self
                .base
                .scan(&data(Family::Data), &data(Family::Owner), Direction::Forward, Tier::Disk)
                .expect("the base can be read");
            while let BaseStep::Row { key, .. } = cursor.step().expect("the base can be read") {
                found.insert(row::RowKey::from_slice(key));
            }
        }
        assert!(found == expected, "nothing dead is left: {} data rows, {} expected", found.len(), expected.len());
    }

    /// Ends all faults that end by themselves, and waits until the store takes writes again.
    fn repair(&mut self) {
        if self.is_dying {
            return self.step(&Step::Kill);
        }
        self.faults.fail_writes(0, 0, std::io::ErrorKind::Other);
        self.faults.fail_syncs(0, 0);
        self.faults.short_writes(None);
        self.faults.set_full(false);
        self.base.set_fault(None);
        let started = Instant::now();
        while std::mem::take(&mut self.is_faulty) {
            self.is_faulty = self.store.flush_now().is_err() || !self.takes_writes();
            if self.is_faulty {
                self.store.log().retry();
                let mut woken = self.woken.0.lock();
                let before = *woken;
                self.woken.1.wait_while_for(&mut woken, |woken| *woken == before, Duration::from_millis(100));
            }
            assert!(started.elapsed() < RESUME_MAX, "the store resumes by itself");
        }
    }

    /// Returns whether a record finds room that does not fit the active segment.
    fn takes_writes(&self) -> bool {
        let call = Call { now_ms: 0, seed: 0, database: DATABASES, mode: Mode::Disk, pins: None };
        let mut txn = self.store.begin(TxnBuffers::default(), call);
        let key = txn.key(b"probe");
        self.store.pressure() == WritePressure::Go
            && txn.put_meta(&key, &[&[0; SEGMENT_BYTES]]).is_ok()
            && txn.commit().is_ok()
    }

    fn reopen(&mut self) {
        if self.setup.memory_only {
            return;
        }
        self.repair();
        self.end_views();
        self.store.close().expect("nothing is broken");
        let last = self.past.last().expect("never empty").number;
        self.open();
        assert_eq!(self.past[0].number, last, "a clean stop loses nothing");
    }

    /// Kills the process or the machine. Everything up to the record `durable` has to survive.
    fn crash(&mut self, durable: Index, kill: impl FnOnce(&ForgetfulFiles)) {
        self.end_views();
        self.base.kill();
        self.process.kill();
        kill(&self.files);
        // The threads of the dead process end; their calls have no effect.
        drop(self.store.close());
        let promised =
            self.past.iter().rfind(|past| past.index <= durable).expect("the first is always durable").number;
        self.open();
        let survived = self.past[0].number;
        assert!(
            survived >= promised,
            "step {}: transaction {promised} was durable, {survived} is the last one left",
            self.at
        );
    }

    /// Opens the directory, and goes back to the model after the last transaction that survived.
    fn open(&mut self) {
        self.faults = Arc::new(FaultFiles::new(Arc::new(self.files.clone())));
        self.process = Arc::new(MortalFiles::new(self.faults.clone()));
        self.base = FaultBase::new((self.setup.make_base)());
        (self.is_faulty, self.was_faulty, self.is_dying) = (false, false, false);
        self.store = Store::open(options(self.process.clone(), &self.setup), self.base.clone(), |_| {})
            .expect("what is left opens");
        self.listen();
        let call = Call { now_ms: 0, seed: 0, database: DATABASES, mode: Mode::Disk, pins: None };
        let mut txn = self.store.begin(TxnBuffers::default(), call);
        let key = txn.key(b"number");
        let number = txn
            .meta(&key)
            .expect("reads")
            .map_or(0, |number| u64::from_be_bytes(number[..].try_into().expect("8 bytes")));
        drop(txn);
        let at = self.past.iter().position(|past| past.number == number).expect("only what was committed survives");
        self.model = self.past[at].model.clone();
        self.past = vec![Past { number, index: Index(0), model: self.model.clone() }];
        self.check(7);
    }

    fn end_views(&mut self) {
        for (view, rows) in self.views.drain(..) {
            check_view(view, &rows);
        }
    }

    pub fn end(mut self) {
        self.end_views();
        drop(self.store.close());
    }
}

fn check_view(mut view: View, rows: &[Vec<u8>]) {
    let mut shown = Vec::new();
    while let Some((_, value)) = view.next_row().expect("reads go on") {
        shown.push(value.to_vec());
    }
    assert!(shown == rows, "a view shows its moment: {} rows, {} expected", shown.len(), rows.len());
}
