//! Random operations on a few keys against a map: contents, deadlines and existence agree after each, and the
//! invariants of keys hold; with flushes and reopens in between, and with time that passes.

mod common;

use common::{Db, Random, bytes, on_each_base};
use haypile_store::Counter;
use haypile_types::{Error, chunks::CHUNK_BYTES, key, string};
use std::collections::HashMap;

const NAMES: [&[u8]; 4] = [b"a", b"b", b"{a}c", b""];
const LENGTH_MAX: u64 = 300_000;

/// The contents and deadlines of keys.
type Model = HashMap<&'static [u8], (Vec<u8>, Option<u64>)>;

fn some_bytes(random: &mut Random) -> Vec<u8> {
    let c = CHUNK_BYTES as u64;
    let bounds = [1, 4, 40, 300, 300, c - 1, c, c + 1, c + 500, 3 * c];
    let length = random.pick(&bounds);
    let length = if random.below(2) == 0 { length } else { random.below(length + 1) };
    let first = random.below(256);
    (0..length).map(|i| (first + i / 3) as u8).collect()
}

fn step(db: &mut Db, model: &mut Model, random: &mut Random) {
    let now = db.now_ms;
    forget_expired(model, now);
    let (name, other) = (random.pick(&NAMES), random.pick(&NAMES));
    match random.below(12) {
        0 | 1 => {
            let value = some_bytes(random);
            db.run(|txn| string::set(txn, &txn.key(name), &value)).expect("writes");
            model.insert(name, (value, None));
        }
        2 => {
            let value = some_bytes(random);
            let deadline = now + random.below(20);
            db.run(|txn| {
                let key = txn.key(name);
                let before = key::lookup_overwrite(txn, &key).expect("reads");
                string::put(txn, &key, before.as_ref(), &value, Some(deadline)).expect("writes");
            });
            model.insert(name, (value, Some(deadline)));
        }
        3..=5 => {
            let value = some_bytes(random);
            let result = db.run(|txn| string::append(txn, &txn.key(name), &value, LENGTH_MAX));
            let (before, _) = model.entry(name).or_default();
            if (before.len() + value.len()) as u64 > LENGTH_MAX {
                assert_eq!(result, Err(Error::TooLong));
            } else {
                before.extend(value);
                assert_eq!(result, Ok(before.len() as u64));
            }
        }
        6..=8 => {
            let value = some_bytes(random);
            let offset = random.below(70_000) as usize;
            let offset = if random.below(2) == 0 { offset } else { offset % 400 };
            let result = db.run(|txn| string::set_range(txn, &txn.key(name), offset as u64, &value, LENGTH_MAX));
            if value.is_empty() {
                assert_eq!(result, Ok(model.get(name).map_or(0, |(before, _)| before.len() as u64)));
            } else {
                let (before, _) = model.entry(name).or_default();
                let end = offset + value.len();
                before.resize(before.len().max(end), 0);
                before[offset..end].copy_from_slice(&value);
                assert_eq!(result, Ok(before.len() as u64));
            }
        }
        9 => {
            let gone = db.run(|txn| key::delete(txn, &txn.key(name))).expect("deletes");
            assert_eq!(gone, model.remove(name).is_some());
        }
        10 => {
            let deadline = (random.below(3) > 0).then(|| now + random.below(30));
            db.run(|txn| {
                let key = txn.key(name);
                if let Some(entry) = key::lookup_write(txn, &key).expect("reads") {
                    key::set_deadline(txn, &key, &entry, deadline).expect("writes");
                }
            });
            model.entry(name).and_modify(|(_, kept)| *kept = deadline);
        }
        _ if name != other => {
            db.run(|txn| {
                let (from, to) = (txn.key(name), txn.key(other));
                let Some(entry) = key::lookup_write(txn, &from).expect("reads") else { return };
                let replaced = key::lookup_overwrite(txn, &to).expect("reads");
                key::rename(txn, &from, &entry, &to, replaced.as_ref()).expect("writes");
            });
            if let Some(moved) = model.remove(name) {
                model.insert(other, moved);
            }
        }
        _ => {}
    }
    compare(db, model, name, random);
    compare(db, model, other, random);
}

fn forget_expired(model: &mut Model, now_ms: u64) {
    model.retain(|_, (_, deadline)| deadline.is_none_or(|deadline| now_ms <= deadline));
}

/// Lets every deadline pass and come due: no key with one is left.
fn expire_all(db: &mut Db) {
    db.now_ms += 1_000;
    db.store.flush_now().expect("flushes to memory");
    for due in db.store.due_in_base(0, db.now_ms, 100).expect("reads memory") {
        let expired = db.run(|txn| key::expire(txn, &txn.key(&due.name), due.deadline_ms)).expect("expires");
        assert!(matches!(expired, key::Due::Removed), "a deadline row in the base is its key's");
    }
    assert_eq!(db.store.counter(0, Counter::Deadlines), 0);
}

fn compare(db: &mut Db, model: &Model, name: &[u8], random: &mut Random) {
    let (content, deadline, length) = db.run(|txn| {
        let key = txn.key(name);
        let content = string::get(txn, &key).expect("reads").map(bytes);
        let deadline = key::lookup(txn, &key).expect("reads").and_then(|entry| entry.header.deadline_ms);
        (content, deadline, string::length(txn, &key).expect("reads"))
    });
    let expected = model.get(name);
    assert!(
        content.as_ref() == expected.map(|(value, _)| value),
        "the content of {:?}",
        name.escape_ascii().to_string()
    );
    assert_eq!(deadline, expected.and_then(|(_, deadline)| *deadline));
    assert_eq!(length, expected.map_or(0, |(value, _)| value.len() as u64));
    if let Some((value, _)) = expected.filter(|(value, _)| !value.is_empty()) {
        let start = random.below(value.len() as u64) as usize;
        let end = start + random.below((value.len() - start) as u64) as usize;
        let part = db.run(|txn| string::range(txn, &txn.key(name), start as i64, end as i64)).expect("reads");
        assert!(part.map(bytes).as_deref() == Some(&value[start..=end]), "bytes {start} to {end}");
    }
}

#[test]
fn strings_and_deadlines_are_those_of_a_map() {
    for (seed, mut db) in on_each_base(1..=6) {
        let (mut model, mut random) = (Model::new(), Random(seed));
        for round in 0..400 {
            step(&mut db, &mut model, &mut random);
            if random.below(8) == 0 {
                db.now_ms += random.below(12);
            }
            if round % 20 == 0 {
                db.check();
            }
            if random.below(60) == 0 {
                db.store.flush_now().expect("flushes to memory");
            }
            if random.below(60) == 0 {
                db.reopen();
                forget_expired(&mut model, db.now_ms);
                NAMES.iter().for_each(|name| compare(&mut db, &model, name, &mut random));
            }
        }
        expire_all(&mut db);
        db.check();
    }
}
