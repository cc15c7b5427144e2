//! The geospatial commands, for `generate`: a few keys of their own, members that crowd around a few centers so that
//! searches find some, and the corners of the map. No two members are at one position: which of several equally distant
//! ones Redis returns is not defined where fewer than all are asked for.

use super::arguments::Arguments;
use super::sequence::Command;

/// The centers of crowds: longitude, latitude.
const CENTERS: &[(f64, f64)] = &[
    (13.4, 38.1),
    (15.0, 37.5),
    (-122.4, 37.8),
    (179.99, 0.01),
    (-179.99, -0.01),
    (0.0, 66.5),
    (25.0, 80.5),
    (30.0, -84.9),
];

/// Positions at the edges, each with a member of its own.
const CORNERS: &[(&str, &str)] = &[
    ("180", "85.05112878"),
    ("-180", "-85.05112878"),
    ("180", "-85.05112878"),
    ("0", "0"),
    ("-0", "1e-3"),
    ("-180", "0"),
    ("0x10", ".5"),
    ("89.9999999999", "-5e1"),
];

const UNITS: &[&str] = &["m", "km", "ft", "mi", "M", "Km", "cm"];

fn key(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(20) {
        0 => a.key(),
        1..=14 => b"geo".to_vec(),
        15..=18 => b"geo2".to_vec(),
        _ => b"geo3".to_vec(),
    }
}

fn member(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(30) {
        0 => format!("corner{}", a.random.below(CORNERS.len() as u64)).into_bytes(),
        1 => vec![b'g'; 70],
        2 => Vec::new(),
        _ => format!("p{}", a.random.below(120)).into_bytes(),
    }
}

/// Returns degrees around a value, as text with some digits.
fn around(a: &mut Arguments, degrees: f64, spread: f64, max: f64) -> Vec<u8> {
    let part = a.random.below(1 << 30) as f64 / (1u64 << 29) as f64 - 1.0;
    let value = (degrees + part * spread).clamp(-max, max);
    let digits = a.random.between(6, 15) as usize;
    format!("{value:.digits$}").into_bytes()
}

fn place(a: &mut Arguments) -> [Vec<u8>; 2] {
    let (longitude, latitude) = *a.random.pick(CENTERS);
    let spread = *a.random.pick(&[0.05, 0.5, 5.0, 60.0]);
    [around(a, longitude, spread, 180.0), around(a, latitude, spread, 85.05)]
}

/// Returns a position that may be malformed.
fn some_place(a: &mut Arguments) -> [Vec<u8>; 2] {
    match a.random.below(25) {
        0 => [a.odd(), place(a)[1].clone()],
        1 => [place(a)[0].clone(), a.number()],
        2 => {
            let (longitude, latitude) = *a.random.pick(CORNERS);
            [longitude.as_bytes().to_vec(), latitude.as_bytes().to_vec()]
        }
        _ => place(a),
    }
}

pub(super) fn geoadd(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("GEOADD"), key(a)];
    if !command[1].starts_with(b"geo") {
        // Other commands on sorted sets use few scores, whose digits are equal in all versions.
        command.push(a.word("XX"));
    }
    while a.random.percent(20) {
        let option = *a.random.pick(&["NX", "XX", "CH", "CH"]);
        command.push(a.word(option));
    }
    let count = match a.random.below(20) {
        // The counts are around the bounds of a packed row, of a listpack, and of a set without rank tree.
        0 => a.random.between(60, 70),
        1 => a.random.between(120, 135),
        2 if a.large => a.random.between(250, 330),
        3..=10 => a.random.between(5, 20),
        _ => a.random.between(1, 3),
    };
    for number in 0..count {
        if a.random.percent(3) {
            let at = a.random.below(CORNERS.len() as u64) as usize;
            let (longitude, latitude) = CORNERS[at];
            command.extend([longitude.into(), latitude.into(), format!("corner{at}").into_bytes()]);
        } else if count > 20 {
            command.extend(place(a));
            command.push(format!("p{number}").into_bytes());
        } else {
            command.extend(if a.random.percent(95) {
                place(a)
            } else {
                some_place(a).map(|text| not_a_corner(a, text))
            });
            command.push(member(a));
        }
    }
    command
}

/// Replaces the text of a corner: corners belong to their own members.
fn not_a_corner(a: &mut Arguments, text: Vec<u8>) -> Vec<u8> {
    let is_corner = CORNERS.iter().any(|(one, other)| text == one.as_bytes() || text == other.as_bytes());
    if is_corner { a.odd() } else { text }
}

fn unit(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(30) {
        0 => a.random.pick(UNITS).as_bytes().to_vec(),
        _ => a.random.pick(&UNITS[..6]).as_bytes().to_vec(),
    }
}

fn length(a: &mut Arguments) -> Vec<u8> {
    match a.random.below(40) {
        0 => a.odd(),
        1 => b"0".to_vec(),
        2 => b"-1".to_vec(),
        3 => b"1e8".to_vec(),
        4 => b"inf".to_vec(),
        _ => {
            let size = *a.random.pick(&[1000, 30_000, 300_000, 3_000_000, 30_000_000]);
            let whole = a.random.below(size);
            format!("{whole}.{}", a.random.below(1000)).into_bytes()
        }
    }
}

/// Adds COUNT, the order and the other options of a search. COUNT is only given for keys whose positions all differ.
fn options(a: &mut Arguments, command: &mut Command, counts: bool, with: bool) {
    let mut parts: Vec<Vec<Vec<u8>>> = Vec::new();
    if counts && a.random.percent(40) {
        let count = a.random.between(1, 12).to_string().into_bytes();
        let count = if a.random.percent(5) { a.number() } else { count };
        let mut part = vec![a.word("COUNT"), count];
        if a.random.percent(30) {
            part.push(a.word("ANY"));
        }
        parts.push(part);
    }
    if a.random.percent(60) {
        let order = *a.random.pick(&["ASC", "DESC"]);
        parts.push(vec![a.word(order)]);
    }
    for word in ["WITHDIST", "WITHHASH", "WITHCOORD"] {
        if with && a.random.percent(35) {
            parts.push(vec![a.word(word)]);
        }
    }
    if a.random.percent(2) {
        parts.push(vec![a.word("ANY")]);
    }
    while !parts.is_empty() {
        let at = a.random.below(parts.len() as u64) as usize;
        command.extend(parts.swap_remove(at));
    }
}

fn center(a: &mut Arguments) -> Vec<Vec<u8>> {
    if a.random.percent(40) {
        return vec![a.word("FROMMEMBER"), member(a)];
    }
    let mut part = vec![a.word("FROMLONLAT")];
    part.extend(some_place(a));
    part
}

fn shape(a: &mut Arguments) -> Vec<Vec<u8>> {
    match a.random.percent(50) {
        true => vec![a.word("BYRADIUS"), length(a), unit(a)],
        false => vec![a.word("BYBOX"), length(a), length(a), unit(a)],
    }
}

fn geosearch(a: &mut Arguments) -> Command {
    let stores = a.random.percent(25);
    let distances = stores && a.random.percent(30);
    let mut command =
        if stores { vec![a.word("GEOSEARCHSTORE"), target(a, distances)] } else { vec![a.word("GEOSEARCH")] };
    let key = key(a);
    let counts = key.starts_with(b"geo");
    command.push(key);
    let mut parts = vec![center(a), shape(a)];
    if a.random.percent(3) {
        parts.push(if a.random.percent(50) { center(a) } else { shape(a) });
    }
    if a.random.percent(2) {
        parts.pop();
    }
    if a.random.percent(30) {
        parts.reverse();
    }
    command.extend(parts.into_iter().flatten());
    let with = !stores || a.random.percent(4);
    options(a, &mut command, counts, with);
    if distances {
        command.push(a.word("STOREDIST"));
    }
    command
}

/// Returns the key for results: for distances one that no other command reads, because 7.0 prints their scores with
/// more digits.
fn target(a: &mut Arguments, distances: bool) -> Vec<u8> {
    if distances { b"distances".to_vec() } else { a.random.pick(&[&b"geo2"[..], b"geo3", b"found"]).to_vec() }
}

fn georadius(a: &mut Arguments) -> Command {
    let by_member = a.random.percent(50);
    let only_reads = a.random.percent(40);
    let name = match (by_member, only_reads) {
        (true, true) => "GEORADIUSBYMEMBER_RO",
        (true, false) => "GEORADIUSBYMEMBER",
        (false, true) => "GEORADIUS_RO",
        (false, false) => "GEORADIUS",
    };
    let key = key(a);
    let counts = key.starts_with(b"geo");
    let mut command = vec![a.word(name), key];
    if by_member {
        command.push(member(a))
    } else {
        command.extend(some_place(a))
    }
    command.extend([length(a), unit(a)]);
    let stores = a.random.percent(if only_reads { 2 } else { 35 });
    let with = !stores || a.random.percent(4);
    options(a, &mut command, counts, with);
    let keys = if !stores { 0 } else { 1 + u64::from(a.random.percent(15)) };
    for _ in 0..keys {
        let distances = a.random.percent(30);
        command.extend([a.word(if distances { "STOREDIST" } else { "STORE" }), target(a, distances)]);
    }
    command
}

fn members(a: &mut Arguments, name: &str) -> Command {
    let mut command = vec![a.word(name), key(a)];
    for _ in 0..a.random.below(5) {
        command.push(member(a));
    }
    command
}

type Make = fn(&mut Arguments) -> Command;

/// All commands but GEOADD.
const OTHERS: &[(u64, Make)] = &[
    (3, |a| members(a, "GEOPOS")),
    (2, |a| members(a, "GEOHASH")),
    (3, geodist),
    (10, geosearch),
    (6, georadius),
    (1, |a| vec![a.word("ZREM"), key(a), member(a)]),
    (1, |a| vec![a.word("ZRANGE"), key(a), b"0".to_vec(), b"-1".to_vec(), a.word("WITHSCORES")]),
    (1, |a| vec![a.word("DEL"), key(a)]),
];

fn geodist(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("GEODIST"), key(a), member(a), member(a)];
    if a.random.percent(50) {
        command.push(unit(a));
    }
    command
}

pub(super) fn other(a: &mut Arguments) -> Command {
    let total = OTHERS.iter().map(|(weight, _)| weight).sum();
    let mut ticket = a.random.below(total);
    for (weight, make) in OTHERS {
        if ticket < *weight {
            return make(a);
        }
        ticket -= weight;
    }
    unreachable!("the ticket is below the sum of the weights")
}
