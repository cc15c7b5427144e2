//! The bytes of the format, as `docs/format/log.md` shows them: the page is the expectation.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use haypile_log::*;

const PAGE: &str = include_str!("../../../docs/format/log.md");

const DIRECTORY_PAGE: &str = include_str!("../../../docs/format/directory.md");

fn example(title: &str) -> Vec<u8> {
    example_of(PAGE, title)
}

/// The bytes of a page's example with this title: lines of hex up to a `;`, in a block that begins with the title.
fn example_of(page: &str, title: &str) -> Vec<u8> {
    let block = page.split("```").find(|block| block.starts_with(&format!("hex {title}\n")));
    let lines = block.unwrap_or_else(|| panic!("the page has an example named {title}")).lines().skip(1);
    let digits: String = lines.flat_map(|line| line.split(';').next().unwrap().split_whitespace()).collect();
    let byte = |pair: usize| u8::from_str_radix(&digits[2 * pair..2 * pair + 2], 16).unwrap();
    (0..digits.len() / 2).map(byte).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

fn example_body() -> Body {
    let mut body = Body::new();
    body.put(&[b"row:", b"a"], &[b"value"]);
    body.delete(&[b"row:b"]);
    body.patch(&[b"row:c"], 300, b"xy", 1000);
    body.count(7, 1, -2);
    body.splice(&[b"row:", b"d"], 300, 2, b"xyz", 1001);
    body.touch(b"row:e");
    body
}

#[test]
fn a_body_has_the_bytes_of_the_page() {
    let body = example_body();
    assert_eq!(hex(body.bytes()), hex(&example("body")));
    let found: Vec<_> = effects(body.bytes()).collect::<Result<_, _>>().unwrap();
    assert_eq!(
        found,
        [
            Effect::Put { key: b"row:a", value: b"value" },
            Effect::Delete { key: b"row:b" },
            Effect::Patch { key: b"row:c", offset: 300, bytes: b"xy", len_after: 1000 },
            Effect::Count { space: 7, counter: 1, delta: -2 },
            Effect::Splice { key: b"row:d", offset: 300, removed: 2, bytes: b"xyz", len_after: 1001 },
            Effect::Touch { key: b"row:e" },
        ]
    );
}

#[test]
fn a_segment_has_the_bytes_of_the_page() {
    let rig = Rig::new(0);
    let (mut options, faults) = rig.options();
    let calls = AtomicU64::new(0);
    options.random = Arc::new(move || 0x0101_0101_0101_0101 * (calls.fetch_add(1, Ordering::Relaxed) + 1));
    let life = Life::open(options, faults, Index(0)).unwrap();
    life.wait_for_spare();
    let body = example_body();
    let reserved = life.log.reserve(body.len()).unwrap();
    life.log.append(reserved, Kind::Effects, 1_700_000_000_123, body.bytes(), body_crc(body.bytes()));
    life.log.sync_through(Index(1)).unwrap();
    // Entry 5 of term 3, in a group of its own though it is one write.
    life.log.begin_entry(3, 5);
    for (kind, body) in [(Kind::Term, &b"new"[..]), (Kind::Members, b"")] {
        let reserved = life.log.reserve(body.len()).unwrap();
        life.log.append(reserved, kind, 1_700_000_000_124, body, body_crc(body));
    }
    life.log.close().unwrap();
    let file = rig.disk.read(&rig.path(1)).unwrap();
    let (header, groups) = file.split_at(SEGMENT_HEADER_BYTES as usize);
    let (header, rest_of_page) = header.split_at(HISTORIES_END);
    assert_eq!(hex(header), hex(&example("segment header")));
    assert_eq!(hex(groups), hex(&example("groups")), "and nothing behind the mark of a clean stop");
    assert!(rest_of_page.iter().all(|byte| *byte == 0));
}

/// Where a header without ancestors ends.
const HISTORIES_END: usize = 112;

#[test]
fn a_header_names_histories_as_the_page_does() {
    let rig = Rig::new(0);
    let calls = Arc::new(AtomicU64::new(0));
    let open = || {
        let (mut options, faults) = rig.options();
        let calls = calls.clone();
        options.random = Arc::new(move || 0x0101_0101_0101_0101 * (calls.fetch_add(1, Ordering::Relaxed) + 1));
        Life::open(options, faults, Index(0)).unwrap()
    };
    let life = open();
    life.wait_for_spare();
    life.sync(b"one");
    rig.disk.kill();
    drop(life);
    let life = open();
    let file = rig.disk.read(&rig.path(3)).unwrap();
    let expected = example("histories");
    assert_eq!(hex(&file[48..48 + expected.len()]), hex(&expected));
    assert!(file[48 + expected.len()..SEGMENT_HEADER_BYTES as usize].iter().all(|byte| *byte == 0));
    drop(life);
}

#[test]
fn the_end_file_has_the_bytes_of_the_page() {
    let rig = Rig::new(0);
    let (mut options, faults) = rig.options();
    let calls = AtomicU64::new(0);
    options.random = Arc::new(move || 0x0101_0101_0101_0101 * (calls.fetch_add(1, Ordering::Relaxed) + 1));
    let directory = DirectoryId::parse("0f1e2d3c4b5a69788796a5b4c3d2e1f0").unwrap();
    options.end = Some(EndFile { path: END.into(), directory, is_expected: false, is_written: true });
    let life = Life::open(options, faults, Index(0)).unwrap();
    let expected = example_of(DIRECTORY_PAGE, "slot");
    let file = rig.disk.read(std::path::Path::new(END)).unwrap();
    assert_eq!(hex(&file[..expected.len()]), hex(&expected));
    assert_eq!(hex(&file[4096..]), hex(&expected));
    drop(life);
}
