//! The properties of the fuzz targets, on seeded bytes: sound values with a few bytes changed.

use haypile_rdb::testing::{self, Piece};
use haypile_rdb::{Idempotency, Kind, Payload, StreamHead, StreamId};

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn text(&mut self) -> Vec<u8> {
        let len = [0, 1, 2, 11, 21, 70, 300][self.below(7) as usize];
        match self.below(3) {
            0 => (self.below(u64::MAX) as i64 >> self.below(64)).to_string().into_bytes(),
            1 => (0..len).map(|_| self.below(256) as u8).collect(),
            _ => vec![b'a' + self.below(3) as u8; len],
        }
    }

    fn id(&mut self, ms: u64) -> StreamId {
        StreamId { ms, seq: self.below(3) }
    }

    fn value(&mut self) -> (Kind, Vec<Piece>) {
        let count = self.below(250);
        let kinds =
            [Kind::String, Kind::List, Kind::Set, Kind::Zset, Kind::Hash, Kind::TimedHash, Kind::Stream, Kind::Stream];
        let kind = match self.below(10) {
            8 => Kind::IdempotentStream,
            9 => Kind::NackedStream,
            at => kinds[at as usize],
        };
        let pieces = match kind {
            Kind::String => vec![Piece::String(self.text())],
            Kind::List | Kind::Set => (0..count).map(|_| Piece::Element(self.text())).collect(),
            Kind::Zset => (0..count).map(|n| Piece::Scored(self.text(), n as f64 / 7.0)).collect(),
            Kind::Hash => (0..count).map(|_| Piece::Field(self.text(), self.text(), None)).collect(),
            Kind::TimedHash => (0..count)
                .map(|n| {
                    let deadline = (n % 3 > 0).then(|| 1_700_000_000_000 + self.below(100_000));
                    Piece::Field(self.text(), self.text(), deadline)
                })
                .collect(),
            Kind::Stream => self.stream(count, false),
            Kind::IdempotentStream | Kind::NackedStream => {
                let mut pieces = self.stream(count, kind == Kind::NackedStream);
                let producers = self.below(3);
                let (duration_s, ids_max) = (1 + self.below(86_400), 1 + self.below(10_000));
                pieces.push(Piece::Idempotency(Idempotency { duration_s, ids_max, producers }));
                for _ in 0..producers {
                    let ids = self.below(4);
                    pieces.push(Piece::Producer(self.text(), ids));
                    for n in 0..ids {
                        let (text, id) = (self.text(), self.id(3000 + n));
                        pieces.push(Piece::Idempotent(text, id));
                    }
                }
                pieces.push(Piece::IdempotencyCounts(self.below(1 << 40), self.below(9)));
                pieces
            }
        };
        (kind, pieces)
    }

    fn stream(&mut self, count: u64, is_nacked: bool) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for n in 0..count {
            let strings = match self.below(3) {
                0 => (0..2 * (1 + self.below(3))).map(|_| self.text()).collect(),
                _ => vec![b"name".to_vec(), self.text(), b"age".to_vec(), self.text()],
            };
            pieces.push(Piece::Entry(self.id(1000 + n * 3), strings));
        }
        let ids: Vec<StreamId> = pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Entry(id, _) => Some(*id),
                _ => None,
            })
            .collect();
        let groups = self.below(3);
        pieces.push(Piece::Stream(StreamHead {
            length: count,
            last: StreamId { ms: 9000, seq: u64::MAX },
            first: ids.first().copied().unwrap_or_default(),
            max_deleted: self.id(500),
            entries_added: count + self.below(1 << 40),
            groups,
        }));
        for n in 0..groups {
            let pending = self.below(count + 1);
            let name = format!("group {n}").into_bytes();
            let (last, read) = (self.id(2000), self.below(count + 1) as i64 - 1);
            pieces.push(Piece::Group(name, last, Some(read), pending));
            let ids = &ids[..pending as usize];
            pieces.extend(ids.iter().map(|id| Piece::Pending(*id, 77, 1 + self.below(5))));
            let nacked = if is_nacked { self.below(pending + 1) as usize } else { 0 };
            let (nacked, ids) = ids.split_at(nacked);
            let first = self.below(ids.len() as u64 + 1);
            for (n, ids) in [&ids[..first as usize], &ids[first as usize..]].into_iter().enumerate() {
                let name = format!("consumer {n}").into_bytes();
                pieces.push(Piece::Consumer(name, self.below(1 << 41), ids.len() as u64));
                pieces.extend(ids.iter().map(|id| Piece::Owned(*id)));
            }
            // In any order.
            pieces.extend(nacked.iter().rev().map(|id| Piece::Nacked(*id)));
        }
        pieces
    }
}

const SEEDS: u64 = 400;

#[test]
fn what_is_written_is_read() {
    for seed in 0..SEEDS {
        let (kind, pieces) = Random(seed).value();
        let payload = testing::payload(kind, &pieces);
        let read = testing::pieces(&Payload::check(&payload).unwrap());
        assert_eq!(read.unwrap(), (kind, pieces), "seed {seed}");
    }
}

#[test]
fn changed_values_do_no_harm() {
    for seed in 0..SEEDS {
        let mut random = Random(seed);
        let (kind, pieces) = random.value();
        let payload = testing::payload(kind, &pieces);
        let body = &payload[..payload.len() - 10];
        testing::check_payload(body);
        for _ in 0..20 {
            let mut bad = body.to_vec();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bad.len() as u64) as usize;
                bad[at] = match random.below(3) {
                    0 => random.below(256) as u8,
                    1 => bad[at] ^ 1 << random.below(8),
                    _ => [0, 0x7f, 0x80, 0xff][random.below(4) as usize],
                };
            }
            testing::check_payload(&bad);
            testing::check_stream(&bad[1..]);
            testing::check_file(&bad);
            testing::check_lzf(&bad);
            testing::check_listpack(&bad);
            testing::check_ziplist(&bad);
        }
    }
}

#[test]
fn a_payload_has_no_more_than_it_may() {
    use haypile_rdb::{Memory, Writer};
    let mut writer = Writer::new(Memory::new(100)).without_compression();
    writer.string(&[b'x'; 90]).unwrap();
    let error = writer.string(&[b'x'; 20]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
}

#[test]
fn long_strings_come_in_parts() {
    use haypile_rdb::{Memory, Part, Writer};
    let text: Vec<u8> = (0..3_000_000u32).flat_map(|n| (n / 50).to_le_bytes()).collect();
    for compresses in [false, true] {
        let mut writer = Writer::new(Memory::new(usize::MAX));
        if !compresses {
            writer = writer.without_compression();
        }
        writer.kind(Kind::String).unwrap();
        writer.string(&text).unwrap();
        let payload = writer.seal();
        let (mut parts, mut longest, mut read) = (0, 0, Vec::new());
        let elements = Payload::check(&payload).unwrap().read::<()>(|part| {
            let Part::String(bytes) = part else { panic!("{part:?}") };
            (parts, longest) = (parts + 1, bytes.len().max(longest));
            read.extend_from_slice(bytes);
            Ok(())
        });
        assert_eq!((elements.unwrap(), longest), (1, 64 << 10));
        assert!(read == text && parts == text.len().div_ceil(64 << 10));
    }
}
