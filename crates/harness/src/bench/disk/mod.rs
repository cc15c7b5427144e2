//! The disk benchmark: more data than memory, values that differ for each key and compress to about half, reads that
//! bypass the page cache. Where a comparison says something, redis-server is measured too, with as much as fits its
//! memory.
//!
//! `keys` makes keys and values, `driver` sends them, `watch` observes the process meanwhile, `phases` are the
//! measurements.

pub(super) mod driver;
pub(super) mod keys;
pub mod phases;
pub(super) mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::process::{AwayFrom, free_disk_bytes, machine};
use super::report;
use crate::server::{Server, Template, Workplace};
use phases::{Bench, Figure};

pub struct Options {
    pub base: Template,
    pub server: Template,
    /// The names of the phases; empty for all.
    pub phases: Vec<String>,
    pub keys: u64,
    pub base_keys: u64,
    pub window: Duration,
    pub writes: Duration,
    /// Operations in each round of the phase `workers`, and keys written in the phase `start`.
    pub operations: u64,
    pub seed: u64,
    pub budget_bytes: u64,
    /// The server's exclusive core in the phase `hot`.
    pub server_cpu: u32,
    /// The directory of the data.
    pub dir: PathBuf,
    /// The directory where our server's data stays, to be measured again; with it redis-server is left out.
    pub data: Option<PathBuf>,
    pub write_to: Option<PathBuf>,
}

pub const PHASES: &[&str] = &["reads", "hot", "writes", "constant", "start", "workers"];
/// The phases that use servers of their own.
const APART: &[&str] = &["start", "workers"];
/// The rounds of the phase `workers`; the other phases are measured once.
const WORKERS_ROUNDS: u32 = 3;
/// The directives of our server: a memory budget of its own, and no help from the page cache.
pub const DIRECTIVES: &str = "--maxmemory 256mb --direct-reads yes";

/// Bytes on disk of a key and its value before compression, with the overhead of rows and blocks.
const BYTES_PER_KEY: u64 = 180;
/// Copies of the data that may exist at once: log, levels, compaction's output, versions on the way down, and files
/// that are not deleted yet.
const COPIES_MAX: u64 = 2;

/// Measures and prints; returns true if each target is met.
pub fn run(options: &Options) -> Result<bool> {
    if let Some(unknown) = options.phases.iter().find(|name| !PHASES.contains(&name.as_str())) {
        bail!("no phase {unknown:?}; there are {}", PHASES.join(", "));
    }
    let peak = options.keys * BYTES_PER_KEY * COPIES_MAX + (1 << 30);
    let dir = options.data.as_ref().unwrap_or(&options.dir);
    std::fs::create_dir_all(dir)?;
    let free = free_disk_bytes(dir)?;
    let gigabytes = |bytes: u64| bytes as f64 / 1e9;
    println!(
        "bench disk: seed {}, {} keys, expected to use {:.1} GB of disk at most; {:.1} GB are free in {}",
        options.seed,
        options.keys,
        gigabytes(peak),
        gigabytes(free),
        dir.display()
    );
    ensure!(
        free >= 2 * peak,
        "twice that must be free, {:.1} GB; use another directory, or fewer --keys",
        gigabytes(2 * peak)
    );
    if wanted(options, "hot") {
        drop(
            AwayFrom::cpu(options.server_cpu)
                .context("the phase hot needs a core for the server and one for its clients")?,
        );
    }
    let mut figures = Vec::new();
    if options.phases.is_empty() || options.phases.iter().any(|phase| !APART.contains(&phase.as_str())) {
        figures.extend(on_server(options, &options.server, "ours", options.keys, Some(options.budget_bytes))?);
        if options.data.is_none() {
            figures.extend(on_server(options, &options.base, "Redis", options.base_keys, None)?);
        }
    }
    if wanted(options, "start") {
        let starts = phases::starts(&options.server, options.operations, &options.dir, options.seed);
        figures.extend(show(starts.context("the phase start")?));
    }
    if wanted(options, "workers") {
        let workers = phases::workers(&options.server, WORKERS_ROUNDS, options.operations, options.seed)?;
        figures.extend(show(workers));
    }
    if let Some(dir) = &options.write_to {
        report::write(dir, "disk", &rounds(options), &table(&figures, options))?;
        println!("written to {}", dir.join("benchmarks.md").display());
    }
    Ok(figures.iter().all(|figure| figure.target.as_ref().is_none_or(|(_, met)| *met)))
}

fn wanted(options: &Options, phase: &str) -> bool {
    options.phases.is_empty() || options.phases.iter().any(|name| name == phase)
}

/// The constants of a server that is stopped and started.
struct Side<'a> {
    options: &'a Options,
    dir: &'a Path,
    name: &'static str,
    keys: u64,
    budget_bytes: Option<u64>,
}

impl Side<'_> {
    fn on<'s>(&'s self, server: &'s Server) -> Bench<'s> {
        let Side { options, dir, name, keys, budget_bytes } = *self;
        Bench { server, dir, name, keys, window: options.window, seed: options.seed, budget_bytes }
    }
}

/// Runs all phases on one server, in a directory of its own.
fn on_server(
    options: &Options,
    template: &Template,
    name: &'static str,
    keys: u64,
    budget_bytes: Option<u64>,
) -> Result<Vec<Figure>> {
    let place = match &options.data {
        Some(path) => Workplace::at(path)?,
        None => Workplace::new("bench-disk", Some(&options.dir))?,
    };
    let dir = place.data();
    let side = Side { options, dir: &dir, name, keys, budget_bytes };
    let mut server = Server::start(template, &place)?.0;
    let mut figures = Vec::new();
    let found = server.client()?.command("DBSIZE")?.integer().unwrap_or(0) as u64;
    ensure!(found <= keys, "there are {found} keys already, more than {keys}");
    if found < keys {
        figures.extend(show(side.on(&server).fill().context("the fill")?));
    }
    if wanted(options, "reads") {
        figures.extend(show(side.on(&server).reads().context("the phase reads")?));
    }
    if wanted(options, "hot") {
        // The server has a core to itself: else the figures would show the scheduler's choice between server and
        // clients.
        server.stop()?;
        server = Server::start(&template.pinned_to(options.server_cpu), &place)?.0;
        let clients_elsewhere = AwayFrom::cpu(options.server_cpu)?;
        figures.extend(show(side.on(&server).hot_beside_cold().context("the phase hot")?));
        drop(clients_elsewhere);
    }
    // The phases below begin with empty caches, whatever was measured before.
    server.stop()?;
    let server = Server::start(template, &place)?.0;
    let bench = side.on(&server);
    if wanted(options, "writes") {
        // The control run shows what the machine itself does to a second, and needs less time for that.
        let time = if budget_bytes.is_some() { options.writes } else { options.writes.min(Duration::from_secs(60)) };
        figures.extend(show(bench.sustained_writes(time).context("the phase writes")?));
    }
    if wanted(options, "constant") {
        figures.extend(show(bench.constant_time().context("the phase constant")?));
    }
    server.stop()?;
    Ok(figures)
}

/// Prints figures as they come.
fn show(figures: Vec<Figure>) -> Vec<Figure> {
    for figure in &figures {
        let verdict = match &figure.target {
            Some((bound, true)) => format!(" ({bound})"),
            Some((bound, false)) => format!(" ({bound}: MISSED)"),
            None => String::new(),
        };
        println!("{}: {}{verdict}", figure.what, figure.value);
    }
    figures
}

/// Returns the rounds of the phases that were measured.
fn rounds(options: &Options) -> String {
    let one = report::rounds(1);
    if !wanted(options, "workers") {
        return one;
    }
    format!("{one}, the rows of two workers {}", report::in_words(WORKERS_ROUNDS))
}

fn table(figures: &[Figure], options: &Options) -> String {
    let mut out = String::from("| what | measured | target |\n|---|---|---|\n");
    for figure in figures {
        let target = match &figure.target {
            Some((bound, true)) => bound.clone(),
            Some((bound, false)) => format!("{bound} (missed)"),
            None => String::new(),
        };
        out += &format!("| {} | {} | {target} |\n", figure.what, figure.value);
    }
    out + &format!(
        "\nOur server with `{DIRECTIVES}` over {} keys, redis-server over {}; on {}.\n",
        options.keys,
        options.base_keys,
        machine()
    )
}
