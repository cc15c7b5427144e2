//! Spools: rows in order from a file of this node, without a record, whatever becomes of the disk and of the reader.

mod machine;

use haypile_store::testing::{TestStore, memory_store, options};
use haypile_store::{Direction, DiskFree, MemoryBase, Refusal, Spool, Stop, Store, Txn, TxnBuffers};
use machine::call;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// More rows than stay in memory.
const MANY: u32 = 30_000;
const VALUE: [u8; 1000] = [7; 1000];

fn begin(store: &Store) -> Txn<'_> {
    store.begin(TxnBuffers::default(), call(haypile_store::Mode::Disk))
}

/// Puts `numbers` under their remainders by a thousand; values begin with the number.
fn put_all(spool: &mut Spool, txn: &Txn<'_>, numbers: impl Iterator<Item = u32>) -> Result<(), Stop> {
    numbers.into_iter().try_for_each(|n| spool.put(txn, &(n % 1000).to_be_bytes(), &[&n.to_be_bytes(), &VALUE]))
}

fn all_of(spool: Spool, txn: &Txn<'_>) -> Vec<u32> {
    let mut rows = spool.into_rows(txn).expect("there is room");
    let mut numbers = Vec::new();
    while let Some(value) = rows.next_row().expect("reads") {
        assert_eq!(value[4..], VALUE);
        numbers.push(u32::from_be_bytes(value[..4].try_into().expect("four bytes")));
    }
    numbers
}

/// Returns the names of the files beside the log's segments, of which one is made ahead whenever it is needed.
fn files_in(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).expect("it is there").map(|entry| entry.expect("reads").file_name());
    // The log makes a spare segment at any time, under another name at first.
    let is_of_log = |name: &String| name.ends_with(".log") || name.ends_with(".new");
    names.map(|name| name.to_string_lossy().into_owned()).filter(|name| !is_of_log(name)).collect()
}

#[test]
fn rows_come_in_the_order_of_their_places_and_equal_ones_as_they_were_put() {
    let store = memory_store();
    for (count, direction) in [10, MANY].into_iter().flat_map(|n| [(n, Direction::Forward), (n, Direction::Backward)]) {
        let txn = begin(&store);
        let mut spool = txn.spool(direction).expect("it is on the pool");
        put_all(&mut spool, &txn, 0..count).expect("there is room");
        assert_eq!(spool.count(), u64::from(count));
        let mut expected: Vec<u32> = (0..count).collect();
        match direction {
            Direction::Forward => expected.sort_by_key(|n| n % 1000),
            Direction::Backward => expected.sort_by_key(|n| std::cmp::Reverse(n % 1000)),
        }
        assert!(all_of(spool, &txn) == expected, "{count} {direction:?}");
    }
}

#[test]
fn a_spool_is_no_record_and_a_file_without_a_name_that_is_open_to_nobody_else() {
    let store = memory_store();
    let dir = store.log_dir();
    let last = store.log().last();
    let txn = begin(&store);
    let mut spool = txn.spool(Direction::Forward).expect("it is on the pool");
    put_all(&mut spool, &txn, 0..MANY).expect("there is room");
    let rows = spool.into_rows(&txn).expect("there is room");
    assert!(rows.bytes() < 2 << 20, "{} bytes are in memory", rows.bytes());
    assert_eq!(files_in(&dir), [""; 0]);
    #[cfg(target_os = "linux")]
    assert_eq!(open_files_without_a_name(&dir), [0o600]);
    drop(rows);
    #[cfg(target_os = "linux")]
    assert_eq!(open_files_without_a_name(&dir), [0; 0]);
    drop(txn);
    assert_eq!(store.log().last(), last);
}

/// Returns the modes of the files that this process has open in a directory which has no name for them.
#[cfg(target_os = "linux")]
fn open_files_without_a_name(dir: &Path) -> Vec<u32> {
    use std::os::unix::fs::PermissionsExt;
    let open = std::fs::read_dir("/proc/self/fd").expect("it is there").filter_map(|entry| Some(entry.ok()?.path()));
    let unnamed = open.filter(|path| {
        std::fs::read_link(path).is_ok_and(|to| to.starts_with(dir) && to.to_string_lossy().ends_with(" (deleted)"))
    });
    unnamed.map(|path| std::fs::metadata(path).expect("it is open").permissions().mode() & 0o777).collect()
}

#[test]
fn on_an_event_loop_there_is_none() {
    let store = memory_store();
    for mode in [haypile_store::Mode::Memory, haypile_store::Mode::Look, haypile_store::Mode::Load] {
        let txn = store.begin(TxnBuffers::default(), call(mode));
        assert_eq!(txn.spool(Direction::Forward).err(), Some(Stop::Long), "{mode:?}");
    }
}

#[test]
fn a_disk_without_room_refuses_and_loses_nothing() {
    let free = Arc::new(AtomicU64::new(u64::MAX));
    let TestDir(dir) = &TestDir::new();
    let mut options = options(dir);
    options.disk_free_min_bytes = 1 << 20;
    let told = free.clone();
    options.disk_free = DiskFree(Arc::new(move || Some(told.load(Ordering::Relaxed))));
    let store = Store::open(options, Arc::new(MemoryBase::default()), |_| ()).expect("a fresh directory opens");
    let last = store.log().last();
    let txn = begin(&store);
    // The disk has room for one run beside the bytes that are kept free.
    free.store(12 << 20, Ordering::Relaxed);
    let mut spool = txn.spool(Direction::Forward).expect("it is on the pool");
    put_all(&mut spool, &txn, 0..10_000).expect("there is room for a run");
    free.store(8 << 20, Ordering::Relaxed);
    let why = put_all(&mut spool, &txn, 0..MANY).expect_err("there is no room");
    let Stop::Refused(Refusal::SpoolFull(why)) = &why else { panic!("{why:?}") };
    assert!(why.starts_with("the disk is full: it has "), "{why}");
    drop(spool);
    let mut spool = txn.spool(Direction::Forward).expect("it is on the pool");
    put_all(&mut spool, &txn, 0..1000).expect("it is all in memory");
    assert_eq!(all_of(spool, &txn).len(), 1000, "what is in memory needs no room on the disk");
    free.store(u64::MAX, Ordering::Relaxed);
    let mut spool = txn.spool(Direction::Forward).expect("it is on the pool");
    put_all(&mut spool, &txn, 0..MANY).expect("there is room");
    assert_eq!(all_of(spool, &txn).len(), MANY as usize);
    drop(txn);
    assert_eq!(store.log().last(), last);
    store.close().expect("it closes");
}

/// A temporary directory with one for the log in it.
struct TestDir(std::path::PathBuf);

impl TestDir {
    fn new() -> TestDir {
        let dir = std::env::temp_dir().join(format!("haypile-spool-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("log")).expect("a temporary directory can be made");
        TestDir(dir)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn who_reads_a_spool_too_slowly_is_sent_away_as_from_a_view() {
    let store: TestStore = memory_store();
    let spooled = || {
        let txn = begin(&store);
        let mut spool = txn.spool(Direction::Forward).expect("it is on the pool");
        put_all(&mut spool, &txn, 0..10).expect("there is room");
        spool.into_rows(&txn).expect("there is room")
    };
    let mut rows = spooled();
    assert_eq!(store.views(), 1);
    assert!(rows.next_row().expect("reads").is_some());
    drop(rows);
    assert_eq!(store.views(), 0);
    store.set_view_age_max(Duration::ZERO);
    let mut rows = spooled();
    let begun = std::time::Instant::now();
    while begun.elapsed().is_zero() {}
    assert_eq!(rows.next_row(), Err("the reply was read too slowly".into()));
}
