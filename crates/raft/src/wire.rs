//! The bytes of messages between members. `docs/format/raft.md` describes them.
//!
//! A message is a head with a checksum, then the records of its entries, each with the checksum that the log keeps.
//! Nothing that comes in is believed before it is checked, and only messages that one member sends to another have a
//! form here: proposals and requests of transfers are made where they are carried out.

use haypile_log::{EntrySpan, Index, Kind, body_crc};
use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use std::fmt;

/// Bytes before the head: its length, the bytes of the records, and a checksum over both and the head.
pub(crate) const FRONT_BYTES: usize = 16;
/// Bytes of a head without its context and entries.
const FIXED_BYTES: usize = 84;
/// Bytes of an entry in a head.
const ENTRY_BYTES: usize = 48;
/// Bytes of a record before its body.
const RECORD_BYTES: usize = 17;
/// The most bytes of a context: a round, a question's name, or the mark of a transfer.
const CONTEXT_BYTES_MAX: usize = 64;
/// The most entries in a message.
const ENTRIES_MAX: usize = 4096;
/// The kinds of messages that have a form, by their numbers, which are permanent.
const KINDS: [(u8, MessageType); 12] = [
    (1, MessageType::MsgAppend),
    (2, MessageType::MsgAppendResponse),
    (3, MessageType::MsgRequestVote),
    (4, MessageType::MsgRequestVoteResponse),
    (5, MessageType::MsgRequestPreVote),
    (6, MessageType::MsgRequestPreVoteResponse),
    (7, MessageType::MsgHeartbeat),
    (8, MessageType::MsgHeartbeatResponse),
    (9, MessageType::MsgTimeoutNow),
    (10, MessageType::MsgSnapshot),
    (11, MessageType::MsgReadIndex),
    (12, MessageType::MsgReadIndexResp),
];

/// Whether a message is one that a leader alone sends to those that follow it.
pub(crate) fn is_of_leader(message: &Message) -> bool {
    matches!(message.get_msg_type(), MessageType::MsgAppend | MessageType::MsgHeartbeat)
}

/// Returns whether members send messages of this kind to each other.
pub(crate) fn travels(kind: MessageType) -> bool {
    KINDS.iter().any(|(_, known)| *known == kind)
}

/// Why bytes are no message of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireError(pub(crate) &'static str);

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no message of a member: {}", self.0)
    }
}

impl std::error::Error for WireError {}

/// A message between members, with the records of its entries.
#[derive(Clone, Debug, Default)]
pub struct Envelope {
    pub(crate) message: Message,
    /// The records of the message's entries, in their order.
    pub(crate) entries: Vec<EntryRecords>,
}

/// The records of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryRecords {
    pub span: EntrySpan,
    /// Each record: its kind, its time, the length and checksum of its body, the body.
    pub bytes: Vec<u8>,
    /// The checksum of all that is there beside the bodies.
    heads_crc: u32,
}

/// Returns a checksum that goes on with these bytes.
fn crc_with(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

/// A record of an entry.
pub(crate) struct EntryRecord<'a> {
    pub index: Index,
    pub kind: Kind,
    pub time_ms: u64,
    pub body: &'a [u8],
    pub body_crc: u32,
}

impl EntryRecords {
    pub fn new(span: EntrySpan) -> EntryRecords {
        EntryRecords { span, bytes: Vec::new(), heads_crc: 0 }
    }

    pub fn push(&mut self, record: &haypile_log::Record<'_>) {
        let at = self.bytes.len();
        self.bytes.push(record.kind as u8);
        self.bytes.extend_from_slice(&record.time_ms.to_le_bytes());
        self.bytes.extend_from_slice(&(record.body.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&record.body_crc.to_le_bytes());
        self.heads_crc = crc_with(self.heads_crc, &self.bytes[at..]);
        self.bytes.extend_from_slice(record.body);
    }

    /// Returns the records; None in the place of one that is damaged.
    pub fn records(&self) -> impl Iterator<Item = Option<EntryRecord<'_>>> {
        let mut rest = &self.bytes[..];
        (self.span.first.0..=self.span.last.0).map(move |index| {
            let (head, behind) = rest.split_at_checked(RECORD_BYTES)?;
            let number = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().expect("a record's head is longer"));
            let (body, behind) = behind.split_at_checked(number(9) as usize)?;
            rest = behind;
            let time_ms = u64::from_le_bytes(*head[1..].first_chunk().expect("a record's head is longer"));
            let record = EntryRecord {
                index: Index(index),
                kind: Kind::from_number(head[0])?,
                time_ms,
                body,
                body_crc: number(13),
            };
            (time_ms < 1 << 56 && body_crc(body) == record.body_crc).then_some(record)
        })
    }

    /// Returns whether these are whole records, as many as the entry has, and nothing more.
    fn are_sound(&self) -> bool {
        let whole = self.records().try_fold((0, 0), |(at, crc), record| {
            let behind = at + RECORD_BYTES + record?.body.len();
            Some((behind, crc_with(crc, &self.bytes[at..at + RECORD_BYTES])))
        });
        whole == Some((self.bytes.len(), self.heads_crc))
    }
}

impl Envelope {
    /// Returns the member that this is for.
    pub fn to(&self) -> u64 {
        self.message.to
    }

    /// Returns the member that this is from, as it says.
    pub fn from(&self) -> u64 {
        self.message.from
    }

    /// Returns the term of its sender.
    pub fn term(&self) -> u64 {
        self.message.term
    }

    /// Appends the bytes of this message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let message = &self.message;
        let at = out.len();
        out.extend_from_slice(&[0; FRONT_BYTES]);
        let kind = KINDS.iter().find(|(_, kind)| *kind == message.get_msg_type());
        out.push(kind.expect("only what travels is sent").0);
        out.push(u8::from(message.reject));
        out.push(message.context.len() as u8);
        out.push(0);
        let Message { from, to, term, log_term, index, commit, commit_term, reject_hint, request_snapshot, .. } =
            *message;
        let priority = message.priority as u64;
        for number in [from, to, term, log_term, index, commit, commit_term, reject_hint, request_snapshot, priority] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        debug_assert_eq!(out.len() - at, FRONT_BYTES + FIXED_BYTES);
        out.extend_from_slice(&message.context);
        for (entry, records) in message.entries.iter().zip(&self.entries) {
            let EntrySpan { term, number, first, last, changes_members } = records.span;
            [term, number, first.0, last.0].iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
            out.extend_from_slice(&(records.bytes.len() as u64).to_le_bytes());
            debug_assert_eq!(changes_members, entry.get_entry_type() != EntryType::EntryNormal);
            out.extend_from_slice(&u32::from(changes_members).to_le_bytes());
            out.extend_from_slice(&records.heads_crc.to_le_bytes());
        }
        seal(&mut out[at..], self.entries.iter().map(|entry| entry.bytes.len() as u64).sum());
        self.entries.iter().for_each(|entry| out.extend_from_slice(&entry.bytes));
    }

    /// Returns the term of the message with entries whose beginning this is; None of other bytes.
    pub fn begun_in(bytes: &[u8]) -> Option<u64> {
        let head_bytes = u32_at(bytes.get(..FRONT_BYTES)?, 4) as usize;
        let head = bytes.get(FRONT_BYTES..FRONT_BYTES.checked_add(head_bytes)?)?;
        let is_sound =
            head_bytes >= FIXED_BYTES && crc32fast::hash(&bytes[4..FRONT_BYTES + head_bytes]) == u32_at(bytes, 0);
        let (message, spans) = decode_head(head).ok().filter(|_| is_sound)?;
        (!spans.is_empty()).then_some(message.term)
    }

    /// Reads the message at the beginning of `bytes`, and how many they are; None if there is more to come.
    ///
    /// # Errors
    /// These bytes are no message, whatever follows.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Envelope, usize)>, WireError> {
        let Some((front, behind)) = bytes.split_at_checked(FRONT_BYTES) else { return Ok(None) };
        let head_bytes = u32_at(front, 4) as usize;
        if !(FIXED_BYTES..=FIXED_BYTES + CONTEXT_BYTES_MAX + ENTRIES_MAX * ENTRY_BYTES).contains(&head_bytes) {
            return Err(WireError("a head of an impossible length"));
        }
        let Some((head, behind)) = behind.split_at_checked(head_bytes) else { return Ok(None) };
        if crc32fast::hash(&bytes[4..FRONT_BYTES + head_bytes]) != u32_at(front, 0) {
            return Err(WireError("a wrong checksum of a head"));
        }
        let (message, spans) = decode_head(head)?;
        let records_bytes = u64_at(front, 8);
        if spans.iter().try_fold(0u64, |sum, (_, bytes, _)| sum.checked_add(*bytes)) != Some(records_bytes) {
            return Err(WireError("lengths of entries that do not add up"));
        }
        let Some(mut records) = usize::try_from(records_bytes).ok().and_then(|length| behind.get(..length)) else {
            return Ok(None);
        };
        let mut entries = Vec::with_capacity(spans.len());
        for (span, length, heads_crc) in spans {
            let (of_entry, rest) = records.split_at(length as usize);
            records = rest;
            let entry = EntryRecords { span, bytes: of_entry.to_vec(), heads_crc };
            if !entry.are_sound() {
                return Err(WireError("an entry with a record that is damaged"));
            }
            entries.push(entry);
        }
        let taken = FRONT_BYTES + head_bytes + records_bytes as usize;
        Ok(Some((Envelope { message, entries }, taken)))
    }
}

/// Fills in what comes before a head: `message` has room for it, and the head.
pub(crate) fn seal(message: &mut [u8], records_bytes: u64) {
    let head_bytes = (message.len() - FRONT_BYTES) as u32;
    message[4..8].copy_from_slice(&head_bytes.to_le_bytes());
    message[8..16].copy_from_slice(&records_bytes.to_le_bytes());
    let crc = crc32fast::hash(&message[4..]);
    message[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Returns a message without its records, and for each of its entries its place, its bytes and their checksum.
fn decode_head(head: &[u8]) -> Result<(Message, Vec<(EntrySpan, u64, u32)>), WireError> {
    let Some((_, kind)) = KINDS.iter().find(|(number, _)| *number == head[0]) else {
        return Err(WireError("an unknown kind"));
    };
    if head[1] > 1 || head[3] != 0 || usize::from(head[2]) > CONTEXT_BYTES_MAX {
        return Err(WireError("a head with impossible fields"));
    }
    let (fixed, behind) = head.split_at(FIXED_BYTES);
    let Some((context, entries)) = behind.split_at_checked(usize::from(head[2])) else {
        return Err(WireError("a head that is too short"));
    };
    if !entries.len().is_multiple_of(ENTRY_BYTES) || !entries.is_empty() && *kind != MessageType::MsgAppend {
        return Err(WireError("a head with half an entry"));
    }
    let number = |at: usize| u64_at(fixed, 4 + 8 * at);
    let mut message = Message {
        from: number(0),
        to: number(1),
        term: number(2),
        log_term: number(3),
        index: number(4),
        commit: number(5),
        commit_term: number(6),
        reject: head[1] == 1,
        reject_hint: number(7),
        request_snapshot: number(8),
        priority: number(9) as i64,
        context: context.to_vec().into(),
        ..Message::default()
    };
    message.set_msg_type(*kind);
    let mut spans = Vec::with_capacity(entries.len() / ENTRY_BYTES);
    let mut term_before = message.log_term;
    for (at, bytes) in entries.chunks_exact(ENTRY_BYTES).enumerate() {
        let [term, number, first, last, length] = [0, 8, 16, 24, 32].map(|at| u64_at(bytes, at));
        let follows = message.index.checked_add(1 + at as u64) == Some(number);
        let before = std::mem::replace(&mut term_before, term);
        let is_sound =
            follows && term >= before && first <= last && first > 0 && last - first < length && term <= message.term;
        if !is_sound || last == u64::MAX || u32_at(bytes, 40) > 1 {
            return Err(WireError("an entry with impossible fields"));
        }
        let mut entry = Entry { index: number, term, ..Entry::default() };
        if u32_at(bytes, 40) == 1 {
            entry.set_entry_type(EntryType::EntryConfChangeV2);
        }
        message.mut_entries().push(entry);
        let changes_members = u32_at(bytes, 40) == 1;
        let span = EntrySpan { term, number, first: Index(first), last: Index(last), changes_members };
        spans.push((span, length, u32_at(bytes, 44)));
    }
    Ok((message, spans))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("callers check the length"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("callers check the length"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_log::testing::Random;
    use haypile_log::{History, Record};

    /// Returns an append with entries of one to three records each.
    fn append(random: &mut Random) -> Envelope {
        let mut message = Message { from: 1, to: 2, term: 7, log_term: 6, index: 40, commit: 39, ..Message::default() };
        message.set_msg_type(MessageType::MsgAppend);
        let (mut entries, mut next) = (Vec::new(), 100);
        for number in 41..41 + random.below(4) {
            let last = next + random.below(3);
            let span = EntrySpan { term: 7, number, first: Index(next), last: Index(last), changes_members: false };
            let mut records = EntryRecords::new(span);
            for index in next..=last {
                let body = vec![index as u8; random.below(50) as usize];
                records.push(&Record {
                    index: Index(index),
                    history: History([1; 20]),
                    term: 7,
                    entry: number,
                    kind: Kind::Effects,
                    time_ms: 1_700_000_000_000,
                    body: &body,
                    body_crc: body_crc(&body),
                    segment: 0,
                    offset: 0,
                });
            }
            next = last + 1;
            message.mut_entries().push(Entry { index: number, term: 7, ..Entry::default() });
            entries.push(records);
        }
        Envelope { message, entries }
    }

    fn bytes_of(envelope: &Envelope) -> Vec<u8> {
        let mut bytes = Vec::new();
        envelope.encode(&mut bytes);
        bytes
    }

    #[test]
    fn a_message_reads_back_and_no_beginning_of_it_does() {
        let mut random = Random(5);
        for _ in 0..200 {
            let bytes = bytes_of(&append(&mut random));
            let (read, length) = Envelope::decode(&bytes).unwrap().unwrap();
            assert!(length == bytes.len() && bytes_of(&read) == bytes);
            let cut = random.below(bytes.len() as u64) as usize;
            assert!(Envelope::decode(&bytes[..cut]).unwrap().is_none(), "{cut} of {length}");
        }
    }

    #[test]
    fn a_message_with_a_flipped_bit_is_refused() {
        let mut random = Random(6);
        for _ in 0..2000 {
            let mut bytes = bytes_of(&append(&mut random));
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
            let decoded = Envelope::decode(&bytes);
            let is_longer = matches!(decoded, Ok(None)) && (4..16).contains(&at);
            assert!(decoded.is_err() || is_longer, "byte {at}");
        }
    }

    #[test]
    fn random_bytes_behind_a_true_checksum_do_no_harm() {
        let mut random = Random(7);
        for _ in 0..20_000 {
            let mut bytes = bytes_of(&append(&mut random));
            let head = FRONT_BYTES + u32_at(&bytes, 4) as usize;
            for _ in 0..1 + random.below(4) {
                let at = FRONT_BYTES + random.below((head - FRONT_BYTES) as u64) as usize;
                bytes[at] = random.number() as u8;
            }
            let crc = crc32fast::hash(&bytes[4..head]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
            if let Ok(Some((envelope, _))) = Envelope::decode(&bytes) {
                assert!(travels(envelope.message.get_msg_type()));
                assert!(envelope.entries.iter().all(|entry| entry.records().all(|record| record.is_some())));
            }
        }
    }
}
