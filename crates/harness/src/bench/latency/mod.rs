//! The latency benchmark: many clients at pipeline 1 on one machine, redis-server and ours in alternating windows, so
//! that disturbances of the machine meet both.
//!
//! Both servers run all the time, on one core, and only one of them is asked at a time; the client has the other cores.
//! `crowd` is the client, `figures` the results.

pub(super) mod crowd;
mod figures;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use super::charts;
use super::compare::flushes;
use super::disk::driver::{Load, Until, Verb, run as fill};
use super::disk::keys::Choice;
use super::process::{AwayFrom, Steal, cpu_seconds, idle_cpu_seconds, machine};
use super::report;
use crate::client::Client;
use crate::server::{Server, Template, Workplace};
use crowd::{Crowd, Pace, SETS_PERCENT};
pub use figures::{Window, Windows};

pub struct Options {
    pub base: Template,
    pub server: Template,
    pub connections: usize,
    /// The length of one window.
    pub window: Duration,
    pub rounds: u32,
    /// Requests a second of the second half; if not given, half of what redis-server did in the first one.
    pub rate: Option<f64>,
    /// The servers' core, which the client leaves to them; none where all run everywhere.
    pub server_cpu: Option<u32>,
    /// The longest time that background work may take to become idle between two windows.
    pub idle_max: Duration,
    pub seed: u64,
    pub write_to: Option<PathBuf>,
}

const KEYS: u64 = 100_000;

/// Measures and prints; returns the windows of the closed loop and those at a rate.
pub fn run(options: &Options) -> Result<Vec<Windows>> {
    let steal = Steal::now();
    let away = options.server_cpu.map(AwayFrom::cpu).transpose()?;
    let mut base = Side::start(options, &options.base).context("redis-server")?;
    let mut ours = Side::start(options, &options.server).context("our server")?;
    let closed = alternate(options, &mut base, &mut ours, Pace::Closed, "closed loop".to_string())?;
    let rate = options.rate.unwrap_or_else(|| closed.base().rate / 2.0);
    let title = format!("{rate:.0} requests a second");
    let open = alternate(options, &mut base, &mut ours, Pace::Rate(rate), title)?;
    ours.server.stop()?;
    base.server.stop()?;
    drop(away);
    let all = vec![closed, open];
    let text = page(options, &all, steal.percent_since());
    println!("\n{text}");
    if let Some(dir) = &options.write_to {
        report::write(dir, "latency", &report::rounds(options.rounds), &text)?;
        charts::write(dir)?;
        println!("written to {}", dir.display());
    }
    Ok(all)
}

fn page(options: &Options, all: &[Windows], stolen: f64) -> String {
    format!(
        "![Latency of both servers](benchmarks-latency.svg)\n\n{}\nMilliseconds. {} connections, {KEYS} keys of 128 bytes, \
         {SETS_PERCENT} % SET and the others GET; rounds of {} s for each server and load; {:.1} % of the time stolen, on {}.\n",
        figures::table(all),
        options.connections,
        options.window.as_secs_f64(),
        stolen,
        machine()
    )
}

/// A server with its clients.
struct Side {
    server: Server,
    control: Client,
    crowd: Crowd,
    /// The directory, dropped after the server.
    _place: Workplace,
}

impl Side {
    fn start(options: &Options, template: &Template) -> Result<Side> {
        let place = Workplace::new("latency", None)?;
        let template = options.server_cpu.map_or_else(|| template.clone(), |cpu| template.pinned_to(cpu));
        let (server, _) = Server::start(&template, &place)?;
        let (choice, until) = (Choice::each_once(KEYS), Until::Count(KEYS));
        fill(server.port(), &Load { verb: Verb::Set, choice, connections: 4, pipeline: 64, until, seed: options.seed })
            .context("the fill")?;
        let crowd = Crowd::connect(server.port(), options.connections, KEYS, options.seed)?;
        Ok(Side { control: server.client()?, crowd, server, _place: place })
    }

    /// Measures one window, after a short one that does not count, and waits until the server is quiet, so that the
    /// other server is not disturbed.
    fn window(&mut self, options: &Options, pace: Pace) -> Result<Window> {
        self.crowd.measure(pace, options.window / 10)?;
        let (flushes_before, cpu_before) = (flushes(&mut self.control)?, cpu_seconds(self.server.pid()));
        let seen = self.crowd.measure(pace, options.window)?;
        let server_cpu_seconds = cpu_seconds(self.server.pid()) - cpu_before;
        let flushes = flushes(&mut self.control)? - flushes_before;
        idle_cpu_seconds(self.server.pid(), options.idle_max);
        Ok(Window { seen, server_cpu_seconds, flushes })
    }
}

/// Measures the rounds of one pace; the server that begins alternates.
fn alternate(options: &Options, base: &mut Side, ours: &mut Side, pace: Pace, title: String) -> Result<Windows> {
    let mut rounds = Vec::new();
    for round in 0..options.rounds {
        let mut of_base = || base.window(options, pace).context("redis-server");
        let mut of_ours = || ours.window(options, pace).context("our server");
        let pair = if round % 2 == 0 {
            let theirs = of_base()?;
            (theirs, of_ours()?)
        } else {
            let own = of_ours()?;
            (of_base()?, own)
        };
        println!("{}", figures::line(&title, round + 1, &pair));
        rounds.push(pair);
    }
    Ok(Windows { title, rounds })
}
