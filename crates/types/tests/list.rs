//! Random operations on a few lists against queues: elements, lengths and encodings agree after each, with many changes
//! in the middle, with flushes and reopens in between, and with bounds that are crossed in every form.

mod common;

use common::{Db, Random, on_each_base};
use haypile_store::{Direction, Key, Txn};
use haypile_types::EncodingLimit;
use haypile_types::key::{self, Entry};
use haypile_types::list::{self, Beside, List, Side};
use haypile_types::{listpack, value};
use std::collections::{HashMap, VecDeque};
use std::ops::{ControlFlow, Range};

const NAMES: [&[u8]; 3] = [b"a", b"{a}b", b""];

/// A list, and whether Redis 7.2 would have it as a quicklist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Queue {
    elements: VecDeque<Vec<u8>>,
    is_quicklist: bool,
}

type Model = HashMap<&'static [u8], Queue>;

impl Queue {
    /// Grows the model as Redis does before it adds elements.
    fn grow(&mut self, limit: i64, added: &[Vec<u8>], count: usize) {
        let entries: usize = self.elements.iter().map(|element| listpack::entry_bytes(element)).sum();
        let bytes = listpack::EMPTY_BYTES + entries + added.iter().map(Vec::len).sum::<usize>();
        self.is_quicklist |= listpack::exceeds(limit, bytes, (self.elements.len() + count) as u64);
    }

    fn push(&mut self, side: Side, element: Vec<u8>) {
        match side {
            Side::Head => self.elements.push_front(element),
            Side::Tail => self.elements.push_back(element),
        }
    }

    fn remove(&mut self, from: Side, limit: usize, element: &[u8]) -> usize {
        let equal = (0..self.elements.len()).filter(|index| self.elements[*index] == element).collect::<Vec<_>>();
        let removed = equal.len().min(limit);
        let gone = if from == Side::Head { &equal[..removed] } else { &equal[equal.len() - removed..] };
        for index in gone.iter().rev() {
            self.elements.remove(*index);
        }
        removed
    }
}

fn some_element(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        0 => vec![b'l'; random.pick(&[0, 63, 64, 127, 128, 1000, 1100])],
        1..=4 => random.below(300).to_string().into_bytes(),
        _ => format!("e{}", random.below(40)).into_bytes(),
    }
}

fn some_side(random: &mut Random) -> Side {
    random.pick(&[Side::Head, Side::Tail])
}

fn some_range(random: &mut Random, length: usize) -> Range<usize> {
    let start = random.below(length as u64 + 1) as usize;
    start..start + random.below((length - start) as u64 + 1) as usize
}

/// One operation on a list of `name`, in rows more often than not; `crowd` is how many elements are pushed at most.
fn step(db: &mut Db, model: &mut Model, random: &mut Random, crowd: u64) {
    let (name, other) = (random.pick(&NAMES), random.pick(&NAMES));
    let limit = db.run(|txn| EncodingLimit::ListSize.of(txn));
    let queue = model.entry(name).or_default();
    let length = queue.elements.len();
    match random.below(24) {
        0..=4 => push(db, queue, name, random, (limit, crowd)),
        5..=6 if length > 0 => {
            let side = some_side(random);
            let popped = on_list(db, name, |txn, key, list| list::pop(txn, key, list, side).expect("writes").to_vec());
            let expected = if side == Side::Head { queue.elements.pop_front() } else { queue.elements.pop_back() };
            assert_eq!(Some(popped), expected);
        }
        7..=8 if length > 0 => {
            // Little goes more often than much.
            let bound = random.pick(&[2, 2, 10, length as u64 + 1]).min(length as u64 + 1);
            let start = random.below(bound) as usize;
            let keep = start..length - random.below(bound).min((length - start) as u64) as usize;
            let kept = keep.start as u64..keep.end as u64;
            on_list(db, name, |txn, key, list| list::trim(txn, key, list, kept).expect("writes"));
            queue.elements = queue.elements.range(keep).cloned().collect();
        }
        9..=10 if length > 0 => {
            let (index, element) = (random.below(length as u64), some_element(random));
            queue.grow(limit, std::slice::from_ref(&element), 0);
            on_list(db, name, |txn, key, list| list::set(txn, key, list, index, &element).expect("writes"));
            queue.elements[index as usize] = element;
        }
        11..=16 if length > 0 => insert(db, queue, name, random, limit),
        17..=20 if length > 0 => {
            let element = queue.elements[random.below(length as u64) as usize].clone();
            let (from, most) = (some_side(random), random.pick(&[1, 1, 2, 5, u64::MAX]));
            let remove = |txn: &mut Txn<'_>, key: &Key<'_>, list| {
                list::remove(txn, key, list, from, most, &element).expect("writes")
            };
            let removed = on_list(db, name, remove);
            assert_eq!(removed, queue.remove(from, most.min(usize::MAX as u64) as usize, &element) as u64);
        }
        21 if random.below(4) == 0 => {
            db.run(|txn| key::delete(txn, &txn.key(name))).expect("deletes");
            model.remove(name);
        }
        22 if name != other => {
            db.run(|txn| {
                let (from, to) = (txn.key(name), txn.key(other));
                let Some(entry) = key::lookup_write(txn, &from).expect("reads") else { return };
                let replaced = key::lookup_overwrite(txn, &to).expect("reads");
                value::copy(txn, &from, &entry, &to, replaced.as_ref()).expect("writes");
            });
            if let Some(copied) = model.get(name).filter(|queue| !queue.elements.is_empty()).cloned() {
                model.insert(other, copied);
            }
        }
        _ => {}
    }
    model.retain(|_, queue| !queue.elements.is_empty());
    for name in [name, other] {
        compare(db, model.get(name), name, random);
    }
}

/// Runs a change of a list that is there.
fn on_list<T>(db: &mut Db, name: &[u8], change: impl FnOnce(&mut Txn<'_>, &Key<'_>, List) -> T) -> T {
    db.run(|txn| {
        let key = txn.key(name);
        let list = list::edit(txn, &key).expect("reads").expect("is there");
        change(txn, &key, list)
    })
}

/// Pushes up to `crowd` elements on one side.
fn push(db: &mut Db, queue: &mut Queue, name: &[u8], random: &mut Random, (limit, crowd): (i64, u64)) {
    let side = some_side(random);
    let count = if random.below(3) == 0 { random.below(crowd) + 1 } else { random.below(3) + 1 };
    let elements: Vec<_> = (0..count).map(|_| some_element(random)).collect();
    queue.grow(limit, &elements, elements.len());
    let pushed = db.run(|txn| {
        let key = txn.key(name);
        let list = list::edit(txn, &key).expect("reads");
        list::push(txn, &key, list, side, elements.iter().map(|element| &element[..])).expect("writes")
    });
    elements.into_iter().for_each(|element| queue.push(side, element));
    assert_eq!(pushed, queue.elements.len() as u64);
}

/// Inserts elements beside a pivot, few or many.
fn insert(db: &mut Db, queue: &mut Queue, name: &[u8], random: &mut Random, limit: i64) {
    // Few places, so that an inserted element is often a pivot again.
    let pivot = queue.elements[random.below(queue.elements.len() as u64) as usize].clone();
    let pivot = if random.below(8) == 0 { some_element(random) } else { pivot };
    let beside = random.pick(&[Beside::Before, Beside::After]);
    for _ in 0..random.pick(&[1, 1, 3, 30]) {
        let element = some_element(random);
        let insert = |txn: &mut Txn<'_>, key: &Key<'_>, list| {
            list::insert(txn, key, list, beside, &pivot, &element).expect("writes")
        };
        let inserted = on_list(db, name, insert);
        let Some(at) = queue.elements.iter().position(|element| *element == pivot) else {
            assert_eq!(inserted, None);
            break;
        };
        queue.grow(limit, std::slice::from_ref(&element), 1);
        queue.elements.insert(at + usize::from(beside == Beside::After), element);
        assert_eq!(inserted, Some(queue.elements.len() as u64));
    }
}

fn compare(db: &mut Db, expected: Option<&Queue>, name: &[u8], random: &mut Random) {
    let shown = name.escape_ascii().to_string();
    db.run(|txn| {
        let key = txn.key(name);
        let Some(entry) = key::lookup(txn, &key).expect("reads") else {
            assert_eq!(expected, None, "{shown:?} is not there");
            return;
        };
        let Queue { elements, is_quicklist } = expected.unwrap_or_else(|| panic!("{shown:?} is there"));
        let encoding = if *is_quicklist { "quicklist" } else { "listpack" };
        assert_eq!(value::encoding_name(&entry), Ok(Some(encoding)), "{shown:?} of {}", elements.len());
        let mut list = List::of(&key, entry).expect("a list");
        assert_eq!(list.defect(txn, &key), Ok(None), "{shown:?}");
        assert_eq!(list.len(), elements.len() as u64);
        let index = random.below(list.len());
        assert_eq!(list.get(txn, index).expect("reads")[..], elements[index as usize][..], "at {index}");
        let range = some_range(random, elements.len());
        for direction in [Direction::Forward, Direction::Backward] {
            let mut found: Vec<Vec<u8>> = Vec::new();
            list.visit(txn, range.start as u64..range.end as u64, direction, |element| {
                found.push(element.to_vec());
                ControlFlow::Continue(())
            })
            .expect("reads");
            let mut wanted: Vec<Vec<u8>> = elements.range(range.clone()).cloned().collect();
            if direction == Direction::Backward {
                wanted.reverse();
            }
            assert!(found == wanted, "{shown:?}, {range:?}: {} elements, not {}", found.len(), wanted.len());
        }
    });
}

fn run(seeds: Range<u64>, rounds: u64, crowd: u64) {
    for (seed, mut db) in on_each_base(seeds) {
        let (mut model, mut random) = (Model::new(), Random(seed));
        for round in 0..rounds {
            if random.below(40) == 0 {
                let limit = random.pick(&[-2, -1, 3, 40, 128]);
                EncodingLimit::ListSize.set(&db.store, limit);
            }
            step(&mut db, &mut model, &mut random, crowd);
            if round % 50 == 0 {
                db.check();
            }
            if random.below(60) == 0 {
                db.store.flush_now().expect("flushes to memory");
            }
            if random.below(100) == 0 {
                let limit = db.run(|txn| EncodingLimit::ListSize.of(txn));
                db.reopen();
                EncodingLimit::ListSize.set(&db.store, limit);
            }
        }
        db.check();
    }
}

#[test]
fn lists_are_those_of_queues() {
    run(1..5, 1500, 40);
}

#[test]
fn long_lists_are_those_of_queues() {
    run(11..14, 600, 3000);
}

/// Puts numbered elements into a list.
fn fill(db: &mut Db, name: &[u8], count: u64) {
    for step in 0..count.div_ceil(1000) {
        let elements: Vec<String> = (step * 1000..count.min((step + 1) * 1000)).map(|n| n.to_string()).collect();
        db.run(|txn| {
            let key = txn.key(name);
            let list = list::edit(txn, &key).expect("reads");
            list::push(txn, &key, list, Side::Tail, elements.iter().map(|e| e.as_bytes())).expect("writes");
        });
    }
}

fn check_defects(db: &mut Db, name: &[u8]) -> u64 {
    db.run(|txn| {
        let key = txn.key(name);
        let mut list = list::read(txn, &key).expect("reads").expect("is there");
        assert_eq!(list.defect(txn, &key), Ok(None));
        list.len()
    })
}

#[test]
fn many_elements_come_in_at_one_place() {
    for beside in [Beside::Before, Beside::After] {
        let mut db = Db::new();
        fill(&mut db, b"l", 300);
        let mut expected: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        for number in 0..3000 {
            let element = format!("x{number}");
            db.run(|txn| {
                let key = txn.key(b"l");
                let list = list::edit(txn, &key).expect("reads").expect("is there");
                list::insert(txn, &key, list, beside, b"100", element.as_bytes()).expect("writes");
            });
            // The pivot is behind the elements that came in before it, and before those that came in behind it.
            let at = if beside == Beside::Before { 100 + number } else { 101 };
            expected.insert(at, element);
            if number % 500 == 0 {
                check_defects(&mut db, b"l");
            }
        }
        assert_eq!(check_defects(&mut db, b"l"), 3300);
        let mut found = Vec::new();
        db.run(|txn| {
            let key = txn.key(b"l");
            let mut list = list::read(txn, &key).expect("reads").expect("is there");
            list.visit(txn, 0..3300, Direction::Forward, |element| {
                found.push(String::from_utf8_lossy(element).into_owned());
                ControlFlow::Continue(())
            })
            .expect("reads");
        });
        assert!(found == expected);
    }
}

#[test]
fn every_other_element_goes() {
    let mut db = Db::new();
    for number in 0..20_000u32 {
        let element = if number % 2 == 0 { "gone".to_string() } else { number.to_string() };
        db.run(|txn| {
            let key = txn.key(b"l");
            let list = list::edit(txn, &key).expect("reads");
            list::push(txn, &key, list, Side::Tail, std::iter::once(element.as_bytes())).expect("writes");
        });
    }
    let remove = |db: &mut Db, from, limit| {
        db.run(|txn| {
            let key = txn.key(b"l");
            let list = list::edit(txn, &key).expect("reads").expect("is there");
            list::remove(txn, &key, list, from, limit, b"gone").expect("writes")
        })
    };
    for (from, limit) in [(Side::Head, 3000), (Side::Tail, 3000), (Side::Head, 1)] {
        assert_eq!(remove(&mut db, from, limit), limit);
        check_defects(&mut db, b"l");
    }
    assert_eq!(remove(&mut db, Side::Tail, u64::MAX), 10_000 - 6001);
    assert_eq!(check_defects(&mut db, b"l"), 10_000);
    db.check();
}

#[test]
fn a_change_in_the_middle_of_many_elements_costs_little() {
    let mut db = Db::new();
    fill(&mut db, b"l", 40_000);
    let insert = |txn: &mut haypile_store::Txn<'_>, pivot: &str| {
        let key = txn.key(b"l");
        let list = list::edit(txn, &key).expect("reads").expect("is there");
        list::insert(txn, &key, list, Beside::After, pivot.as_bytes(), b"new").expect("writes");
    };
    for pivot in (1000..39_000).step_by(997) {
        let (bytes, rows) = db.logged(|txn| insert(txn, &pivot.to_string()));
        assert!(bytes < 2000 && rows <= 6, "inserting behind {pivot}: {bytes} bytes, {rows} rows");
    }
    for element in (1500..39_000).step_by(997) {
        let (bytes, rows) = db.logged(|txn| {
            let key = txn.key(b"l");
            let list = list::edit(txn, &key).expect("reads").expect("is there");
            let removed = list::remove(txn, &key, list, Side::Head, 1, element.to_string().as_bytes());
            assert_eq!(removed, Ok(1));
        });
        assert!(bytes < 2000 && rows <= 6, "removing {element}: {bytes} bytes, {rows} rows");
    }
    for side in [Side::Head, Side::Tail] {
        let (bytes, rows) = db.logged(|txn| {
            let key = txn.key(b"l");
            let list = list::edit(txn, &key).expect("reads");
            list::push(txn, &key, list, side, std::iter::once(&b"end"[..])).expect("writes");
        });
        assert!(bytes < 300 && rows <= 4, "pushing to {side:?}: {bytes} bytes, {rows} rows");
    }
    assert_eq!(check_defects(&mut db, b"l"), 40_003);
}

#[test]
fn little_that_stays_of_much_is_cheap() {
    let mut db = Db::new();
    fill(&mut db, b"l", 300_000);
    for keep in [100..299_900, 1000..299_000, 150_000..151_000] {
        let length = check_defects(&mut db, b"l");
        let (removed, kept) = (length - (keep.end - keep.start), keep.end - keep.start);
        let (bytes, _) = db.logged(|txn| {
            let key = txn.key(b"l");
            let list = list::edit(txn, &key).expect("reads").expect("is there");
            list::trim(txn, &key, list, keep.clone()).expect("writes");
        });
        assert!(bytes as u64 <= 200 + removed.min(kept) * 40, "{keep:?}: {bytes} bytes");
        assert_eq!(check_defects(&mut db, b"l"), kept);
        if keep.start == 1000 {
            // So that the last range lies within it.
            fill(&mut db, b"l", 2000);
        }
    }
}

/// An end of the list wanders far when elements come at one end and go at the other.
#[test]
fn a_list_that_wanders_to_the_end_of_all_positions_goes_on() {
    let mut db = Db::new();
    fill(&mut db, b"l", 100);
    db.run(|txn| {
        let key = txn.key(b"l");
        let entry = key::lookup(txn, &key).expect("reads").expect("is there");
        let mut payload = entry.payload().to_vec();
        // Near the upper end, as if thousands of millions had come and gone; no element lies there, so one is put
        // there.
        let first: u64 = 0xffff_fffe_ffff_0000 - 3 * 65_536;
        let at = payload.len() - 24;
        payload[at - 4 - 8..at - 4].copy_from_slice(&1u64.to_be_bytes());
        payload[at..at + 8].copy_from_slice(&first.to_be_bytes());
        payload[at + 8..at + 16].copy_from_slice(&first.to_be_bytes());
        let object = entry.header.object.expect("it lies in rows");
        let row = haypile_store::row::data_row(key.space, object.slot, object.id, &first.to_be_bytes());
        txn.put_row(&row, &[b"0"]).expect("writes");
        key::write(txn, &key, Some(&entry.header), &entry.header, &[&payload]).expect("writes");
    });
    for number in 1..20u32 {
        db.run(|txn| {
            let key = txn.key(b"l");
            let list = list::edit(txn, &key).expect("reads");
            list::push(txn, &key, list, Side::Tail, std::iter::once(number.to_string().as_bytes())).expect("writes");
        });
    }
    let mut found = Vec::new();
    db.run(|txn| {
        let key = txn.key(b"l");
        let mut list = list::read(txn, &key).expect("reads").expect("is there");
        list.visit(txn, 0..20, Direction::Forward, |element| {
            found.push(String::from_utf8_lossy(element).into_owned());
            ControlFlow::Continue(())
        })
        .expect("reads");
    });
    assert_eq!(found, (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn damaged_headers_are_refused() {
    let mut db = Db::new();
    fill(&mut db, b"l", 100);
    let payload = db.run(|txn| key::lookup(txn, &txn.key(b"l")).expect("reads").expect("is there").payload().to_vec());
    let length = payload.len();
    for (name, at, byte) in [("count", length - 29, 99), ("first", length - 24, 0x81), ("last", length - 9, 1)] {
        let mut damaged = payload.clone();
        damaged[at] = byte;
        let row = [&[8, 0][..], &damaged].concat();
        let entry = Entry::parse(row.into()).expect("a header");
        let result = db.run(|txn| List::of(&txn.key(b"l"), entry).map(|list| list.len()));
        assert!(result.is_err(), "{name}: {result:?}");
    }
}
