//! Long elements are announced before they are expanded, in every form that can have them; and lengths that are lies
//! are found before anything is held for them.

use haypile_rdb::listpack::Builder;
use haypile_rdb::lzf::Compressor;
use haypile_rdb::testing::sealed;
use haypile_rdb::{Failure, Part, Payload};

/// Bytes of a long element: far more than is held without asking.
const LONG: usize = 1 << 20;

fn length(bytes: usize) -> Vec<u8> {
    [&[0x80][..], &(bytes as u32).to_be_bytes()].concat()
}

fn plain(text: &[u8]) -> Vec<u8> {
    [&length(text.len())[..], text].concat()
}

fn compressed(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert!(Compressor::default().compress(text, usize::MAX, &mut bytes));
    [&[0xc3][..], &length(bytes.len()), &length(text.len()), &bytes].concat()
}

fn listpack(texts: &[&[u8]]) -> Vec<u8> {
    let mut builder = Builder::default();
    texts.iter().for_each(|text| builder.string(text));
    builder.take()
}

/// A ziplist of strings.
fn ziplist(texts: &[&[u8]]) -> Vec<u8> {
    let (mut bytes, mut before, mut last) = (vec![0; 10], 0usize, 10);
    for text in texts {
        last = bytes.len();
        match u8::try_from(before).ok().filter(|before| *before < 0xfe) {
            Some(before) => bytes.push(before),
            None => bytes.extend([&[0xfe][..], &(before as u32).to_le_bytes()].concat()),
        }
        bytes.push(0x80);
        bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
        bytes.extend_from_slice(text);
        before = bytes.len() - last;
    }
    bytes.push(0xff);
    let total = bytes.len() as u32;
    bytes[..4].copy_from_slice(&total.to_le_bytes());
    bytes[4..8].copy_from_slice(&(last as u32).to_le_bytes());
    bytes[8..].first_chunk_mut::<2>().expect("a head").copy_from_slice(&(texts.len() as u16).to_le_bytes());
    bytes
}

fn zipmap(field: &[u8], value: &[u8]) -> Vec<u8> {
    let word = |text: &[u8]| [&[0xfe][..], &(text.len() as u32).to_le_bytes()].concat();
    [&[1][..], &word(field), field, &word(value), &[0], value, &[0xff]].concat()
}

/// A node of a stream with one entry of one field.
fn node(field: &[u8], value: &[u8]) -> Vec<u8> {
    let mut builder = Builder::default();
    // Entries, deleted ones, fields of the node; then an entry that has the same.
    [1, 0, 1].iter().for_each(|number| builder.number(*number));
    builder.string(field);
    [0, 2, 0, 0].iter().for_each(|number| builder.number(*number));
    builder.string(value);
    builder.number(4);
    builder.take()
}

/// Bytes of what a part brings.
fn bytes_of(part: Part<'_>) -> usize {
    match part {
        Part::Element(bytes) | Part::Scored(bytes, _) => bytes.len(),
        Part::Field { field, value, .. } => field.len() + value.len(),
        Part::Entry { fields, .. } => fields.strings().map(<[u8]>::len).sum(),
        Part::Group(group) => group.name.len(),
        Part::Consumer(consumer) => consumer.name.len(),
        _ => 0,
    }
}

/// Payloads whose longest part has so many bytes, in all forms in which one string may be long, each compressed and
/// not.
fn payloads() -> Vec<(String, Vec<u8>, usize)> {
    let text = vec![b'x'; LONG];
    let (short, score) = (&b"short"[..], 1f64.to_le_bytes());
    let stream_end = [1, 0, 1, 0, 1, 0, 0, 1].as_slice();
    let id = [&[16][..], &[0; 15], &[1]].concat();
    let mut payloads = Vec::new();
    for (how, string) in [("plain", plain as fn(&[u8]) -> Vec<u8>), ("compressed", compressed)] {
        let long = string(&text);
        let mut add = |what: &str, bytes: usize, parts: &[&[u8]]| {
            payloads.push((format!("{what}, {how}"), sealed(&parts.concat()), bytes));
        };
        add("list", LONG, &[&[1, 2, 2], b"hi", &long]);
        add("set", LONG, &[&[2, 1], &long]);
        add("zset", LONG, &[&[5, 1], &long, &score]);
        add("zset with digits", LONG, &[&[3, 1], &long, &[1], b"7"]);
        add("hash", 2 * LONG, &[&[4, 1], &long, &long]);
        add("timed hash", 2 * LONG, &[&[22, 1, 0], &long, &long]);
        add("plain node", LONG, &[&[18, 1, 1], &long]);
        add("packed node", LONG, &[&[18, 1, 2], &string(&listpack(&[short, &text]))]);
        add("set listpack", LONG, &[&[20], &string(&listpack(&[&text, short]))]);
        add("zset listpack", LONG, &[&[17], &string(&listpack(&[&text, b"1.5"]))]);
        add("hash listpack", 2 * LONG, &[&[16], &string(&listpack(&[&text, &text]))]);
        add("timed hash listpack", 2 * LONG, &[&[23], &string(&listpack(&[&text, &text, b"0"]))]);
        add("list ziplist", LONG, &[&[10], &string(&ziplist(&[short, &text]))]);
        add("zset ziplist", LONG, &[&[12], &string(&ziplist(&[&text, b"1.5"]))]);
        add("hash ziplist", 2 * LONG, &[&[13], &string(&ziplist(&[&text, &text]))]);
        add("hash zipmap", 2 * LONG, &[&[9], &string(&zipmap(&text, &text))]);
        add("field of a stream", 2 * LONG, &[&[15, 1], &id, &string(&node(&text, &text)), stream_end]);
        let node_of_value = string(&node(b"f", &text));
        add("value of a stream", 1 + LONG, &[&[15, 1], &id, &node_of_value, stream_end]);
        add("group", LONG, &[&[15, 0, 0, 0, 0, 1], &long, &[0, 0, 0, 0]]);
    }
    payloads
}

#[test]
fn a_long_part_is_announced_before_it_is_there() {
    for (what, payload, longest) in payloads() {
        let (mut ahead, mut most) = (0, 0);
        let read = Payload::check(&payload).expect("it is sealed").read::<()>(|part| {
            match part {
                Part::Ahead { bytes } => ahead = ahead.max(bytes),
                part => {
                    let bytes = bytes_of(part);
                    most = most.max(bytes);
                    assert!(bytes < 1 << 19 || ahead >= bytes as u64, "{what}: {bytes} bytes, {ahead} announced");
                    ahead = 0;
                }
            }
            Ok(())
        });
        assert!(read.is_ok(), "{what}: {read:?}");
        assert_eq!(most, longest, "{what}");
    }
}

#[test]
fn a_sink_that_has_no_room_stops_before_the_part() {
    for (what, payload, _) in payloads() {
        let mut asked = false;
        let read = Payload::check(&payload).expect("it is sealed").read(|part| match part {
            Part::Ahead { .. } => {
                asked = true;
                Err("no room")
            }
            part => {
                assert!(!asked && bytes_of(part) < 1 << 19, "{what}");
                Ok(())
            }
        });
        assert!(matches!(read, Err(Failure::Sink("no room"))), "{what}: {read:?}");
    }
}

/// Nothing is announced, so that nobody looks for room; and nothing is held that was not announced.
#[test]
fn a_length_that_cannot_be_true_is_an_error_at_once() {
    let most = [0x80, 0xff, 0xff, 0xff, 0xff];
    let beyond = [0x81, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let lies: [&[&[u8]]; 11] = [
        &[&[1, 1], &most, b"x"],
        &[&[1, 1], &beyond, b"x"],
        &[&[2, 1, 0xc3], &most, &most, b"x"],
        // As many bytes as LZF could not stand for.
        &[&[2, 1, 0xc3, 1], &most, b"x"],
        &[&[4, 1, 1, b'f'], &most, b"x"],
        &[&[18, 1, 1], &most, b"x"],
        &[&[18, 1, 2], &most, b"x"],
        &[&[15, 1], &most, b"x"],
        &[&[15, 1, 0xc3], &most, &most, b"x"],
        &[&[15, 0, 0, 0, 0, 1], &most, b"x"],
        &[&[20], &beyond, b"x"],
    ];
    for parts in lies {
        let payload = sealed(&parts.concat());
        let read = Payload::check(&payload).expect("it is sealed").read(|part| match part {
            Part::Ahead { bytes } => Err(bytes),
            _ => Ok(()),
        });
        assert!(matches!(read, Err(Failure::Input(_))), "{parts:02x?}: {read:?}");
    }
    // An element that says it is longer than what holds it.
    let mut pack = listpack(&[&vec![b'x'; LONG]]);
    pack[7..11].copy_from_slice(&(u32::MAX / 2).to_le_bytes());
    let payload = sealed(&[&[20][..], &compressed(&pack)].concat());
    let read = Payload::check(&payload).expect("it is sealed").read(|part| match part {
        Part::Ahead { bytes } => Err(bytes),
        _ => Ok(()),
    });
    assert!(matches!(read, Err(Failure::Input(_))), "{read:?}");
}
