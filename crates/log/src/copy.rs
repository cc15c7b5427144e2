//! A log that is written anew, record by record: for a backup, and for a restore.
//!
//! Its segments end with exactly the record that was added last, share no file with the log they come from, and say of
//! every record that it is synced, so that a bad place in them is damage and not a torn tail.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::{File, write_all_at};
use crate::format::{
    Entry, GROUP_HEADER_BYTES, HistoryStart, Index, RecordHeader, SEGMENT_HEADER_BYTES, Salt, SegmentHeader, seal,
};
use crate::histories::Histories;
use crate::options::Options;
use crate::record::Record;
use crate::segment::segment_name;

/// A group of a copy is written when it has so many bytes.
pub(crate) const GROUP_BYTES: usize = 256 << 10;

/// A copy is synced after so many bytes: one sync of all of it would hold up the log's own.
const SYNC_BYTES: u64 = 8 << 20;

/// The size of a finished copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    pub bytes: u64,
    pub records: u64,
}

/// Why there is no copy; what was written of it is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportError(pub String);

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ExportError {}

/// A log that is being written into a directory, record by record.
pub struct Copy<'a> {
    options: &'a Options,
    dir: &'a Path,
    segment: Option<Segment>,
    number: u64,
    salts: u32,
    /// Whole records behind room for their header, for the current segment.
    group: Vec<u8>,
    group_first: Index,
    group_entry: Entry,
    /// The record that comes next.
    record: Vec<u8>,
    record_index: Index,
    record_entry: Entry,
    exported: Exported,
}

struct Segment {
    path: PathBuf,
    file: Arc<dyn File>,
    header: SegmentHeader,
    offset: u64,
    unsynced_bytes: u64,
}

impl<'a> Copy<'a> {
    /// Begins a log in the empty directory `dir`, with the files, the size of segments, the clock and the random
    /// numbers of these options.
    pub fn new(options: &'a Options, dir: &'a Path) -> Copy<'a> {
        Copy {
            options,
            dir,
            segment: None,
            number: 0,
            salts: (options.random)() as u32,
            group: vec![0; GROUP_HEADER_BYTES],
            group_first: Index(0),
            group_entry: Entry::default(),
            record: Vec::new(),
            record_index: Index(0),
            record_entry: Entry::default(),
            exported: Exported::default(),
        }
    }

    /// Takes the record that `add` adds.
    pub fn take(&mut self, record: &Record<'_>) {
        let Record { index, kind, time_ms, body, body_crc, .. } = *record;
        let header = RecordHeader { body_crc, body_bytes: body.len() as u32, kind: kind as u8, time_ms, index };
        self.record.clear();
        self.record.extend_from_slice(&header.encode());
        self.record.extend_from_slice(body);
        self.record_index = index;
        self.record_entry = Entry { term: record.term, number: record.entry };
    }

    /// Adds the record that was taken, which is of this history; true if something was written. `histories` has the
    /// chain of histories with that one.
    ///
    /// # Errors
    /// A file cannot be written; what was written is of no use.
    pub fn add(&mut self, start: HistoryStart, histories: &dyn Fn() -> Histories) -> Result<bool, ExportError> {
        let entry = self.record_entry;
        let bytes = (self.group.len() + self.record.len()) as u64;
        let segment_bytes = self.options.segment_bytes;
        let fits = self
            .segment
            .as_ref()
            .is_some_and(|segment| segment.header.start == start && segment.offset + bytes <= segment_bytes);
        let is_empty = self.group.len() == GROUP_HEADER_BYTES;
        let ends_group = !is_empty && (!fits || entry != self.group_entry || bytes > GROUP_BYTES as u64);
        if ends_group {
            self.write_group()?;
        }
        if !fits {
            self.begin_segment(start, self.record_index, histories)?;
        }
        if self.group.len() == GROUP_HEADER_BYTES {
            (self.group_first, self.group_entry) = (self.record_index, entry);
        }
        self.group.extend_from_slice(&self.record);
        self.exported.records += 1;
        Ok(ends_group)
    }

    fn write_group(&mut self) -> Result<(), ExportError> {
        let Some(segment) = &mut self.segment else { return Ok(()) };
        // The copy is synced as a whole before anything may open it.
        let synced = Index(self.group_first.0 - 1);
        seal(&mut self.group, segment.header.salt, self.group_first, synced, self.group_entry);
        let result = write_all_at(&*segment.file, &self.group, segment.offset);
        result.map_err(failed("writing", &segment.path))?;
        let bytes = self.group.len() as u64;
        segment.offset += bytes;
        segment.unsynced_bytes += bytes;
        self.exported.bytes += bytes;
        self.group.truncate(GROUP_HEADER_BYTES);
        if segment.unsynced_bytes >= SYNC_BYTES { segment.sync() } else { Ok(()) }
    }

    fn begin_segment(
        &mut self,
        start: HistoryStart,
        first: Index,
        histories: &dyn Fn() -> Histories,
    ) -> Result<(), ExportError> {
        self.end_segment()?;
        self.number += 1;
        let ancestors = histories().through(start.history).ancestors();
        let header = SegmentHeader {
            number: self.number,
            first,
            salt: Salt::of(self.salts.wrapping_add(self.number as u32)),
            created_ms: (self.options.now_ms)(),
            start,
            ancestors,
            // The segment is complete: nothing is allocated ahead.
            allocated_bytes: 0,
        };
        let path = self.dir.join(segment_name(self.number));
        let made = self.options.files.create(&path).and_then(|file| {
            write_all_at(&*file, &header.encode()[..], 0)?;
            Ok(file)
        });
        let file = made.map_err(failed("writing", &path))?;
        self.exported.bytes += SEGMENT_HEADER_BYTES;
        self.segment = Some(Segment { path, file, header, offset: SEGMENT_HEADER_BYTES, unsynced_bytes: 0 });
        Ok(())
    }

    fn end_segment(&mut self) -> Result<(), ExportError> {
        self.segment.take().map_or(Ok(()), |mut segment| segment.sync())
    }

    /// Ends the copy, which is synced when this returns; `next` would be its next record. A segment without records
    /// tells the history `start` that the base's applied index may be of, where the last record is of another.
    ///
    /// # Errors
    /// A file cannot be written; what was written is of no use.
    pub fn end(
        mut self,
        start: HistoryStart,
        next: Index,
        histories: &dyn Fn() -> Histories,
    ) -> Result<Exported, ExportError> {
        if self.group.len() > GROUP_HEADER_BYTES {
            self.write_group()?;
        }
        if self.segment.as_ref().is_none_or(|segment| segment.header.start != start) {
            self.begin_segment(start, next, histories)?;
        }
        self.end_segment()?;
        self.options.files.sync_dir(self.dir).map_err(failed("syncing", self.dir))?;
        Ok(self.exported)
    }
}

impl Segment {
    fn sync(&mut self) -> Result<(), ExportError> {
        self.unsynced_bytes = 0;
        self.file.sync().map_err(failed("syncing", &self.path))
    }
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ExportError {
    let path = path.to_owned();
    move |error| ExportError(format!("{doing} {}: {error}", path.display()))
}
