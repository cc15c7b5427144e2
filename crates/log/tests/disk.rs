//! The log on the operating system's files.

mod common;

use common::*;
use haypile_log::*;

#[test]
fn a_log_on_a_real_disk_is_written_left_and_found_again() {
    let dir = std::env::temp_dir().join(format!("haypile-log-disk-{}", std::process::id()));
    let open = |applied: u64| {
        let options = Options { segment_bytes: 256 * 1024, ..Options::new(dir.join("below/log")) };
        let mut opened = Log::open(options, Index(applied)).unwrap();
        let mut bodies = Vec::new();
        while let Some(record) = opened.replay.next() {
            let record = record.unwrap();
            if record.kind == Kind::Effects {
                bodies.push(record.body.to_vec());
            }
        }
        opened.replay.finish().unwrap();
        (opened.log, opened.clean, bodies)
    };
    let append = |log: &Log, number: u64| {
        let body = body(number, 500);
        let reserved = log.reserve_within(body.len(), LONG).unwrap();
        log.append(reserved, Kind::Effects, 0, &body, body_crc(&body));
        log.write();
    };
    let expected: Vec<_> = (0..3000).map(|number| body(number, 500)).collect();
    let (log, clean, found) = open(0);
    assert!(!clean && found.is_empty());
    (0..2000).for_each(|number| append(&log, number));
    log.sync_through(log.last()).unwrap();
    assert!(log.stats().segments > 3);
    // Dropped without being closed, as a process that dies.
    drop(log);
    let (log, clean, found) = open(0);
    assert!(!clean);
    assert_eq!(found, expected[..2000]);
    (2000..3000).for_each(|number| append(&log, number));
    log.close().unwrap();
    drop(log);
    let (log, clean, found) = open(0);
    assert!(clean);
    assert_eq!(found, expected);
    drop(log);
    std::fs::remove_dir_all(dir).unwrap();
}
