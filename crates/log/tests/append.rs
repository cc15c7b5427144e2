//! Reserving, appending, writing and waiting: the rules that hold while nothing fails.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::*;
use haypile_log::*;

#[test]
fn what_was_written_is_found_with_its_index_kind_and_time() {
    let mut rig = Rig::new(1);
    let life = rig.open();
    assert_eq!((life.last, life.log.last()), (Index(0), Index(1)), "the first record says that a history begins");
    for (kind, text) in [(Kind::Effects, "one"), (Kind::Lease, "two"), (Kind::Effects, "")] {
        let reserved = life.log.reserve(text.len()).unwrap();
        life.log.append(reserved, kind, 1_234_567_890_123, text.as_bytes(), body_crc(text.as_bytes()));
    }
    assert_eq!(life.log.written(), Index(1), "nothing is written before write()");
    assert_eq!(life.log.write(), Index(4));
    assert_eq!((life.log.synced(), life.log.durable()), (Index(1), Index(4)));
    rig.disk.kill();
    let life = rig.open();
    let found: Vec<_> = life.found.iter().map(|record| (record.index.0, record.kind, &record.body[..])).collect();
    assert_eq!(found[1..], [(2, Kind::Effects, &b"one"[..]), (3, Kind::Lease, b"two"), (4, Kind::Effects, b"")]);
    assert_eq!(life.found[3].time_ms, 1_234_567_890_123);
}

#[test]
fn indexes_come_from_one_sequencer_and_the_file_has_their_order() {
    const THREADS: u64 = 4;
    const APPENDS: u64 = 3000;
    let mut rig = Rig::new(2);
    let life = rig.open();
    let log = &life.log;
    let appended: Vec<Vec<(Index, Vec<u8>)>> = std::thread::scope(|scope| {
        let work = |thread: u64| {
            move || {
                let mut mine = Vec::new();
                for number in 0..APPENDS {
                    let body = body(thread * APPENDS + number, 20 + (number % 90) as usize);
                    let reserved = log.reserve_within(body.len(), LONG).unwrap();
                    let index = log.append(reserved, Kind::Effects, number, &body, body_crc(&body));
                    mine.push((index, body));
                    if number % 7 == thread {
                        log.write();
                    }
                }
                log.write();
                mine
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    life.wait_until("everything is written", |log| log.written() == log.last());
    assert!(appended.iter().all(|mine| mine.is_sorted()), "a thread's records are in the order of its appends");
    let mut all: Vec<_> = appended.into_iter().flatten().collect();
    all.sort();
    assert!(life.log.stats().segments > 10, "segments were changed on the way");
    assert_eq!(life.log.stats().recoveries, 1, "what was reserved always fitted");
    rig.disk.kill();
    let life = rig.open();
    let expected: Vec<_> = all.into_iter().map(|(index, body)| (index.0, body)).collect();
    assert_eq!(
        expected.iter().map(|(index, _)| *index).collect::<Vec<_>>(),
        (2..2 + THREADS * APPENDS).collect::<Vec<_>>()
    );
    assert_eq!(life.bodies(), expected);
}

#[test]
fn who_finds_somebody_writing_does_not_wait_and_is_told() {
    let mut rig = Rig::new(3);
    let life = rig.open();
    life.wait_for_spare();
    life.append(b"first");
    life.faults.hold_writes(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| life.log.write());
        life.faults.wait_for_held();
        let second = life.append(b"second");
        assert_eq!(life.log.write(), Index(1), "neither the second nor the first is written, and this did not block");
        let told = life.times_told();
        life.faults.hold_writes(false);
        life.wait_until("the second is durable", |log| log.durable() >= second);
        assert!(writer.join().unwrap() >= Index(2));
        assert!(life.times_told() > told, "the one who did not wait is woken");
    });
}

#[test]
fn durable_is_the_contiguous_index_and_never_ahead_of_an_earlier_record() {
    let mut rig = Rig::new(4);
    let life = rig.open_with(Index(0), |options| options.durability = Durability::Fsync);
    life.wait_for_spare();
    life.faults.hold_syncs(true);
    let first = life.write(b"first");
    life.faults.wait_for_held();
    let second = life.write(b"second");
    assert_eq!((life.log.written(), life.log.durable()), (second, Index(1)));
    life.faults.hold_syncs(false);
    life.wait_until("the second is durable", |log| log.durable() >= second);
    assert!(first < second);
    rig.disk.crash(1);
    assert_eq!(rig.open().bodies(), [(2, b"first".to_vec()), (3, b"second".to_vec())]);
}

#[test]
fn durability_can_change_at_run_time() {
    let mut rig = Rig::new(5);
    let life = rig.open();
    let index = life.write(b"x");
    assert_eq!((life.log.durable(), life.log.synced()), (index, Index(1)));
    life.log.set_durability(Durability::Fsync);
    life.wait_until("it is synced", |log| log.durable() == index);
    assert_eq!(life.log.synced(), index);
}

#[test]
fn syncs_run_on_their_own_thread() {
    let mut rig = Rig::new(6);
    let life = rig.open_with(Index(0), |options| options.sync_interval_ms = 0);
    life.wait_for_spare();
    life.faults.hold_syncs(true);
    life.write(b"starts a sync");
    life.faults.wait_for_held();
    for number in 0..100 {
        let index = life.append(&body(number, 50));
        assert_eq!(life.log.write(), index, "a sync that hangs delays neither append nor write");
    }
    assert_eq!(life.log.synced(), Index(1));
    life.faults.hold_syncs(false);
    life.log.sync_through(life.log.last()).unwrap();
}

#[test]
fn an_unsynced_record_is_synced_after_the_interval_without_being_asked_for() {
    let mut rig = Rig::new(7);
    let life = rig.open_with(Index(0), |options| options.sync_interval_ms = 1);
    let index = life.write(b"x");
    // `Durability::Os` wakes no thread for a sync, so the test looks until the record is synced.
    let deadline = Instant::now() + LONG;
    while life.log.synced() < index {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
}

#[test]
fn after_a_slow_write_the_writer_thread_writes() {
    let mut rig = Rig::new(8);
    let life = rig.open();
    life.wait_for_spare();
    life.append(b"slow");
    life.faults.hold_writes(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| life.log.write());
        life.faults.wait_for_held();
        // The test is about time that passes: more than the five milliseconds that make a write slow.
        std::thread::sleep(Duration::from_millis(20));
        life.faults.hold_writes(false);
        writer.join().unwrap();
    });
    life.faults.hold_writes(true);
    let index = life.append(b"handed over");
    assert!(life.log.write() < index, "the caller does not write, so it is not blocked");
    life.faults.wait_for_held();
    life.faults.hold_writes(false);
    life.wait_until("the thread has written", |log| log.written() == index);
    assert!(life.log.stats().deferred_writes > 0);
    for _ in 0..1000 {
        let index = life.write(b"fast");
        life.wait_until("it is written", |log| log.written() >= index);
    }
    assert!(life.log.stats().deferred_writes < 1000, "after some fast writes they go inline again");
}

#[test]
fn a_long_record_is_written_by_the_writer_thread_and_in_its_place() {
    let mut rig = Rig::new(16);
    let life =
        rig.open_with(Index(0), |options| (options.segment_bytes, options.unsynced_bytes_max) = (16 << 20, 64 << 20));
    life.wait_for_spare();
    let long = body(7, 3 << 20);
    let before = life.append(b"before");
    life.append(&long);
    life.append(b"behind");
    life.faults.hold_writes(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| life.log.write());
        life.faults.wait_for_held();
        life.faults.hold_writes(false);
        writer.join().expect("it writes what comes before, and no more has to wait for it");
    });
    life.wait_until("all is written", |log| log.written() == log.last());
    assert_eq!(life.log.stats().deferred_writes, 1);
    let last = life.write(b"short");
    assert_eq!((life.log.written(), life.log.stats().deferred_writes), (last, 1), "the next ones are written inline");
    rig.disk.kill();
    let bodies = [b"before".to_vec(), long, b"behind".to_vec(), b"short".to_vec()];
    assert_eq!(rig.open().bodies(), (before.0..).zip(bodies).collect::<Vec<_>>());
}

#[test]
fn a_segment_is_used_only_after_its_predecessor_is_synced() {
    let mut rig = Rig::new(9);
    let life = rig.open();
    life.wait_for_spare();
    life.faults.hold_syncs(true);
    let spare = rig.files().pop().unwrap();
    let used =
        |rig: &Rig| rig.disk.read(&spare).unwrap()[SEGMENT_HEADER_BYTES as usize..].iter().any(|byte| *byte != 0);
    let mut last = Index(0);
    while life.log.written() == life.log.last() {
        last = life.write(&body(last.0, 5000));
    }
    life.faults.wait_for_held();
    assert_eq!(life.log.write(), Index(last.0 - 1), "the record that does not fit waits");
    assert!(!used(&rig));
    life.faults.hold_syncs(false);
    life.wait_until("the record is written", |log| log.written() == last);
    assert!(used(&rig));
    assert_eq!(life.log.synced(), Index(last.0 - 1));
    // The next spare segment is made without a request.
    life.wait_for_spare();
}

#[test]
fn what_is_reserved_can_be_appended_and_written_on_a_full_disk() {
    let mut rig = Rig::new(10);
    let life = rig.open();
    life.wait_for_spare();
    life.faults.set_full(true);
    let mut count = 0;
    let error = 'full: loop {
        let mut reserved = Vec::new();
        while reserved.len() < 20 {
            let last = life.log.last();
            match life.log.reserve(3000) {
                Ok(one) => reserved.push(one),
                // Either what is reserved here is in the way, or the attempt to get more space is on its way.
                Err(AppendError::Busy) if !reserved.is_empty() => break,
                Err(AppendError::Busy) => {
                    life.wait_until("it is decided", |log| log.reserve(3000) != Err(AppendError::Busy))
                }
                Err(error) => break 'full error,
            }
            assert_eq!(life.log.last(), last, "a reservation has no effect");
        }
        for reserved in reserved {
            let body = body(count, 3000);
            life.log.append(reserved, Kind::Effects, 0, &body, body_crc(&body));
            life.log.write();
            count += 1;
        }
    };
    assert!(matches!(&error, AppendError::Full(text) if text.contains("no storage space")), "{error:?}");
    assert!(count >= 40, "the active segment and the spare can be filled, not {count} records only");
    life.log.sync_through(life.log.last()).unwrap();
    // Room comes back when the disk has some.
    life.faults.set_full(false);
    life.log.retry();
    life.wait_until("there is room", |log| log.reserve(3000).is_ok());
    let last = life.sync(&body(count, 3000));
    assert_eq!(last, Index(count + 2));
    rig.disk.crash(10);
    let expected: Vec<_> = (0..=count).map(|number| (number + 2, body(number, 3000))).collect();
    assert_eq!(rig.open().bodies(), expected);
}

#[test]
fn service_resumes_by_itself_when_a_full_disk_has_space_again() {
    let mut rig = Rig::new(11);
    let life = rig.open_with(Index(0), |options| options.segment_bytes = 8192);
    life.wait_for_spare();
    life.faults.set_full(true);
    let failed = loop {
        match life.log.reserve_within(1000, LONG) {
            Ok(reserved) => drop(life.log.append(reserved, Kind::Effects, 0, b"x", body_crc(b"x"))),
            Err(error) => break error,
        }
        life.log.write();
    };
    assert!(matches!(failed, AppendError::Full(_)));
    life.faults.set_full(false);
    life.wait_until("there is room", |log| log.reserve(1000).is_ok());
}

#[test]
fn a_log_that_is_opened_on_a_full_disk_serves_its_records_and_begins_later() {
    let mut rig = Rig::new(12);
    let life = rig.open();
    life.sync(b"kept");
    rig.disk.kill();
    let (options, faults) = rig.options();
    faults.set_full(true);
    let life = Life::open(options, faults, Index(0)).unwrap();
    assert_eq!(life.bodies(), [(2, b"kept".to_vec())]);
    assert!(matches!(life.log.reserve(1), Err(AppendError::Full(_))));
    life.log.sync_through(Index(2)).unwrap();
    life.faults.set_full(false);
    life.log.retry();
    life.wait_until("there is room", |log| log.reserve(1).is_ok());
    assert_eq!(life.sync(b"new"), Index(3));
    rig.disk.crash(1);
    assert_eq!(rig.open().bodies(), [(2, b"kept".to_vec()), (3, b"new".to_vec())]);
}

#[test]
fn a_group_holds_records_of_one_entry_and_recovery_keeps_them_apart() {
    for recovers in [false, true] {
        let mut rig = Rig::new(21);
        let life = rig.open();
        life.wait_for_spare();
        let entries = [(0, 0), (1, 1), (1, 1), (1, 2), (4, 3)];
        for (number, (term, entry)) in (2..).zip(entries) {
            life.log.begin_entry(term, entry);
            life.append(&body(number, 100));
        }
        life.log.write();
        if recovers {
            life.faults.fail_syncs(0, 1);
        }
        life.log.sync_through(Index(6)).unwrap();
        rig.disk.kill();
        let life = rig.open();
        let found: Vec<_> = life.found[1..].iter().map(|record| record.entry).collect();
        assert_eq!(found, entries);
        // A record behind its predecessor in one group follows at once, and one in another group behind a header.
        let gaps: Vec<_> = life.found[1..].windows(2).map(|pair| pair[1].offset - pair[0].offset).collect();
        let (record, group) = (RECORD_HEADER_BYTES as u64 + 100, GROUP_HEADER_BYTES as u64);
        assert_eq!(gaps, [record + group, record, record + group, record + group]);
    }
}

#[test]
fn a_reservation_that_is_dropped_gives_its_room_back() {
    let mut rig = Rig::new(13);
    let life = rig.open();
    life.wait_for_spare();
    for _ in 0..1000 {
        drop(life.log.reserve(30_000).unwrap());
    }
    let held = life.log.reserve(50_000).unwrap();
    assert_eq!(life.log.reserve(50_000), Err(AppendError::Busy));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| life.log.reserve_within(50_000, LONG).map(drop));
        drop(held);
        waits.join().unwrap().unwrap();
    });
}

#[test]
fn above_the_bound_of_unsynced_bytes_the_log_is_busy_and_half_of_it_starts_a_sync() {
    let mut rig = Rig::new(14);
    let life = rig.open_with(Index(0), |options| {
        options.segment_bytes = 1 << 20;
        options.unsynced_bytes_max = 100_000;
    });
    life.wait_for_spare();
    life.faults.hold_syncs(true);
    life.write(&body(0, 40_000));
    assert_eq!(life.log.stats().unsynced_bytes, 40_000 + 68);
    life.write(&body(1, 20_000));
    life.faults.wait_for_held();
    life.write(&body(2, 30_000));
    assert_eq!(life.log.reserve(20_000), Err(AppendError::Busy));
    assert_eq!(life.log.reserve_within(20_000, Duration::from_millis(1)), Err(AppendError::Busy));
    life.faults.hold_syncs(false);
    life.wait_until("there is room", |log| log.reserve(20_000).is_ok());
    drop(life.log.reserve_within(99_000, LONG).unwrap());
    let longer_than_the_bound = life.sync(&body(3, 200_000));
    life.log.sync_through(longer_than_the_bound).unwrap();
    assert_eq!(life.log.stats().unsynced_bytes, 0);
}

#[test]
fn whoever_writes_much_leaves_half_of_the_bound_to_others() {
    let mut rig = Rig::new(14);
    let life = rig.open_with(Index(0), |options| {
        options.segment_bytes = 1 << 20;
        options.unsynced_bytes_max = 100_000;
    });
    life.wait_for_spare();
    life.faults.hold_syncs(true);
    life.log.leave_room(20_000, LONG);
    life.write(&body(0, 40_000));
    life.log.leave_room(5_000, LONG);
    // No other thread would have synced yet.
    let begun = Instant::now();
    life.log.leave_room(20_000, Duration::from_millis(20));
    assert!(begun.elapsed() >= Duration::from_millis(20));
    life.faults.wait_for_held();
    drop(life.log.reserve(50_000).unwrap());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            life.log.leave_room(20_000, LONG);
            life.log.stats().unsynced_bytes
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waits.is_finished());
        life.faults.hold_syncs(false);
        assert!(waits.join().unwrap() <= 30_000);
    });
    // A record longer than the room that is left to others goes when it comes.
    life.write(&body(1, 40_000));
    life.log.leave_room(99_000, LONG);
    // Nor does what a segment is hardly larger than.
    let life = Rig::new(15).open_with(Index(0), |options| options.segment_bytes = 10_000);
    life.log.leave_room(20_000, LONG);
}

#[test]
fn a_record_longer_than_a_segment_gets_one_of_its_own() {
    let mut rig = Rig::new(15);
    let life = rig.open();
    let small = life.write(b"small");
    let large = life.sync(&body(1, 1_000_000));
    let after = life.sync(b"after");
    assert_eq!((small, large, after), (Index(2), Index(3), Index(4)));
    assert_eq!(life.log.stats().recoveries, 1);
    assert_eq!(life.log.reserve(usize::MAX), Err(AppendError::TooLarge));
    rig.disk.crash(1);
    let life = rig.open();
    assert_eq!(life.bodies(), [(2, b"small".to_vec()), (3, body(1, 1_000_000)), (4, b"after".to_vec())]);
    assert_ne!(life.found[1].segment, life.found[2].segment);
}

#[test]
fn a_log_takes_appends_only_after_its_replay() {
    let rig = Rig::new(16);
    let (options, _) = rig.options();
    let mut opened = Log::open(options, Index(0)).unwrap();
    assert!(matches!(opened.log.reserve(1), Err(AppendError::Failed(_))));
    assert!(opened.log.sync_through(Index(1)).is_ok(), "there is nothing to sync");
    opened.replay.finish().unwrap();
    drop(opened.log.reserve(1).unwrap());
    drop(opened.log);
}

#[test]
fn a_replay_that_outlives_its_log_does_not_begin_it() {
    let rig = Rig::new(17);
    let (options, _) = rig.options();
    let mut opened = Log::open(options, Index(0)).unwrap();
    drop(opened.log);
    assert!(matches!(opened.replay.finish(), Err(OpenError::Begin(_))));
}

#[test]
fn a_closed_log_refuses_appends_and_histories() {
    let mut rig = Rig::new(18);
    let life = rig.open();
    life.write(b"x");
    life.log.close().unwrap();
    assert!(matches!(life.log.reserve(1), Err(AppendError::Failed(_))));
    assert!(life.log.begin_history().is_err(), "no segment is made any more");
    life.log.close().unwrap();
}

#[test]
fn each_advance_is_told_also_by_who_writes() {
    let mut rig = Rig::new(20);
    let life = rig.open();
    let count = Arc::new(AtomicU64::new(0));
    let told = count.clone();
    life.log.on_advance(Arc::new(move || _ = told.fetch_add(1, Ordering::SeqCst)));
    for _ in 0..10 {
        let before = count.load(Ordering::SeqCst);
        let index = life.write(b"x");
        life.wait_until("it is written", |log| log.write() >= index);
        life.wait_until("it is told", |_| count.load(Ordering::SeqCst) > before);
    }
}

#[test]
fn wakes_come_from_the_logs_threads_too() {
    let mut rig = Rig::new(19);
    let life = rig.open_with(Index(0), |options| options.durability = Durability::Fsync);
    let on_other_thread = Arc::new(AtomicBool::new(false));
    let (told, me) = (on_other_thread.clone(), std::thread::current().id());
    life.log.on_durable(Arc::new(move || {
        told.fetch_or(std::thread::current().id() != me, Ordering::SeqCst);
    }));
    let index = life.write(b"x");
    life.wait_until("it is durable", |log| log.durable() == index);
    // Waiting threads are told one after the other.
    let deadline = Instant::now() + LONG;
    while !on_other_thread.load(Ordering::SeqCst) {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
}
