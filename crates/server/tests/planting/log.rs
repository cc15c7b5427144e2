//! The records of a directory's log: where they lie, one of them damaged, one more behind them.

use haypile_log::{Body, DiskFiles, DumpEntry, Index, Kind, Log, RECORD_HEADER_BYTES, body_crc, dump};
use std::fs;
use std::path::{Path, PathBuf};

/// Where a record lies.
pub struct Place {
    pub file: PathBuf,
    pub offset: u64,
    pub index: u64,
    /// Bytes of its body.
    pub bytes: usize,
}

/// The records of a directory's log, in order.
pub fn records(dir: &Path) -> Vec<Place> {
    let mut file = Default::default();
    let mut records = Vec::new();
    for entry in dump(&DiskFiles, &dir.join("log")).expect("a log") {
        match entry.expect("a log") {
            DumpEntry::Segment { file: next, .. } => file = next,
            DumpEntry::Record { offset, index, body, .. } => {
                records.push(Place { file: file.clone(), offset, index: index.0, bytes: body.len() });
            }
            DumpEntry::Damage(_) | DumpEntry::End { .. } => {}
        }
    }
    records
}

/// Turns a bit in the body of a record.
pub fn flip(record: &Place) {
    let mut bytes = fs::read(&record.file).expect("a segment");
    bytes[record.offset as usize + RECORD_HEADER_BYTES + record.bytes / 2] ^= 1;
    fs::write(&record.file, bytes).expect("it is writable");
}

/// Writes a record behind the last one.
pub fn append(dir: &Path, body: &Body) -> u64 {
    let last = Index(records(dir).last().expect("a record").index);
    let options = haypile_log::Options::new(dir.join("log"));
    let mut opened = Log::open(options, last).expect("the log is sound");
    opened.replay.finish().expect("the log is sound");
    let reserved = opened.log.reserve(body.len()).expect("room");
    let index = opened.log.append(reserved, Kind::Effects, 1_000, body.bytes(), body_crc(body.bytes()));
    opened.log.close().expect("there is room");
    index.0
}
