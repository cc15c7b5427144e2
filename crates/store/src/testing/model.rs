//! A model of a store's content, as plain maps, and random transactions that change both alike and compare their reads.
//!
//! `world` is the machine around it: it runs these transactions between flushes, faults and crashes.

use crate::base::Direction;
use crate::databases::{COUNTERS, Counter};
use crate::memtable::{Change, Patch, Splice};
use crate::row::{self, Family, Key, ObjectId, RowKey, ScanPosition, Slot};
use crate::stop::Stop;
use crate::txn::view::View;
use crate::txn::visit::RowPresence;
use crate::txn::{Presence, Savepoint, Txn};
use haypile_log::testing::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

pub use super::world::{Setup, Step, World, run};

/// Databases that transactions change; one more holds the number of the last transaction.
pub const DATABASES: u32 = 3;

/// User keys of each database.
const NAMES: u64 = 60;

/// Different elements of each object.
const ELEMENTS: u64 = 40;

const ALL_COUNTERS: [Counter; COUNTERS] = [
    Counter::Keys,
    Counter::Deadlines,
    Counter::Strings,
    Counter::Lists,
    Counter::Sets,
    Counter::SortedSets,
    Counter::Hashes,
    Counter::Streams,
    Counter::FieldDeadlines,
];

/// The content of a database.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Content {
    keys: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Objects by the model's own numbers: a transaction that runs again gets other ids.
    objects: BTreeMap<u64, Object>,
    deadlines: BTreeSet<(u64, Vec<u8>)>,
    counts: [i64; COUNTERS],
}

#[derive(Clone, Debug, PartialEq)]
struct Object {
    id: ObjectId,
    slot: Slot,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The content of a store.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Model {
    databases: [Content; DATABASES as usize],
    next_object: u64,
}

/// Returns some user key: most of them anywhere, some in one slot, some even of one hash.
fn name(random: &mut Random) -> Vec<u8> {
    let number = random.below(NAMES);
    match number % 4 {
        0 => format!("{{tag}}:{number}"),
        1 => format!("same:{number}"),
        _ => format!("key:{number}"),
    }
    .into_bytes()
}

fn key_of<'n>(txn: &Txn<'_>, database: u32, name: &'n [u8]) -> Key<'n> {
    let key = txn.key_in(database, name);
    if name.starts_with(b"same") { Key { slot: Slot(77), hash: 0xfeed, ..key } } else { key }
}

fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let fill = random.number() as u8;
    let mut bytes = vec![fill; len];
    if let Some(first) = bytes.first_mut() {
        *first = random.number() as u8;
    }
    bytes
}

/// Returns a meta row's value: a plain string, or anything else.
fn meta_value(random: &mut Random) -> Vec<u8> {
    let tag: &[u8] = if random.chance(60) { &super::PLAIN } else { &[7, 7] };
    let len = [0, 3, 20, 20, 20, 700][random.below(6) as usize];
    [tag, &bytes(random, len)].concat()
}

fn changed(before: Option<&Vec<u8>>, change: Change<'_>) -> Vec<u8> {
    change.apply(before.map_or(&[], |row| row))
}

/// Returns some splice of a row: mostly a small change in the middle, or else of any kind.
fn splice<'b>(random: &mut Random, len_before: usize, bytes: &'b [u8]) -> Splice<'b> {
    let offset = random.below(len_before as u64 + 1) as usize;
    let behind = (len_before - offset) as u64;
    let removed_max = if random.chance(80) { behind.min(4) } else { behind };
    let removed = random.below(removed_max + 1) as usize;
    let len_after = (len_before - removed + bytes.len()) as u32;
    Splice { offset: offset as u32, removed: removed as u32, bytes, len_after }
}

/// The model at a savepoint, and the savepoint.
struct Saved {
    savepoint: Savepoint,
    model: Model,
    database: u32,
}

/// Runs a random transaction, always the same one for a seed, on both. `large` allows objects that are written ahead.
/// Fails with the store's stop, or panics where the two differ.
pub fn transact(txn: &mut Txn<'_>, model: &mut Model, seed: u64, large: bool) -> Result<(), Stop> {
    let mut random = Random(seed);
    let mut saved: Option<Saved> = None;
    let ops_max = if random.chance(10) { 60 } else { 12 };
    let ops = 1 + random.below(ops_max);
    let mut database = random.below(DATABASES.into()) as u32;
    for _ in 0..ops {
        let content = &mut model.databases[database as usize];
        match random.below(100) {
            0..25 => {
                let (name, value) = (name(&mut random), meta_value(&mut random));
                let split = random.below(value.len() as u64 + 1) as usize;
                txn.put_meta(&key_of(txn, database, &name), &[&value[..split], &value[split..]])?;
                content.keys.insert(name, value);
            }
            25..31 => {
                let name = name(&mut random);
                txn.delete_meta(&key_of(txn, database, &name))?;
                content.keys.remove(&name);
            }
            31..34 => splice_meta(txn, content, database, &mut random)?,
            34..40 => patch_meta(txn, content, database, &mut random)?,
            40..44 => make_object(txn, model, database, &mut random, large)?,
            44..58 => change_object(txn, content, database, &mut random)?,
            58..60 => {
                if let Some(number) = pick(&content.objects, &mut random) {
                    let gone = content.objects.remove(&number).expect("just picked");
                    txn.delete_row(&row::owner_row(txn.space(database), gone.slot, gone.id))?;
                }
            }
            60..64 => {
                let counter = random.below(COUNTERS as u64) as usize;
                let delta = (random.below(5) as i64 - 2).max(-content.counts[counter]);
                txn.count(txn.space(database), ALL_COUNTERS[counter], delta);
                content.counts[counter] += delta;
            }
            64..70 => turn_deadline(txn, content, database, &mut random)?,
            70..73 => {
                saved = Some(Saved { savepoint: txn.savepoint(), model: model.clone(), database });
            }
            73..75 => {
                if let Some(back) = saved.take() {
                    txn.rollback(back.savepoint);
                    *model = back.model;
                    database = back.database;
                }
            }
            75 => {
                txn.flush_database(database)?;
                *content = Content::default();
            }
            76 => {
                let other = random.below(DATABASES.into()) as u32;
                txn.swap_databases(database, other)?;
                model.databases.swap(database as usize, other as usize);
            }
            77..80 => database = random.below(DATABASES.into()) as u32,
            _ => read(txn, model, database, &mut random)?,
        }
    }
    Ok(())
}

/// Splices the meta row of a key that is long enough.
fn splice_meta(txn: &mut Txn<'_>, content: &mut Content, database: u32, random: &mut Random) -> Result<(), Stop> {
    let (name, len) = (name(random), random.below(6) as usize);
    let (bytes, before) = (bytes(random, len), content.keys.get(&name));
    // A meta row has two bytes at least.
    let Some(len_before) = before.map(Vec::len).filter(|len| *len >= 8) else { return Ok(()) };
    let splice = splice(random, len_before, &bytes);
    let Splice { offset, removed, len_after, .. } = splice;
    if len_after < 2 {
        return Ok(());
    }
    txn.splice_row(&row::meta_row(&key_of(txn, database, &name)), offset, removed, &bytes)?;
    let row = changed(before, Change::Splice(splice));
    content.keys.insert(name, row);
    Ok(())
}

/// Patches the meta row of any key, a missing one included.
fn patch_meta(txn: &mut Txn<'_>, content: &mut Content, database: u32, random: &mut Random) -> Result<(), Stop> {
    let name = name(random);
    let len_after = 2 + random.below(60) as u32;
    let offset = random.below(len_after.into()) as u32;
    let len = random.below(u64::from(len_after - offset) + 1) as usize;
    let bytes = bytes(random, len);
    txn.patch_meta(&key_of(txn, database, &name), offset, &bytes, len_after)?;
    let patch = Change::Patch(Patch { offset, bytes: &bytes, len_after });
    let row = changed(content.keys.get(&name), patch);
    content.keys.insert(name, row);
    Ok(())
}

/// Sets a deadline, or deletes it where it is set.
fn turn_deadline(txn: &mut Txn<'_>, content: &mut Content, database: u32, random: &mut Random) -> Result<(), Stop> {
    let (name, deadline_ms) = (name(random), 1 + random.below(1000));
    let row = row::expire_row(&key_of(txn, database, &name), deadline_ms);
    if content.deadlines.remove(&(deadline_ms, name.clone())) {
        txn.delete_row(&row)?;
    } else {
        txn.put_row(&row, &[])?;
        content.deadlines.insert((deadline_ms, name));
    }
    Ok(())
}

fn pick(objects: &BTreeMap<u64, Object>, random: &mut Random) -> Option<u64> {
    let count = objects.len() as u64;
    (count > 0).then(|| *objects.keys().nth(random.below(count) as usize).expect("below their number"))
}

fn direction(random: &mut Random) -> Direction {
    if random.chance(50) { Direction::Forward } else { Direction::Backward }
}

/// Returns the rows of an object in a direction.
fn in_direction<'o>(
    rows: impl DoubleEndedIterator<Item = (&'o Vec<u8>, &'o Vec<u8>)> + 'o,
    direction: Direction,
) -> Box<dyn Iterator<Item = (&'o Vec<u8>, &'o Vec<u8>)> + 'o> {
    match direction {
        Direction::Forward => Box::new(rows),
        Direction::Backward => Box::new(rows.rev()),
    }
}

fn check_presence(txn: &mut Txn<'_>, space: row::Space, object: &Object, element: &Vec<u8>) -> Result<(), Stop> {
    let found = txn.row_presence(&row::data_row(space, object.slot, object.id, element))?;
    match (found, object.rows.get(element)) {
        (RowPresence::Absent, None) | (RowPresence::Present, Some(_)) => {}
        (RowPresence::Row(found), Some(value)) => assert_eq!(&found[..], &value[..]),
        (found, expected) => panic!("{found:?}, expected {expected:?}"),
    }
    Ok(())
}

/// Visits a range of an object, and breaks after `max` rows.
fn check_visit(
    txn: &mut Txn<'_>,
    space: row::Space,
    object: &Object,
    range: std::ops::Range<Vec<u8>>,
    direction: Direction,
    want: usize,
    max: usize,
) -> Result<(), Stop> {
    let row_of = |element: &[u8]| row::data_row(space, object.slot, object.id, element);
    let (from, until) = (row_of(&range.start), row_of(&range.end));
    let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    txn.visit(&from, &until, direction, want, |row, value| {
        found.push((row[row_of(b"").len()..].to_vec(), value.to_vec()));
        if found.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let expected = in_direction(object.rows.range(range), direction).take(max);
    let expected: Vec<_> = expected.map(|(element, value)| (element.clone(), value.clone())).collect();
    assert!(found == expected, "a visit of object {}, {direction:?}", object.id.0);
    Ok(())
}

fn element(random: &mut Random) -> Vec<u8> {
    (random.below(ELEMENTS) as u32).to_be_bytes().to_vec()
}

/// Names a key of the database in the record, as a command that changes an object does: the model's objects belong to
/// no key.
fn name_owner(txn: &mut Txn<'_>, database: u32) {
    let key = txn.key_in(database, b"owner");
    txn.touch_key(&key);
}

fn make_object(
    txn: &mut Txn<'_>,
    model: &mut Model,
    database: u32,
    random: &mut Random,
    large: bool,
) -> Result<(), Stop> {
    let (id, slot) = (txn.new_object()?, Slot(random.below(200) as u16 * 80));
    let space = txn.space(database);
    name_owner(txn, database);
    let mut object = Object { id, slot, rows: BTreeMap::new() };
    let row_bytes = if large && random.chance(30) { 120 << 10 } else { 1 + random.below(200) as usize };
    for _ in 0..random.below(20) {
        let (element, value) = (element(random), bytes(random, row_bytes));
        txn.put_row(&row::data_row(space, slot, id, &element), &[&value])?;
        object.rows.insert(element, value);
    }
    txn.put_row(&row::owner_row(space, slot, id), &[b"owner"])?;
    model.next_object += 1;
    model.databases[database as usize].objects.insert(model.next_object, object);
    Ok(())
}

fn change_object(txn: &mut Txn<'_>, content: &mut Content, database: u32, random: &mut Random) -> Result<(), Stop> {
    let Some(number) = pick(&content.objects, random) else { return Ok(()) };
    let object = content.objects.get_mut(&number).expect("just picked");
    name_owner(txn, database);
    for _ in 0..1 + random.below(4) {
        let element = element(random);
        let row = row::data_row(txn.space(database), object.slot, object.id, &element);
        match random.below(10) {
            0..4 => {
                let value = bytes(random, 100);
                txn.put_row(&row, &[&value])?;
                object.rows.insert(element, value);
            }
            4..6 => {
                txn.delete_row(&row)?;
                object.rows.remove(&element);
            }
            6..8 => {
                let len = random.below(40) as usize;
                let (bytes, before) = (bytes(random, len), object.rows.get(&element));
                let splice = splice(random, before.map_or(0, Vec::len), &bytes);
                txn.splice_row(&row, splice.offset, splice.removed, &bytes)?;
                let after = changed(before, Change::Splice(splice));
                object.rows.insert(element, after);
            }
            _ => {
                let before = object.rows.get(&element);
                let len = before.map_or(0, Vec::len);
                let len_after = if len > 0 && random.chance(60) { len } else { 1 + random.below(300) as usize };
                let len = 1 + random.below(len_after.min(50) as u64) as usize;
                let bytes = bytes(random, len);
                let offset = random.below((len_after - bytes.len()) as u64 + 1) as u32;
                let len_after = len_after as u32;
                txn.patch_row(&row, offset, &bytes, len_after)?;
                let after = changed(before, Change::Patch(Patch { offset, bytes: &bytes, len_after }));
                object.rows.insert(element, after);
            }
        }
    }
    Ok(())
}

/// Reads something of a database, and compares it with the model.
pub fn read(txn: &mut Txn<'_>, model: &Model, database: u32, random: &mut Random) -> Result<(), Stop> {
    let content = &model.databases[database as usize];
    let space = txn.space(database);
    match random.below(8) {
        0 => {
            let name = name(random);
            let found = txn.meta(&key_of(txn, database, &name))?;
            assert_eq!(found.as_deref(), content.keys.get(&name).map(|value| &value[..]), "{}", name.escape_ascii());
        }
        1 => {
            let name = name(random);
            let expected = match content.keys.get(&name) {
                None => Presence::Absent,
                Some(value) if value.starts_with(&super::PLAIN) => Presence::Plain,
                Some(value) => Presence::Row(value[..].into()),
            };
            assert_eq!(txn.presence(&key_of(txn, database, &name))?, expected, "{}", name.escape_ascii());
        }
        2 => {
            let which = random.below(COUNTERS as u64) as usize;
            assert_eq!(txn.counter(space, ALL_COUNTERS[which]), content.counts[which]);
        }
        3 => {
            let Some(number) = pick(&content.objects, random) else { return Ok(()) };
            let (object, element) = (&content.objects[&number], element(random));
            let found = txn.row(&row::data_row(space, object.slot, object.id, &element))?;
            assert_eq!(found.as_deref(), object.rows.get(&element).map(|value| &value[..]));
        }
        4 => {
            let Some(number) = pick(&content.objects, random) else { return Ok(()) };
            let object = &content.objects[&number];
            let (a, b) = (element(random), element(random));
            let (from, until) = (a.clone().min(b.clone()), a.max(b));
            let max = 1 + random.below(30) as usize;
            let row_of = |element: &[u8]| row::data_row(space, object.slot, object.id, element);
            let found = txn.scan(&row_of(&from), &row_of(&until), max)?;
            let expected: Vec<(Vec<u8>, Vec<u8>)> = object
                .rows
                .range(from..until)
                .take(max)
                .map(|(element, value)| (row_of(element).to_vec(), value.clone()))
                .collect();
            let found: Vec<(Vec<u8>, Vec<u8>)> = found.into_iter().map(|(row, value)| (row, value.to_vec())).collect();
            assert!(found == expected, "a scan of object {number}");
        }
        5 => {
            let Some(number) = pick(&content.objects, random) else { return Ok(()) };
            check_presence(txn, space, &content.objects[&number], &element(random))?;
        }
        6 => {
            let Some(number) = pick(&content.objects, random) else { return Ok(()) };
            let object = &content.objects[&number];
            let (a, b) = (element(random), element(random));
            let max = 1 + random.below(30) as usize;
            let want = 1 + random.below(10) as usize;
            check_visit(txn, space, object, a.clone().min(b.clone())..a.max(b), direction(random), want, max)?;
        }
        _ => {
            let from =
                ScanPosition { slot: Slot(random.below(row::SLOTS as u64) as u16), hash: random.number() as u32 };
            let from = [ScanPosition::START, from][random.below(2) as usize];
            let max = 1 + random.below(40) as usize;
            check_keys(txn, content, database, from, max)?;
        }
    }
    Ok(())
}

/// Scans keys once from a position: the result is exactly the keys before the position that it returns.
fn check_keys(
    txn: &mut Txn<'_>,
    content: &Content,
    database: u32,
    from: ScanPosition,
    max: usize,
) -> Result<Option<ScanPosition>, Stop> {
    let (found, next) = txn.scan_keys(txn.space(database), from, max)?;
    let mut expected: Vec<(ScanPosition, &Vec<u8>, &Vec<u8>)> = content
        .keys
        .iter()
        .map(|(name, value)| {
            let key = key_of(txn, database, name);
            (ScanPosition { slot: key.slot, hash: key.hash }, name, value)
        })
        .filter(|(at, ..)| *at >= from && next.is_none_or(|next| *at < next))
        .collect();
    expected.sort();
    let found: Vec<(&Vec<u8>, &[u8])> = found.iter().map(|(name, value)| (name, &value[..])).collect();
    let expected: Vec<(&Vec<u8>, &[u8])> = expected.into_iter().map(|(_, name, value)| (name, &value[..])).collect();
    assert_eq!(found, expected, "keys from {from:?} on, {max} at a time, until {next:?}");
    Ok(next)
}

/// Compares everything that a transaction can read.
pub fn check(txn: &mut Txn<'_>, model: &Model, step: usize) -> Result<(), Stop> {
    for (database, content) in (0..).zip(&model.databases) {
        let space = txn.space(database);
        for (which, count) in ALL_COUNTERS.into_iter().zip(content.counts) {
            assert_eq!(txn.counter(space, which), count, "{which:?} of database {database}");
        }
        let mut at = Some(ScanPosition::START);
        while let Some(from) = at {
            at = check_keys(txn, content, database, from, step)?;
        }
        for object in content.objects.values() {
            let (from, until) = row::object_range(Family::Data, space, object.slot, object.id);
            let found = txn.scan(&from, &until, usize::MAX)?;
            let found: Vec<(&[u8], &[u8])> =
                found.iter().map(|(row, value)| (&row[from.len()..], &value[..])).collect();
            let expected: Vec<(&[u8], &[u8])> = object.rows.iter().map(|(row, value)| (&row[..], &value[..])).collect();
            assert!(found == expected, "rows of object {}", object.id.0);
            for number in 0..ELEMENTS {
                check_presence(txn, space, object, &(number as u32).to_be_bytes().to_vec())?;
            }
            let whole = Vec::new()..vec![u8::MAX; 5];
            check_visit(txn, space, object, whole, Direction::Backward, 1 + step % 7, usize::MAX)?;
            let owner = txn.row(&row::owner_row(space, object.slot, object.id))?;
            assert_eq!(owner.as_deref(), Some(&b"owner"[..]), "an object has its owner");
        }
        let (from, until) = row::family_range(Family::Expire, space);
        let found = txn.scan(&from, &until, usize::MAX)?;
        let deadline =
            |row: &[u8]| row::parse_expire_row(row).map(|(deadline_ms, key)| (deadline_ms, key.name.to_vec()));
        let found: BTreeSet<(u64, Vec<u8>)> = found.iter().filter_map(|(row, _)| deadline(row)).collect();
        assert_eq!(found, content.deadlines, "deadlines of database {database}");
    }
    Ok(())
}

/// A view, and the rows that it has to give by the model.
type Opened = (View, Vec<Vec<u8>>);

impl Model {
    /// Returns DBSIZE by the model.
    pub fn key_count(&self, database: u32) -> i64 {
        self.databases[database as usize].counts[Counter::Keys as usize]
    }

    /// Returns the deadlines up to `now_ms` of a database.
    pub fn due(&self, database: u32, now_ms: u64) -> BTreeSet<(u64, Vec<u8>)> {
        self.databases[database as usize]
            .deadlines
            .iter()
            .filter(|(deadline_ms, _)| *deadline_ms <= now_ms)
            .cloned()
            .collect()
    }

    /// Returns every data row that stands, by full row key.
    pub fn data_rows(&self, space_of: impl Fn(u32) -> row::Space) -> BTreeSet<RowKey> {
        let mut rows = BTreeSet::new();
        for (database, content) in (0..).zip(&self.databases) {
            for object in content.objects.values() {
                let row_of = |element: &Vec<u8>| row::data_row(space_of(database), object.slot, object.id, element);
                rows.extend(object.rows.keys().map(row_of));
            }
        }
        rows
    }

    /// Opens a view of some object as it is now, and returns it with its rows by the model, if there is an object.
    pub fn open_view(&self, txn: &mut Txn<'_>, random: &mut Random) -> Result<Option<Opened>, Stop> {
        let database = random.below(DATABASES.into()) as u32;
        let content = &self.databases[database as usize];
        let Some(number) = pick(&content.objects, random) else { return Ok(None) };
        let object = &content.objects[&number];
        let (from, until) = row::object_range(Family::Data, txn.space(database), object.slot, object.id);
        let direction = direction(random);
        let expected = in_direction(object.rows.iter(), direction).map(|(_, value)| value.clone()).collect();
        Ok(Some((txn.view(&from, &until, direction)?, expected)))
    }
}
