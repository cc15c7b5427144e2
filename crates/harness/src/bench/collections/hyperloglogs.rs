//! The cases of bitmaps and HyperLogLogs.
//!
//! Data sets: one bitmap of 16 MB, filled; 1000 HyperLogLogs of about a thousand elements (dense), 10,000 of ten
//! (sparse).

use super::cases::{Case, Fill, Words, any, case, named, words};
use crate::random::Random;

const BITMAP_BITS: u64 = 16 << 23;
const PIECE: u64 = 64 << 10;
const PIECES: u64 = BITMAP_BITS / 8 / PIECE;

/// A whole bitmap, which a scaled-down measurement fills, too.
const BITMAP: Fill = Fill {
    requests: PIECES,
    make: |_, n| {
        let at = n % PIECES * PIECE;
        words(&[&"SETRANGE", &"bitmap", &at.to_string(), &vec![0x5a; PIECE as usize]])
    },
};

const DENSE: u64 = 1000;
const SPARSE: u64 = 10_000;
const ELEMENTS: u64 = 1_000_000;

fn pfadd(key: String, first: u64, count: u64) -> Words {
    let mut words = words(&[&"PFADD", &key]);
    words.extend((first..first + count).map(|number| named("element", number).into_bytes()));
    words
}

const DENSE_ONES: Fill = Fill { requests: DENSE * 20, make: |_, n| pfadd(named("dense", n % DENSE), n * 100, 100) };
const SPARSE_ONES: Fill = Fill { requests: SPARSE, make: |_, n| pfadd(named("sparse", n % SPARSE), n * 10, 10) };

fn merged(random: &mut Random, prefix: &str, keys: u64) -> Words {
    let target = format!("merged:{prefix}");
    words(&[&"PFMERGE", &any(random, &target, 100), &any(random, prefix, keys), &any(random, prefix, keys)])
}

fn bit(random: &mut Random) -> String {
    random.below(BITMAP_BITS).to_string()
}

pub static CASES: &[Case] = &[
    case("setbit", "SETBIT in a bitmap of 16 MB", |random, n| {
        words(&[&"SETBIT", &"bitmap", &bit(random), &(n % 2).to_string()])
    })
    .with(BITMAP)
    .at_most(1.3),
    case("getbit", "GETBIT of a bitmap of 16 MB", |random, _| words(&[&"GETBIT", &"bitmap", &bit(random)]))
        .with(BITMAP)
        .at_most(1.3),
    case("bitcount", "BITCOUNT of 16 MB", |_, _| words(&[&"BITCOUNT", &"bitmap"]))
        .with(BITMAP)
        .pipelined(1)
        .times(500)
        .at_most(1.5),
    case("pfadd", "PFADD to a thousand HyperLogLogs", |random, _| {
        words(&[&"PFADD", &any(random, "pf", DENSE), &any(random, "element", ELEMENTS)])
    })
    .at_most(1.1),
    case("pfadd-new", "PFADD to 100 thousand HyperLogLogs", |random, _| {
        words(&[&"PFADD", &any(random, "pfnew", 100_000), &any(random, "element", ELEMENTS)])
    })
    .at_most(1.1),
    case("pfadd-one", "PFADD to one HyperLogLog", |random, _| {
        words(&[&"PFADD", &"pfone", &any(random, "element", ELEMENTS)])
    })
    .at_most(1.1),
    case("pfcount", "PFCOUNT", |random, _| words(&[&"PFCOUNT", &any(random, "dense", DENSE)]))
        .with(DENSE_ONES)
        .at_most(1.1),
    case("pfcount-changed", "PFCOUNT and PFADD by turns", |random, n| match n % 2 {
        0 => words(&[&"PFADD", &any(random, "dense", 50), &any(random, "new", ELEMENTS)]),
        _ => words(&[&"PFCOUNT", &any(random, "dense", 50)]),
    })
    .with(DENSE_ONES)
    .times(200_000)
    .at_most(1.1),
    case("pfcount-union", "PFCOUNT of two", |random, _| {
        words(&[&"PFCOUNT", &any(random, "dense", DENSE), &any(random, "dense", DENSE)])
    })
    .with(DENSE_ONES)
    .times(50_000)
    .at_most(1.1),
    case("pfmerge", "PFMERGE of two large ones", |random, _| merged(random, "dense", DENSE))
        .with(DENSE_ONES)
        .times(30_000)
        .at_most(1.1),
    case("pfmerge-small", "PFMERGE of two of ten elements", |random, _| merged(random, "sparse", SPARSE))
        .with(SPARSE_ONES)
        .times(50_000)
        .at_most(1.1),
];
