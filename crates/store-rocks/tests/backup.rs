//! Backups of a store while it is written: each one, opened, is the store as it was at one index.

mod contract;

use contract::Directory;
use haypile_harness::small_disk::SmallDisk;
use haypile_log::ReadOnlyFiles;
use haypile_store::check::{Above, Facts, Finding, Findings, Merged, Meter, Standing};
use haypile_store::row::{Family, space_of};
use haypile_store::testing::options;
use haypile_store::{BackedUp, Call, Counter, Mode, Store, Txn, TxnBuffers};
use haypile_store_rocks::{Image, Options, Rocks};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const WRITERS: u64 = 3;

fn open(directory: &Path) -> Arc<Store> {
    open_through(directory, 0)
}

/// Opens a backup, in which every record through `index` has to be.
fn open_through(directory: &Path, index: u64) -> Arc<Store> {
    let base = Rocks::open(&directory.join("base"), Options { level0_files: 4, ..Options::default() });
    let mut options = options(directory);
    // A second of writing fills several generations and segments.
    options.log.segment_bytes = 256 << 10;
    options.log.retention.bytes = 0;
    options.flush_log_bytes = 1 << 20;
    options.memtable_bytes = 512 << 10;
    options.log.complete_through.0 = index;
    std::fs::create_dir_all(directory.join("log")).expect("a directory");
    Store::open(options, Arc::new(base.expect("the base opens")), |_| ()).expect("the store opens")
}

fn begin(store: &Store) -> Txn<'_> {
    store.begin(TxnBuffers::default(), Call { now_ms: 1, seed: 1, database: 0, mode: Mode::Disk, pins: None })
}

/// Writes one transaction: two keys that are always equal, and one that was not there.
fn write(store: &Store, writer: u64, number: u64) -> u64 {
    let mut txn = begin(store);
    let names = [format!("{writer}:a"), format!("{writer}:b"), format!("{writer}:key {number}")];
    for name in &names {
        let key = txn.key(name.as_bytes());
        txn.put_meta(&key, &[number.to_string().as_bytes(), &[b'.'; 300]]).expect("room");
    }
    let new = if number == 1 { 3 } else { 1 };
    let space = txn.space(0);
    txn.count(space, Counter::Keys, new);
    let index = txn.commit().expect("room").index.expect("a record").0;
    drop(txn);
    store.log().write();
    index
}

fn number(store: &Store, name: &str) -> u64 {
    let mut txn = begin(store);
    let key = txn.key(name.as_bytes());
    let value = txn.meta(&key).expect("it is read").map(|value| value.to_vec());
    let text = value.map(|value| String::from_utf8_lossy(&value).trim_end_matches('.').to_owned());
    text.map_or(0, |text| text.parse().expect("a number"))
}

fn back_up(store: &Store, directory: &Path) -> Result<BackedUp, String> {
    std::fs::create_dir_all(directory.join("log")).map_err(|error| error.to_string())?;
    store.back_up(&directory.join("base"), &directory.join("log"), &|| true)
}

#[test]
fn each_backup_is_the_store_at_its_index_while_all_goes_on() {
    let directory = Directory::new("backups");
    let store = open(&directory.path().join("data"));
    let stop = AtomicBool::new(false);
    // For each writer the index of each of its transactions.
    let (written, backups) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (store, stop) = (&store, &stop);
                scope.spawn(move || {
                    let mut indexes = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        indexes.push(write(store, writer, indexes.len() as u64 + 1));
                    }
                    indexes
                })
            })
            .collect();
        let flushes =
            || store.figures().into_iter().find(|figure| figure.1 == "flushes_completed").expect("a figure").2;
        let backups: Vec<(PathBuf, u64, u64)> = (0..12)
            .map(|n| {
                let target = flushes() + 1;
                while flushes() < target {
                    std::thread::yield_now();
                }
                let path = directory.path().join(format!("backup {n}"));
                let acknowledged = store.log().written().0;
                let made = back_up(&store, &path).expect("a backup");
                (path, acknowledged, made.index.0)
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        let written: Vec<Vec<u64>> = writers.into_iter().map(|writer| writer.join().expect("no panic")).collect();
        (written, backups)
    });
    for (path, acknowledged, index) in &backups {
        assert!(index >= acknowledged, "{index} {acknowledged}");
        let copy = open_through(path, *index);
        let mut keys = 0;
        for (writer, indexes) in written.iter().enumerate() {
            let expected = indexes.partition_point(|at| at <= index) as u64;
            keys += expected + if expected > 0 { 2 } else { 0 };
            for name in ["a", "b"] {
                assert_eq!(number(&copy, &format!("{writer}:{name}")), expected, "{path:?} {writer} {name}");
            }
            for (n, there) in [(expected, expected), (expected + 1, 0), (expected / 2, expected / 2)] {
                assert_eq!(number(&copy, &format!("{writer}:key {n}")), there, "{path:?} {writer} {n}");
            }
        }
        assert_eq!(copy.counter(0, Counter::Keys), keys as i64, "{path:?}");
        assert_ne!(copy.history(), store.history(), "it goes its own way");
        // The backup is a store like any other: changes of it do not reach the original.
        for n in 0..2000 {
            write(&copy, 9, n + 1);
        }
        copy.flush_now().expect("it flushes");
        copy.close().expect("a clean stop");
    }
    for (writer, indexes) in written.iter().enumerate() {
        assert_eq!(number(&store, &format!("{writer}:a")), indexes.len() as u64);
        assert_eq!(number(&store, &format!("{writer}:key 1")), 1);
    }
    store.close().expect("a clean stop");
}

#[test]
fn files_of_the_base_are_linked_and_none_of_the_log() {
    use std::os::unix::fs::MetadataExt;
    let directory = Directory::new("links");
    let store = open(&directory.path().join("data"));
    for n in 0..3000 {
        write(&store, 0, n + 1);
    }
    store.flush_now().expect("it flushes");
    write(&store, 0, 3001);
    let backup = directory.path().join("backup");
    back_up(&store, &backup).expect("a backup");
    let links = |part: &str, ending: &str| -> Vec<u64> {
        let files = std::fs::read_dir(backup.join(part)).expect("a directory").flatten();
        let files = files.filter(|file| file.file_name().to_string_lossy().ends_with(ending));
        files.map(|file| file.metadata().expect("it is there").nlink()).collect()
    };
    let tables = links("base", ".sst");
    assert!(!tables.is_empty() && tables.iter().all(|links| *links == 2), "{tables:?}");
    let segments = links("log", ".log");
    assert!(!segments.is_empty() && segments.iter().all(|links| *links == 1), "{segments:?}");
    store.close().expect("a clean stop");
}

#[test]
fn a_backup_that_is_broken_off_is_an_error_and_the_store_goes_on() {
    let directory = Directory::new("broken-off");
    let store = open(&directory.path().join("data"));
    for n in 0..3000 {
        write(&store, 0, n + 1);
    }
    let path = directory.path().join("broken off");
    std::fs::create_dir_all(path.join("log")).expect("a directory");
    let broken_off = store.back_up(&path.join("base"), &path.join("log"), &|| false).expect_err("nobody wants it");
    assert!(broken_off.contains("broken off"), "{broken_off}");
    goes_on(&store, &directory);
}

#[test]
fn a_backup_that_finds_no_room_is_an_error_and_the_store_goes_on() {
    let directory = Directory::new("no-room");
    let Some(disk) = SmallDisk::mount(&directory.path().join("disk"), "size=1m") else { return };
    let store = open(&directory.path().join("data"));
    for n in 0..3000 {
        write(&store, 0, n + 1);
    }
    let error = back_up(&store, &disk.0.join("backup")).expect_err("there is no room");
    assert!(error.contains("No space left") || error.contains("full"), "{error}");
    goes_on(&store, &directory);
}

/// Checks that a store of 3000 numbers takes one more and a backup, and closes it.
fn goes_on(store: &Store, directory: &Directory) {
    write(store, 0, 3001);
    let made = back_up(store, &directory.path().join("good")).expect("a backup");
    assert!(made.log_bytes > 0);
    let copy = open_through(&directory.path().join("good"), made.index.0);
    assert_eq!(number(&copy, "0:a"), 3001);
    copy.close().expect("a clean stop");
    store.close().expect("a clean stop");
}

/// The reclaim of an emptied database's space ends with a record that says so; a backup that has the record and, from
/// before it, the rows would keep them forever.
#[test]
fn a_backup_knows_of_all_its_rows_which_are_of_emptied_databases() {
    let directory = Directory::new("emptied");
    let store = open(&directory.path().join("data"));
    let stop = AtomicBool::new(false);
    let backups: Vec<(PathBuf, u64)> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for n in 1..=200 {
                    write(&store, 0, n);
                }
                store.flush_now().expect("it flushes");
                let mut txn = begin(&store);
                txn.flush_database(0).expect("room");
                txn.commit().expect("room");
                drop(txn);
                store.flush_now().expect("it flushes");
            }
        });
        let backups = (0..40).map(|n| {
            let path = directory.path().join(format!("backup {n}"));
            let made = back_up(&store, &path).expect("a backup");
            (path, made.index.0)
        });
        let backups = backups.collect();
        stop.store(true, Ordering::Relaxed);
        backups
    });
    for (path, index) in &backups {
        let found = std::cell::RefCell::new(Vec::new());
        let mut tell = |finding: &Finding| found.borrow_mut().push(finding.to_string());
        let (mut findings, meter) = (Findings::new(10, &mut tell), Meter::new(|_| ()));
        let base = Image::open(&path.join("base")).expect("the base opens");
        let log = haypile_log::Options {
            files: Arc::new(ReadOnlyFiles),
            complete_through: haypile_log::Index(*index),
            ..haypile_log::Options::new(path.join("log"))
        };
        let above = Above::read(&log, &base, &meter, &mut findings).expect("the log is read");
        let merged = Merged::new(&base, &above, &meter);
        let facts = Facts::read(&merged, &above, &mut findings).expect("the rows are read");
        let mut rows = merged.family(Family::Meta, &[]).expect("the rows are read");
        while let Some((row, _)) = rows.row() {
            let space = space_of(row).expect("a row of a key");
            assert_ne!(facts.standing(space), Standing::Unknown, "{path:?}");
            rows.advance().expect("the rows are read");
        }
        assert_eq!(found.take(), [""; 0], "{path:?}");
    }
    store.close().expect("a clean stop");
}
