//! Printing a log offline: every record that counts, and every place that is bad, without changing anything.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Damage, OpenError};
use crate::files::{File, Files};
use crate::format::{History, Index, Kind, Origin, SEGMENT_HEADER_BYTES};
use crate::listing::{first_index, list, open_segment};
use crate::segment::Segment;
use crate::walk::{Walk, highest_mark};

/// One line of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpEntry {
    /// A file that holds records, or may.
    Segment {
        number: u64,
        file: PathBuf,
        history: History,
        origin: Origin,
        first: Option<Index>,
    },
    Record {
        segment: u64,
        offset: u64,
        index: Index,
        term: u64,
        entry: u64,
        /// The kind of the record; None for one that this version does not know.
        kind: Option<Kind>,
        time_ms: u64,
        body: Vec<u8>,
    },
    Damage(Damage),
    /// The end of the log: the place at which the next record would be looked for.
    End {
        segment: u64,
        offset: u64,
        last: Index,
        /// The mark of a clean stop is there.
        is_clean: bool,
    },
}

/// Iterates over the log in `dir`, which no server may be writing to.
pub fn dump(files: &dyn Files, dir: &Path) -> Result<Dump, OpenError> {
    let mut segments = Vec::new();
    let mut queue = Vec::new();
    for (number, path) in list(files, dir)?.segments {
        match open_segment(files, number, path) {
            Ok((segment, file)) => {
                let first = first_index(&segment, &*file).map_err(OpenError::io(&segment.path))?;
                segments.push((segment, file, first));
            }
            Err(OpenError::Damage(damage)) => queue.push(DumpEntry::Damage(damage)),
            Err(error) => return Err(error),
        }
    }
    queue.reverse();
    segments.reverse();
    Ok(Dump { segments, queue, current: None })
}

/// A segment with its open file and its first record.
type Listed = (Segment, Arc<dyn File>, Option<Index>);

pub struct Dump {
    /// The segments still to come, the next one last.
    segments: Vec<Listed>,
    queue: Vec<DumpEntry>,
    current: Option<Current>,
}

struct Current {
    segment: Segment,
    file: Arc<dyn File>,
    walk: Walk,
    /// The last record that counts; None in the last segment.
    last: Option<Index>,
}

impl Iterator for Dump {
    type Item = Result<DumpEntry, OpenError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(entry) = self.queue.pop() {
            return Some(Ok(entry));
        }
        if let Some(current) = self.current.take() {
            return Some(self.step(current));
        }
        let listed = self.segments.pop()?;
        Some(self.begin(listed))
    }
}

impl Dump {
    fn begin(&mut self, (segment, file, first): Listed) -> Result<DumpEntry, OpenError> {
        let entry = DumpEntry::Segment {
            number: segment.header.number,
            file: segment.path.clone(),
            history: segment.header.start.history,
            origin: segment.header.start.origin,
            first,
        };
        if let Some(first) = first {
            let bytes = file.len().map_err(OpenError::io(&segment.path))?;
            let walk = Walk::new(file.clone(), segment.header.salt, first, bytes);
            let later = self.segments.iter().rev().find_map(|(_, _, first)| *first);
            self.current = Some(Current { segment, file, walk, last: later.map(|first| Index(first.0 - 1)) });
        }
        Ok(entry)
    }

    fn step(&mut self, mut current: Current) -> Result<DumpEntry, OpenError> {
        if current.last.is_some_and(|last| current.walk.next_index() > last) {
            return match self.segments.pop() {
                Some(listed) => self.begin(listed),
                None => unreachable!("a later segment set the bound"),
            };
        }
        match current.walk.step().map_err(OpenError::io(&current.segment.path))? {
            Ok(found) => {
                let entry = DumpEntry::Record {
                    segment: current.segment.header.number,
                    offset: found.offset,
                    index: found.header.index,
                    term: found.group.entry.term,
                    entry: found.group.entry.number,
                    kind: Kind::from_number(found.header.kind),
                    time_ms: found.header.time_ms,
                    body: current.walk.body(&found).to_vec(),
                };
                self.current = Some(current);
                Ok(entry)
            }
            Err(bad) => {
                let Current { segment, file, last, walk } = current;
                let mut needed = last.unwrap_or(Index(0));
                if last.is_none() {
                    let mark = highest_mark(&*file, segment.header.salt, bad.offset, bad.index);
                    needed = mark.map_err(OpenError::io(&segment.path))?.mark;
                    for (spare, file, _) in &self.segments {
                        let mark = highest_mark(&**file, spare.header.salt, SEGMENT_HEADER_BYTES, bad.index);
                        needed = needed.max(mark.map_err(OpenError::io(&spare.path))?.mark);
                    }
                }
                if bad.index <= needed {
                    let (file, offset) = (segment.path, bad.offset);
                    let reason = format!("{}, and record {needed} was synced", bad.reason);
                    return Ok(DumpEntry::Damage(Damage { file, offset, index: bad.index, reason }));
                }
                let last = Index(bad.index.0 - 1);
                let is_clean = walk.marked().is_some();
                Ok(DumpEntry::End { segment: segment.header.number, offset: bad.offset, last, is_clean })
            }
        }
    }
}
