//! Consumer groups against a model of maps, with flushes and reopens in between; and the demands of large ones.

mod common;

use common::{Db, Random, on_each_base};
use haypile_log::{Effect, Index, Next};
use haypile_store::{Call, Direction, Mode, Stop, Txn, TxnBuffers, row};
use haypile_types::Error;
use haypile_types::stream::{Bound, Claimable, Delivery, Edit, Group, Outcome, Policy, Stream, StreamId, Trim};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

const KEY: &[u8] = b"stream";
const GROUPS: [&[u8]; 3] = [b"g", b"", b"another group"];
const CONSUMERS: [&[u8]; 4] = [b"alice", b"bob", b"", b"a consumer whose name does not fit the stack of anybody"];

/// The consumer of a pending entry, if it has one, when it was delivered last, and how often.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    consumer: Option<Vec<u8>>,
    delivered_ms: u64,
    deliveries: u64,
}

#[derive(Clone, Debug, Default)]
struct Consumer {
    seen_ms: u64,
    active_ms: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Model {
    entries: BTreeSet<StreamId>,
    last: StreamId,
    groups: BTreeMap<&'static [u8], ModelGroup>,
}

#[derive(Clone, Debug, Default)]
struct ModelGroup {
    last: StreamId,
    consumers: BTreeMap<Vec<u8>, Consumer>,
    pending: BTreeMap<StreamId, Held>,
    /// Entries that were handed back, in order.
    zone: Vec<StreamId>,
}

impl ModelGroup {
    fn release(&mut self, id: StreamId) -> Option<Held> {
        self.zone.retain(|other| *other != id);
        self.pending.remove(&id)
    }

    fn give(&mut self, id: StreamId, consumer: &[u8], delivered_ms: u64, deliveries: u64) {
        self.release(id);
        self.pending.insert(id, Held { consumer: Some(consumer.to_vec()), delivered_ms, deliveries });
    }

    fn hand_back(&mut self, id: StreamId, deliveries: u64) {
        self.release(id);
        self.pending.insert(id, Held { consumer: None, delivered_ms: 0, deliveries });
        self.zone.push(id);
    }

    fn see(&mut self, name: &[u8], now_ms: u64) -> &mut Consumer {
        let consumer = self.consumers.entry(name.to_vec()).or_default();
        consumer.seen_ms = now_ms;
        consumer
    }
}

fn stream(txn: &mut Txn<'_>) -> Stream {
    Stream::edit(txn, &txn.key(KEY)).expect("reads").expect("is there")
}

fn create(txn: &mut Txn<'_>, stream: &Stream, name: &[u8], last: StreamId, read: Option<u64>) -> Result<bool, Error> {
    let key = txn.key(KEY);
    Group::create(txn, &key, stream, name, last, read)
}

fn save(txn: &mut Txn<'_>, edit: Edit<'_>) -> Result<(), Error> {
    let key = txn.key(KEY);
    edit.save(txn, &key)
}

fn destroy(txn: &mut Txn<'_>, group: Group<'_>) -> Result<(), Error> {
    let key = txn.key(KEY);
    group.destroy(txn, &key)
}

fn edit<'n>(txn: &mut Txn<'_>, name: &'n [u8]) -> Option<(Stream, Edit<'n>)> {
    let stream = stream(txn);
    let group = Group::find(txn, &stream, name).expect("reads")?;
    Some((stream, Edit::of(group)))
}

fn add(db: &mut Db, model: &mut Model, count: u64) {
    db.run(|txn| {
        let (key, mut stream) = (txn.key(KEY), stream(txn));
        for _ in 0..count {
            let id = model.last.next().expect("there are ids left");
            stream.append(txn, &key, id, [&b"f"[..], b"v"].into_iter()).expect("writes");
            model.entries.insert(id);
            model.last = id;
        }
        stream.save(txn, &key).expect("writes");
    });
}

fn some_id(model: &Model, random: &mut Random) -> StreamId {
    StreamId::new(0, random.below(model.last.seq + 2))
}

fn step(db: &mut Db, model: &mut Model, random: &mut Random) {
    let (name, consumer, now_ms) = (random.pick(&GROUPS), random.pick(&CONSUMERS), db.now_ms);
    let id = some_id(model, random);
    match random.below(29) {
        0..=2 => add(db, model, 1 + random.below(6)),
        3 => {
            let removed = db.run(|txn| {
                let (key, mut stream) = (txn.key(KEY), stream(txn));
                let removed = stream.remove(txn, [id].into_iter()).expect("removes");
                stream.save(txn, &key).expect("writes");
                removed
            });
            assert_eq!(removed, u64::from(model.entries.remove(&id)));
        }
        4 => {
            let is_new = db.run(|txn| {
                let stream = stream(txn);
                create(txn, &stream, name, id, None).expect("writes")
            });
            assert_eq!(is_new, !model.groups.contains_key(name));
            model.groups.entry(name).or_insert_with(|| ModelGroup { last: id, ..ModelGroup::default() });
        }
        5 if random.below(4) == 0 => {
            let was_there = db.run(|txn| {
                let Some((_, edit)) = edit(txn, name) else { return false };
                destroy(txn, edit.group).expect("removes");
                true
            });
            assert_eq!(was_there, model.groups.remove(name).is_some());
        }
        5..=6 => {
            let left = db.run(|txn| {
                let (_, edit) = edit(txn, name)?;
                let mut group = edit.group;
                let consumer = group.consumer(txn, consumer).expect("reads")?;
                group.remove_consumer(txn, &consumer).expect("removes");
                {
                    let key = txn.key(KEY);
                    group.save(txn, &key)
                }
                .expect("writes");
                Some(consumer.state.pending)
            });
            let expected = model.groups.get_mut(name).and_then(|group| {
                group.consumers.remove(consumer)?;
                let before = group.pending.len();
                group.pending.retain(|_, held| held.consumer.as_deref() != Some(consumer));
                Some((before - group.pending.len()) as u64)
            });
            assert_eq!(left, expected);
        }
        7..=11 => deliver(db, model, random, name, consumer),
        12..=15 => {
            let ids: Vec<StreamId> = (0..1 + random.below(4)).map(|_| some_id(model, random)).collect();
            let acknowledged = db.run(|txn| {
                let Some((_, mut edit)) = edit(txn, name) else { return 0 };
                let mut acknowledged = 0;
                for id in &ids {
                    if let Some(held) = edit.pending(txn, *id).expect("reads") {
                        edit.release(txn, *id, &held).expect("removes");
                        acknowledged += 1;
                    }
                }
                save(txn, edit).expect("writes");
                acknowledged
            });
            let expected = model
                .groups
                .get_mut(name)
                .map_or(0, |group| ids.iter().filter(|id| group.release(**id).is_some()).count());
            assert_eq!(acknowledged, expected);
        }
        16 => {
            db.run(|txn| {
                let Some((_, mut edit)) = edit(txn, name) else { return };
                edit.group.state.last = id;
                save(txn, edit).expect("writes");
            });
            if let Some(group) = model.groups.get_mut(name) {
                group.last = id;
            }
        }
        20..=22 => remove(db, model, random, name),
        23 => trim(db, model, random),
        24 | 25 => {
            let deliveries = random.below(9);
            db.run(|txn| {
                let Some((_, mut edit)) = edit(txn, name) else { return };
                let held = edit.pending(txn, id).expect("reads");
                edit.hand_back(txn, id, held.as_ref(), deliveries).expect("writes");
                save(txn, edit).expect("writes");
            });
            if let Some(group) = model.groups.get_mut(name) {
                group.hand_back(id, deliveries);
            }
        }
        26..=28 => claim(db, model, random, name, consumer),
        _ => {
            let deliveries = random.below(9);
            db.run(|txn| {
                let Some((_, mut edit)) = edit(txn, name) else { return };
                let (place, _) = edit.see(txn, consumer).expect("reads");
                let held = edit.pending(txn, id).expect("reads");
                edit.give(txn, id, held.as_ref(), place, now_ms - 5, deliveries).expect("writes");
                edit.on_active(txn, place);
                save(txn, edit).expect("writes");
            });
            if let Some(group) = model.groups.get_mut(name) {
                group.see(consumer, now_ms).active_ms = Some(now_ms);
                group.give(id, consumer, now_ms - 5, deliveries);
            }
        }
    }
}

impl Model {
    fn refers_to(&self, id: StreamId) -> bool {
        self.groups.values().any(|group| id > group.last || group.pending.contains_key(&id))
    }

    fn release(&mut self, id: StreamId) {
        self.groups.values_mut().for_each(|group| _ = group.release(id));
    }
}

const POLICIES: [Policy; 3] = [Policy::KeepRef, Policy::DelRef, Policy::Acked];

/// Removes entries, or those that are pending for a group, as XDELEX and XACKDEL do.
fn remove(db: &mut Db, model: &mut Model, random: &mut Random, name: &'static [u8]) {
    let ids: Vec<StreamId> = (0..1 + random.below(6)).map(|_| some_id(model, random)).collect();
    let (policy, acknowledges) = (random.pick(&POLICIES), random.below(2) == 0);
    let outcomes = db.run(|txn| {
        let (key, mut stream) = (txn.key(KEY), stream(txn));
        let outcomes = match acknowledges {
            false => stream.remove_by(txn, &key, &ids, policy).expect("removes"),
            true => match Group::find(txn, &stream, name).expect("reads") {
                Some(group) => stream.acknowledge_and_remove(txn, &key, &group, &ids, policy).expect("removes"),
                None => vec![Outcome::Missing; ids.len()],
            },
        };
        stream.save(txn, &key).expect("writes");
        outcomes
    });
    for (id, outcome) in ids.iter().zip(outcomes) {
        let was_pending = match acknowledges {
            true => model.groups.get_mut(name).is_some_and(|group| group.release(*id).is_some()),
            false => false,
        };
        let expected = if acknowledges && !was_pending {
            Outcome::Missing
        } else if policy == Policy::Acked && model.refers_to(*id) {
            Outcome::Kept
        } else {
            if policy == Policy::DelRef {
                model.release(*id);
            }
            if model.entries.remove(id) || was_pending { Outcome::Removed } else { Outcome::Missing }
        };
        assert_eq!(outcome, expected, "{id}: {policy:?}, acknowledges: {acknowledges}");
    }
}

/// Trims the stream to a length or up to an id.
fn trim(db: &mut Db, model: &mut Model, random: &mut Random) {
    let policy = random.pick(&POLICIES);
    let bound = match random.below(2) {
        0 => Bound::Length(random.below(model.entries.len() as u64 + 2)),
        _ => Bound::Id(some_id(model, random)),
    };
    let removed = db.run(|txn| {
        let (key, mut stream) = (txn.key(KEY), stream(txn));
        let removed = stream.trim(txn, &key, Trim { bound, nodes: None, policy }).expect("trims");
        stream.save(txn, &key).expect("writes");
        let all = StreamId::MIN..=StreamId::MAX;
        assert_eq!(stream.head.first, stream.edge(txn, all, Direction::Forward).expect("reads").unwrap_or_default());
        removed
    });
    let before = model.entries.len();
    for id in model.entries.clone() {
        let is_old = match bound {
            Bound::Length(length) => model.entries.len() as u64 > length,
            Bound::Id(first) => id < first,
        };
        if !is_old || policy == Policy::Acked && model.refers_to(id) {
            continue;
        }
        model.entries.remove(&id);
        if policy == Policy::DelRef {
            model.release(id);
        }
    }
    assert_eq!(removed, (before - model.entries.len()) as u64, "{bound:?}, {policy:?}");
}

/// New entries, or those that are new again because the group was set back.
fn deliver(db: &mut Db, model: &mut Model, random: &mut Random, name: &'static [u8], consumer: &[u8]) {
    let how = Delivery { limit: random.pick(&[1, 2, 5, u64::MAX]), acknowledged: random.below(4) == 0 };
    let now_ms = db.now_ms;
    let mut delivered = Vec::new();
    let count = db.run(|txn| {
        let Some((stream, mut edit)) = edit(txn, name) else { return 0 };
        let (place, _) = edit.see(txn, consumer).expect("reads");
        let each = |id, _: haypile_types::stream::Fields<'_>| {
            delivered.push(id);
            Some(0)
        };
        let count = edit.deliver(txn, &stream, place, how, each).expect("delivers");
        save(txn, edit).expect("writes");
        count
    });
    assert_eq!(count, delivered.len() as u64);
    let Some(group) = model.groups.get_mut(name) else { return };
    let limit = usize::try_from(how.limit).unwrap_or(usize::MAX);
    let expected: Vec<StreamId> = model.entries.iter().copied().filter(|id| *id > group.last).take(limit).collect();
    assert_eq!(delivered, expected);
    group.see(consumer, now_ms);
    let Some(last) = expected.last() else { return };
    group.last = *last;
    if !how.acknowledged {
        group.see(consumer, now_ms).active_ms = Some(now_ms);
        expected.into_iter().for_each(|id| group.give(id, consumer, now_ms, 1));
    }
}

/// Entries that were handed back, then those that have been idle, the oldest first.
fn claim(db: &mut Db, model: &mut Model, random: &mut Random, name: &'static [u8], consumer: &[u8]) {
    let what = Claimable { idle_min_ms: random.below(40), limit: random.pick(&[1, 3, u64::MAX]) };
    let now_ms = db.now_ms;
    let mut claimed = Vec::new();
    db.run(|txn| {
        let Some((stream, mut edit)) = edit(txn, name) else { return };
        let (place, _) = edit.see(txn, consumer).expect("reads");
        let each = |id, _: haypile_types::stream::Fields<'_>, held: &haypile_types::stream::Held| {
            claimed.push((id, held.deliveries));
            Some(0)
        };
        edit.claim(txn, &stream, place, what, each).expect("claims");
        save(txn, edit).expect("writes");
    });
    let Some(group) = model.groups.get_mut(name) else { return };
    let mut idle: Vec<(u64, StreamId)> = group
        .pending
        .iter()
        .filter(|(_, held)| held.consumer.is_some() && now_ms - held.delivered_ms >= what.idle_min_ms)
        .map(|(id, held)| (held.delivered_ms, *id))
        .collect();
    idle.sort_unstable();
    let all: Vec<StreamId> = group.zone.iter().copied().chain(idle.into_iter().map(|(_, id)| id)).collect();
    let limit = usize::try_from(what.limit).unwrap_or(usize::MAX);
    let expected: Vec<(StreamId, u64)> = all
        .into_iter()
        .filter(|id| model.entries.contains(id))
        .take(limit)
        .map(|id| (id, group.pending[&id].deliveries))
        .collect();
    assert_eq!(claimed, expected, "{what:?}");
    group.see(consumer, now_ms);
    if !expected.is_empty() {
        group.see(consumer, now_ms).active_ms = Some(now_ms);
    }
    expected.into_iter().for_each(|(id, deliveries)| group.give(id, consumer, now_ms, deliveries + 1));
}

/// Compares the groups of the store with the model.
fn compare(db: &mut Db, model: &Model) {
    db.run(|txn| {
        let stream = stream(txn);
        assert_eq!(stream.groups(txn).expect("reads"), model.groups.len() as u32);
        let mut names = Vec::new();
        stream.visit_groups(txn, |name, state| names.push((name.to_vec(), state))).expect("reads");
        assert_eq!(
            names.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(),
            model.groups.keys().copied().collect::<Vec<_>>()
        );
        for (name, state) in &names {
            let (group, expected) = (stream.group(name, *state), &model.groups[&name[..]]);
            assert_eq!(state.last, expected.last);
            let counts = (expected.pending.len() as u64, expected.consumers.len() as u32);
            assert_eq!((state.pending, state.consumers), counts);
            let mut pending = BTreeMap::new();
            let mut show = |id, held: haypile_types::stream::Pending<'_>| {
                let consumer = held.holder.consumer().map(<[u8]>::to_vec);
                pending.insert(id, Held { consumer, delivered_ms: held.delivered_ms, deliveries: held.deliveries });
                ControlFlow::Continue(())
            };
            group
                .visit_pending(txn, StreamId::MIN..=StreamId::MAX, Direction::Forward, usize::MAX, &mut show)
                .expect("reads");
            assert_eq!(pending, expected.pending);
            let mut zone = Vec::new();
            let each = |_, id| {
                zone.push(id);
                ControlFlow::Continue(())
            };
            group.visit_zone(txn, 0, usize::MAX, each).expect("reads");
            assert_eq!((state.nacked, zone), (expected.zone.len() as u64, expected.zone.clone()));
            let edges = expected.pending.keys().next().copied().zip(expected.pending.keys().last().copied());
            assert_eq!(group.pending_edges(txn).expect("reads"), edges);
            let mut consumers = Vec::new();
            group.visit_consumers(txn, |name, state| consumers.push((name.to_vec(), state))).expect("reads");
            assert_eq!(consumers.len(), expected.consumers.len());
            for (name, state) in consumers {
                let of = &expected.consumers[&name];
                assert_eq!((state.seen_ms, state.active_ms), (of.seen_ms, of.active_ms));
                let consumer = group.consumer(txn, &name).expect("reads").expect("it was shown");
                let mut ids = Vec::new();
                let each = |id| {
                    ids.push(id);
                    ControlFlow::Continue(())
                };
                group.visit_ids_of(txn, &consumer, StreamId::MIN..=StreamId::MAX, usize::MAX, each).expect("reads");
                let has = |held: &&Held| held.consumer.as_ref() == Some(&name);
                let of: Vec<StreamId> =
                    expected.pending.iter().filter(|(_, held)| has(held)).map(|(id, _)| *id).collect();
                assert_eq!((ids.len() as u64, &ids), (state.pending, &of));
            }
        }
    });
}

fn new_stream(db: &mut Db) {
    db.run(|txn| {
        let key = txn.key(KEY);
        Stream::create(txn, &key).and_then(|mut stream| stream.save(txn, &key)).expect("writes");
    });
}

#[test]
fn groups_are_those_of_the_model() {
    for (seed, mut db) in on_each_base(1..=8) {
        let (mut model, mut random) = (Model::default(), Random(seed));
        new_stream(&mut db);
        for round in 0..400 {
            db.now_ms += random.below(3);
            step(&mut db, &mut model, &mut random);
            if round % 5 == 0 {
                compare(&mut db, &model);
            }
            if random.below(30) == 0 {
                db.store.flush_now().expect("flushes to memory");
            }
            if random.below(60) == 0 {
                db.reopen();
            }
        }
        compare(&mut db, &model);
        db.check();
    }
}

#[test]
fn nothing_is_left_of_a_group_that_is_destroyed() {
    let (mut db, mut model) = (Db::new(), Model::default());
    new_stream(&mut db);
    add(&mut db, &mut model, 3000);
    let before = db.rows();
    db.run(|txn| {
        let stream = stream(txn);
        create(txn, &stream, b"g", StreamId::MIN, None).expect("writes");
        create(txn, &stream, b"other", StreamId::MIN, None).expect("writes");
    });
    for name in [&b"g"[..], b"other"] {
        db.run(|txn| {
            let (stream, mut edit) = edit(txn, name).expect("is there");
            let (place, _) = edit.see(txn, b"alice").expect("reads");
            let how = Delivery { limit: u64::MAX, acknowledged: false };
            assert_eq!(edit.deliver(txn, &stream, place, how, |_, _| Some(0)).expect("delivers"), 3000);
            save(txn, edit).expect("writes");
        });
    }
    for name in [&b"g"[..], b"other"] {
        db.run(|txn| {
            let (_, edit) = edit(txn, name).expect("is there");
            destroy(txn, edit.group).expect("removes");
        });
    }
    let census_is_empty =
        |(row, value): &(&Vec<u8>, &Vec<u8>)| row.last() == Some(&5) && value[..] == [0, 0, 0, 0, 0, 0, 0, 2];
    let after = db.rows();
    let left: Vec<_> = after.iter().filter(|(row, _)| !before.contains_key(*row)).collect();
    assert!(matches!(&left[..], [row] if census_is_empty(row)), "{left:?}");
}

/// In a store that takes a megabyte at once, no more is delivered than it takes.
#[test]
fn as_much_is_delivered_as_can_be_noted_at_once() {
    let (mut db, mut model) = (Db::new(), Model::default());
    new_stream(&mut db);
    db.run(|txn| {
        let stream = stream(txn);
        create(txn, &stream, b"g", StreamId::MIN, None).expect("writes")
    });
    (0..20).for_each(|_| add(&mut db, &mut model, 1000));
    db.store.set_txn_bytes_max(1 << 20);
    let mut seen = 0;
    let mut rounds = 0;
    loop {
        let count = db.run(|txn| {
            let (stream, mut edit) = edit(txn, b"g").expect("is there");
            let (place, _) = edit.see(txn, b"alice").expect("reads");
            let how = Delivery { limit: u64::MAX, acknowledged: false };
            let count = edit.deliver(txn, &stream, place, how, |_, _| Some(0)).expect("it fits");
            save(txn, edit).expect("it fits");
            count
        });
        if count == 0 {
            break;
        }
        (seen, rounds) = (seen + count, rounds + 1);
    }
    assert_eq!(seen, 20_000);
    assert!(rounds > 1, "a megabyte does not take all of them");
    // The removal of all of them would be more than that.
    let mut removed = Ok(());
    db.run(|txn| {
        let savepoint = txn.savepoint();
        let (_, edit) = edit(txn, b"g").expect("is there");
        removed = destroy(txn, edit.group);
        txn.rollback(savepoint);
    });
    assert_eq!(removed, Err(Error::Stop(Stop::TooLarge)));
}

/// Redis 8.2: what a trim with DELREF takes from groups is bounded, too.
#[test]
fn a_trim_by_references_removes_what_can_be_noted_at_once() {
    let (mut db, mut model) = (Db::new(), Model::default());
    new_stream(&mut db);
    db.run(|txn| {
        let stream = stream(txn);
        create(txn, &stream, b"g", StreamId::MIN, None).expect("writes")
    });
    add(&mut db, &mut model, 20_000);
    db.run(|txn| {
        let (stream, mut edit) = edit(txn, b"g").expect("is there");
        let (place, _) = edit.see(txn, b"alice").expect("reads");
        let how = Delivery { limit: u64::MAX, acknowledged: false };
        assert_eq!(edit.deliver(txn, &stream, place, how, |_, _| Some(0)).expect("it fits"), 20_000);
        save(txn, edit).expect("it fits");
    });
    db.store.set_txn_bytes_max(1 << 20);
    let trim = Trim { bound: Bound::Length(0), nodes: None, policy: Policy::DelRef };
    let (mut left, mut rounds) = (20_000, 0);
    while left > 0 {
        let removed = db.run(|txn| {
            let (key, mut stream) = (txn.key(KEY), stream(txn));
            let removed = stream.trim(txn, &key, trim).expect("it fits");
            stream.save(txn, &key).expect("it fits");
            removed
        });
        assert!(removed > 0, "{left} are left");
        (left, rounds) = (left - removed, rounds + 1);
        assert_eq!(db.run(|txn| edit(txn, b"g").expect("is there").1.group.state.pending), left);
    }
    assert!(rounds > 1, "a megabyte does not take all of them");
    db.check();
}

/// A trim that looks up many references is not for an event loop, few as its entries may be.
#[test]
fn a_trim_that_minds_references_asks_before_it_takes_long() {
    for (trimmed, is_long) in [(200, false), (500, true)] {
        let (mut db, mut model) = (Db::new(), Model::default());
        new_stream(&mut db);
        add(&mut db, &mut model, 600);
        db.run(|txn| {
            let stream = stream(txn);
            for group in GROUPS {
                create(txn, &stream, group, StreamId::MIN, None).expect("writes");
                let (_, mut edit) = edit(txn, group).expect("is there");
                let (place, _) = edit.see(txn, b"alice").expect("writes");
                let how = Delivery { limit: u64::MAX, acknowledged: false };
                edit.deliver(txn, &stream, place, how, |_, _| Some(0)).expect("delivers");
                save(txn, edit).expect("writes");
            }
        });
        let call = Call { now_ms: db.now_ms, seed: 7, database: 0, mode: Mode::Memory, pins: None };
        for policy in [Policy::DelRef, Policy::Acked] {
            let mut txn = db.store.begin(TxnBuffers::default(), call);
            let (key, mut stream) = (txn.key(KEY), stream(&mut txn));
            let trim = Trim { bound: Bound::Id(StreamId::new(0, trimmed + 1)), nodes: None, policy };
            let outcome = stream.trim(&mut txn, &key, trim);
            let asks = matches!(outcome, Err(Error::Stop(Stop::Long)));
            assert_eq!(asks, is_long, "{trimmed} entries, {policy:?}: {outcome:?}");
        }
    }
}

/// More entries than one walk finds are claimed in order, those that are gone left out.
#[test]
fn a_long_claim_goes_on_behind_what_one_walk_finds() {
    let (mut db, mut model) = (Db::new(), Model::default());
    new_stream(&mut db);
    db.run(|txn| {
        let stream = stream(txn);
        create(txn, &stream, b"g", StreamId::MIN, None).expect("writes")
    });
    add(&mut db, &mut model, 2000);
    for _ in 0..4 {
        db.now_ms += 10;
        db.run(|txn| {
            let (stream, mut edit) = edit(txn, b"g").expect("is there");
            let (place, _) = edit.see(txn, b"alice").expect("reads");
            let how = Delivery { limit: 500, acknowledged: false };
            assert_eq!(edit.deliver(txn, &stream, place, how, |_, _| Some(0)).expect("delivers"), 500);
            save(txn, edit).expect("writes");
        });
    }
    // The first thousand is gone from the stream, and the last two hundred were delivered first.
    db.run(|txn| {
        let (key, mut stream) = (txn.key(KEY), stream(txn));
        stream.remove(txn, (1..=1000).map(|seq| StreamId::new(0, seq))).expect("removes");
        stream.save(txn, &key).expect("writes");
        let (_, mut edit) = edit(txn, b"g").expect("is there");
        let (place, _) = edit.see(txn, b"alice").expect("reads");
        for seq in 1801..=2000 {
            let id = StreamId::new(0, seq);
            let held = edit.pending(txn, id).expect("reads");
            edit.give(txn, id, held.as_ref(), place, 1, 1).expect("writes");
        }
        save(txn, edit).expect("writes");
    });
    db.now_ms += 10;
    let mut claim = |idle_min_ms, limit| {
        db.run(|txn| {
            let (stream, mut edit) = edit(txn, b"g").expect("is there");
            let (place, _) = edit.see(txn, b"bob").expect("reads");
            let (what, mut seen) = (Claimable { idle_min_ms, limit }, Vec::new());
            let each = |id: StreamId, _: haypile_types::stream::Fields<'_>, _: &haypile_types::stream::Held| {
                seen.push(id.seq);
                Some(0)
            };
            edit.claim(txn, &stream, place, what, each).expect("claims");
            save(txn, edit).expect("writes");
            seen
        })
    };
    assert_eq!(claim(10, 300), (1801..=2000).chain(1001..=1100).collect::<Vec<u64>>());
    assert_eq!(claim(20, 300), (1101..=1400).collect::<Vec<u64>>());
    assert_eq!(claim(20, u64::MAX), (1401..=1500).collect::<Vec<u64>>());
    assert_eq!(claim(0, u64::MAX).len(), 1000, "all that are there, each once");
    assert_eq!(claim(1, u64::MAX), [], "nothing is old enough");
    db.check();
}

/// Idempotent IDs against a model of maps: what is known is found, and what is over goes (Redis 8.6).
#[test]
fn idempotent_ids_are_those_of_the_model() {
    const PRODUCERS: [&[u8]; 3] = [b"p", b"q", b"a producer with a long name"];
    for (seed, mut db) in on_each_base(1..=6) {
        let mut random = Random(seed);
        let mut known: BTreeMap<(&[u8], Vec<u8>), StreamId> = BTreeMap::new();
        let (mut added, mut duplicates, mut seconds, mut most) = (0, 0, 100, 100);
        new_stream(&mut db);
        for round in 0..600 {
            db.now_ms += random.below(400);
            let now_ms = db.now_ms;
            let is_over = |id: &StreamId, seconds: u32| id.ms + u64::from(seconds) * 1000 <= now_ms;
            if random.below(60) == 0 {
                let bounds = (1 + random.below(3) as u32, 1 + random.below(6) as u32);
                db.run(|txn| {
                    let (key, stream) = (txn.key(KEY), stream(txn));
                    let mut producers = stream.edit_producers(txn).expect("reads");
                    producers.set_bounds(txn, bounds.0, bounds.1).expect("writes");
                    producers.save(txn, &key).expect("writes");
                });
                if bounds != (seconds, most) {
                    known.clear();
                    (seconds, most) = bounds;
                }
            }
            let (producer, name) = (random.pick(&PRODUCERS), random.below(12).to_string().into_bytes());
            let found = db.run(|txn| {
                let (key, mut stream) = (txn.key(KEY), stream(txn));
                let mut producers = stream.edit_producers(txn).expect("reads");
                let found = producers.find(txn, producer, &name).expect("reads");
                match found {
                    Some(_) => producers.state.duplicates += 1,
                    None => {
                        let id = StreamId::new(now_ms, round);
                        stream.append(txn, &key, id, [&b"f"[..], b"v"].into_iter()).expect("writes");
                        producers.add(txn, producer, &name, id).expect("writes");
                        stream.save(txn, &key).expect("writes");
                    }
                }
                producers.save(txn, &key).expect("writes");
                found
            });
            known.retain(|_, id| !is_over(id, seconds));
            let expected = known.get(&(producer, name.clone())).copied();
            assert_eq!(found, expected, "seed {seed}, round {round}");
            if found.is_some() {
                duplicates += 1;
            } else {
                added += 1;
                known.insert((producer, name), StreamId::new(now_ms, round));
                let mut of: Vec<_> = known.iter().filter(|((of, _), _)| *of == producer).collect();
                of.sort_by_key(|(_, id)| **id);
                if of.len() > most as usize {
                    let oldest = of[0].0.clone();
                    known.remove(&oldest);
                }
            }
            db.run(|txn| {
                let producers = stream(txn).edit_producers(txn).expect("reads");
                let live: BTreeSet<&[u8]> = known.keys().map(|(producer, _)| *producer).collect();
                let counts = producers.known(txn).expect("reads");
                assert_eq!(counts, (live.len() as u64, known.len() as u64), "seed {seed}, round {round}");
                assert_eq!((producers.state.added, producers.state.duplicates), (added, duplicates));
            });
            if random.below(40) == 0 {
                db.store.flush_now().expect("flushes to memory");
            }
            if random.below(80) == 0 {
                db.reopen();
            }
        }
        db.check();
        // IDs whose time is over go with those that come.
        db.now_ms += 1_000_000;
        for n in 0..40 {
            let now_ms = db.now_ms;
            db.run(|txn| {
                let key = txn.key(KEY);
                let mut producers = stream(txn).edit_producers(txn).expect("reads");
                producers.add(txn, b"last", &[n], StreamId::new(now_ms, n.into())).expect("writes");
                producers.save(txn, &key).expect("writes");
            });
        }
        let left = db.run(|txn| stream(txn).edit_producers(txn).expect("reads").state);
        assert_eq!((left.producers, left.ids), (1, u64::from(left.ids_max.min(40))));
        db.check();
    }
}

/// A reply that says that a group is gone waits for the record that took it.
#[test]
fn that_a_group_is_gone_depends_on_the_record_that_took_it() {
    for (base, mut db) in on_each_base([false, true]) {
        db.run(|txn| {
            let key = txn.key(KEY);
            Stream::create(txn, &key).and_then(|mut stream| stream.save(txn, &key)).expect("writes");
            let stream = stream(txn);
            create(txn, &stream, b"g", StreamId::MIN, None).expect("writes");
        });
        if base {
            db.store.flush_now().expect("nothing is broken");
        }
        db.run(|txn| {
            let (_, edit) = edit(txn, b"g").expect("is there");
            destroy(txn, edit.group).expect("removes");
        });
        let destroyed = db.store.log().last();
        db.run(|txn| {
            assert!(edit(txn, b"g").is_none());
            assert_eq!(txn.gate(), destroyed);
        });
        db.run(|txn| {
            let stream = stream(txn);
            stream.visit_groups(txn, |_, _| panic!("there is none")).expect("reads");
            assert_eq!(txn.gate(), destroyed);
        });
    }
}

#[test]
fn each_change_of_a_group_names_the_key() {
    let mut db = Db::new();
    let names_key = |db: &Db, before: Index| {
        let log = db.store.log();
        log.sync_through(log.last()).expect("a file takes it");
        let key = row::meta_row(&db.store.key(0, KEY));
        let mut reader = log.reader(before);
        while let Next::Record(record) = reader.next().expect("the log is whole") {
            let mut effects = haypile_log::effects(record.body).map(|effect| effect.expect("the store wrote it"));
            assert!(effects.any(|effect| effect == Effect::Touch { key: &key }), "record {}", record.index);
        }
        assert!(log.last() > before, "it wrote something");
    };
    db.run(|txn| {
        let key = txn.key(KEY);
        let mut stream = Stream::create(txn, &key).expect("writes");
        stream.append(txn, &key, StreamId::new(1, 1), [&b"f"[..], b"v"].into_iter()).expect("writes");
        stream.save(txn, &key).expect("writes");
    });
    type Change = fn(&mut Txn<'_>);
    let changes: [Change; 4] = [
        |txn| {
            let stream = stream(txn);
            create(txn, &stream, b"g", StreamId::MIN, None).expect("writes");
        },
        |txn| {
            let (stream, mut edit) = edit(txn, b"g").expect("is there");
            let (place, _) = edit.see(txn, b"alice").expect("reads");
            let all = Delivery { limit: u64::MAX, acknowledged: false };
            edit.deliver(txn, &stream, place, all, |_, _| Some(0)).expect("writes");
            save(txn, edit).expect("writes");
        },
        |txn| {
            let (_, mut edit) = edit(txn, b"g").expect("is there");
            let held = edit.pending(txn, StreamId::new(1, 1)).expect("reads").expect("is pending");
            edit.release(txn, StreamId::new(1, 1), &held).expect("writes");
            save(txn, edit).expect("writes");
        },
        |txn| {
            let (_, edit) = edit(txn, b"g").expect("is there");
            destroy(txn, edit.group).expect("removes");
        },
    ];
    for change in changes {
        let before = db.store.log().last();
        db.run(change);
        names_key(&db, before);
    }
    let before = db.store.log().last();
    db.run(|txn| {
        let key = txn.key(KEY);
        txn.touch_key(&key);
    });
    assert_eq!(db.store.log().last(), before, "what changes nothing makes no record");
}
