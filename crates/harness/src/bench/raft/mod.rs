//! Three servers of a Raft group beside three of etcd, on one machine and disk, one group after the other in
//! alternating rounds: throughput, latency, and the CPU time of all three servers; how long no writes are taken after
//! the leader was killed.
//!
//! `cases` is the table of loads and targets, `rounds` measures it; `single` measures our server beside itself,
//! `engines` its engines, `failover` the kills, `disk` what three files take. `haypile` and `etcd` start servers as a
//! [`group::Group`] and send loads to them; `resp` and the Go program in `etcd-load` are the clients. `table` prints.

mod cases;
mod disk;
mod engines;
mod etcd;
mod failover;
mod group;
mod haypile;
mod resp;
mod rounds;
mod single;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};

use super::process::{Steal, machine};
use super::report;
use crate::server::Template;
use haypile::{DIRECTIVES, Mode};

pub struct Options {
    /// The command line of our server, without directives of the bench.
    pub server: Template,
    /// Whether one server without a group is measured in the place of three.
    pub standalone: bool,
    /// The parts to run, of [`PARTS`]; empty for all.
    pub parts: Vec<String>,
    /// The ids of the cases of the first part; empty for all.
    pub cases: Vec<String>,
    pub rounds: u32,
    /// How long a load is measured.
    pub window: Duration,
    /// Leaders to kill.
    pub kills: u32,
    /// The election timeout of our group.
    pub election: Duration,
    /// The directory of the data.
    pub dir: PathBuf,
    pub write_to: Option<PathBuf>,
}

pub const PARTS: &[&str] = &["etcd", "single", "failover", "engines"];

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|name| name == part)
    }

    fn mode(&self) -> Mode {
        if self.standalone { Mode::Standalone } else { Mode::Group }
    }

    /// How long a load runs before it is measured.
    fn warm(&self) -> Duration {
        self.window.min(Duration::from_secs(1))
    }
}

/// Measures and prints; returns true if all targets are met.
pub fn run(options: &Options) -> Result<bool> {
    if let Some(unknown) = options.parts.iter().find(|name| !PARTS.contains(&name.as_str())) {
        bail!("no part {unknown:?}; there are {}", PARTS.join(", "));
    }
    let (etcd, steal) = (etcd::version()?, Steal::now());
    let (mut pieces, mut met) = (Vec::new(), true);
    if options.wants("etcd") {
        let measured = rounds::run(options)?;
        met &= measured.is_met();
        pieces.push(table::beside_etcd(&measured));
    }
    let mut rows = Vec::new();
    if options.wants("single") {
        rows.extend(single::run(options)?);
    }
    if options.wants("failover") {
        rows.extend(failover::run(options)?);
    }
    if !rows.is_empty() {
        met &= rows.iter().all(table::Row::is_met);
        pieces.push(table::rows(&rows));
    }
    // The engines are compared under Raft.
    if options.wants("engines") && !options.standalone {
        pieces.push(table::engines(&engines::run(options)?));
    }
    pieces.push(below(options, &etcd, steal));
    let text = pieces.join("\n");
    print!("{text}");
    if let Some(page) = &options.write_to {
        report::write(page, "raft", &report::rounds(options.rounds), &text)?;
        println!("written to {}", page.display());
    }
    Ok(met)
}

/// Returns the line under the tables.
fn below(options: &Options, etcd: &str, steal: Steal) -> String {
    let who = if options.standalone { "One server without a group, with" } else { "Each server of our group with" };
    format!(
        "{who} `{DIRECTIVES}`, etcd {etcd}; rounds of {:.1} s on {}, medians; {:.1} % of the time was stolen.\n",
        options.window.as_secs_f64(),
        machine(),
        steal.percent_since()
    )
}
