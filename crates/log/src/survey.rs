//! What is in the directory at open: which segments count, up to where, and whether what is missing may be missing.
//!
//! Nothing is changed here. The rule: the first bad place ends the log, unless some group that is still readable knew a
//! record at or behind that place to be synced; then it is damage, and an error that says where.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::{File, Files, read_exact_at, write_all_at};
use crate::format::{
    GROUP_HEADER_BYTES, GroupHeader, HEADER_USED_BYTES, HeaderError, HistoryStart, Index, Kind, SEGMENT_HEADER_BYTES,
    SegmentHeader,
};
use crate::options::Options;
use crate::state::{FileName, Held, Segment};
use crate::walk::{Walk, highest_mark};

/// Bytes that are written again at a time.
const WRITE_BYTES: usize = 1 << 20;

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

/// Why a log cannot be opened, or replayed.
#[derive(Debug)]
pub enum OpenError {
    Io {
        path: PathBuf,
        error: io::Error,
    },
    Damage(Damage),
    /// Written by a later version: of the format, or with a kind of record that this one does not know.
    Newer {
        path: PathBuf,
        what: String,
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
            OpenError::Damage(damage) => damage.fmt(f),
            OpenError::Newer { path, what } => {
                write!(f, "the log was written by a newer version: {}: {what}", path.display())
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
    /// The history of the last segment.
    pub start: Option<HistoryStart>,
    /// The last record; 0 if there is none.
    pub last: Index,
    pub clean: bool,
    /// Where in the last segment the first group begins that no later one knew to be synced.
    pub unsynced_from: u64,
    /// Files without any record that counts or ever will.
    pub sweep: Vec<PathBuf>,
    pub next_number: u64,
    /// Position in `segments` of the first one that replay needs.
    pub replay_from: usize,
}

impl Survey {
    pub(crate) fn of(options: &Options, applied: Index) -> Result<Survey, OpenError> {
        let mut survey = Survey {
            segments: Vec::new(),
            start: None,
            last: Index(0),
            clean: false,
            unsynced_from: SEGMENT_HEADER_BYTES,
            sweep: Vec::new(),
            next_number: 1,
            replay_from: 0,
        };
        let listing = list(&*options.files, &options.dir)?;
        survey.sweep = listing.unfinished;
        // Segments that follow their predecessor and have no first group: never used, or torn in their first write.
        let mut unused = Vec::new();
        for (number, path) in listing.segments {
            survey.next_number = number + 1;
            let (segment, file) = open_segment(&*options.files, number, path)?;
            let bytes = file.len().map_err(OpenError::io(&segment.path))?;
            match first_index(&segment, &*file).map_err(OpenError::io(&segment.path))? {
                Some(first) => {
                    survey.sweep.extend(unused.drain(..).map(|unused: Arc<Segment>| unused.path.clone()));
                    survey.push(Held {
                        segment: Arc::new(segment),
                        first,
                        last: Index(u64::MAX),
                        end: bytes,
                        bytes,
                    })?;
                }
                None => unused.push(Arc::new(segment)),
            }
        }
        // What the base holds need not be here.
        let known = if options.complete_through > applied { options.complete_through } else { Index(0) };
        survey.find_end(&*options.files, &unused, known)?;
        if survey.segments.is_empty() && known.0 > 0 {
            return Err(OpenError::Damage(Damage {
                file: options.dir.clone(),
                offset: 0,
                index: applied.next(),
                reason: format!("all through record {known} should be there"),
            }));
        }
        survey.sweep.extend(unused.iter().map(|segment| segment.path.clone()));
        survey.find_replay_start(applied)?;
        Ok(survey)
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
        }
        self.segments.push(held);
        Ok(())
    }

    /// Walks the last segment to its end, and looks at what lies behind. Everything through `known` was synced.
    fn find_end(&mut self, files: &dyn Files, unused: &[Arc<Segment>], known: Index) -> Result<(), OpenError> {
        let Some(tail) = self.segments.last_mut() else {
            return match unused.first() {
                // The first segment of all names its first record.
                Some(segment) => Err(OpenError::Damage(Damage {
                    file: segment.path.clone(),
                    offset: SEGMENT_HEADER_BYTES,
                    index: Index(1),
                    reason: "its predecessors are missing".into(),
                })),
                None => Ok(()),
            };
        };
        let segment = tail.segment.clone();
        let io_error = || OpenError::io(&segment.path);
        let file = files.open(&segment.path).map_err(io_error())?;
        let mut walk = Walk::new(file.clone(), segment.header.salt, tail.first, tail.bytes);
        let mut clean = false;
        // Groups above the newest mark: at most what the writer was allowed to leave unsynced.
        let mut unsynced = VecDeque::new();
        let bad = loop {
            match walk.step().map_err(io_error())? {
                Ok(found) => {
                    clean = known_kind(&segment, found.header.kind)? == Kind::CleanStop;
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
        self.unsynced_from = unsynced.front().map_or(bad.offset, |(_, start)| *start);
        let mut mark = known;
        if !clean {
            mark = mark.max(highest_mark(&*file, segment.header.salt, bad.offset, bad.index).map_err(io_error())?);
            for later in unused {
                mark = mark.max(mark_in_spare(files, later, bad.index)?);
            }
        }
        if bad.index <= mark {
            return Err(OpenError::Damage(Damage {
                file: segment.path.clone(),
                offset: bad.offset,
                index: bad.index,
                reason: format!("{}, and all through record {mark} was synced", bad.reason),
            }));
        }
        tail.last = Index(bad.index.0 - 1);
        tail.end = bad.offset;
        self.clean = clean;
        self.last = tail.last;
        self.start = Some(segment.header.start);
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

/// The highest mark in a segment that has no first group: its first write may have been torn, and a later one not.
fn mark_in_spare(files: &dyn Files, spare: &Segment, expected: Index) -> Result<Index, OpenError> {
    let file = files.open(&spare.path).map_err(OpenError::io(&spare.path))?;
    let mark = highest_mark(&*file, spare.header.salt, SEGMENT_HEADER_BYTES, expected);
    mark.map_err(OpenError::io(&spare.path))
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
    let mut bytes = [0; HEADER_USED_BYTES];
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
        Err(HeaderError::Newer(version)) => Err(OpenError::Newer { path, what: format!("format version {version}") }),
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
