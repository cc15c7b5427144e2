//! Sets against std's, random members against chance, encodings against the rules of Redis 7.2.

mod common;

use common::{Db, Random, on_each_base};
use haypile_store::{Key, Stop, Txn};
use haypile_types::EncodingLimit;
use haypile_types::set::draw::{self, Selected};
use haypile_types::set::merge::{self, Means, Members, Operation};
use haypile_types::set::store;
use haypile_types::set::{self, Set};
use haypile_types::{Error, key, value};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

const NAMES: [&[u8]; 5] = [b"a", b"b", b"{a}c", b"", b"e"];

type Reference = BTreeSet<Vec<u8>>;
type Model = BTreeMap<&'static [u8], Reference>;

fn lookup(txn: &mut Txn<'_>, key: &Key<'_>) -> Option<Set> {
    Set::lookup(txn, key).expect("reads")
}

/// All members as they are now.
fn members(txn: &mut Txn<'_>, key: &Key<'_>) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    if let Some(set) = lookup(txn, key) {
        let mut each = |member: &[u8]| {
            found.push(member.to_vec());
            ControlFlow::Continue(())
        };
        set.visit(txn, &mut each).expect("reads");
        assert_eq!(found.len() as u64, set.count());
    }
    found
}

fn add(txn: &mut Txn<'_>, name: &[u8], members: &[Vec<u8>]) -> u64 {
    let key = txn.key(name);
    let entry = key::lookup_write(txn, &key).expect("reads");
    set::add(txn, &key, entry, members.iter().map(Vec::as_slice)).expect("adds")
}

fn read_all(mut members: Members) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while members.advance().expect("memory can be read") {
        found.push(members.member().to_vec());
    }
    found
}

fn read_selected(selected: Option<Selected>) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    if let Some(mut selected) = selected {
        while selected.advance().expect("memory can be read") {
            found.push(selected.member().to_vec());
        }
    }
    found
}

/// Members of which sets share many: integers, short and long strings.
fn some_member(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        0 => Vec::new(),
        1 => vec![0xff; random.below(80) as usize],
        2 => vec![b'l'; 400 + random.below(40) as usize],
        3..=6 => random.below(300).to_string().into_bytes(),
        _ => format!("member:{}", random.below(2500)).into_bytes(),
    }
}

fn some_members(random: &mut Random) -> Vec<Vec<u8>> {
    let bound = random.pick(&[1, 1, 3, 20, 70, 1500]);
    let count = 1 + random.below(bound);
    (0..count).map(|_| some_member(random)).collect()
}

fn step(db: &mut Db, model: &mut Model, random: &mut Random) {
    let (name, other, third) = (random.pick(&NAMES), random.pick(&NAMES), random.pick(&NAMES));
    match random.below(12) {
        0..=3 => {
            let wanted = some_members(random);
            let added = db.run(|txn| add(txn, name, &wanted));
            let before = model.entry(name).or_default();
            assert_eq!(added, wanted.into_iter().filter(|member| before.insert(member.clone())).count() as u64);
        }
        4 | 5 => {
            let wanted = some_members(random);
            let removed = db.run(|txn| {
                let key = txn.key(name);
                let set = lookup(txn, &key)?;
                Some(set::remove(txn, &key, &set, wanted.iter().map(Vec::as_slice)).expect("removes"))
            });
            if let Some(before) = model.get_mut(name) {
                let expected = wanted.iter().filter(|member| before.remove(*member)).count() as u64;
                assert_eq!(removed, Some((expected, before.len() as u64)));
            }
        }
        6 => {
            let popped = db.run_with_seed(random.below(u64::MAX), |txn| {
                let key = txn.key(name);
                let set = lookup(txn, &key)?;
                Some(draw::pop(txn, &key, set).expect("pops"))
            });
            if let Some(before) = model.get_mut(name) {
                let (member, left) = popped.expect("there is a member");
                assert!(before.remove(&member[..]), "a member that was there");
                assert_eq!(left, before.len() as u64);
            }
        }
        7 => {
            let (share, mut popped) = (random.below(100), Vec::new());
            let selected = db.run_with_seed(random.below(u64::MAX), |txn| {
                let key = txn.key(name);
                let set = lookup(txn, &key).filter(|set| set.count() > 1)?;
                let count = (set.count() * share / 100).clamp(1, set.count() - 1);
                draw::pop_sample(txn, &key, &set, count, |member| popped.push(member.to_vec())).expect("pops")
            });
            popped.extend(read_selected(selected));
            popped.iter().for_each(|member| {
                assert!(model.get_mut(name).is_some_and(|before| before.remove(member)), "a member that was there");
            });
        }
        8 => {
            let (share, mut seen) = (random.below(100), Vec::new());
            let asked = db.run_with_seed(random.below(u64::MAX), |txn| {
                let key = txn.key(name);
                let set = lookup(txn, &key).filter(|set| set.count() > 1)?;
                let count = (set.count() * share / 100).clamp(1, set.count() - 1);
                let take = |member: &[u8]| seen.push(member.to_vec());
                let selected = draw::sample(txn, &key, &set, count, take).expect("draws");
                Some((count, selected))
            });
            if let Some((count, selected)) = asked {
                seen.extend(read_selected(selected));
                let distinct: Reference = seen.iter().cloned().collect();
                assert_eq!((seen.len() as u64, distinct.len() as u64), (count, count));
                assert!(distinct.is_subset(&model[name]));
            }
        }
        _ => operate(db, model, [name, other, third], random),
    }
    model.retain(|_, members| !members.is_empty());
    for name in [name, other, third] {
        let found: Reference = db.run(|txn| members(txn, &txn.key(name))).into_iter().collect();
        assert!(found == model.get(name).cloned().unwrap_or_default(), "{:?}", name.escape_ascii().to_string());
    }
}

/// An operation over two or three sets, looked at and stored, by either means.
fn operate(db: &mut Db, model: &mut Model, names: [&'static [u8]; 3], random: &mut Random) {
    let operation = random.pick(&[Operation::Union, Operation::Difference, Operation::Intersection]);
    let from = &names[..2 + random.below(2) as usize];
    let to = random.pick(&NAMES);
    let mut sets = from.iter().map(|name| model.get(name).cloned().unwrap_or_default());
    let first = sets.next().expect("there are two");
    let expected: Reference = sets.fold(first, |left, right| match operation {
        Operation::Union => left.union(&right).cloned().collect(),
        Operation::Difference => left.difference(&right).cloned().collect(),
        Operation::Intersection => left.intersection(&right).cloned().collect(),
    });
    let walked = db.run(|txn| {
        let keys: Vec<Key<'_>> = from.iter().map(|name| txn.key(name)).collect();
        let sets = merge::lookup(txn, &keys).expect("reads");
        merge::merge(txn, &keys, &sets, operation, Means::Walks).expect("merges").into_members()
    });
    let walked = read_all(walked);
    assert_eq!(walked.len(), expected.len(), "each once");
    assert!(walked.into_iter().collect::<Reference>() == expected, "{operation:?} of {from:?}");
    let stored = db.run(|txn| {
        let keys: Vec<Key<'_>> = from.iter().map(|name| txn.key(name)).collect();
        let sets = merge::lookup(txn, &keys).expect("reads");
        let merge = merge::merge(txn, &keys, &sets, operation, Means::Any).expect("merges");
        store::store(txn, &txn.key(to), merge, operation, &sets).expect("stores")
    });
    assert_eq!(stored, expected.len() as u64, "{operation:?} of {from:?}");
    if stored > 0 {
        model.insert(to, expected);
    }
}

#[test]
fn sets_are_those_of_std() {
    for (seed, mut db) in on_each_base(1..=5) {
        let (mut model, mut random) = (Model::new(), Random(seed));
        for round in 0..300 {
            step(&mut db, &mut model, &mut random);
            if round % 20 == 0 {
                db.check();
            }
            if random.below(30) == 0 {
                db.store.flush_now().expect("flushes to memory");
            }
            if random.below(60) == 0 {
                db.reopen();
            }
            if random.below(25) == 0 {
                let name = random.pick(&NAMES);
                db.run(|txn| key::delete(txn, &txn.key(name))).expect("deletes");
                model.remove(name);
            }
        }
        db.check();
    }
}

/// Chi-square of how often each of `count` things came, over its expectation if all are equally likely: the mean is 0,
/// the standard deviation 1.
fn deviation(found: &BTreeMap<Vec<u8>, u64>, count: usize) -> f64 {
    let draws: u64 = found.values().sum();
    let expected = draws as f64 / count as f64;
    let absent = (count - found.len()) as f64 * expected;
    let chi_square: f64 = found.values().map(|times| (*times as f64 - expected).powi(2) / expected).sum();
    let degrees = (count - 1) as f64;
    (chi_square + absent - degrees) / (2.0 * degrees).sqrt()
}

/// A packed set, one in a single interval of hashes, and larger ones.
const SIZES: [usize; 4] = [30, 66, 700, 3000];

fn fill(db: &mut Db, size: usize) {
    let all: Vec<Vec<u8>> = (0..size).map(|i| format!("m{i}").into_bytes()).collect();
    assert_eq!(db.run(|txn| add(txn, b"s", &all)), size as u64);
}

#[test]
fn every_member_is_drawn_equally_often() {
    for size in SIZES {
        let mut db = Db::new();
        fill(&mut db, size);
        if size == 700 {
            db.store.flush_now().expect("flushes to memory");
        }
        let mut found = BTreeMap::new();
        for seed in 0..size as u64 * 30 {
            let member = db.run_with_seed(seed, |txn| {
                let set = lookup(txn, &txn.key(b"s")).expect("is there");
                draw::draw(txn, set).expect("draws").to_vec()
            });
            *found.entry(member).or_insert(0) += 1;
        }
        let deviation = deviation(&found, size);
        assert!(deviation.abs() < 4.0, "{size} members: {deviation}");
    }
}

#[test]
fn every_member_is_in_as_many_samples() {
    for (size, share) in [(30, 3), (66, 2), (700, 2), (3000, 100), (3000, 2)] {
        let mut db = Db::new();
        fill(&mut db, size);
        let mut found = BTreeMap::new();
        for seed in 0..30 * share as u64 {
            let mut seen = Vec::new();
            let selected = db.run_with_seed(seed, |txn| {
                let key = txn.key(b"s");
                let set = lookup(txn, &key).expect("is there");
                let take = |member: &[u8]| seen.push(member.to_vec());
                draw::sample(txn, &key, &set, (size / share) as u64, take).expect("draws")
            });
            seen.extend(read_selected(selected));
            seen.into_iter().for_each(|member| *found.entry(member).or_insert(0) += 1);
        }
        // Members drawn without being put back vary less.
        let deviation = deviation(&found, size);
        assert!(deviation < 4.0, "{size} members, one in {share}: {deviation}");
    }
}

#[test]
fn what_is_popped_first_is_any_member() {
    for size in [30, 200] {
        let mut found = BTreeMap::new();
        let mut db = Db::new();
        for seed in 0..size as u64 * 30 {
            db.run(|txn| key::delete(txn, &txn.key(b"s"))).expect("deletes");
            fill(&mut db, size);
            // The fifth of those that go.
            for nth in 0..5 {
                let member = db.run_with_seed(seed * 5 + nth, |txn| {
                    let key = txn.key(b"s");
                    let set = lookup(txn, &key).expect("is there");
                    draw::pop(txn, &key, set).expect("pops").0.to_vec()
                });
                if nth == 4 {
                    *found.entry(member).or_insert(0) += 1;
                }
            }
        }
        let deviation = deviation(&found, size);
        assert!(deviation.abs() < 4.0, "{size} members: {deviation}");
    }
}

#[test]
fn too_many_draws_are_refused() {
    let mut db = Db::new();
    fill(&mut db, 3000);
    let mut draws = |count| {
        let mut seen = 0;
        let result = db.run(|txn| {
            let set = lookup(txn, &txn.key(b"s")).expect("is there");
            draw::sample_repeated(txn, &set, count, 20_000, |_| seen += 1).map(drop)
        });
        (result, seen)
    };
    assert_eq!(draws(1000), (Ok(()), 1000));
    assert_eq!(draws(u64::MAX).0, Err(Error::TooMany));
}

fn encoding(db: &mut Db, name: &[u8]) -> &'static str {
    db.run(|txn| {
        let entry = key::peek(txn, &txn.key(name)).expect("reads").expect("is there");
        value::encoding_name(&entry).expect("is one").expect("a set has one")
    })
}

/// The rules of t_set.c in Redis 7.2: `setTypeCreate`, `setTypeMaybeConvert` and `setTypeAddAux`, and the documentation
/// of `set-max-intset-entries`, `set-max-listpack-entries` and `set-max-listpack-value`.
#[test]
fn encodings_follow_the_limits_of_redis_7_2() {
    let numbers = |range: std::ops::Range<u64>| range.map(|i| i.to_string().into_bytes()).collect::<Vec<_>>();
    let words = |range: std::ops::Range<u64>| range.map(|i| format!("w{i}").into_bytes()).collect::<Vec<_>>();
    let one_by_one = |db: &mut Db, name: &[u8], all: Vec<Vec<u8>>| {
        all.into_iter().for_each(|member| {
            db.run(|txn| add(txn, name, &[member]));
        });
    };
    let mut db = Db::new();
    one_by_one(&mut db, b"i", numbers(0..512));
    assert_eq!(encoding(&mut db, b"i"), "intset");
    one_by_one(&mut db, b"i", numbers(512..513));
    assert_eq!(encoding(&mut db, b"i"), "hashtable");
    one_by_one(&mut db, b"w", words(0..128));
    assert_eq!(encoding(&mut db, b"w"), "listpack");
    one_by_one(&mut db, b"w", words(128..129));
    assert_eq!(encoding(&mut db, b"w"), "hashtable");
    one_by_one(&mut db, b"m", numbers(0..127));
    one_by_one(&mut db, b"m", words(0..1));
    assert_eq!(encoding(&mut db, b"m"), "listpack", "127 integers and a word");
    one_by_one(&mut db, b"n", numbers(0..128));
    one_by_one(&mut db, b"n", words(0..1));
    assert_eq!(encoding(&mut db, b"n"), "hashtable", "128 integers and a word");
    // So many equal members at once count as so many new ones.
    let same = vec![b"1".to_vec(); 513];
    db.run(|txn| add(txn, b"h", &same));
    assert_eq!(encoding(&mut db, b"h"), "hashtable");
    db.run(|txn| add(txn, b"g", &same[..129]));
    assert_eq!(encoding(&mut db, b"g"), "intset");
    db.run(|txn| add(txn, b"f", &vec![b"x".to_vec(); 129]));
    assert_eq!(encoding(&mut db, b"f"), "hashtable");

    let set_limit = |db: &Db, limit: EncodingLimit, value| limit.set(&db.store, value);
    set_limit(&db, EncodingLimit::SetIntsetEntries, 3);
    one_by_one(&mut db, b"i3", numbers(0..3));
    assert_eq!(encoding(&mut db, b"i3"), "intset");
    one_by_one(&mut db, b"i3", numbers(3..4));
    assert_eq!(encoding(&mut db, b"i3"), "hashtable");
    set_limit(&db, EncodingLimit::SetValue, 4);
    one_by_one(&mut db, b"v", vec![b"12345".to_vec(), b"word".to_vec()]);
    assert_eq!(encoding(&mut db, b"v"), "hashtable", "an integer of five digits is no entry of such a listpack");
    one_by_one(&mut db, b"v4", vec![b"1234".to_vec(), b"word".to_vec()]);
    assert_eq!(encoding(&mut db, b"v4"), "listpack");
    set_limit(&db, EncodingLimit::SetEntries, 0);
    one_by_one(&mut db, b"z", vec![b"a".to_vec()]);
    assert_eq!(encoding(&mut db, b"z"), "hashtable");
    set_limit(&db, EncodingLimit::SetIntsetEntries, 0);
    one_by_one(&mut db, b"z0", vec![b"1".to_vec()]);
    assert_eq!(encoding(&mut db, b"z0"), "hashtable");
}

#[test]
fn rows_of_an_unknown_format_are_refused() {
    let cases: &[(&str, &[u8])] = &[
        ("half a head", b"\x05\x00\x00\x00"),
        ("a member that is cut off", b"\x05\x00\x01\x00\x01\x05abc"),
        ("an object that is cut off", b"\x06\x00\x00\x00\x00\x00"),
        ("a count that is cut off", b"\x06\x00\0\0\0\0\0\0\0\x01\0\0\x02\0\0\0"),
    ];
    for (case, row) in cases {
        let mut db = Db::new();
        db.run(|txn| txn.put_meta(&txn.key(b"k"), &[row])).expect("writes");
        let result = db.run(|txn| match Set::lookup(txn, &txn.key(b"k")) {
            Ok(set) => set.expect("is there").contains(txn, b"x"),
            Err(error) => Err(error),
        });
        assert!(matches!(result, Err(Error::Stop(Stop::Failed(_)))), "{case}: {result:?}");
    }
}
