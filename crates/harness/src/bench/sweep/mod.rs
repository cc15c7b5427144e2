//! The sweeps: the cost of a request over the sizes of values and over the number of workers, beside redis-server, as
//! tables and charts. The sweeps have no targets: the rows of the main table have them.

mod sizes;
mod workers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::charts;
use super::process::{Steal, machine};
use super::report;
use crate::server::Template;

pub use sizes::{Point, SIZES};
pub use workers::Crew;

pub struct Options {
    pub base: Template,
    pub server: Template,
    /// The sweeps to run, of [`PARTS`]; empty for both.
    pub parts: Vec<String>,
    /// The sizes of values in bytes.
    pub sizes: Vec<u32>,
    /// The most workers.
    pub workers_max: u32,
    pub rounds: u32,
    /// The factor on requests: below 1 for a smoke run.
    pub scale: f64,
    /// The longest time that background work may take to become idle.
    pub idle_max: Duration,
    /// The cores of the sweep of sizes; the sweep of workers uses all.
    pub server_cpu: u32,
    pub client_cpu: u32,
    pub write_to: Option<PathBuf>,
}

pub const PARTS: &[&str] = &["sizes", "workers"];

/// The directives of our server, but for its workers: one in the sweep of sizes.
pub const DIRECTIVES: &str = "--maxmemory 256mb";

#[derive(Debug, Default)]
pub struct Results {
    pub sizes: Vec<Point>,
    pub workers: Vec<Crew>,
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<Results> {
    if let Some(unknown) = options.parts.iter().find(|name| !PARTS.contains(&name.as_str())) {
        anyhow::bail!("no part {unknown:?}; there are {}", PARTS.join(", "));
    }
    let wanted = |part: &str| options.parts.is_empty() || options.parts.iter().any(|name| name == part);
    let mut results = Results::default();
    if wanted("sizes") {
        let steal = Steal::now();
        results.sizes = sizes::measure(options)?;
        let text = format!("{}\n{}", sizes::table(&results.sizes), below(options, steal));
        println!("\n{text}");
        if let Some(dir) = &options.write_to {
            write(options, dir, "sizes", &text)?;
        }
    }
    if wanted("workers") {
        let steal = Steal::now();
        results.workers = workers::measure(options)?;
        let text = format!("{}\n{}", workers::table(&results.workers), below(options, steal));
        println!("\n{text}");
        if let Some(dir) = &options.write_to {
            write(options, dir, "workers", &text)?;
        }
    }
    Ok(results)
}

/// Returns the line under a table.
fn below(options: &Options, steal: Steal) -> String {
    let medians = if options.rounds == 1 { "" } else { " medians of the rounds;" };
    let stolen = steal.percent_since();
    format!("Our server with `{DIRECTIVES}`;{medians} {stolen:.1} % of the time stolen, on {}.\n", machine())
}

fn write(options: &Options, dir: &Path, name: &str, text: &str) -> Result<()> {
    let text = format!("![CPU time per request by {name}](benchmarks-{name}.svg)\n\n{text}");
    report::write(dir, name, &report::rounds(options.rounds), &text)?;
    charts::write(dir)?;
    println!("written to {}", dir.display());
    Ok(())
}
