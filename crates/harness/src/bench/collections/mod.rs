//! The cost of commands on collections beside redis-server: the list of commands that the published tables of this
//! field have, and the cases with targets. `cases` is the table, `driver` sends the requests. `instructions` compares
//! two builds of our server by the same cases.

mod cases;
mod driver;
mod hyperloglogs;
pub mod instructions;
mod queues;
mod streams;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::compare::{Measured, Rounds, flushes};
use super::process::{Steal, idle_cpu_seconds, machine};
use super::report;
use crate::server::{Server, Template, Workplace};
use cases::Case;
use driver::Load;

/// The directives of our server: all data is in memory, as in redis-server.
pub const DIRECTIVES: &str = "--workers 1 --maxmemory 1gb";

/// Requests in flight on a connection while data sets are written.
const FILL_PIPELINE: usize = 4;

pub struct Options {
    pub base: Template,
    pub server: Template,
    /// The ids of the cases; empty for all.
    pub cases: Vec<String>,
    pub rounds: u32,
    /// The factor on requests: below 1 for a smoke run.
    pub scale: f64,
    /// The longest time that background work may take to become idle.
    pub idle_max: Duration,
    pub server_cpu: u32,
    pub client_cpu: u32,
    /// The directory of the page, if the page is to be written.
    pub write_to: Option<PathBuf>,
}

struct Outcome {
    case: &'static Case,
    rounds: Rounds,
}

impl Outcome {
    fn is_missed(&self) -> bool {
        self.case.target.is_some_and(|target| self.rounds.ratio() > target)
    }
}

fn cases() -> impl Iterator<Item = &'static Case> {
    cases::CASES.iter().chain(hyperloglogs::CASES).chain(streams::CASES).chain(queues::CASES)
}

/// Returns the cases with these ids; all of them for none.
///
/// # Errors
/// An id that no case has.
fn chosen(ids: &[String]) -> Result<impl Iterator<Item = &'static Case>> {
    if let Some(unknown) = ids.iter().find(|id| cases().all(|case| case.id != id.as_str())) {
        let known: Vec<_> = cases().map(|case| case.id).collect();
        bail!("no case {unknown:?}; there are {}", known.join(", "));
    }
    Ok(cases().filter(|case| ids.is_empty() || ids.iter().any(|id| id == case.id)))
}

/// Measures and prints; returns true if each target is met.
pub fn run(options: &Options) -> Result<bool> {
    let steal = Steal::now();
    let mut outcomes = Vec::new();
    for case in chosen(&options.cases)? {
        let outcome = measure(options, case).with_context(|| format!("measuring {}", case.id))?;
        println!("{}", line(&outcome));
        outcomes.push(outcome);
    }
    if let Some(dir) = &options.write_to {
        let text = table(&outcomes, steal);
        report::write(dir, "collections", &report::rounds(options.rounds), &text)?;
        println!("written to {}", dir.display());
    }
    Ok(!outcomes.iter().any(Outcome::is_missed))
}

fn measure(options: &Options, case: &'static Case) -> Result<Outcome> {
    let mut rounds = Rounds::default();
    for round in 0..options.rounds {
        let base = one(options, &options.base, case, round).context("redis-server")?;
        let ours = one(options, &options.server, case, round).context("our server")?;
        rounds.each.push((base, ours));
    }
    Ok(Outcome { case, rounds })
}

/// Measures one server in one round, in a directory of its own.
fn one(options: &Options, template: &Template, case: &Case, round: u32) -> Result<Measured> {
    let place = Workplace::new("collections", None)?;
    let template = template.pinned_to(options.server_cpu);
    let (mut server, _) = Server::start(&template, &place)?;
    let scaled = |requests: u64| ((requests as f64 * options.scale) as u64).max(200);
    let load = |server: &Server, requests, pipeline, make, seed| {
        let (port, cpu) = (server.port(), Some(options.client_cpu));
        Load { port, requests: scaled(requests), pipeline, seed, cpu, make }.run()
    };
    if let Some(fill) = case.fill {
        load(&server, fill.requests, FILL_PIPELINE, fill.make, 1).context("the fill")?;
    }
    if case.is_stored {
        server.stop()?;
        server = Server::start(&template, &place)?.0;
    }
    let mut client = server.client()?;
    let before = idle_cpu_seconds(server.pid(), options.idle_max);
    let flushes_before = flushes(&mut client)?;
    let rate = load(&server, case.requests, case.pipeline, case.make, u64::from(round) + 2)?;
    let after = idle_cpu_seconds(server.pid(), options.idle_max);
    let cpu_us = (after - before) / scaled(case.requests) as f64 * 1e6;
    let flushes = flushes(&mut client)? - flushes_before;
    drop(client);
    server.stop()?;
    Ok(Measured { cpu_us, rate, flushes, ..Measured::default() })
}

/// Returns one case as a line for the terminal.
fn line(outcome: &Outcome) -> String {
    let Outcome { case, rounds } = outcome;
    let (low, high) = rounds.spread();
    let target = case.target.map_or(String::new(), |target| format!(" at most {target:.2}"));
    format!(
        "{:14} P{:<2} ratio {:5.2} ({low:.2}..{high:.2}){target}{}  ours {:6.2} us {:>9.0}/s  base {:6.2} us {:>9.0}/s  flushes {}",
        case.id,
        case.pipeline,
        rounds.ratio(),
        if outcome.is_missed() { " MISSED" } else { "" },
        rounds.ours(|m| m.cpu_us),
        rounds.ours(|m| m.rate),
        rounds.base(|m| m.cpu_us),
        rounds.base(|m| m.rate),
        rounds.flushes_min()
    )
}

fn table(outcomes: &[Outcome], steal: Steal) -> String {
    let mut out = String::from(
        "| case | pipeline | of Redis | spread | at most | µs a request, ours | Redis | requests a second, ours | Redis | flushes |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for outcome in outcomes {
        let Outcome { case, rounds } = outcome;
        let (low, high) = rounds.spread();
        out += &format!(
            "| {} | {} | **{:.2}**{} | {low:.2} to {high:.2} | {} | {:.2} | {:.2} | {:.0} | {:.0} | {} |\n",
            case.title,
            case.pipeline,
            rounds.ratio(),
            if outcome.is_missed() { " (missed)" } else { "" },
            case.target.map_or("-".to_string(), |target| format!("{target:.2}")),
            rounds.ours(|m| m.cpu_us),
            rounds.base(|m| m.cpu_us),
            rounds.ours(|m| m.rate),
            rounds.base(|m| m.rate),
            rounds.flushes_min(),
        );
    }
    out + &format!(
        "\nOur server with `{DIRECTIVES}`, on {}; {:.1} % of the time was stolen.\n",
        machine(),
        steal.percent_since()
    )
}
