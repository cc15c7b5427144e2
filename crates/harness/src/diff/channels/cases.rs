//! Makes the cases of `channels`: a few connections with roles that change, over few names, so that these meet.
//!
//! Blocks of MULTI are sent whole, because what a connection hears in the middle of one is compared with its end. No
//! deadline passes in a case: Redis tells of an expired key when a client looks at it.

use crate::diff::arguments::Arguments;
use crate::diff::clients::{hello, ping};
use crate::diff::compare::may_set_expired;
use crate::diff::keys::{copy, expire, many};
use crate::diff::malformed::spoil;
use crate::diff::sequence::{CONNECTIONS, Command, Sequence, Step};
use crate::diff::strings::{getex, set};
use crate::random::Random;

type Make = fn(&mut Arguments) -> Command;

/// The part of the seed that sets these cases apart from those of `generate`.
const STREAM: u64 = 0x00c4_a11e_15ca_5e50;

const CHANNELS: &[&[u8]] =
    &[b"a", b"b", b"news", b"nets", b"", b"\x00\xff\r\n", b"__keyspace@0__:a", b"__keyevent@0__:set", b"n*"];
const PATTERNS: &[&[u8]] = &[
    b"*",
    b"a*",
    b"?",
    b"n[ea]*",
    b"ne?s",
    b"",
    b"n\\*",
    b"[^a]",
    b"__key*__:*",
    b"__keyspace@0__:*",
    b"__keyevent@*",
    b"*:k*",
    b"\x00*",
];

/// Commands on subscriptions.
const LISTENING: &[(u64, Make)] = &[
    (8, |a| names(a, "SUBSCRIBE", CHANNELS, 1)),
    (8, |a| names(a, "PSUBSCRIBE", PATTERNS, 1)),
    (6, |a| names(a, "SSUBSCRIBE", CHANNELS, 1)),
    (5, |a| names(a, "UNSUBSCRIBE", CHANNELS, 0)),
    (5, |a| names(a, "PUNSUBSCRIBE", PATTERNS, 0)),
    (5, |a| names(a, "SUNSUBSCRIBE", CHANNELS, 0)),
    (2, ping),
    (2, |a| vec![a.word("RESET")]),
    (2, hello),
];

const SPEAKING: &[(u64, Make)] = &[
    (14, |a| vec![a.word("PUBLISH"), name(a, CHANNELS), a.value()]),
    (8, |a| vec![a.word("SPUBLISH"), name(a, CHANNELS), a.value()]),
    (8, pubsub),
    (8, client),
    (2, |a| vec![a.word("SELECT"), a.database()]),
    (1, |a| vec![a.word("AUTH"), a.value()]),
];

/// Commands about what a client is told of keys.
const TRACKING: &[(u64, Make)] = &[
    (10, |a| words(a, "CLIENT TRACKING on")),
    (4, |a| words(a, "CLIENT TRACKING on BCAST")),
    (4, |a| vec![a.word("CLIENT"), a.word("TRACKING"), a.word("ON"), a.word("BCAST"), a.word("PREFIX"), a.key()]),
    (3, |a| words(a, "CLIENT TRACKING on BCAST PREFIX k PREFIX a NOLOOP")),
    (4, |a| words(a, "CLIENT TRACKING on NOLOOP")),
    (4, |a| words(a, "CLIENT TRACKING on OPTIN")),
    (4, |a| words(a, "CLIENT TRACKING on OPTOUT")),
    (1, |a| words(a, "CLIENT TRACKING on OPTIN OPTOUT")),
    (1, |a| words(a, "CLIENT TRACKING on REDIRECT 999999999")),
    (1, |a| words(a, "CLIENT TRACKING x")),
    (5, |a| words(a, "CLIENT TRACKING off")),
    (6, |a| words(a, "CLIENT CACHING yes")),
    (6, |a| words(a, "CLIENT CACHING no")),
    (1, |a| words(a, "CLIENT CACHING x")),
    (3, |a| words(a, "CLIENT GETREDIR")),
    (4, |a| words(a, "CLIENT TRACKINGINFO")),
    (3, |a| words(a, "CLIENT LIST")),
    (3, |a| many(a, "MGET", false)),
    (9, |a| vec![a.word("GET"), a.key()]),
    (2, |a| vec![a.word("STRLEN"), a.key()]),
];

/// Commands that make events, or must make none.
const DATA: &[(u64, Make)] = &[
    (6, |a| vec![a.word("GET"), a.key()]),
    (14, set),
    (3, |a| vec![a.word("SETEX"), a.key(), a.ttl(1000), a.value()]),
    (2, |a| vec![a.word("PSETEX"), a.key(), a.ttl(1), a.value()]),
    (3, |a| vec![a.word("SETNX"), a.key(), a.value()]),
    (4, |a| vec![a.word("GETSET"), a.key(), a.value()]),
    (6, getex),
    (4, |a| vec![a.word("GETDEL"), a.key()]),
    (3, |a| many(a, "MGET", false)),
    (4, |a| many(a, "MSET", true)),
    (4, |a| many(a, "MSETNX", true)),
    (4, |a| vec![a.word("INCR"), a.key()]),
    (3, |a| vec![a.word("DECRBY"), a.key(), a.number()]),
    (3, |a| vec![a.word("INCRBYFLOAT"), a.key(), a.float()]),
    (6, |a| vec![a.word("APPEND"), a.key(), a.value()]),
    (2, |a| vec![a.word("STRLEN"), a.key()]),
    (2, |a| vec![a.word("GETRANGE"), a.key(), a.index(), a.index()]),
    (2, |a| vec![a.word("LCS"), a.key(), a.key(), a.word("LEN")]),
    (6, |a| vec![a.word("SETRANGE"), a.key(), a.write_offset(), a.value()]),
    (5, |a| many(a, "DEL", false)),
    (2, |a| many(a, "UNLINK", false)),
    (2, |a| many(a, "EXISTS", false)),
    (2, |a| many(a, "TOUCH", false)),
    (6, copy),
    (6, |a| vec![a.word("MOVE"), a.key(), a.database()]),
    (2, |a| vec![a.word("TYPE"), a.key()]),
    (1, |a| vec![a.word("TTL"), b"nosuch".to_vec()]),
    (1, |a| vec![a.word("PEXPIRETIME"), b"nosuch".to_vec()]),
    (1, |a| vec![a.word("OBJECT"), a.word("ENCODING"), b"nosuch".to_vec()]),
    (4, |a| expire(a, "EXPIRE", Arguments::ttl, 1000)),
    (3, |a| expire(a, "PEXPIRE", Arguments::ttl, 1)),
    (4, |a| expire(a, "EXPIREAT", Arguments::deadline, 1000)),
    (3, |a| expire(a, "PEXPIREAT", Arguments::deadline, 1)),
    (5, |a| vec![a.word("PERSIST"), a.key()]),
    (6, |a| vec![a.word("RENAME"), a.key(), a.key()]),
    (5, |a| vec![a.word("RENAMENX"), a.key(), a.key()]),
    (1, |a| vec![a.word("FLUSHDB")]),
    (1, |a| vec![a.word("FLUSHALL")]),
    (1, |a| vec![a.word("SWAPDB"), a.database(), a.database()]),
    (3, |a| many(a, "WATCH", false)),
    (1, |a| vec![a.word("UNWATCH")]),
];

fn name(a: &mut Arguments, of: &[&[u8]]) -> Vec<u8> {
    // The first few names come more often, so that subscribers and publishers meet.
    let among = if a.random.percent(60) { &of[..4] } else { of };
    a.random.pick(among).to_vec()
}

fn names(a: &mut Arguments, word: &str, of: &[&[u8]], least: u64) -> Command {
    let mut command = vec![a.word(word)];
    for _ in 0..a.random.between(least, 3) {
        command.push(name(a, of));
    }
    command
}

fn pubsub(a: &mut Arguments) -> Command {
    let subcommand = *a.random.pick(&["CHANNELS", "SHARDCHANNELS", "NUMSUB", "SHARDNUMSUB", "NUMPAT", "NOSUCH"]);
    let mut command = vec![a.word("PUBSUB"), a.word(subcommand)];
    let (of, most) = match subcommand {
        "CHANNELS" | "SHARDCHANNELS" => (PATTERNS, 1),
        "NUMPAT" => (PATTERNS, u64::from(a.random.percent(5))),
        _ => (CHANNELS, 3),
    };
    for _ in 0..a.random.between(0, most) {
        command.push(name(a, of));
    }
    command
}

fn client(a: &mut Arguments) -> Command {
    let words = *a.random.pick(&[
        "LIST",
        "LIST",
        "LIST",
        "LIST TYPE pubsub",
        "LIST TYPE normal",
        "LIST TYPE replica",
        "LIST TYPE x",
        "INFO",
        "INFO",
        "GETNAME",
        "SETNAME me",
        "SETNAME you",
        "NO-EVICT on",
        "NO-EVICT off",
        "NO-EVICT x",
        "REPLY on",
        "REPLY x",
        "GETREDIR",
        "TRACKINGINFO",
    ]);
    std::iter::once(a.word("CLIENT")).chain(words.split_whitespace().map(|word| word.as_bytes().to_vec())).collect()
}

fn words(a: &mut Arguments, command: &str) -> Command {
    command.split(' ').map(|word| a.word(word)).collect()
}

fn one_of(a: &mut Arguments, table: &[(u64, Make)]) -> Command {
    let mut ticket = a.random.below(table.iter().map(|(weight, _)| weight).sum());
    let make = table.iter().find(|(weight, _)| {
        let hit = ticket < *weight;
        ticket = ticket.saturating_sub(*weight);
        hit
    });
    let (_, make) = make.expect("the ticket is below the sum of the weights");
    let mut command = make(a);
    // HELLO with several errors is another matter in 7.0 (`hello-auth-order`). An LCS that fails has looked up its keys
    // in Redis, which tells of missing keys; here a command that fails tells of nothing.
    let whole = [&b"client"[..], b"hello", b"lcs"].iter().any(|name| command[0].eq_ignore_ascii_case(name));
    if !whole && a.random.percent(3) {
        spoil(a, &mut command);
    }
    if may_set_expired(&command) {
        command.truncate(3);
    }
    command
}

/// Sets the classes of events that are told: all, some or none, by either channel or by both. A wrong class is never
/// set: 7.0 goes back to the classes that were set before, but for the class `n` beside `A`.
fn classes(a: &mut Arguments) -> Command {
    let mut letters: String = a.random.pick(&["KE", "KE", "K", "E", ""]).to_string();
    if a.random.percent(50) {
        letters.push('A');
    }
    for letter in "g$xmnetd".chars() {
        if a.random.percent(40) {
            letters.push(letter);
        }
    }
    ["CONFIG", "SET", "notify-keyspace-events", &letters].map(|word| word.as_bytes().to_vec()).to_vec()
}

/// The frequencies of a case's actions, in a hundred.
struct Mood {
    listening: u64,
    speaking: u64,
    tracking: u64,
    blocks: u64,
}

impl Mood {
    fn command(&self, a: &mut Arguments) -> Command {
        let of_hundred = a.random.below(100);
        let table = match of_hundred {
            n if n < self.listening => LISTENING,
            n if n < self.listening + self.speaking => SPEAKING,
            n if n < self.listening + self.speaking + self.tracking => TRACKING,
            _ => DATA,
        };
        self.one_of(a, table)
    }

    /// Returns a command of a table. Exchanged databases are told here, because their keys have other values
    /// (docs/compatibility.md).
    fn one_of(&self, a: &mut Arguments, table: &[(u64, Make)]) -> Command {
        let command = one_of(a, table);
        if self.tracking > 0 && is(&command, "swapdb", "") { self.one_of(a, table) } else { command }
    }

    /// Commands that are sent together. What was changed before an end of tracking is told here in any case.
    fn pipeline(&self, a: &mut Arguments) -> Vec<Command> {
        let ends = |command: &Command| is(command, "client", "tracking") || is(command, "reset", "");
        let all = (0..a.random.between(2, 6)).map(|_| self.command(a));
        all.filter(|command| self.tracking == 0 || !ends(command)).collect()
    }
}

/// Returns case number `case` of `seed`.
pub fn generate(seed: u64, case: u64) -> Sequence {
    let mut a = Arguments { random: Random::of_part(seed ^ STREAM, case), large: false };
    let mut mood = Mood {
        listening: *a.random.pick(&[10, 25, 60]),
        speaking: *a.random.pick(&[5, 20, 35]),
        tracking: 0,
        blocks: *a.random.pick(&[0, 10, 30]),
    };
    if a.random.percent(30) {
        // The changes of a block are told when it has ended, also those of keys that it has read afterwards.
        mood = Mood { listening: 5, speaking: 5, tracking: 45, blocks: 0 };
    }
    let mut sequence = vec![Step::Channels];
    let send = |connection, commands| Step::Send { connection, commands };
    for connection in 0..CONNECTIONS {
        if a.random.percent(60) {
            let hello = *a.random.pick(&[b"2", b"3", b"3"]);
            sequence.push(send(connection, vec![vec![a.word("HELLO"), hello.to_vec()]]));
        }
    }
    if a.random.percent(75) {
        sequence.push(send(0, vec![classes(&mut a)]));
        let listener = CONNECTIONS - 1;
        sequence.push(send(listener, vec![vec![a.word("PSUBSCRIBE"), b"__key*__:*".to_vec()]]));
    }
    let mut monitor = None;
    if a.random.percent(10) {
        let connection = a.random.below(CONNECTIONS as u64) as usize;
        sequence.push(send(connection, vec![vec![a.word("MONITOR")]]));
        monitor = Some(connection);
    }
    for _ in 0..a.random.between(10, 45) {
        // The first connections do most, so that the others listen.
        let connections = if a.random.percent(50) { 2 } else { CONNECTIONS };
        let connection = a.random.below(connections as u64) as usize;
        let commands = match a.random.below(100) {
            0 => vec![classes(&mut a)],
            // MONITOR goes on here while replies are off.
            1..=3 if monitor != Some(connection) => silent(&mut a, &mood),
            // A block's own lines of MONITOR would come in the middle of its reply.
            n if n < 4 + mood.blocks && monitor != Some(connection) => block(&mut a),
            n if n > 85 => mood.pipeline(&mut a),
            _ => vec![mood.command(&mut a)],
        };
        if !commands.is_empty() {
            sequence.push(send(connection, commands));
        }
    }
    sequence
}

/// Returns MULTI, some commands, and its end. Effects on keys, on subscriptions and on subscribers happen at the end of
/// a block, one kind after the other: so a block has one kind only (docs/compatibility.md).
fn block(a: &mut Arguments) -> Vec<Command> {
    let table = *a.random.pick(&[LISTENING, SPEAKING, DATA, DATA]);
    let mut commands = vec![vec![a.word("MULTI")]];
    for _ in 0..a.random.between(0, 5) {
        let command = one_of(a, table);
        // A reply that is left out would shift the others.
        let shifts = is(&command, "client", "reply");
        // CLIENT LIST and INFO do not show yet what the block has done to its own client.
        let looks = ["list", "info"].iter().any(|word| is(&command, "client", word));
        if !(shifts || looks && commands.len() > 1) {
            commands.push(command);
        }
    }
    let end = if a.random.percent(90) { "EXEC" } else { "DISCARD" };
    commands.push(vec![a.word(end)]);
    commands
}

fn is(command: &Command, name: &str, subcommand: &str) -> bool {
    let has = |at: usize, word: &str| command.get(at).is_some_and(|w| w.eq_ignore_ascii_case(word.as_bytes()));
    has(0, name) && (subcommand.is_empty() || has(1, subcommand))
}

/// Returns commands with replies turned off; messages come all the same. No command subscribes: a client that RESP2
/// binds to subscriptions could not turn replies on again.
fn silent(a: &mut Arguments, mood: &Mood) -> Vec<Command> {
    let reply = |a: &mut Arguments, word: &str| ["CLIENT", "REPLY", word].map(|part| a.word(part)).to_vec();
    if a.random.percent(40) {
        return vec![reply(a, "SKIP"), mood.one_of(a, SPEAKING), mood.command(a)];
    }
    let mut commands = vec![reply(a, "OFF")];
    for _ in 0..a.random.between(1, 4) {
        let table = if a.random.percent(50) { SPEAKING } else { DATA };
        commands.push(mood.one_of(a, table));
    }
    commands.push(reply(a, "ON"));
    commands
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::sequence::{from_text, to_text};

    #[test]
    fn every_case_survives_its_text_form() {
        for case in 0..200 {
            let sequence = generate(11, case);
            assert_eq!(from_text(&to_text(&sequence)).expect("written by us"), sequence, "case {case}");
        }
    }

    #[test]
    fn blocks_are_sent_whole() {
        for case in 0..500 {
            for step in generate(12, case) {
                let Step::Send { commands, .. } = step else { continue };
                let count = |name: &[u8]| commands.iter().filter(|c| c[0].eq_ignore_ascii_case(name)).count();
                assert!(count(b"multi") <= count(b"exec") + count(b"discard"), "case {case}");
            }
        }
    }
}
