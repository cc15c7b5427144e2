//! DUMP and RESTORE of all types and sizes, and what becomes of payloads that nobody should have made.

mod runner;

use haypile_commands::transfer;
use haypile_rdb::lzf::Compressor;
use haypile_rdb::testing::{self, Piece};
use haypile_rdb::{Kind, Memory, Payload, Writer};
use haypile_resp::pieces::PIECE_BYTES;
use haypile_resp::{Protocol, Reply};
use haypile_store::testing::{TestStore, memory_store};
use haypile_store::{Call, Mode, Room, TxnBuffers};
use haypile_types::key;
use runner::{Client, Shown};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Returns a payload's value behind its form, as Redis writes it (`rdb.c`: rdbSaveObject): entry 1-1 of a stream, and a
/// group `g` of which consumer `a` has the entry, or nobody.
fn newer_stream(form: u8, is_nacked: bool, producers: &[u8]) -> Vec<u8> {
    let id = [&[0; 7][..], &[1], &[0; 7], &[1]].concat();
    let mut node = haypile_rdb::listpack::Builder::default();
    [1, 0, 1].iter().for_each(|number| node.number(*number));
    node.string(b"f");
    [0, 2, 0, 0].iter().for_each(|number| node.number(*number));
    node.string(b"v");
    node.number(4);
    let node = node.take();
    let mut body = [&[form, 1, 16][..], &id, &[node.len() as u8], &node].concat();
    // Length, last, first, highest deleted, added; one group with its last entry, entries read and one pending entry.
    body.extend([1, 1, 1, 1, 1, 0, 0, 1, 1, 1, b'g', 1, 1, 1, 1]);
    let delivered_ms: u64 = if is_nacked { 0 } else { 1_600_000_000_000 };
    body.extend([&id[..], &delivered_ms.to_le_bytes(), &[3]].concat());
    let times = [1_600_000_000_001u64.to_le_bytes(), 1_600_000_000_002u64.to_le_bytes()].concat();
    let owned = if is_nacked { vec![0] } else { [&[1][..], &id].concat() };
    body.extend([&[1, 1, b'a'][..], &times, &owned].concat());
    if form == 27 {
        body.push(u8::from(is_nacked));
        body.extend(if is_nacked { &id[..] } else { &[] });
    }
    body.extend(producers);
    body
}

/// Seconds, IDs of each, no producers, nothing added and no duplicates.
const NO_PRODUCERS: &[u8] = &[0x40, 100, 0x40, 100, 0, 0, 0];

/// Redis 8.8 and later write every stream in form 27, 8.6 in form 26 (`rdb.h`, `rdb.c`).
#[test]
fn streams_of_8_6_and_8_8_are_read() {
    let store = memory_store();
    let mut client = Client::new(&store);
    for (form, is_nacked) in [(26, false), (27, false), (27, true)] {
        let payload = testing::sealed(&newer_stream(form, is_nacked, NO_PRODUCERS));
        line(&mut client, "DEL s");
        assert_eq!(restore(&mut client, "s", &payload), "OK", "{form}, {is_nacked}");
        let pending = ask(&mut client, &[b"XPENDING", b"s", b"g", b"-", b"+", b"9"]).shown();
        let idle_ms = client.now_ms - 1_600_000_000_000;
        let expected = match is_nacked {
            true => "[[\"1-1\", \"\", -1, 3]]".to_owned(),
            false => format!("[[\"1-1\", \"a\", {idle_ms}, 3]]"),
        };
        assert_eq!(pending, expected);
        // A value that older versions can hold is written for them.
        let again = dump(&mut client, "s");
        let expected = if is_nacked { (14, 27) } else { (10, 19) };
        assert_eq!((Payload::check(&again).unwrap().version, again[0]), expected);
        if is_nacked {
            assert_eq!(again[..again.len() - 10], payload[..payload.len() - 10], "byte by byte what Redis writes");
        }
    }
    // An entry without consumer has to be pending, once, and without one.
    let payload = newer_stream(27, true, NO_PRODUCERS);
    let end = payload.len() - NO_PRODUCERS.len();
    let mut other = payload.clone();
    other[end - 1] = 2;
    let mut twice = payload.clone();
    twice.splice(end - 16..end, [&payload[end - 16..end], &payload[end - 16..end]].concat());
    twice[end - 17] = 2;
    let mut none = payload.clone();
    none.drain(end - 16..end);
    none[end - 17] = 0;
    for payload in [other, twice, none] {
        let refused = restore(&mut client, "refused", &testing::sealed(&payload));
        assert_eq!(refused, "ERR Bad data format", "{payload:?}");
        assert_eq!(line(&mut client, "EXISTS refused"), "0");
    }
}

/// Idempotent IDs come along with their stream (`rdb.c`: form 26 of Redis 8.6), but for those whose time is over.
#[test]
fn idempotent_ids_come_along() {
    both_ways(|store, settle| {
        let mut client = Client::new(store);
        for words in
            ["XADD s IDMP p a * f v", "XADD s IDMP q a * f v", "XADD s IDMP p b * f v", "XADD s IDMP p a * f v"]
        {
            line(&mut client, words);
        }
        settle();
        let payload = dump(&mut client, "s");
        assert_eq!((Payload::check(&payload).unwrap().version, payload[0]), (13, 26));
        assert!(payload == dump_at_once(store, client.now_ms, "s"));
        assert_eq!(restore(&mut client, "t", &payload), "OK");
        settle();
        assert!(dump(&mut client, "t") == payload, "nothing is lost");
        client.now_ms += 5;
        for (name, id) in [("p a", "1700000000000-0"), ("q a", "1700000000000-1"), ("p b", "1700000000000-2")] {
            assert_eq!(line(&mut client, &format!("XADD t IDMP {name} * f v")), id, "{name}");
        }
        // Much of it goes out from views.
        line(&mut client, "XCFGSET s IDMP-MAXSIZE 9999");
        for n in 0..3000 {
            line(&mut client, &format!("XADD s IDMP producer:{} {n} * f v", n % 7));
        }
        settle();
        let payload = dump(&mut client, "s");
        assert!(payload == dump_at_once(store, client.now_ms, "s"));
        assert_eq!(restore(&mut client, "u", &payload), "OK");
        assert!(dump(&mut client, "u") == payload, "nothing is lost");
        client.now_ms += 100_000;
        assert_eq!(restore(&mut client, "late", &payload), "OK");
        let info = ask(&mut client, &[b"XINFO", b"STREAM", b"late", b"FULL", b"COUNT", b"1"]).shown();
        assert!(info.contains("\"pids-tracked\", 0, \"iids-tracked\", 0, \"iids-added\", 3003"), "{info}");
    });
    // Redis's bytes: a second, two IDs of each; producer `p` with `i` for 1-1; three added, two duplicates.
    let store = memory_store();
    let mut client = Client::new(&store);
    let producers = [1, 2, 1, 1, b'p', 1, 1, b'i', 1, 1, 3, 2];
    let payload = testing::sealed(&newer_stream(26, false, &producers));
    assert_eq!(restore(&mut client, "s", &payload), "OK");
    let info = ask(&mut client, &[b"XINFO", b"STREAM", b"s"]).shown();
    let expected = "\"idmp-duration\", 1, \"idmp-maxsize\", 2, \"pids-tracked\", 0, \"iids-tracked\", 0, \"iids-added\", 3, \
                    \"iids-duplicates\", 2";
    assert!(info.contains(expected), "{info}");
    let (none, twice) = ([0, 2, 0, 3, 2], [1, 2, 2, 1, b'p', 0, 1, b'p', 0, 3, 2]);
    for producers in [&none[..], &twice] {
        let refused = restore(&mut client, "refused", &testing::sealed(&newer_stream(26, false, producers)));
        assert_eq!(refused, "ERR Bad data format", "{producers:?}");
    }
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

/// The payload of a key, written in one piece.
fn dump_at_once(store: &TestStore, now_ms: u64, name: &str) -> Vec<u8> {
    let call = Call { now_ms, seed: 1, database: 0, mode: Mode::Disk, pins: None };
    let mut txn = store.begin(TxnBuffers::default(), call);
    let key = txn.key(name.as_bytes());
    let entry = key::lookup(&mut txn, &key).expect("memory can be read").expect("it is there");
    let kind = transfer::kind(&mut txn, &key, &entry).expect("memory can be read");
    let mut writer = Writer::new(Memory::new(usize::MAX));
    writer.kind(kind).expect("memory can be written");
    transfer::write(&mut txn, &key, entry, kind, &mut writer).expect("memory can be read and written");
    writer.seal()
}

/// A payload of more than a mebibyte is counted first, and then goes out from views while it is made.
#[test]
fn long_payloads_are_the_ones_written_at_once() {
    both_ways(|store, settle| {
        let mut client = Client::new(store);
        let mut state = 1u64;
        let mut text = |bytes: usize| -> Vec<u8> {
            let mut next = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                b'a' + (state >> 40) as u8 % 16
            };
            (0..bytes).map(|_| next()).collect()
        };
        ask(&mut client, &[b"SET", b"string", &text(2_500_000)]);
        ask(&mut client, &[b"SETRANGE", b"sparse", b"3000000", &text(70_000)]);
        // Few elements, but large ones, of which some are not compressed.
        for (n, bytes) in [800_000, 1 << 20, (1 << 20) + 1, 10].into_iter().enumerate() {
            let (name, value) = (n.to_string().into_bytes(), text(bytes));
            ask(&mut client, &[b"RPUSH", b"bulky-list", &value]);
            ask(&mut client, &[b"SADD", b"bulky-set", &value]);
            ask(&mut client, &[b"ZADD", b"bulky-zset", &name, &value]);
            ask(&mut client, &[b"HSET", b"bulky-hash", &name, &value]);
            ask(&mut client, &[b"XADD", b"bulky-stream", &[b"1-", &name[..]].concat(), b"f", &value[..bytes / 4]]);
        }
        for n in 0..7_000u64 {
            let (element, number) = (text(200), n.to_string().into_bytes());
            let id = format!("{}-{}", n / 3 + 1, n % 3 + 1).into_bytes();
            for words in [
                &[&b"RPUSH"[..], b"list", &element][..],
                &[b"SADD", b"set", &element],
                &[b"ZADD", b"zset", &number, &element],
                &[b"HSET", b"hash", &number, &element],
                &[b"HSET", b"timed", &number, &element],
                &[b"XADD", b"stream", &id, b"name", &element],
            ] {
                ask(&mut client, words);
            }
        }
        for field in 0..300 {
            let (ms, field) = ((90_000 + field * 10).to_string(), field.to_string());
            ask(&mut client, &[b"HPEXPIRE", b"timed", ms.as_bytes(), b"FIELDS", b"1", field.as_bytes()]);
        }
        // The groups' and consumers' names are in another order than their numbers.
        for group in ["zebra", "ant", "monkey"] {
            line(&mut client, &format!("XGROUP CREATE stream {group} 0"));
            for consumer in ["zoe", "adam", "mia"] {
                let words = format!("XREADGROUP GROUP {group} {consumer} COUNT 1500 STREAMS stream >");
                ask(&mut client, &words.split(' ').map(str::as_bytes).collect::<Vec<_>>());
            }
        }
        line(&mut client, "XGROUP CREATE stream none 0");
        // Redis 8.8: entries without consumer, in an order of their own.
        line(&mut client, "XNACK stream monkey FAIL IDS 2 30-1 1-2");
        line(&mut client, "XNACK stream ant FATAL IDS 3 1-1 400-1 1-2 FORCE");
        settle();
        for late in [0, 91_000] {
            client.now_ms += late;
            for key in [
                "string",
                "sparse",
                "list",
                "set",
                "zset",
                "hash",
                "timed",
                "stream",
                "bulky-list",
                "bulky-set",
                "bulky-zset",
                "bulky-hash",
                "bulky-stream",
            ] {
                let payload = dump(&mut client, key);
                assert!(payload.len() > 1 << 19, "{key}: {}", payload.len());
                assert!(payload == dump_at_once(store, client.now_ms, key), "{key}");
                assert_eq!(restore(&mut client, "again", &payload), "OK", "{key}");
                settle();
                // The deadlines of `timed` are counted from one that has passed, and those of the copy are not.
                let is_the_same = dump(&mut client, "again") == payload;
                assert!(is_the_same != (key == "timed" && late > 0), "{key}");
                assert_eq!(line(&mut client, "DEL again"), "1");
            }
        }
        assert_eq!(store.views(), 0);
    });
}

/// Keys of four types, each with one element of so many bytes.
fn with_one_element(client: &mut Client, bytes: usize) -> [&'static str; 4] {
    let text = vec![b'e'; bytes];
    for words in [
        &[&b"RPUSH"[..], b"list", &text][..],
        &[b"SADD", b"set", &text],
        &[b"ZADD", b"zset", b"7", &text],
        &[b"HSET", b"hash", b"field", &text],
    ] {
        assert_eq!(word(ask(client, words)), "1");
    }
    ["list", "set", "zset", "hash"]
}

#[test]
fn a_long_element_goes_out_in_pieces() {
    const BYTES: usize = 3 << 20;
    both_ways(|store, settle| {
        let mut client = Client::new(store);
        for key in with_one_element(&mut client, BYTES) {
            settle();
            let reply = client.reply(&[b"DUMP".to_vec(), key.into()]);
            let Reply::Stream(mut pieces) = reply else { panic!("{key}: {reply:?}") };
            assert_eq!(pieces.weight().held_bytes, BYTES, "{key}: its row is held");
            let (mut out, mut longest) = (Vec::new(), 0);
            loop {
                let from = out.len();
                let more = pieces.next(Protocol::Resp2, &mut out).expect("memory can be read");
                longest = longest.max(out.len() - from);
                if !more {
                    break;
                }
            }
            assert!(longest < 2 * PIECE_BYTES + 100, "{key}: {longest}");
            let head = out.iter().position(|byte| *byte == b'\n').expect("a length comes first") + 1;
            assert!(out[head..out.len() - 2] == dump_at_once(store, client.now_ms, key), "{key}");
        }
    });
}

/// Room that is counted, and ends.
#[derive(Default)]
struct Counted {
    bound: AtomicUsize,
    taken: AtomicUsize,
    most: AtomicUsize,
}

impl Room for Counted {
    fn take(&self, more: usize, _: usize) -> bool {
        let taken = self.taken.load(Ordering::Relaxed) + more;
        let fits = taken <= self.bound.load(Ordering::Relaxed);
        if fits {
            self.taken.store(taken, Ordering::Relaxed);
            self.most.fetch_max(taken, Ordering::Relaxed);
        }
        fits
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// An element that is long takes its room before it is expanded, and while it is written; without room nothing of it
/// stays.
#[test]
fn a_long_element_needs_room() {
    const BYTES: usize = 3 << 20;
    let store = memory_store();
    let room = Arc::new(Counted::default());
    store.set_room(room.clone());
    let set_bound = |bytes: usize| {
        room.bound.store(bytes, Ordering::Relaxed);
        room.most.store(0, Ordering::Relaxed);
        assert_eq!(room.taken.load(Ordering::Relaxed), 0, "all of it was given back");
    };
    let mut client = Client::new(&store);
    let keys = with_one_element(&mut client, BYTES);
    let refused = "OOM the command would take more memory than 'maxmemory-clients' leaves";
    for key in keys {
        set_bound(usize::MAX);
        let payload = dump(&mut client, key);
        assert!(room.most.load(Ordering::Relaxed) >= BYTES, "{key}");
        set_bound(0);
        assert_eq!(word(ask(&mut client, &[b"DUMP", key.as_bytes()])), refused);
        assert_eq!(restore(&mut client, "k", &payload), refused, "{key}");
        assert_eq!(word(ask(&mut client, &[b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE"])), refused);
        assert_eq!(line(&mut client, "DBSIZE"), "4");
        set_bound(2 * BYTES + (2 << 20));
        assert_eq!(restore(&mut client, "k", &payload), "OK", "{key}");
        let most = room.most.load(Ordering::Relaxed);
        assert!(most >= 2 * BYTES, "{key}: {most}");
        set_bound(usize::MAX);
        assert!(dump(&mut client, "k") == payload, "{key}");
        assert_eq!(line(&mut client, "DEL k"), "1");
        // Bytes that a payload only claims are not asked for, and are the error that they always were.
        set_bound(0);
        for claimed in [[0xff; 4], [0x20, 0, 0, 0]] {
            let lie = testing::sealed(&[&[1, 1, 0x80][..], &claimed, b"x"].concat());
            assert_eq!(restore(&mut client, "k", &lie), "ERR Bad data format");
        }
    }
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
