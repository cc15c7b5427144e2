//! The end file: how far the log is known to reach, noted outside of the log's directory.
//!
//! A log cannot tell by itself that its last segment, or all of it, is gone. So a small file beside it names the last
//! synced record, its history, and the newest segment that records went to. It lags behind the log and never runs ahead
//! of it: what it says is on the disk already. It has two slots, of which the one that was synced last is left alone,
//! so that a note that is torn leaves that one. `survey.rs` compares it with what is there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::directory::DirectoryId;
use crate::error::{Damage, OpenError};
use crate::files::{File, Files, read_exact_at, write_all_at};
use crate::format::{History, Index, history_at, put_u32, put_u64, u32_at, u64_at};

/// Version of the file's format, in each slot. A newer one is refused at open.
const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"haypiend";
const SLOT_BYTES: usize = 88;
/// A disk writes a sector whole: each slot has one of its own.
const SLOT_DISTANCE: u64 = 4096;
const SLOTS: u64 = 2;

/// The path of a log's end file, and the directory whose file it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndFile {
    /// Outside of the log's own directory.
    pub path: PathBuf,
    pub directory: DirectoryId,
    /// Whether the directory is known to have the file: then a log without it is refused, as nothing says how far it
    /// has to reach.
    pub is_expected: bool,
    /// Whether the log notes its own end there; else the file is only read.
    pub is_written: bool,
}

/// A note of how far the log reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub directory: DirectoryId,
    /// The history of the record `synced`.
    pub history: History,
    /// Every record up to here is on the disk.
    pub synced: Index,
    /// Number of the newest segment that records went to. It is there until one with a higher number has records.
    pub segment: u64,
}

impl End {
    fn encode(&self, sequence: u64) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        put_u32(&mut bytes, 8, VERSION);
        put_u64(&mut bytes, 16, sequence);
        bytes[24..40].copy_from_slice(&self.directory.0);
        bytes[40..60].copy_from_slice(&self.history.0);
        put_u64(&mut bytes, 64, self.synced.0);
        put_u64(&mut bytes, 72, self.segment);
        let crc = crc32fast::hash(&bytes);
        put_u32(&mut bytes, 12, crc);
        bytes
    }

    /// The note and its place in the order of notes; an error is a newer version.
    fn decode(bytes: &[u8]) -> Result<Option<(u64, End)>, u32> {
        let Some(bytes) = bytes.first_chunk::<SLOT_BYTES>().filter(|bytes| bytes[..8] == MAGIC) else {
            return Ok(None);
        };
        let mut plain = *bytes;
        put_u32(&mut plain, 12, 0);
        if crc32fast::hash(&plain) != u32_at(bytes, 12) {
            return Ok(None);
        }
        match u32_at(bytes, 8) {
            VERSION => {}
            version => return Err(version),
        }
        let directory = DirectoryId(*bytes[24..].first_chunk().expect("the slot is longer"));
        let (synced, segment) = (Index(u64_at(bytes, 64)), u64_at(bytes, 72));
        Ok(Some((u64_at(bytes, 16), End { directory, history: history_at(bytes, 40), synced, segment })))
    }
}

/// A note as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    pub end: End,
    sequence: u64,
    slot: u64,
}

/// The newest note of the file; `None` where there is no file.
pub(crate) fn read_end(files: &dyn Files, path: &Path) -> Result<Option<Noted>, OpenError> {
    let file = match files.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(OpenError::io(path))?,
    };
    let mut newest: Option<Noted> = None;
    for slot in 0..SLOTS {
        let mut bytes = [0; SLOT_BYTES];
        let read = read_exact_at(&*file, &mut bytes, slot * SLOT_DISTANCE).map_err(OpenError::io(path))?;
        let found = End::decode(&bytes[..read])
            .map_err(|version| OpenError::Newer { path: path.to_owned(), what: format!("format version {version}") })?;
        let found = found.map(|(sequence, end)| Noted { end, sequence, slot });
        newest = newest.into_iter().chain(found).max_by_key(|noted| noted.sequence);
    }
    if newest.is_none() {
        return Err(OpenError::Damage(Damage {
            file: path.to_owned(),
            offset: 0,
            index: Index(0),
            reason: "neither of its two notes of how far the log reaches has the right checksum".into(),
        }));
    }
    Ok(newest)
}

/// The end file of a running log.
#[derive(Debug)]
pub(crate) struct EndWriter {
    file: Arc<dyn File>,
    sequence: u64,
    /// Invariant: what is in the other slot is on the disk.
    slot: u64,
    /// The last note that was written.
    ///
    /// Invariant: neither its index nor its segment goes back.
    last: End,
    /// Whether a sync has failed: then the kernel may count as written what is not on the disk.
    in_doubt: bool,
}

impl EndWriter {
    /// Notes `end` in the file at `path`, which is made if it is not there; durable when this returns.
    pub(crate) fn begin(files: &dyn Files, path: &Path, end: End) -> Result<EndWriter, OpenError> {
        let before = read_end(files, path)?;
        let open = || -> io::Result<EndWriter> {
            let Some(Noted { sequence, slot, .. }) = before else {
                let fresh = path.with_extension("new");
                let file = files.create(&fresh)?;
                (0..SLOTS).try_for_each(|slot| write_all_at(&*file, &end.encode(0), slot * SLOT_DISTANCE))?;
                file.sync()?;
                files.rename(&fresh, path)?;
                if let Some(dir) = path.parent() {
                    files.sync_dir(dir)?;
                }
                return Ok(EndWriter { file, sequence: 0, slot: 0, last: end, in_doubt: false });
            };
            let file = files.open(path)?;
            let mut writer = EndWriter { file, sequence, slot: 1 - slot, last: end, in_doubt: false };
            // The newest note may not be on the disk: it was written by a process that was killed.
            writer.file.sync()?;
            writer.write(end)?;
            writer.sync()?;
            Ok(writer)
        };
        open().map_err(OpenError::io(path))
    }

    /// Notes `end`, until `sync` not durably; false if the last note that was written says so already, or more: of two
    /// threads the one with the older note may come second.
    pub(crate) fn note(&mut self, end: End) -> io::Result<bool> {
        if self.last == end || end.synced < self.last.synced || end.segment < self.last.segment {
            return Ok(false);
        }
        self.write(end).map(|()| true)
    }

    fn write(&mut self, end: End) -> io::Result<()> {
        self.sequence += 1;
        write_all_at(&*self.file, &end.encode(self.sequence), self.slot * SLOT_DISTANCE)?;
        self.last = end;
        Ok(())
    }

    pub(crate) fn file(&self) -> Arc<dyn File> {
        self.file.clone()
    }

    /// Makes the last note durable. After an error the note that was durable still is; the last one is written again
    /// before the next sync.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if self.in_doubt {
            self.write(self.last)?;
        }
        self.in_doubt = true;
        self.file.sync()?;
        self.in_doubt = false;
        self.slot = 1 - self.slot;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ForgetfulFiles;

    fn end(synced: u64) -> End {
        End { directory: DirectoryId([7; 16]), history: History([9; 20]), synced: Index(synced), segment: synced / 10 }
    }

    #[test]
    fn the_newest_note_is_read_and_one_damaged_slot_leaves_the_note_before() {
        let (files, path) = (ForgetfulFiles::new(), Path::new("/d/haypile.end"));
        files.create_dir_all(Path::new("/d")).unwrap();
        assert_eq!(read_end(&files, path).unwrap(), None);
        let mut writer = EndWriter::begin(&files, path, end(1)).unwrap();
        for synced in 2..6 {
            assert!(writer.note(end(synced)).unwrap());
            assert!(!writer.note(end(synced)).unwrap(), "it says so already");
            assert_eq!(read_end(&files, path).unwrap().unwrap().end, end(synced));
            writer.sync().unwrap();
        }
        let whole = files.read(path).unwrap();
        for at in (0..SLOT_BYTES).chain(SLOT_DISTANCE as usize..whole.len()) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            files.replace(path, bytes);
            // The newest one is in the second slot.
            let newest = if at < SLOT_BYTES { end(5) } else { end(4) };
            assert_eq!(read_end(&files, path).unwrap().unwrap().end, newest, "byte {at}");
        }
        files.replace(path, vec![0; whole.len()]);
        assert!(matches!(read_end(&files, path), Err(OpenError::Damage(_))));
        files.replace(path, Vec::new());
        assert!(matches!(read_end(&files, path), Err(OpenError::Damage(_))));
    }

    #[test]
    fn a_note_that_could_not_be_written_is_written_again_and_none_goes_back() {
        let (files, path) = (ForgetfulFiles::new(), Path::new("/d/haypile.end"));
        files.create_dir_all(Path::new("/d")).unwrap();
        let faults = crate::testing::FaultFiles::new(files.process());
        let mut writer = EndWriter::begin(&faults, path, end(10)).unwrap();
        faults.fail_writes(0, 1, io::ErrorKind::Other);
        writer.note(end(20)).unwrap_err();
        assert_eq!(read_end(&files, path).unwrap().unwrap().end, end(10));
        assert!(writer.note(end(20)).unwrap(), "nothing says so yet");
        assert_eq!(read_end(&files, path).unwrap().unwrap().end, end(20));
        faults.fail_syncs(0, 1);
        writer.sync().unwrap_err();
        let sequence = |files: &ForgetfulFiles| read_end(files, path).unwrap().unwrap().sequence;
        let before = sequence(&files);
        writer.sync().unwrap();
        assert_eq!(sequence(&files), before + 1, "the kernel may have dropped what could not be synced");
        for late in [end(19), end(10)] {
            assert!(!writer.note(late).unwrap(), "it comes late: {late:?}");
        }
        assert_eq!(read_end(&files, path).unwrap().unwrap().end, end(20));
    }

    #[test]
    fn a_power_failure_leaves_one_of_the_notes() {
        let path = Path::new("/d/haypile.end");
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let files = ForgetfulFiles::new();
            files.create_dir_all(Path::new("/d")).unwrap();
            let faults = crate::testing::FaultFiles::new(files.process());
            let mut writer = EndWriter::begin(&faults, path, end(1)).unwrap();
            writer.note(end(2)).unwrap();
            writer.sync().unwrap();
            // Notes in pieces, of which any survive.
            faults.short_writes(Some(7));
            (3..9).for_each(|synced| assert!(writer.note(end(synced)).unwrap()));
            files.crash(seed);
            let found = read_end(&files, path).unwrap().expect("it was synced when it was made").end;
            assert_eq!(found, end(found.synced.0));
            assert!(found.synced >= Index(2), "seed {seed}: {found:?}");
            seen.insert(found.synced.0);
        }
        assert!(seen.len() > 1, "{seen:?}");
    }
}
