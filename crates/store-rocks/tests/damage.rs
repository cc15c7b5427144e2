//! Planted damage: any defect in the directory becomes an error that names it, never a wrong answer, and rows that are
//! not damaged stay readable.

mod contract;

use contract::{Directory, Flush, Random, rest};
use haypile_store::base::{Base, BaseError, Direction, Lookup, Tier};
use haypile_store_rocks::{OpenError, Options, Rocks};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const ROWS: u32 = 4000;

fn open(directory: &Directory) -> Result<Rocks, OpenError> {
    Rocks::open(directory.path(), Options { cache_bytes: 16 << 20, level0_files: 4, ..Options::default() })
}

fn flush(seed: u64) -> Flush {
    let mut random = Random(seed);
    let mut flush = Flush::default();
    for key in 0..ROWS {
        flush.set(&key.to_be_bytes(), Some((0..300).map(|_| random.next() as u8).collect()));
    }
    flush
}

/// A closed base with one file of rows.
fn filled() -> Directory {
    let directory = Directory::new("damage");
    let base = open(&directory).expect("the base opens");
    flush(1).into_base(&base).expect("a flush");
    base.close();
    directory
}

/// How long RocksDB may take to delete files of before.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the only file whose name begins or ends so, once those of before are deleted.
fn file(directory: &Directory, part: &str) -> PathBuf {
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(part) || name.ends_with(part)
    };
    let since = Instant::now();
    loop {
        let files = std::fs::read_dir(directory.path()).expect("the directory").flatten().map(|entry| entry.path());
        let mut found: Vec<_> = files.filter(named).collect();
        if found.len() == 1 {
            return found.remove(0);
        }
        assert!(since.elapsed() < PATIENCE, "{part}: {found:?}");
        std::thread::yield_now();
    }
}

/// Changes one byte at a share of the file's length.
fn flip(path: &PathBuf, share: f64) {
    let mut bytes = std::fs::read(path).expect("the file");
    let at = (bytes.len() as f64 * share) as usize;
    bytes[at] ^= 0x55;
    std::fs::write(path, bytes).expect("the file");
}

#[test]
fn a_damaged_block_fails_its_rows_and_no_others() {
    let directory = filled();
    let sst = file(&directory, ".sst");
    flip(&sst, 0.3);
    let base = open(&directory).expect("the base opens: the damage is in a block");
    let (mut whole, mut damaged) = (0, 0);
    for key in 0..ROWS {
        match base.get(&key.to_be_bytes(), Tier::Disk) {
            Ok(Lookup::Row(_)) => whole += 1,
            Err(BaseError::Corrupt(why)) => {
                damaged += 1;
                let name = sst.file_name().unwrap_or_default().to_string_lossy();
                assert!(why.contains(&*name), "the file is not named: {why}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!((1..100).contains(&damaged), "{damaged} rows are lost with the block");
    assert_eq!(whole + damaged, ROWS);

    let mut scan = base.scan(b"", &[255], Direction::Forward, Tier::Disk).expect("a scan");
    let error = loop {
        match scan.step() {
            Ok(step) => assert!(matches!(step, haypile_store::base::Step::Row { .. }), "the scan ended as if whole"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, BaseError::Corrupt(_)), "{error:?}");
    assert_eq!(base.background_error(), None);
}

#[test]
fn a_compaction_that_meets_damage_stops_and_says_so() {
    let directory = filled();
    flip(&file(&directory, ".sst"), 0.3);
    let base = open(&directory).expect("the base opens");
    let compacted = base.reclaim_range(b"", &[255]);
    assert!(matches!(compacted, Err(BaseError::Corrupt(_))), "{compacted:?}");
    assert!(matches!(base.background_error(), Some(BaseError::Corrupt(_))));
    // Reads go on; flushes are refused with the reason.
    assert!(matches!(base.get(&0u32.to_be_bytes(), Tier::Disk), Ok(Lookup::Row(_))));
    assert!(matches!(flush(2).into_base(&base), Err(BaseError::Corrupt(_))));
    assert!(base.resume().is_err(), "what is damaged stays damaged");
    assert!(base.background_error().is_some());
}

#[test]
fn damage_that_opening_meets_is_named() {
    // A part of a file's name, the harm done to the file, and the text that must be in the error.
    type Harm = fn(&PathBuf);
    let harms: [(&str, Harm, &str); 5] = [
        ("MANIFEST", |path| flip(path, 0.7), "MANIFEST"),
        ("MANIFEST", |path| std::fs::remove_file(path).expect("the file goes"), "MANIFEST"),
        ("CURRENT", |path| std::fs::write(path, "nothing\n").expect("the file"), "CURRENT"),
        (".sst", |path| std::fs::remove_file(path).expect("the file goes"), ".sst"),
        (
            ".sst",
            |path| {
                let bytes = std::fs::read(path).expect("the file");
                std::fs::write(path, &bytes[..bytes.len() / 2]).expect("the file");
            },
            ".sst",
        ),
    ];
    for (part, harm, named) in harms {
        let directory = filled();
        harm(&file(&directory, part));
        match open(&directory) {
            Err(OpenError::Corrupt(why)) => {
                let place = directory.path().to_str().expect("text");
                assert!(why.contains(named) && why.contains(place), "{part}: {why}");
            }
            Err(other) => panic!("{part}: {other:?}"),
            Ok(_) => panic!("{part}: opened"),
        }
    }
}

#[test]
fn a_damaged_base_heals_when_its_file_does() {
    let directory = filled();
    let sst = file(&directory, ".sst");
    let good = std::fs::read(&sst).expect("the file");
    flip(&sst, 0.3);
    let base = open(&directory).expect("the base opens");
    assert!(base.reclaim_range(b"", &[255]).is_err());
    base.close();
    std::fs::write(&sst, good).expect("the file");
    let base = open(&directory).expect("the base opens");
    assert_eq!(base.background_error(), None);
    flush(2).into_base(&base).expect("a flush");
    assert_eq!(rest(base.scan(b"", &[255], Direction::Forward, Tier::Disk).expect("a scan")).len(), ROWS as usize);
}

/// The looks at the base's files among which one searches for each of them.
const LOOKS: usize = 16;

#[test]
fn a_file_that_goes_while_the_base_is_open_is_missed_until_it_is_back() {
    for part in [".sst", "MANIFEST", "CURRENT"] {
        let directory = filled();
        let base = open(&directory).expect("the base opens");
        (0..LOOKS).for_each(|_| base.look().expect("all files are there"));
        let path = file(&directory, part);
        let away = directory.path().join("away");
        std::fs::rename(&path, &away).expect("the file goes");
        let missed = (0..LOOKS).position(|_| base.look().is_err());
        assert!(missed.is_some(), "{part}: nobody misses it");
        for _ in 0..2 * LOOKS {
            match base.look() {
                Err(BaseError::Failed(why)) => assert!(why.starts_with(path.to_str().expect("text")), "{part}: {why}"),
                other => panic!("{part}: it is forgotten: {other:?}"),
            }
        }
        std::fs::rename(&away, &path).expect("the file comes back");
        base.look().unwrap_or_else(|error| panic!("{part}: it is back: {error:?}"));
    }
}

#[test]
fn a_table_that_goes_and_is_replaced_is_not_missed() {
    let directory = filled();
    let base = open(&directory).expect("the base opens");
    let sst = file(&directory, ".sst");
    let copy = std::fs::read(&sst).expect("the file");
    std::fs::remove_file(&sst).expect("the file goes");
    assert!((0..LOOKS).any(|_| base.look().is_err()));
    // RocksDB still has it open, and a compaction writes its rows anew.
    std::fs::write(&sst, copy).expect("the file comes back");
    flush(2).into_base(&base).expect("a flush");
    base.reclaim_range(b"", &[255]).expect("a compaction");
    (0..2 * LOOKS).for_each(|_| base.look().expect("no live file is gone"));
}
