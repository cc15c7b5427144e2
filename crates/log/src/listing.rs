//! Which segments are in the log's directory, and what their headers and first groups say.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Damage, OpenError};
use crate::files::{File, Files, read_exact_at};
use crate::format::{GROUP_HEADER_BYTES, GroupHeader, HeaderError, Index, Kind, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::segment::{FileName, Segment};

pub(crate) fn known_kind(segment: &Segment, number: u8) -> Result<Kind, OpenError> {
    Kind::from_number(number)
        .ok_or_else(|| OpenError::Newer { path: segment.path.clone(), what: format!("a record of kind {number}") })
}

/// The files in the log's directory; a missing directory is an empty one.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// The segments, in the order of their numbers.
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
