//! The command line of `bench` and of the benchmarks below it.

use crate::Under;
use anyhow::Result;
use clap::{Args, Subcommand};
use haypile_harness::bench;
use haypile_harness::server::{Template, haypile_binary};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    other: Option<OtherBench>,
    #[command(flatten)]
    common: BenchCommon,
    /// Rows, separated by commas; all if not given.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// The number of rounds, whose median counts.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    #[arg(long, default_value_t = 0)]
    server_cpu: u32,
    #[arg(long, default_value_t = 1)]
    client_cpu: u32,
}

#[derive(Subcommand)]
enum OtherBench {
    /// Measures what needs more data than memory: fill, cold reads, sustained writes.
    Disk(BenchDisk),
    /// Measures how long many clients at pipeline 1 wait, beside redis-server in alternating windows.
    Latency(BenchLatency),
    /// Measures CPU time per request over the sizes of values and the number of workers, beside redis-server.
    Sweep(BenchSweep),
    /// Measures the cost of commands on collections beside redis-server.
    Collections(BenchCollections),
    /// Counts the instructions of each command on collections, and compares them with those of another build.
    Instructions(BenchInstructions),
    /// Measures the effect of one giant collection of each type on other clients.
    Giants(BenchGiants),
    /// Measures the cost of an import of an RDB file beside redis-server, and kills one in the middle.
    Import(BenchImport),
    /// Masters and replicas beside redis-server's, full resyncs, promotions.
    Replication(BenchReplication),
    /// Measures three servers of a Raft group beside three of etcd.
    Raft(BenchRaft),
    /// Draws the charts anew from the tables of benchmarks.md, without measuring.
    Charts(BenchCharts),
}

/// The options of all benchmarks.
#[derive(Args)]
struct BenchCommon {
    #[command(flatten)]
    under: Under,
    /// The server to compare with.
    #[arg(long, default_value = bench::BASE)]
    base: String,
    /// A short run that shows that everything works; its figures mean little and are not written.
    #[arg(long)]
    quick: bool,
    /// Prints the figures only, and writes no file.
    #[arg(long)]
    no_write: bool,
    /// The directory of benchmarks.md and benchmarks.svg.
    #[arg(long, default_value = "docs")]
    write_to: PathBuf,
}

impl BenchCommon {
    /// Returns the directory of the page, if the page is to be written.
    fn page(&self) -> Option<PathBuf> {
        (!self.quick && !self.no_write).then(|| self.write_to.clone())
    }
}

#[derive(Args)]
struct BenchDisk {
    #[command(flatten)]
    common: BenchCommon,
    /// Phases, separated by commas; all if not given. The fill comes first, if the data is missing.
    #[arg(long, value_delimiter = ',')]
    phases: Vec<String>,
    /// Keys in our server.
    #[arg(long, default_value_t = 30_000_000)]
    keys: u64,
    /// Keys in the server to compare with, which has to hold them in memory.
    #[arg(long, default_value_t = 1_000_000)]
    base_keys: u64,
    /// Minutes of sustained writes.
    #[arg(long, default_value_t = 10.0)]
    write_minutes: f64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The directory of the data, on a real disk.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// A directory for our server's data that stays: existing data is not written again, and only our server is
    /// measured.
    #[arg(long)]
    data: Option<PathBuf>,
    /// The server's exclusive core in the phase hot; the clients have the others.
    #[arg(long, default_value_t = 0)]
    server_cpu: u32,
}

#[derive(Args)]
struct BenchLatency {
    #[command(flatten)]
    common: BenchCommon,
    /// The length of one window, in seconds.
    #[arg(long, default_value_t = 8.0)]
    seconds: f64,
    /// Windows of each server in each of the two loads.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    #[arg(long, default_value_t = 200)]
    connections: usize,
    /// Requests a second of the second load; half of what redis-server does in the first one if not given.
    #[arg(long)]
    rate: Option<f64>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The servers' core; the client has the others.
    #[arg(long, default_value_t = 0)]
    server_cpu: u32,
}

#[derive(Args)]
struct BenchSweep {
    #[command(flatten)]
    common: BenchCommon,
    /// The sweeps, separated by commas: sizes, workers; both if not given.
    #[arg(long, value_delimiter = ',')]
    parts: Vec<String>,
    /// Bytes of values, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = bench::sweep::SIZES.to_vec())]
    sizes: Vec<u32>,
    #[arg(long, default_value_t = 4)]
    workers_max: u32,
    /// The number of rounds, whose median counts.
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    #[arg(long, default_value_t = 0)]
    server_cpu: u32,
    #[arg(long, default_value_t = 1)]
    client_cpu: u32,
}

#[derive(Args)]
struct BenchCollections {
    #[command(flatten)]
    common: BenchCommon,
    /// Cases, separated by commas; all if not given.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// The number of rounds, whose median counts.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    #[arg(long, default_value_t = 0)]
    server_cpu: u32,
    #[arg(long, default_value_t = 1)]
    client_cpu: u32,
}

#[derive(Args)]
struct BenchInstructions {
    /// The binary of the build before.
    #[arg(long)]
    base: PathBuf,
    /// The binary of the build after; default: the haypile beside this program, or HAYPILE_BIN.
    #[arg(long)]
    server: Option<PathBuf>,
    /// Cases, separated by commas; all if not given.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// The part of each case's requests that is counted.
    #[arg(long, default_value_t = 0.05)]
    scale: f64,
    /// The greatest ratio that is no finding.
    #[arg(long, default_value_t = 1.03)]
    at_most: f64,
}

#[derive(Args)]
struct BenchGiants {
    #[command(flatten)]
    common: BenchCommon,
    /// Types, separated by commas; all if not given.
    #[arg(long, value_delimiter = ',')]
    types: Vec<String>,
    #[arg(long, default_value_t = 50_000_000)]
    elements: u64,
    /// The length of the measurement of the other clients, in seconds.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// The directory of the data, on a real disk.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// The core that the clients leave to the server.
    #[arg(long, default_value_t = 0)]
    server_cpu: u32,
}

#[derive(Args)]
struct BenchImport {
    #[command(flatten)]
    common: BenchCommon,
    /// Strings of 128 bytes in the file.
    #[arg(long, default_value_t = 10_000_000)]
    keys: u64,
    /// The number of rounds, whose median counts.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// The directory of the file and the data, on a real disk.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
}

#[derive(Args)]
struct BenchReplication {
    #[command(flatten)]
    common: BenchCommon,
    /// Parts, separated by commas (stream, acknowledged, sync, redis); all if not given.
    #[arg(long, value_delimiter = ',')]
    parts: Vec<String>,
    /// The number of rounds, whose median counts.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// SETs of one run.
    #[arg(long, default_value_t = 1_500_000)]
    requests: u64,
    /// Values of a kilobyte for the full resync.
    #[arg(long, default_value_t = 5_000_000)]
    sync_keys: u64,
    /// The directory of the data, on a real disk.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
}

#[derive(Args)]
struct BenchRaft {
    #[command(flatten)]
    common: BenchCommon,
    /// Parts, separated by commas (etcd, single, failover, engines); all if not given.
    #[arg(long, value_delimiter = ',')]
    parts: Vec<String>,
    /// Cases of the part etcd, separated by commas; all if not given.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// The number of rounds, whose median counts.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// The length of each measurement, in seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Leaders to kill.
    #[arg(long, default_value_t = 100)]
    kills: u32,
    /// The election timeout of our group, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    election_ms: u64,
    /// Measures one server without a group in the place of three.
    #[arg(long)]
    standalone: bool,
    /// The directory of the data, on a real disk.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
}

#[derive(Args)]
struct BenchCharts {
    /// The directory of benchmarks.md and the charts.
    #[arg(long, default_value = "docs")]
    write_to: PathBuf,
}

pub fn run(arguments: &Bench) -> Result<bool> {
    match &arguments.other {
        Some(OtherBench::Disk(disk)) => return run_bench_disk(disk),
        Some(OtherBench::Latency(latency)) => return run_bench_latency(latency),
        Some(OtherBench::Sweep(sweep)) => return run_bench_sweep(sweep),
        Some(OtherBench::Collections(collections)) => return run_bench_collections(collections),
        Some(OtherBench::Instructions(instructions)) => return run_bench_instructions(instructions),
        Some(OtherBench::Giants(giants)) => return run_bench_giants(giants),
        Some(OtherBench::Import(import)) => return run_bench_import(import),
        Some(OtherBench::Replication(replication)) => return run_bench_replication(replication),
        Some(OtherBench::Raft(raft)) => return run_bench_raft(raft),
        Some(OtherBench::Charts(charts)) => return bench::charts::write(&charts.write_to).map(|()| true),
        None => {}
    }
    let common = &arguments.common;
    let met = bench::run(&bench::Options {
        plan: bench::compare::Plan {
            base: Template::parse(&common.base)?,
            server: common.under.template(bench::DIRECTIVES)?,
            rounds: if common.quick { 1 } else { arguments.rounds },
            scale: if common.quick { 0.05 } else { 1.0 },
            flushes: !common.quick,
            idle_max: Duration::from_secs(if common.quick { 6 } else { 60 }),
            server_cpu: arguments.server_cpu,
            client_cpu: arguments.client_cpu,
        },
        rows: arguments.rows.clone(),
        write_to: common.page(),
    })?;
    // A short run says nothing about targets.
    Ok(met || common.quick)
}

fn run_bench_disk(arguments: &BenchDisk) -> Result<bool> {
    let common = &arguments.common;
    let quick = common.quick;
    let met = bench::disk::run(&bench::disk::Options {
        base: Template::parse(&common.base)?,
        server: common.under.template(bench::disk::DIRECTIVES)?,
        phases: arguments.phases.clone(),
        keys: if quick { 500_000 } else { arguments.keys },
        base_keys: if quick { 100_000 } else { arguments.base_keys },
        window: Duration::from_secs(if quick { 1 } else { 10 }),
        writes: Duration::from_secs_f64(if quick { 5.0 } else { arguments.write_minutes * 60.0 }),
        operations: if quick { 100_000 } else { 3_000_000 },
        server_cpu: arguments.server_cpu,
        seed: arguments.seed,
        budget_bytes: 256 << 20,
        dir: arguments.dir.clone(),
        data: arguments.data.clone(),
        write_to: common.page().filter(|_| arguments.data.is_none()),
    })?;
    Ok(met || quick)
}

fn run_bench_latency(arguments: &BenchLatency) -> Result<bool> {
    let common = &arguments.common;
    bench::latency::run(&bench::latency::Options {
        base: Template::parse(&common.base)?,
        server: common.under.template(bench::DIRECTIVES)?,
        connections: arguments.connections,
        window: Duration::from_secs_f64(if common.quick { 0.5 } else { arguments.seconds }),
        rounds: if common.quick { 1 } else { arguments.rounds },
        rate: arguments.rate,
        server_cpu: Some(arguments.server_cpu),
        idle_max: Duration::from_secs(if common.quick { 2 } else { 30 }),
        seed: arguments.seed,
        write_to: common.page(),
    })?;
    Ok(true)
}

fn run_bench_sweep(arguments: &BenchSweep) -> Result<bool> {
    let common = &arguments.common;
    bench::sweep::run(&bench::sweep::Options {
        base: Template::parse(&common.base)?,
        server: common.under.template(bench::sweep::DIRECTIVES)?,
        parts: arguments.parts.clone(),
        sizes: arguments.sizes.clone(),
        workers_max: arguments.workers_max,
        rounds: if common.quick { 1 } else { arguments.rounds },
        scale: if common.quick { 0.02 } else { 1.0 },
        idle_max: Duration::from_secs(if common.quick { 2 } else { 60 }),
        server_cpu: arguments.server_cpu,
        client_cpu: arguments.client_cpu,
        write_to: common.page(),
    })?;
    Ok(true)
}

fn run_bench_collections(arguments: &BenchCollections) -> Result<bool> {
    let common = &arguments.common;
    let met = bench::collections::run(&bench::collections::Options {
        base: Template::parse(&common.base)?,
        server: common.under.template(bench::collections::DIRECTIVES)?,
        cases: arguments.rows.clone(),
        rounds: if common.quick { 1 } else { arguments.rounds },
        scale: if common.quick { 0.01 } else { 1.0 },
        idle_max: Duration::from_secs(if common.quick { 2 } else { 30 }),
        server_cpu: arguments.server_cpu,
        client_cpu: arguments.client_cpu,
        write_to: common.page(),
    })?;
    Ok(met || common.quick)
}

fn run_bench_instructions(arguments: &BenchInstructions) -> Result<bool> {
    bench::collections::instructions::run(&bench::collections::instructions::Options {
        base: arguments.base.clone(),
        server: arguments.server.clone().map_or_else(haypile_binary, Ok)?,
        cases: arguments.rows.clone(),
        scale: arguments.scale,
        at_most: arguments.at_most,
    })
}

fn run_bench_giants(arguments: &BenchGiants) -> Result<bool> {
    let common = &arguments.common;
    let met = bench::giants::run(&bench::giants::Options {
        server: common.under.template(bench::giants::DIRECTIVES)?,
        types: arguments.types.clone(),
        elements: if common.quick { 20_000 } else { arguments.elements },
        window: Duration::from_secs_f64(if common.quick { 0.5 } else { arguments.seconds }),
        dir: arguments.dir.clone(),
        server_cpu: arguments.server_cpu,
        write_to: common.page(),
    })?;
    Ok(met || common.quick)
}

fn run_bench_import(arguments: &BenchImport) -> Result<bool> {
    let common = &arguments.common;
    let met = bench::import::run(&bench::import::Options {
        base: Template::redis("")?,
        server: common.under.template("")?,
        binary: haypile_binary()?,
        keys: if common.quick { 50_000 } else { arguments.keys },
        rounds: if common.quick { 1 } else { arguments.rounds },
        dir: arguments.dir.clone(),
        write_to: common.page(),
    })?;
    Ok(met || common.quick)
}

fn run_bench_replication(arguments: &BenchReplication) -> Result<bool> {
    let common = &arguments.common;
    let quick = |usual: u64| if common.quick { usual / 50 } else { usual };
    let met = bench::replication::run(&bench::replication::Options {
        base: Template::redis("--appendonly yes --auto-aof-rewrite-percentage 0")?,
        server: common.under.template("")?,
        rounds: if common.quick { 1 } else { arguments.rounds },
        requests: quick(arguments.requests),
        window: Duration::from_secs(if common.quick { 1 } else { 10 }),
        sync_keys: quick(arguments.sync_keys),
        dir: arguments.dir.clone(),
        parts: arguments.parts.clone(),
        // The page has all of them.
        write_to: common.page().filter(|_| arguments.parts.is_empty()),
    })?;
    Ok(met || common.quick)
}

fn run_bench_raft(arguments: &BenchRaft) -> Result<bool> {
    let common = &arguments.common;
    let met = bench::raft::run(&bench::raft::Options {
        server: common.under.template("")?,
        standalone: arguments.standalone,
        parts: arguments.parts.clone(),
        cases: arguments.rows.clone(),
        rounds: if common.quick { 1 } else { arguments.rounds },
        window: Duration::from_secs_f64(if common.quick { 0.5 } else { arguments.seconds }),
        kills: if common.quick { 2 } else { arguments.kills },
        election: Duration::from_millis(arguments.election_ms),
        dir: arguments.dir.clone(),
        write_to: common.page().filter(|_| !arguments.standalone),
    })?;
    Ok(met || common.quick)
}
