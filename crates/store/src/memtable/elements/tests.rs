//! The rows of an object against an ordered map, however the elements lie.

use super::super::{Change, Patch};
use super::*;
use haypile_log::testing::Random;
use std::collections::BTreeMap;

/// Runs random writes on the structure and on an ordered map, with elements drawn by `draw`.
fn check(what: &str, count: usize, removes: bool, mut draw: impl FnMut(&mut Random, usize) -> Vec<u8>) {
    let mut random = Random(7);
    let (mut elements, mut map, mut bytes) = (Elements::default(), BTreeMap::new(), 0);
    let row_of = |element: &[u8]| [&[9; PREFIX], element].concat();
    for at in 0..count {
        let element = draw(&mut random, at);
        let row = row_of(&element);
        match random.below(12) {
            0 if removes => {
                let gone = elements.remove(&element);
                bytes -= gone.as_ref().map_or(0, RowEntry::bytes);
                assert_eq!(gone.is_some(), map.remove(&element).is_some(), "{what}");
            }
            1 => {
                bytes += elements.put(&row, None, Index(at as u64));
                map.insert(element, None);
            }
            2 => {
                let patch = Change::Patch(Patch { offset: 1, bytes: b"p", len_after: 2 + random.below(8) as u32 });
                let patched =
                    elements.get_mut(&element).map(|entry| entry.change(patch, Index(at as u64), Stamp::UNUSED));
                bytes += patched.unwrap_or(0);
                let expected = map.get_mut(&element);
                assert_eq!(patched.is_some(), expected.is_some(), "{what}");
                if let Some(value) = expected {
                    *value = Some(patch.apply(value.as_deref().unwrap_or_default()));
                }
            }
            _ => {
                let value = vec![at as u8; random.below(40) as usize];
                bytes += elements.put(&row, Some(&value), Index(at as u64));
                map.insert(element, Some(value));
            }
        }
        let element = draw(&mut random, at);
        let expected = map.get(&element).map(|value: &Option<Vec<u8>>| value.as_deref());
        assert_eq!(elements.get(&element).map(RowEntry::value), expected, "{what}");
        if at.is_multiple_of(count / 20) {
            let (a, b) = (draw(&mut random, at), draw(&mut random, at / 2));
            check_range(what, &elements, &map, a.clone().min(b.clone()), a.max(b));
        }
    }
    check_range(what, &elements, &map, Vec::new(), vec![u8::MAX; 20]);
    assert_eq!(elements.all().map(RowEntry::bytes).sum::<i64>(), bytes, "{what}");
    let mut gone = Vec::new();
    while !elements.is_empty() {
        let before = gone.len();
        elements.take(100, &mut gone);
        assert!(gone.len() - before <= 100 && gone.len() > before, "{what}");
    }
    assert_eq!(gone.len(), map.len(), "{what}");
}

#[test]
fn a_deletion_leaves_a_trace_only_where_it_hides_something() {
    let row_of = |element: &[u8]| [&[9; PREFIX], element].concat();
    let (mut below, mut elements, mut bytes) = (Elements::default(), Elements::default(), 0);
    below.put(&row_of(b"below"), Some(b"old"), Index(1));
    below.put(&row_of(b"both"), Some(b"old"), Index(2));
    bytes += elements.put(&row_of(b"above"), Some(b"new"), Index(3));
    bytes += elements.put(&row_of(b"both"), Some(b"new"), Index(4));
    for (at, element) in [&b"above"[..], b"below", b"both"].iter().enumerate() {
        bytes += elements.hide(&row_of(element), &below, Index(5 + at as u64));
    }
    let left: Vec<_> = elements.all().map(|row| (row.behind::<PREFIX>(), row.value(), row.index())).collect();
    assert_eq!(left, [(&b"below"[..], None, Index(6)), (b"both", None, Index(7))]);
    assert_eq!(elements.all().map(RowEntry::bytes).sum::<i64>(), bytes);
    // A deletion with nothing below leaves the object empty, too.
    let mut elements = Elements::default();
    let grown = elements.put(&row_of(b"above"), Some(b"new"), Index(8));
    assert_eq!(grown + elements.hide(&row_of(b"above"), &below, Index(9)), 0);
    assert!(elements.is_empty());
}

fn check_range(
    what: &str,
    elements: &Elements,
    map: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    from: Vec<u8>,
    until: Vec<u8>,
) {
    let row = |entry: &RowEntry| (entry.row()[PREFIX..].to_vec(), entry.value().map(<[u8]>::to_vec));
    let expected: Vec<_> = map.range(from.clone()..until.clone()).map(|(k, v)| (k.clone(), v.clone())).collect();
    let up: Vec<_> = elements.range(&from, Some(&until)).map(row).collect();
    assert!(up == expected, "{what}: up, {} rows, {} expected", up.len(), expected.len());
    let mut down: Vec<_> = elements.range(&from, Some(&until)).rev().map(row).collect();
    down.reverse();
    assert!(down == expected, "{what}: down, {} rows, {} expected", down.len(), expected.len());
    let mut both = elements.range(&from, Some(&until));
    let mut met = 0;
    while both.next().is_some() {
        met += 1 + usize::from(both.next_back().is_some());
    }
    assert_eq!(met, expected.len(), "{what}: from both ends");
}

#[test]
fn it_does_what_an_ordered_map_does_however_the_elements_lie() {
    let name = |random: &mut Random, names: u64| format!("name:{}", random.below(names)).into_bytes();
    check("few", 2_000, true, |random, _| name(random, 40));
    check("names", 60_000, true, |random, _| name(random, 30_000));
    check("hashes", 60_000, true, |random, _| (random.below(1 << 14) as u32).reverse_bits().to_be_bytes().to_vec());
    check("one order", 40_000, true, |random, _| [&[0; 8][..], &name(random, 9_000)].concat());
    check("few orders", 40_000, true, |random, _| [&random.below(4).to_be_bytes()[..], &name(random, 3_000)].concat());
    check("short ones", 5_000, true, |random, _| vec![0; random.below(12) as usize]);
    check("ascending", 60_000, false, |_, at| (at as u64).to_be_bytes().to_vec());
    check("descending", 60_000, false, |_, at| (u64::MAX - at as u64).to_be_bytes().to_vec());
    check("both ends", 60_000, true, |random, at| {
        let middle = 1u64 << 63;
        let far = (at as u64) << 16;
        (if random.chance(50) { middle + far } else { middle - far }).to_be_bytes().to_vec()
    });
    check("scores", 60_000, true, |random, _| {
        let bits = f64::from_bits(random.number()).to_bits();
        let order = if bits >> 63 == 0 { bits | 1 << 63 } else { !bits };
        [&order.to_be_bytes()[..], &name(random, 3)].concat()
    });
}

#[test]
fn all_rows_are_at_equally_many_places() {
    for count in [1, 100, 128, 129, 3000, 20_000u64] {
        let mut elements = Elements::default();
        let mut random = Random(3);
        let rows: Vec<u64> = (0..count).map(|_| random.number()).collect();
        rows.iter().for_each(|row| {
            elements.put(&[&[9; PREFIX][..], &row.to_be_bytes()].concat(), Some(b"v"), Index(1));
        });
        let mut met: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut found = 0;
        while found < 40 * count {
            if let Some(row) = elements.at_place(random.number()) {
                *met.entry(row.row().to_vec()).or_default() += 1;
                found += 1;
            }
        }
        let chi_square: f64 = met.values().map(|times| (*times as f64 - 40.0).powi(2) / 40.0).sum();
        let degrees = (count - 1).max(1) as f64;
        let deviation = (chi_square + 40.0 * (count - met.len() as u64) as f64 - degrees) / (2.0 * degrees).sqrt();
        assert!(deviation < 4.0, "{count} rows: {deviation}");
    }
}

#[test]
fn runs_at_the_ends_are_full() {
    for up in [true, false] {
        let mut elements = Elements::default();
        for number in 0..100_000u64 {
            let position = if up { (1 << 63) + number } else { (1 << 63) - number };
            elements.put(&[&[9; PREFIX][..], &position.to_be_bytes()].concat(), Some(b"v"), Index(1));
        }
        let Elements::Many(groups) = &elements else { panic!("they are many") };
        let runs: usize = groups.parts.iter().map(Parts::len).sum();
        assert!(groups.len() <= runs / GROUP_MAX + 2, "{} groups", groups.len());
        assert!(runs <= 100_000 / RUN_MAX + 2, "{runs} runs");
    }
}
