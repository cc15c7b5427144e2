//! A log that is a copy of another one, record by record: what replication needs of this crate.

mod common;

use std::path::Path;
use std::sync::atomic::Ordering;

use common::*;
use haypile_log::testing::Random;
use haypile_log::*;

const COPY: &str = "/log";

/// Brings a copy to where its leader is synced, through all histories that it has not gone through.
fn feed(leader: &Log, copy: &Log) {
    let histories = leader.histories();
    let shared = histories.shared_through(copy.history(), copy.last());
    assert_eq!(shared, Some(copy.last()), "a copy that read synced records only is never beside its leader");
    let mut ahead: Vec<HistoryStart> =
        histories.starts().iter().rev().take_while(|start| start.history != copy.history()).copied().collect();
    let mut adopt = |through: Option<History>| {
        while through.is_none_or(|history| history != copy.history())
            && let Some(start) = ahead.pop()
        {
            copy.follow_history(start).unwrap();
        }
    };
    let mut reader = leader.reader(copy.last()).through(Through::Synced);
    loop {
        match reader.next().unwrap() {
            Next::Record(record) => {
                adopt(Some(record.history));
                let reserved = copy.reserve_within(record.body.len(), LONG).unwrap();
                copy.append_at(reserved, &record).unwrap();
            }
            Next::UpToDate => return adopt(None),
            Next::Gap(first) => panic!("a gap up to {first}"),
        }
    }
}

fn read_all(log: &Log) -> Vec<Owned> {
    let mut reader = log.reader(Index(0)).through(Through::Written);
    std::iter::from_fn(|| match reader.next().unwrap() {
        Next::Record(record) => Some(Owned { segment: 0, offset: 0, ..Owned::of(record) }),
        Next::UpToDate => None,
        Next::Gap(first) => panic!("a gap up to {first}"),
    })
    .collect()
}

#[test]
fn a_copy_has_the_same_records_at_the_same_indexes_whatever_stops() {
    for seed in 0..setting("CASES", 25) {
        let mut random = Random(seed);
        let mut leader = Rig::new(1000 * seed);
        let mut copy = Rig::new(1000 * seed + 500);
        let mut life = leader.open();
        copy.disk.create_dir_all(Path::new(COPY)).unwrap();
        let copied = life.log.export(&life.log.hold(), life.log.last(), Path::new("/sent"), &|| true);
        assert!(copied.is_err(), "the directory has to be there");
        leader.disk.create_dir_all(Path::new("/sent")).unwrap();
        life.log.export(&life.log.hold(), life.log.last(), Path::new("/sent"), &|| true).unwrap();
        for name in leader.disk.list(Path::new("/sent")).unwrap() {
            copy.disk.replace(&Path::new(COPY).join(&name), leader.disk.read(&Path::new("/sent").join(&name)).unwrap());
        }
        let follow = |rig: &mut Rig| rig.open_with(Index(0), |options| options.follows = true);
        let mut follower = follow(&mut copy);
        let mut term = 0;
        for _ in 0..12 {
            for _ in 0..random.below(40) {
                life.append(&body(random.number(), random.below(3000) as usize));
                if random.chance(30) {
                    life.log.write();
                }
                if random.chance(10) {
                    term += 1;
                    life.log.begin_entry(term, random.below(2) + 2 * term);
                }
            }
            if random.chance(80) {
                life.log.sync_through(life.log.last()).unwrap();
            }
            // More may be synced while the copy reads.
            let synced = life.log.synced();
            feed(&life.log, &follower.log);
            assert!(follower.log.last() >= synced, "seed {seed}");
            if random.chance(50) {
                follower.log.sync_through(follower.log.last()).unwrap();
            }
            follower.log.write();
            follower.wait_until("all is written", |log| log.written() == log.last());
            let (of_leader, of_copy) = (read_all(&life.log), read_all(&follower.log));
            assert_eq!(of_leader[..of_copy.len()], of_copy, "seed {seed}");
            match random.below(4) {
                0 => {
                    follower.log.close().unwrap();
                    follower = follow(&mut copy);
                }
                1 => {
                    copy.disk.crash(random.number());
                    follower = follow(&mut copy);
                }
                2 => {
                    let is_clean = random.chance(50) && life.log.close().is_ok();
                    leader.disk.crash(random.number());
                    life = leader.open();
                    assert_eq!(life.clean, is_clean);
                    term += 1;
                    life.log.begin_entry(term, 2 * term);
                }
                _ => {}
            }
        }
        life.log.sync_through(life.log.last()).unwrap();
        feed(&life.log, &follower.log);
        assert_eq!(life.log.histories(), follower.log.histories(), "seed {seed}");
        // A copy that goes on by itself leaves its leader's history behind the last record that they share.
        let last = follower.log.last();
        let begun = follower.log.begin_history().unwrap();
        assert_eq!(begun.parent(), Some((life.log.history(), last)));
        assert_eq!(follower.sync(b"its own"), last.next());
        life.sync(b"another one");
        let shared = follower.log.histories().shared_through(life.log.history(), life.log.last());
        assert_eq!(shared, Some(last), "seed {seed}");
        copy.disk.crash(1);
        assert_eq!(copy.open().log.history_of(last.next()), Some(begun.history));
    }
}

#[test]
fn a_copy_that_is_opened_to_go_on_by_itself_never_goes_on_in_a_history_of_another_log() {
    let follow = |rig: &mut Rig| rig.open_with(Index(0), |options| options.follows = true);
    let mut rig = Rig::new(5);
    // The log has led before, and stopped cleanly.
    let first = rig.open();
    let next = first.sync(b"its own").next();
    assert_eq!(first.log.close(), Ok(Closed::Marked));
    let history = first.history;
    for has_records in [false, true] {
        let follower = follow(&mut rig);
        assert_eq!(follower.history, history);
        if has_records {
            let record = Record {
                index: next,
                history,
                term: 0,
                entry: 0,
                kind: Kind::Effects,
                time_ms: 7,
                body: b"another one's",
                body_crc: body_crc(b"another one's"),
                segment: 1,
                offset: 4096,
            };
            let reserved = follower.log.reserve(record.body.len()).unwrap();
            follower.log.append_at(reserved, &record).unwrap();
        }
        assert_eq!(follower.log.close(), Ok(Closed::Followed));
    }
    let alone = rig.open();
    let start = alone.log.histories().newest().unwrap();
    assert_eq!((start.parent(), alone.clean), (Some((history, next)), false));
    assert!(alone.sync(b"its own") > next);
    assert_eq!(alone.log.close(), Ok(Closed::Marked));
    // One that was told to go on by itself while it was open stops like any other.
    let follower = follow(&mut rig);
    let begun = follower.log.begin_history().unwrap();
    assert_eq!(follower.log.close(), Ok(Closed::Marked));
    assert_eq!(rig.open().history, begun.history);
}

#[test]
fn a_copy_refuses_a_record_that_does_not_come_next() {
    let life = Rig::new(1).open();
    let take = |index, term, entry| {
        let (history, segment, offset) = (life.history, 1, 4096);
        let (index, kind) = (Index(index), Kind::Effects);
        let (body, body_crc) = (b"", body_crc(b""));
        let record = Record { index, history, term, entry, kind, time_ms: 7, body, body_crc, segment, offset };
        let unsynced_bytes = life.log.stats().unsynced_bytes;
        let taken = life.log.append_at(life.log.reserve(0).unwrap(), &record);
        if taken.is_err() {
            assert_eq!(life.log.stats().unsynced_bytes, unsynced_bytes, "the room is given back");
        }
        taken.map_err(|error| error.to_string())
    };
    assert_eq!(take(2, 3, 5), Ok(()));
    for (index, term, entry) in [(2, 3, 5), (4, 3, 5), (3, 3, 4), (3, 2, 9)] {
        let why = format!("record {index} (term {term}, entry {entry}) does not follow on record 2 (term 3, entry 5)");
        assert_eq!(take(index, term, entry), Err(why));
        assert_eq!(life.log.last(), Index(2));
    }
    assert_eq!([take(3, 3, 5), take(4, 4, 1)], [Ok(()), Ok(())]);
    life.log.sync_through(Index(4)).unwrap();
    let mut reader = life.log.reader(Index(1));
    for expected in [(3, 5), (3, 5), (4, 1)] {
        assert!(matches!(reader.next(), Ok(Next::Record(record)) if (record.term, record.entry) == expected));
    }
}

#[test]
#[should_panic(expected = "the next history forks behind the last record")]
fn a_copy_refuses_a_history_that_forks_elsewhere() {
    let life = Rig::new(2).open();
    let origin = Origin::Fork(life.history, Index(9));
    drop(life.log.follow_history(HistoryStart { history: History([3; 20]), origin }));
}

#[test]
fn times_of_records_do_not_go_back_when_the_clock_does() {
    let mut rig = Rig::new(3);
    let set_clock = |rig: &Rig, now_ms| rig.clock_ms.store(now_ms, Ordering::Relaxed);
    let append = |life: &Life, time_ms| {
        let reserved = life.log.reserve_within(0, LONG).unwrap();
        life.log.append(reserved, Kind::Effects, time_ms, b"", body_crc(b""))
    };
    let times = |life: &Life| read_all(&life.log).iter().map(|record| record.time_ms).collect::<Vec<_>>();
    set_clock(&rig, 1);
    let life = rig.open();
    for time_ms in [50, 30, 90, 10] {
        append(&life, time_ms);
    }
    life.log.sync_through(life.log.last()).unwrap();
    assert_eq!(times(&life), [7, 50, 50, 90, 90]);
    life.log.close().unwrap();
    // The segment that the next run begins with has no records.
    rig.open().log.close().unwrap();
    let life = rig.open_with(Index(0), |options| options.retention.bytes = 0);
    append(&life, 20);
    life.log.sync_through(life.log.last()).unwrap();
    assert_eq!(times(&life), [7, 50, 50, 90, 90, 90]);
    life.log.purge(life.log.last());
    rig.disk.kill();
    let life = rig.open_with(Index(6), |_| {});
    append(&life, 20);
    append(&life, 100);
    let last = append(&life, 20);
    life.log.sync_through(last).unwrap();
    rig.disk.kill();
    let found = rig.open_with(Index(6), |_| {}).found;
    assert_eq!(found.iter().map(|record| record.time_ms).collect::<Vec<_>>(), [90, 100, 100]);
}

#[test]
fn what_is_held_stays_until_the_hold_advances() {
    let mut rig = Rig::new(4);
    let life = rig.open_with(Index(0), |options| options.retention.bytes = 0);
    while life.log.stats().segments < 6 {
        life.sync(&body(life.log.last().0, 5000));
    }
    let last = life.log.last();
    let mut held = life.log.hold_after(Index(20)).expect("it is there");
    life.log.purge(last);
    let first = life.log.stats().first;
    assert!(first > Index(1) && first <= Index(21), "{first}");
    assert!(matches!(life.log.reader(Index(20)).next(), Ok(Next::Record(record)) if record.index == Index(21)));
    assert!(life.log.hold_after(Index(first.0 - 2)).is_none(), "that record is gone");
    drop(life.log.hold_after(Index(first.0 - 1)).expect("the first one that is there comes next"));
    held.advance(Index(40));
    assert_eq!(held.after(), Index(40));
    life.log.purge(last);
    assert!(life.log.stats().first > first && life.log.stats().first <= Index(41));
    drop(held);
    life.log.purge(last);
    assert_eq!(life.log.stats().segments, 1);
}

#[test]
fn a_reader_sees_what_it_chose() {
    for durability in [Durability::Os, Durability::Fsync] {
        let mut rig = Rig::new(5);
        let life = rig.open_with(Index(0), |options| options.durability = durability);
        life.wait_for_spare();
        life.faults.hold_syncs(true);
        let last = life.write(b"two");
        let sees = |through| {
            let mut reader = life.log.reader(Index(1)).through(through);
            matches!(reader.next(), Ok(Next::Record(record)) if record.index == last)
        };
        assert_eq!([sees(Through::Written), sees(Through::Synced)], [true, false]);
        assert_eq!(sees(Through::Durable), durability == Durability::Os);
        life.faults.hold_syncs(false);
        life.log.sync_through(last).unwrap();
        assert!([Through::Written, Through::Synced, Through::Durable].into_iter().all(sees));
    }
}
