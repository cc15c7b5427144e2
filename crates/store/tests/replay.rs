//! What the replay at open has to keep: a base that drops whatever it may meanwhile, flushes that fail, damage.

mod machine;

use haypile_log::Files;
use haypile_store::base::BaseError;
use haypile_store::testing::{FaultBase, options};
use haypile_store::{Counter, MemoryBase, Mode, Space, Store, StoreOptions, TxnBuffers, row};
use machine::{Machine, call};
use std::path::Path;
use std::sync::Arc;

/// What is written stays in the log, however slowly.
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
    let open = |fault: Option<BaseError>| {
        let base = FaultBase::new(machine.rows.clone());
        base.set_fault(fault);
        let mut small = options(Path::new("/"));
        small.memtable_bytes = 1 << 20;
        small.log.files = Arc::new(machine.disk.clone());
        Store::open(small, base, |_| {})
    };
    let error = open(Some(BaseError::Failed("injected".into()))).err().expect("there is no room for all of it");
    assert!(error.0.contains("cannot be flushed: injected"), "{error}");
    let store = open(None).expect("opens");
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
