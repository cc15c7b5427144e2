//! A part of the log as a log of its own, and what is held for it.

mod common;

use std::path::Path;

use common::*;
use haypile_log::*;

const COPY: &str = "/copy";

/// Copies what is held through `until`.
fn export(life: &Life, hold: &Hold, until: Index) -> Result<Exported, ExportError> {
    life.faults.create_dir_all(Path::new(COPY)).unwrap();
    for name in life.faults.list(Path::new(COPY)).unwrap() {
        life.faults.remove(&Path::new(COPY).join(name)).unwrap();
    }
    life.log.export(hold, until, Path::new(COPY), &|| true)
}

fn open_copy(rig: &mut Rig, applied: u64, through: u64) -> Result<Life, OpenError> {
    rig.try_open(Index(applied), |options| {
        options.dir = COPY.into();
        options.complete_through = Index(through);
        options.end = None;
    })
}

#[test]
fn the_bytes_behind_a_record_are_known_about() {
    let mut rig = Rig::new(1);
    let life = written(&mut rig);
    let behind: Vec<u64> = (0..=600).map(|after| life.log.bytes_after(Index(after))).collect();
    assert!(behind.windows(2).all(|pair| pair[0] >= pair[1]), "{behind:?}");
    assert_eq!(behind[600], 0);
    // A record of 600 bytes takes a little more.
    for after in [0, 150, 350, 590] {
        let per_record = behind[after] / (600 - after as u64);
        assert!((500..=1200).contains(&per_record), "{per_record} behind {after}");
    }
    assert_eq!(life.log.bytes_after(Index(u64::MAX)), 0);
}

#[test]
fn a_copy_holds_exactly_the_records_that_were_asked_for() {
    let mut rig = Rig::new(1);
    let life = written(&mut rig);
    let all: Vec<Owned> = {
        let mut reader = life.log.reader(Index(0));
        std::iter::from_fn(|| match reader.next().unwrap() {
            Next::Record(record) => Some(Owned::of(record)),
            _ => None,
        })
        .collect()
    };
    assert_eq!(all.len(), 600);
    let histories = all.iter().map(|record| record.history).collect::<std::collections::HashSet<_>>();
    assert_eq!(histories.len(), 2);
    for (applied, until) in
        [(0, 600), (0, 1), (0, 301), (250, 599), (300, 301), (399, 400), (399, 401), (5, 402), (600, 600)]
    {
        life.log.purge(Index(applied));
        let hold = life.log.hold();
        let begin = hold.after();
        let exported = export(&life, &hold, Index(until)).unwrap();
        assert_eq!(exported.records, until.saturating_sub(begin.0));
        drop(hold);
        let copy = open_copy(&mut rig, begin.0, until).unwrap();
        let records = |records: &[Owned]| -> Vec<_> {
            records.iter().map(|r| (r.index, r.history, r.time_ms, r.body.clone())).collect()
        };
        assert_eq!(records(&copy.found), records(&all[begin.0 as usize..until as usize]), "{begin} to {until}");
        assert_eq!(copy.last, Index(until));
        assert!(!copy.clean, "two logs must not go on with one history");
        let end = &all[until as usize - 1];
        assert_eq!(copy.parent, Some((end.history, Index(until))), "{begin} to {until}");
        assert_ne!(copy.history, end.history);
        assert!(copy.sync(b"more") > Index(until));
    }
}

#[test]
fn what_is_missing_of_a_copy_is_damage() {
    let mut rig = Rig::new(2);
    let life = written(&mut rig);
    export(&life, &life.log.hold(), Index(600)).unwrap();
    let mut names = rig.disk.list(Path::new(COPY)).unwrap();
    names.sort();
    assert!(names.len() > 4);
    let paths: Vec<_> = names.iter().map(|name| Path::new(COPY).join(name)).collect();
    let contents: Vec<Vec<u8>> = paths.iter().map(|path| rig.disk.read(path).unwrap()).collect();
    let damage = |rig: &mut Rig, what: &str| match open_copy(rig, 0, 600).err() {
        Some(OpenError::Damage(damage)) => damage,
        other => panic!("{what}: {other:?}"),
    };
    let (path, whole) = (paths.last().unwrap(), contents.last().unwrap());
    for bytes in [whole.len() - 1, whole.len() / 2, 4096] {
        rig.disk.replace(path, whole[..bytes].to_vec());
        let found = damage(&mut rig, "a file that ends early");
        assert!(found.reason.contains("all through record 600 was synced"), "{found}");
    }
    rig.disk.replace(path, whole.clone());
    rig.damage(path, whole.len() as u64 - 3);
    damage(&mut rig, "a flipped bit in the last record");
    rig.disk.remove(path).unwrap();
    damage(&mut rig, "the last segment is gone");
    for path in &paths[..paths.len() - 1] {
        rig.disk.remove(path).unwrap();
    }
    damage(&mut rig, "nothing is there");
    for (path, bytes) in paths.iter().zip(contents) {
        rig.disk.replace(path, bytes);
    }
    assert_eq!(open_copy(&mut rig, 0, 600).unwrap().found.len(), 600);
}

#[test]
fn what_is_held_is_not_purged() {
    let mut rig = Rig::new(3);
    let life = rig.open_with(Index(0), |options| options.retention.bytes = 0);
    for number in 2..=300 {
        life.write(&body(number, 600));
    }
    life.log.sync_through(Index(300)).unwrap();
    life.log.purge(Index(150));
    let (first, second) = (life.log.hold(), life.log.hold());
    assert_eq!(first.after(), Index(150));
    let kept = life.log.stats().first;
    assert!(kept > Index(1) && kept <= Index(151), "{kept}");
    for number in 301..=600 {
        life.write(&body(number, 600));
    }
    life.log.sync_through(Index(600)).unwrap();
    life.log.purge(Index(600));
    assert_eq!(life.log.stats().first, kept);
    drop(first);
    life.log.purge(Index(600));
    assert_eq!(life.log.stats().first, kept, "the other one still holds it");
    assert_eq!(export(&life, &second, Index(500)).unwrap().records, 350);
    drop(second);
    life.log.purge(Index(600));
    assert!(life.log.stats().first > Index(500), "{:?}", life.log.stats());
}

#[test]
fn a_copy_that_cannot_be_written_is_an_error_and_the_log_goes_on() {
    let mut rig = Rig::new(4);
    let life = written(&mut rig);
    let hold = life.log.hold();
    let error = life.log.export(&hold, Index(600), Path::new("/missing"), &|| true).unwrap_err();
    assert!(error.0.contains("/missing"), "{error}");
    let error = export(&life, &hold, Index(601)).unwrap_err();
    assert!(error.0.contains("not durable up to record 601"), "{error}");
    life.faults.create_dir_all(Path::new(COPY)).unwrap();
    let error = life.log.export(&hold, Index(600), Path::new(COPY), &|| false).unwrap_err();
    assert!(error.0.contains("broken off"), "{error}");
    life.sync(b"goes on");
    assert_eq!(export(&life, &hold, life.log.last()).unwrap().records, 601);
}
