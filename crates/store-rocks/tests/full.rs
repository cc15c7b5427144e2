//! A disk that is really full: a small tmpfs.

mod contract;

use contract::{Directory, Flush, Random, all, rest};
use haypile_harness::small_disk::SmallDisk;
use haypile_store::base::{Base, BaseError, Direction, Lookup, Reclaim, Tier};
use haypile_store::row::{Family, ObjectId, Slot, Space, data_row, family_range};
use haypile_store_rocks::{OpenError, Options, Rocks};
use std::path::Path;

fn rows(round: u64, bytes: usize) -> Flush {
    rows_of(round, bytes / 1000, |key| key.to_be_bytes().to_vec())
}

/// Returns so many rows of 1000 bytes each.
fn rows_of(round: u64, count: usize, row: impl Fn(u32) -> Vec<u8>) -> Flush {
    let mut random = Random(round + 1);
    let mut flush = Flush::default();
    for key in 0..count as u32 {
        flush.set(&row(key), Some((0..1000).map(|_| random.next() as u8).collect()));
    }
    flush
}

#[test]
fn a_full_disk_refuses_flushes_keeps_reads_and_takes_flushes_again_when_there_is_room() {
    let place = Directory::new("full");
    let Some(disk) = SmallDisk::mount(place.path(), "size=48m") else { return };
    let options = Options { cache_bytes: 4 << 20, level0_files: 4, ..Options::default() };
    let base = Rocks::open(&disk.0.join("base"), options).expect("the base opens");
    rows(0, 6 << 20).into_base(&base).expect("a flush");
    let filler = disk.0.join("filler");
    std::fs::write(&filler, vec![0; 36 << 20]).expect("a file that takes most of the room");

    let before = all(&base);
    for round in 1..4 {
        let error = rows(round, 12 << 20).into_base(&base).expect_err("there is no room");
        assert!(matches!(error, BaseError::Full(_)), "{error:?}");
        assert_eq!(all(&base), before, "a refused flush has no effect");
        let left = std::fs::read_dir(disk.0.join("base/ingest")).expect("the directory").count();
        assert_eq!(left, 0, "and leaves nothing");
    }
    assert!(matches!(base.get(&5u32.to_be_bytes(), Tier::Disk), Ok(Lookup::Row(_))));
    // A compaction that finds no room may stop background work; it must say that the disk is full.
    let _ = base.reclaim_range(b"", &[255]);
    assert!(matches!(base.background_error(), None | Some(BaseError::Full(_))), "{:?}", base.background_error());
    // Room comes with a flush, which must not wait for the room that a compaction wants.
    println!("background error: {:?}", base.background_error());
    Flush::default().put("small", "row").into_base(&base).expect("there is room for that");
    Flush::default().delete("small").into_base(&base).expect("there is room for that");
    assert!(matches!(base.get(&5u32.to_be_bytes(), Tier::Disk), Ok(Lookup::Row(_))));

    std::fs::remove_file(&filler).expect("the room comes back");
    if base.background_error().is_some() {
        resume(&base);
    }
    rows(9, 12 << 20).into_base(&base).expect("a flush");
    base.reclaim_range(b"", &[255]).expect("a compaction");
    assert_eq!(all(&base).len(), (12 << 20) / 1000);
    base.close();
}

#[test]
fn wherever_the_room_ends_a_flush_is_whole_or_not_there() {
    let place = Directory::new("full");
    let Some(disk) = SmallDisk::mount(place.path(), "size=24m") else { return };
    let directory = disk.0.join("base");
    let options = Options { cache_bytes: 4 << 20, level0_files: 100, ingest_file_bytes: 1, ..Options::default() };
    let filler = disk.0.join("filler");
    let (mut expected, mut unopened, mut refused, mut stopped, mut taken) = (Vec::new(), 0, 0, 0, 0);
    // A page more of room at each step: at first the base cannot even be opened, then the flush fails in the middle of
    // its rows, at its end, with the second file, in the manifest, and at last nowhere.
    for pages in 0..150usize {
        let mut flush = Flush::default();
        let mut random = Random(pages as u64 + 1);
        // The first and the last key are long: the manifest names both, and so needs pages of its own.
        let keys = (0..300u32).map(|key| key.to_be_bytes().to_vec());
        let keys = std::iter::once(vec![0; 6000]).chain(keys.skip(1)).chain([vec![0xfe; 6000]]);
        let rows: Vec<_> = keys.map(|key| (key, (0..1000).map(|_| random.next() as u8).collect::<Vec<u8>>())).collect();
        rows.iter().for_each(|(key, value)| flush.set(key, Some(value.clone())));
        fill(&filler, pages);
        // Opened with the disk full, the manifest gets no room ahead.
        match Rocks::open(&directory, options.clone()) {
            Ok(base) => {
                match flush.into_base(&base) {
                    Ok(()) => (expected, taken) = (rows, taken + 1),
                    Err(error) => {
                        assert!(matches!(error, BaseError::Full(_)), "{pages}: {error:?}");
                        refused += 1;
                    }
                }
                assert!(all(&base) == expected, "{pages}: half a flush, or one that was refused");
                std::fs::remove_file(&filler).expect("the room comes back");
                if base.background_error().is_some() {
                    stopped += 1;
                    resume(&base);
                    Flush::default().put("later", "row").into_base(&base).expect("a flush");
                    Flush::default().delete("later").into_base(&base).expect("a flush");
                }
                base.close();
            }
            Err(error) => {
                assert!(matches!(error, OpenError::Full(_)), "{pages}: {error:?}");
                unopened += 1;
                std::fs::remove_file(&filler).expect("the room comes back");
            }
        }
        let base = Rocks::open(&directory, options.clone()).expect("the base opens");
        assert!(all(&base) == expected, "{pages}: after opening again");
        base.reclaim_range(b"", &[255]).expect("a compaction makes room");
        base.close();
    }
    println!("{unopened} not opened, {refused} refused, {stopped} stopped, {taken} taken");
    assert!(refused > 20 && taken > 5, "{refused} refused, {taken} taken");
}

#[test]
fn what_an_unfinished_flush_left_is_room_for_an_open() {
    let place = Directory::new("full");
    let Some(disk) = SmallDisk::mount(place.path(), "size=24m") else { return };
    let directory = disk.0.join("base");
    let base = Rocks::open(&directory, Options::default()).expect("the base opens");
    rows(0, 1 << 20).into_base(&base).expect("a flush");
    base.close();
    std::fs::write(directory.join("ingest/0.sst"), vec![0; 1 << 20]).expect("there is room");
    fill(&disk.0.join("filler"), 0);
    let base = Rocks::open(&directory, Options::default()).expect("the base opens");
    assert_eq!(all(&base).len(), (1 << 20) / 1000);
    base.close();
}

#[test]
fn tables_that_a_kill_left_are_room_for_an_open() {
    let place = Directory::new("full");
    let Some(disk) = SmallDisk::mount(place.path(), "size=24m") else { return };
    let (directory, filler) = (disk.0.join("base"), disk.0.join("filler"));
    let mut refused_with = Vec::new();
    // Tables that nobody needs go slowly, as they do where there are many.
    let options = Options { removal_bytes_per_s: 1 << 20, ..Options::default() };
    // With the room that the flush's files leave, the base finds room for its manifest, or also for its options.
    let base = Rocks::open(&directory, options.clone()).expect("the base opens");
    rows(0, 1 << 20).into_base(&base).expect("a flush");
    base.close();
    for pages in 1..30 {
        let is_table = |path: &Path| path.extension().is_some_and(|extension| extension == "sst");
        let paths = std::fs::read_dir(&directory).expect("the directory").map(|entry| entry.expect("an entry").path());
        let table = paths.filter(|path| is_table(path)).max().expect("a table");
        std::fs::copy(table, directory.join(format!("{:06}.sst", 900_000 + pages))).expect("there is room");
        std::fs::write(directory.join("ingest/0.sst"), vec![0; pages as usize * 4096]).expect("there is room");
        fill(&filler, 0);
        match Rocks::open(&directory, options.clone()) {
            Ok(base) => base.close(),
            Err(error) => {
                assert!(matches!(error, OpenError::Full(_)), "{pages}: {error:?}");
                refused_with.push(pages);
            }
        }
        std::fs::remove_file(&filler).expect("the room comes back");
        Rocks::open(&directory, options.clone()).expect("the base opens").close();
    }
    println!("refused with {refused_with:?} pages");
    assert!(refused_with.iter().all(|pages| *pages < 3), "{refused_with:?}: room comes when the first tries end");
}

/// RocksDB, left to itself, begins no compaction after one that found the disk full until there is room for all that it
/// read; where only a compaction can make room, that would be never.
#[test]
fn what_is_dead_goes_on_a_disk_with_less_room_than_it_takes() {
    let place = Directory::new("full");
    let Some(disk) = SmallDisk::mount(place.path(), "size=96m") else { return };
    let options = Options { cache_bytes: 4 << 20, ..Options::default() };
    let base = Rocks::open(&disk.0.join("base"), options).expect("the base opens");
    let (live, dead) = (Space(1), Space(2));
    let row = |space, name: u32| data_row(space, Slot(0), ObjectId(1), &name.to_be_bytes());
    // The live rows lie around the dead ones, so that no file goes as a whole. All but the first flush are at level 0.
    for round in 0..3 {
        let mut flush = rows_of(round, 10_000, |name| row(dead, name).to_vec());
        [live, Space(3)].iter().for_each(|space| flush.set(&row(*space, 0), Some(vec![round as u8])));
        flush.into_base(&base).expect("a flush");
    }
    let filler = disk.0.join("filler");
    fill(&filler, 1 << 10);
    let figure = |name| base.figures().into_iter().find(|(other, _)| *other == name).expect("a figure").1;
    for _ in 0..2 {
        let flush = rows_of(9, 1, |name| row(dead, name).to_vec());
        flush.put(row(live, 0), [9]).put(row(Space(3), 0), [9]).into_base(&base).expect("there is room for that");
    }
    let begun = std::time::Instant::now();
    while figure("background_errors") == 0 {
        assert!(begun.elapsed().as_secs() < 60, "a compaction of level 0 begins, and finds no room");
        std::thread::yield_now();
    }
    // From now on none begins by itself for a while.
    base.pace_removals(true);
    std::fs::remove_file(&filler).expect("the room comes back");
    fill(&filler, 4 << 10);
    resume(&base);

    base.set_reclaim(Reclaim { objects_below: 0, dead_spaces: vec![dead] });
    let (from, until) = family_range(Family::Data, dead);
    let begun = std::time::Instant::now();
    while let Err(error) = base.reclaim_range(&from, &until) {
        assert!(matches!(error, BaseError::Full(_)), "{error:?}");
        assert!(begun.elapsed().as_secs() < 60, "what is left is small, and has room: {error:?}");
    }
    let left = rest(base.scan(&from, &until, Direction::Forward, Tier::Disk).expect("a scan")).len();
    assert_eq!(left, 0, "it said that they are gone");
    assert_eq!(all(&base).len(), 2, "what lives stays");

    // One has found room again: others begin.
    base.pace_removals(false);
    for _ in 0..4 {
        Flush::default().put(row(live, 0), [9]).put(row(Space(3), 0), [9]).into_base(&base).expect("there is room");
    }
    let begun = std::time::Instant::now();
    while figure("level0_files") >= 4 {
        assert!(begun.elapsed().as_secs() < 60, "a compaction of level 0 begins");
        std::thread::yield_now();
    }
    base.close();
}

/// Takes all room of the file's disk but some pages.
fn fill(path: &Path, pages: usize) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).expect("a file");
    let mut written = 0;
    while file.write(&[0; 4096]).is_ok_and(|bytes| bytes == 4096) {
        written += 1;
    }
    file.set_len((written - pages.min(written)) as u64 * 4096).expect("the file shrinks");
}

/// Waits until background work goes on: when the base looks for room by itself, that takes some seconds.
fn resume(base: &Rocks) {
    let begun = std::time::Instant::now();
    while let Err(error) = base.resume() {
        assert!(matches!(error, BaseError::Full(_)), "{error:?}");
        assert!(begun.elapsed().as_secs() < 60, "there is room for a minute: {error:?}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(base.background_error(), None);
}
