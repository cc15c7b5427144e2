//! The cases of streams.
//!
//! Data set: for each connection of the driver a stream with a consumer group, of 10,000 entries of two short fields. A
//! connection sends its requests in the order of their numbers, so that an entry is acknowledged right behind its
//! delivery.

use super::cases::{Case, Fill, Words, case, named, words};
use super::driver::CONNECTIONS;

const ENTRIES: u64 = 10_000;
/// Requests in flight on a connection while its stream is filled, and while a case is measured.
const FILL_PIPELINE: u64 = super::FILL_PIPELINE as u64;
const PIPELINE: u64 = 16;

/// Returns the stream of the connection that sends request `n`, and how many requests that connection has sent before.
fn stream(n: u64, pipeline: u64) -> (String, u64) {
    let (turn, at) = (n / pipeline, n % pipeline);
    (named("stream", turn % CONNECTIONS as u64), turn / CONNECTIONS as u64 * pipeline + at)
}

fn xadd(key: &str, id: &str) -> Words {
    words(&[&"XADD", &key, &id, &"sensor", &"1234", &"temperature", &"19.8"])
}

/// The streams: each begins with its group, then come entries with the IDs 1-0, 2-0 and so on.
const STREAMS: Fill = Fill {
    requests: CONNECTIONS as u64 * (ENTRIES + FILL_PIPELINE),
    make: |_, n| match stream(n, FILL_PIPELINE) {
        (key, 0) => words(&[&"XGROUP", &"CREATE", &key, &"group", &"0", &"MKSTREAM"]),
        (key, entry) => xadd(&key, &format!("{entry}-0")),
    },
};

pub static CASES: &[Case] = &[
    case("xadd", "XADD to one stream", |_, _| xadd("mystream", "*")).at_most(1.3),
    case("xreadgroup", "XREADGROUP of one entry and XACK by turns", |_, n| {
        let (key, before) = stream(n, PIPELINE);
        match before % 2 {
            0 => words(&[&"XREADGROUP", &"GROUP", &"group", &"me", &"COUNT", &"1", &"STREAMS", &key, &">"]),
            _ => words(&[&"XACK", &key, &"group", &format!("{}-0", before / 2 + 1)]),
        }
    })
    .with(STREAMS)
    .at_most(1.6),
];
