//! Long payloads and long elements: they go out in pieces, and take their room first.

use super::{ask, both_ways, dump, line, restore, word};
use crate::runner::Client;
use haypile_commands::transfer;
use haypile_rdb::{Memory, Writer, testing};
use haypile_resp::pieces::PIECE_BYTES;
use haypile_resp::{Protocol, Reply};
use haypile_store::testing::{TestStore, memory_store};
use haypile_store::{Call, Mode, Room, TxnBuffers};
use haypile_types::key;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The payload of a key, written in one piece.
pub fn dump_at_once(store: &TestStore, now_ms: u64, name: &str) -> Vec<u8> {
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

/// Makes long keys of all types, with many elements and with a few large ones.
fn fill(client: &mut Client) {
    let mut state = 1u64;
    let mut text = |bytes: usize| -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            b'a' + (state >> 40) as u8 % 16
        };
        (0..bytes).map(|_| next()).collect()
    };
    ask(client, &[b"SET", b"string", &text(2_500_000)]);
    ask(client, &[b"SETRANGE", b"sparse", b"3000000", &text(70_000)]);
    // Few elements, but large ones, of which some are not compressed.
    for (n, bytes) in [800_000, 1 << 20, (1 << 20) + 1, 10].into_iter().enumerate() {
        let (name, value) = (n.to_string().into_bytes(), text(bytes));
        ask(client, &[b"RPUSH", b"bulky-list", &value]);
        ask(client, &[b"SADD", b"bulky-set", &value]);
        ask(client, &[b"ZADD", b"bulky-zset", &name, &value]);
        ask(client, &[b"HSET", b"bulky-hash", &name, &value]);
        ask(client, &[b"XADD", b"bulky-stream", &[b"1-", &name[..]].concat(), b"f", &value[..bytes / 4]]);
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
            ask(client, words);
        }
    }
    for field in 0..300 {
        let (ms, field) = ((90_000 + field * 10).to_string(), field.to_string());
        ask(client, &[b"HPEXPIRE", b"timed", ms.as_bytes(), b"FIELDS", b"1", field.as_bytes()]);
    }
    // The groups' and consumers' names are in another order than their numbers.
    for group in ["zebra", "ant", "monkey"] {
        line(client, &format!("XGROUP CREATE stream {group} 0"));
        for consumer in ["zoe", "adam", "mia"] {
            let words = format!("XREADGROUP GROUP {group} {consumer} COUNT 1500 STREAMS stream >");
            ask(client, &words.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        }
    }
    line(client, "XGROUP CREATE stream none 0");
    // Redis 8.8: entries without consumer, in an order of their own.
    line(client, "XNACK stream monkey FAIL IDS 2 30-1 1-2");
    line(client, "XNACK stream ant FATAL IDS 3 1-1 400-1 1-2 FORCE");
}

/// A payload of more than a mebibyte is counted first, and then goes out from views while it is made.
#[test]
fn long_payloads_are_the_ones_written_at_once() {
    both_ways(|store, settle| {
        let mut client = Client::new(store);
        fill(&mut client);
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
