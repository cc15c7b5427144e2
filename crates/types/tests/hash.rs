//! Random operations on a few hashes against a map: fields, values, deadlines, counts and encodings agree after each,
//! with time that passes, flushes and reopens in between, and bounds that are crossed in both forms. Random fields are
//! as fair as chance allows.

mod common;

use common::{Db, Random, on_each_base};
use haypile_store::row::Family;
use haypile_store::{Counter, Key, Txn};
use haypile_types::EncodingLimit;
use haypile_types::hash::{After, Condition, Timed};
use haypile_types::key::{self, Entry, Header, Tag, Type};
use haypile_types::walk::Dice;
use haypile_types::{Error, hash, value};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

const NAMES: [&[u8]; 3] = [b"a", b"{a}b", b""];

/// A hash, and whether Redis would hold it as a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hash {
    fields: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The deadlines of fields that have one.
    deadlines: BTreeMap<Vec<u8>, u64>,
    is_table: bool,
    /// Whether some field had a deadline once.
    is_timed: bool,
}

type Model = HashMap<&'static [u8], Hash>;

/// Bounds that are met often.
const ENTRIES_MAX: i64 = 40;
const VALUE_MAX: i64 = 30;

impl Hash {
    fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.is_table |= field.len() as i64 > VALUE_MAX || value.len() as i64 > VALUE_MAX;
        let created = self.fields.insert(field.to_vec(), value.to_vec()).is_none();
        self.deadlines.remove(field);
        self.is_table |= self.fields.len() as i64 > ENTRIES_MAX;
        created
    }

    /// Changes a field, whose deadline stays.
    fn change(&mut self, field: &[u8], value: &[u8]) {
        let deadline = self.deadlines.get(field).copied();
        self.set(field, value);
        self.deadlines.extend(deadline.map(|deadline| (field.to_vec(), deadline)));
    }

    fn remove(&mut self, field: &[u8]) -> bool {
        self.deadlines.remove(field);
        self.fields.remove(field).is_some()
    }

    fn forget_expired(&mut self, now_ms: u64) {
        let (fields, is_live) = (&mut self.fields, |deadline: u64| now_ms <= deadline);
        fields.retain(|field, _| self.deadlines.get(field).is_none_or(|deadline| is_live(*deadline)));
        self.deadlines.retain(|_, deadline| is_live(*deadline));
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
    let now_ms = db.now_ms;
    forget_expired(model, now_ms);
    let hash = model.entry(name).or_default();
    match random.below(22) {
        0..=4 => set(db, hash, name, 1, random),
        5..=6 => {
            let count = random.pick(&[2, 3, 10, 70]);
            set(db, hash, name, count, random);
        }
        7 => set_absent(db, hash, name, random),
        8..=10 => delete(db, hash, name, random),
        11..=12 => increment(db, hash, name, random),
        13 => {
            db.run(|txn| key::delete(txn, &txn.key(name))).expect("deletes");
            model.remove(name);
        }
        14 if name != other => {
            put_in_the_place_of(db, name, other, |txn, from, entry, to, replaced| {
                value::copy(txn, from, entry, to, replaced).expect("writes");
            });
            if let Some(copied) = model.get(name).filter(|hash| !hash.fields.is_empty()).cloned() {
                model.insert(other, copied);
            }
        }
        15 if name != other => {
            put_in_the_place_of(db, name, other, |txn, from, entry, to, replaced| {
                key::rename(txn, from, entry, to, replaced).expect("writes");
            });
            if let Some(moved) = model.remove(name).filter(|hash| !hash.fields.is_empty()) {
                model.insert(other, moved);
            }
        }
        16..=18 => set_deadlines(db, hash, name, random),
        19 => persist(db, hash, name, random),
        20 => set_until(db, hash, name, random),
        21 => expire_some(db),
        _ => {}
    }
    forget_expired(model, now_ms);
    for name in [name, other] {
        compare(db, model.get(name), name, random);
    }
}

/// Sets so many random fields.
fn set(db: &mut Db, hash: &mut Hash, name: &[u8], count: usize, random: &mut Random) {
    let pairs: Vec<_> = (0..count).map(|_| (some_field(random), some_value(random))).collect();
    let created =
        db.run(|txn| hash::set(txn, &txn.key(name), pairs.iter().map(|(field, value)| (&field[..], &value[..]))));
    // Redis looks at the lengths of all of them first, and at a new hash's count; that is no other outcome.
    let expected = pairs.iter().filter(|(field, value)| hash.set(field, value)).count() as u64;
    hash.is_table |= expected == hash.fields.len() as u64 && count as i64 > ENTRIES_MAX;
    assert_eq!(created, Ok(expected));
}

fn set_absent(db: &mut Db, hash: &mut Hash, name: &[u8], random: &mut Random) {
    let (field, value) = (some_field(random), some_value(random));
    let created = db.run(|txn| hash::set_absent(txn, &txn.key(name), &field, &value)).expect("writes");
    assert_eq!(created, !hash.fields.contains_key(&field));
    if created {
        hash.set(&field, &value);
    }
}

fn delete(db: &mut Db, hash: &mut Hash, name: &[u8], random: &mut Random) {
    let count = random.pick(&[1, 1, 2, 30]);
    let fields: Vec<_> = (0..count).map(|_| some_field(random)).collect();
    let deleted =
        db.run(|txn| hash::delete(txn, &txn.key(name), fields.iter().map(|field| &field[..]))).expect("writes");
    let expected = fields.iter().filter(|field| hash.remove(field)).count() as u64;
    assert_eq!((deleted.fields, deleted.key), (expected, expected > 0 && hash.fields.is_empty()));
}

fn increment(db: &mut Db, hash: &mut Hash, name: &[u8], random: &mut Random) {
    let field = some_field(random);
    let delta = random.below(2000) as i64 - 1000;
    let sum = db.run(|txn| hash::increment(txn, &txn.key(name), &field, delta));
    let number = hash.fields.get(&field).map_or(Some(0), |value| haypile_types::integer::parse(value));
    match number {
        Some(number) => {
            assert_eq!(sum, Ok(number + delta));
            hash.change(&field, (number + delta).to_string().as_bytes());
        }
        None => assert_eq!(sum, Err(Error::NotInteger)),
    }
}

/// Gives the key of one name, if it is there, to `put`, with the place of the other and the key that is there.
fn put_in_the_place_of(
    db: &mut Db,
    name: &[u8],
    other: &[u8],
    put: impl FnOnce(&mut Txn<'_>, &Key<'_>, &Entry, &Key<'_>, Option<&Header>),
) {
    db.run(|txn| {
        let (from, to) = (txn.key(name), txn.key(other));
        let Some(entry) = key::lookup_write(txn, &from).expect("reads") else { return };
        let replaced = key::lookup_overwrite(txn, &to).expect("reads");
        put(txn, &from, &entry, &to, replaced.as_ref());
    });
}

fn set_deadlines(db: &mut Db, hash: &mut Hash, name: &[u8], random: &mut Random) {
    let now_ms = db.now_ms;
    let fields: Vec<_> = (0..random.pick(&[1, 2, 20])).map(|_| some_field(random)).collect();
    let deadline = (now_ms + random.below(30)).saturating_sub(random.pick(&[0, 0, 0, 20]));
    let condition = random.pick(&[
        Condition::Always,
        Condition::Always,
        Condition::Without,
        Condition::With,
        Condition::Later,
        Condition::Earlier,
    ]);
    let outcomes = db.run(|txn| {
        let key = txn.key(name);
        let entry = hash::lookup(txn, &key).expect("reads")?;
        let fields = fields.iter().map(|field| &field[..]);
        Some(hash::set_deadlines(txn, &key, &entry, deadline, condition, fields).expect("writes"))
    });
    let outcomes = outcomes.unwrap_or(vec![After::NoField; fields.len()]);
    for (field, outcome) in fields.iter().zip(outcomes) {
        let expected = match (hash.fields.contains_key(field), hash.deadlines.get(field)) {
            (false, _) => After::NoField,
            (true, before) if !allows(condition, before.copied(), deadline) => After::Unchanged,
            _ if deadline <= now_ms => After::Deleted,
            _ => After::Changed,
        };
        assert_eq!(outcome, expected);
        match outcome {
            After::Changed => {
                hash.deadlines.insert(field.clone(), deadline);
                hash.is_timed = true;
            }
            After::Deleted => {
                hash.remove(field);
            }
            After::NoField | After::Unchanged => {}
        }
    }
}

fn persist(db: &mut Db, hash: &mut Hash, name: &[u8], random: &mut Random) {
    let fields: Vec<_> = (0..random.pick(&[1, 2, 20])).map(|_| some_field(random)).collect();
    db.run(|txn| {
        let key = txn.key(name);
        let Some(entry) = hash::lookup(txn, &key).expect("reads") else { return };
        hash::persist(txn, &key, &entry, fields.iter().map(|field| &field[..])).expect("writes");
    });
    hash.deadlines.retain(|field, _| !fields.contains(field));
}

fn set_until(db: &mut Db, hash: &mut Hash, name: &[u8], random: &mut Random) {
    let now_ms = db.now_ms;
    let (field, value) = (some_field(random), some_value(random));
    let (timed, deadline) = match random.below(2) {
        0 => (Timed::Keep, None),
        _ => (Timed::Until(now_ms + 7), Some(now_ms + 7)),
    };
    db.run(|txn| {
        let key = txn.key(name);
        let entry = hash::lookup(txn, &key).expect("reads");
        hash::set_until(txn, &key, entry, [(&field[..], &value[..])].into_iter(), timed).expect("writes");
    });
    hash.change(&field, &value);
    hash.is_timed |= deadline.is_some();
    hash.deadlines.extend(deadline.map(|deadline| (field, deadline)));
}

fn forget_expired(model: &mut Model, now_ms: u64) {
    model.values_mut().for_each(|hash| hash.forget_expired(now_ms));
    model.retain(|_, hash| !hash.fields.is_empty());
}

fn allows(condition: Condition, before: Option<u64>, after: u64) -> bool {
    let before_or_never = before.unwrap_or(u64::MAX);
    match condition {
        Condition::Always => true,
        Condition::Without => before.is_none(),
        Condition::With => before.is_some(),
        Condition::Later => after > before_or_never,
        Condition::Earlier => after < before_or_never,
    }
}

/// Expires fields as the server does by itself, a few at a time.
fn expire_some(db: &mut Db) {
    let mut due = db.store.due_deadlines(db.now_ms, 100);
    due.extend(db.store.due_in_base(0, db.now_ms, 100).expect("reads memory"));
    for due in due {
        db.run(|txn| hash::expire(txn, &txn.key(&due.name), due.deadline_ms, 3)).expect("expires");
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
        assert_eq!(hash::len(txn, &key, &entry), Ok(expected.fields.len() as u64));
        let mut found = BTreeMap::new();
        hash::visit(txn, &key, &entry, |field, value| {
            assert!(found.insert(field.to_vec(), value.to_vec()).is_none(), "each field once");
            ControlFlow::Continue(())
        })
        .expect("reads");
        assert_eq!(found, expected.fields);
        let encoding = match (expected.is_table, expected.is_timed) {
            (true, _) => "hashtable",
            (false, true) => "listpackex",
            (false, false) => "listpack",
        };
        let seen = value::encoding_name(&entry).expect("is known").expect("a collection has one");
        // Expired fields count until they are removed, as in Redis.
        assert!(seen == encoding || expected.is_timed && seen == "hashtable", "{seen}, not {encoding}");
        let mut times = Vec::new();
        hash::times(txn, &key, &entry, std::iter::once(&field[..]), |time| times.push(time)).expect("reads");
        let expected_time = expected.fields.get(&field).map(|_| expected.deadlines.get(&field).copied());
        assert_eq!(times, [expected_time]);
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
    for (seed, mut db) in on_each_base(1..=6) {
        let (mut model, mut random) = (Model::new(), Random(seed));
        let limits = |db: &Db| {
            EncodingLimit::HashEntries.set(&db.store, ENTRIES_MAX);
            EncodingLimit::HashValue.set(&db.store, VALUE_MAX);
        };
        limits(&db);
        for round in 0..600 {
            step(&mut db, &mut model, &mut random);
            if random.below(4) == 0 {
                db.now_ms += random.below(12);
            }
            if round % 20 == 0 {
                db.check();
            }
            if random.below(50) == 0 {
                db.store.flush_now().expect("flushes to memory");
            }
            if random.below(80) == 0 {
                db.reopen();
                limits(&db);
                forget_expired(&mut model, db.now_ms);
                NAMES.iter().for_each(|name| compare(&mut db, model.get(name), name, &mut random));
            }
        }
        db.check();
        // Everything with a deadline expires, and leaves nothing behind.
        db.now_ms += 1000;
        forget_expired(&mut model, db.now_ms);
        for _ in 0..1000 {
            expire_some(&mut db);
            if db.store.counter(0, Counter::FieldDeadlines) == 0 {
                break;
            }
        }
        assert_eq!(db.store.counter(0, Counter::FieldDeadlines), 0);
        NAMES.iter().for_each(|name| compare(&mut db, model.get(name), name, &mut random));
        assert_eq!(db.store.counter(0, Counter::Keys), model.len() as i64);
        assert_eq!(indexed_of_the_living(&mut db), 0);
        db.check();
    }
}

/// Counts rows of the index of deadlines that belong to keys that exist.
fn indexed_of_the_living(db: &mut Db) -> usize {
    let rows = db.rows();
    let owned = |row: &[u8]| rows.keys().any(|owner| owner[0] == Family::Owner as u8 && owner[1..15] == row[1..15]);
    rows.keys().filter(|row| row[0] == Family::Score as u8 && owned(row)).count()
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
        // A hash in rows stays there.
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
