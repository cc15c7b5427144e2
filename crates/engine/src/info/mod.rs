//! INFO: facts about the server, from one table of sections and fields, which /metrics (`metrics`) and docs/info.md
//! (`page`) walk as well.
//!
//! Names are Redis's where Redis has the same fact. A field of Redis that cannot have another value here is a constant
//! of the table that says why. Every field is read when it is asked for, from memory: no lock of RocksDB and no disk is
//! waited for, whose figures `Engine::figures` keeps. The section `sizes` alone asks the base, on the I/O pool.

mod archive;
mod clients;
pub(crate) mod commands;
mod field;
mod figures;
mod group;
mod keyspace;
mod memory;
pub(crate) mod metrics;
pub mod page;
mod persistence;
mod replication;
mod server;
mod stats;

use crate::clients::statistics::Wait;
use crate::clients::statistics::counters::{Counters, Distribution, Histogram};
use crate::run::engine::Engine;
use field::{Field, text};
use haypile_commands::host::{InfoSection, Shown};
use haypile_store::Txn;
use std::fmt::Write;

/// A section with the fields that are always there.
struct Section {
    shown: InfoSection,
    fields: &'static [Field],
}

const fn section(name: &'static str, title: &'static str, fields: &'static [Field]) -> Section {
    Section { shown: InfoSection { name, title, shown: Shown::Always }, fields }
}

/// Makes a section that INFO shows only where it is asked for, or all are.
const fn unusual(name: &'static str, title: &'static str, fields: &'static [Field]) -> Section {
    Section { shown: InfoSection { name, title, shown: Shown::WithAll }, fields }
}

/// Makes a section that INFO shows only where it is named.
const fn hidden(name: &'static str, title: &'static str, fields: &'static [Field]) -> Section {
    Section { shown: InfoSection { name, title, shown: Shown::Never }, fields }
}

const TABLE: [Section; 24] = [
    section("server", "Server", server::FIELDS),
    section("clients", "Clients", clients::FIELDS),
    section("memory", "Memory", memory::FIELDS),
    section("persistence", "Persistence", persistence::FIELDS),
    hidden("archive", "Archive", archive::FIELDS),
    section("stats", "Stats", stats::FIELDS),
    section("replication", "Replication", replication::FIELDS),
    hidden("raft", "Raft", group::FIELDS),
    section("cpu", "CPU", stats::CPU),
    section("modules", "Modules", &[]),
    unusual("commandstats", "Commandstats", &[]),
    section("errorstats", "Errorstats", &[]),
    unusual("latencystats", "Latencystats", &[]),
    unusual("slowlog", "Slowlog", &[]),
    unusual("waits", "Waits", WAITS),
    section("store", "Store", &[]),
    section("log", "Log", &[]),
    section("cache", "Cache", &[]),
    section("rocksdb", "RocksDB", &[]),
    hidden("debug", "Debug", stats::DEBUG),
    section("cluster", "Cluster", keyspace::CLUSTER),
    section("keyspace", "Keyspace", &[]),
    section("types", "Types", &[]),
    hidden("sizes", "Sizes", &[]),
];

/// The sections in the order in which they are shown.
pub(crate) const SECTIONS: &[InfoSection] = &{
    let mut shown = [TABLE[0].shown; TABLE.len()];
    let mut at = 0;
    while at < TABLE.len() {
        shown[at] = TABLE[at].shown;
        at += 1;
    }
    shown
};

const WAITS: &[Field] = &[
    text(
        "reply_usec_inline",
        |engine| percentiles(engine, |loop_| &loop_.inline_us, 1),
        "From the read of a request to the write of its reply: of what ran at once.",
    ),
    text(
        "reply_usec_waited",
        |engine| percentiles(engine, |loop_| &loop_.waited_us, 1),
        "The same of what waited for the disk, a lock or its turn.",
    ),
];

/// Appends the fields of a section.
pub(crate) fn write(engine: &Engine, txn: Option<&Txn<'_>>, section: &str, out: &mut String) {
    for known in TABLE.iter().filter(|known| known.shown.name == section) {
        known.fields.iter().for_each(|known| field(out, known.name, &known.value(engine)));
    }
    match section {
        "persistence" if engine.store().is_none() => {
            persistence::LOADING.iter().for_each(|known| field(out, known.name, &known.value(engine)));
        }
        "clients" => clients::lines(engine, out),
        "commandstats" => commands::commandstats(engine, out),
        "errorstats" => commands::errorstats(engine, out),
        "latencystats" => commands::latencystats(engine, out),
        "slowlog" => commands::slowlog(engine, out),
        "waits" => {
            for wait in Wait::ALL {
                let value = percentiles(engine, |loop_| &loop_.waits_ns[wait as usize], 1000);
                field(out, &format!("wait_usec_{}", wait.name()), &value);
            }
        }
        "replication" => replication::lines(engine, out),
        "raft" => group::lines(engine, out),
        "keyspace" => keyspace::keyspace(engine, txn, out),
        "types" => keyspace::types(engine, txn, out),
        "sizes" => keyspace::sizes(engine, out),
        "store" | "log" | "cache" | "rocksdb" => {
            for (_, name, value) in engine.figures().iter().filter(|(of, ..)| *of == section) {
                field(out, name, &value.to_string());
            }
        }
        _ => {}
    }
}

fn field(out: &mut String, name: &str, value: &str) {
    write!(out, "{name}:{value}\r\n").expect("a string takes all that is written to it");
}

/// Returns the percentiles of a histogram in units of `unit`.
fn percentiles(engine: &Engine, of: impl Fn(&Counters) -> &Histogram, unit: u64) -> String {
    let all = together(engine, of);
    let at = |percent| all.percentile(percent) / unit;
    format!("count={},p50={},p99={},p99.9={},max={}", all.total(), at(50.0), at(99.0), at(99.9), at(100.0))
}

/// Returns the distribution over all event loops.
fn together(engine: &Engine, of: impl Fn(&Counters) -> &Histogram) -> Distribution {
    let mut all = Distribution::default();
    engine.all_counters().iter().for_each(|loop_| all.add(of(loop_)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_there_once_and_explained() {
        let mut seen = std::collections::HashSet::new();
        let of_server = TABLE.iter().flat_map(|section| section.fields).chain(persistence::LOADING);
        for known in of_server.chain(replication::OF_REPLICA).chain(replication::OF_ACKNOWLEDGED) {
            assert!(seen.insert(known.name), "{}", known.name);
            assert!(known.about.ends_with('.'), "{}: {}", known.name, known.about);
        }
    }
}
