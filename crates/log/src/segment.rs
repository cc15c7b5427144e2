//! Segments: the files of a log, what counts in each, and how they are named.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::{File, Files, write_all_at};
use crate::format::{Index, SegmentHeader};

/// A segment. Its file is open only where it is used: a log may retain many.
#[derive(Debug)]
pub(crate) struct Segment {
    pub path: PathBuf,
    pub header: SegmentHeader,
}

/// A segment and the records that count in it.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub segment: Arc<Segment>,
    pub first: Index,
    /// The last record; below `first` if the segment has none.
    pub last: Index,
    /// The end of the last counting group, or of the whole file where that is not known.
    pub end: u64,
    /// Bytes on the disk.
    pub bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Active {
    pub segment: Arc<Segment>,
    pub file: Arc<dyn File>,
    /// The offset at which the next group is written.
    pub offset: u64,
    pub bytes: u64,
}

impl Active {
    pub(crate) fn room(&self) -> u64 {
        self.bytes - self.offset
    }
}

/// A segment with a synced header and allocated space that waits for its turn.
#[derive(Debug)]
pub(crate) struct Spare {
    pub segment: Arc<Segment>,
    pub file: Arc<dyn File>,
    pub bytes: u64,
}

/// The file of a segment that is being made, under a name that no open looks at.
pub(crate) struct Unfinished {
    file: Arc<dyn File>,
    /// All that was written is on the disk.
    is_synced: bool,
}

impl Unfinished {
    pub fn new(file: Arc<dyn File>) -> Unfinished {
        Unfinished { file, is_synced: false }
    }

    pub fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.file.allocate(bytes)
    }

    pub fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.is_synced = false;
        write_all_at(&*self.file, bytes, offset)
    }

    pub fn sync(&mut self) -> io::Result<()> {
        self.file.sync()?;
        self.is_synced = true;
        Ok(())
    }

    /// Gives the file a segment's name; the directory is to be synced then.
    ///
    /// Invariant: header and records of a file with such a name are on the disk, so that a bad header is damage.
    pub fn name(self, files: &dyn Files, from: &Path, to: &Path) -> io::Result<Arc<dyn File>> {
        assert!(self.is_synced, "a segment gets its name when it is synced: {}", to.display());
        files.rename(from, to)?;
        Ok(self.file)
    }
}

const SEGMENT_SUFFIX: &str = ".log";
const UNFINISHED_SUFFIX: &str = ".new";

pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:020}{SEGMENT_SUFFIX}")
}

/// The name of a segment's file while it is being made.
pub(crate) fn unfinished_name(number: u64) -> String {
    format!("{number:020}{UNFINISHED_SUFFIX}")
}

/// The kind of a file in the log's directory, by its name.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileName {
    Segment(u64),
    Unfinished,
    Foreign,
}

impl FileName {
    pub(crate) fn of(name: &str) -> FileName {
        let number = |stem: &str| {
            (stem.len() == 20 && stem.bytes().all(|byte| byte.is_ascii_digit())).then(|| stem.parse().ok()).flatten()
        };
        if let Some(number) = name.strip_suffix(SEGMENT_SUFFIX).and_then(number) {
            FileName::Segment(number)
        } else if name.strip_suffix(UNFINISHED_SUFFIX).and_then(number).is_some() {
            FileName::Unfinished
        } else {
            FileName::Foreign
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ForgetfulFiles;

    #[test]
    #[should_panic = "a segment gets its name when it is synced"]
    fn a_segment_that_was_written_since_its_sync_gets_no_name() {
        let files = ForgetfulFiles::new();
        files.create_dir_all(Path::new("/log")).unwrap();
        let (from, to) = (Path::new("/log/new"), Path::new("/log/segment"));
        let mut made = Unfinished::new(files.create(from).unwrap());
        made.write(b"header", 0).unwrap();
        made.sync().unwrap();
        made.write(b"groups", 6).unwrap();
        _ = made.name(&files, from, to);
    }
}
