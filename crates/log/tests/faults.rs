//! Failed and short writes, failed syncs, crashes at any byte, power loss.

mod common;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;

use common::*;
use haypile_log::testing::{FaultFiles, Random};
use haypile_log::*;

fn expected(range: std::ops::RangeInclusive<u64>) -> Vec<(u64, Vec<u8>)> {
    range.map(|index| (index, body(index, 100))).collect()
}

fn write_through(life: &Life, last: u64) {
    while life.log.last().0 < last {
        life.write(&body(life.log.last().0 + 1, 100));
    }
}

#[test]
fn after_a_failed_sync_the_records_are_written_again_to_a_segment_that_supersedes() {
    for seed in 0..30 {
        let mut rig = Rig::new(100 + seed);
        let life = rig.open();
        life.wait_for_spare();
        write_through(&life, 10);
        life.log.sync_through(Index(10)).unwrap();
        write_through(&life, 20);
        // The kernel forgets what it could not sync: a second sync of the same file would succeed and mean nothing.
        rig.disk.fail_syncs(1);
        life.log.sync_through(Index(20)).unwrap();
        let stats = life.log.stats();
        assert_eq!((stats.recoveries, stats.segments), (2, 2));
        assert!(stats.last_failure.unwrap().contains("sync failed"));
        write_through(&life, 30);
        life.log.sync_through(Index(25)).unwrap();
        rig.disk.crash(seed);
        let life = rig.open();
        let bodies = life.bodies();
        assert!(bodies.len() >= 24, "seed {seed}: {} records", bodies.len());
        assert_eq!(bodies, expected(2..=life.last.0), "seed {seed}");
        assert!(life.found[..10].iter().all(|record| record.segment == 1));
        assert!(life.found[10..].iter().all(|record| record.segment != 1), "the old segment counts through 10 only");
    }
}

#[test]
fn a_failed_sync_loses_nothing_that_was_written_when_the_process_dies_at_once() {
    // In every place of the recovery, because it counts bytes.
    for bytes in (0..3000).step_by(37) {
        let mut rig = Rig::new(200 + bytes);
        let life = rig.open();
        life.wait_for_spare();
        write_through(&life, 12);
        assert_eq!(life.log.written(), Index(12));
        life.faults.fail_syncs(0, 1);
        life.faults.crash_after(bytes);
        let result = life.log.sync_through(Index(12));
        assert!(result.is_ok() || life.faults.crashed());
        drop(life);
        rig.disk.kill();
        assert_eq!(rig.open().bodies(), expected(2..=12), "crash after {bytes} bytes");
    }
}

#[test]
fn when_the_new_segment_fails_too_writes_stop_and_reads_go_on_until_it_works_again() {
    let mut rig = Rig::new(2);
    let life = rig.open_with(Index(0), |options| options.durability = Durability::Fsync);
    write_through(&life, 10);
    life.log.sync_through(Index(10)).unwrap();
    life.wait_for_spare();
    life.faults.fail_syncs(0, u64::MAX / 2);
    write_through(&life, 11);
    let error = life.log.sync_through(Index(11)).unwrap_err().to_string();
    assert!(error.contains("cannot sync /log/00000000000000000001.log"), "{error}");
    assert!(error.contains("then cannot make segment"), "{error}");
    assert_eq!(life.log.failed().unwrap(), error.strip_prefix("the log cannot be synced: ").unwrap());
    assert!(matches!(life.log.reserve(1), Err(AppendError::Failed(_))));
    assert_eq!(life.log.durable(), Index(10));
    let mut reader = life.log.reader(Index(0));
    for _ in 1..=10 {
        assert!(matches!(reader.next(), Ok(Next::Record(_))));
    }
    assert!(matches!(reader.next(), Ok(Next::UpToDate)));
    life.faults.fail_syncs(0, 0);
    life.log.retry();
    life.wait_until("writes go on", |log| log.failed().is_none() && log.durable() == Index(11));
    write_through(&life, 20);
    life.log.sync_through(Index(20)).unwrap();
    for index in 11..=20 {
        assert!(matches!(reader.next(), Ok(Next::Record(record)) if record.index == Index(index)));
    }
    rig.disk.crash(2);
    assert_eq!(rig.open().bodies(), expected(2..=20));
}

#[test]
fn a_failed_log_is_tried_again_by_itself() {
    let mut rig = Rig::new(6);
    let life = rig.open();
    // Nothing is wrong, and the thread that tries again sleeps without a deadline.
    life.wait_for_spare();
    write_through(&life, 10);
    life.faults.fail_syncs(0, u64::MAX / 2);
    life.log.sync_through(Index(10)).unwrap_err();
    life.faults.fail_syncs(0, 0);
    life.wait_until("writes go on", |log| log.failed().is_none());
    write_through(&life, 20);
    life.log.sync_through(Index(20)).unwrap();
    rig.disk.crash(6);
    assert_eq!(rig.open().bodies(), expected(2..=20));
}

#[test]
fn a_failed_write_goes_to_a_new_segment_and_a_short_one_goes_on() {
    let mut rig = Rig::new(3);
    let life = rig.open();
    life.wait_for_spare();
    life.faults.short_writes(Some(7));
    write_through(&life, 5);
    life.faults.short_writes(None);
    life.faults.fail_writes(0, 1, ErrorKind::Other);
    let index = life.append(&body(6, 100));
    assert_eq!(life.log.write(), Index(5), "the write has failed");
    life.wait_until("it is written elsewhere", |log| log.written() == index);
    assert_eq!(life.log.stats().recoveries, 2);
    write_through(&life, 9);
    rig.disk.kill();
    assert_eq!(rig.open().bodies(), expected(2..=9));
}

#[test]
fn nothing_is_reserved_while_the_new_segment_is_made() {
    let mut rig = Rig::new(8);
    let life = rig.open();
    life.wait_for_spare();
    let index = life.write(&body(2, 100));
    life.faults.fail_syncs(0, 1);
    life.faults.hold_writes(true);
    std::thread::scope(|scope| {
        let syncs = scope.spawn(|| life.log.sync_through(index));
        life.faults.wait_for_held();
        assert_eq!(life.log.reserve(1), Err(AppendError::Busy));
        life.faults.hold_writes(false);
        syncs.join().unwrap().unwrap();
    });
    drop(life.log.reserve_within(1, LONG).unwrap());
}

#[test]
fn a_write_that_finds_the_disk_full_is_told_as_such() {
    let mut rig = Rig::new(4);
    let life = rig.open();
    life.wait_for_spare();
    life.faults.set_full(true);
    life.faults.fail_writes(0, 1, ErrorKind::StorageFull);
    let index = life.append(&body(2, 100));
    life.log.write();
    life.wait_until("it has failed", |log| log.failed().is_some());
    assert!(matches!(life.log.reserve(1), Err(AppendError::Full(_))));
    life.faults.set_full(false);
    life.log.retry();
    life.wait_until("it is durable", |log| log.durable() == index);
    assert_eq!(life.log.failed(), None);
    rig.disk.kill();
    assert_eq!(rig.open().bodies(), expected(2..=2));
}

#[test]
fn segments_are_short_where_the_disk_is() {
    const LARGE: u64 = 8 << 20;
    let cases = [
        ("there is room", u64::MAX, None, LARGE),
        ("all other room is to stay", 1 << 20, None, 1 << 20),
        ("the disk says otherwise", u64::MAX, Some(2 << 20), 1 << 20),
        ("there is next to nothing", 0, Some(200 << 10), 64 << 10),
    ];
    for (what, room, allocation_max, expected) in cases {
        let mut rig = Rig::new(9);
        let (mut options, faults) = rig.options();
        options.segment_bytes = LARGE;
        options.room = Arc::new(move || Some(room));
        faults.limit_allocations(allocation_max);
        let life = Life::open(options, faults, Index(0)).unwrap();
        life.wait_for_spare();
        let bytes = life.log.stats().bytes;
        assert!((2 * expected..2 * expected + 8192).contains(&bytes), "{what}: {bytes}");
        // The last one is longer than the shortest segments.
        let bodies = [body(2, 10), body(3, 30_000), body(4, 30_000), body(5, 90_000)];
        bodies.iter().for_each(|body| _ = life.sync(body));
        drop(life);
        rig.disk.kill();
        let found: Vec<_> = rig.open().bodies().into_iter().map(|(_, body)| body).collect();
        assert_eq!(found, bodies, "{what}");
    }
}

#[test]
fn a_close_is_an_error_only_where_something_durable_may_be_lost() {
    let mut rig = Rig::new(10);
    rig.open().sync(b"first");
    rig.disk.kill();
    let (options, faults) = rig.options();
    faults.set_full(true);
    let life = Life::open(options, faults, Index(0)).unwrap();
    assert!(life.log.failed().is_some(), "not even the first record is written");
    assert!(matches!(life.log.close(), Ok(Closed::Unmarked(_))));
    drop(life);
    rig.disk.kill();

    let life = rig.open();
    assert!(!life.clean);
    assert_eq!(life.bodies().len(), 1);
    life.wait_for_spare();
    let index = life.write(b"second");
    assert_eq!(life.log.durable(), index, "handed to the operating system");
    life.faults.fail_syncs(0, u64::MAX / 2);
    life.log.close().unwrap_err();
}

#[test]
fn a_failure_at_the_beginning_is_an_error_of_open() {
    let mut rig = Rig::new(5);
    let error = {
        let (options, faults) = rig.options();
        faults.fail_syncs(0, 1);
        Life::open(options, faults, Index(0)).err().unwrap()
    };
    assert!(matches!(&error, OpenError::Begin(text) if text.contains("sync failed")), "{error}");
    rig.open().sync(b"the next attempt works");
}

#[test]
fn what_could_not_be_synced_before_the_process_died_is_written_again_at_open() {
    for seed in 0..30 {
        let mut rig = Rig::new(300 + seed);
        let life = rig.open();
        life.wait_for_spare();
        write_through(&life, 12);
        rig.disk.fail_syncs(1);
        life.faults.set_full(true);
        life.log.sync_through(Index(12)).unwrap_err();
        rig.disk.kill();
        let life = rig.open();
        assert_eq!(life.bodies(), expected(2..=12));
        rig.disk.crash(seed);
        assert_eq!(rig.open().bodies(), expected(2..=12), "seed {seed}");
    }
}

#[test]
fn a_crash_at_any_byte_loses_nothing_acknowledged() {
    let run = |rig: &mut Rig, faults: &Arc<FaultFiles>, options: Options| -> (u64, u64) {
        let mut acknowledged = 0;
        let Ok(life) = Life::open(options, faults.clone(), Index(0)) else { return (0, 0) };
        for number in 1..=13 {
            let body = body(number, 30 + 400 * usize::from(number % 4 == 0));
            let Ok(reserved) = life.log.reserve_within(body.len(), LONG) else { break };
            life.log.append(reserved, Kind::Effects, 0, &body, body_crc(&body));
            if number % 3 != 0 {
                life.log.write();
                // At a change of segments the write is the sync thread's.
                life.wait_until("it is durable", |log| log.durable().0 == number || log.failed().is_some());
            }
            acknowledged = life.log.durable().0;
        }
        let appended = life.log.last().0;
        drop(life);
        rig.disk.kill();
        (acknowledged, appended)
    };
    let options = |rig: &Rig| {
        let (mut options, faults) = rig.options();
        options.segment_bytes = SEGMENT_HEADER_BYTES + 1200;
        (options, faults)
    };
    let mut rig = Rig::new(6);
    let (whole, faults) = options(&rig);
    assert_eq!(run(&mut rig, &faults, whole), (13, 13));
    let total = faults.bytes();
    assert!(rig.files().len() >= 2 && total > 2000);
    for bytes in 0..total {
        let mut rig = Rig::new(7 + bytes);
        let (options, faults) = options(&rig);
        faults.crash_after(bytes);
        let (acknowledged, appended) = run(&mut rig, &faults, options);
        let life = rig.open();
        let last = life.last.0;
        assert!(
            (acknowledged..=appended.max(acknowledged)).contains(&last) || appended == 0,
            "crash after {bytes}: {last}"
        );
        for record in life.found.iter().filter(|record| record.kind == Kind::Effects) {
            let index = record.index.0;
            assert_eq!(record.body, body(index, 30 + 400 * usize::from(index % 4 == 0)), "crash after {bytes}");
        }
        assert_eq!(life.found.len() as u64, last, "crash after {bytes}: no gap");
    }
}

/// Lives of one log, each with its own end: stops, kills and power losses, and failures on the way.
struct Model {
    rig: Rig,
    random: Random,
    /// Every record that was ever appended: none has the place of another one.
    appended: HashMap<(History, Index), Vec<u8>>,
    /// The log as the last life left it at most, from index 1 on.
    log: Vec<Vec<u8>>,
    /// The last record that has to be found again.
    acknowledged: u64,
    applied: u64,
}

impl Model {
    fn live(&mut self) {
        let fsync = self.random.chance(50);
        let segment_bytes = SEGMENT_HEADER_BYTES + 200 + self.random.below(6000);
        let unsynced_bytes_max = 500 + self.random.below(20_000);
        let durability = if fsync { Durability::Fsync } else { Durability::Os };
        let sync_interval_ms = if self.random.chance(30) { 1 } else { 3_600_000 };
        let change = |options: &mut Options| {
            *options = Options { segment_bytes, unsynced_bytes_max, durability, sync_interval_ms, ..options.clone() };
            options.retention.bytes = 20_000;
        };
        let life = loop {
            match self.rig.try_open(Index(self.applied), change) {
                Ok(life) => break life,
                // A failure that the last life left behind.
                Err(OpenError::Io { .. } | OpenError::Begin(_)) => self.rig.disk.fail_syncs(0),
                Err(error) => panic!("{error}"),
            }
        };
        self.check(&life);
        for _ in 0..self.random.below(60) {
            self.step(&life);
        }
        let (durable, synced) = (life.log.durable().0, life.log.synced().0);
        let clean = match self.random.below(10) {
            0..3 => {
                let clean = life.log.close() == Ok(Closed::Marked);
                self.acknowledged = if clean { life.log.last().0 } else { synced };
                if clean {
                    self.rig.disk.crash(self.random.number());
                }
                clean
            }
            3..5 => {
                self.rig.disk.kill();
                self.acknowledged = life.log.written().0.max(durable).min(self.log.len() as u64);
                false
            }
            _ => {
                self.acknowledged = if fsync { durable } else { synced };
                self.rig.disk.crash(self.random.number());
                false
            }
        };
        drop(life);
        self.rig.disk.kill();
        if !clean {
            // The log may have got further while it was going down.
            self.acknowledged = self.acknowledged.min(self.log.len() as u64);
        }
    }

    /// Compares the records found with those appended: no gap, and all that was acknowledged.
    fn check(&mut self, life: &Life) {
        let last = life.last.0;
        assert!(last >= self.acknowledged, "found through {last}, acknowledged through {}", self.acknowledged);
        assert!(last <= self.log.len() as u64, "found through {last}, appended through {}", self.log.len());
        self.log.truncate(last as usize);
        assert_eq!(life.found.len() as u64, last - self.applied);
        for (record, index) in life.found.iter().zip(self.applied + 1..) {
            assert_eq!(record.index, Index(index));
            assert_eq!(record.body, self.log[index as usize - 1], "record {index}");
            assert_eq!(Some(&record.body), self.appended.get(&(record.history, record.index)), "record {index}");
        }
        if life.log.last().0 > last {
            self.note(life.history, Index(last + 1), Vec::new());
        }
        self.acknowledged = last;
    }

    fn note(&mut self, history: History, index: Index, body: Vec<u8>) {
        assert_eq!(index.0, self.log.len() as u64 + 1);
        let before = self.appended.insert((history, index), body.clone());
        assert_eq!(before, None, "{index} is used twice in a history");
        self.log.push(body);
    }

    fn step(&mut self, life: &Life) {
        match self.random.below(100) {
            0..60 => {
                let long = if self.random.chance(3) { 12_000 } else { 400 };
                let body = body(self.random.number(), self.random.below(long) as usize);
                if let Ok(reserved) = life.log.reserve_within(body.len(), LONG) {
                    let index = life.log.append(reserved, Kind::Effects, 0, &body, body_crc(&body));
                    self.note(life.history, index, body);
                }
            }
            60..80 => drop(life.log.write()),
            80..88 => drop(life.log.sync_through(Index(self.random.below(life.log.last().0 + 1)))),
            88..90 => self.rig.disk.fail_syncs(self.random.below(3)),
            90..92 => life.faults.fail_syncs(self.random.below(3), self.random.below(2)),
            92..94 => life.faults.fail_writes(self.random.below(3), self.random.below(2), ErrorKind::Other),
            94..95 => life.faults.short_writes(self.random.chance(50).then_some(1 + self.random.below(100) as usize)),
            _ => {
                let synced = life.log.synced().0;
                self.applied += self.random.below(synced.max(self.applied) - self.applied + 1);
                life.log.purge(Index(self.applied));
            }
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_whatever_fails() {
    let seed = setting("SEED", 1);
    for case in setting("CASE", 0)..setting("CASES", 150) {
        let run = std::panic::catch_unwind(|| {
            let mut random = Random(seed.wrapping_mul(1 << 32) + case);
            let rig = Rig::new(random.number());
            let mut model =
                Model { rig, random, appended: HashMap::new(), log: Vec::new(), acknowledged: 0, applied: 0 };
            for _ in 0..8 {
                model.live();
            }
        });
        assert!(run.is_ok(), "SEED={seed}, case {case}");
    }
}
