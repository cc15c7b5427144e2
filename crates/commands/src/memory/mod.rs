//! MEMORY: the memory that values would take in Redis, and the memory that this server takes.
//!
//! USAGE speaks Redis's language: the bytes of the objects that Redis would make, so that tools that add them up find
//! what they know. STATS and DOCTOR speak of this process, whose figures come from the engine (`Memory::memory`).

pub(crate) mod footprint;
pub(crate) mod sizes;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, Host, MemoryFacts};
use crate::keys::object::{Encoding, string_encoding};
use crate::memory::sizes::{DICT_ENTRY_BYTES, allocated, sds_bytes};
use crate::server::introspect::help;
use crate::stream;
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys};
use haypile_resp::Reply;
use haypile_store::Txn;
use haypile_types::key::{self, Type};
use std::fmt::Write;

pub(crate) const COMMANDS: &[Command] = &[MEMORY];

const MEMORY: Command = Command {
    name: "memory",
    since: "4.0.0",
    group: Group::Server,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "A container for commands about memory.",
    syntax: "",
    complexity: "Depends on subcommand.",
    body: Body::Container,
    subcommands: &[
        Command {
            tips: ONE_NODE,
            ..about("doctor", "Returns what stands out in the use of memory, for people.", Body::Host(doctor))
        },
        Command {
            flags: &[Flag::Loading, Flag::Stale],
            ..about("help", "Lists the subcommands of MEMORY.", Body::Host(help))
        },
        Command {
            complexity: OF_ALLOCATED,
            tips: ONE_NODE,
            ..about("malloc-stats", "Returns the figures of the allocator, for people.", Body::Host(malloc_stats))
        },
        Command {
            complexity: OF_ALLOCATED,
            tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
            ..about("purge", "Has the allocator give back what is not in use.", Body::Act(purge))
        },
        Command { tips: ONE_NODE, ..about("stats", "Returns figures of the use of memory.", Body::Host(stats)) },
        MEMORY_USAGE,
    ],
    ..Command::USUAL
};

const ONE_NODE: &[&str] = &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"];
const OF_ALLOCATED: &str = "Depends on how much memory is allocated, could be slow";

const fn about(name: &'static str, summary: &'static str, body: Body) -> Command {
    Command {
        name,
        since: "4.0.0",
        group: Group::Server,
        arity: Arity::exactly(2),
        keys: Keys::NONE,
        summary,
        syntax: "",
        body,
        ..Command::USUAL
    }
}

const MEMORY_USAGE: Command = Command {
    name: "usage",
    since: "4.0.0",
    group: Group::Server,
    arity: Arity::at_least(3),
    keys: Keys::first(2).ro(&[]),
    summary: "Returns the bytes that a key and its value would take in Redis's memory.",
    syntax: "key [SAMPLES count]",
    complexity: "O(N) where N is the number of samples.",
    access: Access::Read,
    body: Body::Txn(usage),
    ..Command::USUAL
};

fn usage(txn: &mut Txn, args: Args) -> Result<Reply> {
    let mut samples = SAMPLES;
    for i in (3..args.len()).step_by(2) {
        if !args.is(i, "samples") || i + 1 >= args.len() {
            return Err(Error::Syntax);
        }
        // 0 stands for all elements.
        samples = match u64::try_from(args.int(i + 1)?).map_err(|_| Error::Syntax)? {
            0 => u64::MAX,
            count => count,
        };
    }
    let key = args.key(txn, 2);
    let Some(entry) = key::peek(txn, &key)? else { return Ok(Reply::Null) };
    let value = match entry.header.type_of() {
        Type::String => string_bytes(string_encoding(txn, &key, entry)?),
        Type::Hash => OBJECT_BYTES + footprint::of_hash(txn, &key, &entry, samples)?,
        Type::List => OBJECT_BYTES + footprint::of_list(txn, &key, entry, samples)?,
        Type::Set => OBJECT_BYTES + footprint::of_set(txn, &key, entry, samples)?,
        Type::Zset => OBJECT_BYTES + footprint::of_zset(txn, &key, entry, samples)?,
        Type::Stream => OBJECT_BYTES + stream::footprint::in_memory(txn, &key, &entry, samples)?,
    };
    Ok(Reply::Integer((value + sds_bytes(key.name.len() as u64, true) + DICT_ENTRY_BYTES) as i64))
}

/// Elements that are looked at unless SAMPLES says how many.
const SAMPLES: u64 = 5;

/// Redis's object.
const OBJECT_BYTES: u64 = 16;

fn string_bytes((encoding, length): (Encoding, u64)) -> u64 {
    match encoding {
        Encoding::Int(_) => OBJECT_BYTES,
        // Object and string in one allocation.
        Encoding::Embstr => allocated(OBJECT_BYTES + 3 + length + 1),
        Encoding::Raw => OBJECT_BYTES + sds_bytes(length, false),
    }
}

fn stats(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    let MemoryFacts { peak, startup, allocated, active, resident, process, clients, log, databases } = host.memory();
    let keys: u64 = databases.iter().map(|(_, keys, _)| keys).sum();
    let overhead = startup + clients + log;
    let dataset = allocated.saturating_sub(overhead);
    let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let bytes = |name: &'static str, bytes: u64| (Reply::bulk(name), Reply::Integer(bytes as i64));
    let difference = |name: &'static str, a: u64, b: u64| (Reply::bulk(name), Reply::Integer(a as i64 - b as i64));
    let double = |name: &'static str, value: f64| (Reply::bulk(name), Reply::Double(value));
    let mut fields = vec![
        bytes("peak.allocated", peak),
        bytes("total.allocated", allocated),
        bytes("startup.allocated", startup),
        bytes("replication.backlog", 0),
        bytes("clients.slaves", 0),
        bytes("clients.normal", clients),
        bytes("cluster.links", 0),
        bytes("aof.buffer", log),
        bytes("lua.caches", 0),
        bytes("functions.caches", 0),
    ];
    for (database, keys, _) in &databases {
        if *keys > 0 {
            // No table in memory has all keys: databases cost what their cached rows do.
            let overhead = ["overhead.hashtable.main", "overhead.hashtable.expires", "overhead.hashtable.slot-to-keys"];
            fields
                .push((Reply::bulk(format!("db.{database}")), Reply::Map(overhead.map(|name| bytes(name, 0)).into())));
        }
    }
    fields.extend([
        bytes("overhead.total", overhead),
        bytes("keys.count", keys),
        bytes("keys.bytes-per-key", dataset.checked_div(keys).unwrap_or(0)),
        bytes("dataset.bytes", dataset),
        double("dataset.percentage", 100.0 * ratio(dataset, allocated.saturating_sub(startup))),
        double("peak.percentage", 100.0 * ratio(allocated, peak)),
        bytes("allocator.allocated", allocated),
        bytes("allocator.active", active),
        bytes("allocator.resident", resident),
        double("allocator-fragmentation.ratio", ratio(active, allocated)),
        difference("allocator-fragmentation.bytes", active, allocated),
        double("allocator-rss.ratio", ratio(resident, active)),
        difference("allocator-rss.bytes", resident, active),
        double("rss-overhead.ratio", ratio(process, resident)),
        difference("rss-overhead.bytes", process, resident),
        double("fragmentation", ratio(process, allocated)),
        difference("fragmentation.bytes", process, allocated),
    ]);
    Ok(Reply::Map(fields))
}

/// The bytes below which nothing is worth a word.
const SMALL_BYTES: u64 = 64 << 20;

/// The advice that the figures give reason for.
fn findings(facts: &MemoryFacts) -> Vec<&'static str> {
    let MemoryFacts { peak, allocated, active, resident, process, .. } = *facts;
    let found = [
        (
            peak / 2 > allocated,
            "At its peak the process had more than twice as much memory in use as now. The allocator keeps some of it for later: \
             MEMORY PURGE gives it back.",
        ),
        (
            active > allocated + allocated / 2,
            "Much of what lies in pages in use is unused (fragmentation): values of other sizes than those before. It passes as \
             caches renew themselves; a restart ends it at once.",
        ),
        (
            resident > active + active / 4,
            "The allocator holds pages that nothing lies in. MEMORY PURGE gives them back.",
        ),
        (
            process > resident + resident / 4,
            "The process has much memory that the allocator does not know of: mapped files, or stacks of threads.",
        ),
    ];
    found.into_iter().filter(|(is_so, _)| *is_so).map(|(_, text)| text).collect()
}

fn doctor(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    let facts = host.memory();
    let mut text = String::new();
    if facts.allocated < SMALL_BYTES {
        text.push_str("Hardly any memory is in use: there is nothing to examine yet.\n");
    } else {
        match &findings(&facts)[..] {
            [] => text.push_str("Nothing stands out.\n"),
            found => {
                found.iter().for_each(|finding| writeln!(text, "* {finding}").expect("a String takes any text"));
            }
        }
    }
    Ok(Reply::Verbatim("txt", text.into()))
}

fn malloc_stats(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    Ok(Reply::Verbatim("txt", host.allocator_report().into()))
}

fn purge(_host: &mut dyn Host, _args: Args) -> Result<Answer> {
    Ok(Answer::ok(Act::PurgeMemory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_doctor_says_what_stands_out() {
        let well = MemoryFacts {
            peak: 100,
            allocated: 100,
            active: 110,
            resident: 120,
            process: 125,
            ..MemoryFacts::default()
        };
        assert_eq!(findings(&well), Vec::<&str>::new());
        let found = |facts: MemoryFacts, word: &str| {
            assert!(matches!(&findings(&facts)[..], [text] if text.contains(word)), "{facts:?}");
        };
        found(MemoryFacts { peak: 300, ..well.clone() }, "peak");
        found(MemoryFacts { active: 200, resident: 200, process: 200, ..well.clone() }, "fragmentation");
        found(MemoryFacts { resident: 200, process: 200, ..well.clone() }, "pages that nothing");
        found(MemoryFacts { process: 200, ..well }, "does not know of");
    }
}
