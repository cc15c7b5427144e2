//! Several threads under key locks while generations are frozen and flushed all the time: a transaction reads, under
//! its locks, the last committed rows, and a crash leaves the log's order cut at one place.
//!
//! The locks are the simplest there can be, and hold the versions that a read of their keys has to find. `HAYPILE_SEED`
//! replays a run's choices, though not its timing; `HAYPILE_CASES` sets the number of runs.

use haypile_log::testing::{ForgetfulFiles, Random};
use haypile_log::{Durability, Index};
use haypile_store::base::{Base, Lookup, Tier};
use haypile_store::testing::{FaultBase, MortalFiles, PLAIN, options};
use haypile_store::{
    Call, Counter, Direction, MemoryBase, Mode, Pins, Presence, RowPresence, ScanPosition, Stop, Store, Txn,
    TxnBuffers, row,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

const KEYS: usize = 12;
const STABLE: usize = 60;
const THREADS: u64 = 4;

struct Machine {
    files: ForgetfulFiles,
    process: Arc<MortalFiles>,
    rows: Arc<MemoryBase>,
    base: Arc<FaultBase>,
    store: Arc<Store>,
    durability: Durability,
    locks: Vec<Mutex<u64>>,
    done: AtomicBool,
}

/// The commits of one thread: the record, and the versions it wrote.
type Commits = Vec<(Index, Vec<(usize, u64)>)>;

/// Starts a process over these files, and opens the store in it.
fn open(files: &ForgetfulFiles, base: &Arc<FaultBase>, durability: Durability) -> (Arc<MortalFiles>, Arc<Store>) {
    let process = Arc::new(MortalFiles::new(Arc::new(files.clone())));
    let mut options = options(Path::new("/"));
    options.log.files = process.clone();
    options.log.durability = durability;
    options.log.sync_interval_ms = 5;
    options.memtable_bytes = 16 << 10;
    options.row_cache_bytes = 8 << 10;
    options.presence_bytes = 512;
    (process, Store::open(options, base.clone(), |_| {}).expect("opens"))
}

fn name(key: usize) -> Vec<u8> {
    format!("key:{key}").into_bytes()
}

fn stable(key: usize) -> Vec<u8> {
    format!("stable:{key}").into_bytes()
}

/// Returns a version's row: version 0 and every fifth one are no row.
fn row_of(version: u64) -> Option<Vec<u8>> {
    (!version.is_multiple_of(5)).then(|| [&PLAIN[..], &version.to_be_bytes()].concat())
}

/// Reads a key in one of two ways and compares.
fn read(txn: &mut Txn<'_>, key: usize, version: u64, whole: bool) -> Result<(), Stop> {
    let name = name(key);
    let expected = row_of(version);
    if whole {
        let found = txn.meta(&txn.key(&name))?;
        assert_eq!(found.as_deref(), expected.as_deref(), "key {key} at version {version}");
    } else {
        let found = txn.presence(&txn.key(&name))?;
        assert_eq!(
            found,
            if expected.is_some() { Presence::Plain } else { Presence::Absent },
            "key {key} at version {version}"
        );
    }
    Ok(())
}

fn write(txn: &mut Txn<'_>, key: usize, version: u64) -> Result<(), Stop> {
    let name = name(key);
    let key = txn.key(&name);
    let (before, after) = (row_of(version - 1), row_of(version));
    txn.count(key.space, Counter::Keys, i64::from(after.is_some()) - i64::from(before.is_some()));
    match after {
        Some(row) => txn.put_meta(&key, &[&row]),
        None => txn.delete_meta(&key),
    }
}

impl Machine {
    fn new(durability: Durability) -> Machine {
        let (files, rows) = (ForgetfulFiles::new(), Arc::new(MemoryBase::default()));
        let base = FaultBase::new(rows.clone());
        let (process, store) = open(&files, &base, durability);
        let locks = (0..KEYS).map(|_| Mutex::new(0)).collect();
        let machine = Machine { files, process, rows, base, store, durability, locks, done: AtomicBool::new(false) };
        (0..STABLE).for_each(|key| machine.put_stable(key).expect("writes go on"));
        machine.base.set_cold(true);
        machine
    }

    fn put_stable(&self, key: usize) -> Result<(), Stop> {
        let mut txn = self.store.begin(TxnBuffers::default(), call(Mode::Disk, 0, None));
        let name = stable(key);
        txn.put_meta(&txn.key(&name), &[b"stable"])?;
        txn.commit().map(|_| ())
    }

    fn kill(&self) {
        self.base.kill();
        self.process.kill();
        self.files.kill();
    }

    /// Runs a thread: transactions on a few keys each, until there are enough or the machine is dead.
    fn work(&self, seed: u64, count: usize) -> Commits {
        let mut random = Random(seed);
        let mut commits = Commits::new();
        let mut buffers = TxnBuffers::default();
        for _ in 0..count {
            let mut keys: Vec<usize> = (0..1 + random.below(3)).map(|_| random.below(KEYS as u64) as usize).collect();
            keys.sort_unstable();
            keys.dedup();
            let (writes, whole, seed) = (random.chance(70), random.chance(50), random.number());
            match self.transaction(&keys, writes, whole, seed, &mut buffers) {
                Ok(commit) => commits.extend(commit),
                Err(Stop::Refused(_) | Stop::Failed(_)) if self.done.load(Ordering::Relaxed) => break,
                Err(stop) => panic!("{stop:?}"),
            }
            if random.chance(20) {
                self.store.log().write();
            }
        }
        commits
    }

    fn transaction(
        &self,
        keys: &[usize],
        writes: bool,
        whole: bool,
        seed: u64,
        buffers: &mut TxnBuffers,
    ) -> Result<Option<(Index, Vec<(usize, u64)>)>, Stop> {
        let (mut pins, mut mode, mut loads): (Option<Pins>, _, _) = (None, Mode::Memory, 0);
        loop {
            let mut locked: Vec<MutexGuard<'_, u64>> =
                keys.iter().map(|key| self.locks[*key].lock().expect("no panics")).collect();
            let mut txn = self.store.begin(std::mem::take(buffers), call(mode, seed, pins.as_ref()));
            let mut written = Vec::new();
            let ran = keys.iter().zip(&locked).try_for_each(|(key, version)| {
                read(&mut txn, *key, **version, whole)?;
                if writes {
                    write(&mut txn, *key, **version + 1)?;
                    read(&mut txn, *key, **version + 1, !whole)?;
                    written.push((*key, **version + 1));
                }
                Ok(())
            });
            let committed =
                ran.and_then(|()| if writes { txn.commit().map(|committed| committed.index) } else { Ok(None) });
            *buffers = txn.finish();
            match committed {
                Ok(index) => {
                    if writes {
                        locked.iter_mut().for_each(|version| **version += 1);
                    }
                    return Ok(index.map(|index| (index, written)));
                }
                Err(Stop::WouldBlock) => {
                    drop(locked);
                    loads += 1;
                    if loads > 3 {
                        mode = Mode::Disk;
                    } else {
                        pins = Some(self.load(keys));
                    }
                }
                Err(Stop::Long) => mode = Mode::Disk,
                Err(stop) => return Err(stop),
            }
        }
    }

    /// Reads keys from the disk without their locks.
    fn load(&self, keys: &[usize]) -> Pins {
        let mut txn = self.store.begin(TxnBuffers::default(), call(Mode::Load, 0, None));
        for key in keys {
            let name = name(*key);
            txn.meta(&txn.key(&name)).expect("reads go on");
        }
        txn.take_pins()
    }

    /// Flushes, and lets rows grow cold; checks the base's content between two flushes.
    fn flush(&self) {
        while !self.done.load(Ordering::Relaxed) {
            let put =
                (0..STABLE).step_by(7).try_for_each(|key| self.put_stable(key)).map_err(|stop| format!("{stop:?}"));
            let flushed = put.and_then(|()| self.store.flush_now());
            assert!(flushed.is_ok() || self.done.load(Ordering::Relaxed), "{flushed:?}");
            self.base.set_cold(true);
            self.check_base();
        }
    }

    /// Checks that the base alone is a state between two transactions: its counter fits its rows.
    fn check_base(&self) {
        let get = |row: &[u8]| match self.rows.get(row, Tier::Disk) {
            Ok(Lookup::Row(value)) => Some(value),
            Ok(Lookup::Absent) => None,
            other => panic!("{other:?}"),
        };
        let counts =
            row::system_row(row::SystemScope::Replicated, &[b"counts/".as_slice(), &0u32.to_be_bytes()].concat());
        // Between these two reads no flush happens: this thread is the only one that asks for one, but the memtable may
        // be full.
        let (before, names) = (get(&counts), (0..KEYS).map(name));
        let present = names.filter(|name| get(&row::meta_row(&self.store.key(0, name))).is_some()).count();
        if let Some(before) = before.filter(|before| get(&counts).as_ref() == Some(before)) {
            let keys = i64::from_be_bytes(before[..8].try_into().expect("8 bytes"));
            let after =
                (0..KEYS).map(name).filter(|name| get(&row::meta_row(&self.store.key(0, name))).is_some()).count();
            if after == present {
                assert_eq!(keys, present as i64, "a freeze splits no transaction");
            }
        }
    }

    /// Scans all keys again and again: those that are always there are found once each.
    fn scan(&self) {
        let mut random = Random(5);
        while !self.done.load(Ordering::Relaxed) {
            let mut txn = self.store.begin(TxnBuffers::default(), call(Mode::Disk, 0, None));
            let (mut at, mut found) = (Some(ScanPosition::START), 0);
            while let Some(from) = at {
                let max = 1 + random.below(30) as usize;
                let (names, next) = txn.scan_keys(txn.space(0), from, max).expect("reads go on");
                found += names.iter().filter(|(name, _)| name.starts_with(b"stable")).count();
                at = next;
            }
            assert_eq!(found, STABLE);
        }
    }

    /// Changes an object row by row while flushes go on, and visits, views and looks at it: each read finds the last
    /// change.
    fn visit(&self) {
        let mut random = Random(6);
        let run = |what: &mut dyn FnMut(&mut Txn<'_>) -> Result<(), Stop>| {
            let mut txn = self.store.begin(TxnBuffers::default(), call(Mode::Disk, 0, None));
            what(&mut txn).and_then(|()| txn.commit().map(drop))
        };
        let (mut object, slot) = (None, row::Slot(99));
        let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        while !self.done.load(Ordering::Relaxed) {
            let (element, is_put) = (random.below(600).to_be_bytes().to_vec(), random.chance(70));
            let value = random.number().to_be_bytes().to_vec();
            let mut space = row::Space(0);
            let changed = run(&mut |txn| {
                space = txn.space(0);
                let id = object.map_or_else(|| txn.new_object(), Ok)?;
                object = Some(id);
                txn.put_row(&row::owner_row(space, slot, id), &[b"owner"])?;
                let row = row::data_row(space, slot, id, &element);
                if is_put { txn.put_row(&row, &[&value]) } else { txn.delete_row(&row) }
            });
            if changed.is_err() {
                assert!(self.done.load(Ordering::Relaxed), "{changed:?}");
                return;
            }
            if is_put {
                rows.insert(element, value)
            } else {
                rows.remove(&element)
            };
            let id = object.expect("it has been made");
            let (from, until) = row::object_range(row::Family::Data, space, slot, id);
            let direction = if random.chance(50) { Direction::Forward } else { Direction::Backward };
            let mut expected: Vec<_> = rows.iter().map(|(element, value)| (element.clone(), value.clone())).collect();
            if direction == Direction::Backward {
                expected.reverse();
            }
            let mut found = Vec::new();
            let mut txn = self.store.begin(TxnBuffers::default(), call(Mode::Disk, 0, None));
            let want = 1 + random.below(600) as usize;
            txn.visit(&from, &until, direction, want, |row, value| {
                found.push((row[from.len()..].to_vec(), value.to_vec()));
                std::ops::ControlFlow::Continue(())
            })
            .expect("reads go on");
            assert!(found == expected, "{} rows, {} expected", found.len(), expected.len());
            let absent = random.below(600).to_be_bytes();
            let there = txn.row_presence(&row::data_row(space, slot, id, &absent)).expect("reads go on");
            assert_eq!(there != RowPresence::Absent, rows.contains_key(&absent[..]));
            let mut view = txn.view(&from, &until, direction).expect("reads go on");
            drop(txn);
            let mut viewed = Vec::new();
            while let Some((row, value)) = view.next_row().expect("reads go on") {
                viewed.push((row[from.len()..].to_vec(), value.to_vec()));
            }
            assert!(viewed == expected, "{} rows viewed, {} expected", viewed.len(), expected.len());
        }
    }

    /// Runs threads, flushes and scans until the threads have done their work, or until `meanwhile` has ended it.
    fn run(&self, seed: u64, count: usize, meanwhile: impl FnOnce()) -> Commits {
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..THREADS).map(|n| scope.spawn(move || self.work(seed.wrapping_add(n << 40), count))).collect();
            scope.spawn(|| self.flush());
            scope.spawn(|| self.scan());
            scope.spawn(|| self.visit());
            meanwhile();
            let commits = workers.into_iter().flat_map(|worker| worker.join().expect("no panics")).collect();
            self.done.store(true, Ordering::Relaxed);
            commits
        })
    }

    fn version_in(&self, txn: &mut Txn<'_>, key: usize) -> Option<u64> {
        let name = name(key);
        let row = txn.meta(&txn.key(&name)).expect("reads go on")?;
        Some(u64::from_be_bytes(row[2..].try_into().expect("8 bytes")))
    }
}

fn call(mode: Mode, seed: u64, pins: Option<&Pins>) -> Call<'_> {
    Call { now_ms: 1, seed, database: 0, mode, pins }
}

fn seeds(default: u64) -> impl Iterator<Item = u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let first = number("HAYPILE_SEED").unwrap_or_else(|| u64::from(std::process::id()) << 20);
    (0..number("HAYPILE_CASES").unwrap_or(default))
        .map(move |n| first + n)
        .inspect(|seed| println!("HAYPILE_SEED={seed}"))
}

#[test]
fn under_its_locks_a_transaction_reads_what_was_committed_last() {
    for seed in seeds(3) {
        let mut machine = Machine::new(Durability::Os);
        let commits = machine.run(seed, 3000, || ());
        assert!(commits.len() > 1000);
        // A replay of the log gives the same, in whatever order the threads came.
        for reopened in [false, true] {
            if reopened {
                let last = machine.store.log().last();
                machine.store.log().write();
                machine.store.log().sync_through(last).expect("nothing is broken");
                machine.kill();
                drop(machine.store.close());
                machine.base = FaultBase::new(machine.rows.clone());
                (machine.process, machine.store) = open(&machine.files, &machine.base, machine.durability);
            }
            let mut txn = machine.store.begin(TxnBuffers::default(), call(Mode::Disk, 0, None));
            let mut present = 0;
            for key in 0..KEYS {
                let version = *machine.locks[key].lock().expect("no panics");
                read(&mut txn, key, version, true).expect("reads go on");
                present += i64::from(row_of(version).is_some());
            }
            assert_eq!(txn.counter(txn.space(0), Counter::Keys), present, "DBSIZE is exact");
        }
        machine.store.close().expect("nothing is broken");
    }
}

/// Kills the machine while the threads are at work; returns how many transactions were lost.
fn crash(seed: u64, durability: Durability, power: bool) -> usize {
    let mut random = Random(seed);
    let mut machine = Machine::new(durability);
    let until = Index(200 + random.below(6000));
    let mut durable = Index(0);
    let commits = machine.run(seed, 20_000, || {
        while machine.store.log().last() < until {
            std::thread::yield_now();
        }
        let log = machine.store.log();
        durable = match (power, durability) {
            (false, _) => log.written(),
            (true, Durability::Fsync) => log.durable(),
            (true, Durability::Os) => log.synced(),
        };
        machine.done.store(true, Ordering::Relaxed);
        machine.kill();
        if power {
            machine.files.crash(seed);
        }
    });
    drop(machine.store.close());
    machine.base = FaultBase::new(machine.rows.clone());
    (machine.process, machine.store) = open(&machine.files, &machine.base, durability);

    let mut by_key: Vec<BTreeMap<u64, Index>> = vec![BTreeMap::new(); KEYS];
    for (index, versions) in &commits {
        for (key, version) in versions {
            by_key[*key].insert(*version, *index);
        }
    }
    // Versions grow with the log, so the state tells of each key the last record that survived; where there is no row,
    // there may be several such versions.
    let mut txn = machine.store.begin(TxnBuffers::default(), call(Mode::Disk, 0, None));
    let found: Vec<Option<u64>> = (0..KEYS).map(|key| machine.version_in(&mut txn, key)).collect();
    let present = found.iter().filter(|version| version.is_some()).count();
    assert_eq!(txn.counter(txn.space(0), Counter::Keys), present as i64, "DBSIZE is exact");
    drop(txn);
    for versions in &by_key {
        assert!(versions.values().is_sorted(), "the order of a key's versions is that of the log");
    }
    let state_at = |cut: Index, key: usize| {
        by_key[key]
            .iter()
            .rfind(|(_, index)| **index <= cut)
            .and_then(|(version, _)| row_of(*version).map(|_| *version))
    };
    let mut cuts: Vec<Index> = commits.iter().map(|(index, _)| *index).chain([Index(0)]).collect();
    cuts.sort();
    let matching = cuts.iter().rev().find(|cut| (0..KEYS).all(|key| state_at(**cut, key) == found[key]));
    let cut = *matching.unwrap_or_else(|| panic!("what is left is the log up to some record, whole: {found:?}"));
    let next = cuts.iter().find(|index| **index > cut);
    assert!(next.is_none_or(|next| *next > durable), "record {next:?} is lost, {durable:?} was durable");
    machine.store.close().expect("nothing is broken");
    cuts.iter().filter(|index| **index > cut).count()
}

#[test]
fn a_killed_process_leaves_what_was_written_and_a_prefix_of_the_rest() {
    let lost: usize = seeds(6).map(|seed| crash(seed, Durability::Os, false)).sum();
    println!("{lost} transactions that were not written are lost");
}

#[test]
fn a_power_failure_leaves_a_prefix() {
    let lost: usize = seeds(6).map(|seed| crash(seed, Durability::Os, true)).sum();
    println!("{lost} transactions that were not synced are lost");
}

#[test]
fn a_power_failure_leaves_what_was_synced() {
    let lost: usize = seeds(6).map(|seed| crash(seed, Durability::Fsync, true)).sum();
    println!("{lost} transactions that were not synced are lost");
}

/// The rows of one commit that is applied in steps.
const MANY: usize = 3000;

fn version_of(store: &Store, key: usize) -> u64 {
    let mut txn = store.begin(TxnBuffers::default(), call(Mode::Disk, 0, None));
    let name = name(key);
    let row = txn.meta(&txn.key(&name)).expect("the base is well");
    row.map_or(0, |row| u64::from_be_bytes(row[..8].try_into().expect("a version")))
}

/// Commits a version of these keys; returns false where the store takes no more.
fn commit_version(store: &Store, keys: Range<usize>, version: u64) -> bool {
    let mut txn = store.begin(TxnBuffers::default(), call(Mode::Disk, 0, None));
    for key in keys {
        let name = name(key);
        if txn.put_meta(&txn.key(&name), &[&version.to_be_bytes(), b"a version of this key"]).is_err() {
            return false;
        }
    }
    txn.commit().is_ok()
}

/// Checks a commit of very many rows, applied in steps while generations are frozen: a reader without locks of rows
/// that are not in flight sees none of it in half, and a crash leaves all of each record or nothing.
#[test]
fn a_large_commit_is_seen_and_kept_as_a_whole() {
    const ROUNDS_MIN: u64 = 60;
    let (files, rows) = (ForgetfulFiles::new(), Arc::new(MemoryBase::default()));
    let base = FaultBase::new(rows.clone());
    let (process, store) = open(&files, &base, Durability::Os);
    let done = AtomicBool::new(false);
    let (looks, staged, rounds) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    // Where other processes have the cores, it takes more rounds until the reader has met both.
    let has_met_both = || looks.load(Ordering::Relaxed) > 0 && staged.load(Ordering::Relaxed) > 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 1..=100 * ROUNDS_MIN {
                if version > ROUNDS_MIN && has_met_both() {
                    break;
                }
                assert!(commit_version(&store, 0..MANY, version), "writes go on");
                rounds.store(version, Ordering::Relaxed);
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                store.flush_now().expect("the base takes everything");
            }
        });
        let mut random = Random(3);
        while !done.load(Ordering::Acquire) {
            let [one, other] = [0, 1].map(|_| random.below(MANY as u64) as usize);
            let is_free = |key: usize| !store.is_staged(&store.key(0, &name(key)));
            // As event loops do: a key of a commit in flight is not read without its lock.
            if !is_free(one) {
                staged.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let first = version_of(&store, one);
            if is_free(other) {
                let second = version_of(&store, other);
                assert!(second >= first, "key {one} was seen at version {first}, then key {other} at {second}");
                looks.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert!(has_met_both(), "{looks:?} looks, {staged:?} keys under way");
    store.flush_now().expect("the base takes everything");
    let rounds = rounds.into_inner();
    assert!((0..MANY).all(|key| version_of(&store, key) == rounds));
    // More rounds, which a crash cuts anywhere. Each writes keys of its own, so that no round makes good another one's
    // loss.
    let group_of = |version: u64| (1 + version as usize % 8) * MANY..(2 + version as usize % 8) * MANY;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 1.. {
                if !commit_version(&store, group_of(version), version) || is_over.load(Ordering::Acquire) {
                    return;
                }
            }
        });
        for _ in 0..40 {
            store.flush_now().expect("the base takes everything");
        }
        process.kill();
        base.kill();
        is_over.store(true, Ordering::Release);
    });
    drop(store);
    let base = FaultBase::new(rows);
    let (_process, store) = open(&files, &base, Durability::Os);
    for group in 0..8 {
        let versions: Vec<u64> = group_of(group).map(|key| version_of(&store, key)).collect();
        assert!(versions.iter().all(|version| *version == versions[0]), "group {group}: {versions:?}");
    }
}
