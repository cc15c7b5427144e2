//! Sorted sets against std's collections: members and scores, ranks, ranges in both directions, removals from anywhere,
//! results of several sets; with flushes and reopens in between. The rank tree counts the right elements after each
//! step.

mod common;

use common::{Db, Random, on_each_base};
use haypile_store::{Call, Direction, Mode, Stop, Txn, TxnBuffers};
use haypile_types::EncodingLimit;
use haypile_types::zset::{
    Adding, Aggregate, Combination, Edit, Input, LexBound, Maker, Operation, Range, ScoreBound, Stretch, Zset,
};
use haypile_types::{Error, key, value};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

const NAMES: [&[u8]; 3] = [b"a", b"{a}b", b""];

type Reference = HashMap<Vec<u8>, f64>;
type Model = HashMap<&'static [u8], Reference>;

/// Returns the elements in the order of score and member.
fn sorted(reference: &Reference) -> Vec<(Vec<u8>, f64)> {
    let mut elements: Vec<_> = reference.iter().map(|(member, score)| (member.clone(), *score)).collect();
    elements.sort_by(|a, b| a.1.partial_cmp(&b.1).expect("numbers").then_with(|| a.0.cmp(&b.0)));
    elements
}

fn read(txn: &mut Txn<'_>, name: &[u8]) -> Option<Zset> {
    let key = txn.key(name);
    Zset::read(txn, &key).expect("reads")
}

fn add(db: &mut Db, name: &[u8], pairs: &[(Vec<u8>, f64)]) {
    db.run(|txn| {
        let key = txn.key(name);
        let mut edit = Edit::of(Zset::write(txn, &key).expect("reads")).expect("parses");
        for (member, score) in pairs {
            edit.add(txn, &key, Adding::default(), *score, member).expect("adds");
        }
        edit.finish(txn, &key).expect("writes");
    });
}

fn remove_range(db: &mut Db, name: &[u8], stretch: Stretch<'_>) -> Vec<(Vec<u8>, f64)> {
    let mut removed = Vec::new();
    db.run(|txn| {
        let key = txn.key(name);
        let Some(zset) = Zset::write(txn, &key).expect("reads") else { return };
        zset.remove_range(txn, &key, stretch, |member, score| removed.push((member.to_vec(), score))).expect("removes");
    });
    removed
}

fn visit(txn: &mut Txn<'_>, zset: &Zset, stretch: Stretch<'_>) -> Vec<(Vec<u8>, f64)> {
    let mut found = Vec::new();
    let mut each = |member: &[u8], score: f64| {
        found.push((member.to_vec(), score));
        ControlFlow::Continue(())
    };
    zset.visit(txn, stretch, &mut each).expect("reads");
    found
}

/// The kind of scores: often equal, all equal, all different, or ascending with time.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Few,
    One,
    Many,
    Rising,
}

fn some_pair(random: &mut Random, kind: Kind, at: u64) -> (Vec<u8>, f64) {
    let score = match kind {
        Kind::Few => random.pick(&[-1.0, 0.0, 1.0, 2.5, f64::INFINITY, f64::NEG_INFINITY]),
        Kind::One => 0.0,
        Kind::Many => random.below(1 << 40) as f64 / 1024.0,
        Kind::Rising => at as f64,
    };
    let member = match random.below(30) {
        0 => Vec::new(),
        1 => vec![0xff; random.below(40) as usize],
        2 => [&[b'l'; 900][..], random.below(400).to_string().as_bytes()].concat(),
        3 => [&[b'L'; 1100][..], random.below(400).to_string().as_bytes()].concat(),
        _ => format!("member:{}", random.below(9000)).into_bytes(),
    };
    (member, score)
}

fn step(db: &mut Db, model: &mut Model, random: &mut Random, kind: Kind, round: u64) {
    let name = random.pick(&NAMES);
    let reference = model.entry(name).or_default();
    let length = reference.len() as u64;
    match random.below(16) {
        0..=4 => {
            let bound = random.pick(&[1, 3, 30, 400, 2500]);
            let count = 1 + random.below(bound);
            let pairs: Vec<_> = (0..count).map(|i| some_pair(random, kind, round * 10_000 + i)).collect();
            add(db, name, &pairs);
            reference.extend(pairs);
        }
        5 | 6 => remove_members(db, reference, name, random),
        7..=9 => remove_from_an_end(db, reference, name, random),
        10 | 11 if length > 0 => {
            let from = random.below(length);
            let most = random.pick(&[5, 100, 5000]);
            let until = from + 1 + random.below((length - from).min(most));
            let removed = remove_range(db, name, Stretch::whole(Range::Index { from, until }));
            assert_eq!(removed, sorted(reference)[from as usize..(until as usize).min(length as usize)]);
            take_out(reference, &removed);
        }
        12 if length > 0 => remove_scores(db, reference, name, random),
        13 => combine(db, model, random),
        14 => {
            db.run(|txn| {
                let key = txn.key(name);
                if let Some(entry) = key::lookup_write(txn, &key).expect("reads") {
                    let to = txn.key(NAMES[0]);
                    if to != key {
                        let before = key::lookup_overwrite(txn, &to).expect("reads");
                        value::copy(txn, &key, &entry, &to, before.as_ref()).expect("copies");
                    }
                }
            });
            if length > 0 {
                let copy = reference.clone();
                model.insert(NAMES[0], copy);
            }
        }
        _ => {
            db.run(|txn| {
                let key = txn.key(name);
                key::delete(txn, &key).expect("deletes")
            });
            model.remove(name);
        }
    }
    model.retain(|_, reference| !reference.is_empty());
    NAMES.iter().for_each(|name| compare(db, model, name, random, kind));
}

fn remove_members(db: &mut Db, reference: &mut Reference, name: &[u8], random: &mut Random) {
    let all = sorted(reference);
    let count = 1 + random.below(60);
    let members: Vec<Vec<u8>> = (0..count)
        .map(|_| match all.len() {
            0 => b"nothing".to_vec(),
            length => all[random.below(length as u64) as usize].0.clone(),
        })
        .collect();
    let removed = db.run(|txn| {
        let key = txn.key(name);
        let mut edit = Edit::of(Zset::write(txn, &key).expect("reads")).expect("parses");
        let mut removed = 0;
        for member in &members {
            removed += u64::from(edit.remove(txn, member).expect("removes"));
        }
        edit.finish(txn, &key).expect("writes");
        removed
    });
    let expected = members.iter().filter(|member| reference.remove(*member).is_some()).count();
    assert_eq!(removed, expected as u64);
}

/// Removes from an end, as queues do, one by one and many.
fn remove_from_an_end(db: &mut Db, reference: &mut Reference, name: &[u8], random: &mut Random) {
    let direction = random.pick(&[Direction::Forward, Direction::Backward]);
    let bound = random.pick(&[1, 10, 100, 1000]);
    for _ in 0..random.below(40) {
        let range = Range::Index { from: 0, until: u64::MAX };
        let stretch = Stretch { range, direction, skip: 0, take: 1 + random.below(bound) };
        let removed = remove_range(db, name, stretch);
        let mut all = sorted(reference);
        if direction == Direction::Backward {
            all.reverse();
        }
        all.truncate(stretch.take as usize);
        assert_eq!(removed, all);
        take_out(reference, &removed);
    }
}

fn remove_scores(db: &mut Db, reference: &mut Reference, name: &[u8], random: &mut Random) {
    let (min, max) = some_scores(random, reference);
    let range = Range::Score { min, max };
    let removed = remove_range(db, name, Stretch::whole(range));
    let inside = |score: f64| {
        (if min.exclusive { score > min.score } else { score >= min.score })
            && (if max.exclusive { score < max.score } else { score <= max.score })
    };
    let expected: Vec<_> = sorted(reference).into_iter().filter(|(_, score)| inside(*score)).collect();
    assert_eq!(removed, expected);
    take_out(reference, &removed);
}

fn take_out(reference: &mut Reference, removed: &[(Vec<u8>, f64)]) {
    for (member, _) in removed {
        reference.remove(member);
    }
}

fn some_scores(random: &mut Random, reference: &Reference) -> (ScoreBound, ScoreBound) {
    let scores: Vec<f64> = reference.values().copied().collect();
    let mut bound =
        || ScoreBound { score: scores[random.below(scores.len() as u64) as usize], exclusive: random.below(2) == 0 };
    let (a, b) = (bound(), bound());
    if a.score <= b.score { (a, b) } else { (b, a) }
}

/// Replaces one of the sets by a combination of the others.
fn combine(db: &mut Db, model: &mut Model, random: &mut Random) {
    let operation = random.pick(&[Operation::Union, Operation::Intersection, Operation::Difference]);
    let to = random.pick(&NAMES);
    let weights = [1.0, random.below(5) as f64, 0.5];
    db.run(|txn| {
        let mut inputs = Vec::new();
        for (name, weight) in NAMES.iter().zip(weights) {
            let key = txn.key(name);
            let entry = key::lookup(txn, &key).expect("reads");
            let mut input = Input::of(&key, entry).expect("a sorted set");
            input.weight = weight;
            inputs.push(input);
        }
        let combination = Combination::new(inputs, operation, Aggregate::Max);
        let to = txn.key(to);
        let before = key::lookup_overwrite(txn, &to).expect("reads");
        let mut maker = Maker::new();
        combination
            .visit(txn, |txn, member, score| {
                maker.add(txn, &to, member, score)?;
                Ok(ControlFlow::Continue(()))
            })
            .expect("reads");
        maker.finish(txn, &to, before.as_ref()).expect("writes");
    });
    let weighted = |score: f64, weight: f64| if (score * weight).is_nan() { 0.0 } else { score * weight };
    let mut result = Reference::new();
    let empty = Reference::new();
    let inputs: Vec<&Reference> = NAMES.iter().map(|name| model.get(name).unwrap_or(&empty)).collect();
    for (reference, weight) in inputs.iter().zip(weights) {
        for (member, score) in *reference {
            let score = weighted(*score, weight);
            result.entry(member.clone()).and_modify(|sum| *sum = sum.max(score)).or_insert(score);
        }
    }
    match operation {
        Operation::Union => {}
        Operation::Intersection => result.retain(|member, _| inputs.iter().all(|input| input.contains_key(member))),
        Operation::Difference => {
            result.retain(|member, _| {
                inputs[0].contains_key(member) && !inputs[1..].iter().any(|input| input.contains_key(member))
            });
        }
    }
    model.insert(to, result);
}

fn compare(db: &mut Db, model: &Model, name: &[u8], random: &mut Random, kind: Kind) {
    db.run(|txn| {
        let Some(zset) = read(txn, name) else { return assert!(!model.contains_key(name), "a set that is not there") };
        let elements = sorted(&model[name]);
        let length = elements.len() as u64;
        assert_eq!(zset.cardinality(), Ok(length));
        if let Err(wrong) = zset.verify(txn).expect("reads") {
            panic!("{wrong}");
        }
        for _ in 0..3 {
            let at = random.below(length);
            let (member, score) = &elements[at as usize];
            assert_eq!(zset.score(txn, member), Ok(Some(*score)));
            assert_eq!(zset.rank(txn, member, false), Ok(Some((at, *score))));
            assert_eq!(zset.rank(txn, member, true), Ok(Some((length - 1 - at, *score))));
            let until = (at + random.below(70)).min(length);
            for direction in [Direction::Forward, Direction::Backward] {
                let range = Range::Index { from: at, until };
                let (skip, take) = (random.below(20), random.below(60));
                let found = visit(txn, &zset, Stretch { range, direction, skip, take });
                let mut part = elements[at as usize..until as usize].to_vec();
                if direction == Direction::Backward {
                    part.reverse();
                }
                let part: Vec<_> = part.into_iter().skip(skip as usize).take(take as usize).collect();
                assert_eq!(found, part, "index {at}..{until}, {direction:?}");
            }
        }
        let (min, max) = some_scores(random, &model[name]);
        let range = Range::Score { min, max };
        let inside = |score: f64| {
            (if min.exclusive { score > min.score } else { score >= min.score })
                && (if max.exclusive { score < max.score } else { score <= max.score })
        };
        let part: Vec<_> = elements.iter().filter(|(_, score)| inside(*score)).cloned().collect();
        assert_eq!(zset.count(txn, range), Ok(part.len() as u64));
        let most = random.pick(&[2, 50, 2000]);
        let skip = random.below(most);
        for direction in [Direction::Forward, Direction::Backward] {
            let found = visit(txn, &zset, Stretch { range, direction, skip, take: 30 });
            let expected: Vec<_> = match direction {
                Direction::Forward => part.iter().skip(skip as usize).take(30).cloned().collect(),
                Direction::Backward => part.iter().rev().skip(skip as usize).take(30).cloned().collect(),
            };
            assert_eq!(found, expected, "{range:?} {direction:?} skip {skip}");
        }
        if matches!(kind, Kind::One) && elements.iter().all(|(_, score)| *score == elements[0].1) {
            let bound = |random: &mut Random| elements[random.below(length) as usize].0.clone();
            let (mut low, mut high) = (bound(random), bound(random));
            if low > high {
                std::mem::swap(&mut low, &mut high);
            }
            let range = Range::Lex { min: LexBound::At(&low), max: LexBound::Beside(&high) };
            let part: Vec<_> =
                elements.iter().filter(|(member, _)| *member >= low && *member < high).cloned().collect();
            assert_eq!(zset.count(txn, range), Ok(part.len() as u64));
            assert_eq!(visit(txn, &zset, Stretch::whole(range)), part);
        }
    });
}

#[test]
fn sorted_sets_are_those_of_a_map_and_a_sort() {
    let kinds = [Kind::Few, Kind::One, Kind::Many, Kind::Rising].into_iter().cycle().take(8).enumerate();
    for ((seed, kind), mut db) in on_each_base(kinds) {
        let (mut model, mut random) = (Model::new(), Random(seed as u64));
        for round in 0..150 {
            step(&mut db, &mut model, &mut random, kind, round);
            if random.below(20) == 0 {
                db.check();
            }
            if random.below(25) == 0 {
                db.store.flush_now().expect("flushes to memory");
            }
            if random.below(40) == 0 {
                db.reopen();
            }
        }
        db.check();
    }
}

/// A dry run holds no key locks: what it reads first and what it reads then may be of two moments.
#[test]
fn a_dry_run_in_the_middle_of_which_others_write_comes_to_its_end() {
    let mut db = Db::new();
    add(&mut db, b"z", &numbered(0..3_000));
    let store = db.store.clone();
    let call = Call { now_ms: db.now_ms, seed: 7, database: 0, mode: Mode::Load, pins: None };
    let mut txn = store.begin(TxnBuffers::default(), call);
    let key = txn.key(b"z");
    let mut edit = Edit::of(Zset::write(&mut txn, &key).expect("reads")).expect("parses");
    add(&mut db, b"z", &numbered(3_000..3_010));
    let (member, _) = &numbered(7..8)[0];
    assert!(edit.remove(&mut txn, member).expect("removes"));
    edit.finish(&mut txn, &key).expect("the run is dropped");
}

fn numbered(range: std::ops::Range<u64>) -> Vec<(Vec<u8>, f64)> {
    range.map(|i| (format!("member:{i:08}").into_bytes(), i as f64)).collect()
}

#[test]
fn a_tree_has_two_levels_up_to_a_million_and_is_cut_and_joined_as_elements_come_and_go() {
    let mut db = Db::new();
    let mut random = Random(5);
    let mut all = numbered(0..60_000);
    // In any order.
    for at in (1..all.len()).rev() {
        all.swap(at, random.below(at as u64 + 1) as usize);
    }
    for part in all.chunks(700) {
        add(&mut db, b"z", part);
    }
    let (levels, nodes) = db.run(|txn| read(txn, b"z").expect("is there").tree_size(txn)).expect("reads");
    assert!(levels == 2 && (20..90).contains(&nodes), "{levels} levels, {nodes} nodes");
    // Every place but one in a hundred goes.
    for part in all.chunks(500) {
        db.run(|txn| {
            let key = txn.key(b"z");
            let mut edit = Edit::of(Zset::write(txn, &key).expect("reads")).expect("parses");
            for (member, score) in part {
                if *score % 100.0 != 0.0 {
                    edit.remove(txn, member).expect("removes");
                }
            }
            edit.finish(txn, &key).expect("writes");
        });
    }
    let zset = db.run(|txn| read(txn, b"z")).expect("is there");
    assert_eq!(zset.cardinality(), Ok(600));
    assert_eq!(db.run(|txn| zset.verify(txn)), Ok(Ok(())));
    let (levels, nodes) = db.run(|txn| zset.tree_size(txn)).expect("reads");
    assert!(levels <= 2 && nodes <= 5, "{levels} levels, {nodes} nodes");
}

#[test]
fn elements_that_come_in_order_fill_their_blocks() {
    let mut db = Db::new();
    add(&mut db, b"z", &numbered(0..1000));
    for i in 1000..6000 {
        add(&mut db, b"z", &numbered(i..i + 1));
    }
    let (_, nodes) = db.run(|txn| read(txn, b"z").expect("is there").tree_size(txn)).expect("reads");
    assert!(nodes <= 4, "{nodes} nodes");
    let zset = db.run(|txn| read(txn, b"z")).expect("is there");
    assert_eq!(db.run(|txn| zset.verify(txn)), Ok(Ok(())));
}

#[test]
fn a_new_element_costs_a_few_small_rows() {
    let mut db = Db::new();
    let cost = |db: &mut Db, member: &str, score: f64| {
        db.logged(|txn| {
            let key = txn.key(b"z");
            let mut edit = Edit::of(Zset::write(txn, &key).expect("reads")).expect("parses");
            edit.add(txn, &key, Adding::default(), score, member.as_bytes()).expect("adds");
            edit.finish(txn, &key).expect("writes");
        })
    };
    let all = numbered(0..200);
    add(&mut db, b"z", &all);
    let (bytes, rows) = cost(&mut db, "without a tree", 3.5);
    assert!(rows == 3 && bytes < 200, "{bytes} bytes, {rows} rows");
    for part in numbered(200..20_000).chunks(500) {
        add(&mut db, b"z", part);
    }
    // The member, its place, the header, a count at each of two levels.
    let (bytes, rows) = cost(&mut db, "with a tree", 7777.5);
    assert!(rows == 5 && bytes < 300, "{bytes} bytes, {rows} rows");
    let (bytes, rows) = cost(&mut db, "with a tree", 7777.25);
    assert!(rows == 4 && bytes < 300, "a score that changes within a block: {bytes} bytes, {rows} rows");
    // Cutting blocks is in it.
    let mut random = Random(3);
    let (mut bytes, count) = (0, 2000);
    for i in 0..count {
        bytes += cost(&mut db, &format!("one more {i}"), random.below(20_000) as f64).0;
    }
    assert!(bytes / count < 400, "{} bytes for each", bytes / count);
}

#[test]
fn what_is_removed_beyond_what_a_transaction_may_change_is_made_to_fit() {
    let mut db = Db::new();
    let all = numbered(0..60_000);
    for part in all.chunks(5000) {
        add(&mut db, b"z", part);
    }
    db.store.set_txn_bytes_max(1 << 20);
    let range = Range::Index { from: 5, until: 40_000 };
    let removed = remove_range(&mut db, b"z", Stretch::whole(range));
    assert_eq!(removed.len(), 39_995);
    db.run(|txn| {
        let zset = read(txn, b"z").expect("is there");
        assert_eq!(zset.cardinality(), Ok(20_005));
        assert_eq!(zset.verify(txn), Ok(Ok(())));
        assert_eq!(zset.rank(txn, &all[40_000].0, false), Ok(Some((5, 40_000.0))));
        assert_eq!(zset.score(txn, &all[5].0), Ok(None));
    });
    // Members one by one cannot be: nothing happens.
    let result = db.run(|txn| {
        let key = txn.key(b"z");
        let mut edit = Edit::of(Zset::write(txn, &key).expect("reads")).expect("parses");
        all[40_000..].iter().try_for_each(|(member, _)| edit.remove(txn, member).map(drop))
    });
    assert_eq!(result, Err(Error::Stop(Stop::TooLarge)));
    db.check();
}

#[test]
fn members_of_several_scores_are_cut_at_the_lowest_score() {
    let mut db = Db::new();
    let pairs: Vec<_> = (0..100).map(|i| (format!("m{i:02}").into_bytes(), f64::from(i / 50))).collect();
    add(&mut db, b"z", &pairs);
    db.run(|txn| {
        let zset = read(txn, b"z").expect("is there");
        let mut count = |min, max| zset.count(txn, Range::Lex { min, max }).expect("reads");
        assert_eq!(count(LexBound::Lowest, LexBound::Highest), 100);
        assert_eq!(count(LexBound::At(b"m40"), LexBound::At(b"m60")), 10);
        assert_eq!(count(LexBound::Lowest, LexBound::Beside(b"m10")), 10);
        assert_eq!(count(LexBound::Highest, LexBound::Lowest), 0);
    });
}

#[test]
fn encodings_are_those_of_redis() {
    let mut db = Db::new();
    let encoding = |db: &mut Db, name: &[u8]| {
        db.run(|txn| {
            let key = txn.key(name);
            let entry = key::peek(txn, &key).expect("reads").expect("is there");
            value::encoding_name(&entry).expect("parses").expect("a collection")
        })
    };
    add(&mut db, b"z", &numbered(0..128));
    assert_eq!(encoding(&mut db, b"z"), "listpack");
    add(&mut db, b"z", &numbered(128..129));
    assert_eq!(encoding(&mut db, b"z"), "skiplist");
    remove_range(&mut db, b"z", Stretch::whole(Range::Index { from: 0, until: 100 }));
    assert_eq!(encoding(&mut db, b"z"), "skiplist", "it does not go back");
    EncodingLimit::ZsetEntries.set(&db.store, 2);
    add(&mut db, b"y", &numbered(0..2));
    assert_eq!(encoding(&mut db, b"y"), "listpack");
    add(&mut db, b"y", &numbered(2..3));
    assert_eq!(encoding(&mut db, b"y"), "skiplist");
}

#[test]
fn what_is_left_of_a_set_among_many_elements_that_were_taken_is_copied() {
    let pair = |n: u64| (format!("member:{n:06}").into_bytes(), n as f64);
    let range = Range::Index { from: 0, until: u64::MAX };
    let first = Stretch { range, direction: Direction::Forward, skip: 0, take: 1 };
    let object = |db: &mut Db| db.run(|txn| read(txn, b"q").expect("it is there").header.object.expect("rows").id);
    for (_, mut db) in on_each_base([()]) {
        add(&mut db, b"q", &(0..1000).map(pair).collect::<Vec<_>>());
        db.reopen();
        let made = object(&mut db);
        for n in 0..900 {
            assert_eq!(remove_range(&mut db, b"q", first), [pair(n)]);
        }
        assert_eq!(object(&mut db), made, "the tree leads past those that were taken");
        for n in 900..990 {
            assert_eq!(remove_range(&mut db, b"q", first), [pair(n)]);
        }
        let mut objects = HashSet::from([made, object(&mut db)]);
        assert_eq!(objects.len(), 2, "it needs no tree any more, and gets rid of what was taken");
        db.check();
        for round in 0..3 {
            // The set's rows are in the base: what is taken from now on leaves something behind.
            db.reopen();
            for n in 1000 + 400 * round..1400 + 400 * round {
                add(&mut db, b"q", &[pair(n)]);
                assert_eq!(remove_range(&mut db, b"q", first), [pair(n - 10)]);
                objects.insert(object(&mut db));
            }
            assert_eq!(objects.len(), 3 + round as usize, "it is copied once");
            db.check();
        }
    }
}
