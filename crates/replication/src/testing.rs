//! The checks of bytes from a peer that may lie, for fuzz targets and seeded tests.

use crate::asked::{Asked, acknowledged};
use crate::frame::{self, Decoded, Frame, HEAD_BYTES};
use crate::manifest::{Manifest, is_path};
use crate::psync::{Answer, End, Known, MARK_BYTES};
use haypile_log::body_crc;

/// Reads `data` as a stream of frames, as what frames with the right checksums claim, and as a manifest.
///
/// # Panics
/// A frame or a manifest does not encode to the bytes that it was read from, or a claim is beyond the limits.
pub fn check_bytes(data: &[u8]) {
    check_stream(data);
    check_stream(&forged(data));
    check_manifest(data);
}

/// Returns frames of the kinds, fields and bodies that `data` gives.
fn forged(data: &[u8]) -> Vec<u8> {
    let (mut stream, mut rest) = (Vec::new(), data);
    while let [kind, field_bytes, body_bytes, behind @ ..] = rest {
        let (fields, behind) = behind.split_at(usize::from(*field_bytes).min(behind.len()));
        let (body, behind) = behind.split_at(usize::from(*body_bytes).min(behind.len()));
        let mut head = [&[0; HEAD_BYTES][..], fields].concat();
        frame::seal(*kind, body.len(), body_crc(body), &mut head);
        stream.extend_from_slice(&head);
        stream.extend_from_slice(body);
        rest = behind;
    }
    stream
}

fn check_stream(data: &[u8]) {
    let mut rest = data;
    loop {
        match frame::decode(rest) {
            Ok(Decoded::Frame(frame, bytes)) => {
                let mut again = Vec::new();
                frame.encode(&mut again);
                assert_eq!(again, rest[..bytes], "a frame has one form");
                if let Frame::Copy { manifest, .. } = frame {
                    check_manifest(manifest);
                }
                rest = &rest[bytes..];
            }
            Ok(Decoded::Incomplete(bytes)) => {
                assert!(bytes > 0, "what is there is a frame already");
                break;
            }
            Err(_) => break,
        }
    }
}

fn check_manifest(text: &[u8]) {
    if let Ok(manifest) = Manifest::decode(text) {
        assert_eq!(manifest.encode().as_bytes(), text, "a manifest has one form");
        assert!(manifest.files.iter().all(|file| is_path(&file.path)), "a path leads outside");
        // The sum was checked.
        let _ = manifest.bytes();
    }
}

/// Reads `data` as what a Redis says that is followed: an answer, and an announcement with data behind it, which come
/// in pieces.
///
/// # Panics
/// The data that are read depend on the pieces, or are not what was sent.
pub fn check_psync(data: &[u8]) {
    let line = data.split(|byte| *byte == b'\n').next().unwrap_or(data);
    if let Ok(Answer::Continue { stream: Some(stream) } | Answer::Load { stream, .. }) = Answer::parse(line) {
        assert!(stream.iter().all(u8::is_ascii_alphanumeric), "a stream's name is shown to people");
    }
    if let Ok(end) = End::parse(line) {
        let _ = read_data(end, &data[line.len()..], 1);
    }
    let Some((piece, data)) = data.split_first() else { return };
    let piece = usize::from(*piece) + 1;
    let counted = read_data(End::Length(data.len() as u64), &[data, b"*1"].concat(), piece);
    assert_eq!(counted.as_deref(), Some(data), "data of a known length");
    let Some((mark, data)) = data.split_first_chunk::<MARK_BYTES>() else { return };
    let marked = [data, mark].concat();
    // A master chooses a mark that is not in its data.
    if marked.windows(MARK_BYTES).position(|window| window == mark) == Some(data.len()) {
        assert_eq!(read_data(End::Mark(*mark), &marked, piece).as_deref(), Some(data), "data before a mark");
    }
}

/// Reads data that come by `piece` bytes; `None` if they do not end.
fn read_data(end: End, sent: &[u8], piece: usize) -> Option<Vec<u8>> {
    let (mut data, mut there) = (Vec::new(), Vec::new());
    let mut pieces = sent.chunks(piece);
    loop {
        match end.look(data.len() as u64, &there) {
            Known::Ended { mark } => {
                assert!(mark <= there.len(), "a mark is there");
                return Some(data);
            }
            Known::Data(0) => there.extend_from_slice(pieces.next()?),
            Known::Data(known) => data.extend(there.drain(..known)),
        }
    }
}

/// Reads `data` as what a Redis says that follows: the words of its request, one a line, and of what it says later.
///
/// # Panics
/// A request that goes on to another master is not the same there, or a number is acknowledged that was not said.
pub fn check_asked(data: &[u8]) {
    let words: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    check_acknowledged(&words);
    check_acknowledged(&[&[&b"REPLCONF"[..], b"ACK"], &words[..]].concat());
    check_request(&words);
    check_request(&[&[&b"sync"[..]], &words[..]].concat());
    check_request(&[&[&b"psync"[..]], &words[..]].concat());
    check_request(&[&[&b"psync"[..], b"?", b"-1"], &words[..]].concat());
}

fn check_acknowledged(words: &[&[u8]]) {
    let Ok(Some(has)) = acknowledged(words) else { return };
    let digits = words[2].strip_prefix(b"+").unwrap_or(words[2]);
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count().min(digits.len() - 1);
    assert_eq!(&digits[zeros..], has.to_string().as_bytes(), "the number that was said");
}

fn check_request(words: &[&[u8]]) {
    const HOST: &str = "10.0.0.9";
    let Some(asked) = Asked::parse(&words.iter().map(|word| word.to_vec()).collect::<Vec<_>>()) else { return };
    // As REPLCONF and PSYNC hand their words over.
    let (mut again, mut said) = (Vec::new(), Vec::new());
    for command in asked.commands(HOST) {
        match &command[..] {
            [name, option, value] if name == "REPLCONF" => said.push(format!("{option}={value}").into_bytes()),
            request => again.extend(request.iter().map(|word| word.clone().into_bytes())),
        }
    }
    again[0].make_ascii_lowercase();
    again.extend(said);
    let address = asked.address.clone().or(Some(HOST.to_owned()));
    let place = if asked.is_old { None } else { asked.place.clone() };
    assert_eq!(Asked::parse(&again), Some(Asked { address, place, ..asked }), "the other master hears the same");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::decode;

    /// Numbers that look random, the same in each run.
    fn numbers(seed: u64) -> impl Iterator<Item = u8> {
        let mut state = seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15);
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
    }

    #[test]
    fn bytes_of_a_liar_do_no_harm() {
        let mut frames = 0;
        for seed in 0..20_000 {
            let mut numbers = numbers(seed);
            let length = usize::from(numbers.next().unwrap_or(0));
            let mut data: Vec<u8> = numbers.by_ref().take(length).collect();
            // Most bytes claim what no frame has.
            if let [kind, field_bytes, body_bytes, ..] = &mut data[..] {
                *kind %= 40;
                *body_bytes = body_bytes.saturating_sub(128);
                *field_bytes = [0, 8, 16, 24, 32, 56][usize::from(*field_bytes) % 6];
            }
            frames += usize::from(matches!(decode(&forged(&data)), Ok(Decoded::Frame(..))));
            check_bytes(&data);
        }
        assert!(frames > 150, "{frames} of them were frames");
    }

    #[test]
    fn a_redis_that_follows_and_lies_does_no_harm() {
        const WORDS: [&[u8]; 12] = [
            b"psync",
            b"sync",
            b"0123456789abcdef0123456789abcdef01234567",
            b"1001",
            b"-1",
            b"9223372036854775807",
            b"listening-port=6380",
            b"ip-address=10.0.0.7",
            b"capa=eof",
            b"capa=psync2",
            b"rdb-only=1",
            b"rdb-filter-only=functions",
        ];
        let (mut requests, mut numbers_said) = (0, 0);
        for seed in 0..20_000 {
            let mut numbers = numbers(seed);
            let [count, at, byte] = std::array::from_fn(|_| usize::from(numbers.next().unwrap_or(0)));
            let words: Vec<&[u8]> = numbers.take(count % 8).map(|n| WORDS[usize::from(n) % WORDS.len()]).collect();
            let mut data = words.join(&b'\n');
            if byte < 128 && !data.is_empty() {
                let at = at % data.len();
                data[at] = byte as u8;
            }
            let words: Vec<Vec<u8>> = data.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            requests += usize::from(Asked::parse(&[vec![b"psync".to_vec()], words.clone()].concat()).is_some());
            let said = acknowledged(&[b"REPLCONF", b"ACK", &words[0]]);
            numbers_said += usize::from(matches!(said, Ok(Some(_))));
            check_asked(&data);
        }
        assert!(requests > 1000 && numbers_said > 1000, "{requests} requests, {numbers_said} numbers");
    }

    #[test]
    fn a_redis_that_lies_does_no_harm() {
        const LINES: [&[u8]; 6] = [
            b"+FULLRESYNC 0123456789abcdef0123456789abcdef01234567 77",
            b"+CONTINUE 0123456789abcdef0123456789abcdef01234567",
            b"+CONTINUE",
            b"$EOF:0123456789abcdef0123456789abcdef01234567",
            b"$12",
            b"-ERR not now",
        ];
        let (mut answers, mut ends) = (0, 0);
        for seed in 0..20_000 {
            let mut numbers = numbers(seed);
            let [line, at, byte, length] = std::array::from_fn(|_| usize::from(numbers.next().unwrap_or(0)));
            let mut data = LINES[line % LINES.len()].to_vec();
            if byte < 128 {
                let at = at % data.len();
                data[at] = byte as u8;
            }
            answers += usize::from(Answer::parse(&data).is_ok());
            ends += usize::from(End::parse(&data).is_ok());
            data.push(b'\n');
            data.extend(numbers.take(length));
            check_psync(&data);
        }
        assert!(answers > 5000 && ends > 3000, "{answers} answers, {ends} announcements");
    }
}
