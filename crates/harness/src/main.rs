//! `haypile-harness`: reads the command line and runs one of the programs of the library.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use haypile_harness::diff::{self, sequence};
use haypile_harness::raft_chaos::check::porcupine::Checker;
use haypile_harness::raft_chaos::network::{Network, enter};
use haypile_harness::raft_chaos::system::Ability;
use haypile_harness::random::fresh_seed;
use haypile_harness::server::{Template, Workplace, haypile_binary};
use haypile_harness::{bench, crash, damage, hostile, psync, raft_chaos, repl, soak};

/// Proves and measures a Haypile server from outside, over its sockets.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    program: Program,
}

#[derive(Subcommand)]
enum Program {
    /// Runs generated commands against redis-server and the server, and compares replies.
    Diff(Diff),
    /// Writes from many connections, kills the server again and again, and verifies every acknowledged write.
    Crash(Crash),
    /// Kills, stops, cuts off and promotes servers that follow each other, and verifies that they agree.
    Repl(Repl),
    /// Follows a redis-server, with kills and cuts, and compares every key.
    Psync(psync::Options),
    /// Disturbs a group of nodes in every way, and checks that what clients heard is linearizable.
    RaftChaos(RaftChaos),
    /// Damages files of a data directory, and compares what comes up with what was acknowledged.
    Damage(Damage),
    /// Measures CPU time per request beside redis-server.
    Bench(Bench),
    /// Mixed load for long, with memory, files and threads of the server watched.
    Soak(Soak),
    /// Attacks a small server from many sides, one after the other, with an innocent client beside.
    Hostile(Hostile),
}

/// The server under test.
#[derive(Args)]
struct Under {
    /// Its command line with {port} and {dir}; default: the haypile beside this program, or HAYPILE_BIN.
    #[arg(long)]
    server: Option<String>,
    /// Directives added to the command line, as in "--workers 1 --maxmemory 64mb".
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    options: String,
}

impl Under {
    /// Returns the command line, with `directives` of the program before those of the user.
    fn template(&self, directives: &str) -> Result<Template> {
        match &self.server {
            Some(line) => Template::parse(line)?.with(&self.options),
            None => Template::haypile(&haypile_binary()?, directives)?.with(&self.options),
        }
    }
}

#[derive(Args)]
struct Diff {
    #[command(flatten)]
    under: Under,
    /// The reference server: a command line with {port} and {dir}.
    #[arg(long, default_value = "redis-server --bind 127.0.0.1 --port {port} --dir {dir} --save \"\"")]
    base: String,
    /// Default: one from the clock. It is printed.
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 1000)]
    cases: u64,
    /// The number of the first case.
    #[arg(long, default_value_t = 0)]
    first_case: u64,
    /// The kind of cases: all, or only those of commands, of channels or of blocking.
    #[arg(long, value_enum, default_value_t = diff::Kind::All)]
    kind: diff::Kind,
    /// Ends the run after this number of failing sequences.
    #[arg(long, default_value_t = 1)]
    failures_max: u64,
    /// The directory for failing sequences.
    #[arg(long, default_value = "target/diff")]
    save_to: PathBuf,
    /// Plays the sequences of a file instead.
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Prints the table of differences that are allowed, and stops.
    #[arg(long)]
    exceptions: bool,
}

#[derive(Args)]
struct Crash {
    #[command(flatten)]
    under: Under,
    /// Default: one from the clock. It is printed.
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Connections that write.
    #[arg(long, default_value_t = 24)]
    writers: u64,
    /// The durability that a reply waits for: os or fsync. Given to our server only, as everything in --base-options.
    #[arg(long, default_value = "os")]
    durability: String,
    /// Directives that make flushes, segments and chunks small, so that kills meet them.
    #[arg(long, default_value = crash::SMALL_STORE, default_value_if("short_disk", "true", crash::short_disk::SMALL_STORE))]
    base_options: String,
    /// On a small disk, a tmpfs, that other files fill and empty again.
    #[arg(long)]
    short_disk: bool,
}

#[derive(Args)]
struct Repl {
    #[command(flatten)]
    under: Under,
    /// Default: one from the clock. It is printed.
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Connections that write before a disturbance, and as many behind it.
    #[arg(long, default_value_t = 5)]
    writers: u64,
    /// The durability that a reply waits for: os or fsync.
    #[arg(long, default_value = "os")]
    durability: String,
}

#[derive(Args)]
struct RaftChaos {
    /// The system under test: a group of our servers, etcd as a control, or one server of ours.
    #[arg(long, value_enum, default_value_t = ChaosSystem::Haypile)]
    system: ChaosSystem,
    /// The command line is that of the system `single`; the options are for it and for a group of ours.
    #[command(flatten)]
    under: Under,
    /// The number of nodes; always 1 for the system `single`.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Default: one from the clock. It is printed.
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Connections that read and write.
    #[arg(long, default_value_t = 10)]
    clients: u64,
    /// The only scenario to play, by its name.
    #[arg(long)]
    scenario: Option<String>,
    /// Prints the names of the scenarios, and stops.
    #[arg(long)]
    scenarios: bool,
    /// Checks a history in a file instead, as a failed run leaves one.
    #[arg(long)]
    check: Option<PathBuf>,
    /// Has all sessions lie in this way, which must be found.
    #[arg(long = "break", value_enum)]
    lie: Option<raft_chaos::lies::Lie>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ChaosSystem {
    Haypile,
    Etcd,
    /// Etcd whose nodes answer reads without a quorum, which must be found.
    EtcdSerializable,
    Single,
}

#[derive(Args)]
struct Damage {
    #[command(flatten)]
    under: Under,
    /// Default: one from the clock. It is printed.
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// The durability that a reply waits for: os or fsync.
    #[arg(long, default_value = "os")]
    durability: String,
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
struct Bench {
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
    /// Only prints.
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

#[derive(Args)]
struct Soak {
    #[command(flatten)]
    under: Under,
    /// Default: one from the clock. It is printed.
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    #[arg(long, default_value_t = 16)]
    clients: u64,
    /// The settings for CONFIG SET, which runs all the time, separated by semicolons.
    #[arg(long, default_value = soak::SETTINGS)]
    settings: String,
}

#[derive(Args)]
struct Hostile {
    #[command(flatten)]
    under: Under,
    /// The duration of each attack, in seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Attacks, separated by commas; all if not given.
    #[arg(long, value_delimiter = ',')]
    attacks: Vec<String>,
    /// The factor on the usual size of each attack.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Attacks a server with its default settings, of which only waits are judged, instead of a small one.
    #[arg(long)]
    defaults: bool,
    /// Attacks redis-server as well, each time after the server, and prints ratios.
    #[arg(long)]
    compare: bool,
}

fn main() -> ExitCode {
    let result = match Cli::parse().program {
        Program::Diff(arguments) => run_diff(&arguments),
        Program::Crash(arguments) => run_crash(&arguments),
        Program::Repl(arguments) => run_repl(&arguments),
        Program::Psync(options) => psync::run(&options),
        Program::RaftChaos(arguments) => run_raft_chaos(&arguments),
        Program::Damage(arguments) => run_damage(&arguments),
        Program::Bench(arguments) => run_bench(&arguments),
        Program::Soak(arguments) => run_soak(&arguments),
        Program::Hostile(arguments) => run_hostile(&arguments),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("haypile-harness: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_diff(arguments: &Diff) -> Result<bool> {
    if arguments.exceptions {
        print!("{}", diff::exceptions_table());
        return Ok(true);
    }
    let base = Template::parse(&arguments.base)?;
    let server = arguments.under.template(diff::SMALL_STORE)?;
    if let Some(path) = &arguments.replay {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let kept = if text.contains("\n== ") {
            sequence::kept_from_text(&text)?
        } else {
            vec![sequence::Kept { name: path.display().to_string(), sequence: sequence::from_text(&text)? }]
        };
        let failed = diff::replay(&base, &server, &kept)?;
        println!("diff: {} sequences replayed, {} differ", kept.len(), failed.len());
        return Ok(failed.is_empty());
    }
    diff::run(&diff::Options {
        base,
        server,
        seed: arguments.seed.unwrap_or_else(fresh_seed),
        first_case: arguments.first_case,
        cases: arguments.cases,
        kind: arguments.kind,
        failures_max: arguments.failures_max,
        save_to: arguments.save_to.clone(),
    })
}

fn run_raft_chaos(arguments: &RaftChaos) -> Result<bool> {
    use raft_chaos::scenario::{SCENARIOS, Scenario};
    use raft_chaos::systems::{etcd::Etcd, haypile::Haypile, single};
    if arguments.scenarios {
        SCENARIOS.iter().for_each(|scenario| println!("{}", scenario.name));
        return Ok(true);
    }
    if let Some(path) = &arguments.check {
        return raft_chaos::recheck(path);
    }
    let directives = format!("{} {}", single::DIRECTIVES, arguments.under.options);
    let system: Box<dyn raft_chaos::system::System> = match arguments.system {
        ChaosSystem::Etcd => Box::new(Etcd { serializable: false }),
        ChaosSystem::EtcdSerializable => Box::new(Etcd { serializable: true }),
        ChaosSystem::Single => Box::new(single::Single { template: arguments.under.template(single::DIRECTIVES)? }),
        ChaosSystem::Haypile => Box::new(Haypile { binary: haypile_binary()?, directives }),
    };
    let find = |name: &String| Scenario::named(name).with_context(|| format!("no scenario {name}; see --scenarios"));
    let scenario = arguments.scenario.as_ref().map(find).transpose()?;
    let alone = arguments.system == ChaosSystem::Single;
    if !alone {
        // The first build fetches a module, which needs the network that the namespaces do not have.
        let place = Workplace::new("checker", None)?;
        Checker::build(&place.data())?;
    }
    let network = match if alone { None } else { enter()? } {
        Some(network) => network,
        None if system.can(Ability::OwnAddresses) && !alone => Network::Relays,
        None => Network::Loopback,
    };
    raft_chaos::run(&raft_chaos::Options {
        system: &*system,
        network,
        nodes: if alone { 1 } else { arguments.nodes },
        seed: arguments.seed.unwrap_or_else(fresh_seed),
        time: Duration::from_secs_f64(arguments.minutes * 60.0),
        clients: arguments.clients,
        scenario,
        lie: arguments.lie,
    })
}

fn run_damage(arguments: &Damage) -> Result<bool> {
    let durability = &arguments.durability;
    let directives = format!("--durability {durability} {}", crash::SMALL_STORE);
    damage::run(&damage::Options {
        server: arguments.under.template(&directives)?,
        seed: arguments.seed.unwrap_or_else(fresh_seed),
        time: Duration::from_secs_f64(arguments.minutes * 60.0),
        fsync: durability == "fsync",
    })
}

fn run_repl(arguments: &Repl) -> Result<bool> {
    let durability = &arguments.durability;
    repl::run(&repl::Options {
        server: arguments.under.template(&format!("--durability {durability} {}", repl::DIRECTIVES))?,
        seed: arguments.seed.unwrap_or_else(fresh_seed),
        time: Duration::from_secs_f64(arguments.minutes * 60.0),
        writers: arguments.writers,
    })
}

fn run_crash(arguments: &Crash) -> Result<bool> {
    let durability = format!("--durability {}", arguments.durability);
    let run = if arguments.short_disk { crash::short_disk::run } else { crash::run };
    run(&crash::Options {
        server: arguments.under.template(&format!("{durability} {}", arguments.base_options))?,
        seed: arguments.seed.unwrap_or_else(fresh_seed),
        time: Duration::from_secs_f64(arguments.minutes * 60.0),
        writers: arguments.writers,
    })
}

fn run_bench(arguments: &Bench) -> Result<bool> {
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

fn run_soak(arguments: &Soak) -> Result<bool> {
    soak::run(&soak::Options {
        server: arguments.under.template(soak::DIRECTIVES)?,
        seed: arguments.seed.unwrap_or_else(fresh_seed),
        time: Duration::from_secs_f64(arguments.minutes * 60.0),
        clients: arguments.clients,
        settings: arguments.settings.split(';').filter(|s| !s.is_empty()).map(str::to_string).collect(),
    })
}

fn run_hostile(arguments: &Hostile) -> Result<bool> {
    hostile::run(&hostile::Options {
        server: arguments.under.template(if arguments.defaults { "" } else { hostile::DIRECTIVES })?,
        judged: hostile::Judged {
            waits: true,
            resident_bytes_max: (!arguments.defaults).then_some(hostile::RESIDENT_BYTES_MAX),
        },
        base: arguments.compare.then(|| Template::redis("")).transpose()?,
        time: Duration::from_secs_f64(arguments.seconds),
        attacks: arguments.attacks.clone(),
        scale: arguments.scale,
    })
}
