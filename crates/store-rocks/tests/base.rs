//! The contract of the base, on each base there is, and the promises of the one on disk: it survives being closed,
//! copied and left in the middle of a flush.

mod contract;

use contract::{Directory, Flush, Random, all, check_base, keys, read};
use haypile_store::MemoryBase;
use haypile_store::base::{Base, BaseError, Direction, Lookup, Step, Tier};
use haypile_store_rocks::{OpenError, Options, Rocks};
use std::path::{Path, PathBuf};

fn open(directory: &Directory) -> Rocks {
    Rocks::open(directory.path(), Options { cache_bytes: 16 << 20, ..Options::default() }).expect("the base opens")
}

#[test]
fn rocks_keeps_the_contract() {
    let mut directories = Vec::new();
    check_base(|| {
        directories.push(Directory::new("contract"));
        open(&directories[directories.len() - 1])
    });
}

#[test]
fn rocks_keeps_the_contract_with_many_files_per_flush() {
    let mut directories = Vec::new();
    check_base(|| {
        directories.push(Directory::new("contract"));
        let options = Options { cache_bytes: 16 << 20, ingest_file_bytes: 1, level0_files: 2, ..Options::default() };
        Rocks::open(directories[directories.len() - 1].path(), options).expect("the base opens")
    });
}

#[test]
fn the_base_in_memory_keeps_the_contract() {
    check_base(MemoryBase::default);
}

#[test]
fn rows_survive_closing() {
    let directory = Directory::new("survive");
    for round in 0..4u8 {
        let base = open(&directory);
        assert_eq!(all(&base).len(), usize::from(round) * 100);
        let flush = (0..100u8).fold(Flush::default(), |flush, key| flush.put([round, key], [key; 100]));
        flush.into_base(&base).expect("a flush");
        base.close();
        // The files are closed now, although `base` is still there.
    }
    assert_eq!(all(&open(&directory)).len(), 400);
}

#[test]
fn after_closing_nothing_is_read_and_nothing_panics() {
    let directory = Directory::new("closed");
    let base = open(&directory);
    Flush::default().put("a", "1").into_base(&base).expect("a flush");
    base.close();
    base.close();
    assert!(base.get(b"a", Tier::Disk).is_err());
    assert!(base.scan(b"", b"z", Direction::Forward, Tier::Disk).is_err());
    assert!(Flush::default().put("b", "2").into_base(&base).is_err());
    assert_eq!(base.pressure(), Default::default());
    assert!(!base.figures().is_empty());
}

/// Returns the system calls by which this thread has read so far.
fn reads_of_this_thread() -> u64 {
    let counts = std::fs::read_to_string("/proc/thread-self/io");
    let counts = counts.expect("the kernel counts reads: CONFIG_TASK_IO_ACCOUNTING, which distributions have");
    let reads = counts.lines().find_map(|line| line.strip_prefix("syscr: "));
    reads.and_then(|reads| reads.parse().ok()).expect("the count of reads has a line of its own")
}

/// An event loop reads in the tier of memory: of rows, indexes and filters that are not there, at any level, the read
/// says so. Beyond level 0 indexes and filters are not pinned, only the top of those that are partitioned.
#[test]
fn the_tier_of_memory_never_reads_a_file() {
    let directory = Directory::new("memory-tier");
    // The data is far larger than the cache, and so indexes are partitioned; or it is not.
    for (cache_bytes, cold) in [(1 << 20, true), (256 << 20, true), (1 << 20, false)] {
        let open = || {
            let options = Options { cache_bytes, level0_files: 100, ..Options::default() };
            Rocks::open(directory.path(), options).expect("the base opens")
        };
        let base = open();
        let mut random = Random(7);
        for round in 0..3u32 {
            let mut flush = Flush::default();
            for key in 0..20_000u32 {
                flush.set(&(key * 3 + round).to_be_bytes(), Some((0..300).map(|_| random.next() as u8).collect()));
            }
            flush.into_base(&base).expect("a flush");
            if round == 1 {
                base.reclaim_range(b"", &[255]).expect("a compaction");
            }
        }
        let base = if cold {
            base.close();
            open()
        } else {
            base
        };
        let mut found = [0; 3];
        let before = reads_of_this_thread();
        for key in (0..80_000u32).step_by(37) {
            match base.get(&key.to_be_bytes(), Tier::Memory).expect("a read") {
                Lookup::Row(_) => found[0] += 1,
                Lookup::Absent => found[1] += 1,
                Lookup::WouldBlock => found[2] += 1,
            }
            if key % 10 == 0 {
                let (from, until) = (key.to_be_bytes(), (key + 50).to_be_bytes());
                for direction in [Direction::Forward, Direction::Backward] {
                    let mut cursor = base.scan(&from, &until, direction, Tier::Memory).expect("a read");
                    while let Step::Row { .. } = cursor.step().expect("a read") {}
                }
            }
        }
        let after = reads_of_this_thread();
        // Reading the count is a read, too.
        let own = reads_of_this_thread() - after;
        println!("cache {cache_bytes}, cold {cold}: {found:?} rows, absent, blocked");
        assert_eq!(after - before, own, "nothing else was read");
        assert!(found[2] > 100, "{found:?}: not all of it is in memory");
        (0..60_000u32).step_by(600).for_each(|key| drop(read(&base, &key.to_be_bytes())));
        assert!(reads_of_this_thread() > after + 10 * own, "the disk is read there");
        base.close();
    }
}

#[test]
fn a_directory_is_open_once() {
    let directory = Directory::new("once");
    let first = open(&directory);
    let second = Rocks::open(directory.path(), Options::default());
    assert!(matches!(second, Err(OpenError::Busy(_))), "{:?}", second.err());
    first.close();
    open(&directory);
}

#[test]
fn a_checkpoint_is_a_base_of_its_own() {
    let directory = Directory::new("original");
    let base = open(&directory);
    let flush = (0..100u8).fold(Flush::default(), |flush, key| flush.put([key], [key; 100]));
    flush.into_base(&base).expect("a flush");
    let copies = Directory::new("copies");
    let copy = copies.path().join("copy");
    base.checkpoint(&copy).expect("a checkpoint");
    assert!(base.checkpoint(&copy).is_err(), "an existing directory is not written over");
    Flush::default().put([50], "later").delete([51]).into_base(&base).expect("a flush");
    let copied = Rocks::open(&copy, Options::default()).expect("the copy opens");
    assert_eq!(all(&copied).len(), 100);
    assert_eq!(read(&copied, &[50]), Some(vec![50; 100]));
    Flush::default().put([52], "only here").into_base(&copied).expect("a flush");
    assert_eq!(read(&base, &[52]), Some(vec![52; 100]));
}

#[test]
fn what_an_unfinished_flush_left_is_removed_at_open() {
    let directory = Directory::new("leftovers");
    let base = open(&directory);
    Flush::default().put("a", "1").into_base(&base).expect("a flush");
    assert_eq!(files(&directory, "ingest"), 0, "a finished flush leaves nothing");
    base.close();
    std::fs::write(directory.path().join("ingest/0.sst"), b"half a file").expect("a file");
    let base = open(&directory);
    assert_eq!(files(&directory, "ingest"), 0);
    assert_eq!(keys(&all(&base)), [b"a"]);
}

#[test]
fn a_flush_that_fails_has_no_effect_and_leaves_nothing() {
    let directory = Directory::new("failed");
    let options = Options { ingest_file_bytes: 64 << 10, ..Options::default() };
    let base = Rocks::open(directory.path(), options).expect("the base opens");
    Flush::default().put("a", "1").into_base(&base).expect("a flush");
    let mut many = (0..250u8).fold(Flush::default(), |flush, key| flush.put([key], [key; 9000]));
    many.set(b"a", Some(b"2".to_vec()));
    // A name that stands in the way of the fourth file: the first three are written and must go again.
    let in_the_way = directory.path().join("ingest/3.sst");
    std::fs::create_dir(&in_the_way).expect("a directory");
    let failed = many.clone().into_base(&base);
    assert!(failed.is_err());
    assert_eq!(all(&base), [(b"a".to_vec(), b"1".to_vec())]);
    assert_eq!(files(&directory, "ingest"), 1, "only what stood in the way");
    std::fs::remove_dir(&in_the_way).expect("the directory goes");
    many.into_base(&base).expect("the same flush, tried again");
    assert_eq!(all(&base).len(), 250);
    assert_eq!(files(&directory, "ingest"), 0);
}

#[test]
fn a_staged_name_that_a_file_of_the_base_has_still_is_not_written_to() {
    let directory = Directory::new("linked");
    let base = open(&directory);
    let rows = |text: &str| (0..100u8).fold(Flush::default(), |flush, key| flush.put([key], text.repeat(100)));
    rows("old").into_base(&base).expect("a flush");
    // As a removal that failed behind the ingestion leaves it.
    let is_sst = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "sst");
    let entries = std::fs::read_dir(directory.path()).expect("the directory");
    let live: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).filter(is_sst).collect();
    let [live] = &live[..] else { panic!("one flush makes one file: {live:?}") };
    let before = std::fs::read(live).expect("the file");
    std::fs::hard_link(live, directory.path().join("ingest/0.sst")).expect("a link");
    Flush::default().put([100], "new").into_base(&base).expect("the next flush");
    assert!(std::fs::read(live).expect("the file") == before, "the base's file is as it was");
    assert_eq!(files(&directory, "ingest"), 0);
    base.close();
    assert_eq!(all(&open(&directory)).len(), 101);
}

#[test]
fn rows_out_of_order_are_refused() {
    struct Twice(u8);
    impl haypile_store::base::Rows for Twice {
        fn next_row(&mut self) -> Result<Option<(&[u8], Option<&[u8]>)>, BaseError> {
            self.0 += 1;
            Ok((self.0 < 4).then_some((b"same", Some(b"v"))))
        }
    }
    let directory = Directory::new("order");
    let base = open(&directory);
    assert!(base.ingest(&mut Twice(0)).is_err());
    assert_eq!(all(&base), []);
    assert_eq!(files(&directory, "ingest"), 0);
}

#[test]
fn a_cold_row_is_not_read_from_disk_unasked() {
    let directory = Directory::new("cold");
    let base = open(&directory);
    let mut random = Random(1);
    let mut flush = Flush::default();
    for key in 0..3000u32 {
        flush.set(&key.to_be_bytes(), Some((0..500).map(|_| random.next() as u8).collect()));
    }
    flush.into_base(&base).expect("a flush");
    base.close();
    let base = open(&directory);
    let key = 1500u32.to_be_bytes();
    assert_eq!(base.get(&key, Tier::Memory), Ok(Lookup::WouldBlock));
    assert_eq!(base.scan(&key, &[255], Direction::Forward, Tier::Memory).expect("a scan").step(), Ok(Step::WouldBlock));
    let row = base.get(&key, Tier::Disk).expect("a read");
    assert!(matches!(row, Lookup::Row(_)));
    assert_eq!(base.get(&key, Tier::Memory), Ok(row));
    assert!(matches!(
        base.scan(&key, &[255], Direction::Forward, Tier::Memory).expect("a scan").step(),
        Ok(Step::Row { .. })
    ));
}

#[test]
fn a_view_outlives_closing() {
    let directory = Directory::new("view");
    let base = open(&directory);
    let flush = (0..100u8).fold(Flush::default(), |flush, key| flush.put([key], [key; 100]));
    flush.into_base(&base).expect("a flush");
    let view = base.view(b"", &[255], Direction::Forward).expect("a view");
    let reader = std::thread::spawn(move || contract::rest(view).len());
    base.close();
    assert_eq!(reader.join().expect("the thread ends"), 100);
}

#[test]
fn the_block_cache_keeps_its_size() {
    let directory = Directory::new("cache");
    let base = open(&directory);
    let mut random = Random(1);
    let mut flush = Flush::default();
    for key in 0..40_000u32 {
        flush.set(&key.to_be_bytes(), Some((0..800).map(|_| random.next() as u8).collect()));
    }
    flush.into_base(&base).expect("a flush");
    let cached =
        |base: &Rocks| base.figures().iter().find(|(name, _)| *name == "block_cache_bytes").expect("a figure").1;
    for (bytes, round) in [(16 << 20, 0), (8 << 20, 1), (24 << 20, 2)] {
        base.set_cache_bytes(bytes);
        for key in 0..40_000u32 {
            assert!(read(&base, &(key ^ round).to_be_bytes()).is_some());
        }
        assert!(cached(&base) <= bytes + bytes / 10, "{} of {bytes}", cached(&base));
        assert!(cached(&base) >= bytes / 2, "{} of {bytes}", cached(&base));
    }
}

#[test]
fn level_0_is_compacted_later_while_flushes_follow_each_other() {
    let directory = Directory::new("busy");
    let base = open(&directory);
    let flush = |round: u8| {
        let rows = (0..100u8).fold(Flush::default(), |flush, key| flush.put([key, round], [key; 100]));
        rows.into_base(&base).expect("a flush");
    };
    base.set_busy(true);
    (0..8).for_each(flush);
    // The first one lies lower: nothing was there.
    assert_eq!(base.pressure().level0_files, 7);
    assert_eq!(base.pressure().level0_left, std::time::Duration::ZERO);
    base.set_busy(false);
    let since = std::time::Instant::now();
    while base.pressure().level0_files >= 4 {
        assert!(since.elapsed().as_secs() < 60, "{:?}", base.pressure());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(all(&base).len(), 800);
    assert_eq!(base.pressure().level0_left, std::time::Duration::ZERO, "a small one says nothing of others");
}

#[test]
fn direct_reads_open_the_files_past_the_page_cache() {
    let direct = rustix::fs::OFlags::DIRECT.bits();
    let directory = Directory::new("direct");
    let base = open(&directory);
    let flush = (0..100u8).fold(Flush::default(), |flush, key| flush.put([key], [key; 100]));
    flush.into_base(&base).expect("a flush");
    base.close();
    for direct_reads in [false, true] {
        let base = match Rocks::open(directory.path(), Options { direct_reads, ..Options::default() }) {
            Err(error) if direct_reads && error.to_string().contains("has no direct I/O") => return,
            opened => opened.expect("it opens"),
        };
        let flags: Vec<u32> = open_files(&directory, ".sst").collect();
        assert!(!flags.is_empty());
        assert!(flags.iter().all(|flags| (flags & direct != 0) == direct_reads), "{direct_reads}: {flags:?}");
        assert_eq!(all(&base).len(), 100);
        base.close();
    }
}

/// Returns the flags of the files under `directory` that this process has open.
fn open_files(directory: &Directory, suffix: &str) -> impl Iterator<Item = u32> {
    let fds = std::fs::read_dir("/proc/self/fd").expect("Linux").flatten();
    fds.filter_map(move |fd| {
        let path = std::fs::read_link(fd.path()).ok()?;
        let ours = path.starts_with(directory.path()) && path.to_string_lossy().ends_with(suffix);
        let info = ours.then(|| Path::new("/proc/self/fdinfo").join(fd.file_name()))?;
        let text = std::fs::read_to_string(info).ok()?;
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
        u32::from_str_radix(flags.trim(), 8).ok()
    })
}

#[test]
fn compactions_let_others_go_first() {
    let directory = Directory::new("nice");
    let base = open(&directory);
    for value in ["first", "second"] {
        Flush::default().put("a", value).into_base(&base).expect("a flush");
    }
    base.reclaim_range(b"", &[255]).expect("a compaction");
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
    // Field 19, counted behind the name, which may hold blanks. A thread that has not compacted yet has niceness 0.
    let niceness = |stat: String| stat.rsplit_once(')')?.1.split_whitespace().nth(16)?.parse::<i32>().ok();
    let found: Vec<_> = threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok())
        .filter(|stat| stat.contains("(rocksdb:low)"))
        .map(niceness)
        .collect();
    assert!(found.contains(&Some(15)), "{found:?}");
}

#[test]
fn files_that_nobody_needs_go_slowly_unless_space_is_short() {
    let directory = Directory::new("trash");
    let options = |removal_bytes_per_s| Options { removal_bytes_per_s, ..Options::default() };
    let open = |rate| Rocks::open(directory.path(), options(rate)).expect("the base opens");
    let figure = |base: &Rocks| base.figures().iter().find(|(name, _)| *name == "trash_bytes").expect("a figure").1;
    // Each compaction of all leaves the files that it read.
    let make_trash = |base: &Rocks| {
        for round in 0..4 {
            let mut random = Random(round);
            let mut flush = Flush::default();
            for key in 0..500u32 {
                flush.set(&key.to_be_bytes(), Some((0..1000).map(|_| random.next() as u8).collect()));
            }
            flush.into_base(base).expect("a flush");
        }
        base.reclaim_range(b"", &[255]).expect("a compaction");
    };
    let gone = |base: &Rocks| {
        let since = std::time::Instant::now();
        while figure(base) > 0 || trash(&directory) > 0 {
            assert!(since.elapsed().as_secs() < 60, "{} bytes are left", figure(base));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    // Two or three seconds for each file; a change of pace shows at the next one.
    let base = open(200_000);
    make_trash(&base);
    base.pace_removals(false);
    assert!(figure(&base) > 0 && trash(&directory) > 0, "what takes seconds is not over");
    let copies = Directory::new("copies-of-trash");
    let copy = copies.path().join("copy");
    base.checkpoint(&copy).expect("a checkpoint");
    assert_eq!(all(&Rocks::open(&copy, Options::default()).expect("the copy opens")).len(), 500);
    base.pace_removals(true);
    gone(&base);
    base.pace_removals(false);
    make_trash(&base);
    assert!(trash(&directory) > 0);
    base.close();
    // The trash that is left then is removed after the next open.
    let base = open(1 << 30);
    gone(&base);
    assert_eq!(all(&base).len(), 500);
}

fn trash(directory: &Directory) -> usize {
    let names = std::fs::read_dir(directory.path()).expect("the directory").flatten().map(|file| file.file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".trash")).count()
}

/// Writing takes at least so long, on any machine: no test of how fast it is.
#[test]
fn compactions_write_no_faster_than_they_may() {
    let directory = Directory::new("rate");
    let options = Options { compaction_bytes_per_s: 1 << 20, ..Options::default() };
    let base = Rocks::open(directory.path(), options).expect("the base opens");
    let mut random = Random(1);
    let mut flush = Flush::default();
    for key in 0..1000u32 {
        flush.set(&key.to_be_bytes(), Some((0..1000).map(|_| random.next() as u8).collect()));
    }
    flush.into_base(&base).expect("a flush, which no bound holds up");
    let since = std::time::Instant::now();
    base.reclaim_range(b"", &[255]).expect("a compaction");
    assert!(since.elapsed().as_millis() > 500, "1 MB in {:?}", since.elapsed());
    assert_eq!(all(&base).len(), 1000);
}

#[test]
fn indexes_are_partitioned_when_they_outgrow_the_cache() {
    let directory = Directory::new("layout");
    let options = Options { cache_bytes: 1 << 20, ..Options::default() };
    let base = Rocks::open(directory.path(), options.clone()).expect("the base opens");
    let figure = |base: &Rocks, name| base.figures().iter().find(|(figure, _)| *figure == name).expect("a figure").1;
    let mut random = Random(1);
    let mut flush = Flush::default();
    for key in 0..30_000u32 {
        flush.set(&key.to_be_bytes(), Some((0..500).map(|_| random.next() as u8).collect()));
    }
    assert_eq!(figure(&base, "index_partitions"), 0);
    flush.into_base(&base).expect("a flush");
    assert_eq!(figure(&base, "index_partitions"), 1);
    base.reclaim_range(b"", &[255]).expect("a compaction, which writes partitions");
    let check = |base: &Rocks| {
        for key in (0..30_000u32).step_by(97) {
            let row = key.to_be_bytes();
            assert_eq!(read(base, &row).map(|value| value.len()), Some(500));
            assert!(matches!(base.get(&row, Tier::Memory), Ok(Lookup::Row(_))), "what was just read is in the cache");
            assert_eq!(read(base, &[&row[..], b"absent"].concat()), None);
        }
        assert!(figure(base, "block_cache_bytes") < 2 << 20, "it is the same cache");
    };
    check(&base);
    base.close();
    let base = Rocks::open(directory.path(), options).expect("the base opens");
    assert_eq!(figure(&base, "index_partitions"), 1);
    check(&base);
    let flush = (0..30_000u32).fold(Flush::default(), |flush, key| flush.delete(key.to_be_bytes()));
    flush.into_base(&base).expect("a flush");
    base.reclaim_range(b"", &[255]).expect("a compaction");
    Flush::default().put("a", "1").into_base(&base).expect("a flush");
    assert_eq!(figure(&base, "index_partitions"), 0);
}

fn files(directory: &Directory, under: &str) -> usize {
    std::fs::read_dir(directory.path().join(under)).expect("the directory").count()
}
