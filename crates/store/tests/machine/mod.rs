//! A machine for tests of the store's rules: its files, its base and its life are in the test's hands.
#![allow(dead_code, reason = "each test file uses its part")]

use haypile_log::Index;
use haypile_log::testing::{FaultFiles, ForgetfulFiles};
use haypile_store::testing::{FaultBase, MortalFiles, options};
use haypile_store::{Call, Committed, Counter, MemoryBase, Mode, Stop, Store, StoreOptions, Txn, TxnBuffers};
use std::path::Path;
use std::sync::Arc;

/// A store on a machine whose files, base and life are in the test's hands.
pub struct Machine {
    pub disk: ForgetfulFiles,
    pub rows: Arc<MemoryBase>,
    pub faults: Arc<FaultFiles>,
    pub process: Arc<MortalFiles>,
    pub base: Arc<FaultBase>,
    pub store: Arc<Store>,
    pub change: fn(&mut StoreOptions),
}

impl Machine {
    pub fn new(change: fn(&mut StoreOptions)) -> Machine {
        Machine::start(ForgetfulFiles::new(), Arc::default(), change)
    }

    pub fn start(disk: ForgetfulFiles, rows: Arc<MemoryBase>, change: fn(&mut StoreOptions)) -> Machine {
        Machine::start_on(disk, rows, change, |_| {})
    }

    /// Starts on files that act as `prepare` asks.
    fn start_on(
        disk: ForgetfulFiles,
        rows: Arc<MemoryBase>,
        change: fn(&mut StoreOptions),
        prepare: impl FnOnce(&FaultFiles),
    ) -> Machine {
        let faults = Arc::new(FaultFiles::new(Arc::new(disk.clone())));
        prepare(&faults);
        let process = Arc::new(MortalFiles::new(faults.clone()));
        let base = FaultBase::new(rows.clone());
        let mut options = options(Path::new("/"));
        options.log.files = process.clone();
        options.log.segment_bytes = 256 << 10;
        change(&mut options);
        let store = Store::open(options, base.clone(), |_| {}).expect("opens");
        let log = Arc::downgrade(&store);
        base.compare_with_log(move || log.upgrade().map_or(Index(u64::MAX), |store| store.log().synced()));
        Machine { disk, rows, faults, process, base, store, change }
    }

    /// Kills the process and starts it again.
    pub fn kill(self) -> Machine {
        self.die();
        Machine::start(self.disk.clone(), self.rows.clone(), self.change)
    }

    /// Kills the process and starts it again on files that act as `prepare` asks.
    pub fn kill_and(self, prepare: impl FnOnce(&FaultFiles)) -> Machine {
        self.die();
        Machine::start_on(self.disk.clone(), self.rows.clone(), self.change, prepare)
    }

    pub fn die(&self) {
        self.base.kill();
        self.process.kill();
        drop(self.store.close());
    }

    pub fn begin(&self) -> Txn<'_> {
        self.store.begin(TxnBuffers::default(), call(Mode::Disk))
    }

    pub fn put(&self, name: &str, value: &[u8]) -> Result<Committed, Stop> {
        let mut txn = self.begin();
        let key = txn.key(name.as_bytes());
        txn.put_meta(&key, &[value])?;
        txn.count(key.space, Counter::Keys, 1);
        txn.commit()
    }

    pub fn get(&self, name: &str) -> Option<Vec<u8>> {
        let mut txn = self.begin();
        let key = txn.key(name.as_bytes());
        txn.meta(&key).expect("reads go on").map(|value| value.to_vec())
    }

    /// Writes until a generation is so full, in percent.
    pub fn fill(&self, percent: u64) -> Result<(), Stop> {
        let figure = |name| self.store.figures().into_iter().find(|(_, other, _)| *other == name).expect("a figure").2;
        let max = figure("memtable_bytes_max");
        let mut n = 0;
        while figure("memtable_active_bytes") * 100 < max * percent {
            self.put(&format!("fill:{n}"), &[0; 4000])?;
            n += 1;
        }
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.base.hold_ingests(false);
        drop(self.store.close());
        if !std::thread::panicking() {
            assert_eq!(self.base.ahead_of_log(), None, "the base never holds what a power loss takes out of the log");
        }
    }
}

pub fn call(mode: Mode) -> Call<'static> {
    Call { now_ms: 1_000, seed: 1, database: 0, mode, pins: None }
}

pub fn usual(_: &mut StoreOptions) {}
