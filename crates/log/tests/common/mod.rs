//! The rig that the tests of the log share: a log over file layers in memory, and waiting for it without sleeping.
#![allow(dead_code)] // each test program uses a part

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use haypile_log::testing::{FaultFiles, ForgetfulFiles, Random};
use haypile_log::*;

pub const DIR: &str = "/log";
pub const END: &str = "/haypile.end";
/// Bound of every wait: reaching it is a failure, not a delay.
pub const LONG: Duration = Duration::from_secs(60);

/// A disk that survives the logs opened on it.
pub struct Rig {
    pub disk: ForgetfulFiles,
    pub seed: u64,
    pub clock_ms: Arc<AtomicU64>,
}

/// An open log over the rig's disk, behind a layer that fails on demand.
pub struct Life {
    pub log: Log,
    pub faults: Arc<FaultFiles>,
    pub found: Vec<Owned>,
    pub history: History,
    pub parent: Option<(History, Index)>,
    pub clean: bool,
    pub last: Index,
    pub cut: Option<Cut>,
    changes: Arc<(Mutex<u64>, Condvar)>,
}

/// A record of a replay or a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub index: Index,
    pub history: History,
    /// Term and index of Raft's entry.
    pub entry: (u64, u64),
    pub kind: Kind,
    pub time_ms: u64,
    pub body: Vec<u8>,
    pub segment: u64,
    pub offset: u64,
}

impl Owned {
    pub fn of(record: Record<'_>) -> Owned {
        let Record { index, history, term, entry, kind, time_ms, body, segment, offset, .. } = record;
        Owned { index, history, entry: (term, entry), kind, time_ms, body: body.to_vec(), segment, offset }
    }
}

impl Rig {
    pub fn new(seed: u64) -> Rig {
        Rig { disk: ForgetfulFiles::new(), seed, clock_ms: Arc::new(AtomicU64::new(1_700_000_000_000)) }
    }

    /// Small segments, and no sync that the test does not ask for.
    pub fn options(&self) -> (Options, Arc<FaultFiles>) {
        let faults = Arc::new(FaultFiles::new(self.disk.process()));
        let clock_ms = self.clock_ms.clone();
        let random = Mutex::new(Random(self.seed));
        let options = Options {
            segment_bytes: 64 * 1024,
            sync_interval_ms: 3_600_000,
            unsynced_bytes_max: 1 << 20,
            files: faults.clone(),
            now_ms: Arc::new(move || clock_ms.load(Ordering::Relaxed)),
            random: Arc::new(move || random.lock().unwrap().number()),
            end: Some(EndFile {
                path: END.into(),
                directory: DirectoryId([5; 16]),
                is_expected: false,
                is_written: true,
            }),
            ..Options::new(DIR)
        };
        (options, faults)
    }

    pub fn open(&mut self) -> Life {
        self.open_with(Index(0), |_| {})
    }

    pub fn open_with(&mut self, applied: impl Into<Applied>, change: impl FnOnce(&mut Options)) -> Life {
        self.try_open(applied, change).unwrap()
    }

    pub fn try_open(
        &mut self,
        applied: impl Into<Applied>,
        change: impl FnOnce(&mut Options),
    ) -> Result<Life, OpenError> {
        self.seed += 1;
        let (mut options, faults) = self.options();
        change(&mut options);
        let life = Life::open(options, faults, applied)?;
        if life.log.last() == Index(0) {
            life.begin();
        }
        Ok(life)
    }

    pub fn files(&self) -> Vec<PathBuf> {
        let mut names = self.disk.list(Path::new(DIR)).unwrap();
        names.sort();
        names.iter().map(|name| Path::new(DIR).join(name)).collect()
    }

    pub fn path(&self, segment: u64) -> PathBuf {
        Path::new(DIR).join(format!("{segment:020}.log"))
    }

    /// Removes all other files, so that this segment is the last one, and forgets that there were others.
    pub fn keep_only(&self, path: &Path) {
        drop(self.disk.remove(Path::new(END)));
        for other in self.files().iter().filter(|other| *other != path) {
            self.disk.remove(other).unwrap();
        }
    }

    /// Flips bits of one byte of a file, durably.
    pub fn damage(&self, path: &Path, offset: u64) {
        let mut bytes = self.disk.read(path).unwrap();
        bytes[offset as usize] ^= 0x10;
        self.disk.replace(path, bytes);
    }
}

impl Life {
    pub fn open(options: Options, faults: Arc<FaultFiles>, applied: impl Into<Applied>) -> Result<Life, OpenError> {
        let Opened { log, mut replay, history, parent, clean, last, cut, .. } = Log::open(options, applied)?;
        let changes = Arc::<(Mutex<u64>, Condvar)>::default();
        let told = changes.clone();
        log.on_durable(Arc::new(move || {
            *told.0.lock().unwrap() += 1;
            told.1.notify_all();
        }));
        let mut found = Vec::new();
        while let Some(record) = replay.next() {
            found.push(Owned::of(record?));
        }
        replay.finish()?;
        Ok(Life { log, faults, found, history, parent, clean, last, cut, changes })
    }

    /// Where its history comes from.
    pub fn origin(&self) -> Origin {
        self.parent.map_or(Origin::Nothing, |(parent, fork)| Origin::Fork(parent, fork))
    }

    /// Record 1, as a store leaves it in a new log: the rig's logs begin with it.
    fn begin(&self) {
        let reserved = self.log.reserve_within(0, LONG).unwrap();
        let first = self.log.append(reserved, Kind::Lease, 7, b"", body_crc(b""));
        self.log.sync_through(first).unwrap();
    }

    /// Appends a record, without writing it.
    pub fn append(&self, body: &[u8]) -> Index {
        let reserved = self.log.reserve_within(body.len(), LONG).unwrap();
        self.log.append(reserved, Kind::Effects, 7, body, body_crc(body))
    }

    pub fn write(&self, body: &[u8]) -> Index {
        let index = self.append(body);
        self.log.write();
        index
    }

    pub fn sync(&self, body: &[u8]) -> Index {
        let index = self.write(body);
        self.log.sync_through(index).unwrap();
        index
    }

    /// Waits until `condition` holds; it is looked at whenever the log says that something changed.
    pub fn wait_until(&self, what: &str, condition: impl Fn(&Log) -> bool) {
        loop {
            let seen = self.times_told();
            if condition(&self.log) {
                return;
            }
            let (count, told) = &*self.changes;
            let count = count.lock().unwrap();
            let waited = told.wait_timeout_while(count, LONG, |count| *count == seen).unwrap().1;
            assert!(!waited.timed_out(), "waited in vain until {what}: {:?}", self.log.stats());
        }
    }

    pub fn times_told(&self) -> u64 {
        *self.changes.0.lock().unwrap()
    }

    /// Waits until a spare segment is there: nothing goes on in the background then.
    pub fn wait_for_spare(&self) {
        self.wait_until("there is a spare segment", |log| log.stats().has_spare);
    }

    /// The bodies of effect records found at open, by index.
    pub fn bodies(&self) -> Vec<(u64, Vec<u8>)> {
        let effects = self.found.iter().filter(|record| record.kind == Kind::Effects);
        effects.map(|record| (record.index.0, record.body.clone())).collect()
    }
}

/// A body that tells its number and is `bytes` long at least.
pub fn body(number: u64, bytes: usize) -> Vec<u8> {
    let mut body = number.to_string().into_bytes();
    body.resize(body.len().max(bytes), b'.');
    body
}

/// `NAME=number` in the environment, for longer runs and for replaying a seed.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

/// Several segments and histories; the last record and the last stop that was not clean.
pub fn written(rig: &mut Rig) -> Life {
    let life = rig.open();
    for number in 2..=300 {
        life.write(&body(number, 600));
    }
    life.log.sync_through(life.log.last()).unwrap();
    rig.disk.kill();
    drop(life);
    let life = rig.open();
    for number in 301..=400 {
        life.write(&body(number, 600));
    }
    life.log.close().unwrap();
    drop(life);
    let life = rig.open();
    assert_eq!(life.last, Index(400));
    for number in 401..=600 {
        life.write(&body(number, 600));
    }
    life.log.sync_through(life.log.last()).unwrap();
    life
}
