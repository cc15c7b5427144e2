//! Random operations on a few streams against ordered maps: entries, heads and ranges agree after each, with trims of
//! every size, with consumer groups' rows beside them, with flushes and reopens in between.

mod common;

use common::{Db, Random, on_each_base};
use haypile_store::Direction;
use haypile_types::stream::{Bound, Fields, Group, Nodes, Policy, Stream, StreamId, Trim};
use haypile_types::{key, value};
use std::collections::{BTreeMap, HashMap};
use std::ops::{ControlFlow, RangeInclusive};

const NAMES: [&[u8]; 3] = [b"a", b"{a}b", b""];

/// The expected state of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    entries: BTreeMap<StreamId, Vec<Vec<u8>>>,
    last: StreamId,
    max_deleted: StreamId,
    added: u64,
}

type Models = HashMap<&'static [u8], Model>;

const ALL: RangeInclusive<StreamId> = StreamId::MIN..=StreamId::MAX;

fn some_fields(random: &mut Random) -> Vec<Vec<u8>> {
    let pairs = if random.below(8) == 0 { random.below(6) + 1 } else { 1 };
    let string = |random: &mut Random| match random.below(20) {
        0 => vec![b'l'; random.pick(&[0, 127, 128, 1000, 20_000])],
        _ => format!("s{}", random.below(50)).into_bytes(),
    };
    (0..2 * pairs).map(|_| string(random)).collect()
}

fn next_id(random: &mut Random, last: StreamId) -> StreamId {
    match random.below(4) {
        0 => StreamId::new(last.ms + 1 + random.below(1000), random.below(3)),
        1 => StreamId::new(last.ms, last.seq + 1 + random.below(3)),
        _ => last.next().expect("no id is that high"),
    }
}

/// Returns an id that exists, more often than not.
fn some_id(random: &mut Random, model: &Model) -> StreamId {
    let at = random.below(model.entries.len() as u64 + 1) as usize;
    let id = model.entries.keys().nth(at).copied().unwrap_or(model.last);
    match random.below(6) {
        0 => id.next().unwrap_or(id),
        1 => id.previous().unwrap_or(id),
        _ => id,
    }
}

fn some_range(random: &mut Random, model: &Model) -> RangeInclusive<StreamId> {
    match random.below(4) {
        0 => ALL,
        1 => some_id(random, model)..=StreamId::MAX,
        2 => StreamId::MIN..=some_id(random, model),
        _ => some_id(random, model)..=some_id(random, model),
    }
}

/// Trims the model; returns how many entries were removed.
fn trim(model: &mut Model, trim: Trim) -> u64 {
    let count = model.entries.len() as u64;
    let removable = match trim.bound {
        Bound::Length(length) => count.saturating_sub(length),
        Bound::Id(id) => model.entries.range(..id).count() as u64,
    };
    let removed = match trim.nodes {
        None => removable,
        Some(Nodes { entries, limit }) => {
            // Node by node, as Redis does.
            let (mut removed, mut gone) = (0, model.added - count);
            while removed < count {
                let node = if entries == 0 { count } else { (entries - gone % entries).min(count - removed) };
                if removed + node > removable || limit > 0 && removed + node > limit {
                    break;
                }
                removed += node;
                gone += node;
            }
            removed
        }
    };
    for _ in 0..removed {
        model.entries.pop_first();
    }
    removed
}

fn step(db: &mut Db, models: &mut Models, random: &mut Random, crowd: u64) {
    let (name, other) = (random.pick(&NAMES), random.pick(&NAMES));
    match random.below(20) {
        0..=8 => append(db, models.entry(name).or_default(), name, random, crowd),
        9..=11 => {
            let Some(model) = models.get_mut(name) else { return };
            let ids: Vec<StreamId> = (0..random.below(4) + 1).map(|_| some_id(random, model)).collect();
            let removed = db.run(|txn| {
                let key = txn.key(name);
                let mut stream = Stream::edit(txn, &key).expect("reads").expect("is there");
                let removed = stream.remove(txn, ids.iter().copied()).expect("writes");
                stream.save(txn, &key).expect("writes");
                removed
            });
            let gone: Vec<StreamId> = ids.into_iter().filter(|id| model.entries.remove(id).is_some()).collect();
            assert_eq!(removed, gone.len() as u64);
            model.max_deleted = gone.into_iter().fold(model.max_deleted, StreamId::max);
        }
        12..=15 => {
            let Some(model) = models.get_mut(name) else { return };
            trim_both(db, model, name, random);
        }
        16 => {
            let Some(model) = models.get(name).cloned() else { return };
            if name == other {
                return;
            }
            db.run(|txn| {
                let (from, to) = (txn.key(name), txn.key(other));
                let entry = key::lookup(txn, &from).expect("reads").expect("is there");
                let before = key::lookup_write(txn, &to).expect("reads");
                value::copy(txn, &from, &entry, &to, before.as_ref().map(|entry| &entry.header)).expect("writes");
            });
            models.insert(other, model);
        }
        17 => {
            db.run(|txn| key::delete(txn, &txn.key(name)).expect("writes"));
            models.remove(name);
        }
        _ => {
            let Some(model) = models.get(name) else { return };
            let (range, limit) = (some_range(random, model), random.below(30) as usize + 1);
            let direction = random.pick(&[Direction::Forward, Direction::Backward]);
            let seen = read(db, name, range.clone(), direction, limit);
            let within = if range.is_empty() { Vec::new() } else { model.entries.range(range).collect::<Vec<_>>() };
            let mut within: Vec<_> = within.into_iter().map(|(id, fields)| (*id, fields.clone())).collect();
            if direction == Direction::Backward {
                within.reverse();
            }
            within.truncate(limit);
            assert_eq!(seen, within);
        }
    }
}

/// Adds one entry, or up to `crowd` of them.
fn append(db: &mut Db, model: &mut Model, name: &[u8], random: &mut Random, crowd: u64) {
    let count = if random.below(4) == 0 { random.below(crowd) + 1 } else { 1 };
    let mut added = Vec::new();
    for _ in 0..count {
        model.last = next_id(random, model.last);
        added.push((model.last, some_fields(random)));
    }
    db.run(|txn| {
        let key = txn.key(name);
        let stream = Stream::edit(txn, &key).expect("reads");
        let mut stream = stream.unwrap_or_else(|| Stream::create(txn, &key).expect("writes"));
        for (id, fields) in &added {
            stream.append(txn, &key, *id, fields.iter().map(|field| &field[..])).expect("writes");
        }
        stream.save(txn, &key).expect("writes");
    });
    model.added += count;
    model.entries.extend(added);
}

/// Trims the stream and its model alike.
fn trim_both(db: &mut Db, model: &mut Model, name: &[u8], random: &mut Random) {
    let bound = match random.below(2) {
        0 => Bound::Length(random.below(model.entries.len() as u64 + 3)),
        _ => Bound::Id(some_id(random, model)),
    };
    let nodes = Nodes { entries: random.pick(&[0, 1, 3, 10, 100]), limit: random.pick(&[0, 0, 1, 20, 150]) };
    let asked = Trim { bound, nodes: (random.below(2) == 0).then_some(nodes), policy: Policy::KeepRef };
    let removed = db.run(|txn| {
        let key = txn.key(name);
        let mut stream = Stream::edit(txn, &key).expect("reads").expect("is there");
        let removed = stream.trim(txn, &key, asked).expect("writes");
        stream.save(txn, &key).expect("writes");
        removed
    });
    assert_eq!(removed, trim(model, asked), "{asked:?}");
}

fn owned(fields: Fields<'_>) -> Vec<Vec<u8>> {
    fields.map(<[u8]>::to_vec).collect()
}

fn read(
    db: &mut Db,
    name: &[u8],
    range: RangeInclusive<StreamId>,
    direction: Direction,
    limit: usize,
) -> Vec<(StreamId, Vec<Vec<u8>>)> {
    db.run(|txn| {
        let key = txn.key(name);
        let stream = Stream::lookup(txn, &key).expect("reads").expect("is there");
        let mut seen = Vec::new();
        stream
            .visit(txn, range.clone(), direction, limit, |id, fields| {
                seen.push((id, owned(fields)));
                if seen.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .expect("reads");
        seen
    })
}

fn check_all(db: &mut Db, models: &Models) {
    for name in NAMES {
        let Some(model) = models.get(name) else {
            assert!(db.run(|txn| key::peek(txn, &txn.key(name)).expect("reads").is_none()));
            continue;
        };
        let seen = read(db, name, ALL, Direction::Forward, usize::MAX);
        assert!(seen.iter().map(|(id, fields)| (id, fields)).eq(&model.entries), "{name:?}");
        let head = db.run(|txn| {
            let key = txn.key(name);
            let stream = Stream::lookup(txn, &key).expect("reads").expect("is there");
            assert_eq!(stream.last_entry(txn).expect("reads"), model.entries.keys().next_back().copied());
            stream.head
        });
        let first = model.entries.keys().next().copied().unwrap_or_default();
        assert_eq!(
            (head.count, head.first, head.last, head.max_deleted, head.entries_added),
            (model.entries.len() as u64, first, model.last, model.max_deleted, model.added),
        );
    }
    db.check();
}

#[test]
fn streams_do_what_ordered_maps_do() {
    for ((seed, crowd, steps), mut db) in on_each_base([(1, 5, 1500), (2, 60, 900), (3, 1500, 150), (4, 200, 500)]) {
        let (mut models, mut random) = (Models::new(), Random(seed));
        for at in 0..steps {
            step(&mut db, &mut models, &mut random, crowd);
            if random.below(25) == 0 {
                db.store.flush_now().expect("flushes to memory");
            }
            if random.below(120) == 0 {
                db.reopen();
            }
            if at % 20 == 0 {
                check_all(&mut db, &models);
            }
        }
        check_all(&mut db, &models);
    }
}

#[test]
fn a_trim_of_more_than_a_transaction_may_change_copies_what_stays() {
    let mut db = Db::new();
    db.store.set_txn_bytes_max(1 << 20);
    const ENTRIES: u64 = 40_000;
    for part in 0..40 {
        db.run(|txn| {
            let key = txn.key(b"s");
            let stream = Stream::edit(txn, &key).expect("reads");
            let mut stream = stream.unwrap_or_else(|| Stream::create(txn, &key).expect("writes"));
            for number in 0..ENTRIES / 40 {
                let id = StreamId::new(part * (ENTRIES / 40) + number + 1, 0);
                stream.append(txn, &key, id, [&b"f"[..], b"v"].into_iter()).expect("writes");
            }
            stream.save(txn, &key).expect("writes");
            if part == 0 {
                // The group is not to be lost.
                Group::create(txn, &key, &stream, b"group", StreamId::new(7, 7), None).expect("writes");
            }
        });
    }
    for (bound, left) in [(Bound::Length(30_000), 30_000), (Bound::Id(StreamId::new(ENTRIES - 1000, 1)), 1000)] {
        let removed = db.run(|txn| {
            let key = txn.key(b"s");
            let mut stream = Stream::edit(txn, &key).expect("reads").expect("is there");
            let removed = stream.trim(txn, &key, Trim { bound, nodes: None, policy: Policy::KeepRef }).expect("fits");
            stream.save(txn, &key).expect("writes");
            assert_eq!(stream.len(), left);
            let group = Group::find(txn, &stream, b"group").expect("reads").expect("is there");
            assert_eq!(group.state.last, StreamId::new(7, 7));
            removed
        });
        let seen = read(&mut db, b"s", ALL, Direction::Forward, usize::MAX);
        assert_eq!((seen.len() as u64, seen[0].0.ms), (left, ENTRIES - left + 1), "{removed} are gone");
        db.check();
    }
}
