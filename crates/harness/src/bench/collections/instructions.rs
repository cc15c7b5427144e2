//! Instructions per request of two builds of the server, counted by valgrind.
//!
//! CPU time on a machine that others share varies by several percent from one run to the next; the number of
//! instructions that a request takes varies by less than one. It knows neither the kernel's work nor waits for memory,
//! so that it does not compare different servers: it says whether a change has made a command do more.
//! Cases in which a server is started again are left out.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::cases::Case;
use super::driver::Load;
use super::{DIRECTIVES, FILL_PIPELINE, chosen};
use crate::bench::process::idle_cpu_seconds;
use crate::server::{Server, Template, Workplace};

/// Cases with at least so many requests have short ones.
const SHORT_REQUESTS: u64 = 1_000_000;

const IDLE_MAX: Duration = Duration::from_secs(20);

pub struct Options {
    /// The server before the change.
    pub base: PathBuf,
    /// The server after it.
    pub server: PathBuf,
    /// The ids of the cases; empty for all.
    pub cases: Vec<String>,
    /// The part of a case's requests that is counted.
    pub scale: f64,
    /// The greatest ratio of instructions that is no finding.
    pub at_most: f64,
}

/// Counts and prints; returns true if no case takes more than `at_most` of the instructions before.
pub fn run(options: &Options) -> Result<bool> {
    let mut all = true;
    for case in chosen(&options.cases)?.filter(|case| !case.is_stored) {
        let count = |binary: &Path| count(options, binary, case).with_context(|| format!("counting {}", case.id));
        // Each server has one core at most: they do not disturb each other's counts.
        let (base, ours) = std::thread::scope(|threads| {
            let base = threads.spawn(|| count(&options.base));
            let ours = count(&options.server);
            (base.join().expect("it does not panic"), ours)
        });
        let (base, ours) = (base?, ours?);
        let (ratio, more) = (ours / base, if ours / base > options.at_most { " MORE" } else { "" });
        let pipeline = pipeline(case);
        println!("{:14} P{pipeline:<2} ratio {ratio:5.3}{more}  ours {ours:9.0}  base {base:9.0}", case.id);
        all &= more.is_empty();
    }
    Ok(all)
}

/// Returns how many requests are in flight on a connection: a server that valgrind runs is so slow that a pipeline of
/// long requests would be parted into several turns.
fn pipeline(case: &Case) -> usize {
    if case.requests < SHORT_REQUESTS { 1 } else { case.pipeline }
}

/// Returns the instructions that a request takes, with all that the server does meanwhile.
fn count(options: &Options, binary: &Path, case: &Case) -> Result<f64> {
    let requests = ((case.requests as f64 * options.scale) as u64).max(1000);
    let pipeline = pipeline(case);
    let place = Workplace::new("instructions", None)?;
    let counts = place.file("counts");
    let valgrind = format!("valgrind --tool=callgrind --instr-atstart=no --callgrind-out-file={}", counts.display());
    let template = Template::haypile(binary, DIRECTIVES)?.behind(&valgrind)?;
    let (server, _) = Server::start(&template, &place)?;
    let load =
        |requests, pipeline, make, seed| Load { port: server.port(), requests, pipeline, seed, cpu: None, make }.run();
    if let Some(fill) = case.fill {
        load(fill.requests, FILL_PIPELINE, fill.make, 1).context("the fill")?;
    }
    load(requests / 4, pipeline, case.make, 2)?;
    idle_cpu_seconds(server.pid(), IDLE_MAX);
    switch("on", server.pid())?;
    load(requests, pipeline, case.make, 3)?;
    switch("off", server.pid())?;
    server.stop()?;
    let text = std::fs::read_to_string(&counts).context("reading what valgrind has counted")?;
    let total = text.lines().filter_map(|line| line.strip_prefix("totals: ")?.trim().parse::<u64>().ok()).sum::<u64>();
    ensure!(total > 0, "valgrind has counted nothing");
    Ok(total as f64 / requests as f64)
}

/// Has valgrind begin or end to count in a process.
fn switch(to: &str, pid: u32) -> Result<()> {
    let mut command = Command::new("callgrind_control");
    command.args(["-i", to, &pid.to_string()]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().context("starting callgrind_control: is valgrind installed?")?;
    ensure!(status.success(), "callgrind_control: {status}");
    Ok(())
}
