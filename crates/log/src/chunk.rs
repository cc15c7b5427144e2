//! Chunks: consecutive records of one history as the bytes of one segment, in memory. An archive keeps the log in them.
//!
//! A chunk is a segment as docs/format/log.md describes it: its number is the index of its first record, and it
//! supersedes, so that chunks of one history lie in each other's order whoever cut them. It ends with its last record.

use std::fmt;

use crate::copy::GROUP_BYTES;
use crate::error::OpenError;
use crate::format::{
    Entry, GROUP_HEADER_BYTES, History, HistoryStart, Index, Kind, RecordHeader, SEGMENT_HEADER_BYTES, Salt,
    SegmentHeader, seal,
};
use crate::histories::Histories;
use crate::log::Log;
use crate::reader::{Next, Reader, Through};
use crate::record::Record;
use crate::walk::Walk;

/// Cuts a log into chunks, from a record on.
pub struct Chunks {
    reader: Reader,
    /// The record that was read and begins the next chunk.
    pending: Option<Pending>,
    now_ms: std::sync::Arc<dyn Fn() -> u64 + Send + Sync>,
    random: std::sync::Arc<dyn Fn() -> u64 + Send + Sync>,
}

/// A record that was read.
struct Pending {
    start: HistoryStart,
    entry: Entry,
    index: Index,
    time_ms: u64,
    /// The record as a group has it.
    bytes: Vec<u8>,
}

/// The bytes of a segment with these records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub history: History,
    pub first: Index,
    pub last: Index,
    /// The time of the last record: no other one is later.
    pub time_ms: u64,
    pub bytes: Vec<u8>,
}

/// The next thing that a log has for an archive.
#[derive(Debug)]
pub enum Cut {
    Chunk(Chunk),
    /// The log has no record that was asked for.
    UpToDate,
    /// The next record is gone; the log begins with the given one.
    Gap(Index),
}

impl Log {
    /// Cuts the records behind `after` that are on the disk into chunks.
    pub fn chunks(&self, after: Index) -> Chunks {
        let options = &self.shared.options;
        Chunks {
            reader: self.reader(after).through(Through::Synced),
            pending: None,
            now_ms: options.now_ms.clone(),
            random: options.random.clone(),
        }
    }
}

impl Chunks {
    /// Returns the index of the record that the next chunk begins with.
    pub fn position(&self) -> Index {
        self.pending.as_ref().map_or(self.reader.position(), |pending| pending.index)
    }

    /// Returns the next chunk: records through `until`, of one history, and no more once it has `bytes_max` bytes.
    ///
    /// # Errors
    /// Those of a reader. The records come again with the next call, but for those of the chunk that was being cut.
    pub fn next(&mut self, until: Index, bytes_max: usize) -> Result<Cut, OpenError> {
        let mut chunk: Option<Writer> = None;
        while chunk.as_ref().is_none_or(|chunk| chunk.bytes.len() < bytes_max) {
            let pending = match self.pending.take() {
                Some(pending) => pending,
                None if self.reader.position() > until => break,
                None => match self.read()? {
                    Read::Record(pending) => pending,
                    Read::Gap(first) if chunk.is_none() => return Ok(Cut::Gap(first)),
                    // The next call tells of a gap.
                    Read::Gap(_) | Read::UpToDate => break,
                },
            };
            match &mut chunk {
                None => {
                    let histories = self.reader.chain().histories();
                    let (salt, created_ms) = (Salt::of((self.random)() as u32), (self.now_ms)());
                    chunk = Some(Writer::begin(pending, &histories, salt, created_ms));
                }
                Some(chunk) if chunk.start == pending.start => chunk.add(&pending),
                Some(_) => {
                    self.pending = Some(pending);
                    break;
                }
            }
        }
        Ok(chunk.map_or(Cut::UpToDate, |chunk| Cut::Chunk(chunk.end())))
    }

    fn read(&mut self) -> Result<Read, OpenError> {
        let (index, time_ms, entry, bytes) = match self.reader.next()? {
            Next::Record(record) => {
                let Record { index, kind, time_ms, body, body_crc, .. } = record;
                let header = RecordHeader { body_crc, body_bytes: body.len() as u32, kind: kind as u8, time_ms, index };
                let bytes = [&header.encode()[..], body].concat();
                (index, time_ms, Entry { term: record.term, number: record.entry }, bytes)
            }
            Next::UpToDate => return Ok(Read::UpToDate),
            Next::Gap(first) => return Ok(Read::Gap(first)),
        };
        Ok(Read::Record(Pending { start: self.reader.start(), entry, index, time_ms, bytes }))
    }
}

enum Read {
    Record(Pending),
    UpToDate,
    Gap(Index),
}

/// A chunk that is being written.
struct Writer {
    start: HistoryStart,
    salt: Salt,
    first: Index,
    last: Index,
    time_ms: u64,
    bytes: Vec<u8>,
    /// The offset at which the last group begins.
    group_at: usize,
    group_first: Index,
    group_entry: Entry,
}

impl Writer {
    fn begin(first: Pending, histories: &Histories, salt: Salt, created_ms: u64) -> Writer {
        let header = SegmentHeader {
            number: first.index.0,
            first: first.index,
            salt,
            created_ms,
            start: first.start,
            ancestors: histories.through(first.start.history).ancestors(),
            allocated_bytes: 0,
        };
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(&[0; GROUP_HEADER_BYTES]);
        bytes.extend_from_slice(&first.bytes);
        Writer {
            start: first.start,
            salt,
            first: first.index,
            last: first.index,
            time_ms: first.time_ms,
            bytes,
            group_at: SEGMENT_HEADER_BYTES as usize,
            group_first: first.index,
            group_entry: first.entry,
        }
    }

    fn add(&mut self, record: &Pending) {
        assert_eq!(record.index, self.last.next(), "a chunk's records have no gaps");
        let group_bytes = self.bytes.len() - self.group_at + record.bytes.len();
        if record.entry != self.group_entry || group_bytes > GROUP_BYTES {
            self.seal();
            self.group_at = self.bytes.len();
            self.bytes.extend_from_slice(&[0; GROUP_HEADER_BYTES]);
            (self.group_first, self.group_entry) = (record.index, record.entry);
        }
        self.bytes.extend_from_slice(&record.bytes);
        (self.last, self.time_ms) = (record.index, record.time_ms);
    }

    fn seal(&mut self) {
        // A chunk is there as a whole or not at all.
        let synced = Index(self.group_first.0 - 1);
        seal(&mut self.bytes[self.group_at..], self.salt, self.group_first, synced, self.group_entry);
    }

    fn end(mut self) -> Chunk {
        self.seal();
        let Writer { start, first, last, time_ms, bytes, .. } = self;
        Chunk { history: start.history, first, last, time_ms, bytes }
    }
}

/// Why bytes are not a chunk, or not a whole one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkError(pub String);

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ChunkError {}

/// The records of a chunk, or of a segment of a backup, one after the other, with every check.
#[derive(Debug)]
pub struct ChunkRecords {
    header: SegmentHeader,
    walk: Walk,
    bytes: u64,
}

impl ChunkRecords {
    /// Begins to read the bytes of a chunk.
    ///
    /// # Errors
    /// The bytes do not begin with the header of a segment that says with which record it begins.
    pub fn new(mut bytes: Vec<u8>) -> Result<ChunkRecords, ChunkError> {
        let header =
            SegmentHeader::decode(&bytes).map_err(|error| ChunkError(format!("the segment's header: {error:?}")))?;
        if header.first == Index(0) {
            return Err(ChunkError("the segment does not say with which record it begins".into()));
        }
        let length = bytes.len() as u64;
        bytes.drain(..SEGMENT_HEADER_BYTES as usize);
        let walk = Walk::within_file(header.salt, header.first, SEGMENT_HEADER_BYTES, bytes);
        Ok(ChunkRecords { header, walk, bytes: length })
    }

    /// Returns the history of the records, and where it comes from.
    pub fn start(&self) -> HistoryStart {
        self.header.start
    }

    /// Returns the index of the first record.
    pub fn first(&self) -> Index {
        self.header.first
    }

    /// Returns the chain of histories with that of the records at its end.
    pub fn histories(&self) -> Histories {
        let mut histories = Histories::default();
        histories.extend(&self.header.ancestors, self.header.start);
        histories
    }

    /// Returns the next record; None behind the last one.
    ///
    /// # Errors
    /// The bytes are damaged, cut off, or of a later version.
    #[allow(clippy::should_implement_trait)] // the record borrows from the reader, which an Iterator cannot express
    pub fn next(&mut self) -> Result<Option<Record<'_>>, ChunkError> {
        if self.walk.offset() == self.bytes {
            return Ok(None);
        }
        let step = self.walk.step().map_err(|error| ChunkError(error.to_string()))?;
        let found = step.map_err(|bad| {
            let (index, offset, reason) = (bad.index, bad.offset, bad.reason);
            ChunkError(format!("record {index} is damaged, at byte {offset}: {reason}"))
        })?;
        let Some(kind) = Kind::from_number(found.header.kind) else {
            return Err(ChunkError(format!("a later version has written a record of kind {}", found.header.kind)));
        };
        Ok(Some(Record {
            index: found.header.index,
            history: self.header.start.history,
            term: found.group.entry.term,
            entry: found.group.entry.number,
            kind,
            time_ms: found.header.time_ms,
            body: self.walk.body(&found),
            body_crc: found.header.body_crc,
            segment: self.header.number,
            offset: found.offset,
        }))
    }
}
