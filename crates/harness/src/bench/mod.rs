//! The benchmarks: programs that print ratios, not tests with time limits.
//!
//! `rows` is the table of cases and targets; `compare` measures them beside redis-server; `report` writes them into
//! docs/benchmarks.md, and `charts` draws the charts of that page from its tables. `sweep` measures over sizes of
//! values and numbers of workers, `latency` how long many clients wait, with a client of its own. `collections`
//! measures the commands on collections, `giants` the effect of a single huge one on others, `import` the cost of
//! loading a file. `disk` measures what needs more data than memory, with a driver of its own, `raft` a group of three
//! beside etcd.

pub mod charts;
pub mod collections;
pub mod compare;
pub mod disk;
pub mod giants;
pub mod import;
pub mod latency;
pub mod process;
pub mod raft;
mod redis_benchmark;
pub mod replication;
mod report;
pub mod rows;
pub mod sweep;
mod tls;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use compare::Plan;
use rows::{FLUSHES_MIN, ROWS, Row};

/// The server to compare with: a log that is written through and never rewritten, as ours.
pub const BASE: &str =
    "redis-server --port {port} --dir {dir} --save \"\" --appendonly yes --auto-aof-rewrite-percentage 0";
/// The directives of our server for the table.
pub const DIRECTIVES: &str = "--workers 1 --maxmemory 256mb";

pub struct Options {
    pub plan: Plan,
    /// The ids of the rows; empty for all.
    pub rows: Vec<String>,
    /// The directory of the page and the chart, if they are to be written.
    pub write_to: Option<PathBuf>,
}

/// Measures and prints; returns true if each target is met and each write row had its flushes.
pub fn run(options: &Options) -> Result<bool> {
    let chosen = choose(&options.rows)?;
    let mut outcomes = Vec::new();
    let mut good = true;
    for row in chosen {
        let outcome = options.plan.measure(row).with_context(|| format!("measuring {}", row.id))?;
        println!("{}", report::line(&outcome));
        good &= outcome.rounds.ratio() <= row.target;
        if row.writes && options.plan.flushes && outcome.rounds.flushes_min() < FLUSHES_MIN {
            println!("{}: a round had only {} complete flushes", row.id, outcome.rounds.flushes_min());
            good = false;
        }
        outcomes.push(outcome);
    }
    if let Some(dir) = &options.write_to {
        let table = report::table(&outcomes, DIRECTIVES);
        report::write(dir, "bench", &report::rounds(options.plan.rounds), &table)?;
        charts::write(dir)?;
        println!("written to {}", dir.display());
    }
    Ok(good)
}

fn choose(ids: &[String]) -> Result<Vec<&'static Row>> {
    let find = |id: &String| ROWS.iter().find(|row| row.id == id);
    if let Some(unknown) = ids.iter().find(|id| find(id).is_none()) {
        let known: Vec<_> = ROWS.iter().map(|row| row.id).collect();
        bail!("no row {unknown:?}; there are {}", known.join(", "));
    }
    Ok(if ids.is_empty() { ROWS.iter().collect() } else { ids.iter().filter_map(find).collect() })
}
