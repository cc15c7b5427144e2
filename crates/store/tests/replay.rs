//! The replay at open, with all that it has to keep: over a base that drops whatever it may meanwhile, after flushes
//! that fail, after damage.

mod machine;

use haypile_log::testing::Random;
use haypile_log::{Body, Files, Kind, body_crc};
use haypile_store::base::{Base, BaseError, Lookup, Tier};
use haypile_store::testing::{FaultBase, options};
use haypile_store::{Counter, MemoryBase, Mode, ObjectId, OpenError, Space, Store, StoreOptions, Txn, TxnBuffers, row};
use machine::{Machine, call, usual};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sets options with which no flush is due, however slowly a test writes.
fn never_flushing(options: &mut StoreOptions) {
    options.memtable_bytes = 64 << 20;
    options.flush_log_bytes = 64 << 20;
}

#[test]
fn the_owner_of_an_object_that_was_written_ahead_may_come_after_a_flush_of_the_replay() {
    let machine = Machine::new(never_flushing);
    let mut txn = machine.begin();
    let id = txn.new_object().expect("leased");
    let chunk = vec![b'x'; 64 << 10];
    let row_of = |n: u32| row::data_row(Space(0), row::Slot(1), id, &n.to_be_bytes());
    for n in 0..100 {
        txn.put_row(&row_of(n), &[&chunk]).expect("written ahead");
    }
    txn.put_row(&row::owner_row(Space(0), row::Slot(1), id), &[b"k"]).expect("small");
    txn.commit().expect("room");
    drop(txn);
    machine.store.log().sync_through(machine.store.log().last()).expect("synced");
    // The new process has less memory: it flushes in the middle of its replay, and its base drops whatever it may.
    machine.die();
    let (disk, rows) = (machine.disk.clone(), machine.rows.clone());
    let eager = Arc::new(Eager(rows.clone()));
    let mut small = options(Path::new("/"));
    small.memtable_bytes = 1 << 20;
    small.log.files = Arc::new(disk);
    let store = Store::open(small, eager, |_| {}).expect("opens");
    assert!(!rows.is_empty(), "it was flushed during the replay");
    let mut txn = store.begin(TxnBuffers::default(), call(Mode::Disk));
    for n in 0..100 {
        assert!(txn.row(&row_of(n)).expect("reads").is_some(), "row {n} is alive");
    }
    drop(txn);
    store.close().expect("nothing is wrong");
}

#[test]
fn a_replay_that_cannot_be_flushed_ends_with_an_error_and_can_be_tried_again() {
    let machine = Machine::new(never_flushing);
    let long = vec![b'l'; 700 << 10];
    for n in 0..4000 {
        machine.put(&format!("short:{n}"), &[b's'; 300]).expect("room");
        if n % 500 == 0 {
            machine.put(&format!("long:{n}"), &long).expect("room");
        }
        machine.store.log().write();
    }
    machine.store.log().sync_through(machine.store.log().last()).expect("synced");
    machine.die();
    let open = |fault: &dyn Fn(&FaultBase)| {
        let base = FaultBase::new(machine.rows.clone());
        fault(&base);
        let mut small = options(Path::new("/"));
        small.memtable_bytes = 1 << 20;
        small.log.files = Arc::new(machine.disk.clone());
        Store::open(small, base, |_| {})
    };
    let injected = || BaseError::Full("injected".into());
    let error = open(&|base| base.set_fault(Some(injected()))).err().expect("there is no room for all of it");
    assert!(error.0.contains("cannot be flushed: the disk is full: injected"), "{error}");
    // Or the failure is over soon, as where a compaction had the room.
    let store = open(&|base| base.fail_next_ingest(injected())).expect("opens");
    let mut txn = store.begin(TxnBuffers::default(), call(Mode::Disk));
    for n in 0..4000 {
        let short = txn.meta(&txn.key(format!("short:{n}").as_bytes())).expect("reads");
        assert_eq!(short.as_deref(), Some(&[b's'; 300][..]), "{n}");
    }
    for n in (0..4000).step_by(500) {
        let found = txn.meta(&txn.key(format!("long:{n}").as_bytes())).expect("reads");
        assert!(found.as_deref() == Some(&long[..]), "{n}");
    }
    drop(txn);
    store.close().expect("nothing is wrong");
}

#[test]
fn damage_far_into_the_log_ends_the_replay_and_is_named() {
    let machine = Machine::new(never_flushing);
    for n in 0..10_000 {
        machine.put(&format!("k{n}"), &[b'v'; 300]).expect("room");
        machine.store.log().write();
    }
    machine.store.log().sync_through(machine.store.log().last()).expect("synced");
    machine.put("later", b"its group says that what was before is synced").expect("room");
    machine.store.log().write();
    machine.die();
    let open = || {
        let mut same = options(Path::new("/"));
        same.memtable_bytes = 64 << 20;
        same.log.files = Arc::new(machine.disk.clone());
        let mut told = 0;
        let opened = Store::open(same, FaultBase::new(machine.rows.clone()), |_| told += 1);
        (opened, told)
    };
    let dir = options(Path::new("/")).log.dir;
    let mut names = machine.disk.list(&dir).expect("a directory");
    names.sort();
    let path = dir.join(&names[names.len() * 3 / 4]);
    let whole = machine.disk.read(&path).expect("a segment");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    machine.disk.replace(&path, damaged);
    let (opened, told) = open();
    let error = opened.err().expect("nothing behind the damage is believed").0;
    let place = format!("the log is damaged: {} at offset ", path.display());
    assert!(error.contains(&place) && told > 0, "after {told} looks: {error}");
    machine.disk.replace(&path, whole);
    let store = open().0.expect("opens");
    assert_eq!(store.counter(0, Counter::Keys), 10_001);
    store.close().expect("nothing is wrong");
}

/// Writes a record as it is: as a defect would, or another program.
fn append(machine: &Machine, body: &Body) {
    let log = machine.store.log();
    let reserved = log.reserve(body.len()).expect("room");
    log.append(reserved, Kind::Effects, 1_000, body.bytes(), body_crc(body.bytes()));
    log.write();
    log.sync_through(log.last()).expect("synced");
}

/// Opens a store on the files that a machine has left, with a small memtable.
fn reopen(machine: &Machine) -> Result<Arc<Store>, OpenError> {
    let mut small = options(Path::new("/"));
    small.memtable_bytes = 1 << 20;
    small.log.files = Arc::new(machine.disk.clone());
    Store::open(small, FaultBase::new(machine.rows.clone()), |_| {})
}

#[test]
fn splices_are_replayed_once_however_often_the_base_takes_rows_in_between() {
    let machine = Machine::new(never_flushing);
    let mut expected: Vec<Vec<u8>> = vec![vec![b'.'; 400]; 50];
    for (n, row) in expected.iter().enumerate() {
        machine.put(&format!("k{n}"), row).expect("room");
    }
    let mut random = Random(7);
    for at in 0..3000u32 {
        let n = random.below(50) as usize;
        let offset = random.below(expected[n].len() as u64 + 1) as u32;
        let removed = random.below((expected[n].len() as u64 - u64::from(offset)).min(3) + 1) as u32;
        let bytes = at.to_string();
        let mut txn = machine.begin();
        let row = row::meta_row(&txn.key(format!("k{n}").as_bytes()));
        txn.splice_row(&row, offset, removed, bytes.as_bytes()).expect("small");
        txn.commit().expect("room");
        drop(txn);
        expected[n].splice(offset as usize..(offset + removed) as usize, bytes.bytes());
        if at % 500 == 499 {
            // The filler makes generations of the replay end between the records, too.
            machine.put(&format!("filler{at}"), &vec![b'f'; 700 << 10]).expect("room");
        }
        if at == 1000 {
            machine.store.flush_now().expect("the base has rows in the state of the middle");
        }
    }
    machine.store.log().sync_through(machine.store.log().last()).expect("synced");
    machine.die();
    for life in 0..3 {
        let store = reopen(&machine).expect("opens");
        let mut txn = store.begin(TxnBuffers::default(), call(Mode::Disk));
        for (n, row) in expected.iter().enumerate() {
            let found = txn.meta(&txn.key(format!("k{n}").as_bytes())).expect("reads");
            assert!(found.as_deref() == Some(&row[..]), "k{n} in life {life}");
        }
        drop(txn);
        // The base has the rows that this replay had to flush, and the next replay finds the rest in the log.
        store.close_without_flush().expect("nothing is wrong");
    }
}

#[test]
fn a_splice_of_a_row_of_another_length_is_refused_and_named() {
    let refused = |what: &str, make: fn(&mut Body, &[u8])| {
        let machine = Machine::new(never_flushing);
        machine.put("k", b"hello").expect("room");
        let row = row::meta_row(&machine.begin().key(b"k"));
        let mut body = Body::new();
        make(&mut body, &row);
        append(&machine, &body);
        let index = machine.store.log().last();
        machine.die();
        let error = reopen(&machine).err().expect(what).0;
        assert!(error.contains(&format!("record {index} of the log: a splice is of a row of")), "{what}: {error}");
    };
    refused("longer than it was", |body, row| _ = body.splice(&[row], 1, 1, b"xy", 4));
    refused("behind its end", |body, row| _ = body.splice(&[row], 6, 0, b"x", 8));
    refused("missing", |body, row| _ = body.splice(&[row, b"other"], 0, 1, b"", 4));
    refused("deleted by its own record", |body, row| {
        body.delete(&[row]);
        body.splice(&[row], 0, 1, b"", 4);
    });
    refused("as it was before its own record", |body, row| {
        body.splice(&[row], 0, 1, b"", 4);
        body.splice(&[row], 0, 1, b"", 4);
    });
    // A change that suits its row is taken, also after other effects of its record.
    let machine = Machine::new(never_flushing);
    let row = row::meta_row(&machine.begin().key(b"k"));
    let mut body = Body::new();
    body.splice(&[&row], 0, 0, b"yellow", 6);
    body.patch(&[&row], 0, b"h", 5);
    body.splice(&[&row], 4, 1, b"o, world", 12);
    append(&machine, &body);
    machine.die();
    let store = reopen(&machine).expect("opens");
    let mut txn = store.begin(TxnBuffers::default(), call(Mode::Disk));
    let found = txn.meta(&txn.key(b"k")).expect("reads");
    assert_eq!(found.as_deref(), Some(&b"hello, world"[..]));
    drop(txn);
    store.close().expect("nothing is wrong");
}

#[test]
fn a_record_with_a_splice_beyond_its_row_does_not_parse() {
    let machine = Machine::new(never_flushing);
    let mut body = Body::new();
    body.splice(&[b"row"], 1, 0, b"x", 2);
    let sound = body.bytes().to_vec();
    // The length afterwards, in front of the row.
    let broken = [&sound[..5], &[1], &sound[6..]].concat();
    let log = machine.store.log();
    let reserved = log.reserve(broken.len()).expect("room");
    log.append(reserved, Kind::Effects, 1_000, &broken, body_crc(&broken));
    log.write();
    log.sync_through(log.last()).expect("synced");
    machine.die();
    let error = reopen(&machine).err().expect("nothing is made of it").0;
    assert!(error.contains("a splice beyond the end of its row"), "{error}");
}

/// A base that compacts everything after each change.
struct Eager(Arc<MemoryBase>);

mod eager {
    use super::*;
    use haypile_store::base::*;

    impl Eager {
        fn compact(&self) {
            self.0.reclaim_range(&[0], &[u8::MAX]).expect("memory can be compacted");
        }
    }

    impl Base for Eager {
        fn get(&self, key: &[u8], tier: Tier) -> Result<Lookup, BaseError> {
            self.0.get(key, tier)
        }
        fn scan(
            &self,
            from: &[u8],
            until: &[u8],
            direction: Direction,
            tier: Tier,
        ) -> Result<Box<dyn Cursor + '_>, BaseError> {
            self.0.scan(from, until, direction, tier)
        }
        fn view(&self, from: &[u8], until: &[u8], direction: Direction) -> Result<Box<dyn Cursor + Send>, BaseError> {
            self.0.view(from, until, direction)
        }
        fn ingest(&self, rows: &mut dyn Rows) -> Result<(), BaseError> {
            self.0.ingest(rows)?;
            self.compact();
            Ok(())
        }
        fn set_busy(&self, busy: bool) {
            self.0.set_busy(busy);
        }
        fn pace_removals(&self, short_of_space: bool) {
            self.0.pace_removals(short_of_space);
        }
        fn set_reclaim(&self, reclaim: Reclaim) {
            self.0.set_reclaim(reclaim);
            self.compact();
        }
        fn reclaim_range(&self, from: &[u8], until: &[u8]) -> Result<(), BaseError> {
            self.0.reclaim_range(from, until)
        }
        fn bytes_in(&self, from: &[u8], until: &[u8]) -> u64 {
            self.0.bytes_in(from, until)
        }
        fn pressure(&self) -> Pressure {
            self.0.pressure()
        }
        fn checkpoint(&self, directory: &Path) -> Result<(), BaseError> {
            self.0.checkpoint(directory)
        }
        fn background_error(&self) -> Option<BaseError> {
            None
        }
        fn resume(&self) -> Result<(), BaseError> {
            Ok(())
        }
        fn disk_bytes(&self) -> u64 {
            0
        }
        fn set_cache_bytes(&self, _: u64) {}
        fn figures(&self) -> Vec<(&'static str, u64)> {
            Vec::new()
        }
        fn close(&self) {}
    }
}

/// Checks that a flush which waited for room leaves out spaces that were emptied meanwhile, and so needs next to none.
/// The next start passes over the log's effects on those rows.
#[test]
fn a_flush_that_comes_late_leaves_out_what_has_died_since() {
    let machine = Machine::new(usual);
    let element = |txn: &Txn<'_>| row::data_row(txn.space(0), row::Slot(1), ObjectId(1), b"e");
    let mut txn = machine.begin();
    let row = element(&txn);
    txn.put_row(&row, &[b"a row of this length"]).expect("small");
    txn.commit().expect("room");
    drop(txn);
    machine.put("k", b"v").expect("room");
    machine.base.set_fault(Some(BaseError::Full("injected".into())));
    machine.store.flush_now().expect_err("there is no room");
    // Neither fits a base without the row.
    let mut txn = machine.begin();
    txn.splice_row(&row, 2, 4, b"x").expect("small");
    txn.patch_row(&row, 1, b"y", 5).expect("small");
    txn.commit().expect("room");
    drop(txn);
    let mut txn = machine.begin();
    txn.flush_database(0).expect("small");
    txn.commit().expect("room");
    drop(txn);
    machine.put("after", b"v").expect("room");
    let flushes =
        || machine.store.figures().into_iter().find(|(_, name, _)| *name == "flushes_completed").expect("there").2;
    let before = flushes();
    machine.base.set_fault(None);
    let begun = Instant::now();
    while flushes() == before {
        assert!(begun.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(machine.rows.get(&row, Tier::Disk), Ok(Lookup::Absent), "the flush needed no room for it");
    machine.store.log().sync_through(machine.store.log().last()).expect("room");
    let machine = machine.kill();
    assert_eq!((machine.get("k"), machine.get("after").as_deref()), (None, Some(&b"v"[..])));
    assert_eq!(machine.begin().counter(machine.begin().space(0), Counter::Keys), 1);
    machine.store.flush_now().expect("nothing is broken");
    let machine = machine.kill();
    assert_eq!((machine.get("k"), machine.get("after").as_deref()), (None, Some(&b"v"[..])));
}
