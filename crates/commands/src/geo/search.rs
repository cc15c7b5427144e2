//! Searches for positions within an area: GEOSEARCH, GEOSEARCHSTORE, and the older GEORADIUS family.
//!
//! Owns their options and makes a reply or a sorted set of the results. The walk over the positions belongs to
//! `haypile_types::geo`; the order of the results, and those that do not fit into memory, belong to `found.rs`.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::geo::found::{Found, Hit, Hits, Order};
use crate::geo::{position, put_position, unit_m};
use crate::statement;
use crate::table::{Access, Arity, Begin, Body, Command, Deprecated, Flag, Group, Hidden, KeySpec, Keys, Mode, Use};
use crate::zset::range;
use haypile_resp::pieces::PIECE_BYTES;
use haypile_resp::{Pieces, Protocol, Records, Reply, write};
use haypile_store::Txn;
use haypile_types::element::REPLY_INLINE_BYTES_MAX;
use haypile_types::geo::{self, Area, Position, Search, Shape};
use haypile_types::key;
use haypile_types::score;
use haypile_types::zset::{Maker, Zset};
use std::ops::ControlFlow;

/// Elements that are looked at in one step; an event loop makes only one, which keeps it well below a millisecond.
const STEP_ELEMENTS: u64 = 4096;

pub(crate) const GEOSEARCH: Command = Command {
    name: "geosearch",
    since: "6.2.0",
    arity: Arity::at_least(7),
    keys: Keys::first(1),
    summary: "Returns the members of a geospatial index that lie within a circle or a box.",
    syntax: "key from=(FROMMEMBER member | FROMLONLAT longitude_latitude=(longitude:double latitude:double)) \
        by=(circle=(BYRADIUS radius:double unit=(M | KM | FT | MI)) | \
        box=(BYBOX width:double height:double unit=(M | KM | FT | MI))) \
        [order=(ASC | DESC)] [count=(COUNT count [ANY])] [WITHCOORD] [WITHDIST] [WITHHASH]",
    access: Access::Read,
    body: Body::Txn(|txn, args| search(txn, args, &Form { first: 2, ..Form::SEARCH })),
    ..OF_SEARCH
};

pub(crate) const GEOSEARCHSTORE: Command = Command {
    name: "geosearchstore",
    since: "6.2.0",
    arity: Arity::at_least(8),
    keys: Keys::Many(&[KeySpec::at(1).with(Mode::Ow, &[Use::Update]), KeySpec::at(2)]),
    summary: "Stores the members of a geospatial index that lie within a circle or a box.",
    syntax: "destination:key source:key \
        from=(FROMMEMBER member | FROMLONLAT longitude_latitude=(longitude:double latitude:double)) \
        by=(circle=(BYRADIUS radius:double unit=(M | KM | FT | MI)) | \
        box=(BYBOX width:double height:double unit=(M | KM | FT | MI))) \
        [order=(ASC | DESC)] [count=(COUNT count [ANY])] [STOREDIST]",
    access: Access::Write,
    body: Body::Txn(|txn, args| search(txn, args, &Form { key: 2, first: 3, stores: Stores::Always, ..Form::SEARCH })),
    flags: &[Flag::Denyoom],
    ..OF_SEARCH
};

pub(crate) const GEORADIUS: Command = Command {
    name: "georadius",
    since: "3.2.0",
    arity: Arity::at_least(6),
    keys: Keys::Many(&[KeySpec::at(1), stored(&STORE[0], "STORE", 6), stored(&STORE[1], "STOREDIST", 6)]),
    summary: "Returns the members of a geospatial index that lie within a circle, or stores them.",
    syntax: "key longitude:double latitude:double radius:double unit=(M | KM | FT | MI) [WITHCOORD] [WITHDIST] \
        [WITHHASH] [count=(COUNT count [ANY@6.2.0])] [order=(ASC | DESC)] [STORE key] [STOREDIST key]",
    access: Access::Write,
    body: Body::Txn(|txn, args| search(txn, args, &Form { stores: Stores::Asked, ..Form::RADIUS })),
    flags: &[Flag::Denyoom],
    history: &[ANY, UPPERCASE],
    deprecated: Some(Deprecated {
        since: "6.2.0",
        instead: "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument",
    }),
    ..OF_RADIUS
};

pub(crate) const GEORADIUS_RO: Command = Command {
    name: "georadius_ro",
    since: "3.2.10",
    arity: Arity::at_least(6),
    summary: "Returns the members of a geospatial index that lie within a circle.",
    syntax: "key longitude:double latitude:double radius:double unit=(M | KM | FT | MI) [WITHCOORD] [WITHDIST] \
        [WITHHASH] [count=(COUNT count [ANY@6.2.0])] [order=(ASC | DESC)]",
    access: Access::Read,
    body: Body::Txn(|txn, args| search(txn, args, &Form::RADIUS)),
    history: &[ANY],
    deprecated: Some(Deprecated { since: "6.2.0", instead: "`GEOSEARCH` with the `BYRADIUS` argument" }),
    ..OF_RADIUS
};

pub(crate) const GEORADIUSBYMEMBER: Command = Command {
    name: "georadiusbymember",
    since: "3.2.0",
    arity: Arity::at_least(5),
    keys: Keys::Many(&[
        KeySpec::at(1),
        stored(&STORE_BY_MEMBER[0], "STORE", 5),
        stored(&STORE_BY_MEMBER[1], "STOREDIST", 5),
    ]),
    summary: "Returns the members of a geospatial index that lie around one of them, or stores them.",
    syntax: "key member radius:double unit=(M | KM | FT | MI) [WITHCOORD] [WITHDIST] [WITHHASH] \
        [count=(COUNT count [ANY])] [order=(ASC | DESC)] [STORE key] [STOREDIST key]",
    access: Access::Write,
    body: Body::Txn(|txn, args| search(txn, args, &Form { stores: Stores::Asked, ..Form::BY_MEMBER })),
    flags: &[Flag::Denyoom],
    history: &[UPPERCASE],
    deprecated: Some(Deprecated {
        since: "6.2.0",
        instead: "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments",
    }),
    ..OF_RADIUS
};

pub(crate) const GEORADIUSBYMEMBER_RO: Command = Command {
    name: "georadiusbymember_ro",
    since: "3.2.10",
    arity: Arity::at_least(5),
    summary: "Returns the members of a geospatial index that lie around one of them.",
    syntax: "key member radius:double unit=(M | KM | FT | MI) [WITHCOORD] [WITHDIST] [WITHHASH] \
        [count=(COUNT count [ANY])] [order=(ASC | DESC)]",
    access: Access::Read,
    body: Body::Txn(|txn, args| search(txn, args, &Form::BY_MEMBER)),
    deprecated: Some(Deprecated {
        since: "6.2.0",
        instead: "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments",
    }),
    ..OF_RADIUS
};

const OF_SEARCH: Command = Command {
    group: Group::Geo,
    complexity: "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape \
        provided as the filter and M is the number of items inside the shape",
    history: &[UPPERCASE],
    ..Command::USUAL
};

const OF_RADIUS: Command = Command {
    group: Group::Geo,
    keys: Keys::first(1),
    complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by \
        center and radius and M is the number of items inside the index.",
    ..Command::USUAL
};

/// Entries of the history of several commands: a version of Redis and its change.
const ANY: (&str, &str) = ("6.2.0", "Added the `ANY` option for `COUNT`.");
const UPPERCASE: (&str, &str) = ("7.0.0", "Added support for uppercase unit names.");

/// The key behind an option that stores, which is shown as the argument behind its word.
const fn stored(shown: &'static Begin, word: &'static str, from: u16) -> KeySpec {
    let mut spec = KeySpec::at(0).with(Mode::Ow, &[Use::Update]);
    spec.begin = Begin::Nearly(shown, Hidden::StoreOfGeo { word, from });
    spec
}

/// The rules that are shown for the keys that GEORADIUS and its relative store to.
const STORE: [Begin; 2] = [Begin::Keyword { word: "STORE", from: 6 }, Begin::Keyword { word: "STOREDIST", from: 6 }];
const STORE_BY_MEMBER: [Begin; 2] =
    [Begin::Keyword { word: "STORE", from: 5 }, Begin::Keyword { word: "STOREDIST", from: 5 }];

/// The form of a command's arguments, which follows from its name.
struct Form {
    /// The argument that names the sorted set.
    key: usize,
    /// The argument at which the options begin.
    first: usize,
    center: Center,
    stores: Stores,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Center {
    /// Options name the center and the shape.
    Options,
    /// Arguments 2 and 3, then a radius.
    Degrees,
    /// Argument 2, then a radius.
    Member,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stores {
    Never,
    /// Stores if an option asks for it.
    Asked,
    /// Stores to argument 1.
    Always,
}

impl Form {
    const SEARCH: Form = Form { key: 1, first: 2, center: Center::Options, stores: Stores::Never };
    const RADIUS: Form = Form { key: 1, first: 6, center: Center::Degrees, stores: Stores::Never };
    const BY_MEMBER: Form = Form { key: 1, first: 5, center: Center::Member, stores: Stores::Never };
}

/// A call, its options parsed.
struct Asked {
    /// The area; `None` if there is no sorted set, and so no member to begin from.
    area: Option<Area>,
    order: Option<Order>,
    count: Option<u64>,
    /// Any `count` results will do, not only the nearest.
    any: bool,
    with: With,
    /// The argument that names the key to store to.
    to: Option<usize>,
    stores_distances: bool,
}

/// The parts that a reply has beside each member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct With {
    distance: bool,
    hash: bool,
    degrees: bool,
}

impl With {
    fn parts(self) -> usize {
        usize::from(self.distance) + usize::from(self.hash) + usize::from(self.degrees)
    }
}

/// The center and the shape of a search, as far as arguments have named them.
#[derive(Default)]
struct AreaOptions {
    center: Option<Position>,
    /// The shape, and its unit in meters.
    shape: Option<(Shape, f64)>,
    by_member: bool,
    by_degrees: bool,
    by_radius: bool,
    by_box: bool,
}

impl AreaOptions {
    /// Takes the arguments in front of the options, for the commands that have their center and radius there.
    fn of_form(txn: &mut Txn, args: Args, form: &Form, zset: Option<&Zset>) -> Result<AreaOptions> {
        let (center, shape) = match (form.center, zset) {
            // Without a sorted set only the options are looked at.
            (Center::Options, _) | (Center::Member, None) => (None, None),
            (Center::Degrees, _) => (Some(position(args, 2)?), Some(circle(args, 4)?)),
            (Center::Member, Some(zset)) => (Some(position_of(txn, zset, args.get(2))?), Some(circle(args, 3)?)),
        };
        Ok(AreaOptions { center, shape, ..AreaOptions::default() })
    }

    /// Takes the option of GEOSEARCH at argument `i`. Returns how many arguments belong to it.
    ///
    /// # Errors
    /// [`Error::Syntax`] if the argument is no such option, or one that does not go with those before it.
    fn take(&mut self, txn: &mut Txn, args: Args, i: usize, zset: Option<&Zset>) -> Result<usize> {
        let left = args.len() - 1 - i;
        if args.is(i, "frommember") && left >= 1 && !self.by_degrees {
            if let Some(zset) = zset {
                self.center = Some(position_of(txn, zset, args.get(i + 1))?);
            }
            self.by_member = true;
            Ok(1)
        } else if args.is(i, "fromlonlat") && left >= 2 && !self.by_member {
            (self.center, self.by_degrees) = (Some(position(args, i + 1)?), true);
            Ok(2)
        } else if args.is(i, "byradius") && left >= 2 && !self.by_box {
            (self.shape, self.by_radius) = (Some(circle(args, i + 1)?), true);
            Ok(2)
        } else if args.is(i, "bybox") && left >= 3 && !self.by_radius {
            (self.shape, self.by_box) = (Some(rectangle(args, i + 1)?), true);
            Ok(3)
        } else {
            Err(Error::Syntax)
        }
    }

    /// Checks that options name a center and a shape.
    fn check(&self, args: Args) -> Result<()> {
        if !self.by_member && !self.by_degrees {
            return Err(one_of("FROMMEMBER or FROMLONLAT", args));
        }
        if !self.by_radius && !self.by_box {
            return Err(one_of("BYRADIUS and BYBOX", args));
        }
        Ok(())
    }
}

impl Asked {
    fn parse(txn: &mut Txn, args: Args, form: &Form, zset: Option<&Zset>) -> Result<Asked> {
        let mut area = AreaOptions::of_form(txn, args, form, zset)?;
        let is_search = form.center == Center::Options;
        let (mut order, mut count, mut any, mut with) = (None, None, false, With::default());
        let (mut to, mut stores_distances) = ((form.stores == Stores::Always).then_some(1), false);
        let mut i = form.first;
        while i < args.len() {
            let left = args.len() - 1 - i;
            let mut used = 0;
            if args.is(i, "withdist") {
                with.distance = true;
            } else if args.is(i, "withhash") {
                with.hash = true;
            } else if args.is(i, "withcoord") {
                with.degrees = true;
            } else if args.is(i, "any") {
                any = true;
            } else if args.is(i, "asc") {
                order = Some(Order::Ascending);
            } else if args.is(i, "desc") {
                order = Some(Order::Descending);
            } else if args.is(i, "count") && left >= 1 {
                let number = u64::try_from(args.int(i + 1)?).ok().filter(|count| *count > 0);
                count = Some(number.ok_or_else(|| Error::text("ERR COUNT must be > 0"))?);
                used = 1;
            } else if form.stores == Stores::Asked && left >= 1 && (args.is(i, "store") || args.is(i, "storedist")) {
                (to, stores_distances) = (Some(i + 1), args.is(i, "storedist"));
                used = 1;
            } else if form.stores == Stores::Always && args.is(i, "storedist") {
                stores_distances = true;
            } else if is_search {
                used = area.take(txn, args, i, zset)?;
            } else {
                return Err(Error::Syntax);
            }
            i += 1 + used;
        }
        if to.is_some() && with != With::default() {
            let what = if is_search { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            let text = format!("ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options");
            return Err(Error::text(text));
        }
        if is_search {
            area.check(args)?;
        }
        if any && count.is_none() {
            return Err(Error::text("ERR the ANY argument requires COUNT argument"));
        }
        // A count without an order means the nearest ones.
        if count.is_some() && !any {
            order = order.or(Some(Order::Ascending));
        }
        let area = area.center.zip(area.shape).map(|(center, (shape, unit_m))| Area { center, shape, unit_m });
        Ok(Asked { area, order, count, any, with, to, stores_distances })
    }
}

fn one_of(options: &str, args: Args) -> Error {
    Error::quoting(&format!("ERR exactly one of {options} can be specified for "), args.get(0), "")
}

/// Returns the position of a member.
fn position_of(txn: &mut Txn, zset: &Zset, member: &[u8]) -> Result<Position> {
    let score = zset.score(txn, member)?;
    score.map(Position::of_score).ok_or_else(|| Error::text("ERR could not decode requested zset member"))
}

/// A radius and its unit, from argument `i` on.
fn circle(args: Args, i: usize) -> Result<(Shape, f64)> {
    let radius = score::parse(args.get(i)).ok_or_else(|| Error::text("ERR need numeric radius"))?;
    if radius < 0.0 {
        return Err(Error::text("ERR radius cannot be negative"));
    }
    Ok((Shape::Circle { radius }, unit_m(args, i + 1)?))
}

/// A width, a height and their unit, from argument `i` on.
fn rectangle(args: Args, i: usize) -> Result<(Shape, f64)> {
    let width = score::parse(args.get(i)).ok_or_else(|| Error::text("ERR need numeric width"))?;
    let height = score::parse(args.get(i + 1)).ok_or_else(|| Error::text("ERR need numeric height"))?;
    if width < 0.0 || height < 0.0 {
        return Err(Error::text("ERR height or width cannot be negative"));
    }
    Ok((Shape::Box { width, height }, unit_m(args, i + 2)?))
}

fn search(txn: &mut Txn, args: Args, form: &Form) -> Result<Reply> {
    let key = args.key(txn, form.key);
    let zset = Zset::read(txn, &key)?;
    let asked = Asked::parse(txn, args, form, zset.as_ref())?;
    let found = match (&zset, asked.area) {
        (Some(zset), Some(area)) => find(txn, zset, &area, &asked)?,
        _ => Found::default(),
    };
    match asked.to {
        Some(to) => store(txn, args, to, found, &asked, form),
        None => reply(found, &asked),
    }
}

fn find(txn: &mut Txn, zset: &Zset, area: &Area, asked: &Asked) -> Result<Found> {
    let mut hits = Hits::new(asked.order, asked.count);
    let mut search = Search::new(area);
    let limit = asked.count.filter(|_| asked.any).unwrap_or(u64::MAX);
    loop {
        let has_more = search.step(txn, zset, STEP_ELEMENTS, |member, score, distance_m| {
            hits.push(member, score, distance_m);
            if hits.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let has_more = has_more && hits.len() < limit;
        if has_more || hits.bytes() > REPLY_INLINE_BYTES_MAX {
            txn.long()?;
            hits.make_room(txn)?;
        }
        if !has_more {
            return hits.into_found(txn);
        }
    }
}

/// Puts an element of a reply behind those before.
fn put_hit(records: &mut Records, hit: &Hit, with: With, unit_m: f64) {
    let parts = with.parts();
    if parts == 0 {
        return records.push(&hit.member);
    }
    records.begin(parts + 1);
    records.bulk(&hit.member);
    if with.distance {
        let mut digits = Vec::with_capacity(16);
        geo::write_distance(&mut digits, hit.distance_m / unit_m);
        records.bulk(&digits);
    }
    if with.hash {
        records.integer(hit.score as i64);
    }
    if with.degrees {
        records.array(2);
        put_position(records, Position::of_score(hit.score));
    }
}

fn reply(mut found: Found, asked: &Asked) -> Result<Reply> {
    let (with, unit_m) = (asked.with, asked.area.map_or(1.0, |area| area.unit_m));
    if found.is_longer_than(REPLY_INLINE_BYTES_MAX) {
        return Ok(Reply::Stream(Box::new(LongReply { found, with, unit_m, is_begun: false })));
    }
    let mut records = Records::new();
    while let Some(hit) = found.next().map_err(crate::keys::sort_large::failed)? {
        put_hit(&mut records, &hit, with, unit_m);
    }
    Ok(Reply::Records(records))
}

/// A reply that is sent piece by piece.
struct LongReply {
    found: Found,
    with: With,
    unit_m: f64,
    /// The length is out.
    is_begun: bool,
}

impl Pieces for LongReply {
    fn next(&mut self, protocol: Protocol, out: &mut Vec<u8>) -> std::result::Result<bool, String> {
        if !self.is_begun {
            self.is_begun = true;
            write::array_len(out, self.found.count() as usize);
        }
        let mut records = Records::new();
        while records.bytes() < PIECE_BYTES {
            let Some(hit) = self.found.next()? else {
                records.encode_elements(protocol, out);
                return Ok(false);
            };
            put_hit(&mut records, &hit, self.with, self.unit_m);
        }
        records.encode_elements(protocol, out);
        Ok(true)
    }

    fn weight(&self) -> haypile_resp::Weight {
        let bytes = self.found.bytes();
        haypile_resp::Weight { held_bytes: bytes, encoded_bytes: bytes }
    }
}

/// Makes a sorted set of the results, with the positions or the distances as scores.
fn store(txn: &mut Txn, args: Args, to: usize, mut found: Found, asked: &Asked, form: &Form) -> Result<Reply> {
    let (to, unit_m) = (args.key(txn, to), asked.area.map_or(1.0, |area| area.unit_m));
    let before = key::lookup_overwrite(txn, &to)?;
    let mut maker = Maker::new();
    while let Some(hit) = found.next().map_err(crate::keys::sort_large::failed)? {
        let score = if asked.stores_distances { hit.distance_m / unit_m } else { hit.score };
        maker.add(txn, &to, &hit.member, score)?;
    }
    let event = if form.center == Center::Options { "geosearchstore" } else { "georadiusstore" };
    let reply = range::store(txn, &to, before, maker, event)?;
    // Of members that are as near as each other, chance says which ones are found.
    statement::state_value(txn, &to)?;
    Ok(reply)
}
