//! The bytes of the stream, as `docs/format/replication.md` shows them: the page is the expectation.

use haypile_log::{History, HistoryStart, Index, Kind, Origin, body_crc};
use haypile_replication::Frame;
use haypile_replication::frame::RecordFrame;

const PAGE: &str = include_str!("../../../docs/format/replication.md");

/// Returns the bytes of the page's example: lines of hex up to a `;`.
fn example() -> Vec<String> {
    let block = PAGE.split("```").find_map(|block| block.strip_prefix("hex stream\n")).expect("the page has one");
    let bytes = |line: &'static str| line.split(';').next().unwrap_or_default().split_whitespace();
    block.lines().flat_map(bytes).map(str::to_owned).collect()
}

#[test]
fn the_stream_has_the_bytes_of_the_page() {
    let start = HistoryStart { history: History([7; 20]), origin: Origin::Fork(History([6; 20]), Index(8)) };
    let index = Index(9);
    let time_ms = 1_700_000_000_123;
    let (kind, body) = (Kind::Effects, b"effects");
    let record = RecordFrame { index, term: 0, entry: 0, kind, time_ms, body, body_crc: body_crc(body) };
    let acknowledged = Frame::Acknowledge { written: index, synced: Index(8), applied: index };
    let mut bytes = Vec::new();
    for frame in [Frame::Continue, Frame::History(start), Frame::Record(record), acknowledged] {
        frame.encode(&mut bytes);
    }
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex.join(" "), example().join(" "));
}
