//! Frames: the units of the stream between a master and a replica, in both directions.
//!
//! A frame is a head of 16 bytes, some fields, and a body. The head and the fields have one checksum, the body another:
//! that of a record is the very one that the log keeps, so that a replica computes it once. A length is the sender's
//! claim; nothing is reserved for it here.

use haypile_log::{History, HistoryStart, Index, Kind, Record, body_crc};
use std::fmt;

/// Bytes of a frame before its fields.
pub const HEAD_BYTES: usize = 16;

/// The most bytes of fields.
const FIELD_BYTES_MAX: usize = 64;

/// The most bytes of a body that is no record's: a manifest, a piece of a file, a text.
pub const OTHER_BODY_BYTES_MAX: usize = 64 << 20;

/// The most bytes of a record's body: what the log takes.
const RECORD_BODY_BYTES_MAX: usize = u32::MAX as usize;

/// The most bytes of a body from a replica: what it sends its master is numbers, and texts for people.
pub const REPLICA_BODY_BYTES_MAX: usize = 64 << 10;

/// One frame, borrowed from the buffer that it was read into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// From a master: the records behind the replica's last one follow.
    Continue,
    /// From a master: the replica needs a copy, which this [`Manifest`](crate::Manifest) lists. Where it has records
    /// that the master does not have, those through `shared` are the master's as well; else that is 0.
    Copy { shared: Index, manifest: &'a [u8] },
    /// From a master: it does not serve this replica, for this reason. The connection ends.
    Refused(&'a str),
    /// From a master: the records that follow are of this history.
    History(HistoryStart),
    /// From a master: the next record.
    Record(RecordFrame<'a>),
    /// From a master: where its log ends, through where replicas have confirmed it if they are asked to, and its clock.
    Heartbeat { written: Index, synced: Index, confirmed: Index, time_ms: u64 },
    /// From a master: bytes of a file of a copy. An empty piece says that the file ends here.
    Piece { file: u32, offset: u64, bytes: &'a [u8] },
    /// From a master: a message for the subscribers of a channel, or of a shard channel.
    Message { is_shard: bool, channel: &'a [u8], text: &'a [u8] },
    /// From a master: an event of a key. The class is one of `haypile_types::event`.
    Event { class: u32, database: u32, name: &'a str, key: &'a [u8] },
    /// From a master: the replica is to lead behind this record, and the master follows it then.
    Promote { index: Index },
    /// From a replica: through where its log is written and synced, and its memory has the records.
    Acknowledge { written: Index, synced: Index, applied: Index },
    /// From a replica: the bytes of a file of a copy from `offset` on are wanted.
    Fetch { file: u32, offset: u64 },
    /// From a replica: the classes of events that it wants to be told of.
    Listen { classes: u32 },
    /// From a replica: it is going to lead behind this record, as it was told to.
    Promoted { index: Index },
}

/// A record in the stream. Its history was named before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordFrame<'a> {
    pub index: Index,
    pub term: u64,
    pub entry: u64,
    pub kind: Kind,
    /// Wall clock in milliseconds.
    pub time_ms: u64,
    pub body: &'a [u8],
    /// The checksum of the body: the log's own, from one end to the other.
    pub body_crc: u32,
}

impl<'a> RecordFrame<'a> {
    /// Returns the record as one of a log.
    pub fn of(&self, history: History) -> Record<'a> {
        let RecordFrame { index, term, entry, kind, time_ms, body, body_crc } = *self;
        Record { index, history, term, entry, kind, time_ms, body, body_crc, segment: 0, offset: 0 }
    }
}

impl<'a> From<&Record<'a>> for RecordFrame<'a> {
    fn from(record: &Record<'a>) -> RecordFrame<'a> {
        let Record { index, term, entry, kind, time_ms, body, body_crc, .. } = *record;
        RecordFrame { index, term, entry, kind, time_ms, body, body_crc }
    }
}

/// The result of looking for a frame at the beginning of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A frame, and how many bytes it takes.
    Frame(Frame<'a>, usize),
    /// At least so many bytes more are needed: the sender's claim, within the limits.
    Incomplete(usize),
}

/// The reason why bytes are no frame. The connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The checksum of the head and the fields is wrong.
    Head,
    /// A head that is sound names a kind that this version does not know.
    Kind(u8),
    /// The fields are not those of the kind.
    Fields(u8),
    /// The body is longer than one of this kind may be.
    Length(u8),
    /// The checksum of the body is wrong.
    Body(u8),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Head => f.write_str("the checksum of a frame's head is wrong"),
            FrameError::Kind(kind) => write!(f, "a frame is of the unknown kind {kind}"),
            FrameError::Fields(kind) => write!(f, "a frame of kind {kind} has fields that cannot be"),
            FrameError::Length(kind) => write!(f, "a frame of kind {kind} is too long"),
            FrameError::Body(kind) => write!(f, "the checksum of a frame of kind {kind} is wrong"),
        }
    }
}

impl std::error::Error for FrameError {}

/// The numbers of the kinds, which are permanent: retire one, never reuse it.
mod kind {
    pub const CONTINUE: u8 = 1;
    pub const COPY: u8 = 2;
    pub const REFUSED: u8 = 3;
    pub const HISTORY: u8 = 4;
    pub const RECORD: u8 = 5;
    pub const HEARTBEAT: u8 = 6;
    pub const PIECE: u8 = 7;
    pub const MESSAGE: u8 = 8;
    pub const EVENT: u8 = 9;
    pub const PROMOTE: u8 = 10;
    pub const ACKNOWLEDGE: u8 = 32;
    pub const FETCH: u8 = 33;
    pub const LISTEN: u8 = 34;
    pub const PROMOTED: u8 = 35;
}

impl Frame<'_> {
    /// Returns the number of the frame's kind.
    pub fn kind(&self) -> u8 {
        match self {
            Frame::Continue => kind::CONTINUE,
            Frame::Copy { .. } => kind::COPY,
            Frame::Refused(_) => kind::REFUSED,
            Frame::History(_) => kind::HISTORY,
            Frame::Record(_) => kind::RECORD,
            Frame::Heartbeat { .. } => kind::HEARTBEAT,
            Frame::Piece { .. } => kind::PIECE,
            Frame::Acknowledge { .. } => kind::ACKNOWLEDGE,
            Frame::Fetch { .. } => kind::FETCH,
            Frame::Message { .. } => kind::MESSAGE,
            Frame::Event { .. } => kind::EVENT,
            Frame::Listen { .. } => kind::LISTEN,
            Frame::Promote { .. } => kind::PROMOTE,
            Frame::Promoted { .. } => kind::PROMOTED,
        }
    }

    /// Appends the frame to `out`.
    ///
    /// # Panics
    /// The body is longer than one of this kind may be.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        let numbers = |out: &mut Vec<u8>, fields: &[u64]| {
            fields.iter().for_each(|field| out.extend_from_slice(&field.to_le_bytes()));
        };
        let kind = self.kind();
        // A body may have two parts.
        let mut first: &[u8] = &[];
        let body: &[u8] = match self {
            Frame::Continue => &[],
            Frame::Copy { shared, manifest } => {
                numbers(out, &[shared.0]);
                manifest
            }
            Frame::Refused(why) => why.as_bytes(),
            Frame::History(start) => {
                out.extend_from_slice(&start.to_bytes());
                &[]
            }
            Frame::Record(record) => {
                // The kind shares a word with the time, as in the log.
                numbers(out, &[record.index.0, record.time_ms << 8 | record.kind as u64]);
                if (record.term, record.entry) != (0, 0) {
                    numbers(out, &[record.term, record.entry]);
                }
                record.body
            }
            Frame::Heartbeat { written, synced, confirmed, time_ms } => {
                numbers(out, &[written.0, synced.0, confirmed.0, *time_ms]);
                &[]
            }
            Frame::Piece { file, offset, bytes } => {
                numbers(out, &[u64::from(*file), *offset]);
                bytes
            }
            Frame::Acknowledge { written, synced, applied } => {
                numbers(out, &[written.0, synced.0, applied.0]);
                &[]
            }
            Frame::Fetch { file, offset } => {
                numbers(out, &[u64::from(*file), *offset]);
                &[]
            }
            Frame::Message { is_shard, channel, text } => {
                numbers(out, &[u64::from(*is_shard), channel.len() as u64]);
                first = channel;
                text
            }
            Frame::Event { class, database, name, key } => {
                numbers(out, &[u64::from(*class), u64::from(*database), name.len() as u64]);
                first = name.as_bytes();
                key
            }
            Frame::Listen { classes } => {
                numbers(out, &[u64::from(*classes)]);
                &[]
            }
            Frame::Promote { index } | Frame::Promoted { index } => {
                numbers(out, &[index.0]);
                &[]
            }
        };
        let fields_end = out.len();
        out.extend_from_slice(first);
        out.extend_from_slice(body);
        let (head, body) = out[start..].split_at_mut(fields_end - start);
        assert!(body.len() <= body_bytes_max(kind), "the sender bounds what it sends");
        let crc = match self {
            Frame::Record(record) => record.body_crc,
            _ => body_crc(body),
        };
        seal(kind, body.len(), crc, head);
    }
}

/// Fills the head of a frame whose fields stand behind it.
pub(crate) fn seal(kind: u8, body_bytes: usize, body_crc: u32, head: &mut [u8]) {
    let field_bytes = (head.len() - HEAD_BYTES) as u16;
    head[4..6].copy_from_slice(&[kind, 0]);
    head[6..8].copy_from_slice(&field_bytes.to_le_bytes());
    head[8..12].copy_from_slice(&(body_bytes as u32).to_le_bytes());
    head[12..16].copy_from_slice(&body_crc.to_le_bytes());
    let crc = head_crc(head);
    head[..4].copy_from_slice(&crc.to_le_bytes());
}

fn body_bytes_max(kind: u8) -> usize {
    match kind {
        kind::COPY | kind::PIECE | kind::REFUSED => OTHER_BODY_BYTES_MAX,
        kind::RECORD | kind::MESSAGE | kind::EVENT => RECORD_BODY_BYTES_MAX,
        _ => 0,
    }
}

/// Returns the checksum of a head and its fields, but for its own place, with which they begin.
fn head_crc(head: &[u8]) -> u32 {
    crc32fast::hash(&head[4..])
}

/// Looks for a frame at the beginning of `bytes`, whichever side has sent it.
///
/// # Errors
/// The bytes do not begin with a frame.
pub fn decode(bytes: &[u8]) -> Result<Decoded<'_>, FrameError> {
    decode_within(bytes, usize::MAX)
}

/// Looks for a frame with a body of at most `body_most` bytes at the beginning of `bytes`.
///
/// # Errors
/// The bytes do not begin with such a frame.
pub fn decode_within(bytes: &[u8], body_most: usize) -> Result<Decoded<'_>, FrameError> {
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
        return Ok(Decoded::Incomplete(HEAD_BYTES - bytes.len()));
    };
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let (kind, field_bytes) = (head[4], usize::from(u16::from_le_bytes([head[6], head[7]])));
    let (crc, body_bytes, crc_of_body) = (number(0), number(8) as usize, number(12));
    if field_bytes > FIELD_BYTES_MAX {
        return Err(FrameError::Head);
    }
    let fields_end = HEAD_BYTES + field_bytes;
    if bytes.len() < fields_end {
        return Ok(Decoded::Incomplete(fields_end - bytes.len()));
    }
    if head_crc(&bytes[..fields_end]) != crc {
        return Err(FrameError::Head);
    }
    if body_bytes > body_bytes_max(kind).min(body_most) {
        return Err(if is_known(kind) { FrameError::Length(kind) } else { FrameError::Kind(kind) });
    }
    let end = fields_end + body_bytes;
    if bytes.len() < end {
        return Ok(Decoded::Incomplete(end - bytes.len()));
    }
    let body = &bytes[fields_end..end];
    if body_crc(body) != crc_of_body {
        return Err(FrameError::Body(kind));
    }
    if head[5] != 0 {
        return Err(FrameError::Fields(kind));
    }
    let frame = parse(kind, &bytes[HEAD_BYTES..fields_end], body, crc_of_body)?;
    Ok(Decoded::Frame(frame, end))
}

fn is_known(kind: u8) -> bool {
    (kind::CONTINUE..=kind::PROMOTE).contains(&kind) || (kind::ACKNOWLEDGE..=kind::PROMOTED).contains(&kind)
}

/// Parses fields and a body whose checksums are right.
fn parse<'a>(kind: u8, fields: &'a [u8], body: &'a [u8], body_crc: u32) -> Result<Frame<'a>, FrameError> {
    let wrong = FrameError::Fields(kind);
    let numbers = |count: usize| -> Result<[u64; 4], FrameError> {
        if fields.len() != 8 * count {
            return Err(wrong);
        }
        let mut numbers = [0; 4];
        for (number, field) in numbers.iter_mut().zip(fields.chunks_exact(8)) {
            *number = u64::from_le_bytes(field.try_into().expect("eight bytes"));
        }
        Ok(numbers)
    };
    let short = |number: u64| u32::try_from(number).map_err(|_| wrong);
    let file_at = || -> Result<(u32, u64), FrameError> {
        let [file, offset, ..] = numbers(2)?;
        Ok((short(file)?, offset))
    };
    let split = |first_bytes: u64| -> Result<(&'a [u8], &'a [u8]), FrameError> {
        usize::try_from(first_bytes).ok().and_then(|first| body.split_at_checked(first)).ok_or(wrong)
    };
    Ok(match kind {
        kind::CONTINUE => numbers(0).map(|_| Frame::Continue)?,
        kind::COPY => {
            let [shared, ..] = numbers(1)?;
            Frame::Copy { shared: Index(shared), manifest: body }
        }
        kind::REFUSED => {
            numbers(0)?;
            Frame::Refused(std::str::from_utf8(body).map_err(|_| wrong)?)
        }
        kind::HISTORY => Frame::History(HistoryStart::from_bytes(fields).ok_or(wrong)?),
        kind::RECORD => {
            let has_entry = fields.len() > 16;
            let [index, stamp, term, entry] = numbers(if has_entry { 4 } else { 2 })?;
            let kind = Kind::from_number(stamp as u8).ok_or(wrong)?;
            if index == 0 || has_entry && (term, entry) == (0, 0) {
                return Err(wrong);
            }
            let (index, time_ms) = (Index(index), stamp >> 8);
            Frame::Record(RecordFrame { index, term, entry, kind, time_ms, body, body_crc })
        }
        kind::HEARTBEAT => {
            let [written, synced, confirmed, time_ms] = numbers(4)?;
            let (written, synced, confirmed) = (Index(written), Index(synced), Index(confirmed));
            Frame::Heartbeat { written, synced, confirmed, time_ms }
        }
        kind::PIECE => {
            let (file, offset) = file_at()?;
            Frame::Piece { file, offset, bytes: body }
        }
        kind::ACKNOWLEDGE => {
            let [written, synced, applied, _] = numbers(3)?;
            Frame::Acknowledge { written: Index(written), synced: Index(synced), applied: Index(applied) }
        }
        kind::FETCH => {
            let (file, offset) = file_at()?;
            Frame::Fetch { file, offset }
        }
        kind::MESSAGE => {
            let [is_shard @ 0..=1, channel_bytes, ..] = numbers(2)? else { return Err(wrong) };
            let (channel, text) = split(channel_bytes)?;
            Frame::Message { is_shard: is_shard == 1, channel, text }
        }
        kind::EVENT => {
            let [class, database, name_bytes, _] = numbers(3)?;
            let (name, key) = split(name_bytes)?;
            let name = std::str::from_utf8(name).map_err(|_| wrong)?;
            Frame::Event { class: short(class)?, database: short(database)?, name, key }
        }
        kind::LISTEN => {
            let [classes, ..] = numbers(1)?;
            Frame::Listen { classes: short(classes)? }
        }
        kind::PROMOTE => Frame::Promote { index: Index(numbers(1)?[0]) },
        kind::PROMOTED => Frame::Promoted { index: Index(numbers(1)?[0]) },
        other => return Err(FrameError::Kind(other)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_log::Origin;

    fn examples() -> Vec<Frame<'static>> {
        let history = History([7; 20]);
        let record = |term, entry, kind, body| {
            let (index, time_ms, body_crc) = (Index(9), 5, body_crc(body));
            Frame::Record(RecordFrame { index, term, entry, kind, time_ms, body, body_crc })
        };
        vec![
            Frame::Continue,
            Frame::Copy { shared: Index(7), manifest: b"a manifest" },
            Frame::Refused("no"),
            Frame::History(HistoryStart { history, origin: Origin::Fork(History([6; 20]), Index(8)) }),
            record(0, 0, Kind::Effects, b"body"),
            record(3, 4, Kind::Term, b""),
            Frame::Heartbeat { written: Index(9), synced: Index(8), confirmed: Index(7), time_ms: 1_700_000_000_000 },
            Frame::Piece { file: 2, offset: 1 << 40, bytes: b"bytes" },
            Frame::Acknowledge { written: Index(9), synced: Index(7), applied: Index(9) },
            Frame::Fetch { file: 2, offset: 1 << 40 },
            Frame::Message { is_shard: true, channel: b"channel", text: b"text" },
            Frame::Message { is_shard: false, channel: b"", text: b"" },
            Frame::Event { class: 8, database: 3, name: "set", key: b"key" },
            Frame::Listen { classes: 0x1ff },
            Frame::Promote { index: Index(9) },
            Frame::Promoted { index: Index(9) },
        ]
    }

    fn encoded(frame: &Frame<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        bytes
    }

    #[test]
    fn each_frame_reads_back_and_says_what_it_lacks() {
        for frame in examples() {
            let mut bytes = encoded(&frame);
            let length = bytes.len();
            bytes.extend_from_slice(b"what follows");
            assert_eq!(decode(&bytes), Ok(Decoded::Frame(frame, length)));
            for cut in 0..length {
                let Ok(Decoded::Incomplete(lacks)) = decode(&bytes[..cut]) else {
                    panic!("{cut} bytes of {frame:?} are no frame");
                };
                assert!((1..=length - cut).contains(&lacks), "{lacks} of {frame:?} at {cut}");
            }
        }
    }

    #[test]
    fn each_bit_that_is_turned_is_noticed() {
        for frame in examples() {
            let bytes = encoded(&frame);
            for bit in 0..8 * bytes.len() {
                let mut turned = bytes.clone();
                turned[bit / 8] ^= 1 << (bit % 8);
                // A longer claim may ask for more bytes, but no other frame comes of it.
                let decoded = decode(&turned);
                assert!(!matches!(decoded, Ok(Decoded::Frame(..))), "bit {bit} of {frame:?}: {decoded:?}");
            }
        }
    }

    /// Returns a frame of any kind and fields, with the right checksums.
    fn made(kind: u8, fields: &[u8], body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        bytes.extend_from_slice(fields);
        seal(kind, body.len(), body_crc(body), &mut bytes);
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn sound_frames_that_cannot_be_are_refused() {
        for (kind, fields, body, error) in [
            (99, &[][..], &[][..], FrameError::Kind(99)),
            (99, &[], b"x", FrameError::Kind(99)),
            (kind::CONTINUE, &[0], &[], FrameError::Fields(kind::CONTINUE)),
            (kind::CONTINUE, &[], b"x", FrameError::Length(kind::CONTINUE)),
            (kind::REFUSED, &[], &[0xff], FrameError::Fields(kind::REFUSED)),
            (kind::HISTORY, &[0; 56], &[], FrameError::Fields(kind::HISTORY)),
            (kind::HISTORY, &[1; 55], &[], FrameError::Fields(kind::HISTORY)),
            (kind::RECORD, &[0; 16], &[], FrameError::Fields(kind::RECORD)),
            (kind::RECORD, &[1; 24], &[], FrameError::Fields(kind::RECORD)),
            (kind::PIECE, &[255; 16], &[], FrameError::Fields(kind::PIECE)),
            (kind::FETCH, &[255; 16], &[], FrameError::Fields(kind::FETCH)),
            (kind::MESSAGE, &[0; 8], &[], FrameError::Fields(kind::MESSAGE)),
            (kind::MESSAGE, &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], b"x", FrameError::Fields(kind::MESSAGE)),
            (kind::MESSAGE, &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], b"x", FrameError::Fields(kind::MESSAGE)),
            (kind::EVENT, &[255; 24], b"x", FrameError::Fields(kind::EVENT)),
            (kind::LISTEN, &[255; 8], &[], FrameError::Fields(kind::LISTEN)),
        ] {
            assert_eq!(decode(&made(kind, fields, body)), Err(error), "kind {kind}, {} bytes of fields", fields.len());
        }
        let mut record = made(kind::RECORD, &[1; 16], &vec![0; REPLICA_BODY_BYTES_MAX + 1]);
        record.truncate(100);
        assert!(matches!(decode(&record), Ok(Decoded::Incomplete(_))), "a master's record may be long");
        let of_replica = decode_within(&record, REPLICA_BODY_BYTES_MAX);
        assert_eq!(of_replica, Err(FrameError::Length(kind::RECORD)), "nobody waits for so much of a replica");
        let why = "x".repeat(REPLICA_BODY_BYTES_MAX);
        let refused = encoded(&Frame::Refused(&why));
        let decoded = decode_within(&refused, REPLICA_BODY_BYTES_MAX);
        assert_eq!(decoded, Ok(Decoded::Frame(Frame::Refused(&why), refused.len())));
        let mut long = made(kind::PIECE, &[0; 16], &vec![0; OTHER_BODY_BYTES_MAX + 1]);
        long.truncate(100);
        assert_eq!(decode(&long), Err(FrameError::Length(kind::PIECE)), "nobody waits for so much");
    }
}
