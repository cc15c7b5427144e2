//! The cost of replication beside redis-server's: a master with a replica and without, what the replica costs, how far
//! it is behind; replies that wait for a replica; a full resync beside a copy of the same files; promotions; what it
//! costs to follow a redis-server.
//!
//! CPU time is that of all threads of a process, from before a load until it has been idle, as in `compare`.

mod acknowledged;
mod followed;
mod full_sync;
mod pair;
mod redis;
mod stream;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use super::process::{Steal, machine};
use super::report;
use crate::server::Template;

pub struct Options {
    /// The template of redis-server.
    pub base: Template,
    /// The template of our server.
    pub server: Template,
    pub rounds: u32,
    /// SETs of one run.
    pub requests: u64,
    /// How long connections write that wait for replicas.
    pub window: Duration,
    /// Values of a kilobyte for the full resync.
    pub sync_keys: u64,
    /// The directory of the data.
    pub dir: PathBuf,
    /// The parts that are measured: stream, acknowledged, sync, redis, followed; all if there are none.
    pub parts: Vec<String>,
    pub write_to: Option<PathBuf>,
}

impl Options {
    fn measures(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }
}

/// A line of the table.
struct Row {
    name: &'static str,
    found: String,
    value: f64,
    at_most: Option<f64>,
}

impl Row {
    fn is_met(&self) -> bool {
        self.at_most.is_none_or(|at_most| self.value <= at_most)
    }
}

/// A part of the measurements.
type Part = fn(&Options) -> Result<Vec<Row>>;

/// Measures and prints; returns true if all targets are met.
pub fn run(options: &Options) -> Result<bool> {
    let steal = Steal::now();
    let parts: [(&str, Part); 5] = [
        ("stream", stream::run),
        ("acknowledged", acknowledged::run),
        ("sync", full_sync::run),
        ("redis", redis::run),
        ("followed", followed::run),
    ];
    let mut rows = Vec::new();
    for (_, measure) in parts.iter().filter(|(part, _)| options.measures(part)) {
        rows.extend(measure(options)?);
    }
    let mut table = String::from("| what | found | at most | |\n|---|---|---|---|\n");
    for row in &rows {
        let at_most = row.at_most.map_or_else(|| "-".to_string(), |at_most| format!("{at_most:.2}"));
        let missed = if row.is_met() { "" } else { " (missed)" };
        table += &format!("| {} | **{:.2}**{missed} | {at_most} | {} |\n", row.name, row.value, row.found);
    }
    let text = format!("{table}\nMedians, on {}; {:.1} % of the time was stolen.\n", machine(), steal.percent_since());
    print!("{text}");
    if let Some(page) = &options.write_to {
        report::write(page, "replication", &report::rounds(options.rounds), &text)?;
        println!("written to {}", page.display());
    }
    Ok(rows.iter().all(Row::is_met))
}

/// Returns the middle of some figures.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
