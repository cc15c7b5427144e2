//! DUMP and RESTORE of all types and sizes, and what becomes of payloads that nobody should have made. Next: `streams`,
//! `long` (payloads that go out in pieces).

mod long;
#[path = "../runner/mod.rs"]
mod runner;
mod streams;

use haypile_rdb::lzf::Compressor;
use haypile_rdb::testing::{self, Piece};
use haypile_rdb::{Kind, Payload};
use haypile_store::testing::{TestStore, memory_store};
use runner::{Client, Shown};

/// Runs a test with all rows in the memtable, and with all of them on a base that an event loop does not reach.
fn both_ways(test: impl Fn(&TestStore, &dyn Fn())) {
    let warm = memory_store();
    test(&warm, &|| {});
    let cold = memory_store();
    cold.base.set_cold(true);
    test(&cold, &|| {
        cold.flush_now().expect("flushes to memory");
        cold.base.set_cold(true);
    });
}

fn word(shown: Shown) -> String {
    match shown {
        Shown::Word(word) => word.strip_prefix("error ").unwrap_or(&word).into(),
        Shown::Bulk(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        list => panic!("{list:?}"),
    }
}

fn ask(client: &mut Client, words: &[&[u8]]) -> Shown {
    client.call(&words.iter().map(|word| word.to_vec()).collect::<Vec<_>>())
}

fn line(client: &mut Client, line: &str) -> String {
    word(ask(client, &line.split(' ').map(str::as_bytes).collect::<Vec<_>>()))
}

fn dump(client: &mut Client, key: &str) -> Vec<u8> {
    match ask(client, &[b"DUMP", key.as_bytes()]) {
        Shown::Bulk(payload) => payload,
        other => panic!("{key}: {other:?}"),
    }
}

fn restore(client: &mut Client, key: &str, payload: &[u8]) -> String {
    word(ask(client, &[b"RESTORE", key.as_bytes(), b"0", payload]))
}

#[test]
fn values_of_all_types_and_sizes_come_back() {
    both_ways(|store, settle| {
        let mut client = Client::new(store);
        // Few in the meta row; some in rows; more than one step has.
        for count in [1i64, 5, 70, 300, 3000] {
            line(&mut client, "FLUSHALL");
            let elements: Vec<String> = (0..count).map(|n| format!("e{}", n * 11 % count)).collect();
            let numbers: Vec<String> = (0..count).map(|n| (n * n * 1000 - 500).to_string()).collect();
            let pairs: Vec<String> = (0..count).map(|n| format!("{} e{n}", n % 9)).collect();
            line(&mut client, &format!("RPUSH list {}", elements.join(" ")));
            line(&mut client, &format!("SADD set {}", elements.join(" ")));
            line(&mut client, &format!("SADD numbers {}", numbers.join(" ")));
            line(&mut client, &format!("ZADD zset {}", pairs.join(" ")));
            line(
                &mut client,
                &format!(
                    "HSET hash {}",
                    pairs.iter().enumerate().map(|(n, pair)| format!("f{n}:{pair}")).collect::<Vec<_>>().join(" ")
                ),
            );
            line(&mut client, &format!("SET string {}", "x".repeat(count as usize * 7)));
            line(
                &mut client,
                &format!("HSET timed {}", elements.iter().map(|e| format!("{e} v")).collect::<Vec<_>>().join(" ")),
            );
            ask(&mut client, &[b"HPEXPIRE", b"timed", b"90000", b"FIELDS", b"1", b"e0"]);
            for n in 0..count {
                line(&mut client, &format!("XADD stream {}-{} name e{n} age {n}", n / 3 + 1, n % 3 + 1));
            }
            line(&mut client, "XADD stream 2000-0 other field");
            line(&mut client, "XDEL stream 1-1");
            for group in ["0", "2-1 ENTRIESREAD 3", "$"] {
                let name = &group[..1];
                line(&mut client, &format!("XGROUP CREATE stream group{name} {group}"));
                for consumer in ["alice", "bob", ""] {
                    ask(
                        &mut client,
                        &[
                            b"XREADGROUP",
                            b"GROUP",
                            format!("group{name}").as_bytes(),
                            consumer.as_bytes(),
                            b"COUNT",
                            b"400",
                            b"STREAMS",
                            b"stream",
                            b">",
                        ],
                    );
                }
            }
            for key in ["stream", "list", "set", "numbers", "zset", "hash", "string", "timed"] {
                settle();
                let payload = dump(&mut client, key);
                settle();
                assert_eq!(restore(&mut client, "again", &payload), "OK", "{key}");
                settle();
                assert_eq!(dump(&mut client, "again"), payload, "{key} of {count}");
                for question in ["OBJECT ENCODING", "TYPE"] {
                    let [one, other] = [key, "again"].map(|key| line(&mut client, &format!("{question} {key}")));
                    assert_eq!(one, other, "{question} {key} of {count}");
                }
                assert_eq!(line(&mut client, "DEL again"), "1");
            }
            let payload = dump(&mut client, "timed");
            client.now_ms += 90_001;
            // Elements whose deadline has passed meanwhile are not there.
            let left = restore(&mut client, "late", &payload);
            assert_eq!((left.as_str(), line(&mut client, "EXISTS late")), ("OK", u8::from(count > 1).to_string()));
            assert_eq!(line(&mut client, "HLEN late"), (count - 1).to_string());
            assert_eq!(line(&mut client, "HLEN timed"), (count - 1).to_string());
        }
    });
}

/// DUMP's payloads are of version 10, in forms that Redis 7.0 has, but for hashes whose fields have deadlines.
#[test]
fn payloads_are_of_the_oldest_version_that_can_hold_them() {
    let store = memory_store();
    let mut client = Client::new(&store);
    for (command, version, form) in [
        ("SET k v", 10, 0),
        ("RPUSH k v", 10, 1),
        ("SADD k 1", 10, 2),
        ("ZADD k 1 v", 10, 5),
        ("XADD k 1-1 f v", 10, 19),
        ("HSET k f v", 10, 4),
        ("HEXPIRE k 100 FIELDS 1 f", 12, 24),
    ] {
        if !command.starts_with("HEXPIRE") {
            line(&mut client, "DEL k");
        }
        ask(&mut client, &command.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        let payload = dump(&mut client, "k");
        assert_eq!((Payload::check(&payload).unwrap().version, payload[0]), (version, form), "{command}");
    }
    line(&mut client, "SET k hay");
    assert_eq!(dump(&mut client, "k"), b"\x00\x03hay\x0a\x00\x09\x98\x15\x21\x29\x08\xf8\xb9");
}

/// A compressed string of `bytes` bytes, which claims to stand for `claimed`.
fn compressed(bytes: usize, claimed: u32) -> Vec<u8> {
    let mut packed = Vec::new();
    assert!(Compressor::default().compress(&vec![b'x'; bytes], usize::MAX, &mut packed));
    [&[0xc3, 0x80][..], &(packed.len() as u32).to_be_bytes(), &[0x80], &claimed.to_be_bytes(), &packed].concat()
}

/// A node of 140,000 numbers, which ends as one or not.
fn long_listpack(is_sound: bool) -> Vec<u8> {
    let mut listpack = vec![0, 0, 0, 0, 0xff, 0xff];
    listpack.extend([7, 1].repeat(140_000));
    listpack.push(if is_sound { 0xff } else { 0xfe });
    let total = listpack.len() as u32;
    listpack[..4].copy_from_slice(&total.to_le_bytes());
    [&[0x80][..], &total.to_be_bytes(), &listpack].concat()
}

/// A wrong payload leaves nothing behind, and the key keeps its old value.
#[test]
fn what_is_refused_leaves_nothing_behind() {
    both_ways(|store, settle| {
        let mut client = Client::new(store);
        let element = |text: &str| Piece::Element(text.into());
        let field = |field: &str, deadline| Piece::Field(field.into(), b"v".to_vec(), deadline);
        let many = |repeated: usize| (0..3000).map(|n| element(&format!("e{}", n % repeated))).collect::<Vec<_>>();
        let sealed = [
            testing::payload(Kind::Set, &many(2999)),
            testing::payload(Kind::Set, &[element("a"), element("a")]),
            testing::payload(Kind::Zset, &[Piece::Scored(b"a".to_vec(), 1.0), Piece::Scored(b"a".to_vec(), 2.0)]),
            testing::payload(Kind::Hash, &[field("a", None), field("b", None), field("a", None)]),
            testing::payload(Kind::TimedHash, &[field("a", Some(1 << 41)), field("a", Some(1 << 42))]),
            testing::payload(Kind::List, &[]),
            testing::payload(Kind::Set, &[]),
            testing::payload(Kind::Zset, &[]),
            testing::payload(Kind::Hash, &[]),
            // A form that nobody has, and data of a module.
            testing::sealed(&[200, 1, 2]),
            testing::sealed(&[7, 0x81, 0, 0, 0, 0, 0, 0, 4, 0, 0]),
            // A long list that ends too early.
            testing::sealed(&[&[1, 0x80, 0, 0, 0x10, 0][..], &b"\x03hay".repeat(4095)].concat()),
            testing::sealed(b""),
            // A long string that is damaged at its end only, compressed and as it is, and such a list.
            testing::sealed(&[&[0][..], &compressed(3_000_000, 3_000_001)].concat()),
            testing::sealed(&[&[0, 0x80, 0, 0x30, 0, 0][..], &[b'x'; 0x2f_ffff]].concat()),
            testing::sealed(&[&[18, 2, 2][..], &long_listpack(true), &[2], &long_listpack(false)].concat()),
        ];
        for (n, payload) in sealed.iter().enumerate() {
            line(&mut client, "FLUSHALL");
            line(&mut client, "SET there v");
            settle();
            assert_eq!(restore(&mut client, "k", payload), "ERR Bad data format", "payload {n}");
            settle();
            let replaced = word(ask(&mut client, &[b"RESTORE", b"there", b"0", payload, b"REPLACE"]));
            assert_eq!(replaced, "ERR Bad data format", "payload {n}");
            assert_eq!((line(&mut client, "DBSIZE"), line(&mut client, "GET there")), ("1".into(), "v".into()));
        }
        line(&mut client, "FLUSHALL");
        let sound = testing::sealed(&[&[18, 2, 2][..], &long_listpack(true), &[2], &long_listpack(true)].concat());
        assert_eq!(restore(&mut client, "sound", &sound), "OK");
        assert_eq!(
            (line(&mut client, "LLEN sound"), line(&mut client, "LINDEX sound -1")),
            ("280000".into(), "7".into())
        );
        let good = testing::payload(Kind::List, &many(3000));
        for bad in [&good[1..], &good[..good.len() - 1], b"", &[&good[..], &[0]].concat()] {
            let refused = restore(&mut client, "k", bad);
            assert_eq!(refused, "ERR DUMP payload version or checksum are wrong");
        }
        assert_eq!(restore(&mut client, "k", &good), "OK");
        assert_eq!(line(&mut client, "LLEN k"), "3000");
        assert_eq!(restore(&mut client, "k", &good), "BUSYKEY Target key name already exists.");
    });
}

/// A payload whose deadline has passed is checked, and no row of it stays.
#[test]
fn a_payload_from_the_past_leaves_no_row() {
    both_ways(|store, settle| {
        let mut client = Client::new(store);
        for fill in ["RPUSH k a", "SADD k a", "ZADD k 1 a", "HSET k f v", "XADD k 2-1 f v", "SET k v"] {
            line(&mut client, "FLUSHALL");
            line(&mut client, fill);
            let payload = dump(&mut client, "k");
            settle();
            for name in ["k", "other"] {
                let words: [&[u8]; 6] = [b"RESTORE", name.as_bytes(), b"1", &payload, b"ABSTTL", b"REPLACE"];
                assert_eq!(word(ask(&mut client, &words)), "OK", "{fill}");
                assert_eq!(line(&mut client, "EXISTS k other"), "0", "{fill}");
            }
        }
    });
}

#[test]
fn deadlines_and_pasts_come_along() {
    let store = memory_store();
    let mut client = Client::new(&store);
    line(&mut client, "RPUSH l a b c");
    let payload = dump(&mut client, "l");
    let mut ask = |words: &str| {
        let mut words: Vec<Vec<u8>> = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        if words[0] == b"RESTORE" || words[0] == b"RESTORE-ASKING" {
            words.insert(3, payload.clone());
        }
        word(client.call(&words))
    };
    let mut check = |command: &str, reply: &str| assert_eq!(ask(command), reply, "{command}");
    check("RESTORE a 5000", "OK");
    check("PTTL a", "5000");
    check("RESTORE-ASKING b 0 idletime 77 absttl", "OK");
    check("OBJECT IDLETIME b", "77");
    check("PTTL b", "-1");
    check("RESTORE b 1 ABSTTL", "BUSYKEY Target key name already exists.");
    check("RESTORE b 1 ABSTTL REPLACE", "OK");
    check("EXISTS b", "0");
    check("RESTORE b 0 FREQ 255", "OK");
    check("RESTORE b 0 FREQ 256", "ERR Invalid FREQ value, must be >= 0 and <= 255");
    check("RESTORE b 0 IDLETIME -1", "ERR Invalid IDLETIME value, must be >= 0");
    check("RESTORE b 0 IDLETIME x", "ERR value is not an integer or out of range");
    check("RESTORE b 0 IDLETIME 1 FREQ 1", "ERR syntax error");
    check("RESTORE b 0 IDLETIME", "ERR syntax error");
    check("RESTORE c -1", "ERR Invalid TTL value, must be >= 0");
    check("RESTORE c x", "ERR value is not an integer or out of range");
    check("RESTORE c 9223372036854775807", "OK");
    check("EXISTS c", "0");
    check("DUMP c", "nil");
}

#[test]
fn payloads_of_functions_of_any_bytes_do_no_harm() {
    const PIECES: &[&[u8]] = &[
        b"\xf5",
        b"\xf6",
        b"\x0a",
        b"\x0f#!lua name=lib1\n",
        b"\x40\x0f",
        b"\x80\0\0\0\x0f",
        b"\x81\0\0\0\0\0\0\0\x0f",
        b"\x80\xff\xff\xff\xff",
        b"\xc0\x05",
        b"\xc1\x01\x02",
        b"\xc2\x01\x02\x03\x04",
        b"\xc3\x04\x0a\x00ab",
        b"\xc3\x40\x10\x80\x7f\xff\xff\xff",
        b"#!lua name=x\n",
        b"\0",
    ];
    let mut seed: u64 = 20_261_126;
    let mut below = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..below(8)).flat_map(|_| PIECES[below(PIECES.len())].iter().copied()).collect();
        haypile_commands::function::testing::check_payload(&bytes);
    }
}
