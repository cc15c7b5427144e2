//! Streams in payloads of newer versions of Redis, and their idempotent IDs.

use super::long::dump_at_once;
use super::{ask, both_ways, dump, line, restore};
use crate::runner::Client;
use haypile_rdb::{Payload, testing};
use haypile_store::testing::memory_store;

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
