//! The commands on positions of sorted sets one by one: GEOADD, GEOPOS, GEOHASH, GEODIST. Searches are in `search.rs`.
//!
//! Owns options and replies; how a score stands for a position belongs to `haypile_types::geo`.

pub(crate) mod found;
pub(crate) mod search;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::table::{Access, Arity, Body, Command, ElementArgs, Flag, Group, Keys, Use};
use crate::zset;
use haypile_resp::{Elements, Records, Reply, Shape};
use haypile_store::Txn;
use haypile_types::element::ROWS_INLINE_MAX;
use haypile_types::geo::{self, Position};
use haypile_types::score;
use haypile_types::zset::{Adding, Zset};

pub(crate) const COMMANDS: &[Command] = &[
    GEOADD,
    GEODIST,
    GEOHASH,
    GEOPOS,
    search::GEORADIUS,
    search::GEORADIUSBYMEMBER,
    search::GEORADIUSBYMEMBER_RO,
    search::GEORADIUS_RO,
    search::GEOSEARCH,
    search::GEOSEARCHSTORE,
];

const GEOADD: Command = Command {
    name: "geoadd",
    since: "3.2.0",
    group: Group::Geo,
    arity: Arity::at_least(5),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Adds members with their positions to a geospatial index or moves them, under conditions.",
    syntax: "key [condition@6.2.0=(NX | XX)] [CH change:pure-token@6.2.0] \
        longitude_latitude_member=(longitude:double latitude:double member)...",
    complexity: "O(log(N)) for each item added, where N is the number of elements in the sorted set.",
    access: Access::Write,
    body: Body::Txn(geoadd),
    flags: &[Flag::Denyoom],
    history: &[("6.2.0", "Added the `CH`, `NX` and `XX` options.")],
    elements: Some(ElementArgs::Names { first: 4, step: 3 }),
    ..Command::USUAL
};

fn geoadd(txn: &mut Txn, args: Args) -> Result<Reply> {
    let (mut how, mut counts_changes, mut first) = (Adding::default(), false, 2);
    while first < args.len() {
        if args.is(first, "nx") {
            how.new_only = true;
        } else if args.is(first, "xx") {
            how.old_only = true;
        } else if args.is(first, "ch") {
            counts_changes = true;
        } else {
            break;
        }
        first += 1;
    }
    let rest = args.len() - first;
    if rest == 0 || !rest.is_multiple_of(3) || how.new_only && how.old_only {
        return Err(Error::Syntax);
    }
    let scores = (first..args.len()).step_by(3).map(|i| Ok(position(args, i)?.score()));
    let scores = scores.collect::<Result<smallvec::SmallVec<[f64; 8]>>>()?;
    let pairs = scores.iter().enumerate().map(|(at, score)| (*score, args.get(first + 3 * at + 2)));
    zset::add_all(txn, args, pairs, how, counts_changes)
}

/// The position whose degrees are arguments `i` and `i + 1`.
pub(crate) fn position(args: Args, i: usize) -> Result<Position> {
    let degrees = |i| score::parse(args.get(i)).ok_or(Error::NotFloat);
    let (longitude, latitude) = (degrees(i)?, degrees(i + 1)?);
    Position::new(longitude, latitude).ok_or_else(|| {
        Error::text(format!("ERR invalid longitude,latitude pair {},{}", six_digits(longitude), six_digits(latitude)))
    })
}

/// The value as C's `%f` prints it.
fn six_digits(value: f64) -> String {
    format!("{value:.6}")
}

/// Returns the metres of the unit that argument `i` names.
pub(crate) fn unit_m(args: Args, i: usize) -> Result<f64> {
    const UNITS: [(&str, f64); 4] = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let unit = UNITS.iter().find(|(name, _)| args.is(i, name));
    unit.map(|(_, metres)| *metres)
        .ok_or_else(|| Error::text("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

/// Writes the two numbers of a position, as parts of a reply.
pub(crate) fn put_position(records: &mut Records, position: Position) {
    let mut digits = Vec::with_capacity(24);
    for degrees in [position.longitude, position.latitude] {
        digits.clear();
        geo::write_degrees(&mut digits, degrees);
        records.digits(&digits);
    }
}

const GEOPOS: Command = Command {
    name: "geopos",
    since: "3.2.0",
    group: Group::Geo,
    arity: Arity::at_least(2),
    keys: Keys::first(1),
    summary: "Returns the longitudes and latitudes of members of a geospatial index.",
    syntax: "key [member...]",
    complexity: "O(N) where N is the number of members requested.",
    access: Access::Read,
    body: Body::Txn(geopos),
    ..Command::USUAL
};

fn geopos(txn: &mut Txn, args: Args) -> Result<Reply> {
    let mut records = Records::new();
    each_position(txn, args, |position| match position {
        Some(position) => {
            records.begin(2);
            put_position(&mut records, position);
        }
        None => records.push_null(),
    })?;
    Ok(Reply::Records(records))
}

const GEOHASH: Command = Command {
    name: "geohash",
    since: "3.2.0",
    group: Group::Geo,
    arity: Arity::at_least(2),
    keys: Keys::first(1),
    summary: "Returns the standard geohashes of members of a geospatial index.",
    syntax: "key [member...]",
    complexity: "O(log(N)) for each member requested, where N is the number of elements in the sorted set.",
    access: Access::Read,
    body: Body::Txn(geohash),
    ..Command::USUAL
};

fn geohash(txn: &mut Txn, args: Args) -> Result<Reply> {
    let mut hashes = Elements::new(Shape::Array);
    each_position(txn, args, |position| match position {
        Some(position) => hashes.push(&position.hash()),
        None => hashes.push_null(),
    })?;
    Ok(Reply::Elements(hashes))
}

/// Gives the position of each member from argument 2 on, `None` where it is missing.
fn each_position(txn: &mut Txn, args: Args, mut each: impl FnMut(Option<Position>)) -> Result<()> {
    let key = args.key(txn, 1);
    let zset = Zset::read(txn, &key)?;
    if args.len() - 2 > ROWS_INLINE_MAX {
        txn.long()?;
    }
    for member in args.iter_from(2) {
        let score = match &zset {
            Some(zset) => zset.score(txn, member)?,
            None => None,
        };
        each(score.map(Position::of_score));
    }
    Ok(())
}

const GEODIST: Command = Command {
    name: "geodist",
    since: "3.2.0",
    group: Group::Geo,
    arity: Arity::at_least(4),
    keys: Keys::first(1),
    summary: "Returns how far two members of a geospatial index are from each other.",
    syntax: "key member1 member2 [unit=(M | KM | FT | MI)]",
    complexity: "O(log(N))",
    access: Access::Read,
    body: Body::Txn(geodist),
    ..Command::USUAL
};

fn geodist(txn: &mut Txn, args: Args) -> Result<Reply> {
    let unit_m = match args.len() {
        4 => 1.0,
        5 => unit_m(args, 4)?,
        _ => return Err(Error::Syntax),
    };
    let key = args.key(txn, 1);
    let Some(zset) = Zset::read(txn, &key)? else { return Ok(Reply::Null) };
    let Some(one) = zset.score(txn, args.get(2))? else { return Ok(Reply::Null) };
    let Some(other) = zset.score(txn, args.get(3))? else { return Ok(Reply::Null) };
    let distance_m = Position::of_score(one).distance_m(Position::of_score(other));
    let mut digits = Vec::with_capacity(16);
    geo::write_distance(&mut digits, distance_m / unit_m);
    Ok(Reply::bulk(digits))
}
