//! The bytes of docs/format/rows.md: the store writes exactly the rows of its worked example, and the page shows
//! exactly these rows. A failure here is a change of the format on disk.

mod common;

use common::Db;
use haypile_store::Stop;
use haypile_types::hash::{self, Condition, Timed};
use haypile_types::list::{self, Beside, Side};
use haypile_types::stream::{Delivery, Edit, Group, Stream, StreamId};
use haypile_types::{Error, hyperloglog, key, set, string};

const PAGE: &str = include_str!("../../../docs/format/rows.md");

/// The rows of a page's example, as it shows them: key, arrow, value.
fn rows_of(page: &str) -> Vec<String> {
    let example =
        page.split("```rows\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the page has an example");
    let lines = example.lines().filter(|line| line.contains('→'));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join("")).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A value as the page shows it: long runs of one byte shortened.
fn shown(value: &[u8]) -> String {
    match value {
        [first, .., last] if value.len() > 64 && value.iter().all(|byte| byte == first) => {
            assert_eq!(first, last);
            format!("{}×{:02x}", value.len(), first)
        }
        _ => hex(value),
    }
}

#[test]
fn stores_of_tests_tell_plain_strings_as_servers_do() {
    assert_eq!(haypile_store::testing::PLAIN, key::PLAIN);
    assert_eq!(key::PLAIN, [1, 0], "the page says so");
}

#[test]
fn the_rows_of_the_page_are_those_of_the_store() {
    let mut db = Db::new();
    db.run(|txn| {
        string::set(txn, &txn.key(b"greeting"), b"hello").expect("writes");
        string::put(txn, &txn.key(b"token"), None, b"7f", Some(1_800_000_000_000)).expect("writes");
        string::set(txn, &txn.key(b"{greeting}:long"), &[b'x'; 20_000]).expect("writes");
        string::set_range(txn, &txn.key(b"{greeting}:long"), 49_152, b"end", 1 << 20).expect("writes");
    });
    let written: Vec<String> = db.rows().iter().map(|(row, value)| format!("{}→{}", hex(row), shown(value))).collect();
    assert_eq!(rows_of(PAGE), written, "the page's example");

    // The string gets another name: its rows stay, its owner row follows.
    let before = db.rows();
    db.run(|txn| {
        let (from, to) = (txn.key(b"{greeting}:long"), txn.key(b"elsewhere"));
        let entry = key::lookup_write(txn, &from).expect("reads").expect("is there");
        key::rename(txn, &from, &entry, &to, None).expect("writes");
    });
    let kept = |rows: &common::Rows| {
        rows.iter().filter(|(row, _)| row[0] == 2).map(|(r, v)| (r.clone(), v.clone())).collect::<Vec<_>>()
    };
    assert_eq!(kept(&before), kept(&db.rows()));
    assert!(db.rows().iter().any(|(row, value)| row[0] == 4 && value == b"elsewhere"));
}

#[test]
fn the_rows_of_the_page_of_streams_are_those_of_the_store() {
    let mut db = Db::new();
    let text = [b'x'; 200];
    let entries: [(u64, u64, &[&[u8]]); 3] = [
        (1_700_000_000_000, 0, &[b"sensor", b"a", b"value", b"21"]),
        (1_700_000_000_000, 1, &[b"sensor", b"b", b"value", b"22"]),
        (1_700_000_000_500, 0, &[b"note", &text]),
    ];
    for (ms, seq, fields) in entries {
        db.run(|txn| {
            let key = txn.key(b"s");
            let stream = Stream::edit(txn, &key).expect("reads");
            let mut stream = stream.unwrap_or_else(|| Stream::create(txn, &key).expect("writes"));
            stream.append(txn, &key, StreamId::new(ms, seq), fields.iter().copied()).expect("writes");
            stream.save(txn, &key).expect("writes");
        });
    }
    db.run(|txn| {
        let key = txn.key(b"s");
        let mut stream = Stream::edit(txn, &key).expect("reads").expect("is there");
        stream.remove(txn, [StreamId::new(1_700_000_000_000, 1)].into_iter()).expect("writes");
        stream.save(txn, &key).expect("writes");
    });
    let shorten = |value: &[u8]| match value.iter().position(|byte| *byte == b'x') {
        Some(at) => format!("{}{}×78", hex(&value[..at]), value.len() - at),
        None => hex(value),
    };
    let written: Vec<String> =
        db.rows().iter().map(|(row, value)| format!("{}→{}", hex(row), shorten(value))).collect();
    assert_eq!(rows_of(include_str!("../../../docs/format/stream.md")), written, "the page's example");
}

#[test]
fn the_rows_of_the_page_of_hashes_are_those_of_the_store() {
    let mut db = Db::new();
    let text = [b'x'; 1500];
    db.run(|txn| {
        let pairs = [(&b"name"[..], &b"ann"[..]), (b"age", b"41")];
        hash::set(txn, &txn.key(b"user"), pairs.into_iter()).expect("writes");
        let pairs = [(&b"title"[..], &b"hay"[..]), (b"text", &text)];
        hash::set(txn, &txn.key(b"{user}:page"), pairs.into_iter()).expect("writes");
    });
    let deadline_ms = 1_800_000_000_000;
    db.run(|txn| {
        let (token, page) = (txn.key(b"token"), txn.key(b"{user}:page2"));
        hash::set_until(txn, &token, None, [(&b"id"[..], &b"7f"[..])].into_iter(), Timed::Until(deadline_ms))
            .expect("writes");
        let pairs = [(&b"title"[..], &b"hay"[..]), (b"text", &text)];
        hash::set(txn, &page, pairs.into_iter()).expect("writes");
        let entry = hash::lookup(txn, &page).expect("reads").expect("is there");
        let title = [&b"title"[..]].into_iter();
        hash::set_deadlines(txn, &page, &entry, deadline_ms, Condition::Always, title).expect("writes");
    });
    let value = |value: &[u8]| match value {
        [0, rest @ ..] if rest == text => "00 1500×78".replace(' ', ""),
        value => hex(value),
    };
    let written: Vec<String> = db.rows().iter().map(|(row, v)| format!("{}→{}", hex(row), value(v))).collect();
    assert_eq!(rows_of(include_str!("../../../docs/format/hash.md")), written, "the page's example");
}

#[test]
fn the_bytes_of_the_page_of_hyperloglogs_are_those_of_the_store() {
    let mut db = Db::new();
    db.run(|txn| {
        let mut add = |key: &[u8], elements: &[&[u8]]| {
            let key = txn.key(key);
            assert!(hyperloglog::add(txn, &key, elements.iter().copied()).expect("writes"));
        };
        add(b"none", &[]);
        add(b"few", &[b"a", b"foo"]);
    });
    // As a server that keeps its count in the value leaves it.
    let counted = b"HYLL\x01\0\0\0\x01\0\0\0\0\0\0\0\x71\xa6\x84\x4e\x57";
    db.run(|txn| string::set(txn, &txn.key(b"counted"), counted)).expect("writes");
    assert_eq!(db.run(|txn| hyperloglog::count(txn, &txn.key(b"counted"))).expect("counts"), Some(1));
    let written: Vec<String> = db.rows().iter().map(|(row, value)| format!("{}→{}", hex(row), hex(value))).collect();
    assert_eq!(rows_of(include_str!("../../../docs/format/hyperloglog.md")), written, "the page's example");
}

#[test]
fn the_rows_of_the_page_of_lists_are_those_of_the_store() {
    let mut db = Db::new();
    let text = [b'x'; 1500];
    db.run(|txn| {
        let mut push = |key: &[u8], elements: &[&[u8]]| {
            let key = txn.key(key);
            list::push(txn, &key, None, Side::Tail, elements.iter().copied()).expect("writes");
        };
        push(b"queue", &[b"a", b"", b"12"]);
        push(b"{queue}:dense", &[&text, b"b"]);
        push(b"{queue}:loose", &[&text, b"b", b"c"]);
    });
    db.run(|txn| {
        let key = txn.key(b"{queue}:dense");
        let list = list::edit(txn, &key).expect("reads");
        list::push(txn, &key, list, Side::Head, std::iter::once(&b"0"[..])).expect("writes");
        let key = txn.key(b"{queue}:loose");
        let list = list::edit(txn, &key).expect("reads").expect("is there");
        list::insert(txn, &key, list, Beside::Before, b"b", b"a").expect("writes");
    });
    let written: Vec<String> = db.rows().iter().map(|(row, value)| format!("{}→{}", hex(row), shown(value))).collect();
    assert_eq!(rows_of(include_str!("../../../docs/format/list.md")), written, "the page's example");
}

#[test]
fn the_rows_of_the_page_of_sets_are_those_of_the_store() {
    let mut db = Db::new();
    let long = [b'x'; 1100];
    db.run(|txn| {
        let numbers = [&b"7"[..], b"2", b"11"];
        set::add(txn, &txn.key(b"primes"), None, numbers.into_iter()).expect("writes");
        set::add(txn, &txn.key(b"{primes}:long"), None, [&b"two"[..], &long].into_iter()).expect("writes");
    });
    let row = |row: &[u8]| match row.strip_suffix(&long) {
        Some(start) => format!("{}1100×78", hex(start)),
        None => hex(row),
    };
    let written: Vec<String> = db.rows().iter().map(|(key, value)| format!("{}→{}", row(key), hex(value))).collect();
    assert_eq!(rows_of(include_str!("../../../docs/format/set.md")), written, "the page's example");
}

#[test]
fn the_rows_of_the_page_of_consumer_groups_are_those_of_the_store() {
    let mut db = Db::new();
    db.run(|txn| {
        let key = txn.key(b"jobs");
        let mut jobs = Stream::create(txn, &key).expect("writes");
        for number in [1u8, 2] {
            let (id, value) = (StreamId::new(number.into(), 1), [b'0' + number]);
            jobs.append(txn, &key, id, [&b"n"[..], &value].into_iter()).expect("writes");
        }
        jobs.save(txn, &key).expect("writes");
        Group::create(txn, &key, &jobs, b"g", StreamId::MIN, None).expect("writes");
    });
    db.run(|txn| {
        let key = txn.key(b"jobs");
        let jobs = Stream::edit(txn, &key).expect("reads").expect("is there");
        let mut edit = Edit::of(Group::find(txn, &jobs, b"g").expect("reads").expect("is there"));
        let (al, _) = edit.see(txn, b"al").expect("reads");
        let all = Delivery { limit: u64::MAX, acknowledged: false };
        edit.deliver(txn, &jobs, al, all, |_, _| Some(0)).expect("writes");
        let first = StreamId::new(1, 1);
        let held = edit.pending(txn, first).expect("reads").expect("is pending");
        edit.release(txn, first, &held).expect("writes");
        edit.save(txn, &key).expect("writes");
    });
    let page = include_str!("../../../docs/format/stream_group.md");
    let (first, second) = page.split_once("## An entry that was handed back").expect("the page has a second example");
    assert_eq!(rows_of(first), rows_of_groups(&mut db), "the page's example");

    db.run(|txn| {
        let key = txn.key(b"jobs");
        let jobs = Stream::edit(txn, &key).expect("reads").expect("is there");
        let mut edit = Edit::of(Group::find(txn, &jobs, b"g").expect("reads").expect("is there"));
        let second = StreamId::new(2, 1);
        let held = edit.pending(txn, second).expect("reads").expect("is pending");
        edit.hand_back(txn, second, Some(&held), held.deliveries).expect("writes");
        edit.save(txn, &key).expect("writes");
    });
    assert_eq!(rows_of(second), rows_of_groups(&mut db), "the page's second example");
}

#[test]
fn the_rows_of_the_page_of_producers_are_those_of_the_store() {
    let mut db = Db::new();
    db.run(|txn| {
        let (key, id) = (txn.key(b"s"), StreamId::new(1_700_000_000_000, 0));
        let mut stream = Stream::create(txn, &key).expect("writes");
        stream.append(txn, &key, id, [&b"f"[..], b"v"].into_iter()).expect("writes");
        let mut producers = stream.edit_producers(txn).expect("reads");
        producers.add(txn, b"ann", b"a1", id).expect("writes");
        producers.save(txn, &key).expect("writes");
        stream.save(txn, &key).expect("writes");
    });
    assert_eq!(rows_of(include_str!("../../../docs/format/stream_producers.md")), rows_of_groups(&mut db));
}

/// The rows of consumer groups and producers of the only stream, without what all keys begin with.
fn rows_of_groups(db: &mut Db) -> Vec<String> {
    const PREFIX_BYTES: usize = 15;
    let rows = db.rows();
    let of_groups = rows.iter().filter(|(row, _)| row[0] == 2 && row[PREFIX_BYTES] > 0);
    of_groups.map(|(row, value)| format!("{}→{}", hex(&row[PREFIX_BYTES..]), hex(value))).collect()
}

#[test]
fn rows_of_an_unknown_format_are_refused() {
    let deadline_cut = [&[1, 1][..], &[0; 7]].concat();
    let object_cut = [&[2, 0][..], &[0; 9]].concat();
    let object_cut_by_deadline = [&[2, 1][..], &[0; 17]].concat();
    let length_cut = [&[2, 0][..], &[0; 17]].concat();
    let too_much = [&[2, 0][..], &[0; 19]].concat();
    let cases: &[(&str, &[u8])] = &[
        ("no header", b""),
        ("half a header", b"\x01"),
        ("a tag that does not exist", b"\x00\x00"),
        ("a tag that does not exist yet", b"\x63\x00hello"),
        ("a flag that does not exist", b"\x01\x02hello"),
        ("a deadline that is cut off", &deadline_cut),
        ("an object that is cut off", &object_cut),
        ("an object that is cut off, behind a deadline", &object_cut_by_deadline),
        ("a length that is cut off", &length_cut),
        ("bytes behind the length", &too_much),
    ];
    for (case, row) in cases {
        let mut db = Db::new();
        db.run(|txn| txn.put_meta(&txn.key(b"k"), &[row])).expect("writes");
        let result = db.run(|txn| string::get(txn, &txn.key(b"k")).map(|content| content.map(common::bytes)));
        assert!(matches!(result, Err(Error::Stop(Stop::Failed(_)))), "{case}: {result:?}");
    }

    let mut db = Db::new();
    db.run(|txn| string::set(txn, &txn.key(b"k"), &[b'x'; 20_000])).expect("writes");
    let chunk = db.rows().into_keys().find(|row| row[0] == 2).expect("a string of 20000 bytes has chunks");
    db.run(|txn| txn.put_row(&chunk, &[&[b'x'; 16_385]])).expect("writes");
    let result = db.run(|txn| string::get(txn, &txn.key(b"k")).map(|content| content.map(common::bytes)));
    assert!(matches!(result, Err(Error::Stop(Stop::Failed(_)))), "a chunk's row longer than a chunk");
}

#[test]
fn the_rows_of_the_page_of_sorted_sets_are_those_of_the_store() {
    use haypile_types::zset::{Adding, Edit, Zset};
    let mut db = Db::new();
    let long = [b'x'; 1100];
    let added: [(&[u8], &[(f64, &[u8])]); 3] = [
        (b"board", &[(2.5, b"bob"), (1.0, b"ann")]),
        (b"{board}:all", &[(7.0, &long)]),
        (b"{board}:all", &[(-0.0, b"ann")]),
    ];
    for (name, pairs) in added {
        db.run(|txn| {
            let key = txn.key(name);
            let mut edit = Edit::of(Zset::write(txn, &key).expect("reads")).expect("parses");
            for (score, member) in pairs {
                edit.add(txn, &key, Adding::default(), *score, member).expect("adds");
            }
            edit.finish(txn, &key).expect("writes");
        });
    }
    let page = include_str!("../../../docs/format/zset.md");
    let shown = |row: &[u8]| hex(row).replace(&"78".repeat(1100), "1100×78");
    let written: Vec<String> =
        db.rows().iter().map(|(row, value)| format!("{}→{}", shown(row), shown(value))).collect();
    assert_eq!(rows_of(page), written, "the page's example");
}
