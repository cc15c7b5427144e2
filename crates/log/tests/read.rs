//! Live readers, and the offline dump.

mod common;

use std::path::Path;

use common::*;
use haypile_log::testing::Random;
use haypile_log::*;

/// All that the reader has now.
fn drain(reader: &mut Reader) -> Vec<Owned> {
    let mut records = Vec::new();
    loop {
        match reader.next().unwrap() {
            Next::Record(record) => records.push(Owned::of(record)),
            Next::UpToDate => return records,
            Next::Gap(first) => panic!("a gap up to {first}"),
        }
    }
}

fn indexes(records: &[Owned]) -> Vec<u64> {
    records.iter().map(|record| record.index.0).collect()
}

#[test]
fn a_reader_follows_from_files_and_from_memory_and_meets_every_record_once() {
    let mut rig = Rig::new(1);
    let life = rig.open();
    let mut early = life.log.reader(Index(0));
    let mut seen = Vec::new();
    for number in 2..=600 {
        life.append(&body(number, 300));
        if number % 3 == 0 {
            life.log.write();
        }
        if number % 50 == 0 {
            seen.extend(drain(&mut early));
        }
        if number % 170 == 0 {
            life.log.sync_through(life.log.last()).unwrap();
        }
    }
    life.log.write();
    life.wait_until("all is written", |log| log.written() == log.last());
    seen.extend(drain(&mut early));
    let late = drain(&mut life.log.reader(Index(0)));
    assert_eq!(indexes(&seen), (1..=600).collect::<Vec<_>>());
    assert_eq!(seen, late);
    assert!(life.log.stats().segments > 2);
    for after in [0, 1, 2, 99, 300, 599, 600] {
        let records = drain(&mut life.log.reader(Index(after)));
        assert_eq!(indexes(&records), (after + 1..=600).collect::<Vec<_>>());
    }
    rig.disk.kill();
    let life = rig.open();
    assert_eq!(life.found, seen, "a replay finds what the reader saw, segments and offsets included");
    let again = drain(&mut life.log.reader(Index(0)));
    assert_eq!(again, seen, "segments of an earlier run are read");
}

#[test]
fn a_reader_that_is_now_before_and_now_behind_the_sync_reads_no_byte_twice() {
    let mut rig = Rig::new(8);
    let life = rig.open_with(Index(0), |options| options.segment_bytes = 16 << 20);
    life.wait_for_spare();
    let mut reader = life.log.reader(Index(1));
    let (mut seen, mut random, before) = (Vec::new(), Random(8), (life.faults.bytes(), life.faults.read_bytes()));
    for number in 2..=1000 {
        life.write(&body(number, 300));
        if random.chance(40) {
            life.log.sync_through(life.log.last()).unwrap();
        }
        if random.chance(40) {
            seen.extend(drain(&mut reader));
        }
    }
    seen.extend(drain(&mut reader));
    assert_eq!(indexes(&seen), (2..=1000).collect::<Vec<_>>());
    let (written, read) = (life.faults.bytes() - before.0, life.faults.read_bytes() - before.1);
    assert!(read > written / 4, "a part is read from the file: {read} of {written} bytes");
    assert!(read <= written, "{read} bytes are read of {written}");
}

#[test]
fn what_is_not_synced_yet_is_read_from_memory() {
    let mut rig = Rig::new(2);
    let life = rig.open();
    life.wait_for_spare();
    life.sync(b"two");
    for number in 3..=20 {
        life.write(&body(number, 15_000 / number as usize));
    }
    // Were it read, the file would be damaged.
    let path = rig.path(1);
    let bytes = rig.disk.read(&path).unwrap();
    let mut reader = life.log.reader(Index(2));
    rig.disk.replace(&path, vec![0xff; bytes.len()]);
    assert_eq!(indexes(&drain(&mut reader)), (3..=20).collect::<Vec<_>>());
    assert_eq!(indexes(&drain(&mut life.log.reader(Index(11)))), (12..=20).collect::<Vec<_>>());
    rig.disk.replace(&path, bytes);
    life.log.sync_through(Index(20)).unwrap();
    assert_eq!(indexes(&drain(&mut life.log.reader(Index(2)))), (3..=20).collect::<Vec<_>>());
}

#[test]
fn a_reader_sees_durable_records_only() {
    let mut rig = Rig::new(3);
    let life = rig.open_with(Index(0), |options| options.durability = Durability::Fsync);
    life.wait_for_spare();
    let mut reader = life.log.reader(Index(1));
    life.faults.hold_syncs(true);
    let index = life.write(b"two");
    assert_eq!(drain(&mut reader), []);
    life.faults.hold_syncs(false);
    life.wait_until("it is synced", |log| log.synced() == index);
    assert_eq!(indexes(&drain(&mut reader)), [2]);
    assert_eq!(reader.position(), Index(3));
}

#[test]
fn a_reader_that_comes_too_late_is_told_where_the_log_begins() {
    let mut rig = Rig::new(4);
    let life = rig.open_with(Index(0), |options| options.retention.bytes = 0);
    let mut reader = life.log.reader(Index(0));
    let mut last = Index(1);
    while life.log.stats().segments < 4 {
        last = life.sync(&body(last.0, 5000));
    }
    life.log.purge(last);
    let first = life.log.stats().first;
    assert!(first > Index(2));
    assert!(matches!(reader.next(), Ok(Next::Gap(at)) if at == first));
    assert_eq!(indexes(&drain(&mut life.log.reader(Index(first.0 - 1)))), (first.0..=last.0).collect::<Vec<_>>());
}

#[test]
fn a_reader_goes_on_across_a_failed_sync() {
    let mut rig = Rig::new(5);
    let life = rig.open();
    life.wait_for_spare();
    for number in 2..=10 {
        life.sync(&body(number, 100));
    }
    let mut reader = life.log.reader(Index(4));
    assert!(matches!(reader.next(), Ok(Next::Record(record)) if record.index == Index(5)));
    for number in 11..=20 {
        life.write(&body(number, 100));
    }
    rig.disk.fail_syncs(1);
    life.log.sync_through(Index(20)).unwrap();
    life.write(&body(21, 100));
    let records = drain(&mut reader);
    assert_eq!(indexes(&records), (6..=21).collect::<Vec<_>>());
    assert_ne!(records[4].segment, records[5].segment);
}

#[test]
fn a_dump_names_every_record_that_counts_and_changes_nothing() {
    let mut rig = Rig::new(6);
    let life = rig.open();
    life.wait_for_spare();
    life.sync(b"two");
    life.write(b"three");
    // Superseded: the third record is in two segments, and counts in the second one.
    rig.disk.fail_syncs(1);
    life.log.sync_through(Index(3)).unwrap();
    life.write(b"four");
    life.log.close().unwrap();
    let last = rig.open();
    rig.disk.kill();
    let before: Vec<_> = rig.files().iter().map(|path| (path.clone(), rig.disk.read(path).unwrap())).collect();
    let entries: Vec<_> = dump(&rig.disk, Path::new(DIR)).unwrap().collect::<Result<_, _>>().unwrap();
    let after: Vec<_> = rig.files().iter().map(|path| (path.clone(), rig.disk.read(path).unwrap())).collect();
    assert_eq!(before, after);
    let mut records = Vec::new();
    let mut segments = Vec::new();
    for entry in &entries {
        match entry {
            DumpEntry::Record { segment, offset, index, kind, body, .. } => {
                records.push((*segment, *offset, *index, kind.unwrap(), body.clone()));
            }
            DumpEntry::Segment { number, history, .. } => {
                assert_eq!(*history, last.history);
                segments.push(*number);
            }
            DumpEntry::End { last, is_clean, .. } => assert_eq!((*last, *is_clean), (Index(4), false)),
            DumpEntry::Damage(damage) => panic!("{damage}"),
        }
    }
    let found =
        last.found.iter().map(|record| (record.segment, record.offset, record.index, record.kind, record.body.clone()));
    assert_eq!(records, found.collect::<Vec<_>>());
    assert_eq!(records.iter().map(|record| record.2.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(segments.is_sorted() && segments.len() >= 3);
}

#[test]
fn a_dump_goes_on_behind_damage() {
    let mut rig = Rig::new(7);
    let life = rig.open();
    for number in 2..=100 {
        life.write(&body(number, 3000));
    }
    life.log.sync_through(Index(100)).unwrap();
    rig.disk.kill();
    let found = rig.open().found;
    rig.disk.kill();
    let (bad, next_segment) = (&found[30], found.iter().find(|record| record.segment > found[30].segment).unwrap());
    rig.damage(&rig.path(bad.segment), bad.offset + 500);
    let (mut records, mut damages) = (Vec::new(), Vec::new());
    for entry in dump(&rig.disk, Path::new(DIR)).unwrap() {
        match entry.unwrap() {
            DumpEntry::Record { index, .. } => records.push(index.0),
            DumpEntry::Damage(damage) => damages.push((damage.file, damage.offset, damage.index)),
            DumpEntry::Segment { .. } | DumpEntry::End { .. } => {}
        }
    }
    assert_eq!(damages, [(rig.path(bad.segment), bad.offset, bad.index)]);
    let expected = (1..bad.index.0).chain(next_segment.index.0..=100);
    assert_eq!(records, expected.collect::<Vec<_>>());
}
