//! The table of cases: the commands of the tables that are published in this field, and those that have a target.
//!
//! Data sets: *large*: 10,000 keys of each type with 100 elements, values of 128 bytes; *small*: 100,000 hashes of 10
//! short fields; *million*: a sorted set of a million members; *places*: a geospatial index of a million members in an
//! area of 870,000 km².

use crate::random::Random;

/// A request, as words.
pub type Words = Vec<Vec<u8>>;

/// Makes request number `n`.
pub type Make = fn(&mut Random, u64) -> Words;

/// The requests that write a data set before a case is measured.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    pub requests: u64,
    pub make: Make,
}

#[derive(Debug)]
pub struct Case {
    /// The name for `--rows`.
    pub id: &'static str,
    pub title: &'static str,
    pub pipeline: usize,
    pub requests: u64,
    pub fill: Option<Fill>,
    /// The server is started again behind the fill: ours has the data set in the base.
    pub is_stored: bool,
    pub make: Make,
    /// The most CPU time per request over that of redis-server; `None` where nothing was promised.
    pub target: Option<f64>,
}

const KEYS: u64 = 10_000;
const ELEMENTS: u64 = 100;
const SMALL_KEYS: u64 = 100_000;
const SMALL_FIELDS: u64 = 10;
const MILLION: u64 = 1_000_000;
/// Keys that small writes go to.
const RANDOM_KEYS: u64 = 100_000;

const VALUE: [u8; 128] = [b'x'; 128];

pub(super) fn words(words: &[&dyn AsRef<[u8]>]) -> Words {
    words.iter().map(|word| word.as_ref().to_vec()).collect()
}

/// Returns `prefix` and a number.
pub(super) fn named(prefix: &str, number: u64) -> String {
    format!("{prefix}:{number:08}")
}

pub(super) fn any(random: &mut Random, prefix: &str, below: u64) -> String {
    named(prefix, random.below(below))
}

/// Returns a command on one key of `count` elements, each made of its number.
pub(super) fn filled(command: &str, key: String, count: u64, element: impl Fn(u64) -> Vec<Vec<u8>>) -> Words {
    let mut words = words(&[&command, &key]);
    words.extend((0..count).flat_map(element));
    words
}

const HASHES: Fill = Fill {
    requests: KEYS,
    make: |_, n| filled("HSET", named("hash", n), ELEMENTS, |f| words(&[&named("field", f), &VALUE])),
};
const LISTS: Fill =
    Fill { requests: KEYS, make: |_, n| filled("RPUSH", named("list", n), ELEMENTS, |_| words(&[&VALUE])) };
const LONG_LISTS: Fill =
    Fill { requests: 500, make: |_, n| filled("RPUSH", named("list", n), 600, |_| words(&[&VALUE])) };
const SETS: Fill =
    Fill { requests: KEYS, make: |_, n| filled("SADD", named("set", n), ELEMENTS, |m| words(&[&member(m)])) };
const ZSETS: Fill = Fill {
    requests: KEYS,
    make: |_, n| filled("ZADD", named("zset", n), ELEMENTS, |m| words(&[&m.to_string(), &member(m)])),
};
const SMALL_HASHES: Fill = Fill {
    requests: SMALL_KEYS,
    make: |_, n| filled("HSET", named("small", n), SMALL_FIELDS, |f| words(&[&format!("f{f}"), &format!("v{f:06}")])),
};
const MILLION_ZSET: Fill = Fill {
    requests: MILLION / 100,
    make: |random, n| {
        let mut words = words(&[&"ZADD", &"million"]);
        for m in n * 100..n * 100 + 100 {
            words.extend([random.below(1 << 32).to_string().into_bytes(), named("member", m).into_bytes()]);
        }
        words
    },
};
const MILLION_PLACES: Fill = Fill {
    requests: MILLION / 100,
    make: |random, n| {
        let mut words = words(&[&"GEOADD", &"places"]);
        for m in n * 100..n * 100 + 100 {
            let [longitude, latitude] = place(random, 0.0);
            words.extend([longitude, latitude, named("member", m).into_bytes()]);
        }
        words
    },
};
const ONE_LIST: Fill =
    Fill { requests: MILLION / 100, make: |_, _| filled("RPUSH", "mylist".into(), 100, |_| words(&[&VALUE])) };
const ONE_SET: Fill = Fill {
    requests: MILLION / 100,
    make: |_, n| filled("SADD", "myset".into(), 100, |m| words(&[&named("member", n * 100 + m)])),
};
const STRINGS: Fill = Fill { requests: RANDOM_KEYS, make: |_, n| words(&[&"SET", &named("key", n), &VALUE]) };
const NUMBERS: Fill = Fill {
    requests: KEYS,
    make: |_, n| filled("HSET", named("numbers", n), ELEMENTS, |f| words(&[&named("field", f), &"10"])),
};

/// Returns a member of a set or sorted set, as long as a value.
pub(super) fn member(number: u64) -> Vec<u8> {
    let mut member = VALUE.to_vec();
    let name = named("member", number);
    member[..name.len()].copy_from_slice(name.as_bytes());
    member
}

/// Returns the degrees of a position in the middle of Europe, at least `margin` from the edges of the area.
fn place(random: &mut Random, margin: f64) -> [Vec<u8>; 2] {
    const SIZE: f64 = 10.0;
    let mut degrees = |from: f64| {
        let part = random.below(1 << 32) as f64 / (1u64 << 32) as f64;
        format!("{:.6}", from + margin + part * (SIZE - 2.0 * margin)).into_bytes()
    };
    [degrees(0.0), degrees(40.0)]
}

fn on(random: &mut Random, command: &str, prefix: &str) -> Words {
    words(&[&command, &any(random, prefix, KEYS)])
}

fn range(random: &mut Random, last: u64) -> Words {
    words(&[&"LRANGE", &any(random, "list", 500), &"0", &last.to_string()])
}

pub(super) const fn case(id: &'static str, title: &'static str, make: Make) -> Case {
    Case { id, title, pipeline: 16, requests: 1_000_000, fill: None, is_stored: false, make, target: None }
}

impl Case {
    pub(super) const fn with(self, fill: Fill) -> Case {
        Case { fill: Some(fill), ..self }
    }

    pub(super) const fn at_most(self, target: f64) -> Case {
        Case { target: Some(target), ..self }
    }

    pub(super) const fn times(self, requests: u64) -> Case {
        Case { requests, ..self }
    }

    pub(super) const fn pipelined(self, pipeline: usize) -> Case {
        Case { pipeline, ..self }
    }

    /// Returns this case with one request in flight on each connection.
    const fn alone(self, id: &'static str) -> Case {
        Case { id, pipeline: 1, requests: 300_000, ..self }
    }
}

const NEW_FIELD: Case = case("hset-new", "HSET of a new field of 100 thousand hashes", |random, n| {
    words(&[&"HSET", &any(random, "hnew", RANDOM_KEYS), &named("field", n), &VALUE])
});
const NEW_MEMBER: Case = case("sadd-new", "SADD of a new member to 100 thousand sets", |random, n| {
    words(&[&"SADD", &any(random, "snew", RANDOM_KEYS), &named("member", n)])
});
const NEW_SCORED: Case = case("zadd-new", "ZADD of a new member to 100 thousand sorted sets", |random, n| {
    let score = random.below(1 << 32).to_string();
    words(&[&"ZADD", &any(random, "znew", RANDOM_KEYS), &score, &named("member", n)])
});
const NEW_ELEMENT: Case = case("lpush-new", "LPUSH on 100 thousand lists", |random, _| {
    words(&[&"LPUSH", &any(random, "lnew", RANDOM_KEYS), &VALUE])
});
const POPPED: Case =
    case("spop", "SPOP of a set of a million", |_, _| words(&[&"SPOP", &"myset"])).with(ONE_SET).times(500_000);

pub static CASES: &[Case] = &[
    case("ping-inline", "PING_INLINE", |_, _| words(&[&"PING"])),
    case("ping-bulk", "PING_BULK", |_, _| words(&[&"PING", &"hello"])),
    case("set", "SET", |random, _| words(&[&"SET", &any(random, "key", RANDOM_KEYS), &VALUE])),
    case("get", "GET", |random, _| words(&[&"GET", &any(random, "key", RANDOM_KEYS)])).with(STRINGS),
    case("incr", "INCR", |random, _| words(&[&"INCR", &any(random, "counter", RANDOM_KEYS)])),
    case("mset", "MSET of 10 keys", |random, _| {
        let mut words = words(&[&"MSET"]);
        for _ in 0..10 {
            words.extend([any(random, "key", RANDOM_KEYS).into_bytes(), VALUE.to_vec()]);
        }
        words
    })
    .times(200_000),
    case("lpush", "LPUSH on one list", |_, _| words(&[&"LPUSH", &"mylist", &VALUE])).at_most(1.2),
    case("rpush", "RPUSH on one list", |_, _| words(&[&"RPUSH", &"mylist", &VALUE])).at_most(1.2),
    case("lpop", "LPOP of one list", |_, _| words(&[&"LPOP", &"mylist"])).with(ONE_LIST).at_most(1.2),
    case("rpop", "RPOP of one list", |_, _| words(&[&"RPOP", &"mylist"])).with(ONE_LIST).at_most(1.2),
    case("lindex", "LINDEX", |random, _| {
        words(&[&"LINDEX", &any(random, "list", KEYS), &random.below(ELEMENTS).to_string()])
    })
    .with(LISTS)
    .at_most(0.9),
    case("lrange-10", "LRANGE_10", |random, _| range(random, 9)).with(LONG_LISTS).times(500_000),
    case("lrange-100", "LRANGE_100", |random, _| range(random, 99)).with(LONG_LISTS).times(100_000).at_most(1.3),
    case("lrange-300", "LRANGE_300", |random, _| range(random, 299)).with(LONG_LISTS).times(50_000).at_most(1.3),
    case("lrange-450", "LRANGE_450", |random, _| range(random, 449)).with(LONG_LISTS).times(30_000).at_most(1.3),
    case("lrange-600", "LRANGE_600", |random, _| range(random, 599)).with(LONG_LISTS).times(20_000).at_most(1.3),
    case("sadd", "SADD to one set", |random, _| words(&[&"SADD", &"myset", &any(random, "member", MILLION)])),
    case("sismember", "SISMEMBER", |random, _| {
        words(&[&"SISMEMBER", &any(random, "set", KEYS), &member(random.below(ELEMENTS))])
    })
    .with(SETS)
    .at_most(0.9),
    Case { target: Some(1.6), ..POPPED },
    case("hset", "HSET of an existing field", |random, _| {
        words(&[&"HSET", &any(random, "hash", KEYS), &any(random, "field", ELEMENTS), &VALUE])
    })
    .with(HASHES)
    .at_most(1.2),
    case("hincrby", "HINCRBY of an existing field", |random, _| {
        words(&[&"HINCRBY", &any(random, "numbers", KEYS), &any(random, "field", ELEMENTS), &"1"])
    })
    .with(NUMBERS)
    .at_most(1.2),
    case("hincrbyfloat", "HINCRBYFLOAT of an existing field", |random, _| {
        words(&[&"HINCRBYFLOAT", &any(random, "numbers", KEYS), &any(random, "field", ELEMENTS), &"1.5"])
    })
    .with(NUMBERS),
    case("hget", "HGET", |random, _| words(&[&"HGET", &any(random, "hash", KEYS), &any(random, "field", ELEMENTS)]))
        .with(HASHES)
        .at_most(0.9),
    case("hmset", "HMSET of 10 fields", |random, _| {
        let mut words = on(random, "HMSET", "hash");
        for _ in 0..10 {
            words.extend([any(random, "field", ELEMENTS).into_bytes(), VALUE.to_vec()]);
        }
        words
    })
    .with(HASHES)
    .times(200_000),
    case("hmget", "HMGET of 10 fields", |random, _| {
        let mut words = on(random, "HMGET", "hash");
        words.extend((0..10).map(|_| any(random, "field", ELEMENTS).into_bytes()));
        words
    })
    .with(HASHES)
    .times(300_000)
    .at_most(0.9),
    case("hgetall", "HGETALL of 100 fields", |random, _| on(random, "HGETALL", "hash"))
        .with(HASHES)
        .times(100_000)
        .at_most(1.3),
    case("small-hset", "HSET in a hash of 10 short fields", |random, _| {
        let field = format!("f{}", random.below(SMALL_FIELDS));
        words(&[&"HSET", &any(random, "small", SMALL_KEYS), &field, &format!("v{:06}", random.below(MILLION))])
    })
    .with(SMALL_HASHES)
    .at_most(1.1),
    case("small-hget", "HGET of a hash of 10 short fields", |random, _| {
        words(&[&"HGET", &any(random, "small", SMALL_KEYS), &format!("f{}", random.below(SMALL_FIELDS))])
    })
    .with(SMALL_HASHES)
    .at_most(1.1),
    case("small-hgetall", "HGETALL of a hash of 10 short fields", |random, _| {
        words(&[&"HGETALL", &any(random, "small", SMALL_KEYS)])
    })
    .with(SMALL_HASHES)
    .times(500_000)
    .at_most(1.1),
    case("zadd", "ZADD to one sorted set", |random, _| {
        let score = random.below(1 << 32).to_string();
        words(&[&"ZADD", &"myzset", &score, &any(random, "member", MILLION)])
    })
    .times(500_000),
    case("zrem", "ZREM", |random, _| words(&[&"ZREM", &"million", &any(random, "member", MILLION)]))
        .with(MILLION_ZSET)
        .times(500_000),
    case("zscore", "ZSCORE", |random, _| {
        words(&[&"ZSCORE", &any(random, "zset", KEYS), &member(random.below(ELEMENTS))])
    })
    .with(ZSETS)
    .at_most(0.9),
    case("zrank", "ZRANK in a set of 1 million", |random, _| {
        words(&[&"ZRANK", &"million", &any(random, "member", MILLION)])
    })
    .with(MILLION_ZSET)
    .times(300_000)
    .at_most(3.0),
    case("zrange", "ZRANGE of 100", |random, _| words(&[&"ZRANGE", &any(random, "zset", KEYS), &"0", &"99"]))
        .with(ZSETS)
        .times(100_000),
    case("geosearch", "GEOSEARCH of 100 members among 1 million", |random, _| {
        let [longitude, latitude] = place(random, 1.0);
        words(&[&"GEOSEARCH", &"places", &"FROMLONLAT", &longitude, &latitude, &"BYRADIUS", &"5.27", &"km"])
    })
    .with(MILLION_PLACES)
    .times(100_000)
    .at_most(2.0),
    Case { target: Some(1.6), ..NEW_FIELD },
    Case { target: Some(1.6), ..NEW_MEMBER },
    Case { target: Some(1.6), ..NEW_SCORED },
    Case { target: Some(1.6), ..NEW_ELEMENT },
    NEW_FIELD.alone("hset-new-p1").at_most(1.05),
    NEW_MEMBER.alone("sadd-new-p1").at_most(1.05),
    NEW_SCORED.alone("zadd-new-p1").at_most(1.05),
    NEW_ELEMENT.alone("lpush-new-p1").at_most(1.05),
    POPPED.alone("spop-p1").at_most(1.05),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_have_names_of_their_own_and_make_requests() {
        let mut random = Random::new(1);
        let cases: Vec<_> = super::super::cases().collect();
        for (at, case) in cases.iter().enumerate() {
            assert!(cases[..at].iter().all(|other| other.id != case.id), "{}", case.id);
            let makes = [Some(case.make), case.fill.map(|fill| fill.make)];
            assert!(makes.into_iter().flatten().all(|make| !make(&mut random, 7).is_empty()), "{}", case.id);
        }
    }
}
