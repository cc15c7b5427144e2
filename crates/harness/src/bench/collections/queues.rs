//! The cases of queues: what is taken from an end or at random, in memory and from the base. A queue *in the base* is
//! filled, the server is started again, and then the queue is taken whole: what was removed must not make the rest
//! dearer.
//!
//! Data set: one collection of 100,000 elements of 128 bytes.

use super::cases::{Case, Fill, Words, case, filled, member, named, words};

const ELEMENTS: u64 = 100_000;
const IN_ONE: u64 = 100;
const REQUESTS: u64 = ELEMENTS / IN_ONE;

const SET: Fill = Fill {
    requests: REQUESTS,
    make: |_, n| filled("SADD", named("queue", 0), IN_ONE, |m| words(&[&member(n * IN_ONE + m)])),
};
const ZSET: Fill = Fill {
    requests: REQUESTS,
    make: |random, n| {
        let mut words = words(&[&"ZADD", &named("queue", 0)]);
        for m in 0..IN_ONE {
            words.extend([random.below(1 << 32).to_string().into_bytes(), member(n * IN_ONE + m)]);
        }
        words
    },
};
const LIST: Fill = Fill {
    requests: REQUESTS,
    make: |_, n| filled("RPUSH", named("queue", 0), IN_ONE, |m| words(&[&member(n * IN_ONE + m)])),
};
/// A stream with a group that has read nothing.
const STREAM: Fill = Fill {
    requests: ELEMENTS + 1,
    make: |_, n| match n {
        0 => words(&[&"XGROUP", &"CREATE", &named("queue", 0), &"group", &"0", &"MKSTREAM"]),
        n => words(&[&"XADD", &named("queue", 0), &"*", &"job", &member(n)]),
    },
};

fn on(command: &str) -> Words {
    words(&[&command, &named("queue", 0)])
}

/// A look at the first element, and its removal, by turns.
fn look_and_take(n: u64) -> Words {
    match n % 2 {
        0 => words(&[&"ZRANGEBYSCORE", &named("queue", 0), &"-inf", &"+inf", &"LIMIT", &"0", &"1"]),
        _ => on("ZPOPMIN"),
    }
}

/// The delivery of an entry, and the removal of the oldest ones, by turns.
fn deliver_and_trim(n: u64) -> Words {
    let key = named("queue", 0);
    match n % 2 {
        0 => words(&[&"XREADGROUP", &"GROUP", &"group", &"me", &"NOACK", &"COUNT", &"1", &"STREAMS", &key, &">"]),
        _ => words(&[&"XTRIM", &key, &"MAXLEN", &(ELEMENTS - n / 2).to_string()]),
    }
}

impl Case {
    /// Returns this case as one in which the queue lies in the base.
    const fn stored(self) -> Case {
        Case { is_stored: true, ..self }.at_most(3.0)
    }
}

pub static CASES: &[Case] = &[
    case("zpopmin", "ZPOPMIN", |_, _| on("ZPOPMIN")).with(ZSET).times(ELEMENTS).at_most(1.3),
    case("zpopmax", "ZPOPMAX", |_, _| on("ZPOPMAX")).with(ZSET).times(ELEMENTS).at_most(1.3),
    case("zlimit", "ZRANGEBYSCORE LIMIT 0 1 and ZPOPMIN by turns", |_, n| look_and_take(n))
        .with(ZSET)
        .times(2 * ELEMENTS)
        .at_most(1.3),
    case("xtrim", "XREADGROUP and XTRIM by turns", |_, n| deliver_and_trim(n))
        .with(STREAM)
        .times(2 * ELEMENTS)
        .at_most(1.3),
    case("spop-stored", "SPOP of a set in the base", |_, _| on("SPOP")).with(SET).times(ELEMENTS).stored(),
    case("zpopmin-stored", "ZPOPMIN in the base", |_, _| on("ZPOPMIN")).with(ZSET).times(ELEMENTS).stored(),
    case("zpopmax-stored", "ZPOPMAX in the base", |_, _| on("ZPOPMAX")).with(ZSET).times(ELEMENTS).stored(),
    case("zlimit-stored", "ZRANGEBYSCORE LIMIT 0 1 and ZPOPMIN by turns, in the base", |_, n| look_and_take(n))
        .with(ZSET)
        .times(2 * ELEMENTS)
        .stored(),
    case("lpop-stored", "LPOP in the base", |_, _| on("LPOP")).with(LIST).times(ELEMENTS).stored(),
    case("rpop-stored", "RPOP in the base", |_, _| on("RPOP")).with(LIST).times(ELEMENTS).stored(),
    case("xtrim-stored", "XREADGROUP and XTRIM by turns, in the base", |_, n| deliver_and_trim(n))
        .with(STREAM)
        .times(2 * ELEMENTS)
        .stored(),
];
