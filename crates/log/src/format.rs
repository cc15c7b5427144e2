//! The bytes of a segment: its header, the header of a group, the header of a record, and their checksums.
//!
//! `docs/format/log.md` is the description; this file encodes and checks, and does no I/O. All integers are
//! little-endian. `walk.rs` reads a segment group by group.

use std::fmt;
use std::ops::Range;

/// Version of the format, in each segment's header. Any other one is refused at open.
pub const FORMAT_VERSION: u32 = 2;
/// The first group begins here: the header has a page of its own, which is never written again once it is synced.
pub const SEGMENT_HEADER_BYTES: u64 = 4096;
pub const GROUP_HEADER_BYTES: usize = 40;
pub const RECORD_HEADER_BYTES: usize = 28;

const MAGIC: [u8; 8] = *b"haypilog";
/// The unit in which a segment's header counts allocated bytes.
const PAGE_BYTES: u64 = 4096;
const HEADER_CRC: Range<usize> = 12..16;
const HEADER_START: usize = 48;
const HEADER_ANCESTORS: usize = HEADER_START + HistoryStart::BYTES + 8;
/// How many histories before its own a segment's header has room for. A copy that stands on an older one
/// has to be made anew.
pub(crate) const ANCESTORS_MAX: usize = (SEGMENT_HEADER_BYTES as usize - HEADER_ANCESTORS) / HistoryStart::BYTES;

/// The page of a segment's header.
pub(crate) type HeaderPage = [u8; SEGMENT_HEADER_BYTES as usize];

/// The place of a record in the order of all changes. 0 stands for "nothing"; the first record is 1; without gaps.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index(pub u64);

impl Index {
    pub fn next(self) -> Index {
        Index(self.0 + 1)
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The random name of one sequence of records. In one history an index is never used twice.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct History(pub [u8; 20]);

impl History {
    /// Parses 40 hex digits in lower case, as a history is printed.
    pub fn parse(text: &str) -> Option<History> {
        let mut history = History([0; 20]);
        for (at, byte) in history.0.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        (history.to_string() == text).then_some(history)
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "History({self})")
    }
}

/// The kind of a record. The numbers are permanent: retire them, never reuse one. Retired are 3 and 4, a history's
/// start and the mark of a clean stop in format 1.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Effects of a transaction.
    Effects = 1,
    /// A block of object ids was taken: the store's to read.
    Lease = 2,
    /// The first record of a consensus group's new leader, without effects.
    Term = 5,
    /// Effects that change a consensus group's members: alone in its entry.
    Members = 6,
}

impl Kind {
    /// Returns whether the body of such a record is effects.
    #[inline]
    pub fn has_effects(self) -> bool {
        matches!(self, Kind::Effects | Kind::Members)
    }

    pub fn from_number(number: u8) -> Option<Kind> {
        match number {
            1 => Some(Kind::Effects),
            2 => Some(Kind::Lease),
            5 => Some(Kind::Term),
            6 => Some(Kind::Members),
            _ => None,
        }
    }
}

/// A history, and where it comes from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct HistoryStart {
    pub history: History,
    pub origin: Origin,
}

/// The origin of a history.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The history is the first one of a log.
    Nothing,
    /// The history continues another one; the index is the last one that both share.
    Fork(History, Index),
    /// The base took data in past the log after the record with this index, so that records alone do not lead here.
    Loaded(Index),
}

impl HistoryStart {
    pub(crate) const BYTES: usize = 56;

    /// Returns the bytes as a segment's header has them.
    pub fn to_bytes(&self) -> [u8; 56] {
        let mut bytes = [0; HistoryStart::BYTES];
        self.encode(&mut bytes);
        bytes
    }

    /// Reads what `to_bytes` returns; None of anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<HistoryStart> {
        let start = HistoryStart::decode(bytes.get(..HistoryStart::BYTES)?)?;
        (start.to_bytes() == bytes).then_some(start)
    }

    fn encode(&self, bytes: &mut [u8]) {
        bytes[..20].copy_from_slice(&self.history.0);
        let origin = match self.origin {
            Origin::Nothing => 0,
            Origin::Fork(..) => 1,
            Origin::Loaded(_) => 2,
        };
        put_u32(bytes, 20, origin);
        if let Some((parent, _)) = self.parent() {
            bytes[24..44].copy_from_slice(&parent.0);
        }
        put_u64(bytes, 48, self.after().0);
    }

    /// The history that this one continues, and the last index that both share.
    pub fn parent(&self) -> Option<(History, Index)> {
        match self.origin {
            Origin::Fork(parent, fork) => Some((parent, fork)),
            Origin::Nothing | Origin::Loaded(_) => None,
        }
    }

    /// The last index before this history.
    pub fn after(&self) -> Index {
        match self.origin {
            Origin::Nothing => Index(0),
            Origin::Fork(_, after) | Origin::Loaded(after) => after,
        }
    }

    fn decode(bytes: &[u8]) -> Option<HistoryStart> {
        let (history, parent, after) = (history_at(bytes, 0), history_at(bytes, 24), Index(u64_at(bytes, 48)));
        let none = History([0; 20]);
        let origin = match u32_at(bytes, 20) {
            0 if parent == none && after == Index(0) => Origin::Nothing,
            1 if parent != none => Origin::Fork(parent, after),
            2 if parent == none => Origin::Loaded(after),
            _ => return None,
        };
        (history != none).then_some(HistoryStart { history, origin })
    }
}

/// Mixed into every checksum of a segment, so that bytes written for another segment never pass for this one's:
/// for the same bytes two different seeds always give two different CRCs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Salt(pub u32);

impl Salt {
    /// Spreads a running number out, so that neighbours have little in common.
    pub(crate) fn of(number: u32) -> Salt {
        Salt(number.wrapping_mul(0x9e37_79b1))
    }

    pub(crate) fn crc(self, bytes: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.0);
        hasher.update(bytes);
        hasher.finalize()
    }
}

/// The header of a segment: written and synced before the file gets its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub number: u64,
    /// The first index of this segment if it supersedes all records from there on in earlier segments;
    /// 0 if it goes on where its predecessor ends.
    pub first: Index,
    pub salt: Salt,
    pub created_ms: u64,
    /// Every record of a segment belongs to one history.
    pub start: HistoryStart,
    /// The histories before that one, the oldest first: at most [`ANCESTORS_MAX`].
    pub ancestors: Vec<HistoryStart>,
    /// The file has at least so many bytes as long as records may be added to it; 0 if that is not known. What is less
    /// than a page is left out.
    pub allocated_bytes: u64,
}

/// Why bytes are not the header of a segment of this version.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    NotOurs,
    /// The header names this version of the format, which is not ours.
    Version(u32),
    Checksum,
    /// The checksum is right, and what it says of histories cannot be.
    Histories,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Box<HeaderPage> {
        let mut bytes = Box::new([0; SEGMENT_HEADER_BYTES as usize]);
        bytes[..8].copy_from_slice(&MAGIC);
        put_u32(&mut bytes[..], 8, FORMAT_VERSION);
        put_u64(&mut bytes[..], 16, self.number);
        put_u64(&mut bytes[..], 24, self.first.0);
        put_u64(&mut bytes[..], 32, self.created_ms);
        put_u32(&mut bytes[..], 40, self.salt.0);
        // No segment has 16 TiB.
        put_u32(&mut bytes[..], 44, u32::try_from(self.allocated_bytes / PAGE_BYTES).unwrap_or(0));
        self.start.encode(&mut bytes[HEADER_START..]);
        assert!(self.ancestors.len() <= ANCESTORS_MAX, "the chain was cut to what a header has room for");
        put_u32(&mut bytes[..], HEADER_START + HistoryStart::BYTES, self.ancestors.len() as u32);
        for (ancestor, place) in self.ancestors.iter().zip(bytes[HEADER_ANCESTORS..].chunks_mut(HistoryStart::BYTES)) {
            ancestor.encode(place);
        }
        let crc = header_crc(&bytes);
        put_u32(&mut bytes[..], HEADER_CRC.start, crc);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SegmentHeader, HeaderError> {
        if bytes.get(..8).is_some_and(|magic| *magic != MAGIC) {
            return Err(HeaderError::NotOurs);
        }
        if let Some(version) = bytes.get(8..12).map(|version| u32_at(version, 0)).filter(|it| *it != FORMAT_VERSION) {
            return Err(HeaderError::Version(version));
        }
        let bytes: &HeaderPage = bytes.first_chunk().ok_or(HeaderError::Checksum)?;
        if header_crc(bytes) != u32_at(bytes, HEADER_CRC.start) {
            return Err(HeaderError::Checksum);
        }
        let (start, ancestors) = decode_histories(bytes).ok_or(HeaderError::Histories)?;
        Ok(SegmentHeader {
            number: u64_at(bytes, 16),
            first: Index(u64_at(bytes, 24)),
            created_ms: u64_at(bytes, 32),
            salt: Salt(u32_at(bytes, 40)),
            start,
            ancestors,
            allocated_bytes: u64::from(u32_at(bytes, 44)) * PAGE_BYTES,
        })
    }
}

/// The checksum of a header's page, in which its own field counts as 0.
fn header_crc(page: &HeaderPage) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&page[..HEADER_CRC.start]);
    hasher.update(&[0; 4]);
    hasher.update(&page[HEADER_CRC.end..]);
    hasher.finalize()
}

/// The history of a segment, and those before it. None unless each begins where or behind where the one before does.
fn decode_histories(page: &HeaderPage) -> Option<(HistoryStart, Vec<HistoryStart>)> {
    let count = u32_at(page, HEADER_START + HistoryStart::BYTES) as usize;
    if count > ANCESTORS_MAX {
        return None;
    }
    let places = page[HEADER_ANCESTORS..].chunks_exact(HistoryStart::BYTES).take(count);
    let ancestors = places.map(HistoryStart::decode).collect::<Option<Vec<_>>>()?;
    let start = HistoryStart::decode(&page[HEADER_START..HEADER_START + HistoryStart::BYTES])?;
    let is_sorted = ancestors.iter().chain([&start]).is_sorted_by_key(HistoryStart::after);
    is_sorted.then_some((start, ancestors))
}

/// Which entry of a consensus group a group of records is; both numbers are 0 outside of one.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub term: u64,
    /// Raft's index of the entry: entries have no gaps, and hold at least one record each.
    pub number: u64,
}

/// The records of one entry of a consensus group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct EntrySpan {
    pub term: u64,
    /// Raft's index of the entry.
    pub number: u64,
    pub first: Index,
    pub last: Index,
    /// The entry is one record, which changes the group's members.
    pub changes_members: bool,
}

/// The header of a group: the records of one write.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupHeader {
    /// Bytes of the records that follow; 0 of the mark of a clean stop, which is the last group of a segment.
    pub record_bytes: u32,
    /// Index of the first record.
    pub first: Index,
    /// The last record that was known to be on the disk when this group was written: a bad one up to here is damage.
    pub synced: Index,
    /// Invariant: never below that of the group before it in a segment.
    pub entry: Entry,
}

impl GroupHeader {
    /// Fills the first bytes of `group`, which reserve its place.
    pub(crate) fn encode(&self, salt: Salt, group: &mut [u8]) {
        put_u32(group, 4, self.record_bytes);
        put_u64(group, 8, self.first.0);
        put_u64(group, 16, self.synced.0);
        put_u64(group, 24, self.entry.term);
        put_u64(group, 32, self.entry.number);
        let crc = salt.crc(&group[4..GROUP_HEADER_BYTES]);
        put_u32(group, 0, crc);
    }

    /// The header of a group that this process sealed.
    pub(crate) fn sealed(group: &[u8]) -> GroupHeader {
        GroupHeader {
            record_bytes: u32_at(group, 4),
            first: Index(u64_at(group, 8)),
            synced: Index(u64_at(group, 16)),
            entry: Entry { term: u64_at(group, 24), number: u64_at(group, 32) },
        }
    }

    /// Reads a header; None unless the bytes are the header of a group of the segment with this salt.
    pub(crate) fn decode(salt: Salt, bytes: &[u8]) -> Option<GroupHeader> {
        let bytes = bytes.first_chunk::<GROUP_HEADER_BYTES>()?;
        let header = GroupHeader::sealed(bytes);
        let is_complete = match header.record_bytes {
            0 => header.first.0.checked_sub(1) == Some(header.synced.0),
            record_bytes => record_bytes >= RECORD_HEADER_BYTES as u32 && header.first > header.synced,
        };
        let sound = is_complete && salt.crc(&bytes[4..]) == u32_at(bytes, 0);
        sound.then_some(header)
    }
}

/// The header of a record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub body_crc: u32,
    pub body_bytes: u32,
    /// A [`Kind`], perhaps of a later version.
    pub kind: u8,
    /// Wall clock in milliseconds; 56 bits.
    pub time_ms: u64,
    pub index: Index,
}

impl RecordHeader {
    /// Writes all of the header but its own checksum, which is known only when the segment is.
    #[inline]
    pub(crate) fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        put_u32(&mut bytes, 4, self.body_crc);
        put_u32(&mut bytes, 8, self.body_bytes);
        put_u64(&mut bytes, 12, self.time_ms << 8 | u64::from(self.kind));
        put_u64(&mut bytes, 20, self.index.0);
        bytes
    }

    /// Fills in the header's own checksum.
    #[inline]
    pub(crate) fn seal(salt: Salt, bytes: &mut [u8; RECORD_HEADER_BYTES]) {
        let crc = salt.crc(&bytes[4..]);
        put_u32(bytes, 0, crc);
    }

    /// Reads a header; None unless the bytes are the header of a record of the segment with this salt.
    pub(crate) fn decode(salt: Salt, bytes: &[u8; RECORD_HEADER_BYTES]) -> Option<RecordHeader> {
        (salt.crc(&bytes[4..]) == u32_at(bytes, 0)).then(|| RecordHeader::sealed(bytes))
    }

    /// The header of a record that this log has sealed itself.
    pub(crate) fn sealed(bytes: &[u8; RECORD_HEADER_BYTES]) -> RecordHeader {
        let kind_and_time = u64_at(bytes, 12);
        RecordHeader {
            body_crc: u32_at(bytes, 4),
            body_bytes: u32_at(bytes, 8),
            kind: kind_and_time as u8,
            time_ms: kind_and_time >> 8,
            index: Index(u64_at(bytes, 20)),
        }
    }
}

/// The mark of a clean stop: all through `last` was on the disk, and the segment ends here.
pub(crate) fn clean_mark(salt: Salt, last: Index, entry: Entry) -> [u8; GROUP_HEADER_BYTES] {
    let mut mark = [0; GROUP_HEADER_BYTES];
    GroupHeader { record_bytes: 0, first: last.next(), synced: last, entry }.encode(salt, &mut mark);
    mark
}

/// Makes `group` (room for its header, then records as [`RecordHeader::encode`] leaves them) ready to be written to the
/// segment with this salt. Sealing again for another segment is allowed.
pub(crate) fn seal(group: &mut [u8], salt: Salt, first: Index, synced: Index, entry: Entry) {
    assert!(synced < first, "what a group says to be synced lies before it");
    let record_bytes = (group.len() - GROUP_HEADER_BYTES) as u32;
    GroupHeader { record_bytes, first, synced, entry }.encode(salt, group);
    let mut at = GROUP_HEADER_BYTES;
    while at < group.len() {
        let header = group[at..].first_chunk_mut().expect("whole records");
        RecordHeader::seal(salt, header);
        at += RECORD_HEADER_BYTES + u32_at(header, 8) as usize;
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("callers check the length"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("callers check the length"))
}

pub(crate) fn history_at(bytes: &[u8], at: usize) -> History {
    History(*bytes[at..].first_chunk().expect("callers check the length"))
}

pub(crate) fn put_u32(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

pub(crate) fn put_u64(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}
