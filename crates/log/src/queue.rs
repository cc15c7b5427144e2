//! The sequencer and the append buffer: what has an index and is not written yet.
//!
//! Records are laid into chunks back to back; a write splits off what is there (a [`Part`]) while appends go on behind
//! it in the same chunk. Chunks form a ring: one is used again when everything in it is synced, so that a running
//! log allocates nothing. This file knows nothing of segments; `write.rs` takes parts from here.

use std::collections::VecDeque;
use std::fmt;

use bytes::BytesMut;

use crate::format::{Entry, GROUP_HEADER_BYTES, Index, Kind, RECORD_HEADER_BYTES, RecordHeader};
use crate::record::Record;

/// Bytes of a chunk: large enough that turning to the next one is rare, small against the unsynced bound.
const CHUNK_BYTES: usize = 1 << 20;

/// Consecutive records in one buffer, with room for a group header in front.
#[derive(Debug)]
pub(crate) struct Part {
    pub first: Index,
    pub last: Index,
    /// The entry that all the records belong to.
    pub entry: Entry,
    /// The part is one record, which changes the members of the log's group.
    pub changes_members: bool,
    /// The sum of the records' reservations.
    pub charge: u64,
    pub bytes: BytesMut,
}

#[derive(Debug)]
pub(crate) struct Queue {
    last: Index,
    /// First index and charge of what `current` holds, while it is not empty.
    first: Index,
    charge: u64,
    /// The entry that the next record belongs to, and all of `current`.
    entry: Entry,
    /// The log is a group's leader's: each part is an entry, and gets the next number.
    leads: bool,
    /// The time of the newest record, which the next one's is not before.
    time_ms: u64,
    current: BytesMut,
    /// `current` was made for one long record: it is not kept.
    long: bool,
    /// Parts whose chunk is full.
    full: Vec<Part>,
    /// Handles of full chunks, and the last index in each, in order.
    ring: VecDeque<(BytesMut, Index)>,
}

/// Bytes in front of a long record's body.
const LONG_HEAD_BYTES: usize = GROUP_HEADER_BYTES + RECORD_HEADER_BYTES;

/// The chunk of one long record, without its headers: made before the queue is locked, because to find its memory and
/// to copy into it takes milliseconds.
pub(crate) struct Long(BytesMut);

impl Long {
    /// Copies a body that is longer than a chunk.
    pub(crate) fn of(body: &[u8]) -> Option<Long> {
        (body.len() > CHUNK_BYTES).then(|| {
            let mut bytes = BytesMut::with_capacity(LONG_HEAD_BYTES + body.len());
            bytes.extend_from_slice(&[0; LONG_HEAD_BYTES]);
            bytes.extend_from_slice(body);
            Long(bytes)
        })
    }
}

/// Why a copy does not take a record: its index is not the next one, or its term or entry goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotNext {
    index: Index,
    entry: Entry,
    last: Index,
    last_entry: Entry,
}

impl fmt::Display for NotNext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotNext { index, entry, last, last_entry } = self;
        write!(
            f,
            "record {index} (term {}, entry {}) does not follow on record {last} (term {}, entry {})",
            entry.term, entry.number, last_entry.term, last_entry.number
        )
    }
}

impl std::error::Error for NotNext {}

impl Queue {
    /// Goes on behind record `last`, of which the time is `time_ms`.
    pub(crate) fn new(last: Index, time_ms: u64) -> Queue {
        Queue {
            last,
            first: last.next(),
            charge: 0,
            entry: Entry::default(),
            leads: false,
            time_ms,
            current: BytesMut::new(),
            long: true,
            full: Vec::new(),
            ring: VecDeque::new(),
        }
    }

    /// The last index given out, and the entry that records belong to.
    pub(crate) fn end(&self) -> (Index, Entry) {
        (self.last, self.entry)
    }

    /// The last index given out.
    pub(crate) fn last(&self) -> Index {
        self.last
    }

    /// Gives the record its index. Its time is that of the record before where the clock went back. `synced` tells
    /// which chunks may be used again.
    #[inline]
    pub(crate) fn append(
        &mut self,
        kind: Kind,
        time_ms: u64,
        body: &[u8],
        body_crc: u32,
        charge: u64,
        synced: impl Fn() -> Index,
    ) -> Index {
        let record_bytes = RECORD_HEADER_BYTES + body.len();
        if self.current.capacity() - self.current.len() < record_bytes + GROUP_HEADER_BYTES {
            self.turn(record_bytes + GROUP_HEADER_BYTES, synced());
        }
        let index = self.last.next();
        self.last = index;
        let time_ms = time_ms.max(self.time_ms);
        self.time_ms = time_ms;
        if self.current.is_empty() {
            self.current.extend_from_slice(&[0; GROUP_HEADER_BYTES]);
            self.first = index;
            self.charge = 0;
        }
        let body_bytes = body.len() as u32;
        let header = RecordHeader { body_crc, body_bytes, kind: kind as u8, time_ms, index };
        self.current.extend_from_slice(&header.encode());
        self.current.extend_from_slice(body);
        self.charge += charge;
        index
    }

    /// Appends a record whose body is already in a chunk of its own, and returns its index.
    pub(crate) fn append_long(&mut self, kind: Kind, time_ms: u64, body_crc: u32, charge: u64, long: Long) -> Index {
        self.leave_chunk();
        let index = self.last.next();
        self.last = index;
        self.time_ms = time_ms.max(self.time_ms);
        let body_bytes = (long.0.len() - LONG_HEAD_BYTES) as u32;
        let header = RecordHeader { body_crc, body_bytes, kind: kind as u8, time_ms: self.time_ms, index };
        (self.long, self.current) = (true, long.0);
        self.current[GROUP_HEADER_BYTES..LONG_HEAD_BYTES].copy_from_slice(&header.encode());
        (self.first, self.charge) = (index, charge);
        index
    }

    /// Makes ready for a record of another log, which has this index and entry there: it keeps its time.
    pub(crate) fn follow(&mut self, index: Index, entry: Entry, time_ms: u64) -> Result<(), NotNext> {
        if index != self.last.next() || entry < self.entry || self.leads {
            return Err(NotNext { index, entry, last: self.last, last_entry: self.entry });
        }
        self.begin_entry(entry);
        self.time_ms = self.time_ms.min(time_ms);
        Ok(())
    }

    /// Appends the records of a leader's entry, with their times: as one part, whatever else is written meanwhile.
    pub(crate) fn append_entry(
        &mut self,
        entry: Entry,
        records: &[Record<'_>],
        mut charge: u64,
        synced: impl Fn() -> Index,
    ) -> Result<(), NotNext> {
        let times = records.iter().map(|record| record.time_ms);
        let Some(first) = records.first() else { return Ok(()) };
        self.follow(first.index, entry, times.min().unwrap_or_default())?;
        let bytes: usize = records.iter().map(|record| RECORD_HEADER_BYTES + record.body.len()).sum();
        // Room for a group's header before and behind, so that no record of the entry turns to another chunk.
        if self.current.capacity() - self.current.len() < bytes + 2 * GROUP_HEADER_BYTES {
            self.turn(bytes + 2 * GROUP_HEADER_BYTES, synced());
        }
        let part = self.split();
        self.full.extend(part);
        for record in records {
            self.time_ms = self.time_ms.min(record.time_ms);
            let charge = std::mem::take(&mut charge);
            let index = self.append(record.kind, record.time_ms, record.body, record.body_crc, charge, &synced);
            assert_eq!(index, record.index, "the records of an entry have no gaps");
        }
        let part = self.split().expect("the entry has a record");
        assert_eq!((part.first, part.last), (first.index, self.last), "an entry is one group");
        self.full.push(part);
        Ok(())
    }

    /// The time of the newest record.
    pub(crate) fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// Records from here on belong to this entry: they share no group with those before.
    pub(crate) fn begin_entry(&mut self, entry: Entry) {
        assert!(entry >= self.entry, "terms and entries never go back");
        if entry == self.entry {
            return;
        }
        let part = self.split();
        self.full.extend(part);
        self.entry = entry;
    }

    /// Records from here on are entries of this leader, one for each part, numbered from `first` on.
    pub(crate) fn lead(&mut self, first: Entry) {
        assert!(!self.leads && first > self.entry, "a leader's entries follow on those that it has");
        self.begin_entry(first);
        self.leads = true;
    }

    /// Ends the entry that a leader's newest record belongs to.
    pub(crate) fn end_entry(&mut self) {
        if self.leads {
            let part = self.split();
            self.full.extend(part);
        }
    }

    /// Appends a leader's record that changes the members of its group, as an entry of its own; returns its index.
    pub(crate) fn append_members(
        &mut self,
        time_ms: u64,
        body: &[u8],
        body_crc: u32,
        charge: u64,
        synced: impl Fn() -> Index,
    ) -> Index {
        assert!(self.leads, "a leader changes the members");
        self.end_entry();
        let index = self.append(Kind::Members, time_ms, body, body_crc, charge, synced);
        let part = self.split().expect("it was just appended");
        assert_eq!((part.first, part.last), (index, index), "a change is alone in its entry");
        self.full.push(Part { changes_members: true, ..part });
        index
    }

    /// Moves everything appended so far to the end of `parts`.
    pub(crate) fn take(&mut self, parts: &mut VecDeque<Part>) {
        parts.extend(self.full.drain(..));
        parts.extend(self.split());
    }

    fn split(&mut self) -> Option<Part> {
        if self.current.is_empty() {
            return None;
        }
        let Queue { first, last, entry, charge, .. } = *self;
        self.entry.number += u64::from(self.leads);
        Some(Part { first, last, entry, changes_members: false, charge, bytes: self.current.split() })
    }

    /// Makes room for `bytes` in a new chunk.
    #[cold]
    fn turn(&mut self, bytes: usize, synced: Index) {
        self.leave_chunk();
        self.long = bytes > CHUNK_BYTES;
        if !self.long
            && let Some((chunk, last)) = self.ring.front_mut()
            && *last <= synced
            && chunk.try_reclaim(CHUNK_BYTES)
        {
            self.current = std::mem::take(chunk);
            self.ring.pop_front();
        } else {
            self.current = BytesMut::with_capacity(bytes.max(CHUNK_BYTES));
        }
    }

    /// Takes leave of the current chunk, which may be used again when all of it is synced.
    fn leave_chunk(&mut self) {
        let part = self.split();
        self.full.extend(part);
        let old = std::mem::take(&mut self.current);
        if !self.long {
            let before = self.ring.back().map(|(_, last)| *last);
            assert!(before.is_none_or(|before| before < self.last), "each chunk has records, in order");
            self.ring.push_back((old, self.last));
        }
    }
}
