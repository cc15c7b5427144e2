//! Checks that the fuzz target and the seeded test run on arbitrary bytes: nothing that parses a log may panic, hang,
//! allocate by a claimed length, or hand out a record that was not written.

use std::path::Path;
use std::sync::Arc;

use super::ForgetfulFiles;
use crate::format::{
    Entry, GROUP_HEADER_BYTES, GroupHeader, History, HistoryStart, Index, Kind, Origin, RecordHeader, Salt,
    SegmentHeader, seal,
};
use crate::{Effect, Log, OpenError, Options, body_crc, dump, effects};

const DIR: &str = "/log";
const SALT: Salt = Salt(0x5eed);

/// Reads `data` as a body; as what follows the header of a segment; as groups and records that claim anything with the
/// right checksums; and as a list of damages to a sound log.
pub fn check_bytes(data: &[u8]) {
    check_body(data);
    let mut segment = header(1, Index(1));
    segment.extend_from_slice(data);
    read(&[segment], None);
    read(&[forged_segment(data)], None);
    let mut sound = sound_log();
    let damages = data.chunks_exact(4);
    // A change of many bytes can make the checksums right again.
    let bodies = (damages.len() <= 3).then(bodies);
    for damage in damages {
        let file = usize::from(damage[0] >> 6) % sound.len();
        let at = usize::from(u16::from_le_bytes([damage[1], damage[2]])) % sound[file].len();
        match damage[0] & 0x3f {
            0 => sound[file].truncate(at.max(1)),
            _ => sound[file][at] ^= damage[3],
        }
    }
    read(&sound, bodies.as_deref());
}

fn check_body(body: &[u8]) {
    let (mut items, mut payload) = (0, 0);
    for effect in effects(body) {
        items += 1;
        payload += match effect {
            Ok(Effect::Put { key, value }) => key.len() + value.len(),
            Ok(Effect::Delete { key } | Effect::Touch { key }) => key.len(),
            Ok(Effect::Patch { key, offset, bytes, len_after }) => {
                assert!(u64::from(offset) + bytes.len() as u64 <= u64::from(len_after), "a patch lies in its row");
                key.len() + bytes.len()
            }
            Ok(Effect::Splice { key, offset, removed, bytes, len_after }) => {
                let [offset, removed, len_after] = [offset, removed, len_after].map(u64::from);
                let tail = len_after.checked_sub(offset + bytes.len() as u64).expect("a splice lies in its row");
                assert!(offset + removed + tail <= u64::from(u32::MAX), "the row before was no longer than rows are");
                key.len() + bytes.len()
            }
            Ok(Effect::Statement { text, .. }) => text.len(),
            Ok(Effect::Count { .. }) | Err(_) => 0,
        };
    }
    assert!(items <= body.len() && payload <= body.len());
}

/// Opens and dumps a log of these segments. Where the records are known, only those may come out, in order.
fn read(segments: &[Vec<u8>], known: Option<&[Vec<u8>]>) {
    let files = ForgetfulFiles::new();
    crate::Files::create_dir_all(&files, Path::new(DIR)).expect("in memory");
    for (position, bytes) in segments.iter().enumerate() {
        files.replace(&Path::new(DIR).join(format!("{:020}.log", position + 1)), bytes.clone());
    }
    if let Ok(dump) = dump(&files, Path::new(DIR)) {
        for entry in dump {
            assert!(entry.is_ok() || matches!(entry, Err(OpenError::Newer { .. })), "reading memory does not fail");
        }
    }
    let options = Options { segment_bytes: 16 * 1024, files: Arc::new(files), ..Options::new(DIR) };
    // A log that is opened is not begun here: that would start threads for every input.
    if let Ok(mut opened) = Log::open(options, Index(0)) {
        let last = opened.last;
        let mut index = Index(0);
        while index < last
            && let Some(Ok(record)) = opened.replay.next()
        {
            index = index.next();
            assert_eq!(record.index, index);
            if let Some(known) = known {
                assert_eq!(record.body, known[index.0 as usize - 1]);
            }
        }
    }
}

/// Every eight bytes make a group of one record, whose lengths, indexes, kind and size are as they say.
fn forged_segment(data: &[u8]) -> Vec<u8> {
    let salt = Salt(SALT.0 + 1);
    let mut segment = header(1, Index(1));
    for (position, claims) in data.chunks_exact(8).enumerate() {
        let [record_bytes, first, synced, body_bytes, index, kind, size, shift] = *claims else { unreachable!() };
        // Small numbers are near the truth, the largest claim far more than there is.
        let claim = |claim: u8, truth: u64| match claim {
            0..128 => truth,
            128..255 => u64::from(claim - 128),
            255 => u64::from(u32::MAX) >> (shift & 31),
        };
        let body = vec![kind; usize::from(size)];
        let truth = position as u64 + 1;
        let (body_crc, body_bytes) = (body_crc(&body), claim(body_bytes, body.len() as u64) as u32);
        let record =
            RecordHeader { body_crc, body_bytes, kind: kind & 7, time_ms: 0, index: Index(claim(index, truth)) };
        let mut bytes = record.encode();
        RecordHeader::seal(salt, &mut bytes);
        let record_bytes = claim(record_bytes, (bytes.len() + body.len()) as u64) as u32;
        let (first, synced) = (Index(claim(first, truth)), Index(claim(synced, 0)));
        let mut group = [0; GROUP_HEADER_BYTES];
        let entry = Entry { term: u64::from(shift >> 6), number: u64::from(shift >> 5 & 1) };
        GroupHeader { record_bytes, first, synced, entry }.encode(salt, &mut group);
        segment.extend_from_slice(&group);
        segment.extend_from_slice(&bytes);
        segment.extend_from_slice(&body);
    }
    segment
}

fn header(number: u64, first: Index) -> Vec<u8> {
    let start = HistoryStart { history: History([7; 20]), origin: Origin::Nothing };
    let salt = Salt(SALT.0 + number as u32);
    let header = SegmentHeader { number, first, salt, created_ms: 0, start, ancestors: Vec::new(), allocated_bytes: 0 };
    header.encode().to_vec()
}

fn bodies() -> Vec<Vec<u8>> {
    (1..=9u8).map(|number| vec![number; 40 * usize::from(number)]).collect()
}

/// Three segments; the second follows the first, the third supersedes the second from record 6 on.
fn sound_log() -> Vec<Vec<u8>> {
    let bodies = bodies();
    let mut segments = vec![header(1, Index(1)), header(2, Index(0)), header(3, Index(6))];
    for (segment, first, last, synced) in
        [(0, 1, 2, 0), (0, 3, 3, 2), (1, 4, 5, 3), (1, 6, 7, 3), (2, 6, 6, 5), (2, 7, 8, 6), (2, 9, 9, 6)]
    {
        let mut group = vec![0; GROUP_HEADER_BYTES];
        for index in first..=last {
            let body = &bodies[index as usize - 1];
            let (body_crc, body_bytes) = (body_crc(body), body.len() as u32);
            let kind = Kind::Effects as u8;
            let header = RecordHeader { body_crc, body_bytes, kind, time_ms: 0, index: Index(index) };
            group.extend_from_slice(&header.encode());
            group.extend_from_slice(body);
        }
        let salt = Salt(SALT.0 + segment as u32 + 1);
        seal(&mut group, salt, Index(first), Index(synced), Entry { term: first / 4, number: first });
        segments[segment].extend_from_slice(&group);
    }
    segments
}
