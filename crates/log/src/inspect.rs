//! Inspection of a log that is not opened: an offline look finds what an open would find, and changes no byte.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::error::OpenError;
use crate::files::{File, Files};
use crate::format::{HistoryStart, Index, SEGMENT_HEADER_BYTES};
use crate::histories::{Applied, Histories};
use crate::options::Options;
use crate::survey::{Cut, Survey};

/// The conclusions that an open would come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// The histories that the segments tell of; none of a log without segments.
    pub histories: Histories,
    /// The first history that begins with loaded data which the base does not have.
    pub lacking: Option<HistoryStart>,
    /// The first record that is there, or would be the next one; 0 if there is no segment.
    pub first: Index,
    /// The last record; 0 if there is none.
    pub last: Index,
    /// Term and number of the consensus group's entry that the last record belongs to; zeros of none.
    pub entry: (u64, u64),
    /// Whether the last run ended by a clean stop.
    pub clean: bool,
    /// The bytes behind the last record that an open would cut off.
    pub cut: Option<Cut>,
    /// Bytes of headers and records in segments that count.
    pub bytes: u64,
}

/// Looks at a log that no server may be writing to, as an open over a base with this applied index would. Reads the
/// last segment; [`dump`](crate::dump) reads all.
///
/// # Errors
/// Those of an open: damage above all.
pub fn inspect(options: &Options, applied: Applied) -> Result<Inspected, OpenError> {
    let survey = Survey::of(options, applied)?;
    Ok(Inspected {
        histories: survey.histories,
        lacking: survey.lacking,
        first: survey.segments.first().map_or(Index(0), |held| held.first),
        last: survey.last,
        entry: (survey.entry.term, survey.entry.number),
        clean: survey.clean,
        cut: survey.cut,
        bytes: survey.segments.iter().map(|held| held.end.max(SEGMENT_HEADER_BYTES)).sum(),
    })
}

/// The operating system's files, to be read only: whatever would change one fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOnlyFiles;

#[derive(Debug)]
struct ReadOnlyFile(std::fs::File);

fn refused<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "these files are only read"))
}

impl Files for ReadOnlyFiles {
    fn create(&self, _: &Path) -> io::Result<Arc<dyn File>> {
        refused()
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(ReadOnlyFile(std::fs::File::open(path)?)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        crate::files::DiskFiles.list(dir)
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        refused()
    }
}

impl File for ReadOnlyFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.0, buf, offset)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        refused()
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn sync(&self) -> io::Result<()> {
        refused()
    }
}
