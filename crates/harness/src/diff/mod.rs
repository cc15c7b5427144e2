//! The differential test: generated sequences of commands run against redis-server and against ours, replies compared.
//!
//! `sequence` defines a case and its text form, `generate` makes sequences, `play` runs them on both servers, `compare`
//! and `exceptions` judge, `shrink` makes a failure small; `channels` has cases of another kind, about what connections
//! hear of each other, `blocking` those in which they wait for keys. A failure is confirmed on fresh servers first.

mod administration;
mod arguments;
mod bitmaps;
pub mod blocking;
pub mod channels;
mod clients;
mod command_tables;
pub mod compare;
mod dumps;
pub mod exceptions;
mod functions;
pub mod generate;
mod geos;
mod groups;
mod hashes;
mod hyperloglogs;
mod keys;
mod lists;
mod lua;
mod malformed;
pub mod play;
pub(crate) mod scripts;
pub mod sequence;
mod sets;
pub mod shrink;
mod sorting;
mod streams;
mod strings;
mod users;
mod zsets;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::server::{Server, Template, Workplace};
use exceptions::EXCEPTIONS;
use generate::generate;
use play::{Difference, Pair};
use sequence::{Sequence, Step, to_short_text, to_text};

/// Directives of our server with which a few megabytes of writes move older data to the base.
pub const SMALL_STORE: &str = "--maxmemory 64mb --memtable-size 1mb --row-cache-size 1mb";

/// The servers and cases of a run.
pub struct Options {
    /// The reference server.
    pub base: Template,
    /// The server under test.
    pub server: Template,
    pub seed: u64,
    /// The number of the first case, and how many to play.
    pub first_case: u64,
    pub cases: u64,
    pub kind: Kind,
    /// The number of failing sequences that ends the run.
    pub failures_max: u64,
    /// The file for a failing sequence.
    pub save_to: PathBuf,
}

/// The kinds of cases of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// One case in eight is of channels, one of blocking.
    All,
    /// Commands and their replies.
    Commands,
    /// Messages and events between connections.
    Channels,
    /// Connections that wait for keys, and the order in which they are served.
    Blocking,
}

impl Kind {
    /// Returns case number `case` of `seed`.
    fn generate(self, seed: u64, case: u64) -> Sequence {
        match (self, case % 8) {
            (Kind::Channels, _) | (Kind::All, 3) => channels::generate(seed, case),
            (Kind::Blocking, _) | (Kind::All, 7) => blocking::generate(seed, case),
            (Kind::Commands | Kind::All, _) => generate(seed, case),
        }
    }
}

/// Two running servers, and the directories of their files.
struct Servers {
    pair: Pair,
    base: Server,
    ours: Server,
    base_place: Workplace,
    our_place: Workplace,
}

impl Servers {
    fn start(base: &Template, ours: &Template) -> Result<Servers> {
        let base_place = Workplace::new("diff-base", None)?;
        let our_place = Workplace::new("diff", None)?;
        // DEBUG is compared, too; and no nodes of streams are made by their bytes, which have no effect here.
        let more = "--enable-debug-command yes --stream-node-max-bytes 0";
        let [base, ours] = [base, ours].map(|template| template.with(more));
        let (base, _) = Server::start(&base?, &base_place).context("starting the base")?;
        let (ours, _) = Server::start(&ours?, &our_place).context("starting the server under test")?;
        for server in [&base, &ours] {
            scripts::load_library(&mut server.client()?)?;
        }
        Ok(Servers { pair: Pair::new(&base, &ours)?, base, ours, base_place, our_place })
    }

    /// Stops both cleanly: a server that cannot stop after a run has failed it.
    fn stop(self) -> Result<()> {
        drop(self.pair);
        self.base.stop().with_context(|| format!("stopping the base\n{}", self.base_place.log_tail()))?;
        self.ours.stop().with_context(|| format!("stopping the server under test\n{}", self.our_place.log_tail()))
    }
}

/// Plays the cases, prints differences and totals; returns true if there was no difference.
pub fn run(options: &Options) -> Result<bool> {
    println!("diff: seed {}, cases {}..{}", options.seed, options.first_case, options.first_case + options.cases);
    let begin = Instant::now();
    let mut servers = Servers::start(&options.base, &options.server)?;
    let mut totals = Totals::default();
    for case in options.first_case..options.first_case + options.cases {
        let name = format!("seed {} case {case}", options.seed);
        let sequence = options.kind.generate(options.seed, case);
        totals.cases += 1;
        if let Some(difference) = servers.pair.play(&sequence).with_context(|| name.clone())? {
            report(options, &name, sequence, &difference, &mut servers)?;
            totals.add(&servers.pair);
            totals.failures += 1;
            servers = Servers::start(&options.base, &options.server)?;
            if totals.failures == options.failures_max {
                break;
            }
        }
    }
    totals.add(&servers.pair);
    servers.stop()?;
    let excepted: Vec<String> = totals.excepted.iter().map(|(name, times)| format!("{name} {times}")).collect();
    println!(
        "diff: seed {}: {} cases, {} commands, {} with a difference, {:.1} s; exceptions: {}",
        options.seed,
        totals.cases,
        totals.commands,
        totals.failures,
        begin.elapsed().as_secs_f64(),
        if excepted.is_empty() { "none".to_string() } else { excepted.join(", ") }
    );
    Ok(totals.failures == 0)
}

#[derive(Default)]
struct Totals {
    cases: u64,
    commands: u64,
    failures: u64,
    excepted: BTreeMap<&'static str, u64>,
}

impl Totals {
    fn add(&mut self, pair: &Pair) {
        self.commands += pair.commands;
        for (name, times) in &pair.excepted {
            *self.excepted.entry(name).or_default() += times;
        }
    }
}

/// Plays given sequences, as from a file of kept ones; returns the names of those that differ.
pub fn replay(base: &Template, server: &Template, kept: &[sequence::Kept]) -> Result<Vec<String>> {
    let mut servers = Servers::start(base, server)?;
    let mut failed = Vec::new();
    for kept in kept {
        if let Some(difference) = servers.pair.play(&kept.sequence).with_context(|| kept.name.clone())? {
            println!("diff: {}: step {}: {}", kept.name, difference.step, difference.text);
            failed.push(kept.name.clone());
            servers = Servers::start(base, server)?;
        }
    }
    if failed.is_empty() {
        servers.stop()?;
    }
    Ok(failed)
}

/// Returns the exceptions, as a table for the documentation.
pub fn exceptions_table() -> String {
    let rows = EXCEPTIONS.iter().map(|e| format!("| {} | {} |\n", e.name, e.reason));
    format!("| rule | reason |\n|---|---|\n{}", rows.collect::<String>())
}

/// Says what differed, confirms it on fresh servers, makes it small and writes it to a file.
fn report(
    options: &Options,
    name: &str,
    sequence: Sequence,
    difference: &Difference,
    servers: &mut Servers,
) -> Result<()> {
    println!("diff: {name}: step {}: {}", difference.step, difference.text);
    if let Some(status) = servers.ours.ended()? {
        println!("diff: the server under test ended: {status}\n{}", servers.our_place.log_tail());
    }
    let path = options.save_to.join(format!("diff-{}.txt", name.replace(' ', "-")));
    // A server that died or hangs must not spoil the trials after it: a server that fails a trial is replaced.
    let mut fresh = Servers::start(&options.base, &options.server)?;
    let kind = |sequence: &[Step]| (channels::is_of_channels(sequence), blocking::is_of_blocking(sequence));
    let is_of = kind(&sequence);
    let mut fails = |sequence: &Sequence| -> Result<bool> {
        if is_of != kind(sequence) {
            // Without its mark the sequence would be a case of another kind.
            return Ok(false);
        }
        let differs = match fresh.pair.play(sequence) {
            // Half a block, or replies that stay turned off, leave the base without an answer.
            Err(_) if is_of != (false, false) => false,
            result => result?.is_some(),
        };
        if differs && !alive(&mut fresh) {
            fresh = Servers::start(&options.base, &options.server)?;
        }
        Ok(differs)
    };
    let confirmed = fails(&sequence)?;
    let small = if confirmed { shrink::shrink(sequence, &mut fails)? } else { sequence };
    let last = fresh.pair.play(&small)?;
    let text = last.map_or_else(|| "not reproduced on fresh servers".to_string(), |d| d.text);
    let comment: String = format!("{name}\n{text}").lines().map(|line| format!("# {line}\n")).collect();
    fs::create_dir_all(&options.save_to)?;
    fs::write(&path, format!("{comment}{}", to_text(&small))).with_context(|| format!("writing {}", path.display()))?;
    println!("diff: {} steps remain; replay with: haypile-harness diff --replay {}", small.len(), path.display());
    println!("{comment}{}", to_short_text(&small));
    Ok(())
}

/// Returns whether the server under test still runs and answers.
fn alive(servers: &mut Servers) -> bool {
    let running = matches!(servers.ours.ended(), Ok(None));
    running && servers.ours.client().and_then(|mut c| Ok(c.command("PING")?)).is_ok_and(|r| r.error().is_none())
}
