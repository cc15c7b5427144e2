//! Files that do not belong together or are gone: a store does not open over them, and does not write while it runs.

mod machine;

use haypile_log::testing::{FaultFiles, ForgetfulFiles};
use haypile_log::{DirectoryId, EndFile, Files};
use haypile_store::base::BaseError;
use haypile_store::testing::{FaultBase, options};
use haypile_store::{MemoryBase, OpenError, Refusal, Store, StoreOptions, WritePressure};
use machine::{Machine, usual};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const END: &str = "/haypile.end";

fn noting(options: &mut StoreOptions) {
    options.log.end =
        Some(EndFile { path: END.into(), directory: DirectoryId([3; 16]), is_expected: false, is_written: true });
    options.log.retention.bytes = 0;
}

fn open(disk: &ForgetfulFiles, rows: &Arc<MemoryBase>) -> Result<Arc<Store>, OpenError> {
    let mut options = options(Path::new("/"));
    options.log.files = Arc::new(FaultFiles::new(Arc::new(disk.clone())));
    Store::open(options, FaultBase::new(rows.clone()), |_| {})
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn stopped(store: &Store) -> Option<Refusal> {
    match store.pressure() {
        WritePressure::Stop(why) => Some(why),
        _ => None,
    }
}

fn segments(disk: &ForgetfulFiles) -> Vec<PathBuf> {
    disk.list(Path::new("/log")).expect("a directory").iter().map(|name| Path::new("/log").join(name)).collect()
}

#[test]
fn a_base_and_a_log_of_two_stores_do_not_open_together() {
    let stores = [Machine::new(usual), Machine::new(usual)];
    for machine in &stores {
        for n in 0..200 {
            machine.put(&format!("key:{n}"), &[b'v'; 100]).expect("room");
        }
        machine.store.flush_now().expect("flushes");
        machine.put("after", b"the flush").expect("room");
        machine.store.log().write();
        machine.die();
    }
    let [ours, theirs] = &stores;
    let error = open(&ours.disk, &theirs.rows).err().expect("they are not refused").0;
    assert!(error.contains("do not belong together"), "{error}");
    open(&ours.disk, &ours.rows).expect("each by itself is sound").close().expect("nothing is wrong");
}

#[test]
fn the_stamp_of_a_flush_has_the_history_of_its_record() {
    let machine = Machine::new(|options| {
        options.memtable_bytes = 64 << 20;
        options.flush_log_bytes = 64 << 20;
    });
    let first = machine.store.history();
    for n in 0..4000 {
        machine.put(&format!("key:{n}"), &[b'v'; 1000]).expect("room");
        if n % 100 == 0 {
            machine.store.log().write();
        }
    }
    machine.store.log().write();
    // The next process has less memory: it flushes while it replays, records of the history before.
    let Machine { disk, rows, change: _, .. } = &machine;
    machine.die();
    let base = FaultBase::new(rows.clone());
    let mut small = options(Path::new("/"));
    small.memtable_bytes = 1 << 20;
    small.log.files = Arc::new(FaultFiles::new(Arc::new(disk.clone())));
    let store = Store::open(small, base.clone(), |_| {}).expect("opens");
    assert!(!rows.is_empty(), "it was flushed during the replay");
    assert_ne!(store.history(), first);
    base.kill();
    drop(store.close_without_flush());
    open(disk, rows).expect("the stamp is of the record").close().expect("nothing is wrong");
}

#[test]
fn what_was_loaded_is_missed_if_the_base_is_older() {
    let machine = Machine::new(usual);
    let mut loading = machine.store.load(&std::env::temp_dir(), 1 << 20).expect("reads").expect("it is empty");
    let mut txn = machine.begin();
    let key = txn.key(b"loaded");
    txn.put_meta(&key, &[b"value"]).expect("small");
    assert!(loading.take(&mut txn).expect("there is room"));
    drop(txn);
    let history = machine.store.history();
    loading.finish(|_, _| {}).expect("nothing is broken");
    assert_ne!(machine.store.history(), history, "the data are not what the records before make");
    let histories = machine.store.log().histories();
    let start = histories.starts().last().expect("a log has a history");
    assert_eq!((start.history, start.parent()), (machine.store.history(), None), "no history leads to loaded data");
    machine.put("after", b"the load").expect("room");
    machine.store.log().sync_through(machine.store.log().last()).expect("synced");
    machine.die();
    let error = open(&machine.disk, &Arc::default()).err().expect("the loaded data are missing").0;
    assert!(error.contains("data that were loaded into the base"), "{error}");
    let again = Machine::start(machine.disk.clone(), machine.rows.clone(), usual);
    assert_eq!(again.get("loaded").as_deref(), Some(&b"value"[..]));
    assert_eq!(again.get("after").as_deref(), Some(&b"the load"[..]));
}

#[test]
fn a_load_that_dies_before_its_data_are_there_leaves_a_store_that_opens() {
    let machine = Machine::new(usual);
    machine.put("committed", b"before").expect("room");
    machine.store.flush_now().expect("flushes");
    // The log is as `Load::finish` leaves it right before it hands its rows over.
    machine.store.log().begin_loaded_history().expect("nothing is broken");
    machine.die();
    for round in 0..3 {
        let again = Machine::start(machine.disk.clone(), machine.rows.clone(), usual);
        assert_eq!(again.get("committed").as_deref(), Some(&b"before"[..]));
        again.put(&format!("round:{round}"), b"x").expect("room");
        again.store.log().write();
        again.die();
    }
}

#[test]
fn while_a_file_of_the_base_is_missing_nothing_is_written() {
    let machine = Machine::new(usual);
    machine.put("k", b"v").expect("room");
    machine.base.set_missing(Some(BaseError::Failed("/base/CURRENT was removed".into())));
    wait_until("writes are refused", || stopped(&machine.store).is_some());
    let why = stopped(&machine.store).expect("it stays so");
    assert_eq!(why, Refusal::FilesMissing("/base/CURRENT was removed".into()));
    assert!(machine.get("k").is_some());
    machine.base.set_missing(None);
    wait_until("writes go on", || stopped(&machine.store).is_none());
    machine.base.set_missing(Some(BaseError::Failed("/base was removed".into())));
    assert_eq!(machine.store.close(), Err("/base was removed".into()), "whenever it went");
}

#[test]
fn segments_that_go_while_it_runs_are_missed_and_made_up_for_by_a_flush() {
    let machine = Machine::new(noting);
    for n in 0..2000 {
        machine.put(&format!("key:{n}"), &[b'v'; 300]).expect("room");
        machine.store.log().write();
    }
    assert!(segments(&machine.disk).len() > 2);
    machine.base.hold_ingests(true);
    for path in segments(&machine.disk) {
        machine.disk.remove(&path).expect("it is there");
    }
    wait_until("writes are refused", || stopped(&machine.store).is_some());
    let why = stopped(&machine.store).expect("until the flush ends");
    let Refusal::FilesMissing(why) = why else { panic!("{why:?}") };
    assert!(why.contains(".log was removed while the server runs") && why.contains("/log/000"), "{why}");
    assert!(machine.put("refused", b"x").is_err(), "the log takes nothing");
    machine.base.hold_ingests(false);
    // The base has all of it then, and the log a new segment.
    wait_until("writes go on", || stopped(&machine.store).is_none() && machine.put("after", b"x").is_ok());
    machine.store.log().write();
    let machine = machine.kill();
    assert!((0..2000).all(|n| machine.get(&format!("key:{n}")).is_some()));
    assert!(machine.get("after").is_some());
    machine.disk.remove(Path::new(END)).expect("it is there");
    wait_until("the note is made anew", || machine.disk.read(Path::new(END)).is_ok());
    machine.store.close().expect("nothing is missing");
}

#[test]
fn a_lost_segment_that_nothing_can_make_up_for_fails_the_stop() {
    let machine = Machine::new(noting);
    machine.put("k", b"v").expect("room");
    machine.store.log().sync_through(machine.store.log().last()).expect("nothing is broken");
    machine.base.set_fault(Some(BaseError::Full("injected".into())));
    for path in segments(&machine.disk) {
        machine.disk.remove(&path).expect("it is there");
    }
    let why = machine.store.close().expect_err("a file is missing");
    assert!(why.contains("was removed while the server runs"), "{why}");
    machine.die();
    let mut options = options(Path::new("/"));
    options.log.files = Arc::new(machine.disk.clone());
    noting(&mut options);
    let error = Store::open(options, FaultBase::new(machine.rows.clone()), |_| {}).err().expect("it is lost").0;
    assert!(error.contains("the log is damaged") && error.contains("restore a backup"), "{error}");
}
