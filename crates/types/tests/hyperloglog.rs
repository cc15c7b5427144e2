//! HyperLogLogs as keys: the count against a set of the added elements, the bytes written for it, and how long strings
//! that claim to be one are met. The differential tests and the cases compare the bytes themselves with redis-server's.

mod common;

use common::{Db, Random, bytes, on_each_base};
use haypile_types::EncodingLimit;
use haypile_types::{Error, hyperloglog, string};
use std::collections::HashSet;

fn add(db: &mut Db, key: &[u8], elements: &[String]) -> bool {
    let elements = elements.iter().map(|element| element.as_bytes());
    db.run(|txn| hyperloglog::add(txn, &txn.key(key), elements)).expect("adds")
}

fn count(db: &mut Db, key: &[u8]) -> u64 {
    db.run(|txn| hyperloglog::count(txn, &txn.key(key))).expect("counts").expect("is there")
}

fn get(db: &mut Db, key: &[u8]) -> Vec<u8> {
    db.run(|txn| string::get(txn, &txn.key(key)).expect("reads").map(bytes)).expect("is there")
}

fn get_if_there(db: &mut Db, key: &[u8]) -> Option<Vec<u8>> {
    db.run(|txn| string::get(txn, &txn.key(key)).expect("reads").map(bytes))
}

#[test]
fn counts_are_near_and_unions_are_those_of_all_elements() {
    const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];
    for (seed, mut db) in on_each_base(1..=3) {
        let mut random = Random(seed);
        let mut sets: [HashSet<u64>; 3] = Default::default();
        let mut exists = [false; 3];
        for round in 0..150 {
            let (at, other) = (random.below(3) as usize, random.below(3) as usize);
            if random.below(5) == 0 {
                db.run(|txn| {
                    let keys = [txn.key(NAMES[at]), txn.key(NAMES[other])];
                    hyperloglog::merge(txn, &txn.key(NAMES[at]), keys.into_iter())
                })
                .expect("merges");
                let merged: Vec<u64> = sets[other].iter().copied().collect();
                sets[at].extend(merged);
            } else {
                let many = random.pick(&[1, 1, 3, 40, 700]);
                let elements: Vec<u64> = (0..many).map(|_| random.below(1 << 20)).collect();
                let was_there = exists[at] && elements.iter().all(|element| sets[at].contains(element));
                let names: Vec<String> = elements.iter().map(u64::to_string).collect();
                let changed = add(&mut db, NAMES[at], &names);
                assert!(!(was_there && changed), "what was added before changes nothing");
                assert!(!add(&mut db, NAMES[at], &names), "nor does what was added now");
                sets[at].extend(elements);
            }
            exists[at] = true;
            if random.below(10) == 0 {
                db.store.flush_now().expect("flushes to memory");
            }
            if round % 60 == 59 {
                db.reopen();
            }
            let near = |count: u64, known: usize| (count as f64 - known as f64).abs() <= 2.0 + known as f64 * 0.05;
            let counted = count(&mut db, NAMES[at]);
            assert!(near(counted, sets[at].len()), "{counted} of {}", sets[at].len());
            let together: HashSet<&u64> = sets.iter().flatten().collect();
            let counted = db.run(|txn| {
                let keys: Vec<_> = NAMES.iter().map(|name| txn.key(name)).collect();
                hyperloglog::count_union(txn, keys.into_iter())
            });
            let counted = counted.expect("counts");
            assert!(near(counted, together.len()), "{counted} of {} in all", together.len());
        }
        db.check();
    }
}

#[test]
fn what_changes_nothing_writes_nothing_and_a_register_is_a_patch() {
    let mut db = Db::new();
    let all: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
    add(&mut db, b"h", &all);
    assert_eq!(get(&mut db, b"h").len(), 12_304);
    let again = ["5".to_owned()];
    let logged = db.logged(|txn| {
        let elements = again.iter().map(|element| element.as_bytes());
        assert!(!hyperloglog::add(txn, &txn.key(b"h"), elements).expect("adds"));
    });
    assert_eq!(logged, (0, 0));
    let (mut number, mut most) = (20_000, 0);
    for _ in 0..20 {
        loop {
            let element = number.to_string();
            number += 1;
            let mut changed = false;
            let (bytes, _) = db.logged(|txn| {
                changed = hyperloglog::add(txn, &txn.key(b"h"), std::iter::once(element.as_bytes())).expect("adds");
            });
            if changed {
                most = most.max(bytes);
                break;
            }
        }
    }
    assert!(most < 100, "{most} bytes for a register");
}

#[test]
fn a_count_is_kept_in_memory_and_the_value_stays() {
    let kept = |db: &mut Db| {
        db.run(|txn| {
            let key = txn.key(b"h");
            let (_, version) = txn.use_meta_version(&key).expect("reads");
            version.and_then(|version| txn.derived(&key, version))
        })
    };
    for elements in [10, 20_000] {
        let mut db = Db::new();
        let all: Vec<String> = (0..elements).map(|number| number.to_string()).collect();
        add(&mut db, b"h", &all);
        let bytes = get(&mut db, b"h");
        assert_eq!(kept(&mut db), None);
        let mut counted = 0;
        // From the memtable, and from the base: each has a version of its own.
        for expected in [None, Some(())] {
            let logged = db.logged(|txn| {
                counted = hyperloglog::count(txn, &txn.key(b"h")).expect("counts").expect("is there");
            });
            assert_eq!((logged, kept(&mut db)), ((0, 0), Some(counted)));
            assert_eq!(get(&mut db, b"h"), bytes);
            db.store.flush_now().expect("flushes to memory");
            assert_eq!(kept(&mut db), expected.map(|()| counted), "the second flush has nothing to flush");
        }
        let more: Vec<String> = (0..elements).map(|number| format!("more:{number}")).collect();
        add(&mut db, b"h", &more);
        assert_eq!(kept(&mut db), None);
        assert!(count(&mut db, b"h") > counted);
        // A change that nobody else sees yet is counted anew, and the count is told to nobody.
        let before = kept(&mut db);
        let third: Vec<String> = (0..elements).map(|number| format!("third:{number}")).collect();
        db.run(|txn| {
            let key = txn.key(b"h");
            assert!(hyperloglog::add(txn, &key, third.iter().map(|name| name.as_bytes())).expect("adds"));
            assert!(hyperloglog::count(txn, &key).expect("counts") >= before);
            assert_eq!(txn.use_meta_version(&key).expect("reads").1, None);
        });
        assert_eq!(kept(&mut db), None);
        count(&mut db, b"h");
        db.reopen();
        assert_eq!(kept(&mut db), None);
    }
}

#[test]
fn a_register_of_a_sparse_hyperloglog_is_a_splice_and_the_bytes_are_those_of_all_at_once() {
    let mut db = Db::new();
    let names: Vec<String> = (0..900).map(|number| number.to_string()).collect();
    let mut most = 0;
    for (at, name) in names.iter().enumerate() {
        let long_before = get_if_there(&mut db, b"h").is_some_and(|bytes| bytes.len() >= 300);
        let (bytes, _) = db.logged(|txn| {
            hyperloglog::add(txn, &txn.key(b"h"), std::iter::once(name.as_bytes())).expect("adds");
        });
        if long_before {
            most = most.max(bytes);
        }
        match at % 100 {
            // A client sets it with a count, so that the next element that changes something has to set the flag that
            // it is outdated.
            40 => {
                let counted = count(&mut db, b"h");
                let mut bytes = get(&mut db, b"h");
                bytes[8..16].copy_from_slice(&counted.to_le_bytes());
                db.run(|txn| string::set(txn, &txn.key(b"h"), &bytes)).expect("writes");
                assert_eq!(count(&mut db, b"h"), counted);
            }
            41 if at > 300 && bytes > 0 => assert!(get(&mut db, b"h")[15] & 0x80 != 0, "the count of {at} is outdated"),
            50 => db.store.flush_now().expect("flushes to memory"),
            60 => db.reopen(),
            _ => {}
        }
    }
    assert!(most < 100, "{most} bytes for a register");
    let bytes = get(&mut db, b"h");
    assert!(bytes.len() > 1500 && bytes[4] == 1, "{} bytes, sparse", bytes.len());
    // One command changes the bytes in a buffer and writes them as a whole.
    add(&mut db, b"all", &names);
    let all = get(&mut db, b"all");
    assert_eq!(bytes[16..], all[16..]);
    // One or two of several elements change something: again only the difference is logged.
    for (number, new) in [(1000, 1), (2000, 2)] {
        let mut some = names[..20].to_vec();
        (0..new).for_each(|more| some.insert(3, (number + more).to_string()));
        let (bytes, _) = db.logged(|txn| {
            let changed = hyperloglog::add(txn, &txn.key(b"h"), some.iter().map(|name| name.as_bytes())).expect("adds");
            assert!(changed);
        });
        assert!(bytes < 2000, "{bytes} bytes for {new} registers");
        add(&mut db, b"all", &some);
        assert_eq!(get(&mut db, b"h")[16..], get(&mut db, b"all")[16..]);
    }
    db.check();
}

#[test]
fn a_sparse_hyperloglog_is_dense_beyond_the_bound_of_the_configuration() {
    for (bound, elements) in [(0, 1), (40, 20), (3000, 3000)] {
        let mut db = Db::new();
        EncodingLimit::HllSparseBytes.set(&db.store, bound);
        add(&mut db, b"h", &["first".to_owned()]);
        let is_dense = |bytes: &[u8]| bytes[4] == 0;
        let mut longest = 0;
        for part in (0..elements).collect::<Vec<u64>>().chunks(50) {
            let names: Vec<String> = part.iter().map(u64::to_string).collect();
            add(&mut db, b"h", &names);
            let bytes = get(&mut db, b"h");
            if is_dense(&bytes) {
                break;
            }
            longest = bytes.len();
        }
        assert!(longest as i64 <= bound, "{longest} of {bound}");
        let bytes = get(&mut db, b"h");
        assert!(is_dense(&bytes), "{} bytes with the bound {bound}", bytes.len());
        assert_eq!(bytes.len(), 12_304);
    }
}

#[test]
fn a_string_in_chunks_may_be_a_hyperloglog() {
    // One register a run, all of them: longer than what lies in one row.
    let mut hll = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
    hll.extend((0..16_384u32).map(|register| 0x80 | (register % 2 * 4) as u8));
    let mut db = Db::new();
    EncodingLimit::HllSparseBytes.set(&db.store, 20_000);
    db.run(|txn| string::set(txn, &txn.key(b"h"), &hll)).expect("writes");
    let counted = count(&mut db, b"h");
    assert_eq!(get(&mut db, b"h"), hll);
    assert!(add(&mut db, b"h", &(0..100).map(|number| number.to_string()).collect::<Vec<_>>()));
    assert!(count(&mut db, b"h") > counted);

    hll.extend(vec![0; 40_000]);
    db.run(|txn| string::set(txn, &txn.key(b"h"), &hll)).expect("writes");
    let refused = db.run(|txn| hyperloglog::count(txn, &txn.key(b"h")));
    assert_eq!(refused, Err(Error::CorruptHyperLogLog), "longer than any that parses");
    db.run(|txn| string::set(txn, &txn.key(b"h"), &vec![b'x'; 2 << 20])).expect("writes");
    assert_eq!(db.run(|txn| hyperloglog::count(txn, &txn.key(b"h"))), Err(Error::NotHyperLogLog));
}
