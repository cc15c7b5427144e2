//! Geospatial positions: a pair of degrees as the score of a sorted set's element, distances, and the parts of the
//! order in which the positions within an area lie. The arithmetic is that of Redis to the last bit, so that scores,
//! distances and the order of what is found are Redis's. Knows no rows; the walk over a sorted set is in `search`.
//!
//! A score has 52 bits: 26 bisections of the latitudes (even bits) and of the longitudes (odd bits) in turn. So
//! positions with the same first bits lie in one rectangle, a *cell*, and a cell is a run of scores.

mod search;

pub use search::Search;

use smallvec::SmallVec;

/// The edges of the square map of the world.
pub const LONGITUDE_MAX: f64 = 180.0;
pub const LATITUDE_MAX: f64 = 85.051_128_78;

const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
/// Half of the equator on the map.
const MERCATOR_MAX_M: f64 = 20_037_726.37;
const RADIANS: f64 = std::f64::consts::PI / 180.0;

/// Bisections of each axis in a score.
const STEPS_MAX: u32 = 26;
/// Characters of a geohash.
pub const HASH_CHARS: usize = 11;

/// A position in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    pub longitude: f64,
    pub latitude: f64,
}

impl Position {
    /// Returns the position of these degrees, if the map has one.
    pub fn new(longitude: f64, latitude: f64) -> Option<Position> {
        let is_within = |value: f64, max: f64| (-max..=max).contains(&value);
        let is_there = is_within(longitude, LONGITUDE_MAX) && is_within(latitude, LATITUDE_MAX);
        is_there.then_some(Position { longitude, latitude })
    }

    /// Returns the middle of the smallest cell. Any score is taken for one, as Redis does.
    #[inline]
    pub fn of_score(score: f64) -> Position {
        let cell = Cell { bits: bits_of(score), steps: STEPS_MAX };
        let bounds = cell.bounds();
        let middle = |low: f64, high: f64, max: f64| ((low + high) / 2.0).min(max).max(-max);
        Position {
            longitude: middle(bounds.west, bounds.east, LONGITUDE_MAX),
            latitude: middle(bounds.south, bounds.north, LATITUDE_MAX),
        }
    }

    pub fn score(self) -> f64 {
        Cell::at(self, STEPS_MAX).bits as f64
    }

    /// Returns the standard geohash, whose latitudes reach to the poles. A score has two bits less than the last
    /// character of a geohash, which is 0.
    pub fn hash(self) -> [u8; HASH_CHARS] {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        const POLE: f64 = 90.0;
        let bits = cell_bits(self, STEPS_MAX, POLE);
        let mut hash = [ALPHABET[0]; HASH_CHARS];
        for (at, character) in hash[..HASH_CHARS - 1].iter_mut().enumerate() {
            *character = ALPHABET[(bits >> (52 - (at + 1) * 5)) as usize & 31];
        }
        hash
    }

    /// Returns the distance in metres, on a sphere (haversine).
    pub fn distance_m(self, other: Position) -> f64 {
        Origin::new(self).distance_m(other)
    }
}

/// Converts a score to bits as a C compiler does on x86-64 where the language does not say.
#[inline]
fn bits_of(score: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    let truncated = |value: f64| if (-HALF..HALF).contains(&value) { value as i64 } else { i64::MIN } as u64;
    if score < HALF { truncated(score) } else { truncated(score - HALF) ^ (1 << 63) }
}

/// A position that many distances are measured from: its constants are computed once.
#[derive(Clone, Copy, Debug)]
struct Origin {
    at: Position,
    longitude: f64,
    latitude: f64,
    cosine: f64,
}

impl Origin {
    fn new(at: Position) -> Origin {
        let latitude = at.latitude * RADIANS;
        Origin { at, longitude: at.longitude * RADIANS, latitude, cosine: latitude.cos() }
    }

    #[inline]
    fn distance_m(&self, other: Position) -> f64 {
        let v = ((other.longitude * RADIANS - self.longitude) / 2.0).sin();
        // On one meridian, as of Redis 7.2.
        if v == 0.0 {
            return latitude_distance_m(self.at.latitude, other.latitude);
        }
        let latitude = other.latitude * RADIANS;
        let u = ((latitude - self.latitude) / 2.0).sin();
        let a = u * u + self.cosine * latitude.cos() * v * v;
        2.0 * EARTH_RADIUS_M * a.sqrt().asin()
    }
}

fn latitude_distance_m(one: f64, other: f64) -> f64 {
    EARTH_RADIUS_M * (other * RADIANS - one * RADIANS).abs()
}

/// A rectangle of the map: so many bisections of each axis, and the bits that chose the halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    bits: u64,
    steps: u32,
}

/// Bounds in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bounds {
    west: f64,
    south: f64,
    east: f64,
    north: f64,
}

impl Cell {
    /// Returns the cell that a position lies in.
    fn at(position: Position, steps: u32) -> Cell {
        Cell { bits: cell_bits(position, steps, LATITUDE_MAX), steps }
    }

    #[inline]
    fn bounds(self) -> Bounds {
        let (south, north) = halves(even_bits(self.bits), self.steps, LATITUDE_MAX);
        let (west, east) = halves(even_bits(self.bits >> 1), self.steps, LONGITUDE_MAX);
        Bounds { west, south, east, north }
    }

    /// Returns the cell so many to the east and to the north, around the world.
    fn neighbor(self, east: i32, north: i32) -> Cell {
        let moved = |axis: u32, by: i32| match by {
            0 => axis,
            by => axis.wrapping_add_signed(by) & ((1 << self.steps) - 1),
        };
        let (y, x) = (even_bits(self.bits), even_bits(self.bits >> 1));
        Cell { bits: spread(moved(y, north)) | spread(moved(x, east)) << 1, ..self }
    }

    /// Returns the scores of the positions in the cell, the end exclusive.
    fn scores(self) -> (f64, f64) {
        let shift = 2 * (STEPS_MAX - self.steps);
        ((self.bits << shift) as f64, ((self.bits + 1) << shift) as f64)
    }
}

/// Returns the bits of a position's cell on a map that reaches to this latitude.
fn cell_bits(position: Position, steps: u32, latitude_max: f64) -> u64 {
    let index = |value: f64, max: f64| ((value - -max) / (max - -max) * (1u64 << steps) as f64) as u32;
    spread(index(position.latitude, latitude_max)) | spread(index(position.longitude, LONGITUDE_MAX)) << 1
}

/// Returns the degrees between which part `index` of an axis lies.
#[inline]
fn halves(index: u32, steps: u32, max: f64) -> (f64, f64) {
    let parts = (1u64 << steps) as f64;
    let edge = |index: f64| -max + (index * 1.0 / parts) * (max - -max);
    (edge(f64::from(index)), edge(f64::from(index.wrapping_add(1))))
}

/// Spreads the bits of a number over the even places of a longer one.
#[inline]
fn spread(number: u32) -> u64 {
    const MASKS: [(u32, u64); 5] = [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ];
    MASKS.iter().fold(u64::from(number), |bits, (shift, mask)| (bits | bits << shift) & mask)
}

/// Pushes the even bits of a number together: the inverse of `spread`.
#[inline]
fn even_bits(bits: u64) -> u32 {
    const MASKS: [(u32, u64); 5] = [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ];
    let even = bits & 0x5555_5555_5555_5555;
    MASKS.iter().fold(even, |bits, (shift, mask)| (bits | bits >> shift) & mask) as u32
}

/// An area of the map to search, in units of so many metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    pub center: Position,
    pub shape: Shape,
    pub unit_m: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    Circle { radius: f64 },
    Box { width: f64, height: f64 },
}

impl Area {
    /// Returns the cells in which the area's positions lie, in the order in which Redis looks into them: that of the
    /// center and those of its neighbours that the area reaches. Cells are so large that these are enough.
    fn cells(&self) -> SmallVec<[Cell; 9]> {
        let bounds = self.bounds();
        let mut steps = self.steps();
        let mut center = Cell::at(self.center, steps);
        let reaches = |center: Cell| {
            center.neighbor(0, 1).bounds().north < bounds.north
                || center.neighbor(0, -1).bounds().south > bounds.south
                || center.neighbor(1, 0).bounds().east < bounds.east
                || center.neighbor(-1, 0).bounds().west > bounds.west
        };
        if steps > 1 && reaches(center) {
            steps -= 1;
            center = Cell::at(self.center, steps);
        }
        let own = center.bounds();
        // A neighbour that the bounds do not reach is left out; of four cells all are looked at.
        let is_out = |east: i32, north: i32| {
            steps >= 2
                && (north < 0 && own.south < bounds.south
                    || north > 0 && own.north > bounds.north
                    || east < 0 && own.west < bounds.west
                    || east > 0 && own.east > bounds.east)
        };
        const ORDER: [(i32, i32); 9] = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let mut cells: SmallVec<[Cell; 9]> = SmallVec::new();
        for (east, north) in ORDER {
            let cell = center.neighbor(east, north);
            // Around a small world neighbours meet.
            if !is_out(east, north) && !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        cells
    }

    /// Returns the number of bisections at which a cell is at least as large as the area.
    fn steps(&self) -> u32 {
        let radius = match self.shape {
            Shape::Circle { radius } => radius,
            Shape::Box { width, height } => ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt(),
        };
        let mut range_m = radius * self.unit_m;
        if range_m == 0.0 {
            return STEPS_MAX;
        }
        let mut steps = 1;
        while range_m < MERCATOR_MAX_M {
            range_m *= 2.0;
            steps += 1;
        }
        steps -= 2;
        // Towards the poles the map stretches the land.
        let latitude = self.center.latitude.abs();
        steps -= i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        steps.clamp(1, STEPS_MAX as i32) as u32
    }

    /// Returns the bounds that the area lies within.
    fn bounds(&self) -> Bounds {
        let (width, height) = match self.shape {
            Shape::Circle { radius } => (radius, radius),
            Shape::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let (width_m, height_m) = (self.unit_m * width, self.unit_m * height);
        let Position { longitude, latitude } = self.center;
        let latitudes = height_m / EARTH_RADIUS_M / RADIANS;
        // Meridians come together towards the pole: the edge that is nearer to it spans more of them.
        let edge = if latitude < 0.0 { latitude - latitudes } else { latitude + latitudes };
        let longitudes = width_m / EARTH_RADIUS_M / (edge * RADIANS).cos() / RADIANS;
        Bounds {
            west: longitude - longitudes,
            south: latitude - latitudes,
            east: longitude + longitudes,
            north: latitude + latitudes,
        }
    }
}

/// The area in the form in which single positions are compared with it.
#[derive(Clone, Copy, Debug)]
struct Test {
    origin: Origin,
    limit: Limit,
    /// The largest difference in latitude: positions beyond it are out, whatever their longitude.
    latitudes_max: f64,
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    Radius(f64),
    Halves { width_m: f64, height_m: f64 },
}

impl Test {
    fn new(area: &Area) -> Test {
        let origin = Origin::new(area.center);
        let limit = match area.shape {
            Shape::Circle { radius } => Limit::Radius(radius * area.unit_m),
            Shape::Box { width, height } => {
                Limit::Halves { width_m: width * area.unit_m / 2.0, height_m: height * area.unit_m / 2.0 }
            }
        };
        let (Limit::Radius(north_m) | Limit::Halves { height_m: north_m, .. }) = limit;
        // A little more than exact, so that rounding never decides here.
        let latitudes_max = north_m / EARTH_RADIUS_M / RADIANS * (1.0 + 1e-9) + 1e-9;
        Test { origin, limit, latitudes_max }
    }

    /// Returns how many metres a position of the area is from its center; `None` for a position outside.
    #[inline]
    fn distance_m(&self, position: Position) -> Option<f64> {
        let center = self.origin.at;
        if (position.latitude - center.latitude).abs() > self.latitudes_max {
            return None;
        }
        match self.limit {
            Limit::Radius(radius_m) => {
                let distance_m = self.origin.distance_m(position);
                (distance_m <= radius_m).then_some(distance_m)
            }
            Limit::Halves { width_m, height_m } => {
                if latitude_distance_m(position.latitude, center.latitude) > height_m {
                    return None;
                }
                let beside = Position { longitude: center.longitude, ..position };
                (position.distance_m(beside) <= width_m).then(|| self.origin.distance_m(position))
            }
        }
    }
}

/// Appends a distance with four digits behind the point, rounded as Redis 7.2 does.
pub fn write_distance(out: &mut Vec<u8>, distance: f64) {
    const SCALE: u64 = 10_000;
    let scaled = (distance * SCALE as f64).round_ties_even() as u64;
    write_fixed(out, scaled / SCALE, scaled % SCALE, 4);
}

/// Appends degrees as C's `%.17f` prints them, without the zeros at the end.
pub fn write_degrees(out: &mut Vec<u8>, degrees: f64) {
    const DIGITS: usize = 17;
    const SCALE: u64 = 10u64.pow(DIGITS as u32);
    let (mut whole, fraction) = (degrees.abs().trunc() as u64, degrees.abs().fract());
    let mut digits = scaled(fraction, SCALE);
    if digits == SCALE {
        (whole, digits) = (whole + 1, 0);
    }
    if degrees < 0.0 && (whole, digits) != (0, 0) {
        out.push(b'-');
    }
    write_fixed(out, whole, digits, DIGITS);
    let zeros = out.iter().rev().take_while(|byte| **byte == b'0').count().min(DIGITS);
    // Without digits the point goes, too.
    out.truncate(out.len() - zeros - usize::from(zeros == DIGITS));
}

/// Returns `fraction * scale`, rounded from the exact product, ties to even; the fraction is below 1.
fn scaled(fraction: f64, scale: u64) -> u64 {
    const MANTISSA_BITS: u32 = 52;
    const EXPONENT_BIAS: u32 = 1075;
    let exponent = (fraction.to_bits() >> MANTISSA_BITS) as u32;
    let mantissa = fraction.to_bits() & ((1 << MANTISSA_BITS) - 1);
    // The fraction is mantissa / 2^shift.
    let (mantissa, shift) = match exponent {
        0 => (mantissa, EXPONENT_BIAS - 1),
        exponent => (mantissa | 1 << MANTISSA_BITS, EXPONENT_BIAS - exponent),
    };
    let product = u128::from(mantissa) * u128::from(scale);
    if shift > 120 {
        return 0;
    }
    let (whole, rest, half) = (product >> shift, product & ((1 << shift) - 1), 1 << (shift - 1));
    (whole + u128::from(rest > half || rest == half && whole & 1 == 1)) as u64
}

/// Appends `whole`, a point, and as many digits as asked for.
fn write_fixed(out: &mut Vec<u8>, whole: u64, mut fraction: u64, digits: usize) {
    const WHOLE_DIGITS_MAX: usize = 20;
    let mut text = [b'0'; WHOLE_DIGITS_MAX + 1 + 17];
    let mut at = text.len();
    for _ in 0..digits {
        at -= 1;
        text[at] += (fraction % 10) as u8;
        fraction /= 10;
    }
    at -= 1;
    text[at] = b'.';
    let mut whole = whole;
    loop {
        at -= 1;
        text[at] += (whole % 10) as u8;
        whole /= 10;
        if whole == 0 {
            break;
        }
    }
    out.extend_from_slice(&text[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(longitude: f64, latitude: f64) -> Position {
        Position::new(longitude, latitude).expect("it is on the map")
    }

    #[test]
    fn scores_and_hashes_are_those_of_redis() {
        // The figures of Redis's documentation of GEOADD, GEOHASH and GEODIST.
        let (palermo, catania) = (place(13.361389, 38.115556), place(15.087269, 37.502669));
        assert_eq!(palermo.score(), 3_479_099_956_230_698.0);
        assert_eq!(catania.score(), 3_479_447_370_796_909.0);
        let stored = |position: Position| Position::of_score(position.score());
        assert_eq!(&stored(palermo).hash(), b"sqc8b49rny0");
        assert_eq!(&stored(catania).hash(), b"sqdtr74hyu0");
        let mut text = Vec::new();
        write_distance(&mut text, stored(palermo).distance_m(stored(catania)));
        assert_eq!(text, b"166274.1516");
        assert_eq!(Position::new(180.1, 0.0), None);
        assert_eq!(Position::new(0.0, -85.06), None);
        assert_eq!(Position::new(f64::INFINITY, 0.0), None);
    }

    #[test]
    fn a_score_is_the_place_it_was_made_of() {
        let mut bits = 0x9e37_79b9_7f4a_7c15u64;
        let mut draw = |max: f64| {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((bits >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0) * max
        };
        for _ in 0..10_000 {
            let position = place(draw(LONGITUDE_MAX), draw(LATITUDE_MAX));
            let stored = Position::of_score(position.score());
            assert_eq!(stored.score(), position.score());
            assert!(stored.distance_m(position) < 0.6, "{position:?} {stored:?}");
        }
    }

    #[test]
    fn numbers_are_printed_as_c_does() {
        let check = |degrees: f64| {
            let mut text = Vec::new();
            write_degrees(&mut text, degrees);
            let exact = format!("{degrees:.17}");
            let exact = exact.trim_end_matches('0').trim_end_matches('.');
            assert_eq!(String::from_utf8(text).unwrap(), if exact == "-0" { "0" } else { exact });
        };
        [
            0.0,
            -0.0,
            1.0,
            -180.0,
            13.361389338970184,
            0.1,
            1e-17,
            4e-18,
            -4e-18,
            5e-18,
            6e-18,
            1e-300,
            5e-324,
            85.05112878,
        ]
        .into_iter()
        .for_each(check);
        [0.999_999_999_999_999_9, 10.0 / 3.0, 179.999_999_999_999_97, 100.5].into_iter().for_each(check);
        let mut bits = 1u64;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            check((bits >> 11) as f64 / (1u64 << 53) as f64 * 360.0 - 180.0);
        }
        let check = |distance: f64, expected: &str| {
            let mut text = Vec::new();
            write_distance(&mut text, distance);
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        };
        check(0.0, "0.0000");
        check(0.00004, "0.0000");
        check(0.5, "0.5000");
        check(1234567.891234, "1234567.8912");
        check(99.99996, "100.0000");
    }

    #[test]
    fn bits_are_spread_and_pushed_together() {
        for number in [0, 1, 2, 0x8000_0001, u32::MAX, 0x1234_5678] {
            assert_eq!(even_bits(spread(number)), number);
            assert_eq!(spread(number) & 0xaaaa_aaaa_aaaa_aaaa, 0);
        }
        assert_eq!(spread(0b101), 0b10001);
    }

    #[test]
    fn scores_of_any_kind_are_positions() {
        for score in [f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e300, 1e19, 1.5] {
            let position = Position::of_score(score);
            assert!(Position::new(position.longitude, position.latitude).is_some(), "{score}: {position:?}");
        }
    }

    /// Every position in an area lies in one of its cells, wherever the area is and however large.
    #[test]
    fn cells_cover_the_area() {
        let mut bits = 7u64;
        let mut draw = |max: f64| {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((bits >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0) * max
        };
        let mut inside = 0;
        for round in 0..4000 {
            // The far north is where Redis itself misses some.
            let center = place(draw(170.0), draw(60.0));
            let size = 10f64.powf(2.0 + draw(1.0).abs() * 4.0);
            let shape = match round % 2 {
                0 => Shape::Circle { radius: size },
                _ => Shape::Box { width: size, height: size * (1.5 + draw(1.0)) },
            };
            let area = Area { center, shape, unit_m: 1.0 };
            let (test, cells) = (Test::new(&area), area.cells());
            for _ in 0..30 {
                let spread = (size / 50_000.0).min(30.0);
                let Some(other) = Position::new(center.longitude + draw(spread), center.latitude + draw(spread)) else {
                    continue;
                };
                let stored = Position::of_score(other.score());
                if test.distance_m(stored).is_some() {
                    inside += 1;
                    let score = other.score();
                    let is_in = |cell: &Cell| (cell.scores().0..cell.scores().1).contains(&score);
                    assert_eq!(cells.iter().filter(|cell| is_in(cell)).count(), 1, "{area:?} {stored:?}");
                }
            }
        }
        assert!(inside > 1000, "{inside}");
    }
}
