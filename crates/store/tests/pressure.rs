//! Back-pressure and room, rule by rule, each with the test that fails without it: writers slowed and refused, disks
//! that are full or fail, a base that is behind, what gives room back.

mod machine;

use haypile_store::base::{Base, BaseError, Lookup, Pressure, Tier};
use haypile_store::testing::PLAIN;
use haypile_store::{Counter, DiskFree, Mode, ObjectId, Refusal, Space, Stop, Txn, TxnBuffers, WritePressure, row};
use machine::{Machine, call, usual};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[test]
fn room_that_could_not_be_given_back_for_want_of_room_is_given_back_later() {
    let machine = Machine::new(usual);
    machine.put("k", b"v").expect("room");
    machine.base.set_reclaim_fault(Some(BaseError::Full("injected".into())));
    machine.store.flush_now().expect("nothing is broken");
    let mut txn = machine.begin();
    let row = row::meta_row(&txn.key(b"k"));
    txn.flush_database(0).expect("small");
    txn.commit().expect("room");
    drop(txn);
    machine.store.flush_now().expect("nothing is broken");
    let figure = |name| machine.store.figures().into_iter().find(|(_, other, _)| *other == name).expect("a figure").2;
    let begun = Instant::now();
    while figure("reclaim_jobs") == 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "the job waits");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(figure("dead_spaces"), 1);
    machine.base.set_reclaim_fault(None);
    while figure("dead_spaces") == 1 {
        assert!(begun.elapsed() < Duration::from_secs(30), "it is done");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(machine.rows.get(&row, Tier::Disk), Ok(Lookup::Absent));
}

#[test]
fn on_a_short_disk_what_only_makes_room_goes_on_and_is_flushed() {
    static FREE: AtomicU64 = AtomicU64::new(u64::MAX);
    static LOOKS: AtomicU64 = AtomicU64::new(0);
    let machine = Machine::new(|options| {
        options.disk_free_min_bytes = 1 << 30;
        options.disk_free = DiskFree(Arc::new(|| {
            LOOKS.fetch_add(1, Ordering::Relaxed);
            Some(FREE.load(Ordering::Relaxed))
        }));
    });
    let store = &machine.store;
    let wait_for = |what: &str, is_there: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !is_there() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let flushes = || store.figures().into_iter().find(|(_, name, _)| *name == "flushes_completed").expect("a figure").2;
    let stops = |pressure: WritePressure| match pressure {
        WritePressure::Stop(Refusal::DiskShort { free, least, .. }) => (free, least) == (900 << 20, 1 << 30),
        _ => false,
    };
    machine.put("k", b"v").expect("room");
    assert_eq!((store.pressure(), store.pressure_to_shrink()), (WritePressure::Go, WritePressure::Go));

    FREE.store(900 << 20, Ordering::Relaxed);
    wait_for("writes stop", &|| stops(store.pressure()));
    assert_eq!(flushes(), 0, "nothing was deleted yet");
    assert_eq!(store.pressure_to_shrink(), WritePressure::Go);
    wait_for("what was deleted gives its room back", &|| flushes() == 1);

    FREE.store(0, Ordering::Relaxed);
    let before = LOOKS.load(Ordering::Relaxed);
    wait_for("the disk is looked at", &|| LOOKS.load(Ordering::Relaxed) > before + 2);
    assert_eq!(store.pressure_to_shrink(), WritePressure::Go, "the log tells where it has no room");
    FREE.store(1 << 50, Ordering::Relaxed);
    wait_for("all goes on", &|| store.pressure() == WritePressure::Go);
}

/// Checks that writes stop while there is still the room on the disk that the flush of the memtable needs.
#[test]
fn writes_leave_room_for_the_flush_of_what_is_in_memory() {
    static FREE: AtomicU64 = AtomicU64::new(0);
    const LEAST: u64 = 1 << 30;
    FREE.store(LEAST + (300 << 10), Ordering::Relaxed);
    let machine = Machine::new(|options| {
        options.memtable_bytes = 1 << 30;
        options.disk_free_min_bytes = LEAST;
        options.disk_free = DiskFree(Arc::new(|| Some(FREE.load(Ordering::Relaxed))));
    });
    let store = &machine.store;
    // The writes come faster than any thread looks at the disk.
    store.flush_now().expect("nothing is broken");
    let mut n = 0;
    let why = loop {
        match store.pressure() {
            WritePressure::Go => machine.put(&format!("k{n}"), &[0; 10_000]).expect("room"),
            WritePressure::Slow(_) => continue,
            WritePressure::Stop(why) => break why,
        };
        n += 1;
        assert!(n < 100, "the disk has room for thirty");
    };
    assert!(n > 10, "{n}");
    assert!(why.to_string().contains("which are for a flush, disk-free-min is 1073741824"), "{why}");
    assert!(why.deletions_go_on());
    assert_eq!(store.pressure_to_shrink(), WritePressure::Go);
    let begun = Instant::now();
    // The flush comes by itself, and writes go on.
    while store.pressure() != WritePressure::Go {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_store_that_opens_on_a_full_disk_answers_and_waits_for_nothing() {
    let machine = Machine::new(usual);
    machine.put("k", b"v").expect("room");
    machine.store.log().write();
    machine.store.log().sync_through(machine.store.log().last()).expect("room");
    let machine = machine.kill_and(|faults| faults.set_full(true));
    assert!(machine.store.log().failed().is_some());
    let mut txn = machine.begin();
    assert_eq!(txn.counter(Space(0), Counter::Keys), 1);
    assert!(txn.gate() <= machine.store.log().durable(), "the reply leaves");
    drop(txn);
    assert!(matches!(machine.put("more", b"v"), Err(Stop::Refused(_))));
    machine.store.close().expect("nothing acknowledged is lost");
    let machine = machine.kill();
    assert_eq!(machine.get("k").as_deref(), Some(&b"v"[..]));
    machine.put("more", b"v").expect("room");
}

#[test]
fn what_died_is_flushed_when_the_base_has_much_of_it() {
    const DATABASE: u32 = 0;
    let machine = Machine::new(usual);
    let store = &machine.store;
    let flushes = || store.figures().into_iter().find(|(_, name, _)| *name == "flushes_completed").expect("a figure").2;
    let wait_for_flush = |what: &str, before: u64| {
        let begun = Instant::now();
        while flushes() == before {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    // An object of 40 MB, in records that are small enough.
    let (slot, id) = (haypile_store::Slot(1), ObjectId(7));
    let space = machine.begin().space(DATABASE);
    let owner = row::owner_row(space, slot, id);
    let change = |change: &dyn Fn(&mut Txn<'_>)| {
        let mut txn = machine.begin();
        change(&mut txn);
        txn.commit().expect("room");
    };
    let fill = || {
        change(&|txn| txn.put_row(&owner, &[b"big"]).expect("small"));
        for number in 0..40_u8 {
            let element = row::data_row(space, slot, id, &[number]);
            change(&|txn| txn.put_row(&element, &[&vec![number; 1 << 20]]).expect("small"));
            store.flush_now().expect("the base takes it");
        }
    };
    fill();
    let before = flushes();
    change(&|txn| txn.delete_row(&owner).expect("small"));
    wait_for_flush("an object without owner", before);

    fill();
    let before = flushes();
    change(&|txn| txn.flush_database(DATABASE).expect("small"));
    wait_for_flush("a database that was emptied", before);
}

#[test]
fn writers_are_slowed_when_the_flush_is_behind_and_refused_at_the_end() {
    let machine = Machine::new(|options| options.memtable_bytes = 256 << 10);
    machine.base.hold_ingests(true);
    machine.put("first", b"").expect("room");
    // A flush that does not end: one generation is on its way, the next one empty.
    let flush = std::thread::spawn({
        let store = machine.store.clone();
        move || store.flush_now()
    });
    machine.base.wait_for_held_ingest();
    assert_eq!(machine.store.pressure(), WritePressure::Go);
    let mut last = std::time::Duration::ZERO;
    for percent in [80, 90, 100, 110, 130] {
        machine.fill(percent).expect("commits are not refused, only asked to wait before");
        let WritePressure::Slow(wait) = machine.store.pressure() else { panic!("{:?}", machine.store.pressure()) };
        assert!(wait > last, "the wait grows: {wait:?} after {last:?}");
        last = wait;
    }
    machine.fill(160).expect("commits are not refused");
    assert_eq!(machine.store.pressure(), WritePressure::Slow(std::time::Duration::from_secs(1)));
    machine.base.set_fault(Some(BaseError::Full("injected".into())));
    machine.base.hold_ingests(false);
    flush.join().expect("no panics").expect_err("the base is full");
    machine.store.flush_now().expect_err("it still is");
    assert!(
        matches!(machine.store.pressure(), WritePressure::Stop(why) if why.to_string().contains("injected")),
        "both are full"
    );
    assert_eq!(machine.get("fill:0").map(|value| value.len()), Some(4000), "reads go on");
    machine.base.set_fault(None);
    machine.store.flush_now().expect("there is room again");
    assert_eq!(machine.store.pressure(), WritePressure::Go);
    assert_eq!(machine.get("fill:0").map(|value| value.len()), Some(4000));
}

#[test]
fn a_flush_that_failed_is_tried_again_without_being_asked() {
    let machine = Machine::new(usual);
    machine.put("k", b"v").expect("room");
    machine.base.set_fault(Some(BaseError::Failed("injected".into())));
    machine.store.flush_now().expect_err("the base fails");
    machine.base.set_fault(None);
    let started = std::time::Instant::now();
    while machine.rows.is_empty() {
        assert!(started.elapsed().as_secs() < 30, "it resumes by itself");
        std::thread::yield_now();
    }
}

#[test]
fn a_base_that_is_behind_holds_the_flush_up_but_not_for_ever() {
    let machine = Machine::new(usual);
    let behind = Pressure { level0_files: 1000, ..Pressure::default() };
    machine.base.set_pressure(Some(behind));
    machine.put("k", b"v").expect("room");
    let waited = |machine: &Machine| {
        machine.store.figures().into_iter().find(|(_, name, _)| *name == "flush_waits_for_base_us").expect("a figure").2
    };
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| machine.store.flush_now());
        // Frozen, and waiting.
        while machine.store.figures().iter().all(|(_, name, value)| *name != "memtable_frozen_bytes" || *value == 0) {
            std::thread::yield_now();
        }
        assert_eq!(machine.rows.len(), 1, "only the hash seed");
        machine.base.set_pressure(None);
        flush.join().expect("no panics").expect("the base has caught up");
    });
    assert!(machine.rows.len() > 1 && waited(&machine) < 10_000_000);
    machine.base.set_pressure(Some(behind));
    machine.put("k", b"v").expect("room");
    machine.store.flush_now().expect("goes on after the longest wait");
    assert!(waited(&machine) >= 10_000_000);
}

#[test]
fn flushes_go_at_the_pace_of_compactions_unless_somebody_waits_for_one() {
    let machine = Machine::new(usual);
    let figure = |name| machine.store.figures().into_iter().find(|(_, other, _)| *other == name).expect("a figure").2;
    machine.put("k", b"v").expect("room");
    machine.store.flush_now().expect("flushes");
    let (rows, since) = (machine.rows.len(), Instant::now());
    let compacting = Pressure { level0_files: 16, running_compactions: 1, ..Pressure::default() };
    machine.base.set_pressure(Some(Pressure { level0_left: Duration::from_secs(17 * 9), ..compacting }));
    let mut n = 0;
    while figure("memtable_frozen_bytes") == 0 {
        machine.put(&format!("fill:{n}"), &[0; 4000]).expect("room");
        n += 1;
    }
    // A flush that does not end gives no sign to wait for: several looks of its thread have passed by then.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(machine.rows.len(), rows, "it waits");
    machine.store.flush_now().expect("flushes");
    assert!(machine.rows.len() > rows && since.elapsed() < Duration::from_secs(9), "{:?}", since.elapsed());
}

#[test]
fn a_full_disk_refuses_writes_and_serves_reads_until_there_is_room() {
    let machine = Machine::new(usual);
    machine.put("before", b"v").expect("room");
    machine.faults.set_full(true);
    let mut n = 0;
    let refused = loop {
        match machine.put(&format!("more:{n}"), &[0; 60_000]) {
            Ok(_) => n += 1,
            Err(stop) => break stop,
        }
        machine.store.log().write();
        assert!(n < 1000, "the disk is full");
    };
    assert!(matches!(&refused, Stop::Refused(Refusal::LogFailed(_))), "{refused:?}");
    assert_eq!(machine.get("before").as_deref(), Some(&b"v"[..]), "reads go on");
    assert_eq!(machine.get(&format!("more:{n}")), None, "what was refused has no effect");
    let started = std::time::Instant::now();
    while !machine.base.is_short_of_space() {
        assert!(started.elapsed().as_secs() < 30, "files that nobody needs go at once now");
        std::thread::yield_now();
    }
    machine.faults.set_full(false);
    let started = std::time::Instant::now();
    while let Err(stop) = machine.put("after", &[0; 60_000]) {
        assert!(started.elapsed().as_secs() < 30, "it resumes by itself: {stop:?}");
        std::thread::yield_now();
    }
    while machine.base.is_short_of_space() {
        assert!(started.elapsed().as_secs() < 30, "and at their pace again");
        std::thread::yield_now();
    }
    let machine = {
        machine.store.log().write();
        machine.store.log().sync_through(machine.store.log().last()).expect("there is room");
        machine.kill()
    };
    assert!(machine.get("after").is_some() && machine.get("before").is_some());
    assert_eq!(machine.store.counter(0, Counter::Keys) as u64, n + 2);
}

/// The ids of objects are used up, and the log takes no record that leases more: an event loop does not wait for the
/// thread that waits for the log.
#[test]
fn an_event_loop_does_not_wait_for_the_thread_that_leases_ids() {
    let machine = Machine::new(|options| options.log.unsynced_bytes_max = 64 << 10);
    let unsynced = || {
        let figures = machine.store.figures();
        figures.into_iter().find(|(_, name, _)| *name == "log_unsynced_bytes").expect("a figure").2
    };
    let begin = |mode| machine.store.begin(TxnBuffers::default(), call(mode));
    let put = |value: &[u8]| {
        let mut txn = begin(Mode::Memory);
        let key = txn.key(b"k");
        txn.put_meta(&key, &[value])?;
        txn.commit()
    };
    machine.faults.hold_syncs(true);
    for bytes in [4000, 1] {
        while put(&vec![0; bytes]).is_ok() {}
    }
    let mut event_loop = begin(Mode::Memory);
    while event_loop.new_object().is_ok() {}
    let (before, begun) = (unsynced(), Instant::now());
    let (answer, leased) = std::thread::scope(|scope| {
        let leasing = scope.spawn(|| begin(Mode::Disk).new_object());
        // A record that waits for room counts already.
        while unsynced() == before && begun.elapsed() < Duration::from_secs(5) {
            std::thread::yield_now();
        }
        let answer = event_loop.new_object();
        machine.faults.hold_syncs(false);
        (answer, leasing.join().expect("no panics"))
    });
    assert_eq!(answer, Err(Stop::Long));
    assert!(leased.is_ok(), "the event loop came back after the other thread had given up: {leased:?}");
}

#[test]
fn without_a_base_memory_is_given_back_and_refused_when_it_is_used_up() {
    let machine = Machine::new(|options| {
        options.memory_only = true;
        options.memtable_bytes = 1 << 20;
    });
    let figure = |name| machine.store.figures().into_iter().find(|(_, other, _)| *other == name).expect("a figure").2;
    machine.store.flush_now().expect("nothing to do");
    let empty = figure("memtable_active_bytes");
    machine.fill(101).expect("room");
    assert!(matches!(machine.store.pressure(), WritePressure::Stop(Refusal::OutOfMemory)));
    assert_eq!(machine.store.pressure_to_shrink(), WritePressure::Go, "deleting makes room");
    let mut n = 0;
    while machine.get(&format!("fill:{n}")).is_some() {
        let mut txn = machine.begin();
        let name = format!("fill:{n}");
        txn.delete_meta(&txn.key(name.as_bytes())).expect("small");
        txn.commit().expect("room");
        n += 1;
    }
    assert_eq!(figure("memtable_active_bytes"), empty, "deleted rows leave nothing");
    machine.fill(90).expect("room");
    let mut txn = machine.begin();
    txn.flush_database(0).expect("small");
    txn.commit().expect("room");
    drop(txn);
    machine.store.flush_now().expect("tidies up");
    assert!(figure("memtable_active_bytes") < empty + 1000, "so do dead spaces");
}

#[test]
fn the_memory_can_be_divided_anew_at_any_time() {
    let machine = Machine::new(usual);
    for round in 0..3 {
        machine.store.set_memory(
            if round == 1 { 1 << 20 } else { 64 << 10 },
            if round == 1 { 0 } else { 1 << 20 },
            1 << 20,
        );
        for n in 0..100 {
            machine.put(&format!("key:{n}"), &[PLAIN[0], PLAIN[1], round, n]).expect("room");
        }
        machine.store.flush_now().expect("flushes");
        for n in 0..100 {
            // Twice: from the base, and from the row cache if it is on.
            for _ in 0..2 {
                assert_eq!(machine.get(&format!("key:{n}")).map(|value| value[2..].to_vec()), Some(vec![round, n]));
            }
        }
    }
    let figure = |name| machine.store.figures().into_iter().find(|(_, other, _)| *other == name).expect("a figure").2;
    assert_eq!((figure("memtable_bytes_max"), figure("row_cache_bytes_max")), (64 << 10, 1 << 20));
    assert!(figure("row_cache_hits") > 0);
}
