//! Commands for the master: those of the cases of the differential test, whatever is answered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::client::Client;
use crate::diff::generate::generate;
use crate::diff::scripts;
use crate::diff::sequence::{Command, Step};

/// The time without a reply after which a connection is given up: a command waits.
const SILENCE: Duration = Duration::from_millis(200);

/// The time that a server takes to start at most, and between two looks.
const START_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// Commands of which Redis 7.0 does not tell a replica all: BITFIELD makes a key where it fails.
pub const UNTOLD: [&str; 1] = ["bitfield"];

/// Commands that change a connection or the server, and not its data.
const LEFT_OUT: [&str; 24] = [
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

/// The part of cases in a hundred of which FLUSHDB, FLUSHALL and SWAPDB are sent: else little would stay.
const FLUSHES_PERCENT: u64 = 3;

/// Sends generated commands to the master until it is to end; returns how many.
pub fn write(port: u16, seed: u64, part: u64, left_out: &[&str], ends: &AtomicBool) -> Result<u64> {
    let mut sent = 0;
    let mut case = part.wrapping_mul(1_000_003);
    while !ends.load(Ordering::Acquire) {
        let flushes = case % 100 < FLUSHES_PERCENT;
        let Some(mut client) = connect(port, ends)? else { return Ok(sent) };
        'case: for step in generate(seed, case) {
            let Step::Send { commands, .. } = step else { continue };
            for command in commands.iter().filter(|command| is_sent(command, flushes, left_out)) {
                if ends.load(Ordering::Acquire) {
                    break 'case;
                }
                // A connection that waits too long, or is thrown out, begins again; the server may start anew.
                if client.call(command).is_err() {
                    let Some(again) = connect(port, ends)? else { return Ok(sent) };
                    client = again;
                }
                sent += 1;
            }
        }
        case += 1;
    }
    Ok(sent)
}

/// Connects as soon as the server is there; None if all is to end first.
fn connect(port: u16, ends: &AtomicBool) -> Result<Option<Client>> {
    let begin = Instant::now();
    loop {
        match Client::connect(port, SILENCE) {
            Ok(client) => return Ok(Some(client)),
            Err(_) if ends.load(Ordering::Acquire) => return Ok(None),
            Err(error) if begin.elapsed() > START_MAX => return Err(error.into()),
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

fn is_sent(command: &Command, flushes: bool, left_out: &[&str]) -> bool {
    // A script does what it calls.
    let calls = scripts::calls(command);
    let is = |word: &str| calls.iter().any(|call| call[0].eq_ignore_ascii_case(word.as_bytes()));
    let is_flush = ["flushdb", "flushall", "swapdb"].iter().any(|word| is(word));
    let has = |word: &str| command.iter().any(|own| own.eq_ignore_ascii_case(word.as_bytes()));
    // Of a HyperLogLog that a client has cut, Redis reads what lies behind it. Where the scores of a sorted set differ,
    // chance says which members a range by lexical order has: a Redis that follows is told them, one that leads is not
    // understood. And a count of entries that have been read goes beyond its end.
    let is_left_to_chance = ["broken", "zremrangebylex", "bylex", "entriesread"].into_iter().any(has);
    !LEFT_OUT.iter().chain(left_out).any(|word| is(word)) && (flushes || !is_flush) && !is_left_to_chance
}
