//! Knowledge of a log from outside of its directory: a lost log, lost segments and foreign ones are refused.

mod common;

use std::path::{Path, PathBuf};

use common::*;
use haypile_log::testing::Random;
use haypile_log::*;

fn damage(what: &str, result: Result<Life, OpenError>) -> Damage {
    match result {
        Err(OpenError::Damage(damage)) => damage,
        Err(error) => panic!("{what}: expected damage, not {error}"),
        Ok(life) => panic!("{what}: expected damage, found records through {}", life.last),
    }
}

/// A log of some segments; the process was killed a while after the last sync. Also the number of the newest segment.
fn killed(rig: &mut Rig) -> (Life, u64) {
    let life = rig.open();
    while life.log.stats().segments < 4 {
        life.sync(&body(life.log.last().0, 3000));
    }
    life.wait_for_spare();
    let last = life.sync(b"the last one");
    // The sync thread notes the end behind the sync.
    life.wait_until("there is nothing to do", |log| log.synced() == last);
    let newest = segments(rig).len() as u64 - 1;
    rig.disk.kill();
    (life, newest)
}

fn segments(rig: &Rig) -> Vec<PathBuf> {
    rig.files().into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect()
}

/// The files of a rig, to be put back.
fn contents(rig: &Rig) -> Vec<(PathBuf, Vec<u8>)> {
    let files = segments(rig).into_iter().chain([PathBuf::from(END)]);
    files.map(|path| (path.clone(), rig.disk.read(&path).unwrap())).collect()
}

fn put_back(rig: &Rig, contents: &[(PathBuf, Vec<u8>)]) {
    for path in rig.files() {
        rig.disk.remove(&path).unwrap();
    }
    contents.iter().for_each(|(path, bytes)| rig.disk.replace(path, bytes.clone()));
}

#[test]
fn a_lost_log_is_refused_though_the_base_holds_nothing() {
    let mut rig = Rig::new(1);
    let (life, _) = killed(&mut rig);
    for path in rig.files() {
        rig.disk.remove(&path).unwrap();
    }
    let lost = damage("no segments", rig.try_open(Index(0), |_| {}));
    assert_eq!((lost.file.as_path(), lost.index), (Path::new(DIR), Index(1)));
    assert!(lost.reason.contains("there is no segment, and all through record") && life.log.last().0 > 50, "{lost}");
    assert!(rig.files().is_empty(), "nothing was changed");
    assert!(inspect(&rig.options().0, Index(0).into()).is_err(), "who only looks is told, too");
}

#[test]
fn each_lost_or_shortened_segment_is_refused_and_named() {
    let mut rig = Rig::new(2);
    let (life, newest) = killed(&mut rig);
    let whole = contents(&rig);
    for number in 1..=newest {
        let path = rig.path(number);
        let bytes = rig.disk.read(&path).unwrap();
        rig.disk.remove(&path).unwrap();
        let missing = damage("removed", rig.try_open(Index(0), |_| {}));
        assert!(missing.index <= life.log.synced(), "{missing}");
        for length in [0, 50, 4096, 4096 + 40, 20_000] {
            rig.disk.replace(&path, bytes[..length].to_vec());
            let short = damage("shortened", rig.try_open(Index(0), |_| {}));
            assert!(short.index <= life.log.last().next(), "{length}: {short}");
        }
        put_back(&rig, &whole);
    }
    // Only the newest one is left, and then none but the spare.
    (1..newest).for_each(|number| rig.disk.remove(&rig.path(number)).unwrap());
    damage("the first ones", rig.try_open(Index(0), |_| {}));
    rig.disk.remove(&rig.path(newest)).unwrap();
    damage("all but the spare", rig.try_open(Index(0), |_| {}));
    put_back(&rig, &whole);
    assert_eq!(rig.open().last, life.log.last());
}

#[test]
fn a_segment_that_has_only_unsynced_records_is_missed() {
    let mut rig = Rig::new(3);
    let life = rig.open();
    life.wait_for_spare();
    while life.log.stats().segments < 2 {
        life.write(&body(life.log.last().0, 3000));
        life.wait_until("it is written", |log| log.written() == log.last());
    }
    // The newest file is the spare one then.
    life.wait_for_spare();
    let (active, last) = (segments(&rig).len() as u64 - 1, life.log.last());
    assert!(life.log.synced() < last);
    rig.disk.kill();
    let whole = contents(&rig);
    rig.disk.remove(&rig.path(active)).unwrap();
    let missing = damage("removed", rig.try_open(Index(0), |_| {}));
    assert_eq!((missing.file, missing.reason.contains("records were written to it")), (rig.path(active), true));
    put_back(&rig, &whole);
    rig.disk.replace(&rig.path(active), whole[active as usize - 1].1[..4096].to_vec());
    let short = damage("shortened to its header", rig.try_open(Index(0), |_| {}));
    assert_eq!(short.file, rig.path(active));
}

#[test]
fn no_byte_that_was_synced_may_change_once_the_log_was_idle() {
    let mut rig = Rig::new(4);
    let life = rig.open_with(Index(0), |options| options.sync_interval_ms = 1);
    life.write(b"two");
    let last = life.write(b"three");
    while !(life.log.synced() == last && life.log.is_end_durable()) {
        std::thread::yield_now();
    }
    // The note in the end file survives a power failure.
    rig.disk.crash(7);
    let (path, whole) = (rig.path(1), rig.disk.read(&rig.path(1)).unwrap());
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
    for at in SEGMENT_HEADER_BYTES..=end as u64 {
        rig.disk.replace(&path, whole.clone());
        rig.damage(&path, at);
        let flipped = damage("flipped", rig.try_open(Index(0), |_| {}));
        assert!(flipped.offset <= at && flipped.reason.contains("was synced"), "{at}: {flipped}");
    }
}

#[test]
fn unsynced_bytes_that_are_cut_off_are_told() {
    let mut rig = Rig::new(5);
    let life = rig.open();
    life.sync(b"two");
    life.write(b"three");
    life.write(b"four");
    rig.disk.kill();
    let found = contents(&rig);
    let opened = rig.open();
    assert_eq!(opened.cut, None);
    let three = opened.found[2].clone();
    put_back(&rig, &found);
    rig.damage(&rig.path(1), three.offset + 30);
    let opened = rig.open();
    let cut = opened.cut.expect("bytes are left behind record 2");
    let bytes = 2 * (GROUP_HEADER_BYTES + RECORD_HEADER_BYTES) + "three".len() + "four".len();
    let from = three.offset - GROUP_HEADER_BYTES as u64;
    assert_eq!((cut.file.clone(), cut.offset, cut.last), (rig.path(1), from, Index(2)));
    assert_eq!(cut.bytes, bytes as u64, "{cut}");
}

#[test]
fn the_log_of_another_directory_and_an_older_copy_are_refused() {
    let (mut ours, mut theirs) = (Rig::new(60), Rig::new(70));
    let early = ours.open();
    early.sync(b"two");
    let last = early.sync(b"three");
    early.log.close().unwrap();
    let older: Vec<_> = contents(&ours).into_iter().filter(|(path, _)| path.starts_with(DIR)).collect();
    let (life, _) = killed(&mut ours);
    killed(&mut theirs);
    let (whole, foreign) = (contents(&ours), contents(&theirs));
    let end = whole.last().unwrap().clone();
    put_back(&ours, &[&older[..], std::slice::from_ref(&end)].concat());
    let old = damage("an older copy", ours.try_open(Index(0), |_| {}));
    assert_eq!(old.index, last.next());
    let strangers: Vec<_> = foreign.into_iter().filter(|(path, _)| path.starts_with(DIR)).collect();
    put_back(&ours, &[&strangers[..], &[end]].concat());
    let other = damage("another log", ours.try_open(Index(0), |_| {}));
    assert!(other.reason.contains("do not belong together") || other.reason.contains("was synced"), "{other}");
    put_back(&ours, &whole);
    // The base's word counts as much.
    let applied = |index: u64, history| Applied { index: Index(index), history: Some(history) };
    assert!(ours.try_open(applied(2, early.history), |_| {}).is_ok());
    let stranger = damage("a base of another history", ours.try_open(applied(2, theirs.open().history), |_| {}));
    assert!(stranger.reason.contains("and the base has it of history"), "{stranger}");
    assert!(life.log.synced() > last);
}

#[test]
fn the_history_of_a_purged_record_right_before_the_log_is_known() {
    let mut rig = Rig::new(8);
    let first = rig.open();
    let last = first.sync(b"two");
    rig.disk.kill();
    let second = rig.open_with(Index(0), |options| options.retention.bytes = 0);
    second.log.purge(last);
    assert!(!segments(&rig).contains(&rig.path(1)), "the first history is gone");
    second.sync(b"three");
    rig.disk.kill();
    let applied = |history| Applied { index: last, history: Some(history) };
    damage("the wrong one", rig.try_open(applied(second.history), |_| {}));
    assert!(rig.try_open(applied(first.history), |_| {}).is_ok());
}

#[test]
fn an_end_file_of_another_directory_is_refused() {
    let mut rig = Rig::new(9);
    rig.open().log.close().unwrap();
    let other = rig.try_open(Index(0), |options| {
        options.end =
            Some(EndFile { path: END.into(), directory: DirectoryId([6; 16]), is_expected: false, is_written: true });
    });
    let error = other.err().expect("it is refused").to_string();
    assert!(error.contains("files of two directories are mixed: /haypile.end"), "{error}");
}

/// Segments are made, filled, purged and swept, and the machine dies at any moment: nothing that is there is ever
/// missed, and what the log says it has can be read, however much of the past a lost removal has brought back.
#[test]
fn what_was_swept_or_purged_is_not_missed() {
    for seed in 0..setting("CASES", 60) {
        let mut rig = Rig::new(1000 * seed);
        let mut random = Random(seed);
        let mut applied = Index(0);
        for _ in 0..12 {
            let life = rig.open_with(applied, |options| options.retention.bytes = 0);
            let first = life.log.stats().first;
            let mut reader = life.log.reader(Index(first.0.saturating_sub(1)));
            for index in first.0.max(1)..=life.log.last().0 {
                let next = reader.next();
                assert!(
                    matches!(&next, Ok(Next::Record(record)) if record.index == Index(index)),
                    "seed {seed}: record {index} of {first} to {}: {next:?}",
                    life.log.last()
                );
            }
            for _ in 0..random.below(40) {
                life.write(&body(life.log.last().0, 3000));
                if random.below(4) == 0 {
                    life.log.sync_through(life.log.last()).unwrap();
                    applied = Index(applied.0 + random.below(life.log.synced().0 - applied.0 + 1));
                    life.log.purge(applied);
                }
            }
            if random.below(4) == 0 {
                life.log.close().unwrap();
            }
            rig.disk.crash(random.number());
        }
    }
}

#[test]
fn a_history_that_the_base_begins_has_no_parent() {
    let mut rig = Rig::new(11);
    let life = rig.open();
    life.write(b"two");
    let before = life.log.last();
    let start = life.log.begin_loaded_history().unwrap();
    assert_eq!((start.origin, start.parent()), (Origin::Loaded(before), None));
    let (old, history) = (life.history, life.log.history());
    assert_eq!((start.history, life.log.last()), (history, before), "it takes no index");
    assert_ne!(history, old);
    assert_eq!(life.log.history_of(before), Some(history), "what a base names that has taken the data");
    let three = life.sync(b"three");
    assert_eq!(life.log.history_of(three), Some(history));
    rig.disk.crash(1);
    let applied = |index, history| Applied { index, history: Some(history) };
    let open = |rig: &mut Rig, applied| {
        let (options, _) = rig.options();
        Log::open(options, applied).map(|opened| (opened.lacking, opened.parent))
    };
    let (lacking, parent) = open(&mut rig, applied(before, old)).unwrap();
    assert_eq!((lacking, parent), (Some(start), Some((history, three))), "a base from before cannot take record 3");
    for has_it in [applied(before, history), applied(three, history)] {
        assert_eq!(open(&mut rig, has_it).unwrap(), (None, Some((history, three))));
    }
    assert!(open(&mut rig, applied(three, old)).is_err(), "record 3 is not of that history");
    assert_eq!(rig.open().bodies(), [(2, b"two".to_vec()), (3, b"three".to_vec())]);
}

#[test]
fn a_history_for_which_the_disk_has_no_room_is_not_noted() {
    for has_begun in [false, true] {
        let mut rig = Rig::new(13);
        let life = rig.open();
        let last = life.sync(b"two");
        let applied = Applied { index: last, history: Some(life.history) };
        let loaded = has_begun.then(|| life.log.begin_loaded_history().unwrap());
        life.faults.set_full(true);
        let failed = match loaded {
            None => life.log.begin_loaded_history().map(drop),
            Some(loaded) => life.log.abandon_loaded_history(loaded),
        };
        failed.unwrap_err();
        // The log cannot end cleanly either; what it notes has to be true all the same.
        drop(life.log.close());
        life.faults.set_full(false);
        rig.disk.kill();
        let again = rig.open_with(applied, |_| {});
        assert_eq!((again.last, again.sync(b"three")), (last, last.next()), "{has_begun}");
    }
}

#[test]
fn a_note_that_could_not_be_synced_does_not_count_as_durable() {
    let mut rig = Rig::new(15);
    let life = rig.open();
    life.wait_for_spare();
    life.sync(b"two");
    // The mark of a clean stop is synced twice before the note is.
    life.faults.fail_syncs(2, 1);
    assert_eq!(life.log.close(), Ok(Closed::Marked));
    assert!(!life.log.is_end_durable());
}

#[test]
fn a_load_whose_history_cannot_be_begun_takes_no_records() {
    let mut rig = Rig::new(14);
    let life = rig.open();
    let last = life.sync(b"two");
    let applied = Applied { index: last, history: Some(life.history) };
    life.wait_for_spare();
    life.faults.set_full(true);
    life.log.begin_loaded_history().unwrap_err();
    life.faults.set_full(false);
    life.log.retry();
    life.wait_until("writes go on", |log| log.failed().is_none());
    life.sync(b"three");
    rig.disk.kill();
    let (options, _) = rig.options();
    assert_eq!(Log::open(options, applied).unwrap().lacking, None, "it is in a history without the load");
    assert_eq!(rig.open_with(applied, |_| {}).bodies(), [(3, b"three".to_vec())]);
}

#[test]
fn a_load_that_never_came_to_be_leaves_no_trace_in_what_follows() {
    for is_clean in [false, true] {
        let mut rig = Rig::new(12);
        let life = rig.open();
        let last = life.sync(b"two");
        let applied = Applied { index: last, history: Some(life.history) };
        life.log.begin_loaded_history().unwrap();
        if is_clean {
            life.log.close().unwrap();
        }
        rig.disk.kill();
        let again = rig.open_with(applied, |_| {});
        assert_eq!(again.parent, Some((life.history, last)), "it goes on with what the base has");
        again.sync(b"three");
        rig.disk.kill();
        let (options, _) = rig.options();
        assert_eq!(Log::open(options, applied).unwrap().lacking, None);
        assert_eq!(rig.open_with(applied, |_| {}).bodies(), [(3, b"three".to_vec())]);
        // A load is abandoned while the log is open, too.
        let life = rig.open_with(applied, |_| {});
        let (last, history) = (life.log.last(), life.log.history());
        let loaded = life.log.begin_loaded_history().unwrap();
        life.log.abandon_loaded_history(loaded).unwrap();
        assert_eq!(life.log.history_of(last), Some(again.history));
        assert_eq!(life.log.histories().newest().unwrap().parent(), Some((history, last)));
    }
}
