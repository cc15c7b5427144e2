//! Findings at open: ends, damage, histories, and refusals.

mod common;

use std::path::Path;

use common::*;
use haypile_log::testing::Random;
use haypile_log::*;

fn damage(result: Result<Life, OpenError>) -> Damage {
    match result {
        Err(OpenError::Damage(damage)) => damage,
        Err(error) => panic!("expected damage, not {error}"),
        Ok(life) => panic!("expected damage, found records through {}", life.last),
    }
}

#[test]
fn a_bad_record_that_a_later_group_knew_to_be_synced_is_damage() {
    let mut rig = Rig::new(1);
    let life = rig.open();
    life.sync(b"two");
    life.sync(b"three");
    life.write(b"four: its group says that three is synced");
    rig.disk.kill();
    let intact = rig.open();
    rig.disk.kill();
    let (second, third) = (intact.found[1].clone(), intact.found[2].clone());
    let path = rig.path(1);
    for (name, record, place) in [
        ("its body", &second, RECORD_HEADER_BYTES as u64),
        ("its header", &second, 20),
        ("the last one that counts", &third, RECORD_HEADER_BYTES as u64 + 1),
        ("the header of its group", &third, 0u64.wrapping_sub(GROUP_HEADER_BYTES as u64)),
    ] {
        let before = rig.disk.read(&path).unwrap();
        rig.damage(&path, record.offset.wrapping_add(place));
        rig.keep_only(&path);
        let files = rig.files();
        let found = damage(rig.try_open(Index(0), |_| {}));
        assert_eq!((&found.file, found.index), (&path, record.index), "{name}");
        assert!(
            found.offset <= record.offset && found.offset + GROUP_HEADER_BYTES as u64 >= record.offset,
            "{name}: {found}"
        );
        assert!(found.to_string().contains("synced"), "{name}: {found}");
        assert_eq!(rig.files(), files, "{name}: a damaged log is left as it is");
        rig.disk.replace(&path, before);
    }
}

#[test]
fn a_bad_record_above_the_highest_mark_ends_the_log() {
    let mut rig = Rig::new(2);
    let life = rig.open();
    life.sync(b"two");
    life.write(b"three");
    life.write(b"four");
    rig.disk.kill();
    let three = rig.open().found[2].clone();
    rig.disk.kill();
    rig.keep_only(&rig.path(1));
    rig.damage(&rig.path(1), three.offset + 30);
    let life = rig.open();
    assert_eq!(life.bodies(), [(2, b"two".to_vec())]);
    assert_eq!((life.last, life.clean), (Index(2), false));
    // Records behind the bad place never come back, though they can still be read.
    life.sync(b"new three");
    rig.disk.kill();
    assert_eq!(rig.open().bodies(), [(2, b"two".to_vec()), (3, b"new three".to_vec())]);
}

#[test]
fn a_bad_record_in_a_segment_that_has_a_successor_is_damage() {
    let mut rig = Rig::new(3);
    let life = rig.open();
    for number in 0..100 {
        life.write(&body(number, 3000));
    }
    life.log.sync_through(life.log.last()).unwrap();
    rig.disk.kill();
    let found = rig.open().found;
    let bad = &found[10];
    let path = rig.path(bad.segment);
    let before = rig.disk.read(&path).unwrap();
    rig.damage(&path, bad.offset + 1000);
    let files = rig.files();
    let error = damage(rig.try_open(Index(0), |_| {}));
    assert_eq!((error.file, error.offset, error.index), (path.clone(), bad.offset, bad.index));
    let mut opened = Log::open(rig.options().0, Index(0)).unwrap();
    assert!(matches!(opened.replay.finish(), Err(OpenError::Damage(_))));
    assert!(
        matches!(opened.replay.finish(), Err(OpenError::Begin(_))),
        "a log that could not be read takes no appends"
    );
    drop(opened);
    assert_eq!(rig.files(), files, "what is damaged stays as it is");
    let life = rig.open_with(Index(60), |_| {});
    assert_eq!(life.found[0].index, Index(61), "what the base has need not be readable");
    rig.disk.kill();
    rig.disk.replace(&path, before);
    rig.disk.remove(&rig.path(found[30].segment)).unwrap();
    let missing = damage(rig.try_open(Index(0), |_| {}));
    assert_eq!(missing.index, found.iter().find(|record| record.segment == found[30].segment).unwrap().index);
}

#[test]
fn bytes_of_another_segment_never_parse_as_records() {
    // Two logs with the same records; they differ in what the segments are salted with.
    let write = |seed: u64, records: u64| {
        let mut rig = Rig::new(seed);
        let life = rig.open();
        for number in 0..records {
            life.write(&body(number, 100));
        }
        rig.disk.kill();
        rig
    };
    let (long, mut short) = (write(4, 5), write(5, 3));
    let path = short.path(1);
    let (stale, fresh) = (long.disk.read(&path).unwrap(), short.disk.read(&path).unwrap());
    let end = fresh.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    assert_eq!(&fresh[SEGMENT_HEADER_BYTES as usize..][4..8], &stale[SEGMENT_HEADER_BYTES as usize..][4..8]);
    // The file is as a recycled one would be: behind the new records stand old ones that would continue them.
    let mut recycled = stale.clone();
    recycled[..end].copy_from_slice(&fresh[..end]);
    short.disk.replace(&path, recycled);
    assert_eq!(short.open().bodies().len(), 3);
    // And the other way round, to see that these bytes are records when the salt is theirs.
    let mut rig = Rig::new(6);
    rig.disk.create_dir_all(Path::new(DIR)).unwrap();
    rig.disk.replace(&path, stale);
    assert_eq!(rig.open().bodies().len(), 5);
}

#[test]
fn a_torn_tail_ends_the_log_at_any_byte() {
    let mut rig = Rig::new(7);
    let life = rig.open();
    life.write(b"two");
    life.append(b"three, in a group with four");
    life.write(b"four");
    rig.disk.kill();
    let found = rig.open().found;
    let path = rig.path(1);
    let whole = rig.disk.read(&path).unwrap();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    for cut in SEGMENT_HEADER_BYTES as usize..=end {
        let mut rig = Rig::new(cut as u64);
        rig.disk.create_dir_all(Path::new(DIR)).unwrap();
        let mut torn = whole[..cut].to_vec();
        // No power failure takes back what was allocated and synced.
        rig.disk.replace(&path, torn.clone());
        let short = damage(rig.try_open(Index(0), |_| {}));
        assert!(short.reason.contains("it was cut off") && short.offset == cut as u64, "cut at {cut}: {short}");
        torn.resize(whole.len(), 0);
        let is_whole = |record: &&Owned| {
            let record_end = record.offset as usize + RECORD_HEADER_BYTES + record.body.len();
            torn.get(..record_end) == Some(&whole[..record_end])
        };
        let counting: Vec<_> = found.iter().filter(is_whole).collect();
        let (expected, last) = (counting.iter().map(|record| record.index).collect::<Vec<_>>(), counting.last());
        let last_end =
            last.map_or(SEGMENT_HEADER_BYTES, |last| last.offset + RECORD_HEADER_BYTES as u64 + last.body.len() as u64);
        // All that is left behind the last record is told.
        let left = torn.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
        let last = last.map_or(Index(0), |last| last.index);
        rig.disk.replace(&path, torn);
        let life = rig.open();
        assert_eq!(life.found.iter().map(|record| record.index).collect::<Vec<_>>(), expected, "cut at {cut}");
        let told = life.cut.map(|cut| (cut.file, cut.offset, cut.bytes, cut.last));
        let expected = (left > last_end).then(|| (path.clone(), last_end, left - last_end, last));
        assert_eq!(told, expected, "cut at {cut}");
    }
}

#[test]
fn no_flipped_byte_is_ever_read_as_a_record() {
    let mut rig = Rig::new(8);
    let life = rig.open();
    for number in 0..4 {
        life.sync(&body(number, 20));
    }
    life.log.close().unwrap();
    let path = rig.path(1);
    let whole = rig.disk.read(&path).unwrap();
    let intact = rig.open();
    assert!(intact.clean);
    for at in 0..whole.len() {
        let mut rig = Rig::new(at as u64);
        rig.disk.create_dir_all(Path::new(DIR)).unwrap();
        rig.disk.replace(&path, whole.clone());
        rig.damage(&path, at as u64);
        match rig.try_open(Index(0), |_| {}) {
            Err(OpenError::Damage(_)) => {}
            Err(OpenError::OtherVersion { .. }) => assert!((8..12).contains(&at), "{at}"),
            Err(error) => panic!("{at}: {error}"),
            // The stop was clean: it is known where the log ends.
            Ok(_) => panic!("{at}: the log opened"),
        }
    }
}

#[test]
fn an_unclean_stop_begins_a_history_that_remembers_its_parent_and_the_fork() {
    let mut rig = Rig::new(9);
    let first = rig.open();
    assert_eq!((first.parent, first.clean), (None, false));
    first.write(b"two");
    rig.disk.kill();
    let second = rig.open();
    assert_ne!(second.history, first.history);
    assert_eq!((second.parent, second.last), (Some((first.history, Index(2))), Index(2)));
    second.write(b"three");
    second.log.close().unwrap();
    let third = rig.open();
    assert!(third.clean);
    assert_eq!((third.history, third.parent), (second.history, second.parent), "a clean stop continues the history");
    let histories: Vec<_> = third.found.iter().map(|record| (record.index.0, record.history)).collect();
    let (one, two) = (first.history, second.history);
    assert_eq!(histories, [(1, one), (2, one), (3, two)]);
    let starts = [(one, Origin::Nothing), (two, Origin::Fork(one, Index(2)))];
    let starts = starts.map(|(history, origin)| HistoryStart { history, origin });
    assert_eq!(third.log.histories().starts(), starts);
    assert_eq!(third.log.last(), Index(3));
    // A run that wrote nothing still has to stop cleanly: what it gave out may have been seen elsewhere.
    rig.disk.kill();
    let fourth = rig.open();
    assert!(!fourth.clean);
    assert_eq!(fourth.parent, Some((second.history, Index(3))));
}

#[test]
fn opens_and_stops_take_no_index() {
    for seed in 0..setting("CASES", 30) {
        let mut rig = Rig::new(1000 * seed);
        let mut random = Random(seed);
        let last = rig.open().sync(b"the only one");
        rig.disk.kill();
        let mut is_clean = false;
        let mut names = std::collections::HashSet::new();
        for round in 0..12 {
            let life = rig.open();
            assert_eq!((life.last, life.log.last(), life.clean), (last, last, is_clean), "seed {seed}, round {round}");
            assert_eq!(names.insert(life.history), !is_clean, "a history begins where a stop was not clean");
            assert_eq!(life.bodies(), [(2, b"the only one".to_vec())]);
            is_clean = random.chance(60);
            if is_clean {
                assert_eq!(life.log.close(), Ok(Closed::Marked));
                rig.disk.crash(random.number());
            } else if random.chance(50) {
                rig.disk.kill();
            } else {
                rig.disk.crash(random.number());
            }
        }
        assert!(rig.files().len() <= 4, "what holds nothing goes: {:?}", rig.files());
    }
}

#[test]
fn the_chain_of_histories_outlives_the_segments_that_they_were_in() {
    for seed in 0..setting("CASES", 30) {
        let mut rig = Rig::new(1000 * seed);
        let mut random = Random(seed);
        let (mut chain, mut applied) = (Vec::<HistoryStart>::new(), Index(0));
        for _ in 0..10 {
            let life = rig.open_with(applied, |options| options.retention.bytes = 0);
            let begun = HistoryStart { history: life.history, origin: life.origin() };
            if chain.last() != Some(&begun) {
                chain.push(begun);
            }
            let histories = life.log.histories();
            assert_eq!(histories.starts(), chain, "seed {seed}");
            for (start, next) in chain.iter().zip(&chain[1..]) {
                let known = (start.after().0 + 1..=next.after().0).map(|index| histories.of(Index(index)));
                assert!(known.into_iter().all(|history| history == Some(start.history)), "seed {seed}");
            }
            for number in 0..random.below(30) {
                life.write(&body(number, 3000));
            }
            life.log.sync_through(life.log.last()).unwrap();
            // The base holds all of it: what can go goes, and nothing is read again.
            life.log.purge(life.log.last());
            assert_eq!(life.log.stats().segments, 1);
            if random.chance(30) {
                life.log.close().unwrap();
            }
            applied = life.log.last();
            rig.disk.crash(random.number());
        }
        assert!(chain.len() > 3);
    }
}

#[test]
fn a_log_that_ends_below_the_base_is_refused() {
    let mut rig = Rig::new(10);
    let life = rig.open();
    life.sync(b"two");
    rig.disk.kill();
    let files = rig.files();
    let short = damage(rig.try_open(Index(100), |_| {}));
    assert_eq!((short.index, rig.files()), (Index(3), files));
    assert!(short.reason.contains("the base holds all through record 100"), "{short}");
    let mut empty = Rig::new(11);
    let lost = damage(empty.try_open(Index(7), |_| {}));
    assert_eq!((lost.file.as_path(), lost.index), (Path::new(DIR), Index(1)));
    assert!(lost.reason.contains("the base holds all through record 7"), "{lost}");
}

#[test]
fn only_what_is_above_the_applied_index_is_replayed() {
    let mut rig = Rig::new(12);
    let life = rig.open();
    for number in 2..=200 {
        life.write(&body(number, 1500));
    }
    life.log.sync_through(Index(200)).unwrap();
    rig.disk.kill();
    for applied in [0, 1, 43, 44, 100, 199, 200] {
        let (options, _) = rig.options();
        let mut opened = Log::open(options, Index(applied)).unwrap();
        let (mut next, mut done) = (applied + 1, 0);
        while next <= opened.last.0 {
            assert_eq!(opened.replay.next().unwrap().unwrap().index, Index(next));
            next += 1;
            let progress = opened.replay.progress();
            assert!(progress.done_bytes >= done && progress.done_bytes <= progress.total_bytes);
            done = progress.done_bytes;
        }
        assert_eq!(next, 201);
    }
}

#[test]
fn what_is_not_ours_or_newer_is_refused_and_named() {
    let mut rig = Rig::new(13);
    let life = rig.open();
    life.sync(b"two");
    life.log.close().unwrap();
    let path = rig.path(1);
    let whole = rig.disk.read(&path).unwrap();
    let mut check = |name: &str, change: &dyn Fn(&mut Vec<u8>), text: &str| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        rig.disk.replace(&path, bytes);
        let error = rig.try_open(Index(0), |_| {}).err().expect(name).to_string();
        assert!(error.contains(text) && error.contains("00000000000000000001.log"), "{name}: {error}");
    };
    check("another magic", &|bytes| bytes[0] = b'X', "not a segment of a log");
    check("an empty file", &|bytes| bytes.clear(), "checksum of the segment's header");
    check("a later format", &|bytes| bytes[8] = 3, "by a newer version: ");
    check("an older format", &|bytes| bytes[8] = 1, "by an older version: ");
    check(
        "both versions",
        &|bytes| bytes[8] = 1,
        "has format version 1, and this version of Haypile reads version 2 only",
    );
    rig.disk.replace(&path, whole.clone());
    let other = rig.path(7);
    rig.disk.replace(&other, whole);
    let error = rig.try_open(Index(0), |_| {}).err().unwrap().to_string();
    assert!(error.contains("says that it is segment 1"), "{error}");
    rig.disk.replace(Path::new("/log/notes.txt"), b"ignored".to_vec());
    rig.disk.remove(&other).unwrap();
    assert!(rig.open().clean);
}

#[test]
fn leftovers_of_a_crash_are_swept_when_the_log_begins() {
    let mut rig = Rig::new(14);
    let life = rig.open();
    life.wait_for_spare();
    life.sync(b"two");
    rig.disk.kill();
    rig.disk.replace(Path::new("/log/00000000000000000009.new"), vec![0; 100]);
    let spare = rig.path(2);
    assert!(rig.files().contains(&spare));
    let life = rig.open();
    assert_eq!(life.bodies(), [(2, b"two".to_vec())]);
    life.wait_for_spare();
    assert!(!rig.files().contains(&spare));
    assert!(rig.files().iter().all(|path| path.extension().unwrap() == "log"));
}

#[test]
fn segments_go_when_the_base_and_retention_allow_it() {
    let mut rig = Rig::new(15);
    let life = rig.open_with(Index(0), |options| options.retention = Retention { bytes: 300_000, age_ms: 1000 });
    let mut appended = 1;
    let mut fill = |segments: u64| {
        let before = life.log.stats().segments;
        while life.log.stats().segments < before + segments {
            appended = life.sync(&body(appended, 2000)).0;
        }
        Index(appended)
    };
    let after_three = fill(3);
    fill(5);
    let stats = life.log.stats();
    assert_eq!(stats.segments, 9);
    life.log.purge(Index(0));
    assert_eq!(life.log.stats().segments, 9, "never past the applied index");
    life.log.purge(after_three);
    assert_eq!(life.log.stats().segments, 6, "the fourth holds the applied index and what follows");
    assert!(life.log.stats().first <= after_three);
    life.log.purge(life.log.last());
    assert_eq!(life.log.stats().segments, 4, "within the bytes that are to be retained");
    rig.clock_ms.fetch_add(1001, std::sync::atomic::Ordering::Relaxed);
    life.log.purge(life.log.last());
    assert_eq!(life.log.stats().segments, 1, "older than what is to be retained, but the active one stays");
    assert_eq!(life.log.stats().since_applied_bytes, 0);
    let last = life.sync(b"more");
    rig.disk.crash(5);
    assert_eq!(rig.open_with(Index(last.0 - 1), |_| {}).bodies(), [(last.0, b"more".to_vec())]);
}

#[test]
fn the_newest_synced_record_is_kept_so_that_the_end_is_known() {
    let mut rig = Rig::new(17);
    let first = rig.open();
    first.write(b"two");
    first.log.close().unwrap();
    let life = rig.open_with(Index(0), |options| options.retention.bytes = 0);
    let mut synced = Index(0);
    while life.log.stats().segments < 3 {
        synced = life.log.last();
        life.write(&body(synced.0, 5000));
        life.wait_until("it is written", |log| log.written() == log.last());
    }
    assert_eq!(life.log.synced(), synced);
    life.log.purge(synced);
    assert_eq!(life.log.stats().segments, 2, "the active segment has nothing that survives for certain");
    // Whatever the power loss leaves of the active segment and of the removals, the fork is right.
    for seed in 0..20 {
        let mut copy = Rig::new(1000 + seed);
        copy.disk = rig.disk.copy();
        copy.disk.crash(seed);
        let life = copy.open_with(synced, |_| {});
        assert!(!life.clean, "seed {seed}");
        assert!(life.parent.unwrap().1 >= synced, "seed {seed}: {:?}", life.parent);
    }
}

#[test]
fn a_clean_stop_gives_back_what_was_allocated_ahead() {
    let mut rig = Rig::new(16);
    let life = rig.open();
    life.wait_for_spare();
    life.write(b"two");
    life.log.close().unwrap();
    let files = rig.files();
    assert_eq!(files.len(), 1);
    assert!(rig.disk.read(&files[0]).unwrap().len() < 5000);
    rig.disk.crash(1);
    let life = rig.open();
    assert!(life.clean);
    assert_eq!(life.bodies(), [(2, b"two".to_vec())]);
}

#[test]
fn arbitrary_bytes_are_an_error_or_an_end_and_never_a_panic() {
    let seed = setting("SEED", 1);
    for case in 0..setting("CASES", 3000) {
        let mut random = Random(seed.wrapping_mul(1 << 32) + case);
        let bytes: Vec<u8> = (0..random.below(300)).map(|_| random.number() as u8 >> random.below(8)).collect();
        let result = std::panic::catch_unwind(|| testing::check_bytes(&bytes));
        assert!(result.is_ok(), "SEED={seed} case {case}: {bytes:?}");
    }
}
