//! Walking through one segment, record by record, with every check; and looking for groups behind a bad place.
//!
//! Nothing is believed before its checksum is verified, and no buffer grows beyond what the file really has.
//! What a bad place means is decided in `survey.rs`.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::files::{File, read_exact_at};
use crate::format::{
    Entry, GROUP_HEADER_BYTES, GroupHeader, Index, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, Salt,
};

/// Bytes of one read: large enough for a disk, small enough for a cache.
const READ_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Walk {
    /// The file; None if all of it is in `buf`.
    file: Option<Arc<dyn File>>,
    salt: Salt,
    /// The offset from which on nothing is read.
    limit: u64,
    buf: Vec<u8>,
    /// `buf[at..filled]` is read and not walked; `buf[0]` is at `base` in the file.
    base: u64,
    at: usize,
    filled: usize,
    group: Option<GroupHeader>,
    /// The entry of the newest group, and in `mark` that group's mark.
    entry: Entry,
    mark: Index,
    /// The end of the mark of a clean stop, if the walk has come to one.
    marked: Option<u64>,
    group_start: u64,
    group_end: u64,
    /// The index that the next record has to have.
    next: Index,
    /// Whether the checksums of records are compared.
    checks_records: bool,
}

/// A record that passed every check. The body is [`Walk::body`].
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub offset: u64,
    pub header: RecordHeader,
    pub group: GroupHeader,
    /// Offset of the group's header.
    pub group_start: u64,
    body: Range<usize>,
}

impl Found {
    /// The offset of the end of its group.
    pub(crate) fn group_end(&self) -> u64 {
        self.group_start + GROUP_HEADER_BYTES as u64 + u64::from(self.group.record_bytes)
    }
}

/// The place where a segment cannot be read on: damage, or simply its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    pub offset: u64,
    pub index: Index,
    pub reason: &'static str,
}

impl Walk {
    /// Begins at the first group, which has to begin with record `first`.
    pub(crate) fn new(file: Arc<dyn File>, salt: Salt, first: Index, limit: u64) -> Walk {
        let empty = Walk::within(salt, first, SEGMENT_HEADER_BYTES, Vec::new());
        Walk { file: Some(file), limit, checks_records: true, ..empty }
    }

    /// Begins at the group at `offset`, which has to begin with record `first`, and ends where `groups` end, which are
    /// its content and were never on a disk: the checksums of records are not compared, and those of bodies handed on.
    pub(crate) fn within(salt: Salt, first: Index, offset: u64, groups: Vec<u8>) -> Walk {
        Walk {
            file: None,
            salt,
            limit: offset + groups.len() as u64,
            base: offset,
            at: 0,
            filled: groups.len(),
            buf: groups,
            group: None,
            entry: Entry::default(),
            mark: Index(0),
            marked: None,
            group_start: 0,
            group_end: 0,
            next: first,
            checks_records: false,
        }
    }

    /// Begins at the group at `offset`, as [`within`](Self::within) does, with groups that were on a disk: all is
    /// checked.
    pub(crate) fn within_file(salt: Salt, first: Index, offset: u64, groups: Vec<u8>) -> Walk {
        Walk { checks_records: true, ..Walk::within(salt, first, offset, groups) }
    }

    /// Offset in the file of what comes next.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Goes on where another walk through the same segment has come to, if that is the end of a group.
    pub(crate) fn skip_to(&mut self, other: &Walk) {
        if other.group.is_some() && other.offset() == other.group_end {
            (self.base, self.at, self.filled) = (other.offset(), 0, 0);
            (self.next, self.entry, self.mark) = (other.next, other.entry, other.mark);
        }
    }

    /// Lets more of the file be read.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Returns the end of the mark of a clean stop, if that is what the walk has come to.
    pub(crate) fn marked(&self) -> Option<u64> {
        self.marked
    }

    pub(crate) fn next_index(&self) -> Index {
        self.next
    }

    pub(crate) fn body(&self, found: &Found) -> &[u8] {
        &self.buf[found.body.clone()]
    }

    /// The next record, or why there is none. After a bad place the walk stays there.
    pub(crate) fn step(&mut self) -> io::Result<Result<Found, Bad>> {
        let mut offset = self.offset();
        let group = match self.group {
            Some(group) if offset < self.group_end => group,
            _ => match self.begin_group()? {
                Ok(group) => group,
                Err(reason) => return Ok(Err(self.bad(offset, reason))),
            },
        };
        offset = self.offset();
        Ok(match self.record(group)? {
            Ok(found) => Ok(found),
            Err(reason) => Err(self.bad(offset, reason)),
        })
    }

    fn begin_group(&mut self) -> io::Result<Result<GroupHeader, &'static str>> {
        self.group = None;
        if !self.ensure(GROUP_HEADER_BYTES)? {
            return Ok(Err("the segment ends"));
        }
        let Some(group) = GroupHeader::decode(self.salt, &self.buf[self.at..self.filled]) else {
            return Ok(Err("no valid group header"));
        };
        if group.first != self.next {
            return Ok(Err("a group with an unexpected index"));
        }
        if group.entry < self.entry {
            return Ok(Err("a group of an older term or entry"));
        }
        if group.synced < self.mark {
            return Ok(Err("a group that says less to be synced than the one before it"));
        }
        (self.entry, self.mark) = (group.entry, group.synced);
        if group.record_bytes == 0 {
            self.marked = Some(self.offset() + GROUP_HEADER_BYTES as u64);
            return Ok(Err("the segment ends with the mark of a clean stop"));
        }
        self.group_start = self.offset();
        self.at += GROUP_HEADER_BYTES;
        self.group = Some(group);
        self.group_end = self.offset() + u64::from(group.record_bytes);
        Ok(Ok(group))
    }

    fn record(&mut self, group: GroupHeader) -> io::Result<Result<Found, &'static str>> {
        let left = self.group_end - self.offset();
        if left < RECORD_HEADER_BYTES as u64 || !self.ensure(RECORD_HEADER_BYTES)? {
            return Ok(Err("a record cut off"));
        }
        let bytes = self.buf[self.at..].first_chunk().expect("ensured");
        let header = match self.checks_records {
            true => RecordHeader::decode(self.salt, bytes),
            false => Some(RecordHeader::sealed(bytes)),
        };
        let Some(header) = header else { return Ok(Err("a wrong checksum of a record's header")) };
        if header.index != self.next {
            return Ok(Err("a record with an unexpected index"));
        }
        let record_bytes = RECORD_HEADER_BYTES as u64 + u64::from(header.body_bytes);
        if record_bytes > left || !self.ensure(record_bytes as usize)? {
            return Ok(Err("a record longer than its group"));
        }
        let body = self.at + RECORD_HEADER_BYTES..self.at + record_bytes as usize;
        if self.checks_records && crc32fast::hash(&self.buf[body.clone()]) != header.body_crc {
            return Ok(Err("a wrong checksum of a record's body"));
        }
        let offset = self.offset();
        self.at = body.end;
        self.next = self.next.next();
        Ok(Ok(Found { offset, header, group, group_start: self.group_start, body }))
    }

    fn bad(&self, offset: u64, reason: &'static str) -> Bad {
        Bad { offset, index: self.next, reason }
    }

    /// Has `bytes` bytes at `at`, unless the file ends before.
    fn ensure(&mut self, bytes: usize) -> io::Result<bool> {
        if self.filled - self.at >= bytes {
            return Ok(true);
        }
        let left = self.limit.saturating_sub(self.offset());
        let Some(file) = self.file.as_ref().filter(|_| left >= bytes as u64) else { return Ok(false) };
        self.buf.copy_within(self.at..self.filled, 0);
        self.base += self.at as u64;
        self.filled -= self.at;
        self.at = 0;
        let wanted = (bytes.max(READ_BYTES) as u64).min(left) as usize;
        if self.buf.len() < wanted {
            self.buf.resize(wanted, 0);
        }
        let offset = self.base + self.filled as u64;
        self.filled += read_exact_at(&**file, &mut self.buf[self.filled..wanted], offset)?;
        Ok(self.filled >= bytes)
    }
}

/// The bytes and marks behind a bad place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    /// The highest synced index that any group there carries, among groups that can stand behind the expected record.
    pub mark: Index,
    /// The end of the last byte that is not zero; the bad place itself if there is none.
    pub end: u64,
}

/// Looks at all that lies at or behind `from`, where record `expected` was looked for in vain; groups are looked for at
/// every byte, because what lies between is bad.
pub(crate) fn highest_mark(file: &dyn File, salt: Salt, from: u64, expected: Index) -> io::Result<Behind> {
    let file_bytes = file.len()?;
    let mut behind = Behind { mark: Index(0), end: from };
    let mut buf = vec![0; READ_BYTES];
    let mut base = from;
    while base < file_bytes {
        let filled = read_exact_at(file, &mut buf, base)?;
        if let Some(last) = buf[..filled].iter().rposition(|byte| *byte != 0) {
            behind.end = base + last as u64 + 1;
        }
        for window in buf[..filled].windows(GROUP_HEADER_BYTES) {
            // The cheap check comes first: no more records stand before a group than fit the file.
            let first = u64::from_le_bytes(*window[8..].first_chunk().expect("32 bytes"));
            let plausible = first > expected.0 && first - expected.0 <= file_bytes / RECORD_HEADER_BYTES as u64;
            if plausible && let Some(group) = GroupHeader::decode(salt, window) {
                behind.mark = behind.mark.max(group.synced);
            }
        }
        if filled < buf.len() {
            break;
        }
        base += (filled - (GROUP_HEADER_BYTES - 1)) as u64;
    }
    Ok(behind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Kind, seal};

    const SALT: Salt = Salt(7);

    /// A group with one record and nothing in it.
    fn group(index: Index, synced: Index) -> Vec<u8> {
        let kind = Kind::Effects as u8;
        let header = RecordHeader { body_crc: crc32fast::hash(b""), body_bytes: 0, kind, time_ms: 0, index };
        let mut group = vec![0; GROUP_HEADER_BYTES];
        group.extend_from_slice(&header.encode());
        seal(&mut group, SALT, index, synced, Entry::default());
        group
    }

    #[test]
    fn marks_never_decrease() {
        for (marks, expected) in [([0, 0, 2], 3), ([0, 1, 1], 3), ([0, 1, 0], 2)] {
            let groups = (1..).zip(marks).flat_map(|(index, mark)| group(Index(index), Index(mark))).collect();
            let mut walk = Walk::within_file(SALT, Index(1), SEGMENT_HEADER_BYTES, groups);
            let found = std::iter::from_fn(|| walk.step().expect("memory").ok()).count();
            assert_eq!(found, expected, "{marks:?}");
        }
    }
}
