//! The model of consumer groups, the steps that are done to it and to the store, and their comparison.

use crate::common::{Db, Random};
use haypile_store::{Direction, Txn};
use haypile_types::Error;
use haypile_types::stream::{Bound, Claimable, Delivery, Edit, Group, Outcome, Policy, Stream, StreamId, Trim};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

pub const KEY: &[u8] = b"stream";
pub const GROUPS: [&[u8]; 3] = [b"g", b"", b"another group"];
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
pub struct Model {
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

pub fn stream(txn: &mut Txn<'_>) -> Stream {
    Stream::edit(txn, &txn.key(KEY)).expect("reads").expect("is there")
}

pub fn create(
    txn: &mut Txn<'_>,
    stream: &Stream,
    name: &[u8],
    last: StreamId,
    read: Option<u64>,
) -> Result<bool, Error> {
    let key = txn.key(KEY);
    Group::create(txn, &key, stream, name, last, read)
}

pub fn save(txn: &mut Txn<'_>, edit: Edit<'_>) -> Result<(), Error> {
    let key = txn.key(KEY);
    edit.save(txn, &key)
}

pub fn destroy(txn: &mut Txn<'_>, group: Group<'_>) -> Result<(), Error> {
    let key = txn.key(KEY);
    group.destroy(txn, &key)
}

pub fn edit<'n>(txn: &mut Txn<'_>, name: &'n [u8]) -> Option<(Stream, Edit<'n>)> {
    let stream = stream(txn);
    let group = Group::find(txn, &stream, name).expect("reads")?;
    Some((stream, Edit::of(group)))
}

pub fn add(db: &mut Db, model: &mut Model, count: u64) {
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

pub fn step(db: &mut Db, model: &mut Model, random: &mut Random) {
    let (name, consumer) = (random.pick(&GROUPS), random.pick(&CONSUMERS));
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
        5..=6 => remove_consumer(db, model, name, consumer),
        7..=11 => deliver(db, model, random, name, consumer),
        12..=15 => acknowledge(db, model, random, name),
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
        24 | 25 => hand_back(db, model, name, id, random.below(9)),
        26..=28 => claim(db, model, random, name, consumer),
        _ => give(db, model, (name, consumer), id, random.below(9)),
    }
}

fn remove_consumer(db: &mut Db, model: &mut Model, name: &'static [u8], consumer: &[u8]) {
    let left = db.run(|txn| {
        let (_, edit) = edit(txn, name)?;
        let mut group = edit.group;
        let consumer = group.consumer(txn, consumer).expect("reads")?;
        group.remove_consumer(txn, &consumer).expect("removes");
        let key = txn.key(KEY);
        group.save(txn, &key).expect("writes");
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

/// Acknowledges a few IDs, of which some are pending.
fn acknowledge(db: &mut Db, model: &mut Model, random: &mut Random, name: &'static [u8]) {
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
    let expected =
        model.groups.get_mut(name).map_or(0, |group| ids.iter().filter(|id| group.release(**id).is_some()).count());
    assert_eq!(acknowledged, expected);
}

/// Hands an entry back to its group, whether it is pending or not.
fn hand_back(db: &mut Db, model: &mut Model, name: &'static [u8], id: StreamId, deliveries: u64) {
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

/// Gives an entry to a consumer, whoever had it.
fn give(db: &mut Db, model: &mut Model, (name, consumer): (&'static [u8], &[u8]), id: StreamId, deliveries: u64) {
    let now_ms = db.now_ms;
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
pub fn compare(db: &mut Db, model: &Model) {
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

pub fn new_stream(db: &mut Db) {
    db.run(|txn| {
        let key = txn.key(KEY);
        Stream::create(txn, &key).and_then(|mut stream| stream.save(txn, &key)).expect("writes");
    });
}
