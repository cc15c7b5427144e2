//! The producers of a stream, and the IDs that make their entries idempotent.

use super::model::{KEY, new_stream, stream};
use crate::common::{Db, Random, on_each_base};
use haypile_types::stream::StreamId;
use std::collections::{BTreeMap, BTreeSet};

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
                set_bounds(&mut db, bounds);
                if bounds != (seconds, most) {
                    known.clear();
                    (seconds, most) = bounds;
                }
            }
            let (producer, name) = (random.pick(&PRODUCERS), random.below(12).to_string().into_bytes());
            let found = find_or_add(&mut db, producer, &name, round);
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
        the_first_go_with_those_that_come(&mut db);
    }
}

fn set_bounds(db: &mut Db, (seconds, most): (u32, u32)) {
    db.run(|txn| {
        let (key, stream) = (txn.key(KEY), stream(txn));
        let mut producers = stream.edit_producers(txn).expect("reads");
        producers.set_bounds(txn, seconds, most).expect("writes");
        producers.save(txn, &key).expect("writes");
    });
}

/// Returns the entry that has an ID already; adds one, of this number, where there is none.
fn find_or_add(db: &mut Db, producer: &[u8], name: &[u8], number: u64) -> Option<StreamId> {
    let now_ms = db.now_ms;
    db.run(|txn| {
        let (key, mut stream) = (txn.key(KEY), stream(txn));
        let mut producers = stream.edit_producers(txn).expect("reads");
        let found = producers.find(txn, producer, name).expect("reads");
        match found {
            Some(_) => producers.state.duplicates += 1,
            None => {
                let id = StreamId::new(now_ms, number);
                stream.append(txn, &key, id, [&b"f"[..], b"v"].into_iter()).expect("writes");
                producers.add(txn, producer, name, id).expect("writes");
                stream.save(txn, &key).expect("writes");
            }
        }
        producers.save(txn, &key).expect("writes");
        found
    })
}

/// Checks that IDs whose time is over go with those that come.
fn the_first_go_with_those_that_come(db: &mut Db) {
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
