//! What is in the directory at open: which segments count, up to where, and whether what is missing may be missing.
//!
//! Nothing is changed here. The rule: the first bad place ends the log, unless a record at or behind that place is known
//! to have been synced, by some group that is still readable, by the end file, or because the base holds it; then it is
//! damage, and an error that says where. What is cut off is reported.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::end::{DirectoryId, End, Noted, read_end};
use crate::files::{File, Files, read_exact_at, write_all_at};
use crate::format::{
    FORMAT_VERSION, GROUP_HEADER_BYTES, GroupHeader, HeaderError, History, HistoryStart, Index, Kind,
    SEGMENT_HEADER_BYTES, SegmentHeader,
};
use crate::histories::Histories;
use crate::options::Options;
use crate::state::{FileName, Held, Segment, segment_name};
use crate::walk::{Behind, Walk, highest_mark};

/// Bytes that are written again at a time.
const WRITE_BYTES: usize = 1 << 20;

/// What to do where files of a data directory are missing or damaged.
pub const ADVICE: &str = "Nothing was repaired. Put back what is missing, or restore a backup into an empty directory: \
docs/operations.md, \"When it does not start\", has the steps";

/// Records that should be there and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub file: PathBuf,
    /// Offset in the file of the bad place.
    pub offset: u64,
    /// The first record that cannot be read.
    pub index: Index,
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { file, offset, index, reason } = self;
        write!(f, "the log is damaged: {} at offset {offset}, record {index}: {reason}", file.display())
    }
}

/// What the base says of itself: the record up to which it holds everything, and that record's history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// 0 where the base holds nothing.
    pub index: Index,
    /// None where it is not known: then it is not compared.
    pub history: Option<History>,
}

impl From<Index> for Applied {
    fn from(index: Index) -> Applied {
        Applied { index, history: None }
    }
}

/// The end of a log that was found behind its last whole record, and is cut off. It was not known to be synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    pub file: PathBuf,
    pub offset: u64,
    /// From the end of the last record to the last byte that is not zero.
    pub bytes: u64,
    /// The last record that counts.
    pub last: Index,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cut { file, offset, bytes, last } = self;
        write!(f, "{bytes} bytes behind record {last}, in {} from offset {offset} on", file.display())
    }
}

/// Why a log cannot be opened, or replayed.
#[derive(Debug)]
pub enum OpenError {
    Io {
        path: PathBuf,
        error: io::Error,
    },
    Damage(Damage),
    /// Written by a later version: with a kind of record that this one does not know, or a note of another format.
    Newer {
        path: PathBuf,
        what: String,
    },
    /// Written by another version of the format, which this one does not read.
    OtherVersion {
        path: PathBuf,
        found: u32,
    },
    /// The end file names another directory than the one it is in.
    Mixed {
        path: PathBuf,
        found: DirectoryId,
        expected: DirectoryId,
    },
    /// The first segment cannot be made.
    Begin(String),
}

impl OpenError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> OpenError {
        let path = path.to_owned();
        move |error| OpenError::Io { path, error }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Io { path, error } => write!(f, "cannot read the log: {}: {error}", path.display()),
            OpenError::Damage(damage) => write!(f, "{damage}. {ADVICE}"),
            OpenError::Newer { path, what } => {
                write!(f, "the log was written by a newer version: {}: {what}", path.display())
            }
            OpenError::OtherVersion { path, found, .. } => {
                let (age, reads) = (if *found > FORMAT_VERSION { "a newer" } else { "an older" }, FORMAT_VERSION);
                write!(
                    f,
                    "the log was written by {age} version: {} has format version {found}, and this version of Haypile \
                     reads version {reads} only. Export the data with the version that wrote them, and import them here",
                    path.display()
                )
            }
            OpenError::Mixed { path, found, expected } => {
                write!(
                    f,
                    "files of two directories are mixed: {} belongs to directory {found}, and the others to {expected}. {ADVICE}",
                    path.display()
                )
            }
            OpenError::Begin(text) => write!(f, "cannot begin to write the log: {text}"),
        }
    }
}

impl std::error::Error for OpenError {}

#[derive(Clone, Debug)]
pub(crate) struct Survey {
    /// The segments with records that count, and the last one even if it has none.
    pub segments: Vec<Held>,
    /// The histories that the segments tell of; that of the last segment is the newest.
    pub histories: Histories,
    /// The first history that begins with loaded data which the base does not have.
    pub lacking: Option<HistoryStart>,
    /// The last record; 0 if there is none.
    pub last: Index,
    /// No record has a later time than this.
    pub time_ms: u64,
    pub clean: bool,
    /// Where in the last segment the first group begins that no later one knew to be synced.
    pub unsynced_from: u64,
    /// Files without any record that counts or ever will.
    pub sweep: Vec<PathBuf>,
    pub next_number: u64,
    /// Position in `segments` of the first one that replay needs.
    pub replay_from: usize,
    pub cut: Option<Cut>,
    /// There is an end file.
    pub has_end: bool,
}

/// A record that the log has to reach, and why.
struct Known {
    index: Index,
    why: String,
}

impl Survey {
    pub(crate) fn of(options: &Options, applied: Applied) -> Result<Survey, OpenError> {
        let mut survey = Survey {
            segments: Vec::new(),
            histories: Histories::default(),
            lacking: None,
            last: Index(0),
            time_ms: 0,
            clean: false,
            unsynced_from: SEGMENT_HEADER_BYTES,
            sweep: Vec::new(),
            next_number: 1,
            replay_from: 0,
            cut: None,
            has_end: false,
        };
        let end = survey.read_end(options)?;
        survey.has_end = end.is_some();
        let listing = list(&*options.files, &options.dir)?;
        survey.sweep = listing.unfinished;
        let is_listed = |number| listing.segments.iter().any(|(listed, _)| *listed == number);
        let end_is_listed = end.is_none_or(|end| is_listed(end.segment));
        // Segments that follow their predecessor and have no first group: never used, or torn in their first write.
        let mut unused: Vec<(Arc<Segment>, u64)> = Vec::new();
        for (number, path) in listing.segments {
            survey.next_number = number + 1;
            let (segment, file) = open_segment(&*options.files, number, path)?;
            let bytes = file.len().map_err(OpenError::io(&segment.path))?;
            match first_index(&segment, &*file).map_err(OpenError::io(&segment.path))? {
                Some(first) => {
                    survey.sweep.extend(unused.drain(..).map(|(unused, _)| unused.path.clone()));
                    survey.push(Held {
                        segment: Arc::new(segment),
                        first,
                        last: Index(u64::MAX),
                        end: bytes,
                        bytes,
                    })?;
                }
                None => unused.push((Arc::new(segment), bytes)),
            }
        }
        let known = known(options, applied.index, end);
        survey.find_end(&options.dir, &*options.files, &unused, &known)?;
        if let Some(end) = end.filter(|_| !end_is_listed) {
            survey.refuse_missing(&options.dir, end.segment)?;
        }
        survey.sweep.extend(unused.iter().map(|(segment, _)| segment.path.clone()));
        survey.find_replay_start(applied.index)?;
        survey.tell_histories(applied, end)?;
        Ok(survey)
    }

    fn read_end(&self, options: &Options) -> Result<Option<End>, OpenError> {
        let Some(at) = &options.end else { return Ok(None) };
        let Some(Noted { end, .. }) = read_end(&*options.files, &at.path)? else { return Ok(None) };
        if end.directory != at.directory {
            let (found, expected) = (end.directory, at.directory);
            return Err(OpenError::Mixed { path: at.path.clone(), found, expected });
        }
        Ok(Some(end))
    }

    /// Records went to segment `number`, which is not listed: it may be gone only if a later one has records.
    fn refuse_missing(&self, dir: &Path, number: u64) -> Result<(), OpenError> {
        if self.segments.last().is_some_and(|held| held.segment.header.number > number) {
            return Ok(());
        }
        Err(OpenError::Damage(Damage {
            file: dir.join(segment_name(number)),
            offset: 0,
            index: self.last.next(),
            reason: "it is missing, and records were written to it".into(),
        }))
    }

    /// Puts together what the segments say of histories, and refuses what did not get here with their records. Of segments
    /// that the replay does not need a power failure may have left any, so that they are not asked.
    fn tell_histories(&mut self, applied: Applied, end: Option<End>) -> Result<(), OpenError> {
        for held in &self.segments[self.replay_from..] {
            let SegmentHeader { start, ancestors, .. } = &held.segment.header;
            self.histories.extend(ancestors, *start);
        }
        if let Some(history) = applied.history
            && !self.histories.may_be_applied(history, applied.index)
        {
            return Err(self.foreign(applied.index, history, "the base"));
        }
        if let Some(End { history, synced, .. }) = end
            && !self.histories.may_stand(history, synced)
        {
            return Err(self.foreign(synced, history, "the note of the log's end"));
        }
        self.lacking = self.histories.lacking(applied);
        Ok(())
    }

    /// The error of a log in which the record with this index is known to be of another history.
    fn foreign(&self, index: Index, history: History, who: &str) -> OpenError {
        let held = self.segments.iter().rfind(|held| held.first <= index && index <= held.last);
        let held = held.or(self.segments.get(self.replay_from)).expect("what has histories has segments");
        let here = self.histories.of(index).map_or_else(|| "no history".to_owned(), |here| format!("history {here}"));
        OpenError::Damage(Damage {
            file: held.segment.path.clone(),
            offset: 0,
            index,
            reason: format!("here it is of {here}, and {who} has it of history {history}: they do not belong together"),
        })
    }

    fn push(&mut self, held: Held) -> Result<(), OpenError> {
        if let Some(before) = self.segments.last_mut() {
            if held.first < before.first {
                return Err(OpenError::Damage(Damage {
                    file: held.segment.path.clone(),
                    offset: SEGMENT_HEADER_BYTES,
                    index: held.first,
                    reason: format!("it begins before its predecessor, which begins with record {}", before.first),
                }));
            }
            before.last = Index(held.first.0 - 1);
            if before.last < before.first {
                self.sweep.push(before.segment.path.clone());
                self.segments.pop();
            }
        }
        self.segments.push(held);
        Ok(())
    }

    /// Walks the last segment to its end, and looks at what lies behind.
    fn find_end(
        &mut self,
        dir: &Path,
        files: &dyn Files,
        unused: &[(Arc<Segment>, u64)],
        known: &Known,
    ) -> Result<(), OpenError> {
        let Some(tail) = self.segments.last_mut() else {
            let damage =
                |file: PathBuf, offset, index, reason| Err(OpenError::Damage(Damage { file, offset, index, reason }));
            return match unused.first() {
                // The first segment of all names its first record.
                Some((segment, _)) => {
                    damage(segment.path.clone(), SEGMENT_HEADER_BYTES, Index(1), "its predecessors are missing".into())
                }
                None if known.index.0 > 0 => {
                    let why = &known.why;
                    damage(dir.to_owned(), 0, Index(1), format!("there is no segment, and {why}"))
                }
                None => Ok(()),
            };
        };
        let segment = tail.segment.clone();
        let io_error = || OpenError::io(&segment.path);
        let file = files.open(&segment.path).map_err(io_error())?;
        let mut walk = Walk::new(file.clone(), segment.header.salt, tail.first, tail.bytes);
        // Where the last record ends, or the mark of a clean stop behind it.
        let mut good_end = SEGMENT_HEADER_BYTES;
        // A segment that supersedes was made when all before it was there.
        let mut time_ms = if segment.header.first.0 > 0 { segment.header.created_ms } else { 0 };
        // Groups above the newest mark: at most what the writer was allowed to leave unsynced.
        let mut unsynced = VecDeque::new();
        let bad = loop {
            match walk.step().map_err(io_error())? {
                Ok(found) => {
                    known_kind(&segment, found.header.kind)?;
                    good_end = walk.offset();
                    time_ms = found.header.time_ms;
                    if found.header.index == found.group.first {
                        unsynced.push_back((found.group.first, found.group_start));
                        while unsynced.front().is_some_and(|(first, _)| *first <= found.group.synced) {
                            unsynced.pop_front();
                        }
                    }
                }
                Err(bad) => break bad,
            }
        };
        let marked = walk.marked();
        let clean = marked.is_some();
        // The mark says that all before it was synced.
        let first_unsynced = unsynced.front().filter(|_| !clean);
        self.unsynced_from = first_unsynced.map_or(bad.offset, |(_, start)| *start);
        let damage = |file: &Path, offset, reason: String| {
            OpenError::Damage(Damage { file: file.to_owned(), offset, index: bad.index, reason })
        };
        if bad.index <= known.index {
            return Err(damage(&segment.path, bad.offset, format!("{}, and {}", bad.reason, known.why)));
        }
        tail.last = Index(bad.index.0 - 1);
        tail.end = marked.unwrap_or(bad.offset);
        if !clean {
            let mut behind = highest_mark(&*file, segment.header.salt, good_end, bad.index).map_err(io_error())?;
            let mut cut_bytes = behind.end - good_end;
            for (later, _) in unused {
                let more = behind_spare(files, later, bad.index)?;
                behind.mark = behind.mark.max(more.mark);
                cut_bytes += more.end - SEGMENT_HEADER_BYTES;
            }
            if bad.index <= behind.mark {
                let reason = format!("{}, and all through record {} was synced", bad.reason, behind.mark);
                return Err(damage(&segment.path, bad.offset, reason));
            }
            // What was allocated is there before a file gets its name, and only a clean stop takes it back.
            let mut segments = unused.iter().map(|(segment, bytes)| (segment, *bytes)).chain([(&segment, tail.bytes)]);
            if let Some((short, bytes)) = segments.find(|(segment, bytes)| *bytes < segment.header.allocated_bytes) {
                let allocated = short.header.allocated_bytes;
                let reason = format!("the file has {bytes} of its {allocated} bytes: it was cut off");
                return Err(damage(&short.path, bytes, reason));
            }
            self.cut = (cut_bytes > 0).then(|| Cut {
                file: segment.path.clone(),
                offset: good_end,
                bytes: cut_bytes,
                last: tail.last,
            });
        }
        self.clean = clean;
        self.last = tail.last;
        self.time_ms = time_ms;
        Ok(())
    }

    /// After a crash of the process alone, the newest records may be in the page cache only; and if a sync failed just
    /// before, the kernel takes them for written. So they are written once more where they are, and synced.
    pub(crate) fn write_end_again(&self, files: &dyn Files) -> Result<(), OpenError> {
        let Some(tail) = self.segments.last() else { return Ok(()) };
        let write_again = || -> io::Result<()> {
            let file = files.open(&tail.segment.path)?;
            let mut buf = vec![0; WRITE_BYTES.min((tail.end - self.unsynced_from) as usize)];
            let mut offset = self.unsynced_from;
            while offset < tail.end {
                let wanted = (tail.end - offset).min(buf.len() as u64) as usize;
                if read_exact_at(&*file, &mut buf[..wanted], offset)? < wanted {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                write_all_at(&*file, &buf[..wanted], offset)?;
                offset += wanted as u64;
            }
            file.sync()
        };
        write_again().map_err(OpenError::io(&tail.segment.path))
    }

    fn find_replay_start(&mut self, applied: Index) -> Result<(), OpenError> {
        let Some(oldest) = self.segments.first() else { return Ok(()) };
        match self.segments.iter().rposition(|held| held.first <= applied.next()) {
            Some(position) => {
                self.replay_from = position;
                Ok(())
            }
            None => Err(OpenError::Damage(Damage {
                file: oldest.segment.path.clone(),
                offset: SEGMENT_HEADER_BYTES,
                index: applied.next(),
                reason: format!("the log begins with record {}, the base ends with {applied}", oldest.first),
            })),
        }
    }
}

/// What the log has to reach: whatever the base holds was synced before, and so was what a backup was made with.
fn known(options: &Options, applied: Index, end: Option<End>) -> Known {
    let (complete, synced) = (options.complete_through, end.map_or(Index(0), |end| end.synced));
    let ends = [
        Known { index: complete, why: format!("all through record {complete} was synced") },
        Known { index: synced, why: format!("all through record {synced} was synced") },
        Known { index: applied, why: format!("the base holds all through record {applied}") },
    ];
    ends.into_iter().max_by_key(|known| known.index).expect("there are three")
}

/// What lies in a segment that has no first group: its first write may have been torn, and a later one not.
fn behind_spare(files: &dyn Files, spare: &Segment, expected: Index) -> Result<Behind, OpenError> {
    let file = files.open(&spare.path).map_err(OpenError::io(&spare.path))?;
    let behind = highest_mark(&*file, spare.header.salt, SEGMENT_HEADER_BYTES, expected);
    behind.map_err(OpenError::io(&spare.path))
}

pub(crate) fn known_kind(segment: &Segment, number: u8) -> Result<Kind, OpenError> {
    Kind::from_number(number)
        .ok_or_else(|| OpenError::Newer { path: segment.path.clone(), what: format!("a record of kind {number}") })
}

/// The files in the log's directory; a missing directory is an empty one.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// In the order of their numbers.
    pub segments: Vec<(u64, PathBuf)>,
    pub unfinished: Vec<PathBuf>,
}

pub(crate) fn list(files: &dyn Files, dir: &Path) -> Result<Listing, OpenError> {
    let names = match files.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names.map_err(OpenError::io(dir))?,
    };
    let mut listing = Listing::default();
    for name in names {
        match FileName::of(&name) {
            FileName::Segment(number) => listing.segments.push((number, dir.join(name))),
            FileName::Unfinished => listing.unfinished.push(dir.join(name)),
            FileName::Foreign => {}
        }
    }
    listing.segments.sort();
    Ok(listing)
}

pub(crate) fn open_segment(
    files: &dyn Files,
    number: u64,
    path: PathBuf,
) -> Result<(Segment, Arc<dyn File>), OpenError> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
    let file = files.open(&path).map_err(OpenError::io(&path))?;
    let read = read_exact_at(&*file, &mut bytes, 0).map_err(OpenError::io(&path))?;
    let damaged = |reason: &str| {
        let (file, reason) = (path.clone(), reason.to_owned());
        OpenError::Damage(Damage { file, offset: 0, index: Index(0), reason })
    };
    match SegmentHeader::decode(&bytes[..read]) {
        Ok(header) if header.number == number => Ok((Segment { path, header }, file)),
        // The header is synced before the file gets its name, so a bad one is not an accident of a crash.
        Ok(header) => Err(damaged(&format!("its header says that it is segment {}", header.number))),
        Err(HeaderError::NotOurs) => Err(damaged("it is not a segment of a log")),
        Err(HeaderError::Checksum) => Err(damaged("a wrong checksum of the segment's header")),
        Err(HeaderError::Histories) => Err(damaged("the segment's header names histories that cannot be")),
        Err(HeaderError::Version(found)) => Err(OpenError::OtherVersion { path, found }),
    }
}

/// The first record of a segment; None for one that only follows and has no first group.
pub(crate) fn first_index(segment: &Segment, file: &dyn File) -> io::Result<Option<Index>> {
    if segment.header.first.0 != 0 {
        return Ok(Some(segment.header.first));
    }
    let mut bytes = [0; GROUP_HEADER_BYTES];
    let read = read_exact_at(file, &mut bytes, SEGMENT_HEADER_BYTES)?;
    Ok(GroupHeader::decode(segment.header.salt, &bytes[..read]).map(|group| group.first))
}
