//! Commands for the master: those of the cases of the differential test, whatever is answered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;

use crate::client::Client;
use crate::diff::generate::generate;
use crate::diff::sequence::{Command, Step};

/// The time without a reply after which a connection is given up: a command waits.
const SILENCE: Duration = Duration::from_millis(200);

/// Commands that change a connection or the server, and not its data. And BITFIELD: Redis 7.0 makes a key with one that
/// fails, and tells no replica.
const LEFT_OUT: [&str; 26] = [
    "bitfield",
    "flushall",
    "acl",
    "auth",
    "bgrewriteaof",
    "bgsave",
    "client",
    "config",
    "debug",
    "failover",
    "hello",
    "info",
    "latency",
    "monitor",
    "psync",
    "quit",
    "replconf",
    "replicaof",
    "reset",
    "save",
    "shutdown",
    "slaveof",
    "slowlog",
    "sync",
    "wait",
    "waitaof",
];

/// The part of cases in a hundred of which FLUSHDB and SWAPDB are sent: else little would stay. FLUSHALL is not: it
/// ends loads that are under way.
const FLUSHES_PERCENT: u64 = 3;

/// Sends generated commands to the master until it is to end; returns how many.
pub fn write(port: u16, seed: u64, part: u64, ends: &AtomicBool) -> Result<u64> {
    let mut sent = 0;
    let mut case = part.wrapping_mul(1_000_003);
    while !ends.load(Ordering::Acquire) {
        let flushes = case % 100 < FLUSHES_PERCENT;
        let mut client = Client::connect(port, SILENCE)?;
        'case: for step in generate(seed, case) {
            let Step::Send { commands, .. } = step else { continue };
            for command in commands.iter().filter(|command| is_sent(command, flushes)) {
                if ends.load(Ordering::Acquire) {
                    break 'case;
                }
                // A connection that waits too long, or is thrown out, begins again.
                if client.call(command).is_err() {
                    client = Client::connect(port, SILENCE)?;
                }
                sent += 1;
            }
        }
        case += 1;
    }
    Ok(sent)
}

fn is_sent(command: &Command, flushes: bool) -> bool {
    let is = |word: &str| command[0].eq_ignore_ascii_case(word.as_bytes());
    let is_flush = ["flushdb", "swapdb"].iter().any(|word| is(word));
    let has = |word: &str| command.iter().any(|own| own.eq_ignore_ascii_case(word.as_bytes()));
    // Of a HyperLogLog that a client has cut, Redis reads what lies behind it. Where the scores of a sorted set differ,
    // chance says which members a range by lexical order has. And a count of entries that have been read goes beyond
    // its end.
    let is_left_to_chance = ["broken", "zremrangebylex", "bylex", "entriesread"].into_iter().any(has);
    !LEFT_OUT.iter().any(|word| is(word)) && (flushes || !is_flush) && !is_left_to_chance
}
