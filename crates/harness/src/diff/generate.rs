//! Makes a case: a sequence of steps over all commands that the server has, from a seed and the number of the case.
//!
//! Each case uses a random part of the commands ("swarm testing", Groce et al. 2012): a few commands that meet often
//! find more than all of them rarely. Some commands are then spoiled: an argument lost, doubled, replaced, added. The
//! commands of a group are made in a module named after it. The generator never asks a server; its knowledge of a
//! connection (is it in MULTI?) is a guess that only shapes the odds.

use super::administration;
use super::arguments::Arguments;
use super::bitmaps;
use super::clients;
use super::command_tables;
use super::dumps;
use super::functions;
use super::geos;
use super::groups;
use super::hashes;
use super::hyperloglogs;
use super::keys;
use super::lists;
use super::lua;
use super::malformed;
use super::scripts;
use super::sequence::{CONNECTIONS, Command, Sequence, Step};
use super::sets;
use super::sorting;
use super::streams;
use super::strings;
use super::users;
use super::zsets;
use crate::random::Random;

type Make = fn(&mut Arguments) -> Command;

/// The commands: how often each comes, and the function that makes it.
const COMMANDS: &[(u64, Make)] = &[
    // Strings.
    (8, |a| vec![a.word("GET"), a.key()]),
    (14, strings::set),
    (2, |a| vec![a.word("SETEX"), a.key(), a.ttl(1000), a.value()]),
    (2, |a| vec![a.word("PSETEX"), a.key(), a.ttl(1), a.value()]),
    (3, |a| vec![a.word("SETNX"), a.key(), a.value()]),
    (3, |a| vec![a.word("GETSET"), a.key(), a.value()]),
    (5, strings::getex),
    (3, |a| vec![a.word("GETDEL"), a.key()]),
    (4, |a| keys::many(a, "MGET", false)),
    (4, |a| keys::many(a, "MSET", true)),
    (3, |a| keys::many(a, "MSETNX", true)),
    (4, |a| vec![a.word("INCR"), a.key()]),
    (3, |a| vec![a.word("DECR"), a.key()]),
    (4, |a| vec![a.word("INCRBY"), a.key(), a.number()]),
    (3, |a| vec![a.word("DECRBY"), a.key(), a.number()]),
    (5, |a| vec![a.word("INCRBYFLOAT"), a.key(), a.float()]),
    (4, strings::lcs),
    (7, |a| vec![a.word("APPEND"), a.key(), a.value()]),
    (4, |a| vec![a.word("STRLEN"), a.key()]),
    (6, |a| vec![a.word("GETRANGE"), a.key(), a.index(), a.index()]),
    (2, |a| vec![a.word("SUBSTR"), a.key(), a.index(), a.index()]),
    (8, |a| vec![a.word("SETRANGE"), a.key(), a.write_offset(), a.value()]),
    // Bits of strings.
    (24, bitmaps::bitmap),
    // HyperLogLogs.
    (10, hyperloglogs::pfadd),
    (16, hyperloglogs::other),
    // Hashes.
    (14, hashes::hset),
    (30, hashes::other),
    // Sets.
    (14, sets::sadd),
    (34, sets::other),
    // Lists.
    (44, lists::list),
    // Sorted sets.
    (16, zsets::zadd),
    (34, zsets::other),
    // Geospatial positions.
    (14, geos::geoadd),
    (34, geos::other),
    // Streams.
    (16, streams::xadd),
    (28, streams::other),
    (14, groups::xreadgroup),
    (34, groups::other),
    // Keys.
    (4, |a| keys::many(a, "DEL", false)),
    (2, |a| keys::many(a, "UNLINK", false)),
    (4, |a| keys::many(a, "EXISTS", false)),
    (2, |a| keys::many(a, "TOUCH", false)),
    (6, sorting::sort),
    (4, keys::copy),
    (6, dumps::dump),
    (8, dumps::restore),
    (3, |a| vec![a.word("MOVE"), a.key(), a.database()]),
    (2, |a| vec![a.word("TYPE"), a.key()]),
    (5, |a| keys::expire(a, "EXPIRE", Arguments::ttl, 1000)),
    (4, |a| keys::expire(a, "PEXPIRE", Arguments::ttl, 1)),
    (4, |a| keys::expire(a, "EXPIREAT", Arguments::deadline, 1000)),
    (5, |a| keys::expire(a, "PEXPIREAT", Arguments::deadline, 1)),
    (2, |a| vec![a.word("TTL"), a.key()]),
    (2, |a| vec![a.word("PTTL"), a.key()]),
    (2, |a| vec![a.word("EXPIRETIME"), a.key()]),
    (3, |a| vec![a.word("PEXPIRETIME"), a.key()]),
    (3, |a| vec![a.word("PERSIST"), a.key()]),
    (2, keys::scan),
    (3, |a| vec![a.word("KEYS"), a.pattern()]),
    (1, |a| vec![a.word("RANDOMKEY")]),
    (4, |a| vec![a.word("RENAME"), a.key(), a.key()]),
    (4, |a| vec![a.word("RENAMENX"), a.key(), a.key()]),
    (2, |a| vec![a.word("DBSIZE")]),
    (1, |a| keys::flush(a, "FLUSHDB")),
    (1, |a| keys::flush(a, "FLUSHALL")),
    (2, |a| vec![a.word("SWAPDB"), a.database(), a.database()]),
    // Connections.
    (3, |a| vec![a.word("SELECT"), a.database()]),
    (1, clients::ping),
    (1, |a| vec![a.word("ECHO"), a.value()]),
    (1, clients::hello),
    (4, clients::client),
    (1, clients::auth),
    (1, |a| vec![a.word("RESET")]),
    (1, clients::pubsub),
    (1, clients::publish),
    // Transactions.
    (5, |a| vec![a.word("MULTI")]),
    (5, |a| vec![a.word("EXEC")]),
    (1, |a| vec![a.word("DISCARD")]),
    (4, |a| keys::many(a, "WATCH", false)),
    (1, |a| vec![a.word("UNWATCH")]),
    // The server.
    (1, |a| if a.random.percent(30) { vec![a.word("INFO"), a.word("keyspace")] } else { administration::info(a) }),
    (1, administration::config_get),
    (1, administration::config_set),
    (1, |a| vec![a.word("CONFIG"), a.word("RESETSTAT")]),
    (1, |a| vec![a.word("CONFIG"), a.word("REWRITE")]),
    (1, |a| vec![a.word("SAVE")]),
    (1, administration::bgsave),
    (1, |a| vec![a.word("LASTSAVE")]),
    (1, administration::slowlog),
    (1, administration::latency),
    (1, command_tables::command_table),
    (1, administration::shutdown_refused),
    // Internals.
    (3, keys::object),
    (1, administration::memory),
    (2, administration::debug),
    // The node by itself.
    (1, administration::node),
    (1, administration::wait),
    (1, administration::cluster),
    (1, malformed::unknown),
];

/// The commands of cases of consumer groups only: other cases seldom come so far that an entry is pending.
const OF_GROUPS: &[(u64, Make)] = &[
    (30, groups::xreadgroup),
    (80, groups::other),
    (1, |a| keys::many(a, "DEL", false)),
    (4, |a| vec![a.word("MULTI")]),
    (5, |a| vec![a.word("EXEC")]),
    (2, |a| keys::many(a, "WATCH", false)),
];

/// Adds a key whose deadline passes between two steps: set, maybe watched, waited for, read in many ways.
fn expiring(a: &mut Arguments, connection: usize, sequence: &mut Sequence) {
    let key = a.key();
    let mut first = vec![vec![b"SET".to_vec(), key.clone(), a.value(), b"PX".to_vec(), b"100".to_vec()]];
    let watched = a.random.percent(30);
    if watched {
        first.push(vec![b"WATCH".to_vec(), key.clone()]);
    }
    sequence.push(Step::Send { connection, commands: first });
    sequence.push(Step::Wait { ms: 110 });
    let mut then: Vec<Command> = if watched { vec![vec![b"MULTI".to_vec()]] } else { vec![] };
    // The first read must be one that removes the key for real in Redis too, so that DBSIZE agrees.
    let look: Make = *a.random.pick(&[
        |a: &mut Arguments| vec![a.word("EXISTS")],
        |a: &mut Arguments| vec![a.word("GET")],
        |a: &mut Arguments| vec![a.word("TTL")],
        |a: &mut Arguments| vec![a.word("DEL")],
        |a: &mut Arguments| vec![a.word("INCR")],
        |a: &mut Arguments| vec![a.word("PERSIST")],
        |a: &mut Arguments| vec![a.word("TYPE")],
        |a: &mut Arguments| vec![a.word("GETDEL")],
    ]);
    let mut command = look(a);
    command.push(key);
    then.push(command);
    if watched {
        then.push(vec![b"EXEC".to_vec()]);
    }
    sequence.push(Step::Send { connection, commands: then });
}

/// Returns case number `case` of `seed`.
pub fn generate(seed: u64, case: u64) -> Sequence {
    let mut random = Random::of_part(seed, case);
    let large = random.percent(12);
    let cool_per_mille = if random.percent(15) { 60 } else { 0 };
    let connections = *random.pick(&[1, 1, 2, 3]);
    let wanted = random.between(8, COMMANDS.len() as u64);
    let is_of_groups = random.percent(10);
    let has_users = random.percent(12);
    let is_of_functions = !has_users && random.percent(10);
    let table = if is_of_groups { OF_GROUPS.iter().collect() } else { part_of_commands(&mut random, wanted) };
    let total = table.iter().map(|(weight, _)| weight).sum();
    let mut a = Arguments { random, large };

    let mut sequence = beginning(&mut a, connections, has_users);
    let mut called = |a: &mut Arguments| called(a, &table, total);
    if is_of_functions {
        let commands = functions::beginning(&mut a, &mut called);
        sequence.push(Step::Send { connection: 0, commands });
    }
    if is_of_groups {
        sequence.push(Step::Send { connection: 0, commands: groups::beginning(&mut a) });
    }
    let mut in_multi = [false; CONNECTIONS];
    for _ in 0..a.random.between(10, 60) {
        let connection = a.random.below(connections as u64) as usize;
        if a.random.below(1000) < cool_per_mille {
            sequence.push(Step::Cool);
        }
        match a.random.below(200) {
            0 if !in_multi[connection] => expiring(&mut a, connection, &mut sequence),
            1..=3 => sequence.push(Step::Raw { bytes: a.random.pick(malformed::RAW).to_vec() }),
            4..=9 => {
                let mut command = vec![b"SCAN".to_vec()];
                keys::scan_options(&mut a, &mut command, true);
                sequence.push(Step::Scan { connection, command });
            }
            11..=13 => {
                let name = *a.random.pick(&["HSCAN", "SSCAN", "ZSCAN"]);
                let command = vec![name.as_bytes().to_vec(), a.key()];
                sequence.push(Step::Scan { connection, command });
            }
            // A user without the right to DEL would leave what SPOP has left by chance.
            14..=15 if !in_multi[connection] && !has_users => {
                let commands = sets::popped(&mut a);
                sequence.push(Step::Send { connection, commands });
            }
            16..=17 if !in_multi[connection] => {
                let steps = dumps::transferred(&mut a).into_iter();
                sequence.extend(steps.map(|commands| Step::Send { connection, commands }));
            }
            18..=60 if is_of_functions && !in_multi[connection] => {
                let steps = functions::some(&mut a, &mut called).into_iter();
                sequence.extend(steps.map(|commands| Step::Send { connection, commands }));
            }
            // A denial has texts of its own in 7.2, which a script may look into.
            61..=68 if !has_users => {
                let commands: Vec<Command> = (0..lua::CALLS).map(|_| called(&mut a)).collect();
                sequence.push(Step::Send { connection, commands: vec![lua::eval(&mut a, &commands)] });
            }
            10 => {
                sequence.push(Step::Send { connection, commands: vec![vec![a.word("QUIT")]] });
                in_multi[connection] = false;
            }
            _ => {
                let length = if a.random.percent(25) { a.random.between(2, 10) } else { 1 };
                let mut commands: Vec<Command> =
                    (0..length).map(|_| next(&mut a, &table, total, &mut in_multi[connection])).collect();
                if has_users && a.random.percent(25) {
                    let other = commands[0].clone();
                    commands.push(users::users(&mut a, other));
                }
                sequence.push(Step::Send { connection, commands });
            }
        }
    }
    sequence
}

/// Returns about as many of the commands as wanted; all if that would be none.
fn part_of_commands(random: &mut Random, wanted: u64) -> Vec<&'static (u64, Make)> {
    let mut table: Vec<_> = COMMANDS.iter().filter(|_| random.below(COMMANDS.len() as u64) < wanted).collect();
    if table.is_empty() {
        table.extend(COMMANDS);
    }
    table
}

/// Returns the first steps of all connections; with users, some of them log in.
fn beginning(a: &mut Arguments, connections: usize, has_users: bool) -> Sequence {
    let mut sequence = Vec::new();
    for connection in 0..connections {
        sequence.push(Step::Send { connection, commands: preamble(a) });
    }
    if has_users {
        sequence.push(Step::Send { connection: 0, commands: users::beginning(a) });
        for connection in 1..connections {
            sequence.push(Step::Send { connection, commands: vec![users::login(a)] });
        }
    }
    sequence
}

/// Returns commands that clients send when they connect.
fn preamble(a: &mut Arguments) -> Vec<Command> {
    let words = |line: &str| line.split_whitespace().map(|w| w.as_bytes().to_vec()).collect::<Command>();
    let mut commands = vec![match a.random.below(4) {
        0 => words("HELLO 3"),
        1 => words("HELLO 3 SETNAME tester"),
        2 => words("HELLO 2"),
        _ => words("PING"),
    }];
    if a.random.percent(20) {
        commands.push(words("CLIENT SETINFO LIB-NAME tester"));
        commands.push(words("CLIENT SETINFO lib-ver 1.0"));
    }
    commands
}

/// Returns a command of the table.
fn draw(a: &mut Arguments, table: &[&(u64, Make)], total: u64) -> Command {
    let mut ticket = a.random.below(total);
    let (_, make) = table
        .iter()
        .find(|(weight, _)| {
            let hit = ticket < *weight;
            ticket = ticket.saturating_sub(*weight);
            hit
        })
        .expect("the ticket is below the sum of the weights");
    let mut command = make(a);
    if a.random.percent(4) {
        malformed::spoil(a, &mut command);
    }
    command
}

/// Returns a command of the table that scripts may call; a GET where the table has hardly any.
fn called(a: &mut Arguments, table: &[&(u64, Make)], total: u64) -> Command {
    const DRAWS_MAX: usize = 20;
    let drawn = (0..DRAWS_MAX).map(|_| draw(a, table, total)).find(lua::may_call);
    drawn.unwrap_or_else(|| vec![a.word("GET"), a.key()])
}

fn next(a: &mut Arguments, table: &[&(u64, Make)], total: u64, in_multi: &mut bool) -> Command {
    if *in_multi && a.random.percent(15) {
        *in_multi = false;
        return vec![a.word("EXEC")];
    }
    let mut command = draw(a, table, total);
    if a.random.percent(5)
        && let Some(call) = scripts::wrapped(a, &command)
    {
        command = call;
    }
    if *in_multi && is_refused_by_7_0(&command) {
        command = vec![b"PING".to_vec()];
    }
    *in_multi = match command[0].to_ascii_lowercase().as_slice() {
        b"multi" => true,
        b"exec" | b"discard" | b"reset" => false,
        _ => *in_multi,
    };
    command
}

/// Returns whether 7.0 refuses a command that 7.2 runs (COMMAND GETKEYS and GETKEYSANDFLAGS of a single word, and
/// CLIENT NO-TOUCH): in a block, the refusal would end the whole block on one side only.
fn is_refused_by_7_0(command: &Command) -> bool {
    if command[0].eq_ignore_ascii_case(b"client") && command.get(1).is_some_and(|w| w.eq_ignore_ascii_case(b"no-touch"))
    {
        return true;
    }
    let [name, subcommand, _] = &command[..] else { return false };
    let is_one = |word: &[u8]| subcommand.eq_ignore_ascii_case(word);
    name.eq_ignore_ascii_case(b"command") && (is_one(b"getkeys") || is_one(b"getkeysandflags"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::sequence::{from_text, to_text};

    #[test]
    fn a_seed_gives_the_same_case_again() {
        assert_eq!(generate(7, 3), generate(7, 3));
        assert_ne!(generate(7, 3), generate(7, 4));
    }

    #[test]
    fn every_case_survives_its_text_form() {
        for case in 0..200 {
            let sequence = generate(11, case);
            assert_eq!(from_text(&to_text(&sequence)).expect("written by us"), sequence, "case {case}");
        }
    }

    #[test]
    fn no_case_stops_a_server_or_makes_a_huge_value() {
        for case in 0..2000 {
            for step in generate(13, case) {
                let Step::Send { commands, .. } = step else { continue };
                for command in commands {
                    let name = command[0].to_ascii_lowercase();
                    assert!(name != b"shutdown" || command.len() > 1, "case {case}");
                    if name == b"setrange" && command.len() == 4 {
                        let offset = std::str::from_utf8(&command[2]).ok().and_then(|t| t.parse::<i64>().ok());
                        let huge = offset.is_some_and(|o| (8 << 20..536_870_911).contains(&o));
                        assert!(!huge, "case {case}");
                    }
                }
            }
        }
    }
}
