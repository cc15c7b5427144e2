//! Hashes of more fields than one reply holds in memory: whole replies, pages and random fields, with the rows in the
//! memtable and with all of them in the base and out of an event loop's reach.

mod runner;

use haypile_store::testing::memory_store;
use haypile_store::{Call, Mode, TxnBuffers};
use runner::{Client, Shown};
use std::collections::{BTreeMap, BTreeSet};

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn list(shown: &Shown) -> Vec<String> {
    let Shown::List(elements) = shown else { panic!("a list, not {shown:?}") };
    let text = |element: &Shown| match element {
        Shown::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("a string, not {other:?}"),
    };
    elements.iter().map(text).collect()
}

fn pairs(flat: Vec<String>) -> BTreeMap<String, String> {
    let count = flat.len() / 2;
    let pairs: BTreeMap<_, _> = flat.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    assert_eq!(pairs.len(), count, "each field once");
    pairs
}

/// More than go into a reply that is put together in memory.
const FIELDS: usize = 3000;

/// Runs `check` on a hash of many fields, warm and cold.
fn with_giant(check: impl Fn(&mut Client, &BTreeMap<String, String>)) {
    for is_cold in [false, true] {
        let db = memory_store();
        db.base.set_cold(is_cold);
        let mut client = Client::new(&db);
        let mut expected = BTreeMap::new();
        for first in (0..FIELDS).step_by(500) {
            let mut command = words("HSET h");
            for number in first..first + 500 {
                let (field, value) = (format!("field:{number}"), format!("{}", number * 7));
                command.extend([field.clone().into_bytes(), value.clone().into_bytes()]);
                expected.insert(field, value);
            }
            client.call(&command);
        }
        if is_cold {
            db.flush_now().expect("flushes to memory");
            db.base.set_cold(true);
        }
        check(&mut client, &expected);
    }
}

#[test]
fn all_fields_of_a_large_hash_are_sent_in_pieces() {
    with_giant(|client, expected| {
        assert_eq!(&pairs(list(&client.call(&words("HGETALL h")))), expected);
        let fields: BTreeSet<String> = list(&client.call(&words("HKEYS h"))).into_iter().collect();
        assert!(fields.iter().eq(expected.keys()));
        let mut values = list(&client.call(&words("HVALS h")));
        let mut expected: Vec<String> = expected.values().cloned().collect();
        values.sort();
        expected.sort();
        assert_eq!(values, expected);
    });
}

#[test]
fn few_long_values_are_sent_in_pieces_too() {
    let db = memory_store();
    let mut client = Client::new(&db);
    let value = "x".repeat(400_000);
    for field in ["a", "b", "c", "d"] {
        client.call(&[&b"HSET"[..], b"h", field.as_bytes(), value.as_bytes()].map(<[u8]>::to_vec));
    }
    let all = pairs(list(&client.call(&words("HGETALL h"))));
    assert!(all.len() == 4 && all.values().all(|found| *found == value));
    let some = pairs(list(&client.call(&words("HRANDFIELD h 3 WITHVALUES"))));
    assert!(some.len() == 3 && some.values().all(|found| *found == value));
    assert_eq!(list(&client.call(&words("HRANDFIELD h -9 WITHVALUES"))).len(), 18);
    assert_eq!(list(&client.call(&words("HMGET h a b c"))).len(), 3);
}

#[test]
fn a_scan_shows_each_field_that_stays() {
    with_giant(|client, expected| {
        for options in ["", " COUNT 100", " COUNT 100000000", " NOVALUES COUNT 77"] {
            let (mut cursor, mut seen, mut steps) = ("0".to_string(), Vec::new(), 0);
            loop {
                let reply = client.call(&words(&format!("HSCAN h {cursor}{options}")));
                let Shown::List(parts) = &reply else { panic!("a list") };
                let Shown::Bulk(next) = &parts[0] else { panic!("a cursor") };
                cursor = String::from_utf8_lossy(next).into_owned();
                let page = list(&parts[1]);
                assert!(page.len() <= 2 * 1000 + 8, "a page is bounded: {}", page.len());
                seen.extend(page);
                steps += 1;
                // Fields that come and go meanwhile may be seen or not; those that stay are seen.
                client.call(&words(&format!("HSET h passing:{steps} x")));
                client.call(&words(&format!("HDEL h passing:{}", steps / 2)));
                if cursor == "0" {
                    break;
                }
            }
            match options.contains("NOVALUES") {
                true => {
                    let seen: BTreeSet<String> = seen.into_iter().collect();
                    assert!(expected.keys().all(|field| seen.contains(field)));
                }
                false => {
                    let seen = pairs(seen);
                    assert!(expected.iter().all(|(field, value)| seen.get(field) == Some(value)));
                }
            }
        }
    });
}

#[test]
fn random_fields_of_a_large_hash() {
    with_giant(|client, expected| {
        // A few are drawn, many are chosen on a walk, more than there are is all.
        for (count, found) in [(1, 1), (50, 50), (1000, 1000), (2999, 2999), (3000, 3000), (1_000_000, FIELDS)] {
            let fields = list(&client.call(&words(&format!("HRANDFIELD h {count}"))));
            let different: BTreeSet<&String> = fields.iter().collect();
            assert_eq!((fields.len(), different.len()), (found, found));
            assert!(fields.iter().all(|field| expected.contains_key(field)));
            let with_values = pairs(list(&client.call(&words(&format!("HRANDFIELD h {count} WITHVALUES")))));
            assert!(with_values.iter().all(|(field, value)| expected.get(field) == Some(value)));
            assert_eq!(with_values.len(), found);
        }
        let drawn = list(&client.call(&words("HRANDFIELD h -500 WITHVALUES")));
        assert_eq!(drawn.len(), 1000);
        assert!(drawn.chunks_exact(2).all(|pair| expected.get(&pair[0]) == Some(&pair[1])));
    });
}

#[test]
fn what_changes_too_much_at_once_is_refused_before_it_has_an_effect() {
    with_giant(|client, expected| {
        // The store of these tests takes 8 MB at once.
        let mut command = words("HSET h");
        for number in 0..100 {
            command.extend([format!("big:{number}").into_bytes(), vec![b'x'; 100_000]]);
        }
        assert!(
            matches!(client.call(&command), Shown::Word(text) if text.starts_with("error ERR the command changes more"))
        );
        assert_eq!(&pairs(list(&client.call(&words("HGETALL h")))), expected);
        // A new hash may be of any size: nothing names its rows until it is whole.
        command[1] = b"new".to_vec();
        assert!(matches!(client.call(&command), Shown::Word(text) if text == "100"));
        assert_eq!(list(&client.call(&words("HKEYS new"))).len(), 100);
    });
}

#[test]
fn hsetex_has_the_conditions_of_both_servers() {
    let db = memory_store();
    let mut client = Client::new(&db);
    for (line, set) in [
        ("HSETEX h XX FIELDS 1 f v", "0"),
        ("HSETEX h NX FNX FIELDS 1 f v", "1"),
        ("HSETEX h NX FIELDS 1 g v", "0"),
        ("HSETEX h XX FNX FIELDS 1 f v", "0"),
        ("HSETEX h FNX XX FIELDS 1 g v", "1"),
        ("HSETEX h FXX FIELDS 2 f w g w", "1"),
    ] {
        assert_eq!(client.call(&words(line)).shown(), set, "{line}");
    }
    assert_eq!(list(&client.call(&words("HMGET h f g"))), ["w", "w"]);
}

#[test]
fn fields_of_a_hash_that_counts_more_than_it_has_are_not_drawn_for_ever() {
    let db = memory_store();
    let mut client = Client::new(&db);
    for number in 0..40 {
        client.call(&words(&format!("HSET h field:{number} {}", "x".repeat(200))));
    }
    let call = Call { now_ms: client.now_ms, seed: 1, database: 0, mode: Mode::Disk, pins: None };
    let mut txn = db.begin(TxnBuffers::default(), call);
    let key = txn.key(b"h");
    let mut row = txn.meta(&key).expect("readable").expect("there").to_vec();
    let count = row.windows(8).position(|bytes| bytes == 40u64.to_be_bytes()).expect("it counts");
    row[count..count + 8].copy_from_slice(&1_000u64.to_be_bytes());
    txn.put_meta(&key, &[&row]).expect("small");
    txn.commit().expect("commits");
    drop(txn);
    let shown = client.call(&words("HRANDFIELD h 50"));
    assert!(matches!(&shown, Shown::List(fields) if fields.len() < 40), "{shown:?}");
}
