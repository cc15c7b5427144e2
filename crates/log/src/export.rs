//! A part of the log as a log of its own: what a backup takes.
//!
//! It is read as any live reader reads it, out of memory or out of files, and written anew: its segments end with
//! exactly the record that was asked for, share no file with the log they come from, and say of every record that it is
//! synced, so that a bad place in them is damage and not a torn tail. While a [`Hold`] lives, what it holds is not
//! purged.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::body::body_crc;
use crate::files::{File, write_all_at};
use crate::format::{
    Entry, GROUP_HEADER_BYTES, HistoryStart, Index, RecordHeader, SEGMENT_HEADER_BYTES, Salt, SegmentHeader, seal,
};
use crate::log::Log;
use crate::reader::Next;
use crate::record::Record;
use crate::segment::segment_name;
use crate::state::Shared;

/// A group of a copy is written when it has so many bytes.
const GROUP_BYTES: usize = 256 << 10;

/// A copy is synced after so many bytes: one sync of all of it would hold up the log's own.
const SYNC_BYTES: u64 = 8 << 20;

/// Keeps the records above an index from being purged, as long as it lives.
#[must_use = "what is not held may be purged"]
pub struct Hold {
    shared: Arc<Shared>,
    after: Index,
}

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

impl Hold {
    /// Every record above this is there, and stays.
    pub fn after(&self) -> Index {
        self.after
    }

    /// Returns the bytes of the segments that would go without it, as far as nothing else keeps them.
    pub fn kept_bytes(&self) -> u64 {
        let state = self.shared.state.lock();
        let is_kept = |held: &&crate::segment::Held| held.last > self.after && held.last <= state.applied;
        state.segments.iter().filter(is_kept).map(|held| held.bytes).sum()
    }

    /// Lets go of the records through `after`.
    ///
    /// # Panics
    /// What was let go of does not come back.
    pub fn advance(&mut self, after: Index) {
        assert!(after >= self.after, "a hold only advances");
        let mut state = self.shared.state.lock();
        let held = state.holds.iter_mut().find(|held| **held == self.after);
        *held.expect("it is there as long as the hold lives") = after;
        self.after = after;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let at = state.holds.iter().position(|held| *held == self.after);
        state.holds.swap_remove(at.expect("a hold is there until it is let go of"));
    }
}

impl Log {
    /// Keeps all records above the applied index that the log was told last, from now on.
    pub fn hold(&self) -> Hold {
        let mut state = self.shared.state.lock();
        let after = state.applied;
        state.holds.push(after);
        Hold { shared: self.shared.clone(), after }
    }

    /// Hands over the hold that the log was opened with; None if it was opened with none, or handed it over before. Not
    /// all that it holds need be there.
    pub fn take_kept(&self) -> Option<Hold> {
        let after = self.shared.state.lock().kept.take()?;
        Some(Hold { shared: self.shared.clone(), after })
    }

    /// Keeps all records above `after` from now on; None where one of them is gone already.
    pub fn hold_after(&self, after: Index) -> Option<Hold> {
        let mut state = self.shared.state.lock();
        let first = state.segments.first().map_or(state.written.next(), |held| held.first);
        // The index may be a peer's claim.
        if after.0 < first.0.saturating_sub(1) {
            return None;
        }
        state.holds.push(after);
        Some(Hold { shared: self.shared.clone(), after })
    }

    /// Writes what is held, through `until`, which is durable, as a log into the empty directory `dir`. It is synced
    /// when this returns. Asks `goes_on` now and then, and stops where it says no.
    pub fn export(
        &self,
        hold: &Hold,
        until: Index,
        dir: &Path,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Exported, ExportError> {
        let mut copy = Copy::new(&self.shared, dir);
        let mut reader = self.reader(hold.after);
        while reader.position() <= until {
            let entry = match reader.next().map_err(|error| ExportError(error.to_string()))? {
                Next::Record(record) => {
                    copy.take(&record);
                    Entry { term: record.term, number: record.entry }
                }
                Next::UpToDate => return Err(ExportError(format!("the log is not durable up to record {until}"))),
                Next::Gap(first) => return Err(ExportError(format!("the log's next record is {first}"))),
            };
            if copy.add(reader.start(), entry)? && !goes_on() {
                return Err(ExportError("it was broken off".into()));
            }
        }
        let state = self.shared.state.lock();
        let stamp = state.histories.stamp(until).and_then(|history| state.histories.start_of(history));
        let start = stamp.unwrap_or(state.start());
        drop(state);
        copy.end(start, until.next())
    }
}

/// A log that is being written.
struct Copy<'a> {
    shared: &'a Shared,
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
    fn new(shared: &'a Shared, dir: &'a Path) -> Copy<'a> {
        Copy {
            shared,
            dir,
            segment: None,
            number: 0,
            salts: (shared.options.random)() as u32,
            group: vec![0; GROUP_HEADER_BYTES],
            group_first: Index(0),
            group_entry: Entry::default(),
            record: Vec::new(),
            record_index: Index(0),
            exported: Exported::default(),
        }
    }

    fn take(&mut self, record: &Record<'_>) {
        let Record { index, kind, time_ms, body, .. } = *record;
        let header =
            RecordHeader { body_crc: body_crc(body), body_bytes: body.len() as u32, kind: kind as u8, time_ms, index };
        self.record.clear();
        self.record.extend_from_slice(&header.encode());
        self.record.extend_from_slice(body);
        self.record_index = index;
    }

    /// Adds the record that was taken, which is of this history and entry; true if something was written.
    fn add(&mut self, start: HistoryStart, entry: Entry) -> Result<bool, ExportError> {
        let bytes = (self.group.len() + self.record.len()) as u64;
        let segment_bytes = self.shared.options.segment_bytes;
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
            self.begin_segment(start, self.record_index)?;
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

    fn begin_segment(&mut self, start: HistoryStart, first: Index) -> Result<(), ExportError> {
        self.end_segment()?;
        self.number += 1;
        let ancestors = self.shared.state.lock().histories.through(start.history).ancestors();
        let header = SegmentHeader {
            number: self.number,
            first,
            salt: Salt::of(self.salts.wrapping_add(self.number as u32)),
            created_ms: (self.shared.options.now_ms)(),
            start,
            ancestors,
            // The segment is complete: nothing is allocated ahead.
            allocated_bytes: 0,
        };
        let path = self.dir.join(segment_name(self.number));
        let made = self.shared.files.create(&path).and_then(|file| {
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

    /// Ends the copy. A segment without records tells the history that the base's applied index may be of, where the
    /// last record is of another.
    fn end(mut self, start: HistoryStart, next: Index) -> Result<Exported, ExportError> {
        if self.group.len() > GROUP_HEADER_BYTES {
            self.write_group()?;
        }
        if self.segment.as_ref().is_none_or(|segment| segment.header.start != start) {
            self.begin_segment(start, next)?;
        }
        self.end_segment()?;
        self.shared.files.sync_dir(self.dir).map_err(failed("syncing", self.dir))?;
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
