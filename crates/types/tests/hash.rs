//! Random operations on a few hashes against a map: fields, values, counts and encodings agree after each, with flushes and
//! reopens in between, and bounds that are crossed in both forms. Random fields are as fair as chance allows.

mod common;

use common::{Db, Random};
use haypile_store::EncodingLimit;
use haypile_types::key::{self, Entry, Tag, Type};
use haypile_types::walk::Dice;
use haypile_types::{Error, hash, value};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

const NAMES: [&[u8]; 3] = [b"a", b"{a}b", b""];

/// A hash, and whether Redis would hold it as a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hash {
    fields: BTreeMap<Vec<u8>, Vec<u8>>,
    is_table: bool,
}

type Model = HashMap<&'static [u8], Hash>;

/// Bounds that are met often.
const ENTRIES_MAX: i64 = 40;
const VALUE_MAX: i64 = 30;

impl Hash {
    fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.is_table |= field.len() as i64 > VALUE_MAX || value.len() as i64 > VALUE_MAX;
        let created = self.fields.insert(field.to_vec(), value.to_vec()).is_none();
        self.is_table |= self.fields.len() as i64 > ENTRIES_MAX;
        created
    }
}

fn some_field(random: &mut Random) -> Vec<u8> {
    match random.below(30) {
        0 => Vec::new(),
        1 => vec![b'l'; random.pick(&[30, 31, 127, 128, 300])],
        number => format!("f{}", random.below(4 * number)).into_bytes(),
    }
}

fn some_value(random: &mut Random) -> Vec<u8> {
    let length = random.pick(&[0, 1, 2, 5, 5, 5, 12, 30, 31, 127, 128, 600]);
    vec![b'0' + random.below(10) as u8; length]
}

fn step(db: &mut Db, model: &mut Model, random: &mut Random) {
    let (name, other) = (random.pick(&NAMES), random.pick(&NAMES));
    match random.below(16) {
        0..=4 => {
            let (field, value) = (some_field(random), some_value(random));
            let created = db.run(|txn| hash::set(txn, &txn.key(name), [(&field[..], &value[..])].into_iter()));
            assert_eq!(created, Ok(u64::from(model.entry(name).or_default().set(&field, &value))));
        }
        5..=6 => {
            let count = random.pick(&[2, 3, 10, 70]);
            let pairs: Vec<_> = (0..count).map(|_| (some_field(random), some_value(random))).collect();
            let created = db
                .run(|txn| hash::set(txn, &txn.key(name), pairs.iter().map(|(field, value)| (&field[..], &value[..]))));
            let model = model.entry(name).or_default();
            // Redis looks at the lengths of all of them first, and at a new hash's count; that is no other outcome.
            let expected = pairs.iter().filter(|(field, value)| model.set(field, value)).count() as u64;
            model.is_table |= expected == model.fields.len() as u64 && count as i64 > ENTRIES_MAX;
            assert_eq!(created, Ok(expected));
        }
        7 => {
            let (field, value) = (some_field(random), some_value(random));
            let created = db.run(|txn| hash::set_absent(txn, &txn.key(name), &field, &value)).expect("writes");
            let model = model.entry(name).or_default();
            assert_eq!(created, !model.fields.contains_key(&field));
            if created {
                model.set(&field, &value);
            }
        }
        8..=10 => {
            let count = random.pick(&[1, 1, 2, 30]);
            let fields: Vec<_> = (0..count).map(|_| some_field(random)).collect();
            let deleted =
                db.run(|txn| hash::delete(txn, &txn.key(name), fields.iter().map(|field| &field[..]))).expect("writes");
            let hash = model.entry(name).or_default();
            let expected = fields.iter().filter(|field| hash.fields.remove(*field).is_some()).count() as u64;
            assert_eq!((deleted.fields, deleted.key), (expected, expected > 0 && hash.fields.is_empty()));
        }
        11..=12 => {
            let field = some_field(random);
            let delta = random.below(2000) as i64 - 1000;
            let sum = db.run(|txn| hash::increment(txn, &txn.key(name), &field, delta));
            let hash = model.entry(name).or_default();
            let number = hash.fields.get(&field).map_or(Some(0), |value| haypile_types::integer::parse(value));
            match number {
                Some(number) => {
                    assert_eq!(sum, Ok(number + delta));
                    hash.set(&field, (number + delta).to_string().as_bytes());
                }
                None => assert_eq!(sum, Err(Error::NotInteger)),
            }
        }
        13 => {
            db.run(|txn| key::delete(txn, &txn.key(name))).expect("deletes");
            model.remove(name);
        }
        14 if name != other => {
            db.run(|txn| {
                let (from, to) = (txn.key(name), txn.key(other));
                let Some(entry) = key::lookup_write(txn, &from).expect("reads") else { return };
                let replaced = key::lookup_overwrite(txn, &to).expect("reads");
                value::copy(txn, &from, &entry, &to, replaced.as_ref()).expect("writes");
            });
            if let Some(copied) = model.get(name).cloned() {
                model.insert(other, copied);
            }
        }
        15 if name != other => {
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
    model.retain(|_, hash| !hash.fields.is_empty());
    for name in [name, other] {
        compare(db, model.get(name), name, random);
    }
}

fn compare(db: &mut Db, expected: Option<&Hash>, name: &[u8], random: &mut Random) {
    let (field, page) = (some_field(random), random.pick(&[1, 5, 100]));
    db.run(|txn| {
        let key = txn.key(name);
        let Some(entry) = key::lookup(txn, &key).expect("reads") else {
            assert_eq!(expected, None, "{:?}", name.escape_ascii().to_string());
            return;
        };
        let expected = expected.unwrap_or_else(|| panic!("{:?} is not empty", name.escape_ascii().to_string()));
        assert_eq!(entry.header.type_of(), Type::Hash);
        assert_eq!(hash::len(&entry), Ok(expected.fields.len() as u64));
        let mut found = BTreeMap::new();
        hash::visit(txn, &key, &entry, |field, value| {
            assert!(found.insert(field.to_vec(), value.to_vec()).is_none(), "each field once");
            ControlFlow::Continue(())
        })
        .expect("reads");
        assert_eq!(found, expected.fields);
        let encoding = if expected.is_table { "hashtable" } else { "listpack" };
        assert_eq!(value::encoding_name(&entry), Ok(Some(encoding)));
        let one = hash::get(txn, &key, entry.clone(), &field).expect("reads");
        assert_eq!(one.as_deref(), expected.fields.get(&field).map(|value| &value[..]));
        let length = hash::look(txn, &key, &entry, &field, <[u8]>::len).expect("reads");
        assert_eq!(length, expected.fields.get(&field).map(Vec::len));
        assert_eq!(hash::contains(txn, &key, &entry, &field), Ok(length.is_some()));
        let (mut next, mut paged) = (Some(0), BTreeMap::new());
        while let Some(from) = next {
            let add = |field: &[u8], value: &[u8]| drop(paged.insert(field.to_vec(), value.to_vec()));
            next = hash::page(txn, &key, &entry, Some(from), page, add).expect("reads");
            assert!(next.is_none_or(|next| next > from), "a walk goes on");
        }
        assert_eq!(paged, expected.fields);
        let mut dice = Dice::new(txn);
        hash::draw(txn, &key, &entry, &mut dice, |field, value| {
            assert_eq!(expected.fields.get(field).map(|value| &value[..]), Some(value));
        })
        .expect("reads");
    });
}

#[test]
fn hashes_are_those_of_a_map() {
    for seed in 1..=6 {
        println!("seed {seed}");
        let (mut db, mut model, mut random) = (Db::new(), Model::new(), Random(seed));
        let limits = |db: &Db| {
            db.store.encoding_limits.set(EncodingLimit::HashEntries, ENTRIES_MAX);
            db.store.encoding_limits.set(EncodingLimit::HashValue, VALUE_MAX);
        };
        limits(&db);
        for round in 0..600 {
            step(&mut db, &mut model, &mut random);
            if round % 20 == 0 {
                db.check();
            }
            if random.below(50) == 0 {
                db.store.flush_now().expect("flushes to memory");
            }
            if random.below(80) == 0 {
                db.reopen();
                limits(&db);
                NAMES.iter().for_each(|name| compare(&mut db, model.get(name), name, &mut random));
            }
        }
        db.check();
    }
}

fn entry_of(db: &mut Db, name: &[u8]) -> Entry {
    db.run(|txn| key::peek(txn, &txn.key(name))).expect("reads").expect("is there")
}

/// A hash of fields `0` to `count`.
fn filled(count: usize) -> Db {
    let mut db = Db::new();
    let fields: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    db.run(|txn| hash::set(txn, &txn.key(b"h"), fields.iter().map(|field| (field.as_bytes(), &b"v"[..]))))
        .expect("writes");
    db
}

#[test]
fn a_hash_is_one_row_up_to_64_fields_and_1024_bytes() {
    assert_eq!(entry_of(&mut filled(64), b"h").header.tag, Tag::HashPacked);
    assert_eq!(entry_of(&mut filled(65), b"h").header.tag, Tag::HashRows);
    for (bytes, tag) in [(1019, Tag::HashPacked), (1020, Tag::HashRows)] {
        let mut db = Db::new();
        // One byte for the field, and the lengths: one byte and two.
        db.run(|txn| hash::set(txn, &txn.key(b"h"), [(&b"f"[..], &vec![b'v'; bytes + 1][..])].into_iter()))
            .expect("writes");
        assert_eq!(entry_of(&mut db, b"h").header.tag, tag, "{bytes}");
        // What is in rows stays there.
        db.run(|txn| hash::set(txn, &txn.key(b"h"), [(&b"f"[..], &b"v"[..])].into_iter())).expect("writes");
        assert_eq!(entry_of(&mut db, b"h").header.tag, tag);
    }
}

#[test]
fn a_change_of_one_field_costs_one_or_two_rows() {
    for (fields, rows_max, bytes_max) in [(10, 1, 120), (64, 1, 60), (65, 2, 140), (5000, 2, 140)] {
        let mut db = filled(fields);
        let mut set = |field: &str, value: &str| {
            db.logged(|txn| {
                let pair = (field.as_bytes(), value.as_bytes());
                hash::set(txn, &txn.key(b"h"), [pair].into_iter()).expect("writes");
            })
        };
        let (bytes, rows) = set("7", "w");
        assert!(rows <= rows_max && bytes <= bytes_max, "{fields} fields: {bytes} bytes, {rows} rows");
        if fields > 64 {
            let (bytes, rows) = set("new", "w");
            assert!(rows <= 2 && bytes <= bytes_max, "{fields} fields, a new one: {bytes} bytes, {rows} rows");
        }
    }
}

#[test]
fn every_field_is_drawn_as_often_as_chance_has_it() {
    for (fields, draws) in [(3, 3_000), (64, 20_000), (65, 20_000), (700, 140_000)] {
        let mut db = filled(fields);
        let counts = db.run(|txn| {
            let key = txn.key(b"h");
            let entry = key::peek(txn, &key).expect("reads").expect("is there");
            let (mut counts, mut dice) = (HashMap::new(), Dice::new(txn));
            for _ in 0..draws {
                hash::draw(txn, &key, &entry, &mut dice, |field, _| *counts.entry(field.to_vec()).or_insert(0u32) += 1)
                    .expect("draws");
            }
            counts
        });
        assert_eq!(counts.len(), fields, "every field comes up");
        // Chi-squared with fields - 1 degrees of freedom: beyond six deviations of its own, chance is not to blame.
        let expected = draws as f64 / fields as f64;
        let squares: f64 = counts.values().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        let freedom = fields as f64 - 1.0;
        assert!((squares - freedom).abs() < 6.0 * (2.0 * freedom).sqrt() + 6.0, "{fields} fields: {squares}");
    }
}
